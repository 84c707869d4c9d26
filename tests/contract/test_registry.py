"""The registry of workers, over every store: rows that come, are asked for something, and go."""

from dataclasses import dataclass, field

import pytest

from taskgraph.model import limits
from taskgraph.model.errors import NotFound, Refused
from taskgraph.queries.workers import FINISH, HANDLER, NOW, WORKERS, ask, clean, crew, key_of, mark_gone, workers
from taskgraph.testing import ManualClock
from taskgraph.worker.registration import Presence, RegisteredHandler, Registration, WorkerDetails
from tests.conftest import OpenStore


@dataclass
class Someone:
    """A worker, as the registry sees it."""

    name: str = "vm-1-abc"
    busy: int = 0
    heard: list[str] = field(default_factory=list)

    def presence(self) -> Presence:
        return Presence(self.busy, [("g", f"task {n}") for n in range(self.busy)])

    def drain(self, *, now: bool) -> None:
        self.heard.append("now" if now else "finish")

    def undrain(self) -> None:
        self.heard.append("go on")

    @property
    def at_rest(self) -> bool:
        return not self.busy


DETAILS = WorkerDetails(("default", "gpu"), ("cuda",), ("command",), "vm", 4, "1.2.3", 7)


def member(store: OpenStore, clock: ManualClock, one: Someone, details: WorkerDetails = DETAILS) -> Registration:
    return Registration(store.tables, clock, one, details)


async def test_a_worker_is_seen_with_all_that_it_says(store: OpenStore) -> None:
    clock, one = ManualClock(), Someone(busy=2)
    assert await workers(store.tables, clock.now()) == []
    await member(store, clock, one).beat()
    clock.advance(12.0)
    (found,) = await workers(store.tables, clock.now())
    assert (found.name, found.state, found.host, found.slots, found.busy) == ("vm-1-abc", "active", "vm", 4, 2)
    assert (list(found.targets), list(found.labels), list(found.executors)) == (
        ["default", "gpu"],
        ["cuda"],
        ["command"],
    )
    assert (found.version, found.pid, found.seen_seconds, found.exits) == ("1.2.3", 7, 12.0, False)
    assert [dict(each) for each in found.running] == [
        {"graph": "g", "label": "task 0"},
        {"graph": "g", "label": "task 1"},
    ]
    assert found.since == found.seen
    assert await workers(store.tables, clock.now(), target="other") == []
    assert len(await workers(store.tables, clock.now(), target="gpu")) == 1


async def test_a_worker_that_is_asked_to_drain_hears_it_with_its_next_word(store: OpenStore) -> None:
    clock, one = ManualClock(), Someone(busy=1)
    registration = member(store, clock, one)
    await registration.beat()
    assert await ask(store.tables, one.name, draining=FINISH, exits=False) is not None
    assert one.heard == []
    await registration.beat()
    assert one.heard == ["finish"]
    assert [each.state for each in await workers(store.tables, clock.now())] == ["draining"]
    one.busy = 0
    await registration.beat()
    assert one.heard == ["finish"], "nobody has written since"
    assert [each.state for each in await workers(store.tables, clock.now())] == ["drained"]
    await ask(store.tables, one.name, draining=NOW, exits=True)
    await registration.beat()
    await ask(store.tables, one.name, draining="", exits=False)
    await registration.beat()
    assert one.heard == ["finish", "now", "go on"]
    (found,) = await workers(store.tables, clock.now())
    assert (found.state, found.exits) == ("active", False)


async def test_a_worker_that_leaves_is_not_listed_and_one_that_is_killed_is_gone(store: OpenStore) -> None:
    clock = ManualClock()
    left, killed = Someone("left"), Someone("killed")
    registration = member(store, clock, left)
    for each in (registration, member(store, clock, killed)):
        await each.beat()
    await ask(store.tables, "left", draining=FINISH, exits=False)
    await registration.leave()
    await registration.leave()
    assert [each.name for each in await workers(store.tables, clock.now())] == ["killed"]
    clock.advance(limits.WORKER_GONE_WORDS * limits.WORKER_SEEN_SECONDS + limits.WORKER_GONE_SLACK_SECONDS)
    assert [each.state for each in await workers(store.tables, clock.now())] == ["active"]
    clock.advance(1.0)
    assert [each.state for each in await workers(store.tables, clock.now())] == ["gone"]
    clock.advance(limits.WORKER_FORGOTTEN_SECONDS - 200)
    assert await clean(store.tables, clock.now()) == 0
    clock.advance(200)
    assert await clean(store.tables, clock.now()) == 1
    assert await workers(store.tables, clock.now()) == []


