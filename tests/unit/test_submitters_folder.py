"""The folder of a submitter: what of it is kept, and what a worker does that is to run commands there."""

import os
from pathlib import Path

import pytest

from taskgraph import Client
from taskgraph.engine import submission
from taskgraph.interfaces.app import own_folder
from taskgraph.interfaces.client.graph import document_of
from taskgraph.interfaces.one_graph import run_graph
from taskgraph.model import limits
from taskgraph.model.flag import Flag
from taskgraph.worker.context import SUBMITTER
from taskgraph.worker.executors import built_in


def test_a_folder_is_kept_if_it_is_there_and_is_a_text_that_is_not_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert own_folder() == str(tmp_path)
    undecodable = os.fsdecode(bytes(tmp_path) + b"/\xff")
    os.mkdir(undecodable)
    monkeypatch.chdir(undecodable)
    assert own_folder() == ""
    longest = tmp_path
    while len(str(longest)) < limits.FOLDER_CHARS_MAX - 1:
        longest /= "x" * min(200, limits.FOLDER_CHARS_MAX - 1 - len(str(longest)))
    longest.mkdir(parents=True)
    monkeypatch.chdir(longest)
    assert own_folder() == str(longest)
    (longest / "xx").mkdir()
    monkeypatch.chdir(longest / "xx")
    assert own_folder() == ""
    (longest / "xx").rmdir()
    assert own_folder() == ""


async def test_where_it_is_not_known_a_command_does_not_run_elsewhere(tmp_path: Path) -> None:
    tasks = {
        "relative": {"command": ["true"], "cwd": "sub"},
        "absolute": {"command": ["true"], "cwd": str(tmp_path)},
        "nothing": {},
    }
    async with Client(f"sqlite:///{tmp_path}/s.db") as client:
        app = client.app
        await submission.submit(app.handlers, "g", document_of({"tasks": tasks, "failurePolicy": "continue"}))
        assert (await client.status("g")).folder == ""
        worker = app.worker(built_in(app.clock), slots=3, folder=SUBMITTER)
        await run_graph(app, "g", Flag(), workers=[worker], fresh=True)
        states = {each.label: each.state for each in await client.tasks("g")}
        assert states == {"relative": "exception", "absolute": "completed", "nothing": "completed"}
        (cause,) = [reason for reason in await client.why("g", "relative") if reason.cause]
        assert "it is not known in which folder this graph was submitted" in cause.text


async def test_a_client_keeps_its_folder_with_what_it_submits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with Client(f"sqlite:///{tmp_path}/s.db") as client:
        for _ in range(2):  # the same content again, from elsewhere, changes nothing
            await client.submit({"tasks": {"a": {}}}, "g")
            assert (await client.status("g")).folder == str(tmp_path)
            monkeypatch.chdir("/")
