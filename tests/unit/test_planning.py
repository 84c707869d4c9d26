"""Plans: known shapes, agreement with slow definitions on random graphs, pictures that no label can break."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.documents.plan import known_seconds, plan, to_dot, to_json, to_mermaid
from taskgraph.documents.read import document_from_object, read_document
from taskgraph.model.errors import InvalidGraph


def document(**requires: str) -> GraphDocument:
    return GraphDocument({label: TaskNode(label, tuple(text.split())) for label, text in requires.items()})


LOCK = document(lock="", rh1="lock", rh2="lock", rh3="lock", se="lock", unlock="rh1 rh2 rh3 se")


def test_the_table_of_the_lock_example():
    made = plan(LOCK)
    assert [(row.label, row.ndeps, row.waiters) for row in made.rows] == [
        ("lock", 0, ("rh1", "rh2", "rh3", "se")),
        ("rh1", 1, ("unlock",)),
        ("rh2", 1, ("unlock",)),
        ("rh3", 1, ("unlock",)),
        ("se", 1, ("unlock",)),
        ("unlock", 4, ()),
    ]
    assert (made.tasks, made.edges, made.depth, made.width) == (6, 8, 3, 4)
    assert (made.fan_in_max, made.fan_in_label, made.fan_out_max, made.fan_out_label) == (4, "unlock", 4, "lock")
    assert (made.roots, made.leaves) == (("lock",), ("unlock",))
    assert made.levels == (("lock",), ("rh1", "rh2", "rh3", "se"), ("unlock",))
    assert made.critical_path == ("lock", "rh1", "unlock")
    assert (made.critical_seconds, made.total_seconds) == (None, None)
    assert json.loads(json.dumps(to_json(made)))["criticalPath"] == {
        "labels": ["lock", "rh1", "unlock"],
        "seconds": None,
    }


def test_the_critical_path_is_weighed_by_seconds():
    tasks: dict[str, Any] = {
        "slow": {"task": {"executor": "sleep", "payload": {"seconds": 10}}},
        "a": {"task": {"executor": "sleep", "payload": {"seconds": 1}}},
        "b": {"task": {}, "requires": ["a"]},
        "end": {"task": {}, "requires": ["b", "slow"]},
    }
    made = plan(document_from_object({"tasks": tasks}))
    assert (made.critical_path, made.critical_seconds, made.total_seconds) == (("slow", "end"), 10.0, 11.0)
    made = plan(document_from_object({"tasks": tasks}), seconds=lambda node: 1.0)
    assert (made.critical_path, made.critical_seconds, made.total_seconds) == (("a", "b", "end"), 3.0, 4.0)


@pytest.mark.parametrize("seconds", [None, True, "1", -1, [1]])
def test_seconds_that_are_none(seconds: Any):
    assert known_seconds(TaskNode("a", task={"payload": {"seconds": seconds}})) is None
    assert known_seconds(TaskNode("a", task={"payload": {"seconds": 0}})) == 0.0


def test_small_and_odd_documents():
    made = plan(document(a=""))
    assert (made.depth, made.width, made.fan_in_max, made.fan_in_label, made.critical_path) == (1, 1, 0, "", ("a",))
    assert plan(GraphDocument({})).depth == 0
    extension = read_document('{"tasks": {"c": {"requires": ["a"], "task": {}}}}', kind="extension")
    assert plan(extension).edges == 0
    with pytest.raises(InvalidGraph):
        plan(document(a="b", b="a"))


@st.composite
def dags(draw: st.DrawFn) -> GraphDocument:
    labels = [f"t{index}" for index in range(draw(st.integers(1, 9)))]
    nodes = []
    for index, label in enumerate(labels):
        requires = draw(st.lists(st.sampled_from(labels[:index]), unique=True)) if index else []
        task = {"payload": {"seconds": draw(st.integers(0, 5))}} if draw(st.booleans()) else {}
        nodes.append(TaskNode(label, tuple(requires), 0, task))
    return GraphDocument({node.label: node for node in draw(st.permutations(nodes))})


def paths_to(graph: GraphDocument, label: str) -> list[tuple[str, ...]]:
    requires = graph.tasks[label].requires
    return [(*path, label) for other in requires for path in paths_to(graph, other)] or [(label,)]


@given(dags())
@settings(deadline=None)
def test_a_plan_agrees_with_all_paths(graph: GraphDocument):
    made = plan(graph)
    paths = {label: paths_to(graph, label) for label in graph.tasks}
    longest = {label: max(map(len, paths[label])) for label in graph.tasks}
    assert made.depth == max(longest.values())
    assert made.width == max(list(longest.values()).count(depth) for depth in longest.values())
    assert {row.label: row.level + 1 for row in made.rows} == longest
    assert [label for labels in made.levels for label in labels] == sorted(graph.tasks, key=lambda one: (
        longest[one], list(graph.tasks).index(one)))  # fmt: skip
    assert (
        made.edges == graph.edges == sum(len(row.waiters) for row in made.rows) == sum(row.ndeps for row in made.rows)
    )
    assert made.fan_in_max == max(len(node.requires) for node in graph.tasks.values())
    assert made.fan_out_max == max(len(row.waiters) for row in made.rows)
    weights = {label: known_seconds(node) for label, node in graph.tasks.items()}
    weighted = any(weight is not None for weight in weights.values())

    def weight(path: tuple[str, ...]) -> float:
        return sum((weights[label] or 0.0) if weighted else 1.0 for label in path)

    heaviest = max(weight(path) for inner in paths.values() for path in inner)
    assert weight(made.critical_path) == heaviest
    assert made.critical_path in paths[made.critical_path[-1]] or weighted
    assert made.critical_seconds == (heaviest if weighted else None)


def test_a_long_chain_needs_no_recursion():
    nodes = {str(i): TaskNode(str(i), (str(i - 1),) if i else ()) for i in range(30_000)}
    made = plan(GraphDocument(nodes))
    assert (made.depth, made.width, len(made.critical_path)) == (30_000, 1, 30_000)


# --- pictures --------------------------------------------------------------------------------------------------

NASTY = ['a"b', "c\\", "<b>&amp;", "#35;", "`x`", "end", "]", "{|}", "%%{init}%%", "é 日本", "\u2028", "a;b", "\\N"]


def test_mermaid_of_plain_labels():
    assert to_mermaid(document(a="", b="a")) == 'flowchart TD\n    n0["a"]\n    n1["b"]\n    n0 --> n1\n'


def test_dot_of_plain_labels():
    lines = to_dot(document(a="", b="a")).splitlines()
    assert lines[0] == "digraph taskgraph {"
    assert '    n0 [label="a"];' in lines
    assert "    n0 -> n1;" in lines
    assert lines[-1] == "}"


def test_no_label_breaks_a_picture():
    graph = GraphDocument({label: TaskNode(label) for label in NASTY})
    for index, line in enumerate(to_mermaid(graph).splitlines()[1:]):
        match = re.fullmatch(r'    n(\d+)\["((?:[^"#<>&`\\\[\]{}|%;]|#\d+;)*)"\]', line)
        assert match is not None, line
        assert int(match.group(1)) == index
        assert re.sub(r"#(\d+);", lambda found: chr(int(found.group(1))), match.group(2)) == NASTY[index]
    for index, line in enumerate(to_dot(graph).splitlines()[3:-1]):
        match = re.fullmatch(r'    n(\d+) \[label="((?:[^"\\]|\\["\\])*)"\];', line)
        assert match is not None, line
        text = re.sub(r"\\(.)", r"\1", match.group(2))
        text = re.sub(r"&#(\d+);", lambda found: chr(int(found.group(1))), text).replace("&amp;", "&")
        assert text == NASTY[index]
