"""Groups: what requirements on them and of them come to, as M + N edges and from task to task."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskgraph.documents import graph_algorithms
from taskgraph.documents.groups import (
    DONE,
    START,
    TooManyPairs,
    circles,
    is_end,
    logical,
    members,
    name_of,
    wire,
    within,
)
from taskgraph.documents.nodes import GraphDocument, GroupNode, TaskNode

Requires = Mapping[str, Sequence[str]]
Grouped = Mapping[str, tuple[Sequence[str], Sequence[str]]]
"""Group -> (what is in it, what it requires)."""


def document(requires: Requires, groups: Grouped) -> GraphDocument:
    return GraphDocument(
        {label: TaskNode(label, tuple(wanted)) for label, wanted in requires.items()},
        groups={name: GroupNode(name, tuple(inside), tuple(wanted)) for name, (inside, wanted) in groups.items()},
    )


def required(made: GraphDocument) -> dict[str, set[str]]:
    """Label -> all that it requires: by the definition of a group, written as plainly as can be."""

    def tasks_of(name: str) -> set[str]:
        if name not in made.groups:
            return {name}
        return set().union(*map(tasks_of, made.groups[name].tasks))

    found = {label: set().union(*map(tasks_of, node.requires)) for label, node in made.tasks.items()}
    for name, group in made.groups.items():
        for label in tasks_of(name):
            found[label] |= set().union(*map(tasks_of, group.requires))
    return found


@st.composite
def documents(draw: st.DrawFn) -> GraphDocument:
    """Tasks and groups in one order: each requires and contains only what comes before, so there is no circle.

    A group may require what comes before the first of its tasks.
    """
    rng = draw(st.randoms(use_true_random=False))
    requires: dict[str, list[str]] = {}
    groups: dict[str, tuple[list[str], list[str]]] = {}
    first: dict[str, int] = {}  # name -> place of the first task that it stands for, requirements of its groups aside
    last: dict[str, int] = {}
    for place in range(draw(st.integers(1, 14))):
        label = f"t{place}"
        names = [*requires, *groups]
        requires[label] = [name for name in names if rng.random() < 0.25]
        first[label] = last[label] = place
        if names and rng.random() < 0.5:
            name = f"g{place}"
            inside = rng.sample([*names, label], rng.randrange(1, min(5, len(names) + 1) + 1))
            first[name] = min(first[each] for each in inside)
            last[name] = max(last[each] for each in inside)
            before = [each for each in names if last[each] < first[name]]
            groups[name] = (inside, [each for each in before if rng.random() < 0.4])
    return document(requires, groups)


@settings(max_examples=60, deadline=None)
@given(documents())
def test_wired_and_written_out_they_mean_the_same(made: GraphDocument) -> None:
    wiring = wire(made.tasks, made.groups)
    expected = required(made)
    found = logical(wiring)
    assert {label: set(wanted) for label, wanted in found.items()} == expected
    assert all(len(wanted) == len(set(wanted)) for wanted in found.values())
    assert made.edges == wiring.edges
    backwards = GraphDocument(
        dict(reversed(list(made.tasks.items()))), groups=dict(reversed(list(made.groups.items())))
    )
    again = wire(backwards.tasks, backwards.groups)
    assert {each: set(wanted) for each, wanted in again.ends.items()} == {
        each: set(wanted) for each, wanted in wiring.ends.items()
    }
    assert {each: set(wanted) for each, wanted in again.requires.items()} == {
        each: set(wanted) for each, wanted in wiring.requires.items()
    }
    nodes = {**wiring.requires, **wiring.ends}
    assert graph_algorithms.is_acyclic(nodes)
    named = {each for wanted in nodes.values() for each in wanted if is_end(each)}
    assert named == set(wiring.ends), "every end that is required is there, and no other"
    everybody = members(made.groups)
    for label in made.tasks:
        inside = {name for name, labels in everybody.items() if label in labels}
        assert set(within(made.groups).get(label, ())) == inside
    assert graph_algorithms.is_acyclic(
        circles({label: node.requires for label, node in made.tasks.items()}, made.groups)
    )


def test_m_before_n_is_m_plus_n() -> None:
    first, second = [f"a{number}" for number in range(300)], [f"b{number}" for number in range(300)]
    tasks = dict.fromkeys([*first, *second], ())
    by_group = document(tasks, {"first": (first, ()), "second": (second, ("first",))})
    assert by_group.edges == 600
    assert sum(map(len, logical(wire(by_group.tasks, by_group.groups)).values())) == 90_000
    # The group that requires is a gate as well, where it requires tasks by their labels.
    by_label = document(tasks, {"second": (second, first)})
    wiring = wire(by_label.tasks, by_label.groups)
    assert by_label.edges == 600
    assert wiring.requires["b7"] == (f"{START}second",)
    assert wiring.ends == {f"{START}second": tuple(first)}
    assert required(by_label)["b7"] == set(first)


def test_where_it_saves_nothing_requirements_are_handed_on() -> None:
    made = document({"lock": (), "a": (), "b": (), "end": ("bulk",)}, {"bulk": (("a", "b"), ("lock",))})
    wiring = wire(made.tasks, made.groups)
    assert wiring.requires == {"lock": (), "a": ("lock",), "b": ("lock",), "end": (f"{DONE}bulk",)}
    assert wiring.ends == {f"{DONE}bulk": ("a", "b")}


def test_a_group_of_one_is_that_one() -> None:
    made = document({"a": (), "b": ("outer",)}, {"outer": (("inner",), ()), "inner": (("a",), ())})
    assert wire(made.tasks, made.groups).requires["b"] == ("a",)
    assert wire(made.tasks, made.groups).ends == {}


def test_a_task_in_several_groups_requires_what_all_of_them_do() -> None:
    made = document(
        {"x": (), "y": (), "z": (), "a": ("z",)},
        {"one": (("a",), ("x",)), "two": (("one",), ("y",)), "three": (("a",), ("x", "z"))},
    )
    assert set(logical(wire(made.tasks, made.groups))["a"]) == {"x", "y", "z"}
    assert within(made.groups) == {"a": ("one", "three", "two"), "one": ("two",)}


def test_names_that_nobody_has_are_passed_through() -> None:
    made = document({"a": ("old group", "old")}, {"new": (("a",), ("older",))})
    assert wire(made.tasks, made.groups).requires["a"] == ("old group", "old", "older")


def test_groups_without_an_end_are_no_groups() -> None:
    made = document({"a": ()}, {"x": (("y",), ()), "y": (("x",), ())})
    with pytest.raises(ValueError, match="contain each other"):
        wire(made.tasks, made.groups)


def test_so_many_pairs_and_no_more() -> None:
    first, second = [f"a{number}" for number in range(30)], [f"b{number}" for number in range(30)]
    made = document(dict.fromkeys([*first, *second], ()), {"first": (first, ()), "second": (second, ("first",))})
    wiring = wire(made.tasks, made.groups)
    assert len(logical(wiring, pairs_max=930)) == 60
    with pytest.raises(TooManyPairs):
        logical(wiring, pairs_max=929)


def test_counting_containers_stops_early() -> None:
    groups: Grouped = {f"g{number}": ([f"g{number - 1}" if number else "a"], ()) for number in range(1_000)}
    made = document({"a": ()}, groups)
    assert len(within(made.groups, at_most=5)["a"]) == 6
    assert len(within(made.groups)["a"]) == 1_000


def test_names_of_nodes() -> None:
    assert [name_of(node) for node in ("a", f"{DONE}b", f"{START}c")] == ["a", "b", "c"]
