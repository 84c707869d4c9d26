"""Rows over HTTP: one request for a call, but for many keys."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from taskgraph.model import column_json
from taskgraph.model.errors import IntegrityError
from taskgraph.storage import checks
from taskgraph.storage.http.calls import Server, path_of
from taskgraph.storage.http.refusal import only_the_server
from taskgraph.storage.tables import Change, Page, Range, Row

_KEYS_MAX: Final = 100  # of a request; a server takes no more


class HttpTables:
    def __init__(self, server: Server) -> None:
        self._server = server

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        checks.check_get(partition, keys)
        found: list[Row | None] = []
        for start in range(0, len(keys), _KEYS_MAX):
            some = keys[start : start + _KEYS_MAX]
            answer = await self._ask(partition, [("key", each) for each in some])
            if len(answer["rows"]) != len(some):
                raise IntegrityError(f"{self._server.address} gives {len(answer['rows'])} rows for {len(some)} keys")
            found += [None if each is None else _row(each) for each in answer["rows"]]
        return found

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        checks.check_query(partition, rows, limit)
        query = [("limit", str(limit))]
        query += [(name, text) for name, text in (("start", rows.start), ("end", rows.end)) if text]
        query += [(f"where.{name}", text) for name, texts in rows.where.items() for text in texts]
        query += [("select", name) for name in rows.select or ()]
        if continuation is not None:
            query.append(("page", continuation))
        answer = await self._ask(partition, query)
        return Page([_row(each) for each in answer["rows"]], answer["next"])

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        raise only_the_server(self._server.address)

    async def _ask(self, partition: str, query: Sequence[tuple[str, str]]) -> Any:
        return await self._server.get(path_of("partitions", partition, "rows"), query)


def _row(found: Mapping[str, Any]) -> Row:
    columns = {name: column_json.read(value) for name, value in found["columns"].items()}
    return Row(found["key"], found["etag"], columns)
