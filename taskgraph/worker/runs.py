"""Execute one run: what it takes of other tasks, its log, the time that it may take, its deadline, what it leaves.

With a `cache` it may be that an earlier run stands for it.
"""

import asyncio
import dataclasses
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, Self

from taskgraph.documents.placeholders import WITH_FOLDER
from taskgraph.documents.results import Resolved, as_output, files_taken, put_in, taken_from
from taskgraph.model.columns import FOLDER, NO_OUTPUT, OUTPUT, integer
from taskgraph.model.errors import InvalidInput, StorageError
from taskgraph.model.ids import GRAPH, reference_of, row_key
from taskgraph.model.placement import target_of
from taskgraph.model.states import TaskState
from taskgraph.model.timing import MAX_RUN_TIME_EXCEEDED, run_seconds_max
from taskgraph.protocol.context import Outcome as Decided
from taskgraph.protocol.runs import Overdue
from taskgraph.queries.groups import member_rows
from taskgraph.storage.kept_files import summary
from taskgraph.storage.logs import Logs
from taskgraph.storage.tables import Row
from taskgraph.worker.cache import Cache
from taskgraph.worker.context import SUBMITTER, WorkerContext
from taskgraph.worker.executors import RESULT_BYTES_MAX, Outcome, Work
from taskgraph.worker.executors.contract import Begun, OnEnd, failed, malformed, no_log, payload_of
from taskgraph.worker.run_files import FileOrder, RunFiles, file_order
from taskgraph.worker.values import ClaimedRun, as_resolved, deadline_in

log = logging.getLogger("taskgraph.worker")

_OF_RESULT: Final = ("label", "state", "run", "resolution")
_WITHOUT_FOLDER: Final = (
    "and this worker runs commands there (--cwd submitter): give the task an absolute cwd, or the worker another --cwd"
)

_LOG_CHUNK_BYTES: Final = 256 * 1024
_LOG_FLUSH_SECONDS: Final = 1.0
_DEADLINE_LOOK_SECONDS: Final = 3600.0  # clocks are set: no longer is slept towards a deadline


