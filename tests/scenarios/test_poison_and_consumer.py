"""The receiving end: acknowledged last, failures apart from storage errors, what cannot be handled set aside."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from taskgraph.engine.commit import Records
from taskgraph.engine.consumer import Waiting
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.poison import PoisonState
from taskgraph.model import limits
from taskgraph.model.errors import NotFound, Refused, StorageUnavailable
from taskgraph.model.ids import row_key
from taskgraph.model.messages import LARGE_VERSION, Rerun, RunTasks, TaskCompleted, parse, to_text
from taskgraph.model.names import POISON
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Merge, Range, query_all
from tests.scenarios.stage import CrashError, Held, Stage, Trap, TrappedQueues, TrappedTables, graph


async def put(stage: Stage, *bodies: str) -> None:
    await stage.queues.send(stage.names.events, bodies)


async def poison_rows(stage: Stage) -> dict[str, dict[str, object]]:
    return {row.key: dict(row.columns) for row in await query_all(stage.tables, POISON, Range())}


async def take(stage: Stage, handlers: Handlers | None = None) -> list[Delivery]:
    """Receive what is visible now and have a consumer take it, as one batch of one graph."""
    deliveries = await stage.queues.receive(stage.names.events, count=limits.RECEIVE_MAX, lease_seconds=30)
    batch = [Waiting(parse(each.body), each) for each in deliveries]
    await stage.consumer(handlers).take(stage.graph_id, batch)
    return deliveries


# --- the good case -----------------------------------------------------------------------------------------------


async def test_a_consumer_handles_what_is_on_the_queue(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": ["a"], "c": []}))
    held = await stage.claims("a", "c")
    await put(stage, *(to_text(stage.completed(each)) for each in held))
    await stage.consume()
    assert await stage.states() == {"a": "completed", "b": "pending", "c": "completed"}
    assert await stage.queues.count(stage.names.events) == 0
    assert await poison_rows(stage) == {}


async def test_messages_in_base64_are_read_too(stage: Stage) -> None:
    await stage.submit(graph({"a": []}))
    text = to_text(stage.completed(await stage.claim("a")))
    await put(stage, base64.b64encode(text.encode()).decode())
    await stage.consume()
    assert await stage.state() == "finished"


async def test_a_message_is_acknowledged_last(stage: Stage) -> None:
    """After the commit, and after what follows from it has been sent (P18)."""
    await stage.submit(graph({"a": [], "b": ["a"]}))
    await put(stage, to_text(stage.completed(await stage.claim("a"))))
    trap = Trap()
    await take(stage, stage.more_handlers(trap))
    assert trap.calls.count("delete") == 1
    assert trap.calls.index("commit") < trap.calls.index("send") < trap.calls.index("delete")
    assert trap.calls[-1] == "delete"


async def test_wherever_a_consumer_dies_the_message_is_still_there_or_done(local: Stage) -> None:
    """Killed before each call: whenever the message is gone, its effect is written and sent."""
    number = 0
    while True:
        number += 1
        stage = Stage(local.tables, local.queues, local.clock, prefix=f"p{number}", kind=local.kind)
        stage.graph_id = f"graph-{number}"
        await stage.submit(graph({"a": [], "b": ["a"]}))
        await stage.offered()
        await put(stage, to_text(stage.completed(await stage.claim("a"))))
        trap = Trap(number, "before")
        died = False
        try:
            await take(stage, stage.more_handlers(trap))
        except CrashError:
            died = True
        assert await stage.queues.count(stage.names.events) == (1 if died else 0)
        local.clock.advance(31)
        if died:
            (again,) = await take(stage)
            assert again.dequeue_count == 2
        assert await stage.task_state("b") == "pending"
        assert set(await stage.offered()) == {("b", 0)}
        assert await poison_rows(stage) == {}
        if not died:
            assert number > 4
            return


# --- what is malformed ---------------------------------------------------------------------------------------------

MALFORMED = {
    "no-json": "{",
    "not-an-object": "[]",
    "no-version": "{}",
    "unknown-type": '{"version":1,"type":"dance","graph":"graph"}',
    "unknown-graph-id": '{"version":1,"type":"add-tasks","graph":"../x","request":"r"}',
    "no-tasks": '{"version":1,"type":"task-completed","graph":"graph","tasks":[]}',
    "deep": '{"version":1,"x":' + "[" * 500 + "]" * 500 + "}",
    "huge-run": '{"version":1,"type":"rerun","graph":"graph","task":"AAAAAAAAQRCGAAAAAAAAAA","run":1e300}',
    "not-ascii": "\u00ff\u20ac\U0001f600",
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_malformed_message_is_set_aside_at_once(local: Stage, body: str) -> None:
    await put(local, body)
    await local.consume()
    assert await local.queues.count(local.names.events) == 0
    (message,) = await local.poison.list()
    assert (message.queue, message.body, message.state) == (local.names.events, body, "poison")
    assert message.reason
    assert message.set_aside == local.clock.now()
    (copy,) = await local.queues.receive(local.names.poison(local.names.events), lease_seconds=1)
    assert copy.body == body


class Foreign(TrappedQueues):
    """Queues into which a foreign sender has put what we may not send ourselves."""

    def __init__(self, stage: Stage, body: str) -> None:
        super().__init__(stage.queues, Trap())
        self.body = body

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        found = await super().receive(queue, count=count, lease_seconds=lease_seconds)
        return [replace(each, body=self.body) if each.body == "foreign" else each for each in found]


@pytest.mark.parametrize("body", ["", "\u0001\u0002", "x" * (64 * 1024)], ids=["empty", "control", "64-KiB"])
async def test_what_only_foreign_senders_can_send_is_set_aside_too(local: Stage, body: str) -> None:
    """No text on any queue stops a consumer (S15): what no queue of ours would take is kept in its row alone."""
    await local.submit(graph({"a": []}))
    await put(local, "foreign", to_text(local.completed(await local.claim("a"))))
    handlers = Handlers(local.records, Foreign(local, body), local.clock, local.names)
    await local.consume(local.consumer(handlers))
    assert await local.state() == "finished"
    assert await local.queues.count(local.names.events) == 0
    (message,) = await local.poison.list()
    assert message.body == body
    with pytest.raises(Refused) as caught:
        await local.poison.replay(message.key)
    assert caught.value.code == "cannot-be-sent"
    assert [each.state for each in await local.poison.list()] == ["poison"]


async def test_a_work_message_on_the_events_queue_is_set_aside(stage: Stage) -> None:
    await stage.submit(graph({"a": []}))
    await put(stage, to_text(RunTasks("graph", "default", ((stage.task_id("a"), 0),))))
    await stage.consume()
    (message,) = await stage.poison.list()
    assert "work queue" in message.reason
    assert await stage.task_state("a") == "pending"


async def test_a_malformed_message_keeps_nobody_waiting(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": ["a"]}))
    held = await stage.claim("a")
    await put(stage, "{", to_text(stage.completed(held)), "[]")
    await stage.consume()
    assert await stage.task_state("b") == "pending"
    assert len(await stage.poison.list()) == 2


async def test_a_long_body_is_kept_whole(local: Stage) -> None:
    body = json.dumps({"version": 1, "type": "none", "text": "ü" * 20_000}, ensure_ascii=False)
    await put(local, body)
    await local.consume()
    (message,) = await local.poison.list()
    assert message.body == body


async def test_setting_aside_survives_a_death_in_between(local: Stage) -> None:
    """Row first, copy second, original deleted last: killed anywhere, the message is not lost, and listed once."""
    for at in range(1, 7):
        stage = Stage(local.tables, local.queues, local.clock, prefix=f"p{at}", kind=local.kind)
        body = f"{{ {at}"
        await put(stage, body)
        (delivery,) = await stage.queues.receive(stage.names.events, lease_seconds=30)
        trap = Trap(at, "before")
        try:
            await stage.consumer(stage.more_handlers(trap)).poison.set_aside(delivery, "why")
        except CrashError:
            local.clock.advance(31)
            (again,) = await stage.queues.receive(stage.names.events, lease_seconds=30)
            assert again.id == delivery.id
            await stage.poison.set_aside(again, "why")
        assert await stage.queues.count(stage.names.events) == 0
        assert [each.body for each in await stage.poison.list()].count(body) == 1
        assert await stage.queues.count(stage.names.poison(stage.names.events)) >= 1


# --- what cannot be handled ----------------------------------------------------------------------------------------


async def deliver_until(stage: Stage, done: Callable[[], bool], *, most: int = 40) -> int:
    """Consume, let time pass, consume …; gives the number of rounds."""
    for number in range(1, most + 1):
        await stage.consume()
        if done():
            return number
        stage.clock.advance(120)
    raise AssertionError("no end")


async def test_a_message_that_keeps_failing_is_counted_and_set_aside(local: Stage) -> None:
    await local.submit(graph({"a": []}))
    text = to_text(Rerun("graph", ((local.task_id("nobody"), 0),)))
    await put(local, text)
    seen: list[int] = []
    for _ in range(limits.POISON_FAILURES_MAX):
        await local.consume()
        (row,) = (await poison_rows(local)).values()
        assert row["state"] == PoisonState.FAILING
        seen.append(int(str(row["failures"])))
        assert await local.poison.list() == []
        assert await local.queues.count(local.names.events) == 1
        local.clock.advance(120)
    assert seen == [1, 2, 3, 4, 5]
    await local.consume()
    (message,) = await local.poison.list()
    assert (message.body, message.failures) == (text, limits.POISON_FAILURES_MAX + 1)
    assert "no row" in message.reason
    assert await local.queues.count(local.names.events) == 0


async def test_a_failing_message_waits_longer_and_longer(local: Stage) -> None:
    await local.submit(graph({"a": []}))
    await put(local, to_text(Rerun("graph", ((local.task_id("nobody"), 0),))))
    waits = []
    for _ in range(limits.POISON_FAILURES_MAX):
        await local.consume()
        waited = 0
        while not (found := await local.queues.receive(local.names.events, lease_seconds=30)):
            local.clock.advance(1)
            waited += 1
        waits.append(waited)
        await local.queues.renew(found[0], lease_seconds=0)
    assert waits == sorted(waits)
    assert waits[0] >= 1
    assert waits[-1] >= 8


async def test_a_message_that_came_too_early_is_handled_in_the_end(local: Stage) -> None:
    """The graph of an extension's message is not there yet (R29): it fails, comes back, and leaves no trace."""
    local.graph_id = "early"
    held = Held(local.task_id("a"), 0, "c")
    await put(local, to_text(local.completed(held)))
    await local.consume()
    assert [row["state"] for row in (await poison_rows(local)).values()] == [PoisonState.FAILING]
    await local.submit(graph({"a": []}))
    local.clock.advance(120)
    await local.consume()
    assert await local.queues.count(local.names.events) == 0
    assert await poison_rows(local) == {}


