"""Traces and metrics of a process: the `Telemetry` that has a tracer and a meter of OpenTelemetry.

One submission is one trace: its span is the root, every message carries the span that sent it, and what handles or runs
something opens a span below. It is imported only where telemetry is on, and never shows a payload.
"""

import contextlib
import functools
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar, cast

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import Meter
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from taskgraph.engine.telemetry import (
    ANSWER,
    POISON_SUFFIX,
    Answering,
    Handling,
    Here,
    Origin,
    Run,
    Telemetry,
    being,
    graph_in,
    here,
    marked,
    marks_of,
    seconds_since,
    timestamp,
    trace_of,
)
from taskgraph.model.clock import Clock, SystemClock
from taskgraph.model.errors import Conflict, StaleDelivery, StorageUnavailable, TooLarge, Unclear
from taskgraph.model.messages import MESSAGE_TYPES
from taskgraph.storage.logs import StoredLogs
from taskgraph.storage.queues import Delivery, Queues
from taskgraph.storage.tables import Tables

log = logging.getLogger("taskgraph.telemetry")

T = TypeVar("T")

SCOPE: Final = "taskgraph"
_GRAPHS_MAX: Final = 10_000  # whose trace is remembered
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LONG: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)  # of runs and queues
_ANSWER_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Of OpenTelemetry's conventions for HTTP."""
_ASKERS: Final = frozenset(name for name, each in MESSAGE_TYPES.items() if each.asked_as)
"""Messages that belong to the trace of who asks, not to the graph's."""

SPANS: Final = (
    "taskgraph.submit",
    *(f"taskgraph.{each.asked_as}" for each in MESSAGE_TYPES.values() if each.asked_as),
    "taskgraph.handle",
    "taskgraph.commit",
    "taskgraph.run",
)


@dataclass(frozen=True, slots=True)
class Instrument:
    """One metric. boundaries: of a histogram's buckets, () for a counter. falls: whether what is counted can go."""

    name: str
    unit: str
    attributes: tuple[str, ...]
    description: str
    boundaries: tuple[float, ...] = ()
    falls: bool = False

    @property
    def kind(self) -> str:
        return "histogram" if self.boundaries else "up-down counter" if self.falls else "counter"


_OUTCOME: Final = "taskgraph.outcome"
_QUEUE: Final = "messaging.destination.name"
_TARGET: Final = "taskgraph.target"
_TYPE: Final = "taskgraph.message.type"
_GRAPH: Final = "taskgraph.graph.id"
_KIND: Final = "taskgraph.http.kind"

_PORT: Final = ("taskgraph.port", "taskgraph.operation", _OUTCOME)
_ASKED: Final = ("http.request.method", "http.route", "http.response.status_code", "error.type", "url.scheme", _KIND)

INSTRUMENTS: Final = (
    Instrument("taskgraph.commits", "{commit}", (_OUTCOME,), "Commits of transitions"),
    Instrument("taskgraph.storage.operations", "{operation}", _PORT, "Storage operations as they are billed"),
    Instrument("taskgraph.storage.duration", "s", _PORT, "Time of a call of the store", _SECONDS),
    Instrument("taskgraph.messages", "{message}", (_QUEUE, _TYPE, _OUTCOME), "Messages, by what became of them"),
    Instrument("taskgraph.message.age", "s", (_QUEUE, _TYPE), "From sending a message to its receipt", _LONG),
    Instrument("taskgraph.handle.duration", "s", (), "Time in which a batch of one graph was handled", _SECONDS),
    Instrument("taskgraph.dispatched", "{task}", (_TARGET,), "Tasks that were offered to workers by message"),
    Instrument("taskgraph.tasks", "{task}", (_OUTCOME,), "Tasks, by what became of a run"),
    Instrument("taskgraph.graphs", "{graph}", ("taskgraph.state",), "Graphs that went into a state"),
    Instrument("taskgraph.run.duration", "s", ("taskgraph.executor", _TARGET, _OUTCOME), "Time of a run", _LONG),
    Instrument("taskgraph.sweep.duration", "s", (), "Time of a round of the sweep", _LONG),
    Instrument("taskgraph.sweep.repairs", "{repair}", ("taskgraph.repair",), "What rounds of the sweep mended"),
    Instrument("taskgraph.poison", "{message}", (_QUEUE,), "Messages that were set aside"),
    Instrument("http.server.request.duration", "s", _ASKED, "Time of an answer over HTTP", _ANSWER_SECONDS),
    Instrument("taskgraph.http.held", "{request}", (_KIND,), "Long polls and streams that are open now", falls=True),
)


