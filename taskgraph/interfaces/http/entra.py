"""Tokens of Microsoft Entra ID: signed by its keys, for this API, with an app role for each role of taskgraph.

Keys are fetched when the first token comes, and again after a day, or for a key that is not known, which happens
seldom however many such tokens come. While they cannot be fetched, those that are known go on.
"""

import asyncio
import json
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import jwt

from taskgraph.interfaces.http.problems import Problem
from taskgraph.interfaces.operations.tokens import Token
from taskgraph.model.clock import Clock
from taskgraph.model.errors import InvalidSettings
from taskgraph.model.roles import Role

log = logging.getLogger("taskgraph.http")

TENANT_VARIABLE: Final = "TASKGRAPH_ENTRA_TENANT"
AUDIENCE_VARIABLE: Final = "TASKGRAPH_ENTRA_AUDIENCE"
AUTHORITY_VARIABLE: Final = "AZURE_AUTHORITY_HOST"
"""Of clouds of their own; the Azure SDK reads it too."""

AUTHORITY_DEFAULT: Final = "https://login.microsoftonline.com"
KEYS_SECONDS: Final = 24 * 3_600.0
AGAIN_SECONDS: Final = 300.0
"""Between two fetches for keys that are not known."""
AGAIN_AFTER_FAILURE_SECONDS: Final = 10.0
ROLES: Final = {f"Taskgraph.{role.capitalize()}": role for role in Role}

_ALGORITHM: Final = "RS256"
_LEEWAY_SECONDS: Final = 60
_FETCH_SECONDS: Final = 5.0
_CHARS_MAX: Final = 16_384
_KEYS_BYTES_MAX: Final = 1_000_000
_TENANT: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class EntraSettings:
    """audiences: as tokens have them in `aud`: the id of the app's registration, or its URI."""

    tenant: str
    audiences: Sequence[str]
    authority: str = AUTHORITY_DEFAULT

    @property
    def issuers(self) -> list[str]:
        """Of tokens of version 2, and of version 1 in the public cloud."""
        return [f"{self.authority}/{self.tenant}/v2.0", f"https://sts.windows.net/{self.tenant}/"]

    @property
    def keys_url(self) -> str:
        return f"{self.authority}/{self.tenant}/discovery/v2.0/keys"


def read_entra(environ: Mapping[str, str]) -> EntraSettings | None:
    """None where no tenant is set. Raises InvalidSettings."""
    tenant = environ.get(TENANT_VARIABLE, "").strip().lower()
    audiences = [each for each in re.split(r"[\s,]+", environ.get(AUDIENCE_VARIABLE, "")) if each]
    if not tenant and not audiences:
        return None
    if not _TENANT.fullmatch(tenant):
        raise InvalidSettings(
            f"{TENANT_VARIABLE}=“{tenant[:100]}”: write the id of the tenant, 32 digits with 4 dashes"
        )
    if not audiences:
        raise InvalidSettings(
            f"{AUDIENCE_VARIABLE} is missing beside {TENANT_VARIABLE}: write the id of the app's registration"
        )
    authority = environ.get(AUTHORITY_VARIABLE, "").strip().rstrip("/") or AUTHORITY_DEFAULT
    authority = authority if "://" in authority else f"https://{authority}"
    url = urlsplit(authority)
    if url.scheme != "https" and not (url.scheme == "http" and url.hostname in _LOOPBACK):
        raise InvalidSettings(f"{AUTHORITY_VARIABLE}=“{authority[:100]}”: write an address that begins with https://")
    return EntraSettings(tenant, audiences, authority)


