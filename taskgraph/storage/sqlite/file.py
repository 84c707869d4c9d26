"""The embedded store's file: one connection, group commits, and checkpoints of the write-ahead log.

Calls of one turn of the event loop run together, in one transaction. A short group runs on the event loop itself, where
nothing may wait: if another process has the file, or a group took long lately, it goes to a thread, as long groups do.
Where commits wait for the disk (`synchronous=full`), the thread commits what the loop has written, unless the disk is
quick and no other call came; what need only stand in the order of commits does not wait, as the next that does takes it
along. Checkpoints run on a thread and a connection of their own; only their last, small part comes between two groups,
so that the log can begin again from its start.
"""

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from taskgraph.model.clock import Clock
from taskgraph.model.errors import StorageError, StorageUnavailable, Unclear
from taskgraph.storage.sqlite import database

_T = TypeVar("_T")

# Others hold the file for a fraction of a millisecond each. SQLite's own waiting soon sleeps for 50 and 100 ms, and
# hardly ever finds the gap between two commits of a busy process.
_BUSY_PAUSE_SECONDS: Final = 0.0002
_BUSY_PAUSE_GROWTH: Final = 1.25
_BUSY_PAUSE_SECONDS_MAX: Final = 0.01
_GROUP_MAX: Final = 64  # calls in one transaction: bounds how long another process waits for its turn
_ETAG_BLOCK: Final = 10_000

MANY: Final = 1_000_000  # rows of a call that may be long: it goes to the thread
_SHORT_ROWS: Final = 32  # rows of a group that may run on the event loop: well under a millisecond
_SHORT_CHANGES: Final = 400  # rows that it may write there: some milliseconds, less than it takes to decide them
_SLOW_SECONDS: Final = 0.01  # for a few rows, which take a tenth of a millisecond
_LOOKED_AT_ROWS: Final = 8  # fewer are not worth a look at the clock
_AT_ONCE_MAX: Final = 16  # calls of one task that run without a turn of the loop: others wait for a few milliseconds
_SYNC_SECONDS: Final = 0.001  # that a wait for the disk may take on the event loop
_LONG_SECONDS: Final = 0.05  # a short group that took so long met a slow disk, or a cold file
_REST_GROUPS: Final = 20  # that go to the thread after such a one; and commits, after a wait that took longer

_WAL_PAGES_MAX: Final = 4 * database.WAL_PAGES  # from here on a checkpoint makes other processes wait too
_WAL_REST_PAGES: Final = 500  # so few may be copied while nothing of this process writes
_CHECKPOINT_ROUNDS: Final = 4  # before that, each of what was written during the one before
_CHECKPOINT_BUSY_SECONDS: Final = 1.0  # that the last part of a checkpoint may wait for other processes
_PAGE_CHARS: Final = 4_000  # of a page of the file, about

_FREE_PAGES_KEPT: Final = database.WAL_PAGES  # 64 MiB that are free stay in the file, for what comes next
_GIVEN_BACK_PAGES: Final = 2_000  # in one transaction: others wait for it

_TAKE_ETAGS: Final = "UPDATE counter SET value = value + ? WHERE name = 'etag' RETURNING value"
_TABLE_MADE: Final = "INSERT INTO tab (name) VALUES (?) ON CONFLICT (name) DO NOTHING"
_TABLE_ID: Final = "SELECT id FROM tab WHERE name = ?"


