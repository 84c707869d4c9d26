"""The methods of the old queue that its clients and workers need beside the scheduler's."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from taskgraph.documents.read import document_from_object
from taskgraph.interfaces.http.work import leaving
from taskgraph.interfaces.operations import cancel, old_tasks, requests, rerun
from taskgraph.interfaces.operations.waiting import ends
from taskgraph.interfaces.taskcluster import documents, statuses
from taskgraph.interfaces.taskcluster.call import Call, Json
from taskgraph.interfaces.taskcluster.errors import CallError
from taskgraph.model.columns import integer
from taskgraph.model.errors import Refused
from taskgraph.model.states import TaskState
from taskgraph.protocol.old_scheduler import KEPT, shown_id
from taskgraph.queries.values import TaskDetail
from taskgraph.worker.executors import Outcome
from taskgraph.worker.executors.contract import failed
from taskgraph.worker.gateway import Report, Returned, RunClaim, Wanted

LEASE_SECONDS: Final = 1_200.0
"""As long a claim held at the old queue: its workers renew it shortly before."""

_WAIT_SECONDS: Final = 20.0
_SETTLE_SECONDS: Final = 20.0
_HANDED_BACK: Final = "worker-shutdown"
_TEMPORARY: Final = "intermittent-task"
_OF_DEFINITION: Final = "A task of this id has another definition"


async def task(call: Call) -> Json:
    graph_id, found = await _found(call)
    return statuses.definition(graph_id, found)


async def status(call: Call) -> Json:
    graph_id, found = await _found(call)
    return {"status": _structure(graph_id, found)}


async def create(call: Call) -> Json:
    """A graph of one task, which has the id of the task."""
    task_id, given = call.path["taskId"], call.body
    workers = f"{given['provisionerId']}/{given['workerType']}"
    routes = [f"queue:route:{each}" for each in given.get("routes", ())]
    call.demand([f"queue:create-task:{workers}", *given.get("scopes", ()), *routes])
    call.demand_graph(task_id)
    made = document_from_object(documents.single(task_id, given), source="body")
    try:
        await old_tasks.enter(call.app, task_id, [task_id])
        await requests.submit(call.app, task_id, made, folder="")
    except Refused as error:
        raise CallError(409, _OF_DEFINITION, {"info": str(error)}) from error
    return await status(call)


async def pending(call: Call) -> Json:
    provisioner, worker_type = call.path["provisionerId"], call.path["workerType"]
    target = documents.target_of(provisioner, worker_type)
    call.demand_all_graphs()
    call.demand_target(target)
    number = await call.app.queries.pending(target)
    return {"provisionerId": provisioner, "workerType": worker_type, "pendingTasks": number}


async def group(call: Call) -> Json:
    graph_id = call.path["taskGroupId"]
    call.demand_graph(graph_id)
    found = await call.app.queries.details(graph_id)
    tasks = [{"status": _structure(graph_id, each), "task": statuses.definition(graph_id, each)} for each in found]
    return {"taskGroupId": graph_id, "tasks": tasks}


async def claim_work(call: Call) -> Json:
    """Held for up to 20 seconds, while there is nothing to claim."""
    call.demand_all_graphs()
    provisioner, worker_type = call.path["provisionerId"], call.path["workerType"]
    wanted = _wanted(call, documents.target_of(provisioner, worker_type), call.body.get("tasks", 1))
    until = call.app.clock.monotonic() + _WAIT_SECONDS
    made: list[Json] = []
    async with leaving(call.asked, watch=True) as gone:
        assigned = await call.app.gateway.claim(wanted, until=until, gone=gone)
    for each in assigned:
        claim = each.claim
        found = await call.app.queries.task(claim.graph_id, each.label, edges=0)
        definition = statuses.whole(claim.graph_id, found.status, each.definition)
        task_id = shown_id(claim.graph_id, each.label)
        if KEPT not in each.definition:  # of another client: its reports will name no graph
            await old_tasks.enter(call.app, claim.graph_id, [task_id])
        answer = _claimed(call, claim.graph_id, found, each.lease_until, call.body)
        made.append({**answer, "task": definition})
    return {"tasks": made}


async def claim(call: Call) -> Json:
    graph_id, found = await _found(call)
    run = _run(call)
    own = found.status
    if own.run != run or own.state not in (TaskState.PENDING, TaskState.RUNNING):
        raise CallError(409, f"run {run} cannot be claimed: the task is {own.state} in run {own.run}")
    wanted = _wanted(call, own.target, 1)
    answered = await call.app.gateway.claim_run(wanted, graph_id, own.task_id, run)
    if answered.lease_until is None:
        raise CallError(409, f"run {run} cannot be claimed: {answered.stale}")
    _, found = await _found(call)
    made = _claimed(call, graph_id, found, answered.lease_until, call.body)
    return {**made, "task": statuses.definition(graph_id, found)}


async def reclaim(call: Call) -> Json:
    """A run that is to be stopped is not claimed again."""
    graph_id, found = await _found(call)
    (answered,) = await call.app.gateway.renew([await _held(call, graph_id, found)], LEASE_SECONDS)
    if answered.lease_until is None or answered.cancel:
        raise CallError(409, answered.stale or f"the task is cancelled: {answered.cancel}")
    group, _, worker = found.status.worker.partition(".")
    who = {"workerGroup": group, "workerId": worker}
    _, found = await _found(call)
    return _claimed(call, graph_id, found, answered.lease_until, who)


async def completed(call: Call) -> Json:
    return await _report(call, Outcome(failed=False))


async def failed_(call: Call) -> Json:
    return await _report(call, failed("its worker reported that it failed"))


async def exception(call: Call) -> Json:
    reason = call.body["reason"]
    if reason == _HANDED_BACK:
        return await _report(call, Returned(reason))
    temporary = reason == _TEMPORARY
    return await _report(
        call, Outcome(failed=True, reason=reason, code=reason, exception=not temporary, temporary=temporary)
    )


async def rerun_task(call: Call) -> Json:
    """Of one that is pending or runs there is a run already."""
    graph_id, found = await _found(call)
    if found.status.state not in (TaskState.PENDING, TaskState.RUNNING):
        try:
            done = await rerun.ask(call.app, graph_id, [found.status.label])
            await rerun.settled(call.app, done, until=ends(call.app.clock, _SETTLE_SECONDS))
        except Refused as error:
            raise CallError(409, str(error)) from error
    return await status(call)


async def cancel_task(call: Call) -> Json:
    """One that has ended stays as it is."""
    graph_id, found = await _found(call)
    if found.status.state in (TaskState.UNSCHEDULED, TaskState.PENDING, TaskState.RUNNING):
        done = await cancel.ask(call.app, graph_id, [found.status.label], terminate=True)
        await cancel.settled(call.app, done, until=ends(call.app.clock, _SETTLE_SECONDS))
    return await status(call)


async def _found(call: Call) -> tuple[str, TaskDetail]:
    """The task that is called about, and its graph. Raises NotFound, CallError."""
    task_id = call.path["taskId"]
    graph_id = await old_tasks.graph_of(call.app, task_id)
    call.demand_graph(graph_id)
    return graph_id, await call.app.queries.task(graph_id, task_id, edges=0)


def _structure(graph_id: str, found: TaskDetail) -> Json:
    return statuses.structure(graph_id, found.status, statuses.definition(graph_id, found))


def _run(call: Call) -> int:
    text = call.path["runId"]
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise CallError(400, f"runId {text[:20]} is no number")
    return int(text)


def _wanted(call: Call, target: str, slots: int) -> Wanted:
    name = statuses.worker_name(call.body["workerGroup"], call.body["workerId"])
    call.demand([f"queue:worker-id:{call.body['workerGroup']}/{call.body['workerId']}"])
    call.demand_target(target)
    gateway, token = call.app.gateway, call.sender.token
    room = gateway.in_flight_max - gateway.crew.in_hand(token)
    if room <= 0:
        raise CallError(429, f"the token {token} has {gateway.in_flight_max:,} runs in hand: report some first")
    return Wanted(name, target, slots=min(slots, room), lease_seconds=LEASE_SECONDS, token=token)


def _claimed(call: Call, graph_id: str, found: TaskDetail, until: datetime, who: Mapping[str, str]) -> Json:
    """What a worker gets with a claim; its credentials are for this run, as long as the claim holds."""
    made = _structure(graph_id, found)
    run = f"{made['taskId']}/{found.status.run}"
    may = [f"queue:{each}:{run}" for each in ("reclaim-task", "resolve-task")]
    return {
        "status": made,
        "runId": found.status.run,
        "workerGroup": who["workerGroup"],
        "workerId": who["workerId"],
        "takenUntil": statuses.time_text(until),
        "credentials": call.sender.lend(f"task-client/{run}", may, call.app.clock.now(), until),
    }


async def _held(call: Call, graph_id: str, found: TaskDetail) -> RunClaim:
    """The run that is named, by the claim of its task's row: another one is stale then."""
    call.demand_target(found.status.target)
    row = await call.app.queries.find_task(graph_id, found.status.label)
    own = integer(row.columns, "run") == _run(call)
    text = str(row.columns.get("claim", "")) if own else ""
    return RunClaim(graph_id, found.status.task_id, _run(call), text or "none")


async def _report(call: Call, ended: Outcome | Returned) -> Json:
    graph_id, found = await _found(call)
    claim = await _held(call, graph_id, found)
    (answered,) = await call.app.gateway.report([Report(claim, ended)])
    if answered.stale:
        raise CallError(409, f"run {claim.run} cannot be resolved: {answered.stale}")
    return await status(call)
