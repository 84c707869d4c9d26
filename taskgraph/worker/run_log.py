"""The log of a run, from the executor to the store.

What this room is for: gathering what a run says into pieces, and storing them soon and in order. It never fails a run:
a log that cannot be stored is lost, and says so.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final

from taskgraph.storage.logs import Logs
from taskgraph.worker.executors import Work

log = logging.getLogger("taskgraph.worker")

_LOG_CHUNK_BYTES: Final = 256 * 1024
_LOG_FLUSH_SECONDS: Final = 1.0


@dataclass(slots=True)
class LogWriter:
    """The log of one run, written in pieces. A log that cannot be stored is lost, and says so; the run goes on."""

    logs: Logs
    work: Work
    _buffer: bytearray = field(default_factory=bytearray)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _timer: asyncio.Task[None] | None = None
    _lost: bool = False
    used: bool = False

    async def write(self, data: bytes) -> None:
        """Add bytes; they are stored within about a second."""
        self.used = True
        if self._lost:
            return
        self._buffer += data
        if len(self._buffer) >= _LOG_CHUNK_BYTES:
            await self._flush()
        elif self._timer is None or self._timer.done():
            self._timer = asyncio.create_task(self._flush_soon())

    async def close(self) -> None:
        """Store what is left."""
        if self._timer is not None:
            self._timer.cancel()
            await asyncio.wait((self._timer,))
        await self._flush()

    async def _flush_soon(self) -> None:
        await asyncio.sleep(_LOG_FLUSH_SECONDS)
        await asyncio.shield(self._flush())  # closing the log must not cut a write in two

    async def _flush(self) -> None:
        async with self._lock:
            if not self._buffer or self._lost:
                return
            data = bytes(self._buffer)
            self._buffer.clear()
            work = self.work
            try:
                await self.logs.append(work.graph_id, work.task_id, work.run, data)
            except Exception as error:  # whatever it is: no log is worth its run
                self._lost = True
                log.warning("graph %s: the log of task %s is lost from here: %s", work.graph_id, work.task_id, error)
