"""The loop from reading to sending: what is written, sent, counted and answered, and when it gives up."""

import dataclasses
import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import pytest

from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.engine.commit import Records
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.listeners import Counters
from taskgraph.engine.live_index import enter_live, leave_live
from taskgraph.engine.requests import answer_request, late_requests
from taskgraph.engine.submission import extend, submit
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, IntegrityError, NotFound, StorageUnavailable, TaskgraphError, Unclear
from taskgraph.model.ids import GRAPH, row_key, task_id_of
from taskgraph.model.messages import AddTasks, Rerun, RunTasks, Seen, TaskCompleted, TaskFailed, TaskResult, parse
from taskgraph.model.names import LIVE, QueueNames
from taskgraph.model.states import GraphState
from taskgraph.protocol.context import Dispatch, Effect, GraphEnded, GraphRevived, Outcome
from taskgraph.protocol.recall import ManualRerun
from taskgraph.protocol.relays import Fire, Remind
from taskgraph.protocol.runs import Claim, Completed, Renew
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Page, Range, Row
from taskgraph.testing import HurriedClock, MemoryQueues, MemoryTables

A, B = task_id_of("g", "a"), task_id_of("g", "b")
DOCUMENT = GraphDocument({"a": TaskNode("a"), "b": TaskNode("b", ("a",))})


class Sleeper(HurriedClock):
    """Remembers every pause."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await super().sleep(seconds)


class Table(MemoryTables):
    """Remembers what is asked of it, and raises what it is told to: in place of a commit, or after one."""

    def __init__(self) -> None:
        super().__init__()
        self.gets: list[tuple[str, tuple[str, ...]]] = []
        self.queries: list[tuple[str, Range]] = []
        self.written: list[tuple[str, tuple[Change, ...]]] = []
        self.instead: list[Exception] = []
        self.after: list[Exception] = []
        self.torn: dict[str, list[Row | None]] = {}  # what the next readings of a row give, in place of it

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        self.gets.append((partition, tuple(keys)))
        found = await super().get(partition, keys)
        return [self.torn[k].pop(0) if self.torn.get(k) else row for k, row in zip(keys, found, strict=True)]

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        self.queries.append((partition, rows))
        return await super().query(partition, rows, limit=limit, continuation=continuation)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        if self.instead:
            raise self.instead.pop(0)
        etags = await super().commit(partition, changes)
        self.written.append((partition, tuple(changes)))
        if self.after:
            raise self.after.pop(0)
        return etags

    def columns(self, key: str, partition: str = "g") -> dict[str, object]:
        return dict(self.partitions[partition][key].columns)

    def put(self, key: str, partition: str = "g", **columns: str | int | bool | datetime) -> None:
        row = self.partitions[partition][key]
        self.partitions[partition][key] = Row(key, row.etag + "+", {**row.columns, **columns})


@pytest.fixture
def clock() -> Sleeper:
    return Sleeper()


@pytest.fixture
def tables() -> Table:
    return Table()


@pytest.fixture
def queues(clock: Sleeper) -> MemoryQueues:
    return MemoryQueues(clock)


@pytest.fixture
def handlers(tables: Table, queues: MemoryQueues, clock: Sleeper) -> Handlers:
    return Handlers(Records(tables, clock), queues, clock)


class Beats:
    """A keep-alive that counts."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def beats() -> Beats:
    return Beats()


def reset(counters: Counters) -> None:
    """Count anew."""
    for each in dataclasses.fields(counters):
        setattr(counters, each.name, 0)


async def begin(handlers: Handlers, document: GraphDocument = DOCUMENT) -> None:
    """Submit a graph, and forget what was sent and counted."""
    await submit(handlers, "g", document)
    assert isinstance(handlers.queues, MemoryQueues)
    assert isinstance(handlers.records.tables, Table)
    handlers.queues.messages.clear()
    for seen in (handlers.records.tables.gets, handlers.records.tables.queries, handlers.records.tables.written):
        seen.clear()
    reset(handlers.counters)


def claim(task_id: str = A, run: int = 0, name: str = "c") -> Claim:
    return Claim(task_id, run, name, "w", datetime.fromisoformat("2030-01-01T00:00:00+00:00"))


def done(task_id: str = A, run: int = 0, name: str = "c") -> Completed:
    return Completed(task_id, run, name, "2026-01-01T00:00:00+00:00", {"failed": False})


def result(task_id: str = A, run: int = 0, *, failed: bool = False, exception: bool = False) -> TaskResult:
    return TaskResult(task_id, run, "c", "2026-01-01T00:00:00+00:00", {"failed": failed}, exception)


def sent(queues: MemoryQueues, queue: str = "taskgraph-work-default") -> list[object]:
    return [parse(body) for _, _, _, body in queues.messages.get(queue, {}).values()]


def wanted(
    queues: MemoryQueues, queue: str = "taskgraph-work-default"
) -> list[tuple[str, tuple[tuple[str, int], ...]]]:
    """What work messages ask for, whatever they say of it."""
    return [(each.target, each.tasks) for each in sent(queues, queue) if isinstance(each, RunTasks)]


# --- names -----------------------------------------------------------------------------------------------------


def test_names_of_queues() -> None:
    names = QueueNames()
    assert (names.events, names.work("gpu")) == ("taskgraph-events", "taskgraph-work-gpu")
    assert names.poison(names.events) == "taskgraph-events-poison"
    assert QueueNames("other").work("x") == "other-work-x"


