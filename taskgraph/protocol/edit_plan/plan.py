"""Plan an edit: the item that `protocol.edit` decides, row by row, or why the graph forbids it.

A plan is valid for one revision of the graph. It is made from pages that are no snapshot: states may be old, and the
rule looks at them again; edges may not, for whatever changes them raises the revision.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from taskgraph.documents import results
from taskgraph.documents.edit_document import Update
from taskgraph.documents.references import without_requirement
from taskgraph.model import facts, priorities
from taskgraph.model.columns import integer
from taskgraph.model.ids import GRAPH, group_key, group_owner, ids_text, is_relay, limit_key, row_key
from taskgraph.model.json_strict import compact_json
from taskgraph.model.states import TASK_UNRESOLVED, TaskState, When
from taskgraph.protocol.concurrency import scopes_of
from taskgraph.protocol.definitions import gathered, members_of
from taskgraph.protocol.edit import EditGraph, TaskEdit, ended_in, has_started, listed, not_editable
from taskgraph.protocol.edit_plan.definitions import Definitions, Writes, reruns_left
from taskgraph.protocol.edit_plan.edges import EdgeChanges
from taskgraph.protocol.edit_plan.names import Names, RefusedError
from taskgraph.protocol.extension import portions
from taskgraph.protocol.invariants.snapshot import read_json
from taskgraph.protocol.rows import Draft
from taskgraph.protocol.wiring import Link
from taskgraph.storage.tables import Row

_FACT_CHARS_MAX: Final = 20_000  # of what the journal says of one edit
_ENDED: Final = frozenset(TaskState) - TASK_UNRESOLVED


class EditPlan:
    """One edit, laid out."""

    def __init__(self, names: Names, touched: dict[str, Row], request: str) -> None:
        """touched: the rows of `Names.touched` that there are. Raises RefusedError."""
        self.names = names
        self._graph = names.graph
        self._snapshot = names.snapshot
        self._touched = touched
        self._request = request
        self._writes = Writes()
        self._definitions = Definitions(names, touched, self._writes)
        self.edges = EdgeChanges(names, self._writes.delete)
        self._edits: list[TaskEdit] = []
        self._updated: list[dict[str, Any]] = []
        for key in (*map(row_key, names.updates), *map(row_key, names.deleted)):
            if key not in touched:
                raise RefusedError(f"the row {key} is gone; see taskgraph doctor")
        news = {own: self._definitions.news(own, update) for own, update in names.updates.items()}
        self.updates = {own: update for own, update in news.items() if update.keys}
        self._check_states()
        for own, update in self.updates.items():
            self._update(own, update)
        for own in names.gone:
            self.edges.take_away(own, defined=f"definition:{own}" in touched)
        self.edges.settle()
        self._name_tables()

    def _task(self, own: str) -> Draft:
        return Draft(own, self._touched[row_key(own)].columns, None)

    def _check_states(self) -> None:
        graph = Draft(GRAPH, self._graph.columns, None)
        for own, update in self.updates.items():
            task = self._task(own)
            if reason := not_editable(task, graph):
                raise RefusedError(reason)
            if "requires" in update.keys and ended_in(task) is not None:
                raise RefusedError(f"“{update.label}” has ended: what it requires cannot be another any more")
        for own in self.names.deleted:
            if reason := has_started(self._task(own)):
                raise RefusedError(reason)

    def _update(self, own: str, update: Update) -> None:
        row = self._touched[row_key(own)]
        columns, clear = self._definitions.columns(own, update)
        clear = [name for name in clear if name in row.columns]
        keys, node = update.keys, update.node
        if "reruns" in keys:
            columns["rerunsAllowed"], columns["rerunsLeft"] = node.reruns, reruns_left(update, row)
        if "priority" in keys:
            if level := priorities.column(node.priority):
                columns[priorities.COLUMN] = level
            elif priorities.COLUMN in row.columns:
                clear.append(priorities.COLUMN)
        changed = hashlib.sha256(f"{row.columns.get('digest', '')}\0{self._request}".encode())
        columns["digest"] = changed.hexdigest()[:32]
        when = str(node.when if "when" in keys else row.columns.get("when", When.ALL_COMPLETED))
        if "when" in keys and when == When.ALL_COMPLETED:
            clear.append("when")
        elif "when" in keys:
            columns["when"] = when
        requires = self.edges.require(own, update)
        final = self._snapshot.required(own) if requires is None else requires
        was = self._task(own)
        optional = frozenset(was.ids("optional")) if requires is None else self.names.optional(update)
        conditional = when != When.ALL_COMPLETED
        if self._snapshot.not_passed(final if conditional else optional, self._graph):
            raise RefusedError(
                f"“{update.label}” would have a condition or optional requirements, which need failurePolicy: continue"
            )
        if conditional and not final:
            raise RefusedError(f"“{update.label}” has `when: {when}`, and would require nothing: update `when` too")
        if when == When.ANY_FAILED and optional.issuperset(final):
            raise RefusedError(f"“{update.label}” runs when a requirement failed, and all of them would be optional")
        self._edits.append(
            TaskEdit(
                own,
                columns,
                tuple(clear),
                requires=requires,
                optional=tuple(each for each in requires or () if each in optional),
                active=node.active if "active" in keys else None,
                again="when" in keys,
                ended=ended_in(was),
            )
        )
        fact: dict[str, Any] = {"task": own, "label": update.label, "fields": sorted(keys)}
        name = self._snapshot.name
        if added := [name(each) for child, each in sorted(self.edges.added) if child == own]:
            fact["requires"] = added
        if removed := [name(each) for child, each in sorted(self.edges.removed) if child == own]:
            fact["requiresNoMore"] = removed
        self._updated.append(fact)

    def _name_tables(self) -> None:
        """Rows that list tasks for people, those of groups and their members, and limits on groups that go."""
        if not self.names.deleted:
            return
        labels = {str(self._touched[row_key(own)].columns.get("label", "")) for own in self.names.deleted}
        for row in (self._graph, *self._snapshot.mapping):
            text = gathered(row.columns, "nameMapping")
            mapping = json.loads(text) if text else {}
            if labels.isdisjoint(mapping):
                continue
            left = {label: own for label, own in mapping.items() if label not in labels}
            self._writes.spread_out(row, "nameMapping", compact_json(left))
        for own, rows in self._snapshot.groups.items():
            if own in self.names.groups_gone:
                self._writes.delete.update(dict.fromkeys(row.key for row in rows))
                continue
            lost = 0
            for row in rows:
                members = members_of([row])
                kept = [each for each in members if each not in self.names.deleted]
                if len(kept) < len(members):
                    lost += len(members) - len(kept)
                    self._writes.spread_out(row, "members", ids_text(kept))
            if lost:
                self._writes.set(group_key(own), "tasks", integer(rows[0].columns, "tasks") - lost)
        scopes = scopes_of(self._graph.columns)
        if ended := [scope for own in self.names.groups_gone if (scope := group_owner(own)) in scopes]:
            self._writes.delete.update(dict.fromkeys(map(limit_key, ended)))  # nothing of it has begun
            self._writes.set(GRAPH, "limits", ids_text([scope for scope in scopes if scope not in ended]))
        if gone := len(self.names.groups_gone):
            self._writes.set(GRAPH, "groups", integer(self._graph.columns, "groups") - gone)

    def item(self, revision: int) -> EditGraph:
        return EditGraph(
            request=self._request,
            revision=revision,
            edits=tuple(self._edits),
            delete=tuple(self._writes.delete),
            cut=tuple(self.edges.cut),
            lost=tuple(self.edges.lost),
            links=tuple(portions(Link(name, tuple(below)) for name, below in self.edges.links.items())),
            leaves=tuple(self.edges.leaves),
            inserts=tuple(self._writes.inserts),
            columns=tuple(self._writes.columns.items()),
            tasks=-len(self.names.deleted),
            edges=len(self.edges.added) - len(self.edges.removed),
            fact=self._fact(),
        )

    def _fact(self) -> dict[str, Any]:
        """What the journal says beside the columns that change, within its bounds."""
        groups = sorted(map(self.names.group_name, self.names.groups_gone))
        deleted = sorted(str(self._touched[row_key(own)].columns.get("label", "")) for own in self.names.deleted)
        fact: dict[str, Any] = {}
        for name, entries in (("updated", self._updated), ("deleted", deleted), ("deletedGroups", groups)):
            fact |= facts.listed(name, entries, _FACT_CHARS_MAX // 3)
        if self.names.document.reason:
            fact["reason"] = self.names.document.reason
        return fact

    def long_definitions(self) -> list[str]:
        """Keys of definitions that stand on rows of their own, which `check_results` needs."""
        if not self.edges.removed and not self.updates:
            return []
        return [
            f"definition:{own}"
            for own, row in self._snapshot.rows.items()
            if not is_relay(own) and not row.columns.get("task") and row.columns.get("state") not in _ENDED
        ]

    def check_results(self, long: Mapping[str, str]) -> None:
        """No task is to use a result that nothing makes it wait for any more. long: taskId -> a long definition.

        Raises RefusedError.
        """
        if not self.edges.removed and not self.updates:
            return
        snapshot = self.names.snapshot
        asked: dict[str, list[str]] = {}
        texts = {**long, **self._definitions.texts}
        for own, row in snapshot.rows.items():
            over = row.columns.get("state") in _ENDED and own not in self.updates  # it runs by this definition no more
            if is_relay(own) or own in self.names.gone or over:
                continue
            text = texts.get(own) or str(row.columns.get("task", ""))
            definition = read_json(text) if results.may_take(text) else None
            if isinstance(definition, dict) and (used := results.taken_from(definition)):
                groups = {each: members_of(snapshot.groups[each]) for each in used if each in snapshot.groups}
                asked[own] = [task for each in used for task in groups.get(each, (each,))]
        if not asked:
            return
        for own, missing in without_requirement(asked, self.edges.after()).items():
            rows = {each: snapshot.rows.get(each) for each in missing}
            there = {each for each, row in rows.items() if row and row.columns.get("state") == TaskState.COMPLETED}
            if early := sorted(missing - there):
                what = listed([snapshot.name(each) for each in early])
                label = snapshot.label(own)
                raise RefusedError(f"{label} uses the result of {what}, which it would not require, directly or not")