async def test_a_worker_that_has_long_had_nothing_says_that_it_writes_half_as_often(store: OpenStore) -> None:
    clock, one = ManualClock(), Someone(busy=1)
    registration = member(store, clock, one)

    async def every() -> object:
        await registration.beat()
        (row,) = await store.tables.get(WORKERS, [key_of(one.name)])
        assert row is not None
        return row.columns["every"]

    clock.advance(limits.WORKER_QUIET_SECONDS)
    assert await every() == limits.WORKER_SEEN_SECONDS
    one.busy = 0
    clock.advance(limits.WORKER_QUIET_SECONDS - 1)
    assert await every() == limits.WORKER_SEEN_SECONDS
    clock.advance(1)
    assert await every() == 2 * limits.WORKER_SEEN_SECONDS
    clock.advance(2 * limits.WORKER_GONE_WORDS * limits.WORKER_SEEN_SECONDS + limits.WORKER_GONE_SLACK_SECONDS)
    assert [each.state for each in await workers(store.tables, clock.now())] == ["active"]
    one.busy = 1
    assert await every() == limits.WORKER_SEEN_SECONDS


async def test_a_worker_whose_row_was_taken_away_comes_back(store: OpenStore) -> None:
    clock, one = ManualClock(), Someone()
    registration = member(store, clock, one)
    await registration.beat()
    clock.advance(2 * limits.WORKER_FORGOTTEN_SECONDS)  # asleep, as a laptop is
    await clean(store.tables, clock.now())
    await registration.beat()
    assert [each.state for each in await workers(store.tables, clock.now())] == ["active"]
    await member(store, clock, one).leave()  # which has never said a word
    assert len(await workers(store.tables, clock.now())) == 1


async def test_a_worker_that_nobody_knows_cannot_be_asked(store: OpenStore) -> None:
    clock = ManualClock()
    await member(store, clock, Someone("vm-1-abc")).beat()
    with pytest.raises(NotFound) as caught:
        await ask(store.tables, "vm-1-abd", draining=FINISH, exits=False)
    assert caught.value.near == ("vm-1-abc",)


async def test_any_name_makes_a_key(store: OpenStore) -> None:
    clock, one = ManualClock(), Someone("a/b\\c#d?e é" + "x" * 500)
    await member(store, clock, one).beat()
    (found,) = await workers(store.tables, clock.now())
    assert found.name == one.name
    assert key_of("") == "-"


async def test_what_handles_events_is_listed_apart_from_workers_and_cannot_drain(store: OpenStore) -> None:
    clock = ManualClock()
    details = WorkerDetails((), (), (), "vm", 0, "1.2.3", 8, kind=HANDLER)
    handler = Registration(store.tables, clock, RegisteredHandler("vm-1-h"), details)
    await handler.beat()
    await member(store, clock, Someone()).beat()
    found = await crew(store.tables, clock.now())
    assert ([one.name for one in found.workers], [one.name for one in found.handlers]) == (["vm-1-abc"], ["vm-1-h"])
    assert (found.handled, found.handlers[0].state, found.handlers[0].kind) == (True, "active", HANDLER)
    with pytest.raises(Refused, match="no tasks to drain"):
        await ask(store.tables, "vm-1-h", draining=FINISH, exits=False)
    clock.advance(limits.WORKER_GONE_WORDS * limits.WORKER_SEEN_SECONDS + limits.WORKER_GONE_SLACK_SECONDS + 1)
    assert not (await crew(store.tables, clock.now())).handled, "it has been silent for long"
    await handler.beat()
    assert (await crew(store.tables, clock.now())).handled
    await handler.leave()
    assert (await crew(store.tables, clock.now())).handlers == []


async def test_one_that_certainly_is_gone_is_shown_as_gone_at_once(store: OpenStore) -> None:
    clock = ManualClock()
    for name in ("dead", "marked", "lives"):
        await member(store, clock, Someone(name)).beat()
    await mark_gone(store.tables, ["marked", "unknown"])
    found = (await crew(store.tables, clock.now(), lambda name: name == "dead")).workers
    assert {one.name: one.state for one in found} == {"dead": "gone", "marked": "gone", "lives": "active"}
