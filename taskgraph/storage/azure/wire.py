"""Bare requests to one endpoint of the storage service, for the calls that are made all the time.

The SDK needs about ten times the work for the same bytes (docs/benchmarks/azure-client.md). Only a request that was
refused unread is repeated here, with another token or another time.
"""

import json
import re
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import quote, urlsplit

from azure.core.exceptions import HttpResponseError
from yarl import URL

from taskgraph.model.clock import Clock
from taskgraph.storage.azure.calls import READ_SECONDS
from taskgraph.storage.azure.pool import Answer, Transport
from taskgraph.storage.azure.signing import Query, Signer
from taskgraph.storage.azure.time import ServiceClock

# The oldest version that has all that is used here; every emulator and every cloud know it.
_VERSION: Final = "2019-02-02"
_HEADERS: Final = {"Accept-Encoding": "identity", "User-Agent": "taskgraph", "x-ms-version": _VERSION}
_CODE: Final = re.compile(r"[A-Za-z0-9]{1,80}")
_CODE_ELEMENT: Final = re.compile(rb"<Code>([A-Za-z0-9]{1,80})</Code>")


class Refusal(HttpResponseError):
    """An answer of another status than expected, with the service's code and message."""

    def __init__(self, status: int, code: str, text: str = "") -> None:
        super().__init__(f"{status} {code}")
        self.status_code = status
        self.error_code = code
        self.text = text


class Wire:
    """Requests to one endpoint, which may have a path: the account's name in the emulator's.

    clock: a ServiceClock learns the service's time from every answer.
    """

    def __init__(self, endpoint: str, signer: Signer, transport: Transport, clock: Clock) -> None:
        parts = urlsplit(endpoint)
        self.endpoint = endpoint
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._path = quote(parts.path, safe="/%")
        self._signer = signer
        self._transport = transport
        self._clock = clock
        self._learn = clock.learn if isinstance(clock, ServiceClock) else None

    async def ask(
        self,
        method: str,
        path: str,
        good: Collection[int],
        *,
        query: Query = (),
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        read_seconds: float = READ_SECONDS,
    ) -> Answer:
        """Send a request; its answer. path: quoted, below the endpoint. query: not quoted.

        Raises Refusal for a status that is not good, and what a Transport raises.
        """
        began = self._clock.monotonic()
        answer = await self._once(method, path, query, headers, body, read_seconds)
        moved = self._learn is not None and self._learn(answer.headers.get("Date", ""), began)
        if answer.status == 403 and moved:  # it was signed by a clock that is off
            answer = await self._once(method, path, query, headers, body, read_seconds)
        if answer.status == 401 and self._signer.refused(answer.headers.get("WWW-Authenticate", "")):
            answer = await self._once(method, path, query, headers, body, read_seconds)
        if answer.status not in good:
            raise refusal(answer.status, answer.headers, answer.body)
        return answer

    async def _once(
        self,
        method: str,
        path: str,
        query: Query,
        more: Mapping[str, str] | None,
        body: bytes | None,
        read_seconds: float,
    ) -> Answer:
        headers = _HEADERS.copy() if more is None else {**_HEADERS, **more}
        path = self._path + path
        await self._signer.sign(method, path, query, headers, 0 if body is None else len(body))
        address = f"{self._origin}{path}"
        asked = "&".join([f"{name}={quote(value, safe='')}" for name, value in query])
        if self._signer.suffix:
            asked = f"{asked}&{self._signer.suffix}" if asked else self._signer.suffix
        if asked:
            address = f"{address}?{asked}"
        # What was signed is what is sent: nothing may quote it once more.
        return await self._transport.exchange(method, URL(address, encoded=True), headers, body, read_seconds)


def refusal(status: int, headers: Mapping[str, str], body: bytes) -> Refusal:
    """The error for an answer of another status than expected. One of a proxy has no code."""
    code, text = headers.get("x-ms-error-code", ""), ""
    if body.startswith(b"{"):
        try:
            refused = json.loads(body)["odata.error"]
            code, text = str(refused["code"]), str(refused["message"]["value"])
        except (ValueError, KeyError, TypeError):
            pass  # the header may have said it
    elif not code and (found := _CODE_ELEMENT.search(body)):
        code = found[1].decode("ascii")
    return Refusal(status, code if _CODE.fullmatch(code) else "", text)
