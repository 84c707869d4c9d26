"""The list of all graphs, the newest first, and filters of it.

The index says of each graph what never changes. Rows of graphs are read as far as it does not say that one is not
wanted; of those that are wanted live, only rows of live ones: how many have finished does not count.
"""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from taskgraph.model import limits
from taskgraph.model.columns import Value, integer, object_of, texts, time_of
from taskgraph.model.ids import GRAPH
from taskgraph.model.names import ALL, LIVE, listing_key
from taskgraph.model.states import GraphState
from taskgraph.queries import values
from taskgraph.queries.lookup import BEHIND, GraphQueries, some_rows
from taskgraph.storage.tables import Range, Row

_MOVING: Final = (GraphState.RUNNING, GraphState.BLOCKED, GraphState.CANCELLING)
_GRAPHS_AT_ONCE: Final = 64
_ANY_GRAPH: Final = values.GraphsWanted()


class GraphListQueries(GraphQueries):
    async def graphs(
        self,
        *,
        limit: int = 50,
        schedule: str = "",
        wanted: values.GraphsWanted = _ANY_GRAPH,
        counted: bool = False,
    ) -> list[values.GraphListed]:
        """The newest graphs first, with the state that each has now; of one schedule, where that is given.

        counted: say how far live ones are, by the end of the journal of each: one read more where that has up to
        limits.PAGE_ROWS_MAX rows.
        """
        found, _ = await self.graphs_after("", limit=limit, schedule=schedule, wanted=wanted, counted=counted)
        return found

    async def graphs_after(
        self,
        after: str,
        *,
        limit: int,
        schedule: str,
        wanted: values.GraphsWanted,
        counted: bool,
        pages_max: float = math.inf,
    ) -> tuple[list[values.GraphListed], str]:
        """Graphs behind a row of the index, of so many pages of it; and the row to go on behind, "" at the end."""
        live = {row.key async for row in self._pages(LIVE, Range(select=("since",)))} if wanted.is_live else None
        found: list[values.GraphListed] = []
        pages = 0
        while pages < pages_max and (live is None or live):
            pages += 1
            some, after = await self._graphs_of_page(after, limit - len(found), schedule, wanted, live)
            found += some
            if len(found) >= limit or not after:
                break
        if counted:
            for start in range(0, len(found), _GRAPHS_AT_ONCE):
                part = slice(start, start + _GRAPHS_AT_ONCE)
                found[part] = await asyncio.gather(*map(self._counted, found[part]))
        return found, "" if live is not None and not live else after

    async def _graphs_of_page(
        self, after: str, limit: int, schedule: str, wanted: values.GraphsWanted, live: set[str] | None
    ) -> tuple[list[values.GraphListed], str]:
        """live: ids of those to look for, without those that were found. The rest: see `graphs_after`."""
        where = {"schedule": (schedule,)} if schedule else {}
        newest = listing_key("", wanted.until) if wanted.until is not None else ""
        rows = Range(f"{after}{BEHIND}" if after else newest, where=where)
        most = limits.PAGE_ROWS_MAX if wanted != _ANY_GRAPH else min(limits.PAGE_ROWS_MAX, max(limit, 1))
        page = await some_rows(self._tables, ALL, rows, most)
        near = [row for row in page.rows if live is None or row.columns.get("graph") in live]
        near = [row for row in near if wanted.may_be(row.columns)]
        found: list[values.GraphListed] = []
        not_there: list[Row] = []
        for start in range(0, len(near), _GRAPHS_AT_ONCE):
            some = near[start : start + _GRAPHS_AT_ONCE]
            listed = await asyncio.gather(*map(self._listed, some))
            not_there += [row for row, each in zip(some, listed, strict=True) if each is None]
            there = [(row, each) for row, each in zip(some, listed, strict=True) if each is not None]
            fit = [(row, each) for row, each in there if wanted.has(each)]
            fit = fit[: limit - len(found)]
            found += [each for _, each in fit]
            if len(found) >= limit:
                return found, fit[-1][0].key
        if live is not None:
            live.difference_update(str(row.columns.get("graph", "")) for row in page.rows if row not in not_there)
        oldest = time_of(page.rows[-1].columns, "created") if page.rows else None
        if wanted.since and oldest is not None and oldest < wanted.since:
            return found, ""  # the rows are in the order of time, the newest first
        return found, page.rows[-1].key if page.continuation is not None else ""

    async def _listed(self, row: Row) -> values.GraphListed | None:
        """None for a graph that is not there: a submission has listed it, and died before it had written it."""
        graph_id = str(row.columns.get("graph", ""))
        (graph,) = await self._tables.get(graph_id, [GRAPH])
        if graph is None or graph.columns.get("created") != row.columns.get("created"):
            return None
        columns: Mapping[str, Value] = graph.columns
        created, ended = time_of(row.columns, "created"), time_of(columns, "finished") or time_of(columns, "cancelled")
        return values.GraphListed(
            graph_id=graph_id,
            state=str(columns.get("state", "")),
            created=created,
            name=str(row.columns.get("name", "")),
            tasks=integer(columns, "tasks"),
            schedule=str(row.columns.get("schedule", "")),
            fired_for=time_of(row.columns, "firedFor"),
            held=tuple(texts(columns, "held")),
            failed_tasks=integer(columns, "failedTasks"),
            ended=ended,
            seconds=(ended - created).total_seconds() if created and ended else None,
            tags=object_of(columns, "tags"),
            unresolved=0 if columns.get("state") == GraphState.FINISHED else None,
        )

    async def _counted(self, graph: values.GraphListed) -> values.GraphListed:
        if graph.state not in _MOVING:
            return graph
        completed, skipped = await self._totals(graph.graph_id)
        left = graph.tasks - graph.failed_tasks - completed - skipped
        return replace(graph, unresolved=max(0, left)) if completed >= 0 else graph
