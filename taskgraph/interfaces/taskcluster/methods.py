"""The table of methods of the old clients: where each is, what it takes and answers, and who may call it."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from taskgraph.interfaces.taskcluster import scheduler
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

METHODS: Final = (
    Method(
        *("PUT", _GRAPH, "createTaskGraph", scheduler.create, _STATUS, "task-graph"),
        scopes=("scheduler:create-task-graph",),
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
)
