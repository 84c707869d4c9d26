"""A server of workers elsewhere that dies, at each of its storage calls and with each of its answers: nothing is lost.

The worker sends what was not answered again, to the next server, which remembers nothing. A graph is played once for
each place where that can happen. It must finish, no run may begin twice, and a task runs again only in a new run.
"""

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.engine.poison import Poison
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, StorageUnavailable
from taskgraph.model.messages import Cancel
from taskgraph.queries import targets
from taskgraph.queries.targets import GATES
from taskgraph.storage.memory import MemoryLogs
from taskgraph.storage.signals.wakeup import Wakeup
from taskgraph.storage.tables import Range, Tables, query_all
from taskgraph.worker.executors import Outcome
from taskgraph.worker.gateway import Assignment, Gateway, Report, RunClaim, Wanted
from tests.scenarios.stage import CrashError, Stage, Trap, memory_stage

T = TypeVar("T")

KINDS: Final = ("before", "after", "unclear", "conflict", "unavailable", "unanswered")
SMALL: Final = document_from_object(
    {
        "tasks": {
            "a": {"task": {}},
            "b": {"requires": ["a"], "reruns": 1, "task": {"payload": {"n": {"$result": "a"}}}},
            "c": {"requires": ["a", "b"], "task": {}},
            "d": {"task": {}},
        }
    }
)


@dataclass
class Cut(Trap):
    """A Trap after which a dead process makes no further call. kind `unanswered`: request `at` gets no answer."""

    dead: bool = False

    def before(self, call: str) -> int:
        if self.dead:
            raise CrashError(call)
        try:
            return super().before(call)
        except CrashError:
            self.dead = True
            raise

    def after(self, call: str, number: int) -> None:
        try:
            super().after(call, number)
        except CrashError:
            self.dead = True
            raise


@dataclass
class Elsewhere:
    """A worker, and the servers that it asks one after the other."""

    stage: Stage
    cut: Cut
    bundled: bool
    most: int = 2  # runs in hand at a time
    requests: int = 0
    deaths: int = 0
    begun: Counter[tuple[str, int]] = field(default_factory=Counter)
    seen: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.server = self._server(self.cut)

    def _server(self, cut: Trap | None) -> Gateway:
        handlers = self.stage.more_handlers(cut)
        tables, queues = handlers.records.tables, handlers.queues
        self.logs = getattr(self, "logs", MemoryLogs())
        return Gateway(handlers, Poison(tables, queues, self.stage.clock, handlers.names), self.logs, Wakeup())

    async def ask(self, request: Callable[[Gateway], Awaitable[T]]) -> T:
        """The answer, of whichever server gives one."""
        while True:
            self.requests += 1
            try:
                answer = await request(self.server)
            except CrashError:
                self.deaths += 1
                self.server = self._server(None)
            except (StorageUnavailable, Conflict):
                pass  # 503, or 409 with Retry-After
            else:
                if self.cut.kind != "unanswered" or self.requests != self.cut.at:
                    return answer
                self.deaths += 1
                self.server = self._server(None)

    async def work(self) -> str:
        """Work until the graph ends; gives its state. Time goes on where there is nothing to do."""
        done: list[Report] = []
        for _ in range(40):
            found = await self._claim(done)
            assert len(found) <= self.most, self.cut
            done = [await self._run(one) for one in found]
            if not done:
                if (state := await self.stage.state()) in ("finished", "blocked", "cancelled"):
                    return state
                self.stage.clock.advance(limits.REDISPATCH_SECONDS + 1)
                await self.stage.sweep()
        raise AssertionError(f"no end: {await self.stage.states()}, {self.cut}")

    async def _claim(self, done: Sequence[Report]) -> list[Assignment]:
        """Report, and take what is ready: in one request, or apart."""
        wanted = Wanted("elsewhere", slots=2)

        async def both(server: Gateway) -> list[Assignment]:
            answered = await server.report(done)
            assert [each.stale for each in answered] == [""] * len(done)
            return await server.claim(wanted)

        if self.bundled:
            return await self.ask(both)
        for each in done:
            (answered,) = await self.ask(lambda server, each=each: server.report([each]))
            assert answered.stale == ""
        return await self.ask(lambda server: server.claim(wanted))

    async def _run(self, one: Assignment) -> Report:
        self.begun[one.label, one.claim.run] += 1
        self.seen[one.label] = one.definition.get("payload")
        (renewed,) = await self.ask(lambda server: server.renew([one.claim]))
        assert renewed.stale == ""
        assert await self.ask(lambda server: server.log(one.claim, b"a line\n", 0)) == 7
        failed = one.label == "b" and sum(self.begun[label, run] for label, run in self.begun if label == "b") == 1
        return Report(one.claim, Outcome(failed=failed, reason="once", result=None if failed else b'{"x": 1}'))


