"""Schedules over both stores: created, fired, changed, queued, deleted; what their rows hold; what fails."""

import asyncio
import functools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskgraph.documents.canonical import content_hash
from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import Given, document_from_object
from taskgraph.documents.recurrence import Recurrence, Times
from taskgraph.engine import clock_trust
from taskgraph.engine.commit import Records
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.schedules import Schedules, Written
from taskgraph.engine.submission import submit
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, InvalidInput, NotFound, Refused, TooLarge
from taskgraph.model.ids import GRAPH
from taskgraph.model.messages import Cancel, Message, parse
from taskgraph.model.names import ALL, QueueNames
from taskgraph.protocol import schedule_rules
from taskgraph.protocol.runs import Claim, Completed
from taskgraph.protocol.schedule_rules import HEADS, SCHEDULES, CatchUp, Overlap
from taskgraph.queries.graphs import Queries
from taskgraph.storage.tables import Merge, Range, query_all
from taskgraph.testing import HurriedClock
from tests.conftest import OpenStore
from tests.explorer.test_explorer import wrong_columns

START = datetime(2026, 3, 28, 20, tzinfo=UTC)
HOUR = 3600.0


def document(*labels: str, text: str = "") -> GraphDocument:
    return document_from_object({"tasks": {label: {"task": {"payload": {"text": text}}} for label in labels or ["a"]}})


class Installation:
    """Handlers, queries and schedules over an opened store, with the time in the hands of the test."""

    def __init__(self, store: OpenStore) -> None:
        self.clock = HurriedClock(START, seed=store.prefix)
        self.tables = store.tables
        names = QueueNames(store.prefix)
        self.handlers = Handlers(Records(self.tables, self.clock), store.queues, self.clock, names)
        self.queries = Queries(self.tables, store.queues, self.clock, names)
        self.schedules = Schedules(self.handlers, self.queries)

    async def end(self, graph_id: str) -> None:
        """Complete every task of a graph that has no edges."""
        for task in await self.queries.tasks(graph_id):
            until = self.clock.now() + timedelta(seconds=60)
            claim = self.clock.new_id()
            await self.handlers.transition(graph_id, [Claim(task.task_id, 0, claim, "w", until)])
            done = Completed(task.task_id, 0, claim, self.clock.now().isoformat(), {"failed": False})
            await self.handlers.transition(graph_id, [done])
        assert await self.queries.state(graph_id) == "finished"

    async def messages(self) -> list[Message]:
        """What has been sent to the handlers, taken."""
        found = []
        queue = self.handlers.names.events
        while deliveries := await self.handlers.queues.receive(queue, count=limits.RECEIVE_MAX, lease_seconds=30):
            for delivery in deliveries:
                found.append(parse(delivery.body))
                await self.handlers.queues.delete(delivery)
        return found

    async def rows(self) -> list[str]:
        return [row.key for row in await query_all(self.tables, SCHEDULES, Range())]

    async def fired(self, name: str) -> list[str]:
        return sorted(each.graph_id for each in await self.queries.graphs(schedule=name))


@pytest.fixture
def here(store: OpenStore) -> Installation:
    return Installation(store)


NIGHTLY = Recurrence(cron="30 2 * * *", timezone="Europe/Berlin")
HOURLY = Recurrence(every=3600)


async def test_a_night_in_which_the_clocks_change(here: Installation) -> None:
    created, outcome = await here.schedules.create("nightly", document(), NIGHTLY, overlap=Overlap.ALLOW)
    assert (outcome, created.next) == (Written.CREATED, datetime(2026, 3, 29, 1, tzinfo=UTC))
    for _ in range(3 * 24 * 2):
        here.clock.advance(HOUR / 2)
        looked = await here.schedules.look()
        assert looked.failed == []
    assert await here.fired("nightly") == [
        "nightly-20260329T010000Z",
        "nightly-20260330T003000Z",
        "nightly-20260331T003000Z",
    ]
    (first, *_) = await here.fired("nightly")
    (row,) = await here.tables.get(first, [GRAPH])
    assert row is not None
    assert (row.columns["schedule"], row.columns["firedFor"]) == ("nightly", created.next)
    (begun,) = await here.queries.events(first)
    assert (begun.kind, begun.fields["by"]) == ("graph-running", "schedule nightly")
    status = await here.queries.status(first)
    assert (status.schedule, status.fired_for, status.state) == ("nightly", created.next, "running")


