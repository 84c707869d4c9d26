"""Workers in virtual time: the stock, claims ahead, stopping, lost leases, going on alone, delivering to a desk."""

import asyncio
import logging
from collections import Counter

import pytest

from taskgraph.engine import transact
from taskgraph.model import limits
from taskgraph.model.flag import Flag
from taskgraph.model.ids import row_key
from taskgraph.model.messages import RunTasks, TaskCompleted, TaskFailed, parse, to_text
from taskgraph.model.names import POISON
from taskgraph.protocol import decide as transitions
from taskgraph.protocol.runs import Completed, LeaseLost
from taskgraph.testing import MemoryQueues, MemoryTables
from tests.scenarios.crew import Calls, Crew, Instant, Liar, Script, chain, fan, once_each, virtually

PORTS = ["get", "query", "commit", "send", "receive", "delete"]


def lying(crew: Crew, queue: str) -> list[object]:
    """What lies on a queue, leased or not."""
    assert isinstance(crew.stage.queues, MemoryQueues)
    return [parse(body) for _, _, _, body in crew.stage.queues.messages.get(queue, {}).values()]


def asked_for(crew: Crew) -> set[str]:
    """Labels of the tasks that the work queue names."""
    found = lying(crew, crew.stage.names.work("default"))
    return {crew.stage.label(task) for message in found if isinstance(message, RunTasks) for task, _ in message.tasks}


async def states(crew: Crew) -> Counter[str]:
    return Counter((await crew.stage.states()).values())


def columns(crew: Crew, label: str) -> dict[str, object]:
    assert isinstance(crew.stage.tables, MemoryTables)
    return dict(crew.stage.tables.partitions["graph"][row_key(crew.stage.task_id(label))].columns)


MANY = {"a": [], **{f"m{n}": ["a"] for n in range(8)}}


# --- the stock ---------------------------------------------------------------------------------------------------


def test_ready_tasks_without_a_slot_are_kept_for_half_a_second_and_then_offered_to_others() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit(MANY)
        script = Script(by_label={f"m{n}": 100.0 for n in range(8)} | {"a": 1.0})
        consumer, worker = crew.together(script)
        crew.start(consumer, worker)
        await crew.until(lambda: ("a", 0) in script.ended)
        await asyncio.sleep(0.4)
        assert len(script.runs) == 2, "one of them has begun, in the commit that made them ready"
        assert (await states(crew))["running"] == 1
        assert asked_for(crew) <= {"a"}, "nobody else is told yet"
        await asyncio.sleep(0.6)
        (busy, _) = script.runs[-1]
        assert asked_for(crew) - {"a"} == set(MANY) - {"a", busy}
        await crew.end()

    virtually(act)


def test_what_is_offered_to_others_is_run_by_them() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit(MANY)
        slow = Script(by_label={f"m{n}": 30.0 for n in range(8)} | {"a": 1.0})
        other = Script(0.1)
        crew.start(*crew.together(slow))
        await crew.until(lambda: ("a", 0) in slow.ended)
        crew.start(crew.worker(other, name="other"))
        await crew.finish()
        assert once_each([slow, other], MANY)
        assert len(other.runs) >= 7

    virtually(act)


def test_what_goes_quickly_is_kept_for_longer() -> None:
    """Only claiming takes its time: in 0.5 s of work there is nothing to share."""

    async def act(crew: Crew) -> None:
        await crew.submit(fan(400))
        script = Script(0.002)
        calls = Calls()
        crew.start(*crew.together(script, calls, slots=2))
        await crew.finish()
        assert once_each([script], fan(400))
        assert calls.messages <= 3

    virtually(act)


