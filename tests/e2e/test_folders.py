"""Where commands run: in the folder of their worker, in one that it names, or in that of the submitter."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import started, taskgraph, write_graph

HERE = ("sh", "-c", 'pwd > "$TASKGRAPH_LABEL.txt"')


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, Path, Path]:
    """A store, and folders of a submitter and of a worker, each with a folder `sub` in it."""
    submitter, worker = tmp_path / "submitter's", tmp_path / "worker's"
    for each in (submitter, worker):
        (each / "sub").mkdir(parents=True)
    return f"sqlite:///{tmp_path}/s.db", submitter, worker


def command(*words: str, **payload: Any) -> dict[str, Any]:
    return {"task": {"payload": {"command": list(words), **payload}}}


def graph(folder: Path, **tasks: Any) -> str:
    return str(write_graph(folder / "g.json", tasks))


def ended(store: str, folder: Path, graph_id: str) -> Any:
    taskgraph("watch", graph_id, store=store, cwd=folder)
    return json.loads(taskgraph("status", graph_id, "--json", store=store, cwd=folder).stdout)


def test_commands_run_where_their_worker_says(folders: tuple[str, Path, Path], tmp_path: Path) -> None:
    store, submitter, worker = folders
    third = tmp_path / "third"
    (third / "sub").mkdir(parents=True)
    file = graph(
        submitter, plain=command(*HERE), below=command(*HERE, cwd="sub"), fixed=command(*HERE, cwd=str(tmp_path))
    )
    for words, folder in (((), worker), (("--cwd", "submitter"), submitter), (("--cwd", "../third"), third)):
        graph_id = f"in-{folder.name[0]}"
        submitted = taskgraph("submit", file, "--id", graph_id, store=store, cwd=submitter)
        assert submitted.returncode == 0, submitted.stderr
        with started("serve", "--worker", "1", *words, store=store, cwd=worker):
            status = ended(store, worker, graph_id)
        assert (status["state"], status["folder"]) == ("finished", str(submitter))
        places = {folder / "plain.txt": folder, folder / "sub" / "below.txt": folder / "sub"}
        for place, expected in {**places, tmp_path / "fixed.txt": tmp_path}.items():
            assert place.read_text().strip() == str(expected)
            place.unlink()
        assert list(tmp_path.rglob("*.txt")) == []
    assert f"submitted in  {submitter}" in taskgraph("status", graph_id, store=store, cwd=worker).stdout


def test_files_of_runs_lie_in_the_folder_of_the_submitter(folders: tuple[str, Path, Path]) -> None:
    store, submitter, worker = folders
    (submitter / "sub" / "in.txt").write_text("in")
    (submitter / "sub" / "v.env").write_text("MORE=and more\n")
    files: dict[str, Any] = {"envFile": "v.env", "inputs": ["in.txt"], "outputs": ["out.txt"], "cache": True}
    file = graph(submitter, made=command("sh", "-c", 'echo "$(cat in.txt) $MORE" > out.txt', cwd="sub", **files))
    with started("serve", "--worker", "1", "--cwd", "submitter", store=store, cwd=worker):
        for graph_id in ("first", "again"):
            taskgraph("submit", file, "--id", graph_id, store=store, cwd=submitter)
            assert ended(store, worker, graph_id)["state"] == "finished"
            assert (submitter / "sub" / "out.txt").read_text() == "in and more\n"
            (submitter / "sub" / "out.txt").unlink()
    shown = taskgraph("task", "again", "made", "--json", store=store, cwd=worker).stdout
    assert json.loads(shown)["resolution"]["cached"]["graphId"] == "first"


def test_a_folder_that_is_not_there_is_named_with_the_remedy(folders: tuple[str, Path, Path]) -> None:
    store, submitter, worker = folders
    refused = taskgraph("worker", "--cwd", "nowhere", store=store, cwd=worker)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--cwd nowhere: there is no such folder; make it, name another, or say submitter" in refused.stderr
    file = graph(submitter, plain=command(*HERE), fixed=command(*HERE, cwd=str(worker)))
    taskgraph("submit", file, "--id", "g", store=store, cwd=submitter)
    moved = submitter.rename(submitter.with_name("moved"))
    with started("serve", "--worker", "1", "--cwd", "submitter", store=store, cwd=worker):
        assert ended(store, worker, "g")["state"] == "blocked"
    why = taskgraph("why", "g", "plain", store=store, cwd=worker).stdout
    assert f"this machine has no folder {submitter}, in which this graph was submitted" in why
    assert "give the task an absolute cwd, or the worker another --cwd" in why
    assert (worker / "fixed.txt").read_text().strip() == str(worker)
    assert list(moved.rglob("*.txt")) == []


def test_run_runs_commands_in_the_present_folder(folders: tuple[str, Path, Path]) -> None:
    store, submitter, worker = folders
    file = graph(submitter, plain=command(*HERE))
    assert taskgraph("run", file, "--id", "g", store=store, cwd=worker).returncode == 0
    assert (worker / "plain.txt").read_text().strip() == str(worker)
    assert taskgraph("run", file, "--id", "h", "--cwd", os.path.dirname(file), store=store, cwd=worker).returncode == 0
    assert (submitter / "plain.txt").read_text().strip() == str(submitter)
