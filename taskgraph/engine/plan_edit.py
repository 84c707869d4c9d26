"""Plan an edit from its request rows: what it comes to, row by row, or why the graph forbids it.

What this room is for: everything about an edit that needs reading: which tasks it names, who requires them, through
which relays an edge goes, what would tell nobody any more, whether there would be a circle, and whose results nobody
would wait for. The rule of the one commit is in `protocol.edit`; the loop is in `transact`. It never writes.

A plan is valid for one revision of the graph. It is made from pages that are no snapshot: states may be old, and are
looked at again by the rule; edges may not, for whatever changes them raises the revision.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from taskgraph.documents import graph_algorithms, results
from taskgraph.documents.edit_document import EditDocument, Update, read_edit
from taskgraph.documents.read import canonical_json
from taskgraph.documents.references import references, without_requirement
from taskgraph.engine.commit import Records
from taskgraph.engine.edit_snapshot import Snapshot, read_snapshot
from taskgraph.model import facts, limits, priorities, timing
from taskgraph.model.columns import Value
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import (
    GRAPH,
    group_key,
    group_of,
    group_owner,
    ids_text,
    is_piece,
    is_relay,
    is_shared,
    limit_key,
    owner_of,
    row_key,
    task_id_of,
    told_as,
)
from taskgraph.model.states import INACTIVE, FailurePolicy, TaskState, When, by_group
from taskgraph.protocol.concurrency import scopes_of
from taskgraph.protocol.definitions import (
    DEFINED_COLUMNS,
    SCHEMA_OF_CONDITIONS,
    TIMING_COLUMNS,
    defined_columns,
    definition_row,
    definition_text,
    gathered,
    is_short,
    spread,
    timing_columns,
)
from taskgraph.protocol.edit import (
    EDITABLE,
    EditGraph,
    RefuseEdit,
    TaskEdit,
    ended_in,
    has_started,
    listed,
    not_editable,
)
from taskgraph.protocol.extension import portions, request_key
from taskgraph.protocol.rows import Draft
from taskgraph.protocol.wiring import Link
from taskgraph.queries.groups import members_of
from taskgraph.storage.tables import Insert, Range, Row, query_all

_FOR_WORKER: Final = ("maxRunTime", "retry")  # keys of a node that stand in the definition, too
_DEFINING: Final = frozenset({"task", "deadline", *_FOR_WORKER})
_TOLD_CHARS_MAX: Final = 20_000  # of what the journal says of one edit
_COMPLETED: Final = TaskState.COMPLETED.value
_ENDED: Final = (_COMPLETED, TaskState.FAILED.value, TaskState.EXCEPTION.value, TaskState.SKIPPED.value)


async def read_request(records: Records, graph_id: str, request: str) -> EditDocument:
    """The document of a request. Raises InvalidGraph if its rows hold none."""
    key = request_key(request)
    parts = await query_all(records.tables, graph_id, Range(f"{key}:", f"{key};"))
    return read_edit("".join(gathered(part.columns, "text") for part in parts), source=key)


async def plan_edit(
    records: Records, graph_id: str, graph: Row, document: EditDocument, request: str, *, again: bool = False
) -> EditGraph | RefuseEdit:
    """What an edit comes to for the graph as it is, or why it is refused.

    again: it was made before, so what it takes away may be gone.
    """
    revision = graph.columns.get("revision", 0)
    if not isinstance(revision, int):
        raise IntegrityError(f"row {graph.key}: the revision is {revision!r}")
    state = graph.columns.get("state")
    if state not in EDITABLE:
        return RefuseEdit(request, revision, f"the graph is {state}; only one that runs or is blocked is edited")
    if document.if_revision is not None and document.if_revision != revision:
        reason = f"the revision of the graph is {revision}, not {document.if_revision}: look at it again"
        return RefuseEdit(request, revision, reason)
    try:
        plan = await _laid_out(records, graph_id, graph, document, request, revision, again=again)
        await _check_results(records, graph_id, plan)
        return plan.item()
    except _RefusedError as refused:
        return RefuseEdit(request, revision, str(refused))


async def still_holds(records: Records, graph_id: str, graph: Row, document: EditDocument) -> bool:
    """Whether an edit that was made before would change nothing now, whatever the graph would say to it."""
    try:
        plan = await _laid_out(records, graph_id, graph, document, document.request, 0, again=True)
    except _RefusedError:
        return False
    return plan.item().changes_nothing


async def _laid_out(
    records: Records, graph_id: str, graph: Row, document: EditDocument, request: str, revision: int, *, again: bool
) -> "_Plan":
    plan = _Plan(graph_id, graph, await read_snapshot(records, graph_id, graph), document, request, revision)
    plan.resolve(again=again)
    await _read_touched(records, graph_id, plan)
    plan.lay_out()
    return plan


class _RefusedError(Exception):
    """No error: the graph forbids the edit. Never leaves this room."""


async def _read_touched(records: Records, graph_id: str, plan: "_Plan") -> None:
    """The rows that are changed or go, whole."""
    keys = [key for each in (*plan.updates, *plan.gone) for key in (row_key(each), f"definition:{each}")]
    found = await records.tables.get(graph_id, keys)
    plan.touched = {row.key: row for row in found if row is not None}


class _Plan:
    """One edit in the making."""

    def __init__(
        self, graph_id: str, graph: Row, snapshot: Snapshot, document: EditDocument, request: str, revision: int
    ) -> None:
        self.graph_id = graph_id
        self.graph = graph
        self.snapshot = snapshot
        self.document = document
        self.request = request
        self.revision = revision
        self.goes_on = graph.columns.get("failurePolicy") == FailurePolicy.CONTINUE
        self.names = {str(rows[0].columns.get("label", "")): own for own, rows in snapshot.groups.items()}
        self.updates: dict[str, Update] = {}
        self.deleted: dict[str, None] = {}  # tasks
        self.gone: dict[str, None] = {}  # these, and the shared joins of groups that go
        self.groups_gone: list[str] = []
        self.touched: dict[str, Row] = {}
        self.requires: dict[str, list[str]] = {}  # of updated tasks, where it is another
        self.delete: dict[str, None] = {}
        self.cut: dict[tuple[str, str], None] = {}
        self.lost: dict[tuple[str, str], None] = {}
        self.links: dict[str, list[str]] = {}
        self.leaves: list[str] = []
        self.inserts: list[Insert] = []
        self.columns: dict[str, dict[str, Value]] = {}
        self.edits: list[TaskEdit] = []
        self.removed: set[tuple[str, str]] = set()
        self.added: set[tuple[str, str]] = set()
        self.definitions: dict[str, str] = {}  # of updated tasks, as they will be
        self.told: list[dict[str, Any]] = []

    # --- who is meant

    def resolve(self, *, again: bool) -> None:
        """Find the tasks and groups that the edit names. again: those that go may be gone."""
        self.updates = {self._task(label): update for label, update in self.document.updates.items()}
        self.deleted = dict.fromkeys(
            self._task(label)
            for label in self.document.delete
            if not again or task_id_of(self.graph_id, label) in self.snapshot.rows
        )
        for name in self.document.delete_groups:
            if again and name not in self.names:
                continue
            if name not in self.names:
                raise _RefusedError(f"the graph has no group “{name}”")
            members = members_of(self.snapshot.groups[self.names[name]])
            self.deleted.update(dict.fromkeys(members))
        if both := [self.snapshot.label(each) for each in self.deleted if each in self.updates]:
            raise _RefusedError(f"{', '.join(sorted(both)[:5])} is to be updated, and goes with its group")
        self.gone = dict(self.deleted)
        for own, rows in self.snapshot.groups.items():
            if self.deleted and self.deleted.keys() >= set(members_of(rows)):
                self.groups_gone.append(own)
        going = set(self.groups_gone)
        if going:
            self.gone.update(
                dict.fromkeys(each for each in self.snapshot.rows if is_shared(each) and group_of(each) in going)
            )
        held = set(Draft(GRAPH, self.graph.columns, None).ids("held"))
        for own in self.groups_gone:
            name = str(self.snapshot.groups[own][0].columns.get("label", ""))
            if by_group(name) in held:
                raise _RefusedError(f"group “{name}” is paused, and would go: resume it first")

    def _task(self, label: str) -> str:
        own = task_id_of(self.graph_id, label)
        if own not in self.snapshot.rows:
            what = ", but a group: name it in deleteGroups" if label in self.names else ""
            raise _RefusedError(f"the graph has no task “{label}”{what}")
        return own

    def _stand_in(self, name: str) -> list[str]:
        """What a requirement comes to: a task, the join of a group, or the tasks of a group that has none."""
        own = task_id_of(self.graph_id, name)
        if own in self.snapshot.rows:
            return [own]
        if name not in self.names:
            what = "task or group" if self.names else "task"
            raise _RefusedError(f"the graph has no {what} “{name}”")
        rows = self.snapshot.groups[self.names[name]]
        join = str(rows[0].columns.get("join", ""))
        if join and join not in self.gone:
            return [join]
        left = [each for each in members_of(rows) if each not in self.deleted]
        if not left:
            raise _RefusedError(f"group “{name}” is required, and goes")
        return left

    # --- what becomes of it

    def lay_out(self) -> None:
        """Everything that the rule will do, row by row."""
        for key in (*map(row_key, self.updates), *map(row_key, self.deleted)):
            row = self.touched.get(key)
            if row is None:
                raise _RefusedError(f"the row {key} is gone; see taskgraph doctor")
        news = {own: self._news(own, update) for own, update in self.updates.items()}
        self.updates = {own: update for own, update in news.items() if update.keys}
        graph = Draft(GRAPH, self.graph.columns, None)
        for own, update in self.updates.items():
            task = Draft(own, self.touched[row_key(own)].columns, None)
            if reason := not_editable(task, graph):
                raise _RefusedError(reason)
            if "requires" in update.keys and ended_in(task) is not None:
                raise _RefusedError(f"“{update.label}” has ended: what it requires cannot be another any more")
        for own in self.deleted:
            if reason := has_started(Draft(own, self.touched[row_key(own)].columns, None)):
                raise _RefusedError(reason)
        for own, update in self.updates.items():
            self._update(own, update)
        for own in self.gone:
            self._take_away(own)
        self._outsiders()
        for below, name in list(self.lost):
            if below != GRAPH and owner_of(below) != GRAPH:
                self.removed.add((owner_of(below), name))
        self._forks_and_leaves()
        self._check_cycle()
        self._name_tables()

    def _update(self, own: str, update: Update) -> None:
        row = self.touched[row_key(own)]
        columns, clear = self._definition(own, update, row)
        clear = [name for name in clear if name in row.columns]
        keys, node = update.keys, update.node
        if "reruns" in keys:
            columns["rerunsAllowed"], columns["rerunsLeft"] = node.reruns, self._reruns_left(update, row)
        if "priority" in keys:
            if level := priorities.column(node.priority):
                columns[priorities.COLUMN] = level
            elif priorities.COLUMN in row.columns:
                clear.append(priorities.COLUMN)
        changed = hashlib.sha256(f"{row.columns.get('digest', '')}\0{self.request}".encode())
        columns["digest"] = changed.hexdigest()[:32]
        when = str(row.columns.get("when", When.ALL_COMPLETED))
        if "when" in keys and str(node.when) != when:
            when = str(node.when)
            if when == When.ALL_COMPLETED:
                clear.append("when")
            else:
                columns["when"] = when
        requires = self._requirements(own, update, row)
        final = self.requires[own] if requires is not None else self.snapshot.required(own)
        optional = (
            self._optional(update) if requires is not None else frozenset(Draft("", row.columns, None).ids("optional"))
        )
        conditional = when != When.ALL_COMPLETED
        if (conditional or optional) and not self.goes_on:
            raise _RefusedError(
                f"“{update.label}” would have a condition or optional requirements, which need failurePolicy: continue"
            )
        if conditional and not final:
            raise _RefusedError(f"“{update.label}” has `when: {when}`, and would require nothing: update `when` too")
        if when == When.ANY_FAILED and optional.issuperset(final):
            raise _RefusedError(f"“{update.label}” runs when a requirement failed, and all of them would be optional")
        self.edits.append(
            TaskEdit(
                own,
                columns,
                tuple(clear),
                requires=requires,
                optional=tuple(each for each in requires or () if each in optional),
                active=node.active if "active" in keys else None,
                again="when" in keys,
                ended=ended_in(Draft(own, row.columns, None)),
            )
        )
        told: dict[str, Any] = {"task": own, "label": update.label, "fields": sorted(keys)}
        name = self.snapshot.name
        if added := [name(each) for child, each in sorted(self.added) if child == own]:
            told["requires"] = added
        if removed := [name(each) for child, each in sorted(self.removed) if child == own]:
            told["requiresNoMore"] = removed
        self.told.append(told)

    def _definition(self, own: str, update: Update, row: Row) -> tuple[dict[str, Value], list[str]]:
        """Columns of the definition and of time that are others, and those that go."""
        keys, node = update.keys, update.node
        columns: dict[str, Value] = {}
        clear = [name for name in TIMING_COLUMNS if name in keys]
        if "notBefore" in keys and "pauseSeconds" in row.columns:
            clear.append("pauseSeconds")  # it is no pause any more
        if timed := {key: value for key, value in node.timing.items() if key in keys}:
            columns.update(timing_columns(timed))
            schema = row.columns.get("schema", 1)
            columns["schema"] = max(schema if isinstance(schema, int) else 1, SCHEMA_OF_CONDITIONS)
        longer = self.touched.get(f"definition:{own}")
        before = self._definition_of(own)
        if keys.isdisjoint(_DEFINING):
            self.definitions[own] = before
            return columns, [each for each in clear if each not in columns]
        _, told, text = self._redefined(own, update)
        self.definitions[own] = text
        clear.append("refusal")  # somebody may be able to run it now
        defined = defined_columns(told, str(self.graph.columns.get(facts.ROUTING, "")))
        columns.update(defined)
        clear += [name for name in DEFINED_COLUMNS if name not in defined]
        deadline, first = defined.get("deadline"), self.graph.columns.get("nextDeadline")
        if isinstance(deadline, datetime):
            known = self.columns.get(GRAPH, {}).get("nextDeadline", first)
            self._set(GRAPH, "nextDeadline", min(deadline, known) if isinstance(known, datetime) else deadline)
        if is_short(text):
            columns["task"] = text
            if longer is not None:
                self.delete[longer.key] = None
        else:
            clear.append("task")
            made = definition_row(own, update.label, text)
            if longer is None:
                self.inserts.append(made)
            else:
                for name in longer.columns:
                    if name.startswith("task") and name not in made.columns:
                        self._set(longer.key, name, "")
                for name, value in made.columns.items():
                    self._set(longer.key, name, value)
        return columns, [each for each in clear if each not in columns]

    def _reruns_left(self, update: Update, row: Row) -> int:
        """Of a budget; what a task that has ended has spent of the one before stays spent."""
        was = Draft(row.key, row.columns, None)
        spent = was.integer("rerunsAllowed") - was.integer("rerunsLeft")
        if spent > update.node.reruns:
            raise _RefusedError(f"“{update.label}” has spent {spent} reruns, so its budget cannot be less")
        return update.node.reruns - spent

    def _definition_of(self, own: str) -> str:
        """The text of a definition as it stands."""
        longer = self.touched.get(f"definition:{own}")
        text = str(self.touched[row_key(own)].columns.get("task", ""))
        return text or (gathered(longer.columns, "task") if longer else "")

    def _redefined(self, own: str, update: Update) -> tuple[dict[str, Any], dict[str, Any], str]:
        """The definition as it stands, as the update says it, and the text of that."""
        keys, node = update.keys, update.node
        try:
            old = json.loads(self._definition_of(own))
        except ValueError as error:
            raise _RefusedError(
                f"“{update.label}” has no definition that could be read; see taskgraph doctor"
            ) from error
        told = {**node.task, **{key: old[key] for key in _FOR_WORKER if key in old}} if "task" in keys else dict(old)
        for key in ("deadline", *_FOR_WORKER):
            if key in keys:
                told.pop(key, None)
        if update.deadline and "deadline" in keys:
            told["deadline"] = update.deadline
        told |= timing.for_worker({key: value for key, value in node.timing.items() if key in keys})
        if "task" not in keys:
            return old, told, canonical_json(told)
        for label in sorted(references(node)):
            if task_id_of(self.graph_id, label) not in self.snapshot.rows:
                raise _RefusedError(f"“{update.label}” refers to “{label}”, which is no task of the graph")
        return old, told, definition_text(told, lambda label: task_id_of(self.graph_id, label))

    def _news(self, own: str, update: Update) -> Update:
        """The update with those of its keys alone that say something else than the rows do."""
        columns, keys, node = self.touched[row_key(own)].columns, update.keys, update.node
        timed = timing_columns(node.timing)
        news = {name for name in TIMING_COLUMNS if name in keys and timed.get(name) != columns.get(name)}
        if not keys.isdisjoint(_DEFINING):
            old, told, text = self._redefined(own, update)
            if "task" not in keys:
                news |= {key for key in _FOR_WORKER if key in keys and told.get(key) != old.get(key)}
                if "deadline" in keys and defined_columns(told, "").get("deadline") != columns.get("deadline"):
                    news.add("deadline")
            elif text != self._definition_of(own):
                news |= keys & _DEFINING  # all of it is written anew
        if "when" in keys and str(node.when) != columns.get("when", When.ALL_COMPLETED):
            news.add("when")
        if "reruns" in keys and node.reruns != columns.get("rerunsAllowed"):
            news.add("reruns")
        if "priority" in keys and priorities.column(node.priority) != columns.get(priorities.COLUMN, ""):
            news.add("priority")
        row = Draft("", columns, None)
        if "active" in keys and node.active == (INACTIVE in row.ids("held")):
            news.add("active")
        if "requires" in keys:
            wanted = {each for name in node.requires for each in self._stand_in(name)}
            if wanted != set(self.snapshot.required(own)) or self._optional(update) != set(row.ids("optional")):
                news.add("requires")
        return replace(update, keys=frozenset(news))

    def _set(self, key: str, name: str, value: Value) -> None:
        self.columns.setdefault(key, {})[name] = value

    def _optional(self, update: Update) -> frozenset[str]:
        node = update.node
        must = {each for name in node.requires if name not in node.optional for each in self._stand_in(name)}
        return frozenset(each for name in node.optional for each in self._stand_in(name)) - must

    def _requirements(self, own: str, update: Update, row: Row) -> tuple[str, ...] | None:
        """What the task requires from now on, as references; None if that is what it requires."""
        if "requires" not in update.keys:
            return None
        wanted = list(dict.fromkeys(each for name in update.node.requires for each in self._stand_in(name)))
        if own in wanted:
            raise _RefusedError(f"“{update.label}” would require itself")
        if going := [self.snapshot.label(each) for each in wanted if each in self.gone]:
            raise _RefusedError(f"“{update.label}” would require {', '.join(going[:5])}, which goes")
        if len(wanted) > limits.REQUIRES_MAX:
            raise _RefusedError(_too_many_required(update, len(wanted)))
        self.requires[own] = wanted
        direct = set(self.snapshot.ids(own, "requires"))
        before = self.snapshot.required(own)
        for each in before:
            if each not in wanted:
                self.removed.add((own, each))
        for each in wanted:
            if each not in before:
                self.added.add((own, each))
            if each not in direct:
                self.links.setdefault(each, []).append(own)
        for each in direct:
            if not is_piece(each) and each not in wanted:
                self._cut(each, own)
        self._pieces_go(own)
        return tuple(wanted)

    def _pieces_go(self, own: str) -> None:
        """The joins that work for a node alone, with the edges that lead into them."""
        for piece in self.snapshot.pieces.get(own, ()):
            self.delete[row_key(piece)] = None
            for each in self.snapshot.ids(piece, "requires"):
                if not is_piece(each):
                    self._cut(each, piece)

    def _cut(self, name: str, below: str) -> None:
        """A node does not tell this row any more; if it goes itself, nothing need be written."""
        if name in self.gone:
            return
        for teller in self.snapshot.tellers(name):
            if below in self.snapshot.ids(teller, "dependents"):
                self.cut[teller, below] = None

    def _take_away(self, own: str) -> None:
        """A task, or the join of a group, goes, with all relays that work for it."""
        self.delete[row_key(own)] = None
        if f"definition:{own}" in self.touched:
            self.delete[f"definition:{own}"] = None
        for fork in self.snapshot.forks.get(own, ()):
            self.delete[row_key(fork)] = None
        for each in self.snapshot.ids(own, "requires"):
            if not is_piece(each):
                self._cut(each, own)
        self._pieces_go(own)
        self.removed.update((own, each) for each in self.snapshot.required(own))

    def _told_by(self, name: str) -> Iterator[str]:
        """The rows that a node tells, forks looked through."""
        for teller in self.snapshot.tellers(name):
            yield from (each for each in self.snapshot.ids(teller, "dependents") if not each.startswith("fork:"))

    def _outsiders(self) -> None:
        """Whoever waits for what goes: others that go, those that are given other requirements, and relays."""
        outside: dict[str, str] = {}
        for own in self.gone:
            for below in self._told_by(own):
                owner = owner_of(below)
                if owner in self.gone or owner in self.requires:
                    continue
                if owner == GRAPH or (is_shared(owner) and not owner.endswith("start")):
                    self.lost[below, own] = None
                else:
                    outside[self.snapshot.label(owner)] = self.snapshot.label(own)
        if outside:
            shown = ", ".join(f"{name} requires {what}" for name, what in sorted(outside.items())[:5])
            more = f", and {len(outside) - 5} more" if len(outside) > 5 else ""
            raise _RefusedError(f"{shown}{more}: delete these too, or give them other requirements")

    def _forks_and_leaves(self) -> None:
        """Forks that tell nobody any more go; what tells nobody any more is a leaf, for which the graph waits."""
        names = dict.fromkeys(told_as(teller) for teller, _ in self.cut)
        for name in names:
            forks = dict.fromkeys(self.snapshot.forks.get(name, ()))
            left = {
                teller: [each for each in self.snapshot.ids(teller, "dependents") if (teller, each) not in self.cut]
                for teller in self.snapshot.tellers(name)
            }
            while empty := [fork for fork in forks if not left[fork]]:
                for fork in empty:
                    del forks[fork]
                    self.delete[row_key(fork)] = None
                    for teller, told in left.items():
                        if fork in told:
                            told.remove(fork)
                            self.cut[teller, fork] = None
            if not left[name] and name not in self.links:
                self.leaves.append(name)
        self.cut = dict.fromkeys(pair for pair in self.cut if row_key(pair[0]) not in self.delete)
        if len(self.leaves) > limits.REQUIRES_MAX:
            raise _RefusedError(f"{len(self.leaves)} tasks would have no dependent any more: split it")

    def _check_cycle(self) -> None:
        if not self.added:
            return
        snapshot = self.snapshot
        for cycle, _, _ in graph_algorithms.cycles(self.edges_after()):
            path = " → ".join(snapshot.label(each) for each in (*cycle, cycle[0]))
            raise _RefusedError(f"the tasks would require each other in a circle (→ means requires): {path}")

    def edges_after(self) -> dict[str, Sequence[str]]:
        """What each task and shared join requires once the edit is made."""
        going = self.gone.keys()
        found: dict[str, Sequence[str]] = {}
        for reference in self.snapshot.rows:
            if reference in going or (is_relay(reference) and not is_shared(reference)):
                continue
            wanted = self.requires.get(reference)
            if wanted is None:
                wanted = [each for each in self.snapshot.required(reference) if each not in going]
            found[reference] = wanted
        return found

    def _name_tables(self) -> None:
        """Rows that list tasks for people, and those that tell who is in a group."""
        if not self.deleted:
            return
        labels = {str(self.touched[row_key(own)].columns.get("label", "")) for own in self.deleted}
        for row in (self.graph, *self.snapshot.mapping):
            text = gathered(row.columns, "nameMapping")
            mapping = json.loads(text) if text else {}
            if labels.isdisjoint(mapping):
                continue
            left = {label: own for label, own in mapping.items() if label not in labels}
            self._spread_out(row, "nameMapping", json.dumps(left, ensure_ascii=False, separators=(",", ":")))
        for own, rows in self.snapshot.groups.items():
            if own in self.groups_gone:
                self.delete.update(dict.fromkeys(row.key for row in rows))
                continue
            lost = 0
            for row in rows:
                members = members_of([row])
                kept = [each for each in members if each not in self.deleted]
                if len(kept) < len(members):
                    lost += len(members) - len(kept)
                    self._spread_out(row, "members", ids_text(kept))
            if lost:
                counted = rows[0].columns.get("tasks", 0)
                self._set(group_key(own), "tasks", (counted if isinstance(counted, int) else 0) - lost)
        scopes = scopes_of(self.graph.columns)
        if ended := [scope for own in self.groups_gone if (scope := group_owner(own)) in scopes]:
            self.delete.update(dict.fromkeys(map(limit_key, ended)))  # nothing of it has begun
            self._set(GRAPH, "limits", ids_text([scope for scope in scopes if scope not in ended]))
        if self.groups_gone:
            counted = self.graph.columns.get("groups", 0)
            self._set(GRAPH, "groups", (counted if isinstance(counted, int) else 0) - len(self.groups_gone))

    def _spread_out(self, row: Row, name: str, text: str) -> None:
        """Write a long text over the columns in which a longer one stood."""
        made = spread(name, text)
        for column in row.columns:
            if column.startswith(name) and column.removeprefix(name).isdecimal() and column not in made:
                self._set(row.key, column, "")
        for column, value in made.items():
            self._set(row.key, column, value)

    def item(self) -> EditGraph:
        """The item to decide."""
        return EditGraph(
            request=self.request,
            revision=self.revision,
            edits=tuple(self.edits),
            delete=tuple(self.delete),
            cut=tuple(self.cut),
            lost=tuple(self.lost),
            links=tuple(portions(Link(name, tuple(told)) for name, told in self.links.items())),
            leaves=tuple(self.leaves),
            inserts=tuple(self.inserts),
            columns=tuple(self.columns.items()),
            tasks=-len(self.deleted),
            edges=len(self.added) - len(self.removed),
            told=self._told(),
        )

    def _told(self) -> dict[str, Any]:
        """What the journal says beside the columns that change, within its bounds."""
        groups = [str(self.snapshot.groups[own][0].columns.get("label", "")) for own in self.groups_gone]
        deleted = sorted(str(self.touched[row_key(own)].columns.get("label", "")) for own in self.deleted)
        told: dict[str, Any] = {}
        for name, entries in (("updated", self.told), ("deleted", deleted), ("deletedGroups", sorted(groups))):
            told |= facts.listed(name, entries, _TOLD_CHARS_MAX // 3)
        if self.document.reason:
            told["reason"] = self.document.reason
        return told


def _too_many_required(update: Update, count: int) -> str:
    """Why an edit cannot let a task require so many: it is one commit, and each of them is a row that it writes."""
    return (
        f"“{update.label}” would require {count} tasks, and an edit can add {limits.REQUIRES_MAX} requirements to one: "
        "add a task by an extension that requires them all, or their group, and let it require that task"
    )


async def _check_results(records: Records, graph_id: str, plan: _Plan) -> None:
    """Nobody is to use a result that nothing makes it wait for any more."""
    if not plan.removed and not plan.updates:
        return
    asked: dict[str, list[str]] = {}
    texts = {**await _long_definitions(records, graph_id, plan), **plan.definitions}
    for own, row in plan.snapshot.rows.items():
        never = row.columns.get("state") in _ENDED and own not in plan.updates  # it runs by this definition no more
        if is_relay(own) or own in plan.gone or never:
            continue
        text = texts.get(own) or str(row.columns.get("task", ""))
        if results.may_take(text) and (used := _taken(text)):
            asked[own] = used
    if not asked:
        return
    snapshot = plan.snapshot
    for own, missing in without_requirement(asked, plan.edges_after()).items():
        over = {each for each in missing if (of := snapshot.rows.get(each)) and of.columns.get("state") == _COMPLETED}
        early = sorted(missing - over)
        if early:
            what = listed([snapshot.name(each) for each in early])
            who = snapshot.label(own)
            raise _RefusedError(f"{who} uses the result of {what}, which it would not require, directly or not")


def _taken(text: str) -> list[str]:
    try:
        definition = json.loads(text)
    except ValueError:
        return []
    return results.taken_from(definition) if isinstance(definition, dict) else []


async def _long_definitions(records: Records, graph_id: str, plan: _Plan) -> dict[str, str]:
    """Definitions that stand on rows of their own, of those that have not ended."""
    wanted = [
        f"definition:{own}"
        for own, row in plan.snapshot.rows.items()
        if not is_relay(own) and not row.columns.get("task") and row.columns.get("state") not in _ENDED
    ]
    if not wanted:
        return {}
    found: Iterable[Row | None]
    if len(wanted) <= limits.READ_ALONE_MAX:
        found = await records.tables.get(graph_id, wanted)
    else:
        found = await query_all(records.tables, graph_id, Range("definition:", "definition;"))
    return {row.key.removeprefix("definition:"): gathered(row.columns, "task") for row in found if row is not None}
