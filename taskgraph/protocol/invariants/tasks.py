"""What must be true of one task: its id and definition, budgets, holders, times, and the lease of its run."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from taskgraph.model import limits
from taskgraph.model.columns import Value, integer, texts
from taskgraph.model.foreign_times import Standing
from taskgraph.model.ids import GRAPH, ids_text, task_id_of
from taskgraph.model.states import INACTIVE, TASK_UNRESOLVED, TaskState, held_group
from taskgraph.model.timing import overdue, temporary_used
from taskgraph.protocol.invariants.columns import policy_of
from taskgraph.protocol.invariants.findings import Finding, Redo
from taskgraph.protocol.invariants.snapshot import Node, Snapshot, is_number
from taskgraph.protocol.leases import SetRight, amended, lease
from taskgraph.protocol.runs import LeaseLost, Overdue


def tasks(snapshot: Snapshot) -> Iterator[Finding]:
    """What is wrong with the row of each task by itself."""
    for node in snapshot.tasks:
        yield from _identity(snapshot, node)
        yield from _budget(snapshot, node)
        yield from _held(snapshot, node)
        yield from _times(snapshot, node)
        if node.state == TaskState.RUNNING:
            yield from _lease(snapshot, node)


def _identity(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    columns, key = node.row.columns, node.row.key
    label = columns.get("label")
    if isinstance(label, str) and task_id_of(snapshot.graph_id, label) != node.reference:
        yield snapshot.find("strange-id", key, f"its id is not that of a task “{label}” in this graph")
    definition = f"definition:{node.reference}"
    if "task" not in columns and definition not in snapshot.rows:
        text = "its definition is gone"
        yield snapshot.find("missing-row:definition", key, text, keys=(definition,), detail="definition")


def _times(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    """A task that may not go on any more, and times that only a clock that is off can have written."""
    columns, key = node.row.columns, node.row.key
    if (why := overdue(columns.get, snapshot.now)) is not None:
        code, reason = why
        yield snapshot.find(code, key, f"it is {node.state}, and {reason}", repair=Redo((Overdue(node.reference),)))
    if right := amended(columns.get, snapshot.now):
        said = ", ".join(f"{name} {columns.get(name)}" for name in right)
        text = f"it says {said}, which no clock that agrees with ours can have written by now"
        yield snapshot.find("clock-off", key, text, repair=Redo((SetRight(node.reference),)))


def _lease(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    columns, key = node.row.columns, node.row.key
    end = columns.get("leaseUntil")
    if end is None:
        until = snapshot.now + timedelta(seconds=limits.LEASE_SECONDS)
        repair = snapshot.patch({key: {"leaseUntil": until}})
        yield snapshot.find("no-lease", key, "it runs, and its row holds no end of a lease", repair=repair)
    elif isinstance(end, datetime) and lease(columns.get, snapshot.now) is Standing.OVER:
        lost = LeaseLost(node.reference, integer(columns, "run"), str(columns.get("claim", "")))
        text = f"its worker {columns.get('worker', '')} has not renewed its lease since {end}"
        yield snapshot.find("lease-ended", key, text, repair=Redo((lost,)))


def _held(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    """Only what its graph holds back, or it itself, holds back a task, once a pause or a resume has settled."""
    graph = snapshot.nodes[GRAPH]
    settling = graph.row.columns.get("settling") is True
    if not snapshot.steady or node.state not in TASK_UNRESOLVED or not graph.waits or settling:
        return
    held, known = texts(node.row.columns, "held"), {INACTIVE, *texts(graph.row.columns, "held")}
    rest = [each for each in held if each in known]
    if rest == held:
        return
    columns: dict[str, Value] = {"held": ids_text(rest)}
    if node.state == TaskState.PENDING and not rest:
        repair = snapshot.patch_ready(node, columns, (GRAPH,))
    else:
        repair = snapshot.patch({node.row.key: columns}, (GRAPH,))
    over = ", ".join(f"“{held_group(each) or each}”" for each in held if each not in known)
    text = f"it is held back by {over}, which the graph does not pause"
    yield snapshot.find("held-back", node.row.key, text, keys=(GRAPH,), repair=repair)


def _budget(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    columns, key = node.row.columns, node.row.key
    names = ("run", "rerunsAllowed", "rerunsLeft", "retriesLeft", "manualReruns", "handBacks", "temporaryFailures")
    numbers = [columns.get(name, 0) for name in names]
    if not all(is_number(number) for number in numbers):
        return
    run, allowed, reruns, retries, by_hand, back, later = (int(str(number)) for number in numbers)
    policy = policy_of(columns.get("retry", ""))
    if policy is not None and not 0 <= (used := temporary_used(columns.get)) <= policy.limit:
        yield snapshot.find("temporary-budget", key, f"it has used {used} of {policy.limit} temporary failures")
    budgets = {"rerunsLeft": (reruns, allowed), "retriesLeft": (retries, limits.RETRIES_DEFAULT)}
    used = by_hand + back + later + sum(most - left for left, most in budgets.values())
    wrong = [name for name, (left, most) in budgets.items() if not 0 <= left <= most]
    if run == used and not wrong:
        return
    repair = None
    if len(wrong) == 1:
        # It cannot be true; the other numbers then say what it must have been.
        left, most = budgets[wrong[0]]
        right = left + used - run
        if 0 <= right <= most:
            repair = snapshot.patch({key: {wrong[0]: right}})
    text = (
        f"it is in run {run}, with {reruns} of {allowed} reruns and {retries} of {limits.RETRIES_DEFAULT} retries "
        f"left, {by_hand} reruns by hand and {back} hand-backs"
        + (f" and {later} temporary failures" if later else "")
        + ", which does not add up"
    )
    yield snapshot.find("budget", key, text, repair=repair)
