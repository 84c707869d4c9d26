"""Notices: every fact that a channel hears arrives, in order, under one id, whatever dies and whoever else delivers."""

import asyncio
import contextlib
import dataclasses
import itertools
import json
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.engine.doctor import examine_graph, repair_graph
from taskgraph.engine.live_index import ORPHAN_SECONDS, drop_orphan
from taskgraph.engine.notifier import INDEX, Deliveries, NotDelivered, Notifier, enter, register, reopen, retry
from taskgraph.engine.outlets import OutletSettings
from taskgraph.engine.poison import Poison
from taskgraph.interfaces import loops
from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.settings import read_settings
from taskgraph.model import limits, schemas
from taskgraph.model.errors import Conflict, Refused, StorageUnavailable
from taskgraph.model.flag import Flag
from taskgraph.protocol import notices
from taskgraph.protocol.notices import Channel, Notice
from taskgraph.queries.graphs import Queries
from taskgraph.storage.tables import Insert, Range, Row, query_all
from tests.scenarios.stage import CrashError, Stage, Trap, TrappedTables, extension, graph_object, memory_stage

pytestmark = pytest.mark.usefixtures("settled")

KINDS = ("before", "after", "unclear", "conflict", "unavailable")
GRAPH_QUEUE = Channel("queue", ("graphs",))
HOOK = Channel("webhook", ("https://example.com/hook?token=x",), "ci")


