"""Submit a graph, extend or edit one that runs or is blocked, and wait until handlers have answered."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from taskgraph.documents.nodes import GraphDocument
from taskgraph.engine import submission
from taskgraph.engine.progress import Progress, no_progress
from taskgraph.engine.submission import Extension, Submission
from taskgraph.interfaces.app import App, own_folder
from taskgraph.interfaces.operations import which
from taskgraph.interfaces.operations.checks import asked_by, over_http
from taskgraph.interfaces.operations.waiting import poll
from taskgraph.model.columns import WAITS_FOR, Value
from taskgraph.model.errors import NotFound, Refused
from taskgraph.queries.lookup import check_graph_id

if TYPE_CHECKING:
    from taskgraph.documents.edit_document import EditDocument
    from taskgraph.documents.read import Given

ANSWERED: Final = ("done", "refused")
"""States of a request that handlers have answered."""

_DIFFERENCES_SHOWN_MAX: Final = 5


@over_http("submit")
async def submit(
    app: App,
    graph_id: str | None,
    document: GraphDocument,
    *,
    progress: Progress = no_progress,
    folder: str | None = None,
    fresh: bool = False,
) -> Submission:
    """Write a graph that was validated, and start it; under a fresh id if it has none yet.

    folder: where its submitter is, None for where this process is. fresh: the id was made for it, and no graph has it.
    Raises InvalidInput for what can be no id, and Refused, with what differs, if another graph was submitted under it.
    """
    if not (fresh and graph_id):
        fresh = graph_id is None
        graph_id = await which.new_id(app, document, given=graph_id)
    try:
        folder = own_folder() if folder is None else folder
        by = asked_by()
        return await submission.submit(
            app.handlers, graph_id, document, progress=progress, folder=folder, by=by, fresh=fresh
        )
    except Refused as error:
        if error.code != "different-content":
            raise
        raise Refused(f"{error}{await _what_differs(app, graph_id, document)}", error.code) from error


async def _what_differs(app: App, graph_id: str, document: GraphDocument) -> str:
    """For the end of a sentence; "" while the rows of the graph come or go."""
    from taskgraph.queries.document import differences, stored_document

    try:
        found = differences(await stored_document(app.queries, graph_id), document)
    except (NotFound, Refused):
        return ""
    more = len(found) - _DIFFERENCES_SHOWN_MAX
    shown = ", ".join(found[:_DIFFERENCES_SHOWN_MAX])
    return f". It differs in: {shown}{f' and {more:,} more' if more > 0 else ''}" if found else ""


def check_ids(graph_id: str, request: str | None) -> None:
    """Raises InvalidInput for what can be neither a graph nor a request."""
    check_graph_id(graph_id)
    if request is not None:
        check_graph_id(request, "a request")


async def given(app: App, graph_id: str, params: Mapping[str, Any], *, named: bool) -> "Given":
    """Values of parameters: those that are given, otherwise those of the graph. named: whether some may be needed."""
    from taskgraph.documents.read import Given

    return Given(params, await app.queries.params(graph_id) if params or named else {})


@over_http("extend")
async def extend(
    app: App, graph_id: str, document: GraphDocument, *, request: str | None = None, plan: str = ""
) -> Extension:
    """Ask for the tasks of a document to be added. Raises InvalidInput, NotFound, Refused (see `submission.extend`)."""
    check_ids(graph_id, request)
    return await submission.extend(app.handlers, graph_id, document, request=request, by=asked_by(), plan=plan)


async def extended(app: App, asked: Extension, *, until: float | None = None, deferred: bool = False) -> Extension:
    """Wait until the tasks are added; gives the request as it is then, or when `until` comes first (see `settled`)."""
    if asked.state == "done":
        return asked
    head = await settled(app, asked, "extension", until=until, deferred=deferred)
    return replace(asked, state=str(head.get("state", "")), waits_for=str(head.get(WAITS_FOR, "")))


@over_http("edit")
async def edit(
    app: App, graph_id: str, document: "EditDocument", *, request: str | None = None, plan: str = ""
) -> Extension:
    """Ask for an edit to be made. Raises InvalidInput, NotFound, Refused (see `submission.edit`)."""
    check_ids(graph_id, request)
    return await submission.edit(app.handlers, graph_id, document, request=request, by=asked_by(), plan=plan)


async def settled(
    app: App, asked: Extension, what: str, *, until: float | None = None, deferred: bool = False
) -> Mapping[str, Value]:
    """Wait until a request is done; gives its row's columns then, or when `until` comes first.

    deferred: do not wait for a request that is made when its graph is resumed. Raises Refused if it was refused;
    `what`: what it is, an extension or an edit.
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
