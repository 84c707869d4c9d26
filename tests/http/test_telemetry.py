"""Spans and metrics of requests: one for each, whichever API is asked, and no path, query, token or body in them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from taskgraph.engine.telemetry import TRACEPARENT_COLUMN
from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.ids import GRAPH, row_key, task_id_of
from taskgraph.model.roles import Role
from tests.http.serving import Server, serving
from tests.measured import Measured, attributes, text_of, trace_id

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
PARENT: Final = f"00-{TRACE}-b7ad6b7169203331-01"
ONE: Final[dict[str, Any]] = {"tasks": {"one": {"task": {"executor": "noop"}}}}
ELSEWHERE: Final[dict[str, Any]] = {"tasks": {"one": {"task": {"target": "far"}}}}
DURATION: Final = "http.server.request.duration"
HELD: Final = "taskgraph.http.held"


@pytest.fixture
def measured() -> Measured:
    return Measured()


@pytest.fixture
async def server(measured: Measured, place: str, tmp_path: Path) -> AsyncIterator[Server]:
    """Over each store, with telemetry, and the methods of old clients."""
    async with serving(place, tmp_path, old_clients=True, telemetry=measured.telemetry()) as made:
        yield made


async def test_a_submission_goes_on_in_the_trace_of_its_request(server: Server, measured: Measured) -> None:
    answer = await server.ask("PUT", "/graphs/g", data=ONE, traceparent=PARENT)
    assert answer.status == 201
    assert await server.ended("g") == "finished"
    (asked,) = measured.named("PUT /api/v1/graphs/{graph}")
    (submitted,) = measured.named("taskgraph.submit")
    (run,) = measured.named("taskgraph.run")
    assert f"{trace_id(asked):032x}" == TRACE
    assert trace_id(asked) == trace_id(submitted) == trace_id(run)
    assert asked.parent is not None
    assert f"{asked.parent.span_id:016x}" == "b7ad6b7169203331"
    assert submitted.parent is not None
    assert submitted.parent.span_id == asked.get_span_context().span_id
    (row,) = await server.app.tables.get("g", [GRAPH])
    assert row is not None
    assert str(row.columns[TRACEPARENT_COLUMN])[3:35] == TRACE


async def test_each_request_is_one_span_and_one_number(server: Server, measured: Measured) -> None:
    assert (await server.get("/graphs/none?limit=secret-query", traceparent="no trace")).status == 400
    assert (await server.get("/graphs/secret-id", Authorization="Bearer secret-token")).status == 401
    assert (await server.get("/secret-path")).status == 404
    assert (await server.ask("PROPFIND", "/graphs/secret-id")).status == 405
    assert (await server.ask("OPTIONS", "/graphs/secret-id")).status == 204
    for path in ("/v1/ping", "/v1/task-graph/secret-id/info"):
        async with server.session.get(f"{server.address}{path}") as answer:
            await answer.read()
    route = "/api/v1/graphs/{graph}"
    expected = {
        ("GET", route, 400),
        ("GET", route, 401),
        ("GET", "", 404),
        ("_OTHER", route, 405),
        ("OPTIONS", route, 204),
        ("GET", "/v1/ping", 200),
        ("GET", "/v1/task-graph/{taskGraphId}/info", 404),
    }
    spans = [span for span in measured.spans if "http.request.method" in attributes(span)]
    said = [
        (each["http.request.method"], each.get("http.route", ""), each["http.response.status_code"])
        for each in map(attributes, spans)
    ]
    assert sorted(said) == sorted(expected)
    assert {span.name for span in spans} == {f"{method} {route}".strip() for method, route, _ in expected}
    assert all(span.parent is None and "error.type" not in attributes(span) for span in spans)
    points = measured.metrics()[DURATION].data.data_points
    assert {
        (one["http.request.method"], one.get("http.route", ""), one["http.response.status_code"])
        for one in (point.attributes for point in points)
    } == expected
    assert sum(point.count for point in points) == len(expected)
    assert "secret" not in text_of(measured)


async def test_what_fails_is_an_error_of_the_server(measured: Measured, tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path, telemetry=measured.telemetry()) as server:

        async def broken() -> str:
            raise ValueError("secret")

        server.app.queries.last_id = broken  # type: ignore[method-assign]
        assert (await server.get("/health")).status == 500
    (span,) = measured.named("GET /api/v1/health")
    assert attributes(span)["error.type"] == "500"
    assert span.status.status_code.name == "ERROR"
    assert "secret" not in text_of(measured)


async def test_streams_and_polls_are_kinds_of_their_own(server: Server, measured: Measured) -> None:
    await server.ask("PUT", "/graphs/g", data=ELSEWHERE)
    url, route = f"{server.address}/api/v1/graphs/g/events", "GET /api/v1/graphs/{graph}/events"
    async with server.session.get(url, headers={"Accept": "text/event-stream"}) as stream:
        assert await stream.content.readline()
        (span,) = measured.named(route)  # it ends with the head, while the stream goes on
        assert attributes(span)["taskgraph.http.kind"] == "stream"
        assert measured.counts(HELD, "taskgraph.http.kind") == {"stream": 1}
        claim = {"worker": "w", "wait": 1}
        waiting = asyncio.create_task(server.ask("POST", "/targets/none:claim", data=claim))
        async with asyncio.timeout(20):
            while measured.counts(HELD, "taskgraph.http.kind") != {"stream": 1, "poll": 1}:
                await asyncio.sleep(0.01)
        assert (await waiting).json["tasks"] == []
        assert (await server.ask("POST", "/graphs/g/changes?unguarded=1", data={"change": "cancel"})).status == 202
        await stream.read()
    async with asyncio.timeout(20):
        while any(measured.counts(HELD, "taskgraph.http.kind").values()):
            await asyncio.sleep(0.01)
    kinds = measured.counts(DURATION, "http.request.method", "http.route", "taskgraph.http.kind")
    assert kinds["GET", "/api/v1/graphs/{graph}/events", "stream"] == 1
    assert kinds["POST", "/api/v1/targets/{target}:claim", "poll"] == 1
    assert kinds["PUT", "/api/v1/graphs/{graph}", "answer"] == 1
    (poll,) = measured.named("POST /api/v1/targets/{target}:claim")
    assert poll.end_time - poll.start_time >= 1e9


@pytest.mark.parametrize(
    ("end", "body", "outcome"),
    [("complete", {}, "completed"), ("fail", {"exitCode": 3}, "failed"), ("hand-back", {}, "handed-back")],
)
async def test_a_run_elsewhere_has_the_span_of_any_run(
    server: Server, measured: Measured, end: str, body: dict[str, Any], outcome: str
) -> None:
    await server.ask("PUT", "/graphs/g", data=ELSEWHERE, traceparent=PARENT)
    claimed = await server.ask("POST", "/targets/far:claim", data={"worker": "w", "wait": 20})
    (task,) = claimed.json["tasks"]
    for _ in range(2):  # the second is a repeat, and no second run
        assert (await server.ask("POST", f"/runs/{task['claim']}:{end}", data=body)).status == 200
    (run,) = measured.named("taskgraph.run")
    assert f"{trace_id(run):032x}" == TRACE
    said = attributes(run)
    assert (said["taskgraph.graph.id"], said["taskgraph.run"]) == ("g", 0)
    assert (said["taskgraph.task.label"], said["taskgraph.target"]) == ("one", "far")
    assert (said["taskgraph.executor"], said["taskgraph.outcome"]) == ("http", outcome)
    assert said.get("process.exit.code") == body.get("exitCode")
    (row,) = await server.app.tables.get("g", [row_key(said["taskgraph.task.id"])])
    assert row is not None
    if outcome != "handed-back":  # which takes back that it has started
        assert abs(run.start_time / 1e9 - row.columns["started"].timestamp()) < 0.5
    assert run.end_time >= run.start_time
    assert measured.counts("taskgraph.run.duration", "taskgraph.executor", "taskgraph.outcome") == {
        ("http", outcome): 1
    }


async def test_a_run_is_reported_to_another_process_than_has_claimed_it(tmp_path: Path) -> None:
    store, first, second = f"sqlite:///{tmp_path}/store.db", Measured(), Measured()
    async with serving(store, tmp_path, telemetry=first.telemetry()) as server:
        await server.ask("PUT", "/graphs/g", data=ELSEWHERE, traceparent=PARENT)
        claimed = await server.ask("POST", "/targets/far:claim", data={"worker": "w", "wait": 20})
    async with serving(store, tmp_path, telemetry=second.telemetry()) as server:
        (row,) = await server.app.tables.get("g", [row_key(task_id_of("g", "one"))])
        await server.ask("POST", f"/runs/{claimed.json['tasks'][0]['claim']}:complete", data={})
    assert first.named("taskgraph.run") == []
    (run,) = second.named("taskgraph.run")
    assert f"{trace_id(run):032x}" == TRACE
    assert row is not None
    assert abs(run.start_time / 1e9 - row.columns["started"].timestamp()) < 0.5


async def test_a_client_sends_the_trace_that_it_belongs_to(measured: Measured, tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path, telemetry=measured.telemetry()) as server:
        await server.ask("PUT", "/graphs/g", data=ONE)
        settings = read_settings(f"{server.address}/api", {}, cwd=tmp_path)
        async with open_app(settings, telemetry=Measured().telemetry(parent=PARENT)) as client:
            await client.queries.status("g")
    asked = [span for span in measured.spans if span.parent and f"{span.parent.span_id:016x}" == PARENT[36:52]]
    assert asked
    assert {f"{trace_id(span):032x}" for span in asked} == {TRACE}
    assert all(span.name.startswith("GET /api/v1/") for span in asked)


async def test_metrics_are_read_as_prometheus_reads_them(measured: Measured, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    async with serving(store, tmp_path, anonymous=False, telemetry=measured.telemetry()) as server:
        reader = server.tokens[Role.READER]
        assert (await server.ask("PUT", "/graphs/secret", data=ONE, token=server.tokens[Role.SUBMITTER])).status == 201
        assert await server.ended("secret") == "finished"
        assert (await server.get("/metrics")).status == 401
        found = await server.ask("GET", "/metrics", token=reader)
        assert found.status == 200
        assert found.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        lines = found.data.decode().splitlines()
    wanted = {"http_request_method": "PUT", "http_route": "/api/v1/graphs/{graph}", "http_response_status_code": "201"}
    labels = [f'{name}="{value}"' for name, value in wanted.items()]
    counted = [each for each in lines if all(label in each for label in labels)]
    assert any(
        each.startswith("http_server_request_duration_seconds_count") and each.endswith(" 1.0") for each in counted
    )
    assert any(each.startswith("taskgraph_commits_total{") and "committed" in each for each in lines)
    assert any(each.startswith("taskgraph_tasks_total{") and each.endswith(" 1.0") for each in lines)
    assert "secret" not in found.data.decode()


async def test_without_telemetry_there_are_no_metrics_and_nothing_in_front_of_the_routes(local: Server) -> None:
    answer = await local.get("/metrics")
    assert (answer.status, answer.code) == (404, "no-metrics")
    assert "OTEL_METRICS_EXPORTER=prometheus" in answer.json["detail"]
