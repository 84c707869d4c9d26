"""Rows and messages of an older minor version are served by a newer one, and back (P23); a higher major is left alone.

The fixtures are what an older version has left: see `tests/upgrade/keep.py`. Today's program takes each to its right
end. A "newer minor" is today's program whose rows, messages and events hold more than today's knows; it and today's
take turns on one graph, and nothing that the newer one wrote is lost.
"""

import contextlib
import json
import re
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.engine.commit import Records
from taskgraph.engine.doctor import examine_graph
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.sweep import sweep
from taskgraph.model.columns import Value
from taskgraph.model.ids import GRAPH, row_key
from taskgraph.model.messages import to_text
from taskgraph.model.names import POISON
from taskgraph.protocol.invariants.findings import Severity
from taskgraph.protocol.rows import SCHEMA_MAX
from taskgraph.storage.azure.account import AzureStore
from taskgraph.storage.sqlite.store import EmbeddedStore
from taskgraph.storage.tables import Change, Insert, Merge, Page, Range, Row, Tables, query_all
from taskgraph.testing import HurriedClock, MemoryQueues, MemoryTables
from tests.scenarios.stage import LOCAL, Stage
from tests.simulation.bounds import bounded
from tests.upgrade.keep import FOLDER, STATES, VERSION, kept, value_of

FIXTURES: Final = sorted(FOLDER.glob("*/*.json"))
NAMES: Final = [f"{path.parent.name}-{path.stem}" for path in FIXTURES]
MORE: Final[dict[str, Value]] = {
    "colour": "green \u202e",
    "weight": 7,
    "since": datetime.fromisoformat("2031-01-01T00:00:00+00:00"),
}


def test_there_is_a_fixture_of_every_state() -> None:
    stems = {path.stem for path in FIXTURES}
    assert set(STATES) <= stems
    for kind in ("embedded", "azurite"):
        assert {f"running-{kind}", f"reported-{kind}"} <= stems, "from real stores too"


@pytest.mark.parametrize("name", STATES)
async def test_the_fixtures_of_this_version_are_what_it_leaves(name: str) -> None:
    """So that a change of rows or messages is seen here; then the version goes up, and a new set is kept."""
    path = FOLDER / VERSION / f"{name}.json"
    assert numbered(json.loads(path.read_text("utf-8"))) == numbered(await kept(name))


def numbered(state: Any) -> Any:
    """With operations by their number in the order of the text: which ids a clock gave before is no part of a row."""
    known: dict[str, str] = {}
    text = json.dumps(state, sort_keys=True)
    return json.loads(
        re.sub(r'(?<="operation": )"[^"]+"', lambda each: known.setdefault(each[0], str(len(known))), text)
    )


# --- a store that goes on from a fixture ---------------------------------------------------------------------------


class NewerMinor:
    """A table as a newer minor version writes it: each row says when, in a column that today's has not."""

    def __init__(self, inner: Tables) -> None:
        self.inner = inner
        self.wrote: dict[tuple[str, str], str] = {}
        self._count = 0

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        return await self.inner.get(partition, keys)

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        return await self.inner.query(partition, rows, limit=limit, continuation=continuation)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        more: list[Change] = []
        wrote: dict[tuple[str, str], str] = {}
        for change in changes:
            self._count += 1
            mark = f"mark {self._count}"
            match change:
                case Insert(key, columns):
                    more.append(Insert(key, {**columns, "mark": mark}))
                    wrote[partition, key] = mark
                case Merge(key, etag, columns):
                    more.append(Merge(key, etag, {**columns, "mark": mark}))
                    wrote[partition, key] = mark
                case _:
                    more.append(change)
        etags = await self.inner.commit(partition, more)
        self.wrote |= wrote
        return etags


def more_of(body: str) -> str:
    """The message as a newer minor version sends it."""
    try:
        found = json.loads(body)
    except ValueError:
        return body
    for entry in found.get("tasks", []):
        entry["hint"] = {"seen": [1, None, "\u202e"]}
        if "resolution" in entry:
            entry["resolution"]["cost"] = {"cents": 3}
    return json.dumps({"trace": "00-4bf92f", **found, "priority": 3})


