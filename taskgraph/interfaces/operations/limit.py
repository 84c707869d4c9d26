"""Change how many tasks may be in flight, of a graph, a group or a target; and wait until that is so."""

from dataclasses import dataclass
from typing import Any, Final

from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations.checks import check_going, check_reason, check_target
from taskgraph.interfaces.operations.waiting import poll
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput, Refused
from taskgraph.model.foreign_times import asked_after
from taskgraph.model.ids import limit_key, limit_scope
from taskgraph.model.messages import SetLimit
from taskgraph.protocol.concurrency import limit_of
from taskgraph.protocol.set_limit import NOT_LIMITED
from taskgraph.queries import targets
from taskgraph.queries.groups import group_rows
from taskgraph.queries.targets import TargetLimit

_OVER: Final = "its limits cannot be changed"


@dataclass(frozen=True, slots=True)
class LimitRequest:
    """asked: when, as its message has it: a request with a later time replaces it."""

    graph_id: str
    group: str
    most: int
    asked: str

    def answer(self, *, settled: bool) -> dict[str, Any]:
        """As JSON. settled: whether it is so, or only asked for."""
        return {"graphId": self.graph_id, "group": self.group or None, "max": self.most, "settled": settled}


async def ask(app: App, graph_id: str, most: int, *, group: str = "", reason: str = "") -> LimitRequest:
    """Ask for at most so many tasks in flight; 0: as many as can be counted.

    Raises NotFound for a graph or group that there is not, InvalidInput for what is no limit, and Refused where the
    graph is over, or was submitted without this limit.
    """
    if not 0 <= most <= limits.IN_FLIGHT_MAX:
        raise InvalidInput(f"a limit is a number from 1 to {limits.IN_FLIGHT_MAX:,}, and {most} is none")
    check_reason(reason)
    check_going(graph_id, await app.queries.state(graph_id), _OVER)
    (row,) = await app.tables.get(graph_id, [limit_key(limit_scope(graph_id, group))])
    if row is None:
        if group:
            await group_rows(app.tables, graph_id, group)
        whose = f"group “{group}” of graph {graph_id}" if group else f"graph {graph_id}"
        raise Refused(f"{whose}: {NOT_LIMITED}; submit it with maxInFlight", "not-limited")
    asked = asked_after(app.clock.now(), [str(row.columns.get("asked", ""))], app.clock.jitter())
    with app.handlers.telemetry.asking("set-limit", graph_id):
        await app.handlers.dispatcher.send_events([SetLimit(graph_id, most, asked, group, reason)])
    return LimitRequest(graph_id, group, most or limits.IN_FLIGHT_MAX, asked)


async def settled(app: App, change: LimitRequest, *, until: float | None = None) -> bool:
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
        check_going(change.graph_id, await app.queries.state(change.graph_id), _OVER)
        return False

    return await poll(look, app.clock, until=until, pause_max=1.0)


async def ask_target(app: App, target: str, most: int, *, reason: str = "", wait: bool = False) -> bool:
    """Let so many tasks of a target be in flight, over all graphs; 0: any number. Whether that is new.

    wait: until workers have noticed. Raises InvalidInput for what is no target, no limit, and a reason that is too
    long; and, where it waits, Refused if a later request asked for another limit.
    """
    check_target(target)
    check_reason(reason)
    if most:
        changed = await targets.limit_target(app.tables, target, most, app.clock.now(), reason)
    else:
        changed = await targets.clear_target(app.tables, target)
    if wait and changed:
        await app.clock.sleep(2 * limits.GATE_SECONDS)
        found = (await targets.limited(app.tables, app.clock.now())).get(target)
        if (found.most if found is not None else 0) != most:
            now = f"it is {found.most:,}" if found is not None else "there is none"
            raise Refused(f"target {target}: a later request asked for another limit: {now}", "superseded")
    return changed


async def of_targets(app: App) -> list[TargetLimit]:
    """The limited targets by name, and who holds their permits."""
    found = await targets.limited(app.tables, app.clock.now())
    return [found[target] for target in sorted(found)]
