"""Azure Functions as a door: which functions the app has, and what they do with what triggers them.

The host acknowledges a message when the function returns, and gives it back at once when the function raises; the fifth
time it puts a copy on the `-poison` queue. So an error is raised only for what is wrong with the message itself. When
storage does not answer, others write the same rows, or a newer version sent the message, it is sent again for later and
its first copy is acknowledged.

Calls of one process that come together go into one commit for each graph (D12). Several processes stand side by side,
and etags keep them apart.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from taskgraph.engine.consumer import Consumer, misplaced
from taskgraph.engine.housekeeping import keep_house
from taskgraph.engine.outlets import read_outlets
from taskgraph.engine.sweep import sweep
from taskgraph.interfaces.app import App, host_name, open_app
from taskgraph.interfaces.operations.tokens import Token
from taskgraph.interfaces.settings import StoreSettings, connection_name, read_connection, read_keep_days, read_naming
from taskgraph.interfaces.telemetry import setup
from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.errors import (
    Conflict,
    IntegrityError,
    InvalidMessage,
    InvalidSettings,
    StorageError,
    StorageUnavailable,
    TaskgraphError,
    Unclear,
    trail,
)
from taskgraph.model.messages import EVENT_TYPES, Message, UnknownVersion, parse
from taskgraph.model.names import QueueNames
from taskgraph.model.roles import Role
from taskgraph.protocol.rows import NewerSchema
from taskgraph.queries.workers import FUNCTION_APP
from taskgraph.storage.queues import Delivery
from taskgraph.worker.registration import Registration

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from taskgraph.interfaces.http.entra import EntraSettings

log = logging.getLogger("taskgraph.functions")

SWEEP_VARIABLE: Final = "TASKGRAPH_SWEEP_SECONDS"
SWEEP_SECONDS_DEFAULT: Final = 60
"""Twice as long as `serve` waits: a round of a function is billed for a second at least, however short it is."""

GROUP_COMMIT_VARIABLE: Final = "TASKGRAPH_GROUP_COMMIT"
"""`off`: each call makes commits of its own. For measuring what joining them is worth."""

HTTP_VARIABLE: Final = "TASKGRAPH_HTTP"
"""Whether the app answers HTTP requests, and what a request may that has the platform's key and no token."""

SITE_VARIABLE: Final = "WEBSITE_SITE_NAME"
"""The name of the function app, which Azure sets."""

_NO_HTTP: Final = "off"
_TOKENS: Final = "tokens"
_KEY_ROLES: Final = (Role.READER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN)
_KEY_NAME: Final = "functions-key"
_SECONDS: Final = (5, 10, 15, 20, 30)
_MINUTES: Final = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)
_BUSY_SECONDS: Final = 1.0  # others kept writing the same rows
_TROUBLE_SECONDS: Final = 10.0  # storage did not answer
_NEWER_SECONDS: Final = 30.0  # a newer version is about to take over
_PAUSE_SECONDS_MAX: Final = 8.0
_NOTICE_SECONDS_MAX: Final = 40.0  # of a round, after which no further graph is begun
_GIVEN_UP: Final = "the host gave it up: calls for it ended without an answer, or its text could not be read"


@dataclass(frozen=True, slots=True)
class Trigger:
    """A function, and the queue whose messages call it."""

    function: str
    queue: str


@dataclass(frozen=True, slots=True)
class Bindings:
    """All functions of the app. connection: name of the host's setting. schedule: NCRONTAB, seconds first.

    keep_days: for how long graphs are kept after their end, None for ever. http: "" for no HTTP API, `tokens` for one
    that takes tokens alone, or the role of requests that have the platform's key, which all must have then.
    """

    connection: str
    events: tuple[Trigger, ...]
    poison: tuple[Trigger, ...]
    sweep_seconds: int
    schedule: str
    keep_days: float | None = None
    http: str = ""

    @property
    def http_level(self) -> str:
        """What the platform asks for before it calls the function."""
        return "ANONYMOUS" if self.http == _TOKENS else "FUNCTION"


