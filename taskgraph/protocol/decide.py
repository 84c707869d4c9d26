"""The state machine: (rows, what happened) -> what to write and what to send.

`decide` is a plain function over values: rows as they were read, items in the order they came, the time and the names
for new things. It gives a `Decision`, whose changes fit one commit, or `Need`, the keys of rows that must be read.

Two properties hold for every item, and the tests check them:
- decided again after it was committed, it changes nothing and asks for the same effects (a message may come twice),
  except those behind a relay that has fired: they wait for the sweep;
- an item that names a run which is not the task's present one changes nothing (a message may come late).

    task   unscheduled ── last requirement fulfilled ──▶ pending ── claim ──▶ running ── result ──▶ completed | failed
           running ── failed, reruns left | failed for the moment | lease lost | handed back ──▶ pending (run + 1)
           running ── leases lost too often, malformed ──▶ exception
           unscheduled | pending | running ── deadline passed; pending for too long ──▶ exception
           failed | exception ── manual rerun ──▶ pending (run + 1)
           completed | skipped, and what has gone on from there ── manual rerun ──▶ unscheduled (run + 1)
           unscheduled ── all requirements resolved, and not as its condition asks (policy `continue`) ──▶ skipped
    graph  running ── a task failed for good (policy `block`) ──▶ blocked ── last such task rerun ──▶ running
           running ── nothing outstanding ──▶ finished
           ── all rows written, in one commit ──▶ running
           submitting ── all rows written, in several ──▶ running | abandoned ──▶ cancelled
           running | blocked ── cancelled by request ──▶ cancelling ── every task resolved ──▶ cancelled
           finished | cancelled ── a task of it is rerun ──▶ running | blocked
    what a rerun takes back: see `protocol.recall`
    a task of a cancelled graph, or one that is cancelled alone: see `protocol.cancel`
    a task that is held back stands as it stands, and is neither sent nor claimed: see `protocol.pause`
    a task that has not started may be changed or taken away: see `protocol.edit`
    a change is made as it was planned, or not at all: see `protocol.planned`
           finished | cancelled | blocked ── fenced off ──▶ deleting ── nothing is left ──▶ deleted (a tombstone)
    a graph that goes to another store: see `protocol.transfer`
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from taskgraph.model import limits
from taskgraph.model.columns import Value
from taskgraph.model.errors import IntegrityError, TaskgraphError
from taskgraph.model.ids import event_key, is_relay, value
from taskgraph.model.messages import Cancel, HoldBack, Message, Prioritize, Rerun, TaskCompleted, TaskFailed
from taskgraph.model.priorities import COLUMN, level_of, rank
from taskgraph.model.spent import Spent
from taskgraph.model.states import TaskState
from taskgraph.model.utf16 import utf16_units
from taskgraph.protocol import (
    cancel,
    edit,
    extension,
    leases,
    lifecycle,
    pause,
    planned,
    prioritize,
    recall,
    relays,
    runs,
    set_limit,
    spending,
    transfer,
)
from taskgraph.protocol.context import ClaimOffer, Context, ContextMark, Dispatch, Effect, NoRoom, Outcome, Refill, Rule
from taskgraph.protocol.context import Item as Item  # for those who call `decide`
from taskgraph.protocol.definitions import SCHEMA
from taskgraph.protocol.propagation import is_held
from taskgraph.protocol.recall import Recall
from taskgraph.protocol.relays import Fire, Skip
from taskgraph.protocol.rows import Mark as RowsMark
from taskgraph.protocol.rows import NeedRows, View
from taskgraph.protocol.together import Stretch
from taskgraph.storage.checks import sent_bytes
from taskgraph.storage.tables import Change, Insert, Row

EVENT_CHARS_MAX: Final = 30_000
"""JSON of one event row; more facts than that wait for the next commit."""

_PENDING: Final = TaskState.PENDING.value  # as plain text: comparing with a member takes ten times as long
_OF_ITS_OWN: Final = frozenset({Fire, Skip, Recall})  # added by a decision itself
_READY: Final = frozenset({Dispatch, Refill})  # effects that are left out if the task has moved on in the end
_ROW_BYTES: Final = 100  # what a commit adds to each row: its keys, and the id of the operation
_ESCAPED_BYTES_MAX: Final = 12  # of a character, as a store is sent it: two escaped halves


@value
class Answer:
    """The outcome of one item, with a reason where there is one. error: the item could not be decided."""

    item: Item
    outcome: Outcome
    reason: str = ""
    error: TaskgraphError | None = None


@value
class Decision:
    """What one commit writes, the effects to send after it, the outcome of each item, and the items that did not fit.

    spent: what the graph has cost, as the event row says; None where it says nothing. applied: every item was.
    unchanged: keys of rows that the decision rests on and does not write, so that no etag guards them: if one of them
    is old, the decision is wrong.
    """

    changes: tuple[Change, ...]
    effects: tuple[Effect, ...]
    answers: tuple[Answer, ...]
    left: tuple[Item, ...]
    unchanged: tuple[str, ...] = ()
    spent: Spent | None = None
    applied: bool = False


@value
class Need:
    """Keys of rows that must be read before the items can be decided."""

    keys: frozenset[str]


def decide(
    rows: Mapping[str, Row | None],
    items: Sequence[Item],
    *,
    now: datetime,
    operation: str,
    sequence: int,
    completed: int = -1,
    skipped: int = 0,
    spent: Spent | None = None,
    offer: ClaimOffer | None = None,
    changes_max: int | None = None,
) -> Decision | Need:
    """Decide as many items as fit one commit, in order.

    rows: row key -> row, or None for one that does not exist. operation: id of this commit. sequence: number of the
    event row that it may insert. completed, skipped: tasks that had completed, and been skipped, before; -1 if not
    known. spent: what the graph has cost, with this commit but for the runs that it ends; None if not known. take: an
    offer to claim what becomes ready. changes_max: rows in one commit, None for the bound of every store. An item that
    cannot be decided gets an answer with its error; the others go on.
    """
    if len(items) > 1 and (absent := runs.absent_dependents(items, rows)):
        return Need(frozenset(absent))  # asked for before anything is decided that would be decided again
    most, event_most = changes_max or limits.COMMIT_CHANGES_MAX, EVENT_CHARS_MAX
    while True:
        context = Context(View(rows), now, offer=offer, changes_max=most, skipped=skipped, sequence=sequence)
        decision = _decided(context, items, operation, completed, spent, event_most)
        if decision is not None:
            return decision
        event_most = event_most * 3 // 4


def _decided(
    context: Context, items: Sequence[Item], operation: str, completed: int, spent: Spent | None, event_most: int
) -> Decision | Need | None:
    """None where later items have changed so much of the rows of earlier ones that the facts are too long by that.

    event_most: characters of the facts, without what later items add to them.
    """
    view = context.view
    answers: list[Answer] = []
    needed: set[str] = set()
    todo: list[Item] = list(items)
    left: list[Item] = []
    position = looked_at = 0
    applied = True
    stretch = Stretch(context, event_most, limits.COMMIT_BYTES_MAX // _ESCAPED_BYTES_MAX - EVENT_CHARS_MAX)
    while position < len(todo):
        item = todo[position]
        if not needed and (end := stretch.run(todo, position)) > position:
            for each in todo[position:end]:
                if type(each) is not Fire:
                    answers.append(Answer(each, Outcome.APPLIED))  # noqa: PERF401  (of one, mostly)
            position = end
            if context.follow:
                todo[position:position] = _following(context)
            continue
        position += 1
        rows_mark, context_mark, looked_at = view.mark(), context.mark(), len(view.drafts)
        context.follow.clear()
        context.recalls.clear()
        try:
            outcome, reason = RULES[type(item)](item, context)
            if needed:
                continue  # the whole decision will be made again; only collect what else it needs
            if len(context.events) > len(context.event_texts):
                context.write_events()
            fits = _fits(view, context, event_most)
        except NoRoom:
            fits = False
        except NeedRows as need:
            needed |= need.keys
            _undo(context, rows_mark, context_mark)
            continue
        except TaskgraphError as error:
            _undo(context, rows_mark, context_mark)
            answers.append(Answer(item, Outcome.REFUSED, str(error), error))
            applied = False
            continue
        if not fits:
            _undo(context, rows_mark, context_mark)
            if view.changed():
                left = [item, *todo[position:]]
                break  # what only this item looked at is looked at again
            too_large = IntegrityError(f"{type(item).__name__} does not fit one commit")
            answers.append(Answer(item, Outcome.REFUSED, str(too_large), too_large))
            applied = False
            continue
        if type(item) not in _OF_ITS_OWN:
            answers.append(Answer(item, outcome, reason))
            applied = applied and outcome is Outcome.APPLIED
        todo[position:position] = _following(context)
        todo += map(Recall, context.recalls)
    if needed:
        return Need(frozenset(needed))
    looked_at = looked_at if left else len(view.drafts)
    if context.events:
        if spent is not None:
            spent = spending.total(spent, answers, view)
        texts = context.events_text
        if utf16_units(texts) > limits.PROPERTY_CHARS_MAX:
            return None
    effects = context.effects
    if not _READY.isdisjoint(map(type, effects)):
        effects = [each for each in effects if type(each) not in _READY or _stands(each, view)]  # type: ignore[arg-type]
    changes = view.changes(operation)
    unchanged = tuple(view.unchanged(looked_at, changes))
    if not context.events:
        return Decision(tuple(changes), tuple(effects), tuple(answers), tuple(left), unchanged, None, applied)
    changes.append(_event_row(context, texts, operation, completed, spent))
    return Decision(tuple(changes), tuple(effects), tuple(answers), tuple(left), unchanged, spent, applied)


def _following(context: Context) -> list[Fire | Skip]:
    return [Fire(each) if is_relay(each) else Skip(each) for each in context.follow]


def _stands(ready: Dispatch | Refill, view: View) -> bool:
    """Whether a task is to be sent when all is decided: nothing holds it back, and no later item has moved it on.

    An item that gives it another level sends it by itself, so what was to be sent at its old level is left out.
    """
    if not ready.task_id:
        return True  # a Refill for the room alone, without a task
    task = view.get(f"task:{ready.task_id}")
    if task.text("state") != _PENDING or task.integer("run") != ready.run or is_held(task):
        return False
    if COLUMN not in task.changed:
        return True
    level = level_of(task.value)
    return ready.level == level if isinstance(ready, Dispatch) else ready.rank == rank(level)


def _undo(context: Context, rows_mark: RowsMark, context_mark: ContextMark) -> None:
    context.view.rollback(rows_mark)
    context.rollback(context_mark)


def _event_row(context: Context, texts: str, operation: str, completed: int, spent: Spent | None) -> Insert:
    kinds = context.kinds
    columns: dict[str, Value] = {
        "schema": SCHEMA,
        "sequence": context.sequence,
        "time": context.now,
        "kinds": kinds[0] if len(kinds) == 1 else " ".join(dict.fromkeys(kinds)),
        "events": texts,
    }
    if completed >= 0:
        # Progress of the graph can be read from this row alone.
        columns["completed"] = completed + context.more_of("task-completed", TaskState.COMPLETED, kinds)
        skipped = context.skipped + context.more_of("task-skipped", TaskState.SKIPPED, kinds)
        if skipped > 0:
            columns["skipped"] = skipped
    if spent is not None:
        columns["spent"] = spent.text
    columns["operation"] = operation
    return Insert(event_key(context.sequence), columns)


def _fits(view: View, context: Context, event_most: int) -> bool:
    rows_max = context.changes_max - bool(context.events)
    if view.journal.rows > rows_max and len(view.changed()) > rows_max:
        return False
    if context.events_units > event_most:
        return False
    if (view.journal.chars + EVENT_CHARS_MAX) * _ESCAPED_BYTES_MAX <= limits.COMMIT_BYTES_MAX:
        return True  # whatever characters they are; only what might be too long is counted, and then measured
    changed = view.changed()
    size = sum(len(value) for draft in changed for value in draft.written.values() if isinstance(value, str))
    if (size + EVENT_CHARS_MAX) * _ESCAPED_BYTES_MAX <= limits.COMMIT_BYTES_MAX:
        return True
    size = sum(_ROW_BYTES + sent_bytes(draft.written) for draft in changed)
    return size + EVENT_CHARS_MAX * _ESCAPED_BYTES_MAX <= limits.COMMIT_BYTES_MAX


RULES: Final[dict[type, Rule]] = {  # for each type of item
    **runs.RULES,
    **recall.RULES,
    **relays.RULES,
    **lifecycle.RULES,
    **leases.RULES,
    **cancel.RULES,
    **pause.RULES,
    **spending.RULES,
    **prioritize.RULES,
    **set_limit.RULES,
    **extension.RULES,
    **edit.RULES,
    **transfer.RULES,
}
RULES.update(planned.rules(RULES))
_ITEMS_OF: Final[Mapping[type, Callable[[Any], Sequence[Item]]]] = {
    TaskCompleted: runs.completions_of,
    TaskFailed: runs.failures_of,
    Rerun: recall.reruns_of,
    Cancel: cancel.items_of,
    HoldBack: pause.items_of,
    Prioritize: prioritize.items_of,
}


def asked(message: Message) -> Sequence[Item]:
    """A message as items about the tasks that it names; none for one that takes commits of its own."""
    items = _ITEMS_OF.get(type(message))
    return items(message) if items is not None else ()