async def test_the_same_schedule_again_is_the_same_and_another_is_refused(here: Installation) -> None:
    first, _ = await here.schedules.create("hourly", document(), HOURLY)
    here.clock.advance(100)
    again, outcome = await here.schedules.create("hourly", document(), HOURLY)
    assert (again, outcome) == (first, Written.EXISTING)
    for other in (
        here.schedules.create("hourly", document("b"), HOURLY),
        here.schedules.create("hourly", document(), Recurrence(every=60)),
        here.schedules.create("hourly", document(), HOURLY, catch_up=CatchUp.ALL),
        here.schedules.create("hourly", document(), HOURLY, active=False),
    ):
        with pytest.raises(Refused, match="schedule update hourly"):
            await other
    assert len(await here.schedules.listed()) == 1


async def test_each_look_fires_what_is_due_once_and_in_order(here: Installation) -> None:
    await here.schedules.create("hourly", document(), HOURLY, overlap=Overlap.ALLOW, catch_up=CatchUp.ALL)
    here.clock.advance(3.5 * HOUR)
    looked = await here.schedules.look()
    assert looked.fired == ["hourly-20260328T210000Z", "hourly-20260328T220000Z", "hourly-20260328T230000Z"]
    assert looked.soonest == START + timedelta(hours=4)
    assert (await here.schedules.look()).fired == []
    assert await here.fired("hourly") == looked.fired


async def test_skip_and_queue_wait_for_the_graph_before(here: Installation) -> None:
    await here.schedules.create("skip", document(), HOURLY)
    await here.schedules.create("queue", document(), HOURLY, overlap=Overlap.QUEUE, keep=2)
    for _ in range(5):
        here.clock.advance(HOUR)
        await here.schedules.look()
    assert await here.fired("skip") == ["skip-20260328T210000Z"]
    assert await here.fired("queue") == ["queue-20260328T210000Z"]
    found = {each.name: each for each in await here.schedules.listed()}
    assert (found["skip"].waiting, found["skip"].skipped) == ((), 4)
    assert ([each.hour for each in found["queue"].waiting], found["queue"].skipped) == ([22, 23], 2)
    detail = await here.schedules.show("queue")
    assert [trouble.text for trouble in detail.troubles] == [
        "2 due, the first since 2026-03-28 22:00:00Z, and graph queue-20260328T210000Z is not over"
    ]
    for graph_id in ("skip-20260328T210000Z", "queue-20260328T210000Z"):
        await here.end(graph_id)
    looked = await here.schedules.look()
    assert looked.fired == ["queue-20260328T220000Z"]
    here.clock.advance(HOUR)
    looked = await here.schedules.look()
    assert looked.fired == ["skip-20260329T020000Z"]
    assert looked.waiting
    await here.end("queue-20260328T220000Z")
    assert (await here.schedules.look()).fired == ["queue-20260328T230000Z"]


async def test_cancel_waits_for_the_graph_before_and_cancels_it(here: Installation) -> None:
    await here.schedules.create("hourly", document(), HOURLY, overlap=Overlap.CANCEL)
    for _ in range(3):
        here.clock.advance(HOUR)
        await here.schedules.look()
    assert await here.fired("hourly") == ["hourly-20260328T210000Z"]
    (schedule,) = await here.schedules.listed()
    assert ([each.hour for each in schedule.waiting], schedule.skipped) == ([23], 1)
    asked = await here.messages()
    assert {each.graph for each in asked} == {"hourly-20260328T210000Z"}
    assert all(isinstance(each, Cancel) and not each.tasks for each in asked)
    await here.handlers.handle("hourly-20260328T210000Z", asked)
    assert await here.queries.state("hourly-20260328T210000Z") == "cancelled"
    assert (await here.schedules.look()).fired == ["hourly-20260328T230000Z"]
    assert await here.messages() == []


