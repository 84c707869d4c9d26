"""The page says of rows what `taskgraph.queries` says, from each of its sources: edges, states, runs, critical path.

Node runs the page's own code over graphs of every kind, and prints what it makes of them (web/test/decoded.ts).
"""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from azure.storage.blob import BlobServiceClient, generate_container_sas

from taskgraph.interfaces.operations import grant
from taskgraph.model.roles import Role
from taskgraph.queries.timeline import Timeline
from taskgraph.queries.values import TaskDetail
from taskgraph.storage.azure.logs import CONTAINER
from tests.http.serving import Server, serving
from tests.web.programs import Programs

NOOP: Final = {"task": {"executor": "noop"}}
FAR: Final = {"task": {"executor": "noop", "target": "far"}}


def _command(*words: str) -> dict[str, Any]:
    return {"task": {"payload": {"command": list(words)}}}


def _parts(count: int, **more: Any) -> dict[str, Any]:
    return {f"part {number:03}": {**NOOP, **more} for number in range(count)}


GRAPHS: Final[dict[str, dict[str, Any]]] = {
    "wide": {
        "tasks": {
            "start": NOOP,
            **_parts(200, requires=["start"]),
            "end": {**NOOP, "requires": [f"part {number:03}" for number in range(200)]},
        }
    },
    "groups": {
        "groups": {
            "inner": {"tasks": [f"part {number:03}" for number in range(60)], "requires": ["first", "second"]},
            "outer": {"tasks": ["inner", "beside"], "requires": ["first"]},
            "users": {"tasks": [f"user {number:03}" for number in range(120)], "requires": ["outer"]},
        },
        "tasks": {
            "first": NOOP,
            "second": NOOP,
            "beside": NOOP,
            **_parts(60),
            **{f"user {number:03}": NOOP for number in range(120)},
            "last": {**NOOP, "requires": ["users", "inner"]},
        },
    },
    "rerun": {
        "tasks": {
            "flaky": {**_command("sh", "-c", "test $TASKGRAPH_RUN_ID = 1"), "reruns": 1},
            "after": {**NOOP, "requires": ["flaky"]},
        }
    },
    "blocked": {"tasks": {"bad": _command("false"), "good": NOOP, "waits": {**NOOP, "requires": ["bad", "good"]}}},
    "continued": {
        "failurePolicy": "continue",
        "tasks": {
            "bad": _command("false"),
            "skipped": {**NOOP, "requires": ["bad"]},
            "deeper": {**NOOP, "requires": ["skipped"]},
            "after": {**NOOP, "requires": ["bad"], "when": "any-failed"},
            "any": {**NOOP, "requires": [{"label": "bad", "optional": True}]},
            "fine": NOOP,
            "enough": {**NOOP, "requires": ["some"]},
        },
        "groups": {"some": {"tasks": ["bad", "any", "fine"], "success": {"atLeast": "50%", "rest": "cancel"}}},
    },
    "says": {"tasks": {"says": _command("printf", "0123456789")}},
    "extended": {"tasks": {"one": NOOP, "far": FAR}},
    "paused": {"groups": {"some": {"tasks": ["b"]}}, "tasks": {"a": FAR, "b": FAR, "c": {**NOOP, "active": False}}},
    "cancelled": {"tasks": {"a": NOOP, "far": FAR, "behind": {**NOOP, "requires": ["far"]}}},
    "long": {
        "tasks": {
            "“ö” \U0001f9ea <b>": {"task": {"executor": "noop", "payload": {"text": "é" * 40_000}}},
            "plain": {**NOOP, "requires": ["“ö” \U0001f9ea <b>"]},
        }
    },
    "many": {
        "tasks": {
            **_parts(2_500, **FAR),
            "all": {**FAR, "requires": [f"part {number:03}" for number in range(0, 2_500, 5)]},
        }
    },
}


async def shown(programs: Programs, **asked: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await programs.run("decoded", **asked))
    return found


async def make(server: Server) -> None:
    """The graphs, each as far as it comes."""
    for graph_id, document in GRAPHS.items():
        assert (await server.ask("PUT", f"/graphs/{graph_id}", data=document)).status == 201, graph_id
    for path, body in (
        ("/graphs/extended/extensions", {"tasks": {"two": {**NOOP, "requires": ["one"]}, "three": FAR}}),
        ("/graphs/paused/changes?unguarded=1", {"change": "pause", "group": "some"}),
        ("/graphs/cancelled/changes?unguarded=1", {"change": "cancel", "reason": "not any more"}),
    ):
        answer = await server.ask("POST", path, data=body, Prefer="wait=20")
        assert answer.status in (200, 202), answer
    for graph_id in ("wide", "groups", "rerun", "blocked", "continued", "long", "says", "cancelled"):
        assert await server.ended(graph_id) in ("finished", "blocked", "cancelled"), graph_id
    async with asyncio.timeout(20):
        while (await server.get("/graphs/extended/tasks/two")).json["state"] != "completed":
            await asyncio.sleep(0.05)


