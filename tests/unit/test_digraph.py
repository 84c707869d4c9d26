"""Whether a directed graph has a cycle, seen in either of two ways; and the collector, which rests meanwhile."""

import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskgraph.documents import graph_algorithms
from taskgraph.documents.read import collector_paused, read_document
from taskgraph.model.errors import InvalidGraph
from taskgraph.model.json_strict import too_deep_at

Edges = dict[str, list[str]]
LABELS = "abcdefg"


@settings(max_examples=400, deadline=None)
@given(st.permutations(LABELS), st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS)), max_size=12))
def test_acyclic_is_what_has_no_cycle(order: list[str], edges: list[tuple[str, str]]) -> None:
    requires: Edges = {label: [] for label in order}
    for here, other in edges:
        if here != other and other not in requires[here]:
            requires[here].append(other)
    found = list(graph_algorithms.cycles(requires))
    assert graph_algorithms.is_acyclic(requires) is not bool(found)
    if graph_algorithms.in_order(requires):
        assert not found
    assert not graph_algorithms.is_acyclic({**requires, "a": [*requires["a"], "a"]}), "of itself"


def test_the_order_of_a_document_is_seen() -> None:
    assert graph_algorithms.in_order({"a": [], "b": ["a"], "c": ["a", "b"]})
    assert not graph_algorithms.in_order({"b": ["a"], "a": []}), "which says nothing"
    assert graph_algorithms.is_acyclic({"b": ["a"], "a": []})


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_left_as_it_was(on: bool) -> None:
    (gc.enable if on else gc.disable)()
    try:
        with collector_paused():
            assert not gc.isenabled()
            with collector_paused():
                pass
            assert not gc.isenabled()
        assert gc.isenabled() is on
        with pytest.raises(InvalidGraph):
            read_document("{")
        assert gc.isenabled() is on
    finally:
        gc.enable()


@pytest.mark.parametrize("pair", ["[]", "{}", "[{}]", '{"a":[]}'])
@pytest.mark.parametrize("depth", [1, 63, 64, 65, 66, 128, 5_000])
def test_depth_is_counted_exactly_whatever_the_brackets(pair: str, depth: int) -> None:
    opening, closing = [char for char in pair if char in "[{"], [char for char in pair if char in "]}"]
    count = -(-depth // len(opening))
    text = " ".join((opening * count)[:depth]) + '"]"' + " ".join((closing * count)[-depth:]) + " " * 70
    expected = None if depth <= 64 else 2 * 64
    assert too_deep_at(text, 64) == expected
