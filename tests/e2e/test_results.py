"""Parameters and results as people use them: real commands, on a file and on the emulator."""

import json
import os
import secrets
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taskgraph import Client, Graph
from tests.e2e.processes import command, started, taskgraph, until, write_graph

ADD = "import os, sys; open(os.environ['TASKGRAPH_RESULT_FILE'], 'w').write('{\"n\":%d}' % sum(map(int, sys.argv[1:])))"


def add(*numbers: Any, requires: tuple[str, ...] = ()) -> dict[str, Any]:
    """A task that hands the sum of its arguments on."""
    argv = [sys.executable, "-S", "-c", ADD, *numbers]
    return {"requires": list(requires), "task": {"payload": {"command": argv}}}


def n(label: str) -> dict[str, str]:
    return {"$result": label, "path": "/n"}


def sums(folder: Path, **more: Any) -> str:
    tasks = {
        "a": add({"$param": "start"}, "2"),
        "b": add(n("a"), n("a"), requires=("a",)),
        "c": add(n("a"), n("b"), requires=("b",)),
        "d": command("echo", "sum:", n("c"), {"$result": "b"}, requires=("c",)),  # type: ignore[arg-type]
    }
    params = {"start": {"type": "integer"}}
    (folder / "sums.json").write_text(json.dumps({"params": params, "tasks": {**tasks, **more}}))
    return str(folder / "sums.json")


@pytest.fixture(params=["embedded", pytest.param("azurite", marks=[pytest.mark.azurite, pytest.mark.campaign])])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, dict[str, str]]]:
    """Where graphs live, and more of the environment."""
    if request.param == "embedded":
        yield f"sqlite:///{tmp_path}/store.db", {}
    else:
        yield request.getfixturevalue("azurite"), {"TASKGRAPH_PREFIX": f"t{secrets.token_hex(6)}"}


def test_a_chain_of_commands_hands_results_on(store: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    where, more = store

    def tg(*words: str, code: int = 0) -> Any:
        done = taskgraph(*words, store=where, cwd=tmp_path, **more)
        assert done.returncode == code, f"{words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    file = sums(tmp_path)
    with started("serve", "--worker", "2", store=where, cwd=tmp_path, **more):
        tg("submit", file, "--id", "g", "--param", "start=40", "--wait", "--timeout", "60")
    assert tg("logs", "g", "d").stdout == 'sum: 126 {"n":84}\n'
    assert json.loads(tg("results", "g").stdout) == {"a": {"n": 42}, "b": {"n": 84}, "c": {"n": 126}}
    if more:
        return
    assert json.loads(tg("results", "g", "c", "--json").stdout) == {"n": 126}
    assert "completed without a result" in tg("results", "g", "d", code=3).stderr
    assert json.loads(tg("show", "g", "--json").stdout)["params"] == {"start": 40}
    assert "hands on" in tg("task", "g", "b").stdout
    assert "different content" in tg("submit", file, "--id", "g", "--param", "start=41", code=4).stderr
    assert "--param start=VALUE" in tg("run", file, "--id", "h", code=2).stderr
    assert tg("show", "h", code=3).stdout == "", "nothing was written"
    tg("doctor", "g")


@pytest.mark.campaign
def test_results_outlive_a_process_that_is_killed(tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path}/store.db"
    slow = 'echo "$TASKGRAPH_RUN_ID $N" >> record; [ "$TASKGRAPH_RUN_ID" -gt 0 ] || sleep 60'
    waits = {"requires": ["c"], "task": {"payload": {"command": ["sh", "-c", slow], "env": {"N": n("c")}}}}
    file = sums(tmp_path, slow=waits, last=add(n("c"), "1", requires=("slow",)))
    words = ("run", file, "--id", "g", "--param", "start=0", "--slots", "2")
    record = tmp_path / "record"
    with started(*words, store=where, cwd=tmp_path) as child:
        until(record.exists, what="the slow task begins")
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert "--id g --param start=0" in (tmp_path / "run.log").read_text(), "how to go on is said with the values"
    done = taskgraph(*words, store=where, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert record.read_text() == "0 6\n1 6\n", "the next run was given the same"
    assert json.loads(taskgraph("results", "g", "last", store=where, cwd=tmp_path).stdout) == {"n": 7}


def test_an_extension_takes_values_and_results_of_its_graph(tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path}/store.db"
    waits = command("sh", "-c", "until [ -e extended ]; do sleep 0.05; done", requires=("a",))
    file = sums(tmp_path, waits=waits)
    more = tmp_path / "more.json"
    more.write_text(json.dumps({"tasks": {"x": add({"$param": "start"}, n("a"), requires=("a",))}}))
    with started("run", file, "--id", "g", "--param", "start=5", "--slots", "2", store=where, cwd=tmp_path) as child:
        until(
            lambda: taskgraph("results", "g", "a", store=where, cwd=tmp_path).returncode == 0, what="the first result"
        )
        extended = taskgraph("extend", "g", str(more), store=where, cwd=tmp_path)
        assert extended.returncode == 0, extended.stderr
        wrong = taskgraph("extend", "g", str(more), "--param", "strat=5", store=where, cwd=tmp_path)
        assert wrong.returncode == 2
        assert "Did you mean “start”?" in wrong.stderr
        (tmp_path / "extended").touch()
        assert child.wait(timeout=60) == 0
    assert json.loads(taskgraph("results", "g", "x", store=where, cwd=tmp_path).stdout) == {"n": 12}


def test_functions_hand_their_values_on(tmp_path: Path) -> None:
    graph = Graph(params={"names": {"type": "array", "default": []}})
    hello = graph.task("hello", call="hello", arguments={"names": {"$param": "names"}})
    graph.task("loud", call="loud", requires=hello, arguments={"text": hello.result("/text")})

    def greet(names: list[str]) -> dict[str, str]:
        return {"text": f"hello {' and '.join(names)}"}

    with Client.sync(f"sqlite:///{tmp_path}/store.db") as client:
        callables = {"hello": greet, "loud": str.upper, "unused": os.getpid}
        callables["loud"] = lambda text: text.upper()
        status = client.run(graph, "g", callables=callables, params={"names": ["you", "me"]})
        assert status.state == "finished"
        assert status.params == {"names": ["you", "me"]}
        assert client.results("g") == {"hello": {"text": "hello you and me"}, "loud": "HELLO YOU AND ME"}
        assert client.result("g", "loud") == "HELLO YOU AND ME"


def test_a_document_without_parameters_takes_none(tmp_path: Path) -> None:
    file = write_graph(tmp_path / "plain.json", {"a": command("true")})
    done = taskgraph("plan", str(file), "--param", "x=1", store=f"sqlite:///{tmp_path}/store.db", cwd=tmp_path)
    assert done.returncode == 2
    assert "“x” is given, and is not a parameter of this graph" in done.stderr
