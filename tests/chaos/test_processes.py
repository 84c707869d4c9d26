"""Real processes that are killed, stopped for longer than their leases, or whose clocks are wrong by minutes."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from taskgraph.model import limits
from tests.chaos.crew import LEASE_SECONDS, Crew, crew
from tests.chaos.processes import Child, Zygote
from tests.chaos.transport import Plan

pytestmark = pytest.mark.azurite


def task(*requires: str, seconds: float = 0.0) -> dict[str, Any]:
    definition = {"payload": {"call": "work", "arguments": {"seconds": seconds}}}
    return {"requires": list(requires), "task": definition}


CHAIN: Final = {"tasks": {"a": task(), "b": task("a", seconds=1.0), "c": task("b")}}
FAN: Final = {
    "tasks": {
        "start": task(),
        **{f"part {n}": task("start", seconds=0.05) for n in range(8)},
        "end": task(*(f"part {n}" for n in range(8))),
    }
}


async def until(condition: Callable[[], Any], what: str) -> Any:
    async with asyncio.timeout(60):
        while not (found := condition()):
            await asyncio.sleep(0.02)
    return found


def begun(crew_: Crew, label: str) -> list[dict[str, Any]]:
    return [line for line in crew_.executed() if line["label"] == label and line["what"] == "begin"]


def ended(crew_: Crew, label: str, run: int) -> list[dict[str, Any]]:
    return [
        line for line in crew_.executed() if line["label"] == label and line["run"] == run and line["what"] == "end"
    ]


def of(line: dict[str, Any], *children: Child) -> Child:
    return next(child for child in children if child.pid == line["pid"])


async def test_what_a_killed_worker_had_is_done_by_another(azurite: str, tmp_path: Path) -> None:
    async with crew(azurite, tmp_path) as it:
        assert (await it.submit("g", CHAIN)).status == 0
        await it.serve()
        first = await it.work()
        await until(lambda: begun(it, "b"), "b begins")
        it.zygote.signal(first, signal.SIGKILL)
        await first.gone.wait()
        assert first.killed
        await it.work()
        tasks = await it.judged("g", CHAIN)
        assert tasks["b"].columns["run"] >= 1
        assert not ended(it, "b", 0)
        await it.end()


async def test_a_worker_that_was_stopped_wakes_up_and_is_not_believed(azurite: str, tmp_path: Path) -> None:
    """It goes on with its run, ends it and reports it: too late, for another has done the next run."""
    async with crew(azurite, tmp_path) as it:
        assert (await it.submit("g", CHAIN)).status == 0
        await it.serve()
        zombie = await it.work()
        await until(lambda: begun(it, "b"), "b begins")
        it.zygote.signal(zombie, signal.SIGSTOP)
        healthy = await it.work()
        tasks = await it.judged("g", CHAIN)
        last = tasks["b"].columns["run"]
        assert last >= 1
        assert of(ended(it, "b", last)[0], zombie, healthy) is healthy
        assert not ended(it, "b", 0)
        it.zygote.signal(zombie, signal.SIGCONT)
        # Whether its executor ends before its keeper finds the run taken over is chance; it must end in peace.
        await asyncio.sleep(LEASE_SECONDS / 2)
        again = await it.judged("g", CHAIN)
        assert {label: row.etag for label, row in again.items()} == {label: row.etag for label, row in tasks.items()}
        await it.end()
        assert zombie.status == 0


@pytest.mark.campaign
async def test_a_handler_that_was_stopped_with_messages_in_hand_changes_nothing_when_it_wakes(
    azurite: str, tmp_path: Path
) -> None:
    async with crew(azurite, tmp_path) as it:
        assert (await it.submit("g", FAN)).status == 0
        # Its first commit comes late, so that it is stopped between reading and writing.
        zombie = await it.serve()
        await it.work()
        await until(
            lambda: any(line["what"] == "take" and line["pid"] == zombie.pid for line in it.requests()), "taken"
        )
        it.zygote.signal(zombie, signal.SIGSTOP)
        healthy = await it.serve()
        tasks = await it.judged("g", FAN)
        it.zygote.signal(zombie, signal.SIGCONT)
        await asyncio.sleep(LEASE_SECONDS / 2)
        again = await it.judged("g", FAN)
        assert {label: row.etag for label, row in again.items()} == {label: row.etag for label, row in tasks.items()}
        await it.end()
        assert zombie.status == healthy.status == 0


async def test_a_submitter_that_is_killed_is_followed_by_the_same_command(azurite: str, tmp_path: Path) -> None:
    wide = {"tasks": {f"part {n}": task() for n in range(2 * limits.COMMIT_CHANGES_MAX)}}
    async with crew(azurite, tmp_path) as it:
        await it.serve()
        await it.work()
        assert (await it.submit("first", FAN)).status == 0  # it makes tables and queues, which would shift the numbers
        # It is listed, and not there; it has started, and no task is sent.
        for graph_id, kind in (("before", "kill-before"), ("after", "kill-after")):
            assert (await it.submit(graph_id, FAN, plan=Plan(at=5, kind=kind))).killed
        # The row of the graph is written; its tasks are not; it has started, and not every task is sent.
        for number, kind in ((5, "kill-after"), (8, "kill-before"), (12, "kill-after")):
            assert (await it.submit("wide", wide, plan=Plan(at=number, kind=kind))).killed
        for graph_id, document in (("before", FAN), ("after", FAN), ("wide", wide)):
            assert (await it.submit(graph_id, document)).status == 0
            tasks = await it.judged(graph_id, document)
            assert {row.columns["run"] for row in tasks.values()} == {0}
        await it.end()


async def test_processes_whose_clocks_are_wrong_by_minutes(azurite: str, tmp_path: Path) -> None:
    """Leases end early in their eyes, or late: runs may be given up for nothing, and never counts more than one."""
    async with crew(azurite, tmp_path) as it:
        assert (await it.submit("g", FAN, ahead=-200)).status == 0
        for ahead in (120, -150):
            await it.serve(ahead=ahead)
            await it.work(ahead=-ahead)
        await it.judged("g", FAN)
        await it.end()
        assert {child.status for child in it.children} == {0}


async def test_all_processes_end_with_the_one_that_started_them(azurite: str, tmp_path: Path) -> None:
    async with crew(azurite, tmp_path) as it:
        children = [await it.serve(), await it.work()]
        it.zygote.signal(children[0], signal.SIGSTOP)
        await it.zygote.close()
        for child in children:
            await child.gone.wait()


@pytest.mark.slow
@pytest.mark.parametrize("role", ["submit", "serve", "worker"])
async def test_each_request_of_each_process_fails_in_each_way(azurite: str, tmp_path: Path, role: str) -> None:
    """A real process fails at its request k, for each k that it makes while a graph of three runs to its end."""
    chain = {"tasks": {"a": task(), "b": task("a"), "c": task("b")}}
    zygote = await Zygote.start(azurite)
    gate = asyncio.Semaphore(6)
    killed = 0

    async def one(number: int, kind: str) -> None:
        nonlocal killed
        async with gate:
            it = Crew(zygote, azurite, tmp_path)
            plan = Plan(at=number, kind=kind, record=str(it.folder / "requests"))
            if (await it.submit("g", chain, plan=plan if role == "submit" else None)).status != 0:
                assert (await it.submit("g", chain)).status == 0
            unlucky = [await it.serve(plan=plan)] if role == "serve" else []
            unlucky += [await it.work(plan=plan)] if role == "worker" else []
            await it.serve()
            await it.work()
            await it.judged("g", chain)
            await it.end()
            killed += any(child.killed for child in it.children)

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(1, 31):
                for kind in ("kill-before", "kill-after", "drop", "503"):
                    group.create_task(one(number, kind))
    finally:
        await zygote.close()
    print(f"{role}: {killed} of 60 were killed at their request")
    assert killed > 20  # of a chain: the fewest requests are those of its submission, eleven, with tables that it makes
