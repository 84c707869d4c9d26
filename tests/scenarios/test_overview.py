"""One look at an installation: what it says, what it costs, and how it is drawn."""

import io
import json
from datetime import timedelta

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.engine.live_index import enter_live
from taskgraph.engine.submission import submit
from taskgraph.interfaces import views
from taskgraph.interfaces.cli.output import Stream, cell_width
from taskgraph.interfaces.cli.top import picture
from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.ids import GRAPH
from taskgraph.queries.overview import Overview, Snapshot
from taskgraph.queries.targets import close, limit_target
from taskgraph.storage.tables import Merge
from taskgraph.worker.permits import Permits
from taskgraph.worker.registration import Presence, Registration, WorkerDetails
from tests.scenarios.stage import Stage, Trap, TrappedQueues, TrappedTables, graph, graph_object


class Someone:
    at_rest = False

    def __init__(self, name: str, busy: int) -> None:
        self.name, self.busy = name, busy

    def presence(self) -> Presence:
        return Presence(self.busy, [("graph", "a")][: self.busy])

    def drain(self, *, now: bool) -> None: ...

    def undrain(self) -> None: ...


async def join(stage: Stage, name: str, *targets: str, busy: int = 0, slots: int = 2) -> None:
    details = WorkerDetails(targets, (), (), "vm", slots, "1", 1)
    await Registration(stage.tables, stage.clock, Someone(name, busy), details).beat()


def overview(stage: Stage, trap: Trap | None = None) -> Overview:
    tables = TrappedTables(stage.tables, trap) if trap is not None else stage.tables
    queues = TrappedQueues(stage.queues, trap) if trap is not None else stage.queues
    clock: Clock = stage.clock
    return Overview(tables, queues, clock, stage.names)


def drawn(snapshot: Snapshot, width: int = 80, **more: int) -> list[str]:
    out = Stream(io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), {})
    lines = picture(snapshot, out, width, **more)
    assert max(map(cell_width, lines)) <= width, "\n".join(lines)
    return lines


async def test_a_look_at_an_empty_store(stage: Stage) -> None:
    found = await overview(stage).look()
    assert (found.live, list(found.graphs), list(found.crew.workers)) == (0, [], [])
    assert [(each.queue, each.messages) for each in found.queues] == [(stage.names.events, 0)]
    assert "no graph is live" in drawn(found)


async def test_what_is_ready_runs_waits_and_how_quickly_it_goes(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": [], "c": [], "d": ["a"]}))
    await join(stage, "one", "default", busy=1)
    look = overview(stage)
    await stage.claim("a")
    stage.clock.advance(5.0)
    found = await look.look()
    (line,) = found.graphs
    assert (line.graph_id, line.state, line.tasks, line.completed) == ("graph", "running", 4, 0)
    assert (line.running, line.ready, line.more, line.failed) == (1, 2, False, 0)
    assert (line.oldest in ("b", "c"), line.oldest_seconds, line.rate) == (True, 5.0, None)
    work = found.queues[-1]
    assert (work.queue, work.oldest_seconds, work.workers, work.slots, work.busy) == (
        stage.names.work("default"),
        5,
        1,
        2,
        1,
    )
    assert work.messages > 0
    await stage.complete("b")
    await stage.complete("c")
    stage.clock.advance(5.0)
    (line,) = (await look.look()).graphs
    assert (line.completed, line.rate, line.ready, line.oldest_seconds) == (2, 0.4, 0, None)
    stage.clock.advance(5.0)
    (line,) = (await look.look()).graphs
    assert (line.completed, line.rate) == (2, 0.0)


async def test_what_nobody_serves_and_what_has_stalled_is_seen(local: Stage) -> None:
    await local.submit(document_from_object(graph_object({"a": []})))
    local.clock.advance(limits.STALLED_SECONDS + 60)
    assert (await local.sweep()).stalled == 1
    found = await overview(local).look()
    assert found.graphs[0].stalled == local.clock.now()
    lines = drawn(found)
    assert any("stalled since" in line and "“a” is ready" in line for line in lines)
    assert any("taskgraph-work-default" in line and "none" in line and "1h01m" in line for line in lines)
    made = json.loads(json.dumps(views.snapshot(found)))
    assert made["graphs"][0]["stalledBecause"].startswith("“a” is ready")


async def test_a_target_that_is_limited_or_paused_is_seen_as_such(local: Stage) -> None:
    await local.submit(graph({"a": [], "b": []}))
    tables, now = local.tables, local.clock.now()
    await limit_target(tables, "default", 4, now)
    assert await Permits(tables, local.clock, "one", 60.0).take("default", lambda: 3) == 3
    found = await overview(local).look()
    assert (found.queues[-1].limit, found.queues[-1].permits, found.queues[-1].paused) == (4, 3, False)
    assert any(line.rstrip().endswith("3/4") for line in drawn(found))
    await close(tables, "default", now)
    found = await overview(local).look()
    assert found.queues[-1].paused
    assert any(line.rstrip().endswith("paused") for line in drawn(found))


@pytest.mark.parametrize("graphs", [1, 6])
async def test_a_look_costs_three_requests_a_graph_and_one_a_queue(memory: Stage, graphs: int) -> None:
    for number in range(graphs):
        await submit(memory.handlers, f"g{number}", graph({f"t{n}": [] for n in range(50)}))
        memory.clock.advance(1.0)
    trap = Trap()
    look = overview(memory, trap)
    first = await look.look()
    assert first.requests == len(trap.calls) == 3 + 3 * graphs + 2
    trap.calls.clear()
    assert (await look.look()).requests == len(trap.calls) == first.requests
    trap.calls.clear()
    some = await look.look(graphs_max=1)
    assert [each.graph_id for each in some.graphs] == [f"g{graphs - 1}"], "the newest"
    assert some.live == graphs
    assert len(trap.calls) == 3 + 3 + 2
    assert ("more live graphs" in "\n".join(drawn(some))) == (graphs > 1)


async def test_a_journal_without_numbers_and_a_graph_without_a_row(memory: Stage) -> None:
    await memory.submit(graph({"a": []}))
    await enter_live(memory.handlers.records, "nothing")
    row = memory.tables.partitions["graph"]["event:0000000001"]  # type: ignore[attr-defined]
    row.columns.pop("completed")
    found = await overview(memory).look()
    assert [each.completed for each in found.graphs] == [-1]
    assert any("?/1" in line for line in drawn(found))


async def test_a_small_terminal_shows_what_matters_and_says_what_is_left_out(memory: Stage) -> None:
    for number in range(12):
        await submit(memory.handlers, f"a-graph-with-a-long-name-{number}", graph({"x" * 200: []}))
        await join(memory, f"worker-{number}", "default", "gpu", "a-long-target")
    (row,) = await memory.tables.get("a-graph-with-a-long-name-3", [GRAPH])
    assert row is not None
    marked = {"stalled": memory.clock.now() - timedelta(hours=2), "stalledBecause": "nobody\x1b[2J" * 30}
    await memory.tables.commit("a-graph-with-a-long-name-3", [Merge(GRAPH, row.etag, marked)])
    found = await overview(memory).look()
    lines = drawn(found, 80, height=24)
    assert len(lines) <= 24
    assert any("more lines" in line for line in lines)
    assert "\x1b" not in "".join(lines), "whatever somebody has written there"
    for width, height in ((80, 10), (90, 50), (200, 100)):
        lines = drawn(found, width, height=height)
        assert len(lines) <= max(height, 14)
        assert any("requests in" in line for line in lines)
