"""The database in the embedded store's file: found, made, opened, and known from others; what errors mean."""

import os
import sqlite3
import threading
from pathlib import Path
from typing import Final

from taskgraph.model.errors import StorageUnavailable
from taskgraph.storage.private_files import file_mode, folder_mode, make_folder

BUSY_SECONDS: Final = 30.0
"""That a call waits for other processes."""

_APPLICATION_ID: Final = 0x74677266  # "tgrf", in the header of the file: this database is ours
_SCHEMA_VERSION: Final = 1
_CACHE_KIBIBYTES: Final = 64 * 1024
_STATEMENTS_CACHED: Final = 128
_SWITCH_TRIES: Final = 600  # of 50 ms: see _switch_to_wal
_SWITCH_PAUSE_SECONDS: Final = 0.05

WAL_PAGES: Final = 16_000
"""64 MiB between checkpoints: a page that is written often is then copied once."""

_WAL_BYTES_KEPT: Final = 2 * WAL_PAGES * 4_096  # a log that had to grow past this is cut when it begins again

_SCHEMA: Final = (
    "CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "INSERT INTO counter (name, value) VALUES ('etag', 0)",
    "CREATE TABLE tab (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    """CREATE TABLE row (tab INTEGER NOT NULL, partition TEXT NOT NULL, key TEXT NOT NULL,
        etag INTEGER NOT NULL, columns TEXT NOT NULL)""",
    "CREATE UNIQUE INDEX row_key ON row (tab, partition, key)",
    """CREATE TABLE message (id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, visible_at INTEGER NOT NULL,
        lease INTEGER NOT NULL DEFAULT 0, dequeue_count INTEGER NOT NULL DEFAULT 0, body TEXT NOT NULL,
        since INTEGER)""",
    "CREATE INDEX message_visible ON message (queue, visible_at)",
)


def is_missing(path: Path) -> bool:
    """Whether certainly nothing lies there."""
    try:
        os.stat(path)
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)  # other trouble shows when it is opened
    return False


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode; None if there is no access."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def log_of(path: Path) -> Path:
    """The write-ahead log of a file."""
    return path.with_name(f"{path.name}-wal")


def is_empty(path: Path) -> bool:
    """Whether certainly a file lies there, with nothing in it: the log of a linked file lies elsewhere."""
    try:
        return os.stat(path).st_size == 0
    except OSError:
        return False


def nothing() -> sqlite3.Connection:
    """A database that stands for a file that is not there: commands that only read make none."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    for statement in _SCHEMA:
        connection.execute(statement)
    return connection


def make(path: Path) -> None:
    """Make the file, if it is still missing, for its owner alone; SQLite gives the log beside it the same mode."""
    try:
        make_folder(path.parent, folder_mode())
    except OSError as error:
        raise StorageUnavailable(f"the folder of {path} cannot be made: {error.strerror}", str(path)) from error
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, file_mode()))
    except FileExistsError:
        return
    except OSError as error:
        reason = f"{path} cannot be made: is its folder not writable? {error.strerror}"
        raise StorageUnavailable(reason, str(path)) from error


def connect(path: Path, synchronous: str, *, waits: bool = True) -> sqlite3.Connection:
    """A connection to a file of ours, or to a new one with our schema. waits: for other processes, up to BUSY_SECONDS.

    Raises StorageUnavailable.
    """
    connection: sqlite3.Connection | None = None
    try:
        connection = _opened(path, seconds=BUSY_SECONDS if waits else 0)
        _prepare(connection, path, synchronous, waits=waits)
        connection.execute("PRAGMA busy_timeout=0")
    except BaseException as error:
        if connection is not None:
            connection.close()
        if not isinstance(error, sqlite3.Error):
            raise
        if _code(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN) and (looking := _connect_to_look(path)):
            return looking
        raise StorageUnavailable(sentence(path, error), str(path)) from error
    return connection


