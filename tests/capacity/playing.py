"""Real handlers, workers and sweeps in virtual time, over an account with limits.

What this room is for: a check of the model. The production loops (`serve`, `work`, and for `local` both in one process)
run unchanged on the event loop of tests/simulation/processes, opened by the production composition root over
`LimitedStore`; what they ask for is counted at the ports, as scripts/bench does, and put into the same figures. The
processors are infinitely fast: only the store takes time. Everything follows from the seed,
but for the order of what production code keeps in sets.
"""

import asyncio
import functools
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final
from unittest.mock import patch

from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import read_document
from taskgraph.engine.submission import submit
from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.loops import serve, work
from taskgraph.interfaces.settings import StoreSettings
from taskgraph.model import limits as bounds
from taskgraph.model.errors import Conflict, StorageUnavailable, Unclear
from taskgraph.model.flag import Flag
from taskgraph.model.ids import GRAPH, task_id_of
from taskgraph.model.names import POISON
from taskgraph.model.placement import DEFAULT_TARGET
from taskgraph.model.states import GRAPH_ENDED, TaskState
from taskgraph.rehearsal.virtual_time import LoopClock, end_all
from taskgraph.storage.azure import account as azure
from taskgraph.storage.tables import Change, Delete
from taskgraph.worker.executors import Executors, Outcome, Work, WriteLog
from taskgraph.worker.loop import Worker
from tests.bench.cells import Layout, layout
from tests.bench.counting import CountedLogs, CountedQueues, CountedTables, Counts
from tests.bench.figures import Figures, figures_of
from tests.bench.node import told_by_rows
from tests.bench.shapes import Requirements, document_text, edges_of
from tests.capacity.limited import Account, LimitedStore
from tests.capacity.model import Latencies, Limits
from tests.capacity.processors import Processor, WorkedQueues, WorkedTables
from tests.simulation.processes import ProcessLoop

_SETTINGS: Final = StoreSettings(connection_string="UseDevelopmentStorage=true")
_LEASES: Final = 4
"""So many leases after the end no message may be left."""

_WRAPPERS: Final[Mapping[str, Any]] = {"tables": CountedTables, "queues": CountedQueues, "logs": CountedLogs}


async def _at_once(look: Callable[..., Any], *more: Any) -> None:
    """In the place of a thread, which knows no virtual time: what is looked for are leftovers of this machine."""


def _wrapped(counts: Counts, processor: Processor | None, what: str, port: Any) -> Any:
    """A port of one process, counted; with a processor what is asked of it takes time."""
    counted = _WRAPPERS[what](port, counts)
    if processor is None or what == "logs":
        return counted
    return {"tables": WorkedTables, "queues": WorkedQueues}[what](counted, processor)


def _target(number: int, targets: int) -> str:
    return f"t{number % targets}" if targets > 1 else DEFAULT_TARGET


def _document(graph: Requirements, number: int, targets: int) -> GraphDocument:
    """The graph, with all of its tasks for one target."""
    document = json.loads(document_text(graph, "noop"))
    if targets > 1:
        for task in document["tasks"].values():
            task["task"]["target"] = _target(number, targets)
    return read_document(json.dumps(document))


Run = tuple[str, str, int]
"""Graph, task, number."""


class PacedExecutor:
    """Takes its time, and remembers what ran."""

    name = "noop"

    def __init__(self, seconds: float, executed: Counter[Run], unnamed: Counter[Run]) -> None:
        self.instant = not seconds
        self.queue = None
        self._seconds = seconds
        self._executed = executed
        self._unnamed = unnamed

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        return None

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        self._executed[work.graph_id, work.task_id, work.run] += 1
        self._unnamed[work.graph_id, work.task_id, work.run] += not work.label
        if self._seconds:
            await asyncio.sleep(self._seconds)
        return Outcome(failed=False)


@dataclass(frozen=True, slots=True)
class Charged:
    """What the account had let through by some moment: of each task that was completed by then.

    still_seconds: see Account. messages: by queue. Receives that gave nothing are not in it.
    """

    seconds: float
    still_seconds: float
    tasks: int
    entities: float
    requests: float
    messages: dict[str, float]


BULK: Final = 0.8
"""The share of all tasks after which a run under limits is measured: what is last may wait for somebody's lease."""


@dataclass
class Played:
    """What came of it.

    figures: per task of all graphs together, as scripts/bench has them. bulk, whole: when BULK of all tasks, and all
    graphs, had ended. rests: how often the submitter had to come again. left: messages that nobody has acknowledged
    some leases after the end.
    """

    whole: Charged
    bulk: Charged
    figures: Figures
    refused: Counter[str]
    let_through: int
    pickup_seconds: float
    rests: int
    left: int

    @property
    def seconds(self) -> float:
        """Until all graphs had ended."""
        return self.whole.seconds

    @property
    def refused_share(self) -> float:
        """Of all requests, those that were refused."""
        refused = sum(self.refused.values())
        return refused / (refused + self.let_through)


