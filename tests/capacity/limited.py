"""A storage account with limits, in virtual time: what the service refuses beyond them, and how the adapter bears it.

What this room is for: the tables and queues of `taskgraph.testing` behind token buckets. Each request takes a
while; one that finds a bucket empty is refused with 503 and the seconds after which to come again, and changes nothing.
What follows is the adapter's own doing: every request goes through the production `Caller`, with the repeats that the
production adapters ask of it. It never looks into a row or a message.

What is charged: each request one of the account; each row that is asked for, given or written one entity of its
partition; each message that is put, received, renewed or deleted one message of its queue, and an empty receive or a
count one too. A refused request is charged nothing.
"""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from azure.core.exceptions import HttpResponseError

from taskgraph.model.clock import Clock
from taskgraph.storage import checks
from taskgraph.storage.azure.calls import Caller, Repeat, in_parallel
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Change, Page, Range, Row
from taskgraph.testing import MemoryQueues, MemoryTables
from tests.capacity.model import Latencies, Limits

T = TypeVar("T")

ENDPOINT: Final = "the simulated account"
STILL_SECONDS: Final = 3.0
"""Longer than any pause between two tries of one call."""


class Bucket:
    """So many tokens a second, and at most a burst of them in stock.

    A request is let through while there are any, and taken whole: a commit of a hundred rows is never starved by small
    requests, and leaves a debt that the next ones wait for.
    """

    def __init__(self, rate: float, burst: float, clock: Clock) -> None:
        self.rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = burst
        self._at = clock.monotonic()
        self.taken = 0.0

    def wait_seconds(self) -> float:
        """0 if a request may pass, else when the next one may."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self.rate)
        self._at = now
        return 0.0 if self._tokens > 0 else -self._tokens / self.rate

    def take(self, tokens: float) -> None:
        """Charge a request."""
        self._tokens -= tokens
        self.taken += tokens


class _Refusal:
    """The answer of a service that is busy, as the SDK hands it on."""

    status_code = 503
    reason = "Server Busy"
    content_type = "application/json"

    request = None

    def __init__(self, seconds: float) -> None:
        self.headers = {"x-ms-error-code": "ServerBusy", "Retry-After": f"{seconds:.3f}"}

    def text(self, encoding: str | None = None) -> str:
        return '{"odata.error":{"code":"ServerBusy"}}'


@dataclass
class Account:
    """The service's side: one account, what it holds, and what it has let through.

    enforced: whether limits hold just now. refused: which limit, and how often. on_commit: told the partition and the
    changes of each commit, once it is done. empty: receives that gave nothing, by queue. waits: how long each message
    lay there that was received the first time. still_seconds: for how long nothing was let through but receives that
    gave nothing, in stretches of STILL_SECONDS or more: everybody waits for the lease of somebody who has given up.
    """

    limits: Limits
    latencies: Latencies
    clock: Clock
    rng: random.Random
    enforced: bool = True
    on_commit: Callable[[str, Sequence[Change]], None] | None = None
    refused: Counter[str] = field(default_factory=Counter)
    let_through: int = 0
    empty: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    still_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.tables = MemoryTables()
        self.queues = MemoryQueues(self.clock)
        self._sent: dict[str, float] = {}  # message -> since when it may be received
        self.reset()

    def reset(self) -> None:
        """Fill all buckets, and forget what was counted."""
        self.account = self._bucket(self.limits.account_requests)
        self.partitions: dict[str, Bucket] = {}
        self.queue_buckets: dict[str, Bucket] = {}
        self.refused.clear()
        self.let_through = 0
        self.empty.clear()
        self.waits.clear()
        self.still_seconds = 0.0
        self._stirred = self.clock.monotonic()

    def _stir(self) -> None:
        now = self.clock.monotonic()
        if now - self._stirred >= STILL_SECONDS:
            self.still_seconds += now - self._stirred
        self._stirred = now

    def put(self, queue: str, delay_seconds: float) -> None:
        """Remember when the message was put that is the last of this queue."""
        self._sent[next(reversed(self.queues.messages[queue]))] = self.clock.monotonic() + delay_seconds

    def took(self, message: str) -> None:
        """A message is received."""
        since = self._sent.pop(message, None)
        if since is not None:
            self.waits.append(self.clock.monotonic() - since)

    @property
    def page_rows(self) -> int:
        """Rows of one page: 1,000 at the published limit, which is half a second's worth, and no more at a lower one.

        Pages may be short; and one that costs many seconds' worth would be an effect of the scale alone.
        """
        return max(1, int(self.limits.partition_entities / 2))

    def _bucket(self, rate: float) -> Bucket:
        return Bucket(rate, rate * self.limits.burst_seconds, self.clock)

    def partition(self, name: str) -> Bucket:
        """The bucket of a table's partition."""
        return self.partitions.setdefault(name, self._bucket(self.limits.partition_entities))

    def queue(self, name: str) -> Bucket:
        """The bucket of a queue."""
        return self.queue_buckets.setdefault(name, self._bucket(self.limits.queue_messages))

    async def request(
        self, seconds: float, bucket: tuple[str, Bucket] | None, act: Callable[[], Awaitable[tuple[T, int]]]
    ) -> T:
        """One request: there, done or refused, and back. act: gives the answer, and what it costs in the bucket.

        The cost of reading is known when it is done; a bucket that is not empty lets any request through.
        """
        half = seconds * self.rng.uniform(0.4, 0.6)  # not in step with everybody else's
        await self.clock.sleep(half)
        for name, each in (("account", self.account), *([bucket] if bucket else ())):
            wait = each.wait_seconds() if self.enforced else 0.0
            if wait:
                self.refused[name] += 1
                await self.clock.sleep(half)
                error = HttpResponseError(message="Server Busy", response=_Refusal(wait))
                error.error_code = "ServerBusy"  # type: ignore[attr-defined]  # as the SDK's policies do
                raise error
        empty = self.empty.total()
        try:
            answer, cost = await act()
        except Exception:
            # Refused for its content: it has been looked at all the same.
            self._charge(bucket, 1)
            self._stir()
            await self.clock.sleep(half)
            raise
        self._charge(bucket, cost)
        if self.empty.total() == empty:
            self._stir()
        await self.clock.sleep(half)
        return answer

    def _charge(self, bucket: tuple[str, Bucket] | None, cost: int) -> None:
        self.let_through += 1
        self.account.take(1)
        if bucket:
            bucket[1].take(cost)


