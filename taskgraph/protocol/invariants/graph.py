"""What must be true of a graph as a whole: its state and counts, its journal, its channels, its end."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from taskgraph.model import facts, limits
from taskgraph.model.budget import BUDGET, NEAR, OVER, REACHED, budget_of
from taskgraph.model.columns import Value, integer, texts
from taskgraph.model.foreign_times import is_ahead
from taskgraph.model.ids import GRAPH, event_key
from taskgraph.model.json_strict import compact_json, show
from taskgraph.model.states import GRAPH_ENDED, TASK_UNRESOLVED, FailurePolicy, GraphState, TaskState
from taskgraph.protocol.cancel import CancelTask, PublishCancelled
from taskgraph.protocol.conditions import FAILED_APART
from taskgraph.protocol.context import CANCELLED
from taskgraph.protocol.decide import Item
from taskgraph.protocol.definitions import SCHEMA, SCHEMA_OF_POLICIES, gathered
from taskgraph.protocol.invariants.findings import GAP_ROWS_MAX, Finding, Patch, Redo, have, tasks_are
from taskgraph.protocol.invariants.progress import completion_items
from taskgraph.protocol.invariants.requests import is_deferred
from taskgraph.protocol.invariants.snapshot import FAILED, Node, Snapshot, is_number, read_json
from taskgraph.protocol.notices import OPEN
from taskgraph.protocol.propagation import DEFERRED
from taskgraph.storage.tables import Insert

_CHANNEL_TIMES: Final = {
    "nextTry": limits.NOTICE_PAUSE_SECONDS_MAX * 1.25,
    "leaseUntil": limits.NOTICE_LEASE_SECONDS,
}
"""The longest that they can be from now."""


def missing(snapshot: Snapshot) -> Iterator[Finding]:
    """The graph row is not there."""
    yield snapshot.find("missing-row:graph", GRAPH, "the graph row is gone")


def budget(snapshot: Snapshot) -> Iterator[Finding]:
    """What a graph may cost, and has reached of it, are no values that a rule goes by."""
    if (graph := snapshot.nodes.get(GRAPH)) is None:
        return
    get = graph.row.columns.get
    if get(BUDGET) and budget_of(get) is None:
        text = f"its budget is {show(get(BUDGET))}, which is none"
    elif get(REACHED) not in (None, "", NEAR, OVER):
        text = f"it has reached {show(get(REACHED))} of its budget, which is nothing that it can"
    else:
        return
    yield snapshot.find("no-budget", GRAPH, text)


def channels(snapshot: Snapshot) -> Iterator[Finding]:
    """Times on the rows of channels that no clock which agrees with ours can have written by now."""
    for key, row in snapshot.rows.items():
        if not key.startswith("notice:") or row.columns.get("state") != OPEN:
            continue
        for name, longest in _CHANNEL_TIMES.items():
            said = row.columns.get(name)
            if isinstance(said, datetime) and is_ahead(said, snapshot.now, longest):
                text = f"it says {name} {said}, and the latest that it can be is {longest:g} s from now"
                repair = snapshot.patch({key: {name: snapshot.now}})
                yield snapshot.find("clock-off:channel", key, text, detail=name, repair=repair)


def cancelled(snapshot: Snapshot) -> Iterator[Finding]:
    """Once a graph is being cancelled, every task is resolved, and nothing else happens."""
    graph = snapshot.nodes[GRAPH]
    left = [node for node in snapshot.tasks if node.state in TASK_UNRESOLVED]
    reason, code = str(graph.row.columns.get("reason", "")), str(graph.row.columns.get("code", CANCELLED))
    at_once = graph.row.columns.get("terminate") is True
    if graph.state == GraphState.CANCELLED:
        if left:
            text = f"it is cancelled, and {snapshot.labels(node.reference for node in left)} {have(left)} not ended"
            yield snapshot.find("cancelled-early", GRAPH, text, keys=[node.row.key for node in left])
        return
    open_ones = [
        node for node in left if at_once or node.state != TaskState.RUNNING or not node.row.columns.get("cancel")
    ]
    if not open_ones and left:
        return  # their workers stop them
    reopened = integer(graph.row.columns, "reopened")
    items: list[Item] = [
        CancelTask(each.reference, reason, code, at_once=at_once, whole=True, reopened=reopened) for each in open_ones
    ]
    count = len(snapshot.tasks) if graph.row.columns.get("cutOff") else None
    if not open_ones and graph.row.columns.get("recalls"):
        return  # these come first
    rest = f"{tasks_are(len(open_ones))} still to be cancelled" if open_ones else "nothing of it is left"
    yield snapshot.find(
        "cancel-due",
        GRAPH,
        f"it is being cancelled, and {rest}",
        keys=[node.row.key for node in open_ones],
        repair=Redo(tuple(items or (PublishCancelled(count, reopened),))) if snapshot.steady or open_ones else None,
        whole=not open_ones,
    )


def finished(snapshot: Snapshot) -> Iterator[Finding]:
    """It is finished when, and only when, nothing is left."""
    graph = snapshot.nodes[GRAPH]
    open_tasks = [node for node in snapshot.tasks if not node.resolved]
    if graph.state == GraphState.FINISHED and open_tasks:
        names = snapshot.labels(node.reference for node in open_tasks)
        text = f"it is finished, and {names} {have(open_tasks)} not {snapshot.ended}"
        yield snapshot.find("finished-early", GRAPH, text, keys=[node.row.key for node in open_tasks])
    if graph.state != GraphState.RUNNING or graph.left != [] or not graph.requires or snapshot.opened:
        return
    if graph.row.columns.get("recalls"):
        return  # it waits for these
    if any(is_deferred(snapshot, request) for request in texts(graph.row.columns, DEFERRED)):
        return  # it waits for these, which are made when it is resumed
    if any(snapshot.done(GRAPH, name) is not True for name in graph.requires):
        return  # found elsewhere: a requirement was forgotten, or is named at one end only
    unresolved = [node for node in open_tasks if node.state in TASK_UNRESOLVED or node.state in FAILED]
    yield snapshot.find(
        "unfinished",
        GRAPH,
        "it waits for nothing, and is still running",
        keys=[*snapshot.edge_keys(GRAPH, graph.requires), *(node.row.key for node in unresolved)],
        repair=None if unresolved else Redo(tuple(completion_items(snapshot, GRAPH, graph.requires[0]))),
        refusal=f"{snapshot.labels(node.reference for node in unresolved)} {have(unresolved)} not {snapshot.ended}",
    )


def failed_again(snapshot: Snapshot) -> Patch | None:
    """FailedTasks as the rows count them, and the state that follows from it."""
    graph = snapshot.nodes[GRAPH]
    if not snapshot.steady:
        return None
    failed = [node for node in snapshot.tasks if node.state in FAILED]
    blocking = [node for node in failed if not node.resolved]
    columns: dict[str, Value] = {"failedTasks": len(failed)}
    if (apart := _apart(snapshot, failed, blocking)) or FAILED_APART in graph.row.columns:
        columns[FAILED_APART] = apart
    facts: tuple[Mapping[str, Any], ...] = ()
    if not _may_block(snapshot, blocking):
        pass  # the graph was cancelled in the commit of the failure
    elif blocking and graph.state == GraphState.RUNNING:
        label = str(blocking[0].row.columns.get("label", ""))
        columns |= {"state": str(GraphState.BLOCKED), "blockedBy": label, "blocked": snapshot.now}
        facts = ({"event": "graph-blocked", "task": blocking[0].reference, "label": label},)
    elif not blocking and graph.state == GraphState.BLOCKED:
        columns |= {"state": str(GraphState.RUNNING), "blockedBy": ""}
        facts = ({"event": "graph-unblocked"},)
    return snapshot.patch({GRAPH: columns}, facts=facts, revive=bool(facts))


def _apart(snapshot: Snapshot, failed: Sequence[Node], blocking: Sequence[Node]) -> int:
    """How many that failed for good do not follow the graph in whether that is passed on."""
    return len(blocking) if snapshot.goes_on else len(failed) - len(blocking)


def _may_block(snapshot: Snapshot, blocking: Sequence[Node]) -> bool:
    """Whether a graph with these failures may be blocked: those of a graph that fails fast have it cancelled."""
    own = all("failurePolicy" in node.row.columns for node in blocking)
    return snapshot.policy != FailurePolicy.FAIL_FAST or (own and bool(blocking))


def counts(snapshot: Snapshot) -> Iterator[Finding]:
    """What the graph row counts, against the rows.

    Of a graph that is cancelled only those tasks and edges are complete that no extension was cut off from.
    """
    graph = snapshot.nodes[GRAPH]
    columns = graph.row.columns
    cut_off = graph.state in (GraphState.CANCELLING, GraphState.CANCELLED) and columns.get("cutOff")
    if not snapshot.steady or cut_off:
        return
    if is_number(counted := columns.get("failedTasks")):
        yield from _failed_count(snapshot, counted)
    own = [node for node in snapshot.tasks if "failurePolicy" in node.row.columns]
    if own and not (columns.get("groupPolicies") is True and integer(columns, "schema") >= SCHEMA_OF_POLICIES):
        text = f"{snapshot.labels(node.reference for node in own)} {have(own)} a failure policy, and it does not say so"
        right: dict[str, Value] = {"groupPolicies": True, "schema": SCHEMA_OF_POLICIES}
        yield snapshot.find("group-policies", GRAPH, text, repair=snapshot.patch({GRAPH: right}))
    skipped = sum(node.state == TaskState.SKIPPED for node in snapshot.tasks)
    if graph.state == GraphState.FINISHED and columns.get("skippedTasks", 0) != skipped:
        text = f"it counts {columns.get('skippedTasks', 0)} tasks that were skipped; there are {skipped}"
        yield snapshot.find("skipped-count", GRAPH, text, repair=snapshot.patch({GRAPH: {"skippedTasks": skipped}}))
    tasks, edges, there = columns.get("tasks"), columns.get("edges"), len(snapshot.tasks)
    if isinstance(tasks, int) and tasks != there:
        certain = _named(snapshot) == {str(node.row.columns.get("label")) for node in snapshot.tasks}
        repair = snapshot.patch({GRAPH: {"tasks": there}}) if certain else None
        yield snapshot.find("task-count", GRAPH, f"it counts {tasks:,} tasks, and there are {there:,}", repair=repair)
    if isinstance(edges, int) and edges != snapshot.edges:
        text = f"it counts {edges:,} requirements, and the rows name {snapshot.edges:,}"
        yield snapshot.find("edge-count", GRAPH, text)


def _failed_count(snapshot: Snapshot, counted: int) -> Iterator[Finding]:
    """The count of failures, and the state of the graph that follows from it."""
    graph = snapshot.nodes[GRAPH]
    failed = [node for node in snapshot.tasks if node.state in FAILED]
    blocking = [node for node in failed if not node.resolved]
    repair = failed_again(snapshot) if graph.state not in GRAPH_ENDED or not failed else None
    refusal = f"it is {graph.state}, which is final"
    apart, counted_apart = _apart(snapshot, failed, blocking), integer(graph.row.columns, FAILED_APART)
    if counted != len(failed):
        text = f"it counts {counted} tasks that failed for good; there are {len(failed)}"
        yield snapshot.find("failed-count", GRAPH, text, repair=repair, refusal=refusal)
    elif counted_apart != apart:
        what = "block it" if snapshot.goes_on else "do not block it"
        text = f"it counts {counted_apart} failures that {what}, as groups say; there are {apart}"
        yield snapshot.find("failed-count", GRAPH, text, repair=repair, refusal=refusal)
    elif graph.state == (GraphState.RUNNING if blocking else GraphState.BLOCKED):
        yield snapshot.find(
            "graph-state",
            GRAPH,
            f"it is {graph.state}, and {len(blocking) or 'none'} of its tasks failed for good",
            repair=repair if _may_block(snapshot, blocking) else None,
            refusal=f"its failure policy is {snapshot.policy}: cancel it, with `taskgraph cancel {snapshot.graph_id}`",
        )


def _named(snapshot: Snapshot) -> set[str]:
    """All labels, as nameMapping has them."""
    found: set[str] = set()
    for key, row in snapshot.rows.items():
        if key == GRAPH or key.startswith("name-mapping:"):
            mapping = read_json(gathered(row.columns, "nameMapping"))
            found.update(mapping if isinstance(mapping, dict) else ())
    return found


def on_its_way(snapshot: Snapshot, left: int) -> Iterator[Finding]:
    """A graph between two stores, by its row alone: nothing is decided about the others. left: how many there are."""
    graph = snapshot.nodes[GRAPH]
    columns = graph.row.columns
    to = columns.get("movesTo")
    if graph.state == GraphState.MOVING:
        yield snapshot.find("transfer-open", GRAPH, f"it is on its way to {to}")
    elif graph.state == GraphState.RESTORING and "arrival" in columns:
        text = f"it is on its way here, from {columns.get('movesFrom')}"
        yield snapshot.find("transfer-open:comes", GRAPH, text)
    elif graph.state == GraphState.MOVED and columns.get("received") is None:
        yield snapshot.find("transfer-open", GRAPH, f"it has moved to {to}, and is not known to live there")
    elif graph.state == GraphState.MOVED and left:
        text = f"it has moved to {to}, and {left:,} of its rows are left"
        yield snapshot.find("transfer-open:left", GRAPH, text)


def deletion(snapshot: Snapshot) -> Iterator[Finding]:
    """A graph that is being deleted, or was, and has rows left."""
    graph = snapshot.nodes[GRAPH]
    left = sum(key != GRAPH for key in snapshot.rows)
    if graph.state == GraphState.DELETING:
        since = graph.row.columns.get("deleting")
        when = f" since {since:%Y-%m-%d %H:%M:%SZ}" if isinstance(since, datetime) else ""
        text = f"it is being deleted{when}, and {left:,} of its rows are left"
        yield snapshot.find("deletion-open", GRAPH, text)
    elif left:
        text = f"it was deleted, and {left:,} row{' was' if left == 1 else 's were'} put beside its tombstone since"
        yield snapshot.find("deletion-open:beside", GRAPH, text)


def journal(snapshot: Snapshot) -> Iterator[Finding]:
    """Rows of events are numbered without a gap, and their keys are their numbers."""
    numbers: list[int] = []
    for key, row in snapshot.rows.items():
        if not key.startswith("event:"):
            continue
        number = row.columns.get("sequence")
        if isinstance(number, int) and number >= 1 and key == event_key(number):
            numbers.append(number)
        else:
            yield snapshot.find("journal", key, "an event row whose key is not its number")
    numbers.sort()
    for before, after in zip([0, *numbers], numbers, strict=False):
        if after == before + 1:
            continue
        missing = range(before + 1, after)
        inserts = tuple(_gap_row(snapshot, number) for number in missing) if len(missing) <= GAP_ROWS_MAX else ()
        yield snapshot.find(
            "journal-gap",
            event_key(missing[0]),
            f"event row {missing[0]}" + (f" to {missing[-1]} are" if len(missing) > 1 else " is") + " gone",
            keys=[event_key(number) for number in missing[:GAP_ROWS_MAX]],
            repair=Patch({}, {}, inserts) if inserts else None,
        )


def _gap_row(snapshot: Snapshot, number: int) -> Insert:
    columns: dict[str, Value] = {"schema": SCHEMA, "sequence": number, "time": snapshot.now}
    fact = {"event": "journal-gap"}
    if snapshot.graph is not None and (routing := snapshot.graph.row.columns.get(facts.ROUTING)):
        fact[facts.ROUTING] = str(routing)
    return Insert(event_key(number), {**columns, "kinds": "journal-gap", "events": compact_json([fact])})
