"""How a graph is blocked, goes on, runs again and finishes."""

import json

import pytest

from taskgraph.model import limits
from taskgraph.protocol.context import Outcome
from tests.scenarios.stage import PAST_LEASE_SECONDS, Stage, graph, over_stores

TWO_BRANCHES = {"A": [], "B": ["A"], "X": [], "Y": ["X"], "Z": ["Y"]}


async def test_a_task_that_fails_for_good_blocks_while_other_branches_go_on(stage: Stage) -> None:
    await stage.submit(graph(TWO_BRANCHES))
    await stage.fail("A", reason="no such file")
    assert await stage.state() == "blocked"
    status = await stage.queries.status("graph")
    assert (status.blocked_by, status.failed_tasks) == ("A", 1)
    assert await stage.work() == "blocked"
    assert await stage.states() == {
        "A": "failed",
        "B": "unscheduled",
        "X": "completed",
        "Y": "completed",
        "Z": "completed",
    }
    assert await stage.told() == ["graph-running", "graph-blocked"]
    assert json.loads(str((await stage.row("A")).columns["resolution"])) == {"failed": True, "reason": "no such file"}
    await stage.check(TWO_BRANCHES)


async def test_a_manual_rerun_brings_a_blocked_graph_back_to_running_and_to_finished(stage: Stage) -> None:
    await stage.submit(graph(TWO_BRANCHES))
    await stage.fail("A")
    assert await stage.work() == "blocked"
    assert (await stage.rerun("A")).outcome is Outcome.APPLIED
    status = await stage.queries.status("graph")
    assert (status.state, status.blocked_by, status.failed_tasks) == ("running", "", 0)
    assert await stage.work() == "finished"
    assert await stage.told() == ["graph-running", "graph-blocked", "graph-unblocked", "graph-finished"]
    assert stage.executed["A", 0] == stage.executed["A", 1] == 1
    assert (await stage.queries.status("graph")).counts == {"completed": 5}
    await stage.check(TWO_BRANCHES)


async def test_a_graph_with_two_failed_tasks_is_unblocked_only_after_both_are_rerun(stage: Stage) -> None:
    await stage.submit(graph(TWO_BRANCHES))
    await stage.fail("A")
    await stage.fail("X", exception=True)
    assert (await stage.queries.status("graph")).failed_tasks == 2
    await stage.rerun("X")
    assert await stage.state() == "blocked"
    await stage.complete("X")
    assert await stage.state() == "blocked"
    await stage.rerun("A")
    assert await stage.state() == "running"
    assert await stage.work() == "finished"
    assert await stage.told() == ["graph-running", "graph-blocked", "graph-unblocked", "graph-finished"]


async def test_a_rerun_that_fails_again_blocks_again(stage: Stage) -> None:
    """The budget is not refilled, and every block is told."""
    await stage.submit(graph({"A": []}, reruns={"A": 1}))
    await stage.fail("A")
    await stage.fail("A")
    await stage.rerun("A")
    assert (await stage.row("A")).columns["rerunsLeft"] == 0
    await stage.fail("A")
    assert await stage.state() == "blocked"
    await stage.rerun("A")
    assert await stage.work() == "finished"
    assert await stage.told() == [
        "graph-running",
        *("graph-blocked", "graph-unblocked") * 2,
        "graph-finished",
    ]
    row = (await stage.row("A")).columns
    assert (row["run"], row["manualReruns"], row["rerunsLeft"]) == (3, 2, 0)


async def test_two_tasks_that_fail_in_one_batch_block_once(stage: Stage) -> None:
    await stage.submit(graph(TWO_BRANCHES))
    first, second = await stage.claims("A", "X")
    await stage.deliver(stage.failed(first, second))
    assert (await stage.queries.status("graph")).failed_tasks == 2
    assert await stage.told() == ["graph-running", "graph-blocked"]


async def test_a_graph_whose_every_leaf_failed_does_not_finish(stage: Stage) -> None:
    await stage.submit(graph({"A": [], "B": []}))
    first, second = await stage.claims("A", "B")
    await stage.deliver(stage.completed(first), stage.failed(second))
    assert await stage.state() == "blocked"
    assert await stage.told() == ["graph-running", "graph-blocked"]


async def test_an_exception_spends_no_rerun(stage: Stage) -> None:
    """It never got to an answer, so no rerun will help."""
    await stage.submit(graph({"A": []}, reruns={"A": 5}))
    await stage.fail("A", exception=True, reason="malformed payload")
    row = (await stage.row("A")).columns
    assert (row["state"], row["run"], row["rerunsLeft"]) == ("exception", 0, 5)
    assert await stage.state() == "blocked"


