"""What a worker keeps to itself of its environment, and what its commands get."""

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from taskgraph.interfaces.app import store_url
from taskgraph.interfaces.cli.serve import WorkerOptions
from taskgraph.interfaces.settings import WITHHELD, read_settings
from taskgraph.model import secrecy
from taskgraph.model.errors import InvalidSettings
from taskgraph.model.secrecy import Environment, Handed, is_secret, read_handed, withdraw
from taskgraph.worker.executors import CommandExecutor, Work
from taskgraph.worker.executors.orphans import guard

CONNECTION = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=cGxhbnRlZA==;EndpointSuffix=core.windows.net"
SAS = "TableEndpoint=https://a.table.core.windows.net;SharedAccessSignature=sv=2024&sig=planted"
SECRETS = {
    "TASKGRAPH_WEBHOOK_SECRET": "x",
    "TASKGRAPH_WEBHOOK_SECRET_CI": "x",
    "TASKGRAPH_ARCHIVE_KEY": "x",
    "TASKGRAPH_STORE": CONNECTION,
    "AzureWebJobsStorage": "x",
    "AzureWebJobsMyStore": CONNECTION,
    "MyStore": SAS,
    "AZURE_CLIENT_SECRET": "x",
    "AZURE_CLIENT_CERTIFICATE_PASSWORD": "x",
    "AZURE_CLIENT_CERTIFICATE_PATH": "x",
    "AZURE_PASSWORD": "x",
    "AZURE_USERNAME": "x",
    "AZURE_FEDERATED_TOKEN_FILE": "x",
    "AZURE_STORAGE_KEY": "x",
    "AZURE_STORAGE_SAS_TOKEN": "x",
    "AZURE_STORAGE_CONNECTION_STRING": "x",
    "IDENTITY_ENDPOINT": "x",
    "IDENTITY_HEADER": "x",
    "MSI_ENDPOINT": "x",
    "MSI_SECRET": "x",
    "APPLICATIONINSIGHTS_CONNECTION_STRING": "x",
    "APPINSIGHTS_INSTRUMENTATIONKEY": "x",
    "WEBSITE_CONTENTAZUREFILECONNECTIONSTRING": "x",
    "WEBSITE_AUTH_ENCRYPTION_KEY": "x",
    "SQLAZURECONNSTR_MAIN": "x",
    "OTEL_EXPORTER_OTLP_HEADERS": "api-key=x",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "api-key=x",
    "ANYTHING": "https://a.blob.core.windows.net/c?sv=2024&sig=planted",
}
OPEN = {
    "PATH": "/bin",
    "HOME": "/home/x",
    "TASKGRAPH_STORE": "sqlite:///x.db",
    "TASKGRAPH_PREFIX": "mine",
    "AZURE_CLIENT_ID": "x",
    "AZURE_TENANT_ID": "x",
    "AzureWebJobsStorage__tableServiceUri": "https://a.table.core.windows.net",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
    "GITHUB_TOKEN": "x",  # not the worker's: its owner gave it to the tasks
    "HTTPS_PROXY": "http://proxy",
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_known_by_its_name_or_its_value(name: str) -> None:
    assert is_secret(name, SECRETS[name])


@pytest.mark.parametrize("name", OPEN)
def test_what_is_no_secret_of_the_worker_is_handed_on(name: str) -> None:
    assert not is_secret(name, OPEN[name])


def test_what_is_asked_for_is_handed_on() -> None:
    assert read_handed({}, shared=False) == Handed()
    made = read_handed({"TASKGRAPH_PASS_ENV": "A, B,", "TASKGRAPH_WITH_STORE": "on"}, ["C"], shared=False)
    assert made == Handed(frozenset("ABC"), store=True)
    assert read_handed({"TASKGRAPH_WITH_STORE": "off"}, store=True, shared=False).store
    for name in ("TASKGRAPH_WITH_STORE", "TASKGRAPH_INHERIT_ENV"):
        with pytest.raises(InvalidSettings, match=f"{name}=“perhaps”: write on or off"):
            read_handed({name: "perhaps"}, shared=True)


def test_a_process_takes_its_secrets_out_of_its_environment() -> None:
    environ = {**OPEN, **SECRETS}
    assert set(withdraw(environ, Handed(frozenset({"AZURE_STORAGE_KEY"}), store=True))) == set(SECRETS) - {
        "AZURE_STORAGE_KEY",
        *(name for name in SECRETS if name.startswith(("AZURE_CLIENT", "IDENTITY", "MSI_", "AZURE_FED"))),
        *("AZURE_PASSWORD", "AZURE_USERNAME"),
    }
    assert set(OPEN) - {"TASKGRAPH_STORE"} < set(environ)


def test_the_environment_is_looked_through_again_when_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Environment(Handed())
    assert b"AZURE_CLIENT_SECRET" not in made.copy()
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "x")
    monkeypatch.setenv("HELLO", "x")
    copy = made.copy()
    assert b"HELLO" in copy
    assert b"AZURE_CLIENT_SECRET" not in copy
    copy[b"OTHER"] = b"x"
    assert b"OTHER" not in made.copy()


async def _command(handed: Handed | None, *command: str, store: str = WITHHELD) -> str:
    said = bytearray()

    async def log(data: bytes) -> None:
        said.extend(data)

    work = Work("g", "t", 0, "l", "c", {"payload": {"command": list(command)}}, store_url=store)
    await CommandExecutor(handed=handed).run(work, log)
    return said.decode()


