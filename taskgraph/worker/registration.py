"""The row of a worker, or of what handles events, among those of all: written now and then, deleted when it ends.

`taskgraph workers` lists it, and a worker drains when the row says so. One that could not write it works as well as
any.
"""

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.columns import Value
from taskgraph.model.errors import Conflict, StorageError, Unclear
from taskgraph.model.flag import Flag, wait_any
from taskgraph.model.json_strict import compact_json
from taskgraph.queries.workers import NOW, WORKERS, key_of
from taskgraph.storage.tables import Delete, Insert, Merge, Tables

log = logging.getLogger("taskgraph.registry")

RUNNING_SHOWN_MAX: Final = 5
"""Runs that a row names."""

_LABEL_CHARS_SHOWN: Final = 80
_TRIES: Final = 3
_SCHEMA: Final = 1
_LOOK_SECONDS: Final = 0.5  # between two looks whether a worker that is to end is at rest
_CHANGED_SECONDS: Final = 1.0  # between two looks whether the row shows what a worker has in hand


@dataclass(frozen=True, slots=True)
class Presence:
    """busy: runs in hand. running: graph and label of some of them, the oldest first."""

    busy: int
    running: Sequence[tuple[str, str]] = ()


class RegisteredWorker(Protocol):
    @property
    def name(self) -> str: ...

    def presence(self) -> Presence: ...

    def drain(self, *, now: bool) -> None:
        """Claim nothing more. now: also hand back what has begun. Repeatable."""

    def undrain(self) -> None:
        """Claim again. Repeatable."""

    @property
    def at_rest(self) -> bool:
        """Whether nothing is in hand: no run, no claim, no result that has not been reported."""


class RegisteredHandler:
    """What handles events, as its row shows it: it has no tasks, and nothing to drain."""

    at_rest = False

    def __init__(self, name: str) -> None:
        self.name = name

    def presence(self) -> Presence:
        return Presence(0)

    def drain(self, *, now: bool) -> None:
        log.warning("%s handles events, and cannot drain", self.name)

    def undrain(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class WorkerDetails:
    """host: the machine that it runs on, or the host that it serves by name.

    every_seconds: between two writes; twice as long between those of a worker that has had nothing in hand for long.
    kind: of what handles events; "" of a worker. prompt: it is also written once what it shows has changed, at most
    once a second.
    """

    targets: Sequence[str]
    labels: Sequence[str]
    executors: Sequence[str]
    host: str
    slots: int
    version: str
    pid: int
    every_seconds: float = limits.WORKER_SEEN_SECONDS
    kind: str = ""
    prompt: bool = False


class Registration:
    def __init__(self, tables: Tables, clock: Clock, worker: RegisteredWorker, details: WorkerDetails) -> None:
        self._tables = tables
        self._clock = clock
        self._worker = worker
        self.details = details
        self._key = key_of(worker.name)
        self._etag = ""
        self._since = clock.now()
        self._written = False  # or perhaps: an answer may have been lost
        self._exits = False
        self._shown = Presence(0)
        self._busy_at = clock.monotonic()  # when the worker had something in hand
        self._every_seconds = details.every_seconds

    async def keep(self, stop: Flag) -> None:
        """Write the row every so often, until the stop; sets `stop` once the worker has drained and shall end.

        A store that does not answer costs a write and not the worker.
        """
        while not stop.is_set():
            try:
                await self.beat()
            except StorageError as error:  # reach: registry
                log.warning("%s could not say that it lives: %s", self._worker.name, error)
            until = self._clock.monotonic() + self._every_seconds * (0.9 + 0.2 * self._clock.jitter())
            while not stop.is_set() and (left := until - self._clock.monotonic()) > 0:
                if self._exits and self._worker.at_rest:
                    log.info("worker %s has drained and ends", self._worker.name)
                    stop.set()
                    return
                pause = _CHANGED_SECONDS if self.details.prompt else self.details.every_seconds
                await wait_any((stop,), min(left, _LOOK_SECONDS if self._exits else pause))
                if (self.details.prompt or not self._shown.busy) and self._shown != self._worker.presence():
                    break

    async def beat(self) -> None:
        """Write the row, and obey what others have written there. Raises StorageUnavailable.

        It is read only if another process has written it.
        """
        for _ in range(_TRIES):
            self._note_presence()
            now = {**self._columns(self._shown), **self._offer()}
            change = Merge(self._key, self._etag, now) if self._etag else Insert(self._key, {**self._first(), **now})
            self._written = True
            try:
                (etag,) = await self._tables.commit(WORKERS, [change])
            except Conflict:  # reach: registry
                await self._read()
            except Unclear:  # reach: registry
                self._etag = ""
                return  # the next write finds out
            else:
                self._etag = etag or ""
                return

    def _note_presence(self) -> None:
        """What is to be shown, and how soon again: half as soon when there has been nothing for long."""
        self._shown = self._worker.presence()
        moment, details = self._clock.monotonic(), self.details
        if self._shown.busy or details.kind:
            self._busy_at = moment
        quiet = moment - self._busy_at >= limits.WORKER_QUIET_SECONDS
        self._every_seconds = details.every_seconds * (2 if quiet else 1)

    async def leave(self) -> None:
        """Delete the row; if the store does not answer, the sweep does later."""
        if not self._written:
            return
        try:
            for _ in range(_TRIES):
                if self._etag:
                    with contextlib.suppress(Conflict, Unclear):  # reach: registry
                        await self._tables.commit(WORKERS, [Delete(self._key, self._etag)])
                        return
                await self._read()
                if not self._etag:
                    return
        except StorageError as error:  # reach: registry
            log.info("the row of %s is left to the sweep: %s", self._worker.name, error)

    @property
    def exits(self) -> bool:
        """Whether the worker is to end once it has drained."""
        return self._exits

    async def _read(self) -> None:
        """Obey the row: it was changed, or deleted."""
        (row,) = await self._tables.get(WORKERS, [self._key])
        self._etag = row.etag if row is not None else ""
        if row is None:
            return
        how = row.columns.get("draining")
        self._exits = bool(how) and row.columns.get("exit") is True
        if how:
            self._worker.drain(now=how == NOW)
        else:
            self._worker.undrain()

    def _first(self) -> dict[str, Value]:
        details = self.details
        return {
            "schema": _SCHEMA,
            "name": self._worker.name,
            "executors": compact_json(list(details.executors)),
            "host": details.host,
            "version": details.version,
            "pid": details.pid,
            "since": self._since,
            "draining": "",
            "exit": False,
            **({"kind": details.kind} if details.kind else {}),
        }

    def _offer(self) -> dict[str, Value]:
        """What may be another by the next time, of a worker elsewhere."""
        details = self.details
        return {
            "targets": compact_json(list(details.targets)),
            "labels": compact_json(list(details.labels)),
            "slots": details.slots,
            "every": self._every_seconds,
        }

    def _columns(self, has: Presence) -> dict[str, Value]:
        running = [[graph, label[:_LABEL_CHARS_SHOWN]] for graph, label in has.running[:RUNNING_SHOWN_MAX]]
        return {"busy": has.busy, "running": compact_json(running), "seen": self._clock.now()}
