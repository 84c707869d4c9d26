"""A task ran if, and only if, its requirements ended as it asks, and knows how they ended (S10)."""

from collections.abc import Iterator

from taskgraph.model.columns import Value, texts
from taskgraph.model.ids import is_relay, row_key
from taskgraph.model.json_strict import compact_json
from taskgraph.model.states import TaskState
from taskgraph.protocol.conditions import SKIP, meets
from taskgraph.protocol.invariants.findings import Finding, have
from taskgraph.protocol.invariants.snapshot import Node, Snapshot
from taskgraph.storage.tables import Row


def conditions(snapshot: Snapshot) -> Iterator[Finding]:
    """Tasks that ran, or were skipped, against their condition."""
    for node in snapshot.tasks if snapshot.goes_on else ():
        if not snapshot.is_open(node.reference):
            yield from _condition_of(snapshot, node)


def met_by_its_row(row: Row) -> bool:
    """Whether the condition of a task is met by what its row has heard."""
    columns = row.columns
    failed, skipped = bool(columns.get("failedBy")), bool(columns.get("skippedBy"))
    return meets(str(columns.get("when", "")), failed=failed, skipped=skipped)


def _condition_of(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    """A task ran if, and only if, its requirements had ended as it asks."""
    columns, key = node.row.columns, node.row.key
    if node.state == TaskState.SKIPPED and (columns.get("run") or columns.get("claim")):
        yield snapshot.find(
            "skipped-ran",
            key,
            f"it is skipped, and was in run {columns.get('run')}",
            "what was told of it is not true",
            refusal="a task that ran is never skipped, and what a run has done cannot be taken back",
        )
    optional = texts(node.row.columns, "optional")
    requires = [each for each in node.requires or () if each not in optional]
    heard = [snapshot.heard(each) for each in requires]
    known = [each for each in heard if each is not None]
    if node.state == TaskState.UNSCHEDULED or len(known) != len(heard) or not node.requires:
        return
    met = meets(
        str(columns.get("when", "")), failed=any(each for each, _ in known), skipped=any(each for _, each in known)
    )
    keys = [row_key(each) for each in requires]
    if node.state == TaskState.SKIPPED and met:
        yield snapshot.find(
            "skipped-wrong",
            key,
            "it is skipped, though its requirements ended as it asks",
            "it never runs",
            keys=keys,
            refusal="skipped is final, and its dependents have been told",
        )
    elif node.state != TaskState.SKIPPED and not met and not node.never_began:
        begun = node.state != TaskState.PENDING or columns.get("run") != 0
        again: dict[str, Value] = {"state": str(TaskState.UNSCHEDULED), "due": SKIP}
        yield snapshot.find(
            "condition",
            key,
            f"it is {node.state}, though its requirements did not end as it asks",
            "it runs where it should have been skipped",
            keys=keys,
            repair=None if begun else snapshot.patch({key: again}, [each for each in keys if each in snapshot.rows]),
            refusal="it has begun already, and what a run has done cannot be taken back",
        )


def unheard_news(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    """What a requirement that was counted off has told must stand on the row."""
    optional = texts(node.row.columns, "optional")
    gone = [each for each in node.requires or () if each not in (node.left or ()) and each not in optional]
    for name, place in (("failedBy", 0), ("skippedBy", 1)):
        told = [each for each in gone if (heard := snapshot.heard(each)) is not None and heard[place]]
        if told and not node.row.columns.get(name):
            cause = _cause(snapshot, snapshot.nodes[told[0]], name)
            yield snapshot.find(
                "unheard",
                node.row.key,
                f"it has counted {snapshot.labels(told)} off, and column {name} does not say how {have(told)} ended",
                "it may run where it should be skipped, or the other way round",
                keys=[row_key(each) for each in told],
                detail=name,
                repair=snapshot.patch({node.row.key: {name: cause}}, [row_key(told[0])]) if cause else None,
                refusal="nothing tells what the cause was",
            )


def _cause(snapshot: Snapshot, node: Node, name: str) -> str:
    columns = node.row.columns
    if is_relay(node.reference) or node.state == TaskState.SKIPPED:
        known = columns.get(name) or columns.get("failedBy") or columns.get("skippedBy")
        if known or is_relay(node.reference):
            return str(known or "")
    return compact_json({"label": str(columns.get("label", "")), "taskId": node.reference, "state": node.state})
