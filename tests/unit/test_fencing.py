"""The fence of a graph that is cancelled, fact by fact: what its row says, what its journal says, and what follows."""

import pytest

from taskgraph.model.ids import GRAPH
from taskgraph.protocol.cancel import CancelGraph
from taskgraph.protocol.context import Cancelling, Outcome
from tests.unit.transition_rows import Rows, apply, changed, columns, decided, events, rows_of, without


def graph() -> Rows:
    return rows_of({"a": [], "b": ["a"]})


def fenced(rows: Rows) -> Rows:
    """The rows behind the fence, without its fact: each decision here is the first of a journal."""
    rows = apply(rows, decided(rows, CancelGraph("first")))
    for key in [key for key in rows if key.startswith("event:")]:
        rows = without(rows, key)
    return rows


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (CancelGraph("why"), {"reason": "why"}),
        (CancelGraph("why", at_once=True), {"reason": "why", "terminate": True}),
        (CancelGraph("why", "deadline-exceeded"), {"reason": "why", "code": "deadline-exceeded"}),
    ],
)
def test_a_fence_says_how_and_why(item: CancelGraph, said: dict[str, object]) -> None:
    rows = graph()
    decision = decided(rows, item)
    (fact,) = events(decision)
    assert fact == {"event": "graph-cancelling", **said}
    assert Cancelling(fenced=True) in decision.effects
    row = columns(apply(rows, decision), GRAPH)
    assert row["state"] == "cancelling"
    assert {name: row.get(name) for name in ("reason", "code", "terminate") if row.get(name)} == said


def test_a_fenced_graph_can_still_be_asked_not_to_wait_for_its_runs() -> None:
    rows = fenced(graph())
    again = decided(rows, CancelGraph("second"))
    assert (again.changes, again.answers[0].outcome) == ((), Outcome.REPEATED)
    assert Cancelling(fenced=True) in again.effects, "what was cut off goes on"
    harder = decided(rows, CancelGraph("second", at_once=True))
    assert events(harder) == [{"event": "graph-cancelling", "reason": "first", "terminate": True}]
    assert Cancelling(fenced=True) in harder.effects
    rows = apply(rows, harder)
    assert (columns(rows, GRAPH)["terminate"], columns(rows, GRAPH)["reason"]) == (True, "first")
    assert decided(changed(rows, GRAPH), CancelGraph("third", at_once=True)).changes == ()


def test_what_is_paused_is_so_no_longer_behind_the_fence() -> None:
    rows = changed(graph(), GRAPH, held='["paused"]', holds=1, settling=True, pausing='["paused"]')
    row = columns(apply(rows, decided(rows, CancelGraph("why"))), GRAPH)
    assert row["settling"] is False
    assert row["pausing"] == "[]"
