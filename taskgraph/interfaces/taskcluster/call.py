"""A call of an old client as a method gets it, and the errors that such a client knows: `{message, error}`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import JSONResponse

from taskgraph.interfaces.app import App
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.http.problems import Problem
from taskgraph.interfaces.meanings import meaning
from taskgraph.interfaces.taskcluster import scopes
from taskgraph.model.errors import DeletedGraph, InvalidGraph, NoGraph, TaskgraphError

Json = dict[str, Any]

SCHEDULER_ID: Final = "task-graph-scheduler"
"""What the old scheduler was called in production: clients may name it in their tasks."""

NO_GRAPH: Final = "task-graph not found!"


class CallError(TaskgraphError):
    """What an old client gets in place of an answer. error: more about it, of any JSON form."""

    def __init__(self, status: int, message: str, error: Any = None) -> None:
        super().__init__(message)
        self.status = status
        self.error = error


@dataclass(frozen=True, slots=True)
class Call:
    """body: the JSON value that was sent, None for none. scopes: what its sender may do."""

    asked: Asked
    body: Any
    scopes: Sequence[str]

    @property
    def app(self) -> App:
        return self.asked.app

    @property
    def path(self) -> Mapping[str, str]:
        return self.asked.path

    def demand(self, wanted: Sequence[str]) -> None:
        """Raise CallError unless its sender has all these scopes."""
        if missing := scopes.missing(self.scopes, wanted):
            info = f"{self.asked.who.name} lacks {', '.join(missing)}"
            raise CallError(401, "Authorization Failed", {"info": info, "scopesets": [list(wanted)]})

    def demand_graph(self, graph_id: str) -> None:
        """Raise CallError unless its sender's token is for this graph."""
        if not self.asked.who.is_for(graph_id):
            info = f"the token {self.asked.who.name} is for graphs {', '.join(self.asked.who.graphs)} alone"
            raise CallError(401, "Authorization Failed", {"info": info, "scopesets": []})


def response(error: TaskgraphError) -> JSONResponse:
    """The answer that an error is."""
    if isinstance(error, CallError):
        return _response(error.status, str(error), error.error)
    if isinstance(error, NoGraph | DeletedGraph):
        return _response(404, NO_GRAPH, {"info": str(error)})
    if isinstance(error, InvalidGraph):
        found = [{"message": f"{each.message} {each.remedy}", "error": each.pointer} for each in error.problems]
        return _response(400, "Errors found in task nodes", found)
    status = error.status if isinstance(error, Problem) else meaning(error).status
    return _response(status, str(error), None)


def _response(status: int, message: str, error: Any) -> JSONResponse:
    return JSONResponse({"message": message} if error is None else {"message": message, "error": error}, status)
