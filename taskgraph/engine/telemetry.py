"""Traces, metrics, and one log line for each handled message.

`OFF` measures nothing, and nothing of OpenTelemetry is imported here; `interfaces.telemetry.otel` is the same with a
meter and a tracer, and `interfaces.telemetry.setup` chooses. A message carries its trace (`traceparent`) and when it
was sent (`sent`), as keys that readers without telemetry ignore. Telemetry raises no errors of its own, and never shows
a payload, a command, an environment, a result or a key.
"""

import contextlib
import functools
import json
import logging
import re
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from taskgraph.model import limits

if TYPE_CHECKING:
    from taskgraph.model.clock import Clock
    from taskgraph.storage.logs import StoredLogs
    from taskgraph.storage.queues import Delivery, Queues
    from taskgraph.storage.tables import Tables

HANDLED: Final = logging.getLogger("taskgraph.handled")
"""One line at INFO for each message that was handled, by handlers, workers, or `Poison`."""

TRACEPARENT_COLUMN: Final = "traceparent"
"""Column of a graph's row: the trace of its submission, in W3C form. Only where telemetry is on."""

ANSWER: Final = "answer"
POLL: Final = "poll"
"""Kind of an HTTP request that is answered once there is something, or after the time that it names."""
STREAM: Final = "stream"
"""Kind of one whose answer goes on for as long as there may be more."""

POISON_SUFFIX: Final = "-poison"
_OURS: Final = '{"version":'  # how every message begins that this program writes
_TRACEPARENT: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_HEAD: Final = re.compile(
    r'\{(?:"traceparent":"(?P<trace>00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})",)?"sent":"(?P<sent>[0-9TZ:.+-]{20,35})"'
)


@functools.cache
def _graph_in() -> re.Pattern[str]:
    from taskgraph.model.messages import MESSAGE_TYPES  # here: what only looks at a graph knows no messages

    return re.compile(
        rf'\{{"version":\d{{1,9}},"type":"(?P<type>{"|".join(MESSAGE_TYPES)})",'
        r'"graph":"(?P<graph>[A-Za-z0-9_-]{1,64})"'
    )


@dataclass(frozen=True, slots=True)
class Marks:
    """The trace of a message, and when it was sent. Both may be ""."""

    traceparent: str = ""
    sent: str = ""


NO_MARKS: Final = Marks()

_FIELDS: Final = (
    *("type", "queue", "graph", "tasks", "task", "run"),
    *("messageId", "dequeueCount", "outcome", "ms", "traceId", "spanId"),
)


def marked(body: str, traceparent: str, sent: str) -> str:
    """A message with its trace, if any, and the time at its head; unchanged if they do not fit, or are there."""
    if not body.startswith(_OURS):
        return body
    trace = f'"traceparent":"{traceparent}",' if traceparent else ""
    made = f'{{{trace}"sent":"{sent}",{body[1:]}'
    return made if len(made) <= limits.MESSAGE_BYTES_MAX and made.isascii() else body


def marks_of(body: str) -> Marks:
    """The marks of a message, in any order of its keys."""
    if head := _HEAD.match(body):
        return Marks(trace_of(head["trace"]), head["sent"])
    if '"traceparent"' not in body and '"sent"' not in body:
        return NO_MARKS
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return NO_MARKS
    if not isinstance(found, dict):
        return NO_MARKS
    return Marks(trace_of(found.get("traceparent")), found["sent"] if isinstance(found.get("sent"), str) else "")


def trace_of(found: object) -> str:
    """A traceparent, "" for anything else."""
    return found if isinstance(found, str) and _TRACEPARENT.fullmatch(found) else ""


def graph_in(body: str) -> tuple[str, str]:
    """Type and graph of a message of ours, "" and "" for any other; without parsing it."""
    start = head.end() + 1 if (head := _HEAD.match(body)) else 0
    found = _graph_in().match("{" + body[start : start + 200] if start else body)
    return (found["type"], found["graph"]) if found else ("", "")


