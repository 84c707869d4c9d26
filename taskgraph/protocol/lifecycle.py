"""The start of a graph, its abandonment and deletion, its next deadline, and its mark when it stands still."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from taskgraph.model import limits
from taskgraph.model.ids import GRAPH, WRITERS, fence_key, row_key, value
from taskgraph.model.priorities import level_of, rank
from taskgraph.model.states import GRAPH_ENDED, GRAPH_GONE, GraphState, TaskState
from taskgraph.protocol.context import Context, GraphEnded, Item, Outcome, Rules, Verdict
from taskgraph.protocol.propagation import GOING, claim_at_once, fence
from taskgraph.protocol.rows import NEW, Draft
from taskgraph.storage.tables import Insert


@value
class NextDeadline(Item):
    """No task that waits has a deadline before `then`, by the rows of the graph at this revision (sweep).

    seen, waits_again: of the graph row that was read. It holds for no other, and not while an extension brings rows in.
    """

    seen: datetime
    revision: int
    waits_again: int
    then: datetime


@value
class Start(Item):
    """All rows of a submission are written: submitting -> running, in one flip (P10)."""

    digest: str


@value
class Begin(Item):
    """All of a submission fits one commit: it is written and runs, or nothing of it is there (P10).

    digest, and the graph row, which is handed in as NEW: as for `Start`. rows: all others. A worker that offers to take
    what becomes ready has its first tasks by then.
    """

    digest: str
    rows: tuple[Insert, ...]


@value
class Abandon(Item):
    """Fence off a submission that was begun before `before` and not finished (P10): it can never start."""

    before: datetime


@value
class BeginDeletion(Item):
    """A graph is to be deleted: from here on nothing else is decided about it. Its rows go in later commits.

    until: its id is not given again before. forced: a blocked graph too. because: for people. operation: of the graph
    row as it was archived; one that has been written since is left alone, "" for any. by: who asks. transfer: token of
    a departure (`protocol.transfer`) that is void: what has come by it is deleted.
    """

    until: datetime
    forced: bool = False
    because: str = ""
    operation: str = ""
    by: str = ""
    transfer: str = ""


@value
class Stall(Item):
    """Nothing of a running graph has moved for a set time: mark it, or cancel it if it says so.

    The journal guards it: `sequence` is that of the last event row, and the mark is the next fact, so if there is
    another by then, its row exists and nothing is written. Claims write no facts; so `waiting` and `run` name a task
    that has stood ready all the while ("" for none), which is checked again.
    """

    sequence: int
    because: str
    waiting: str = ""
    run: int = 0


@value
class Stir(Item):
    """A graph that was marked as stalled moves again."""


def _next_deadline(item: NextDeadline, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    is_seen = (graph.time("nextDeadline"), graph.integer("waitsAgain")) == (item.seen, item.waits_again)
    if (
        graph.text("state") not in GOING
        or not is_seen
        or graph.integer("revision") != item.revision
        or graph.text("extending")
    ):
        return Outcome.STALE, ""
    graph.set("nextDeadline", item.then)
    return Outcome.APPLIED, ""


def _start(item: Start, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    if graph.text("state") in GRAPH_GONE:
        return Outcome.REFUSED, "it was deleted while it was submitted"
    if graph.text("digest") != item.digest:
        return Outcome.REFUSED, "another graph was submitted under this id"
    if graph.text("state") in (GraphState.CANCELLING, GraphState.CANCELLED):
        return Outcome.REFUSED, f"it is {graph.text('state')}: {graph.text('reason')}"
    if graph.text("state") != GraphState.SUBMITTING:
        return Outcome.REPEATED, ""
    _end_writing(graph, context)
    graph.set("state", str(GraphState.RUNNING))
    graph.set("started", context.now)
    context.event("graph-running", by=graph.text("by") or None)
    return Outcome.APPLIED, ""


def _begin(item: Begin, context: Context) -> Verdict:
    graph = context.view.find(GRAPH)
    if graph is None or graph.etag != NEW:
        return Outcome.STALE, "another call has written under this id"
    inserted = [context.view.insert(row) for row in item.rows]
    verdict = _start(Start(item.digest), context)
    ready = [task for task in inserted if task.key.startswith("task:") and task.text("state") == TaskState.PENDING]
    for task in sorted(ready, key=lambda task: rank(level_of(task.value))):
        claim_at_once(task, context)
    return verdict


def _end_writing(graph: Draft, context: Context) -> None:
    """Delete the fences of a submission: a late writer inserts no row any more."""
    keys = [fence_key(number) for number in range(1, graph.integer(WRITERS))]
    context.view.require(keys)
    for key in keys:
        if context.view.find(key) is not None:
            context.view.delete(key)


def _abandon(item: Abandon, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    created = graph.time("created")
    if graph.text("state") != GraphState.SUBMITTING or created is None or created >= item.before:
        return Outcome.STALE, ""
    _end_writing(graph, context)
    graph.set("state", str(GraphState.CANCELLED))
    graph.set("reason", "the submission was begun and never finished")
    context.event("graph-cancelled", reason="abandoned submission")
    context.effects.append(GraphEnded(GraphState.CANCELLED))
    return Outcome.APPLIED, ""


def _begin_deletion(item: BeginDeletion, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    state = graph.text("state")
    if state in (GraphState.DELETING, GraphState.DELETED):
        return Outcome.REPEATED, ""
    if state == GraphState.RESTORING and (token := graph.text("arrival")) != item.transfer:
        origin = graph.text("movesFrom")
        return Outcome.REFUSED, f"it is on its way here from {origin}" if token else "it has not come by a transfer"
    if item.transfer and state != GraphState.RESTORING:
        return Outcome.REFUSED, f"it is {state}"
    if state == GraphState.MOVED and graph.value("emptied") is not True:
        return Outcome.REFUSED, "it has moved, and its rows here are still to be taken away"
    if not item.transfer and (refusal := undeletable(state, forced=item.forced)):
        return Outcome.REFUSED, refusal
    if item.operation and graph.text("operation") != item.operation:
        return Outcome.REFUSED, "it has gone on since it was archived; archive it again"
    graph.set("was", state)
    graph.set("state", str(GraphState.DELETING))
    graph.set("deleting", context.now)
    graph.set("until", item.until)
    graph.set("because", item.because[: limits.REASON_CHARS_MAX])
    if item.by:
        graph.set("deletedBy", item.by)
    context.event("graph-deleting", was=state, reason=item.because or None, by=item.by or None)
    return Outcome.APPLIED, ""


def undeletable(state: str, *, forced: bool) -> str:
    """Why a graph in this state may not be deleted, with the remedy; "" if it may."""
    if state in GRAPH_ENDED or state == GraphState.MOVED:
        return ""
    if forced and state in (GraphState.BLOCKED, GraphState.RESTORING):
        return ""
    return _UNDELETABLE.get(state, f"it is {state}, and only a graph that has ended is deleted; cancel it first")


_UNDELETABLE: Final[Mapping[str, str]] = {
    GraphState.BLOCKED: "it is blocked, and could go on after a rerun; with --force it is deleted all the same",
    GraphState.SUBMITTING: "it is still being submitted; it is cancelled a day after the last progress of that",
    GraphState.RESTORING: "it is being restored; with --force what has been put back is deleted",
    GraphState.CANCELLING: "it is being cancelled; wait until it is cancelled",
    GraphState.MOVING: "it is on its way to another store; taskgraph transfer brings that to its end, or has it stay",
}


def _stall(item: Stall, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    if graph.text("state") != GraphState.RUNNING:
        return Outcome.STALE, f"the graph is {graph.text('state')}"
    if graph.text("stalledBecause"):
        return Outcome.REPEATED, "it is marked already"
    if context.sequence > item.sequence + 1:
        return Outcome.STALE, "it has moved"
    if item.waiting:
        task = context.view.get(row_key(item.waiting))
        if task.text("state") != TaskState.PENDING or task.integer("run") != item.run:
            return Outcome.STALE, "it has moved"
    because = item.because[: limits.REASON_CHARS_MAX] or "nothing of it moves"
    graph.set("stalled", context.now)
    graph.set("stalledBecause", because)
    graph.set("stalledAt", context.sequence)
    context.event("graph-stalled", reason=because)
    if graph.text("onStalled") == "cancel":
        fence(graph, context, f"it has stalled: {because}"[: limits.REASON_CHARS_MAX], "stalled")
    return Outcome.APPLIED, ""


def _stir(_: Stir, context: Context) -> Verdict:
    """Remove the mark. A graph that has ended keeps it: nothing comes after the end."""
    graph = context.view.get(GRAPH)
    if graph.text("state") not in (*GOING, GraphState.CANCELLING):
        return Outcome.STALE, ""
    if not graph.text("stalledBecause"):
        return Outcome.REPEATED, ""
    graph.set("stalledBecause", "")
    context.event("graph-unstalled")
    return Outcome.APPLIED, ""


RULES: Final[Rules] = {
    NextDeadline: _next_deadline,
    Start: _start,
    Begin: _begin,
    Abandon: _abandon,
    BeginDeletion: _begin_deletion,
    Stall: _stall,
    Stir: _stir,
}
