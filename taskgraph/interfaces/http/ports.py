"""Routes behind the store of a client over HTTP (`storage.http`): each is one call of a port that reads.

Who may read which partition is in one table. What it does not name is served to no one.
"""

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from taskgraph.documents.read import read_json
from taskgraph.engine.clock_trust import CLOCKS
from taskgraph.engine.notifier import INDEX as NOTICES
from taskgraph.interfaces import views
from taskgraph.interfaces.http import paging
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.http.problems import Problem
from taskgraph.interfaces.http.routes import BASE, Route, read_query
from taskgraph.interfaces.operations.checks import check_schema
from taskgraph.model import limits
from taskgraph.model.budget import PRICES
from taskgraph.model.errors import NotFound, TaskgraphError
from taskgraph.model.ids import is_graph_id
from taskgraph.model.messages import graph_named
from taskgraph.model.names import ALL, KEEPING, LEADS, LIVE, POISON, TOMBSTONES
from taskgraph.model.roles import Role
from taskgraph.protocol.definitions import gathered
from taskgraph.protocol.schedule_rules import SCHEDULES
from taskgraph.queries.targets import GATES
from taskgraph.queries.workers import WORKERS
from taskgraph.storage import tables
from taskgraph.storage.tables import Page, Range, Row

KEYS_MAX: Final = 100
"""Keys of a request, so that its address stays short."""

FILE_BYTES_MAX: Final = 4 << 20
_READS_AT_ONCE: Final = 16
_OCTETS: Final = "application/octet-stream"
_EVENTS: Final = "events"
_ANY: Final = "(?s).+"  # what a store says of where its next page begins

T = TypeVar("T")


def _by_key(row: Row) -> str:
    return row.key.rpartition(":")[2]


def _by_message(row: Row) -> str:
    return graph_named(gathered(row.columns, "body"))


@dataclass(frozen=True, slots=True)
class _Index:
    """role: who gets all of the partition, if the token is for all graphs.

    about: the graph that a row is about, "" for none; others get the rows about graphs of their scope. columns: without
    `about`, a token for some graphs gets these of every row. Otherwise others get nothing.
    """

    role: Role = Role.READER
    about: Callable[[Row], str] | None = None
    columns: frozenset[str] = frozenset()


_WHOLE: Final = _Index()
_INDEXES: Final[Mapping[str, _Index]] = {
    ALL: _Index(about=_by_key),
    LIVE: _Index(about=_by_key),
    NOTICES: _Index(about=_by_key),
    TOMBSTONES: _Index(about=_by_key),
    POISON: _Index(Role.ADMIN, about=_by_message),
    # Why a task waits has to do with targets and workers, and not with what these do for other graphs.
    GATES: _Index(columns=frozenset({"schema", "since", "until", "used", "max", "reason"})),
    WORKERS: _Index(
        columns=frozenset(
            {"schema", "name", "host", "version", "draining", "targets", "labels", "executors", "slots", "busy"}
            | {"pid", "every", "since", "seen", "exit", "kind", "gone"}
        )
    ),
    SCHEDULES: _WHOLE,
    PRICES: _Index(columns=frozenset({"schema", "prices", "updated"})),
    KEEPING: _Index(Role.ADMIN),
    LEADS: _Index(Role.ADMIN),
    CLOCKS: _Index(Role.ADMIN),
}
"""Partitions beside those of graphs. Of a graph any reader gets all rows, if the graph is in the scope of the token."""


async def rows(asked: Asked) -> Any:
    """Rows by their keys, null for one that there is not; or a page of a range."""
    query, partition = asked.query, asked.path["partition"]
    if _entered(asked, partition) == _WHOLE and not query["key"]:
        page = await _checked(tables.query_text(asked.app.tables, partition, **_wanted(asked)))
        if page is not None:
            rest = json.dumps(_rest(asked, page.continuation))
            return Response(f'{{"rows":[{page.text}],"next":{rest}}}', media_type="application/json")  # `stored_rows`
    return await _rows(asked)


async def _rows(asked: Asked) -> Any:
    """The same, made of values."""
    query, partition = asked.query, asked.path["partition"]
    index = _entered(asked, partition)
    if index.columns and not index.columns.issuperset(_where(asked)):
        raise Problem(403, "scope", f"the token {asked.who.name} sees only some columns of {partition}")
    if keys := query["key"]:
        if len(keys) > KEYS_MAX:
            raise Problem(400, "invalid-query", f"{len(keys)} keys; {KEYS_MAX} are allowed")
        found = await _checked(asked.app.tables.get(partition, keys))
        shown = [None if row is None or not _seen(asked, index, row) else _part(index, row) for row in found]
        return views.stored_rows(shown, None)
    page: Page = await _checked(asked.app.tables.query(partition, **_wanted(asked)))
    seen = [_part(index, row) for row in page.rows if _seen(asked, index, row)]
    return views.stored_rows(seen, _rest(asked, page.continuation))


