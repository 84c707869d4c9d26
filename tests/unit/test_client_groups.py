"""Groups in Python: pairs, membership, names, and the documents that come of them."""

from typing import Any

import pytest

from taskgraph import Graph, Group, InvalidInput, Task
from taskgraph.documents.plan import to_table
from taskgraph.documents.read import document_from_object
from tests.unit.test_planning_groups import LOCK, STAGES


def task(label: str, **more: Any) -> Task:
    return Task(label, executor="noop", **more)


def test_lock_and_unlock_as_groups_were_first_written_down() -> None:
    lock, unlock = task("LOCK"), task("UNLOCK")
    rh1, rh2, rh3, se = (task(label) for label in ("RH1", "RH2", "RH3", "SE"))
    graph = Graph()
    graph.add(lock, rh1, rh2, rh3, se, unlock)
    bulk = Group(rh1, rh2, rh3, se)
    graph.add(bulk.requires(lock), unlock.requires(bulk))
    assert to_table(graph.plan()) == LOCK
    assert bulk.name == "(RH1, RH2, RH3, SE)"
    assert graph.to_dict()["groups"] == {bulk.name: {"tasks": ["RH1", "RH2", "RH3", "SE"], "requires": ["LOCK"]}}


def test_a_group_that_requires_a_group() -> None:
    lock, a, b, c, d, unlock = (task(label) for label in ("LOCK", "A", "B", "C", "D", "UNLOCK"))
    first, second = Group("first", a, b), Group("second", c, d)
    graph = Graph()
    graph.add(
        lock,
        first,
        second,
        unlock,
        first.requires(lock),
        b.requires(a),
        second.requires(first),
        unlock.requires(second),
    )
    assert to_table(graph.plan()) == STAGES
    by_arrows = Graph()
    lock, a, b, c, d, unlock = (by_arrows.task(label, executor="noop") for label in graph.tasks)
    a >> b
    lock >> Group("first", a, b) >> Group("second", c, d) >> unlock
    assert by_arrows.to_dict() == graph.to_dict()
    assert Graph.from_document(graph.validate()).to_dict() == graph.to_dict()
    assert document_from_object(graph.to_dict()).groups.keys() == {"first", "second"}


def test_requires_is_a_list_of_names_and_gives_pairs_when_called() -> None:
    a, b = task("a"), task("b", requires=["x"])
    bulk = Group("bulk", a, requires="y")
    assert b.requires == ("x",)
    assert bulk.requires == ("y",)
    assert b.requires(a, bulk, "z") == [(b, a), (b, bulk), (b, "z")]
    assert bulk.requires("z") == [(bulk, "z")]
    assert b.requires == ("x",), "nothing is required before the pairs are added"


def test_who_is_in_a_pair_must_be_in_the_graph() -> None:
    lock, a, b, other = task("lock"), task("a"), task("b"), task("other")
    bulk = Group("bulk", a, b)
    graph = Graph()
    graph.add(lock, a)
    with pytest.raises(InvalidInput, match="task “b” is not in the graph"):
        graph.add(bulk.requires(lock))
    with pytest.raises(InvalidInput, match="task “other” is not in the graph"):
        graph.add(bulk, lock.requires(b), bulk.requires(other))
    assert lock.requires == bulk.requires == (), "all pairs are looked at before one of them counts"
    with pytest.raises(InvalidInput, match="no task or group “gone”"):
        graph.add(a.requires("gone"))
    same = task("lock")
    with pytest.raises(InvalidInput, match="task “lock” is not in the graph"):
        graph.add(a.requires(same))
    graph.add(bulk.requires("lock"))
    assert graph.validate().groups["bulk"].requires == ("lock",)


def test_nested_groups_come_along() -> None:
    a, b, c = task("a"), task("b"), task("c")
    inner = Group("inner", a, b)
    outer = Group("outer", inner, c)
    graph = Graph()
    graph.add(outer)
    last = graph.task("last", executor="noop", requires=outer)
    assert set(graph.tasks) == {"a", "b", "c", "last"}
    assert set(graph.groups) == {"inner", "outer"}
    assert outer.tasks == ("inner", "c")
    assert last.requires == ("outer",)
    assert {row.label: row.ndeps for row in graph.plan().rows} == {"a": 0, "b": 0, "c": 0, "last": 3}


def test_a_group_that_is_required_comes_along() -> None:
    graph = Graph()
    a, b = graph.task("a", executor="noop"), graph.task("b", executor="noop")
    graph.task("c", executor="noop", requires=[Group("x", a, b), "a"])
    assert graph.validate().groups["x"].tasks == ("a", "b")
    assert graph.validate().tasks["c"].requires == ("x", "a")


def test_names_are_taken_once() -> None:
    a, b = task("a"), task("b")
    graph = Graph()
    graph.add(a, b, Group("x", a))
    with pytest.raises(InvalidInput, match="already has a group “x”"):
        graph.add(Group("x", b))
    with pytest.raises(InvalidInput, match="already has another group “x”"):
        graph.add(a.requires(Group("x", b)))
    b.after(Group("x", b))
    with pytest.raises(InvalidInput, match="two groups are called “x”"):
        graph.to_dict()


def test_names_that_nobody_gave() -> None:
    assert Group(task("a"), task("b")).name == "(a, b)"
    many = [task(f"a task with a long label {number}") for number in range(30)]
    name = Group(*many).name
    assert name.startswith("(a task with a long label 0 and 29 more, ")
    assert name == Group(*many).name != Group(*many[:-1], task("x")).name
    assert len(Group(task("x" * 255), task("y" * 255)).name) <= 255


def test_a_group_has_members() -> None:
    with pytest.raises(InvalidInput, match="a group has no members"):
        Group()
    with pytest.raises(InvalidInput, match="group “x” has no members"):
        Group("x")
    named = Group("a", "b", name="x")
    assert (named.name, named.tasks) == ("x", ("a", "b"))
    assert repr(named) == "Group('x', tasks=['a', 'b'], requires=[])"
