"""What waiting for work costs, in virtual time.

What this room is for: the operations that a handler and a worker ask for while nothing comes, each a process of its own
on a machine of its own, and how soon they begin once something does. Nobody notifies them: they find it by polling.
"""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass

from taskgraph.interfaces.loops import serve, work
from taskgraph.model.flag import Flag
from tests.bench.shapes import chain
from tests.capacity.playing import Played, Playing


@dataclass
class Waited:
    """operations: by who asks and kind, of the hour before the submission. first, last: seconds from that to the end
    of the first task and of the graph."""

    operations: Counter[str]
    first: float
    last: float


class Idling(Playing):
    """quiet_seconds: how long nothing comes."""

    def __init__(self, seed: int, quiet_seconds: float) -> None:
        super().__init__(seed, chain(2), place="1h1w", slots=2, enforced=False, seconds_max=1e6)
        self.quiet_seconds = quiet_seconds
        self.waited = Waited(Counter(), 0.0, 0.0)

    def wait(self) -> Waited:
        self.play()
        return self.waited

    async def _play(self) -> Played:
        async with AsyncExitStack() as stack:
            stop = Flag()
            handler, worker = await self._open(stack, "handler"), await self._open(stack, "worker")
            running = [
                asyncio.ensure_future(each) for each in (serve(handler, stop), work(worker, stop, self._worker(worker)))
            ]
            await asyncio.sleep(max(0.0, self.quiet_seconds - 3600))
            for counts in self._counts.values():
                counts.take()
            await asyncio.sleep(min(self.quiet_seconds, 3600))
            for role, counts in self._counts.items():
                sums = counts.take()["sums"].items()
                self.waited.operations.update({f"{role} {what}": n for what, n in sums if what.startswith("place:")})
            submitter = await self._open(stack, "submitter")
            began = self._began = self._loop.time()
            await self._submit(submitter, self.graph_ids[0])
            while not self._done:
                await asyncio.sleep(0.01)
            self.waited.first = self._loop.time() - began
            await self._all_ended.wait()
            self.waited.last = self._loop.time() - began
            whole = self._charged()
            stop.set()
            await asyncio.gather(*running)
        self._check()
        figures = self._figures(whole.seconds)
        return Played(whole, whole, figures, Counter(), 0, 0.0, 0, 0)
