"""Send one notice to one channel, once: a queue of the same store, a webhook, or a command.

A webhook is signed by the specification of Standard Webhooks (HMAC-SHA256 over id, time and body), with a secret that
is in this process's environment and never on a row. Documents come from others, so settings of the process name the
kinds of channels it serves, the hosts that webhooks may go to, and those for which a secret signs; addresses inside of
its network are reached only if they are named.
"""

import asyncio
import base64
import binascii
import contextlib
import errno
import hashlib
import hmac
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from taskgraph.engine.addresses import Hosts, is_public
from taskgraph.engine.notifier import NotDelivered
from taskgraph.model.clock import Clock
from taskgraph.model.errors import InvalidSettings, StorageError, TooLarge
from taskgraph.model.secrecy import Environment, Handed
from taskgraph.protocol.notices import Channel, Notice
from taskgraph.storage.queues import Queues

if TYPE_CHECKING:
    import aiohttp

SECRET_VARIABLE: Final = "TASKGRAPH_WEBHOOK_SECRET"  # noqa: S105 the name, and not the secret
HOSTS_VARIABLE: Final = "TASKGRAPH_WEBHOOK_HOSTS"
SECRET_HOSTS_ENDING: Final = "_HOSTS"  # noqa: S105 of the variable that names the hosts of a secret
KINDS_VARIABLE: Final = "TASKGRAPH_NOTIFY"
KINDS: Final = ("queue", "webhook", "command")

