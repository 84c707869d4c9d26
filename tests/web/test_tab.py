"""The API in a tab answers what the API of a server answers over the same rows: by a link, and from an archive.

Here it runs in this process; tests/browser/test_page_away.py has a browser run it.
"""

import asyncio
import io
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import pytest

from taskgraph.interfaces.operations import grant
from taskgraph.interfaces.web import carried, tab
from taskgraph.interfaces.web.tab import Tab
from taskgraph.model import schemas
from tests.http.serving import Server, serving
from tests.web.test_rows import FAR, GRAPHS, make

_UNSEEN: Final = (
    r" \(queue [^ ]+ holds about \d+ messages?\)",
    r"; its queue (holds about [\d,]+ messages?|is empty)",
    r"; (no registered worker serves the target far|which workers there are is not seen from here)",
)
"""What is said of queues and workers, which a link to one graph does not show."""

_CHANGES: Final = (
    {"change": "rerun", "failed": True},
    {"change": "cancel"},
    {"change": "pause", "reason": "for a look"},
    {"change": "resume"},
    {"change": "set-limit", "max": 3},
    {"change": "prioritize", "priority": "high"},
    {"change": "prioritize", "priority": "urgent"},
    {"change": "edit", "edit": {"update": {"bad": {"reruns": 2}}}},
    {"change": "edit", "edit": {"format": 1, "tasks": {}}},
    {"change": "extend", "extension": {"tasks": {"more": {"task": {"executor": "noop"}}}}},
    {"change": "extend", "extension": {"tasks": {"more": {"requires": ["nothing"], "tsk": {}}}}},
)


@pytest.fixture(autouse=True)
def same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks is in the plan, and in its digest."""
    monkeypatch.setattr(tab, "BY", "anonymous")


async def exchange(method: str, address: str, body: str) -> Any:
    """As the worker of the page sends it (web/src/python_worker.ts)."""
    headers = {"Accept": "application/json;odata=minimalmetadata"}
    if body:
        headers["Content-Type"] = "application/json"
    async with aiohttp.request(method, _url(address), data=body or None, headers=headers) as answer:
        place = [answer.headers.get(f"x-ms-continuation-{name}", "") for name in ("NextPartitionKey", "NextRowKey")]
        next_place = json.dumps(place) if any(place) else ""
        return SimpleNamespace(status=answer.status, next=next_place, text=await answer.text())


def _url(address: str) -> Any:
    from yarl import URL

    return URL(address, encoded=True)


def _questions(graph_id: str) -> Iterator[tuple[str, str, str]]:
    for what in ("why", "doctor", "results", "limits", "notices", "cost"):
        yield "GET", f"/graphs/{graph_id}/{what}", ""
    for label in [quote(each, safe="") for each in GRAPHS[graph_id]["tasks"]][-3:]:
        yield "GET", f"/graphs/{graph_id}/tasks/{label}/why", ""
    for change in _CHANGES:
        yield "POST", f"/graphs/{graph_id}/changes?dryRun=1", json.dumps(change)
    yield "GET", f"/graphs/{graph_id}/requests/none", ""


async def _agree(server: Server, here: Tab, graph_id: str) -> None:
    for method, path, body in _questions(graph_id):
        there = await server.ask(method, path, data=json.loads(body) if body else None)
        status, text = json.loads(await here.answer(method, path, body))
        assert (status, _seen(text)) == (there.status, _seen(there.data.decode())), (path, body)


def _seen(text: str) -> Any:
    for each in _UNSEEN:
        text = re.sub(each, "", text)
    found = json.loads(text)
    if isinstance(found, dict):
        found.pop("examinedAt", None)
        for name in ("ready", "readyCount"):  # some of many: others for a handler that remembers what it has sent
            found.pop(name, None)
    return found


@pytest.mark.campaign
@pytest.mark.azurite
async def test_answers_by_a_link_are_those_of_a_server(tmp_path: Path, azurite: str) -> None:
    async with serving(azurite, tmp_path) as server:
        await make(server)
        for graph_id in GRAPHS:
            link = await grant.read(server.app, graph_id)
            here = await tab.over_table(exchange, f"{link.endpoint}/{link.table}", link.token, "", "")
            await _agree(server, here, graph_id)
            await here.close()


_MADE: Final = {
    "paused": {"change": "pause", "reason": "for a look"},
    "limited": {"change": "set-limit", "max": 3},
    "preferred": {"change": "prioritize", "priority": "high"},
    "edited": {"change": "edit", "edit": {"update": {"one": {"reruns": 2}}}},
    "extended": {"change": "extend", "extension": {"tasks": {"two": {"requires": ["one"], **FAR}}}},
    "cancelled": {"change": "cancel"},
}
"""Graphs that a handler is to change so."""


@pytest.mark.campaign
@pytest.mark.azurite
async def test_each_kind_of_change_that_a_link_asks_for_is_made_by_the_next_sweep(tmp_path: Path, azurite: str) -> None:
    async with serving(azurite, tmp_path) as server:
        tabs = {}
        for graph_id, change in _MADE.items():
            assert (await server.ask("PUT", f"/graphs/{graph_id}", data={"tasks": {"one": FAR}})).status == 201
            link = await grant.read(server.app, graph_id)
            assert server.app.sign_changes is not None
            add, live = server.app.sign_changes(link.table, graph_id, link.expires, "")
            here = await tab.over_table(exchange, f"{link.endpoint}/{link.table}", link.token, add, live)
            path = f"/graphs/{graph_id}/changes"
            status, said = json.loads(await here.answer("POST", f"{path}?dryRun=1", json.dumps(change)))
            assert status == 200, said
            plan = json.loads(said)
            status, said = json.loads(await here.answer("POST", f"{path}?plan={plan['plan']}", json.dumps(change)))
            assert status == 202, said
            tabs[graph_id] = here, json.loads(said)["request"]
        async with asyncio.timeout(90):
            for graph_id, (here, request) in tabs.items():
                state = "staged"
                while state in ("staged", "accepted"):
                    await asyncio.sleep(0.5)
                    found = json.loads(await here.answer("GET", f"/graphs/{graph_id}/requests/{request}", ""))
                    state = json.loads(found[1])["state"]
                assert state == "done", (graph_id, found)
                await here.close()
        assert (await server.get("/graphs/cancelled")).json["state"] in ("cancelling", "cancelled")
        assert (await server.get("/graphs/extended/tasks/two")).json["state"] == "unscheduled"


async def test_answers_from_an_archive_are_those_of_a_server(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path) as server:
        for graph_id in ("blocked", "continued"):
            assert (await server.ask("PUT", f"/graphs/{graph_id}", data=GRAPHS[graph_id])).status == 201
            await server.ended(graph_id)
            data = (await server.get(f"/graphs/{graph_id}/archive", Accept_Encoding="gzip")).data
            here = await tab.over_archive(data)
            await _agree(server, here, graph_id)
            plan = json.loads(json.loads(await here.answer("POST", f"/graphs/{graph_id}/changes?dryRun=1", _RERUN))[1])
            asked = await here.answer("POST", f"/graphs/{graph_id}/changes?plan={plan['plan']}", _RERUN)
            assert "an archive is not changed" in asked
            status, text = json.loads(await here.answer("GET", "/overview", ""))
            assert (status, json.loads(text)["code"]) == (409, "out-of-sight")
            await here.close()


_ALONE: Final = """
import asyncio, sys
sys.path[:0] = [sys.argv[1]]
from taskgraph.interfaces.web import persistent, tab
from taskgraph.model import schemas
persistent.install()
schemas._IN_A_TAB = True
async def asked():
    here = await tab.over_archive(open(sys.argv[2], "rb").read())
    for method, path, body in (("GET", "why", ""), ("GET", "doctor", ""), ("POST", "changes?dryRun=1", sys.argv[3])):
        print((await here.answer(method, "/graphs/blocked/" + path, body))[:4])
