"""What is looked at over HTTP is what `--json` prints, whatever the store."""

import asyncio
import secrets
from typing import Any, Final

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.documents.recurrence import Times
from taskgraph.interfaces.http.table import ROUTES
from taskgraph.model.ids import task_id_of
from tests.http.serving import Server, shape_errors

RICH: Final[dict[str, Any]] = {
    "failurePolicy": "continue",
    "maxInFlight": 3,
    "metadata": {"name": "all of it"},
    "tags": {"kind": "test"},
    "params": {"version": {"default": "1.4"}},
    "notify": {"onFailure": {"queue": "failures"}},
    "groups": {"outer": {"tasks": ["b", "c"]}},
    "tasks": {
        "a": {
            "task": {
                "payload": {"script": "for i in 1 2 3 4 5; do echo line $i; done; echo '[1]' > $TASKGRAPH_RESULT_FILE"}
            }
        },
        "b": {"requires": ["a"], "task": {"payload": {"command": ["echo", {"$param": "version"}]}}},
        "c": {"requires": ["a"], "task": {}},
        "bad": {"task": {"payload": {"command": ["false"]}}},
        "far": {"task": {"target": "gpu"}},
        "x/y z": {"task": {"executor": "noop"}},
    },
}
PLACES: Final = {"graph": "g", "group": "outer", "task": "a", "run": "0", "request": "more", "schedule": "nightly"}
PLACES |= {"partition": "g", "file": "run.log", "queue": "events"}
WITHOUT_SHAPE: Final = {"exportGraph", "readRunFile", "openapi", "getOutput", "getLog", "getResult", "archiveGraph"}


async def rich(server: Server, graph_id: str = "g") -> None:
    """A graph that has everything, as far as it goes by itself, an extension of it, and a schedule."""
    assert (await server.ask("PUT", f"/graphs/{graph_id}", data=RICH)).status == 201
    more = {"tasks": {"d": {"requires": ["far"], "task": {}}}}
    asked = await server.ask("POST", f"/graphs/{graph_id}/extensions?request=more", data=more, Prefer="wait=30")
    assert (asked.status, asked.json["state"]) == (200, "done")
    document = document_from_object({"tasks": {"one": {"task": {}}}})
    await server.app.schedules().create("nightly", document, Times(cron="0 2 * * *").over())
    async with asyncio.timeout(30):
        while (counts := (await server.get(f"/graphs/{graph_id}")).json["counts"])["completed"] < 4 or not counts[
            "failed"
        ]:
            await asyncio.sleep(0.05)


async def test_every_answer_has_its_shape(open_to_all: Server) -> None:
    await rich(open_to_all)
    seen = set()
    for route in ROUTES:
        if route.method != "GET" or route.name == "getMetrics":  # which there are with telemetry: test_telemetry.py
            continue
        places = PLACES | ({"task": task_id_of("g", "a")} if route.name == "readRunFile" else {})
        answer = await open_to_all.get(route.path.format(**places))
        assert answer.status == 200, (route.name, answer.data)
        if route.name not in WITHOUT_SHAPE:
            assert shape_errors(route.answer, answer.json) == [], route.name
        seen.add(route.name)
    assert len(seen) > 25


async def test_what_a_task_has_printed_and_handed_on(open_to_all: Server) -> None:
    graph_id = f"g-{secrets.token_hex(6)}"  # logs of all tests lie in one container
    await rich(open_to_all, graph_id)
    log = f"/graphs/{graph_id}/tasks/a/runs/0/log"
    whole = b"".join(b"line %d\n" % number for number in range(1, 6))
    answer = await open_to_all.get(log)
    assert (answer.status, answer.data) == (200, whole)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    for asked, place, data in (
        ("bytes=0-3", "bytes 0-3/35", b"line"),
        ("bytes=30-", "bytes 30-34/35", whole[30:]),
        ("bytes=-7", "bytes 28-34/35", whole[-7:]),
        ("bytes=30-100", "bytes 30-34/35", whole[30:]),
    ):
        part = await open_to_all.get(log, Range=asked)
        assert (part.status, part.headers["content-range"], part.data) == (206, place, data)
    beyond = await open_to_all.get(log, Range="bytes=35-")
    assert (beyond.status, beyond.headers["content-range"]) == (416, "bytes */35")
    assert (await open_to_all.get(f"{log}?tail=2")).data == b"line 4\nline 5\n"
    assert (await open_to_all.get(f"{log}?tail=0")).data == b""
    assert (await open_to_all.get(f"/graphs/{graph_id}/tasks/a/output")).json == [1]
    assert (await open_to_all.get(f"/graphs/{graph_id}/tasks/a/runs/0/result")).json == [1]
    assert (await open_to_all.get(f"/graphs/{graph_id}/tasks/a/runs/1/log")).code == "not-found"
    assert (await open_to_all.get(f"/graphs/{graph_id}/tasks/a/runs/x/log")).code == "not-found"
    assert (await open_to_all.get(f"/graphs/{graph_id}/tasks/far/runs/0/log")).code == "not-found"


