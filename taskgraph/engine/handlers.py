"""Handle a message, and do what follows from a commit: the face of the engine.

What a process remembers between calls makes it quicker, and may be old or lost at any time; any number of copies may
work on one graph. An effect that `decide` has named may be lost, and is then repeated by redelivery or by the sweep; it
may be repeated at any time. This module never acknowledges a message (its caller does, last) and never contains a rule
about tasks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from taskgraph.engine import control
from taskgraph.engine.listeners import LocalWorker
from taskgraph.engine.live_index import enter_live, leave_live
from taskgraph.engine.transact import KeepAlive, Transactor, no_keep_alive
from taskgraph.model import limits
from taskgraph.model.errors import StorageError, TaskgraphError
from taskgraph.model.ids import GRAPH, value
from taskgraph.model.messages import AddTasks, Cancel, Edit, HoldBack, Message, SendReady, SetLimit, TaskCompleted
from taskgraph.model.priorities import rank
from taskgraph.model.spent import Spent
from taskgraph.protocol.context import (
    Cancelling,
    CancelRest,
    Dispatch,
    Effect,
    GraphEnded,
    GraphRevived,
    Held,
    Recalled,
    Refill,
    Started,
    Stop,
)
from taskgraph.protocol.decide import Answer, Decision, Item, asked
from taskgraph.storage.tables import Row

if TYPE_CHECKING:
    from taskgraph.engine.tariff import Tariff


@value
class Handled:
    """What became of one message: answers of its items, or the error that leaves it to redelivery."""

    message: Message
    answers: tuple[Answer, ...] = ()
    error: TaskgraphError | None = None


@dataclass(slots=True)
class Handlers(Transactor):
    """Everything that changes rows of graphs."""

    stalled_seconds: float = limits.STALLED_SECONDS
    """A graph of which nothing has moved for so long is marked by the sweep, unless it says otherwise itself."""
    clocks_doubted: bool = False
    """Whether this process has said that rows hold times of a clock that is off."""
    tariff: "Tariff | None" = None
    """Of graphs with a budget, once there was one."""

    async def handle(
        self,
        graph_id: str,
        messages: Sequence[Message],
        *,
        keep_alive: KeepAlive = no_keep_alive,
        local_worker: LocalWorker | None = None,
    ) -> list[Handled]:
        """Handle messages of one graph together: what arrives together is committed together (D12).

        local_worker: claims, in the same commits, what becomes ready. An error that concerns one message is in its
        `Handled`; storage errors are raised and leave all of them.
        """
        handled: list[Handled] = []
        items: list[tuple[Message, Sequence[Item]]] = []
        completed: list[Any] = []  # Completed, and nothing else
        everything: list[Item] = []
        for message in messages:
            if own := asked(message):
                if isinstance(message, TaskCompleted):
                    self.dispatcher.bundle_sizes.note_results(message)
                    completed += own
                items.append((message, own))
                everything += own
            elif isinstance(message, SendReady):
                await self.dispatcher.dispatch_ready_rows(message.graph, message.after, local_worker=local_worker)
                handled.append(Handled(message))
            else:
                handled.append(await self._handle_alone(message, keep_alive))
        answers: list[Answer] = []
        if len(everything) > len(completed):
            answers = await self.transition(graph_id, everything, keep_alive=keep_alive, local_worker=local_worker)
        elif completed or (local_worker is not None and local_worker.wants(graph_id)):
            answers = await self.advance(graph_id, completed, keep_alive=keep_alive, local_worker=local_worker)
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
                    from taskgraph.engine.requests import answer_request  # here: most commands plan no edit

                    await answer_request(self, message.graph, message.request, keep_alive=keep_alive)
                case Cancel():
                    answers = (await control.cancel_graph(self, message, keep_alive=keep_alive),)
                case HoldBack():
                    answers = (await control.hold_back(self, message, keep_alive=keep_alive),)
                case SetLimit():
                    answers = (await control.set_limit(self, message, keep_alive=keep_alive),)
                case _:
                    raise TypeError("work messages are for workers")
        except StorageError:
            raise
        except TaskgraphError as error:
            return Handled(message, error=error)
        return Handled(message, answers, next((answer.error for answer in answers), None))

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
        """See Transactor."""
        if decision.spent is not None and decision.spent.watch:
            await self._charge(graph_id, decision.spent, keep_alive)
        batches = self.dispatcher.on_results(graph_id, decision.answers)
        if decision.effects:
            await self.perform_effects(
                graph_id, decision.effects, rows, local_worker=local_worker, more=more, keep_alive=keep_alive
            )
        if batches:
            await self.dispatcher.send_batches(batches, local_worker)

    async def _charge(self, graph_id: str, spent: Spent, keep_alive: KeepAlive) -> None:
        """Hold what a graph has cost against its budget."""
        if self.tariff is None:
            from taskgraph.engine.tariff import Tariff  # here: few graphs have one

            self.tariff = Tariff()
        await self.tariff.charge(self, graph_id, spent, keep_alive)

    async def perform_effects(
        self,
        graph_id: str,
        effects: Sequence[Effect],
        rows: Mapping[str, Row | None] | None = None,
        *,
        local_worker: LocalWorker | None = None,
        more: bool = False,
        keep_alive: KeepAlive = no_keep_alive,
    ) -> None:
        """Send what follows from a commit. Sending twice is harmless; not sending is mended by the sweep.

        rows: as the commit left them. more: further commits of the same call will send more.
        """
        ready: dict[tuple[str, str], list[tuple[str, int]]] = {}
        later: dict[tuple[str, str, int], list[tuple[str, int]]] = {}
        started: list[Started] = []
        stops: list[Stop] = []
        limited: list[Refill] = []
        rest: list[str] = []
        cancelling = recalled = held = False
        for effect in effects:
            match effect:
                case Started():  # first what is by far the most
                    started.append(effect)
                case Refill():
                    limited.append(effect)
                case Dispatch(task_id, run, target, delay, level) if delay:
                    seconds = min(math.ceil(delay), limits.DELAY_SECONDS_MAX)  # those of one second go together
                    later.setdefault((target, level, seconds), []).append((task_id, run))
                case Dispatch(task_id, run, target, _, level):
                    ready.setdefault((target, level), []).append((task_id, run))
                case Stop():
                    stops.append(effect)
                case Cancelling(fenced):
                    cancelling = cancelling or fenced or not self._others_run(graph_id, rows)
                    self.dispatcher.forget_unsent(graph_id)
                case CancelRest(tally):
                    rest.append(tally)
                case Recalled():
                    recalled = True
                case Held():
                    held = True
                case GraphEnded(state):
                    self.row_cache.forget(graph_id)
                    self.dispatcher.forget(graph_id)
                    limited.clear()
                    for ended in self.listeners.ended:
                        ended(graph_id, state)
                    own = self.dispatcher.own.get(graph_id)
                    await leave_live(self.records, graph_id, own.entry if own is not None else "")
                case GraphRevived(ended):
                    await enter_live(self.records, graph_id)
                    if ended:
                        from taskgraph.engine import notifier  # here: few graphs go on after their end

                        await notifier.reopen(self.records.tables, graph_id, self.clock.now())
        if local_worker is not None and started:
            local_worker.started(graph_id, started, rows or {})
        for target, level in sorted(ready, key=_rank_of) if ready else ():
            tasks = list(dict.fromkeys(ready[target, level]))
            await self.dispatcher.dispatch(
                graph_id, target, tasks, level=level, rows=rows, more=more, local_worker=local_worker
            )
        for (target, level, seconds), tasks in later.items():
            once = list(dict.fromkeys(tasks))
            await self.dispatcher.dispatch(graph_id, target, once, level=level, rows=rows, delay_seconds=seconds)
        if limited:
            await self.dispatcher.limited.refill(graph_id, limited, rows, local_worker=local_worker)
        if stops:
            for stop_runs in self.listeners.stop:
                stop_runs(graph_id, stops)
        if held:
            await control.settle_holds(self, graph_id, keep_alive=keep_alive)
        if recalled:
            await control.recall(self, graph_id, keep_alive=keep_alive)
        for tally in dict.fromkeys(rest):
            await control.cancel_rest(self, graph_id, tally, keep_alive=keep_alive)
        if cancelling:
            await control.go_on_cancelling(self, graph_id, keep_alive=keep_alive)

    def _others_run(self, graph_id: str, rows: Mapping[str, Row | None] | None) -> bool:
        """Whether a large graph that is being cancelled is known to wait for more than the run that has just ended.

        A small one is looked at each time, which costs a query.
        """
        graph = rows.get(GRAPH) if rows is not None else None
        tasks, failed = (graph.columns.get("tasks"), graph.columns.get("failedTasks")) if graph else (0, 0)
        if not isinstance(tasks, int) or not isinstance(failed, int) or tasks <= limits.COUNTED_TASKS_MAX:
            return False
        return 0 <= self.records.begin(graph_id).completed < tasks - failed


def _rank_of(target_and_level: tuple[str, str]) -> int:
    return rank(target_and_level[1])
