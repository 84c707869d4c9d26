"""The small Functions host: its rules towards queues, timers and the worker process, with apps made for the tests.

The apps run under Microsoft's own worker library, in a host process of their own, over the storage emulator.
"""

import asyncio
import base64
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from taskgraph.model.flag import Flag
from taskgraph.storage.queues import Queues
from tests.e2e.processes import environment
from tests.functions.hosting import RunningHost, obeys_its_schema, running_host, write_app

pytestmark = [pytest.mark.azurite, pytest.mark.campaign]

LOCK_SECONDS: Final = 3
SECRET: Final = "canary-9d1c"

MANY: Final = """
import importlib.util


@on_queue("seen")
async def seen(message: func.QueueMessage) -> None:
    times = [message.insertion_time, message.expiration_time, message.time_next_visible]
    record("seen", id=message.id, body=message.get_body().decode(), count=message.dequeue_count,
           receipt=message.pop_receipt, times=[time.isoformat() for time in times])


@on_queue("settings")
def settings(message: func.QueueMessage) -> None:
    record("settings", names=sorted(os.environ), cwd=os.getcwd(), taskgraph=bool(importlib.util.find_spec("taskgraph")),
           answer=os.environ.get("ANSWER"))


@on_queue("failing")
async def failing(message: func.QueueMessage) -> None:
    record("failing", count=message.dequeue_count)
    logging.warning("it will fail")
    raise ValueError("as it should")


@on_queue("hopeless-poison")
def hopeless(message: func.QueueMessage) -> None:
    record("hopeless", count=message.dequeue_count)
    if message.dequeue_count <= 7:
        raise ValueError("not yet")


@on_queue("slow")
async def slow(message: func.QueueMessage) -> None:
    record("slow", count=message.dequeue_count)
    await asyncio.sleep(float(message.get_body()))


@on_queue("wide")
async def wide(message: func.QueueMessage) -> None:
    record("wide", step=1)
    await asyncio.sleep(0.3)
    record("wide", step=-1)


@on_queue("dying")
async def dying(message: func.QueueMessage) -> None:
    record("dying", count=message.dequeue_count, pid=os.getpid(), body=message.get_body().decode())
    if message.dequeue_count == 1:
        await asyncio.sleep(600)


@app.function_name("beat")
@app.timer_trigger(arg_name="timer", schedule="*/1 * * * * *")
async def beat(timer: func.TimerRequest) -> None:
    record("beat", step=1, late=timer.past_due)
    await asyncio.sleep(1.4)
    record("beat", step=-1, late=timer.past_due)


@app.function_name("yearly")
@app.timer_trigger(arg_name="timer", schedule="0 0 0 1 1 *", run_on_startup=True)
def yearly(timer: func.TimerRequest) -> None:
    record("yearly", late=timer.past_due, schedule=timer.schedule, status=timer.schedule_status)


@app.function_name("web")
@app.route(route="web")
def web(req: func.HttpRequest) -> str:
    return ""


@app.function_name("copying")
@app.queue_trigger(arg_name="message", queue_name=f"{prefix}-copying", connection="AzureWebJobsStorage")
@app.queue_output(arg_name="copy", queue_name=f"{prefix}-copied", connection="AzureWebJobsStorage")
def copying(message: func.QueueMessage, copy: func.Out[str]) -> None:
    copy.set("copied")
"""


@pytest.fixture(scope="module")
def many(azurite: str, worker_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHost]:
    """One host, and an app whose functions meet different fates."""
    folder = tmp_path_factory.mktemp("many")
    app = write_app(folder / "app", MANY, messageEncoding="none", batchSize=4, maxPollingInterval="00:00:01")
    (app / "local.settings.json").write_text(
        json.dumps({"IsEncrypted": False, "Values": {"ANSWER": "42", "TASKGRAPH_PREFIX": "overruled"}})
    )
    prefix = f"t{secrets.token_hex(6)}"
    with running_host(azurite, folder, prefix, "--lock", str(LOCK_SECONDS), app=app) as host:
        yield host


@pytest.fixture
async def host(many: RunningHost) -> RunningHost:
    await many.until("ready")
    return many


async def emptied(queues: Queues, queue: str, seconds: float = 20.0) -> None:
    """Wait until a queue holds nothing, hidden messages included."""
    end = time.monotonic() + seconds
    while left := await queues.count(queue):
        assert time.monotonic() < end, f"{left} left in {queue}"
        await asyncio.sleep(0.05)


