"""Traces and numbers of graphs that move: from a submission over messages to the end of each task."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.engine.submission import extend, submit
from taskgraph.engine.sweep import Swept, sweep, sweep_graph
from taskgraph.engine.telemetry import fields_in
from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.loops import serve, work
from taskgraph.interfaces.one_graph import run_graph, wait_for_end
from taskgraph.interfaces.settings import StoreSettings, read_settings
from taskgraph.model.clock import SystemClock
from taskgraph.model.flag import Flag
from taskgraph.model.ids import GRAPH, task_id_of
from taskgraph.model.messages import Rerun, parse
from taskgraph.model.states import GraphState
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Merge
from taskgraph.worker.executors import built_in
from tests.bench.counting import CountedQueues, CountedTables, Counts
from tests.measured import Measured, attributes, trace_id

STORES = ("embedded", pytest.param("azurite", marks=pytest.mark.azurite))

# Two layers, one task that fails once, and one that no worker is quick with.
LAYERED = {
    "tasks": {
        **{f"a{n}": {"task": {}} for n in range(3)},
        **{f"b{n}": {"requires": [f"a{m}" for m in range(3)], "task": {}} for n in range(3)},
        "again": {
            "requires": ["a0"],
            "reruns": 1,
            "task": {"payload": {"command": ["sh", "-c", "test $TASKGRAPH_RUN_ID = 1"]}},
        },
        "slow": {"requires": ["b0"], "task": {"payload": {"seconds": 0.01}, "executor": "sleep"}},
        "end": {"requires": ["again", "slow", "b1", "b2"], "task": {}},
    }
}
RUNS = 10  # nine tasks, and one of them twice


@pytest.fixture(params=STORES)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSettings:
    if request.param == "embedded":
        return read_settings(f"sqlite:///{tmp_path}/store.db", {}, cwd=tmp_path)
    found = read_settings(request.getfixturevalue("azurite"), {}, cwd=tmp_path)
    return replace(found, prefix=f"t{secrets.token_hex(5)}")


@contextlib.asynccontextmanager
async def processes(settings: StoreSettings, measured: Measured) -> AsyncIterator[tuple[App, App, App]]:
    """Who submits, who handles and who works: each with an installation and a telemetry of its own."""
    stop = Flag()
    async with contextlib.AsyncExitStack() as stack:
        apps = [await stack.enter_async_context(open_app(settings, telemetry=measured.telemetry())) for _ in range(3)]
        submitter, handler, worker = apps
        loops = [
            asyncio.create_task(serve(handler, stop)),
            asyncio.create_task(work(worker, stop, worker.worker(built_in(SystemClock()), slots=2))),
        ]
        try:
            yield submitter, handler, worker
        finally:
            stop.set()
            await asyncio.gather(*loops)


async def ended(app: App, graph_id: str, state: GraphState = GraphState.FINISHED) -> None:
    async with asyncio.timeout(30):
        assert await wait_for_end(app, graph_id) == state


async def test_one_trace_goes_from_the_submission_to_the_end_of_every_task(settings: StoreSettings):
    measured = Measured()
    document = document_from_object(LAYERED)
    async with processes(settings, measured) as (submitter, *_):
        await submit(submitter.handlers, "g", document)
        await ended(submitter, "g")
    (root,) = measured.named("taskgraph.submit")
    assert root.parent is None
    runs = measured.named("taskgraph.run")
    told = {(attributes(span)["taskgraph.task.label"], attributes(span)["taskgraph.run"]) for span in runs}
    assert told == {*((label, 0) for label in LAYERED["tasks"]), ("again", 1)}
    assert len(runs) == RUNS
    assert {trace_id(span) for span in measured.spans} == {trace_id(root)}
    by_id = {span.get_span_context().span_id: span for span in measured.spans}
    for span in measured.spans:  # nothing hangs in the air: every way leads to the submission
        while span.parent is not None:
            span = by_id[span.parent.span_id]
        assert span is root
    outcomes = {
        attributes(span)["taskgraph.run"]: attributes(span)["taskgraph.outcome"]
        for span in runs
        if attributes(span)["taskgraph.task.label"] == "again"
    }
    assert outcomes == {0: "failed", 1: "completed"}
    events = [(event.name, dict(event.attributes or {})) for span in measured.spans for event in span.events]
    assert ("taskgraph.graph", {"taskgraph.state": "finished"}) in events
    handled = measured.named("taskgraph.handle")
    assert sum(attributes(span)["messaging.batch.message_count"] for span in handled) > 0
    task_ids = {attributes(span)["taskgraph.task.id"] for span in runs}
    assert task_ids == {task_id_of("g", label) for label in LAYERED["tasks"]}


async def test_the_trace_stands_on_the_row_of_the_graph_only_with_telemetry(settings: StoreSettings):
    document = document_from_object({"tasks": {"a": {"task": {}}}})
    measured = Measured()
    async with open_app(settings) as off, open_app(settings, telemetry=measured.telemetry()) as on:
        await submit(off.handlers, "off", document)
        await submit(on.handlers, "on", document)
        (without,) = await off.tables.get("off", [GRAPH])
        (with_trace,) = await on.tables.get("on", [GRAPH])
        (root,) = measured.named("taskgraph.submit")
        context = root.get_span_context()
        assert without is not None
        assert with_trace is not None
        assert "traceparent" not in without.columns
        assert f"{context.trace_id:032x}-{context.span_id:016x}" in str(with_trace.columns["traceparent"])


async def test_whoever_has_no_telemetry_reads_messages_that_have_it(settings: StoreSettings):
    measured = Measured()
    document = document_from_object(LAYERED)
    async with open_app(settings, telemetry=measured.telemetry()) as on:
        await submit(on.handlers, "g", document)
    stop = Flag()
    async with open_app(settings) as off:
        state = await run_graph(off, "g", stop, workers=[off.worker(built_in(off.clock), slots=2)])
    assert state == GraphState.FINISHED
    assert not measured.named("taskgraph.run")


async def test_in_one_process_with_results_by_hand(settings: StoreSettings):
    measured = Measured()
    async with open_app(settings, telemetry=measured.telemetry()) as app:
        await submit(app.handlers, "g", document_from_object(LAYERED))
        worker = app.worker(built_in(app.clock), slots=2)
        state = await run_graph(app, "g", Flag(), workers=[worker], fresh=True)
    assert state == GraphState.FINISHED
    assert len(measured.named("taskgraph.run")) == RUNS
    assert len({trace_id(span) for span in measured.spans}) == 1


async def test_the_sweep_goes_on_in_the_trace_of_the_graph(settings: StoreSettings):
    measured = Measured()
    async with open_app(settings, telemetry=measured.telemetry()) as app:
        await submit(app.handlers, "g", document_from_object({"tasks": {"a": {"task": {}}}}))
        queue = app.handlers.names.work("default")
        for delivery in await app.queues.receive(queue, count=32, lease_seconds=30):
            await app.queues.delete(delivery)  # the message is lost
    async with open_app(settings, telemetry=measured.telemetry()) as later:
        await sweep_graph(later.handlers, "g", Swept(), at_once=True)
        state = await run_graph(later, "g", Flag(), workers=[later.worker(built_in(later.clock))], fresh=True)
    assert state == GraphState.FINISHED
    (root,) = measured.named("taskgraph.submit")
    (run,) = measured.named("taskgraph.run")
    assert trace_id(run) == trace_id(root)


async def test_a_rerun_belongs_to_who_asks_and_is_linked_to_the_graph(settings: StoreSettings, tmp_path: Path):
    flag = tmp_path / "flag"
    measured = Measured()
    document = document_from_object({"tasks": {"a": {"task": {"payload": {"command": ["test", "-e", str(flag)]}}}}})
    async with processes(settings, measured) as (submitter, *_):
        await submit(submitter.handlers, "g", document)
        await ended(submitter, "g", GraphState.BLOCKED)
        flag.touch()
        with submitter.handlers.telemetry.asking("rerun", "g"):
            await submitter.handlers.dispatcher.send_events([Rerun("g", ((task_id_of("g", "a"), 0),), "once more")])
        async with asyncio.timeout(30):
            while await submitter.queries.state("g") != GraphState.FINISHED:
                await asyncio.sleep(0.02)
    (graph,), (asked,) = measured.named("taskgraph.submit"), measured.named("taskgraph.rerun")
    runs = {attributes(span)["taskgraph.run"]: span for span in measured.named("taskgraph.run")}
    assert trace_id(runs[0]) == trace_id(graph)
    assert trace_id(runs[1]) == trace_id(asked) != trace_id(graph)
    assert trace_id(graph) in {link.context.trace_id for link in runs[1].links}
    linked = [
        span
        for span in measured.named("taskgraph.handle")
        if trace_id(span) == trace_id(asked) and trace_id(graph) in {link.context.trace_id for link in span.links}
    ]
    assert linked


async def test_an_extension_belongs_to_who_asks_and_is_linked_to_the_graph(settings: StoreSettings):
    measured = Measured()
    first = {"tasks": {"a": {"task": {"payload": {"seconds": 1.0}, "executor": "sleep"}}}}
    more = document_from_object({"tasks": {"b": {"requires": ["a"], "task": {}}}}, kind="extension")
    async with processes(settings, measured) as (submitter, *_):
        await submit(submitter.handlers, "g", document_from_object(first))
        await extend(submitter.handlers, "g", more)
        await ended(submitter, "g")
    (graph,), (asked,) = measured.named("taskgraph.submit"), measured.named("taskgraph.extend")
    assert trace_id(graph) != trace_id(asked)
    assert [link.context.trace_id for link in asked.links] == [trace_id(graph)]
    assert {attributes(span)["taskgraph.task.label"] for span in measured.named("taskgraph.run")} == {"a", "b"}
    assert any(trace_id(span) == trace_id(asked) for span in measured.named("taskgraph.handle"))


async def test_a_process_that_was_started_by_a_traced_one_asks_in_its_trace(settings: StoreSettings):
    measured = Measured()
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with open_app(settings, telemetry=measured.telemetry(parent=parent)) as app:
        await submit(app.handlers, "g", document_from_object({"tasks": {"a": {"task": {}}}}))
    (root,) = measured.named("taskgraph.submit")
    assert f"{trace_id(root):032x}" == parent[3:35]
    assert root.parent is not None
    assert f"{root.parent.span_id:016x}" == parent[36:52]


# --- numbers ---------------------------------------------------------------------------------------------------


async def test_numbers_are_those_of_the_ports_and_the_handlers(
    settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
):
    """The same calls, counted by another: the bench's ports below telemetry's, and the handlers' own counters."""
    counts = Counts()
    measured = Measured()
    telemetry = measured.telemetry()
    plain_tables, plain_queues = telemetry.tables, telemetry.queues
    monkeypatch.setattr(telemetry, "tables", lambda tables, clock: plain_tables(CountedTables(tables, counts), clock))
    monkeypatch.setattr(telemetry, "queues", lambda queues, clock: plain_queues(CountedQueues(queues, counts), clock))
    async with open_app(settings, telemetry=telemetry) as app:
        await submit(app.handlers, "g", document_from_object(LAYERED))
        worker = app.worker(built_in(app.clock), slots=2)
        await run_graph(app, "g", Flag(), workers=[worker], fresh=True)
        await run_graph(app, "g", Flag(), workers=[], fresh=True)
        counters = app.handlers.counters
    by_kind = measured.counts("taskgraph.storage.operations", "taskgraph.port", "taskgraph.operation")
    ours = {kind: count for (port, kind), count in by_kind.items() if port != "logs"}
    assert ours == dict(counts.operations)
    calls = measured.counts("taskgraph.storage.duration", "taskgraph.port", "taskgraph.operation")
    assert {kind: count for (port, kind), count in calls.items() if port != "logs"} == dict(counts.calls)
    outcomes = measured.counts("taskgraph.storage.operations", "taskgraph.operation", "taskgraph.outcome")
    assert outcomes[("commit", "conflict")] == counts.sums["conflicts"]
    commits = measured.counts("taskgraph.commits", "taskgraph.outcome")
    assert commits["committed"] == counters.commits > 0
    assert commits["conflict"] == counters.conflicts
    assert measured.counts("taskgraph.dispatched", "taskgraph.target")["default"] == counters.dispatched
    assert measured.counts("taskgraph.tasks", "taskgraph.outcome") == {"completed": 9, "rerun": 1}
    assert measured.counts("taskgraph.graphs", "taskgraph.state") == {"running": 1, "finished": 1}
    runs = measured.counts("taskgraph.run.duration", "taskgraph.executor", "taskgraph.outcome")
    assert runs == {
        ("noop", "completed"): 7,
        ("sleep", "completed"): 1,
        ("command", "failed"): 1,
        ("command", "completed"): 1,
    }


