"""Rows and messages of this version, kept as files that later versions must be able to go on from.

    python -m tests.upgrade.keep NAME [--store STORE]

writes tests/upgrade/fixtures/VERSION/NAME.json from a graph in the state NAME; without a store, in memory, with ids and
times that are the same each time. What is written is what any program of this version may leave behind: rows of the
graph and of the indexes, messages on queues. A fixture is never edited, nor written again once its version is out; a
state that is kept later is written by the program of its version.
"""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from taskgraph.documents.canonical import document_object
from taskgraph.documents.nodes import GraphDocument
from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.settings import read_settings
from taskgraph.model import limits
from taskgraph.model.ids import GRAPH
from taskgraph.model.messages import AddTasks, RunTasks, TaskCompleted, TaskResult, to_text
from taskgraph.model.names import ALL, LEADS, LIVE, POISON
from taskgraph.storage.tables import Range, query_all
from tests.scenarios.stage import CrashError, Held, Stage, Trap, extension, graph, memory_stage
from tests.simulation.bounds import CHUNKED, IN_SEVERAL, bounded

FOLDER: Final = Path(__file__).parent / "fixtures"
VERSION: Final = "0.4"
REQUIRES: Final = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "alone": []}
WIDE: Final[Mapping[str, list[str]]] = {
    "start": [],
    **{f"part {number}": ["start"] for number in range(12)},
    "end": [f"part {number}" for number in range(12)],
}
MORE: Final[Mapping[str, list[str]]] = {"new start": ["start"], **{f"new {n}": ["new start", "end"] for n in range(9)}}

LAST: Final[Mapping[str, list[str]]] = {"last": ["new 0"]}


def plain() -> GraphDocument:
    return graph(REQUIRES, reruns={"b": 2}, metadata={"name": "Kept"}, tags={"for": "later"}, routing="kept")


async def crash_until(stage: Stage, step: Callable[..., Awaitable[Any]], there: Callable[[], Awaitable[bool]]) -> None:
    """Take a step by processes that die at their second, third … commit, until the graph stands as it should."""
    for number in range(2, 40):
        try:
            await step(stage.more_handlers(Trap(number, "before", "commit")))
        except CrashError:
            if await there():
                return
    raise AssertionError("it never stood like this")


async def submitting(stage: Stage) -> GraphDocument:
    """All rows but the last commit; the submitter has died."""
    with bounded(IN_SEVERAL):
        try:
            await stage.submit(plain(), handlers=stage.more_handlers(Trap(5, "before", "commit")))
        except CrashError:
            assert await stage.state() == "submitting"
    return plain()


async def halved(stage: Stage) -> GraphDocument:
    """Half of the rows of a wide graph: which edges its relays name depends on the version that began it."""
    with bounded(CHUNKED):
        try:
            await stage.submit(graph(WIDE), handlers=stage.more_handlers(Trap(6, "before", "commit")))
        except CrashError:
            assert await stage.state() == "submitting"
    return graph(WIDE)


async def running(stage: Stage) -> GraphDocument:
    """Completed, claimed, given back, failed before, waiting; results and work on the queues."""
    await stage.submit(plain())
    await stage.complete("a")
    await stage.fail("b", reason="broke once")
    await stage.lose(await stage.claim("alone"), certain=True)
    await stage.hand_back(await stage.claim("c"))
    held = await stage.claim("b", worker="worker-of-0.1")
    await stage.queues.send(stage.names.events, [to_text(stage.failed(held, reason="broke again", exitCode=2))])
    await stage.claim("alone", worker="gone")
    return plain()


async def reported(stage: Stage) -> GraphDocument:
    """Results as workers send them: with what they saw of the rows, several in one message, and their own name."""
    await stage.submit(plain())
    results: list[TaskResult] = []
    for label in ("a", "alone"):
        over = (await stage.row(label)).etag
        held = await stage.claim(label)
        said = stage.result(held, exitCode=0)
        etag = (await stage.row(label)).etag
        results.append(TaskResult(said.task, said.run, said.claim, said.ended, said.resolution, etag=etag, over=over))
    message = TaskCompleted(stage.graph_id, tuple(results), "worker-of-0.2")
    await stage.queues.send(stage.names.events, [to_text(message)])
    return plain()


async def waiting(stage: Stage) -> GraphDocument:
    """Just submitted: everything is on queues."""
    await stage.submit(plain())
    return plain()


async def relays(stage: Stage) -> GraphDocument:
    """A wide graph whose first relay stands ready, and whose handler has died."""
    with bounded(CHUNKED):
        await stage.submit(graph(WIDE))
        held = await stage.claim("start")

        async def ready() -> bool:
            rows = await stage.queries.partition(stage.graph_id)
            return any(row.key.startswith("fork:") and row.columns["state"] == "pending" for row in rows)

        await crash_until(stage, lambda handlers: stage.deliver(stage.completed(held), handlers=handlers), ready)
    return graph(WIDE)


