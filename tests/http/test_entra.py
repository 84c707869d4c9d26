"""Tokens of Entra ID: real keys, a server that hands them out, and every way in which a token is not for this API."""

import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from taskgraph.interfaces.http import entra as entras
from taskgraph.interfaces.http.entra import ROLES, Entra, EntraSettings, read_entra
from taskgraph.interfaces.http.problems import Problem
from taskgraph.interfaces.http.table import ROUTES
from taskgraph.model.errors import InvalidSettings
from taskgraph.model.roles import Role
from taskgraph.testing import ManualClock
from tests.http.access_table import DOCUMENT, call
from tests.http.entra_keys import AUDIENCE, FIRST, SECOND, STRANGE, TENANT, Keys, handing_out, token
from tests.http.serving import Server, serving


@pytest.fixture
async def keys() -> AsyncIterator[Keys]:
    async with handing_out() as made:
        yield made


@pytest.fixture
async def server(keys: Keys, tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path, anonymous=False, entra=keys.settings) as made:
        yield made


def forged_with_the_public_key(keys: Keys) -> str:
    """HS256, with the text of the public key as its secret: PyJWT itself refuses to make one."""
    import hashlib
    import hmac

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    said = token(keys).split(".")[1]
    head = part(json.dumps({"alg": "HS256", "typ": "JWT", "kid": "first"}).encode())
    secret = FIRST.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return f"{head}.{said}.{part(hmac.digest(secret, f'{head}.{said}'.encode(), hashlib.sha256))}"


def spoilt(keys: Keys) -> dict[str, str]:
    now, good = int(time.time()), token(keys)
    head, said, signature = good.split(".")
    return {
        "no algorithm": token(keys, None, algorithm="none"),
        "no signature": f"{head}.{said}.",
        "HS256 with the public key": forged_with_the_public_key(keys),
        "another algorithm of the same key": token(keys, algorithm="RS512"),
        "another key under the same name": token(keys, STRANGE),
        "a key that there is not": token(keys, STRANGE, "strange"),
        "a key of another kind": token(keys, STRANGE, "curve"),
        "another audience": token(keys, aud="api://other"),
        "no audience": token(keys, aud=None),
        "another tenant": token(keys, iss=f"{keys.address}/99999999-2222-3333-4444-555555555555/v2.0"),
        "another issuer": token(keys, iss="https://evil.example/"),
        "no issuer": token(keys, iss=None),
        "an end that is past": token(keys, exp=now - 61),
        "no end": token(keys, exp=None),
        "a beginning that is to come": token(keys, nbf=now + 90),
        "changed claims": f"{head}.{'A' if said[5] != 'A' else 'B'}{said}.{signature}",
        "too long": token(keys, more="x" * 20_000),
        "two parts": f"{head}.{said}",
        "no JSON": "eyJ.eyJ.x",
    }


async def test_what_is_no_token_for_this_api_opens_nothing(server: Server, keys: Keys) -> None:
    assert (await server.ask("GET", "/graphs", token=token(keys))).status == 200
    for what, text in spoilt(keys).items():
        answer = await server.ask("GET", "/graphs", token=text)
        assert (answer.status, answer.code) == (401, "token"), what
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    assert keys.asked == 1, "keys that there are not are looked for seldom"


async def test_each_app_role_opens_what_its_role_does(server: Server, keys: Keys) -> None:
    texts = {role: token(keys, roles=[name]) for name, role in ROLES.items()}
    assert list(texts) == list(Role)
    for route in ROUTES:
        for role, text in texts.items():
            answer = await call(server, route.name, text)
            if route.role is None or role.may(route.role):
                assert answer.status not in (401, 403), (route.name, role, answer)
            else:
                assert (answer.status, answer.code) == (403, "role"), (route.name, role)


async def test_the_journal_has_the_name_of_the_person_or_program(server: Server, keys: Keys) -> None:
    names = {
        "ann@example.com": {},
        "9f": {"preferred_username": None, "oid": "9f"},
        "7c": {"preferred_username": None, "azp": "7c"},
        "6d": {"preferred_username": None, "appid": "6d", "iss": f"https://sts.windows.net/{TENANT}/"},
    }
    for number, (name, claims) in enumerate(names.items()):
        text = token(keys, roles=["Taskgraph.Submitter"], aud="other-audience", **claims)
        assert (await server.ask("PUT", f"/graphs/g{number}", data=DOCUMENT, token=text)).status == 201
        events = (await server.ask("GET", f"/graphs/g{number}/events", token=text)).json["events"]
        assert events[0]["by"] == name


