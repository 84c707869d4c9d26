"""The transport that fails: each of its faults is what its name says, and the store above reads it rightly."""

import secrets
from collections.abc import AsyncIterator

import pytest

from taskgraph.model.clock import SystemClock
from taskgraph.model.errors import StorageUnavailable, Unclear
from taskgraph.storage.azure.account import AzureStore
from taskgraph.storage.tables import Insert, Merge
from tests.chaos.launcher import faulty_store, real_transport
from tests.chaos.transport import FaultyTransport, Killed, Plan

pytestmark = pytest.mark.azurite


class Bench:
    """One table and one queue, made before, so that the first request of a store is the one that a test is about."""

    def __init__(self, connection: str, plain: AzureStore) -> None:
        self.connection = connection
        self.plain = plain
        self.prefix = f"t{secrets.token_hex(6)}"
        self._stores: list[AzureStore] = []

    @property
    def queue(self) -> str:
        return f"{self.prefix}-q"

    def store(self, plan: Plan) -> tuple[AzureStore, FaultyTransport]:
        def die(request: str) -> None:
            raise Killed(request)

        transport = FaultyTransport(real_transport(), plan, die=die)
        store = faulty_store(self.connection, SystemClock(), transport)
        self._stores.append(store)
        return store, transport

    async def rows(self) -> list[str]:
        found = await self.plain.tables(self.prefix).get("p", ["a", "b"])
        return [row.key for row in found if row is not None]

    async def close(self) -> None:
        for store in self._stores:
            await store.close()
        await self.plain.close()


@pytest.fixture
async def bench(azurite: str) -> AsyncIterator[Bench]:
    bench = Bench(azurite, AzureStore.from_connection_string(azurite, SystemClock()))
    await bench.plain.tables(bench.prefix).commit("p", [Insert("before", {"n": 0})])
    await bench.plain.queues().send(bench.queue, ["before"])
    yield bench
    await bench.close()


BOTH = [Insert("a", {"n": 1}), Insert("b", {"n": 2})]


@pytest.mark.parametrize("changes", [BOTH, BOTH[:1]], ids=["transaction", "single row"])
@pytest.mark.parametrize(
    ("kind", "error", "written"),
    [
        ("refuse", StorageUnavailable, False),
        ("drop", Unclear, True),
        ("500", Unclear, True),
        ("503", Unclear, True),
        ("kill-before", Killed, False),
        ("kill-after", Killed, True),
    ],
)
async def test_a_commit_meets_each_fault(
    bench: Bench, changes: list[Insert], kind: str, error: type[BaseException], written: bool
) -> None:
    store, transport = bench.store(Plan(at=1, kind=kind))
    with pytest.raises(error):
        await store.tables(bench.prefix).commit("p", changes)
    assert transport.hit.startswith("POST ")
    assert await bench.rows() == ([change.key for change in changes] if written else [])


async def test_a_delayed_commit_is_done(bench: Bench) -> None:
    store, transport = bench.store(Plan(at=1, kind="delay", delay_seconds=0.01))
    await store.tables(bench.prefix).commit("p", BOTH)
    assert await bench.rows() == ["a", "b"]
    assert transport.calls == 1


@pytest.mark.parametrize("kind", ["drop", "503"])
async def test_a_write_under_an_etag_whose_answer_is_lost_is_unclear(bench: Bench, kind: str) -> None:
    (row,) = await bench.plain.tables(bench.prefix).get("p", ["before"])
    assert row is not None
    store, _ = bench.store(Plan(at=1, kind=kind))
    with pytest.raises(Unclear):
        await store.tables(bench.prefix).commit("p", [Merge("before", row.etag, {"n": 7})])
    (after,) = await bench.plain.tables(bench.prefix).get("p", ["before"])
    assert after is not None
    assert after.columns["n"] == 7


@pytest.mark.parametrize("kind", ["refuse", "drop", "500", "503"])
async def test_a_read_is_simply_made_again(bench: Bench, kind: str) -> None:
    store, transport = bench.store(Plan(at=1, kind=kind))
    (row,) = await store.tables(bench.prefix).get("p", ["before"])
    assert row is not None
    assert transport.calls == 2


@pytest.mark.parametrize(("kind", "copies"), [("refuse", 1), ("drop", 2), ("503", 2)])
async def test_a_message_is_sent_at_least_once(bench: Bench, kind: str, copies: int) -> None:
    store, _ = bench.store(Plan(at=1, kind=kind))
    await store.queues().send(bench.queue, ["again"])
    found = await bench.plain.queues().receive(bench.queue, count=32, lease_seconds=30)
    assert sorted(each.body for each in found) == ["again"] * copies + ["before"]


async def test_messages_of_a_lost_answer_stay_hidden_and_are_not_asked_for_again(bench: Bench) -> None:
    store, transport = bench.store(Plan(at=1, kind="drop"))
    with pytest.raises(StorageUnavailable):
        await store.queues().receive(bench.queue, lease_seconds=30)
    assert transport.calls == 1
    assert await bench.plain.queues().receive(bench.queue, lease_seconds=30) == []


async def test_the_dead_send_nothing_more(bench: Bench) -> None:
    store, transport = bench.store(Plan(at=2, kind="kill-before"))
    tables = store.tables(bench.prefix)
    await tables.get("p", ["before"])
    for _ in range(3):
        with pytest.raises(Killed):
            await tables.commit("p", BOTH)
    assert transport.calls == 2
    assert await bench.rows() == []


async def test_rates_are_drawn_from_the_seed(bench: Bench) -> None:
    async def story(seed: int) -> list[str]:
        store, transport = bench.store(Plan(rates={"refuse": 0.3}, seed=seed))
        told = []
        for n in range(12):
            try:
                await store.tables(bench.prefix).commit("p", [Insert(f"{seed}-{n}-{len(told)}", {})])
                told.append("done")
            except StorageUnavailable:
                told.append("refused")
        assert transport.calls == 12
        return told

    first = await story(1)
    assert {"done", "refused"} == set(first)
    assert first != await story(2)


def test_a_plan_survives_the_environment() -> None:
    plan = Plan(at=3, kind="drop", rates={"503": 0.5}, seed=9, record="/tmp/r")
    assert Plan.from_text(plan.to_text()) == plan
    with pytest.raises(ValueError, match="no such fault"):
        Plan(at=1, kind="dorp")
