"""Every command that has `--json` answers by its schema, on a graph that has everything; and the schemas are strict."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
import typer
from typer.testing import CliRunner

from taskgraph import Client
from taskgraph.interfaces.cli import app as commands
from taskgraph.model import schemas
from taskgraph.worker.registration import Presence, Registration, WorkerDetails
from tests.http.typed import DIRECT, answering, typed_over_http

GRAPH: Final = {
    "failurePolicy": "continue",
    "maxInFlight": 3,
    "priority": "low",
    "routing": "nightly",
    "deadline": "2999-01-01T00:00:00Z",
    "stalledAfter": 600,
    "budget": {"amount": 5},
    "metadata": {"name": "all of it", "owner": "somewhere@example.com"},
    "tags": {"kind": "test"},
    "params": {"version": {"default": "1.4"}},
    "notify": {"onFailure": {"queue": "told"}},
    "groups": {"inner": {"tasks": ["b"], "maxInFlight": 1}, "outer": {"tasks": ["c", "inner"]}},
    "tasks": {
        "a": {"priority": "highest", "task": {"payload": {"command": ["echo", {"$param": "version"}]}}},
        "b": {"requires": ["a"], "reruns": 2, "retry": {"limit": 3}, "task": {"routing": "linux"}},
        "c": {"requires": ["a"], "active": False, "task": {"deadline": "2999-01-01T00:00:00Z"}},
        "bad": {"task": {"payload": {"command": ["false"]}}},
        "skipped": {"requires": ["bad"], "task": {}},
        "after": {"requires": ["bad"], "when": "any-failed", "task": {}},
        "any": {"requires": ["a", {"label": "bad", "optional": True}], "task": {}},
        "far": {"task": {"target": "gpu"}},
    },
}
SMALL: Final = {
    "groups": {"some": {"tasks": ["bad"]}},
    "tasks": {
        "one": {"task": {"payload": {"command": ["echo", "1"]}}},
        "bad": {"requires": ["one"], "task": {"payload": {"command": ["sh", "-c", "echo no; false"]}}},
    },
}
WORDS: Final[dict[str, tuple[str, ...]]] = {
    "list": (),
    "status": ("g",),
    "status --group": ("g", "--group", "outer"),
    "show": ("g",),
    "task": ("g", "b"),
    "why": ("g", "far"),
    "task --several": ("g", "a", "b"),
    "why --several": ("g", "far", "c"),
    "why --graph": ("g",),
    "results": ("ran",),
    "logs": ("ran", "one"),
    "logs --failed": ("ran", "--failed"),
    "events": ("g",),
    "rows": ("g",),
    "notices": ("g",),
    "files": ("ran",),
    "timeline": ("ran",),
    "cost": ("ran",),
    "cost --latest": (),
    "prices": (),
    "doctor": ("g",),
    "doctor --all": (),
    "top": ("--once",),
    "watch": ("g", "--timeout", "0"),
    "watch --ended": ("ended",),
    "workers": (),
    "workers drain": ("w",),
    "workers undrain": ("w",),
    "limit list": ("g",),
    "limit set": ("g", "4"),
    "limit clear": ("g",),
    "limit set --target": ("--target", "gpu", "4"),
    "limit list --targets": (),
    "limit clear --target": ("--target", "gpu"),
    "pause": ("g", "--group", "inner"),
    "resume": ("g", "--group", "inner"),
    "pause --target": ("--target", "gpu"),
    "resume --target": ("--target", "gpu"),
    "deactivate": ("g", "far"),
    "activate": ("g", "c"),
    "schedule create": ("nightly", "FILE", "--cron", "0 2 * * *"),
    "schedule update": ("nightly", "--cron", "0 3 * * *"),
    "schedule list": (),
    "schedule show": ("nightly",),
    "schedule deactivate": ("nightly",),
    "schedule activate": ("nightly",),
    "schedule deactivate --all": ("--all",),
    "schedule activate --all": ("--all",),
    "schedule run-now": ("nightly",),
    "schedule delete": ("nightly",),
    "submit": ("FILE", "--id", "again"),
    "resubmit": ("ended", "--id", "once-more"),
    "document": ("ended",),
    "extend": ("g", "MORE", "--no-wait"),
    "edit": ("g", "--task", "far", "--reruns", "1", "--no-wait"),
    "edit --plan": ("g", "--task", "far", "--reruns", "1", "--plan"),
    "change --plan": ("CHANGE", "g", "--plan"),
    "change": ("PLANS",),
    "rerun": ("ran", "bad"),
    "rerun --failed": ("ran", "--failed"),
    "cancel": ("g", "far"),
    "archive": ("g", "--output", "ARCHIVE"),
    "archive --ended": ("ended", "--output", "ENDED"),
    "delete --dry-run": ("--older-than", "0", "--dry-run"),
    "delete": ("ended",),
    "restore --plan": ("ENDED", "--plan"),
    "restore": ("ENDED",),
    "poison list": (),
    "poison replay": ("--all",),
    "token create": ("ci", "--role", "submitter", "--graphs", "nightly-*"),
    "token share": ("ran",),
    "token list": (),
    "token revoke": ("ci",),
    "report": ("ran", "--output", "REPORT"),
    "keygen": ("KEY",),
    "transfer": ("g", "--stay"),
    "init": ("BEGUN",),
    "validate": ("FILE",),
    "plan": ("FILE",),
    "rehearse": ("FILE", "--slots", "2", "--runs"),
    "rehearse --graph": ("g", "--seeds", "2"),
    "run": ("SMALL", "--id", "small"),
}
WITHOUT_JSON: Final = {"export", "import", "mcp"}
"""Commands that give what other programs read: in test_exports.py, test_importers.py, tests/http/test_mcp.py."""

ELSEWHERE: Final = {"functions list", "functions start", "grant", "web deploy"}
"""A grant and the page need a storage account, as below; the others a function app: tests/functions holds theirs
by the schema."""

UNSEEN: Final = {
    "changeApplied",
    "deployed",
    "event",
    "failureLine",
    "functions",
    "functionsLine",
    "grant",
    "look",
    "result",
}
"""Shapes that are not seen here: see ELSEWHERE, and what goes on for as long as somebody looks."""

FREE: Final = {
    *(
        "atLeast",
        "commands",
        "columns",
        "perHour",
        "runSeconds",
        "definition",
        "events",
        "facts",
        "graph",
        "groups",
        "metadata",
        "params",
    ),
    *("ends", "priorities", "stays"),
    *("resolution", "results", "rows", "running", "tags", "tasks", "updated"),
    *("change", "document", "one", "payload", "task"),
}
"""Where objects hold names that are not ours, or facts and rows: the last key on the way."""

UNKNOWN: Final[tuple[Any, ...]] = ("x", 1, [], {"before": None, "after": None})
"""Values as such objects hold them."""

OPTIONAL: Final = {"priority", "token", "type"}
"""Keys of closed objects that may be missing: in a plan; a token that is listed; an error may be a line, or all."""


def with_json(group: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command that has the option `--json`."""
    for name, command in group.commands.items():
        if any("--json" in parameter.opts for parameter in command.params):
            yield " ".join((*path, name))
        if hasattr(command, "commands"):
            yield from with_json(command, (*path, name))


