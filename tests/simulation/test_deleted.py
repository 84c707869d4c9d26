"""What comes after the end: histories whose graph is deleted, while everything that was ever sent comes once more.

A history is played to its end, and every message of it is kept. Then, with faults at every storage call, copies of the
deletion, sweeps, and whoever keeps house meet handlers and workers that have these messages, and somebody who puts an
extension down too late. Nothing of the graph may be left, and nothing may come back.
"""

import contextlib
import dataclasses
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import pytest

from taskgraph.documents.canonical import content_hash, document_object
from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.engine import old_tasks
from taskgraph.engine.clock_trust import CLOCKS
from taskgraph.engine.delete import delete
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.housekeeping import keep_house
from taskgraph.engine.live_index import enter_live
from taskgraph.engine.submission import extend, submit
from taskgraph.engine.sweep import sweep
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, NotFound, Refused, StaleDelivery
from taskgraph.model.ids import GRAPH, group_key, limit_key, limit_scope, row_key, slugid_from, task_id_of
from taskgraph.model.json_strict import canonical_json
from taskgraph.model.messages import RunTasks, parse
from taskgraph.model.names import ALL, KEEPING, LIVE, POISON, TOMBSTONES
from taskgraph.protocol.extension_plan import request_rows
from taskgraph.protocol.runs import Claim
from taskgraph.queries.targets import GATES
from taskgraph.storage.logs import LogPage
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Row
from tests.simulation.histories import world_of
from tests.simulation.invariants import Violation, hold
from tests.simulation.world import EVENTS, WORK, Faults

pytestmark = pytest.mark.usefixtures("settled")

SEEDS: Final = range(2_000_000, 2_000_250)  # about 4 seconds
MANY_SEEDS: Final = range(2_000_000, 2_020_000)
LATE: Final = canonical_json(document_object(GraphDocument({"late": TaskNode("late")})))
STEPS_MAX: Final = 20_000
STORM_STEPS: Final = 250


def _request_of(extension: GraphDocument) -> str:
    """The id of the request by which it is asked for."""
    return slugid_from(bytes.fromhex(content_hash(extension))[:16])


def _but_late(rows: Iterable[str], staged: Collection[str]) -> set[str]:
    return {key for key in rows if not key.startswith("request:late") and key not in staged}


class NoLogs:
    """Runs say nothing here."""

    async def remove(self, graph_id: str) -> int:
        return 0

    async def files(self, graph_id: str, *, continuation: str | None = None) -> LogPage:
        return LogPage(())

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"nobody asks for {name}")


def _take_up_a_plan(rows: Mapping[str, Row], changes: Iterable[Change]) -> bool:
    """Whether a commit takes up what was planned of a graph that has ended: the journal says so, as of any change."""
    return any(isinstance(each, Merge) and "plan" in rows[each.key].columns for each in changes if each.key in rows)


@dataclass
class After:
    """The mirror of a partition that is being emptied, in place of the invariants of a graph that lives.

    A blocked graph may still be extended up to the fence: the commit that accepts a request, or goes on with it, brings
    tasks of its document, and these alone may run: behind the fence too, as long as the row of the task stands, for who
    claims a task looks at no other row. A request, too, may be staged behind the fence, by a call that looked in front
    of it; nothing comes of it, and it goes as what is late does. brings: key of a request -> keys of the tasks that it
    may bring. staged: keys of the rows of such requests.
    """

    graph_state: str
    brings: Mapping[str, Collection[str]] = field(default_factory=dict)
    came: set[str] = field(default_factory=set)
    ran: int = 0
    gone: Counter[str] = field(default_factory=Counter)
    states: Mapping[str, str] = field(default_factory=dict)
    late: int = 0
    staged: set[str] = field(default_factory=set)

    def committed(self, rows: Mapping[str, Row], changes: Sequence[Change], updated: Sequence[str] = ()) -> None:
        state = str(rows[GRAPH].columns["state"]) if GRAPH in rows else "nothing"
        if self.graph_state != state:
            follows = {"deleting": ("deleted",), "deleted": ("nothing",)}.get(self.graph_state, ("deleting",))
            hold(state in follows, f"{state} follows {self.graph_state}")
            hold(state != "deleted" or _but_late(rows, self.staged) == {GRAPH}, f"a tombstone beside {sorted(rows)}")
            self.graph_state = state
        expected = self._brought(changes) if state == "blocked" else set()
        for change in changes:
            if state != "blocked" and isinstance(change, Insert) and self._is_request(change.key):
                self.staged.add(change.key)
            late = change.key.startswith("request:late") or change.key in self.staged
            self.late += late and isinstance(change, Insert)
            if isinstance(change, Insert):
                may_be_told = state in ("blocked", "deleting") or _take_up_a_plan(rows, changes)
                told = change.key.startswith("event:") and may_be_told
                hold(late or told or change.key in expected, f"{change.key} comes into a graph that is {state}")
                self.came |= {change.key} & expected
            if isinstance(change, Merge) and change.columns.get("state") == "running":
                may_run = state in ("blocked", "deleting") and change.key in self.came
                hold(may_run, f"a run of {change.key} begins in a graph that is {state}")
                self.ran += 1
            if isinstance(change, Delete):
                self.gone[change.key] += 1
                hold(self.gone[change.key] == 1 or late, f"{change.key} is taken away twice")
                ours = any(isinstance(each, Merge) and each.key == GRAPH for each in changes)
                hold(ours or change.key == GRAPH, "rows are taken away in front of the fence")

    def _is_request(self, key: str) -> bool:
        return key in self.brings or key.rpartition(":")[0] in self.brings

    def _brought(self, changes: Sequence[Change]) -> set[str]:
        """Keys of the rows that a commit may bring into a graph that is blocked, beside facts and what is late."""
        asked = {each.key for each in changes if isinstance(each, Insert) and each.key.startswith("request:")}
        found = {key for key in asked if self._is_request(key)}
        for each in changes:
            if isinstance(each, Merge) and (each.columns.keys() & {"cursor"} or each.columns.get("state") == "done"):
                found.update(self.brings.get(each.key, ()))
        return found


