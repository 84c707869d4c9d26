"""Commands that look at one task: `task`, `why` and `results`; and a task in a line of a table."""

import json as jsonlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli.common import Session, command
from taskgraph.interfaces.cli.doctor import examined, print_causes
from taskgraph.interfaces.cli.options import GraphArgument, LabelsArgument, OptionalLabelsArgument
from taskgraph.interfaces.cli.output import Column, count, moment, safe, seconds
from taskgraph.model.columns import NO_OUTPUT, OUTPUT, cached_words
from taskgraph.model.ids import holders_in_words
from taskgraph.model.priorities import NORMAL
from taskgraph.model.states import TaskState, When, condition_words

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.queries.values import Explanation, TaskDetail, TaskStatus

_WAITING_SHOWN_MAX: Final = 20
_CAUSES_SHOWN_MAX: Final = 50
_ALIKE_SHOWN_MAX: Final = 3  # that wait at one depth; the causes stand below them
_WAITING_LINES_MAX: Final = 60  # over all depths: a long chain waits in thousands of steps


def task_words(task: "TaskStatus", now: datetime) -> str:
    """The last column of a table of tasks."""
    match task.state:
        case TaskState.FAILED | TaskState.EXCEPTION | TaskState.CANCELLED | TaskState.SKIPPED:
            return str((task.resolution or {}).get("reason", ""))
        case TaskState.UNSCHEDULED if task.held_back or task.when != When.ALL_COMPLETED:
            return "; ".join(filter(None, (_held_words(task), condition_words(task.when))))
        case TaskState.RUNNING:
            since = seconds(max(0.0, (now - task.started).total_seconds())) if task.started else "?"
            return f"for {since} on {task.worker}"
        case TaskState.PENDING if task.not_before is not None and task.not_before > now:
            return "; ".join(
                filter(None, (f"not before {moment(task.not_before)}{_last_failure(task)}", _held_words(task)))
            )
        case TaskState.PENDING if task.held_back:
            return _held_words(task)
        case TaskState.PENDING:
            since = seconds(max(0.0, (now - task.pending_since).total_seconds())) if task.pending_since else "?"
            return f"ready for {since}" + (f"; {task.refusal}" if task.refusal else "")
        case TaskState.COMPLETED:
            length = run_seconds(task)
            return f"in {seconds(length, digits=3)}" if length is not None else ""
        case _:
            return ""


def _held_words(task: "TaskStatus") -> str:
    return f"held back: {holders_in_words(task.held)}" if task.held_back else ""


def _last_failure(task: "TaskStatus") -> str:
    last = task.runs[-1] if task.runs else {}
    return f"; run {last.get('run')} failed for the moment" if last.get("outcome") == "temporary" else ""


def run_seconds(task: "TaskStatus") -> float | None:
    """How long the last run of a task took, by the worker's clock."""
    if task.started is None or task.ended is None:
        return None
    return max(0.0, (task.ended - task.started).total_seconds())


@command('taskgraph task nightly-2026-08-01 "test/unit"', "taskgraph task nightly-2026-08-01 build publish")
def task(
    session: Session,
    graph_id: GraphArgument,
    labels: LabelsArgument,
    everything: Annotated[
        bool, typer.Option("--all", help="Name every requirement and dependent, and not only the first ones.")
    ] = False,
) -> None:
    """Show everything about a task: state, runs, what it requires and who waits for it, and its definition.

    --json has every requirement and dependent; of several tasks, an object on each line.
    """
    edges = None if session.output.json or everything else _WAITING_SHOWN_MAX

    async def look(app: "App", graph_id: str) -> "list[TaskDetail]":
        return [await app.queries.task(graph_id, label, edges=edges) for label in labels]

    graph_id, found = session.open_graph(graph_id, look)
    session.output.lines = len(found) > 1
    for each in found:
        if not session.answered(views.task, graph_id, each):
            if each is not found[0]:
                session.output.out.line()
            _print_task(session, graph_id, each)


