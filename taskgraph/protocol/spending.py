"""What a graph has cost, and its budget: totals grow with each event row, and a budget that is spent holds the graph.

The totals are running sums in the journal. Each event row has those of the row before, what the process that writes it
has counted since it wrote the last one, what workers report of theirs, and how long the runs took that its commit ends.
Two rows cannot have the same number, so nothing is added twice by commits that race.

A commit that takes a graph to its budget is followed by a `Charge`. It is made again after every later commit until the
graph row says that it was reached, so one that is lost with its process comes with the next one.
"""

import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from taskgraph.model.budget import CANCEL, NEAR, OVER, OVER_BUDGET, PAUSE, REACHED, budget_of, watch_of
from taskgraph.model.foreign_times import asked_after
from taskgraph.model.ids import GRAPH, value
from taskgraph.model.spent import Spent
from taskgraph.model.states import PAUSED, TaskState
from taskgraph.protocol.context import Context, Held, Item, Outcome, Rules, Verdict
from taskgraph.protocol.definitions import moment
from taskgraph.protocol.pause import Hold, hold
from taskgraph.protocol.propagation import GOING, fence
from taskgraph.protocol.rows import Draft, View
from taskgraph.protocol.runs import Claim, Completed, Failed

if TYPE_CHECKING:
    from taskgraph.protocol.decide import Answer

_RUNNING: Final = TaskState.RUNNING.value
_BY: Final = "budget"


@value
class Charge(Item):
    """A graph has cost so much, by prices of a date. Whether that is its budget, or near it, its row says."""

    amount: float
    currency: str
    prices: str


def charge(item: Charge, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    budget = budget_of(graph.value)
    reached = budget.reached(item.amount) if budget is not None else ""
    if budget is None or not reached or graph.text("state") not in GOING:
        return Outcome.STALE, ""
    if graph.text(REACHED) in (reached, OVER):
        if graph.value("settling"):
            context.effects.append(Held())
        return Outcome.REPEATED, ""
    graph.set(REACHED, reached)
    cost: dict[str, Any] = {
        "amount": round(item.amount, 6),
        "budget": budget.amount,
        "currency": item.currency,
        "prices": item.prices,
    }
    if reached == NEAR:
        context.event("graph-warned", **cost)
        return Outcome.APPLIED, ""
    context.event("graph-overspent", code=OVER_BUDGET, then=budget.on_exceeded, **cost)
    because = f"it has cost {item.amount:.4g} of {budget.amount:g} {item.currency}"
    if budget.on_exceeded == PAUSE:
        # Later than any request before, by whatever clock: the budget holds until it is raised.
        asked = asked_after(context.now, [graph.read_json("heldAsked", dict).get(PAUSED, "")])
        hold(Hold(PAUSED, True, asked, because, _BY), context)
        context.effects.append(Held())
    elif budget.on_exceeded == CANCEL:
        fence(graph, context, because, OVER_BUDGET, by=_BY)
    return Outcome.APPLIED, ""


def total(spent: Spent, answers: "Sequence[Answer]", view: View) -> Spent:
    """What a graph has cost with a commit. spent: without the runs that it ends, and what their workers report."""
    ran: dict[str, float] = {}  # by target
    counted: list[str] = []  # tasks of which the worker says how long the run took
    others = False
    for answer in answers:
        item = answer.item
        if type(item) is Completed or type(item) is Failed:
            if answer.outcome is not Outcome.APPLIED:
                continue
            if item.used is not None:
                spent = spent.and_used(item.used)
            if item.seconds is None:
                others = True
                continue
            counted.append(item.task_id)
            if item.seconds:
                target = view.drafts[f"task:{item.task_id}"].text("target")
                ran[target] = ran.get(target, 0.0) + item.seconds
        elif type(item) is not Claim:
            others = True
    if others:
        by_worker = {f"task:{task_id}" for task_id in counted}
        for key, draft in view.drafts.items():
            if key not in by_worker and key.startswith("task:") and _has_ended(draft):
                target = draft.text("target")
                ran[target] = ran.get(target, 0.0) + _by_row(draft)
    if ran:
        spent = spent.and_ran(ran)
    graph = view.drafts.get(GRAPH)
    if graph is not None and graph.changed:  # it is written, so this is what it says
        spent = spent._replace(watch=watch_of(graph.value))
    return spent


def _has_ended(task: Draft) -> bool:
    """Whether a run of it ends with this commit."""
    columns, changed = task.columns, task.changed
    if columns.get("state") != _RUNNING:
        return False
    return changed.get("state", _RUNNING) != _RUNNING or changed.get("run", columns.get("run")) != columns.get("run")


def _by_row(task: Draft) -> float:
    """How long a run took that ends with this commit, by the times of its row; none where it had no slot yet."""
    started = task.columns.get("started")
    if task.columns.get("ahead") is True or not isinstance(started, datetime):
        return 0.0
    ended = task.changed.get("ended", task.changed.get("pendingSince"))
    if task.changed.get("runs"):
        with contextlib.suppress(ValueError, AttributeError, IndexError):  # it says none: it ended by this commit
            ended = moment(str(task.read_json("runs", list)[-1].get("ended", "")))
    return max(0.0, (ended - started).total_seconds()) if isinstance(ended, datetime) else 0.0


RULES: Final[Rules] = {Charge: charge}
