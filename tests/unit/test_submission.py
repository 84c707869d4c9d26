"""Submissions: what is written, in which order it may be written, what goes on after a crash, and what is counted."""

import asyncio
import json
import random
from collections.abc import Sequence
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskgraph.documents.canonical import content_hash
from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.engine import submission, writing
from taskgraph.engine.commit import Records
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.submission import Submitted, submit
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, Refused, StorageUnavailable, Unclear
from taskgraph.model.ids import GRAPH, fence_key, row_key, task_id_of
from taskgraph.model.messages import RunTasks, SendReady, parse
from taskgraph.model.names import ALL, listing_key
from taskgraph.protocol.extension_plan import bytes_at_most, row_bytes
from taskgraph.protocol.layout import lay_out, name_mapping_rows
from taskgraph.storage.tables import Change, Insert, Merge, Page, Range, Row
from taskgraph.testing import HurriedClock, MemoryQueues, MemoryTables, drive

WORK = "taskgraph-work-default"


def document(requires: dict[str, list[str]], **tasks: object) -> GraphDocument:
    return GraphDocument(
        {label: TaskNode(label, tuple(wanted), 0, {"payload": tasks}) for label, wanted in requires.items()}
    )


def fan(width: int) -> dict[str, list[str]]:
    parts = [f"part {number}" for number in range(width)]
    return {"start": [], **{part: ["start"] for part in parts}, "end": parts}


WIDE = document(fan(1_000))
"""Ten commits, with forks and joins."""


