"""The command `run`: submit a graph, and handle and work on it in one process until it ends."""

import contextlib
import logging
import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from taskgraph.interfaces.cli import failures, options
from taskgraph.interfaces.cli.common import STDIN, Session, check_graph_id, command, look_for_warnings
from taskgraph.interfaces.cli.graph_options import GraphOptions
from taskgraph.interfaces.cli.outcome import finish
from taskgraph.interfaces.cli.output import Output
from taskgraph.interfaces.cli.prefixed import Echo
from taskgraph.interfaces.cli.progress import Board, counts_line, display_for, following
from taskgraph.interfaces.cli.serve import Serves, WorkerOptions, default_slots
from taskgraph.interfaces.cli.signals import minding_signals
from taskgraph.interfaces.cli.submit import id_of_new, submit_document
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput, Refused, StorageUnavailable
from taskgraph.model.secrecy import Handed, withdraw
from taskgraph.model.states import GRAPH_ENDED, GraphState

if TYPE_CHECKING:
    from taskgraph.documents.nodes import GraphDocument, TaskNode
    from taskgraph.engine.outlets import OutletSettings
    from taskgraph.interfaces.app import App
    from taskgraph.worker.executors import Executors
    from taskgraph.worker.loop import Worker

log = logging.getLogger(__name__)

_DEFAULT_TARGET: Final = "default"
_WIDE_PER_SLOT: Final = 50  # tasks that may be ready at once


class Shown(StrEnum):
    """What is shown of that which tasks print."""

    FAILED = "failed"
    ALL = "all"
    NONE = "none"


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
    every: bool = False
    shown: Shown = Shown.FAILED
    folder: str = ""

    def words_again(self, graph_id: str) -> str:
        """The words with which the command goes on where it stopped."""
        file = [self.file] if self.file and self.file != STDIN else []
        return shlex.join([*file, "--id", graph_id, *(word for each in self.params for word in ("--param", each))])

    def worker(self, app: "App", targets: Sequence[str]) -> "Worker":
        return app.worker(
            self.executors,
            targets=targets,
            offer=self.serves.offer,
            slots=self.slots,
            with_store=self.handed.store,
            folder=self.folder,
        )


@command(
    "taskgraph run graph.json",
    "taskgraph run graph.json --id nightly-2026-08-01 --slots 4",
    "taskgraph run --id nightly-2026-08-01",
    'taskgraph run release.json --param version=1.4 --param regions:=\'["eu", "us"]\'',
    "taskgraph run graph.json --executor sleep --time-scale 0.001",
    "taskgraph run build.yaml --only 'test/*' --keep-going",
    "taskgraph run graph.json --output all",
    "taskgraph run graph.json --all",
)
def run(
    session: Session,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="The graph: YAML, JSON or TOML; - for standard input. Left out where --id names one that exists.",
        ),
    ] = None,
    graph_id: options.IdOption = None,
    about: GraphOptions = GraphOptions(),
    slots: options.SlotsOption = None,
    given: WorkerOptions = WorkerOptions(),
    every: Annotated[
        bool, typer.Option("--all", help="Work on all other graphs of the store, too, until this one ends.")
    ] = False,
    shown: Annotated[
        Shown,
        typer.Option(
            "--output",
            help="What tasks print, on stderr. failed: at the end, the last lines of those that failed. all: besides, "
            "every line as it comes, behind the label of its task. none: nothing.",
        ),
    ] = Shown.FAILED,
) -> int:
    """Submit a graph, and handle and work on it in this process until it ends.

    The tasks of this graph alone run here. Whatever happens to this process, the same command
    with the same --id goes on where it stopped; what has completed does not run again. Interrupted once, it hands
    unfinished tasks back; twice, it ends at once.
    """
    if file is None and graph_id is None:
        raise InvalidInput("give a FILE to run, or --id of a graph that exists")
    if file is None:
        about.check_no_file()
    if graph_id is not None:
        check_graph_id(graph_id, new=file is not None)
    served, folder = given.serves(), given.folder()
    from taskgraph.model.clock import SystemClock

    board = Board(SystemClock())
    handed = given.handed(session.settings)
    executors = given.executors(board.clock, handed, board=board)
    document: GraphDocument | None = None
    if file is not None:
        document, name = about.read(file)
        check_runnable(document, name, executors, served)
        look_for_warnings(session, document, name, strict=about.strict)
    order = _Order(
        file,
        graph_id,
        document,
        executors,
        board,
        served,
        slots or default_slots(),
        about.param or (),
        handed,
        every,
        shown,
        folder,
    )
    return session.open(lambda app: _run(app, session, order), measured=True)


