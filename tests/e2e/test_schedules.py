"""Schedules by real processes: made on the command line, fired by two `serve`, stopped, looked at, deleted."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskgraph import Client
from tests.e2e.processes import command, started, taskgraph, until, write_graph


@pytest.mark.parametrize("kind", ["embedded", pytest.param("azurite", marks=[pytest.mark.azurite, pytest.mark.slow])])
def test_serve_fires_every_few_seconds_each_time_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(write_graph(tmp_path / "graph.json", {"say": command("sh", "-c", "echo $TASKGRAPH_GRAPH_ID")}))
    store = f"sqlite:///{tmp_path}/store.db" if kind == "embedded" else request.getfixturevalue("azurite")
    more = {"TASKGRAPH_PREFIX": f"t{abs(hash(str(tmp_path))) % 10**9}"}
    monkeypatch.setenv("TASKGRAPH_PREFIX", more["TASKGRAPH_PREFIX"])

    def ask(*words: str) -> Any:
        done = taskgraph(*words, "--json", store=store, cwd=tmp_path, **more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    created = ask("schedule", "create", "often", file, "--every", "2s", "--overlap", "allow")
    assert (created["outcome"], created["every"], created["catchUp"]) == ("created", 2, "last")
    with (
        Client.sync(store) as client,
        started("serve", "--worker", "2", store=store, cwd=tmp_path, name="one", **more),
        started("serve", store=store, cwd=tmp_path, name="two", **more),
    ):
        until(lambda: client.schedules.show("often").schedule.fired >= 3, seconds=60, what="three fires")
        client.schedules.deactivate("often")
        until(lambda: {each.state for each in client.graphs(schedule="often")} == {"finished"}, seconds=60)
        graphs = client.graphs(schedule="often")
        detail = client.schedules.show("often")
        logs = client.logs(graphs[-1].graph_id, "say")
        client.schedules.delete("often")
    assert detail.schedule.fired == len(graphs) >= 3
    assert [each.text for each in detail.troubles] == ["it is inactive"]
    assert {each.run.graph_id for each in detail.runs} <= {each.graph_id for each in graphs}
    assert {each.state for each in detail.runs} == {"finished"}
    assert len({each.fired_for for each in graphs}) == len(graphs)
    assert logs == f"{graphs[-1].graph_id}\n"
    assert taskgraph("schedule", "show", "often", store=store, cwd=tmp_path, **more).returncode == 3


def test_a_schedule_that_is_made_while_serve_rests_fires_in_time(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    file = str(write_graph(tmp_path / "g.json", {"a": command("true")}))
    with started("serve", store=store, cwd=tmp_path), Client.sync(store) as client:
        until(lambda: b"handling events" in (tmp_path / "serve.log").read_bytes(), what="serve")
        time.sleep(1.0)  # it has looked at the schedules, and would look again in minutes
        at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4)
        words = ("schedule", "create", "soon", file, "--at", at.isoformat())
        assert taskgraph(*words, store=store, cwd=tmp_path).returncode == 0
        until(lambda: client.graphs(schedule="soon"), what="its graph")
        (fired,) = client.graphs(schedule="soon")
    assert fired.created is not None
    assert 0 <= (fired.created - at).total_seconds() < 1.0


def test_all_schedules_are_stopped_by_one_command(tmp_path: Path) -> None:
    store, file = f"sqlite:///{tmp_path}/store.db", str(write_graph(tmp_path / "g.json", {"a": command("true")}))

    def ask(*words: str) -> Any:
        return taskgraph("schedule", *words, store=store, cwd=tmp_path)

    for name, *more in (("a",), ("b",), ("off", "--inactive")):
        assert ask("create", name, file, "--every", "1h", *more).returncode == 0
    stopped = ask("deactivate", "--all")
    assert (stopped.returncode, stopped.stdout, stopped.stderr) == (0, "a\nb\n", "2 schedules: inactive\n")
    again = ask("deactivate", "--all")
    assert (again.returncode, again.stdout) == (0, "")
    assert "each is inactive" in again.stderr
    told = json.loads(ask("activate", "--all", "--json").stdout)["schedules"]
    assert [(each["name"], each["active"], each["outcome"]) for each in told] == [
        (name, True, "active") for name in ("a", "b", "off")
    ]
    for words in ((), ("a", "--all")):
        refused = ask("activate", *words)
        assert (refused.returncode, "name the schedule, or say --all" in refused.stderr) == (2, True)
