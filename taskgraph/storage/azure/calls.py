"""One call to the storage service: how long, how often, and what its failures mean to those above.

Only this module knows the errors of the Azure SDK. The SDK's own retries are off everywhere, because they repeat
conditional writes and then report a conflict with the caller's own write (P17); what may be repeated is repeated here,
with jitter and within bounds.

How an answer is read:

- The connection could not be made: nothing was sent. `StorageUnavailable`, after a few tries.
- 401 and 403: `StorageUnavailable`, at once; after a 403 whose `Date` shows that our clock was off, once more before.
- 429: refused unread; `StorageUnavailable`, after a few tries.
- Anything that leaves open whether the service has acted (a connection lost after sending, a time-out, a 5xx): repeated
  where that does no harm; otherwise `Unclear` for a commit, `StorageUnavailable` for the rest.
- Any other refusal (4xx) reaches the adapter as the SDK's error, to be read with `code_of`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Final, TypeVar

import aiohttp
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    DecodeError,
    HttpResponseError,
    IncompleteReadError,
    ServiceRequestError,
    ServiceRequestTimeoutError,
    ServiceResponseError,
    ServiceResponseTimeoutError,
)

from taskgraph.model.clock import Clock
from taskgraph.model.errors import StorageError, StorageUnavailable, Unclear
from taskgraph.storage.azure.time import ServiceClock

_T = TypeVar("_T")
_Item = TypeVar("_Item")

CONNECT_SECONDS: Final = 4.0  # a name that does not resolve and a host that is silent both count against it
READ_SECONDS: Final = 10.0  # of silence, for everything but a commit
COMMIT_SECONDS: Final = 35.0  # of silence: the service itself gives a write 30 seconds, and then says so
CONCURRENCY: Final = 16  # requests of one call that are under way at a time
_TRIES_MAX: Final = 4
_BUDGET_SECONDS: Final = 10.0  # no further try begins after so long: with the last one it stays below 15 seconds
_BACKOFF_SECONDS: Final = 0.2
_BACKOFF_SECONDS_MAX: Final = 3.0


class Unsent(ServiceRequestError):
    """Nothing was sent, and nothing can be: the words say why."""


class Lost(ServiceResponseError):
    """It was sent, and what came of it is not known: the words say why."""


class Repeat(Enum):
    """When a call may be made again."""

    NEVER = auto()  # commits: the caller settles it
    UNSENT = auto()  # only when it surely did not take place
    ALWAYS = auto()  # reading, and what does no harm twice


class Caller:
    """Calls to one endpoint. `endpoint` is shown to people: it must carry no key and no signature."""

    def __init__(self, endpoint: str, clock: Clock, is_closed: Callable[[], bool]) -> None:
        self.endpoint = endpoint
        self._clock = clock
        self._is_closed = is_closed

    async def call(self, work: Callable[[], Awaitable[_T]], repeat: Repeat) -> _T:
        """Do one request, again if need be.

        Raises StorageUnavailable; Unclear (only with Repeat.NEVER); HttpResponseError for a refusal of the service.
        """
        if self._is_closed():
            raise StorageUnavailable(f"the connection to {self.endpoint} has been closed", self.endpoint)
        end = self._clock.monotonic() + _BUDGET_SECONDS
        backoff = _BACKOFF_SECONDS
        tries = 0
        while True:
            tries += 1
            began = self._clock.monotonic()
            try:
                return await work()
            except AzureError as error:
                if self._signed_late(error, began):
                    continue
                meant, again = self._read(error, repeat)
                if meant is None:
                    raise
                if not again or tries >= _TRIES_MAX or self._clock.monotonic() + backoff > end:
                    raise meant from error
            await self._clock.sleep(backoff * (0.5 + self._clock.jitter()))
            backoff = min(backoff * 3, _BACKOFF_SECONDS_MAX)

    def _signed_late(self, error: AzureError, began: float) -> bool:
        """Whether a request of the SDK was refused unread for the time of a clock that is off, and is not any more."""
        if not isinstance(error, HttpResponseError) or error.status_code != 403 or error.response is None:
            return False
        date = getattr(error.response, "headers", {}).get("Date", "")
        return isinstance(self._clock, ServiceClock) and self._clock.heard(date, began)

    def refused(self, error: HttpResponseError) -> StorageError:
        """The error for a refusal that no adapter expects: it names the code, and shows nothing of the request."""
        return StorageError(f"{self.endpoint} refused a request: {error.status_code} {code_of(error)}")

    def unavailable(self, error: HttpResponseError) -> StorageUnavailable:
        """The error for a refusal that passes by itself, such as a table that is being deleted."""
        return StorageUnavailable(f"{self.endpoint} answers: {error.status_code} {code_of(error)}", self.endpoint)

    def _read(self, error: AzureError, repeat: Repeat) -> tuple[StorageError | None, bool]:
        """What to raise (None: the error itself, for the adapter), and whether the call may be made again."""
        if isinstance(error, ServiceRequestError) and _was_unsent(error):
            return self._silent(error), repeat is not Repeat.NEVER
        if isinstance(error, HttpResponseError) and not isinstance(error, (DecodeError, IncompleteReadError)):
            status = error.status_code or 0
            if status in (401, 403) or isinstance(error, ClientAuthenticationError):
                return self._forbidden(error), False
            if status == 429:
                return self.unavailable(error), repeat is not Repeat.NEVER
            if 400 <= status < 500 and status != 408:
                return None, False
            if 200 <= status < 300 and repeat is not Repeat.NEVER and code_of(error):
                return None, False  # done, with a remark: a queue that was to be made exists
            sentence = f"{self.endpoint} answers: {status} {code_of(error)}"
        elif isinstance(error, ClientAuthenticationError):
            return self._forbidden(error), False
        else:
            sentence = f"the answer of {self.endpoint} was lost: {_reason(error)}"
        if repeat is Repeat.NEVER:
            return Unclear(sentence), False
        return StorageUnavailable(sentence, self.endpoint), repeat is Repeat.ALWAYS

    def _silent(self, error: AzureError) -> StorageUnavailable:
        return StorageUnavailable(f"{self.endpoint} cannot be reached: {_reason(error)}", self.endpoint)

    def _forbidden(self, error: AzureError) -> StorageUnavailable:
        what = f"{error.status_code} {code_of(error)}" if isinstance(error, HttpResponseError) else _reason(error)
        return StorageUnavailable(
            f"{self.endpoint} does not let us in ({what}): check the key, the identity and its roles", self.endpoint
        )


def code_of(error: HttpResponseError) -> str:
    """The service's own word for a refusal, such as `TableNotFound`; "" if it gave none."""
    code = getattr(error, "error_code", None)
    if isinstance(code, Enum):
        code = code.value
    if not code and error.response is not None:
        headers: Mapping[str, str] = getattr(error.response, "headers", {})
        code = headers.get("x-ms-error-code") or _code_in_body(error)
    return str(code or "")


