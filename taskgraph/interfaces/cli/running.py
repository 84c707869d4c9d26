"""Commands that get work in and done: run, submit, extend, rerun, serve, worker.

What this room is for: putting together what `service` and `submission` offer, in one process, with progress on stderr,
and ending with what became of it. It never writes a row by itself (D16) and never decides about tasks.
"""

import itertools
import logging
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.common import (
    STDIN,
    PassOption,
    Session,
    WithStoreOption,
    begin,
    check_graph_id,
    examples,
    read_graph,
    read_source,
)
from taskgraph.interfaces.cli.documents import print_warnings
from taskgraph.interfaces.cli.options import (
    ExecutorOption,
    GraphArgument,
    HostOption,
    IdOption,
    JsonOption,
    ParamOption,
    PriorityOption,
    PythonOption,
    SlotsOption,
    StoreOption,
    TargetOption,
    TimeoutOption,
    TimeScaleOption,
    VerboseOption,
    WorkerLabelOption,
)
from taskgraph.interfaces.cli.output import LogText, Output, count, safe, seconds
from taskgraph.interfaces.cli.progress import (
    Board,
    Failure,
    Follower,
    Tally,
    counts_line,
    display_for,
    following,
    has_ended,
    is_success,
    submitting,
)
from taskgraph.interfaces.cli.served import Serves, default_slots, make_executors, serves
from taskgraph.interfaces.cli.signals import Stop, minding_signals, unless_stopped
from taskgraph.model.errors import InvalidGraph, InvalidInput, Problem, Refused, StorageUnavailable
from taskgraph.model.ids import is_task_id
from taskgraph.model.secrecy import Handed, read_handed, withdraw
from taskgraph.model.states import GraphState

if TYPE_CHECKING:
    from taskgraph.documents.nodes import GraphDocument
    from taskgraph.engine.outlets import OutletSettings
    from taskgraph.engine.submission import Submission
    from taskgraph.interfaces.app import App
    from taskgraph.worker.executors import Executors

_DEFAULT_TARGET: Final = "default"
_FAILURES_SHOWN_MAX: Final = 10
_LOG_LINES_SHOWN: Final = 5
_LOG_TAIL_BYTES: Final = 16 * 1024
_LOG_WHOLE_BYTES: Final = 1 << 20
_PROBLEMS_MAX: Final = 100
_EXTEND_TIMEOUT_SECONDS: Final = 60.0


def command_words(command: str, graph_id: str, *more: str) -> str:
    """A command that can be typed, whatever characters a label has."""
    words = [graph_id, *more]
    guard = "-- " if any(word.startswith("-") for word in words) else ""
    return f"taskgraph {command} {guard}{' '.join(map(shlex.quote, words))}"


# --- run -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Order:
    """What `run` was asked for."""

    file: str | None
    graph_id: str | None
    document: "GraphDocument | None"
    executors: "Executors"
    board: Board
    serves: Serves
    slots: int
    params: Sequence[str]
    handed: Handed


