"""Messages with more tasks than older programs read: sent where all readers take them, and shared out as before."""

import asyncio
import json
import math
from collections import Counter

import pytest

from taskgraph.engine.handlers import Handlers
from taskgraph.engine.poison import NEWER_VERSION_SECONDS
from taskgraph.engine.sweep import sweep
from taskgraph.model import limits
from taskgraph.model.ids import task_id_of
from taskgraph.model.messages import RunTasks, to_text
from taskgraph.queries.workers import Crew as Known
from taskgraph.queries.workers import HandlerStatus, WorkerStatus
from taskgraph.storage.queues import Delivery
from tests.scenarios.crew import Calls, Crew, Instant, Script, fan, once_each, virtually

FAN = fan(300)
SIDE_BY_SIDE: dict[str, list[str]] = {f"m{n:03}": [] for n in range(300)}
OLD = "0.3.0"


class Versions:
    """Queues that count messages by queue and version. old: a reader that leaves a higher version alone."""

    def __init__(self, inner: object, sent: Counter[str], *, old: bool = False) -> None:
        self._inner, self._sent, self._old = inner, sent, old

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def send(self, queue: str, bodies: list[str], *, delay_seconds: float = 0) -> None:
        for body in bodies:
            self._sent[f"{queue.split('-')[1]} {json.loads(body)['version']}"] += 1
        await self._inner.send(queue, bodies, delay_seconds=delay_seconds)  # type: ignore[attr-defined]

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        found: list[Delivery] = await self._inner.receive(queue, count=count, lease_seconds=lease_seconds)  # type: ignore[attr-defined]
        if not self._old:
            return found
        newer = [each for each in found if json.loads(each.body)["version"] > 1]
        for each in newer:
            self._sent["left alone"] += 1
            await self._inner.renew(each, lease_seconds=NEWER_VERSION_SECONDS)  # type: ignore[attr-defined]
        return [each for each in found if each not in newer]


def process(crew: Crew, sent: Counter[str], *, old: bool = False) -> Handlers:
    """Of a process; an old one sends nothing that it would not read."""
    handlers = crew.handlers(Calls())
    handlers.queues = handlers.dispatcher.queues = Versions(handlers.queues, sent, old=old)  # type: ignore[assignment]
    if old:
        sizes = handlers.dispatcher.bundle_sizes
        sizes.crew, sizes.crew_at = Known(known=False), math.inf
    return handlers


# --- who reads what ----------------------------------------------------------------------------------------------


def worker(version: str, *, name: str = "w", target: str = "default", state: str = "active") -> WorkerStatus:
    return WorkerStatus(name, state, "", (target,), (), (), 1, 0, version, 1, None, None, 0.0, False)


def handler(version: str, state: str = "active") -> HandlerStatus:
    return HandlerStatus("h", "handler", state, "", version, 1, None, None, 0.0)


@pytest.mark.parametrize(
    ("known", "takers"),
    [
        pytest.param(Known([worker("0.4.0"), worker("1.0", name="x")], [handler("0.10.2")]), 2, id="all"),
        pytest.param(Known([worker("0.4.0"), worker("0.3.9", name="x")], [handler("0.4.0")]), 0, id="old worker"),
        pytest.param(Known([worker("0.4.0")], [handler("0.4.0"), handler("0.3.0")]), 0, id="old handler"),
        pytest.param(
            Known([worker("0.4.0"), worker("0.3.0", target="gpu")], [handler("0.4.0")]), 1, id="not its queue"
        ),
        pytest.param(Known([worker("0.4.0"), worker("0.3.0", state="gone")], [handler("0.4.0")]), 1, id="gone worker"),
        pytest.param(Known([worker("0.4.0")], [handler("0.4.0"), handler("0.3.0", "gone")]), 1, id="gone handler"),
        pytest.param(Known([worker("0.4.0", state="draining")], [handler("0.4.0")]), 1, id="draining"),
        pytest.param(Known([worker("dev")], [handler("0.4.0")]), 0, id="no version"),
        pytest.param(Known([worker("")], [handler("0.4.0")]), 0, id="empty version"),
        pytest.param(Known([worker("0.4.0")]), 0, id="handlers without rows"),
        pytest.param(Known([], [handler("0.4.0")]), 0, id="no worker yet"),
        pytest.param(Known([worker("0.4.0", state="gone")], [handler("0.4.0")]), 0, id="no worker any more"),
        pytest.param(Known([worker("0.4.0", target="gpu")], [handler("0.4.0")]), 0, id="none of the target"),
        pytest.param(Known(known=False), 0, id="not seen from here"),
    ],
)
def test_large_messages_go_where_all_that_may_read_them_are_known_to_take_them(known: Known, takers: int) -> None:
    assert known.takers_of_large("default", []) == takers
    assert known.takers_of_large("default", ["w"] if known.workers else []) == takers
    assert known.takers_of_large("default", ["w", "without a row"]) == 0


