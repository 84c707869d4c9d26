"""Questions that people ask: which graphs, how far, what of this task, why does it not run.

What this room is for: reading rows and answering in logical terms: requires and dependents by task, whatever joins and
forks lie between (D5). It never writes, never sends, and never formats for a terminal.
"""

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from taskgraph.clock import Clock
from taskgraph.errors import IntegrityError, InvalidInput, NotFound
from taskgraph.handlers import QueueNames
from taskgraph.jsontext import show
from taskgraph.layout import gathered
from taskgraph.model import (
    GRAPH,
    GraphState,
    TaskState,
    is_graph_id,
    is_relay,
    is_task_id,
    owner_of,
    row_key,
    task_id_of,
    typed,
)
from taskgraph.records import ALL
from taskgraph.rows import SCHEMA_MAX
from taskgraph.storage.queues import Queues
from taskgraph.storage.tables import Range, Row, Tables, Value, query_all
from taskgraph.transitions import event_key

NEAR_LABELS_MAX: Final = 5
WHY_TASKS_MAX: Final = 2000
"""Tasks that `why` walks through before it answers with what it has found."""


@dataclass(frozen=True, slots=True)
class GraphStatus:
    """A graph at a glance. counts: tasks by state."""

    graph_id: str
    state: str
    created: datetime | None
    finished: datetime | None
    tasks: int
    edges: int
    counts: Mapping[str, int]
    blocked_by: str = ""
    failed_tasks: int = 0
    routing: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GraphListed:
    """A graph in the list."""

    graph_id: str
    state: str
    created: datetime | None
    name: str
    tasks: int


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """A task as its row tells it; edges are not resolved here (see `TaskDetail`)."""

    task_id: str
    label: str
    state: str
    run: int
    target: str
    reruns_allowed: int
    reruns_left: int
    retries_left: int
    worker: str
    pending_since: datetime | None
    started: datetime | None
    ended: str
    resolved: datetime | None
    lease_until: datetime | None
    deadline: datetime | None
    resolution: Mapping[str, Any] | None
    runs: Sequence[Mapping[str, Any]]
    refusal: str


@dataclass(frozen=True, slots=True)
class TaskDetail:
    """A task with its logical edges, by label, and its definition."""

    status: TaskStatus
    requires: Sequence[str]
    requires_left: Sequence[str]
    dependents: Sequence[str]
    definition: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reason:
    """One line of the answer to "why does it not run?".

    depth: steps down from the task that was asked about. cause: whether it is a first cause: nothing below explains it.
    """

    label: str
    task_id: str
    state: str
    depth: int
    text: str
    cause: bool
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """One fact of a graph's journal."""

    sequence: int
    time: datetime | None
    kind: str
    fields: Mapping[str, Any]


