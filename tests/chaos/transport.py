"""Faults between the store and the storage service: a transport that wraps the real one.

What this room is for: making the k-th request of a process, or a share of its requests, go wrong in the ways that
networks and services do, while everything above (SDK, adapters, protocol) and below (aiohttp, the emulator) is real.
Both ways of asking lead through here: the SDK's `send`, and `exchange`.
It never answers by itself: what is replaced was done by the service before.

    refuse        the connection is refused: nothing is sent
    drop          it is sent and done, and the answer is lost
    500, 503      it is sent and done, and what succeeded is answered with an error
    delay         it is sent late
    kill-before   the process kills itself before it is sent
    kill-after    the process kills itself once it is done, before anybody hears the answer
"""

import asyncio
import html
import json
import os
import random
import re
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from azure.core.exceptions import ServiceRequestError
from azure.core.pipeline.transport import AsyncHttpTransport
from multidict import CIMultiDict
from yarl import URL

from taskgraph.storage.azure.pool import Answer, Pool

VARIABLE: Final = "TASKGRAPH_CHAOS"
DEADLY: Final = ("kill-before", "kill-after")
TROUBLES: Final = ("refuse", "drop", "500", "503", "delay")
KINDS: Final = (*DEADLY, *TROUBLES)

_AFTER: Final = ("kill-after", "drop")
_QUEUE_READ: Final = re.compile(r"/(?P<queue>[a-z0-9-]+)/messages$")
_MESSAGE: Final = re.compile(r"/(?P<queue>[a-z0-9-]+)/messages/(?P<id>[^/]+)$")
_MESSAGE_ID: Final = re.compile(rb"<MessageId>([^<]+)</MessageId>")
_MESSAGE_TEXT: Final = re.compile(rb"<MessageText>([^<]*)</MessageText>")


