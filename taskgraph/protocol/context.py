"""What a rule works with: rows, the time, effects, facts."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from taskgraph.model import facts, limits
from taskgraph.model.ids import value
from taskgraph.model.json_strict import compact_json
from taskgraph.model.priorities import NORMAL, NORMAL_RANK
from taskgraph.model.states import FailurePolicy, GraphState
from taskgraph.model.utf16 import utf16_units
from taskgraph.protocol.rows import Draft, View

CANCELLED: Final = "cancelled"
"""Code of a resolution: it was cancelled by request."""

FAIL_FAST: Final = FailurePolicy.FAIL_FAST.value
"""Code of a resolution: another task failed for good, and the rest was cancelled (failure policy)."""


class Item:
    """A thing that has happened, or is asked for: `decide.RULES` has a rule for each kind."""

    __slots__ = ()


@value
class Dispatch:
    """Effect: send the message that this run of a task is ready to the queue of its target; repeated freely (D9).

    delay_seconds: until the message may be received. level: see `priorities`.
    """

    task_id: str
    run: int
    target: str
    delay_seconds: float = 0.0
    level: str = NORMAL


@value
class Refill:
    """Effect: look for room under the limits of the graph, and dispatch what there is room for.

    A limited task is not dispatched by itself. With a task_id: this run of it stands ready, since then, under limits of
    these scopes, with a level of this rank. Without: there may be more room than before.
    """

    task_id: str = ""
    run: int = 0
    target: str = ""
    scopes: tuple[str, ...] = ()
    since: datetime | None = None
    rank: int = NORMAL_RANK


@value
class Started:
    """Effect: the commit that made this run ready has also claimed it for the worker that offered to take it.

    definition: JSON text of the task's definition.
    """

    task_id: str
    run: int
    claim: str
    label: str
    definition: str


@value
class ClaimOffer:
    """An offer to claim tasks in the commit that makes them ready: one commit instead of a message and a claim.

    claims: fresh ids, one for each task that may be taken. fits: whether the worker can run this definition (JSON
    text). begins: how many of them find a free slot, the rest wait for one; None for all. limited: whether it may take
    tasks under a limit; not while others have waited longer for room. rank_max: the worst rank that it takes (see
    `priorities`), None for any; what is worse stands pending, as something of a higher level waits already.
    """

    worker: str
    lease_until: datetime
    targets: frozenset[str]
    claims: Sequence[str]
    fits: Callable[[str], bool]
    begins: int | None = None
    limited: bool = True
    rank_max: int | None = None
    lease_seconds: float = 0.0


@value
class Stop:
    """Effect: a run is cancelled, and its worker is to stop it. at_once: its result does not count any more.

    For the workers of this process; others learn of it when they renew their lease.
    """

    task_id: str
    run: int
    claim: str
    reason: str
    at_once: bool


@value
class Cancelling:
    """Effect: the graph is fenced off. The tasks that are left are cancelled next, and then it is `cancelled`.

    The state of the graph says the same, so the sweep does it if this effect is lost. fenced: the fence is new, so
    every task is looked at; else a run has ended which may have been the last one.
    """

    fenced: bool = False


@value
class Recalled:
    """Effect: recalls may be left half way, or tasks that waited for the last of them and are to stand ready."""


@value
class Held:
    """Effect: the graph is fenced to be paused. Its tasks are held back next, and then it is said to be."""


@value
class CancelRest:
    """Effect: a group is decided, and what is left of it is cancelled. The row of its tally says the same (sweep)."""

    tally: str


@value
class GraphEnded:
    """Effect: the graph needs no sweeping any more."""

    state: GraphState


@value
class GraphRevived:
    """Effect: the graph needs sweeping (again). ended: it had ended, so its channels have been closed."""

    ended: bool = False


class NoRoom(Exception):
    """No error: the changes of an item do not fit beside those decided before it. Never leaves `decide`."""


class Outcome(StrEnum):
    APPLIED = "applied"
    REPEATED = "repeated"  # it was applied before: nothing to write, effects are sent again
    STALE = "stale"  # it names a run, claim or state that is over
    REFUSED = "refused"  # the state forbids it
    ENDED = "ended"  # it met a task past its time, which was resolved instead


Verdict = tuple[Outcome, str]
"""What a rule gives: the outcome of its item, and why; "" where there is no reason to give."""

ContextMark = tuple[int, int, int, int]
"""A point of a decision to go back to: numbers of events and effects, units of the events, claims used."""

Effect = Dispatch | Refill | Started | Stop | Cancelling | CancelRest | Recalled | Held | GraphEnded | GraphRevived


class Context:
    """One decision in the making.

    events: facts that become the event row of the commit, in order; event_texts: the JSON of each, written at the end
    of its item; subjects: the key of the row that each is about; touched: how many columns of that row had been set
    then, and how many entries the journal of the view had; events_units: UTF-16 units of `events_text`, one less than
    of "[]" while there are no events. effects: what is sent after the commit. follow: relays that are ready to fire,
    and tasks that are to be skipped, in this decision or a later one. recalls: rows that were reset, whose recalls come
    after all else. take: an offer to claim what becomes ready; taken: how many of its claims have been used.
    rows_before: an upper bound of the rows to be written before the item that is being decided; changes_max: the most
    rows of a commit. skipped: tasks skipped before, -1 if not known. sequence: number of the event row that may be
    inserted, 0 if not known yet. scopes: limits whose rows the item that is being decided may write, beside its own
    rows.
    """

    def __init__(
        self,
        view: View,
        now: datetime,
        *,
        offer: ClaimOffer | None = None,
        changes_max: int = limits.COMMIT_CHANGES_MAX,
        skipped: int = 0,
        sequence: int = 0,
    ) -> None:
        self.view = view
        self.now = now
        self.offer = offer
        self.changes_max = changes_max
        self.skipped = skipped
        self.sequence = sequence
        self.events: list[dict[str, Any]] = []
        self.event_texts: list[str] = []
        self.subjects: list[str] = []
        self.touched: list[tuple[int, int]] = []
        self.effects: list[Effect] = []
        self.follow: list[str] = []
        self.recalls: list[str] = []
        self.scopes: set[str] = set()
        self.taken = self.rows_before = 0
        self.events_units = 1

    def event(self, kind: str, of: Draft | None = None, /, *, about: str = "", **fields: Any) -> None:
        """Record a fact for people and listeners (D9).

        of: its task, whose id and label it names. about: key of its row, where the fact does not name it.
        """
        event: dict[str, Any] = {"event": kind, **fields}
        if of is not None:
            event = {"event": kind, "task": of.key.removeprefix("task:"), "label": of.text("label"), **fields}
        if None in event.values():
            event = {name: value for name, value in event.items() if value is not None}
        self.events.append(event)
        self.subjects.append(about or facts.subject(kind, event))

    @property
    def kinds(self) -> list[str]:
        """Of its facts, in order."""
        return [each["event"] for each in self.events]

    def more_of(self, kind: str, state: str, kinds: Sequence[str]) -> int:
        """By how many tasks there are more in a state after this decision: facts of this kind, without those reset."""
        taken_back = sum(each.get("was") == state for each in self.events) if "task-rerun" in kinds else 0
        return kinds.count(kind) - taken_back

    def write_events(self) -> None:
        """Write down the facts that the item just decided has stated, now that all its changes are known."""
        texts, rows = self.event_texts, self.view.drafts
        for number in range(len(texts), len(self.events)):
            event, key = self.events[number], self.subjects[number]
            row = rows.get(key)
            if row is None or not row.alters_just(facts.USUAL_SETS[event["event"]]):  # nearly all facts do
                self._name_changes(event, key)
            self.touched.append((-1 if row is None else len(row.changed), len(self.view.journal.entries)))
            holder, column = facts.routing_at(key)
            if holder != key:
                row = rows.get(holder)
            if row is not None and (routing := row.text(column)):
                event[facts.ROUTING] = routing
            text = compact_json(event)
            texts.append(text)
            self.events_units += utf16_units(text) + 1  # its comma, or the bracket after the last

    def _name_changes(self, event: dict[str, Any], key: str) -> bool:
        """Put the columns of its row that have changed so far into an event; whether that is new."""
        altered = self.view.altered_anywhere("request:") if key == facts.EVERY_ROW else self.view.altered(key)
        changed = facts.unusual_changes(event["event"], altered)
        if changed == event.get("changed"):
            return False
        if changed is None:
            del event["changed"]
        else:
            event["changed"] = changed
        return True

    def mark(self) -> ContextMark:
        self.rows_before = self.view.journal.rows
        self.scopes.clear()
        return len(self.events), len(self.effects), self.events_units, self.taken

    def rollback(self, mark: ContextMark) -> None:
        """Forget events and effects since the mark."""
        events, effects, self.events_units, self.taken = mark
        del self.events[events:]
        del self.subjects[events:]
        del self.touched[events:]
        del self.event_texts[events:]
        del self.effects[effects:]

    @property
    def events_text(self) -> str:
        """The column of an event row that holds the events, when all items are decided.

        Later items may have changed more of a row. That adds words to each of its facts: `decide` looks how many.
        """
        rows, entries = self.view.drafts, self.view.journal.entries
        first = self.touched[0][1] if self.touched else 0
        # What a later item sets may also be what was read: a column less has changed then, and none is new.
        if len(entries) == first and facts.EVERY_ROW not in self.subjects:
            return f"[{','.join(self.event_texts)}]"  # nothing has changed since the first was stated
        last = {id(changed): place for place, (changed, _, _) in enumerate(entries[first:], first)}
        for number, (key, (columns, place)) in enumerate(zip(self.subjects, self.touched, strict=True)):
            row = rows.get(key)
            if row is None:
                moved = key == facts.EVERY_ROW
            else:
                moved = columns != len(row.changed) or last.get(id(row.changed), -1) >= place
            if moved and self._name_changes(self.events[number], key):
                self.event_texts[number] = compact_json(self.events[number])
        return f"[{','.join(self.event_texts)}]"


Rule = Callable[[Any, Context], Verdict]
"""Decides one item: changes rows, states facts and effects in the context."""

Rules = Mapping[type, Rule]
"""The rule for each type of item."""