async def test_a_schedule_rests_for_a_clock_that_was_ahead_until_clocks_have_agreed_for_a_day(
    here: Installation,
) -> None:
    await here.schedules.create("hourly", document(), HOURLY, overlap=Overlap.ALLOW)
    year = 365 * 24 * HOUR
    here.clock.advance(year)
    assert (await here.schedules.look()).fired == ["hourly-20270328T200000Z"]
    here.clock.advance(-year)
    (trouble,) = (await here.schedules.show("hourly")).troubles
    assert ("a clock that was ahead" in trouble.text, "deactivate" in trouble.remedy) == (True, True)
    fired = []
    for _ in range(26):
        await clock_trust.note(here.tables, here.clock.now())
        fired.append((await here.schedules.look()).fired)
        here.clock.advance(HOUR)
    assert not any(fired[:25]), "it cannot be told yet which clock is right"
    assert fired[25] == ["hourly-20260329T210000Z"]
    assert (await here.schedules.show("hourly")).troubles == []


async def test_who_activates_a_schedule_sets_its_next_time_right_at_once(here: Installation) -> None:
    await here.schedules.create("hourly", document(), HOURLY)
    here.clock.advance(365 * 24 * HOUR)
    await here.schedules.look()
    here.clock.advance(-365 * 24 * HOUR)
    await here.schedules.set_active("hourly", active=False)
    await here.schedules.set_active("hourly", active=True)
    (schedule,) = await here.schedules.listed()
    assert schedule.next == START + timedelta(hours=1)


@pytest.mark.usefixtures("settled")
async def test_a_time_that_was_fired_ahead_is_passed_over_when_it_comes(here: Installation) -> None:
    """Were it begun again, it would cancel the graph of its own first fire."""
    await here.schedules.create("hourly", document(), HOURLY, overlap=Overlap.CANCEL)
    here.clock.advance(1.5 * HOUR)
    assert (await here.schedules.look()).fired == ["hourly-20260328T210000Z"]
    here.clock.advance(-1.5 * HOUR)
    assert (await here.schedules.look()).fired == []
    (schedule,) = await here.schedules.listed()
    assert (schedule.next, schedule.ahead) == (START + timedelta(hours=1), START + timedelta(hours=2))
    here.clock.advance(HOUR)
    assert (await here.schedules.look()).fired == []
    assert await here.messages() == []
    (schedule,) = await here.schedules.listed()
    assert (schedule.waiting, schedule.fired, schedule.skipped) == ((), 1, 0)
    here.clock.advance(HOUR)
    await here.schedules.look()
    assert {each.graph for each in await here.messages()} == {"hourly-20260328T210000Z"}, "by the next fire, as ever"


async def test_an_interval_that_is_counted_from_a_clock_ahead_is_counted_from_now(here: Installation) -> None:
    here.clock.advance(365 * 24 * HOUR)
    await here.schedules.create("hourly", document(), HOURLY)
    named = Recurrence(every=3600, anchor=START + timedelta(days=200))
    await here.schedules.create("named", document(), named)
    here.clock.advance(-365 * 24 * HOUR)
    for name in ("hourly", "named"):
        await here.schedules.set_active(name, active=False)
        await here.schedules.set_active(name, active=True)
    found = {each.name: each for each in await here.schedules.listed()}
    assert found["hourly"].next == START + timedelta(hours=1)
    assert found["named"].next == named.anchor, "which is what was given"


