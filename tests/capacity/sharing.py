"""Whether handlers add up: many graphs on an account with Azure's published limits, by one, two and four of them.

What this room is for: the layouts that are played, and what is printed. In virtual time, with a processor for each
process of handlers (`processors`): without one a single handler would be fast enough for everything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.report import number, table
from tests.bench.shapes import shape
from tests.capacity.playing import Played, Playing

HANDLERS: Final = (1, 2, 4)
ROW_SECONDS: Final = 1e-4
"""For each row and message: a handler of the shape below takes 0.47 ms for a task then, and 0.75 ms were measured
against the emulator on two busy cores. The less it is, the sooner the account's limits bind instead."""

GRAPHS: Final = 100
SHAPE: Final = "layers-10x10"
WORKERS: Final = 8
SLOTS: Final = 16
LEAST_RATIO: Final = 3.0
"""So many times as fast as one are four handlers at least."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A layout. together: workers in the processes of handlers, and no others; else eight, each with a target of its
    own, as one work queue would bind. queues: of events."""

    together: bool
    queues: int

    def __str__(self) -> str:
        where = "with workers in them" if self.together else f"{WORKERS} workers, {WORKERS} targets"
        return f"{where}, {self.queues} {'queues' if self.queues > 1 else 'queue'}"

    def play(self, handlers: int, seed: int = 1) -> tuple[Played, list[float]]:
        """One run, and for how long each handler's processor worked."""
        playing = Playing(
            seed,
            shape(SHAPE).make(),
            graphs=GRAPHS,
            place="local" if self.together else f"{handlers}h{WORKERS}w",
            alone=handlers,
            slots=SLOTS,
            targets=1 if self.together else WORKERS,
            queues=self.queues,
            row_seconds=ROW_SECONDS,
        )
        return playing.play(), [each.used for each in playing.processors]


LAYOUTS: Final = (Shared(False, 8), Shared(True, 8), Shared(False, 1), Shared(True, 1))


def rate_of(played: Played) -> float:
    """Tasks a second, until most are done: the last ones wait for somebody who looks seldom."""
    return played.bulk.tasks / played.bulk.seconds


def text(layouts: Sequence[Shared] = LAYOUTS) -> str:
    """Everything as a table."""
    rows = []
    for each in layouts:
        one = 0.0
        for handlers in HANDLERS:
            played, used = each.play(handlers)
            rate = rate_of(played)
            one = one or rate
            rows.append(
                [
                    str(each),
                    str(handlers),
                    number(rate, 0),
                    number(rate / one, 2),
                    number(played.seconds, 2),
                    number(played.whole.requests, 2),
                    ", ".join(number(seconds, 2) for seconds in sorted(used, reverse=True)),
                ]
            )
    head = ["handlers", "processes", "tasks/s", "ratio", "to the end s", "requests/task", "processor s of each"]
    return table(head, rows)
