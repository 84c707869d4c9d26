"""Commands that look at graphs: `list`, `status`, `watch` and `show`."""

import json as jsonlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import completion
from taskgraph.interfaces.cli.common import Session, command, hint_at_handlers, hint_at_none
from taskgraph.interfaces.cli.options import GraphArgument, GroupOption, TimeoutOption
from taskgraph.interfaces.cli.outcome import command_words, wait_and_finish
from taskgraph.interfaces.cli.output import (
    Column,
    Stream,
    count,
    graph_words,
    moment,
    safe,
    seconds_at_this_pace,
    short,
)
from taskgraph.interfaces.cli.signals import minding_signals
from taskgraph.interfaces.cli.tasks import task_words
from taskgraph.model.errors import InvalidInput
from taskgraph.model.ids import rerun_failed
from taskgraph.model.priorities import NORMAL
from taskgraph.model.states import GRAPH_ENDED, PAUSED, WHOLE, FailurePolicy, GraphState, TaskState, held_group

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.queries.values import GraphListed, GraphStatus, GroupStatus, GroupSuccess, Listing, TaskStatus

_STATE_ORDER: Final = (
    TaskState.FAILED,
    TaskState.EXCEPTION,
    TaskState.CANCELLED,
    TaskState.RUNNING,
    TaskState.PENDING,
    TaskState.UNSCHEDULED,
    TaskState.SKIPPED,
    TaskState.COMPLETED,
)
_GROUP_TASKS_SHOWN_MAX: Final = 1_000
_FAILED_WORDS: Final = "failed or cancelled"
_STATES: Final = (*map(str, GraphState), PAUSED)
PAGES_MAX: Final = 5  # of 1,000 graphs whose rows are read for a state that the index does not know
_AGE: Final = re.compile(r"([0-9]{1,9})([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def _columns(found: Sequence["GraphListed"], now: datetime) -> list[Column]:
    paused = Column("PAUSED", lambda each: _paused_words(each.held), flexible=True)
    return [
        Column("GRAPH", lambda each: each.graph_id),
        Column(
            "STATE",
            lambda each: graph_words(each.state, failures=each.failed_tasks > 0, held=each.held),
            state=True,
        ),
        Column("DONE", lambda each: _progress(each.done, each.tasks), number=True),
        Column("CREATED", lambda each: moment(each.created)),
        Column("AGE", lambda each: short((now - each.created).total_seconds() if each.created else None), number=True),
        Column("TOOK", lambda each: short(each.seconds), number=True),
        *([paused] if any(each.held for each in found) else []),
        Column("NAME", lambda each: each.name, flexible=True),
    ]


def _older_ones(looked_until: datetime) -> str:
    return f"older ones were not looked at: --until {views.iso(looked_until)}"


def tags_of(given: Sequence[str]) -> dict[str, str | None]:
    pairs = [each.partition("=") for each in given]
    return {key: value if equals else None for key, equals, value in pairs}


def _time(option: str, text: str, now: datetime) -> datetime | None:
    """The time that an option says, as an age or as a time; None for "". Raises InvalidInput."""
    if not text:
        return None
    from taskgraph.model.schemas import parse_date_time

    try:
        if age := _AGE.fullmatch(text):
            return now - timedelta(seconds=int(age[1]) * _SECONDS[age[2]])
        return parse_date_time(text)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{option} “{text}”: write an age such as 2h or 3d, or 2026-08-01T06:00:00Z") from error


@command(
    "taskgraph list --state paused",
    "taskgraph list --name 'night*' --tag team=data --since 3d",
    "taskgraph list --schedule nightly --json",
)
def list_(
    session: Session,
    state: Annotated[
        str,
        typer.Option(
            "--state",
            metavar="STATE",
            autocompletion=completion.one_of(_STATES),
            help=f"Only those in this state: {', '.join(_STATES)}.",
        ),
    ] = "",
    schedule: Annotated[
        str,
        typer.Option(
            "--schedule", metavar="NAME", autocompletion=completion.schedules, help="Only graphs of this schedule."
        ),
    ] = "",
    name: Annotated[
        str, typer.Option("--name", metavar="TEXT", help="Only with this in their name; * and ? make it a pattern.")
    ] = "",
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="KEY[=VALUE]", help="Only with this tag; once for each that it must have."),
    ] = None,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="Only those created since then: 2h, 3d or an RFC 3339 time.")
    ] = "",
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="Only those created until then.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="The newest so many.")] = 50,
) -> None:
    """List graphs, the newest first, with how far they are, their age and how long they took to their end.

    DONE is the number of tasks that have completed or been skipped, of all; ? where that is not counted. For a state in
    which graphs have ended it looks at the newest 5,000, and says with which --until it goes on.
    """
    from taskgraph.model.clock import SystemClock
    from taskgraph.model.names import listed_by
    from taskgraph.queries.values import GraphsWanted

    if state and state not in _STATES:
        raise InvalidInput(f"--state “{state}” is none: write one of {', '.join(_STATES)}")
    now = SystemClock().now()
    wanted = GraphsWanted(state, name, tags_of(tag or ()), _time("--since", since, now), _time("--until", until, now))
    most = PAGES_MAX if state and not wanted.is_live else math.inf  # which of the ended are wanted only their rows say
    found, behind = session.open(
        lambda app: app.queries.graphs_after(
            "", limit=limit, schedule=schedule, wanted=wanted, counted=True, pages_max=most
        )
    )
    output = session.output
    looked_until = listed_by(behind) if behind and len(found) < limit else None
    if session.output.json:
        output.document(views.graphs(found, looked_until=looked_until))
    elif found:
        output.table(found, _columns(found, now))
        if len(found) == limit:
            output.hint(f"there may be more: --limit {limit * 10}")
        elif looked_until:
            output.hint(_older_ones(looked_until))
    else:
        which = (f" of schedule {schedule}" if schedule else "") + (f" that are {state}" if state else "")
        which += " that fit" if name or tag or since or until else ""
        newer = f" among those since {moment(looked_until)}" if looked_until else ""
        output.say(f"there are no graphs{which}{newer} in {session.settings.display}")
        if looked_until:
            output.hint(_older_ones(looked_until))
        if above := session.store_above:
            output.hint(above)