async def test_a_conflict_is_counted_as_one(settings: StoreSettings):
    measured = Measured()
    async with open_app(settings, telemetry=measured.telemetry()) as app:
        handlers = app.handlers
        await submit(handlers, "g", document_from_object({"tasks": {"a": {"task": {}}}}))
        before = handlers.counters.conflicts
        key = f"task:{task_id_of('g', 'a')}"
        rows = dict(zip([key], await app.tables.get("g", [key]), strict=True))
        row = rows[key]
        assert row is not None
        await app.tables.commit("g", [Merge(key, row.etag, {"note": "somebody was here"})])
        worker = app.worker(built_in(app.clock))
        for delivery in await app.queues.receive(handlers.names.work("default"), lease_seconds=30):
            await worker.take([delivery])  # what the message says of the row is no longer so
        assert handlers.counters.conflicts - before == 1
    assert measured.counts("taskgraph.commits", "taskgraph.outcome")["conflict"] == 1
    outcomes = measured.counts("taskgraph.storage.operations", "taskgraph.operation", "taskgraph.outcome")
    assert outcomes[("commit", "conflict")] == 1


async def test_ages_and_messages_are_counted_where_they_are_received(settings: StoreSettings):
    measured = Measured()
    async with processes(settings, measured) as (submitter, handler, _):
        await submit(submitter.handlers, "g", document_from_object(LAYERED))
        await ended(submitter, "g")
        names = handler.handlers.names
    ages = measured.counts("taskgraph.message.age", "messaging.destination.name", "taskgraph.message.type")
    messages = measured.counts("taskgraph.messages", "messaging.destination.name", "taskgraph.message.type")
    assert set(ages) == set(messages)
    assert ages[(names.work("default"), "run-tasks")] > 0
    assert messages[(names.events, "task-failed")] == 1
    assert set(measured.counts("taskgraph.messages", "taskgraph.outcome")) == {"handled"}
    point = measured.metrics()["taskgraph.message.age"].data.data_points[0]
    assert 0 <= point.max < 30


