"""Routes for workers: take tasks, report and renew runs, upload logs. All of it is `worker.gateway`."""

import asyncio
import shlex
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from starlette.responses import JSONResponse, PlainTextResponse, Response

from taskgraph.documents.read import read_json
from taskgraph.engine.telemetry import POLL
from taskgraph.interfaces import views
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.http.problems import Problem
from taskgraph.interfaces.operations.checks import check_schema, check_target
from taskgraph.model import limits
from taskgraph.model.errors import Refused
from taskgraph.model.flag import Flag
from taskgraph.model.json_strict import compact_json
from taskgraph.worker.executors import Outcome
from taskgraph.worker.executors.contract import checked_result, one_line
from taskgraph.worker.gateway import STALE, Answered, Assignment, Report, Returned, RunClaim, Wanted

Json = dict[str, Any]

SHELL: Final = "text/x-shellscript"
"""What a claim is also answered as: the task, as assignments of a POSIX shell."""


async def claim(asked: Asked) -> Response:
    body, gateway, target = await _read(asked, "claim"), asked.app.gateway, asked.path["target"]
    check_target(target)
    slots = body.get("slots", 1)
    shell = SHELL in asked.request.headers.get("accept", "")
    if shell and slots > 1:
        raise Problem(400, "slots", f"{SHELL} has room for one task: ask for one slot, or for JSON")
    done = await gateway.report([_report(each) for each in body.get("done", ())])
    renewed = await gateway.renew([RunClaim.read(each) for each in body.get("renew", ())])
    room = gateway.in_flight_max - gateway.crew.in_hand(asked.who.name)
    if slots and room <= 0 and not (done or renewed):
        words = f"the token {asked.who.name} has {gateway.in_flight_max:,} runs in hand: report some first"
        raise Problem(429, "in-flight", words, headers={"Retry-After": "1"})
    wanted = Wanted(
        body["worker"],
        target,
        body.get("labels", ()),
        min(slots, room),
        body.get("leaseSeconds", limits.LEASE_SECONDS),
        asked.who.name,
    )
    found: list[Assignment] = []
    if wanted.slots > 0:
        wait = body.get("wait", 0)
        async with leaving(asked, watch=wait > 0) as gone:
            found = await gateway.claim(wanted, until=asked.app.clock.monotonic() + wait, gone=gone)
    if shell:
        return PlainTextResponse(_assignments(found), media_type=SHELL)
    return JSONResponse(views.work(found, done, renewed, *gateway.crew.draining(wanted.worker)))


@asynccontextmanager
async def leaving(asked: Asked, *, watch: bool) -> AsyncGenerator[Flag]:
    """Is set once the sender has gone away, or the server is to end."""
    gone = Flag()
    if watch:
        asked.holds(POLL)

    async def watching() -> None:
        if (await asked.request.receive())["type"] == "http.disconnect":
            gone.set()

    watcher = asyncio.create_task(watching()) if watch else None
    try:
        with asked.feeds.ending(gone):
            yield gone
    finally:
        if watcher is not None:
            watcher.cancel()
            await asyncio.wait((watcher,))


def _assignments(found: list[Assignment]) -> str:
    """Of the task that was claimed; nothing without one."""
    return "".join(
        f"{name}={shlex.quote(text.replace(chr(0), ''))}\n"
        for one in found
        for name, text in (
            ("claim", str(one.claim)),
            ("graph", one.claim.graph_id),
            ("label", one.label),
            ("run", str(one.claim.run)),
            ("command", _command(one.definition)),
            ("definition", compact_json(one.definition)),
        )
    )


def _command(definition: Mapping[str, Any]) -> str:
    """As a shell runs it, "" for a task that has none."""
    payload = definition.get("payload")
    command = payload.get("command") if isinstance(payload, dict) else None
    return shlex.join(map(str, command)) if isinstance(command, list) else str(command or "")


async def renew(asked: Asked) -> Any:
    body = await _read(asked, "renewal")
    (answered,) = await asked.app.gateway.renew([_claim(asked)], body.get("leaseSeconds"))
    return views.run_answered(_held(answered))


async def complete(asked: Asked) -> Any:
    return await _end(asked, "completed", "completed")


async def fail(asked: Asked) -> Any:
    return await _end(asked, "failure", "failed")


async def hand_back(asked: Asked) -> Any:
    return await _end(asked, "return", "handed-back")


async def _end(asked: Asked, part: str, end: str) -> Any:
    body = await _read(asked, part)
    claim = _claim(asked)
    (answered,) = await asked.app.gateway.report([_report({"end": end, **body, "claim": str(claim)})])
    return views.run_answered(_held(answered))


async def log(asked: Asked) -> Any:
    claim, data = _claim(asked), await asked.body()
    return views.log_kept(claim, await asked.app.gateway.log(claim, data, asked.query["offset"]))


def _claim(asked: Asked) -> RunClaim:
    return RunClaim.read(asked.path["claim"])


def _held(answered: Answered) -> Answered:
    """Raises Refused for a claim that does not hold any more."""
    if answered.stale:
        raise Refused(answered.stale, STALE)
    return answered


def _report(done: Mapping[str, Any]) -> Report:
    """Raises InvalidInput."""
    claim, end, reason = RunClaim.read(done["claim"]), done["end"], one_line(done.get("reason", ""))
    if end in ("handed-back", "broken"):
        return Report(claim, Returned(reason, broken=end == "broken"))
    result = checked_result(compact_json(done["result"]).encode()) if "result" in done else None
    outcome = Outcome(
        failed=end != "completed",
        reason=reason,
        exit_code=done.get("exitCode"),
        exception=end == "exception",
        result=result,
        temporary=end == "temporary",
        retry_after=done.get("retryAfter"),
    )
    return Report(claim, outcome)


async def _read(asked: Asked, part: str) -> Json:
    """Raises InvalidGraph for what is no JSON, or not of its schema."""
    data = await asked.body()
    body = read_json(data, source="body") if data else {}
    check_schema("work", part, body, "body")
    return dict(body)
