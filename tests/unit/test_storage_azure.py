"""What the failures of the storage service mean to the caller: a real client, and a server that fails on purpose."""

import asyncio
import contextlib
import socket
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import aiohttp
import pytest
from aiohttp import web
from azure.data.tables import EdmType, EntityProperty
from azure.data.tables.aio import TableClient

from taskgraph.model.clock import SystemClock
from taskgraph.model.errors import (
    Conflict,
    InvalidSettings,
    StaleDelivery,
    StorageError,
    StorageUnavailable,
    TooLarge,
    Unclear,
)
from taskgraph.storage.azure import pool, table_requests, wire
from taskgraph.storage.azure.account import AzureStore
from taskgraph.storage.azure.calls import code_of
from taskgraph.storage.azure.pool import Answer as RawAnswer
from taskgraph.storage.azure.pool import Pool
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Delete, Insert, Merge, Page, Range
from taskgraph.testing import HurriedClock
from tests.azure_sdk import open_store, tables
from tests.conftest import CLIENTS

KEY = "c2VjcmV0LWtleS10aGF0LW5vYm9keS1tYXktc2VlLQ=="
ETAG = "W/\"datetime'2024-01-01T00%3A00%3A00.0000000Z'\""
ANOTHER = "W/\"datetime'2025-01-01T00%3A00%3A00.0000000Z'\""


@dataclass(frozen=True)
class Answer:
    """status 0: cut the connection after the request was read; -1: never answer. half: cut it in the answer."""

    status: int
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    content_type: str = "application/json;odata=minimalmetadata"
    half: bool = False


CUT = Answer(0)
SILENCE = Answer(-1)
INSERTED = Answer(204, headers={"ETag": ETAG})
ENTITY = Answer(200, body='{"odata.etag":"e1","PartitionKey":"p","RowKey":"a","n":1}')
SENT = Answer(
    201,
    content_type="application/xml",
    body="<QueueMessagesList><QueueMessage><MessageId>1</MessageId><InsertionTime>Mon, 01 Jan 2024 00:00:00 GMT"
    "</InsertionTime><ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime><PopReceipt>r</PopReceipt>"
    "<TimeNextVisible>Mon, 01 Jan 2024 00:00:00 GMT</TimeNextVisible></QueueMessage></QueueMessagesList>",
)


def refusal(status: int, code: str) -> Answer:
    """A refusal of the table service."""
    text = f'{{"odata.error":{{"code":"{code}","message":{{"lang":"en-US","value":"0:words\\nRequestId:1"}}}}}}'
    return Answer(status, code, body=text)


def xml_refusal(status: int, code: str) -> Answer:
    """A refusal of the queue or blob service."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>words</Message></Error>"
    return Answer(status, code, {"x-ms-error-code": code}, body, "application/xml")


def batch_refusal(status: int, code: str, index: int | None) -> Answer:
    """A refused entity group transaction: accepted as a whole, refused within."""
    place = "" if index is None else f"{index}:"
    inner = f'{{"odata.error":{{"code":"{code}","message":{{"lang":"en-US","value":"{place}words"}}}}}}'
    lines = (
        "--batchresponse_1",
        "Content-Type: multipart/mixed; boundary=changesetresponse_1",
        "",
        "--changesetresponse_1",
        "Content-Type: application/http",
        "Content-Transfer-Encoding: binary",
        "",
        f"HTTP/1.1 {status} Refused",
        "Content-Type: application/json;odata=minimalmetadata;streaming=true;charset=utf-8",
        "DataServiceVersion: 3.0;",
        "",
        inner,
        "--changesetresponse_1--",
        "--batchresponse_1--",
        "",
    )
    return Answer(202, code, body="\r\n".join(lines), content_type="multipart/mixed; boundary=batchresponse_1")


@dataclass
class Service:
    """A server that answers from a list, and remembers what it was asked."""

    endpoint: str
    store: AzureStore
    clock: HurriedClock
    thin: bool = True
    answers: list[Answer] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def says(self, *answers: Answer) -> None:
        self.answers[:] = answers
        self.asked.clear()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.asked.append(f"{request.method} {request.path.removeprefix('/account')}")
        answer = self.answers.pop(0)
        if answer.status == 0:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if answer.status == -1:
            await asyncio.sleep(3600)
        if answer.half:
            assert request.transport is not None
            stream = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            await stream.prepare(request)
            await stream.write(answer.body.encode()[: len(answer.body) // 2])
            request.transport.abort()
            return stream
        response = web.Response(status=answer.status, body=answer.body.encode(), headers=answer.headers)
        response.headers["Content-Type"] = answer.content_type
        return response


def connection_string(endpoint: str) -> str:
    ends = "".join(f"{kind}Endpoint={endpoint}/account;" for kind in ("Table", "Queue", "Blob"))
    return f"AccountName=account;AccountKey={KEY};{ends}"


@pytest.fixture(params=CLIENTS)
def thin(request: pytest.FixtureRequest) -> bool:
    """Our own requests, and the SDK's: a failure means the same."""
    found: bool = request.param
    return found