def timestamp(moment: datetime) -> str:
    """RFC 3339, in UTC, to the millisecond."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def seconds_since(sent: str, now: datetime) -> float | None:
    """The age of a message, never negative though clocks differ; None if `sent` is no time."""
    try:
        return max(0.0, (now - datetime.fromisoformat(sent)).total_seconds()) if sent else None
    except (ValueError, TypeError):  # no time, or one without a zone
        return None


@dataclass(slots=True)
class Origin:
    """A message in hand.

    id: of the queue. task, run: of a message about one task; tasks: how many it is about. began: monotonic seconds.
    outcome: `handled`, `failed` (it comes back), `poison`, `newer-version`, or `released`: storage did not answer, or
    others were quicker, and it comes back uncounted.
    """

    queue: str
    id: str = ""
    dequeue_count: int = 1
    type: str = ""
    graph: str = ""
    task: str = ""
    run: int | None = None
    tasks: int = 0
    marks: Marks = NO_MARKS
    began: float = 0.0
    outcome: str = "handled"


@dataclass(slots=True)
class Handling:
    """A batch of messages of one graph while it is handled; empty once each of them is handled alone after all."""

    origins: Sequence[Origin]


_HANDLING: ContextVar[Handling | None] = ContextVar("taskgraph_handling", default=None)


def note(outcome: str, message_id: str | None = None) -> None:
    """Set the outcome of a message of the batch that is being handled here, of all for None."""
    handling = _HANDLING.get()
    for origin in handling.origins if handling is not None else ():
        if message_id is None or origin.id == message_id:
            origin.outcome = outcome


def handed_on() -> None:
    """The messages of the batch that is being handled here are handled one by one instead."""
    handling = _HANDLING.get()
    if handling is not None:
        handling.origins = ()


@dataclass(frozen=True, slots=True)
class Here:
    """The span that is open here, and the graph that it is about. linked: ids of traces that it is linked to."""

    graph: str
    traceparent: str
    span: Any = None
    linked: set[str] = field(default_factory=set)


_HERE: ContextVar[Here | None] = ContextVar("taskgraph_here", default=None)


def here(graph_id: str) -> Here | None:
    """The span that is open here, if it is about this graph."""
    found = _HERE.get()
    return found if found is not None and found.graph == graph_id else None


@contextlib.contextmanager
def being(at: Here | None) -> Iterator[None]:
    """Open this span in the body; nothing changes for None."""
    if at is None:
        yield
        return
    token = _HERE.set(at)
    try:
        yield
    finally:
        _HERE.reset(token)


def trace_and_span() -> tuple[str, str]:
    """Ids of the trace and the span that are open here, for log lines; "" and "" without."""
    found = _HERE.get()
    return ids_in(found.traceparent) if found is not None else ("", "")


def ids_in(traceparent: str) -> tuple[str, str]:
    """Ids of the trace and of the span that a traceparent names."""
    return traceparent[3:35], traceparent[36:52]


@dataclass(slots=True)
class Run:
    """One run of a task on a worker, while it is measured. began: monotonic seconds."""

    at: Here
    began: float
    executor: str
    target: str


@dataclass(slots=True)
class Answering:
    """An HTTP request while it is answered.

    method: a known one, or `_OTHER`. route: the pattern of its path, "" for none. status: 0 until there is one. kind:
    ANSWER, POLL, or STREAM. began: monotonic seconds. span: open until `Telemetry.answered`.
    """

    method: str
    scheme: str
    traceparent: str = ""
    route: str = ""
    status: int = 0
    error: str = ""
    kind: str = ANSWER
    began: float = 0.0
    span: Any = None


class Telemetry:
    """Measures nothing. enabled: hot paths look at this once for a batch or a commit. No method raises."""

    enabled: bool = False

    def tables(self, tables: "Tables", clock: "Clock") -> "Tables":
        """These tables, with every call measured; so are `queues`, which also mark their messages, and `logs`."""
        return tables

    def queues(self, queues: "Queues", clock: "Clock") -> "Queues":
        return queues

    def logs(self, logs: "StoredLogs", clock: "Clock") -> "StoredLogs":
        return logs

    @contextlib.contextmanager
    def asking(self, what: str, graph_id: str) -> Iterator[None]:
        """Open a span for a request; what the body sends belongs to it. what: `submit`, or a message's `asked_as`."""
        yield

    def trace_of_graph(self, graph_id: str, found: object = None) -> str:
        """While a graph is submitted: its trace, found on its row or else open here; "" without."""
        return ""

    def met(self, graph_id: str, traceparent: object) -> None:
        """Remember the trace that stands on the row of a graph, and link the open span to it."""

    @contextlib.contextmanager
    def handling(self, graph_id: str, origins: Sequence[Origin], clock: "Clock") -> Iterator[None]:
        """Handle a batch of messages of one graph in the body; a line is logged for each, also without telemetry."""
        handling = Handling(origins)
        token = _HANDLING.set(handling)
        try:
            with self._handle(graph_id, handling):
                try:
                    yield
                finally:
                    for origin in handling.origins:
                        self.message(origin, clock.monotonic() - origin.began)
        finally:
            _HANDLING.reset(token)

    @contextlib.contextmanager
    def _handle(self, graph_id: str, handling: Handling) -> Iterator[None]:
        yield

    def cause(self, graph_id: str, body: str = "") -> str:
        """The trace of this message, else of the open span, else of the graph."""
        return ""

    async def committing(self, graph_id: str, rows: int, commit: Awaitable[None]) -> None:
        """Raises what the commit raises."""
        await commit

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
        """A worker begins to run a task, or began so long ago. cause: a result of `cause`."""
        return None

    @contextlib.contextmanager
    def running(self, run: Run | None) -> Iterator[None]:
        """Run the task in the body; spans of its own become part of the trace."""
        yield

    def run_ends(self, run: Run | None, outcome: str, *, exit_code: int | None = None) -> None:
        """The run is over: `completed`, `failed`, `exception`, `broken`, `lost`, `handed-back`."""

    @contextlib.contextmanager
    def answering(self, one: Answering) -> Iterator[None]:
        """Answer an HTTP request in the body; what it asks for belongs to its trace."""
        yield

    def holds(self, one: Answering, kind: str) -> None:
        """The request is a POLL or a STREAM, from now until the end of `answering`."""

    def answered(self, one: Answering) -> None:
        """Its time is over: the head of a stream was sent, or all of any other answer."""

    def outgoing(self) -> str:
        """The traceparent of a request to another server; "" for none."""
        return ""

    def exposed(self) -> bytes | None:
        """All metrics as Prometheus reads them; None where they are not kept for it."""
        return None

    def received(self, delivery: "Delivery", now: datetime) -> None: ...

    def message(self, origin: Origin, seconds: float) -> None:
        """Log and count a message whose handling is over."""
        if HANDLED.isEnabledFor(logging.INFO):
            say_handled(origin, seconds)

    def tasks(self, outcome: str, count: int) -> None:
        """outcome: `completed`, `failed`, `exception`, `skipped`, `rerun`, `cancelled`, `lease-lost` and others."""

    def dispatched(self, target: str, count: int) -> None: ...

    def graph_state(self, graph_id: str, state: str) -> None: ...

    def swept(self, seconds: float, repairs: Mapping[str, int]) -> None: ...

    def poisoned(self, queue: str) -> None: ...

    def close(self, seconds: float = 5.0) -> None:
        """Send what has not been sent, for at most so long. Nothing is measured afterwards."""


