"""Workers elsewhere: claim tasks for them, renew leases and take reports, each by the claim of a run.

A worker elsewhere has no rights in the store: another process, which answers its requests, does for it what
`worker.loop` does for workers of its own. The work message is deleted as soon as its tasks are claimed. From there on a
run is held by its row alone: any process may take the next request about it, and one that is lost takes nothing along.
What is remembered here is for people (the registry) and for bounds.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Self, TypeVar

from taskgraph.documents.references import EXPAND
from taskgraph.documents.results import handed_on
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.poison import Poison
from taskgraph.model import limits
from taskgraph.model.columns import integer, listed
from taskgraph.model.errors import InvalidInput, NotFound, Refused, StorageError
from taskgraph.model.flag import Flag
from taskgraph.model.ids import is_graph_id, is_task_id, row_key
from taskgraph.model.placement import DEFAULT_TARGET
from taskgraph.model.states import TaskState
from taskgraph.protocol.context import Outcome as Decided
from taskgraph.protocol.decide import Answer, Item
from taskgraph.protocol.edit import EDITED
from taskgraph.protocol.runs import Claim, Completed, Failed, HandBack, LeaseLost, Renew
from taskgraph.queries.targets import Gates, limits_in
from taskgraph.storage.logs import Logs, Place, size_of
from taskgraph.storage.signals.wakeup import Pacer, Wakeup
from taskgraph.storage.tables import Row
from taskgraph.worker.elsewhere import EXECUTOR, Crew, Taken, Taking
from taskgraph.worker.executors import Outcome, Work, executor_name_of
from taskgraph.worker.executors.contract import malformed, no_log
from taskgraph.worker.permits import RunPermits
from taskgraph.worker.reports import resolution_of
from taskgraph.worker.values import ClaimedRun

log = logging.getLogger("taskgraph.gateway")

STALE: Final = "stale-claim"
"""Code of what is refused, as the claim of its run does not hold any more."""

_RESULT: Final = "result.json"
_PERMIT_LOST: Final = "the permit of its target was not renewed in time"
_MESSAGES_MAX: Final = 20  # that are looked at without a task, before a worker gets none
_TARGETS_MAX: Final = 1_000  # of which it is remembered how their messages come
_POLL_SECONDS_MAX: Final = 10.0  # between two looks at a queue, for a worker that waits, if no notification comes


@dataclass(frozen=True, slots=True)
class RunClaim:
    """The claim of a run, with what it takes to find it; as text, what its worker names it by."""

    graph_id: str
    task_id: str
    run: int
    claim: str

    def __str__(self) -> str:
        return f"{self.graph_id}.{self.task_id}.{self.run}.{self.claim}"

    @classmethod
    def read(cls, text: str) -> Self:
        """Raises InvalidInput."""
        parts = text.split(".")
        if len(parts) == 4:
            graph_id, task_id, run, claim = parts
            number = int(run) if run.isascii() and run.isdigit() and len(run) < 10 else -1
            if is_graph_id(graph_id) and is_task_id(task_id) and number >= 0 and is_graph_id(claim):
                return cls(graph_id, task_id, number, claim)
        raise InvalidInput(f"{text[:100]!r} is no claim of a run: send one as it came with its task")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a worker elsewhere asks for. slots: as many tasks at most. token: by which it was let in."""

    worker: str
    target: str = DEFAULT_TARGET
    labels: Collection[str] = ()
    slots: int = 1
    lease_seconds: float = limits.LEASE_SECONDS
    token: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A run that a worker has got. definition: with the results that it takes. lease_until: or a moment later."""

    claim: RunClaim
    label: str
    definition: Mapping[str, Any]
    lease_until: datetime
    log_url: str


@dataclass(frozen=True, slots=True)
class Returned:
    """A run that was not brought to its end. broken: its machine could not run it, which spends a retry."""

    reason: str = ""
    broken: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    claim: RunClaim
    ended: Outcome | Returned


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of a report or a renewal.

    stale: the claim does not hold any more, for this reason. lease_until: of a renewal. cancel: why the run is to be
    stopped, "" if it is not.
    """

    claim: RunClaim
    stale: str = ""
    lease_until: datetime | None = None
    cancel: str = ""


@dataclass(eq=False, slots=True)
class _Line:
    """Workers that wait for work of one target. per_message: tasks in a message of late."""

    pacer: Pacer
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    per_message: float = 1.0


