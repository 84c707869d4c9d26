"""Hold what a graph has cost against its budget, by the list of prices of its store."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskgraph.model.budget import Prices
from taskgraph.model.spent import Spent
from taskgraph.protocol.spending import Charge
from taskgraph.queries.prices import prices_in

if TYPE_CHECKING:
    from taskgraph.engine.transact import KeepAlive, Transactor

_KEPT_SECONDS: Final = 60.0


@dataclass(slots=True)
class Tariff:
    """The list of prices as one process knows it. It is only asked for where a graph has a budget."""

    prices: Prices | None = None
    until: float = 0.0
    """Monotonic seconds."""

    async def charge(self, transactor: "Transactor", graph_id: str, spent: Spent, keep_alive: "KeepAlive") -> None:
        """Hold what a graph has cost against its budget, if that is due by now. Raises StorageUnavailable."""
        now = transactor.clock.monotonic()
        if self.prices is None or now >= self.until:
            self.prices, self.until = await prices_in(transactor.records.tables), now + _KEPT_SECONDS
        amount = self.prices.amount(spent)
        if amount >= spent.watch:
            item = Charge(amount, self.prices.currency, self.prices.date)
            await transactor.transition(graph_id, [item], keep_alive=keep_alive)