def check_runnable(document: "GraphDocument", source: str, executors: "Executors", served: Serves) -> None:
    """Raise InvalidGraph, with the place of every task that this process could not run."""
    from taskgraph.interfaces.operations.checks import CannotRun, check_all_can_run
    from taskgraph.model.placement import labels_of, target_of

    def why_not(task: Mapping[str, Any]) -> CannotRun | None:
        if (reason := executors.why_not(task)) is not None:
            remedy = "Name an executor of this process, bring it with --python, or say --executor noop to rehearse."
            return CannotRun(reason, remedy)
        if (reason := served.offer.why_not(task)) is not None:
            host = task.get("host")
            missing = [f"--label {each}" for each in labels_of(task) if each not in served.offer.labels]
            remedy = (
                f"Say {' '.join(missing)} too." if missing and host is None else f"Say --host {host} if this is it."
            )
            return CannotRun(reason, remedy)
        target = target_of(task)
        if served.given and target not in served.targets:
            reason = f"it goes to the target {target}, and --target names only {', '.join(served.targets)}"
            return CannotRun(reason, f"Say --target {target} too.", "target" if "target" in task else "")
        return None

    check_all_can_run(document, source, why_not)


async def _run(app: "App", session: Session, order: _Order) -> int:
    # Before a graph is submitted that this process cannot run.
    app.check_direct("running tasks", "have workers elsewhere run it: taskgraph submit FILE --wait")
    from taskgraph.engine.outlets import read_outlets
    from taskgraph.interfaces.loops import deliver_rest
    from taskgraph.interfaces.one_graph import run_graph, taking
    from taskgraph.protocol.notices import has_notices

    output = session.output
    outlets: OutletSettings | None = None
    if order.document is None or has_notices(order.document):
        outlets = read_outlets(os.environ, commands=True)
    withdraw(os.environ, order.handed)
    get_ready(order.document, order.executors, order.slots)
    began = app.clock.monotonic()
    graph_id = await _graph_id(app, session, order)
    resume = f"taskgraph run {order.words_again(graph_id)}{session.store_words}"

    def on_signal(signals: int) -> None:
        if signals == 1:
            output.say("handing unfinished tasks back …")
        else:
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # errors of what is cut short now

    if order.shown is Shown.ALL:
        order.board.echo = Echo(output.err, graph_id, order.document.tasks if order.document else ())

    def begun() -> None:
        output.say(f"graph {graph_id}", "bold")
        output.hint(f"if this is interrupted, go on with: {resume}")

    fresh = False
    async with minding_signals(on_signal, limits.GRACE_SECONDS) as stop, contextlib.AsyncExitStack() as stack:
        targets = await _targets(app, order, graph_id)
        worker = order.worker(app, targets)
        consumer = stack.enter_context(taking(app, graph_id, [worker], every=order.every))
        if order.document is not None:
            submission = await submit_document(
                app, session, graph_id, order.document, stop, begun, fresh=order.graph_id is None
            )
            fresh = str(submission.outcome) == "created"
        display = display_for(output, app.clock, board=order.board)
        async with following(app, graph_id, display, lambda: order.board.of(graph_id), fresh=fresh) as follower:

            async def watcher(state: GraphState) -> None:
                if follower.extended:
                    follower.extended = False
                    await _warn_of_targets(app, output, graph_id, targets)

            try:
                state = await run_graph(
                    app,
                    graph_id,
                    stop.event,
                    workers=[worker],
                    consumer=consumer,
                    watcher=watcher,
                    fresh=fresh,
                    outlets=outlets,
                    every=order.every,
                )
            except StorageUnavailable:
                output.hint(f"when the store is back, go on with: {resume}")
                raise
    if stop.signals and state not in GRAPH_ENDED:
        summary = counts_line(output.err, follower.tally)
        raise failures.Interrupted(f"interrupted: {summary}; go on with: {resume}")
    seconds_taken = app.clock.monotonic() - began
    if outlets is not None:
        rest = await deliver_rest(app, graph_id, stop.event, outlets)
        if rest.waiting or rest.given_up:
            output.warn("not all notices of this graph are delivered: the rest goes out while taskgraph serve runs")
            output.hint(f"         see: taskgraph notices {graph_id}{session.store_words}")
    return await finish(
        app, session, follower.tally, seconds_taken=seconds_taken, with_logs=order.shown is not Shown.NONE
    )


