"""Adding tasks to a graph: small and large, again and again, and while other things happen."""

import json
from collections.abc import Sequence

import pytest

from taskgraph.engine.requests import answer_request
from taskgraph.model.errors import Conflict, NotFound, Refused
from taskgraph.model.messages import AddTasks, Cancel
from taskgraph.protocol.context import Outcome
from taskgraph.testing import MemoryQueues, MemoryTables
from tests.scenarios.stage import CrashError, Requirements, Stage, Trap, extension, graph, over_stores


def numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number:04}" for number in range(count)]


# --- yes and no ------------------------------------------------------------------------------------------------


async def test_extending_an_unknown_graph(stage: Stage) -> None:
    with pytest.raises(NotFound):
        await stage.stage_extension(extension({"B": []}))
    assert await stage.queries.partition("graph") == []


async def test_extending_a_graph_that_is_over_is_refused(stage: Stage) -> None:
    await stage.submit(graph({"A": []}))
    await stage.complete("A")
    before = await stage.snapshot()
    with pytest.raises(Refused) as caught:
        await stage.stage_extension(extension({"B": ["A"]}))
    assert caught.value.code == "not-running"
    assert "finished" in str(caught.value)
    assert await stage.snapshot() == before


async def test_a_blocked_graph_is_extended_and_goes_on_with_what_can_run(stage: Stage) -> None:
    """Below what failed, and beside it: one waits for the rerun, the other runs; and the graph stays blocked."""
    await stage.submit(graph({"A": [], "X": []}))
    held = await stage.claim("X")
    await stage.fail("A")
    assert await stage.extend(extension({"B": ["A"], "C": [], "D": ["X"]})) == "done"
    assert await stage.state() == "blocked"
    assert await stage.task_state("B") == "unscheduled"
    await stage.deliver(stage.completed(held))
    assert await stage.work() == "blocked"
    await stage.check({"A": [], "X": [], "B": ["A"], "C": [], "D": ["X"]})
    assert (await stage.told()).count("graph-blocked") == 1
    await stage.rerun("A")
    assert await stage.work() == "finished"
    assert set(stage.executed.values()) == {1}


async def test_a_blocked_graph_is_extended_below_a_task_that_was_cancelled(stage: Stage) -> None:
    await stage.submit(graph({"A": [], "X": []}))
    await stage.deliver(Cancel("graph", ((stage.task_id("A"), 0),)))
    assert await stage.extend(extension({"B": ["A"]})) == "done"
    assert await stage.work() == "blocked"
    await stage.rerun("A")
    assert await stage.work() == "finished"


async def test_a_large_extension_of_a_blocked_graph_comes_in(stage: Stage) -> None:
    await stage.submit(graph({"A": []}))
    await stage.fail("A")
    addition: Requirements = {label: ["A"] for label in numbered("n", 110)}
    assert await stage.extend(extension(addition)) == "done"
    await stage.rerun("A")
    assert await stage.work() == "finished"
    await stage.check({"A": [], **addition})


async def test_a_request_that_the_graph_outran_is_refused_by_the_handler(stage: Stage) -> None:
    """Put down while the graph ran, handled when it had finished: no trace but the answer."""
    await stage.submit(graph({"A": []}))
    staged = await stage.stage_extension(extension({"B": ["A"]}))
    await stage.complete("A")
    assert await stage.state() == "finished"
    await stage.pump()
    head = await stage.queries.request("graph", staged.request)
    assert (head["state"], "finished" in str(head["reason"])) == ("refused", True)
    assert await stage.states() == {"A": "completed"}
    assert await stage.told() == ["graph-running", "graph-finished"]
    await stage.check({"A": []})


async def test_a_refused_request_may_be_asked_again(stage: Stage) -> None:
    await stage.submit(graph({"A": []}))
    staged = await stage.stage_extension(extension({"C": ["B"]}))
    await stage.pump()
    assert (await stage.queries.request("graph", staged.request))["state"] == "refused"
    assert await stage.extend(extension({"B": ["A"]})) == "done"
    again = await stage.stage_extension(extension({"C": ["B"]}))
    assert (again.request, again.state) == (staged.request, "staged")
    await stage.pump()
    assert (await stage.queries.request("graph", staged.request))["state"] == "done"
    assert await stage.work() == "finished"


