"""The document of a stored graph: the one that was submitted, or one of the same meaning; and the same once more."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from taskgraph.documents.canonical import content_hash, document_object, written_object
from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import Given, document_from_object
from taskgraph.interfaces.cli import app as commands
from taskgraph.model.errors import NotFound
from taskgraph.queries.document import stored_document
from taskgraph.storage.tables import Merge
from tests.http.typed import both_doors
from tests.scenarios.stage import Stage, extension
from tests.scenarios.test_answers import GRAPH

LONG: Final = "x" * 40_000
REST: Final[dict[str, Any]] = {
    "params": {"size": {"type": "integer"}},
    "onStalled": "cancel",
    "stalledAfter": 90.5,
    "groups": {"all": {"tasks": ["mid"]}, "mid": {"tasks": ["in", "b"]}},
    "tasks": {
        "b": {"task": {"payload": {"seconds": {"$param": "size"}}}, "notBefore": "2999-01-01T00:00:00Z"},
        "in": {"task": {"payload": {"command": ["echo", LONG]}}, "retry": {"limit": 1, "exitCodes": [7]}},
        "on the group": {"requires": ["mid"], "maxRunTime": 5, "pendingTimeout": 60, "priority": "low", "task": {}},
        "a": {
            "requires": ["b"],
            "notify": {"onFailure": [{"queue": "one"}, {"webhook": "https://example.com/", "secret": "mine"}]},
            "task": {"payload": {"id": {"$subs": "taskId:b"}, "of": [{"$result": "b", "path": "/x", "default": 1}]}},
        },
    },
}
WIDE: Final = {
    "tasks": {**{f"t{n}": {"task": {}} for n in range(300)}, "z": {"requires": [f"t{n}" for n in range(300)]}}
}


def read(obj: Mapping[str, Any], **params: Any) -> GraphDocument:
    return document_from_object(copy.deepcopy(obj), given=Given(params))


@pytest.mark.parametrize(
    "document", [read(GRAPH), read(REST, size=3), read(WIDE)], ids=["everything", "the rest", "wide"]
)
async def test_it_is_what_was_submitted(memory: Stage, document: GraphDocument) -> None:
    await memory.submit(document)
    found = await stored_document(memory.queries, memory.graph_id)
    made = document_object(found.document)
    assert found.same, (made, document_object(document))
    assert content_hash(document_from_object(made)) == content_hash(document)
    assert list(found.document.tasks) == list(document.tasks)
    assert document_from_object(written_object(found.document)) == document_from_object(made) or document.params
    assert content_hash(document_from_object(written_object(found.document))) == content_hash(document)
    assert found.document.written == document.written


async def test_files_that_are_taken_are_named_by_labels_again(memory: Stage) -> None:
    taken = {"$file": "a", "path": "out.txt"}
    made = {"task": {"payload": {"command": ["true"], "outputs": ["out.txt"]}}}
    takes = {"requires": ["a"], "task": {"payload": {"command": ["cat", taken]}}}
    await memory.submit(read({"tasks": {"a": made, "b": takes}}))
    found = await stored_document(memory.queries, memory.graph_id)
    assert found.same
    assert document_object(found.document)["tasks"]["b"]["task"]["payload"]["command"] == ["cat", taken]
    read(document_object(found.document))


async def test_what_was_released_since_is_held_again(memory: Stage) -> None:
    await memory.submit(read({"tasks": {"gate": {"active": False, "task": {}}, "b": {"requires": ["gate"]}}}))
    row = await memory.row("gate")
    await memory.tables.commit(memory.graph_id, [Merge(row.key, row.etag, {"held": "[]", "priority": "high"})])
    found = await stored_document(memory.queries, memory.graph_id)
    assert found.same
    assert not found.document.tasks["gate"].active


async def test_added_tasks_are_in_it_and_requirements_of_groups_stand_on_their_tasks(memory: Stage) -> None:
    document = read({"groups": {"first": {"tasks": ["a"]}, "then": {"tasks": ["b", "c"], "requires": ["first"]}},
                     "tasks": {"a": {}, "b": {}, "c": {}}})  # fmt: skip
    await memory.submit(document)
    await memory.extend(extension({"d": ["a"]}))
    found = await stored_document(memory.queries, memory.graph_id)
    assert not found.same
    requires = {label: node.requires for label, node in found.document.tasks.items()}
    assert requires == {"a": (), "b": ("a",), "c": ("a",), "d": ("a",)}
    assert read(document_object(found.document)).tasks.keys() == {"a", "b", "c", "d"}


async def test_there_is_none_of_a_graph_that_is_not_there(memory: Stage) -> None:
    with pytest.raises(NotFound):
        await stored_document(memory.queries, "nothing")


@both_doors
def test_a_graph_is_submitted_again_by_the_command_line(tmp_path: Path) -> None:
    path, store = tmp_path / "g.json", ("--store", f"sqlite:///{tmp_path}/store.db")
    path.write_text(json.dumps(REST))
    run = CliRunner().invoke
    done = run(commands, ["submit", str(path), "--id", "first", "--param", "size=3", *store])
    assert done.exit_code == 0, done.stderr
    again = run(commands, ["resubmit", "first", "--id", "second", "--priority", "high", *store])
    assert (again.exit_code, again.stdout) == (0, "second\n"), again.stderr
    texts = [run(commands, ["document", each, *store]).stdout for each in ("first", "second")]
    documents = [json.loads(text) for text in texts]
    assert documents[1].pop("priority") == "high"
    assert documents[0] == documents[1]
    other = run(commands, ["resubmit", "first", "--id", "third", "--param", "size=4", *store])
    assert other.exit_code == 0, other.stderr
    third = json.loads(run(commands, ["document", "third", *store]).stdout)
    assert third["params"] == {"size": {"type": "integer", "default": 4}}
    assert third["tasks"]["b"]["task"]["payload"] == {"seconds": {"$param": "size"}}
    shown = json.loads(run(commands, ["task", "third", "b", "--json", *store]).stdout)
    assert shown["definition"]["payload"] == {"seconds": 4}
    for wrong, code in (("size=x", 2), ("sise=4", 2)):
        assert run(commands, ["resubmit", "first", "--param", wrong, *store]).exit_code == code
    path.write_text(texts[0])
    assert run(commands, ["submit", str(path), "--id", "first", *store]).exit_code == 0  # the same content
    assert run(commands, ["resubmit", "nothing", *store]).exit_code == 3


@both_doors
def test_parameters_without_places_keep_their_values(tmp_path: Path) -> None:
    path, store = tmp_path / "g.json", ("--store", f"sqlite:///{tmp_path}/store.db")
    path.write_text(json.dumps({"params": {"size": {"default": 1}}, "tasks": {"a": {}}}))
    assert CliRunner().invoke(commands, ["submit", str(path), "--id", "first", *store]).exit_code == 0
    done = CliRunner().invoke(commands, ["resubmit", "first", "--param", "size=2", *store])
    assert done.exit_code == 2
    assert "says where its parameters stand" in done.stderr


@both_doors
def test_what_differs_is_said_of_an_id_that_is_taken(tmp_path: Path) -> None:
    path, store = tmp_path / "g.json", ("--store", f"sqlite:///{tmp_path}/store.db")
    grouped = {"first": {"tasks": ["a"]}, "then": {"tasks": ["b", "c"], "requires": ["first"]}}
    tasks: dict[str, Any] = {"a": {}, "b": {}, "c": {}}
    path.write_text(json.dumps({"groups": grouped, "tasks": tasks}))
    submit = ("submit", str(path), "--id", "first", *store)
    assert CliRunner().invoke(commands, submit).exit_code == 0
    del tasks["a"]
    tasks |= {"c": {"reruns": 2}, "new": {}}
    path.write_text(json.dumps({"tags": {"x": "y"}, "groups": {"then": {"tasks": ["b", "c"]}}, "tasks": tasks}))
    done = CliRunner().invoke(commands, submit)
    assert done.exit_code == 4
    said = " ".join(done.stderr.split())
    assert "It differs in: “tags”, “reruns” of task “c”, task “new” is new, task “a” is missing" in said
    assert "group “first”" in said


@both_doors
def test_a_deadline_that_has_passed_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path, store = tmp_path / "g.json", ("--store", f"sqlite:///{tmp_path}/store.db")
    path.write_text(json.dumps({"deadline": "2020-01-01T00:00:00Z", "tasks": {"a": {}}}))
    assert CliRunner().invoke(commands, ["submit", str(path), "--id", "late", *store]).exit_code == 0
    done = CliRunner().invoke(commands, ["resubmit", "late", *store])
    assert done.exit_code == 2
    assert "has passed" in done.stderr
    assert "taskgraph document late > graph.json" in done.stderr
