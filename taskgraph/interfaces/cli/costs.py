"""The commands `cost` and `prices`: what graphs have cost, and by which prices."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from taskgraph.interfaces.cli import options
from taskgraph.interfaces.cli.common import Session, command, read_source
from taskgraph.interfaces.cli.output import Column, safe
from taskgraph.model.errors import InvalidInput
from taskgraph.model.states import state_in_words

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.model.budget import Prices
    from taskgraph.queries.costs import Cost

_BYTES = 1e6


@command("taskgraph cost nightly-2026-08-01", "taskgraph cost --limit 50 --json")
def cost(
    session: Session,
    graph_id: options.OptionalGraphArgument = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Without ID: so many of the latest.")] = 20,
) -> None:
    """Show what a graph has cost and how that compares with its budget, or what the latest graphs have cost.

    Counted are requests of its submission, handlers and workers, and the seconds of its runs. Looking costs, too, and
    is not counted; neither are idle workers, which are no graph's.
    """
    if graph_id is None:
        _show_latest(session, limit)
        return

    async def of_graph(app: "App", graph_id: str) -> "Cost":
        from taskgraph.interfaces.operations import cost

        return await cost.of_graph(app, graph_id)

    _, found = session.open_graph(graph_id, of_graph)
    output = session.output
    if output.json:
        from taskgraph.interfaces.operations.cost import answer

        output.document(answer(found))
        return
    if found.spent is None:
        output.say(f"graph {found.graph_id} was written by an earlier version: nothing was counted")
        return
    lines = [(what, amount, _how_much(found, what)) for what, amount in found.amounts.items()]
    columns = (
        Column("FOR", lambda line: line[0]),
        Column(found.prices.currency, lambda line: _money(line[1]), number=True),
        Column("USED", lambda line: line[2], flexible=True),
    )
    output.table(lines, columns)
    output.data(f"in all {_money(found.amount)} {found.prices.currency}{_of_budget(found)}")
    output.say(_by_prices(found.prices, stored=found.prices_etag != ""))


def _show_latest(session: Session, limit: int) -> None:
    async def latest(app: "App") -> "list[Cost]":
        from taskgraph.interfaces.operations import cost

        return await cost.of_latest(app, limit)

    found = session.open(latest)
    output = session.output
    if output.json:
        from taskgraph.interfaces.operations.cost import list_answer

        output.document(list_answer(found))
    elif found:
        prices = found[0].prices
        columns = (
            Column("GRAPH", lambda each: each.graph_id),
            Column("NAME", lambda each: safe(each.name), flexible=True),
            Column("STATE", lambda each: state_in_words(each.state, each.held), state=True),
            Column(prices.currency, lambda each: _money(each.amount) if each.spent is not None else "", number=True),
            Column("BUDGET", lambda each: f"{each.budget.amount:g}" if each.budget is not None else "", number=True),
        )
        output.table(found, columns)
        output.say(_by_prices(prices, stored=found[0].prices_etag != ""))
    else:
        output.say("there are no graphs")


@command("taskgraph prices", "taskgraph prices --json > prices.json", "taskgraph prices --set prices.json")
def prices(
    session: Session,
    new: Annotated[
        str | None, typer.Option("--set", metavar="FILE", help="Have these hold from now on; - reads standard input.")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Go back to those that the program brings along.")] = False,
) -> None:
    """Show the prices by which graphs are charged, or set them: see schemas/prices.json.

    Amounts are made of what was counted as they are shown: new prices hold for what was used before, too.
    """
    if new is not None and reset:
        raise InvalidInput("either --set or --reset")
    document: Any = None
    source = ""
    if new is not None:
        from taskgraph.documents.read import read_json

        data, source, _ = read_source(new)
        document = read_json(data, source=source)
        if isinstance(document, dict):
            document.pop("etag", None)  # as `taskgraph prices --json` prints it

    async def at_work(app: "App") -> "tuple[Prices, str]":
        from taskgraph.interfaces.operations import cost

        if document is not None:
            await cost.set_prices(app, document, source)
        elif reset:
            await cost.reset_prices(app)
        found, etag, _ = await cost.prices(app)
        return found, etag

    found, etag = session.open(at_work)
    output = session.output
    if output.json:
        from taskgraph.interfaces.operations.cost import prices_answer

        output.document(prices_answer(found, etag))
        return
    lines = [
        ("10,000 requests to tables", found.tables),
        ("10,000 requests to queues", found.queues),
        ("10,000 requests for files", found.files),
        ("a gigabyte for a month", found.gigabyte_month),
        *((f"an hour of a run of target {safe(target)}", price) for target, price in sorted(found.per_hour.items())),
    ]
    output.table(
        lines, (Column("FOR", lambda line: line[0]), Column(found.currency, lambda line: f"{line[1]:g}", number=True))
    )
    output.say(_by_prices(found, stored=etag != ""))


def _how_much(cost: "Cost", what: str) -> str:
    spent = cost.spent
    if spent is None:
        return ""
    if what == "runs":
        return ", ".join(f"{safe(target)} {taken:,.1f} s" for target, taken in spent.seconds.items()) or "0 s"
    requests = f"{getattr(spent, what):,} requests"
    return f"{requests}; {spent.bytes / _BYTES:,.2f} MB added" if what == "tables" else requests


def _money(amount: float) -> str:
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.6f}"


def _of_budget(cost: "Cost") -> str:
    if cost.budget is None:
        return ""
    return f" of a budget of {cost.budget.amount:g} ({cost.amount / cost.budget.amount:.0%})"


def _by_prices(prices: "Prices", *, stored: bool) -> str:
    whose = "the prices of this store" if stored else "the prices that taskgraph brings along"
    return f"by {whose}, of {prices.date}" + (f": {safe(prices.source)}" if prices.source else "")
