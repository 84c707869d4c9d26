"""The function app that we ship, under Microsoft's own Python worker and a host that behaves as Azure's, on Azurite."""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from taskgraph import Client
from taskgraph.engine.doctor import examine_graph
from taskgraph.engine.poison import PoisonMessage
from taskgraph.interfaces.loops import work
from taskgraph.interfaces.settings import StoreSettings
from taskgraph.model.flag import Flag
from taskgraph.model.ids import task_id_of
from taskgraph.model.messages import EVENT_TYPES, Rerun, to_text
from taskgraph.model.states import GraphState
from taskgraph.protocol.invariants.findings import Severity
from taskgraph.protocol.runs import Claim
from taskgraph.worker.executors import Executors
from taskgraph.worker.executors.contract import Outcome, Work, WriteLog, failed
from tests.e2e.processes import command, environment, started, taskgraph, until, write_graph
from tests.functions.hosting import ROOT, WORKER_ENVIRONMENT, RunningHost, obeys_its_schema, running_host

pytestmark = [pytest.mark.azurite, pytest.mark.campaign]

SWEEP_SECONDS: Final = 5
FOREIGN: Final = "nobody-knows-this-graph"
Host = tuple[RunningHost, StoreSettings]


class Scripted:
    """An executor that fails where the label says so: `flaky…` in its first run, `broken…` in the first two."""

    name = "scripted"
    instant = True
    queue = None

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        return None

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        fails = {"flaky": 1, "broken": 2}.get(work.label.partition(" ")[0], 0)
        return failed("as it was told to") if work.run < fails else Outcome(failed=False)


@contextlib.asynccontextmanager
async def working(client: Client, *, workers: int = 2) -> AsyncIterator[None]:
    """Workers that take from the work queue and report to the events queue, as in a process of their own."""
    stop = Flag()
    made = [client.app.worker(Executors([Scripted()], override="scripted"), slots=16) for _ in range(workers)]
    running = [asyncio.create_task(work(client.app, stop, each)) for each in made]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*running)


async def assert_healthy(client: Client, graph_id: str, seconds: float = 20.0) -> None:
    """Nothing is wrong with a graph, and what the sweep would still do, it does."""
    end = time.monotonic() + seconds
    while findings := (await examine_graph(client.app.handlers, client.app.poison, graph_id)).findings:
        assert {finding.severity for finding in findings} <= {Severity.DUE, Severity.NOTE}, findings
        assert time.monotonic() < end, findings
        await asyncio.sleep(0.5)


def layered(layers: int, width: int) -> dict[str, Any]:
    """Each task requires three of the layer before."""
    tasks: dict[str, Any] = {}
    for layer in range(layers):
        for place in range(width):
            before = [f"{layer - 1}.{(place + step) % width}" for step in range(3)] if layer else []
            tasks[f"{layer}.{place}"] = {"requires": before, "task": {}}
    return {"tasks": tasks}


# --- what Microsoft's worker makes of the app ---------------------------------------------------------------------