@functools.lru_cache(maxsize=4096)
def _context_of(traceparent: str) -> SpanContext | None:
    """The span that a traceparent names; None for none."""
    if not trace_of(traceparent):
        return None
    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


def _traceparent_of(context: SpanContext) -> str:
    return (
        f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}" if context.is_valid else ""
    )


def _below(traceparent: str) -> Context:
    """The context in which a span is a child of the one that is named, and a root for ""."""
    context = _context_of(traceparent)
    return trace.set_span_in_context(NonRecordingSpan(context), Context()) if context is not None else Context()


class OpenTelemetry(Telemetry):
    """parent: traceparent of what this process was started by, for what it asks for. closing: called by `close`.

    expose: gives `exposed`.
    """

    enabled = True

    def __init__(
        self,
        tracer: trace.Tracer,
        meter: Meter,
        *,
        parent: str = "",
        closing: Sequence[Callable[[], object]] = (),
        clock: Clock | None = None,
        expose: Callable[[], bytes] | None = None,
    ) -> None:
        self._tracer = tracer
        self._expose = expose
        self._parent = trace_of(parent)
        self._closing = tuple(closing)
        self._clock = clock or SystemClock()
        self._graphs: dict[str, str] = {}
        self._attributes: dict[tuple[str, ...], Mapping[str, str]] = {}
        self._counters: dict[str, Any] = {}
        for each in INSTRUMENTS:
            described = each.name, each.unit, each.description
            if each.boundaries:
                made: Any = meter.create_histogram(*described, explicit_bucket_boundaries_advisory=each.boundaries)
            elif each.falls:
                made = meter.create_up_down_counter(*described)
            else:
                made = meter.create_counter(*described)
            self._counters[each.name] = made
        self._operations = self._counters["taskgraph.storage.operations"]
        self._durations = self._counters["taskgraph.storage.duration"]

    # --- ports

    def tables(self, tables: Tables, clock: Clock) -> Tables:
        more = [each for each in ("query_text",) if hasattr(tables, each)]
        return cast(Tables, _Port("tables", ("get", "query", "commit", *more), tables, self, clock))

    def queues(self, queues: Queues, clock: Clock) -> Queues:
        return cast(Queues, _Queues("queues", ("renew", "delete", "count"), queues, self, clock))

    def logs(self, logs: StoredLogs, clock: Clock) -> StoredLogs:
        return cast(
            StoredLogs, _Port("logs", ("append", "append_at", "read", "copy", "files", "remove"), logs, self, clock)
        )

    def operation(self, port: str, kind: str, outcome: str, operations: int, seconds: float) -> None:
        key = (port, kind, outcome)
        attributes = self._attributes.get(key)
        if attributes is None:
            attributes = self._attributes[key] = dict(zip(_PORT, key, strict=True))
        self._operations.add(operations, attributes)
        self._durations.record(seconds, attributes)

    # --- traces

    def _remember(self, graph_id: str, traceparent: str) -> None:
        if len(self._graphs) >= _GRAPHS_MAX:
            self._graphs.clear()  # what matters comes by again
        self._graphs[graph_id] = traceparent

    def met(self, graph_id: str, traceparent: object) -> None:
        text = trace_of(traceparent)
        if not text:
            return
        if self._graphs.get(graph_id) != text:
            self._remember(graph_id, text)
        if (at := here(graph_id)) is not None:
            self._link(at, text)

    def _link(self, at: Here, traceparent: str) -> None:
        """Link what is open to a trace that it is not part of."""
        own, other = at.traceparent[3:35], traceparent[3:35]
        context = _context_of(traceparent)
        if own != other and other not in at.linked and context is not None and _is_open(at):
            at.linked.add(other)
            at.span.add_link(context)

    @contextlib.contextmanager
    def asking(self, what: str, graph_id: str) -> Iterator[None]:
        around = None if trace.get_current_span().get_span_context().is_valid else _below(self._parent)
        span = self._tracer.start_span(
            f"taskgraph.{what}", around, kind=SpanKind.PRODUCER, attributes={_GRAPH: graph_id}
        )
        with self._open(graph_id, span):
            yield

    @contextlib.contextmanager
    def _open(self, graph_id: str, span: Span) -> Iterator[Here]:
        """The span is open in the body, and ends with it. Of an error it has the type alone."""
        at = Here(graph_id, _traceparent_of(span.get_span_context()), span)
        try:
            with being(at), trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield at
        except BaseException as error:  # reach: telemetry
            span.set_attribute("error.type", type(error).__name__)
            if isinstance(error, Exception):
                span.set_status(Status(StatusCode.ERROR))
            raise
        finally:
            span.end()

    def trace_of_graph(self, graph_id: str, found: object = None) -> str:
        at = here(graph_id)
        text = trace_of(found) or (at.traceparent if at is not None else "")
        if text:
            self._remember(graph_id, text)
            if at is not None:
                self._link(at, text)
        return text

    @contextlib.contextmanager
    def _handle(self, graph_id: str, handling: Handling) -> Iterator[None]:
        began = self._clock.monotonic()
        origins = handling.origins
        traces = list(dict.fromkeys(each.marks.traceparent for each in origins if each.marks.traceparent))
        if graph_id not in self._graphs:
            own = (each.marks.traceparent for each in origins if each.type not in _ASKERS and each.marks.traceparent)
            if first := next(own, ""):
                self._remember(graph_id, first)
        parent, *others = traces or [self._graphs.get(graph_id, "")]
        span = self._tracer.start_span(
            "taskgraph.handle",
            _below(parent),
            kind=SpanKind.CONSUMER,
            links=[Link(context) for each in others if (context := _context_of(each)) is not None],
            attributes={
                _GRAPH: graph_id,
                "messaging.operation.type": "process",
                "messaging.batch.message_count": len(origins),
                "taskgraph.message.types": sorted({each.type for each in origins}),
            },
        )
        with self._open(graph_id, span) as at:
            if known := self._graphs.get(graph_id):
                self._link(at, known)
            try:
                yield
            finally:
                outcomes = sorted({each.outcome for each in origins})
                span.set_attribute(_OUTCOME, outcomes)
                if {"failed", "poison"} & set(outcomes):
                    span.set_status(Status(StatusCode.ERROR))
                self._counters["taskgraph.handle.duration"].record(self._clock.monotonic() - began)

    def cause(self, graph_id: str, body: str = "") -> str:
        if body and (named := marks_of(body).traceparent):
            if graph_id not in self._graphs:
                self._remember(graph_id, named)
            return named
        at = here(graph_id)
        return at.traceparent if at is not None else self._graphs.get(graph_id, "")

    async def committing(self, graph_id: str, rows: int, commit: Awaitable[None]) -> None:
        span = self._tracer.start_span(
            "taskgraph.commit", _below(self.cause(graph_id)), attributes={_GRAPH: graph_id, "taskgraph.rows": rows}
        )
        outcome = "failed"
        try:
            await commit
            outcome = "committed"
        except Conflict:  # reach: telemetry
            outcome = "conflict"
            raise
        finally:
            span.set_attribute(_OUTCOME, outcome)
            span.end()
            self._counters["taskgraph.commits"].add(1, {_OUTCOME: outcome})

    # --- runs

    def run_begins(
        self,
        graph_id: str,
        task_id: str,
        run: int,
        *,
        label: str,
        target: str,
        executor: str,
        cause: str,
        seconds: float = 0.0,
    ) -> Run | None:
        span = self._tracer.start_span(
            "taskgraph.run",
            _below(cause),
            kind=SpanKind.CONSUMER,
            start_time=int((self._clock.now().timestamp() - seconds) * 1e9) if seconds else None,
            attributes={
                _GRAPH: graph_id,
                "taskgraph.task.id": task_id,
                "taskgraph.task.label": label,
                "taskgraph.run": run,
                _TARGET: target,
                "taskgraph.executor": executor,
            },
        )
        at = Here(graph_id, _traceparent_of(span.get_span_context()), span)
        if known := self._graphs.get(graph_id):
            self._link(at, known)
        return Run(at, self._clock.monotonic() - seconds, executor, target)

    @contextlib.contextmanager
    def running(self, run: Run | None) -> Iterator[None]:
        if run is None:
            yield
            return
        with being(run.at), trace.use_span(run.at.span, record_exception=False, set_status_on_exception=False):
            yield

    def run_ends(self, run: Run | None, outcome: str, *, exit_code: int | None = None) -> None:
        if run is None:
            return
        span = run.at.span
        span.set_attribute(_OUTCOME, outcome)
        if exit_code is not None:
            span.set_attribute("process.exit.code", exit_code)
        if outcome in ("failed", "exception", "broken"):
            span.set_status(Status(StatusCode.ERROR))
        span.end()
        self._counters["taskgraph.run.duration"].record(
            self._clock.monotonic() - run.began,
            {"taskgraph.executor": run.executor, _TARGET: run.target, _OUTCOME: outcome},
        )

    # --- requests over HTTP

    @contextlib.contextmanager
    def answering(self, one: Answering) -> Iterator[None]:
        one.began = self._clock.monotonic()
        attributes = {"http.request.method": one.method, "url.scheme": one.scheme}
        one.span = self._tracer.start_span(
            one.method, _below(one.traceparent), kind=SpanKind.SERVER, attributes=attributes
        )
        try:
            with trace.use_span(one.span, record_exception=False, set_status_on_exception=False):
                yield
        except BaseException as error:  # reach: telemetry
            one.error = type(error).__name__
            raise
        finally:
            self.answered(one)
            if one.kind != ANSWER:
                self._counters["taskgraph.http.held"].add(-1, {_KIND: one.kind})

    def holds(self, one: Answering, kind: str) -> None:
        if one.kind == ANSWER:
            one.kind = kind
            self._counters["taskgraph.http.held"].add(1, {_KIND: kind})

    def answered(self, one: Answering) -> None:
        if (span := one.span) is None:
            return
        one.span = None
        error = one.error or (str(one.status) if one.status >= 500 else "")
        values = (one.method, one.route, one.status, error, one.scheme, one.kind)
        attributes = {name: value for name, value in zip(_ASKED, values, strict=True) if value}
        span.update_name(f"{one.method} {one.route}".rstrip())
        span.set_attributes(attributes)
        if error:
            span.set_status(Status(StatusCode.ERROR))
        span.end()
        self._counters["http.server.request.duration"].record(self._clock.monotonic() - one.began, attributes)

    def outgoing(self) -> str:
        return _traceparent_of(trace.get_current_span().get_span_context()) or self._parent

    def exposed(self) -> bytes | None:
        return self._expose() if self._expose is not None else None

    # --- counts

    def message(self, origin: Origin, seconds: float) -> None:
        attributes = {_QUEUE: origin.queue, _TYPE: origin.type or "unreadable", _OUTCOME: origin.outcome}
        self._counters["taskgraph.messages"].add(1, attributes)
        super().message(origin, seconds)

    def received(self, delivery: Delivery, now: datetime) -> None:
        age = seconds_since(marks_of(delivery.body).sent, now)
        if age is not None:
            kind, _ = graph_in(delivery.body)
            self._counters["taskgraph.message.age"].record(age, {_QUEUE: delivery.queue, _TYPE: kind or "unreadable"})

    def tasks(self, outcome: str, count: int) -> None:
        self._counters["taskgraph.tasks"].add(count, {_OUTCOME: outcome})

    def dispatched(self, target: str, count: int) -> None:
        self._counters["taskgraph.dispatched"].add(count, {_TARGET: target})

    def graph_state(self, graph_id: str, state: str) -> None:
        if (at := here(graph_id)) is not None and _is_open(at):
            at.span.add_event("taskgraph.graph", {"taskgraph.state": state})
        self._counters["taskgraph.graphs"].add(1, {"taskgraph.state": state})

    def swept(self, seconds: float, repairs: Mapping[str, int]) -> None:
        self._counters["taskgraph.sweep.duration"].record(seconds)
        for repair, count in repairs.items():
            if count:
                self._counters["taskgraph.sweep.repairs"].add(count, {"taskgraph.repair": repair})

    def poisoned(self, queue: str) -> None:
        self._counters["taskgraph.poison"].add(1, {_QUEUE: queue})

    # --- the end

    def close(self, seconds: float = 5.0) -> None:
        # An exporter may wait long for what does not answer: then what it has is lost, and this process goes on.
        if not self._closing:
            return
        closing = threading.Thread(target=self._close, name="taskgraph-telemetry-close", daemon=True)
        closing.start()
        closing.join(seconds)
        if closing.is_alive():
            log.warning("telemetry could not be sent to its end within %g s", seconds)

    def _close(self) -> None:
        for each in self._closing:
            try:
                each()
            except Exception as error:  # telemetry fails no caller
                log.warning("telemetry could not be sent to its end: %s", type(error).__name__)

    def _mark(self, body: str, sent: str) -> str:
        _, graph_id = graph_in(body)
        return marked(body, self.cause(graph_id), sent) if graph_id else body


