"""Limits on tasks in flight: never more, whatever is under way; and nobody waits while there is room."""

import asyncio
import contextlib
import itertools
import json
from typing import Any

import pytest

from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import document_from_object
from taskgraph.engine import control, dispatch
from taskgraph.engine.doctor import examine_graph, repair_graph
from taskgraph.engine.sweep import sweep
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, InvalidGraph, NotFound, StorageUnavailable
from taskgraph.model.ids import limit_key, limit_scope
from taskgraph.model.messages import AddTasks, Cancel, SetLimit
from taskgraph.protocol import extension_plan, limited_backlog
from taskgraph.protocol.concurrency import scopes_of
from taskgraph.protocol.context import ClaimOffer, Outcome
from taskgraph.protocol.decide import Answer
from taskgraph.protocol.runs import Claim, Completed
from taskgraph.protocol.set_limit import ComeUnder
from taskgraph.storage.tables import Delete, Insert, Merge, Range, Row, query_all
from tests.scenarios.crew import Calls, Crew, Script, virtually
from tests.scenarios.stage import (
    PAST_LEASE_SECONDS,
    CrashError,
    Stage,
    Trap,
    extension,
    graph,
    graph_object,
    memory_stage,
)

KINDS = ("before", "after", "unclear", "conflict", "unavailable")
SIX = {label: [] for label in "abcdef"}


def limited(most: int, requires: Any = None, **more: Any) -> GraphDocument:
    return graph(SIX if requires is None else requires, maxInFlight=most, **more)


async def limit_row(stage: Stage, group: str = "") -> Row:
    (row,) = await stage.tables.get(stage.graph_id, [limit_key(limit_scope(stage.graph_id, group))])
    assert row is not None
    return row


async def in_flight(stage: Stage, group: str = "") -> list[str]:
    """Labels of the tasks that a limit counts; they are what runs."""
    members = json.loads(str((await limit_row(stage, group)).columns["inFlight"]))
    return sorted(stage.label(each.split(":")[0]) for each in members)


def change(stage: Stage, most: int, group: str = "") -> SetLimit:
    stage.clock.advance(1)
    return SetLimit(stage.graph_id, most, stage.clock.now().isoformat(), group)


# --- how many run


async def test_no_more_tasks_of_a_graph_are_sent_or_claimed_than_its_limit_allows(stage: Stage) -> None:
    await stage.submit(limited(2))
    told = [label for label, _ in await stage.offered()]
    others = [label for label in SIX if label not in told]
    assert len(told) == 2
    held = [await stage.claim(label) for label in told]
    answer = await stage.try_claim(others[0])
    assert answer.outcome is Outcome.STALE
    assert answer.reason == "limit of the graph: 2 of 2 in flight"
    assert await in_flight(stage) == told
    await stage.deliver(stage.completed(held[0]))
    ((next_one, _),) = await stage.offered()
    assert (await stage.try_claim(next_one)).outcome is Outcome.APPLIED
    assert (await stage.try_claim(next(each for each in others if each != next_one))).outcome is Outcome.STALE


async def test_two_claims_in_one_commit_are_counted_one_after_the_other(memory: Stage) -> None:
    await memory.submit(limited(1))
    lease = memory.clock.now()
    claims = [Claim(memory.task_id(label), 0, f"c-{label}", "w", lease) for label in "ab"]
    first, second = await memory.transition(*claims)
    assert (first.outcome, second.outcome) == (Outcome.APPLIED, Outcome.STALE)


async def test_of_two_claimers_at_once_one_looks_again(stage: Stage) -> None:
    await stage.submit(limited(1))
    rival = stage.more_handlers(between=lambda: stage.claim("b"))
    claim = Claim(stage.task_id("a"), 0, "mine", "w", stage.clock.now())
    (answer,) = await stage.transition(claim, handlers=rival)
    assert (answer.outcome, rival.counters.conflicts) == (Outcome.STALE, 1)
    assert await in_flight(stage) == ["b"]


