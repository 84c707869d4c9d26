"""What real processes export and log: a trace over three of them, and never a payload or a key."""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from taskgraph.engine.submission import submit
from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.cli.common import read_graph
from taskgraph.interfaces.settings import read_settings
from taskgraph.interfaces.telemetry.otel import SPANS
from tests.e2e import test_http as http
from tests.e2e.collector import Collector, attributes, collecting
from tests.e2e.processes import command, started, taskgraph, until, write_graph

CANARY = "canary-7c1f"
"""In everything that may hold a secret; with a word behind it that says where."""


@dataclass(frozen=True)
class Store:
    """A store as processes are told of it, and what of that is secret."""

    words: str
    more: dict[str, str]
    secrets: tuple[str, ...] = ()


@pytest.fixture(params=["embedded", *(pytest.param(name, marks=pytest.mark.azurite) for name in ("key", "signature"))])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "embedded":
        return Store(f"sqlite:///{tmp_path}/store.db", {})
    connection: str = request.getfixturevalue("azurite")
    parts = dict(part.split("=", 1) for part in connection.split(";") if part)
    more = {"TASKGRAPH_PREFIX": f"t{secrets.token_hex(5)}"}
    key = parts["AccountKey"]
    if request.param == "key":
        return Store(connection, more, (key, quote(key, safe=""), key[:40]))
    signed = signature(parts["AccountName"], key)
    ends = ";".join(f"{name}={parts[name]}" for name in parts if name.endswith("Endpoint"))
    sig = signed.rpartition("sig=")[2]
    return Store(f"{ends};SharedAccessSignature={signed}", more, (sig, sig[:30], key[:40]))


def signature(account: str, key: str) -> str:
    """An account's shared access signature for tables, queues and blobs."""
    said = {"sv": "2020-02-10", "ss": "bqt", "srt": "sco", "sp": "rwdlacup", "se": "2100-01-01T00:00:00Z"}
    order = [account, said["sp"], said["ss"], said["srt"], "", said["se"], "", "", said["sv"], ""]
    made = hmac.new(base64.b64decode(key), "\n".join(order).encode(), hashlib.sha256).digest()
    return urlencode({**said, "sig": base64.b64encode(made).decode()})


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


def exporting(collector: Collector, **more: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **more}


def test_three_processes_export_one_trace_and_their_numbers(collector: Collector, tmp_path: Path):
    store = f"sqlite:///{tmp_path}/store.db"
    echo = {"command": ["sh", "-c", "echo $TRACEPARENT"]}
    graph = {"tasks": {"a": {"task": {"payload": echo}}, "b": {"requires": ["a"], "task": {}}}}
    (tmp_path / "graph.json").write_text(json.dumps(graph))
    environ = exporting(collector, TASKGRAPH_LOG_FORMAT="json", OTEL_RESOURCE_ATTRIBUTES="deployment.environment=test")
    with (
        started("serve", store=store, cwd=tmp_path, OTEL_SERVICE_NAME="handlers", **environ) as serve,
        started("worker", store=store, cwd=tmp_path, OTEL_SERVICE_NAME="workers", **environ) as worker,
    ):
        done = taskgraph("submit", "graph.json", "--id", "g", "--wait", store=store, cwd=tmp_path, **environ)
        assert done.returncode == 0, done.stderr
        for child in (serve, worker):
            child.terminate()
            assert child.wait(timeout=20) == 0
    (root,) = collector.named("taskgraph.submit")
    assert {span.trace_id for _, span in collector.spans} == {root.trace_id}
    services = {
        name: {span.name for service, span in collector.spans if service == name} for name, _ in collector.spans
    }
    assert set(services) == {"taskgraph", "handlers", "workers"}
    assert "taskgraph.handle" in services["handlers"]
    assert "taskgraph.run" in services["workers"]
    runs = {attributes(span)["taskgraph.task.label"]: span for span in collector.named("taskgraph.run")}
    assert set(runs) == {"a", "b"}
    said = taskgraph("logs", "g", "a", store=store, cwd=tmp_path)
    assert said.stdout.strip() == f"00-{root.trace_id.hex()}-{runs['a'].span_id.hex()}-{said.stdout.strip()[-2:]}"
    names = {metric.name for _, metric in collector.metrics}
    assert {"taskgraph.commits", "taskgraph.storage.operations", "taskgraph.messages", "taskgraph.tasks"} <= names
    total = sum(
        point.count
        for _, metric in collector.metrics
        if metric.name == "taskgraph.run.duration"
        for point in metric.histogram.data_points
    )
    assert total == 2
    lines = [json.loads(line) for line in (tmp_path / "worker.log").read_text().splitlines()]
    handled = [line for line in lines if line["logger"] == "taskgraph.handled"]
    assert {line["traceId"] for line in handled} == {root.trace_id.hex()}
    assert {line["type"] for line in handled} == {"run-tasks"}


