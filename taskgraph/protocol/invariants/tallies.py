"""Groups that need k of n: what is counted against how members ended, what was announced against that (S11)."""

from collections.abc import Iterator, Mapping

from taskgraph.model.columns import Value, integer, texts
from taskgraph.model.ids import ids_text, is_piece
from taskgraph.model.states import TaskState
from taskgraph.protocol.invariants.findings import Finding
from taskgraph.protocol.invariants.snapshot import Node, Snapshot
from taskgraph.protocol.propagation import RECALL
from taskgraph.protocol.tally import WAIT, decided, ending_announced


def tallies(snapshot: Snapshot) -> Iterator[Finding]:
    """Counts and decisions of all groups that need k of n."""
    counting: dict[str, list[Node]] = {}
    for node in snapshot.nodes.values():
        if counted_by := node.row.columns.get("tally"):
            counting.setdefault(str(counted_by), []).append(node)
    for reference, rows in counting.items():
        tally = snapshot.nodes.get(reference)
        if tally is None or snapshot.is_open(reference):
            continue  # a row that is gone is found by its edges
        wrong = list(_counts(snapshot, tally, rows))
        yield from wrong or _announced(snapshot, tally)


def _counts(snapshot: Snapshot, node: Node, rows: list[Node]) -> Iterator[Finding]:
    ok = bad = 0
    patch: dict[str, dict[str, Value]] = {}
    hold: dict[str, None] = {}
    for row in rows:
        counted = [each for each in row.requires or () if not is_piece(each) and each not in (row.left or ())]
        outcomes = {each: snapshot.outcome(each) for each in counted}
        if None in outcomes.values():
            return  # one is run again, and is taken out of the counts next
        unsuccessful = [each for each, outcome in outcomes.items() if outcome is not None and any(outcome)]
        bad += len(unsuccessful)
        ok += len(counted) - len(unsuccessful)
        hold.update(dict.fromkeys(snapshot.upstream_keys(row.reference, counted)))
        hold[row.row.key] = None
        if set(texts(row.row.columns, "unsuccessful")) != set(unsuccessful):
            patch.setdefault(row.row.key, {})["unsuccessful"] = ids_text(unsuccessful)
    columns = node.row.columns
    if (integer(columns, "ok"), integer(columns, "bad")) == (ok, bad) and not patch:
        return
    patch.setdefault(node.row.key, {}).update({"ok": ok, "bad": bad})
    yield snapshot.find(
        "miscounted",
        node.row.key,
        f"the {snapshot.label(node.reference)} counts {integer(columns, 'ok'):,} that completed and "
        f"{integer(columns, 'bad'):,} that did not, and its rows say {ok:,} and {bad:,}",
        keys=hold,
        repair=snapshot.patch(patch, hold),
    )


def _announced(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    columns = node.row.columns
    decision = snapshot.nodes.get(str(columns.get("decides", "")))
    if decision is None or RECALL in (columns.get("due"), decision.row.columns.get("due")):
        return
    said = decided(
        integer(columns, "ok"), integer(columns, "bad"), needs=integer(columns, "needs"), of=integer(columns, "of")
    )
    announced = str(columns.get("announced", ""))
    ready = bool(said) and (columns.get("then") != WAIT or node.state == TaskState.COMPLETED)
    if announced == (said if ready else ""):
        return
    repair = None
    if ready and not announced:
        repair = snapshot.patch({node.row.key: {"announced": said}, decision.row.key: answered(columns, said, node)})
    yield snapshot.find(
        "decision",
        node.row.key,
        f"the {snapshot.label(node.reference)} has announced “{announced}”, and its counts say “{said}”",
        keys=(decision.row.key,),
        repair=repair,
    )


def answered(columns: Mapping[str, Value], announced: str, node: Node) -> dict[str, Value]:
    """The columns of a decision that was given this. columns: of the tally `node`."""
    made: dict[str, Value] = {"requiresLeft": "[]", "state": str(TaskState.PENDING)}
    if failed := ending_announced(columns.get, announced, node.reference).failed:
        made["failedBy"] = failed
    return made