async def test_a_failing_message_costs_its_neighbours_nothing(local: Stage) -> None:
    await local.submit(graph({"a": [], "b": ["a"]}))
    held = await local.claim("a")
    bad = to_text(TaskCompleted("graph", (local.result(Held(local.task_id("nobody"), 0, "c")),)))
    await put(local, bad, to_text(local.completed(held)), bad)
    await local.consume()
    assert await local.task_state("b") == "pending"
    assert await local.queues.count(local.names.events) == 2
    assert [row["failures"] for row in (await poison_rows(local)).values()] == [1, 1]


async def test_rows_that_contradict_each_other_are_the_message_s_failure_and_no_one_else_s(local: Stage) -> None:
    """A damaged column: the message that meets it is set aside in the end, the others of its batch are handled."""
    await local.submit(graph({"a": [], "b": ["a"], "c": []}))
    a, c = await local.claims("a", "c")
    row = await local.row("b")
    await local.tables.commit("graph", [Merge(row.key, row.etag, {"requiresLeft": "no list"})])
    await put(local, to_text(local.completed(a)), to_text(local.completed(c)))
    await deliver_until(local, lambda: local.clock.monotonic() > 1000)
    assert await local.states() == {"a": "running", "b": "unscheduled", "c": "completed"}
    (message,) = await local.poison.list()
    assert "requiresLeft" in message.reason
    row = await local.row("b")
    await local.tables.commit("graph", [Merge(row.key, row.etag, {"requiresLeft": f'["{a.task_id}"]'})])
    await local.poison.replay(message.key)
    await local.consume()
    assert await local.task_state("b") == "pending"


