"""The journal of a graph: cursors in it, filters of events, its end, found with few reads, and following it."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from taskgraph.model import facts
from taskgraph.model.clock import Clock
from taskgraph.model.columns import Columns
from taskgraph.model.errors import InvalidInput, StorageUnavailable
from taskgraph.model.ids import event_key
from taskgraph.model.json_strict import show
from taskgraph.model.states import GRAPH_ENDED
from taskgraph.queries.values import Event
from taskgraph.storage.signals.news import Patience
from taskgraph.storage.tables import Range, Tables

if TYPE_CHECKING:
    from taskgraph.queries.lookup import GraphQueries

_FOLLOW_SECONDS: Final = 0.25
_FOLLOW_SECONDS_MAX: Final = 2.0
_PROBES: Final = 20
_PAGES_BETWEEN_PROBES: Final = 2


def read_cursor(since: "int | str") -> tuple[int, int]:
    """(number of the row read last, facts read of the next one), of a number or a cursor. Raises InvalidInput."""
    if isinstance(since, int):
        return since, 0
    row, dot, part = since.partition(".")
    if not (row.isascii() and row.isdigit() and len(row) < 11) or (dot and not (part.isascii() and part.isdigit())):
        form = "write the number of an event, or NUMBER.PART as events give it"
        raise InvalidInput(f"{show(since)} is no cursor: {form}")
    return (int(row) - 1, int(part) + 1) if dot else (int(row), 0)


def agrees(event: Event, where: Mapping[str, Sequence[str]]) -> bool:
    """Whether an event has, for each field that is named, one of the values: see `facts.agrees`."""
    return facts.agrees(event.kind, event.sequence, event.fields, where)


Totals = tuple[int, int, str]
"""Of a graph up to an event row: tasks completed (-1: not known) and skipped, and its column `spent`."""


async def find_end(
    tables: Tables, graph_id: str, sequence: int, completed: int, skipped: int, spent: str = ""
) -> tuple[int, int, int, str]:
    """The first free number of the event rows, and the totals by then.

    sequence: where to begin, with what is known by then. Numbers are gapless, so doubling steps find the end.
    """
    continuation: str | None = None
    pages = 0
    while True:
        rest = Range(event_key(sequence), "event;", select=("completed", "skipped", "spent"))
        page = await tables.query(graph_id, rest, continuation=continuation)
        if page.rows:
            last = page.rows[-1]
            sequence = int(last.key.removeprefix("event:")) + 1
            completed, skipped, spent = totals_in(last.columns)
        if page.continuation is None:
            return sequence, completed, skipped, spent
        continuation = page.continuation if not page.rows else None
        pages += 1
        if pages % _PAGES_BETWEEN_PROBES == 0 and continuation is None:
            probes = [sequence + (1 << step) for step in range(_PROBES)]
            found = await tables.get(graph_id, [event_key(number) for number in probes])
            for number, row in zip(probes, found, strict=True):
                if row is None:
                    break
                sequence = number + 1
                completed, skipped, spent = totals_in(row.columns)


def totals_in(columns: Columns) -> Totals:
    """What an event row says; rows of before version 0.2 do not say how many have completed."""
    completed, skipped, spent = columns.get("completed", -1), columns.get("skipped", 0), columns.get("spent", "")
    return (
        completed if isinstance(completed, int) else -1,
        skipped if isinstance(skipped, int) else 0,
        spent if isinstance(spent, str) else "",
    )


async def follow(
    queries: "GraphQueries",
    clock: Clock,
    graph_id: str,
    *,
    since: int | str,
    where: Mapping[str, Sequence[str]] | None,
) -> AsyncGenerator[Event]:
    """See `GraphQueries.follow`."""
    pause, patience = _FOLLOW_SECONDS, Patience(clock)
    while True:
        moved = False
        try:
            ended = await queries.state(graph_id) in GRAPH_ENDED  # first, so that its last events are read after it
            async with aclosing(queries.journal(graph_id, since=since)) as rows:
                async for facts_of_row in rows:
                    for each in facts_of_row:
                        moved, since = True, each.cursor
                        if where is None or agrees(each, where):
                            yield each
        except StorageUnavailable as error:  # reach: away
            await patience.outlast(error)
            continue
        patience.answered()
        if ended:
            return
        pause = _FOLLOW_SECONDS if moved else min(pause * 1.5, _FOLLOW_SECONDS_MAX)
        await queries.news.wait(graph_id, since, where=where, pause=pause)
