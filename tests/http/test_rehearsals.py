"""Rehearsals over HTTP: of documents and of graphs, within what a server may spend on one request."""

import asyncio
import threading
from typing import Any, Final

import pytest

from taskgraph.interfaces.http import rehearsals
from taskgraph.interfaces.operations.rehearse import Collected
from taskgraph.rehearsal.forecast import Forecast
from tests.http.serving import Server, shape_errors

CHAIN: Final[dict[str, Any]] = {
    "tasks": {
        "a": {"task": {"executor": "sleep", "payload": {"seconds": 600}}},
        "b": {"requires": ["a"], "task": {"executor": "sleep", "payload": {"seconds": 300}}},
    }
}


async def test_a_document_and_a_graph_are_forecast_and_nothing_is_written(local: Server) -> None:
    answer = await local.ask("POST", "/graphs:rehearse?slots=2&runs=1", data=CHAIN)
    assert (answer.status, shape_errors("rehearsal", answer.json)) == (200, [])
    assert 900 <= answer.json["seconds"]["p50"] < 902
    assert [each["label"] for each in answer.json["runs"]] == ["a", "b"]
    assert (await local.get("/graphs")).json["graphs"] == []
    assert (await local.ask("PUT", "/graphs/g", data=CHAIN)).status == 201
    answer = await local.get("/graphs/g/rehearsal?drop=b")
    assert (answer.status, answer.json["graphId"]) == (200, "g")
    assert 550 < answer.json["seconds"]["p50"] < 602
    answer = await local.get("/graphs/g/rehearsal?fail=a&slots=default%2Bgpu%3D3&runs=1")
    assert (answer.json["ends"], answer.json["stays"]) == ({"blocked": 1}, {"unscheduled": 1})
    assert answer.json["slots"] == [{"targets": ["default", "gpu"], "slots": 3}]
    assert [(each["label"], each["outcome"]) for each in answer.json["runs"]] == [("a", "failed")]


async def test_tasks_of_results_are_forecast_as_many_as_there_were_before(local: Server) -> None:
    far = {"target": "far", "executor": "sleep", "payload": {"seconds": 100}}
    tasks = {
        "list": {"task": {"target": "far", "executor": "noop"}},
        "each": {"foreach": {"n": {"$result": "list"}}, "task": far},
        "last": {"requires": ["each"], "task": {"target": "far", "executor": "noop"}},
    }
    document = {"metadata": {"name": "fan"}, "tasks": tasks}
    answer = await local.ask("POST", "/graphs:rehearse?slots=far%3D2", data=document)
    assert (answer.json["taskCount"], answer.json["leftOut"]) == (3, ["each"])
    assert (await local.ask("PUT", "/graphs/first", data=document)).status == 201
    left = ["list", *(f"each {number}" for number in range(6)), "last"]
    async with asyncio.timeout(30):
        while left:
            body = {"worker": "w", "slots": 8, "wait": 2}
            for one in (await local.ask("POST", "/targets/far:claim", data=body)).json["tasks"]:
                left.remove(one["label"])
                done = {"result": [*range(6)]} if one["label"] == "list" else None
                assert (await local.ask("POST", f"/runs/{one['claim']}:complete", data=done)).status == 200
    assert await local.ended("first") == "finished"
    answer = await local.ask("POST", "/graphs:rehearse?slots=far%3D2&runs=1", data=document)
    assert (answer.json["taskCount"], answer.json["leftOut"]) == (9, [])
    assert {"each 0", "each 5", "expand each"} <= {each["label"] for each in answer.json["runs"]}
    assert (await local.ask("PUT", "/graphs/second", data=document)).status == 201
    answer = await local.get("/graphs/second/rehearsal?slots=far%3D2")
    assert (answer.json["taskCount"], answer.json["ends"]) == (9, {"finished": answer.json["seeds"]})


async def test_runs_in_an_answer_are_bounded(local: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsals, "RUNS_SHOWN_MAX", 1)
    answer = await local.ask("POST", "/graphs:rehearse?slots=2&runs=1", data=CHAIN)
    assert ([each["label"] for each in answer.json["runs"]], answer.json["runsLeftOut"]) == (["a"], 1)


async def test_one_is_rehearsed_at_a_time_and_none_whose_sender_has_gone(
    local: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    played, go_on = [], threading.Event()
    forecast = Collected.forecast

    def slow(collected: Collected) -> Forecast:
        played.append(collected.wanted.seeds)
        assert go_on.wait(30)
        return forecast(collected)

    monkeypatch.setattr(Collected, "forecast", slow)
    first = asyncio.ensure_future(local.ask("POST", "/graphs:rehearse?seeds=1", data=CHAIN))
    while not played:
        await asyncio.sleep(0.01)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(local.ask("POST", "/graphs:rehearse?seeds=2", data=CHAIN), 0.5)
    last = asyncio.ensure_future(local.ask("POST", "/graphs:rehearse?seeds=3", data=CHAIN))
    await asyncio.sleep(0.2)
    assert played == [1]
    go_on.set()
    assert [(await each).status for each in (first, last)] == [200, 200]
    assert played == [1, 3]


async def test_what_cannot_be_rehearsed_is_refused(local: Server) -> None:
    assert (await local.ask("POST", "/graphs:rehearse?slots=x", data=CHAIN)).status == 400
    assert (await local.ask("POST", "/graphs:rehearse?slots=a%2Bb%3D1,b%3D2", data=CHAIN)).status == 400
    assert (await local.ask("POST", "/graphs:rehearse?limit=nothing%3D1", data=CHAIN)).status == 400
    assert (await local.ask("POST", "/graphs:rehearse?fail=nothing", data=CHAIN)).status == 400
    many = {"tasks": {f"t{number}": {} for number in range(rehearsals.RUNS_MAX // 100 + 1)}}
    answer = await local.ask("POST", "/graphs:rehearse?seeds=100", data=many)
    assert (answer.status, answer.code) == (413, "too-large")
    assert (await local.ask("PUT", "/graphs/over", data={"tasks": {"a": {"task": {"executor": "noop"}}}})).status == 201
    assert (await local.get("/graphs/missing/rehearsal")).status == 404
