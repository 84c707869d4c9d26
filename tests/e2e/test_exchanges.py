"""`serve --taskcluster --exchanges`: what the old scheduler's exchanges said is on a queue, over restarts."""

import asyncio
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.settings import read_settings
from tests.e2e.processes import started, taskgraph, until
from tests.e2e.test_http import ask
from tests.http.test_taskcluster import A, B, G, graph, node

ADDRESS = re.compile(r"answering on (http://[^/]+)/api/v1")


async def messages(store: str, folder: Path) -> list[str]:
    found = []
    async with open_app(read_settings(store, {}, cwd=folder)) as app:
        while taken := await app.queues.receive("pulse", count=32, lease_seconds=30):
            for each in taken:
                found.append(json.loads(each.body)["exchange"].rpartition("/")[2])
                await app.queues.delete(each)
    return found


@pytest.mark.campaign
def test_a_server_that_is_killed_leaves_no_message_out(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    over = ("serve", "--http", "0", "--no-auth", "--taskcluster", "--exchanges", "pulse")

    def base(name: str) -> str:
        return f"{until(lambda: ADDRESS.search((tmp_path / f'{name}.log').read_text()), what='an address')[1]}/v1"

    def shown(command: str) -> Any:
        return json.loads(taskgraph(command, G, "--json", store=store, cwd=tmp_path).stdout)

    fails = {"command": ["test", "-e", str(tmp_path / "mended")]}
    with started(*over, store=store, cwd=tmp_path, name="first", TASKGRAPH_NOTIFY="off") as first:
        ask(base("first"), "PUT", f"/task-graph/{G}", body=graph(node(A, payload={"command": ["true"]})))
        ask(base("first"), "POST", f"/task-graph/{G}/extend", body={"tasks": [node(B, A, payload=fails)]})
        first.send_signal(signal.SIGKILL)
        first.wait()
    with started(*over, "--worker", "2", "--target", "dummy-dummy", store=store, cwd=tmp_path, name="second"):
        until(lambda: shown("status")["state"] == "blocked", seconds=60, what="the graph to be blocked")
        (tmp_path / "mended").touch()
        ask(base("second"), "POST", f"/task/{B}/rerun")
        until(lambda: shown("notices")["channels"][0]["state"] == "done", seconds=60, what="the channel to be done")
    names = [f"task-graph-{each}" for each in ("running", "extended", "blocked", "finished")]
    assert asyncio.run(messages(store, tmp_path)) == names


def test_a_queue_that_messages_cannot_go_to_is_refused_at_once(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    for queue in ("Pulse!", "taskgraph-events"):
        refused = taskgraph(
            "serve", "--http", "0", "--no-auth", "--taskcluster", "--exchanges", queue, store=store, cwd=tmp_path
        )
        assert (refused.returncode, "--exchanges" in refused.stderr) == (2, True), refused
    refused = taskgraph("serve", "--http", "0", "--no-auth", "--exchanges", "pulse", store=store, cwd=tmp_path)
    assert (refused.returncode, "--exchanges goes with --taskcluster" in refused.stderr) == (2, True), refused
