"""What the Functions host reads, as values: host.json, local.settings.json, bindings, schedules."""

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from taskgraph.model.errors import InvalidSettings
from taskgraph_functions_host import environment, local
from taskgraph_functions_host.schedule import Schedule

ACCOUNT = "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=a2V5;EndpointSuffix=core.windows.net"
OTHER = "DefaultEndpointsProtocol=https;AccountName=other;AccountKey=a2V5;EndpointSuffix=core.windows.net"


def written(folder: Path, value: Any, name: str = "host.json") -> Path:
    (folder / name).write_text(json.dumps(value))
    return folder


# --- schedules -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "after", "due"),
    [
        ("*/30 * * * * *", "2026-02-28 23:59:31", "2026-03-01 00:00:00"),
        ("*/30 * * * * *", "2026-02-28 23:59:30", "2026-03-01 00:00:00"),
        ("0 */5 * * * *", "2026-01-01 00:04:59", "2026-01-01 00:05:00"),
        ("15 30 9 * * Mon-Fri", "2026-08-01 00:00:00", "2026-08-03 09:30:15"),
        ("0 0 0 1,15 Jan,7 *", "2026-01-15 00:00:00", "2026-07-01 00:00:00"),
        ("0 0 12 13 * 5", "2026-01-01 00:00:00", "2026-02-13 12:00:00"),  # on a Friday the 13th, and on no other
        ("5 0 * * 0", "2026-08-01 00:00:00", "2026-08-02 00:05:00"),  # five fields: without seconds
        ("00:00:20", "2026-01-01 00:00:01", "2026-01-01 00:00:21"),
        ("1.00:00:00", "2026-01-01 00:00:01", "2026-01-02 00:00:01"),
    ],
)
def test_a_schedule_is_read_as_the_host_reads_it(text: str, after: str, due: str) -> None:
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC)
    assert Schedule(text).after(moment) == datetime.fromisoformat(due).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        *("", "often", "@daily", "* * *", "* * * * * * *", "61 * * * * *", "0 0 0 30 2 *", "00:00:00"),
        *("0 0 0 L * *", "0 0 0 * * 1#2", "0 0 0 * * 7", "*/0 * * * * *", "0 0 0 ? * *", "5-1 * * * * *"),
    ],
)
def test_what_is_no_schedule_of_the_host_is_refused(text: str) -> None:
    with pytest.raises(InvalidSettings, match="schedule"):
        Schedule(text)


def test_what_comes_more_than_once_a_minute_is_not_kept() -> None:
    assert Schedule("*/30 * * * * *").often()
    assert not Schedule("0 * * * * *").often()


# --- host.json -------------------------------------------------------------------------------------------------


def test_without_a_word_the_hosts_own_defaults_hold(tmp_path: Path) -> None:
    read = local.read_host_json(written(tmp_path, {"version": "2.0"}), {})
    assert (read.batch_size, read.new_batch_threshold, read.max_dequeue_count) == (16, 8, 5)
    assert (read.visibility_seconds, read.polling_seconds_max, read.base64) == (0, 2, True)
    assert read.timeout_seconds is None
    assert read.shows("Function.x.User", "Information")
    assert not read.shows("Function.x.User", "Debug")


def test_what_host_json_says_is_taken_and_settings_override_it(tmp_path: Path) -> None:
    queues = {"batchSize": 32, "visibilityTimeout": "00:00:30", "maxPollingInterval": 500, "messageEncoding": "none"}
    levels = {"default": "Warning", "Function": "Information", "Function.loud": "Trace", "Function.mute": "None"}
    whole = {"version": "2.0", "functionTimeout": "00:05:00", "extensions": {"queues": queues}}
    whole["logging"] = {"logLevel": levels}
    setting = {"AzureFunctionsJobHost__extensions__queues__maxDequeueCount": "2"}
    read = local.read_host_json(written(tmp_path, whole), setting)
    assert (read.batch_size, read.new_batch_threshold, read.max_dequeue_count) == (32, 16, 2)
    assert (read.visibility_seconds, read.polling_seconds_max, read.base64) == (30, 0.5, False)
    assert read.timeout_seconds == 300
    assert not read.shows("azure.core", "Information")
    assert read.shows("Function.x.User", "Information")
    assert read.shows("Function.loud.User", "Debug")
    assert not read.shows("Function.mute.User", "Critical")


