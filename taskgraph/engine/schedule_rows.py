"""Schedules as rows of the partition `index:schedules`: one row for a schedule, and as many as its document needs."""

import difflib
from collections.abc import Sequence
from typing import Final

from taskgraph.documents.canonical import document_object
from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import NOTHING_GIVEN, Given, read_document, read_json
from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.columns import Value
from taskgraph.model.errors import Conflict, IntegrityError, NotFound, TooLarge, Unclear
from taskgraph.model.json_strict import canonical_json
from taskgraph.model.utf16 import utf16_units
from taskgraph.protocol import schedule_rules
from taskgraph.protocol.definitions import SCHEMA, gathered, split_text, spread
from taskgraph.protocol.extension_plan import row_bytes
from taskgraph.protocol.rows import SCHEMA_MAX
from taskgraph.protocol.schedule_rules import SCHEDULES, Schedule, head_key
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Range, Row, Tables, query_all

_PART_CHARS: Final = 8 * limits.PROPERTY_CHARS_MAX


def schedule_in(row: Row) -> Schedule:
    """The schedule of a row. Raises IntegrityError for a row that holds none, or one of a newer version."""
    schema = row.columns.get("schema", 1)
    if isinstance(schema, int) and schema > SCHEMA_MAX:
        raise IntegrityError(f"row {row.key} was written by a newer version of taskgraph, and is left to it")
    return schedule_rules.schedule_of(row.columns)


class ScheduleRows:
    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock

    async def heads(self) -> list[Row]:
        return await query_all(self._tables, SCHEDULES, Range(*schedule_rules.HEADS))

    async def find(self, name: str) -> tuple[Row, Schedule]:
        """The row of a schedule. Raises NotFound, with the nearest names."""
        schedule_rules.check_name(name)
        (row,) = await self._tables.get(SCHEDULES, [head_key(name)])
        if row is None:
            names = [str(each.columns.get("name", "")) for each in await self.heads()]
            raise NotFound(f"there is no schedule {name}", difflib.get_close_matches(name, names, 3, 0.5))
        return row, schedule_in(row)

    async def write(self, row: Row, before: Schedule, after: Schedule, changes: Sequence[Change] = ()) -> Row:
        """Write a schedule over the row that it was read from (P17). Raises Conflict if that has changed."""
        operation = self._clock.new_id()
        columns: dict[str, Value] = {**schedule_rules.changed_columns(before, after), "operation": operation}
        try:
            etag, *_ = await self._tables.commit(SCHEDULES, [Merge(row.key, row.etag, columns), *changes])
        except (Conflict, Unclear) as error:
            (found,) = await self._tables.get(SCHEDULES, [row.key])
            if found is None or found.columns.get("operation") != operation:
                raise Conflict(f"schedule {after.name}: others have written it; look again") from error
            return found
        return Row(row.key, etag or "", {**row.columns, **columns})

    def parts(self, name: str, document: GraphDocument) -> tuple[str, list[Insert]]:
        """A new id for a document, and its rows. Raises TooLarge."""
        text = canonical_json(document_object(document))
        if (units := utf16_units(text)) > limits.SCHEDULE_DOCUMENT_CHARS_MAX:
            raise TooLarge(
                f"the graph has {units:,} characters; a schedule holds one of {limits.SCHEDULE_DOCUMENT_CHARS_MAX:,}: "
                "let a small one add the tasks with taskgraph extend"
            )
        key = self._clock.new_id()
        rows = [
            Insert(schedule_rules.document_key(name, key, number), {"schema": SCHEMA, **spread("text", piece)})
            for number, piece in enumerate(split_text(text, _PART_CHARS))
        ]
        if document.values:
            first = {**rows[0].columns, **spread("params", canonical_json(document.values))}
            rows[0] = Insert(rows[0].key, first)
        if sum(map(row_bytes, rows)) > limits.COMMIT_BYTES_MAX:
            raise TooLarge("the graph takes more bytes than one commit; let a small one add the tasks by an extension")
        return key, rows

    async def _part_rows(self, name: str, document: str = "") -> list[Row]:
        start = f"document:{name}:{document}{':' if document else ''}"
        return await query_all(self._tables, SCHEDULES, Range(start, start[:-1] + ";"))

    async def deletions(self, name: str, document: str = "") -> list[Change]:
        """Deletions of the rows of this document, or of all documents of a schedule."""
        return [Delete(row.key, row.etag) for row in await self._part_rows(name, document)]

    async def document(self, schedule: Schedule, document: str) -> GraphDocument:
        """The graph of a schedule, checked. Raises InvalidGraph; Conflict if it was replaced meanwhile."""
        parts = await self._part_rows(schedule.name, document)
        if not parts:
            (row,) = await self._tables.get(SCHEDULES, [head_key(schedule.name)])
            if row is None or document not in (row.columns.get("document"), row.columns.get("firingDocument")):
                raise Conflict(f"schedule {schedule.name} was changed or deleted meanwhile; look again")
            raise IntegrityError(f"schedule {schedule.name}: the rows of its graph are gone; update it with a FILE")
        text = "".join(gathered(part.columns, "text") for part in parts)
        values = gathered(parts[0].columns, "params")
        given = Given(read_json(values, source=f"schedule {schedule.name}: params")) if values else NOTHING_GIVEN
        return read_document(text, source=f"schedule {schedule.name}", given=given)