@pytest.mark.parametrize("most", [1, 2, 5])
async def test_a_limited_graph_comes_to_its_end_without_a_sweep(stage: Stage, most: int) -> None:
    wide = {"start": [], **{f"m{n}": ["start"] for n in range(12)}, "end": [f"m{n}" for n in range(12)]}
    await stage.submit(limited(most, wide, reruns={"m3": 2}))
    assert await stage.work(fails={"m3": 2}) == "finished"
    assert await in_flight(stage) == []


async def test_a_task_is_under_the_limits_of_all_groups_that_it_is_in(stage: Stage) -> None:
    groups = {
        "outer": {"tasks": ["inner", "c", "d"], "maxInFlight": 2},
        "inner": {"tasks": ["a", "b"], "maxInFlight": 1},
    }
    await stage.submit(limited(3, SIX, groups=groups))
    await stage.claim("a")
    assert "limit of group “inner”: 1 of 1" in (await stage.try_claim("b")).reason
    await stage.claim("c")
    assert "limit of group “outer”: 2 of 2" in (await stage.try_claim("d")).reason
    await stage.claim("e")
    assert "limit of the graph: 3 of 3" in (await stage.try_claim("f")).reason
    assert (await in_flight(stage, "outer"), await in_flight(stage, "inner")) == (["a", "c"], ["a"])


async def test_a_limited_group_leaves_the_rest_of_the_graph_alone(stage: Stage) -> None:
    await stage.submit(graph(SIX, groups={"g": {"tasks": ["a", "b"], "maxInFlight": 1}}))
    assert len(await stage.offered()) == 5
    for label in "acdef":
        await stage.claim(label)
    row = await stage.row("c")
    assert "limits" not in row.columns
    assert "limited" not in row.columns


async def test_who_has_waited_longest_goes_first(memory: Stage) -> None:
    await memory.submit(limited(1, {"a": [], "b": ["a"], "c": []}))
    (first,) = await memory.offered()
    memory.clock.advance(5)
    await memory.complete(first[0])
    (second,) = await memory.offered()
    assert {first[0], second[0]} == {"a", "c"}, "what became ready later waits for what has waited"


@pytest.mark.parametrize("ending", ["failed", "exception", "handed back", "lost", "cancelled"])
async def test_however_a_run_ends_its_place_is_free_in_the_same_commit(memory: Stage, ending: str) -> None:
    await memory.submit(limited(1, {"a": [], "b": []}, reruns={"a": 1, "b": 1}))
    ((label, _),) = await memory.offered()
    held = await memory.claim(label)
    match ending:
        case "failed":
            await memory.deliver(memory.failed(held, reason="broke"))
        case "exception":
            await memory.deliver(memory.failed(held, exception=True, reason="broke"))
        case "handed back":
            await memory.hand_back(held)
        case "lost":
            memory.clock.advance(PAST_LEASE_SECONDS)
            await memory.lose(held)
        case _:
            await memory.deliver(Cancel(memory.graph_id, ((held.task_id, 0),), "", terminate=True))
    assert await in_flight(memory) == []
    assert len(await memory.offered()) == 1


async def test_what_becomes_ready_is_claimed_in_the_same_commit_while_there_is_room(memory: Stage) -> None:
    await memory.submit(limited(1, {"a": [], "b": ["a"], "c": ["a"]}))
    held = await memory.claim("a")

    class OneTaker:
        """Somebody who takes whatever there is."""

        def __init__(self) -> None:
            self.begun: list[str] = []
            self.kept: list[str] = []

        def wants(self, graph_id: str) -> bool:
            return False

        def items(self, graph_id: str) -> tuple[Completed, ...]:
            return ()

        def answered(self, *_: Any) -> None: ...

        def failed(self, *_: Any) -> None: ...

        def offer(self, graph_id: str) -> ClaimOffer:
            return ClaimOffer("w", memory.clock.now(), frozenset({"default"}), ["x", "y", "z"], lambda _: True)

        def started(self, graph_id: str, started: Any, rows: Any) -> None:
            self.begun += [memory.label(each.task_id) for each in started]

        def keep(self, graph_id: str, target: str, tasks: Any, rows: Any) -> Any:
            self.kept += [memory.label(task_id) for task_id, _ in tasks]
            return ()

    local_worker = OneTaker()
    await memory.handlers.handle(memory.graph_id, [memory.completed(held)], local_worker=local_worker)
    assert (len(local_worker.begun), local_worker.kept) == (1, [])
    assert await in_flight(memory) == local_worker.begun


