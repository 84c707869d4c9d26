"""Many items at once: as many as fit one commit, the rest left for the next, nothing lost and nothing too large."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskgraph.model import limits
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import GRAPH
from taskgraph.protocol.context import Dispatch, Outcome
from taskgraph.protocol.decide import EVENT_CHARS_MAX, Decision, Item
from taskgraph.protocol.extension import (
    AcceptExtension,
    FinishExtension,
    InsertRows,
    LinkTasks,
    RefuseRequest,
    request_key,
)
from taskgraph.protocol.layout import lay_out
from taskgraph.protocol.recall import ManualRerun
from taskgraph.protocol.relays import Remind
from taskgraph.protocol.runs import Claim, Completed, Failed, HandBack, LeaseLost
from taskgraph.protocol.wiring import Link
from taskgraph.storage.checks import check_commit, sent_bytes
from taskgraph.storage.tables import Insert, Row
from tests.unit.transition_rows import (
    LATER,
    NOW,
    Rows,
    apply,
    changed,
    columns,
    decided,
    document,
    events,
    loaded_step_by_step,
    rows_of,
    run_down,
    running,
    task_id,
)

ENDED = "2026-01-01T12:00:00+00:00"


def labels(count: int) -> list[str]:
    return [f"t{number:04}" for number in range(count)]


def completed(label: str, run: int = 0, claim: str = "c") -> Completed:
    return Completed(task_id(label), run, claim, ENDED, {"failed": False})


def failed(label: str, reason: str, run: int = 0) -> Failed:
    return Failed(task_id(label), run, "c", ENDED, {"failed": True, "reason": reason})


def all_running(rows: Rows, wanted: Sequence[str]) -> Rows:
    for label in wanted:
        rows = running(rows, label)
    return rows


def event_rows(decision: Decision) -> list[Insert]:
    return [change for change in decision.changes if isinstance(change, Insert) and change.key.startswith("event:")]


@pytest.mark.parametrize("count", [98, 99, 100, 250, 1_000])
def test_a_batch_that_does_not_fit_one_commit_is_split_and_nothing_is_lost(count: int) -> None:
    wanted = labels(count)
    rows = all_running(rows_of({label: [] for label in wanted}), wanted)
    items = [completed(label) for label in wanted]
    done: list[Item] = []
    left: Sequence[Item] = items
    sequence = 1
    while left:
        decision = decided(rows, *left, sequence=sequence)
        assert len(decision.changes) <= limits.COMMIT_CHANGES_MAX
        rows = apply(rows, decision, mark=str(sequence))
        done += [answer.item for answer in decision.answers]
        left = decision.left
        sequence += 1
    assert done == items
    assert columns(rows, GRAPH)["state"] == "finished"
    assert {columns(rows, label)["state"] for label in wanted} == {"completed"}
    assert sequence - 1 <= count // 40 + 2, "commits are well filled"


def test_an_item_that_does_not_fit_any_more_is_not_half_applied() -> None:
    """A task with 90 dependents after eleven small ones: it goes into the next commit, with all that follows."""
    small, told = labels(11), [f"d{number:02}" for number in range(90)]
    rows = rows_of({**{label: [] for label in small}, "wide": [], **{label: ["wide"] for label in told}})
    rows = all_running(rows, [*small, "wide"])
    decision = decided(rows, *(completed(label) for label in small), completed("wide"))
    assert decision.left == (completed("wide"),)
    assert len(decision.answers) == 11
    assert decision.effects == ()
    assert not any(f"task:{task_id(label)}" in {change.key for change in decision.changes} for label in ["wide", *told])
    after, effects, _ = run_down(rows, *(completed(label) for label in small), completed("wide"))
    assert {effect.task_id for effect in effects if isinstance(effect, Dispatch)} == {task_id(label) for label in told}
    assert {columns(after, label)["state"] for label in told} == {"pending"}


def test_relays_that_do_not_fit_are_left_too() -> None:
    """A task with 500 dependents: what its forks pass on comes in later commits of the same call."""
    told = [f"d{number:03}" for number in range(500)]
    rows = running(rows_of({"a": [], **{label: ["a"] for label in told}}), "a")
    first = decided(rows, completed("a"))
    assert first.left != ()
    assert [answer.outcome for answer in first.answers] == [Outcome.APPLIED]
    after, effects, answers = run_down(rows, completed("a"))
    assert len(answers) == 1
    assert len(effects) == 500
    assert {columns(after, label)["state"] for label in told} == {"pending"}


def test_event_rows_are_bounded() -> None:
    """Long labels and reasons: facts that do not fit wait for the next commit."""
    wanted = ["ü" * 250 + f"{number:04}" for number in range(60)]
    rows = all_running(rows_of({label: [] for label in wanted}), wanted)
    left: Sequence[Item] = [failed(label, "reason " * 140) for label in wanted]
    facts = 0
    sequence = 1
    while left:
        decision = decided(rows, *left, sequence=sequence)
        (row,) = event_rows(decision)
        text = str(row.columns["events"])
        assert len(text.encode("utf-16-le")) // 2 <= EVENT_CHARS_MAX
        assert row.key == f"event:{sequence:010d}"
        assert row.columns["sequence"] == sequence
        facts += sum(event["event"] == "task-failed" for event in json.loads(text))
        rows = apply(rows, decision, mark=str(sequence))
        left = decision.left
        sequence += 1
    assert facts == 60
    assert sequence > 3
    assert columns(rows, GRAPH)["failedTasks"] == 60


def test_event_rows_are_bounded_where_later_items_change_more_of_the_rows_of_earlier_ones() -> None:
    """Each fact of a completion is longer by the columns that the rerun in the same commit changes."""
    wanted = ["x" * 60 + f"{number:04}" for number in range(90)]
    rows = all_running(rows_of({label: [] for label in (*wanted, "last")}), wanted)
    left: Sequence[Item] = [*map(completed, wanted), *(ManualRerun(task_id(label), 0) for label in wanted)]
    facts, sequence = 0, 1
    while left:
        decision = decided(rows, *left, sequence=sequence)
        for row in event_rows(decision):
            text = str(row.columns["events"])
            assert len(text) <= limits.PROPERTY_CHARS_MAX
            facts += sum(event["event"] in ("task-completed", "task-rerun") for event in json.loads(text))
        rows, left = apply(rows, decision, mark=str(sequence)), decision.left
        sequence += 1
    assert facts == 2 * len(wanted)
    assert {columns(rows, label)["run"] for label in wanted} == {1}


@pytest.mark.parametrize("char", ["x", "é", "\U0001f600"])
def test_commits_are_bounded_in_bytes(char: str) -> None:
    """Results with resolutions of 30,000 UTF-16 units each, which a store may be sent as six times as many bytes."""
    wanted = labels(90)
    rows = all_running(rows_of({label: [] for label in wanted}), wanted)
    long = {"failed": False, "note": char * (15_000 if char > "\uffff" else 30_000)}
    left: Sequence[Item] = [Completed(task_id(label), 0, "c", ENDED, long) for label in wanted]
    sizes: list[int] = []
    while left:
        decision = decided(rows, *left, sequence=len(sizes) + 1)
        check_commit("graph", decision.changes)
        sizes.append(sum(sent_bytes(change.columns) for change in decision.changes))  # type: ignore[union-attr]
        rows = apply(rows, decision, mark=str(len(sizes)))
        left = decision.left
    assert limits.COMMIT_BYTES_MAX / 2 < max(sizes) <= limits.COMMIT_BYTES_MAX
    assert len(sizes) == (1 if char == "x" else 6)
    assert columns(rows, GRAPH)["state"] == "finished"


def test_an_item_that_fits_no_commit_spares_the_others() -> None:
    """Rows that no version of this program writes: a task with 120 dependents of its own."""
    told = [f"d{number:03}" for number in range(120)]
    rows = rows_of({"a": [], "x": [], **{label: [] for label in told}})
    rows = changed(all_running(rows, ["a", "x"]), "a", dependents=json.dumps([task_id(label) for label in told]))
    for label in told:
        rows = changed(rows, label, state="unscheduled", requiresLeft=json.dumps([task_id("a")]))
    rows, _, answers = run_down(rows, completed("a"), completed("x"))
    assert [isinstance(answer.error, IntegrityError) for answer in answers] == [True, False]
    assert (columns(rows, "a")["state"], columns(rows, "x")["state"]) == ("running", "completed")


def test_no_items_is_no_decision_to_write() -> None:
    decision = decided(rows_of({"a": []}))
    assert decision == Decision((), (), (), (), applied=True)


def test_every_row_that_is_asked_for_is_asked_for_at_once() -> None:
    """32 completions with different dependents: rounds of reading grow with the depth, not with the number."""
    wanted = labels(32)
    rows = all_running(rows_of({**{each: [] for each in wanted}, **{f"d{each}": [each] for each in wanted}}), wanted)
    decision, asked = loaded_step_by_step(rows, *(completed(label) for label in wanted))
    assert asked == 2
    assert len(decision.answers) == 32


# --- random graphs, random items ---------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    count = draw(st.integers(1, 9))
    names = labels(count)
    return {
        name: draw(st.lists(st.sampled_from(names[:number]), unique=True, max_size=4)) if number else []
        for number, name in enumerate(names)
    }


@st.composite
def items_for(draw: st.DrawFn, names: Sequence[str]) -> Item:
    label = task_id(draw(st.sampled_from(names)))
    run = draw(st.integers(0, 3))
    claim = draw(st.sampled_from(["c", "d"]))
    resolution = {"failed": False}
    choices: list[Item] = [
        Claim(label, run, claim, "w", LATER),
        Claim(label, run, claim, "w", LATER),
        Completed(label, run, claim, ENDED, resolution),
        Completed(label, run, claim, ENDED, resolution),
        Failed(label, run, claim, ENDED, {"failed": True}),
        Failed(label, run, claim, ENDED, {"failed": True}, exception=True),
        ManualRerun(label, run),
        HandBack(label, run, claim, "stop"),
        LeaseLost(label, run, claim, certain=True),
        Remind(label),
    ]
    return draw(st.sampled_from(choices))


def check(requires: dict[str, list[str]], rows: Rows) -> None:
    """What must hold after every commit (S1, S3, S6, S7, S9)."""
    states = {label: columns(rows, label)["state"] for label in requires}
    done = {label for label, state in states.items() if state == "completed"}
    for label, wanted in requires.items():
        row = columns(rows, label)
        left = {task_id(each) for each in wanted if each not in done}
        assert set(json.loads(row["requiresLeft"])) == left
        assert (row["state"] == "unscheduled") == bool(left)
        spent = row["rerunsAllowed"] - row["rerunsLeft"]
        lost = limits.RETRIES_DEFAULT - row["retriesLeft"]
        assert row["rerunsLeft"] >= 0
        assert row["retriesLeft"] >= 0
        assert row["run"] == spent + lost + row.get("manualReruns", 0) + row.get("handBacks", 0)
    graph = columns(rows, GRAPH)
    broken = [label for label, state in states.items() if state in ("failed", "exception")]
    assert graph["failedTasks"] == len(broken)
    assert (graph["state"] == "blocked") == bool(broken)
    assert (graph["state"] == "finished") == (done == set(requires))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_items_in_any_order_keep_the_invariants(data: st.DataObject) -> None:
    requires = data.draw(graphs())
    names = list(requires)
    rows = rows_of(requires, dict.fromkeys(names, 1))
    sequence = 1
    for _ in range(data.draw(st.integers(1, 12))):
        batch = data.draw(st.lists(items_for(names), min_size=1, max_size=6))
        decision = decided(rows, *batch, sequence=sequence)
        assert [answer.error for answer in decision.answers] == [None] * len(batch)
        assert [answer.item for answer in decision.answers] == batch
        rows = apply(rows, decision, mark=str(sequence))
        check(requires, rows)
        sequence += bool(events(decision))
        again = decided(rows, *batch, sequence=sequence)
        check(requires, apply(rows, again, mark="again"))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_batch_is_as_its_items_one_by_one(data: st.DataObject) -> None:
    """Committing together changes neither rows nor answers, only the number of event rows, and what need not be sent.

    A run that stood ready in the midst of the batch alone is not sent: nobody could claim it.
    """
    requires = data.draw(graphs())
    rows = rows_of(requires, dict.fromkeys(requires, 1))
    batch = data.draw(st.lists(items_for(list(requires)), min_size=1, max_size=12))
    together, effects, answers = run_down(rows, *batch)
    one_by_one: Rows = dict(rows)
    single_effects = []
    single_answers = []
    for number, item in enumerate(batch, 1):
        one_by_one, more, answer = run_down(one_by_one, item, first=number * 100)
        single_effects += more
        single_answers += answer
    assert [answer.outcome for answer in answers] == [answer.outcome for answer in single_answers]
    ready = {
        (each, columns(together, each)["run"]) for each in requires if columns(together, each)["state"] == "pending"
    }
    ready = {(task_id(label), run) for label, run in ready}
    sent = [each for each in single_effects if not isinstance(each, Dispatch) or (each.task_id, each.run) in ready]
    assert list(dict.fromkeys(effects)) == list(dict.fromkeys(sent)), "what is sent twice may be sent once"

    def said(of: Rows) -> dict[str, object]:
        return {
            key: {name: value for name, value in row.columns.items() if name != "operation"}
            for key, row in of.items()
            if row is not None and not key.startswith("event:")
        }

    assert said(together) == said(one_by_one)


# --- steps of an extension ---------------------------------------------------------------------------------------


def head(state: str = "staged", **more: int) -> Row:
    return Row(request_key("r"), "h", {"schema": 1, "state": state, "tasks": 1, "cursor": 0, **more})


def accept(revision: int = 0, *, whole: bool = True, direct: int = 48) -> AcceptExtension:
    layout = lay_out("g", document({"x": ["a"]}).tasks, stamp="r", now=NOW, request="r", direct_leaves_max=direct)
    return AcceptExtension(
        "r",
        revision,
        1,
        1,
        layout.leaves,
        layout.top,
        whole,
        layout.rows if whole else (),
        layout.links if whole else (),
        {"nameMapping": "{}"},
    )


def extension_rows(**graph: object) -> Rows:
    rows: Rows = rows_of({"a": []})
    for key in ("task:" + task_id("x"), f"fork:{task_id('a')}:r-0"):
        rows[key] = None
    rows[request_key("r")] = head()
    return changed(rows, GRAPH, **graph) if graph else rows  # type: ignore[arg-type]


def test_a_small_extension_is_one_commit() -> None:
    rows = extension_rows()
    decision = decided(rows, accept())
    after = apply(rows, decision)
    assert decision.answers[0].outcome is Outcome.APPLIED
    assert json.loads(columns(after, GRAPH)["requiresLeft"]) == [task_id("a"), task_id("x")]
    assert json.loads(columns(after, "a")["dependents"]) == [GRAPH, task_id("x")]
    assert (columns(after, GRAPH)["tasks"], columns(after, GRAPH)["revision"]) == (2, 1)
    assert columns(after, "x")["state"] == "unscheduled"
    assert columns(after, request_key("r"))["state"] == "done"
    assert events(decision) == [{"event": "graph-extended", "request": "r", "tasks": 1}]
    again = decided(after, accept(), sequence=2)
    assert (again.changes, again.answers[0].outcome) == ((), Outcome.REPEATED)


def test_a_link_to_a_completed_task_counts_down_in_the_same_commit() -> None:
    rows = changed(extension_rows(), "a", state="completed")
    decision = decided(rows, accept())
    after = apply(rows, decision)
    assert columns(after, "x")["state"] == "pending"
    assert Dispatch(task_id("x"), 0, "default") in decision.effects


@pytest.mark.parametrize(
    ("graph", "outcome"),
    [
        ({"state": "blocked"}, Outcome.APPLIED),
        ({"state": "finished"}, Outcome.REFUSED),
        ({"state": "cancelled"}, Outcome.REFUSED),
        ({"state": "submitting"}, Outcome.REFUSED),
        ({"revision": 1}, Outcome.STALE),
        ({"extending": "other"}, Outcome.STALE),
        ({"extending": "r"}, Outcome.APPLIED),
    ],
    ids=str,
)
def test_the_graph_row_guards_an_extension(graph: dict[str, object], outcome: Outcome) -> None:
    rows = extension_rows(**graph)
    decision = decided(rows, accept())
    assert decision.answers[0].outcome is outcome
    if outcome is Outcome.STALE:
        assert decision.changes == ()
    if outcome is Outcome.REFUSED:
        assert [change.key for change in decision.changes] == [request_key("r")]
        assert columns(apply(rows, decision), request_key("r"))["state"] == "refused"


@pytest.mark.parametrize("state", ["accepted", "done", "refused"])
def test_an_extension_that_was_answered_is_not_answered_again(state: str) -> None:
    rows = extension_rows() | {request_key("r"): head(state)}
    for item in (accept(), RefuseRequest("r", "no")):
        decision = decided(rows, item)
        assert (decision.changes, decision.answers[0].outcome) == ((), Outcome.REPEATED)


def test_a_large_extension_step_by_step() -> None:
    """Accepted, inserted, linked, finished; each step only at its own cursor, each once."""
    rows = extension_rows()
    taken = accept(whole=False, direct=0)
    assert taken.top is not None
    rows[taken.top.key] = None
    layout = lay_out("g", document({"x": ["a"]}).tasks, stamp="r", now=NOW, request="r", direct_leaves_max=0)
    steps: list[Item] = [
        taken,
        InsertRows("r", 0, layout.rows),
        LinkTasks("r", len(layout.rows), layout.links),
        FinishExtension("r"),
    ]
    for number, step in enumerate(steps, 1):
        for late in steps[: number - 1]:
            assert decided(rows, late, sequence=number).changes == (), "an earlier step again"
        early = [each for each in steps[number:] if isinstance(each, InsertRows | LinkTasks)]
        for each in early:
            decision = decided(rows, each, sequence=number)
            assert (decision.changes, decision.answers[0].outcome) == ((), Outcome.STALE)
        decision = decided(rows, step, sequence=number)
        assert decision.answers[0].outcome is Outcome.APPLIED
        rows = apply(rows, decision, mark=str(number))
        assert columns(rows, GRAPH)["extending"] == ("r" if number < len(steps) else "")
    assert columns(rows, request_key("r"))["state"] == "done"
    assert json.loads(columns(rows, GRAPH)["requiresLeft"]) == [task_id("a"), taken.leaves[0]]
    rows, effects, _ = run_down(running(rows, "a"), completed("a"), first=10)
    assert effects == [Dispatch(task_id("x"), 0, "default")]
    assert columns(rows, GRAPH)["state"] == "running"
    rows, _, _ = run_down(running(rows, "x"), completed("x"), first=20)
    assert columns(rows, GRAPH)["state"] == "finished"


def test_dependents_past_the_degree_of_a_row_move_into_a_fork() -> None:
    have = [task_id(f"d{number}") for number in range(limits.DEPENDENTS_MAX)]
    rows = changed(extension_rows(), "a", dependents=json.dumps(have))
    after = apply(rows, decided(rows, accept()))
    fork = f"fork:{task_id('a')}:r-0"
    assert json.loads(columns(after, "a")["dependents"]) == [fork, task_id("x")]
    assert json.loads(columns(after, fork)["dependents"]) == have
    assert json.loads(columns(after, fork)["requiresLeft"]) == [task_id("a")]


def test_linking_twice_registers_once() -> None:
    rows = extension_rows() | {request_key("r"): head("accepted", cursor=5)}
    rows[f"task:{task_id('x')}"] = rows_of({"a": [], "x": ["a"]})[f"task:{task_id('x')}"]
    link = LinkTasks("r", 5, (Link(task_id("a"), (task_id("x"),)), Link(task_id("a"), (task_id("x"),))))
    after = apply(rows, decided(rows, link))
    assert json.loads(columns(after, "a")["dependents"]) == [GRAPH, task_id("x")]