@pytest.fixture
async def service(thin: bool) -> AsyncIterator[Service]:
    application = web.Application(client_max_size=1 << 26)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    clock = HurriedClock()
    served: list[Service] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        return await served[0].answer(request)

    application.router.add_route("*", "/{path:.*}", handle)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    endpoint = f"http://127.0.0.1:{port}"
    store = open_store(connection_string(endpoint), clock, thin=thin)
    served.append(Service(endpoint, store, clock, thin))
    yield served[0]
    assert served[0].answers == [], "every answer was asked for"
    await store.close()
    await runner.cleanup()


def shown(error: BaseException) -> str:
    """Everything that a log could show of an error, causes included."""
    return "".join(traceback.format_exception(error)) + repr(vars(error))


Call = Callable[[Service], Awaitable[Any]]


async def insert(service: Service) -> Any:
    return await service.store.tables("graphs").commit("p", [Insert("a", {"n": 1})])


async def merge(service: Service) -> Any:
    return await service.store.tables("graphs").commit("p", [Merge("a", ETAG, {"n": 1})])


async def delete(service: Service) -> Any:
    return await service.store.tables("graphs").commit("p", [Delete("a", ETAG)])


async def batch(service: Service) -> Any:
    return await service.store.tables("graphs").commit("p", [Insert("a", {"n": 1}), Merge("b", ETAG, {"n": 1})])


async def get(service: Service) -> Any:
    return await service.store.tables("graphs").get("p", ["a"])


async def query(service: Service) -> Any:
    return await service.store.tables("graphs").query("p", Range())


async def send(service: Service) -> Any:
    return await service.store.queues().send("queue", ["m"])


async def receive(service: Service) -> Any:
    return await service.store.queues().receive("queue", lease_seconds=30)


async def renew(service: Service) -> Any:
    return await service.store.queues().renew(Delivery("queue", "1", "r", "m", 1), lease_seconds=30)


async def acknowledge(service: Service) -> Any:
    return await service.store.queues().delete(Delivery("queue", "1", "r", "m", 1))


async def count(service: Service) -> Any:
    return await service.store.queues().count("queue")


async def append(service: Service) -> Any:
    return await service.store.logs().append("g", "t", 0, b"x")


async def read(service: Service) -> Any:
    return await service.store.logs().read("g", "t", 0)


COMMITS = [insert, merge, delete, batch]
READS = [get, query, count, read]
EVERYTHING = [*COMMITS, *READS, send, receive, renew, acknowledge, append]


# --- commits: one try, and an honest answer ----------------------------------------------------------------------