async def test_the_same_extension_again_is_the_same_request(stage: Stage) -> None:
    await stage.submit(graph({"A": []}))
    first = await stage.stage_extension(extension({"B": ["A"], "C": ["A"]}))
    second = await stage.stage_extension(extension({"C": ["A"], "B": ["A"]}))
    assert (first.request, first.state, second.state) == (second.request, "staged", "staged")
    await stage.pump()
    before = await stage.snapshot()
    third = await stage.stage_extension(extension({"B": ["A"], "C": ["A"]}))
    assert (third.request, third.state) == (first.request, "done")
    await stage.pump()
    assert await stage.snapshot() == before


async def test_a_request_id_stands_for_one_content(stage: Stage) -> None:
    await stage.submit(graph({"A": []}))
    await stage.stage_extension(extension({"B": ["A"]}), request="mine")
    with pytest.raises(Refused) as caught:
        await stage.stage_extension(extension({"C": ["A"]}), request="mine")
    assert caught.value.code == "different-content"
    await stage.pump()
    assert set(await stage.states()) == {"A", "B"}


async def test_the_same_content_under_two_request_ids(stage: Stage) -> None:
    """The second finds that every task is there, the same: nothing to add, and that is fine."""
    await stage.submit(graph({"A": []}))
    assert await stage.extend(extension({"B": ["A"]}), request="first") == "done"
    assert await stage.extend(extension({"B": ["A"]}), request="second") == "done"
    await stage.check({"A": [], "B": ["A"]})
    added = [event.fields["tasks"] for event in await stage.events() if event.kind == "graph-extended"]
    assert added == [1, 0]
    assert await stage.work() == "finished"


async def test_an_extension_may_hold_tasks_that_are_there_the_same(stage: Stage) -> None:
    await stage.submit(graph({"A": [], "B": ["A"]}))
    assert await stage.extend(extension({"A": [], "B": ["A"], "C": ["B"]})) == "done"
    requires = {"A": [], "B": ["A"], "C": ["B"]}
    await stage.check(requires)
    await stage.complete("A")
    assert await stage.extend(extension({**requires, "D": ["A", "C"]})) == "done"
    await stage.check({**requires, "D": ["A", "C"]})
    assert await stage.work() == "finished"


async def test_an_extension_with_a_different_task_is_refused_by_the_handler(stage: Stage) -> None:
    await stage.submit(graph({"A": [], "B": ["A"]}))
    staged = await stage.stage_extension(extension({"B": [], "C": ["B"]}))
    await stage.pump()
    head = await stage.queries.request("graph", staged.request)
    assert (head["state"], "“B”" in str(head["reason"])) == ("refused", True)
    await stage.check({"A": [], "B": ["A"]})
    assert await stage.work() == "finished"


async def test_an_extension_that_names_nobody_is_refused_by_the_handler(stage: Stage) -> None:
    await stage.submit(graph({"A": []}))
    staged = await stage.stage_extension(extension({"B": ["A", "nobody"]}))
    await stage.pump()
    head = await stage.queries.request("graph", staged.request)
    assert (head["state"], "“nobody”" in str(head["reason"])) == ("refused", True)
    await stage.check({"A": []})


# --- large ones ------------------------------------------------------------------------------------------------


async def old_tasks(stage: Stage) -> dict[str, list[str]]:
    """A graph with a completed, a running, a pending and a waiting task."""
    requires = {"done": [], "busy": [], "ready": [], "waits": ["ready"]}
    await stage.submit(graph(requires))
    await stage.complete("done")
    return requires


