"""Routes that forecast: a graph, or a document, is rehearsed in virtual time, in a thread of its own."""

import asyncio
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
    return await _forecast(asked, await rehearsing.collect_for_graph(asked.app, asked.graph, _wanted(asked)))


async def document(asked: Asked) -> Any:
    wanted = _wanted(asked)
    return await _forecast(asked, await rehearsing.collect_for_document(asked.app, await document_of(asked), wanted))


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
