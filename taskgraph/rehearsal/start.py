"""What a rehearsal begins with: copies of rows, of a document that is submitted in memory, or of a live graph.

The copies lack what no rehearsal needs: what tasks do, which the drawn seconds stand for, and all but the end of the
journal. What is running when a live graph is copied is handed back there, and goes on for the rest of its time.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.references import expanded_group
from taskgraph.engine.commit import Records
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.submission import extend, submit
from taskgraph.model.budget import BUDGET
from taskgraph.model.columns import Columns, integer, texts, time_of
from taskgraph.model.errors import InvalidInput
from taskgraph.model.foreign_times import asked_after
from taskgraph.model.ids import GRAPH, event_key, reference_of
from taskgraph.model.messages import AddTasks, SetLimit
from taskgraph.model.names import LIVE
from taskgraph.model.states import TASK_UNRESOLVED
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.definitions import gathered
from taskgraph.protocol.runs import HandBack
from taskgraph.queries.journal import find_end
from taskgraph.queries.targets import GATES
from taskgraph.rehearsal.virtual_time import LoopClock, VirtualLoop, run_in
from taskgraph.storage.memory import MemoryStore, MemoryTables
from taskgraph.storage.metered import Meter
from taskgraph.storage.tables import Range, Row, Tables, query_all

TABLE: Final = "rehearsal"
_DOES: Final = frozenset({"payload", "executor"})  # keys of a definition that say what a task does
_NO_BODY: Final = ("definition:", "written", "name-mapping:")


@dataclass(frozen=True, slots=True)
class Start:
    """Rows by key, as every rehearsal finds them at `now`.

    definitions: label -> what the task does. gates: the paused and limited targets. running: taskId -> the number of
    its next run, and for how many seconds that has run already.
    """

    graph_id: str
    now: datetime
    rows: Mapping[str, Row]
    definitions: Mapping[str, Mapping[str, Any]]
    gates: Mapping[str, Row] = field(default_factory=dict)
    running: Mapping[str, tuple[int, float]] = field(default_factory=dict)

    def store(self, clock: LoopClock) -> MemoryStore:
        """A store that holds them."""
        store = MemoryStore(clock)
        tables = store.tables(TABLE)
        tables.partitions[self.graph_id] = dict(self.rows)
        tables.partitions[GATES] = dict(self.gates)
        tables.partitions[LIVE] = {self.graph_id: Row(self.graph_id, "live", {"since": self.now})}
        return store


def start_of_document(document: GraphDocument, now: datetime, graph_id: str) -> Start:
    """A graph that is submitted now."""
    definitions = {label: node.task for label, node in document.tasks.items()}
    tasks = {label: replace(node, task=_kept(node.task), notify={}) for label, node in document.tasks.items()}
    bare = replace(document, tasks=tasks, notify={}, written={}, budget=None)
    start = Start(graph_id, now, {}, definitions)

    async def write(handlers: Handlers) -> None:
        await submit(handlers, graph_id, bare)

    return _after(start, write)


async def start_of_graph(tables: Tables, graph_id: str, now: datetime) -> Start:
    """A graph as it stands in a store: it is read once, but for its journal."""
    rows: dict[str, Row] = {}
    longer: dict[str, Row] = {}
    kept = [Range("", "event:"), Range("event;", "")]
    for row in [row for some in kept for row in await query_all(tables, graph_id, some)]:
        if row.key.startswith("definition:"):
            longer[row.key.removeprefix("definition:")] = row
        elif not row.key.startswith(_NO_BODY):
            rows[row.key] = row
    if GRAPH in rows:  # its budget holds it when it is spent, and not while that is rehearsed
        graph = rows[GRAPH]
        rows[GRAPH] = replace(graph, columns={name: each for name, each in graph.columns.items() if name != BUDGET})
    free, *_ = await find_end(tables, graph_id, 1, 0, 0)
    for row in await query_all(tables, graph_id, Range(event_key(free - 1), "event;")):
        rows[row.key] = row
    gates = {row.key: row for row in await query_all(tables, GATES, Range())}
    definitions: dict[str, Mapping[str, Any]] = {}
    for key, row in rows.items():
        if key.startswith("task:"):
            found = longer.get(reference_of(key))
            text = str(row.columns.get("task", "")) or (gathered(found.columns, "task") if found else "{}")
            definition = json.loads(text)
            definitions[str(row.columns.get("label", ""))] = definition
            rows[key] = replace(row, columns={**row.columns, "task": json.dumps(_kept(definition))})
    return Start(graph_id, now, rows, definitions, gates)


def with_results(start: Start, past: Mapping[str, GraphDocument]) -> Start:
    """The same, with the tasks that results are likely to come to: those that they came to before.

    past: group -> the tasks that came of a result in it, as an extension of the graph of then.
    """
    for group in open_expansions(start):
        if group in past:
            start = _extended(start, past[group])
    return start


def open_expansions(start: Start) -> list[str]:
    """Groups that tasks of results are still to be put into."""
    tasks = [row.columns for key, row in start.rows.items() if key.startswith("task:")]
    found = [
        group
        for columns in tasks
        if columns.get("state") in TASK_UNRESOLVED
        and (group := expanded_group(start.definitions[str(columns.get("label", ""))]))
    ]
    filled = {group for group in found if any(_is_filled(columns, group) for columns in tasks)}
    return [group for group in found if group not in filled]


def _is_filled(columns: Columns, group: str) -> bool:
    return bool(columns.get("request")) and group in texts(columns, "groups")


def _extended(start: Start, document: GraphDocument) -> Start:
    tasks = {label: replace(node, task=_kept(node.task), notify={}) for label, node in document.tasks.items()}

    async def add(handlers: Handlers) -> None:
        asked = await extend(handlers, start.graph_id, replace(document, tasks=tasks))
        await handlers.handle(start.graph_id, [AddTasks(start.graph_id, asked.request)])

    made = _after(start, add)
    there = {str(row.columns.get("label")) for key, row in made.rows.items() if key.startswith("task:")}
    own = {label: node.task for label, node in document.tasks.items() if label in there}
    return replace(made, definitions={**start.definitions, **own})


def handed_back(start: Start) -> Start:
    """The same, with what runs there ready to go on."""
    items: list[HandBack] = []
    running: dict[str, tuple[int, float]] = {}
    for key, row in start.rows.items():
        if key.startswith("task:") and row.columns.get("state") == "running":
            task_id, run, columns = reference_of(key), integer(row.columns, "run"), row.columns
            items.append(HandBack(task_id, run, str(columns.get("claim", "")), "rehearsed"))
            began = time_of(columns, "started")
            running[task_id] = run + 1, max(0.0, (start.now - began).total_seconds()) if began is not None else 0.0

    async def give_back(handlers: Handlers) -> None:
        for answer in await handlers.transition(start.graph_id, items):
            if answer.error is not None:
                raise answer.error

    return replace(_after(start, give_back), running=running) if items else start


def limited(start: Start, most: int, group: str = "") -> Start:
    """The same, with so many tasks of the graph, or of a group, in flight at most. Raises InvalidInput."""

    async def limit(handlers: Handlers) -> None:
        asked = asked_after(handlers.clock.now(), (), 0.0)
        (handled,) = await handlers.handle(start.graph_id, [SetLimit(start.graph_id, most, asked, group)])
        refused = [each.reason for each in handled.answers if each.outcome is not Outcome.APPLIED]
        if handled.error is not None or refused:
            raise InvalidInput(f"the limit {most} of {group or 'the graph'} cannot be: {handled.error or refused[0]}")

    return _after(start, limit)


def _after(start: Start, act: Any) -> Start:
    """The rows after an act, which takes no time."""
    loop = VirtualLoop()
    clock = LoopClock(loop, random.Random(0), start=start.now)
    store = start.store(clock)
    tables = store.tables(TABLE)
    handlers = handlers_over(tables, store, clock)
    run_in(loop, act(handlers))
    rows = tables.partitions.get(start.graph_id, {})
    events = [key for key in rows if key.startswith("event:")]
    left = [row for key, row in rows.items() if not key.startswith("event:") or key == max(events)]
    # Tags of these rows are like none that a rehearsal gives out.
    return replace(
        start,
        rows={row.key: replace(row, etag=f"start-{row.etag}") for row in left},
        gates=tables.partitions.get(GATES, {}),
    )


def handlers_over(
    tables: Tables, store: MemoryStore, clock: LoopClock, queues: Any = None, meter: Meter | None = None
) -> Handlers:
    handlers = Handlers(Records(tables, clock, meter), queues or store.queues(), clock)
    handlers.dispatcher.event_queues.only_first = True
    return handlers


def _kept(definition: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in definition.items() if name not in _DOES}


def tasks_of(start: Start) -> dict[str, Columns]:
    """TaskId -> columns."""
    return {reference_of(key): row.columns for key, row in start.rows.items() if key.startswith("task:")}


def graph_state(tables: MemoryTables, graph_id: str) -> str:
    row = tables.partitions.get(graph_id, {}).get(GRAPH)
    return str(row.columns.get("state", "")) if row is not None else ""
