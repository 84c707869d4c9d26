"""Executor `http`: a task is a request to a service, and its answer, which may come at once or later.

- 2xx ends the run; JSON is its result.
- 202 with `Location` means that the service is at work: that address is asked until it answers something else.
- 202 without one means that the service will report: by the HTTP API of taskgraph, with the claim that every request
  carries. The run waits for that, under its lease.

What may be over in a while (no connection, 408, 425, 429, 5xx) is a temporary failure. Requests of one run of a task,
repeated ones too, carry the same `Idempotency-Key`.
"""

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from taskgraph.model.clock import Clock
from taskgraph.model.errors import InvalidInput
from taskgraph.model.secrecy import Handed, secret_named
from taskgraph.worker.executors.contract import (
    RESULT_BYTES_MAX,
    Outcome,
    TemporaryFailure,
    Work,
    WriteLog,
    checked_result,
    failed,
    failed_for_now,
    malformed,
    payload_of,
)
from taskgraph.worker.executors.secrets import Secrets, masked

if TYPE_CHECKING:
    import aiohttp

NAME: Final = "http"
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
CLAIM_HEADER: Final = "Taskgraph-Claim"

_CONNECT_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 300.0  # for one answer; what takes longer answers 202 at once
_POLL_SECONDS: Final = 1.0  # to the first look, where the service names no time; each pause is twice the one before
_POLL_SECONDS_MAX: Final = 30.0
_PAUSE_SECONDS_MAX: Final = 3_600.0  # that a service may ask for, between two looks
_POLLS_LOST_MAX: Final = 10  # looks in a row that had no answer
_ACCEPTED: Final = 202
_TEMPORARY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class _Call:
    """A payload that was read. secrets: names by header. body: JSON text, None for none."""

    method: str
    url: str
    headers: Mapping[str, str]
    secrets: Mapping[str, str]
    body: bytes | None
    timeout_seconds: float | None


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    words: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def retry_after(self) -> float | None:
        """Seconds; a date counts as none."""
        try:
            seconds = float(self.headers.get("Retry-After", ""))
        except ValueError:
            return None
        return seconds if 0 <= seconds < math.inf else None

    def outcome(self) -> Outcome:
        said = f"the service answered {self.status} {self.words}".strip()
        if first := self.body[:1000].decode("utf-8", "replace").strip().partition("\n")[0]:
            said += f": {first}"
        if self.status in _TEMPORARY:
            return failed_for_now(said, retry_after=self.retry_after)
        if not 200 <= self.status < 300:
            return failed(said)
        if "json" not in self.headers.get("Content-Type", "") or not self.body.strip():
            return Outcome(failed=False)
        try:
            return Outcome(failed=False, result=checked_result(self.body))
        except InvalidInput as error:
            return failed(str(error))


def _read(definition: Mapping[str, Any]) -> _Call:
    """Raises InvalidInput with what is wrong with the payload, in one sentence."""
    payload = payload_of(definition)
    url, method, headers = payload.get("url"), payload.get("method", "POST"), payload.get("headers", {})
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise InvalidInput("payload.url must be an address that begins with https:// or http://")
    if method not in METHODS:
        raise InvalidInput(f"payload.method must be one of {', '.join(METHODS)}")
    if not isinstance(headers, Mapping):
        raise InvalidInput("payload.headers must be an object of texts")
    secrets = {name: secret for name, value in headers.items() if (secret := secret_named(value)) is not None}
    plain = {name: value for name, value in headers.items() if name not in secrets}
    if not all(isinstance(value, str) and not {"\r", "\n", "\0"} & {*name, *value} for name, value in plain.items()):
        raise InvalidInput('payload.headers must be an object of texts of one line, or of {"$secret": "name"}')
    timeout = payload.get("timeout")
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0):
        raise InvalidInput("payload.timeout must be a number of seconds above 0")
    body = json.dumps(payload["body"], ensure_ascii=False).encode("utf-8", "replace") if "body" in payload else None
    return _Call(method, url, plain, secrets, body, None if timeout is None else float(timeout))