# --- changing one


async def test_a_limit_is_raised_and_more_begin(stage: Stage) -> None:
    await stage.submit(limited(1))
    ((first, _),) = await stage.offered()
    held = await stage.claim(first)
    await stage.deliver(change(stage, 3))
    more = [label for label, _ in await stage.offered()]
    assert len(more) == 2
    for label in more:
        await stage.claim(label)
    await stage.deliver(change(stage, 1))
    await stage.deliver(stage.completed(held))
    last = next(label for label in SIX if label not in (first, *more))
    assert (await stage.try_claim(last)).reason == "limit of the graph: 2 of 1 in flight"
    await stage.deliver(change(stage, 0))
    assert (await limit_row(stage)).columns["max"] == limits.IN_FLIGHT_MAX
    told = [event for event in await stage.events() if event.kind == "graph-limited"]
    assert [(event.fields["max"], event.fields["was"]) for event in told] == [(3, 1), (1, 3), (1000, 1)]


async def test_of_two_changes_the_later_counts_in_whatever_order_they_come(memory: Stage) -> None:
    await memory.submit(limited(1))
    first, second = change(memory, 5), change(memory, 2)
    await memory.deliver(second)
    (late,) = await memory.deliver(first)
    (again,) = await memory.deliver(second)
    assert (late.answers[0].outcome, again.answers[0].outcome) == (Outcome.STALE, Outcome.REPEATED)
    assert (await limit_row(memory)).columns["max"] == 2


# --- a limit where there was none


async def named(stage: Stage, scope: str = "graph") -> list[str]:
    """Labels of the tasks that name a limit."""
    rows = await query_all(stage.tables, stage.graph_id, Range("task:", "task;"))
    return sorted(str(row.columns["label"]) for row in rows if scope in scopes_of(row.columns))


async def test_a_limit_is_set_while_a_graph_runs_and_what_runs_counts(stage: Stage) -> None:
    await stage.submit(graph({**SIX, "last": ["a"]}))
    held = [await stage.claim(label) for label in "ab"]
    await stage.complete("f")
    (handled,) = await stage.deliver(change(stage, 1))
    assert handled.answers[0].outcome is Outcome.APPLIED
    assert await in_flight(stage) == ["a", "b"]
    assert await named(stage) == ["a", "b", "c", "d", "e", "f", "last"], "what has completed may be rerun"
    assert (await stage.graph_row()).columns["limiting"] is False
    assert (await stage.try_claim("c")).reason == "limit of the graph: 2 of 1 in flight"
    await stage.deliver(stage.completed(held[0]))
    assert (await stage.try_claim("c")).reason == "limit of the graph: 1 of 1 in flight"
    await stage.deliver(stage.completed(held[1]))
    last = await stage.claim("c")
    assert (await stage.try_claim("d")).outcome is Outcome.STALE
    (fact,) = [event for event in await stage.events() if event.kind == "graph-limited"]
    assert (fact.fields["max"], "was" in fact.fields) == (1, False)
    await stage.deliver(stage.completed(last))
    assert await stage.work() == "finished"
    assert await in_flight(stage) == []


