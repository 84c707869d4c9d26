"""Schedules under faults: histories of many who look at once, and small scenes with every fault at every storage call.

In a history several processes look at the schedules of one store, with clocks that are off, and die, or are answered
wrongly, at any storage call; people change, stop, start and trigger schedules meanwhile; graphs end when they like.
When the faults stop, all that was due is looked for: each time fired at most once, with catch-up `all` exactly once and
in order, never before its time by more than a clock is off, and never while an overlap forbids it.

In a scene people or a look act while one storage call goes wrong, and act again in peace, as they would. At the end the
scene must be as if nothing had gone wrong.
"""

import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.documents.recurrence import Recurrence
from taskgraph.engine.commit import Records
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.schedules import Schedules
from taskgraph.model import limits
from taskgraph.model.errors import (
    Conflict,
    NotFound,
    Refused,
    StorageError,
    StorageUnavailable,
    TaskgraphError,
    TooLarge,
    Unclear,
)
from taskgraph.model.ids import GRAPH
from taskgraph.model.names import QueueNames
from taskgraph.protocol.schedule_rules import (
    SCHEDULES,
    CatchUp,
    Overlap,
    Schedule,
    graph_id_of,
    head_key,
    manual_graph_id_of,
    schedule_of,
)
from taskgraph.queries.graphs import Queries
from taskgraph.storage.tables import Change, Delete, Insert, Page, Range, Row
from taskgraph.testing import MemoryQueues, MemoryTables
from tests.simulation.bounds import IN_SEVERAL, bounded
from tests.simulation.invariants import Violation, hold
from tests.simulation.world import SkewedClock, VirtualClock, _step

EVERY_SECONDS: Final = 600
SKEWS_SECONDS: Final = (75.0, -20.0, 0.0)
FAR_SECONDS: Final = (0.0, 0.0, 75.0, 3_600.0, 86_400.0)
"""Clocks that are far ahead, beside right ones; what one of these fires comes early, and nothing rests for it."""
STEPS: Final = 700
_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Gone(BaseException):
    """The process that looked, or the person's, is gone."""


def documents(version: int) -> GraphDocument:
    """A graph of two tasks, another one for each version."""
    return GraphDocument(
        {"a": TaskNode("a", task={"payload": {"version": version}}), f"b{version}": TaskNode(f"b{version}")}
    )


@dataclass(frozen=True)
class Plan:
    """A schedule of a history."""

    name: str
    catch_up: CatchUp
    overlap: Overlap


PLANS: Final = (
    Plan("all-allow", CatchUp.ALL, Overlap.ALLOW),
    Plan("all-queue", CatchUp.ALL, Overlap.QUEUE),
    Plan("last-skip", CatchUp.LAST, Overlap.SKIP),
    Plan("none-queue", CatchUp.NONE, Overlap.QUEUE),
    Plan("last-cancel", CatchUp.LAST, Overlap.CANCEL),
)


@dataclass(eq=False)
class Actor:
    """Somebody at work. begun: schedules whose fire it has begun, and not said to be done."""

    coroutine: Coroutine[Any, Any, Any]
    begun: set[str] = field(default_factory=set)
    skew_seconds: float = 0.0


