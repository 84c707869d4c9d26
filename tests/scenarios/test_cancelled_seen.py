"""A task that was cancelled is `cancelled` wherever people and programs look; its row says `exception`, as before."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from taskgraph import Client
from taskgraph.documents.read import document_from_object
from taskgraph.interfaces import views
from taskgraph.interfaces.cli import app as commands
from taskgraph.interfaces.loops import serve
from taskgraph.interfaces.operations import cancel as cancelling
from taskgraph.model import limits
from taskgraph.model.flag import Flag
from taskgraph.model.messages import Cancel
from taskgraph.queries.values import FAILED
from tests.scenarios.stage import Stage, graph
from tests.scenarios.test_large_views import counted

REQUIRES = {"done": [], "gone": [], "lost": [], "run": [], "below": ["gone"], "waits": ["run"]}
COUNTS = {"unscheduled": 2, "running": 1, "completed": 1, "exception": 1, "cancelled": 1}


async def cancel(stage: Stage, *labels: str) -> None:
    tasks = tuple((stage.task_id(label), 0) for label in labels)
    await stage.deliver(Cancel(stage.graph_id, tasks, "not wanted"))


async def one_of_each(stage: Stage) -> None:
    """A graph of which a task was cancelled, and another one could not be run; a group of the former and what waits."""
    tasks = {label: {"requires": wanted, "task": {}} for label, wanted in REQUIRES.items()}
    document = {"tasks": tasks, "groups": {"some": {"tasks": ["gone", "below"]}}}
    await stage.submit(document_from_object(document))
    await stage.complete("done")
    await stage.fail("lost", exception=True)
    await cancel(stage, "gone")
    await stage.claim("run")


@pytest.mark.parametrize("counted_max", [0, limits.COUNTED_TASKS_MAX])
async def test_counts_and_filters_part_cancelled_from_exception(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, counted_max: int
) -> None:
    """Also in a graph that counts as large; on every store, whose filters know the state of the row."""
    monkeypatch.setattr(limits, "COUNTED_TASKS_MAX", counted_max)
    await one_of_each(stage)
    assert (await stage.row("gone")).columns["state"] == "exception"
    status = await stage.queries.status("graph")
    assert (status.exact, status.counts, status.failed_tasks) == (True, COUNTS, 2)
    assert sum(status.counts.values()) == status.tasks
    assert views.graph_status(status)["counts"] == {**COUNTS, "pending": 0, "failed": 0, "skipped": 0}
    for state in ("cancelled", "exception"):
        found = await stage.queries.tasks("graph", state=state, limit=1)
        assert [(each.label, each.state) for each in found] == [("gone" if state == "cancelled" else "lost", state)]
    listing = await stage.queries.listing("graph")
    assert (len(listing.tasks), listing.total) == (6, 6)
    assert {each.label for each in listing.tasks if each.state in FAILED} == {"gone", "lost"}
    assert [each.label for each in await stage.queries.failed("graph")] == ["gone", "lost"]


async def test_a_group_is_cancelled_once_nothing_of_it_is_left(stage: Stage) -> None:
    await one_of_each(stage)
    found = await stage.queries.group("graph", "some")
    assert (found.state, found.counts) == ("blocked", {"unscheduled": 1, "cancelled": 1})
    await cancel(stage, "below")
    found = await stage.queries.group("graph", "some")
    assert (found.state, found.counts, found.unresolved) == ("cancelled", {"cancelled": 2}, 0)
    listing = await stage.queries.listing("graph", group="some", state="cancelled")
    assert sorted(each.label for each in listing.tasks) == ["below", "gone"]


async def test_why_names_a_cancelled_task_and_offers_to_let_it_run(memory: Stage) -> None:
    await one_of_each(memory)
    (cause,) = [each for each in await memory.queries.why("graph", "below") if each.cause]
    assert (cause.state, cause.text) == ("cancelled", "was cancelled in run 0: not wanted")
    assert cause.remedy.startswith("let it run after all: taskgraph rerun graph gone")


async def test_only_what_may_be_cancelled_is_read_once_more_to_be_counted(memory: Stage) -> None:
    """A graph row and a page, as ever; one page more of rows in `exception`, where there are any."""
    await memory.submit(graph({"a": [], "b": ["a"]}))
    asked, tables, _ = counted(memory)
    assert (await asked.status("graph")).counts == {"unscheduled": 1, "pending": 1}
    assert tables.reads == 2
    await memory.fail("a")
    assert (await asked.status("graph")).counts == {"unscheduled": 1, "failed": 1}
    assert tables.reads == 2
    await cancel(memory)
    assert (await asked.status("graph")).counts == {"failed": 1, "cancelled": 1}
    assert tables.reads == 3
    await asked.tasks("graph", state="cancelled")
    assert tables.reads == 2


async def test_a_part_that_was_looked_at_gives_cancelled_tasks_at_least(
    memory: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one_of_each(memory)
    monkeypatch.setattr(limits, "COUNTED_TASKS_MAX", 0)
    monkeypatch.setattr(limits, "COUNTED_PAGES_MAX", 0)
    status = await memory.queries.status("graph")
    assert (status.exact, status.at_least, status.failed_tasks) == (False, {}, 2)
    assert views.graph_status(status)["counts"]["cancelled"] is None


class Shell:
    """Commands over a store with the graph `g`, of which `b` was cancelled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = f"sqlite:///{folder}/store.db"
        file = folder / "g.json"
        tasks = {"a": {"task": {}}, "b": {"requires": ["a"], "task": {}}}
        file.write_text(json.dumps({"tasks": tasks, "groups": {"of b": {"tasks": ["b"]}}}))
        assert self.run("submit", str(file), "--id", "g").exit_code == 0
        self.cancel("b")

    def cancel(self, *labels: str) -> None:
        async def ask() -> None:
            async with Client(self.store) as client:
                stop = Flag()
                serving = asyncio.create_task(serve(client.app, stop))
                asked = await cancelling.ask(client.app, "g", labels, reason="not wanted")
                assert await cancelling.settled(client.app, asked, until=client.app.clock.monotonic() + 30)
                stop.set()
                await serving

        asyncio.run(ask())

    def run(self, *words: str) -> Any:
        return CliRunner().invoke(commands, [*words, "--store", self.store])


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_commands_say_cancelled_of_one_task(shell: Shell) -> None:
    status = shell.run("status", "g")
    assert re.search(r"^  ⊘ cancelled +1$", status.stdout, re.MULTILINE)
    assert "blocked by “b”, which was cancelled" in status.stderr
    grouped = shell.run("status", "g", "--group", "of b")
    assert re.search(r"^state +⊘ cancelled$", grouped.stdout, re.MULTILINE)
    assert "to let it run after all: taskgraph rerun --group='of b' g" in grouped.stderr
    shown = shell.run("show", "g", "--state", "cancelled")
    assert re.search(r"^⊘ cancelled +b .* not wanted$", shown.stdout, re.MULTILINE)
    assert "1 task: 1 cancelled" in shown.stderr
    assert json.loads(shell.run("show", "g", "--state", "exception", "--json").stdout)["tasks"] == []
    assert re.search(r"^state +⊘ cancelled$", shell.run("task", "g", "b").stdout, re.MULTILINE)
    assert "◆ ⊘ b was cancelled in run 0: not wanted" in shell.run("why", "g", "b").stdout
    assert "“b” is cancelled: it is over" in shell.run("deactivate", "g", "b").stderr
    rerun = json.loads(shell.run("rerun", "g", "--failed", "--json").stdout)
    assert [each["label"] for each in rerun["tasks"]] == ["b"]