async def test_a_group_is_limited_with_the_groups_in_it(stage: Stage) -> None:
    groups = {"outer": {"tasks": ["inner", "c"]}, "inner": {"tasks": ["a", "b"]}}
    await stage.submit(graph(SIX, groups=groups))
    await stage.deliver(change(stage, 2, "outer"))
    await stage.deliver(change(stage, 1, "inner"))
    scope = limit_scope(stage.graph_id, "outer")
    assert await named(stage, scope) == ["a", "b", "c"]
    await stage.claims("a", "d", "e", "f")
    assert (await stage.try_claim("b")).reason == "limit of group “inner”: 1 of 1 in flight"
    await stage.claim("c")
    assert await in_flight(stage, "outer") == ["a", "c"]
    (handled,) = await stage.handlers.handle(stage.graph_id, [change(stage, 5, "nothing")])
    assert handled.answers[0].outcome is Outcome.STALE, "an edit may have taken such a group away since"


async def test_a_limit_that_is_not_set_is_not_taken_off(memory: Stage) -> None:
    await memory.submit(graph(SIX))
    (handled,) = await memory.deliver(change(memory, 0))
    assert handled.answers[0] == Answer(handled.answers[0].item, Outcome.REFUSED, "it has no limit")
    (handled,) = await memory.handlers.handle(memory.graph_id, [change(memory, 5, "nothing")])
    assert isinstance(handled.error, NotFound)


async def test_what_has_failed_is_under_the_limit_when_it_runs_again(memory: Stage) -> None:
    await memory.submit(graph({"a": [], "b": []}))
    await memory.fail("a")
    await memory.deliver(change(memory, 1))
    await memory.claim("b")
    await memory.rerun("a")
    assert (await memory.try_claim("a")).reason == "limit of the graph: 1 of 1 in flight"


async def test_an_extension_that_was_planned_before_a_limit_is_planned_anew(memory: Stage) -> None:
    await memory.submit(graph({"a": []}))
    request = (await memory.stage_extension(extension({"x": [], "y": ["a"]}))).request

    async def limit() -> None:
        await memory.handlers.handle(memory.graph_id, [change(memory, 1)])

    slow = memory.more_handlers(between=limit)
    await memory.deliver(AddTasks(memory.graph_id, request), handlers=slow)
    assert await memory.extend(extension({"x": [], "y": ["a"]})) == "done"
    assert await named(memory) == ["a", "x", "y"]
    assert (await memory.graph_row()).columns["limiting"] is False


async def test_tasks_come_in_by_no_plan_from_before_the_limit_they_were_accepted_with(memory: Stage) -> None:
    """The slow handler planned them before there was a limit, and another one accepted them after it."""
    await memory.submit(graph({"a": []}))
    labels = [f"x{number:03}" for number in range(150)]
    request = (await memory.stage_extension(extension({each: [] for each in labels}))).request

    async def limited_and_accepted() -> None:
        await memory.handlers.handle(memory.graph_id, [change(memory, 1)])
        assert (await memory.graph_row()).columns["limiting"] is False
        with contextlib.suppress(CrashError):
            dying = memory.more_handlers(Trap(1, "after", only="commit"))
            await dying.handle(memory.graph_id, [AddTasks(memory.graph_id, request)])
        assert (await memory.graph_row()).columns["extending"] == request

    slow = memory.more_handlers(between=limited_and_accepted)
    await memory.deliver(AddTasks(memory.graph_id, request), handlers=slow)
    assert await named(memory) == ["a", *labels]


async def test_no_limit_is_put_on_what_is_over_once_its_graph_has_ended(memory: Stage) -> None:
    await memory.submit(graph({"a": [], "b": []}))
    await memory.complete("a")
    with contextlib.suppress(CrashError):
        dying = memory.more_handlers(Trap(1, "after", only="commit"))
        await dying.handle(memory.graph_id, [change(memory, 1)])
    assert (await memory.graph_row()).columns["limiting"] is True
    scopes = scopes_of((await memory.graph_row()).columns)
    await memory.handlers.transition(memory.graph_id, [ComeUnder(memory.task_id("b"), scopes)])
    slow = memory.more_handlers(between=lambda: memory.complete("b"))
    await control.go_on_limiting(slow, memory.graph_id)
    assert await memory.state() == "finished"
    assert await named(memory) == ["b"], "a had ended, and its graph with b"


