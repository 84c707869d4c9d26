"""Notices: which documents may name which channels, what is kept secret, and what a receiver gets over the wire."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from taskgraph.documents.canonical import content_hash, document_object
from taskgraph.documents.read import document_from_object
from taskgraph.engine.addresses import Hosts
from taskgraph.engine.notifier import NotDelivered
from taskgraph.engine.outlets import Outlets, OutletSettings, Secret, read_outlets, signature
from taskgraph.model.clock import SystemClock
from taskgraph.model.errors import InvalidGraph, InvalidInput, InvalidSettings
from taskgraph.protocol.notices import Channel, Notice, channels, registrations
from taskgraph.queries.journal import read_cursor
from taskgraph.testing import MemoryQueues
from tests.scenarios.stage import Trap, TrappedQueues

NOTICE = Notice("g.1.0", '{"id":"g.1.0"}')


def document(notify: Any = None, task: Any = None) -> dict[str, Any]:
    made: dict[str, Any] = {"tasks": {"a": {"task": {"executor": "noop"}}}}
    if notify is not None:
        made["notify"] = notify
    if task is not None:
        made["tasks"]["a"]["notify"] = task
    return made


def problems(obj: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidGraph) as caught:
        document_from_object(obj)
    return [(each.code, each.pointer) for each in caught.value.problems]


# --- documents -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("notify", "expected"),
    [
        ({"onFinished": {}}, [("bad-channel", "/notify/onFinished")]),
        ({"onFinished": [{"queue": "abc", "webhook": "https://a"}]}, [("bad-channel", "/notify/onFinished/0")]),
        ({"onFinished": {"queue": "abc", "secret": "x"}}, [("bad-channel", "/notify/onFinished/secret")]),
        ({"onFinished": {"queue": "abc", "format": "x"}}, [("not-allowed", "/notify/onFinished/format")]),
        ({"onFinished": {"queue": "taskgraph-events"}}, [("bad-channel", "/notify/onFinished/queue")]),
        ({"onFinished": {"queue": "A"}}, [("bad-form", "/notify/onFinished/queue")]),
        ({"onFinished": {"webhook": "gopher://a"}}, [("bad-form", "/notify/onFinished/webhook")]),
        *[
            ({"onFinished": {"webhook": address}}, [("bad-form", "/notify/onFinished/webhook")])
            for address in (
                "http://a.example:65536/",
                "http://a.example:99999/",
                "http://a.example:100000",
                "http://[::1]:70000/x",
                "http://user:pw@a.example:65536/",
                "http://evil.example\\@good.example/",
                "http://a.example\\b",
                "http:///path",
                "http://:80/",
            )
        ],
        ({"onFinished": []}, [("empty", "/notify/onFinished")]),
        ({"onFinished": "abc"}, [("wrong-type", "/notify/onFinished")]),
        ({"onFinish": {"queue": "abc"}}, [("unknown-key", "/notify/onFinish")]),
        ({"onFinished": [{"queue": "abc"}] * 11}, [("too-many", "/notify/onFinished")]),
    ],
)
def test_what_is_wrong_with_channels_is_said_at_its_place(notify: Any, expected: list[tuple[str, str]]) -> None:
    assert problems(document(notify)) == expected


def test_a_task_has_no_blocked_graph_and_few_channels_are_enough() -> None:
    assert problems(document(task={"onBlocked": {"queue": "abc"}})) == [("unknown-key", "/tasks/a/notify/onBlocked")]
    many = {"onSuccess": [{"queue": f"queue-{number}"} for number in range(10)]}
    more = {"onSuccess": [{"queue": f"queue-{number}"} for number in range(10, 20)], "onFailure": {"queue": "abc"}}
    assert problems(document(many, more)) == [("too-many", "/notify")]


def test_messages_of_the_old_scheduler_are_about_graphs_alone() -> None:
    channel = {"queue": "pulse", "format": "taskcluster-v1"}
    assert document_from_object(document({"onRunning": channel, "onExtended": channel})).notify
    expected = [("bad-channel", "/tasks/a/notify/onFinished/1/format")]
    assert problems(document(task={"onFinished": [{"queue": "pulse"}, channel]})) == expected


def test_one_channel_and_a_list_of_it_mean_the_same_and_without_any_a_document_is_as_before() -> None:
    one = document_from_object(document({"onFinished": {"queue": "abc"}}, {"onSuccess": {"queue": "abc"}}))
    listed = document_from_object(document({"onFinished": [{"queue": "abc"}]}, {"onSuccess": [{"queue": "abc"}]}))
    plain = document_from_object(document())
    assert content_hash(one) == content_hash(listed) != content_hash(plain)
    assert "notify" not in json.dumps(document_object(plain))
    assert content_hash(document_from_object(document_object(one))) == content_hash(one)


def test_a_channel_that_several_name_is_registered_once() -> None:
    made = document_from_object(
        document(
            {"onFinished": [{"queue": "abc"}, {"queue": "abd"}], "onFailure": {"queue": "abc"}},
            {"onSuccess": {"queue": "abc"}},
        )
    )
    found = registrations(made.notify, made.tasks.values())
    assert {each.channel.where[0]: (sorted(each.on), each.tasks) for each in found.values()} == {
        "abc": (["onFailure", "onFinished"], True),
        "abd": (["onFinished"], False),
    }
    assert channels({"onSuccess": [{"queue": "abc"}, {"queue": "abc"}]})["onSuccess"] == (Channel("queue", ("abc",)),)


def test_neither_a_query_nor_a_password_of_an_address_is_shown() -> None:
    shown = Channel("webhook", ("https://user:pass@host.example/path?token=1",)).display
    assert shown == "webhook https://host.example/path"


# --- settings --------------------------------------------------------------------------------------------------


def test_the_environment_says_what_a_process_may_do() -> None:
    assert read_outlets({}, commands=False).kinds == {"queue", "webhook"}
    assert read_outlets({}, commands=True).kinds == {"queue", "webhook", "command"}
    assert read_outlets({"TASKGRAPH_NOTIFY": "queue"}, commands=True).kinds == {"queue"}
    assert read_outlets({"TASKGRAPH_NOTIFY": "off"}, commands=True).kinds == frozenset()
    with pytest.raises(InvalidSettings, match="“mail” is none of"):
        read_outlets({"TASKGRAPH_NOTIFY": "queue,mail"}, commands=True)
    everywhere = {"TASKGRAPH_WEBHOOK_HOSTS": "all.example"}
    plain = {"TASKGRAPH_WEBHOOK_SECRET": "plain", "TASKGRAPH_WEBHOOK_SECRET_CI": "whsec_aGVsbG8=", **everywhere}
    secrets = read_outlets({**plain, "TASKGRAPH_WEBHOOK_SECRET_CI_HOSTS": "ci.example"}, commands=False)
    assert {name: (each.key, each.hosts) for name, each in secrets.secrets.items()} == {
        "": (b"plain", Hosts.read("all.example")),
        "CI": (b"hello", Hosts.read("ci.example")),
    }
    assert "plain" not in repr(secrets)
    with pytest.raises(InvalidSettings, match="no base64") as caught:
        read_outlets({"TASKGRAPH_WEBHOOK_SECRET": "whsec_%", **everywhere}, commands=False)
    assert "%" not in str(caught.value)


@pytest.mark.parametrize("name", ["TASKGRAPH_WEBHOOK_SECRET", "TASKGRAPH_WEBHOOK_SECRET_CI"])
def test_a_secret_that_names_no_hosts_is_a_setting_that_makes_no_sense(name: str) -> None:
    with pytest.raises(InvalidSettings, match=rf"{name}_HOSTS") as caught:
        read_outlets({name: "planted"}, commands=False)
    assert "planted" not in str(caught.value)
    assert read_outlets({name: "x", f"{name}_HOSTS": "ci.example"}, commands=False).secrets


HERE = Secret(b"x", Hosts.read("127.0.0.1"))


def outlets(**settings: Any) -> Outlets:
    settings = {"hosts": Hosts.read("127.0.0.1"), **settings}
    made = OutletSettings(**{"kinds": frozenset({"queue", "webhook", "command"}), **settings})
    clock = SystemClock()
    return Outlets(MemoryQueues(clock), clock, made, prefix="mine")


def test_what_a_process_does_not_serve_is_said() -> None:
    hook = Channel("webhook", ("https://a.example.com:8443/x",), "ci")
    assert "TASKGRAPH_WEBHOOK_SECRET_CI" in outlets().serves(hook)
    assert outlets(secrets={"CI": HERE}).serves(hook) == ""
    assert "does not serve" in outlets(kinds=frozenset({"queue"})).serves(Channel("command", ("x",)))
    assert "own" in outlets().serves(Channel("queue", ("mine-events",)))
    assert outlets().serves(Channel("queue", ("theirs-events",))) == ""


# --- over the wire ---------------------------------------------------------------------------------------------

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def receiver(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/hook", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    await runner.cleanup()


async def test_a_webhook_gets_the_notice_signed_by_the_secret_that_its_channel_names() -> None:
    got: list[tuple[dict[str, str], bytes]] = []

    async def take(request: web.Request) -> web.Response:
        got.append((dict(request.headers), await request.read()))
        return web.Response(status=204)

    async with receiver(take) as address:
        here = Hosts.read("127.0.0.1")
        made = outlets(secrets={"": Secret(b"default", here), "CI": Secret(b"secret", here)})
        await made.send(Channel("webhook", (address,), "ci"), NOTICE)
        await made.send(Channel("webhook", (address,)), NOTICE)
        await made.close()
        plain = outlets()
        await plain.send(Channel("webhook", (address,)), NOTICE)
        await plain.close()
    for (headers, body), secret in zip(got, (b"secret", b"default"), strict=False):
        assert body == NOTICE.body.encode()
        assert headers["webhook-id"] == NOTICE.id
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == expected
    assert "webhook-signature" not in got[2][0]


async def test_a_secret_signs_for_its_own_hosts_alone() -> None:
    """A document names both the secret and the address: it must not choose who gets the signatures."""
    got: list[dict[str, str]] = []

    async def take(request: web.Request) -> web.Response:
        got.append(dict(request.headers))
        return web.Response(status=204)

    elsewhere = Secret(b"prod", Hosts.read("ci.example.com,*.hooks.example,10.0.0.0/8"))
    made = outlets(secrets={"": elsewhere, "PROD": elsewhere})
    async with receiver(take) as address:
        with pytest.raises(
            NotDelivered, match=r"“prod” does not sign for 127\.0\.0\.1: TASKGRAPH_WEBHOOK_SECRET_PROD_HOSTS"
        ):
            await made.send(Channel("webhook", (address,), "prod"), NOTICE)
        assert got == []
        await made.send(Channel("webhook", (address,)), NOTICE)  # asks for no signature by name
    await made.close()
    (headers,) = got
    assert "webhook-signature" not in headers


@pytest.mark.parametrize("host", ["other.example", "ci.example.com.evil.example", "evilci.example.com"])
async def test_a_host_that_is_not_named_is_not_reached(host: str) -> None:
    made = outlets(hosts=Hosts.read("ci.example.com, *.internal.example.com"))
    with pytest.raises(NotDelivered, match=f"does not name the host {host}"):
        await made.send(Channel("webhook", (f"https://{host}/x",)), NOTICE)
    await made.close()


def test_a_signature_is_that_of_the_published_example() -> None:
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    notice = Notice("msg_p5jXN8AQM9LWM0D4loKWxJek", '{"test": 2432232314}')
    assert signature(secret, notice, 1614265330) == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    ("answer", "reason", "retry_after", "final"),
    [
        (lambda: web.Response(status=500), "HTTP 500", 0.0, False),
        (lambda: web.Response(status=429, headers={"retry-after": "17"}), "HTTP 429", 17.0, False),
        (lambda: web.Response(status=503, headers={"retry-after": "Fri, 31 Dec 2027"}), "HTTP 503", 0.0, False),
        (lambda: web.Response(status=410), "HTTP 410", 0.0, True),
        (lambda: web.Response(status=302, headers={"location": "/hook"}), "redirects are not followed", 0.0, False),
    ],
)
async def test_what_a_receiver_answers(
    answer: Callable[[], web.Response], reason: str, retry_after: float, final: bool
) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return answer()

    async with receiver(refuse) as address:
        made = outlets()
        with pytest.raises(NotDelivered, match=reason) as caught:
            await made.send(Channel("webhook", (address,)), NOTICE)
        await made.close()
    assert (caught.value.retry_after, caught.value.final) == (retry_after, final)


async def test_a_receiver_that_is_not_there_or_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    monkeypatch.setattr("taskgraph.engine.outlets.WEBHOOK_SECONDS", 0.2)
    made = outlets()
    async with receiver(wait) as address:
        with pytest.raises(NotDelivered, match="no answer within"):
            await made.send(Channel("webhook", (address,)), NOTICE)
    with pytest.raises(NotDelivered, match=r"\Aconnection refused\Z"):
        await made.send(Channel("webhook", (address,)), NOTICE)
    elsewhere = outlets(hosts=Hosts.read("nowhere.invalid"))
    with pytest.raises(NotDelivered, match=r"\Athere is no address for the name nowhere\.invalid\Z"):
        await elsewhere.send(Channel("webhook", ("http://nowhere.invalid/",)), NOTICE)
    await elsewhere.close()
    with pytest.raises(NotDelivered, match="no address"):
        await made.send(Channel("webhook", ("http://[::::]:x/",)), NOTICE)
    await made.close()


async def test_a_command_reads_the_notice_and_its_exit_code_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = outlets()
    file = tmp_path / "got"
    await made.send(Channel("command", ("sh", "-c", f"cat > {file}")), NOTICE)
    assert file.read_text() == NOTICE.body
    with pytest.raises(NotDelivered, match="exit code 3: no room"):
        await made.send(Channel("command", ("sh", "-c", "echo no room >&2; exit 3")), NOTICE)
    with pytest.raises(NotDelivered, match="cannot be started"):
        await made.send(Channel("command", (str(tmp_path / "none"),)), NOTICE)
    monkeypatch.setattr("taskgraph.engine.outlets.COMMAND_SECONDS", 0.2)
    with pytest.raises(NotDelivered, match="and ended"):
        await made.send(Channel("command", ("sh", "-c", "sleep 30 & wait")), NOTICE)


async def test_a_queue_of_the_store_gets_the_notice() -> None:
    clock = SystemClock()
    queues = MemoryQueues(clock)
    await Outlets(queues, clock, OutletSettings(), prefix="taskgraph").send(Channel("queue", ("alerts",)), NOTICE)
    (delivery,) = await queues.receive("alerts", lease_seconds=30)
    assert delivery.body == NOTICE.body
    with pytest.raises(NotDelivered, match="bytes"):
        await Outlets(queues, clock, OutletSettings(), prefix="taskgraph").send(
            Channel("queue", ("alerts",)), Notice("x", "x" * 60_000)
        )


async def test_a_queue_that_cannot_be_reached_has_not_taken_the_notice() -> None:
    clock = SystemClock()
    queues = TrappedQueues(MemoryQueues(clock), Trap(1, "unavailable"))
    made = Outlets(queues, clock, OutletSettings(), prefix="taskgraph")
    with pytest.raises(NotDelivered, match="queue alerts: 503"):
        await made.send(Channel("queue", ("alerts",)), NOTICE)
    await made.send(Channel("queue", ("alerts",)), NOTICE)


# --- cursors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "read"), [(0, (0, 0)), ("7", (7, 0)), ("7.0", (6, 1)), ("7.3", (6, 4)), (12, (12, 0))]
)
def test_a_cursor_is_the_number_of_a_row_or_a_place_in_it(since: int | str, read: tuple[int, int]) -> None:
    assert read_cursor(since) == read


@pytest.mark.parametrize("since", ["", "x", "-1", "1.", "1.x", ".1", "1.2.3", "٣", "9" * 20])
def test_what_is_no_cursor(since: str) -> None:
    with pytest.raises(InvalidInput, match="is no cursor"):
        read_cursor(since)