@pytest.mark.parametrize("commit", COMMITS)
@pytest.mark.parametrize(
    "answer",
    [
        CUT,
        *[refusal(status, "InternalError") for status in (500, 502, 503, 504)],
        refusal(408, "x"),
        Answer(200),
        Answer(204),
    ],
)
async def test_a_commit_whose_answer_says_nothing_is_unclear_and_not_repeated(
    service: Service, commit: Call, answer: Answer
) -> None:
    service.says(answer)
    if service.thin and commit is delete and answer.status == 204:
        await commit(service)  # a plain deletion is answered so
        assert len(service.asked) == 1
        return
    with pytest.raises(Unclear, match=service.endpoint) as caught:
        await commit(service)
    assert len(service.asked) == 1
    assert KEY not in shown(caught.value)


async def test_a_commit_that_is_never_answered_is_unclear(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (table_requests, tables):
        monkeypatch.setattr(module, "COMMIT_SECONDS", 0.2)
    for commit in (insert, merge, delete, batch):
        service.says(SILENCE)
        with pytest.raises(Unclear, match="no answer in time"):
            await commit(service)
        assert len(service.asked) == 1


@pytest.mark.parametrize("body", ["", "<html>", "--x\r\n\r\n--x--"])
@pytest.mark.parametrize("content_type", ["text/html", "multipart/mixed; boundary=x"])
async def test_a_batch_whose_answer_makes_no_sense_is_unclear(service: Service, body: str, content_type: str) -> None:
    service.says(Answer(202, body=body, content_type=content_type))
    with pytest.raises(Unclear):
        await batch(service)


async def test_a_batch_that_breaks_off_in_the_middle_of_its_answer_is_unclear(service: Service) -> None:
    service.says(replace(batch_refusal(412, "UpdateConditionNotSatisfied", 1), half=True))
    with pytest.raises(Unclear):
        await batch(service)
    assert len(service.asked) == 1


@pytest.mark.parametrize("status", [500, 503])
async def test_a_failure_inside_a_batch_is_unclear(service: Service, status: int) -> None:
    service.says(batch_refusal(status, "InternalError", None))
    with pytest.raises(Unclear):
        await batch(service)


@pytest.mark.parametrize("commit", [insert, merge, delete])
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (409, "EntityAlreadyExists"),
        (412, "UpdateConditionNotSatisfied"),
        (412, "ConditionNotMet"),
        (404, "ResourceNotFound"),
    ],
)
async def test_a_condition_that_failed_is_a_conflict(service: Service, commit: Call, status: int, code: str) -> None:
    # The SDK takes the deletion of a missing row for a success, so there it goes in a transaction even alone.
    in_batch = commit is delete and not service.thin
    service.says(batch_refusal(status, code, 0) if in_batch else refusal(status, code))
    with pytest.raises(Conflict) as caught:
        await commit(service)
    assert caught.value.index == 0
    assert code in str(caught.value)
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    ("status", "code"),
    [(409, "EntityAlreadyExists"), (412, "UpdateConditionNotSatisfied"), (404, "ResourceNotFound")],
)
@pytest.mark.parametrize(("said", "index"), [(0, 0), (1, 1), (7, None), (None, None)])
async def test_a_conflict_in_a_batch_has_the_index_that_the_service_says(
    service: Service, status: int, code: str, said: int | None, index: int | None
) -> None:
    service.says(batch_refusal(status, code, said))
    with pytest.raises(Conflict) as caught:
        await batch(service)
    assert caught.value.index == index


async def test_one_change_is_one_plain_request(service: Service) -> None:
    there = "/graphs(PartitionKey='p',RowKey='a')"
    for commit, request in ((insert, "POST /graphs"), (merge, f"PATCH {there}"), (delete, f"DELETE {there}")):
        if commit is delete and not service.thin:
            continue
        service.says(INSERTED)
        assert await commit(service) == [None if commit is delete else ETAG]
        assert service.asked == [request]