class LimitedTables:
    """Port Tables: requests and repeats as in taskgraph/storage/azure/tables.py."""

    def __init__(self, account: Account, caller: Caller) -> None:
        self._account = account
        self._caller = caller

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        """See Tables. One request for each key."""
        checks.check_get(partition, keys)
        if not keys:
            return []
        account = self._account

        async def one(key: str) -> Row | None:
            async def act() -> tuple[Row | None, int]:
                (row,) = await account.tables.get(partition, [key])
                return row, 1

            return await self._call(partition, account.latencies.read, act, Repeat.ALWAYS)

        return await in_parallel(one, keys)

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        """See Tables."""
        checks.check_query(partition, rows, limit)

        async def act() -> tuple[Page, int]:
            most = min(limit, self._account.page_rows)
            page = await self._account.tables.query(partition, rows, limit=most, continuation=continuation)
            return page, max(1, len(page.rows))

        return await self._call(partition, self._account.latencies.read, act, Repeat.ALWAYS)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        """See Tables. Never repeated: a 503 leaves open what was done, and the caller settles it."""
        checks.check_commit(partition, changes)

        async def act() -> tuple[list[str | None], int]:
            etags = await self._account.tables.commit(partition, changes)
            if self._account.on_commit is not None:
                self._account.on_commit(partition, changes)
            return etags, len(changes)

        return await self._call(partition, self._account.latencies.commit, act, Repeat.NEVER)

    async def _call(
        self, partition: str, seconds: float, act: Callable[[], Awaitable[tuple[T, int]]], repeat: Repeat
    ) -> T:
        account = self._account

        def work() -> Awaitable[T]:
            return account.request(seconds, ("partition", account.partition(partition)), act)

        return await self._caller.call(work, repeat)


