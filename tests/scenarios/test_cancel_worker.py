"""Workers whose runs are cancelled, in virtual time: who hears of it when, what is reported, and what is not begun."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from taskgraph.model.messages import Cancel, to_text
from taskgraph.worker.executors import Outcome, Work, WriteLog
from taskgraph.worker.executors.contract import AT_ONCE
from taskgraph.worker.loop import Worker
from tests.scenarios.crew import Crew, Script, chain, virtually

LEASE_SECONDS = 30.0
HOUR = 3_600.0
WIDE: Mapping[str, Sequence[str]] = {f"m{n:03}": [] for n in range(200)}


class Stopped(Script):
    """Writes down how each run that was cancelled was told so, and takes a while to end."""

    def __init__(self, seconds: float, grace_seconds: float = 0.0) -> None:
        super().__init__(seconds)
        self.grace_seconds = grace_seconds
        self.told: list[str] = []

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        try:
            return await super().run(work, write_log)
        except asyncio.CancelledError as error:
            at_once = AT_ONCE in error.args
            self.told.append("killed" if at_once else "asked")
            if not at_once:
                await asyncio.sleep(self.grace_seconds)
            raise


async def cancel(crew: Crew, *labels: str, terminate: bool = False) -> None:
    stage = crew.stage
    tasks = tuple([(stage.task_id(label), 0) for label in labels])
    message = Cancel(stage.graph_id, tasks, "superseded", terminate)
    await stage.queues.send(stage.names.events, [to_text(message)])


async def in_state(crew: Crew, state: str) -> None:
    async def is_so() -> bool:
        return await crew.stage.state() == state

    await crew.until(is_so)


async def outcomes(crew: Crew) -> Counter[str]:
    """How the runs of cancelled tasks ended, "" for those that never began."""
    found: Counter[str] = Counter()
    for label in await crew.stage.states():
        resolution: dict[str, Any] = json.loads(str((await crew.stage.row(label)).columns.get("resolution", "{}")))
        assert resolution["cancelled"]
        found[resolution.get("reported", {}).get("outcome", "")] += 1
    return found


def test_a_wide_graph_is_cancelled_while_eight_run_by_workers_elsewhere() -> None:
    """Nothing begins after the fence, and each worker stops its runs when it renews its lease."""

    async def act(crew: Crew) -> None:
        await crew.submit(WIDE)
        scripts = [Stopped(HOUR), Stopped(HOUR)]
        workers = [crew.worker(each, name=f"w{n}", slots=4) for n, each in enumerate(scripts)]
        crew.start(crew.consumer(), *workers)
        await crew.until(lambda: sum(len(each.runs) for each in scripts) == 8)
        await asyncio.sleep(7.0)
        asked = crew.clock.monotonic()
        await cancel(crew)
        await in_state(crew, "cancelled")
        assert crew.clock.monotonic() - asked <= LEASE_SECONDS / 2 + 0.2
        assert [each.told for each in scripts] == [["asked"] * 4] * 2
        assert sum(len(each.runs) for each in scripts) == 8
        assert await outcomes(crew) == {"": 192, "handed-back": 8}
        assert [worker.counters.cancelled for worker in workers] == [4, 4]
        events = await crew.stage.events()
        assert [each.kind for each in events].count("graph-cancelled") == 1
        assert events[-1].kind == "graph-cancelled"
        await crew.end()

    virtually(act)


def test_the_worker_of_the_same_process_hears_of_it_at_once() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit(WIDE)
        script = Stopped(HOUR)
        crew.start(*crew.together(script, slots=8))
        await crew.until(lambda: len(script.runs) == 8)
        asked = crew.clock.monotonic()
        await cancel(crew)
        await in_state(crew, "cancelled")
        assert crew.clock.monotonic() - asked < 0.5
        assert script.told == ["asked"] * 8
        assert len(script.runs) == 8
        await crew.end()

    virtually(act)


def test_a_run_that_takes_its_time_to_end_is_asked_once_and_waited_for() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": [], "b": ["a"]})
        script = Stopped(HOUR, grace_seconds=2 * LEASE_SECONDS)
        crew.start(crew.consumer(), crew.worker(script))
        await crew.until(lambda: len(script.runs) == 1)
        await cancel(crew)
        await in_state(crew, "cancelling")
        await asyncio.sleep(LEASE_SECONDS * 1.5)
        assert await crew.stage.states() == {"a": "running", "b": "cancelled"}, "its lease is renewed meanwhile"
        await in_state(crew, "cancelled")
        assert script.told == ["asked"]
        await crew.end()

    virtually(act)


def test_terminated_runs_are_not_waited_for_and_killed_when_their_worker_hears_of_it() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": [], "b": ["a"]})
        script = Stopped(HOUR, grace_seconds=HOUR)
        worker = crew.worker(script)
        crew.start(crew.consumer(), worker)
        await crew.until(lambda: len(script.runs) == 1)
        asked = crew.clock.monotonic()
        await cancel(crew, terminate=True)
        await in_state(crew, "cancelled")
        assert crew.clock.monotonic() - asked < 0.5
        assert script.told == []
        await crew.until(lambda: script.told == ["killed"])
        assert crew.clock.monotonic() - asked <= LEASE_SECONDS / 2 + 0.2
        await crew.until(lambda: worker.counters.lost == 1)
        assert await crew.stage.states() == {"a": "cancelled", "b": "cancelled"}
        await crew.end()

    virtually(act)


def test_what_is_being_stopped_can_still_be_terminated() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": []})
        script = Stopped(HOUR, grace_seconds=HOUR)
        consumer, worker = crew.together(script)
        crew.start(consumer, worker)
        await crew.until(lambda: len(script.runs) == 1)
        await cancel(crew)
        await crew.until(lambda: script.told == ["asked"])
        asked = crew.clock.monotonic()
        await cancel(crew, terminate=True)
        await in_state(crew, "cancelled")
        await crew.until(lambda: worker.at_rest)
        assert crew.clock.monotonic() - asked < 0.5, "though its run would take another hour to end"
        resolution = json.loads(str((await crew.stage.row("a")).columns["resolution"]))
        assert resolution["terminated"]
        assert (script.ended, script.told) == ([], ["asked"])
        await crew.end()

    virtually(act)


def test_one_task_is_stopped_and_the_others_go_on() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": [], "b": [], "c": ["b"]})
        script = Stopped(40.0)
        worker: Worker
        consumer, worker = crew.together(script, slots=2)
        crew.start(consumer, worker)
        await crew.until(lambda: len(script.runs) == 2)
        await cancel(crew, "a")
        await crew.until(lambda: ("c", 0) in script.ended)
        await asyncio.sleep(0.1)
        assert await crew.stage.state() == "blocked"
        assert await crew.stage.states() == {"a": "cancelled", "b": "completed", "c": "completed"}
        assert (script.told, worker.counters.cancelled) == (["asked"], 1)
        assert (await crew.stage.rerun("a")).reason == ""
        await crew.finish()
        assert script.runs.count(("a", 1)) == 1

    virtually(act)


def test_a_lone_chain_that_its_worker_carries_on_by_itself_is_stopped_too() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit(chain(50))
        script = Stopped(1.0)
        crew.start(crew.consumer(), crew.worker(script))
        await crew.until(lambda: len(script.ended) == 20)
        await cancel(crew)
        await in_state(crew, "cancelled")
        assert len(script.ended) < 30
        begun = len(script.runs)
        await asyncio.sleep(20.0)
        assert len(script.runs) == begun
        await crew.end()

    virtually(act)
