"""Our own requests to the storage service: what is sent, beside what the SDK sends, and how answers are read."""

import asyncio
import contextlib
import datetime as dates
import email.parser
import email.policy
import gzip
import ipaddress
import json
import re
import ssl
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import aiohttp.connector
import pytest
from aiohttp import web
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError
from azure.core.pipeline.transport import HttpRequest
from azure.storage.queue._shared.authentication import SharedKeyCredentialPolicy
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from taskgraph.model.columns import Columns
from taskgraph.model.errors import Conflict, InvalidSettings, StorageError, StorageUnavailable, Unclear
from taskgraph.storage.azure.account import AzureStore, _Account
from taskgraph.storage.azure.calls import Repeat
from taskgraph.storage.azure.signing import KeySigner, TokenSigner, signer_for
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Range, Row, Tables
from taskgraph.testing import HurriedClock, ManualClock
from tests.azure_sdk import open_store
from tests.conftest import CLIENTS

KEY = "c2VjcmV0LWtleS10aGF0LW5vYm9keS1tYXktc2VlLQ=="
SIGNATURE = "sv=2019-02-02&ss=qt&sig=se%2BcretSe%2Fcret%3D"
ETAG = "W/\"datetime'2024-01-01T00%3A00%3A00.0000000Z'\""
ODD = "it's 100% o:k + é=&;,日本"


async def create_queue(queues: Any) -> None:
    await queues._call("queue-1", lambda: queues._calls.create("queue-1"), Repeat.ALWAYS)


@dataclass
class Asked:
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


Answers = Callable[[Asked], web.Response]


@dataclass
class Service:
    """A server that remembers what it was asked, to the letter."""

    endpoint: str = ""
    asked: list[Asked] = field(default_factory=list)
    answer: Answers = lambda asked: web.Response(status=500)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        asked = Asked(request.method, path, query, request.headers, await request.read())
        self.asked.append(asked)
        return self.answer(asked)


