"""Secrets of a worker stay with it: what its commands get, and what a whole run leaves behind."""

import gzip
import http.server
import json
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import command, started, taskgraph, until, write_graph


@pytest.mark.azurite
def test_a_task_extends_its_graph_on_azure_where_its_worker_hands_the_store_on(azurite: str, tmp_path: Path) -> None:
    assert "AccountKey=" in azurite
    more: dict[str, Any] = {"TASKGRAPH_PREFIX": f"t{abs(hash(str(tmp_path))) % 10**9}"}
    write_graph(tmp_path / "more.json", {"late": command("echo", "late", requires=("first",))})
    extend = command(sys.executable, "-m", "taskgraph", "extend", "g", "more.json")
    file = str(write_graph(tmp_path / "g.json", {"first": extend}))
    refused = taskgraph("run", file, "--id", "g", store=azurite, cwd=tmp_path, **more)
    assert refused.returncode == 1, refused.stderr
    said = taskgraph("logs", "g", "first", store=azurite, cwd=tmp_path, **more).stdout
    assert "start the worker with --with-store (or TASKGRAPH_WITH_STORE=on)" in said
    assert "AccountKey" not in said
    with started("serve", "--worker", "1", "--with-store", store=azurite, cwd=tmp_path, **more):
        assert taskgraph("rerun", "g", "first", store=azurite, cwd=tmp_path, **more).returncode == 0
        ended = taskgraph("watch", "g", store=azurite, cwd=tmp_path, **more)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(taskgraph("status", "g", "--json", store=azurite, cwd=tmp_path, **more).stdout)["taskCount"] == 2


def planted() -> dict[str, str]:
    """Settings that take a secret, each with one of its own."""
    names = (
        "TASKGRAPH_WEBHOOK_SECRET",
        "TASKGRAPH_WEBHOOK_SECRET_CI",
        "AZURE_CLIENT_SECRET",
        "AZURE_CLIENT_CERTIFICATE_PASSWORD",
        "AZURE_PASSWORD",
        "AZURE_STORAGE_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_CONNECTION_STRING",
        "AzureWebJobsDashboard",
        "AzureWebJobsOther",
        "IDENTITY_HEADER",
        "MSI_SECRET",
        "APPINSIGHTS_INSTRUMENTATIONKEY",
        "WEBSITE_CONTENTAZUREFILECONNECTIONSTRING",
        "WEBSITE_AUTH_ENCRYPTION_KEY",
        "SQLAZURECONNSTR_MAIN",
        "OTEL_EXPORTER_OTLP_HEADERS",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        "MY_STORE",
        "MY_SIGNED_ADDRESS",
        "TASKGRAPH_SECRET_DEPLOY_TOKEN",
    )
    made = {name: f"planted{number:02d}secretQ" for number, name in enumerate(names)}
    made["OTEL_EXPORTER_OTLP_HEADERS"] = f"api-key={made['OTEL_EXPORTER_OTLP_HEADERS']}"
    made["OTEL_EXPORTER_OTLP_TRACES_HEADERS"] = f"api-key={made['OTEL_EXPORTER_OTLP_TRACES_HEADERS']}"
    made["MY_STORE"] = f"AccountName=other;AccountKey={made['MY_STORE']}"
    made["MY_SIGNED_ADDRESS"] = f"https://a.blob.core.windows.net/c?sv=2024&sig={made['MY_SIGNED_ADDRESS']}"
    return made


class Collector:
    """Takes whatever is POSTed, traces, metrics and webhooks, and keeps the bodies as they come."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[bytes]] = {}
        bodies = self.bodies

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                bodies.setdefault(self.path, []).append(body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.server.shutdown()
    made.server.server_close()


CALLABLES = """
import os
import subprocess

def child():
    print(subprocess.run(["env"], capture_output=True, text=True, check=True).stdout)
    with open("child-env.txt", "w") as file:
        file.write(subprocess.run(["env"], capture_output=True, text=True, check=True).stdout)

def breaks():
    secret = os.environ.get("AZURE_CLIENT_SECRET", "none")
    raise RuntimeError(f"it breaks with {secret}")
"""


ASKED = {"TOKEN": {"$secret": "deploy-token"}, "FILED": {"$secret": "filed"}}
ASKS = """
import json, os, sys, time
token, filed = os.environ["TOKEN"], os.environ["FILED"]
assert len(token) == len(filed) == 16, "the secrets did not come whole"
assert not [name for name in os.environ if "SECRET" in name]
for letter in token:
    print(letter, end="", flush=True)
    time.sleep(0.01)