# --- whole graphs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", [Script, Instant])
def test_work_and_results_go_in_large_messages_where_all_take_them(executor: type[Script]) -> None:
    sent: Counter[str] = Counter()

    async def act(crew: Crew) -> None:
        await crew.registered()
        await crew.registered("w")
        await crew.submit(FAN)
        script = executor()
        consumer, worker = (
            crew.consumer(handlers=process(crew, sent)),
            crew.worker(script, handlers=process(crew, sent)),
        )
        crew.start(consumer, worker)
        await crew.finish()
        assert once_each([script], FAN)

    virtually(act)
    assert sent["work 2"] >= 2
    if executor is Instant:
        assert sent["events 2"] >= 2
    assert sent.total() < 2 * len(FAN) / limits.BUNDLE_TASKS_MAX + 8


@pytest.mark.parametrize(
    ("workers", "handlers"),
    [((OLD,), ("",)), (("", OLD), ("",)), (("",), (OLD,)), (("",), ("", OLD)), ((OLD,), (OLD,))],
    ids=["old worker", "old beside new", "old handler", "old beside new handler", "all old"],
)
def test_older_programs_are_sent_nothing_that_they_do_not_read(
    workers: tuple[str, ...], handlers: tuple[str, ...]
) -> None:
    """However long the old one has nothing to do: its row says that it is there."""
    sent: Counter[str] = Counter()

    async def act(crew: Crew) -> None:
        for version in handlers:
            await (crew.registered(version=version) if version else crew.registered())
        scripts = [Instant() for _ in workers]
        for number, (script, version) in enumerate(zip(scripts, workers, strict=True)):
            await (crew.registered(f"w{number}", version=version) if version else crew.registered(f"w{number}"))
            own = process(crew, sent, old=bool(version))
            crew.start(crew.worker(script, handlers=own, name=f"w{number}", poll_seconds=1.0 if version else 0.05))
        for version in handlers:
            crew.start(crew.consumer(handlers=process(crew, sent, old=bool(version))))
        await crew.submit(FAN)
        await crew.finished()
        assert crew.clock.monotonic() < 20.0, "nothing was left alone"
        await crew.end()
        assert once_each(scripts, FAN)

    virtually(act)
    assert sent["left alone"] == sent["work 2"] == sent["events 2"] == 0
    assert sent["work 1"] >= 300 / 32


def test_a_worker_without_a_row_is_taken_for_an_old_one() -> None:
    """Programs before 0.3 write none; their results name them."""
    sent: Counter[str] = Counter()

    async def act(crew: Crew) -> None:
        await crew.registered()
        await crew.registered("w")
        own = process(crew, sent)
        own.dispatcher.bundle_sizes.workers["stranger"] = crew.clock.monotonic()
        await crew.submit(FAN)
        crew.start(crew.consumer(handlers=own), crew.worker(Instant(), handlers=process(crew, sent)))
        await crew.finish()

    virtually(act)
    assert sent["work 2"] == sent["events 2"] == 0