def test_claims_that_wait_too_long_for_a_slot_are_given_back() -> None:
    """Runs were short when they were claimed ahead, and then one was long."""

    async def act(crew: Crew) -> None:
        labels = [f"t{n:02}" for n in range(40)]
        await crew.submit({label: [] for label in labels})
        script = Script(0.01)
        consumer = crew.consumer()
        worker = crew.worker(script)
        crew.start(consumer, worker)
        await crew.until(lambda: len(script.ended) >= 10)
        script.seconds = 50.0
        await asyncio.sleep(10.0)
        assert (await states(crew))["running"] == 1, "what it cannot begin is anybody's again"
        other = Script(0.01)
        crew.start(crew.worker(other, name="other"))
        await crew.finish()
        ran = Counter(label for each in (script, other) for label, _ in each.runs)
        assert ran == Counter(labels), "nothing was begun twice"
        assert worker.counters.handed_back == sum(int(columns(crew, label)["run"]) for label in labels)  # type: ignore[call-overload]
        assert all(columns(crew, label)["retriesLeft"] == limits.RETRIES_DEFAULT for label in labels), "none was spent"

    virtually(act)


def test_runs_that_take_long_are_not_claimed_ahead() -> None:
    async def act(crew: Crew) -> None:
        labels = [f"t{n:02}" for n in range(12)]
        await crew.submit({label: [] for label in labels})
        script = Script(20.0)
        crew.start(crew.consumer(), crew.worker(script, slots=2))
        for _ in range(5):
            await asyncio.sleep(10.0)
            assert (await states(crew))["running"] <= 2
        await crew.finish()
        assert once_each([script], labels)

    virtually(act)


@pytest.mark.parametrize("only", ["send", "commit", "delete"])
@pytest.mark.parametrize("together", [True, False], ids=["with a desk", "alone"])
def test_a_storage_error_costs_nothing_of_the_stock(only: str, together: bool) -> None:
    """What could be neither claimed nor told to others is left to the sweep."""
    for at in range(1, 9):

        async def act(crew: Crew, at: int = at) -> None:
            requires = {"a": [], **{f"m{n:02}": ["a"] for n in range(40)}}
            await crew.submit(requires)
            calls, script = Calls(at, "unavailable", only), Script(0.7, {"a": 1.0})
            crew.start(*(crew.together(script, calls) if together else (crew.consumer(), crew.worker(script, calls))))

            async def sweep() -> None:
                while True:
                    await asyncio.sleep(limits.SWEEP_SECONDS)
                    await crew.stage.sweep()

            sweeping = asyncio.create_task(sweep())
            await crew.finish()
            sweeping.cancel()
            assert max(Counter(script.runs).values()) == 1, "no run is executed twice"
            await crew.stage.check(requires)

        virtually(act)


# --- messages go last --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False], ids=["with a desk", "alone"])
def test_a_work_message_is_deleted_when_all_its_runs_are_reported(together: bool) -> None:
    async def act(crew: Crew) -> None:
        labels = [f"t{n:02}" for n in range(8)]
        await crew.submit({label: [] for label in labels})
        script = Script(by_label={label: 1.0 + 3.0 * n for n, label in enumerate(labels)})
        processes = crew.together(script, slots=8) if together else (crew.consumer(), crew.worker(script, slots=8))
        crew.start(*processes)
        while len(script.ended) < 8:
            await asyncio.sleep(0.5)
            running = {label for label, state in (await crew.stage.states()).items() if state == "running"}
            assert running <= asked_for(crew)
        await crew.finish()
        assert lying(crew, crew.stage.names.work("default")) == []

    virtually(act)


@pytest.mark.parametrize("together", [True, False], ids=["with a desk", "alone"])
def test_two_messages_that_name_the_same_task_both_go_when_it_is_reported(together: bool) -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": [], "b": []})
        queue = crew.stage.names.work("default")
        again = RunTasks("graph", "default", tuple((crew.stage.task_id(label), 0) for label in "ab"))
        await crew.stage.queues.send(queue, [to_text(again), to_text(again)])
        script = Script(by_label={"a": 3.0, "b": 5.0})
        crew.start(*(crew.together(script, slots=8) if together else (crew.consumer(), crew.worker(script, slots=8))))
        while len(script.ended) < 2:
            await asyncio.sleep(0.5)
            running = {label for label, state in (await crew.stage.states()).items() if state == "running"}
            assert running <= asked_for(crew)
        await crew.finish()
        assert once_each([script], "ab")
        assert lying(crew, queue) == []

    virtually(act)