# --- messages --------------------------------------------------------------------------------------------------


async def test_messages_that_arrive_together_are_committed_together_and_answered_one_by_one(
    handlers: Handlers, tables: Table, beats: Beats
) -> None:
    await begin(handlers, GraphDocument({"a": TaskNode("a"), "b": TaskNode("b")}))
    await handlers.transition("g", [claim(A), claim(B)])
    tables.written.clear()
    first = TaskCompleted("g", (result(A),))
    second = TaskFailed("g", (result(B, failed=True),))
    third = Rerun("g", ((B, 0),), "try")
    handled = await handlers.handle("g", [first, second, third], keep_alive=beats)
    assert [partition for partition, _ in tables.written].count("g") == 1
    assert [each.message for each in handled] == [first, second, third]
    assert [[answer.outcome for answer in each.answers] for each in handled] == [[Outcome.APPLIED]] * 3
    assert [each.error for each in handled] == [None] * 3
    assert beats.count == 1
    runs = str(tables.columns(row_key(B))["runs"])
    assert tables.columns(row_key(B))["run"] == 1
    assert '"outcome":"failed"' in runs
    assert '"reason":"try"' in runs
    assert '"ended":"2026-01-01T00:00:00+00:00"' in runs


async def test_each_result_of_a_message_is_believed_by_itself(handlers: Handlers, tables: Table) -> None:
    await begin(handlers, GraphDocument({"a": TaskNode("a"), "b": TaskNode("b")}))
    await handlers.transition("g", [claim(A), claim(B)])
    (handled,) = await handlers.handle("g", [TaskCompleted("g", (result(A), result(B, run=5)))])
    assert [answer.outcome for answer in handled.answers] == [Outcome.APPLIED, Outcome.STALE]
    assert handled.error is None


async def test_a_failure_that_no_rerun_would_change_is_an_exception(handlers: Handlers, tables: Table) -> None:
    await begin(handlers, GraphDocument({"a": TaskNode("a", reruns=3)}))
    await handlers.transition("g", [claim()])
    await handlers.handle("g", [TaskFailed("g", (result(failed=True, exception=True),))])
    assert tables.columns(row_key(A))["state"] == "exception"


async def test_what_is_wrong_with_one_message_is_said_of_it_alone(handlers: Handlers) -> None:
    await begin(handlers)
    await handlers.transition("g", [claim()])
    missing, unheard = TaskCompleted("g", (result("nobody"),)), AddTasks("g", "unheard")
    good = TaskCompleted("g", (result(),))
    of_unheard, of_missing, of_good = await handlers.handle("g", [missing, unheard, good])
    assert [of_unheard.message, of_missing.message, of_good.message] == [unheard, missing, good]
    assert isinstance(of_missing.error, NotFound)
    assert str(of_missing.error) == "graph g has no row task:nobody"
    assert isinstance(of_unheard.error, NotFound)
    assert str(of_unheard.error) == "graph g has no request unheard"
    assert of_unheard.answers == ()
    assert of_good.error is None
    assert of_good.answers[0].outcome is Outcome.APPLIED


async def test_an_extension_is_brought_to_its_end_by_its_message(
    handlers: Handlers, tables: Table, beats: Beats
) -> None:
    await begin(handlers)
    staged = await extend(handlers, "g", GraphDocument({"x": TaskNode("x", ("a",))}))
    message = AddTasks("g", staged.request)
    (handled,) = await handlers.handle("g", [message], keep_alive=beats)
    assert (handled.message, handled.answers, handled.error) == (message, (), None)
    assert tables.columns(f"request:{staged.request}")["state"] == "done"
    assert beats.count == 2, "once planned, and once per commit"


async def test_errors_of_the_store_concern_all_messages(handlers: Handlers, tables: Table) -> None:
    await begin(handlers)
    staged = await extend(handlers, "g", GraphDocument({"x": TaskNode("x", ("a",))}))
    tables.instead = [StorageUnavailable("503")]
    with pytest.raises(StorageUnavailable):
        await handlers.handle("g", [AddTasks("g", staged.request)])


async def test_work_messages_are_for_workers(handlers: Handlers) -> None:
    with pytest.raises(TypeError, match=r"^work messages are for workers$"):
        await handlers.handle("g", [RunTasks("g", "default", ((A, 0),))])


# --- transitions -------------------------------------------------------------------------------------------------


async def test_items_about_nobody_are_refused_and_the_others_go_on(handlers: Handlers, tables: Table) -> None:
    await begin(handlers)
    answers = await handlers.transition("g", [claim("nobody"), claim()])
    assert {answer.item.task_id: answer.outcome for answer in answers} == {  # type: ignore[attr-defined]
        "nobody": Outcome.REFUSED,
        A: Outcome.APPLIED,
    }
    (missing,) = [answer for answer in answers if answer.outcome is Outcome.REFUSED]
    assert isinstance(missing.error, NotFound)
    assert missing.reason == str(missing.error) == "graph g has no row task:nobody"
    assert [answer.outcome for answer in await handlers.transition("g", [claim("nobody")])] == [Outcome.REFUSED]


async def test_the_tasks_of_all_items_are_read_at_once(handlers: Handlers, tables: Table) -> None:
    await begin(handlers)
    await handlers.transition("g", [Remind(A), Remind(B), Remind(A)])
    assert tables.gets[0] == ("g", tuple(sorted((row_key(A), row_key(B)))))