async def extending(stage: Stage) -> GraphDocument:
    """An extension half way: accepted, some rows in, not linked; another one put down behind it."""
    with bounded(CHUNKED):
        await stage.submit(graph(WIDE))
        await stage.complete("start")
        await stage.stage_extension(extension(MORE), request="more")
        await stage.stage_extension(extension(LAST), request="last")

        async def half_way() -> bool:
            head = await stage.queries.request(stage.graph_id, "more")
            return head["state"] == "accepted" and int(str(head["cursor"])) > 3

        message = AddTasks(stage.graph_id, "more")
        await crash_until(stage, lambda handlers: stage.deliver(message, handlers=handlers), half_way)
    return graph(WIDE)


async def blocked(stage: Stage) -> GraphDocument:
    """A task failed for good, another one could not be run; a third still runs."""
    await stage.submit(plain())
    await stage.fail("a")
    await stage.claim("alone")
    return plain()


async def finished(stage: Stage) -> GraphDocument:
    """At its end, with old messages on the queues."""
    await stage.submit(plain())
    old = await stage.complete("a")
    await stage.work(fails={"b": 1})
    await stage.queues.send(stage.names.events, [to_text(old)])
    await stage.queues.send(
        stage.names.work("default"), [to_text(RunTasks(stage.graph_id, "default", ((stage.task_id("a"), 0),)))]
    )
    return plain()


async def poison(stage: Stage) -> GraphDocument:
    """A message that nobody can read and one of a task that never was, set aside; a third is failing."""
    await running(stage)
    await stage.queues.send(stage.names.events, ["{"])
    await stage.queues.send(stage.names.events, [to_text(stage.completed(Held("AAAAAAAAQRCGAAAAAAAAAA", 0, "claim")))])
    for _ in range(2):
        await stage.consume()
        stage.clock.advance(120)
    return plain()


STATES: Final[Mapping[str, Callable[[Stage], Awaitable[GraphDocument]]]] = {
    each.__name__: each
    for each in (submitting, halved, running, reported, waiting, relays, extending, blocked, finished, poison)
}


# --- as JSON -------------------------------------------------------------------------------------------------------


def column(value: Any) -> Any:
    return {"$time": value.isoformat()} if isinstance(value, datetime) else value


def value_of(kept: Any) -> Any:
    return datetime.fromisoformat(kept["$time"]) if isinstance(kept, dict) else kept


async def dump(
    stage: Stage, document: GraphDocument, name: str, targets: tuple[str, ...] = ("default",)
) -> dict[str, Any]:
    """What the store holds of a graph, by the ports alone."""
    partitions: dict[str, dict[str, Any]] = {}
    for partition in (stage.graph_id, LIVE, ALL, POISON, LEADS):
        rows = await query_all(stage.tables, partition, Range())
        partitions[partition] = {row.key: {each: column(value) for each, value in row.columns.items()} for row in rows}
    queues: dict[str, list[str]] = {}
    stage.clock.advance(3_600)
    for kind in ("events", "events-poison", *(f"work-{target}" for target in targets)):
        queues[kind] = []
        while found := await stage.queues.receive(
            f"{stage.names.prefix}-{kind}", count=limits.RECEIVE_MAX, lease_seconds=3_600
        ):
            queues[kind] += [each.body for each in found]
    return {
        "version": VERSION,
        "state": name,
        "store": stage.kind,
        "graph": stage.graph_id,
        "now": stage.clock.now().isoformat(),
        "bounds": CHUNKED if name in ("halved", "relays", "extending") else {},
        "added": {**MORE, **LAST} if name == "extending" else {},
        "document": document_object(document),
        "partitions": partitions,
        "queues": queues,
    }


async def kept(name: str, stage: Stage | None = None) -> dict[str, Any]:
    """The fixture of a state."""
    stage = stage or memory_stage()
    return await dump(stage, await STATES[name](stage), name)


def write(name: str, made: Mapping[str, Any]) -> Path:
    path = FOLDER / VERSION / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made, indent=1, ensure_ascii=False, sort_keys=False) + "\n", "utf-8")
    return path


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade.keep", description=__doc__)
    parser.add_argument("name", choices=[*STATES, "all"])
    parser.add_argument("--store", help="a store to make it in; the file is named after its kind then")
    options = parser.parse_args()
    for name in STATES if options.name == "all" else [options.name]:
        if options.store is None:
            print(write(name, await kept(name)))
            continue
        async with open_app(read_settings(options.store, {}, cwd=Path.cwd())) as app:
            clock = memory_stage().clock
            kind = "embedded" if app.settings.embedded else "azurite"
            stage = Stage(app.tables, app.queues, clock, kind=kind)
            assert (await app.tables.get(stage.graph_id, [GRAPH]))[0] is None, "the store must be empty"
            print(write(f"{name}-{kind}", await kept(name, stage)))


if __name__ == "__main__":
    asyncio.run(main())