def test_a_server_has_spans_for_a_collector_and_metrics_for_prometheus(collector: Collector, tmp_path: Path):
    trace = "0af7651916cd43dd8448eb211c80319c"
    document = {"tasks": {"one": {"task": {"payload": {"command": ["echo", CANARY]}}}}}
    environ = exporting(collector, OTEL_METRICS_EXPORTER="prometheus")
    with http.server(tmp_path, "--no-auth", **environ) as address:
        traced = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        with http.asked(address, "PUT", f"/graphs/{CANARY}", body=document, **traced) as answer:
            assert answer.status == 201
        assert http.ask(address, "GET", f"/graphs/{CANARY}?{CANARY}=1")["status"] == 400
        until(lambda: http.ask(address, "GET", f"/graphs/{CANARY}")["state"] == "finished", what="its end")
        with http.asked(address, "GET", "/metrics") as answer:
            numbers = answer.read().decode()
    (asked,) = collector.named("PUT /api/v1/graphs/{graph}")
    (run,) = collector.named("taskgraph.run")
    assert asked.trace_id.hex() == run.trace_id.hex() == trace
    assert "\ntaskgraph_run_duration_seconds_count{" in numbers
    assert 'http_route="/api/v1/graphs/{graph}"' in numbers
    assert "\nprocess_cpu_seconds_total " in numbers
    assert leaks(numbers, ()) == []
    requests = [str(span) for _, span in collector.spans if not span.name.startswith("taskgraph.")]
    assert requests
    assert leaks("".join(requests), ()) == []


def secret_graph(tmp_path: Path) -> Path:
    """A graph with a canary in all that may hold a secret, and with all ways of going wrong."""
    program = ["sh", "-c", f"echo {CANARY}-output; echo {CANARY}-errors >&2; exit ${{CODE:-0}}", f"{CANARY}-argument"]
    result = f'echo \'{{"{CANARY}-result": "{CANARY}-value"}}\' > "$TASKGRAPH_RESULT_FILE"'

    def task(**payload: object) -> dict[str, object]:
        return {"task": {"payload": payload, "metadata": {"note": f"{CANARY}-task-metadata"}}, "reruns": 1}

    broken = {"executor": "python", "payload": {"call": "broken", "arguments": {"word": f"{CANARY}-call"}}}
    tasks = {
        "good": task(command=program, env={f"{CANARY}-NAME".replace("-", "_"): f"{CANARY}-env"}),
        "result": task(command=["sh", "-c", result]),
        "bad-result": task(command=["sh", "-c", f'echo "{CANARY}-no-json" > "$TASKGRAPH_RESULT_FILE"']),
        "fails": task(command=program, env={"CODE": "3", "SECRET": f"{CANARY}-env"}),
        "no-program": task(command=[f"/{CANARY}-program"]),
        "no-folder": task(command=["true"], cwd=f"/{CANARY}-folder"),
        "too-slow": task(command=["sleep", "30", f"{CANARY}-sleep"], timeout=0.1),
        "malformed": {"task": {"executor": "python", "payload": {"call": "broken", "arguments": {f"{CANARY}-key": 1}}}},
        "broken": {"task": broken},
        "long": task(command=["true", f"{CANARY}-long" + "x" * 5_000]),
    }
    path = tmp_path / "secret.json"
    path.write_text(
        json.dumps({"metadata": {"description": f"{CANARY}-metadata"}, "tags": {"t": CANARY}, "tasks": tasks})
    )
    unknown = {"executor": "python", "payload": {"call": f"{CANARY}-callable", "arguments": {}}}
    (tmp_path / "unable.json").write_text(json.dumps({"tasks": {"unable": {"task": unknown}}}))
    (tmp_path / "callables.py").write_text(
        "def broken(word):\n    raise RuntimeError(f'cannot use {word}')\n__all__ = ['broken']\n"
    )
    return path


