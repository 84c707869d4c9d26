"""What is wrong with the rows of a graph: each finding in words, with the repair that is certain, or why none is.

What this room is for: the invariants of a graph's rows as plain functions over rows and a time. Edges name each other
from both sides; `requiresLeft` holds what has not completed, and nothing else; a task is ready when nothing is left;
counts count; the journal has no gap. Steps that are legal but unheard (an ended lease, a relay that stands ready) are
findings too, `due` ones, for the sweep. A repair is proposed only where the rows leave no doubt; it names the etags
that it rests on. It never reads a store, never writes, and never judges rows of a newer schema.

Every finding lists the keys of all rows that it rests on: rows of a scan were read one after the other, so a finding
counts only when those rows, read again without a change in between, still say it.
"""

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeGuard

from taskgraph.model import facts, limits
from taskgraph.model.columns import Value, is_held, texts
from taskgraph.model.foreign_times import Standing, is_ahead
from taskgraph.model.ids import (
    GRAPH,
    group_key,
    group_of,
    group_owner,
    holders_in_words,
    ids_text,
    is_piece,
    is_relay,
    is_shared,
    limit_key,
    owner_of,
    reference_of,
    row_key,
    task_id_of,
    told_as,
    typed,
)
from taskgraph.model.json_strict import compact_json
from taskgraph.model.placement import target_of
from taskgraph.model.states import (
    GRAPH_ENDED,
    GRAPH_GONE,
    INACTIVE,
    PAUSED,
    TASK_UNRESOLVED,
    FailurePolicy,
    GraphState,
    TaskState,
    held_group,
)
from taskgraph.model.timing import Retry, clock_text, not_yet_seconds, overdue, ready_since, retry_of, temporary_used
from taskgraph.protocol.cancel import CancelTask, PublishCancelled
from taskgraph.protocol.concurrency import Limit, is_over, limit_of, named_in, scopes_of
from taskgraph.protocol.conditions import SKIP, meets
from taskgraph.protocol.context import CANCELLED
from taskgraph.protocol.decide import Completed, Failed, Fire, Item, LeaseLost, Overdue, Skip, event_key
from taskgraph.protocol.definitions import SCHEMA, gathered
from taskgraph.protocol.leases import SetRight, amended, lease
from taskgraph.protocol.notices import DONE, GIVEN_UP, OPEN
from taskgraph.protocol.propagation import DEFERRED
from taskgraph.protocol.rows import SCHEMA_MAX, Draft
from taskgraph.protocol.set_limit import Recount
from taskgraph.storage.tables import Change, Insert, Merge, Row

GAP_ROWS_MAX: Final = 90
"""Event rows missing in one place that are put back as empty ones, in one commit."""

NAMED_MAX: Final = 5
"""Labels named in one sentence; the rest is counted."""

_FAILED: Final = frozenset({TaskState.FAILED, TaskState.EXCEPTION})
_LISTS: Final = ("requires", "requiresLeft", "dependents")


class Severity(StrEnum):
    """How much a finding matters."""

    WRONG = "wrong"  # an invariant does not hold
    DUE = "due"  # a legal step that nobody has taken yet: the sweep does
    NOTE = "note"  # worth knowing


@dataclass(frozen=True, slots=True)
class Patch:
    """Columns to set, in one commit that holds only if none of the rows below `etags` has changed.

    columns: row key -> columns. etags: of these rows, and of rows that the repair rests on. facts: for the journal.
    dispatch: (taskId, run, target) of tasks that it makes ready. revive: the graph needs sweeping again.
    """

    columns: Mapping[str, Mapping[str, Value]]
    etags: Mapping[str, str]
    inserts: tuple[Insert, ...] = ()
    facts: tuple[Mapping[str, Any], ...] = ()
    dispatch: tuple[tuple[str, int, str], ...] = ()
    revive: bool = False

    def changes(self, operation: str) -> list[Change]:
        """What to commit. A row that is only rested on is written too: that is what its etag is compared for."""
        changes: list[Change] = [
            Merge(key, etag, {**self.columns.get(key, {}), "operation": operation}) for key, etag in self.etags.items()
        ]
        changes.extend(Insert(row.key, {**row.columns, "operation": operation}) for row in self.inserts)
        return changes


@dataclass(frozen=True, slots=True)
class Retell:
    """Items that a handler would be given: deciding them again does what was left undone."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Resend:
    """The message of an extension, that a handler may bring it in."""

    request: str


@dataclass(frozen=True, slots=True)
class Reindex:
    """The graph's place in an index outside its partition: of live graphs, or (listed) in the list of all."""

    listed: bool


@dataclass(frozen=True, slots=True)
class SetTime:
    """A time outside of all graphs, set anew: of a row, or, without a partition, of the messages of a queue."""

    partition: str
    key: str
    etag: str
    columns: Mapping[str, Value]


