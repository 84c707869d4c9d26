"""What graphs cost is counted by all who work on them, and a graph whose budget is spent waits for a larger one."""

import dataclasses
from typing import Any

import pytest

from taskgraph.model.budget import DEFAULT_PRICES, Budget
from taskgraph.model.messages import HoldBack
from taskgraph.model.spent import Spent
from taskgraph.protocol.invariants.examine import examine
from taskgraph.protocol.invariants.standstill import causes
from taskgraph.queries.costs import cost_of
from taskgraph.queries.prices import forget_prices, prices_in, write_prices
from tests.scenarios.crew import Calls, Crew, Script, chain, fan, layers, virtually
from tests.scenarios.stage import Requirements, Stage, graph

PRICES = {"currency": "EUR", "date": "2030-01-31", "per10000": {"tables": 1.0}, "perHour": {"default": 3600.0}}
LONG = chain(40)


async def spent_by(stage: Stage) -> Spent:
    found = (await cost_of(stage.tables, stage.graph_id)).spent
    assert found is not None
    return found


@pytest.mark.parametrize("requires", [LONG, fan(200), layers(5, 40)], ids=["chain", "fan", "layers"])
@pytest.mark.parametrize("apart", [True, False], ids=["processes", "one process"])
def test_nearly_all_that_is_asked_of_the_store_is_counted(requires: Requirements, apart: bool) -> None:
    """What is missing came after the last fact: messages of the end that are deleted, and what a worker did last."""

    async def act(crew: Crew) -> None:
        await crew.submit(requires)
        submitted = (await spent_by(crew.stage)).tables
        calls = [Calls(), Calls()]
        if apart:
            crew.start(crew.consumer(calls[0]), crew.worker(Script(), calls[1], slots=4))
        else:
            crew.start(*crew.together(Script(), calls[0], slots=4))
        await crew.finish()
        asked = calls[0].counted() + calls[1].counted()
        spent = await spent_by(crew.stage)
        queues = asked["send"] + asked["receive"] + asked["delete"] + asked["renew"]
        assert abs(queues - spent.queues) <= 3, (asked, spent)  # the submitter has sent what was ready at first
        # One call may read many rows, each of which is a request, and some look at what belongs to no graph.
        assert spent.tables - submitted >= asked["commit"] - 5, (asked, spent)

    virtually(act)


@pytest.mark.parametrize("seconds", [0.25, 7.0])
def test_runs_count_for_as_long_as_they_took_and_not_for_their_wait(seconds: float) -> None:
    """Sixty tasks on two slots: they are claimed long before they begin."""

    async def act(crew: Crew) -> None:
        requires: dict[str, list[str]] = {f"t{number}": [] for number in range(60)}
        await crew.submit(requires)
        crew.start(*crew.together(Script(seconds=seconds), slots=2))
        await crew.finish()
        assert (await spent_by(crew.stage)).seconds == {"default": pytest.approx(60 * seconds, rel=0.02)}

    virtually(act)


def test_runs_of_a_chain_that_its_worker_continues_count_as_well() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit(LONG)
        crew.start(crew.consumer(), crew.worker(Script(seconds=0.25)))
        await crew.finish()
        assert (await spent_by(crew.stage)).seconds == {"default": pytest.approx(10.0, rel=0.02)}

    virtually(act)


async def budgeted(stage: Stage, amount: float, requires: Requirements, **more: Any) -> None:
    await write_prices(stage.tables, PRICES, stage.clock.now(), "ann")
    document = dataclasses.replace(graph(requires), budget=Budget(amount, **more))
    await stage.submit(document)


async def test_a_graph_pauses_itself_at_its_budget_is_raised_and_goes_on(stage: Stage) -> None:
    await budgeted(stage, 0.004, {f"t{number}": [f"t{number - 1}"] if number else [] for number in range(12)})
    assert await stage.work() == "running"
    facts = await stage.told()
    assert facts[1:] == ["graph-warned", "graph-overspent", "graph-paused"]
    assert 0 < len(stage.executed) < 12
    rows = {row.key: row for row in await stage.queries.partition(stage.graph_id)}
    (why, *_) = causes(stage.graph_id, rows, (), {}, stage.clock.now())
    assert why.text == "1 task is ready and held back: the graph is paused, as its budget is spent"
    assert why.remedy == f"taskgraph resume {stage.graph_id} --budget AMOUNT"
    cost = await cost_of(stage.tables, stage.graph_id)
    assert (cost.reached, cost.amount >= 0.004, cost.prices.currency) == ("over", True, "EUR")
    stage.clock.advance(600)
    await stage.sweep()
    assert await stage.work() == "running", "nothing but a larger budget lets it go on"
    stage.clock.advance(1)
    await stage.deliver(HoldBack(stage.graph_id, False, stage.clock.now().isoformat(), by="ann"))
    assert (await stage.told())[-1] == "graph-paused"
    stage.clock.advance(1)
    await stage.deliver(HoldBack(stage.graph_id, False, stage.clock.now().isoformat(), by="ann", budget=1.0))
    assert await stage.work() == "finished"
    assert set(stage.executed.values()) == {1}
    assert "graph-budgeted" in await stage.told()
    rows = {row.key: row for row in await stage.queries.partition(stage.graph_id)}
    assert not examine(stage.graph_id, rows, stage.clock.now())


async def test_a_graph_whose_budget_only_tells_goes_on_and_one_that_cancels_ends(local: Stage) -> None:
    requires = {f"t{number}": [f"t{number - 1}"] if number else [] for number in range(12)}
    await budgeted(local, 0.004, requires, on_exceeded="notify")
    assert await local.work() == "finished"
    assert "graph-overspent" in await local.told()
    local.graph_id = "another"
    await budgeted(local, 0.004, requires, on_exceeded="cancel")
    assert await local.work() == "cancelled"
    assert len(local.executed) < 24


async def test_without_a_list_the_prices_that_come_along_hold(local: Stage) -> None:
    assert await prices_in(local.tables) == DEFAULT_PRICES
    await write_prices(local.tables, PRICES, local.clock.now(), "ann")
    await write_prices(local.tables, {**PRICES, "currency": "USD"}, local.clock.now(), "ann")
    assert (await prices_in(local.tables)).currency == "USD"
    assert await forget_prices(local.tables)
    assert not await forget_prices(local.tables)
    assert await prices_in(local.tables) == DEFAULT_PRICES


async def test_a_process_that_is_new_goes_on_from_what_the_journal_says(local: Stage) -> None:
    await local.submit(graph({"a": [], "b": ["a"]}))
    held = await local.claim("a")
    before = await spent_by(local)
    local.handlers = local.more_handlers()
    await local.deliver(local.completed(held))
    after = await spent_by(local)
    assert after.tables > before.tables
