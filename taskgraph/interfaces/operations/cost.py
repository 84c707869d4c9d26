"""What graphs have cost, and the list of prices that says so."""

from collections.abc import Mapping, Sequence
from typing import Any

from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations.checks import asked_by, check_schema
from taskgraph.model.budget import Prices, prices_from
from taskgraph.queries.costs import Cost, cost_at, cost_of
from taskgraph.queries.prices import forget_prices, prices_row, write_prices

Json = dict[str, Any]


async def of_graph(app: App, graph_id: str) -> Cost:
    """Raises NotFound, StorageUnavailable."""
    return await cost_of(app.tables, graph_id)


async def of_latest(app: App, limit: int) -> list[Cost]:
    """Of the graphs that were submitted last, the newest first."""
    prices, row = await prices_row(app.tables)
    etag = row.etag if row is not None else ""
    found = await app.queries.graphs(limit=limit)
    return [await cost_at(app.tables, each.graph_id, prices, etag) for each in found]


async def prices(app: App) -> tuple[Prices, str, Mapping[str, Any]]:
    """The prices that hold, the etag of their row ("" for those that the program brings along), and its columns."""
    found, row = await prices_row(app.tables)
    return (found, row.etag, row.columns) if row is not None else (found, "", {})


async def set_prices(app: App, document: Any, source: str) -> Prices:
    """Have these prices hold from now on. Raises InvalidGraph for what is no list of prices."""
    app.check_direct("changing prices")
    check_schema("prices", "prices", document, source)
    made = prices_from(document)
    await write_prices(app.tables, made.document(), app.clock.now(), asked_by())
    return made


async def reset_prices(app: App) -> bool:
    """Go back to the prices that the program brings along; whether there were others."""
    app.check_direct("changing prices")
    return await forget_prices(app.tables)


# --- as JSON


def answer(cost: Cost) -> Json:
    """What a graph has cost."""
    spent, budget = cost.spent, cost.budget
    return {
        "graphId": cost.graph_id,
        "name": cost.name,
        "state": cost.state,
        "counted": spent is not None,
        "amount": cost.amount,
        "currency": cost.prices.currency,
        "amounts": dict(cost.amounts),
        "requests": {name: getattr(spent, name, 0) for name in ("tables", "queues", "files")},
        "bytes": spent.bytes if spent is not None else 0,
        "runSeconds": dict(spent.seconds) if spent is not None else {},
        "storedPerMonth": cost.stored_per_month,
        "budget": None
        if budget is None
        else {
            "amount": budget.amount,
            "warnAt": budget.warn_at,
            "onExceeded": budget.on_exceeded,
            "reached": cost.reached or None,
        },
        "prices": prices_answer(cost.prices, cost.prices_etag),
    }


def prices_answer(found: Prices, etag: str) -> Json:
    """A list of prices."""
    return {**found.document(), "etag": etag or None}


def list_answer(found: Sequence[Cost]) -> Json:
    """What several graphs have cost."""
    return {"graphs": [answer(each) for each in found]}
