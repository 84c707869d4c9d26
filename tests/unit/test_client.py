"""The client over a real store (a file): submit, run, look, rerun, extend, wait; and its synchronous face."""

import asyncio
import inspect
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from taskgraph import Client, Graph, InvalidGraph, InvalidInput, NotFound, Refused, SyncClient
from taskgraph.engine.listeners import Listeners
from taskgraph.engine.submission import Submitted
from taskgraph.interfaces.client.schedules import ScheduleCalls
from taskgraph.interfaces.client.sync import SyncScheduleCalls
from taskgraph.interfaces.loops import serve, work
from taskgraph.interfaces.one_graph import run_graph
from taskgraph.model.flag import Flag
from taskgraph.worker.executors import built_in
from tests.http.behind import store_of


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def diamond() -> Graph:
    graph = Graph(name="diamond")
    graph.task("a") >> [graph.task("b"), graph.task("c")] >> graph.task("d")
    return graph


async def test_a_graph_of_callables_runs_to_its_end(client: Client) -> None:
    seen: list[str] = []

    def square(number: int) -> int:
        seen.append("square")
        return number * number

    async def boast(context: object) -> None:
        seen.append("boast")

    graph = Graph(name="numbers")
    graph.task("square", call="square", arguments={"number": 7}) >> graph.task("boast", call="boast")
    status = await client.run(graph, "numbers-1", callables={"square": square, "boast": boast})
    assert (status.state, dict(status.counts), status.graph_id) == ("finished", {"completed": 2}, "numbers-1")
    assert seen == ["square", "boast"]
    assert await client.result("numbers-1", "square") == 49
    assert await client.result("numbers-1", "boast") is None
    assert [each.graph_id for each in await client.graphs()] == ["numbers-1"]
    kinds = [event.kind for event in await client.events("numbers-1")]
    assert kinds == ["graph-running", "task-completed", "task-completed", "graph-finished"]


async def test_what_a_callable_does_to_its_arguments_reaches_no_other_task(client: Client) -> None:
    def grow(numbers: list[int]) -> int:
        numbers.append(0)
        return len(numbers)

    graph = Graph(name="alike")
    for number in range(3):
        graph.task(f"t{number}", call="grow", arguments={"numbers": [1]})
    await client.run(graph, "g", callables={"grow": grow}, slots=1)
    assert await client.results("g") == {"t0": 2, "t1": 2, "t2": 2}


async def test_a_graph_is_rehearsed_before_it_is_submitted_and_while_it_runs(client: Client) -> None:
    graph = Graph(name="fan")
    for number in range(4):
        graph.task(f"t{number}", executor="sleep", payload={"seconds": 10})
    found = await client.rehearse(graph, slots=2)
    assert found.seconds[1] == pytest.approx(20, abs=0.5)
    assert await client.graphs() == []
    submitted = await client.submit(graph)
    for slots in ({"default": 1}, 1):
        rest = await client.rehearse_rest("@last", slots=slots, drop=["t0"])
        assert (rest.graph_id, rest.seconds[1]) == (submitted.graph_id, pytest.approx(30, abs=0.5))
    assert (await client.rehearse(graph, limit=1)).seconds[1] == pytest.approx(40, abs=1)
    assert (await client.rehearse(graph, fail=["t0"])).ends == {"blocked": 1}
    with pytest.raises(InvalidInput, match="no task “t9” to drop"):
        await client.rehearse(graph, drop=["t9"])
    with pytest.raises(InvalidInput, match="slots"):
        await client.rehearse(graph, slots={"gpu": -1})
    with pytest.raises(InvalidInput, match="seconds"):
        await client.rehearse(graph, seconds=float("nan"))


async def test_commands_run_and_their_output_is_kept_by_run(client: Client) -> None:
    graph = Graph()
    script = 'echo "run $TASKGRAPH_RUN_ID of $TASKGRAPH_LABEL"; test "$TASKGRAPH_RUN_ID" = 1'
    graph.task("shaky", command=["sh", "-c", script], reruns=1)
    graph.task("silent", command=["true"])
    status = await client.run(graph, "g")
    assert status.state == "finished"
    assert await client.logs("g", "shaky", run=0) == "run 0 of shaky\n"
    assert await client.logs("g", "shaky") == "run 1 of shaky\n"
    assert await client.logs("g", "silent") == ""
    with pytest.raises(NotFound, match="no run 2"):
        await client.logs("g", "shaky", run=2)
    with pytest.raises(NotFound) as error:
        await client.logs("g", "shakey")
    assert error.value.near == ("shaky",)