def test_commands_say_cancelled_of_a_whole_graph(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.cancel("a")
    assert "blocked by “b”; 1 other task was cancelled, too" in shell.run("status", "g").stderr
    shell.cancel()
    looks = [shell.run("status", "g"), shell.run("show", "g"), shell.run("list"), shell.run("watch", "g")]
    assert re.search(r"^  ⊘ cancelled +2$", looks[0].stdout, re.MULTILINE)
    assert "2 tasks: 2 cancelled" in looks[1].stderr
    assert "⊘ cancelled  g  0/2 completed, ⊘ 2 cancelled" in looks[3].stdout
    assert looks[3].exit_code == 1
    assert not [each.stdout for each in looks if "exception" in each.output]
    assert "rerun" not in shell.run("status", "g", "--group", "of b").stderr
    file = str(shell.folder / "g.json.gz")
    assert shell.run("archive", "g", "-o", file).exit_code == 0
    assert "2 cancelled" in shell.run("restore", file, "--plan").output
    monkeypatch.setattr(limits, "COUNTED_TASKS_MAX", 0)
    monkeypatch.setattr(limits, "COUNTED_PAGES_MAX", 0)
    assert re.search(r"^  failed or cancelled +2$", shell.run("status", "g").stdout, re.MULTILINE)
    assert "2 failed or cancelled, 0 unresolved" in shell.run("show", "g").stderr
