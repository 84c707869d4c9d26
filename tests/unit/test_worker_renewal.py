"""A worker renews its work messages side by side, and one that fails holds nothing up."""

import asyncio
from pathlib import Path
from typing import Any

from taskgraph import Client
from taskgraph.model import limits
from taskgraph.model.errors import StaleDelivery, StorageUnavailable
from taskgraph.model.flag import Flag
from taskgraph.storage.queues import Delivery
from taskgraph.worker.executors import built_in
from taskgraph.worker.messages import CALLS_AT_ONCE
from taskgraph.worker.values import WorkMessage


class Renewals:
    """Queues of which each call of a full round waits for the others of it."""

    def __init__(self) -> None:
        self.renewed: list[str] = []
        self.open = self.most = 0
        self.full = Flag()

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        self.open += 1
        self.most = max(self.most, self.open)
        if self.open == CALLS_AT_ONCE:
            self.full.set()
        await self.full.wait()
        self.open -= 1
        if delivery.id == "0":
            raise StorageUnavailable("no answer")
        if delivery.id == "1":
            raise StaleDelivery("gone")
        self.renewed.append(delivery.id)
        return delivery


async def test_messages_are_renewed_side_by_side_and_a_failure_delays_no_other(tmp_path: Path) -> None:
    async with Client(f"sqlite:///{tmp_path}/store.db") as client:
        app = client.app
        worker = app.worker(built_in(app.clock), targets=["default"], slots=1)
        queues: Any = Renewals()
        app.handlers.queues = queues
        many = 2 * CALLS_AT_ONCE + 5
        for number in range(many):
            worker._messages.keep(WorkMessage(Delivery("q", str(number), "{}", "receipt", 1)))
        async with asyncio.timeout(10):
            await worker._lease.renew()
        assert sorted(map(int, queues.renewed)) == list(range(2, many))
        assert queues.most == CALLS_AT_ONCE < limits.RECEIVE_MAX * 2