class Runner:
    """Executes runs of one worker. lose: ends a run that was resolved elsewhere, and why."""

    def __init__(self, context: WorkerContext, lose: Callable[[ClaimedRun, str], None]) -> None:
        self._context = context
        self._lose = lose
        self._files = RunFiles(context)
        self._cache = Cache(context, self._files)
        self._last: tuple[Mapping[str, Any], bool] | None = None

    async def execute(self, one: ClaimedRun) -> Outcome:
        """Run this to its end. Raises what the executor raises."""
        self._watch(one)
        if one.watched is not None:
            with self._context.handlers.telemetry.running(one.watched):
                return await self._execute(one)
        return await self._execute(one)

    def begin(self, one: ClaimedRun, on_end: OnEnd) -> Begun | None:
        """Begin a run by plain calls, see `Queue.begin`; None if it is one to `execute`. Raises OSError."""
        queue, work = one.executor.queue, one.work
        if queue is None or one.takes or self._context.folder or self._context.handlers.telemetry.enabled:
            return None
        return queue.begin(work, work.on_begin, on_end) if self._is_plain(work.definition) else None

    def _is_plain(self, definition: Mapping[str, Any]) -> bool:
        """Whether nothing is to be done before or after a run, or beside it. Many tasks have the very same."""
        if self._last is None or self._last[0] is not definition:
            try:
                bounded = "deadline" in definition or run_seconds_max(definition) is not None
                self._last = definition, not bounded and file_order(definition) is None
            except InvalidInput:
                self._last = definition, False
        return self._last[1]

    def go_on(self, one: ClaimedRun, begun: Begun) -> Coroutine[Any, Any, Outcome]:
        """See a run through that has begun by plain calls, and needs more. What this gives has to be awaited."""
        writer = _LogWriter(self._context.logs, one.work)
        return self._logged(begun.go_on(writer.write), writer)

    async def _logged(self, run: Awaitable[Outcome], writer: "_LogWriter") -> Outcome:
        async with writer:
            return await run

    def execute_at_once(self, one: ClaimedRun) -> Outcome:
        """Run this, which takes no time at all. Raises what the executor raises."""
        if self._context.handlers.telemetry.enabled:
            self._watch(one)
        run = one.executor.run(one.work, no_log)
        try:
            run.send(None)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        run.close()
        raise RuntimeError(f"the executor {one.executor.name} says it is instant, and waits")

    async def _execute(self, one: ClaimedRun) -> Outcome:
        try:
            before = await self._prepare(one)
        except InvalidInput as error:
            return malformed(str(error))  # a rerun would find nothing else
        if isinstance(before, Outcome):
            return before
        try:
            outcome = await self._run(one, before.work)
        finally:
            if before.place:
                self._files.discard(before.place)
        if outcome.adds and not outcome.failed:
            outcome = await self._add(before.work, outcome)
        return outcome if outcome.failed or before.order is None else await self._keep(before, outcome)

    async def _add(self, work: Work, outcome: Outcome) -> Outcome:
        """Have the tasks accepted that a run adds to its graph. It has failed if they are not."""
        from taskgraph.worker.additions import add_tasks  # few graphs have such tasks

        ended = outcome

        async def add() -> None:
            nonlocal ended
            ended = await add_tasks(self._context.handlers, work, outcome.adds, outcome)

        await self._context.keep_trying(add, "tasks that a run adds cannot be put down yet")
        return ended

    async def _run(self, one: ClaimedRun, work: Work) -> Outcome:
        seconds = run_seconds_max(work.definition)
        watching = asyncio.create_task(self._end_at_deadline(one)) if "deadline" in work.definition else None
        async with _LogWriter(self._context.logs, work) as writer:
            try:
                run = one.executor.run(work, writer.write)
                return await (run if seconds is None else _at_most(seconds, run))
            finally:
                if watching is not None:
                    watching.cancel()

    async def _prepare(self, one: ClaimedRun) -> "_Prepared | Outcome":
        """What is to be run, or the outcome of an earlier run that stands for it. Raises InvalidInput, NoResult."""
        work, rows = await self.with_results(one.work) if one.takes else (one.work, {})
        of_command = one.executor.name in WITH_FOLDER  # their payload says what they read and leave
        if of_command and (folder := self._context.folder):
            work = dataclasses.replace(work, folder=await self._of_submitter(work) if folder == SUBMITTER else folder)
        order = file_order(work.definition, work.folder) if of_command else None
        taken = files_taken(work.definition) if one.takes else []
        lists = {}
        runs = {task_id: integer(row.columns, "run") for task_id, row in rows.items() if row is not None}
        for task_id in {task_id for task_id, _, _ in taken}:
            kept = await self._files.listed((work.graph_id, task_id, runs.get(task_id, 0)))
            if kept is not None:
                lists[task_id] = kept
        key = ""
        if order is not None and order.cached:
            key = await self._files.key(order, work.definition, lists)
            renewed = order.renewed or (work.run > 0 and await self._is_rerun(work))
            if not renewed and (found := await self._found(key, order, work)) is not None:
                return found
        if not taken:
            return _Prepared(work, order, key)
        placed = await self._files.put_in(work, runs, lists)
        work = dataclasses.replace(work, definition=placed.definition, files=placed.folder)
        return _Prepared(work, order, key, placed.place)

    async def _is_rerun(self, work: Work) -> bool:
        """Whether the task was rerun by hand: then it runs, and what it leaves takes the place of what is known."""
        key, rows = row_key(work.task_id), dict[str, Row | None]()

        async def read() -> None:
            await self._context.handlers.records.load(work.graph_id, [key], rows)

        await self._context.keep_trying(read, "whether a task was rerun cannot be read yet")
        row = rows.get(key)
        return row is not None and integer(row.columns, "manualReruns") > 0

    async def _of_submitter(self, work: Work) -> str:
        """The folder of the submitter, "" where it does not matter. Raises InvalidInput where it cannot be used."""
        cwd = payload_of(work.definition).get("cwd")
        if isinstance(cwd, str) and Path(cwd).is_absolute():
            return ""
        rows: dict[str, Row | None] = {}

        async def read() -> None:
            await self._context.handlers.records.load(work.graph_id, [GRAPH], rows)

        await self._context.keep_trying(read, "the folder of a submitter cannot be read yet")
        row = rows[GRAPH]
        return _checked(str(row.columns.get(FOLDER, "")) if row is not None else "")

    async def _found(self, key: str, order: FileOrder, work: Work) -> Outcome | None:
        try:
            return await self._cache.find(key, order, work)
        except StorageError as error:  # reach: cache
            log.warning("graph %s: task %s runs without the cache: %s", work.graph_id, work.task_id, error)
            return None

    async def _keep(self, before: "_Prepared", outcome: Outcome) -> Outcome:
        """Keep what a run that succeeded has left. It has failed if something is not there."""
        order, work = before.order, before.work
        if order is not None and order.outputs:
            try:
                kept = await self._files.keep(order, (work.graph_id, work.task_id, work.run))
            except InvalidInput as error:
                return failed(str(error), exit_code=outcome.exit_code)
            outcome = dataclasses.replace(outcome, more={"files": summary(kept)})
        if before.key:
            await self._cache.note(before.key, work, outcome)
        return outcome

    async def _rows_of(self, work: Work) -> dict[str, Row | None]:
        """The rows of the tasks of which this one takes something, by taskId.

        All of these have been resolved, and where one is run again, so is this one: its run does not count then.
        """
        wanted = taken_from(work.definition)
        rows: dict[str, Row | None] = {}

        async def read() -> None:
            await self._context.handlers.records.load(work.graph_id, [row_key(each) for each in wanted], rows)

        if wanted:
            await self._context.keep_trying(read, "results that a task needs cannot be read yet")
        return {each: rows.get(row_key(each)) for each in wanted}

    async def with_results(self, work: Work) -> tuple[Work, Mapping[str, Row | None]]:
        """The work with the outputs of other tasks in its payload, and the rows of these. Raises NoResult."""
        rows = await self._rows_of(work)
        if not rows:
            return work, rows
        resolved = {}
        for task_id, row in rows.items():
            found = await self._of_group(work.graph_id, task_id) if row is None else None
            resolved[task_id] = await self._resolved(work.graph_id, task_id, row) if found is None else found
        return dataclasses.replace(work, definition=put_in(work.definition, resolved)), rows

    async def _resolved(self, graph_id: str, task_id: str, row: Row | None) -> Resolved:
        state, resolution = as_resolved(row)
        if resolution is not None and NO_OUTPUT in resolution and row is not None:  # too long for the row
            place = graph_id, task_id, integer(row.columns, "run")
            data = await self._context.logs.read(*place, name="result.json", limit=RESULT_BYTES_MAX)
            resolution = resolution | (as_output(data) if data is not None else {})
        return state, resolution

    async def _of_group(self, graph_id: str, group_id: str) -> Resolved | None:
        """What the tasks of a group have handed on, by label; None where there is no such group."""
        rows: list[Row] | None = None

        async def read() -> None:
            nonlocal rows
            rows = await member_rows(self._context.handlers.records.tables, graph_id, group_id, _OF_RESULT)

        await self._context.keep_trying(read, "results that a task needs cannot be read yet")
        if rows is None:
            return None
        outputs: dict[str, Any] = {}
        for row in rows:
            _, resolution = await self._resolved(graph_id, reference_of(row.key), row)
            if resolution is not None and OUTPUT in resolution:
                outputs[str(row.columns.get("label", ""))] = resolution[OUTPUT]
        return TaskState.COMPLETED, {OUTPUT: dict(sorted(outputs.items()))}

    async def _end_at_deadline(self, one: ClaimedRun) -> None:
        """Resolve the task when its deadline passes while it runs, and end the run then."""
        clock = self._context.clock
        deadline = deadline_in(one.work.definition)
        while deadline is not None and not one.lost:
            left = (deadline - clock.now()).total_seconds()
            if left > 0:
                await clock.sleep(min(left, _DEADLINE_LOOK_SECONDS))
                continue
            await self._context.guard(self._end_overdue, one)
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


