"""The command `logs`: what runs have printed, whole, in part, or as it comes; of one task, or of many."""

import codecs
import json as jsonlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli.common import Session, command
from taskgraph.interfaces.cli.options import GraphArgument, OptionalLabelsArgument, PartOption
from taskgraph.interfaces.cli.output import LogText, json_text
from taskgraph.interfaces.cli.prefixed import Prefixes, clean_lines
from taskgraph.interfaces.cli.signals import minding_signals, unless_stopped
from taskgraph.model.errors import InvalidInput, NotFound, StorageUnavailable
from taskgraph.model.states import TASK_UNRESOLVED

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.interfaces.operations.logs import LogPiece, Wanted
    from taskgraph.storage.tables import Row

_LOG_PIECE_BYTES: Final = 1 << 20
_LOOK_SECONDS: Final = 0.25
_LOOK_SECONDS_MAX: Final = 1.0


@command(
    "taskgraph logs nightly-2026-08-01",
    "taskgraph logs nightly-2026-08-01 --failed --tail 20",
    'taskgraph logs nightly-2026-08-01 "test/unit" --follow',
    'taskgraph logs nightly-2026-08-01 "sum" --result',
)
def logs(
    session: Session,
    graph_id: GraphArgument,
    labels: OptionalLabelsArgument = None,
    group: PartOption = "",
    failed: Annotated[
        bool, typer.Option("--failed", help="Only tasks that failed for good: the log of the last run of each.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, metavar="N", help="Only the last N lines of each log.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on until the run of the one LABEL has ended, or else the graph."),
    ] = False,
    run: Annotated[
        int | None,
        typer.Option(
            "--run", min=0, metavar="N", help="The run of the one LABEL, from 0; the latest that has a log otherwise."
        ),
    ] = None,
    result: Annotated[
        bool, typer.Option("--result", help="Print the result of the run of the one LABEL, which is JSON.")
    ] = False,
) -> None:
    """Print what the tasks of a graph have printed, each line behind the label of its task; of one LABEL, without it.

    Tasks come in the order in which they started, each with its latest run that has a log. With --json there is one
    object for each line, and for one LABEL a single one.

    A pipe gets the bytes as they were written. A terminal gets the text, with its colours, and without anything else
    that a terminal would obey.
    """
    labels = labels or []
    if len(labels) == 1 and not group and not failed:
        if follow and (session.output.json or result):
            raise InvalidInput("--follow prints a log as it grows; it goes with neither --json nor --result")
        if result and tail is not None:
            raise InvalidInput("--tail is about logs; it does not go with --result")
        one = labels[0]
        session.open_graph(graph_id, lambda app, found: _logs(app, session, found, one, run, follow, result, tail))
        return
    if run is not None or result:
        raise InvalidInput("--run and --result go with one LABEL, and neither --group nor --failed")
    session.output.lines = True
    session.open_graph(graph_id, lambda app, found: _many(app, session, found, labels, group, failed, tail, follow))


class _LogPrinter:
    """Prints a log: its bytes in a pipe, its text on a terminal."""

    def __init__(self, session: Session) -> None:
        self.out = session.output.out
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = LogText(colour=self.out.colour)

    def take(self, data: bytes) -> None:
        if self.out.tty:
            self.out.write(self._text.take(self._decoder.decode(data)))
        else:
            self.out.write_bytes(data)

    def end(self) -> None:
        if self.out.tty:
            self.out.write(self._text.take(self._decoder.decode(b"", True)) + self._text.end())


async def _logs(
    app: "App",
    session: Session,
    graph_id: str,
    label: str,
    run: int | None,
    follow: bool,
    result: bool,
    tail: int | None,
) -> None:
    row = await app.queries.find_task(graph_id, label)
    label, state = (str(row.columns.get(name, "")) for name in ("label", "state"))
    latest = _run_of(row)
    if run is not None and run > latest:
        runs = "only run 0" if latest == 0 else f"runs 0 to {latest}"
        raise NotFound(f"“{label}” has {runs} so far")
    task_id = row.key.removeprefix("task:")
    if follow:
        await _follow(app, session, graph_id, task_id, latest if run is None else run, tail)
        return
    name = "result.json" if result else "run.log"
    wanted = [run] if run is not None else [latest, latest - 1] if latest else [0]
    for number in wanted:
        read = partial(app.logs.read, graph_id, task_id, number, name=name, limit=_LOG_PIECE_BYTES)
        first = await read()
        if first is not None:
            break
    else:
        what = "result" if result else "log"
        raise NotFound(f"run {wanted[0]} of “{label}” has no {what}; the task is {state} in run {latest}")
    if run is None and number != latest:
        session.output.say(f"run {latest} has none yet; this is run {number}")
    offset = 0
    if tail is not None:
        offset = await _tail_of(read, tail)
        first = await read(offset=offset) or b""
    if session.output.json:
        whole = bytearray(first)
        while piece := await read(offset=offset + len(whole)):
            whole += piece
        if result:
            session.output.document(views.result(graph_id, label, task_id, number, jsonlib.loads(whole)))
        else:
            session.output.document(views.log(graph_id, label, task_id, number, whole.decode("utf-8", "replace")))
        return
    printer = _LogPrinter(session)
    printer.take(first)
    async for piece in _pieces(read, printer, offset + len(first)):
        printer.take(piece)
    printer.end()
    if result and session.output.out.tty:
        session.output.out.write("\n")


def _run_of(row: "Row") -> int:
    run = row.columns.get("run", 0)
    return run if isinstance(run, int) else 0


async def _pieces(
    read: Callable[..., Awaitable[bytes | None]], printer: _LogPrinter, offset: int
) -> AsyncGenerator[bytes]:
    """From offset to the present end."""
    while not printer.out.closed and (piece := await read(offset=offset)):
        yield piece
        offset += len(piece)


async def _tail_of(read: Callable[..., Awaitable[bytes | None]], lines: int) -> int:
    from taskgraph.interfaces.operations.logs import start_of_tail
    from taskgraph.storage.logs import size_of

    return await start_of_tail(read, await size_of(read), lines)


async def _follow(app: "App", session: Session, graph_id: str, task_id: str, run: int, tail: int | None) -> None:
    import asyncio

    from taskgraph.storage.signals.news import Patience

    printer = _LogPrinter(session)
    read = partial(app.logs.read, graph_id, task_id, run, limit=_LOG_PIECE_BYTES)
    offset = 0 if tail is None else await _tail_of(read, tail)
    pause, patience = _LOOK_SECONDS, Patience(app.clock)
    try:
        while not printer.out.closed:
            before = offset
            try:
                # The state first: a run ends after its log is complete, so what is read then is all of it.
                row = await app.queries.find_task(graph_id, task_id)
                over = _run_of(row) != run or row.columns.get("state") not in TASK_UNRESOLVED
                async for piece in _pieces(read, printer, offset):
                    printer.take(piece)
                    offset += len(piece)
            except StorageUnavailable as error:
                await patience.outlast(error)
                continue
            patience.answered()
            if over:
                break
            pause = _LOOK_SECONDS if offset > before else min(pause * 1.5, _LOOK_SECONDS_MAX)
            await asyncio.sleep(pause)
    finally:
        printer.end()


# --- many tasks ------------------------------------------------------------------------------------------------


async def _many(
    app: "App",
    session: Session,
    graph_id: str,
    labels: Iterable[str],
    group: str,
    failed: bool,
    tail: int | None,
    follow: bool,
) -> None:
    from taskgraph.interfaces.operations import logs as operation

    wanted = operation.Wanted(tuple(labels), group, failed)
    printer = _LinesPrinter(session, graph_id)
    if follow:
        async with minding_signals() as stop:
            await unless_stopped(stop, _print_all(printer, operation.follow(app, graph_id, wanted, tail=tail)))
        return
    found, without = await operation.find(app, graph_id, wanted)
    printer.prefixes.expect(each.task.label for each in found)
    await _print_all(printer, operation.read(found, tail=tail))
    for task in without:
        if not failed:
            session.output.say(f"“{task.label}” has no log; the task is {task.state} in run {task.run}")
    if not found and (failed or not without):
        session.output.say(_nothing(wanted))


def _nothing(wanted: "Wanted") -> str:
    which = " that failed for good" if wanted.failed else f" of group {wanted.group}" if wanted.group else ""
    return f"no task{which} has a log"


async def _print_all(printer: "_LinesPrinter", pieces: AsyncGenerator["LogPiece"]) -> None:
    async with aclosing(pieces):
        async for piece in pieces:
            printer.take(piece)
            if printer.out.closed:
                return


class _LinesPrinter:
    """Prints lines of many tasks: with their labels, or as JSON."""

    def __init__(self, session: Session, graph_id: str) -> None:
        self.out = session.output.out
        self.prefixes = Prefixes(self.out)
        self._json = session.output.json
        self._graph_id = graph_id

    def take(self, piece: "LogPiece") -> None:
        if self._json:
            self.out.line("\n".join(self._objects(piece)))
            return
        prefix = self.prefixes.of(piece.label)
        if self.out.tty:
            self.out.line("\n".join(prefix + line for line in clean_lines(piece.data, colour=self.out.colour)))
            return
        before = prefix.encode("utf-8", "replace")
        self.out.write_bytes(b"".join(before + line + b"\n" for line in piece.data.removesuffix(b"\n").split(b"\n")))

    def _objects(self, piece: "LogPiece") -> Iterable[str]:
        for line in piece.data.decode("utf-8", "replace").removesuffix("\n").split("\n"):
            made = views.log_line(self._graph_id, piece.label, piece.task_id, piece.run, line)
            yield json_text(made, indent=None, ascii_only=not self.out.unicode)
