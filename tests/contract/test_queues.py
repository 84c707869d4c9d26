"""The promises of the port Queues, kept by every store."""

import asyncio
import json
import sqlite3

import pytest
from azure.storage.queue.aio import QueueServiceClient

from taskgraph.model import limits
from taskgraph.model.errors import StaleDelivery, TooLarge
from taskgraph.storage.queues import Delivery, Queues
from taskgraph.storage.sqlite.store import EmbeddedStore
from taskgraph.testing import MemoryStore
from tests.conftest import OpenStore

LEASE = 30.0


async def receive_one(queues: Queues, queue: str, lease_seconds: float = LEASE) -> Delivery:
    [delivery] = await queues.receive(queue, lease_seconds=lease_seconds)
    return delivery


async def test_a_message_comes_once_and_is_gone_when_deleted(store: OpenStore) -> None:
    queues, queue = store.queues, store.queue()
    await queues.send(queue, ["hello"])
    delivery = await receive_one(queues, queue)
    assert (delivery.queue, delivery.body, delivery.dequeue_count) == (queue, "hello", 1)
    assert await queues.receive(queue, lease_seconds=LEASE) == [], "it is leased"
    assert await queues.count(queue) == 1, "leased messages count"
    await queues.delete(delivery)
    assert await queues.count(queue) == 0


async def test_a_queue_that_nobody_has_used_is_empty(store: OpenStore) -> None:
    assert await store.queues.count(store.queue("a")) == 0
    assert await store.queues.receive(store.queue("b"), count=32, lease_seconds=LEASE) == []
    await store.queues.send(store.queue("c"), [])
    assert await store.queues.count(store.queue("c")) == 0


async def test_queues_are_apart(store: OpenStore) -> None:
    queues = store.queues
    await queues.send(store.queue("a"), ["for a"])
    assert await queues.receive(store.queue("b"), lease_seconds=LEASE) == []
    delivery = await receive_one(queues, store.queue("a"))
    with pytest.raises(StaleDelivery):
        await queues.delete(Delivery(store.queue("b"), delivery.id, delivery.receipt, "", 1))
    await queues.delete(delivery)


async def test_up_to_32_messages_come_at_once(store: OpenStore) -> None:
    queues, queue = store.queues, store.queue()
    bodies = [f"message {n}" for n in range(40)]
    await queues.send(queue, bodies)
    first = await queues.receive(queue, count=32, lease_seconds=LEASE)
    second = await queues.receive(queue, count=32, lease_seconds=LEASE)
    assert (len(first), len(second)) == (32, 8)
    assert sorted(d.body for d in first + second) == sorted(bodies)
    assert len({d.id for d in first + second}) == 40


async def test_a_lease_ends_and_the_message_comes_again(store: OpenStore) -> None:
    queues, queue = store.queues, store.queue()
    await queues.send(queue, ["again"])
    first = await receive_one(queues, queue, lease_seconds=1)
    await store.pass_time(1.2)
    second = await receive_one(queues, queue)
    assert (second.id, second.body, second.dequeue_count) == (first.id, "again", 2)
    assert second.receipt != first.receipt
    for stale in (queues.delete(first), queues.renew(first, lease_seconds=LEASE)):
        with pytest.raises(StaleDelivery):
            await stale
    await queues.delete(second)


async def test_a_lapsed_lease_that_nobody_took_can_still_be_ended(store: OpenStore) -> None:
    queues, queue = store.queues, store.queue()
    await queues.send(queue, ["a"])
    delivery = await receive_one(queues, queue, lease_seconds=1)
    await store.pass_time(1.2)
    await queues.delete(delivery)
    assert await queues.count(queue) == 0


async def test_renewing_keeps_the_message_and_changes_the_receipt(store: OpenStore) -> None:
    queues, queue = store.queues, store.queue()
    await queues.send(queue, ["kept <body>"])
    first = await receive_one(queues, queue, lease_seconds=1)
    second = await queues.renew(first, lease_seconds=LEASE)
    assert second.receipt != first.receipt
    assert (second.queue, second.id, second.body, second.dequeue_count) == (queue, first.id, "kept <body>", 1)
    await store.pass_time(1.2)
    assert await queues.receive(queue, lease_seconds=LEASE) == [], "the new lease holds"
    with pytest.raises(StaleDelivery):
        await queues.delete(first)
    with pytest.raises(StaleDelivery):
        await queues.renew(first, lease_seconds=LEASE)
    await queues.delete(second)
    with pytest.raises(StaleDelivery):
        await queues.delete(second)
    with pytest.raises(StaleDelivery):
        await queues.renew(second, lease_seconds=LEASE)


