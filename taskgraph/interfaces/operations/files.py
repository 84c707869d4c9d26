"""The files that tasks have left: which there are, and copies of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskgraph.interfaces.app import App
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, NotFound, StorageUnavailable
from taskgraph.model.states import TaskState
from taskgraph.queries.values import TaskStatus
from taskgraph.storage.kept_files import KeptFile, fetch, listed
from taskgraph.storage.private_files import unwritable


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A file that the latest run of a task has left."""

    label: str
    task_id: str
    run: int
    file: KeptFile


async def find(app: App, graph_id: str, labels: Sequence[str] = ()) -> list[TaskFile]:
    """The files of these tasks, or of all of the graph, by label and path. Raises NotFound for a task without any."""
    if labels:
        tasks = [await app.queries.task_status(graph_id, label) for label in labels]
    else:
        state = TaskState.COMPLETED.value
        tasks = await app.queries.tasks(graph_id, state=state, limit=limits.INT_MAX)
    found: list[TaskFile] = []
    for task in sorted(tasks, key=lambda each: each.label):
        kept = await listed(app.logs, (graph_id, task.task_id, task.run)) if _has_files(task) else None
        if kept is None and labels:
            raise NotFound(f"“{task.label}” is {task.state} and has left no files; a task keeps those in its outputs")
        found += [TaskFile(task.label, task.task_id, task.run, each) for each in kept or ()]
    return found


def _has_files(task: TaskStatus) -> bool:
    return task.state == TaskState.COMPLETED and "files" in (task.resolution or {})


async def copy(app: App, graph_id: str, found: Sequence[TaskFile], folder: Path) -> int:
    """Write them below a folder, by their paths; gives how many. Files there are replaced.

    Raises Conflict for two of one path and different content, before any is written, InvalidInput where one cannot be
    written, StorageUnavailable.
    """
    by_path: dict[str, TaskFile] = {}
    for each in found:
        other = by_path.setdefault(each.file.path, each)
        if other.file.digest != each.file.digest:
            both = f"“{other.label}” and “{each.label}”"
            raise Conflict(f"{both} have left different files {each.file.path}; name one of the tasks")
    for path, each in by_path.items():
        try:
            is_whole = await fetch(app.logs, each.file, (graph_id, each.task_id, each.run), folder / path)
        except OSError as error:
            raise unwritable(folder / path, error) from error
        if not is_whole:
            raise StorageUnavailable(f"the file {path} of “{each.label}” is damaged, or was removed")
    return len(by_path)


def answer(graph_id: str, found: Sequence[TaskFile]) -> dict[str, Any]:
    """As JSON."""
    files = [
        {
            "label": each.label,
            "taskId": each.task_id,
            "run": each.run,
            "path": each.file.path,
            "bytes": each.file.size,
            "sha256": each.file.digest,
            "executable": each.file.executable,
        }
        for each in found
    ]
    return {"graphId": graph_id, "files": files}
