"""Errors as HTTP answers: problems by RFC 9457, with the words and remedies of the command line."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import JSONResponse

from taskgraph.interfaces import views
from taskgraph.interfaces.meanings import Meaning, meaning
from taskgraph.model.errors import TaskgraphError

MEDIA_TYPE: Final = "application/problem+json"
AGAIN_SECONDS: Final = 1
"""For `Retry-After`, where the store was away or busy."""

_TITLES: Final[Mapping[int, str]] = {
    400: "The request is wrong",
    401: "A token is needed",
    403: "The token does not allow this",
    404: "There is no such thing",
    405: "This cannot be done here",
    406: "The answer has no such form here",
    409: "The state does not allow this",
    412: "What was planned, or read, has moved",
    413: "The body is too large",
    415: "The body is of a kind that is not read here",
    416: "There are no such bytes",
    421: "This server has another name",
    428: "A guard is needed",
    429: "Too many requests",
    500: "The server failed",
    503: "The store does not answer",
}


class Problem(TaskgraphError):
    """What a request gets instead of an answer.

    code: a short stable word. headers, more: what goes with it, and into its body.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        problems: list[dict[str, Any]] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})
        self.more = {**({} if problems is None else {"problems": problems}), **(more or {})}


def title(status: int) -> str:
    return _TITLES.get(status, "The request failed")


def response(error: TaskgraphError) -> JSONResponse:
    """The problem that an error is."""
    if isinstance(error, Problem):
        return _response(Meaning(0, error.code, error.status), str(error), error.more, error.headers)
    found = meaning(error)
    shown = views.error(error, found.word, found.exit_code)["error"]
    more = {name: shown[name] for name in ("problems", "near") if name in shown}
    again = found.status == 503 or found.word == "conflict"
    return _response(found, str(error), more, {"Retry-After": str(AGAIN_SECONDS)} if again else {})


def _response(found: Meaning, detail: str, more: Mapping[str, Any], headers: Mapping[str, str]) -> JSONResponse:
    body = {
        "type": f"urn:taskgraph:problem:{found.word}",
        "title": title(found.status),
        "status": found.status,
        "code": found.word,
        "detail": detail,
        **more,
    }
    return JSONResponse(body, found.status, dict(headers), MEDIA_TYPE)
