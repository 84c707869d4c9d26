"""One call to the storage service: how long, how often, and what its failures mean.

The SDK's own retries are off everywhere: they repeat conditional writes and then report a conflict with the caller's
own write (P17). What may be repeated is repeated here, with jitter and within bounds:

- The connection could not be made: nothing was sent. `StorageUnavailable`, after a few tries.
- 401 and 403: `StorageUnavailable`, at once; after a 403 whose `Date` shows that our clock was off, once more before.
- 429: refused unread; `StorageUnavailable`, after a few tries.
- Anything that leaves open whether the service has acted (a connection lost after sending, a time-out, a 5xx): repeated
  where that does no harm; otherwise `Unclear` for a commit, `StorageUnavailable` for the rest.
- Any other refusal (4xx) reaches the adapter as the SDK's error (see `code_of`).
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import Enum, auto
from typing import Final, TypeVar

import aiohttp
from azure.core import exceptions as sdk

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


class Unsent(sdk.ServiceRequestError):
    """Nothing was sent; the message says why."""


class Lost(sdk.ServiceResponseError):
    """It was sent, and the result is not known; the message says why."""


class Repeat(Enum):
    NEVER = auto()  # commits: the caller settles it
    UNSENT = auto()  # only when it surely did not take place
    ALWAYS = auto()  # reading, and what does no harm twice


class Caller:
    """Calls to one endpoint. `endpoint` is shown to people: it must carry no key and no signature."""

    def __init__(self, endpoint: str, clock: Clock, is_closed: Callable[[], bool]) -> None:
        self.endpoint = endpoint
        self.clock = clock
        self._is_closed = is_closed

    async def call(
        self,
        work: Callable[[], Awaitable[_T]],
        repeat: Repeat,
        *,
        missing: Collection[str] = (),
        make: Callable[[], Awaitable[object]] | None = None,
    ) -> _T:
        """Do one request, again if need be. After a refusal with one of the codes `missing`: make, and call again.

        Raises StorageUnavailable; Unclear (only with Repeat.NEVER); HttpResponseError for a refusal of the service.
        """
        if self._is_closed():
            raise StorageUnavailable(f"the connection to {self.endpoint} has been closed", self.endpoint)
        end = self.clock.monotonic() + _BUDGET_SECONDS
        backoff = _BACKOFF_SECONDS
        tries = 0
        while True:
            tries += 1
            began = self.clock.monotonic()
            try:
                return await work()
            except sdk.AzureError as error:
                if self._signed_late(error, began):
                    continue
                meant, again = self._read(error, repeat)
                if meant is None:
                    if make is None or not isinstance(error, sdk.HttpResponseError) or code_of(error) not in missing:
                        raise
                    await make()
                    return await self.call(work, repeat)
                if not again or tries >= _TRIES_MAX or self.clock.monotonic() + backoff > end:
                    raise meant from error
            await self.clock.sleep(backoff * (0.5 + self.clock.jitter()))
            backoff = min(backoff * 3, _BACKOFF_SECONDS_MAX)

    def _signed_late(self, error: sdk.AzureError, began: float) -> bool:
        """Whether a request of the SDK was refused for the time of a clock that was off, and is not any more."""
        if not isinstance(error, sdk.HttpResponseError) or error.status_code != 403 or error.response is None:
            return False
        date = getattr(error.response, "headers", {}).get("Date", "")
        return isinstance(self.clock, ServiceClock) and self.clock.learn(date, began)

    async def create(self, work: Callable[[], Awaitable[object]], exists: str) -> None:
        """Make a container of rows, messages or files. exists: the code by which another process was quicker."""
        try:
            await self.call(work, Repeat.ALWAYS)
        except sdk.HttpResponseError as error:
            if code_of(error) != exists:
                raise

    def refused(self, error: sdk.HttpResponseError) -> StorageError:
        """The error for a refusal that no adapter expects: it names the code, and shows nothing of the request."""
        return StorageError(f"{self.endpoint} refused a request: {error.status_code} {code_of(error)}")

    def unavailable(self, error: sdk.HttpResponseError) -> StorageUnavailable:
        """The error for a refusal that passes by itself, such as a table that is being deleted."""
        return StorageUnavailable(f"{self.endpoint} answers: {error.status_code} {code_of(error)}", self.endpoint)

    def _read(self, error: sdk.AzureError, repeat: Repeat) -> tuple[StorageError | None, bool]:
        """What to raise (None: the error itself, for the adapter), and whether the call may be made again."""
        if isinstance(error, sdk.ServiceRequestError) and _was_unsent(error):
            sentence = f"{self.endpoint} cannot be reached: {_reason(error)}"
            return StorageUnavailable(sentence, self.endpoint), repeat is not Repeat.NEVER
        if isinstance(error, sdk.HttpResponseError) and not isinstance(
            error, (sdk.DecodeError, sdk.IncompleteReadError)
        ):
            status = error.status_code or 0
            if status in (401, 403) or isinstance(error, sdk.ClientAuthenticationError):
                what = f"{error.status_code} {code_of(error)}"
                sentence = f"{self.endpoint} does not let us in ({what}): check the key, the identity and its roles"
                return StorageUnavailable(sentence, self.endpoint), False
            if status == 429:
                return self.unavailable(error), repeat is not Repeat.NEVER
            if 400 <= status < 500 and status != 408:
                return None, False
            if 200 <= status < 300 and repeat is not Repeat.NEVER and code_of(error):
                return None, False  # done, with a remark: a queue that was to be made exists
            sentence = f"{self.endpoint} answers: {status} {code_of(error)}"
        else:
            sentence = f"the answer of {self.endpoint} was lost: {_reason(error)}"
        if repeat is Repeat.NEVER:
            return Unclear(sentence), False
        return StorageUnavailable(sentence, self.endpoint), repeat is Repeat.ALWAYS


def code_of(error: sdk.HttpResponseError) -> str:
    """The service's own word for a refusal, such as `TableNotFound`; "" if it gave none."""
    code = getattr(error, "error_code", None)
    if isinstance(code, Enum):
        code = code.value
    if not code and error.response is not None:
        try:
            code = error.response.headers.get("x-ms-error-code")  # type: ignore[attr-defined]
            code = code or json.loads(error.response.text())["odata.error"]["code"]
        except (ValueError, KeyError, TypeError, AttributeError):
            pass  # not every answer is the service's: a proxy may speak HTML
    return str(code or "")


