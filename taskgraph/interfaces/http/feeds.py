"""The journals that clients follow, each read once for all its followers.

The first follower of a graph starts a reader, which ends with the last one. It reads after a commit of this process
about the graph, and otherwise after pauses that grow; what it finds is kept for a while as batches. A follower that is
further behind reads rows by itself until it has come up to them.
"""

import asyncio
import functools
import json
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from taskgraph.interfaces import views
from taskgraph.interfaces.app import App
from taskgraph.interfaces.http import packing
from taskgraph.model.errors import NotFound, StorageError, TaskgraphError
from taskgraph.model.flag import Flag, wait_any
from taskgraph.model.states import GRAPH_ENDED
from taskgraph.queries.journal import agrees, read_cursor
from taskgraph.queries.values import Event

_KEPT_EVENTS: Final = 20_000  # some ten megabytes of a graph that is followed
_BATCH_EVENTS: Final = 5_000
_GATHER_SECONDS: Final = 0.1  # between two reads of a journal that grows, at the least
_GATHER_SECONDS_MAX: Final = 1.5
_GATHER_SECONDS_EACH: Final = 0.005  # more for each follower: what is read is sent to every one of them
_KEPT_SECONDS: Final = 5.0  # a feed that none follows: a page that looks again and again does so until then
_LOOK_SECONDS: Final = 0.25
LOOK_SECONDS_MAX: Final = 2.0

_as_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

Where = Mapping[str, Sequence[str]]
Place = tuple[int, int]
"""How far a journal is read, as `read_cursor` gives it: (row, facts of the next one)."""


def _after(event: Event) -> Place:
    """The place behind an event, such as `read_cursor` has it for its cursor."""
    return read_cursor(event.cursor)


class Batch:
    """Events in a row. start, end: the places before and behind them."""

    def __init__(self, start: Place, end: Place, events: Sequence[Event]) -> None:
        self.start = start
        self.end = end
        self.events = events
        self._rest = self

    @functools.cached_property
    def texts(self) -> list[bytes]:
        """Each as JSON, made once for all that follow."""
        return [_as_json(views.event(each)).encode() for each in self.events]

    @functools.cached_property
    def frames(self) -> bytes:
        """As server-sent events, made once for all that follow."""
        named = zip(self.events, self.texts, strict=True)
        return b"".join(b"id: %b\nevent: %b\ndata: %b\n\n" % (*_head(each), text) for each, text in named)

    @functools.cached_property
    def joined(self) -> bytes:
        return b",".join(self.texts)

    @functools.cached_property
    def packed(self) -> bytes:
        return packing.packed(self.joined)

    def rest(self, place: Place) -> "Batch":
        """What of it comes behind a place; made once for all that follow in step."""
        if not self.events or _after(self.events[0]) > place:
            return self
        if self._rest.start != place:
            self._rest = Batch(place, self.end, [each for each in self.events if _after(each) > place])
        return self._rest

    def first(self, count: int) -> "Batch":
        """So many of it at most."""
        if len(self.events) <= count:
            return self
        return Batch(self.start, _after(self.events[count - 1]), self.events[:count])

    def only(self, where: Where) -> "Batch":
        return Batch(self.start, self.end, [each for each in self.events if agrees(each, where)]) if where else self


def _head(event: Event) -> tuple[bytes, bytes]:
    return event.cursor.encode(), event.kind.encode()