# --- stopping ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.3, 0.7, 1.5, 5.0, 12.0])
@pytest.mark.parametrize("together", [True, False], ids=["with a desk", "alone"])
@pytest.mark.parametrize("long", [True, False], ids=["long runs", "short runs"])
def test_a_worker_that_is_stopped_leaves_nothing_behind(seconds: float, together: bool, long: bool) -> None:
    """Runs go back without spending a retry; stock and claims are anybody's at once; results are all reported."""

    async def act(crew: Crew) -> None:
        requires = fan(60)
        await crew.submit(requires)
        script = Script(5.0 if long else 0.05)
        stop = Flag()
        processes = crew.together(script, slots=3) if together else (crew.consumer(), crew.worker(script, slots=3))
        started = crew.start(*processes, stop=stop)
        await asyncio.sleep(seconds)
        stop.set()
        for task in started:
            await task
        if not together:
            consumer = crew.consumer()
            await crew.stage.consume(consumer)
        left = await crew.stage.states()
        assert "running" not in left.values()
        for label, run in script.ended:
            assert left[label] == "completed", f"the result of run {run} of {label} is lost"
        assert {label for label, state in left.items() if state == "pending"} <= asked_for(crew)
        other = Script(0.05)
        crew.start(*crew.together(other, slots=3, name="other"))
        await crew.finish()
        assert sorted(label for label, _ in [*script.ended, *other.ended]) == sorted(requires)
        assert max(Counter([*script.runs, *other.runs]).values()) == 1
        assert all(columns(crew, label)["retriesLeft"] == limits.RETRIES_DEFAULT for label in requires)

    virtually(act)


# --- leases ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False], ids=["with a desk", "alone"])
def test_a_long_run_keeps_its_lease_and_its_message(together: bool) -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": [], "b": []})
        script = Script(500.0)
        processes = crew.together(script, slots=2) if together else (crew.consumer(), crew.worker(script, slots=2))
        crew.start(*processes)
        for _ in range(40):
            await asyncio.sleep(10.0)
            await crew.stage.sweep()
        await crew.finish()
        assert once_each([script], "ab")

    virtually(act)


@pytest.mark.parametrize("together", [True, False], ids=["with a desk", "alone"])
def test_a_run_whose_lease_was_lost_is_given_up_and_not_reported(together: bool) -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": []})
        script = Script(by_label={"a": 100.0})
        processes = crew.together(script) if together else (crew.consumer(), crew.worker(script))
        crew.start(*processes)
        await crew.until(lambda: bool(script.runs))
        await asyncio.sleep(1.0)
        claim = str(columns(crew, "a")["claim"])
        await crew.stage.transition(LeaseLost(crew.stage.task_id("a"), 0, claim, certain=True))
        script.by_label["a"] = 1.0
        await crew.finish()
        assert script.runs == [("a", 0), ("a", 1)]
        assert script.ended == [("a", 1)], "the first run was ended when its worker heard of it"
        worker = processes[1]
        assert worker.counters.lost == 1
        assert worker.counters.completed == 1
        assert columns(crew, "a")["run"] == 1

    virtually(act)


# --- going on alone ----------------------------------------------------------------------------------------------


def test_a_worker_goes_on_with_a_chain_by_itself() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit(chain(20))
        at_the_desk, at_work, script = Calls(), Calls(), Script()
        crew.start(crew.consumer(at_the_desk), crew.worker(script, at_work))
        await crew.finish()
        assert once_each([script], chain(20))
        assert at_work.messages == 1, "the last result alone goes to the handlers: it ends the graph"
        await crew.stage.check(chain(20))
        told = await crew.stage.told(tasks=True)
        assert told == ["graph-running", *["task-completed"] * 20, "graph-finished"]

    virtually(act)


@pytest.mark.parametrize(
    "requires",
    [
        {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["d"]},
        {"a": [], "x": [], "b": ["a"], "c": ["b", "x"], "d": ["c"]},
    ],
    ids=["diamond", "two roots"],
)
def test_where_others_may_be_under_way_it_does_not(requires: dict[str, list[str]]) -> None:
    async def act(crew: Crew) -> None:
        await crew.submit(requires)
        scripts = [Script(1.0), Script(1.5)]
        crew.start(crew.consumer(), *(crew.worker(script, name=f"w{n}") for n, script in enumerate(scripts)))
        await crew.finish()
        assert once_each(scripts, requires)
        await crew.stage.check(requires)

    virtually(act)