@contextlib.asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Service]:
    service = Service()
    application = web.Application(client_max_size=1 << 26)
    application.router.add_route("*", "/{path:.*}", service.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    service.endpoint = f"{'https' if tls else 'http'}://127.0.0.1:{port}/account"
    try:
        yield service
    finally:
        await runner.cleanup()


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with serving() as service:
        yield service


@contextlib.asynccontextmanager
async def opened(service: Service, *, thin: bool = True, secret: str = "") -> AsyncIterator[AzureStore]:
    ends = "".join(f"{kind}Endpoint={service.endpoint};" for kind in ("Table", "Queue", "Blob"))
    secret = secret or f"AccountName=account;AccountKey={KEY}"
    store = open_store(f"{ends}{secret}", HurriedClock(), thin=thin)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def tables(service: Service) -> AsyncIterator[Tables]:
    async with opened(service) as store:
        yield store.tables("graphs")


def says(service: Service, text: str | bytes, status: int = 200, **headers: str) -> None:
    body = text.encode() if isinstance(text, str) else text
    service.answer = lambda asked: web.Response(status=status, body=body, headers=headers)


def shown(error: BaseException) -> str:
    """Everything that a log could show of an error, and of its causes."""
    text = "".join(traceback.format_exception(error))
    each: BaseException | None = error
    while each is not None:
        text += repr(vars(each)) + repr(each)
        each = each.__cause__ or each.__context__
    return text


# --- what is sent: the same as the SDK sends ---------------------------------------------------------------------

TIME = "Mon, 01 Jan 2024 00:00:00 GMT"
MESSAGE = (
    "<QueueMessage><MessageId>1</MessageId><InsertionTime>Mon, 01 Jan 2024 00:00:00 GMT</InsertionTime>"
    "<ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime><PopReceipt>r+/=</PopReceipt><TimeNextVisible>"
    "Mon, 01 Jan 2024 00:00:00 GMT</TimeNextVisible><DequeueCount>3</DequeueCount><MessageText>m</MessageText>"
    "</QueueMessage>"
)


def batch_answer(*parts: str) -> web.Response:
    body = "--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_1\r\n\r\n"
    for part in parts:
        head = "Content-Type: application/http\r\nContent-Transfer-Encoding: binary"
        body += f"--changesetresponse_1\r\n{head}\r\n\r\n{part}\r\n"
    body += "--changesetresponse_1--\r\n--batchresponse_1--\r\n"
    headers = {"Content-Type": "multipart/mixed; boundary=batchresponse_1"}
    return web.Response(status=202, body=body.encode(), headers=headers)


DONE = f"HTTP/1.1 204 No Content\r\nCache-Control: no-cache\r\nETag: {ETAG}\r\n\r\n"
DELETED = "HTTP/1.1 204 No Content\r\nCache-Control: no-cache\r\n\r\n"


def as_the_service(asked: Asked) -> web.Response:
    """An answer that both ways of asking are content with."""
    if asked.path.endswith("$batch"):
        parts = re.findall(rb"\r\n(POST|PATCH|DELETE) http", asked.body)
        return batch_answer(*(DELETED if part == b"DELETE" else DONE for part in parts))
    if "/messages" in asked.path:
        if asked.method in ("PUT", "DELETE"):
            return web.Response(status=204, headers={"x-ms-popreceipt": "r2", "x-ms-time-next-visible": TIME})
        text = f"<QueueMessagesList>{MESSAGE}</QueueMessagesList>"
        status = 201 if asked.method == "POST" else 200
        return web.Response(status=status, text=text, content_type="application/xml")
    if asked.path.endswith("/queue-1"):
        if asked.method == "PUT":
            return web.Response(status=201)
        return web.Response(headers={"x-ms-approximate-messages-count": "7"})
    if asked.method == "GET":
        row = {"odata.etag": ETAG, "PartitionKey": "p", "RowKey": "a"}
        return web.json_response({"value": []} if asked.path.endswith("()") else row)
    return web.Response(status=204, headers={"ETag": ETAG})


COLUMNS: Columns = {
    "text": "é😀\0\r\n'\"\\ ",
    "whole": 1.0,
    "small": 5e-324,
    "yes": True,
    "most": 2**31 - 1,
    "when": datetime(2024, 2, 29, 12, 0, 0, 7, tzinfo=UTC).astimezone(dates.timezone(timedelta(hours=5))),
}
CHANGES: list[Change] = [
    Insert(ODD, COLUMNS),
    Merge("task:a", ETAG, COLUMNS),
    Delete(f"{ODD}2", ETAG),
    Merge("b", ETAG, {}),
]
HAND = Delivery("queue-1", "id-1", "a+b/c==", "m", 1)

CALLS: dict[str, Callable[[AzureStore], Awaitable[Any]]] = {
    "create": lambda store: store.tables("graphs")._create(),  # type: ignore[attr-defined]
    "insert": lambda store: store.tables("graphs").commit(ODD, [CHANGES[0]]),
    "merge": lambda store: store.tables("graphs").commit(ODD, [CHANGES[1]]),
    "batch": lambda store: store.tables("graphs").commit(ODD, CHANGES),
    "get": lambda store: store.tables("graphs").get(ODD, [ODD]),
    "query": lambda store: store.tables("graphs").query(
        ODD, Range(ODD, f"{ODD}x", where={"a": (ODD, "b"), "c": ("'",)}, select=("a", "c")), limit=7
    ),
    "query all": lambda store: store.tables("graphs").query("p", Range()),
    "next page": lambda store: store.tables("graphs").query(
        "p", Range(), continuation=json.dumps(["1!4!cA--", "a=/+"])
    ),
    "last page": lambda store: store.tables("graphs").query("p", Range(), continuation=json.dumps(["1!4!cA--", None])),
    "send": lambda store: store.queues().send("queue-1", [f"<a>&{ODD}\n\t "], delay_seconds=3),
    "receive": lambda store: store.queues().receive("queue-1", count=32, lease_seconds=30),
    "renew": lambda store: store.queues().renew(HAND, lease_seconds=0),
    "acknowledge": lambda store: store.queues().delete(HAND),
    "count": lambda store: store.queues().count("queue-1"),
    "create queue": lambda store: create_queue(store.queues()),
}

# What decides about the answer. Names of versions and of programs do not, nor in which of its forms JSON is asked for.
TELLING = ("If-Match", "Prefer", "DataServiceVersion")


def meaning(asked: Asked) -> object:
    """A request without what may be written in several ways."""
    query = sorted(parse_qsl(asked.query, keep_blank_values=True, strict_parsing=bool(asked.query)))
    # In a condition the SDK puts spaces between parentheses.
    query = [(name, value.replace("( ", "(").replace(" )", ")")) for name, value in query]
    headers = {name: asked.headers[name] for name in TELLING if name in asked.headers}
    kind = asked.headers.get("Content-Type", "").split(";")[0]
    body: object = asked.body
    if kind == "application/json":
        body = entity_of(asked.body.decode("utf-8"))
    elif kind == "application/xml":
        body = asked.body.partition(b"<QueueMessage>")[2]
    elif kind == "multipart/mixed":
        kind, body = "batch", parts_of(asked)
    return asked.method, unquote(asked.path), query, headers, kind, body


def entity_of(text: str) -> dict[str, Any]:
    """Names and values with their types; that a text is one need not be said."""
    found: dict[str, Any] = json.loads(text)
    return {name: value for name, value in found.items() if value != "Edm.String"}


def parts_of(asked: Asked) -> list[object]:
    whole = f"Content-Type: {asked.headers['Content-Type']}\r\n\r\n".encode() + asked.body
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(whole)
    [changes] = message.iter_parts()
    found: list[object] = []
    for part in changes.iter_parts():
        assert part.get_content_type() == "application/http"
        payload: Any = part.get_payload(decode=True)
        line, _, rest = payload.decode("utf-8").partition("\r\n")
        inner = email.parser.Parser(policy=email.policy.HTTP).parsestr(rest)
        body = str(inner.get_payload()).strip()
        headers = {name: inner[name] for name in TELLING if inner[name]}
        found.append((unquote(line), headers, entity_of(body) if body else None))
    return found


@pytest.mark.parametrize("name", CALLS)
async def test_what_is_asked_is_what_the_sdk_asks(service: Service, name: str) -> None:
    service.answer = as_the_service
    meant = []
    answers = []
    for thin in (True, False):
        async with opened(service, thin=thin) as store:
            answers.append(await CALLS[name](store))
        [asked] = service.asked
        meant.append(meaning(asked))
        service.asked.clear()
    assert meant[0] == meant[1]
    assert answers[0] == answers[1]


async def test_a_request_is_signed_as_the_sdk_signs(service: Service) -> None:
    service.answer = as_the_service
    async with opened(service) as store:
        for name in ("send", "receive", "renew", "acknowledge"):
            await CALLS[name](store)
    assert len(service.asked) == 4
    for asked in service.asked:
        request = HttpRequest(asked.method, f"{service.endpoint.removesuffix('/account')}{asked.path}?{asked.query}")
        request.headers.update({name: value for name, value in asked.headers.items() if name != "Authorization"})
        context: Any = type("Context", (), {"transport": None})()
        pipeline: Any = type("Request", (), {"http_request": request, "context": context})()
        SharedKeyCredentialPolicy("account", KEY).on_request(pipeline)  # type: ignore[no-untyped-call]
        assert asked.headers["Authorization"] == request.headers["Authorization"]


async def test_the_key_of_a_table_signs_date_and_path() -> None:
    """The service's own example of a string to sign has two lines: the date, and the account with the path."""
    signer = signer_for(
        AzureNamedKeyCredential("acc", KEY), "https://acc.table.core.windows.net", "table", ManualClock()
    )
    headers: dict[str, str] = {}
    await signer.sign("GET", "/graphs()", [("$top", "1")], headers, 0)
    elsewhere: dict[str, str] = {}
    await signer.sign("POST", "/graphs()", [], elsewhere, 10)
    assert headers == elsewhere, "neither method nor query nor body"
    await signer.sign("GET", "/other()", [], elsewhere, 0)
    assert headers["x-ms-date"] == elsewhere["x-ms-date"]
    assert headers["Authorization"] != elsewhere["Authorization"]
    assert re.fullmatch(r"SharedKeyLite acc:[A-Za-z0-9+/]{43}=", headers["Authorization"])
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", headers["x-ms-date"])


async def test_the_date_goes_on() -> None:
    clock = ManualClock()
    signer = KeySigner("acc", KEY, clock.now)
    first: dict[str, str] = {}
    later: dict[str, str] = {}
    await signer.sign("GET", "/q/messages", [], first, 0)
    clock.advance(60)
    await signer.sign("GET", "/q/messages", [], later, 0)
    assert first["x-ms-date"] != later["x-ms-date"]


@pytest.mark.azurite
async def test_a_wrong_key_is_refused(azurite: str) -> None:
    wrong = re.sub("AccountKey=[^;]*", f"AccountKey={KEY}", azurite)
    store = AzureStore.from_connection_string(wrong, HurriedClock())
    for call in ("get", "batch", "receive", "send"):
        with pytest.raises(StorageUnavailable, match="check the key") as caught:
            await CALLS[call](store)
        assert KEY not in shown(caught.value)
    await store.close()


# --- who asks ----------------------------------------------------------------------------------------------------


async def test_a_signature_is_part_of_every_address_and_of_no_error(service: Service) -> None:
    service.answer = as_the_service
    async with opened(service, secret=f"SharedAccessSignature=?{SIGNATURE}") as store:
        for name, call in CALLS.items():
            await call(store)
            asked = service.asked.pop()
            assert unquote(f"&{asked.query}").endswith(unquote(f"&{SIGNATURE}")), name
            assert "Authorization" not in asked.headers
        for status in (400, 403, 409, 500):
            says(service, SIGNATURE, status, **{"x-ms-error-code": SIGNATURE})
            for name, call in CALLS.items():
                with pytest.raises(StorageError) as caught:
                    await call(store)
                assert "cret" not in shown(caught.value), name
        assert "cret" not in repr(store) + repr(vars(store))


async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()


async def garbled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
    await writer.drain()
    writer.close()


@pytest.mark.parametrize("thin", CLIENTS)
@pytest.mark.parametrize("behave", [cut, garbled])
async def test_a_signature_is_in_no_error_of_a_broken_connection(behave: Any, thin: bool) -> None:
    server = await asyncio.start_server(behave, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with opened(
        Service(f"http://127.0.0.1:{port}/account"), secret=f"SharedAccessSignature={SIGNATURE}"
    ) as store:
        big = [Insert(f"k{n}", {"text": "x" * 30_000}) for n in range(100)]
        attempts = [*CALLS.items(), ("big", lambda store: store.tables("graphs").commit("p", big))]
        for name, call in attempts:
            with pytest.raises((StorageUnavailable, Unclear)) as caught:
                await call(store)
            assert "cret" not in shown(caught.value), name
    server.close()


class Identity:
    """A credential that gives a new token each time, good for an hour."""

    def __init__(self, clock: ManualClock, hours: float = 1) -> None:
        self.clock = clock
        self.hours = hours
        self.given: list[str | None] = []
        self.error: Exception | None = None

    async def get_token(self, *scopes: str, tenant_id: str | None = None, **_: object) -> AccessToken:
        assert scopes == ("https://storage.azure.com/.default",)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.given.append(tenant_id)
        return AccessToken(f"token-{len(self.given)}", int(self.clock.now().timestamp() + 3600 * self.hours))

    async def close(self) -> None: ...

    async def __aenter__(self) -> "Identity":
        return self

    async def __aexit__(self, *_: object) -> None: ...


async def bearer(signer: TokenSigner) -> str:
    headers: dict[str, str] = {}
    await signer.sign("GET", "/x", [], headers, 0)
    return headers["Authorization"]


async def test_a_token_is_fetched_once_and_again_before_it_ends() -> None:
    clock = ManualClock()
    identity = Identity(clock)
    signer = TokenSigner(identity, clock)
    assert await asyncio.gather(*(bearer(signer) for _ in range(5))) == ["Bearer token-1"] * 5
    clock.advance(3600 - 301)
    assert await bearer(signer) == "Bearer token-1"
    clock.advance(2)
    assert await bearer(signer) == "Bearer token-2"
    assert signer.refused("") is False
    assert await bearer(signer) == "Bearer token-3", "one that was refused is not shown again"


def test_a_token_is_never_shown_without_tls() -> None:
    with pytest.raises(InvalidSettings, match="https"):
        signer_for(Identity(ManualClock()), "http://127.0.0.1:1/account", "table", ManualClock())
    for credential in (AzureNamedKeyCredential("a", KEY), AzureSasCredential(SIGNATURE), Identity(ManualClock())):
        signer = signer_for(credential, "https://a", "queue", ManualClock())
        assert KEY not in repr(signer) + repr(vars(signer))


# --- over TLS, with an identity ----------------------------------------------------------------------------------


@dataclass
class Certificate:
    path: Path
    server: ssl.SSLContext


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate for 127.0.0.1 that nobody vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(made.public_bytes(pem) + private)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return Certificate(path, server)


@pytest.fixture
def trusted(certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the machine knew the certificate."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
    # The SDK's transport has made its own when it was imported.
    monkeypatch.setattr(aiohttp.connector, "_SSL_CONTEXT_VERIFIED", ssl.create_default_context(cafile=certificate.path))


@contextlib.asynccontextmanager
async def identified(service: Service, identity: Identity) -> AsyncIterator[AzureStore]:
    store = AzureStore(_Account(service.endpoint, service.endpoint, service.endpoint, identity), HurriedClock())
    try:
        yield store
    finally:
        await store.close()


async def test_a_certificate_that_nobody_vouches_for_is_refused(certificate: Certificate) -> None:
    async with serving(certificate.server) as service, opened(service) as store:
        for name, call in CALLS.items():
            with pytest.raises(StorageUnavailable, match="its certificate or its TLS is not accepted"):
                await call(store)
            assert service.asked == [], name


@pytest.mark.usefixtures("trusted")
async def test_an_identity_shows_its_token(certificate: Certificate) -> None:
    identity = Identity(ManualClock(), hours=1e6)
    async with serving(certificate.server) as service, identified(service, identity) as store:
        service.answer = as_the_service
        for call in CALLS.values():
            await call(store)
            assert service.asked.pop().headers["Authorization"] in ("Bearer token-1", "Bearer token-2")
        assert len(identity.given) == 2, "one for the tables, one for the queues"


@pytest.mark.usefixtures("trusted")
async def test_a_token_of_another_directory_is_asked_for_if_the_service_names_it(certificate: Certificate) -> None:
    identity = Identity(ManualClock(), hours=1e6)
    challenge = (
        "Bearer authorization_uri=https://login.microsoftonline.com/0a1b-2c/oauth2/authorize resource_id=https://x"
    )

    def answer(asked: Asked) -> web.Response:
        if asked.headers["Authorization"] == "Bearer token-1":
            return web.Response(status=401, headers={"WWW-Authenticate": challenge})
        return as_the_service(asked)

    async with serving(certificate.server) as service, identified(service, identity) as store:
        service.answer = answer
        assert await CALLS["insert"](store) == [ETAG]
        assert identity.given == [None, "0a1b-2c"]
        service.answer = lambda asked: web.Response(status=401, headers={"WWW-Authenticate": challenge})
        service.asked.clear()
        with pytest.raises(StorageUnavailable, match="check the key"):
            await CALLS["insert"](store)
        assert len(service.asked) == 1, "not for ever"
        identity.error = ClientAuthenticationError("no identity here: token-secret")
        with pytest.raises(StorageUnavailable, match="does not let us in"):
            await CALLS["insert"](store)
        assert len(service.asked) == 1


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("thin", CLIENTS)
async def test_a_proxy_of_the_environment_is_used(
    certificate: Certificate, thin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[bytes] = []

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        heads.append(head)
        host, port = head.split(b" ")[1].decode().split(":")
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(1 << 16):
                    sink.write(data)
            sink.close()

        await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))

    proxy = await asyncio.start_server(connect, "127.0.0.1", 0)
    address = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    for name in ("no_proxy", "NO_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", f"http://me:pass@{address}")
    async with serving(certificate.server) as service:
        service.answer = as_the_service
        async with opened(service, thin=thin) as store:
            await CALLS["get"](store)
            await CALLS["send"](store)
        assert heads
        assert all(head.startswith(b"CONNECT 127.0.0.1:") for head in heads)
        assert all(b"Proxy-Authorization: Basic " in head for head in heads)
        heads.clear()
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with opened(service, thin=thin) as store:
            await CALLS["get"](store)
        assert heads == []
    proxy.close()


# --- how answers are read ----------------------------------------------------------------------------------------


def entity(text: str) -> str:
    return f'{{"odata.metadata":"x","odata.etag":"e1","PartitionKey":"p","RowKey":"a",{text}}}'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"c":1.0', 1.0),
        ('"c":1,"c@odata.type":"Edm.Double"', 1.0),
        ('"c@odata.type":"Edm.Double","c":"Infinity"', float("inf")),
        ('"c":-0.0', -0.0),
        ('"c":7', 7),
        ('"c":true', True),
        ('"c@odata.type":"Edm.Int64","c":"1099511627776"', 2**40),
        ('"c":"1","c@odata.type":"Edm.String"', "1"),
        ('"c@odata.type":"Edm.Binary","c":"AP8="', "AP8="),
        (
            '"c@odata.type":"Edm.Guid","c":"12345678-1234-5678-1234-56781234567F"',
            "12345678-1234-5678-1234-56781234567f",
        ),
        (
            '"c@odata.type":"Edm.DateTime","c":"2024-02-29T12:30:45.1234569Z"',
            datetime(2024, 2, 29, 12, 30, 45, 123456, UTC),
        ),
        ('"c":"2024-02-29T12:30:45Z","c@odata.type":"Edm.DateTime"', datetime(2024, 2, 29, 12, 30, 45, 0, UTC)),
        ('"c":"2024-02-29T12:30:45Z"', "2024-02-29T12:30:45Z"),
        (r'"c":"\u0000\ud83d\ude00"', "\0😀"),
    ],
)
@pytest.mark.parametrize("thin", CLIENTS)
async def test_values_are_read_with_their_types(service: Service, thin: bool, text: str, value: object) -> None:
    body = entity(f'"Timestamp":"2024-01-01T00:00:00.1234567Z",{text}')
    service.answer = lambda asked: web.Response(
        body=(f'{{"value":[{body}]}}' if asked.path.endswith("()") else body).encode(),
        headers={"Content-Type": "application/json;odata=minimalmetadata"},
    )
    async with opened(service, thin=thin) as store:
        [row] = await store.tables("graphs").get("p", ["a"])
        [same] = (await store.tables("graphs").query("p", Range())).rows
    assert row is not None
    assert (row.key, row.etag, row.columns) == ("a", "e1", {"c": value})
    assert row == same
    assert type(row.columns["c"]) is type(value)
    assert repr(row.columns["c"]) == repr(value)


