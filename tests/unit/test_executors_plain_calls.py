"""A command that is seen through by plain calls comes to the same as one that is run by a coroutine."""

import asyncio
import gc
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from taskgraph.worker.executors import CommandExecutor, Outcome, Work, children
from taskgraph.worker.executors.command_run import CommandRun
from taskgraph.worker.executors.orphans import guard

pytestmark = pytest.mark.skipif(not children.can_spawn(), reason="this system starts children by asyncio")

PLAIN = {"nothing": "exit 0", "a while": "sleep 0.02", "closed output": "exec >&- 2>&-; sleep 0.02"}
UNUSUAL = {
    "output": "echo a; echo b >&2",
    "late output": "sleep 0.02; echo a",
    "a code": "exit 3",
    "a signal": "kill -9 $$",
    "a result": 'echo "[1]" > "$TASKGRAPH_RESULT_FILE"',
    "no result": 'echo "{" > "$TASKGRAPH_RESULT_FILE"',
    "held output": "sleep 300 & exit 0",
    "for the moment": 'echo "{\\"retryAfter\\": 5}" > "$TASKGRAPH_RESULT_FILE"; exit 75',
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


async def executor(queued: bool) -> CommandExecutor:
    made = CommandExecutor(grace_seconds=0.2, drain_seconds=0.1)
    while queued and not made.is_ready(2):
        await asyncio.sleep(0.001)
    return made


def work(*command: str) -> Work:
    definition = {"payload": {"command": list(command)}, "temporaryExitCodes": [75]}
    return Work("g", "AAAAAAAAQAAAAAAAAAAAAA", 0, "a", "claim-a", definition)


class Ends:
    """What a run has come to. went_on: whether it needed a coroutine."""

    def __init__(self, executor: CommandExecutor, one: Work) -> None:
        self.log = b""
        self.went_on = self.began = False
        self.outcome: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        begun = executor.begin(one, self._begin, self.outcome.set_result)
        assert begun is not None
        self.begun = begun

    def _begin(self) -> None:
        self.began = True

    async def write(self, data: bytes) -> None:
        self.log += data

    async def all(self) -> Outcome:
        found = await self.outcome
        if found is not None:
            return found
        self.went_on = True
        return await self.begun.go_on(self.write)


async def soon(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def nothing_is_left(executor: CommandExecutor) -> bool:
    shared = executor._shared
    return not (shared.apart or shared.queued or shared.results._live or guard()._slot_of)


def group_is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("queued", [False, True], ids=["spawned", "queued"])
async def test_both_come_to_the_same(queued: bool) -> None:
    own = await executor(queued)
    await Ends(own, work("true")).all()  # the first of all looks for its result
    for name, script in {**PLAIN, **UNUSUAL, "no such program": ""}.items():
        one = work("sh", "-c", script) if script else work("no-such-program")
        ends, log = Ends(own, one), b""

        async def write(data: bytes) -> None:
            nonlocal log
            log += data

        outcome = await ends.all()
        assert outcome == await own.run(one, write), name
        assert ends.log == log, name
        assert ends.began == bool(script), name
        assert ends.went_on == (name not in PLAIN), name
    await soon(lambda: nothing_is_left(own))


@pytest.mark.parametrize("queued", [False, True], ids=["spawned", "queued"])
async def test_a_run_that_is_ended_before_its_time_goes_on_to_its_end(queued: bool) -> None:
    own = await executor(queued)
    ends = Ends(own, work("sh", "-c", 'echo $$ > pid; trap "" TERM; sleep 300 & wait; wait'))
    await soon(lambda: Path("pid").exists() and bool(Path("pid").read_text()))
    going = asyncio.create_task(ends.begun.go_on(ends.write))
    await asyncio.sleep(0)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert not ends.outcome.done()
    await soon(lambda: not group_is_there(int(Path("pid").read_text())))
    await soon(lambda: nothing_is_left(own))


@pytest.mark.parametrize("queued", [False, True], ids=["spawned", "queued"])
async def test_a_run_that_is_over_is_no_garbage(queued: bool) -> None:
    """What is left to the collector of garbage stays for long, as a worker has it look seldom."""
    own = await executor(queued)
    gc.collect()
    gc.disable()
    try:
        for script in ("exit 0", "echo a", "exit 3"):
            await Ends(own, work("sh", "-c", script)).all()
            await soon(lambda: nothing_is_left(own))
            await asyncio.sleep(0)
            left = [each for each in gc.get_objects() if isinstance(each, CommandRun | children.Child)]
            assert not left, script
    finally:
        gc.enable()


async def test_what_waits_in_the_queue_can_be_recalled() -> None:
    own = await executor(True)
    first = [Ends(own, work("sleep", "0.1")) for _ in range(2)]
    last = Ends(own, work("sh", "-c", "touch began"))
    own.recall(work())
    with pytest.raises(asyncio.CancelledError):
        await last.all()
    assert not last.began
    assert not Path("began").exists()
    assert not any([(await each.all()).failed for each in first])
    await soon(lambda: nothing_is_left(own))


async def test_a_starter_that_is_killed_costs_the_runs_and_no_more() -> None:
    own = await executor(True)
    assert own._starting is not None
    both = [Ends(own, work("sh", "-c", "touch began-$$; sleep 300")) for _ in range(2)]
    await soon(lambda: len(list(Path().glob("began-*"))) == 2)
    os.kill(own._starting.pids[0], signal.SIGKILL)
    for each in both:
        with pytest.raises(OSError, match="ended"):
            await each.all()
    assert not (await Ends(own, work("true")).all()).failed, "without them, a command is started by the worker"
    await soon(lambda: nothing_is_left(own))


async def test_an_error_in_what_is_called_at_the_end_keeps_no_other_from_its_end() -> None:
    own = await executor(True)
    errors: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["message"]))

    def fail(_: Outcome | None) -> None:
        raise RuntimeError("a bug")

    own.begin(work("true"), lambda: None, fail)
    assert not (await Ends(own, work("true")).all()).failed
    await soon(lambda: errors == ["the news of a command could not be handled"])