def _progress(done: int | None, tasks: int) -> str:
    return f"{'?' if done is None else format(done, ',')}/{tasks:,}"


@command("taskgraph status nightly-2026-08-01", "taskgraph status nightly-2026-08-01 --group tests")
def status(session: Session, graph_id: GraphArgument, group: GroupOption = None) -> None:
    """Show a graph at a glance: its state, and its tasks counted by state; or one group of it, with its tasks.

    Of a graph of more than 2,000 tasks only part of those that are ready or running is looked at: "at least" says so.
    With --json such a count is null, and atLeast has what was seen. A group is always counted task by task. It is
    waiting, running, blocked (a task failed for good), finished or cancelled, as its tasks are.
    """
    if group is not None:
        _, grouped = session.open_graph(graph_id, lambda app, graph_id: app.queries.group(graph_id, group))
        if not session.answered(views.group_status, grouped):
            _print_group(session, grouped)
        return

    async def looked(app: "App", graph_id: str) -> "tuple[GraphStatus, bool]":
        from taskgraph.interfaces.operations import handlers

        found = await app.queries.status(graph_id)
        needless = session.output.json or found.state in GRAPH_ENDED
        return found, needless or await handlers.seen(app)

    _, (found, handled) = session.open_graph(graph_id, looked)
    if not session.answered(views.graph_status, found):
        _print_status(session, found)
    if not handled:
        hint_at_none(session, found.graph_id)