def of_examples() -> dict[str, tuple[str, ...]]:
    """What is typed for commands that are not among WORDS: the first example of their help, of the graph `g`."""
    root: Any = typer.main.get_command(commands)
    found = {}
    for name in set(with_json(root)) - {each.partition(" --")[0] for each in WORDS} - ELSEWHERE:
        example = next(line for line in root.commands[name].epilog.splitlines() if "$ taskgraph" in line)
        found[name] = ("g", *example.split()[4:])
    return found


def test_every_command_with_json_is_run_here() -> None:
    root: Any = typer.main.get_command(commands)
    assert set(with_json(root)) == {each.partition(" --")[0] for each in (*of_examples(), *WORDS)} | ELSEWHERE


Answers = dict[str, list[Any]]


def schema_of(command: str) -> schemas.Validator:
    """The schema of a command's answers."""
    return schemas.validator("answers", "#" + command.partition(" --")[0].replace(" ", "-"))


def shapes_of(command: str) -> list[str]:
    """What the answers of a command may be, but for errors and for what has no name."""
    entry = schemas.schema("answers")["$defs"][f"taskgraph {command.partition(' --')[0]}"]
    shapes = [each["$ref"].rpartition("/")[2] for each in entry["anyOf"] if "$ref" in each]
    assert shapes.pop() == "error"
    return shapes


