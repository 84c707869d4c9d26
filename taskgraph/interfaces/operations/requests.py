"""Extensions and edits, as requests that handlers answer: the values of their parameters, and waiting for answers."""

from collections.abc import Mapping
from typing import Any, Final

from taskgraph.documents.read import Given
from taskgraph.engine.submission import Extension
from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations.waiting import poll
from taskgraph.model.columns import Value
from taskgraph.model.errors import Refused
from taskgraph.protocol.extension import WAITS_FOR
from taskgraph.queries.lookup import check_graph_id

ANSWERED: Final = ("done", "refused")
"""States of a request that handlers have answered."""


def check_ids(graph_id: str, request: str | None) -> None:
    """Raises InvalidInput for what can be neither a graph nor a request."""
    check_graph_id(graph_id)
    if request is not None:
        check_graph_id(request, "a request")


async def given(app: App, graph_id: str, params: Mapping[str, Any], *, named: bool) -> Given:
    """Values of parameters: those that are given, otherwise those of the graph. named: whether some may be needed."""
    return Given(params, await app.queries.params(graph_id) if params or named else {})


async def settled(
    app: App, asked: Extension, what: str, *, until: float | None = None, deferred: bool = False
) -> Mapping[str, Value]:
    """Wait until a request is done; gives what became of it, or what it is when `until` comes first.

    deferred: that it is made when its graph is resumed is an answer, too. Raises Refused if it was refused, as what
    it is: an extension, an edit.
    """
    head = await poll(
        lambda: app.queries.request(asked.graph_id, asked.request),
        app.clock,
        done=lambda head: head.get("state") in ANSWERED or (deferred and head.get(WAITS_FOR)),
        until=until,
        pause=0.02,
        pause_max=1.0,
    )
    if head.get("state") == "refused":
        raise Refused(f"graph {asked.graph_id} refused the {what}: {head.get('reason', '')}", "refused")
    return head
