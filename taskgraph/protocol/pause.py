"""Holding back: how a graph, a group or a task is paused and goes on again.

A task whose row names a holder in `held` is neither sent nor claimed; what runs already runs to its end. A graph is
paused in three steps. *Fence*: the graph row names what is to be held, under a number that grows with every request.
*Settle*: every task that is not resolved takes over what concerns it, and the number. *Publish*: `graph-paused`, once
no task lacks the number. Resuming is the same with less to hold, and what stands ready is sent.

Why a scan that is no snapshot is enough to publish. A row that has the number of the fence keeps it, or takes a higher
one, and only the settling of a later request removes a holder. New rows come with an extension only: none is accepted
while the graph is held, and one under way is waited for. A task that is rerun by hand takes along what the graph holds,
in the commit that reads and writes the graph row.
"""

from typing import Final

from taskgraph.model.budget import BUDGET, OVER_BUDGET, REACHED, Budget, budget_of, is_spent
from taskgraph.model.foreign_times import asked_after
from taskgraph.model.ids import GRAPH, row_key, value
from taskgraph.model.json_strict import compact_json
from taskgraph.model.messages import HoldBack
from taskgraph.model.states import INACTIVE, PAUSED, TASK_UNRESOLVED, TaskState, held_group
from taskgraph.protocol.context import Context, Item, Outcome, Rules, Verdict
from taskgraph.protocol.propagation import GOING, dispatch
from taskgraph.protocol.rows import Draft

_LATER: Final = "something else has been requested since"


@value
class Hold(Item):
    """Pause a graph or a group of it, or let it go on. holder: PAUSED or `by_group`.

    asked: RFC 3339 in UTC, so that of two requests the later one counts, in whatever order they arrive; "" for now.
    by: who asks. budget: what the graph may cost from now on, 0 to leave it as it is.
    """

    holder: str
    on: bool
    asked: str = ""
    reason: str = ""
    by: str = ""
    budget: float = 0.0


@value
class Settle(Item):
    """A task takes over the holders of its graph that concern it. number: of the fence."""

    task_id: str
    holders: tuple[str, ...]
    number: int


@value
class PublishHolds(Item):
    """Every task has been looked at after the fence of this number, and none lacks it."""

    number: int


@value
class HoldTask(Item):
    """Make a task inactive, or active again. asked, by: see Hold."""

    task_id: str
    on: bool
    asked: str = ""
    reason: str = ""
    by: str = ""


def _requests(row: Draft) -> dict[str, str]:
    """Holder -> the time of its latest request."""
    return row.read_json("heldAsked", dict)


def _answer(row: Draft, holder: str, item: Hold | HoldTask, context: Context, already: str) -> Verdict | None:
    """The answer to a request that is late, or asks for what is so already; None for one that is to change the row.

    Its time is written all the same: an older request for the opposite may still be on its way.
    """
    asked, requests = item.asked or context.now.isoformat(), _requests(row)
    known = requests.get(holder, "")
    if asked < known:
        return Outcome.STALE, _LATER
    if asked != known:
        row.set("heldAsked", compact_json({**requests, holder: asked}))
    if item.on != (holder in row.ids("held")):
        return None
    return Outcome.REPEATED if asked == known else Outcome.APPLIED, already


def set_budget(graph: Draft, amount: float, by: str, context: Context) -> None:
    """Give a graph another budget, or one at all; what it has cost is held against that from now on."""
    before = budget_of(graph.value)
    if before is not None and before.amount == amount:
        return  # asked for again
    budget = Budget(amount) if before is None else before._replace(amount=amount)
    graph.set(BUDGET, budget.text)
    graph.set(REACHED, "")
    context.event("graph-budgeted", amount=amount, was=before.amount if before is not None else None, by=by or None)


