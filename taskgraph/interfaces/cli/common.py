"""What all commands share: how one is declared, its session, reading documents, and errors as words and exit codes."""

import inspect
import logging
import os
import re
import shlex
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.ctrl_c import as_exception
from taskgraph.interfaces.cli.loglines import ExportersInShort, TroubleInShort
from taskgraph.interfaces.cli.options import (
    LOG_FORMAT_VARIABLE,
    JsonOption,
    LogFormatOption,
    StoreOption,
    VerboseOption,
)
from taskgraph.interfaces.cli.output import Output, Style, safe
from taskgraph.interfaces.cli.plain_values import PlainCommand, PlainGroup
from taskgraph.interfaces.settings import StoreSettings, read_settings
from taskgraph.model.errors import (
    InvalidGraph,
    InvalidInput,
    InvalidSettings,
    NoGraph,
    NotFound,
    Problem,
    StorageError,
    StorageUnavailable,
    TaskgraphError,
)

if TYPE_CHECKING:
    from taskgraph.documents.nodes import GraphDocument, Kind
    from taskgraph.documents.texts import Form
    from taskgraph.engine.telemetry import Telemetry
    from taskgraph.interfaces.app import App

log = logging.getLogger("taskgraph.cli")

T = TypeVar("T")
P = ParamSpec("P")

_USUAL_WAIT_SECONDS: Final = 3.0

STDIN: Final = "-"
_LOGGER: Final = "taskgraph"
_NO_GRAPH: Final = "index:none"  # no graph has such an id
_ANSWER_SECONDS_MAX: Final = 12.0
_QUOTED: Final = re.compile(r"(?<!\w)'([^']+)'(?!\w)")  # in what typer says


