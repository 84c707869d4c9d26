"""The truth table on docs/reference/semantics.md, cell by cell, against what `decide` does with rows made for each."""

import pytest

from taskgraph.model.states import TASK_STORED, GraphState
from tests.formal import semantics
from tests.formal.semantics import CASES, GRAPHS, PAGE, STATES, TASKS, cases_of, table_of

ITEMS = [item.__name__ for item in semantics.items()]
ON_PAGE = semantics.read(PAGE.read_text("utf-8"))
REMEDY = "look at what has changed, and run scripts/generate"


def test_everything_that_is_decided_has_its_cases() -> None:
    assert [name for name in ITEMS if not cases_of(name)] == [], "add a Case to CASES of tests/formal/semantics.py"
    assert [name for name in CASES if name not in ITEMS] == []


def test_every_state_is_asked_about() -> None:
    assert [str(state) for state in TASK_STORED if str(state) not in TASKS] == [], "add it to TASKS"
    assert [str(state) for state in GraphState if str(state) not in GRAPHS] == [], "add it to GRAPHS"
    for name in ITEMS:
        for case in cases_of(name):
            assert case.over, name
            assert set(case.over) <= STATES.keys()
            assert type(case.item).__name__ == name


def test_every_item_meets_every_state_of_what_it_is_about() -> None:
    """Of tasks and graphs both, unless it is about a graph alone, or steps of an extension."""
    for name in ITEMS:
        over = {each for case in cases_of(name) for each in case.over}
        assert "graph" in over or name == "LinkTasks", name
        if hasattr(cases_of(name)[0].item, "task_id"):
            assert "task" in over, name


@pytest.mark.parametrize("name", ITEMS)
def test_each_cell_of_the_page_is_what_happens(name: str) -> None:
    for over in STATES:
        expected = table_of(name, over)
        found = ON_PAGE.get((name, over), {})
        assert found.keys() == expected.keys(), f"{name}, by {over}: cells are missing, or too many; {REMEDY}"
        for cell, happens in expected.items():
            assert found[cell] == happens, f"{name}, {over} is {cell[1]}, {cell[0]}: {REMEDY}"


def test_the_page_has_nothing_else_between_its_marks() -> None:
    assert {item for item, _ in ON_PAGE} == set(ITEMS)


# --- what must be true of the tables themselves, whoever changes them


@pytest.mark.parametrize("name", ITEMS)
def test_what_is_resolved_for_good_stays_so(name: str) -> None:
    """Nothing but a rerun by hand moves a task that has ended, or one that has gone on from there."""
    final = {"completed", "skipped", "failed", "exception"} if name not in ("ManualRerun", "Recall", "Ready") else set()
    for (when, state), (_, changes, _, _) in table_of(name, "task").items():
        if state in final:
            assert f"**{state} →" not in changes, f"{name}, {when}"


@pytest.mark.parametrize("name", ITEMS)
def test_what_has_ended_stays_so(name: str) -> None:
    for (when, state), (_, changes, _, _) in table_of(name, "graph").items():
        if state in ("finished", "cancelled") and name not in ("BeginDeletion", "Depart", "ManualRerun"):
            assert f"**{state} →" not in changes, f"{name}, {when}"


@pytest.mark.parametrize("name", ITEMS)
def test_nothing_changes_in_a_graph_that_is_on_its_way_but_that(name: str) -> None:
    """Whatever comes in: what was copied is what there is. Holds are settled before it departs."""
    for (when, state), (answer, changes, facts, sent) in table_of(name, "graph").items():
        if state in ("moving", "moved") and name not in ("Withdraw", "Remain", "Confirm", "PublishHolds"):
            assert (changes, facts, sent) == ("–", "–", "–"), f"{name}, {when}: {answer}"


@pytest.mark.parametrize("name", ITEMS)
def test_what_is_stale_or_refused_moves_nothing(name: str) -> None:
    for over in STATES:
        for (when, state), (answer, changes, facts, _) in table_of(name, over).items():
            if answer == "stale" or answer.startswith("refused"):
                answered = any(
                    each in name for each in ("Extension", "Edit", "Request")
                )  # whoever asked finds the answer on the request's row
                own = answered and answer != "stale" and changes.startswith("request:") and ";" not in changes
                assert facts == "–", f"{name}, {over} is {state}, {when}"
                assert own or changes == "–", f"{name}, {over} is {state}, {when}"
