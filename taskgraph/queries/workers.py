"""Which workers and handlers there are: a row for each, which it writes every `limits.WORKER_SEEN_SECONDS`.

To drain a worker, a column is set there. Nothing depends on these rows: claims and leases decide who runs a task.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from taskgraph.model import limits
from taskgraph.model.columns import integer, listed, texts, time_of
from taskgraph.model.errors import Conflict, NotFound, Refused, Unclear
from taskgraph.model.foreign_times import is_ahead
from taskgraph.model.placement import Offer, labels_of, labels_text
from taskgraph.storage.tables import Delete, Merge, Range, Row, Tables, or_none, query_all

WORKERS: Final = "index:workers"  # partition of workers and handlers; `:` is in no graph id
HANDLER: Final = "handler"
FUNCTION_APP: Final = "function-app"  # what handles events, in the column `kind`; a worker has none
NO_HANDLER: Final = "no handler reads its results"
START_HANDLER: Final = "start a handler: taskgraph serve"
FINISH: Final = "finish"
NOW: Final = "now"  # how a worker drains, in the column `draining`: it finishes what it has begun, or hands it back
_TRIES: Final = 6
_LARGE_SINCE: Final = (0, 4)
_NOT_IN_KEYS: Final = re.compile(r"[^A-Za-z0-9_.-]")
_KEY_CHARS_MAX: Final = 200


def key_of(name: str) -> str:
    return _NOT_IN_KEYS.sub("-", name)[:_KEY_CHARS_MAX] or "-"


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """state: active, draining, drained, gone. busy: of `slots`. running: graph and label of some runs."""

    name: str
    state: str
    host: str
    targets: Sequence[str]
    labels: Sequence[str]
    executors: Sequence[str]
    slots: int
    busy: int
    version: str
    pid: int
    since: datetime | None
    seen: datetime | None
    seen_seconds: float
    exits: bool
    running: Sequence[Mapping[str, str]] = ()

    @property
    def live(self) -> bool:
        return self.state != "gone"

    @property
    def claims(self) -> bool:
        return self.state == "active"


@dataclass(frozen=True, slots=True)
class HandlerStatus:
    """What handles events: a process, or a function app (kind). state: active, gone."""

    name: str
    kind: str
    state: str
    host: str
    version: str
    pid: int
    since: datetime | None
    seen: datetime | None
    seen_seconds: float

    @property
    def live(self) -> bool:
        return self.state != "gone"


IsDead = Callable[[str], bool]
"""Whether the process of a worker or handler of this name certainly is gone."""


def not_known(name: str) -> bool:
    """An IsDead of who cannot see other processes."""
    return False


async def crew(tables: Tables, now: datetime, is_dead: IsDead = not_known) -> "Crew":
    """All workers and handlers, by name. One query for each thousand."""
    rows = await or_none(query_all(tables, WORKERS, Range()))
    if rows is None:
        return Crew(known=False)
    rows.sort(key=lambda row: str(row.columns.get("name", row.key)))
    handlers = [_handler(row, now, is_dead) for row in rows if row.columns.get("kind")]
    return Crew([_status(row, now, is_dead) for row in rows if not row.columns.get("kind")], handlers)


async def workers(tables: Tables, now: datetime, *, target: str = "") -> list[WorkerStatus]:
    """All workers, by name; target: those that serve it."""
    found = (await crew(tables, now)).workers
    return [one for one in found if not target or target in one.targets]


async def ask(tables: Tables, name: str, *, draining: str, exits: bool) -> WorkerStatus | None:
    """Set how a worker drains ("" to go on); gives its row as it stood, None if it kept changing.

    Raises NotFound, and Refused for a handler.
    """
    key = key_of(name)
    for _ in range(_TRIES):
        (row,) = await tables.get(WORKERS, [key])
        if row is None:
            names = [str(each.columns.get("name", each.key)) for each in await query_all(tables, WORKERS, Range())]
            raise NotFound(f"there is no worker {name}", difflib.get_close_matches(name, names, 3, 0.5))
        if row.columns.get("kind"):
            raise Refused(f"{name} handles events, and has no tasks to drain: SIGTERM ends it", "handler")
        try:
            await tables.commit(WORKERS, [Merge(key, row.etag, {"draining": draining, "exit": exits})])
        except (Conflict, Unclear):  # reach: registry
            continue  # it has just written its row, or the answer was lost: the same again is harmless
        return _status(row, time_of(row.columns, "seen") or datetime.min)
    return None


async def clean(tables: Tables, now: datetime) -> int:
    """Take rows away whose worker wrote last long ago; gives how many."""
    before = now - timedelta(seconds=limits.WORKER_FORGOTTEN_SECONDS)
    gone = 0
    for row in await query_all(tables, WORKERS, Range(select=("seen",))):
        seen = row.columns.get("seen")
        ahead = isinstance(seen, datetime) and is_ahead(seen, now)
        if isinstance(seen, datetime) and seen >= before and not ahead:
            continue
        # A time of a clock that was ahead is replaced by now: a worker that lives writes its own again.
        change = Merge(row.key, row.etag, {"seen": now}) if ahead else Delete(row.key, row.etag)
        try:
            await tables.commit(WORKERS, [change])
        except (Conflict, Unclear):  # reach: registry
            continue  # it lives after all, or another sweep was here
        gone += not ahead
    return gone


async def mark_gone(tables: Tables, names: Iterable[str]) -> None:
    """Note that the processes of these workers and handlers certainly are gone. Raises StorageUnavailable."""
    for row in await tables.get(WORKERS, [key_of(name) for name in names]):
        if row is not None:
            with suppress(Conflict, Unclear):  # it is shown as gone once it has been silent for long  # reach: registry
                await tables.commit(WORKERS, [Merge(row.key, row.etag, {"gone": True})])


def _takes_large(version: str) -> bool:
    """Whether a program of this version reads messages of version 2."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) >= _LARGE_SINCE


