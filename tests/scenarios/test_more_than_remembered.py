"""Graphs with more ready tasks, and more relays, than a process handles at once: nothing of that is done twice."""

import pytest

from taskgraph.engine.sweep import Swept, sweep_graph
from taskgraph.model import limits
from taskgraph.model.messages import RunTasks, parse
from taskgraph.protocol.dispatch_windows import Windows
from taskgraph.storage.tables import Merge, Page, Range, query_all
from tests.scenarios.stage import Stage, graph, memory_stage
from tests.scenarios.test_large_views import Counted, numbered

WINDOW, REMEMBERED = 32, 30


class At:
    """Whoever receives messages, and is at work on a graph or not."""

    def __init__(self, graph_id: str) -> None:
        self.graph_id = graph_id

    def takes(self, graph_id: str) -> bool:
        return True

    def is_at_work(self, graph_id: str) -> bool:
        return graph_id == self.graph_id

    async def leads(self, graph_id: str) -> bool:
        return True

    def watch_unsent(self) -> None:
        pass


class ShortPages(Counted):
    """Tables whose pages hold ten rows."""

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        return await super().query(partition, rows, limit=min(limit, 10), continuation=continuation)


async def sent(stage: Stage) -> list[str]:
    """TaskIds that messages on the work queue name, which are taken off it."""
    found: list[str] = []
    queue = stage.names.work("default")
    while deliveries := await stage.queues.receive(queue, count=32, lease_seconds=60.0):
        for each in deliveries:
            message = parse(each.body)
            assert isinstance(message, RunTasks)
            found += [task for task, _ in message.tasks]
            await stage.queues.delete(each)
    return found


@pytest.fixture
async def wide(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A graph of 200 tasks that stand ready, of which nothing has been sent."""
    monkeypatch.setattr(limits, "UNSENT_MAX", REMEMBERED)
    stage = memory_stage()
    await stage.submit(graph({label: [] for label in numbered("a", 200)}))
    await sent(stage)
    stage.handlers.dispatcher.windows = Windows(start=WINDOW)
    return stage


async def test_no_more_ready_rows_are_read_than_can_be_remembered(wide: Stage) -> None:
    dispatcher = wide.handlers.dispatcher
    assert dispatcher.windows is not None
    tables = ShortPages(wide.tables)
    dispatcher.records.tables = tables
    tasks: set[str] = set()
    for _ in range(6):
        tables.pages = 0
        await dispatcher.dispatch_ready_rows("graph")
        assert tables.pages <= (WINDOW + REMEMBERED) / 10 + 2, "up to the first that is not remembered"
        found = await sent(wide)
        while found:  # they are claimed, and others go out in their place
            assert tasks.isdisjoint(found)
            tasks.update(found)
            for task_id in found:
                (row,) = await wide.tables.get("graph", [f"task:{task_id}"])
                assert row is not None
                await wide.tables.commit("graph", [Merge(row.key, row.etag, {"state": "completed"})])
            for batch in dispatcher.windows.on_results("graph", found, 1.0):
                await dispatcher.send_batches([batch], None)
            found = await sent(wide)
        if not dispatcher.windows.more:
            break
        dispatcher.windows.more.clear()
    assert len(tasks) == 200


async def test_the_sweep_leaves_alone_what_will_be_sent(wide: Stage) -> None:
    dispatcher = wide.handlers.dispatcher
    dispatcher.receivers.append(At("other"))
    await dispatcher.dispatch_ready_rows("graph")
    first = await sent(wide)
    assert len(first) == WINDOW
    wide.clock.advance(limits.REDISPATCH_SECONDS + 1.0)
    swept = Swept()
    await sweep_graph(wide.handlers, "graph", swept)
    assert swept.reminded == WINDOW
    assert sorted(await sent(wide)) == sorted(first), "what went out may be lost; the rest has not gone out yet"


async def test_what_is_written_while_the_sweep_reads_for_long_is_not_ahead_of_its_clock() -> None:
    stage = memory_stage()
    await stage.submit(graph({"a": [], "b": ["a"]}))
    held = await stage.claim("a")

    class Slow(ShortPages):
        """Tables that are read for long, and in which a task becomes ready meanwhile."""

        async def query(
            self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None
        ) -> Page:
            if rows.start == "task:" and "running" in rows.where.get("state", ()):
                stage.clock.advance(20.0)
                await stage.deliver(stage.completed(held))
            return await super().query(partition, rows, limit=limit, continuation=continuation)

    stage.handlers.records.tables = Slow(stage.tables)
    swept = Swept()
    await sweep_graph(stage.handlers, "graph", swept)
    assert swept.set_right == 0


@pytest.mark.parametrize(("at", "at_once", "fired"), [("other", False, 3), ("graph", False, 0), ("graph", True, 3)])
async def test_the_sweep_passes_on_no_relay_of_a_graph_that_is_in_hand(at: str, at_once: bool, fired: int) -> None:
    stage = memory_stage()
    await stage.submit(graph({"a": [], **{label: ["a"] for label in numbered("b", 200)}}))
    forks = await query_all(stage.tables, "graph", Range("fork:", "fork;"))
    assert len(forks) == 3
    for fork in forks:  # as the completion of `a` leaves them
        await stage.tables.commit("graph", [Merge(fork.key, fork.etag, {"state": "pending"})])
    stage.handlers.dispatcher.receivers.append(At(at))
    swept = Swept()
    await sweep_graph(stage.handlers, "graph", swept, at_once=at_once)
    assert swept.relay_fired == fired
