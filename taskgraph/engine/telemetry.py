"""What this process does, for who watches it: traces, metrics, and one log line for each handled message.

What this room is for: the words in which the other rooms say what happens. As it stands here nothing is measured: `OFF`
does nothing, and nothing of OpenTelemetry is imported. `interfaces.telemetry.otel` is the same with a meter and a
tracer behind it, and `interfaces.telemetry.setup` says which of the two it is. A message carries the trace that it
belongs to (`traceparent`) and when it was sent (`sent`), as keys that readers without telemetry pass over. It never
fails what it watches, and never tells a payload, a command, an environment, a result or a key.
"""

import contextlib
import json
import logging
import re
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.messages import MESSAGE_TYPES
from taskgraph.storage.logs import StoredLogs
from taskgraph.storage.queues import Delivery, Queues
from taskgraph.storage.tables import Tables

HANDLED: Final = logging.getLogger("taskgraph.handled")
"""One line at INFO for each message that was handled, by whoever had it: handlers, workers, the desk for poison."""

TRACEPARENT_COLUMN: Final = "traceparent"
"""Column of a graph's row: the trace of its submission, in W3C form. Only where telemetry is on."""

POISON_SUFFIX: Final = "-poison"
_OURS: Final = '{"version":'  # how every message begins that this program writes
_TRACEPARENT: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_HEAD: Final = re.compile(
    r'\{(?:"traceparent":"(?P<trace>00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})",)?"sent":"(?P<sent>[0-9TZ:.+-]{20,35})"'
)
_GRAPH: Final = re.compile(
    rf'\{{"version":\d{{1,9}},"type":"(?P<type>{"|".join(MESSAGE_TYPES)})",'
    r'"graph":"(?P<graph>[A-Za-z0-9_-]{1,64})"'
)


# --- keys in messages ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Marks:
    """What a message says of itself: the trace that it belongs to, and when it was sent. Both may be ""."""

    traceparent: str = ""
    sent: str = ""


NO_MARKS: Final = Marks()

_FIELDS: Final = (
    "type",
    "queue",
    "graph",
    "tasks",
    "task",
    "run",
    "messageId",
    "dequeueCount",
    "outcome",
    "ms",
    "traceId",
    "spanId",
)


def marked(body: str, traceparent: str, sent: str) -> str:
    """A message with its trace (if there is one) and the time at its head.

    As it is where that does not fit, where it has them already, and where it is not one of ours.
    """
    if not body.startswith(_OURS):
        return body
    trace = f'"traceparent":"{traceparent}",' if traceparent else ""
    made = f'{{{trace}"sent":"{sent}",{body[1:]}'
    return made if len(made) <= limits.MESSAGE_BYTES_MAX and made.isascii() else body


def marks_of(body: str) -> Marks:
    """What a message says of itself. Whoever sends with other words, or in another order, is understood as well."""
    if head := _HEAD.match(body):
        return Marks(trace_of(head["trace"]), head["sent"])
    if '"traceparent"' not in body and '"sent"' not in body:
        return NO_MARKS
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return NO_MARKS
    if not isinstance(told, dict):
        return NO_MARKS
    return Marks(trace_of(told.get("traceparent")), told["sent"] if isinstance(told.get("sent"), str) else "")


def trace_of(found: object) -> str:
    """A traceparent, "" for anything else."""
    return found if isinstance(found, str) and _TRACEPARENT.fullmatch(found) else ""


def graph_in(body: str) -> tuple[str, str]:
    """Type and graph that a message of ours names, "" and "" for any other; without taking it apart."""
    start = head.end() + 1 if (head := _HEAD.match(body)) else 0
    found = _GRAPH.match("{" + body[start : start + 200] if start else body)
    return (found["type"], found["graph"]) if found else ("", "")


def timestamp(moment: datetime) -> str:
    """A time as messages say it: RFC 3339, in UTC, to the millisecond."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def seconds_since(sent: str, now: datetime) -> float | None:
    """The age of a message, never negative though clocks differ; None if it says none."""
    try:
        return max(0.0, (now - datetime.fromisoformat(sent)).total_seconds()) if sent else None
    except (ValueError, TypeError):  # no time, or one without a zone
        return None


# --- messages in hand ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Origin:
    """A message in hand: where it came from, and what is said of it in the end.

    id: as the queue has it. task, run: of a message about one task; tasks: how many it is about. began: monotonic
    seconds. outcome: `handled`, `failed` (it comes back), `poison`, `newer-version`, or `released`: storage did not
    answer, or others were quicker, and it comes back uncounted.
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
    """A batch of messages of one graph while it is handled."""

    origins: Sequence[Origin]
    handed_on: bool = False
    """Each is handled alone after all: it is not for this batch to say what became of it."""


_HANDLING: ContextVar[Handling | None] = ContextVar("taskgraph_handling", default=None)


def note(outcome: str, message_id: str | None = None) -> None:
    """What became of a message of the batch that is being handled here, None for all. Without a word it was handled."""
    handling = _HANDLING.get()
    if handling is not None:
        for origin in handling.origins:
            if message_id is None or origin.id == message_id:
                origin.outcome = outcome


def handed_on() -> None:
    """The messages of the batch that is being handled here are handled one by one instead."""
    handling = _HANDLING.get()
    if handling is not None:
        handling.handed_on = True


# --- where in which trace ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Here:
    """The span that is open here, and the graph that it is about."""

    graph: str
    traceparent: str
    span: Any = None
    linked: set[str] = field(default_factory=set)
    """Traces that it has been linked to already."""