@dataclass
class Shelf:
    """A receiver that writes down what comes, and refuses what it is told to."""

    got: dict[Channel, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    meanwhile: Callable[[], Awaitable[object]] | None = None
    refuse: Callable[[Channel, Notice], NotDelivered | None] = lambda channel, notice: None

    def serves(self, channel: Channel) -> str:
        return "not here" if channel.kind == "command" else ""

    async def send(self, channel: Channel, notice: Notice) -> None:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        if (failure := self.refuse(channel, notice)) is not None:
            raise failure
        body = json.loads(notice.body)
        assert body["id"] == notice.id
        self.got[channel].append(body)

    def types(self, channel: Channel) -> list[str]:
        """What came, each id once, in the order in which it came first; the order of ids is that of the journal."""
        seen: dict[str, str] = {}
        for body in self.got[channel]:
            assert seen.setdefault(body["id"], body["type"]) == body["type"]
        places = [tuple(map(int, each.split(".")[1:])) for each in seen]
        assert places == sorted(places)
        return list(seen.values())


def a_graph(**more: Any) -> Any:
    """a before b, and c, which fails if it is told to. Everybody is told something."""
    obj = graph_object({"a": [], "b": ["a"], "c": []}, **more)
    obj["notify"] = {"onFinished": {"queue": "graphs"}, "onBlocked": [{"queue": "graphs"}, {**HOOK.object}]}
    obj["tasks"]["a"]["notify"] = {"onSuccess": HOOK.object}
    obj["tasks"]["c"]["notify"] = {"onFailure": [HOOK.object], "onFinished": {"queue": "graphs"}}
    return document_from_object(obj)


def notifier(stage: Stage, shelf: Shelf, trap: Trap | None = None, owner: str = "one") -> Notifier:
    tables = TrappedTables(stage.tables, trap) if trap is not None else stage.tables
    return Notifier(tables, stage.clock, shelf, owner)


async def index(stage: Stage) -> list[str]:
    return [row.key for row in await query_all(stage.tables, INDEX, Range())]


async def to_the_end(stage: Stage, made: Notifier, seconds: float = 400.0) -> Deliveries:
    told = await made.deliver(stage.graph_id)
    while told.waiting:
        stage.clock.advance(limits.NOTICE_PAUSE_SECONDS_MAX / 2)
        seconds -= 1
        assert seconds > 0
        told = await made.deliver(stage.graph_id)
    return told


async def test_everybody_hears_what_concerns_them_and_then_the_graph_leaves_the_index(stage: Stage) -> None:
    shelf = Shelf()
    await stage.submit(a_graph())
    assert await index(stage) == ["graph"]
    assert (await notifier(stage, shelf).deliver("graph")).delivered == 0
    assert await stage.work() == "finished"
    told = await notifier(stage, shelf).deliver("graph")
    assert (told.delivered, told.waiting, told.undone) == (3, 0, 0)
    assert shelf.types(GRAPH_QUEUE) == ["task-completed", "graph-finished"]
    assert shelf.types(HOOK) == ["task-completed"]
    (hooked,) = shelf.got[HOOK]
    assert hooked["label"] == "a"
    assert hooked["graph"] == "graph"
    assert await index(stage) == []
    assert {str(row.columns["state"]) for row in await query_all(stage.tables, "graph", notices.all_rows())} == {"done"}
    assert (await notifier(stage, shelf).deliver("graph")).delivered == 0


async def test_a_blocked_graph_tells_and_goes_on_telling_after_a_rerun(stage: Stage) -> None:
    shelf = Shelf()
    await stage.submit(a_graph())
    assert await stage.work(fails={"c": 1}) == "blocked"
    told = await notifier(stage, shelf).deliver("graph")
    assert (told.waiting, told.undone) == (0, 1)
    assert sorted(shelf.types(HOOK)) == ["graph-blocked", "task-completed", "task-failed"]
    assert shelf.types(GRAPH_QUEUE) == ["task-failed", "graph-blocked"]
    await stage.rerun("c")
    assert await stage.work() == "finished"
    await notifier(stage, shelf).deliver("graph")
    assert shelf.types(GRAPH_QUEUE)[2:] == ["task-completed", "graph-finished"]
    assert await index(stage) == []


PULSE = Channel("queue", ("pulse",), format="taskcluster-v1")


def fits(obj: Any, name: str) -> bool:
    return schemas.validator("taskcluster", f"#/$defs/{name}").is_valid(obj)


@dataclass
class Exchange(Shelf):
    """A receiver of the old scheduler's messages, which writes down each as the exchange's name and the state."""

    said: list[tuple[str, str]] = field(default_factory=list)

    async def send(self, channel: Channel, notice: Notice) -> None:
        message = json.loads(notice.body)
        assert fits(message, "exchange-message")
        name = message["exchange"].rpartition("/")[2]
        assert fits(message["payload"], f"{name}-message")
        said = (notice.id, f"{name} {message['payload']['status']['state']}")
        if said not in self.said:
            self.said.append(said)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_deliverer_that_dies_anywhere_leaves_out_no_message_of_the_old_scheduler(kind: str) -> None:
    obj = graph_object({"a": [], "c": []})
    obj["notify"] = dict.fromkeys(("onRunning", "onExtended", "onBlocked", "onFinished"), PULSE.object)
    for at in itertools.count(1):
        stage, exchange = memory_stage(), Exchange()
        await stage.submit(document_from_object(obj))
        await stage.work(fails={"c": 1})
        trap = Trap(at, kind)
        with contextlib.suppress(CrashError, StorageUnavailable, Conflict):
            await notifier(stage, exchange, trap).deliver("graph")
        await stage.extend(extension({"d": ["a"]}))
        await stage.rerun("c")
        assert await stage.work() == "finished"
        stage.clock.advance(200)
        await to_the_end(stage, notifier(stage, exchange, owner="two"))
        assert [words for _, words in exchange.said] == [
            "task-graph-running running",
            "task-graph-blocked blocked",
            "task-graph-extended running",
            "task-graph-finished finished",
        ], at
        places = [tuple(map(int, each.split(".")[1:])) for each, _ in exchange.said]
        assert places == sorted(places)
        assert await index(stage) == []
        if len(trap.calls) < at:
            assert at > 5
            return


@pytest.mark.parametrize("kind", KINDS)
async def test_a_deliverer_that_dies_anywhere_leaves_out_nothing_and_no_order(kind: str) -> None:
    for at in itertools.count(1):
        stage, shelf = memory_stage(), Shelf()
        await stage.submit(a_graph())
        await stage.work(fails={"c": 1})
        trap = Trap(at, kind)
        with contextlib.suppress(CrashError, StorageUnavailable, Conflict):
            await notifier(stage, shelf, trap).deliver("graph")
        await stage.rerun("c")
        assert await stage.work() == "finished"
        stage.clock.advance(200)  # past the lease of the one who died
        await to_the_end(stage, notifier(stage, shelf, owner="two"))
        assert shelf.types(GRAPH_QUEUE) == ["task-failed", "graph-blocked", "task-completed", "graph-finished"], at
        assert sorted(shelf.types(HOOK)) == ["graph-blocked", "task-completed", "task-failed"], at
        assert await index(stage) == []
        if len(trap.calls) < at:
            assert at > 8
            return


@pytest.mark.parametrize("kind", ["before", "after", "unclear", "conflict"])
async def test_a_submission_that_dies_anywhere_has_its_channels_all_the_same(kind: str) -> None:
    for at in itertools.count(1):
        stage, shelf = memory_stage(), Shelf()
        trap = Trap(at, kind)
        try:
            await stage.submit(a_graph(), handlers=stage.more_handlers(trap))
        except (CrashError, StorageUnavailable, Conflict):
            await stage.submit(a_graph())
        stage.clock.advance(limits.REDISPATCH_SECONDS)
        await stage.sweep()
        assert await stage.work() == "finished"
        await notifier(stage, shelf).deliver("graph")
        assert shelf.types(GRAPH_QUEUE) == ["task-completed", "graph-finished"], (at, trap.calls)
        if len(trap.calls) < at:
            return


async def test_two_deliverers_do_not_tell_side_by_side(memory: Stage) -> None:
    shelf = Shelf()
    await memory.submit(a_graph())
    await memory.work()
    met: list[Deliveries] = []

    async def meanwhile() -> None:
        met.append(await notifier(memory, shelf, owner="two").deliver("graph"))

    shelf.meanwhile = meanwhile
    first = await notifier(memory, shelf).deliver("graph")
    assert [each.waiting for each in met] == [1], "the channel that is being told is left to the other"
    assert first.delivered + met[0].delivered == 3
    assert sum(map(len, shelf.got.values())) == 3
    assert shelf.types(GRAPH_QUEUE) == ["task-completed", "graph-finished"]


async def test_a_channel_that_takes_nothing_holds_up_nobody_else_and_is_tried_ever_less(memory: Stage) -> None:
    shelf = Shelf(refuse=lambda channel, notice: NotDelivered("HTTP 503") if channel == HOOK else None)
    await memory.submit(a_graph())
    await memory.work()
    made = notifier(memory, shelf)
    told = await made.deliver("graph")
    assert (told.delivered, told.failed, told.waiting) == (2, 1, 1)
    assert "webhook https://example.com/hook" in told.troubles[0]
    assert "token" not in told.troubles[0]
    assert (await made.deliver("graph")).failed == 0  # not before its next try
    pauses: list[float] = []
    for _ in range(12):
        began = memory.clock.now()
        while not (await made.deliver("graph")).failed:
            memory.clock.advance(0.5)
        pauses.append((memory.clock.now() - began).total_seconds())
    assert pauses[0] < 3
    assert 100 < max(pauses) <= limits.NOTICE_PAUSE_SECONDS_MAX * 1.25
    assert await index(memory) == ["graph"]
    shelf.refuse = lambda channel, notice: None
    await to_the_end(memory, made)
    assert shelf.types(HOOK) == ["task-completed"]
    assert await index(memory) == []


async def test_the_pause_of_a_channel_that_a_clock_ahead_began_is_named_and_ended(memory: Stage) -> None:
    shelf = Shelf(refuse=lambda channel, notice: NotDelivered("HTTP 503") if channel == HOOK else None)
    await memory.submit(a_graph())
    await memory.work()
    memory.clock.advance(365 * 86_400)
    await notifier(memory, shelf).deliver("graph")
    memory.clock.advance(-365 * 86_400)
    poison = Poison(memory.tables, memory.queues, memory.clock, memory.handlers.names)
    found = await examine_graph(memory.handlers, poison, "graph")
    assert [(each.code, each.detail) for each in found.findings] == [
        ("clock-off", "nextTry"),
        ("clock-off", "leaseUntil"),
    ]
    assert found.sound
    after = await repair_graph(memory.handlers, poison, "graph")
    assert (after.findings, len(after.repaired)) == ((), 2)
    (channel,) = [each for each in await memory.queries.channels("graph") if each.next_try]
    assert channel.next_try == memory.clock.now()


async def test_a_receiver_says_when_to_come_again(memory: Stage) -> None:
    shelf = Shelf(refuse=lambda channel, notice: NotDelivered("HTTP 429", 100.0) if channel == HOOK else None)
    await memory.submit(a_graph())
    await memory.work()
    made = notifier(memory, shelf)
    await made.deliver("graph")
    memory.clock.advance(99)
    assert (await made.deliver("graph")).failed == 0
    memory.clock.advance(2)
    assert (await made.deliver("graph")).failed == 1


async def test_a_channel_is_given_up_in_the_end_and_taken_up_by_hand(memory: Stage) -> None:
    shelf = Shelf(refuse=lambda channel, notice: NotDelivered("HTTP 500") if channel == HOOK else None)
    await memory.submit(a_graph())
    await memory.work()
    made = notifier(memory, shelf)
    await made.deliver("graph")
    memory.clock.advance(limits.NOTICE_GIVE_UP_SECONDS + 1)
    told = await made.deliver("graph")
    assert (told.failed, told.given_up) == (1, 1)
    memory.clock.advance(1_000)
    assert (await made.deliver("graph")).failed == 0
    assert await index(memory) == []
    (given_up,) = [each for each in await memory.queries.channels("graph") if each.state == "given-up"]
    assert given_up.channel == "webhook https://example.com/hook"
    assert given_up.last_error.startswith("notice graph.")
    assert given_up.last_error.endswith(": HTTP 500")
    shelf.refuse = lambda channel, notice: None
    assert await retry(memory.tables, "graph", memory.clock.now()) == 1
    assert await index(memory) == ["graph"]
    await to_the_end(memory, made)
    assert shelf.types(HOOK) == ["task-completed"]


@pytest.mark.parametrize("listed", [True, False])
async def test_a_channel_taken_up_by_hand_while_its_graph_leaves_the_index_is_told(
    memory: Stage, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    shelf = Shelf(refuse=lambda channel, notice: NotDelivered("HTTP 410", final=True) if channel == HOOK else None)
    await memory.submit(a_graph())
    await memory.work()
    made = notifier(memory, shelf)
    await to_the_end(memory, made)  # the channel is given up
    assert await index(memory) == []
    await enter(memory.tables, "graph", memory.clock.now())
    (entry,) = await made.waiting()
    leave = Notifier._leave

    async def after_a_retry(self: Notifier, graph_id: str, row: Row | None) -> None:
        assert await retry(memory.tables, "graph", memory.clock.now()) == 1
        await leave(self, graph_id, row)

    monkeypatch.setattr(Notifier, "_leave", after_a_retry)
    await made.deliver("graph", listed=entry if listed else None)
    assert await index(memory) == ["graph"]
    monkeypatch.undo()
    shelf.refuse = lambda channel, notice: None
    await to_the_end(memory, made)
    assert shelf.types(HOOK) == ["task-completed"]


async def test_a_receiver_that_is_gone_is_given_up_at_once(memory: Stage) -> None:
    shelf = Shelf(refuse=lambda channel, notice: NotDelivered("HTTP 410", final=True) if channel == HOOK else None)
    await memory.submit(a_graph())
    await memory.work()
    assert (await notifier(memory, shelf).deliver("graph")).given_up == 1


async def test_a_channel_that_this_process_does_not_serve_waits_for_one_that_does(memory: Stage) -> None:
    obj = graph_object({"a": []}, notify={"onFinished": {"command": ["true"]}})
    shelf = Shelf()
    await memory.submit(document_from_object(obj))
    await memory.work()
    told = await notifier(memory, shelf).deliver("graph")
    assert (told.waiting, told.undone) == (1, 1)
    assert "not here" in told.troubles[0]
    assert await index(memory) == ["graph"]


async def test_a_long_journal_is_told_by_pages_and_written_down_on_the_way(memory: Stage) -> None:
    labels = [f"t{number}" for number in range(450)]
    obj = graph_object({label: [] for label in labels})
    for label in labels:
        obj["tasks"][label]["notify"] = {"onSuccess": {"queue": "tasks"}}
    shelf = Shelf()
    await memory.submit(document_from_object(obj))
    await memory.work()
    trap = Trap()
    told = await notifier(memory, shelf, trap).deliver("graph")
    assert told.delivered == 450
    assert len({each["label"] for each in shelf.got[Channel("queue", ("tasks",))]}) == 450
    assert trap.calls.count("commit") <= 450 // 16 + 4


async def test_an_extension_brings_its_channels_with_it(stage: Stage) -> None:
    shelf = Shelf()
    await stage.submit(a_graph())
    extra = graph_object({"x": ["b"], "y": []})
    extra["tasks"]["x"]["notify"] = {"onSuccess": {"queue": "late"}}
    extra["tasks"]["y"]["notify"] = {"onSuccess": {"queue": "graphs"}}
    assert await stage.extend(document_from_object(extra, kind="extension")) == "done"
    assert await stage.work() == "finished"
    await notifier(stage, shelf).deliver("graph")
    assert shelf.types(Channel("queue", ("late",))) == ["task-completed"]
    assert sorted(each.get("label", "") for each in shelf.got[GRAPH_QUEUE]) == ["", "c", "y"]


async def test_an_extension_with_too_many_channels_is_refused(memory: Stage) -> None:
    await memory.submit(a_graph())
    labels = [f"x{number}" for number in range(limits.CHANNELS_MAX - 1)]
    extra = graph_object({label: [] for label in labels})
    for label in labels:
        extra["tasks"][label]["notify"] = {"onSuccess": {"queue": f"queue-{label}"}}
    with pytest.raises(Refused, match="different channels"):
        await memory.stage_extension(document_from_object(extra, kind="extension"))


async def test_a_name_without_a_graph_leaves_the_index_after_an_hour(memory: Stage) -> None:
    shelf = Shelf()
    trap = Trap(at=1, kind="before", only="get")
    with pytest.raises(CrashError):
        await memory.submit(a_graph(), handlers=memory.more_handlers(trap))
    made = notifier(memory, shelf)

    async def one_round() -> None:
        for row in await made.waiting():
            await made.deliver(row.key, listed=row)

    await one_round()
    assert await index(memory) == ["graph"]
    memory.clock.advance(3601)
    await one_round()
    assert await index(memory) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_an_extension_whose_channels_meet_a_fault_anywhere_has_each_of_them_once(kind: str) -> None:
    late = Channel("queue", ("late",))
    for at in itertools.count(1):
        stage, shelf = memory_stage(), Shelf()
        await stage.submit(a_graph())
        wanted = notices.registrations({"onFinished": late.object, "onBlocked": HOOK.object}, ())
        trap = Trap(at, kind)
        with contextlib.suppress(CrashError, StorageUnavailable):
            await register(TrappedTables(stage.tables, trap), "graph", wanted, stage.clock.now())
        await register(stage.tables, "graph", wanted, stage.clock.now())
        assert await stage.work() == "finished"
        await to_the_end(stage, notifier(stage, shelf))
        assert shelf.types(late) == ["graph-finished"], (at, trap.calls)
        if len(trap.calls) < at:
            assert at > 3
            return


@pytest.mark.parametrize("kind", KINDS)
async def test_the_channels_of_a_graph_that_goes_on_are_open_again_though_that_met_a_fault_anywhere(kind: str) -> None:
    for at in itertools.count(1):
        stage = memory_stage()
        await stage.submit(a_graph())
        await stage.work()
        await to_the_end(stage, notifier(stage, Shelf()))
        assert {each.state for each in await stage.queries.channels("graph")} == {"done"}
        trap = Trap(at, kind)
        try:
            await reopen(TrappedTables(stage.tables, trap), "graph", stage.clock.now())
        except (CrashError, StorageUnavailable):  # the message comes again
            await reopen(stage.tables, "graph", stage.clock.now())
        assert await index(stage) == ["graph"], (at, trap.calls)
        assert {each.state for each in await stage.queries.channels("graph")} == {"open"}, (at, trap.calls)
        if len(trap.calls) < at:
            assert at > 2
            return


@pytest.mark.parametrize("kind", KINDS)
async def test_a_channel_that_is_taken_up_by_hand_is_told_though_that_met_a_fault_anywhere(kind: str) -> None:
    for at in itertools.count(1):
        stage = memory_stage()
        shelf = Shelf(refuse=lambda channel, notice: NotDelivered("HTTP 410", final=True) if channel == HOOK else None)
        await stage.submit(a_graph())
        await stage.work()
        await to_the_end(stage, notifier(stage, shelf))
        assert await index(stage) == []
        shelf.refuse = lambda channel, notice: None
        trap = Trap(at, kind)
        try:
            await retry(TrappedTables(stage.tables, trap), "graph", stage.clock.now())
        except (CrashError, StorageUnavailable):  # whoever asked is told so, and asks again
            await retry(stage.tables, "graph", stage.clock.now())
        assert await index(stage) == ["graph"], (at, trap.calls)
        await to_the_end(stage, notifier(stage, shelf))
        assert shelf.types(HOOK) == ["task-completed"], (at, trap.calls)
        if len(trap.calls) < at:
            assert at > 2
            return


@pytest.mark.parametrize("kind", KINDS)
async def test_a_graph_of_which_everybody_knows_leaves_the_index_after_a_fault_anywhere(kind: str) -> None:
    for at in itertools.count(1):
        stage, shelf = memory_stage(), Shelf()
        await stage.submit(a_graph())
        assert await stage.work() == "finished"
        trap = Trap(at, kind)
        with contextlib.suppress(CrashError, StorageUnavailable):
            await notifier(stage, shelf, trap).deliver("graph")
        stage.clock.advance(200)  # past the lease of the one who died
        for row in await notifier(stage, shelf).waiting():
            await to_the_end(stage, notifier(stage, shelf, owner="two"))
            assert row.key == "graph"
        assert shelf.types(GRAPH_QUEUE) == ["task-completed", "graph-finished"], (at, trap.calls)
        assert await index(stage) == [], (at, trap.calls)
        if len(trap.calls) < at:
            assert at > 8
            return


async def test_the_loop_of_a_server_outlives_a_store_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop = Flag()
    pauses: list[float] = []

    async def wait_any(events: Sequence[Flag], seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 2:
            stop.set()
        await asyncio.sleep(0)

    monkeypatch.setattr(loops, "wait_any", wait_any)
    async with open_app(read_settings(f"sqlite:///{tmp_path}/s.db", {}, cwd=tmp_path)) as app:
        app = dataclasses.replace(app, tables=TrappedTables(app.tables, Trap(1, "unavailable")))
        with caplog.at_level(logging.WARNING, "taskgraph"):
            await loops.notify_forever(app, stop, OutletSettings())
    assert [each.getMessage() for each in caplog.records] == ["notices could not be delivered: 503 at query"]
    assert len(pauses) > 2


def labels_of(events: Sequence[Any]) -> list[str]:
    return [str(event.fields.get("label", "")) for event in events]


async def test_a_consumer_goes_on_from_its_cursor_wherever_it_stopped(stage: Stage) -> None:
    await stage.submit(a_graph())
    await stage.work()
    whole = [event async for event in stage.queries.follow("graph")]
    assert [event.kind for event in whole][-1] == "graph-finished"
    assert any(event.part for event in whole), "some row of the journal holds several facts"
    for at, event in enumerate(whole):
        rest = [each async for each in stage.queries.follow("graph", since=event.cursor)]
        assert rest == whole[at + 1 :], event.cursor


async def test_who_follows_outlasts_a_store_that_is_away(memory: Stage) -> None:
    await memory.submit(a_graph())
    before, trap, got = len(await memory.events()), Trap(), list[Any]()
    queries = Queries(TrappedTables(memory.tables, trap), memory.queues, memory.clock, memory.names)

    async def follow() -> None:
        async for each in queries.follow("graph"):
            got.append(each)

    async def until(so: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not so():
                await asyncio.sleep(0)

    following = asyncio.create_task(follow())
    await until(lambda: len(got) == before and len(trap.calls) > 10)  # it has looked, and looks again
    trap.kind, trap.at = "unavailable", len(trap.calls) + 1
    await until(lambda: len(trap.calls) > trap.at)
    await memory.work()
    await asyncio.wait_for(following, 10)
    assert got == await memory.events()


async def test_events_are_filtered_by_kind_label_and_changed_field(memory: Stage) -> None:
    await memory.submit(a_graph())
    await memory.work(fails={"c": 1})
    queries = memory.queries
    assert labels_of(await queries.events("graph", where={"event": ["task-completed"]})) == ["a", "b"]
    found = await queries.events("graph", where={"event": ["task-*"], "label": ["a", "c"]})
    assert sorted(labels_of(found)) == ["a", "c"]
    assert {each.kind for each in await queries.events("graph", where={"changed": ["blockedBy"]})} == {"graph-blocked"}
    assert await queries.events("graph", where={"nothing": ["*"]}) == []


@pytest.mark.parametrize("kind", ["conflict", "unclear"])
async def test_an_entry_without_a_graph_of_which_the_answer_is_lost_is_looked_at_again(kind: str) -> None:
    stage = memory_stage()
    await stage.tables.commit(INDEX, [Insert("none", {"since": stage.clock.now()})])
    stage.clock.advance(ORPHAN_SECONDS + 1)
    (entry,) = await stage.tables.get(INDEX, ["none"])
    trapped: Any = TrappedTables(stage.tables, Trap(1, kind, "commit"))
    assert not await drop_orphan(trapped, INDEX, entry, stage.clock.now())
    assert await stage.tables.get(INDEX, ["none"]) == [None], "it was done"
