"""Claim ready tasks, and have those run that are this worker's then.

A run begins only after its claim is committed (P5), by a commit made here, or by handlers of this process (see
`local_link`).
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from taskgraph.documents.results import may_take
from taskgraph.engine.telemetry import Here, being
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import row_key
from taskgraph.protocol.context import Outcome as Decided
from taskgraph.protocol.context import Started
from taskgraph.protocol.decide import Answer
from taskgraph.protocol.rows import NewerSchema
from taskgraph.protocol.runs import Claim
from taskgraph.storage.tables import Row
from taskgraph.worker.context import WorkerContext
from taskgraph.worker.executors import Executor, Work
from taskgraph.worker.messages import WorkMessages
from taskgraph.worker.slots import Slots
from taskgraph.worker.target_gate import TargetGate
from taskgraph.worker.values import (
    ClaimedRun,
    Early,
    ReadyTask,
    WorkMessage,
    as_seen,
    hold_for_room,
    hold_until_due,
    only_dependent,
    read_definition,
    routing_in,
)


class Claims:
    """What one worker claims."""

    def __init__(self, context: WorkerContext, messages: WorkMessages, gate: TargetGate, slots: Slots) -> None:
        self._context = context
        self._messages = messages
        self._gate = gate
        self._slots = slots
        self._early = Early()
        # Of the definition that was asked for last: many tasks have the very same.
        self._last: tuple[str, Mapping[str, Any], Executor, bool] | None = None
        self.fits = functools.lru_cache(maxsize=1000)(self._fits)

    # --- what this worker can run

    def _fits(self, definition: str) -> bool:
        """Whether this worker can run a task of this definition."""
        try:
            return self.why_not(read_definition("", "", definition)) is None
        except IntegrityError:
            return False  # left to a message, whose reader says what is wrong

    def why_not(self, definition: Mapping[str, Any]) -> str | None:
        """Why this worker cannot run a task, None if it can: for want of a label, a host, or an executor."""
        return self._context.offer.why_not(definition) or self._context.executors.why_not(definition)

    def is_instant(self, one: ReadyTask) -> bool:
        """Whether a run of this takes no time at all."""
        executor = self._context.executors.choose(read_definition("", one.task_id, one.definition))
        return executor.instant and not may_take(one.definition)

    # --- a commit of claims

    async def commit(self, graph_id: str, ready: Sequence[ReadyTask]) -> None:
        """Claim ready tasks, and begin what is this worker's then."""
        telemetry = self._context.handlers.telemetry
        if telemetry.enabled:
            with being(Here(graph_id, telemetry.cause(graph_id, _body_of(ready[0].source)))):
                await self._commit(graph_id, ready)
        else:
            await self._commit(graph_id, ready)

    async def _commit(self, graph_id: str, ready: Sequence[ReadyTask]) -> None:
        """Claim by as many commits as it takes: what the first has claimed begins while the next is made."""
        free, begun = self._slots.free, False
        newer: NewerSchema | None = None
        gone: list[WorkMessage] = []
        self._slots.reserve(ready)
        self._gate.let_in(ready)
        try:
            for part in _parts(ready, self._context.handlers.records.changes_max):
                answers, has_begun, refused = await self._commit_part(graph_id, part, free)
                free, begun = max(0, free - len(part)), begun or has_begun
                gone += refused
                newer = next((each.error for each in answers if isinstance(each.error, NewerSchema)), newer)
        finally:
            self._slots.unreserve(ready)
            self._context.freed.set()
        if newer is not None and not begun:
            raise newer  # left to who knows the row; with other runs claimed, the sweep says it again
        for source in gone:
            await self._messages.release(source)

    async def _commit_part(
        self, graph_id: str, ready: Sequence[ReadyTask], free: int
    ) -> tuple[Sequence[Answer], bool, list[WorkMessage]]:
        """Gives the answers, whether anything has been claimed, and messages of what could not be."""
        handlers = self._context.handlers
        claims = self.claims_of(ready, free)
        by_claim = {claim.claim: one for claim, one in zip(claims, ready, strict=True)}  # one task may come twice
        conflicts = handlers.counters.conflicts
        over: dict[str, str] = {}
        if self._context.is_direct(graph_id):
            rows = handlers.row_cache.of(graph_id).rows
            answers = await handlers.advance(graph_id, claims)
        else:
            rows = {row_key(one.task_id): row for one in ready if (row := one.row or as_seen(one)) is not None}
            over = {key: row.etag for key, row in rows.items() if row is not None}
            answers = await handlers.transition(graph_id, claims, rows=rows)
        self._slots.unreserve(ready)
        if handlers.counters.conflicts > conflicts:
            over = {}  # what was claimed is not what had been seen
        begun, gone = self._begin_claimed(graph_id, by_claim, answers, rows, over)
        self._slots.fill()
        return answers, begun, gone

    def _begin_claimed(
        self,
        graph_id: str,
        by_claim: Mapping[str, ReadyTask],
        answers: Sequence[Answer],
        rows: Mapping[str, Row | None],
        over: Mapping[str, str],
    ) -> tuple[bool, list[WorkMessage]]:
        """Hold what has been claimed; gives whether there was any, and messages of what could not be."""
        begun = False
        gone: list[WorkMessage] = []
        for answer in answers:
            if not isinstance(item := answer.item, Claim):
                continue
            one = by_claim[item.claim]
            if answer.outcome in (Decided.APPLIED, Decided.REPEATED):
                begun = True
                self.begin(graph_id, one, item, rows, over.get(row_key(item.task_id), ""))
            elif one.source is not None:
                self.refused(one.source, rows.get(row_key(item.task_id)))
                gone.append(one.source)
        return begun, gone

    def claims_of(self, ready: Sequence[ReadyTask], free: int) -> list[Claim]:
        """The claims of tasks, in order. free: for so many there is a slot; the others are claimed ahead."""
        context, clock = self._context, self._context.clock
        lease_until = clock.now() + timedelta(seconds=context.lease_seconds)
        claims: list[Claim] = []
        for n, (one, new_id) in enumerate(zip(ready, clock.new_ids(len(ready)), strict=True)):
            # One that was tried before, and should that have come through after all, is still ours.
            claim_id = new_id if one.claim is None else one.claim.claim
            known = self._early.seconds(one.row, clock.monotonic())
            task, ahead, seconds = (one.task_id, one.run), n >= free, context.lease_seconds
            one.claim = Claim(*task, claim_id, context.name, lease_until, ahead, one.edited, seconds, known)
            claims.append(one.claim)
        return claims

    # --- what becomes of claims

    def begin(
        self, graph_id: str, ready: ReadyTask, claim: Claim, rows: Mapping[str, Row | None], over: str = ""
    ) -> None:
        """Hold a run that was claimed. over: the etag of its row before, where no other process has written since."""
        row = rows.get(row_key(claim.task_id))
        one = self._claimed(graph_id, claim, ready.label, ready.definition)
        one.source, one.routing = ready.source, ready.routing
        if row is not None and over:
            one.etag, one.over = row.etag, over
            one.next = ready.seen.next if ready.seen is not None and ready.seen.etag == over else ""
        self._admit(one)

    def begin_started(self, graph_id: str, each: Started, row: Row | None) -> None:
        """Hold a run that was claimed in the commit which made it ready."""
        one = self._claimed(graph_id, each, each.label, each.definition)
        one.routing = routing_in(row)
        if row is not None and not self._context.is_direct(graph_id) and "limits" not in row.columns:
            one.etag, one.next = row.etag, only_dependent(row)
        self._admit(one)

    def _claimed(self, graph_id: str, claim: Claim | Started, label: str, definition: str) -> ClaimedRun:
        last = self._last
        if last is None or last[0] != definition:
            found = read_definition(graph_id, claim.task_id, definition)
            last = self._last = definition, found, self._context.executors.choose(found), may_take(definition)
        _, parsed, executor, takes = last
        work = Work(graph_id, claim.task_id, claim.run, label, claim.claim, parsed, self._context.store_url)
        return ClaimedRun(work, executor, takes=takes, instant=executor.instant and not takes)

    def _admit(self, one: ClaimedRun) -> None:
        if (telemetry := self._context.handlers.telemetry).enabled:
            one.cause = telemetry.cause(one.work.graph_id, _body_of(one.source))
        if one.source is not None:
            self._messages.keep(one.source)
        self._slots.admit(one)

    def too_early(self, source: WorkMessage, row: Row | None) -> bool:
        """Keep a message that came for a task which must not run yet until it may; gives whether it did."""
        clock = self._context.clock
        return hold_until_due(source, row, self._early, clock.now(), clock.monotonic())

    def refused(self, source: WorkMessage, row: Row | None) -> None:
        """A run could not be claimed: its message is kept until it may be, if that is known."""
        if not self.too_early(source, row):
            hold_for_room(source, row, self._context.clock.now())


def _parts(ready: Sequence[ReadyTask], most: int) -> Iterator[Sequence[ReadyTask]]:
    """All of them in order, in as few parts of at most so many as hold them, and of about one size."""
    size = -(-len(ready) // -(-len(ready) // most)) if ready else 1
    return (ready[start : start + size] for start in range(0, len(ready), size))


def _body_of(source: WorkMessage | None) -> str:
    """The message that a run came by, "" without one."""
    return source.delivery.body if source is not None else ""