@pytest.mark.parametrize("commit", [insert, merge])
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (413, "RequestBodyTooLarge"),
        (400, "EntityTooLarge"),
        (400, "PropertyValueTooLarge"),
        (400, "TooManyProperties"),
        (400, "KeyValueTooLarge"),
    ],
)
async def test_what_is_too_large_is_told_so(service: Service, commit: Call, status: int, code: str) -> None:
    service.says(refusal(status, code))
    with pytest.raises(TooLarge, match=code):
        await commit(service)
    service.says(batch_refusal(status, code, 1))
    with pytest.raises(TooLarge):
        await batch(service)
    service.says(refusal(413, "RequestBodyTooLarge"))
    with pytest.raises(TooLarge):
        await batch(service)


async def test_a_refusal_that_nobody_expects_is_named(service: Service) -> None:
    for call, answer in (
        (insert, refusal(400, "InvalidInput")),
        (batch, batch_refusal(400, "InvalidInput", 0)),
        (get, refusal(400, "InvalidInput")),
        (query, refusal(501, "NotImplemented")),
        (send, xml_refusal(400, "InvalidXmlNodeValue")),
    ):
        service.says(*[answer] * (4 if answer.status == 501 else 1))
        with pytest.raises(StorageError, match=answer.code) as caught:
            await call(service)
        assert not isinstance(caught.value, (Conflict, TooLarge, Unclear))
        assert service.endpoint in str(caught.value)


async def test_a_table_comes_into_being_at_the_first_write(service: Service) -> None:
    created = Answer(204)
    service.says(refusal(404, "TableNotFound"), created, INSERTED)
    assert await insert(service) == [ETAG]
    assert service.asked == ["POST /graphs", "POST /Tables", "POST /graphs"]
    service.says(refusal(404, "TableNotFound"), refusal(409, "TableAlreadyExists"), INSERTED)
    assert await insert(service) == [ETAG], "another process was quicker"
    service.says(batch_refusal(404, "TableNotFound", 0), created, batch_refusal(404, "TableNotFound", 0))
    with pytest.raises(StorageError, match="TableNotFound"):
        await batch(service)
    assert service.asked == ["POST /$batch", "POST /Tables", "POST /$batch"], "once, and not for ever"


async def test_the_commit_after_making_the_table_is_a_first_try_too(service: Service) -> None:
    service.says(refusal(404, "TableNotFound"), Answer(204), CUT)
    with pytest.raises(Unclear):
        await insert(service)
    service.says(refusal(404, "TableNotFound"), Answer(204), refusal(409, "EntityAlreadyExists"))
    with pytest.raises(Conflict):
        await insert(service)


async def test_an_account_without_a_container_for_logs_has_no_files(service: Service) -> None:
    service.says(xml_refusal(404, "ContainerNotFound"))
    page = await service.store.logs().files("g")
    assert (list(page.files), page.continuation) == ([], None)
    service.says(xml_refusal(403, "AuthorizationFailure"))
    with pytest.raises(StorageError):
        await service.store.logs().files("g")


async def test_what_is_being_deleted_is_unavailable(service: Service) -> None:
    for call, answers in (
        (insert, [refusal(409, "TableBeingDeleted")]),
        (insert, [refusal(404, "TableNotFound"), refusal(409, "TableBeingDeleted")]),
        (batch, [batch_refusal(409, "TableBeingDeleted", 0)]),
        (get, [refusal(409, "TableBeingDeleted")]),
        (send, [xml_refusal(404, "QueueNotFound"), xml_refusal(409, "QueueBeingDeleted")]),
        (append, [xml_refusal(404, "ContainerNotFound")] * 2 + [xml_refusal(409, "ContainerBeingDeleted")]),
    ):
        service.says(*answers)
        with pytest.raises(StorageUnavailable, match="BeingDeleted"):
            await call(service)