async def test_what_is_set_aside_is_counted_and_the_sweep_says_what_it_mended(settings: StoreSettings):
    measured = Measured()
    async with open_app(settings, telemetry=measured.telemetry()) as app:
        events = app.handlers.names.events
        await app.queues.send(events, ['{"version":1,"type":"rerun","graph":"g","task":"nonsense","run":0}', "no JSON"])
        consumer = app.consumer()
        stop = Flag()
        receiving = asyncio.create_task(consumer.run(stop))
        async with asyncio.timeout(20):
            while len(await app.poison.list()) < 2:
                await asyncio.sleep(0.02)
        stop.set()
        await receiving
        (message,) = [each for each in await app.poison.list() if "nonsense" in each.body]
        await app.poison.replay(message.key)
        assert await app.queues.count(app.handlers.names.poison(events)) == 1  # the copy of the other one
        await sweep(app.handlers)
    assert measured.counts("taskgraph.poison", "messaging.destination.name") == {events: 2}
    told = measured.counts("taskgraph.messages", "taskgraph.message.type", "taskgraph.outcome")
    assert told == {("rerun", "poison"): 1, ("unreadable", "poison"): 1}
    assert measured.counts("taskgraph.sweep.duration")[()] == 1


# --- lines -----------------------------------------------------------------------------------------------------


