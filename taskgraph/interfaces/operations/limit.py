"""Limit how many tasks may be in flight, of a graph, a group or a target; and wait until that is so."""

from dataclasses import dataclass
from typing import Any, Final

from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations.checks import asked_by, check_going, check_reason, check_target, over_http
from taskgraph.interfaces.operations.waiting import poll
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput, Refused
from taskgraph.model.foreign_times import asked_after
from taskgraph.model.ids import GRAPH, limit_key, limit_scope
from taskgraph.model.messages import SetLimit
from taskgraph.protocol.concurrency import concerns, limit_of, scopes_of
from taskgraph.protocol.set_limit import COMES, NOT_LIMITED, TOO_MANY
from taskgraph.queries import targets
from taskgraph.queries.groups import group_rows
from taskgraph.queries.targets import TargetLimit
from taskgraph.storage.tables import Range, query_all

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
        what = {"graphId": self.graph_id, "group": self.group or None, "max": self.most}
        return {**what, "askedAt": self.asked, "settled": settled}


@over_http("limit")
async def ask(app: App, graph_id: str, most: int, *, group: str = "", reason: str = "") -> LimitRequest:
    """Ask for at most so many tasks in flight; 0: as many as can be counted.

    Raises NotFound for a graph or group that there is not, InvalidInput for what is no limit, and Refused where the
    graph is over, and for a limit that cannot be taken off, or set, where there is none.
    """
    if not 0 <= most <= limits.IN_FLIGHT_MAX:
        raise InvalidInput(f"a limit is a number from 1 to {limits.IN_FLIGHT_MAX:,}, and {most} is none")
    check_reason(reason)
    check_going(graph_id, await app.queries.state(graph_id), _OVER)
    (row,) = await app.tables.get(graph_id, [limit_key(limit_scope(graph_id, group))])
    if row is None:
        if group:
            await group_rows(app.tables, graph_id, group)
        await _check_new(app, graph_id, most, group)
    before = [str(row.columns.get("asked", ""))] if row is not None else []
    asked = asked_after(app.clock.now(), before, app.clock.jitter())
    with app.handlers.telemetry.asking("set-limit", graph_id):
        await app.handlers.dispatcher.send_events([SetLimit(graph_id, most, asked, group, reason, asked_by())])
    return LimitRequest(graph_id, group, most or limits.IN_FLIGHT_MAX, asked)


async def _check_new(app: App, graph_id: str, most: int, group: str) -> None:
    """Raise Refused where a graph, or a group of it, that has no limit cannot be given one."""
    whose = f"group “{group}” of graph {graph_id}" if group else f"graph {graph_id}"
    scope = limit_scope(graph_id, group)
    if not most:
        raise Refused(f"{whose}: {NOT_LIMITED}", "not-limited")
    there = scopes_of((await app.queries.graph_row(graph_id)).columns)
    if scope in there:
        raise Refused(f"{whose}: {COMES}; ask again when that is done", "not-limited")
    if len(there) >= limits.LIMITED_GROUPS_MAX:
        raise Refused(f"{whose}: {TOO_MANY}; limit a target instead (--target)", "too-many-limits")
    under = Range("task:", "task;", where={"limited": ("yes",)}, select=("label", "limits", "groups"))
    full = [
        str(row.columns.get("label", ""))
        for row in await query_all(app.tables, graph_id, under)
        if len(scopes_of(row.columns)) >= limits.LIMITS_OF_TASK_MAX and concerns(scope, row.columns, graph_id)
    ]
    if full:
        more = f" and {len(full) - 1:,} more" if full[1:] else ""
        most_of = f"would be under more than {limits.LIMITS_OF_TASK_MAX} limits"
        raise Refused(f"{whose}: “{full[0]}”{more} {most_of}; limit a target instead (--target)", "too-many-limits")


async def settled(app: App, change: LimitRequest, *, until: float | None = None) -> bool:
    """Wait until it is so; False when `until` comes first.

    Raises Refused where it will not be: a later request asked for another limit, or the graph is over.
    """
    keys = [GRAPH, limit_key(limit_scope(change.graph_id, change.group))]

    async def look() -> bool:
        graph, row = await app.tables.get(change.graph_id, keys)
        if row is not None:
            most = limit_of(row).most
            if most == change.most and graph is not None and graph.columns.get("limiting") is not True:
                return True
            if most != change.most and str(row.columns.get("asked", "")) >= change.asked:
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
    changed = await _limit_target(app, target, most, reason)
    if wait and changed:
        await app.clock.sleep(2 * limits.GATE_SECONDS)
        found = (await targets.limited(app.tables, app.clock.now())).get(target)
        if (found.most if found is not None else 0) != most:
            now = f"it is {found.most:,}" if found is not None else "there is none"
            raise Refused(f"target {target}: a later request asked for another limit: {now}", "superseded")
    return changed


@over_http("limit_target")
async def _limit_target(app: App, target: str, most: int, reason: str) -> bool:
    if not most:
        return await targets.clear_target(app.tables, target)
    return await targets.limit_target(app.tables, target, most, app.clock.now(), reason, asked_by())


async def of_targets(app: App) -> list[TargetLimit]:
    """The limited targets by name, and who holds their permits."""
    found = await targets.limited(app.tables, app.clock.now())
    return [found[target] for target in sorted(found)]
