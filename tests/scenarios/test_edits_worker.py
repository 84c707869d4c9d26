"""Edits and real workers in virtual time: whatever a worker has in hand, it runs what the task is by then."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from taskgraph.model.messages import RunTasks, to_text
from taskgraph.worker.executors import Outcome, Work
from taskgraph.worker.executors.contract import WriteLog
from tests.scenarios.crew import Crew, Script, virtually

MANY = {"a": [], **{f"m{n}": ["a"] for n in range(8)}}
NEW = {"task": {"payload": {"n": "new"}}}


class Telling(Script):
    """An executor that writes down what it was told to do."""

    def __init__(self, seconds: float = 0.0, by_label: Mapping[str, float] | None = None) -> None:
        super().__init__(seconds, by_label)
        self.told: list[tuple[str, Any]] = []

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        self.told.append((work.label, work.definition["payload"]["n"]))
        return await super().run(work, write_log)


async def waiting(crew: Crew, script: Script) -> list[str]:
    """Labels of the tasks that nobody has claimed."""
    return sorted(label for label, state in (await crew.stage.states()).items() if state == "pending")


@pytest.mark.parametrize("desk", [True, False], ids=["in stock", "by message"])
@pytest.mark.parametrize("size", [1, 5_000], ids=["short", "long"])
def test_nobody_runs_what_a_task_was_before_an_edit(desk: bool, size: int) -> None:
    async def act(crew: Crew) -> None:
        await crew.submit(MANY)
        script = Telling(3.0, {"a": 1.0})
        crew.start(*(crew.together(script) if desk else (crew.consumer(), crew.worker(script))))
        await crew.until(lambda: ("a", 0) in script.ended)
        await crew.until(lambda: len(script.runs) == 2)
        changed, gone, *_ = await waiting(crew, script)
        task = {"payload": {"n": "new", "x": "x" * size}}
        await crew.stage.stage_edit({"update": {changed: {"task": task}}, "delete": [gone]})
        await crew.finish()
        told = dict(script.told)
        assert len(told) == len(script.told) == len(MANY) - 1, "each once"
        assert gone not in told
        assert told == {each: "new" if each == changed else each for each in MANY if each != gone}

    virtually(act)


def test_a_worker_leaves_a_task_alone_that_was_sent_elsewhere() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": [], "b": []})
        stage = crew.stage
        assert await stage.edit({"update": {"a": {"task": {**NEW["task"], "target": "other"}}}}) == "done"
        late = RunTasks(stage.graph_id, "default", ((stage.task_id("a"), 0),))  # without a word of what was seen
        await stage.queues.send(stage.names.work("default"), [to_text(late)])
        script = Telling()
        crew.start(crew.consumer(), crew.worker(script))
        await crew.until(lambda: ("b", 0) in script.ended)
        await asyncio.sleep(90.0)
        assert script.told == [("b", "b")]
        assert await stage.task_state("a") == "pending"
        await crew.end()

    virtually(act)