async def test_a_missing_table_reads_as_empty(service: Service) -> None:
    service.says(refusal(404, "TableNotFound"))
    assert await get(service) == [None]
    service.says(refusal(404, "TableNotFound"))
    assert await query(service) == Page(())


async def test_a_server_that_is_no_table_service_is_not_taken_for_an_empty_table(service: Service) -> None:
    page = Answer(404, body="<html>not here</html>", content_type="text/html")
    for call in (get, query, insert):
        service.says(page)
        with pytest.raises(StorageError, match="404"):
            await call(service)


# --- reading and sending: again, within bounds -------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble", [CUT, refusal(500, "InternalError"), refusal(503, "ServerBusy"), refusal(429, "TooMany")]
)
async def test_a_reading_is_repeated(service: Service, trouble: Answer) -> None:
    service.says(trouble, trouble, ENTITY)
    [row] = await get(service)
    assert row.columns == {"n": 1}
    assert len(service.asked) == 3
    assert 0.1 < service.clock.monotonic() < 5, "after a pause"


async def test_sending_is_repeated_even_if_that_sends_twice(service: Service) -> None:
    service.says(CUT, xml_refusal(500, "InternalError"), SENT)
    await send(service)
    assert service.asked == ["POST /queue/messages"] * 3


@pytest.mark.parametrize("call", [*READS, send])
async def test_repeating_ends(service: Service, call: Call) -> None:
    service.says(*[refusal(500, "InternalError")] * 4)
    with pytest.raises(StorageUnavailable, match=r"500 InternalError") as caught:
        await call(service)
    assert len(service.asked) == 4
    assert service.clock.monotonic() < 10
    assert service.endpoint in caught.value.endpoint
    assert KEY not in shown(caught.value)


@pytest.mark.parametrize("call", [receive, renew, append])
@pytest.mark.parametrize("trouble", [CUT, xml_refusal(500, "InternalError")])
async def test_what_does_harm_twice_is_not_repeated(service: Service, call: Call, trouble: Answer) -> None:
    service.says(trouble)
    with pytest.raises(StorageUnavailable):
        await call(service)
    assert len(service.asked) == 1


@pytest.mark.parametrize("call", EVERYTHING)
@pytest.mark.parametrize("status", [401, 403])
async def test_a_door_that_is_shut_is_told_at_once(service: Service, call: Call, status: int) -> None:
    code = "AuthenticationFailed" if status == 401 else "AuthorizationPermissionMismatch"
    make = refusal if call in (*COMMITS, get, query) else xml_refusal
    service.says(make(status, code))
    with pytest.raises(StorageUnavailable, match=code) as caught:
        await call(service)
    assert "check the key" in str(caught.value)
    assert service.endpoint in str(caught.value)
    assert KEY not in shown(caught.value)
    assert len(service.asked) == 1


# --- deliveries --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [renew, acknowledge])
@pytest.mark.parametrize(
    ("status", "code"), [(404, "MessageNotFound"), (400, "PopReceiptMismatch"), (404, "QueueNotFound")]
)
async def test_a_message_in_other_hands_is_stale(service: Service, call: Call, status: int, code: str) -> None:
    service.says(xml_refusal(status, code))
    with pytest.raises(StaleDelivery):
        await call(service)


async def test_an_acknowledgement_whose_answer_was_lost_is_made_again(service: Service) -> None:
    service.says(CUT, xml_refusal(404, "MessageNotFound"))
    await acknowledge(service)
    service.says(xml_refusal(500, "InternalError"), Answer(204))
    await acknowledge(service)
    service.says(CUT, xml_refusal(400, "PopReceiptMismatch"))
    with pytest.raises(StaleDelivery):
        await acknowledge(service)


