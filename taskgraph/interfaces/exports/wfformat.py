"""WfFormat 1.5, the JSON of the WfCommons project: tasks with their edges, and when each ran for how long.

Edges stand between tasks; groups are looked through. The id of a task is its task id, as labels may hold what an id of
that format may not. Of a task that ran more than once the latest run counts; one that runs has no time.
"""

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from taskgraph import __version__
from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.documents.plan import edges_of
from taskgraph.model.ids import task_id_of
from taskgraph.queries.timeline import RunSpan, Timeline

_VERSION: Final = "1.5"


def wfformat_of(document: GraphDocument, found: Timeline) -> dict[str, Any]:
    requires = edges_of(document)
    ids = {label: task_id_of(found.graph_id, label) for label in requires}
    children: dict[str, list[str]] = {label: [] for label in requires}
    for label, others in requires.items():
        for other in others:
            children[other].append(ids[label])
    tasks = [
        {"name": label, "id": ids[label], "parents": [ids[each] for each in others], "children": children[label]}
        for label, others in requires.items()
    ]
    made: dict[str, Any] = {"name": document.metadata.get("name") or found.graph_id}
    if about := document.metadata.get("description"):
        made["description"] = about
    made |= {"createdAt": found.since.isoformat(), "schemaVersion": _VERSION}
    made["runtimeSystem"] = {"name": "taskgraph", "version": __version__}
    workflow: dict[str, Any] = {"specification": {"tasks": tasks}}
    made["workflow"] = workflow
    latest = {span.label: (span, span.ended) for span in found.runs if span.ended is not None}
    if latest:
        machines = dict.fromkeys(span.worker for span, _ in latest.values() if span.worker)
        workflow["execution"] = {
            "makespanInSeconds": found.seconds,
            "executedAt": found.since.isoformat(),
            "tasks": [_run(document.tasks[label], ids[label], *latest[label]) for label in ids if label in latest],
            **({"machines": [{"nodeName": each} for each in machines]} if machines else {}),
        }
    return made


def _run(node: TaskNode, own: str, span: RunSpan, ended: datetime) -> dict[str, Any]:
    made: dict[str, Any] = {"id": own, "runtimeInSeconds": (ended - span.started).total_seconds()}
    payload = node.task.get("payload")
    command = payload.get("command", payload.get("commandLine")) if isinstance(payload, dict) else None
    if command:
        made["command"] = _command(command)
    if span.worker:
        made["machine"] = span.worker
    return made


def _command(command: str | Sequence[Any]) -> dict[str, Any]:
    """A parameter or a result of another task stands as it is written in the document."""
    if isinstance(command, str):
        return {"program": command}
    words = [str(each) for each in command]
    if not all(words):  # that format has no argument without a character
        return {"program": shlex.join(words)}
    return {"program": words[0], "arguments": words[1:]}
