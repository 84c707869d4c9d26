"""Wide fan-in and fan-out, and graphs with many leaves: bounded rows, each thing once."""

import json

import pytest

from taskgraph.protocol.context import Outcome
from tests.scenarios.stage import Requirements, Stage, graph, over_stores


def numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number:04}" for number in range(count)]


@pytest.mark.parametrize(("stage", "count"), over_stores(49, 97, local=[48, 96, 150]), indirect=["stage"])
async def test_a_graph_with_many_leaves_finishes_once(stage: Stage, count: int) -> None:
    """Past 48 leaves the graph row counts down one join, past 96 a tree of them."""
    requires: Requirements = {label: [] for label in numbered("a", count)}
    await stage.submit(graph(requires))
    row = (await stage.graph_row()).columns
    assert len(json.loads(str(row["requires"]))) == (count if count <= 48 else 1)
    held = await stage.claims(*requires)
    await stage.deliver(*(stage.completed(each) for each in held[1:]))
    assert await stage.state() == "running"
    await stage.check(requires)
    await stage.deliver(stage.completed(held[0]))
    assert await stage.state() == "finished"
    assert await stage.told() == ["graph-running", "graph-finished"]
    await stage.check(requires)


async def test_completions_one_by_one_leave_the_graph_row_alone(stage: Stage) -> None:
    """With many leaves the graph row is not rewritten by every completion (D11)."""
    requires: Requirements = {label: [] for label in numbered("a", 100)}
    await stage.submit(graph(requires))
    held = await stage.claims(*numbered("a", 10))
    before = (await stage.graph_row()).etag
    for each in held:
        await stage.deliver(stage.completed(each))
    assert (await stage.graph_row()).etag == before


@pytest.mark.parametrize("local", ["memory"], indirect=True)
async def test_five_thousand_leaves(local: Stage) -> None:
    requires: Requirements = {label: [] for label in numbered("a", 5000)}
    await local.submit(graph(requires))
    await local.check(requires)
    assert await local.work() == "finished"
    assert len(local.executed) == 5000
    assert set(local.executed.values()) == {1}
    assert await local.told() == ["graph-running", "graph-finished"]


@pytest.mark.parametrize("local", ["embedded"], indirect=True)
async def test_fan_in_of_five_thousand(local: Stage) -> None:
    requires = {**{label: [] for label in numbered("a", 5000)}, "Z": numbered("a", 5000)}
    await local.submit(graph(requires))
    detail = await local.queries.task("graph", "Z")
    assert len(detail.requires) == len(detail.requires_left) == 5000
    assert await local.work() == "finished"
    assert set(local.executed.values()) == {1}
    assert len(local.executed) == 5001
    await local.check(requires)


@pytest.mark.parametrize("local", ["embedded"], indirect=True)
async def test_fan_out_to_five_thousand(local: Stage) -> None:
    requires = {"A": [], **{label: ["A"] for label in numbered("b", 5000)}}
    await local.submit(graph(requires))
    assert len((await local.queries.task("graph", "A")).dependents) == 5000
    assert await local.offered() == [("A", 0)]
    await local.complete("A")
    assert await local.offered() == [(label, 0) for label in numbered("b", 5000)]
    assert set((await local.states()).values()) == {"completed", "pending"}
    await local.check(requires)


async def test_the_failure_of_one_of_many_is_seen_by_all(stage: Stage) -> None:
    """A join waits like any task: the one that failed is rerun, and then it fires."""
    requires = {**{label: [] for label in numbered("a", 120)}, "Z": numbered("a", 120)}
    await stage.submit(graph(requires))
    held = await stage.claims(*numbered("a", 120))
    await stage.deliver(*(stage.completed(each) for each in held[:-1]), stage.failed(held[-1]))
    assert await stage.state() == "blocked"
    assert await stage.task_state("Z") == "unscheduled"
    assert (await stage.queries.task("graph", "Z")).requires_left == ["a0119"]
    assert (await stage.rerun("a0119")).outcome is Outcome.APPLIED
    await stage.complete("a0119")
    assert await stage.task_state("Z") == "pending"
    await stage.complete("Z")
    assert await stage.state() == "finished"


@pytest.mark.parametrize("width", [100, 300])
async def test_wide_layers_that_are_joined_crosswise(local: Stage, width: int) -> None:
    """Every task of one layer before every task of the next, through one task in between."""
    first, second = numbered("a", width), numbered("b", width)
    requires = {**{label: [] for label in first}, "gate": first, **{label: ["gate"] for label in second}}
    await local.submit(graph(requires))
    await local.check(requires)
    assert await local.work() == "finished"
    assert set(local.executed.values()) == {1}
    assert len(local.executed) == 2 * width + 1
    await local.check(requires)