@dataclass
class Naming(Elsewhere):
    """It names one run that it claims, as workers of the old queue do, and takes what else is ready.

    Each claim by name is repeated before the run begins, maybe at another server.
    """

    most: int = 3

    async def _claim(self, done: Sequence[Report]) -> list[Assignment]:
        for each in done:
            (answered,) = await self.ask(lambda server, each=each: server.report([each]))
            assert answered.stale == "", self.cut
        states = await self.stage.states()
        pending = [label for label in sorted(states) if states[label] == "pending"]
        named = [await self._named(label) for label in pending[:1]]
        return named + await self.ask(lambda server: server.claim(Wanted("elsewhere", slots=2)))

    async def _named(self, label: str) -> Assignment:
        row, wanted = (await self.stage.row(label)).columns, Wanted("naming")
        run = self.stage.graph_id, self.stage.task_id(label), int(row["run"])
        claimed = await self.ask(lambda server: server.claim_run(wanted, *run))
        repeated = await self.ask(lambda server: server.claim_run(wanted, *run))
        assert claimed.lease_until is not None, (claimed, self.cut)
        assert (repeated.claim, repeated.stale) == (claimed.claim, ""), self.cut
        return Assignment(claimed.claim, label, {"payload": {"n": {"x": 1}}}, claimed.lease_until, "")


