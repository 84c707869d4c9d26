"""Tables over Azure Table Storage: one entity group transaction for each commit.

A table comes into being at the first write, and again after it was deleted; until then it reads as empty.
"""

import json
from collections.abc import Sequence
from typing import Final

from azure.core.exceptions import HttpResponseError

from taskgraph.model.errors import Conflict, StorageError, TooLarge, Unclear
from taskgraph.storage import checks
from taskgraph.storage.azure.calls import Caller, Repeat, code_of, in_parallel
from taskgraph.storage.azure.table_requests import Place, TableCalls
from taskgraph.storage.azure.wire import Refusal
from taskgraph.storage.tables import Change, Page, Range, Row

_TOO_LARGE: Final = frozenset(
    {"EntityTooLarge", "PropertyValueTooLarge", "RequestBodyTooLarge", "TooManyProperties", "KeyValueTooLarge"}
)
_MISSING: Final = frozenset({"ResourceNotFound", "EntityNotFound", "TableNotFound"})
_CONFLICTS: Final = frozenset({(409, "EntityAlreadyExists"), (404, "ResourceNotFound"), (404, "EntityNotFound")})


class AzureTables:
    def __init__(self, caller: Caller, calls: TableCalls, name: str) -> None:
        self._caller = caller
        self._calls = calls
        self._name = name

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        """One point read for each key: a filter over many keys would read the whole partition."""
        checks.check_get(partition, keys)
        if not keys:
            return []

        async def one(key: str) -> Row | None:
            try:
                return await self._caller.call(lambda: self._calls.get(partition, key), Repeat.ALWAYS)
            except HttpResponseError as error:
                if error.status_code == 404 and code_of(error) in _MISSING:
                    return None
                raise self._error_for(error) from error

        return await in_parallel(one, keys)

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        checks.check_query(partition, rows, limit)
        if any(not texts for texts in rows.where.values()):
            return Page(())  # a column cannot equal one of none
        place: Place | None = None if continuation is None else tuple(json.loads(continuation))
        try:
            found, rest = await self._caller.call(
                lambda: self._calls.page(partition, rows, limit, place), Repeat.ALWAYS
            )
        except HttpResponseError as error:
            if code_of(error) == "TableNotFound":
                return Page(())
            raise self._error_for(error) from error
        return Page(found, json.dumps(rest) if rest else None)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        checks.check_commit(partition, changes)

        async def once() -> list[str | None]:
            try:
                etags = await self._calls.write(partition, changes)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                # An answer without sense, such as a page of a proxy: what was asked may have been done.
                raise Unclear(f"the answer of {self._caller.endpoint} makes no sense") from error
            if len(etags) != len(changes):
                raise Unclear(f"the answer of {self._caller.endpoint} is short of {len(changes)} rows")
            return etags

        try:
            return await self._caller.call(once, Repeat.NEVER, missing=("TableNotFound",), make=self._create)
        except HttpResponseError as error:
            raise self._error_for(error, changes) from error

    async def _create(self) -> None:
        try:
            await self._caller.create(self._calls.create, "TableAlreadyExists")
        except HttpResponseError as error:
            raise self._error_for(error) from error

    def _error_for(self, error: HttpResponseError, changes: Sequence[Change] = ()) -> StorageError:
        code, status = code_of(error), error.status_code
        if code == "TableBeingDeleted":
            return self._caller.unavailable(error)
        if status == 413 or code in _TOO_LARGE:
            return TooLarge(f"table {self._name}: the service answers {status} {code}")
        if changes and (status == 412 or (status, code) in _CONFLICTS):
            index = _index(error, len(changes))
            place = "a row" if index is None else f"row {changes[index].key!r}"
            return Conflict(f"{place} of table {self._name}: {code}", index)
        return self._caller.refused(error)


def _index(error: HttpResponseError, count: int) -> int | None:
    """Which change failed. The service writes it before its message."""
    if count == 1:
        return 0
    number = error.text.split(":", 1)[0].strip() if isinstance(error, Refusal) else ""
    return int(number) if number.isdigit() and int(number) < count else None
