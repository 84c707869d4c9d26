"""A change that is made as it was planned, or not at all (P30).

A plan is what handlers would make of a change, found out on a copy of the graph (`engine.foresight`). A request row
holds the change and the digest of its plan. Handlers plan once more; where the digest is the same, one commit takes the
change up: it has the number of the journal behind the one that the plan was made at, so no fact was stated in between,
and it writes the rows that the plan rests on and that change without one, as by a claim, or when a relay fires. What
does not fit that commit follows it, by rules that may come any number of times.
"""

from functools import partial
from typing import Final

from taskgraph.model.errors import Refused
from taskgraph.model.ids import value
from taskgraph.protocol.context import Context, Item, Outcome, Rules, Verdict
from taskgraph.protocol.extension import PLAN, request_key

CHANGE: Final = "change"
"""Kind of a request that holds messages, which are handled once it was taken up."""

MOVED: Final = "something has moved since it was planned"


@value
class TakeUp(Item):
    """Begin a change that was planned. event: the last number of the journal when it was.

    rows: (key, etag) of rows that the plan rests on, as they were read. items: of the change, as far as they go along
    in this commit.
    """

    request: str
    event: int
    rows: tuple[tuple[str, str], ...]
    items: tuple[Item, ...]


@value
class FinishChange(Item):
    """All messages of a change have been handled."""

    request: str


def take_up(of: Rules, item: TakeUp, context: Context) -> Verdict:
    """of: the rules of all other items."""
    view = context.view
    view.require((request_key(item.request), *(key for key, _ in item.rows)))
    head = view.get(request_key(item.request))
    if head.text("state") != "staged":
        return Outcome.REPEATED, ""
    if context.sequence != item.event + 1:
        return Outcome.STALE, MOVED
    for key, etag in item.rows:
        row = view.get(key)
        if row.etag != etag:
            return Outcome.STALE, MOVED
        row.confirm()
    if head.text("kind") == CHANGE:
        head.set("state", "accepted")
    context.event(
        "graph-changed", about=head.key, request=item.request, plan=head.text(PLAN), by=head.text("by") or None
    )
    for each in item.items:
        outcome, reason = of[type(each)](each, context)
        if outcome in (Outcome.STALE, Outcome.REFUSED) and head.text("kind") != CHANGE:
            raise Refused(reason or MOVED, "stale")  # nothing of it is written
    return Outcome.APPLIED, ""


def finish_change(item: FinishChange, context: Context) -> Verdict:
    head = context.view.get(request_key(item.request))
    if head.text("state") != "accepted":
        return Outcome.REPEATED, ""
    head.set("state", "done")
    head.set("answered", context.now)
    return Outcome.APPLIED, ""


def rules(of: Rules) -> Rules:
    """of: the rules of all other items."""
    return {TakeUp: partial(take_up, of), FinishChange: finish_change}
