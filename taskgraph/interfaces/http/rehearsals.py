"""Routes that forecast: a graph, or a document, is rehearsed in virtual time, in a thread of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.http.problems import Problem
from taskgraph.interfaces.http.writes import document_of
from taskgraph.interfaces.operations import rehearse as rehearsing
from taskgraph.interfaces.operations.rehearse import Collected, Wanted
from taskgraph.rehearsal.answer import to_json

RUNS_MAX: Final = 50_000
"""Tasks times rehearsals, of one request: about half a millisecond of the server's CPU each."""

RUNS_SHOWN_MAX: Final = 20_000
"""Runs in an answer, of some 200 bytes each."""


async def graph(asked: Asked) -> Any:
    wanted = _wanted(asked)
    async with _turn(asked):
        return await _forecast(asked, await rehearsing.collect_for_graph(asked.app, asked.graph, wanted))


async def document(asked: Asked) -> Any:
    wanted, read = _wanted(asked), await document_of(asked)
    async with _turn(asked):
        return await _forecast(asked, await rehearsing.collect_for_document(asked.app, read, wanted))


@asynccontextmanager
async def _turn(asked: Asked) -> AsyncIterator[None]:
    """One at a time: several threads that never wait leave too little of the process for all other requests."""
    async with asked.request.app.state.rehearsal:
        if await asked.request.is_disconnected():
            raise Problem(400, "gone", "the sender went away before it was its turn")
        yield


def _wanted(asked: Asked) -> Wanted:
    query = asked.query
    return Wanted(
        slots=rehearsing.read_slots(query["slots"]) if query["slots"] else {},
        slots_default=rehearsing.SLOTS,
        history=query["history"],
        seeds=query["seeds"],
        seconds=rehearsing.read_seconds(query["seconds"]),
        limits=rehearsing.read_limits(query["limit"]),
        drop=query["drop"],
        fail=query["fail"],
    )


async def _forecast(asked: Asked, collected: Collected) -> Any:
    runs = collected.tasks * collected.wanted.seeds
    if runs > RUNS_MAX:
        raise Problem(
            413,
            "too-large",
            f"{collected.tasks:,} tasks, {collected.wanted.seeds} times, are more than the {RUNS_MAX:,} runs that a "
            "server rehearses for one request: ask for fewer seeds, or use taskgraph rehearse",
        )
    return to_json(await asyncio.to_thread(collected.forecast), runs=RUNS_SHOWN_MAX if asked.query["runs"] else 0)
