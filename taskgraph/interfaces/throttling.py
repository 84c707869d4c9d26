"""Ask for a limit on tasks in flight to be changed, and wait until that is so.

What this room is for: what the doors have in common, on the command line and in Python. It never writes a row of a
graph and never decides about tasks; handlers do. Limits of targets belong to no graph, and are written by `permits`.
"""

from dataclasses import dataclass
from typing import Final

from taskgraph.interfaces.app import App
from taskgraph.interfaces.waiting import poll
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput, Refused
from taskgraph.model.foreign_times import asked_after
from taskgraph.model.ids import limit_key, limit_scope
from taskgraph.model.messages import SetLimit
from taskgraph.model.states import GraphState
from taskgraph.protocol.concurrency import limit_of
from taskgraph.protocol.set_limit import NOT_LIMITED
from taskgraph.queries.groups import group_rows

_GOING: Final = (GraphState.RUNNING, GraphState.BLOCKED)


@dataclass(frozen=True, slots=True)
class Change:
    """What a limit is to be. asked: when, as its message says it: a request with a later time takes its place."""

    graph_id: str
    group: str
    most: int
    asked: str


async def ask(app: App, graph_id: str, most: int, *, group: str = "", reason: str = "") -> Change:
    """Ask for so many tasks in flight; 0: as many as can be counted.

    Raises NotFound for a graph or group that there is not, InvalidInput for what is no limit, and Refused where the
    graph is over, or was submitted without this limit.
    """
    if not 0 <= most <= limits.IN_FLIGHT_MAX:
        raise InvalidInput(f"a limit is a number from 1 to {limits.IN_FLIGHT_MAX:,}, and {most} is none")
    if len(reason) > limits.REASON_CHARS_MAX:
        raise InvalidInput(f"the reason has {len(reason):,} characters; {limits.REASON_CHARS_MAX:,} are allowed")
    state = await app.queries.state(graph_id)
    if state not in _GOING:
        raise Refused(f"graph {graph_id} is {state}: its limits cannot be changed", str(state))
    (row,) = await app.tables.get(graph_id, [limit_key(limit_scope(graph_id, group))])
    if row is None:
        if group:
            await group_rows(app.tables, graph_id, group)
        whose = f"group “{group}” of graph {graph_id}" if group else f"graph {graph_id}"
        raise Refused(f"{whose}: {NOT_LIMITED}; submit it with maxInFlight", "not-limited")
    asked = asked_after(app.clock.now(), [str(row.columns.get("asked", ""))], app.clock.jitter())
    with app.handlers.telemetry.asking("set-limit", graph_id):
        await app.handlers.tell([SetLimit(graph_id, most, asked, group, reason)])
    return Change(graph_id, group, most or limits.IN_FLIGHT_MAX, asked)


async def settled(app: App, change: Change, *, until: float | None = None) -> bool:
    """Wait until it is so; False when `until` comes first.

    Raises Refused where it will not be: a later request asked for another limit, or the graph is over.
    """
    key = limit_key(limit_scope(change.graph_id, change.group))

    async def look() -> bool:
        (row,) = await app.tables.get(change.graph_id, [key])
        if row is not None:
            most = limit_of(row).most
            if most == change.most:
                return True
            if str(row.columns.get("asked", "")) >= change.asked:
                whose = f"graph {change.graph_id}"
                raise Refused(f"{whose}: a later request asked for another limit: it is {most:,}", "superseded")
        state = await app.queries.state(change.graph_id)
        if state not in _GOING:
            raise Refused(f"graph {change.graph_id} is {state}: its limits cannot be changed", str(state))
        return False

    return await poll(look, app.clock, until=until, pause_max=1.0)