def _print_group(session: Session, found: "GroupStatus") -> None:
    output = session.output
    out = output.out
    done = found.tasks - found.unresolved - found.failed_tasks
    output.pairs(
        [
            ("group", out.paint(safe(found.name), "bold")),
            ("graph", f"{safe(found.graph_id)} ({out.state(found.graph_state)})"),
            ("state", out.state(found.state)),
            ("in", safe(", ".join(found.within))),
            ("groups in it", safe(", ".join(found.groups))),
            ("succeeds", "" if found.success is None else _succeeds(found.success)),
            ("after failures", found.failure_policy),
            ("tasks", f"{found.tasks:,}"),
            ("progress", f"{done:,} of {found.tasks:,} ({100 * done // max(1, found.tasks)} %)"),
        ]
    )
    _print_counts(out, found.counts)
    if held := sum(each.held_back for each in found.listed):
        inactive = sum(each.held_back and not each.active for each in found.listed)
        out.line(f"  {count(held, 'task')} held back" + (f", {inactive:,} of them not active" if inactive else ""))
    out.line()
    _print_tasks(session, _ordered(found.listed)[:_GROUP_TASKS_SHOWN_MAX])
    if len(found.listed) > _GROUP_TASKS_SHOWN_MAX:
        output.hint(f"… and {len(found.listed) - _GROUP_TASKS_SHOWN_MAX:,} more: --json has all of them")
    if found.failed_tasks and found.graph_state not in GRAPH_ENDED:
        again = command_words(f"rerun --group={quote(found.name)}", found.graph_id)
        when = "to let it run after all" if found.state == TaskState.CANCELLED else "when the cause is mended"
        output.hint(f"{when}: {again}{session.store_words}")


def _succeeds(found: "GroupSuccess") -> str:
    """How a group stands that needs k of n."""
    decided = {"succeeded": "it has succeeded", "failed": "it has failed"}.get(found.decided, "it is open")
    later = "" if found.announced or not found.decided else "; what requires it goes on when all have ended"
    return f"{found.ok:,} ok, {found.bad:,} bad, needs {found.needs:,} of {found.of:,}: {decided}{later}"


def _print_counts(out: Stream, counts: Mapping[str, int]) -> None:
    for state in (each for each in TaskState if counts.get(each)):
        out.line(f"  {out.state(state, 14)} {counts[state]:>8,}")


def _ordered(tasks: Sequence["TaskStatus"]) -> list["TaskStatus"]:
    order = {str(each): index for index, each in enumerate(_STATE_ORDER)}
    return sorted(tasks, key=lambda each: (order.get(each.state, len(order)), each.label))


def _print_tasks(session: Session, shown: Sequence["TaskStatus"]) -> None:
    """A line for each task; with its groups and its priority, where there are any."""
    from taskgraph.model.clock import SystemClock

    now = SystemClock().now()
    ranked = any(each.priority != NORMAL for each in shown)
    grouped = any(each.groups for each in shown)
    columns = [
        Column("STATE", lambda each: each.state, state=True),
        Column("TASK", lambda each: each.label, flexible=True),
        Column("RUN", lambda each: str(each.run), number=True),
        Column("TARGET", lambda each: each.target),
        *([Column("PRIORITY", lambda each: each.priority)] if ranked else []),
        *([Column("GROUPS", lambda each: ", ".join(each.groups), flexible=True)] if grouped else []),
        Column("", lambda each: task_words(each, now), flexible=True),
    ]
    session.output.table(shown, columns)


