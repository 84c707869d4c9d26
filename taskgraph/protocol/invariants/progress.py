"""What each row waits for, and how that ended.

`requiresLeft` holds what has not completed, and nothing else; a task is ready when nothing is left (S9). A task ran if,
and only if, its requirements ended as it asks, and its row says how they ended (S10).
"""

from collections.abc import Iterator, Sequence

from taskgraph.model.columns import Value, integer, is_cancelled, texts
from taskgraph.model.ids import GRAPH, ids_text, is_relay, row_key
from taskgraph.model.json_strict import compact_json
from taskgraph.model.states import TaskState
from taskgraph.protocol.conditions import SKIP, is_met, meets
from taskgraph.protocol.decide import Item
from taskgraph.protocol.invariants.findings import Finding, Redo, Repair, have
from taskgraph.protocol.invariants.snapshot import Node, Snapshot
from taskgraph.protocol.invariants.tallies import answered
from taskgraph.protocol.propagation import READY, RECALL
from taskgraph.protocol.recall import Ready, Recall
from taskgraph.protocol.relays import Fire, Skip
from taskgraph.protocol.rows import Draft
from taskgraph.protocol.runs import Completed, Failed
from taskgraph.protocol.tally import ending_announced


def progress(snapshot: Snapshot) -> Iterator[Finding]:
    """What each row still waits for, against what has completed."""
    for node in snapshot.nodes.values():
        if not snapshot.is_open(node.reference):
            yield from _progress_of(snapshot, node)


