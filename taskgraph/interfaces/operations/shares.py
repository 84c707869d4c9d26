"""Share tokens: each lets its holder read one graph until a time, over HTTP.

A share token is `tgs.GRAPH.END.SIGNATURE`, with its end in seconds since 1970. No list is kept: the row `shares` among
those of tokens holds the secret that signs all of them, so revoking the token `shares` ends them all, and the next one
has a new secret. They read, and no more: who can read the rows of the store can forge one, and gains nothing by it.
"""

import base64
import contextlib
import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from typing import Final

from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations.checks import asked_by, over_http
from taskgraph.interfaces.operations.tokens import Token
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, InvalidInput, Refused, Unclear
from taskgraph.model.ids import is_graph_id
from taskgraph.model.names import TOKENS
from taskgraph.model.roles import Role
from taskgraph.storage.tables import Insert

NAME: Final = "shares"
MARK: Final = "tgs."
HOURS_DEFAULT: Final = 24.0
_COLUMN: Final = "shareSecret"
_END_DIGITS_MAX: Final = 11


@over_http("share")
async def share(app: App, graph_id: str, *, hours: float = HOURS_DEFAULT) -> tuple[Token, str]:
    """A token that reads this graph for so long, and its text. Raises InvalidInput, NotFound, Refused."""
    if not 0 < hours <= limits.SHARE_HOURS_MAX:
        raise InvalidInput(f"{hours:g} hours: more than 0, and at most {limits.SHARE_HOURS_MAX:,}")
    await app.queries.graph_row(graph_id)
    secret = await _secret(app)
    if not secret:
        kept = {"role": str(Role.READER), "graphs": "[]", "hash": "", "by": asked_by()}
        fresh = app.clock.new_id() + app.clock.new_id()
        # Another call was first, or this one, or a token has the name.
        with contextlib.suppress(Conflict, Unclear):  # reach: http
            await app.tables.commit(TOKENS, [Insert(NAME, {**kept, _COLUMN: fresh, "created": app.clock.now()})])
        secret = await _secret(app)
    if not secret:
        raise Refused(
            f"there is a token named {NAME}, which is the name of what signs share tokens: revoke it first "
            f"(taskgraph token revoke {NAME})",
            "exists",
        )
    now = app.clock.now()
    until = (now + timedelta(hours=hours)).replace(microsecond=0)
    said = f"{MARK}{graph_id}.{int(until.timestamp())}"
    return _token(graph_id, until, created=now, by=asked_by()), f"{said}.{_signature(secret, said)}"


async def find(app: App, text: str) -> Token | None:
    """The token of this text, if the secret of the store has signed it and it has not ended: one read."""
    said, _, signature = text.rpartition(".")
    graph_id, _, end = said.removeprefix(MARK).partition(".")
    if not (is_graph_id(graph_id) and end.isascii() and end.isdigit() and len(end) <= _END_DIGITS_MAX):
        return None
    secret = await _secret(app)
    if not secret or not hmac.compare_digest(_signature(secret, said).encode(), signature.encode()):
        return None
    until = datetime.fromtimestamp(int(end), UTC)
    return _token(graph_id, until) if app.clock.now() < until else None


def _token(graph_id: str, until: datetime, created: datetime | None = None, by: str = "") -> Token:
    return Token(f"share of {graph_id}", Role.READER, (graph_id,), created, until, by)


async def _secret(app: App) -> str:
    """What signs; "" where nothing has been shared yet, or a token of people has the name."""
    (row,) = await app.tables.get(TOKENS, [NAME])
    return str(row.columns.get(_COLUMN, "")) if row is not None else ""


def _signature(secret: str, said: str) -> str:
    digest = hmac.digest(secret.encode(), said.encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
