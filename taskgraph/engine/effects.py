"""Do what follows from a commit: send, tell who waits here, go on with what is under way.

What this room is for: the one place where an effect that `decide` has named is carried out. Each may be lost, and is
then repeated by redelivery or by the sweep; each may be repeated. Cancelling goes on by further transitions, whose
effects come here again. It never decides.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taskgraph.engine import cancel
from taskgraph.engine.commit import Records
from taskgraph.engine.dispatch import Dispatcher
from taskgraph.engine.listeners import Listeners
from taskgraph.engine.live_index import enter_live, leave_live
from taskgraph.engine.row_cache import KeptRows
from taskgraph.engine.transact import KeepAlive, Taker, Transactor, no_keep_alive
from taskgraph.model import limits
from taskgraph.model.ids import GRAPH
from taskgraph.model.priorities import rank
from taskgraph.protocol.context import Cancelling, Dispatch, Effect, GraphEnded, GraphRevived, Refill, Started, Stop
from taskgraph.protocol.decide import Decision
from taskgraph.storage.tables import Row


@dataclass(slots=True)
class Effects:
    """Carries out effects, for every commit of one process."""

    records: Records
    kept: KeptRows
    listeners: Listeners
    dispatcher: Dispatcher

    async def follow_up(
        self,
        transactor: Transactor,
        graph_id: str,
        decision: Decision,
        rows: Mapping[str, Row | None],
        *,
        taker: Taker | None,
        more: bool,
        keep_alive: KeepAlive,
    ) -> None:
        """See FollowUp."""
        parcels = self.dispatcher.landed(graph_id, decision.answers)
        if decision.effects:
            await self.emit(transactor, graph_id, decision.effects, rows, taker=taker, more=more, keep_alive=keep_alive)
        if parcels:
            await self.dispatcher.send_parcels(parcels, taker)

    async def emit(
        self,
        transactor: Transactor,
        graph_id: str,
        effects: Sequence[Effect],
        rows: Mapping[str, Row | None] | None = None,
        *,
        taker: Taker | None = None,
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
        cancelling = False
        for effect in effects:
            match effect:
                case Refill():
                    limited.append(effect)
                case Dispatch(task_id, run, target, delay, level) if delay:
                    seconds = min(math.ceil(delay), limits.DELAY_SECONDS_MAX)  # those of one second go together
                    later.setdefault((target, level, seconds), []).append((task_id, run))
                case Dispatch(task_id, run, target, _, level):
                    ready.setdefault((target, level), []).append((task_id, run))
                case Started():
                    started.append(effect)
                case Stop():
                    stops.append(effect)
                case Cancelling(fenced):
                    cancelling = cancelling or fenced or not self._others_run(graph_id, rows)
                    self.dispatcher.forget_unsent(graph_id)
                case GraphEnded():
                    self.kept.forget(graph_id)
                    self.dispatcher.forget(graph_id)
                    limited.clear()
                    for ended in self.listeners.ended:
                        ended(graph_id)
                    await leave_live(self.records, graph_id)
                case GraphRevived():
                    await enter_live(self.records, graph_id)
        if taker is not None and started:
            taker.started(graph_id, started, rows or {})
        for target, level in sorted(ready, key=lambda each: rank(each[1])):
            fresh = self.dispatcher.within_window(graph_id, target, level, list(dict.fromkeys(ready[target, level])))
            if taker is not None:
                fresh = taker.keep(graph_id, target, fresh, rows or {})
            if fresh:
                await self.dispatcher.send(graph_id, target, level, fresh, rows=rows, more=more)
        for (target, level, seconds), tasks in later.items():
            await self.dispatcher.send(
                graph_id, target, level, list(dict.fromkeys(tasks)), rows=rows, delay_seconds=seconds
            )
        if limited:
            await self.dispatcher.limited.refill(graph_id, limited, rows, taker=taker)
        if stops:
            for tell_worker in self.listeners.stop:
                tell_worker(graph_id, stops)
        if cancelling:
            await cancel.go_on_cancelling(transactor, graph_id, keep_alive=keep_alive)

    def _others_run(self, graph_id: str, rows: Mapping[str, Row | None] | None) -> bool:
        """Whether a large graph that is being cancelled is known to wait for more than the run that has just ended.

        A small one is looked at each time, which costs a query.
        """
        graph = rows.get(GRAPH) if rows is not None else None
        tasks, failed = (graph.columns.get("tasks"), graph.columns.get("failedTasks")) if graph else (0, 0)
        if not isinstance(tasks, int) or not isinstance(failed, int) or tasks <= limits.COUNTED_TASKS_MAX:
            return False
        return 0 <= self.records.begin(graph_id).completed < tasks - failed
