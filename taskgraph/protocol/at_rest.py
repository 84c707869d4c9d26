"""What a graph may have that stands still, and what of its rows would go on by itself.

One list of what sweeps, handlers, workers and the notifier act upon unasked, as rules over rows. An archive is complete
if none applies, and nothing is put back to which one does: a file from elsewhere only does what a person asks for. Two
things may stand in honest archives and are let go: deadlines to come, and notices that were not delivered.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from taskgraph.model import limits
from taskgraph.model.columns import Columns, Value, integer, listed, seen_state, texts, time_of
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import GRAPH, reference_of, row_key, task_id_of, value
from taskgraph.model.placement import target_of
from taskgraph.model.row_schema import KEYS, ROWS
from taskgraph.model.states import GRAPH_ENDED, GraphState, TaskState
from taskgraph.protocol import notices
from taskgraph.protocol.conditions import SKIP
from taskgraph.protocol.definitions import gathered
from taskgraph.protocol.invariants.examine import examine
from taskgraph.protocol.invariants.findings import Severity
from taskgraph.protocol.invariants.snapshot import slim
from taskgraph.storage.tables import Insert, Row

STATES: Final = frozenset({*GRAPH_ENDED, GraphState.BLOCKED})
"""States in which a graph may stand still."""

_TARGET: Final = re.compile(limits.TARGET_PATTERN)
_COUNTS: Final = [each.name for each in ROWS["task"] if each.kind == "count"]
_UNDER_WAY: Final = frozenset({TaskState.PENDING, TaskState.RUNNING})
_OPEN: Final = frozenset({"staged", "accepted"})
_AHEAD: Final = timedelta(days=1)
"""By which clocks of two installations may differ; a graph of a later time was never made."""

_REASONS_MAX: Final = 5
_TARGETS_MAX: Final = 20


def moving(row: Row) -> str:
    """Why this row of a graph goes on by itself, in words; "" if it does not."""
    columns, state = row.columns, row.columns.get("state")
    kind = row.key.partition(":")[0]
    match kind:
        case "task" | "join" | "fork" if state in _UNDER_WAY:
            return f"{_name(row)} is {state}"
        case "task" if columns.get("due") == SKIP:
            return f"{_name(row)} is about to be skipped"
        case "task" | "join" | "fork" if columns.get("due"):
            return f"{_name(row)} is about to be run again"
        case "task" if state == TaskState.UNSCHEDULED and columns.get("cancel"):
            return f"{_name(row)} is about to be cancelled"
        case "request" if state in _OPEN:
            return f"the request {row.key.partition(':')[2]} is {state}"
        case "limit" if listed(columns, "inFlight"):
            return f"{_name(row)} counts runs that are in flight"
        case _ if row.key == GRAPH:
            return _graph_moving(columns)
    return ""


def _graph_moving(columns: Columns) -> str:
    if columns.get("state") not in STATES:
        return f"it is {columns.get('state')}"
    if columns.get("settling") is True or listed(columns, "pausing"):
        return "it is about to be paused or resumed"
    if columns.get("limiting") is True and columns.get("state") == GraphState.BLOCKED:
        return "its tasks are about to come under a limit"
    if columns.get("extending"):
        return f"the request {columns['extending']} is under way"
    if columns.get("stalledBecause") and columns.get("state") == GraphState.BLOCKED:
        return "it is marked as stalled"
    return ""


def _name(row: Row) -> str:
    label = row.columns.get("label")
    return f"{row.key.partition(':')[0]} “{label}”" if isinstance(label, str) and label.isprintable() else row.key


# --- a graph from a file -----------------------------------------------------------------------------------------


@value
class Standing:
    """A graph that a file holds, as it would be put back.

    refusals: why it is not, in sentences; the first few. tasks: state -> number. commands: target -> how many of them a
    rerun would run. notices: their channels, in words. let_go: what would go on by itself and is taken out, in
    sentences. undelivered: keys of channels with notices that were not delivered. created, ended: times of the graph.
    schedule: the one that it was submitted by.
    """

    refusals: Sequence[str] = ()
    tasks: Mapping[str, int] = field(default_factory=dict)
    groups: int = 0
    notices: Sequence[str] = ()
    commands: Mapping[str, int] = field(default_factory=dict)
    let_go: Sequence[str] = ()
    undelivered: frozenset[str] = frozenset()
    created: datetime | None = None
    ended: datetime | None = None
    name: str = ""
    schedule: str = ""


def settled(insert: Insert, undelivered: frozenset[str], *, blocked: bool) -> Insert:
    """The row as it is put back: without what would go on by itself and may be let go.

    undelivered: of the `Standing`. blocked: the state of the graph.
    """
    if insert.key in undelivered:
        words = "put back from an archive before it was delivered"
        return replace(insert, columns={**insert.columns, "state": notices.GIVEN_UP, "lastError": words})
    if not blocked or not _timed(insert):
        return insert
    kept = {name: value for name, value in insert.columns.items() if name not in ("deadline", "nextDeadline")}
    return replace(insert, columns=kept)


def _timed(row: Row | Insert) -> bool:
    waits = row.key.startswith("task:") and row.columns.get("state") == TaskState.UNSCHEDULED
    return (waits or row.key == GRAPH) and ("deadline" in row.columns or "nextDeadline" in row.columns)


class Examination:
    """Takes the rows of a file one by one, and judges them when all are there."""

    def __init__(self) -> None:
        self._graph_id = self._state = ""
        self._rows: dict[str, Row] = {}
        self._refusals: list[str] = []
        self._facts: list[tuple[int, int, Mapping[str, Any]]] = []
        self._timed = 0

    def begin(self, graph_id: str, state: str) -> None:
        self._graph_id, self._state = graph_id, state

    def add(self, insert: Insert) -> None:
        if len(self._refusals) < _REASONS_MAX:
            self._refusals += _strange(self._graph_id, insert)
        if insert.key.startswith("event:"):
            self._collect_facts(insert)
        blocked = self._state == GraphState.BLOCKED
        self._timed += blocked and _timed(insert)
        kept = settled(insert, frozenset(), blocked=blocked)
        row = Row(kept.key, "", kept.columns)
        if len(self._refusals) < _REASONS_MAX and (why := moving(row)):
            self._refusals.append(f"{why}, and would go on by itself")
        self._rows[row.key] = slim(row)

    def add_log(self, task_id: str, run: int) -> None:
        """A file of a run, whose task must be there and have been run so often."""
        row = self._rows.get(row_key(task_id))
        if row is not None and run > integer(row.columns, "run") and len(self._refusals) < _REASONS_MAX:
            self._refusals.append(f"{_name(row)} has a log of run {run}, and no such run")

    def _collect_facts(self, insert: Insert) -> None:
        sequence = integer(insert.columns, "sequence")
        for part, fact in enumerate(listed(insert.columns, "events")):
            if isinstance(fact, dict) and (notices.graph_keys(fact) or notices.task_keys(fact)):
                self._facts.append((sequence, part, fact))

    def judge(self, now: datetime) -> Standing:
        graph = self._rows.get(GRAPH, Row(GRAPH, "", {}))
        if len(self._refusals) < _REASONS_MAX:
            self._refusals += self._contradictions(graph, now)
        undelivered = frozenset(key for key, row in self._rows.items() if self._is_undelivered(key, row))
        tasks = [row for key, row in self._rows.items() if key.startswith("task:")]
        ended = self._state in GRAPH_ENDED
        commands = Counter(
            str(row.columns.get("target", "default"))
            for row in tasks
            if not ended and row.columns.get("state") not in (TaskState.COMPLETED, TaskState.SKIPPED)
        )
        let_go: list[str] = []
        if self._timed:
            let_go.append(f"deadlines, on rows: {self._timed:,}; `taskgraph edit` sets new ones")
        if undelivered:
            let_go.append(
                f"notices, of channels: {len(undelivered):,}; "
                f"`taskgraph notices {self._graph_id} --retry` delivers them"
            )
        metadata = _object(graph.columns.get("metadata"))
        ends = [time_of(graph.columns, name) for name in ("finished", "cancelled", "blocked")]
        return Standing(
            refusals=tuple(self._refusals[:_REASONS_MAX]),
            tasks=dict(sorted(Counter(seen_state(row.columns.get) for row in tasks).items())),
            groups=sum(key.startswith("group:") and key.count(":") == 1 for key in self._rows),
            notices=tuple(_channel_words(row) for key, row in self._rows.items() if key.startswith(notices.PREFIX)),
            commands=dict(commands.most_common(_TARGETS_MAX)),
            let_go=tuple(let_go),
            undelivered=undelivered,
            created=time_of(graph.columns, "created"),
            ended=next((each for each in ends if each is not None), None),
            name=str(metadata.get("name", "")),
            schedule=str(graph.columns.get("schedule", "")),
        )

    def _contradictions(self, graph: Row, now: datetime) -> Iterable[str]:
        if graph.columns.get("state") != self._state or self._state not in STATES:
            yield f"it is {graph.columns.get('state')}, and the file says {self._state}"
        created = time_of(graph.columns, "created")
        if created is None or created > now + _AHEAD:
            yield "it was never made, or will be in the future"
        for each in examine(self._graph_id, self._rows, now):
            if each.severity is not Severity.NOTE:
                yield f"{each.label or each.key}: {each.text}"

    def _is_undelivered(self, key: str, row: Row) -> bool:
        """Whether the journal holds a fact of which the channel should have got a notice."""
        if not key.startswith(notices.PREFIX) or row.columns.get("state") != notices.OPEN:
            return False
        own, on = key.removeprefix(notices.PREFIX), texts(row.columns, "on")
        sequence, part = integer(row.columns, "sequence"), integer(row.columns, "part")
        for number, place, fact in self._facts:
            if number <= sequence or (number == sequence + 1 and place < part):
                continue
            task = self._rows.get(row_key(str(fact["task"]))) if "task" in fact else None
            if notices.wants(fact, own, on, task.columns if task is not None else None):
                return True
        return False


def _strange(graph_id: str, insert: Insert) -> Iterable[str]:
    """Why this is no row that taskgraph writes for this graph."""
    key, columns = insert.key, insert.columns
    if not KEYS.fullmatch(key):
        yield f"“{key}” is no row of a graph"
        return
    for name in _COUNTS:
        value = columns.get(name, 0)
        if isinstance(value, int) and not 0 <= value <= limits.RUN_NUMBER_MAX and key.startswith("task:"):
            yield f"{key}: {name} is {value}"
    if key.startswith("event:") and columns.get("sequence") != int(key[6:]):
        yield f"{key}: it is fact {columns.get('sequence')!r} of the journal"
    if key.startswith("task:"):
        label, target = columns.get("label"), columns.get("target")
        if not isinstance(label, str) or reference_of(key) != task_id_of(graph_id, label):
            yield f"{key}: its id is not that of its label"
        elif len(label) > limits.LABEL_CHARS_MAX or not label.isprintable():
            yield f"{key}: its label is none"
        if not isinstance(target, str) or not _TARGET.fullmatch(target):
            yield f"{key}: it names no target"
        definition = gathered(columns, "task")
        if definition and (found := _object(definition)) and target_of(found) != target:
            yield f"{key}: its definition names another target"
    if key.startswith(notices.PREFIX):
        try:
            named = notices.PREFIX + notices.channel_of(_object(columns.get("channel"))).key
        except IntegrityError as error:
            yield f"{key}: {error}"
        else:
            if named != key:
                yield f"{key}: it is the row of another channel"
        for name in ("sequence", "part"):
            if (value := integer(columns, name)) < 0:  # a place that no journal has, from which the notifier goes on
                yield f"{key}: its {name} is {value}"


def _channel_words(row: Row) -> str:
    """For people. A file with a channel that cannot be read is refused."""
    try:
        channel = notices.channel_of(_object(row.columns.get("channel")))
    except IntegrityError:
        return "a channel that cannot be read"
    return f"{channel.display} ({row.columns.get('state')})"


def _object(value: Value | None) -> dict[str, Any]:
    try:
        found = json.loads(value) if isinstance(value, str) and value else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