WEBHOOK_SECONDS: Final = 10.0  # a receiver that does not answer within so long has not taken the notice
COMMAND_SECONDS: Final = 60.0  # a command that runs for longer is killed, and has not taken the notice
_SECRET_PREFIX: Final = "whsec_"  # noqa: S105 what a secret in base64 begins with
_GONE: Final = 410
_TAIL_CHARS: Final = 300
_NOT_PUBLIC: Final = "leads to an address that is not public"


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret signs webhooks to these hosts alone."""

    key: bytes = field(repr=False)
    hosts: Hosts


@dataclass(frozen=True, slots=True)
class OutletSettings:
    """hosts: of webhooks; empty for all public addresses. secrets: by name in capitals, "" for the default one."""

    kinds: frozenset[str] = frozenset({"queue", "webhook"})
    hosts: Hosts = field(default_factory=Hosts)
    secrets: Mapping[str, Secret] = field(default_factory=dict, repr=False)


def read_outlets(environ: Mapping[str, str], *, commands: bool) -> OutletSettings:
    """The settings of this process. commands: whether commands run by default. Raises InvalidSettings."""
    said = environ.get(KINDS_VARIABLE, "")
    kinds = {each.strip() for each in said.split(",") if each.strip()} if said else {"queue", "webhook"}
    if not said and commands:
        kinds.add("command")
    if kinds == {"off"}:
        kinds = set()
    if unknown := sorted(kinds.difference(KINDS)):
        raise InvalidSettings(
            f"{KINDS_VARIABLE}=“{said}”: “{unknown[0]}” is none of {', '.join(KINDS)}; write off for none of them"
        )
    hosts = Hosts.read(environ.get(HOSTS_VARIABLE, ""))
    return OutletSettings(frozenset(kinds), hosts, _secrets(environ, hosts))


def _secrets(environ: Mapping[str, str], hosts: Hosts) -> dict[str, Secret]:
    """Every secret with its own hosts, or with those that all webhooks may go to."""
    found: dict[str, Secret] = {}
    for name, text in environ.items():
        of_ours = name == SECRET_VARIABLE or name.startswith(f"{SECRET_VARIABLE}_")
        if not of_ours or not text or name.endswith(SECRET_HOSTS_ENDING):
            continue
        own = Hosts.read(environ.get(name + SECRET_HOSTS_ENDING, "")) or hosts
        if not own:
            raise InvalidSettings(
                f"{name} is set, and no host that it signs for: a document would choose who gets its signatures; name "
                f"them in {name}{SECRET_HOSTS_ENDING}, such as ci.example.com, or in {HOSTS_VARIABLE} for all secrets"
            )
        found[name.removeprefix(SECRET_VARIABLE).removeprefix("_")] = Secret(_secret(name, text), own)
    return found


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


def _session(hosts: Hosts) -> "aiohttp.ClientSession":
    """Judges each address right before it is connected to, however it was spelt or resolved. No cookies, no proxies."""
    import aiohttp

    def judged(info: tuple[Any, ...]) -> socket.socket:
        address = ip_address(info[4][0])
        if not is_public(address) and not hosts.holds(address):
            raise OSError(errno.EACCES, _NOT_PUBLIC)
        return socket.socket(*info[:3])

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(socket_factory=judged),
        timeout=aiohttp.ClientTimeout(total=WEBHOOK_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
    )


def _plain(error: Exception) -> str:
    """Why a request had no answer, in one line: `connection refused`."""
    import aiohttp

    match error:
        case aiohttp.ClientConnectorDNSError():
            return f"there is no address for the name {error.host}"
        case aiohttp.ClientConnectorCertificateError():
            return f"its certificate is not trusted: {_first_line(error.certificate_error)}"
        case aiohttp.ClientConnectorSSLError():
            return f"no TLS: {_first_line(error.os_error)}"
        case aiohttp.ServerDisconnectedError():
            return "the connection was closed without an answer"
        case aiohttp.ClientOSError() if error.errno and error.errno > 0:
            return os.strerror(error.errno).lower()
        case _:
            return f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:_TAIL_CHARS]


class Outlets:
    """prefix: of the installation's own queues, to which no notice goes."""

    def __init__(self, queues: Queues, clock: Clock, settings: OutletSettings, *, prefix: str) -> None:
        self._queues = queues
        self._clock = clock
        self._settings = settings
        self._prefix = prefix
        self._inherited = Environment(Handed())
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    def serves(self, channel: Channel) -> str:
        """Why this process cannot reach channels like this one, "" if it can."""
        if channel.kind not in self._settings.kinds:
            return f"this process does not serve channels of the kind {channel.kind}: see {KINDS_VARIABLE}"
        if channel.kind == "queue" and channel.where[0].startswith(f"{self._prefix}-"):
            return f"queues that begin with {self._prefix}- are the installation's own"
        if channel.kind == "webhook" and channel.secret and channel.secret.upper() not in self._settings.secrets:
            return f"the secret “{channel.secret}” is not set: {SECRET_VARIABLE}_{channel.secret.upper()}"
        return ""

    async def send(self, channel: Channel, notice: Notice) -> None:
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
        except TooLarge as error:  # reach: notices
            raise NotDelivered(str(error)) from error
        except StorageError as error:  # reach: notices
            raise NotDelivered(f"queue {queue}: {error}") from error

    async def _to_webhook(self, channel: Channel, notice: Notice) -> None:
        import aiohttp  # takes a tenth of a second, and only webhooks need it
        import yarl

        try:
            url = yarl.URL(channel.where[0])
        except ValueError as error:
            raise NotDelivered(f"no address: {str(error)[:_TAIL_CHARS]}") from error
        host, hosts = url.host or "", self._settings.hosts
        if hosts and not hosts.names(host):
            raise NotDelivered(f"{HOSTS_VARIABLE} does not name the host {host}")
        secret = self._settings.secrets.get(channel.secret.upper())
        if secret is not None and not secret.hosts.names(host):
            if channel.secret:
                name = f"{SECRET_VARIABLE}_{channel.secret.upper()}{SECRET_HOSTS_ENDING}"
                raise NotDelivered(f"the secret “{channel.secret}” does not sign for {host}: {name} does not name it")
            secret = None  # the document names no secret, and the default one does not sign for this host
        timestamp = int(self._clock.now().timestamp())
        headers = {
            "content-type": "application/json",
            "user-agent": "taskgraph",
            "webhook-id": notice.id,
            "webhook-timestamp": str(timestamp),
        }
        if secret is not None:
            headers["webhook-signature"] = signature(secret.key, notice, timestamp)
        if self._session is None:
            self._session = _session(hosts)
        try:
            async with self._session.post(
                url, data=notice.body.encode(), headers=headers, allow_redirects=False
            ) as answer:
                status, wait = answer.status, answer.headers.get("retry-after", "")
        except TimeoutError as error:
            raise NotDelivered(f"no answer within {WEBHOOK_SECONDS:.0f} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if _NOT_PUBLIC in str(error):
                raise NotDelivered(f"{host} {_NOT_PUBLIC}: {HOSTS_VARIABLE} must name the address too") from error
            raise NotDelivered(_plain(error)) from error
        if not 200 <= status < 300:
            seconds = float(wait) if wait.isascii() and wait.isdigit() and len(wait) < 9 else 0.0
            more = "; redirects are not followed" if 300 <= status < 400 else ""
            raise NotDelivered(f"HTTP {status}{more}", seconds, final=status == _GONE)

    async def _to_command(self, command: tuple[str, ...], notice: Notice) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=self._inherited.copy(),
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