def _is_open(at: Here) -> bool:
    """Whether a span can take more: results are reported after the end of their run."""
    return at.span is not None and at.span.is_recording()


# --- ports -----------------------------------------------------------------------------------------------------


def _outcome_of(error: BaseException) -> str:
    match error:
        case Conflict():
            return "conflict"
        case Unclear():
            return "unclear"
        case StaleDelivery():
            return "stale"
        case TooLarge():
            return "too-large"
        case StorageUnavailable():
            return "unavailable"
        case Exception():
            return "error"
        case _:
            return "cancelled"


class _Port:
    """A port, with these calls measured; all others go through as they are."""

    def __init__(self, name: str, measured: Sequence[str], port: Any, telemetry: OpenTelemetry, clock: Clock) -> None:
        self._name = name
        self._port = port
        self._telemetry = telemetry
        self._clock = clock
        for kind in measured:
            setattr(self, kind, functools.partial(self._call, kind))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    async def _call(self, kind: str, *given: Any, **options: Any) -> Any:
        operations = len(given[1]) if kind == "get" else 1  # a request for each row
        return await self._timed(kind, operations, getattr(self._port, kind)(*given, **options))

    async def _timed(self, kind: str, operations: int, call: Awaitable[T], *, empty: str = "") -> T:
        """empty: the kind of a call that found nothing, if that is another one."""
        began = self._clock.monotonic()
        outcome = "ok"
        try:
            found = await call
            if empty and not found:
                kind = empty
            return found
        except BaseException as error:  # reach: telemetry
            outcome = _outcome_of(error)
            raise
        finally:
            self._telemetry.operation(self._name, kind, outcome, operations, self._clock.monotonic() - began)


class _Queues(_Port):
    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        if not queue.endswith(POISON_SUFFIX):  # there they are kept as they came
            sent = timestamp(self._clock.now())
            bodies = [self._telemetry._mark(body, sent) for body in bodies]  # noqa: SLF001 - of one piece with it
        await self._timed("send", len(bodies), self._port.send(queue, bodies, delay_seconds=delay_seconds))

    async def receive(self, queue: str, **options: Any) -> list[Delivery]:
        receiving: Awaitable[list[Delivery]] = self._port.receive(queue, **options)
        found = await self._timed("receive", 1, receiving, empty="empty")
        now = self._clock.now()
        for delivery in found:
            self._telemetry.received(delivery, now)
        return found
