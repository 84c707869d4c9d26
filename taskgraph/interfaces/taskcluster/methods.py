"""The table of methods of the old clients: where each is, what it takes and answers, and who may call it."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from taskgraph.interfaces.taskcluster import exchanges, queue, scheduler
from taskgraph.interfaces.taskcluster.call import Call
from taskgraph.model.roles import Role


@dataclass(frozen=True, slots=True)
class Method:
    """path: below /v1. takes, gives: names of schemas. scopes: that its sender must have, with parts of the path.

    role: that its token must have beside these; reads need no scopes.
    """

    method: str
    path: str
    name: str
    call: Callable[[Call], Awaitable[Any]]
    gives: str = ""
    takes: str = ""
    scopes: Sequence[str] = ()
    role: Role | None = None

    @property
    def route(self) -> str:
        """As Starlette writes it."""
        return re.sub(r"<(\w+)>", r"{\1}", self.path)


_READER: Final = Role.READER
_GRAPH: Final = "/task-graph/<taskGraphId>"
_STATUS: Final = "task-graph-status-response"

_TASK: Final = "/task/<taskId>"
_RUN: Final = f"{_TASK}/runs/<runId>"
_WORKERS: Final = "<provisionerId>/<workerType>"
_TASK_STATUS: Final = "task-status-response"
_RESOLVE: Final = ("queue:resolve-task:<taskId>/<runId>",)

METHODS: Final = (
    Method(
        *("PUT", _GRAPH, "createTaskGraph", scheduler.create, _STATUS, "task-graph"),
        scopes=("scheduler:create-task-graph",),
    ),
    Method(  # its body is checked once its parameters are put in
        *("POST", "/task-graph/create", "createTaskGraph", scheduler.create_labelled, _STATUS),
        scopes=("scheduler:create-task-graph",),
    ),
    Method(
        *("GET", "/table-access", "requestTableAccess", scheduler.table_access, "table-access-response"),
        role=Role.ADMIN,
    ),
    Method(
        *("POST", f"{_GRAPH}/extend", "extendTaskGraph", scheduler.extend, _STATUS, "extend-task-graph"),
        scopes=("scheduler:extend-task-graph:<taskGraphId>",),
    ),
    Method("GET", f"{_GRAPH}/status", "status", scheduler.status, _STATUS, role=_READER),
    Method("GET", f"{_GRAPH}/info", "info", scheduler.info, "task-graph-info-response", role=_READER),
    Method("GET", f"{_GRAPH}/inspect", "inspect", scheduler.inspect, "inspect-task-graph-response", role=_READER),
    Method(
        "GET",
        f"{_GRAPH}/inspect/<taskId>",
        "inspectTask",
        scheduler.inspect_task,
        "inspect-task-graph-task-response",
        role=_READER,
    ),
    Method("GET", "/exchange/<exchange>", "listen", exchanges.listen, role=_READER),
    Method("GET", _TASK, "task", queue.task, "task"),
    Method("GET", f"{_TASK}/status", "status", queue.status, _TASK_STATUS),
    Method("PUT", _TASK, "createTask", queue.create, _TASK_STATUS, "task"),
    Method(
        "POST", f"{_TASK}/rerun", "rerunTask", queue.rerun_task, _TASK_STATUS, scopes=("queue:rerun-task:<taskId>",)
    ),
    Method(
        "POST", f"{_TASK}/cancel", "cancelTask", queue.cancel_task, _TASK_STATUS, scopes=("queue:cancel-task:<taskId>",)
    ),
    Method(
        "GET", "/task-group/<taskGroupId>/list", "listTaskGroup", queue.group, "list-task-group-response", role=_READER
    ),
    Method("GET", f"/pending/{_WORKERS}", "pendingTasks", queue.pending, "pending-tasks-response"),
    Method(
        *("POST", f"/claim-work/{_WORKERS}", "claimWork", queue.claim_work),
        *("claim-work-response", "claim-work-request"),
        scopes=(f"queue:claim-work:{_WORKERS}",),
    ),
    Method(
        *("POST", f"{_RUN}/claim", "claimTask", queue.claim, "task-claim-response", "task-claim-request"),
        scopes=("queue:claim-task:<taskId>/<runId>",),
    ),
    Method(
        *("POST", f"{_RUN}/reclaim", "reclaimTask", queue.reclaim, "task-reclaim-response"),
        scopes=("queue:reclaim-task:<taskId>/<runId>",),
    ),
    Method("POST", f"{_RUN}/completed", "reportCompleted", queue.completed, _TASK_STATUS, scopes=_RESOLVE),
    Method("POST", f"{_RUN}/failed", "reportFailed", queue.failed_, _TASK_STATUS, scopes=_RESOLVE),
    Method(
        *("POST", f"{_RUN}/exception", "reportException", queue.exception, _TASK_STATUS, "task-exception-request"),
        scopes=_RESOLVE,
    ),
)