class Entra:
    """Reads tokens."""

    def __init__(self, settings: EntraSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched = self._tried = -math.inf
        self._trouble = ""
        self._fetching = asyncio.Lock()

    async def find(self, text: str) -> Token | None:
        """Whose token it is, None for one that is not valid here.

        Raises Problem: 403 for one without a role, 503 where the keys cannot be had.
        """
        if len(text) > _CHARS_MAX:
            return None
        try:
            kid = jwt.get_unverified_header(text).get("kid")
            key = await self._key(kid) if isinstance(kid, str) else None
            if key is None:
                return None
            claims = jwt.decode(
                text,
                key,
                algorithms=[_ALGORITHM],
                audience=self._settings.audiences,
                issuer=self._settings.issuers,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:
            log.info("a token of Entra ID is refused: %s", error)
            return None
        return _token(claims)

    async def _key(self, kid: str) -> jwt.PyJWK | None:
        """The key of this name, None for one that there is not. Raises Problem where that cannot be known."""
        known = self._keys.get(kid)
        old = self._fetched + KEYS_SECONDS < self._clock.monotonic()
        if known is not None and (not old or self._fetching.locked()):
            return known
        async with self._fetching:
            pause = AGAIN_AFTER_FAILURE_SECONDS if self._trouble else AGAIN_SECONDS
            if self._tried + pause <= self._clock.monotonic() and kid not in self._fresh():
                await self._fetch()
        known = self._keys.get(kid)
        if known is None and self._trouble:
            raise Problem(
                503,
                "entra",
                f"the keys of Entra ID cannot be read from {self._settings.keys_url}: {self._trouble}; tokens of "
                "taskgraph, and those with keys that are known, are read meanwhile",
                headers={"Retry-After": str(int(AGAIN_AFTER_FAILURE_SECONDS))},
            )
        return known

    def _fresh(self) -> Mapping[str, jwt.PyJWK]:
        """The keys, unless they are a day old."""
        return self._keys if self._fetched + KEYS_SECONDS >= self._clock.monotonic() else {}

    async def _fetch(self) -> None:
        """Read the keys; what fails is kept for those who ask, and the keys stay as they are."""
        self._tried = self._clock.monotonic()
        try:
            found = _keys_in(await _read(self._settings.keys_url))
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            self._trouble = str(error)[:200] or type(error).__name__
            log.warning("the keys of Entra ID cannot be read from %s: %s", self._settings.keys_url, self._trouble)
            return
        self._keys, self._fetched, self._trouble = found, self._tried, ""


async def _read(url: str) -> bytes:
    timeout = aiohttp.ClientTimeout(total=_FETCH_SECONDS)
    async with (
        aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
        session.get(url, allow_redirects=False) as answer,
    ):
        if answer.status != 200:
            raise ValueError(f"it answers {answer.status}")
        data = await answer.content.read(_KEYS_BYTES_MAX + 1)
        while len(data) <= _KEYS_BYTES_MAX and (more := await answer.content.read(_KEYS_BYTES_MAX)):
            data += more
        if len(data) > _KEYS_BYTES_MAX:
            raise ValueError(f"it answers more than {_KEYS_BYTES_MAX:,} bytes")
        return data


def _keys_in(data: bytes) -> dict[str, jwt.PyJWK]:
    """The keys for RSA signatures, by name. Raises ValueError."""
    document = json.loads(data)
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("what it answers has no keys")
    found = {}
    for each in listed:
        if isinstance(each, dict) and each.get("kty") == "RSA" and each.get("use", "sig") == "sig":
            try:
                found[str(each.get("kid", ""))] = jwt.PyJWK(each, _ALGORITHM)
            except jwt.PyJWTError as error:
                log.warning("a key of Entra ID cannot be read: %s", error)
    return found


def _token(claims: Mapping[str, Any]) -> Token:
    """Raises Problem for one without a role."""
    names = ("preferred_username", "upn", "oid", "azp", "appid", "sub")
    name = next((str(claims[each]) for each in names if claims.get(each)), "")
    given = claims.get("roles")
    roles = [ROLES[each] for each in given if each in ROLES] if isinstance(given, list) else []
    if not name or not roles:
        raise Problem(
            403, "role", f"the token of {name or 'Entra ID'} has no app role: assign one of {', '.join(ROLES)}"
        )
    nested = [role for role in Role if role in roles and role is not Role.WORKER]
    return Token(name, nested[-1] if nested else Role.WORKER, until=datetime.fromtimestamp(int(claims["exp"]), UTC))