print("", filed, file=sys.stderr)
json.dump({"seen": [token, filed]}, open(os.environ["TASKGRAPH_RESULT_FILE"], "w"))
"""


@pytest.mark.parametrize(
    "kind", ["embedded", pytest.param("azurite", marks=[pytest.mark.azurite, pytest.mark.campaign])]
)
def test_nothing_that_a_run_leaves_holds_a_secret_of_its_processes(
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    collector: Collector,
    capsys: pytest.CaptureFixture[str],
) -> None:
    secrets = planted()
    tokens = {name: found[0] for name, value in secrets.items() if (found := re.findall(r"planted\d\dsecretQ", value))}
    store = f"sqlite:///{tmp_path}/s.db"
    more: dict[str, Any] = {
        "TASKGRAPH_WEBHOOK_HOSTS": "127.0.0.1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "TASKGRAPH_NOTIFY": "queue,webhook,command",
        "BUILD_SETTING": "not-a-secret",
    }
    if kind == "azurite":
        store = request.getfixturevalue("azurite")
        more["TASKGRAPH_PREFIX"] = f"t{abs(hash(str(tmp_path))) % 10**9}"
        tokens["TASKGRAPH_STORE"] = re.findall(r"AccountKey=([^;]+)", store)[0]
    folder = tmp_path_factory.mktemp("secrets")
    tokens["filed"] = "planted99secretQ"
    (folder / "filed").write_text(tokens["filed"] + "\n")
    (folder / "filed").chmod(0o600)
    more["TASKGRAPH_SECRETS"] = str(tmp_path_factory.mktemp("nothing"))  # the option goes before it
    (tmp_path / "calls.py").write_text(CALLABLES)
    hook = {"webhook": f"{collector.address}/hook", "secret": "ci"}
    tasks: dict[str, Any] = {
        "prints its environment": command("env"),
        "looks above": command("sh", "-c", "tr '\\0' '\\n' < /proc/self/environ; env > left.txt"),
        "extends": command(sys.executable, "-m", "taskgraph", "-v", "extend", "g", "g.json"),
        "fails": command("sh", "-c", "env >&2; exit 3"),
        "asks for one": {"task": {"payload": {"command": ["python3", "-c", ASKS], "env": ASKED, "inheritEnv": False}}},
        "misses one": {"task": {"payload": {"command": ["env"], "env": {"T": {"$secret": "not-there"}}}}},
        "has a child": {"task": {"payload": {"call": "child"}}},
        "breaks": {"task": {"payload": {"call": "breaks"}}},
    }
    document = {
        "failurePolicy": "continue",
        "notify": {
            "onFinished": [
                hook,
                {"webhook": f"{collector.address}/plain"},
                {"command": ["sh", "-c", "env > notice.txt"]},
            ]
        },
        "tasks": tasks,
    }
    (tmp_path / "g.json").write_text(json.dumps(document))
    said: list[str] = []

    def ask(*words: str) -> str:
        done = taskgraph(*words, "--verbose", store=store, cwd=tmp_path, **more, **secrets)
        said.append(done.stdout + done.stderr)
        return str(done.stdout)

    takes = ("--python", "calls", "--slots", "2", "--secrets", str(folder))
    with (
        started("serve", "-v", store=store, cwd=tmp_path, **more, **secrets),
        started("worker", "-v", *takes, store=store, cwd=tmp_path, **more, **secrets),
    ):
        ask("submit", "g.json", "--id", "g")
        until(lambda: "finished" in ask("status", "g", "--json"), seconds=120, what="the end of the graph")
        until(lambda: (tmp_path / "notice.txt").exists(), seconds=120, what="the notice by a command")
        until(lambda: "/hook" in collector.bodies and "/plain" in collector.bodies, seconds=60, what="the webhooks")
    for words in (("rows", "g"), ("events", "g", "--json"), ("notices", "g"), ("doctor",), ("workers",), ("list",)):
        ask(*words)
    for label in tasks:
        ask("logs", "g", label)
        ask("task", "g", label, "--json")
    ask("archive", "g", "--logs", "-o", "g.gz")
    logged = taskgraph("logs", "g", "asks for one", store=store, cwd=tmp_path, **more).stdout
    assert logged.count("***") == 2, logged
    environment = taskgraph("logs", "g", "prints its environment", store=store, cwd=tmp_path, **more).stdout
    assert ("BUILD_SETTING=" in environment) == (kind == "embedded")  # on a shared store it is clean
    assert '"seen":["***","***"]' in ask("results", "g").replace(" ", "").replace("\n", "")
    assert "set TASKGRAPH_SECRET_NOT_THERE at its start" in ask("why", "g", "misses one")
    places = {
        "what commands say": "\n".join(said).encode(),
        "the archive, unpacked": gzip.decompress((tmp_path / "g.gz").read_bytes()),
        **{f"sent to {path}": b"\n".join(bodies) for path, bodies in collector.bodies.items()},
        **{f"file {path.relative_to(tmp_path)}": path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()},
    }
    assert {"sent to /v1/traces", "sent to /hook", "file left.txt", "file child-env.txt", "file notice.txt"} <= set(
        places
    )
    assert "TASKGRAPH_GRAPH_ID=g" in places["what commands say"].decode()  # the environments are among it
    found = [
        (name, place) for place, data in places.items() for name, token in tokens.items() if token.encode() in data
    ]
    with capsys.disabled():
        size = sum(map(len, places.values()))
        print(
            f"\n{kind}: {len(tokens)} secrets, {len(places)} places, {size:,} bytes, found {len(found)}: {found[:20]}"
        )
    assert len(tokens) >= 20
    assert found == []
