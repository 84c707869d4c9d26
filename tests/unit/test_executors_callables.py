"""The python executor: callables by name, and where they are loaded from."""

import asyncio
import functools
import math
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taskgraph.model.errors import InvalidSettings
from taskgraph.worker.executors import (
    RESULT_BYTES_MAX,
    Outcome,
    PythonExecutor,
    Registry,
    TemporaryFailure,
    Work,
    load_callables,
)


def work(call: object = "f", **arguments: Any) -> Work:
    definition = {"payload": {"call": call, "arguments": arguments}}
    return Work("graph-1", "AAAAAAAAQAAAAAAAAAAAAA", 0, "label", "claim-1", definition)


class Log:
    """What a run wrote."""

    def __init__(self) -> None:
        self.text = ""

    async def __call__(self, data: bytes) -> None:
        self.text += data.decode()


@pytest.fixture
def log() -> Log:
    return Log()


async def run(function: Callable[..., Any], log: Log, **arguments: Any) -> Outcome:
    return await PythonExecutor({"f": function}).run(work(**arguments), log)


@pytest.mark.parametrize(
    ("asked", "pause", "said"),
    [
        (30, 30.0, False),
        (604_800, 604_800.0, False),
        (604_801, 604_800.0, True),
        (10**400, 604_800.0, True),
        (math.inf, 604_800.0, True),
        (-1, None, False),
        (math.nan, None, False),
        (True, None, False),
        ("30", None, False),
    ],
)
async def test_a_failure_of_the_moment_asks_for_a_week_at_most(
    log: Log, asked: Any, pause: float | None, said: bool
) -> None:
    def later() -> None:
        raise TemporaryFailure("the mirror is busy", retry_after=asked)

    outcome = await run(later, log)
    assert (outcome.temporary, outcome.retry_after) == (True, pause)
    assert "the mirror is busy" in outcome.reason
    assert ("a week" in outcome.reason) is said


# --- calling ----------------------------------------------------------------------------------------------------


async def test_a_function_runs_in_a_thread_beside_the_loop(log: Log) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def wait(name: str) -> dict[str, str]:
        entered.set()
        assert go_on.wait(20)
        return {"hello": name}

    running = asyncio.create_task(run(wait, log, name="grün"))
    while not entered.is_set():
        await asyncio.sleep(0.001)  # the loop goes on meanwhile, or this would never end
    go_on.set()
    assert await running == Outcome(failed=False, result='{"hello":"grün"}'.encode())


async def test_callables_wait_for_no_thread_of_others(log: Log) -> None:
    """More long calls at once than asyncio's own pool has threads, and that pool stays free for the store."""
    count = 40
    together = threading.Barrier(count + 1, timeout=20)
    running = [asyncio.create_task(run(lambda: together.wait() * 0, log)) for _ in range(count)]
    await asyncio.to_thread(together.wait)
    assert {outcome.result for outcome in await asyncio.gather(*running)} == {b"0"}


async def test_a_coroutine_function_is_awaited_on_the_loop(log: Log) -> None:
    async def add(a: int, b: int) -> int:
        await asyncio.sleep(0)
        assert threading.current_thread() is threading.main_thread()
        return a + b

    assert await run(add, log, a=1, b=2) == Outcome(failed=False, result=b"3")
    assert await run(functools.partial(add, b=2), log, a=1) == Outcome(failed=False, result=b"3")
    assert await run(lambda a: add(a, 2), log, a=1) == Outcome(failed=False, result=b"3")


async def test_an_object_that_can_be_called(log: Log) -> None:
    class Sync:
        def __call__(self) -> bool:
            return threading.current_thread() is not threading.main_thread()

    class Async:
        async def __call__(self) -> bool:
            return threading.current_thread() is threading.main_thread()

    assert await run(Sync(), log) == Outcome(failed=False, result=b"true")
    assert await run(Async(), log) == Outcome(failed=False, result=b"true")


async def test_the_context_is_given_to_those_who_ask(log: Log) -> None:
    def by_name(context: Work, n: int) -> list[Any]:
        return [context.claim, n]

    def by_keyword(*, context: Work) -> str:
        return context.claim

    def anything(**arguments: object) -> list[str]:
        return sorted(arguments)

    assert (await run(by_name, log, n=1)).result == b'["claim-1",1]'
    assert (await run(by_keyword, log)).result == b'"claim-1"'
    assert (await run(anything, log, n=1)).result == b'["n"]', "nobody asked"
    assert (await run(anything, log, context=1)).result == b'["context"]'
    outcome = await run(by_keyword, log, context="forged")
    assert outcome.exception
    assert "context" in outcome.reason


async def test_nothing_returned_is_no_result(log: Log) -> None:
    assert await run(lambda: None, log) == Outcome(failed=False)


# --- failing ----------------------------------------------------------------------------------------------------


