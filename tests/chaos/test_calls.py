"""Each request of a short life goes wrong in each way, over the real SDK and the real emulator; all end well.

The k-th request of a life is the one that fails, for every k: the process dies before it is sent or after it was done,
its answer is lost, or it is done and answered with an error. The dead are followed by another process.
"""

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import pytest

from tests.chaos.life import Life, Story, verdict
from tests.chaos.transport import Killed, Plan

pytestmark = pytest.mark.azurite

_AT_A_TIME: Final = 12
_READING: Final = ("kill-before", "drop")
_WRITING: Final = ("kill-before", "kill-after", "drop", "503")


def task(*requires: str, reruns: int = 0) -> dict[str, Any]:
    return {"requires": list(requires), "reruns": reruns, "task": {"payload": {"call": "work"}}}


def pair() -> Story:
    return Story({"tasks": {"a": task(), "b": task("a")}})


def chain() -> Story:
    return Story({"tasks": {"a": task(), "b": task("a"), "c": task("b")}})


def diamond() -> Story:
    return Story({"tasks": {"a": task(), "b": task("a"), "c": task("a"), "d": task("b", "c")}})


def rerun() -> Story:
    return Story({"tasks": {"a": task(reruns=1), "b": task("a")}}, fails={"a": 1})


def extended() -> Story:
    return Story({"tasks": {"a": task(), "b": task("a")}}, extension={"tasks": {"c": task("a"), "d": task("c")}})


STORIES: Final = {"pair": pair, "chain": chain, "diamond": diamond, "rerun": rerun, "extended": extended}


async def played(connection: str, name: str, plan: Plan | None) -> tuple[list[bool], Counter[str]]:
    """One life with this fault, and if it was deadly another one without; both to a good end.

    Gives which requests of the first life only read, and what was met.
    """
    story, prefix = STORIES[name](), f"c{secrets.token_hex(6)}"
    told: Counter[str] = Counter()
    async with contextlib.AsyncExitStack() as stack:

        def life(plan: Plan | None = None) -> Life:
            made = Life(connection, prefix, story, plan)
            stack.push_async_callback(made.close)
            return made

        first = life(plan)
        try:
            await first.live()
        except Killed:
            told["killed"] += 1
            await life().live()
        told["hit"] += bool(first.transport.hit)
        reading = list(first.transport.reading)
        told += await verdict(life(), story)
    return reading, told


async def all_of(connection: str, name: str, plans: Iterable[Plan]) -> Counter[str]:
    """Play them side by side, each in an installation of its own: they mostly wait for leases."""
    gate = asyncio.Semaphore(_AT_A_TIME)
    told: Counter[str] = Counter()

    async def one(plan: Plan) -> None:
        async with gate:
            try:
                _, more = await played(connection, name, plan)
            except Exception as error:
                raise AssertionError(f"{name}: request {plan.at}, {plan.kind}: {error!r}") from error
            told.update(more)
            told["lives"] += 1

    async with asyncio.TaskGroup() as group:
        for plan in plans:
            group.create_task(one(plan))
    return told


async def plans_for(connection: str, name: str) -> list[Plan]:
    """Every request of a life without faults, with every fault that differs there."""
    requests, told = await played(connection, name, None)
    assert not told["lost"], "the life without faults has lost a run: leases are too short for this machine"
    return [
        Plan(at=number, kind=kind)
        for number, reading in enumerate(requests, 1)
        for kind in (_READING if reading else _WRITING)
    ]


async def test_each_request_of_two_tasks_fails_in_each_way(azurite: str) -> None:
    plans = await plans_for(azurite, "pair")
    told = await all_of(azurite, "pair", plans)
    assert told["lives"] == len(plans) > 100
    assert told["hit"] > 0.9 * len(plans)
    assert told["killed"] > 50
    assert told["lost"], "no run was lost to a dead worker"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(STORIES))
async def test_each_request_of_every_story_fails_in_each_way(azurite: str, name: str) -> None:
    plans = await plans_for(azurite, name)
    told = await all_of(azurite, name, plans)
    print(f"{name}: {dict(told)}")
    assert told["lives"] == len(plans)
    assert told["hit"] > 0.9 * len(plans)