class LimitedQueues:
    """Port Queues: requests and repeats as in taskgraph/storage/azure/queues.py."""

    def __init__(self, account: Account, caller: Caller) -> None:
        self._account = account
        self._caller = caller

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        """See Queues. One request for each message."""
        checks.check_send(queue, bodies, delay_seconds)
        if not bodies:
            return

        async def one(body: str) -> None:
            async def act() -> tuple[None, int]:
                await self._account.queues.send(queue, [body], delay_seconds=delay_seconds)
                self._account.put(queue, delay_seconds)
                return None, 1

            await self._call(queue, act, Repeat.ALWAYS)

        await in_parallel(one, bodies)

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        """See Queues."""
        checks.check_receive(queue, count, lease_seconds)

        async def act() -> tuple[list[Delivery], int]:
            found = await self._account.queues.receive(queue, count=count, lease_seconds=lease_seconds)
            for delivery in found:
                self._account.took(delivery.id)
            self._account.empty[queue] += not found
            return found, max(1, len(found))

        return await self._call(queue, act, Repeat.UNSENT)

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        """See Queues."""
        checks.check_renew(lease_seconds)

        async def act() -> tuple[Delivery, int]:
            return await self._account.queues.renew(delivery, lease_seconds=lease_seconds), 1

        return await self._call(delivery.queue, act, Repeat.UNSENT)

    async def delete(self, delivery: Delivery) -> None:
        """See Queues."""

        async def act() -> tuple[None, int]:
            return await self._account.queues.delete(delivery), 1  # type: ignore[func-returns-value]

        await self._call(delivery.queue, act, Repeat.ALWAYS)

    async def count(self, queue: str) -> int:
        """See Queues."""
        checks.check_queue_name(queue)

        async def act() -> tuple[int, int]:
            return await self._account.queues.count(queue), 1

        return await self._call(queue, act, Repeat.ALWAYS)

    async def _call(self, queue: str, act: Callable[[], Awaitable[tuple[T, int]]], repeat: Repeat) -> T:
        account = self._account

        def work() -> Awaitable[T]:
            return account.request(account.latencies.queue, ("queue", account.queue(queue)), act)

        return await self._caller.call(work, repeat)


class LimitedLogs:
    """Port Logs: an append is one request of the account, as in taskgraph/storage/azure/logs.py; nothing is kept."""

    def __init__(self, account: Account, caller: Caller) -> None:
        self._account = account
        self._caller = caller

    def url(self, graph_id: str, task_id: str, run: int, name: str = "run.log") -> str:
        """See Logs."""
        return f"memory:{graph_id}/{task_id}/{run}/{name}"

    async def append(self, graph_id: str, task_id: str, run: int, data: bytes, name: str = "run.log") -> None:
        """See Logs."""

        async def act() -> tuple[None, int]:
            return None, 1

        await self._caller.call(lambda: self._account.request(self._account.latencies.blob, None, act), Repeat.UNSENT)

    async def read(
        self, graph_id: str, task_id: str, run: int, *, offset: int = 0, limit: int = 1 << 20, name: str = "run.log"
    ) -> bytes | None:
        """See Logs."""
        return None


class LimitedStore:
    """What one process opens, in place of taskgraph.storage.azure.account.AzureStore.

    wrapped: puts something around each port, such as a count of its calls.
    """

    def __init__(
        self, account: Account, clock: Clock, wrapped: Callable[[str, Any], Any] = lambda _, port: port
    ) -> None:
        self._account = account
        self._caller = Caller(ENDPOINT, clock, lambda: False)
        self._wrapped = wrapped

    def tables(self, name: str) -> Any:
        """The one table."""
        return self._wrapped("tables", LimitedTables(self._account, self._caller))

    def queues(self) -> Any:
        """All queues."""
        return self._wrapped("queues", LimitedQueues(self._account, self._caller))

    def logs(self) -> Any:
        """All logs."""
        return self._wrapped("logs", LimitedLogs(self._account, self._caller))

    table_endpoint = ENDPOINT
    site = None  # no browser comes here

    def partition_signer(self) -> None:
        """Nothing here is signed: there is no key."""

    files_signer = changes_signer = partition_signer

    async def close(self) -> None:
        """Nothing is open."""
