"""Editing a graph while it runs: how a task that has not started is changed, or taken away.

An edit is one request row, `staged → done` or `refused`, and one commit. It was planned for one revision of the graph
(`protocol.edit_plan`), and whatever adds, removes or moves an edge raises the revision, so the edges of the plan are
those of the rows. States go on meanwhile, so they are checked here.

A worker may hold the definition of a task that is edited: in a message, in its stock, or just read. So each edit writes
its revision on the row (`edited`), a claim names that of its definition, and a claim of another is stale. A task that
is added under the label of a deleted one has the revision of the deletion (`deletedIn` of the graph), so that no
message about its predecessor fits it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from taskgraph.model import limits
from taskgraph.model.columns import Value, seen_state
from taskgraph.model.facts import EVERY_ROW
from taskgraph.model.ids import GRAPH, join_reference, row_key, value
from taskgraph.model.states import TaskState
from taskgraph.protocol.conditions import SKIP, passes_on
from taskgraph.protocol.context import Context, Item, Outcome, Recalled, Rules, Verdict
from taskgraph.protocol.definitions import SCHEMA
from taskgraph.protocol.extension import await_leaves, known_ending, refuse, register, request_key
from taskgraph.protocol.pause import set_active
from taskgraph.protocol.propagation import GOING, RECALL, count_down
from taskgraph.protocol.rerun import FAILED_FOR_GOOD
from taskgraph.protocol.rows import Draft
from taskgraph.protocol.wiring import Link, relay_row
from taskgraph.storage.tables import Insert

NOTHING: Final = "it changes nothing"

UNCHANGED: Final = "unchanged"
"""Column of a request: all that it asks for was so already, and no revision was made for it."""

EDITED: Final = "edited"
"""Column of a task: the revision in which its definition was edited."""

DELETED_IN: Final = "deletedIn"
"""Column of the graph: the revision in which tasks were deleted last."""


@value
class TaskEdit:
    """Changes to one task that has not started, or has failed for good.

    columns, clear: set on its row, and removed from it. requires: new references, None for no change; optional: those
    of them that need not succeed. active: None for no change. again: its condition is another, and is evaluated anew.
    ended: the run in which it had failed for good, None if it had not started.
    """

    task_id: str
    columns: Mapping[str, Value]
    clear: tuple[str, ...] = ()
    requires: tuple[str, ...] | None = None
    optional: tuple[str, ...] = ()
    active: bool | None = None
    again: bool = False
    ended: int | None = None


@value
class EditGraph(Item):
    """Change and delete tasks that have not started, all in one commit.

    revision: of the graph that this was planned for. delete: keys of rows. cut: (row, reference): a dependent that the
    row loses. lost: (row, name): a requirement that the row loses. links: new dependents. leaves: rows without
    dependents from now on. inserts: new rows. columns: further columns to set, by row. tasks, edges: how many more
    there are. fact: fields of the event.
    """

    request: str
    revision: int
    edits: tuple[TaskEdit, ...]
    delete: tuple[str, ...]
    cut: tuple[tuple[str, str], ...]
    lost: tuple[tuple[str, str], ...]
    links: tuple[Link, ...]
    leaves: tuple[str, ...]
    inserts: tuple[Insert, ...]
    columns: tuple[tuple[str, Mapping[str, Value]], ...]
    tasks: int
    edges: int
    fact: Mapping[str, Any]

    @property
    def changes_nothing(self) -> bool:
        return not self.edits and not self.delete


def has_started(task: Draft) -> str:
    """Why a task cannot be edited any more, "" if it can."""
    label, state, run = task.text("label"), seen_state(task.text), task.integer("run")
    if state in (TaskState.SKIPPED, TaskState.CANCELLED):
        return f"“{label}” was {state}"
    if task.text("cancel"):
        return f"“{label}” is being cancelled"
    if due := task.text("due"):
        return f"“{label}” is being skipped" if due == SKIP else f"“{label}” is run again, and waits for that"
    if state in (TaskState.UNSCHEDULED, TaskState.PENDING) and not run and not task.text("claim"):
        return ""
    if state in (TaskState.UNSCHEDULED, TaskState.PENDING):
        return f"“{label}” has been started: it is {state} in run {run}"
    return f"“{label}” has been started: it is {state}"


def ended_in(task: Draft) -> int | None:
    """The run in which a task has failed for good, None for another state."""
    return task.integer("run") if task.text("state") in FAILED_FOR_GOOD else None


def not_editable(task: Draft, graph: Draft) -> str:
    """Why a task cannot be changed, "" if it can: it has not started, or it has failed for good and may be rerun."""
    if task.text("state") not in FAILED_FOR_GOOD or task.text("cancel"):
        return has_started(task)
    if passes_on(graph.value, task.value):
        label = task.text("label")
        return f"“{label}” has ended, and its dependents have acted on it, as its failure is passed on to them"
    return ""


def edit_graph(item: EditGraph, context: Context) -> Verdict:
    view = context.view
    view.require(_keys(item))
    graph, head = view.get(GRAPH), view.get(request_key(item.request))
    if head.text("state") != "staged":
        return Outcome.REPEATED, ""
    if graph.text("state") not in GOING:
        return refuse(head, context, f"the graph is {graph.text('state')}; only one that runs or is blocked is edited")
    if graph.integer("revision") != item.revision or graph.text("extending"):
        return Outcome.STALE, "the graph has changed since"
    if item.changes_nothing:
        _answer(head, context, item.revision)
        head.set(UNCHANGED, True)
        return Outcome.APPLIED, NOTHING
    for each in item.edits:
        task = view.get(row_key(each.task_id))
        if reason := not_editable(task, graph):
            return refuse(head, context, reason)
        if ended_in(task) != each.ended:
            return Outcome.STALE, "the task has come to its end since"
    for key in item.delete:
        if key.startswith("task:") and (reason := has_started(view.get(key))):
            return refuse(head, context, reason)
    mark, context_mark = view.mark(), context.mark()
    _apply(item, graph, context)
    _answer(head, context, item.revision + 1)
    if head.integer("tasks") != len(item.edits):
        head.set("tasks", len(item.edits))  # fewer may change than were named
    rows = len(view.changed()) + 1
    if rows > limits.COMMIT_CHANGES_MAX:
        view.rollback(mark)
        context.rollback(context_mark)
        context.follow.clear()
        reason = f"it writes {rows} rows, and one commit takes {limits.COMMIT_CHANGES_MAX}: split it"
        return refuse(head, context, reason)
    return Outcome.APPLIED, ""


def _answer(head: Draft, context: Context, revision: int) -> None:
    head.set("state", "done")
    head.set("answered", context.now)
    head.set("revision", revision)
    if head.value(UNCHANGED):
        head.set(UNCHANGED, False)  # from an earlier attempt


def _keys(item: EditGraph) -> list[str]:
    """All rows that the edit rests on."""
    references = [each.task_id for each in item.edits]
    references += [each for one in item.edits for each in one.requires or ()]
    references += [holder for holder, _ in item.cut]
    references += [below for below, _ in item.lost]
    references += [link.task_id for link in item.links]
    keys = [GRAPH, request_key(item.request), *map(row_key, (*references, *item.leaves))]
    return [*dict.fromkeys([*keys, *item.delete, *(key for key, _ in item.columns)])]


def _apply(item: EditGraph, graph: Draft, context: Context) -> None:
    view, revision = context.view, item.revision + 1
    for key in item.delete:
        if view.get(key).text("due") == RECALL:  # of a relay: those that it led to count anew what has ended
            graph.set("recalls", max(0, graph.integer("recalls") - 1))
            context.effects.append(Recalled())
        view.delete(key)
    for holder, below in item.cut:
        view.named(holder).cross_off("dependents", below)
    for below, name in item.lost:
        view.named(below).cross_off("requires", name)
    for row in item.inserts:
        view.insert(row)
    for key, columns in item.columns:
        for name, given in columns.items():
            view.get(key).set(name, given)
    for edit in item.edits:
        _rewrite(edit, revision, context)
    for number, link in enumerate(item.links):
        register(link, f"{item.request}-{number}", context)
    _await(item, graph, context)
    graph.set("tasks", graph.integer("tasks") + item.tasks)
    graph.set("edges", graph.integer("edges") + item.edges)
    graph.set("revision", revision)
    if any(key.startswith("task:") for key in item.delete):
        graph.set(DELETED_IN, revision)
    by = view.get(request_key(item.request)).text("by") or None
    context.event("graph-edited", about=EVERY_ROW, request=item.request, revision=revision, by=by, **item.fact)
    for edit in item.edits:
        _go_on(edit, context)
    for below, name in item.lost:
        count_down(below, name, context)


def _rewrite(edit: TaskEdit, revision: int, context: Context) -> None:
    key = row_key(edit.task_id)
    context.view.clear(key, edit.clear)
    task = context.view.get(key)
    for name, given in edit.columns.items():
        task.set(name, given)
    task.set(EDITED, revision)
    if edit.active is not None:
        set_active(task, edit.active, context)
    if edit.requires is not None:
        # From the beginning: failures and skips may have come from what it does not require any more.
        task.set_ids("requires", edit.requires)
        task.set_ids("requiresLeft", edit.requires)
        for name in ("failedBy", "skippedBy"):
            if task.text(name):
                task.set(name, "")
        if edit.optional or task.ids("optional"):
            task.set_ids("optional", edit.optional)
    if task.text("state") == TaskState.PENDING and (edit.requires or edit.again):
        task.set("state", str(TaskState.UNSCHEDULED))


def _go_on(edit: TaskEdit, context: Context) -> None:
    """What follows for one task: it waits, or stands ready and is sent again, or is to be skipped.

    The change to one that has failed for good counts from its next rerun on; its requirements do not change.
    """
    for name in edit.requires or ():
        ending = known_ending(context.view.named(name), context)
        if ending is not None:
            count_down(edit.task_id, name, context, ending)
    if not edit.requires:
        count_down(edit.task_id, "", context)


def _await(item: EditGraph, graph: Draft, context: Context) -> None:
    """Let the graph wait for rows that have no dependents any more, unless they have ended."""
    view = context.view
    leaves: list[str] = []
    for each in item.leaves:
        row = view.named(each)
        if known_ending(row, context) is None:
            leaves.append(each)
        else:
            row.set_ids("dependents", [*row.ids("dependents"), GRAPH])
    if not leaves:
        return
    above, top = GRAPH, None
    if len(graph.ids("requires")) + len(leaves) > limits.GRAPH_REQUIRES_MAX:
        above = join_reference(GRAPH, item.request)
        top = relay_row(above, leaves, [GRAPH], graph.integer("schema") or SCHEMA)
    await_leaves(top, leaves, graph, context)
    for each in leaves:
        row = view.named(each)
        row.set_ids("dependents", [*row.ids("dependents"), above])


def listed(names: Sequence[str]) -> str:
    """Up to five names for a person, the rest by number."""
    shown = ", ".join(f"“{name}”" for name in sorted(names)[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


RULES: Final[Rules] = {EditGraph: edit_graph}
