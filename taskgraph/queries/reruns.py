"""What else runs again when tasks of a graph are rerun: their dependents that have gone on from their ends.

Read level by level, from the tasks on: no more rows than those that run again, and what stands directly behind them.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Final

from taskgraph.model.columns import is_cancelled, texts
from taskgraph.model.ids import GRAPH, edge_name_of, reference_of, row_key
from taskgraph.model.states import TaskState
from taskgraph.protocol.conditions import passes_on
from taskgraph.protocol.rerun import FAILED_FOR_GOOD
from taskgraph.storage.tables import Row, Tables

_READ_AT_ONCE: Final = 500


@dataclass(slots=True)
class Following:
    """Rows of tasks behind those that are rerun, by key.

    reset: they have counted an end that is taken back, and have gone on since; some of these tasks may be among them.
    cancelled: they were cancelled as they waited for such an end, and run again only if they are asked for.
    """

    reset: dict[str, Row] = field(default_factory=dict)
    cancelled: dict[str, Row] = field(default_factory=dict)

    def begun(self, asked: Container[str]) -> list[Row]:
        """Those that have run, or run now, and so have worked with what is taken back. asked: keys to pass over."""
        states = (TaskState.RUNNING, TaskState.COMPLETED, *FAILED_FOR_GOOD)
        return [row for key, row in self.reset.items() if row.columns.get("state") in states and key not in asked]


async def following(
    tables: Tables, graph_id: str, graph: Row, task_ids: Iterable[str], *, with_cancelled: bool
) -> Following:
    """What a rerun of these tasks leads to, by the rows as they are now.

    with_cancelled: go on from tasks that were cancelled while they waited, too.
    """
    found = Following()
    level = await _read(tables, graph_id, sorted(map(row_key, task_ids)))
    roots = {row.key for row in level}
    seen: set[str] = set()
    while level:
        taken_back: dict[str, set[str]] = {}  # key of a dependent -> names of what it has counted, if it has
        behind: set[str] = set()
        for row in level:
            dependents = {row_key(each) for each in texts(row.columns, "dependents") if each != GRAPH}
            behind |= dependents
            if row.columns.get("state") not in FAILED_FOR_GOOD or passes_on(graph.columns.get, row.columns.get):
                for key in dependents:
                    taken_back.setdefault(key, set()).add(edge_name_of(reference_of(row.key)))
        level = []
        for row in await _read(tables, graph_id, sorted((behind if with_cancelled else taken_back.keys()) - seen)):
            columns, is_task = row.columns, row.key.startswith("task:")
            counted = taken_back.get(row.key, set()).difference(texts(columns, "requiresLeft"))
            if counted and columns.get("state") != TaskState.UNSCHEDULED:
                if is_task:
                    found.reset[row.key] = row
            elif not with_cancelled or (is_task and not is_cancelled(columns.get)):
                continue
            elif is_task:
                found.cancelled[row.key] = row
            seen.add(row.key)
            if row.key not in roots:
                level.append(row)
    return found


async def _read(tables: Tables, graph_id: str, keys: list[str]) -> list[Row]:
    rows: list[Row] = []
    for start in range(0, len(keys), _READ_AT_ONCE):
        read = await tables.get(graph_id, keys[start : start + _READ_AT_ONCE])
        rows += [row for row in read if row is not None]
    return rows
