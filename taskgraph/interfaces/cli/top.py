"""The command `top`: live graphs, workers and queues of a store, looked at again and again."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.common import Session, command
from taskgraph.interfaces.cli.output import Column, Stream, count, fitted, moment, safe, seconds, short, table_lines
from taskgraph.interfaces.cli.signals import minding_signals, unless_stopped
from taskgraph.model.errors import StorageUnavailable
from taskgraph.model.states import PAUSED, state_in_words

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.queries.overview import GraphLine, QueueLine, Snapshot

_GRAPHS_DEFAULT: Final = 20  # as in the room `overview`, which is not imported for a page of help
_INTERVAL_SECONDS: Final = 2.0
_SHARE: Final = 4  # looking takes at most one part in so many of the time
_WORKERS_SHOWN_MAX: Final = 12
_WIDTH_DEFAULT: Final = 100
_GRAPHS: Final = (
    Column("STATE", lambda one: state_in_words(one.state, (PAUSED,) if one.paused else ()), state=True),
    Column("GRAPH", lambda one: one.graph_id, flexible=True),
    Column("DONE", lambda one: _done(one), number=True),
    Column("RUN", lambda one: f"{one.running:,}{'+' if one.more else ''}", number=True),
    Column("READY", lambda one: _ready(one), number=True),
    Column("FAIL", lambda one: f"{one.failed:,}" if one.failed else "", number=True),
    Column("/S", lambda one: _rate(one.rate), number=True),
    Column("LEFT", lambda one: _left(one), number=True),
    Column("OLDEST READY", lambda one: _oldest(one), flexible=True),
)
_QUEUES: Final = (
    Column("QUEUE", lambda one: one.queue, flexible=True),
    Column("MESSAGES", lambda one: f"{one.messages:,}", number=True),
    Column("OLDEST", lambda one: short(one.oldest_seconds) if one.target else "", number=True),
    Column("WORKERS", lambda one: (f"{one.workers:,}" if one.workers else "none") if one.target else "", number=True),
    Column("BUSY", lambda one: f"{one.busy}/{one.slots}" if one.target and one.workers else "", number=True),
    Column("LIMIT", lambda one: _limit(one) if one.target else ""),
)
_WORKERS: Final = (
    Column("STATE", lambda one: one.state, state=True),
    Column("WORKER", lambda one: one.name, flexible=True),
    Column("TARGETS", lambda one: ", ".join(one.targets), flexible=True),
    Column("BUSY", lambda one: f"{one.busy}/{one.slots}", number=True),
    Column("SEEN", lambda one: short(one.seen_seconds), number=True),
    Column("RUNS", lambda one: ", ".join(f"{each['graph']} {each['label']}" for each in one.running), flexible=True),
)


@command("taskgraph top", "taskgraph top --interval 10 --limit 50", "taskgraph top --once --json")
def top(
    session: Session,
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.2, metavar="SECONDS", help="Between two looks, at the least.")
    ] = _INTERVAL_SECONDS,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, metavar="N", help="Show the newest so many live graphs.")
    ] = _GRAPHS_DEFAULT,
) -> None:
    """Watch live graphs, what waits longest in each, workers and queues, until Ctrl-C.

    A look costs three requests for each graph that is shown, and one for each queue; the last line says how many it
    were. It takes a quarter of the time at most, however slow the store is. With --json every look is a line of JSON,
    and with --once a document.
    """
    session.output.lines = not once
    session.open(lambda app: _top(app, session, once=once, interval=interval, limit=limit))


async def _top(app: "App", session: Session, *, once: bool, interval: float, limit: int) -> None:
    import asyncio

    overview = app.overview()
    output = session.output
    if once:
        snapshot = await overview.look(graphs_max=limit)
        if not session.answered(views.snapshot, snapshot):
            output.out.line("\n".join(picture(snapshot, output.out, output.out.width or _WIDTH_DEFAULT)))
        return

    async def go_on(draw: "Callable[[Snapshot | None, str], None]") -> None:
        snapshot: Snapshot | None = None
        while not output.out.closed:
            began, trouble = app.clock.monotonic(), ""
            try:
                snapshot = await overview.look(graphs_max=limit)
            except StorageUnavailable as error:
                if snapshot is None:
                    raise
                trouble = f"the store does not answer: {error}"
            draw(snapshot, trouble)
            await asyncio.sleep(max(interval, (app.clock.monotonic() - began) * (_SHARE - 1)))

    async with minding_signals() as stop:
        with _canvas(session) as draw, contextlib.suppress(failures.Interrupted):  # that is how one leaves
            await unless_stopped(stop, go_on(draw))


@contextlib.contextmanager
def _canvas(session: Session) -> "Iterator[Callable[[Snapshot | None, str], None]]":
    """Where looks are drawn: on a screen of its own, which goes with it; elsewhere one below the other."""
    output = session.output
    if output.json:

        def write(snapshot: "Snapshot | None", trouble: str) -> None:
            if snapshot is not None and not trouble:
                output.json_line(views.line("look", views.snapshot(snapshot)))

        yield write
        return
    if not output.out.live:

        def print_it(snapshot: "Snapshot | None", trouble: str) -> None:
            if snapshot is not None:
                output.out.line("\n".join([*picture(snapshot, output.out, _WIDTH_DEFAULT), trouble or ""]))

        yield print_it
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console(file=output.out.file, force_terminal=True, highlight=False, markup=False, emoji=False)
    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:

        def draw(snapshot: "Snapshot | None", trouble: str) -> None:
            if snapshot is None:
                return
            lines = picture(snapshot, output.out, console.width, trouble=trouble, height=console.height)
            live.update(Group(*(Text.from_ansi(line, no_wrap=True, overflow="crop") for line in lines)), refresh=True)

        yield draw


def picture(
    snapshot: "Snapshot", out: Stream, width: int, *, trouble: str = "", height: int | None = None
) -> list[str]:
    """A look as lines, no wider than that, and no more than `height`: workers give way first, then graphs."""
    states: dict[str, int] = {}
    for each in snapshot.graphs:
        state = state_in_words(each.state, (PAUSED,) if each.paused else ())
        states[state] = states.get(state, 0) + 1
    stalled = sum(each.stalled is not None for each in snapshot.graphs)
    parts = [count(snapshot.live, "live graph")]
    parts += [f"{number} {state}" for state, number in sorted(states.items()) if state != "running"]
    parts += [f"{stalled} stalled"] if stalled else []
    live = [one for one in snapshot.crew.workers if one.live]
    parts.append(f"{count(len(live), 'worker')}, {sum(one.busy for one in live)}/{sum(one.slots for one in live)} busy")
    parts += [] if snapshot.crew.handled else ["no handler"]
    clock = f"{snapshot.time:%H:%M:%SZ}"
    head = f"{out.paint(clock, 'bold')}  {fitted(', '.join(parts), width - len(clock) - 2).rstrip()}"
    foot = trouble or f"{count(snapshot.requests, 'request')} in {seconds(snapshot.seconds)}"
    if snapshot.live > len(snapshot.graphs):
        foot += f"; {snapshot.live - len(snapshot.graphs):,} more live graphs: --limit {snapshot.live}"
    queues = ["", *table_lines(snapshot.queues, _QUEUES, out, width)]
    graphs = _graph_lines(snapshot.graphs, out, width)
    shown = snapshot.crew.workers[:_WORKERS_SHOWN_MAX]
    workers = ["", *table_lines(shown, _WORKERS, out, width)] if shown else []
    if len(snapshot.crew.workers) > len(shown):
        workers.append(out.paint(f"… and {len(snapshot.crew.workers) - len(shown):,} more: taskgraph workers", "dim"))
    last = ["", out.paint(fitted(safe(foot), min(width, len(foot) + 1)).rstrip(), "yellow" if trouble else "dim")]
    if height is not None:
        room = height - 2 - len(last) - len(queues)
        graphs = _cut(graphs, max(3, room - min(len(workers), 5)), out)
        workers = _cut(workers, max(0, room - len(graphs)), out)
    return [head, "", *graphs, *queues, *workers, *last]


def _cut(lines: list[str], most: int, out: Stream) -> list[str]:
    """At most so many lines, the last of which counts the rest."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], out.paint(f"… {len(lines) - most + 1} more lines", "dim")] if most > 1 else []


