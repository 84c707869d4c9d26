"""What the tasks of a graph have printed: of all of them, of some, of a group, or of those that failed for good."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from taskgraph.interfaces.app import App
from taskgraph.interfaces.one_graph import wait_for_end
from taskgraph.model.errors import InvalidInput, StorageUnavailable
from taskgraph.model.ids import is_task_id
from taskgraph.model.states import TaskState
from taskgraph.queries.groups import group_members
from taskgraph.queries.rows import status_of_task
from taskgraph.queries.values import TaskStatus
from taskgraph.storage.logs import Read
from taskgraph.storage.signals.news import Patience

LOG: Final = "run.log"
PIECE_BYTES: Final = 1 << 20
_STEP_BYTES: Final = 64 * 1024  # read at once, when looking for the end of a log, or for lines before it
_LINE_BYTES_MAX: Final = 1 << 20  # a longer line is parted
_AT_ONCE: Final = 16  # logs whose beginnings are read side by side
_LOOK_SECONDS: Final = 0.25
_QUIET_LOOK_SECONDS: Final = 1.0
_LOOK_SECONDS_MAX: Final = 5.0
_LOOK_SHARE: Final = 10  # looking for logs takes at most about one part in so many of the time
_QUIET_SECONDS: Final = 1.0  # a line without an end is not waited for any longer
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whose logs: of these tasks, of a group, or of all; failed: of those alone that failed for good."""

    labels: Sequence[str] = ()
    group: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Some whole lines of a log; the last piece of a log may end without the end of a line."""

    label: str
    task_id: str
    run: int
    data: bytes


@dataclass(slots=True)
class RunLog:
    """The log of a run, and how far it is read. size: when it was looked at last; grew: when that changed."""

    task: TaskStatus
    run: int
    size: int
    read: Read
    offset: int = 0
    rest: bytes = b""
    grew: float = 0.0

    async def more(self) -> bytes:
        """Whole lines that follow, about a piece of them; nothing when there are no more."""
        while self.offset < self.size and (piece := await self.read(offset=self.offset, limit=PIECE_BYTES)):
            self.offset += len(piece)
            data = self.rest + piece
            end = data.rfind(b"\n") + 1 or (len(data) if len(data) >= _LINE_BYTES_MAX else 0)
            self.rest = data[end:]
            if end:
                return data[:end]
        return b""

    def end(self) -> bytes:
        """The line that has no end."""
        rest, self.rest = self.rest, b""
        return rest

    def piece(self, data: bytes) -> LogPiece:
        return LogPiece(self.task.label, self.task.task_id, self.run, data)


async def find(app: App, graph_id: str, wanted: Wanted) -> tuple[list[RunLog], list[TaskStatus]]:
    """The latest log of each task that has one, by when these started; and tasks that were named and have none.

    Raises NotFound, InvalidInput.
    """
    named = await _named(app, graph_id, wanted)
    members = await _members(app, graph_id, wanted, named)
    sizes = await _sizes(app, graph_id, members)
    tasks = await app.queries.statuses(graph_id, list(sizes))
    chosen = sorted((task for task in tasks if not wanted.failed or _failed(task)), key=_by_start)
    found = [_log(app, graph_id, task, max(sizes[task.task_id]), sizes) for task in chosen]
    having = {each.task.task_id for each in found}
    return found, [task for task in named if task.task_id not in having]


async def read(found: Sequence[RunLog], *, tail: int | None = None) -> AsyncGenerator[LogPiece]:
    """One log after the other. tail: only so many lines at the end of each."""
    for place in range(0, len(found), _AT_ONCE):
        some = found[place : place + _AT_ONCE]
        for each, first in zip(some, await asyncio.gather(*(_first(each, tail) for each in some)), strict=True):
            data = first
            while data:
                yield each.piece(data)
                data = await each.more()
            if data := each.end():
                yield each.piece(data)


async def _first(log: RunLog, tail: int | None) -> bytes:
    if tail is not None:
        log.offset = await start_of_tail(log.read, log.size, tail)
    return await log.more()


async def follow(app: App, graph_id: str, wanted: Wanted, *, tail: int | None = None) -> AsyncGenerator[LogPiece]:
    """The latest logs as they grow, and those that join them, until the graph has ended or nothing of it can move.

    tail: of what was there before, only so many lines at the end of each. Raises NotFound, InvalidInput.
    """
    if wanted.failed:
        raise InvalidInput("logs of tasks that have failed grow no more: they are not followed")
    following = _Following(app, graph_id, wanted, await _named(app, graph_id, wanted), tail)
    ended = asyncio.create_task(wait_for_end(app, graph_id))
    pause, patience = _LOOK_SECONDS, Patience(app.clock)
    try:
        while True:
            over = ended.done()  # first: a run ends after its log is complete, so what is read then is all of it
            began = app.clock.monotonic()
            moved = False
            try:
                async for piece in following.look():
                    moved = True
                    yield piece
            except StorageUnavailable as error:  # reach: away
                await patience.outlast(error)
                continue
            patience.answered()
            if over:
                ended.result()
                for piece in following.rest():
                    yield piece
                return
            took = app.clock.monotonic() - began
            quiet = min(pause * 1.5, _QUIET_LOOK_SECONDS)
            pause = _LOOK_SECONDS if moved else min(max(quiet, took * _LOOK_SHARE), _LOOK_SECONDS_MAX)
            await app.clock.sleep(pause)
    finally:
        ended.cancel()
        await asyncio.wait((ended,))


class _Following:
    """The logs that are followed, one for each task: that of its latest run."""

    def __init__(self, app: App, graph_id: str, wanted: Wanted, named: Sequence[TaskStatus], tail: int | None) -> None:
        self._app = app
        self._graph_id = graph_id
        self._wanted = wanted
        self._named = named
        self._tail = tail  # None after the first look
        self._tasks: dict[str, TaskStatus] = {}
        self._logs: dict[str, RunLog] = {}
        self._first = True

    async def look(self) -> AsyncGenerator[LogPiece]:
        """What is new in them."""
        members = await _members(self._app, self._graph_id, self._wanted, self._named)
        sizes = await _sizes(self._app, self._graph_id, members)
        new = await self._app.queries.statuses(self._graph_id, [each for each in sizes if each not in self._tasks])
        self._tasks.update((task.task_id, task) for task in sorted(new, key=_by_start))
        tail, first, self._tail, self._first = self._tail, self._first, None, False
        for task_id, task in self._tasks.items():
            runs = sizes.get(task_id, {})
            log = self._logs.get(task_id)
            since = max(runs, default=0) if first else 0 if log is None else log.run
            for run in sorted(each for each in runs if each >= since):
                if log is None or log.run != run:
                    if log is not None and (data := log.end()):
                        yield log.piece(data)
                    log = self._logs[task_id] = _log(self._app, self._graph_id, task, run, sizes)
                    if tail is not None:
                        log.offset = await start_of_tail(log.read, log.size, tail)
                async for piece in self._new(log, runs[run]):
                    yield piece

    async def _new(self, log: RunLog, size: int) -> AsyncGenerator[LogPiece]:
        now = self._app.clock.monotonic()
        log.size = size
        if log.offset < size:
            log.grew = now
        while data := await log.more():
            yield log.piece(data)
        if now - log.grew > _QUIET_SECONDS and (data := log.end()):
            yield log.piece(data)

    def rest(self) -> list[LogPiece]:
        """Lines without an end, when nothing more will come."""
        return [log.piece(data) for log in self._logs.values() if (data := log.end())]


async def _named(app: App, graph_id: str, wanted: Wanted) -> list[TaskStatus]:
    if wanted.labels and wanted.group:
        raise InvalidInput("name tasks or a group, not both")
    await app.queries.state(graph_id)
    return [status_of_task(await app.queries.find_task(graph_id, label)) for label in wanted.labels]


async def _members(app: App, graph_id: str, wanted: Wanted, named: Sequence[TaskStatus]) -> Collection[str] | None:
    """TaskIds; None for all."""
    if wanted.group:
        return frozenset(await group_members(app.tables, graph_id, wanted.group))
    return {task.task_id for task in named} if wanted.labels else None


async def _sizes(app: App, graph_id: str, members: Collection[str] | None) -> dict[str, dict[int, int]]:
    """TaskId -> run -> bytes, of every log that is not empty."""
    found: dict[str, dict[int, int]] = {}
    continuation: str | None = None
    while True:
        page = await app.logs.files(graph_id, continuation=continuation)
        for file in page.files:
            inside = is_task_id(file.task_id) if members is None else file.task_id in members
            if inside and file.name == LOG and file.size:
                found.setdefault(file.task_id, {})[file.run] = file.size
        continuation = page.continuation
        if continuation is None:
            return found


def _log(app: App, graph_id: str, task: TaskStatus, run: int, sizes: dict[str, dict[int, int]]) -> RunLog:
    return RunLog(task, run, sizes[task.task_id][run], partial(app.logs.read, graph_id, task.task_id, run))


def _by_start(task: TaskStatus) -> tuple[datetime, str]:
    return task.started or _NEVER, task.label


def _failed(task: TaskStatus) -> bool:
    return task.state in (TaskState.FAILED, TaskState.EXCEPTION)


# --- the end of a log ------------------------------------------------------------------------------------------


async def start_of_tail(read: Read, size: int, lines: int) -> int:
    """Where the last lines begin of a log of this size."""
    if lines == 0:
        return size
    found, end = 0, size
    while end > 0:
        start = max(0, end - _STEP_BYTES)
        block = await read(offset=start, limit=end - start) or b""
        place = len(block) - (end == size and block.endswith(b"\n"))  # that ends the last line, and begins none
        while (place := block.rfind(b"\n", 0, place)) >= 0:
            found += 1
            if found == lines:
                return start + place + 1
        end = start
    return 0