def _print_status(session: Session, found: "GraphStatus") -> None:
    output = session.output
    out = output.out
    metadata = [(safe(name), safe(str(value))) for name, value in found.metadata.items()]
    tags = ", ".join(safe(f"{name}={value}") for name, value in found.tags.items())
    output.pairs(
        [
            ("graph", out.paint(safe(found.graph_id), "bold")),
            ("state", out.graph_state(found.state, failures=found.failed_tasks > 0, held=found.held)),
            ("after failures", found.failure_policy if found.failure_policy != FailurePolicy.BLOCK else ""),
            *metadata,
            ("tags", tags),
            *_param_pairs(found.params),
            ("routing", safe(found.routing)),
            ("schedule", safe(found.schedule)),
            ("fired for", moment(found.fired_for)),
            ("submitted in", safe(found.folder)),
            ("created", moment(found.created)),
            ("ended", moment(found.ended)),
            ("deadline", moment(found.deadline)),
            ("stalled", _stalled(session, found)),
            ("revision", f"{found.revision:,}" if found.revision else ""),
            ("kept edges", f"{found.edges:,}"),
            ("tasks", f"{found.tasks:,}"),
        ]
    )
    _print_counts(out, found.counts)
    if not found.exact:
        if found.failed_tasks:
            some = _at_least(found, TaskState.FAILED, TaskState.EXCEPTION, TaskState.CANCELLED)
            out.line(f"  {_FAILED_WORDS:15} {found.failed_tasks:>7,}{some}")
        out.line(f"  {'unresolved':14} {found.unresolved:>8,}{_at_least(found, TaskState.RUNNING, TaskState.PENDING)}")
    for each in found.limits:
        whose = f"group “{safe(each.group)}”" if each.group else "limit"
        out.line(f"  {whose}: {each.in_flight:,} of {each.most:,} in flight")
    if found.held_tasks:
        inactive = f", {found.inactive_tasks:,} of them not active" if found.inactive_tasks else ""
        out.line(f"  {count(found.held_tasks, 'task')} held back{inactive}")
    if found.priorities and set(found.priorities) != {NORMAL}:
        words = ", ".join(f"{number:,} {level}" for level, number in found.priorities.items())
        out.line(f"  priority of what has not begun: {words}")
    if words := _pace_words(found):
        output.hint(f"{words}; taskgraph rehearse {found.graph_id}{session.store_words} knows more")
    if found.held:
        output.say(f"paused: {safe(_paused_words(found.held))}")
        output.hint(f"taskgraph resume {found.graph_id}{session.store_words}")
    if found.reason:
        output.say(f"{found.state}: {safe(found.reason)}")
    if found.state == GraphState.BLOCKED:
        if found.blocked_by:
            output.say(f"blocked by “{found.blocked_by}”" + _others(found))
            output.hint(f"{command_words('why', found.graph_id, found.blocked_by)}{session.store_words}")
        else:  # it goes on after its end, without all that failed or was cancelled
            output.say(f"blocked by {count(found.failed_tasks, 'task')} that failed for good or were cancelled")
        if found.failed_tasks > 1 or not found.blocked_by:
            output.hint(f"when all is mended: {rerun_failed(found.graph_id)}{session.store_words}")


def _pace_words(found: "GraphStatus") -> str:
    """About how long a graph goes on that runs: by its tasks so far, for which nothing is read."""
    if found.state != GraphState.RUNNING or found.held or found.created is None:
        return ""
    from taskgraph.model.clock import SystemClock

    done = found.tasks - found.unresolved
    elapsed = (SystemClock().now() - found.created).total_seconds()
    left = seconds_at_this_pace(done, found.unresolved, elapsed)
    return "" if left is None else f"at its pace so far it ends in {short(left)}"


def _paused_words(held: Sequence[str]) -> str:
    return (
        "all of it"
        if not WHOLE.isdisjoint(held)
        else ", ".join(f"group “{name}”" for each in held if (name := held_group(each)))
    )


def _param_pairs(params: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(f"param {safe(name)}", safe(jsonlib.dumps(value, ensure_ascii=False))) for name, value in params.items()]


def _stalled(session: Session, found: "GraphStatus") -> str:
    if found.stalled is None:
        return ""
    since = session.output.out.paint(f"since {moment(found.stalled)}", "yellow")
    return f"{since}: {safe(found.stalled_because)}"


