"""Ask for a graph, a group or some tasks to be held back or to go on, and wait until that is so.

What this room is for: what the doors that pause have in common, on the command line and in Python: look at what there
is, say so where there is nothing to do, and put the messages down. It never writes a row of a graph and never decides
about tasks; handlers do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from taskgraph import limits
from taskgraph.app import App
from taskgraph.columns import texts
from taskgraph.errors import InvalidInput, Refused
from taskgraph.membership import group_rows
from taskgraph.messages import HoldBack, Message, bundles
from taskgraph.model import INACTIVE, PAUSED, TASK_UNRESOLVED, GraphState, by_group, reference_of, row_key

_PAUSE_SECONDS: Final = 0.05
_PAUSE_SECONDS_MAX: Final = 1.0
_GOING: Final = (GraphState.RUNNING, GraphState.BLOCKED)


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants held back (on), or let go. tasks: taskId -> label; none: a group, or the whole graph."""

    graph_id: str
    on: bool
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
    state = await app.queries.state(graph_id)
    if state not in _GOING:
        raise Refused(f"graph {graph_id} is {state}: it can be neither paused nor resumed", str(state))
    rows = [await app.queries.find_task(graph_id, label) for label in labels]
    for row in rows:
        if row.columns.get("state") not in TASK_UNRESOLVED:
            raise Refused(f"“{row.columns.get('label')}” is {row.columns.get('state')}: it is over", "over")
    if group:
        await group_rows(app.tables, graph_id, group)
    wish = Wish(graph_id, on, group, {reference_of(row.key): str(row.columns.get("label", "")) for row in rows})
    asked = app.clock.now().isoformat()
    messages: list[Message] = [HoldBack(graph_id, on, asked, group, (), reason)]
    if rows:
        messages = bundles(lambda part: HoldBack(graph_id, on, asked, "", part, reason), list(wish.tasks))
    with app.handlers.telemetry.asking("hold-back", graph_id):
        await app.handlers.tell(messages)
    return wish


async def settled(app: App, wish: Wish, *, until: datetime | None = None) -> bool:
    """Wait until it is so, or the graph is over; False when `until` comes first."""
    pause = _PAUSE_SECONDS
    while True:
        graph = await app.queries.graph_row(wish.graph_id)
        if graph.columns.get("state") not in _GOING:
            return True
        if wish.tasks:
            rows = await app.tables.get(wish.graph_id, list(map(row_key, wish.tasks)))
            waited = [
                row
                for row in rows
                if row is not None
                and row.columns.get("state") in TASK_UNRESOLVED
                and (wish.holder in texts(row.columns, "held")) != wish.on
            ]
        else:
            holds = wish.holder in texts(graph.columns, "held")
            waited = [graph] if holds != wish.on or graph.columns.get("settling") is True else []
        if not waited:
            return True
        if until is not None and app.clock.now() >= until:
            return False
        await app.clock.sleep(pause)
        pause = min(pause * 1.5, _PAUSE_SECONDS_MAX)
