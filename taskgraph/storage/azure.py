"""The cloud store: Azure Table, Queue and Blob Storage behind the ports.

What this room is for: finding the three endpoints and the credential, and owning the one pool of connections that the
adapters share. It never shows a key: not in an error, not in a name, not in a log.
"""

import asyncio
import base64
import binascii
import io
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import ResolveResult
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.pipeline.transport import AioHttpTransport, AsyncHttpTransport
from azure.data.tables.aio import TableClient
from azure.storage.blob.aio import BlobClient, ContainerClient
from azure.storage.queue.aio import QueueClient

from taskgraph.clock import Clock
from taskgraph.errors import InvalidSettings
from taskgraph.storage import checks
from taskgraph.storage.azure_calls import CONNECT_SECONDS, READ_SECONDS, Caller
from taskgraph.storage.azure_logs import CONTAINER, AzureLogs
from taskgraph.storage.azure_queues import AzureQueues
from taskgraph.storage.azure_tables import AzureTables
from taskgraph.storage.logs import Logs
from taskgraph.storage.queues import Queues
from taskgraph.storage.tables import Tables

_Credential = AzureNamedKeyCredential | AzureSasCredential | AsyncTokenCredential

# The emulator's account: well known, documented, the same everywhere, and no secret.
_EMULATOR_ACCOUNT: Final = "devstoreaccount1"
_EMULATOR_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_EMULATOR_PORTS: Final = {"blob": 10000, "queue": 10001, "table": 10002}

_CONNECTIONS_MAX: Final = 64
# The emulator closes an idle connection after 5 seconds; a request that meets the closing would be an unclear one.
_IDLE_SECONDS_EMULATOR: Final = 4.0
_IDLE_SECONDS: Final = 60.0
_BODY_BYTES_MAX: Final = (
    1_000_000  # a longer body goes as a stream: aiohttp would write it in one go, and warns of that
)


@dataclass(frozen=True, slots=True)
class _Account:
    table: str
    queue: str
    blob: str
    credential: _Credential = field(repr=False)


class AzureStore:
    """A storage account, or the emulator. `close` when done; until the first call nothing is connected.

    Made by `from_connection_string` or `from_endpoints`. clock: for the pauses between tries. transport: another way to
    send requests than the store's own pool of connections; the store closes it in the end.
    """

    def __init__(
        self, account: _Account, clock: Clock, *, transport: AsyncHttpTransport[Any, Any] | None = None
    ) -> None:
        self._account = account
        self._clock = clock
        self._transport = transport or _Pool(account.table)
        # One try for each request: what may be repeated is repeated by Caller (P17).
        self._options: dict[str, Any] = {
            "credential": account.credential,
            "transport": self._transport,
            "retry_total": 0,
            "user_agent": "taskgraph",
        }
        self._closed = False

    @classmethod
    def from_connection_string(
        cls, text: str, clock: Clock, *, transport: AsyncHttpTransport[Any, Any] | None = None
    ) -> "AzureStore":
        """The account of a connection string: a key, a signature, explicit endpoints, or UseDevelopmentStorage=true.

        Raises InvalidSettings, which does not repeat the string.
        """
        return cls(_parse(text), clock, transport=transport)

    @classmethod
    def from_endpoints(
        cls, table_endpoint: str, queue_endpoint: str, blob_endpoint: str, clock: Clock, *, client_id: str = ""
    ) -> "AzureStore":
        """The account at these https endpoints, with the identity that this machine or person has.

        client_id: of a user-assigned managed identity. Raises InvalidSettings for an endpoint that is not https.
        """
        table, queue, blob = (_endpoint(text) for text in (table_endpoint, queue_endpoint, blob_endpoint))
        for end in (table, queue, blob):
            if not end.startswith("https:"):
                raise InvalidSettings(f"{end}: an identity is only ever shown over https")
        from azure.identity.aio import DefaultAzureCredential  # heavy, and only this way of signing in needs it

        options: dict[str, Any] = {"managed_identity_client_id": client_id} if client_id else {}
        return cls(_Account(table, queue, blob, DefaultAzureCredential(**options)), clock)

    def tables(self, name: str) -> Tables:
        """The table of this name. Raises ValueError for a name that the service would refuse."""
        checks.check_table_name(name)
        end, options = self._account.table, self._options
        return AzureTables(self._caller(end), lambda: TableClient(end, name, **options), name)

    def queues(self, on_send: Callable[[str], None] | None = None) -> Queues:
        """All queues. on_send: called on the event loop with the queue's name after a send that can be received now."""
        end, options = self._account.queue, self._options
        return AzureQueues(self._caller(end), lambda name: QueueClient(end, name, **options), on_send)

    def logs(self) -> Logs:
        """All logs: append blobs `<graph>/<task>/<run>/<name>` in one container."""
        end, options = self._account.blob, self._options
        return AzureLogs(
            self._caller(end),
            lambda name: BlobClient(end, CONTAINER, name, **options),
            lambda: ContainerClient(end, CONTAINER, **options),
        )

    async def close(self) -> None:
        """Close the connections. Idempotent; later calls raise StorageUnavailable."""
        self._closed = True
        await self._transport.close()
        if isinstance(self._account.credential, AsyncTokenCredential):
            await self._account.credential.close()

    def _caller(self, endpoint: str) -> Caller:
        return Caller(endpoint, self._clock, lambda: self._closed)


