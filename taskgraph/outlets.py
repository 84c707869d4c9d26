"""What notices leave by: a queue of the same store, a webhook, a command.

What this room is for: handing one notice to one channel, once, and saying honestly whether it was taken. A webhook is
signed as the specification of Standard Webhooks says (HMAC-SHA256 over id, time and body), with a secret that is in
this process's environment and never on a row. Which kinds of channels this process serves, and which hosts webhooks may
go to, is for whoever starts it to say: documents come from others. It never tries again, and never reads a row.
"""

import asyncio
import base64
import binascii
import contextlib
import fnmatch
import hashlib
import hmac
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from taskgraph.clock import Clock
from taskgraph.errors import InvalidSettings, StorageError, TooLarge
from taskgraph.notices import Channel, Notice
from taskgraph.notifier import NotDelivered
from taskgraph.storage.queues import Queues

if TYPE_CHECKING:
    import aiohttp

SECRET_VARIABLE: Final = "TASKGRAPH_WEBHOOK_SECRET"  # noqa: S105 the name, and not the secret
HOSTS_VARIABLE: Final = "TASKGRAPH_WEBHOOK_HOSTS"
KINDS_VARIABLE: Final = "TASKGRAPH_NOTIFY"
KINDS: Final = ("queue", "webhook", "command")

WEBHOOK_SECONDS: Final = 10.0
"""A receiver answers within so long, or has not taken the notice."""

COMMAND_SECONDS: Final = 60.0
"""A command ends within so long, or is ended, and has not taken the notice."""

_SECRET_PREFIX: Final = "whsec_"  # noqa: S105 what a secret in base64 begins with
_GONE: Final = 410
_TAIL_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class OutletSettings:
    """What a process may do for notices. secrets: by name in capitals, "" for the default one.

    hosts: patterns of host names that webhooks may go to, none for any. kinds: of channels that it serves.
    """

    kinds: frozenset[str] = frozenset({"queue", "webhook"})
    hosts: tuple[str, ...] = ()
    secrets: Mapping[str, bytes] = field(default_factory=dict, repr=False)


def read_outlets(environ: Mapping[str, str], *, commands: bool) -> OutletSettings:
    """The settings of this process. commands: whether commands run if nothing is said. Raises InvalidSettings."""
    said = environ.get(KINDS_VARIABLE, "")
    kinds = {each.strip() for each in said.split(",") if each.strip()} if said else {"queue", "webhook"}
    if not said and commands:
        kinds.add("command")
    if kinds == {"off"}:
        kinds = set()
    if unknown := sorted(kinds.difference(KINDS)):
        raise InvalidSettings(
            f"{KINDS_VARIABLE}={said!r}: {unknown[0]!r} is none of {', '.join(KINDS)}; write off for none of them"
        )
    hosts = tuple(each.strip().lower() for each in environ.get(HOSTS_VARIABLE, "").split(",") if each.strip())
    secrets = {
        name.removeprefix(SECRET_VARIABLE).removeprefix("_"): _secret(name, text)
        for name, text in environ.items()
        if name == SECRET_VARIABLE or name.startswith(f"{SECRET_VARIABLE}_")
        if text
    }
    return OutletSettings(frozenset(kinds), hosts, secrets)


def _secret(name: str, text: str) -> bytes:
    if not text.startswith(_SECRET_PREFIX):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix(_SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidSettings(f"{name}: what follows {_SECRET_PREFIX} is no base64") from None


def signature(secret: bytes, notice: Notice, timestamp: int) -> str:
    """The header `webhook-signature` of one attempt. timestamp: Unix seconds, of the header `webhook-timestamp`."""
    signed = f"{notice.id}.{timestamp}.{notice.body}".encode()
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


class Outlets:
    """The channels that a process reaches. prefix: of the installation's own queues, to which no notice goes."""

    def __init__(self, queues: Queues, clock: Clock, settings: OutletSettings, *, prefix: str) -> None:
        self._queues = queues
        self._clock = clock
        self._settings = settings
        self._prefix = prefix
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Give connections back. Idempotent."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    def serves(self, channel: Channel) -> str:
        """Why this process cannot reach channels like this one, "" if it can."""
        if channel.kind not in self._settings.kinds:
            return f"this process does not serve channels of the kind {channel.kind}: see {KINDS_VARIABLE}"
        if channel.kind == "queue" and channel.where[0].startswith(f"{self._prefix}-"):
            return f"queues that begin with {self._prefix}- are the installation's own"
        if channel.kind == "webhook":
            host = (urlsplit(channel.where[0]).hostname or "").lower()
            if self._settings.hosts and not any(fnmatch.fnmatchcase(host, each) for each in self._settings.hosts):
                return f"{HOSTS_VARIABLE} does not name the host {host}"
            if channel.secret and channel.secret.upper() not in self._settings.secrets:
                return f"the secret {channel.secret!r} is not set: {SECRET_VARIABLE}_{channel.secret.upper()}"
        return ""

    async def send(self, channel: Channel, notice: Notice) -> None:
        """Hand a notice over. Raises NotDelivered."""
        match channel.kind:
            case "queue":
                await self._to_queue(channel.where[0], notice)
            case "webhook":
                await self._to_webhook(channel, notice)
            case _:
                await self._to_command(channel.where, notice)

    async def _to_queue(self, queue: str, notice: Notice) -> None:
        try:
            await self._queues.send(queue, [notice.body])
        except TooLarge as error:
            raise NotDelivered(str(error)) from error
        except StorageError as error:
            raise NotDelivered(f"queue {queue}: {error}") from error

    async def _to_webhook(self, channel: Channel, notice: Notice) -> None:
        import aiohttp  # a tenth of a second, for those alone who have webhooks

        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=WEBHOOK_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        timestamp = int(self._clock.now().timestamp())
        headers = {
            "content-type": "application/json",
            "user-agent": "taskgraph",
            "webhook-id": notice.id,
            "webhook-timestamp": str(timestamp),
        }
        if (secret := self._settings.secrets.get(channel.secret.upper())) is not None:
            headers["webhook-signature"] = signature(secret, notice, timestamp)
        try:
            async with self._session.post(
                channel.where[0], data=notice.body.encode(), headers=headers, allow_redirects=False
            ) as answer:
                status, wait = answer.status, answer.headers.get("retry-after", "")
        except TimeoutError as error:
            raise NotDelivered(f"no answer within {WEBHOOK_SECONDS:.0f} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NotDelivered(f"{type(error).__name__}: {str(error)[:_TAIL_CHARS]}") from error
        if not 200 <= status < 300:
            seconds = float(wait) if wait.isascii() and wait.isdigit() and len(wait) < 9 else 0.0
            more = "; redirects are not followed" if 300 <= status < 400 else ""
            raise NotDelivered(f"HTTP {status}{more}", seconds, final=status == _GONE)

    async def _to_command(self, command: tuple[str, ...], notice: Notice) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise NotDelivered(f"cannot be started: {error}") from error
        try:
            _, tail = await asyncio.wait_for(process.communicate(notice.body.encode()), COMMAND_SECONDS)
        except TimeoutError as error:
            raise NotDelivered(f"not over after {COMMAND_SECONDS:.0f} s, and ended") from error
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode:
            words = tail.decode("utf-8", "replace").strip()[-_TAIL_CHARS:]
            raise NotDelivered(f"exit code {process.returncode}{': ' if words else ''}{words}")