@pytest.mark.parametrize(
    ("whole", "named"),
    [
        ({}, "version"),
        ({"version": "1.0"}, "version"),
        ([], "no JSON object"),
        ({"version": "2.0", "extensions": []}, None),
        ({"version": "2.0", "extensions": {"queues": [1]}}, "extensions.queues"),
        ({"version": "2.0", "extensions": {"queues": {"batchSize": 33}}}, "batchSize"),
        ({"version": "2.0", "extensions": {"queues": {"batchSize": "many"}}}, "batchSize"),
        ({"version": "2.0", "extensions": {"queues": {"messageEncoding": "rot13"}}}, "messageEncoding"),
        ({"version": "2.0", "extensions": {"queues": {"visibilityTimeout": "soon"}}}, "visibilityTimeout"),
        ({"version": "2.0", "logging": {"logLevel": {"default": "Loud"}}}, "logLevel.default"),
    ],
)
def test_a_wrong_host_json_is_refused_by_the_name_of_its_member(tmp_path: Path, whole: Any, named: str | None) -> None:
    written(tmp_path, whole)
    if named is None:
        assert local.read_host_json(tmp_path, {}).batch_size == 16
        return
    with pytest.raises(InvalidSettings, match=named):
        local.read_host_json(tmp_path, {})


def test_the_shipped_host_json_is_one() -> None:
    read = local.read_host_json(local.packaged_app(), {})
    assert not read.base64


# --- settings --------------------------------------------------------------------------------------------------


def settings(app: Path, store: str | None = None, **environ: str) -> local.Settings:
    return local.app_settings(store, environ, app, None, cwd=app)


@pytest.mark.parametrize("how", ["option", "variable", "host"])
def test_the_store_reaches_the_app_as_the_hosts_own_setting(tmp_path: Path, how: str) -> None:
    environ = {"variable": {"TASKGRAPH_STORE": ACCOUNT}, "host": {"AzureWebJobsStorage": ACCOUNT}}.get(how, {})
    made = settings(tmp_path, ACCOUNT if how == "option" else None, **environ)
    assert made.environ["AzureWebJobsStorage"] == ACCOUNT
    assert "TASKGRAPH_STORE" not in made.environ
    assert made.store.connection_string == ACCOUNT
    assert "a2V5" not in repr(made)


def test_what_was_said_of_another_store_is_gone(tmp_path: Path) -> None:
    had = {"AzureWebJobsStorage__queueServiceUri": "https://other.queue.core.windows.net", "AzureWebJobsStorage": OTHER}
    made = settings(tmp_path, "https://acc.table.core.windows.net", AZURE_CLIENT_ID="me", **had)
    storage = {name: value for name, value in made.environ.items() if name.startswith("AzureWebJobsStorage")}
    assert storage == {
        "AzureWebJobsStorage__tableServiceUri": "https://acc.table.core.windows.net",
        "AzureWebJobsStorage__queueServiceUri": "https://acc.queue.core.windows.net",
        "AzureWebJobsStorage__blobServiceUri": "https://acc.blob.core.windows.net",
        "AzureWebJobsStorage__clientId": "me",
    }


def test_the_graphs_connection_is_told_by_its_name_too(tmp_path: Path) -> None:
    made = settings(tmp_path, ACCOUNT, TASKGRAPH_CONNECTION="Graphs")
    assert made.environ["Graphs"] == made.environ["AzureWebJobsStorage"] == ACCOUNT
    alone = settings(tmp_path, TASKGRAPH_CONNECTION="Graphs", Graphs=ACCOUNT)
    assert alone.environ["AzureWebJobsStorage"] == ACCOUNT


def test_values_of_the_file_are_settings_and_the_environment_wins(tmp_path: Path) -> None:
    values = {"AzureWebJobsStorage": OTHER, "A": "file", "B": "file", "TASKGRAPH_STORE": "sqlite:///x.db"}
    written(tmp_path, {"IsEncrypted": False, "Values": values}, "local.settings.json")
    endpoints = {
        "AzureWebJobsStorage__queueServiceUri": "https://acc.queue.core.windows.net",
        "AzureWebJobsStorage__tableServiceUri": "https://acc.table.core.windows.net",
    }
    with pytest.raises(InvalidSettings, match="taskgraph serve"):
        settings(tmp_path)
    made = settings(tmp_path, TASKGRAPH_STORE="", A="environment", **endpoints)
    assert (made.environ["A"], made.environ["B"]) == ("environment", "file")
    assert "AzureWebJobsStorage" not in made.environ, "half of one connection and half of another would be nobody's"
    assert made.store.table_endpoint == "https://acc.table.core.windows.net"


@pytest.mark.parametrize(
    ("whole", "named"),
    [({"IsEncrypted": True, "Values": {}}, "encrypted"), ({"Values": {"A": 1}}, "Values.A"), ([], "no JSON object")],
)
def test_a_wrong_settings_file_is_refused(tmp_path: Path, whole: Any, named: str) -> None:
    written(tmp_path, whole, "local.settings.json")
    with pytest.raises(InvalidSettings, match=named):
        settings(tmp_path, ACCOUNT)


def test_a_settings_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="cannot be read"):
        local.app_settings(ACCOUNT, {}, tmp_path, tmp_path / "mine.json", cwd=tmp_path)


