"""A graph goes to another store: what its rows say on either side, so that it lives on one of them and is on one whole.

    here   running | blocked | finished | cancelled ── departs ──▶ moving ── the other side is whole ──▶ moved
           moving ── a person says that it stays ──▶ what it was
    there  restoring ── all rows are in, and it is `moved` here ──▶ what it was

Each departure has a *token* of its own (`transfer` here, `arrival` there), and no step is taken for another one. Only
the row here says that the token is good: `moved` is never left, so a graph that has been seen `moved` does not live
here again but by an arrival of its own, and one that stays gives its token up first, so that no late call confirms it.

A commit of a handler or worker need not write the graph row, so a state on that row alone stops none that has been
decided before. So rows are *sealed* too: they get a schema that no version of this program knows, with which nothing is
decided about them, and an etag by which every commit that was decided before fails. Here they are sealed before they
are copied, there they come in sealed and are opened once it is `moved` here: no row that anything could be decided
about is in both stores.
"""

from typing import Final

from taskgraph.model import limits
from taskgraph.model.columns import Columns, Value
from taskgraph.model.ids import GRAPH, value
from taskgraph.model.states import DEPARTING, GRAPH_ENDED, GraphState
from taskgraph.protocol.context import Context, GraphEnded, Item, Outcome, Rules, Verdict
from taskgraph.protocol.propagation import GOING
from taskgraph.protocol.rows import SEAL

SEALED_KINDS: Final = ("request", "task", "join", "fork", "limit", "notice")
"""Kinds of rows that are written again, requests first: without them no row is added. The others never change."""

_OF_THE_DEPARTURE: Final = ("moving", "movesTo", "marked", "was", "transfer")
_OF_THE_ARRIVAL: Final = ("restoring", "copied", "whole", "marked", "was")
_WITHDRAWN_MAX: Final = 10


@value
class Depart(Item):
    """A graph is to go to another store: from here on nothing is decided about it here.

    token: of this departure. to: the other store, for people. holds: how often it had been held back or let go when
    nothing of it was seen to run; what was seen before the last of these says nothing. by: who asks.
    """

    token: str
    to: str
    holds: int = 0
    by: str = ""


@value
class Withdraw(Item):
    """A graph that was to go stays: the token of its departure is void."""


@value
class Remain(Item):
    """Its rows have been opened again: it goes on where it is."""

    by: str = ""


@value
class Confirm(Item):
    """All rows of the graph have been seen at the other store: it does not live here any more."""

    token: str


@value
class Arrive(Item):
    """The graph has been seen `moved` at its old store, or a person says that this one is lost: it goes on here.

    origin: the old store, for people. abandoned: it is lost.
    """

    token: str
    origin: str
    abandoned: bool = False
    by: str = ""


def seal(columns: Columns) -> Columns:
    """What sealing changes of a row."""
    schema = columns.get("schema", 1)
    return {"schema": (schema if isinstance(schema, int) else 1) + SEAL}


def opened(columns: Columns) -> Columns:
    """What opening changes of a row that is sealed."""
    schema = columns.get("schema", 1)
    return {"schema": (schema if isinstance(schema, int) else 1) % SEAL}


def as_it_arrives(graph: Columns, token: str, origin: str) -> dict[str, Value]:
    """The graph row at the other store, when all rows are in: what is of the departure alone is left out."""
    here = {*_OF_THE_DEPARTURE, "withdrawn"}
    own: dict[str, Value] = {name: value for name, value in graph.items() if name not in here}
    state, was = str(GraphState.RESTORING), str(graph.get("was", ""))
    return {**own, "state": state, "was": was, "arrival": token, "movesFrom": origin, "whole": True}


def why_not(state: str) -> str:
    """Why a graph in this state does not go to another store, with the remedy; "" if it may."""
    if state in GOING or state in GRAPH_ENDED:
        return ""
    if state == GraphState.CANCELLING:
        return "it is being cancelled; wait until it is cancelled"
    if state == GraphState.SUBMITTING:
        return "it is still being submitted; submit the same file under the same id to bring that to its end"
    return f"it is {state}"


def _depart(item: Depart, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    state = graph.text("state")
    if state == GraphState.MOVING:
        if graph.text("transfer") == item.token:
            return Outcome.REPEATED, ""
        return Outcome.REFUSED, "it is on its way to another store already"
    if refusal := why_not(state):
        return Outcome.REFUSED, refusal
    if state in GOING and (DEPARTING not in graph.ids("held") or graph.value("settling") is True):
        return Outcome.STALE, "it is not held back"
    if state in GOING and graph.integer("holds") != item.holds:
        return Outcome.STALE, "it was let go since it was looked at, so something may run"
    graph.set("was", state)
    graph.set("state", str(GraphState.MOVING))
    graph.set("moving", context.now)
    graph.set("transfer", item.token)
    graph.set("movesTo", item.to[: limits.REASON_CHARS_MAX])
    context.event("graph-moving", to=item.to, by=item.by or None)
    return Outcome.APPLIED, ""


def _withdraw(_: Withdraw, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    if graph.text("state") != GraphState.MOVING:
        return Outcome.REFUSED, f"it is {graph.text('state')}"
    token = graph.text("transfer")
    if not token:
        return Outcome.REPEATED, ""
    graph.set_ids("withdrawn", [*graph.ids("withdrawn"), token][-_WITHDRAWN_MAX:])
    graph.set("transfer", "")
    return Outcome.APPLIED, ""


def _remain(item: Remain, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    if graph.text("state") != GraphState.MOVING:
        return Outcome.STALE, f"it is {graph.text('state')}"
    if graph.text("transfer"):
        return Outcome.REFUSED, "it is on its way again"
    was = graph.text("was")
    context.view.clear(GRAPH, _OF_THE_DEPARTURE)
    graph.set("state", was)
    context.event("graph-stays", by=item.by or None)
    return Outcome.APPLIED, ""


def _confirm(item: Confirm, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    state, same = graph.text("state"), graph.text("transfer") == item.token
    if state == GraphState.MOVED and same:
        return Outcome.REPEATED, ""
    if state != GraphState.MOVING or not same:
        return Outcome.REFUSED, f"it is {state}, and not on this way"
    graph.set("state", str(GraphState.MOVED))
    graph.set("moved", context.now)
    return Outcome.APPLIED, ""


def _arrive(item: Arrive, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    state, same = graph.text("state"), graph.text("arrival") == item.token
    if state != GraphState.RESTORING:
        return (Outcome.REPEATED, "") if same else (Outcome.REFUSED, f"it is {state}, and has not come by this way")
    if not same:
        return Outcome.REFUSED, "it is on another way"
    if graph.value("whole") is not True:
        return Outcome.REFUSED, "not all of its rows are here"
    was = graph.text("was")
    context.view.clear(GRAPH, _OF_THE_ARRIVAL)
    graph.set("state", was)
    graph.set("arrived", context.now)
    context.event("graph-moved", origin=item.origin, abandoned=item.abandoned or None, by=item.by or None)
    if was in GRAPH_ENDED:
        context.effects.append(GraphEnded(GraphState(was)))
    return Outcome.APPLIED, ""


RULES: Final[Rules] = {
    Depart: _depart,
    Withdraw: _withdraw,
    Remain: _remain,
    Confirm: _confirm,
    Arrive: _arrive,
}
