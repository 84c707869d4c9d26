"""What a fact says of the columns that it changed, how long its lists may be, and what a filter finds in it."""

from typing import Any

import pytest

from taskgraph.model.facts import agrees, changes_of, listed, routing_at, routing_of, subject
from taskgraph.model.ids import GRAPH

EDITED: dict[str, Any] = {
    "updated": [{"label": "a", "fields": ["task", "reruns"]}],
    "deleted": ["b"],
    "deletedGroups": ["g"],
    "revision": 3,
}


def test_a_fact_speaks_of_its_task_or_of_the_graph() -> None:
    assert subject("task-failed", {"task": "x"}) == "task:x"
    assert subject("task-failed", {}) == "task:?"
    assert subject("graph-edited", {"task": "x"}) == GRAPH


def test_a_fact_of_a_kind_to_come_changed_what_it_says_itself() -> None:
    assert changes_of("task-cancelling", {}) == ("cancel",)
    assert changes_of("task-cancelling", {"changed": ["a", "b"]}) == ("a", "b")
    assert changes_of("task-to-come", {}) == ()


def test_the_routing_of_a_task_stands_on_its_row() -> None:
    assert routing_of({"routingKey": "a.b", "routing": "c"}) == "a.b"
    assert routing_of({"routing": "c"}) == ""
    assert routing_at("task:x") == ("task:x", "routingKey")
    assert routing_at(GRAPH) == (GRAPH, "routing")


@pytest.mark.parametrize(
    ("units", "made"),
    [
        (14, {"names": ["ab", "cd", "é"]}),
        (13, {"namesMore": 1, "names": ["ab", "cd"]}),
        (10, {"namesMore": 1, "names": ["ab", "cd"]}),
        (9, {"namesMore": 2, "names": ["ab"]}),
        (5, {"namesMore": 2, "names": ["ab"]}),
        (4, {"namesMore": 3}),
    ],
)
def test_a_list_of_a_fact_has_what_fits_and_says_how_many_more_there_are(units: int, made: dict[str, Any]) -> None:
    assert listed("names", ["ab", "cd", "é"], units) == made  # each takes its JSON, and one more for the comma


def test_an_empty_list_is_not_said() -> None:
    assert listed("names", [], 10) == {}


@pytest.mark.parametrize(
    ("where", "agreed"),
    [
        ({"sequence": ["7"]}, True),
        ({"sequence": ["8"]}, False),
        ({"event": ["graph-*"]}, True),
        ({"revision": ["3"]}, True),
        ({"label": ["a"]}, True),
        ({"label": ["b"]}, True),
        ({"label": ["g"]}, False),
        ({"label": ["task"]}, False),
        ({"group": ["g"]}, True),
        ({"changed": ["reruns"]}, True),
        ({"changed": ["requires"]}, False),
        ({"revision": ["task", "reruns"]}, False),
        ({"label": ["x", "a"], "sequence": ["7"]}, True),
        ({"label": ["a"], "sequence": ["8"]}, False),
    ],
)
def test_a_filter_sees_what_a_fact_says_of_many_tasks(where: dict[str, list[str]], agreed: bool) -> None:
    assert agrees("graph-edited", 7, EDITED, where) is agreed