class Afterlife:
    """The second part of a history."""

    def __init__(self, seed: int) -> None:
        # What a late rerun reopens is not deleted: these come to their end.
        self.world = world = dataclasses.replace(world_of(seed, profile="tiny"), again=0)
        world.labels[task_id_of(world.graph_id, "late")] = "late"
        self.rng = random.Random(seed * 3 + 7)
        self.sent: list[tuple[str, str]] = []
        inner = world.queues.send

        async def send(queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
            self.sent += [(queue, body) for body in bodies]
            await inner(queue, bodies, delay_seconds=delay_seconds)

        world.queues.send = send  # type: ignore[method-assign]
        self.end = world.run()
        world.queues.send = inner  # type: ignore[method-assign]
        brings = {f"request:{_request_of(each)}": self._rows_of(each) for each in world.extensions}
        brings["request:late"] = {row_key(task_id_of(world.graph_id, "late"))}
        self.after = After(self.end, brings)
        world.invariants = self.after  # type: ignore[assignment]
        world.watch = _NoWatch()  # type: ignore[assignment]
        self.logs: Any = NoLogs()

    def _rows_of(self, document: GraphDocument) -> set[str]:
        """Keys of the rows of tasks, groups and limits that an extension brings."""
        graph_id = self.world.graph_id
        tasks = {row_key(task_id_of(graph_id, label)) for label in document.tasks}
        groups = {group_key(task_id_of(graph_id, name)) for name in document.groups}
        return tasks | groups | {limit_key(limit_scope(graph_id, name)) for name in document.groups}

    # --- who is at work

    async def _delete(self) -> None:
        with contextlib.suppress(Conflict):
            await delete(self.world.handlers(), self.logs, self.world.graph_id, force=True, because="x")

    async def _sweep(self) -> None:
        await sweep(self.world.handlers(), logs=self.logs)

    async def _house(self) -> None:
        await keep_house(self.world.handlers(), self.logs, keep_days=0)

    async def _late_extension(self) -> None:
        """It had looked at the graph while that ran."""
        handlers = self.world.handlers()
        parts, head = request_rows("late", LATE, "digest", 1, handlers.clock.now())
        for row in (*parts, head):
            with contextlib.suppress(Conflict):
                await handlers.records.tables.commit(self.world.graph_id, [row])
        await enter_live(handlers.records, self.world.graph_id)

    async def _asks_again(self) -> None:
        """As an old client does, which also says where its tasks are."""
        handlers, world = self.world.handlers(), self.world
        await old_tasks.enter(handlers.records.tables, world.graph_id, world.document.tasks)
        with contextlib.suppress(Refused, NotFound):
            await submit(handlers, world.graph_id, world.document)
        for extension in world.extensions:
            with contextlib.suppress(Refused, NotFound):
                await extend(handlers, world.graph_id, extension)

    async def _handler(self, handlers: Handlers) -> None:
        found = await handlers.queues.receive(EVENTS, count=self.rng.choice((1, 2, 8)), lease_seconds=30)
        messages = [parse(delivery.body) for delivery in found]
        if not messages:
            return
        handled = {id(each.message): each for each in await handlers.handle(self.world.graph_id, messages)}
        for delivery, message in zip(found, messages, strict=True):
            error = handled[id(message)].error
            hold(error is None, f"{message}: {error!r}")
            with contextlib.suppress(StaleDelivery):
                await handlers.queues.delete(delivery)

    async def _worker(self, handlers: Handlers) -> None:
        for delivery in await handlers.queues.receive(WORK, count=1, lease_seconds=30):
            message = parse(delivery.body)
            assert isinstance(message, RunTasks)
            lease = handlers.clock.now() + timedelta(seconds=60)
            claims = [Claim(task, run, self.world.clock.new_id(), "w", lease) for task, run in message.tasks]
            ask = handlers.advance if self.rng.random() < 0.5 else handlers.transition
            answers = await ask(self.world.graph_id, claims)
            hold(all(each.error is None for each in answers), f"{message}: {answers}")
            with contextlib.suppress(StaleDelivery):
                await handlers.queues.delete(delivery)

    # --- the driver

    def play(self) -> None:
        world, rng = self.world, self.rng
        world.faults = Faults(*(rng.choice((0.0, 0.0, 0.02, 0.08)) for _ in range(6)))
        world.active = True
        known = [world.handlers() for _ in range(2)]
        late = [each for each in self.sent if rng.random() < 0.7]
        for queue, body in late:
            world.queues.messages.setdefault(queue, {})[f"late{rng.random()}"] = (0.0, 0, "", body)
        world.queues.changes += 1
        for step in range(STEPS_MAX):
            world.steps = step
            if step == STORM_STEPS:
                world.active = False
            if not world.actors or (len(world.actors) < 4 and rng.random() < 0.3):
                if not world.active and not world.actors and self._over():
                    break
                self._spawn(known)
            world.advance()
            if rng.random() < 0.1:
                world.clock.seconds += rng.choice((1.0, 10.0, 40.0))
        else:
            raise Violation(f"no end after {STEPS_MAX} steps")
        self._nothing_is_left()

    def _spawn(self, known: Sequence[Handlers]) -> None:
        world = self.world
        handlers = self.rng.choice(known)
        makers: dict[str, Any] = {
            "delete": self._delete,
            "sweep": self._sweep,
            "house": self._house,
            "handler": lambda: self._handler(handlers),
            "worker": lambda: self._worker(handlers),
            "asks again": self._asks_again,
        }
        if world.active:
            makers["late"] = self._late_extension
        name = self.rng.choice([*makers, "handler", "worker"])
        world.spawn(name, makers[name]())

    def _over(self) -> bool:
        queues = self.world.queues.messages
        rows = self.world.rows
        deleted = GRAPH in rows and rows[GRAPH].columns["state"] == "deleted"
        return deleted and not queues.get(EVENTS) and not queues.get(WORK) and not self._index(LIVE)

    def _index(self, partition: str) -> Sequence[str]:
        return sorted(self.world.tables.partitions.get(partition, {}))

    def _nothing_is_left(self) -> None:
        world = self.world
        hold(_but_late(world.rows, self.after.staged) == {GRAPH}, f"left: {sorted(world.rows)}")
        # What a submission has listed that was not the one is left where that died: lists leave it out.
        created = world.rows[GRAPH].columns["created"]
        listed = [row for row in world.tables.partitions.get(ALL, {}).values() if row.columns["created"] == created]
        hold(not listed and not self._index(POISON), "it is named elsewhere")
        hold(len(self._index(TOMBSTONES)) == 1, f"tombstones: {self._index(TOMBSTONES)}")
        world.clock.seconds += limits.TOMBSTONE_SECONDS + 1
        world.spawn("house", self._house())
        while world.actors:
            world.advance()
        partitions = world.tables.partitions.items()
        own = {GATES, CLOCKS, KEEPING, ALL}  # of targets, of who keeps house and how far that is, and see above
        left = {name: sorted(rows) for name, rows in partitions if rows and name not in own}
        hold(not left, f"left for ever: {left}")


class _NoWatch:
    """Races are counted in histories that live."""

    def __init__(self) -> None:
        self.storm = 0
        self.met: Counter[str] = Counter()
        self.written: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: {}


def played(seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        life = Afterlife(seed)
        try:
            life.play()
        except Violation as violation:
            raise AssertionError(f"seed {seed}: {violation}") from violation
        finally:
            for actor in life.world.actors:
                actor.coroutine.close()
        counts.update(life.world.fault_counts)
        counts[life.end] += 1
        counts["messages"] += len(life.sent)
        counts["late"] += life.after.late
        counts["came"] += len(life.after.came)
        counts["ran"] += life.after.ran
    return counts


def test_nothing_is_left_of_a_deleted_graph_and_nothing_comes_back(seeds: range | None) -> None:
    counts = played(seeds or SEEDS)
    if seeds is None:  # a run that did not meet what it is for proves nothing
        assert counts["blocked"] > 3
        assert counts["came"] > 0
        assert min(counts["finished"], counts["late"], counts["crash"], counts["unclear"]) > 50
        assert counts["messages"] > 500


@pytest.mark.slow
def test_nor_in_many_histories() -> None:
    played(MANY_SEEDS)
