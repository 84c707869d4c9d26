"""The rules that transitions share: counting down, making ready, finishing, blocking and unblocking."""

import json
from datetime import UTC, datetime

import pytest

from taskgraph.model.columns import Value
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import GRAPH, fork_reference, join_reference, row_key
from taskgraph.protocol.context import Context, Dispatch, GraphEnded, GraphRevived
from taskgraph.protocol.propagation import (
    block,
    count_down,
    count_down_dependents,
    dispatch,
    finish,
    make_pending,
    unblock,
)
from taskgraph.protocol.rows import NeedRows, View
from taskgraph.storage.tables import Row

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ID, OTHER = "A" * 22, "B" * 22
JOIN, FORK = join_reference(ID, "0"), fork_reference(OTHER, "r-0")


def context(*rows: Row, missing: tuple[str, ...] = ()) -> Context:
    return Context(View({**{row.key: row for row in rows}, **dict.fromkeys(missing)}), NOW)


def row(reference: str, **columns: Value) -> Row:
    return Row(row_key(reference), "e", {"schema": 1, "run": 0, "target": "default", "label": "l", **columns})


# reference, its state, what is left before -> state after, effects, relays to fire
COUNTED = [
    ("task, more left", ID, "unscheduled", [OTHER, "x"], "unscheduled", [], []),
    ("task, last one", ID, "unscheduled", [OTHER], "pending", [Dispatch(ID, 0, "default")], []),
    ("task, told again while it is ready", ID, "pending", [], "pending", [Dispatch(ID, 0, "default")], []),
    ("task, told again while it runs", ID, "running", [], "running", [], []),
    ("task, told again after its end", ID, "completed", [], "completed", [], []),
    ("task that failed", ID, "failed", [], "failed", [], []),
    ("task, told by a stranger", ID, "unscheduled", ["x"], "unscheduled", [], []),
    ("join, more left", JOIN, "unscheduled", [OTHER, "x"], "unscheduled", [], []),
    ("join, last one", JOIN, "unscheduled", [OTHER], "pending", [], [JOIN]),
    ("join, told again while it is ready", JOIN, "pending", [], "pending", [], [JOIN]),
    ("join, told again after it has fired", JOIN, "completed", [], "completed", [], []),
    ("fork", FORK, "unscheduled", [OTHER], "pending", [], [FORK]),
    ("graph, more left", GRAPH, "running", [OTHER, "x"], "running", [], []),
    ("graph, last one", GRAPH, "running", [OTHER], "finished", [GraphEnded("finished")], []),  # type: ignore[arg-type]
    ("graph, told again", GRAPH, "finished", [], "finished", [GraphEnded("finished")], []),  # type: ignore[arg-type]
    ("blocked graph", GRAPH, "blocked", [OTHER, "x"], "blocked", [], []),
    ("graph that is being submitted", GRAPH, "submitting", [OTHER], "submitting", [], []),
    ("graph that was cancelled", GRAPH, "cancelled", [OTHER], "cancelled", [], []),
]


@pytest.mark.parametrize(
    ("reference", "state", "left", "after", "effects", "follow"),
    [case[1:] for case in COUNTED],
    ids=[case[0] for case in COUNTED],
)
def test_counting_down(
    reference: str, state: str, left: list[str], after: str, effects: list[object], follow: list[str]
) -> None:
    made = context(row(reference, state=state, requiresLeft=json.dumps(left), requires="[]"))
    count_down(reference, OTHER, made)
    draft = made.view.named(reference)
    assert draft.text("state") == after
    assert draft.ids("requiresLeft") == [each for each in left if each != OTHER]
    assert (made.effects, made.follow) == (effects, follow)
    assert [event["event"] for event in made.events] == (["graph-finished"] if after != state == "running" else [])
    assert bool(made.view.changed()) == (OTHER in left), "what was told before changes nothing"


def test_a_task_that_becomes_ready_says_since_when() -> None:
    made = context(row(ID, state="unscheduled"))
    make_pending(made.view.named(ID), made)
    assert made.view.named(ID).time("pendingSince") == NOW
    assert made.effects == [Dispatch(ID, 0, "default")]


def test_a_dispatch_names_run_and_target() -> None:
    made = context(row(ID, state="pending", run=7, target="gpu"))
    dispatch(made.view.named(ID), made)
    assert made.effects == [Dispatch(ID, 7, "gpu")]