async def test_parameters_keep_their_values_until_another_graph_comes(here: Installation) -> None:
    declared = {
        "params": {"goal": {"type": "string"}, "deep": {"type": "boolean", "default": False}},
        "tasks": {"a": {"task": {"payload": {"goal": {"$param": "goal"}, "deep": {"$param": "deep"}}}}},
    }
    given = document_from_object(declared, given=Given({"goal": "all"}))
    await here.schedules.create("hourly", given, HOURLY, overlap=Overlap.ALLOW)
    assert await here.schedules.document("hourly") == given
    here.clock.advance(HOUR)
    (first,) = (await here.schedules.look()).fired
    assert (await here.queries.task(first, "a")).definition["payload"] == {"goal": "all", "deep": False}
    await here.schedules.update("hourly", document=document_from_object(declared, given=Given({"goal": "none"})))
    here.clock.advance(HOUR)
    (second,) = (await here.schedules.look()).fired
    assert (await here.queries.task(second, "a")).definition["payload"] == {"goal": "none", "deep": False}


async def test_an_update_replaces_the_graph_and_leaves_nothing_behind(here: Installation) -> None:
    await here.schedules.create("hourly", document(text="x" * 300_000), HOURLY, overlap=Overlap.ALLOW)
    assert len(await here.rows()) == 3
    here.clock.advance(HOUR)
    await here.schedules.look()
    await here.schedules.update("hourly", document=document("b", "c"))
    assert len(await here.rows()) == 2
    assert await here.schedules.document("hourly") == document("b", "c")
    here.clock.advance(HOUR)
    await here.schedules.look()
    sizes = {graph: (await here.queries.status(graph)).tasks for graph in await here.fired("hourly")}
    assert sizes == {"hourly-20260328T210000Z": 1, "hourly-20260328T220000Z": 2}
    changed = await here.schedules.update(
        "hourly", times=Times(cron=NIGHTLY.cron, timezone=NIGHTLY.timezone), catch_up=CatchUp.NONE, keep=3
    )
    assert (changed.next, changed.catch_up, changed.keep) == (datetime(2026, 3, 29, 1, tzinfo=UTC), "none", 3)
    assert (changed.overlap, changed.tasks, changed.fired) == (Overlap.ALLOW, 2, 2)
    assert await here.schedules.update("hourly", document=document("b", "c")) == changed
    await here.schedules.delete("hourly")
    assert await here.rows() == []


async def test_an_update_changes_what_is_given_and_nothing_else(here: Installation) -> None:
    made, _ = await here.schedules.create("s", document(), NIGHTLY, overlap=Overlap.ALLOW, catch_up=CatchUp.ALL, keep=7)
    hour = Times(every=3600, anchor=START + timedelta(minutes=10))
    for given, recurrence in (
        ({"times": Times(cron="45 2 * * *")}, Recurrence(cron="45 2 * * *", timezone="Europe/Berlin")),
        ({"times": Times(timezone="Asia/Tokyo")}, Recurrence(cron="45 2 * * *", timezone="Asia/Tokyo")),
        ({"times": Times(cron="0 3 * * *", timezone="UTC")}, Recurrence(cron="0 3 * * *", timezone="UTC")),
        ({"times": hour}, Recurrence(every=3600, anchor=hour.anchor)),
        ({"times": Times(every=60)}, Recurrence(every=60, anchor=hour.anchor)),
        ({"times": Times(anchor=START)}, Recurrence(every=60, anchor=START)),
        ({"times": Times(cron="0 3 * * *")}, Recurrence(cron="0 3 * * *", timezone="UTC")),
        ({"times": Times(at=START + timedelta(days=1))}, Recurrence(at=START + timedelta(days=1))),
    ):
        before, changed = made, await here.schedules.update("s", **given)  # type: ignore[arg-type]
        assert changed == replace(before, recurrence=recurrence, next=recurrence.after(START))
        made = changed
        assert await here.schedules.update("s", times=Times()) == changed
    for other in ({"catch_up": CatchUp.NONE}, {"overlap": Overlap.QUEUE}, {"keep": 2}):
        before, made = made, await here.schedules.update("s", **other)
        assert made == replace(before, **other)
    digest = (await here.schedules.update("s", document=document("b"))).digest
    assert made == replace((await here.schedules.show("s")).schedule, document=made.document, digest=made.digest)
    assert digest != made.digest
    for wrong in (Times(timezone="UTC"), Times(anchor=START)):
        with pytest.raises(InvalidInput, match="goes with"):
            await here.schedules.update("s", times=wrong)


