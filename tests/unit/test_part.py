"""A part of a graph has the tasks that are named, and all that they wait for; nothing else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgraph.documents.canonical import document_object
from taskgraph.documents.groups import logical, wire
from taskgraph.documents.part import only
from taskgraph.documents.read import document_from_object
from taskgraph.model.errors import InvalidInput

TASKS: dict[str, Any] = {
    "a": {},
    "b": {"requires": ["a"]},
    "c": {"requires": ["b"]},
    "d": {"requires": ["tests"]},
    "t1": {},
    "t2": {},
    "e": {},
    "lock": {},
}
GROUPS = {"tests": {"tasks": ["t1", "t2"]}, "all": {"tasks": ["tests", "e"], "requires": ["lock"]}}
DOCUMENT = document_from_object({"tasks": TASKS, "groups": GROUPS})


@pytest.mark.parametrize(
    ("patterns", "tasks", "groups"),
    [
        (["c"], ["a", "b", "c"], []),
        (["a"], ["a"], []),
        (["t1"], ["t1", "lock"], ["all", "tests"]),
        (["d"], ["d", "t1", "t2", "lock"], ["all", "tests"]),
        (["tests"], ["t1", "t2", "lock"], ["all", "tests"]),
        (["all"], ["t1", "t2", "e", "lock"], ["all", "tests"]),
        (["t?"], ["t1", "t2", "lock"], ["all", "tests"]),
        (["a", "e"], ["a", "e", "lock"], ["all"]),
        (["*"], list(TASKS), ["all", "tests"]),
    ],
)
def test_what_is_named_and_what_it_requires(patterns: list[str], tasks: list[str], groups: list[str]) -> None:
    part = only(DOCUMENT, patterns)
    assert sorted(part.tasks) == sorted(tasks)
    assert sorted(part.groups) == groups
    again = document_from_object(document_object(part))
    assert document_object(again) == document_object(part), "it is valid by itself"


def test_a_name_of_nothing_is_refused_with_near_ones() -> None:
    with pytest.raises(InvalidInput, match="no task and no group is named “tets”; did you mean “tests”"):
        only(DOCUMENT, ["tets"])


@given(st.data())
def test_every_task_of_a_part_waits_for_the_same_as_in_the_whole(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    labels = [f"n{number}" for number in range(count)]
    tasks = {
        label: {"requires": data.draw(st.lists(st.sampled_from(labels[:place]), unique=True)) if place else []}
        for place, label in enumerate(labels)
    }
    split = data.draw(st.integers(0, count))
    groups: dict[str, Any] = {}
    if split and data.draw(st.booleans()):
        inside = data.draw(st.lists(st.sampled_from(labels[split - 1 :]), min_size=1, unique=True))
        groups["g"] = {"tasks": inside}
        earlier = labels[: split - 1]
        if earlier:
            groups["g"]["requires"] = data.draw(st.lists(st.sampled_from(earlier), unique=True))
    whole = document_from_object({"tasks": tasks, "groups": groups})
    wanted = data.draw(st.lists(st.sampled_from([*labels, *groups]), min_size=1))
    part = only(whole, wanted)
    before, after = (logical(wire(each.tasks, each.groups)) for each in (whole, part))
    assert {label: set(after[label]) for label in part.tasks} == {label: set(before[label]) for label in part.tasks}
    needed = {label for name in wanted for label in (groups[name]["tasks"] if name in groups else [name])}
    todo = list(needed)
    while todo:
        new = set(before[todo.pop()]) - needed
        needed |= new
        todo += new
    assert set(part.tasks) == needed, "no more than is needed"