POISON = [
    CANARY,
    json.dumps(CANARY),
    f'{{"version":1,"type":"{CANARY}","graph":"g"}}',
    f'{{"version":1,"type":"rerun","graph":"{CANARY}!","task":"x","run":0}}',
    f'{{"version":1,"type":"rerun","graph":"g","task":"{CANARY}","run":0}}',
    f'{{"version":1,"type":"rerun","graph":"g","task":"QgD17VkeQMyP5X813MtLNw","run":0,"reason":["{CANARY}"]}}',
    f'{{"version":"{CANARY}","type":"rerun"}}',
    f'{{"traceparent":"{CANARY}","sent":"{CANARY}","version":1,"type":"add-tasks","graph":"g","request":"{CANARY} "}}',
    (
        '{"version":1,"type":"task-completed","graph":"g","tasks":[{"task":"QgD17VkeQMyP5X813MtLNw","run":0,"claim":"c",'
        f'"ended":"{CANARY}","resolution":{{"failed":false}}}}]}}'
    ),
    base64.b64encode(CANARY.encode()).decode(),
    f'{{"{CANARY}":1,"{CANARY}":2}}',
    "{" + f'"{CANARY}":' * 200,
]


LASTING = [
    f'{{"version":99,"type":"rerun","graph":"g","note":"{CANARY}"}}',
    (
        '{"version":1,"type":"task-failed","graph":"gone","tasks":[{"task":"QgD17VkeQMyP5X813MtLNw","run":0,"claim":"c",'
        f'"ended":"2030-01-31T12:00:00Z","resolution":{{"failed":true,"reason":"{CANARY}-reason","{CANARY}":1}}}}]}}'
    ),
]
"""Those that stay on the queue for a while: for a newer version, and to be tried again."""


async def put(store: Store, cwd: Path, events: list[str], work: list[str]) -> None:
    """A graph that nobody can run, and messages that nobody can handle, before anybody looks."""
    async with open_app(read_settings(store.words, store.more, cwd=cwd)) as app:
        document, _ = read_graph(str(cwd / "unable.json"))
        await submit(app.handlers, "u", document)
        await app.queues.send(app.handlers.names.events, events)
        await app.queues.send(app.handlers.names.work("default"), work)


async def put_aside(store: Store, cwd: Path) -> int:
    async with open_app(read_settings(store.words, store.more, cwd=cwd)) as app:
        return len(await app.poison.list())


def leaks(text: str, secret: tuple[str, ...]) -> list[str]:
    """Where something secret stands in a text, with what is around it."""
    found = [CANARY, *secret]
    return [
        f"…{text[max(0, m.start() - 120) : m.end() + 60]}…"
        for each in found
        for m in re.finditer(re.escape(each), text)
    ]


def test_no_secret_and_no_payload_is_in_what_is_logged_and_exported(store: Store, collector: Collector, tmp_path: Path):
    path = secret_graph(tmp_path)
    environ = {**exporting(collector), **store.more, "PYTHONPATH": str(tmp_path)}
    words = {"store": store.words, "cwd": tmp_path}
    work = [
        POISON[0],
        POISON[3],
        f'{{"version":1,"type":"run-tasks","graph":"{CANARY}","target":"default","tasks":[]}}',
    ]
    asyncio.run(put(store, tmp_path, POISON, work))
    both = ("--worker", "1", "--target", "other")
    with (
        started("serve", "-vv", *both, **words, TASKGRAPH_LOG_FORMAT="json", **environ) as serve,
        started("worker", "-vv", "--slots", "4", "--python", "callables", **words, **environ) as worker,
    ):
        ended = taskgraph("submit", "-vv", path.name, "--id", "g", "--wait", **words, **environ, timeout_seconds=90)
        assert ended.returncode == 1, ended.stderr
        until(lambda: "is given back" in (tmp_path / "worker.log").read_text(), what="a task that nobody can run")
        asyncio.run(put(store, tmp_path, LASTING, []))
        aside = len(POISON) + len(work)
        until(lambda: asyncio.run(put_aside(store, tmp_path)) >= aside, what="messages set aside")
        for outcome in ("newer-version", "failed"):
            seen = f'"outcome":"{outcome}"'
            until(lambda seen=seen: seen in (tmp_path / "serve.log").read_text(), what=seen)
        for child in (serve, worker):
            child.terminate()
        for child in (serve, worker):
            assert child.wait(timeout=30) == 0
    logs = {name: (tmp_path / f"{name}.log").read_text() for name in ("serve", "worker")}
    lines = [json.loads(line) for line in logs["serve"].splitlines()]
    assert {line["level"] for line in lines} >= {"debug", "info", "warning"}
    assert {line["outcome"] for line in lines if line["logger"] == "taskgraph.handled"} >= {
        "handled",
        "poison",
        "newer-version",
        "failed",
    }
    assert {span.name for _, span in collector.spans} <= set(SPANS), "of no library, with the addresses that it asks"
    spans = collector.named("taskgraph.run")
    assert {attributes(span)["taskgraph.outcome"] for span in spans} >= {"completed", "failed", "exception"}
    assert {attributes(span)["taskgraph.task.label"] for span in spans} >= {"good", "broken", "no-program", "no-folder"}
    for name, text in logs.items():
        assert leaks(text, store.secrets) == [], name
    told = ended.stderr.replace(CANARY, "")  # who asks what failed is told what it said, and still no key
    assert leaks(told, store.secrets) == []
    assert [leak for body in collector.bodies for leak in leaks(body.decode("utf-8", "replace"), store.secrets)] == []


