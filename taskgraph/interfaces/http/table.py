"""The routes of the API, in the order of the reference page."""

import functools
from collections.abc import Sequence
from typing import Any, Final

from taskgraph.documents.importers import FORMATS
from taskgraph.interfaces import exports
from taskgraph.interfaces.http import (
    archives,
    changes,
    openapi,
    operate,
    ports,
    reads,
    rehearsals,
    schedules,
    streams,
    work,
    writes,
)
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.http.routes import ANY_BODY, FILE_BODY, Parameter, Route
from taskgraph.interfaces.operations import grant, shares
from taskgraph.model import limits
from taskgraph.model.limits import GRAPH_ID_PATTERN
from taskgraph.model.roles import Role
from taskgraph.model.states import PAUSED, GraphState, TaskState

_TEXT: Final = {"type": "string", "maxLength": 255}
_FLAG: Final = {"type": "boolean", "default": False}
_TIME: Final = {"type": "string", "format": "date-time", "maxLength": 40}

_STATE = Parameter("state", "Only graphs in this state.", {"type": "string", "enum": [*map(str, GraphState), PAUSED]})
_TASK_STATE = Parameter("state", "Only tasks in this state.", {"type": "string", "enum": [*map(str, TaskState)]})
_MATCH = Parameter("match", "Only labels with this in them.", _TEXT)
_KEY: Final = {"type": "string", "maxLength": limits.KEY_CHARS_MAX}
_NEXT = Parameter("page", "Where the page begins: `next` of the page before.", {"type": "string", "maxLength": 4_000})
_PAGE = Parameter(
    "page", "Where the page begins: from `Link` of the page before.", {"type": "string", "maxLength": 400}
)
_EXTENSION = Parameter("extension", "The document is an extension: it may name tasks of a graph.", _FLAG)
_EXPANDED = Parameter("expanded", "Give a valid one back, with its short forms written out.", _FLAG)
_MAX = Parameter(
    "max", "0: any number.", {"type": "integer", "minimum": 0, "maximum": limits.IN_FLIGHT_MAX, "default": 0}
)
_HOURS = Parameter(
    "hours",
    "For so long.",
    {"type": "number", "minimum": 0, "maximum": grant.HOURS_MAX, "default": grant.HOURS_DEFAULT},
)
_SHARE_HOURS = Parameter(
    "hours",
    "For so long.",
    {"type": "number", "minimum": 0, "maximum": limits.SHARE_HOURS_MAX, "default": shares.HOURS_DEFAULT},
)
_FORCE = Parameter(
    "force", "Also a blocked one, which could go on, and one with notices that are not delivered yet.", _FLAG
)
_OPERATION = Parameter(
    "operation",
    "Only if this is still the last operation on the row of the graph.",
    {"type": "string", "maxLength": 64},
)
_REASON = Parameter("reason", "For people.", {"type": "string", "maxLength": 1_000})
_UNGUARDED = Parameter("unguarded", "Make the change whatever has become of the graph by then.", _FLAG)
_DRY_RUN = Parameter("dryRun", "Answer with the plan of the change; nothing is written.", _FLAG)
_PLAN = Parameter(
    "plan",
    "The digest of a plan: make the change just so, or answer 412 with the plan as it is now.",
    {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
)
_REQUEST = Parameter(
    "request",
    "An id for it; made from its content otherwise.",
    {"type": "string", "pattern": GRAPH_ID_PATTERN},
)

_OFFSET = Parameter(
    "offset",
    "Where in the log the body begins; what is there already is not written again.",
    {"type": "integer", "minimum": 0, "default": 0},
)

PATH: Final = {
    "graph": Parameter("graph", "The id of a graph, whole.", {"type": "string", "pattern": GRAPH_ID_PATTERN}),
    "task": Parameter("task", "A taskId; or a label, where that has no `/`.", _TEXT),
    "run": Parameter("run", "The number of a run, from 0.", {"type": "integer", "minimum": 0}),
    "group": Parameter("group", "The name of a group.", _TEXT),
    "request": Parameter("request", "The id of an extension or edit.", {"type": "string", "pattern": GRAPH_ID_PATTERN}),
    "schedule": Parameter("schedule", "The name of a schedule.", _TEXT),
    "target": Parameter("target", "The name of a target.", {"type": "string", "maxLength": 40}),
    "worker": Parameter("worker", "The name of a worker, as it is listed.", _TEXT),
    "claim": Parameter("claim", "The claim of a run, as it came with its task.", {"type": "string", "maxLength": 200}),
    "key": Parameter("key", "The key of a message that was set aside, as it is listed.", _TEXT),
    "partition": Parameter("partition", "The id of a graph, or the name of an index of the store.", _TEXT),
    "file": Parameter("file", "The name of a file of a run.", _TEXT),
    "queue": Parameter("queue", "`events`, or `work-TARGET` and its like, without the prefix of the store.", _TEXT),
}
"""The parts of paths, by name."""


def _limit(default: int, most: int = 1_000) -> Parameter:
    schema = {"type": "integer", "minimum": 1, "maximum": most, "default": default}
    return Parameter("limit", "So many at most.", schema)


_REHEARSED: Final = (
    Parameter(
        "slots",
        "`8` of all targets, `default=8,gpu=1`, or `default+gpu=8` for targets that share them; otherwise those of the "
        "workers there are.",
        _TEXT,
    ),
    Parameter(
        "history",
        "Learn from so many of the last graphs of its name or schedule.",
        {"type": "integer", "minimum": 0, "maximum": 20, "default": 5},
    ),
    Parameter("seeds", "Rehearse so many times.", {"type": "integer", "minimum": 1, "maximum": 100, "default": 10}),
    Parameter("seconds", "What a task takes of which nothing is known: `30`, or `command=30`.", _TEXT, many=True),
    Parameter(
        "limit", "What if so many ran at a time: `4` of the graph, `GROUP=4`; 0 for any number.", _TEXT, many=True
    ),
    Parameter("drop", "What if this task took no time.", _TEXT, many=True),
    Parameter("fail", "What if this task failed.", _TEXT, many=True),
    Parameter(
        "runs",
        "With the runs that end in the rehearsal in the middle, at most 20,000: `runsLeftOut` says how many more.",
        _FLAG,
    ),
)
_SINCE = Parameter("since", "Only created since then.", _TIME)
_UNTIL = Parameter("until", "Only created until then.", _TIME)
_CURSOR = Parameter(
    "since",
    "Only what comes after this number or cursor.",
    {"type": "string", "pattern": r"^[0-9]{1,10}(\.[0-9]{1,6})?$", "default": "0"},
)
_WAIT = Parameter(
    "wait",
    "Wait so many seconds for the next event, if there is none.",
    {"type": "number", "minimum": 0, "maximum": 60, "default": 0},
)


@functools.cache
def description() -> dict[str, Any]:
    """All of it as OpenAPI 3.1."""
    return openapi.document(ROUTES, tuple(PATH.values()))


async def _described(asked: Asked) -> Any:
    return description()


_INFO: Final = (
    Route("GET", "", "capabilities", "What this server is, and what it can.", None, reads.capabilities, "capabilities"),
    Route("GET", "/health", "health", "Whether the store answers.", None, reads.health, "health", problems=(503,)),
    Route(
        *("GET", "/metrics", "getMetrics", "What this process counts, as Prometheus reads it; 404 where it does not."),
        *(Role.READER, reads.metrics, "text/plain"),
    ),
    Route("GET", "/openapi.json", "openapi", "This API as OpenAPI 3.1.", None, _described, "application/json"),
)
_GRAPHS: Final = (
    Route(
        *("GET", "/graphs", "listGraphs", "Graphs, the newest first."),
        *(Role.READER, reads.graphs, "graphs"),
        query=(
            *(_STATE, Parameter("schedule", "Only of this schedule.", _TEXT)),
            Parameter("name", "Only with this in their name; `*` and `?` make it a pattern.", _TEXT),
            Parameter("tag", "Only with this tag: KEY or KEY=VALUE.", _TEXT, many=True),
            *(_SINCE, _UNTIL, _limit(50), _PAGE),
        ),
        scoped=True,
    ),
    Route(
        *("POST", "/graphs", "submitGraph", "Submit a graph, under a fresh id or that of `Idempotency-Key`."),
        *(Role.SUBMITTER, writes.post, "submitted"),
        body="task-graph",
        status=201,
        problems=(409, 413, 415),
        free="param.",
        scoped=True,
    ),
    Route(
        *(
            "POST",
            "/graphs:validate",
            "validateDocument",
            "All that is wrong with a document, and what looks like a mistake.",
        ),
        *(Role.READER, writes.validate, "validated"),
        query=(_EXTENSION, _EXPANDED),
        body=ANY_BODY,
        problems=(413, 415),
        free="param.",
        scoped=True,
    ),
    Route(
        *("POST", "/graphs:import", "importGraph", "A graph of another program as a document; gzipped or not."),
        *(Role.READER, writes.import_, "imported"),
        query=(
            Parameter("from", "The program, or format.", {"type": "string", "enum": [*FORMATS], "default": "neutral"}),
            Parameter(
                "external",
                "taskgraph: of dependencies on tasks that the file does not hold.",
                {"type": "string", "enum": ["satisfied", "reject"], "default": "satisfied"},
            ),
            Parameter("goal", "make, ninja: targets; argo: the template; airflow: the DAG.", many=True),
            Parameter("commands", "make, ninja: with tasks that run the commands.", _FLAG),
            Parameter("executor", "taskgraph: who runs the payloads.", {**_TEXT, "default": "noop"}),
            Parameter("id", "taskgraph: the future id of the graph.", {"type": "string", "pattern": GRAPH_ID_PATTERN}),
        ),
        body=ANY_BODY,
        problems=(413, 415),
        scoped=True,
    ),
    Route(
        *("POST", "/graphs:plan", "planDocument", "What a graph will be like: size, shape, critical path, waiters."),
        *(Role.READER, writes.plan, "plan"),
        body="task-graph",
        problems=(413, 415),
        free="param.",
        scoped=True,
    ),
    Route(
        *("POST", "/graphs:rehearse", "rehearseDocument", "When a graph would end, by rehearsing it in virtual time."),
        *(Role.READER, rehearsals.document, "rehearsal"),
        query=_REHEARSED,
        body="task-graph",
        problems=(413, 415),
        free="param.",
        scoped=True,
    ),
    Route(
        *("GET", "/graphs/{graph}", "getGraph", "A graph at a glance: its state, and its tasks by state."),
        *(Role.READER, reads.status, "graphStatus"),
    ),
    Route(
        *("PUT", "/graphs/{graph}", "putGraph", "Submit a graph under this id; the same content again is no error."),
        *(Role.SUBMITTER, writes.put, "submitted"),
        body="task-graph",
        status=201,
        problems=(409, 413, 415),
        free="param.",
    ),
    Route(
        *("DELETE", "/graphs/{graph}", "deleteGraph", "Take away a graph that is over, with its logs."),
        *(Role.ADMIN, writes.delete, "deleted"),
        query=(_FORCE, _REASON, _OPERATION),
        problems=(409,),
    ),
    Route(
        *("GET", "/graphs/{graph}/document", "getDocument", "What was submitted, made of the rows."),
        *(Role.READER, reads.document, "storedDocument"),
        problems=(409,),
    ),
    Route(
        *("GET", "/graphs/{graph}/why", "whyGraph", "Why a graph does not move."),
        *(Role.READER, reads.standstill, "standstill"),
    ),
    Route(
        *(
            "GET",
            "/graphs/{graph}/doctor",
            "examineGraph",
            "What is wrong with the rows of a graph; nothing is mended.",
        ),
        *(Role.READER, reads.examined, "examined"),
    ),
    Route(
        *(
            "GET",
            "/graphs/{graph}/timeline",
            "getTimeline",
            "When each run was ready, began and ended; the critical path.",
        ),
        *(Role.READER, reads.timeline, "timeline"),
    ),
    Route(
        *("GET", "/graphs/{graph}/cost", "getCost", "What a graph has cost, and its budget."),
        *(Role.READER, reads.cost, "cost"),
    ),
    Route(
        *("GET", "/graphs/{graph}/rehearsal", "rehearseGraph", "When the rest of it will end; and what if."),
        *(Role.READER, rehearsals.graph, "rehearsal"),
        query=_REHEARSED,
        problems=(409, 413),
    ),
    Route(
        *("GET", "/graphs/{graph}/export", "exportGraph", "It as it is now, in a format of other programs."),
        *(Role.READER, reads.export, "*/*"),
        query=(Parameter("to", "The format.", {"type": "string", "enum": [*exports.FORMATS], "default": "json"}),),
    ),
    Route(
        *("GET", "/graphs/{graph}/results", "getResults", "What its tasks have handed on, by label."),
        *(Role.READER, reads.results, "results"),
    ),
    Route(
        *("GET", "/graphs/{graph}/files", "listFiles", "The files that its tasks have left."),
        *(Role.READER, reads.task_files, "files"),
        query=(Parameter("label", "Only of this task.", _TEXT, many=True),),
    ),
    Route(
        *("GET", "/graphs/{graph}/groups/{group}", "getGroup", "A group, with its tasks."),
        *(Role.READER, reads.group, "groupStatus"),
    ),
    Route(
        *("GET", "/graphs/{graph}/limits", "getLimits", "How many tasks may be in flight, and which are."),
        *(Role.READER, reads.limits_of, "limits"),
    ),
    Route(
        *("GET", "/graphs/{graph}/notices", "getNotices", "The channels of its notices, and how far each has come."),
        *(Role.READER, reads.channels, "channels"),
    ),
    Route(
        *("GET", "/graphs/{graph}/rows", "getRows", "Its rows, as a table explorer shows them."),
        *(Role.READER, reads.rows, "rows"),
        query=(Parameter("prefix", "Only keys that begin like this.", _TEXT), _limit(1_000), _PAGE),
    ),
    Route(
        *("GET", "/graphs/{graph}/events", "getEvents", "Its journal; with `Accept: text/event-stream` as it grows."),
        *(Role.READER, streams.events, "events"),
        query=(_CURSOR, _limit(1_000, 10_000), _WAIT),
        problems=(406,),
        free="where.",
    ),
    Route(
        *("POST", "/graphs/{graph}/extensions", "extendGraph", "Add tasks to a graph that runs, or is blocked."),
        *(Role.SUBMITTER, writes.extend, "extended"),
        query=(_REQUEST,),
        body="extension",
        status=202,
        problems=(409, 413, 415),
        free="param.",
    ),
    Route(
        *(
            "POST",
            "/graphs/{graph}/edits",
            "editGraph",
            "Change or take away tasks that have not started, in one step.",
        ),
        *(Role.OPERATOR, writes.edit, "edited"),
        query=(_REQUEST,),
        body="edit",
        status=202,
        problems=(409, 413, 415),
        free="param.",
    ),
    Route(
        *(
            "POST",
            "/graphs/{graph}/changes",
            "changeGraph",
            "Rerun, cancel, pause, resume, (de)activate, limit, prioritize, edit, extend: plan, then apply.",
        ),
        *(Role.OPERATOR, changes.ask, "change"),
        query=(_DRY_RUN, _PLAN, _UNGUARDED),
        body="change",
        status=202,
        problems=(409, 412, 413, 415, 428),
    ),
    Route(
        *(
            "POST",
            "/changes",
            "changeGraphs",
            "One change of many graphs: `dryRun=1` plans it, their digests apply it.",
        ),
        *(Role.OPERATOR, changes.ask_each, "changes"),
        query=(_DRY_RUN,),
        body="changes",
        problems=(409, 413, 415),
        scoped=True,
    ),
    Route(
        *("GET", "/graphs/{graph}/requests/{request}", "getRequest", "What became of an extension or edit."),
        *(Role.READER, reads.request, "request"),
    ),
)
_MENDING: Final = (
    Route(
        *("POST", "/graphs/{graph}/doctor:repair", "repairGraph", "Mend what of its rows can be mended for certain."),
        *(Role.ADMIN, operate.repair, "examined"),
        problems=(409,),
    ),
    Route(
        *(
            "POST",
            "/graphs/{graph}/notices:retry",
            "retryNotices",
            "Try notices again at once that wait, or were given up.",
        ),
        *(Role.OPERATOR, operate.retry_notices, "channels"),
    ),
    Route(
        *(
            "POST",
            "/graphs/{graph}/grants",
            "grantGraph",
            "A signed address by which its rows may be read from storage.",
        ),
        *(Role.ADMIN, operate.grant_reading, "grant"),
        query=(_HOURS,),
        problems=(409,),
    ),
    Route(
        *("POST", "/graphs/{graph}:share", "shareGraph", "A token that reads this graph, and no other, until a time."),
        *(Role.ADMIN, operate.share, "token"),
        query=(_SHARE_HOURS,),
        problems=(409,),
    ),
)
_ARCHIVES: Final = (
    Route(
        *("GET", "/graphs/{graph}/archive", "archiveGraph", "The file that `taskgraph archive` writes."),
        *(Role.ADMIN, archives.write, "application/gzip"),
        query=(Parameter("logs", "With the output of every run, and its results.", _FLAG),),
        problems=(409,),
    ),
    Route(
        *("POST", "/archives", "restoreGraph", "Put a graph back that was archived, under its own id, as it was."),
        *(Role.ADMIN, archives.restore, "restored"),
        query=(Parameter("signed", "Refuse what is not signed by a key that the server trusts.", _FLAG),),
        body=FILE_BODY,
        status=201,
        problems=(409, 413, 415),
    ),
)
_TASKS: Final = (
    Route(
        *("GET", "/graphs/{graph}/tasks", "listTasks", "Its tasks, in the order of their ids."),
        *(Role.READER, reads.tasks, "tasks"),
        query=(
            Parameter("label", "The one with this label.", _TEXT),
            Parameter("group", "Only those of this group; all of them, without pages.", _TEXT),
            *(_TASK_STATE, _MATCH, _limit(100), _PAGE),
        ),
    ),
    Route(
        *("GET", "/graphs/{graph}/tasks/{task}", "getTask", "A task: its state, runs, edges and definition."),
        *(Role.READER, reads.task, "task"),
        query=(
            Parameter(
                "edges",
                "Name so many requirements and dependents at most.",
                {"type": "integer", "minimum": 0, "maximum": 100_000},
            ),
        ),
    ),
    Route(
        *("GET", "/graphs/{graph}/tasks/{task}/why", "whyTask", "Why a task does not run, down to the first causes."),
        *(Role.READER, reads.why, "explanation"),
    ),
    Route(
        *("GET", "/graphs/{graph}/tasks/{task}/output", "getOutput", "The value that a task has handed on."),
        *(Role.READER, reads.output, "application/json"),
    ),
    Route(
        *(
            "GET",
            "/graphs/{graph}/tasks/{task}/runs/{run}/log",
            "getLog",
            "What a run has printed: 1 MiB of it at most.",
        ),
        *(Role.READER, reads.log, "text/plain"),
        query=(
            Parameter("tail", "Only so many lines at its end.", {"type": "integer", "minimum": 0, "maximum": 100_000}),
        ),
        problems=(416,),
    ),
    Route(
        *("GET", "/graphs/{graph}/tasks/{task}/runs/{run}/result", "getResult", "The result of a run, whole."),
        *(Role.READER, reads.result, "application/json"),
        problems=(416,),
    ),
)
_STORE: Final = (
    Route(
        *("GET", "/overview", "getOverview", "Live graphs, workers, handlers and queues."),
        *(Role.READER, reads.overview, "snapshot"),
        query=(_limit(20, 200),),
    ),
    Route(
        *("GET", "/prices", "getPrices", "The prices by which graphs are charged."),
        *(Role.READER, reads.prices, "prices"),
    ),
    Route(
        *("GET", "/schedules", "listSchedules", "The schedules, with their next fire."),
        *(Role.READER, schedules.listed, "schedules"),
    ),
    Route(
        *("GET", "/schedules/{schedule}", "getSchedule", "A schedule, its next fires and its graphs."),
        *(Role.READER, schedules.show, "scheduleDetail"),
    ),
    Route(
        *(
            "PUT",
            "/schedules/{schedule}",
            "putSchedule",
            "Create a schedule; or replace the one that `If-Match` names.",
        ),
        *(Role.ADMIN, schedules.put, "scheduleDone"),
        body="schedule",
        status=201,
        problems=(409, 412, 413, 415, 428),
    ),
    Route(
        *("PATCH", "/schedules/{schedule}", "patchSchedule", "Change what is given of the one that `If-Match` names."),
        *(Role.ADMIN, schedules.patch, "scheduleDone"),
        body="schedule",
        problems=(409, 412, 413, 415, 428),
    ),
    Route(
        *("POST", "/schedules/{schedule}:activate", "activateSchedule", "Let a schedule fire again."),
        *(Role.OPERATOR, schedules.activate, "scheduleDone"),
        problems=(409,),
    ),
    Route(
        *(
            "POST",
            "/schedules/{schedule}:deactivate",
            "deactivateSchedule",
            "Let a schedule fire no more; its graphs go on.",
        ),
        *(Role.OPERATOR, schedules.deactivate, "scheduleDone"),
        problems=(409,),
    ),
    Route(
        *("POST", "/schedules/{schedule}:run-now", "runSchedule", "Submit the graph of a schedule now."),
        *(Role.OPERATOR, schedules.run_now, "fired"),
        problems=(409,),
    ),
    Route(
        *("DELETE", "/schedules/{schedule}", "deleteSchedule", "Delete a schedule; its graphs stay, and go on."),
        *(Role.ADMIN, schedules.delete, "scheduleDone"),
        problems=(409, 412),
    ),
    Route(
        *("GET", "/workers", "listWorkers", "Workers and handlers, and what they have in hand."),
        *(Role.READER, reads.crew, "workers"),
        query=(Parameter("target", "Only workers of this target.", {"type": "string", "maxLength": 40}),),
    ),
    Route(
        *("POST", "/workers/{worker}:drain", "drainWorker", "Have a worker take no new work."),
        *(Role.OPERATOR, operate.drain, "drained"),
        query=(
            Parameter("now", "Hand back what it runs, instead of finishing it.", _FLAG),
            Parameter("exit", "End it once it has nothing in hand.", _FLAG),
        ),
        problems=(409,),
    ),
    Route(
        *("POST", "/workers/{worker}:undrain", "undrainWorker", "Have it take work again."),
        *(Role.OPERATOR, operate.undrain, "drained"),
        problems=(409,),
    ),
    Route(
        *("GET", "/targets", "listTargets", "Targets that are limited, and who holds their permits."),
        *(Role.READER, reads.targets, "targetLimits"),
    ),
    Route(
        *("POST", "/targets/{target}:pause", "pauseTarget", "Hold back all work of a target, of all graphs."),
        *(Role.OPERATOR, operate.pause_target, "targetPaused"),
        query=(_REASON,),
    ),
    Route(
        *("POST", "/targets/{target}:resume", "resumeTarget", "Let it go on."),
        *(Role.OPERATOR, operate.resume_target, "targetPaused"),
    ),
    Route(
        *("POST", "/targets/{target}:limit", "limitTarget", "Let so many of its tasks be in flight, over all graphs."),
        *(Role.OPERATOR, operate.limit_target, "targetLimited"),
        query=(_MAX, _REASON),
    ),
    Route(
        *("GET", "/poison", "listPoison", "Messages that could not be handled, 1,000 of them at most."),
        *(Role.ADMIN, reads.poison, "poisonMessages"),
    ),
    Route(
        *("POST", "/poison/{key}:replay", "replayPoison", "Put a message back on its queue."),
        *(Role.ADMIN, operate.replay, "replayed"),
        problems=(409,),
    ),
)

_WORK: Final = (
    Route(
        *("POST", "/targets/{target}:claim", "claimTasks", "Take tasks that are ready; report and renew runs first."),
        *(Role.WORKER, work.claim, "work"),
        body="work.claim",
        problems=(409, 413, 415),
    ),
    Route(
        *("POST", "/runs/{claim}:renew", "renewRun", "Renew the lease of a run; says whether it is to be stopped."),
        *(Role.WORKER, work.renew, "runAnswered"),
        body="work.renewal",
        problems=(409, 413, 415),
    ),
    Route(
        *("POST", "/runs/{claim}:complete", "completeRun", "A run has succeeded."),
        *(Role.WORKER, work.complete, "runAnswered"),
        body="work.completed",
        problems=(409, 413, 415),
    ),
    Route(
        *("POST", "/runs/{claim}:fail", "failRun", "A run has failed."),
        *(Role.WORKER, work.fail, "runAnswered"),
        body="work.failure",
        problems=(409, 413, 415),
    ),
    Route(
        *("POST", "/runs/{claim}:hand-back", "handBackRun", "A run goes back unfinished."),
        *(Role.WORKER, work.hand_back, "runAnswered"),
        body="work.return",
        problems=(409, 413, 415),
    ),
    Route(
        *("PUT", "/runs/{claim}/log", "putLog", "Add to the log of a run, or send it again as it has grown."),
        *(Role.WORKER, work.log, "logKept"),
        query=(_OFFSET,),
        body="text/plain",
        problems=(409, 413, 415),
    ),
)
_READ_ROWS: Final = Route(
    *("GET", "/partitions/{partition}/rows", "readRows", "Rows as the store has them, by their keys or by page."),
    *(Role.READER, ports.rows, "storedRows"),
    query=(
        Parameter("key", f"This row; {ports.KEYS_MAX} of them at most, and none of the others below.", _KEY, many=True),
        Parameter("start", "From this key on.", _KEY),
        Parameter("end", "Before this key.", _KEY),
        Parameter("select", "Only this column.", _TEXT, many=True),
        *(_limit(1_000), _NEXT),
    ),
    free="where.",
    scoped=True,
)
_PORTS: Final = (
    _READ_ROWS,
    Route(
        *("POST", "/reads", "readEach", "Several such readings of rows in one request."),
        *(Role.READER, functools.partial(ports.reads, _READ_ROWS), "storedReads"),
        body="reads.addresses",
        problems=(413, 415),
        scoped=True,
    ),
    Route(
        *("GET", "/graphs/{graph}/logs", "listRunFiles", "The files of its runs, logs among them."),
        *(Role.READER, ports.run_files, "runFiles"),
        query=(_NEXT,),
    ),
    Route(
        *("GET", "/graphs/{graph}/logs/{task}/{run}/{file}", "readRunFile", "Bytes of one of these files."),
        *(Role.READER, ports.run_file, "application/octet-stream"),
        query=(
            Parameter(
                *("offset", "From this byte on."),
                {"type": "integer", "minimum": 0, "default": 0},
            ),
            _limit(ports.FILE_BYTES_MAX, ports.FILE_BYTES_MAX),
        ),
    ),
    Route(
        *("GET", "/queues/{queue}", "countMessages", "About how many messages a queue holds."),
        *(Role.READER, ports.queue, "queueLength"),
        scoped=True,
    ),
)

SECTIONS: Final[dict[str, Sequence[Route]]] = {
    "The server": _INFO,
    "Graphs": (*_GRAPHS, *_MENDING, *_ARCHIVES),
    "Tasks": _TASKS,
    "The store": _STORE,
    "Workers": _WORK,
    "Behind a client": _PORTS,
}
ROUTES: Final = tuple(route for routes in SECTIONS.values() for route in routes)
