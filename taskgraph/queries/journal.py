"""The journal of a graph: cursors in it, filters of events, and its end, found with few reads."""

from collections.abc import Mapping, Sequence
from typing import Final

from taskgraph.model import facts
from taskgraph.model.columns import Columns
from taskgraph.model.errors import InvalidInput
from taskgraph.model.ids import event_key
from taskgraph.model.json_strict import show
from taskgraph.queries.values import Event
from taskgraph.storage.tables import Range, Tables

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


async def find_end(tables: Tables, graph_id: str, sequence: int, completed: int, skipped: int) -> tuple[int, int, int]:
    """The first free number of the event rows, and how many tasks had completed and been skipped by then.

    sequence: where to begin, with what is known by then. Numbers are gapless, so doubling steps find the end.
    """
    continuation: str | None = None
    pages = 0
    while True:
        rest = Range(event_key(sequence), "event;", select=("completed", "skipped"))
        page = await tables.query(graph_id, rest, continuation=continuation)
        if page.rows:
            last = page.rows[-1]
            sequence = int(last.key.removeprefix("event:")) + 1
            completed, skipped = totals_in(last.columns)
        if page.continuation is None:
            return sequence, completed, skipped
        continuation = page.continuation if not page.rows else None
        pages += 1
        if pages % _PAGES_BETWEEN_PROBES == 0 and continuation is None:
            probes = [sequence + (1 << step) for step in range(_PROBES)]
            found = await tables.get(graph_id, [event_key(number) for number in probes])
            for number, row in zip(probes, found, strict=True):
                if row is None:
                    break
                sequence = number + 1
                completed, skipped = totals_in(row.columns)


def totals_in(columns: Columns) -> tuple[int, int]:
    """Tasks completed (-1 where it does not say, before version 0.2) and skipped by an event row."""
    completed, skipped = columns.get("completed", -1), columns.get("skipped", 0)
    return completed if isinstance(completed, int) else -1, skipped if isinstance(skipped, int) else 0