def _seen(row: Row, now: datetime, is_dead: IsDead) -> tuple[str, datetime | None, float, bool]:
    """Name, when the row was written last, how many seconds ago, and whether its process is gone."""
    columns = row.columns
    name = str(columns.get("name", row.key))
    seen = time_of(columns, "seen")
    age = max(0.0, (now - seen).total_seconds()) if seen is not None else limits.WORKER_FORGOTTEN_SECONDS
    every = columns.get("every")
    every = float(every) if isinstance(every, int | float) else limits.WORKER_SEEN_SECONDS
    silent = age > limits.WORKER_GONE_WORDS * every + limits.WORKER_GONE_SLACK_SECONDS
    return name, seen, age, silent or columns.get("gone") is True or is_dead(name)


def _handler(row: Row, now: datetime, is_dead: IsDead) -> HandlerStatus:
    columns = row.columns
    name, seen, age, gone = _seen(row, now, is_dead)
    return HandlerStatus(
        name=name,
        kind=str(columns.get("kind", "")),
        state="gone" if gone else "active",
        host=str(columns.get("host", "")),
        version=str(columns.get("version", "")),
        pid=integer(columns, "pid"),
        since=time_of(columns, "since"),
        seen=seen,
        seen_seconds=age,
    )


def _status(row: Row, now: datetime, is_dead: IsDead = not_known) -> WorkerStatus:
    columns = row.columns
    name, seen, age, gone = _seen(row, now, is_dead)
    busy = integer(columns, "busy")
    state = "active"
    if columns.get("draining"):
        state = "draining" if busy else "drained"
    if gone:
        state = "gone"
    return WorkerStatus(
        name=name,
        state=state,
        host=str(columns.get("host", "")),
        targets=texts(columns, "targets"),
        labels=texts(columns, "labels"),
        executors=texts(columns, "executors"),
        slots=integer(columns, "slots"),
        busy=busy,
        version=str(columns.get("version", "")),
        pid=integer(columns, "pid"),
        since=time_of(columns, "since"),
        seen=seen,
        seen_seconds=age,
        exits=columns.get("exit") is True,
        running=[
            {"graph": str(each[0]), "label": str(each[1])}
            for each in listed(columns, "running")
            if isinstance(each, list) and len(each) == 2
        ],
    )


@dataclass(frozen=True, slots=True)
class Crew:
    """known: whether the way in shows who there is. Where it does not, no one is missed."""

    workers: Sequence[WorkerStatus] = ()
    handlers: Sequence[HandlerStatus] = ()
    known: bool = True

    def takers_of_large(self, target: str, seen: Iterable[str]) -> int:
        """How many workers of a target take large messages; 0 unless all do, and all handlers their results.

        seen: workers that are known by their results; one without a row is of a version that has none.
        """
        serving = [one.version for one in self.workers if one.live and target in one.targets]
        handling = [one.version for one in self.handlers if one.live]
        known = bool(handling) and {one.name for one in self.workers}.issuperset(seen)
        return len(serving) if known and all(map(_takes_large, serving + handling)) else 0

    @property
    def handled(self) -> bool:
        """Whether anything that handles events lives, as far as that is known."""
        return not self.known or any(one.live for one in self.handlers)

    def about(self, target: str, task: Mapping[str, Any]) -> str:
        """What stands between a ready task and its workers, in one clause. task: its definition, if known."""
        if not self.known:
            return "which workers there are is not seen from here"
        serving = [one for one in self.workers if target in one.targets]
        live = [one for one in serving if one.live]
        if not live:
            words = f"no registered worker serves the target {target}"
            last = max(serving, key=lambda one: -one.seen_seconds, default=None)
            if last is not None and last.seen is not None:
                words += f" since {last.seen:%Y-%m-%d %H:%M:%SZ}, when {last.name} last wrote its row"
            return words
        able = self.able(target, task)
        if not able:
            return self._missing(target, task, live)
        claiming = [one for one in able if one.claims]
        if not claiming:
            if len(able) == 1:
                return f"the only worker for it, {able[0].name}, is draining"
            return f"all {len(able)} workers for it are draining ({_some(able)})"
        slots, busy = sum(one.slots for one in claiming), sum(min(one.busy, one.slots) for one in claiming)
        if busy >= slots:
            return f"all workers for it are busy ({busy} of {slots} slots: {_some(claiming)})"
        return f"{slots - busy} of {slots} slots of its workers are free ({_some(claiming)})"

    def able(self, target: str, task: Mapping[str, Any]) -> list[WorkerStatus]:
        """The live workers of a target that have what a task asks for, beside an executor."""
        live = [one for one in self.workers if one.live and target in one.targets]
        return [one for one in live if Offer(frozenset(one.labels), one.host).why_not(task) is None]

    def _missing(self, target: str, task: Mapping[str, Any], live: Sequence[WorkerStatus]) -> str:
        host = task.get("host")
        if host is not None and not any(one.host.lower() == str(host).lower() for one in live):
            return f"no registered worker serves the host {host}"
        wanted = labels_of(task)
        words = f"no registered worker of the target {target} has {labels_text(wanted)}" if wanted else ""
        others = [one for one in self.workers if one.live and one not in live and set(wanted) <= set(one.labels)]
        if words and others:
            words += f" (those of other targets that do: {_some(others)})"
        return words or f"no registered worker of the target {target} may take it"


def _some(workers: Iterable[WorkerStatus]) -> str:
    names = [one.name for one in workers]
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
