"""Change a limit on tasks in flight, and correct one that names runs which are over.

Only a limit that was submitted can be changed, as tasks name theirs from the start. A lower one stops no run.
"""

from typing import Final

from taskgraph.model import limits
from taskgraph.model.ids import GRAPH, limit_key, row_key, value
from taskgraph.protocol.concurrency import is_over, named_in
from taskgraph.protocol.context import Context, Item, Outcome, Refill, Rules, Verdict
from taskgraph.protocol.propagation import GOING


@value
class ChangeLimit(Item):
    """Let so many tasks of a scope be in flight. most: 0 for the highest possible. asked: see `pause.Hold`."""

    scope: str
    most: int
    asked: str = ""
    reason: str = ""


@value
class Recount(Item):
    """Take runs off the count of a limit that are over by their rows (sweep). members: those that may be."""

    scope: str
    members: tuple[str, ...]


NOT_LIMITED: Final = "it was submitted without a limit, and only a limit that was submitted can be changed"


def change_limit(item: ChangeLimit, context: Context) -> Verdict:
    view = context.view
    view.require((GRAPH, limit_key(item.scope)))
    state = view.get(GRAPH).text("state")
    if state not in GOING:
        return Outcome.REFUSED, f"the graph is {state}"
    row = view.find(limit_key(item.scope))
    if row is None:
        return Outcome.REFUSED, NOT_LIMITED
    asked = item.asked or context.now.isoformat()
    if asked < row.text("asked"):
        return Outcome.STALE, "something else has been requested since"
    most, before = item.most or limits.IN_FLIGHT_MAX, row.integer("max")
    if most >= before:
        context.effects.append(Refill())
    if row.text("asked") != asked:
        row.set("asked", asked)
    elif most == before:
        return Outcome.REPEATED, "it is so already"
    if most == before:
        return Outcome.APPLIED, "it is so already"
    row.set("max", most)
    row.set("moved", context.now)
    group, reason = row.text("label") or None, item.reason or None
    context.event("graph-limited", about=row.key, group=group, max=most, was=before, reason=reason)
    return Outcome.APPLIED, ""


def recount(item: Recount, context: Context) -> Verdict:
    """What is not certainly over stays: a place too few costs time, one too many breaks the limit."""
    view = context.view
    row = view.find(limit_key(item.scope))
    if row is None:
        return Outcome.STALE, ""
    inside = row.ids("inFlight")
    runs = {each: named_in(each) for each in item.members if each in inside}
    view.require([row_key(task_id) for task_id, _ in runs.values() if task_id])
    over = set()
    for each, (task_id, run) in runs.items():
        task = view.find(row_key(task_id)) if task_id else None
        if task is not None and is_over(task, run):
            over.add(each)
    if not over:
        return Outcome.REPEATED, ""
    row.set_ids("inFlight", [each for each in inside if each not in over])
    row.set("moved", context.now)
    context.effects.append(Refill())
    return Outcome.APPLIED, ""


RULES: Final[Rules] = {ChangeLimit: change_limit, Recount: recount}