@pytest.mark.parametrize("column", ["runs", "rerunsLeft", "dependents", "started"])
async def test_a_damaged_row_of_the_task_itself_spares_the_batch(local: Stage, column: str) -> None:
    """Whatever a cell holds, the error is about that task alone."""
    await local.submit(graph({"a": [], "c": []}, reruns={"a": 0 if column == "dependents" else 2}))
    a, c = await local.claims("a", "c")
    row = await local.row("a")
    await local.tables.commit("graph", [Merge(row.key, row.etag, {column: "{damaged"})])
    message = local.completed(a) if column == "dependents" else local.failed(a)
    handled = await local.handlers.handle("graph", [message, local.completed(c)])
    assert [each.error is None for each in handled] == [False, True]
    assert (await local.task_state("a"), await local.task_state("c")) == ("running", "completed")


# --- storage errors and newer versions -----------------------------------------------------------------------------


async def test_storage_errors_are_never_counted(local: Stage) -> None:
    """Every delivery fails because the table does not answer, more often than any limit: nothing is set aside."""
    await local.submit(graph({"a": []}))
    await put(local, to_text(local.completed(await local.claim("a"))))

    class Down(TrappedTables):
        async def commit(self, partition, changes):  # type: ignore[no-untyped-def]
            raise StorageUnavailable("503")

    queues = TrappedQueues(local.queues, Trap())
    handlers = Handlers(Records(Down(local.tables, Trap()), local.clock), queues, local.clock, local.names)
    for _ in range(limits.POISON_FAILURES_MAX + 2):
        await local.consume(local.consumer(handlers))
        local.clock.advance(120)
    assert await poison_rows(local) == {}
    assert await local.poison.list() == []
    await local.consume()
    assert await local.state() == "finished"
    assert await poison_rows(local) == {}