async def test_times_that_stay_the_same_leave_what_is_due(here: Installation) -> None:
    made, _ = await here.schedules.create("s", document(), NIGHTLY)
    here.clock.advance(8 * HOUR)
    assert await here.schedules.update("s", times=Times(cron="30  2 * * *")) == made
    assert (await here.schedules.look()).fired == ["s-20260329T010000Z"]


async def test_an_inactive_schedule_shows_times_to_come(here: Installation) -> None:
    await here.schedules.create("s", document(), HOURLY, active=False)
    here.clock.advance(2.5 * HOUR)
    upcoming = (await here.schedules.show("s")).upcoming
    assert upcoming[:2] == [START + timedelta(hours=3), START + timedelta(hours=4)]


async def test_asking_three_times_within_a_second_brings_three_graphs(here: Installation) -> None:
    await here.schedules.create("n" * 40, document(), HOURLY)
    made = []
    for _ in range(3):
        made.append(await here.schedules.run_now("n" * 40))
        here.clock.advance(0.02)
    assert [each.outcome for each in made] == ["created"] * 3
    assert len({each.graph_id for each in made}) == 3


async def test_inactive_schedules_do_not_fire_and_run_now_does(here: Installation) -> None:
    await here.schedules.create("hourly", document(), HOURLY, active=False, catch_up=CatchUp.NONE)
    here.clock.advance(2.001 * HOUR)
    assert (await here.schedules.look()).fired == []
    submitted = await here.schedules.run_now("hourly")
    assert submitted.graph_id == "hourly-20260328T220003600Z-now"
    assert (await here.schedules.run_now("hourly")).outcome == "existing"
    active = await here.schedules.set_active("hourly", active=True)
    assert active.next == START + timedelta(hours=3)
    assert (await here.schedules.look()).fired == []
    here.clock.advance(HOUR)
    assert (await here.schedules.look()).fired == []  # the one by hand is not over
    await here.end(submitted.graph_id)
    here.clock.advance(HOUR)
    assert (await here.schedules.look()).fired == ["hourly-20260329T000000Z"]
    detail = await here.schedules.show("hourly")
    assert [(each.run.manual, each.state) for each in detail.runs] == [(False, "running"), (True, "finished")]
    assert not (await here.schedules.set_active("hourly", active=False)).active


async def test_all_are_stopped_and_go_on_at_once(here: Installation) -> None:
    """Those that were not changed are not named: whoever wants back what was stopped takes that list."""
    await here.schedules.create("hourly", document(), HOURLY, catch_up=CatchUp.NONE)
    await here.schedules.create("never", document(), HOURLY, active=False)
    assert [(each.name, each.active) for each in await here.schedules.set_all(active=False)] == [("hourly", False)]
    assert await here.schedules.set_all(active=False) == []
    here.clock.advance(1.5 * HOUR)
    assert (await here.schedules.look()).fired == []
    activated = await here.schedules.set_all(active=True)
    assert [(each.name, each.active) for each in activated] == [("hourly", True), ("never", True)]
    assert await here.schedules.listed() == activated


