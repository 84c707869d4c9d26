"""What a graph has cost: the totals of its journal, at the prices of its store."""

from collections.abc import Mapping, Sequence
from typing import Any

from taskgraph.model.budget import REACHED, Budget, Prices, budget_of
from taskgraph.model.columns import object_of, texts
from taskgraph.model.errors import NoGraph
from taskgraph.model.ids import GRAPH, value
from taskgraph.model.spent import Spent, spent_in
from taskgraph.queries.journal import find_end
from taskgraph.queries.lookup import check_graph_id
from taskgraph.queries.prices import prices_row
from taskgraph.storage.tables import Tables

_GIGABYTE = 1e9


@value
class Cost:
    """spent: None where the graph is of before version 0.4, and nothing was counted.

    prices_etag: of the row with the prices, "" for those that the program brings along.
    """

    graph_id: str
    name: str
    state: str
    held: Sequence[str]
    spent: Spent | None
    budget: Budget | None
    reached: str
    prices: Prices
    prices_etag: str

    @property
    def amounts(self) -> Mapping[str, float]:
        return self.prices.amounts(self.spent or Spent())

    @property
    def amount(self) -> float:
        return self.prices.amount(self.spent or Spent())

    @property
    def stored_per_month(self) -> float:
        """What it costs to keep what was added, a month."""
        return (self.spent or Spent()).bytes / _GIGABYTE * self.prices.gigabyte_month


async def cost_of(tables: Tables, graph_id: str) -> Cost:
    """Raises NotFound, StorageUnavailable."""
    prices, row = await prices_row(tables)
    return await cost_at(tables, graph_id, prices, row.etag if row is not None else "")


async def cost_at(tables: Tables, graph_id: str, prices: Prices, etag: str) -> Cost:
    """At these prices. Raises NotFound, InvalidInput for no possible id, StorageUnavailable."""
    check_graph_id(graph_id)
    (graph,) = await tables.get(graph_id, [GRAPH])
    if graph is None:
        raise NoGraph(graph_id)
    *_, text = await find_end(tables, graph_id, 1, 0, 0)
    get: Any = graph.columns.get
    name, held = str(object_of(graph.columns, "metadata").get("name", "")), texts(graph.columns, "held")
    own = graph_id, name, str(get("state")), held
    return Cost(*own, spent_in(text), budget_of(get), str(get(REACHED) or ""), prices, etag)
