"""Which graphs `taskgraph list` and `client.graphs` show: by name, tag, time and state, a paused one among them."""

import asyncio
import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from taskgraph import Client
from taskgraph.interfaces.cli import app as commands
from taskgraph.interfaces.loops import serve
from taskgraph.model.clock import SystemClock
from taskgraph.model.flag import Flag
from taskgraph.model.states import state_in_words
from tests.http.typed import both_doors

pytestmark = both_doors


class Shell:
    """Commands over a store with three graphs, of which `nap` is paused."""

    def __init__(self, folder: Path) -> None:
        self.store = f"sqlite:///{folder}/store.db"
        for graph_id, name, tags in (
            ("one", "Night build", {"team": "data", "kind": "test"}),
            ("two", "day build", {"team": "web"}),
            ("nap", "[odd] night", {}),
        ):
            file = folder / f"{graph_id}.json"
            file.write_text(json.dumps({"metadata": {"name": name}, "tags": tags, "tasks": {"a": {"task": {}}}}))
            assert self.run("submit", str(file), "--id", graph_id).exit_code == 0
        asyncio.run(self._pause_and_cancel())

    async def _pause_and_cancel(self) -> None:
        async with Client(self.store) as client:
            stop = Flag()
            serving = asyncio.create_task(serve(client.app, stop))
            await client.pause("nap", wait=True)
            await client.cancel("two")
            await client.wait("two", timeout_seconds=30)
            stop.set()
            await serving

    def run(self, *words: str) -> Any:
        return CliRunner().invoke(commands, [*words, "--store", self.store])

    def listed(self, *words: str) -> list[str]:
        found = self.run("list", *words, "--json")
        assert found.exit_code == 0, found.output
        return [each["graphId"] for each in json.loads(found.stdout)["graphs"]]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_a_list_is_filtered_by_name_tag_time_and_state(shell: Shell) -> None:
    assert shell.listed("--name", "NIGHT") == ["nap", "one"]
    assert shell.listed("--name", "night*") == ["one"], "a pattern is of the whole name"
    assert shell.listed("--name", "[odd]*") == ["nap"], "brackets are no pattern"
    assert shell.listed("--tag", "team") == ["two", "one"]
    assert shell.listed("--tag", "team=data", "--tag", "kind") == ["one"]
    assert shell.listed("--tag", "team=data", "--tag", "kind=") == []
    assert shell.listed("--state", "paused") == ["nap"]
    assert shell.listed("--state", "running") == ["nap", "one"], "as stored"
    assert shell.listed("--since", "1h") == ["nap", "two", "one"]
    assert shell.listed("--until", "1h") == []
    assert shell.listed("--since", "2999-01-01T00:00:00Z") == []
    assert "there are no graphs that fit in" in shell.run("list", "--tag", "none").stderr


@pytest.mark.parametrize("words", [("--since", "yesterday"), ("--until", "3"), ("--state", "asleep")])
def test_a_filter_that_means_nothing_is_refused(shell: Shell, words: tuple[str, str]) -> None:
    found = shell.run("list", *words)
    assert found.exit_code == 2
    assert f"{words[0]} “{words[1]}”" in found.stderr


def test_a_list_says_how_long_a_graph_took_to_its_end(shell: Shell) -> None:
    found = {each["graphId"]: each for each in json.loads(shell.run("list", "--json").stdout)["graphs"]}
    assert (found["one"]["ended"], found["one"]["seconds"]) == (None, None)
    assert found["two"]["state"] == "cancelled"
    assert found["two"]["ended"]
    assert found["two"]["seconds"] > 0
    assert found["one"]["tags"] == {"team": "data", "kind": "test"}
    assert "AGE  TOOK" in shell.run("list").stdout
    assert [found[each]["unresolved"] for each in ("one", "two")] == [1, None], "of live graphs and finished ones"
    shown = {line.split()[0]: line.split() for line in shell.run("list").stdout.splitlines()}
    assert "0/1" in shown["one"]
    assert "?/1" in shown["two"]


def test_the_client_filters_as_the_command_does(shell: Shell) -> None:
    with Client.sync(shell.store) as client:
        now = SystemClock().now()
        assert [each.graph_id for each in client.graphs(state="paused")] == ["nap"]
        assert [each.graph_id for each in client.graphs(name="night", tags={"team": None})] == ["one"]
        (one,) = [each for each in client.graphs() if each.graph_id == "one"]
        assert [each.graph_id for each in client.graphs(until=one.created)] == ["one"]
        assert client.graphs(since=now + timedelta(hours=1)) == []


def test_a_paused_graph_is_called_paused_wherever_people_look(shell: Shell) -> None:
    lines = {line.split()[0]: line for line in shell.run("list").stdout.splitlines()}
    assert "‖ paused" in lines["nap"]
    assert "running" not in lines["nap"]
    assert "running" in lines["one"]
    assert re.search(r"^state +‖ paused$", shell.run("status", "nap").stdout, re.MULTILINE)
    assert "held back: the graph is paused" in shell.run("show", "nap").stdout
    assert re.search(r"^‖ paused +nap", shell.run("top", "--once").stdout, re.MULTILINE)
    assert "2 live graphs, 1 paused" in shell.run("top", "--once").stdout
    watched = shell.run("watch", "nap", "--timeout", "1").stderr
    assert re.search(r" s  paused: 0/1 completed", watched)
    assert "graph nap is paused after 1 s" in watched


def test_programs_read_the_state_that_is_stored(shell: Shell) -> None:
    status = json.loads(shell.run("status", "nap", "--json").stdout)
    assert (status["state"], status["held"]) == ("running", ["paused"])
    (listed,) = json.loads(shell.run("list", "--state", "paused", "--json").stdout)["graphs"]
    assert (listed["state"], listed["held"]) == ("running", ["paused"])


@pytest.mark.parametrize(
    ("state", "held", "words"),
    [
        ("running", ("paused",), "paused"),
        ("running", ("group:paused",), "running"),
        ("blocked", ("paused",), "blocked"),
        ("finished", ("paused",), "finished"),
    ],
)
def test_only_a_running_graph_is_called_paused(state: str, held: tuple[str, ...], words: str) -> None:
    assert state_in_words(state, held) == words