class WatchedTables:
    """The tables as one process of a history sees them."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._inner = world.tables

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        await _step()
        self._world.called()
        return await self._inner.get(partition, keys)

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        await _step()
        self._world.called()
        return await self._inner.query(partition, rows, limit=min(limit, 3), continuation=continuation)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        world = self._world
        await _step()
        world.called()
        draw = world.draw()
        if draw < 0.01:
            raise Unclear("lost on its way")
        etags = await self._inner.commit(partition, changes)
        world.committed(partition, changes)
        if draw < 0.02:
            raise Unclear("the answer was lost")
        if draw < 0.03:
            raise Conflict("412 on the own write")
        if draw < 0.03 + world.crash:
            raise Gone
        return etags


class World:
    """One history, all of whose chance comes from its seed. skews: of the clocks of those who look."""

    def __init__(self, seed: int, skews: Sequence[float] = SKEWS_SECONDS) -> None:
        self.skews = skews
        self.far = skews is not SKEWS_SECONDS
        self.rng = random.Random(seed)
        self.crash = 0.06
        self.active = False
        self.clock = VirtualClock(self.rng.random)
        self.tables = MemoryTables()
        self.queues = MemoryQueues(self.clock)
        self.met: Counter[str] = Counter()
        self.actors: list[Actor] = []
        self.actor: Actor | None = None
        self.inserted: dict[str, datetime] = {}  # graph id -> when
        self.version = 0

    # --- what happens at storage

    def draw(self) -> float:
        return self.rng.random() if self.active else 1.0

    def called(self) -> None:
        """A call begins."""
        draw = self.draw()
        if draw < self.crash / 3:
            raise Gone
        if draw < self.crash / 3 + 0.01:
            raise StorageUnavailable("503")

    def committed(self, partition: str, changes: Sequence[Change]) -> None:
        for change in changes:
            if partition == SCHEDULES and not isinstance(change, Delete) and "firing" in change.columns:
                name = change.key.partition(":")[2]
                if self.actor is not None:
                    (self.actor.begun.add if change.columns["firing"] else self.actor.begun.discard)(name)
            if change.key == GRAPH and isinstance(change, Insert):
                self.submitted(partition, change)
            if partition == SCHEDULES and not isinstance(change, Insert | Delete) and "next" in change.columns:
                self.met["re-armed"] += 1

    def submitted(self, graph_id: str, change: Insert) -> None:
        """The first row of a graph is there."""
        hold(graph_id not in self.inserted, f"{graph_id} was submitted twice")
        due = change.columns["firedFor"]
        assert isinstance(due, datetime)
        now = self.clock.now()
        hold(now >= due - timedelta(seconds=max(self.skews)), f"{graph_id} was fired before its time, at {now}")
        name = str(change.columns["schedule"])
        if self.actor is not None and name in self.actor.begun:
            own = now + timedelta(seconds=self.actor.skew_seconds + limits.SCHEDULE_LATE_SECONDS)
            hold(due <= own, f"{graph_id} is not due by the clock of who began it")
        if not graph_id.endswith("-now"):
            before = [each for each in self.inserted if each.startswith(f"{name}-2") and not each.endswith("-now")]
            if not name.endswith("-allow"):
                going = [each for each in before if self.state(each) not in ("finished", "cancelled")]
                hold(not going, f"{graph_id} was fired while {going} went on")
            if name.startswith("all-") and not self.far:
                hold(all(each < graph_id for each in before), f"{graph_id} was fired out of order, after {before}")
        self.inserted[graph_id] = now

    def state(self, graph_id: str) -> str:
        return str(self.tables.partitions[graph_id][GRAPH].columns["state"])

    # --- people and processes

    def schedules(self, skew_seconds: float = 0.0) -> Schedules:
        """Those of a process whose clock is off."""
        clock = SkewedClock(self.clock, skew_seconds)
        tables = WatchedTables(self)
        names = QueueNames()
        handlers = Handlers(Records(tables, clock), self.queues, clock, names)
        return Schedules(handlers, Queries(tables, self.queues, clock, names))

    def looker(self) -> Actor:
        """A process that looks, whose clock may be off."""
        skew = self.rng.choice(self.skews)
        return Actor(self.schedules(skew).look(), skew_seconds=skew)

    def heads(self) -> list[Schedule]:
        rows = self.tables.partitions[SCHEDULES]
        return [schedule_of(rows[head_key(plan.name)].columns) for plan in PLANS]

    def person(self) -> Coroutine[Any, Any, Any]:
        """Somebody changes something."""
        name = self.rng.choice(PLANS).name
        schedules = self.schedules()
        what = self.rng.random()
        self.version += 1
        if what < 0.3:
            return schedules.update(name, document=documents(self.version))
        if what < 0.6:
            return schedules.set_active(name, active=False)
        if what < 0.9:
            return schedules.set_active(name, active=True)
        return schedules.run_now(name)

    def end_a_graph(self) -> None:
        """A graph ends, as if handlers and workers had run it; one that is asked to be cancelled is."""
        going = [graph_id for graph_id in self.inserted if self.state(graph_id) == "running"]
        if going:
            graph_id = self.rng.choice(going)
            rows = self.tables.partitions[graph_id]
            row = rows[GRAPH]
            rows[GRAPH] = Row(GRAPH, row.etag + "'", {**row.columns, "state": "finished"})

    def step(self, actor: Actor) -> None:
        """One step of somebody."""
        self.actor = actor
        try:
            actor.coroutine.send(None)
        except StopIteration:
            self.actors.remove(actor)
        except Gone:
            self.actors.remove(actor)
            for name in actor.begun:
                self.died_in_a_fire(name)
        except TaskgraphError as error:
            # By hand it was fired twice within a millisecond, and its graph was replaced in between: the id is taken.
            taken = isinstance(error, Refused) and "-now exists, with different content" in str(error)
            hold(taken or isinstance(error, StorageError), f"{error!r}")
            self.actors.remove(actor)
            self.met["refused" if taken else "given up"] += 1
        finally:
            self.actor = None

    def died_in_a_fire(self, name: str) -> None:
        """R28, by how far it had come."""
        schedule = schedule_of(self.tables.partitions[SCHEDULES][head_key(name)].columns)
        if schedule.firing is None:
            return  # somebody else has finished it
        self.met["R28 fire"] += 1
        graph_id = graph_id_of(name, schedule.firing)
        self.met[f"R28 {self.state(graph_id) if graph_id in self.inserted else 'not submitted'}"] += 1

    def finish(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Let somebody come to the end in peace."""
        actor = Actor(coroutine)
        self.actors.append(actor)
        while actor in self.actors:
            self.step(actor)

    # --- the history

    def run(self) -> None:
        """Play it, and judge."""
        for plan in PLANS:
            recurrence = Recurrence(every=EVERY_SECONDS, anchor=_EPOCH)
            made = self.schedules().create(
                plan.name, documents(0), recurrence, catch_up=plan.catch_up, overlap=plan.overlap, keep=3
            )
            self.finish(made)
        self.active = True
        for _ in range(STEPS):
            draw = self.rng.random()
            if draw < 0.05 and len(self.actors) < 4:
                self.actors.append(self.looker())
            elif draw < 0.07:
                self.actors.append(Actor(self.person()))
            elif draw < 0.12:
                self.end_a_graph()
            elif draw < 0.15 or (not self.actors and draw < 0.4):
                self.clock.seconds += self.rng.choice((20.0, 20.0, 100.0, 400.0, 1_300.0))
            elif not self.actors:
                self.actors.append(self.looker())
            else:
                together = [actor for actor in self.actors if actor.begun]
                self.met["two in one fire"] += len(together) > 1
                self.step(self.rng.choice(self.actors))
        self.settle()
        self.judge()

    def settle(self) -> None:
        """No fault any more: everybody comes to an end, everything is activated, graphs end, and looks go on."""
        self.active = False
        for actor in list(self.actors):
            while actor in self.actors:
                self.step(actor)
        for plan in PLANS:
            self.finish(self.schedules().set_active(plan.name, active=True))
        self.clock.seconds += 3 * EVERY_SECONDS
        for _ in range(1_000):
            self.finish(self.schedules().look())
            while any(self.state(graph_id) == "running" for graph_id in self.inserted):
                self.end_a_graph()
            now = self.clock.now()
            if all(not each.waiting and each.firing is None and each.next and each.next > now for each in self.heads()):
                return
        raise AssertionError(f"never at rest: {self.heads()}")

    def judge(self) -> None:
        """The rows against the times alone."""
        for plan, schedule in zip(PLANS, self.heads(), strict=True):
            name = plan.name
            assert schedule.next is not None
            number = round((schedule.next - _EPOCH).total_seconds() / EVERY_SECONDS) - 1
            due = [_EPOCH + timedelta(seconds=EVERY_SECONDS * n) for n in range(1, number + 1)]
            ids = {f"{name}-{moment.strftime('%Y%m%dT%H%M%SZ')}" for moment in due}
            fired = {each for each in self.inserted if each.startswith(f"{name}-2") and not each.endswith("-now")}
            hold(self.far or fired <= ids, f"{name}: fired without being due: {fired - ids}")
            if plan.catch_up is CatchUp.ALL:
                hold(fired >= ids, f"{name}: never fired: {ids - fired}")
            hold(schedule.error == "", f"{name}: {schedule.error}")
            whole = len(fired & ids) + schedule.skipped
            hold(
                whole == number or (self.far and whole >= number),
                f"{name}: {len(fired)} + {schedule.skipped} of {number}",
            )
            latest = self.clock.now() + timedelta(seconds=EVERY_SECONDS + limits.SCHEDULE_LATE_SECONDS)
            hold(schedule.next <= latest, f"{name} rests until {schedule.next}")
            parts = [key for key in self.tables.partitions[SCHEDULES] if key.startswith(f"document:{name}:")]
            hold(all(schedule.document in key for key in parts), f"{name}: rows of older graphs are left: {parts}")
            self.met["fired"] += len(fired)
            self.met["left out"] += schedule.skipped
        halves = [each for each in self.inserted if self.state(each) == "submitting"]
        hold(not [each for each in halves if not each.endswith("-now")], f"half written: {halves}")


