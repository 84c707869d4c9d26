"""What all commands share: options, the session, the way in and the way out.

What this room is for: reading what stands before and after a command into one `Session`, opening the store, reading
documents, minding signals, and ending with the right exit code. It never knows what a command does.
"""

import asyncio
import inspect
import logging
import os
import shlex
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, ParamSpec, TypeVar

import typer
from typer.core import TyperGroup

from taskgraph.engine.telemetry import HANDLED
from taskgraph.interfaces import views
from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.loglines import JsonLines
from taskgraph.interfaces.cli.options import LOG_FORMAT_VARIABLE, JsonOption, StoreOption, VerboseOption
from taskgraph.interfaces.cli.output import Output, safe
from taskgraph.interfaces.settings import StoreSettings, read_settings
from taskgraph.model.errors import (
    InvalidGraph,
    InvalidInput,
    InvalidSettings,
    NotFound,
    Problem,
    StorageError,
    StorageUnavailable,
    TaskgraphError,
)
from taskgraph.model.priorities import LEVELS, column, is_level

if TYPE_CHECKING:
    from taskgraph.documents.nodes import GraphDocument, Kind
    from taskgraph.engine.telemetry import Telemetry
    from taskgraph.interfaces.app import App

log = logging.getLogger("taskgraph.cli")

T = TypeVar("T")
P = ParamSpec("P")

_USUAL_WAIT_SECONDS: Final = 3.0

STDIN: Final = "-"
_LOGGER: Final = "taskgraph"
_SPEAKING: Final = (_LOGGER, "opentelemetry")  # whose warnings are ours to say
_LOG_FORMATS: Final = ("text", "json")
_NO_GRAPH: Final = "index:none"  # no graph has such an id
_ANSWER_SECONDS_MAX: Final = 12.0

# --- options that many commands take ---------------------------------------------------------------------------

PassOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pass-env",
        metavar="NAME",
        help="Let commands see this variable, though it holds a secret; may be given several times. "
        "Otherwise TASKGRAPH_PASS_ENV.",
        show_default=False,
    ),
]
WithStoreOption = Annotated[
    bool,
    typer.Option(
        "--with-store",
        help="Hand the key of the store on to commands, so that they can call taskgraph extend: whoever submits to "
        "this worker may then do anything to the store. Otherwise TASKGRAPH_WITH_STORE.",
    ),
]


def examples(*commands: str) -> str:
    """The end of a help page."""
    return "\n".join(["[dim]Examples:[/dim]", *("  $ " + command.replace("[", "\\[") for command in commands)])


# --- the session -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Session:
    """One call of the command line."""

    output: Output = field(default_factory=Output)
    store: str | None = None
    verbose: int = 0
    json_logs: bool = False

    @property
    def settings(self) -> StoreSettings:
        """Where the store is. Raises InvalidSettings."""
        return read_settings(self.store, os.environ, cwd=Path.cwd())

    @property
    def store_words(self) -> str:
        """What to type after a command so that it finds the same store; never a key."""
        if self.store is None:
            return ""
        return f" --store {shlex.quote(self.store)}" if self.settings.embedded else " --store …"

    def open(self, work: "Callable[[App], Awaitable[T]]", *, measured: bool = False) -> T:
        """Run a coroutine over the store. measured: with telemetry, if the environment asks for it."""
        settings = self.settings
        telemetry: Telemetry | None = None
        if measured:
            from taskgraph.interfaces.telemetry import setup

            telemetry = setup.configure(os.environ)

        async def opened() -> T:
            from taskgraph.interfaces.app import open_app

            async with open_app(settings, telemetry=telemetry) as app:
                return await (work(app) if settings.embedded else _while_it_answers(app, work))

        try:
            return asyncio.run(opened())
        finally:
            if telemetry is not None and telemetry.enabled:
                setup.close()

    def say(self, text: str) -> None:
        """A line for people; where lines are for programs, one of the log."""
        if self.json_logs:
            log.info("%s", text)
        else:
            self.output.say(text)