async def test_a_graph_that_became_invalid_is_said_keeps_its_place_and_stops_nobody(here: Installation) -> None:
    await here.schedules.create("bad", document(), HOURLY, overlap=Overlap.ALLOW)
    await here.schedules.create("good", document(), HOURLY, overlap=Overlap.ALLOW)
    (part,) = await query_all(here.tables, SCHEDULES, Range("document:bad:", "document:bad;"))
    await here.tables.commit(SCHEDULES, [Merge(part.key, part.etag, {"text": '{"tasks":{"a":{"task":7}}}'})])
    here.clock.advance(HOUR)
    looked = await here.schedules.look()
    assert looked.fired == ["good-20260328T210000Z"]
    assert len(looked.failed) == 1
    detail = await here.schedules.show("bad")
    assert "/tasks/a/task" in detail.schedule.error
    assert [each.hour for each in detail.schedule.waiting] == [21]
    (trouble,) = detail.troubles
    assert trouble.remedy.endswith("taskgraph schedule update bad FILE")
    assert (await here.schedules.look()).failed == []  # not before its next try
    here.clock.advance(61)
    assert len((await here.schedules.look()).failed) == 1
    assert (await here.schedules.show("bad")).schedule.errors == 2
    year = 365 * 24 * HOUR
    here.clock.advance(year)
    assert len((await here.schedules.look()).failed) == 1
    here.clock.advance(-year)
    assert len((await here.schedules.look()).failed) == 1, "a pause that a clock ahead began is over"
    await here.schedules.update("bad", document=document("mended"))
    assert (await here.schedules.look()).fired[0] == "bad-20260328T210000Z"
    mended = (await here.schedules.show("bad")).schedule
    assert (mended.error, mended.errors) == ("", 0)


async def test_a_foreign_graph_of_the_same_id_costs_that_fire_alone(here: Installation) -> None:
    await here.schedules.create("hourly", document(), HOURLY, overlap=Overlap.ALLOW)
    await submit(here.handlers, "hourly-20260328T210000Z", document("other"))
    here.clock.advance(HOUR)
    looked = await here.schedules.look()
    assert looked.fired == []
    assert "submitted by another" in looked.failed[0]
    here.clock.advance(HOUR)
    assert (await here.schedules.look()).fired == ["hourly-20260328T220000Z"]


async def test_a_fire_whose_graph_was_written_by_another_version_counts_as_fired(here: Installation) -> None:
    """The same fire of the same schedule, with a digest that this version would not make."""
    await here.schedules.create("hourly", document(), HOURLY)
    here.clock.advance(HOUR)
    origin: dict[str, Any] = {"schedule": "hourly", "firedFor": here.clock.now()}
    await submit(here.handlers, "hourly-20260328T210000Z", document("another"), origin=origin)
    looked = await here.schedules.look()
    assert (looked.fired, looked.failed) == (["hourly-20260328T210000Z"], [])


async def test_what_cannot_be(here: Installation) -> None:
    schedules = here.schedules
    with pytest.raises(InvalidInput, match="has passed"):
        await schedules.create("late", document(), Recurrence(at=START - timedelta(seconds=1)))
    with pytest.raises(InvalidInput, match="no time zone"):
        await schedules.create("naive", document(), Recurrence(at=datetime(2030, 1, 1)))
    with pytest.raises(InvalidInput, match="cannot be the name"):
        await schedules.create("a/b", document(), HOURLY)
    with pytest.raises(InvalidInput, match="may wait"):
        await schedules.create("many", document(), HOURLY, keep=limits.SCHEDULE_WAITING_MAX + 1)
    labels = [f"part {n}" for n in range(4)]
    with pytest.raises(TooLarge, match="characters"):
        await schedules.create("large", document(*labels, text="x" * 300_000), HOURLY)
    await schedules.create("hourly", document(), HOURLY)
    with pytest.raises(NotFound) as error:
        await schedules.show("hourli")
    assert error.value.near == ("hourly",)
    switch = functools.partial(schedules.set_active, active=True)
    for call in (switch, schedules.delete, schedules.run_now, schedules.document):
        with pytest.raises(NotFound):
            await call("other")
    with pytest.raises(NotFound):
        await schedules.update("other")


async def test_a_large_graph_fits_and_comes_back_whole(here: Installation) -> None:
    large = document(*(f"part “{n}” \\ ☃ {n}" for n in range(3)), text='"☃\\' * 40_000)
    await here.schedules.create("large", large, HOURLY)
    assert content_hash(await here.schedules.document("large")) == content_hash(large)


