"""Report what came of runs, by message.

Results go to the events queue, as many in one message as there are when it can be sent; runs without a result are
handed back. A result that cannot be delivered is tried for a long time, and then left to its lease.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from taskgraph.documents.results import handed_on
from taskgraph.engine.telemetry import being
from taskgraph.model import limits
from taskgraph.model.bundles import bundles
from taskgraph.model.columns import NO_OUTPUT
from taskgraph.model.errors import Conflict, StorageError, trail
from taskgraph.model.messages import WORKER_CHARS_MAX, TaskCompleted, TaskFailed, TaskResult
from taskgraph.model.placement import target_of
from taskgraph.protocol.decide import Item
from taskgraph.protocol.runs import Completed, HandBack, LeaseLost
from taskgraph.worker.context import WorkerContext
from taskgraph.worker.executors import Outcome
from taskgraph.worker.messages import WorkMessages
from taskgraph.worker.values import ClaimedRun

log = logging.getLogger("taskgraph.worker")

CompleteLocally = Callable[[ClaimedRun, TaskResult], Awaitable[bool]]


class Reporter:
    """Reports the runs of one worker. complete_locally: does without a message where it can, and says whether."""

    def __init__(self, context: WorkerContext, messages: WorkMessages, complete_locally: CompleteLocally) -> None:
        self._context = context
        self._messages = messages
        self._complete_locally = complete_locally
        self._outbox: dict[str, list[ClaimedRun]] = {}
        self._reporters: dict[str, asyncio.Task[None]] = {}

    @property
    def at_rest(self) -> bool:
        return not (self._outbox or self._reporters)

    def report(self, one: ClaimedRun) -> None:
        """Report a run that has ended, with the next message about its graph."""
        graph_id = one.work.graph_id
        self._outbox.setdefault(graph_id, []).append(one)
        if graph_id not in self._reporters:
            self._reporters[graph_id] = self._context.background(self._report_all, graph_id)

    async def _report_all(self, graph_id: str) -> None:
        """Report what has ended, and what ends meanwhile with the next message."""
        try:
            while ended := self._outbox.pop(graph_id, []):
                try:
                    with being(ended[0].watched.at if ended[0].watched is not None else None):
                        await self._report(graph_id, ended)
                except (Conflict, StorageError) as error:  # reach: stock
                    log.warning("graph %s: results are left to their leases: %s", graph_id, error)
                    await self._messages.release_soon(one.source for one in ended)
                except Exception as error:  # reach: stock
                    log.error("graph %s: results could not be reported: %s", graph_id, trail(error))
                    await self._messages.release_soon(one.source for one in ended)
        finally:
            del self._reporters[graph_id]
            self._context.freed.set()

    async def _report(self, graph_id: str, ended: Sequence[ClaimedRun]) -> None:
        counters = self._context.counters
        completed: list[TaskResult] = []
        failed: list[TaskResult] = []
        returned: list[Item] = []
        stopped: list[Item] = []
        for one in ended:
            if one.lost:
                counters.lost += 1
            elif isinstance(one.error, OSError | StorageError):
                returned.append(_not_here(one, one.error))
            elif (outcome := _outcome_of(one)) is not None:
                (failed if outcome.failed else completed).append(await self._result(one, outcome))
            elif one.cancelled:
                counters.cancelled += 1
                # The row says why, and what becomes of it.
                stopped.append(_hand_back(one, f"stopped by worker {self._context.name}"))
            else:
                returned.append(_hand_back(one, self._why_returned(one)))
        counters.completed += len(completed)
        counters.failed += len(failed)
        if not (len(ended) == len(completed) == 1 and await self._complete_locally(ended[0], completed[0])):
            await self._send(graph_id, completed, failed, self._bundle_size(ended))
        counters.handed_back += len(returned)
        if returned or stopped:
            await self._context.handlers.transition(graph_id, [*returned, *stopped])
        self._context.background(self._messages.let_all_go, ended)

    def _why_returned(self, one: ClaimedRun) -> str:
        worker = f"worker {self._context.name}"
        if one.unpermitted:
            return f"{worker} could not renew its permit for target {target_of(one.work.definition)}"
        if self._context.stopping or self._context.draining:
            return f"{worker} was {'stopped' if self._context.stopping else 'drained'}"
        return f"{worker} had no slot for it"

    def _bundle_size(self, ended: Sequence[ClaimedRun]) -> int:
        """How many results go into one message: many if one of these came by a large message lately.

        Who sends a large message knows that every handler takes large ones; after a lease it may be so no more.
        """
        since = self._context.clock.monotonic() - limits.LEASE_SECONDS
        large = any(one.source is not None and one.source.large and one.began >= since for one in ended)
        return limits.LARGE_BUNDLE_TASKS_MAX if large else limits.BUNDLE_TASKS_MAX

    async def _send(
        self,
        graph_id: str,
        completed: Sequence[TaskResult],
        failed: Sequence[TaskResult],
        size: int = limits.BUNDLE_TASKS_MAX,
    ) -> None:
        worker, meter = self._context.name[:WORKER_CHARS_MAX], self._context.handlers.records.meter
        # Where handlers of this process take them, its next commit says what it has used.
        used = meter.used(graph_id) if meter is not None and not self._context.is_direct(graph_id) else None
        messages: list[TaskCompleted | TaskFailed] = [
            *bundles(lambda part: TaskCompleted(graph_id, part, worker, used), completed, size),
            *bundles(lambda part: TaskFailed(graph_id, part, used), failed, size),
        ]
        if not messages:
            return
        if meter is not None and used is not None:
            meter.written(graph_id, used)
            messages[1:] = [replace(each, used=None) for each in messages[1:]]
        await self._context.keep_trying(lambda: self._context.handlers.dispatcher.send_events(messages))

    # --- what a run has come to

    async def _result(self, one: ClaimedRun, outcome: Outcome) -> TaskResult:
        work, logs = one.work, self._context.logs
        resolution = self._resolution(one, outcome)
        if outcome.result is not None:
            data = outcome.result
            await self._context.keep_trying(
                lambda: logs.append(work.graph_id, work.task_id, work.run, data, name="result.json")
            )
            resolution |= handed_on(data)
            if NO_OUTPUT in resolution:
                why = resolution[NO_OUTPUT]
                log.info("graph %s: task %s hands nothing on: %s", work.graph_id, work.task_id, why)
            resolution["resultUrl"] = logs.url(work.graph_id, work.task_id, work.run, name="result.json")
        return TaskResult(
            task=work.task_id,
            run=work.run,
            claim=work.claim,
            ended=self._context.clock.now().isoformat(),
            resolution=resolution,
            exception=outcome.exception,
            etag=one.etag,
            over=one.over,
            temporary=outcome.temporary,
            retry_after=outcome.retry_after,
            routing=one.routing,
            seconds=one.took,
        )

    def _resolution(self, one: ClaimedRun, outcome: Outcome) -> dict[str, Any]:
        work, resolution = one.work, resolution_of(outcome)
        if not one.executor.instant and "cached" not in resolution:
            resolution["logsUrl"] = self._context.logs.url(work.graph_id, work.task_id, work.run)
        return resolution

    def completed(self, one: ClaimedRun) -> Completed:
        """The completion of a run, for a commit of this process."""
        work, outcome = one.work, one.outcome
        if outcome is None:
            raise RuntimeError("a result was asked for before its end")
        resolution = self._resolution(one, outcome)
        return Completed(work.task_id, work.run, work.claim, self._context.clock.now(), resolution, seconds=one.took)

    # --- apart from the others

    def report_alone(self, one: ClaimedRun) -> None:
        """Report a result by a message: the handlers count what goes wrong with one, and set it aside in the end."""
        if one.outcome is not None:
            item = self.completed(one)
            result = TaskResult(
                item.task_id,
                item.run,
                item.claim,
                item.ended_text,
                item.resolution,
                routing=one.routing,
                seconds=item.seconds,
            )
            self._context.background(self._send_alone, one, result)

    async def _send_alone(self, one: ClaimedRun, result: TaskResult) -> None:
        graph_id = one.work.graph_id
        try:
            await self._send(graph_id, [result], [])
        except StorageError as error:  # reach: stock
            log.warning("graph %s: a result is left to its lease: %s", graph_id, error)
        else:
            await self._messages.let_go(one)

    async def hand_back(self, graph_id: str, ones: Sequence[ClaimedRun], reason: str) -> None:
        """Give runs back that have not begun."""
        self._context.counters.handed_back += len(ones)
        try:
            await self._context.handlers.transition(graph_id, [_hand_back(one, reason) for one in ones])
        except StorageError as error:  # reach: stock
            log.warning("graph %s: %d runs are left to their leases: %s", graph_id, len(ones), error)
            return
        for one in ones:
            await self._messages.let_go(one)


def resolution_of(outcome: Outcome) -> dict[str, Any]:
    """What the row says of a run that came to this, but for its files."""
    resolution: dict[str, Any] = {"failed": outcome.failed}
    if outcome.reason:
        resolution["reason"] = outcome.reason[: limits.REASON_CHARS_MAX]
    if outcome.code:
        resolution["code"] = outcome.code
    if outcome.exit_code is not None:
        resolution["exitCode"] = outcome.exit_code
    return {**resolution, **outcome.more} if outcome.more else resolution


def _hand_back(one: ClaimedRun, reason: str) -> HandBack:
    return HandBack(one.work.task_id, one.work.run, one.work.claim, reason)


def _not_here(one: ClaimedRun, error: OSError | StorageError) -> LeaseLost:
    """A run whose machine is out of something, or whose result could not be stored: infrastructure, a retry."""
    work = one.work
    # The log names no file.
    what = (error.strerror or type(error).__name__) if isinstance(error, OSError) else error
    log.error("graph %s: task %s could not be run here: %s", work.graph_id, work.task_id, what)
    return LeaseLost(work.task_id, work.run, work.claim, certain=True, alive=True)


def _outcome_of(one: ClaimedRun) -> Outcome | None:
    """What a run has come to, None if it was ended before its time. A broken executor is an exception."""
    if one.error is not None:
        log.error("graph %s: task %s: the executor broke: %s", one.work.graph_id, one.work.task_id, trail(one.error))
        reason = f"the executor broke: {type(one.error).__name__}: {one.error}"
        one.outcome = Outcome(failed=True, exception=True, reason=reason[: limits.REASON_CHARS_MAX])
    return one.outcome