async def test_what_the_caller_has_read_is_not_read_again_and_is_brought_up(handlers: Handlers, tables: Table) -> None:
    await begin(handlers)
    (row,) = await tables.get("g", [row_key(A)])
    rows: dict[str, Row | None] = {row_key(A): row}
    await handlers.transition("g", [Remind(A)])
    tables.gets.clear()
    await handlers.transition("g", [claim()], rows=rows)
    assert [keys for _, keys in tables.gets if row_key(A) in keys] == []
    assert rows[row_key(A)] == tables.partitions["g"][row_key(A)]


async def test_a_new_process_looks_for_the_end_of_the_journal_only_when_it_states_facts(
    handlers: Handlers, tables: Table, queues: MemoryQueues, clock: Sleeper
) -> None:
    await begin(handlers)
    fresh = Handlers(Records(tables, clock), queues, clock)
    await fresh.transition("g", [claim()])
    assert tables.gets == [("g", (row_key(A),))]
    clock.advance(5)
    await fresh.transition("g", [done()])
    listed = [rows.start for _, rows in tables.queries if rows.start.startswith("event:")]
    assert listed == ["event:0000000001"], "one page of it"
    assert tables.columns("event:0000000002")["time"] == clock.now()
    tables.queries.clear()
    await fresh.transition("g", [claim(B)])
    await fresh.transition("g", [done(B)])
    assert [rows.start for _, rows in tables.queries] == ["request:"], "from then on it is known"
    assert "event:0000000003" in tables.partitions["g"]


async def test_nothing_to_write_is_no_commit(handlers: Handlers, tables: Table, queues: MemoryQueues) -> None:
    await begin(handlers)
    await handlers.transition("g", [Remind(A)])
    assert tables.written == []
    assert handlers.counters == Counters(commits=0, dispatched=1)
    assert wanted(queues) == [("default", ((A, 0),))]


async def test_what_was_done_is_counted(handlers: Handlers) -> None:
    await begin(handlers)
    await handlers.transition("g", [claim()])
    await handlers.transition("g", [done()])
    await handlers.transition("g", [claim(), claim(), Renew(A, 0, "other", handlers.clock.now())])
    await handlers.transition("g", [claim("nobody")])
    assert handlers.counters == Counters(commits=2, conflicts=0, dispatched=1, stale=3, refused=0)
    for times in (1, 2):
        await handlers.transition("g", [ManualRerun(B, 0)])  # it stands ready
        assert handlers.counters.refused == times


async def test_many_items_take_as_many_commits_as_they_need(handlers: Handlers, beats: Beats) -> None:
    labels = [f"t{number:03}" for number in range(250)]
    await begin(handlers, GraphDocument({label: TaskNode(label) for label in labels}))
    items = [claim(task_id_of("g", label)) for label in labels]
    answers = await handlers.transition("g", iter(items), keep_alive=beats)
    assert [answer.item for answer in answers] == items
    assert {answer.outcome for answer in answers} == {Outcome.APPLIED}
    assert handlers.counters.commits == beats.count == 3


async def test_a_conflict_is_met_by_reading_and_deciding_again(
    handlers: Handlers, tables: Table, clock: Sleeper
) -> None:
    await begin(handlers)
    tables.instead = [Conflict("x"), Conflict("x"), Conflict("x")]
    (answer,) = await handlers.transition("g", [claim()])
    assert answer.outcome is Outcome.APPLIED
    assert handlers.counters == Counters(commits=1, conflicts=3)
    assert len([keys for _, keys in tables.gets if keys == (row_key(A),)]) >= 4
    assert clock.pauses == pytest.approx([0.02, 0.04, 0.08]), "twice as long each time, at half the bound by chance"


async def test_a_conflict_that_does_not_end_gives_the_message_back(
    handlers: Handlers, tables: Table, clock: Sleeper
) -> None:
    await begin(handlers)
    last = Conflict("the last one")
    tables.instead = [*(Conflict("x") for _ in range(limits.COMMIT_ATTEMPTS_MAX - 1)), last, Conflict("never met")]
    with pytest.raises(Conflict, match=r"^graph g: others kept writing the same rows$") as caught:
        await handlers.transition("g", [claim()])
    assert caught.value.__cause__ is last
    assert handlers.counters.conflicts == limits.COMMIT_ATTEMPTS_MAX
    assert len(clock.pauses) == limits.COMMIT_ATTEMPTS_MAX - 1
    assert max(clock.pauses) == 1.0, "at most 2 s, halved by chance"
    assert clock.pauses == sorted(clock.pauses)


async def test_the_first_pause_is_short_and_no_pause_is_longer_than_two_seconds(
    handlers: Handlers, tables: Table, clock: Sleeper
) -> None:
    await begin(handlers)
    tables.instead = [Conflict("x") for _ in range(12)]
    await handlers.transition("g", [claim()])
    assert clock.pauses == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.64, *[1.0] * 6])


async def test_rows_that_contradict_each_other_are_read_again_before_they_are_called_damaged(
    handlers: Handlers, tables: Table, clock: Sleeper
) -> None:
    """Rows are read one after the other: what looks like damage may be somebody else's commit in between."""
    await begin(handlers)
    await handlers.transition("g", [claim()])
    reset(handlers.counters)
    tables.torn[row_key(B)] = [None, None]
    (answer,) = await handlers.transition("g", [done()])
    assert answer.outcome is Outcome.APPLIED
    assert clock.pauses == pytest.approx([0.02, 0.04])
    assert handlers.counters == Counters(commits=1, dispatched=1), "no conflict, and nothing refused"


