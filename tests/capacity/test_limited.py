"""The account with limits: what is charged, what is refused, and that the production tries are what bears it."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError

from taskgraph.model.errors import Conflict, StaleDelivery, StorageUnavailable, Unclear
from taskgraph.rehearsal.virtual_time import LoopClock, VirtualLoop, end_all
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Insert, Merge, Range
from tests.capacity.limited import Account, Bucket, LimitedStore
from tests.capacity.model import Latencies, Limits

Work = Callable[[Account, Any, Any], Awaitable[None]]
LATENCIES = Latencies(read=0.1, commit=0.2, queue=0.3, blob=0.4)


def play(work: Work, limits: Limits, seed: int = 1) -> None:
    """Run a coroutine over tables and queues of an account, in virtual time."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    clock = LoopClock(loop, random.Random(seed))
    account = Account(limits, LATENCIES, clock, random.Random(seed))
    store = LimitedStore(account, clock)
    try:
        loop.run_until_complete(work(account, store.tables("t"), store.queues()))
    finally:
        end_all(loop)
        loop.close()
        asyncio.set_event_loop(None)


class Clock:
    """Seconds by hand."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def test_a_bucket_fills_at_its_rate_and_may_go_into_debt() -> None:
    clock: Any = Clock()
    bucket = Bucket(10.0, 20.0, clock)
    assert bucket.wait_seconds() == 0
    bucket.take(100)
    assert bucket.wait_seconds() == pytest.approx(8.0), "80 too many, at ten a second"
    clock.seconds = 8.1
    assert bucket.wait_seconds() == 0
    clock.seconds = 1000.0
    bucket.wait_seconds()
    bucket.take(20)
    assert bucket.wait_seconds() == 0.0 or bucket.wait_seconds() < 1e-9, "no more than a burst is kept"
    bucket.take(1)
    assert bucket.wait_seconds() == pytest.approx(0.1)
    assert bucket.taken == 121


def test_every_request_is_charged_where_it_belongs_and_takes_its_time() -> None:
    async def work(account: Account, tables: Any, queues: Any) -> None:
        clock = account.clock
        first, second = await tables.commit("g", [Insert("a", {"n": 1}), Insert("b", {"n": 2})])
        assert clock.monotonic() == pytest.approx(0.2, rel=0.2)
        assert account.partition("g").taken == 2
        assert [row.columns["n"] if row else None for row in await tables.get("g", ["a", "b", "c"])] == [1, 2, None]
        assert clock.monotonic() == pytest.approx(0.3, rel=0.2), "three requests at once"
        assert account.partition("g").taken == 5
        assert len((await tables.query("g", Range())).rows) == 2
        assert account.partition("g").taken == 7
        assert not (await tables.query("other", Range())).rows
        assert account.partition("other").taken == 1
        await tables.commit("g", [Merge("a", first, {"n": 3})])
        with pytest.raises(Conflict):
            await tables.commit("g", [Merge("a", first, {"n": 4}), Merge("b", second, {"n": 4})])
        assert account.partition("g").taken == 9, "a conflict costs one"
        assert account.account.taken == 8
        await queues.send("queue", ["one", "two"])
        one, two = await queues.receive("queue", count=32, lease_seconds=30)
        renewed = await queues.renew(one, lease_seconds=30)
        await queues.delete(renewed)
        await queues.delete(two)
        with pytest.raises(StaleDelivery):
            await queues.delete(one)
        assert await queues.receive("queue", lease_seconds=30) == []
        assert await queues.count("queue") == 0
        assert account.queue("queue").taken == 2 + 2 + 1 + 3 + 1 + 1
        assert account.account.taken == 8 + 9
        assert account.let_through == 17
        assert not account.refused

    play(work, Limits(1e6, 1e6, 1e6))


def test_what_is_refused_is_tried_again_as_the_production_adapter_does() -> None:
    async def work(account: Account, tables: Any, queues: Any) -> None:
        clock = account.clock
        await tables.commit("g", [Insert(f"row{n:03}", {}) for n in range(50)])
        began, refused = clock.monotonic(), account.refused["partition"]
        with pytest.raises(StorageUnavailable, match="503 ServerBusy"):
            await tables.get("g", ["row000"])  # 39 too many, at one a second: four tries do not wait so long
        assert account.refused["partition"] == refused + 4
        assert clock.monotonic() - began > 1.0
        with pytest.raises(Unclear, match="503 ServerBusy"):
            await tables.commit("g", [Insert("more", {})])
        assert account.refused["partition"] == refused + 5, "a conditional write is never repeated"
        await tables.commit("other", [Insert("more", {})])  # limits are of a partition
        await clock.sleep(60)
        assert await tables.get("g", ["more"]) == [None], "nothing was written"

    play(work, Limits(partition_entities=1, account_requests=1e6, queue_messages=1e6, burst_seconds=10))


def test_a_short_shortage_is_borne_by_the_tries() -> None:
    async def work(account: Account, tables: Any, queues: Any) -> None:
        await queues.send("queue", [str(n) for n in range(60)])
        assert account.refused["queue"] > 0
        found: list[Delivery] = []
        while len(found) < 60:
            try:
                found += await queues.receive("queue", count=32, lease_seconds=600)
            except StorageUnavailable:  # a receive is not repeated by the adapter: its answer may have been lost
                await account.clock.sleep(1.0)
        assert sorted(int(each.body) for each in found) == list(range(60)), "nothing is lost, and nothing doubled"

    play(work, Limits(partition_entities=1e6, account_requests=1e6, queue_messages=20, burst_seconds=0.5))


def test_a_refusal_says_when_to_come_again() -> None:
    async def work(account: Account, tables: Any, queues: Any) -> None:
        async def act() -> tuple[None, int]:
            return None, 30

        await account.request(0.0, ("partition", account.partition("g")), act)
        with pytest.raises(HttpResponseError) as caught:
            await account.request(0.0, ("partition", account.partition("g")), act)
        assert caught.value.status_code == 503
        assert caught.value.response is not None
        headers: Any = caught.value.response.headers  # type: ignore[attr-defined]
        assert float(headers["Retry-After"]) == pytest.approx(2.0)
        account.enforced = False
        await account.request(0.0, ("partition", account.partition("g")), act)

    play(work, Limits(partition_entities=10, account_requests=1e6, queue_messages=1e6, burst_seconds=1))


def test_pages_shrink_with_the_limit() -> None:
    async def work(account: Account, tables: Any, queues: Any) -> None:
        for start in range(0, 150, 50):
            await tables.commit("g", [Insert(f"row{n:03}", {}) for n in range(start, start + 50)])
        await account.clock.sleep(60)
        page = await tables.query("g", Range())
        assert len(page.rows) == 100
        assert len((await tables.query("g", Range(), continuation=page.continuation)).rows) == 50

    play(work, Limits(partition_entities=200, account_requests=1e6, queue_messages=1e6))


def test_stillness_is_when_nobody_asks_for_anything() -> None:
    async def work(account: Account, tables: Any, queues: Any) -> None:
        await tables.commit("g", [Insert("a", {})])
        for _ in range(20):
            assert await queues.receive("queue", lease_seconds=30) == []
            await account.clock.sleep(0.7)
        await tables.commit("g", [Insert("b", {})])
        assert account.still_seconds == pytest.approx(20 * 1.0, abs=0.3)
        await account.clock.sleep(1.0)
        await tables.commit("g", [Insert("c", {})])
        assert account.still_seconds == pytest.approx(20 * 1.0, abs=0.3), "a short pause is none"

    play(work, Limits(1e6, 1e6, 1e6))
