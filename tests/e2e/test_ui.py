"""`ui` as people start it: an address that opens the store, to who has its token, and in a browser."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from taskgraph.interfaces.cli.serve import can_show
from taskgraph.interfaces.web import files
from tests.e2e.processes import ROOT, environment, taskgraph, until, write_graph


@contextmanager
def showing(folder: Path, *words: str, **more: str) -> Iterator[str]:
    """The address that it prints; it must end well."""
    process = subprocess.Popen(
        [sys.executable, "-m", "taskgraph", "ui", *words],
        env=environment(f"sqlite:///{folder}/store.db", **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[1]
    assert process.returncode == 0, said
    assert "stop with Ctrl-C" in said
    assert "#token" not in said, "no log has it"


def ask(host: str, path: str, token: str = "") -> tuple[int, bytes]:
    with closing(HTTPConnection(host, timeout=10)) as connection:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}".encode()} if token else {})
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_it_shows_the_store_to_who_has_the_token(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    write_graph(tmp_path / "graph.json", {"a": {"task": {}}})
    done = taskgraph("submit", "graph.json", "--id", "shown", store=store, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with showing(tmp_path, "--no-browser") as address:
        parts = urlsplit(address)
        assert (parts.hostname, parts.path) == ("127.0.0.1", "/")
        (token,) = parse_qs(parts.fragment)["token"]
        assert ask(parts.netloc, "/") == (200, (files.STATIC / "index.html").read_bytes())
        status, answer = ask(parts.netloc, "/api/v1/graphs", token)
        assert (status, [each["graphId"] for each in json.loads(answer)["graphs"]]) == (200, ["shown"])
        for wrong in ("", token[:-1], f"{token}x", "é"):
            assert ask(parts.netloc, "/api/v1/graphs", wrong)[0] == 401
    with showing(tmp_path, "--no-browser") as another:
        assert parse_qs(urlsplit(another).fragment)["token"] != [token]


def test_it_opens_the_browser_by_a_file_that_only_this_user_reads(tmp_path: Path) -> None:
    note, browser = tmp_path / "opened", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" >{note}.part && mv {note}.part {note}\n')
    browser.chmod(0o755)
    with showing(tmp_path, "--no-browser", BROWSER=f"{browser} %s"):
        pass
    assert not note.exists()
    with showing(tmp_path, BROWSER=f"{browser} %s") as address:
        until(note.exists, what="the browser")
        file = Path(urlsplit(note.read_text()).path)
        assert f'content="0;url={address}"' in file.read_text()
        assert file.parent.stat().st_mode & 0o077 == 0
    assert not file.exists()


def test_without_a_display_no_browser_takes_the_terminal() -> None:
    assert not can_show("linux", {})
    assert can_show("linux", {"DISPLAY": ":0"})
    assert can_show("darwin", {})


def test_where_the_page_is_not_built_it_says_how_to(tmp_path: Path) -> None:
    package = tmp_path / "taskgraph"
    shutil.copytree(ROOT / "taskgraph", package, ignore=shutil.ignore_patterns("static", "__pycache__"))
    (tmp_path / "schemas").symlink_to(ROOT / "schemas")
    done = subprocess.run(
        [sys.executable, "-m", "taskgraph", "ui"],
        env=environment(f"sqlite:///{tmp_path}/store.db"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "run scripts/web" in done.stderr
