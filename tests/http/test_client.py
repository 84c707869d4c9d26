"""What a client over HTTP does beside the suite of clients (tests/unit/test_client.py): answers as over the store."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from taskgraph import InvalidGraph, NotFound, Refused
from taskgraph.interfaces.loops import serve
from taskgraph.interfaces.operations import doctor, requests
from taskgraph.model.flag import Flag
from tests.http.behind import BehindServer, behind_server

GRAPH: Final[dict[str, Any]] = {
    "params": {"word": {"default": "hello"}},
    "groups": {"both": {"tasks": ["make", "held"], "maxInFlight": 1}},
    "tasks": {
        "make": {
            "command": ["sh", "-c", 'echo "$0" > out.txt; cat out.txt', {"$param": "word"}],
            "outputs": ["out.txt"],
        },
        "held": {"requires": ["make"], "reruns": 1, "task": {"executor": "noop"}},
    },
}


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BehindServer]:
    monkeypatch.chdir(tmp_path)
    async with behind_server(f"sqlite:///{tmp_path}/store.db", tmp_path) as made:
        yield made


async def test_what_is_submitted_is_the_same_over_both(client: BehindServer) -> None:
    first = await client.submit(GRAPH, "g", params={"word": "bye"})
    assert (str(first.outcome), first.tasks, first.edges) == ("created", 2, 1)
    assert str((await client.direct.submit(GRAPH, "g", params={"word": "bye"})).outcome) == "existing"
    stored = await client.document("g")
    assert stored == await client.direct.document("g")
    assert (stored.same, stored.document.values) == (True, {"word": "bye"})
    again = await client.resubmit("g", "h", params={"word": "again"})
    assert (await client.direct.document(again.graph_id)).document.values == {"word": "again"}
    with pytest.raises(Refused, match="differs in") as refused:
        await client.submit({"tasks": {"other": {}}}, "g")
    assert refused.value.code == "different-content"
    with pytest.raises(InvalidGraph) as wrong:
        await client.submit({"tasks": {"a": {"requires": ["b"]}}})
    assert wrong.value.problems[0].pointer == "/tasks/a/requires/0"


async def test_every_question_has_the_same_answer(client: BehindServer) -> None:
    await client.run(GRAPH | {"tasks": {**GRAPH["tasks"], "fails": {"command": ["false"]}}}, "g", timeout_seconds=30)
    for name in ("status", "tasks", "events", "limits_of", "results", "notices", "files", "document"):
        assert await getattr(client, name)("g") == await getattr(client.direct, name)("g"), name
    for name in ("task", "why", "logs", "result"):
        for label in ("make", "held", "fails"):
            asked = [await _answer(getattr(each, name), "g", label) for each in (client, client.direct)]
            assert asked[0] == asked[1], (name, label)
    lines = [replace(await each.timeline("g"), until=None) for each in (client, client.direct)]
    assert lines[0] == lines[1]
    assert await client.status("g", group="both") == await client.direct.status("g", group="both")
    assert await client.graphs() == await client.direct.graphs()
    assert await client.target_limits() == await client.direct.target_limits()
    async with contextlib.aclosing(client.follow("g", where={"event": "graph-running"})) as events:
        assert (await anext(events)).kind == "graph-running"
    found = [await doctor.examine(each.app, "g", repair=False, progress=print) for each in (client, client.direct)]
    assert found[0] == found[1]
    (kept,) = await client.files("@last", to=Path("copied"))
    assert (kept.file.path, Path("copied/out.txt").read_text("utf-8")) == ("out.txt", "hello\n")


async def _answer(ask: Any, *given: str) -> object:
    try:
        return await ask(*given)
    except NotFound as error:
        return str(error)


async def test_every_change_is_asked_for(client: BehindServer) -> None:
    await client.submit(GRAPH, "g")
    direct = client.direct
    serving = asyncio.create_task(serve(direct.app, stop := Flag()))
    try:
        await client.pause("g", wait=True)
        assert (await direct.status("g")).held
        await client.resume("g", wait=True)
        await client.set_limit("g", 3, group="both", wait=True)
        assert [each.most for each in await direct.limits_of("g")] == [3]
        assert await client.prioritize("g", "normal", wait=True) == ["held", "make"]
        assert await client.prioritize("g", "low", "held", "held", wait=True) == ["held"]
        await client.deactivate("g", "held", wait=True)
        await client.activate("g", "held", wait=True)
        extended = await client.extend("g", {"tasks": {"more": {"requires": ["make"]}}}, request="r")
        assert (await requests.extended(client.app, extended)).state == "done"
        edited = await client.edit("g", {"update": {"more": {"priority": "high"}}})
        assert (await requests.settled(client.app, edited, "edit"))["revision"] == 2
        assert await client.pause_target("gpu", reason="new drivers") is True
        assert await client.pause_target("gpu") is False
        assert await client.limit_target("gpu", 2) is True
        assert [each.most for each in await direct.target_limits()] == [2]
        assert await client.resume_target("gpu") is True
        assert await client.notices("g", retry=True) == []
        with pytest.raises(Refused, match="cannot be rerun") as refused:
            await client.rerun("g", "make")
        assert refused.value.code == "not-ended"
        assert await client.cancel("g", "held", "more") == ["held", "more"]
        assert await client.cancel("g", reason="enough") == []
        assert await client.wait("g", timeout_seconds=20) == "cancelled"
        assert await client.cancel("g") == []
        assert sorted(await client.rerun("g", everything=True)) == ["held", "make", "more"]
    finally:
        stop.set()
        await serving