@pytest.mark.parametrize("roles", [None, [], "Taskgraph.Admin", ["taskgraph.admin"], ["Other.Reader"], [1]])
async def test_a_token_without_an_app_role_opens_nothing(server: Server, keys: Keys, roles: Any) -> None:
    answer = await server.ask("GET", "/graphs", token=token(keys, roles=roles))
    assert (answer.status, answer.code) == (403, "role")
    assert "Taskgraph.Reader" in answer.json["detail"]


async def test_of_several_roles_the_highest_counts_and_a_worker_only_works(keys: Keys) -> None:
    reader = Entra(keys.settings, ManualClock())
    for roles, role in (
        (["Taskgraph.Operator", "Taskgraph.Reader"], Role.OPERATOR),
        (["Taskgraph.Worker", "Taskgraph.Reader"], Role.READER),
        (["Taskgraph.Worker"], Role.WORKER),
    ):
        found = await reader.find(token(keys, roles=roles))
        assert found is not None
        assert found.role is role


async def test_new_keys_are_found_and_old_ones_forgotten(keys: Keys) -> None:
    clock = ManualClock()
    reader = Entra(keys.settings, clock)
    old, new = token(keys), token(keys, SECOND, "second")
    assert await reader.find(old) is not None
    keys.keys = {"second": SECOND}
    assert await reader.find(new) is None, "not so soon after the last look"
    assert keys.asked == 1
    clock.advance(entras.AGAIN_SECONDS)
    assert await reader.find(new) is not None
    assert await reader.find(old) is None, "its key is withdrawn"
    keys.keys = {"first": FIRST}
    clock.advance(entras.KEYS_SECONDS - 1)
    assert await reader.find(new) is not None
    assert keys.asked == 2
    clock.advance(2)
    assert await reader.find(new) is None, "after a day all keys are read anew"
    assert keys.asked == 3


@pytest.mark.parametrize("trouble", ["status", "no JSON", "no keys", "too much", "gone"])
async def test_known_keys_go_on_while_no_others_can_be_had(keys: Keys, trouble: str) -> None:
    clock = ManualClock()
    settings = EntraSettings(TENANT, [AUDIENCE], "http://127.0.0.1:9") if trouble == "gone" else keys.settings
    reader = Entra(settings, clock)
    if trouble != "gone":
        assert await reader.find(token(keys)) is not None
    keys.status = 500 if trouble == "status" else 200
    keys.body = {"no JSON": b"<html>", "no keys": b"[]", "too much": b" " * 1_000_001}.get(trouble)
    clock.advance(entras.KEYS_SECONDS + 1)
    if trouble != "gone":
        assert await reader.find(token(keys)) is not None, "known, though a day old"
    with pytest.raises(Problem, match="the keys of Entra ID cannot be read") as raised:
        await reader.find(token(keys, SECOND, "second"))
    assert (raised.value.status, raised.value.headers) == (503, {"Retry-After": "10"})
    if trouble != "gone":
        assert keys.asked == 2, "a failure is not repeated at once"
        keys.status, keys.body, keys.keys = 200, None, {"second": SECOND}
        clock.advance(entras.AGAIN_AFTER_FAILURE_SECONDS)
        assert await reader.find(token(keys, SECOND, "second")) is not None


def test_settings_are_read_and_what_makes_no_sense_is_named() -> None:
    set_to = {"TASKGRAPH_ENTRA_TENANT": TENANT.upper(), "TASKGRAPH_ENTRA_AUDIENCE": "one, two"}
    assert read_entra({}) is None
    assert read_entra(set_to) == EntraSettings(TENANT, ["one", "two"])
    moved = read_entra({**set_to, "AZURE_AUTHORITY_HOST": "login.microsoftonline.us/"})
    assert moved is not None
    assert moved.keys_url == f"https://login.microsoftonline.us/{TENANT}/discovery/v2.0/keys"
    for change, said in (
        ({"TASKGRAPH_ENTRA_TENANT": "common"}, "TASKGRAPH_ENTRA_TENANT"),
        ({"TASKGRAPH_ENTRA_TENANT": ""}, "TASKGRAPH_ENTRA_TENANT"),
        ({"TASKGRAPH_ENTRA_AUDIENCE": " ,"}, "TASKGRAPH_ENTRA_AUDIENCE is missing"),
        ({"AZURE_AUTHORITY_HOST": "http://login.example"}, "AZURE_AUTHORITY_HOST"),
    ):
        with pytest.raises(InvalidSettings, match=said):
            read_entra({**set_to, **change})
