"""The errors that old clients know: `{message, error}`."""

from typing import Any, Final

from starlette.responses import JSONResponse

from taskgraph.interfaces.http.problems import Problem
from taskgraph.interfaces.meanings import meaning
from taskgraph.model.errors import DeletedGraph, InvalidGraph, NoGraph, TaskgraphError

NO_GRAPH: Final = "task-graph not found!"


class CallError(TaskgraphError):
    """What an old client gets in place of an answer. error: more about it, of any JSON form."""

    def __init__(self, status: int, message: str, error: Any = None) -> None:
        super().__init__(message)
        self.status = status
        self.error = error


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