async def test_all_reruns_are_used_and_no_more(stage: Stage) -> None:
    await stage.submit(graph({"A": []}, reruns={"A": 3}))
    assert await stage.work(fails={"A": 100}) == "blocked"
    row = (await stage.row("A")).columns
    assert (row["run"], row["rerunsLeft"], row["state"]) == (3, 0, "failed")
    assert sorted(stage.executed) == [("A", run) for run in range(4)]
    assert [event.fields["because"] for event in await stage.events() if event.kind == "task-rerun"] == ["failed"] * 3


async def test_reruns_and_lost_leases_are_counted_apart(stage: Stage) -> None:
    await stage.submit(graph({"A": []}, reruns={"A": 2}))
    await stage.fail("A")
    held = await stage.claim("A")
    stage.clock.advance(PAST_LEASE_SECONDS)
    await stage.lose(held)
    await stage.hand_back(await stage.claim("A"))
    await stage.fail("A")
    row = (await stage.row("A")).columns
    assert (row["run"], row["rerunsLeft"], row["retriesLeft"], row["handBacks"]) == (
        4,
        0,
        limits.RETRIES_DEFAULT - 1,
        1,
    )
    detail = await stage.queries.task("graph", "A")
    assert [run["outcome"] for run in detail.status.runs] == ["failed", "lost", "handed-back", "failed"]
    await stage.complete("A")
    assert await stage.state() == "finished"


async def test_handing_back_spends_nothing_and_offers_the_run_again(stage: Stage) -> None:
    await stage.submit(graph({"A": [], "B": ["A"]}))
    await stage.offered()
    held = await stage.claim("A")
    assert (await stage.hand_back(held, "the worker was stopped")).outcome is Outcome.APPLIED
    row = (await stage.row("A")).columns
    assert (row["state"], row["run"], row["retriesLeft"], row["rerunsLeft"]) == (
        "pending",
        1,
        limits.RETRIES_DEFAULT,
        0,
    )
    assert await stage.offered() == [("A", 1)]
    assert (await stage.hand_back(held)).outcome is Outcome.STALE
    assert (await stage.row("A")).columns["run"] == 1
    (handled,) = await stage.deliver(stage.completed(held))
    assert handled.answers[0].outcome is Outcome.STALE
    assert await stage.work() == "finished"


async def test_only_the_latest_runs_are_kept_on_the_row_and_all_in_the_journal(memory: Stage) -> None:
    reruns = limits.RUNS_KEPT_MAX + 5
    await memory.submit(graph({"A": []}, reruns={"A": reruns}))
    assert await memory.work(fails={"A": reruns}) == "finished"
    kept = json.loads(str((await memory.row("A")).columns["runs"]))
    assert [run["run"] for run in kept] == list(range(5, reruns))
    assert (await memory.told(tasks=True)).count("task-rerun") == reruns


async def test_the_journal_is_told_in_order_and_without_gaps(stage: Stage) -> None:
    await stage.submit(graph(TWO_BRANCHES, reruns={"Y": 1}))
    assert await stage.work(fails={"Y": 1}) == "finished"
    events = await stage.events()
    assert [event.kind for event in events][0 :: len(events) - 1] == ["graph-running", "graph-finished"]
    numbers = [event.sequence for event in events]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(1, max(numbers) + 1))
    order = [(event.fields["label"], event.kind) for event in events if event.kind.startswith("task-")]
    assert sorted(order) == sorted([*((label, "task-completed") for label in TWO_BRANCHES), ("Y", "task-rerun")])
    for label, wanted in TWO_BRANCHES.items():
        for required in wanted:
            assert order.index((required, "task-completed")) < order.index((label, "task-completed"))
    later = await stage.queries.events("graph", since=numbers[-1])
    assert later == []


@pytest.mark.parametrize(("stage", "size"), over_stores(8, local=[1, 2, 32]), indirect=["stage"])
async def test_results_that_arrive_together_are_written_together(stage: Stage, size: int) -> None:
    labels = [f"A{number:02}" for number in range(32)]
    requires = {**{label: [] for label in labels}, "Z": labels}
    await stage.submit(graph(requires))
    held = await stage.claims(*labels)
    before = stage.handlers.counters.commits
    for start in range(0, len(held), size):
        await stage.deliver(*(stage.completed(each) for each in held[start : start + size]))
    assert stage.handlers.counters.commits - before == len(labels) // size
    assert await stage.work() == "finished"
    await stage.check(requires)