def test_all_dependents_are_asked_for_at_once() -> None:
    made = context(row(ID, dependents=json.dumps([OTHER, JOIN, GRAPH])))
    with pytest.raises(NeedRows) as caught:
        count_down_dependents(made.view.named(ID), ID, made)
    assert caught.value.keys == {f"task:{OTHER}", JOIN, GRAPH}
    assert made.view.changed() == []


def test_a_fork_speaks_for_its_task() -> None:
    """Dependents below a fork are told under the name of the task that they require."""
    made = context(
        row(FORK, dependents=json.dumps([ID]), state="pending"),
        row(ID, state="unscheduled", requiresLeft=json.dumps([OTHER])),
    )
    count_down_dependents(made.view.named(FORK), FORK, made)
    assert made.view.named(ID).text("state") == "pending"


def test_a_join_speaks_for_itself() -> None:
    other = "C" * 22
    made = context(
        row(JOIN, dependents=json.dumps([other]), state="pending"),
        row(other, state="unscheduled", requiresLeft=json.dumps([JOIN, ID])),
    )
    count_down_dependents(made.view.named(JOIN), JOIN, made)
    assert made.view.named(other).ids("requiresLeft") == [ID]


def test_a_dependent_that_does_not_exist_is_an_error() -> None:
    """Nobody decides on an absence: registration implies existence (P2, P9)."""
    made = context(row(ID, dependents=json.dumps([OTHER])), missing=(f"task:{OTHER}",))
    with pytest.raises(IntegrityError, match="missing"):
        count_down_dependents(made.view.named(ID), ID, made)
    assert made.view.changed() == []


def test_a_graph_with_a_failed_task_does_not_finish() -> None:
    made = context(row(GRAPH, state="running", failedTasks=1))
    with pytest.raises(
        IntegrityError, match=r"^the graph waits for nothing, and yet a task of it has failed for good$"
    ):
        finish(made.view.get(GRAPH), made)
    assert (made.effects, made.events) == ([], [])


@pytest.mark.parametrize(
    ("state", "before", "after"),
    [("running", 0, "blocked"), ("blocked", 1, "blocked"), ("running", 1, "blocked"), ("cancelling", 0, "cancelling")],
)
def test_blocking(state: str, before: int, after: str) -> None:
    made = context(row(GRAPH, state=state, failedTasks=before), row(ID, label="a task"))
    block(made.view.named(ID), made, "broke")
    graph = made.view.get(GRAPH)
    assert (graph.text("state"), graph.integer("failedTasks")) == (after, before + 1)
    told = [{"event": "graph-blocked", "task": ID, "label": "a task", "reason": "broke"}]
    assert made.events == (told if state == "running" else [])
    assert made.effects == [], "a blocked graph is swept on: other branches run"


@pytest.mark.parametrize(
    ("state", "before", "after", "revived"),
    [
        ("blocked", 1, "running", True),
        ("blocked", 2, "blocked", False),
        ("running", 1, "running", False),
        ("cancelling", 1, "cancelling", False),
    ],
)
def test_unblocking(state: str, before: int, after: str, revived: bool) -> None:
    made = context(row(GRAPH, state=state, failedTasks=before, blockedBy="x"), row(ID))
    unblock(made.view.named(ID), made)
    graph = made.view.get(GRAPH)
    assert (graph.text("state"), graph.integer("failedTasks")) == (after, before - 1)
    assert graph.text("blockedBy") == ("" if revived else "x")
    assert made.effects == ([GraphRevived()] if revived else [])
    assert [event["event"] for event in made.events] == (["graph-unblocked"] if revived else [])


@pytest.mark.parametrize("count", [0, -1])
def test_unblocking_below_zero_is_an_error(count: int) -> None:
    made = context(row(GRAPH, state="blocked", failedTasks=count), row(ID))
    with pytest.raises(IntegrityError, match=r"^a failed task is rerun, and the graph counts none$"):
        unblock(made.view.named(ID), made)
    assert made.view.changed() == []


def test_facts_leave_out_what_nobody_said() -> None:
    made = context()
    made.event("x", reason=None, run=0, label="")
    assert made.events == [{"event": "x", "run": 0, "label": ""}]