class Queries:
    """Everything that can be asked of one installation."""

    def __init__(self, tables: Tables, queues: Queues, clock: Clock, names: QueueNames) -> None:
        self._tables = tables
        self._queues = queues
        self._clock = clock
        self._names = names

    async def graphs(self, *, limit: int = 50, state: str = "") -> list[GraphListed]:
        """The newest graphs first, with the state that each has now."""
        found: list[GraphListed] = []
        continuation: str | None = None
        while True:
            page = await self._tables.query(ALL, Range(), limit=min(1000, max(limit, 1)), continuation=continuation)
            for row in page.rows:
                listed = await self._listed(row)
                if not state or listed.state == state:
                    found.append(listed)
                if len(found) >= limit:
                    return found
            continuation = page.continuation
            if continuation is None:
                return found

    async def _listed(self, row: Row) -> GraphListed:
        graph_id = str(row.columns.get("graph", ""))
        (graph,) = await self._tables.get(graph_id, [GRAPH])
        columns: Mapping[str, Value] = graph.columns if graph else {}
        return GraphListed(
            graph_id=graph_id,
            state=str(columns.get("state", "missing")),
            created=_time(row.columns, "created"),
            name=str(row.columns.get("name", "")),
            tasks=_integer(columns, "tasks"),
        )

    async def graph_row(self, graph_id: str) -> Row:
        """The graph row. Raises NotFound, with the nearest ids, and InvalidInput for what cannot be an id."""
        check_graph_id(graph_id)
        (row,) = await self._tables.get(graph_id, [GRAPH])
        if row is None:
            recent = await query_all(self._tables, ALL, Range(select=("graph",)))
            names = [str(each.columns.get("graph", "")) for each in recent[:5000]]
            raise NotFound(f"there is no graph {graph_id}", difflib.get_close_matches(graph_id, names, 3, 0.5))
        return row

    async def state(self, graph_id: str) -> GraphState:
        """The state of a graph: one read. Raises IntegrityError for one that this version does not know."""
        state = str((await self.graph_row(graph_id)).columns.get("state", ""))
        if state not in _STATES:
            raise IntegrityError(f"graph {graph_id} is in the state {show(state)}, which this version does not know")
        return GraphState(state)

    async def status(self, graph_id: str) -> GraphStatus:
        """A graph with its tasks counted by state."""
        row = await self.graph_row(graph_id)
        counts: Counter[str] = Counter()
        continuation: str | None = None
        wanted = Range("task:", "task;", select=("state",))
        while True:
            page = await self._tables.query(graph_id, wanted, continuation=continuation)
            counts.update(str(each.columns.get("state", "")) for each in page.rows)
            continuation = page.continuation
            if continuation is None:
                break
        columns = row.columns
        return GraphStatus(
            graph_id=graph_id,
            state=str(columns.get("state", "")),
            created=_time(columns, "created"),
            finished=_time(columns, "finished"),
            tasks=_integer(columns, "tasks"),
            edges=_integer(columns, "edges"),
            counts={str(state): counts[state] for state in TaskState if counts[state]},
            blocked_by=str(columns.get("blockedBy", "")),
            failed_tasks=_integer(columns, "failedTasks"),
            routing=str(columns.get("routing", "")),
            metadata=_object(columns, "metadata"),
            tags=_object(columns, "tags"),
        )

    async def busy(self, graph_id: str) -> int:
        """How many tasks are pending or running: 0 means that nothing moves by itself."""
        wanted = Range(
            "task:", "task;", where={"state": (str(TaskState.PENDING), str(TaskState.RUNNING))}, select=("state",)
        )
        relays = [Range(f"{kind}:", f"{kind};", where={"state": ("pending",)}, select=("state",)) for kind in _RELAYS]
        requests = Range("request:", "request;", where={"state": ("staged", "accepted")}, select=("state",))
        total = 0
        for each in (wanted, *relays, requests):
            total += len(await query_all(self._tables, graph_id, each))
        return total

    async def tasks(self, graph_id: str, *, state: str = "", match: str = "", limit: int = 1000) -> list[TaskStatus]:
        """Tasks of a graph, by state and by a part of the label, sorted by label."""
        await self.graph_row(graph_id)
        where = {"state": (state,)} if state else {}
        rows = await query_all(self._tables, graph_id, Range("task:", "task;", where=where))
        wanted = match.casefold()
        found = [_task_status(row) for row in rows if wanted in str(row.columns.get("label", "")).casefold()]
        return sorted(found, key=lambda each: each.label)[:limit]

    async def find_task(self, graph_id: str, label_or_id: str) -> Row:
        """The row of a task, by label (or taskId). Raises NotFound, with the nearest labels."""
        await self.graph_row(graph_id)
        keys = [row_key(task_id_of(graph_id, label_or_id))]
        if is_task_id(label_or_id):
            keys.append(row_key(label_or_id))
        for row in await self._tables.get(graph_id, keys):
            if row is not None:
                return row
        rows = await query_all(self._tables, graph_id, Range("task:", "task;", select=("label",)))
        labels = [str(row.columns.get("label", "")) for row in rows]
        raise NotFound(f"graph {graph_id} has no task “{label_or_id}”", nearest(label_or_id, labels))

    async def task(self, graph_id: str, label_or_id: str) -> TaskDetail:
        """A task with its logical edges and its definition."""
        row = await self.find_task(graph_id, label_or_id)
        own = row.key.removeprefix("task:")
        requires = await self._expand_requires(graph_id, _ids(row, "requires"))
        left = await self._expand_requires(graph_id, _ids(row, "requiresLeft"), left=True)
        dependents = await self._expand_dependents(graph_id, _ids(row, "dependents"))
        labels = await self._labels(graph_id, [*requires, *left, *dependents])
        text = str(row.columns.get("task", ""))
        if not text:
            (longer,) = await self._tables.get(graph_id, [f"definition:{own}"])
            text = gathered(longer.columns, "task") if longer else "{}"
        return TaskDetail(
            status=_task_status(row),
            requires=sorted(labels[each] for each in requires),
            requires_left=sorted(labels[each] for each in left),
            dependents=sorted(labels[each] for each in dependents),
            definition=json.loads(text),
        )

    async def _expand_requires(self, graph_id: str, references: Iterable[str], *, left: bool = False) -> list[str]:
        """TaskIds behind a requirement list, through joins. left: only those that are not fulfilled yet."""
        found: dict[str, None] = {}
        todo = list(references)
        while todo:
            joins = [each for each in todo if is_relay(each)]
            found.update(dict.fromkeys(each for each in todo if not is_relay(each)))
            rows = await self._tables.get(graph_id, [row_key(each) for each in joins])
            todo = [each for row in rows if row for each in _ids(row, "requiresLeft" if left else "requires")]
        return list(found)

    async def _expand_dependents(self, graph_id: str, references: Iterable[str]) -> list[str]:
        """TaskIds behind a dependents list, through forks; a join stands for the task it works for."""
        found: dict[str, None] = {}
        todo = list(references)
        while todo:
            forks = [each for each in todo if each.startswith("fork:")]
            owners = [owner_of(each) for each in todo if not each.startswith("fork:")]
            found.update(dict.fromkeys(each for each in owners if each != GRAPH))
            rows = await self._tables.get(graph_id, [row_key(each) for each in forks])
            todo = [each for row in rows if row for each in _ids(row, "dependents")]
        return list(found)

    async def _labels(self, graph_id: str, task_ids: Iterable[str]) -> dict[str, str]:
        wanted = list(dict.fromkeys(task_ids))
        rows = await self._tables.get(graph_id, [row_key(each) for each in wanted])
        return {
            each: str(row.columns.get("label", each)) if row else each for each, row in zip(wanted, rows, strict=True)
        }

    async def why(self, graph_id: str, label_or_id: str) -> list[Reason]:
        """What a task waits for, down to the first causes. Breadth first; each task is explained once."""
        graph = await self.graph_row(graph_id)
        first = await self.find_task(graph_id, label_or_id)
        reasons: list[Reason] = []
        if not _known(graph):
            status = _task_status(first)
            return [Reason(status.label, status.task_id, status.state, 0, f"its graph: {_newer(graph)}", True, _NEWER)]
        seen = {first.key}
        level = [first]
        depth = 0
        while level and len(seen) <= WHY_TASKS_MAX:
            below: dict[str, None] = {}
            for row in level:
                if row.columns.get("state") == TaskState.UNSCHEDULED and _known(row):
                    left = await self._expand_requires(graph_id, _ids(row, "requiresLeft"), left=True)
                    below.update(dict.fromkeys(row_key(each) for each in left))
                    reasons.append(_waiting(row, depth, len(left)))
                else:
                    reasons.append(await self._cause(row, depth, str(graph.columns.get("state", "")), graph_id))
            keys = [key for key in below if key not in seen]
            seen.update(keys)
            level = [row for row in await self._tables.get(graph_id, keys) if row is not None]
            depth += 1
        return reasons

    async def _cause(self, row: Row, depth: int, graph_state: str, graph_id: str) -> Reason:
        status = _task_status(row)
        remedy = ""
        if not _known(row):
            return Reason(status.label, status.task_id, status.state, depth, _newer(row), True, _NEWER)
        match status.state:
            case TaskState.PENDING:
                queue = self._names.work(status.target)
                held = await self._queues.count(queue)
                text = f"is ready since {_clock_text(status.pending_since)}; no worker has claimed it"
                text += f" (queue {queue} holds about {held} message{'s' if held != 1 else ''})"
                remedy = f"start a worker: taskgraph worker --target {status.target}"
                if graph_state == GraphState.SUBMITTING:
                    text = "is ready, and its graph is still being submitted"
                    remedy = "submit the same file under the same id again"
                elif status.refusal:
                    text += f"; a worker gave it back: {status.refusal}"
                    remedy = "start a worker that has what it takes"
            case TaskState.RUNNING:
                text = f"runs on {status.worker} since {_clock_text(status.started)}"
                if status.lease_until is not None and status.lease_until < self._clock.now():
                    text += (
                        f"; the worker's lease ended {_clock_text(status.lease_until)}, so the next sweep gives it back"
                    )
                    remedy = "run `taskgraph serve`, which sweeps"
            case TaskState.FAILED | TaskState.EXCEPTION:
                reason = (status.resolution or {}).get("reason", "")
                verb = "failed for good" if status.state == TaskState.FAILED else "could not be run"
                text = f"{verb} in run {status.run}"
                text += f": {reason}" if reason else ""
                remedy = f"mend it, then: {typed('rerun', graph_id, status.label, status.task_id)}"
            case TaskState.COMPLETED:
                text = f"completed at {_clock_text(status.resolved)}"
            case _:
                text = f"is {status.state}"
        return Reason(status.label, status.task_id, status.state, depth, text, True, remedy)

    async def events(self, graph_id: str, *, since: int = 0, limit: int = 1000) -> list[Event]:
        """The journal after event row number `since`, in order."""
        check_graph_id(graph_id)
        found: list[Event] = []
        continuation: str | None = None
        while len(found) < limit:
            page = await self._tables.query(
                graph_id, Range(event_key(since + 1), "event;"), limit=min(limit, 1000), continuation=continuation
            )
            for row in page.rows:
                facts = json.loads(str(row.columns.get("events", "[]")))
                for fact in facts:
                    kind = str(fact.pop("event", ""))
                    found.append(Event(_integer(row.columns, "sequence"), _time(row.columns, "time"), kind, fact))
            continuation = page.continuation
            if continuation is None:
                break
        return found

    async def request(self, graph_id: str, request: str) -> Mapping[str, Value]:
        """The head row of an extension: state (staged, accepted, done, refused), reason. Raises NotFound."""
        check_graph_id(graph_id)
        check_graph_id(request, "a request")
        (row,) = await self._tables.get(graph_id, [f"request:{request}"])
        if row is None:
            raise NotFound(f"graph {graph_id} has no request {request}")
        return row.columns

    async def partition(self, graph_id: str) -> list[Row]:
        """Every row of a graph, as a table explorer shows it."""
        check_graph_id(graph_id)
        return await query_all(self._tables, graph_id, Range())


