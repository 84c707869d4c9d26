"""Rows over HTTP: calls that are made at once, as by `asyncio.gather`, go in one request."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from taskgraph.model import column_json
from taskgraph.model.errors import IntegrityError
from taskgraph.storage import checks
from taskgraph.storage.http.calls import Query, Server, path_of
from taskgraph.storage.http.refusal import only_the_server
from taskgraph.storage.tables import Change, Page, Range, Row

_KEYS_MAX: Final = 100  # of a call; a server takes no more
_CALLS_MAX: Final = 64  # of a request; the same
_READS: Final = "/reads"

_Call = tuple[str, asyncio.Future[Any]]
"""An address, and the answer to come; None where it is to be asked for by itself."""


class HttpTables:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._made: list[_Call] = []
        self._sending: set[asyncio.Task[None]] = set()

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

    async def _ask(self, partition: str, query: Query) -> Any:
        path = path_of("partitions", partition, "rows")
        loop = asyncio.get_running_loop()
        if not self._made:
            loop.call_soon(self._send)  # after all tasks that are about to begin
        self._made.append((f"{path}?{urlencode(query)}", answer := loop.create_future()))
        found = await answer
        return await self._server.get(path, query) if found is None else found

    def _send(self) -> None:
        made, self._made = self._made, []
        for start in range(0, len(made), _CALLS_MAX):
            calls = made[start : start + _CALLS_MAX]
            sending = asyncio.create_task(self._answer(calls))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
            for _, answer in calls:
                answer.add_done_callback(partial(_end_if_unwanted, calls, sending))

    async def _answer(self, calls: Sequence[_Call]) -> None:
        answers: Sequence[Any] = [None] * len(calls)
        try:
            if len(calls) > 1:
                answers = (await self._server.get(_READS, body=[address for address, _ in calls]))["answers"]
        except Exception as error:  # reach: http
            for _, waiting in calls:
                if not waiting.done():
                    waiting.set_exception(error)
            return
        for (_, waiting), found in zip(calls, answers, strict=True):
            if not waiting.done():
                waiting.set_result(found)


def _end_if_unwanted(calls: Sequence[_Call], sending: asyncio.Task[None], _: asyncio.Future[Any]) -> None:
    """Calls that were cancelled are done too."""
    if all(answer.done() for _, answer in calls):
        sending.cancel()


def _row(found: Mapping[str, Any]) -> Row:
    columns = {name: column_json.read(value) for name, value in found["columns"].items()}
    return Row(found["key"], found["etag"], columns)
