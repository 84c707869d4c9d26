"""What old clients submit, as documents: their taskIds are labels, and their definitions are kept whole.

The requirements of the old scheduler that no document has (routes, scopes, ids that must fit) are checked here, all at
once.
"""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from taskgraph.interfaces.taskcluster import scopes
from taskgraph.interfaces.taskcluster.call import Json
from taskgraph.interfaces.taskcluster.errors import CallError
from taskgraph.model import schemas
from taskgraph.model.json_pointer import pointer
from taskgraph.protocol.notices import OLD_SCHEDULER
from taskgraph.protocol.old_scheduler import KEPT, SCHEDULER_ID, SLUGID

EXECUTOR: Final = "taskcluster"
"""Of tasks whose payload is for the workers of old clients; no worker of taskgraph has it."""

_DEFAULTS: Final[Mapping[str, Any]] = {
    "routes": [],
    "priority": "normal",
    "retries": 5,
    "scopes": [],
    "tags": {},
    "extra": {},
}
_OURS: Final = ("payload", "metadata", "deadline")  # keys that a definition of taskgraph has, too
_COMMAND_KEYS: Final = {"command", "env", "maxRunTime"}
_PLAIN: Final = re.compile(r"(?!tc-|host-)[a-z0-9]{1,38}-[a-z0-9]{1,38}")
_TARGET_CHARS_MAX: Final = 40
_HASH_CHARS: Final = 24
_PROBLEMS_MAX: Final = 100


def target_of(provisioner: str, worker_type: str) -> str:
    """The target of the old queue's workers: both names, or a hash where two pairs could give the same text."""
    plain = f"{provisioner}-{worker_type}"
    if _PLAIN.fullmatch(plain) and len(plain) <= _TARGET_CHARS_MAX:
        return plain
    digest = hashlib.sha256(f"{provisioner}/{worker_type}".encode()).digest()
    return f"tc-{base64.b32encode(digest).decode().lower()[:_HASH_CHARS]}"


def exchanges(queue: str) -> Json:
    """`notify` of graphs whose messages go to this queue."""
    channel = {"queue": queue, "format": OLD_SCHEDULER}
    return dict.fromkeys(("onRunning", "onExtended", "onBlocked", "onFinished"), channel)


def check(body: Any, schema: str) -> Json:
    """The body, if it is as its schema says. Raises CallError with all that is not."""
    validator = schemas.validator("taskcluster", f"#/$defs/{schema}")
    if not validator.is_valid(body):
        wrong = [
            {"message": error.message[:300], "error": pointer(tuple(error.absolute_path))}
            for error, _ in zip(validator.iter_errors(body), range(_PROBLEMS_MAX), strict=False)
        ]
        raise CallError(400, "Request payload must follow the schema: " + schema, wrong)
    return dict(body)


def document(graph_id: str, body: Json) -> Json:
    """A task graph as a document. Raises CallError with all that is wrong with its tasks."""
    nodes, granted = body["tasks"], body.get("scopes", [])
    if not nodes:
        raise CallError(400, "A task-graph has at least one task")
    _check_nodes(graph_id, nodes, {each["taskId"] for each in nodes})
    check_scopes(nodes, granted)
    kept = {"scopes": granted, "routes": body.get("routes", [])}
    return {
        "metadata": body["metadata"],
        "tags": body.get("tags", {}),
        "params": {KEPT: {"type": "object", "default": kept}},
        "tasks": _tasks(graph_id, nodes),
    }


def single(task_id: str, task: Json) -> Json:
    """A task alone as a document. Raises CallError."""
    if not SLUGID.fullmatch(task_id):
        raise CallError(400, f"taskId {task_id[:100]} is no slugid")
    made = node_of(task.get("taskGroupId", task_id), {"taskId": task_id, "task": task})
    return {"metadata": task["metadata"], "tags": task.get("tags", {}), "tasks": {task_id: made}}