Repair = Patch | Retell | Resend | Reindex | SetTime


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    code: a short stable word. key: the row. label: of the task, or what the row is. detail: tells findings of one code
    and row apart. text: what is wrong. effect: why it matters. remedy: what to do. keys: all rows that it rests on.
    repair: what mends it for certain, or None; refusal: why there is none. whole: it rests on a reading of all rows
    during which the graph row did not change.
    """

    code: str
    key: str
    label: str
    severity: Severity
    text: str
    effect: str
    remedy: str
    keys: frozenset[str] = frozenset()
    repair: Repair | None = None
    refusal: str = ""
    detail: str = ""
    whole: bool = False

    @property
    def repairable(self) -> bool:
        """Whether it can be mended for certain."""
        return self.repair is not None

    @property
    def identity(self) -> tuple[str, str, str]:
        """The same for the same finding in another reading."""
        return self.code, self.key, self.detail


@dataclass(frozen=True, slots=True)
class Cause:
    """One line of the answer to "why does the graph not move?"."""

    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class _Node:
    """A row with edges. A list is None where its column cannot be read."""

    reference: str
    row: Row
    state: str
    requires: list[str] | None
    left: list[str] | None
    dependents: list[str] | None

    resolved: bool
    """Whether its dependents count it off: it completed, or ended otherwise where failures are told to them."""

    @property
    def cancelled(self) -> bool:
        """Whether it was resolved by being cancelled, perhaps before its time."""
        if self.state != TaskState.EXCEPTION:
            return False
        resolution = _json(self.row.columns.get("resolution", ""))
        return isinstance(resolution, dict) and resolution.get("cancelled") is True

    @property
    def ended_waiting(self) -> bool:
        """Whether it was cancelled and never began: then its condition was never asked."""
        return self.cancelled and not self.row.columns.get("run") and "started" not in self.row.columns


# --- columns ---------------------------------------------------------------------------------------------------

_TASK: Final = {
    "label": "text",
    "state": "task state",
    "target": "text",
    "run": "number",
    "rerunsAllowed": "number",
    "rerunsLeft": "number",
    "retriesLeft": "number",
    "manualReruns": "number?",
    "handBacks": "number?",
    "created": "time",
    "pendingSince": "time?",
    "started": "time?",
    "leaseUntil": "time?",
    "leaseSeconds": "seconds?",
    "leaseDoubts": "number?",
    "resolved": "time?",
    "deadline": "time?",
    "notBefore": "time?",
    "pauseSeconds": "pause?",
    "pendingTimeout": "seconds?",
    "priority": "text?",
    "retry": "retry policy?",
    "temporaryFailures": "number?",
    "temporaryForgiven": "number?",
    **dict.fromkeys(_LISTS, "references"),
    "cancel": "text?",
    "cancelCode": "text?",
    "held": "references?",
    "heldAsked": "object?",
    "holds": "number?",
    "limits": "references?",
    "limited": "text?",
    "resolution": "object?",
    "runs": "list?",
    "task": "object?",
    "groups": "list?",
    "when": "text?",
    "optional": "references?",
    "failedBy": "object?",
    "skippedBy": "object?",
    "due": "text?",
    "edited": "number?",
}
_RELAY: Final = {
    "state": "task state",
    **dict.fromkeys(_LISTS, "references"),
    "failedBy": "object?",
    "skippedBy": "object?",
}
_GRAPH: Final = {
    "state": "graph state",
    "tasks": "number",
    "edges": "number",
    "failedTasks": "number",
    "revision": "number",
    "created": "time",
    "started": "time?",
    "finished": "time?",
    "requires": "references",
    "requiresLeft": "references",
    "nameMapping": "object?",
    "metadata": "object?",
    "tags": "object?",
    "params": "object?",
    "digest": "text",
    "extending": "text?",
    "deferred": "references?",
    "failurePolicy": "text?",
    "skippedTasks": "number?",
    "reason": "text?",
    "code": "text?",
    "writers": "number?",
    "cutOff": "text?",
    "cancelled": "time?",
    "deadline": "time?",
    "nextDeadline": "time?",
    "waitsAgain": "number?",
    "held": "references?",
    "heldAsked": "object?",
    "holds": "number?",
    "pausing": "references?",
    "pausedReason": "text?",
    "limits": "references?",
    "stalled": "time?",
    "stalledBecause": "text?",
    "stalledAt": "number?",
    "priority": "text?",
    "deletedIn": "number?",
}
_GROUP: Final = {"label": "text", "tasks": "number", "members": "text", "groups": "list?", "join": "text?"}
_LIMIT: Final = {"max": "number", "inFlight": "references", "moved": "time", "label": "text?", "asked": "text?"}
_EVENT: Final = {"sequence": "number", "time": "time", "events": "list"}
_REQUEST: Final = {
    "state": "request state",
    "kind": "text?",
    "digest": "text",
    "staged": "time?",
    "cursor": "number?",
    "revision": "number?",
    "told": "object?",
}
_NOTICE: Final = {
    "state": "notice state",
    "channel": "object",
    "on": "list",
    "sequence": "number",
    "part": "number",
    "delivered": "number",
    "failures": "number",
    "nextTry": "time?",
    "leaseUntil": "time?",
}
_CHANNEL_TIMES: Final = {
    "nextTry": limits.NOTICE_PAUSE_SECONDS_MAX * 1.25,
    "leaseUntil": limits.NOTICE_LEASE_SECONDS,
}
"""The longest that they can be from now."""
_WORDS: Final = {
    "notice state": frozenset({OPEN, DONE, GIVEN_UP}),
    "task state": frozenset(map(str, TaskState)),
    "graph state": frozenset(map(str, GraphState)),
    "request state": frozenset({"staged", "accepted", "done", "refused"}),
}
_ARTICLES: Final = {
    "text": "a text",
    "number": "a whole number",
    "time": "a time",
    "seconds": "a number of seconds",
    "pause": "a number of seconds, or 0",
    "retry policy": "a policy for temporary failures",
    "references": "a JSON list of references",
    "object": "a JSON object",
    "list": "a JSON list",
    "task state": "a state of a task",
    "graph state": "a state of a graph",
    "request state": "a state of a request",
    "notice state": "a state of a channel",
}


def _is_seconds(value: Value) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _json(text: Value) -> object:
    if text == "[]":
        return []  # most lists of most rows: a parser would take longer to begin
    try:
        return json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _fits(value: Value, kind: str) -> bool:
    match kind:
        case "text":
            return isinstance(value, str)
        case "number":
            return isinstance(value, int) and not isinstance(value, bool)
        case "time":
            return isinstance(value, datetime)
        case "seconds":
            return _is_seconds(value) and value > 0
        case "pause":
            return _is_seconds(value) and value >= 0
        case "retry policy":
            return _policy(value) is not None
        case "references":
            found = _json(value)
            return isinstance(found, list) and all(isinstance(each, str) for each in found)
        case "object":
            return value == "" or isinstance(_json(value), dict)
        case "list":
            return value == "" or isinstance(_json(value), list)
        case _:
            return value in _WORDS[kind]


def _policy(text: Value) -> Retry | None:
    try:
        return retry_of(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _kind_of(key: str) -> Mapping[str, str]:
    """What the columns of a row should hold, by its key."""
    if key == GRAPH:
        return _GRAPH
    kind, _, rest = key.partition(":")
    match kind:
        case "task":
            return _TASK
        case "join" | "fork":
            return _RELAY
        case "event":
            return _EVENT
        case "group" if ":" not in rest:
            return _GROUP
        case "request" if ":" not in rest:
            return _REQUEST
        case "notice":
            return _NOTICE
        case "limit":
            return _LIMIT
        case _:
            return {}


def slim(row: Row) -> Row:
    """The row without the long texts that no rule looks at, once it is known that they can be read.

    Of a definition its target and host are kept. The etag stays, so what is found in it can be held against the store.
    """
    columns = dict(row.columns)
    if row.key.startswith("definition:"):
        text = gathered(columns, "task")
        columns = {name: value for name, value in columns.items() if not name.startswith("task")}
        columns["task"] = text
    elif row.key.startswith("request:") and row.key.count(":") > 1:
        return Row(row.key, row.etag, {"schema": columns.get("schema", SCHEMA)})
    if row.key.startswith(("task:", "definition:")):
        found = _json(columns.get("task", ""))
        if isinstance(found, dict):
            columns["task"] = json.dumps({name: found[name] for name in ("target", "host") if name in found})
    for name in ("runs", "events") if row.key != GRAPH else ():
        if name in columns and isinstance(_json(columns[name]), list):
            columns[name] = "[]"
    return Row(row.key, row.etag, columns)


def examine(graph_id: str, rows: Mapping[str, Row], now: datetime, *, steady: bool = True) -> list[Finding]:
    """Everything that is not as it should be, the wrong before the due.

    rows: the whole partition, by key (slim or not). steady: the graph row did not change while they were read, so
    counts over all rows mean something; without it no finding is `whole`, and no repair rests on counts.
    """
    newer = [row for row in rows.values() if _is_newer(row)]
    if newer:
        schema = newer[0].columns["schema"]
        return [
            Finding(
                "newer-schema",
                newer[0].key,
                "",
                Severity.WRONG,
                f"{len(newer):,} of the rows have a newer schema, such as {schema}; this version knows {SCHEMA_MAX}",
                "a program that does not know a schema cannot tell right from wrong in it",
                "use a newer version of taskgraph",
                frozenset({newer[0].key}),
                refusal="the rows belong to a newer version",
            )
        ]
    examination = _Examination(graph_id, rows, now, steady)
    found = list(examination.findings())
    order = list(Severity)
    return sorted(found, key=lambda each: (order.index(each.severity), each.code, each.key))


def _is_newer(row: Row) -> bool:
    schema = row.columns.get("schema", SCHEMA)
    return isinstance(schema, int) and schema > SCHEMA_MAX


class _Examination:
    """One look at all rows."""

    def __init__(self, graph_id: str, rows: Mapping[str, Row], now: datetime, steady: bool) -> None:
        self.graph_id = graph_id
        self.rows = rows
        self.now = now
        self.nodes: dict[str, _Node] = {}
        # A graph may have millions of edges, and each is named at both ends: every reference is one text, whoever names
        # it, and what is kept for an edge is small.
        self._tellers: dict[str, dict[str, tuple[_Node, ...]]] = {}
        """Who is told -> under which name -> the rows that tell it."""
        texts: dict[str, str] = {}
        self.forks: dict[str, list[str]] = {}
        graph_row = rows.get(GRAPH)
        self.policy = graph_row.columns.get("failurePolicy", FailurePolicy.BLOCK) if graph_row is not None else ""
        self.goes_on = self.policy == FailurePolicy.CONTINUE
        """Whether failures are told to dependents."""
        self.ended = "ended" if self.goes_on else "completed"
        self._heard: dict[str, tuple[bool, bool] | None] = {}
        self.unreadable: set[str] = set()
        """Tasks and joins of which not everything can be read that they tell."""
        for key, row in rows.items():
            if key == GRAPH or key.startswith(("task:", "join:", "fork:")):
                node = _node(row, texts, goes_on=self.goes_on)
                self.nodes[node.reference] = node
                if key.startswith("fork:"):
                    self.forks.setdefault(told_as(key), []).append(key)
                # A fork that is named and not there may be younger than the scan: nothing is said of what it tells.
                if node.dependents is None or any(
                    each.startswith("fork:") and each not in rows for each in node.dependents
                ):
                    self.unreadable.add(told_as(node.reference))
                name, alone = told_as(node.reference), (node,)
                name = texts.setdefault(name, name)
                for told in node.dependents or ():
                    tellers = self._tellers.setdefault(told, {})
                    tellers[name] = tellers[name] + alone if name in tellers else alone
        self.graph = self.nodes.get(GRAPH)
        self.tasks = [node for reference, node in self.nodes.items() if reference != GRAPH and not is_relay(reference)]
        # The graph row names the extension that is under way, and every finding rests on that row. Heads of requests
        # only add to what is excused.
        self.opened = {
            key.removeprefix("request:")
            for key, row in rows.items()
            if key.startswith("request:") and row.columns.get("state") == "accepted"
        }
        if self.graph is not None and (extending := self.graph.row.columns.get("extending")):
            self.opened.add(str(extending))
        self.steady = steady and not self.opened
        self.half_named: set[str] = set()
        """Tasks that are named as required, or name a dependent, without the other end saying so."""
        self.edges = 0
        if self.steady:
            self._add_up_edges()

    def _add_up_edges(self) -> None:
        """Edges (task or shared join, what it requires) as both ends name them; pieces and forks are looked through."""
        below: dict[str, set[str]] = {}
        above: dict[str, set[str]] = {}
        for node in self.nodes.values():
            owner = owner_of(node.reference)
            shared = is_shared(node.reference)
            if owner != GRAPH and not node.reference.startswith("fork:"):
                below.setdefault(owner, set()).update(each for each in node.requires or () if not is_piece(each))
            if owner != GRAPH and (shared or not node.reference.startswith("join:")):
                for each in node.dependents or ():
                    if not each.startswith("fork:") and (told := owner_of(each)) != GRAPH:
                        above.setdefault(told, set()).add(owner)
        for owner in below.keys() | above.keys():
            requires, tells = below.pop(owner, set()), above.pop(owner, set())
            self.edges += len(requires | tells)
            self.half_named |= requires ^ tells

    @property
    def certain_edges(self) -> bool:
        """Whether the edges that at least one end names are, by their number, all that were ever submitted."""
        return self.steady and self.graph is not None and self.graph.row.columns.get("edges") == self.edges

    # --- helpers

    def label(self, reference: str) -> str:
        """What a person calls this row."""
        if reference == GRAPH:
            return "the graph"
        if is_relay(reference):
            kind, group = reference.partition(":")[0], group_of(reference)
            if not group:
                return f"{kind} of {self.label(owner_of(reference))}"
            row = self.rows.get(group_key(group))
            return f"{kind} of group “{row.columns.get('label', group) if row else group}”"
        node = self.nodes.get(reference)
        return f"“{node.row.columns.get('label', reference)}”" if node else reference

    def labels(self, references: Iterable[str]) -> str:
        """Some of them by name, the rest by number."""
        every = sorted(self.label(each) for each in references)
        shown = ", ".join(every[:NAMED_MAX])
        return shown if len(every) <= NAMED_MAX else f"{shown} and {len(every) - NAMED_MAX:,} more"

    def find(
        self,
        code: str,
        key: str,
        text: str,
        effect: str,
        *,
        keys: Iterable[str] = (),
        repair: Repair | None = None,
        refusal: str = "",
        remedy: str = "",
        severity: Severity = Severity.WRONG,
        detail: str = "",
        whole: bool = False,
    ) -> Finding:
        """A finding; without a repair it says why there is none."""
        if repair is not None:
            refusal = ""
            remedy = remedy or f"taskgraph doctor {self.graph_id} --repair"
        reference = reference_of(key)
        return Finding(
            code,
            key,
            self.label(reference).strip("“”") if reference in self.nodes else "",
            severity,
            text,
            effect,
            remedy or "submit the graph again under another id",
            frozenset({GRAPH, key, *keys}),
            repair,
            refusal,
            detail,
            whole,
        )

    def patch(self, columns: Mapping[str, Mapping[str, Value]], hold: Iterable[str] = (), **more: Any) -> Patch:
        """A patch of rows that exist, under the etags that were read."""
        keys = dict.fromkeys([*columns, *hold])
        return Patch(columns, {key: self.rows[key].etag for key in keys}, **more)

    def is_open(self, reference: str) -> bool:
        """Whether this row belongs to an extension that is being brought in: its edges are not complete yet."""
        if not self.opened or reference == GRAPH:
            return False
        if is_relay(reference):
            stamp = reference.split(":", 2)[2]
            if any(stamp.startswith(request) for request in self.opened):
                return True
            owner = owner_of(reference)
            return owner not in (GRAPH, reference) and self.is_open(owner)
        node = self.nodes.get(reference)
        return node is None or node.row.columns.get("request") in self.opened

    def done(self, told: str, name: str) -> bool | None:
        """Whether a requirement of `told` is fulfilled: somebody who tells it has. None if nobody tells it."""
        tellers = self.tellers(told, name)
        return any(each.resolved for each in tellers) if tellers else None

    def tellers(self, told: str, name: str) -> tuple[_Node, ...]:
        """The rows that tell `told` of this requirement."""
        return self._tellers.get(told, {}).get(name, ())

    def teller_keys(self, told: str, names: Iterable[str]) -> list[str]:
        """Keys of all rows on which it rests who tells `told` of these."""
        keys: dict[str, None] = {}
        for name in names:
            keys[row_key(name)] = None
            keys.update(dict.fromkeys(self.forks.get(name, ())))
            keys.update(dict.fromkeys(each.row.key for each in self.tellers(told, name)))
        return list(keys)

    # --- the rules

    def findings(self) -> Iterator[Finding]:
        """All of them, in no order."""
        if self.graph is not None and self.graph.state in GRAPH_GONE:
            yield from self._deletion(self.graph)
            return
        if self.graph is not None and self.graph.state == GraphState.RESTORING:
            return  # half of it is not back yet
        for row in self.rows.values():
            yield from self._columns(row)
        if self.graph is None:
            yield self.find(
                "missing-row",
                GRAPH,
                "the graph row is gone",
                "no handler can do anything for this graph",
                refusal="its state and counts are written nowhere else",
            )
            return
        state = self.graph.state
        yield from self._journal()
        yield from self._channels()
        if state == GraphState.SUBMITTING or (
            state == GraphState.CANCELLED and "started" not in self.graph.row.columns
        ):
            return  # half of it may never have been written
        if state in (GraphState.CANCELLING, GraphState.CANCELLED):
            yield from self._cancelled()
            return
        yield from self._requests()
        for node in self.nodes.values():
            yield from self._edges(node)
            yield from self._degree(node)
            if not self.is_open(node.reference):
                yield from self._progress(node)
        for node in self.tasks:
            yield from self._task(node)
            if self.goes_on and not self.is_open(node.reference):
                yield from self._condition(node)
        for reference, node in self.nodes.items():
            if is_relay(reference) and node.state == TaskState.PENDING and node.left == []:
                yield self.find(
                    "relay-ready",
                    node.row.key,
                    f"the {self.label(reference)} stands ready to pass on what it has been told",
                    "what waits behind it is told once somebody fires it",
                    severity=Severity.DUE,
                    repair=Retell((Fire(reference),)),
                )
        yield from self._groups()
        yield from self._limits()
        yield from self._finished()
        if self.steady:
            yield from self._counts()

    def _channels(self) -> Iterator[Finding]:
        """Times on the rows of channels that no clock which agrees with ours can have written by now."""
        for key, row in self.rows.items():
            if not key.startswith("notice:") or row.columns.get("state") != OPEN:
                continue
            for name, longest in _CHANNEL_TIMES.items():
                said = row.columns.get(name)
                if isinstance(said, datetime) and is_ahead(said, self.now, longest):
                    yield self.find(
                        "clock-off",
                        key,
                        f"it says {name} {said}, and the latest that it can be is {longest:g} s from now",
                        "it is taken for over",
                        detail=name,
                        severity=Severity.DUE,
                        repair=self.patch({key: {name: self.now}}),
                        remedy=f"put the clocks of the machines right; taskgraph doctor {self.graph_id} --repair",
                    )

    def _cancelled(self) -> Iterator[Finding]:
        """A graph that is being cancelled, or is: nobody is told of anything any more, and every task is resolved.

        Of its edges only those are complete that no extension was cut off from.
        """
        graph = self.nodes[GRAPH]
        for node in self.tasks:
            yield from self._task(node)
        if self.steady and not graph.row.columns.get("cutOff"):
            yield from self._counts()
        left = [node for node in self.tasks if node.state in TASK_UNRESOLVED]
        reason, code = str(graph.row.columns.get("reason", "")), str(graph.row.columns.get("code", CANCELLED))
        at_once = graph.row.columns.get("terminate") is True
        if graph.state == GraphState.CANCELLED:
            if left:
                yield self.find(
                    "cancelled-early",
                    GRAPH,
                    f"it is cancelled, and {self.labels(node.reference for node in left)} {_have(left)} not ended",
                    "what was told to the outside is not true",
                    keys=[node.row.key for node in left],
                    refusal="cancelled is final, and has been told",
                )
            return
        untold = [
            node for node in left if at_once or node.state != TaskState.RUNNING or not node.row.columns.get("cancel")
        ]
        if not untold and left:
            return  # their workers stop them
        items: list[Item] = [CancelTask(each.reference, reason, code, at_once=at_once, whole=True) for each in untold]
        count = len(self.tasks) if graph.row.columns.get("cutOff") else None
        yield self.find(
            "cancel-due",
            GRAPH,
            f"it is being cancelled, and {_tasks(len(untold))} still to be told"
            if untold
            else "it is being cancelled, and nothing of it is left",
            "it is not cancelled until somebody goes on",
            severity=Severity.DUE,
            keys=[node.row.key for node in untold],
            remedy="run `taskgraph serve`, which sweeps",
            repair=Retell(tuple(items) if untold else (PublishCancelled(count),)) if self.steady or untold else None,
            refusal="the graph changed while it was looked at",
            whole=not untold,
        )

    def _columns(self, row: Row) -> Iterator[Finding]:
        read = self.nodes.get(reference_of(row.key))
        lists = {"requires": read.requires, "requiresLeft": read.left, "dependents": read.dependents} if read else {}
        for name, wanted in _kind_of(row.key).items():
            value = row.columns.get(name)
            if value is not None and lists.get(name) is not None:
                continue
            kind, optional = wanted.rstrip("?"), wanted.endswith("?")
            if (value is None and optional) or (value is not None and _fits(value, kind)):
                continue
            shown = "is missing" if value is None else f"holds {str(value)[:60]!r}"
            repair: Patch | None = None
            node = self.nodes.get(reference_of(row.key))
            if name == "requiresLeft" and node is not None:
                repair = self._left_again(node)
            elif name == "failedTasks" and row.key == GRAPH:
                repair = self._failed_again()
            elif name == "target" and (target := self._target_again(row)):
                repair = self.patch({row.key: {"target": target}})
            yield self.find(
                "bad-column",
                row.key,
                f"column {name} {shown}, and should hold {_ARTICLES[kind]}",
                "whoever reads the row next gives up on it",
                repair=repair,
                detail=name,
                whole=name == "failedTasks" and repair is not None,
                keys=self.teller_keys(node.reference, node.requires or ()) if node and name == "requiresLeft" else (),
                refusal="what it held is written nowhere else",
            )

    def _left_again(self, node: _Node) -> Patch | None:
        """What is left, from what is required and who has completed."""
        waits = node.state in (TaskState.UNSCHEDULED, GraphState.RUNNING, GraphState.BLOCKED)
        if node.requires is None or not (waits if node.reference != GRAPH else node.state not in GRAPH_ENDED):
            return None
        states = {each: self.done(node.reference, each) for each in node.requires}
        if None in states.values() or self.is_open(node.reference):
            return None
        left = [each for each, done in states.items() if not done]
        return self.patch({node.row.key: {"requiresLeft": ids_text(left)}}, self._told_by(node.reference, left))

    def _told_by(self, told: str, names: Iterable[str]) -> list[str]:
        return [each.row.key for name in names for each in self.tellers(told, name)]

    def _target_again(self, row: Row) -> str:
        own = reference_of(row.key)
        longer = self.rows.get(f"definition:{own}")
        found = _json(row.columns.get("task") or (longer.columns.get("task", "") if longer else ""))
        return target_of(found) if isinstance(found, dict) else ""

    # edges: S8

    def _edges(self, node: _Node) -> Iterator[Finding]:
        own = node.reference
        for each in dict.fromkeys([*(node.requires or ()), *(node.dependents or ())]):
            if each not in self.nodes and not self.is_open(each) and not self.is_open(own):
                yield self.find(
                    "missing-row",
                    node.row.key,
                    f"it names the row {row_key(each)}, which does not exist",
                    "whoever completes this one, or waits for that one, cannot go on",
                    keys=(row_key(each),),
                    detail=each,
                    refusal="nothing tells for certain what the row held",
                )
        for name in node.requires or ():
            other = self.nodes.get(name)
            known = other is not None and name not in self.unreadable
            if known and not self.tellers(own, name) and not (self.is_open(own) or self.is_open(name)):
                yield self._untold(node, self.nodes[name])
        for told in node.dependents or ():
            dependent = self.nodes.get(told)
            name = told_as(own)
            if dependent is None or dependent.requires is None or name in dependent.requires:
                continue
            if self.is_open(own) or self.is_open(told) or (told == GRAPH and node.resolved):
                continue  # the graph row need not name what is fulfilled
            yield self._unrequired(node, dependent)
        if node.dependents == [] and own != GRAPH and not self.is_open(own):
            yield from self._unheard(node)

    def _certain(self, below: str, above: str) -> bool:
        """Whether an edge that only one end names is a real one: by the names of pieces, or by the number of edges."""
        return GRAPH in (below, above, owner_of(below)) or is_piece(above) or is_piece(below) or self.certain_edges

    def _untold(self, node: _Node, required: _Node) -> Finding:
        dependents = required.dependents or []
        repair = None
        refusal = f"row {required.row.key} names as many dependents as it may"
        if len(dependents) < limits.DEPENDENTS_MAX:
            refusal = "the edges that the rows name are not those that the graph counts"
            if self._certain(node.reference, required.reference):
                text = ids_text([*dependents, node.reference])
                repair = self.patch({required.row.key: {"dependents": text}}, (node.row.key,))
        return self.find(
            "dependent-missing",
            node.row.key,
            f"it requires {self.label(required.reference)}, which does not name it as a dependent",
            "it is not told when that completes, and waits for ever",
            keys=self.teller_keys(node.reference, (required.reference,)),
            detail=required.reference,
            repair=repair,
            refusal=refusal,
        )

    def _unrequired(self, node: _Node, dependent: _Node) -> Finding:
        name = told_as(node.reference)
        requires, left = dependent.requires or [], dependent.left
        bound = limits.GRAPH_REQUIRES_MAX if dependent.reference == GRAPH else limits.REQUIRES_MAX + 1
        waits = dependent.state in (
            (GraphState.RUNNING, GraphState.BLOCKED) if dependent.reference == GRAPH else (TaskState.UNSCHEDULED,)
        )
        repair = None
        refusal = ""
        if left is None or len(requires) >= bound:
            refusal = f"row {dependent.row.key} cannot take another requirement"
        elif not waits and not node.resolved:
            refusal = f"{self.label(dependent.reference)} has gone on without it, and is {dependent.state}"
        elif not self._certain(dependent.reference, name):
            refusal = "the edges that the rows name are not those that the graph counts"
        else:
            columns: dict[str, Value] = {"requires": ids_text([*requires, name])}
            if not node.resolved and name not in left:
                columns["requiresLeft"] = ids_text([*left, name])
            repair = self.patch({dependent.row.key: columns}, (node.row.key,))
        return self.find(
            "requirement-missing",
            dependent.row.key,
            f"{self.label(node.reference)} names it as a dependent, and it does not require that",
            "it would go on before that has completed",
            keys=(node.row.key, row_key(name)),
            detail=node.reference,
            repair=repair,
            refusal=refusal,
        )

    def _unheard(self, node: _Node) -> Iterator[Finding]:
        own = node.reference
        if not self.steady or own in (self.nodes[GRAPH].requires or ()):
            return  # an edge that only the graph row names is found there
        if own in self.half_named or is_relay(own):
            return
        graph = self.nodes[GRAPH]
        repair = None
        refusal = "the edges that the rows name are not those that the graph counts"
        room = graph.requires is not None and graph.left is not None
        if room and len(graph.requires or ()) < limits.GRAPH_REQUIRES_MAX and self.certain_edges:
            refusal = f"the graph is {graph.state}"
            columns: dict[str, dict[str, Value]] = {node.row.key: {"dependents": ids_text([GRAPH])}}
            if node.resolved:
                repair = self.patch(columns)
            elif graph.state in (GraphState.RUNNING, GraphState.BLOCKED):
                columns[GRAPH] = {
                    "requires": ids_text([*(graph.requires or ()), own]),
                    "requiresLeft": ids_text([*(graph.left or ()), own]),
                }
                repair = self.patch(columns)
        yield self.find(
            "no-dependents",
            node.row.key,
            "nobody waits for it, not even the graph",
            "the graph could finish without it",
            repair=repair,
            refusal=refusal,
            whole=True,
        )

    def _degree(self, node: _Node) -> Iterator[Finding]:
        own = GRAPH if node.reference == GRAPH else ""
        # A join that took an old one under it names one more.
        bounds = (
            ("requires", node.requires, limits.GRAPH_REQUIRES_MAX if own else limits.REQUIRES_MAX + 1),
            ("requiresLeft", node.left, limits.GRAPH_REQUIRES_MAX if own else limits.REQUIRES_MAX + 1),
            ("dependents", node.dependents, limits.DEPENDENTS_MAX),
        )
        for name, found, bound in bounds:
            if found is not None and len(found) > bound:
                yield self.find(
                    "degree",
                    node.row.key,
                    f"column {name} names {len(found)} rows, and may name {bound}",
                    "a completion may not fit one commit any more",
                    detail=name,
                    refusal="rows that work on it now would have to be moved under relays",
                )

    # requirements against completions: S9

    def _progress(self, node: _Node) -> Iterator[Finding]:
        own = node.reference
        if node.requires is None or node.left is None:
            return
        requires, left = node.requires, node.left
        known = [name for name in requires if not self.is_open(name)]
        fulfilled = [name for name in known if self.done(own, name)]
        unfulfilled = [name for name in known if self.done(own, name) is False]
        unsure = len(known) != len(fulfilled) + len(unfulfilled) or len(known) != len(requires)
        over = [name for name in left if name in fulfilled]
        forgotten = [name for name in unfulfilled if name not in left]
        strange = [name for name in left if name not in requires and not self.tellers(own, name)]
        if over:
            items = tuple(item for name in over for item in self._tell_again(own, name))
            yield self.find(
                "left-over",
                node.row.key,
                f"it still waits for {self.labels(over)}, which {self.ended}",
                "it waits for ever: nobody tells it again",
                keys=self.teller_keys(own, over),
                repair=Retell(items),
            )
        if strange:
            hold = self._told_by(own, unfulfilled)
            certain = self.certain_edges and not unsure
            yield self.find(
                "left-unknown",
                node.row.key,
                f"it waits for {self.labels(strange)}, which it does not require",
                "it waits for ever",
                keys=self.teller_keys(own, [*requires, *strange]),
                repair=self.patch({node.row.key: {"requiresLeft": ids_text(unfulfilled)}}, hold) if certain else None,
                refusal="the edges that the rows name are not those that the graph counts",
            )
        if own == GRAPH:
            if forgotten and node.state in (GraphState.RUNNING, GraphState.BLOCKED):
                yield self._forgotten(node, forgotten)
            return
        began = node.state != TaskState.UNSCHEDULED and (node.state != TaskState.SKIPPED or self.goes_on)
        if unfulfilled and began and not node.cancelled and not _never_ran(node):
            yield self._early(node, unfulfilled)
        elif forgotten:
            yield self._forgotten(node, forgotten)
        elif (
            not left
            and node.state == TaskState.UNSCHEDULED
            and not unsure
            and self._tellers.get(own, {}).keys() <= set(requires)  # else what it requires is put right first
        ):
            yield self._asleep(node)
        if self.goes_on and node.state == TaskState.UNSCHEDULED:
            yield from self._unheard_news(node)

    def _tell_again(self, told: str, name: str) -> Iterator[Item]:
        for teller in self.tellers(told, name):
            if not teller.resolved:
                continue
            if is_relay(teller.reference):
                yield Fire(teller.reference)
            else:
                columns = teller.row.columns
                run = columns.get("run", 0)
                claim = str(columns.get("claim", ""))
                if teller.state == TaskState.SKIPPED:
                    yield Skip(teller.reference)
                elif isinstance(run, int):
                    kind = Completed if teller.state == TaskState.COMPLETED else Failed
                    yield kind(teller.reference, run, claim, "", {})

    def _forgotten(self, node: _Node, forgotten: Sequence[str]) -> Finding:
        left = ids_text([*(node.left or ()), *forgotten])
        repair = self.patch({node.row.key: {"requiresLeft": left}}, self._told_by(node.reference, forgotten))
        return self.find(
            "requirement-forgotten",
            node.row.key,
            f"it does not wait for {self.labels(forgotten)}, which it requires, and which {_have(forgotten)} "
            f"not {self.ended}",
            "it would go on too early",
            keys=self.teller_keys(node.reference, forgotten),
            repair=repair,
        )

    def _early(self, node: _Node, unfulfilled: Sequence[str]) -> Finding:
        own = node.reference
        begun = node.state != TaskState.PENDING or (not is_relay(own) and node.row.columns.get("run") != 0)
        repair = None
        if not begun:
            columns: dict[str, Value] = {
                "state": str(TaskState.UNSCHEDULED),
                "requiresLeft": ids_text(unfulfilled),
            }
            repair = self.patch({node.row.key: columns}, self._told_by(own, unfulfilled))
        return self.find(
            "too-early",
            node.row.key,
            f"it is {node.state}, and {self.labels(unfulfilled)} {_have(unfulfilled)} not {self.ended}",
            "it runs on what is not there yet",
            keys=self.teller_keys(own, unfulfilled),
            repair=repair,
            refusal="it has begun already, and what a run has done cannot be taken back",
        )

    def _asleep(self, node: _Node) -> Finding:
        if node.row.columns.get("due") == SKIP:
            return self.find(
                "skip-due",
                node.row.key,
                "it is to be skipped, and nobody has done so yet",
                "what waits for it is told once somebody skips it",
                severity=Severity.DUE,
                repair=Retell((Skip(node.reference),)),
                remedy="run `taskgraph serve`, which sweeps",
            )
        if self.goes_on and not is_relay(node.reference) and not self._met_by_its_row(node):
            return self.find(
                "asleep",
                node.row.key,
                "it waits for nothing, its condition is not met, and it is not about to be skipped",
                "nobody ever resolves it",
                keys=self.teller_keys(node.reference, node.requires or ()),
                repair=self.patch({node.row.key: {"due": SKIP}}),
            )
        columns: dict[str, Value] = {"state": str(TaskState.PENDING)}
        dispatch: tuple[tuple[str, int, str], ...] = ()
        if not is_relay(node.reference):
            columns["pendingSince"] = self.now
            dispatch = (_to_send(node),)
        return self.find(
            "asleep",
            node.row.key,
            "it waits for nothing, and does not stand ready",
            "it never runs: nobody tells it again",
            keys=self.teller_keys(node.reference, node.requires or ()),
            repair=self.patch({node.row.key: columns}, dispatch=dispatch),
        )

    # how requirements ended: S10

    def heard(self, name: str) -> tuple[bool, bool] | None:
        """Whether something failed, and was skipped, among what a requirement stands for; None while it is open."""
        if name not in self._heard:
            node = self.nodes.get(name)
            found: tuple[bool, bool] | None = None
            if node is not None and is_relay(name):
                inside = [self.heard(each) for each in node.requires or ()] if node.resolved else [None]
                known = [each for each in inside if each is not None]
                if len(known) == len(inside):
                    found = any(failed for failed, _ in known), any(skipped for _, skipped in known)
            elif node is not None and node.resolved:
                found = node.state in _FAILED, node.state == TaskState.SKIPPED
            self._heard[name] = found
        return self._heard[name]

    def _optional(self, node: _Node) -> list[str]:
        found = _json(node.row.columns.get("optional", "[]"))
        return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []

    def _met_by_its_row(self, node: _Node) -> bool:
        columns = node.row.columns
        failed, skipped = bool(columns.get("failedBy")), bool(columns.get("skippedBy"))
        return meets(str(columns.get("when", "")), failed=failed, skipped=skipped)

    def _condition(self, node: _Node) -> Iterator[Finding]:
        """A task ran if, and only if, its requirements had ended as it asks."""
        columns, key = node.row.columns, node.row.key
        if node.state == TaskState.SKIPPED and (columns.get("run") or columns.get("claim")):
            yield self.find(
                "skipped-ran",
                key,
                f"it is skipped, and was in run {columns.get('run')}",
                "what was told of it is not true",
                refusal="a task that ran is never skipped, and what a run has done cannot be taken back",
            )
        optional = self._optional(node)
        requires = [each for each in node.requires or () if each not in optional]
        heard = [self.heard(each) for each in requires]
        known = [each for each in heard if each is not None]
        if node.state == TaskState.UNSCHEDULED or len(known) != len(heard) or not node.requires:
            return
        met = meets(
            str(columns.get("when", "")), failed=any(each for each, _ in known), skipped=any(each for _, each in known)
        )
        keys = [row_key(each) for each in requires]
        if node.state == TaskState.SKIPPED and met:
            yield self.find(
                "skipped-wrong",
                key,
                "it is skipped, though its requirements ended as it asks",
                "it never runs",
                keys=keys,
                refusal="skipped is final, and its dependents have been told",
            )
        elif node.state != TaskState.SKIPPED and not met and not node.ended_waiting:
            begun = node.state != TaskState.PENDING or columns.get("run") != 0
            again: dict[str, Value] = {"state": str(TaskState.UNSCHEDULED), "due": SKIP}
            yield self.find(
                "condition",
                key,
                f"it is {node.state}, though its requirements did not end as it asks",
                "it runs where it should have been skipped",
                keys=keys,
                repair=None if begun else self.patch({key: again}, [each for each in keys if each in self.rows]),
                refusal="it has begun already, and what a run has done cannot be taken back",
            )

    def _unheard_news(self, node: _Node) -> Iterator[Finding]:
        """What a requirement that was counted off has told must stand on the row."""
        optional = self._optional(node)
        gone = [each for each in node.requires or () if each not in (node.left or ()) and each not in optional]
        for name, place in (("failedBy", 0), ("skippedBy", 1)):
            told = [each for each in gone if (heard := self.heard(each)) is not None and heard[place]]
            if told and not node.row.columns.get(name):
                cause = self._cause(self.nodes[told[0]], name)
                yield self.find(
                    "unheard",
                    node.row.key,
                    f"it has counted {self.labels(told)} off, and column {name} does not say how {_have(told)} ended",
                    "it may run where it should be skipped, or the other way round",
                    keys=[row_key(each) for each in told],
                    detail=name,
                    repair=self.patch({node.row.key: {name: cause}}, [row_key(told[0])]) if cause else None,
                    refusal="nothing tells what the cause was",
                )

    def _cause(self, node: _Node, name: str) -> str:
        columns = node.row.columns
        if is_relay(node.reference) or node.state == TaskState.SKIPPED:
            known = columns.get(name) or columns.get("failedBy") or columns.get("skippedBy")
            if known or is_relay(node.reference):
                return str(known or "")
        return compact_json(
            {"label": str(columns.get("label", "")), "taskId": node.reference, "state": node.state},
        )

    # one task

    def _past(self, node: _Node) -> Iterator[Finding]:
        """A task that may not go on any more, and that nobody has resolved yet."""
        why = overdue(node.row.columns.get, self.now)
        if why is not None:
            code, reason = why
            yield self.find(
                code,
                node.row.key,
                f"it is {node.state}, and {reason}",
                "it is to be resolved as an exception",
                severity=Severity.DUE,
                repair=Retell((Overdue(node.reference),)),
                remedy="run `taskgraph serve`, which sweeps",
            )

    def _task(self, node: _Node) -> Iterator[Finding]:
        columns, key = node.row.columns, node.row.key
        label = columns.get("label")
        if isinstance(label, str) and task_id_of(self.graph_id, label) != node.reference:
            yield self.find(
                "strange-id",
                key,
                f"its id is not that of a task “{label}” in this graph",
                "nobody finds it by its label",
                refusal="either its label or its key is wrong",
            )
        if "task" not in columns and f"definition:{node.reference}" not in self.rows:
            yield self.find(
                "missing-row",
                key,
                "its definition is gone",
                "no worker can run it",
                keys=(f"definition:{node.reference}",),
                detail="definition",
                refusal="the definition is written nowhere else",
            )
        yield from self._budget(node)
        yield from self._held(node)
        yield from self._past(node)
        if right := amended(columns.get, self.now):
            said = ", ".join(f"{name} {columns.get(name)}" for name in right if name in _TASK)
            yield self.find(
                "clock-off",
                key,
                f"it says {said}, which no clock that agrees with ours can have written by now",
                "whoever waits for such a time goes by now instead, and that costs its length once",
                severity=Severity.DUE,
                repair=Retell((SetRight(node.reference),)),
                remedy="put the clocks of the machines right; `taskgraph serve` sets the row right",
            )
        if node.state == TaskState.RUNNING:
            end = columns.get("leaseUntil")
            if end is None:
                until = self.now + timedelta(seconds=limits.LEASE_SECONDS)
                yield self.find(
                    "no-lease",
                    key,
                    "it runs, and its row holds no end of a lease",
                    "if its worker dies, nobody takes it over",
                    repair=self.patch({key: {"leaseUntil": until}}),
                )
            elif isinstance(end, datetime) and lease(columns.get, self.now) is Standing.OVER:
                run = columns.get("run", 0)
                lost = LeaseLost(node.reference, run if isinstance(run, int) else 0, str(columns.get("claim", "")))
                yield self.find(
                    "lease-ended",
                    key,
                    f"its worker {columns.get('worker', '')} has not been heard of since {end}",
                    "it stands still until somebody gives the run up",
                    severity=Severity.DUE,
                    repair=Retell((lost,)),
                    remedy="run `taskgraph serve`, which sweeps",
                )

    def _held(self, node: _Node) -> Iterator[Finding]:
        """Only what its graph holds back, or it itself, holds back a task, once a pause or a resume has settled."""
        if self.graph is None or not self.steady or node.state not in TASK_UNRESOLVED:
            return
        graph = self.graph.row.columns
        if graph.get("state") not in (GraphState.RUNNING, GraphState.BLOCKED) or graph.get("settling") is True:
            return
        held, known = texts(node.row.columns, "held"), {INACTIVE, *texts(graph, "held")}
        rest = [each for each in held if each in known]
        if rest == held:
            return
        columns: dict[str, Value] = {"held": ids_text(rest)}
        dispatch: tuple[tuple[str, int, str], ...] = ()
        if node.state == TaskState.PENDING and not rest:
            columns["pendingSince"] = self.now
            dispatch = (_to_send(node),)
        over = ", ".join(f"“{held_group(each) or each}”" for each in held if each not in known)
        yield self.find(
            "held-back",
            node.row.key,
            f"it is held back by {over}, which the graph does not pause",
            "no resume lets it go on",
            keys=(GRAPH,),
            repair=self.patch({node.row.key: columns}, (GRAPH,), dispatch=dispatch),
        )

    def _budget(self, node: _Node) -> Iterator[Finding]:
        columns, key = node.row.columns, node.row.key
        names = ("run", "rerunsAllowed", "rerunsLeft", "retriesLeft", "manualReruns", "handBacks", "temporaryFailures")
        numbers = [columns.get(name, 0) for name in names]
        if not all(_fits(number, "number") for number in numbers):
            return
        run, allowed, reruns, retries, by_hand, back, later = (int(str(number)) for number in numbers)
        others = by_hand + back + later
        policy = _policy(columns.get("retry", ""))
        if policy is not None and not 0 <= (used := temporary_used(columns.get)) <= policy.limit:
            yield self.find(
                "temporary-budget",
                key,
                f"it has used {used} of {policy.limit} temporary failures",
                "it may be tried too often, or not often enough",
                refusal="any of these numbers may be the wrong one",
                remedy=f"taskgraph events {self.graph_id} shows its runs",
            )
        wrong = {
            "rerunsLeft": not 0 <= reruns <= allowed,
            "retriesLeft": not 0 <= retries <= limits.RETRIES_DEFAULT,
        }
        used = allowed - reruns + limits.RETRIES_DEFAULT - retries + others
        if run == used and not any(wrong.values()):
            return
        repair = None
        if wrong["rerunsLeft"] != wrong["retriesLeft"]:
            # One of them cannot be true; the other numbers then say what it must have been.
            name, most, spent = (
                ("rerunsLeft", allowed, run - others - (limits.RETRIES_DEFAULT - retries))
                if wrong["rerunsLeft"]
                else ("retriesLeft", limits.RETRIES_DEFAULT, run - others - (allowed - reruns))
            )
            if 0 <= spent <= most:
                repair = self.patch({key: {name: most - spent}})
        yield self.find(
            "budget",
            key,
            f"it is in run {run}, with {reruns} of {allowed} reruns and {retries} of {limits.RETRIES_DEFAULT} retries "
            f"left, {by_hand} reruns by hand and {back} hand-backs"
            + (f" and {later} temporary failures" if later else "")
            + ", which does not add up",
            "it may run too often, or not often enough",
            repair=repair,
            refusal="any of these numbers may be the wrong one",
            remedy=f"taskgraph events {self.graph_id} shows its runs",
        )

    # groups: who is in one stands on its row, and on the row of each task

    def _groups(self) -> Iterator[Finding]:
        named: dict[str, list[_Node]] = {}  # groupId -> tasks that say that they are in it
        names: dict[str, str] = {}
        for node in self.tasks:
            for name in _list_of(node.row, "groups"):
                own = task_id_of(self.graph_id, name)
                names[own] = name
                if not self.is_open(node.reference):
                    named.setdefault(own, []).append(node)
        heads: dict[str, dict[str, None]] = {}
        for key, row in self.rows.items():
            if key.startswith("group:"):
                listed = _json(gathered(row.columns, "members"))
                inside = heads.setdefault(key.split(":")[1], {})
                inside.update(dict.fromkeys(map(str, listed if isinstance(listed, list) else ())))
        for own in dict.fromkeys([*heads, *named]):
            head = self.rows.get(group_key(own))
            if head is None or head.columns.get("request") not in self.opened:
                yield from self._group(own, names.get(own, ""), head, heads.get(own, {}), named.get(own, []))
        counted = self.nodes[GRAPH].row.columns.get("groups", 0)
        if self.steady and counted != len(heads) and all(group_key(own) in self.rows for own in (*heads, *named)):
            yield self.find(
                "group-count",
                GRAPH,
                f"it counts {counted} groups, and there are {len(heads):,}",
                "an extension that requires one of them may be refused",
                repair=self.patch({GRAPH: {"groups": len(heads)}}),
                whole=True,
            )

    # limits on tasks in flight: what one lists is what runs under it

    def _limits(self) -> Iterator[Finding]:
        running: dict[str, dict[str, _Node]] = {}
        named: dict[str, list[_Node]] = {}
        for node in self.tasks:
            for scope in scopes_of(node.row.columns):
                named.setdefault(scope, []).append(node)
                if node.state == TaskState.RUNNING:
                    member = f"{node.reference}:{node.row.columns.get('run', 0)}"
                    running.setdefault(scope, {})[member] = node
        for scope, nodes in named.items():
            if limit_key(scope) not in self.rows and not self.is_open(nodes[0].reference):
                yield self.find(
                    "missing-limit",
                    nodes[0].row.key,
                    f"it is under the limit {scope}, whose row is gone, as {len(nodes) - 1:,} other tasks are",
                    "none of these tasks can be claimed",
                    refusal="how many may be in flight is written nowhere else",
                    remedy=f"insert the row {limit_key(scope)} by hand: max, inFlight [] and moved",
                    detail=scope,
                )
        for key, row in self.rows.items():
            if key.startswith("limit:"):
                yield from self._limit(row, running.get(key.removeprefix("limit:"), {}))

    def _limit(self, row: Row, running: Mapping[str, _Node]) -> Iterator[Finding]:
        limit = limit_of(row)
        uncounted = [member for member in running if member not in limit.inside]
        if uncounted:
            tasks = [running[each] for each in uncounted]
            columns = {row.key: {"inFlight": ids_text([*limit.inside, *uncounted])}}
            yield self.find(
                "not-counted",
                row.key,
                f"it does not count {self.labels(node.reference for node in tasks)}, and that runs under it",
                "more may begin than the limit allows",
                keys=[node.row.key for node in tasks],
                repair=self.patch(columns, [node.row.key for node in tasks]),
            )
            return
        over: list[str] = []
        strange: list[str] = []
        for member in limit.inside:
            task_id, run = named_in(member)
            node = self.nodes.get(task_id)
            if node is None:
                strange.append(member)
            elif member not in running and is_over(Draft(node.row.key, node.row.columns, None), run):
                over.append(member)
        if over:
            yield self.find(
                "counts-what-is-over",
                row.key,
                f"it counts {len(over):,} of {len(limit.inside):,} runs that are over",
                "fewer tasks begin than the limit allows",
                severity=Severity.DUE,
                keys=[row_key(named_in(member)[0]) for member in over],
                repair=Retell((Recount(limit.scope, tuple(over)),)),
            )
        elif strange and self.steady:
            left = [each for each in limit.inside if each not in strange]
            yield self.find(
                "counts-nothing",
                row.key,
                f"it counts {', '.join(strange[:NAMED_MAX])}, and there is no such task",
                "fewer tasks begin than the limit allows",
                repair=self.patch({row.key: {"inFlight": ids_text(left)}}),
                whole=True,
            )
        if len(running) > limit.most:
            yield self.find(
                "over-limit",
                row.key,
                f"{len(running):,} tasks run under it, and {limit.most:,} may",
                "nothing, if it was lowered while they ran",
                severity=Severity.NOTE,
                keys=[node.row.key for node in running.values()],
                remedy="wait: no more begin until there is room",
            )

    def _group(
        self, own: str, name: str, head: Row | None, listed: Mapping[str, None], named: Sequence[_Node]
    ) -> Iterator[Finding]:
        key = group_key(own)
        holders = [node.row.key for node in named]
        if head is None:
            text = ids_text(sorted(node.reference for node in named))
            columns: dict[str, Value] = {"schema": SCHEMA, "label": name, "tasks": len(named), "members": text}
            join = f"join:{group_owner(own)}:done"
            if join in self.rows:
                columns["join"] = join
            fits = len(text) <= limits.PROPERTY_CHARS_MAX and self.steady
            yield self.find(
                "missing-row",
                key,
                f"the row of group “{name}” is gone, and {_tasks(len(named))} in it",
                "nobody can look at the group, or do something to all of it",
                keys=holders,
                repair=self.patch({}, holders[:1], inserts=(Insert(key, columns),)) if fits else None,
                refusal="it had more tasks than fit one row, or the graph changed meanwhile",
                whole=True,
            )
            return
        known = {node.reference for node in named}
        unlisted = sorted(node.reference for node in named if node.reference not in listed)
        if unlisted:
            text = ids_text(sorted([*listed, *unlisted]))
            fits = f"{key}:0001" not in self.rows and len(text) <= limits.PROPERTY_CHARS_MAX
            size = len(listed) + len(unlisted)
            yield self.find(
                "group-members",
                key,
                f"{self.labels(unlisted)} {_have(unlisted)} this group on the row of the task, and not on this one",
                "what is done to the group passes them by",
                keys=map(row_key, unlisted),
                repair=self.patch({key: {"members": text, "tasks": size}}, map(row_key, unlisted)) if fits else None,
                refusal="its tasks are more than fit one column",
            )
        label = str(head.columns.get("label", ""))
        for each in listed:
            node = self.nodes.get(each)
            if node is None:
                yield self.find(
                    "missing-row",
                    key,
                    f"it names the row {row_key(each)}, which does not exist",
                    "what is done to the group cannot be done to that task",
                    keys=(row_key(each),),
                    detail=each,
                    refusal="nothing tells for certain what the row held",
                )
            elif each not in known and not self.is_open(each):
                text = compact_json(sorted([*_list_of(node.row, "groups"), label]))
                yield self.find(
                    "group-members",
                    node.row.key,
                    f"it is in group “{label}”, which its row does not say",
                    "people do not see that it is",
                    keys=(key,),
                    detail=own,
                    repair=self.patch({node.row.key: {"groups": text}}, (key,)),
                )

    # the graph row

    def _finished(self) -> Iterator[Finding]:
        graph = self.nodes[GRAPH]
        open_tasks = [node for node in self.tasks if not node.resolved]
        if graph.state == GraphState.FINISHED and open_tasks:
            yield self.find(
                "finished-early",
                GRAPH,
                f"it is finished, and {self.labels(node.reference for node in open_tasks)} {_have(open_tasks)} "
                f"not {self.ended}",
                "what was told to the outside is not true",
                keys=[node.row.key for node in open_tasks],
                refusal="finished is final, and has been told",
            )
        if graph.state != GraphState.RUNNING or graph.left != [] or not graph.requires or self.opened:
            return
        if any(self._is_deferred(request) for request in texts(graph.row.columns, DEFERRED)):
            return  # it waits for these, which are made when it is resumed
        if any(self.done(GRAPH, name) is not True for name in graph.requires):
            return  # found elsewhere: a requirement was forgotten, or nobody tells it
        unresolved = [node for node in open_tasks if node.state in TASK_UNRESOLVED or node.state in _FAILED]
        repair = None if unresolved else Retell(tuple(self._tell_again(GRAPH, graph.requires[0])))
        yield self.find(
            "unfinished",
            GRAPH,
            "it waits for nothing, and is still running",
            "it never finishes",
            keys=[*self.teller_keys(GRAPH, graph.requires), *(node.row.key for node in unresolved)],
            repair=repair,
            refusal=f"{self.labels(node.reference for node in unresolved)} {_have(unresolved)} not {self.ended}",
        )

    def _failed_again(self) -> Patch | None:
        """FailedTasks as the rows count them, and the state that follows from it."""
        graph = self.nodes[GRAPH]
        if not self.steady:
            return None
        failed = [node for node in self.tasks if node.state in _FAILED]
        columns: dict[str, Value] = {"failedTasks": len(failed)}
        facts: tuple[Mapping[str, Any], ...] = ()
        if self.policy != FailurePolicy.BLOCK:
            pass  # the graph goes on, or was cancelled in the commit of the failure
        elif failed and graph.state == GraphState.RUNNING:
            label = str(failed[0].row.columns.get("label", ""))
            columns |= {"state": str(GraphState.BLOCKED), "blockedBy": label, "blocked": self.now}
            facts = ({"event": "graph-blocked", "task": failed[0].reference, "label": label},)
        elif not failed and graph.state == GraphState.BLOCKED:
            columns |= {"state": str(GraphState.RUNNING), "blockedBy": ""}
            facts = ({"event": "graph-unblocked"},)
        return self.patch({GRAPH: columns}, facts=facts, revive=bool(facts))

    def _counts(self) -> Iterator[Finding]:
        graph = self.nodes[GRAPH]
        columns = graph.row.columns
        failed = [node for node in self.tasks if node.state in _FAILED]
        counted = columns.get("failedTasks")
        repair = self._failed_again() if graph.state not in GRAPH_ENDED or not failed else None
        if _fits(counted if counted is not None else "", "number"):
            if counted != len(failed):
                yield self.find(
                    "failed-count",
                    GRAPH,
                    f"it counts {counted} tasks that failed for good; there are {len(failed)}",
                    "it stays blocked after all reruns, or finishes too early",
                    repair=repair,
                    whole=True,
                    refusal=f"it is {graph.state}, which is final",
                )
            elif not self.goes_on and (
                (graph.state == GraphState.BLOCKED and not failed) or (graph.state == GraphState.RUNNING and failed)
            ):
                yield self.find(
                    "graph-state",
                    GRAPH,
                    f"it is {graph.state}, and {len(failed) or 'none'} of its tasks failed for good",
                    "it takes extensions when it must not, or does not when it could",
                    repair=repair if self.policy == FailurePolicy.BLOCK else None,
                    whole=True,
                    refusal=f"its failure policy is {self.policy}: cancel it, with `taskgraph cancel {self.graph_id}`",
                )
        skipped = sum(node.state == TaskState.SKIPPED for node in self.tasks)
        if graph.state == GraphState.FINISHED and columns.get("skippedTasks", 0) != skipped:
            yield self.find(
                "skipped-count",
                GRAPH,
                f"it counts {columns.get('skippedTasks', 0)} tasks that were skipped; there are {skipped}",
                "what is shown of its end is wrong",
                whole=True,
                repair=self.patch({GRAPH: {"skippedTasks": skipped}}),
            )
        tasks, edges = columns.get("tasks"), columns.get("edges")
        if isinstance(tasks, int) and tasks != len(self.tasks):
            named = self._named()
            certain = named == {str(node.row.columns.get("label")) for node in self.tasks}
            yield self.find(
                "task-count",
                GRAPH,
                f"it counts {tasks:,} tasks, and there are {len(self.tasks):,}",
                "what is shown of its progress is wrong",
                whole=True,
                repair=self.patch({GRAPH: {"tasks": len(self.tasks)}}) if certain else None,
                refusal="rows of tasks may be gone",
            )
        if isinstance(edges, int) and edges != self.edges:
            yield self.find(
                "edge-count",
                GRAPH,
                f"it counts {edges:,} requirements, and the rows name {self.edges:,}",
                "a task may begin too early, or never",
                whole=True,
                refusal="nothing tells which requirement is gone",
            )

    def _named(self) -> set[str]:
        """All labels, as nameMapping has them."""
        found: set[str] = set()
        for key, row in self.rows.items():
            if key == GRAPH or key.startswith("name-mapping:"):
                mapping = _json(gathered(row.columns, "nameMapping"))
                found.update(mapping if isinstance(mapping, dict) else ())
        return found

    # extensions and the journal

    def _is_deferred(self, request: str) -> bool:
        """Whether the graph waits for a request that has not been made yet."""
        head = self.rows.get(f"request:{request}")
        deferred = texts(self.nodes[GRAPH].row.columns, DEFERRED)
        return head is not None and head.columns.get("state") == "staged" and request in deferred

    def _requests(self) -> Iterator[Finding]:
        graph = self.nodes[GRAPH]
        deferred = texts(graph.row.columns, DEFERRED)
        left = [each for each in deferred if self._is_deferred(each)]
        if left != deferred and graph.state in (GraphState.RUNNING, GraphState.BLOCKED):
            over = [each for each in deferred if each not in left]
            yield self.find(
                "left-over",
                GRAPH,
                f"it waits for extension {over[0]}, which has been answered",
                "it never finishes",
                keys=[f"request:{each}" for each in over],
                repair=self.patch({GRAPH: {DEFERRED: ids_text(left)}}, ()),
                detail=over[0],
            )
        extending = str(graph.row.columns.get("extending", ""))
        heads = {key: row for key, row in self.rows.items() if _kind_of(key) is _REQUEST}
        for key, row in heads.items():
            state = row.columns.get("state")
            if state not in ("staged", "accepted"):
                continue
            request = key.removeprefix("request:")
            what = "edit" if row.columns.get("kind") == "edit" else "extension"
            if f"{key}:0000" not in self.rows:
                yield self.find(
                    "missing-row",
                    key,
                    f"the document of this {what} is gone",
                    "it can never be brought in",
                    keys=(f"{key}:0000",),
                    detail="document",
                    refusal="the document is written nowhere else",
                )
            if state == "accepted" and extending != request:
                repair = self.patch({GRAPH: {"extending": request}}, (key,)) if not extending else None
                yield self.find(
                    "extending",
                    GRAPH,
                    f"extension {request} was accepted, and the graph row does not name it",
                    "another one may begin before it is done",
                    keys=(key,),
                    repair=repair,
                    detail=request,
                    refusal=f"the graph row names {extending}",
                )
            if self._is_deferred(request) and PAUSED in texts(graph.row.columns, "held"):
                continue  # it is made when the graph is resumed
            staged = row.columns.get("staged")
            age = (self.now - staged).total_seconds() if isinstance(staged, datetime) else 0.0
            if age >= limits.REDISPATCH_SECONDS and graph.state not in GRAPH_ENDED:
                yield self.find(
                    "extension-open",
                    key,
                    f"the {what} is {state} since {staged}",
                    "its tasks wait for a handler",
                    severity=Severity.DUE,
                    remedy="run `taskgraph serve`, which handles and sweeps",
                    repair=Resend(request),
                )
        if extending and (head := heads.get(f"request:{extending}")) is None:
            yield self.find(
                "missing-row",
                GRAPH,
                f"extension {extending} is under way, and its row is gone",
                "no other extension can begin",
                keys=(f"request:{extending}",),
                detail=extending,
                refusal="nothing tells how far it came",
            )
        elif extending and head is not None and head.columns.get("state") != "accepted":
            state = head.columns.get("state")
            yield self.find(
                "extending",
                GRAPH,
                f"it names extension {extending} as under way, which is {state}",
                "no other extension can begin",
                keys=(head.key,),
                detail=extending,
                repair=self.patch({GRAPH: {"extending": ""}}, (head.key,)) if state in ("done", "refused") else None,
                refusal="nothing tells whether its tasks are counted",
            )

    def _deletion(self, graph: "_Node") -> Iterator[Finding]:
        left = sum(key != GRAPH for key in self.rows)
        if graph.state == GraphState.DELETING:
            since = graph.row.columns.get("deleting")
            when = f" since {since:%Y-%m-%d %H:%M:%SZ}" if isinstance(since, datetime) else ""
            text = f"it is being deleted{when}, and {left:,} of its rows are left"
            effect = "nothing is decided about it any more"
        elif left:
            text = f"it was deleted, and {left:,} row{' was' if left == 1 else 's were'} put beside its tombstone since"
            effect = "they go with the tombstone at the latest"
        else:
            return
        yield self.find(
            "deletion-open",
            GRAPH,
            text,
            effect,
            remedy=f"run taskgraph delete {self.graph_id}, or `taskgraph serve`, which sweeps",
            severity=Severity.DUE,
        )

    def _journal(self) -> Iterator[Finding]:
        numbers: list[int] = []
        for key, row in self.rows.items():
            if not key.startswith("event:"):
                continue
            number = row.columns.get("sequence")
            if not isinstance(number, int) or number < 1 or key != event_key(number):
                yield self.find(
                    "journal",
                    key,
                    "an event row whose key is not its number",
                    "the journal is out of order",
                    refusal="nothing tells when it happened",
                )
                continue
            numbers.append(number)
        numbers.sort()
        for before, after in zip([0, *numbers], numbers, strict=False):
            if after == before + 1:
                continue
            missing = range(before + 1, after)
            inserts = tuple(self._gap_row(number) for number in missing) if len(missing) <= GAP_ROWS_MAX else ()
            yield self.find(
                "journal-gap",
                event_key(missing[0]),
                f"event row {missing[0]}" + (f" to {missing[-1]} are" if len(missing) > 1 else " is") + " gone",
                "what happened then is lost, and new events may be numbered before old ones",
                keys=[event_key(number) for number in missing[:GAP_ROWS_MAX]],
                repair=Patch({}, {}, inserts) if inserts else None,
                refusal="too many are gone at once",
            )

    def _gap_row(self, number: int) -> Insert:
        columns: dict[str, Value] = {"schema": SCHEMA, "sequence": number, "time": self.now}
        fact = {"event": "journal-gap"}
        if self.graph is not None and (routing := self.graph.row.columns.get(facts.ROUTING)):
            fact[facts.ROUTING] = str(routing)
        return Insert(event_key(number), {**columns, "kinds": "journal-gap", "events": compact_json([fact])})


def _never_ran(node: _Node) -> bool:
    """Whether a task was resolved while it waited: nothing of it ran, so what it requires need not have completed."""
    columns = node.row.columns
    return node.state == TaskState.EXCEPTION and not columns.get("run") and "started" not in columns


def _list_of(row: Row, name: str) -> list[str]:
    found = _json(row.columns.get(name, ""))
    return list(map(str, found)) if isinstance(found, list) else []


def _node(row: Row, texts: dict[str, str], *, goes_on: bool) -> _Node:
    def references(name: str) -> list[str] | None:
        value = row.columns.get(name)
        if value is None and name == "dependents" and row.key == GRAPH:
            return []
        found = _json(value) if value is not None else None
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            return None
        return [texts.setdefault(each, each) for each in found]

    state = str(row.columns.get("state", ""))
    resolved = state == TaskState.COMPLETED or (goes_on and (state in _FAILED or state == TaskState.SKIPPED))
    return _Node(
        reference_of(row.key),
        row,
        state,
        references("requires"),
        references("requiresLeft"),
        references("dependents"),
        resolved,
    )


# --- why the graph does not move -------------------------------------------------------------------------------


@dataclass(slots=True)
class Waiting:
    """Ready tasks of one target that no worker has claimed. since: of the one that waits longest."""

    tasks: list[tuple[str, int]] = field(default_factory=list)
    since: datetime | None = None
    refusals: Counter[str] = field(default_factory=Counter)


def _to_send(node: _Node) -> tuple[str, int, str]:
    """A task that is made ready, as a patch names it."""
    run = node.row.columns.get("run", 0)
    return node.reference, run if isinstance(run, int) else 0, str(node.row.columns.get("target", "default"))


def _is_held(row: Row) -> bool:
    return is_held(row.columns.get("held"))


def waiting_by_target(rows: Mapping[str, Row], now: datetime) -> dict[str, Waiting]:
    """Target -> tasks that stand pending, and may be claimed now."""
    found: dict[str, Waiting] = {}
    for key, row in rows.items():
        if not key.startswith("task:") or row.columns.get("state") != TaskState.PENDING or _is_held(row):
            continue
        if full_limit(row, rows) is not None:
            continue
        if not_yet_seconds(row.columns.get, now):
            continue
        one = found.setdefault(str(row.columns.get("target", "default")), Waiting())
        run, since = row.columns.get("run", 0), ready_since(row.columns.get)
        one.tasks.append((reference_of(key), run if isinstance(run, int) else 0))
        if isinstance(since, datetime) and (one.since is None or since < one.since):
            one.since = since
        if refusal := row.columns.get("refusal"):
            one.refusals[str(refusal)] += 1
    return found


def full_limit(task: Row, rows: Mapping[str, Row]) -> Limit | None:
    """A limit that has no room for a task, None if all have."""
    found = [limit_of(row) for scope in scopes_of(task.columns) if (row := rows.get(limit_key(scope))) is not None]
    return next((limit for limit in found if len(limit.inside) >= limit.most), None)


def _letting_go(graph_id: str, holders: Sequence[str]) -> str:
    first = holders[0] if holders else PAUSED
    if first == INACTIVE:
        return f"taskgraph activate {graph_id} LABEL"
    group = held_group(first)
    return f"taskgraph resume {graph_id}" + (f" --group {shlex.quote(group)}" if group else "")


def causes(
    graph_id: str, rows: Mapping[str, Row], findings: Sequence[Finding], queued: Mapping[str, int], now: datetime
) -> list[Cause]:
    """Why the graph does not move, or that it does. queued: target -> messages on its queue, about."""
    graph = rows.get(GRAPH)
    state = str(graph.columns.get("state", "")) if graph else "missing"
    wrong = sum(each.severity is Severity.WRONG for each in findings)
    made: list[Cause] = []
    if wrong:
        made.append(Cause(f"{wrong:,} finding{'s' if wrong != 1 else ''} above may hold it up"))
    if state in GRAPH_ENDED:
        return [*made, Cause(f"it is {state}: nothing moves any more")]
    if state in GRAPH_GONE:
        return [*made, Cause("it was deleted" if state == GraphState.DELETED else "it is being deleted")]
    if state == GraphState.RESTORING:
        return [*made, Cause("it is being restored", "restore the same archive again")]
    if state == GraphState.SUBMITTING:
        return [*made, Cause("it is still being submitted", "submit the same file under the same id again")]
    running = [row for key, row in rows.items() if key.startswith("task:") and row.columns.get("state") == "running"]
    ended = sum(lease(row.columns.get, now) is Standing.OVER for row in running)
    if state == GraphState.CANCELLING:
        made += _stopping(graph_id, running)
    elif len(running) > ended:
        made.append(Cause(f"it moves: {_tasks(len(running) - ended)} running"))
    if ended:
        lost = f"{_tasks(ended)} running on workers whose leases have ended"
        made.append(Cause(lost, "run `taskgraph serve`: its sweep gives them up"))
    held_back = [row for key, row in rows.items() if key.startswith("task:") and _is_held(row)]
    ready = [row for row in held_back if row.columns.get("state") == TaskState.PENDING]
    for holders, tasks in Counter(tuple(texts(row.columns, "held")) for row in ready).most_common():
        words = f"{_tasks(tasks)} ready and held back: {holders_in_words(holders, of=tasks)}"
        made.append(Cause(words, _letting_go(graph_id, holders)))
    room = Counter(
        f"limit of {limit.name}: {len(limit.inside):,} of {limit.most:,} in flight"
        for key, row in rows.items()
        if key.startswith("task:") and row.columns.get("state") == TaskState.PENDING and not _is_held(row)
        if (limit := full_limit(row, rows)) is not None
    )
    for why, number in sorted(room.items()):
        made.append(
            Cause(f"{_tasks(number)} ready and waiting for room; {why}", f"see taskgraph limit list {graph_id}")
        )
    for target, one in sorted(waiting_by_target(rows, now).items()):
        held = queued.get(target, 0)
        since = f" since {one.since:%Y-%m-%d %H:%M:%SZ}" if one.since else ""
        text = f"{_tasks(len(one.tasks))} ready for workers of target {target}{since}"
        if one.refusals:
            made.append(
                Cause(f"{text}; a worker gave back: {one.refusals.most_common(1)[0][0]}", "start another worker")
            )
        elif held:
            text = f"{text}; its queue holds about {held:,} message{'s' if held != 1 else ''}"
            made.append(Cause(text, f"start a worker: taskgraph worker --target {target}"))
        else:
            made.append(Cause(f"{text}; its queue is empty", "run `taskgraph serve`: its sweep sends them again"))
    later = [
        str(row.columns.get("label", ""))
        for key, row in rows.items()
        if key.startswith("task:") and row.columns.get("state") == "pending" and not_yet_seconds(row.columns.get, now)
    ]
    if later:
        first = min(
            moment
            for key, row in rows.items()
            if isinstance(moment := row.columns.get("notBefore"), datetime) and moment > now
        )
        made.append(Cause(f"{_tasks(len(later))} to run later, the first not before {clock_text(first)}"))
    due = Counter(each.code for each in findings if each.severity is Severity.DUE)
    for code, text in (
        ("relay-ready", "joins and forks stand ready"),
        ("skip-due", "tasks are to be skipped"),
        ("extension-open", "extensions are open"),
    ):
        if due[code]:
            made.append(Cause(f"{due[code]:,} {text}", "run `taskgraph serve`, which handles and sweeps"))
    failed = sorted(
        (str(row.columns.get("label", "")), reference_of(key))
        for key, row in rows.items()
        if key.startswith("task:") and row.columns.get("state") in _FAILED
    )
    if failed and state == GraphState.BLOCKED:
        shown = ", ".join(f"“{label}”" for label, _ in failed[:NAMED_MAX])
        more = f" and {len(failed) - NAMED_MAX:,} more" if len(failed) > NAMED_MAX else ""
        remedy = f"mend the cause, then: {typed('rerun', graph_id, *failed[0])}"
        made.append(Cause(f"it is blocked by {shown}{more}", remedy))
    return made or [Cause("nothing of it is ready, running or failed")]


def _stopping(graph_id: str, running: Sequence[Row]) -> list[Cause]:
    """What a graph that is being cancelled still waits for."""
    marked = [row for row in running if row.columns.get("cancel")]
    if not marked:
        return []
    oldest = min(marked, key=lambda row: str(row.columns.get("started", "")))
    runs = f"{len(marked):,} run{' is' if len(marked) == 1 else 's are'}"
    text = f"{runs} being stopped, the oldest on worker {oldest.columns.get('worker', '')}"
    return [Cause(f"it is being cancelled: {text}", f"not to wait: taskgraph cancel --terminate {graph_id}")]


def _have(things: Sequence[object]) -> str:
    return "has" if len(things) == 1 else "have"


def _tasks(number: int) -> str:
    return f"{number:,} task{' is' if number == 1 else 's are'}"