async def test_renewing_for_no_time_gives_the_message_back_with_its_body(store: OpenStore) -> None:
    queues, queue = store.queues, store.queue()
    await queues.send(queue, ["given back"])
    first = await receive_one(queues, queue)
    await queues.renew(first, lease_seconds=0)
    second = await receive_one(queues, queue)
    assert (second.id, second.body, second.dequeue_count) == (first.id, "given back", 2)
    with pytest.raises(StaleDelivery):
        await queues.delete(first)


async def test_a_delayed_message_is_hidden_until_then(store: OpenStore) -> None:
    queues, queue = store.queues, store.queue()
    await queues.send(queue, ["later"], delay_seconds=2)
    await queues.send(queue, ["in a week"], delay_seconds=limits.DELAY_SECONDS_MAX)
    assert await queues.receive(queue, count=32, lease_seconds=LEASE) == []
    assert await queues.count(queue) == 2, "hidden messages count"
    await store.pass_time(2.2)
    assert [d.body for d in await queues.receive(queue, count=32, lease_seconds=LEASE)] == ["later"]


async def test_part_of_a_second_is_not_nothing(store: OpenStore) -> None:
    queues, queue = store.queues, store.queue()
    await queues.send(queue, ["a"], delay_seconds=0.9)
    assert await queues.receive(queue, lease_seconds=LEASE) == []
    await store.pass_time(1.2)
    delivery = await receive_one(queues, queue, lease_seconds=0.9)
    assert await queues.receive(queue, lease_seconds=LEASE) == []
    await queues.renew(delivery, lease_seconds=0.9)
    assert await queues.receive(queue, lease_seconds=LEASE) == []


async def test_messages_never_expire(store: OpenStore, request: pytest.FixtureRequest) -> None:
    queues, queue = store.queues, store.queue()
    await queues.send(queue, ["for ever"])
    if store.clock is not None:
        store.clock.advance(365 * 24 * 3600)
        assert (await receive_one(queues, queue)).body == "for ever"
        return
    async with QueueServiceClient.from_connection_string(request.getfixturevalue("azurite")) as service:
        [message] = await service.get_queue_client(queue).peek_messages()
        assert message.expires_on is not None
        assert message.expires_on.year == 9999, "time_to_live -1; the default is seven days"
        assert message.content == "for ever", "plain text, as other programs write and read it"


BODIES = [
    '{"type":"run","tasks":["a","b"]}',
    "<a>&amp;</a>]]>&#13;",
    " leading and trailing ",
    "\n",
    "a\n\tb",
    "äöü ß 日本",
    "😀 𝄞 🏳️‍🌈",
    "'\"\\",
    "\u2028\u2029\x7f\x85\ufeff",
    json.dumps("carriage\rreturn, nul\0"),
]


async def test_bodies_come_back_as_they_were_sent(store: OpenStore) -> None:
    queues, queue = store.queues, store.queue()
    await queues.send(queue, BODIES)
    found = await queues.receive(queue, count=32, lease_seconds=LEASE)
    assert sorted(d.body for d in found) == sorted(BODIES)


@pytest.mark.parametrize("text", ["x", "é", "😀", "<", "&"])
async def test_a_message_may_have_48_kibibytes(store: OpenStore, text: str) -> None:
    queues, queue = store.queues, store.queue()
    count = limits.MESSAGE_BYTES_MAX // len(text.encode())
    await queues.send(queue, [text * count])
    assert (await receive_one(queues, queue)).body == text * count
    with pytest.raises(
        TooLarge, match=f"{limits.MESSAGE_BYTES_MAX + 1} bytes; the limit is {limits.MESSAGE_BYTES_MAX}"
    ):
        await queues.send(queue, ["small", text * count + "x"])
    assert await queues.count(queue) == 1, "nothing is sent if one of the messages is too long"


