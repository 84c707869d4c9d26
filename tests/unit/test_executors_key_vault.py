"""Secrets from a vault: Microsoft's client against a server of this machine that answers as the service does.

The client demands https and the address of a vault, so a transport takes its requests to the server; everything above
it is the real one: challenge, token, request, answer, errors.
"""

import http.server
import json
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError
from azure.core.pipeline.transport import RequestsTransport

from taskgraph.model.errors import InvalidInput, InvalidSettings
from taskgraph.model.secrecy import Handed
from taskgraph.worker.executors import CommandExecutor, Outcome, Work
from taskgraph.worker.executors.contract import TemporaryFailure
from taskgraph.worker.executors.key_vault import KeyVault
from taskgraph.worker.executors.secrets import Secrets

ADDRESS = "https://team-1.vault.azure.net"
TOKEN = "of-the-identity"


class Credential:
    """Gives one token, and keeps for what it was asked."""

    def __init__(self) -> None:
        self.scopes: list[str] = []

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        self.scopes += scopes
        return AccessToken(TOKEN, int(time.time()) + 3600)


class NoCredential(Credential):
    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        raise ClientAuthenticationError("no way to sign in")


class ToServer(RequestsTransport):
    """Takes requests for a vault to a server of this machine."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port

    def send(self, request: Any, **options: Any) -> Any:
        address = request.url
        request.url = f"http://127.0.0.1:{self.port}/{address.removeprefix('https://').partition('/')[2]}"
        try:
            return super().send(request, **options)
        finally:
            request.url = address


class Service(http.server.ThreadingHTTPServer):
    """A vault: names of secrets -> their values, or the status with which they are refused."""

    def __init__(self, secrets: dict[str, str | int]) -> None:
        self.secrets = secrets
        self.asked: list[str] = []
        self.challenge = (
            'Bearer authorization="https://login.microsoftonline.com/t", resource="https://vault.azure.net"'
        )
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        assert "api-version=" in self.path
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            return self._answer(401, _refusal("Unauthorized"), {"www-authenticate": self.server.challenge})
        self.server.asked.append(path)
        _, what, name, *_ = path.split("/")
        assert what == "secrets"
        found = self.server.secrets.get(name, 404)
        if isinstance(found, int):
            more = {"retry-after": "7"} if found == 429 else {}
            return self._answer(found, _refusal({403: "Forbidden", 404: "SecretNotFound"}.get(found, "Other")), more)
        times = {"enabled": True, "created": 1700000000, "updated": 1700000000, "recoveryLevel": "Recoverable"}
        return self._answer(200, {"value": found, "id": f"{ADDRESS}/secrets/{name}/0f", "attributes": times}, {})

    def _answer(self, status: int, body: Any, headers: dict[str, str]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**headers, "content-type": "application/json", "content-length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


def _refusal(code: str) -> Any:
    return {"error": {"code": code, "message": f"{code}, says the service"}}


@pytest.fixture
def service() -> Iterator[Service]:
    secrets: dict[str, str | int] = {"deploy-token": "planted-in-a-vault", "short": "abc", "empty": ""}
    made = Service({**secrets, "closed": 403, "odd": 400, "busy": 429, "broken": 503})
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def vault(service: Service) -> Iterator[KeyVault]:
    transport = ToServer(service.server_port)
    yield KeyVault(ADDRESS + "/", credential=Credential(), transport=transport)
    transport.close()


def test_a_secret_is_read_with_the_identity_that_the_vault_asks_for(service: Service) -> None:
    credential, transport = Credential(), ToServer(service.server_port)
    with transport:
        vault = KeyVault(ADDRESS, credential=credential, transport=transport)
        assert vault.read("deploy-token") == b"planted-in-a-vault"
        service.secrets["deploy-token"] = "a newer version"
        assert vault.read("deploy-token") == b"a newer version"
        assert vault.read("not-there") == b""
    assert credential.scopes[0] == "https://vault.azure.net/.default"
    assert [path.rstrip("/") for path in service.asked] == [
        "/secrets/deploy-token",
        "/secrets/deploy-token",
        "/secrets/not-there",
    ]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("closed", "must not be read by this worker .HTTP 403.: give its identity the role “Key Vault Secrets User”"),
        ("odd", "cannot be read: HTTP 400"),
        ("a_b", "cannot exist: names in a vault have letters, digits and -"),
    ],
)
def test_what_a_vault_refuses_says_why_and_what_to_do(vault: KeyVault, name: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=f"the secret “{name}” of {ADDRESS} {says}"):
        vault.read(name)


@pytest.mark.parametrize(("name", "says", "seconds"), [("busy", "HTTP 429", 7.0), ("broken", "HTTP 503", None)])
def test_what_a_vault_cannot_answer_now_is_tried_again_later(
    vault: KeyVault, service: Service, name: str, says: str, seconds: float | None
) -> None:
    with pytest.raises(TemporaryFailure, match=says) as raised:
        vault.read(name)
    assert raised.value.retry_after == seconds
    assert len(service.asked) == 1


def test_a_vault_that_does_not_answer_and_an_identity_that_is_none(service: Service) -> None:
    with ToServer(service.server_port) as transport:
        lost = KeyVault(ADDRESS, credential=NoCredential(), transport=transport)
        with pytest.raises(InvalidInput, match="this worker cannot sign in: sign in by az login"):
            lost.read("deploy-token")
    with ToServer(1) as transport:
        gone = KeyVault(ADDRESS, credential=Credential(), transport=transport)
        with pytest.raises(TemporaryFailure, match="cannot be read now: the vault does not answer"):
            gone.read("deploy-token")


def test_a_vault_that_asks_for_a_token_of_another_service_gets_none(service: Service) -> None:
    service.challenge = service.challenge.replace("vault.azure.net", "vault.example.com")
    credential = Credential()
    with ToServer(service.server_port) as transport:
        other = KeyVault("https://another.vault.azure.net", credential=credential, transport=transport)
        with pytest.raises(InvalidInput, match="it asks for a token of another service"):
            other.read("deploy-token")
    assert credential.scopes == []


async def _run(vault: KeyVault, secret: str) -> tuple[Outcome, str]:
    said = bytearray()

    async def log(data: bytes) -> None:
        said.extend(data)

    executor = CommandExecutor(handed=Handed(secrets={"TASKGRAPH_SECRET_NEAR": "from-a-variable"}))
    executor._secrets = Secrets(Handed(secrets={"TASKGRAPH_SECRET_NEAR": "from-a-variable"}), vault)
    code = "import os; print(len(os.environ['T']), os.environ['T'])"
    payload = {"command": [sys.executable, "-c", code], "env": {"T": {"$secret": secret}}}
    outcome = await executor.run(Work("g", "t", 0, "a", "c", {"payload": payload}), log)
    return outcome, said.decode()


async def test_a_command_gets_a_secret_of_a_vault_and_its_log_does_not(vault: KeyVault, service: Service) -> None:
    outcome, said = await _run(vault, "deploy-token")
    assert (outcome.failed, said) == (False, "18 ***\n")
    outcome, said = await _run(vault, "near")
    assert (outcome.failed, said) == (False, "15 ***\n")
    assert len(service.asked) == 1


async def test_a_run_without_its_secret_ends_before_the_command_begins(vault: KeyVault) -> None:
    outcome, said = await _run(vault, "not-there")
    assert outcome.exception
    assert outcome.reason == (
        "this worker has no secret “not-there”: set TASKGRAPH_SECRET_NOT_THERE at its start, or put it into "
        f"{ADDRESS}: az keyvault secret set --vault-name team-1 --name not-there"
    )
    for name, says in (("empty", "has no secret"), ("short", "can be masked"), ("closed", "HTTP 403")):
        outcome, _ = await _run(vault, name)
        assert outcome.exception
        assert says in outcome.reason
    outcome, _ = await _run(vault, "busy")
    assert (outcome.temporary, outcome.retry_after, outcome.exception, said) == (True, 7.0, False, "")


@pytest.mark.parametrize(
    "address",
    [
        "https://example.com",
        "https://vault.azure.net",
        "https://team-1.vault.example.com",
        "https://a.b.vault.azure.net",
        f"{ADDRESS}/secrets",
        "https://",
    ],
)
def test_what_is_no_vault_is_refused_at_the_start(address: str) -> None:
    with pytest.raises(InvalidSettings, match=r"is no vault: write https://NAME\.vault"):
        Secrets(Handed(place=address))


@pytest.mark.parametrize("suffix", ["azure.net", "azure.cn", "usgovcloudapi.net"])
def test_vaults_of_other_clouds_are_vaults(suffix: str) -> None:
    address = f"https://team-1.vault.{suffix}"
    assert KeyVault(address, credential=Credential()).address == address


def test_without_the_package_the_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "azure.keyvault.secrets", None)
    with pytest.raises(InvalidSettings, match=r"pip install 'taskgraph-scheduler\[keyvault\]'"):
        Secrets(Handed(place=ADDRESS))


def test_the_identity_of_this_machine_or_person_is_the_one_that_is_used() -> None:
    from azure.identity import DefaultAzureCredential

    secrets = Secrets(Handed(place=ADDRESS))
    vault = secrets._vault
    assert vault is not None
    assert isinstance(vault._client._client._config.credential, DefaultAzureCredential)