async def test_a_limit_waits_for_the_extension_under_way(memory: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMMIT_CHANGES_MAX", 8)
    monkeypatch.setattr(extension_plan, "_STEP_ROWS_MAX", 3)
    added = extension({f"x{n}": [] for n in range(9)})
    await memory.submit(graph({"a": [], "b": ["a"]}))
    request = (await memory.stage_extension(added)).request
    with contextlib.suppress(CrashError):
        dying = memory.more_handlers(Trap(at=8, kind="after"))
        await dying.handle(memory.graph_id, [AddTasks(memory.graph_id, request)])
    assert (await memory.graph_row()).columns["extending"] == request
    came = sorted(await memory.states())[2:]
    assert 0 < len(came) < len(added.tasks)

    async def limit() -> None:
        await memory.handlers.handle(memory.graph_id, [change(memory, 1)])
        assert (await memory.graph_row()).columns["limiting"] is True, "rows of it are still to come"

    planned_before = memory.more_handlers(between=limit)
    await memory.deliver(AddTasks(memory.graph_id, request), handlers=planned_before)
    assert not (await memory.graph_row()).columns["extending"]
    assert await named(memory) == ["a", "b", *came], "what came later was planned before"
    await memory.sweep()
    assert (await memory.graph_row()).columns["limiting"] is False
    assert await named(memory) == sorted(["a", "b", *added.tasks])


@pytest.mark.parametrize("kind", KINDS)
async def test_whoever_sets_a_limit_may_die_anywhere(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMMIT_CHANGES_MAX", 4)
    for at in itertools.count(1):
        stage = memory_stage()
        await stage.submit(graph(SIX))
        await stage.claims("a", "b")
        message = change(stage, 2)
        trap = Trap(at, kind)
        with contextlib.suppress(CrashError, StorageUnavailable, Conflict):
            await stage.more_handlers(trap).handle(stage.graph_id, [message])
        await stage.deliver(message, handlers=stage.more_handlers())
        await stage.sweep()
        assert (await stage.graph_row()).columns["limiting"] is False, (at, trap.calls)
        assert await named(stage) == sorted(SIX), (at, trap.calls)
        assert await in_flight(stage) == ["a", "b"], (at, trap.calls)
        assert (await stage.try_claim("c")).outcome is Outcome.STALE, (at, trap.calls)
        assert (await examine_graph(stage.handlers, stage.poison, stage.graph_id)).sound, (at, trap.calls)
        if len(trap.calls) < at:
            assert at > 8
            return


async def test_more_runs_than_can_be_counted_come_under_a_limit_by_and_by(
    memory: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IN_FLIGHT_MAX", 2)
    await memory.submit(graph(SIX))
    held = await memory.claims("a", "b", "c")
    await memory.deliver(change(memory, 1))
    assert (await memory.graph_row()).columns["limiting"] is True
    assert len(await in_flight(memory)) == 2
    for each in held:
        await memory.deliver(memory.completed(each))
    await memory.sweep()
    assert (await memory.graph_row()).columns["limiting"] is False
    assert await memory.work() == "finished"


# --- extensions


async def test_what_is_added_is_under_the_limit_of_the_graph(stage: Stage) -> None:
    await stage.submit(limited(1, {"a": [], "b": ["a"]}))
    assert await stage.offered() == [("a", 0)]
    held = await stage.claim("a")
    assert await stage.extend(extension({f"x{n}": [] for n in range(5)})) == "done"
    assert await stage.offered() == []
    assert (await stage.try_claim("x0")).outcome is Outcome.STALE
    await stage.deliver(stage.completed(held))
    assert await stage.work() == "finished"


async def test_an_extension_brings_limited_groups(memory: Stage) -> None:
    await memory.submit(graph({"a": [], "b": ["a"]}))
    added = graph_object({f"x{n}": [] for n in range(4)}, groups={"g": {"tasks": ["x0", "x1"], "maxInFlight": 1}})
    assert await memory.extend(document_from_object(added, kind="extension")) == "done"
    await memory.claim("x0")
    assert "group “g”" in (await memory.try_claim("x1")).reason
    await memory.claim("x2")
    assert json.loads(str((await memory.graph_row()).columns["limits"])) == [limit_scope(memory.graph_id, "g")]


# --- what is refused


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"maxInFlight": 0}, "out-of-range"),
        ({"maxInFlight": 1001}, "out-of-range"),
        ({"maxInFlight": 1.5}, "wrong-type"),
        ({"groups": {"g": {"tasks": ["a"], "maxInFlight": True}}}, "wrong-type"),
        (
            {"maxInFlight": 9, "groups": {f"g{n}": {"tasks": ["a"], "maxInFlight": 1} for n in range(4)}},
            "too-many-limits",
        ),
        ({"groups": {f"g{n}": {"tasks": ["a"], "maxInFlight": 1} for n in range(5)}}, "too-many-limits"),
        ({"groups": {f"g{n}": {"tasks": [f"t{n}"], "maxInFlight": 1} for n in range(101)}}, "too-many-limits"),
    ],
)
def test_a_limit_of_a_wrong_form_is_refused(more: Any, code: str) -> None:
    with pytest.raises(InvalidGraph) as refused:
        graph({"a": [], **{f"t{n}": [] for n in range(101)}}, **more)
    assert {problem.code for problem in refused.value.problems} == {code}