class Watched(MemoryTables):
    """Tables whose calls take a turn of the event loop, if there is one; with what has been asked of them."""

    def __init__(self, rows: dict[str, Row] | None = None) -> None:
        super().__init__()
        self.inserted: list[list[str]] = []
        self.calls: list[str] = []
        self.flying = self.most_flying = 0
        if rows is not None:
            self.partitions["g"] = dict(rows)

    async def _turn(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        await asyncio.sleep(0)

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        if partition == "g":
            self.calls.append("get")
        await self._turn()
        return await super().get(partition, keys)

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        if partition == "g":
            self.calls.append("query")
        await self._turn()
        return await super().query(partition, rows, limit=limit, continuation=continuation)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        if partition == "g":
            self.calls.append("commit")
            self.inserted.append([change.key for change in changes if isinstance(change, Insert)])
        self.flying += 1
        self.most_flying = max(self.most_flying, self.flying)
        await self._turn()
        self.flying -= 1
        return await super().commit(partition, changes)


@pytest.fixture
def in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small graphs are submitted in several commits, as large ones are."""
    monkeypatch.setattr(limits, "WHOLE_ROWS_MAX", 0)


def handlers_of(tables: MemoryTables, clock: HurriedClock | None = None) -> Handlers:
    clock = clock or HurriedClock()
    return Handlers(Records(tables, clock), MemoryQueues(clock), clock)


def rows_of(tables: MemoryTables) -> dict[str, dict[str, object]]:
    """What stands in the table, but for who wrote it."""
    return {
        key: {name: value for name, value in row.columns.items() if name != "operation"}
        for key, row in tables.partitions["g"].items()
    }


async def written(wanted: GraphDocument = WIDE) -> MemoryTables:
    tables = MemoryTables()
    await submit(handlers_of(tables), "g", wanted)
    return tables


def half_done(tables: MemoryTables, gone: Sequence[str], digest: str) -> dict[str, Row]:
    """The rows of a submission that was cut off: not flipped, some not there."""
    rows = {key: row for key, row in tables.partitions["g"].items() if key not in gone and not key.startswith("event:")}
    columns = {name: value for name, value in rows[GRAPH].columns.items() if name not in ("operation", "started")}
    rows[GRAPH] = Row(GRAPH, "e0", {**columns, "state": "submitting", "digest": digest})
    for key in map(fence_key, range(1, int(str(columns["writers"])))):
        rows[key] = Row(key, "e0", {"schema": 1, "state": "submitting"})
    return rows


# --- several commits at a time ---------------------------------------------------------------------------------------


async def test_several_commits_are_under_way_and_not_too_many() -> None:
    tables = Watched()
    answer = await submit(handlers_of(tables), "g", WIDE)
    assert answer.outcome is Submitted.CREATED
    assert 1 < tables.most_flying <= submission._IN_FLIGHT
    assert rows_of(tables) == rows_of(await written())


def test_without_an_event_loop_one_goes_after_the_other() -> None:
    """As the simulator drives it."""
    tables = Watched()
    assert drive(submit(handlers_of(tables), "g", WIDE)).outcome is Submitted.CREATED
    assert tables.most_flying == 1


async def test_a_small_graph_is_written_and_started_in_one_commit() -> None:
    tables = Watched()
    await submit(handlers_of(tables), "g", document({"a": [], "b": ["a"]}))
    task_ids = {row_key(task_id_of("g", label)) for label in "ab"}
    assert [set(keys) for keys in tables.inserted] == [{GRAPH, *task_ids, "event:0000000001"}]
    assert tables.calls == ["get", "commit"]


def moment_of(rows: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    """Rows without their times."""
    times = ("created", "started", "time", "pendingSince")
    return {key: {name: value for name, value in row.items() if name not in times} for key, row in rows.items()}


@pytest.mark.parametrize("requires", [fan(60), {"a": [], **{f"b{number}": ["a"] for number in range(60)}}])
async def test_what_is_written_in_one_commit_is_what_several_write(
    requires: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = await counted(document(requires))
    monkeypatch.setattr(limits, "WHOLE_ROWS_MAX", 0)
    several = await counted(document(requires))
    assert whole.calls.count("commit") == 1 < several.calls.count("commit")
    assert moment_of(rows_of(whole)) == moment_of(rows_of(several))


async def test_what_does_not_fit_one_commit_takes_several() -> None:
    """The graph row, 98 tasks and the event row are the most that do."""

    def chain(length: int, **tasks: object) -> GraphDocument:
        return document({str(number): [str(number - 1)] if number else [] for number in range(length)}, **tasks)

    for wanted, commits in ((chain(98), 1), (chain(99), 3)):
        assert (await counted(wanted)).calls.count("commit") == commits
    long = await counted(chain(20, text="\U0001f600" * 20_000))
    assert long.calls.count("commit") > 3, "they have too many characters"


@pytest.mark.parametrize("kind", ["conflict", "unclear", "lost"])
async def test_the_one_commit_is_made_once_whatever_the_answer(kind: str) -> None:
    class Odd(Watched):
        odd = True

        async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
            if partition == "g" and self.odd:
                self.odd = False
                if kind != "lost":
                    await super().commit(partition, changes)
                raise Conflict("409") if kind == "conflict" else Unclear("nobody knows")
            return await super().commit(partition, changes)

    wanted = document({"a": [], "b": ["a"]})
    tables = Odd()
    assert (await submit(handlers_of(tables), "g", wanted, fresh=True)).outcome is Submitted.CREATED
    assert rows_of(tables).keys() == rows_of(await written(wanted)).keys()
    assert len(tables.partitions[ALL]) == 1


@pytest.mark.parametrize("fresh", [True, False])
async def test_who_comes_second_to_an_id_lists_nothing(fresh: bool) -> None:
    """Another call has written the graph between the look and the commit: its entry in the list is the one."""

    class Overtaken(Watched):
        wanted = document({"a": [], "b": ["a"]})

        async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
            if partition == "g" and "g" not in self.partitions:
                other = MemoryTables()
                other.partitions = self.partitions
                clock = HurriedClock()
                await clock.sleep(5)
                clock.new_id()  # no operation has the id of another
                await submit(handlers_of(other, clock), "g", self.wanted)
            return await super().commit(partition, changes)

    tables = Overtaken()
    answer = await submit(handlers_of(tables), "g", tables.wanted, fresh=fresh)
    assert answer.outcome is Submitted.EXISTING
    (key,) = tables.partitions[ALL]
    created = tables.partitions["g"][GRAPH].columns["created"]
    assert isinstance(created, datetime)
    assert key == listing_key("g", created)
    tables = Overtaken()
    with pytest.raises(Refused, match="different content"):
        await submit(handlers_of(tables), "g", document({"c": []}), fresh=fresh)
    assert len(tables.partitions[ALL]) == 1


@pytest.mark.parametrize("tasks", [2, 400])
async def test_answers_that_bring_no_etags_are_as_good(tasks: int) -> None:
    class Silent(MemoryTables):
        async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
            return [None] * len(await super().commit(partition, changes))

    wanted = document({"a": [], **{f"b{number}": ["a"] for number in range(tasks)}})
    silent = Silent()
    answer = await submit(handlers_of(silent), "g", wanted)
    assert answer.outcome is Submitted.CREATED
    assert rows_of(silent) == rows_of(await written(wanted))


async def test_under_a_fresh_id_nothing_is_read() -> None:
    tables = Watched()
    answer = await submit(handlers_of(tables), "g", document({"a": [], "b": ["a"]}), fresh=True)
    assert answer.outcome is Submitted.CREATED
    assert tables.calls == ["commit"]


@pytest.mark.usefixtures("in_several")
async def test_a_graph_row_that_others_have_written_is_read_before_the_start() -> None:
    """Its etag alone, which the fence has read again, does not say what stands on it."""

    class Meddling(Watched):
        async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
            if partition == "g" and self.calls == ["commit"]:
                self.calls.clear()
                graph = self.partitions["g"][GRAPH]
                await MemoryTables.commit(self, "g", [Merge(GRAPH, graph.etag, {"other": "x"})])
            return await super().commit(partition, changes)

    tables = Meddling()
    await submit(handlers_of(tables), "g", document({"a": [], "b": ["a"]}), fresh=True)
    lost, read_rows, read_fence, again, read_graph, start = tables.calls
    assert (lost, again, start) == ("commit", "commit", "commit")
    assert (read_rows, read_fence, read_graph) == ("get", "get", "get")


async def test_an_id_that_another_graph_has_got_meanwhile_is_looked_for() -> None:
    tables = await written(document({"a": []}))
    clock = HurriedClock()
    clock.new_id()  # no operation has the id of another
    handlers = handlers_of(tables, clock)
    assert (await submit(handlers, "g", document({"a": []}), fresh=True)).outcome is Submitted.EXISTING
    with pytest.raises(Refused, match="different content"):
        await submit(handlers, "g", document({"b": []}), fresh=True)


@pytest.mark.parametrize("late", [1, 2, 4])
@pytest.mark.parametrize("wanted", [document({"a": [], "b": ["a"]}), WIDE], ids=["small", "wide"])
async def test_rows_that_come_after_the_start_do_not_bring_back_what_was_deleted(
    wanted: GraphDocument, late: int
) -> None:
    """Two submit the same: one is held up before a commit until the other has started the graph, and it was edited."""

    class Late(Watched):
        chunks = 0
        gone: tuple[str, ...] = ()

        async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
            new = (change.key for change in changes if isinstance(change, Insert))
            keys = tuple(key for key in new if key.startswith(("task:", "join:", "fork:")))
            self.chunks += bool(partition == "g" and keys)
            if self.chunks == min(late, chunks) and not self.gone:
                self.gone = keys
                other = MemoryTables()
                other.partitions = self.partitions
                await submit(handlers_of(other), "g", wanted)
                for key in keys:
                    del self.partitions["g"][key]
            return await super().commit(partition, changes)

    chunks = sum(any(key.startswith("task:") for key in keys) for keys in (await counted(wanted)).inserted)
    tables = Late()
    answer = await submit(handlers_of(tables), "g", wanted)
    assert answer.outcome is Submitted.CREATED
    assert tables.gone
    assert tables.partitions["g"].keys().isdisjoint(tables.gone)
    assert not [key for key in tables.partitions["g"] if key.startswith("submitting:")]


async def counted(wanted: GraphDocument) -> Watched:
    tables = Watched()
    await submit(handlers_of(tables), "g", wanted)
    return tables


@pytest.mark.parametrize("error", [StorageUnavailable("503"), KeyError("a bug")])
async def test_an_error_of_one_commit_is_raised_as_it_is_and_nothing_goes_on(error: Exception) -> None:
    class Failing(Watched):
        async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
            if len(self.inserted) == 4:
                raise error
            return await super().commit(partition, changes)

    tables = Failing()
    with pytest.raises(type(error)) as raised:
        await submit(handlers_of(tables), "g", WIDE)
    assert raised.value is error
    calls = len(tables.calls)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(tables.calls) == calls
    assert tables.partitions["g"][GRAPH].columns["state"] == "submitting"


async def test_a_submission_that_is_cancelled_goes_on_nowhere() -> None:
    tables = Watched()
    task = asyncio.ensure_future(submit(handlers_of(tables), "g", WIDE))
    while len(tables.inserted) < 5:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    calls = len(tables.calls)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(tables.calls) == calls


@pytest.mark.parametrize("kind", ["unclear", "conflict", "lost"])
async def test_each_commit_that_was_not_answered_is_settled(kind: str) -> None:
    """Applied and unanswered, applied and answered with a conflict, not applied."""

    class Odd(Watched):
        async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
            odd = partition == "g" and len(self.inserted) % 2 == 1 and isinstance(changes[0], Insert)
            if odd and kind == "lost":
                self.inserted.append([])
                raise Unclear("nobody knows")
            etags = await super().commit(partition, changes)
            if odd:
                raise Unclear("nobody knows") if kind == "unclear" else Conflict("409 on the own write")
            return etags

    tables = Odd()
    await submit(handlers_of(tables), "g", WIDE)
    assert {key: row for key, row in rows_of(tables).items() if not key.startswith("event:")} == {
        key: row for key, row in rows_of(await written()).items() if not key.startswith("event:")
    }


# --- going on --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "not marked any more"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
async def test_going_on_writes_what_is_missing_and_nothing_else(share: float, marked: bool) -> None:
    reference = await written()
    keys = [key for key in reference.partitions["g"] if key != GRAPH and not key.startswith("event:")]
    gone = random.Random(7).sample(keys, round(share * len(keys))) if marked else []
    digest = content_hash(WIDE)
    tables = Watched(half_done(reference, gone, submission._BY_KEY + digest if marked else digest))
    told: list[tuple[int, int]] = []
    answer = await submit(handlers_of(tables), "g", WIDE, progress=lambda *now: told.append(now))
    assert answer.outcome is Submitted.RESUMED
    assert rows_of(tables) == rows_of(reference)
    assert sorted(key for keys in tables.inserted for key in keys if key != "event:0000000001") == sorted(gone)
    rows = len(reference.partitions["g"]) - 2
    assert told[0] == (0, rows)
    assert told[-1] == (rows, rows)
    assert told == sorted(told)
    pages = -(-rows // limits.PAGE_ROWS_MAX)
    assert 1 <= tables.calls.count("query") <= pages + 1, "the flip may look where the journal ends"
    assert tables.calls.count("commit") <= -(-len(gone) // limits.COMMIT_CHANGES_MAX) + 2


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1_000), st.sampled_from([0.0, 0.01, 0.5, 0.99, 1.0]))
def test_what_an_older_version_began_goes_on_in_its_order(seed: int, share: float) -> None:
    """Its relays share edges out as the document has them; half of each order would lose edges."""
    rng = random.Random(seed)
    clock = HurriedClock()
    older = lay_out("g", WIDE.tasks, stamp="0", now=clock.now())
    assert older.top is None
    rows = {row.key: Row(row.key, f"e-{row.key}", row.columns) for row in older.rows}
    rows |= {row.key: Row(row.key, f"e-{row.key}", row.columns) for row in name_mapping_rows(older.mapping, "0")}
    reference = drive(written())
    assert rows.keys() == reference.partitions["g"].keys() - {GRAPH, "event:0000000001"}
    begun = half_done(reference, list(rows), content_hash(WIDE))
    there = {key: row for key, row in rows.items() if rng.random() < share}
    tables = Watched({**begun, **there})
    assert drive(submit(handlers_of(tables), "g", WIDE)).outcome is Submitted.RESUMED
    for key, row in rows.items():
        assert dict(tables.partitions["g"][key].columns) == dict(row.columns), key


async def test_an_older_version_leaves_the_rows_of_a_newer_one_alone_until_all_are_there() -> None:
    """It would lay the rest out in another order. What it compares is the digest (see _BY_KEY)."""
    digest = content_hash(WIDE)
    seen: list[object] = []

    class Looking(Watched):
        async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
            if GRAPH in self.partitions.get("g", {}):
                seen.append(self.partitions["g"][GRAPH].columns["digest"])
            return await super().commit(partition, changes)

    tables = Looking()
    await submit(handlers_of(tables), "g", WIDE)
    assert seen[-1] == tables.partitions["g"][GRAPH].columns["digest"] == digest
    assert digest not in seen[:-1]
    assert (await submit(handlers_of(tables), "g", WIDE)).outcome is Submitted.EXISTING


@pytest.mark.usefixtures("in_several")
async def test_a_graph_without_relays_needs_no_mark() -> None:
    wanted = document({label: [] for label in "abc"})
    tables = Watched()
    await submit(handlers_of(tables), "g", wanted)
    assert tables.calls.count("commit") == 3
    assert tables.partitions["g"][GRAPH].columns["digest"] == content_hash(wanted)


@pytest.mark.parametrize("kind", ["conflict", "unclear", "lost"])
async def test_the_mark_goes_whatever_the_answer(kind: str) -> None:
    class Odd(Watched):
        odd = 2

        async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
            if isinstance(changes[0], Merge) and changes[0].columns.keys() == {"digest"} and self.odd:
                self.odd -= 1
                if kind != "lost":
                    await super().commit(partition, changes)
                raise Conflict("409") if kind == "conflict" else Unclear("nobody knows")
            return await super().commit(partition, changes)

    tables = Odd()
    await submit(handlers_of(tables), "g", WIDE)
    assert tables.partitions["g"][GRAPH].columns["state"] == "running"
    assert tables.partitions["g"][GRAPH].columns["digest"] == content_hash(WIDE)


@pytest.mark.parametrize("marked", [True, False])
async def test_other_content_is_refused_at_any_time(marked: bool) -> None:
    tables = await written()
    digest = content_hash(WIDE)
    begun = Watched(half_done(tables, [], submission._BY_KEY + digest if marked else digest))
    for there in (tables, begun):
        before = dict(there.partitions["g"])
        with pytest.raises(Refused, match="different content"):
            await submit(handlers_of(there), "g", document(fan(999)))
        assert there.partitions["g"] == before


async def test_two_at_once_write_each_row_once() -> None:
    tables = Watched()
    first, second = await asyncio.gather(submit(handlers_of(tables), "g", WIDE), submit(handlers_of(tables), "g", WIDE))
    assert {first.outcome, second.outcome} & {Submitted.CREATED, Submitted.RESUMED}
    assert rows_of(tables) == rows_of(await written())


async def test_a_cycle_is_no_graph() -> None:
    with pytest.raises(ValueError, match="cycle"):
        await submit(handlers_of(MemoryTables()), "g", document({"b": ["a"], "a": ["b"]}))


# --- commits as large as they may be ---------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([1, 40, 3_000, 30_000]), st.sampled_from(["x", "ü", '"', "\U0001f600"])),
        max_size=250,
    )
)
def test_chunks_are_as_large_as_a_commit_may_be(sizes: list[tuple[int, str]]) -> None:
    rows = [
        Insert(f"task:{number}", {"run": 0, **{f"t{column}": letter * (units // 2) for column in range(8)}})
        for number, (units, letter) in enumerate(sizes)
    ]
    chunks = list(writing.chunks_of(rows))
    assert [row for chunk in chunks for row in chunk] == rows
    for number, chunk in enumerate(chunks):
        size = sum(map(row_bytes, chunk))
        assert 0 < len(chunk) <= limits.COMMIT_CHANGES_MAX
        assert size <= limits.COMMIT_BYTES_MAX or len(chunk) == 1
        if number + 1 < len(chunks) and len(chunk) < limits.COMMIT_CHANGES_MAX:
            most = limits.COMMIT_BYTES_MAX - writing._FENCE_BYTES
            assert size + row_bytes(chunks[number + 1][0]) > most, "the next one would have fitted"
    assert all(bytes_at_most([row]) >= row_bytes(row) for row in rows)


# --- the first messages ----------------------------------------------------------------------------------------------


def sent(handlers: Handlers) -> list[RunTasks]:
    assert isinstance(handlers.queues, MemoryQueues)
    found = [parse(body) for _, _, _, body in handlers.queues.messages[WORK].values()]
    return [message for message in found if isinstance(message, RunTasks)]


async def test_the_first_messages_say_what_was_written() -> None:
    tables = MemoryTables()
    handlers = handlers_of(tables)
    await submit(handlers, "g", document({f"t{number}": [] for number in range(300)}, n=1))
    first = sorted(task_id_of("g", f"t{number}") for number in range(300))[: limits.WINDOW_START]
    assert isinstance(handlers.queues, MemoryQueues)
    messages = sent(handlers)
    assert [task for message in messages for task, _ in message.tasks] == first
    (queued,) = [parse(body) for _, _, _, body in handlers.queues.messages[handlers.names.events].values()]
    assert queued == SendReady("g", first[-1])  # the rest is for the handlers
    for message in messages:
        for task_id, _ in message.tasks:
            row = tables.partitions["g"][row_key(task_id)]
            assert message.seen[task_id].etag == row.etag
            assert json.loads(message.seen[task_id].definition) == {"payload": {"n": 1}}


async def test_a_message_about_a_single_task_says_what_is_next() -> None:
    handlers = handlers_of(MemoryTables())
    await submit(handlers, "g", document({"a": [], "b": ["a"], "c": ["b"]}))
    (message,) = sent(handlers)
    assert message.seen[task_id_of("g", "a")].next == task_id_of("g", "b")


async def test_what_was_not_heard_is_not_said() -> None:
    class Silent(MemoryTables):
        async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
            etags = await super().commit(partition, changes)
            return [
                None if change.key.startswith("task:") else etag for change, etag in zip(changes, etags, strict=True)
            ]

    handlers = handlers_of(Silent())
    await submit(handlers, "g", document({"a": [], "b": ["a"]}))
    (message,) = sent(handlers)
    assert message.seen == {}


@pytest.mark.parametrize("tasks", [1, limits.WINDOW_START])
async def test_where_all_first_tasks_are_sent_nobody_is_told_of_more(tasks: int) -> None:
    handlers = handlers_of(MemoryTables())
    await submit(handlers, "g", document({f"t{number}": [] for number in range(tasks)}))
    assert sum(len(message.seen) for message in sent(handlers)) == tasks
    assert isinstance(handlers.queues, MemoryQueues)
    assert not handlers.queues.messages.get(handlers.names.events)


@pytest.mark.parametrize("runs", [True, False])
async def test_a_process_that_runs_what_it_submits_need_not_read_it(runs: bool) -> None:
    tables = MemoryTables()
    handlers = handlers_of(tables)
    with handlers.dispatcher.keeping("g" if runs else "another", ["default"]):
        await submit(handlers, "g", WIDE)
    known = handlers.row_cache.of("g").rows
    kept = (GRAPH, "task:", "join:", "fork:")
    there = {key: row for key, row in tables.partitions["g"].items() if key.startswith(kept)}
    assert known == (there if runs else {})