async def test_a_type_that_needs_no_name_may_have_one(service: Service, tables: Tables) -> None:
    """The SDK would give the name for the value."""
    says(service, entity('"c@odata.type":"Edm.Boolean","c":false,"Timestamp@odata.type":"Edm.DateTime"'))
    assert await tables.get("p", ["a"]) == [Row("a", "e1", {"c": False})]


async def test_a_column_of_nothing_is_missing(service: Service, tables: Tables) -> None:
    says(service, entity('"a":null,"b@odata.type":"Edm.Int64","b":null,"c":1'))
    assert await tables.get("p", ["a"]) == [Row("a", "e1", {"c": 1})]


async def test_an_etag_that_a_selection_leaves_out_is_made_from_the_time(service: Service, tables: Tables) -> None:
    says(service, '{"value":[{"RowKey":"a","Timestamp":"2024-01-01T00:00:00.1234567Z","n":1}]}')
    page = await tables.query("p", Range(select=("n",)))
    assert page.rows == [Row("a", "W/\"datetime'2024-01-01T00%3A00%3A00.1234567Z'\"", {"n": 1})]


async def test_an_empty_page_may_have_a_next_one(service: Service, tables: Tables) -> None:
    service.answer = lambda asked: web.json_response(
        {"value": []},
        headers={"X-MS-Continuation-NextPartitionKey": "1!4!cA--", "X-MS-Continuation-NextRowKey": "1!8!a2Vy"},
    )
    page = await tables.query("p", Range())
    assert (page.rows, page.continuation) == ([], '["1!4!cA--", "1!8!a2Vy"]')
    service.answer = lambda asked: web.json_response(
        {"value": []}, headers={"X-MS-Continuation-NextPartitionKey": "1!4!cA--"}
    )
    page = await tables.query("p", Range(), continuation=page.continuation)
    assert page.continuation == '["1!4!cA--", null]'
    assert dict(parse_qsl(service.asked[-1].query))["NextRowKey"] == "1!8!a2Vy"
    says(service, '{"value":[]}')
    assert (await tables.query("p", Range(), continuation=page.continuation)).continuation is None
    assert "NextRowKey" not in service.asked[-1].query


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html>",
        "[]",
        "{}",
        '{"value":{}}',
        '{"value":[7]}',
        '{"value":[{"PartitionKey":"p"}]}',
        '{"value":[{"RowKey":"a"}]}',
        entity('"c":"x","c@odata.type":"Edm.Int64"'),
        entity('"c":"x","c@odata.type":"Edm.DateTime"'),
        entity('"c":[],"c@odata.type":"Edm.Binary"'),
        '{"value":[' + entity('"c":1'),
        gzip.compress(b'{"value":[]}', mtime=0),
    ],
)
async def test_a_reading_without_sense_is_made_again_and_then_told(
    service: Service, tables: Tables, text: str | bytes
) -> None:
    says(service, text)
    readings: list[Callable[[], Awaitable[Any]]] = [
        lambda: tables.get("p", ["a"]),
        lambda: tables.query("p", Range()),
    ]
    for reading in readings:
        service.asked.clear()
        with pytest.raises(StorageUnavailable, match=r"answer of .* was lost"):
            await reading()
        assert len(service.asked) == 4


