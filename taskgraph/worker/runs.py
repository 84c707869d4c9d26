"""Execute one run: outputs of other tasks put into its payload, its log, the time that it may take, its deadline."""

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from taskgraph.documents.results import NoResult, put_in, taken_from
from taskgraph.model.ids import row_key
from taskgraph.model.placement import target_of
from taskgraph.model.timing import MAX_RUN_TIME_EXCEEDED, run_seconds_max
from taskgraph.protocol.context import Outcome as Decided
from taskgraph.protocol.runs import Overdue
from taskgraph.storage.logs import Logs
from taskgraph.storage.tables import Row
from taskgraph.worker.context import WorkerContext
from taskgraph.worker.executors import Outcome, Work
from taskgraph.worker.executors.contract import malformed
from taskgraph.worker.values import ClaimedRun, as_resolved, deadline_in

log = logging.getLogger("taskgraph.worker")

_LOG_CHUNK_BYTES: Final = 256 * 1024
_LOG_FLUSH_SECONDS: Final = 1.0
_DEADLINE_LOOK_SECONDS: Final = 3600.0  # clocks are set: no longer is slept towards a deadline


class Runner:
    """Executes runs of one worker. lose: ends a run that was resolved elsewhere, and why."""

    def __init__(self, context: WorkerContext, lose: Callable[[ClaimedRun, str], None]) -> None:
        self._context = context
        self._lose = lose

    async def execute(self, one: ClaimedRun) -> Outcome:
        """Run this to its end. Raises what the executor raises."""
        self._watch(one)
        if one.watched is not None:
            with self._context.handlers.telemetry.running(one.watched):
                return await self._execute(one)
        return await self._execute(one)

    def execute_at_once(self, one: ClaimedRun) -> Outcome:
        """Run this, which takes no time at all. Raises what the executor raises."""
        self._watch(one)
        run = one.executor.run(one.work, _no_log)
        try:
            run.send(None)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        run.close()
        raise RuntimeError(f"the executor {one.executor.name} says it is instant, and waits")

    async def _execute(self, one: ClaimedRun) -> Outcome:
        work = one.work
        if one.takes:
            try:
                work = await self._with_results(work)
            except NoResult as error:
                return malformed(str(error))  # a rerun would find nothing else
        writer = _LogWriter(self._context.logs, work)
        seconds = run_seconds_max(work.definition)
        watching = asyncio.create_task(self._end_at_deadline(one)) if "deadline" in work.definition else None
        try:
            run = one.executor.run(work, writer.write)
            outcome = await (run if seconds is None else _at_most(seconds, run))
        finally:
            if watching is not None:
                watching.cancel()
            if writer.used:
                await asyncio.shield(writer.close())
        return outcome

    async def _with_results(self, work: Work) -> Work:
        """The work with the outputs of other tasks in its payload, as their rows have them. Raises NoResult.

        All of these tasks have been resolved, and what has completed stays as it is: so whatever is read now counts.
        """
        wanted = taken_from(work.definition)
        if not wanted:
            return work
        rows: dict[str, Row | None] = {}

        async def read() -> None:
            await self._context.handlers.records.load(work.graph_id, [row_key(each) for each in wanted], rows)

        await self._context.keep_trying(read, "results that a task needs cannot be read yet")
        resolved = {each: as_resolved(rows.get(row_key(each))) for each in wanted}
        return dataclasses.replace(work, definition=put_in(work.definition, resolved))

    async def _end_at_deadline(self, one: ClaimedRun) -> None:
        """Resolve the task when its deadline passes while it runs, and end the run then."""
        clock = self._context.clock
        deadline = deadline_in(one.work.definition)
        while deadline is not None and not one.lost:
            left = (deadline - clock.now()).total_seconds()
            if left > 0:
                await clock.sleep(min(left, _DEADLINE_LOOK_SECONDS))
                continue
            await self._context.guard(self._end_overdue(one))
            return  # what did not come through comes with the next renewal

    async def _end_overdue(self, one: ClaimedRun) -> None:
        work = one.work
        for answer in await self._context.handlers.transition(work.graph_id, [Overdue(work.task_id)]):
            if answer.outcome is Decided.APPLIED:
                self._lose(one, answer.reason)

    def _watch(self, one: ClaimedRun) -> None:
        """Measure the run, if telemetry is on."""
        telemetry = self._context.handlers.telemetry
        if telemetry.enabled:
            work = one.work
            one.watched = telemetry.run_begins(
                work.graph_id,
                work.task_id,
                work.run,
                label=work.label,
                target=target_of(work.definition),
                executor=one.executor.name,
                cause=one.cause,
            )
            if one.watched is not None:
                one.work = dataclasses.replace(work, traceparent=one.watched.at.traceparent)


async def _at_most(seconds: float, run: Awaitable[Outcome]) -> Outcome:
    """What comes of a run that may take so long; when it takes longer, it is ended, and has failed."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await run
    except TimeoutError:
        if not limit.expired():
            raise  # the executor's own
    return Outcome(failed=True, reason=f"it ran for longer than {seconds:g} s (maxRunTime)", code=MAX_RUN_TIME_EXCEEDED)


async def _no_log(data: bytes) -> None:
    """Runs that take no time say nothing."""


@dataclasses.dataclass(slots=True)
class _LogWriter:
    """The log of one run, written in pieces. A log that cannot be stored is lost, and says so; the run goes on."""

    logs: Logs
    work: Work
    _buffer: bytearray = dataclasses.field(default_factory=bytearray)
    _lock: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
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