@pytest.mark.parametrize("others", [0, 1])
def test_old_workers_that_nothing_is_known_of_delay_a_task_for_no_longer_than_a_lost_message(others: int) -> None:
    """They leave alone what they do not read, time and again; what the sweep sends every version reads."""
    sent: Counter[str] = Counter()

    async def act(crew: Crew) -> None:
        await crew.registered()
        await crew.registered("new")
        scripts = [Instant() for _ in range(1 + others)]
        known = crew.stage.handlers.dispatcher.bundle_sizes
        known.paces[crew.stage.graph_id] = 0.0  # as if runs were known to be short
        await crew.submit(SIDE_BY_SIDE)
        crew.start(crew.worker(scripts[0], handlers=process(crew, sent, old=True), name="old"))
        crew.start(crew.consumer(handlers=process(crew, sent)))
        await crew.until(lambda: sent["left alone"] > 0)
        for script in scripts[1:]:
            crew.start(crew.worker(script, handlers=process(crew, sent), name="new"))
        sweeper = process(crew, sent)
        while await crew.stage.state() != "finished":
            await asyncio.sleep(limits.SWEEP_SECONDS)
            large = sent["work 2"]
            await sweep(sweeper)
            assert sent["work 2"] == large, "a reminder is small"
        assert crew.clock.monotonic() <= limits.REDISPATCH_SECONDS + 3 * limits.SWEEP_SECONDS
        await crew.end()
        assert once_each(scripts, SIDE_BY_SIDE)

    virtually(act)


# --- how it is shared out -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.0, 0.002, 0.05, 1.0, 20.0])
@pytest.mark.parametrize("count", [2, 4])
def test_workers_share_a_fan_as_evenly_by_large_messages(seconds: float, count: int) -> None:
    """And the last of it: no worker is idle for long while another has a large message in hand."""
    took: dict[str, float] = {}
    slots = 4
    width = 200 if seconds > 1.0 else 400

    def play(version: str) -> None:
        async def act(crew: Crew) -> None:
            sent: Counter[str] = Counter()
            await crew.registered(version=version)
            scripts = [Script(seconds) for _ in range(count)]
            for number, script in enumerate(scripts):
                await crew.registered(f"w{number}", version=version)
                own = process(crew, sent)
                crew.start(crew.worker(script, handlers=own, name=f"w{number}", slots=slots))
            crew.start(crew.consumer(handlers=process(crew, sent)))
            requires = fan(width)
            began = crew.clock.monotonic()
            await crew.submit(requires)
            await crew.finished()
            took[version] = crew.clock.monotonic() - began - 2 * seconds
            await crew.end()
            assert once_each(scripts, requires)
            assert (sent["work 2"] > 0) == (version != OLD and seconds < 0.01)

        virtually(act)

    play(OLD)
    play("0.4.0")
    assert took["0.4.0"] <= 1.02 * took[OLD] + 0.1, took


def test_what_a_worker_cannot_run_goes_back_in_messages_that_every_version_reads() -> None:
    class Unable(Script):
        def can_run(self, definition: object) -> str | None:
            return "it cannot"

    sent: Counter[str] = Counter()

    async def act(crew: Crew) -> None:
        await crew.submit({f"m{n}": [] for n in range(90)})
        queue = crew.stage.names.work("default")
        await crew.stage.queues.receive(queue, count=32, lease_seconds=1_000)
        tasks = tuple((task_id_of(crew.stage.graph_id, f"m{n}"), 0) for n in range(90))
        await crew.stage.queues.send(queue, [to_text(RunTasks(crew.stage.graph_id, "default", tasks))])
        crew.start(crew.worker(Unable(), handlers=process(crew, sent)))
        await crew.until(lambda: sent["work 1"] > 0)
        await crew.end()

    virtually(act)
    assert (sent["work 1"], sent["work 2"]) == (3, 0)
