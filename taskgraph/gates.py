"""Gates: targets that are paused for all graphs of a store.

What this room is for: one row for each target that is paused, which workers look at before they claim. It costs a
worker one read every few seconds while it has work, and nothing while it has none. A gate is looked at and not part of
a claim's commit, so a claim that was under way when it was closed may still be made; a graph that must stand still to
the last claim is paused by itself (`holding`). It never moves a task and never sends anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from taskgraph import limits
from taskgraph.clock import Clock
from taskgraph.errors import Conflict, Unclear
from taskgraph.storage.tables import Delete, Insert, Range, Row, Tables, query_all

GATES: Final = "index:gates"
"""Partition of paused targets; `:` is in no graph id."""

_PREFIX: Final = "target:"
_SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Gate:
    """A target that is paused."""

    target: str
    since: datetime | None
    reason: str


async def closed(tables: Tables) -> dict[str, Gate]:
    """The targets that are paused, by name."""
    return closed_in(await query_all(tables, GATES, Range(_PREFIX, "target;")))


def closed_in(rows: Iterable[Row]) -> dict[str, Gate]:
    """The same, out of the rows of the partition."""
    found: dict[str, Gate] = {}
    for row in rows:
        if not row.key.startswith(_PREFIX):
            continue
        since = row.columns.get("since")
        target = row.key.removeprefix(_PREFIX)
        reason = str(row.columns.get("reason", ""))
        found[target] = Gate(target, since if isinstance(since, datetime) else None, reason)
    return found


async def close(tables: Tables, target: str, now: datetime, reason: str = "") -> bool:
    """Pause a target; whether it was not paused before. Repeatable."""
    try:
        await tables.commit(GATES, [Insert(_PREFIX + target, {"schema": _SCHEMA, "since": now, "reason": reason})])
    except Conflict:
        return False
    except Unclear:
        (row,) = await tables.get(GATES, [_PREFIX + target])
        if row is None:
            raise
    return True


async def reopen(tables: Tables, target: str) -> bool:
    """Let a target go on; whether it was paused. Repeatable."""
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        (row,) = await tables.get(GATES, [_PREFIX + target])
        if row is None:
            return False
        try:
            await tables.commit(GATES, [Delete(row.key, row.etag)])
        except (Conflict, Unclear):
            continue  # what is there now tells
        return True
    raise Conflict(f"target {target}: others kept writing its gate")


class Gates:
    """What a worker knows of the gates."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock
        self._looked: float | None = None  # when that was tried last
        self._seen: float | None = None
        self.closed: Mapping[str, Gate] = {}
        self.rows: Sequence[Row] = ()
        """All that was read: what lies beside the gates too (`permits`)."""

    @property
    def known(self) -> bool:
        """Whether what is known is recent enough to claim by."""
        return self._looked is not None and self._clock.monotonic() - self._looked < limits.GATE_SECONDS

    @property
    def read(self) -> bool:
        """Whether they could be read at all so far."""
        return self._seen is not None

    @property
    def recent(self) -> bool:
        """Whether what is known was read a short time ago: who has work in hand looks that often."""
        return self._seen is not None and self._clock.monotonic() - self._seen < 2 * limits.GATE_SECONDS

    async def look(self) -> None:
        """Read the gates, unless that was tried just now. Raises StorageError: what is known stays as it is."""
        if not self.known:
            self._looked = self._clock.monotonic()  # at once: a store in trouble is not asked all the more
            self.rows = await query_all(self._tables, GATES, Range())
            self.closed = closed_in(self.rows)
            self._seen = self._looked
