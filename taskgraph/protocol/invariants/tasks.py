"""What must be true of one task: its id and definition, budgets, holders, times, and the lease of its run."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from taskgraph.model import limits
from taskgraph.model.columns import Value, integer, texts
from taskgraph.model.foreign_times import Standing
from taskgraph.model.ids import GRAPH, ids_text, task_id_of
from taskgraph.model.states import INACTIVE, TASK_UNRESOLVED, GraphState, TaskState, held_group
from taskgraph.model.timing import overdue, temporary_used
from taskgraph.protocol.invariants.columns import policy_of
from taskgraph.protocol.invariants.findings import Finding, Retell, Severity
from taskgraph.protocol.invariants.snapshot import Node, Snapshot, is_number
from taskgraph.protocol.leases import SetRight, amended, lease
from taskgraph.protocol.runs import LeaseLost, Overdue


def _past(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    """A task that may not go on any more, and that is not resolved yet."""
    why = overdue(node.row.columns.get, snapshot.now)
    if why is not None:
        code, reason = why
        yield snapshot.find(
            code,
            node.row.key,
            f"it is {node.state}, and {reason}",
            "it is to be resolved as an exception",
            severity=Severity.DUE,
            repair=Retell((Overdue(node.reference),)),
            remedy="run `taskgraph serve`, which sweeps",
        )


def tasks(snapshot: Snapshot) -> Iterator[Finding]:
    """What each task says of itself."""
    for node in snapshot.tasks:
        yield from _task(snapshot, node)


def _task(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    columns, key = node.row.columns, node.row.key
    label = columns.get("label")
    if isinstance(label, str) and task_id_of(snapshot.graph_id, label) != node.reference:
        yield snapshot.find(
            "strange-id",
            key,
            f"its id is not that of a task “{label}” in this graph",
            "nobody finds it by its label",
            refusal="either its label or its key is wrong",
        )
    if "task" not in columns and f"definition:{node.reference}" not in snapshot.rows:
        yield snapshot.find(
            "missing-row",
            key,
            "its definition is gone",
            "no worker can run it",
            keys=(f"definition:{node.reference}",),
            detail="definition",
            refusal="the definition is written nowhere else",
        )
    yield from _budget(snapshot, node)
    yield from _held(snapshot, node)
    yield from _past(snapshot, node)
    if right := amended(columns.get, snapshot.now):
        said = ", ".join(f"{name} {columns.get(name)}" for name in right)
        yield snapshot.find(
            "clock-off",
            key,
            f"it says {said}, which no clock that agrees with ours can have written by now",
            "whoever waits for such a time goes by now instead, and that costs its length once",
            severity=Severity.DUE,
            repair=Retell((SetRight(node.reference),)),
            remedy="put the clocks of the machines right; `taskgraph serve` sets the row right",
        )
    if node.state == TaskState.RUNNING:
        end = columns.get("leaseUntil")
        if end is None:
            until = snapshot.now + timedelta(seconds=limits.LEASE_SECONDS)
            yield snapshot.find(
                "no-lease",
                key,
                "it runs, and its row holds no end of a lease",
                "if its worker dies, nobody takes it over",
                repair=snapshot.patch({key: {"leaseUntil": until}}),
            )
        elif isinstance(end, datetime) and lease(columns.get, snapshot.now) is Standing.OVER:
            lost = LeaseLost(node.reference, integer(columns, "run"), str(columns.get("claim", "")))
            yield snapshot.find(
                "lease-ended",
                key,
                f"its worker {columns.get('worker', '')} has not been heard of since {end}",
                "it stands still until somebody gives the run up",
                severity=Severity.DUE,
                repair=Retell((lost,)),
                remedy="run `taskgraph serve`, which sweeps",
            )


def _held(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    """Only what its graph holds back, or it itself, holds back a task, once a pause or a resume has settled."""
    if snapshot.graph is None or not snapshot.steady or node.state not in TASK_UNRESOLVED:
        return
    graph = snapshot.graph.row.columns
    if graph.get("state") not in (GraphState.RUNNING, GraphState.BLOCKED) or graph.get("settling") is True:
        return
    held, known = texts(node.row.columns, "held"), {INACTIVE, *texts(graph, "held")}
    rest = [each for each in held if each in known]
    if rest == held:
        return
    columns: dict[str, Value] = {"held": ids_text(rest)}
    dispatch: tuple[tuple[str, int, str], ...] = ()
    if node.state == TaskState.PENDING and not rest:
        columns["pendingSince"] = snapshot.now
        dispatch = (node.to_send,)
    over = ", ".join(f"“{held_group(each) or each}”" for each in held if each not in known)
    yield snapshot.find(
        "held-back",
        node.row.key,
        f"it is held back by {over}, which the graph does not pause",
        "no resume lets it go on",
        keys=(GRAPH,),
        repair=snapshot.patch({node.row.key: columns}, (GRAPH,), dispatch=dispatch),
    )


def _budget(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    columns, key = node.row.columns, node.row.key
    names = ("run", "rerunsAllowed", "rerunsLeft", "retriesLeft", "manualReruns", "handBacks", "temporaryFailures")
    numbers = [columns.get(name, 0) for name in names]
    if not all(is_number(number) for number in numbers):
        return
    run, allowed, reruns, retries, by_hand, back, later = (int(str(number)) for number in numbers)
    others = by_hand + back + later
    policy = policy_of(columns.get("retry", ""))
    if policy is not None and not 0 <= (used := temporary_used(columns.get)) <= policy.limit:
        yield snapshot.find(
            "temporary-budget",
            key,
            f"it has used {used} of {policy.limit} temporary failures",
            "it may be tried too often, or not often enough",
            refusal="any of these numbers may be the wrong one",
            remedy=f"taskgraph events {snapshot.graph_id} shows its runs",
        )
    wrong = {"rerunsLeft": not 0 <= reruns <= allowed, "retriesLeft": not 0 <= retries <= limits.RETRIES_DEFAULT}
    used = allowed - reruns + limits.RETRIES_DEFAULT - retries + others
    if run == used and not any(wrong.values()):
        return
    repair = None
    if wrong["rerunsLeft"] != wrong["retriesLeft"]:
        # One of them cannot be true; the other numbers then say what it must have been.
        name, most, spent = (
            ("rerunsLeft", allowed, run - others - (limits.RETRIES_DEFAULT - retries))
            if wrong["rerunsLeft"]
            else ("retriesLeft", limits.RETRIES_DEFAULT, run - others - (allowed - reruns))
        )
        if 0 <= spent <= most:
            repair = snapshot.patch({key: {name: most - spent}})
    yield snapshot.find(
        "budget",
        key,
        f"it is in run {run}, with {reruns} of {allowed} reruns and {retries} of {limits.RETRIES_DEFAULT} retries "
        f"left, {by_hand} reruns by hand and {back} hand-backs"
        + (f" and {later} temporary failures" if later else "")
        + ", which does not add up",
        "it may run too often, or not often enough",
        repair=repair,
        refusal="any of these numbers may be the wrong one",
        remedy=f"taskgraph events {snapshot.graph_id} shows its runs",
    )
