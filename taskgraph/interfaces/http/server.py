"""The API behind a port: uvicorn in the event loop of `serve`, which ends it."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from taskgraph.interfaces.app import App
from taskgraph.interfaces.http.asgi import More, opened
from taskgraph.interfaces.http.asked import ANONYMOUS
from taskgraph.interfaces.http.entra import TENANT_VARIABLE, Entra, EntraSettings
from taskgraph.interfaces.http.gate import Gate
from taskgraph.interfaces.operations import tokens
from taskgraph.interfaces.operations.tokens import Token
from taskgraph.model.errors import InvalidInput, Refused
from taskgraph.model.flag import Flag
from taskgraph.model.roles import Role

HOST_DEFAULT: Final = "127.0.0.1"
_GRACE_SECONDS: Final = 5
_KEEP_ALIVE_SECONDS: Final = 75
"""How long an idle connection stays open: longer than clients keep theirs (aiohttp 15 s), so that the client closes it.

A connection that the server closes while a request is on its way there loses that request, and a POST is not repeated.
"""
_BACKLOG: Final = 2_048


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @property
    def loopback(self) -> bool:
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"

    def __str__(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


def read_address(text: str) -> Address:
    """Of `[HOST:]PORT`; port 0 is any that is free. Raises InvalidInput."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or HOST_DEFAULT
    if not (port.isascii() and port.isdigit() and int(port) < 65_536):
        raise InvalidInput(f"--http {text}: write PORT, or HOST:PORT such as 127.0.0.1:8080")
    return Address(host, int(port))


@dataclass(frozen=True, slots=True)
class Listening:
    """A port that is open, and who is let in. more: other APIs beside this one."""

    address: Address
    bound: socket.socket
    gate: Gate
    more: Sequence[More] = ()

    async def run(self, app: App, stop: Flag) -> None:
        """Answer requests until `stop` is set; then streams end, and requests under way are finished."""
        async with opened(app, self.gate, self.more) as (api, feeds):
            await serve_until(api, self.bound, stop, feeds.close)


async def serve_until(
    api: ASGIApp, bound: socket.socket, stop: Flag, ending: Callable[[], None] = lambda: None
) -> None:
    """Answer requests there until `stop` is set; then call `ending`, and finish those under way."""
    config = uvicorn.Config(
        api,
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        ws="none",
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        ending()
        server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are for `serve`, which sets `should_exit`."""
        yield


async def open_port(
    app: App,
    address: Address,
    *,
    anonymous: bool,
    hosts: Collection[str] = (),
    rate: float = 0.0,
    entra: EntraSettings | None = None,
    more: Sequence[More] = (),
) -> Listening:
    """Listen there. anonymous: no token is needed. hosts, rate, entra: see `Gate`. more: see `Listening`.

    Raises InvalidInput where that cannot be, and Refused where anyone could ask, or no one: to do without tokens takes
    loopback, and the wish for it.
    """
    if anonymous and not address.loopback:
        raise Refused(
            f"{address.host} is reached from other machines, and --no-auth lets everyone do everything: make a token "
            "(taskgraph token create), or listen on 127.0.0.1",
            "no-auth",
        )
    if not anonymous and entra is None and not await tokens.listed(app):
        raise Refused(
            "there are no tokens, so no request could be let in: make one (taskgraph token create NAME --role admin), "
            f"set {TENANT_VARIABLE}, or say --no-auth, on loopback alone",
            "no-tokens",
        )
    bound = bind(address)
    own = f"[{address.host}]" if ":" in address.host else address.host
    reader = Entra(entra, app.clock) if entra is not None else None
    nameless = ANONYMOUS if anonymous else None
    gate = Gate(app, tokenless=nameless, hosts=[own, *hosts], rate=rate, entra=reader)
    return Listening(Address(address.host, bound.getsockname()[1]), bound, gate, more)


def open_own(app: App, name: str, more: Sequence[More]) -> tuple[Listening, str]:
    """Listen on loopback, on a port that is free; and the token that lets in who has it, while this process runs.

    name: of who has it, in the journal. more: see `Listening`.
    """
    bound = bind(Address(HOST_DEFAULT, 0))
    text = f"{app.clock.new_id()}{app.clock.new_id()}"
    gate = Gate(app, tokenless=None, own=(Token(name, Role.ADMIN), text))
    return Listening(Address(HOST_DEFAULT, bound.getsockname()[1]), bound, gate, more), text


def bind(address: Address) -> socket.socket:
    """A port that is open there. Raises InvalidInput."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # With its protocol named: asyncio sends at once on such sockets alone, and otherwise 40 ms later (Nagle).
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address.host, address.port))
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise InvalidInput(f"cannot listen on {address.host} port {address.port}: {error.strerror or error}") from error
    return made
