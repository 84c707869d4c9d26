"""Limited tasks of one graph that stand ready, as far as a process knows: which of them begin when there is room.

All of it are hints: a claim is decided by the rows, and the next look at the rows corrects what is missing or wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from taskgraph.model.ids import value
from taskgraph.protocol.concurrency import Limit

WAITING_MAX: Final = 5_000
"""Tasks that are remembered; the rest is looked for when these have been sent."""

SENT_SECONDS: Final = 5.0
"""For so long a task that was sent counts as in flight, though it has not been claimed."""

WHOLE_SECONDS: Final = 10.0
"""For so long a look at the rows is good while no other process handles the graph."""

_FIRST: Final = datetime.min.replace(tzinfo=UTC)


@value
class Waiting:
    """One run that stands ready. scopes: of its limits; rank: lower ones go first."""

    target: str
    scopes: tuple[str, ...]
    since: datetime | None
    rank: int = 0


@dataclass(slots=True)
class Backlog:
    """The limited tasks of one graph.

    sent: (taskId, run) -> when, and its scopes. whole_until: until then (monotonic) no task that stands ready is
    missing.
    """

    waiting: dict[tuple[str, int], Waiting] = field(default_factory=dict)
    sent: dict[tuple[str, int], tuple[float, tuple[str, ...]]] = field(default_factory=dict)
    whole_until: float = 0.0

    def add(self, task_id: str, run: int, waiting: Waiting) -> None:
        """The run stands ready, and was not sent, or could not begin where it was."""
        self.sent.pop((task_id, run), None)
        if len(self.waiting) < WAITING_MAX:
            self.waiting[task_id, run] = waiting
        else:
            self.whole_until = 0.0

    def was_sent(self, task_id: str, run: int, now: float) -> bool:
        at, _ = self.sent.get((task_id, run), (-SENT_SECONDS, ()))
        return now - at < SENT_SECONDS

    def forget(self, task_id: str, run: int) -> None:
        self.waiting.pop((task_id, run), None)
        self.sent.pop((task_id, run), None)

    @property
    def scopes(self) -> frozenset[str]:
        """Of all limits that a task waits under."""
        return frozenset(scope for waiting in self.waiting.values() for scope in waiting.scopes)

    def pick(self, limits: Mapping[str, Limit], now: float) -> list[tuple[str, int, str]]:
        """Take out those for which there is room, by rank and by how long they have waited: (task, run, target)."""
        inside = {member for limit in limits.values() for member in limit.inside}
        room = {scope: limit.most - len(limit.inside) for scope, limit in limits.items()}
        for key, (at, scopes) in list(self.sent.items()):
            if now - at >= SENT_SECONDS or f"{key[0]}:{key[1]}" in inside:
                del self.sent[key]
                continue
            for scope in scopes:
                room[scope] = room.get(scope, 0) - 1
        picked: list[tuple[str, int, str]] = []
        if not any(left > 0 for left in room.values()):
            return picked
        for key, one in sorted(self.waiting.items(), key=lambda entry: (entry[1].rank, entry[1].since or _FIRST)):
            if f"{key[0]}:{key[1]}" in inside:
                del self.waiting[key]
            elif all(room.get(scope, 0) > 0 for scope in one.scopes):
                for scope in one.scopes:
                    room[scope] -= 1
                del self.waiting[key]
                self.sent[key] = (now, one.scopes)
                picked.append((*key, one.target))
        return picked
