"""WfFormat, the JSON of the WfCommons project, versions 1.4 and 1.5: recorded runs of scientific workflows.

Labels are the names of the tasks where these are unique, else their ids. An edge counts that only one of `parents` and
`children` states, by id or by name.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from taskgraph.documents.importers.shaping import Imported, Reader, stand_in
from taskgraph.documents.problems import nearest
from taskgraph.model.json_strict import Path, show


def convert(obj: Any, *, source: str = "document") -> Imported:
    reader = Reader(source)
    whole = reader.mapping(obj, (), "The document")
    workflow = reader.mapping(whole.get("workflow", {}), ("workflow",), "`workflow`")
    listed, place = _listed(workflow, reader)
    measured = _measured(workflow, reader)
    tasks = {index: reader.mapping(task, (*place, index), f"Task {index}") for index, task in enumerate(listed)}
    labels = _labels(tasks, place, reader)
    resolve = _resolver(tasks, labels)
    edges = _edges(tasks, labels, resolve, place, reader)
    made: dict[str, Any] = {}
    without = 0
    for index, label in labels.items():
        task = tasks[index]
        record, record_place = measured.get(task.get("id"), measured.get(task.get("name"), (task, (*place, index))))
        key = "runtime" if "runtimeInSeconds" not in record and "runtime" in record else "runtimeInSeconds"
        seconds = reader.seconds(record.get(key), (*record_place, key), f"`{key}`")
        without += seconds is None
        command = _command_line(record.get("command"), (*record_place, "command"), reader)
        made[label] = {"requires": list(edges[index]), "task": stand_in(seconds, command)}
    reader.note_count(
        without, "One task has no runtime and became a noop.", "{} tasks have no runtime and became noops."
    )
    author = whole.get("author")
    return reader.document(
        made,
        {label: (*place, index) for index, label in labels.items()},
        metadata=reader.metadata(
            name=whole.get("name"),
            description=whole.get("description"),
            owner=author.get("email") if isinstance(author, dict) else None,
            source=workflow.get("repo"),
        ),
        tags=reader.tags({"schemaVersion": whole.get("schemaVersion"), "createdAt": whole.get("createdAt")}),
    )


def _listed(workflow: Mapping[str, Any], reader: Reader) -> tuple[list[Any], Path]:
    if "specification" in workflow:
        above: Path = ("workflow", "specification")
        specification = reader.mapping(workflow["specification"], above, "`workflow.specification`")
        place: Path = (*above, "tasks")
        return reader.array(specification.get("tasks", []), place, "`specification.tasks`"), place
    key = "jobs" if "jobs" in workflow and "tasks" not in workflow else "tasks"
    place = ("workflow", key)
    if key not in workflow:
        message = "`workflow` has neither `specification.tasks` (1.5) nor `tasks` (1.4)."
        remedy = "Check that the file is WfFormat of one of these versions."
        reader.problem(("workflow",), "missing", message, remedy)
    return reader.array(workflow.get(key, []), place, f"`workflow.{key}`"), place


def _measured(workflow: Mapping[str, Any], reader: Reader) -> dict[Any, tuple[dict[str, Any], Path]]:
    """What was measured, by id of the task; empty for 1.4, where it stands on the tasks themselves."""
    if "execution" not in workflow:
        return {}
    execution = reader.mapping(workflow["execution"], ("workflow", "execution"), "`workflow.execution`")
    place: Path = ("workflow", "execution", "tasks")
    found: dict[Any, tuple[dict[str, Any], Path]] = {}
    for index, one in enumerate(reader.array(execution.get("tasks", []), place, "`execution.tasks`")):
        record = reader.mapping(one, (*place, index), f"Task {index} of the execution")
        if isinstance(record.get("id"), str):
            found[record["id"]] = (record, (*place, index))
    return found


def _labels(tasks: Mapping[int, Mapping[str, Any]], place: Path, reader: Reader) -> dict[int, str]:
    names = Counter(task.get("name") for task in tasks.values() if isinstance(task.get("name"), str))
    by_name = len(names) == len(tasks) and "" not in names
    labels: dict[int, str] = {}
    seen: set[str] = set()
    for index, task in tasks.items():
        if by_name:
            label = str(task["name"])
        else:
            key = "id" if "id" in task else "name"
            label = reader.text(task.get(key), (*place, index, key), f"`{key}` of task {index}")
        if label in seen:
            message = f"Two tasks are called {show(label)}."
            reader.problem((*place, index), "duplicate-label", message, "Give each task an id of its own.")
        seen.add(label)
        labels[index] = label
    return labels


def _resolver(tasks: Mapping[int, Mapping[str, Any]], labels: Mapping[int, str]) -> dict[str, int]:
    """From whatever may name a task to its position. An id wins over the name of another task."""
    found: dict[str, int] = {}
    for index, task in tasks.items():
        if isinstance(task.get("name"), str):
            found.setdefault(task["name"], index)
    found |= {task["id"]: index for index, task in tasks.items() if isinstance(task.get("id"), str)}
    for index, label in labels.items():
        found.setdefault(label, index)
    return found


def _edges(
    tasks: Mapping[int, Mapping[str, Any]],
    labels: Mapping[int, str],
    resolve: Mapping[str, int],
    place: Path,
    reader: Reader,
) -> dict[int, dict[str, None]]:
    """For each task the labels that it requires, in the order in which they were stated."""
    stated: dict[str, set[tuple[int, int]]] = {"parents": set(), "children": set()}
    requires: dict[int, dict[str, None]] = {index: {} for index in tasks}
    repeated = 0
    for key, pairs in stated.items():
        for index, task in tasks.items():
            path: Path = (*place, index, key)
            for position, name in enumerate(reader.texts(task.get(key, []), path, f"`{key}`")):
                other = resolve.get(name)
                if other is None:
                    near = "".join(f" Did you mean {show(one)}?" for one in nearest(name, resolve, 1))
                    who = f"{show(labels[index])} names {show(name)} among its {key}"
                    message = f"{who}, which is not a task.{near}"
                    reader.problem((*path, position), "unknown-label", message, "Correct the name, or add the task.")
                    continue
                pair = (other, index) if key == "parents" else (index, other)
                repeated += pair in pairs
                pairs.add(pair)
                requires[pair[1]][labels[pair[0]]] = None
    reader.note_count(repeated, "One edge was stated twice.", "{} edges were stated twice.")
    if stated["parents"] and stated["children"]:
        one_sided = len(stated["parents"] ^ stated["children"])
        reader.note_count(
            one_sided,
            "One edge was stated by one of its tasks only, and was kept.",
            "{} edges were stated by one of their tasks only, and were kept.",
        )
    return requires


def _command_line(command: Any, path: Path, reader: Reader) -> str | None:
    if command is None:
        return None
    if isinstance(command, str):
        return command
    parts = reader.mapping(command, path, "`command`")
    program = parts.get("program")
    words = [program] if isinstance(program, str) and program else []
    return " ".join([*words, *reader.texts(parts.get("arguments", []), (*path, "arguments"), "`arguments`")]) or None
