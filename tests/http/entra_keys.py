"""What stands for Entra ID in tests: keys, a server that hands out their public halves, and tokens that they sign."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa

from taskgraph.interfaces.http.entra import EntraSettings

TENANT: Final = "11111111-2222-3333-4444-555555555555"
AUDIENCE: Final = "api://taskgraph"
FIRST, SECOND, STRANGE = (rsa.generate_private_key(65_537, 2_048) for _ in range(3))


class Keys:
    """What hands out public keys, as Entra ID does. asked: how often. status: of its answers."""

    def __init__(self) -> None:
        self.keys: dict[str, rsa.RSAPrivateKey] = {"first": FIRST}
        self.asked = 0
        self.status = 200
        self.body: bytes | None = None
        self.address = ""

    @property
    def settings(self) -> EntraSettings:
        return EntraSettings(TENANT, [AUDIENCE, "other-audience"], self.address)

    async def answer(self, request: web.Request) -> web.Response:
        assert request.path == f"/{TENANT}/discovery/v2.0/keys"
        self.asked += 1
        listed = [
            {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig"}
            for kid, key in self.keys.items()
        ]
        body = json.dumps({"keys": [{"kty": "EC", "kid": "curve"}, *listed]}).encode()
        return web.Response(body=body if self.body is None else self.body, status=self.status)


@asynccontextmanager
async def handing_out() -> AsyncIterator[Keys]:
    keys, application = Keys(), web.Application()
    application.router.add_get("/{path:.*}", keys.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    keys.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield keys
    finally:
        await runner.cleanup()


def token(keys: Keys, key: Any = FIRST, kid: str = "first", algorithm: str = "RS256", **claims: Any) -> str:
    """claims: instead of those of a reader's token; None: without that one."""
    now = int(time.time())
    said = {
        "iss": f"{keys.address}/{TENANT}/v2.0",
        "aud": AUDIENCE,
        "exp": now + 600,
        "nbf": now - 5,
        "roles": ["Taskgraph.Reader"],
        "preferred_username": "ann@example.com",
        **claims,
    }
    said = {name: value for name, value in said.items() if value is not None}
    return jwt.encode(said, key, algorithm, headers={"kid": kid})