def _print_task(session: Session, graph_id: str, found: "TaskDetail") -> None:
    output = session.output
    out = output.out
    one = found.status
    resolution = one.resolution or {}
    length = run_seconds(one)

    def labels(names: Sequence[str], number: int) -> str:
        more = f", … {number - len(names):,} more (--all)" if number > len(names) else ""
        return safe(", ".join(names)) + more

    def kept(name: str, prints: str) -> str:
        """Where a file of the run is; over HTTP, which does not reach that, what prints it."""
        if session.settings.server and name in resolution:
            from taskgraph.interfaces.cli.outcome import command_words  # most looks do without

            return f"{command_words(prints, graph_id, one.label)}{session.store_words}"
        return safe(str(resolution.get(name, "")))

    output.pairs(
        [
            ("task", out.paint(safe(one.label), "bold")),
            ("taskId", safe(one.task_id)),
            ("graph", safe(graph_id)),
            ("state", out.state(one.state)),
            ("reason", safe(str(resolution.get("reason", "")))),
            ("exit code", safe(str(resolution.get("exitCode", "")))),
            ("run", f"{one.run}"),
            ("took", seconds(length, digits=3) if length is not None else ""),
            ("worker", safe(one.worker)),
            ("target", safe(one.target)),
            ("priority", one.priority if one.priority != NORMAL else ""),
            ("active", "" if one.active else "no"),
            ("held back", safe(_held_words(one).partition(": ")[2])),
            ("groups", safe(", ".join(one.groups))),
            ("reruns left", f"{one.reruns_left} of {one.reruns_allowed}"),
            ("retries left", f"{one.retries_left}"),
            ("tried again", f"{one.temporary_failures}, {one.temporary_left} left" if one.temporary_failures else ""),
            ("given back", safe(one.refusal)),
            ("not before", moment(one.not_before)),
            ("ready", moment(one.pending_since)),
            ("started", moment(one.started)),
            ("ended", moment(one.ended)),
            ("resolved", moment(one.resolved)),
            ("lease until", moment(one.lease_until) if one.state == TaskState.RUNNING else ""),
            ("deadline", moment(one.deadline)),
            ("claimed within", seconds(one.pending_timeout) if one.pending_timeout is not None else ""),
            ("log", kept("logsUrl", "logs")),
            ("result", kept("resultUrl", "logs --result")),
            ("from cache", safe(cached_words(resolution))),
            ("files", _files_words(resolution)),
            ("hands on", safe(_handed_on(resolution))),
            ("condition", condition_words(one.when)),
            ("requires", labels(found.requires, found.requires_count)),
            ("optional", safe(", ".join(found.optional))),
            (
                "waits for",
                labels(found.requires_left, found.requires_left_count) if one.state == TaskState.UNSCHEDULED else "",
            ),
            ("dependents", labels(found.dependents, found.dependents_count)),
        ]
    )
    if one.runs:
        out.line()
        output.table(one.runs, _EARLIER_RUNS)
        out.line()
    out.line(out.paint("definition", "dim"))
    text = jsonlib.dumps(dict(found.definition), indent=2, ensure_ascii=False)
    out.line("\n".join(f"  {safe(line)}" for line in text.splitlines()))


def _recorded(record: Mapping[str, Any], name: str) -> str:
    return str(record.get(name) or "")


def _recorded_time(record: Mapping[str, Any], name: str) -> str:
    text = _recorded(record, name)
    try:
        return moment(datetime.fromisoformat(text)) if text else ""
    except ValueError:
        return text


def recorded_reason(record: Mapping[str, Any]) -> str:
    """Why an earlier run ended, without what stands in other columns: its worker, and that it was lost."""
    reason = _recorded(record, "reason").removeprefix(f"worker {record.get('worker')} ")
    return "" if reason == f"was {record.get('outcome')}" else reason


_EARLIER_RUNS: Final = (
    Column("EARLIER RUN", lambda record: str(record.get("run", "?")), number=True),
    Column("OUTCOME", lambda record: _recorded(record, "outcome")),
    Column("STARTED", lambda record: _recorded_time(record, "started")),
    Column("ENDED", lambda record: _recorded_time(record, "ended")),
    Column("WORKER", lambda record: _recorded(record, "worker")),
    Column("", recorded_reason, flexible=True),
)