class HttpExecutor:
    """clock: for the pauses between two looks at what a service is at work on. handed: has the secrets of headers."""

    name = NAME
    instant = False
    queue = None

    def __init__(self, clock: Clock, *, handed: Handed | None = None) -> None:
        self._clock = clock
        self._secrets = Secrets(handed or Handed())

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        return None

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        try:
            call = _read(work.definition)
            secrets = {name: await self._secrets.find(secret) for name, secret in call.secrets.items()}
        except InvalidInput as error:
            return malformed(str(error))
        except TemporaryFailure as error:
            return failed_for_now(str(error), retry_after=error.retry_after)
        if not secrets:
            return await self._within(call, call.headers, work, write_log)
        headers = {**call.headers, **{name: value.decode("utf-8", "replace") for name, value in secrets.items()}}
        return await masked(secrets.values(), write_log, lambda write: self._within(call, headers, work, write))

    async def _within(self, call: _Call, headers: Mapping[str, str], work: Work, write_log: WriteLog) -> Outcome:
        try:
            async with asyncio.timeout(call.timeout_seconds):
                return await self._call(call, headers, work, write_log)
        except TimeoutError:
            return failed(f"timed out after {call.timeout_seconds:g} s")

    async def _call(self, call: _Call, headers: Mapping[str, str], work: Work, write_log: WriteLog) -> Outcome:
        import aiohttp  # takes a tenth of a second

        own = {
            CLAIM_HEADER: f"{work.graph_id}.{work.task_id}.{work.run}.{work.claim}",
            "Idempotency-Key": f"{work.graph_id}.{work.task_id}.{work.run}",
            **({"traceparent": work.traceparent} if work.traceparent else {}),
            **({"Content-Type": "application/json"} if call.body is not None else {}),
        }
        bound = aiohttp.ClientTimeout(total=_ANSWER_SECONDS, sock_connect=_CONNECT_SECONDS)
        async with aiohttp.ClientSession(
            timeout=bound, headers={**own, **headers}, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            try:
                answer = await _ask(session, call.method, call.url, call.body, write_log)
            except aiohttp.InvalidURL as error:
                return malformed(f"payload.url is no address: {error}")
            except (aiohttp.ClientError, TimeoutError) as error:
                return failed_for_now(f"the service cannot be reached: {_plain(error)}")
            if answer.status != _ACCEPTED:
                return answer.outcome()
            if "Location" not in answer.headers:
                await write_log(b"accepted: the run waits for the report of the service, under its claim\n")
                await asyncio.Event().wait()  # the end of the lease, or the timeout, cancels it
            return await self._poll(session, call.url, answer, write_log)

    async def _poll(self, session: "aiohttp.ClientSession", url: str, answer: _Answer, write_log: WriteLog) -> Outcome:
        """Ask where the service says, until it is done."""
        import aiohttp
        import yarl

        place, pause, lost = yarl.URL(url), _POLL_SECONDS, 0
        while answer.status == _ACCEPTED:
            place = place.join(yarl.URL(answer.headers.get("Location", str(place))))
            asked = answer.retry_after
            await self._clock.sleep(pause if asked is None else min(max(asked, 0.1), _PAUSE_SECONDS_MAX))
            pause = min(2 * pause, _POLL_SECONDS_MAX)
            try:
                found = await _ask(session, "GET", str(place), None, write_log)
            except (aiohttp.ClientError, TimeoutError) as error:
                lost += 1
                if lost >= _POLLS_LOST_MAX:
                    return failed_for_now(f"the service cannot be reached any more: {_plain(error)}")
                continue
            if found.status in _TEMPORARY and lost + 1 < _POLLS_LOST_MAX:
                lost += 1
                continue
            answer, lost = found, 0
        return answer.outcome()


async def _ask(
    session: "aiohttp.ClientSession", method: str, url: str, body: bytes | None, write_log: WriteLog
) -> _Answer:
    async with session.request(method, url, data=body, allow_redirects=method == "GET") as response:
        content = await response.content.read(RESULT_BYTES_MAX + 1)
        while len(content) <= RESULT_BYTES_MAX and (more := await response.content.read(RESULT_BYTES_MAX)):
            content += more
        await write_log(f"{method} {url}: {response.status} {response.reason}\n".encode("utf-8", "replace"))
        if content:
            await write_log(content if content.endswith(b"\n") else content + b"\n")
        return _Answer(response.status, response.reason or "", response.headers, content)


def _plain(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0]
