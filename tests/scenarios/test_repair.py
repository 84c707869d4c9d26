"""What the sweep mends: lost messages, deleted queues, dead workers, half-way steps and stale indexes."""

from datetime import timedelta

import pytest

from taskgraph.engine.clock_trust import note
from taskgraph.engine.live_index import ORPHAN_SECONDS
from taskgraph.engine.sweep import QUEUE_FULL, Swept, is_due, sweep, sweep_graph
from taskgraph.model import limits
from taskgraph.model.errors import Conflict
from taskgraph.model.names import LIVE
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.relays import Fire
from taskgraph.protocol.runs import Renew
from taskgraph.storage.tables import Insert, Range, query_all
from tests.scenarios.stage import PAST_LEASE_SECONDS, CrashError, Stage, Trap, extension, graph

CHAIN = {"a": [], "b": ["a"], "c": ["b"]}


async def live(stage: Stage) -> list[str]:
    """Graphs that the sweep looks at."""
    return [row.key for row in await query_all(stage.tables, LIVE, Range())]


async def test_queues_that_are_deleted_in_mid_run_cost_time_and_no_work(stage: Stage) -> None:
    """Every message is thrown away at every step; the sweep says all of it again (D7)."""
    await stage.submit(graph(CHAIN))
    await stage.stage_extension(extension({"x": ["b"], "y": ["x", "c"]}))
    for _ in range(12):
        await stage.forget_queues()
        stage.clock.advance(limits.REDISPATCH_SECONDS + 1)
        await stage.sweep()
        await stage.pump()
        for label in {label for label, _ in await stage.offered()}:
            await stage.complete(label)  # its result is delivered, and what follows from it is thrown away again
        if await stage.state() == "finished":
            break
    assert await stage.state() == "finished"
    assert set(stage.executed.values()) == {1}
    await stage.check({**CHAIN, "x": ["b"], "y": ["x", "c"]})


async def test_a_result_that_is_lost_on_its_way_is_a_lost_lease(stage: Stage) -> None:
    await stage.submit(graph(CHAIN))
    await stage.claim("a")  # its worker finishes, and the result message is lost
    stage.clock.advance(PAST_LEASE_SECONDS)
    swept = await stage.sweep()
    assert (swept.lease_lost, swept.graphs) == (1, 1)
    row = (await stage.row("a")).columns
    assert (row["state"], row["run"], row["retriesLeft"]) == ("pending", 1, limits.RETRIES_DEFAULT - 1)
    assert await stage.work() == "finished"
    assert stage.executed["a", 0] == stage.executed["a", 1] == 1


async def test_the_sweep_waits_for_the_end_of_a_lease(stage: Stage) -> None:
    await stage.submit(graph(CHAIN))
    held = await stage.claim("a")
    stage.clock.advance(limits.LEASE_SECONDS - 1)
    assert (await stage.sweep()).lease_lost == 0
    lease = stage.clock.now() + timedelta(seconds=limits.LEASE_SECONDS)
    (answer,) = await stage.transition(Renew(held.task_id, held.run, held.claim, lease))
    assert answer.outcome is Outcome.APPLIED
    stage.clock.advance(limits.LEASE_SECONDS - 1)
    assert (await stage.sweep()).lease_lost == 0
    await stage.deliver(stage.completed(held))
    assert await stage.task_state("b") == "pending"


async def test_a_worker_that_is_known_to_be_dead_is_not_waited_for(stage: Stage) -> None:
    await stage.submit(graph(CHAIN))
    held = await stage.claim("a")
    assert (await stage.lose(held)).outcome is Outcome.REFUSED
    assert (await stage.lose(held, certain=True)).outcome is Outcome.APPLIED
    assert (await stage.row("a")).columns["run"] == 1


