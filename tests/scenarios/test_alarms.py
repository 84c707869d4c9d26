"""What is over by time ends to the second while a handler lives, in an idle store too; by one sweep otherwise."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.engine import listeners
from taskgraph.engine.listeners import Alarms, earliest
from taskgraph.engine.poison import Poison
from taskgraph.interfaces.app import App
from taskgraph.interfaces.loops import end_what_is_over, sweep_forever
from taskgraph.interfaces.settings import StoreSettings
from taskgraph.model import limits
from taskgraph.model.flag import Flag
from taskgraph.model.ids import ids_text
from taskgraph.model.messages import HoldBack
from taskgraph.model.states import GraphState
from taskgraph.queries.graphs import Queries
from taskgraph.storage.signals.wakeup import Wakeup
from taskgraph.storage.tables import Row
from taskgraph.testing import MemoryLogs
from taskgraph.worker.gateway import Gateway
from tests.scenarios.crew import Calls, Crew, virtually

WITHIN: Final = 1.0  # seconds, with the poll of a handler (0.05 s here) and the commits
SWEPT: Final = limits.SWEEP_SECONDS * 2 * 1.25  # an idle store, and jitter at its worst
TRUE_NOTE: Final = Alarms.note
NOBODY: Final = {"target": "nobody", "payload": {}}


def serve(crew: Crew, stop: Flag) -> None:
    """A handler: what `serve` runs side by side, as far as time matters."""
    handlers = crew.handlers(Calls())
    poison = Poison(handlers.records.tables, handlers.queues, crew.clock, handlers.names)
    app = App(
        settings=StoreSettings(),
        clock=crew.clock,
        tables=handlers.records.tables,
        queues=handlers.queues,
        logs=MemoryLogs(),
        wakeup=Wakeup(),
        names=handlers.names,
        queries=Queries(handlers.records.tables, handlers.queues, crew.clock, handlers.names),
        made_handlers=lambda: handlers,
        made_poison=lambda: poison,
        made_gateway=lambda: Gateway(handlers, poison, MemoryLogs(), Wakeup()),
        locks=None,
    )
    crew.start(crew.consumer(handlers=handlers), stop=stop)
    crew.tasks.append(asyncio.create_task(end_what_is_over(app, stop)))
    crew.tasks.append(asyncio.create_task(sweep_forever(app, stop)))


def timed(kind: str, over: datetime, seconds: float) -> dict[str, Any]:
    """A graph of which something is over at a time, and nothing else ever happens."""
    late = {**NOBODY, "deadline": over.isoformat()}
    documents: Mapping[str, dict[str, Any]] = {
        "graph": {"deadline": over.isoformat(), "tasks": {"a": {"task": NOBODY}}},
        "inactive graph": {"deadline": over.isoformat(), "tasks": {"a": {"task": NOBODY, "active": False}}},
        "ready": {"tasks": {"a": {"task": late}}},
        "inactive": {"tasks": {"hold": {"active": False, "task": NOBODY}, "a": {"active": False, "task": late}}},
        "waiting": {"tasks": {"b": {"task": NOBODY}, "a": {"requires": ["b"], "task": late}}},
        "pendingTimeout": {"tasks": {"a": {"task": NOBODY, "pendingTimeout": seconds}}},
        "second": {
            "tasks": {
                "b": {"task": {**NOBODY, "deadline": (over - timedelta(seconds=3)).isoformat()}},
                "c": {"task": NOBODY},
                "a": {"requires": ["c"], "task": late},
            }
        },
    }
    return documents[kind]


KINDS = ("graph", "inactive graph", "ready", "inactive", "waiting", "pendingTimeout", "second")


async def ended(crew: Crew, graph_id: str) -> bool:
    crew.stage.graph_id = graph_id
    return await crew.stage.state() in (GraphState.CANCELLED, GraphState.CANCELLING) or (
        await crew.stage.task_state("a") == "exception"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("idle", [0.0, 13.0, 71.0])
def test_it_ends_to_the_second_in_a_store_that_was_idle(kind: str, idle: float) -> None:
    async def act(crew: Crew) -> None:
        serve(crew, crew.stop)
        await asyncio.sleep(idle)
        over = crew.clock.now() + timedelta(seconds=8)
        await crew.stage.submit(document_from_object(timed(kind, over, 8)))
        await asyncio.sleep(7.9)
        assert not await ended(crew, crew.stage.graph_id)
        await asyncio.sleep(0.1 + WITHIN)
        assert await ended(crew, crew.stage.graph_id)
        await crew.end()

    virtually(act)


@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_that_began_after_the_submission_ends_it_to_the_second(kind: str) -> None:
    async def act(crew: Crew) -> None:
        over = crew.clock.now() + timedelta(seconds=100)
        await crew.stage.submit(document_from_object(timed(kind, over, 100)))
        await crew.stage.forget_queues()
        serve(crew, crew.stop)
        await asyncio.sleep(99.9)
        assert not await ended(crew, crew.stage.graph_id)
        await asyncio.sleep(0.1 + WITHIN)
        assert await ended(crew, crew.stage.graph_id)
        await crew.end()

    virtually(act)


@pytest.mark.parametrize("kind", KINDS)
def test_it_ends_with_the_next_sweep_where_nobody_was_told(kind: str) -> None:
    """The hint of the submitter is lost, and the handler that began the graph is gone."""

    async def act(crew: Crew) -> None:
        first = Flag()
        serve(crew, first)
        await asyncio.sleep(5)
        over = crew.clock.now() + timedelta(seconds=8)
        await crew.stage.submit(document_from_object(timed(kind, over, 8)))
        await asyncio.sleep(1)
        first.set()
        serve(crew, crew.stop)
        await crew.stage.forget_queues()
        await asyncio.sleep(7 + SWEPT + WITHIN)
        assert await ended(crew, crew.stage.graph_id)
        await crew.end()

    virtually(act)


def test_what_comes_by_an_extension_an_edit_or_a_resume_is_heeded() -> None:
    async def act(crew: Crew) -> None:
        serve(crew, crew.stop)
        stage = crew.stage
        await stage.submit(
            document_from_object({"tasks": {"first": {"task": NOBODY}, "late": {"task": NOBODY, "pendingTimeout": 20}}})
        )
        await stage.handlers.dispatcher.send_events([HoldBack(stage.graph_id, True, crew.clock.now().isoformat())])
        await asyncio.sleep(30)
        assert await stage.task_state("late") == "pending"
        now = crew.clock.now()
        more = {"tasks": {"a": {"requires": ["first"], "task": {**NOBODY, "deadline": iso(now, 40)}}}}
        edit = {"update": {"first": {"deadline": iso(now, 60)}}}
        await stage.handlers.dispatcher.send_events([HoldBack(stage.graph_id, False, crew.clock.now().isoformat())])
        await asyncio.sleep(1)
        await stage.stage_extension(document_from_object(more, kind="extension"))
        await stage.stage_edit(edit)
        for label, seconds in (("late", 20), ("a", 40), ("first", 60)):
            left = (now - crew.clock.now()).total_seconds() + seconds
            await asyncio.sleep(left - 0.5)
            assert await stage.task_state(label) != "exception", label
            await asyncio.sleep(0.5 + 2 * WITHIN)
            assert await stage.task_state(label) == "exception", label
        await crew.end()

    virtually(act)


def iso(now: datetime, seconds: float) -> str:
    return (now + timedelta(seconds=seconds)).isoformat()


def test_a_graph_without_times_costs_no_message() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": [], "b": ["a"]})
        assert await crew.stage.queues.count(crew.stage.handlers.names.events) == 0

    virtually(act)


def test_only_the_earliest_time_of_a_graph_counts() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    alarms = Alarms()
    for graph_id, seconds in (("a", 9), ("b", 5), ("a", 3), ("a", 7)):
        alarms.note(graph_id, start + timedelta(seconds=seconds))
    assert alarms.earlier.is_set()
    assert alarms.seconds_left(start, 60) == 3
    assert alarms.take(start + timedelta(seconds=4)) == ["a"]
    assert not alarms.earlier.is_set()
    assert alarms.seconds_left(start, 60) == 1 + 4
    assert alarms.take(start + timedelta(seconds=20)) == ["b"]
    assert alarms.seconds_left(start, 60) == 60


def test_more_graphs_than_are_remembered_are_left_to_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(listeners, "_GRAPHS_MAX", 2)
    alarms = Alarms()
    for number, graph_id in enumerate("abcab"):
        alarms.note(graph_id, start - timedelta(seconds=number))
    assert alarms.take(start) == ["b", "a"]


def test_what_has_ended_or_runs_is_not_waited_for() -> None:
    over = datetime(2026, 1, 1, tzinfo=UTC)
    since = over - timedelta(seconds=5)
    waits = {"state": "pending", "pendingSince": since, "pendingTimeout": 9.0}
    for columns, due in (
        ({"state": "completed", "deadline": over}, None),
        ({"state": "running", "claim": "c", "deadline": over}, None),
        ({"state": "running", "deadline": over, "nextDeadline": since}, since),
        ({"state": "blocked", "deadline": over}, over),
        ({"state": "finished", "deadline": over}, None),
        ({"state": "pending", "deadline": over, "cancel": "no"}, None),
        (waits, since + timedelta(seconds=9)),
        ({**waits, "held": ids_text(["by hand"])}, None),
    ):
        row = Row("task:x", "e", columns)  # type: ignore[arg-type]
        assert earliest([None, row]) == due, columns
        assert earliest([row], after=since) == (None if due == since else due), columns


def _note_nothing(self: Alarms, graph_id: str, due: datetime) -> None:
    pass


def _note_without_waking(self: Alarms, graph_id: str, due: datetime) -> None:
    heard, self.earlier = self.earlier, Flag()
    TRUE_NOTE(self, graph_id, due)
    self.earlier = heard


def _note_too_late(self: Alarms, graph_id: str, due: datetime) -> None:
    TRUE_NOTE(self, graph_id, due + timedelta(seconds=2))


@pytest.mark.parametrize("mutant", [_note_nothing, _note_without_waking, _note_too_late])
def test_the_bound_does_not_hold_without_a_rule_of_the_alarms(
    mutant: Callable[[Alarms, str, datetime], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Alarms, "note", mutant)
    with pytest.raises(AssertionError):
        test_it_ends_to_the_second_in_a_store_that_was_idle("ready", 13.0)