async def play(stage: Stage, cut: Cut, *, bundled: bool, limited: bool, kind: type[Elsewhere] = Elsewhere) -> Elsewhere:
    if limited:
        await targets.limit_target(stage.tables, "default", 1, stage.clock.now())
    await stage.submit(SMALL)
    worker = kind(stage, cut, bundled)
    if limited:
        worker.most = 1
    assert await worker.work() == "finished", cut
    assert set(worker.begun.values()) == {1}, (cut, worker.begun)
    assert worker.seen["b"] == {"n": {"x": 1}}
    told = await stage.told(tasks=True)
    assert told.count("task-completed") == len(SMALL.tasks)
    assert told.count("graph-finished") == 1
    for label in SMALL.tasks:
        row = (await stage.row(label)).columns
        lost = limits.RETRIES_DEFAULT - int(row["retriesLeft"])
        assert lost <= worker.deaths, (cut, label)
        used = int(row["rerunsAllowed"]) - int(row["rerunsLeft"])
        assert row["run"] == lost + used + int(row.get("handBacks", 0)), (cut, label)
        assert used == (label == "b")
        logged = await worker.logs.read(stage.graph_id, stage.task_id(label), row["run"])
        result = await worker.logs.read(stage.graph_id, stage.task_id(label), row["run"], name="result.json")
        assert (logged, result) == (b"a line\n", b'{"x": 1}'), (cut, label)
    if limited:
        assert await query_all(stage.tables, GATES, Range("permit:", "permit;")) == [] or worker.deaths
    return worker


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limited", [False, True], ids=["free", "limited"])
@pytest.mark.parametrize("bundled", [False, True], ids=["apart", "bundled"])
async def test_one_death_of_a_server_anywhere(
    record_property: Callable[[str, object], None], bundled: bool, limited: bool, kind: str
) -> None:
    for at in itertools.count(1):
        cut = Cut(at, kind)
        worker = await play(memory_stage(), cut, bundled=bundled, limited=limited)
        if (worker.requests if kind == "unanswered" else len(cut.calls)) < at:
            break
        if kind in ("before", "after", "unanswered"):
            assert worker.deaths == 1
        if kind in ("unclear", "conflict"):
            assert worker.deaths == 0
    assert at > (8 if kind == "unanswered" else 30)
    record_property("cases", at - 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_one_death_of_a_server_that_is_asked_for_a_run_by_name(
    record_property: Callable[[str, object], None], kind: str
) -> None:
    for at in itertools.count(1):
        cut = Cut(at, kind)
        worker = await play(memory_stage(), cut, bundled=False, limited=False, kind=Naming)
        if (worker.requests if kind == "unanswered" else len(cut.calls)) < at:
            break
        assert worker.deaths == (cut.dead or kind == "unanswered")  # nothing dies after a commit that was in conflict
    assert at > (8 if kind == "unanswered" else 30)
    record_property("cases", at - 1)


class Met:
    """Tables at whose call number `at` (from 1) others do something first."""

    def __init__(self, inner: Tables, at: int, others: Callable[[], Awaitable[object]]) -> None:
        self._inner = inner
        self._at = at
        self._others = others
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)

        async def met(*args: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == self._at:
                await self._others()
            return await call(*args, **named)

        return met


ONE: Final = document_from_object({"tasks": {"a": {"task": {}}}})


def _others(stage: Stage, held: list[RunClaim]) -> dict[str, Callable[[], Awaitable[object]]]:
    """What may come between any two calls of a claim by name. held: the claims that others get."""
    run = stage.graph_id, stage.task_id("a"), 0

    def server() -> Gateway:
        return Gateway(stage.more_handlers(), stage.poison, MemoryLogs(), Wakeup())

    async def by_queue() -> None:
        held.extend(each.claim for each in await server().claim(Wanted("another")))

    async def by_name(worker: str = "another") -> None:
        answered = await server().claim_run(Wanted(worker), *run)
        held.extend([answered.claim] if answered.lease_until is not None else [])

    async def brought_to_its_end() -> None:
        await by_queue()
        await server().report([Report(each, Outcome(failed=False)) for each in held])

    async def lost() -> None:
        await by_queue()
        stage.clock.advance(limits.LEASE_SECONDS + 1)
        await stage.sweep()
        held.clear()

    return {
        "by queue": by_queue,
        "by name": by_name,
        "the same worker": lambda: by_name("naming"),
        "its end": brought_to_its_end,
        "lost": lost,
        "cancelled": lambda: stage.deliver(Cancel(stage.graph_id)),
        "swept": stage.sweep,
    }


@pytest.mark.parametrize("what", sorted(_others(memory_stage(), [])))
async def test_a_claim_by_name_meets_others_at_each_call(what: str) -> None:
    """At most one of them has the run then, as its row says, whatever the other was answered."""
    got = 0
    for at in itertools.count(1):
        stage, held = memory_stage(), list[RunClaim]()
        await stage.submit(ONE)
        handlers = stage.more_handlers()
        handlers.records.tables = met = Met(stage.tables, at, _others(stage, held)[what])  # type: ignore[assignment]
        server = Gateway(handlers, stage.poison, MemoryLogs(), Wakeup())
        answered = await server.claim_run(Wanted("naming"), stage.graph_id, stage.task_id("a"), 0)
        if met.calls < at:
            break
        own = [answered.claim] if answered.lease_until is not None else []
        got += len(own)
        row = (await stage.row("a")).columns
        assert {each.claim for each in (*own, *held)} <= {row.get("claim")}
        for each in {*own, *held}:
            assert [one.stale for one in await server.report([Report(each, Outcome(failed=False))])] == [""]
        assert await stage.work() in ("finished", "cancelled")
        assert (await stage.row("a")).columns["run"] == (what == "lost")
    assert at > 4
    assert bool(got) == (what in ("swept", "the same worker"))


@pytest.mark.parametrize("kind", ["before", "after", "unanswered"])
@pytest.mark.parametrize("local", ["embedded"], indirect=True)
async def test_one_death_of_a_server_anywhere_on_a_file(local: Stage, kind: str) -> None:
    """The same over the embedded store, with one graph for each place."""
    for at in itertools.count(1):
        stage = Stage(local.tables, local.queues, local.clock, prefix=local.names.prefix, kind=local.kind)
        stage.graph_id = f"graph-{at}"
        cut = Cut(at, kind)
        worker = await play(stage, cut, bundled=True, limited=False)
        if (worker.requests if kind == "unanswered" else len(cut.calls)) < at:
            break
        assert worker.deaths == 1
    assert at > (8 if kind == "unanswered" else 30)


@dataclass
class Away(Trap):
    """From when a work message was deleted, rows cannot be read any more."""

    away: bool = False

    def before(self, call: str) -> int:
        if self.away and call == "get":
            raise StorageUnavailable("503 at get")
        return super().before(call)

    def after(self, call: str, number: int) -> None:
        super().after(call, number)
        self.away = self.away or call == "delete"


async def test_a_store_that_is_away_after_a_claim() -> None:
    """What could neither be handed out nor back is left to its lease."""
    stage, away = memory_stage(), Away()
    await stage.submit(SMALL)
    worker = Elsewhere(stage, Cut(), bundled=True)
    first = await worker.server.claim(Wanted("elsewhere", slots=2))
    assert {each.stale for each in await worker.server.report([await worker._run(one) for one in first])} == {""}
    handlers = stage.more_handlers(away)
    server = Gateway(handlers, stage.poison, worker.logs, Wakeup())
    assert await server.claim(Wanted("elsewhere", slots=2)) == []
    assert away.away
    assert (await stage.row("b")).columns["state"] == "running"
    assert await worker.work() == "finished"
    assert (await stage.row("b")).columns["retriesLeft"] == limits.RETRIES_DEFAULT - 1