@pytest.mark.parametrize("body", ["", "\0", "a\x01b", "a\rb", "\ud800", "\ufffe", "\x1b[0m"])
async def test_what_no_queue_brings_back_is_refused(store: OpenStore, body: str) -> None:
    with pytest.raises(ValueError, match="message for queue"):
        await store.queues.send(store.queue(), ["small", body])
    assert await store.queues.count(store.queue()) == 0


async def test_bounds_are_checked(store: OpenStore) -> None:
    queues, queue = store.queues, store.queue()
    for delay in (-1, limits.DELAY_SECONDS_MAX + 1, float("nan")):
        with pytest.raises(ValueError, match="delay"):
            await queues.send(queue, ["a"], delay_seconds=delay)
    for count in (0, 33):
        with pytest.raises(ValueError, match="1 to 32"):
            await queues.receive(queue, count=count, lease_seconds=LEASE)
    for lease in (0, -1, limits.DELAY_SECONDS_MAX + 1):
        with pytest.raises(ValueError, match="lease"):
            await queues.receive(queue, lease_seconds=lease)
    await queues.send(queue, ["a"])
    delivery = await receive_one(queues, queue)
    for lease in (-1, limits.DELAY_SECONDS_MAX + 1):
        with pytest.raises(ValueError, match="lease"):
            await queues.renew(delivery, lease_seconds=lease)
    for name in ("ab", "Upper-Case", "a--b", "-abc", "abc-", "a_b", "a" * 64, "a.b"):
        with pytest.raises(ValueError, match="queue name"):
            await queues.send(name, ["a"])


async def test_eight_consumers_get_each_message_once(store: OpenStore) -> None:
    queues, queue = store.queues, store.queue()
    bodies = [str(n) for n in range(120)]
    await queues.send(queue, bodies)
    got: list[str] = []

    async def consume() -> None:
        while deliveries := await queues.receive(queue, count=5, lease_seconds=LEASE):
            got.extend(delivery.body for delivery in deliveries)
            for delivery in deliveries:
                assert delivery.dequeue_count == 1
                await queues.delete(delivery)

    await asyncio.gather(*[consume() for _ in range(8)])
    assert sorted(got, key=int) == bodies
    assert await queues.count(queue) == 0


async def test_no_message_waits_behind_younger_ones_for_ever(store: OpenStore) -> None:
    """Fair, if not strictly in order: under a steady stream the old ones come out."""
    queues, queue = store.queues, store.queue()
    await queues.send(queue, ["old"])
    for n in range(10):
        await queues.send(queue, [f"new {n}"])
    seen: list[str] = []
    for n in range(11):
        delivery = await receive_one(queues, queue)
        seen.append(delivery.body)
        await queues.delete(delivery)
        await queues.send(queue, [f"newer {n}"])
    assert "old" in seen


async def test_a_queue_deleted_behind_our_back_comes_back(store: OpenStore, request: pytest.FixtureRequest) -> None:
    queues, queue = store.queues, store.queue()
    await queues.send(queue, ["lost"])
    delivery = await receive_one(queues, queue)

    async def delete_queue() -> None:
        if isinstance(store.store, MemoryStore):
            store.store.queues().messages.pop(queue, None)
        elif isinstance(store.store, EmbeddedStore):
            with sqlite3.connect(store.store.path) as connection:
                connection.execute("DELETE FROM message WHERE queue = ?", (queue,))
            connection.close()
        else:
            async with QueueServiceClient.from_connection_string(request.getfixturevalue("azurite")) as service:
                await service.delete_queue(queue)

    await delete_queue()
    with pytest.raises(StaleDelivery):
        await queues.renew(delivery, lease_seconds=LEASE)
    with pytest.raises(StaleDelivery):
        await queues.delete(delivery)
    assert await queues.count(queue) == 0
    assert await queues.receive(queue, lease_seconds=LEASE) == []
    await delete_queue()
    await queues.send(queue, ["found"])
    assert (await receive_one(queues, queue)).body == "found"


async def test_a_delivery_that_never_was_is_stale(store: OpenStore) -> None:
    queues, queue = store.queues, store.queue()
    await queues.send(queue, ["a"])
    real = await receive_one(queues, queue)
    for odd in (
        Delivery(queue, "00000000-0000-0000-0000-000000000000", real.receipt, "a", 1),
        Delivery(queue, real.id, "AgAAAAMAAAAAAAAA", "a", 1),
    ):
        with pytest.raises(StaleDelivery):
            await queues.delete(odd)
    await queues.delete(real)