# --- bindings --------------------------------------------------------------------------------------------------


def function(*bindings: dict[str, Any], **environ: str) -> local.Function:
    (made,) = local.functions_of([{"name": "f", "id": "1", "bindings": bindings}], environ, local.HostJson())
    return made


QUEUE = {"type": "queueTrigger", "name": "m", "queueName": "%P%-q", "connection": "%C%"}


def test_settings_are_filled_into_bindings() -> None:
    made = function(QUEUE, P="graphs", C="Store")
    assert (made.queue, made.connection, made.poison_queue, made.refused) == (
        "graphs-q",
        "Store",
        "graphs-q-poison",
        "",
    )
    with pytest.raises(InvalidSettings, match="function f: %C% names a setting that there is not"):
        function(QUEUE, P="graphs")


def test_a_function_can_be_switched_off_by_its_setting() -> None:
    for setting in ("AzureWebJobs.f.Disabled", "AzureWebJobs_f_Disabled"):
        assert "disabled" in function(QUEUE, P="p", C="c", **{setting: "true"}).refused
        assert function(QUEUE, P="p", C="c", **{setting: "false"}).refused == ""


def test_what_is_not_filled_here_is_said() -> None:
    output = {"type": "queue", "direction": "OUT", "name": "o"}
    assert "further bindings (queue)" in function(QUEUE, output, P="p", C="c").refused
    assert "blobTrigger" in function({"type": "blobTrigger", "name": "b"}).refused


def test_an_http_trigger_takes_the_requests_of_its_route() -> None:
    trigger = {"type": "httpTrigger", "name": "r", "methods": ["GET", "put"], "authLevel": "ANONYMOUS"}
    returned = {"type": "http", "direction": "OUT", "name": "$return"}

    def made(route: str | None, prefix: str = "api", *more: dict[str, Any], http: bool = True) -> local.Function:
        found = {"name": "f", "id": "1", "bindings": [{**trigger, "route": route}, returned, *more]}
        (one,) = local.functions_of([found], {}, local.HostJson(route_prefix=prefix), http=http)
        return one

    for route, prefix, path, wanted in (
        ("status", "api", "/api/status", True),
        ("status", "api", "/api/status/more", False),
        ("status", "", "/status", True),
        (None, "api", "/api/f", True),
        ("/{*route}", "", "/api/v1/graphs", True),
        ("v1/{*rest}", "api", "/api/v1/graphs", True),
        ("v1/{*rest}", "api", "/api/v2/graphs", False),
    ):
        one = made(route, prefix)
        assert (one.refused, one.level, one.takes("GET", path)) == ("", "anonymous", wanted), route
        assert (one.takes("PUT", path), one.takes("POST", path)) == (wanted, False)
    assert "parameters" in made("graphs/{id}").refused
    assert "--http PORT" in made("status", http=False).refused
    assert "further bindings (queue)" in made("status", "api", {"type": "queue", "direction": "OUT"}).refused
    with pytest.raises(InvalidSettings, match="routePrefix"):
        made("/{*route}")


def test_names_that_leave_no_room_have_no_poison_queue() -> None:
    assert function({**QUEUE, "queueName": "q" * 56}, C="c").poison_queue == "q" * 56 + "-poison"
    assert function({**QUEUE, "queueName": "q" * 57}, C="c").poison_queue == ""


# --- the environment of the worker library ---------------------------------------------------------------------


def test_what_is_installed_fits_the_python() -> None:
    assert "azure-functions>=1.24,<2" in environment.requirements((3, 12))
    assert "azure-functions>=2.1,<3" in environment.requirements((3, 13))


def test_the_environment_is_where_somebody_says(tmp_path: Path) -> None:
    assert environment.default_folder({environment.DEFAULT_VARIABLE: "/there"}) == Path("/there")
    assert environment.default_folder({}).name == ".venv-functions"
    assert not environment.is_ready(tmp_path)


def test_without_pip_it_says_what_to_do(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(environment.EnvironmentMissing, match="python3-venv"):
        environment.make(tmp_path / "env", said.append, python="/nowhere/python")
    assert said == [f"installing Microsoft's Functions worker library into {tmp_path / 'env'} (once; a minute)"]


@pytest.mark.campaign
def test_without_an_index_it_says_where_packages_come_from(
    worker_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "env"
    shutil.copytree(worker_library, folder, symlinks=True, copy_function=os.link)
    for old in (*folder.glob(".taskgraph-*"), *folder.glob("lib/*/site-packages/protobuf-*")):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    for name, value in {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_RETRIES": "0",
        "PIP_CACHE_DIR": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(environment.EnvironmentMissing, match=r"PIP_INDEX_URL(?s:.*)protobuf"):
        environment.make(folder, lambda text: None)
    assert not environment.is_ready(folder)
    assert environment.main([]) == 2