async def load(stage: Stage, kept_state: dict[str, Any], *, newer: bool = False) -> None:
    for partition, rows in kept_state["partitions"].items():
        changes: list[Insert] = []
        for key, columns in rows.items():
            row = {name: value_of(value) for name, value in columns.items()}
            if newer:
                row |= MORE
                if key.startswith("event:"):
                    row["events"] = json.dumps(
                        [*json.loads(str(row["events"])), {"event": "task-admired", "by": ["x"]}]
                    )
            changes.append(Insert(key, row))
        for start in range(0, len(changes), 50):
            await stage.tables.commit(partition, changes[start : start + 50])
    for kind, bodies in kept_state["queues"].items():
        for body in bodies:
            await stage.queues.send(f"{stage.names.prefix}-{kind}", [more_of(body) if newer else body])
    stage._know({**kept_state["document"]["tasks"], **kept_state["added"]})


@contextlib.asynccontextmanager
async def opened(kind: str, path: Path, kept_state: dict[str, Any], *, newer: bool = False) -> AsyncIterator[Stage]:
    """A stage an hour after the older version left."""
    clock = HurriedClock(datetime.fromisoformat(kept_state["now"]) + timedelta(hours=1))
    embedded = EmbeddedStore(path / "store.db", clock) if kind == "embedded" else None
    tables: Tables = embedded.tables("taskgraph") if embedded else MemoryTables()
    stage = Stage(tables, embedded.queues() if embedded else MemoryQueues(clock), clock, kind=kind)
    stage.graph_id = kept_state["graph"]
    await load(stage, kept_state, newer=newer)
    with bounded(kept_state["bounds"]):
        yield stage
    if embedded:
        await embedded.close()


async def to_its_end(stage: Stage, kept_state: dict[str, Any], *turns: Handlers) -> None:
    """Do what a user would: submit again what was cut off, serve and work, rerun what failed for good."""
    turns = turns or (stage.handlers,)
    if kept_state["state"] in ("submitting", "halved"):
        await stage.submit(document_from_object(kept_state["document"]), handlers=turns[0])
    for number in range(400):
        stage.handlers = turns[number % len(turns)]
        await stage.consume()
        await work_once(stage)
        swept = await sweep(stage.handlers)
        assert swept.failed == []
        stage.clock.advance(61)
        state = await stage.state()
        if state == "finished":
            break
        if state == "blocked" and number % 5 == 4:
            for label, each in (await stage.states()).items():
                if each in ("failed", "exception"):
                    await stage.rerun(label)
    assert await stage.state() == "finished", await stage.states()
    stage.handlers = turns[0]
    await stage.consume()
    requires = {label: node.get("requires", []) for label, node in kept_state["document"]["tasks"].items()}
    await stage.check({**requires, **kept_state["added"]})
    found = await examine_graph(stage.handlers, stage.poison, stage.graph_id)
    assert [each.text for each in found.findings if each.severity is Severity.WRONG] == []


async def work_once(stage: Stage) -> None:
    """One look of a worker at its queue, by today's reading of messages; results go through the events queue."""
    queue = stage.names.work("default")
    deliveries = await stage.queues.receive(queue, count=4, lease_seconds=30)
    for delivery in deliveries:
        message = await stage.poison.read(delivery, lambda _: "")
        if message is None:
            continue
        await stage._execute(list(getattr(message, "tasks", ())), {})
        await stage.queues.delete(delivery)


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def poisoned(kept_state: dict[str, Any]) -> set[str]:
    return {key for key, row in kept_state["partitions"][POISON].items() if row["state"] == "poison"}


