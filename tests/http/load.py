"""What looking costs: a graph of many tasks with and without followers; and how fast single requests are answered.

    python -m tests.http.load [--tasks 10000] [--streams 500] [--polls 200] [--rounds 3] [--only-work]

With it, what workers over HTTP cost: claims, and 1,000 tasks in ten layers by two workers.

The server is a process of its own (`serve --worker 2 --http 0 --no-auth`, embedded store); the clients share another.
"""

import argparse
import asyncio
import functools
import gzip
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp

LAYERS: Final = 10


def layers(tasks: int, target: str = "default") -> dict[str, Any]:
    """Layers of tasks that do nothing, each a group that the next requires."""
    width = tasks // LAYERS
    groups = {f"layer {layer}": {"tasks": [f"{layer}/{number}" for number in range(width)]} for layer in range(LAYERS)}
    made = {
        f"{layer}/{number}": {
            "requires": [f"layer {layer - 1}"] if layer else [],
            "task": {"executor": "noop", "target": target},
        }
        for layer in range(LAYERS)
        for number in range(width)
    }
    return {"groups": groups, "tasks": made}


@asynccontextmanager
async def server() -> AsyncIterator[tuple[str, int]]:
    """Address and process id."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("TASKGRAPH_")}
        environ = {**kept, "TASKGRAPH_STORE": f"sqlite:///{folder}/store.db"}
        typed = [sys.executable, "-m", "taskgraph", "serve", "--worker", "2", "--http", "0", "--no-auth"]
        process = await asyncio.create_subprocess_exec(*typed, env=environ, stderr=subprocess.PIPE, cwd=folder)
        assert process.stderr is not None
        said = (await process.stderr.readline()).decode()
        found = re.search(r"http://\S+/api/v1", said)
        assert found, said
        try:
            yield found[0], process.pid
        finally:
            process.terminate()
            await process.communicate()


async def follow(session: aiohttp.ClientSession, address: str, seen: list[bytes]) -> None:
    """Keeps what it gets: 500 of them that unpacked it meanwhile would take more of the machine than any server."""
    async with session.get(f"{address}/graphs/g/events", headers={"Accept": "text/event-stream"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        seen.append(await answer.read())


def events_of(stream: bytes) -> int:
    return gzip.decompress(stream).count(b"\ndata: ")


async def poll(session: aiohttp.ClientSession, address: str) -> None:
    """Reads what it gets by its end alone: 200 of them that took it apart would be slower than any server."""
    cursor = "0"
    while True:
        async with session.get(f"{address}/graphs/g/events?since={cursor}&wait=20&limit=10000") as answer:
            last = (await answer.read()).rpartition(b'"cursor":"')[2]
        if b'"' not in last or b'"graph-finished"' in last:
            return
        cursor = last.partition(b'"')[0].decode()


async def run(tasks: int, streams: int, polls: int) -> tuple[float, float]:
    """Seconds that the tasks take, and of CPU of the server. Who looks has begun before the first of them."""
    async with (
        server() as (address, pid),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False) as raw,
    ):
        wait = {"tasks": {"first": {"task": {"target": "later", "executor": "noop"}}}}
        async with session.put(f"{address}/graphs/warm", json=wait) as answer:
            assert answer.status == 201
        document = layers(tasks)
        document["groups"]["layer 0"]["active"] = False
        async with session.put(f"{address}/graphs/g", json=document) as answer:
            assert answer.status == 201, await answer.text()
        seen: list[bytes] = []
        followers = [asyncio.create_task(follow(raw, address, seen)) for _ in range(streams)]
        pollers = [asyncio.create_task(poll(session, address)) for _ in range(polls)]
        await asyncio.sleep(3.0)
        cpu = seconds_of(pid)
        change = {"change": "resume", "group": "layer 0"}
        async with session.post(f"{address}/graphs/g/changes?unguarded=1", json=change) as answer:
            assert answer.status == 202, await answer.text()
        while True:
            async with session.get(f"{address}/graphs/g") as answer:
                status = await answer.json()
            if status["state"] == "finished":
                break
            await asyncio.sleep(0.1)
        spent = seconds_of(pid) - cpu
        async with session.get(f"{address}/graphs/g/events?where.event=graph-resumed") as answer:
            (resumed,) = (await answer.json())["events"]
        # By the server: the clients may be late to see it.
        began, ended = (datetime.fromisoformat(text) for text in (resumed["time"], status["ended"]))
        took = (ended - began).total_seconds()
        await asyncio.gather(*followers)
        for each in pollers:
            each.cancel()
            with suppress(asyncio.CancelledError):
                await each
        counted = set(map(events_of, seen))
        assert len(counted) <= 1, f"followers saw {counted} events"
        return took, spent


def seconds_of(pid: int) -> float:
    """CPU of a process so far."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def latency(count: int, ask: Callable[[int], Awaitable[Any]], at_once: int) -> tuple[float, float, float]:
    """Requests a second, median and 99th percentile in milliseconds."""
    times: list[float] = []
    numbers = iter(range(count))

    async def one() -> None:
        for number in numbers:
            began = time.monotonic()
            await ask(number)
            times.append(time.monotonic() - began)

    began = time.monotonic()
    await asyncio.gather(*(one() for _ in range(at_once)))
    rate = count / (time.monotonic() - began)
    ordered = sorted(times)
    return rate, 1_000 * statistics.median(ordered), 1_000 * ordered[int(len(ordered) * 0.99)]


