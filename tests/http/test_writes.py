"""Documents over HTTP: submitted, checked, planned and added, with all that is wrong at once."""

import asyncio
import gzip
import json
import time
from pathlib import Path
from typing import Any, Final

import pytest

from taskgraph.interfaces.http.asked import BODY_BYTES_MAX, UNPACKED_BYTES_MAX
from tests.http.serving import Server, serving, shape_errors

DOCUMENT: Final[dict[str, Any]] = {"metadata": {"name": "small"}, "tasks": {"one": {"task": {"executor": "noop"}}}}
OTHER: Final = {"tasks": {"two": {"task": {"executor": "noop"}}}}


async def test_the_same_again_is_no_error_and_another_is(open_to_all: Server) -> None:
    first = await open_to_all.ask("PUT", "/graphs/g", data=DOCUMENT)
    assert (first.status, first.json["outcome"], first.headers["location"]) == (201, "created", "/api/v1/graphs/g")
    again = await open_to_all.ask("PUT", "/graphs/g", data=DOCUMENT)
    assert (again.status, again.json["outcome"]) == (200, "existing")
    other = await open_to_all.ask("PUT", "/graphs/g", data=OTHER)
    assert (other.status, other.code) == (409, "different-content")
    assert "one" in other.json["detail"]
    assert await open_to_all.ended("g") == "finished"


async def test_a_repeat_of_a_post_makes_no_second_graph(local: Server) -> None:
    fresh = [(await local.ask("POST", "/graphs", data=DOCUMENT)).json["graphId"] for _ in range(2)]
    assert len(set(fresh)) == 2
    assert all(each.startswith("small-") for each in fresh)
    keyed = [await local.ask("POST", "/graphs", data=DOCUMENT, Idempotency_Key="k-1") for _ in range(2)]
    assert [(each.status, each.json["graphId"]) for each in keyed] == [(201, "k-1"), (200, "k-1")]
    assert (await local.ask("POST", "/graphs", data=DOCUMENT, Idempotency_Key="no id!")).status == 400


async def test_an_idle_connection_outlives_what_clients_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a connection that the server closes loses what is on its way there, and no client sends a POST again
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path, handles=False) as server:
        host, _, port = server.address.rpartition("/")[2].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps(DOCUMENT).encode()
        lines = ("POST /api/v1/graphs:validate HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}", "", "")
        for _ in range(2):
            writer.write("\r\n".join(lines).encode() + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().splitlines()
            assert head[0].startswith("http/1.1 200")
            (length,) = (line.split()[1] for line in head if line.startswith("content-length:"))
            await reader.readexactly(int(length))
            monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: time.monotonic() + 60)
            await asyncio.sleep(0.01)  # timers that are due go off
        writer.close()


async def test_all_that_is_wrong_is_said_with_its_line(local: Server) -> None:
    text = (
        '{\n "tasks": {\n  "a": {"requires": ["b"], "task": {}},\n  "c": {"reruns": -1, "task": {"targt": "x"}}\n }\n}'
    )
    answer = await local.ask("PUT", "/graphs/g", data=text)
    assert (answer.status, answer.code) == (400, "invalid-graph")
    places = {(each["pointer"], each["line"]) for each in answer.json["problems"]}
    assert {("/tasks/a/requires/0", 3), ("/tasks/c/reruns", 4)} <= places
    assert all(each["message"] and each["remedy"] for each in answer.json["problems"])
    assert (await local.get("/graphs/g")).status == 404
    checked = await local.ask("POST", "/graphs:validate", data=text)
    assert (checked.status, checked.json["valid"]) == (200, False)
    assert {(each["pointer"], each["line"]) for each in checked.json["problems"]} == places


async def test_a_document_is_checked_and_planned(local: Server) -> None:
    checked = await local.ask("POST", "/graphs:validate?expanded=1", data=DOCUMENT)
    assert shape_errors("validated", checked.json) == []
    assert checked.json["document"]["tasks"]["one"]["task"]["executor"] == "noop"
    planned = await local.ask("POST", "/graphs:plan", data=DOCUMENT)
    assert shape_errors("plan", planned.json) == []
    extension = {"tasks": {"two": {"requires": ["elsewhere"], "task": {}}}}
    assert (await local.ask("POST", "/graphs:validate?extension=1", data=extension)).json["valid"] is True
    assert (await local.ask("POST", "/graphs:validate", data=extension)).json["valid"] is False


@pytest.mark.parametrize(
    ("media_type", "text"),
    [
        ("application/json", json.dumps(DOCUMENT)),
        ("application/yaml", "tasks:\n  one:\n    task: {executor: noop}\n"),
        ("application/toml; charset=utf-8", '[tasks.one.task]\nexecutor = "noop"\n'),
        ("application/x-www-form-urlencoded", "tasks:\n  one:\n    task: {executor: noop}\n"),
    ],
)
async def test_a_document_is_json_yaml_or_toml(local: Server, media_type: str, text: str) -> None:
    answer = await local.ask("PUT", "/graphs/g", data=text, Content_Type=media_type)
    assert (answer.status, answer.json["taskCount"]) == (201, 1)