@pytest.mark.parametrize(("stage", "count"), over_stores(101, local=[60, 1000]), indirect=["stage"])
async def test_a_large_extension_linked_to_tasks_in_every_state(stage: Stage, count: int) -> None:
    requires = await old_tasks(stage)
    held = await stage.claim("busy")
    new = numbered("n", count)
    links: Sequence[list[str]] = (["done"], ["busy"], ["ready"], ["waits"], ["done", "busy"], ["done", "ready"], [])
    addition = {label: list(links[number % len(links)]) for number, label in enumerate(new)}
    addition["last"] = ["done", *new[::7]]
    staged = await stage.stage_extension(extension(addition))
    await stage.pump()
    assert (await stage.queries.request("graph", staged.request))["state"] == "done"
    await stage.check({**requires, **addition})
    states = await stage.states()
    assert {states[label] for label in new[0::7]} == {"pending"}, "what requires only completed tasks is ready at once"
    assert {states[label] for label in new[6::7]} == {"pending"}
    assert {states[label] for n in (1, 2, 3, 4, 5) for label in new[n::7]} == {"unscheduled"}
    await stage.deliver(stage.completed(held))
    assert {(await stage.task_state(label)) for label in new[4:8:7]} == {"pending"}
    assert await stage.work() == "finished"
    assert len(stage.executed) == len(requires) + len(addition)
    assert set(stage.executed.values()) == {1}
    await stage.check({**requires, **addition})
    assert (await stage.told()).count("graph-extended") == 1


def dies_after_acceptance() -> Trap:
    """The first commit of a large extension accepts it; nothing else of it is there yet."""
    return Trap(1, "after", "commit")


async def test_a_large_extension_holds_the_graph_open_from_its_acceptance_on(local: Stage) -> None:
    """The handler dies after it has accepted; every old task completes; the graph must not finish."""
    await local.submit(graph({"A": []}))
    addition: Requirements = {label: [] for label in numbered("n", 300)}
    staged = await local.stage_extension(extension(addition))
    with pytest.raises(CrashError):
        await answer_request(local.more_handlers(dies_after_acceptance()), "graph", staged.request)
    assert (await local.queries.request("graph", staged.request))["state"] == "accepted"
    await local.complete("A")
    assert await local.state() == "running"
    assert await local.work() == "finished"
    assert len(local.executed) == 301
    await local.check({"A": [], **addition})


async def test_extensions_go_one_after_the_other(stage: Stage) -> None:
    """A second one, handled while the first is half done, brings the first to its end before its own turn."""
    await stage.submit(graph({"A": []}))
    large = {label: ["A"] for label in numbered("n", 120)}
    first = await stage.stage_extension(extension(large), request="first")
    second = await stage.stage_extension(extension({"Z": ["n0000", "A"]}), request="second")
    await stage.forget_queues()
    with pytest.raises(CrashError):
        await answer_request(stage.more_handlers(Trap(2, "after", "commit")), "graph", first.request)
    assert (await stage.queries.request("graph", "first"))["state"] == "accepted"
    await stage.deliver(AddTasks("graph", second.request))
    assert (await stage.queries.request("graph", "first"))["state"] == "done"
    assert (await stage.queries.request("graph", "second"))["state"] == "done"
    requires = {"A": [], **large, "Z": ["n0000", "A"]}
    await stage.check(requires)
    stage.clock.advance(61)
    await stage.sweep()
    assert await stage.work() == "finished"
    assert len(stage.executed) == len(requires)


async def test_two_handlers_push_the_same_extension(stage: Stage) -> None:
    await stage.submit(graph({"A": []}))
    addition = {label: ["A"] for label in numbered("n", 250)}
    staged = await stage.stage_extension(extension(addition))
    message = AddTasks("graph", staged.request)
    other = stage.more_handlers()
    slow = stage.more_handlers(between=lambda: stage.deliver(message, handlers=other))
    await stage.deliver(message, handlers=slow)
    await stage.check({"A": [], **addition})
    assert (await stage.told()).count("graph-extended") == 1
    assert (await stage.graph_row()).columns["tasks"] == 251


