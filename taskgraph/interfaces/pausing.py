"""Ask for a graph, a group or some tasks to be held back or to go on, and wait until that is so.

What this room is for: what the doors that pause have in common, on the command line and in Python: look at what there
is, say so where there is nothing to do, and put the messages down. It never writes a row of a graph and never decides
about tasks; handlers do.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from taskgraph.interfaces.app import App
from taskgraph.interfaces.waiting import poll
from taskgraph.model import limits
from taskgraph.model.columns import texts
from taskgraph.model.errors import InvalidInput, Refused
from taskgraph.model.foreign_times import asked_after
from taskgraph.model.ids import reference_of, row_key
from taskgraph.model.messages import HoldBack, Message, bundles
from taskgraph.model.states import INACTIVE, PAUSED, TASK_UNRESOLVED, GraphState, by_group
from taskgraph.queries.groups import group_rows
from taskgraph.storage.tables import Row

_GOING: Final = (GraphState.RUNNING, GraphState.BLOCKED)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be held back (on), or let go. tasks: taskId -> label; none: a group, or the whole graph.

    asked: when, as its messages say it: a request with a later time takes its place (see
    `model.foreign_times.asked_after`).
    """

    graph_id: str
    on: bool
    asked: str
    group: str = ""
    tasks: Mapping[str, str] = field(default_factory=dict)

    @property
    def holder(self) -> str:
        """As the column `held` names it."""
        return INACTIVE if self.tasks else by_group(self.group) if self.group else PAUSED


async def ask(
    app: App,
    graph_id: str,
    labels: Sequence[str] = (),
    *,
    on: bool,
    group: str = "",
    reason: str = "",
) -> Wish:
    """Ask for these tasks, this group, or the whole graph to be held back, or to go on. Handlers do it.

    Raises NotFound for a graph, task or group that there is not, InvalidInput for a reason that is too long, and
    Refused where the graph, or one of the tasks, is over: nothing has been asked for then.
    """
    if len(reason) > limits.REASON_CHARS_MAX:
        raise InvalidInput(f"the reason has {len(reason):,} characters; {limits.REASON_CHARS_MAX:,} are allowed")
    if labels and group:
        raise InvalidInput("name tasks or a group, not both")
    graph = await app.queries.graph_row(graph_id)
    state = str(graph.columns.get("state"))
    if state not in _GOING:
        raise Refused(f"graph {graph_id} is {state}: it can be neither paused nor resumed", state)
    rows = [await app.queries.find_task(graph_id, label) for label in labels]
    for row in rows:
        if row.columns.get("state") not in TASK_UNRESOLVED:
            raise Refused(f"“{row.columns.get('label')}” is {row.columns.get('state')}: it is over", "over")
    if group:
        await group_rows(app.tables, graph_id, group)
    wish = Wish(graph_id, on, "", group, {reference_of(row.key): str(row.columns.get("label", "")) for row in rows})
    seen = [_asked(row, wish.holder) for row in rows or [graph]]
    asked = asked_after(app.clock.now(), seen, app.clock.jitter())
    wish = replace(wish, asked=asked)
    messages: list[Message] = [HoldBack(graph_id, on, asked, group, (), reason)]
    if rows:
        messages = bundles(lambda part: HoldBack(graph_id, on, asked, "", part, reason), list(wish.tasks))
    with app.handlers.telemetry.asking("hold-back", graph_id):
        await app.handlers.tell(messages)
    return wish


async def settled(app: App, wish: Wish, *, until: float | None = None) -> bool:
    """Wait until it is so; False when `until` comes first.

    Raises Refused where it will not be: a later request asked for the opposite, or the graph is over.
    """

    async def look() -> bool:
        graph = await app.queries.graph_row(wish.graph_id)
        rows: list[Row] = [graph]
        if wish.tasks:
            found = await app.tables.get(wish.graph_id, list(map(row_key, wish.tasks)))
            rows = [row for row in found if row is not None and row.columns.get("state") in TASK_UNRESOLVED]
        left = [row for row in rows if (wish.holder in texts(row.columns, "held")) != wish.on]
        if any(_asked(row, wish.holder) >= wish.asked for row in left):
            became = "it goes on" if wish.on else "it is held back"
            raise Refused(f"graph {wish.graph_id}: a later request asked for the opposite: {became}", "superseded")
        state = graph.columns.get("state")
        if state not in _GOING:
            if left:
                raise Refused(f"graph {wish.graph_id} is {state}: it can be neither paused nor resumed", str(state))
            return True
        return not left and (bool(wish.tasks) or graph.columns.get("settling") is not True)

    return await poll(look, app.clock, until=until, pause_max=1.0)


def _asked(row: Row, holder: str) -> str:
    """When a holder was last spoken of, of the requests that handlers have taken up; "" for never."""
    try:
        found = json.loads(str(row.columns.get("heldAsked", "") or "{}"))
    except ValueError:
        return ""  # `doctor` names the damage
    return str(found.get(holder, "")) if isinstance(found, dict) else ""