def get_ready(document: "GraphDocument | None", executors: "Executors", slots: int) -> None:
    """For a wide graph of tasks that could stand by: what starts them starts while the graph is submitted."""
    queue = None
    for node in _ready_at_once(document, _WIDE_PER_SLOT * slots) if document is not None else ():
        queue = executors.choose(node.task).queue
        if queue is None:
            return
    if queue is not None:
        try:
            queue.is_ready(slots)
        except OSError as error:  # it is asked again once runs are known to be short
            log.info("what starts short commands cannot be started yet: %s", error)


def _ready_at_once(document: "GraphDocument", many: int) -> "list[TaskNode]":
    """So many tasks that nothing but one task, if any, keeps from being ready together; none if there are fewer."""
    nodes = document.tasks.values()
    found = [node for node in nodes if not node.requires]
    if len(found) < many <= len(nodes):
        (most, _), *_ = Counter(label for node in nodes for label in node.requires).most_common(1)
        found = [node for node in nodes if most in node.requires]
    return found[:many] if len(found) >= many else []


async def _graph_id(app: "App", session: Session, order: _Order) -> str:
    """The id of the graph to run. Raises NotFound, Refused where there is no document and no graph to go on with."""
    if order.document is not None:
        return await id_of_new(app, session, order.document, order.file or "", order.graph_id)
    graph_id, state = await session.in_graph(app, order.graph_id or "", app.queries.state)
    if state == GraphState.SUBMITTING:
        raise Refused(f"graph {graph_id} was never submitted to its end; run it again with its FILE", "submitting")
    return graph_id


async def _targets(app: "App", order: _Order, graph_id: str) -> Sequence[str]:
    """What this process works for: the targets it was given, else those of all tasks, there or to be submitted."""
    if order.serves.given:
        return order.serves.targets
    found = targets_in(order.document) if order.document is not None else []
    if order.graph_id is not None:
        found += await targets_of(app, graph_id)
    return list(dict.fromkeys([*found, *order.serves.targets]))


def targets_in(document: "GraphDocument") -> list[str]:
    """The targets of the tasks of a document, the default one first."""
    from taskgraph.model.placement import target_of

    return _default_first({target_of(node.task) for node in document.tasks.values()})


async def targets_of(app: "App", graph_id: str) -> list[str]:
    """The targets of the tasks of a graph, the default one first."""
    return _default_first(await app.queries.targets(graph_id))


def _default_first(targets: Set[str]) -> list[str]:
    return [_DEFAULT_TARGET, *sorted(targets - {_DEFAULT_TARGET})]


async def _warn_of_targets(app: "App", output: Output, graph_id: str, targets: Sequence[str]) -> None:
    for target in await targets_of(app, graph_id):
        if target not in targets and target != _DEFAULT_TARGET:
            output.warn(f"tasks were added for the target {target}, which this process does not serve")
            output.hint(f"         start a worker for it: taskgraph worker --target {target}")