async def test_submitting_the_same_again_is_one_graph(client: Client) -> None:
    first = await client.submit(diamond(), "g")
    again = await client.submit(diamond().to_dict(), "g")
    assert (first.outcome, again.outcome) == (Submitted.CREATED, Submitted.EXISTING)
    assert (first.tasks, first.edges) == (4, 4)
    other = Graph()
    other.task("x")
    with pytest.raises(Refused):
        await client.submit(other, "g")
    fresh = await client.submit(other)
    assert fresh.graph_id != (await client.submit(other)).graph_id
    assert {each.graph_id for each in await client.graphs(limit=2)} <= {each.graph_id for each in await client.graphs()}


async def test_nothing_is_written_for_a_wrong_graph_or_id(client: Client) -> None:
    graph = Graph()
    graph.task("a", requires=["b"])
    with pytest.raises(InvalidGraph):
        await client.submit(graph, "g")
    with pytest.raises(InvalidInput, match="cannot be the id of a graph"):
        await client.submit(diamond(), "not an id")
    with pytest.raises(InvalidInput, match="cannot be the id of a request"):
        await client.extend("g", diamond(), request="not an id")
    assert await client.graphs() == []


async def test_a_submitted_graph_can_be_looked_at(client: Client) -> None:
    await client.submit(diamond(), "g")
    status = await client.status("g")
    assert (status.state, dict(status.counts)) == ("running", {"unscheduled": 3, "pending": 1})
    assert [task.label for task in await client.tasks("g", state="unscheduled")] == ["b", "c", "d"]
    detail = await client.task("g", "d")
    assert (detail.requires, detail.status.state) == (["b", "c"], "unscheduled")
    reasons = await client.why("g", "d")
    assert [reason.label for reason in reasons if reason.cause] == ["a"]
    with pytest.raises(NotFound):
        await client.status("h")


async def test_a_blocked_graph_goes_on_after_a_rerun(client: Client, tmp_path: Path) -> None:
    graph = Graph()
    gate = tmp_path / "gate"
    graph.task("gate", command=["test", "-e", str(gate)]) >> graph.task("after")
    graph.task("aside")
    status = await client.run(graph, "g")
    assert (status.state, status.blocked_by) == ("blocked", "gate")
    assert dict(status.counts) == {"unscheduled": 1, "completed": 1, "failed": 1}
    assert await client.wait("g", timeout_seconds=10) == "blocked"
    with pytest.raises(Refused, match="“after” cannot be rerun: the task is unscheduled"):
        await client.rerun("g", "gate", "after")
    with pytest.raises(InvalidInput, match="1,000 are allowed"):
        await client.rerun("g", "gate", reason="x" * 1001)
    gate.touch()
    assert await client.rerun("g", failed=True, reason="the gate is open") == ["gate"]
    # Nobody handles it yet, so the graph still looks blocked: waiting must not take that for an answer.
    with pytest.raises(TimeoutError):
        await client.wait("g", timeout_seconds=0.3)
    await client.rerun("g", failed=True)
    app, stop = store_of(client), Flag()
    serving = asyncio.create_task(serve(app, stop, workers=[app.worker(built_in(app.clock))]))
    try:
        assert await client.wait("g", timeout_seconds=20) == "finished"
    finally:
        stop.set()
        await serving
    assert (await client.task("g", "gate")).status.run == 1, "asking twice for one rerun is one rerun"


