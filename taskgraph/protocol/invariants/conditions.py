"""A task ran if, and only if, its requirements ended as it asks, and its row says how they ended (S10)."""

from collections.abc import Iterator

from taskgraph.model.columns import Value, texts
from taskgraph.model.ids import is_relay, row_key
from taskgraph.model.json_strict import compact_json
from taskgraph.model.states import TaskState
from taskgraph.protocol.conditions import SKIP, meets
from taskgraph.protocol.invariants.findings import Finding, have
from taskgraph.protocol.invariants.snapshot import Node, Snapshot


def conditions(snapshot: Snapshot) -> Iterator[Finding]:
    """Tasks that ran, or were skipped, against their condition."""
    for node in snapshot.tasks if snapshot.goes_on else ():
        if not snapshot.is_open(node.reference):
            yield from _condition_of(snapshot, node)


def _condition_of(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    columns, key = node.row.columns, node.row.key
    skipped = node.state == TaskState.SKIPPED
    if skipped and (columns.get("run") or columns.get("claim")):
        yield snapshot.find("skipped-ran", key, f"it is skipped, and was in run {columns.get('run')}")
    optional = texts(columns, "optional")
    requires = [each for each in node.requires or () if each not in optional]
    outcomes = [snapshot.outcome(each) for each in requires]
    known = [each for each in outcomes if each is not None]
    if node.state == TaskState.UNSCHEDULED or len(known) != len(outcomes) or not node.requires:
        return
    met = meets(
        str(columns.get("when", "")), failed=any(each for each, _ in known), skipped=any(each for _, each in known)
    )
    keys = [row_key(each) for each in requires]
    if skipped and met:
        yield snapshot.find("skipped-wrong", key, "it is skipped, though its requirements ended as it asks", keys=keys)
    elif not skipped and not met and not node.never_began:
        again: dict[str, Value] = {"state": str(TaskState.UNSCHEDULED), "due": SKIP}
        yield snapshot.find(
            "condition",
            key,
            f"it is {node.state}, though its requirements did not end as it asks",
            keys=keys,
            repair=None
            if node.begun
            else snapshot.patch({key: again}, [each for each in keys if each in snapshot.rows]),
        )


def missing_causes(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    """How a requirement ended that was counted off must stand on the row."""
    optional = texts(node.row.columns, "optional")
    gone = [each for each in node.requires or () if each not in (node.left or ()) and each not in optional]
    for name, place in (("failedBy", 0), ("skippedBy", 1)):
        ended = [each for each in gone if (outcome := snapshot.outcome(each)) is not None and outcome[place]]
        if ended and not node.row.columns.get(name):
            cause = _cause(snapshot.nodes[ended[0]], name)
            yield snapshot.find(
                "unheard",
                node.row.key,
                f"it has counted {snapshot.labels(ended)} off, and column {name} does not say how {have(ended)} ended",
                keys=[row_key(each) for each in ended],
                detail=name,
                repair=snapshot.patch({node.row.key: {name: cause}}, [row_key(ended[0])]) if cause else None,
            )


def _cause(node: Node, name: str) -> str:
    columns = node.row.columns
    if is_relay(node.reference) or node.state == TaskState.SKIPPED:
        known = columns.get(name) or columns.get("failedBy") or columns.get("skippedBy")
        if known or is_relay(node.reference):
            return str(known or "")
    return compact_json({"label": str(columns.get("label", "")), "taskId": node.reference, "state": node.state})