# --- faults


@pytest.mark.parametrize("kind", KINDS)
async def test_whoever_ends_a_run_may_die_anywhere_and_the_next_begins_all_the_same(kind: str) -> None:
    for at in itertools.count(1):
        stage = memory_stage()
        await stage.submit(limited(1, {"a": [], "b": [], "c": []}))
        (first,) = await stage.offered()
        message = stage.completed(await stage.claim(first[0]))
        trap = Trap(at, kind)
        with contextlib.suppress(CrashError, StorageUnavailable, Conflict):
            await stage.more_handlers(trap).handle(stage.graph_id, [message])
        await stage.deliver(message, handlers=stage.more_handlers())
        assert await in_flight(stage) == [], (at, trap.calls)
        assert await stage.offered() != [], (at, trap.calls)
        stage.clock.advance(limits.REDISPATCH_SECONDS + 1)
        await stage.sweep()
        assert await stage.work() == "finished", (at, trap.calls)
        if len(trap.calls) < at:
            assert at > 4
            return


async def test_the_sweep_says_again_what_went_unheard_and_no_more_than_there_is_room_for(memory: Stage) -> None:
    await memory.submit(limited(2))
    await memory.forget_queues()
    memory.clock.advance(limits.REDISPATCH_SECONDS + 1)
    assert (await memory.sweep()).reminded == 2
    assert len(await memory.offered()) == 2
    assert (await memory.sweep()).reminded == 0, "it was said just now"
    await memory.claim("a")
    memory.clock.advance(limits.REDISPATCH_SECONDS + 1)
    assert (await memory.sweep()).reminded == 0 or len(await memory.offered()) == 1


async def test_a_run_that_its_limit_counts_and_that_is_over_is_counted_no_more(memory: Stage) -> None:
    """Rows that were edited by hand: a place is not lost for good."""
    await memory.submit(limited(1, {"a": [], "b": ["a"], "c": []}))
    await memory.complete("a")
    row = await limit_row(memory)
    ghosts = [f"{memory.task_id('a')}:0", f"{memory.task_id('c')}:0"]
    text = json.dumps(ghosts)
    await memory.tables.commit(memory.graph_id, [Merge(row.key, row.etag, {"inFlight": text, "max": 2})])
    await memory.sweep()
    assert await in_flight(memory) == ["c"], "what stands ready may have been claimed in this moment"


