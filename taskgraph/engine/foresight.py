"""What a change would make of a graph: its messages are handled on a copy, by the handlers themselves.

The copy reads rows as handlers ask for them, and keeps what they write (`storage.overlay`). So a plan costs the reads
of the change itself, and differs from what is done only where rows have moved.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from taskgraph.engine.commit import Records
from taskgraph.engine.listeners import Counters, Listeners
from taskgraph.engine.telemetry import OFF
from taskgraph.model import priorities
from taskgraph.model.columns import Columns, Value, integer, seen_state, texts
from taskgraph.model.errors import NoGraph
from taskgraph.model.ids import GRAPH, row_key, value
from taskgraph.model.messages import AddTasks, Edit, Message, RunTasks, parse, to_object
from taskgraph.model.states import INACTIVE, TASK_UNRESOLVED
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.extension import request_key
from taskgraph.storage.overlay import Outbox, OverlayTables
from taskgraph.storage.tables import Row

if TYPE_CHECKING:
    from taskgraph.engine.handlers import Handlers

_OF_A_TASK: Final = (
    *("requires", "optional", "when", "rerunsAllowed", "deadline", "pendingTimeout", "retry", "target", "task"),
    *("cancel", priorities.COLUMN),
)
"""Columns of a task that a plan names. What else changes follows from these, or is bookkeeping."""

_SILENT: Final = ("task:", "join:", "fork:", "limit:")
_OPEN: Final = frozenset(map(str, TASK_UNRESOLVED))
_OF_THE_GRAPH: Final = ("state", "held", "limits", "deadline", "tasks", "edges")
_NOT_OF_THE_PLAN: Final = ("version", "asked", "reason", "by", "request")
"""Keys of messages by which no plan differs from another one."""


@value
class TaskChange:
    """What becomes of a task. state, to: as people see them, "" where it is not there. run: before, and after.

    columns: name -> (before, after), None for none.
    """

    task_id: str
    label: str
    state: str
    to: str
    run: int
    to_run: int
    columns: Mapping[str, tuple[Value | None, Value | None]]


@value
class Foreseen:
    """What handlers would make of a graph now.

    event: the last number of its journal. graph: column -> (before, after). limits: the same, by their group. held: so
    many tasks would come to be held back, or let go, by the graph or a group. ready: labels of tasks that would be
    sent. facts: what the journal would say. refused: what would not be done, in sentences. rests_on: (key, etag) of
    rows that were read for it, and that may change without a fact; those that it changes first.
    """

    graph_id: str
    event: int
    revision: int
    digest: str
    graph: Mapping[str, tuple[Value | None, Value | None]]
    limits: Mapping[str, tuple[Value | None, Value | None]]
    tasks: tuple[TaskChange, ...]
    held: int
    ready: tuple[str, ...]
    facts: tuple[Mapping[str, Any], ...]
    refused: tuple[str, ...]
    rests_on: tuple[tuple[str, str], ...]

    @property
    def changes_nothing(self) -> bool:
        return not (self.graph or self.limits or self.tasks or self.held)


@dataclass(slots=True)
class Copy:
    """Copies of the rows of a store, with handlers and queues of their own."""

    handlers: "Handlers"
    tables: OverlayTables = field(init=False)
    queues: Outbox = field(init=False)

    def __post_init__(self) -> None:
        """handlers: those of the store; their copies take their place."""
        of = self.handlers
        self.tables, self.queues = OverlayTables(of.records.tables), Outbox()
        self.handlers = replace(
            of,
            records=Records(self.tables, of.clock),
            queues=self.queues,
            counters=Counters(),
            listeners=Listeners(),
            telemetry=OFF,
        )
        self.handlers.dispatcher.event_queues.only_first = True  # no one receives here: how many there are is not read

    def asked(self) -> list[Message]:
        """The messages that were sent to handlers; they are gone here."""
        names = self.handlers.dispatcher.event_queues.received
        return [parse(body) for name in names for body in self.queues.bodies.pop(name, ())]

    def sent(self) -> Iterator[tuple[str, int]]:
        """Tasks that were sent to workers, with their runs."""
        for bodies in self.queues.bodies.values():
            for body in bodies:
                if isinstance(message := parse(body), RunTasks):
                    yield from message.tasks


async def foresee(
    handlers: "Handlers", graph_id: str, messages: Sequence[Message], copy: Copy | None = None
) -> Foreseen:
    """What these messages would lead to. copy: on which a request was staged that they name. Nothing is written.

    Raises what handling them raises.
    """
    copy = copy or Copy(handlers)
    event = await handlers.records.end(graph_id)
    (before,) = await handlers.records.tables.get(graph_id, [GRAPH])
    essence = [await _essence(copy, each) for each in messages]
    refused: list[str] = []
    for handled in await copy.handlers.handle(graph_id, messages):
        if handled.error is not None:
            raise handled.error
        refused += [each.reason for each in handled.answers if each.outcome in (Outcome.REFUSED, Outcome.STALE)]
    for each in messages:
        if isinstance(each, AddTasks | Edit):
            (head,) = await copy.tables.get(graph_id, [request_key(each.request)])
            if head is not None and head.columns.get("state") == "refused":
                refused.append(str(head.columns.get("reason", "")))
    return await _compared(copy, graph_id, before, event, essence, refused)


async def refusal(handlers: "Handlers", graph_id: str, reason: str) -> Foreseen:
    """The plan of a change that may not even be asked for. Raises NoGraph."""
    event = await handlers.records.end(graph_id)
    (graph,) = await handlers.records.tables.get(graph_id, [GRAPH])
    if graph is None:
        raise NoGraph(graph_id)
    return await _compared(Copy(handlers), graph_id, graph, event, (), [reason])


async def _essence(copy: Copy, message: Message) -> Mapping[str, Any]:
    """What a message asks for, and how it differs from others."""
    said = {name: each for name, each in to_object(message).items() if name not in _NOT_OF_THE_PLAN}
    if isinstance(message, AddTasks | Edit):
        (head,) = await copy.tables.get(message.graph, [request_key(message.request)])
        if head is not None:
            said["document"] = head.columns.get("digest")
    return said


async def _compared(
    copy: Copy, graph_id: str, before: Row | None, event: int, essence: Sequence[Any], refused: Sequence[str]
) -> Foreseen:
    graph: Mapping[str, tuple[Value | None, Value | None]] = {}
    limits: dict[str, tuple[Value | None, Value | None]] = {}
    tasks: list[TaskChange] = []
    definitions: dict[str, tuple[Value | None, Value | None]] = {}
    facts: list[Mapping[str, Any]] = []
    held = 0
    labels: dict[str, str] = {}
    for key, was, row in copy.tables.differences(graph_id):
        old, new = _columns(was), _columns(row)
        kind, _, own = key.partition(":")
        if key == GRAPH:
            graph = _differences(old, new, _OF_THE_GRAPH)
        elif kind == "limit" and old.get("max") != new.get("max"):
            limits[str(new.get("label", ""))] = old.get("max"), new.get("max")
        elif kind == "definition":
            definitions[own] = old.get("task"), new.get("task")
        elif kind == "event":
            facts += json.loads(str(new["events"]))
        elif kind == "task":
            labels[own] = str((new or old).get("label", own))
            change = _task_change(own, old, new, labels[own])
            if change is None:
                held += old.get("held") != new.get("held")
                continue
            tasks.append(change)
    tasks = [_with_definition(each, definitions.get(each.task_id)) for each in tasks]
    tasks.sort(key=lambda each: each.label)
    sent = list(dict.fromkeys(task_id for task_id, _ in copy.sent()))
    unknown = [each for each in sent if each not in labels]
    for task_id, found in zip(unknown, await copy.tables.get(graph_id, [*map(row_key, unknown)]), strict=True):
        labels[task_id] = str(_columns(found).get("label", task_id))
    return Foreseen(
        graph_id,
        event,
        integer(_columns(before), "revision"),
        _digest(essence, graph, limits, tasks, refused),
        graph,
        limits,
        tuple(tasks),
        held,
        tuple(labels[each] for each in sent),
        tuple(facts),
        tuple(dict.fromkeys(refused)),
        _rests_on(copy, graph_id),
    )


def _rests_on(copy: Copy, graph_id: str) -> tuple[tuple[str, str], ...]:
    """The graph row, and tasks, relays and limits as far as claims, requests, relays that fire and counts move them."""
    read, written = copy.tables.read.get(graph_id, {}), copy.tables.written.get(graph_id, {})
    silent = [
        row
        for key, row in read.items()
        if row is not None and key.startswith(_SILENT) and row.columns.get("state", "pending") in _OPEN
    ]
    graph = read.get(GRAPH)
    first = sorted(silent, key=lambda row: row.key not in written)
    return tuple((row.key, row.etag) for row in ([graph] if graph is not None else []) + first)


def _columns(row: Row | None) -> Columns:
    return row.columns if row is not None else {}


def _differences(old: Columns, new: Columns, names: Sequence[str]) -> Mapping[str, tuple[Value | None, Value | None]]:
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


def _task_change(task_id: str, old: Columns, new: Columns, label: str) -> TaskChange | None:
    """None for a task of which nothing changes that a plan names."""
    columns = dict(_differences(old, new, _OF_A_TASK))
    was, to = (seen_state(each.get) if each else "" for each in (old, new))
    idle = [INACTIVE in texts(each, "held") for each in (old, new)]
    if idle[0] != idle[1] and old and new:
        columns["active"] = not idle[0], not idle[1]
    runs = integer(old, "run"), integer(new, "run")
    if was == to and runs[0] == runs[1] and not columns:
        return None
    return TaskChange(task_id, label, was, to, *runs, columns if old and new else {})


def _with_definition(change: TaskChange, texts_of: tuple[Value | None, Value | None] | None) -> TaskChange:
    if texts_of is None or not (change.state and change.to):
        return change
    return replace(change, columns={**change.columns, "task": texts_of})


def _digest(
    essence: Sequence[Any],
    graph: Mapping[str, Any],
    limits: Mapping[str, Any],
    tasks: Sequence[TaskChange],
    refused: Sequence[str],
) -> str:
    """SHA-256 of what is asked for and what comes of it, but for what only counts along."""
    said = {
        "asked": essence,
        "graph": {name: each for name, each in graph.items() if name not in ("tasks", "edges")},
        "limits": limits,
        "tasks": [
            [each.task_id, each.state, each.to, each.run, each.to_run, dict(sorted(each.columns.items()))]
            for each in tasks
        ],
        "refused": sorted(refused),
    }
    text = json.dumps(said, sort_keys=True, default=str, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
