"""The choice of an executor, and the executors that start nothing."""

from datetime import UTC, datetime
from typing import Any

import pytest

from taskgraph.model import limits
from taskgraph.model.clock import SystemClock
from taskgraph.model.errors import InvalidSettings
from taskgraph.worker.executors import (
    Executors,
    NoopExecutor,
    Outcome,
    SleepExecutor,
    Work,
    built_in,
    executor_name_of,
)
from taskgraph.worker.executors.contract import failed, one_line


class ManualClock:
    """A clock whose sleeps end at once and are remembered."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def new_id(self) -> str:
        raise AssertionError("an executor needs no id")

    def jitter(self) -> float:
        raise AssertionError("an executor needs no chance")


def work(definition: dict[str, Any]) -> Work:
    return Work("graph-1", "AAAAAAAAQAAAAAAAAAAAAA", 0, "label", "claim-1", definition)


async def no_log(data: bytes) -> None:
    raise AssertionError(f"nothing should be logged, and {data!r} was")


@pytest.mark.parametrize(
    ("definition", "name"),
    [
        ({}, "noop"),
        ({"payload": {}}, "noop"),
        ({"payload": None}, "noop"),
        ({"payload": {"command": ["true"]}}, "command"),
        ({"payload": {"call": "f"}}, "python"),
        ({"payload": {"command": ["true"], "call": "f"}}, "command"),
        ({"executor": "sleep", "payload": {"command": ["true"]}}, "sleep"),
        ({"executor": "docker"}, "docker"),
        ({"executor": 7}, ""),
        ({"payload": {"image": "debian"}}, ""),
        ({"payload": ["true"]}, ""),
        ({"payload": "true"}, ""),
        ({"payload": []}, ""),
    ],
)
def test_the_executor_of_a_definition(definition: dict[str, Any], name: str) -> None:
    assert executor_name_of(definition) == name


def test_a_worker_says_why_it_cannot_run_a_task() -> None:
    executors = built_in(ManualClock())
    assert sorted(executors) == ["command", "noop", "sleep"]
    assert [name for name, executor in executors.items() if executor.instant] == ["noop"]
    assert executors.why_not({}) is None
    assert executors.why_not({"payload": {"command": ["true"]}}) is None
    assert "no executor understands" in (executors.why_not({"payload": {"image": "debian"}}) or "")
    assert "“python”" in (executors.why_not({"payload": {"call": "f"}}) or "")
    assert "did you mean “sleep”" in (executors.why_not({"executor": "slep"}) or "")


def test_callables_decide_what_the_python_executor_can_run() -> None:
    executors = built_in(ManualClock(), callables={"resize": len})
    assert executors.why_not({"payload": {"call": "resize"}}) is None
    assert "did you mean “resize”" in (executors.why_not({"payload": {"call": "resise"}}) or "")
    assert executors.why_not({"executor": "python", "payload": {"call": 7}}) is None, "its run tells what is malformed"


async def test_an_override_runs_every_task() -> None:
    executors = built_in(ManualClock(), override="noop")
    for definition in ({"payload": {"command": ["false"]}}, {"executor": "docker"}, {"payload": ["?"]}):
        assert executors.why_not(definition) is None
        assert await executors.choose(definition).run(work(definition), no_log) == Outcome(failed=False)


def test_an_unknown_override_and_a_double_name_are_refused() -> None:
    with pytest.raises(InvalidSettings, match=r"“nope”.*command, docker, expand, http, kubernetes, noop, sleep"):
        built_in(ManualClock(), override="nope")
    with pytest.raises(InvalidSettings, match="two executors are named noop"):
        Executors([NoopExecutor(), NoopExecutor()])


async def test_sleeping_is_the_clocks_and_scaled() -> None:
    clock = ManualClock()
    outcome = await SleepExecutor(clock, time_scale=0.5).run(work({"payload": {"seconds": 3600}}), no_log)
    assert outcome == Outcome(failed=False)
    assert clock.slept == [1800.0]


@pytest.mark.parametrize("seconds", [None, "1", True, -1, 10**400, float("inf"), float("nan")])
async def test_a_malformed_sleep_never_starts(seconds: object) -> None:
    clock = ManualClock()
    outcome = await SleepExecutor(clock).run(work({"payload": {"seconds": seconds}}), no_log)
    assert outcome.failed
    assert outcome.exception
    assert "payload.seconds" in outcome.reason
    assert clock.slept == []


@pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf")])
def test_a_time_scale_must_make_sense(scale: float) -> None:
    with pytest.raises(InvalidSettings):
        SleepExecutor(SystemClock(), time_scale=scale)


def test_a_reason_is_one_storable_line() -> None:
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line("\ud800") == "?"
    assert one_line("x" * limits.REASON_CHARS_MAX) == "x" * limits.REASON_CHARS_MAX
    reason = failed("x" * 5_000).reason
    assert len(reason) == limits.REASON_CHARS_MAX
    assert reason.endswith("…")