async def test_a_message_that_nobody_brings_to_an_end_is_set_aside_at_last(local: Stage) -> None:
    """Deliveries that ended with neither an answer nor a recorded failure: a consumer that dies of it, say."""
    await local.submit(graph({"a": []}))
    await put(local, to_text(local.completed(await local.claim("a"))))
    for _ in range(limits.POISON_DELIVERIES_MAX):
        assert await local.queues.receive(local.names.events, lease_seconds=1)
        local.clock.advance(2)
    await local.consume()
    (message,) = await local.poison.list()
    assert "101 times" in message.reason


async def test_a_message_of_a_newer_version_is_left(local: Stage) -> None:
    body = f'{{"version":{LARGE_VERSION + 1},"type":"task-completed","graph":"graph","anything":"else"}}'
    await put(local, body)
    for _ in range(2 * limits.POISON_FAILURES_MAX):
        await local.consume()
        assert await local.queues.count(local.names.events) == 1
        local.clock.advance(120)
    assert await poison_rows(local) == {}


async def test_rows_of_a_newer_schema_are_left_to_who_knows_them(local: Stage) -> None:
    """Its message is neither handled nor counted (P23), and the rest of its batch goes on."""
    await local.submit(graph({"a": [], "c": []}))
    a, c = await local.claims("a", "c")
    row = await local.row("a")
    await local.tables.commit("graph", [Merge(row_key(a.task_id), row.etag, {"schema": 5})])
    await put(local, to_text(local.completed(a)), to_text(local.completed(c)))
    for _ in range(2 * limits.POISON_FAILURES_MAX):
        await local.consume()
        local.clock.advance(120)
    assert await local.states() == {"a": "running", "c": "completed"}
    assert await local.queues.count(local.names.events) == 1
    assert await poison_rows(local) == {}