def commands_of_schema() -> list[str]:
    return [name[10:] for name in schemas.schema("answers")["$defs"] if name.startswith("taskgraph ")]


def is_shape(shape: str, answer: Any) -> bool:
    return schemas.validator("answers", f"#/$defs/{shape}").is_valid(answer)


async def register(store: str) -> None:
    """Let there be a worker, which does nothing."""
    member: Any = SimpleNamespace(name="w", presence=lambda: Presence(1, (("g", "b"),)))
    async with Client(store) as client:
        details = WorkerDetails(["default"], ["ssd"], ["command"], "here", 2, "0.3.0", 1)
        await Registration(client.app.tables, client.app.clock, member, details).beat()


@pytest.fixture(scope="module", params=["embedded", "http"])
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What every command answers, one after the other: over a store, and over a server in front of one."""
    with typed_over_http() if request.param == "http" else nullcontext():
        return answered(tmp_path_factory)


def answered(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    folder: Path = tmp_path_factory.mktemp("answers")
    documents = {"FILE": GRAPH, "MORE": {"tasks": {"more": {"requires": ["a"], "task": {}}}}, "SMALL": SMALL}
    documents["CHANGE"] = {"change": "prioritize", "priority": "low"}
    documents["DONE"] = {"tasks": {"one": {"task": {"payload": {"command": ["true"]}}}}}
    made = {
        name: str(folder / f"{name.lower()}.json")
        for name in (*documents, "ARCHIVE", "ENDED", "KEY", "PLANS", "REPORT")
    }
    made["BEGUN"] = str(folder / "begun.yaml")
    for name, document in documents.items():
        Path(made[name]).write_text(json.dumps(document))
    store = f"sqlite:///{folder}/store.db"
    run = CliRunner().invoke
    assert run(commands, ["submit", made["FILE"], "--id", "g", "--store", store]).exit_code == 0
    assert run(commands, ["run", made["SMALL"], "--id", "ran", "--all", "--store", store]).exit_code == 1
    assert run(commands, ["run", made["DONE"], "--id", "ended", "--store", store]).exit_code == 0
    asyncio.run(register(store))
    found: Answers = {}
    for name, words in {**of_examples(), **WORDS}.items():
        typed = [*name.partition(" --")[0].split(), *(made.get(word, word) for word in words), "--json"]
        typed += [] if name in ("init", "validate", "plan", "keygen") else ["--store", store]
        done = run(commands, typed)
        by_line = name.startswith(("watch", "logs --failed")) or name.endswith("--several")
        lines = done.stdout.splitlines() if by_line else [done.stdout]
        try:
            found[name] = [json.loads(line, parse_constant=pytest.fail) for line in lines]
        except ValueError:
            pytest.fail(f"{name}: {done.stdout[:200]} {done.stderr[:300]}")
        if name == "change --plan":
            Path(made["PLANS"]).write_text(done.stdout)
        assert done.exit_code in ((124,) if name == "watch" else (0, 1)), (name, done.stdout, done.stderr)
    return found


def test_every_answer_obeys_the_schema_of_its_command(answers: Answers) -> None:
    for name, told in answers.items():
        assert told, name
        for each in told:
            errors = [error.message[:300] for error in schema_of(name).iter_errors(each)]
            assert errors == [], (name, each)
            assert (name == "watch") or not is_shape("error", each), (name, each)


def test_every_shape_is_seen(answers: Answers) -> None:
    wanted = {shape for name in commands_of_schema() for shape in shapes_of(name)}
    seen = {
        shape for name, told in answers.items() for each in told for shape in shapes_of(name) if is_shape(shape, each)
    }
    assert wanted - seen == UNSEEN


def objects_in(value: Any, last: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects in an answer, of each list the first, with the key that leads there."""
    if isinstance(value, dict):
        yield last, value
        for key, inner in value.items():
            yield from objects_in(inner, key)
    elif isinstance(value, list) and value:
        yield from objects_in(value[0], last)