async def _while_it_answers(app: "App", work: "Callable[[App], Awaitable[T]]") -> T:
    """What the work gives. A store that does not answer one question is given up, whatever the work would wait for.

    One row is asked for beside the work, so this costs a request and no time.
    """
    question = asyncio.ensure_future(app.tables.get(_NO_GRAPH, [_NO_GRAPH]))
    task = asyncio.ensure_future(work(app))
    try:
        await asyncio.wait((question, task), timeout=_ANSWER_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)
        if not question.done() and not task.done():
            end = app.settings.display
            raise StorageUnavailable(f"{end} has not answered within {_ANSWER_SECONDS_MAX:g} s", end)
        if not task.done() and isinstance(lost := question.exception(), StorageError):
            raise lost
        return await task
    finally:
        question.cancel()
        task.cancel()
        await asyncio.wait((question, task))
        if not question.cancelled():
            question.exception()  # that of a work which has ended says more


def begin(
    ctx: typer.Context,
    *,
    store: str | None = None,
    json: bool = False,
    verbose: int = 0,
    log_format: str | None = None,
) -> Session:
    """The session, with the options that stand after the command; those before it are in it already."""
    session = ctx.find_root().obj
    if not isinstance(session, Session):
        raise TypeError("the root command makes the session")
    if store is not None:
        session.store = store
    session.verbose += verbose
    session.output.json = json
    set_up_logging(session, log_format)
    return session