def extension(graph_id: str, nodes: Sequence[Json], known: set[str]) -> Json:
    """Tasks as a document that extends a graph. known: taskIds of the graph that they require. Raises CallError."""
    if not nodes:
        raise CallError(400, "There must be at least one task")
    _check_nodes(graph_id, nodes, {*known, *(each["taskId"] for each in nodes)})
    return {"tasks": _tasks(graph_id, nodes)}


def required(nodes: Sequence[Json]) -> set[str]:
    """TaskIds that tasks require, and that are none of them."""
    return {each for node in nodes for each in node.get("requires", ())} - {node["taskId"] for node in nodes}


def _tasks(graph_id: str, nodes: Sequence[Json]) -> Json:
    return {node["taskId"]: node_of(graph_id, node) for node in nodes}


def node_of(graph_id: str, node: Json) -> Json:
    """A task of a document. node: as an old client gave it."""
    task = node["task"]
    payload = task["payload"]
    kept = {**_DEFAULTS, "schedulerId": SCHEDULER_ID, "taskGroupId": graph_id, **task}
    made: Json = {
        "requires": node.get("requires", []),
        "reruns": node.get("reruns", 0),
        "priority": kept["priority"],
        "task": {
            "executor": "command" if _is_command(payload) else EXECUTOR,
            "target": target_of(task["provisionerId"], task["workerType"]),
            **{key: task[key] for key in _OURS},
            KEPT: {key: value for key, value in kept.items() if key not in _OURS},
        },
    }
    if made["task"]["executor"] == "command" and "maxRunTime" in payload:
        made["maxRunTime"] = payload["maxRunTime"]
    return made


def _is_command(payload: Json) -> bool:
    """Whether it says no more than what taskgraph's own workers do."""
    return payload.keys() <= _COMMAND_KEYS and isinstance(payload.get("command"), list)


def definition(task: Mapping[str, Any]) -> Json:
    """The definition that an old client gave, of the one that is kept."""
    return {**task.get(KEPT, {}), **{key: task[key] for key in _OURS if key in task}}


def _check_nodes(graph_id: str, nodes: Sequence[Json], known: set[str]) -> None:
    wrong: list[Json] = []
    twice = [task_id for task_id, number in Counter(each["taskId"] for each in nodes).items() if number > 1]
    wrong += [_problem("taskId stands for several tasks", {"taskId": each}) for each in twice]
    for node in nodes:
        task_id, task, requires = node["taskId"], node["task"], node.get("requires", [])
        for key, wanted in (("schedulerId", SCHEDULER_ID), ("taskGroupId", graph_id)):
            if task.get(key, wanted) != wanted:
                wrong.append(_problem(f"{key} must be {wanted}", {"taskId": task_id, key: task[key]}))
        if len(set(requires)) < len(requires):
            wrong.append(_problem("requires has an entry twice", {"taskId": task_id, "requires": requires}))
        if unknown := [each for each in requires if each not in known]:
            wrong.append(_problem("requires names tasks that there are not", {"taskId": task_id, "missing": unknown}))
    if wrong:
        raise CallError(400, "Errors found in task nodes", wrong[:_PROBLEMS_MAX])


def check_scopes(nodes: Sequence[Json], granted: Sequence[str]) -> None:
    """Raise CallError unless the scopes of a graph allow to define its tasks, as the old queue demanded it."""
    wrong: list[Json] = []
    for node in nodes:
        task = node["task"]
        workers = f"{task['provisionerId']}/{task['workerType']}"
        either = [f"queue:define-task:{workers}", f"queue:create-task:{workers}"]
        wanted = [f"queue:route:{each}" for each in task.get("routes", ())] + task.get("scopes", [])
        missing = scopes.missing(granted, wanted)
        if not any(scopes.covers(granted, each) for each in either):
            missing.insert(0, either[0])
        if missing:
            wrong.append(
                _problem("the graph lacks scopes for this task", {"taskId": node["taskId"], "scopes": missing})
            )
    if wrong:
        raise CallError(400, "The scopes of the graph do not allow to define its tasks", wrong[:_PROBLEMS_MAX])


def _problem(message: str, error: Json) -> Json:
    return {"message": message, "error": error}