@dataclass(frozen=True, slots=True)
class Plan:
    """What goes wrong.

    at: number of the request that goes wrong, from 1 (0: none), and kind: how. rates: for every other request, the
    chance of each kind. record: a file to which faults, and messages taken and deleted, are added line by line.
    """

    at: int = 0
    kind: str = ""
    rates: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    delay_seconds: float = 0.5
    record: str = ""

    def __post_init__(self) -> None:
        unknown = {*self.rates, *([self.kind] if self.at else [])} - {*KINDS}
        if unknown:
            raise ValueError(f"no such fault: {sorted(unknown)}")

    def to_text(self) -> str:
        """For the environment of a process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Plan":
        return cls(**json.loads(text))


class Killed(BaseException):
    """In a test within one process: this life ends here. No `except Exception` holds it up."""


def kill_this_process(request: str) -> None:
    """Die on the spot. No handler of any kind runs."""
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def is_reading(method: str, path: str) -> bool:
    """Whether a request changes nothing. Receiving messages is a GET, and hides them from others."""
    return method in ("GET", "HEAD") and _QUEUE_READ.search(path) is None


class FaultyTransport(AsyncHttpTransport[Any, Any]):
    """The transport of one process.

    inner: the real one; it is closed with this one. die: what a deadly fault does; what it raises goes up, and from
    then on every request raises it again, as a process that is dead sends nothing more. `requests` is what was asked,
    in order: "GET /taskgraph(…)" and so on.
    """

    def __init__(
        self,
        inner: Pool,
        plan: Plan | None = None,
        *,
        die: Callable[[str], None] = kill_this_process,
    ) -> None:
        self._inner = inner
        self._plan = plan or Plan()
        self._die = die
        self._rng = random.Random(f"{self._plan.seed}")
        self._death: BaseException | None = None
        self.dead = asyncio.Event()
        self._record = -1
        if self._plan.record:
            self._record = os.open(self._plan.record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.requests: list[str] = []
        self.reading: list[bool] = []
        self.calls = 0
        self.hit = ""  # the request that the fault of the plan met

    async def __aenter__(self) -> "FaultyTransport":
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def open(self) -> None:
        await self._inner.open()

    async def close(self) -> None:
        if self._record >= 0:
            os.close(self._record)
            self._record = -1
        await self._inner.close()

    async def sleep(self, duration: float) -> None:
        await asyncio.sleep(duration)

    async def send(self, request: Any, **config: Any) -> Any:
        path = urlsplit(request.url).path
        name, kind = await self._before(request.method, path)
        response = await self._inner.send(request, **config)
        if self._record >= 0 and _tells_of_messages(request.method, path):
            self._remember(request.method, path, response.status_code, await _read(response))
        if kind in _AFTER:
            await _read(response)
            self._after(kind, name)
        if kind in ("500", "503") and 200 <= response.status_code < 300:
            await _read(response)
            _replace(response, int(kind))
        return response

    async def exchange(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None, read_seconds: float
    ) -> Answer:
        name, kind = await self._before(method, url.raw_path)
        answer = await self._inner.exchange(method, url, headers, body, read_seconds)
        if self._record >= 0:
            self._remember(method, url.raw_path, answer.status, answer.body)
        self._after(kind, name)
        if kind in ("500", "503") and 200 <= answer.status < 300:
            left = {key: value for key, value in answer.headers.items() if key.lower() != "x-ms-error-code"}
            return replace(answer, status=int(kind), headers=CIMultiDict(left), body=b"")
        return answer

    async def _before(self, method: str, path: str) -> tuple[str, str]:
        """What goes wrong before a request is sent; else its name, and what is to go wrong after."""
        if self._death is not None:
            raise self._death
        self.calls += 1
        name = f"{method} {path}"
        if not self._plan.record:
            self.requests.append(name)
            self.reading.append(is_reading(method, path))
        kind = self._fault_of(name)
        if kind == "kill-before":
            self._kill(name)
        if kind == "refuse":
            refused = aiohttp.ClientConnectorError(_NOWHERE, ConnectionRefusedError("a fault was asked for"))
            raise ServiceRequestError(refused, error=refused) from refused
        if kind == "delay":
            await asyncio.sleep(self._plan.delay_seconds)
        return name, kind

    def _after(self, kind: str, name: str) -> None:
        """What goes wrong once the service has answered."""
        if kind == "kill-after":
            self._kill(name)
        if kind == "drop":
            lost = aiohttp.ServerDisconnectedError("the answer was lost, as asked for")
            raise ServiceRequestError(lost, error=lost) from lost

    def _fault_of(self, name: str) -> str:
        kind = ""
        if self.calls == self._plan.at:
            kind, self.hit = self._plan.kind, name
        elif self._plan.rates:
            drawn = self._rng.random()
            for each, chance in self._plan.rates.items():
                if drawn < chance:
                    kind = each
                    break
                drawn -= chance
        if kind and self._record >= 0:
            self._tell(what="fault", kind=kind, call=self.calls, request=name)
        return kind

    def _kill(self, name: str) -> None:
        try:
            self._die(name)
        except BaseException as death:
            self._death = death
            self.dead.set()
            raise

    def _remember(self, method: str, path: str, status: int, answered: bytes) -> None:
        """Write down which messages this process has in hand: what a kill now takes with it."""
        if method == "GET" and (found := _QUEUE_READ.search(path)) and status == 200:
            for part in answered.split(b"</QueueMessage>"):
                message, text = _MESSAGE_ID.search(part), _MESSAGE_TEXT.search(part)
                if message and text:
                    body = json.loads(html.unescape(text[1].decode()))
                    runs = [[task["task"], task["run"]] for task in body.get("tasks", ())]
                    self._tell(
                        what="take", queue=found["queue"], id=message[1].decode(), graph=body["graph"], runs=runs
                    )
        elif method == "DELETE" and (found := _MESSAGE.search(path)) and status == 204:
            self._tell(what="done", queue=found["queue"], id=found["id"])

    def _tell(self, **fields: Any) -> None:
        line = json.dumps({"time": time.time(), "pid": os.getpid(), **fields})
        os.write(self._record, f"{line}\n".encode())  # one write with O_APPEND: lines of processes never mix


def _tells_of_messages(method: str, path: str) -> bool:
    """Whether an answer is to be remembered; what is read in a stream, such as a log, is left alone."""
    return bool((method == "GET" and _QUEUE_READ.search(path)) or (method == "DELETE" and _MESSAGE.search(path)))


class _Nowhere:
    """What aiohttp's error asks of a connection: its words."""

    host, port, ssl, is_ssl = "127.0.0.1", 0, False, False


_NOWHERE: Any = _Nowhere()


async def _read(response: Any) -> bytes:
    """The body, read to its end: only then the service has surely done all of it."""
    if response._content is None:
        await (response.read() if hasattr(response, "read") else response.load_body())
    found: bytes = response.content if hasattr(response, "content") else response.body()
    return found


def _replace(response: Any, status: int) -> None:
    """Make an answer say that the service failed."""
    response.status_code = status
    response.reason = "Internal Server Error" if status == 500 else "Service Unavailable"
    response.headers.pop("x-ms-error-code", None)
    response._content = b""
