"""The methods of the old scheduler."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from taskgraph.documents.read import document_from_object
from taskgraph.interfaces.operations import grant, old_tasks, requests
from taskgraph.interfaces.operations.waiting import ends
from taskgraph.interfaces.taskcluster import documents, labels
from taskgraph.interfaces.taskcluster.call import BASE, Call, Json
from taskgraph.interfaces.taskcluster.errors import NO_GRAPH, CallError
from taskgraph.model.columns import object_of
from taskgraph.model.errors import Refused
from taskgraph.model.ids import task_id_of
from taskgraph.model.states import GRAPH_GONE, GraphState, TaskState
from taskgraph.protocol import old_scheduler
from taskgraph.protocol.old_scheduler import SLUGID, shown_id
from taskgraph.queries.values import TaskDetail
from taskgraph.storage.tables import Row

_DIFFERENT_TASK: Final = "Different TaskId with given TaskId already exists"
_EXTEND_SECONDS: Final = 25.0
_TASK_STATES: Final[Mapping[str, str]] = {
    TaskState.UNSCHEDULED: "unscheduled",
    TaskState.PENDING: "scheduled",
    TaskState.RUNNING: "scheduled",
    TaskState.COMPLETED: "completed",
    TaskState.FAILED: "completed",  # and not satisfied: the old scheduler never wrote “failed”
}
_METADATA: Final = ("name", "description", "owner", "source")
_NAME_CHARS_MAX: Final = 255


async def create(call: Call) -> Json:
    """A repeat with the same content gives the same answer, whatever has become of the graph."""
    graph_id, body = call.path["taskGraphId"], call.body
    call.demand_graph(graph_id)
    call.demand([*body.get("scopes", ()), *(f"scheduler:route:{each}" for each in body.get("routes", ()))])
    if not SLUGID.fullmatch(graph_id):
        raise CallError(400, f"taskGraphId {graph_id[:100]} is no slugid")
    made = document_from_object({**documents.document(graph_id, body), "notify": call.notify}, source="body")
    try:
        await old_tasks.enter(call.app, graph_id, made.tasks)
        done = await requests.submit(call.app, graph_id, made, folder="")
    except Refused as error:
        message = {
            "different-content": "Different TaskGraph with given taskGraphId already exists",
            "taken": _DIFFERENT_TASK,
        }.get(error.code, str(error))
        raise CallError(409, message, {"info": str(error)}) from error
    return {"status": await _status(call, done.graph_id)}


async def create_labelled(call: Call) -> Json:
    """As clients of 2014 did: the id is made here, so a repeat makes another graph."""
    graph_id = call.app.clock.new_id()
    call.demand_graph(graph_id)
    body = labels.read(graph_id, call.body)
    call.demand(labels.scopes(body))
    made = document_from_object({**labels.document(graph_id, body), "notify": call.notify}, source="body")
    await old_tasks.enter(call.app, graph_id, [shown_id(graph_id, each) for each in made.tasks])
    await requests.submit(call.app, graph_id, made, folder="")
    return {"status": await _status(call, graph_id)}


async def table_access(call: Call) -> Json:
    """The rows of one graph, and no others: the table has the tokens, too."""
    graph_id = call.asked.query.get("taskGraphId", "")
    if not graph_id:
        here = f"{BASE}/table-access?taskGraphId=ID"
        raise CallError(
            400, f"The whole table is opened to none, as tokens are in it: ask {here} for the rows of a graph"
        )
    await graph_row(call, graph_id)
    granted = await grant.read(call.app, graph_id)
    place = urlsplit(granted.endpoint)
    return {
        "accountName": place.path.strip("/") or str(place.hostname).partition(".")[0],  # an emulator has it in the path
        "sharedSignature": dict(parse_qsl(granted.token)),
        "taskGraphTable": granted.table,
    }


async def extend(call: Call) -> Json:
    """Answered once the tasks are in the graph."""
    graph_id, nodes = call.path["taskGraphId"], call.body["tasks"]
    row = await graph_row(call, graph_id)
    named = documents.required(nodes)
    found = await call.app.queries.statuses(graph_id, [task_id_of(graph_id, each) for each in named])
    document = documents.extension(graph_id, nodes, {each.label for each in found})
    documents.check_scopes(nodes, old_scheduler.kept(row.columns).get("scopes", []))
    made = document_from_object(document, source="body", kind="extension")
    try:
        await old_tasks.enter(call.app, graph_id, made.tasks)
        asked = await requests.extend(call.app, graph_id, made)
        until = ends(call.app.clock, _EXTEND_SECONDS)
        done = await requests.extended(call.app, asked, until=until, deferred=True)
    except Refused as error:
        taken = error.code == "taken" or "already has a different task" in str(error)
        raise CallError(409, _DIFFERENT_TASK if taken else str(error), {"info": str(error)}) from error
    if done.state != "done":
        raise CallError(503, "the tasks are not in the graph yet: ask again", {"info": f"request {done.request}"})
    return {"status": await _status(call, graph_id)}


async def status(call: Call) -> Json:
    graph_id = call.path["taskGraphId"]
    return {"status": await _status(call, graph_id)}


async def info(call: Call) -> Json:
    graph_id = call.path["taskGraphId"]
    return _info(await graph_row(call, graph_id), graph_id)


async def inspect(call: Call) -> Json:
    graph_id = call.path["taskGraphId"]
    row = await graph_row(call, graph_id)
    found, kept = await call.app.queries.details(graph_id), old_scheduler.kept(row.columns)
    if "routing" in kept:
        tasks = labels.inspected(graph_id, found, f"{str(call.asked.request.base_url).rstrip('/')}{BASE}/task")
        return {**_info(row, graph_id), "tasks": tasks, "params": kept.get("params", {})}
    return {
        **_info(row, graph_id),
        "tasks": [_task(each, graph_id) for each in found],
        "scopes": kept.get("scopes", []),
    }


async def inspect_task(call: Call) -> Json:
    graph_id = call.path["taskGraphId"]
    await graph_row(call, graph_id)
    return _task(await call.app.queries.task(graph_id, call.path["taskId"]), graph_id)


async def graph_row(call: Call, graph_id: str) -> Row:
    """The row of a graph that old clients can see. Raises CallError."""
    call.demand_graph(graph_id)
    row = await call.app.queries.graph_row(graph_id)
    if row.columns.get("state") in {*GRAPH_GONE, GraphState.RESTORING}:
        raise CallError(404, NO_GRAPH)
    return row


async def _status(call: Call, graph_id: str) -> Json:
    columns = (await graph_row(call, graph_id)).columns
    return old_scheduler.status(graph_id, columns, old_scheduler.state_of(columns))


def _info(row: Row, graph_id: str) -> Json:
    metadata = object_of(row.columns, "metadata")
    return {
        "status": old_scheduler.status(graph_id, row.columns, old_scheduler.state_of(row.columns)),
        "metadata": {key: metadata.get(key, "") for key in _METADATA},
        "tags": object_of(row.columns, "tags"),
    }


def _task(found: TaskDetail, graph_id: str) -> Json:
    def shown(edges: Any) -> list[str]:
        return [shown_id(graph_id, each) for each in edges]

    task, metadata = found.status, found.definition.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return {
        "taskId": shown_id(graph_id, task.label),
        "name": str(name or task.label)[:_NAME_CHARS_MAX],
        "requires": shown(found.requires),
        "requiresLeft": shown(found.requires_left),
        "reruns": task.reruns_allowed,
        "rerunsLeft": task.reruns_left,
        "state": _TASK_STATES.get(task.state, "exception"),
        "satisfied": task.state == TaskState.COMPLETED,
        "dependents": shown(found.dependents),
    }
