"""What a graph has used: requests to its store, bytes, and the seconds that its runs took; totals in its journal."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

OTHER: Final = "other"
"""Stands for all targets beyond the first TARGETS_MAX."""

TARGETS_MAX: Final = 10


made: Final = tuple.__new__
"""Makes one of these of all of its values, in half of the time: there are two for each commit."""


class Used(NamedTuple):
    """Requests as a storage account bills them, by service, and bytes that were added.

    tables: a read of one row, a page, or a commit, whatever becomes of it. queues: a receipt, with the sending and the
    deletion of what it brings, and a renewal. files: a request for logs and results. bytes: of texts in new rows, of
    logs and of results.
    """

    tables: int = 0
    queues: int = 0
    files: int = 0
    bytes: int = 0


NOTHING: Final = Used()


class Spent(NamedTuple):
    """Totals of a graph, as its last event row has them in the column `spent`.

    seconds: target -> how long its runs took, all together. watch: the amount of money at which its budget is to be
    looked at next, 0 for none.
    """

    tables: int = 0
    queues: int = 0
    files: int = 0
    bytes: int = 0
    seconds: Mapping[str, float] = {}  # never changed
    watch: float = 0.0

    def and_used(self, used: Used) -> "Spent":
        tables, queues, files, size, seconds, watch = self
        return made(Spent, (tables + used[0], queues + used[1], files + used[2], size + used[3], seconds, watch))

    def and_ran(self, seconds: Mapping[str, float]) -> "Spent":
        """With runs that have taken so long, by target."""
        tables, queues, files, size, before, watch = self
        total = dict(before)
        for target, more in seconds.items():
            name = target if target in total or len(total) < TARGETS_MAX else OTHER
            total[name] = total.get(name, 0.0) + more
        return Spent(tables, queues, files, size, total, watch)

    @property
    def text(self) -> str:
        """JSON of it, as the column holds it."""
        tables, queues, files, size, seconds, watch = self
        of_runs = ",".join([f"{_quoted(name)}:{taken:.3f}" for name, taken in seconds.items()]) if seconds else ""
        rest = f',"watch":{watch!r}' if watch else ""
        return f'{{"tables":{tables},"queues":{queues},"files":{files},"bytes":{size},"seconds":{{{of_runs}}}{rest}}}'


def _quoted(target: str) -> str:
    return f'"{target}"' if target.isidentifier() and target.isascii() else json.dumps(target)


def spent_in(text: object) -> Spent | None:
    """What a column says; None where it says nothing, or is damaged: `doctor` names the damage."""
    if not text or not isinstance(text, str):
        return None
    try:
        found = json.loads(text)
        seconds = {str(name): _amount(taken) for name, taken in found.get("seconds", {}).items()}
        return Spent(*used_in(found), seconds, _amount(found.get("watch", 0)))
    except (ValueError, AttributeError):
        return None


def used_in(found: object) -> Used:
    """What an object of JSON says. Raises ValueError."""
    if not isinstance(found, dict):
        raise ValueError("no object")
    return Used(*[_count(found.get(name, 0)) for name in Used._fields])


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("no count")
    return value


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError("no amount")
    return float(value)
