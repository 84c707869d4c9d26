"""Scenarios of the scheduler that came after the old one, where dependencies live inside the queue.

What it has and this one does not (sealing and cancelling groups, priorities, `all-resolved`) is left out or, where a
rule of ours stands in its place, translated in the docstring.
"""

import itertools

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.engine.submission import Submitted
from taskgraph.model import limits
from taskgraph.model.errors import InvalidGraph, NotFound, Refused
from taskgraph.model.messages import Rerun
from taskgraph.protocol.context import Outcome
from tests.scenarios.stage import PAST_LEASE_SECONDS, Stage, graph, graph_object, over_stores


async def test_successor_fan_out(stage: Stage) -> None:
    """A ← B, C, D, E: all of them once A is complete, none before."""
    requires = {"A": [], **{label: ["A"] for label in "BCDE"}}
    await stage.submit(graph(requires))
    assert await stage.offered() == [("A", 0)]
    assert set((await stage.states()).values()) == {"pending", "unscheduled"}
    await stage.complete("A")
    assert await stage.offered() == [(label, 0) for label in "BCDE"]
    for label in "BCDE":
        assert await stage.state() == "running"
        await stage.complete(label)
    assert await stage.state() == "finished"
    await stage.check(requires)


@pytest.mark.parametrize("first", ["A", "B"])
async def test_successor_diamond(stage: Stage, first: str) -> None:
    """C requires A and B, D requires A, and what comes last requires both."""
    requires = {"A": [], "B": [], "C": ["A", "B"], "D": ["A"], "E": ["C", "D"]}
    await stage.submit(graph(requires))
    await stage.offered()
    second = "B" if first == "A" else "A"
    await stage.complete(first)
    assert await stage.offered() == ([("D", 0)] if first == "A" else [])
    await stage.complete(second)
    assert await stage.offered() == ([("C", 0)] if first == "A" else [("C", 0), ("D", 0)])
    await stage.complete("D")
    assert await stage.task_state("E") == "unscheduled"
    await stage.complete("C")
    await stage.complete("E")
    assert await stage.state() == "finished"
    await stage.check(requires)


def test_successor_self_dependency() -> None:
    """There the task stayed unscheduled until somebody forced it; here no such graph comes in."""
    with pytest.raises(InvalidGraph) as caught:
        document_from_object(graph_object({"A": ["A"]}))
    assert [(each.pointer, each.code) for each in caught.value.problems] == [
        ("/tasks/A/requires/0", "self-requirement")
    ]


def test_successor_missing_dependency() -> None:
    with pytest.raises(InvalidGraph) as caught:
        document_from_object(graph_object({"A": [], "B": ["A", "nobody"]}))
    assert [(each.pointer, each.code) for each in caught.value.problems] == [("/tasks/B/requires/1", "unknown-label")]


@pytest.mark.parametrize("exception", [False, True], ids=["failed", "exception"])
async def test_successor_what_requires_a_failed_task_stays_unscheduled(stage: Stage, exception: bool) -> None:
    await stage.submit(graph({"A": [], "B": ["A"]}))
    await stage.offered()
    await stage.fail("A", exception=exception)
    assert await stage.states() == {"A": "exception" if exception else "failed", "B": "unscheduled"}
    assert await stage.offered() == []
    stage.clock.advance(limits.REDISPATCH_SECONDS + 1)
    await stage.sweep()
    assert await stage.offered() == []


@pytest.mark.parametrize("names", list(itertools.permutations("XYZ")), ids="".join)
async def test_successor_each_dependent_counts_for_itself(memory: Stage, names: tuple[str, str, str]) -> None:
    """One dependent that still waits must not keep others from being scheduled, whatever the order of ids (#7829)."""
    waits, goes, other = names
    await memory.submit(graph({"A": [], other: [], waits: ["A", other], goes: ["A"]}))
    await memory.complete("A")
    assert (await memory.task_state(waits), await memory.task_state(goes)) == ("unscheduled", "pending")


@pytest.mark.parametrize(("stage", "count"), over_stores(101, local=[90, 91, 182]), indirect=["stage"])
async def test_successor_more_than_a_hundred_dependents(stage: Stage, count: int) -> None:
    """All of them are scheduled, not only those that one batch takes (#3366)."""
    requires = {"A": [], **{f"B{number:03}": ["A"] for number in range(count)}}
    await stage.submit(graph(requires))
    await stage.check(requires)
    await stage.offered()
    await stage.complete("A")
    assert await stage.offered() == [(f"B{number:03}", 0) for number in range(count)]
    await stage.check(requires)


