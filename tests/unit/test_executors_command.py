"""The command executor, on real child processes."""

import asyncio
import contextlib
import errno
import functools
import gc
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taskgraph.worker.executors import RESULT_BYTES_MAX, CommandExecutor, Outcome, Work, WriteLog, children
from taskgraph.worker.executors.orphans import guard

WAIT_SECONDS_MAX = 20.0  # how long a busy machine may take for what should be immediate
STARTERS = 2  # of the way `queued`: each is a process, and most tests start one command


def work(*command: str, label: str = "build/linux", **payload: Any) -> Work:
    definition = {"payload": {"command": list(command), **payload}}
    return Work("graph-1", "AAAAAAAAQAAAAAAAAAAAAA", 3, label, "claim-1", definition, "sqlite:///graphs.db")


def python(code: str, *arguments: str, **payload: Any) -> Work:
    return work(sys.executable, "-c", code, *arguments, **payload)


class Log:
    """What a run wrote, and in which chunks."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    async def __call__(self, data: bytes) -> None:
        self.chunks.append(data)

    @property
    def text(self) -> str:
        return b"".join(self.chunks).decode()


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of its own, so that a test can see that nothing stays."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(autouse=True, params=["spawned", "queued", "by asyncio"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How children are started: all ways keep the same promises, and one machine alone would not use all of them."""
    if request.param == "by asyncio":
        monkeypatch.setattr(children, "can_spawn", lambda: False)
    elif not children.can_spawn():
        pytest.skip("not on this system")
    if request.param == "queued":
        monkeypatch.setattr(CommandExecutor, "run", functools.partialmethod(run_queued, CommandExecutor.run))
    return str(request.param)


async def run_queued(self: CommandExecutor, run: Callable[..., Any], work: Work, log: WriteLog) -> Outcome:
    """Also seen through by plain calls as far as that goes, as a worker does."""
    while not self.is_ready(STARTERS):
        await asyncio.sleep(0.001)
    return await run_plainly(self, run, work, log)


async def run_plainly(self: CommandExecutor, run: Callable[..., Any], work: Work, log: WriteLog) -> Outcome:
    ended: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
    begun = self.begin(work, work.on_begin, ended.set_result)
    if begun is None:
        outcome: Outcome = await run(self, work, log)
        return outcome
    try:
        found = await ended
    except asyncio.CancelledError as error:
        going = asyncio.create_task(begun.go_on(log))
        await asyncio.sleep(0)
        going.cancel(*error.args)
        return await going
    return await begun.go_on(log) if found is None else found


def executor(grace_seconds: float = 5.0, drain_seconds: float = 0.3) -> CommandExecutor:
    return CommandExecutor(grace_seconds=grace_seconds, drain_seconds=drain_seconds)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody has reaped yet does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    answer = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return not answer.stdout.strip().startswith("Z") if answer.stdout.strip() else False


def gone(pid: int) -> bool:
    return not alive(pid)


# --- what a command is given ------------------------------------------------------------------------------------


