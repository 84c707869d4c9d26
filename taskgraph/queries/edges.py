"""The logical edges of tasks, looked up through joins and forks, in as few reads as there are.

Relays are read when an edge leads through them, once; labels are read one by one or by pages, whichever is less.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from taskgraph.model import limits
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import GRAPH, is_relay, is_shared, owner_of, row_key
from taskgraph.model.row_schema import ROWS
from taskgraph.storage.tables import Range, Row, Tables, pages, prefix, query_all

_LISTS: Final = [each.name for each in ROWS["join"] if each.kind == "references"]


def references(row: Row, name: str) -> list[str]:
    """A column that lists references. Raises IntegrityError for one that does not."""
    found = json.loads(str(row.columns.get(name, "[]")) or "[]")
    if not isinstance(found, list):
        raise IntegrityError(f"row {row.key}: column {name} is no list")
    return [str(each) for each in found]


class Edges:
    def __init__(self, tables: Tables, graph_id: str, relays: dict[str, Row | None] | None = None) -> None:
        self._tables = tables
        self._graph_id = graph_id
        self._relays: dict[str, Row | None] = {} if relays is None else relays  # by key; None: there is no such row
        self.reads = 0  # rows read one by one so far

    async def required(self, listed: Iterable[str], *, left: bool = False) -> list[str]:
        """TaskIds behind a requirement list, through joins. left: only those that are not fulfilled yet."""
        found: dict[str, None] = {}
        passed: set[str] = set()
        todo = list(listed)
        while todo:
            joins = [each for each in dict.fromkeys(todo) if is_relay(each) and each not in passed]
            passed.update(joins)
            found.update(dict.fromkeys(each for each in todo if not is_relay(each)))
            todo = [
                each
                for row in await self._load(joins)
                for each in references(row, "requiresLeft" if left else "requires")
            ]
        return list(found)

    async def dependents(self, listed: Iterable[str]) -> list[str]:
        """TaskIds behind a dependents list; a join that is no group's stands for the task that it works for."""
        found: dict[str, None] = {}
        passed: set[str] = set()
        todo = list(listed)
        while todo:
            forks = [each for each in todo if each.startswith("fork:")]
            owners = dict.fromkeys(owner_of(each) for each in todo if not each.startswith("fork:"))
            shared = [each for each in owners if is_shared(each) and each not in passed]
            passed.update(shared)
            found.update(dict.fromkeys(each for each in owners if each != GRAPH and not is_relay(each)))
            relays = [*forks, *shared]
            todo = [each for row in await self._load(relays) for each in references(row, "dependents")]
        return list(found)

    async def _load(self, relays: Iterable[str]) -> list[Row]:
        wanted = [row_key(each) for each in relays]
        missing = [key for key in wanted if key not in self._relays]
        if len(missing) > limits.READ_ALONE_MAX:
            # Of one owner there may be hundreds, and they lie side by side.
            for owner, number in Counter(key.rsplit(":", key.count(":") - 1)[0] for key in missing).items():
                if number > limits.READ_ALONE_MAX:
                    await self._load_range(f"{owner}:")
            missing = [key for key in missing if key not in self._relays]
        if missing:
            self.reads += len(missing)
            self._relays.update(zip(missing, await self._tables.get(self._graph_id, missing), strict=True))
        return [row for key in wanted if (row := self._relays[key]) is not None]

    async def _load_range(self, start: str) -> None:
        rows = await query_all(self._tables, self._graph_id, prefix(start, select=_LISTS))
        self._relays.update((row.key, row) for row in rows)

    async def labels(self, task_ids: Iterable[str], tasks: int) -> dict[str, str]:
        """The label of each task; its id where there is no row. tasks: how many the graph has."""
        wanted = list(dict.fromkeys(task_ids))
        if len(wanted) <= worth_pages(tasks):
            rows: Sequence[Row | None] = await self._tables.get(self._graph_id, [row_key(each) for each in wanted])
            return {each: _label(row, each) for each, row in zip(wanted, rows, strict=True)}
        found = dict.fromkeys(wanted, "")
        async for page in pages(self._tables, self._graph_id, Range("task:", "task;", select=("label",))):
            for row in page.rows:
                own = row.key.removeprefix("task:")
                if own in found:
                    found[own] = _label(row, own)
        return {each: label or each for each, label in found.items()}


def _label(row: Row | None, own: str) -> str:
    return str(row.columns.get("label", own)) if row else own


def worth_pages(tasks: int) -> int:
    """So many rows of a graph of so many tasks are read one by one; for more, pages of all of them cost less."""
    return limits.READ_PAGE_WORTH * (tasks // limits.PAGE_ROWS_MAX + 1)
