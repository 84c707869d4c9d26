"""Commands in containers of a real podman: results, files, variables, secrets, and what runs leave that end early."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import started, taskgraph, until, write_graph

pytestmark = pytest.mark.campaign

IMAGE = "localhost/taskgraph-test"
_APPLETS = ("cat", "echo", "env", "ls", "sh", "sleep", "touch", "pwd")
_SETTINGS = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
"""
"""On machines where the defaults of podman ask for more than root may, as in some virtual ones."""


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Runs podman with an image of busybox. It, and what is started here, goes at the end."""
    folder = tmp_path_factory.mktemp("podman")
    (folder / "containers.conf").write_text(_SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_CONF", str(folder / "containers.conf"))
        files = folder / "root" / "bin"
        files.mkdir(parents=True)
        shutil.copy("/bin/busybox", files / "busybox")
        for name in _APPLETS:
            (files / name).symlink_to("busybox")
        packed = subprocess.run(
            ["tar", "-C", str(folder / "root"), "-c", "."], stdout=subprocess.PIPE, check=True
        ).stdout
        subprocess.run(["podman", "import", "-", IMAGE], input=packed, stdout=subprocess.PIPE, check=True)

        def ask(*words: str) -> str:
            return subprocess.run(["podman", *words], stdout=subprocess.PIPE, check=True, text=True).stdout

        yield ask
        ask("rmi", "--force", IMAGE)


def contained(*command: Any, requires: tuple[str, ...] = (), node: dict[str, Any] | None = None, **payload: Any) -> Any:
    inner = {"image": IMAGE, "command": list(command), "options": ["--network", "none"], **payload}
    return {"requires": list(requires), "task": {"executor": "docker", "payload": inner}, **(node or {})}


def left(podman: Callable[..., str]) -> list[str]:
    return [line for line in podman("ps", "--all", "--format", "{{.Names}}").split() if line.startswith("taskgraph-")]


def ran(store: str, folder: Path, tasks: dict[str, Any], code: int = 0, **env: str) -> None:
    path = write_graph(folder.parent / "g.json", tasks)
    done = taskgraph("run", str(path), "--id", "g", store=store, cwd=folder, TASKGRAPH_DOCKER="podman", **env)
    assert done.returncode == code, done.stderr


def said(store: str, folder: Path, *words: str) -> str:
    done = taskgraph(*words, store=store, cwd=folder)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store/a.db"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


def test_a_command_in_a_container_is_as_good_as_another(podman: Callable[..., str], store: str, folder: Path) -> None:
    tasks = {
        "make": contained(
            "sh", "-ec", "pwd; echo made > out.txt; echo '{\"n\": 7}' > $TASKGRAPH_RESULT_FILE", outputs=["out.txt"]
        ),
        "use": contained(
            "sh",
            "-ec",
            'cat "$0"; echo "n is $1"; echo "$TASKGRAPH_LABEL of $TASKGRAPH_GRAPH_ID"',
            {"$file": "make", "path": "out.txt"},
            {"$result": "make", "path": "/n"},
            requires=("make",),
        ),
    }
    ran(store, folder, tasks)
    log = said(store, folder, "logs", "g")
    assert f"make │ {folder}" in log
    for words in ("use  │ made", "use  │ n is 7", "use  │ use of g"):
        assert words.replace("  ", " ") in log.replace("  ", " ")
    assert left(podman) == []


def test_what_it_gets_of_variables_is_what_is_named(podman: Callable[..., str], store: str, folder: Path) -> None:
    tasks = {
        "show": contained(
            "env",
            env={"OWN": "1", "PATH": "/bin:/own", "HOME": "/elsewhere", "TOKEN": {"$secret": "token"}},
            inheritEnv=["PASSED"],
        )
    }
    ran(store, folder, tasks, PASSED="yes", NOT_PASSED="no", TASKGRAPH_SECRET_TOKEN="hidden-thing")
    lines = set(said(store, folder, "logs", "g", "show").splitlines())
    assert {"OWN=1", "PATH=/bin:/own", "HOME=/elsewhere", "PASSED=yes", "TOKEN=***"} <= lines
    assert not [line for line in lines if "NOT_PASSED" in line or "hidden-thing" in line]


def test_what_fails_says_why(podman: Callable[..., str], store: str, folder: Path) -> None:
    tasks = {
        "code": contained("sh", "-c", "exit 3"),
        "image": contained("true", image="localhost/there-is-none", options=["--pull", "never"]),
    }
    ran(store, folder, tasks, code=1)
    code, image = map(json.loads, said(store, folder, "task", "g", "code", "image", "--json").splitlines())
    assert code["resolution"]["reason"] == "exit code 3"
    assert image["resolution"]["reason"] == "podman could not run the container; the log says why"
    assert "there-is-none" in said(store, folder, "logs", "g", "image")


def test_what_is_ended_leaves_no_container(podman: Callable[..., str], store: str, folder: Path) -> None:
    tasks = {"slow": contained("sh", "-c", "trap 'exit 0' TERM; sleep 60 & wait", timeout=1)}
    began = time.monotonic()
    ran(store, folder, tasks, code=1)
    assert time.monotonic() - began < 15, "SIGTERM reached the command"
    assert left(podman) == []


def test_what_a_dead_worker_left_is_removed_by_the_next_run(
    podman: Callable[..., str], store: str, folder: Path
) -> None:
    script = "if [ -e began ]; then echo again; else touch began; sleep 300; fi"
    path = write_graph(folder.parent / "g.json", {"t": contained("sh", "-c", script)})
    with started("run", str(path), "--id", "g", store=store, cwd=folder, TASKGRAPH_DOCKER="podman") as process:
        until((folder / "began").exists, seconds=60, what="the container has started")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    (earlier,) = left(podman)
    done = taskgraph("run", "--id", "g", store=store, cwd=folder, TASKGRAPH_DOCKER="podman")
    assert done.returncode == 0, done.stderr
    assert said(store, folder, "logs", "g", "t").splitlines()[-1] == "again"
    assert earlier not in podman("ps", "--all", "--format", "{{.Names}}")
    assert left(podman) == []