async def test_the_environment_of_a_run(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TASKGRAPH_")]:
        monkeypatch.delenv(name)  # settings of whoever runs the tests
    monkeypatch.setenv("FROM_WORKER", "worker")
    monkeypatch.setenv("OVERRIDDEN", "worker")
    monkeypatch.setenv("TASKGRAPH_STORE", "the worker's own")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    env = {"OVERRIDDEN": "task", "FROM_TASK": "grün", "TASKGRAPH_GRAPH_ID": "forged"}
    outcome = await executor().run(python(code, env=env), log)
    assert outcome == Outcome(failed=False, exit_code=0)
    seen = json.loads(log.text)
    result_file = seen.pop("TASKGRAPH_RESULT_FILE")
    assert seen.pop("TASKGRAPH_GUARDED_BY") == guard().mark
    assert {name: value for name, value in seen.items() if name.startswith("TASKGRAPH_")} == {
        "TASKGRAPH_GRAPH_ID": "graph-1",
        "TASKGRAPH_TASK_ID": "AAAAAAAAQAAAAAAAAAAAAA",
        "TASKGRAPH_LABEL": "build/linux",
        "TASKGRAPH_RUN_ID": "3",
        "TASKGRAPH_FENCING_TOKEN": "claim-1",
        "TASKGRAPH_STORE": "sqlite:///graphs.db",
    }
    assert (seen["FROM_WORKER"], seen["OVERRIDDEN"], seen["FROM_TASK"]) == ("worker", "task", "grün")
    assert not Path(result_file).exists()


async def test_a_label_that_no_environment_can_hold_stops_no_task(log: Log) -> None:
    outcome = await executor().run(python("import os; print(os.environ['TASKGRAPH_LABEL'])", label="a\ud800b"), log)
    assert not outcome.failed, outcome.reason
    assert log.text == "a?b\n"


async def test_the_working_directory(log: Log, tmp_path: Path) -> None:
    outcome = await executor().run(python("import os; print(os.getcwd())", cwd=str(tmp_path)), log)
    assert not outcome.failed
    assert log.text.strip() == str(tmp_path.resolve())


async def test_a_relative_command_is_sought_in_the_working_directory(log: Log, tmp_path: Path) -> None:
    script = tmp_path / "hello"
    script.write_text("#!/bin/sh\necho hello\n")
    script.chmod(0o755)
    outcome = await executor().run(work("./hello", cwd=str(tmp_path)), log)
    assert not outcome.failed, outcome.reason
    assert log.text == "hello\n"


async def test_the_path_of_the_task_counts(log: Log, tmp_path: Path) -> None:
    script = tmp_path / "taskgraph-test-only"
    script.write_text("#!/bin/sh\necho found\n")
    script.chmod(0o755)
    assert (await executor().run(work("taskgraph-test-only"), log)).failed
    assert not (await executor().run(work("taskgraph-test-only", env={"PATH": str(tmp_path)}), log)).failed
    assert log.text == "found\n"


async def test_nothing_comes_on_stdin_and_the_session_is_its_own(log: Log) -> None:
    code = "import os, sys; print(repr(sys.stdin.read()), os.getsid(0) == os.getpgrp() == os.getpid())"
    assert not (await executor().run(python(code), log)).failed
    assert log.text == "'' True\n"


# --- its output -------------------------------------------------------------------------------------------------


async def test_both_streams_in_the_order_of_writing(log: Log) -> None:
    code = "import os\nfor n in range(50): os.write(1 + n % 2, b'%d ' % n)"
    assert not (await executor().run(python(code), log)).failed
    assert log.text.split() == [str(n) for n in range(50)]


async def test_output_comes_while_the_command_still_runs(log: Log, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    code = """
import os, sys, time
os.write(1, b"no newline yet")
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
os.write(1, b"; done")
"""
    running = asyncio.create_task(executor().run(python(code, str(go_on)), log))
    await until(lambda: log.text == "no newline yet")
    assert not running.done()
    go_on.touch()
    assert not (await running).failed
    assert log.text == "no newline yet; done"


async def test_bytes_are_left_as_they_are(log: Log) -> None:
    code = "import os; os.write(1, bytes(range(256)) * 100)"
    assert not (await executor().run(python(code), log)).failed
    assert b"".join(log.chunks) == bytes(range(256)) * 100


async def test_a_flood_is_streamed_in_bounded_memory() -> None:
    size, chunk_sizes = 50_000_000, []

    async def count(data: bytes) -> None:
        chunk_sizes.append(len(data))

    code = f"import os\nleft = {size}\nwhile left: left -= os.write(1, b'x' * min(left, 65536))"
    tracemalloc.start()
    try:
        outcome = await executor().run(python(code), count)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not outcome.failed
    assert sum(chunk_sizes) == size
    assert peak_bytes < 3_000_000


async def test_a_slow_log_slows_the_command_and_loses_nothing() -> None:
    """The pipe is still full when the command has long ended, and the log takes longer than the time to drain."""
    received = 0
    first = True

    async def slow(data: bytes) -> None:
        nonlocal received, first
        if first:
            await asyncio.sleep(0.5)
            first = False
        received += len(data)

    code = "import os\nfor n in range(60): os.write(1, b'x' * 1000)"
    outcome = await executor(drain_seconds=0.05).run(python(code), slow)
    assert not outcome.failed
    assert received == 60_000


async def test_a_log_that_fails_ends_the_run_and_is_not_hidden(tmp_path: Path) -> None:
    async def broken(data: bytes) -> None:
        pid_file.write_bytes(data)
        raise OSError("log")

    pid_file = tmp_path / "pid"
    code = "import os, time; os.write(1, b'%d' % os.getpid()); time.sleep(600)"
    with pytest.raises(OSError, match="log"):
        await executor().run(python(code), broken)
    assert not alive(int(pid_file.read_bytes()))


async def test_a_command_may_close_its_output_and_go_on(log: Log) -> None:
    code = "import os, sys, time; os.close(1); os.close(2); time.sleep(0.3); os._exit(4)"
    assert await executor().run(python(code), log) == Outcome(failed=True, reason="exit code 4", exit_code=4)


async def test_last_words_after_a_silence(log: Log) -> None:
    assert not (await executor().run(work("sh", "-c", "sleep 0.2; echo one; echo two >&2"), log)).failed
    assert log.text == "one\ntwo\n"


async def test_words_of_one_that_was_silent_until_it_was_asked_to_end(log: Log, tmp_path: Path) -> None:
    script = f"trap 'echo leaving; exit' TERM; touch {tmp_path}/up; while :; do sleep 0.05; done"
    running = asyncio.create_task(executor(grace_seconds=WAIT_SECONDS_MAX).run(work("sh", "-c", script), log))
    await until((tmp_path / "up").exists)
    await cancel(running)
    assert log.text.endswith("leaving\n")  # some shells have a word for the sleep that was ended, too


# --- how it ends ------------------------------------------------------------------------------------------------


async def test_an_exit_code(log: Log) -> None:
    outcome = await executor().run(python("import sys; sys.exit(3)"), log)
    assert outcome == Outcome(failed=True, reason="exit code 3", exit_code=3)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
async def test_a_signal(log: Log, number: signal.Signals) -> None:
    outcome = await executor().run(python(f"import os; os.kill(os.getpid(), {int(number)})"), log)
    assert outcome == Outcome(failed=True, reason=f"killed by {number.name}")


async def test_a_timeout_keeps_what_was_written(log: Log) -> None:
    outcome = await executor().run(work("sh", "-c", "echo begun; exec sleep 600", timeout=1.5), log)
    assert outcome == Outcome(failed=True, reason="timed out after 1.5 s")
    assert log.text == "begun\n"


async def test_a_timeout_hears_the_last_words(log: Log) -> None:
    script = "trap 'echo leaving; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    outcome = await executor().run(work("sh", "-c", script, timeout=1.5), log)
    assert outcome == Outcome(failed=True, reason="timed out after 1.5 s"), "even if it then exits with 0"
    assert log.text.startswith("ready\n")
    assert log.text.endswith("leaving\n")


async def test_a_timeout_ends_a_flood_into_a_log_that_never_waits() -> None:
    async def swallow(data: bytes) -> None:
        return

    code = "import os\nwhile True: os.write(1, b'x' * 65536)"
    outcome = await executor().run(python(code, timeout=0.5), swallow)
    assert outcome.reason == "timed out after 0.5 s"


async def test_a_command_that_will_not_end_is_killed(log: Log) -> None:
    begun = time.monotonic()
    script = "trap '' TERM; echo $$; while :; do sleep 600; done"
    outcome = await executor(grace_seconds=0.3).run(work("sh", "-c", script, timeout=1), log)
    assert outcome.reason == "timed out after 1 s"
    assert time.monotonic() - begun >= 1.3, "it was given its grace"
    assert not alive(int(log.text))


# --- what cannot start ------------------------------------------------------------------------------------------


async def test_a_missing_command(log: Log) -> None:
    outcome = await executor().run(work("no-such-command-anywhere"), log)
    assert outcome == Outcome(failed=True, reason="the command no-such-command-anywhere was not found on PATH")


async def test_a_missing_path(log: Log, tmp_path: Path) -> None:
    outcome = await executor().run(work(f"{tmp_path}/none"), log)
    assert outcome == Outcome(failed=True, reason=f"the command {tmp_path}/none does not exist")


async def test_a_missing_interpreter(log: Log, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    for command, cwd in ((str(script), None), ("./script", str(tmp_path))):
        outcome = await executor().run(work(command, cwd=cwd), log)
        assert outcome.reason == f"the command {command} names an interpreter that does not exist"


async def test_a_command_that_is_not_executable(log: Log, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(stat.S_IRUSR)
    outcome = await executor().run(work(str(script)), log)
    assert outcome == Outcome(failed=True, reason=f"the command {script} is not executable")


async def test_a_file_that_is_no_program(log: Log, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_bytes(b"\0\1\2")
    file.chmod(0o755)
    outcome = await executor().run(work(str(file)), log)
    assert outcome.reason == f"the command {file} cannot be started: {os.strerror(errno.ENOEXEC)}"


async def test_a_missing_working_directory(log: Log, tmp_path: Path) -> None:
    outcome = await executor().run(python("", cwd=str(tmp_path / "none")), log)
    assert outcome == Outcome(failed=True, reason=f"the working directory {tmp_path}/none does not exist")
    (tmp_path / "file").touch()
    outcome = await executor().run(python("", cwd=str(tmp_path / "file")), log)
    assert outcome == Outcome(failed=True, reason=f"the working directory {tmp_path}/file is no directory")


async def test_a_machine_out_of_descriptors_is_no_failure_of_the_task(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descriptors are what a test can use up without harm to others.

    Each number below the limit is taken, and nothing is collected meanwhile: what an earlier test left open and
    unreachable gives its descriptor back at a collection, at any moment.
    """
    import gc
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()
    gc.disable()
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 16, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(OSError, match=r"(?i)too many open files") as caught:
            await executor().run(python(""), log)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        gc.enable()
        for descriptor in taken:
            os.close(descriptor)
    assert caught.value.errno == errno.EMFILE


@pytest.mark.parametrize(
    ("payload", "word"),
    [
        ({"command": "echo hi"}, "list of texts"),
        ({"command": []}, "list of texts"),
        ({"command": ["echo", 1]}, "list of texts"),
        ({"command": None}, "list of texts"),
        ({"command": [""]}, "name of a program"),
        ({"command": ["echo", "a\0b"]}, "NUL"),
        ({"command": ["echo", "\ud800"]}, "encoded"),
        ({"command": ["true"], "env": []}, None),
        ({"command": ["true"], "env": ["A=1"]}, "payload.env"),
        ({"command": ["true"], "env": {"A": 1}}, "payload.env"),
        ({"command": ["true"], "env": {"A=B": "1"}}, "payload.env"),
        ({"command": ["true"], "env": {"": "1"}}, "payload.env"),
        ({"command": ["true"], "cwd": 7}, "payload.cwd"),
        ({"command": ["true"], "cwd": ""}, "payload.cwd"),
        ({"command": ["true"], "timeout": 0}, "payload.timeout"),
        ({"command": ["true"], "timeout": -1}, "payload.timeout"),
        ({"command": ["true"], "timeout": True}, "payload.timeout"),
        ({"command": ["true"], "timeout": "60"}, "payload.timeout"),
        ({"command": ["true"], "timeout": 10**400}, "payload.timeout"),
        ({"command": ["true"], "timeout": float("nan")}, "payload.timeout"),
        (["true"], "payload must be an object"),
        (None, "list of texts"),
    ],
)
async def test_a_malformed_payload_never_starts(log: Log, payload: object, word: str | None) -> None:
    outcome = await executor().run(
        Work("graph-1", "AAAAAAAAQAAAAAAAAAAAAA", 0, "l", "c", {"executor": "command", "payload": payload}), log
    )
    if word is None:
        assert not outcome.failed
    else:
        assert outcome.failed
        assert outcome.exception
        assert word in outcome.reason


# --- its result -------------------------------------------------------------------------------------------------

WRITE_RESULT = "import os, sys; open(os.environ['TASKGRAPH_RESULT_FILE'], 'wb').write(eval(sys.argv[1]))"


async def test_a_result(log: Log) -> None:
    outcome = await executor().run(python(WRITE_RESULT, repr(b'{"size": 7, "name": "gr\xc3\xbcn"}\n')), log)
    assert not outcome.failed
    assert outcome.result is not None
    assert json.loads(outcome.result) == {"size": 7, "name": "grün"}


@pytest.mark.parametrize("expression", ["b''", "b' \\n'"])
async def test_an_empty_result_file_is_no_result(log: Log, expression: str) -> None:
    assert await executor().run(python(WRITE_RESULT, expression), log) == Outcome(failed=False, exit_code=0)


@pytest.mark.parametrize(
    ("expression", "word"),
    [
        ("b'{'", "not JSON"),
        ("b'[NaN]'", "NaN"),
        ("b'\"\\xff\"'", "not JSON"),
        ("b'[' * 200_000 + b']' * 200_000", "nested"),
        (f"b'1' * {RESULT_BYTES_MAX + 1}", "longer than 1,048,576 bytes"),
    ],
)
async def test_a_result_that_is_none_fails_the_run(log: Log, expression: str, word: str) -> None:
    outcome = await executor().run(python(WRITE_RESULT, expression), log)
    assert outcome.failed
    assert not outcome.exception, "another run may do better"
    assert word in outcome.reason
    assert outcome.result is None


async def test_a_result_of_the_greatest_length(log: Log) -> None:
    outcome = await executor().run(python(WRITE_RESULT, f"b'\"' + b'x' * {RESULT_BYTES_MAX - 2} + b'\"'"), log)
    assert not outcome.failed, outcome.reason
    assert outcome.result is not None
    assert len(outcome.result) == RESULT_BYTES_MAX


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("import os; os.mkfifo(os.environ['TASKGRAPH_RESULT_FILE'])", "no regular file"),
        ("import os; os.mkdir(os.environ['TASKGRAPH_RESULT_FILE'])", "no regular file"),
    ],
)
async def test_a_result_file_that_is_no_file(log: Log, code: str, word: str) -> None:
    outcome = await executor().run(python(code), log)
    assert outcome.failed
    assert word in outcome.reason


async def test_the_result_of_a_failed_run_does_not_count(log: Log) -> None:
    outcome = await executor().run(python(WRITE_RESULT + "; sys.exit(1)", "b'1'"), log)
    assert outcome == Outcome(failed=True, reason="exit code 1", exit_code=1)


def files_in(scratch: Path) -> list[Path]:
    """All that there is but the folders of executors themselves."""
    return [path for folder in scratch.iterdir() for path in folder.iterdir()]


async def test_nothing_stays_in_the_temporary_folder(log: Log, scratch: Path) -> None:
    one = executor()
    await one.run(python(WRITE_RESULT, "b'1'"), log)
    await one.run(python(WRITE_RESULT + "; sys.exit(1)", "b'1'"), log)
    await one.run(work("no-such-command-anywhere"), log)
    await one.run(work("sh", "-c", 'mkdir "$TASKGRAPH_RESULT_FILE.tmp"; touch "$TASKGRAPH_RESULT_FILE.tmp/a"'), log)
    assert files_in(scratch) == []
    del one
    gc.collect()  # an error on the way may have kept it
    assert list(scratch.iterdir()) == []


# --- what it leaves behind --------------------------------------------------------------------------------------

# A child that starts a grandchild, says its number, and goes on as told; the grandchild holds the output open.
WITH_GRANDCHILD = """
import subprocess, sys
grandchild = subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=sys.argv[2] == "session")
print(grandchild.pid, flush=True)
exec(sys.argv[3])
"""


async def test_a_grandchild_that_holds_the_output_does_not_hold_the_run(log: Log) -> None:
    begun = time.monotonic()
    outcome = await executor(drain_seconds=0.3).run(
        python(WITH_GRANDCHILD, "import time; time.sleep(600)", "", "print('last words')"), log
    )
    assert not outcome.failed
    assert time.monotonic() - begun < WAIT_SECONDS_MAX
    pid, words = log.text.split("\n", 1)
    assert words == "last words\n"
    await until(lambda: not alive(int(pid)))


async def test_a_grandchild_of_another_session_cannot_flood_for_ever(log: Log) -> None:
    received = 0

    async def count(data: bytes) -> None:
        nonlocal received
        received += len(data)
        if len(log.chunks) < 3:
            log.chunks.append(data)

    flood = "import os\nwhile True: os.write(1, b' ' * 65536)"
    outcome = await executor(drain_seconds=0.1).run(python(WITH_GRANDCHILD, flood, "session", ""), count)
    assert not outcome.failed
    assert received > 0
    pid = int(log.text.split(maxsplit=1)[0])
    await until(lambda: not alive(pid))  # the broken pipe ended it


async def test_a_silent_grandchild_goes_with_the_run(log: Log, tmp_path: Path) -> None:
    """It holds no output open: nothing is heard of it."""
    script = f"sleep 600 >/dev/null 2>&1 & echo $! > {tmp_path}/pid"
    assert not (await executor().run(work("sh", "-c", script), log)).failed
    await until(lambda: gone(int((tmp_path / "pid").read_text())))


async def test_what_a_grandchild_says_soon_is_still_heard(log: Log) -> None:
    late = "import time; time.sleep(0.3); print('late', flush=True)"
    outcome = await executor(drain_seconds=WAIT_SECONDS_MAX).run(python(WITH_GRANDCHILD, late, "", ""), log)
    assert not outcome.failed
    assert log.text.endswith("late\n")


async def cancel(running: "asyncio.Task[Outcome]") -> None:
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert running.cancelled()


async def test_cancelling_ends_the_whole_group(log: Log, scratch: Path) -> None:
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    running = asyncio.create_task(
        executor(grace_seconds=0.3).run(
            python(WITH_GRANDCHILD, stubborn, "", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"),
            log,
        )
    )
    await until(lambda: len(log.text.split()) == 3)
    pids = [int(word) for word in log.text.split() if word != "up"]
    assert all(alive(pid) for pid in pids)
    await cancel(running)
    for pid in pids:
        await until(functools.partial(gone, pid))
    assert files_in(scratch) == []


async def test_cancelling_asks_before_it_kills(log: Log) -> None:
    code = """
import signal, sys, time
def leave(*_):
    print("tidied up", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(600)
"""
    running = asyncio.create_task(executor(grace_seconds=WAIT_SECONDS_MAX).run(python(code), log))
    await until(lambda: log.text == "ready\n")
    await cancel(running)
    assert log.text == "ready\ntidied up\n"


async def test_cancelling_twice_kills_at_once(log: Log) -> None:
    code = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(600)
"""
    running = asyncio.create_task(executor(grace_seconds=600).run(python(code), log))
    await until(lambda: log.text.endswith("\n"))
    running.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not running.done()
    await cancel(running)
    await until(lambda: not Path(f"/proc/{log.text.strip()}").exists() and not alive(int(log.text)))  # nor a zombie


@pytest.mark.parametrize("turns", range(12))
async def test_cancelling_at_any_moment_of_the_start_leaves_nothing(log: Log, tmp_path: Path, turns: int) -> None:
    """After so many turns of the loop: before the child, while it is being started, just after."""
    marker = f"taskgraph-test-{os.getpid()}-{turns}-{tmp_path.name}"
    running = asyncio.create_task(executor().run(python("import time; time.sleep(600)", marker), log))
    for _ in range(turns):
        await asyncio.sleep(0)
    await cancel(running)
    listing = await asyncio.to_thread(subprocess.run, ["ps", "-Ao", "args"], capture_output=True, text=True, check=True)
    assert marker not in listing.stdout


async def test_many_runs_at_once() -> None:
    logs = [Log() for _ in range(20)]
    runner = executor()
    outcomes = await asyncio.gather(*(runner.run(work("sh", "-c", f"echo {n}"), log) for n, log in enumerate(logs)))
    assert not any(outcome.failed for outcome in outcomes)
    assert [log.text for log in logs] == [f"{n}\n" for n in range(20)]