# --- an older minor, a newer minor, and both -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", LOCAL)
@pytest.mark.parametrize("path", FIXTURES, ids=NAMES)
async def test_what_an_older_version_left_comes_to_its_end(path: Path, kind: str, tmp_path: Path) -> None:
    kept_state = read(path)
    async with opened(kind, tmp_path, kept_state) as stage:
        await to_its_end(stage, kept_state)
        keys = {each.key for each in await stage.poison.list()}
        assert poisoned(kept_state) <= keys, "what was set aside stays for people to see"
        if kept_state["state"] != "poison":
            assert keys == set()
        assert (await stage.queries.status(stage.graph_id)).metadata == kept_state["document"].get("metadata", {})


@pytest.mark.parametrize("kind", LOCAL)
@pytest.mark.parametrize("path", FIXTURES, ids=NAMES)
async def test_what_a_newer_minor_left_comes_to_its_end(path: Path, kind: str, tmp_path: Path) -> None:
    """Columns, keys of messages and kinds of events that nobody here knows: all of it is served, and kept (S14)."""
    kept_state = read(path)
    async with opened(kind, tmp_path, kept_state, newer=True) as stage:
        await to_its_end(stage, kept_state)
        for partition, rows in kept_state["partitions"].items():
            for row in await query_all(stage.tables, partition, Range()):
                if row.key in rows:
                    assert {name: row.columns.get(name) for name in MORE} == MORE, (partition, row.key)
        events = await stage.queries.events(stage.graph_id)
        before = [key for key in kept_state["partitions"][stage.graph_id] if key.startswith("event:")]
        assert sum(each.kind == "task-admired" for each in events) == len(before)


@pytest.mark.parametrize("first", ["newer", "older"])
@pytest.mark.parametrize("path", FIXTURES, ids=NAMES)
async def test_both_take_turns(path: Path, first: str, tmp_path: Path) -> None:
    """Half of the writes are a newer minor's, half today's; the last word of the newer one stands on every row."""
    kept_state = read(path)
    async with opened("memory", tmp_path, kept_state, newer=True) as stage:
        newer = NewerMinor(stage.tables)
        turns = [Handlers(Records(newer, stage.clock), stage.queues, stage.clock, stage.names), stage.handlers]
        await to_its_end(stage, kept_state, *(turns if first == "newer" else reversed(turns)))
        assert newer.wrote or kept_state["state"] == "finished"
        for (partition, key), mark in newer.wrote.items():
            (row,) = await stage.tables.get(partition, [key])
            assert row is None or row.columns["mark"] == mark, (partition, key)


@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
async def test_the_end_of_a_run_is_a_time_whichever_version_wrote_it(version: str, tmp_path: Path) -> None:
    """It was a text on the row before 0.3."""
    kept_state = read(FOLDER / version / "finished.json")
    written = [row["ended"] for key, row in kept_state["partitions"]["graph"].items() if key.startswith("task:")]
    assert {type(each) for each in written} == {dict if version == "0.3" else str}
    async with opened("memory", tmp_path, kept_state) as stage:
        ended = {task.ended for task in await stage.queries.tasks(stage.graph_id)}
        assert ended == {datetime.fromisoformat("2024-01-01T00:00:00+00:00")}


async def test_results_with_more_in_them_are_kept_whole(tmp_path: Path) -> None:
    """What a newer worker says of a run stands on the row, for whoever understands it."""
    kept_state = read(FOLDER / VERSION / "waiting.json")
    async with opened("memory", tmp_path, kept_state) as stage:
        body = more_of(to_text(stage.completed(await stage.claim("a"))))
        await stage.queues.send(stage.names.events, [body])
        await stage.consume()
        assert json.loads(str((await stage.row("a")).columns["resolution"]))["cost"] == {"cents": 3}


# --- a higher major ------------------------------------------------------------------------------------------------


async def set_schema(stage: Stage, key: str, schema: int = SCHEMA_MAX + 1) -> None:
    (row,) = await stage.tables.get(stage.graph_id, [key])
    assert row is not None
    await stage.tables.commit(stage.graph_id, [Merge(key, row.etag, {"schema": schema})])