def _code_in_body(error: HttpResponseError) -> str:
    if error.response is None:
        return ""
    try:
        body = json.loads(error.response.text())
        return str(body["odata.error"]["code"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""  # not every answer is the service's: a proxy may speak HTML


def _was_unsent(error: ServiceRequestError) -> bool:
    """Whether the connection was never made.

    The SDK's own distinction does not serve: it calls a connection that was cut in the middle of the answer a request
    error too.
    """
    if isinstance(error, (Unsent, ServiceRequestTimeoutError)):
        return True  # a time-out of the connection; a silent answer is another error
    cause = error.inner_exception or error.__cause__
    return isinstance(
        cause, (aiohttp.ClientConnectorError, aiohttp.ClientConnectorCertificateError, aiohttp.InvalidURL)
    )


def _reason(error: AzureError) -> str:
    """A few words on a failure of the network, without addresses and without anything that was sent."""
    cause = error.inner_exception or error.__cause__ or error
    if isinstance(cause, (Unsent, Lost)):
        return cause.message
    if isinstance(cause, aiohttp.ClientConnectorDNSError):
        return "its name does not resolve"
    if isinstance(cause, (aiohttp.ClientConnectorSSLError, aiohttp.ClientConnectorCertificateError)):
        return "its certificate or its TLS is not accepted"
    if isinstance(cause, aiohttp.ClientConnectorError):
        return cause.os_error.strerror or "no connection"
    if isinstance(cause, (aiohttp.ConnectionTimeoutError, ServiceRequestTimeoutError)):
        return f"no connection within {CONNECT_SECONDS:.0f} seconds"
    if isinstance(cause, (TimeoutError, ServiceResponseTimeoutError)):
        return "no answer in time"
    return type(cause).__name__


async def in_parallel(work: Callable[[_Item], Awaitable[_T]], items: Sequence[_Item]) -> list[_T]:
    """The results of work for each item, in order; a bounded number at a time. The first error ends it all."""
    if len(items) == 1:
        return [await work(items[0])]
    results: dict[int, _T] = {}
    waiting = iter(enumerate(items))

    async def take(rest: Iterator[tuple[int, _Item]]) -> None:
        for index, item in rest:
            results[index] = await work(item)

    takers = [asyncio.ensure_future(take(waiting)) for _ in range(min(CONCURRENCY, len(items)))]
    try:
        await asyncio.gather(*takers)
    finally:
        await _end(takers)
    return [results[index] for index in range(len(items))]


async def _end(takers: Iterable[asyncio.Future[None]]) -> None:
    for taker in takers:
        taker.cancel()
    # The first error is already on its way up; what the others met while being ended adds nothing to it.
    await asyncio.gather(*takers, return_exceptions=True)