@pytest.mark.parametrize(("stage", "count"), over_stores(97, local=[96, 100, 200]), indirect=["stage"])
async def test_successor_dependency_limit(stage: Stage, count: int) -> None:
    """There is none to run into: a task that requires more than a row takes waits for all of them, through joins."""
    requires = {**{f"A{number:03}": [] for number in range(count)}, "Z": [f"A{number:03}" for number in range(count)]}
    await stage.submit(graph(requires))
    await stage.check(requires)
    held = await stage.claims(*requires["Z"])
    await stage.offered()
    await stage.deliver(stage.completed(*held[1:]))
    await stage.check(requires)
    assert await stage.task_state("Z") == "unscheduled"
    await stage.deliver(stage.completed(held[0]))
    assert await stage.offered() == [("Z", 0)]
    await stage.check(requires)


# --- reruns by hand --------------------------------------------------------------------------------------------


async def test_successor_rerun_of_a_pending_task_changes_nothing(stage: Stage) -> None:
    await stage.submit(graph({"A": []}))
    await stage.fail("A")
    assert (await stage.rerun("A", 0)).outcome is Outcome.APPLIED
    before = await stage.snapshot()
    assert (await stage.rerun("A", 0)).outcome is Outcome.REPEATED
    assert (await stage.rerun("A", 1)).outcome is Outcome.REFUSED
    assert await stage.snapshot() == before
    assert set(await stage.offered()) == {("A", 0), ("A", 1)}


async def test_successor_rerun_of_a_running_task_is_refused(stage: Stage) -> None:
    await stage.submit(graph({"A": []}))
    held = await stage.claim("A")
    assert (await stage.rerun("A")).outcome is Outcome.REFUSED
    await stage.deliver(stage.completed(held))
    assert await stage.state() == "finished"


async def test_successor_rerun_of_a_completed_task(stage: Stage) -> None:
    """There dependents ran beside it; here they wait for it again."""
    await stage.submit(graph({"A": [], "B": ["A"]}))
    await stage.complete("A")
    held = await stage.claim("B")
    assert (await stage.rerun("A")).outcome is Outcome.APPLIED
    assert await stage.states() == {"A": "pending", "B": "unscheduled"}
    (handled,) = await stage.deliver(stage.completed(held))
    assert [answer.outcome for answer in handled.answers] == [Outcome.STALE]
    await stage.complete("A")
    await stage.complete("B")
    assert await stage.state() == "finished"


@pytest.mark.parametrize("exception", [False, True], ids=["failed", "exception"])
async def test_successor_rerun_of_a_failed_task(stage: Stage, exception: bool) -> None:
    await stage.submit(graph({"A": [], "B": ["A"]}))
    await stage.fail("A", exception=exception)
    await stage.offered()
    assert (await stage.rerun("A")).outcome is Outcome.APPLIED
    assert await stage.offered() == [("A", 1)]
    assert await stage.state() == "running"
    await stage.complete("A")
    await stage.complete("B")
    assert await stage.state() == "finished"
    row = (await stage.row("A")).columns
    assert (row["run"], row["manualReruns"]) == (1, 1)


async def test_successor_rerun_of_an_unknown_task(stage: Stage) -> None:
    await stage.submit(graph({"A": []}))
    (handled,) = await stage.handlers.handle("graph", [Rerun("graph", ((stage.task_id("nobody"), 0),))])
    assert isinstance(handled.error, NotFound)


async def test_successor_rerun_in_an_unknown_graph(stage: Stage) -> None:
    (handled,) = await stage.handlers.handle("nowhere", [Rerun("nowhere", ((stage.task_id("A"), 0),))])
    assert isinstance(handled.error, NotFound)


async def test_successor_a_rerun_that_speaks_of_an_earlier_run(stage: Stage) -> None:
    await stage.submit(graph({"A": []}, reruns={"A": 1}))
    await stage.fail("A")
    await stage.fail("A")
    assert (await stage.rerun("A", 0)).outcome is Outcome.STALE
    assert await stage.task_state("A") == "failed"


# --- claims ----------------------------------------------------------------------------------------------------


async def test_successor_an_expired_claim_is_a_retry(stage: Stage) -> None:
    """It spends a retry and no rerun, and the next claim gets a run of its own."""
    await stage.submit(graph({"A": []}, reruns={"A": 1}))
    await stage.offered()
    held = await stage.claim("A", worker="first")
    assert (await stage.lose(held)).outcome is Outcome.REFUSED, "its lease has not ended"
    stage.clock.advance(PAST_LEASE_SECONDS)
    assert (await stage.lose(held)).outcome is Outcome.APPLIED
    row = (await stage.row("A")).columns
    assert (row["state"], row["run"], row["rerunsLeft"]) == ("pending", 1, 1)
    assert row["retriesLeft"] == limits.RETRIES_DEFAULT - 1
    assert await stage.offered() == [("A", 1)]
    await stage.complete("A")
    assert await stage.state() == "finished"
    detail = await stage.queries.task("graph", "A")
    assert [(run["run"], run["outcome"], run["worker"]) for run in detail.status.runs] == [(0, "lost", "first")]