@pytest.mark.parametrize(
    "text", ["", "<html>", "{}", "<a><b></a>", "<L><QueueMessage/></L>", "<L><M><MessageId>1</MessageId></M></L>"]
)
async def test_messages_without_sense_are_lost(service: Service, text: str) -> None:
    says(service, text)
    async with opened(service) as store:
        with pytest.raises(StorageUnavailable, match="was lost"):
            await CALLS["receive"](store)
    assert len(service.asked) == 1


async def test_messages_are_read_whoever_wrote_them(service: Service) -> None:
    def message(body: str) -> str:
        return MESSAGE.replace("<MessageText>m</MessageText>", body)

    text = (
        '\ufeff<?xml version="1.0" encoding="utf-8"?><QueueMessagesList>'
        + message("<MessageText>eyJhIjoxfQ==</MessageText>")
        + message("<MessageText> &lt;a&gt;&amp;&#13;&#x1F600;\n é</MessageText>")
        + message("<MessageText><![CDATA[<x>]]></MessageText>")
        + message("<MessageText />")
        + message("")
        + "</QueueMessagesList>"
    )
    says(service, text)
    found = []
    for thin in (True, False):
        async with opened(service, thin=thin) as store:
            service.answer = lambda asked: web.Response(body=text.encode(), headers={"Content-Type": "application/xml"})
            found.append(await store.queues().receive("queue-1", count=32, lease_seconds=30))
    assert [each.body for each in found[0]] == ["eyJhIjoxfQ==", " <a>&\r😀\n é", "<x>", "", ""]
    assert found[0] == found[1]
    times = ("Mon, 01 Jan 2024 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT")
    assert found[0][0] == Delivery("queue-1", "1", "r+/=", "eyJhIjoxfQ==", 3, *times)