def listed(folder: Path, **settings: Any) -> list[dict[str, Any]]:
    done = taskgraph(
        "functions", "list", "--json", "--environment", str(WORKER_ENVIRONMENT),
        store="UseDevelopmentStorage=true", cwd=folder, **settings,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    functions: list[dict[str, Any]] = obeys_its_schema("list", json.loads(done.stdout))["functions"]
    return functions


def on_queue(name: str, queue: str, connection: str = "AzureWebJobsStorage") -> dict[str, Any]:
    return {"type": "queueTrigger", "name": "message", "queueName": queue, "connection": connection, "direction": "IN"}


def test_the_worker_reports_three_functions(worker_library: Path, tmp_path: Path) -> None:
    assert {each["name"]: each["bindings"] for each in listed(tmp_path)} == {
        "events": [on_queue("events", "taskgraph-events")],
        "events-poison": [on_queue("events-poison", "taskgraph-events-poison")],
        "sweep": [{"type": "timerTrigger", "name": "timer", "schedule": "0 * * * * *", "direction": "IN"}],
    }


def test_the_worker_reports_a_function_for_each_operation_where_that_is_set(
    worker_library: Path, tmp_path: Path
) -> None:
    found = listed(
        tmp_path,
        TASKGRAPH_QUEUES="per-operation",
        TASKGRAPH_PREFIX="other",
        TASKGRAPH_CONNECTION="Graphs",
        TASKGRAPH_SWEEP_SECONDS="30",
    )
    kinds = ("events", *EVENT_TYPES)
    expected = {kind: [on_queue(kind, f"other-{kind}", "Graphs")] for kind in kinds}
    expected |= {f"{kind}-poison": [on_queue(kind, f"other-{kind}-poison", "Graphs")] for kind in kinds}
    expected["sweep"] = [{"type": "timerTrigger", "name": "timer", "schedule": "*/30 * * * * *", "direction": "IN"}]
    assert {each["name"]: each["bindings"] for each in found} == expected


# --- graphs through it -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def host(azurite: str, worker_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """One host for the graphs of this file."""
    prefix = f"t{secrets.token_hex(6)}"
    folder = tmp_path_factory.mktemp("shipped")
    with running_host(azurite, folder, prefix, TASKGRAPH_SWEEP_SECONDS=str(SWEEP_SECONDS)) as running:
        until(lambda: running.all("ready") or running.process.poll() is not None, what="the host is ready")
        assert running.all("ready"), running.errors
        yield running, StoreSettings(connection_string=azurite, prefix=prefix)


@pytest.fixture
async def client(host: Host) -> AsyncIterator[Client]:
    async with Client(host[1]) as opened:
        yield opened


@pytest.fixture(scope="module", autouse=True)
def foreign(request: pytest.FixtureRequest) -> str:
    """A message for a graph that nobody knows: sent first, as the host takes its time to give it up."""
    running, settings = request.getfixturevalue("host")
    body = to_text(Rerun(FOREIGN, ((task_id_of(FOREIGN, "a"), 0),)))

    async def send() -> None:
        async with Client(settings) as opened:
            await opened.app.queues.send(running.queue("events"), [body])

    asyncio.run(send())
    return body


async def test_a_graph_of_500_tasks_in_layers(client: Client) -> None:
    async with working(client):
        await client.submit(layered(10, 50), "layers")
        assert await client.wait("layers", timeout_seconds=120) == GraphState.FINISHED
    status = await client.status("layers")
    assert status.counts["completed"] == 500
    await assert_healthy(client, "layers")


async def test_a_graph_is_extended_while_it_runs(client: Client) -> None:
    await client.submit({"tasks": {"first": {"task": {}}, "second": {"requires": ["first"], "task": {}}}}, "grows")
    asked = await client.extend("grows", {"tasks": {"third": {"requires": ["first"], "task": {}}}})

    async def done() -> bool:
        return (await client.request("grows", asked.request))["state"] == "done"

    for _ in range(200):
        if await done():
            break
        await asyncio.sleep(0.1)
    assert await done()
    async with working(client):
        assert await client.wait("grows", timeout_seconds=60) == GraphState.FINISHED
    assert {task.label: task.state for task in await client.tasks("grows")} == dict.fromkeys(
        ("first", "second", "third"), "completed"
    )
    await assert_healthy(client, "grows")


async def test_failures_are_rerun_by_budget_and_by_hand(client: Client) -> None:
    tasks = {
        "flaky one": {"reruns": 1, "task": {}},
        "broken one": {"reruns": 1, "task": {}},
        "after": {"requires": ["flaky one", "broken one"], "task": {}},
    }
    async with working(client):
        await client.submit({"tasks": tasks}, "fails")
        assert await client.wait("fails", timeout_seconds=60) == GraphState.BLOCKED
        assert {task.label: (task.state, task.run) for task in await client.tasks("fails")} == {
            "flaky one": ("completed", 1),
            "broken one": ("failed", 1),
            "after": ("unscheduled", 0),
        }
        await client.rerun("fails", "broken one", reason="it was told to")
        assert await client.wait("fails", timeout_seconds=60) == GraphState.FINISHED
    await assert_healthy(client, "fails")


async def test_the_timer_gives_up_a_run_whose_lease_has_ended(client: Client) -> None:
    await client.submit({"tasks": {"a": {"task": {}}}}, "lost")
    handlers = client.app.handlers
    lease_until = handlers.clock.now() + timedelta(seconds=1)
    await handlers.transition(
        "lost", [Claim(task_id_of("lost", "a"), 0, "claim-x", "a worker that is gone", lease_until)]
    )
    async with working(client):
        assert await client.wait("lost", timeout_seconds=60) == GraphState.FINISHED
    (task,) = await client.tasks("lost")
    assert task.run == 1
    await assert_healthy(client, "lost")


async def test_what_cannot_be_read_is_poison_at_once(client: Client, host: Host) -> None:
    running, _ = host
    await client.app.queues.send(running.queue("events"), ["this is no message"])
    found = await poison_of(client, lambda each: each.body == "this is no message")
    assert "neither a JSON object nor base64" in found.reason
    assert await client.app.queues.count(running.queue("events-poison")) == 0
    assert running.all("executed", succeeded=False, message="this is no message") == []


async def test_a_message_that_fails_five_times_is_set_aside_with_its_reason(
    client: Client, host: Host, foreign: str
) -> None:
    running, _ = host
    found = await poison_of(client, lambda each: each.body == foreign)
    assert found.queue == running.queue("events")
    assert found.failures == 5
    assert found.reason.startswith("NotFound:")
    assert len(running.all("executed", succeeded=False)) == 5
    assert len(running.all("set-aside", poisonQueue=running.queue("events-poison"))) == 1
    # Put back, it is a message like any other.
    await client.app.poison.replay(found.key)
    await running.until("executed", times=6, succeeded=False)


async def poison_of(client: Client, wanted: Any, seconds: float = 60.0) -> PoisonMessage:
    """The message on the list that is wanted, as soon as it is there."""
    for _ in range(int(seconds / 0.2)):
        for each in await client.app.poison.list():
            if wanted(each):
                return each
        await asyncio.sleep(0.2)
    raise AssertionError(f"it is not among {await client.app.poison.list()}")


# --- dying ---------------------------------------------------------------------------------------------------------

DYING: Final = '''
"""The shipped app, whose process is killed once, at its fifth commit: when it has been made, or just before."""

import importlib.util
import os
import pathlib
import signal

from taskgraph.storage.azure.tables import AzureTables

made = AzureTables.commit
mark = pathlib.Path(os.environ["DIED"])
count = 0


async def commit(self, partition, changes):
    global count
    count += 1
    dies = count == 5 and not mark.exists()
    if dies:
        mark.write_text(os.environ["DIES"])
    if dies and os.environ["DIES"] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    etags = await made(self, partition, changes)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    return etags


AzureTables.commit = commit
spec = importlib.util.spec_from_file_location("shipped_app", os.environ["SHIPPED"])
shipped = importlib.util.module_from_spec(spec)
spec.loader.exec_module(shipped)
app = shipped.app
'''


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_handler_that_dies_in_mid_commit_loses_nothing(
    azurite: str, worker_library: Path, tmp_path: Path, prefix: str, when: str
) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "function_app.py").write_text(DYING)
    (app / "host.json").write_text((ROOT / "deploy" / "host.json").read_text())
    shipped, died = str(ROOT / "deploy" / "function_app.py"), tmp_path / "died"
    settings = {"SHIPPED": shipped, "DIED": str(died), "DIES": when, "TASKGRAPH_SWEEP_SECONDS": str(SWEEP_SECONDS)}
    with running_host(azurite, tmp_path, prefix, app=app, **settings) as running:
        await running.until("ready")
        async with Client(StoreSettings(connection_string=azurite, prefix=prefix)) as client, working(client):
            await client.submit(layered(5, 8), "dies")
            assert await client.wait("dies", timeout_seconds=120) == GraphState.FINISHED
            await assert_healthy(client, "dies")
            assert await client.app.poison.list() == []
        assert died.read_text() == when
        assert len(running.all("worker-died")) == 1
        assert len(running.all("worker-started")) == 1


