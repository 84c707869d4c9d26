"""Graphs that are written into files and put back: the same rows, the same bytes, whatever dies on the way."""

import asyncio
import contextlib
import gzip
import io
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.engine import restore as restoring
from taskgraph.engine.archive import archive, archive_to
from taskgraph.engine.archive_file import examine, open_archive
from taskgraph.engine.commit import Records
from taskgraph.engine.delete import delete
from taskgraph.engine.doctor import examine_graph
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.housekeeping import keep_house
from taskgraph.engine.notifier import INDEX
from taskgraph.engine.restore import Restored, restore
from taskgraph.engine.sweep import sweep
from taskgraph.model import limits, schemas
from taskgraph.model.errors import Conflict, InvalidInput, NotFound, Refused, StorageUnavailable, Unclear
from taskgraph.model.ids import GRAPH
from taskgraph.model.messages import Rerun
from taskgraph.model.names import ALL, LIVE, TOMBSTONES
from taskgraph.storage.tables import Insert, Merge, Row, Tables
from tests.scenarios.stage import CrashError, Stage, Trap, extension, graph, memory_stage
from tests.scenarios.test_notices import Shelf as Receiver
from tests.scenarios.test_notices import notifier, to_the_end
from tests.scenarios.test_retention import Shelf, rows

pytestmark = pytest.mark.usefixtures("settled")

DAY = 24 * 3600.0


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


async def ended(stage: Stage, shelf: Shelf) -> Stage:
    """A graph with every kind of row, and logs of every size."""
    long = {"payload": {"text": "é\U0001f600\u2028" * 3_000}}
    tasks: dict[str, Any] = {
        "long": {"task": long},
        "all": {"requires": ["long", *(f"p{n}" for n in range(110))], "task": {}},
    }
    tasks |= {f"p{n}": {"reruns": 1, "task": {"payload": {}}} for n in range(110)}
    await stage.submit(document_from_object({"metadata": {"name": "n"}, "tasks": tasks}))
    held = await stage.claim("long")
    assert await stage.extend(extension({"added": ["long"]})) == "done"
    await stage.deliver(stage.completed(held))
    assert await stage.work(fails={"p3": 1}) == "finished"
    row = await stage.row("p1")
    await stage.tables.commit(stage.graph_id, [Merge(row.key, row.etag, {"ofAnother": 1.0, "flag": True, "n": 1})])
    await shelf.append(stage.graph_id, stage.task_id("p1"), 0, b"")
    await shelf.append(stage.graph_id, stage.task_id("p3"), 0, bytes(range(256)) * 5_000)
    await shelf.append(stage.graph_id, stage.task_id("p3"), 1, b"{}", name="result.json")
    return stage


async def written(stage: Stage, shelf: Shelf, *, logs: bool = True) -> io.BytesIO:
    out = io.BytesIO()
    done = await archive(stage.handlers, shelf, stage.graph_id, out, with_logs=logs)
    assert done.complete
    return out


def plain(stage_rows: list[Row]) -> dict[str, dict[str, Any]]:
    """Rows as they are remembered: without etags, and without what putting back adds."""
    return {
        row.key: {name: value for name, value in row.columns.items() if name not in ("restored", "archive")}
        for row in stage_rows
    }


# --- there and back ----------------------------------------------------------------------------------------------


async def test_a_graph_comes_back_as_it_was(stage: Stage, shelf: Shelf) -> None:
    await ended(stage, shelf)
    before, logs = plain(await rows(stage)), dict(shelf.held)
    listed = [row.key for row in await rows(stage, ALL)]
    file = await written(stage, shelf)
    told = examine(file, "file")
    assert (told.graph_id, told.state, told.rows, told.logs) == (stage.graph_id, "finished", len(before), 3)
    with pytest.raises(Refused, match="exists, and is finished; what is there is never overwritten"):
        await restore(stage.handlers, shelf, file, "file")
    await delete(stage.handlers, shelf, stage.graph_id)
    seen: list[tuple[int, int | None]] = []
    done = await restore(stage.handlers, shelf, file, "file", progress=lambda put, total: seen.append((put, total)))
    assert done == Restored(stage.graph_id, "finished", len(before), 3)
    assert seen[-1] == (len(before), len(before))
    assert plain(await rows(stage)) == before
    assert shelf.held == logs
    assert [row.key for row in await rows(stage, ALL)] == listed
    assert [each.name for each in await stage.queries.graphs()] == ["n"]
    assert await rows(stage, LIVE) == []
    found = await examine_graph(stage.handlers, stage.poison, stage.graph_id)
    assert (found.findings, found.sound) == ((), True)
    again = await written(stage, shelf)
    assert again.getvalue() == file.getvalue(), "the same content, the same bytes"
    assert (await restore(stage.handlers, shelf, file, "file")).again
    stage.clock.advance(limits.TOMBSTONE_SECONDS + 1)
    await keep_house(stage.handlers, shelf)
    assert await rows(stage, TOMBSTONES) == []
    assert plain(await rows(stage)) == before, "the end of a tombstone is nothing to a graph that is back"