async def test_columns_that_this_version_does_not_know_survive(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": ["a"]}, reruns={"a": 1}))
    for label in ("a", "b"):
        row = await stage.row(label)
        await stage.tables.commit("graph", [Merge(row.key, row.etag, {"colour": "green"})])
    row = await stage.graph_row()
    await stage.tables.commit("graph", [Merge(row.key, row.etag, {"colour": "red"})])
    await stage.fail("a")
    await stage.complete("a")
    await stage.complete("b")
    assert (await stage.row("a")).columns["colour"] == (await stage.row("b")).columns["colour"] == "green"
    assert (await stage.graph_row()).columns["colour"] == "red"


# --- replay --------------------------------------------------------------------------------------------------------


async def test_a_message_that_was_set_aside_can_be_replayed(local: Stage) -> None:
    """A result that came before its graph did, and far too early; once the graph is there, it counts."""
    await local.submit(graph({"a": [], "b": ["a"]}))
    held = await local.claim("a")
    body = to_text(local.completed(held))
    await put(local, body)
    (delivery,) = await local.queues.receive(local.names.events, lease_seconds=30)
    await local.poison.set_aside(delivery, "somebody thought so")
    await put(local, "{")
    await local.consume()
    assert len(await local.poison.list()) == 2
    (message,) = [each for each in await local.poison.list() if each.body == body]
    replayed = await local.poison.replay(message.key)
    assert replayed.body == body
    await local.consume()
    assert await local.task_state("b") == "pending"
    assert [each.body for each in await local.poison.list()] == ["{"]
    assert await local.queues.count(local.names.poison(local.names.events)) == 1, "the other one is still there"
    with pytest.raises(Refused) as caught:
        await local.poison.replay(message.key)
    assert caught.value.code == "not-set-aside"


async def test_replaying_what_nobody_set_aside(stage: Stage) -> None:
    with pytest.raises(NotFound):
        await stage.poison.replay("taskgraph-events:nothing")


async def test_a_result_with_a_resolution_too_large_for_a_cell(stage: Stage) -> None:
    """What a worker adds on its own account must not keep its result, or its neighbours', from being written down."""
    await stage.submit(graph({"a": [], "b": ["a"], "c": []}))
    a, c = await stage.claims("a", "c")
    await put(stage, to_text(stage.completed(a, note="x" * 40_000)), to_text(stage.completed(c)))
    await stage.consume()
    assert await stage.states() == {"a": "completed", "b": "pending", "c": "completed"}
    assert (await stage.queries.task("graph", "a")).status.resolution == {"failed": False, "reason": ""}


async def test_long_addresses_of_logs_in_many_earlier_runs(stage: Stage) -> None:
    """The list of earlier runs fits its cell, whatever foreign workers call their logs."""
    await stage.submit(graph({"a": []}, reruns={"a": limits.RUNS_KEPT_MAX}))
    for _ in range(12):
        await stage.deliver(stage.failed(await stage.claim("a"), logsUrl="http://example.com/" + "x" * 4000))
    assert (await stage.row("a")).columns["run"] == 12
