"""One worker, from its start to its end: take ready tasks from work queues, claim them, run them, report.

A run begins only after its claim is committed (P5), and its result counts only with that claim (P6). On SIGTERM
unfinished runs go back at once.

Each part of a worker owns its state, and knows only those before it in this order: `context` (shared by all),
`messages` (in hand), `runs` (one run), `slots`, `target_gate`, `stock`, `queue_turns`, `claims`, `reports`, `feeding`
(out of the stock), `local_link` (to handlers in this process), `chain` (without such), `intake`, `lease`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence

from taskgraph.engine.handlers import Handlers
from taskgraph.engine.listeners import LocalWorker
from taskgraph.engine.poison import Poison
from taskgraph.model import limits
from taskgraph.model.errors import StorageError
from taskgraph.model.flag import Flag
from taskgraph.model.ids import GRAPH
from taskgraph.model.messages import SendReady
from taskgraph.model.placement import Offer, target_of
from taskgraph.model.states import GRAPH_ENDED
from taskgraph.storage.logs import Logs
from taskgraph.storage.queues import Delivery
from taskgraph.storage.signals.wakeup import Pacer, Wakeup
from taskgraph.worker.chain import LoneChain
from taskgraph.worker.claims import Claims
from taskgraph.worker.context import LocalHandlers, WorkerContext
from taskgraph.worker.executors import Executors, Outcome
from taskgraph.worker.feeding import Feeder
from taskgraph.worker.intake import Intake
from taskgraph.worker.lease import LeaseKeeper
from taskgraph.worker.local_link import LocalLink
from taskgraph.worker.messages import WorkMessages
from taskgraph.worker.queue_turns import QueueTurns
from taskgraph.worker.registration import RUNNING_SHOWN_MAX, Presence
from taskgraph.worker.reports import Reporter
from taskgraph.worker.runs import Runner
from taskgraph.worker.slots import Slots
from taskgraph.worker.stock import Stock
from taskgraph.worker.target_gate import TargetGate
from taskgraph.worker.values import ClaimedRun, ended_how

log = logging.getLogger("taskgraph.worker")


class Worker:
    """One worker: some targets, some slots. Its results go straight to handlers in its process, if it is `attach`ed."""

    def __init__(
        self,
        handlers: Handlers,
        poison: Poison,
        executors: Executors,
        logs: Logs,
        wakeup: Wakeup,
        *,
        name: str,
        targets: Sequence[str] = ("default",),
        offer: Offer | None = None,
        slots: int = 1,
        lease_seconds: float = limits.LEASE_SECONDS,
        idle_seconds_max: float = 1.0,
        store_url: str = "",
        folder: str = "",
        gate_seconds: float = limits.GATE_SECONDS,
    ) -> None:
        self._context = context = WorkerContext(
            handlers=handlers,
            poison=poison,
            executors=executors,
            logs=logs,
            wakeup=wakeup,
            name=name,
            targets=tuple(targets),
            offer=offer or Offer(),
            slots=slots,
            lease_seconds=lease_seconds,
            store_url=store_url,
            folder=folder,
            gate_seconds=gate_seconds,
        )
        self.name, self.targets, self.offer, self.slots = name, context.targets, context.offer, slots
        self.lease_seconds, self.executors, self.counters = lease_seconds, executors, context.counters
        self._idle_seconds_max = idle_seconds_max
        self._cut_short = False
        self._messages = messages = WorkMessages(context)
        # Some are connected only by calls that they are given, as a run that ends makes room for the next.
        self._runner = Runner(context, lose=lambda one, why: self._lease.lose(one, why))
        self._slots = Slots(
            context,
            self._runner,
            on_ended=self._run_ended,
            on_filled=lambda: self._feeder.pull(),
            on_full=lambda: self._feeder.watch_expiry(),
        )
        self._gate = gate = TargetGate(context, self._slots)
        self._stock = stock = Stock(gate, self._slots)
        self._turns = turns = QueueTurns(context, gate, self._slots)
        self._claims = claims = Claims(context, messages, gate, self._slots)
        self._reporter = Reporter(context, messages, lambda one, result: self._chain.complete(one, result))
        self._feeder = feeder = Feeder(context, messages, self._slots, stock, turns, claims, self._reporter)
        self._local_link = LocalLink(context, messages, gate, self._slots, stock, turns, claims, feeder, self._reporter)
        self._chain = LoneChain(context, turns, claims, local_worker=self._local_link)
        self._intake = Intake(context, messages, gate, self._slots, stock, turns, claims, feeder)
        self._lease = LeaseKeeper(context, messages, gate, self._slots)

    # --- as others see it

    def attach(self, local_handlers: LocalHandlers) -> LocalWorker:
        """Report to these handlers from now on; gives the worker as they see it in their commits."""
        self._context.local_handlers = local_handlers
        return self._local_link

    @contextlib.contextmanager
    def keeping_to(self, graph_id: str) -> Iterator[None]:
        """Work on this graph alone, meanwhile, whose tasks this process then offers to no other."""
        context = self._context
        with context.handlers.dispatcher.keeping(graph_id, self.targets) as names:
            context.graph_id, context.names = graph_id, names
            try:
                yield
            finally:
                context.graph_id, context.names = "", context.handlers.names

    # --- working

    async def run(self, stop: Flag) -> None:
        """Work until asked to stop; then hand unfinished runs back and return."""
        on_stop = self._context.handlers.listeners.stop
        beat = asyncio.create_task(self._lease.beat())
        gates = asyncio.create_task(self._mind_gates())
        on_stop.append(self._lease.stop)
        self._turns.receiving = True
        await self._gate.look()
        try:
            if self._context.graph_id:
                await self._context.handlers.dispatcher.send_first(self._context.graph_id, self._local_link)
            with stop.calling(self._context.freed.set):
                await self._receive(stop)
        finally:
            self._turns.receiving = False
            self._go_on_feeding()
            await self._hand_everything_back()
            on_stop.remove(self._lease.stop)
            beat.cancel()
            gates.cancel()
            await asyncio.wait((beat, gates))
            await self._gate.give_everything_back()

    async def _receive(self, stop: Flag) -> None:
        """Ask the queues time and again, as there is room."""
        context, turns, slots = self._context, self._turns, self._slots
        pacer = Pacer(context.clock, seconds_max=self._idle_seconds_max)
        while not stop.is_set():
            if self._intake.room <= 0 and not (turns.look_first and slots.capacity > 0):
                context.freed.clear()
                await context.freed.wait()
                continue
            fed = turns.look_first
            ticket = context.wakeup.ticket(*turns.queues())
            try:
                found, more = await self._intake.receive()
            except StorageError as error:
                log.warning("cannot receive work: %s", error)
                await pacer.trouble(stop)
                continue
            finally:
                self._go_on_feeding()
            if found:
                pacer.reset()
                if not more and slots.capacity > 0:
                    with turns.listening():
                        await pacer.rest(ticket, stop)
            elif not fed:
                with turns.listening():
                    await pacer.idle(ticket, stop)

    def _go_on_feeding(self) -> None:
        if self._turns.asked():
            self._feeder.pull()

    async def take(self, deliveries: Sequence[Delivery]) -> None:
        """Take these, and see through what comes of them: for a caller that receives by itself."""
        await self._intake.take(deliveries)
        while at_work := {*self._context.tasks, *self._slots.tasks()}:
            await asyncio.wait(at_work)

    def _run_ended(self, one: ClaimedRun, outcome: Outcome | None, error: BaseException | None) -> None:
        """A run is over. Neither outcome nor error: it was ended before its time."""
        one.outcome, one.error = outcome, error
        handlers = self._context.handlers
        if one.watched is not None:
            code = outcome.exit_code if outcome is not None else None
            handlers.telemetry.run_ends(one.watched, ended_how(one), exit_code=code)
        if outcome is not None:
            self._slots.note_end(one)
        if self._gate.permits.limits and (target := target_of(one.work.definition)) in self._gate.permits.limits:
            self._context.wakeup.notify(self._context.names.work(target))  # there is a permit for the next one
        if not self._local_link.accept(one):
            self._reporter.report(one)

    async def _mind_gates(self) -> None:
        """Look at the gates while there is work, or one is closed, until cancelled; and let go of what is paused."""
        while True:
            await self._context.clock.sleep(self._context.gate_seconds)
            in_hand = self._slots.running or self._slots.waiting or self._stock.by_graph or self._gate.permits.targets
            if not (in_hand or self._gate.gates.closed):
                continue
            await self._context.guard(self._lease.mind_permits)
            for target in self.targets:
                if await self._gate.is_paused(target):
                    await self._feeder.send_of_target(target)

    # --- stopping

    async def _hand_everything_back(self) -> None:
        context = self._context
        context.stop()
        self._feeder.stop_napping()
        if running := self._slots.cancel_running():
            await asyncio.wait(running)
        left = bool(context.graph_id and self._stock.pop_all(context.graph_id))
        # What was on its way when the stop came may still bring claims: round and round, until nothing is in hand.
        while True:
            await self._feeder.put_down("stopped")
            at_work: set[asyncio.Task[None]] = set(context.tasks)
            if context.local_handlers is not None:
                at_work.update(map(context.local_handlers.look, self._local_link.open_graphs))
            if at_work:
                await asyncio.wait(at_work)
            elif not self._slots.waiting and not self._stock.by_graph:
                break
        if context.graph_id:
            await context.guard(self._leave_waiting, left)

    async def _leave_waiting(self, left: bool) -> None:
        """What waits for this worker alone is sent to all workers by whatever handles the graph next.

        left: some had been in stock; others are in queues of this process.
        """
        handlers, graph_id = self._context.handlers, self._context.graph_id
        if not left and not sum([await handlers.queues.count(queue) for queue in self._turns.queues()]):
            return
        (graph,) = await handlers.records.tables.get(graph_id, [GRAPH])
        if graph is not None and graph.columns.get("state") not in GRAPH_ENDED:
            await handlers.dispatcher.send_events([SendReady(graph_id)])

    # --- as its row in the registry sees it (see registration.RegisteredWorker)

    def presence(self) -> Presence:
        oldest = sorted(self._slots.running, key=lambda one: one.began)[:RUNNING_SHOWN_MAX]
        return Presence(len(self._slots.running), [(one.work.graph_id, one.work.label) for one in oldest])

    def drain(self, *, now: bool) -> None:
        if not self._context.draining:
            self._context.draining = True
            self._context.background(self._feeder.put_down, "drained")
        if now and not self._cut_short:
            self._cut_short = True
            self._slots.cancel_running()

    def undrain(self) -> None:
        self._context.draining = self._cut_short = False
        self._context.freed.set()

    @property
    def at_rest(self) -> bool:
        slots = self._slots
        in_hand = slots.running or slots.waiting or slots.reserved or self._stock.by_graph or self._context.tasks
        return not (in_hand or self._local_link.open_graphs) and self._reporter.at_rest
