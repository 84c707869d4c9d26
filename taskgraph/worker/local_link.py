"""A worker beside handlers in its process (`run`, `serve --worker`).

Results go straight into their next commit, with claims out of the stock, and what that commit makes ready may be
claimed for this worker. `LocalLink` is the worker as they see it, and commits nothing itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, overload

from taskgraph.model.errors import StorageError
from taskgraph.model.ids import row_key
from taskgraph.model.priorities import level_of, rank
from taskgraph.protocol.context import ClaimOffer, Started
from taskgraph.protocol.context import Outcome as Decided
from taskgraph.protocol.decide import Answer, Item
from taskgraph.protocol.runs import Claim, Completed
from taskgraph.storage.tables import Row
from taskgraph.worker.claims import Claims
from taskgraph.worker.context import WorkerContext
from taskgraph.worker.feeding import Feeder
from taskgraph.worker.messages import WorkMessages
from taskgraph.worker.queue_turns import QueueTurns
from taskgraph.worker.reports import Reporter
from taskgraph.worker.slots import Slots
from taskgraph.worker.stock import OWN_STOCK_MAX, STOCK_MAX, Stock
from taskgraph.worker.target_gate import TargetGate
from taskgraph.worker.values import ClaimedRun, ReadyTask, edited_in, label_in, routing_in

_IDS_MIN: Final = 16  # of claims, drawn at once
_BATCH_SECONDS: Final = 0.008  # a result waits for others as long as there is other work in hand
_BATCH_SECONDS_OF_ONE: Final = 0.016  # the same where there is one graph alone, to which no other is to come between


@dataclass(eq=False)
class LocalLink:
    """What one worker reports to the handlers of its process, and takes from them. See `listeners.LocalWorker`."""

    _context: WorkerContext
    _messages: WorkMessages
    _gate: TargetGate
    _slots: Slots
    _stock: Stock
    _turns: QueueTurns
    _claims: Claims
    _feeder: Feeder
    _reporter: Reporter
    _results: dict[str, list[tuple[Completed, ClaimedRun]]] = field(default_factory=dict)
    _in_commit: dict[str, dict[int, tuple[Item, ClaimedRun | ReadyTask]]] = field(default_factory=dict)
    _batching: bool = False
    _offered: "_Claims" = field(init=False)  # ids of claims

    def __post_init__(self) -> None:
        self._offered = _Claims(self._context.clock.new_ids)

    @property
    def open_graphs(self) -> set[str]:
        """Graphs of which the handlers have something, or are to have."""
        return {*self._results, *(graph_id for graph_id, items in self._in_commit.items() if items)}

    # --- results

    def accept(self, one: ClaimedRun) -> bool:
        """Put a result by for the handlers' next commit; False if it is none for them."""
        graph_id, outcome, local_handlers = one.work.graph_id, one.outcome, self._context.local_handlers
        if local_handlers is None or not local_handlers.takes(graph_id):
            return False
        if outcome is None or outcome.failed or outcome.result is not None or one.lost:
            return False
        self._results.setdefault(graph_id, []).append((self._reporter.completed(one), one))
        if not self._slots.has_more or one.instant:
            local_handlers.look(graph_id)
        elif not self._batching:  # there is enough to do: others will end in a moment, and go along
            self._batching = True
            self._context.background(self._flush_later)
        return True

    def _waits_for_others(self) -> bool:
        """Whether results wait for others: as long as there is work for the slots, and not for long."""
        return self._batching and self._slots.has_more and not self._context.stopping

    async def _flush_later(self) -> None:
        await self._context.clock.sleep(_BATCH_SECONDS_OF_ONE if self._context.graph_id else _BATCH_SECONDS)
        self._batching = False
        if self._context.local_handlers is not None:
            for graph_id in list(self._results):
                self._context.local_handlers.look(graph_id)

    # --- as the handlers see it

    async def get_ready(self) -> None:
        await self._gate.look()

    def wants(self, graph_id: str) -> bool:
        if self._context.local_handlers is None or self._waits_for_others():
            return False
        if self._results.get(graph_id):
            return True
        return self._stock.can_begin(graph_id) and self._stock.share(graph_id) > 0 and self._turns.may_feed_itself()

    def items(self, graph_id: str) -> Sequence[Completed | Claim]:
        if self._context.local_handlers is None or self._waits_for_others():
            return ()
        items: list[Completed | Claim] = []
        open_items = self._in_commit.setdefault(graph_id, {})
        for item, one in self._results.pop(graph_id, ()):
            items.append(item)
            open_items[id(item)] = (item, one)
        if self._stock.by_graph:
            for ready, claim in self._claims_out_of_stock(graph_id):
                items.append(claim)
                open_items[id(claim)] = (claim, ready)
        return items

    def _claims_out_of_stock(self, graph_id: str) -> Iterable[tuple[ReadyTask, Claim]]:
        free, count = self._slots.free, 0
        if self._stock.can_begin(graph_id) and self._turns.may_feed_itself():
            count = self._stock.share(graph_id)
        self._feeder.let_others_ask(graph_id)
        popped = self._stock.pop(graph_id, count)
        if not popped:
            return ()
        self._slots.reserve(popped)
        return zip(popped, self._claims.claims_of(popped, free), strict=True)

    def answered(self, graph_id: str, answers: Sequence[Answer], rows: Mapping[str, Row | None]) -> None:
        open_items = self._in_commit.get(graph_id, {})
        done: list[ClaimedRun] = []  # that came by a message
        for answer in answers:
            item, one = open_items.pop(id(answer.item), (None, None))
            if isinstance(one, ReadyTask):
                self._slots.unreserve([one])
                if isinstance(item, Claim) and answer.outcome in (Decided.APPLIED, Decided.REPEATED):
                    self._claims.begin(graph_id, one, item, rows)
                elif one.source is not None:
                    self._claims.refused(one.source, rows.get(row_key(one.task_id)))
                    self._context.background(self._messages.release, one.source)
            elif one is not None:
                if answer.error is not None:
                    self._reporter.report_alone(one)
                    continue
                self._context.counters.completed += 1
                if one.source is not None:
                    done.append(one)
        if self._slots.waiting or self._stock.by_graph:
            self._slots.fill()
        self._context.freed.set()
        if done:
            self._context.background(self._messages.let_all_go, done)

    def failed(self, graph_id: str, error: Exception) -> None:
        again = isinstance(error, StorageError) and not self._context.stopping
        for item, one in self._in_commit.pop(graph_id, {}).values():
            if isinstance(one, ReadyTask):
                self._slots.unreserve([one])
                if again:
                    self._feeder.put_by(graph_id, [one])
            elif again and isinstance(item, Completed):
                self._results.setdefault(graph_id, []).append((item, one))
            else:
                self._reporter.report_alone(one)
        self._context.freed.set()

    def offer(self, graph_id: str) -> ClaimOffer | None:
        context = self._context
        room = self._stock.share(graph_id) if context.works_on(graph_id) else 0
        if not context.is_direct(graph_id):
            room = min(room, 1)  # it goes on with one task
        if room <= 0 or not self._gate.gates.recent or not self._turns.may_feed_itself():
            return None
        offered = self._offered
        offered.room = room
        return ClaimOffer(
            context.name,
            context.clock.now() + timedelta(seconds=context.lease_seconds),
            self._gate.open_targets,
            offered,
            self._claims.fits,
            self._slots.free,
            rank_max=self._stock.best_rank(),
            lease_seconds=context.lease_seconds,
        )

    def started(self, graph_id: str, started: Sequence[Started], rows: Mapping[str, Row | None]) -> None:
        drawn = self._offered.drawn
        for each in started:
            if each.claim in drawn:  # the first, nearly always
                drawn.remove(each.claim)
            self._claims.begin_started(graph_id, each, rows.get(row_key(each.task_id)))
        self._slots.fill()

    def keep(
        self, graph_id: str, target: str, tasks: Sequence[tuple[str, int]], rows: Mapping[str, Row | None]
    ) -> Sequence[tuple[str, int]]:
        context, gate = self._context, self._gate
        if not context.active or target not in context.targets:
            return tasks
        if not context.works_on(graph_id) or not context.is_direct(graph_id):
            return tasks
        if not gate.gates.recent or target in gate.gates.closed or target in gate.permits.limits:
            return tasks
        now = context.clock.monotonic()
        room = (OWN_STOCK_MAX if graph_id == context.graph_id else STOCK_MAX) - len(self._stock)
        kept: list[ReadyTask] = []
        others: list[tuple[str, int]] = []
        for task_id, run in tasks:
            row = rows.get(row_key(task_id))
            definition = str(row.columns.get("task", "")) if row else ""
            if row and definition and self._claims.fits(definition) and len(kept) < room:
                kept.append(_ready(row, task_id, run, target, definition, now))
            else:
                others.append((task_id, run))
        if kept:
            if self._slots.seconds is None and all(map(self._claims.is_instant, kept)):
                self._slots.expect_instant()
            self._feeder.put_by(graph_id, kept)
            self._feeder.pull()
        return others


@dataclass(slots=True)
class _Claims(Sequence[str]):
    """Fresh ids for an offer of so much room, until the next offer.

    They are drawn as they are asked for, twice as many each time: most offers are larger than what is ready.
    drawn: those that no claim has yet.
    """

    new_ids: Callable[[int], Sequence[str]]
    drawn: list[str] = field(default_factory=list)
    room: int = 0

    def __len__(self) -> int:
        return self.room

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(self.room))]
        if not 0 <= place < self.room:
            raise IndexError(place)
        drawn = self.drawn
        if place >= len(drawn):
            drawn += self.new_ids(max(place + 1 - len(drawn), min(len(drawn), self.room), _IDS_MIN))
        return drawn[place]


def _ready(row: Row, task_id: str, run: int, target: str, definition: str, since: float) -> ReadyTask:
    return ReadyTask(
        task_id,
        run,
        target,
        definition,
        since,
        label_in(row),
        rank=rank(level_of(row.columns.get)),
        edited=edited_in(row),
        routing=routing_in(row),
    )