def run(
    ctx: typer.Context,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="The graph as JSON; - for standard input. May be left out when --id names a graph that exists.",
            show_default=False,
        ),
    ] = None,
    graph_id: IdOption = None,
    param: ParamOption = None,
    priority: PriorityOption = None,
    slots: SlotsOption = None,
    target: TargetOption = None,
    label: WorkerLabelOption = None,
    host: HostOption = None,
    executor: ExecutorOption = None,
    time_scale: TimeScaleOption = 1.0,
    python: PythonOption = None,
    pass_env: PassOption = None,
    with_store: WithStoreOption = False,
    store: StoreOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Submit a graph, and handle and work on it in this process until it ends.

    Whatever happens to this process, the same command with the same --id goes on where it stopped; what has completed
    does not run again. Interrupted once, it hands unfinished tasks back; twice, it ends at once.
    """
    session = begin(ctx, store=store, json=json, verbose=verbose)
    if file is None and graph_id is None:
        raise InvalidInput("give a FILE to run, or --id of a graph that exists")
    if file is None and param:
        raise InvalidInput("--param goes with a FILE: a graph that exists has its values")
    if file is None and priority:
        raise InvalidInput("--priority goes with a FILE: a graph that exists has its own")
    if graph_id is not None:
        check_graph_id(graph_id, new=file is not None)
    served = serves(target, label, host)
    from taskgraph.model.clock import SystemClock

    board = Board(SystemClock())
    handed = read_handed(os.environ, pass_env or (), store=with_store)
    executors = make_executors(
        board.clock, executor=executor, time_scale=time_scale, python=python, board=board, handed=handed
    )
    document: GraphDocument | None = None
    if file is not None:
        document, name = read_graph(file, params=param, priority=priority)
        check_runnable(document, name, executors, served)
    order = _Order(file, graph_id, document, executors, board, served, slots or default_slots(), param or (), handed)
    raise typer.Exit(session.open(lambda app: _run(app, session, order), measured=True))


RUN_EXAMPLES = examples(
    "taskgraph run graph.json",
    "taskgraph run graph.json --id nightly-2026-08-01 --slots 4",
    "taskgraph run --id nightly-2026-08-01",
    'taskgraph run release.json --param version=1.4 --param regions:=\'["eu", "us"]\'',
    "taskgraph run graph.json --executor sleep --time-scale 0.001",
)


def check_runnable(document: "GraphDocument", source: str, executors: "Executors", served: Serves) -> None:
    """Raise InvalidGraph, with the place of every task that this process could not run: nothing is written then."""
    from taskgraph.model.json_pointer import pointer
    from taskgraph.model.placement import labels_of, target_of

    problems: list[Problem] = []
    unable = 0
    for label, node in document.tasks.items():
        reason = executors.why_not(node.task)
        place: tuple[str, ...] = ("tasks", label, "task")
        remedy = "Name an executor of this process, bring it with --python, or say --executor noop to rehearse."
        target = target_of(node.task)
        if reason is None and (reason := served.offer.why_not(node.task)) is not None:
            missing = [f"--label {each}" for each in labels_of(node.task) if each not in served.offer.labels]
            host = node.task.get("host")
            remedy = f"Say --host {host} if this is it."
            if missing and host is None:
                remedy = f"Say {' '.join(missing)} too."
        elif reason is None and served.given and target not in served.targets:
            reason = f"it goes to the target {target}, and --target names only {', '.join(served.targets)}"
            place = (*place, "target") if "target" in node.task else place
            remedy = f"Say --target {target} too."
        if reason is None:
            continue
        unable += 1
        if len(problems) < _PROBLEMS_MAX:
            message = f"This process cannot run “{label}”: {reason}."
            problems.append(Problem(pointer(place), "cannot-run", message, remedy))
    if unable > len(problems):
        problems.append(Problem("", "more", f"… and {unable - len(problems):,} more.", ""))
    if problems:
        raise InvalidGraph(problems, source)


async def _run(app: "App", session: Session, order: _Order) -> int:
    from taskgraph.engine.outlets import read_outlets
    from taskgraph.interfaces.loops import deliver_rest, run_graph
    from taskgraph.protocol.notices import has_notices

    output = session.output
    outlets: OutletSettings | None = read_outlets(os.environ, commands=True)
    withdraw(os.environ, order.handed)
    if order.document is not None and not has_notices(order.document):
        outlets = None
    began = app.clock.monotonic()
    graph_id = order.graph_id or app.clock.new_id()
    given = [word for each in order.params for word in ("--param", each)]
    again = [*([order.file] if order.file not in (None, STDIN) else []), "--id", graph_id, *given]
    resume = f"taskgraph run {shlex.join(word for word in again if word)}{session.store_words}"

    def told(signals: int) -> None:
        if signals == 1:
            output.say("handing unfinished tasks back …")
        else:
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # what is cut short now has nothing to tell

    fresh = False
    async with minding_signals(told) as stop:
        if order.document is not None:
            output.say(f"graph {graph_id}", "bold")
            output.hint(f"if this is interrupted, go on with: {resume}")
            submission = await _submit(app, session, graph_id, order.document, stop)
            fresh = str(submission.outcome) == "created"
        elif await app.queries.state(graph_id) == GraphState.SUBMITTING:
            raise Refused(f"graph {graph_id} was never submitted to its end; run it again with its FILE", "submitting")
        document = order.document if fresh else None
        targets = order.serves.targets
        if not order.serves.given:
            targets = list(dict.fromkeys([*await targets_of(app, graph_id, document), *targets]))
        worker = app.worker(
            order.executors,
            targets=targets,
            offer=order.serves.offer,
            slots=order.slots,
            with_store=order.handed.store,
        )
        display = display_for(output, app.clock)
        async with following(app, graph_id, display, lambda: order.board.of(graph_id), fresh=fresh) as follower:

            async def watcher(state: GraphState) -> None:
                if follower.extended:
                    follower.extended = False
                    await _warn_of_targets(app, output, graph_id, targets)

            try:
                state = await run_graph(
                    app, graph_id, stop.event, workers=[worker], watcher=watcher, fresh=fresh, outlets=outlets
                )
            except StorageUnavailable:
                output.hint(f"when the store is back, go on with: {resume}")
                raise
    if stop.asked and not has_ended(state):
        summary = counts_line(output.err, follower.tally)
        raise failures.Interrupted(f"interrupted: {summary}; go on with: {resume}")
    seconds_taken = app.clock.monotonic() - began
    if outlets is not None:
        rest = await deliver_rest(app, graph_id, stop.event, outlets)
        if rest.waiting or rest.given_up:
            output.warn("not everybody has been told of this graph: the rest goes out while taskgraph serve runs")
            output.hint(f"         see: taskgraph notices {graph_id}{session.store_words}")
    return await finish(app, session, follower.tally, seconds_taken=seconds_taken)


async def _submit(app: "App", session: Session, graph_id: str, document: "GraphDocument", stop: Stop) -> "Submission":
    from taskgraph.engine.submission import Submitted
    from taskgraph.interfaces.operations.submit import submit

    try:
        with submitting(session.output, app.clock) as progress:
            submission = await unless_stopped(stop, submit(app, graph_id, document, progress=progress))
    except failures.Interrupted:
        raise failures.Interrupted(
            f"interrupted while graph {graph_id} was being submitted; the same command with --id {graph_id} goes on"
        ) from None
    if submission.outcome is not Submitted.CREATED:
        session.output.say(f"graph {graph_id} was submitted before, with the same content: going on with it")
    return submission


async def targets_of(app: "App", graph_id: str, document: "GraphDocument | None" = None) -> list[str]:
    """Every target that a task of the graph goes to, the default one first. document: all that the graph has."""
    if document is not None:
        from taskgraph.model.placement import target_of

        found = {target_of(node.task) for node in document.tasks.values()}
    else:
        found = await app.queries.targets(graph_id)
    return [_DEFAULT_TARGET, *sorted(found - {_DEFAULT_TARGET})]


async def _warn_of_targets(app: "App", output: Output, graph_id: str, targets: Sequence[str]) -> None:
    for target in await targets_of(app, graph_id):
        if target not in targets and target != _DEFAULT_TARGET:
            output.warn(f"tasks were added for the target {target}, which this process does not serve")
            output.hint(f"         start a worker for it: taskgraph worker --target {target}")


# --- the end of a graph ----------------------------------------------------------------------------------------


async def finish(
    app: "App", session: Session, tally: Tally, *, seconds_taken: float | None = None, as_line: bool = False
) -> int:
    """Say how a graph ended, and gives the exit code. as_line: JSON as the last of several lines."""
    output = session.output
    shown = list(tally.failures.values())[:_FAILURES_SHOWN_MAX]
    logs = [await log_tail(app, tally.graph_id, one.task_id, one.run) for one in shown]
    if output.json:
        told = [
            views.failure(one.label, one.task_id, one.run, one.state, one.reason, log)
            for one, log in itertools.zip_longest(tally.failures.values(), logs)
        ]
        made = views.ended(
            tally.graph_id,
            tally.state,
            tally.tasks,
            tally.counts(),
            reruns=tally.reruns,
            retries=tally.retries,
            hand_backs=tally.hand_backs,
            seconds=seconds_taken,
            failures=told,
        )
        if as_line:
            output.json_line(views.line("end", made))
        else:
            output.document(made)
    else:
        out = output.out
        how = " with failures" if tally.state == GraphState.FINISHED and tally.failures else ""
        parts = [out.state(tally.state) + how, out.paint(tally.graph_id, "bold"), counts_line(out, tally)]
        if tally.reruns:
            parts.append(count(tally.reruns, "rerun"))
        if tally.retries:
            parts.append(count(tally.retries, "retry", "retries"))
        if tally.hand_backs:
            parts.append(f"{count(tally.hand_backs, 'run')} handed back")
        if seconds_taken is not None:
            parts.append(seconds(seconds_taken))
        out.line("  ".join(parts))
        _print_failures(session, tally.graph_id, shown, logs)
        left = len(tally.failures) - len(shown)
        if left > 0:
            state = command_words("show", tally.graph_id)
            output.hint(f"… and {left:,} more: {state} --state failed{session.store_words}")
        if tally.failures and not has_ended(tally.state):
            where = session.store_words
            rerun = command_words("rerun", tally.graph_id, _typed(next(iter(tally.failures.values()))))
            resume = f"taskgraph run --id {tally.graph_id}"
            output.hint(f"when the cause is mended: {rerun}{where}, then {resume}{where}")
    return failures.DONE if is_success(tally) else failures.UNSUCCESSFUL


def _print_failures(session: Session, graph_id: str, shown: Sequence[Failure], logs: Sequence[Sequence[str]]) -> None:
    err = session.output.err
    for one, tail in zip(shown, logs, strict=True):
        reason = f": {safe(one.reason)}" if one.reason else ""
        err.line(f"{err.state(one.state)}  {err.paint(safe(one.label), 'bold')} (run {one.run}){reason}")
        for line in tail:
            err.line(f"    {err.paint('│' if err.unicode else '|', 'dim')} {safe(line)}")
        err.line(err.paint(f"    {command_words('why', graph_id, _typed(one))}{session.store_words}", "dim"))


def _typed(one: Failure) -> str:
    """What to type for a task: its label, unless that cannot be typed."""
    return one.label if one.label.isprintable() else one.task_id


async def log_tail(app: "App", graph_id: str, task_id: str, run: int, lines: int = _LOG_LINES_SHOWN) -> list[str]:
    """The last lines of a run's log, without colours; none if there is no log, or no such task can be."""
    if not is_task_id(task_id) or run < 0:
        return []
    data = await app.logs.read(graph_id, task_id, run, limit=_LOG_WHOLE_BYTES)
    if not data:
        return []
    if len(data) == _LOG_WHOLE_BYTES:
        # A log has no length that could be asked for: it is looked for by steps that double, and then by halves.
        low = _LOG_WHOLE_BYTES
        high = 2 * low
        while await app.logs.read(graph_id, task_id, run, offset=high, limit=1):
            low, high = high, 2 * high
        while high - low > _LOG_TAIL_BYTES:
            middle = (low + high) // 2
            if await app.logs.read(graph_id, task_id, run, offset=middle, limit=1):
                low = middle
            else:
                high = middle
        data = await app.logs.read(graph_id, task_id, run, offset=low - _LOG_TAIL_BYTES, limit=3 * _LOG_TAIL_BYTES)
    text = (data or b"")[-_LOG_TAIL_BYTES:].decode("utf-8", "replace")
    return LogText.plain(text).splitlines()[-lines:]