async def test_what_is_cancelled_is_waited_for_and_told(client: Client) -> None:
    """Of a graph, of a task, and of a group that is partly over; and what there is nothing left of."""
    document = {
        "tasks": {
            "a": {"task": {"payload": {"seconds": 600}, "executor": "sleep"}},
            "b": {"requires": ["a"], "task": {}},
            "c": {"task": {}},
        },
        "groups": {"some": {"tasks": ["b", "c"]}},
    }
    await client.submit(document, "g")
    app = store_of(client)
    worker = app.worker(built_in(app.clock), slots=2)
    stop = Flag()
    serving = asyncio.create_task(serve(app, stop, workers=[worker]))
    try:
        while (await client.status("g")).counts.get("completed") != 1:
            await asyncio.sleep(0.02)
        assert await client.cancel("g", group="some", reason="not these") == ["b"]
        while (await client.status("g")).state != "blocked":
            await asyncio.sleep(0.02)
        assert await client.cancel("g", group="some") == []
        (cause,) = [reason for reason in await client.why("g", "b") if reason.cause]
        assert cause.text == "was cancelled in run 0: not these"
        with pytest.raises(Refused, match="“c” is completed"):
            await client.cancel("g", "a", "c")
        with pytest.raises(InvalidInput, match="1,000 are allowed"):
            await client.cancel("g", reason="x" * 1001)
        with pytest.raises(NotFound):
            await client.cancel("g", group="none")
        assert await client.cancel("g", reason="enough") == []
        assert await client.wait("g", timeout_seconds=20) == "cancelled"
        status = await client.status("g")
        assert (status.reason, status.counts) == ("enough", {"completed": 1, "cancelled": 2})
        assert await client.cancel("g") == []
        with pytest.raises(Refused, match="“c” is completed"):
            await client.cancel("g", "c")
    finally:
        stop.set()
        await serving
    assert worker.counters.cancelled == 1


async def test_running_the_same_graph_again_goes_on_where_it_stopped(client: Client) -> None:
    await client.submit(diamond(), "g")
    assert (await client.run(diamond(), "g")).state == "finished"
    assert (await client.run(diamond(), "g")).state == "finished"
    assert all(task.run == 0 for task in await client.tasks("g"))


async def test_a_task_extends_its_own_graph(client: Client) -> None:
    async def discover(context: object) -> str:
        found = Graph()
        found.task("found", requires=["discover"])
        asked = await client.extend("g", found)
        while (await client.request("g", asked.request))["state"] in ("staged", "accepted"):
            await asyncio.sleep(0.01)
        return asked.request

    graph = Graph()
    graph.task("discover", call="discover")
    status = await client.run(graph, "g", callables={"discover": discover})
    assert (status.state, status.tasks) == ("finished", 2)
    assert (await client.task("g", "found")).requires == ["discover"]
    request = await client.result("g", "discover")
    assert (await client.request("g", request))["state"] == "done"
    with pytest.raises(Refused, match="only one that runs or is blocked"):
        await client.extend("g", found_later())


def found_later() -> Graph:
    graph = Graph()
    graph.task("later", requires=["discover"])
    return graph


async def test_work_of_every_target_of_the_graph_is_done(client: Client) -> None:
    graph = Graph()
    graph.task("here", target="small") >> graph.task("there", target="large")
    assert (await client.run(graph)).state == "finished"


async def test_time_out_hands_back_what_runs(client: Client) -> None:
    graph = Graph()
    graph.task("long", executor="sleep", payload={"seconds": 3600})
    with pytest.raises(TimeoutError, match=r"within 0\.5 s"):
        await client.run(graph, "g", timeout_seconds=0.5)
    status = (await client.task("g", "long")).status
    assert status.state == "pending"
    assert [run["outcome"] for run in status.runs] == ["handed-back"]
    with pytest.raises(TimeoutError):
        await client.wait("g", timeout_seconds=0.1)


async def test_a_client_is_open_once(store: str) -> None:
    client = Client(store)
    with pytest.raises(RuntimeError, match="not open"):
        await client.graphs()
    async with client:
        with pytest.raises(RuntimeError, match="open already"):
            await client.__aenter__()
        assert await client.graphs() == []
    with pytest.raises(RuntimeError, match="not open"):
        await client.graphs()
    async with client:
        assert await client.graphs() == []


