"""The sweep to the letter: which rows it takes up, at which age, what it sends, what it counts, and what it leaves."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.engine import sweep as module
from taskgraph.engine.commit import Records
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.live_index import ORPHAN_SECONDS, enter_live
from taskgraph.engine.submission import extend, submit
from taskgraph.engine.sweep import QUEUE_FULL, Swept, is_due, sweep, sweep_graph
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, StorageUnavailable, Unclear
from taskgraph.model.ids import GRAPH, row_key, task_id_of
from taskgraph.model.messages import AddTasks, RunTasks, parse
from taskgraph.model.names import ALL, LIVE, QueueNames, listing_key
from taskgraph.protocol.runs import Claim
from taskgraph.queries.graphs import Queries
from taskgraph.queries.values import GraphsWanted
from taskgraph.storage.tables import Change, Delete, Insert, Row
from taskgraph.testing import HurriedClock, MemoryQueues, MemoryTables

pytestmark = pytest.mark.usefixtures("settled")

A, B = task_id_of("g", "a"), task_id_of("g", "b")
PAIR = GraphDocument({"a": TaskNode("a"), "b": TaskNode("b", ("a",))})
T = limits.REDISPATCH_SECONDS


class Table(MemoryTables):
    """Raises what it is told to, in place of commits into one partition."""

    def __init__(self) -> None:
        super().__init__()
        self.instead: dict[str, list[Exception]] = {}
        self.written: list[tuple[str, tuple[Change, ...]]] = []

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        if self.instead.get(partition):
            raise self.instead[partition].pop(0)
        self.written.append((partition, tuple(changes)))
        return await super().commit(partition, changes)

    def put(self, key: str, partition: str = "g", **columns: Any) -> None:
        row = self.partitions[partition][key]
        kept = {name: value for name, value in {**row.columns, **columns}.items() if value is not None}
        self.partitions[partition][key] = Row(key, row.etag + "+", kept)


@pytest.fixture
def clock() -> HurriedClock:
    return HurriedClock()


@pytest.fixture
def tables() -> Table:
    return Table()


@pytest.fixture
def queues(clock: HurriedClock) -> MemoryQueues:
    return MemoryQueues(clock)


@pytest.fixture
def handlers(tables: Table, queues: MemoryQueues, clock: HurriedClock) -> Handlers:
    return Handlers(Records(tables, clock), queues, clock)


async def begin(handlers: Handlers, document: GraphDocument = PAIR, graph: str = "g") -> None:
    """Submit a graph whose messages are lost."""
    await submit(handlers, graph, document)
    assert isinstance(handlers.queues, MemoryQueues)
    assert isinstance(handlers.records.tables, Table)
    handlers.queues.messages.clear()
    handlers.records.tables.written.clear()


def sent(queues: MemoryQueues, queue: str = "taskgraph-work-default") -> list[object]:
    return [parse(body) for _, _, _, body in queues.messages.get(queue, {}).values()]


# --- when ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "due"),
    [
        (0.0, False),
        (T - 0.001, False),
        (T, True),
        (T + 44.9, True),
        (T + 45, False),
        (2 * T - 0.001, False),
        (2 * T, True),
        (2 * T + 44.9, True),
        (2 * T + 45, False),
        (4 * T - 0.001, False),
        (4 * T, True),
        (7 * T, False),
        (8 * T, True),
        (64 * T, True),
        (63 * T, False),
        (256 * T, True),
        (384 * T, False),
        (512 * T, True),
        (768 * T, True),  # seldom, and not ever more seldom: a clock that was behind makes what is new look old
        (1_024 * T - 0.001, False),
        (525_568 * T, True),
    ],
)
def test_a_hint_is_repeated_at_doubling_ages_within_one_and_a_half_rounds(age: float, due: bool) -> None:
    assert is_due(age, 30.0) is due


@pytest.mark.parametrize("period", [0.0, 0.5, 1.0])
def test_rounds_that_come_faster_than_a_second_count_as_a_second(period: float) -> None:
    assert is_due(T + 1.4, period)
    assert not is_due(T + 1.5, period)


async def test_rounds_as_far_apart_as_they_are_said_to_be(handlers: Handlers, clock: HurriedClock) -> None:
    await begin(handlers)
    clock.advance(T + 50)
    assert (await sweep(handlers)).reminded == 0, "an earlier round has said it, with rounds every 30 s"
    assert (await sweep(handlers, period_seconds=120.0)).reminded == 1
    swept = Swept()
    await sweep_graph(handlers, "g", swept)
    await sweep_graph(handlers, "g", swept, period_seconds=120.0)
    assert (swept.reminded, swept.graphs) == (1, 2)


# --- what ------------------------------------------------------------------------------------------------------


async def test_a_task_that_stands_ready_unheard_is_sent_again(
    handlers: Handlers, queues: MemoryQueues, clock: HurriedClock, tables: Table
) -> None:
    await begin(handlers)
    clock.advance(T - 1)
    assert await sweep(handlers) == Swept(graphs=1)
    assert sent(queues) == []
    clock.advance(1)
    assert await sweep(handlers) == Swept(graphs=1, reminded=1)
    assert sent(queues) == [RunTasks("g", "default", ((A, 0),))]
    assert tables.written == [], "a reminder changes no row"


async def test_every_task_is_sent_to_its_own_target(
    handlers: Handlers, queues: MemoryQueues, clock: HurriedClock, tables: Table
) -> None:
    await begin(handlers, GraphDocument({label: TaskNode(label) for label in "abc"}))
    tables.put(row_key(A), target="gpu", run=3)
    tables.put(row_key(B), target=None, run=None)
    clock.advance(T)
    assert (await sweep(handlers)).reminded == 3
    assert sent(queues, "taskgraph-work-gpu") == [RunTasks("g", "gpu", ((A, 3),))]
    named = {task: run for each in sent(queues) for task, run in each.tasks}  # type: ignore[attr-defined]
    assert named == {B: 0, task_id_of("g", "c"): 0}, "what says nothing is the default, in its first run"


async def test_a_task_that_does_not_say_since_when_it_is_ready_is_sent(
    handlers: Handlers, tables: Table, queues: MemoryQueues
) -> None:
    await begin(handlers)
    tables.put(row_key(A), pendingSince=None)
    assert (await sweep(handlers)).reminded == 1
    tables.put(row_key(A), run="two")
    assert await sweep(handlers) == Swept(graphs=1), "damaged: doctor names it"


async def test_whoever_resumes_a_graph_alone_is_reminded_of_everything_at_once(
    handlers: Handlers, queues: MemoryQueues, tables: Table
) -> None:
    await begin(handlers)
    staged = await extend(handlers, "g", GraphDocument({"x": TaskNode("x", ("a",))}))
    queues.messages.clear()
    await queues.send("taskgraph-work-default", ["x"] * QUEUE_FULL)
    swept = Swept()
    await sweep_graph(handlers, "g", swept, at_once=True)
    assert swept == Swept(graphs=1, reminded=1, request_resent=1)
    assert await queues.count("taskgraph-work-default") == QUEUE_FULL + 1, "full or not"
    assert sent(queues, "taskgraph-events") == [AddTasks("g", staged.request)]


@pytest.mark.parametrize(
    ("waiting", "age", "reminded"),
    [
        (QUEUE_FULL - 1, 8 * T, 1),
        (QUEUE_FULL, 8 * T, 0),
        (QUEUE_FULL, 16 * T, 1),
    ],
)
async def test_a_full_queue_is_reminded_only_of_what_has_waited_very_long(
    handlers: Handlers, queues: MemoryQueues, clock: HurriedClock, waiting: int, age: float, reminded: int
) -> None:
    await begin(handlers)
    await queues.send("taskgraph-work-default", ["x"] * waiting)
    clock.advance(age)
    assert (await sweep(handlers)).reminded == reminded
    assert await queues.count("taskgraph-work-default") == waiting + reminded


async def test_very_long_is_ten_times_as_long_as_the_first_reminder(
    handlers: Handlers, queues: MemoryQueues, clock: HurriedClock
) -> None:
    await begin(handlers)
    await queues.send("taskgraph-work-default", ["x"] * QUEUE_FULL)
    clock.advance(10 * T - 1)
    assert (await sweep(handlers, period_seconds=1e6)).reminded == 0
    clock.advance(1)
    assert (await sweep(handlers, period_seconds=1e6)).reminded == 1


@pytest.mark.parametrize(("seconds", "lost"), [(-1, 1), (0, 0), (1, 0)])
async def test_a_lease_that_has_ended_is_lost(
    handlers: Handlers, tables: Table, clock: HurriedClock, seconds: int, lost: int
) -> None:
    await begin(handlers)
    until = clock.now() + timedelta(seconds=100)
    await handlers.transition("g", [Claim(A, 0, "c", "w", until)])
    clock.advance(100 - seconds)
    assert (await sweep(handlers)).lease_lost == lost
    row = tables.partitions["g"][row_key(A)].columns
    assert (row["run"], row["state"]) == ((1, "pending") if lost else (0, "running"))


async def test_a_running_task_is_not_reminded_of_and_one_without_a_lease_is_left_to_doctor(
    handlers: Handlers, tables: Table, queues: MemoryQueues, clock: HurriedClock
) -> None:
    await begin(handlers)
    await handlers.transition("g", [Claim(A, 0, "c", "w", clock.now() + timedelta(days=1))])
    clock.advance(T)
    assert await sweep(handlers) == Swept(graphs=1)
    tables.put(row_key(A), leaseUntil=None)
    assert await sweep(handlers) == Swept(graphs=1)
    assert sent(queues) == []


WIDE = [f"t{number:03}" for number in range(100)]


async def test_relays_that_stand_ready_are_fired(handlers: Handlers, tables: Table, clock: HurriedClock) -> None:
    """Whoever made them ready died before the next commit."""
    document = GraphDocument(
        {
            "root": TaskNode("root"),
            **{n: TaskNode(n, ("root",)) for n in WIDE},
            "z": TaskNode("z", tuple(WIDE)),
        }
    )
    await begin(handlers, document)
    relays = [key for key in tables.partitions["g"] if key.startswith(("join:", "fork:"))]
    kinds = {key.split(":")[0]: key for key in relays}
    assert kinds.keys() == {"join", "fork"}
    for key in kinds.values():
        tables.put(key, state="pending", requiresLeft="[]")
    swept = await sweep(handlers)
    assert swept == Swept(graphs=1, relay_fired=2), "a relay is no task: it is not sent to workers"
    assert {tables.partitions["g"][key].columns["state"] for key in kinds.values()} == {"completed"}
    assert (await sweep(handlers)).relay_fired == 0


async def test_what_cannot_be_repaired_is_named_and_does_not_stop_the_round(
    handlers: Handlers, tables: Table, clock: HurriedClock
) -> None:
    document = GraphDocument({**{n: TaskNode(n) for n in WIDE}, "z": TaskNode("z", tuple(WIDE))})
    await begin(handlers, document)
    join = min(key for key in tables.partitions["g"] if key.startswith("join:"))
    tables.put(join, state="pending", requiresLeft="[]", dependents='["nobody"]')
    clock.advance(T)
    swept = await sweep(handlers)
    assert swept.failed == ["g: row task:nobody is missing, though another row names it"]
    assert (swept.relay_fired, swept.reminded) == (1, 100)


async def test_many_repairs_are_handed_on_in_portions(
    handlers: Handlers, tables: Table, clock: HurriedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = GraphDocument({label: TaskNode(label) for label in WIDE[:7]})
    await begin(handlers, document)
    ids = [task_id_of("g", label) for label in WIDE[:7]]
    await handlers.transition("g", [Claim(each, 0, "c", "w", clock.now()) for each in ids])
    clock.advance(1)
    monkeypatch.setattr(module, "_ITEMS_MAX", 3)
    tables.written.clear()
    assert (await sweep(handlers)).lease_lost == 7
    assert [len([c for c in changes if c.key.startswith("task:")]) for _, changes in tables.written] == [3, 3, 1]
    assert {tables.partitions["g"][row_key(each)].columns["run"] for each in ids} == {1}


async def test_a_damaged_task_does_not_hide_the_others(handlers: Handlers, tables: Table) -> None:
    await begin(handlers, GraphDocument({label: TaskNode(label) for label in "abc"}))
    first, *others = sorted(task_id_of("g", label) for label in "abc")
    tables.put(row_key(first), run="two")
    for each in others:
        tables.put(row_key(each), pendingSince=None)
    assert (await sweep(handlers)).reminded == 2


async def test_a_run_that_nobody_claimed_under_a_name_is_lost_too(
    handlers: Handlers, tables: Table, clock: HurriedClock
) -> None:
    await begin(handlers)
    await handlers.transition("g", [Claim(A, 0, "c", "w", clock.now())])
    tables.put(row_key(A), claim=None)
    clock.advance(1)
    assert (await sweep(handlers)).lease_lost == 1
    assert tables.partitions["g"][row_key(A)].columns["run"] == 1


# --- requests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "resent"), [("staged", 1), ("accepted", 1), ("done", 0), ("refused", 0)])
async def test_an_extension_that_is_not_answered_is_sent_again(
    handlers: Handlers, tables: Table, queues: MemoryQueues, clock: HurriedClock, state: str, resent: int
) -> None:
    await begin(handlers)
    await tables.commit("g", [Insert("request:r", {"state": state, "staged": clock.now()})])
    await handlers.transition("g", [Claim(A, 0, "c", "w", clock.now() + timedelta(days=1))])
    clock.advance(T - 1)
    assert (await sweep(handlers)).request_resent == 0
    clock.advance(1)
    assert await sweep(handlers) == Swept(graphs=1, request_resent=resent)
    assert sent(queues, "taskgraph-events") == [AddTasks("g", "r")] * resent
    clock.advance(50)
    assert (await sweep(handlers)).request_resent == 0
    assert (await sweep(handlers, period_seconds=60)).request_resent == resent


async def test_a_request_that_does_not_say_since_when_it_waits_is_sent(handlers: Handlers, tables: Table) -> None:
    await begin(handlers)
    for key in ("join:x:0", "request:r", "requests"):
        await tables.commit("g", [Insert(key, {"state": "accepted"})])
    assert (await sweep(handlers)).request_resent == 1


# --- graphs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["finished", "cancelled"])
async def test_a_graph_that_has_ended_leaves_the_index(handlers: Handlers, tables: Table, state: str) -> None:
    await begin(handlers)
    tables.put(GRAPH, state=state)
    tables.put(row_key(A), pendingSince=None)
    assert await sweep(handlers) == Swept(graphs=1, index_mended=1), "and nothing else of it is looked at"
    assert tables.partitions[LIVE] == {}
    assert await sweep(handlers) == Swept()


@pytest.mark.parametrize("state", ["running", "blocked"])
async def test_other_branches_of_a_blocked_graph_go_on(
    handlers: Handlers, tables: Table, clock: HurriedClock, state: str
) -> None:
    await begin(handlers)
    tables.put(GRAPH, state=state)
    clock.advance(T)
    assert (await sweep(handlers)).reminded == 1
    assert list(tables.partitions[LIVE]) == ["g"]


@pytest.mark.parametrize(("over", "abandoned"), [(0, 0), (1, 1)])
async def test_a_submission_is_abandoned_once_it_is_older_than_a_day(
    handlers: Handlers, tables: Table, clock: HurriedClock, over: int, abandoned: int
) -> None:
    await begin(handlers)
    tables.put(GRAPH, state="submitting", created=clock.now())
    clock.advance(limits.ABANDONED_SECONDS + over)
    assert await sweep(handlers) == Swept(graphs=1, abandoned=abandoned), "nothing of it is sent"
    assert tables.partitions["g"][GRAPH].columns["state"] == ("cancelled" if abandoned else "submitting")


async def test_a_submission_that_does_not_say_since_when_it_is_written_is_left_alone(
    handlers: Handlers, tables: Table, clock: HurriedClock
) -> None:
    await begin(handlers)
    tables.put(GRAPH, state="submitting", created=None)
    clock.advance(10 * limits.ABANDONED_SECONDS)
    assert await sweep(handlers) == Swept(graphs=1)


@pytest.mark.parametrize(("seconds", "mended"), [(ORPHAN_SECONDS, 0), (ORPHAN_SECONDS + 1, 1)])
async def test_a_name_without_a_graph_is_dropped_after_an_hour(
    handlers: Handlers, tables: Table, clock: HurriedClock, seconds: float, mended: int
) -> None:
    await enter_live(handlers.records, "ghost")
    clock.advance(seconds)
    assert await sweep(handlers) == Swept(graphs=1, index_mended=mended)
    assert list(tables.partitions[LIVE]) == ([] if mended else ["ghost"])


@pytest.mark.parametrize("fresh", [True, False])
async def test_what_a_submission_that_died_has_listed_is_not_shown_and_goes_with_its_name(
    handlers: Handlers, tables: Table, clock: HurriedClock, fresh: bool
) -> None:
    queries = Queries(tables, MemoryQueues(clock), clock, QueueNames())
    clock.advance(1)
    tables.instead["g"] = [StorageUnavailable("it died")]
    with pytest.raises(StorageUnavailable):
        await submit(handlers, "g", PAIR, fresh=fresh)
    assert len(tables.partitions[LIVE]) == len(tables.partitions[ALL]) == 1
    assert await queries.graphs() == []
    clock.advance(ORPHAN_SECONDS + 1)
    assert (await sweep(handlers)).index_mended == 1
    assert not tables.partitions[LIVE]
    assert not tables.partitions[ALL]


async def test_an_entry_of_another_moment_hides_no_graph(
    handlers: Handlers, tables: Table, clock: HurriedClock
) -> None:
    """A submission died as it listed the graph, and had not written it; another one began anew."""
    queries = Queries(tables, MemoryQueues(clock), clock, QueueNames())
    await begin(handlers)
    before = await queries.graphs()
    later = clock.now() + timedelta(seconds=5)
    await tables.commit(
        ALL, [Insert(listing_key("g", later), {"graph": "g", "created": later, "name": "", "tasks": 2})]
    )
    assert [each.graph_id for each in before] == ["g"]
    await tables.commit(ALL, [Insert(listing_key("h", later), {"graph": "h", "created": later, "name": ""})])
    assert await queries.graphs() == await queries.graphs(wanted=GraphsWanted("running")) == before


async def test_a_name_without_a_graph_and_without_a_time_stays(
    handlers: Handlers, tables: Table, clock: HurriedClock
) -> None:
    await enter_live(handlers.records, "ghost")
    tables.put("ghost", LIVE, since=None)
    clock.advance(10 * ORPHAN_SECONDS)
    assert (await sweep(handlers)).index_mended == 0
    swept = Swept()
    await sweep_graph(handlers, "ghost", swept)
    assert swept == Swept(graphs=1), "who looks at one graph knows nothing of the index"


@pytest.mark.parametrize("error", [Conflict("changed"), Unclear("lost")], ids=["conflict", "unclear"])
async def test_a_name_that_others_change_is_looked_at_in_the_next_round(
    handlers: Handlers, tables: Table, clock: HurriedClock, error: Exception
) -> None:
    await enter_live(handlers.records, "ghost")
    clock.advance(2 * ORPHAN_SECONDS)
    tables.instead[LIVE] = [error]
    assert await sweep(handlers) == Swept(graphs=1, index_mended=0)
    row = tables.partitions[LIVE]["ghost"]
    assert (await sweep(handlers)).index_mended == 1
    assert tables.written[-1] == (LIVE, (Delete("ghost", row.etag),))


async def test_every_live_graph_is_looked_at_and_a_busy_one_stops_no_round(
    handlers: Handlers, tables: Table, clock: HurriedClock
) -> None:
    for graph in ("g", "h"):
        await begin(handlers, PAIR, graph)
        until: datetime = clock.now()
        await handlers.transition(graph, [Claim(task_id_of(graph, "a"), 0, "c", "w", until)])
        clock.advance(1)
    tables.instead["g"] = [Conflict("busy") for _ in range(limits.COMMIT_ATTEMPTS_MAX)]
    swept = await sweep(handlers)
    assert (swept.graphs, swept.lease_lost) == (2, 2)
    assert swept.failed == ["g: graph g: others kept writing the same rows"]
    assert tables.partitions["h"][row_key(task_id_of("h", "a"))].columns["run"] == 1


async def test_a_round_counts_over_all_graphs(handlers: Handlers, tables: Table, clock: HurriedClock) -> None:
    for number in range(2):
        await enter_live(handlers.records, f"ghost{number}")
        await begin(handlers, PAIR, f"ended{number}")
        tables.put(GRAPH, f"ended{number}", state="finished")
        await begin(handlers, PAIR, f"begun{number}")
        tables.put(GRAPH, f"begun{number}", state="submitting", created=clock.now())
        await begin(handlers, PAIR, f"open{number}")
        await tables.commit(f"open{number}", [Insert("request:r", {"state": "staged"})])
    clock.advance(limits.ABANDONED_SECONDS + 1)
    swept = await sweep(handlers)
    assert (swept.graphs, swept.abandoned, swept.index_mended, swept.request_resent) == (8, 2, 4, 2)


async def test_a_store_that_cannot_be_reached_ends_the_round(
    handlers: Handlers, tables: Table, clock: HurriedClock
) -> None:
    await begin(handlers)
    await handlers.transition("g", [Claim(A, 0, "c", "w", clock.now())])
    clock.advance(1)
    tables.instead["g"] = [StorageUnavailable("503")]
    with pytest.raises(StorageUnavailable):
        await sweep(handlers)
