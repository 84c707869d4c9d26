"""`requiresLeft` holds what has not completed, and nothing else; a task is ready when nothing is left (S9)."""

from collections.abc import Iterator, Sequence

from taskgraph.model.columns import Value
from taskgraph.model.ids import GRAPH, ids_text, is_relay
from taskgraph.model.states import GraphState, TaskState
from taskgraph.protocol.conditions import SKIP
from taskgraph.protocol.decide import Item
from taskgraph.protocol.invariants.conditions import met_by_its_row, unheard_news
from taskgraph.protocol.invariants.findings import Finding, Retell, Severity, have
from taskgraph.protocol.invariants.snapshot import Node, Snapshot
from taskgraph.protocol.relays import Fire, Skip
from taskgraph.protocol.runs import Completed, Failed


def progress(snapshot: Snapshot) -> Iterator[Finding]:
    """What each row still waits for, against who has completed."""
    for node in snapshot.nodes.values():
        if not snapshot.is_open(node.reference):
            yield from _progress_of(snapshot, node)


def _progress_of(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    own = node.reference
    if node.requires is None or node.left is None:
        return
    requires, left = node.requires, node.left
    known = [name for name in requires if not snapshot.is_open(name)]
    fulfilled = [name for name in known if snapshot.done(own, name)]
    unfulfilled = [name for name in known if snapshot.done(own, name) is False]
    unsure = len(known) != len(fulfilled) + len(unfulfilled) or len(known) != len(requires)
    over = [name for name in left if name in fulfilled]
    forgotten = [name for name in unfulfilled if name not in left]
    strange = [name for name in left if name not in requires and not snapshot.tellers(own, name)]
    if over:
        items = tuple(item for name in over for item in tell_again(snapshot, own, name))
        yield snapshot.find(
            "left-over",
            node.row.key,
            f"it still waits for {snapshot.labels(over)}, which {snapshot.ended}",
            "it waits for ever: nobody tells it again",
            keys=snapshot.teller_keys(own, over),
            repair=Retell(items),
        )
    if strange:
        hold = snapshot.told_by(own, unfulfilled)
        certain = snapshot.certain_edges and not unsure
        yield snapshot.find(
            "left-unknown",
            node.row.key,
            f"it waits for {snapshot.labels(strange)}, which it does not require",
            "it waits for ever",
            keys=snapshot.teller_keys(own, [*requires, *strange]),
            repair=snapshot.patch({node.row.key: {"requiresLeft": ids_text(unfulfilled)}}, hold) if certain else None,
            refusal="the edges that the rows name are not those that the graph counts",
        )
    if own == GRAPH:
        if forgotten and node.state in (GraphState.RUNNING, GraphState.BLOCKED):
            yield _forgotten(snapshot, node, forgotten)
        return
    began = node.state != TaskState.UNSCHEDULED and (node.state != TaskState.SKIPPED or snapshot.goes_on)
    if unfulfilled and began and not node.cancelled and not node.never_began:
        yield _early(snapshot, node, unfulfilled)
    elif forgotten:
        yield _forgotten(snapshot, node, forgotten)
    elif (
        not left
        and node.state == TaskState.UNSCHEDULED
        and not unsure
        and snapshot.names_told(own) <= set(requires)  # else what it requires is put right first
    ):
        yield _asleep(snapshot, node)
    if snapshot.goes_on and node.state == TaskState.UNSCHEDULED:
        yield from unheard_news(snapshot, node)


def tell_again(snapshot: Snapshot, told: str, name: str) -> Iterator[Item]:
    """Items that tell `told` once more that a requirement is fulfilled."""
    for teller in snapshot.tellers(told, name):
        if not teller.resolved:
            continue
        if is_relay(teller.reference):
            yield Fire(teller.reference)
        else:
            columns = teller.row.columns
            run = columns.get("run", 0)
            claim = str(columns.get("claim", ""))
            if teller.state == TaskState.SKIPPED:
                yield Skip(teller.reference)
            elif isinstance(run, int):
                kind = Completed if teller.state == TaskState.COMPLETED else Failed
                yield kind(teller.reference, run, claim, "", {})


def _forgotten(snapshot: Snapshot, node: Node, forgotten: Sequence[str]) -> Finding:
    left = ids_text([*(node.left or ()), *forgotten])
    repair = snapshot.patch({node.row.key: {"requiresLeft": left}}, snapshot.told_by(node.reference, forgotten))
    return snapshot.find(
        "requirement-forgotten",
        node.row.key,
        f"it does not wait for {snapshot.labels(forgotten)}, which it requires, and which {have(forgotten)} "
        f"not {snapshot.ended}",
        "it would go on too early",
        keys=snapshot.teller_keys(node.reference, forgotten),
        repair=repair,
    )


def _early(snapshot: Snapshot, node: Node, unfulfilled: Sequence[str]) -> Finding:
    own = node.reference
    begun = node.state != TaskState.PENDING or (not is_relay(own) and node.row.columns.get("run") != 0)
    repair = None
    if not begun:
        columns: dict[str, Value] = {"state": str(TaskState.UNSCHEDULED), "requiresLeft": ids_text(unfulfilled)}
        repair = snapshot.patch({node.row.key: columns}, snapshot.told_by(own, unfulfilled))
    return snapshot.find(
        "too-early",
        node.row.key,
        f"it is {node.state}, and {snapshot.labels(unfulfilled)} {have(unfulfilled)} not {snapshot.ended}",
        "it runs on what is not there yet",
        keys=snapshot.teller_keys(own, unfulfilled),
        repair=repair,
        refusal="it has begun already, and what a run has done cannot be taken back",
    )


def _asleep(snapshot: Snapshot, node: Node) -> Finding:
    if node.row.columns.get("due") == SKIP:
        return snapshot.find(
            "skip-due",
            node.row.key,
            "it is to be skipped, and nobody has done so yet",
            "what waits for it is told once somebody skips it",
            severity=Severity.DUE,
            repair=Retell((Skip(node.reference),)),
            remedy="run `taskgraph serve`, which sweeps",
        )
    if snapshot.goes_on and not is_relay(node.reference) and not met_by_its_row(node.row):
        return snapshot.find(
            "asleep",
            node.row.key,
            "it waits for nothing, its condition is not met, and it is not about to be skipped",
            "nobody ever resolves it",
            keys=snapshot.teller_keys(node.reference, node.requires or ()),
            repair=snapshot.patch({node.row.key: {"due": SKIP}}),
        )
    columns: dict[str, Value] = {"state": str(TaskState.PENDING)}
    dispatch: tuple[tuple[str, int, str], ...] = ()
    if not is_relay(node.reference):
        columns["pendingSince"] = snapshot.now
        dispatch = (node.to_send,)
    return snapshot.find(
        "asleep",
        node.row.key,
        "it waits for nothing, and does not stand ready",
        "it never runs: nobody tells it again",
        keys=snapshot.teller_keys(node.reference, node.requires or ()),
        repair=snapshot.patch({node.row.key: columns}, dispatch=dispatch),
    )


def ready_relays(snapshot: Snapshot) -> Iterator[Finding]:
    """Joins and forks that have heard of all, and have told nobody yet."""
    for reference, node in snapshot.nodes.items():
        if is_relay(reference) and node.state == TaskState.PENDING and node.left == []:
            yield snapshot.find(
                "relay-ready",
                node.row.key,
                f"the {snapshot.label(reference)} stands ready to pass on what it has been told",
                "what waits behind it is told once somebody fires it",
                severity=Severity.DUE,
                repair=Retell((Fire(reference),)),
            )