def test_the_hosts_worker_is_killed_in_the_middle(
    azurite: str, worker_library: Path, tmp_path: Path, prefix: str
) -> None:
    """Submitted by the command line, run by two worker processes, handled by the host whose worker is killed."""
    tasks: dict[str, Any] = {f"first {n}": command("sleep", "0.15") for n in range(30)}
    tasks |= {
        f"then {n}": command("sleep", "0.15", requires=(f"first {n}", f"first {(n + 1) % 30}")) for n in range(30)
    }
    tasks["last"] = command("sleep", "0.15", requires=tuple(f"then {n}" for n in range(30)))
    graph = write_graph(tmp_path / "graph.json", tasks)
    named: dict[str, Any] = {"store": azurite, "cwd": tmp_path, "TASKGRAPH_PREFIX": prefix}

    with contextlib.ExitStack() as stack:
        client = stack.enter_context(Client.sync(StoreSettings(connection_string=azurite, prefix=prefix)))

        def completed() -> int:
            return client.status("killed").counts.get("completed", 0)

        running = stack.enter_context(running_host(azurite, tmp_path / "host", prefix))
        until(lambda: running.all("ready"), what="the host is ready")
        for name in ("one", "two"):
            stack.enter_context(started("worker", "--slots", "1", name=name, **named))
        assert taskgraph("submit", str(graph), "--id", "killed", **named).returncode == 0
        until(lambda: completed() >= 5, what="it is under way")
        os.kill(running.worker_pid, signal.SIGKILL)
        assert completed() < 61
        done = taskgraph("submit", str(graph), "--id", "killed", "--wait", **named)
        assert done.returncode == 0, done.stderr
        assert completed() == 61
        assert len(running.all("worker-died")) == 1
    doctor = taskgraph("doctor", "killed", **named)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr


def test_the_environment_of_the_app_has_no_store_of_its_own(host: Host) -> None:
    """The host tells the app its account as Azure does; TASKGRAPH_STORE, which would contradict it, stays outside."""
    running, _ = host
    assert "TASKGRAPH_STORE" in environment("x")
    assert Path(f"/proc/{running.worker_pid}/environ").read_bytes().find(b"TASKGRAPH_STORE=") == -1
