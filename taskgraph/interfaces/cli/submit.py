"""The commands `submit` and `extend`: write graphs, or more of one."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import failures, options
from taskgraph.interfaces.cli.common import (
    Session,
    check_graph_id,
    command,
    hint_at_handlers,
    look_for_warnings,
    read_source,
)
from taskgraph.interfaces.cli.graph_options import GraphOptions
from taskgraph.interfaces.cli.outcome import command_words, wait_and_finish
from taskgraph.interfaces.cli.output import count, edges_words
from taskgraph.interfaces.cli.progress import submitting
from taskgraph.interfaces.cli.signals import Stop, minding_signals, unless_stopped
from taskgraph.model.errors import InvalidInput

if TYPE_CHECKING:
    from taskgraph.documents.nodes import GraphDocument
    from taskgraph.engine.submission import Submission
    from taskgraph.interfaces.app import App

_EXTEND_TIMEOUT_SECONDS: Final = 60.0
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until the graph has ended, and say how.")]


def check_options(graph_id: str | None, wait: bool, timeout: float | None) -> None:
    if timeout is not None and not wait:
        raise InvalidInput("--timeout goes with --wait")
    if graph_id is not None:
        check_graph_id(graph_id, new=True)


async def id_of_new(
    app: "App", session: Session, document: "GraphDocument", file: str = "", given: str | None = None
) -> str:
    """The id of a new graph (see `operations.which.new_id`); it is said if it is another one than was given."""
    from taskgraph.interfaces.operations import which

    graph_id = await which.new_id(app, document, file, given=given)
    if given and graph_id != given:
        session.say(f"graph {given} was deleted; {given} stands for graph {graph_id} now")
    return graph_id


async def submit_document(
    app: "App",
    session: Session,
    graph_id: str,
    document: "GraphDocument",
    stop: Stop,
    begun: Callable[[], None] = lambda: None,
    *,
    fresh: bool = False,
) -> "Submission":
    """Submit with progress. Raises Interrupted, which says how to go on.

    begun: called once the store has the graph. fresh: the id was made for it.
    """
    from taskgraph.engine.submission import Submitted
    from taskgraph.interfaces.operations.requests import submit

    there = False

    def is_there() -> None:
        nonlocal there
        if not there:
            there = True
            begun()

    try:
        with submitting(session.output, app.clock) as draw:

            def progress(written: int, total: int | None) -> None:
                is_there()
                draw(written, total)

            submission = await unless_stopped(stop, submit(app, graph_id, document, progress=progress, fresh=fresh))
    except failures.Interrupted:
        raise failures.Interrupted(
            f"interrupted while graph {graph_id} was being submitted; the same command with --id {graph_id} goes on"
        ) from None
    is_there()
    if submission.outcome is not Submitted.CREATED:
        session.output.say(f"graph {graph_id} was submitted before, with the same content: going on with it")
    return submission


async def submit_and_say(
    app: "App",
    session: Session,
    graph_id: str,
    document: "GraphDocument",
    *,
    wait: bool,
    timeout_seconds: float | None,
    fresh: bool,
) -> int:
    """Submit, say so, and wait if that is wanted; the exit code. fresh: see `submit_document`."""
    output = session.output
    async with minding_signals() as stop:
        submission = await submit_document(app, session, graph_id, document, stop, fresh=fresh)
        graph_id = submission.graph_id  # a server may have given another one, for one that was deleted
        created = str(submission.outcome) == "created"
        if not output.json:
            output.data(graph_id)
        size = f"{count(submission.tasks, 'task')}, {edges_words(submission.edges, document.groups)}"
        output.say(f"graph {graph_id}: {submission.outcome}, {size}")
        if not wait:
            session.answered(views.submitted, submission)
            output.hint(f"watch it: {command_words('watch', graph_id)}{session.store_words}")
            await hint_at_handlers(app, session, graph_id, serve="taskgraph serve --worker 2")
            return failures.DONE
        await hint_at_handlers(app, session, graph_id, serve="taskgraph serve --worker 2")
        return await wait_and_finish(app, session, graph_id, stop, timeout_seconds=timeout_seconds, fresh=created)


@command(
    "taskgraph submit graph.json --id nightly-2026-08-01",
    "taskgraph submit graph.json --wait --timeout 600",
    "taskgraph submit release.json --param version=1.4",
    "taskgraph submit hotfix.json --priority high",
    "generate | taskgraph submit -",
)
def submit(
    session: Session,
    file: options.GraphFileArgument,
    graph_id: options.IdOption = None,
    about: GraphOptions = GraphOptions(),
    wait: WaitOption = False,
    timeout: options.TimeoutOption = None,
) -> int:
    """Write a graph into the store and start it; handlers and workers elsewhere do the rest.

    The same graph under the same id again changes nothing and gives the same answer; another graph is refused. The id
    goes to stdout.
    """
    check_options(graph_id, wait, timeout)
    document, name = about.read(file)
    look_for_warnings(session, document, name, strict=about.strict)

    async def submitted(app: "App") -> int:
        new_id = await id_of_new(app, session, document, file, graph_id)
        return await submit_and_say(
            app, session, new_id, document, wait=wait, timeout_seconds=timeout, fresh=graph_id is None
        )

    return session.open(submitted, measured=True)


@command("taskgraph extend nightly-2026-08-01 more.json", 'taskgraph extend "$TASKGRAPH_GRAPH_ID" found.json')
def extend(
    session: Session,
    graph_id: options.GraphArgument,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="The tasks to add: YAML, JSON or TOML; - for standard input. They may require tasks of the graph.",
        ),
    ],
    param: options.ParamOption = None,
    strict: options.StrictOption = False,
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
        ),
    ] = None,
    timeout: options.PatienceOption = _EXTEND_TIMEOUT_SECONDS,
    plan: options.PlanOption = False,
    apply: options.ApplyOption = None,
) -> None:
    """Add tasks to a graph that runs, or is blocked.

    While the graph is paused they are staged, and added when it is resumed; it does not finish before.

    The same tasks again are the same request, and give its answer: nothing is added twice. Where the tasks name
    parameters that are not given, they have the values of the graph.
    """
    check_graph_id(graph_id)
    if request:
        check_graph_id(request)
    from taskgraph.documents.parameters import mentions, typed
    from taskgraph.documents.read import read_document

    values = typed(param or ())
    data, name, form = read_source(file)
    # What names no parameter is checked without the graph, before the store is opened.
    alone = None
    if not values and not mentions(data.decode("utf-8", "replace")):
        alone = read_document(data, source=name, kind="extension", form=form)
        look_for_warnings(session, alone, name, strict=strict)

    async def extended(app: "App", graph_id: str) -> None:
        from taskgraph.documents.canonical import document_object
        from taskgraph.interfaces.cli import planned
        from taskgraph.interfaces.operations import requests

        document = alone
        if document is None:
            given = await requests.given(app, graph_id, values, named=True)
            document = read_document(data, source=name, kind="extension", given=given, form=form)
            look_for_warnings(session, document, name, strict=strict)
        change = {"change": "extend", "extension": document_object(document)}
        if not await planned.instead(app, session, graph_id, change, plan=plan, digest=apply, patience=timeout):
            await _extend(app, session, graph_id, document, request, wait, timeout)

    session.open_graph(graph_id, extended, measured=True)


async def _extend(
    app: "App",
    session: Session,
    graph_id: str,
    document: "GraphDocument",
    request: str | None,
    wait: bool | None,
    timeout_seconds: float,
) -> None:
    from taskgraph.interfaces.operations import requests
    from taskgraph.interfaces.operations.waiting import ends

    output = session.output
    asked = await requests.extend(app, graph_id, document, request=request or None)
    if wait is not False:
        until = ends(app.clock, timeout_seconds)
        asked = await requests.extended(app, asked, until=until, deferred=wait is None)
        if asked.state not in requests.ANSWERED and (wait or not asked.waits_for):
            raise failures.TimedOut(
                f"request {asked.request} is {asked.state} after {timeout_seconds:g} s, and goes on by itself once "
                "handlers run (taskgraph serve); the same command looks again"
            )
    if not session.answered(views.extended, graph_id, asked.request, asked.state, len(document.tasks), asked.waits_for):
        output.data(asked.request)
    added = count(len(document.tasks), "task")
    if asked.waits_for:
        output.say(f"graph {graph_id}: {added} staged: made at resume, as the graph is paused")
    else:
        output.say(f"graph {graph_id}: {added} {'added' if asked.state == 'done' else 'asked for'}")