async def test_damage_that_stays_is_answered_after_five_readings(
    handlers: Handlers, tables: Table, clock: Sleeper
) -> None:
    await begin(handlers)
    await handlers.transition("g", [claim()])
    tables.put(row_key(B), requiresLeft="{")
    (answer,) = await handlers.transition("g", [done()])
    assert isinstance(answer.error, IntegrityError)
    assert len(clock.pauses) == 5
    assert handlers.counters.refused == 1


async def test_a_relay_that_cannot_pass_on_is_logged_for_nobody_asked_for_it(
    handlers: Handlers, tables: Table, caplog: pytest.LogCaptureFixture
) -> None:
    labels = [f"t{number:03}" for number in range(100)]
    await begin(handlers, GraphDocument({**{n: TaskNode(n) for n in labels}, "z": TaskNode("z", tuple(labels))}))
    join = min(key for key in tables.partitions["g"] if key.startswith("join:"))
    tables.put(join, requiresLeft="[]", state="pending", dependents='["nobody"]')
    with caplog.at_level(logging.ERROR, "taskgraph.handlers"):
        await handlers.transition("g", [Fire(join)])
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    expected = f"graph g: {join} cannot pass on: row task:nobody is missing, though another row names it"
    assert record.getMessage() == expected
    assert tables.columns(join)["state"] == "pending"


# --- sending ---------------------------------------------------------------------------------------------------


async def test_ready_tasks_go_to_their_targets_once_and_in_order(handlers: Handlers, queues: MemoryQueues) -> None:
    x, y, w = (task_id_of("g", label) for label in "xyw")
    effects: list[Effect] = [
        Dispatch(x, 0, "default"),
        Dispatch(y, 1, "gpu"),
        Dispatch(w, 0, "default"),
        Dispatch(x, 0, "default"),
        Dispatch(x, 1, "default"),
    ]
    await handlers.perform_effects("g", effects)
    assert sent(queues) == [RunTasks("g", "default", ((task, run),)) for task, run in ((x, 0), (w, 0), (x, 1))]
    assert sent(queues, "taskgraph-work-gpu") == [RunTasks("g", "gpu", ((y, 1),))]
    assert handlers.counters.dispatched == 4


@pytest.mark.parametrize(
    ("tasks", "sizes"),
    [
        (1, [1]),
        (2, [1, 1]),
        (3, [1, 1, 1]),
        (4, [2, 2]),
        (5, [2, 2, 1]),
        (63, [31, 31, 1]),
        (64, [32, 32]),
        (1_000, [32] * 31 + [8]),
    ],
)
async def test_what_is_ready_goes_into_two_messages_at_least_and_at_most_32_tasks_into_one(
    handlers: Handlers, queues: MemoryQueues, tasks: int, sizes: list[int]
) -> None:
    tasks_of = [(task_id_of("g", str(number)), 0) for number in range(tasks)]
    await handlers.dispatcher.dispatch("g", "default", tasks_of)
    bundled = [told for _, told in wanted(queues)]
    assert [task for told in bundled for task in told] == tasks_of
    assert [len(told) for told in bundled] == sizes
    assert handlers.counters.dispatched == tasks


async def test_what_is_ready_is_shared_out_over_the_workers_heard_of_in_the_last_minute(
    handlers: Handlers, queues: MemoryQueues, clock: Sleeper
) -> None:
    await begin(handlers)
    ready = [(task_id_of("g", str(number)), 0) for number in range(40)]

    async def sizes(*, more: bool = False, size: int = 0) -> list[int]:
        queues.messages.clear()
        handlers.dispatcher.bundle_sizes.in_flight.clear()
        await handlers.dispatcher.dispatch("g", "default", ready, more=more, size=size)
        return [len(told) for _, told in wanted(queues)]

    for number in range(10):
        await handlers.handle("g", [TaskCompleted("g", (result(run=9),), f"w{number}")])
    await handlers.handle("g", [TaskCompleted("g", (result(run=9),), "w0"), TaskCompleted("g", (result(run=9),))])
    assert await sizes() == [4] * 10, "each worker counts once, and whoever does not say its name not at all"
    clock.advance(30)
    await handlers.handle("g", [TaskCompleted("g", (result(run=9),), f"w{n}") for n in range(5)])
    assert await sizes() == [4] * 10
    clock.advance(31)
    assert await sizes() == [8] * 5, "the others have been silent for longer than a minute"
    assert await sizes(more=True) == [32, 8], "there is plenty"
    assert await sizes(size=3) == [3] * 13 + [1], "as asked for"
    clock.advance(60)
    assert await sizes() == [20, 20]