@dataclass(slots=True)
class Session:
    """One call of the command line."""

    output: Output = field(default_factory=Output)
    store: str | None = None
    verbose: int = 0
    json_logs: bool = False
    _settings: tuple[str | None, StoreSettings] | None = None

    @property
    def settings(self) -> StoreSettings:
        """Of the store, as they were when they were first asked for. Raises InvalidSettings."""
        if self._settings is None or self._settings[0] != self.store:
            self._settings = self.store, read_settings(self.store, os.environ, cwd=Path.cwd())
        return self._settings[1]

    @property
    def store_words(self) -> str:
        """What to type after a command so that it finds the same store; never a key."""
        if self.store is None:
            return ""
        shown = self.settings.embedded or self.settings.server
        return f" --store {shlex.quote(self.store)}" if shown else " --store …"

    @property
    def direct_words(self) -> str:
        """The same after a command that takes the store itself, and cannot go over HTTP."""
        return ", where the store itself can be reached" if self.settings.server else self.store_words

    @property
    def store_above(self) -> str:
        """Words about a store in a folder above, where the one of this folder is looked at; otherwise ""."""
        found = self.settings.store_above(Path.cwd())
        return f"there is a store in {found.rpartition('/')[0]}: --store sqlite:///{found}" if found else ""

    def open(self, work: "Callable[[App], Awaitable[T]]", *, measured: bool = False) -> T:
        """Run a coroutine over the store. measured: with telemetry, if the environment asks for it."""
        import asyncio  # here, as in the other commands: help needs none of it

        settings = self.settings
        telemetry: Telemetry | None = None
        if measured:
            from taskgraph.interfaces.telemetry import setup

            telemetry = setup.configure(os.environ)

        async def opened() -> T:
            from taskgraph.interfaces.app import open_app

            async with open_app(settings, telemetry=telemetry) as app:
                return await (work(app) if settings.embedded or settings.server else _while_it_answers(app, work))

        try:
            runner = asyncio.Runner()
            runner.get_loop()  # made while Ctrl-C ends the process at once: half a loop would show a traceback
            with as_exception(), runner:
                return runner.run(opened())
        finally:
            if telemetry is not None and telemetry.enabled:
                setup.close()

    def open_graph(
        self, given: str, work: "Callable[[App, str], Awaitable[T]]", *, measured: bool = False
    ) -> tuple[str, T]:
        """`open` for a graph: its id, and what `work` gives for it (see `operations.which.named`)."""
        return self.open(lambda app: self.in_graph(app, given, lambda graph_id: work(app, graph_id)), measured=measured)

    async def in_graph(self, app: "App", given: str, ask: Callable[[str], Awaitable[T]]) -> tuple[str, T]:
        """What `operations.which.named` gives; it is said which graph was chosen, if that was not said by its id."""
        from taskgraph.interfaces.operations.which import named

        return await named(app, given, ask, chosen=lambda graph_id: self.say(f"graph {graph_id}"))

    def answered(self, view: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Print an answer as JSON (a line, of several), made by `view`, if JSON is wanted. Whether it is."""
        if self.output.json:
            write = self.output.json_line if self.output.lines else self.output.document
            write(view(*args, **kwargs))
        return self.output.json

    def say(self, text: str) -> None:
        """A line on stderr; with --log-format json one of the log."""
        if self.json_logs:
            log.info("%s", text)
        else:
            self.output.say(text)


async def _while_it_answers(app: "App", work: "Callable[[App], Awaitable[T]]") -> T:
    """What the work gives. Raises StorageUnavailable if the store does not answer a request that is sent beside it."""
    import asyncio

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


_COMMON_OPTIONS: Final[dict[str, tuple[Any, object]]] = {
    "store": (StoreOption, None),
    "json": (JsonOption, False),
    "verbose": (VerboseOption, 0),
    "log_format": (LogFormatOption, None),
}


@dataclass(frozen=True, slots=True)
class Command:
    """A command as typer takes it. help: paragraphs without line breaks of ours. epilog: its examples."""

    name: str
    call: Callable[..., None]
    help: str
    epilog: str


def command(
    *examples: str, options: Sequence[str] = ("store", "json", "verbose")
) -> Callable[[Callable[Concatenate[Session, P], int | None]], Command]:
    """Make a command of a function: its docstring is the help, and what it returns the exit code; None for 0.

    The function gets the session. A parameter that is a dataclass stands for options: its fields. options: those of
    `_COMMON_OPTIONS` that the command has after its own.
    """

    def declared(function: Callable[Concatenate[Session, P], int | None]) -> Command:
        _, *own = inspect.signature(function).parameters.values()
        groups: dict[str, Any] = {each.name: each.annotation for each in own if is_dataclass(each.annotation)}

        def call(ctx: typer.Context, **values: Any) -> None:
            if ctx.invoked_subcommand is not None:
                return
            session = _begin(ctx, **{name: values.pop(name) for name in options})
            if session.output.json and "json" not in options:
                raise InvalidInput(f"{ctx.info_name} has no --json")
            for name, group in groups.items():
                values[name] = group(**{each.name: values.pop(each.name) for each in fields(group)})
            if code := function(session, **values):  # type: ignore[call-arg]
                raise typer.Exit(code)

        context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        parameters = [context]
        for each in own:
            parameters += inspect.signature(groups[each.name]).parameters.values() if each.name in groups else [each]
        for name in options:
            annotation, default = _COMMON_OPTIONS[name]
            parameters.append(context.replace(name=name, default=default, annotation=annotation))
        call.__module__ = function.__module__
        call.__annotations__ = {each.name: each.annotation for each in parameters}
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
        return Command(
            function.__name__.rstrip("_").replace("_", "-"),
            call,
            "\n\n".join(" ".join(each.split()) for each in paragraphs),
            "\n".join(["[dim]Examples:[/dim]", *("  $ " + each.replace("[", "\\[") for each in examples)]),
        )

    return declared


def _begin(
    ctx: typer.Context, *, store: str | None = None, json: bool = False, verbose: int = 0, log_format: str | None = None
) -> Session:
    session = ctx.find_root().obj
    if not isinstance(session, Session):
        raise TypeError("the root command makes the session")
    if store is not None:
        session.store = store
    session.verbose += verbose
    session.output.json |= json
    set_up_logging(session, log_format)
    return session


class _StderrLog(logging.Handler):
    """Log lines on stderr, as words (with a traceback, if there is one) or as JSON."""

    def __init__(self, output: Output, *, as_json: bool) -> None:
        super().__init__()
        self._output = output
        self._lines: logging.Formatter | None = None
        if as_json:
            from taskgraph.interfaces.cli.loglines import JsonLines

            self._lines = JsonLines()

    def emit(self, record: logging.LogRecord) -> None:
        err = self._output.err
        if self._lines is not None:
            err.line(self._lines.format(record))
            return
        text = f"{record.levelname.lower()}: {record.name}: {record.getMessage()}"
        style: Style = "dim"
        if record.levelno >= logging.WARNING:
            style = "yellow" if record.levelno == logging.WARNING else "red"
        err.line(err.paint(safe(text), style))
        if record.exc_info and record.exc_info[1] is not None:
            _print_traceback(self._output, record.exc_info[1])


def set_up_logging(session: Session, log_format: str | None = None) -> None:
    """Warnings to stderr; more with --verbose. The libraries stay at warnings: they would show headers.

    log_format: `text` or `json`; otherwise the environment's. With `json` whatever is logged is a line of JSON, and
    there is one for each handled message. Raises InvalidSettings.
    """
    from taskgraph.engine.telemetry import HANDLED

    source = "--log-format" if log_format else LOG_FORMAT_VARIABLE
    given = (log_format or os.environ.get(LOG_FORMAT_VARIABLE, "") or "text").lower()
    if given not in ("text", "json"):
        raise InvalidSettings(f"{source}={given}: write text or json")
    session.json_logs = given == "json"
    voice = _StderrLog(session.output, as_json=session.json_logs)
    if not session.verbose:
        voice.addFilter(ExportersInShort())
        voice.addFilter(TroubleInShort())
    for name in (_LOGGER, "opentelemetry", ""):  # "" is the root: warnings of other libraries, which must be JSON too
        logger = logging.getLogger(name)
        for handler in list(logger.handlers):
            if isinstance(handler, _StderrLog):
                logger.removeHandler(handler)
        if name or session.json_logs:
            logger.addHandler(voice)
        if name:
            logger.propagate = False
    for name in (HANDLED.name, log.name):
        _set_level(name, logging.INFO if session.json_logs else logging.NOTSET)
    library = logging.getLogger("azure")
    if not session.verbose and not library.handlers:
        library.addHandler(logging.NullHandler())  # what goes wrong there becomes an error of ours
        library.propagate = False
    level = (logging.WARNING, logging.INFO)[session.verbose] if session.verbose < 2 else logging.DEBUG
    _set_level(_LOGGER, level)


def _set_level(name: str, level: int) -> None:
    logger = logging.getLogger(name)
    if logger.level != level:  # to set it makes every logger forget what it has found out of levels
        logger.setLevel(level)


# --- errors ----------------------------------------------------------------------------------------------------


def _of_store(session: Session, error: NotFound) -> list[str]:
    """What to say of the store in which something was not found: commands that only read create none."""
    try:
        settings = session.settings
    except InvalidSettings:
        return []
    missing = settings.path is not None and not settings.path.exists()
    said = [f"there is no store at {settings.display}"] if missing else []
    if (missing or isinstance(error, NoGraph)) and (above := session.store_above):
        said.append(above)
    return said


def print_error(session: Session, error: TaskgraphError) -> int:
    """Print an error as words and, where JSON is wanted, as JSON; returns the exit code."""
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
        if isinstance(error, NotFound):
            more += _of_store(session, error)
        if session.json_logs:
            level = logging.INFO if isinstance(error, failures.Interrupted) else logging.ERROR
            log.log(level, "%s", " ".join([first, *more]))
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
        _print_traceback(output, error)
    return failures.exit_code(error)


def _print_traceback(output: Output, error: BaseException) -> None:
    output.err.line(safe("".join(traceback.format_exception(error)).rstrip(), keep="\n"))


def print_problems(output: Output, error: InvalidGraph) -> None:
    """Every problem: where, what, and below it what to do."""
    err = output.err
    for where, message, remedy in failures.problem_lines(error):
        err.line(f"{err.paint(safe(where), 'bold')}: {safe(message)}")
        if remedy:
            err.line(f"    {err.paint(safe(remedy), 'dim')}")


def print_bug(session: Session, error: BaseException) -> int:
    """One line for an error that is none of ours; the traceback only with --verbose."""
    output = session.output
    output.fail(f"this is a bug in taskgraph, please report it: {type(error).__name__}: {error}")
    if session.verbose:
        _print_traceback(output, error)
    else:
        output.hint("       run it again with --verbose for the traceback")
    return failures.BUG


class _PlainFlags:
    """In a help, a flag has no type: `--json`, and not `--json <bool>`."""

    _params: list[Any] | None = None
    _parser: Any = None

    def get_params(self, ctx: Any) -> list[Any]:
        if self._params is None:  # it is asked for three times while a command is parsed
            self._params = super().get_params(ctx)  # type: ignore[misc]
            for each in self._params:
                if getattr(each, "is_flag", False) and each.metavar is None:
                    each.metavar = ""
        return self._params

    def make_parser(self, ctx: Any) -> Any:
        """The same for each call in one process: it keeps nothing of what it has parsed, but for whose call it is."""
        if self._parser is None:
            self._parser = super().make_parser(ctx)  # type: ignore[misc]
        self._parser.ctx = ctx
        return self._parser


class OwnCommand(_PlainFlags, PlainCommand):
    pass


class OwnGroup(_PlainFlags, PlainGroup):
    pass


class Root(OwnGroup):
    """The root command: what a command raises becomes an exit code here."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if hasattr(error, "format_message"):
                raise _misused(ctx, error) from error.__cause__
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """`help` before a command is `--help` behind it."""
        if args[0] != "help":
            return super().resolve_command(ctx, args)
        if len(args) == 1:
            typer.echo(ctx.get_help())
            raise typer.Exit
        return super().resolve_command(ctx, [*args[1:], "--help"])

    def invoke(self, ctx: Any) -> Any:
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
                raise _misused(ctx, error) from error.__cause__
            raise typer.Exit(print_bug(_session_of(ctx), error)) from error


def _misused(ctx: Any, error: Any) -> Any:
    """How the command ends after a usage error, which is printed in the form of all others."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return error
    words = " ".join(str(error.format_message()).split()).removesuffix(".")
    if type(error).__name__ == "NoSuchOption":
        words += "; what begins with - and is none, such as a label, stands behind --"
    session = _session_of(ctx)
    code = print_error(session, InvalidInput(_QUOTED.sub(r"“\1”", words)))
    where = error.ctx.command_path if getattr(error, "ctx", None) is not None else "taskgraph"
    session.output.hint(f"       see {where} --help")
    return typer.Exit(code)


def _session_of(ctx: Any) -> Session:
    return ctx.obj if isinstance(ctx.obj, Session) else Session()


# --- documents -------------------------------------------------------------------------------------------------


def read_source(file: str) -> "tuple[bytes, str, Form]":
    """The bytes of a file, unpacked if they are gzip, its name for messages, and its form. Raises InvalidGraph."""
    name = "standard input" if file == STDIN else file
    try:
        data = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        problem = Problem("", "unreadable", f"It cannot be read: {error.strerror}.", "Check the name and the rights.")
        raise InvalidGraph([problem], name) from error
    if data.startswith(b"\x1f\x8b"):
        from taskgraph.documents.importers.shaping import unpacked

        data = unpacked(data, name)
    from taskgraph.documents.texts import form_of

    return data, name, form_of(file)


def read_graph(file: str, kind: "Kind" = "graph", params: Sequence[str] | None = None) -> "tuple[GraphDocument, str]":
    """A validated document, and the name of its source. Raises InvalidGraph, InvalidInput.

    params: texts of --param.
    """
    from taskgraph.documents.parameters import typed
    from taskgraph.documents.read import Given, read_document
    from taskgraph.interfaces import document_files

    given = Given(typed(params or ()))
    data, name, form = read_source(file)
    files = document_files.finder(Path(".") if file == STDIN else Path(file).parent)
    folder = None if file == STDIN else document_files.folder_of(Path(file))
    return read_document(data, source=name, kind=kind, given=given, form=form, files=files, folder=folder), name


def look_for_warnings(
    session: "Session", document: "GraphDocument", source: str, *, strict: bool = False
) -> InvalidGraph:
    """Warn of what is legal and probably a mistake; with --json nothing is printed. Raises the warnings if strict."""
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
    """What stands for a graph; the id of a new one. Raises InvalidInput."""
    from taskgraph.model.ids import LAST
    from taskgraph.queries import lookup

    if new or graph_id != LAST:
        lookup.check_graph_id(graph_id, new=new)
    return graph_id


def read_checked(session: Session, file: str, params: Sequence[str] | None, *, strict: bool) -> "GraphDocument":
    """A validated graph, with its warnings printed. Raises InvalidGraph, InvalidInput."""
    document, source = read_graph(file, params=params)
    look_for_warnings(session, document, source, strict=strict)
    return document


# --- waiting ---------------------------------------------------------------------------------------------------


async def with_hint(work: Coroutine[Any, Any, T], say: Callable[[], Awaitable[None]]) -> T:
    """What the coroutine gives. If it takes longer than usual, `say` prints what it may wait for."""
    import asyncio

    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task,), timeout=_USUAL_WAIT_SECONDS)
        if not task.done():
            await say()
        return await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


async def hint_at_handlers(app: "App", session: Session, graph_id: str, *, serve: str = "taskgraph serve") -> None:
    """Say what must run for what has been asked for, if no handler is seen."""
    from taskgraph.interfaces.operations import handlers

    if not await handlers.seen(app):
        hint_at_none(session, graph_id, serve=serve)


def hint_at_none(session: Session, graph_id: str, *, serve: str = "taskgraph serve") -> None:
    where = session.direct_words
    run = "" if session.settings.server else f", or taskgraph run --id {graph_id}{where}"
    session.output.hint(f"no handler reads its results: start {serve}{where}{run}")