def test_the_store_comes_from_the_environment(store: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TASKGRAPH_STORE", store)
    assert Client().settings.path == tmp_path / "store.db"
    assert Client("sqlite:///other.db").settings.path == Path.cwd() / "other.db"


def test_the_synchronous_face_does_the_same(store: str) -> None:
    threads: list[threading.Thread] = []
    with Client.sync(store) as client:
        graph = Graph()
        graph.task("note", call="note")
        status = client.run(graph, "g", callables={"note": lambda: threads.append(threading.current_thread())})
        assert status.state == "finished"
        assert client.wait("g") == "finished"
        assert [task.label for task in client.tasks("g")] == ["note"]
        with pytest.raises(NotFound):
            client.task("g", "other")
        with pytest.raises(RuntimeError, match="open already"):
            client.__enter__()
    assert len(threads) == 1
    with pytest.raises(RuntimeError, match="not open"):
        client.graphs()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, though a shell has what it starts in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


async def test_the_synchronous_face_works_inside_a_running_event_loop(store: str) -> None:
    before = set(threading.enumerate())
    with SyncClient(store) as client:
        graph = Graph()
        graph.task("a", command=["echo", "hello"])
        assert client.run(graph, "g").state == "finished"
        assert client.logs("g", "a") == "hello\n"
        assert [event.kind for event in client.follow("g")][-1] == "graph-finished"
        with pytest.raises(NotFound):
            client.task("g", "other")
    assert not [each for each in set(threading.enumerate()) - before if each.name == "taskgraph-client"]


def test_an_interrupt_of_the_synchronous_face_ends_its_call_first(store: str, interruptible: None) -> None:
    graph = Graph()
    graph.task("long", call="long")
    ends: list[str] = []

    async def long() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        try:
            await Flag().wait()
        finally:
            ends.append("ended")

    with SyncClient(store) as client:
        with pytest.raises(KeyboardInterrupt):
            client.run(graph, "g", callables={"long": long})
        assert ends == ["ended"]
        assert client.status("g").state == "running"


def test_an_error_leaves_no_thread_of_the_synchronous_face(store: str) -> None:
    with pytest.raises(NotFound), SyncClient(store) as client:
        client.status("none")
    assert not [each for each in threading.enumerate() if each.name == "taskgraph-client"]


@pytest.mark.parametrize(("whole", "twin"), [(Client, SyncClient), (ScheduleCalls, SyncScheduleCalls)])
def test_the_synchronous_face_has_every_method(whole: type, twin: type) -> None:
    def public(owner: type) -> set[str]:
        return {name for name, member in inspect.getmembers(owner, inspect.isfunction) if not name.startswith("_")}

    assert public(twin) == public(whole)
    for name in public(whole):
        method = getattr(twin, name)
        assert method.__doc__ == getattr(whole, name).__doc__
        assert not inspect.iscoroutinefunction(method)


async def test_limits_on_tasks_in_flight(client: Client) -> None:
    graph = Graph(max_in_flight=3)
    graph.group("g", graph.task("a"), graph.task("b"), max_in_flight=1)
    graph.task("c")
    assert Graph.from_document(graph.to_dict()).to_dict() == graph.to_dict()
    await client.submit(graph, "limited")
    assert [(each.group, each.most) for each in await client.limits_of("limited")] == [("", 3), ("g", 1)]
    await client.set_limit("limited", 2, group="g")
    await client.submit(diamond(), "unlimited")
    with pytest.raises(Refused, match="it has no limit"):
        await client.set_limit("unlimited", 0)
    await client.set_limit("unlimited", 2)
    with pytest.raises(NotFound):
        await client.set_limit("limited", 2, group="none")
    with pytest.raises(InvalidInput):
        await client.set_limit("limited", 1001)
    assert await client.limit_target("gpu", 4, reason="four of them")
    assert [(each.target, each.most) for each in await client.target_limits()] == [("gpu", 4)]
    assert await client.limit_target("gpu", 0)
    assert await client.target_limits() == []


async def test_a_graph_is_run_twice_at_once_and_beside_another(client: Client) -> None:
    """Each run has a consumer of its own over the same handlers, and ends without taking anything from the others."""
    graph = Graph()
    for number in range(6):
        graph.task(f"a{number}", command=["sleep", "0.05"])
    runs = [client.run(graph, "g"), client.run(graph, "g"), client.run(diamond(), "other", callables={})]
    async with asyncio.timeout(60):
        statuses = await asyncio.gather(*runs)
    assert [status.state for status in statuses] == ["finished", "finished", "finished"]
    handlers = store_of(client).handlers
    assert handlers.listeners == Listeners()
    assert handlers.dispatcher.receivers == []


def note(mark: Path, folder: str) -> Graph:
    graph = Graph()
    for number in range(3):
        graph.task(f"t{number}", command=["sh", "-c", f"echo {folder} >> {mark}"])
    return graph


async def test_a_run_takes_no_task_of_another_graph(client: Client, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    await client.submit(note(mark, "production"), "production")
    async with asyncio.timeout(60):
        assert (await client.run(note(mark, "mine"), "mine")).state == "finished"
    assert mark.read_text().split() == ["mine"] * 3
    assert dict((await client.status("production")).counts) == {"pending": 3}
    async with asyncio.timeout(60):
        assert (await client.run(note(mark, "production"), "production")).state == "finished", "submitted before"
        assert mark.read_text().split() == ["mine"] * 3 + ["production"] * 3
        await client.submit(note(mark, "other"), "other")
        slow = Graph()
        slow.task("slow", command=["sleep", "1"])
        await client.run(slow, "slow", every=True)
    assert mark.read_text().split()[6:] == ["other"] * 3
    assert store_of(client).handlers.dispatcher.own == {}


async def test_what_another_process_makes_ready_is_found_by_an_idle_run(client: Client) -> None:
    """The message of the extension goes to the queue of events, and whatever leads sends the task to all workers."""
    stop = Flag()
    async with Client(store_of(client).settings) as elsewhere, asyncio.TaskGroup() as group:
        serving = group.create_task(serve(elsewhere.app, stop))
        while not elsewhere.app.handlers.dispatcher.receivers:
            await asyncio.sleep(0.01)
        graph = Graph()
        graph.task("a", command=["sleep", "1"])
        running = group.create_task(client.run(graph, "g"))
        while "running" not in dict(await _counts(elsewhere, "g")):
            await asyncio.sleep(0.05)
        added = Graph()
        added.task("late", command=["true"])
        await elsewhere.extend("g", added)
        async with asyncio.timeout(30):
            assert dict((await running).counts) == {"completed": 2}
        stop.set()
        await serving


@pytest.mark.parametrize("every", [False, True])
async def test_a_graph_that_cannot_be_run_here_is_refused_before_it_is_written(client: Client, every: bool) -> None:
    graph = Graph()
    graph.task("make", call="mk") >> graph.task("use", call="usee")
    with pytest.raises(InvalidGraph) as caught:
        await client.run(graph, "g", callables={"mk": lambda: 1, "use": lambda: 2}, every=every)
    (problem,) = caught.value.problems
    assert problem.pointer == "/tasks/use/task"
    assert problem.message == "This process cannot run “use”: no callable is named “usee” here; did you mean “use”?"
    assert await client.graphs() == []


async def _counts(client: Client, graph_id: str) -> Mapping[str, int]:
    try:
        return (await client.status(graph_id)).counts
    except NotFound:
        return {}


async def test_what_a_run_cannot_do_goes_to_other_workers(client: Client) -> None:
    graph = Graph()
    graph.task("here", command=["true"]) >> graph.task("there", call="there")
    await client.submit(graph, "g")
    stop = Flag()
    async with Client(store_of(client).settings) as elsewhere, asyncio.TaskGroup() as group:
        executors = built_in(elsewhere.app.clock, callables={"there": lambda: 5})
        group.create_task(work(elsewhere.app, stop, elsewhere.app.worker(executors)))
        app = store_of(client)
        own = app.worker(built_in(app.clock))
        async with asyncio.timeout(60):
            assert await run_graph(app, "g", Flag(), workers=[own]) == "finished"
        stop.set()
    assert await client.result("g", "there") == 5


async def test_what_one_consumer_has_put_by_outlives_the_end_of_another(client: Client) -> None:
    app, stop = store_of(client), Flag()
    stays, goes = app.consumer(), app.consumer()
    stays.own.add("mine")
    windows = app.handlers.dispatcher.windows
    assert windows is not None
    for graph_id in ("mine", "left"):
        ready = [(f"{graph_id}{number}", 0) for number in range(5_000)]
        windows.offer(graph_id, ("default", "normal"), ready, app.clock.monotonic())
    minded: list[str] = []
    stays.watch_unsent = lambda: minded.append("stays")  # type: ignore[method-assign]
    stop.set()
    await goes.run(stop)
    assert windows.graphs == ["mine"], "the other is left to another process, by a message"
    assert minded == ["stays"]
    assert app.handlers.dispatcher.receivers == [stays]
    assert app.handlers.dispatcher.takes("mine")
    assert await app.handlers.dispatcher.events_waiting() == 1