async def test_a_queue_comes_into_being_when_it_is_used(service: Service) -> None:
    service.says(xml_refusal(404, "QueueNotFound"), Answer(201), SENT)
    await send(service)
    assert service.asked == ["POST /queue/messages", "PUT /queue", "POST /queue/messages"]
    exists = Answer(204, headers={"x-ms-error-code": "QueueAlreadyExists"})  # so the service says it was not needed
    for answer in (exists, xml_refusal(409, "QueueAlreadyExists")):
        service.says(xml_refusal(404, "QueueNotFound"), answer, SENT)
        await send(service)
    service.says(xml_refusal(404, "QueueNotFound"))
    assert await count(service) == 0


async def test_a_log_that_is_full_is_told_so(service: Service) -> None:
    service.says(xml_refusal(409, "BlockCountExceedsLimit"))
    with pytest.raises(TooLarge, match=r"g/t/0/run\.log"):
        await append(service)


async def test_many_messages_go_in_parallel_and_the_first_error_ends_it(service: Service) -> None:
    service.says(*[SENT] * 40)
    await service.store.queues().send("queue", [str(n) for n in range(40)])
    assert len(service.asked) == 40
    service.says(*[SENT] * 5, *[xml_refusal(403, "AuthorizationFailure")] * 16)
    with pytest.raises(StorageUnavailable, match="AuthorizationFailure"):
        await service.store.queues().send("queue", [str(n) for n in range(40)])
    assert len(service.asked) < 40
    await asyncio.sleep(0)
    service.answers.clear()


# --- no connection -----------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.asynccontextmanager
async def unreachable(text: str, *, hurried: bool = False, thin: bool = True) -> AsyncIterator[Service]:
    store = open_store(text, HurriedClock() if hurried else SystemClock(), thin=thin)
    try:
        yield Service("", store, HurriedClock())
    finally:
        await store.close()


@pytest.mark.parametrize(("call", "hurried"), [(get, False), *[(call, True) for call in EVERYTHING]])
async def test_a_store_that_is_not_there_is_named_soon(call: Call, hurried: bool, thin: bool) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    async with unreachable(connection_string(endpoint), hurried=hurried, thin=thin) as service:
        begun = time.monotonic()
        with pytest.raises(StorageUnavailable, match="cannot be reached") as caught:
            await call(service)
        assert time.monotonic() - begun < 15
        assert endpoint in str(caught.value)
        assert caught.value.endpoint.startswith(endpoint)
        assert KEY not in shown(caught.value)


async def test_a_name_that_does_not_resolve_is_told_so(monkeypatch: pytest.MonkeyPatch, thin: bool) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    async with unreachable(f"AccountName=nobody;AccountKey={KEY}", hurried=True, thin=thin) as service:
        with pytest.raises(StorageUnavailable, match="its name does not resolve") as caught:
            await get(service)
        assert caught.value.endpoint == "https://nobody.table.core.windows.net"


@pytest.mark.slow
@pytest.mark.parametrize("call", [get, insert, send])
async def test_a_host_that_is_silent_is_named_within_fifteen_seconds(call: Call, thin: bool) -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # the queue of a listener that accepts nobody is soon full, and then nothing answers
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        text = connection_string(f"http://127.0.0.1:{listener.getsockname()[1]}")
        async with unreachable(text, thin=thin) as service:
            begun = time.monotonic()
            with pytest.raises(StorageUnavailable, match="no connection within 4 seconds"):
                await call(service)
            assert time.monotonic() - begun < 15


async def test_a_name_that_is_not_resolved_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object, **__: object) -> None:
        time.sleep(0.2)
        raise socket.gaierror(socket.EAI_AGAIN, "too late")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    monkeypatch.setattr(pool, "CONNECT_SECONDS", 0.01)
    with pytest.raises(OSError, match="its name was not resolved in time"):
        await pool._Resolver().resolve("example.invalid")


@pytest.mark.parametrize("body", [b"{half of it", b'{"odata.error": 1}', b'{"other": {}}'])
def test_a_refusal_that_cannot_be_read_is_known_by_its_header(body: bytes) -> None:
    refused = wire.refusal(409, {"x-ms-error-code": "EntityAlreadyExists"}, body)
    assert code_of(refused) == "EntityAlreadyExists"


