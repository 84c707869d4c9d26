"""Answers as JSON: each answer that a person or a program can get becomes JSON values in one function here.

What this room is for: the shapes of `--json`, one function for each. A shape only grows: keys are added, and none is
renamed or taken away. Functions take values of the rooms below and give objects, arrays, texts, numbers, true, false
and null alone; a value that is none of these is an error and no text. What a request of an operation answers stands
beside that request (`answer`). This room never asks a store, and never formats for a terminal.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from taskgraph.model.errors import InvalidGraph, NotFound, StorageUnavailable, TaskgraphError
from taskgraph.model.states import TaskState

if TYPE_CHECKING:
    from taskgraph.documents.nodes import GraphDocument
    from taskgraph.engine.archive_file import Archived
    from taskgraph.engine.delete import Deleted
    from taskgraph.engine.doctor import Examined
    from taskgraph.engine.plans import EditPreview, RowChange
    from taskgraph.engine.poison import PoisonMessage
    from taskgraph.engine.restore import Plan, Restored
    from taskgraph.engine.schedules import ScheduleDetail
    from taskgraph.engine.store_times import ExaminedStore
    from taskgraph.engine.submission import Submission
    from taskgraph.interfaces.operations.grant import Grant
    from taskgraph.protocol.invariants.findings import Finding
    from taskgraph.protocol.schedule_rules import Schedule
    from taskgraph.queries.overview import Snapshot
    from taskgraph.queries.targets import TargetLimit
    from taskgraph.queries.values import (
        ChannelStatus,
        Event,
        Explanation,
        GraphListed,
        GraphStatus,
        GroupStatus,
        LimitStatus,
        Listing,
        TaskDetail,
        TaskStatus,
    )
    from taskgraph.queries.workers import WorkerStatus
    from taskgraph.storage.tables import Row

Json = dict[str, Any]
"""A JSON object."""


def iso(value: datetime | None) -> str | None:
    """A time for programs, RFC 3339 in UTC."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if value else None


