"""What the problems of a server (RFC 9457) mean here: the errors that it had, with their words and places."""

import json
from collections.abc import Mapping
from typing import Any, Final

from taskgraph.model import errors
from taskgraph.model.errors import InvalidGraph, NotFound, Problem, Refused, StorageUnavailable, TaskgraphError

_NO_ROUTE: Final = "no-route"
_BY_CODE: Final[Mapping[str, type[TaskgraphError]]] = {
    "too-large": errors.TooLarge,
    "invalid-settings": errors.InvalidSettings,
    "integrity": errors.IntegrityError,
    "bug": errors.IntegrityError,
}


def error_of(address: str, status: int, body: bytes) -> TaskgraphError:
    """address: of the server."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or not isinstance(problem.get("detail"), str):
        return strange(address, status)
    code, detail = str(problem.get("code", "")), str(problem["detail"])
    listed = [each for each in problem.get("problems", ()) if isinstance(each, dict)]
    if code == "invalid-graph":
        return InvalidGraph([_problem(each) for each in listed], detail.partition(":")[0])
    if (kind := _BY_CODE.get(code)) is not None:
        return kind(detail)
    match status:
        case 401:
            asks = f"{address} asks for a token" if code == "no-token" else f"{address} does not let us in: {detail}"
            return errors.InvalidSettings(f"{asks}; give one by TASKGRAPH_TOKEN, in Python Client(token=…)")
        case 403:
            return Refused(f"{address} refuses it: {detail}; give another token by TASKGRAPH_TOKEN", code)
        case 404 if code != _NO_ROUTE:
            return NotFound(detail, [str(each) for each in problem.get("near", ())])
        case 404 | 405 | 421:
            return errors.InvalidSettings(f"{address}: {detail}")
        case 409 | 412 | 428:
            return errors.Conflict(detail) if code == "conflict" else Refused(detail, code)
        case 400 | 413 | 415 | 416:
            more = [str(each["message"]) for each in listed if "message" in each]
            return errors.InvalidInput("; ".join([detail, *more]))
    return StorageUnavailable(f"{address} answers: {detail}", address)


def _problem(found: Mapping[str, Any]) -> Problem:
    pointer, code, message, remedy = (str(found.get(name, "")) for name in ("pointer", "code", "message", "remedy"))
    return Problem(pointer, code, message, remedy, found.get("line"), found.get("source"))


def strange(address: str, status: int) -> TaskgraphError:
    """For an answer that is none of a server of ours: perhaps of what stands before it."""
    if status >= 500 or status == 429:
        return StorageUnavailable(f"{address} answers {status}", address)
    return errors.InvalidSettings(f"{address} answers {status}, and not as a server of taskgraph: is that its address?")
