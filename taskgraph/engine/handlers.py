"""Handle a message: which use case it is, and what becomes of it.

What this room is for: the face of the engine. It puts the parts together that change graphs (`transact`, what follows
by `effects` and `dispatch`, and the use cases of several commits: `requests`, `cancel`, `pause`, `limited`). What these
remember between calls makes them quicker, and may be old or lost at any time; any number of copies may work on one
graph. It never acknowledges a message (its caller does, last) and never contains a rule about tasks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from taskgraph.engine.cancel import cancel_graph
from taskgraph.engine.commit import Records
from taskgraph.engine.dispatch import Dispatcher
from taskgraph.engine.effects import Effects
from taskgraph.engine.limited import set_limit
from taskgraph.engine.listeners import Listeners
from taskgraph.engine.pause import hold_back
from taskgraph.engine.requests import answer_request
from taskgraph.engine.row_cache import KeptRows
from taskgraph.engine.telemetry import OFF, Telemetry
from taskgraph.engine.transact import Counters, KeepAlive, Taker, Transactor, no_keep_alive
from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.errors import StorageError, TaskgraphError
from taskgraph.model.messages import (
    AddTasks,
    Cancel,
    Edit,
    HoldBack,
    Message,
    SendReady,
    SetLimit,
    TaskCompleted,
)
from taskgraph.model.names import QueueNames
from taskgraph.protocol.decide import Answer, Item, asked
from taskgraph.protocol.runs import Claim, Completed
from taskgraph.storage.queues import Queues
from taskgraph.storage.tables import Row


@dataclass(frozen=True, slots=True)
class Handled:
    """What became of one message: answers of its items, or the error that leaves it to redelivery."""

    message: Message
    answers: tuple[Answer, ...] = ()
    error: TaskgraphError | None = None


@dataclass(slots=True)
class Handlers:
    """Everything that changes rows of graphs."""

    records: Records
    queues: Queues
    clock: Clock
    names: QueueNames = field(default_factory=QueueNames)
    counters: Counters = field(default_factory=Counters)
    listeners: Listeners = field(default_factory=Listeners)
    telemetry: Telemetry = OFF
    stalled_seconds: float = limits.STALLED_SECONDS
    """A graph of which nothing has moved for so long is marked by the sweep, unless it says otherwise itself."""
    clocks_doubted: bool = False
    """Whether this process has said that rows hold times of a clock that is off."""
    kept_rows_max: int | None = None
    """Rows that are remembered over all graphs; limits.KEPT_ROWS_MAX if None."""
    kept: KeptRows = field(init=False)
    dispatcher: Dispatcher = field(init=False)
    effects: Effects = field(init=False)
    transactor: Transactor = field(init=False)

    def __post_init__(self) -> None:
        self.kept = KeptRows(self.records.tables, self.kept_rows_max)
        self.dispatcher = Dispatcher(
            self.records,
            self.queues,
            self.clock,
            self.names,
            self.kept,
            self.counters,
            self.telemetry,
            self.listeners,
        )
        self.effects = Effects(self.records, self.kept, self.listeners, self.dispatcher)
        self.transactor = Transactor(
            self.records,
            self.clock,
            self.kept,
            self.counters,
            self.telemetry,
            self.listeners,
            self.effects.follow_up,
            self.dispatcher.limited.wait,
        )

    async def handle(
        self,
        graph_id: str,
        messages: Sequence[Message],
        *,
        keep_alive: KeepAlive = no_keep_alive,
        taker: Taker | None = None,
    ) -> list[Handled]:
        """Handle messages of one graph together: what arrives together is committed together (D12).

        taker: who claims, in the same commits, what becomes ready. An error that concerns one message is in its
        `Handled`; storage errors are raised and leave all of them.
        """
        handled: list[Handled] = []
        items: list[tuple[Message, Sequence[Item]]] = []
        completed: list[Any] = []  # Completed, and nothing else
        everything: list[Item] = []
        for message in messages:
            if own := asked(message):
                if isinstance(message, TaskCompleted):
                    if message.worker:
                        self.dispatcher.workers[message.worker] = self.clock.monotonic()
                    completed += own
                items.append((message, own))
                everything += own
            elif isinstance(message, SendReady):
                await self.dispatcher.adopt(message.graph, message.after, taker=taker)
                handled.append(Handled(message))
            else:
                handled.append(await self._handle_alone(message, keep_alive))
        answers: list[Answer] = []
        if len(everything) > len(completed):
            answers = await self.transition(graph_id, everything, keep_alive=keep_alive, taker=taker)
        elif completed or (taker is not None and taker.wants(graph_id)):
            answers = await self.advance(graph_id, completed, keep_alive=keep_alive, taker=taker)
        by_item = {id(answer.item): answer for answer in answers}
        for message, its in items:
            mine = tuple(by_item[id(item)] for item in its)
            failure = next((answer.error for answer in mine if answer.error), None)
            handled.append(Handled(message, mine, failure))
        return handled

    async def _handle_alone(self, message: Message, keep_alive: KeepAlive) -> Handled:
        """Handle what takes commits of its own. Raises storage errors alone."""
        answers: tuple[Answer, ...] = ()
        try:
            match message:
                case AddTasks() | Edit():
                    await answer_request(self.transactor, message.graph, message.request, keep_alive=keep_alive)
                case Cancel():
                    answers = (await cancel_graph(self.transactor, message, keep_alive=keep_alive),)
                case HoldBack():
                    answers = (await hold_back(self.transactor, self.tell, message, keep_alive=keep_alive),)
                case SetLimit():
                    answers = (await set_limit(self.transactor, message, keep_alive=keep_alive),)
                case _:
                    raise TypeError("work messages are for workers")
        except StorageError:
            raise
        except TaskgraphError as error:
            return Handled(message, error=error)
        return Handled(message, answers, next((answer.error for answer in answers), None))

    async def transition(
        self,
        graph_id: str,
        items: Iterable[Item],
        *,
        keep_alive: KeepAlive = no_keep_alive,
        rows: dict[str, Row | None] | None = None,
        taker: Taker | None = None,
    ) -> list[Answer]:
        """See Transactor.transition."""
        return await self.transactor.transition(graph_id, items, keep_alive=keep_alive, rows=rows, taker=taker)

    async def advance(
        self,
        graph_id: str,
        items: Iterable[Completed | Claim],
        *,
        keep_alive: KeepAlive = no_keep_alive,
        taker: Taker | None = None,
    ) -> list[Answer]:
        """See Transactor.advance."""
        return await self.transactor.advance(graph_id, items, keep_alive=keep_alive, taker=taker)

    async def tell(self, messages: Sequence[Message]) -> None:
        """Send events, each to its queue. Raises TooLarge, StorageUnavailable."""
        await self.dispatcher.tell(messages)

    async def events_waiting(self) -> int:
        """About how many events nobody has handled yet."""
        return await self.dispatcher.events_waiting()