@dataclass
class Playing:
    """One run: so many copies of a graph, handlers, workers and slots, under limits.

    enforced: whether the limits hold while the graphs run. submit_enforced: also while they are submitted.
    task_seconds: 0 for tasks that end at once. lease_seconds: of the workers. targets: among which the graphs, and the
    workers, are shared out. queues: of events, if that is set. row_seconds: of a handler's processor, for each row and
    message; 0 for one that takes no time. alone: so many processes for everything, where the place is `local`.
    """

    seed: int
    graph: Requirements
    limits: Limits = field(default_factory=Limits)
    latencies: Latencies = field(default_factory=Latencies)
    graphs: int = 1
    place: Layout | str = "1h2w"
    slots: int = 8
    task_seconds: float = 0.0
    lease_seconds: float = bounds.LEASE_SECONDS
    enforced: bool = True
    submit_enforced: bool = False
    seconds_max: float = 5_000.0
    targets: int = 1
    queues: int | None = None
    row_seconds: float = 0.0
    alone: int = 1

    def __post_init__(self) -> None:
        self._layout = layout(self.place) if isinstance(self.place, str) else self.place
        self._rng = random.Random(self.seed)
        self._loop = ProcessLoop()
        self._account = Account(self.limits, self.latencies, self._clock(), self._rng)
        self._account.on_commit = self._committed
        self._documents = [_document(self.graph, number, self.targets) for number in range(self.targets)]
        self.processors: list[Processor] = []
        self.graph_ids = [f"g{number}" for number in range(self.graphs)]
        self.executed: Counter[Run] = Counter()
        self.unnamed: Counter[Run] = Counter()  # runs that were not told their label
        self._ended: set[str] = set()
        self._all_ended = Flag()
        self._began = 0.0
        self._done = 0
        self._bulk: Charged | None = None
        self._counts = {role: Counts(weigh=True) for role in ("submitter", "handler", "worker")}

    def _clock(self) -> LoopClock:
        return LoopClock(self._loop, random.Random(self._rng.random()))

    def _committed(self, partition: str, changes: Sequence[Change]) -> None:
        if partition not in self.graph_ids:
            return
        for change in changes:
            if isinstance(change, Delete):
                continue
            state = change.columns.get("state")
            if change.key.startswith("task:") and state == TaskState.COMPLETED:
                self._done += 1
                if self._bulk is None and self._done >= BULK * self.graphs * len(self.graph):
                    self._bulk = self._charged()
            elif change.key == GRAPH and state in GRAPH_ENDED:
                self._ended.add(partition)
                if len(self._ended) == self.graphs:
                    self._all_ended.set()

    async def _open(self, stack: AsyncExitStack, role: str) -> App:
        """One process of the installation."""
        clock, counts = self._clock(), self._counts[role]
        wrapped = functools.partial(_wrapped, counts, None)
        if role == "handler" and self.row_seconds:
            self.processors.append(Processor(clock, self.row_seconds))
            wrapped = functools.partial(_wrapped, counts, self.processors[-1])
        store = LimitedStore(self._account, clock, wrapped)
        with patch.object(azure, "AzureStore") as opened:  # the root asks for it when it opens
            opened.from_connection_string.return_value = store
            return await stack.enter_async_context(open_app(_SETTINGS, clock=clock))

    @patch.object(asyncio, "to_thread", _at_once)
    def play(self) -> Played:
        """Submit, run to the end, and until the queues are empty. Raises AssertionError if anything was lost."""
        asyncio.set_event_loop(self._loop)
        try:
            return self._loop.run_until_complete(asyncio.wait_for(self._play(), self.seconds_max))
        except TimeoutError:
            raise AssertionError(f"seed {self.seed}: no end after {self.seconds_max} s: {self._left()}") from None
        finally:
            end_all(self._loop)
            self._loop.close()
            asyncio.set_event_loop(None)

    async def _play(self) -> Played:
        account = self._account
        async with AsyncExitStack() as stack:
            account.enforced = self.submit_enforced
            app = await self._open(stack, "submitter")
            rests = 0
            for number, graph_id in enumerate(self.graph_ids):
                rests += await self._submit(app, graph_id, self._documents[number % self.targets])
            account.enforced = self.enforced
            account.reset()
            self._began = self._loop.time()
            stop = Flag()
            handlers = [await self._open(stack, "handler") for _ in range(self._layout.handlers)]
            loops = [serve(each, stop, queues=self.queues) for each in handlers]
            for number in range(self._layout.workers):
                app = await self._open(stack, "worker")
                loops.append(work(app, stop, self._worker(app, [_target(number, self.targets)])))
            for _ in range(0 if handlers else self.alone):
                app = await self._open(stack, "handler")
                every = [_target(number, self.targets) for number in range(self.targets)]
                loops.append(serve(app, stop, workers=[self._worker(app, every)], queues=self.queues))
            running = [asyncio.ensure_future(each) for each in loops]
            ended = asyncio.ensure_future(self._all_ended.wait())
            await asyncio.wait([ended, *running], return_when=asyncio.FIRST_COMPLETED)
            assert ended.done(), [each.exception() for each in running if each.done()]
            whole, refused, let_through = self._charged(), account.refused.copy(), account.let_through
            waits = list(account.waits)
            patience = self._loop.time() + _LEASES * max(self.lease_seconds, bounds.HANDLER_LEASE_SECONDS)
            # Acknowledgements, and messages that come again after the lease of somebody who has given up.
            while any(account.queues.messages.values()) and self._loop.time() < patience:
                await asyncio.sleep(0.2)
            played = Played(
                whole=whole,
                bulk=self._bulk or whole,
                figures=self._figures(whole.seconds),
                refused=refused,
                let_through=let_through,
                pickup_seconds=sum(waits) / len(waits) if waits else 0.0,
                rests=rests,
                left=sum(map(len, account.queues.messages.values())),
            )
            stop.set()
            await asyncio.gather(*running)
        self._check()
        return played

    def _worker(self, app: App, targets: Sequence[str] = (DEFAULT_TARGET,)) -> Worker:
        executors = Executors([PacedExecutor(self.task_seconds, self.executed, self.unnamed)])
        return app.worker(executors, targets=targets, slots=self.slots, lease_seconds=self.lease_seconds)

    async def _submit(self, app: App, graph_id: str, document: GraphDocument | None = None) -> int:
        """Submit as a person does who is told to come again; gives how often."""
        rests = 0
        while True:
            try:
                await submit(app.handlers, graph_id, document or self._documents[0])
            except (StorageUnavailable, Conflict, Unclear):
                rests += 1
                await asyncio.sleep(1.0)
            else:
                return rests

    def _charged(self) -> Charged:
        """Until now."""
        account, tasks = self._account, max(1, self._done)
        return Charged(
            seconds=self._loop.time() - self._began,
            still_seconds=account.still_seconds,
            tasks=self._done,
            entities=sum(account.partition(graph_id).taken for graph_id in self.graph_ids) / tasks,
            requests=(account.account.taken - account.empty.total()) / tasks,
            messages={
                name: (bucket.taken - account.empty[name]) / tasks for name, bucket in account.queue_buckets.items()
            },
        )

    def _figures(self, seconds: float) -> Figures:
        cpu = {"own": 0.0, "children": 0.0}

        def phase(role: str) -> dict[str, Any]:
            return {"seconds": seconds, "cpu": cpu, **self._counts[role].take()}

        nothing = {"seconds": 1e-9, "cpu": cpu, "operations": {}, "calls": {}, "sums": {}}  # nobody reads a file here
        facts = {
            "tasks": self.graphs * len(self.graph),
            "edges": self.graphs * edges_of(self.graph),
            "load": 0.0,
            "fileBytes": None,
            "seconds": seconds,
            "submission": {"read": nothing, "write": phase("submitter")},
            "processes": [{"role": role, "peak": 0.0, "phase": phase(role)} for role in ("handler", "worker")],
            "rows": self._told(self.graph_ids[0]),
        }
        return figures_of(facts, weighed=True)

    def _told(self, graph_id: str) -> dict[str, Any]:
        rows = self._account.tables.partitions[graph_id]
        by_label = {str(r.columns["label"]): r.columns for key, r in rows.items() if key.startswith("task:")}
        return told_by_rows(self.graph, by_label)

    def _left(self) -> str:
        states = Counter(
            str(row.columns.get("state"))
            for graph_id in self.graph_ids
            for key, row in self._account.tables.partitions.get(graph_id, {}).items()
            if key.startswith("task:")
        )
        return f"{dict(states)}, {dict(self._account.refused)} refused"

    def _check(self) -> None:
        """Nothing lost, nothing twice, nobody blamed."""
        for graph_id in self.graph_ids:
            told = self._told(graph_id)
            assert not told["wrongs"], f"seed {self.seed}: {graph_id}: {told['wrong']}"
        twice = [run for run, times in self.executed.items() if times > 1]
        assert not twice, f"seed {self.seed}: executed more than once: {twice[:3]}"
        missing = {(graph_id, task_id_of(graph_id, label)) for graph_id in self.graph_ids for label in self.graph}
        missing -= {(graph_id, task_id) for graph_id, task_id, _ in self.executed}
        assert not missing, f"seed {self.seed}: completed, and never executed: {sorted(missing)[:3]}"
        poisoned = self._account.tables.partitions.get(POISON, {})
        set_aside = [row for row in poisoned.values() if row.columns.get("state") == "poison"]
        assert not set_aside, f"seed {self.seed}: set aside, though nobody is to blame: {set_aside[0]}"
        assert not self._loop.slips, f"seed {self.seed}: {self._loop.slips}"
