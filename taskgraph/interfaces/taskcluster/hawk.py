"""Who an old client is: requests signed by Hawk, with the token of the HTTP API as the key.

A signature may come with less than the role of its token may: `ext` lists scopes (authorizedScopes), or holds a
certificate, by which the owner of the token has made temporary credentials of it. An address may be signed,
too (bewit).
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import mohawk
from mohawk.bewit import check_bewit, parse_bewit
from mohawk.exc import HawkFail
from mohawk.util import parse_authorization_header
from starlette.requests import Request

from taskgraph.interfaces.app import App
from taskgraph.interfaces.http.asked import ANONYMOUS
from taskgraph.interfaces.operations import tokens
from taskgraph.interfaces.operations.tokens import Token
from taskgraph.interfaces.taskcluster import scopes
from taskgraph.interfaces.taskcluster.errors import CallError

_SKEW_SECONDS: Final = 60
_NONCES_MAX: Final = 100_000
_EXT_CHARS_MAX: Final = 4_096
_CERTIFICATE_DAYS_MAX: Final = 31
_MILLISECONDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Sender:
    """scopes: all that it may do with this request. token, secret: by which it signs, itself or by a certificate."""

    who: Token
    scopes: Sequence[str]
    token: str = ""
    secret: str = field(default="", repr=False)

    def lend(self, name: str, scopes: Sequence[str], start: datetime, end: datetime) -> dict[str, str]:
        """Temporary credentials for these scopes, as clients make them of their own."""
        if not self.secret:
            return {"clientId": name, "accessToken": "none-needed"}
        certificate: dict[str, Any] = {
            "version": 1,
            "scopes": [*scopes],
            "start": int(start.timestamp()) * _MILLISECONDS,
            "expiry": int(end.timestamp()) * _MILLISECONDS,
            "seed": hashlib.sha256(f"{name} {end}".encode()).hexdigest(),
            "issuer": self.token,
        }
        certificate["signature"] = _signature(certificate, name, self.secret)
        return {
            "clientId": name,
            "accessToken": _derived(certificate, self.secret),
            "certificate": json.dumps(certificate),
        }


@dataclass(frozen=True, slots=True)
class _Key:
    """What signs. name: the client id of the request."""

    name: str
    secret: str
    sender: Sender

    def credentials(self, name: str) -> dict[str, str]:
        if name != self.name:
            raise LookupError(name)
        return {"id": name, "key": self.secret, "algorithm": "sha256"}


class Hawk:
    """Reads who has signed a request.

    anonymous: no signature is looked at, and everyone may do everything. Each nonce is taken once by one process within
    the time in which its signature is good.
    """

    def __init__(self, app: App, *, anonymous: bool) -> None:
        self._app = app
        self._anonymous = anonymous
        self._nonces: dict[tuple[str, str, str], float] = {}

    async def sender(self, request: Request, body: bytes) -> Sender | None:
        """None for a request without a signature. Raises CallError for one that is not good."""
        if self._anonymous:
            return Sender(ANONYMOUS, ("*",), ANONYMOUS.name)
        header = request.headers.get("authorization", "")
        try:
            if header:
                return await self._signed(request, header, body)
            if "bewit" in request.query_params and request.method == "GET":
                return await self._addressed(request)
        except (HawkFail, ValueError, KeyError, TypeError, AttributeError) as error:
            raise _refused(type(error).__name__) from error
        return None

    async def _signed(self, request: Request, header: str, body: bytes) -> Sender:
        given = parse_authorization_header(header)
        key = await self._key(given["id"], given.get("ext", ""))
        mohawk.Receiver(
            key.credentials,
            header,
            _url(request),
            request.method,
            content=body,
            content_type=request.headers.get("content-type", "") if body else "",
            # The Node client signs no content; one that does is held to it.
            accept_untrusted_content="hash" not in given,
            seen_nonce=self._seen,
            timestamp_skew_in_seconds=_SKEW_SECONDS,
            localtime_offset_in_seconds=0,
        )
        return key.sender

    async def _addressed(self, request: Request) -> Sender:
        given = request.query_params["bewit"]
        padded = given + "=" * (-len(given) % 4)
        found = parse_bewit(padded.replace("-", "+").replace("_", "/"))
        key = await self._key(found.id, found.ext)
        url = _url(request).replace(f"bewit={given}", f"bewit={padded.replace('-', '+').replace('_', '/')}")
        check_bewit(url, key.credentials, now=int(self._app.clock.now().timestamp()))
        return key.sender

    async def _key(self, name: str, ext: str) -> _Key:
        """What must have signed, by the client id and what the signature comes with. Raises CallError."""
        more = _read_ext(ext)
        certificate = more.get("certificate")
        issuer = name if certificate is None else str(certificate.get("issuer", name))
        found = await tokens.for_hawk(self._app, issuer)
        if found is None:
            raise _refused(f"there is no token {issuer} for Hawk")
        who, secret = found
        may: Sequence[str] = scopes.OF_ROLE[who.role]
        if certificate is not None:
            may, secret = self._certified(certificate, name, secret, may)
        if (wanted := more.get("authorizedScopes")) is not None:
            may = _narrowed(may, wanted)
        return _Key(name, secret, Sender(replace(who, name=name), may, issuer, found[1]))

    def _certified(
        self, certificate: dict[str, Any], name: str, secret: str, may: Sequence[str]
    ) -> tuple[Sequence[str], str]:
        """The scopes and the key of temporary credentials. Raises CallError."""
        start, end = float(certificate["start"]), float(certificate["expiry"])
        now = self._app.clock.now().timestamp() * _MILLISECONDS
        if not start - 300 * _MILLISECONDS <= now < end:
            raise _refused("the certificate is not good at this time")
        if end - start > _CERTIFICATE_DAYS_MAX * 86_400 * _MILLISECONDS:
            raise _refused(f"the certificate lasts longer than {_CERTIFICATE_DAYS_MAX} days")
        if not hmac.compare_digest(_signature(certificate, name, secret), str(certificate["signature"])):
            raise _refused("the certificate was not signed by its issuer")
        return _narrowed(may, certificate["scopes"]), _derived(certificate, secret)

    def _seen(self, name: str, nonce: str, at: str) -> bool:
        now = self._app.clock.monotonic()
        if len(self._nonces) >= _NONCES_MAX:
            self._nonces = {each: until for each, until in self._nonces.items() if until > now}
            if len(self._nonces) >= _NONCES_MAX:
                return True  # rather none than one twice
        known = self._nonces.get((name, nonce, at), now) > now
        self._nonces[name, nonce, at] = now + 2 * _SKEW_SECONDS
        return known


def _signature(certificate: Mapping[str, Any], name: str, secret: str) -> str:
    named = [f"clientId:{name}", f"issuer:{certificate['issuer']}"] if "issuer" in certificate else []
    lines = [
        f"version:{certificate['version']}",
        *named,
        *(f"{key}:{certificate[key]}" for key in ("seed", "start", "expiry")),
        "scopes:",
        *certificate["scopes"],
    ]
    return base64.b64encode(hmac.new(secret.encode(), "\n".join(lines).encode(), hashlib.sha256).digest()).decode()


def _derived(certificate: Mapping[str, Any], secret: str) -> str:
    made = hmac.new(secret.encode(), str(certificate["seed"]).encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(made).decode().rstrip("=")


def _read_ext(text: str) -> dict[str, Any]:
    if not text:
        return {}
    if len(text) > _EXT_CHARS_MAX:
        raise _refused("ext is too long")
    found = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    if not isinstance(found, dict):
        raise _refused("ext is no object")
    return found


def _narrowed(may: Sequence[str], wanted: Collection[Any]) -> Sequence[str]:
    listed = [str(each) for each in wanted]
    if missing := scopes.missing(may, listed):
        raise _refused(f"the token lacks {', '.join(missing)}")
    return listed


def _url(request: Request) -> str:
    """The address as it was asked for: a path is signed with its escapes."""
    path = request.scope.get("raw_path") or request.url.path.encode()
    query = request.scope.get("query_string", b"")
    host = request.headers.get("host", "")
    return f"{request.url.scheme}://{host}{path.decode('ascii')}" + (f"?{query.decode('ascii')}" if query else "")


def _refused(why: str) -> CallError:
    return CallError(401, "Authentication Failed", {"info": why, "scopesets": []})
