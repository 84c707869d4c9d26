"""The commands `functions start` and `functions list` as far as no worker is needed: refusals, and words for events."""

import ast
import inspect
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from taskgraph.interfaces.cli import app as command_line
from taskgraph.interfaces.cli.common import Session
from taskgraph.interfaces.cli.output import Output
from taskgraph.model import schemas
from taskgraph_functions_host import command
from taskgraph_functions_host import host as hosting
from tests.functions.hosting import write_app

ABOUT: Final = {"queue": "q", "messageId": "m1", "dequeueCount": 5, "message": "why"}
CALL: Final = {"function": "f", "invocation": "i1", "reason": "message m1 of q, time 1"}
FUNCTION: Final = {"name": "f", "trigger": "queueTrigger", "queue": "q", "connection": "C", "refused": None}
WEB: Final = {"name": "w", "trigger": "httpTrigger", "refused": "httpTrigger: only …"}
EVENTS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "ready": (
        {"functions": [FUNCTION, WEB], "worker": "1.3.0", "python": "3.11", "pid": 7, "batchSize": 16},
        "worker library 1.3.0 on Python 3.11, process 7; 16 messages at a time; store the emulator",
    ),
    "executing": (CALL, "executing f: message m1 of q, time 1 (i1)"),
    "executed": (
        {**CALL, "seconds": "0.010", "succeeded": False, "error": "ValueError", "message": "no", "stack": "line 1"},
        "failed f after 0.010 s: message m1 of q, time 1: ValueError: no",
    ),
    "set-aside": ({**ABOUT, "poisonQueue": "q-poison"}, "message m1 of q is in q-poison: why"),
    "not-set-aside": (ABOUT, "message m1 of q: not-set-aside: why"),
    "not-deleted": (ABOUT, "message m1 of q: not-deleted: why"),
    "not-offered": (ABOUT, "message m1 of q: not-offered: why"),
    "lock-lost": (ABOUT, "message m1 of q: lock-lost: why"),
    "lock-trouble": (ABOUT, "message m1 of q: lock-trouble: why"),
    "log": ({"function": "f", "category": "root", "logLevel": "Warning", "message": "hm"}, "f: warning: hm"),
    "worker-died": (
        {"pid": 7, "how": "was ended by signal 9", "restartSeconds": 0.5},
        "the worker process 7 was ended by signal 9: what it had in hand is offered again; the next one starts in 0.5",
    ),
    "worker-not-started": ({"message": "it ended", "restartSeconds": 2}, "it ended; the next one starts in 2 s"),
    "worker-started": ({"pid": 8}, "the worker process 8 has taken over"),
    "no-retries": ({"function": "f", "retries": 3}, "f asks for 3 retries, which this host does not make"),
    "past-due": ({"function": "f", "due": "noon"}, "f was due at noon, and has run now"),
    "stopping": ({"inHand": 2}, "no more messages are fetched; 2 calls in hand"),
    "cut-short": ({"inHand": 1, "graceSeconds": 30}, "1 call took longer than 30 s, and were ended"),
    "stopped": ({"succeeded": 1_000, "failed": 1}, "stopped; 1,000 calls succeeded, 1 failed"),
    "queue-trouble": ({"queue": "q", "message": "down"}, "q cannot be polled, and is tried again: down"),
    "queue-answers": ({"queue": "q"}, "q answers again"),
}


def told(kind: str, about: dict[str, Any], *, as_json: bool = False, verbose: int = 0) -> tuple[str, str]:
    """What an event leaves on the two streams."""
    out, err = io.StringIO(), io.StringIO()
    session = Session(output=Output(out, err, {}), verbose=verbose)
    session.output.json = as_json
    made = SimpleNamespace(settings=SimpleNamespace(store=SimpleNamespace(display="the emulator")))
    command.Reporter(session, made).report("debug" if kind == "executing" else "error", kind, about)
    return out.getvalue(), err.getvalue()


def test_every_event_has_its_place_in_the_schema() -> None:
    line = schemas.schema("answers")["$defs"]["functionsLine"]
    assert set(EVENTS) == set(line["properties"]["type"]["enum"])
    assert set(EVENTS) == {kind for each in line["allOf"] for kind in each["if"]["properties"]["type"]["enum"]}


def test_every_event_of_the_host_is_here() -> None:
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(hosting))) if isinstance(node, ast.Call)]
    reports = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "report"]
    assert {ast.literal_eval(call.args[1]) for call in reports} == set(EVENTS)


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_has_words_for_people(kind: str) -> None:
    about, words = EVENTS[kind]
    out, err = told(kind, about, verbose=1)
    assert words in err.splitlines()[0]
    assert ("line 1" in err) == ("stack" in about)
    assert ("FUNCTION" in out) == (kind == "ready")


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_is_one_line_for_a_machine(kind: str) -> None:
    about, _ = EVENTS[kind]
    out, err = told(kind, about, as_json=True)
    assert err == ""
    if kind == "executing":
        assert out == "", "calls that succeed are many, and told with --verbose alone"
        return
    assert json.loads(out) == {"type": kind, "level": "error", **about} if "stack" not in about else "stack" not in out


def test_functions_that_are_not_run_are_in_the_table() -> None:
    out, _ = told("ready", EVENTS["ready"][0])
    assert out.splitlines()[1].split() == ["f", "queueTrigger", "q", "C"]
    assert "not run here: httpTrigger: only …" in out.splitlines()[2]


def test_long_words_are_cut_unless_all_is_wanted() -> None:
    about = {"function": "f", "category": "root", "logLevel": "Error", "message": "x" * 1_000}
    assert len(told("log", about)[1]) < 350
    assert len(told("log", about, verbose=1)[1]) > 1_000


# --- refusals --------------------------------------------------------------------------------------------------


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(command_line, ["functions", *words])
    return done.exit_code, done.output


def test_a_store_in_a_file_is_refused_with_the_way_out(tmp_path: Path) -> None:
    code, said = run("start", "--store", f"sqlite:///{tmp_path}/store.db", "--environment", str(tmp_path / "none"))
    assert code == 2
    assert "taskgraph serve" in said
    assert not (tmp_path / "store.db").exists()
    assert not (tmp_path / "none").exists(), "nothing is installed for nothing"


@pytest.mark.parametrize("missing", ["function_app.py", "host.json"])
def test_a_folder_that_is_no_app_is_refused(missing: str, tmp_path: Path) -> None:
    app = write_app(tmp_path / "app", "")
    (app / missing).unlink()
    code, said = run("list", "--app", str(app), "--environment", str(tmp_path / "none"))
    assert code == 2
    assert missing in said
    assert not (tmp_path / "none").exists()


def test_without_the_host_the_command_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("taskgraph_functions_host", "taskgraph_functions_host.command"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if not place.endswith("functions_host")])
    code, said = run("list")
    assert code == 2
    assert "pip install 'taskgraph-scheduler[functions-host]'" in " ".join(said.split())
