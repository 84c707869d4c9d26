"""The commands `events` and `rows`: the journal of a graph, whole, filtered, or as it grows; and its rows."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli.common import Session, command
from taskgraph.interfaces.cli.options import GraphArgument
from taskgraph.interfaces.cli.output import LOOKS, count, json_text, moment, safe
from taskgraph.interfaces.cli.signals import minding_signals, unless_stopped
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput
from taskgraph.model.states import GraphState, TaskState

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.queries.values import Event
    from taskgraph.storage.tables import Row


_LINES_AT_ONCE: Final = 1_000


@command(
    "taskgraph events nightly-2026-08-01 --since 120",
    "taskgraph events nightly --follow --json",
    "taskgraph events nightly --filter event=task-failed --filter label='test/*'",
)
def events(
    session: Session,
    graph_id: GraphArgument,
    since: Annotated[
        str, typer.Option("--since", metavar="N", help="Only what comes after number N, or after the cursor N.PART.")
    ] = "0",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the graph can change no more.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="At most so many.")] = None,
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="FIELD=VALUE",
            help="Only events with this value, such as event=task-failed, label=build, changed=run; * and ? stand "
            "for any text. Of one field given twice either value will do.",
        ),
    ] = None,
) -> None:
    """Print the journal of a graph: what happened, in order.

    With --follow and --json, every line is one event. Its `cursor` is what --since goes on from.
    """
    where = _where(filters or ())
    if follow and limit is not None:
        raise InvalidInput("--follow goes on; it does not go with --limit")

    session.output.lines = follow

    async def journal(app: "App", graph_id: str) -> None:
        await app.queries.state(graph_id)
        if follow:
            async with minding_signals() as stop:
                await unless_stopped(stop, _follow_events(app, session, graph_id, since, where))
        elif session.output.json:
            events = (views.event(each) async for each in _journal(app, graph_id, since, where, limit))
            await session.output.document_of({"graphId": graph_id}, "events", events)
        else:
            await _print_journal(session, _journal(app, graph_id, since, where, limit))

    session.open_graph(graph_id, journal)


def _where(filters: Sequence[str]) -> dict[str, list[str]]:
    """The values of --filter by field."""
    where: dict[str, list[str]] = {}
    for each in filters:
        name, equals, text = each.partition("=")
        if not equals or not name:
            raise InvalidInput(f"--filter “{each}”: write FIELD=VALUE, such as event=task-failed")
        where.setdefault(name, []).append(text)
    return where


async def _journal(
    app: "App", graph_id: str, since: str, where: Mapping[str, Sequence[str]], limit: int | None = None
) -> AsyncIterator["Event"]:
    """Event by event, a page of rows at a time: a journal may be as long as the graph is large."""
    from taskgraph.queries.journal import agrees

    page_rows = limits.PAGE_ROWS_MAX if limit is None or where else min(limit, limits.PAGE_ROWS_MAX)
    number = 0
    async with aclosing(app.queries.journal(graph_id, since=since, page_rows=page_rows)) as rows:
        async for facts in rows:
            for each in facts:
                if not agrees(each, where):
                    continue
                if number == limit:
                    return
                number += 1
                yield each


async def _print_journal(session: Session, events: AsyncIterator["Event"]) -> None:
    some: list[Event] = []
    async for each in events:
        some.append(each)
        if len(some) == _LINES_AT_ONCE:
            _print_events(session, some)
            some.clear()
        if session.output.out.closed:
            return
    _print_events(session, some)


async def _follow_events(
    app: "App", session: Session, graph_id: str, since: str, where: Mapping[str, Sequence[str]]
) -> None:
    async with aclosing(app.queries.follow(graph_id, since=since, where=where)) as events:
        async for each in events:
            if session.output.json:
                session.output.json_line(views.event(each))
            else:
                _print_events(session, [each])
            if session.output.out.closed:
                return


# kinds of events that are no states -> the state whose symbol they have
_EVENT_LOOKS: Final[Mapping[str, str]] = {
    "stalled": GraphState.BLOCKED,
    "unstalled": TaskState.RUNNING,
    "unblocked": TaskState.RUNNING,
    "resumed": TaskState.RUNNING,
    "released": TaskState.RUNNING,
    "rerun": TaskState.PENDING,
    "retry": TaskState.PENDING,
    "paused": "held",
}


def looks_like(kind: str) -> str:
    """The state whose symbol an event has."""
    happened = kind.partition("-")[2]
    return _EVENT_LOOKS.get(happened, happened if happened in LOOKS else TaskState.UNSCHEDULED)


def _print_events(session: Session, found: "Sequence[Event]") -> None:
    out = session.output.out
    lines = []
    for each in found:
        fields = dict(each.fields)
        label = str(fields.pop("label", ""))
        fields.pop("task", None)
        words_of = {
            name: text if isinstance(text, str) else json_text(text, indent=None) for name, text in fields.items()
        }
        more = " ".join(f"{name}={text}" for name, text in words_of.items())
        symbol = out.symbol(looks_like(each.kind))
        kind = out.paint(f"{safe(each.kind):16}", "bold" if each.kind.startswith("graph-") else "")
        words = f"{out.paint(f'{each.sequence:>6}  {moment(each.time)}', 'dim')}  {symbol} {kind}"
        lines.append("  ".join(part for part in (words, safe(label), out.paint(safe(more), "dim")) if part).rstrip())
    if lines:
        out.line("\n".join(lines))


@command("taskgraph rows nightly-2026-08-01 --prefix task:", "taskgraph rows nightly-2026-08-01 --json")
def rows(
    session: Session,
    graph_id: GraphArgument,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Only keys that begin like this, such as task: or event:.")
    ] = "",
) -> None:
    """Print the rows of a graph as they stand in the table, every column of them."""

    async def partition(app: "App", graph_id: str) -> None:
        await app.queries.state(graph_id)
        async with aclosing(app.queries.rows(graph_id, prefix)) as found:
            if session.output.json:
                objects = (views.row(graph_id, row) async for row in found)
                await session.output.document_of({"graphId": graph_id}, "rows", objects)
            else:
                number = 0
                async for row in found:
                    _print_row(session, row)
                    number += 1
                    if session.output.out.closed:
                        break
                session.output.say(f"{count(number, 'row')} in partition {graph_id}")

    session.open_graph(graph_id, partition)


def _print_row(session: Session, row: "Row") -> None:
    out = session.output.out
    width = max((len(name) for name in row.columns), default=0)
    lines = [out.paint(safe(row.key), "bold")]
    lines += [
        f"  {out.paint(safe(name).ljust(width), 'dim')}  {safe(_value_text(value))}"
        for name, value in row.columns.items()
    ]
    out.line("\n".join(lines))


def _value_text(value: object) -> str:
    if isinstance(value, datetime):
        return views.iso(value) or ""
    return str(value).lower() if isinstance(value, bool) else str(value)