async def test_there_is_one_line_for_each_message_also_without_telemetry(
    settings: StoreSettings, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "taskgraph.handled")
    async with open_app(settings) as app:
        await submit(app.handlers, "g", document_from_object(LAYERED))
        stop = Flag()
        loops = [
            asyncio.create_task(serve(app, stop)),
            asyncio.create_task(work(app, stop, app.worker(built_in(app.clock), slots=2))),
        ]
        await ended(app, "g")
        async with asyncio.timeout(10):
            while (
                await app.queues.count(app.handlers.names.work("default"))
                or await app.handlers.dispatcher.events_waiting()
            ):
                await asyncio.sleep(0.02)
        stop.set()
        await asyncio.gather(*loops)
    lines = [record for record in caplog.records if record.name == "taskgraph.handled"]
    assert all(record.getMessage().startswith("handled type=") for record in lines)
    fields = [fields_in(record) for record in lines]
    seen = {(each["queue"], each["messageId"], each["dequeueCount"]) for each in fields}
    assert len(seen) == len(fields), "a message has two lines"
    assert {each["graph"] for each in fields} == {"g"}
    assert {each["outcome"] for each in fields} == {"handled"}
    by_type = {each["type"] for each in fields}
    assert by_type == {"run-tasks", "task-completed", "task-failed"}
    (failed,) = [each for each in fields if each["type"] == "task-failed"]
    assert (failed["task"], failed["run"]) == (task_id_of("g", "again"), 0)
    assert all(each["ms"] >= 0 for each in fields)
    assert not any("traceId" in each for each in fields)