def _progress_of(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    own, key = node.reference, node.row.key
    if node.requires is None or node.left is None:
        return
    requires, left = node.requires, node.left
    known = [name for name in requires if not snapshot.is_open(name)]
    fulfilled = [name for name in known if snapshot.done(own, name)]
    unfulfilled = [name for name in known if snapshot.done(own, name) is False]
    unsure = len(known) != len(fulfilled) + len(unfulfilled) or len(known) != len(requires)
    over = [name for name in left if name in fulfilled]
    forgotten = [name for name in unfulfilled if name not in left]
    strange = [name for name in left if name not in requires and not snapshot.upstream_rows(own, name)]
    if over:
        items = tuple(item for name in over for item in completion_items(snapshot, own, name))
        repair: Repair = Redo(items)
        if "decidedBy" in node.row.columns:
            (tally,) = snapshot.upstream_rows(own, over[0])
            announced = str(tally.row.columns["announced"])
            repair = snapshot.patch({key: answered(tally.row.columns, announced, tally)}, (tally.row.key,))
        text = f"it still waits for {snapshot.labels(over)}, which {snapshot.ended}"
        yield snapshot.find("left-over", key, text, keys=snapshot.edge_keys(own, over), repair=repair)
    if strange:
        right = snapshot.patch({key: {"requiresLeft": ids_text(unfulfilled)}}, snapshot.upstream_keys(own, unfulfilled))
        yield snapshot.find(
            "left-unknown",
            key,
            f"it waits for {snapshot.labels(strange)}, which it does not require",
            keys=snapshot.edge_keys(own, [*requires, *strange]),
            repair=right if snapshot.certain_edges and not unsure else None,
        )
    if own == GRAPH:
        if forgotten and node.waits:
            yield _forgotten(snapshot, node, forgotten)
        return
    began = not node.waits and (node.state != TaskState.SKIPPED or snapshot.may_skip)
    if unfulfilled and began and not is_cancelled(node.row.columns.get) and not node.never_began:
        yield _early(snapshot, node, unfulfilled)
    elif forgotten:
        yield _forgotten(snapshot, node, forgotten)
    elif (
        not left
        and node.waits
        and not unsure
        and node.row.columns.get("due") not in (RECALL, READY)
        and snapshot.upstream.get(own, {}).keys() <= set(requires)  # else what it requires is put right first
    ):
        yield _asleep(snapshot, node)
    if snapshot.may_skip and node.waits:
        yield from _missing_causes(snapshot, node)


def completion_items(snapshot: Snapshot, below: str, name: str) -> Iterator[Item]:
    """Items that count a fulfilled requirement of `below` off once more."""
    for node in snapshot.upstream_rows(below, name):
        if not node.resolved:
            continue
        run = node.row.columns.get("run", 0)
        if is_relay(node.reference):
            yield Fire(node.reference)
        elif node.state == TaskState.SKIPPED:
            yield Skip(node.reference)
        elif isinstance(run, int):
            kind = Completed if node.state == TaskState.COMPLETED else Failed
            yield kind(node.reference, run, str(node.row.columns.get("claim", "")), "", {})


def _forgotten(snapshot: Snapshot, node: Node, forgotten: Sequence[str]) -> Finding:
    left = ids_text([*(node.left or ()), *forgotten])
    hold = snapshot.upstream_keys(node.reference, forgotten)
    return snapshot.find(
        "requirement-forgotten",
        node.row.key,
        f"it does not wait for {snapshot.labels(forgotten)}, which it requires, and which {have(forgotten)} "
        f"not {snapshot.ended}",
        keys=snapshot.edge_keys(node.reference, forgotten),
        repair=snapshot.patch({node.row.key: {"requiresLeft": left}}, hold),
    )


def _early(snapshot: Snapshot, node: Node, unfulfilled: Sequence[str]) -> Finding:
    columns: dict[str, Value] = {"state": str(TaskState.UNSCHEDULED), "requiresLeft": ids_text(unfulfilled)}
    back = snapshot.patch({node.row.key: columns}, snapshot.upstream_keys(node.reference, unfulfilled))
    return snapshot.find(
        "too-early",
        node.row.key,
        f"it is {node.state}, and {snapshot.labels(unfulfilled)} {have(unfulfilled)} not {snapshot.ended}",
        keys=snapshot.edge_keys(node.reference, unfulfilled),
        repair=None if node.begun else back,
    )


def _asleep(snapshot: Snapshot, node: Node) -> Finding:
    key, relay = node.row.key, is_relay(node.reference)
    if node.row.columns.get("due") == SKIP:
        text = "it is to be skipped, and has not been skipped yet"
        return snapshot.find("skip-due", key, text, repair=Redo((Skip(node.reference),)))
    keys = snapshot.edge_keys(node.reference, node.requires or ())
    if snapshot.may_skip and not relay and not is_met(Draft(key, node.row.columns, None)):
        text = "it waits for nothing, its condition is not met, and it is not about to be skipped"
        return snapshot.find("asleep:skip", key, text, keys=keys, repair=snapshot.patch({key: {"due": SKIP}}))
    columns: dict[str, Value] = {"state": str(TaskState.PENDING)}
    repair = snapshot.patch({key: columns}) if relay else snapshot.patch_ready(node, columns)
    return snapshot.find("asleep", key, "it waits for nothing, and does not stand ready", keys=keys, repair=repair)


def recalls(snapshot: Snapshot) -> Iterator[Finding]:
    """Rows that were reset: what they have not taken back from their dependents yet, and what waits for that."""
    graph = snapshot.nodes[GRAPH]
    counted = integer(graph.row.columns, "recalls")
    due = [node for node in snapshot.nodes.values() if node.row.columns.get("due") == RECALL]
    if snapshot.steady and counted != len(due):
        text = f"it counts {counted:,} rows that are to take their ends back; there are {len(due):,}"
        repair = snapshot.patch({GRAPH: {"recalls": len(due)}}, [node.row.key for node in due])
        yield snapshot.find("recall-count", GRAPH, text, keys=[node.row.key for node in due], repair=repair)
    for node in due:
        text = "it is run again, and has not taken its end back from all that has counted it"
        keys = snapshot.edge_keys(node.reference, node.dependents or ())
        yield snapshot.find("recall-due", node.row.key, text, keys=keys, repair=Redo((Recall(node.reference),)))
    for node in snapshot.tasks if not counted and graph.waits else ():
        if node.row.columns.get("due") == READY:
            text = "it is run again and waits for nothing, and does not stand ready yet"
            yield snapshot.find("recall-due:ready", node.row.key, text, repair=Redo((Ready(node.reference),)))


def ready_relays(snapshot: Snapshot) -> Iterator[Finding]:
    """Joins and forks that wait for nothing, and have not been passed on yet."""
    for reference, node in snapshot.nodes.items():
        if is_relay(reference) and node.state == TaskState.PENDING and node.left == []:
            text = f"the {snapshot.label(reference)} stands ready, and has not been fired yet"
            yield snapshot.find("relay-ready", node.row.key, text, repair=Redo((Fire(reference),)))


def conditions(snapshot: Snapshot) -> Iterator[Finding]:
    """Tasks that ran, or were skipped, against their condition."""
    for node in snapshot.tasks if snapshot.may_skip else ():
        if not snapshot.is_open(node.reference):
            yield from _condition_of(snapshot, node)


def _condition_of(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    columns, key = node.row.columns, node.row.key
    skipped = node.state == TaskState.SKIPPED
    if skipped and ((columns.get("run") and not columns.get("manualReruns")) or columns.get("claim")):
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


def _missing_causes(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    """How a requirement ended that was counted off must stand on the row."""
    if "tally" in node.row.columns:
        return  # it counts them
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
    if announced := columns.get("announced"):
        return ending_announced(columns.get, str(announced), node.reference).failed
    if is_relay(node.reference) or node.state == TaskState.SKIPPED:
        known = columns.get(name) or columns.get("failedBy") or columns.get("skippedBy")
        if known or is_relay(node.reference):
            return str(known or "")
    return compact_json({"label": str(columns.get("label", "")), "taskId": node.reference, "state": node.state})
