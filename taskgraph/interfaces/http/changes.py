"""The route by which operators change graphs that run: each kind of change is one operation."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from taskgraph.documents.read import read_json
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.http.problems import Problem
from taskgraph.interfaces.operations import cancel, limit, pause, prioritize, rerun
from taskgraph.interfaces.operations.waiting import ends
from taskgraph.model import schemas
from taskgraph.model.json_pointer import pointer
from taskgraph.model.priorities import column_of_option

Json = dict[str, Any]
Made = tuple[Json, bool]
"""The answer of an operation, and whether handlers have made the change."""

_PROBLEMS_MAX: Final = 20


async def ask(asked: Asked) -> Response:
    """202, or 200 where handlers have made the change while `Prefer: wait` waited for it."""
    if not asked.query["unguarded"]:
        raise Problem(
            428,
            "no-plan",
            "a change is made under the digest of its plan, and this version makes no plans: say ?unguarded=1 to have "
            "it made whatever has become of the graph by then",
        )
    change = _read(await asked.body())
    seconds = asked.wait_seconds()
    _, make = _KINDS[change["change"]]
    answer, made = await make(asked, change, ends(asked.app.clock, seconds) if seconds else None)
    return JSONResponse(answer, 200 if made else 202)


def _read(data: bytes) -> Json:
    """Raises InvalidGraph for what is no JSON, and Problem for what is no change."""
    change = read_json(data, source="body")
    kind = change.get("change") if isinstance(change, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise Problem(400, "invalid-change", f"the body is an object with `change`: one of {', '.join(_KINDS)}")
    validator = schemas.validator("change", f"#/$defs/{_KINDS[kind][0]}")
    if not validator.is_valid(change):
        wrong = [
            {
                "pointer": pointer(tuple(error.absolute_path)),
                "code": "schema",
                "message": error.message[:300],
                "remedy": "See schemas/change.json.",
            }
            for error in list(validator.iter_errors(change))[:_PROBLEMS_MAX]
        ]
        raise Problem(400, "invalid-change", f"the change is no {kind}", problems=wrong)
    return dict(change)


async def _rerun(asked: Asked, change: Mapping[str, Any], until: float | None) -> Made:
    done = await rerun.ask(
        asked.app,
        asked.graph,
        change.get("labels", ()),
        group=change.get("group"),
        failed=change.get("failed", False),
        everything=change.get("all", False),
        downstream=change.get("downstream", False),
        reason=change.get("reason", ""),
    )
    made = until is not None and await rerun.settled(asked.app, done, until=until)
    return done.answer(settled=made), made


async def _cancel(asked: Asked, change: Mapping[str, Any], until: float | None) -> Made:
    done = await cancel.ask(
        asked.app,
        asked.graph,
        change.get("labels", ()),
        group=change.get("group", ""),
        reason=change.get("reason", ""),
        terminate=change.get("terminate", False),
    )
    made = until is not None and await cancel.settled(asked.app, done, until=until)
    return done.answer(await asked.app.queries.state(asked.graph)), made or bool(done.nothing)


async def _hold(asked: Asked, change: Mapping[str, Any], until: float | None) -> Made:
    done = await pause.ask(
        asked.app,
        asked.graph,
        change.get("labels", ()),
        on=change["change"] in ("pause", "deactivate"),
        group=change.get("group", ""),
        reason=change.get("reason", ""),
    )
    made = until is not None and await pause.settled(asked.app, done, until=until)
    return done.answer(settled=made), made


async def _limit(asked: Asked, change: Mapping[str, Any], until: float | None) -> Made:
    done = await limit.ask(
        asked.app, asked.graph, change["max"], group=change.get("group", ""), reason=change.get("reason", "")
    )
    made = until is not None and await limit.settled(asked.app, done, until=until)
    return done.answer(settled=made), made


async def _prioritize(asked: Asked, change: Mapping[str, Any], until: float | None) -> Made:
    done = await prioritize.ask(
        asked.app,
        asked.graph,
        column_of_option(change["priority"]),
        change.get("labels", ()),
        group=change.get("group", ""),
        reason=change.get("reason", ""),
    )
    made = until is not None and await prioritize.settled(asked.app, done, until=until)
    return done.answer(settled=made), made


_Make = Callable[[Asked, Mapping[str, Any], float | None], Awaitable[Made]]
_KINDS: Final[Mapping[str, tuple[str, _Make]]] = {
    "rerun": ("rerun", _rerun),
    "cancel": ("cancel", _cancel),
    "pause": ("hold", _hold),
    "resume": ("hold", _hold),
    "deactivate": ("activity", _hold),
    "activate": ("activity", _hold),
    "set-limit": ("limit", _limit),
    "prioritize": ("priority", _prioritize),
}
"""Kind of change -> the part of its schema, and what asks for it, and waits until a time for it to be made."""