def plain(value: object) -> Any:
    """A value as JSON has it. Raises TypeError for one that has no shape of its own, such as a dataclass."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return str(value)
        case datetime():
            return iso(value)
        case Mapping():
            return {str(name): plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case _:
            raise TypeError(f"{type(value).__name__} is no JSON value")


def fields_of(value: object, *without: str) -> Json:
    """The fields of a dataclass but these, with camelCase keys; what its mappings hold stays as it is."""
    made: Json = {}
    for each in dataclasses.fields(value):  # type: ignore[arg-type]
        if each.name not in without:
            first, *more = each.name.split("_")
            made[first + "".join(word.title() for word in more)] = plain(getattr(value, each.name))
    return made


# --- documents, and what is wrong ------------------------------------------------------------------------------


def error(found: TaskgraphError, code: str, exit_code: int) -> Json:
    """Why there is no answer. code: a short stable word; exit_code: of a command that ends by it."""
    made: Json = {"code": code, "exitCode": exit_code, "message": str(found)}
    match found:
        case InvalidGraph():
            made["source"] = found.source
            made["problems"] = _problems(found)
        case NotFound():
            made["near"] = list(found.near)
        case StorageUnavailable():
            made["endpoint"] = found.endpoint
        case _:
            pass
    return {"error": made}


def _problems(found: InvalidGraph) -> list[Json]:
    return [
        {"pointer": each.pointer, "code": each.code, "message": each.message, "remedy": each.remedy, "line": each.line}
        for each in found.problems
    ]


def invalid_file(found: InvalidGraph) -> Json:
    """A file that holds no graph."""
    return {
        "source": found.source,
        "valid": False,
        "tasks": None,
        "edges": None,
        "problems": _problems(found),
        "warnings": [],
    }


def valid_file(document: "GraphDocument", warnings: InvalidGraph) -> Json:
    """A file that holds a graph. warnings: what is legal in it and looks like a mistake."""
    return {
        "source": warnings.source,
        "valid": True,
        "tasks": len(document.tasks),
        "edges": document.edges,
        "problems": [],
        "warnings": _problems(warnings),
    }


def validated(files: Sequence[Json]) -> Json:
    """Files that were looked at."""
    return {"valid": all(each["valid"] for each in files), "files": list(files)}


def functions(found: Iterable[Json]) -> Json:
    """The functions of an app."""
    return {"functions": list(found)}


# --- graphs and their tasks ------------------------------------------------------------------------------------


def graphs(found: Iterable["GraphListed"]) -> Json:
    """The list of graphs."""
    return {"graphs": [fields_of(each) for each in found]}


def _is_known(found: "GraphStatus", state: TaskState) -> bool:
    """Whether it is certain how many tasks are in this state."""
    if found.exact or state in found.counts or state in (TaskState.COMPLETED, TaskState.SKIPPED):
        return True
    return state in (TaskState.FAILED, TaskState.EXCEPTION) and found.failed_tasks == 0


def graph_status(found: "GraphStatus") -> Json:
    """A graph at a glance. A count that is not known for certain is null."""
    counts = {str(each): found.counts.get(each, 0 if _is_known(found, each) else None) for each in TaskState}
    return {
        **fields_of(found, "counts", "limits"),
        "counts": counts,
        "limits": [
            {"group": each.group or None, "max": each.most, "inFlightCount": each.in_flight} for each in found.limits
        ],
    }


def group_status(found: "GroupStatus") -> Json:
    """A group with its tasks."""
    counts = {str(each): found.counts.get(each, 0) for each in TaskState}
    tasks = [task_status(each) for each in found.listed]
    return {**fields_of(found, "counts", "listed"), "counts": counts, "listed": tasks}


def task_status(task: "TaskStatus") -> Json:
    """A task."""
    return {**fields_of(task), "active": task.active}


def tasks(graph_id: str, found: "Listing", shown: Sequence["TaskStatus"]) -> Json:
    """Tasks of a graph. shown: those of the listing that are named."""
    return {
        "graphId": graph_id,
        "total": found.total,
        "params": plain(found.params),
        "tasks": [task_status(each) for each in shown],
    }


def task(graph_id: str, found: "TaskDetail") -> Json:
    """A task with its edges and its definition."""
    return {
        "graphId": graph_id,
        **task_status(found.status),
        "requires": list(found.requires),
        "optional": list(found.optional),
        "requiresLeft": list(found.requires_left),
        "dependents": list(found.dependents),
        "requiresCount": found.requires_count,
        "requiresLeftCount": found.requires_left_count,
        "dependentsCount": found.dependents_count,
        "definition": plain(found.definition),
    }


def explanation(graph_id: str, label: str, found: "Explanation") -> Json:
    """Why a task does not run. label: the task that was asked about, if nothing was found of it."""
    asked = found.reasons[0].label if found.reasons else label
    reasons = [fields_of(one) for one in found.reasons]
    return {"graphId": graph_id, "label": asked, "reasons": reasons, "omitted": found.omitted}


def log(graph_id: str, label: str, task_id: str, run: int, text: str) -> Json:
    """What a run printed."""
    return {"graphId": graph_id, "label": label, "taskId": task_id, "run": run, "log": text}


def result(graph_id: str, label: str, task_id: str, run: int, value: object) -> Json:
    """What a run gave."""
    return {"graphId": graph_id, "label": label, "taskId": task_id, "run": run, "result": plain(value)}


def event(one: "Event") -> Json:
    """A fact of a journal."""
    return {
        "sequence": one.sequence,
        "cursor": one.cursor,
        "time": iso(one.time),
        "event": one.kind,
        **plain(one.fields),
        "changed": list(one.changed),
    }


def row(graph_id: str, one: "Row") -> Json:
    """A row as a table explorer shows it."""
    return {"PartitionKey": graph_id, "RowKey": one.key, "etag": one.etag, **plain(one.columns)}


def channels(graph_id: str, found: Iterable["ChannelStatus"]) -> Json:
    """Who hears of a graph."""
    return {"graphId": graph_id, "channels": [fields_of(each) for each in found]}


def limits(graph_id: str, found: Iterable["LimitStatus"]) -> Json:
    """The limits of a graph, with the labels of what is in flight under each."""
    listed = [{"group": each.group or None, "max": each.most, "inFlight": list(each.labels)} for each in found]
    return {"graphId": graph_id, "limits": listed}


# --- while a graph runs, line by line, and at its end ----------------------------------------------------------


def progress(graph_id: str, state: str, tasks: int, counts: Mapping[str, int], held: Iterable[str]) -> Json:
    """How far a graph is."""
    return {
        "type": "progress",
        "graphId": graph_id,
        "state": state,
        "tasks": tasks,
        "counts": dict(counts),
        "held": list(held),
    }


def line(kind: str, said: Mapping[str, Any]) -> Json:
    """A line of several, by what it says."""
    return {"type": kind, **said}


def at_time(said: Mapping[str, Any], now: datetime) -> Json:
    """What was so at a time."""
    return {**said, "time": iso(now)}


def failure_line(one: "Event") -> Json:
    """A task that has failed for good, as soon as it has."""
    return {"type": one.kind, "time": iso(one.time), **plain(one.fields)}


def failure(label: str, task_id: str, run: int, state: str, reason: str, log: Sequence[str] | None) -> Json:
    """A task that failed for good. log: the end of what its run printed, where that was looked up."""
    return {
        "label": label,
        "taskId": task_id,
        "run": run,
        "state": state,
        "reason": reason,
        "log": log if log is None else list(log),
    }


def ended(
    graph_id: str,
    state: str,
    tasks: int,
    counts: Mapping[str, int],
    *,
    reruns: int,
    retries: int,
    hand_backs: int,
    seconds: float | None,
    failures: Sequence[Json],
) -> Json:
    """What became of a graph that was waited for. seconds: how long that took, where it was measured."""
    return {
        "graphId": graph_id,
        "state": state,
        "tasks": tasks,
        "counts": dict(counts),
        "reruns": reruns,
        "retries": retries,
        "handBacks": hand_backs,
        "seconds": None if seconds is None else round(seconds, 3),
        "failures": list(failures),
    }


# --- the installation ------------------------------------------------------------------------------------------


def snapshot(found: "Snapshot") -> Json:
    """A look at the whole installation."""
    return {
        "time": iso(found.time),
        "live": found.live,
        "graphs": [fields_of(each) for each in found.graphs],
        "workers": [worker(each) for each in found.workers],
        "queues": [fields_of(each) for each in found.queues],
        "requests": found.requests,
        "seconds": round(found.seconds, 3),
    }


def worker(one: "WorkerStatus") -> Json:
    """A worker."""
    return {**fields_of(one), "seenSeconds": round(one.seen_seconds, 1)}


def workers(found: Iterable["WorkerStatus"]) -> Json:
    """The workers that are registered."""
    return {"workers": [worker(each) for each in found]}


def target_limits(found: Iterable["TargetLimit"]) -> Json:
    """The targets that are limited."""
    return {
        "targets": [
            {
                "target": each.target,
                "max": each.most,
                "since": iso(each.since),
                "reason": each.reason or None,
                "permits": [
                    {"number": one.number, "worker": one.worker, "until": iso(one.until)} for one in each.permits
                ],
            }
            for each in found
        ]
    }


def poison_messages(found: Iterable["PoisonMessage"]) -> Json:
    """Messages that were set aside."""
    return {"messages": [fields_of(each) for each in found]}


def replayed(found: Iterable["PoisonMessage"]) -> Json:
    """Messages that were put back."""
    return {"replayed": [each.key for each in found]}


def grant(found: "Grant") -> Json:
    """A grant, the signature included: it is what was asked for."""
    return {
        "graphId": found.graph_id,
        "url": found.url,
        "token": found.token,
        "endpoint": found.endpoint,
        "table": found.table,
        "partition": found.partition,
        "permissions": "read",
        "starts": iso(found.starts),
        "expires": iso(found.expires),
        "protocols": found.protocols.split(","),
        "addresses": found.addresses or None,
    }


def examined(found: "Examined") -> Json:
    """What the doctor says of a graph."""
    return {
        "graphId": found.graph_id,
        "state": found.state,
        "sound": found.sound,
        "findings": [_finding(each) for each in found.findings],
        "repaired": [_finding(each) for each in found.repaired],
        "unsettled": found.unsettled,
        "why": [{"text": cause.text, "remedy": cause.remedy} for cause in found.causes],
        "rows": found.rows,
    }


def all_examined(found: Sequence["Examined"], missing: Sequence[str], store: "ExaminedStore") -> Json:
    """What the doctor says of the store and every live graph. missing: graphs of the index that have no rows (yet)."""
    sound = all(one.sound for one in found)
    own = {"findings": list(map(_finding, store.findings)), "repaired": list(map(_finding, store.repaired))}
    return {"sound": sound, "store": own, "graphs": [examined(one) for one in found], "missing": list(missing)}


def _finding(one: "Finding") -> Json:
    return {
        "code": one.code,
        "key": one.key,
        "label": one.label,
        "severity": str(one.severity),
        "text": one.text,
        "effect": one.effect,
        "remedy": one.remedy,
        "repairable": one.repairable,
        "refusal": one.refusal,
    }


# --- what was asked for ----------------------------------------------------------------------------------------


def submitted(found: "Submission") -> Json:
    """A graph that was submitted."""
    return {
        "graphId": found.graph_id,
        "outcome": str(found.outcome),
        "tasks": found.tasks,
        "edges": found.edges,
    }


def extended(graph_id: str, request: str, state: str, number: int, waits_for: str) -> Json:
    """An extension by so many tasks. waits_for: "resume" for one of a paused graph, "" for nothing."""
    return {
        "graphId": graph_id,
        "request": request,
        "state": state,
        "tasks": number,
        "waitsFor": waits_for or None,
    }


def rerun(graph_id: str, wanted: Sequence["TaskStatus"], group: str | None) -> Json:
    """Tasks, as they stood, that were asked to run again: one of them, or those of a group."""
    asked = [
        {"label": each.label, "taskId": each.task_id, "replacesRun": each.run, "run": each.run + 1} for each in wanted
    ]
    return (
        {"graphId": graph_id, "group": group, "tasks": asked}
        if group is not None
        else {"graphId": graph_id, **asked[0]}
    )


def edited(graph_id: str, request: str, state: str, revision: object, *, unchanged: bool) -> Json:
    """An edit. revision: the one that it made, None while it has not; unchanged: all was so already, in that one."""
    return {"graphId": graph_id, "request": request, "state": state, "revision": revision, "unchanged": unchanged}


def edit_preview(graph_id: str, found: "EditPreview") -> Json:
    """What an edit would do."""
    return {
        "graphId": graph_id,
        "revision": found.revision,
        "refusal": found.refusal,
        "rows": [_row_change(each) for each in found.rows],
        "facts": plain(found.facts),
        "ready": list(found.ready),
    }


def _row_change(one: "RowChange") -> Json:
    columns = {
        name: {"before": row_value(before), "after": row_value(after)} for name, (before, after) in one.columns.items()
    }
    return {"key": one.key, "label": one.label, "change": one.change, "columns": columns}


def row_value(value: Any) -> Any:
    """A value of a column, its times to the microsecond."""
    return value.isoformat() if isinstance(value, datetime) else value


def target_paused(target: str, *, on: bool, changed: bool) -> Json:
    """A pause of a target, or its end."""
    return {"target": target, "paused": on, "changed": changed}


def target_limited(target: str, most: int, *, changed: bool) -> Json:
    """A new limit of a target, 0 for none."""
    return {"target": target, "max": most or None, "changed": changed}


def drained(name: str, state: str, *, draining: str, exits: bool) -> Json:
    """A worker that was asked to drain, or, with "", to take work again."""
    return {"worker": name, "draining": draining, "exit": exits, "state": state}


# --- keeping ---------------------------------------------------------------------------------------------------


def deleted(done: "Deleted") -> Json:
    """What became of a graph that was to be deleted."""
    return {
        "graphId": done.graph_id,
        "rows": done.rows,
        "logs": done.logs,
        "already": done.again,
        "idFreeAfter": iso(done.until),
    }


def deletions(done: Iterable["Deleted"], failed: Iterable[tuple[str, Json]]) -> Json:
    """Graphs that are deleted, and those that are not, each with the error."""
    return {
        "deleted": [deleted(each) for each in done],
        "failed": [{"graphId": graph_id, **made} for graph_id, made in failed],
    }


def deletable(found: Iterable[tuple[str, str, datetime]]) -> Json:
    """Graphs that would be deleted: id, state, when it ended."""
    return {"graphs": [{"graphId": one, "state": state, "ended": iso(ended)} for one, state, ended in found]}


def archived(done: "Archived", file: str, size: int) -> Json:
    """An archive that was written."""
    return {
        "graphId": done.graph_id,
        "state": done.state,
        "rows": done.rows,
        "logs": done.logs,
        "complete": done.complete,
        "sha256": done.digest,
        "signature": _signature(done),
        "file": file,
        "bytes": size,
    }


def _signature(done: "Archived") -> Json | None:
    return dict(done.signature.object) if done.signature is not None else None


def restore_plan(plan: "Plan") -> Json:
    """What a file would put back."""
    contents, standing = plan.contents, plan.standing
    return {
        "graphId": contents.graph_id,
        "state": contents.state,
        "rows": contents.rows,
        "logs": contents.logs,
        "complete": contents.complete,
        "sha256": contents.digest,
        "signature": _signature(contents),
        "trusted": plan.trusted or None,
        "name": standing.name,
        "created": iso(standing.created),
        "ended": iso(standing.ended),
        "schedule": standing.schedule or None,
        "tasks": dict(standing.tasks),
        "groups": standing.groups,
        "logBytes": contents.log_bytes,
        "notices": list(standing.notices),
        "commands": dict(standing.commands),
        "letGo": list(standing.let_go),
        "refusals": list(standing.refusals),
    }


def restored(done: "Restored", plan: "Plan") -> Json:
    """A graph that was put back."""
    return {
        "graphId": done.graph_id,
        "state": done.state,
        "rows": done.rows,
        "logs": done.logs,
        "already": done.again,
        "plan": restore_plan(plan),
    }


def key_made(file: str, public: str, key: str) -> Json:
    """A key that signs archives, in a file of its own, and its public part beside it."""
    return {"file": file, "public": public, "key": key}


# --- schedules -------------------------------------------------------------------------------------------------


def schedule(one: "Schedule") -> Json:
    """A schedule."""
    recurrence = one.recurrence
    return {
        "name": one.name,
        "active": one.active,
        "cron": recurrence.cron or None,
        "timezone": recurrence.timezone or None,
        "every": recurrence.every or None,
        "anchor": iso(recurrence.anchor),
        "at": iso(recurrence.at),
        "catchUp": str(one.catch_up),
        "overlap": str(one.overlap),
        "keep": one.keep,
        "next": iso(one.next),
        "waiting": [iso(each) for each in one.waiting],
        "firing": iso(one.firing),
        "lastFired": iso(one.last_fired),
        "fired": one.fired,
        "skipped": one.skipped,
        "error": one.error or None,
        "errors": one.errors,
        "tryAfter": iso(one.try_after),
        "tasks": one.tasks,
        "created": iso(one.created),
        "updated": iso(one.updated),
    }


def schedules(found: Iterable["Schedule"]) -> Json:
    """The list of schedules."""
    return {"schedules": [schedule(each) for each in found]}


def schedule_changed(one: "Schedule", outcome: str) -> Json:
    """A schedule, and what became of it."""
    return {**schedule(one), "outcome": outcome}


def schedules_changed(found: Iterable["Schedule"], outcome: str) -> Json:
    """Schedules that were changed at once."""
    return {"schedules": [schedule_changed(each, outcome) for each in found]}


def schedule_detail(found: "ScheduleDetail") -> Json:
    """A schedule with its fires and troubles."""
    return {
        **schedule(found.schedule),
        "upcoming": [iso(each) for each in found.upcoming],
        "runs": [
            {
                "graphId": each.run.graph_id,
                "for": iso(each.run.due),
                "fired": iso(each.run.fired),
                "manual": each.run.manual,
                "state": each.state,
            }
            for each in found.runs
        ],
        "overdueSeconds": found.overdue_seconds,
        "troubles": [{"text": each.text, "remedy": each.remedy} for each in found.troubles],
    }


def fired(name: str, found: "Submission") -> Json:
    """A graph that a schedule was made to submit now."""
    return {"name": name, "graphId": found.graph_id, "outcome": str(found.outcome)}