def _opened(path: Path, uri: str = "", *, seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    return sqlite3.connect(
        uri or path,
        timeout=seconds,
        isolation_level=None,
        check_same_thread=False,  # one at a time all the same: `_owner` sees to it
        cached_statements=_STATEMENTS_CACHED,
        uri=bool(uri),
    )


def _connect_to_look(path: Path) -> sqlite3.Connection | None:
    """A connection to a file that can only be read, or whose folder can; None if something else is wrong.

    Without a write-ahead log beside it, nothing changes the file, and none has to be made.
    """
    for option in ("mode=ro", *(("immutable=1",) if is_missing(log_of(path)) else ())):
        connection: sqlite3.Connection | None = None
        try:
            connection = _opened(path, f"{path.absolute().as_uri()}?{option}")
            if _is_ours(connection, path):
                connection.execute("PRAGMA busy_timeout=0")
                return connection
        except (sqlite3.Error, StorageUnavailable):  # the first error says more
            pass
        if connection is not None:
            connection.close()
    return None


def _prepare(connection: sqlite3.Connection, path: Path, synchronous: str, *, waits: bool) -> None:
    if is_empty(path):  # it can be said of a new file alone, and of others SQLite would write it down each time
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # see `File.give_back`
    _switch_to_wal(connection, path, tries=_SWITCH_TRIES if waits else 0)
    connection.execute(f"PRAGMA synchronous={'FULL' if synchronous == 'full' else 'NORMAL'}")
    connection.execute("PRAGMA wal_autocheckpoint=0")  # no commit pays for the log: see `file`
    connection.execute(f"PRAGMA journal_size_limit={_WAL_BYTES_KEPT}")
    connection.execute(f"PRAGMA cache_size=-{_CACHE_KIBIBYTES}")
    # Each look is in one transaction: between two statements of their own, another process may make the schema, and a
    # file that is half ours looks like another program's.
    with connection:
        connection.execute("BEGIN")
        ours = _is_ours(connection, path)
    if not ours:
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            if not _is_ours(connection, path):  # another process may have been quicker
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version={_SCHEMA_VERSION}")
                connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
    elif not _has_since(connection):  # a file of an earlier version, whose programs do not mind one column more
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            if not _has_since(connection):
                connection.execute("ALTER TABLE message ADD COLUMN since INTEGER")


def _has_since(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT since FROM message LIMIT 0")
    except sqlite3.OperationalError as error:
        if _code(error) != sqlite3.SQLITE_ERROR:
            raise
        return False
    return True


def _is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """False for an empty file. Raises StorageUnavailable for another program's."""
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


def _switch_to_wal(connection: sqlite3.Connection, path: Path, *, tries: int) -> None:
    """Turn the write-ahead log on.

    SQLite does not wait when two processes switch a new file at the same moment: this does, as long as any statement.
    """
    pause = threading.Event()
    for last in (False,) * tries + (True,):
        try:
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError as error:  # reach: two-processes
            if last or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            pause.wait(_SWITCH_PAUSE_SECONDS)
        else:
            if mode != "wal":
                raise StorageUnavailable(f"{path} lies where SQLite can keep no write-ahead log", str(path))
            return


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def has_no_room(error: sqlite3.Error) -> bool:
    extended = int(getattr(error, "sqlite_errorcode", 0))
    return _code(error) == sqlite3.SQLITE_FULL or extended in (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)


def is_busy(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def sentence(path: Path, error: sqlite3.Error) -> str:
    code = _code(error)
    if is_busy(error):
        return f"{path} has been locked by another process for more than {BUSY_SECONDS:.0f} seconds"
    known = {
        sqlite3.SQLITE_NOTADB: "is no SQLite database",
        sqlite3.SQLITE_CORRUPT: "is a damaged SQLite database",
        sqlite3.SQLITE_CANTOPEN: "cannot be opened: is it a folder, or is its folder not writable?",
        sqlite3.SQLITE_READONLY: "cannot be written to",
        sqlite3.SQLITE_FULL: "cannot grow: the disk is full",
    }
    if code != sqlite3.SQLITE_FULL and has_no_room(error):
        return f"{path} cannot grow: the disk is full, or its user may write no more"
    return f"{path} {known[code]}" if code in known else f"{path}: SQLite says: {error}"