def read_bindings(environ: Mapping[str, str]) -> Bindings:
    """What the app's settings say. Raises InvalidSettings, naming the one that makes no sense."""
    naming = read_naming(environ)
    names = QueueNames(naming.prefix, naming.queues_per_operation)
    functions = ("events", *EVENT_TYPES) if naming.queues_per_operation else ("events",)
    events = tuple(map(Trigger, functions, names.received))
    poison = tuple(Trigger(f"{each.function}-poison", names.poison(each.queue)) for each in events)
    seconds = _sweep_seconds(environ)
    kept, http = read_keep_days(environ), _read_http(environ)
    return Bindings(connection_name(environ), events, poison, seconds, schedule(seconds), kept, http)


def _read_http(environ: Mapping[str, str]) -> str:
    text = environ.get(HTTP_VARIABLE, "") or _NO_HTTP
    words = (_NO_HTTP, _TOKENS, *_KEY_ROLES)
    if text not in words:
        raise InvalidSettings(f"{HTTP_VARIABLE}=“{text[:50]}”: write one of {', '.join(words)}")
    return "" if text == _NO_HTTP else text


def schedule(seconds: int) -> str:
    """The NCRONTAB expression of "every so many seconds". Raises InvalidSettings for what it cannot say evenly."""
    if seconds in _SECONDS:
        return f"*/{seconds} * * * * *"
    minutes, rest = divmod(seconds, 60)
    if rest == 0 and minutes in _MINUTES:
        return "0 * * * * *" if minutes == 1 else f"0 */{minutes} * * * *"
    raise InvalidSettings(
        f"{SWEEP_VARIABLE}={seconds}: a timer goes evenly through {', '.join(map(str, _SECONDS))} seconds, "
        f"or {', '.join(map(str, _MINUTES))} minutes (write them in seconds)"
    )


def _sweep_seconds(environ: Mapping[str, str]) -> int:
    text = environ.get(SWEEP_VARIABLE, "") or str(SWEEP_SECONDS_DEFAULT)
    if not text.isascii() or not text.isdigit():
        raise InvalidSettings(f"{SWEEP_VARIABLE}=“{text}”: write a whole number of seconds")
    return int(text)