def hold(item: Hold, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    state = graph.text("state")
    if state not in GOING:
        return Outcome.REFUSED, f"the graph is {state}"
    if item.budget and (item.asked or context.now.isoformat()) >= _requests(graph).get(item.holder, ""):
        set_budget(graph, item.budget, item.by, context)
    if not item.on and item.holder == PAUSED and is_spent(graph.value):
        return Outcome.REFUSED, "its budget is spent: resume it with a larger one"
    already = "it is paused already" if item.on else "it is not paused"
    if answer := _answer(graph, item.holder, item, context, already):
        return answer
    held = graph.ids("held")
    graph.set_ids("held", [*held, item.holder] if item.on else [each for each in held if each != item.holder])
    graph.set("holds", graph.integer("holds") + 1)
    graph.set("settling", True)
    pausing = [each for each in graph.ids("pausing") if each != item.holder]
    if item.on:
        graph.set_ids("pausing", [*pausing, item.holder])
        graph.set("pausedReason", item.reason)
        graph.set("pausedBy", item.by)
    else:
        graph.set_ids("pausing", pausing)
        group = held_group(item.holder) or None
        context.event("graph-resumed", group=group, reason=item.reason or None, by=item.by or None)
    return Outcome.APPLIED, ""


def settle(item: Settle, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    if graph.integer("holds") != item.number:
        return Outcome.STALE, ""
    task = context.view.get(row_key(item.task_id))
    if task.integer("holds") >= item.number:
        return Outcome.REPEATED, ""
    if task.text("state") not in TASK_UNRESOLVED:
        return Outcome.STALE, ""
    task.set("holds", item.number)
    before = task.ids("held")
    after = [*(each for each in before if each == INACTIVE), *item.holders]
    if before != after:
        task.set_ids("held", after)
    _let_go(task, before, context)
    return Outcome.APPLIED, ""


def _let_go(task: Draft, before: list[str], context: Context) -> None:
    if before and not task.ids("held") and task.text("state") == TaskState.PENDING:
        task.set("pendingSince", context.now)
        dispatch(task, context)


def publish_holds(item: PublishHolds, context: Context) -> Verdict:
    """Announce what is paused: from here on nothing of it begins."""
    graph = context.view.get(GRAPH)
    if graph.integer("holds") != item.number or graph.text("extending"):
        return Outcome.STALE, ""
    if graph.value("settling") is not True:
        return Outcome.REPEATED, ""
    graph.set("settling", False)
    reason, by = graph.text("pausedReason") or None, graph.text("pausedBy") or None
    for holder in graph.ids("pausing"):
        code = OVER_BUDGET if holder == PAUSED and is_spent(graph.value) else None
        context.event("graph-paused", group=held_group(holder) or None, reason=reason, by=by, code=code)
    graph.set_ids("pausing", [])
    return Outcome.APPLIED, ""


def hold_task(item: HoldTask, context: Context) -> Verdict:
    task = context.view.get(row_key(item.task_id))
    state = task.text("state")
    if state not in TASK_UNRESOLVED:
        return Outcome.STALE, f"the task is {state}"
    already = "it is inactive already" if item.on else "it is active"
    if answer := _answer(task, INACTIVE, item, context, already):
        if answer[0] is not Outcome.STALE:
            dispatch(task, context)  # the process that made it active may have died before it was sent
        return answer
    before = task.ids("held")
    task.set_ids("held", [INACTIVE, *before] if item.on else [each for each in before if each != INACTIVE])
    context.event("task-held" if item.on else "task-released", task, reason=item.reason or None, by=item.by or None)
    _let_go(task, before, context)
    return Outcome.APPLIED, ""


def set_active(task: Draft, on: bool, context: Context) -> None:
    before, requests = task.ids("held"), _requests(task)
    # Later than any request before, by whatever clock: that may arrive once more.
    asked = asked_after(context.now, [requests.get(INACTIVE, "")])
    task.set("heldAsked", compact_json({**requests, INACTIVE: asked}))
    if on == (INACTIVE in before):
        task.set_ids("held", [each for each in before if each != INACTIVE] if on else [INACTIVE, *before])
        if on and len(before) == 1 and task.text("state") == TaskState.PENDING:
            task.set("pendingSince", context.now)


def take_along(task: Draft, graph: Draft) -> None:
    """A task comes back by a rerun: it is held by what its graph holds now, and not by what was held when it ended.

    Its groups are not known here: it is held by all that are paused, until the next settling.
    """
    own = [each for each in task.ids("held") if each == INACTIVE]
    held = [*own, *graph.ids("held")]
    if held != task.ids("held"):
        task.set_ids("held", held)
    if any(map(held_group, held)):
        task.set("holds", 0)
        graph.set("holds", graph.integer("holds") + 1)
        graph.set("settling", True)
    elif graph.integer("holds"):
        task.set("holds", graph.integer("holds"))


def items_of(message: HoldBack) -> list[HoldTask]:
    return [HoldTask(task, message.on, message.asked, message.reason, message.by) for task in message.tasks]


RULES: Final[Rules] = {Hold: hold, Settle: settle, PublishHolds: publish_holds, HoldTask: hold_task}