async def test_retries_that_the_sweep_uses_up_block_the_graph(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": ["a"], "other": []}))
    for run in range(limits.RETRIES_DEFAULT + 1):
        await stage.claim("a", run)
        stage.clock.advance(PAST_LEASE_SECONDS)
        await stage.sweep()
    assert await stage.task_state("a") == "exception"
    status = await stage.queries.status("graph")
    assert (status.state, status.blocked_by) == ("blocked", "a")
    assert "retries are spent" in str((await stage.queries.task("graph", "a")).status.resolution)
    assert await stage.work() == "blocked"
    assert await stage.task_state("other") == "completed"
    await stage.rerun("a")
    assert await stage.work() == "finished"


async def test_a_fresh_pending_task_is_not_said_twice(stage: Stage) -> None:
    await stage.submit(graph(CHAIN))
    await stage.offered()
    assert (await stage.sweep()).reminded == 0
    stage.clock.advance(limits.REDISPATCH_SECONDS)
    assert (await stage.sweep()).reminded == 1
    assert await stage.offered() == [("a", 0)]


@pytest.mark.parametrize("period", [1.0, 30.0, 300.0])
def test_reminders_of_a_backlog_grow_with_the_logarithm_of_its_age(period: float) -> None:
    """At T, 2T, 4T …: never before T, never missed by a round that comes every period, and few in a day."""
    ages = [period * step for step in range(int(86_400 / period))]
    due = [age for age in ages if is_due(age, period)]
    assert due[0] >= limits.REDISPATCH_SECONDS
    moment = limits.REDISPATCH_SECONDS
    while moment < ages[-1] - 2 * period:
        assert any(moment <= age < moment + 1.5 * period for age in due), moment
        moment *= 2
    assert len(due) <= 30


async def test_a_full_queue_is_spared_until_patience_ends(memory: Stage) -> None:
    await memory.submit(graph(CHAIN))
    await memory.queues.send(memory.names.work("default"), ["x"] * QUEUE_FULL)
    memory.clock.advance(2 * limits.REDISPATCH_SECONDS)
    assert (await memory.sweep()).reminded == 0
    memory.clock.advance(14 * limits.REDISPATCH_SECONDS)
    assert (await memory.sweep()).reminded == 1


async def test_someone_who_resumes_a_graph_alone_need_not_wait(stage: Stage) -> None:
    await stage.submit(graph(CHAIN))
    await stage.stage_extension(extension({"x": ["c"]}))
    await stage.forget_queues()
    swept = Swept()
    await sweep_graph(stage.handlers, "graph", swept, at_once=True)
    assert (swept.reminded, swept.request_resent) == (1, 1)
    assert await stage.work() == "finished"
    assert set(await stage.states()) == {"a", "b", "c", "x"}


async def test_a_relay_that_was_left_ready_is_fired(local: Stage) -> None:
    """A handler dies after the commit that made forks ready, and before the one that passes them on."""
    requires = {"a": [], **{f"b{number:03}": ["a"] for number in range(200)}}
    await local.submit(graph(requires))
    await local.offered()
    done = local.completed(await local.claim("a"))
    with pytest.raises(CrashError):
        await local.deliver(done, handlers=local.more_handlers(Trap(1, "after", "commit")))
    states = await local.states()
    assert "unscheduled" in states.values(), "the history in question leaves forks ready"
    swept = await local.sweep()
    assert swept.relay_fired > 0
    assert list((await local.states()).values()).count("pending") == 200
    local.clock.advance(limits.REDISPATCH_SECONDS)
    await local.sweep()
    assert await local.work() == "finished"
    assert set(local.executed.values()) == {1}
    await local.check(requires)


async def test_firing_a_relay_that_still_waits_or_has_fired_changes_nothing(stage: Stage) -> None:
    requires = {**{f"a{number:03}": [] for number in range(100)}, "z": [f"a{number:03}" for number in range(100)]}
    await stage.submit(graph(requires))
    joins = [row.key for row in await stage.queries.partition("graph") if row.key.startswith("join:")]
    assert joins
    for answer in await stage.transition(*(Fire(key) for key in joins)):
        raise AssertionError(f"{answer}: only what was asked for from outside is answered")
    assert await stage.task_state("z") == "unscheduled"
    await stage.deliver(*(stage.completed(each) for each in await stage.claims(*requires["z"])))
    assert await stage.task_state("z") == "pending"
    before = await stage.snapshot()
    await stage.transition(*(Fire(key) for key in joins))
    assert await stage.snapshot() == before


async def test_a_graph_leaves_the_live_index_when_it_has_finished(stage: Stage) -> None:
    await stage.submit(graph({"a": []}))
    assert await live(stage) == ["graph"]
    await stage.complete("a")
    assert await live(stage) == []
    assert (await stage.sweep()).graphs == 0


async def test_a_blocked_graph_stays_in_the_live_index(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": []}))
    await stage.fail("a")
    assert await live(stage) == ["graph"]
    stage.clock.advance(limits.REDISPATCH_SECONDS)
    await stage.forget_queues()
    assert (await stage.sweep()).reminded == 1


async def test_an_end_that_was_not_noted_is_noted_by_the_sweep(stage: Stage) -> None:
    """A handler dies between the last commit and the index."""
    await stage.submit(graph({"a": []}))
    done = stage.completed(await stage.claim("a"))
    with pytest.raises(CrashError):
        await stage.deliver(done, handlers=stage.more_handlers(Trap(1, "after", "commit")))
    assert await stage.state() == "finished"
    assert await live(stage) == ["graph"]
    assert (await stage.sweep()).index_mended == 1
    assert await live(stage) == []


async def test_an_end_that_was_not_noted_is_noted_when_the_message_comes_again(stage: Stage) -> None:
    """What follows from a commit follows from its repetition as well (D9)."""
    await stage.submit(graph({"a": []}))
    done = stage.completed(await stage.claim("a"))
    with pytest.raises(CrashError):
        await stage.deliver(done, handlers=stage.more_handlers(Trap(1, "after", "commit")))
    ended: list[str] = []
    stage.handlers.listeners.ended.append(lambda graph_id, _: ended.append(graph_id))
    await stage.deliver(done)
    assert await live(stage) == []
    assert ended == ["graph"]


@pytest.mark.usefixtures("settled")
async def test_a_name_without_a_graph_is_dropped_after_an_hour(stage: Stage) -> None:
    """Its submitter died before the graph row: kept for a while, for he may be slow."""
    await stage.tables.commit(LIVE, [Insert("nobody", {"since": stage.clock.now()})])
    await note(stage.tables, stage.clock.now())  # house is kept all along
    assert (await stage.sweep()).index_mended == 0
    assert await live(stage) == ["nobody"]
    stage.clock.advance(ORPHAN_SECONDS + 1)
    assert (await stage.sweep()).index_mended == 1
    assert await live(stage) == []


async def test_two_sweeps_at_once(stage: Stage) -> None:
    await stage.submit(graph(CHAIN))
    await stage.offered()
    await stage.claim("a")
    stage.clock.advance(PAST_LEASE_SECONDS)
    other = stage.more_handlers()
    slow = stage.more_handlers(between=lambda: sweep(other))
    swept = await sweep(slow)
    assert swept.failed == []
    row = (await stage.row("a")).columns
    assert (row["run"], row["retriesLeft"]) == (1, limits.RETRIES_DEFAULT - 1)
    assert set(await stage.offered()) == {("a", 1)}


async def test_a_sweep_that_dies_anywhere_is_made_up_for_by_the_next(local: Stage) -> None:
    number = 0
    while True:
        number += 1
        stage = Stage(local.tables, local.queues, local.clock, prefix=local.names.prefix, kind=local.kind)
        stage.graph_id = f"graph-{number}"
        await stage.submit(graph({"a": [], "b": ["a"], "c": []}))
        await stage.claim("a")
        await stage.stage_extension(extension({"x": ["a"]}))
        await stage.forget_queues()
        stage.clock.advance(PAST_LEASE_SECONDS)
        trap = Trap(number, "after" if number % 2 else "before")
        swept = Swept()
        try:
            await sweep_graph(stage.more_handlers(trap), stage.graph_id, swept)
        except CrashError:
            stage.clock.advance(limits.REDISPATCH_SECONDS)
            await sweep_graph(stage.handlers, stage.graph_id, swept)
        assert await stage.work() == "finished"
        assert (await stage.row("a")).columns["run"] == 1
        await stage.check({"a": [], "b": ["a"], "c": [], "x": ["a"]})
        if len(trap.calls) < number:
            assert number > 6
            return


async def test_the_sweep_goes_on_past_a_graph_that_is_busy(memory: Stage) -> None:
    """Sweeping one graph fails; the others are swept, and the round says which failed."""
    for name in ("one", "two"):
        memory.graph_id = name
        await memory.submit(graph({"a": []}))
        await memory.claim("a")
    memory.clock.advance(PAST_LEASE_SECONDS)
    await memory.forget_queues()

    class Busy:
        def __init__(self, inner: object) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

        async def commit(self, partition: str, changes: object) -> object:
            if partition == "one":
                raise Conflict("somebody else was first")
            return await self._inner.commit(partition, changes)  # type: ignore[attr-defined]

    other = Stage(Busy(memory.tables), memory.queues, memory.clock)  # type: ignore[arg-type]
    swept = await sweep(other.handlers)
    assert [text.split(":")[0] for text in swept.failed] == ["one"]
    memory.graph_id = "two"
    assert (await memory.row("a")).columns["run"] == 1