class _Pool(AioHttpTransport):  # type: ignore[misc]  # the SDK loads it lazily, and so hides its type
    """The SDK's transport with our own session: made in the running loop, with bounds on every wait."""

    def __init__(self, endpoint: str) -> None:
        self._secure = endpoint.startswith("https:")
        super().__init__(
            connection_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            use_env_settings=self._secure,
        )
        self.session: aiohttp.ClientSession | None
        self._ended = False

    async def open(self) -> None:
        if self.session is None and not self._ended:
            self.session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=_CONNECTIONS_MAX,
                    keepalive_timeout=_IDLE_SECONDS if self._secure else _IDLE_SECONDS_EMULATOR,
                    resolver=_Resolver(),
                ),
                response_class=_Response,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # the SDK does it
                trust_env=self._secure,  # proxies; the emulator is on this machine
            )
        await super().open()

    async def send(self, request: Any, **config: Any) -> Any:
        data = request.data
        if isinstance(data, (str, bytes)) and len(data) > _BODY_BYTES_MAX:
            request.data = io.BytesIO(data.encode("utf-8") if isinstance(data, str) else data)
        return await super().send(request, **config)

    async def close(self) -> None:
        self._ended = True
        await super().close()


class _AnswerLost(aiohttp.ClientConnectionError):
    """The connection was lost between the request and the answer."""


class _Response(aiohttp.ClientResponse):
    """Tells of a lost answer in a word of its own.

    For aiohttp repeats a GET, PUT or DELETE once by itself when the connection is lost, and here those receive
    messages, renew leases and append to logs: none of them may be made twice unasked.
    """

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        try:
            return await super().start(connection)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            raise _AnswerLost(str(error)) from error


class _Resolver(aiohttp.ThreadedResolver):
    """Looks names up, and gives up in time: no other bound of the SDK covers a name server that is silent."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        try:
            return await asyncio.wait_for(super().resolve(host, port, family), CONNECT_SECONDS)
        except TimeoutError as error:
            raise OSError(None, "its name was not resolved in time") from error


def _parse(text: str) -> _Account:
    parts: dict[str, str] = {}
    for part in text.strip().strip(";").split(";"):
        name, separator, value = part.partition("=")
        if not separator:
            raise InvalidSettings("the connection string is not a list of name=value")
        parts[name.strip().lower()] = value.strip()
    if parts.get("usedevelopmentstorage", "").lower() == "true":
        host = parts.get("developmentstorageproxyuri", "http://127.0.0.1").rstrip("/")
        ends = {kind: f"{host}:{port}/{_EMULATOR_ACCOUNT}" for kind, port in _EMULATOR_PORTS.items()}
        key = AzureNamedKeyCredential(_EMULATOR_ACCOUNT, _EMULATOR_KEY)
        return _Account(ends["table"], ends["queue"], ends["blob"], key)
    account = parts.get("accountname", "")
    protocol = parts.get("defaultendpointsprotocol", "https")
    suffix = parts.get("endpointsuffix", "core.windows.net")
    ends = {}
    for kind in _EMULATOR_PORTS:
        given = parts.get(f"{kind}endpoint", "")
        if not given and not account:
            raise InvalidSettings(f"the connection string has neither AccountName nor {kind.capitalize()}Endpoint")
        ends[kind] = _endpoint(given or f"{protocol}://{account}.{kind}.{suffix}")
    return _Account(ends["table"], ends["queue"], ends["blob"], _credential(parts, account))


def _credential(parts: dict[str, str], account: str) -> _Credential:
    if signature := parts.get("sharedaccesssignature"):
        return AzureSasCredential(signature)
    key = parts.get("accountkey", "")
    if not account or not key:
        raise InvalidSettings("the connection string has neither AccountName with AccountKey nor SharedAccessSignature")
    try:
        base64.b64decode(key, validate=True)
    except binascii.Error as error:
        raise InvalidSettings("the AccountKey of the connection string is not base64") from error
    return AzureNamedKeyCredential(account, key)


def _endpoint(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.username:
        raise InvalidSettings("an endpoint of the store is no plain http or https address")  # it may hold a signature
    return text.rstrip("/")