TWO: list[Change] = [Insert("a", {"n": 1}), Merge("b", ETAG, {"n": 1})]


def failed(status: int, code: str, words: str) -> str:
    told = json.dumps({"odata.error": {"code": code, "message": {"lang": "en-US", "value": words}}})
    return f"HTTP/1.1 {status} Refused\r\nContent-ID: 1\r\nContent-Type: application/json\r\n\r\n{told}\r\n"


async def test_the_answer_to_a_transaction_is_read_in_each_of_its_forms(service: Service, tables: Tables) -> None:
    whole = '{"odata.etag":"not this one","text":"--changesetresponse_1 HTTP/1.1 500 ETag: nor this"}'
    created = f"HTTP/1.1 201 Created\r\nContent-ID: 1\r\nlocation: http://x\r\netag: {ETAG}\r\n\r\n{whole}\r\n"
    service.answer = lambda asked: batch_answer(created, DONE)
    assert await tables.commit("p", TWO) == [ETAG, ETAG], "a boundary begins its line: the one in the text is none"
    service.answer = lambda asked: batch_answer(DONE, DELETED)
    assert await tables.commit("p", [TWO[0], Delete("b", ETAG)]) == [ETAG, None]


@pytest.mark.parametrize(
    "parts",
    [(), (DONE,), (DONE, DONE, DONE), (DONE, DELETED), (DONE, ""), (DONE, "HTTP/2 204\r\n\r\n"), (DONE, "\r\n\r\n")],
)
async def test_an_answer_that_does_not_fit_the_transaction_is_unclear(
    service: Service, tables: Tables, parts: tuple[str, ...]
) -> None:
    service.answer = lambda asked: batch_answer(*parts)
    with pytest.raises(Unclear):
        await tables.commit("p", TWO)
    assert len(service.asked) == 1