# --- submit, extend, rerun -------------------------------------------------------------------------------------


def submit(
    ctx: typer.Context,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The graph as JSON; - for standard input.", show_default=False)
    ],
    graph_id: IdOption = None,
    param: ParamOption = None,
    priority: PriorityOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the graph has ended, and say how.")] = False,
    timeout: TimeoutOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Write a graph into the store and start it; handlers and workers elsewhere do the rest.

    The same graph under the same id again changes nothing and gives the same answer; another graph is refused. The id
    goes to stdout.
    """
    session = begin(ctx, store=store, json=json, verbose=verbose)
    if timeout is not None and not wait:
        raise InvalidInput("--timeout goes with --wait")
    if graph_id is not None:
        check_graph_id(graph_id, new=True)
    document, name = read_graph(file, params=param, priority=priority)
    from taskgraph.documents.warnings import warnings

    print_warnings(session, InvalidGraph(warnings(document), name))
    raise typer.Exit(
        session.open(lambda app: _submit_and_wait(app, session, graph_id, document, wait, timeout), measured=True)
    )


SUBMIT_EXAMPLES = examples(
    "taskgraph submit graph.json --id nightly-2026-08-01",
    "taskgraph submit graph.json --wait --timeout 600",
    "taskgraph submit release.json --param version=1.4",
    "taskgraph submit hotfix.json --priority high",
    "generate | taskgraph submit -",
)


async def _submit_and_wait(
    app: "App",
    session: Session,
    graph_id: str | None,
    document: "GraphDocument",
    wait: bool,
    timeout_seconds: float | None,
) -> int:
    output = session.output
    graph_id = graph_id or app.clock.new_id()
    async with minding_signals(lambda _: None) as stop:
        submission = await _submit(app, session, graph_id, document, stop)
        fresh = str(submission.outcome) == "created"
        if not output.json:
            output.data(graph_id)
        size = f"{count(submission.tasks, 'task')}, {count(submission.edges, 'edge')}"
        output.say(f"graph {graph_id}: {submission.outcome}, {size}")
        if not wait:
            if output.json:
                output.document(views.submitted(submission))
            output.hint(f"watch it: {command_words('watch', graph_id)}{session.store_words}")
            return failures.DONE
        output.hint("handlers and workers must run somewhere: taskgraph serve --worker 2")
        return await wait_and_finish(app, session, graph_id, stop, timeout_seconds=timeout_seconds, fresh=fresh)


async def wait_and_finish(
    app: "App",
    session: Session,
    graph_id: str,
    stop: Stop,
    *,
    timeout_seconds: float | None,
    json_lines: bool = False,
    fresh: bool = False,
) -> int:
    """Show a graph until it has ended, and say how. Raises TimedOut, and Interrupted."""
    from taskgraph.interfaces.loops import wait_for_end
    from taskgraph.interfaces.operations.waiting import ends

    until = ends(app.clock, timeout_seconds)
    display = display_for(session.output, app.clock, json_lines=json_lines)
    follower: Follower
    try:
        async with following(app, graph_id, display, fresh=fresh) as follower:
            state = await unless_stopped(stop, wait_for_end(app, graph_id, until=until))
    except failures.Interrupted:
        words = f"{command_words('watch', graph_id)}{session.store_words}"
        raise failures.Interrupted(f"stopped watching; graph {graph_id} goes on: {words}") from None
    if state is None:
        now = counts_line(session.output.err, follower.tally)
        raise failures.TimedOut(f"graph {graph_id} is {follower.tally.state} after {timeout_seconds:g} s: {now}")
    return await finish(app, session, follower.tally, as_line=json_lines)


def extend(
    ctx: typer.Context,
    graph_id: GraphArgument,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="The tasks to add as JSON; - for standard input. They may require tasks that the graph has.",
            show_default=False,
        ),
    ],
    param: ParamOption = None,
    request: Annotated[
        str | None,
        typer.Option("--request", metavar="NAME", help="An id for the extension; made from its content otherwise."),
    ] = None,
    wait: Annotated[
        bool | None,
        typer.Option(
            "--wait/--no-wait",
            help="Wait until it has been accepted or refused; otherwise until that, or until it is known to wait for a "
            "paused graph to be resumed.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="SECONDS", help="Stop waiting after so long.")
    ] = _EXTEND_TIMEOUT_SECONDS,
    store: StoreOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Add tasks to a graph that runs, or is blocked.

    While the graph is paused they are staged, and added when it is resumed; it does not finish before.

    The same tasks again are the same request, and give its answer: nothing is added twice. Where the tasks name
    parameters that are not given, they have the values of the graph.
    """
    session = begin(ctx, store=store, json=json, verbose=verbose)
    check_graph_id(graph_id)
    if request is not None and len(request) > 0:
        check_graph_id(request)
    from taskgraph.documents.parameters import mentions, typed
    from taskgraph.documents.read import read_document

    values = typed(param or ())
    data, name = read_source(file)
    # What names no parameter is judged without the graph, as it is without a store.
    alone = None
    if not values and not mentions(data.decode("utf-8", "replace")):
        alone = read_document(data, source=name, kind="extension")

    async def extended(app: "App") -> int:
        from taskgraph.interfaces.operations import requests

        document = alone
        if document is None:
            given = await requests.given(app, graph_id, values, named=True)
            document = read_document(data, source=name, kind="extension", given=given)
        return await _extend(app, session, graph_id, document, request, wait, timeout)

    raise typer.Exit(session.open(extended, measured=True))