async def test_a_message_that_a_host_hands_in_is_traced_timed_and_said(
    settings: StoreSettings, caplog: pytest.LogCaptureFixture
):
    """As a function app does: the host has the message from the queue, and acknowledges it."""
    caplog.set_level(logging.INFO, "taskgraph.handled")
    measured = Measured()
    async with open_app(settings, telemetry=measured.telemetry()) as app:
        await submit(app.handlers, "g", document_from_object({"tasks": {"a": {"task": {}}}}))
        with app.handlers.telemetry.asking("rerun", "g"):
            await app.handlers.dispatcher.send_events([Rerun("g", ((task_id_of("g", "a"), 0),))])
        (delivery,) = await app.queues.receive(app.handlers.names.events, lease_seconds=30)
        host = Delivery(delivery.queue, "of-the-host", "", delivery.body, 2)
        before = measured.counts("taskgraph.message.age")[()]
        handled = await app.consumer().hand_in(parse(host.body), host)
        assert measured.counts("taskgraph.message.age")[()] == before + 1
    assert handled.error is None
    (asked,), (span,) = measured.named("taskgraph.rerun"), measured.named("taskgraph.handle")
    assert trace_id(span) == trace_id(asked)
    (record,) = [each for each in caplog.records if each.name == "taskgraph.handled"]
    fields = fields_in(record)
    assert (fields["messageId"], fields["dequeueCount"], fields["type"]) == ("of-the-host", 2, "rerun")
    assert fields["traceId"] == f"{trace_id(asked):032x}"