def calls_of(only: str, *, together: bool) -> int:
    """How many calls of this kind a sound run of a chain of 6 takes."""
    counted: list[int] = []

    async def act(crew: Crew) -> None:
        await crew.submit(chain(6))
        calls, script = Calls(), Script()
        if together:
            crew.start(*crew.together(script, calls))
        else:
            crew.start(crew.consumer(), crew.worker(script, calls))
        await crew.finish()
        counted.append(calls.calls.count(only))

    virtually(act)
    return counted[0]


@pytest.mark.parametrize("kind", ["unavailable", "unclear", "conflict"])
@pytest.mark.parametrize("only", PORTS)
@pytest.mark.parametrize("together", [True, False], ids=["with a desk", "alone"])
def test_a_storage_error_at_any_call_of_a_chain_costs_time_and_nothing_else(
    only: str, kind: str, together: bool
) -> None:
    """A result that cannot be committed goes to the queue, or is tried again; what is not certain is settled."""
    if kind != "unavailable" and only != "commit":
        return
    for at in range(1, min(12, calls_of(only, together=together)) + 1):

        async def act(crew: Crew, at: int = at) -> None:
            await crew.submit(chain(6))
            calls, script = Calls(at, kind, only), Script()
            if together:
                crew.start(*crew.together(script, calls))
            else:
                crew.start(crew.consumer(), crew.worker(script, calls))

            async def sweep() -> None:
                while True:
                    await asyncio.sleep(limits.SWEEP_SECONDS)
                    await crew.stage.sweep()

            sweeping = asyncio.create_task(sweep())
            await crew.finish()
            sweeping.cancel()
            assert max(Counter(script.runs).values()) == 1, "no run is executed twice"
            assert {label for label, _ in script.runs} == set(chain(6))
            await crew.stage.check(chain(6))
            assert (await crew.stage.told(tasks=True)).count("task-completed") == 6

        virtually(act)


def test_after_a_conflict_a_worker_leaves_the_graph_to_the_handlers(caplog: pytest.LogCaptureFixture) -> None:
    async def act(crew: Crew) -> None:
        await crew.submit(chain(12))
        at_work, script = Calls(3, "conflict", "commit"), Script()
        crew.start(crew.consumer(), crew.worker(script, at_work))
        await crew.finish()
        assert once_each([script], chain(12))
        await crew.stage.check(chain(12))

    virtually(act)


# --- the desk ----------------------------------------------------------------------------------------------------


def test_results_and_the_claims_of_what_they_make_ready_are_one_commit() -> None:
    async def act(crew: Crew) -> None:
        requires = {f"{kind}{n}": ([f"a{n}"] if kind == "b" else []) for kind in "ab" for n in range(10)}
        await crew.submit(requires)
        calls, script = Calls(), Script()
        crew.start(*crew.together(script, calls, slots=20))
        await crew.finish()
        assert once_each([script], requires)
        assert calls.messages == 0
        kinds = [event.kind for event in await crew.stage.events()]
        assert kinds.count("task-completed") == 20
        assert calls.counted()["commit"] <= 6, "begin, claim, complete and claim, complete, the live index"

    virtually(act)


class Broken(RuntimeError):
    """A bug."""


