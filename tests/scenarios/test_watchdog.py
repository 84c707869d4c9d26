"""Graphs that stand still, as the sweep finds them: marked with the reason, and cleared when they move again."""

from datetime import timedelta

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.sweep import sweep
from taskgraph.model import limits
from taskgraph.model.columns import Value
from taskgraph.storage.tables import Merge, Row
from taskgraph.worker.registration import Presence, Registration, WorkerDetails
from tests.scenarios.stage import PAST_LEASE_SECONDS, Stage, Trap, graph, graph_object

HOUR = limits.STALLED_SECONDS
CHAIN = {"a": [], "b": ["a"]}


async def pass_time(stage: Stage, seconds: float, *, step: float = 300.0) -> int:
    """Let time go by, with the sweep about; gives how often a graph was marked."""
    marked = 0
    for _ in range(int(seconds / step)):
        stage.clock.advance(step)
        marked += (await stage.sweep()).stalled
    return marked


async def test_a_graph_that_nobody_works_on_is_marked_once_with_what_why_says(stage: Stage) -> None:
    await stage.submit(document_from_object(graph_object({"a": [], "b": ["a"], "c": []})))
    assert await pass_time(stage, HOUR - 300) == 0
    assert "stalled" not in (await stage.graph_row()).columns
    assert await pass_time(stage, 2 * HOUR) == 1
    row = (await stage.graph_row()).columns
    assert "no registered worker serves the target default" in str(row["stalledBecause"])
    assert "and 1 more wait" in str(row["stalledBecause"])
    assert (await stage.told())[-1] == "graph-stalled"
    status = await stage.queries.status("graph")
    assert status.stalled_because == row["stalledBecause"]
    assert status.stalled == row["stalled"]


async def test_a_mark_goes_when_the_graph_moves_and_comes_again_an_hour_later(local: Stage) -> None:
    await local.submit(graph(CHAIN))
    assert await pass_time(local, HOUR + 300) == 1
    held = await local.claim("a")
    await local.sweep()
    assert (await local.graph_row()).columns["stalledBecause"] == "", "something runs"
    await local.deliver(local.completed(held))
    assert await pass_time(local, HOUR - 300) == 0
    assert await pass_time(local, 600) == 1
    assert await local.work() == "finished"
    kinds = [kind for kind in await local.told() if kind.startswith("graph-")]
    assert kinds == ["graph-running", "graph-stalled", "graph-unstalled", "graph-stalled", "graph-finished"]
    assert (await local.queries.status("graph")).stalled is None, "it has ended"


async def test_a_fact_takes_the_mark_off_though_nothing_runs(local: Stage) -> None:
    await local.submit(graph({"a": [], "b": []}))
    await pass_time(local, HOUR + 300)
    await local.complete("a")
    await local.sweep()
    assert (await local.told())[-1] == "graph-unstalled"
    assert await pass_time(local, HOUR - 600) == 0
    assert await pass_time(local, 900) == 1


async def test_a_long_run_is_no_standstill_and_a_lost_one_is_in_the_end(local: Stage) -> None:
    await local.submit(graph(CHAIN))
    await local.claim("a")
    row = await local.row("a")
    await local.tables.commit("graph", [_merge(row, leaseUntil=local.clock.now() + timedelta(hours=9))])
    assert await pass_time(local, 8 * HOUR) == 0
    await pass_time(local, HOUR + 600)  # its lease has ended, and it stands ready again
    assert await local.task_state("a") == "pending"
    assert await pass_time(local, HOUR) == 1


async def test_what_waits_for_a_time_or_a_person_is_no_standstill(local: Stage) -> None:
    await local.submit(graph({"a": []}))
    for columns in ({"notBefore": local.clock.now() + timedelta(days=1)}, {"held": "paused"}):
        row = await local.row("a")
        await local.tables.commit("graph", [_merge(row, **columns)])
        assert await pass_time(local, 2 * HOUR) == 0


async def test_a_graph_in_which_nothing_can_happen_any_more_is_marked_and_sent_to_the_doctor(local: Stage) -> None:
    await local.submit(graph(CHAIN))
    row = await local.row("a")
    await local.tables.commit("graph", [_merge(row, state="unscheduled")])  # no transition leaves it so
    assert await pass_time(local, HOUR + 300) == 1
    because = str((await local.graph_row()).columns["stalledBecause"])
    assert because == "nothing of it is ready and nothing runs; see `taskgraph doctor graph`"


async def test_a_graph_may_say_how_long_and_what_then(local: Stage) -> None:
    said = graph_object(CHAIN, stalledAfter=120, onStalled="cancel")
    await local.submit(document_from_object(said))
    await pass_time(local, 90, step=30)
    assert await local.state() == "running"
    await pass_time(local, 120, step=30)
    assert await local.state() == "cancelled"
    assert "it has stalled" in str((await local.graph_row()).columns["reason"])


async def test_the_reason_names_workers_that_are_busy(local: Stage) -> None:
    class Busy:
        name, at_rest = "w", False

        def presence(self) -> Presence:
            return Presence(2)

        def drain(self, *, now: bool) -> None: ...

        def undrain(self) -> None: ...

    await local.submit(graph(CHAIN))
    await pass_time(local, HOUR - 60, step=60)
    await Registration(local.tables, local.clock, Busy(), WorkerDetails(("default",), (), (), "vm", 2, "1", 1)).beat()
    assert await pass_time(local, 120, step=20) == 1
    assert "all workers for it are busy (2 of 2 slots: w)" in str((await local.graph_row()).columns["stalledBecause"])


async def test_looking_costs_nothing_where_something_moves(local: Stage) -> None:
    """Not one call more in a round, but for a graph that looks as if nothing did."""

    async def calls() -> list[str]:
        trap = Trap()
        await sweep(local.more_handlers(trap))
        return trap.calls

    local.clock.advance(50)  # past the moment at which the registry is looked at
    await local.submit(graph({"a": [], "b": []}))
    fresh = await calls()
    held = await local.claim("a")
    local.clock.advance(PAST_LEASE_SECONDS / 2)
    assert await calls() == fresh
    row = await local.row("a")
    await local.tables.commit("graph", [_merge(row, leaseUntil=local.clock.now() + timedelta(days=6))])
    local.clock.advance(10 * HOUR + 7.0)
    while local.clock.now().timestamp() % 600 < 60:
        local.clock.advance(10)
    reminders = ["count", "send"]
    assert [call for call in await calls() if call not in reminders] == fresh
    assert held.run == 0


@pytest.mark.parametrize("copies", [2, 3])
async def test_any_number_of_sweeps_make_one_mark(memory: Stage, copies: int) -> None:
    await memory.submit(graph(CHAIN))
    memory.clock.advance(HOUR + 60)
    sweepers: list[Handlers] = [memory.more_handlers(Trap()) for _ in range(copies)]
    marks = sum([(await sweep(each)).stalled for each in sweepers])
    assert marks == 1
    assert [kind for kind in await memory.told() if "stalled" in kind] == ["graph-stalled"]


def _merge(row: Row, **columns: Value) -> Merge:
    return Merge(row.key, row.etag, columns)