def play(seed: int, skews: Sequence[float] = SKEWS_SECONDS) -> Counter[str]:
    """What a history has met. Every other one submits in several commits. Raises Violation."""
    world = World(seed, skews)
    try:
        with bounded(IN_SEVERAL if seed % 2 else {}):
            world.run()
    finally:
        for actor in world.actors:
            actor.coroutine.close()
    return world.met


# --- every fault at every call ---------------------------------------------------------------------------------

KINDS: Final = {
    "before": "the process dies before the call",
    "after": "the process dies after the call",
    "unavailable": "the store refuses the call",
    "conflict": "a commit is applied, and answered as a conflict",
    "unclear": "a commit is applied, and not answered",
    "lost": "a commit gets lost on its way",
    "large": "the store finds a commit too large",
    "beaten": "somebody else looks first, from the beginning to the end",
    "contended": "others write first, every time",
}
OF_COMMITS: Final = ("conflict", "unclear", "lost", "large", "beaten", "contended")


class GatedTables:
    """Numbers the calls from 1, and lets the fault happen at one of them, once the gate is open."""

    def __init__(self, scene: "Scene") -> None:
        self._scene = scene
        self._inner = scene.tables

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        kind = self._scene.before("get")
        found = await self._inner.get(partition, keys)
        self._scene.after(kind)
        return found

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        kind = self._scene.before("query")
        page = await self._inner.query(partition, rows, limit=limit, continuation=continuation)
        self._scene.after(kind)
        return page

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        scene = self._scene
        kind = scene.before("commit")
        match kind:
            case "lost":
                raise Unclear("lost on its way")
            case "large":
                raise TooLarge("too large")
            case "contended":
                raise Conflict("others")
            case "beaten":
                await scene.peaceful().look()
        etags = await self._inner.commit(partition, changes)
        scene.after(kind)
        return etags


