"""Tables over Azure Table Storage: one entity group transaction for each commit.

What this room is for: the port Tables in the words of azure-data-tables. It never retries a write, and never turns a
value into the text of a filter itself. A table comes into being at the first write, and again after it was deleted;
until then it reads as empty.
"""

import base64
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError
from azure.data.tables import EntityProperty, RequestTooLargeError, TableEntity, TableTransactionError, UpdateMode
from azure.data.tables.aio import TableClient

from taskgraph.errors import Conflict, StorageError, TooLarge, Unclear
from taskgraph.storage import checks
from taskgraph.storage.azure_calls import COMMIT_SECONDS, Caller, Repeat, code_of, in_parallel
from taskgraph.storage.tables import Change, Columns, Delete, Insert, Merge, Page, Range, Row, Value

_Operation = tuple[str, dict[str, Any], Mapping[str, Any]]

_TOO_LARGE: Final = frozenset(
    {"EntityTooLarge", "PropertyValueTooLarge", "RequestBodyTooLarge", "TooManyProperties", "KeyValueTooLarge"}
)
_CONFLICTS: Final = frozenset({(409, "EntityAlreadyExists"), (404, "ResourceNotFound"), (404, "EntityNotFound")})
_NO_CONTENT: Final = {"response_preference": "return-no-content"}  # the row need not come back to us
_KEYS: Final = ("PartitionKey", "RowKey")


class AzureTables:
    """Port Tables; see taskgraph/storage/tables.py for the promises."""

    def __init__(self, caller: Caller, make_client: Callable[[], TableClient], name: str) -> None:
        self._caller = caller
        self._make_client = make_client
        self._client: TableClient | None = None
        self._name = name

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        """See Tables. One point read for each key: a filter over many keys would read the whole partition."""
        checks.check_get(partition, keys)
        if not keys:
            return []
        client = self._open()

        async def one(key: str) -> Row | None:
            try:
                entity = await self._caller.call(lambda: client.get_entity(partition, key), Repeat.ALWAYS)
            except HttpResponseError as error:
                if _is_missing(error):
                    return None
                raise self._told(error) from error
            return _row(entity)

        return await in_parallel(one, keys)

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        """See Tables."""
        checks.check_query(partition, rows, limit)
        if any(not texts for texts in rows.where.values()):
            return Page(())  # a column cannot equal one of none
        client = self._open()
        condition, parameters = _filter(partition, rows)
        # Timestamp: the SDK makes the etag from it where the service leaves the etag out of a selection.
        select = None if rows.select is None else ["RowKey", "Timestamp", *rows.select]
        token: Any = None if continuation is None else dict(zip(_KEYS, json.loads(continuation), strict=True))

        async def page() -> Page:
            pages = client.query_entities(
                condition, parameters=parameters, select=select, results_per_page=limit
            ).by_page(continuation_token=token)
            async for entities in pages:
                found = [_row(entity) async for entity in entities]
                rest: Any = pages.continuation_token  # type: ignore[attr-defined]
                return Page(found, json.dumps([rest.get(key) for key in _KEYS]) if rest else None)
            return Page(())

        try:
            return await self._caller.call(page, Repeat.ALWAYS)
        except HttpResponseError as error:
            if code_of(error) == "TableNotFound":
                return Page(())
            raise self._told(error) from error

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        """See Tables."""
        checks.check_commit(partition, changes)
        client = self._open()
        if len(changes) == 1 and not isinstance(changes[0], Delete):
            change, entity = changes[0], _entity(partition, changes[0].key, changes[0].columns)
            return await self._write(lambda: _write_one(client, change, entity), changes)
        # A delete goes in a transaction even alone: the SDK reports the deletion of a missing row as a success.
        operations = [_operation(partition, change) for change in changes]
        return await self._write(lambda: _write_all(client, operations), changes)

    async def close(self) -> None:
        """Nothing: the connections belong to the store."""

    async def _write(
        self, work: Callable[[], Awaitable[list[str | None]]], changes: Sequence[Change]
    ) -> list[str | None]:
        async def once() -> list[str | None]:
            try:
                etags = await work()
            except AzureError:
                raise
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                # The SDK stumbled over an answer, such as a page of a proxy: what was asked may have been done.
                raise Unclear(f"the answer of {self._caller.endpoint} makes no sense") from error
            if len(etags) != len(changes):
                raise Unclear(f"the answer of {self._caller.endpoint} is short of {len(changes)} rows")
            return etags

        try:
            try:
                return await self._caller.call(once, Repeat.NEVER)
            except HttpResponseError as error:
                if code_of(error) != "TableNotFound":
                    raise
            await self._create()  # nothing was written, so this is the first try still
            return await self._caller.call(once, Repeat.NEVER)
        except HttpResponseError as error:
            raise self._told(error, changes) from error

    async def _create(self) -> None:
        client = self._open()
        try:
            await self._caller.call(client.create_table, Repeat.ALWAYS)
        except HttpResponseError as error:
            if code_of(error) != "TableAlreadyExists":
                raise self._told(error) from error

    def _open(self) -> TableClient:
        if self._client is None:
            self._client = self._make_client()
        return self._client

    def _told(self, error: HttpResponseError, changes: Sequence[Change] = ()) -> StorageError:
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


