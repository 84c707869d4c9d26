"""Graphs that leave a store as a file, over HTTP, and are put back."""

import gzip
from typing import Final

import pytest

from taskgraph.interfaces.http import asked
from tests.http.serving import Server, shape_errors

DOCUMENT: Final = {"tasks": {"one": {"task": {"payload": {"command": ["echo", "kept"]}}}}}


async def test_a_graph_comes_back_as_it_was(open_to_all: Server) -> None:
    server = open_to_all
    assert (await server.ask("PUT", "/graphs/g", data=DOCUMENT)).status == 201
    assert await server.ended("g") == "finished"
    before = (await server.get("/graphs/g/tasks")).json
    written = await server.get("/graphs/g/archive?logs=1", Accept_Encoding="gzip")
    assert (written.status, written.headers["content-type"]) == (200, "application/gzip")
    assert written.headers["content-disposition"] == 'attachment; filename="g.json.gz"'
    assert len(written.data) == int(written.headers["content-length"])
    assert gzip.decompress(written.data).startswith(b'{"archive":"taskgraph"')
    over = await server.ask("POST", "/archives", data=written.data)
    assert (over.status, over.code) == (409, "exists")
    assert (await server.ask("DELETE", "/graphs/g")).status == 200
    back = await server.ask("POST", "/archives", data=written.data)
    assert (back.status, back.headers["location"]) == (201, "/api/v1/graphs/g"), back.data
    assert shape_errors("restored", back.json) == []
    assert (await server.get("/graphs/g/tasks")).json == before
    assert (await server.get("/graphs/g/tasks/one/runs/0/log")).data == b"kept\n"
    again = await server.ask("POST", "/archives", data=written.data)
    assert (again.status, again.json["already"]) == (200, True)


async def test_what_is_no_whole_archive_is_refused(local: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    far = {"tasks": {"far": {"task": {"target": "gpu", "executor": "noop"}}}}
    assert (await local.ask("PUT", "/graphs/g", data=far)).status == 201
    moving = await local.get("/graphs/g/archive")
    assert (await local.ask("POST", "/archives", data=moving.data)).code == "not-ended"
    assert (await local.ask("POST", "/archives", data=moving.data[:-9])).code == "invalid-input"
    assert (await local.ask("POST", "/archives?signed=1", data=moving.data)).status == 409
    assert (await local.ask("POST", "/archives", data=b"{}", Content_Encoding="gzip")).code == "encoding"
    monkeypatch.setattr(asked, "FILE_BYTES_MAX", 100)
    assert (await local.ask("POST", "/archives", data=moving.data)).status == 413
    assert (await local.get("/graphs/none/archive")).status == 404