@dataclass(eq=False, slots=True)
class Gateway:
    """What this process does for workers elsewhere."""

    handlers: Handlers
    poison: Poison
    logs: Logs
    wakeup: Wakeup
    version: str = ""
    in_flight_max: int = limits.TOKEN_RUNS_MAX
    """Runs that workers may have in hand by one token; for the routes, which refuse more."""
    crew: Crew = field(init=False)
    _gates: Gates = field(init=False)
    _permits: RunPermits = field(init=False)
    _lines: dict[str, "_Line"] = field(default_factory=dict)  # by target
    _turns: "itertools.count[int]" = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        tables, clock = self.handlers.records.tables, self.handlers.clock
        self.crew = Crew(tables, clock, self.version)
        self._gates = Gates(tables, clock)
        self._permits = RunPermits(tables, clock)

    # --- claiming

    async def claim(self, wanted: Wanted, *, until: float = 0.0, gone: Flag | None = None) -> list[Assignment]:
        """Ready tasks for a worker; none while it drains.

        until: the first is waited for until then (monotonic). gone: the worker waits no longer. Raises StorageError.
        """
        clock, gone, line = self.handlers.clock, gone or Flag(), self._line(wanted.target)
        found = await self._look(wanted)
        while not found and not gone.is_set() and (left := until - clock.monotonic()) > 0:
            with suppress(TimeoutError):
                async with self._in_line(line, left):
                    ticket = self.wakeup.ticket(*self._queues(wanted.target))
                    found = await self._look(wanted)
                    if not found and (left := until - clock.monotonic()) > 0:
                        async with asyncio.timeout(left):
                            await line.pacer.idle(ticket, gone)
        if found and gone.is_set():
            await self.report([Report(each.claim, Returned("its worker went away")) for each in found])
            return []
        return found

    @asynccontextmanager
    async def _in_line(self, line: "_Line", seconds: float) -> AsyncIterator[None]:
        """Of those that wait for work of a target one asks the queue, each in turn. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            await line.turn.acquire()
        try:
            yield
        finally:
            line.turn.release()

    def _line(self, target: str) -> "_Line":
        if target not in self._lines:
            if len(self._lines) >= _TARGETS_MAX:  # those who wait keep theirs
                self._lines.clear()
            self._lines[target] = _Line(Pacer(self.handlers.clock, seconds_max=_POLL_SECONDS_MAX))
        return self._lines[target]

    def _queues(self, target: str) -> list[str]:
        return [self.handlers.names.work(target, level) for level in self._gates.levels(target)]

    async def _look(self, wanted: Wanted) -> list[Assignment]:
        """What is there now."""
        own = wanted.worker, wanted.target, wanted.labels, wanted.slots, wanted.lease_seconds
        if (await self.crew.asks(*own)).draining:
            return []
        lease_until = self.handlers.clock.now() + timedelta(seconds=wanted.lease_seconds)
        found: list[Assignment] = []
        for _ in range(_MESSAGES_MAX):
            taking = self._taking(wanted, wanted.slots - len(found))
            try:
                taken = await taking.take()
            except StorageError as error:  # reach: gateway
                if not found:
                    raise
                log.warning("no more work of %s could be asked for: %s", wanted.target, error)
                break
            line = self._line(wanted.target)
            line.per_message = taking.per_message
            if taken.received:
                line.pacer.reset()
            found += await self._assigned(wanted, taking, taken, lease_until)
            # What is old, or not for this worker, is no reason to go without what lies behind it.
            enough = len(found) >= wanted.slots or taken.unpermitted or (found and not taken.more)
            if enough or not taken.received:
                break
        if found:
            await self.crew.begins(wanted.worker)
        return found

    def _taking(self, wanted: Wanted, slots: int) -> Taking:
        return Taking(
            *(self.handlers, self.poison, self.logs, self.wakeup, self._gates),
            name=wanted.worker,
            target=wanted.target,
            labels=wanted.labels,
            slots=slots,
            lease_seconds=wanted.lease_seconds,
            turn=next(self._turns),
            per_message=self._line(wanted.target).per_message,
        )

    async def _assigned(self, wanted: Wanted, taking: Taking, taken: Taken, lease_until: datetime) -> list[Assignment]:
        """What a worker gets of runs that were claimed for it; the others go back at once, or have failed."""
        returned = [
            Report(_claim_of(one), Returned("there is no permit of its target for it")) for one in taken.unpermitted
        ]
        found: list[Assignment] = []
        for one in taken.runs:
            try:
                work = (await taking.with_results(one)) if one.takes else one.work
            except InvalidInput as error:  # a rerun would find nothing else
                returned.append(Report(_claim_of(one), malformed(str(error))))
                continue
            except StorageError as error:  # reach: gateway
                log.warning("graph %s: results that a task needs cannot be read: %s", one.work.graph_id, error)
                returned.append(Report(_claim_of(one), Returned("the results that it takes could not be read")))
                continue
            if executor_name_of(work.definition) == EXPAND:
                returned.append(Report(_claim_of(one), await self._expanded(work, wanted.lease_seconds)))
                continue
            url = self.logs.url(work.graph_id, work.task_id, work.run)
            found.append(Assignment(_claim_of(one), work.label, work.definition, lease_until, url))
            self.crew.has(wanted.worker, wanted.token, work, wanted.lease_seconds)
        if returned:
            try:
                await self.report(returned)
            except StorageError as error:  # reach: gateway
                log.warning("%d runs are left to their leases: %s", len(returned), error)
        return found

    async def _expanded(self, work: Work, lease_seconds: float) -> Outcome | Returned:
        """Make tasks of results here: a worker elsewhere has no rights to add them."""
        from taskgraph.worker.additions import add_tasks  # few graphs have such tasks
        from taskgraph.worker.executors.expand import ExpandExecutor

        try:
            async with asyncio.timeout(lease_seconds / 2):
                outcome = await ExpandExecutor().run(work, no_log)
                return outcome if outcome.failed else await add_tasks(self.handlers, work, outcome.adds, outcome)
        except TimeoutError:
            return Returned("its tasks were not accepted in time")
        except StorageError as error:  # reach: gateway
            log.warning("graph %s: tasks of a run cannot be added: %s", work.graph_id, error)
            return Returned("its tasks could not be put down")

    async def claim_run(self, wanted: Wanted, graph_id: str, task_id: str, run: int) -> Answered:
        """Claim one run by its row; its message finds it claimed. Asked again, a worker gets its claim renewed.

        Its definition takes no results. stale: why it cannot be claimed. Raises StorageError.
        """
        await self.crew.asks(wanted.worker, wanted.target, wanted.labels, wanted.slots, wanted.lease_seconds)
        claim = RunClaim(graph_id, task_id, run, self.handlers.clock.new_id())
        rows = await self._rows(graph_id, [claim])
        row = rows[row_key(task_id)]
        if row is None:
            return Answered(claim, stale="there is no such task")
        own = RunClaim(graph_id, task_id, run, str(row.columns.get("claim", "")))
        if row.columns.get("worker") == wanted.worker and _holds(row, own):
            return (await self.renew([own], wanted.lease_seconds))[0]
        target = _target(row)
        if target in await self._limited() or target in self._gates.closed:
            return Answered(claim, stale=f"the target {target} is paused or limited: claim by the target")
        until = self.handlers.clock.now() + timedelta(seconds=wanted.lease_seconds)
        edited, length = integer(row.columns, EDITED), wanted.lease_seconds
        item = Claim(task_id, run, claim.claim, wanted.worker, until, edited=edited, lease_seconds=length)
        answer = (await self._decided(graph_id, [item], rows))[id(item)]
        if answer.outcome not in (Decided.APPLIED, Decided.REPEATED):
            return Answered(claim, stale=_reason(answer))
        label = str(row.columns.get("label", ""))
        self.crew.has(wanted.worker, wanted.token, Work(graph_id, task_id, run, label, claim.claim, {}), length)
        return Answered(claim, lease_until=until)

    # --- renewing

    async def renew(self, claims: Sequence[RunClaim], lease_seconds: float | None = None) -> list[Answered]:
        """Renew the leases of these runs, for as long as before unless it is said for how long. Raises StorageError."""
        now = self.handlers.clock.now()
        answered: dict[RunClaim, Answered] = {}
        for graph_id, ones in _by_graph(claims, lambda each: each).items():
            rows = await self._rows(graph_id, ones)
            lengths = {each: lease_seconds or _length(rows[row_key(each.task_id)]) for each in ones}
            late = await self._without_permit(ones, rows, lengths)
            ends = {each: now + timedelta(seconds=lengths[each]) for each in ones}
            items: list[Item] = [
                HandBack(each.task_id, each.run, each.claim, _PERMIT_LOST)
                if each in late
                else Renew(each.task_id, each.run, each.claim, ends[each], lengths[each])
                for each in ones
            ]
            answers = await self._decided(graph_id, items, rows)
            for each, item in zip(ones, items, strict=True):
                answer = answers[id(item)]
                if each not in late and answer.outcome is Decided.APPLIED:
                    answered[each] = Answered(each, lease_until=ends[each], cancel=answer.reason)
                    await self.crew.renewed(each.claim, lengths[each])
                else:
                    answered[each] = Answered(each, stale=_reason(answer) or _PERMIT_LOST)
                    self.crew.has_no_longer(each.claim)
        return [answered[each] for each in claims]

    async def _without_permit(
        self, claims: Sequence[RunClaim], rows: Mapping[str, Row | None], lengths: Mapping[RunClaim, float]
    ) -> set[RunClaim]:
        """Renew the permits of runs of limited targets; gives the runs that may have lost theirs to others."""
        now = self.handlers.clock.now()
        limited = [each for each in claims if _target(rows[row_key(each.task_id)]) in await self._limited()]
        if not limited:
            return set()
        kept = await self._permits.renew({each.claim: lengths[each] for each in limited})
        # A permit outlasts the lease of its run: one whose lease holds, and that has none, was begun without a limit.
        return {
            each
            for each in limited
            if each.claim not in kept
            and (row := rows[row_key(each.task_id)]) is not None
            and isinstance(until := row.columns.get("leaseUntil"), datetime)
            and until < now
        }

    async def _limited(self) -> Collection[str]:
        await self._gates.look()
        return limits_in(self._gates.rows, self.handlers.clock.now())

    # --- reporting

    async def report(self, reports: Sequence[Report]) -> list[Answered]:
        """Take what runs have come to; the same again is answered as before.

        Raises InvalidInput for a result that is none, and StorageError: some may have been taken then.
        """
        answered: dict[RunClaim, Answered] = {}
        for graph_id, ones in _by_graph(reports, lambda each: each.claim).items():
            rows = await self._rows(graph_id, [each.claim for each in ones])
            items = [await self._item(each, rows) for each in ones]
            targets = {each.claim: _target(rows[row_key(each.claim.task_id)]) for each in ones}
            self._note_workers(rows.values())
            before = dict(rows)
            answers = await self._decided(graph_id, items, rows)
            for each, item in zip(ones, items, strict=True):
                self.crew.has_no_longer(each.claim.claim)
                answer = answers[id(item)]
                taken = answer.outcome in (Decided.APPLIED, Decided.REPEATED) or _was_reported(each, rows)
                answered[each.claim] = Answered(each.claim, stale="" if taken else _reason(answer))
                if answer.outcome is Decided.APPLIED and self.handlers.telemetry.enabled:
                    self._measure(each, before[row_key(each.claim.task_id)])
            limited = await self._limited()
            if ours := [claim.claim for claim, target in targets.items() if target in limited]:
                await self._permits.give_back(ours)
                for target in {targets[claim] for claim in targets if targets[claim] in limited}:
                    self.wakeup.notify(self.handlers.names.work(target))  # there is a permit for the next one
        return [answered[each.claim] for each in reports]

    async def _item(self, report: Report, rows: Mapping[str, Row | None]) -> Item:
        claim, ended = report.claim, report.ended
        run = claim.task_id, claim.run, claim.claim
        if isinstance(ended, Returned):
            return LeaseLost(*run, certain=True, alive=True) if ended.broken else HandBack(*run, ended.reason)
        now = self.handlers.clock.now().isoformat()
        resolution = resolution_of(ended)
        resolution["logsUrl"] = self.logs.url(*run_of(claim))
        if ended.result is not None:
            if (
                _holds(rows[row_key(claim.task_id)], claim)
                and await self.logs.read(*run_of(claim), name=_RESULT) is None
            ):
                await self.logs.append(*run_of(claim), ended.result, name=_RESULT)
            resolution |= handed_on(ended.result)
            resolution["resultUrl"] = self.logs.url(*run_of(claim), name=_RESULT)
        if ended.failed:
            return Failed(*run, now, resolution, ended.exception, ended.temporary, ended.retry_after)
        return Completed(*run, now, resolution)

    def _measure(self, report: Report, row: Row | None) -> None:
        """A span for a run that has ended: it began with its claim, maybe in another process, as its row says."""
        telemetry, claim, ended = self.handlers.telemetry, report.claim, report.ended
        if row is None:
            return
        started = row.columns.get("started")
        past = (self.handlers.clock.now() - started).total_seconds() if isinstance(started, datetime) else 0.0
        run = telemetry.run_begins(
            *run_of(claim),
            label=str(row.columns.get("label", "")),
            target=_target(row),
            executor=EXECUTOR,
            cause=telemetry.cause(claim.graph_id),
            seconds=max(0.0, past),
        )
        if isinstance(ended, Returned):
            telemetry.run_ends(run, "broken" if ended.broken else "handed-back")
        else:
            how = "exception" if ended.exception else "failed" if ended.failed else "completed"
            telemetry.run_ends(run, how, exit_code=ended.exit_code)

    def _note_workers(self, rows: Iterable[Row | None]) -> None:
        """Into so many messages at least goes what is ready, see `Dispatcher`."""
        now = self.handlers.clock.monotonic()
        self.handlers.dispatcher.bundle_sizes.workers.update(
            {str(row.columns.get("worker", "")): now for row in rows if row}
        )

    # --- logs

    async def log(self, claim: RunClaim, data: bytes, offset: int | None = None) -> int:
        """Add to the log of a run; gives its length. offset: where the bytes belong, so that a repeat adds nothing.

        Raises InvalidInput, Refused for a claim that does not hold, TooLarge, StorageUnavailable.
        """
        rows = await self._rows(claim.graph_id, [claim])
        if not _holds(rows[row_key(claim.task_id)], claim):
            raise Refused("the claim does not hold any more", STALE)
        size = await self._size(claim)
        start = size if offset is None else offset
        if start > size:
            raise InvalidInput(f"the log has {size:,} bytes, and offset {start:,} would leave a gap")
        rest = data[size - start :]
        if size + len(rest) > limits.LOG_BYTES_MAX:
            raise InvalidInput(f"a log has {limits.LOG_BYTES_MAX:,} bytes at most")
        if rest:
            await self.logs.append(*run_of(claim), rest)
        return size + len(rest)

    # --- rows

    async def _rows(self, graph_id: str, claims: Iterable[RunClaim]) -> dict[str, Row | None]:
        rows: dict[str, Row | None] = {}
        await self.handlers.records.load(graph_id, list({row_key(each.task_id) for each in claims}), rows)
        return rows

    async def _decided(self, graph_id: str, items: Sequence[Item], rows: dict[str, Row | None]) -> dict[int, Answer]:
        """The answers, by the ids of their items. A row that is not there belongs to no run. Raises TaskgraphError."""
        answers = {id(each.item): each for each in await self.handlers.transition(graph_id, items, rows=rows)}
        for each in answers.values():
            if each.error is not None and not isinstance(each.error, NotFound):
                raise each.error
        return answers

    async def _size(self, claim: RunClaim) -> int:
        async def read(*, offset: int, limit: int) -> bytes | None:
            return await self.logs.read(*run_of(claim), offset=offset, limit=limit)

        return await size_of(read)


def run_of(claim: RunClaim) -> Place:
    return claim.graph_id, claim.task_id, claim.run


def _claim_of(one: ClaimedRun) -> RunClaim:
    return RunClaim(one.work.graph_id, one.work.task_id, one.work.run, one.work.claim)


T = TypeVar("T")


def _by_graph(ones: Iterable[T], claim_of: Callable[[T], RunClaim]) -> dict[str, list[T]]:
    found: dict[str, dict[RunClaim, T]] = {}
    for one in ones:
        found.setdefault(claim_of(one).graph_id, {}).setdefault(claim_of(one), one)
    return {graph_id: list(own.values()) for graph_id, own in found.items()}


def _holds(row: Row | None, claim: RunClaim) -> bool:
    if row is None or row.columns.get("state") != TaskState.RUNNING:
        return False
    return row.columns.get("run") == claim.run and row.columns.get("claim") == claim.claim


def _target(row: Row | None) -> str:
    return str(row.columns.get("target", DEFAULT_TARGET)) if row is not None else DEFAULT_TARGET


def _length(row: Row | None) -> float:
    """Of the lease of a run, as it is now."""
    seconds = row.columns.get("leaseSeconds") if row is not None else None
    return float(seconds) if isinstance(seconds, int | float) and seconds else limits.LEASE_SECONDS


def _reason(answer: Answer) -> str:
    return str(answer.error) if answer.error is not None else answer.reason


def _was_reported(report: Report, rows: Mapping[str, Row | None]) -> bool:
    """Whether the run ended by such a report before: a run has one claim, and its row lists how earlier ones ended."""
    row, ended = rows.get(row_key(report.claim.task_id)), report.ended
    if isinstance(ended, Returned):
        how = "lost" if ended.broken else "handed-back"
    elif not ended.failed:
        how = "completed"
    else:
        how = "temporary" if ended.temporary else "failed"
    for each in listed(row.columns, "runs") if row is not None else ():
        if isinstance(each, Mapping) and each.get("run") == report.claim.run:
            return each.get("outcome") == how
    return False
