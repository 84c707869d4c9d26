"""The journal of a graph: its events from a cursor on, and as they come."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from taskgraph.model import facts, limits
from taskgraph.model.columns import integer, time_of
from taskgraph.model.errors import InvalidInput
from taskgraph.model.json_strict import show
from taskgraph.model.states import GRAPH_ENDED
from taskgraph.protocol.decide import event_key
from taskgraph.queries.lookup import GraphQueries, check_graph_id
from taskgraph.queries.values import Event
from taskgraph.storage.tables import Range

_FOLLOW_SECONDS: Final = 0.25

_FOLLOW_SECONDS_MAX: Final = 2.0


def read_cursor(since: "int | str") -> tuple[int, int]:
    """(number of the row read last, facts read of the next one), of a number or a cursor. Raises InvalidInput."""
    if isinstance(since, int):
        return since, 0
    row, dot, part = since.partition(".")
    if not (row.isascii() and row.isdigit() and len(row) < 11) or (dot and not (part.isascii() and part.isdigit())):
        raise InvalidInput(
            f"{show(since)} is no cursor: write the number of an event, or NUMBER.PART as events give it"
        )
    return (int(row) - 1, int(part) + 1) if dot else (int(row), 0)


def agrees(event: Event, where: Mapping[str, Sequence[str]]) -> bool:
    """Whether an event has, for each field that is named, one of the values: see `facts.agrees`."""
    return facts.agrees(event.kind, event.sequence, event.fields, where)


class JournalQueries(GraphQueries):
    async def events(
        self,
        graph_id: str,
        *,
        since: int | str = 0,
        limit: int = 1000,
        where: Mapping[str, Sequence[str]] | None = None,
    ) -> list[Event]:
        """The journal after `since`, in order; what stands on one row is never parted. where: see `agrees`."""
        found: list[Event] = []
        page_rows = min(limit, limits.PAGE_ROWS_MAX)
        async with aclosing(self.journal(graph_id, since=since, page_rows=page_rows)) as rows:
            async for facts in rows:
                found += [each for each in facts if agrees(each, where)] if where else facts
                if len(found) >= limit:
                    break
        return found

    async def journal(
        self, graph_id: str, *, since: int | str = 0, page_rows: int = limits.PAGE_ROWS_MAX
    ) -> AsyncGenerator[list[Event]]:
        """The journal after `since`, in order: the facts of one row after the other. since: see `read_cursor`."""
        check_graph_id(graph_id)
        last, read = read_cursor(since)
        async for row in self._pages(graph_id, Range(event_key(last + 1), "event;"), page_rows):
            sequence, time = integer(row.columns, "sequence"), time_of(row.columns, "time")
            facts = json.loads(str(row.columns.get("events", "[]")))
            events = [Event(sequence, time, str(fact.pop("event", "")), fact, part) for part, fact in enumerate(facts)]
            yield events[read:] if sequence == last + 1 else events

    async def follow(
        self, graph_id: str, *, since: int | str = 0, where: Mapping[str, Sequence[str]] | None = None
    ) -> AsyncGenerator[Event]:
        """The journal after `since` as it grows, with pauses, until the graph can change no more. Raises NotFound."""
        pause = _FOLLOW_SECONDS
        while True:
            ended = await self.state(graph_id) in GRAPH_ENDED  # first, so that its last events are read after it
            moved = False
            async with aclosing(self.journal(graph_id, since=since)) as rows:
                async for facts in rows:
                    for each in facts:
                        moved, since = True, each.cursor
                        if where is None or agrees(each, where):
                            yield each
            if ended:
                return
            pause = _FOLLOW_SECONDS if moved else min(pause * 1.5, _FOLLOW_SECONDS_MAX)
            await self._clock.sleep(pause)
