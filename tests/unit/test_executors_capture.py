"""What callables print and log is the log of their task, however many run side by side."""

import asyncio
import logging
import sys
import threading
from typing import Any

import pytest

from taskgraph.worker.executors import PythonExecutor, Work


def work(label: str) -> Work:
    return Work("graph-1", "AAAAAAAAQAAAAAAAAAAAAA", 0, label, "claim-1", {"payload": {"call": label}})


class Log:
    def __init__(self, seconds: float = 0.0) -> None:
        self.text = ""
        self.seconds = seconds

    async def __call__(self, data: bytes) -> None:
        await asyncio.sleep(self.seconds)
        self.text += data.decode()


async def run(*functions: Any, seconds: float = 0.0) -> dict[str, str]:
    """Run them side by side; gives the log of each."""
    executor = PythonExecutor({each.__name__: each for each in functions})
    logs = {each.__name__: Log(seconds) for each in functions}
    await asyncio.gather(*(executor.run(work(name), log) for name, log in logs.items()))
    return {name: log.text for name, log in logs.items()}


def prints() -> int:
    print("out")
    print("err", file=sys.stderr)
    sys.stdout.write("no end")
    print(*range(3), sep=",", end="!\n", flush=True)
    sys.stdout.writelines(["a\n", "b\n"])
    assert not sys.stdout.isatty()
    return 1


PRINTED = "out\nerr\nno end0,1,2!\na\nb\n"


async def prints_too() -> None:
    prints()
    await asyncio.sleep(0)
    await asyncio.create_task(asyncio.sleep(0))
    print("é \udce9")


async def test_what_is_printed_is_in_the_log_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    assert await run(prints, prints_too) == {"prints": PRINTED, "prints_too": f"{PRINTED}é \\udce9\n"}
    assert (sys.stdout, sys.stderr) == before, "they are put back"
    assert capsys.readouterr().out == ""


async def test_runs_side_by_side_are_kept_apart() -> None:
    barrier = threading.Barrier(3)

    def one() -> None:
        for number in range(50):
            barrier.wait()
            print("one", number)

    def two() -> None:
        for number in range(50):
            barrier.wait()
            print("two", number)

    def three() -> None:
        for number in range(50):
            barrier.wait()
            logging.getLogger("mine").warning("three %d", number)

    found = await run(one, two, three, seconds=0.001)
    for name in ("one", "two"):
        assert found[name] == "".join(f"{name} {number}\n" for number in range(50))
    assert found["three"] == "".join(f"WARNING mine: three {number}\n" for number in range(50))


async def test_logging_counts_by_its_own_levels_and_not_twice() -> None:
    def logs() -> None:
        logging.getLogger("mine").info("not asked for")
        logging.getLogger("mine").error("mine")
        logging.getLogger("taskgraph.worker").error("the worker's own")
        handler = logging.StreamHandler(sys.stderr)
        logging.root.addHandler(handler)
        logging.getLogger("mine").error("once")
        logging.root.removeHandler(handler)

    assert (await run(logs))["logs"] == "ERROR mine: mine\nonce\n"
    assert not any(type(each).__module__.startswith("taskgraph") for each in logging.root.handlers)


async def test_what_a_callable_printed_before_it_raised_comes_before_the_traceback() -> None:
    def fails() -> None:
        print("so far")
        raise ValueError("no")

    text = (await run(fails))["fails"]
    assert text.startswith("so far\nTraceback (most recent call last):\n")
    assert text.endswith("ValueError: no\n")


async def test_a_flood_waits_for_the_log_and_is_all_there() -> None:
    lines = 60_000

    def floods() -> None:
        for number in range(lines):
            print("x" * 50, number)

    text = (await run(floods, seconds=0.002))["floods"]
    assert text.count("\n") == lines
    assert text.endswith(f" {lines - 1}\n")


async def test_a_thread_that_was_given_up_prints_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    on = threading.Event()
    ended = threading.Event()

    def goes_on() -> None:
        print("begins")
        on.wait(10)
        print("late")
        ended.set()

    log = Log()
    running = asyncio.create_task(PythonExecutor({"goes_on": goes_on}).run(work("goes_on"), log))
    while not log.text:
        await asyncio.sleep(0.001)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    on.set()
    assert await asyncio.to_thread(ended.wait, 10)
    assert log.text == "begins\n"
    assert capsys.readouterr().out == "late\n"


async def test_a_thread_of_its_own_prints_where_the_worker_does(capsys: pytest.CaptureFixture[str]) -> None:
    def starts() -> None:
        thread = threading.Thread(target=print, args=("inside",))
        thread.start()
        thread.join()
        print("own")

    assert (await run(starts))["starts"] == "own\n"
    assert capsys.readouterr().out == "inside\n"