def with_session(command: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
    """A command that gets its session, and has the options of nearly all commands: --store, --json and --verbose."""
    own = inspect.signature(command)
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    common = [
        context.replace(name="store", default=None, annotation=StoreOption),
        context.replace(name="json", default=False, annotation=JsonOption),
        context.replace(name="verbose", default=0, annotation=VerboseOption),
    ]
    _, *given = own.parameters.values()
    signature = own.replace(parameters=[context, *given, *common])

    def called(ctx: typer.Context, store: str | None, json: bool, verbose: int, **options: Any) -> None:
        command(begin(ctx, store=store, json=json, verbose=verbose), **options)  # type: ignore[call-arg]

    called.__doc__, called.__name__, called.__module__ = command.__doc__, command.__name__, command.__module__
    called.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    called.__signature__ = signature  # type: ignore[attr-defined]
    return called


class _Voice(logging.Handler):
    """Log lines as words on stderr."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        """Say one line (and a traceback, if there is one and it is wanted)."""
        text = f"{record.levelname.lower()}: {record.name}: {record.getMessage()}"
        err = self._output.err
        style = "yellow" if record.levelno == logging.WARNING else "red" if record.levelno > logging.WARNING else "dim"
        err.line(err.paint(safe(text), "dim" if style == "dim" else "yellow" if style == "yellow" else "red"))
        if record.exc_info and record.exc_info[1] is not None:
            lines = traceback.format_exception(record.exc_info[1])
            err.line(safe("".join(lines).rstrip(), keep="\n"))


class _JsonVoice(_Voice):
    """Log lines as JSON on stderr."""

    def __init__(self, output: Output) -> None:
        super().__init__(output)
        self.setFormatter(JsonLines())

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        self._output.err.line(self.format(record))


def set_up_logging(session: Session, log_format: str | None = None) -> None:
    """Warnings to stderr; more with --verbose. The libraries stay at warnings: they would show headers.

    log_format: `text` or `json`; otherwise the environment's. With `json` whatever is logged is a line of JSON, and
    each handled message has one. Raises InvalidSettings.
    """
    source = "--log-format" if log_format else LOG_FORMAT_VARIABLE
    given = (log_format or os.environ.get(LOG_FORMAT_VARIABLE, "") or "text").lower()
    if given not in _LOG_FORMATS:
        raise InvalidSettings(f"{source}={given}: write text or json")
    session.json_logs = given == "json"
    voice = _JsonVoice(session.output) if session.json_logs else _Voice(session.output)
    for name in (*_SPEAKING, ""):  # the last is the root: other libraries' warnings, which must be JSON as well
        speaking = logging.getLogger(name)
        for handler in list(speaking.handlers):
            if isinstance(handler, _Voice):
                speaking.removeHandler(handler)
        if name or session.json_logs:
            speaking.addHandler(voice)
        if name:
            speaking.propagate = False
    logger = logging.getLogger(_LOGGER)
    for name in (HANDLED.name, log.name):
        logging.getLogger(name).setLevel(logging.INFO if session.json_logs else logging.NOTSET)
    library = logging.getLogger("azure")
    if not session.verbose and not library.handlers:
        library.addHandler(logging.NullHandler())  # what goes wrong there comes up as an error of ours
        library.propagate = False
    logger.setLevel((logging.WARNING, logging.INFO)[session.verbose] if session.verbose < 2 else logging.DEBUG)


# --- the way out -----------------------------------------------------------------------------------------------


def _missing_store(session: Session) -> str:
    """Words for a store without a file, "" for others: a wrong path finds nothing, as commands that look make none."""
    try:
        settings = session.settings
    except InvalidSettings:
        return ""
    if settings.path is None or settings.path.exists():
        return ""
    return f"there is no store at {settings.display}"


def print_error(session: Session, error: TaskgraphError) -> int:
    """Say why it ends, as words and, where JSON is wanted, as JSON; gives the exit code."""
    output = session.output
    if output.json and output.lines:
        output.json_line(views.line("error", failures.error_object(error)))
    elif output.json:
        output.document(failures.error_object(error))
    if isinstance(error, InvalidGraph):
        if not output.json:
            print_problems(output, error)
        output.fail(str(error))
    else:
        first, *more = failures.sentences(error)
        if isinstance(error, NotFound) and (missing := _missing_store(session)):
            more.append(missing)
        if session.json_logs:
            log.log(
                logging.INFO if isinstance(error, failures.Interrupted) else logging.ERROR,
                "%s",
                " ".join([first, *more]),
            )
            return failures.exit_code(error)
        if isinstance(error, failures.Interrupted):
            output.say(first)
        else:
            output.fail(first)
        for line in more:
            output.say(f"       {line}")
        if isinstance(error, StorageUnavailable) and "TASKGRAPH_GUARDED_BY" in os.environ:
            output.hint(
                "       a task's command has none of the secrets by which its worker signs in: see --with-store"
            )
    if session.verbose:
        output.err.line(safe("".join(traceback.format_exception(error)).rstrip(), keep="\n"))
    return failures.exit_code(error)


def print_problems(output: Output, error: InvalidGraph) -> None:
    """Every problem: where, what, and below it what to do."""
    err = output.err
    for where, message, remedy in failures.problem_lines(error):
        err.line(f"{err.paint(safe(where), 'bold')}: {safe(message)}")
        if remedy:
            err.line(f"    {err.paint(safe(remedy), 'dim')}")


def print_bug(session: Session, error: BaseException) -> int:
    """One line for something that must not happen; the traceback only with --verbose."""
    output = session.output
    output.fail(f"this is a bug in taskgraph, please report it: {type(error).__name__}: {error}")
    if session.verbose:
        output.err.line(safe("".join(traceback.format_exception(error)).rstrip(), keep="\n"))
    else:
        output.hint("       run it again with --verbose for the traceback")
    return failures.BUG


class Root(TyperGroup):
    """The root command: whatever a command raises becomes an exit code here."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read what stands before the command."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if hasattr(error, "format_message"):
                raise _harmless(error) from error.__cause__
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Usage errors are typer's own to tell."""
        try:
            return super().invoke(ctx)
        except TaskgraphError as error:
            raise typer.Exit(print_error(_session_of(ctx), error)) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(failures.INTERRUPTED) from error
        except BrokenPipeError:
            session = _session_of(ctx)
            session.output.out.hang_up()
            session.output.err.hang_up()
            raise typer.Exit(failures.DONE) from None
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if hasattr(error, "format_message"):  # what typer raises for bad usage
                raise _harmless(error) from error.__cause__
            raise typer.Exit(print_bug(_session_of(ctx), error)) from error


def _harmless(error: Any) -> Any:
    """A usage error that repeats what was typed, without what a terminal would obey."""
    error.message = safe(str(error.message))
    if type(error).__name__ == "NoSuchOption":
        error.message += "; what begins with - and is none, such as a label, stands behind --"
    return error


def _session_of(ctx: Any) -> Session:
    return ctx.obj if isinstance(ctx.obj, Session) else Session()


# --- documents -------------------------------------------------------------------------------------------------


def read_source(file: str) -> tuple[bytes, str]:
    """The bytes of a file (`-` for standard input), unpacked if they are gzip, and its name for messages.

    Raises InvalidGraph if it cannot be read.
    """
    name = "standard input" if file == STDIN else file
    try:
        data = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        problem = Problem("", "unreadable", f"It cannot be read: {error.strerror}.", "Check the name and the rights.")
        raise InvalidGraph([problem], name) from error
    if data.startswith(b"\x1f\x8b"):
        from taskgraph.documents.importers.shaping import unpacked

        data = unpacked(data, name)
    return data, name


def read_graph(
    file: str, kind: "Kind" = "graph", params: Sequence[str] | None = None, *, priority: str | None = None
) -> "tuple[GraphDocument, str]":
    """A validated document, and the name of its source. params: words of --param. priority: instead of its own.

    Raises InvalidGraph, InvalidInput.
    """
    if priority is not None and not is_level(priority):
        raise InvalidInput(f"--priority is one of {', '.join(LEVELS)}, and not {priority}")
    from taskgraph.documents.parameters import typed
    from taskgraph.documents.read import Given, read_document

    given = Given(typed(params or ()))
    data, name = read_source(file)
    document = read_document(data, source=name, kind=kind, given=given)
    return document if priority is None else replace(document, priority=column(priority)), name


def look_for_warnings(
    session: "Session", document: "GraphDocument", source: str, *, strict: bool = False
) -> InvalidGraph:
    """Print what is legal and looks like a mistake, but where JSON is asked for; gives it. Raises it if strict."""
    from taskgraph.documents.warnings import warnings

    found = InvalidGraph(warnings(document), source)
    if found.problems and strict:
        raise found
    err = session.output.err
    for where, message, remedy in () if session.output.json else failures.problem_lines(found):
        err.line(f"{err.paint('warning:', 'yellow')} {safe(where)}: {safe(message)}")
        err.line(f"    {err.paint(safe(remedy), 'dim')}")
    return found


def check_graph_id(graph_id: str, *, new: bool = False) -> str:
    """An id that may be one, see `queries`. Raises InvalidInput."""
    from taskgraph.queries import lookup

    lookup.check_graph_id(graph_id, new=new)
    return graph_id


# --- signals ---------------------------------------------------------------------------------------------------


async def with_hint(work: Coroutine[Any, Any, T], say: Callable[[], None]) -> T:
    """What the coroutine gives. Should it take longer than usual, `say` tells people what it may wait for."""
    later = asyncio.get_running_loop().call_later(_USUAL_WAIT_SECONDS, say)
    try:
        return await work
    finally:
        later.cancel()


def hint_at_handlers(session: Session, graph_id: str) -> None:
    """Say who does what has been asked for, and where to see it."""
    where = session.store_words
    session.output.hint(f"handlers must run for it: taskgraph serve{where}; see taskgraph status {graph_id}{where}")