asyncio.run(asked())
outside = [each.__file__ for each in sys.modules.values() if "site-packages" in (getattr(each, "__file__", "") or "")]
assert outside == [], outside
"""


async def test_what_is_carried_into_a_tab_is_all_that_it_takes(tmp_path: Path) -> None:
    assert carried.zipped() == carried.zipped.__wrapped__(), "the same files give the same bytes"
    with zipfile.ZipFile(io.BytesIO(carried.zipped())) as packed:
        packed.extractall(tmp_path / "site")
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path) as server:
        assert (await server.ask("PUT", "/graphs/blocked", data=GRAPHS["blocked"])).status == 201
        await server.ended("blocked")
        archive = tmp_path / "blocked.gz"
        archive.write_bytes((await server.get("/graphs/blocked/archive", Accept_Encoding="gzip")).data)
    change = json.dumps({"change": "rerun", "failed": True})
    words = [sys.executable, "-I", "-S", "-c", _ALONE, str(tmp_path / "site"), str(archive), change]
    done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[200\n" * 3, "")


_RERUN: Final = json.dumps({"change": "rerun", "failed": True, "downstream": True})

_WRONG: Final = (
    {"change": "rerun", "labels": []},
    {"change": "prioritize", "priority": 3, "reason": "x" * 3_000},
    {"change": "set-limit", "max": "many", "grop": "a"},
)
_FINDINGS: Final = """
import json, sys
if sys.argv[1] == "tab":
    from taskgraph.interfaces.web import persistent
    persistent.install()
from taskgraph.model import schemas
assert ("rpds.rpds" in sys.modules) is False
wrong = json.loads(sys.argv[2])
found = [[each.message, list(each.absolute_path)] for value in wrong
         for each in schemas.validator("change").findings(value)]
assert ("rpds.rpds" in sys.modules) == (sys.argv[1] != "tab"), "the library itself was used"
print(json.dumps(found))
"""


def test_the_stand_in_of_a_library_that_is_not_built_for_browsers_finds_the_same() -> None:
    found = {
        which: subprocess.run(
            [sys.executable, "-c", _FINDINGS, which, json.dumps(_WRONG)], capture_output=True, text=True, check=True
        ).stdout
        for which in ("tab", "server")
    }
    assert found["tab"] == found["server"]
    assert len(json.loads(found["tab"])) >= len(_WRONG)
    assert [each.message for each in schemas.validator("change").iter_errors(_WRONG[0])] != []