@dataclasses.dataclass(frozen=True, slots=True)
class _Prepared:
    """What is to be run. order: of files, None without any. key: of the cache. place: of files that it takes."""

    work: Work
    order: FileOrder | None
    key: str
    place: str = ""


def _checked(folder: str) -> str:
    """The folder of a submitter. Raises InvalidInput if it is not known, or not on this machine."""
    if not folder:
        raise InvalidInput(f"it is not known in which folder this graph was submitted, {_WITHOUT_FOLDER}")
    if not os.path.isdir(folder):
        raise InvalidInput(f"this machine has no folder {folder}, in which this graph was submitted, {_WITHOUT_FOLDER}")
    return folder


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


@dataclasses.dataclass(slots=True)
class _LogWriter:
    """The log of one run, written in pieces. A log that cannot be stored is lost, and says so; the run goes on."""

    logs: Logs
    work: Work
    _buffer: bytearray = dataclasses.field(default_factory=bytearray)
    _lock: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    _timer: asyncio.Task[None] | None = None
    _lost: bool = False
    _used: bool = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._used:
            await asyncio.shield(self._close())

    async def write(self, data: bytes) -> None:
        """Add bytes; they are stored within about a second."""
        self._used = True
        if self._lost:
            return
        self._buffer += data
        if len(self._buffer) >= _LOG_CHUNK_BYTES:
            await self._flush()
        elif self._timer is None or self._timer.done():
            self._timer = asyncio.create_task(self._flush_soon())

    async def _close(self) -> None:
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
