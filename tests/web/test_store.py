"""What the page says of a store over HTTP: the list, the overview, files of runs, and what goes wrong in words."""

import asyncio
import json
from pathlib import Path
from typing import Final

from taskgraph.model.ids import task_id_of
from taskgraph.model.roles import Role
from tests.http.serving import serving
from tests.web.programs import Programs

SAYS: Final = "printf 0123456789; echo '{\"a\": 1}' > $TASKGRAPH_RESULT_FILE"
GRAPH: Final = {
    "metadata": {"name": "Nightly"},
    "tags": {"kind": "test"},
    "tasks": {
        "says": {"task": {"payload": {"command": ["sh", "-c", SAYS]}}},
        "bad": {"task": {"payload": {"command": ["false"]}}},
        "far": {"task": {"target": "far", "executor": "noop"}},
    },
}


async def test_a_store_is_shown_over_http(programs: Programs, tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path, anonymous=False) as server:
        admin = server.tokens[Role.ADMIN]
        assert (await server.ask("PUT", "/graphs/g", data=GRAPH, token=admin)).status == 201
        assert (await server.ask("POST", "/targets/far:pause?reason=full", token=admin)).status == 200
        async with asyncio.timeout(20):
            while (await server.ask("GET", "/graphs/g", token=admin)).json["state"] != "blocked":
                await asyncio.sleep(0.05)
            while (await server.ask("GET", "/graphs/g/tasks/says", token=admin)).json["state"] != "completed":
                await asyncio.sleep(0.05)
        asked = {"api": server.address, "graph": "g", "task": task_id_of("g", "says")}
        found = json.loads(await programs.run("store", token=admin, **asked))
    overview = found["overview"]
    assert [(each["id"], each["state"], each["completed"]) for each in overview["live"]] == [("g", "blocked", 1)]
    assert {each["kind"] for each in overview["attention"]} == {"blocked", "target-paused"}
    assert "the target far is paused: full" in {each["words"] for each in overview["attention"]}
    assert [(each["name"], each["paused"]) for each in overview["targets"] if each["name"] == "far"] == [("far", True)]
    assert (overview["poison"], overview["unknown"]) == (0, [])
    assert any(each["state"] == "active" for each in overview["handlers"])
    assert found["first"] <= 5, found
    assert found["again"] <= 3, found
    (listed,) = found["listed"]
    assert (listed["id"], listed["name"], listed["tags"]) == ("g", "Nightly", {"kind": "test"})
    whole = "0123456789"
    assert found["files"][:4] == [["01234", 0, 10], ["6789", 6, 10], [whole[3:], 3, 10], ["", 10, 10]]
    assert json.loads(found["files"][4][0]) == {"a": 1}
    troubles = found["troubles"]
    assert {name: each["reason"] for name, each in troubles.items()} == {
        **dict.fromkeys(("graph", "file"), "missing"),
        **dict.fromkeys(("partition", "token"), "denied"),
        **dict.fromkeys(("page", "plan"), "wrong"),
        "away": "away",
    }
    assert troubles["plan"]["code"] == "no-plan", troubles["plan"]
    assert all(each["message"] for each in troubles.values())
    assert found["several"] == ["task-graph", None]