async def test_what_is_under_way_counts_as_well(handlers: Handlers, queues: MemoryQueues) -> None:
    """A stream of few at a time is plenty, too."""
    labels = [f"t{number:03}" for number in range(40)]
    await begin(handlers, GraphDocument({label: TaskNode(label) for label in labels}))
    handlers.dispatcher.bundle_sizes.in_flight.clear()
    ids = [task_id_of("g", label) for label in labels]
    await handlers.dispatcher.dispatch("g", "default", [(task_id, 0) for task_id in ids[:30]])
    queues.messages.clear()
    await handlers.dispatcher.dispatch("g", "default", [(task_id, 0) for task_id in ids[30:]])
    assert [len(told) for _, told in wanted(queues)] == [10], "(10 + 30) // 2"
    assert handlers.dispatcher.bundle_sizes.in_flight == {"g": 40}
    await handlers.transition("g", [claim(task_id) for task_id in ids])
    assert handlers.dispatcher.bundle_sizes.in_flight == {"g": 40}, "nothing has been heard of a claim"
    await handlers.handle("g", [TaskCompleted("g", tuple(result(task_id) for task_id in ids[:25]))])
    assert handlers.dispatcher.bundle_sizes.in_flight == {"g": 15}
    await handlers.handle("g", [TaskFailed("g", tuple(result(task_id, failed=True) for task_id in ids[25:28]))])
    assert handlers.dispatcher.bundle_sizes.in_flight == {"g": 12}
    await handlers.handle("g", [TaskCompleted("g", tuple(result(task_id) for task_id in ids[:20]))])
    assert handlers.dispatcher.bundle_sizes.in_flight == {"g": 0}, (
        "told again: it is an estimate, and never less than nothing"
    )


# --- what a work message says of its tasks -----------------------------------------------------------------------


async def hints(handlers: Handlers, queues: MemoryQueues, *tasks: str, rows: dict[str, Row | None] | None) -> RunTasks:
    queues.messages.clear()
    await handlers.dispatcher.dispatch("g", "default", [(task, 0) for task in tasks or (A,)], rows=rows, size=32)
    (message,) = sent(queues)
    assert isinstance(message, RunTasks)
    return message


@pytest.fixture
async def known(handlers: Handlers, tables: Table) -> dict[str, Row | None]:
    """All rows of a small graph."""
    await begin(handlers)
    handlers.dispatcher.bundle_sizes.in_flight.clear()
    return dict(tables.partitions["g"])


async def test_a_message_says_what_was_seen_of_a_task_that_stands_ready(
    handlers: Handlers, tables: Table, queues: MemoryQueues, known: dict[str, Row | None]
) -> None:
    row = tables.partitions["g"][row_key(A)]
    message = await hints(handlers, queues, rows=known)
    assert message.tasks == ((A, 0),)
    assert message.seen == {A: Seen(row.etag, "a", str(row.columns["task"]), B)}
    claimed = await handlers.transition("g", [claim()], rows={row_key(A): Row(row_key(A), row.etag, row.columns)})
    assert claimed[0].outcome is Outcome.APPLIED, "a claim under that etag holds"


async def test_of_a_row_that_is_not_known_nothing_is_said(
    handlers: Handlers, queues: MemoryQueues, known: dict[str, Row | None]
) -> None:
    assert (await hints(handlers, queues, rows=None)).seen == {}
    assert (await hints(handlers, queues, rows={})).seen == {}
    assert (await hints(handlers, queues, rows={row_key(A): None})).seen == {}
    both = await hints(handlers, queues, A, task_id_of("g", "stranger"), rows=known)
    assert list(both.seen) == [A]
    assert len(both.tasks) == 2


@pytest.mark.parametrize(
    "columns",
    [
        {"task": None},
        {"state": "running"},
        {"state": "unscheduled"},
        {"state": "completed"},
        {"run": 1},
        {"schema": 5},
        {"task": '"' + "x" * 1_000 + '"'},
    ],
    ids=["in another row", "running", "unscheduled", "completed", "another run", "newer", "long"],
)
async def test_only_what_stands_ready_and_is_short_is_said(
    handlers: Handlers, queues: MemoryQueues, known: dict[str, Row | None], columns: dict[str, str | int | None]
) -> None:
    row = known[row_key(A)]
    assert row is not None
    told = {**row.columns, **columns}
    known[row_key(A)] = Row(row.key, row.etag, {name: value for name, value in told.items() if value is not None})
    message = await hints(handlers, queues, rows=known)
    assert message.tasks == ((A, 0),), "it is asked for all the same"
    assert message.seen == {}


async def test_the_next_task_is_named_only_to_who_runs_alone(
    handlers: Handlers, queues: MemoryQueues, known: dict[str, Row | None]
) -> None:
    row, after = known[row_key(A)], known[row_key(B)]
    assert row is not None
    assert after is not None

    async def next_of(**more: Row | None) -> str:
        handlers.dispatcher.bundle_sizes.in_flight.clear()
        found = {**known, **{key.replace("_", ":", 1): each for key, each in more.items()}}
        return (await hints(handlers, queues, rows=found)).seen[A].next

    assert await next_of() == B
    waits_for_more = Row(after.key, after.etag, {**after.columns, "requiresLeft": f'["{A}","{B}"]'})
    known[row_key(B)] = waits_for_more
    assert await next_of() == "", "it waits for another, too"
    known[row_key(B)] = None
    assert await next_of() == ""
    del known[row_key(B)]
    assert await next_of() == "", "nothing is known of it"
    known[row_key(B)] = after
    for dependents in ("[]", f'["{A}","{B}"]', '["task-graph"]', f'["fork:{A}:0"]'):
        known[row_key(A)] = Row(row.key, row.etag, {**row.columns, "dependents": dependents})
        assert await next_of() == "", dependents
    known[row_key(A)] = row
    handlers.dispatcher.bundle_sizes.in_flight["g"] = 1
    assert (await hints(handlers, queues, rows=known)).seen[A].next == "", "something else is under way"


