"""The one pool of connections to a storage account: the SDK's transport over a session with bounds on every wait.

No request is made twice, no redirection followed, and an error shows nothing of a request: an address may carry a
signature.
"""

import asyncio
import functools
import io
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import ResolveResult
from azure.core import exceptions as sdk
from azure.core.pipeline.transport import AioHttpTransport
from yarl import URL

from taskgraph.storage.azure.calls import CONNECT_SECONDS, READ_SECONDS, Lost, Unsent
from taskgraph.storage.azure.connections import Connections

_CONNECTIONS_MAX: Final = 64
# The emulator closes an idle connection after 5 seconds; a request that meets the closing would be an unclear one.
_IDLE_SECONDS_EMULATOR: Final = 4.0
_IDLE_SECONDS: Final = 60.0
_BODY_BYTES_MAX: Final = 1_000_000  # a longer body goes as a stream: aiohttp warns of others


@functools.lru_cache
def _bounds(read_seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=read_seconds)


@dataclass(frozen=True, slots=True)
class Answer:
    """headers: their names are compared without regard to case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """What the store asks of a way to send requests, beside what the SDK asks of an AsyncHttpTransport."""

    async def exchange(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None, read_seconds: float
    ) -> Answer:
        """Send this, as it is and once, and read the answer, whatever its status.

        Raises ServiceRequestError, ServiceResponseError, as the SDK's transports do.
        """

    async def close(self) -> None:
        """Idempotent."""


class Pool(AioHttpTransport):  # type: ignore[misc]  # the SDK loads it lazily, and so hides its type
    """The SDK's transport with our own session, which is made in the running loop."""

    def __init__(self, endpoint: str) -> None:
        self._secure = endpoint.startswith("https:")
        # The settings of the environment: see _proxy_for.
        super().__init__(connection_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS, use_env_settings=False)
        self._proxies: dict[str, str | None] = {}
        idle_seconds = _IDLE_SECONDS if self._secure else _IDLE_SECONDS_EMULATOR
        self._connections = Connections(most=_CONNECTIONS_MAX, idle_seconds=idle_seconds)
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
                auto_decompress=False,  # the SDK does it, and `exchange` asks for none
                skip_auto_headers=("Content-Type",),  # what is not signed must not be sent
                trust_env=False,
            )
        await super().open()

    async def send(self, request: Any, **config: Any) -> Any:
        data = request.data
        if isinstance(data, (str, bytes)) and len(data) > _BODY_BYTES_MAX:
            request.data = io.BytesIO(data.encode("utf-8") if isinstance(data, str) else data)
        try:
            return await super().send(request, proxy=self._proxy_for(URL(request.url)), **config)
        except (sdk.ServiceRequestError, sdk.ServiceResponseError) as error:
            failure = error.inner_exception or error
        raise _error_for(failure)  # from here: an error of the SDK keeps the one that is being handled

    async def exchange(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None, read_seconds: float
    ) -> Answer:
        proxy = self._proxy_for(url)
        if proxy is None:
            return Answer(*await self._connections.exchange(method, url, headers, body, read_seconds))
        if self.session is None and not self._ended:
            await self.open()
        session = self.session
        if session is None or session.closed:
            raise Unsent("the connections have been closed")
        try:
            async with session.request(
                method,
                url,
                headers=headers,
                data=body if body is None or len(body) <= _BODY_BYTES_MAX else io.BytesIO(body),
                timeout=_bounds(read_seconds),
                allow_redirects=False,
                proxy=proxy,
            ) as response:
                return Answer(response.status, response.headers, await response.read())
        except (aiohttp.ClientError, TimeoutError) as error:
            failure = error
        raise _error_for(failure)  # from here: see send

    async def close(self) -> None:
        self._ended = True
        self._connections.close()
        await asyncio.sleep(0)  # a connection that is broken off is gone with the next turn of the loop
        await super().close()

    def _proxy_for(self, url: URL) -> str | None:
        """The proxy that the environment names for this host, looked up once: aiohttp would do so at every request."""
        host = url.host
        if not self._secure or host is None:  # the emulator is on this machine
            return None
        if host not in self._proxies:
            self._proxies[host] = None if proxy_bypass(host) else getproxies().get(url.scheme)
        return self._proxies[host]


def _error_for(error: BaseException) -> sdk.AzureError:
    """The SDK's error for one of aiohttp's. That is kept only if it shows no more than the name of the host."""
    if isinstance(error, (aiohttp.ConnectionTimeoutError, sdk.ServiceRequestTimeoutError)):
        return sdk.ServiceRequestTimeoutError("no connection in time")
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ClientConnectorCertificateError)):
        raised = sdk.ServiceRequestError(type(error).__name__, error=error)
        raised.__cause__ = error
        return raised
    if isinstance(error, aiohttp.InvalidURL):
        return Unsent("no address")
    if isinstance(error, (TimeoutError, sdk.ServiceResponseTimeoutError)):
        return sdk.ServiceResponseTimeoutError("no answer in time")
    if isinstance(error, (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError)):
        return Lost("the connection broke off")
    return Lost(type(error).__name__)


class _Response(aiohttp.ClientResponse):
    """Raises another error for a lost answer.

    After one of the first two, aiohttp repeats a GET, PUT or DELETE by itself. Here those receive messages, renew
    leases and append to logs.
    """

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        try:
            return await super().start(connection)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            raise aiohttp.ClientConnectionError(str(error)) from error


class _Resolver(aiohttp.ThreadedResolver):
    """Gives up in time: no other bound of the SDK covers a name server that is silent."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        try:
            return await asyncio.wait_for(super().resolve(host, port, family), CONNECT_SECONDS)
        except TimeoutError as error:
            raise OSError(None, "its name was not resolved in time") from error