def _where(asked: Asked) -> dict[str, list[str]]:
    return {name: texts for name, texts in asked.query["where."].items() if texts}


def _wanted(asked: Asked) -> dict[str, Any]:
    """What `query` is asked for beside the partition."""
    query = asked.query
    wanted = Range(query["start"] or "", query["end"] or "", _where(asked), query["select"] or None)
    return {"rows": wanted, "limit": query["limit"], "continuation": paging.after(asked, _ANY) or None}


def _rest(asked: Asked, continuation: str | None) -> str | None:
    return paging.token(asked, continuation) if continuation else None


async def reads(route: Route, asked: Asked) -> Any:
    """What `rows` gives for each of some addresses; None once there are rows enough, and for one that has a problem.

    That one is asked for by itself then, and gets its problem. route: of `rows`.
    """
    addresses = read_json(await asked.body(), source="body")
    check_schema("reads", "addresses", addresses, "body")

    async def read(address: str) -> Any:
        place = urlsplit(address)
        path = unquote(place.path)
        request = Request({**asked.request.scope, "path": BASE + path})  # pages go with the path of their list
        try:
            query = read_query(route, parse_qsl(place.query, keep_blank_values=True))
            named = {"partition": path.split("/")[2]}
            return await _rows(dataclasses.replace(asked, request=request, path=named, query=query))
        except TaskgraphError:  # reach: http
            return None

    answers: list[Any] = []
    for start in range(0, len(addresses), _READS_AT_ONCE):
        if sum(len(each["rows"]) for each in answers if each) >= limits.PAGE_ROWS_MAX:
            break
        answers += await asyncio.gather(*map(read, addresses[start : start + _READS_AT_ONCE]))
    return views.stored_reads(answers + [None] * (len(addresses) - len(answers)))


def _entered(asked: Asked, partition: str) -> _Index:
    """What its sender may see of a partition. Raises Problem."""
    who = asked.who
    scope = f"the token {who.name} is for graphs {', '.join(who.graphs)} alone"
    if is_graph_id(partition):
        if not who.is_for(partition):
            raise Problem(403, "scope", f"{scope}, and not for {partition}")
        return _WHOLE
    index = _INDEXES.get(partition)
    if index is None:
        raise Problem(403, "partition", f"rows of {partition[:100]} are served to no one")
    if not who.graphs and who.role.may(index.role):
        return _WHOLE
    if index.about is not None:
        return index
    if not who.role.may(index.role):
        words = f"{partition} needs the role {index.role}; the token {who.name} has the role {who.role}"
        raise Problem(403, "role", words)
    if not index.columns:
        raise Problem(403, "scope", scope)
    return index


def _seen(asked: Asked, index: _Index, row: Row) -> bool:
    if index.about is None:
        return True
    graph_id = index.about(row)
    return bool(graph_id) and asked.who.is_for(graph_id)


def _part(index: _Index, row: Row) -> Row:
    if not index.columns:
        return row
    return Row(row.key, row.etag, {name: row.columns[name] for name in row.columns.keys() & index.columns})


async def _checked(call: Awaitable[T]) -> T:
    """What a call of a port gives. Raises Problem where no store takes it."""
    try:
        return await call
    except ValueError as error:
        raise Problem(400, "invalid-query", str(error)) from error


async def run_files(asked: Asked) -> Any:
    """A page of the files of the runs of a graph."""
    page = await _checked(asked.app.logs.files(asked.graph, continuation=paging.after(asked, _ANY) or None))
    rest = paging.token(asked, page.continuation) if page.continuation else None
    return views.run_files(asked.graph, dataclasses.replace(page, continuation=rest))


async def run_file(asked: Asked) -> Response:
    """Bytes of one of them, from a place on; none at its end."""
    path, run = asked.path, asked.path["run"]
    if not (run.isascii() and run.isdigit() and len(run) < 10):
        raise Problem(400, "invalid-path", f"{run[:20]} is no number of a run")
    read = asked.app.logs.read(
        *(asked.graph, path["task"], int(run)),
        offset=asked.query["offset"],
        limit=asked.query["limit"],
        name=path["file"],
    )
    data = await _checked(read)
    if data is None:
        raise NotFound(f"run {run} has left no {path['file'][:100]}")
    return Response(data, media_type=_OCTETS)


async def queue(asked: Asked) -> Any:
    """About how many messages a queue holds: that of the events, or one of a target."""
    app, name = asked.app, asked.path["queue"]
    names: Sequence[str] = [f"{app.names.prefix}-{name}"]
    if name == _EVENTS:
        names = await _checked(app.event_queues())
    return views.queue_length(name, sum([await _checked(app.queues.count(each)) for each in names]))
