"""Completions and claims decided many at a time, with what is the same for all of them done once.

Nearly all items of a busy graph are these, of tasks with nothing unusual about them, and relays that fire for such
tasks. The first that is not so ends a stretch: its rule in `runs` or `relays` decides it. Either way a decision is the
same to the letter.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, Final

from taskgraph.model.columns import Columns, Value
from taskgraph.model.facts import ROUTING_KEY
from taskgraph.model.ids import GRAPH, compact_ids, edge_name_of, row_key
from taskgraph.model.priorities import level_of, rank
from taskgraph.model.states import TaskState
from taskgraph.model.utf16 import utf16_units
from taskgraph.protocol.context import Context, Item, Started
from taskgraph.protocol.edit import EDITED
from taskgraph.protocol.propagation import ended_at, make_pending, resolution_text
from taskgraph.protocol.relays import Fire
from taskgraph.protocol.rows import SCHEMA_MAX, Draft
from taskgraph.protocol.runs import Claim, Completed
from taskgraph.protocol.tally import SCHEMA_OF_TALLIES

_UNSCHEDULED: Final = TaskState.UNSCHEDULED.value
_PENDING: Final = TaskState.PENDING.value
_RUNNING: Final = TaskState.RUNNING.value
_COMPLETED: Final = TaskState.COMPLETED.value
_SCHEMAS: Final = range(1, SCHEMA_MAX + 1)
_PLAIN_SCHEMAS: Final = frozenset(_SCHEMAS) - {SCHEMA_OF_TALLIES}
# Columns that a rule looks at and that a plain task does not have.
_AT_END: Final = frozenset({"cancel", "limits", "ended", "resolved", "resolution", ROUTING_KEY})
_WAITS: Final = frozenset({"limits", "held", "deadline", "pendingTimeout", "notBefore"})
_AT_CLAIM: Final = _WAITS | {"ahead", "leaseDoubts", EDITED}
_AT_READY: Final = _WAITS | {"cancel", "decides", "due", "failedBy", "leaseDoubts", "skippedBy", "when"}
_JUST_LEFT: Final = frozenset({"requiresLeft"})
_JUST_READY: Final = frozenset({"requiresLeft", "state"})
_READY_CHARS: Final = 100  # at most, that are written where a task becomes ready: its state, a claim; without a worker
_EXACT: Final = frozenset({str, int, bool, type(None)})  # of one type, equal ones have the same JSON
_USUAL_MAX: Final = 64  # texts of resolutions that are kept: most come again and again


ITEMS_MIN: Final = 1
"""Where fewer are left, each is decided by its rule."""


class Stretch:
    """Items of one decision, decided one after the other as long as they are plain.

    event_most: UTF-16 units of the facts of the commit; chars_most: characters of all other texts that it may write.
    """

    __slots__ = ("_below", "_chars_most", "_context", "_event_most", "_left", "_new", "_ready_chars", "_rows_most")

    def __init__(self, context: Context, event_most: int, chars_most: int) -> None:
        self._context = context
        self._event_most = event_most
        self._chars_most = chars_most
        self._rows_most = context.changes_max - 1  # the row of the facts is one
        self._ready_chars = _READY_CHARS + (len(context.offer.worker) if context.offer is not None else 0)
        # By row key, of dependents that are counted down: what they still require. It is written as the stretch ends.
        self._left: dict[str, str] = {}
        self._new: dict[str, Draft] = {}  # of these, as long as no item has counted them down
        self._below: dict[Value, tuple[str, ...] | None] = {}  # by the column `dependents`; None: its rule decides

    def run(self, items: Sequence[Item], start: int) -> int:
        """Decide items from the one at `start` on; gives the place of the first that is not decided.

        Ends behind an item that something follows from (`Context.follow`), too.
        """
        place, follow = start, self._context.follow
        follow.clear()
        if len(items) - start >= ITEMS_MIN:
            while place < len(items) and not follow and self._decide(items[place]):
                place += 1
            if self._left:
                self._write_left()
        return place

    def _decide(self, item: Item) -> bool:
        if type(item) is Completed:
            return self._complete(item)
        if type(item) is Claim:
            return self._claim(item)
        return type(item) is Fire and self._fire(item.reference)

    def _room(self, rows: int, chars: int) -> bool:
        journal = self._context.view.journal
        opened = len(self._left)  # more than are not counted yet
        return journal.rows + opened + rows <= self._rows_most and journal.chars + chars <= self._chars_most

    def _plain(self, task_id: str, state: str, run: int, unusual: frozenset[str]) -> Draft | None:
        """A new working copy of a task that no item has touched, is in this state and run, and has no such column."""
        view, key = self._context.view, f"task:{task_id}"
        row = view.rows.get(key)
        if row is None or key in view.drafts or key in self._left:
            return None
        columns = row.columns
        get = columns.get
        found = get("run")
        if get("state") != state or found != run or type(found) is not int or get("schema", 1) not in _SCHEMAS:
            return None
        return Draft(key, columns, row.etag, view.journal) if columns.keys().isdisjoint(unusual) else None

    def _complete(self, item: Completed) -> bool:
        task = self._plain(item.task_id, _RUNNING, item.run, _AT_END)
        if task is None or task.columns.get("claim") != item.claim or "cached" in item.resolution:
            return False
        label = task.columns.get("label", "")
        name = f'"{item.task_id}"'
        below = self._counted_down(task.columns, name)
        if below is None or type(label) is not str:
            return False
        context = self._context
        resolution = _resolution(item.resolution)
        task_id, named = encode_basestring(item.task_id), encode_basestring(label)
        fact = f'{{"event":"task-completed","task":{task_id},"label":{named},"run":{item.run}}}'
        units = utf16_units(fact) + 1
        chars = len(_COMPLETED) + len(resolution)
        if context.events_units + units > self._event_most or not self._room(1, chars + len(below) * self._ready_chars):
            return False
        now, journal, drafts = context.now, context.view.journal, context.view.drafts
        task.changed = {
            "state": _COMPLETED,
            "ended": ended_at(item.ended, context),
            "resolved": now,
            "resolution": resolution,
        }
        journal.rows += 1
        journal.chars += chars
        drafts[task.key] = task
        self._count_down(below, name)
        context.events.append({"event": "task-completed", "task": item.task_id, "label": label, "run": item.run})
        context.subjects.append(task.key)
        context.touched.append((len(task.changed), len(journal.entries)))
        context.event_texts.append(fact)
        context.events_units += units
        return True

    def _fire(self, reference: str) -> bool:
        relay = self._ready_relay(reference)
        if relay is None:
            return False
        name, opens = f'"{edge_name_of(reference)}"', not relay.changed
        if not relay.columns.keys().isdisjoint(_AT_READY) or (below := self._counted_down(relay.columns, name)) is None:
            return False
        if not self._room(opens, len(_COMPLETED) + len(below) * self._ready_chars):
            return False
        self._context.view.drafts[reference] = relay
        relay.set("state", _COMPLETED)
        self._count_down(below, name)
        return True

    def _ready_relay(self, reference: str) -> Draft | None:
        """A relay that waits for nothing more and has not passed that on, since an earlier item or commit."""
        view = self._context.view
        relay = view.drafts.get(reference)
        if relay is None:
            row = view.rows.get(reference)
            if row is None or reference in self._left or row.columns.get("schema", 1) not in _PLAIN_SCHEMAS:
                return None
            stands = row.columns.get("state") == _PENDING and row.columns.get("requiresLeft") == "[]"
            return Draft(reference, row.columns, row.etag, view.journal) if stands else None
        changed = relay.changed
        if relay.gone or relay.bare or relay.etag is None:
            return None
        if changed.get("state") != _PENDING or changed.get("requiresLeft") != "[]" or not changed.keys() <= _JUST_READY:
            return None
        return relay

    def _count_down(self, below: Sequence[str], name: str) -> None:
        """Take a name off what these rows still require; those that wait for nothing more go on."""
        drafts = self._context.view.drafts
        for key in below:
            if (new := self._new.pop(key, None)) is not None:
                drafts[key] = new
            left = self._left[key]
            if len(left) > len(name) + 2:
                self._left[key] = _without(left, name)
                continue
            del self._left[key]
            row = drafts[key]
            row.set("requiresLeft", "[]")
            if key.startswith("task:"):
                self._make_ready(row)
            else:
                row.set("state", _PENDING)
                self._context.follow.append(key)

    def _make_ready(self, task: Draft) -> None:
        """See propagation.make_ready: what a plain task is not held up by is left out."""
        context, offer, get = self._context, self._context.offer, task.columns.get
        definition = get("task")
        if (
            offer is None
            or context.taken >= len(offer.claims)
            or not definition
            or type(definition) is not str
            or (offer.rank_max is not None and rank(level_of(get)) > offer.rank_max)
            or get("target", "") not in offer.targets
            or not offer.fits(definition)
        ):
            make_pending(task, context)
            return
        claim, now, changed = offer.claims[context.taken], context.now, task.changed
        context.taken += 1
        changed["pendingSince"] = now
        if offer.begins is not None and context.taken > offer.begins:
            changed["ahead"] = True
        changed["state"] = _RUNNING
        changed["claim"] = claim
        changed["worker"] = offer.worker
        changed["leaseUntil"] = offer.lease_until
        seconds = offer.lease_seconds
        if seconds and get("leaseSeconds") != seconds:
            changed["leaseSeconds"] = seconds
        changed["started"] = now
        context.view.journal.chars += len(_RUNNING) + len(claim) + len(offer.worker)
        context.effects.append(Started(task.key[5:], get("run", 0), claim, task.text("label"), definition))  # type: ignore[arg-type]

    def _counted_down(self, columns: Columns, name: str) -> tuple[str, ...] | None:
        """Keys of the rows that wait for a task; None where one does not, or is unusual and waits for no other."""
        text = columns.get("dependents", "")
        if text not in self._below:
            self._below[text] = _keys_in(text)
        below = self._below[text]
        if below is None or self._context.view.journal.rows + len(self._left) + len(below) > self._rows_most:
            return None
        for key in below:
            left = self._left.get(key) or self._open(key)
            if name not in left or (len(left) == len(name) + 2 and not self._may_go(key)):
                return None
        return below

    def _open(self, key: str) -> str:
        """What a row still requires, as compact JSON of references that stand once; "" where that is not so."""
        view = self._context.view
        draft = view.drafts.get(key)
        if draft is None:
            row = view.rows.get(key)
            if row is None or row.columns.get("schema", 1) not in _PLAIN_SCHEMAS:
                return ""  # of a newer version, or a row that counts for a group
            draft = Draft(key, row.columns, row.etag, view.journal)
            left = row.columns.get("requiresLeft", "")
        elif draft.gone or draft.columns.get("tally"):
            return ""
        else:
            left = draft.text("requiresLeft")
        references = compact_ids(left)
        if not references or (len(references) > 1 and len(set(references)) < len(references)):
            return ""
        if type(left) is not str or not self._room(1, len(left)):
            return ""
        if key not in view.drafts:
            self._new[key] = draft
        self._left[key] = left
        return left

    def _may_go(self, key: str) -> bool:
        """Whether a task or relay that waits for nothing more goes on without a row beside its own."""
        draft = self._new.get(key) or self._context.view.drafts[key]
        columns, get = draft.columns, draft.columns.get
        if key == GRAPH or get("state") != _UNSCHEDULED or type(get("run", 0)) is not int:
            return False
        if type(get("label", "")) is not str or type(get("target", "")) is not str:
            return False
        if draft.changed and not draft.changed.keys() <= _JUST_LEFT:
            return False
        return columns.keys().isdisjoint(_AT_READY)

    def _write_left(self) -> None:
        drafts = self._context.view.drafts
        for key, left in self._left.items():
            if key not in self._new and (draft := drafts[key]).text("requiresLeft") != left:
                draft.set("requiresLeft", left)
        self._left.clear()
        self._new.clear()

    def _claim(self, item: Claim) -> bool:
        if item.edited or not self._room(1, len(_RUNNING) + len(item.claim) + len(item.worker)):
            return False
        task = self._plain(item.task_id, _PENDING, item.run, _AT_CLAIM)
        if task is None:
            return False
        changed: dict[str, Value] = {"ahead": True} if item.ahead else {}
        changed["state"] = _RUNNING
        changed["claim"] = item.claim
        changed["worker"] = item.worker
        changed["leaseUntil"] = item.lease_until
        seconds = item.lease_seconds
        if seconds and task.columns.get("leaseSeconds") != seconds:
            changed["leaseSeconds"] = seconds
        changed["started"] = self._context.now
        task.changed = changed
        journal = self._context.view.journal
        journal.rows += 1
        journal.chars += len(_RUNNING) + len(item.claim) + len(item.worker)
        self._context.view.drafts[task.key] = task
        return True


def _resolution(resolution: Mapping[str, Any]) -> str:
    """Its text; nearly all of them say the same."""
    values = resolution.values()
    if not _EXACT.issuperset(map(type, values)):
        return resolution_text(resolution)
    return _usual_text(*resolution, *values)


@lru_cache(_USUAL_MAX, typed=True)
def _usual_text(*names_and_values: Any) -> str:
    count = len(names_and_values) // 2
    return resolution_text(dict(zip(names_and_values[:count], names_and_values[count:], strict=True)))


def _without(references: str, name: str) -> str:
    """Compact JSON of references without one of several, which stands there with its quotes."""
    start = references.index(name)
    end = start + len(name)
    if references[end] == ",":
        return references[:start] + references[end + 1 :]
    return references[: start - 1] + references[end:]


def _keys_in(dependents: object) -> tuple[str, ...] | None:
    """Keys of the rows that a column `dependents` names; None where it names one twice, or has an unusual text."""
    references = compact_ids(dependents)
    if references is None or (len(references) > 1 and len(set(references)) < len(references)):
        return None
    return tuple(map(row_key, references))