async def test_every_line_obeys_the_schema(memory: Stage, shelf: Shelf) -> None:
    await ended(memory, shelf)
    lines = [json.loads(line) for line in gzip.decompress((await written(memory, shelf)).getvalue()).splitlines()]
    validator = schemas.validator("archive")
    for line in lines:
        assert [error.message for error in validator.iter_errors(line)] == [], str(line)[:200]
    assert [next(iter(line)) for line in (lines[0], lines[-1])] == ["archive", "end"]
    keys = [line["row"] for line in lines if "row" in line]
    assert keys == sorted(keys)
    kinds = {key.split(":")[0] for key in keys}
    assert kinds >= {"definition", "event", "join", "request", GRAPH, "task"}


async def test_a_blocked_graph_that_stands_still_comes_back_and_goes_on(local: Stage, shelf: Shelf) -> None:
    await local.submit(graph({"bad": [], "after": ["bad"]}))
    await local.fail("bad")
    file = await written(local, shelf)
    await delete(local.handlers, shelf, local.graph_id, force=True)
    assert (await restore(local.handlers, shelf, file, "file")).state == "blocked"
    assert [row.key for row in await rows(local, LIVE)] == [local.graph_id]
    await local.deliver(Rerun(local.graph_id, ((local.task_id("bad"), 0),)))
    assert await local.work() == "finished"
    sequences = sorted({event.sequence for event in await local.events()})
    assert sequences == list(range(1, len(sequences) + 1)), "the journal goes on without a gap"


@pytest.mark.parametrize("moves", ["running", "blocked with a task under way", "blocked with an extension"])
async def test_what_could_move_is_written_and_not_put_back(memory: Stage, shelf: Shelf, moves: str) -> None:
    await memory.submit(graph({"a": [], "b": []}))
    if moves.startswith("blocked"):
        await memory.fail("a")
    if moves.endswith("extension"):
        await memory.complete("b")
        await memory.tables.commit(memory.graph_id, [Insert("request:r", {"state": "staged"})])
    out = io.BytesIO()
    done = await archive(memory.handlers, shelf, memory.graph_id, out)
    assert not done.complete
    other = memory_stage()
    with pytest.raises(Refused, match="could move; only a graph that stands still is put back"):
        await restore(other.handlers, shelf, out, "file")
    assert await rows(other) == []


async def test_a_graph_that_changes_meanwhile_is_read_again(local: Stage, shelf: Shelf, tmp_path: Path) -> None:
    await ended(local, shelf)
    changes = 0

    async def files(graph_id: str, *, continuation: str | None = None) -> Any:
        nonlocal changes
        if changes < 2:
            changes += 1
            row = await local.graph_row()
            await local.tables.commit(local.graph_id, [Merge(GRAPH, row.etag, {"touched": changes})])
        return await Shelf.files(shelf, graph_id, continuation=continuation)

    shelf.files = files  # type: ignore[method-assign]
    done = await archive_to(local.handlers, shelf, local.graph_id, tmp_path / "a.json.gz", with_logs=True)
    assert (changes, done.complete) == (2, True)
    assert [path.name for path in tmp_path.iterdir() if "json" in path.name] == ["a.json.gz"]
    with pytest.raises(Refused, match="exists; choose another file"):
        await archive_to(local.handlers, shelf, local.graph_id, tmp_path / "a.json.gz")
    changes = -10
    done = await archive_to(
        local.handlers, shelf, local.graph_id, tmp_path / "a.json.gz", with_logs=True, overwrite=True
    )
    assert not done.complete, "at last it is told as it is"


