"""Hold back a graph, a group, some tasks or a target, or let it go on; and wait until that is so."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations.checks import (
    GOING,
    asked_by,
    check_going,
    check_reason,
    check_target,
    labels_of,
    over_http,
    task_rows,
)
from taskgraph.interfaces.operations.waiting import poll
from taskgraph.model import limits
from taskgraph.model.budget import OVER_BUDGET, budget_of, is_spent
from taskgraph.model.bundles import bundles
from taskgraph.model.columns import seen_state, texts
from taskgraph.model.errors import InvalidInput, Refused
from taskgraph.model.foreign_times import asked_after
from taskgraph.model.messages import HoldBack, Message
from taskgraph.model.states import INACTIVE, PAUSED, TASK_UNRESOLVED, by_group
from taskgraph.queries import targets
from taskgraph.queries.costs import cost_of
from taskgraph.queries.groups import group_rows
from taskgraph.storage.tables import Row

_OVER: Final = "it can be neither paused nor resumed"


@dataclass(frozen=True, slots=True)
class PauseRequest:
    """on: hold back, or let go on. tasks: taskId -> label; none: a group, or the whole graph.

    asked: when, as its messages have it: a request with a later time replaces it (`model.foreign_times.asked_after`).
    budget: what the graph may cost from now on, 0 to leave it as it is.
    """

    graph_id: str
    on: bool
    asked: str
    group: str = ""
    tasks: Mapping[str, str] = field(default_factory=dict)
    budget: float = 0.0

    @property
    def holder(self) -> str:
        """Its name in the column `held`."""
        return INACTIVE if self.tasks else by_group(self.group) if self.group else PAUSED

    def answer(self, *, settled: bool) -> dict[str, Any]:
        """As JSON. settled: whether it is so, or only asked for."""
        return {
            "graphId": self.graph_id,
            "group": self.group or None,
            "labels": sorted(self.tasks.values()),
            "held": self.on,
            "askedAt": self.asked,
            "settled": settled,
        }


@over_http("hold")
async def ask(
    app: App,
    graph_id: str,
    labels: Sequence[str] = (),
    *,
    on: bool,
    group: str = "",
    reason: str = "",
    budget: float = 0.0,
) -> PauseRequest:
    """Ask for these tasks, this group, or the whole graph to be held back, or to go on. Handlers do it.

    budget: what the graph may cost from now on, 0 to leave it as it is; only where all of it is to go on.

    Raises NotFound for a graph, task or group that there is not, InvalidInput for a reason that is too long or a budget
    that is spent already, and Refused where the graph, or one of the tasks, is over, or where it takes a larger budget
    (code `over-budget`): nothing has been asked for then.
    """
    check_reason(reason)
    if labels and group:
        raise InvalidInput("name tasks or a group, not both")
    if budget and (on or labels or group):
        raise InvalidInput("a budget is that of a graph: give it as all of the graph is resumed")
    graph = await app.queries.graph_row(graph_id)
    check_going(graph_id, str(graph.columns.get("state")), _OVER)
    rows = [await app.queries.find_task(graph_id, label) for label in labels]
    for row in rows:
        if row.columns.get("state") not in TASK_UNRESOLVED:
            raise Refused(f"“{row.columns.get('label')}” is {seen_state(row.columns.get)}: it is over", "over")
    if group:
        await group_rows(app.tables, graph_id, group)
    if not (on or labels or group):
        await _check_budget(app, graph, graph_id, budget)
    wish = PauseRequest(graph_id, on, "", group, labels_of(rows), budget)
    seen = [_asked(row, wish.holder) for row in rows or [graph]]
    asked = asked_after(app.clock.now(), seen, app.clock.jitter())
    wish = replace(wish, asked=asked)
    by = asked_by()
    messages: list[Message] = [HoldBack(graph_id, on, asked, group, (), reason, by, budget)]
    if rows:
        messages = bundles(lambda part: HoldBack(graph_id, on, asked, "", part, reason, by), list(wish.tasks))
    with app.handlers.telemetry.asking("hold-back", graph_id):
        await app.handlers.dispatcher.send_events(messages)
    return wish


async def _check_budget(app: App, graph: Row, graph_id: str, budget: float) -> None:
    """Raise InvalidInput for a budget that is spent already, and Refused where it takes another one to go on."""
    if not budget:
        if (found := budget_of(graph.columns.get)) is not None and is_spent(graph.columns.get):
            raise Refused(
                f"graph {graph_id}: its budget of {found.amount:g} is spent: resume it with a larger one", OVER_BUDGET
            )
        return
    if not 0 < budget < limits.AMOUNT_MAX:
        raise InvalidInput(f"a budget is an amount above 0, and {budget:g} is none")
    cost = await cost_of(app.tables, graph_id)
    if cost.amount >= budget:
        amount = f"{cost.amount:.4g} {cost.prices.currency}"
        raise InvalidInput(f"graph {graph_id} has cost {amount} already: its budget must be larger than that")


async def settled(app: App, wish: PauseRequest, *, until: float | None = None) -> bool:
    """Wait until it is so; False when `until` comes first.

    Raises Refused where it will not be: a later request asked for the opposite, or the graph is over.
    """

    async def look() -> bool:
        graph = await app.queries.graph_row(wish.graph_id)
        rows: list[Row] = [graph]
        if wish.tasks:
            found = await task_rows(app.tables, wish.graph_id, wish.tasks)
            rows = [row for row in found if row.columns.get("state") in TASK_UNRESOLVED]
        left = [row for row in rows if (wish.holder in texts(row.columns, "held")) != wish.on]
        if any(_asked(row, wish.holder) >= wish.asked for row in left):
            became = "it goes on" if wish.on else "it is held back"
            raise Refused(f"graph {wish.graph_id}: a later request asked for the opposite: {became}", "superseded")
        state = str(graph.columns.get("state"))
        if left:
            check_going(wish.graph_id, state, _OVER)
        if state not in GOING:
            return True
        has = budget_of(graph.columns.get) if wish.budget else None
        if has is not None and has.amount != wish.budget:
            return False
        return not left and (bool(wish.tasks) or graph.columns.get("settling") is not True)

    return await poll(look, app.clock, until=until, pause_max=1.0)


async def ask_target(app: App, target: str, *, on: bool, reason: str = "", wait: bool = False) -> bool:
    """Hold back all work of a target, of all graphs, or let it go on; whether that is new.

    wait: until workers have noticed. Raises InvalidInput for what is no target and a reason that is too long; and,
    where it waits, Refused if a later request asked for the opposite.
    """
    check_target(target)
    check_reason(reason)
    changed = await _hold_target(app, target, on, reason)
    if wait and on and changed:
        await app.clock.sleep(limits.GATE_SECONDS)
        if target not in await targets.closed(app.tables):
            raise Refused(f"target {target}: a later request asked for the opposite: it goes on", "superseded")
    return changed


@over_http("hold_target")
async def _hold_target(app: App, target: str, on: bool, reason: str) -> bool:
    if not on:
        return await targets.reopen(app.tables, target)
    return await targets.close(app.tables, target, app.clock.now(), reason, asked_by())


def _asked(row: Row, holder: str) -> str:
    """The time of the last request about a holder that handlers have taken up; "" for none."""
    try:
        found = json.loads(str(row.columns.get("heldAsked", "") or "{}"))
    except ValueError:
        return ""  # `doctor` names the damage
    return str(found.get(holder, "")) if isinstance(found, dict) else ""
