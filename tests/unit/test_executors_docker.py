"""Commands in containers, as far as they can be seen without a container: payloads, arguments, and who can run them."""

import os
from pathlib import Path
from typing import Any

import pytest

from taskgraph.documents.read import read_document
from taskgraph.model.clock import SystemClock
from taskgraph.model.errors import InvalidGraph
from taskgraph.worker.executors import Outcome, Work, built_in

GOOD: dict[str, Any] = {"image": "tiny", "command": ["make", "all"]}

CLIENT = """\
#!/bin/sh
if [ "$1" = run ]; then
    for each; do echo "$each"; done
    env | sort > "$FOLDER/env"
else
    echo "$@" >> "$FOLDER/asked"
    [ "$1" != ps ] || cat "$FOLDER/left" 2>/dev/null
fi
exit "${CODE:-0}"
"""
"""Says what it was asked for; containers themselves are in tests/e2e/test_containers.py."""


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "client"
    program.write_text(CLIENT)
    program.chmod(0o700)
    monkeypatch.setenv("TASKGRAPH_DOCKER", str(program))
    monkeypatch.setenv("FOLDER", str(tmp_path))
    return tmp_path


async def run(payload: dict[str, Any], **more: Any) -> tuple[Outcome, list[str]]:
    log: list[bytes] = []

    async def write(data: bytes) -> None:
        log.append(data)

    definition = {"executor": "docker", "payload": payload}
    executors = built_in(SystemClock())
    assert executors.why_not(definition) is None
    outcome = await executors.choose(definition).run(Work("g", "t", 0, "a", "c1", definition, **more), write)
    return outcome, b"".join(log).decode().splitlines()


async def test_the_client_is_asked_for_one_run(client: Path) -> None:
    env = {"ONE": "1", "PATH": "/opt/bin:/bin"}
    assert "TASKGRAPH_DOCKER" in os.environ
    outcome, words = await run({**GOOD, "env": env, "options": ["--network", "none"]}, folder=str(client))
    assert outcome == Outcome(failed=False, exit_code=0)
    assert words[:6] == ["run", "--rm", "--name", "taskgraph-c1", "--label", "taskgraph.task=g/t"]
    assert words[-5:] == ["--network", "none", "tiny", "make", "all"]
    assert f"{client}:{client}" in words
    assert words[words.index("--workdir") + 1] == str(client)
    assert {"ONE", "PATH=/opt/bin:/bin", "TASKGRAPH_TASK_ID"} <= set(words)
    assert not {"TASKGRAPH_DOCKER", "FOLDER"} & set(words), "what is the worker's own stays with it"
    got = (client / "env").read_text().splitlines()
    assert "ONE=1" in got, "a value goes through the environment, which other users cannot read"
    assert f"PATH={os.environ['PATH']}" in got, "the client keeps its own"


async def test_what_an_earlier_run_left_goes_first(client: Path) -> None:
    (client / "left").write_text("abc\ndef\n")
    await run(GOOD)
    assert (client / "asked").read_text().splitlines()[-1] == "rm --force abc def"


async def test_what_a_timeout_ends_is_removed(client: Path) -> None:
    program = client / "client"
    program.write_text(CLIENT.replace("for each", "sleep 60; for each"))
    outcome, _ = await run({**GOOD, "timeout": 0.1})
    assert outcome.reason == "timed out after 0.1 s"
    assert (client / "asked").read_text().splitlines()[-1] == "rm --force taskgraph-c1"


async def test_an_engine_that_fails_is_named(client: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODE", "125")
    outcome, _ = await run(GOOD)
    assert outcome.reason == "client could not run the container; the log says why"


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"command": ["true"]}, "payload.image must name an image"),
        ({**GOOD, "image": "--privileged"}, "payload.image must name an image"),
        ({**GOOD, "options": "--rm"}, "payload.options must be a list"),
        ({**GOOD, "inheritEnv": True}, "must be a list of names"),
        ({**GOOD, "inheritEnv": "HOME"}, "payload.inheritEnv must be"),
        ({**GOOD, "env": {"DOCKER_HOST": {"$secret": "host"}}}, "a secret cannot be DOCKER_HOST"),
        ({"image": "tiny"}, "payload.command must be a list"),
    ],
)
async def test_a_payload_that_is_wrong_is_an_exception(client: Path, payload: dict[str, Any], words: str) -> None:
    outcome, _ = await run(payload)
    assert outcome.exception
    assert words in outcome.reason


def test_a_worker_without_a_client_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    definition = {"executor": "docker", "payload": GOOD}
    monkeypatch.setenv("TASKGRAPH_DOCKER", "/there/is/none")
    why = built_in(SystemClock()).why_not(definition)
    assert why == "TASKGRAPH_DOCKER=/there/is/none of this worker names no program, and the task runs in a container"
    monkeypatch.delenv("TASKGRAPH_DOCKER")
    monkeypatch.setenv("PATH", "")
    why = built_in(SystemClock()).why_not(definition)
    assert why == "this worker has no docker, and no podman, on its PATH, and the task runs in a container"


def test_an_image_beside_a_command_asks_for_a_container() -> None:
    document = read_document('{"tasks": {"a": {"image": "tiny", "script": "make", "env": {"A": {"$secret": "a"}}}}}')
    payload = {"image": "tiny", "command": ["sh", "-ec", "make"], "env": {"A": {"$secret": "a"}}}
    assert document.tasks["a"].task == {"executor": "docker", "payload": payload}


def test_a_container_without_an_image_is_refused() -> None:
    with pytest.raises(InvalidGraph) as caught:
        read_document('{"tasks": {"a": {"task": {"executor": "docker", "payload": {"command": ["true"]}}}}}')
    assert [problem.code for problem in caught.value.problems] == ["missing"]