async def test_a_graph_that_ended_leaves_the_live_index_and_whoever_waits_hears_it(
    handlers: Handlers, tables: Table
) -> None:
    await begin(handlers)
    heard: list[tuple[str, GraphState]] = []

    def note(graph_id: str, state: GraphState) -> None:
        heard.append((graph_id, state))

    handlers.listeners.ended += [note, note]
    tables.put(GRAPH, state="finished")
    await handlers.perform_effects("g", [GraphEnded(GraphState.FINISHED)])
    assert heard == [("g", GraphState.FINISHED)] * 2
    assert tables.partitions[LIVE] == {}


async def test_a_graph_with_a_request_that_nobody_heard_of_stays_on_the_live_index(
    handlers: Handlers, tables: Table
) -> None:
    await begin(handlers)
    staged = await extend(handlers, "g", GraphDocument({"x": TaskNode("x", ("a",))}))
    assert await late_requests(handlers.records, "g") == [staged.request]
    await handlers.perform_effects("g", [GraphEnded(GraphState.FINISHED)])
    assert list(tables.partitions[LIVE]) == ["g"]


async def test_a_graph_that_ended_leaves_the_live_index_once_its_late_request_is_refused(
    handlers: Handlers, tables: Table
) -> None:
    await begin(handlers)
    staged = await extend(handlers, "g", GraphDocument({"x": TaskNode("x", ("a",))}))
    tables.put(GRAPH, state="finished")
    await leave_live(handlers.records, "g")
    assert list(tables.partitions[LIVE]) == ["g"], "it has still to be answered"
    await answer_request(handlers, "g", staged.request)
    assert tables.columns(f"request:{staged.request}")["state"] == "refused"
    assert tables.partitions[LIVE] == {}


@pytest.mark.parametrize(
    ("state", "kind", "late"),
    [
        ("staged", "edit", True),
        ("accepted", "add-tasks", False),
        ("accepted", "change", True),
        ("done", "change", False),
        ("refused", "edit", False),
    ],
)
async def test_only_requests_that_are_open_are_late(
    handlers: Handlers, tables: Table, state: str, kind: str, late: bool
) -> None:
    await tables.commit(
        "g", [Insert("request:r", {"state": state, "kind": kind}), Insert("request:r:0000", {"text": "{}"})]
    )
    for other in ("join:x:0", "requested", "task:x"):
        await tables.commit("g", [Insert(other, {"state": "staged"})])
    assert await late_requests(handlers.records, "g") == (["r"] if late else [])
    assert tables.queries[-1][1].select == ("state", "kind"), "no document is read for it"


async def test_a_graph_that_runs_again_is_swept_again(handlers: Handlers, tables: Table, clock: Sleeper) -> None:
    await handlers.perform_effects("g", [GraphRevived()])
    assert tables.columns("g", LIVE) == {"since": clock.now()}
    clock.advance(5)
    await handlers.perform_effects("g", [GraphRevived()])
    assert tables.columns("g", LIVE) == {"since": clock.now()}, "it was there, and is written anew"


async def test_an_unclear_entry_of_the_live_index_is_looked_at(handlers: Handlers, tables: Table) -> None:
    tables.after = [Unclear("lost")]
    await enter_live(handlers.records, "g")
    assert list(tables.partitions[LIVE]) == ["g"]
    tables.instead = [Unclear("lost")]
    with pytest.raises(Unclear):
        await enter_live(handlers.records, "other")
    assert tables.gets[-1] == (LIVE, ("other",))


@pytest.mark.parametrize("error", [Conflict("changed"), Unclear("lost")], ids=["conflict", "unclear"])
async def test_whoever_else_takes_a_graph_off_the_live_index_is_welcome(
    handlers: Handlers, tables: Table, error: Exception
) -> None:
    await leave_live(handlers.records, "g")
    assert tables.written == [], "it is not there"
    await enter_live(handlers.records, "g")
    tables.instead = [error]
    await leave_live(handlers.records, "g")
    assert list(tables.partitions[LIVE]) == ["g"]
    await leave_live(handlers.records, "g")
    assert tables.partitions[LIVE] == {}
    assert isinstance(tables.written[-1][1][0], Delete)


@pytest.mark.parametrize("state", ["running", "blocked", "restoring", "deleting", "submitting", "cancelling"])
async def test_a_graph_that_is_live_again_stays_on_the_live_index(
    handlers: Handlers, tables: Table, state: str
) -> None:
    await tables.commit("g", [Insert(GRAPH, {"state": state})])
    await enter_live(handlers.records, "g")
    await leave_live(handlers.records, "g")
    assert list(tables.partitions[LIVE]) == ["g"]


