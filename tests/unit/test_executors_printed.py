"""What callables print and log, in the logs of their runs."""

import asyncio
import contextlib
import contextvars
import logging
import sys
import threading

import pytest

from taskgraph.worker.executors import Outcome, PythonExecutor
from taskgraph.worker.executors.printed import HELD_BYTES_MAX
from tests.unit.test_executors_callables import Log, run, work


@pytest.fixture
def log() -> Log:
    return Log()


async def test_prints_and_records_come_in_order(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    def speak() -> None:
        print("one")
        logging.getLogger("app").warning("two %d", 2)
        print("three", file=sys.stderr)
        print("fo", end="")
        print("ur \ud800", flush=True)
        sys.stdout.writelines(["five\n"])

    assert await run(speak, log) == Outcome(failed=False)
    assert log.text == "one\nWARNING app: two 2\nthree\nfour \\ud800\nfive\n"
    assert capsys.readouterr() == ("", "")


async def test_output_stands_before_the_traceback(log: Log) -> None:
    async def fail() -> None:
        print("begun")
        raise ValueError("no")

    assert (await run(fail, log)).failed
    assert log.text.startswith("begun\nTraceback")


async def test_each_run_has_its_own_output() -> None:
    meet = threading.Barrier(2, timeout=20)
    turn = asyncio.Event()

    def in_thread(name: str) -> None:
        for number in range(50):
            meet.wait()
            print(name, number)

    async def on_loop(name: str) -> None:
        print(name, 0)
        turn.set()
        await asyncio.create_task(later(name))
        await asyncio.to_thread(print, name, 2)

    async def later(name: str) -> None:
        await turn.wait()
        print(name, 1)

    logs = {name: Log() for name in ("a", "b", "c", "d")}
    executor = PythonExecutor({"thread": in_thread, "loop": on_loop})
    calls = {"a": "thread", "b": "thread", "c": "loop", "d": "loop"}
    await asyncio.gather(*(executor.run(work(call, name=name), logs[name]) for name, call in calls.items()))
    for name, call in calls.items():
        count = 50 if call == "thread" else 3
        assert logs[name].text == "".join(f"{name} {number}\n" for number in range(count))


async def test_a_thread_that_runs_ahead_waits_for_the_log() -> None:
    ahead: list[int] = []
    written = 0

    async def write_log(data: bytes) -> None:
        nonlocal written
        written += len(data)
        await asyncio.sleep(0)

    def flood() -> None:
        for number in range(400):
            print("x" * 9_999)
            ahead.append((number + 1) * 10_000 - written)

    assert not (await PythonExecutor({"f": flood}).run(work(), write_log)).failed
    assert written == 4_000_000
    assert max(ahead) < 2 * HELD_BYTES_MAX


async def test_what_was_printed_before_a_cancellation_is_kept(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    ended = threading.Event()

    def long() -> None:
        print("before")
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(20)
        print("after")
        ended.set()

    running = asyncio.create_task(run(long, log))
    await begun.wait()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 20)
    assert running.cancelled()
    assert log.text == "before\n"
    assert capsys.readouterr().out == "after\n"


async def test_a_log_that_fails_ends_the_run_and_lets_its_thread_go_on() -> None:
    def flood() -> None:
        for _ in range(300):
            print("x" * 9_999)

    async def broken(data: bytes) -> None:
        raise OSError("no log")

    with pytest.raises(OSError, match="no log"):
        await PythonExecutor({"f": flood}).run(work(), broken)


@pytest.mark.parametrize("own_handler", [False, True])
async def test_a_flood_of_records_holds_no_lock_against_the_event_loop(own_handler: bool) -> None:
    """The log itself logs here, so that it comes to the locks of all handlers while the thread runs ahead."""
    logger, lengths = logging.getLogger("flood"), []

    async def write_log(data: bytes) -> None:
        logger.warning("a piece")
        lengths.append(len(data))

    def flood() -> None:
        if own_handler:
            logger.addHandler(logging.StreamHandler(sys.stderr))
        for _ in range(8):
            logger.warning("x" * HELD_BYTES_MAX)

    try:
        assert not (await PythonExecutor({"f": flood}).run(work(), write_log)).failed
    finally:
        for handler in [*logger.handlers]:
            logger.removeHandler(handler)
    assert sum(lengths) >= 8 * HELD_BYTES_MAX * (2 if own_handler else 1)


async def test_threads_without_the_context_print_elsewhere(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    def speak() -> None:
        own = contextvars.copy_context()
        for target in (lambda: print("kept"), lambda: contextvars.Context().run(print, "elsewhere")):
            thread = threading.Thread(target=own.run, args=(target,))
            thread.start()
            thread.join()

    await run(speak, log)
    assert log.text == "kept\n"
    assert capsys.readouterr().out == "elsewhere\n"


async def test_streams_and_loggers_are_as_before_when_no_run_lasts(log: Log) -> None:
    before = (sys.stdout, sys.stderr, list(logging.getLogger().handlers))
    await run(lambda: print("hello"), log)
    assert (sys.stdout, sys.stderr, logging.getLogger().handlers) == before


async def test_records_of_others_keep_their_way_while_a_run_lasts(
    log: Log, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])

    def speak() -> None:
        contextvars.Context().run(logging.getLogger("other").warning, "of another")

    await run(speak, log)
    assert log.text == ""
    assert capsys.readouterr().err == "of another\n"