def _files_words(resolution: Mapping[str, Any]) -> str:
    files = resolution.get("files")
    return f"{files.get('count', 0):,}, {files.get('bytes', 0):,} bytes" if isinstance(files, Mapping) else ""


def _handed_on(resolution: Mapping[str, Any]) -> str:
    if OUTPUT in resolution:
        return jsonlib.dumps(resolution[OUTPUT], ensure_ascii=False)
    return f"nothing: {resolution[NO_OUTPUT]}" if NO_OUTPUT in resolution else ""


@command(
    "taskgraph why nightly-2026-08-01 publish",
    "taskgraph why nightly-2026-08-01 publish announce",
    "taskgraph why nightly-2026-08-01",
)
def why(session: Session, graph_id: GraphArgument, labels: OptionalLabelsArgument = None) -> None:
    """Say why a task does not run, down to the first causes, and what to do about each.

    Without a LABEL: why the graph does not move, as taskgraph doctor finds it. --json has an object on each line for
    several tasks.
    """
    if not labels:
        _, whole = session.open_graph(graph_id, lambda app, found: examined(app, session, found))
        if not session.answered(views.standstill, whole):
            print_causes(session.output, whole)
        return

    async def look(app: "App", graph_id: str) -> "list[tuple[str, Explanation]]":
        return [(label, await app.queries.explain(graph_id, label)) for label in labels]

    graph_id, explained = session.open_graph(graph_id, look)
    session.output.lines = len(explained) > 1
    for each in explained:
        if not session.answered(views.explanation, graph_id, *each):
            if each is not explained[0]:
                session.output.out.line()
            _print_reasons(session, each[1])


def _print_reasons(session: Session, found: "Explanation") -> None:
    """Level by level; of many that only wait, the first ones."""
    output = session.output
    out = output.out
    totals = Counter((one.depth, one.cause) for one in found.reasons)
    seen: Counter[tuple[int, bool]] = Counter()
    waiting = causes = 0  # lines
    for one in found.reasons:
        key = (one.depth, one.cause)
        seen[key] += 1
        indent = "  " * min(one.depth, 30)
        lines = causes if one.cause else waiting
        if lines >= (_CAUSES_SHOWN_MAX if one.cause else _WAITING_LINES_MAX):
            continue
        bound = _CAUSES_SHOWN_MAX if one.cause else _ALIKE_SHOWN_MAX
        if seen[key] > bound:
            if seen[key] == bound + 1:
                out.line(out.paint(f"{indent}… and {totals[key] - bound:,} more like this", "dim"))
            continue
        if one.cause:
            causes += 1
        else:
            waiting += 1
            if waiting == _WAITING_LINES_MAX:
                out.line(out.paint(f"{indent}… {found.waiting:,} tasks wait in all", "dim"))
                continue
        mark = out.paint("◆ " if out.unicode else "* ", "yellow") if one.cause else ""
        label = out.paint(safe(one.label), "bold")
        out.line(f"{indent}{mark}{out.symbol(one.state)} {label} {safe(one.text)}")
        if one.remedy:
            out.line(f"{indent}    {out.paint('→' if out.unicode else '->', 'dim')} {safe(one.remedy)}")
    if len(found.reasons) > 1:
        output.say(f"{count(found.causes, 'first cause')}, marked {'◆' if output.err.unicode else '*'}")
    if found.causes > _CAUSES_SHOWN_MAX:
        output.hint(f"… of these, {causes:,} are shown; --json lists more")


@command(
    "taskgraph results nightly-2026-08-01",
    'taskgraph results nightly-2026-08-01 "count" | jq .total',
    "taskgraph results nightly-2026-08-01 count size",
)
def results(session: Session, graph_id: GraphArgument, labels: OptionalLabelsArgument = None) -> None:
    """Print what the tasks of a graph have handed on, by label, as JSON; or of some of them; of one, the value alone.

    These are results of up to 4,000 characters; what is longer is found by `taskgraph logs ID LABEL --result`.
    """

    async def look(app: "App", graph_id: str) -> Any:
        if not labels:
            return await app.queries.results(graph_id)
        found = {label: await app.queries.output(graph_id, label) for label in labels}
        return found if len(labels) > 1 else found[labels[0]]

    session.output.document(session.open_graph(graph_id, look)[1])
