"""Tokens that open the HTTP API: make one, list them, take one back, and say what one may do.

A token is `tg.NAME.SECRET`. The store keeps the SHA-256 of it, so that it is seen once, when it is made. A secret of
two ids (244 random bits) needs no slow hash. Hawk signs with the token itself, so of one that is made for Hawk the
store keeps the text.
"""

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final

from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations.checks import asked_by
from taskgraph.model import limits
from taskgraph.model.columns import texts, time_of
from taskgraph.model.errors import Conflict, InvalidInput, NotFound, Refused
from taskgraph.model.ids import is_graph_id
from taskgraph.model.json_strict import show
from taskgraph.model.names import TOKENS
from taskgraph.model.roles import Role
from taskgraph.queries.lookup import check_graph_id, nearest
from taskgraph.storage.tables import Delete, Insert, Range, Row, query_all

_MARK: Final = "tg"
_CAPITALS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TARGET_CHARS_MAX: Final = 40
_ID_CHARS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_*?"


@dataclass(frozen=True, slots=True)
class Token:
    """graphs: patterns of the ids that it is for, none for all and for the store itself. until: None for ever.

    targets: patterns of those of which a worker may take tasks, none for all. hawk: whether it may sign by Hawk.
    """

    name: str
    role: Role
    graphs: Sequence[str] = ()
    created: datetime | None = None
    until: datetime | None = None
    by: str = ""
    hawk: bool = False
    targets: Sequence[str] = ()

    def takes_of(self, target: str) -> bool:
        return not self.targets or any(fnmatchcase(target, each) for each in self.targets)

    def is_for(self, graph_id: str) -> bool:
        return not self.graphs or any(fnmatchcase(graph_id, each) for each in self.graphs)


async def create(
    app: App,
    name: str,
    role: Role,
    *,
    graphs: Sequence[str] = (),
    targets: Sequence[str] = (),
    days: float | None = None,
    hawk: bool = False,
) -> tuple[Token, str]:
    """A new token, and its text. days: until it ends. Raises InvalidInput, and Refused where the name is taken."""
    app.check_direct("making a token")
    check_graph_id(name, "a token", new=True)
    for each in graphs:
        if not each or len(each) > limits.GRAPH_ID_CHARS_MAX or not set(each) <= set(_ID_CHARS):
            raise InvalidInput(f"{show(each)} is no pattern of ids: letters, digits, - and _, with * and ?")
    if len(graphs) > limits.TOKEN_GRAPHS_MAX:
        raise InvalidInput(f"{len(graphs)} patterns of graphs; {limits.TOKEN_GRAPHS_MAX} are allowed")
    for each in targets:
        if not each or len(each) > _TARGET_CHARS_MAX or not set(each) <= set(_ID_CHARS) - set(_CAPITALS):
            raise InvalidInput(f"{show(each)} is no pattern of targets: small letters, digits and -, with * and ?")
    if len(targets) > limits.TOKEN_GRAPHS_MAX:
        raise InvalidInput(f"{len(targets)} patterns of targets; {limits.TOKEN_GRAPHS_MAX} are allowed")
    if role is Role.WORKER and graphs:
        raise InvalidInput("a token of a worker is for targets, and not for some graphs")
    if role is not Role.WORKER and targets:
        raise InvalidInput(f"targets are for tokens of workers, and this is a {role}'s")
    if days is not None and not 0 < days <= limits.TOKEN_DAYS_MAX:
        raise InvalidInput(f"{days:g} days: more than 0, and at most {limits.TOKEN_DAYS_MAX:,}")
    now = app.clock.now()
    until = None if days is None else now + timedelta(days=days)
    made = Token(name, role, tuple(graphs), now, until, asked_by(), hawk, tuple(targets))
    text = f"{_MARK}.{name}.{app.clock.new_id()}{app.clock.new_id()}"
    ends = {} if until is None else {"until": until}
    plain = {"secret": text} if hawk else {}
    own = {"targets": json.dumps(list(targets))} if targets else {}
    kept = {"role": str(role), "graphs": json.dumps(list(graphs)), "hash": _digest(text), "by": made.by, **own}
    try:
        await app.tables.commit(TOKENS, [Insert(name, {**kept, **plain, "created": now, **ends})])
    except Conflict as error:  # reach: http
        raise Refused(f"there is a token {name} already; revoke it first, or choose another name", "exists") from error
    return made, text


async def listed(app: App) -> list[Token]:
    """All of them, by name, also those that have ended."""
    app.check_direct("listing tokens")
    return [_token(row) for row in await query_all(app.tables, TOKENS, Range())]


async def revoke(app: App, name: str) -> Token:
    """Take a token back. Raises NotFound, with the nearest names."""
    app.check_direct("revoking a token")
    check_graph_id(name, "a token")
    (row,) = await app.tables.get(TOKENS, [name])
    if row is None:
        names = [each.name for each in await listed(app)]
        raise NotFound(f"there is no token {name}", nearest(name, names))
    await app.tables.commit(TOKENS, [Delete(row.key, row.etag)])
    return _token(row)


async def find(app: App, text: str) -> Token | None:
    """The token of this text, if it is one and has not ended: one read."""
    mark, _, rest = text.partition(".")
    name, dot, _ = rest.partition(".")
    if (
        mark != _MARK
        or not dot
        or not name
        or len(text) > limits.TOKEN_CHARS_MAX
        or not set(name) <= set(_ID_CHARS[:-2])
    ):
        return None
    (row,) = await app.tables.get(TOKENS, [name])
    if row is None or not hmac.compare_digest(str(row.columns.get("hash", "")), _digest(text)):
        return None
    return _unless_ended(app, row)


async def for_hawk(app: App, name: str) -> tuple[Token, str] | None:
    """The token of this name and its text, if it is for Hawk and has not ended: one read."""
    if not is_graph_id(name):
        return None
    (row,) = await app.tables.get(TOKENS, [name])
    text = str(row.columns.get("secret", "")) if row is not None else ""
    found = _unless_ended(app, row) if row is not None and text else None
    return (found, text) if found is not None else None


def _unless_ended(app: App, row: Row) -> Token | None:
    found = _token(row)
    return found if found.until is None or app.clock.now() < found.until else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _token(row: Row) -> Token:
    columns = row.columns
    return Token(
        row.key,
        Role(str(columns.get("role", ""))),
        tuple(texts(columns, "graphs")),
        time_of(columns, "created"),
        time_of(columns, "until"),
        str(columns.get("by", "")),
        "secret" in columns,
        tuple(texts(columns, "targets")),
    )
