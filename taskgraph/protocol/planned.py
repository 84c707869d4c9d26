"""A change that is made as it was planned, or not at all (P29).

A plan is what handlers would make of a change, found out on a copy of the graph (`engine.foresight`). A request row
holds the change and the digest of its plan. Handlers plan once more; where the digest is the same, one commit takes the
change up: it has the number of the journal behind the one that the plan was made at, so no fact was stated in between,
and it writes the rows of planned tasks that stand ready, as a claim alone states no fact. What does not fit that commit
follows it, by rules that may come any number of times.
"""

from typing import Final

from taskgraph.model.errors import Refused
from taskgraph.model.ids import GRAPH, row_key, value
from taskgraph.model.states import TaskState
from taskgraph.protocol.context import Context, Item, Outcome, Rules, Verdict
from taskgraph.protocol.extension import PLAN, request_key

CHANGE: Final = "change"
"""Kind of a request that holds messages, which are handled once it was taken up."""

MOVED: Final = "something has moved since it was planned"


@value
class TakeUp(Item):
    """Begin a change that was planned. event: the last number of the journal when it was. ready: (taskId, run).

    items: of the change, as far as they go along in this commit.
    """

    request: str
    event: int
    ready: tuple[tuple[str, int], ...]
    items: tuple[Item, ...]


@value
class FinishChange(Item):
    """All messages of a change have been handled."""

    request: str


def rules(of: Rules) -> Rules:
    """of: the rules of all other items."""

    def take_up(item: TakeUp, context: Context) -> Verdict:
        view = context.view
        keys = [row_key(task_id) for task_id, _ in item.ready]
        view.require((GRAPH, request_key(item.request), *keys))
        head, graph = view.get(request_key(item.request)), view.get(GRAPH)
        if head.text("state") != "staged":
            return Outcome.REPEATED, ""
        if context.sequence != item.event + 1:
            return Outcome.STALE, MOVED
        for key, (_, run) in zip(keys, item.ready, strict=True):
            task = view.get(key)
            if task.text("state") != TaskState.PENDING or task.integer("run") != run:
                return Outcome.STALE, MOVED
            task.confirm()
        graph.confirm()
        if head.text("kind") == CHANGE:
            head.set("state", "accepted")
        context.event("graph-changed", about=head.key, request=item.request, plan=head.text(PLAN))
        for each in item.items:
            outcome, reason = of[type(each)](each, context)
            if outcome in (Outcome.STALE, Outcome.REFUSED) and head.text("kind") != CHANGE:
                raise Refused(reason or MOVED, "stale")  # nothing of it is written
        return Outcome.APPLIED, ""

    return {TakeUp: take_up, FinishChange: finish_change}


def finish_change(item: FinishChange, context: Context) -> Verdict:
    head = context.view.get(request_key(item.request))
    if head.text("state") != "accepted":
        return Outcome.REPEATED, ""
    head.set("state", "done")
    head.set("answered", context.now)
    return Outcome.APPLIED, ""