def _at_least(found: "GraphStatus", *states: TaskState) -> str:
    seen = ", ".join(f"{found.at_least[each]:,} {each}" for each in states if found.at_least.get(each))
    return f", of these at least {seen}" if seen else ""


def _others(found: "GraphStatus") -> str:
    """How the task ended that blocks a graph, and how many others did."""
    number, cancelled = found.failed_tasks - 1, {**found.at_least, **found.counts}.get(TaskState.CANCELLED, 0)
    words = f"{'were' if number > 1 else 'was'} cancelled"
    if not cancelled:
        words = "failed for good"
    elif cancelled < found.failed_tasks:
        words = f"failed for good or {words}"
    # Not "by … and others": of a graph whose groups have failure policies, others need not block it.
    return f"; {count(number, 'other task')} {words}, too" if number > 0 else f", which {words}"


@command("taskgraph watch nightly-2026-08-01 --timeout 3600")
def watch(session: Session, graph_id: GraphArgument, timeout: TimeoutOption = None) -> int:
    """Watch a graph until it has ended, and end with what became of it.

    Exit code 0: finished; 1: finished with failures, blocked or cancelled. Ctrl-C stops watching, and nothing else.
    With --json, every line is a JSON value with a `type`: progress, task-failed, task-exception, and end.
    """
    session.output.lines = True

    async def watched(app: "App", graph_id: str) -> int:
        async with minding_signals() as stop:
            if await app.queries.state(graph_id) not in GRAPH_ENDED and not session.output.json:
                await hint_at_handlers(app, session, graph_id)
            return await wait_and_finish(app, session, graph_id, stop, timeout_seconds=timeout, json_lines=True)

    return session.open_graph(graph_id, watched)[1]


@command(
    "taskgraph show nightly-2026-08-01 --state failed",
    "taskgraph show nightly --match test/",
    "taskgraph show nightly --group tests",
)
def show(
    session: Session,
    graph_id: GraphArgument,
    state: Annotated[TaskState | None, typer.Option("--state", help="Only tasks in this state.")] = None,
    match: Annotated[str, typer.Option("--match", metavar="TEXT", help="Only labels with this in them.")] = "",
    group: GroupOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many tasks.")] = 1000,
) -> None:
    """List the tasks of a graph by state: what failed, runs and waits comes first.

    Of a graph of more than 2,000 tasks no more than --limit are read, so that these are not the first by label.
    """
    in_state, in_group = str(state or ""), group or ""
    graph_id, found = session.open_graph(
        graph_id,
        lambda app, graph_id: app.queries.listing(graph_id, state=in_state, match=match, limit=limit, group=in_group),
    )
    shown = _ordered(found.tasks)[:limit]
    output = session.output
    if session.answered(views.tasks, graph_id, found, shown):
        return
    if found.params:
        output.pairs(_param_pairs(found.params))
        output.out.line()
    if shown:
        _print_tasks(session, shown)
    if found.total is None:
        output.hint(f"… and more: --limit {10 * limit}")
    elif len(shown) < found.total:
        output.hint(f"… and {found.total - len(shown):,} more: --limit {found.total}")
    output.say(_summary(found))


def _summary(found: "Listing") -> str:
    if found.total is None:
        return f"at least {count(len(found.tasks) + 1, 'task')}"
    status = found.status
    numbers = Counter(each.state for each in found.tasks) if status is None else status.counts
    parts = [f"{numbers[each]:,} {each}" for each in _STATE_ORDER if numbers.get(each)]
    if status is not None and not status.exact:
        parts += [f"{status.failed_tasks:,} {_FAILED_WORDS}"] if status.failed_tasks else []
        parts.append(f"{status.unresolved:,} unresolved")
    return f"{count(found.total, 'task')}{': ' if parts else ''}{', '.join(parts)}"
