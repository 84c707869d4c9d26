"""Limit tasks in flight, change a limit, and correct one that names runs which are over.

A lower limit stops no run. Where there was none, it is set in three steps, as a pause is (`protocol.pause`). *Fence*:
the graph row names the limit, whose row is there from then on. *Come under*: each task that it concerns names it too,
as it may be rerun if it has ended; one that runs is counted in that very commit. *Publish*: no task is left that does
not name it.

Why a scan that is no snapshot is enough to publish. A task that names a limit keeps it. New rows come with an extension
only: one that is accepted after the fence was planned for its revision, so its tasks name the limit, and one under way
is waited for.
"""

from typing import Any, Final

from taskgraph.model import limits
from taskgraph.model.columns import Value
from taskgraph.model.ids import GRAPH, limit_key, row_key, value
from taskgraph.model.states import TASK_UNRESOLVED, TaskState
from taskgraph.protocol.concurrency import enter, is_over, named_in
from taskgraph.protocol.context import Context, Item, Outcome, Refill, Rules, Verdict
from taskgraph.protocol.definitions import SCHEMA, SCHEMA_OF_CONDITIONS
from taskgraph.protocol.propagation import GOING, dispatch, is_held
from taskgraph.protocol.rows import Draft
from taskgraph.storage.tables import Insert

NOT_LIMITED: Final = "it has no limit"
COMES: Final = "the extension that brings its limit is under way"
TOO_MANY: Final = f"its graph has {limits.LIMITED_GROUPS_MAX} limits, and can have no more"


@value
class ChangeLimit(Item):
    """Let so many tasks of a scope be in flight. most: 0 for the highest possible. asked, by: see `pause.Hold`.

    group: its name, "" for the whole graph.
    """

    scope: str
    most: int
    asked: str = ""
    reason: str = ""
    group: str = ""
    by: str = ""


@value
class ComeUnder(Item):
    """A task comes under limits that its graph was given. scopes: those that it did not name."""

    task_id: str
    scopes: tuple[str, ...]


@value
class PublishLimits(Item):
    """No task was left that does not name a limit which concerns it. scopes: of the graph, when that was looked up."""

    scopes: tuple[str, ...]


@value
class Recount(Item):
    """Take runs off the count of a limit that are over by their rows (sweep). members: those that may be."""

    scope: str
    members: tuple[str, ...]


def change_limit(item: ChangeLimit, context: Context) -> Verdict:
    view = context.view
    view.require((GRAPH, limit_key(item.scope)))
    state = view.get(GRAPH).text("state")
    if state not in GOING:
        return Outcome.REFUSED, f"the graph is {state}"
    asked = item.asked or context.now.isoformat()
    row = view.find(limit_key(item.scope))
    if row is None:
        return _set_first(item, asked, view.get(GRAPH), context)
    if asked < row.text("asked"):
        return Outcome.STALE, "something else has been requested since"
    most, before = item.most or limits.IN_FLIGHT_MAX, row.integer("max")
    if most >= before:
        context.effects.append(Refill())
    if row.text("asked") != asked:
        row.set("asked", asked)
    elif most == before:
        return Outcome.REPEATED, "it is so already"
    if most == before:
        return Outcome.APPLIED, "it is so already"
    row.set("max", most)
    row.set("moved", context.now)
    _limited(item, context, max=most, was=before, about=row.key, group=row.text("label"))
    return Outcome.APPLIED, ""


def _set_first(item: ChangeLimit, asked: str, graph: Draft, context: Context) -> Verdict:
    """The fence of a limit where there was none."""
    scopes = graph.ids("limits")
    if not item.most:
        return Outcome.REFUSED, NOT_LIMITED
    if item.scope in scopes:
        return Outcome.REFUSED, COMES
    if len(scopes) >= limits.LIMITED_GROUPS_MAX:
        return Outcome.REFUSED, TOO_MANY
    columns: dict[str, Value] = {"schema": SCHEMA, "max": item.most, "inFlight": "[]", "moved": context.now}
    if item.group:
        columns["label"] = item.group
    context.view.insert(Insert(limit_key(item.scope), {**columns, "asked": asked}))
    graph.set_ids("limits", [*scopes, item.scope])
    graph.set("limiting", True)
    graph.set("revision", graph.integer("revision") + 1)  # what was planned before does not know of it
    _limited(item, context, max=item.most, group=item.group)
    context.effects.append(Refill())
    return Outcome.APPLIED, ""


def _limited(item: ChangeLimit, context: Context, *, group: str, about: str = "", **fields: Any) -> None:
    fields |= {"group": group or None, "reason": item.reason or None, "by": item.by or None}
    context.event("graph-limited", about=about, **fields)


def come_under(item: ComeUnder, context: Context) -> Verdict:
    graph, task = context.view.get(GRAPH), context.view.get(row_key(item.task_id))
    state = task.text("state")
    more = [each for each in item.scopes if each not in task.ids("limits")]
    if not more:
        return Outcome.REPEATED, ""
    if graph.text("state") not in GOING:
        return Outcome.STALE, ""
    if state not in TASK_UNRESOLVED:
        graph.confirm()  # it may have ended since it was read, and nothing of it changes then
    runs, keys = state == TaskState.RUNNING, [limit_key(scope) for scope in more]
    if runs:
        context.view.require(keys)
        if any(len(context.view.get(key).ids("inFlight")) >= limits.IN_FLIGHT_MAX for key in keys):
            return Outcome.REFUSED, f"it runs, and no more than {limits.IN_FLIGHT_MAX:,} runs can be counted"
    task.set_ids("limits", [*task.ids("limits"), *more])
    task.set("limited", "yes")
    task.set("schema", SCHEMA_OF_CONDITIONS)  # older versions would claim it beyond its limit
    if runs:
        enter(task, context.view, context.now)
    elif state == TaskState.PENDING and not is_held(task):
        dispatch(task, context)  # it waits for room from now on
    return Outcome.APPLIED, ""


def publish_limits(item: PublishLimits, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    if graph.text("state") not in GOING or graph.text("extending") or tuple(graph.ids("limits")) != item.scopes:
        return Outcome.STALE, ""
    if graph.value("limiting") is not True:
        return Outcome.REPEATED, ""
    graph.set("limiting", False)
    return Outcome.APPLIED, ""


def recount(item: Recount, context: Context) -> Verdict:
    """What is not certainly over stays: a place too few costs time, one too many breaks the limit."""
    view = context.view
    row = view.find(limit_key(item.scope))
    if row is None:
        return Outcome.STALE, ""
    inside = row.ids("inFlight")
    runs = {each: named_in(each) for each in item.members if each in inside}
    view.require([row_key(task_id) for task_id, _ in runs.values() if task_id])
    over = set()
    for each, (task_id, run) in runs.items():
        task = view.find(row_key(task_id)) if task_id else None
        if task is not None and is_over(task, run):
            over.add(each)
    if not over:
        return Outcome.REPEATED, ""
    row.set_ids("inFlight", [each for each in inside if each not in over])
    row.set("moved", context.now)
    context.effects.append(Refill())
    return Outcome.APPLIED, ""


RULES: Final[Rules] = {
    ChangeLimit: change_limit,
    ComeUnder: come_under,
    PublishLimits: publish_limits,
    Recount: recount,
}