async def compare(server: Server, graph_id: str, page: dict[str, Any]) -> None:
    """The page against the queries of Python, which look at the same rows."""
    queries = server.app.queries
    details = {each.status.label: each for each in await queries.details(graph_id)}
    assert page["tasks"] == {label: _task(each) for label, each in details.items()}
    assert page["read"] == len(details)
    if graph_id == "continued":
        success = (await queries.group(graph_id, "some")).success
        assert success is not None
        numbers = {name: getattr(success, name) for name in ("ok", "bad", "needs", "of", "decided")}
        assert page["standings"] == [{"group": "some", **numbers, "cancels": True}]
    else:
        assert page["standings"] == []
    if graph_id == "says":
        pieces = [["01234", 0, 10], ["6789", 6, 10], ["3456789", 3, 10], ["", 10, 10]]
        assert page["log"] == {"pieces": pieces, "none": "missing"}
    for each in page["details"]:
        _compare_detail(each, details[each["label"]])
    status = await queries.status(graph_id)
    assert page["state"] == status.state
    events = await queries.events(graph_id, limit=100_000)
    expected = [{"cursor": each.cursor, "event": each.kind, **each.fields} for each in events]
    assert page["events"] == json.loads(json.dumps(expected))
    assert page["event"] == events[-1].sequence
    _compare_times(page, await queries.timeline(graph_id))
    moved = {"pending", "unscheduled", "running"}  # journals do not say when a run begins
    past = {label: state for label, state in page["past"].items() if state not in moved}
    assert past == {label: each.status.state for label, each in details.items() if each.status.state not in moved}
    assert all(details[label].status.state in moved for label in page["past"].keys() - past.keys())


def _task(detail: TaskDetail) -> dict[str, Any]:
    status = detail.status
    return {
        "id": status.task_id,
        "state": status.state,
        "run": status.run,
        "target": status.target,
        "worker": status.worker,
        "held": status.held_back,
        "group": status.groups[0] if status.groups else "",
        "resolved": _near(status.resolved.timestamp() * 1000 if status.resolved else None),
        "requires": sorted(detail.requires),
    }


def _near(value: float | None) -> object:
    return None if value is None else pytest.approx(value, abs=0.001)


def _compare_detail(page: dict[str, Any], detail: TaskDetail) -> None:
    assert page["state"] == detail.status.state
    assert page["requires"] == sorted(detail.requires)
    assert page["dependents"] == sorted(detail.dependents)
    assert page["definition"] == detail.definition
    runs = [(each["run"], each["outcome"], each.get("reason", "")) for each in detail.status.runs]
    assert [(each["run"], each["outcome"], each["reason"]) for each in page["runs"]][:0:-1] == runs
    assert page["runs"][0]["run"] == detail.status.run


def _compare_times(page: dict[str, Any], timeline: Timeline) -> None:
    begun = [each for each in page["spans"] if each["start"] is not None]
    spans = sorted((each["label"], each["run"], each["outcome"], each["worker"]) for each in begun)
    assert spans == sorted((each.label, each.run, str(each.outcome), each.worker) for each in timeline.runs)
    ends = {(each.label, each.run): each for each in timeline.runs}
    for each in begun:
        span = ends[each["label"], each["run"]]
        assert each["start"] == _near(span.started.timestamp() * 1000)
        assert each["end"] == _near(span.ended.timestamp() * 1000 if span.ended else None)
    assert bool(page["path"]) == bool(timeline.path)
    # Of several that were resolved at the same moment either may be on it: the whole is the same.
    assert sum(each["seconds"] for each in page["path"]) == _near(sum(each.seconds for each in timeline.path))
    if [each["label"] for each in page["path"]] == [each.label for each in timeline.path]:
        assert [each["ran"] for each in page["path"]] == [_near(each.ran_seconds) for each in timeline.path]


async def test_the_page_agrees_with_queries_over_http_and_from_an_archive(programs: Programs, tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path, anonymous=False) as server:
        server.session.headers["Authorization"] = f"Bearer {server.tokens[Role.ADMIN]}"
        await make(server)
        token = server.tokens[Role.READER]
        found = await shown(programs, api=server.address, token=token, graphs=list(GRAPHS))
        for graph_id, page in found.items():
            await compare(server, graph_id, page)
        assert {each["state"] for page in found.values() for each in page["tasks"].values()} == {
            *("unscheduled", "pending", "completed", "failed", "cancelled", "skipped")
        }
        for graph_id in ("groups", "rerun", "continued", "says"):
            file = tmp_path / f"{graph_id}.json.gz"
            file.write_bytes((await server.get(f"/graphs/{graph_id}/archive?logs=1", Accept_Encoding="gzip")).data)
            archived = await shown(programs, archive=str(file), graphs=[graph_id])
            await compare(server, graph_id, archived[graph_id])


def _logs_of(connection_string: str) -> str:
    """The address of blobs, with a signature that opens logs."""
    service = BlobServiceClient.from_connection_string(connection_string)
    key = service.credential.account_key
    until = datetime.now(UTC) + timedelta(hours=1)
    account = str(service.account_name)
    token = generate_container_sas(account, CONTAINER, account_key=key, permission="r", expiry=until)
    return f"{service.url}?{token}"


@pytest.mark.campaign
@pytest.mark.azurite
async def test_the_page_agrees_with_queries_from_tables(programs: Programs, tmp_path: Path, azurite: str) -> None:
    async with serving(azurite, tmp_path) as server:
        await make(server)
        blobs = _logs_of(azurite)
        for graph_id in GRAPHS:
            link = await grant.read(server.app, graph_id)
            table = f"{link.endpoint}/{link.table}"
            found = await shown(programs, table=table, sas=link.token, blobs=blobs, graphs=[graph_id])
            await compare(server, graph_id, found[graph_id])