def raising(error: BaseException) -> Callable[[], None]:
    def reach_too_far() -> None:
        raise error

    return reach_too_far


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("seven\nis too many"), "ValueError: seven is too many"),
        (KeyError(), "KeyError"),
        (StopIteration(3), "StopIteration: 3"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (asyncio.CancelledError("of its own"), "CancelledError: of its own"),
        (Unreadable(), "Unreadable: (its text cannot be read)"),
    ],
)
async def test_what_a_function_raises_is_a_failure(log: Log, error: BaseException, reason: str) -> None:
    assert await run(raising(error), log) == Outcome(failed=True, reason=reason)
    assert "Traceback (most recent call last)" in log.text
    assert "in reach_too_far" in log.text


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("seven"), "ValueError: seven"),
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError("of its own"), "CancelledError: of its own"),
    ],
)
async def test_what_a_coroutine_raises_is_a_failure(log: Log, error: BaseException, reason: str) -> None:
    async def reach_too_far() -> None:
        raising(error)()

    assert await run(reach_too_far, log) == Outcome(failed=True, reason=reason)
    assert "in reach_too_far" in log.text


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (object(), "not JSON"),
        (float("nan"), "not JSON"),
        ("\ud800", "not JSON"),
        (b"bytes", "not JSON"),
        ("x" * RESULT_BYTES_MAX, "longer than"),
        (nested(100_000), "nested"),
    ],
    ids=["object", "nan", "surrogate", "bytes", "long", "deep"],
)
async def test_a_return_value_that_is_no_result(log: Log, value: object, word: str) -> None:
    outcome = await run(lambda: value, log)
    assert outcome.failed
    assert not outcome.exception
    assert word in outcome.reason


@pytest.mark.parametrize(
    ("payload", "word"),
    [
        ({"call": 7}, "payload.call"),
        ({"call": ""}, "payload.call"),
        ({}, "payload.call"),
        ([], "object"),
        ({"call": "f", "arguments": [1]}, "payload.arguments"),
        ({"call": "f", "arguments": {"b": 1}}, "do not fit f"),
        ({"call": "f"}, "do not fit f"),
        ({"call": "g", "arguments": {"a": 1}}, "no callable is named “g”"),
    ],
)
async def test_a_malformed_payload_is_never_called(log: Log, payload: object, word: str) -> None:
    def f(a: int) -> None:
        raise AssertionError("called")

    definition = {"executor": "python", "payload": payload}
    outcome = await PythonExecutor({"f": f}).run(Work("g", "t", 0, "l", "c", definition), log)
    assert outcome.failed
    assert outcome.exception
    assert word in outcome.reason


# --- cancelling -------------------------------------------------------------------------------------------------


async def test_cancelling_reaches_into_a_coroutine(log: Log) -> None:
    entered, tidied = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        entered.set()
        try:
            await asyncio.sleep(600)
        finally:
            tidied.set()

    running = asyncio.create_task(run(wait, log))
    await entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert tidied.is_set()


async def test_cancelling_does_not_wait_for_a_thread(log: Log) -> None:
    entered, go_on, left = threading.Event(), threading.Event(), threading.Event()

    def wait() -> str:
        entered.set()
        go_on.wait(20)
        left.set()
        return "too late"

    running = asyncio.create_task(run(wait, log))
    while not entered.is_set():
        await asyncio.sleep(0.001)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    go_on.set()
    assert await asyncio.to_thread(left.wait, 20)


# --- registering and loading ------------------------------------------------------------------------------------


def test_a_registry() -> None:
    tasks = Registry()

    @tasks.register("double")
    def double(n: int) -> int:
        return 2 * n

    assert double(2) == 4, "what is decorated stays what it was"
    assert dict(tasks) == {"double": double}
    tasks.register("double")(double)
    with pytest.raises(InvalidSettings, match="two callables are named double"):
        tasks.register("double")(len)
    with pytest.raises(InvalidSettings, match="needs a name"):
        tasks.register("")(len)


SOURCES = {
    "with_registry": """
from taskgraph.worker.executors import Registry
tasks = Registry()
more = tasks
@tasks.register("double it")
def double(n): return 2 * n
def bystander(): ...
""",
    "plain": """
from os.path import join
import json
def double(n): return 2 * n
async def triple(n): return 3 * n
def _private(): ...
class Thing:
    @staticmethod
    def made(): ...
table = {"d": double}
wrong = {"d": 7}
number = 7
""",
    "empty": "",
    "broken": "raise RuntimeError('no luck')",
    "clashing": """
from taskgraph.worker.executors import Registry
one, two = Registry(), Registry()
one.register("same")(len)
two.register("same")(repr)
""",
}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, source in SOURCES.items():
        (tmp_path / f"taskgraph_test_{name}.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != ""])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield
    for name in SOURCES:
        sys.modules.pop(f"taskgraph_test_{name}", None)


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("with_registry", ["double it"]),
        ("with_registry:tasks", ["double it"]),
        ("with_registry:bystander", ["bystander"]),
        ("plain", ["double", "triple"]),
        ("plain:double", ["double"]),
        ("plain:table", ["d"]),
        ("plain:Thing.made", ["made"]),
    ],
)
def test_callables_are_loaded_from_the_working_directory(place: str, names: list[str]) -> None:
    loaded = load_callables(f"taskgraph_test_{place}")
    assert sorted(loaded) == names
    assert all(callable(function) for function in loaded.values())


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize(
    ("place", "word"),
    [
        ("", "neither MODULE nor"),
        (":f", "neither MODULE nor"),
        ("plain:", "neither MODULE nor"),
        ("none", "cannot be imported: ModuleNotFoundError"),
        ("broken", "cannot be imported: RuntimeError: no luck"),
        ("empty", "has no callables"),
        ("plain:nothing", "has no nothing"),
        ("plain:number", "neither a mapping"),
        ("plain:wrong", "“d” does not"),
        ("clashing", "two callables same"),
    ],
)
def test_a_place_without_callables(place: str, word: str) -> None:
    with pytest.raises(InvalidSettings, match=word):
        load_callables(f"taskgraph_test_{place}" if place not in {"", ":f"} else place)