async def test_there_must_be_a_graph_and_a_place(memory: Stage, shelf: Shelf, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no graph graph"):
        await archive(memory.handlers, shelf, memory.graph_id, io.BytesIO())
    await ended(memory, shelf)
    with pytest.raises(InvalidInput, match="cannot be written: No such file"):
        await archive_to(memory.handlers, shelf, memory.graph_id, tmp_path / "nowhere" / "a.json.gz")
    file = await written(memory, shelf)
    await delete(memory.handlers, shelf, memory.graph_id)
    with pytest.raises(NotFound, match="was deleted"):
        await archive(memory.handlers, shelf, memory.graph_id, io.BytesIO())
    with pytest.raises(CrashError):
        await restore(memory.more_handlers(Trap(at=6, kind="after")), shelf, file, "file")
    with pytest.raises(Refused, match="restoring: half of it may be missing"):
        await archive(memory.handlers, shelf, memory.graph_id, io.BytesIO())
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        open_archive(tmp_path / "no.json.gz")


# --- files that are none -----------------------------------------------------------------------------------------


def edited(file: io.BytesIO, edit: Callable[[list[bytes]], list[bytes]]) -> io.BytesIO:
    return io.BytesIO(gzip.compress(b"".join(edit(gzip.decompress(file.getvalue()).splitlines(keepends=True)))))


def replaced(line: int, old: bytes, new: bytes) -> Callable[[list[bytes]], list[bytes]]:
    def edit(lines: list[bytes]) -> list[bytes]:
        assert old in lines[line], lines[line]
        return [*lines[:line], lines[line].replace(old, new, 1), *lines[line:][1:]]

    return edit


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda lines: [], "its end is missing"),
        (lambda lines: lines[:-1], "its end is missing"),
        (lambda lines: [*lines[:-1], lines[-1][:-5]], "is cut off"),
        (lambda lines: [lines[0], *lines[2:]], "its digest is another"),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "out of order"),
        (lambda lines: [*lines, lines[-1]], "it goes on after its end"),
        (lambda lines: [lines[0], b"[]\n"], "line 2: no object"),
        (lambda lines: [lines[0], b"{\n"], "line 2: no JSON"),
        (lambda lines: [lines[0], b'{"row":"a","columns":{"n":NaN}}\n'], "line 2: no JSON"),
        (lambda lines: [lines[0], b"[" * 100_000 + b"\n"], "line 2: no JSON"),
        (lambda lines: [lines[0], b'{"what":1}\n'], "line 2: neither a row, a log nor the end"),
        (lambda lines: [lines[0], b'{"row":"a"}\n'], "line 2: neither a row, a log nor the end"),
        (lambda lines: [lines[0], b'{"row":"a","columns":{},"log":1,"data":""}\n'], "line 2: neither a row, a log nor"),
        (lambda lines: [lines[0], b'{"row":"a","columns":[]}\n'], "line 2: a row has a key and columns"),
        (lambda lines: [lines[0], b'{"row":"a/b","columns":{}}\n'], "line 2: row key 'a/b'"),
        (lambda lines: [lines[0], b'{"row":"a","columns":{"n":null}}\n'], "'None' is no value of a column"),
        (lambda lines: [lines[0], b'{"row":"a","columns":{"n":3000000000}}\n'], "3000000000 is outside"),
        (lambda lines: [lines[0], b'{"row":"a","columns":{"n":"%s"}}\n' % (b"x" * 33_000)], "n has 33000 characters"),
        (lambda lines: [lines[0], b'{"row":"a","columns":{"n":{"time":"never"}}}\n'], "line 2: Invalid isoformat"),
        (lambda lines: [lines[0], b'{"log":{"task":"..","run":0,"name":"a","offset":0},"data":""}\n'], "the log of"),
        (
            lambda lines: [lines[0], b'{"log":{"task":"a","run":true,"name":"a","offset":0},"data":""}\n'],
            "a log has a run",
        ),
        (lambda lines: [lines[0], b'{"log":{"task":"a","run":0,"name":"a","offset":-1},"data":""}\n'], "has a place"),
        (lambda lines: [lines[0], b'{"log":{"task":"a","run":0,"name":"a","offset":0},"data":"?"}\n'], "line 2"),
        (lambda lines: [lines[0], b" " * 9_000_000 + b"\n"], "a line that is too long"),
        (replaced(0, b'"format":1', b'"format":2'), "format 2, and this version reads 1; use a newer version"),
        (replaced(0, b'"graph":"graph"', b'"graph":"../x"'), "does not name a graph"),
        (replaced(0, b'"archive":"taskgraph"', b'"archive":"x"'), "is no archive of a graph"),
    ],
)
async def test_what_is_no_archive_writes_nothing(
    shelf: Shelf, edit: Callable[[list[bytes]], list[bytes]], words: str
) -> None:
    stage = memory_stage()
    await stage.submit(graph({"a": [], "b": ["a"]}))
    await stage.work()
    file = edited(await written(stage, shelf), edit)
    other = memory_stage()
    with pytest.raises(InvalidInput, match=words):
        await restore(other.handlers, Shelf(), file, "file")
    assert await rows(other) == await rows(other, LIVE) == []


