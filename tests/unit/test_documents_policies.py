"""Failure policies, conditions and optional requirements on their way in: form, problems, digests, plans, Python."""

import itertools
import json
from typing import Any

import pytest

from taskgraph import Client, Graph, Refused
from taskgraph.documents.canonical import content_hash, document_object, node_digest
from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.documents.plan import plan, to_dot, to_json, to_mermaid
from taskgraph.documents.read import document_from_object, read_document
from taskgraph.documents.schema_check import named
from taskgraph.interfaces.client.tasks import Task
from taskgraph.model import schemas
from taskgraph.model.errors import InvalidGraph


def graph(policy: str | None = "continue", **nodes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"tasks": {label: {"task": {}, **node} for label, node in nodes.items()}}
    return made if policy is None else {"failurePolicy": policy, **made}


def problems(obj: Any, kind: Any = "graph") -> list[tuple[str, str]]:
    with pytest.raises(InvalidGraph) as caught:
        document_from_object(obj, kind=kind)
    return [(each.pointer, each.code) for each in caught.value.problems]


REQUIREMENTS = [
    "a",
    "",
    7,
    None,
    {"label": "a"},
    {"label": "a", "optional": True},
    {"label": "a", "optional": False},
    {"label": "a", "optional": 1},
    {"label": "a", "optional": "yes"},
    {"label": ""},
    {"label": 7},
    {"optional": True},
    {"label": "a", "more": 1},
    {},
    ["a"],
]


def test_the_libraries_agree_on_requirements() -> None:
    validator = schemas.validator("task-graph", "#/$defs/node")
    for pair in [[], *([each] for each in REQUIREMENTS), *map(list, itertools.product(REQUIREMENTS, repeat=2))]:
        node = {"requires": pair, "task": {}}
        assert validator.is_valid(node) == (not list(validator.findings(node))), pair


@pytest.mark.parametrize(
    "when", ["all-completed", "any-failed", "always", "all-resolved", "never", "", 7, None, ["always"]]
)
def test_the_libraries_agree_on_conditions(when: Any) -> None:
    node = {"when": when, "task": {}}
    validator = schemas.validator("task-graph", "#/$defs/node")
    assert validator.is_valid(node) == (not list(validator.findings(node)))


def test_labels_of_requirements_keep_their_places() -> None:
    assert named(["a", {"label": "b", "optional": True}, {"label": "c"}, 7, {}]) == (
        ["a", "b", "c", 7, {}],
        frozenset({"b"}),
    )
    for other in ((), None, "a", ["a"]):
        assert named(other) == (other, frozenset())


def test_a_document_says_what_it_was_given_and_reads_back() -> None:
    obj = graph(a={}, b={"requires": ["a", {"label": "c", "optional": True}], "when": "any-failed"}, c={})
    found = document_from_object(obj)
    assert found.failure_policy == "continue"
    assert found.tasks["b"] == TaskNode("b", ("a", "c"), 0, {}, "any-failed", frozenset({"c"}))
    again = read_document(json.dumps(document_object(found)))
    assert again == found
    assert content_hash(again) == content_hash(found)


def test_what_does_not_use_them_is_what_it_was() -> None:
    plain = document_from_object(graph(None, a={}, b={"requires": ["a"]}))
    said = document_from_object(
        graph("block", a={}, b={"requires": [{"label": "a", "optional": False}], "when": "all-completed"})
    )
    assert plain == said
    assert content_hash(plain) == content_hash(said)
    assert set(document_object(plain)) == {"tasks"}
    assert set(document_object(plain)["tasks"]["b"]) == {"requires", "reruns", "task"}


def test_each_of_them_is_content() -> None:
    def made(policy: str = "continue", when: str = "always", optional: frozenset[str] = frozenset()) -> GraphDocument:
        nodes = {"a": TaskNode("a"), "b": TaskNode("b", ("a",), 0, {}, when, optional)}
        return GraphDocument(nodes, failure_policy=policy)

    others = [made("fail-fast"), made(when="any-failed"), made(optional=frozenset({"a"}))]
    assert len({content_hash(each) for each in (made(), *others)}) == 4
    assert node_digest(made().tasks["b"]) == node_digest(made("block").tasks["b"])


@pytest.mark.parametrize("policy", ["block", "fail-fast", None])
def test_conditions_need_a_graph_that_goes_on(policy: str | None) -> None:
    assert problems(graph(policy, a={}, b={"requires": ["a"], "when": "always"})) == [
        ("/tasks/b/when", "needs-continue")
    ]
    optional = {"requires": [{"label": "a", "optional": True}]}
    assert problems(graph(policy, a={}, b=optional)) == [("/tasks/b/requires", "needs-continue")]