class TickClock:
    """A clock on which whoever sleeps moves the time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._ids = itertools.count(1)

    def now(self) -> datetime:
        return _EPOCH + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def new_id(self) -> str:
        return f"id-{next(self._ids)}"

    def jitter(self) -> float:
        return 0.5


BEGUN: Final = 3  # calls of a look until a fire has begun, and nothing of its graph is there
HALF: Final = 7  # until half of its graph is there
Act = Callable[[Schedules], Coroutine[Any, Any, Any]]


@dataclass(frozen=True)
class Script:
    """A scene: what stands there, what is done under the fault (and again in peace), which graphs there must be then.

    ready: seconds until the act. ids: of the graphs; None: a graph by hand for each millisecond at which one was asked
    for and the answer came. without: kinds of faults after which it is another story.
    """

    name: str
    setting: Mapping[str, Any]
    act: Act
    ready: float
    ids: Sequence[str] | None
    deleted: bool = False
    without: Sequence[str] = ()


def _id(minutes: int) -> str:
    return f"s-20260101T00{minutes:02}00Z"


async def _look(schedules: Schedules) -> None:
    await schedules.look()


async def _update(schedules: Schedules) -> None:
    await schedules.update("s", document=documents(1), keep=5)


async def _stop_and_go(schedules: Schedules) -> None:
    await schedules.set_active("s", active=False)
    await schedules.set_active("s", active=True)


async def _create(schedules: Schedules) -> None:
    await schedules.create("s", documents(0), Recurrence(every=EVERY_SECONDS, anchor=_EPOCH))


async def _delete(schedules: Schedules) -> None:
    try:
        await schedules.delete("s")
    except NotFound:
        return  # by the call before


async def _run_now(schedules: Schedules) -> None:
    await schedules.run_now("s")


SCRIPTS: Final = (
    Script("one fires", {}, _look, 600, [_id(10)]),
    Script(
        "three fire", {"catch_up": CatchUp.ALL, "overlap": Overlap.ALLOW}, _look, 1_900, [_id(10), _id(20), _id(30)]
    ),
    Script("one of three fires", {"overlap": Overlap.QUEUE}, _look, 1_900, [_id(30)]),
    Script("it is created", {"missing": True}, _create, 0, []),
    Script("its graph is replaced", {}, _update, 100, []),
    Script("it is stopped and started", {"active": False, "catch_up": CatchUp.NONE}, _stop_and_go, 700, []),
    Script("it is deleted", {}, _delete, 100, [], deleted=True),
    Script("it is deleted in mid-fire", {"begun": BEGUN}, _delete, 600, [_id(10)], deleted=True, without=["large"]),
    Script("by hand", {}, _run_now, 100, None),
    Script("in mid-fire, its graph is replaced", {"begun": BEGUN}, _update, 600, [_id(10)]),
    Script("half submitted, its graph is replaced", {"begun": HALF}, _update, 600, [_id(10)]),
)


class Scene:
    """One playing of a script, with a fault of this kind at call number `at` of its act."""

    def __init__(self, script: Script, at: int = 0, kind: str = "") -> None:
        self.script = script
        self.at, self.kind = at, kind
        self.clock = TickClock()
        self.tables = MemoryTables()
        self.queues = MemoryQueues(self.clock)
        self.open = False
        self.calls: list[str] = []
        self.asked: set[str] = set()
        self.answered: set[str] = set()

    def before(self, call: str) -> str:
        """A call begins; gives the fault that it is to have."""
        if not self.open:
            return ""
        self.calls.append(call)
        number = len(self.calls)
        if number != self.at and not (self.kind == "contended" and self.at and number > self.at and call == "commit"):
            return ""
        if self.kind in OF_COMMITS and call != "commit":
            return ""
        if self.kind == "before":
            raise Gone
        if self.kind == "unavailable":
            raise StorageUnavailable("503")
        return self.kind

    def after(self, kind: str) -> None:
        match kind:
            case "after":
                raise Gone
            case "unclear":
                raise Unclear("the answer was lost")
            case "conflict":
                raise Conflict("412 on the own write")

    def schedules(self, tables: Any) -> Schedules:
        names = QueueNames()
        handlers = Handlers(Records(tables, self.clock), self.queues, self.clock, names)
        return Schedules(handlers, Queries(tables, self.queues, self.clock, names))

    def peaceful(self) -> Schedules:
        return self.schedules(self.tables)

    async def act(self, schedules: Schedules) -> None:
        by_hand = manual_graph_id_of("s", self.clock.now())
        self.asked.add(by_hand)
        await self.script.act(schedules)
        self.answered.add(by_hand)

    async def play(self) -> None:
        """Set it up, act under the fault, act again in peace, and judge."""
        setting = dict(self.script.setting)
        peaceful = self.peaceful()
        begun = setting.pop("begun", 0)
        if not setting.pop("missing", False):
            recurrence = Recurrence(every=EVERY_SECONDS, anchor=_EPOCH)
            await peaceful.create("s", documents(0), recurrence, **setting)
        self.clock.seconds += self.script.ready
        if begun:
            self.open, at, kind = True, self.at, self.kind
            self.at, self.kind = begun, "after"
            with contextlib.suppress(Gone):
                await self.schedules(GatedTables(self)).look()
            halves = [held for held in self.tables.partitions.values() if GRAPH in held]
            hold([held[GRAPH].columns["state"] for held in halves] == ["submitting"] * (begun == HALF), self.calls)
            self.at, self.kind, self.open = at, kind, False
            self.calls.clear()
        self.open = True
        try:
            await self.act(self.schedules(GatedTables(self)))
        except Gone:
            pass
        except TaskgraphError as error:
            hold(isinstance(error, StorageError), repr(error))
        self.open = False
        await self.act(peaceful)
        for _ in range(3):
            self.clock.seconds += 40
            await peaceful.look()
        await self.judge(peaceful)

    async def judge(self, schedules: Schedules) -> None:
        rows = self.tables.partitions.get(SCHEDULES, {})
        graphs = {name: held[GRAPH].columns for name, held in self.tables.partitions.items() if GRAPH in held}
        ids = self.answered if self.script.ids is None else set(self.script.ids)
        # What was asked for in vain may be half there: the sweep cancels it a day later.
        given_up = self.asked - self.answered if self.script.ids is None else set()
        hold(ids <= graphs.keys() <= ids | given_up, f"graphs: {sorted(graphs)}")
        for graph_id, columns in graphs.items():
            hold(columns["state"] == ("running" if graph_id in ids else "submitting"), f"{graph_id}: {columns}")
        if self.script.deleted:
            hold(not rows, f"left behind: {sorted(rows)}")
            return
        (schedule,) = await schedules.listed()
        hold(schedule.active and schedule.firing is None and not schedule.waiting, f"{schedule}")
        hold(schedule.fired == len(ids), f"{schedule.fired} of {len(ids)}")
        hold(len(rows) == 1 + 1, f"rows: {sorted(rows)}")
        hold(schedule.tasks == 2 and await schedules.document("s") is not None, "its graph")


def drive(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine that never really waits."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise AssertionError("the coroutine waited for something")


def perform(scene: Scene) -> None:
    """Play a scene; in several commits where its graph is to be half written. Raises Violation."""
    with bounded(IN_SEVERAL if scene.script.setting.get("begun") == HALF else {}):
        drive(scene.play())


def play_scenes(met: Counter[str], *, every: int = 1) -> tuple[int, list[str]]:
    """Every kind of fault at every call of every script, or every so many-th; how many, and what was broken."""
    played, violations = 0, []
    for script in SCRIPTS:
        calm = Scene(script)
        perform(calm)
        for number, call in enumerate(calm.calls, 1):
            for kind in KINDS:
                if (kind in OF_COMMITS and call != "commit") or kind in script.without:
                    continue
                played += 1
                if played % every:
                    continue
                scene = Scene(script, number, kind)
                try:
                    perform(scene)
                except (AssertionError, Violation) as error:
                    violations.append(f"{script.name!r}, {kind} at call {number} ({call}): {error}")
                met[f"scene {kind}"] += 1
    return played, violations