async def test_successor_retries_used_up_is_an_exception(stage: Stage) -> None:
    await stage.submit(graph({"A": [], "B": ["A"]}, reruns={"A": 3}))
    for _ in range(limits.RETRIES_DEFAULT):
        held = await stage.claim("A")
        stage.clock.advance(PAST_LEASE_SECONDS)
        await stage.lose(held)
        assert await stage.task_state("A") == "pending"
    held = await stage.claim("A")
    stage.clock.advance(PAST_LEASE_SECONDS)
    await stage.lose(held)
    row = (await stage.row("A")).columns
    assert (row["state"], row["retriesLeft"], row["rerunsLeft"]) == ("exception", 0, 3)
    assert await stage.state() == "blocked"
    assert (await stage.told(tasks=True))[-2:] == ["task-exception", "graph-blocked"]
    assert (await stage.rerun("A")).outcome is Outcome.APPLIED
    assert await stage.work() == "finished"


async def test_successor_a_worker_that_comes_too_late(stage: Stage) -> None:
    """The result of a run whose claim has expired is not believed."""
    await stage.submit(graph({"A": [], "B": ["A"]}))
    zombie = await stage.claim("A")
    stage.clock.advance(PAST_LEASE_SECONDS)
    await stage.lose(zombie)
    (handled,) = await stage.deliver(stage.completed(zombie))
    assert handled.answers[0].outcome is Outcome.STALE
    assert await stage.states() == {"A": "pending", "B": "unscheduled"}
    heir = await stage.claim("A")
    (handled,) = await stage.deliver(stage.failed(zombie))
    assert handled.answers[0].outcome is Outcome.STALE
    await stage.deliver(stage.completed(heir))
    assert await stage.states() == {"A": "completed", "B": "pending"}


# --- saying it again -------------------------------------------------------------------------------------------


async def test_successor_creating_again_in_other_words(stage: Stage) -> None:
    """Order of keys and of requirements, and defaults written out or left out, make no other graph."""
    first = {
        "tasks": {
            "A": {"task": {}},
            "B": {"task": {"payload": {"x": 1, "y": 2}}, "requires": []},
            "C": {"requires": ["A", "B"], "task": {}},
        },
        "tags": {"k": "v", "l": "w"},
    }
    second = {
        "tags": {"l": "w", "k": "v"},
        "routing": "",
        "metadata": {},
        "tasks": {
            "C": {"requires": ["B", "A"], "reruns": 0, "task": {"target": "default"}},
            "B": {"task": {"payload": {"y": 2, "x": 1}}},
            "A": {"requires": [], "task": {"routing": ""}},
        },
    }
    await stage.submit(document_from_object(first))
    assert (await stage.submit(document_from_object(second))).outcome is Submitted.EXISTING


@pytest.mark.parametrize(
    "change",
    [
        {"reruns": {"A": 1}},
        {"tags": {"k": "v"}},
        {"metadata": {"name": "n"}},
        {"routing": "r"},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_successor_creating_something_else_under_the_same_id(stage: Stage, change: dict[str, object]) -> None:
    requires = {"A": [], "B": ["A"]}
    await stage.submit(graph(requires))
    before = await stage.snapshot()
    with pytest.raises(Refused) as caught:
        await stage.submit(graph(requires, **change))  # type: ignore[arg-type]
    assert caught.value.code == "different-content"
    assert await stage.snapshot() == before


async def test_successor_creating_again_once_it_has_moved_on(stage: Stage) -> None:
    """A lost answer to the submission of a graph that was quick is no conflict: only the content counts."""
    document = graph({"A": [], "B": []})
    await stage.submit(document)
    await stage.fail("B")
    assert await stage.state() == "blocked"
    assert (await stage.submit(document)).outcome is Submitted.EXISTING
    await stage.rerun("B")
    assert await stage.work() == "finished"
    assert (await stage.submit(document)).outcome is Submitted.EXISTING
    assert await stage.state() == "finished"
    assert await stage.work() == "finished"
    assert set(stage.executed.values()) == {1}


async def test_successor_all_resolved_and_other_keys_are_refused() -> None:
    """A task that wants to run although what it requires has failed has no place in the schema."""
    obj = graph_object({"A": [], "B": ["A"]})
    obj["tasks"]["B"]["requiresMode"] = "all-resolved"
    with pytest.raises(InvalidGraph) as caught:
        document_from_object(obj)
    assert [each.pointer for each in caught.value.problems] == ["/tasks/B/requiresMode"]