async def _write_one(client: TableClient, change: Insert | Merge, entity: dict[str, Any]) -> list[str | None]:
    if isinstance(change, Insert):
        answer = await client.create_entity(entity, read_timeout=COMMIT_SECONDS, **_NO_CONTENT)
    else:
        answer = await client.update_entity(
            entity,
            UpdateMode.MERGE,
            etag=change.etag,
            match_condition=MatchConditions.IfNotModified,
            read_timeout=COMMIT_SECONDS,
        )
    return [_etag_of(answer)]


async def _write_all(client: TableClient, operations: Sequence[_Operation]) -> list[str | None]:
    try:
        answers = await client.submit_transaction(operations, read_timeout=COMMIT_SECONDS)
    except RequestTooLargeError as error:  # the SDK hides the status of this one behind that of the whole batch
        raise TooLarge(f"a commit of {len(operations)} rows: the service answers 413 {code_of(error)}") from error
    return [
        None if kind == "delete" else _etag_of(answer) for (kind, _, _), answer in zip(operations, answers, strict=True)
    ]


def _etag_of(answer: Mapping[str, Any]) -> str:
    etag = answer["etag"]
    if not etag:
        raise ValueError("an answer without an etag")
    return str(etag)


def _operation(partition: str, change: Change) -> _Operation:
    match change:
        case Insert():
            return "create", _entity(partition, change.key, change.columns), _NO_CONTENT
        case Merge():
            condition = {
                "etag": change.etag,
                "match_condition": MatchConditions.IfNotModified,
                "mode": UpdateMode.MERGE,
            }
            return "update", _entity(partition, change.key, change.columns), condition
        case Delete():
            condition = {"etag": change.etag, "match_condition": MatchConditions.IfNotModified}
            return "delete", _entity(partition, change.key, {}), condition


def _entity(partition: str, key: str, columns: Columns) -> dict[str, Any]:
    entity: dict[str, Any] = {"PartitionKey": partition, "RowKey": key}
    for name, value in columns.items():
        entity[name] = _sent(value)
    return entity


def _sent(value: Value) -> object:
    """A value in the form that the SDK sends as the type it has."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)  # members of enumerations too
    if isinstance(value, int):
        return int(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return float(value)


def _filter(partition: str, rows: Range) -> tuple[str, dict[str, str]]:
    """The filter of a range with its parameters: names in the text are checked names of columns, values never are."""
    parts = ["PartitionKey eq @partition"]
    parameters = {"partition": partition}
    if rows.start:
        parts.append("RowKey ge @start")
        parameters["start"] = rows.start
    if rows.end:
        parts.append("RowKey lt @end")
        parameters["end"] = rows.end
    for name, texts in rows.where.items():
        choices = []
        for text in texts:
            parameter = f"value{len(parameters)}"
            parameters[parameter] = text
            choices.append(f"{name} eq @{parameter}")
        parts.append(f"( {' or '.join(choices)} )")  # the SDK finds parameters between spaces
    return " and ".join(parts), parameters


def _row(entity: TableEntity) -> Row:
    columns = {
        name: value if type(value) is str else _received(value)
        for name, value in entity.items()
        if value is not None and name not in _KEYS
    }
    return Row(str(entity.get("RowKey", "")), str(entity.metadata["etag"]), columns)


def _received(value: object) -> Value:
    if isinstance(value, datetime):  # the SDK's own kind, which would write itself back as it came
        return datetime.combine(value.date(), value.time(), UTC)
    if isinstance(value, (str, bool, int, float)):
        return value
    # Types that this product does not write; another writer's columns are shown as well as the port can.
    if isinstance(value, EntityProperty):
        return _received(value.value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return str(value)  # a GUID


def _is_missing(error: HttpResponseError) -> bool:
    return error.status_code == 404 and code_of(error) in ("ResourceNotFound", "EntityNotFound", "TableNotFound")


def _index(error: HttpResponseError, count: int) -> int | None:
    """Which change failed. The service writes it before its message; the SDK reads 0 where there is none."""
    if count == 1:
        return 0
    if not isinstance(error, TableTransactionError):
        return None
    number = (error.message or "").split(":", 1)[0].strip()
    return int(number) if number.isdigit() and int(number) < count else None