@pytest.mark.slow
async def test_a_name_server_that_is_silent_costs_less_than_fifteen_seconds(
    monkeypatch: pytest.MonkeyPatch, thin: bool
) -> None:
    def slow(*_: object, **__: object) -> None:
        time.sleep(6)
        raise socket.gaierror(socket.EAI_AGAIN, "too late")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    async with unreachable(f"AccountName=nobody;AccountKey={KEY}", thin=thin) as service:
        begun = time.monotonic()
        with pytest.raises(StorageUnavailable, match="its name does not resolve"):
            await get(service)
        assert time.monotonic() - begun < 15


@pytest.mark.slow
async def test_a_host_that_accepts_and_never_answers_is_named_within_fifteen_seconds(service: Service) -> None:
    service.says(SILENCE)
    begun = time.monotonic()
    service.clock.monotonic = time.monotonic  # type: ignore[method-assign]
    with pytest.raises(StorageUnavailable, match="no answer in time"):
        await get(service)
    assert time.monotonic() - begun < 15


# --- where the store is ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        (f"AccountName=abc;AccountKey={KEY}", "https://abc.blob.core.windows.net"),
        (
            f"DefaultEndpointsProtocol=https;AccountName=abc;AccountKey={KEY};EndpointSuffix=core.chinacloudapi.cn",
            "https://abc.blob.core.chinacloudapi.cn",
        ),
        ("UseDevelopmentStorage=true", "http://127.0.0.1:10000/devstoreaccount1"),
        (
            "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite/",
            "http://azurite:10000/devstoreaccount1",
        ),
        (f" AccountKey={KEY};accountname=abc;BlobEndpoint=http://127.0.0.1:1/abc/; ", "http://127.0.0.1:1/abc"),
        ("SharedAccessSignature=sv=1&sig=x%3D;AccountName=abc", "https://abc.blob.core.windows.net"),
        (
            "SharedAccessSignature=sv=1&sig=x;BlobEndpoint=https://b;TableEndpoint=https://t;QueueEndpoint=https://q",
            "https://b",
        ),
    ],
)
async def test_connection_strings(text: str, endpoint: str) -> None:
    store = AzureStore.from_connection_string(text, HurriedClock())
    url = store.logs().url("g", "t", 1)
    assert url == f"{endpoint}/taskgraph-logs/g/t/1/run.log"
    assert "sig" not in url
    store.tables("graphs")
    store.queues()
    await store.close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secret",
        "AccountName=abc",
        f"AccountKey={KEY}",
        "AccountName=abc;AccountKey=not-base64!",
        f"AccountName=abc;AccountKey={KEY};TableEndpoint=ftp://secret",
        f"AccountName=abc;AccountKey={KEY};TableEndpoint=https://x/?sig=secret",
        "SharedAccessSignature=secret",
    ],
)
def test_a_connection_string_that_makes_no_sense_is_not_repeated(text: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        AzureStore.from_connection_string(text, HurriedClock())
    assert "secret" not in str(caught.value)
    assert KEY not in str(caught.value)
    assert "not-base64" not in str(caught.value)


async def test_endpoints_with_an_identity() -> None:
    store = AzureStore.from_endpoints(
        "https://a.table.core.windows.net/",
        "https://a.queue.core.windows.net",
        "https://a.blob.core.windows.net",
        HurriedClock(),
        client_id="00000000-0000-0000-0000-000000000000",
    )
    assert store.logs().url("g", "t", 0).startswith("https://a.blob.core.windows.net/taskgraph-logs/")
    await store.close()
    with pytest.raises(InvalidSettings, match="https"):
        AzureStore.from_endpoints("http://a", "https://b", "https://c", HurriedClock())


async def test_a_closed_store_says_so(thin: bool) -> None:
    store = open_store(connection_string("http://127.0.0.1:1"), HurriedClock(), thin=thin)
    service = Service("", store, HurriedClock())
    await store.close()
    await store.close()
    for call in EVERYTHING:
        with pytest.raises(StorageUnavailable, match="has been closed"):
            await call(service)


def test_the_key_is_not_in_the_representation_of_anything() -> None:
    store = AzureStore.from_connection_string(connection_string("http://127.0.0.1:1"), HurriedClock())
    for thing in (store, store._account, store.tables("graphs"), store.queues(), store.logs(), store._options):
        assert KEY not in repr(thing)


# --- the same over the emulator: an answer that is lost after the service has acted ----------------------------------


class LosingTransport(Pool):
    """Sends the request and loses the answer, of the requests that it is told."""

    def __init__(self) -> None:
        super().__init__("http:")
        self.lose: Sequence[str] = ()
        self.sent: list[str] = []

    async def send(self, request: Any, **config: Any) -> Any:
        response = await super().send(request, **config)
        self.sent.append(request.method)
        if request.method in self.lose:
            if hasattr(response, "close"):
                await _maybe(response.close())
            raise _lost()
        return response

    async def exchange(self, method: str, *more: Any) -> RawAnswer:
        answer = await super().exchange(method, *more)
        self.sent.append(method)
        if method in self.lose:
            raise _lost()
        return answer


async def _maybe(result: Any) -> None:
    if result is not None:
        await result


def _lost() -> Exception:
    from azure.core.exceptions import ServiceRequestError

    error = aiohttp.ServerDisconnectedError()
    return ServiceRequestError(error, error=error)  # what the SDK makes of it, though it was sent


@pytest.mark.azurite
async def test_a_commit_whose_answer_was_lost_has_been_made_once(azurite: str, thin: bool) -> None:
    transport = LosingTransport()
    store = open_store(azurite, HurriedClock(), transport=transport, thin=thin)
    tables = store.tables(f"lost{time.monotonic_ns()}")
    [etag] = await tables.commit("p", [Insert("there", {"n": 0})])
    transport.sent.clear()
    transport.lose = ("POST", "PATCH")
    for changes in (
        [Insert("single", {"n": 1})],
        [Merge("there", str(etag), {"n": 1})],
        [Insert("x", {"n": 1}), Insert("y", {"n": 1})],
    ):
        with pytest.raises(Unclear, match="was lost"):
            await tables.commit("p", changes)
    assert transport.sent == ["POST", "PATCH", "POST"], "each was sent once"
    transport.lose = ()
    rows = await tables.get("p", ["single", "there", "x", "y"])
    assert [row and row.columns for row in rows] == [{"n": 1}] * 4, "and applied: only reading tells"
    await store.close()


@pytest.mark.azurite
async def test_columns_of_kinds_that_we_do_not_write_are_shown_and_kept(azurite: str, thin: bool) -> None:
    name = f"kinds{time.monotonic_ns()}"
    async with TableClient.from_connection_string(azurite, name) as theirs:
        await theirs.create_table()
        identity = UUID("12345678-1234-5678-1234-567812345678")
        entity = {"big": EntityProperty(2**40, EdmType.INT64), "raw": b"\0\xff", "identity": identity}
        await theirs.create_entity({"PartitionKey": "p", "RowKey": "a", **entity})
        store = open_store(azurite, HurriedClock(), thin=thin)
        tables = store.tables(name)
        [row] = await tables.get("p", ["a"])
        assert row is not None
        assert row.columns == {"big": 2**40, "raw": "AP8=", "identity": str(identity)}
        await tables.commit("p", [Merge("a", row.etag, {"n": 1})])
        await store.close()
        assert dict(await theirs.get_entity("p", "a")) == {"PartitionKey": "p", "RowKey": "a", **entity, "n": 1}