@dataclass(slots=True)
class _Feed:
    """end: behind all that was read. trouble: why no more is read. ended: the graph can change no more."""

    end: Place
    batches: deque[Batch] = field(default_factory=deque)
    followers: int = 0
    bell: Flag = field(default_factory=Flag)
    come: Flag = field(default_factory=Flag)
    more: Flag = field(default_factory=Flag)
    ended: bool = False
    trouble: TaskgraphError | None = None
    reader: asyncio.Task[None] | None = None

    def put(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.end = batch.end
        while len(self.batches) > 1 and sum(len(each.events) for each in self.batches) > _KEPT_EVENTS:
            self.batches.popleft()

    def announce(self) -> None:
        more, self.more = self.more, Flag()
        more.set()

    def next(self, place: Place) -> Batch | None:
        """What comes behind a place, as far as it is kept without a gap."""
        if not self.batches or self.batches[0].start > place:
            return None
        return next((each.rest(place) for each in self.batches if each.end > place), None)


class Feeds:
    """The journals that are followed in this process. Used within `open`. streams: an answer may come bit by bit."""

    def __init__(self, app: App, *, streams: bool = True) -> None:
        self._app = app
        self.streams = streams
        self._feeds: dict[str, _Feed] = {}
        self._closed = Flag()
        self._ending: set[Flag] = set()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """On leaving, followers get no more."""
        listeners = self._app.handlers.listeners.news
        listeners.append(self._ring)
        try:
            yield
        finally:
            listeners.remove(self._ring)
            self.close()
            readers = [feed.reader for feed in self._feeds.values() if feed.reader is not None]
            await asyncio.gather(*readers, return_exceptions=True)

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self) -> None:
        self._closed.set()
        for event in self._ending:
            event.set()
        for feed in self._feeds.values():
            feed.bell.set()
            feed.announce()

    @contextmanager
    def ending(self, event: Flag) -> Iterator[None]:
        """Have an event set on `close`."""
        self._ending.add(event)
        if self.closed:
            event.set()
        try:
            yield
        finally:
            self._ending.remove(event)

    def _ring(self, graph_id: str) -> None:
        if (feed := self._feeds.get(graph_id)) is not None:
            feed.bell.set()

    async def follow(self, graph_id: str, since: str, where: Where) -> AsyncGenerator[Batch]:
        """The journal of a graph after a cursor, as it grows, until the graph can change no more, or `close`.

        A batch may be empty: it says how far the journal is read. Raises NotFound, StorageUnavailable.
        """
        place = read_cursor(since)
        feed = self._feeds.get(graph_id)
        if feed is None:
            await self._app.queries.state(graph_id)
            feed = self._feeds.setdefault(graph_id, _Feed(place))
        feed.followers += 1
        feed.come.set()
        if feed.reader is None:
            feed.reader = asyncio.create_task(self._read(graph_id, feed))
        try:
            while not self._closed.is_set():
                more = feed.more
                batch = feed.next(place)
                if batch is None and place < feed.end:
                    batch = await self._catch_up(graph_id, place)
                if batch is not None:
                    place = batch.end
                    yield batch.only(where)
                elif feed.trouble is not None:
                    raise feed.trouble
                elif feed.ended:
                    return
                elif feed.reader.done():
                    feed.reader.result()
                    return
                else:
                    await more.wait()
        finally:
            feed.followers -= 1
            if not feed.followers:
                feed.bell.set()

    async def _catch_up(self, graph_id: str, place: Place) -> Batch | None:
        """The next events behind a place, read for one follower."""
        async with aclosing(self._batches(graph_id, place)) as batches:
            async for batch in batches:
                return batch
        return None

    async def _batches(self, graph_id: str, place: Place) -> AsyncGenerator[Batch]:
        """The journal behind a place, up to its present end."""
        start, events = place, list[Event]()
        row, part = place
        since = f"{row + 1}.{part - 1}" if part else str(row)
        async with aclosing(self._app.queries.journal(graph_id, since=since)) as rows:
            async for facts in rows:
                events += facts
                if len(events) >= _BATCH_EVENTS:
                    batch = Batch(start, _after(events[-1]), events)
                    start, events = batch.end, []
                    yield batch
        if events:
            yield Batch(start, _after(events[-1]), events)

    async def _is_followed(self, feed: _Feed) -> bool:
        """Whether it has followers, waited for so long as a feed without any is kept."""
        while not feed.followers and not self._closed.is_set():
            feed.come.clear()  # who has come may have gone with what is kept
            if not await wait_any((feed.come, self._closed), _KEPT_SECONDS):
                return False
        return True

    async def _read(self, graph_id: str, feed: _Feed) -> None:
        """Read the journal of a graph while it has followers."""
        pause = _LOOK_SECONDS
        try:
            while await self._is_followed(feed) and not self._closed.is_set():
                feed.bell.clear()
                waiting = feed.followers  # before they are answered: those of long polls go then, and come again
                ended = await self._app.queries.state(graph_id) in GRAPH_ENDED  # first: its last events are read after
                moved = False
                async with aclosing(self._batches(graph_id, feed.end)) as batches:
                    async for batch in batches:
                        moved = True
                        feed.put(batch)
                        feed.announce()
                if ended:
                    feed.ended = True
                    break
                pause = _LOOK_SECONDS if moved else min(pause * 1.5, LOOK_SECONDS_MAX)
                await wait_any((feed.bell, self._closed), pause)
                gather = max(_GATHER_SECONDS, _GATHER_SECONDS_EACH * max(waiting, feed.followers))
                await wait_any((self._closed,), min(gather, _GATHER_SECONDS_MAX))
        except (StorageError, NotFound) as error:  # reach: http
            feed.trouble = error
        finally:
            if self._feeds.get(graph_id) is feed:
                del self._feeds[graph_id]
            feed.announce()

    async def next(self, graph_id: str, since: str, where: Where, seconds: float, most: int) -> list[Batch]:
        """The events after a cursor that are kept, waited for so long: none if there are none by then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), aclosing(self.follow(graph_id, since, where)) as batches:
                async for batch in batches:
                    if batch.events:
                        return self._with_more(graph_id, batch.first(most), where, most)
        return []

    def _with_more(self, graph_id: str, batch: Batch, where: Where, most: int) -> list[Batch]:
        """The batch, and whole ones that are kept behind it."""
        found, count = [batch], len(batch.events)
        feed = self._feeds.get(graph_id)
        while feed is not None and (more := feed.next(found[-1].end)) is not None:
            more = more.only(where)
            count += len(more.events)
            if count > most:
                break
            found.append(more)
        return [each for each in found if each.events]