async def test_it_lists_the_functions_as_the_library_reports_them(host: RunningHost) -> None:
    (ready,) = host.all("ready")
    functions = {each["name"]: each for each in ready["functions"]}
    assert list(functions) == sorted(functions)
    assert functions["failing"] == {
        "name": "failing",
        "trigger": "queueTrigger",
        "queue": host.queue("failing"),
        "connection": "AzureWebJobsStorage",
        "poisonQueue": host.queue("failing-poison"),
        "bindings": [
            {
                "direction": "IN",
                "type": "queueTrigger",
                "name": "message",
                "queueName": host.queue("failing"),
                "connection": "AzureWebJobsStorage",
            }
        ],
        "refused": None,
    }
    assert functions["hopeless-poison"]["poisonQueue"] is None
    assert functions["beat"]["schedule"] == "*/1 * * * * *"
    assert functions["yearly"]["runOnStartup"]
    assert "httpTrigger" in functions["web"]["refused"]
    assert "(queue)" in functions["copying"]["refused"]
    assert ready["batchSize"] == 4
    assert ready["newBatchThreshold"] == 2


async def test_a_function_gets_what_the_host_tells_of_a_message(host: RunningHost, queues: Queues) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    await queues.send(host.queue("seen"), ['{"a": "é <&"}'])
    (seen,) = await host.until_found(lambda: host.recorded("seen"))
    assert seen["body"] == '{"a": "é <&"}'
    assert seen["count"] == 1
    assert seen["id"]
    assert seen["receipt"]
    inserted, expires, next_visible = map(datetime.fromisoformat, seen["times"])
    now = datetime.now(UTC)
    assert before <= inserted <= now
    assert expires.year == 9999
    assert now < next_visible < now + timedelta(seconds=LOCK_SECONDS + 1)
    await emptied(queues, host.queue("seen"))


async def test_the_app_finds_the_store_as_the_hosts_setting_and_in_no_other_way(
    host: RunningHost, queues: Queues
) -> None:
    await queues.send(host.queue("settings"), ["?"])
    (found,) = await host.until_found(lambda: host.recorded("settings"))
    assert {"AzureWebJobsStorage", "TASKGRAPH_PREFIX", "FUNCTIONS_WORKER_RUNTIME"} <= set(found["names"])
    assert "TASKGRAPH_STORE" not in found["names"]
    assert found["answer"] == "42"  # of local.settings.json; its prefix is overruled by the environment
    assert found["taskgraph"], "the app brings no packages of its own, and gets the host's"
    assert found["cwd"] == str(host.folder / "app")


async def test_a_message_that_fails_is_tried_five_times_and_set_aside_as_it_was(
    host: RunningHost, queues: Queues
) -> None:
    body = json.dumps({"text": SECRET})
    await queues.send(host.queue("failing"), [body])
    (aside,) = await host.until("set-aside", queue=host.queue("failing"))
    assert [each["count"] for each in host.recorded("failing")] == [1, 2, 3, 4, 5]
    at = [each["at"] for each in host.recorded("failing")]
    assert max(later - earlier for earlier, later in pairwise(at)) < 2.5, "it is offered again at once"
    assert aside["dequeueCount"] == 5
    (copy,) = await queues.receive(host.queue("failing-poison"), lease_seconds=30)
    assert copy.body == body
    await emptied(queues, host.queue("failing"))
    failures = host.all("executed", function="failing", succeeded=False)
    assert {(each["error"], each["message"]) for each in failures} == {("ValueError", "as it should")}
    assert all("function_app.py" in each["stack"] for each in failures)
    (first, *_) = host.all("log", function="failing", message="it will fail")
    assert (first["level"], first["logLevel"], first["category"]) == ("warning", "Warning", "root")
    assert first["invocation"] in {each["invocation"] for each in failures}


async def test_a_queue_of_poison_has_no_further_one(host: RunningHost, queues: Queues) -> None:
    await queues.send(host.queue("hopeless-poison"), ["x"])
    await host.until("executed", function="hopeless-poison", succeeded=True)
    assert [each["count"] for each in host.recorded("hopeless")] == list(range(1, 9))
    await emptied(queues, host.queue("hopeless-poison"))


async def test_a_message_stays_locked_as_long_as_its_function_runs_and_others_go_on(
    host: RunningHost, queues: Queues
) -> None:
    await queues.send(host.queue("slow"), [str(LOCK_SECONDS * 1.8)])
    await host.until_found(lambda: host.recorded("slow"))
    await queues.send(host.queue("slow"), ["0"])
    await host.until("executed", function="slow", succeeded=True)
    assert len(host.recorded("slow")) == 2
    await host.until("executed", times=2, function="slow", succeeded=True)
    assert [each["count"] for each in host.recorded("slow")] == [1, 1]
    await emptied(queues, host.queue("slow"))
    assert not host.all("lock-lost", "not-deleted", queue=host.queue("slow"))