@pytest.mark.parametrize("which", ["task", "graph", "dependent"])
@pytest.mark.parametrize("kind", LOCAL)
async def test_rows_of_a_higher_major_are_left_alone(which: str, kind: str, tmp_path: Path) -> None:
    """Its messages go back, uncounted, for a newer program; `doctor` and `why` say so. Lowered again, all goes on."""
    kept_state = read(FOLDER / VERSION / "waiting.json")
    async with opened(kind, tmp_path, kept_state) as stage:
        held, alone = await stage.claims("a", "alone")
        key = {"task": row_key(held.task_id), "graph": GRAPH, "dependent": row_key(stage.task_id("b"))}[which]
        await set_schema(stage, key)
        before = {row.key: row.etag for row in await stage.queries.partition(stage.graph_id)}
        own = stage.failed(held, exception=True) if which == "graph" else stage.completed(held)
        await stage.queues.send(stage.names.events, [to_text(own), to_text(stage.completed(alone))])
        for _ in range(12):
            await stage.consume()
            stage.clock.advance(40)
        after = {row.key: row.etag for row in await stage.queries.partition(stage.graph_id)}
        assert after[key] == before[key]
        assert after[row_key(held.task_id)] == before[row_key(held.task_id)]
        assert await query_all(stage.tables, POISON, Range()) == []
        assert await stage.queues.count(stage.names.events) == (2 if which == "graph" else 1), (
            "given back, and not lost"
        )
        found = await examine_graph(stage.handlers, stage.poison, stage.graph_id)
        (finding,) = [each for each in found.findings if each.code == "newer-schema"]
        assert "newer schema" in finding.text
        assert "newer version" in finding.remedy
        assert finding.repair is None
        asked = "b" if which == "dependent" else "a"
        (reason,) = await stage.queries.why(stage.graph_id, asked)
        assert f"schema {SCHEMA_MAX + 1}, and this version knows {SCHEMA_MAX}" in reason.text
        assert reason.remedy == "use a newer version of taskgraph"
        await set_schema(stage, key, 1)
        await to_its_end(stage, kept_state)


@pytest.mark.parametrize("queue", ["events", "work"])
async def test_messages_of_a_higher_version_go_back(queue: str, tmp_path: Path) -> None:
    """On either queue, however often; the others on it are handled, and it is there for a newer program in the end."""
    kept_state = read(FOLDER / VERSION / "waiting.json")
    async with opened("memory", tmp_path, kept_state) as stage:
        place = stage.names.events if queue == "events" else stage.names.work("default")
        body = '{"version":2,"type":"task-whatever","graph":"graph","tasks":7}'
        await stage.queues.send(place, [body])
        await to_its_end(stage, kept_state)
        for _ in range(12):
            await stage.consume()
            await work_once(stage)
            stage.clock.advance(40)
        (delivery,) = await stage.queues.receive(place, count=32, lease_seconds=1)
        assert delivery.body == body
        assert await query_all(stage.tables, POISON, Range()) == []


@pytest.mark.azurite
async def test_what_an_older_version_left_in_the_cloud(azurite: str) -> None:
    """The rows of each fixture are rows that the service takes, and gives back as they are."""
    import secrets

    store = AzureStore.from_connection_string(azurite, HurriedClock())
    try:
        for path in FIXTURES:
            kept_state = read(path)
            clock = HurriedClock(datetime.fromisoformat(kept_state["now"]) + timedelta(hours=1))
            prefix = f"t{secrets.token_hex(6)}"
            stage = Stage(store.tables(prefix), store.queues(), clock, prefix=prefix, kind="azurite")
            await load(stage, kept_state)
            for partition, rows in kept_state["partitions"].items():
                found = {row.key: row.columns for row in await query_all(stage.tables, partition, Range())}
                assert found == {
                    key: {name: value_of(value) for name, value in columns.items()} for key, columns in rows.items()
                }
    finally:
        await store.close()
