"""What a command prints, as it comes out of its pipe."""

import asyncio
import math
import os
from collections.abc import Callable
from typing import Final

from taskgraph.worker.executors import children
from taskgraph.worker.executors.contract import WriteLog
from taskgraph.worker.executors.orphans import above_standard

CHUNK_BYTES_MAX: Final = 64 * 1024
TAIL_BYTES_MAX: Final = 1 << 20  # the largest pipe that an unprivileged process may have: all that can be left in it


class Output:
    """The pipe that takes both streams of a command, in the order of writing.

    asyncio's pipes read ahead, and tie the end of the process to the end of its output. reading: its descriptor here,
    None for that of a command that has ended and printed nothing.
    """

    def __init__(self, reading: int | None) -> None:
        self._reading = -1 if reading is None else reading if reading > 2 else above_standard(reading)
        self._watched = False
        self._bytes_left = math.inf
        self._awake: asyncio.Event | None = None
        self.at_end = reading is None
        if reading is not None:
            os.set_blocking(self._reading, False)

    def watch(self, wake: Callable[[], None]) -> None:
        """Have this called when there is more. Idempotent."""
        if not self._watched:
            children.readers().add_reader(self._reading, wake)
            self._watched = True

    def unwatch(self) -> None:
        if self._watched:
            self._watched = False
            children.readers().remove_reader(self._reading)

    def take(self) -> bytes | None:
        """The next chunk; b"" at the end, which is not watched for any more; None for nothing yet."""
        if self.at_end:
            return b""
        try:
            data = os.read(self._reading, CHUNK_BYTES_MAX)
        except BlockingIOError:
            return None
        if not data:
            self.at_end = True
            self.unwatch()
        return data

    async def read(self) -> bytes:
        """The next chunk; b"" at the end."""
        awake = self._awake = asyncio.Event()
        while self._bytes_left > 0:
            data = self.take()
            if data is not None:
                self._bytes_left -= len(data)
                return data
            if self._bytes_left < math.inf:
                break
            awake.clear()
            self.watch(awake.set)
            try:
                await awake.wait()
            finally:
                self.unwatch()
        return b""

    def stop(self) -> None:
        """The command has ended: give what is in the pipe, and wait for no more. Idempotent."""
        self._bytes_left = min(self._bytes_left, TAIL_BYTES_MAX)
        if self._awake is not None:
            self._awake.set()

    def close(self) -> None:
        self.unwatch()
        if self._reading >= 0:
            os.close(self._reading)


NOTHING: Final = Output(None)
"""Of commands that have not begun, or have ended and printed nothing: there is nothing in it to keep apart."""


def piped() -> tuple[Output, int]:
    """A pipe, and its other end, which is for the command alone.

    What starts the command closes it here, as the end of the output would never show otherwise.
    """
    reading, writing = os.pipe()
    if writing <= 2:  # of a worker that was started without: a child puts its own there
        writing = above_standard(writing)
    return Output(reading), writing


async def copied(first: bytes, output: Output, write_log: WriteLog) -> None:
    """Log this chunk, if it is not empty, and all that follow."""
    data = first or await output.read()
    while data:
        await write_log(data)
        await asyncio.sleep(0)  # a flood into a fast log would let nothing else go on, not even the timeout
        data = await output.read()
