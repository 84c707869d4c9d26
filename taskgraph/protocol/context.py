"""What a rule works with: rows, the time, effects, facts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from taskgraph.model import facts, limits
from taskgraph.model.ids import value
from taskgraph.model.json_strict import compact_json
from taskgraph.model.priorities import NORMAL, NORMAL_RANK
from taskgraph.model.states import FailurePolicy, GraphState
from taskgraph.model.utf16 import utf16_units
from taskgraph.protocol.rows import View

CANCELLED: Final = "cancelled"
"""Code of a resolution: somebody asked for it to be cancelled."""

FAIL_FAST: Final = FailurePolicy.FAIL_FAST.value
"""Code of a resolution: another task failed for good, and the rest was cancelled (failure policy)."""


@value
class Dispatch:
    """Effect: tell the workers of a target that this run of a task is ready. A hint, repeated freely (D9).

    delay_seconds: they are to hear of it so much later, as it is not ready yet. level: see `priorities`.
    """

    task_id: str
    run: int
    target: str
    delay_seconds: float = 0.0
    level: str = NORMAL


@value
class Refill:
    """Effect: look whom there is room for under the limits of the graph, and tell them.

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
    """Effect: this run has been claimed in the very commit that made it ready, and whoever offered to begin it may.

    definition: JSON text of the task's definition.
    """

    task_id: str
    run: int
    claim: str
    label: str
    definition: str


@dataclass(frozen=True, slots=True)
class Take:
    """An offer to claim tasks in the commit that makes them ready: one commit instead of a message and a claim.

    claims: fresh ids, one for each task that may be taken. fits: whether the definition (JSON text) is one that the
    worker can run; a plain function. begins: so many of them are for free slots, the rest wait for one; None for all.
    limited: whether it may take tasks that are under a limit; not while others have waited for room for longer.
    rank_max: of tasks of this rank (see `priorities`) and of better ones; others stand pending, for something of a
    higher level waits already.
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
    """Effect: a run is cancelled, and whoever runs it is to stop it. at_once: nothing that it says counts any more.

    For the workers of this process; others hear of it when they renew their lease.
    """

    task_id: str
    run: int
    claim: str
    reason: str
    at_once: bool


@dataclass(frozen=True, slots=True)
class Cancelling:
    """Effect: the graph is fenced off. What is left of its tasks is cancelled now, and then it is `cancelled`.

    The state of the graph says the same: should nobody do it now, the sweep does. fenced: it has just been, so every
    task is to be looked at; else a run has ended which may have been the last one.
    """

    fenced: bool = False


@dataclass(frozen=True, slots=True)
class GraphEnded:
    """Effect: the graph needs no sweeping any more."""

    state: GraphState


@dataclass(frozen=True, slots=True)
class GraphRevived:
    """Effect: the graph needs sweeping (again)."""


class NoRoom(Exception):
    """No error: what an item changes has no room beside what was decided before it. Never leaves `decide`."""


class Outcome(StrEnum):
    """What became of an item."""

    APPLIED = "applied"
    REPEATED = "repeated"  # it was applied before: nothing to write, effects are sent again
    STALE = "stale"  # it speaks of a run, claim or state that is over
    REFUSED = "refused"  # the state forbids it
    ENDED = "ended"  # it met a task past its time, which was resolved instead


Verdict = tuple[Outcome, str]
"""What a rule gives: what became of its item, and why; "" where there is no reason to give."""

ContextMark = tuple[int, int, int, int]
"""A point of a decision to go back to: its events, effects and claims, by number, and how long the events were."""

Effect = Dispatch | Refill | Started | Stop | Cancelling | GraphEnded | GraphRevived


@dataclass(slots=True)
class Context:
    """One decision in the making.

    events: facts that become the event row of the commit, in order. effects: what is sent after the commit.
    follow: relays that have become ready to pass on, and tasks that are to be skipped, in this decision or a later one.
    """

    view: View
    now: datetime
    events: list[dict[str, Any]] = field(default_factory=list)
    event_texts: list[str] = field(default_factory=list)
    """The JSON of each event, written once, at the end of its item: the decision weighs them then."""
    subjects: list[str] = field(default_factory=list)
    """The key of the row that each event speaks of."""
    touched: list[int] = field(default_factory=list)
    """How many columns of that row had been set when the event was written."""
    effects: list[Effect] = field(default_factory=list)
    follow: list[str] = field(default_factory=list)
    take: Take | None = None
    """Who would claim what becomes ready here."""
    taken: int = 0
    """How many of its claims have been used."""
    rows_before: int = 0
    """At most so many rows were to be written before the item that is being decided."""
    changes_max: int = limits.COMMIT_CHANGES_MAX
    """So many rows are written at most."""
    skipped: int = 0
    """How many tasks were skipped before; -1 if that is not known."""
    sequence: int = 0
    """Number of the event row that this decision may insert, 0 if not known yet."""
    scopes: set[str] = field(default_factory=set)
    """Limits whose rows the item that is being decided may write; so many rows there are beside its own."""
    events_units: int = 1
    """UTF-16 units of `events_text`; one less than of "[]" while there are no events."""

    def event(self, kind: str, *, about: str = "", **fields: Any) -> None:
        """Record a fact for people and listeners (D9). about: key of its row, where the fact does not say it."""
        event = {"event": kind, **fields}
        if None in event.values():
            event = {name: value for name, value in event.items() if value is not None}
        self.events.append(event)
        self.subjects.append(about or facts.subject(kind, fields))

    def write_events(self) -> None:
        """Write down the facts that the item which has just been decided states, now that all it changes is known."""
        texts, rows = self.event_texts, self.view.looked_at
        for number in range(len(texts), len(self.events)):
            event, key = self.events[number], self.subjects[number]
            row = rows.get(key)
            if row is None or not row.alters_just(facts.USUAL_SETS[event["event"]]):  # nearly all facts do
                self._name_changes(event, key)
            self.touched.append(-1 if row is None else len(row.changed))
            holder, column = facts.routing_at(key)
            if holder != key:
                row = rows.get(holder)
            if row is not None and (routing := row.text(column)):
                event[facts.ROUTING] = routing
            text = compact_json(event)
            texts.append(text)
            self.events_units += utf16_units(text) + 1  # its comma, or the bracket after the last

    def _name_changes(self, event: dict[str, Any], key: str) -> bool:
        """Let an event name the columns that have changed so far on its row; whether it did not say so yet."""
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
        """A point to which `rollback` can go back."""
        self.rows_before = self.view.rows_at_most
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
        """The events as the column of an event row holds them, when all items are decided.

        Later items may have changed more of a row. That is a few words, which the bound of the text leaves room for.
        """
        rows = self.view.looked_at
        for number, (key, touched) in enumerate(zip(self.subjects, self.touched, strict=True)):
            row = rows.get(key)
            moved = touched != len(row.changed) if row is not None else key == facts.EVERY_ROW
            if moved and self._name_changes(self.events[number], key):
                self.event_texts[number] = compact_json(self.events[number])
        return f"[{','.join(self.event_texts)}]"


Rule = Callable[[Any, Context], Verdict]
"""Decides one item: changes rows, states facts and effects in the context."""

Rules = Mapping[type, Rule]
"""The rule for each type of item."""

Asks = Mapping[type, Callable[[Any], list[Any]]]
"""What a message asks of tasks, as items, for each type of message."""