@pytest.mark.parametrize(("data", "words"), [(b"", "its end is missing"), (b"no gzip", "is not compressed by gzip")])
def test_what_is_not_even_compressed(data: bytes, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        examine(io.BytesIO(data), "file")


async def test_a_file_that_breaks_off(memory: Stage, shelf: Shelf) -> None:
    await ended(memory, shelf)
    data = (await written(memory, shelf)).getvalue()
    for length in (len(data) - 1, len(data) // 2, 30, 5):
        with pytest.raises(InvalidInput, match=r"is cut off|its end is missing|damaged"):
            examine(io.BytesIO(data[:length]), "file")
    with pytest.raises(InvalidInput, match=r"damaged|no archive|no JSON"):
        examine(io.BytesIO(data[:2000] + bytes([data[2000] ^ 255]) + data[2001:]), "file")


# --- crashes, and others -----------------------------------------------------------------------------------------


async def test_a_restoring_that_dies_at_any_call_is_gone_on_with() -> None:
    shelf = Shelf()
    source = memory_stage()
    await source.submit(graph({"all": [f"p{n}" for n in range(110)], **{f"p{n}": [] for n in range(110)}}))
    assert await source.work() == "finished"
    await shelf.append(source.graph_id, source.task_id("all"), 0, b"said and said")
    file, expected = await written(source, shelf), plain(await rows(source))
    trap = Trap()
    await restore(memory_stage().more_handlers(trap), Shelf(), file, "file")
    assert len(trap.calls) > 10
    for kind in ("before", "after", "unclear", "conflict", "unavailable"):
        for at in range(1, len(trap.calls) + 1):
            stage, own = memory_stage(), Shelf()
            with contextlib.suppress(CrashError, StorageUnavailable, Conflict, Unclear):
                await restore(stage.more_handlers(Trap(at=at, kind=kind)), own, file, "file")
            state = {row.columns["state"] for row in await rows(stage) if row.key == GRAPH}
            if state == {"restoring"}:
                assert [row.key for row in await rows(stage, LIVE)] == [stage.graph_id], "the sweep can find it"
            await restore(stage.handlers, own, file, "file")
            assert plain(await rows(stage)) == expected, (kind, at)
            assert own.held == shelf.held
            assert await rows(stage, LIVE) == []
            assert len(await rows(stage, ALL)) == 1


async def test_a_log_that_is_there_in_part_is_gone_on_with(memory: Stage, shelf: Shelf) -> None:
    await ended(memory, shelf)
    file = await written(memory, shelf)
    for size in (0, 1, 300_000, 1 << 20, (1 << 20) + 5, 256 * 5_000):
        other, own = memory_stage(), Shelf()
        key = (memory.graph_id, memory.task_id("p3"), 0, "run.log")
        await own.append(*key[:3], shelf.held[key][:size])
        await restore(other.handlers, own, file, "file")
        assert own.held == shelf.held, size


async def test_copies_restore_side_by_side(stage: Stage, shelf: Shelf) -> None:
    await ended(stage, shelf)
    file = await written(stage, shelf, logs=False)
    expected = plain(await rows(stage))
    await delete(stage.handlers, shelf, stage.graph_id)
    copies = [restore(stage.more_handlers(), shelf, io.BytesIO(file.getvalue()), "file") for _ in range(3)]
    assert {each.state for each in await asyncio.gather(*copies)} == {"finished"}
    assert plain(await rows(stage)) == expected


class _Midway:
    """Tables that let something happen before their call number `at`."""

    def __init__(self, inner: Tables, at: int, act: Callable[[], Awaitable[object]]) -> None:
        self._inner, self.at, self._act, self.calls = inner, at, act, 0

    def __getattr__(self, name: str) -> Any:
        if name not in ("get", "query", "commit"):
            return getattr(self._inner, name)

        async def call(*args: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self.at:
                await self._act()
            return await getattr(self._inner, name)(*args, **options)

        return call


async def test_a_deletion_that_comes_late_takes_nothing_of_what_was_put_back() -> None:
    """Two copies delete; one finishes, and the graph is put back, between any two calls of the other."""
    shelf = Shelf()
    source = memory_stage()
    await source.submit(graph({"a": [], "b": ["a"]}))
    await source.fail("a")
    await shelf.append(source.graph_id, source.task_id("a"), 0, b"said and said")
    file, expected = await written(source, shelf), plain(await rows(source))
    at = calls = 1
    while at <= calls:
        stage, own = memory_stage(), Shelf()
        await restore(stage.handlers, own, file, "file")

        async def put_back(stage: Stage = stage, own: Shelf = own) -> None:
            await delete(stage.handlers, own, stage.graph_id, force=True)
            await restore(stage.handlers, own, file, "file")

        tables = _Midway(stage.tables, at, put_back)
        late = Handlers(Records(tables, stage.clock), stage.queues, stage.clock, stage.names)
        with contextlib.suppress(Conflict, Refused):
            await delete(late, own, stage.graph_id, force=True)
        calls = tables.calls
        if await stage.state() == "deleted":
            assert at == 1 or await rows(stage, ALL) == []
        else:
            assert plain(await rows(stage)) == expected, at
            assert own.held == shelf.held, at
            assert [row.key for row in await rows(stage, LIVE)] == [stage.graph_id], at
            assert len(await rows(stage, ALL)) == 1, at
        at += 1
    assert at > 15


async def test_nobody_goes_on_with_it_for_a_day(memory: Stage, shelf: Shelf) -> None:
    await ended(memory, shelf)
    file, other = await written(memory, shelf), memory_stage()
    with pytest.raises(CrashError):
        await restore(other.more_handlers(Trap(at=8, kind="after")), Shelf(), file, "file")
    assert await other.state() == "restoring"
    with pytest.raises(Refused, match="is being restored from an archive; choose another id"):
        await other.submit(graph({"a": []}))
    assert (await other.queries.status(other.graph_id)).state == "restoring"
    found = await examine_graph(other.handlers, other.poison, other.graph_id)
    assert (found.sound, [cause.text for cause in found.causes]) == (True, ["it is being restored"])
    other.clock.advance(DAY - 1)
    await sweep(other.handlers, logs=shelf)
    assert await other.state() == "restoring"
    other.clock.advance(2)
    assert (await sweep(other.handlers, logs=shelf)).deleted == 1
    assert [row.key for row in await rows(other)] == [GRAPH]
    assert (await restore(other.handlers, shelf, file, "file")).rows > 100, "and it can be put back again"


async def test_another_file_does_not_go_on_with_it(memory: Stage, shelf: Shelf) -> None:
    await ended(memory, shelf)
    file, without = await written(memory, shelf), await written(memory, shelf, logs=False)
    other = memory_stage()
    with pytest.raises(CrashError):
        await restore(other.more_handlers(Trap(at=8, kind="after")), Shelf(), file, "file")
    with pytest.raises(Refused, match="is being restored from another file"):
        await restore(other.handlers, Shelf(), without, "file")


async def test_what_was_put_back_is_kept_for_as_long_as_a_young_graph(memory: Stage, shelf: Shelf) -> None:
    await ended(memory, shelf)
    file = await written(memory, shelf)
    memory.clock.advance(20 * DAY)
    await delete(memory.handlers, shelf, memory.graph_id)
    await restore(memory.handlers, shelf, file, "file")
    assert (await keep_house(memory.handlers, shelf, keep_days=7)).deleted == []
    memory.clock.advance(8 * DAY)
    assert (await keep_house(memory.handlers, shelf, keep_days=7)).deleted == [memory.graph_id]


async def test_a_restoring_that_is_outrun_for_ever_says_so(
    memory: Stage, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ended(memory, shelf)
    file, other = await written(memory, shelf), memory_stage()
    put = restoring._put

    async def outrun(handlers: Any, graph_id: str, row: Row, chunk: Any) -> Row:
        current = await other.graph_row()
        await other.tables.commit(graph_id, [Merge(GRAPH, current.etag, {})])
        return await put(handlers, graph_id, row, chunk)

    monkeypatch.setattr(restoring, "_put", outrun)
    with pytest.raises(Conflict, match="restore again to go on"):
        await restore(other.handlers, shelf, file, "file")


async def test_who_is_told_of_a_blocked_graph_is_told_after_it_is_back(memory: Stage, shelf: Shelf) -> None:
    await memory.submit(graph({"bad": []}, notify={"onFinished": {"queue": "graphs"}}))
    await memory.fail("bad")
    file = await written(memory, shelf)
    await delete(memory.handlers, shelf, memory.graph_id, force=True)
    assert await rows(memory, INDEX) == []
    await restore(memory.handlers, shelf, file, "file")
    assert [row.key for row in await rows(memory, INDEX)] == [memory.graph_id]
    await memory.deliver(Rerun(memory.graph_id, ((memory.task_id("bad"), 0),)))
    assert await memory.work() == "finished"
    receiver = Receiver()
    await to_the_end(memory, notifier(memory, receiver))
    assert [body["type"] for bodies in receiver.got.values() for body in bodies] == ["graph-finished"]