async def requests() -> None:
    document = {"tasks": {"a": {"task": {"executor": "noop"}}, "b": {"requires": ["a"], "task": {"executor": "noop"}}}}
    async with server() as (address, _), aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def submit(number: int) -> None:
            async with session.put(f"{address}/graphs/s-{number}", json=document) as answer:
                assert answer.status == 201
                await answer.read()

        async def look(path: str, number: int) -> None:
            async with session.get(f"{address}{path.format(number % 100)}") as answer:
                assert answer.status == 200
                await answer.read()

        print("| request | at once | a second | median | p99 |\n|---|---:|---:|---:|---:|")
        for name, count, ask in (
            ("submit 2 tasks", 500, submit),
            ("status", 2_000, lambda number: look("/graphs/s-{}", number)),
            ("tasks", 2_000, lambda number: look("/graphs/s-{}/tasks", number)),
            ("list of 50 graphs", 300, lambda number: look("/graphs", number)),
        ):
            for at_once in (1, 8) if ask is not submit else (8,):
                rate, median, late = await latency(count, ask, at_once)
                print(f"| {name} | {at_once} | {rate:,.0f} | {median:.1f} ms | {late:.1f} ms |", flush=True)


async def claims() -> None:
    """Of one task each, by workers that have the target to themselves; no task is ready for those of the last line."""
    ready = {"tasks": {f"t{number}": {"task": {"executor": "noop", "target": "far"}} for number in range(2_000)}}
    async with server() as (address, _), aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        async with session.put(f"{address}/graphs/g", json=ready) as answer:
            assert answer.status == 201

        async def claim(number: int, target: str = "far") -> None:
            body = {"worker": f"w-{number % 8}"}
            async with session.post(f"{address}/targets/{target}:claim", json=body) as answer:
                assert answer.status == 200, await answer.text()
                assert len((await answer.json())["tasks"]) == (target == "far")

        print("| claims | at once | a second | median | p99 |\n|---|---:|---:|---:|---:|")
        for name, count, at_once, target in (
            ("a task", 480, 1, "far"),
            ("a task", 480, 8, "far"),
            ("nothing there", 500, 8, "none"),
        ):
            ask = functools.partial(claim, target=target)
            rate, median, late = await latency(count, ask, at_once)
            print(f"| {name} | {at_once} | {rate:,.0f} | {median:.1f} ms | {late:.1f} ms |", flush=True)


async def work(slots: int, workers: int = 2, tasks: int = 1_000) -> None:
    """Tasks a second, and requests a task, of workers that report with their next claim."""
    async with server() as (address, _), aiohttp.ClientSession() as session:
        async with session.put(f"{address}/graphs/g", json=layers(tasks, "far")) as answer:
            assert answer.status == 201
        given = requests = 0

        async def worker(number: int) -> None:
            nonlocal given, requests
            done: list[dict[str, str]] = []
            while given < tasks or done:
                body = {"worker": f"w-{number}", "slots": slots, "done": done, "wait": float(given < tasks)}
                async with session.post(f"{address}/targets/far:claim", json=body) as answer:
                    found = await answer.json()
                    assert answer.status == 200, found
                requests += 1
                given += len(found["tasks"])
                assert not any(each["stale"] for each in found["done"])
                done = [{"claim": each["claim"], "end": "completed"} for each in found["tasks"]]

        began = datetime.now(UTC)
        await asyncio.gather(*map(worker, range(workers)))
        async with session.get(f"{address}/graphs/g/events?where.event=graph-finished") as answer:
            (end,) = (await answer.json())["events"]
        took = (datetime.fromisoformat(end["time"]) - began).total_seconds()  # a worker may wait for more until later
        print(f"| {slots} | {tasks / took:,.0f} | {requests / tasks:.3f} |", flush=True)


async def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--polls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only-work", action="store_true")
    options = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4_096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    await claims()
    print("\n| slots of each of two workers | tasks a second | requests a task |\n|---:|---:|---:|")
    for slots in (1, 4, 20, 100):
        await work(slots)
    if options.only_work:
        return
    await requests()
    print("\n| followers | long polls | seconds | CPU of the server |\n|---:|---:|---:|---:|")
    kinds = [(0, 0), (options.streams, options.polls)]
    found: dict[tuple[int, int], list[tuple[float, float]]] = {each: [] for each in kinds}
    for _ in range(options.rounds):
        for each in kinds:  # in turns, as the machine is not quiet
            found[each].append(await run(options.tasks, *each))
    for each in kinds:
        took, spent = (statistics.median(column) for column in zip(*found[each], strict=True))
        print(f"| {each[0]} | {each[1]} | {took:.2f} | {spent:.2f} |")
    print(json.dumps({str(key): value for key, value in found.items()}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
