"""The budget of a graph, and the prices by which what it has used becomes an amount of money."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from taskgraph.model.spent import Spent

BUDGET: Final = "budget"
"""Column of a graph: an object with `amount`, `warnAt` and `onExceeded`, as its document has them."""
REACHED: Final = "budgetReached"
"""Column of a graph: NEAR or OVER, once it has cost so much."""
NEAR: Final = "near"
OVER: Final = "over"
OVER_BUDGET: Final = "over-budget"
"""Code of a pause, or of a cancellation: the budget of the graph is spent."""

WARN_AT: Final = 0.8
"""The part of the amount at which a warning is due, where a document does not say."""

PAUSE: Final = "pause"
CANCEL: Final = "cancel"
NOTIFY: Final = "notify"

PRICES: Final = "index:prices"
"""Partition of the list of prices of a store; its only row has the key LIST."""
LIST: Final = "list"


class Budget(NamedTuple):
    """amount: of the currency of the list of prices. on_exceeded: PAUSE, CANCEL or NOTIFY."""

    amount: float
    warn_at: float = WARN_AT
    on_exceeded: str = PAUSE

    @property
    def text(self) -> str:
        """JSON of it, as the column holds it."""
        whole = {"amount": self.amount, "warnAt": self.warn_at, "onExceeded": self.on_exceeded}
        return json.dumps(whole, separators=(",", ":"))

    def document(self) -> dict[str, Any]:
        """As a document has it; what has its default is left out."""
        made: dict[str, Any] = {"amount": self.amount}
        if self.warn_at != WARN_AT:
            made["warnAt"] = self.warn_at
        if self.on_exceeded != PAUSE:
            made["onExceeded"] = self.on_exceeded
        return made

    def reached(self, amount: float) -> str:
        """NEAR or OVER, "" for neither."""
        return OVER if amount >= self.amount else NEAR if amount >= self.amount * self.warn_at else ""


def budget_from(found: Mapping[str, Any]) -> Budget:
    """The budget of a document that agrees with the schema."""
    amount, warn_at = float(found["amount"]), float(found.get("warnAt", WARN_AT))
    return Budget(amount, warn_at, str(found.get("onExceeded", PAUSE)))


def budget_of(column: Callable[[str], object]) -> Budget | None:
    """The budget of the graph of which this gives the columns; None for none, or one that is damaged."""
    text = column(BUDGET)
    if not text or not isinstance(text, str):
        return None
    try:
        found = json.loads(text)
        amount, warn_at = float(found["amount"]), float(found.get("warnAt", WARN_AT))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    on_exceeded = found.get("onExceeded", PAUSE)
    known = on_exceeded in (PAUSE, CANCEL, NOTIFY) and 0 < amount < float("inf") and 0 < warn_at <= 1
    return Budget(amount, warn_at, on_exceeded) if known else None


def is_spent(column: Callable[[str], object]) -> bool:
    """Whether the graph of which this gives the columns is paused until it gets a larger budget."""
    budget = budget_of(column) if column(REACHED) == OVER else None
    return budget is not None and budget.on_exceeded == PAUSE


def watch_of(column: Callable[[str], object]) -> float:
    """The amount at which the budget of a graph is to be looked at next; 0 for none."""
    budget = budget_of(column)
    if budget is None:
        return 0.0
    reached = column(REACHED)
    return 0.0 if reached == OVER else budget.amount if reached == NEAR else budget.amount * budget.warn_at


class Prices(NamedTuple):
    """A list of prices. date: as of when, by who has written it. source: where they come from.

    tables, queues, files: of 10,000 requests. gigabyte_month: of storing. per_hour: target -> of one slot in use.
    """

    currency: str
    date: str
    tables: float
    queues: float
    files: float
    gigabyte_month: float
    per_hour: Mapping[str, float]
    source: str = ""

    def amounts(self, spent: "Spent") -> dict[str, float]:
        """What was used, as money, by what it was used for."""
        made = {
            "tables": spent.tables / _LOT * self.tables,
            "queues": spent.queues / _LOT * self.queues,
            "files": spent.files / _LOT * self.files,
        }
        made["runs"] = sum(taken / _HOUR * self.per_hour.get(target, 0.0) for target, taken in spent.seconds.items())
        return made

    def amount(self, spent: "Spent") -> float:
        return sum(self.amounts(spent).values())

    def document(self) -> dict[str, Any]:
        """As JSON: `schemas/prices.json`."""
        return {
            "currency": self.currency,
            "date": self.date,
            "source": self.source,
            "per10000": {"tables": self.tables, "queues": self.queues, "files": self.files},
            "gigabyteMonth": self.gigabyte_month,
            "perHour": dict(self.per_hour),
        }


_LOT: Final = 10_000
_HOUR: Final = 3600.0

DEFAULT_PRICES: Final = Prices(
    currency="USD",
    date="2026-11-26",
    tables=0.00036,
    queues=0.004,
    files=0.055,
    gigabyte_month=0.045,
    per_hour={},
    source="rounded, not looked up: about what Azure asks for locally redundant storage; set your own",
)
"""What holds until a store has a list of its own."""


def prices_from(found: Mapping[str, Any]) -> Prices:
    """The list of a document that agrees with `schemas/prices.json`."""
    each = found.get("per10000", {})
    return Prices(
        currency=found["currency"],
        date=found["date"],
        tables=float(each.get("tables", 0)),
        queues=float(each.get("queues", 0)),
        files=float(each.get("files", 0)),
        gigabyte_month=float(found.get("gigabyteMonth", 0)),
        per_hour={str(target): float(price) for target, price in found.get("perHour", {}).items()},
        source=found.get("source", ""),
    )
