"""Requests as tasks: answers at once, later, and those that are failures of one kind or the other, by a real server."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from taskgraph.documents.read import read_document
from taskgraph.model.errors import InvalidGraph
from taskgraph.model.secrecy import Handed
from taskgraph.worker.executors import Outcome, Work, built_in
from tests.unit.test_executors import ManualClock


class Service:
    """Answers what it is given, one after the other; the last again and again. asked: (method, path, headers, body)."""

    def __init__(self) -> None:
        self.answers: list[Callable[[], web.Response]] = []
        self.asked: list[tuple[str, str, dict[str, str], str]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append((request.method, request.path, dict(request.headers), await request.text()))
        return (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])()

    def answers_with(self, *answers: tuple[int, str, dict[str, str]]) -> None:
        self.answers = [
            lambda status=status, text=text, headers=headers: web.Response(status=status, text=text, headers=headers)
            for status, text, headers in answers
        ]


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    made, application = Service(), web.Application()
    application.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


JSON = {"Content-Type": "application/json"}


async def run(payload: dict[str, Any], clock: ManualClock | None = None, **secrets: str) -> tuple[Outcome, str]:
    log: list[bytes] = []

    async def write(data: bytes) -> None:
        log.append(data)

    definition = {"executor": "http", "payload": payload}
    executors = built_in(clock or ManualClock(), handed=Handed(secrets=secrets))
    assert executors.why_not(definition) is None
    outcome = await executors.choose(definition).run(Work("g", "t", 2, "a", "c1", definition), write)
    return outcome, b"".join(log).decode()


def test_it_is_made_when_a_task_asks_for_it() -> None:
    assert built_in(ManualClock()).why_not({"executor": "http", "payload": {}}) is None


async def test_an_answer_is_the_result(service: Service) -> None:
    service.answers_with((200, '{"n": 7}', JSON))
    outcome, log = await run({"url": f"{service.url}/render", "body": {"scene": 1}, "headers": {"X-One": "1"}})
    assert outcome == Outcome(failed=False, result=b'{"n": 7}')
    ((method, path, headers, body),) = service.asked
    assert (method, path, json.loads(body)) == ("POST", "/render", {"scene": 1})
    assert headers["Taskgraph-Claim"] == "g.t.2.c1"
    assert headers["Idempotency-Key"] == "g.t.2"
    assert (headers["X-One"], headers["Content-Type"]) == ("1", "application/json")
    assert log == f'POST {service.url}/render: 200 OK\n{{"n": 7}}\n'


async def test_what_is_no_json_is_logged_alone(service: Service) -> None:
    service.answers_with((200, "done", {}))
    outcome, log = await run({"url": service.url, "method": "GET"})
    assert outcome == Outcome(failed=False)
    assert log.endswith("done\n")


async def test_a_service_at_work_is_asked_until_it_is_done(service: Service) -> None:
    service.answers_with(
        (202, "", {"Location": "/status/1", "Retry-After": "7"}),
        (202, "", {}),
        (503, "", {}),
        (202, "", {"Location": "/status/2"}),
        (200, "[1]", JSON),
    )
    clock = ManualClock()
    outcome, _ = await run({"url": f"{service.url}/start"}, clock)
    assert outcome == Outcome(failed=False, result=b"[1]")
    assert [(method, path) for method, path, _, _ in service.asked] == [
        ("POST", "/start"),
        ("GET", "/status/1"),
        ("GET", "/status/1"),
        ("GET", "/status/1"),
        ("GET", "/status/2"),
    ]
    assert clock.slept == [7.0, 2.0, 4.0, 8.0]


async def test_a_service_that_is_lost_is_a_temporary_failure(service: Service) -> None:
    service.answers_with((202, "", {"Location": "/status"}), (502, "", {}))
    outcome, _ = await run({"url": service.url})
    assert outcome.temporary
    assert len(service.asked) == 11


@pytest.mark.parametrize(
    ("status", "headers", "temporary", "retry_after"),
    [
        (503, {"Retry-After": "5"}, True, 5.0),
        (429, {}, True, None),
        (404, {}, False, None),
        (302, {"Location": "/x"}, False, None),
    ],
)
async def test_other_answers_are_failures(
    service: Service, status: int, headers: dict[str, str], temporary: bool, retry_after: float | None
) -> None:
    service.answers_with((status, "no such scene\nmore", headers))
    outcome, _ = await run({"url": service.url})
    assert (outcome.failed, outcome.temporary, outcome.retry_after) == (True, temporary, retry_after)
    assert outcome.reason.startswith(f"the service answered {status} ")
    assert outcome.reason.endswith(": no such scene")


async def test_nothing_there_is_a_temporary_failure(service: Service) -> None:
    outcome, _ = await run({"url": "http://127.0.0.1:9/"})
    assert outcome.temporary
    assert outcome.reason.startswith("the service cannot be reached: ")


async def test_a_report_that_never_comes_times_out(service: Service) -> None:
    service.answers_with((202, "", {}))
    outcome, log = await run({"url": service.url, "timeout": 0.2})
    assert outcome.reason == "timed out after 0.2 s"
    assert "waits for the report" in log


async def test_secrets_go_into_headers_and_nowhere_else(service: Service) -> None:
    service.answers_with((400, "wrong key: hidden-thing", {}))
    payload = {"url": service.url, "headers": {"Authorization": {"$secret": "key"}}}
    outcome, log = await run(payload, TASKGRAPH_SECRET_KEY="hidden-thing")
    assert service.asked[0][2]["Authorization"] == "hidden-thing"
    assert "hidden" not in log + outcome.reason
    assert "***" in log
    outcome, _ = await run(payload)
    assert outcome.exception


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"url": "ftp://example.com"},
        {"url": "http://x", "method": "TRACE"},
        {"url": "http://x", "headers": []},
        {"url": "http://x", "headers": {"A": "b\r\nC: d"}},
        {"url": "http://x", "timeout": 0},
        {"url": "http://["},
    ],
)
async def test_a_payload_that_is_wrong_is_an_exception(payload: dict[str, Any]) -> None:
    outcome, _ = await run(payload)
    assert outcome.exception


def test_a_secret_in_an_address_is_refused() -> None:
    text = {"tasks": {"a": {"task": {"executor": "http", "payload": {"url": "http://x", "body": {"$secret": "s"}}}}}}
    with pytest.raises(InvalidGraph) as caught:
        read_document(json.dumps(text))
    (problem,) = caught.value.problems
    assert (problem.code, problem.remedy) == (
        "misplaced-secret",
        "Put it into payload.headers: addresses and bodies are kept in many places.",
    )
    text["tasks"]["a"]["task"]["payload"] = {"url": "http://x", "headers": {"A": {"$secret": "s"}}}
    assert read_document(json.dumps(text)).tasks["a"]


def test_an_address_of_another_kind_is_refused_with_the_remedy() -> None:
    with pytest.raises(InvalidGraph) as caught:
        read_document('{"tasks": {"a": {"task": {"executor": "http", "payload": {"url": "ftp://x"}}}}}')
    (problem,) = caught.value.problems
    assert problem.remedy == "An address begins with https:// or http://."
