"""Requests to Azure Table Storage through azure-data-tables.

The reference beside `table_requests`, held to the same promises by the same tests. It never turns a value into the text
of a filter itself.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from azure.core import MatchConditions
from azure.data.tables import EntityProperty, RequestTooLargeError, TableEntity, TableTransactionError, UpdateMode
from azure.data.tables.aio import TableClient

from taskgraph.model.columns import Columns, Value
from taskgraph.model.errors import TooLarge
from taskgraph.storage.azure.calls import COMMIT_SECONDS, code_of
from taskgraph.storage.azure.table_requests import Found, Place
from taskgraph.storage.azure.wire import Refusal
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Range, Replace, Row

_Operation = tuple[str, dict[str, Any], Mapping[str, Any]]

_NO_CONTENT: Final = {"response_preference": "return-no-content"}  # the row need not come back to us
_KEYS: Final = ("PartitionKey", "RowKey")


class SdkTableCalls:
    """See TableCalls."""

    def __init__(self, make_client: Callable[[], TableClient]) -> None:
        self._make_client = make_client
        self._client: TableClient | None = None

    async def get(self, partition: str, key: str) -> Row:
        """See TableCalls."""
        return _row(await self._open().get_entity(partition, key))

    async def page(self, partition: str, rows: Range, limit: int, place: Place | None) -> Found:
        """See TableCalls."""
        condition, parameters = _filter(partition, rows)
        # Timestamp: the SDK makes the etag from it where the service leaves the etag out of a selection.
        select = None if rows.select is None else ["RowKey", "Timestamp", *rows.select]
        token: Any = None if place is None else dict(zip(_KEYS, place, strict=True))
        pages = (
            self._open()
            .query_entities(condition, parameters=parameters, select=select, results_per_page=limit)
            .by_page(continuation_token=token)
        )
        async for entities in pages:
            found = [_row(entity) async for entity in entities]
            rest: Any = pages.continuation_token  # type: ignore[attr-defined]
            return found, (rest.get("PartitionKey"), rest.get("RowKey")) if rest else None
        return [], None

    async def write(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        """See TableCalls."""
        client, change = self._open(), changes[0]
        # A delete goes in a transaction even alone: the SDK reports the deletion of a missing row as a success.
        if len(changes) == 1 and not isinstance(change, Delete):
            return await _write_one(client, change, _entity(partition, change.key, change.columns))
        return await _write_all(client, [_operation(partition, each) for each in changes])

    async def create(self) -> None:
        """See TableCalls."""
        await self._open().create_table()

    def _open(self) -> TableClient:
        if self._client is None:
            self._client = self._make_client()
        return self._client


async def _write_one(client: TableClient, change: Insert | Merge | Replace, entity: dict[str, Any]) -> list[str | None]:
    if isinstance(change, Insert):
        answer = await client.create_entity(entity, read_timeout=COMMIT_SECONDS, **_NO_CONTENT)
    else:
        answer = await client.update_entity(
            entity,
            _mode(change),
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
    except TableTransactionError as error:
        raise Refusal(error.status_code or 0, code_of(error), error.message or "") from error
    return [
        None if kind == "delete" else _etag_of(answer) for (kind, _, _), answer in zip(operations, answers, strict=True)
    ]


def _mode(change: Merge | Replace) -> UpdateMode:
    return UpdateMode.MERGE if isinstance(change, Merge) else UpdateMode.REPLACE


def _etag_of(answer: Mapping[str, Any]) -> str:
    etag = answer["etag"]
    if not etag:
        raise ValueError("an answer without an etag")
    return str(etag)


def _operation(partition: str, change: Change) -> _Operation:
    match change:
        case Insert():
            return "create", _entity(partition, change.key, change.columns), _NO_CONTENT
        case Merge() | Replace():
            condition = {
                "etag": change.etag,
                "match_condition": MatchConditions.IfNotModified,
                "mode": _mode(change),
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