async def test_no_more_run_side_by_side_than_a_batch_and_the_threshold(host: RunningHost, queues: Queues) -> None:
    await queues.send(host.queue("wide"), [str(number) for number in range(24)])
    await host.until("executed", times=24, function="wide", succeeded=True)
    now = most = 0
    for each in host.recorded("wide"):
        now += each["step"]
        most = max(most, now)
    assert 4 <= most <= 4 + 2


async def test_runs_of_a_timer_follow_each_other(host: RunningHost) -> None:
    beats = await host.until_found(lambda: beats if len(beats := host.recorded("beat")) >= 6 else None)
    assert all(one["step"] != next_one["step"] for one, next_one in pairwise(beats))
    (first,) = host.recorded("yearly")
    assert first["late"] is False
    assert first["schedule"] == {"AdjustForDST": True}
    assert first["status"]["Next"].endswith("-01-01T00:00:00+00:00")


async def test_a_worker_that_is_killed_is_replaced_and_its_message_comes_again(
    host: RunningHost, queues: Queues
) -> None:
    await queues.send(host.queue("dying"), ["still here"])
    (first,) = await host.until_found(lambda: host.recorded("dying"))
    assert first["pid"] == host.worker_pid
    os.kill(first["pid"], signal.SIGKILL)
    (died,) = await host.until("worker-died")
    assert died["how"] == "was ended by signal 9"
    # Its successor too, while it starts: no reason to give up.
    os.kill(await host.until_found(lambda: child_of(host.process.pid)), signal.SIGKILL)
    await host.until("worker-not-started")
    await host.until("executed", function="dying", succeeded=True)
    _, second = host.recorded("dying")
    assert (second["count"], second["body"]) == (2, "still here")
    assert second["pid"] == host.worker_pid != first["pid"]
    (lost, _) = host.all("executed", function="dying")
    assert lost["error"] == "WorkerDied"
    await emptied(queues, host.queue("dying"))
    await host.until("past-due", function="beat")
    assert any(each["late"] for each in host.recorded("beat"))


async def test_no_line_shows_what_is_in_a_message(host: RunningHost, azurite: str) -> None:
    await host.until("set-aside", queue=host.queue("failing"))
    said = (host.folder / "out").read_text() + host.errors
    assert SECRET not in said
    key = next(part for part in azurite.split(";") if part.startswith("AccountKey=")).removeprefix("AccountKey=")
    assert key not in said


# --- hosts of their own ----------------------------------------------------------------------------------------

ENCODED: Final = """
@on_queue("text")
async def text(message: func.QueueMessage) -> None:
    record("text", body=message.get_body().decode())


@app.function_name("bytes")
@app.queue_trigger(arg_name="message", queue_name=f"{prefix}-bytes", connection="AzureWebJobsStorage",
                   data_type=func.DataType.BINARY)
async def bytes_(message: func.QueueMessage) -> None:
    record("bytes", body=list(message.get_body()))


@on_queue("draining")
async def draining(message: func.QueueMessage) -> None:
    record("draining", body=message.get_body().decode())
    await asyncio.sleep(1.0)
    record("drained")
"""


async def test_base64_is_the_rule_and_what_is_none_is_set_aside_at_once(
    azurite: str, worker_library: Path, tmp_path: Path, prefix: str, queues: Queues
) -> None:
    app = write_app(tmp_path / "app", ENCODED)
    with running_host(azurite, tmp_path, prefix, "--poll", app=app) as host:
        (ready,) = await host.until("ready")
        assert ready["messageEncoding"] == "base64"
        await queues.send(host.queue("text"), [base64.b64encode("für".encode()).decode(), '{"plain": 1}'])
        await queues.send(host.queue("bytes"), [base64.b64encode(bytes([0, 255, 7])).decode()])
        (aside,) = await host.until("set-aside")
        assert aside["dequeueCount"] == 1
        await host.until("executed", times=2, succeeded=True)
        assert [each["body"] for each in host.recorded("text")] == ["für"]
        assert [each["body"] for each in host.recorded("bytes")] == [[0, 255, 7]]
        (copy,) = await queues.receive(host.queue("text-poison"), lease_seconds=30)
        assert copy.body == '{"plain": 1}'
        await emptied(queues, host.queue("text"))
        # Told to stop: what runs comes to its end, and nothing else is begun.
        bodies = [base64.b64encode(str(number).encode()).decode() for number in range(3)]
        await queues.send(host.queue("draining"), bodies)
        await host.until_found(lambda: len(host.recorded("draining")) == 3)
        host.tell_to_stop()
        assert await host.end() == 0
        assert len(host.recorded("drained")) == 3
        assert await queues.count(host.queue("draining")) == 0
        assert host.events[-1] == {"type": "stopped", "level": "info", "succeeded": 5, "failed": 0}


