"""Who a request is from, and whether it may: tokens, their scopes and their rate, and the names of the server."""

import hmac
import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from taskgraph.interfaces.app import App
from taskgraph.interfaces.http.asked import ANONYMOUS
from taskgraph.interfaces.http.problems import Problem
from taskgraph.interfaces.http.routes import Route
from taskgraph.interfaces.operations import shares, tokens
from taskgraph.interfaces.operations.tokens import Token
from taskgraph.model import limits

if TYPE_CHECKING:
    from taskgraph.interfaces.http.entra import Entra

KNOWN_SECONDS: Final = 10.0
"""For so long a token is not looked up again, so that a revoked one opens a server for so long at most."""

JWT: Final = "eyJ"
"""The beginning of every token of Entra ID; no token of taskgraph begins so."""

_KNOWN_MAX: Final = 10_000
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="taskgraph"'}
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


@dataclass(slots=True)
class _Bucket:
    """left: requests that may come at once. at: when that was so."""

    left: float
    at: float


class Gate:
    """Lets requests in.

    tokenless: who asks without a token; None: no one may. hosts: names of this server beside those of loopback; None
    where what is in front of it sees to that. rate: requests a second of a token, twice as many at once; 0 for any
    number. entra: reads tokens of Entra ID. own: a token that this process alone knows, and its text.
    """

    def __init__(
        self,
        app: App,
        *,
        tokenless: Token | None,
        hosts: Collection[str] | None = (),
        rate: float = 0.0,
        entra: "Entra | None" = None,
        own: tuple[Token, str] | None = None,
    ) -> None:
        self._app = app
        self._own = own
        self._entra = entra
        self._tokenless = tokenless
        self._hosts = None if hosts is None else {each.lower() for each in (*_LOOPBACK, *hosts)}
        self._rate = rate
        self._known: dict[str, tuple[float, Token | None]] = {}
        self._buckets: dict[str, _Bucket] = {}

    def check_host(self, request: Request) -> None:
        """Raises Problem for a name that is not this server's, or a page of another one, which asks in a browser.

        Names are checked as a page may have its own name stand for the address of this server.
        """
        name = _name(request.headers.get("host", ""))
        if self._hosts is not None and name not in self._hosts:
            words = f"this server is not {name[:100]}" if name else "the request does not say which server it is for"
            raise Problem(421, "host", f"{words}; its names are given with --allow-host")
        origin = request.headers.get("origin")
        if request.headers.get("sec-fetch-site") == "cross-site" or (
            origin is not None and _name(origin.partition("://")[2]) not in (self._hosts or (name,))
        ):
            raise Problem(403, "cross-site", "a page of another site may not ask this server")

    async def enter(self, request: Request, route: Route) -> Token:
        """The token of a request that may go on. Raises Problem: 401, 403, 429."""
        who = await self._who(request)
        if route.role is None:
            return who or ANONYMOUS
        if who is None:
            raise Problem(401, "no-token", "send a token: Authorization: Bearer TOKEN", headers=_CHALLENGE)
        self.spend(who)
        if who is not ANONYMOUS and not who.role.may(route.role):
            raise Problem(
                403, "role", f"{route.name} needs the role {route.role}; the token {who.name} has the role {who.role}"
            )
        target = request.path_params.get("target")
        if target is not None and not who.takes_of(target):
            words = f"the token {who.name} is for targets {', '.join(who.targets)} alone"
            raise Problem(403, "scope", words)
        if who.graphs:
            graph_id = request.path_params.get("graph")
            scope = f"the token {who.name} is for graphs {', '.join(who.graphs)} alone"
            if graph_id is None and not route.scoped:
                raise Problem(403, "scope", scope)
            if graph_id is not None and not who.is_for(graph_id):
                raise Problem(403, "scope", f"{scope}, and not for {graph_id}")
        return who

    async def _who(self, request: Request) -> Token | None:
        given = request.headers.get("authorization", "")
        if not given:
            return self._tokenless
        kind, _, text = given.partition(" ")
        found = await self._find(text.strip()) if kind.lower() == "bearer" else None
        if found is None:
            headers = {"WWW-Authenticate": f'{_CHALLENGE["WWW-Authenticate"]}, error="invalid_token"'}
            raise Problem(401, "token", "the token is not known, was revoked, or has ended", headers=headers)
        return found

    async def _find(self, text: str) -> Token | None:
        if self._own is not None and hmac.compare_digest(text.encode(), self._own[1].encode()):
            return self._own[0]
        if self._entra is not None and text.startswith(JWT):
            return await self._entra.find(text)
        if len(text) > limits.TOKEN_CHARS_MAX:
            return None
        now = self._app.clock.monotonic()
        until, found = self._known.get(text, (-math.inf, None))
        if until < now:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            find = shares.find if text.startswith(shares.MARK) else tokens.find
            found = await find(self._app, text)
            self._known[text] = now + KNOWN_SECONDS, found
        is_over = found is not None and found.until is not None and found.until <= self._app.clock.now()
        return None if is_over else found

    def spend(self, who: Token) -> None:
        """Count a request of a token. Raises Problem for one too many."""
        if not self._rate:
            return
        now, most = self._app.clock.monotonic(), 2 * self._rate
        bucket = self._buckets.setdefault(who.name, _Bucket(most, now))
        bucket.left = min(most, bucket.left + (now - bucket.at) * self._rate)
        bucket.at = now
        if bucket.left < 1:
            after = str(max(1, math.ceil((1 - bucket.left) / self._rate)))
            raise Problem(429, "rate", f"at most {self._rate:g} requests a second", headers={"Retry-After": after})
        bucket.left -= 1


def _name(host: str) -> str:
    """Without the port."""
    host = host.lower()
    return host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