async def test_an_answer_that_ends_too_soon_is_unclear(service: Service, tables: Tables) -> None:
    whole = batch_answer(DONE, DONE)
    assert isinstance(whole.body, bytes)
    body, headers = whole.body, {"Content-Type": "multipart/mixed; boundary=batchresponse_1"}
    end = body.index(b"--changesetresponse_1--")
    for length in range(0, end + 1, 7):
        service.answer = (
            lambda asked, length=length: web.Response(  # type: ignore[misc]
                status=202, body=body[:length], headers=headers
            )
        )
        with pytest.raises(Unclear):
            await tables.commit("p", TWO)
    service.answer = lambda asked: web.Response(status=202, body=body, headers=headers)
    assert await tables.commit("p", TWO) == [ETAG, ETAG]


@pytest.mark.parametrize(
    ("words", "index"),
    [("1:The condition", 1), ("0:x", 0), ("2:x", None), ("x", None), ("", None), ("-1:x", None), ("1.5:x", None)],
)
async def test_a_refused_transaction_names_the_change(
    service: Service, tables: Tables, words: str, index: int | None
) -> None:
    service.answer = lambda asked: batch_answer(failed(412, "UpdateConditionNotSatisfied", words))
    with pytest.raises(Conflict) as caught:
        await tables.commit("p", TWO)
    assert caught.value.index == index


async def test_what_is_no_word_of_the_service_is_not_shown(service: Service, tables: Tables) -> None:
    for code in ("<script>", "x" * 100, "a b", "\u001b[31m"):
        service.answer = lambda asked, code=code: batch_answer(failed(400, code, "words"))  # type: ignore[misc]
        with pytest.raises(StorageError, match=r"refused a request: 400 $"):
            await tables.commit("p", TWO)


async def test_an_answer_may_come_in_pieces() -> None:
    row = entity('"c":"' + "é" * 50_000 + '"').encode()

    async def handle(request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        for start in range(0, len(row), 9_999):
            await stream.write(row[start : start + 9_999])
        return stream

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    async with opened(Service(f"http://127.0.0.1:{port}/account")) as store:
        [found] = await store.tables("graphs").get("p", ["a"])
        assert found == Row("a", "e1", {"c": "é" * 50_000})
    await runner.cleanup()


async def test_a_redirection_is_not_followed(service: Service, tables: Tables) -> None:
    says(service, "", 307, Location="http://127.0.0.1:1/elsewhere")
    with pytest.raises(Unclear):
        await tables.commit("p", TWO)
    with pytest.raises(StorageUnavailable, match="307"):
        await tables.get("p", ["a"])
