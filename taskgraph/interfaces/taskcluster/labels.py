"""Graphs as clients of 2014 gave them: tasks by label, and parameters that are put into texts; the ids are made here.

They become graphs of version 1, whose taskIds are the derived ones. What that version has no place for stands in a
task's `extra`, and in the graph's parameter `taskcluster`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from taskgraph.interfaces.http.asked import BODY_BYTES_MAX
from taskgraph.interfaces.taskcluster import documents
from taskgraph.interfaces.taskcluster.call import Json
from taskgraph.interfaces.taskcluster.errors import CallError
from taskgraph.model.states import TaskState
from taskgraph.protocol.old_scheduler import KEPT, shown_id
from taskgraph.queries.values import TaskDetail

_NAMED: Final = re.compile(r"\{\{([^{}]*)\}\}")
_SUBS: Final = "$subs"
_ROUTING_CHARS_MAX: Final = 10  # of a document; a longer one is shown, and no fact has it
_EXTRA: Final = ("version", "routing", "timeout", "priority")


def read(graph_id: str, body: Any) -> Json:
    """The body with its parameters and the ids of its tasks put in, if it is as its schema says. Raises CallError."""
    tasks = _object(body, "tasks")
    names = {name: text for name, text in _object(body, "params").items() if isinstance(text, str)}
    names |= {f"taskId:{label}": shown_id(graph_id, label) for label in tasks}
    names["taskGraphId"] = graph_id
    filling = _Filling(names)
    made = {key: value if key == "params" else filling.fill(value) for key, value in _object(body).items()}
    if _object(made, "tasks").keys() != tasks.keys():
        raise CallError(400, "A parameter may not change the label of a task")
    return documents.check(made if isinstance(body, dict) else body, "labelled-task-graph")


class _Filling:
    """Puts values in place of `{{NAME}}` in texts and keys, and of `{"$subs": NAME}`; unknown names are left."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._room = BODY_BYTES_MAX

    def fill(self, value: Any) -> Any:
        if isinstance(value, str):
            return _NAMED.sub(lambda part: self._value(part[1], part[0]), value)
        if isinstance(value, list):
            return [self.fill(each) for each in value]
        if not isinstance(value, dict):
            return value
        if value.keys() == {_SUBS} and isinstance(name := value[_SUBS], str) and name in self._names:
            return self._value(name, "")
        made = {self.fill(key): self.fill(each) for key, each in value.items()}
        if len(made) < len(value):
            raise CallError(400, "Parameters may not make two keys of an object the same")
        return made

    def _value(self, name: str, otherwise: str) -> str:
        text = self._names.get(name, otherwise)
        self._room -= len(text)
        if self._room < 0:
            raise CallError(400, f"With its parameters put in, it would have more than {BODY_BYTES_MAX:,} characters")
        return text


def document(graph_id: str, body: Json) -> Json:
    """A graph that was read, as a document."""
    tasks = {label: _node(graph_id, label, node) for label, node in body["tasks"].items()}
    if not tasks:
        raise CallError(400, "A task-graph has at least one task")
    routing = body.get("routing", "")
    kept = {"scopes": scopes(body), "routes": [], "routing": routing, "params": body.get("params", {})}
    return {
        "metadata": {"description": "", **body["metadata"]} if "metadata" in body else {},
        "tags": body.get("tags", {}),
        "routing": routing if len(routing) <= _ROUTING_CHARS_MAX else "",
        "params": {KEPT: {"type": "object", "default": kept}},
        "tasks": tasks,
    }


def scopes(body: Json) -> list[str]:
    """What its sender must have to define its tasks, which is also all that the graph itself has."""
    workers = {(each["task"]["provisionerId"], each["task"]["workerType"]) for each in body["tasks"].values()}
    return [f"queue:define-task:{provisioner}/{kind}" for provisioner, kind in sorted(workers)]


def _node(graph_id: str, label: str, node: Json) -> Json:
    given = node["task"]
    task = {key: value for key, value in given.items() if key not in _EXTRA}
    task["metadata"] = {"description": "", **given["metadata"]}
    task["extra"] = {key: given[key] for key in _EXTRA if key in given}
    made = documents.node_of(graph_id, {**node, "taskId": label, "task": task})
    if 0 < len(routing := given.get("routing", "")) <= _ROUTING_CHARS_MAX:
        made["task"]["routing"] = routing
    return made


def inspected(graph_id: str, found: Sequence[TaskDetail], tasks_url: str) -> Json:
    """The tasks of a graph by label. tasks_url: below which their definitions are."""
    return {each.status.label: _task(graph_id, each, tasks_url) for each in found}


def _task(graph_id: str, found: TaskDetail, tasks_url: str) -> Json:
    task_id = shown_id(graph_id, found.status.label)
    edges = {"requires": found.requires, "requiresLeft": found.requires_left, "dependents": found.dependents}
    return {
        "taskId": task_id,
        "taskUrl": f"{tasks_url}/{task_id}",
        **{key: [shown_id(graph_id, each) for each in labels] for key, labels in edges.items()},
        "reruns": found.status.reruns_allowed,
        "rerunsLeft": found.status.reruns_left,
        "resolution": _resolution(found.status.state),
    }


def _resolution(state: str) -> Json | None:
    if state in (TaskState.UNSCHEDULED, TaskState.PENDING, TaskState.RUNNING):
        return None
    return {"completed": state in (TaskState.COMPLETED, TaskState.FAILED), "success": state == TaskState.COMPLETED}


def _object(body: Any, key: str = "") -> Mapping[str, Any]:
    """The body, or a value in it, as far as it is an object; what is none is refused by the schema."""
    found: Any = body if isinstance(body, dict) else {}
    if key:
        found = found.get(key)
    return found if isinstance(found, dict) else {}