def test_a_bug_in_handling_what_a_worker_reports_ends_with_a_message_that_is_set_aside(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not go round in circles, and costs no other graph and no other task."""
    logging.getLogger("taskgraph").setLevel(logging.CRITICAL)
    decide = transitions.decide

    async def act(crew: Crew) -> None:
        await crew.submit({"a": [], "b": [], "c": ["b"]})
        wrong = crew.stage.task_id("a")

        def broken(rows: object, items: list[object], **more: object) -> object:
            if any(isinstance(item, Completed) and item.task_id == wrong for item in items):
                raise Broken("a bug")
            return decide(rows, items, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(transact, "decide", broken)
        calls, script = Calls(), Script(by_label={"a": 5.0})
        crew.start(*crew.together(script, calls))

        def poisoned() -> bool:
            assert isinstance(crew.stage.tables, MemoryTables)
            return bool(crew.stage.tables.partitions.get(POISON))

        await crew.until(poisoned)
        await asyncio.sleep(600.0)
        before = len(calls.calls) - calls.empty
        await asyncio.sleep(60.0)
        assert len(calls.calls) - calls.empty - before < 60, "nobody goes on about it"
        found = await crew.stage.states()
        assert (found["b"], found["c"]) == ("completed", "completed")
        monkeypatch.undo()
        await crew.end()

    try:
        virtually(act)
    finally:
        logging.getLogger("taskgraph").setLevel(logging.NOTSET)


# --- executors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False], ids=["with a desk", "alone"])
def test_an_executor_that_says_it_is_instant_and_waits_is_reported_as_broken(together: bool) -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": [], "b": ["a"]})
        liar = Liar()
        crew.start(*(crew.together(liar) if together else (crew.consumer(), crew.worker(liar))))

        async def blocked() -> bool:
            return await crew.stage.state() == "blocked"

        await crew.until(blocked)
        await crew.end()
        assert columns(crew, "a")["state"] == "exception"
        assert "says it is instant, and waits" in str(columns(crew, "a")["resolution"])

    virtually(act)


@pytest.mark.parametrize("together", [True, False], ids=["with a desk", "alone"])
def test_an_instant_executor_needs_no_slot(together: bool) -> None:
    async def act(crew: Crew) -> None:
        await crew.submit(fan(300))
        instant = Instant()
        crew.start(*(crew.together(instant) if together else (crew.consumer(), crew.worker(instant))))
        await crew.finish()
        assert once_each([instant], fan(300))
        await crew.stage.check(fan(300))

    virtually(act)


def test_results_name_the_rows_that_they_are_about_and_the_worker() -> None:
    """Only while nobody else may have written in between: after a renewal they do not."""

    async def act(crew: Crew) -> None:
        await crew.submit({"short": [], "long": []})
        script = Script(by_label={"short": 1.0, "long": 100.0})
        crew.start(crew.worker(script, slots=2, name="me"))
        await crew.until(lambda: len(script.ended) == 2)
        await crew.end()
        sent = lying(crew, crew.stage.names.events)
        by_label = {
            crew.stage.label(each.task): (message, each)
            for message in sent
            if isinstance(message, TaskCompleted | TaskFailed)
            for each in message.tasks
        }
        message, short = by_label["short"]
        assert isinstance(message, TaskCompleted)
        assert message.worker == "me"
        assert isinstance(crew.stage.tables, MemoryTables)
        row = crew.stage.tables.partitions["graph"][row_key(crew.stage.task_id("short"))]
        assert short.etag == row.etag
        assert short.over != short.etag != ""
        assert short.over
        _, long = by_label["long"]
        assert (long.etag, long.over) == ("", "")

    virtually(act)


def test_a_message_that_comes_again_is_not_believed() -> None:
    """What it says was seen a while ago: the rows are read, and a run that has ended is not claimed."""

    async def act(crew: Crew) -> None:
        await crew.submit({"a": []})
        queue = crew.stage.names.work("default")
        (delivery,) = await crew.stage.queues.receive(queue, lease_seconds=1.0)
        await crew.stage.complete("a")
        calls, script = Calls(), Script()
        await asyncio.sleep(5.0)
        worker = crew.worker(script, calls)
        crew.start(worker)
        await crew.until(lambda: lying(crew, queue) == [])
        await crew.end()
        assert script.runs == []
        assert "commit" not in calls.calls
        assert delivery.dequeue_count == 1

    virtually(act)


def test_a_hint_that_is_old_is_found_out_by_the_claim() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": [], "b": ["a"]})
        await crew.stage.complete("a")  # while its message lies on the queue
        calls, script = Calls(), Script()
        crew.start(crew.worker(script, calls), crew.consumer())
        await crew.finish()
        assert script.runs == [("b", 0)]

    virtually(act)
