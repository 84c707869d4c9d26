"""What a worker has in hand, as values: messages, ready tasks, runs; and what it reads in their rows."""

import asyncio
import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from taskgraph.engine.telemetry import Origin, Run
from taskgraph.model import limits
from taskgraph.model.columns import Value
from taskgraph.model.errors import IntegrityError
from taskgraph.model.facts import ROUTING_KEY, routing_of
from taskgraph.model.ids import ids_text, is_task_id, row_key
from taskgraph.model.messages import Seen
from taskgraph.model.placement import target_of
from taskgraph.model.priorities import NORMAL_RANK
from taskgraph.model.states import TaskState
from taskgraph.model.timing import not_yet_seconds
from taskgraph.protocol.definitions import SCHEMA, moment
from taskgraph.protocol.edit import EDITED
from taskgraph.protocol.runs import Claim
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Row
from taskgraph.worker.executors import Executor, Outcome, Work
from taskgraph.worker.executors.contract import Begun

_ROOM_SECONDS_MAX: Final = 60.0
_EARLY_MAX: Final = 10_000  # tasks; one that is forgotten waits for its pause once more at most


@dataclass(slots=True, eq=False)
class WorkMessage:
    """A work message in hand, kept until every run that was claimed by it has been reported."""

    delivery: Delivery
    open: int = 1  # runs, and one for taking it apart
    taken: bool = False
    given_up: bool = False  # something went wrong with it: it is kept no longer, and comes back
    busy_until: datetime | None = None  # it came back for a run that still has its lease, or came before its time
    origin: Origin | None = None  # for telemetry
    large: bool = False  # who sent it knows that all handlers take large messages

    def keep_until(self, until: datetime) -> None:
        """Have the message come back then, or later if that was asked for before."""
        if self.busy_until is None or self.busy_until < until:
            self.busy_until = until


@dataclass(slots=True, eq=False)
class ClaimedRun:
    """One run that this worker holds.

    etag: of its row, over: of the row before the claim; "" if others may have written in between. next: see
    messages.Seen. begun: by plain calls. handle: the task that sees to it, if it needs one. cancelled: why it is being
    stopped, "" if it is not. cause: the trace that it belongs to. watched: while it runs and is measured. takes:
    whether its payload may take outputs of other tasks, which are looked up right before the run.
    """

    work: Work
    executor: Executor
    source: WorkMessage | None = None
    etag: str = ""
    over: str = ""
    next: str = ""
    since: float = 0.0  # claimed or renewed
    began: float = 0.0
    took: float | None = None  # seconds, of a run that ended by itself
    begun: Begun | None = None
    handle: asyncio.Task[None] | None = None
    outcome: Outcome | None = None
    error: BaseException | None = None
    lost: bool = False
    cancelled: str = ""
    cause: str = ""
    watched: Run | None = None
    takes: bool = False
    instant: bool = False  # it takes no time at all
    routing: str = ""  # of its row, for listeners
    unpermitted: bool = False  # it ran under a permit of its target, which could not be renewed in time


@dataclass(slots=True, eq=False)
class ReadyTask:
    """A task that can be claimed, and that no other worker was sent lately.

    held: the message it came by. rank: of its level, see `priorities`. edited: of which edit its
    definition is, as its row says; a message says none.
    """

    task_id: str
    run: int
    target: str
    definition: str
    since: float
    label: str
    source: WorkMessage | None = None
    seen: Seen | None = None
    row: Row | None = None
    claim: Claim | None = None
    rank: int = NORMAL_RANK
    edited: int = 0
    routing: str = ""  # of its row, for listeners


