"""Killed at every storage call, one after the other, and said again: nothing is lost and nothing happens twice."""

import itertools
from collections.abc import Callable

import pytest

from taskgraph.documents.nodes import GraphDocument
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.submission import Submitted
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, StorageUnavailable
from tests.scenarios.stage import CrashError, Stage, Trap, graph, memory_stage

KINDS = ("before", "after", "unclear", "conflict", "unavailable")
SMALL = graph({"a": [], "b": ["a"], "c": ["a", "b"], "d": []}, reruns={"b": 1}, tags={"k": "v"})
WIDE = graph(
    {
        "a": [],
        **{f"m{number:03}": ["a"] for number in range(110)},
        "z": [f"m{number:03}" for number in range(110)],
        **{f"leaf{number:02}": [] for number in range(55)},
    }
)


async def submitted(stage: Stage, document: GraphDocument) -> dict[str, dict[str, object]]:
    """The rows of a submission that nothing disturbed, once it has finished."""
    await stage.submit(document)
    await stage.check(document)
    assert await stage.work(fails={"b": 1}) == "finished"
    return await stage.snapshot()


async def submit_crashing(stage: Stage, document: GraphDocument, trap: Trap) -> None:
    """Submit on a store that fails once; what did not come to its end is said again."""
    try:
        await stage.submit(document, handlers=stage.more_handlers(trap))
    except (CrashError, StorageUnavailable, Conflict):
        (before,) = await stage.tables.get(stage.graph_id, ["task-graph"])
        again = await stage.submit(document)
        if before is None:
            assert again.outcome is Submitted.CREATED
        elif before.columns["state"] == "submitting":
            assert again.outcome is Submitted.RESUMED
        else:
            assert again.outcome is Submitted.EXISTING
    assert (again_outcome := (await stage.submit(document)).outcome) is Submitted.EXISTING, again_outcome
    await stage.check(document)
    stage.clock.advance(limits.REDISPATCH_SECONDS)  # the roots may have been started and not sent
    await stage.sweep()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("document", "whole", "calls"),
    [(SMALL, 100, 5), (SMALL, 0, 8), (WIDE, 100, 8)],
    ids=["small", "in several", "wide"],
)
async def test_a_submission_that_is_crashed_anywhere_and_repeated(
    document: GraphDocument, whole: int, calls: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finished graph is identical to that of a submission which nothing disturbed."""
    monkeypatch.setattr(limits, "WHOLE_ROWS_MAX", whole)
    expected = await submitted(memory_stage(), document)
    for at in itertools.count(1):
        stage = memory_stage()
        trap = Trap(at, kind)
        await submit_crashing(stage, document, trap)
        assert await stage.work(fails={"b": 1}) == "finished"
        assert set(stage.executed.values()) == {1}
        assert await stage.snapshot() == expected, (at, trap.calls)
        if len(trap.calls) < at:
            assert at >= calls
            return


@pytest.mark.parametrize("kind", ["before", "after"])
@pytest.mark.parametrize("local", ["embedded"], indirect=True)
async def test_a_submission_that_is_crashed_anywhere_on_a_file(local: Stage, kind: str) -> None:
    """The same over the embedded store, with one graph for each storage call."""
    reference = await submitted(memory_stage(), SMALL)
    expected = {row["label"]: row["state"] for row in reference.values() if "label" in row}
    for at in itertools.count(1):
        stage = Stage(local.tables, local.queues, local.clock, prefix=local.names.prefix, kind=local.kind)
        stage.graph_id = f"graph-{at}"
        trap = Trap(at, kind)
        await submit_crashing(stage, SMALL, trap)
        assert await stage.work(fails={"b": 1}) == "finished"
        assert set(stage.executed.values()) == {1}
        assert await stage.states() == expected
        await stage.check(SMALL)
        if len(trap.calls) < at:
            return


async def test_a_half_written_submission_starts_nothing(stage: Stage) -> None:
    """Nothing of a graph moves before all of it is there (P10); the same call goes on, however late."""
    with pytest.raises(CrashError):
        await stage.submit(WIDE, handlers=stage.more_handlers(Trap(4, "after", "commit")))
    assert await stage.state() == "submitting"
    stage.clock.advance(3600.0)
    await stage.sweep()
    assert await stage.offered() == []
    assert await stage.told() == []
    assert (await stage.submit(WIDE)).outcome is Submitted.RESUMED
    await stage.check(WIDE)
    assert await stage.told() == ["graph-running"]
    assert [label for label, _ in await stage.offered() if not label.startswith("leaf")] == ["a"]


async def test_two_submissions_of_the_same_content_at_once(stage: Stage) -> None:
    other = stage.more_handlers()
    slow = stage.more_handlers(between=lambda: stage.submit(WIDE, handlers=other))
    answer = await stage.submit(WIDE, handlers=slow)
    assert answer.outcome in (Submitted.RESUMED, Submitted.EXISTING)
    await stage.check(WIDE)
    assert await stage.work() == "finished"
    assert set(stage.executed.values()) == {1}


async def play(stage: Stage, trap: Trap, document: GraphDocument) -> int:
    """One process does everything, dies once, and another one goes on from what is written and queued.

    Messages that the dead one had in hand come back when their lease has ended; runs that it held, the sweep gives up.
    """
    deaths = 0
    healthy = stage.handlers
    queues = stage.queues
    broken = stage.more_handlers(trap)
    stage.handlers, stage.queues = broken, broken.queues
    try:
        await stage.submit(document)
        await stage.work(fails={"b": 1})
    except (CrashError, StorageUnavailable, Conflict):
        deaths += 1
    stage.handlers, stage.queues = healthy, queues
    await stage.submit(document)
    for _ in range(6):
        if await stage.work(fails={"b": 1}) == "finished":
            return deaths
        stage.clock.advance(limits.REDISPATCH_SECONDS + 1)
        await stage.sweep()
    raise AssertionError(f"no end: {await stage.states()}")


@pytest.mark.parametrize("kind", KINDS)
async def test_one_death_at_any_storage_call_of_a_whole_graph(kind: str) -> None:
    """Submission, claims, results, handling: at whatever call, the graph finishes, and nothing was believed twice."""
    requires = {label: list(node.requires) for label, node in SMALL.tasks.items()}
    deaths = 0
    for at in itertools.count(1):
        stage = memory_stage()
        trap = Trap(at, kind)
        deaths += await play(stage, trap, SMALL)
        await stage.check(requires)
        told = await stage.told(tasks=True)
        assert told.count("task-completed") == len(requires), (at, trap.calls[-1])
        assert told.count("graph-running") == told.count("graph-finished") == 1
        assert "graph-blocked" not in told
        for label in requires:
            row = (await stage.row(label)).columns
            lost = limits.RETRIES_DEFAULT - int(row["retriesLeft"])
            assert row["run"] == lost + int(row["rerunsAllowed"]) - int(row["rerunsLeft"])
            assert lost <= 1
        if len(trap.calls) < at:
            break
    assert at > 40
    if kind in ("before", "after"):
        assert deaths == at - 1
    if kind in ("unclear", "conflict"):
        assert deaths == 0, "an answer that was lost is settled by reading, wherever it was lost"


@pytest.mark.parametrize("kind", ["unclear", "conflict"])
async def test_an_answer_that_was_lost_is_settled_by_reading(stage: Stage, kind: str) -> None:
    """The commit was applied and its answer lost, or answered with a conflict on the own write (P17)."""
    await stage.submit(graph({"a": [], "b": ["a"]}, reruns={"a": 1}))
    handlers: Callable[[], Handlers] = lambda: stage.more_handlers(Trap(1, kind, "commit"))  # noqa: E731
    failing, completing = handlers(), handlers()
    await stage.deliver(stage.failed(await stage.claim("a")), handlers=failing)
    assert (await stage.row("a")).columns["rerunsLeft"] == 0
    await stage.deliver(stage.completed(await stage.claim("a")), handlers=completing)
    assert failing.counters.conflicts == completing.counters.conflicts == 0
    assert await stage.told(tasks=True) == ["graph-running", "task-rerun", "task-completed"]
    await stage.complete("b")
    assert await stage.state() == "finished"
    assert [event.sequence for event in await stage.events()] == [1, 2, 3, 4, 4]
