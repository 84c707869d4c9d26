"""What callables print and log, for the logs of their runs.

A variable of the context says whose output it is; it follows a callable into its thread, and into tasks and
`asyncio.to_thread` that it starts. While any run lasts, `sys.stdout`, `sys.stderr` and a handler of the root logger go
by it. Output without it (of the worker, of a thread with an empty context) goes where it went.
"""

import asyncio
import contextlib
import logging
import sys
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, Final, TextIO, cast

from taskgraph.worker.executors.contract import WriteLog

HELD_BYTES_MAX: Final = 1 << 20
"""What a run may be ahead of its log; then a thread that prints waits."""

_WAIT_SECONDS: Final = 1.0
"""The longest such wait of one text: the thread may hold a lock, of a handler of logging, that the event loop needs."""

_PIECE_BYTES: Final = 64 * 1024
_FORM: Final = "%(levelname)s %(name)s: %(message)s"


class _Printed:
    """Output of one run on its way from any thread to its log."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._data = bytearray()
        self._over = False
        self._room = threading.Condition()
        self._awake = asyncio.Event()

    def write(self, text: str) -> bool:
        """Take a text; gives False, and takes nothing, once the run is over. The event loop itself never waits."""
        data = text.encode("utf-8", "backslashreplace")
        with self._room:
            if threading.get_ident() != self._loop_thread:
                self._room.wait_for(lambda: self._over or len(self._data) < HELD_BYTES_MAX, _WAIT_SECONDS)
            if self._over:
                return False
            if not self._data:
                self._loop.call_soon_threadsafe(self._awake.set)
            self._data += data
        return True

    def end(self) -> None:
        """Take no more; what was taken is still copied."""
        with self._room:
            self._over = True
            self._room.notify_all()
        self._awake.set()

    async def copy(self, write_log: WriteLog) -> None:
        try:
            while True:
                self._awake.clear()
                if data := self._take():
                    await write_log(data)
                    await asyncio.sleep(0)  # a flood into a fast log would let nothing else go on
                elif self._over:
                    return
                else:
                    await self._awake.wait()
        finally:
            self.end()

    def _take(self) -> bytes:
        with self._room:
            data = bytes(self._data[:_PIECE_BYTES])
            del self._data[:_PIECE_BYTES]
            self._room.notify_all()
        return data


_run: ContextVar[_Printed | None] = ContextVar("taskgraph_printed", default=None)


class _Stream:
    """Stands for a standard stream: texts of a run go to its log, all else to the stream itself."""

    def __init__(self, own: TextIO) -> None:
        self.own = own

    def write(self, text: str) -> int:
        run = _run.get()
        return len(text) if run is not None and run.write(text) else self.own.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


class _Handler(logging.Handler):
    """Logs records of a run to its log."""

    def handle(self, record: logging.LogRecord) -> bool:
        """Without the lock of handlers: a thread that waits for its log would hold it against the event loop."""
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        run = _run.get()
        if run is not None and run.write(self.format(record) + "\n"):
            return
        last = logging.lastResort  # it speaks where there is no handler, and this one is none for other records
        if last is not None and record.levelno >= last.level and not self._is_beside_another(record.name):
            last.handle(record)

    def _is_beside_another(self, name: str) -> bool:
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(each is not self for each in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


class _Capture:
    """Puts streams and handler in their places while a run lasts."""

    def __init__(self) -> None:
        self._runs = 0
        self._lock = threading.Lock()
        self._handler = _Handler()
        self._handler.setFormatter(logging.Formatter(_FORM))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            self._runs += 1
            if self._runs == 1:
                logging.getLogger().addHandler(self._handler)
            for name in ("stdout", "stderr"):  # for each run, as they may have been replaced meanwhile
                own = getattr(sys, name)
                if own is not None and not isinstance(own, _Stream):
                    setattr(sys, name, cast("TextIO", _Stream(own)))
        try:
            yield
        finally:
            with self._lock:
                self._runs -= 1
                if not self._runs:
                    logging.getLogger().removeHandler(self._handler)
                    for name in ("stdout", "stderr"):
                        stream = getattr(sys, name)
                        if isinstance(stream, _Stream):
                            setattr(sys, name, stream.own)


_capture: Final = _Capture()


@contextlib.asynccontextmanager
async def captured(write_log: WriteLog) -> AsyncIterator[None]:
    """Log what is printed and logged inside, all of it before this ends. Raises what write_log raises."""
    printed = _Printed()
    copying = asyncio.create_task(printed.copy(write_log))
    token = _run.set(printed)
    try:
        with _capture.held():
            yield
    finally:
        _run.reset(token)
        printed.end()
        await asyncio.wait((copying,))
    copying.result()