async def test_the_page_knows_every_column_and_what_it_holds(here: Installation) -> None:
    """In docs/reference/explorer.md; a column that has nothing to say any more is an empty text."""
    await here.schedules.create("hourly", document(), HOURLY, overlap=Overlap.QUEUE)
    await here.schedules.create("nightly", document(), NIGHTLY)
    await here.schedules.create("once", document(), Recurrence(at=START + timedelta(hours=1)))
    here.clock.advance(2.01 * HOUR)
    await here.schedules.look()
    wrong: list[str] = []
    for row in await query_all(here.tables, SCHEDULES, Range()):
        columns = {name: {"$time": ""} if isinstance(value, datetime) else value for name, value in row.columns.items()}
        wrong += wrong_columns(SCHEDULES, row.key, {name: value for name, value in columns.items() if value != ""})
    assert wrong == []
    (once,) = [each for each in await here.schedules.listed() if each.name == "once"]
    assert (once.next, once.fired) == (None, 1)
    assert [each.text for each in (await here.schedules.show("once")).troubles] == [
        "it has fired for the last time: no further time is to come"
    ]


async def test_a_row_that_holds_no_schedule_stops_nobody(here: Installation) -> None:
    for name in ("bad", "newer", "good"):
        await here.schedules.create(name, document(), HOURLY)
    found = {row.key: row for row in await query_all(here.tables, SCHEDULES, Range(*HEADS))}
    bad, newer = found["schedule:bad"], found["schedule:newer"]
    await here.tables.commit(SCHEDULES, [Merge(bad.key, bad.etag, {"overlap": "perhaps"})])
    await here.tables.commit(SCHEDULES, [Merge(newer.key, newer.etag, {"schema": 99})])
    here.clock.advance(HOUR)
    looked = await here.schedules.look()
    assert looked.fired == ["good-20260328T210000Z"]
    assert ["holds no schedule" in each or "newer version" in each for each in looked.failed] == [True, True]
    assert [each.name for each in await here.schedules.listed()] == ["good"]


async def test_many_who_look_at_once_fire_once(here: Installation, store: OpenStore) -> None:
    others = [Installation(store) for _ in range(3)]
    await here.schedules.create("hourly", document(), HOURLY, overlap=Overlap.ALLOW, catch_up=CatchUp.ALL)
    for each in (here, *others):
        each.clock.advance(4 * HOUR)

    busy: list[str] = []
    for _ in range(6):
        for looked in await asyncio.gather(*(each.schedules.look() for each in (here, *others))):
            assert looked.failed == []  # nothing to warn of
            busy += looked.busy
    assert all("others have written it" in each for each in busy)
    assert await here.fired("hourly") == [f"hourly-20260328T2{n}0000Z" for n in (1, 2, 3)] + ["hourly-20260329T000000Z"]
    (schedule,) = await here.schedules.listed()
    assert (schedule.fired, schedule.skipped, schedule.next) == (4, 0, START + timedelta(hours=5))
    assert len(await query_all(here.tables, ALL, Range())) == 4


async def test_a_fire_under_way_survives_an_update_and_a_deletion(here: Installation) -> None:
    """It has begun with one graph, and nobody came to submit it; the schedule gets another one, and is deleted."""
    await here.schedules.create("hourly", document("old"), HOURLY)
    here.clock.advance(HOUR)
    row, schedule = await here.schedules._rows.find("hourly")
    begun = schedule_rules.begin(schedule_rules.collect(schedule, here.clock.now()))
    await here.schedules._rows.write(row, schedule, begun)
    await here.schedules.update("hourly", document=document("new"))
    assert len(await here.rows()) == 3  # both graphs
    await here.schedules.delete("hourly")
    assert await here.rows() == []
    (graph,) = await here.fired("hourly")
    assert [task.label for task in await here.queries.tasks(graph)] == ["old"]


async def test_who_comes_too_late_with_what_it_has_read_writes_nothing(here: Installation) -> None:
    await here.schedules.create("hourly", document(), HOURLY)
    here.clock.advance(HOUR)
    row, schedule = await here.schedules._rows.find("hourly")
    await here.schedules.look()
    with pytest.raises(Conflict):
        await here.schedules._rows.write(row, schedule, schedule_rules.collect(schedule, here.clock.now()))
    assert await here.fired("hourly") == ["hourly-20260328T210000Z"]