async def test_what_does_not_end_in_time_is_ended_and_its_message_is_there_at_once(
    azurite: str, worker_library: Path, tmp_path: Path, prefix: str, queues: Queues
) -> None:
    app = write_app(tmp_path / "app", MANY, messageEncoding="none")
    with running_host(azurite, tmp_path, prefix, "--grace", "0.5", app=app) as host:
        await host.until("ready")
        await queues.send(host.queue("dying"), ["x"])
        (one,) = await host.until_found(lambda: host.recorded("dying"))
        host.tell_to_stop()
        assert await host.end() == 0
        assert host.all("cut-short")
        with pytest.raises(ProcessLookupError):
            os.kill(one["pid"], 0)
        (again,) = await queues.receive(host.queue("dying"), lease_seconds=30)
        assert (again.body, again.dequeue_count) == ("x", 2)


LIMITED: Final = """
@on_queue("endless")
def endless(message: func.QueueMessage) -> None:
    record("endless", count=message.dequeue_count)
    if message.dequeue_count == 1:
        time.sleep(600)


@app.function_name("daily")
@app.timer_trigger(arg_name="timer", schedule="0 0 0 * * *")
@app.retry(strategy="fixed_delay", max_retry_count="3", delay_interval="00:00:01")
def daily(timer: func.TimerRequest) -> None:
    pass
"""


async def test_what_runs_too_long_is_ended_with_its_worker(
    azurite: str, worker_library: Path, tmp_path: Path, prefix: str, queues: Queues
) -> None:
    app = write_app(tmp_path / "app", LIMITED)
    whole = {"version": "2.0", "functionTimeout": "00:00:01", "extensions": {"queues": {"messageEncoding": "none"}}}
    (app / "host.json").write_text(json.dumps(whole))
    with running_host(azurite, tmp_path, prefix, app=app) as host:
        await host.until("ready")
        assert [each["function"] for each in host.all("no-retries")] == ["daily"]
        await queues.send(host.queue("endless"), ["x"])
        await host.until("executed", function="endless", succeeded=True)
        (late,) = host.all("executed", function="endless", succeeded=False)
        assert late["error"] == "FunctionTimeout"
        assert host.all("worker-died")
        assert [each["count"] for each in host.recorded("endless")] == [1, 2]


async def test_a_worker_does_not_outlive_its_host(
    azurite: str, worker_library: Path, tmp_path: Path, prefix: str
) -> None:
    app = write_app(tmp_path / "app", ENCODED)
    with running_host(azurite, tmp_path, prefix, app=app) as host:
        await host.until("ready")
        worker = host.worker_pid
        host.process.kill()
        await host.end()
        end = time.monotonic() + 10
        while Path(f"/proc/{worker}").exists() or _lives(worker):
            assert time.monotonic() < end, "the worker still runs"
            await asyncio.sleep(0.05)


