"""Graphs that were cancelled or deleted by people are sound: `doctor` and the workers find nothing wrong with them."""

import asyncio

import pytest

from taskgraph.engine.delete import delete
from taskgraph.engine.doctor import examine_graph
from taskgraph.model.messages import Cancel, RunTasks, to_text
from taskgraph.model.states import FailurePolicy
from taskgraph.protocol.invariants.findings import Severity
from taskgraph.storage.tables import Merge
from tests.scenarios.crew import Calls, Crew, Script, virtually
from tests.scenarios.stage import Stage, graph
from tests.scenarios.test_retention import Shelf


@pytest.mark.parametrize("failing", ["a", "b"])
async def test_a_task_that_was_cancelled_while_it_waited_is_no_finding(stage: Stage, failing: str) -> None:
    chain = {"a": [], "b": ["a"], "c": ["b"]}
    await stage.submit(graph(chain, failurePolicy=FailurePolicy.CONTINUE))
    await stage.deliver(Cancel(stage.graph_id, ((stage.task_id("c"), 0),), "not wanted"))
    await stage.work(fails={failing: 9})
    assert (await stage.states())["c"] == "cancelled"
    assert await stage.state() == "finished"
    examined = await examine_graph(stage.handlers, stage.poison, stage.graph_id)
    assert [each for each in examined.findings if each.severity is Severity.WRONG] == []


async def test_a_task_that_ran_though_it_should_not_and_was_cancelled_then_is_a_finding(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": ["a"]}, failurePolicy=FailurePolicy.CONTINUE))
    await stage.deliver(Cancel(stage.graph_id, ((stage.task_id("b"), 0),), "not wanted"))
    await stage.work(fails={"a": 9})
    row = await stage.row("b")
    await stage.tables.commit(stage.graph_id, [Merge(row.key, row.etag, {"started": stage.clock.now()})])
    examined = await examine_graph(stage.handlers, stage.poison, stage.graph_id)
    assert [each.code for each in examined.findings if each.severity is Severity.WRONG] == ["condition"]


@pytest.mark.parametrize("state", ["deleted", "deleting", "restoring"])
def test_what_workers_are_sent_of_a_graph_that_was_deleted_is_let_go(state: str) -> None:
    async def act(crew: Crew) -> None:
        stage = crew.stage
        await crew.submit({"a": []})
        await stage.deliver(Cancel(stage.graph_id, (), "not wanted"))
        await delete(stage.handlers, Shelf(), stage.graph_id)
        row = await stage.graph_row()
        await stage.tables.commit(stage.graph_id, [Merge(row.key, row.etag, {"state": state})])
        late = RunTasks(stage.graph_id, "default", ((stage.task_id("a"), 0),))
        await stage.queues.send(stage.handlers.names.work("default"), [to_text(late)])
        crew.start(*crew.together(Script(), Calls()))
        await asyncio.sleep(1200.0)
        assert await stage.queues.count(stage.handlers.names.work("default")) == 0
        assert await stage.poison.list() == []
        await crew.end()

    virtually(act)