async def test_a_task_is_found_by_label_and_by_id(local: Server) -> None:
    await rich(local)
    (one,) = (await local.get("/graphs/g/tasks?label=x%2Fy%20z")).json["tasks"]
    assert one["label"] == "x/y z"
    assert (await local.get(f"/graphs/g/tasks/{one['taskId']}")).json["label"] == "x/y z"
    assert (await local.get("/graphs/g/tasks/a")).json["dependents"] == ["b", "c"]
    assert (await local.get("/graphs/g/tasks/a?edges=1")).json["dependents"] == ["b"]
    none = await local.get("/graphs/g/tasks?label=fra")
    assert (none.status, none.json["near"][0]) == (404, "far")
    why = (await local.get("/graphs/g/tasks/d/why")).json
    assert "gpu" in why["reasons"][-1]["text"]


async def pages(server: Server, path: str, key: str) -> list[Any]:
    """All that a list has, page by page."""
    found: list[Any] = []
    for _ in range(100):
        answer = await server.get(path)
        assert answer.status == 200, answer.data
        found.append(answer.json[key])
        link = answer.headers.get("link", "")
        if not link:
            return found
        assert link.endswith('>; rel="next"')
        path = link[1:].partition(">")[0].removeprefix("/api/v1")
    raise AssertionError("there is no end")


async def test_lists_come_in_pages(open_to_all: Server) -> None:
    server = open_to_all
    await rich(server)
    ids = [f"n-{number}" for number in range(7)]
    for each in ids:
        document = {"metadata": {"name": f"nightly {each}"}, "tags": {"n": each}, "tasks": {"one": {"task": {}}}}
        assert (await server.ask("PUT", f"/graphs/{each}", data=document)).status == 201
    listed = await pages(server, "/graphs?limit=3", "graphs")
    assert [len(each) for each in listed] == [3, 3, 2]
    assert [each["graphId"] for page in listed for each in page] == [*reversed(ids), "g"]
    named = await pages(server, "/graphs?limit=2&name=nightly", "graphs")
    assert [each["graphId"] for page in named for each in page] == [*reversed(ids)]
    tagged = await pages(server, "/graphs?tag=n%3Dn-3", "graphs")
    assert [each["graphId"] for page in tagged for each in page] == ["n-3"]
    labels = [each["label"] for page in await pages(server, "/graphs/g/tasks?limit=2", "tasks") for each in page]
    assert sorted(labels) == ["a", "b", "bad", "c", "d", "far", "x/y z"]
    rows = await pages(server, "/graphs/g/rows?limit=5", "rows")
    keys = [each["RowKey"] for page in rows for each in page]
    assert keys == sorted(set(keys))
    assert keys == [row.key for row in await server.app.queries.partition("g")]
    only = await pages(server, "/graphs/g/rows?prefix=task:&limit=3", "rows")
    assert {each["RowKey"][:5] for page in only for each in page} == {"task:"}
    assert sum(map(len, only)) == 7


@pytest.mark.parametrize("page", ["x", "W10", "WyJhIiwgImluZGV4OmxpdmUiXQ", "é", "a" * 401])
async def test_a_page_of_another_list_is_refused(local: Server, page: str) -> None:
    assert (await local.get(f"/graphs?page={page}")).status == 400


async def test_a_page_goes_with_its_filters(local: Server) -> None:
    for each in ("a", "b", "c"):
        await local.ask("PUT", f"/graphs/{each}", data={"tasks": {"one": {"task": {}}}})
    link = (await local.get("/graphs?limit=1")).headers["link"]
    token = link.partition("page=")[2].partition(">")[0]
    assert (await local.get(f"/graphs?limit=2&page={token}")).status == 200
    assert (await local.get(f"/graphs?name=x&page={token}")).code == "invalid-page"
    assert (await local.get(f"/graphs/a/tasks?page={token}")).code == "invalid-page"


async def test_an_answer_that_is_known_is_not_sent_again(local: Server) -> None:
    first = await local.get("/schedules")
    again = await local.get("/schedules", If_None_Match=first.headers["etag"])
    assert (again.status, again.data, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert (await local.get("/schedules", If_None_Match='"other"')).status == 200


async def test_long_answers_are_packed(local: Server) -> None:
    document = {"tasks": {f"task {number}": {"task": {"executor": "noop"}} for number in range(200)}}
    await local.ask("PUT", "/graphs/g", data=document)
    packed = await local.get("/graphs/g/tasks?limit=200", Accept_Encoding="gzip")
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.json["tasks"]) == 200


async def test_a_filter_shows_its_tasks(local: Server) -> None:
    await rich(local)
    one = (await local.get("/graphs/g/tasks?state=failed")).json
    assert [each["label"] for each in one["tasks"]] == ["bad"]
    grouped = (await local.get("/graphs/g/tasks?group=outer&match=C")).json
    assert [each["label"] for each in grouped["tasks"]] == ["c"]
