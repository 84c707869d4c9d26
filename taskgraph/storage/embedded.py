"""The embedded store: tables and queues in one SQLite file, logs in files beside it.

What this room is for: the same promises as the cloud, on one machine, for any number of processes. It never knows what
a row or a message means, and never uses the network.

How it keeps its word:

- One thread owns one connection. Calls that are waiting together run in one transaction (group commit), and each sees
  what those before it did; an answer leaves only after the transaction is committed. Every statement hands the
  interpreter lock away and back, so each call is made of few statements, whatever the number of rows.
- Write-ahead log and `BEGIN IMMEDIATE`: writers of several processes take turns, readers never wait.
- `synchronous=NORMAL` by default: a process that dies loses nothing that was answered, and the file is never torn. A
  power cut may take the last moments, in whole transactions; `full` closes that window with one sync per transaction.
- Etags come from one counter in the file, taken in blocks: none is ever given twice, over all tables and processes,
  across deleting and creating again. A block that is lost with its process is simply not used.
"""

import asyncio
import json
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

from taskgraph import limits
from taskgraph.clock import Clock
from taskgraph.errors import Conflict, StaleDelivery, StorageError, StorageUnavailable, TooLarge, Unclear
from taskgraph.storage import checks
from taskgraph.storage.logs import Logs
from taskgraph.storage.queues import Delivery, Queues
from taskgraph.storage.tables import Change, Columns, Delete, Insert, Merge, Page, Range, Row, Tables, Value

_T = TypeVar("_T")

_BUSY_SECONDS: Final = 30.0
_APPLICATION_ID: Final = 0x74677266  # "tgrf", in the header of the file: this database is ours
_SCHEMA_VERSION: Final = 1
_WAL_PAGES: Final = 4_000  # 16 MiB between checkpoints: a checkpoint syncs, and bursts should not meet many
_CACHE_KIBIBYTES: Final = 64 * 1024
_STATEMENTS_CACHED: Final = 64
_GROUP_MAX: Final = 64  # calls in one transaction: bounds how long another process waits for its turn
_ETAG_BLOCK: Final = 10_000
_ROWS_AT_ONCE: Final = 200  # rows in one answer of SQLite, which is one text and may have 1e9 bytes
_PAGE_CHARS: Final = 4_000_000  # a page ends early past this, as the service's pages do
_SCAN_ROWS_MAX: Final = 2_000  # rows looked at for one page of a conditional query: others wait for the thread
_KEY_END: Final = "\U0010ffff"  # after every key that may be written
_SWITCH_TRIES: Final = 600  # of 50 ms: see _switch_to_wal
_SWITCH_PAUSE_SECONDS: Final = 0.05

