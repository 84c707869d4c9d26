"""A forecast as JSON: `rehearsal` of schemas/answers.json."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from taskgraph.rehearsal.forecast import ROWS_PER_SECOND_MAX, Forecast

_NAMES: Final = ("p10", "p50", "p90")
_OPERATIONS: Final = ("reads", "pages", "commits", "sends", "receives", "deletes")
_SOURCES: Final = ("history", "document", "assumed")


def to_json(found: Forecast, *, runs: int = 0) -> dict[str, Any]:
    """runs: with so many runs of the rehearsal in the middle, those that begin first."""
    return {
        "graphId": found.graph_id or None,
        "now": _time(found.now),
        "taskCount": found.tasks,
        "slots": [{"targets": list(bench.targets), "slots": bench.slots} for bench in found.benches],
        "seeds": found.seeds,
        "seconds": dict(zip(_NAMES, _rounded(found.seconds), strict=True)),
        "finish": dict(zip(_NAMES, map(_time, found.finishes), strict=True)),
        "ends": dict(found.ends),
        "finishing": found.finishing,
        "sources": {name: found.sources.get(name, 0) for name in _SOURCES},
        "history": list(found.past),
        "corrections": _rounded(found.corrections),
        "criticalPath": [
            {
                "label": each.step.label,
                "taskId": each.step.task_id,
                "seconds": round(each.step.seconds, 3),
                "ranSeconds": round(each.step.ran_seconds, 3),
                "waitedSeconds": round(each.step.waited_seconds, 3),
                "slackSeconds": round(each.slack, 3),
            }
            for each in found.path
        ],
        "waits": [
            {
                "kind": each.wait.kind,
                "name": each.wait.name,
                "max": each.wait.most,
                "taskSeconds": round(each.wait.seconds, 3),
                "tasks": each.wait.tasks,
                "oneMoreSeconds": None if each.seconds is None else round(each.seconds, 3),
            }
            for each in found.waits
        ],
        "stays": dict(found.stays),
        "leftOut": list(found.left_out),
        "pausedTargets": list(found.paused),
        "operations": {name: found.operations.get(name, 0) for name in _OPERATIONS},
        "rowsPerSecond": {"most": found.rows_per_second, "of": ROWS_PER_SECOND_MAX},
        "cost": _cost(found),
        "deadlines": [
            {"label": each.label or None, "deadline": _time(each.deadline), "share": each.share}
            for each in found.deadlines
        ],
        "runs": [
            {
                "label": span.label,
                "taskId": span.task_id,
                "run": span.run,
                "outcome": span.outcome,
                "ready": _time(span.ready) if span.ready is not None else None,
                "started": _time(span.started),
                "ended": _time(span.ended) if span.ended is not None else None,
            }
            for span in found.runs[:runs]
        ],
        "runsLeftOut": max(0, len(found.runs) - runs) if runs else 0,
    }


def _cost(found: Forecast) -> dict[str, Any]:
    prices, budget = found.cost.pricing.prices, found.cost.pricing.budget
    return {
        "amount": dict(zip(_NAMES, found.cost.amounts, strict=True)),
        "currency": prices.currency,
        "pricesOf": prices.date,
        "budget": budget.amount if budget is not None else None,
        "overBudget": found.cost.over,
    }


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(each, 3) for each in values]


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
