"""Groups that grow: an extension puts tasks into them until they have ended, and what requires them waits for these."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import document_from_object
from taskgraph.engine.doctor import examine_graph
from taskgraph.engine.poison import Poison
from taskgraph.model.errors import InvalidGraph, StorageUnavailable
from taskgraph.model.messages import HoldBack
from taskgraph.model.states import by_group
from taskgraph.queries.groups import group_members
from taskgraph.worker.additions import add_tasks
from taskgraph.worker.executors.contract import Outcome, Work
from tests.scenarios.stage import Stage, Trap
from tests.simulation.bounds import CHUNKED, NARROWER, bounded

TASKS: dict[str, Any] = {"find": {}, "more": {"requires": ["find"]}, "after": {"requires": ["found"]}}
GROWS: dict[str, Any] = {"found": {"tasks": ["more"], "grows": True}, "all": {"tasks": ["found"]}}


def document(tasks: Any, groups: Any, **more: Any) -> GraphDocument:
    written = {label: {"task": {}, **node} for label, node in tasks.items()}
    kind: Any = more.pop("kind", "graph")
    return document_from_object({"tasks": written, "groups": groups, **more}, kind=kind)


def growth(*labels: str, group: str = "found", requires: str = "more", **more: Any) -> GraphDocument:
    tasks = {label: {"requires": [requires] if requires else []} for label in labels}
    return document(tasks, {group: {"tasks": list(labels), **more}}, kind="extension")


async def sound(stage: Stage) -> None:
    poison = Poison(stage.tables, stage.queues, stage.clock, stage.names)
    assert (await examine_graph(stage.handlers, poison, "graph")).findings == ()


@pytest.mark.parametrize("bounds", [{}, NARROWER, CHUNKED])
async def test_what_requires_the_group_waits_for_what_is_put_into_it(stage: Stage, bounds: dict[str, Any]) -> None:
    with bounded(bounds):
        await stage.submit(document(TASKS, GROWS))
        await stage.complete("find")
        labels = [f"x{number}" for number in range(9)]
        assert await stage.extend(growth(*labels)) == "done"
        await sound(stage)
        await stage.complete("more")
        for label in labels[:-1]:
            await stage.complete(label)
        assert (await stage.states())["after"] == "unscheduled"
        reason, *_ = await stage.queries.why("graph", "after")
        assert "1 of 10 tasks of group “found”" in reason.text
        await sound(stage)
        await stage.complete(labels[-1])
        assert (await stage.states())["after"] == "pending"
        assert (await stage.queries.task("graph", "x1")).status.groups == ["all", "found"]
        assert (await stage.queries.group("graph", "all")).tasks == 10
        assert len(await group_members(stage.tables, "graph", "found")) == 10
        assert await stage.work() == "finished"
        await sound(stage)


@pytest.mark.parametrize("bounds", [{}, NARROWER, CHUNKED])
async def test_it_grows_many_times_within_the_degree_of_a_row(local: Stage, bounds: dict[str, Any]) -> None:
    with bounded(bounds):
        await local.submit(document(TASKS, GROWS))
        await local.complete("find")
        for number in range(70):
            assert await local.extend(growth(f"x{number}")) == "done"
        assert (await local.queries.group("graph", "found")).tasks == 71
        await sound(local)
        await local.complete("more")
        for number in range(69):
            await local.complete(f"x{number}")
        assert (await local.states())["after"] == "unscheduled"
        await local.complete("x69")
        assert (await local.states())["after"] == "pending"
        assert await local.work() == "finished"
        await sound(local)


async def test_a_rerun_takes_back_what_was_put_into_it(stage: Stage) -> None:
    await stage.submit(document(TASKS, GROWS))
    await stage.complete("find")
    assert await stage.extend(growth("x", "y")) == "done"
    for label in ("more", "x", "y", "after"):
        await stage.complete(label)
    assert await stage.state() == "finished"
    await stage.rerun("find")
    states = await stage.states()
    assert {states[label] for label in ("more", "x", "y", "after")} == {"unscheduled"}
    await stage.complete("find")
    assert await stage.extend(growth("x", "y")) == "done"
    assert await stage.extend(growth("y", "z")) == "done"
    for label in ("more", "x", "y"):
        await stage.complete(label)
    assert (await stage.states())["after"] == "unscheduled"
    assert await stage.work() == "finished"
    assert (await stage.queries.group("graph", "found")).tasks == 4
    await sound(stage)


async def test_a_group_that_has_ended_gets_no_task(stage: Stage) -> None:
    await stage.submit(document(TASKS, GROWS))
    for label in ("find", "more"):
        await stage.complete(label)
    assert await refusal(stage, growth("x")) == "the group “found” has ended, and gets no task any more"
    assert await stage.work() == "finished"


async def refusal(stage: Stage, more: GraphDocument) -> str:
    staged = await stage.stage_extension(more)
    await stage.pump()
    head = await stage.queries.request("graph", staged.request)
    assert head["state"] == "refused"
    return str(head["reason"])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            growth("find", requires=""),
            "the graph already has the task “find”, which cannot be put into a group any more",
        ),
        (growth("x", group="still"), "the graph already has a task or group “still”, and a group stays as it was"),
        (
            growth("x", requires="after"),
            "“x” would wait for itself: it requires “after”, which requires the group “found”",
        ),
        (growth("x", requires="all"), "“x” would wait for itself: it requires “all”, which requires the group “found”"),
        (
            document(
                {"y": {"requires": ["after"]}, "x": {"requires": ["y"]}}, {"found": {"tasks": ["x"]}}, kind="extension"
            ),
            "“y” would wait for itself: it requires “after”",
        ),
        (growth("x", maxInFlight=3), "the group “found” is there already: an extension names its new tasks alone"),
        (
            document({"x": {}}, {"found": {"tasks": ["x"]}, "outer": {"tasks": ["found"]}}, kind="extension"),
            "the graph already has the group “found”, which cannot be put into another one any more",
        ),
    ],
)
async def test_growth_that_is_refused(memory: Stage, more: GraphDocument, words: str) -> None:
    await memory.submit(document(TASKS, {**GROWS, "still": {"tasks": ["after"]}}))
    assert words in await refusal(memory, more)


async def test_a_task_beside_the_group_may_require_all_of_it(memory: Stage) -> None:
    await memory.submit(document(TASKS, GROWS))
    await memory.complete("find")
    tasks = {"x": {"requires": ["more"]}, "last": {"requires": ["found"]}, "late": {"requires": ["all"]}}
    assert await memory.extend(document(tasks, {"found": {"tasks": ["x"]}}, kind="extension")) == "done"
    await memory.complete("more")
    assert (await memory.queries.task("graph", "last")).requires == ["more", "x"]
    assert {(await memory.states())[label] for label in ("last", "late", "after")} == {"unscheduled"}
    await memory.complete("x")
    assert {(await memory.states())[label] for label in ("last", "late", "after")} == {"pending"}
    await sound(memory)


async def test_new_tasks_are_under_what_holds_and_limits_the_group(memory: Stage) -> None:
    groups = {"found": {"tasks": ["more"], "grows": True, "maxInFlight": 1}, "all": {"tasks": ["found"]}}
    await memory.submit(document(TASKS, groups))
    await memory.complete("find")
    await memory.deliver(HoldBack("graph", True, "2026-01-01T00:00:00+00:00", "all"))
    assert await memory.extend(growth("x", "y", requires="find")) == "done"
    row = await memory.row("x")
    assert row.columns["held"] == f'["{by_group("all")}"]'
    assert "group-" in str(row.columns["limits"])
    assert (await memory.states())["x"] == "pending"
    assert ("x", 0) not in await memory.offered()
    await memory.deliver(HoldBack("graph", False, "2026-01-01T00:00:01+00:00", "all"))
    assert await memory.work() == "finished"
    await sound(memory)


def test_a_group_that_counts_does_not_grow() -> None:
    groups = {"found": {"tasks": ["more"], "grows": True}, "outer": {"tasks": ["found"], "success": {"atLeast": 1}}}
    with pytest.raises(InvalidGraph) as refused:
        document(TASKS, groups, failurePolicy="continue")
    (problem,) = refused.value.problems
    assert "an extension may put more into “found”" in problem.message


async def test_a_failure_in_it_is_passed_on(stage: Stage) -> None:
    tasks = {**TASKS, "alarm": {"requires": ["found"], "when": "any-failed"}}
    await stage.submit(document(tasks, GROWS, failurePolicy="continue"))
    await stage.complete("find")
    assert await stage.extend(growth("x", "y")) == "done"
    await stage.complete("more")
    await stage.fail("x")
    assert (await stage.states())["alarm"] == "unscheduled"
    await stage.complete("y")
    states = await stage.states()
    assert (states["after"], states["alarm"]) == ("skipped", "pending")
    assert await stage.work() == "finished"
    await sound(stage)


# --- a run that adds tasks to its own group ------------------------------------------------------------------------

FOUND: dict[str, Any] = {
    "tasks": {"expand it": {"task": {}}, "last": {"requires": ["it"], "task": {}}},
    "groups": {"it": {"tasks": ["expand it"], "grows": True}},
}


async def added(stage: Stage, adds: Mapping[str, Any]) -> Outcome:
    """The outcome of a run that adds these, while handlers are at work."""
    work = Work("graph", stage.task_id("expand it"), 0, "expand it", "c", {})
    run = asyncio.create_task(add_tasks(stage.handlers, work, adds, Outcome(failed=False)))
    while not run.done():
        await stage.pump()
        await asyncio.sleep(0)
    return run.result()


async def test_the_run_ends_once_its_tasks_are_accepted(memory: Stage) -> None:
    await memory.submit(document_from_object(FOUND))
    adds = {"tasks": {"x": {"requires": ["expand it"], "task": {}}}, "groups": {"it": {"tasks": ["x"]}}}
    for _ in range(2):  # a run that was lost asks again
        assert not (await added(memory, adds)).failed
    assert (await memory.states())["x"] == "unscheduled"
    memory._know(["x"])
    assert not (await added(memory, {})).failed
    assert await memory.work() == "finished"
    late = {"tasks": {"y": {"task": {}}}, "groups": {"it": {"tasks": ["y"]}}}
    assert "only one that runs or is blocked can be extended" in (await added(memory, late)).reason


async def test_why_tasks_cannot_be_added(memory: Stage) -> None:
    await memory.submit(document_from_object(FOUND))
    clash = {"tasks": {"last": {"task": {}}}, "groups": {"it": {"tasks": ["last"]}}}
    assert "already has a different task “last”" in (await added(memory, clash)).reason
    assert "its tasks cannot be added: The label" in (await added(memory, {"tasks": {"x" * 300: {}}})).reason


async def test_a_store_that_is_down_is_no_failure_of_the_task(memory: Stage) -> None:
    await memory.submit(document_from_object(FOUND))
    handlers = memory.more_handlers(Trap(1, "unavailable"))
    work = Work("graph", memory.task_id("expand it"), 0, "expand it", "c", {})
    with pytest.raises(StorageUnavailable):
        await add_tasks(handlers, work, {"tasks": {"x": {"task": {}}}}, Outcome(failed=False))
