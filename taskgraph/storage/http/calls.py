"""Requests to a server of the HTTP API: how long, how often, and what their failures mean.

What was not sent, or was refused unread (429), is sent again, and so is what does no harm twice after an answer that
was lost or a 5xx; a few times, with jitter. The token goes to that address alone: no redirection is followed.
"""

import gzip
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, BinaryIO, Final
from urllib.parse import quote
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from taskgraph.model.clock import Clock
from taskgraph.model.errors import InvalidSettings, NotFound, StorageUnavailable, TaskgraphError, Unclear
from taskgraph.storage.http.problems import error_of, strange

log = logging.getLogger("taskgraph.storage")

CONNECT_SECONDS: Final = 4.0
READ_SECONDS: Final = 12.0
WRITE_SECONDS: Final = 120.0  # a large graph is written, or deleted, within the request
_TRIES_MAX: Final = 4
_BUDGET_SECONDS: Final = 10.0  # no further try begins after so long
_BACKOFF_SECONDS: Final = 0.2
_BACKOFF_SECONDS_MAX: Final = 3.0
_CONNECTIONS_MAX: Final = 16
_IDLE_SECONDS: Final = 4.0  # proxies and other servers close an idle connection after 5 or more
_GZIP_BYTES_MIN: Final = 1_000
_REPEATED: Final = ("PUT", "DELETE")
_NO_TLS: Final = (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError)
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")

Query = Sequence[tuple[str, str]]
_Data = bytes | BinaryIO | None


class Server:
    """A server by its address, such as `https://host/api/v1`. token: that it asks for, "" for none.

    trace: gives the traceparent that a request carries, "" for none.
    """

    def __init__(self, address: str, token: str, clock: Clock, trace: Callable[[], str] = str) -> None:
        self.address = address
        self._url = URL(address)
        self._token = token
        self._clock = clock
        self._trace = trace
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        if token and self._url.scheme == "http" and self._url.host not in _LOOPBACK:
            log.warning("%s is no https: on the way there everyone can read the token, and use it", address)

    async def get(self, path: str, query: Query = (), seconds: float = READ_SECONDS, *, body: object = None) -> Any:
        """The answer as JSON. seconds: that the server may be silent. body: what is too long for an address."""
        if body is None:
            return self._read(await self._call("GET", path, query, {}, None, seconds))
        said, data = _as_json(body)
        return self._read(await self._call("POST", path, query, said, data, seconds, reads=True))

    async def read(self, path: str, query: Query = ()) -> bytes | None:
        """The bytes of an answer; None for what there is not."""
        try:
            return await self._call("GET", path, query, {}, None, READ_SECONDS)
        except NotFound:
            return None

    async def ask(
        self,
        method: str,
        path: str,
        query: Query = (),
        *,
        body: object = None,
        file: BinaryIO | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> Any:
        """Have the server do what it is asked for; gives its answer. body: sent as JSON. file: sent as it is.

        Raises what the server raised, and Unclear where its answer was lost.
        """
        said: Mapping[str, str] = {} if file is None else {"Content-Type": "application/gzip"}
        data: _Data = file
        if body is not None:
            said, data = _as_json(body)
        return self._read(await self._call(method, path, query, {**headers, **said}, data, WRITE_SECONDS))

    async def close(self) -> None:
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _read(self, answer: bytes) -> Any:
        try:
            return json.loads(answer)
        except ValueError as error:  # the page of a sign-in, such as proxies send
            raise strange(self.address, 200) from error

    async def _call(
        self,
        method: str,
        path: str,
        query: Query,
        headers: Mapping[str, str],
        data: bytes | BinaryIO | None,
        seconds: float,
        *,
        reads: bool = False,
    ) -> bytes:
        """reads: it does no harm twice, and its answer is all that is lost with it, as of every GET."""
        reads = reads or method == "GET"
        repeated = reads or method in _REPEATED
        if self._closed:
            raise StorageUnavailable(f"the connection to {self.address} has been closed", self.address)
        end = self._clock.monotonic() + _BUDGET_SECONDS
        pause = _BACKOFF_SECONDS
        for tries in range(1, _TRIES_MAX + 1):
            again_after = 0.0
            try:
                status, given, body = await self._send(method, path, query, headers, data, seconds)
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
                failure: TaskgraphError = self._away(error)
                again = not isinstance(error, _NO_TLS)
            except (aiohttp.ClientError, TimeoutError) as error:
                again = repeated
                words = f"the answer of {self.address} was lost ({type(error).__name__})"
                failure = StorageUnavailable(words, self.address) if reads else Unclear(words)
            else:
                if 200 <= status < 300:
                    return body
                failure = error_of(self.address, status, body)
                again = status == 429 or (status >= 500 and status != 500 and repeated)
                again_after = _seconds(given.get("Retry-After", ""))
            wait = max(again_after, pause * (0.5 + self._clock.jitter()))
            if not again or tries == _TRIES_MAX or self._clock.monotonic() + wait > end:
                raise failure
            await self._clock.sleep(wait)
            pause = min(pause * 3, _BACKOFF_SECONDS_MAX)
        raise AssertionError("the last try raises")

    async def _send(
        self,
        method: str,
        path: str,
        query: Query,
        headers: Mapping[str, str],
        data: bytes | BinaryIO | None,
        seconds: float,
    ) -> tuple[int, Mapping[str, str], bytes]:
        if self._session is None:
            own = {"Authorization": f"Bearer {self._token}"} if self._token else {}
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS_MAX, keepalive_timeout=_IDLE_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept": "application/json", **own},
            )
        url = URL(f"{self.address}{path}", encoded=True)
        if trace := self._trace():
            headers = {**headers, "traceparent": trace}
        async with self._session.request(
            method,
            url.with_query(query) if query else url,
            headers=headers,
            data=data,
            timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=seconds),
            allow_redirects=False,
            proxy=self._proxy(),
        ) as answer:
            return answer.status, answer.headers, await answer.read()

    def _proxy(self) -> str | None:
        host = self._url.host or ""
        return None if host in _LOOPBACK or proxy_bypass(host) else getproxies().get(self._url.scheme)

    def _away(self, error: Exception) -> TaskgraphError:
        if isinstance(error, aiohttp.InvalidURL):
            return InvalidSettings(f"{self.address} is no address")
        reason = "no connection in time"
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            reason = "its name does not resolve"
        elif isinstance(error, aiohttp.ClientConnectorCertificateError):
            reason = "its certificate is not accepted"
        elif isinstance(error, aiohttp.ClientConnectorSSLError):
            reason = "it speaks no TLS that is accepted; is it one for http://?"
        elif isinstance(error, aiohttp.ClientConnectorError):
            reason = os.strerror(error.errno) if error.errno else "no connection"
        return StorageUnavailable(f"{self.address} cannot be reached: {reason}", self.address)


def _as_json(body: object) -> tuple[Mapping[str, str], bytes]:
    """Headers, and the bytes that they describe."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    said = {"Content-Type": "application/json"}
    if len(text) < _GZIP_BYTES_MIN:
        return said, text
    return {**said, "Content-Encoding": "gzip"}, gzip.compress(text, 1)


def path_of(*parts: object) -> str:
    """A path of these parts, each as one."""
    return "".join(f"/{quote(str(part), safe=':')}" for part in parts)


def _seconds(text: str) -> float:
    """Of a header `Retry-After`; 0 for none, and for a date."""
    return float(text) if text.isascii() and text.isdigit() else 0.0