_RELAYS: Final = ("join", "fork")
_STATES: Final = frozenset(GraphState)


def check_graph_id(text: str, what: str = "a graph") -> None:
    """Raise InvalidInput for what cannot be an id: no store is asked for it."""
    if not is_graph_id(text):
        raise InvalidInput(f"{show(text)} cannot be the id of {what}: 1 to 64 letters, digits, - and _")


_NEWER: Final = "use a newer version of taskgraph"


def _known(row: Row) -> bool:
    """Whether this version may judge the row (P23)."""
    schema = row.columns.get("schema", 1)
    return not isinstance(schema, int) or schema <= SCHEMA_MAX


def _newer(row: Row) -> str:
    return f"the row has schema {row.columns['schema']}, and this version knows {SCHEMA_MAX}: it is left to a newer one"


def nearest(wanted: str, names: Sequence[str]) -> list[str]:
    """The names most like the wanted one: same letters in another case, a common part, then a close spelling."""
    folded = wanted.casefold()
    exact = [name for name in names if name.casefold() == folded]
    inside = [name for name in names if folded and folded in name.casefold()]
    close = difflib.get_close_matches(wanted, list(names)[:20_000], NEAR_LABELS_MAX, 0.5)
    return list(dict.fromkeys([*exact, *close, *inside]))[:NEAR_LABELS_MAX]