@pytest.mark.parametrize("before", [GRAPH, "request:"], ids=["after its row was read", "after its requests were read"])
async def test_a_graph_that_enters_the_live_index_while_it_leaves_stays(
    handlers: Handlers, tables: Table, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    await tables.commit("g", [Insert(GRAPH, {"state": "deleted" if before == GRAPH else "finished"})])
    await enter_live(handlers.records, "g")
    get, query = tables.get, tables.query

    async def enter() -> None:
        monkeypatch.undo()
        await enter_live(handlers.records, "g")

    async def get_and_enter(partition: str, keys: Sequence[str]) -> list[Row | None]:
        rows = await get(partition, keys)
        if before == GRAPH and partition == "g":
            await enter()
        return rows

    async def query_and_enter(partition: str, rows: Range, **more: Any) -> Page:
        page = await query(partition, rows, **more)
        await enter()
        return page

    monkeypatch.setattr(tables, "get", get_and_enter)
    monkeypatch.setattr(tables, "query", query_and_enter)
    await leave_live(handlers.records, "g")
    assert list(tables.partitions[LIVE]) == ["g"]
    await leave_live(handlers.records, "g")
    assert tables.partitions[LIVE] == {}, "nothing speaks for it any more"


@pytest.mark.parametrize("anew", [False, True])
async def test_who_has_entered_a_graph_does_not_read_its_entry_unless_others_have_written_it(
    handlers: Handlers, tables: Table, anew: bool
) -> None:
    await tables.commit("g", [Insert(GRAPH, {"state": "finished"})])
    known = await enter_live(handlers.records, "g")
    if anew:
        await enter_live(handlers.records, "g")
        await tables.commit("g", [Insert("request:r", {"state": "staged"})])
    tables.gets.clear()
    await leave_live(handlers.records, "g", known)
    assert tables.gets == []
    assert list(tables.partitions[LIVE]) == (["g"] if anew else [])
    if anew:
        await tables.commit("g", [Merge("request:r", tables.partitions["g"]["request:r"].etag, {"state": "done"})])
        await leave_live(handlers.records, "g", known)
        assert tables.gets == [(LIVE, ("g",))]
        assert tables.partitions[LIVE] == {}


async def test_an_entry_of_the_live_index_that_goes_while_it_is_written_anew_is_made_again(
    handlers: Handlers, tables: Table, clock: Sleeper
) -> None:
    await enter_live(handlers.records, "g")
    clock.advance(5)
    tables.instead = [Conflict("it was there"), Conflict("it is gone")]
    await enter_live(handlers.records, "g")
    assert tables.columns("g", LIVE) == {"since": clock.now()}


# --- extensions --------------------------------------------------------------------------------------------------


async def test_an_extension_of_an_unknown_graph_and_an_unknown_extension(handlers: Handlers) -> None:
    with pytest.raises(NotFound, match=r"^there is no graph g$"):
        await answer_request(handlers, "g", "r")
    await begin(handlers)
    with pytest.raises(NotFound, match=r"^graph g has no request r$"):
        await answer_request(handlers, "g", "r")


@pytest.mark.parametrize("state", ["done", "refused"])
async def test_an_extension_that_was_answered_is_left_alone(handlers: Handlers, tables: Table, state: str) -> None:
    await begin(handlers)
    await tables.commit("g", [Insert("request:r", {"state": state})])
    tables.written.clear()
    await answer_request(handlers, "g", "r")
    assert tables.written == []
    assert tables.gets == [("g", ("request:r", GRAPH))], "not even its document is read"
    assert tables.queries == []


async def test_a_request_without_a_valid_document_is_an_integrity_error(handlers: Handlers, tables: Table) -> None:
    await begin(handlers)
    await tables.commit("g", [Insert("request:r", {"state": "staged"})])
    expected = r"^request r of graph g holds no valid document$"
    with pytest.raises(IntegrityError, match=expected) as caught:
        await answer_request(handlers, "g", "r")
    assert isinstance(caught.value.__cause__, TaskgraphError)


def wide(count: int, prefix: str) -> GraphDocument:
    return GraphDocument({f"{prefix}{n:03}": TaskNode(f"{prefix}{n:03}", ("a",)) for n in range(count)})


async def test_an_extension_under_way_is_brought_to_its_end_first(
    handlers: Handlers, tables: Table, beats: Beats
) -> None:
    await begin(handlers)
    large = await extend(handlers, "g", wide(150, "x"))
    small = await extend(handlers, "g", GraphDocument({"y": TaskNode("y", ("a",))}))
    tables.written.clear()
    tables.after = [StorageUnavailable("503")]
    with pytest.raises(StorageUnavailable):
        await answer_request(handlers, "g", large.request)
    assert tables.columns(GRAPH)["extending"] == large.request
    await answer_request(handlers, "g", small.request, keep_alive=beats)
    assert tables.columns(f"request:{large.request}")["state"] == "done"
    assert tables.columns(f"request:{small.request}")["state"] == "done"
    assert tables.columns(GRAPH)["extending"] == ""
    assert tables.columns(GRAPH)["tasks"] == 2 + 150 + 1
    commits = [changes for partition, changes in tables.written if partition == "g"]
    assert beats.count == 2 + len(commits) - 1, "each plan, and each commit but the one that failed"


class Meddler(Table):
    """Somebody else acts at a commit into the graph, once: before it is made."""

    meddle: list[object] = []  # noqa: RUF012

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        if partition == "g" and self.meddle:
            act = self.meddle.pop(0)
            if callable(act):
                await act()
        return await super().commit(partition, changes)


@pytest.mark.parametrize("size", [1, 150], ids=["small", "large"])
@pytest.mark.parametrize("at", range(5))
async def test_two_who_push_the_same_extension_do_it_once(
    handlers: Handlers, tables: Table, queues: MemoryQueues, clock: Sleeper, size: int, at: int
) -> None:
    await begin(handlers)
    staged = await extend(handlers, "g", wide(size, "x"))
    tables.__class__ = Meddler
    assert isinstance(tables, Meddler)
    other = Handlers(Records(tables, clock), queues, clock)

    async def idle() -> None:
        pass

    async def push() -> None:
        await answer_request(other, "g", staged.request)

    tables.meddle = [*[idle] * at, push]
    await answer_request(handlers, "g", staged.request)
    tables.meddle = []
    assert tables.columns(f"request:{staged.request}")["state"] == "done"
    assert tables.columns(GRAPH)["tasks"] == 2 + size
    assert tables.columns(GRAPH)["revision"] == 1
    assert len([key for key in tables.partitions["g"] if key.startswith("task:")]) == 2 + size


@pytest.mark.parametrize("size", [1, 150], ids=["small", "large"])
async def test_an_extension_is_planned_again_when_another_was_accepted_meanwhile(
    handlers: Handlers, tables: Table, queues: MemoryQueues, clock: Sleeper, size: int
) -> None:
    await begin(handlers)
    first = await extend(handlers, "g", wide(size, "x"))
    second = await extend(handlers, "g", GraphDocument({"y": TaskNode("y", ("a",))}))
    tables.__class__ = Meddler
    assert isinstance(tables, Meddler)
    other = Handlers(Records(tables, clock), queues, clock)

    async def push() -> None:
        await answer_request(other, "g", second.request)

    tables.meddle = [push]
    await answer_request(handlers, "g", first.request)
    assert {tables.columns(f"request:{each.request}")["state"] for each in (first, second)} == {"done"}
    assert tables.columns(GRAPH)["tasks"] == 2 + size + 1
    assert tables.columns(GRAPH)["revision"] == 2


async def test_a_request_that_disappears_is_an_integrity_error(handlers: Handlers, tables: Table) -> None:
    await begin(handlers)
    staged = await extend(handlers, "g", wide(150, "x"))
    key = f"request:{staged.request}"
    tables.after = [Conflict("412 on the own write")]
    real = tables.partitions["g"][key]
    tables.torn[key] = [real, None, None]
    with pytest.raises(IntegrityError, match=f"^graph g: row {key} is gone$"):
        await answer_request(handlers, "g", staged.request)


@pytest.mark.parametrize("answer", [Conflict("412 on the own write"), Unclear("lost")], ids=["conflict", "unclear"])
@pytest.mark.parametrize("at", range(1, 5))
async def test_an_extension_goes_on_after_an_answer_that_was_lost(
    handlers: Handlers, tables: Table, answer: Exception, at: int
) -> None:
    await begin(handlers)
    staged = await extend(handlers, "g", wide(150, "x"))
    tables.__class__ = Meddler
    assert isinstance(tables, Meddler)

    async def idle() -> None:
        pass

    async def lose() -> None:
        tables.after = [answer]

    tables.meddle = [*[idle] * (at - 1), lose]
    await answer_request(handlers, "g", staged.request)
    assert tables.columns(f"request:{staged.request}")["state"] == "done"
    assert tables.columns(GRAPH)["tasks"] == 2 + 150


async def test_a_request_that_cannot_be_seen_for_a_moment_is_looked_for_again(
    handlers: Handlers, tables: Table, queues: MemoryQueues, clock: Sleeper
) -> None:
    await begin(handlers)
    staged = await extend(handlers, "g", wide(150, "x"))
    key = f"request:{staged.request}"
    tables.__class__ = Meddler
    assert isinstance(tables, Meddler)
    other = Handlers(Records(tables, clock), queues, clock)

    async def push() -> None:
        await answer_request(other, "g", staged.request)
        tables.torn[key] = [tables.partitions["g"][key], None]

    tables.meddle = [push]
    await answer_request(handlers, "g", staged.request)
    assert tables.torn[key] == []
    assert tables.columns(key)["state"] == "done"


async def test_a_plan_for_one_commit_is_dropped_when_others_have_begun_it_in_steps(
    handlers: Handlers, tables: Table
) -> None:
    """They planned it at another revision: the rows of this plan are not those that the graph waits for."""
    await begin(handlers)
    staged = await extend(handlers, "g", GraphDocument({"x": TaskNode("x", ("a",))}))
    tables.__class__ = Meddler
    assert isinstance(tables, Meddler)

    async def accepted_in_steps() -> None:
        tables.put(f"request:{staged.request}", state="accepted", cursor=0, tasks=1)
        tables.put(GRAPH, extending=staged.request, revision=1)

    tables.meddle = [accepted_in_steps]
    await answer_request(handlers, "g", staged.request)
    assert tables.columns(f"request:{staged.request}")["state"] == "done"
    assert str(tables.columns(row_key(task_id_of("g", "x")))["dependents"]).startswith('["join:')


async def test_a_step_that_cannot_be_decided_raises_its_error(handlers: Handlers, tables: Table) -> None:
    await begin(handlers)
    staged = await extend(handlers, "g", GraphDocument({"x": TaskNode("x", ("a",))}))
    tables.put(row_key(A), dependents="{")
    with pytest.raises(IntegrityError, match="dependents"):
        await answer_request(handlers, "g", staged.request)


def keys_of(changes: Iterable[Change]) -> set[str]:
    return {change.key for change in changes}


async def test_every_row_of_a_transition_is_written_under_the_etag_that_was_read(
    handlers: Handlers, tables: Table
) -> None:
    await begin(handlers)
    await handlers.transition("g", [claim()])
    before = {key: row.etag for key, row in tables.partitions["g"].items()}
    await handlers.transition("g", [done()])
    ((_, changes),) = [each for each in tables.written if len(each[1]) > 1]
    assert keys_of(changes) == {row_key(A), row_key(B), "event:0000000002"}
    assert all(change.etag == before[change.key] for change in changes if isinstance(change, Merge))
