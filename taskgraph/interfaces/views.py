"""Answers as JSON: the shapes of `--json`, one function for each.

A shape only grows: keys are added, and none is renamed or taken away. The answers to requests stand beside these
requests (`answer` in `operations`). No function here asks a store, or formats for a terminal.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from taskgraph.interfaces.meanings import meaning
from taskgraph.model.errors import InvalidGraph, NotFound, StorageUnavailable, TaskgraphError
from taskgraph.model.states import TASK_UNRESOLVED, TaskState

if TYPE_CHECKING:
    from taskgraph.documents.nodes import GraphDocument
    from taskgraph.engine.archive_file import Archived
    from taskgraph.engine.delete import Deleted
    from taskgraph.engine.doctor import Examined
    from taskgraph.engine.foresight import Foreseen
    from taskgraph.engine.poison import PoisonMessage
    from taskgraph.engine.restore import Plan, Restored
    from taskgraph.engine.schedules import ScheduleDetail
    from taskgraph.engine.store_times import ExaminedStore
    from taskgraph.engine.submission import Extension, Submission
    from taskgraph.interfaces.operations.grant import Grant
    from taskgraph.interfaces.operations.tokens import Token
    from taskgraph.protocol.invariants.findings import Finding
    from taskgraph.protocol.schedule_rules import Schedule
    from taskgraph.queries import values
    from taskgraph.queries.document import Stored
    from taskgraph.queries.overview import Snapshot
    from taskgraph.queries.targets import TargetLimit
    from taskgraph.queries.timeline import Timeline
    from taskgraph.queries.workers import Crew, HandlerStatus, WorkerStatus
    from taskgraph.storage.logs import LogPage
    from taskgraph.storage.tables import Row
    from taskgraph.worker.gateway import Answered, Assignment, RunClaim

Json = dict[str, Any]
"""A JSON object."""

_LISTED_MAX: Final = 1_000


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


def attributes(value: object, *names: str) -> Json:
    """These attributes, with camelCase keys; what their mappings hold stays as it is."""
    made: Json = {}
    for name in names:
        first, *more = name.split("_")
        made[first + "".join(part.title() for part in more)] = plain(getattr(value, name))
    return made


def fields_of(value: object, *without: str) -> Json:
    """The fields of a dataclass but these, as `attributes` gives them."""
    names = [each.name for each in dataclasses.fields(value)]  # type: ignore[arg-type]
    return attributes(value, *(name for name in names if name not in without))


def _all_of(found: Iterable[object]) -> list[Json]:
    return [fields_of(each) for each in found]


def _sized(value: object, *without: str) -> Json:
    """The fields of something with a number of tasks, which is `taskCount`: `tasks` is a list everywhere."""
    return {"taskCount" if key == "tasks" else key: each for key, each in fields_of(value, *without).items()}


# --- documents, and what is wrong ------------------------------------------------------------------------------


def error(found: TaskgraphError, code: str, exit_code: int) -> Json:
    """Why there is no answer. code: a short stable word; exit_code: of a command that ends by it."""
    made: Json = {"code": code, "exitCode": exit_code, "message": str(found)}
    match found:
        case InvalidGraph():
            made["source"] = found.source
            made["problems"] = _all_of(found.problems)
        case NotFound():
            made["near"] = list(found.near)
        case StorageUnavailable():
            made["endpoint"] = found.endpoint
        case _:
            pass
    return {"error": made}


def invalid_file(found: InvalidGraph) -> Json:
    sizes = {"taskCount": None, "edges": None}
    return {"source": found.source, "valid": False, **sizes, "problems": _all_of(found.problems), "warnings": []}


def valid_file(document: "GraphDocument", warnings: InvalidGraph, expanded: Json | None) -> Json:
    """warnings: what is legal in the file and looks like a mistake. expanded: the document written out."""
    sizes = {"taskCount": len(document.tasks), "edges": document.edges}
    made = {"source": warnings.source, "valid": True, **sizes, "problems": [], "warnings": _all_of(warnings.problems)}
    return made if expanded is None else {**made, "document": expanded}


def stored_document(found: "Stored") -> Json:
    return {**attributes(found, "graph_id", "same"), "document": found.to_dict()}


def validated(files: Sequence[Json]) -> Json:
    return {"valid": all(each["valid"] for each in files), "files": list(files)}


def graph_begun(template: str, files: Sequence[str], steps: Sequence[str]) -> Json:
    """steps: what to type next."""
    return {"template": template, "files": list(files), "next": list(steps)}


def functions(found: Iterable[Json]) -> Json:
    return {"functions": list(found)}


# --- graphs and their tasks ------------------------------------------------------------------------------------


def graphs(found: Iterable["values.GraphListed"], *, looked_until: datetime | None = None) -> Json:
    return {"graphs": list(map(_sized, found)), **({"lookedUntil": looked_until} if looked_until else {})}


def _is_known(found: "values.GraphStatus", state: TaskState) -> bool:
    """Whether it is certain how many tasks are in this state."""
    if found.exact or state in found.counts or state in (TaskState.COMPLETED, TaskState.SKIPPED):
        return True
    return state in (TaskState.FAILED, TaskState.EXCEPTION, TaskState.CANCELLED) and found.failed_tasks == 0


def graph_status(found: "values.GraphStatus") -> Json:
    """A graph at a glance. A count that is not known for certain is null."""
    counts = {str(each): found.counts.get(each, 0 if _is_known(found, each) else None) for each in TaskState}
    return {
        **_sized(found, "counts", "limits"),
        "counts": counts,
        "limits": [
            {"group": each.group or None, "max": each.most, "inFlightCount": each.in_flight} for each in found.limits
        ],
    }


def group_status(found: "values.GroupStatus") -> Json:
    counts = {str(each): found.counts.get(each, 0) for each in TaskState}
    more = {"counts": counts, "tasks": [task_status(each) for each in found.listed]}
    return {**_sized(found, "counts", "listed"), "success": found.success and fields_of(found.success), **more}


def task_status(task: "values.TaskStatus") -> Json:
    return {**fields_of(task), "active": task.active}


def tasks(graph_id: str, found: "values.Listing", shown: Sequence["values.TaskStatus"]) -> Json:
    """shown: those of the listing that are named."""
    return {"graphId": graph_id, **attributes(found, "total", "params"), "tasks": list(map(task_status, shown))}


def task(graph_id: str, found: "values.TaskDetail") -> Json:
    edges = attributes(found, "requires", "optional", "requires_left", "dependents")
    counts = attributes(found, "requires_count", "requires_left_count", "dependents_count")
    definition = plain(found.definition)
    return {"graphId": graph_id, **task_status(found.status), **edges, **counts, "definition": definition}


def explanation(graph_id: str, label: str, found: "values.Explanation") -> Json:
    """label: of the task that was asked about, if nothing was found of it."""
    asked = found.reasons[0].label if found.reasons else label
    return {"graphId": graph_id, "label": asked, "reasons": _all_of(found.reasons), "omitted": found.omitted}


def timeline(found: "Timeline") -> Json:
    spans = [
        {
            **attributes(each, "label", "task_id", "run", "outcome", "worker", "ready", "started", "ended"),
            "seconds": ((each.ended or found.until) - each.started).total_seconds(),
        }
        for each in found.runs
    ]
    path = [attributes(each, "label", "task_id", "seconds", "ran_seconds", "waited_seconds") for each in found.path]
    whole = attributes(found, "graph_id", "state", "since", "until", "seconds", "never_ran")
    return {**whole, "runs": spans, "criticalPath": path}


def log(graph_id: str, label: str, task_id: str, run: int, text: str) -> Json:
    return {"graphId": graph_id, "label": label, "taskId": task_id, "run": run, "log": text}


def log_line(graph_id: str, label: str, task_id: str, run: int, text: str) -> Json:
    """text: without the end of the line."""
    return {"graphId": graph_id, "label": label, "taskId": task_id, "run": run, "text": text}


def result(graph_id: str, label: str, task_id: str, run: int, value: object) -> Json:
    return {"graphId": graph_id, "label": label, "taskId": task_id, "run": run, "result": plain(value)}


def event(one: "values.Event") -> Json:
    """Of facts, which are JSON as they are: a journal has many."""
    place = {"sequence": one.sequence, "cursor": one.cursor, "time": iso(one.time)}
    return {**place, "event": one.kind, **one.fields, "changed": list(one.changed)}


def row(graph_id: str, one: "Row") -> Json:
    """A row as a table explorer shows it."""
    return {"PartitionKey": graph_id, "RowKey": one.key, "etag": one.etag, **plain(one.columns)}


def rows(graph_id: str, found: Iterable["Row"]) -> Json:
    return {"graphId": graph_id, "rows": [row(graph_id, each) for each in found]}


def events(graph_id: str, found: Iterable["values.Event"]) -> Json:
    return {"graphId": graph_id, "events": list(map(event, found))}


def channels(graph_id: str, found: Iterable["values.ChannelStatus"]) -> Json:
    listed = [{**fields_of(each, "tasks"), "ofTasks": each.tasks} for each in found]
    return {"graphId": graph_id, "channels": listed}


def limits(graph_id: str, found: Iterable["values.LimitStatus"]) -> Json:
    """The limits of a graph, with the labels of what is in flight under each."""
    listed = [{"group": each.group or None, "max": each.most, "inFlight": list(each.labels)} for each in found]
    return {"graphId": graph_id, "limits": listed}


# --- while a graph runs, line by line, and at its end ----------------------------------------------------------


def _counted(tasks: int, counts: Mapping[str, int]) -> Json:
    """By what a journal knows: of a task that has not ended, not whether it runs, is ready or waits: null."""
    left = counts["waiting"]
    by_state = {str(each): None if left and each in TASK_UNRESOLVED else counts.get(each, 0) for each in TaskState}
    return {"taskCount": tasks, "unresolved": left, "counts": by_state}


def progress(graph_id: str, state: str, tasks: int, counts: Mapping[str, int], held: Iterable[str]) -> Json:
    return {
        "type": "progress",
        "graphId": graph_id,
        "state": state,
        **_counted(tasks, counts),
        "held": list(held),
    }


def line(kind: str, said: Mapping[str, Any]) -> Json:
    return {"type": kind, **said}


def at_time(said: Mapping[str, Any], now: datetime) -> Json:
    return {**said, "time": iso(now)}


def failure_line(one: "values.Event") -> Json:
    return {"type": one.kind, "time": iso(one.time), **plain(one.fields)}


def failure(label: str, task_id: str, run: int, state: str, reason: str, log: Sequence[str] | None) -> Json:
    """A task that failed for good. log: the end of what its run printed, where that was looked up."""
    lines = None if log is None else list(log)
    return {"label": label, "taskId": task_id, "run": run, "state": state, "reason": reason, "log": lines}


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
        **_counted(tasks, counts),
        "reruns": reruns,
        "retries": retries,
        "handBacks": hand_backs,
        "seconds": None if seconds is None else round(seconds, 3),
        "failures": list(failures),
    }


# --- the installation ------------------------------------------------------------------------------------------


def capabilities(version: str) -> Json:
    """What a server can. stream: server-sent events. wait: long polls."""
    return {"name": "taskgraph", "version": version, "api": "v1", "stream": True, "wait": True, "act": True}


def health() -> Json:
    return {"ready": True}


def snapshot(found: "Snapshot") -> Json:
    return {
        "time": iso(found.time),
        "live": found.live,
        "graphs": list(map(_sized, found.graphs)),
        **workers(found.crew),
        "queues": _all_of(found.queues),
        "requests": found.requests,
        "seconds": round(found.seconds, 3),
    }


def workers(found: "Crew") -> Json:
    def shown(each: "HandlerStatus | WorkerStatus") -> Json:
        return {**fields_of(each), "seenSeconds": round(each.seen_seconds, 1)}

    return {"workers": list(map(shown, found.workers)), "handlers": list(map(shown, found.handlers))}


def target_limits(found: Iterable["TargetLimit"]) -> Json:
    return {
        "targets": [
            {
                "target": each.target,
                "max": each.most,
                "since": iso(each.since),
                "reason": each.reason or None,
                "by": each.by or None,
                "permits": [attributes(one, "number", "worker", "until") for one in each.permits],
            }
            for each in found
        ]
    }


def poison_messages(found: Iterable["PoisonMessage"]) -> Json:
    return {"messages": _all_of(found)}


def replayed(found: Iterable["PoisonMessage"]) -> Json:
    return {"replayed": [each.key for each in found]}


def grant(found: "Grant") -> Json:
    """The signature is included: it is what was asked for."""
    return {
        **attributes(found, "graph_id", "url", "token", "endpoint", "table", "link"),
        "partition": found.graph_id,
        "permissions": "read",
        "starts": None,  # at once, whatever the clocks say
        "expires": iso(found.expires),
        "protocols": found.protocols.split(","),
        "addresses": found.addresses or None,
    }


def tokens(found: Iterable["Token"]) -> Json:
    return {"tokens": [token(each) for each in found]}


def token(found: "Token", text: str = "") -> Json:
    """text: what it is, where it has just been made."""
    shown = {**fields_of(found), "role": str(found.role)}
    return {**shown, "token": text} if text else shown


def examined(found: "Examined") -> Json:
    return {
        **attributes(found, "graph_id", "state", "sound"),
        **_findings(found),
        "unsettled": found.unsettled,
        "why": _all_of(found.causes),
        "rows": found.rows,
    }


def standstill(found: "Examined") -> Json:
    """Why a graph does not move."""
    return {**attributes(found, "graph_id", "state"), "causes": _all_of(found.causes)}


def all_examined(found: Sequence["Examined"], missing: Sequence[str], store: "ExaminedStore") -> Json:
    """What the doctor says of the store and every live graph. missing: graphs of the index that have no rows (yet)."""
    sound = all(one.sound for one in found)
    graphs = list(map(examined, found))
    return {"sound": sound, "store": _findings(store), "graphs": graphs, "missing": list(missing)}


def _findings(found: "Examined | ExaminedStore") -> Json:
    def shown(one: "Finding") -> Json:
        what = attributes(one, "code", "key", "label", "severity", "text", "effect", "remedy")
        return {**what, **attributes(one, "repairable", "refusal")}

    return {"findings": list(map(shown, found.findings)), "repaired": list(map(shown, found.repaired))}


# --- what was asked for ----------------------------------------------------------------------------------------


def submitted(found: "Submission") -> Json:
    return _sized(found)


def extended(graph_id: str, request: str, state: str, number: int, waits_for: str) -> Json:
    """An extension by so many tasks. waits_for: "resume" for one of a paused graph, "" for nothing."""
    asked = {"graphId": graph_id, "request": request, "state": state}
    return {**asked, "taskCount": number, "waitsFor": waits_for or None}


def request(graph_id: str, name: str, columns: Mapping[str, Any]) -> Json:
    """An extension or edit that was asked for. state: staged, accepted, done, refused."""
    kept = {each: columns.get(each) or None for each in ("kind", "state", "reason", "waitsFor")}
    return {"graphId": graph_id, "request": name, **kept, "revision": columns.get("revision")}


def edited(graph_id: str, request: str, state: str, revision: object, *, unchanged: bool) -> Json:
    """An edit. revision: the one that it made, None while it has not; unchanged: all was so already, in that one."""
    return {"graphId": graph_id, "request": request, "state": state, "revision": revision, "unchanged": unchanged}


def change_plan(found: "Foreseen") -> Json:
    """What a change would do. Lists have their first entries; how many there are stands beside them."""
    return {
        "graphId": found.graph_id,
        "plan": found.digest,
        **attributes(found, "revision", "event"),
        "graph": _before_and_after(found.graph),
        "limits": [
            {"group": group or None, "before": before, "after": after}
            for group, (before, after) in found.limits.items()
        ],
        "tasks": [
            {
                **attributes(each, "label", "task_id"),
                "from": each.state or None,
                "to": each.to or None,
                "run": each.run,
                "toRun": each.to_run,
                "columns": _before_and_after(each.columns),
            }
            for each in found.tasks[:_LISTED_MAX]
        ],
        "taskCount": len(found.tasks),
        "held": found.held,
        "ready": list(found.ready[:_LISTED_MAX]),
        "readyCount": len(found.ready),
        "facts": [plain(each) for each in found.facts[:_LISTED_MAX]],
        "refused": list(found.refused[:_LISTED_MAX]),
    }


def _before_and_after(columns: Mapping[str, tuple[Any, Any]]) -> Json:
    return {name: {"before": row_value(before), "after": row_value(after)} for name, (before, after) in columns.items()}


def change_applied(asked: "Extension", plan: str, state: str) -> Json:
    """A change that was asked for under the digest of its plan. state: of the request."""
    return {"graphId": asked.graph_id, "request": asked.request, "plan": plan, "state": state}


def change_plans(change: Mapping[str, Any], found: "Mapping[str, Foreseen | TaskgraphError]") -> Json:
    """The plans of one change of many graphs. It is applied by giving all of it back."""
    plans = [{"graphId": graph_id, **_or_why(each, "plan", change_plan)} for graph_id, each in found.items()]
    return {"change": dict(change), "plans": plans}


def changes_applied(found: "Mapping[str, Extension | TaskgraphError]", plans: Mapping[str, str]) -> Json:
    """What became of one change of many graphs, under the digests of its plans."""

    def applied(asked: "Extension") -> Json:
        return change_applied(asked, plans[asked.graph_id], asked.state)

    return {"changes": [{"graphId": each, **_or_why(what, "request", applied)} for each, what in found.items()]}


def _or_why(found: Any, name: str, view: Callable[[Any], Json]) -> Json:
    """A member with the view of what was found, or with why there is none."""
    if not isinstance(found, TaskgraphError):
        return {name: view(found), "error": None}
    what = meaning(found)
    return {name: None, **error(found, what.word, what.exit_code)}


def row_value(value: Any) -> Any:
    """A value of a column, its times to the microsecond."""
    return value.isoformat() if isinstance(value, datetime) else value


def stored_rows(found: Iterable["Row | None"], after: str | None) -> Json:
    """Rows as a store has them, null for one that there is not. after: where the next page begins."""
    return {"rows": [None if each is None else _stored_row(each) for each in found], "next": after}


def stored_reads(answers: Sequence[Json | None]) -> Json:
    return {"answers": list(answers)}


def _stored_row(row: "Row") -> Json:
    from taskgraph.model import column_json  # here: rows are shown so by a server alone

    columns = {name: column_json.as_json(value) for name, value in row.columns.items()}
    return {"key": row.key, "etag": row.etag, "columns": columns}


def run_files(graph_id: str, page: "LogPage") -> Json:
    files = [{"taskId": each.task_id, "run": each.run, "name": each.name, "bytes": each.size} for each in page.files]
    return {"graphId": graph_id, "files": files, "next": page.continuation}


def queue_length(queue: str, messages: int) -> Json:
    return {"queue": queue, "messages": messages}


def target_paused(target: str, *, on: bool, changed: bool) -> Json:
    return {"target": target, "paused": on, "changed": changed}


def target_limited(target: str, most: int, *, changed: bool) -> Json:
    """A new limit of a target, 0 for none."""
    return {"target": target, "max": most or None, "changed": changed}


def drained(name: str, state: str, *, draining: str, exits: bool) -> Json:
    """A worker that was asked to drain, or, with "", to take work again."""
    return {"worker": name, "draining": draining, "exit": exits, "state": state}


def work(
    found: Iterable["Assignment"], done: Iterable["Answered"], renewed: Iterable["Answered"], draining: str, exits: bool
) -> Json:
    """What a worker over HTTP gets."""
    return {
        "tasks": list(map(assigned, found)),
        "done": list(map(run_answered, done)),
        "renewed": list(map(run_answered, renewed)),
        "draining": draining,
        "exit": exits,
    }


def assigned(one: "Assignment") -> Json:
    claim = str(one.claim)
    return {
        "claim": claim,
        **attributes(one.claim, "graph_id", "task_id", "run"),
        "label": one.label,
        "definition": dict(one.definition),
        "leaseUntil": iso(one.lease_until),
        "log": f"/api/v1/runs/{claim}/log",
    }


def run_answered(one: "Answered") -> Json:
    """What became of a report or a renewal. stale: why the claim does not hold any more."""
    return {
        "claim": str(one.claim),
        "stale": one.stale or None,
        "cancel": bool(one.cancel),
        "reason": one.cancel or None,
        "leaseUntil": iso(one.lease_until),
    }


def log_kept(claim: "RunClaim", size: int) -> Json:
    return {"claim": str(claim), "bytes": size}


# --- keeping ---------------------------------------------------------------------------------------------------


def deleted(done: "Deleted") -> Json:
    taken = attributes(done, "graph_id", "rows", "logs")
    return {**taken, "already": done.again, "idFreeAfter": iso(done.until)}


def deletions(done: Iterable["Deleted"], failed: Iterable[tuple[str, Json]]) -> Json:
    return {
        "deleted": [deleted(each) for each in done],
        "failed": [{"graphId": graph_id, **made} for graph_id, made in failed],
    }


def deletable(found: Iterable[tuple[str, str, datetime]]) -> Json:
    """Graphs that would be deleted: id, state, when it ended."""
    return {"graphs": [{"graphId": one, "state": state, "ended": iso(ended)} for one, state, ended in found]}


def imported(document: Json, notes: Sequence[str]) -> Json:
    """A graph of another program as a document. notes: what was left out or changed."""
    return {"document": document, "notes": list(notes)}


def archived(done: "Archived", file: str, size: int) -> Json:
    return {**_contents(done), "file": file, "bytes": size}


def _contents(done: "Archived") -> Json:
    signature = dict(done.signature.object) if done.signature is not None else None
    graph = attributes(done, "graph_id", "state", "rows", "logs", "complete")
    return {**graph, "sha256": done.digest, "signature": signature}


def restore_plan(plan: "Plan") -> Json:
    contents, standing = plan.contents, plan.standing
    return {
        **_contents(contents),
        "trusted": plan.trusted or None,
        **attributes(standing, "name", "created", "ended"),
        "schedule": standing.schedule or None,
        "taskCount": sum(standing.tasks.values()),
        "counts": {str(each): standing.tasks.get(each, 0) for each in TaskState},
        "groups": standing.groups,
        "logBytes": contents.log_bytes,
        **attributes(standing, "notices", "commands", "let_go", "refusals"),
    }


def restored(done: "Restored", plan: "Plan") -> Json:
    put_back = attributes(done, "graph_id", "state", "rows", "logs")
    return {**put_back, "already": done.again, "plan": restore_plan(plan)}


def key_made(file: str, public: str, key: str) -> Json:
    return {"file": file, "public": public, "key": key}


# --- schedules -------------------------------------------------------------------------------------------------


def schedule(one: "Schedule") -> Json:
    recurrence = one.recurrence
    return {
        **attributes(one, "name", "active"),
        **{name: getattr(recurrence, name) or None for name in ("cron", "timezone", "every")},
        **attributes(recurrence, "anchor", "at"),
        **attributes(one, "catch_up", "overlap", "keep", "next", "waiting", "firing", "last_fired", "fired", "skipped"),
        "error": one.error or None,
        "taskCount": one.tasks,
        **attributes(one, "errors", "try_after", "created", "updated"),
        "by": one.by or None,
    }


def schedules(found: Iterable["Schedule"]) -> Json:
    return {"schedules": [schedule(each) for each in found]}


def schedule_changed(one: "Schedule", outcome: str) -> Json:
    return {**schedule(one), "outcome": outcome}


def schedules_changed(found: Iterable["Schedule"], outcome: str) -> Json:
    return {"schedules": [schedule_changed(each, outcome) for each in found]}


def schedule_detail(found: "ScheduleDetail") -> Json:
    return {
        **schedule(found.schedule),
        "upcoming": plain(found.upcoming),
        "runs": [
            {
                "graphId": each.run.graph_id,
                "for": iso(each.run.due),
                **attributes(each.run, "fired", "manual"),
                "state": each.state,
            }
            for each in found.runs
        ],
        "overdueSeconds": found.overdue_seconds,
        "troubles": _all_of(found.troubles),
    }


def fired(name: str, found: "Submission") -> Json:
    return {"name": name, "graphId": found.graph_id, "outcome": str(found.outcome)}