def _was_unsent(error: sdk.ServiceRequestError) -> bool:
    """Whether the connection was never made: the SDK calls one that was cut in the answer a request error too."""
    if isinstance(error, (Unsent, sdk.ServiceRequestTimeoutError)):
        return True  # a time-out of the connection; a silent answer is another error
    cause = error.inner_exception or error.__cause__
    return isinstance(
        cause, (aiohttp.ClientConnectorError, aiohttp.ClientConnectorCertificateError, aiohttp.InvalidURL)
    )


def _reason(error: sdk.AzureError) -> str:
    """What failed in the network, without addresses and without anything that was sent."""
    cause = error.inner_exception or error.__cause__ or error
    if isinstance(cause, (Unsent, Lost)):
        return cause.message
    if isinstance(cause, aiohttp.ClientConnectorDNSError):
        return "its name does not resolve"
    if isinstance(cause, (aiohttp.ClientConnectorSSLError, aiohttp.ClientConnectorCertificateError)):
        return "its certificate or its TLS is not accepted"
    if isinstance(cause, aiohttp.ClientConnectorError):
        return cause.os_error.strerror or "no connection"
    if isinstance(cause, (aiohttp.ConnectionTimeoutError, sdk.ServiceRequestTimeoutError)):
        return f"no connection within {CONNECT_SECONDS:.0f} seconds"
    if isinstance(cause, (TimeoutError, sdk.ServiceResponseTimeoutError)):
        return "no answer in time"
    return type(cause).__name__


async def in_parallel(work: Callable[[_Item], Awaitable[_T]], items: Sequence[_Item]) -> list[_T]:
    """The results of work for each item, in order; a bounded number at a time. The first error ends it all."""
    if len(items) == 1:
        return [await work(items[0])]
    results: dict[int, _T] = {}
    waiting = iter(enumerate(items))

    async def take() -> None:
        for index, item in waiting:
            results[index] = await work(item)

    takers = [asyncio.ensure_future(take()) for _ in range(min(CONCURRENCY, len(items)))]
    try:
        await asyncio.gather(*takers)
    finally:
        for taker in takers:
            taker.cancel()
        await asyncio.gather(*takers, return_exceptions=True)  # only the first error is raised
    return [results[index] for index in range(len(items))]
