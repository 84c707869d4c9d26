"""Requests to Azure Table Storage: the same bytes as the SDK's for a tenth of the work or less.

Texts reach an address or a condition only through `quoted` and `literal`, JSON only through an encoder; names of
columns have been checked before.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from azure.core.exceptions import DecodeError

from taskgraph.storage.azure.calls import COMMIT_SECONDS
from taskgraph.storage.azure.entities import MINIMAL, condition_of, entity_of, head_of, key_of, row_of
from taskgraph.storage.azure.pool import Answer
from taskgraph.storage.azure.wire import Wire, refusal
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Range, Replace, Row

Place = tuple[str | None, str | None]
"""Where the next page begins: partition key and row key, as the service gave them."""

Found = tuple[list[Row], Place | None]
"""A page, and where the next one begins."""

_READ_HEADERS: Final = {"Accept": MINIMAL, "DataServiceVersion": "3.0"}
_WRITE_HEADERS: Final = {**_READ_HEADERS, "Content-Type": "application/json"}
_INSERT_HEADERS: Final = {**_WRITE_HEADERS, "Prefer": "return-no-content"}  # the row need not come back to us
_NEXT: Final = ("NextPartitionKey", "NextRowKey")

# No line of a part begins with these: JSON in ASCII and addresses hold no line break.
_BATCH: Final = "batch_taskgraph"
_CHANGES: Final = "changeset_taskgraph"
_BATCH_HEADERS: Final = {
    **_READ_HEADERS,
    "MaxDataServiceVersion": "3.0;NetFx",
    "Content-Type": f"multipart/mixed; boundary={_BATCH}",
}
_PART: Final = f"--{_CHANGES}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
_PART_HEADERS: Final = f"Accept: {MINIMAL}\r\nDataServiceVersion: 3.0\r\n"
_PART_JSON: Final = f"{_PART_HEADERS}Content-Type: application/json\r\n"
_PART_INSERT: Final = f"{_PART_JSON}Prefer: return-no-content\r\n\r\n"
_BOUNDARY: Final = re.compile(r"multipart/mixed;\s*boundary=\"?([^\s\";]+)", re.IGNORECASE)
_STATUS: Final = re.compile(r"HTTP/1\.[01] ([0-9]{3})\b")
_ETAG: Final = re.compile(r"^ETag:[ \t]*([\x21-\x7e]+)", re.IGNORECASE | re.MULTILINE)

_METHODS: Final = {Insert: "POST", Merge: "PATCH", Replace: "PUT", Delete: "DELETE"}


class TableCalls:
    """One request to the service each. Raises the SDK's errors, HttpResponseError for every refusal."""

    def __init__(self, wire: Wire, name: str) -> None:
        self._wire = wire
        self._table = f"/{name}"
        self._name = name

    async def get(self, partition: str, key: str) -> Row:
        path = f"{self._rows_of(partition)}{key_of(key)}')"
        answer = await self._wire.ask("GET", path, (200,), headers=_READ_HEADERS)
        try:
            return row_of(json.loads(answer.body))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise DecodeError("the answer is no entity") from error

    async def page(self, partition: str, rows: Range, limit: int, place: Place | None) -> Found:
        query = [("$top", str(limit)), ("$filter", condition_of(partition, rows))]
        if rows.select is not None:
            # Timestamp: the etag can be made from it where the service leaves the etag out of a selection.
            query.append(("$select", ",".join(["RowKey", "Timestamp", *rows.select])))
        if place is not None:
            query += [(name, text) for name, text in zip(_NEXT, place, strict=True) if text is not None]
        answer = await self._wire.ask("GET", f"{self._table}()", (200,), query=query, headers=_READ_HEADERS)
        try:
            entities: list[dict[str, Any]] = json.loads(answer.body)["value"]
            if type(entities) is not list:
                raise TypeError("no list")
            found = [row_of(entity) for entity in entities]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise DecodeError("the answer is no page of entities") from error
        rest = (
            answer.headers.get("x-ms-continuation-NextPartitionKey") or None,
            answer.headers.get("x-ms-continuation-NextRowKey") or None,
        )
        return found, rest if any(rest) else None

    async def write(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        """Apply these changes; their etags, None for a delete.

        Raises ArithmeticError, AttributeError, LookupError, TypeError or ValueError for an answer without sense.
        """
        return await (self._one(partition, changes[0]) if len(changes) == 1 else self._all(partition, changes))

    async def create(self) -> None:
        body = json.dumps({"TableName": self._name}).encode("ascii")
        await self._wire.ask("POST", "/Tables", (201, 204), headers=_WRITE_HEADERS, body=body)

    async def _one(self, partition: str, change: Change) -> list[str | None]:
        path, good, body = f"{self._rows_of(partition)}{key_of(change.key)}')", {204}, None
        if isinstance(change, Delete):
            headers = {**_READ_HEADERS, "If-Match": change.etag}
        else:
            body = entity_of(head_of(partition), change.key, change.columns).encode("ascii")
            if isinstance(change, Insert):
                path, good, headers = self._table, {201, 204}, _INSERT_HEADERS
            else:
                headers = {**_WRITE_HEADERS, "If-Match": change.etag}
        answer = await self._wire.ask(
            _METHODS[type(change)], path, good, headers=headers, body=body, read_seconds=COMMIT_SECONDS
        )
        return [None if isinstance(change, Delete) else _some(answer.headers.get("ETag"))]

    async def _all(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        head, rows = head_of(partition), f"{self._wire.endpoint}{self._rows_of(partition)}"
        insert = f"{_PART}POST {self._wire.endpoint}{self._table} HTTP/1.1\r\n{_PART_INSERT}"
        parts = [f"--{_BATCH}\r\nContent-Type: multipart/mixed; boundary={_CHANGES}\r\n\r\n"]
        for change in changes:
            if isinstance(change, Insert):
                parts.append(f"{insert}{entity_of(head, change.key, change.columns)}\r\n")
                continue
            address = f"{rows}{key_of(change.key)}') HTTP/1.1\r\n"
            condition = f"If-Match: {change.etag}\r\n\r\n"
            if isinstance(change, Delete):
                parts.append(f"{_PART}DELETE {address}{_PART_HEADERS}{condition}\r\n")
            else:
                entity = entity_of(head, change.key, change.columns)
                parts.append(f"{_PART}{_METHODS[type(change)]} {address}{_PART_JSON}{condition}{entity}\r\n")
        parts.append(f"--{_CHANGES}--\r\n\r\n--{_BATCH}--\r\n")
        answer = await self._wire.ask(
            "POST",
            "/$batch",
            (202,),
            headers=_BATCH_HEADERS,
            body="".join(parts).encode("utf-8"),
            read_seconds=COMMIT_SECONDS,
        )
        etags = _etags_of(answer)
        return [
            None if isinstance(change, Delete) else _some(etag) for change, etag in zip(changes, etags, strict=True)
        ]

    def _rows_of(self, partition: str) -> str:
        return f"{self._table}(PartitionKey='{key_of(partition)}',RowKey='"


def _some(etag: str | None) -> str:
    if not etag:
        raise ValueError("an answer without an etag")
    return etag


def _etags_of(answer: Answer) -> list[str | None]:
    """The etags of a transaction that was applied, None where the service gives none.

    Raises Refusal if it was not, and ValueError for what is no complete answer to a transaction.
    """
    outer = _BOUNDARY.match(answer.headers.get("Content-Type", ""))
    if outer is None:
        raise ValueError("an answer without parts")
    text = "\r\n" + answer.body.decode("utf-8")
    inner = _BOUNDARY.search(text)
    boundary = (outer if inner is None else inner)[1]
    _, *parts, end = text.split(f"\r\n--{boundary}")
    if not parts or not end.startswith("--"):
        raise ValueError("an answer that breaks off")
    etags: list[str | None] = []
    for part in parts:
        _, _, http = part.partition("\r\n\r\n")
        head, _, body = http.partition("\r\n\r\n")
        status = _STATUS.match(head)
        if status is None:
            raise ValueError("a part without a status")
        if not status[1].startswith("2"):
            raise refusal(int(status[1]), {}, body.strip().encode("utf-8"))
        etag = _ETAG.search(head)
        etags.append(etag and etag[1])
    return etags
