"""What was submitted, made of the rows of a graph; and the same once more, as a new graph."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import NOTHING_GIVEN, Given, document_from_object
from taskgraph.interfaces.app import App
from taskgraph.model.errors import InvalidInput
from taskgraph.model.json_strict import show
from taskgraph.model.priorities import column_of_option
from taskgraph.protocol.definitions import moment
from taskgraph.queries.document import Stored, stored_document
from taskgraph.queries.lookup import check_graph_id

DIFFERENCE: Final = (
    "its document does not mean exactly what was submitted: tasks were added, edited or released since, or rows keep "
    "less than was written (requirements of groups stand on their tasks); look at it: taskgraph document"
)


async def stored(app: App, graph_id: str) -> Stored:
    """The document of a stored graph. Raises InvalidInput, NotFound, and Refused while its rows come or go."""
    check_graph_id(graph_id)
    return await stored_document(app.queries, graph_id)


def again(app: App, found: Stored, *, params: Mapping[str, Any], priority: str | None = None) -> GraphDocument:
    """A document to submit as a new graph. params: instead of the values that it had. priority: instead of its own.

    Raises InvalidGraph for one that this version would not take, and InvalidInput if a deadline in it has passed.
    """
    level = None if priority is None else column_of_option(priority)
    if params and not found.document.written:
        raise InvalidInput(
            f"no row of graph {found.graph_id} says where its parameters stand, so they keep their values: none of its "
            "tasks names one, there is too much of it, or a version before 0.4 submitted it"
        )
    given = Given(params) if params else NOTHING_GIVEN
    document = document_from_object(found.to_dict(), source=f"graph {found.graph_id}", given=given)
    deadlines = {f"task {show(label)}": node.task.get("deadline") for label, node in document.tasks.items()}
    deadlines["the graph"] = document.deadline
    now = app.clock.now()
    for whose, deadline in deadlines.items():
        if deadline and moment(str(deadline)) <= now:
            raise InvalidInput(
                f"the deadline {deadline} of {whose} has passed: write the document into a file (taskgraph document "
                f"{found.graph_id} > graph.json), change it there, and submit that"
            )
    return document if level is None else replace(document, priority=level)
