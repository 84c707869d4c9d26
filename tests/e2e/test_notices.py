"""A webhook receiver that is restarted while a graph runs misses nothing; `serve` delivers, on both stores."""

import http.server
import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import command, started, taskgraph, until


class Receiver:
    """A receiver of webhooks on one port, which may be gone for a while; what it took is kept."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._server: http.server.ThreadingHTTPServer | None = None

    def start(self) -> None:
        taken = self.taken

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                taken.append(json.loads(body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()


@pytest.mark.parametrize(
    "kind", ["embedded", pytest.param("azurite", marks=[pytest.mark.azurite, pytest.mark.campaign])]
)
def test_a_receiver_that_is_restarted_in_mid_stream_misses_nothing(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    more: dict[str, Any] = {"TASKGRAPH_WEBHOOK_HOSTS": "127.0.0.1"}
    if kind == "azurite":
        store = request.getfixturevalue("azurite")
        more["TASKGRAPH_PREFIX"] = f"t{abs(hash(str(tmp_path))) % 10**9}"
    receiver = Receiver()
    hook = {"webhook": f"http://127.0.0.1:{receiver.port}/hook"}
    waits = ("sh", "-c", 'while ! test -e "$0"; do sleep 0.05; done')
    tasks: dict[str, Any] = {"t0": command("true")}
    tasks |= {f"t{n}": command(*waits, f"gate{n}", requires=(f"t{n - 1}",)) for n in range(1, 4)}
    for node in tasks.values():
        node["notify"] = {"onSuccess": hook}
    file = tmp_path / "graph.json"
    file.write_text(json.dumps({"tasks": tasks, "notify": {"onFinished": hook}}))
    receiver.start()
    with started("serve", "--worker", "2", store=store, cwd=tmp_path, **more):
        assert taskgraph("submit", str(file), "--id", "g", store=store, cwd=tmp_path, **more).returncode == 0
        (tmp_path / "gate1").touch()
        until(lambda: len(receiver.taken) >= 2, seconds=60, what="the first notices")
        receiver.stop()
        (tmp_path / "gate2").touch()

        def failing() -> bool:
            told = json.loads(taskgraph("notices", "g", "--json", store=store, cwd=tmp_path, **more).stdout)
            return bool(told["channels"][0]["failures"])

        until(failing, seconds=60, what="an attempt that failed")
        (tmp_path / "gate3").touch()
        receiver.start()
        until(lambda: receiver.taken[-1]["type"] == "graph-finished", seconds=60, what="the last notice")
        until(
            lambda: '"state": "done"' in taskgraph("notices", "g", "--json", store=store, cwd=tmp_path, **more).stdout,
            what="the channel to be done",
        )
    receiver.stop()
    ids = [each["id"] for each in receiver.taken]
    labels = [each.get("label") for each in receiver.taken]
    assert len(set(ids)) == len(ids) == 5
    assert labels == ["t0", "t1", "t2", "t3", None]
