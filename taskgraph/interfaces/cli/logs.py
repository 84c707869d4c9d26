"""The command `logs`: what a run has printed, whole, in part, or as it comes."""

import codecs
import json as jsonlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli.common import Session, command
from taskgraph.interfaces.cli.options import GraphArgument, LabelArgument
from taskgraph.interfaces.cli.output import LogText
from taskgraph.model.errors import InvalidInput, NotFound
from taskgraph.model.states import TASK_UNRESOLVED

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.storage.tables import Row

_LOG_PIECE_BYTES: Final = 1 << 20
_LOOK_SECONDS: Final = 0.25
_LOOK_SECONDS_MAX: Final = 1.0


@command('taskgraph logs nightly-2026-08-01 "test/unit" --follow', 'taskgraph logs nightly-2026-08-01 "sum" --result')
def logs(
    session: Session,
    graph_id: GraphArgument,
    label: LabelArgument,
    run: Annotated[
        int | None,
        typer.Option("--run", min=0, metavar="N", help="The run, from 0; the latest that has a log otherwise."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")] = False,
    result: Annotated[bool, typer.Option("--result", help="Print the result of the run, which is JSON.")] = False,
) -> None:
    """Print the output of a task's run.

    A pipe gets the bytes as they were written. A terminal gets the text, with its colours, and without anything else
    that a terminal would obey.
    """
    if follow and (session.output.json or result):
        raise InvalidInput("--follow prints a log as it grows; it goes with neither --json nor --result")
    session.open_graph(graph_id, lambda app, graph_id: _logs(app, session, graph_id, label, run, follow, result))


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
    app: "App", session: Session, graph_id: str, label: str, run: int | None, follow: bool, result: bool
) -> None:
    row = await app.queries.find_task(graph_id, label)
    label, state = (str(row.columns.get(name, "")) for name in ("label", "state"))
    latest = _run_of(row)
    if run is not None and run > latest:
        runs = "only run 0" if latest == 0 else f"runs 0 to {latest}"
        raise NotFound(f"“{label}” has {runs} so far")
    task_id = row.key.removeprefix("task:")
    if follow:
        await _follow(app, session, graph_id, task_id, latest if run is None else run)
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
    if session.output.json:
        whole = bytearray(first)
        while piece := await read(offset=len(whole)):
            whole += piece
        if result:
            session.output.document(views.result(graph_id, label, task_id, number, jsonlib.loads(whole)))
        else:
            session.output.document(views.log(graph_id, label, task_id, number, whole.decode("utf-8", "replace")))
        return
    printer = _LogPrinter(session)
    printer.take(first)
    await _copy(read, printer, len(first))
    printer.end()
    if result and session.output.out.tty:
        session.output.out.write("\n")


def _run_of(row: "Row") -> int:
    run = row.columns.get("run", 0)
    return run if isinstance(run, int) else 0


async def _copy(read: Callable[..., Awaitable[bytes | None]], printer: _LogPrinter, offset: int) -> int:
    """Print from offset to the present end; returns the new offset."""
    while not printer.out.closed and (piece := await read(offset=offset)):
        printer.take(piece)
        offset += len(piece)
    return offset


async def _follow(app: "App", session: Session, graph_id: str, task_id: str, run: int) -> None:
    import asyncio

    printer = _LogPrinter(session)
    read = partial(app.logs.read, graph_id, task_id, run, limit=_LOG_PIECE_BYTES)
    offset, pause = 0, _LOOK_SECONDS
    try:
        while not printer.out.closed:
            # The state first: a run ends after its log is complete, so what is read then is all of it.
            row = await app.queries.find_task(graph_id, task_id)
            over = _run_of(row) != run or row.columns.get("state") not in TASK_UNRESOLVED
            before = offset
            offset = await _copy(read, printer, offset)
            if over:
                break
            pause = _LOOK_SECONDS if offset > before else min(pause * 1.5, _LOOK_SECONDS_MAX)
            await asyncio.sleep(pause)
    finally:
        printer.end()