def test_application_insights_gets_traces_numbers_and_lines_and_no_payload(collector: Collector, tmp_path: Path):
    store = Store(f"sqlite:///{tmp_path}/store.db", {})
    path = secret_graph(tmp_path)
    environ = {
        "APPLICATIONINSIGHTS_CONNECTION_STRING": f"InstrumentationKey=00000000-0000-0000-0000-000000000001;"
        f"IngestionEndpoint={collector.url}/;LiveEndpoint={collector.url}/",
        "APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL": "true",
        "PYTHONPATH": str(tmp_path),
    }
    words = ("run", path.name, "--id", "g", "-v", "--python", "callables")
    ended = taskgraph(*words, store=store.words, cwd=tmp_path, **environ)
    assert ended.returncode == 1, ended.stderr
    by_type: dict[str, list[dict[str, Any]]] = {}
    for item in collector.items:
        by_type.setdefault(item["data"]["baseType"], []).append(item)
    spans = [*by_type["RequestData"], *by_type["RemoteDependencyData"]]
    names = [span["data"]["baseData"]["name"] for span in spans]
    assert set(names) == {"taskgraph.submit", "taskgraph.handle", "taskgraph.commit", "taskgraph.run"}
    runs = [
        span["data"]["baseData"]["properties"] for span in spans if span["data"]["baseData"]["name"].endswith("run")
    ]
    assert {run["taskgraph.task.label"] for run in runs} == set(json.loads(path.read_text())["tasks"]), "all are kept"
    assert len({span["tags"]["ai.operation.id"] for span in spans}) == 1
    assert {span["tags"]["ai.cloud.role"] for span in spans} == {"taskgraph"}
    metrics = {item["data"]["baseData"]["metrics"][0]["name"] for item in by_type["MetricData"]}
    assert {"taskgraph.commits", "taskgraph.tasks", "taskgraph.storage.operations"} <= metrics
    lines = [item["data"]["baseData"] for item in by_type["MessageData"]]
    assert any(line["message"].startswith("handled type=") and line["properties"]["graph"] == "g" for line in lines)
    assert leaks(json.dumps(collector.items), ()) == []


def test_a_collector_that_is_down_is_one_line(tmp_path: Path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    graph = write_graph(tmp_path / "g.json", {"a": command("true")})
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_EXPORTER_OTLP_TIMEOUT": "3"}
    done = taskgraph("run", str(graph), store=f"sqlite:///{tmp_path}/store.db", cwd=tmp_path, **environ)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "opentelemetry" in line or "elemetry is" in line]
    assert len(said) == 1, done.stderr
    assert f"telemetry is not sent: 127.0.0.1:{port}: connection refused (" in said[0]
    assert "urllib3" not in done.stderr


def test_a_store_that_does_not_answer_is_named_without_its_key(collector: Collector, tmp_path: Path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    end = f"http://127.0.0.1:{port}/devstoreaccount1"
    ends = f"TableEndpoint={end};QueueEndpoint={end};BlobEndpoint={end}"
    key = base64.b64encode(f"{CANARY}-account-key".encode()).decode()
    signed = urlencode({"sv": "2020-02-10", "sig": f"{CANARY}-signature"})
    by_key = f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={key};{ends}"
    by_signature = f"{ends};SharedAccessSignature={signed}"
    for words, secret, name, log_format in (
        (by_key, key, "worker", "text"),
        (by_signature, f"{CANARY}-signature", "serve", "json"),
    ):
        environ = exporting(collector, TASKGRAPH_LOG_FORMAT=log_format)
        ended = taskgraph(name, "-vv", store=words, cwd=tmp_path, **environ)
        assert ended.returncode == 5, ended.stderr
        assert str(port) in ended.stderr
        assert leaks(ended.stderr + ended.stdout, (secret,)) == []
    assert [leak for body in collector.bodies for leak in leaks(body.decode("utf-8", "replace"), ())] == []
