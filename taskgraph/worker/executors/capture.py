"""What callables print and log goes to the log of their task, also while several run side by side.

The context says which task prints: a context variable, which asyncio's tasks and the thread of a callable inherit. A
thread that a callable starts by itself has a context of its own, and prints where the worker does.
"""

import asyncio
import contextlib
import contextvars
import logging
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, TextIO

from taskgraph.worker.executors.contract import WriteLog

_PENDING_BYTES_MAX: Final = 1 << 20  # a thread that prints faster than the log is written waits
_current: "contextvars.ContextVar[Capture | None]" = contextvars.ContextVar("taskgraph_capture", default=None)


class Capture:
    """What one run prints, on its way into its log."""

    def __init__(self, write_log: WriteLog) -> None:
        self._write_log = write_log
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._pending = bytearray()
        self._room = threading.Event()
        self._room.set()
        self._news = asyncio.Event()
        self._copying: asyncio.Task[None] | None = None
        self._over = False

    def put(self, text: str) -> bool:
        """Add text; False where the run is over, and its log takes no more."""
        if self._over:
            return False
        if threading.get_ident() != self._thread:
            self._room.wait()
        with self._lock:
            self._pending += text.encode("utf-8", "backslashreplace")
            if len(self._pending) >= _PENDING_BYTES_MAX:
                self._room.clear()
        with contextlib.suppress(RuntimeError):  # the loop is closed: the run was given up long ago
            self._loop.call_soon_threadsafe(self._copy)
        return True

    def _copy(self) -> None:
        self._news.set()
        if self._copying is None and not self._over:
            self._copying = self._loop.create_task(self._copy_all(), context=contextvars.Context())

    async def _copy_all(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while data := self._take():
                await self._write_log(data)
            if self._over:
                return

    def _take(self) -> bytes:
        with self._lock:
            data = bytes(self._pending)
            self._pending.clear()
        self._room.set()
        return data

    async def close(self) -> None:
        """Write what is left; what comes later is not of this run. Raises what the writing raises."""
        self._over = True
        self._room.set()
        self._news.set()
        if self._copying is not None:
            await self._copying
        elif data := self._take():
            await self._write_log(data)


class _Stream:
    """Stands for sys.stdout or sys.stderr: what is printed in the context of a run goes to its log."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        capture = _current.get()
        if capture is not None and capture.put(text):
            return len(text)
        return self.stream.write(text)

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if _current.get() is None:
            self.stream.flush()

    def isatty(self) -> bool:
        return _current.get() is None and self.stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Handler(logging.Handler):
    """Gives the log of a run what is logged in its context, by whatever level its loggers have."""

    def emit(self, record: logging.LogRecord) -> None:
        capture = _current.get()
        if capture is None or record.name.partition(".")[0] == "taskgraph":
            return
        if any(isinstance(getattr(each, "stream", None), _Stream) for each in logging.root.handlers):
            return  # it comes by way of the stream
        capture.put(f"{self.format(record)}\n")


class _Streams:
    """The standing of the process: how many runs print, and what is put back after the last."""

    def __init__(self) -> None:
        self._runs = 0
        self._handler = _Handler()
        self._handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def begin(self) -> None:
        self._runs += 1
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is not None and not isinstance(stream, _Stream):
                setattr(sys, name, _Stream(stream))
        if self._runs == 1:
            logging.root.addHandler(self._handler)

    def end(self) -> None:
        self._runs -= 1
        if self._runs:
            return
        logging.root.removeHandler(self._handler)
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if isinstance(stream, _Stream):
                setattr(sys, name, stream.stream)


_streams: Final = _Streams()


@contextlib.asynccontextmanager
async def captured(write_log: WriteLog) -> AsyncIterator[None]:
    """What is printed and logged within, in this context, goes to the log."""
    capture = Capture(write_log)
    token = _current.set(capture)
    _streams.begin()
    try:
        yield
    finally:
        _streams.end()
        _current.reset(token)
        await capture.close()
