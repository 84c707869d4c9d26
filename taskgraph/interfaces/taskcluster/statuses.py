"""Tasks as the old queue showed them: their definition, their state, and each of their runs."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from taskgraph.interfaces.taskcluster import documents
from taskgraph.interfaces.taskcluster.call import Json
from taskgraph.model.schemas import parse_date_time
from taskgraph.model.states import TaskState
from taskgraph.protocol.old_scheduler import SCHEDULER_ID, shown_id
from taskgraph.queries.values import TaskDetail, TaskStatus

_KEPT_DAYS: Final = 365
_METADATA: Final = ("name", "description", "owner", "source")
_STATES: Final[Mapping[str, str]] = {
    TaskState.UNSCHEDULED: "unscheduled",
    TaskState.PENDING: "pending",
    TaskState.RUNNING: "running",
    TaskState.COMPLETED: "completed",
    TaskState.FAILED: "failed",
}
# How a run ended -> state, reasonResolved, and why there is a run after it.
_ENDS: Final[Mapping[str, tuple[str, str, str]]] = {
    "completed": ("completed", "completed", "rerun"),
    "failed": ("failed", "failed", "rerun"),
    "temporary": ("exception", "intermittent-task", "task-retry"),
    "lost": ("exception", "claim-expired", "retry"),
    "handed-back": ("exception", "worker-shutdown", "retry"),
    "cancelled": ("exception", "canceled", "rerun"),
}
_OTHER_END: Final = ("exception", "internal-error", "rerun")
# Code of a resolution -> reasonResolved.
_CODES: Final[Mapping[str, str]] = {
    "deadline-exceeded": "deadline-exceeded",
    "malformed-payload": "malformed-payload",
    "resource-unavailable": "resource-unavailable",
    "superseded": "superseded",
}


def time_text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def definition(graph_id: str, found: TaskDetail) -> Json:
    """The definition as an old client gave it; of a task that it did not submit, with what there must be made up."""
    return whole(graph_id, found.status, found.definition)


def whole(graph_id: str, status: TaskStatus, task: Mapping[str, Any]) -> Json:
    """task: the definition, perhaps with results put in."""
    made = documents.definition(task)
    created = status.pending_since or status.started or status.resolved
    metadata = made.get("metadata")
    named = metadata if isinstance(metadata, dict) else {}
    deadline = status.deadline or (created + timedelta(days=_KEPT_DAYS) if created else None)
    return {
        "provisionerId": "taskgraph",
        "workerType": status.target[:22],
        "schedulerId": SCHEDULER_ID,
        "taskGroupId": graph_id,
        **({"created": time_text(created)} if created else {}),
        **({"deadline": time_text(deadline)} if deadline else {}),
        "payload": {},
        **made,
        "metadata": {key: str(named.get(key, status.label if key == "name" else "")) for key in _METADATA},
    }


def structure(graph_id: str, status: TaskStatus, task: Mapping[str, Any]) -> Json:
    """The status of a task. task: its definition, as `whole` gives it."""
    deadline = str(task.get("deadline", ""))
    expires = task.get("expires") or time_text(parse_date_time(deadline) + timedelta(days=_KEPT_DAYS))
    return {
        "taskId": shown_id(graph_id, status.label),
        **{key: task[key] for key in ("provisionerId", "workerType", "schedulerId", "taskGroupId")},
        "deadline": deadline,
        "expires": expires,
        "retriesLeft": status.retries_left,
        "state": _STATES.get(status.state, "exception"),
        "runs": _runs(status),
    }


def _runs(status: TaskStatus) -> list[Json]:
    """The runs that the row lists, the latest ones, and the present one."""
    found: list[Json] = []
    created = "scheduled"
    for record in status.runs:
        state, reason, next_created = _ENDS.get(str(record.get("outcome")), _OTHER_END)
        started, ended = (str(record.get(key) or "") for key in ("started", "ended"))
        found.append(
            {
                "runId": int(record.get("run", 0)),
                "state": state,
                "reasonCreated": created,
                "reasonResolved": reason,
                **_worker(str(record.get("worker", ""))),
                "scheduled": _at(started or ended),
                **({"started": _at(started)} if started else {}),
                "resolved": _at(ended),
            }
        )
        created = next_created
    if status.state != TaskState.UNSCHEDULED:
        found.append(_present(status, created))
    return found


def _present(status: TaskStatus, created: str) -> Json:
    state = _STATES.get(status.state, "exception")
    scheduled = status.pending_since or status.started or status.resolved
    made: Json = {"runId": status.run, "state": state, "reasonCreated": created}
    if scheduled is not None:
        made["scheduled"] = time_text(scheduled)
    if status.started is not None and state != "pending":
        made |= {**_worker(status.worker), "started": time_text(status.started)}
    if state == "running" and status.lease_until is not None:
        made["takenUntil"] = time_text(status.lease_until)
    if status.resolved is not None and state not in ("pending", "running"):  # a rerun keeps when the last run ended
        made |= {"resolved": time_text(status.resolved), "reasonResolved": _reason(status, state)}
    return made


def _reason(status: TaskStatus, state: str) -> str:
    if state != "exception":
        return state
    if status.state in (TaskState.CANCELLED, TaskState.SKIPPED):
        return "canceled"
    return _CODES.get(str((status.resolution or {}).get("code", "")), "internal-error")


def _at(text: str) -> str:
    return time_text(parse_date_time(text))


def worker_name(group: str, worker: str) -> str:
    return f"{group}.{worker}"


def _worker(name: str) -> Json:
    group, dot, worker = name.partition(".")
    return {"workerGroup": group if dot else "taskgraph", "workerId": worker if dot else name} if name else {}