EXTEND_EXAMPLES = examples(
    "taskgraph extend nightly-2026-08-01 more.json",
    'taskgraph extend "$TASKGRAPH_GRAPH_ID" found.json',
)


async def _extend(
    app: "App",
    session: Session,
    graph_id: str,
    document: "GraphDocument",
    request: str | None,
    wait: bool | None,
    timeout_seconds: float,
) -> int:
    from taskgraph.interfaces.operations import extend, requests
    from taskgraph.interfaces.operations.waiting import ends

    output = session.output
    asked = await extend.ask(app, graph_id, document, request=request or None)
    if wait is not False:
        until = ends(app.clock, timeout_seconds)
        asked = await extend.settled(app, asked, until=until, deferred=wait is None)
        if asked.state not in requests.ANSWERED and (wait or not asked.waits_for):
            raise failures.TimedOut(
                f"request {asked.request} is {asked.state} after {timeout_seconds:g} s, and goes on by itself once "
                "handlers run (taskgraph serve); the same command looks again"
            )
    if output.json:
        output.document(views.extended(graph_id, asked.request, asked.state, len(document.tasks), asked.waits_for))
    else:
        output.data(asked.request)
    added = count(len(document.tasks), "task")
    if asked.waits_for:
        output.say(f"graph {graph_id}: {added} staged: made at resume, as the graph is paused")
    else:
        output.say(
            f"graph {graph_id}: {added} added" if asked.state == "done" else f"graph {graph_id}: {added} asked for"
        )
    return failures.DONE
