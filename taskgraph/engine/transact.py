"""Take items through read, decide, commit and send: the one loop by which anything changes a graph.

Handlers, workers' claims and the sweep all go through it (D8, D16). A decision is made by rows that are at hand,
committed under their etags, and made again when others wrote first. This module contains no rule about tasks, and
never knows which message an item came with.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from taskgraph.engine.commit import Operation, Records, changes_event
from taskgraph.engine.dispatch import Dispatcher
from taskgraph.engine.listeners import Counters, Listeners, LocalWorker
from taskgraph.engine.row_cache import CachedGraph, RowCache
from taskgraph.engine.telemetry import OFF, TRACEPARENT_COLUMN, Telemetry
from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.errors import Conflict, IntegrityError, NotFound
from taskgraph.model.ids import GRAPH, row_key
from taskgraph.model.names import QueueNames
from taskgraph.model.states import GRAPH_GONE, GRAPH_SEALED, GraphState, TaskState
from taskgraph.protocol.cancel import CancelTask
from taskgraph.protocol.context import CANCELLED, ClaimOffer, Dispatch, Outcome, Refill, Started
from taskgraph.protocol.decide import Answer, Decision, Item, Need, decide
from taskgraph.protocol.edit import DELETED_IN, EditGraph
from taskgraph.protocol.recall import ManualRerun, Recall
from taskgraph.protocol.relays import Fire, Skip
from taskgraph.protocol.rows import NewerSchema
from taskgraph.protocol.runs import LATER, Claim, Completed, Failed, HandBack, LeaseLost, Overdue
from taskgraph.queries.edges import references
from taskgraph.storage.queues import Queues
from taskgraph.storage.tables import Change, Insert, Merge, Row

log = logging.getLogger("taskgraph.handlers")

KeepAlive = Callable[[], Awaitable[None]]
"""Called between the steps of long work, so that the message in hand stays leased (P19)."""

_BACKOFF_SECONDS: Final = 0.02
_BACKOFF_SECONDS_MAX: Final = 2.0
_SUSPICIONS_MAX: Final = 5
_DOUBTS_MAX: Final = 5  # in a row that rows had to be read for a decision which was made by older ones
_KEPT_CONFLICTS_MAX: Final = 2  # in a row; then whatever is kept of the graph is taken for old
_ITEMS_MAX: Final = 400  # decided at a time
_NEEDS_MAX: Final = 4  # times that a decision asks for rows, one after the other, before more are read than it asks for
_ROUNDS_MAX: Final = 64  # after which a call ends, though its local worker has more: others wait
_SKIPPED: Final = TaskState.SKIPPED.value
_UNSCHEDULED: Final = TaskState.UNSCHEDULED.value
_JUDGES: Final = (EditGraph, ManualRerun, Recall)
"""Items that go by rows which they do not write."""
_BECAME: Final[Mapping[type[Item], str]] = {
    Completed: "completed",
    ManualRerun: "rerun-asked",
    LeaseLost: "lease-lost",
    Overdue: "exception",
    HandBack: "handed-back",
}
"""What a measurement says of a run that came to its end by such an item."""


async def back_off(clock: Clock, conflicts: int) -> None:
    """Let others go first, for longer the more often they did."""
    bound = min(_BACKOFF_SECONDS * 2 ** min(conflicts, 10), _BACKOFF_SECONDS_MAX)
    await clock.sleep(bound * clock.jitter())


async def no_keep_alive() -> None:
    """For callers that hold no message."""


@dataclass(slots=True)
class Transactor(ABC):
    """Takes items through the loop, for every caller of one process."""

    records: Records
    queues: Queues
    clock: Clock
    names: QueueNames = field(default_factory=QueueNames)
    counters: Counters = field(default_factory=Counters)
    listeners: Listeners = field(default_factory=Listeners)
    telemetry: Telemetry = OFF
    cached_rows_max: int | None = None
    """Rows that are remembered over all graphs; limits.CACHED_ROWS_MAX if None."""
    sends_beside: bool = False
    """Whether messages that follow from a commit are sent while the next commit of the same call is made."""
    row_cache: RowCache = field(init=False)
    dispatcher: Dispatcher = field(init=False)

    def __post_init__(self) -> None:
        self.row_cache = RowCache(self.records.tables, self.cached_rows_max)
        self.dispatcher = Dispatcher(
            self.records,
            self.queues,
            self.clock,
            self.names,
            self.row_cache,
            self.counters,
            self.telemetry,
            self.listeners,
        )

    @abstractmethod
    async def follow_up(
        self,
        graph_id: str,
        decision: Decision,
        rows: Mapping[str, Row | None],
        *,
        local_worker: LocalWorker | None,
        more: bool,
        keep_alive: KeepAlive,
    ) -> None:
        """Do what follows from a commit, or from items that needed none. Repeating it is harmless.

        rows: as the commit left them. more: further commits of the same call will send more.
        """

    async def transition(
        self,
        graph_id: str,
        items: Iterable[Item],
        *,
        keep_alive: KeepAlive = no_keep_alive,
        rows: dict[str, Row | None] | None = None,
        local_worker: LocalWorker | None = None,
        offer: ClaimOffer | None = None,
    ) -> list[Answer]:
        """Take items through read → decide → commit → send, in as many commits as they need.

        rows: what the caller has read already; brought up to date. offer: to take what becomes ready, of a worker that
        the caller hands it to. Raises NotFound for an unknown graph or task, and Conflict when others kept writing for
        `limits.COMMIT_ATTEMPTS_MAX` rounds: release the message then (P26).
        """
        run = _Transition(self, graph_id, rows if rows is not None else {}, None, keep_alive, local_worker, offer)
        return await run.to_the_end(items)

    async def advance(
        self,
        graph_id: str,
        items: Iterable[Completed | Claim],
        *,
        keep_alive: KeepAlive = no_keep_alive,
        local_worker: LocalWorker | None = None,
    ) -> list[Answer]:
        """`transition` for what a graph mostly consists of, by the rows that this process knows already.

        Known rows may be old. A change made by them is good, or its commit conflicts and they are read; whatever is
        decided by a row without changing it is only decided once that row has been read.
        """
        known = self.row_cache.of(graph_id)
        run = _Transition(self, graph_id, known.rows, known, keep_alive, local_worker)
        try:
            return await run.to_the_end(items)
        finally:
            known.forget_absent()

    def count(self, graph_id: str, decision: Decision) -> None:
        """Count what became of items, and log what belongs to no message."""
        for answer in decision.answers if not decision.applied else ():
            if answer.outcome is Outcome.APPLIED:
                continue
            if answer.error is not None and isinstance(answer.item, Fire | Skip | Recall):
                # It belongs to no message: the sweep tries again, and `doctor` names the damage.
                who = f"task {answer.item.task_id}" if isinstance(answer.item, Skip) else answer.item.reference
                log.error("graph %s: %s cannot pass on: %s", graph_id, who, answer.error)
            self.counters.stale += answer.outcome is Outcome.STALE
            self.counters.refused += answer.outcome is Outcome.REFUSED
        if self.telemetry.enabled:
            self._measure(graph_id, decision)

    def _measure(self, graph_id: str, decision: Decision) -> None:
        """Say what became of tasks, and of the graph, in numbers."""
        again = {effect.task_id for effect in decision.effects if isinstance(effect, Dispatch | Refill | Started)}
        counts = Counter(filter(None, (_became(answer, again) for answer in decision.answers)))
        if skipped := sum(isinstance(c, Merge) and c.columns.get("state") == _SKIPPED for c in decision.changes):
            counts["skipped"] = skipped
        for outcome, count in counts.items():
            self.telemetry.tasks(outcome, count)
        for change in decision.changes:
            if change.key == GRAPH and isinstance(change, Insert | Merge) and (state := change.columns.get("state")):
                self.telemetry.graph_state(graph_id, str(state))


@dataclass(slots=True)
class _Transition:
    """One call of `transition` or `advance`: the items that are left, and the rows by which they are decided."""

    transactor: Transactor
    graph_id: str
    rows: dict[str, Row | None]
    known: CachedGraph | None
    keep_alive: KeepAlive
    local_worker: LocalWorker | None
    offer: ClaimOffer | None = None  # where it is not asked for its own
    # Row key -> etag, as this call has read or written it (None: it was absent). What is known besides may be old.
    fresh: dict[str, str | None] = field(default_factory=dict)
    conflicts: int = 0
    suspicions: int = 0
    doubts: int = 0
    answers: list[Answer] = field(default_factory=list)
    theirs: set[int] = field(default_factory=set)  # items of the local worker, which gets their answers
    # A commit takes so many at most: what is for later is not looked at time and again.
    later: deque[Item] = field(default_factory=deque)
    sending: asyncio.Task[None] | None = None  # what follows from the last commit, while the next one is made

    async def to_the_end(self, items: Iterable[Item]) -> list[Answer]:
        try:
            return await self._rounds(items)
        finally:
            if self.sending is not None:
                await self.sending

    async def _rounds(self, items: Iterable[Item]) -> list[Answer]:
        left: Sequence[Item] = list(items)
        if self.known is not None:
            _suppose(left, self.known)
        rounds = needs = 0
        records = self.transactor.records
        while True:
            rounds += 1
            left = self._next(left, rounds)
            if not left:
                return self.answers
            known = self.rows.get
            own: set[str] = set()
            for item in left:
                if (key := _own_row(item)) and known(key) is None:
                    own.add(key)
            if own:
                await self._load([key for key in own if self._must_read(key)])
                absent = [item for item in left if (key := _own_row(item)) in self.rows and self.rows[key] is None]
                if absent:  # a message may be foreign, or early
                    missing = set(map(id, absent))
                    left = [item for item in left if id(item) not in missing]
                    self._give(await self._excused([_not_found(self.graph_id, item) for item in absent]))
                    continue
            offer = self._offer()
            operation = records.begin(self.graph_id)
            decision = self._decide(operation, left, offer)
            if not operation.sequence and isinstance(decision, Decision) and changes_event(decision.changes, 0):
                # Only facts need a number, and finding it takes a new process some reads: claims do without.
                operation = await records.operation(self.graph_id)
                decision = self._decide(operation, left, offer)
            if isinstance(decision, Need):
                await self._load(decision.keys)
                needs += 1
                if needs > _NEEDS_MAX:
                    await self._look_ahead(decision.keys, 2 ** min(needs - _NEEDS_MAX, 10))
                continue
            needs = 0
            certain = decision.applied and self.known is not None and not decision.unchanged
            if not certain and await self._doubts_about(decision, left):
                continue
            if decision.changes:
                try:
                    await self._commit(decision, operation)
                except Conflict as conflict:
                    await self._after(conflict, decision.changes, left)
                    continue
                self._committed(decision.changes)
            await self._follow(decision)
            left = decision.left

    def _next(self, left: Sequence[Item], rounds: int) -> Sequence[Item]:
        """Decided in this round: what the local worker has, what the last round left, and what was for later."""
        if self.known is not None and self.known.gone:
            self._go_fresh()  # what others here write does not reach it, and it could go back behind it
        if self.local_worker is not None and self.known is not None and (left or self.later or rounds <= _ROUNDS_MAX):
            more = self.local_worker.items(self.graph_id)
            self.theirs.update(map(id, more))
            left = [*more, *left]  # what has been done goes before what is to be begun
        if len(left) > _ITEMS_MAX:
            self.later.extendleft(reversed(left[_ITEMS_MAX:]))
            return left[:_ITEMS_MAX]
        if self.later:
            return [*left, *(self.later.popleft() for _ in range(min(len(self.later), _ITEMS_MAX - len(left))))]
        return left

    def _commit(self, decision: Decision, operation: Operation) -> Awaitable[None]:
        changes, lean = decision.changes, self.known is not None
        commit = self.transactor.records.commit(self.graph_id, changes, operation, self.rows, decision.spent, lean)
        telemetry = self.transactor.telemetry
        if not telemetry.enabled:
            return commit
        if (row := self.rows.get(GRAPH)) is not None:
            telemetry.met(self.graph_id, row.columns.get(TRACEPARENT_COLUMN))
        return telemetry.committing(self.graph_id, len(changes), commit)

    def _committed(self, changes: Sequence[Change]) -> None:
        self.transactor.counters.commits += 1
        listeners = self.transactor.listeners
        for note in listeners.news:
            note(self.graph_id)
        written = [row for change in changes if (row := self.rows.get(change.key)) is not None]
        if listeners.due:
            listeners.note_due(self.graph_id, written)
        self._tidy(changes, written)

    async def _follow(self, decision: Decision) -> None:
        """Give the answers, and do what follows from them."""
        transactor = self.transactor
        transactor.count(self.graph_id, decision)
        given: Sequence[Answer] = decision.answers
        if not decision.applied and any(isinstance(answer.error, IntegrityError | NewerSchema) for answer in given):
            given = await self._excused(given)
        self._give(given)
        more, earlier = bool(decision.left or self.later), self.sending
        following = transactor.follow_up(
            self.graph_id,
            decision,
            self.rows,
            local_worker=self.local_worker,
            more=more,
            keep_alive=self.keep_alive,
        )
        try:
            self.sending = asyncio.create_task(following) if more and self._may_wait(decision) else None
            if self.sending is None:
                await following
        finally:
            if earlier is not None:
                await earlier
        if self.known is not None and self.local_worker is None:
            for change in decision.changes:
                if change.key.startswith("limit:"):  # workers elsewhere write it with their next claims
                    self.known.drop((change.key,))
        await self.keep_alive()

    def _may_wait(self, decision: Decision) -> bool:
        """Whether messages to workers elsewhere are all that follows: nothing that comes next goes by these."""
        messages = all(type(effect) is Dispatch for effect in decision.effects)
        return self.transactor.sends_beside and self.local_worker is None and messages

    async def _excused(self, answers: Sequence[Answer]) -> Sequence[Answer]:
        """What a deleted graph lacks is no error: a message about it comes late, and is let go.

        The same for one that goes to another store, and for a task that an edit has taken away.
        """
        (graph,) = await self.transactor.records.tables.get(self.graph_id, [GRAPH])
        if graph is None:
            return answers
        state = graph.columns.get("state")
        comes = state == GraphState.RESTORING and "arrival" not in graph.columns  # from an archive: nothing is sealed
        gone = state in GRAPH_GONE or (state in GRAPH_SEALED and not comes)
        if not gone and not graph.columns.get(DELETED_IN):
            return answers
        why = "the graph was deleted" if gone else "an edit has taken the task away"
        if state in GRAPH_SEALED:
            why = f"the graph is {state}"
        return [
            Answer(answer.item, Outcome.STALE, why)
            if isinstance(answer.error, NotFound) or (gone and answer.error is not None)
            else answer
            for answer in answers
        ]

    def _give(self, given: Sequence[Answer]) -> None:
        theirs = self.theirs
        if theirs and self.local_worker is not None:
            mine = [answer for answer in given if id(answer.item) in theirs]
            self.local_worker.answered(self.graph_id, mine, self.rows)
            given = [answer for answer in given if id(answer.item) not in theirs] if len(mine) < len(given) else ()
        self.answers.extend(given)

    async def _load(self, keys: Collection[str]) -> None:
        if keys:
            if self.known is None:
                await self.transactor.records.load(self.graph_id, keys, self.rows)
            else:
                read = await self.transactor.row_cache.load(self.graph_id, self.known, keys)
                self.fresh.update({key: row.etag if row is not None else None for key, row in read.items()})

    def _must_read(self, key: str) -> bool:
        """Whether a row that is not here has to be looked for: it is not known, or absent by what others have read."""
        return key not in self.rows or (self.known is not None and not self._is_fresh(key))

    def _is_fresh(self, key: str) -> bool:
        """Whether what is known of a row is the very version that this call has read or written."""
        row = self.rows.get(key)
        return key in self.fresh and self.fresh[key] == (row.etag if row is not None else None)

    async def _look_ahead(self, keys: Collection[str], levels: int) -> None:
        """Load what comes behind rows that wait, level by level.

        One who is skipped skips the next: each level that a decision has to ask for lets it begin anew, so it is asked
        for ever more of them at once.
        """
        level: Collection[str] = keys
        seen = 0
        for _ in range(levels):
            behind: dict[str, None] = {}
            for key in level:
                row = self.rows.get(key)
                if row is not None and row.columns.get("state") == _UNSCHEDULED:
                    behind.update(dict.fromkeys(map(row_key, references(row, "dependents"))))
            level = [key for key in behind if key not in self.rows]
            seen += len(level)
            if not level or seen > self.transactor.records.changes_max:
                return
            await self._load(level)

    def _offer(self) -> ClaimOffer | None:
        offer = self.local_worker.offer(self.graph_id) if self.local_worker is not None else self.offer
        if offer is not None and self.transactor.dispatcher.limited.wait(self.graph_id):
            offer = replace(offer, limited=False)  # others have waited for room for longer
        return offer

    def _decide(self, operation: Operation, items: Sequence[Item], offer: ClaimOffer | None) -> Decision | Need:
        return decide(
            self.rows,
            items,
            now=self.transactor.clock.now(),
            operation=operation.id,
            sequence=operation.sequence,
            completed=operation.completed,
            skipped=operation.skipped,
            spent=operation.spent,
            offer=offer,
            changes_max=self.transactor.records.changes_max,
        )

    async def _doubts_about(self, decision: Decision, items: Sequence[Item]) -> bool:
        """Whether the decision rests on rows that had to be read first; it is to be made again by what was read."""
        errors = [answer.error for answer in decision.answers if answer.error is not None]
        if self.suspicions < _SUSPICIONS_MAX and any(isinstance(error, IntegrityError) for error in errors):
            # Rows read one after the other may contradict each other while others write: look again first.
            self.suspicions += 1
            self._go_fresh()
            await back_off(self.transactor.clock, self.suspicions)
            return True
        if self.known is None:
            return await self._rests_on_old(decision, items)
        if errors:
            self._go_fresh()  # nothing is refused by what may be old
            return True
        # Rows that were kept may be old: those that are written are made good by their etags, the others are read.
        old = [key for key in decision.unchanged if not self._is_fresh(key)]
        if old:
            self.doubts += 1
            if self.doubts > _DOUBTS_MAX:
                self._go_fresh()  # others here write them faster than they can be read: go by rows of its own
            else:
                await self._load(old)
        return bool(old)

    async def _rests_on_old(self, decision: Decision, items: Sequence[Item]) -> bool:
        """Whether an edit or a recall goes by rows that have changed: rows of one read may be of different moments.

        An edit counts anew what a task waits for, by states of rows that it does not write; a recall leaves alone who
        has not counted what was reset. These rows are read once more, after the rows that it writes: what ends later
        changes a row that it writes, and its etag refuses the commit.
        """
        if not decision.changes or not any(isinstance(item, _JUDGES) for item in items):
            return False
        before = {key: self.rows[key] for key in decision.unchanged}
        await self.transactor.records.load(self.graph_id, before, self.rows)
        return any(_version(self.rows[key]) != _version(row) for key, row in before.items())

    def _go_fresh(self) -> None:
        """Go by nothing any more that was read or kept before."""
        if self.known is not None:
            if not self.known.gone:
                self.transactor.row_cache.forget(self.graph_id)
            self.known = None
            self.rows = {}
        self.rows.clear()

    async def _after(self, conflict: Conflict, changes: Sequence[Change], items: Sequence[Item]) -> None:
        """Others wrote first: forget what may be old. Raises Conflict when that has happened too often."""
        self.transactor.counters.conflicts += 1
        self.conflicts += 1
        if self.conflicts >= limits.COMMIT_ATTEMPTS_MAX:
            raise Conflict(f"graph {self.graph_id}: others kept writing the same rows") from conflict
        if self.known is None or self.conflicts > _KEPT_CONFLICTS_MAX:
            await back_off(self.transactor.clock, self.conflicts)
            self._go_fresh()
            return
        self.fresh.clear()
        failed = changes[conflict.index].key if conflict.index is not None else ""
        if failed.startswith("event:"):
            await back_off(self.transactor.clock, self.conflicts)  # the rows were not at fault
            return
        own = {_own_row(item) for item in items}
        self.known.drop(
            change.key
            for change in changes
            if not failed or change.key == failed or (failed in own and change.key in own)
        )

    def _tidy(self, changes: Sequence[Change], written: Sequence[Row]) -> None:
        """Keep no row that others here have made old."""
        known = self.known
        if known is None or known.gone:
            self.transactor.row_cache.written(self.graph_id, [change.key for change in changes])
            if known is None:
                return
        self.doubts = 0
        for row in written:
            self.fresh[row.key] = row.etag
        if known.reading:
            known.overtake([change.key for change in changes])


def _version(row: Row | None) -> str | None:
    return row.etag if row is not None else None


def _became(answer: Answer, again: Collection[str]) -> str:
    """What an answer says of a run, "" for one that says nothing new. again: tasks that are to run after it."""
    item = answer.item
    if answer.outcome is Outcome.STALE and isinstance(item, Completed | Failed):
        return "stale"
    if answer.outcome is Outcome.ENDED:
        return "exception"
    if answer.outcome is not Outcome.APPLIED:
        return ""
    if answer.reason == CANCELLED:  # a run that was to be stopped, however it ended
        return "cancelled"
    if isinstance(item, Failed) and not item.exception and answer.reason != LATER:
        return "rerun" if item.task_id in again else "failed"
    if isinstance(item, Failed):
        return "exception" if item.exception else "retried"
    if isinstance(item, CancelTask):
        return "" if answer.reason else "cancelled"
    return _BECAME.get(type(item), "")


def _not_found(graph_id: str, item: Item) -> Answer:
    missing = NotFound(f"graph {graph_id} has no row {_own_row(item)}")
    return Answer(item, Outcome.REFUSED, str(missing), missing)


def _suppose(items: Sequence[Item], known: CachedGraph) -> None:
    """Bring known rows up to what a worker says that its claim has made of them.

    Only where the claim was written over the very row that is known: otherwise another has changed it too.
    """
    for item in items:
        if isinstance(item, Completed) and item.etag:
            key = row_key(item.task_id)
            row = known.rows.get(key)
            if row is not None and row.etag == item.over and row.columns.get("run") == item.run:
                columns = {**row.columns, "state": str(TaskState.RUNNING), "claim": item.claim}
                known.suppose(Row(key, item.etag, columns))


def _own_row(item: Item) -> str:
    task_id = getattr(item, "task_id", "")
    return row_key(task_id) if task_id else ""