async def test_a_limit_row_that_is_gone_stops_no_result(memory: Stage) -> None:
    await memory.submit(limited(1, {"a": [], "b": ["a"]}))
    held = await memory.claim("a")
    row = await limit_row(memory)
    await memory.tables.commit(memory.graph_id, [Delete(row.key, row.etag)])
    await memory.deliver(memory.completed(held))
    assert await memory.task_state("a") == "completed"
    answer = await memory.try_claim("b")
    assert answer.error is not None
    assert "limit:graph" in str(answer.error)
    await memory.tables.commit(memory.graph_id, [Insert(row.key, {**row.columns, "inFlight": "[]"})])
    assert await memory.work() in ("running", "finished")


async def test_a_backlog_of_thousands_is_told_as_there_is_room(memory: Stage) -> None:
    await memory.submit(limited(40, {f"t{n}": [] for n in range(3_000)}))
    assert len(await memory.offered()) == 40
    memory.clock.advance(6)
    await memory.sweep()
    assert await memory.offered() == [], "nothing has moved, and nobody has waited for long"
    memory.clock.advance(limits.REDISPATCH_SECONDS)
    await memory.sweep()
    assert await memory.work() == "finished"


async def test_a_backlog_that_was_full_at_the_last_page_is_not_taken_for_whole(
    memory: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (limited_backlog, dispatch):
        monkeypatch.setattr(module, "WAITING_MAX", 2)
    await memory.submit(limited(1, {f"t{n}": [] for n in range(5)}))
    found = limited_backlog.Backlog()
    await memory.handlers.dispatcher.limited.look_up(memory.graph_id, found, 0.0)
    assert len(found.waiting) == 2
    assert found.whole_until == 0.0, "three are left out"
    monkeypatch.undo()
    await memory.handlers.dispatcher.limited.look_up(memory.graph_id, found, 0.0)
    assert (len(found.waiting), found.whole_until) == (5, limited_backlog.WHOLE_SECONDS)


# --- what people see


async def test_why_says_which_limit_has_no_room_and_who_is_in_flight(stage: Stage) -> None:
    await stage.submit(limited(5, SIX, groups={"g": {"tasks": ["a", "b"], "maxInFlight": 1}}))
    await stage.claim("a")
    (reason, *_) = [each for each in await stage.queries.why(stage.graph_id, "b") if each.cause]
    assert "waits for room: limit of group “g”, 1 of 1 in flight: “a”" in reason.text
    assert reason.remedy == "see taskgraph limit list graph; and start a handler: taskgraph serve"
    (reason, *_) = [each for each in await stage.queries.why(stage.graph_id, "c") if each.cause]
    assert "no worker has claimed it" in reason.text
    found = await stage.queries.limits_of(stage.graph_id)
    assert [(each.group, each.most, each.in_flight, each.labels) for each in found] == [
        ("", 5, 1, ("a",)),
        ("g", 1, 1, ("a",)),
    ]
    status = await stage.queries.status(stage.graph_id)
    assert [(each.group, each.in_flight, each.most) for each in status.limits] == [("", 1, 5), ("g", 1, 1)]


async def test_doctors_find_what_a_limit_counts_too_much_or_too_little(memory: Stage) -> None:
    await memory.submit(limited(2, {"a": [], "b": ["a"], "c": []}))
    await memory.complete("a")
    await memory.claim("b")

    async def spoil(**columns: Any) -> set[str]:
        row = await limit_row(memory)
        await memory.tables.commit(memory.graph_id, [Merge(row.key, row.etag, columns)])
        found = await examine_graph(memory.handlers, memory.poison, memory.graph_id)
        return {each.code for each in found.findings}

    async def mended() -> list[str]:
        await repair_graph(memory.handlers, memory.poison, memory.graph_id)
        found = await examine_graph(memory.handlers, memory.poison, memory.graph_id)
        assert not found.findings
        return await in_flight(memory)

    member = f"{memory.task_id('b')}:0"
    assert await spoil(inFlight="[]") == {"not-counted"}
    assert await mended() == ["b"]
    assert await spoil(inFlight=json.dumps([member, f"{memory.task_id('a')}:0"])) == {"counts-what-is-over"}
    assert await mended() == ["b"]
    assert await spoil(inFlight=json.dumps([member, "nobody:7", "nonsense"])) == {"counts-nothing"}
    assert await mended() == ["b"]
    assert await spoil(max=0) == {"over-limit"}
    assert await spoil(max="many") == {"bad-column", "over-limit"}
    row = await limit_row(memory)
    await memory.tables.commit(memory.graph_id, [Delete(row.key, row.etag)])
    found = await examine_graph(memory.handlers, memory.poison, memory.graph_id)
    assert {each.code for each in found.findings} == {"missing-limit"}


async def test_doctors_find_what_is_not_under_a_limit_that_concerns_it(memory: Stage) -> None:
    await memory.submit(graph({"a": [], "b": [], "c": []}))
    await memory.complete("c")
    await memory.claim("a")
    await memory.deliver(change(memory, 2))
    limit = await limit_row(memory)
    await memory.tables.commit(memory.graph_id, [Merge(limit.key, limit.etag, {"inFlight": "[]"})])
    for label in "abc":
        row = await memory.row(label)
        await memory.tables.commit(memory.graph_id, [Merge(row.key, row.etag, {"limits": "[]", "limited": ""})])
    found = await examine_graph(memory.handlers, memory.poison, memory.graph_id)
    assert (
        sorted((each.code, each.text) for each in found.findings)
        == [("not-limited", "it does not name limit:graph, and that concerns it")] * 3
    )
    await repair_graph(memory.handlers, memory.poison, memory.graph_id)
    assert (await examine_graph(memory.handlers, memory.poison, memory.graph_id)).findings == ()
    assert (await named(memory), await in_flight(memory)) == (["a", "b", "c"], ["a"])


async def test_who_waits_for_room_is_told_from_who_waits_for_a_worker(memory: Stage) -> None:
    await memory.submit(limited(1, {"a": [], "b": []}))
    await memory.claim("a")
    found = await examine_graph(memory.handlers, memory.poison, memory.graph_id)
    assert [each.text for each in found.causes] == [
        "it moves: 1 task is running",
        "1 task is ready and waiting for room; limit of the graph: 1 of 1 in flight",
    ]


# --- real workers, in virtual time


@pytest.mark.parametrize("apart", [True, False])
def test_short_tasks_one_at_a_time_do_not_wait_for_polls(apart: bool) -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({f"t{n:02}": [] for n in range(40)}, maxInFlight=1)
        script = Script(0.05)
        processes = (crew.consumer(), crew.worker(script, slots=4)) if apart else crew.together(script, slots=4)
        crew.start(*processes)
        began = crew.clock.monotonic()
        await crew.finish()
        assert crew.clock.monotonic() - began < (40 * 0.05) * (3 if apart else 1.2)
        assert set(script.runs) == {(f"t{n:02}", 0) for n in range(40)}

    virtually(act)


def test_a_worker_that_dies_under_a_limit_gives_its_place_to_the_next_when_its_lease_ends() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": [], "b": []}, maxInFlight=1)
        ((label, _),) = await crew.stage.offered()
        await crew.stage.claim(label)
        script = Script(1.0)
        crew.start(*crew.together(script))
        await asyncio.sleep(limits.LEASE_SECONDS - 5)
        assert script.runs == []
        await asyncio.sleep(10)
        swept = await sweep(crew.handlers(Calls()))
        assert swept.lease_lost == 1
        await crew.finish()
        assert len(script.runs) == 2

    virtually(act)