def child_of(pid: int) -> int:
    """The only child of a process, or 0."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(text[0]) if text else 0


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def functions(*words: str, store: str, folder: Path, library: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "taskgraph", "functions", *words, "--environment", str(library)]
    settings = environment(store, TASKGRAPH_PREFIX="tunused", **more)
    return subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=60, check=False)


def test_an_app_that_cannot_be_indexed_says_why(azurite: str, worker_library: Path, tmp_path: Path) -> None:
    app = write_app(tmp_path / "app", "import nowhere_to_be_found\n")
    done = functions("start", "--json", "--app", str(app), store=azurite, folder=tmp_path, library=worker_library)
    assert done.returncode == 2, done.stderr
    error = obeys_its_schema("start", json.loads(done.stdout.splitlines()[-1]))
    assert error["type"] == "error"
    assert error["error"]["exitCode"] == 2
    assert error["error"]["message"].startswith("ModuleNotFoundError: No module named 'nowhere_to_be_found'")
    assert "No module named 'nowhere_to_be_found'" in done.stderr


def test_a_worker_that_ends_at_once_says_so(azurite: str, worker_library: Path, tmp_path: Path) -> None:
    app = write_app(tmp_path / "app", "os._exit(7)\n")
    for command in ("start", "list"):
        done = functions(command, "--app", str(app), store=azurite, folder=tmp_path, library=worker_library)
        assert done.returncode == 2, done.stderr
        assert "ended with code 7 before it had indexed" in done.stderr


def test_an_app_with_nothing_to_run_is_refused(azurite: str, worker_library: Path, tmp_path: Path) -> None:
    app = write_app(tmp_path / "app", '@app.route(route="x")\ndef x(req: func.HttpRequest) -> str:\n    return ""\n')
    done = functions("start", "--app", str(app), store=azurite, folder=tmp_path, library=worker_library)
    assert done.returncode == 2, done.stderr
    assert "no function that is triggered by a queue or a timer" in done.stderr


def test_a_store_that_does_not_answer_is_an_error(worker_library: Path, tmp_path: Path) -> None:
    nobody = "http://127.0.0.1:9/devstoreaccount1"
    store = "AccountName=devstoreaccount1;AccountKey=AAAA;" + "".join(
        f"{kind}Endpoint={nobody};" for kind in ("Table", "Queue", "Blob")
    )
    app = write_app(tmp_path / "app", ENCODED)
    done = functions(
        "start", "--app", str(app), store=store, folder=tmp_path, library=worker_library, RECORD_IN=str(tmp_path)
    )
    assert done.returncode == 5, done.stderr


def test_an_app_that_brings_its_packages_gets_nothing_else(worker_library: Path, tmp_path: Path) -> None:
    own = tmp_path / "app" / ".python_packages" / "lib" / "site-packages"
    own.mkdir(parents=True)
    (own / "brought.py").write_text('NAME = "brought"\n')
    app = write_app(
        tmp_path / "app",
        "import importlib.util\nimport brought\n"
        "for name in ('taskgraph', 'typer', 'azure.storage', 'tests.functions'):\n"
        "    try:\n"
        "        assert importlib.util.find_spec(name) is None, name\n"
        "    except ModuleNotFoundError:\n"
        "        pass\n"
        "@on_queue(brought.NAME)\ndef one(message: func.QueueMessage) -> None:\n    pass\n",
    )
    done = functions("list", "--json", "--app", str(app), store="", folder=tmp_path, library=worker_library)
    assert done.returncode == 0, done.stderr
    (one,) = obeys_its_schema("list", json.loads(done.stdout))["functions"]
    assert (one["name"], one["queue"]) == ("brought", "tunused-brought")


def test_the_shipped_app_is_found_and_listed(worker_library: Path, tmp_path: Path) -> None:
    done = functions("list", store="", folder=tmp_path, library=worker_library)
    assert done.returncode == 0, done.stderr
    assert "tunused-events-poison" in done.stdout


class _StopsWhileItReceives:
    """Real queues; the host is told to stop while an answer with messages is on its way."""

    def __init__(self, queues: Queues, stop: Flag) -> None:
        self._queues = queues
        self._stop = stop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queues, name)

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> Any:
        found = await self._queues.receive(queue, count=count, lease_seconds=lease_seconds)
        if found:
            self._stop.set()
        return found


async def test_messages_that_were_fetched_and_not_begun_are_given_back(
    azurite: str, worker_library: Path, tmp_path: Path, prefix: str, queues: Queues
) -> None:
    from taskgraph.model.clock import SystemClock
    from taskgraph_functions_host import local
    from taskgraph_functions_host.environment import python_of
    from taskgraph_functions_host.host import FunctionsHost, Source
    from taskgraph_functions_host.worker_process import WorkerProcess

    app = write_app(tmp_path / "app", ENCODED, messageEncoding="none")
    more = {**os.environ, "TASKGRAPH_PREFIX": prefix, "RECORD_IN": str(tmp_path)}
    settings = local.app_settings(azurite, more, app, None, cwd=tmp_path)
    stop = Flag()

    async def open_source(connection: str) -> Source:
        return Source(_StopsWhileItReceives(queues, stop), None)  # type: ignore[arg-type]

    host = FunctionsHost(
        lambda log: WorkerProcess.start(python_of(worker_library), app, settings.environ, log),
        open_source,
        settings.environ,
        local.read_host_json(app, settings.environ),
        SystemClock(),
        lambda loud, kind, about: None,
    )
    await queues.send(f"{prefix}-text", ["one", "two"])
    await asyncio.wait_for(host.run(stop), 30)
    assert host.succeeded == host.failed == 0
    back = await queues.receive(f"{prefix}-text", count=32, lease_seconds=30)
    assert sorted((each.body, each.dequeue_count) for each in back) == [("one", 2), ("two", 2)]