async def test_parameters_stand_in_the_query(local: Server) -> None:
    document = {
        "params": {"word": {}, "sizes": {"default": [1]}},
        "tasks": {
            "one": {"task": {"executor": "noop", "payload": {"w": {"$param": "word"}, "s": {"$param": "sizes"}}}}
        },
    }
    answer = await local.ask("PUT", "/graphs/g?param.word=hi&param.sizes:=[2,3]", data=document)
    assert answer.status == 201, answer.data
    assert (await local.get("/graphs/g")).json["params"] == {"word": "hi", "sizes": [2, 3]}
    assert (await local.ask("PUT", "/graphs/h", data=document)).code == "invalid-graph"
    wrong = await local.ask("PUT", "/graphs/h?param.word=1&param.word=2", data=document)
    assert (wrong.status, wrong.json["detail"]) == (400, "param.word is given twice")


async def test_bodies_have_bounds_and_may_be_packed(local: Server) -> None:
    packed = gzip.compress(json.dumps(DOCUMENT).encode())
    put = await local.ask("PUT", "/graphs/g", data=packed, Content_Encoding="gzip", Content_Type="application/json")
    assert put.status == 201
    large = b" " * (BODY_BYTES_MAX + 1)
    assert (await local.ask("PUT", "/graphs/h", data=large)).status == 413
    bomb = gzip.compress(b" " * (UNPACKED_BYTES_MAX + 1))
    assert (await local.ask("PUT", "/graphs/h", data=bomb, Content_Encoding="gzip")).status == 413
    for broken in (b"no gzip", packed[:-9], packed[:12] + b"\xff" * 20):
        assert (await local.ask("PUT", "/graphs/h", data=broken, Content_Encoding="gzip")).code == "not-gzip"
    assert (await local.ask("PUT", "/graphs/h", data=b"{}", Content_Encoding="br")).code == "encoding"
    assert (await local.ask("PUT", "/graphs/h", data=b"{}", Content_Type="text/html")).status == 415


async def test_a_graph_is_extended_and_says_what_became_of_it(open_to_all: Server) -> None:
    far = {"tasks": {"far": {"task": {"target": "gpu", "executor": "noop"}}}}
    await open_to_all.ask("PUT", "/graphs/g", data=far)
    asked = await open_to_all.ask("POST", "/graphs/g/extensions", data=OTHER)
    assert (asked.status, asked.json["state"]) in ((202, "staged"), (202, "accepted"), (200, "done"))
    place = asked.headers["location"].removeprefix("/api/v1")
    async with asyncio.timeout(30):
        while (await open_to_all.get(place)).json["state"] != "done":
            await asyncio.sleep(0.05)
    again = await open_to_all.ask("POST", "/graphs/g/extensions", data=OTHER, Prefer="respond-async, wait=20")
    assert (again.status, again.json["state"]) == (200, "done")
    assert (await open_to_all.get("/graphs/g")).json["taskCount"] == 2
    clash = {"tasks": {"two": {"task": {"executor": "noop", "payload": {"x": 1}}}}}
    refused = await open_to_all.ask("POST", "/graphs/g/extensions?request=c", data=clash, Prefer="wait=20")
    assert (refused.status, refused.code) == (409, "refused")
    shown = (await open_to_all.get("/graphs/g/requests/c")).json
    assert (shown["state"], "two" in shown["reason"]) == ("refused", True)


async def test_what_is_no_route_says_so(local: Server) -> None:
    assert (await local.get("/nothing")).code == "no-route"
    for path, allowed in (("/graphs/g", "DELETE, GET, HEAD, OPTIONS, PUT"), ("/graphs", "GET, HEAD, OPTIONS, POST")):
        options = await local.ask("OPTIONS", path)
        assert (options.status, options.headers["allow"]) == (204, allowed)
        deleted = await local.ask("PATCH", path)
        assert (deleted.status, deleted.code) == (405, "method")
        assert sorted(deleted.headers["allow"].split(", ")) == allowed.split(", ")
    for path in ("/graphs/g:share", "/schedules/s:activate"):
        put = await local.ask("PUT", path, data={"tasks": {}})
        assert (put.status, put.headers["allow"]) == (405, "OPTIONS, POST")
    head = await local.ask("HEAD", "/graphs")
    assert (head.status, head.data) == (200, b"")
    assert head.headers["etag"] == (await local.get("/graphs")).headers["etag"]


