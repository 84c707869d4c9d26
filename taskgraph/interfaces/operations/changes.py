"""Change a graph by one object for every kind of change: ask for it, plan it, or make it as it was planned.

`schemas/change.json` has the kinds. A plan is what the operation and the handlers come to on a copy of the graph; it
is kept nowhere. It is applied under its digest, and refused where that is another one by then.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations import cancel, limit, pause, prioritize, requests, rerun
from taskgraph.interfaces.operations.checks import asked_by, check_schema, over_http
from taskgraph.interfaces.operations.waiting import ends
from taskgraph.model.errors import InvalidGraph, InvalidInput, Problem, Refused, StorageError, TaskgraphError
from taskgraph.queries.graphs import Queries
from taskgraph.queries.values import GraphsWanted

if TYPE_CHECKING:
    from taskgraph.documents.edit_document import EditDocument
    from taskgraph.documents.nodes import GraphDocument
    from taskgraph.engine.foresight import Foreseen
    from taskgraph.engine.submission import Extension

Json = dict[str, Any]
Change = Mapping[str, Any]
Made = tuple[Json, bool]
"""The answer of an operation, and whether handlers have made the change."""

STALE: Final = "stale-plan"
"""Code of a refusal: the plan is another one now."""


GRAPHS_MAX: Final = 100
"""Graphs that are changed at once."""

T = TypeVar("T")


class StalePlan(Refused):
    """The change would do something else by now. plan: what it would do."""

    def __init__(self, message: str, plan: "Foreseen") -> None:
        super().__init__(message, STALE)
        self.plan = plan


def check(change: object, *, source: str = "change") -> Json:
    """The change, if it is one. Raises InvalidGraph with what is wrong, and where."""
    kind = change.get("change") if isinstance(change, dict) else None
    if not isinstance(change, dict) or not isinstance(kind, str) or kind not in _KINDS:
        names = ", ".join(_KINDS)
        raise InvalidGraph(
            [Problem("", "change", "It names no kind of change.", f"`change` is one of {names}.")], source
        )
    check_schema("change", _KINDS[kind].form, change, source)
    return dict(change)


def check_many(body: object, *, planned: bool, source: str = "body") -> Json:
    """What changes many graphs, if it is that. planned: with the digests of its plans. Raises InvalidGraph."""
    if isinstance(body, dict) and "change" in body:
        check(body["change"], source=source)  # which says more than the schema of all of it
    check_schema("changes", "applied" if planned else "planned", body, source)
    return dict(body) if isinstance(body, dict) else {}


async def ask(app: App, graph_id: str, change: Change, *, wait_seconds: float = 0.0) -> Made:
    """Have a change made, whatever has become of the graph by then. Raises what its operation raises."""
    until = ends(app.clock, wait_seconds) if wait_seconds else None
    return await _KINDS[change["change"]].ask(app, graph_id, change, until)


async def plan(app: App, graph_id: str, change: Change) -> "Foreseen":
    """What a change would do now; nothing is written. Raises what its operation raises."""
    found, _ = await _planned(app, graph_id, change)
    return found


async def _planned(app: App, graph_id: str, change: Change) -> "tuple[Foreseen, Sequence[Any]]":
    """With the messages that the operation sends."""
    from taskgraph.engine.foresight import Copy, foresee, refusal

    copy = Copy(app.handlers)
    over = replace(
        app,
        tables=copy.tables,
        queues=copy.queues,
        queries=Queries(copy.tables, copy.queues, app.clock, app.names, is_dead=app.is_dead),
        made_handlers=lambda: copy.handlers,
        server=None,
    )
    try:
        await _KINDS[change["change"]].ask(over, graph_id, change, None)
    except Refused as error:
        return await refusal(app.handlers, graph_id, str(error)), ()
    messages = copy.asked()
    return await foresee(app.handlers, graph_id, messages, copy), messages


@over_http("apply")
async def apply(app: App, graph_id: str, change: Change, digest: str) -> "Extension":
    """Ask for a change to be made as it was planned. digest: of that plan.

    Raises StalePlan where it is another one now, and what its operation raises.
    """
    from taskgraph.engine import submission

    found, messages = await _planned(app, graph_id, change)
    if found.digest != digest or (found.refused and not messages):
        raise _stale(graph_id, found)
    if not messages:
        raise Refused(f"graph {graph_id}: it changes nothing", "nothing")
    match change["change"]:
        case "edit":
            return await requests.edit(app, graph_id, _edit_of(change), plan=digest)
        case "extend":
            return await requests.extend(app, graph_id, _extension_of(change), plan=digest)
        case _:
            return await submission.change(app.handlers, graph_id, messages, by=asked_by(), plan=digest)


async def applied(
    app: App, graph_id: str, change: Change, asked: "Extension", *, until: float | None = None
) -> Mapping[str, Any]:
    """Wait until handlers have made it; gives the columns of the request then, or when `until` comes first.

    Raises StalePlan where facts came in between.
    """
    try:
        return await requests.settled(app, asked, "change", until=until, deferred=True)
    except Refused as refused:
        raise _stale(graph_id, await plan(app, graph_id, change)) from refused


async def chosen(app: App, where: Mapping[str, Any], *, ids: Sequence[str] = ()) -> list[str]:
    """The ids of the graphs that are meant, now. where: as `schemas/changes.json` has it. ids: see `GraphsWanted`.

    Raises InvalidInput for more than GRAPHS_MAX.
    """
    wanted = GraphsWanted(where.get("state", ""), where.get("name", ""), where.get("tags", {}), ids=ids)
    found = await app.queries.graphs(limit=GRAPHS_MAX + 1, schedule=where.get("schedule", ""), wanted=wanted)
    if len(found) > GRAPHS_MAX:
        raise InvalidInput(f"it finds more than {GRAPHS_MAX} graphs: find fewer at a time")
    return [each.graph_id for each in found]


async def plan_each(app: App, graph_ids: Iterable[str], change: Change) -> "dict[str, Foreseen | TaskgraphError]":
    """The plan for each of these graphs, or why there is none."""
    return {each: await _or_why(plan(app, each, change)) for each in dict.fromkeys(graph_ids)}


async def apply_each(app: App, plans: Mapping[str, str], change: Change) -> "dict[str, Extension | TaskgraphError]":
    """Ask for a change of each graph, under the digest of its plan; what was asked for, or why nothing was."""
    return {each: await _or_why(apply(app, each, change, digest)) for each, digest in plans.items()}


async def _or_why(made: Awaitable[T]) -> T | TaskgraphError:
    try:
        return await made
    except StorageError:  # reach: http
        raise
    except TaskgraphError as error:  # reach: http
        return error


def _stale(graph_id: str, found: "Foreseen") -> StalePlan:
    return StalePlan(
        f"graph {graph_id} has moved since this was planned, or it was made already: its plan is {found.digest} now; "
        "look at that, and apply it if it is what you want",
        found,
    )


async def _rerun(app: App, graph_id: str, change: Change, until: float | None) -> Made:
    done = await rerun.ask(
        app,
        graph_id,
        change.get("labels", ()),
        group=change.get("group"),
        failed=change.get("failed", False),
        everything=change.get("all", False),
        downstream=change.get("downstream", False),
        reason=change.get("reason", ""),
    )
    made = until is not None and await rerun.settled(app, done, until=until)
    return done.answer(settled=made), made


async def _cancel(app: App, graph_id: str, change: Change, until: float | None) -> Made:
    done = await cancel.ask(
        app,
        graph_id,
        change.get("labels", ()),
        group=change.get("group", ""),
        reason=change.get("reason", ""),
        terminate=change.get("terminate", False),
    )
    made = until is not None and await cancel.settled(app, done, until=until)
    return done.answer(await app.queries.state(graph_id)), made or bool(done.nothing)


async def _hold(app: App, graph_id: str, change: Change, until: float | None) -> Made:
    done = await pause.ask(
        app,
        graph_id,
        change.get("labels", ()),
        on=change["change"] in ("pause", "deactivate"),
        group=change.get("group", ""),
        reason=change.get("reason", ""),
        budget=float(change.get("budget", 0)),
    )
    made = until is not None and await pause.settled(app, done, until=until)
    return done.answer(settled=made), made


async def _limit(app: App, graph_id: str, change: Change, until: float | None) -> Made:
    group, reason = change.get("group", ""), change.get("reason", "")
    done = await limit.ask(app, graph_id, change["max"], group=group, reason=reason)
    made = until is not None and await limit.settled(app, done, until=until)
    return done.answer(settled=made), made


async def _prioritize(app: App, graph_id: str, change: Change, until: float | None) -> Made:
    done = await prioritize.ask(
        app,
        graph_id,
        change["priority"],
        change.get("labels", ()),
        group=change.get("group", ""),
        reason=change.get("reason", ""),
    )
    made = until is not None and await prioritize.settled(app, done, until=until)
    return done.answer(settled=made), made


async def _edit(app: App, graph_id: str, change: Change, until: float | None) -> Made:
    return await _requested(app, await requests.edit(app, graph_id, _edit_of(change)), "edit", until)


async def _extend(app: App, graph_id: str, change: Change, until: float | None) -> Made:
    return await _requested(app, await requests.extend(app, graph_id, _extension_of(change)), "extension", until)


async def _requested(app: App, asked: "Extension", what: str, until: float | None) -> Made:
    state = asked.state
    if until is not None:
        state = str((await requests.settled(app, asked, what, until=until, deferred=True)).get("state", ""))
    return {"graphId": asked.graph_id, "request": asked.request, "plan": None, "state": state}, state == "done"


def _edit_of(change: Change) -> "EditDocument":
    from taskgraph.documents.edit_document import edit_from_object

    return edit_from_object(change["edit"], source="edit")


def _extension_of(change: Change) -> "GraphDocument":
    from taskgraph.documents.read import document_from_object

    return document_from_object(change["extension"], source="extension", kind="extension")


@dataclass(frozen=True, slots=True)
class _Kind:
    """form: the part of the schema. ask: asks for it, and waits until a time for it to be made."""

    form: str
    ask: Callable[[App, str, Change, float | None], Awaitable[Made]]


_KINDS: Final[Mapping[str, _Kind]] = {
    "rerun": _Kind("rerun", _rerun),
    "cancel": _Kind("cancel", _cancel),
    "pause": _Kind("hold", _hold),
    "resume": _Kind("hold", _hold),
    "deactivate": _Kind("activity", _hold),
    "activate": _Kind("activity", _hold),
    "set-limit": _Kind("limit", _limit),
    "prioritize": _Kind("priority", _prioritize),
    "edit": _Kind("edit", _edit),
    "extend": _Kind("extension", _extend),
}