def _graph_lines(graphs: "list[GraphLine] | Any", out: Stream, width: int) -> list[str]:
    if not graphs:
        return [out.paint("no graph is live", "dim")]
    lines = table_lines(graphs, _GRAPHS, out, width)
    made = lines[:1]
    for each, line in zip(graphs, lines[1:], strict=True):
        made.append(line)
        notes = []
        if each.paused:
            notes.append("paused: all of it")
        if each.stalled is not None:
            notes.append(f"stalled since {moment(each.stalled)}: {each.stalled_because}")
        for note in notes:
            made.append(out.paint(fitted(safe(f"  {'└' if out.unicode else '`'} {note}"), width).rstrip(), "yellow"))
    return made


def _done(one: "GraphLine") -> str:
    return f"{one.completed:,}/{one.tasks:,}" if one.completed >= 0 else f"?/{one.tasks:,}"


def _ready(one: "GraphLine") -> str:
    return f"{one.ready:,}{'+' if one.more else ''}" + (f" ({one.held:,} held)" if one.held else "")


def _left(one: "GraphLine") -> str:
    """How long it goes on at the pace since the look before."""
    left = one.tasks - max(0, one.completed) - one.failed
    return "" if one.paused or not one.rate or one.completed < 0 else short(left / one.rate)


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def _oldest(one: "GraphLine") -> str:
    return f"{short(one.oldest_seconds)} {one.oldest}" if one.oldest_seconds is not None else ""


def _limit(one: "QueueLine") -> str:
    return "paused" if one.paused else f"{one.permits:,}/{one.limit:,}" if one.limit else ""