class Door:
    """One function app in one process. It opens its store with the first call, and keeps it."""

    def __init__(self, environ: Mapping[str, str], *, cwd: Path | None = None, clock: Clock | None = None) -> None:
        """Raises InvalidSettings for names that make no sense; a missing store is an error of the first call."""
        self.bindings: Bindings = read_bindings(environ)
        self._given_up_of = {
            poison.queue: events.queue
            for events, poison in zip(self.bindings.events, self.bindings.poison, strict=True)
        }
        self._environ = dict(environ)
        self._cwd = cwd or Path.cwd()
        self._clock = clock
        self._opening = asyncio.Lock()
        self._open: tuple[App, Consumer] | None = None
        self._api: ASGIApp | None = None
        self._exits = contextlib.AsyncExitStack()
        self._registration: Registration | None = None
        mode = environ.get(GROUP_COMMIT_VARIABLE, "") or "on"
        if mode not in ("on", "off"):
            raise InvalidSettings(f"{GROUP_COMMIT_VARIABLE}=“{mode}”: write on or off")
        self._together = mode == "on"
        self._entra: EntraSettings | None = None
        if self.bindings.http:
            from taskgraph.interfaces.http.entra import read_entra  # here: an app without it starts sooner

            self._entra = read_entra(environ)

    def settings(self) -> StoreSettings:
        return read_connection(self._environ, cwd=self._cwd)

    async def app(self) -> App:
        """The installation; opened by the first call. Raises InvalidSettings."""
        return (await self._opened())[0]

    async def handle(self, queue: str, message_id: str, body: bytes | str, dequeue_count: int) -> None:
        """Handle one message of an events queue. Raises what is wrong with it: then the host tries it again."""
        app, consumer = await self._opened()
        delivery = Delivery(queue, message_id, "", _text(body), dequeue_count)
        try:
            message = _read(delivery)
        except InvalidMessage as error:
            # Not with the reason, which quotes the message: that is in its row.
            log.warning("message %s of %s is set aside: see taskgraph poison list", message_id, queue)
            await self._for_sure(app, delivery, app.poison.record(delivery, str(error)))
            return
        except UnknownVersion as error:
            log.warning("message %s of %s is left to a newer version: %s", message_id, queue, error)
            app.poison.say(delivery, "newer-version")
            await self._put_off(app, delivery, _NEWER_SECONDS)
            return
        try:
            handled = await consumer.hand_in(message, delivery, alone=not self._together)
        except (Conflict, StorageUnavailable, Unclear) as error:  # reach: door
            log.warning("message %s of %s: %s; it is put off", message_id, queue, error)
            await self._put_off(app, delivery, _BUSY_SECONDS if isinstance(error, Conflict) else _TROUBLE_SECONDS)
            return
        except Exception as error:  # reach: door
            await self._failed(app, delivery, error)
            if isinstance(error, TaskgraphError):
                raise
            # The host logs what is raised: not with what a foreign error may quote.
            raise IntegrityError(f"message {message_id} of {queue}: handling failed: {trail(error)}") from None
        if isinstance(handled.error, NewerSchema):
            log.warning("message %s of %s is left to a newer version: %s", message_id, queue, handled.error)
            await self._put_off(app, delivery, _NEWER_SECONDS)
        elif handled.error is not None:
            await self._failed(app, delivery, handled.error)
            raise handled.error
        elif dequeue_count > 1:
            await app.poison.recovered(delivery)

    async def asgi(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """The HTTP API, as an ASGI app, whose answers are sent once they are whole. The first request opens it."""
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            return
        await (await self._http())(scope, receive, send)

    async def _http(self) -> "ASGIApp":
        if self._api is None:
            app, _ = await self._opened()
            async with self._opening:
                if self._api is None:
                    self._api = await self._exits.enter_async_context(self._opened_api(app))
        return self._api

    @contextlib.asynccontextmanager
    async def _opened_api(self, app: App) -> "AsyncGenerator[ASGIApp]":
        from taskgraph.interfaces.http.asgi import opened
        from taskgraph.interfaces.http.entra import Entra
        from taskgraph.interfaces.http.gate import Gate

        entra = self._entra
        keyed = None if self.bindings.http == _TOKENS else Token(_KEY_NAME, Role(self.bindings.http))
        gate = Gate(app, tokenless=keyed, hosts=None, entra=Entra(entra, app.clock) if entra is not None else None)
        async with opened(app, gate, streams=False) as (api, _):
            yield api

    async def set_aside(self, queue: str, message_id: str, body: bytes | str, dequeue_count: int) -> None:
        """Write down a message that the host has put on a `-poison` queue: `taskgraph poison list` shows it."""
        app, _ = await self._opened()
        delivery = Delivery(self._given_up_of[queue], message_id, "", _text(body), dequeue_count)
        await self._for_sure(app, delivery, app.poison.given_up(delivery, _GIVEN_UP))
        log.warning("message %s of %s is set aside", message_id, delivery.queue)

    async def sweep(self) -> None:
        """One look at the schedules, one round of the sweep, and of the notices.

        Raises StorageError if it could not be finished: the next one will.
        """
        app, _ = await self._opened()
        await self._register(app)
        looked = await app.schedules().look()
        if looked.did_something:
            log.info("schedules: %s", looked)
        for failure in looked.failed:
            log.warning("%s", failure)
        swept = await sweep(app.handlers, period_seconds=self.bindings.sweep_seconds, logs=app.logs)
        if swept.did_something:
            log.info("sweep: %s", swept)
        # Nothing is remembered between two rounds: of those in ten minutes it is the first that keeps house.
        if app.clock.now().timestamp() % limits.KEEP_SECONDS < self.bindings.sweep_seconds:
            kept = await keep_house(app.handlers, app.logs, keep_days=self.bindings.keep_days)
            if kept.did_something:
                log.info("kept house: %s", kept)
        # Without commands: an app runs what its owner has deployed, and not what a document names.
        async with app.notifier(read_outlets(self._environ, commands=False)) as notifier:
            until = app.clock.monotonic() + _NOTICE_SECONDS_MAX
            for row in await notifier.waiting():
                for trouble in (await notifier.deliver(row.key, listed=row)).troubles:
                    log.warning("notices of graph %s", trouble)
                if app.clock.monotonic() >= until:
                    return  # the next round goes on: a function must come to its end

    async def _register(self, app: App) -> None:
        """Write the row of the app among those of handlers: one for all its instances, as one of them has the timer."""
        if self._registration is None:
            name = self._environ.get(SITE_VARIABLE, "") or host_name()
            every = float(self.bindings.sweep_seconds)
            self._registration = app.handler_registration(name, kind=FUNCTION_APP, every_seconds=every)
        try:
            await self._registration.beat()
        except StorageError as error:  # reach: door
            log.warning("the app could not say that it lives: %s", error)

    async def close(self) -> None:
        """Give the store back. The next call opens it again."""
        async with self._opening:
            self._open = self._api = None
            if self._registration is not None:
                await self._registration.leave()
                self._registration = None
            await self._exits.aclose()

    async def _opened(self) -> tuple[App, Consumer]:
        if self._open is None:
            async with self._opening:
                if self._open is None:
                    # The host collects log lines by itself, and a missing package must not stop the handlers.
                    telemetry = setup.configure(
                        self._environ, strict=False, export_logs=False, service_name="taskgraph-functions"
                    )
                    opened = open_app(self.settings(), clock=self._clock, telemetry=telemetry)
                    app = await self._exits.enter_async_context(opened)
                    app.handlers.dispatcher.event_queues.only_first = True  # there is a trigger for it
                    self._open = app, app.consumer()
        return self._open

    async def _put_off(self, app: App, delivery: Delivery, seconds: float) -> None:
        """Send it again for later, so that this copy may be acknowledged. Both being handled is harmless."""
        await self._for_sure(app, delivery, app.queues.send(delivery.queue, [delivery.body], delay_seconds=seconds))

    async def _failed(self, app: App, delivery: Delivery, error: Exception) -> None:
        """Write down why, before the host tries it again; and wait, for the host does not."""
        if not isinstance(error, TaskgraphError):
            log.error("message %s of %s: handling failed: %s", delivery.id, delivery.queue, trail(error))
        else:
            log.warning("message %s of %s: %s", delivery.id, delivery.queue, error)
        try:
            await app.poison.note(delivery, f"{type(error).__name__}: {error}")
        except StorageError as trouble:  # reach: door
            log.warning("message %s of %s: why it failed is not written down: %s", delivery.id, delivery.queue, trouble)
        await self._pause(app, delivery)

    async def _for_sure(self, app: App, delivery: Delivery, step: Awaitable[None]) -> None:
        """Do what must be done before the message is acknowledged. If it fails, raise after a pause."""
        try:
            await step
        except StorageError:  # reach: door
            await self._pause(app, delivery)
            raise

    async def _pause(self, app: App, delivery: Delivery) -> None:
        """The host calls again at once: five calls would be over before anything could have changed."""
        await app.clock.sleep(min(2.0 ** (delivery.dequeue_count - 1), _PAUSE_SECONDS_MAX))


def _text(body: bytes | str) -> str:
    """The text of a message, for a row that people read; bytes that are no text are spelt out."""
    return body.decode("utf-8", "backslashreplace") if isinstance(body, bytes) else body


def _read(delivery: Delivery) -> Message:
    """The message in a delivery. Raises InvalidMessage, UnknownVersion."""
    message = parse(delivery.body)
    if reason := misplaced(message):
        raise InvalidMessage(reason)
    return message
