"""The small Functions host when its queue does not answer: it says so, goes on, and loses no message.

One listener in this process, over queues that fail as they are told to; the calls themselves are answered here.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from taskgraph.model.clock import SystemClock
from taskgraph.model.errors import StaleDelivery, StorageUnavailable, TooLarge
from taskgraph.model.flag import Flag
from taskgraph.storage.queues import Delivery
from taskgraph_functions_host.host import FunctionsHost, Source, _QueueListener
from taskgraph_functions_host.local import Function, HostJson
from taskgraph_functions_host.worker_process import Answer, WorkerDied, WorkerProcess

GONE = StorageUnavailable("no answer")
BINDING: dict[str, Any] = {"type": "queueTrigger", "name": "message", "queueName": "work", "connection": "Store"}
FUNCTION = Function("work", "id", "queueTrigger", "message", [BINDING], queue="work", connection="Store")


class Queue:
    """A queue of one message, which notes what is asked of it. fails: call -> what it raises, once."""

    def __init__(self, fails: Mapping[str, Exception], *, dequeue_count: int = 1) -> None:
        self.fails = dict(fails)
        self.left = [Delivery("work", "m1", "r0", "body", dequeue_count)]
        self.asked: list[str] = []

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if error := self.fails.pop(what, None):
            raise error

    async def receive(self, queue: str, *, count: int, lease_seconds: float) -> list[Delivery]:
        self._ask("receive")
        found, self.left = self.left, []
        return found

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        self._ask("offer" if lease_seconds == 0 else "renew")
        return delivery

    async def delete(self, delivery: Delivery) -> None:
        self._ask("delete")

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        self._ask(f"send {queue}")


class Host(FunctionsHost):
    """A host whose functions are answered by the test, after so many seconds."""

    def __init__(self, *, succeeded: bool = True, seconds: float = 0.0) -> None:
        self.said: list[str] = []

        async def nothing(*_: Any) -> Any:
            raise AssertionError("no worker is started here")

        super().__init__(
            nothing, nothing, {}, HostJson(base64=False), SystemClock(),
            lambda level, what, about: self.said.append(what), lock_seconds=0.1,
        )  # fmt: skip
        self.up.set()
        self._answer = Answer(succeeded, "Error", "as it was told to")
        self._seconds = seconds

    async def call(self, *_: Any) -> Answer:
        await asyncio.sleep(self._seconds)
        return self._answer


async def listened(host: Host, queue: Queue, last: str) -> None:
    """Let a listener run until this was asked of the queue."""
    stop = Flag()
    source: Any = Source(queue, None)  # type: ignore[arg-type]
    running = asyncio.create_task(_QueueListener(host, FUNCTION, source).run(stop))
    async with asyncio.timeout(10):
        while last not in queue.asked or host._in_hand:
            await asyncio.sleep(0.01)
        stop.set()
        await running


async def test_a_queue_that_does_not_answer_is_asked_again() -> None:
    host, queue = Host(), Queue({"receive": GONE})
    await listened(host, queue, "delete")
    assert queue.asked[:2] == ["receive", "receive"]
    assert queue.asked.count("delete") == 1
    assert host.said == ["queue-trouble", "queue-answers"]


async def test_a_lock_that_could_not_be_renewed_is_renewed_soon_again() -> None:
    host, queue = Host(seconds=0.2), Queue({"renew": GONE})
    await listened(host, queue, "delete")
    assert queue.asked.count("renew") >= 2
    assert host.said == ["lock-trouble"]


async def test_a_lock_that_is_lost_is_left_to_who_has_it() -> None:
    host, queue = Host(seconds=0.2), Queue({"renew": StaleDelivery("taken"), "delete": StaleDelivery("taken")})
    await listened(host, queue, "delete")
    assert queue.asked.count("renew") == 1
    assert host.said == ["lock-lost", "not-deleted"]


async def test_a_message_that_could_not_be_offered_comes_when_its_lock_ends() -> None:
    host, queue = Host(succeeded=False), Queue({"offer": GONE})
    await listened(host, queue, "offer")
    assert host.said == ["not-offered"]


@pytest.mark.parametrize("error", [GONE, TooLarge("more than fits"), ValueError("no text")])
async def test_a_message_that_could_not_be_set_aside_is_not_deleted(error: Exception) -> None:
    host, queue = Host(succeeded=False), Queue({"send work-poison": error}, dequeue_count=5)
    await listened(host, queue, "send work-poison")
    assert "delete" not in queue.asked
    assert host.said == ["not-set-aside"]


async def test_a_worker_that_ends_before_it_has_indexed_leaves_nothing_behind(tmp_path: Path) -> None:
    """The interpreter of this process has no worker library."""
    with pytest.raises(WorkerDied, match="before it had indexed"):
        await WorkerProcess.start(Path(sys.executable), tmp_path, {}, lambda line: None)