async def test_a_command_sees_no_secret_of_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    show = (sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))")
    seen: dict[str, Any] = json.loads(await _command(None, *show))
    assert set(SECRETS) & set(seen) == {"TASKGRAPH_STORE"}
    assert seen["TASKGRAPH_STORE"] == WITHHELD
    given = json.loads(await _command(Handed(frozenset({"AZURE_STORAGE_KEY"})), *show))
    assert given["AZURE_STORAGE_KEY"] == "x"
    signed = json.loads(await _command(Handed(store=True), *show, store=CONNECTION))
    assert (signed["TASKGRAPH_STORE"], signed["AZURE_CLIENT_SECRET"]) == (CONNECTION, "x")
    assert "TASKGRAPH_WEBHOOK_SECRET" not in signed
    guarded = Path(f"/proc/{guard()._pid}/environ")  # it runs as the same user, so a command could look there
    if guarded.exists():
        assert b"planted" not in guarded.read_bytes()


def test_the_key_of_the_store_goes_to_commands_only_where_that_is_asked_for(tmp_path: Path) -> None:
    for text in (CONNECTION, SAS + ";QueueEndpoint=https://a.queue.core.windows.net"):
        settings = read_settings(text, {}, cwd=tmp_path)
        assert store_url(settings, with_store=False) == WITHHELD
        assert store_url(settings, with_store=True) == text
    for text in ("https://acct.table.core.windows.net", f"sqlite:///{tmp_path}/s.db", "UseDevelopmentStorage=true"):
        settings = read_settings(text, {}, cwd=tmp_path)
        assert store_url(settings, with_store=False) == store_url(settings, with_store=True) != WITHHELD
    with pytest.raises(InvalidSettings, match="--with-store"):
        read_settings(None, {"TASKGRAPH_STORE": WITHHELD}, cwd=tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
def test_the_memory_of_a_process_with_secrets_is_closed_to_others() -> None:
    libc = ctypes.CDLL(None)
    before = libc.prctl(3, 0, 0, 0, 0)  # PR_GET_DUMPABLE
    try:
        for environ, expected in (({}, 1), ({"AZURE_CLIENT_SECRET": "x"}, 0)):
            libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
            withdraw(dict(environ), Handed())
            assert libc.prctl(3, 0, 0, 0, 0) == expected
    finally:
        libc.prctl(4, before, 0, 0, 0)


def test_the_environment_is_read_by_the_ways_of_the_language_where_its_inner_ones_are_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = Environment(Handed()).copy()
    monkeypatch.setattr(secrecy, "_INHERITED", "an attribute of a version to come")
    assert Environment(Handed()).copy() == expected


@pytest.mark.parametrize(
    ("store", "environ", "inherit", "clean"),
    [
        ("sqlite:///s.db", {}, False, False),
        (CONNECTION, {}, False, True),
        ("https://acct.table.core.windows.net", {}, False, True),
        ("UseDevelopmentStorage=true", {}, False, True),
        (CONNECTION, {}, True, False),
        (CONNECTION, {"TASKGRAPH_INHERIT_ENV": "on"}, False, False),
        (CONNECTION, {"TASKGRAPH_INHERIT_ENV": "off"}, False, True),
    ],
)
def test_the_environment_of_commands_is_clean_on_a_shared_store_unless_the_worker_says_otherwise(
    store: str,
    environ: dict[str, str],
    inherit: bool,
    clean: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.delenv("TASKGRAPH_INHERIT_ENV", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    settings = read_settings(store, {}, cwd=tmp_path)
    assert WorkerOptions(inherit_env=inherit).handed(settings).clean == clean


def test_a_clean_environment_has_what_every_program_needs_and_what_the_owner_of_the_worker_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everything = {**OPEN, **SECRETS}
    for name, value in everything.items():
        monkeypatch.setenv(name, value)

    def names(handed: Handed, said: bool | frozenset[bytes] | None = None) -> set[str]:
        return {os.fsdecode(name) for name in Environment(handed).given(said)} & set(everything)

    basic = {"PATH", "HOME", "TASKGRAPH_PREFIX", "AZURE_CLIENT_ID", "AZURE_TENANT_ID"}
    assert names(Handed(clean=True)) == basic
    named = Handed(frozenset({"GITHUB_TOKEN", "AZURE_STORAGE_KEY"}), clean=True)
    assert names(named) == basic | {"GITHUB_TOKEN", "AZURE_STORAGE_KEY"}
    signed = names(Handed(store=True, clean=True))
    assert basic | {"AZURE_CLIENT_SECRET", "IDENTITY_ENDPOINT"} <= signed
    assert not {"GITHUB_TOKEN", "HTTPS_PROXY", "AZURE_STORAGE_KEY", "TASKGRAPH_STORE"} & signed
    for each in (named, Handed(named.names)):
        assert names(each, said=False) == basic
        assert names(each, frozenset({b"HTTPS_PROXY", b"AZURE_CLIENT_SECRET"})) == basic | {"HTTPS_PROXY"}
        assert names(each, said=True) == (set(OPEN) | {"AZURE_STORAGE_KEY"}) - {"TASKGRAPH_STORE"}


async def test_a_command_gets_the_clean_environment_and_the_facts_of_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "x")
    show = (sys.executable, "-c", "import os; print(*sorted(os.environ))")
    seen = (await _command(Handed(clean=True), *show)).split()
    assert "GITHUB_TOKEN" not in seen
    assert {"PATH", "TASKGRAPH_GRAPH_ID", "TASKGRAPH_RESULT_FILE", "TASKGRAPH_STORE"} <= set(seen)