@pytest.mark.parametrize("count", [1, 90, 101])
async def test_an_extension_that_is_crashed_anywhere_and_repeated(memory: Stage, count: int) -> None:
    """Killed before or after each of its storage calls, then delivered again: the rows are the same in the end."""
    requires = await old_tasks(memory)
    addition = {
        label: [["done"], ["ready", "done"], []][number % 3] for number, label in enumerate(numbered("n", count))
    }
    staged = await memory.stage_extension(extension(addition))
    message = AddTasks("graph", staged.request)
    assert isinstance(memory.tables, MemoryTables)
    origin = {name: dict(rows) for name, rows in memory.tables.partitions.items()}

    def again() -> Stage:
        tables = MemoryTables()
        tables.partitions = {name: dict(rows) for name, rows in origin.items()}
        made = Stage(tables, MemoryQueues(memory.clock), memory.clock)
        made._labels = memory._labels
        return made

    reference = again()
    trap = Trap()
    await reference.deliver(message, handlers=reference.more_handlers(trap))
    expected = await reference.snapshot()
    await reference.check({**requires, **addition})
    for at in range(1, len(trap.calls) + 1):
        for kind in ("before", "after", "unclear", "conflict"):
            stage = again()
            broken = Trap(at, kind)
            try:
                await stage.deliver(message, handlers=stage.more_handlers(broken))
            except CrashError:
                await stage.deliver(message)
            assert await stage.snapshot() == expected, (at, kind, trap.calls[at - 1])


# --- and what goes on meanwhile ----------------------------------------------------------------------------------


async def test_an_extension_racing_the_completion_of_the_last_task(stage: Stage) -> None:
    """The completion was read before, and is written after: it must see what was added, and not finish the graph."""
    await stage.submit(graph({"A": []}))
    done = stage.completed(await stage.claim("A"))
    staged = await stage.stage_extension(extension({"B": ["A"], "C": []}))
    slow = stage.more_handlers(between=lambda: stage.deliver(AddTasks("graph", staged.request)))
    await stage.deliver(done, handlers=slow)
    assert slow.counters.conflicts == 2, "over its own row, and then over the number of the event row"
    assert await stage.state() == "running"
    assert await stage.states() == {"A": "completed", "B": "pending", "C": "pending"}
    assert await stage.work() == "finished"
    assert await stage.told() == ["graph-running", "graph-extended", "graph-finished"]
    await stage.check({"A": [], "B": ["A"], "C": []})


async def test_the_completion_of_the_last_task_racing_an_extension(stage: Stage) -> None:
    """The other way round: the graph finishes while the extension is being decided, which is then refused."""
    await stage.submit(graph({"A": []}))
    done = stage.completed(await stage.claim("A"))
    staged = await stage.stage_extension(extension({"B": ["A"]}))
    slow = stage.more_handlers(between=lambda: stage.deliver(done))
    await stage.deliver(AddTasks("graph", staged.request), handlers=slow)
    assert await stage.state() == "finished"
    assert (await stage.queries.request("graph", staged.request))["state"] == "refused"
    assert await stage.states() == {"A": "completed"}


async def test_an_extension_racing_a_failure(stage: Stage) -> None:
    await stage.submit(graph({"A": [], "X": []}))
    broke = stage.failed(await stage.claim("A"))
    staged = await stage.stage_extension(extension({"B": ["A"]}))
    slow = stage.more_handlers(between=lambda: stage.deliver(broke))
    await stage.deliver(AddTasks("graph", staged.request), handlers=slow)
    assert await stage.state() == "blocked"
    assert (await stage.queries.request("graph", staged.request))["state"] == "done"
    await stage.check({"A": [], "X": [], "B": ["A"]})


