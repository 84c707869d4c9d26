"""A task that is a request to a service: one that reports to the HTTP API when it is done, and one that is asked."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.e2e.processes import until
from tests.e2e.test_http import ask, run, server


@contextmanager
def service() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Its address, and the headers of what it was asked. `/later` is reported by others, `/slow` is done when asked."""
    seen: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(dict(self.headers))
            self.send_response(202)
            if self.path == "/slow":
                self.send_header("Location", "status")
                self.send_header("Retry-After", "0.2")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            body = b'{"pages": 3}'
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{made.server_port}", seen
    finally:
        made.shutdown()
        made.server_close()


def test_a_service_reports_by_the_claim_that_it_was_given(tmp_path: Path) -> None:
    token = run(tmp_path, "token", "create", "render", "--role", "worker").stdout.strip()
    with service() as (url, seen), server(tmp_path, "--lease-seconds", "3") as address:
        tasks: dict[str, Any] = {
            "later": {"task": {"executor": "http", "payload": {"url": f"{url}/later"}}},
            "slow": {"requires": ["later"], "task": {"executor": "http", "payload": {"url": f"{url}/slow"}}},
            "use": {
                "requires": ["later", "slow"],
                "task": {"payload": {"command": ["echo", {"$result": "later"}, {"$result": "slow", "path": "/pages"}]}},
            },
        }
        (tmp_path / "g.json").write_text(json.dumps({"tasks": tasks}))
        assert run(tmp_path, "submit", str(tmp_path / "g.json"), "--id", "g").returncode == 0
        claim = until(lambda: seen and seen[0]["Taskgraph-Claim"])
        done = ask(address, "POST", f"/runs/{claim}:complete", token, {"result": "painted"})
        assert "status" not in done, done
        until(lambda: '"finished"' in run(tmp_path, "status", "g", "--json").stdout, seconds=60)
        again = ask(address, "POST", f"/runs/{claim}:complete", token, {"result": "other"})
        assert again == done, "a repeat is answered as the first"
    log = run(tmp_path, "logs", "g", "use").stdout
    assert log == "painted 3\n"
    assert len({each["Idempotency-Key"] for each in seen}) == 2