def test_a_key_more_or_less_is_noticed(answers: Answers) -> None:
    free, optional = set(), set()
    for name, (*_, answer) in answers.items():
        valid = schema_of(name).is_valid
        for last, held in objects_in(answer):
            takes = False
            for value in UNKNOWN:
                held["unknown"] = value
                takes = takes or valid(answer)
            del held["unknown"]
            if takes:
                free.add(last or name)
                continue
            for key in list(held):
                kept = held.pop(key)
                if valid(answer):
                    optional.add(key)
                held[key] = kept
    assert free == FREE
    assert optional == OPTIONAL


def leaves(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command, with its path."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def test_over_http_a_command_answers_or_says_that_it_takes_the_store(tmp_path: Path) -> None:
    """What `answers` runs, answers; a new command comes into one of the tables."""
    found = dict(leaves(typer.main.get_command(commands)))
    run_here = {each.partition(" --")[0] for each in (*of_examples(), *WORDS)}
    assert set(found) - run_here == {"serve", "ui", "worker", *WITHOUT_JSON, *ELSEWHERE}
    file, folder = tmp_path / "graph.json", str(tmp_path)
    file.write_text(json.dumps(SMALL))
    with answering(f"sqlite:///{tmp_path}/store.db") as address:
        for name, cannot in DIRECT.items():
            words = [str(file) if word == "SMALL" else word for word in WORDS.get(name, ())]
            done = CliRunner().invoke(commands, [*name.split(), *words, "--store", address], env={"HOME": folder})
            assert done.exit_code == 2, (name, done.stdout, done.stderr)
            assert f"error: {cannot} cannot be done over HTTP ({address}/v1): " in done.stderr, name


def test_every_command_with_json_has_a_schema_whose_examples_obey_it() -> None:
    assert sorted(commands_of_schema()) == sorted(with_json(typer.main.get_command(commands)))
    for name in commands_of_schema():
        entry = schemas.schema("answers")["$defs"][f"taskgraph {name}"]
        assert entry["$anchor"] == name.replace(" ", "-")
        assert [name for each in entry["examples"] if not schema_of(name).is_valid(each)] == []


@pytest.mark.azurite
def test_a_grant_obeys_its_schema(azurite: str, tmp_path: Path) -> None:
    file = tmp_path / "done.json"
    file.write_text(json.dumps({"tasks": {"one": {"task": {}}}}))
    run = CliRunner().invoke
    graph_id = f"answers-{uuid.uuid4().hex}"
    assert run(commands, ["submit", str(file), "--id", graph_id, "--store", azurite]).exit_code == 0
    done = run(commands, ["grant", graph_id, "--read", "--json", "--store", azurite])
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert [e.message for e in schemas.validator("answers", "#/$defs/grant").iter_errors(told)] == []
    for key in told:
        assert not is_shape("grant", {name: value for name, value in told.items() if name != key}), key