_HERE: ContextVar[Here | None] = ContextVar("taskgraph_here", default=None)


def here(graph_id: str) -> Here | None:
    """The span that is open here, if it is about this graph."""
    found = _HERE.get()
    return found if found is not None and found.graph == graph_id else None


@contextlib.contextmanager
def being(at: Here | None) -> Iterator[None]:
    """For the time of the body, this span is open; nothing changes for None."""
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


# --- the telemetry of a process ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Run:
    """One run of a task on a worker, while it is watched. began: monotonic seconds."""

    at: Here
    began: float
    executor: str
    target: str


class Telemetry:
    """Measures nothing: what an installation has unless telemetry is configured.

    enabled: whether anything is measured. What happens often asks this once for a batch or a commit, and says nothing
    otherwise. No method raises.
    """

    enabled: bool = False

    # --- ports

    def tables(self, tables: Tables, clock: Clock) -> Tables:
        """These tables, with every call measured."""
        return tables

    def queues(self, queues: Queues, clock: Clock) -> Queues:
        """These queues, with every call measured, and messages marked with their trace and the time."""
        return queues

    def logs(self, logs: StoredLogs, clock: Clock) -> StoredLogs:
        """These logs, with every call measured."""
        return logs

    # --- traces

    @contextlib.contextmanager
    def asking(self, what: str, graph_id: str) -> Iterator[None]:
        """What is asked for here: `submit`, or the `asked_as` of a message. What the body sends belongs to it."""
        yield

    def trace_of_graph(self, graph_id: str, found: object = None) -> str:
        """While a graph is submitted: its trace, which is the one found on its row, or this one; "" without."""
        return ""

    def met(self, graph_id: str, traceparent: object) -> None:
        """The row of a graph says that this is its trace.

        Whatever comes of the graph without a cause at hand goes there, and what is open here is linked to it.
        """

    @contextlib.contextmanager
    def handling(self, graph_id: str, origins: Sequence[Origin], clock: Clock) -> Iterator[None]:
        """A batch of messages of one graph is handled in the body; a line is logged for each of them.

        Also without telemetry: whoever finds that nobody listens to `HANDLED` either need not come here.
        """
        handling = Handling(origins)
        token = _HANDLING.set(handling)
        try:
            with self._handle(graph_id, handling):
                try:
                    yield
                finally:
                    if not handling.handed_on:
                        for origin in origins:
                            self.message(origin, clock.monotonic() - origin.began)
        finally:
            _HANDLING.reset(token)

    @contextlib.contextmanager
    def _handle(self, graph_id: str, handling: Handling) -> Iterator[None]:
        yield

    def cause(self, graph_id: str, body: str = "") -> str:
        """The trace in which something of a graph happens: that of this message, of what is open here, of the graph."""
        return ""

    async def committing(self, graph_id: str, rows: int, commit: Awaitable[None]) -> None:
        """Make a commit of so many rows. Raises what it raises."""
        await commit

    # --- runs

    def run_begins(
        self, graph_id: str, task_id: str, run: int, *, label: str, target: str, executor: str, cause: str
    ) -> Run | None:
        """A worker begins to run a task. cause: see there."""
        return None

    @contextlib.contextmanager
    def running(self, run: Run | None) -> Iterator[None]:
        """The body runs it; spans of the task's own become part of the trace."""
        yield

    def run_ends(self, run: Run | None, outcome: str, *, exit_code: int | None = None) -> None:
        """The run is over: `completed`, `failed`, `exception`, `broken`, `lost`, `handed-back`."""

    # --- counts

    def received(self, delivery: Delivery, now: datetime) -> None:
        """A message was received: how old it is, where it says that."""

    def message(self, origin: Origin, seconds: float) -> None:
        """A message was handled, or was not: one line, and one more in the metrics."""
        if HANDLED.isEnabledFor(logging.INFO):
            say_handled(origin, seconds)

    def tasks(self, outcome: str, count: int) -> None:
        """So many: `completed`, `failed`, `exception`, `skipped`, `rerun`, `cancelled`, `lease-lost` and others."""

    def dispatched(self, target: str, count: int) -> None:
        """So many tasks were offered to the workers of a target."""

    def graph_state(self, graph_id: str, state: str) -> None:
        """A graph went into this state."""

    def swept(self, seconds: float, repairs: Mapping[str, int]) -> None:
        """A round of the sweep has ended."""

    def poisoned(self, queue: str) -> None:
        """A message was set aside."""

    # --- the end

    def close(self, seconds: float = 5.0) -> None:
        """Send what has not been sent, for at most so long. Nothing is measured afterwards."""


OFF: Final = Telemetry()


def watched(telemetry: Telemetry) -> bool:
    """Whether anybody wants to know what becomes of messages."""
    return telemetry.enabled or HANDLED.isEnabledFor(logging.INFO)


def fields_of(origin: Origin, seconds: float) -> dict[str, str | int | float]:
    """What a line says of a handled message, in the order of reading; nothing of its content but names and numbers."""
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
    """Log one line: words for who reads it, and the same as attributes of the record for programs."""
    fields = fields_of(origin, seconds)
    text = " ".join(f"{name}={value}" for name, value in fields.items())
    HANDLED.info("handled %s", text, extra=fields)


def fields_in(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that a record of `HANDLED` brings with it; none for any other."""
    if record.name != HANDLED.name:
        return {}
    return {name: record.__dict__[name] for name in _FIELDS if name in record.__dict__}