async def test_every_wrong_parameter_is_named(local: Server) -> None:
    answer = await local.get("/graphs?limit=0&state=x&foo=1&name=a&name=b&since=yesterday")
    assert (answer.status, answer.code) == (400, "invalid-query")
    assert [each["parameter"] for each in answer.json["problems"]] == ["foo", "limit", "name", "state"]
    for since in ("yesterday", ""):
        assert (await local.get(f"/graphs?since={since}")).status == 400
    assert (await local.get("/graphs/no%20id")).status == 400


async def test_a_deleted_graph_names_its_successor(local: Server) -> None:
    await local.ask("PUT", "/graphs/g", data=DOCUMENT)
    assert await local.ended("g") == "finished"
    deleted = await local.ask("DELETE", "/graphs/g")
    assert shape_errors("deleted", deleted.json) == []
    repeated = await local.ask("DELETE", "/graphs/g")
    assert (repeated.status, deleted.json["already"], repeated.json["already"]) == (200, False, True)
    gone = await local.get("/graphs/g")
    assert (gone.status, gone.json["near"]) == (404, [])
    fresh = await local.ask("PUT", "/graphs/g", data=DOCUMENT)
    assert (fresh.status, fresh.json["graphId"], fresh.headers["location"]) == (201, "g-2", "/api/v1/graphs/g-2")
    assert (await local.get("/graphs/g")).json["near"] == ["g-2"]
    again = await local.ask("DELETE", "/graphs/g")
    assert (again.status, again.json["near"]) == (404, ["g-2"])
    assert (await local.get("/graphs/g-2")).status == 200


async def test_a_large_document_is_read_beside_other_work(local: Server) -> None:
    tasks = {f"task {number}": {"task": {"executor": "noop", "target": "later"}} for number in range(5_000)}
    answer = await local.ask("PUT", "/graphs/g", data={"tasks": tasks})
    assert (answer.status, answer.json["taskCount"]) == (201, 5_000)


async def test_a_graph_is_edited_and_says_what_became_of_it(open_to_all: Server) -> None:
    far = {"tasks": {"far": {"reruns": 1, "task": {"target": "gpu", "executor": "noop"}}}}
    await open_to_all.ask("PUT", "/graphs/g", data=far)
    more = {"update": {"far": {"reruns": 3}}, "reason": "flaky"}
    asked = await open_to_all.ask("POST", "/graphs/g/edits", data=more, Prefer="wait=20")
    assert (asked.status, asked.json["state"], asked.json["unchanged"]) == (200, "done", False)
    assert shape_errors("edited", asked.json) == []
    assert (await open_to_all.get("/graphs/g/tasks/far")).json["rerunsAllowed"] == 3
    place = asked.headers["location"].removeprefix("/api/v1")
    assert (await open_to_all.get(place)).json["revision"] == asked.json["revision"] == 1
    old = {"update": {"far": {"reruns": 4}}, "ifRevision": 0}
    refused = await open_to_all.ask("POST", "/graphs/g/edits?request=late", data=old, Prefer="wait=20")
    assert (refused.status, refused.code) == (409, "refused")
    assert (await open_to_all.ask("POST", "/graphs/g/edits", data={"update": {}})).code == "invalid-graph"
    assert (await open_to_all.ask("POST", "/graphs/none/edits", data=more)).status == 404


async def test_a_graph_of_another_program_becomes_a_document(local: Server) -> None:
    foreign = {"tasks": {"a": {"runtimeSeconds": 1}, "b": {"requires": ["a"]}}}
    for data in (json.dumps(foreign).encode(), gzip.compress(json.dumps(foreign).encode())):
        answer = await local.ask("POST", "/graphs:import?from=neutral", data=data)
        assert (answer.status, shape_errors("imported", answer.json)) == (200, [])
        assert answer.json["document"]["tasks"]["b"]["requires"] == ["a"]
    assert (await local.ask("PUT", "/graphs/g", data=answer.json["document"])).status == 201
    assert (await local.ask("POST", "/graphs:import?from=wfformat", data=foreign)).code == "invalid-graph"
    assert (await local.ask("POST", "/graphs:import?from=other", data=foreign)).code == "invalid-query"
    ninja = "rule r\n  command = run\nbuild a: r\nbuild b: r a\n"
    whole = await local.ask("POST", "/graphs:import?from=ninja", data=ninja.encode())
    assert [*whole.json["document"]["tasks"]] == ["a", "b"]
    one = await local.ask("POST", "/graphs:import?from=ninja&goal=a&commands=1", data=ninja.encode())
    assert one.json["document"]["tasks"]["a"]["task"]["payload"] == {"command": ["sh", "-c", "run"]}
    included = await local.ask("POST", "/graphs:import?from=ninja", data=b"include /etc/passwd\n")
    assert included.code == "invalid-graph"