class Early:
    """Since when, by its steady clock, a worker knows of tasks that must not run yet. moment: of that clock."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, Value | None, Value | None], float] = {}

    def seconds(self, row: Row | None, moment: float) -> float:
        """For how long it is known that the task stands pending as this row says; 0 where that is news."""
        return moment - self._since.get(_stand(row), moment) if row is not None and self._since else 0.0

    def note(self, row: Row, moment: float) -> None:
        """Remember that this task stands pending, unless that is known."""
        if len(self._since) >= _EARLY_MAX:
            self._since.clear()
        self._since.setdefault(_stand(row), moment)


def _stand(row: Row) -> tuple[str, Value | None, Value | None]:
    return row.key, row.columns.get("run"), row.columns.get("pendingSince")


def hold_until_due(source: WorkMessage, row: Row | None, early: Early, now: datetime, moment: float) -> bool:
    """Keep a message that came for a task which must not run yet until it may; gives whether it did."""
    if row is None or row.columns.get("state") != TaskState.PENDING:
        return False
    left = not_yet_seconds(row.columns.get, now, early.seconds(row, moment))
    if not left:
        return False
    early.note(row, moment)
    source.keep_until(now + timedelta(seconds=left))
    return True


def hold_for_room(source: WorkMessage, row: Row | None, now: datetime) -> bool:
    """Keep a message whose task has no room under a limit, for longer each time it comes; gives whether it was so.

    The end of a run wakes the next one, so this is for one that was woken too early, and it is not remembered.
    """
    if row is None or row.columns.get("state") != TaskState.PENDING or row.columns.get("limited") != "yes":
        return False
    if row.columns.get("held", "[]") not in ("", "[]"):
        return False
    seconds = min(_ROOM_SECONDS_MAX, 2.0 ** min(source.delivery.dequeue_count - 1, 10))
    source.keep_until(now + timedelta(seconds=seconds))
    return True


def ended_how(one: ClaimedRun) -> str:
    """How a run ended, in a word."""
    if one.error is not None:
        return "broken"
    if one.outcome is None:
        return "lost" if one.lost else "cancelled" if one.cancelled else "handed-back"
    if one.outcome.exception:
        return "exception"
    return "failed" if one.outcome.failed else "completed"


def deadline_in(definition: Mapping[str, Any]) -> datetime | None:
    """The deadline that a definition names, None for none, or for what is none."""
    text = definition.get("deadline")
    try:
        return moment(text) if isinstance(text, str) else None
    except ValueError:
        return None


def edited_in(row: Row | None) -> int:
    """Of which edit the definition is that belongs to a task row, 0 for the one that was submitted."""
    edited = row.columns.get(EDITED, 0) if row is not None else 0
    return edited if isinstance(edited, int) else 0


def routing_in(row: Row | None) -> str:
    """The routing of a task row, "" without one."""
    return routing_of(row.columns) if row is not None else ""


def label_in(row: Row | None) -> str:
    """The label in a task row, "" without one."""
    return str(row.columns.get("label", "")) if row is not None else ""


def ids_of(messages: Iterable[WorkMessage]) -> str:
    return ", ".join(dict.fromkeys(source.delivery.id for source in messages))


def read_definition(graph_id: str, task_id: str, definition: str) -> dict[str, Any]:
    """The definition as an object; the same one for the same text. Raises IntegrityError."""
    parsed = _parsed(definition) if len(definition) <= limits.INLINE_DEFINITION_CHARS_MAX else _json_or_none(definition)
    if not isinstance(parsed, dict):
        raise IntegrityError(f"graph {graph_id}: task {task_id} has no definition")
    return parsed


def _json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


_parsed: Final = functools.lru_cache(maxsize=1000)(_json_or_none)


def as_seen(one: ReadyTask) -> Row | None:
    """The row of a pending task, as far as a claim asks for it, and as far as a message said."""
    seen = one.seen
    if seen is None:
        return None
    columns: dict[str, Value] = {
        "schema": SCHEMA,
        "state": str(TaskState.PENDING),
        "run": one.run,
        "label": seen.label,
        "task": one.definition,
    }
    if one.routing:
        columns[ROUTING_KEY] = one.routing
    return Row(row_key(one.task_id), seen.etag, columns)


def as_claimed(one: ClaimedRun) -> Row:
    """The row of a run of this worker, as far as its completion asks for it."""
    work = one.work
    columns: dict[str, Value] = {
        "schema": SCHEMA,
        "state": str(TaskState.RUNNING),
        "run": work.run,
        "claim": work.claim,
        "label": work.label,
        "target": target_of(work.definition),
        "dependents": ids_text([one.next]),
    }
    if one.routing:
        columns[ROUTING_KEY] = one.routing
    return Row(row_key(work.task_id), one.etag, columns)


def as_resolved(row: Row | None) -> tuple[str, dict[str, Any] | None]:
    """The state of a task, and its resolution; of a row that is not there, or holds none, nothing."""
    if row is None:
        return "", None
    resolution = _json_or_none(str(row.columns.get("resolution", "")))
    return str(row.columns.get("state", "")), resolution if isinstance(resolution, dict) else None


def only_dependent(row: Row) -> str:
    """The one task that requires this one, "" if there are others, or none."""
    ids = _json_or_none(str(row.columns.get("dependents", "")))
    if isinstance(ids, list) and len(ids) == 1 and isinstance(ids[0], str) and is_task_id(ids[0]):
        return ids[0]
    return ""


def was_terminated(row: Row | None) -> bool:
    """Whether a task was cancelled without waiting for its run, which may go on unheeded."""
    if row is None or row.columns.get("state") != TaskState.EXCEPTION:
        return False
    resolution = _json_or_none(str(row.columns.get("resolution", "")))
    return isinstance(resolution, dict) and resolution.get("terminated") is True
