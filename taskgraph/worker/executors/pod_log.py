"""The log of a pod, copied while it grows; where the connection is lost, from where it was."""

import asyncio
from contextlib import aclosing, suppress
from typing import Final

from taskgraph.worker.executors.cluster import Cluster, Refused, Unreachable
from taskgraph.worker.executors.contract import WriteLog
from taskgraph.worker.executors.jobs import CONTAINER

LOG_END_SECONDS: Final = 10.0
"""Between the end of a container and that of its log, either way."""

_NOT_YET: Final = frozenset({400, 404})  # no log, as the container has not begun


class PodLog:
    """pods: where the cluster has them."""

    def __init__(self, cluster: Cluster, pods: str, write_log: WriteLog) -> None:
        self._cluster = cluster
        self._pods = pods
        self._write_log = write_log
        self._taken = 0  # bytes
        self._over = asyncio.Event()
        self._copying: asyncio.Task[None] | None = None

    def follow(self, pod: str) -> None:
        if self._copying is None:
            self._copying = asyncio.create_task(self._copy(f"{self._pods}/{pod}/log"))

    async def end(self, seconds: float) -> None:
        """The container has ended, or is about to: wait for its last words, but not for longer."""
        self._over.set()
        if self._copying is not None:
            await asyncio.wait({self._copying}, timeout=seconds)
            if self._copying.done():
                self._copying.result()

    def close(self) -> None:
        if self._copying is not None:
            self._copying.cancel()

    async def _copy(self, path: str) -> None:
        try:
            while True:
                whole = await self._read(path, follow="true")
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOG_END_SECONDS if whole else 1.0):
                        await self._over.wait()
                if self._over.is_set():
                    break
            if not whole:
                await self._read(path)
        except Refused as error:
            await self._write_log(f"the log cannot be read: {error}\n".encode())

    async def _read(self, path: str, **query: str) -> bool:
        """Whether the log came to its end. Raises Refused where it will not come."""
        at = 0
        try:
            async with aclosing(self._cluster.chunks(path, container=CONTAINER, **query)) as chunks:
                async for chunk in chunks:
                    new = chunk[max(self._taken - at, 0) :]
                    at += len(chunk)
                    if new:
                        self._taken += len(new)
                        await self._write_log(new)
        except Unreachable:
            return False
        except Refused as error:
            if error.for_now or error.status in _NOT_YET:
                return False
            raise
        return True