async def test_a_large_extension_goes_on_in_a_graph_that_is_blocked_meanwhile(stage: Stage) -> None:
    """Accepted is accepted (S6): its tasks come in, and other branches of a blocked graph go on."""
    await stage.submit(graph({"A": []}))
    addition: Requirements = {label: [] for label in numbered("n", 110)}
    staged = await stage.stage_extension(extension(addition))
    await stage.forget_queues()
    with pytest.raises(CrashError):
        await answer_request(stage.more_handlers(dies_after_acceptance()), "graph", staged.request)
    assert (await stage.queries.request("graph", staged.request))["state"] == "accepted"
    await stage.fail("A")
    again = await stage.stage_extension(extension(addition))
    assert again.state == "accepted"
    assert await stage.work() == "blocked"
    stage.clock.advance(61)
    await stage.sweep()
    assert await stage.work() == "blocked"
    assert len(stage.executed) == 111
    await stage.rerun("A")
    assert await stage.work() == "finished"
    await stage.check({"A": [], **addition})


@pytest.mark.parametrize("state", ["pending", "running", "completed"])
@pytest.mark.parametrize("steps", [[90], [91], [60, 60], [89, 1, 1, 90]], ids=str)
async def test_an_old_task_gets_more_dependents_than_one_row_takes(local: Stage, steps: list[int], state: str) -> None:
    """Its dependents move into forks, whatever state it is in, and each is told exactly once."""
    requires: dict[str, list[str]] = {"A": [], "keep": []}
    await local.submit(graph(requires))
    held = await local.claim("A") if state == "running" else None
    if state == "completed":
        await local.complete("A")
    for step, count in enumerate(steps):
        addition = {label: ["A"] for label in numbered(f"n{step}-", count)}
        assert await local.extend(extension(addition)) == "done"
        requires |= addition
        await local.check(requires)
    if held is not None:
        await local.deliver(local.completed(held))
    elif state == "pending":
        await local.complete("A")
    await local.check(requires)
    assert set((await local.states()).values()) == {"completed", "pending"}
    assert await local.work() == "finished"
    assert len(local.executed) == len(requires)
    assert set(local.executed.values()) == {1}


async def test_a_hundred_small_extensions(memory: Stage) -> None:
    """Each with a leaf of its own: what the graph row waits for stays bounded, and the graph finishes once."""
    requires: dict[str, list[str]] = {"A": []}
    await memory.submit(graph(requires))
    for number in range(140):
        addition = {f"n{number}": ["A"], f"m{number}": []}
        assert await memory.extend(extension(addition)) == "done"
        requires |= addition
        await memory.check(requires)
        row = (await memory.graph_row()).columns
        assert len(json.loads(str(row["requires"]))) <= 64
        if number % 3 == 0:
            await memory.complete(f"m{number}")
    await memory.check(requires)
    assert await memory.work() == "finished"
    assert (await memory.told()).count("graph-finished") == 1
    assert set(memory.executed.values()) == {1}


async def test_an_extension_below_a_failed_task_waits_for_its_rerun(stage: Stage) -> None:
    await stage.submit(graph({"A": [], "X": []}))
    await stage.fail("A")
    await stage.rerun("A")
    assert await stage.extend(extension({"B": ["A"]})) == "done"
    await stage.fail("A")
    assert await stage.task_state("B") == "unscheduled"
    answer = await stage.rerun("A")
    assert answer.outcome is Outcome.APPLIED
    assert await stage.work() == "finished"


async def test_a_conflict_that_never_ends_releases_the_message(memory: Stage) -> None:
    """Others keep writing the same rows: given up after a bounded number of rounds, for redelivery to try again."""
    await memory.submit(graph({"A": []}))
    held = await memory.claim("A")
    inner = memory.tables

    class Busy(MemoryTables):
        async def commit(self, partition, changes):  # type: ignore[no-untyped-def]
            raise Conflict("somebody else was first")

        async def get(self, partition, keys):  # type: ignore[no-untyped-def]
            return await inner.get(partition, keys)

    other = Stage(Busy(), memory.queues, memory.clock)
    with pytest.raises(Conflict):
        await memory.deliver(memory.completed(held), handlers=other.handlers)
    assert other.handlers.counters.conflicts == 50
    assert await memory.task_state("A") == "running"