class Session:
    """What one call sees of the database: statements, and the transaction that it joins when it writes."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Clock,
        *,
        blank: bool = False,
        log: Path | None = None,
        level: str = "NORMAL",
    ) -> None:
        """log: the write-ahead log, which may be empty. level: `PRAGMA synchronous` of the connection."""
        self._connection = connection
        self._cursor = connection.cursor()  # of what has no rows to give: one for all is made once
        self._clock = clock
        self._log = log
        self._level = level
        self.waits = False  # the commit of this group waits for the disk
        self.blank = blank  # there is no file yet: a read finds nothing, and a write makes it
        self._table_ids: dict[str, int] = {}
        self._etag = self._etag_end = 0
        self.writing = False
        self.looks_first = False  # a commit of this group did not agree: each says what is wrong, before it writes
        self.row_by_row = False  # a statement for each row is the quickest: nothing else wants the interpreter's lock
        self.pages = 0.0  # about what has been written: only a checkpoint shows how long the log is

    def begin(self) -> None:
        if not self.writing:
            if self.blank:
                raise _NotThereError
            if self._log is not None and not self.waits:
                self._begin_log(self._log)
            else:
                level = "FULL" if self.waits else "NORMAL"
                if level != self._level:
                    self._sync_by(level)
                self._cursor.execute("BEGIN IMMEDIATE")
            self._log = None
            self.writing = True

    def _begin_log(self, log: Path) -> None:
        """Begin the first transaction, which begins the log unless another process has.

        SQLite syncs the header of a log, lest frames of an older one behind it be taken for its own. An empty log has
        none: what is written there is synced before it is copied into the file, as all else is.
        """
        self._sync_by("OFF")
        self._connection.execute("BEGIN IMMEDIATE")
        if not database.is_empty(log):  # that cannot change now: the lock is ours
            self._connection.execute("ROLLBACK")
            self._sync_by("NORMAL")
            self._connection.execute("BEGIN IMMEDIATE")

    def _sync_by(self, level: str) -> None:
        self._connection.execute(f"PRAGMA synchronous={level}")
        self._level = level

    def commit(self) -> None:
        if self.writing:
            self._cursor.execute("COMMIT")
            self.writing = False
            if self._level == "OFF":
                self._sync_by("NORMAL")

    def rollback(self) -> None:
        """Undo the group, and forget what it took from counters."""
        if self.writing or self._connection.in_transaction:  # else it met another process before it began
            self.writing = False
            self._etag = self._etag_end = 0
            self._table_ids.clear()
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        if self._level == "OFF":
            self._sync_by("NORMAL")

    def checkpoint(self, mode: str) -> None:
        """Copy the rest of the log, and begin it again. Outside of a transaction."""
        self._connection.execute(f"PRAGMA busy_timeout={round(_CHECKPOINT_BUSY_SECONDS * 1000)}")
        try:
            _, pages, copied = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        finally:
            self._connection.execute("PRAGMA busy_timeout=0")
        if pages == copied:
            # The first commit of a new log syncs its header. This one does, so that no other has to, on the event loop.
            self.begin()
            self.one(_TAKE_ETAGS, 1)
            self.commit()

    def wrote(self, places: int, chars: int) -> None:
        """Count what makes the log longer: scattered places, and text side by side."""
        self.pages += places + chars / _PAGE_CHARS

    def run(self, statement: str, *values: object) -> int:
        """Execute a statement; gives the number of rows that it changed."""
        return self._connection.execute(statement, values).rowcount

    def run_each(self, statement: str, rows: Sequence[Sequence[object]]) -> int:
        """Execute a statement for each of a few rows; gives the number of rows that they changed.

        Each lets go of the interpreter's lock. Where another thread takes it every time, they are not quick any more.
        """
        if not self.row_by_row or len(rows) < _LOOKED_AT_ROWS:
            return self._cursor.executemany(statement, rows).rowcount
        before = self._clock.monotonic()
        changed = self._cursor.executemany(statement, rows).rowcount
        if self._clock.monotonic() - before > _SLOW_SECONDS:
            self.row_by_row = False
        return changed

    def one(self, statement: str, *values: object) -> Any:
        return self._connection.execute(statement, values).fetchone()

    def etags(self, count: int) -> int:
        if self._etag + count > self._etag_end:
            block = max(_ETAG_BLOCK, count)
            (self._etag_end,) = self.one(_TAKE_ETAGS, block)
            self._etag = self._etag_end - block
        first = self._etag + 1
        self._etag += count
        return first

    def table_id(self, name: str, *, make: bool) -> int:
        """The number of a table, 0 for one that has not been written to."""
        if found := self._table_ids.get(name):
            return found
        if make:
            self.run(_TABLE_MADE, name)
        row = self.one(_TABLE_ID, name)
        if row is None:
            return 0
        # Uncommitted numbers are remembered too: a rollback forgets them all.
        self._table_ids[name] = int(row[0])
        return self._table_ids[name]

    def close(self) -> None:
        self._cursor.close()  # a statement of it that is left would keep the connection's locks
        self._connection.close()


class LookFirst(Exception):
    """A commit wrote less than it should: undo the group, and run it again with `Session.looks_first`."""


class _NotThereError(Exception):
    """A call writes, and the file has still to be made."""


@dataclass(slots=True)
class _Call:
    """future: for what waits in `loop`, None while nothing does."""

    work: Callable[[Session], Any]
    loop: asyncio.AbstractEventLoop
    rows: int
    commits: bool
    lasting: bool
    future: asyncio.Future[None] | None = None
    settled: bool = False
    result: Any = None
    error: BaseException | None = None


class File:
    """The connection, and the calls that wait for it. clock: shows which groups are too long for the event loop."""

    def __init__(self, path: Path, clock: Clock, synchronous: str) -> None:
        self.path = path
        self._clock = clock
        self._synchronous = synchronous
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="taskgraph-sqlite")
        self._lock = threading.Lock()  # guards the six below, nothing slow happens under it
        self._waiting: deque[_Call] = deque()
        self._turn_on: asyncio.AbstractEventLoop | None = None  # a turn is scheduled there
        self._caller = 0  # the number of the task that called last
        self._at_once = 0  # calls since the last turn that were run at once
        self._draining = False  # the thread takes what waits
        self._log_ends = ""  # the mode of the last part of a checkpoint, which the thread is to do
        self._closed = False
        self._owner = threading.Lock()  # held to use the connection; guards what is below
        self._session: Session | None = None
        self._identity: tuple[int, int] | None = None  # of the file that was opened first
        self._pause = threading.Event()  # never set: a way to wait
        self._rest = 0  # groups that go to the thread, however short
        self._sync_rest = 0  # commits of single calls that go to the thread
        self._checkpoints = _Checkpoints(path, self._end_log)

    async def call(
        self, work: Callable[[Session], _T], *, rows: int = MANY, commits: bool = False, lasting: bool = True
    ) -> _T:
        """Run work in a transaction with the other calls that wait. It may run twice; only the last run counts.

        rows: about how many it touches; few of them may run on the event loop. commits: whether it must not be done
        twice. lasting: whether it may write what has to survive a power cut; else the order of commits is enough.
        Raises StorageUnavailable; Unclear only where `commits`.
        """
        if self._closed:
            raise StorageUnavailable(f"{self.path} has been closed", str(self.path))
        loop = asyncio.get_running_loop()
        call = _Call(work, loop, rows, commits, lasting)
        caller = id(asyncio.current_task(loop))
        group: list[_Call] = []
        with self._lock:
            self._waiting.append(call)
            # Who has called last, or calls first, is alone, as far as that shows: there is no other call to wait for.
            if self._caller in (caller, 0) and self._at_once < _AT_ONCE_MAX and self._turn_on is None:
                self._at_once += 1
                group = self._taken_here()
            # A turn on another loop is not enough: that loop may end before it.
            elif not self._draining and self._turn_on is not loop:
                self._turn_on = loop
                loop.call_soon(self._turn, loop)
            self._caller = caller
        if group:
            self._run_here(group, loop)
        if not call.settled:
            call.future = loop.create_future()
            await call.future
        if call.error is not None:
            raise call.error
        result: _T = call.result
        return result

    def taken_away(self) -> str:
        """What became of the file that is open: "removed", "replaced by another file", or "" while it lies there."""
        if self._identity is None:
            return ""
        if database.is_missing(self.path):
            return "removed"
        return "" if database.identity(self.path) == self._identity else "replaced by another file"

    async def give_back(self) -> bool:
        """Make the file shorter by some of its free pages, if most of it is free; gives whether there is more to do.

        Free pages are used again, so a file that holds what it is used for stays as it is: only if more than half of it
        is free, and more than 64 MiB, rows were deleted that nothing comes after. A file that was made by version 0.3
        or before keeps its length.
        """
        if self._closed or not self.path.exists():
            return False
        return await self.call(_give_back)

    async def close(self) -> None:
        """Finish the calls that wait. Idempotent."""
        if self._closed:
            return
        self._closed = True
        with self._lock:
            self._hand_over()
        loop = asyncio.get_running_loop()
        if self._draining or len(asyncio.all_tasks(loop)) > 1:
            await loop.run_in_executor(self._thread, self._shut)
        else:  # nothing else is there to go on meanwhile, and a thread takes longer to start than most logs to copy
            self._shut()
        self._thread.shutdown(wait=False)  # nothing is left on it

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if self._turn_on is loop:
                self._turn_on, self._at_once = None, 0
            group = self._taken_here()
        if group:
            self._run_here(group, loop)

    def _taken_here(self) -> list[_Call]:
        """What waits, with the connection, to be run on the loop; nothing where the thread has it; under the lock."""
        if self._draining or not self._waiting:
            return []
        if self._closed or not self._is_short() or not self._owner.acquire(blocking=False):
            self._hand_over()
            return []
        return self._take(_GROUP_MAX)

    def _run_here(self, group: list[_Call], loop: asyncio.AbstractEventLoop) -> None:
        done = True
        committing = False
        try:
            before = self._clock.monotonic()
            done = self._run_group(group, on_loop=True)
            if self._clock.monotonic() - before > _LONG_SECONDS:
                self._rest = _REST_GROUPS
            used = self._session  # another one where the first was beyond use
            committing = done and used is not None and used.writing and self._commit_beside(group, used)
        except BaseException as error:
            _blame(group, error)
            if not isinstance(error, Exception):
                raise
        finally:
            if not committing:
                self._owner.release()
                if done and len(group) == 1 and group[0].loop is loop:
                    _settle(group)
                elif done:
                    _deliver(group, loop)
        if self._waiting or not done:
            with self._lock:
                if not done:
                    self._waiting.extendleft(reversed(group))
                self._hand_over()

    def _commit_beside(self, group: list[_Call], session: Session) -> bool:
        """Have the thread commit what a group has written. False: it is done here.

        Because the thread waits for its turn, or as no other call came and the disk is quick: to hand a commit over and
        back takes as long as half of such a wait.
        """
        here = len(group) == 1 and not self._sync_rest
        with self._lock:
            beside = not (here or self._draining or self._closed)
            if beside:
                self._thread.submit(self._end_group, group, session)
                self._draining = True
        if beside:
            self._sync_rest = max(0, self._sync_rest - 1)
            return True
        before = self._clock.monotonic()
        self._commit_group(group, session)
        if self._clock.monotonic() - before > _SYNC_SECONDS:
            self._sync_rest = _REST_GROUPS
        return False

    def _is_short(self) -> bool:
        read = written = 0
        for call in self._waiting:
            if call.commits:
                written += call.rows
            else:
                read += call.rows
        if written > _SHORT_CHANGES or read > _SHORT_ROWS:
            return False
        if self._rest:
            self._rest -= 1
            return False
        return True

    def _end_log(self, mode: str) -> None:
        with self._lock:
            self._log_ends = mode
            self._hand_over()

    def _hand_over(self) -> None:
        """Have the thread take what waits; under the lock."""
        if (self._waiting or self._log_ends) and not self._draining:
            try:
                self._thread.submit(self._drain)
            except RuntimeError:  # closed meanwhile, by the loop of another thread
                group = self._take(len(self._waiting))
                _blame(group, StorageUnavailable(f"{self.path} has been closed", str(self.path)))
                _deliver(group, None)
            else:
                self._draining = True

    def _take(self, count: int) -> list[_Call]:
        """The calls of the next group; under the lock."""
        if len(self._waiting) > count:
            return [self._waiting.popleft() for _ in range(count)]
        group = list(self._waiting)
        self._waiting.clear()
        return group

    # The next three run on the thread.

    def _end_group(self, group: list[_Call], session: Session) -> None:
        """Commit what the event loop has written, and let go of the connection."""
        try:
            self._commit_group(group, session)
        except BaseException as error:  # a bug of ours must reach the callers, and not end the thread silently
            _blame(group, error)
        finally:
            self._owner.release()
        with self._lock:
            may_turn = self._waiting and not self._closed and not self._log_ends
            loop = self._waiting[0].loop if may_turn else None
            self._draining = more = loop is None and bool(self._waiting or self._log_ends)
            self._turn_on = self._turn_on or loop
        _deliver(group, None)
        if more:
            self._drain()
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._turn, loop)
            except RuntimeError:  # the loop was closed meanwhile
                with self._lock:
                    self._hand_over()

    def _shut(self) -> None:
        self._checkpoints.close()  # its last part is left to the next one that opens the file
        with self._owner:
            if self._session is not None:
                self._session.close()
                self._session = None

    def _drain(self) -> None:
        more = True
        while more:
            with self._lock:
                group = self._take(_GROUP_MAX)
                mode, self._log_ends = self._log_ends, ""
            try:
                with self._owner:
                    if mode:
                        self._end_checkpoint(mode)
                    self._run_patiently(group)
            except BaseException as error:  # a bug of ours must reach the callers, and not end the thread silently
                _blame(group, error)
            # Before the answers leave: the calls that follow are short, or not, by their own size.
            with self._lock:
                self._draining = more = bool(self._waiting or self._log_ends)
            _deliver(group, None)

    # Everything below runs where `_owner` is held.

    def _end_checkpoint(self, mode: str) -> None:
        if self._session is not None:
            try:
                self._session.checkpoint(mode)
            except sqlite3.Error:  # the log goes on where it is, and the next commit shows what is wrong
                self._give_up(self._session)
        self._checkpoints.ended()

    def _run_patiently(self, group: list[_Call]) -> None:
        """Run and commit a group, as soon as no other process is in the way."""
        pause, waited = _BUSY_PAUSE_SECONDS, 0.0
        while not self._run_group(group, last=waited >= database.BUSY_SECONDS):
            self._pause.wait(pause)
            waited += pause
            pause = min(pause * _BUSY_PAUSE_GROWTH, _BUSY_PAUSE_SECONDS_MAX)

    def _run_group(
        self, group: list[_Call], *, last: bool = False, looks_first: bool = False, on_loop: bool = False
    ) -> bool:
        """Run and commit a group. False: another process has the file, nothing is done; an error if that was the last.

        Never waits for other processes, except to open the file. on_loop: not even for that. Nor is the file made
        there, and a commit that waits for the disk is left to the thread.
        """
        if not group:
            return True
        for call in group:
            call.error = None  # of a run that was undone
        try:
            session = self._session
            if session is None or session.blank:
                session = self._session = self._opened(waits=not on_loop)
        except StorageUnavailable as error:
            if on_loop:
                return False
            _blame(group, error)
            return True
        session.looks_first, session.row_by_row = looks_first, on_loop
        session.waits = self._synchronous == "full" and any(call.lasting for call in group)
        try:
            for call in group:
                if call.future is not None and call.future.cancelled():  # nothing waits, and nothing has been done
                    continue
                try:
                    call.result = call.work(session)
                except (StorageError, ValueError) as error:
                    # What is refused has written nothing: the others of the group go on.
                    call.error = error
        except BaseException as error:
            self._give_up(session)
            if isinstance(error, _NotThereError):
                return not on_loop and self._make_and_run(group)
            if isinstance(error, LookFirst) and not looks_first:
                return self._run_group(group, last=last, looks_first=True, on_loop=on_loop)
            if not isinstance(error, sqlite3.Error):
                raise
            if not last and database.is_busy(error):
                return False
            self._fail(group, error)
        else:
            if not on_loop or not session.waits:
                self._commit_group(group, session)
        return True

    def _commit_group(self, group: list[_Call], session: Session) -> None:
        if not session.writing:
            return
        try:
            session.commit()
            self._checkpoints.count(session)
        except BaseException as error:
            self._give_up(session)
            if not isinstance(error, sqlite3.Error):
                raise
            self._fail(group, error, unclear=not self._is_certain(error))

    def _fail(self, group: list[_Call], error: sqlite3.Error, *, unclear: bool = False) -> None:
        """unclear: the group may have been committed all the same."""
        sentence = database.sentence(self.path, error)
        for call in group:
            failure = Unclear(sentence) if unclear and call.commits else StorageUnavailable(sentence, str(self.path))
            failure.__cause__ = error
            call.error = failure

    def _opened(self, *, waits: bool) -> Session:
        if self._session is not None and self._session.blank and not database.is_missing(self.path):
            self._session.close()
            self._session = None
        if self._session is not None:
            return self._session
        if database.is_missing(self.path):
            return Session(database.nothing(), self._clock, blank=True)
        identity = database.identity(self.path)  # before it is opened: what takes its place meanwhile is another one
        connection = database.connect(self.path, self._synchronous, waits=waits)
        level = "FULL" if self._synchronous == "full" else "NORMAL"
        session = Session(connection, self._clock, log=database.log_of(self.path), level=level)
        self._identity = self._identity or identity
        return session

    def _make_and_run(self, group: list[_Call]) -> bool:
        """Make the file that a call wants to write to, and run the group again."""
        try:
            database.make(self.path)
        except StorageUnavailable as error:
            _blame(group, error)
            return True
        return self._run_group(group)

    def _give_up(self, session: Session) -> None:
        try:
            session.rollback()
        except sqlite3.Error:
            # The connection is beyond use: the next call gets a new one.
            self._session = None
            session.close()

    def _is_certain(self, error: sqlite3.Error) -> bool:
        """Whether a commit that failed so has certainly not happened: there was no room for the log's last page.

        Under `synchronous=full` the log is filled up behind that page, and it may be there.
        """
        return self._synchronous == "normal" and database.has_no_room(error)


class _Checkpoints:
    """Copies the log into the file, now and then, on a thread and a connection of its own.

    finish: called there when little is left, with the mode in which to copy that between two groups.
    """

    def __init__(self, path: Path, finish: Callable[[str], None]) -> None:
        self._path = path
        self._finish = finish
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="taskgraph-checkpoint")
        self._running = False
        self._factor = 2.0  # pages of the log for each that a session counts: known after each checkpoint

    def count(self, session: Session) -> None:
        """Begin a checkpoint if it is time; called after each commit, under `_owner`."""
        session.pages += 1
        if session.pages * self._factor < database.WAL_PAGES or self._running:
            return
        self._running = True
        try:
            self._thread.submit(self._run, session.pages)
        except RuntimeError:  # closed; the log stays for the next one that opens the file
            self._running = False
            return
        session.pages = 0

    def ended(self) -> None:
        self._running = False

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    def _run(self, counted: float) -> None:
        pages = 0
        # If it fails, the log stays as it is, and nothing is lost; the next commit shows what is wrong with the file.
        with suppress(sqlite3.Error), closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous=NORMAL")  # first the log, then the file
            before = 0
            for number in range(_CHECKPOINT_ROUNDS):
                _, pages, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if not number and pages > 0:
                    self._factor = min(max(pages / counted, 0.5), 10.0)  # a row may have many pages
                if pages - before <= _WAL_REST_PAGES:
                    break
                before = pages
        # Other processes may write without a pause, and the log grow and grow: in the end they have to wait once.
        self._finish("PASSIVE" if pages < _WAL_PAGES_MAX else "RESTART")


def _give_back(session: Session) -> bool:
    (pages,), (free,) = session.one("PRAGMA page_count"), session.one("PRAGMA freelist_count")
    over: int = free - max(_FREE_PAGES_KEPT, pages - free)
    if over <= 0 or session.one("PRAGMA auto_vacuum") != (2,):
        return False
    session.begin()
    for _ in range(min(over, _GIVEN_BACK_PAGES)):
        session.run("PRAGMA incremental_vacuum(1)")  # Python takes one step of it, which is one page
    more = over > _GIVEN_BACK_PAGES
    session.wrote(_GIVEN_BACK_PAGES if more else database.WAL_PAGES, 0)  # the last part: it is a checkpoint that cuts
    return more


def _blame(group: list[_Call], error: BaseException) -> None:
    for call in group:
        call.error = call.error or error


def _deliver(group: list[_Call], here: asyncio.AbstractEventLoop | None) -> None:
    """Hand the answers over: one wake-up for all calls of a loop, and none for `here`."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Call]] = {}
    for call in group:
        by_loop.setdefault(call.loop, []).append(call)
    for loop, calls in by_loop.items():
        if loop is here:
            _settle(calls)
            continue
        try:
            loop.call_soon_threadsafe(_settle, calls)
        except RuntimeError:  # the loop was closed meanwhile
            continue


def _settle(calls: list[_Call]) -> None:
    for call in calls:
        call.settled = True
        if call.future is not None and not call.future.done():  # else it is not waited for yet, or was cancelled
            call.future.set_result(None)