_SCHEMA: Final = (
    "CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "INSERT INTO counter (name, value) VALUES ('etag', 0)",
    "CREATE TABLE tab (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    """CREATE TABLE row (tab INTEGER NOT NULL, partition TEXT NOT NULL, key TEXT NOT NULL,
        etag INTEGER NOT NULL, columns TEXT NOT NULL)""",
    "CREATE UNIQUE INDEX row_key ON row (tab, partition, key)",
    """CREATE TABLE message (id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, visible_at INTEGER NOT NULL,
        lease INTEGER NOT NULL DEFAULT 0, dequeue_count INTEGER NOT NULL DEFAULT 0, body TEXT NOT NULL)""",
    "CREATE INDEX message_visible ON message (queue, visible_at)",
)

# Rows come back as one JSON text, so that reading a thousand of them is one step and not a thousand: `columns` is JSON
# already and goes in as it stands.
_GET: Final = """
    SELECT '[' || json_quote(key) || ',' || etag || ',' || columns || ']'
    FROM row WHERE tab = ? AND partition = ? AND key = ?
"""
_GET_MANY: Final = """
    SELECT group_concat('[' || json_quote(key) || ',' || etag || ',' || columns || ']')
    FROM row WHERE tab = ? AND partition = ? AND key IN (SELECT value FROM json_each(?))
"""
_SCAN: Final = """
    SELECT count(*), max(key), group_concat('[' || json_quote(key) || ',' || etag || ',' || columns || ']')
    FROM (SELECT key, etag, columns FROM row WHERE tab = ? AND partition = ? AND key >= ? AND key < ?
          ORDER BY key LIMIT ?)
"""
_SCAN_WHERE: Final = """
    SELECT count(*), max(key), group_concat('[' || json_quote(key) || ',' || etag || ',' || columns || ']')
        FILTER (WHERE EXISTS (SELECT 1 FROM json_each(?) AS wanted WHERE instr(columns, wanted.value) > 0))
    FROM (SELECT key, etag, columns FROM row WHERE tab = ? AND partition = ? AND key >= ? AND key < ?
          ORDER BY key LIMIT ?)
"""
_PUT_HEAD: Final = "INSERT INTO row (tab, partition, key, etag, columns) VALUES "
_PUT_TAIL: Final = """
    ON CONFLICT (tab, partition, key) DO UPDATE SET etag = excluded.etag, columns = excluded.columns
"""
# One statement for so many rows, the largest first: a commit of 100 rows is four steps, made of fixed texts.
_PUTS: Final = tuple(
    (rows, _PUT_HEAD + ", ".join(["(?, ?, ?, ?, ?)"] * rows) + _PUT_TAIL) for rows in (64, 32, 16, 8, 4, 2, 1)
)
_REMOVE_MANY: Final = "DELETE FROM row WHERE tab = ? AND partition = ? AND key IN (SELECT value FROM json_each(?))"
_TAKE_ETAGS: Final = "UPDATE counter SET value = value + ? WHERE name = 'etag' RETURNING value"
_TABLE_MADE: Final = "INSERT INTO tab (name) VALUES (?) ON CONFLICT (name) DO NOTHING"
_TABLE_ID: Final = "SELECT id FROM tab WHERE name = ?"

_SEND: Final = "INSERT INTO message (queue, visible_at, body) SELECT ?, ?, value FROM json_each(?)"
_WAITING: Final = "SELECT 1 FROM message WHERE queue = ? AND visible_at <= ? LIMIT 1"
_NEXT: Final = """
    SELECT json_group_array(json_array(visible_at, id, lease, dequeue_count, body))
    FROM (SELECT visible_at, id, lease, dequeue_count, body FROM message
          WHERE queue = ? AND visible_at <= ? ORDER BY visible_at, id LIMIT ?)
"""
_LEASE: Final = """
    UPDATE message SET visible_at = ?, lease = lease + 1, dequeue_count = dequeue_count + 1
    WHERE id IN (SELECT value FROM json_each(?))
"""
_RENEW: Final = "UPDATE message SET visible_at = ?, lease = lease + 1 WHERE id = ? AND queue = ? AND lease = ?"
_ACKNOWLEDGE: Final = "DELETE FROM message WHERE id = ? AND queue = ? AND lease = ?"
_COUNT: Final = "SELECT count(*) FROM message WHERE queue = ?"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class EmbeddedStore:
    """A store in one SQLite file.

    path: the file, made with its folder at the first call. clock: leases and delays go by its `now`. synchronous:
    `normal` or `full`, see the module. Nothing is opened before the first call; `close` when done.
    """

    def __init__(self, path: Path, clock: Clock, *, synchronous: str = "normal") -> None:
        if synchronous not in ("normal", "full"):
            raise ValueError(f"synchronous={synchronous!r}: normal or full")
        self._path = path.absolute()
        self._clock = clock
        self._file = _File(self._path, synchronous)
        self._logs = _Logs(self._path.parent / "logs")

    @property
    def path(self) -> Path:
        """The file, as an absolute path."""
        return self._path

    def tables(self, name: str) -> Tables:
        """The table of this name. Raises ValueError for a name that the cloud would refuse."""
        checks.check_table_name(name)
        return _Tables(self._file, name)

    def queues(self, on_send: Callable[[str], None] | None = None) -> Queues:
        """All queues. on_send: called on the event loop with the queue's name after a send that can be received now."""
        return _Queues(self._file, self._clock, on_send)

    def logs(self) -> Logs:
        """All logs: files under `logs/<graph>/<task>/<run>/` beside the database."""
        return self._logs

    async def close(self) -> None:
        """Finish what was begun and close the file. Idempotent; later calls raise StorageUnavailable."""
        await self._file.close()
        await self._logs.shut()


# --- the file and its thread -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Call:
    """One port call on its way through the thread."""

    work: Callable[["_Session"], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    commits: bool  # a commit of rows: the one call whose lost answer is worth settling
    result: Any = None
    error: BaseException | None = None


class _Session:
    """What one call sees of the database: statements, and the transaction that it joins when it writes."""

    def __init__(self, file: "_File", connection: sqlite3.Connection) -> None:
        self._file = file
        self._connection = connection
        self._table_ids: dict[str, int] = {}
        self._etag = self._etag_end = 0
        self.writing = False

    def begin(self) -> None:
        """Be in the writing transaction of this group from here on."""
        if not self.writing:
            self._connection.execute("BEGIN IMMEDIATE")
            self.writing = True

    def commit(self) -> None:
        """End the group's transaction, if it wrote."""
        if self.writing:
            self._connection.execute("COMMIT")
            self.writing = False

    def rollback(self) -> None:
        """Undo the group; also what was taken from counters and remembered of it."""
        self.writing = False
        self._etag = self._etag_end = 0
        self._table_ids.clear()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def run(self, statement: str, *values: object) -> int:
        """Execute a statement that gives nothing; gives the number of rows it changed."""
        return self._connection.execute(statement, values).rowcount

    def one(self, statement: str, *values: object) -> Any:
        """Execute a statement that gives at most one row; gives it, or None."""
        return self._connection.execute(statement, values).fetchone()

    def etags(self, count: int) -> int:
        """The first of `count` fresh etags in a row."""
        if self._etag + count > self._etag_end:
            block = max(_ETAG_BLOCK, count)
            (self._etag_end,) = self.one(_TAKE_ETAGS, block)
            self._etag = self._etag_end - block
        first = self._etag + 1
        self._etag += count
        return first

    def table_id(self, name: str, *, make: bool) -> int:
        """The number of a table, 0 for one that nobody has written to yet."""
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
        self._connection.close()


class _File:
    """The thread that owns the connection, and the calls that wait for it."""

    def __init__(self, path: Path, synchronous: str) -> None:
        self.path = path
        self._synchronous = synchronous
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="taskgraph-sqlite")
        self._lock = threading.Lock()  # guards _waiting and _draining, nothing slow happens under it
        self._waiting: deque[_Call] = deque()
        self._draining = False
        self._closed = False
        self._session: _Session | None = None  # only the thread touches it

    async def call(self, work: Callable[[_Session], _T], *, commits: bool = False) -> _T:
        """Run work on the thread, in a transaction with whatever else is waiting.

        Raises StorageUnavailable; Unclear only where `commits`: whatever else may be done twice, and is asked again.
        """
        if self._closed:
            raise StorageUnavailable(f"{self.path} has been closed", str(self.path))
        loop = asyncio.get_running_loop()
        call = _Call(work, loop.create_future(), loop, commits)
        with self._lock:
            self._waiting.append(call)
            start, self._draining = not self._draining, True
        if start:
            self._thread.submit(self._drain)
        result: _T = await call.future
        return result

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._shut)
        self._thread.shutdown(wait=False)  # nothing is left on it

    # Everything below runs on the thread.

    def _shut(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _drain(self) -> None:
        while True:
            with self._lock:
                group = [self._waiting.popleft() for _ in range(min(len(self._waiting), _GROUP_MAX))]
                if not group:
                    self._draining = False
                    return
            try:
                self._run_group(group)
            except BaseException as error:  # a bug of ours must reach those who wait, and not end the thread silently
                for call in group:
                    call.error = call.error or error
            _deliver(group)

    def _run_group(self, group: list[_Call]) -> None:
        try:
            session = self._session = self._session or _Session(self, _connect(self.path, self._synchronous))
        except StorageUnavailable as error:
            for call in group:
                call.error = error
            return
        committing = False
        try:
            for call in group:
                if call.future.cancelled():  # nobody waits any more, and nothing has been done
                    continue
                try:
                    call.result = call.work(session)
                except (StorageError, ValueError) as error:
                    # The work raises its own refusals before it writes anything: the others of the group go on.
                    call.error = error
            committing = True
            session.commit()
        except BaseException as error:
            wrote = session.writing
            self._give_up(session)
            for call in group:
                call.error = self._told(error, unclear=committing and wrote and call.commits)
            if not isinstance(error, sqlite3.Error):
                raise

    def _give_up(self, session: _Session) -> None:
        try:
            session.rollback()
        except sqlite3.Error:
            # The connection is beyond use; the one who waits gets the first error, the next call a new connection.
            self._session = None
            session.close()

    def _told(self, error: BaseException, *, unclear: bool) -> BaseException:
        if not isinstance(error, sqlite3.Error):
            return error
        sentence = _sentence(self.path, error)
        told = Unclear(sentence) if unclear else StorageUnavailable(sentence, str(self.path))
        told.__cause__ = error
        return told


def _deliver(group: list[_Call]) -> None:
    """Hand the answers over: one wake-up for all calls of one loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Call]] = {}
    for call in group:
        by_loop.setdefault(call.loop, []).append(call)
    for loop, calls in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, calls)
        except RuntimeError:  # the loop was closed meanwhile, so nobody is left who could wait for these
            continue


def _settle(calls: list[_Call]) -> None:
    for call in calls:
        if call.future.done():  # cancelled by the one who waited
            continue
        if call.error is not None:
            call.future.set_exception(call.error)
        else:
            call.future.set_result(call.result)


def _connect(path: Path, synchronous: str) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageUnavailable(f"the folder of {path} cannot be made: {error.strerror}", str(path)) from error
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, isolation_level=None, cached_statements=_STATEMENTS_CACHED
        )
        _prepare(connection, path, synchronous)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise StorageUnavailable(_sentence(path, error), str(path)) from error
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, synchronous: str) -> None:
    """Look whether the file is ours, and make the schema if it is new."""
    _switch_to_wal(connection, path)
    connection.execute(f"PRAGMA synchronous={'FULL' if synchronous == 'full' else 'NORMAL'}")
    connection.execute(f"PRAGMA wal_autocheckpoint={_WAL_PAGES}")
    connection.execute(f"PRAGMA cache_size=-{_CACHE_KIBIBYTES}")
    # Each look is in one transaction: between two statements of their own, another process may make the schema, and a
    # file that is half ours looks like anyone else's.
    with _transaction(connection, "BEGIN"):
        ours = _is_ours(connection, path)
    if not ours:
        with _transaction(connection, "BEGIN IMMEDIATE"):
            if not _is_ours(connection, path):  # another process may have been quicker
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version={_SCHEMA_VERSION}")
                connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """True for our file, False for an empty one. Raises StorageUnavailable for anyone else's."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application == _APPLICATION_ID:
        if version > _SCHEMA_VERSION:
            raise StorageUnavailable(f"{path} was written by a newer version of taskgraph", str(path))
        return True
    (count,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application or count:
        raise StorageUnavailable(f"{path} is the database of another program", str(path))
    return False


def _switch_to_wal(connection: sqlite3.Connection, path: Path) -> None:
    """Turn the write-ahead log on.

    SQLite does not wait when two processes switch a new file at the same moment: one of them is told at once that the
    database is locked. So this waits itself, about as long as any other statement would.
    """
    pause = threading.Event()
    for last in (False,) * _SWITCH_TRIES + (True,):
        try:
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError as error:
            if last or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            pause.wait(_SWITCH_PAUSE_SECONDS)
        else:
            if mode != "wal":
                raise StorageUnavailable(f"{path} lies where SQLite can keep no write-ahead log", str(path))
            return


def _sentence(path: Path, error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"{path} has been locked by another process for more than {_BUSY_SECONDS:.0f} seconds"
    known = {
        sqlite3.SQLITE_NOTADB: "is no SQLite database",
        sqlite3.SQLITE_CORRUPT: "is a damaged SQLite database",
        sqlite3.SQLITE_CANTOPEN: "cannot be opened: is it a folder, or is its folder not writable?",
        sqlite3.SQLITE_READONLY: "cannot be written to",
        sqlite3.SQLITE_FULL: "cannot grow: the disk is full",
    }
    return f"{path} {known[code]}" if code in known else f"{path}: SQLite says: {error}"


# --- tables ------------------------------------------------------------------------------------------------------


class _Tables:
    """Port Tables over the file; see taskgraph/storage/tables.py for the promises."""

    def __init__(self, file: _File, name: str) -> None:
        self._file = file
        self._name = name

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        """See Tables."""
        checks.check_get(partition, keys)
        if not keys:
            return []
        return await self._file.call(lambda session: _get(session, self._name, partition, keys))

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        """See Tables."""
        checks.check_query(partition, rows, limit)
        return await self._file.call(lambda session: _query(session, self._name, partition, rows, limit, continuation))

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        """See Tables."""
        checks.check_commit(partition, changes)
        encoded = [None if isinstance(change, Delete) else _encode(change.columns) for change in changes]
        return await self._file.call(
            lambda session: _commit(session, self._name, partition, changes, encoded), commits=True
        )

    async def close(self) -> None:
        """Nothing: the connection belongs to the store."""


def _get(session: _Session, table: str, partition: str, keys: Sequence[str]) -> list[Row | None]:
    number = session.table_id(table, make=False)
    if len(keys) == 1:
        one = session.one(_GET, number, partition, keys[0])
        return [_rows(one[0])[0] if one else None]
    found: dict[str, Row] = {}
    for start in range(0, len(keys), _ROWS_AT_ONCE):
        (text,) = session.one(_GET_MANY, number, partition, _dump(list(keys[start : start + _ROWS_AT_ONCE])))
        for row in _rows(text):
            found[row.key] = row
    return [found.get(key) for key in keys]


def _query(session: _Session, table: str, partition: str, rows: Range, limit: int, continuation: str | None) -> Page:
    number = session.table_id(table, make=False)
    # A continuation is the last key that was looked at; the next possible key is that with a NUL behind it.
    start = rows.start if continuation is None else continuation + "\0"
    end = rows.end or _KEY_END
    # Column and text as they stand in the stored JSON. What is inside a text stands there with its quotes escaped, so
    # nothing else looks like it; _agrees makes sure all the same.
    fragments = [[f"{_dump(name)}:{_dump(text)}" for text in texts] for name, texts in list(rows.where.items())[:1]]
    found: list[Row] = []
    scanned = chars = 0
    while True:
        wanted = _ROWS_AT_ONCE if rows.where else min(_ROWS_AT_ONCE, limit - len(found))
        if fragments:
            seen, last, text = session.one(_SCAN_WHERE, _dump(fragments[0]), number, partition, start, end, wanted)
        else:
            seen, last, text = session.one(_SCAN, number, partition, start, end, wanted)
        scanned += seen
        chars += len(text or "")
        found.extend(row for row in _rows(text) if _agrees(row, rows))
        if len(found) > limit:
            found = found[:limit]
            return Page(_selected(found, rows), found[-1].key)
        if seen < wanted:
            return Page(_selected(found, rows))
        if len(found) == limit or scanned >= _SCAN_ROWS_MAX or chars > _PAGE_CHARS:
            return Page(_selected(found, rows), last)
        start = last + "\0"


def _agrees(row: Row, rows: Range) -> bool:
    return all(row.columns.get(name) in texts for name, texts in rows.where.items())


def _selected(found: list[Row], rows: Range) -> list[Row]:
    if rows.select is None:
        return found
    names = frozenset(rows.select)
    return [
        Row(row.key, row.etag, {name: value for name, value in row.columns.items() if name in names}) for row in found
    ]


def _commit(
    session: _Session, table: str, partition: str, changes: Sequence[Change], encoded: Sequence[str | None]
) -> list[str | None]:
    session.begin()
    number = session.table_id(table, make=True)
    if len(changes) == 1:
        found = session.one(_GET, number, partition, changes[0].key)
    else:
        found = session.one(_GET_MANY, number, partition, _dump([change.key for change in changes]))
    present: dict[str, tuple[int, dict[str, Any]]] = {
        key: (etag, raw) for key, etag, raw in _raw_rows(found[0] if found else None)
    }

    first = session.etags(len(changes))
    put: list[tuple[int, str, str, int, str]] = []
    gone: list[str] = []
    for index, (change, columns) in enumerate(zip(changes, encoded, strict=True)):
        old = present.get(change.key)
        match change:
            case Insert():
                if old is not None:
                    raise Conflict(f"row {change.key!r} of {partition!r} exists already", index)
            case Merge() | Delete():
                if old is None:
                    raise Conflict(f"row {change.key!r} of {partition!r} is gone", index)
                if str(old[0]) != change.etag:
                    raise Conflict(f"row {change.key!r} of {partition!r} has changed", index)
        if columns is None:
            gone.append(change.key)
        elif isinstance(change, Merge) and old is not None:
            put.append((number, partition, change.key, first + index, _merged(change, old[1], columns)))
        else:
            put.append((number, partition, change.key, first + index, columns))

    # Nothing has been written so far: whatever was refused above leaves no trace in the group's transaction.
    start = 0
    for rows, statement in _PUTS:
        while len(put) - start >= rows:
            session.run(statement, *chain.from_iterable(put[start : start + rows]))
            start += rows
    if gone:
        session.run(_REMOVE_MANY, number, partition, _dump(gone))
    return [None if isinstance(change, Delete) else str(first + index) for index, change in enumerate(changes)]


def _merged(change: Merge, old: dict[str, Any], columns: str) -> str:
    """The row's JSON after the merge. Raises TooLarge for a row that has grown past a limit."""
    merged = old | json.loads(columns)
    text = _dump(merged)
    if len(merged) > limits.ROW_COLUMNS_MAX or 2 * len(text) > limits.ROW_CHARS_MAX:  # perhaps: measure
        try:
            checks.check_columns(change.key, _decoded(merged))
        except TooLarge as error:
            raise TooLarge(f"{error}, which this merge would exceed") from error
    return text


# --- values: JSON types as they are, times as {"t": "..."} ---------------------------------------------------------


def _time(value: object) -> dict[str, str]:
    if not isinstance(value, datetime):
        raise TypeError(f"no store keeps a {type(value).__name__}")  # the checks have let something through
    return {"t": value.astimezone(UTC).isoformat()}


_dump: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_time).encode


def _encode(columns: Columns) -> str:
    return _dump(dict(columns))


def _decoded(raw: dict[str, Any]) -> dict[str, Value]:
    for name, value in raw.items():
        if type(value) is dict:
            raw[name] = datetime.fromisoformat(value["t"])
    return raw


def _raw_rows(text: str | None) -> list[list[Any]]:
    rows: list[list[Any]] = json.loads(f"[{text}]") if text else []
    return rows


def _rows(text: str | None) -> list[Row]:
    rows = [Row(key, str(etag), _decoded(raw)) for key, etag, raw in _raw_rows(text)]
    rows.sort(key=_key_of)  # they come in order; SQL does not promise it
    return rows


def _key_of(row: Row) -> str:
    return row.key


# --- queues ------------------------------------------------------------------------------------------------------


class _Queues:
    """Port Queues over the file; see taskgraph/storage/queues.py for the promises. Oldest first, by visibility."""

    def __init__(self, file: _File, clock: Clock, on_send: Callable[[str], None] | None) -> None:
        self._file = file
        self._clock = clock
        self._on_send = on_send

    def _micros(self, later_seconds: float = 0) -> int:
        return (self._clock.now() - _EPOCH) // _MICROSECOND + round(later_seconds * 1_000_000)

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        """See Queues."""
        checks.check_send(queue, bodies, delay_seconds)
        if not bodies:
            return
        visible_at = self._micros(delay_seconds)
        text = _dump(list(bodies))

        def work(session: _Session) -> None:
            session.begin()
            session.run(_SEND, queue, visible_at, text)

        await self._file.call(work)
        if self._on_send is not None and delay_seconds == 0:
            self._on_send(queue)

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        """See Queues."""
        checks.check_receive(queue, count, lease_seconds)
        now, until = self._micros(), self._micros(lease_seconds)
        return await self._file.call(lambda session: _receive(session, queue, count, now, until))

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        """See Queues."""
        checks.check_renew(lease_seconds)
        number, lease = _numbers(delivery)
        until = self._micros(lease_seconds)

        def work(session: _Session) -> None:
            session.begin()
            if not session.run(_RENEW, until, number, delivery.queue, lease):
                raise _stale(delivery)

        await self._file.call(work)
        return Delivery(delivery.queue, delivery.id, str(lease + 1), delivery.body, delivery.dequeue_count)

    async def delete(self, delivery: Delivery) -> None:
        """See Queues."""
        number, lease = _numbers(delivery)

        def work(session: _Session) -> None:
            session.begin()
            if not session.run(_ACKNOWLEDGE, number, delivery.queue, lease):
                raise _stale(delivery)

        await self._file.call(work)

    async def count(self, queue: str) -> int:
        """See Queues."""
        checks.check_queue_name(queue)
        (count,) = await self._file.call(lambda session: session.one(_COUNT, queue))
        return int(count)

    async def close(self) -> None:
        """Nothing: the connection belongs to the store."""


def _receive(session: _Session, queue: str, count: int, now: int, until: int) -> list[Delivery]:
    if not session.writing:
        # A look first: an idle consumer must not take the writers' turn at every poll.
        if session.one(_WAITING, queue, now) is None:
            return []
        session.begin()  # others may take what was seen, up to here
    (text,) = session.one(_NEXT, queue, now, count)
    messages = sorted(json.loads(text))
    if not messages:
        return []
    session.run(_LEASE, until, _dump([message[1] for message in messages]))
    return [
        Delivery(queue, str(number), str(lease + 1), body, dequeued + 1)
        for _, number, lease, dequeued, body in messages
    ]


def _numbers(delivery: Delivery) -> tuple[int, int]:
    try:
        return int(delivery.id), int(delivery.receipt)
    except ValueError as error:
        raise _stale(delivery) from error


def _stale(delivery: Delivery) -> StaleDelivery:
    return StaleDelivery(f"message {delivery.id} of {delivery.queue} is in other hands now, or deleted")


# --- logs --------------------------------------------------------------------------------------------------------


class _Logs:
    """Port Logs over files, written by one thread of their own: appends stay in order, and rows never wait for them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="taskgraph-logs")
        self._closed = False

    def _file(self, graph_id: str, task_id: str, run: int, name: str) -> Path:
        checks.check_log(graph_id, task_id, run, name)
        return self._folder / graph_id / task_id / str(run) / name

    def url(self, graph_id: str, task_id: str, run: int, name: str = "run.log") -> str:
        """See Logs; a file URI."""
        return self._file(graph_id, task_id, run, name).as_uri()

    async def append(self, graph_id: str, task_id: str, run: int, data: bytes, name: str = "run.log") -> None:
        """See Logs."""
        await self._call(_append, self._file(graph_id, task_id, run, name), data)

    async def read(
        self, graph_id: str, task_id: str, run: int, *, offset: int = 0, limit: int = 1 << 20, name: str = "run.log"
    ) -> bytes | None:
        """See Logs."""
        if offset < 0 or limit < 1:
            raise ValueError(f"reading {limit} bytes from {offset}: at least 1, from 0 on")
        return await self._call(_read, self._file(graph_id, task_id, run, name), offset, limit)

    async def close(self) -> None:
        """Nothing: the thread belongs to the store."""

    async def shut(self) -> None:
        """Finish what was begun."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, _nothing)
            self._thread.shutdown(wait=False)

    async def _call(self, work: Callable[..., _T], path: Path, *values: object) -> _T:
        if self._closed:
            raise StorageUnavailable(f"the store of {path} has been closed", str(self._folder))
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, path, *values)
        except OSError as error:
            raise StorageUnavailable(f"the log {path}: {error.strerror or error}", str(self._folder)) from error


def _append(path: Path, data: bytes) -> None:
    try:
        file = path.open("ab", buffering=0)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab", buffering=0)
    with file:
        rest = memoryview(data)
        while rest:  # a file may take less than it is given
            rest = rest[file.write(rest) :]


def _read(path: Path, offset: int, limit: int) -> bytes | None:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(limit)
    except FileNotFoundError:
        return None


def _nothing() -> None:
    """The last thing on a thread: when it is done, everything before it is."""