def test_conditions_that_nothing_can_meet_are_named() -> None:
    assert problems(graph(a={"when": "always"})) == [("/tasks/a/when", "needless-condition")]
    never = {"requires": [{"label": "a", "optional": True}], "when": "any-failed"}
    assert problems(graph(a={}, b=never)) == [("/tasks/b/when", "needless-condition")]


def test_words_that_nobody_knows_are_named_with_those_that_come_near() -> None:
    with pytest.raises(InvalidGraph) as caught:
        document_from_object(graph("continu", a={}, b={"requires": ["a"], "when": "any-fail"}))
    texts = {each.pointer: f"{each.code}: {each.message}" for each in caught.value.problems}
    assert "not-allowed" in texts["/failurePolicy"]
    assert "Did you mean “continue”?" in texts["/failurePolicy"]
    assert "“all-completed”, “all-resolved”, “any-failed”, “always”" in texts["/tasks/b/when"]


def test_requirements_that_are_objects_are_looked_at_as_others_are() -> None:
    wrong = {
        "requires": [
            {"label": "b"},
            "a",
            {"label": "a"},
            {"label": "nobody"},
            {"label": "a", "option": True},
            {"optional": True},
        ]
    }
    assert problems(graph(a={}, b=wrong)) == [
        ("/tasks/b/requires/4/option", "unknown-key"),
        ("/tasks/b/requires/5", "missing"),
        ("/tasks/b/requires/0", "self-requirement"),
        ("/tasks/b/requires/2", "duplicate-requirement"),
        ("/tasks/b/requires/3", "unknown-label"),
        ("/tasks/b/requires/4", "duplicate-requirement"),
    ]
    circle = graph(a={"requires": [{"label": "b"}]}, b={"requires": [{"label": "a", "optional": True}]})
    assert [code for _, code in problems(circle)] == ["cycle"]


def test_an_extension_may_have_conditions_and_no_policy() -> None:
    found = document_from_object(graph(None, x={"requires": ["there"], "when": "always"}), kind="extension")
    assert found.tasks["x"].when == "always"
    assert problems(graph("continue", x={}), "extension") == [("/failurePolicy", "unknown-key")]


# --- plans and pictures


def test_plans_name_conditions_and_pictures_show_them() -> None:
    found = document_from_object(
        graph(a={}, b={"requires": ["a"], "when": "any-failed"}, c={"requires": [{"label": "a", "optional": True}]})
    )
    rows = {row.label: row.condition for row in plan(found).rows}
    assert rows == {"a": "", "b": "any-failed", "c": "1 optional"}
    table = {row["label"]: row for row in to_json(plan(found))["table"]}
    assert (table["b"]["when"], table["c"]["optional"], "when" in table["a"]) == ("any-failed", 1, False)
    assert "n0 -->|any-failed| n1" in to_mermaid(found)
    assert "n0 -.-> n2" in to_mermaid(found)
    assert 'n0 -> n1 [label="any-failed"];' in to_dot(found)
    assert "n0 -> n2 [style=dashed];" in to_dot(found)


# --- Python


def test_python_makes_the_same_documents() -> None:
    made = Graph(failure_policy="continue")
    a, lint = made.task("a", command=["true"]), made.task("lint", command=["true"])
    made.task("b", requires=[a], optional=lint, when="any-failed", command=["true"])
    obj = made.to_dict()
    assert obj["failurePolicy"] == "continue"
    assert obj["tasks"]["b"]["requires"] == ["a", {"label": "lint", "optional": True}]
    assert obj["tasks"]["b"]["when"] == "any-failed"
    document = made.validate()
    assert Graph.from_document(document).to_dict() == obj
    assert made["b"].optional == frozenset({"lint"})
    task = Task("t", requires="x")
    task.after("x", "y", optional=True)
    assert (task.requires, task.optional) == (("x", "y"), frozenset({"y"}))
    assert "failurePolicy" not in Graph().to_dict()


async def test_python_runs_a_graph_to_its_end_and_reruns_with_consent_what_has_run_after(tmp_path: Any) -> None:
    made = Graph(failure_policy="continue")
    a = made.task("a", call="fail")
    made.task("b", requires=[a], command=["true"])
    made.task("c", requires=[a], when="any-failed", command=["true"])

    def fail() -> None:
        raise ValueError("no")

    async with Client(f"sqlite:///{tmp_path}/g.db") as client:
        status = await client.run(made, "g", callables={"fail": fail})
        assert (status.state, status.failed_tasks) == ("finished", 1)
        assert dict(status.counts) == {"completed": 1, "failed": 1, "skipped": 1}
        with pytest.raises(Refused, match="“c” ran after “a”, and would have to run again; say --downstream"):
            await client.rerun("g", failed=True)
        assert await client.rerun("g", failed=True, downstream=True) == ["a", "b", "c"]
