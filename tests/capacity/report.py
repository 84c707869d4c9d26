"""Predictions for people and for machines. It computes nothing that `model` does not.

Every figure stands under what it is: counted, documented, assumed, or a value of the model.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, Final

from tests.bench.report import number, table
from tests.capacity.model import LINE, PATH, Demand, Latencies, Limits, Prediction, Prices, running_at

TASK_SECONDS: Final = (1.0, 60.0, 600.0)

_COLUMNS: Final = (
    "tables, queues, blobs: requests. rows: read and written. events, work: messages of a queue, each put, received "
    "and deleted. journal: commits that follow one another. submit: requests of the submission. 1 s, 60 s, 600 s: "
    "so many tasks of that length run at once when it begins."
)


def _rate(value: float) -> str:
    return "–" if math.isinf(value) else number(value, 1 if value < 100 else 0)


def demands_text(demands: Sequence[Demand]) -> str:
    rows = [
        [
            each.name,
            number(each.tasks, 0),
            number(each.table_requests, 2),
            number(each.queue_requests, 2),
            number(each.blob_requests, 2),
            number(each.entities, 2),
            *(number(each.messages.get(name, 0.0), 2) for name in ("events", "work")),
            number(each.facts, 3),
            number(each.submit_requests, 2),
        ]
        for each in demands
    ]
    headings = ["tables", "queues", "blobs", "rows", "events", "work", "journal", "submit"]
    return table(["per task, counted", "tasks", *headings], rows)


def carries_text(predictions: Sequence[Prediction], accounts: int) -> str:
    rows = []
    for each in predictions:
        # The journal's bound leaves out whatever a handler does besides.
        most = "≤ " if each.graph_binds == LINE else ""
        rows.append(
            [
                each.demand.name,
                most + _rate(each.graph),
                each.graph_binds,
                number(each.graphs, 0),
                _rate(each.account),
                each.account_binds,
                _rate(each.account_alone),
                "; ".join(f"{name} {count}" for name, count in each.queues.items() if count),
                _rate(each.all_accounts),
            ]
        )
    headings = ["one graph", "binds", "graphs to fill", "one account", "binds", "with queues", "queues for that"]
    return table(["tasks/s, model", *headings, f"{accounts:,} accounts"], rows)


def throttling_text(predictions: Sequence[Prediction]) -> str:
    rows = []
    for each in predictions:
        reached = each.graph >= each.throttled_graph
        rows.append(
            [
                each.demand.name,
                _rate(each.throttled_graph),
                *(number(running_at(each.throttled_graph, seconds), 0) for seconds in TASK_SECONDS),
                "yes" if reached else f"no ({each.graph_binds})",
                _rate(each.account),
                *(number(running_at(each.account, seconds), 0) for seconds in TASK_SECONDS),
                number(each.submit_seconds, 1),
            ]
        )
    lengths = [f"{seconds:g} s" for seconds in TASK_SECONDS]
    headings = ["graph from", *lengths, "alone reached", "account from", *lengths, "submit s ≥"]
    return table(["throttled, model", *headings], rows)


def money_text(predictions: Sequence[Prediction]) -> str:
    rows = [
        [
            each.demand.name,
            *(number(each.money.get(name), 2) for name in ("tables", "queues", "blobs", "stored", "total")),
        ]
        for each in predictions
    ]
    return table(["US$ per million tasks, model", "tables", "queues", "blobs", "stored", "total"], rows)


def text(
    predictions: Sequence[Prediction],
    limits: Limits,
    latencies: Latencies,
    prices: Prices,
    *,
    source: str,
    accounts: int,
    months: float,
) -> str:
    """All of it."""
    milliseconds = ", ".join(f"{each.name} {1000 * getattr(latencies, each.name):g}" for each in fields(latencies))
    unknown = [each.demand.name for each in predictions if PATH not in each.graph_bounds]
    parts = [
        f"Counted: {source}.",
        demands_text([each.demand for each in predictions]),
        carries_text(predictions, accounts),
        throttling_text(predictions),
        money_text(predictions),
        _COLUMNS,
        _documented(limits),
        f"Assumed, in milliseconds: {milliseconds}. Rows are kept for {months:g} months.",
        f"Prices of {prices.date}: {prices.source}.",
        "Nothing here was measured on Azure. Formulas and assumptions: docs/explanation/capacity.md.",
    ]
    if unknown:
        parts.insert(5, f"Without the bound of the longest path (no chain beside it): {', '.join(unknown)}.")
    return "\n\n".join(parts)


def _documented(limits: Limits) -> str:
    return (
        f"Documented (or as given): {limits.partition_entities:,.0f} rows/s a partition, "
        f"{limits.account_requests:,.0f} requests/s an account, {limits.queue_messages:,.0f} messages/s a queue."
    )


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    return None if isinstance(value, float) and math.isinf(value) else value


def results(
    predictions: Sequence[Prediction],
    limits: Limits,
    latencies: Latencies,
    prices: Prices,
    *,
    source: str,
    accounts: int,
    months: float,
) -> dict[str, Any]:
    """The same as plain values; null where there is no bound."""
    counted, modelled = {}, {}
    for each in predictions:
        told = asdict(each)
        counted[each.demand.name] = _finite(told.pop("demand"))
        modelled[each.demand.name] = _finite(told)
    return {
        "source": source,
        "counted": counted,
        "documented": asdict(limits),
        "assumed": {"latencies": asdict(latencies), "prices": asdict(prices), "accounts": accounts, "months": months},
        "model": modelled,
    }