def _waiting(row: Row, depth: int, left: int) -> Reason:
    status = _task_status(row)
    text = f"waits for {left} task{'s' if left != 1 else ''}"
    return Reason(status.label, status.task_id, status.state, depth, text, False)


def _clock_text(moment: datetime | None) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%SZ") if moment else "an unknown time"


def _ids(row: Row, name: str) -> list[str]:
    text = row.columns.get(name, "[]")
    found = json.loads(str(text) or "[]")
    if not isinstance(found, list):
        raise IntegrityError(f"row {row.key}: column {name} is no list")
    return [str(each) for each in found]


def _integer(columns: Mapping[str, Value], name: str) -> int:
    value = columns.get(name, 0)
    return value if isinstance(value, int) else 0


def _time(columns: Mapping[str, Value], name: str) -> datetime | None:
    value = columns.get(name)
    return value if isinstance(value, datetime) else None


def _object(columns: Mapping[str, Value], name: str) -> dict[str, Any]:
    try:
        found = json.loads(str(columns.get(name, "") or "{}"))
    except ValueError:
        return {}  # damaged: see _records
    return found if isinstance(found, dict) else {}


def _records(columns: Mapping[str, Value], name: str) -> list[Mapping[str, Any]]:
    """A column that lists objects; what is damaged in it is left out, for `doctor` to name: the rest is still shown."""
    try:
        found = json.loads(str(columns.get(name, "") or "[]"))
    except ValueError:
        return []
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _task_status(row: Row) -> TaskStatus:
    columns = row.columns
    return TaskStatus(
        task_id=row.key.removeprefix("task:"),
        label=str(columns.get("label", "")),
        state=str(columns.get("state", "")),
        run=_integer(columns, "run"),
        target=str(columns.get("target", "default")),
        reruns_allowed=_integer(columns, "rerunsAllowed"),
        reruns_left=_integer(columns, "rerunsLeft"),
        retries_left=_integer(columns, "retriesLeft"),
        worker=str(columns.get("worker", "")),
        pending_since=_time(columns, "pendingSince"),
        started=_time(columns, "started"),
        ended=str(columns.get("ended", "")),
        resolved=_time(columns, "resolved"),
        lease_until=_time(columns, "leaseUntil"),
        deadline=_time(columns, "deadline"),
        resolution=_object(columns, "resolution") or None,
        runs=_records(columns, "runs"),
        refusal=str(columns.get("refusal", "")),
    )