OFF: Final = Telemetry()


def watched(telemetry: Telemetry) -> bool:
    """Whether handled messages are counted or logged."""
    return telemetry.enabled or HANDLED.isEnabledFor(logging.INFO)


def fields_of(origin: Origin, seconds: float) -> dict[str, str | int | float]:
    """The fields of the line about a handled message, in their order."""
    made: dict[str, str | int | float] = {"type": origin.type or "unreadable", "queue": origin.queue}
    if origin.graph:
        made["graph"] = origin.graph
    if origin.tasks > 1:
        made["tasks"] = origin.tasks
    if origin.task:
        made["task"] = origin.task
    if origin.run is not None:
        made["run"] = origin.run
    if origin.id:
        made["messageId"] = origin.id
    made["dequeueCount"] = origin.dequeue_count
    made["outcome"] = origin.outcome
    made["ms"] = round(seconds * 1000, 1)
    at = here(origin.graph)
    if traceparent := (at.traceparent if at is not None else origin.marks.traceparent):
        made["traceId"], made["spanId"] = ids_in(traceparent)
    return made


def say_handled(origin: Origin, seconds: float) -> None:
    """Log one line, with the fields as text for people and as attributes of the record for programs."""
    fields = fields_of(origin, seconds)
    text = " ".join(f"{name}={value}" for name, value in fields.items())
    HANDLED.info("handled %s", text, extra=fields)


def fields_in(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of a record of `HANDLED`; none for any other."""
    if record.name != HANDLED.name:
        return {}
    return {name: record.__dict__[name] for name in _FIELDS if name in record.__dict__}
