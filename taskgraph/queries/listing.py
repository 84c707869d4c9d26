"""Tasks of a graph: lists, groups, one with its edges and definition, and what they have handed on.

Listings of large graphs end where their limit ends. Edges are logical: whatever joins and forks lie between (D5).
"""

import json
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import aclosing
from typing import Any

from taskgraph.model import limits
from taskgraph.model.columns import NO_OUTPUT, OUTPUT, integer, is_held, object_of, texts
from taskgraph.model.errors import NotFound
from taskgraph.model.ids import row_key
from taskgraph.model.names import LIVE
from taskgraph.model.row_schema import SHOWN
from taskgraph.model.states import TaskState, stored_state
from taskgraph.protocol.definitions import gathered, members_of
from taskgraph.queries import targets as gates
from taskgraph.queries import values
from taskgraph.queries.edges import Edges, references, worth_pages
from taskgraph.queries.groups import group_rows, success_of
from taskgraph.queries.lookup import GraphQueries, some_rows
from taskgraph.queries.rows import status_of_task
from taskgraph.storage.tables import Range, Row


class TaskQueries(GraphQueries):
    async def tasks(
        self, graph_id: str, *, state: str = "", match: str = "", limit: int = 1000
    ) -> list[values.TaskStatus]:
        """Tasks by state and part of the label, sorted by label; of a large graph any `limit` that agree."""
        found = await self.listing(graph_id, state=state, match=match, limit=limit)
        return sorted(found.tasks, key=lambda each: each.label)[:limit]

    async def failed(self, graph_id: str) -> list[values.TaskStatus]:
        """Every task that failed for good or was cancelled, sorted by label."""
        await self.graph_row(graph_id)
        found: list[values.TaskStatus] = []
        await self._list(graph_id, values.FAILED, "", None, found)
        return sorted(found, key=lambda each: each.label)

    async def group(self, graph_id: str, name: str) -> values.GroupStatus:
        """A group with its tasks, read one by one, or of a large graph by pages. Raises NotFound, with near names."""
        graph = await self.graph_row(graph_id)
        rows = await group_rows(self._tables, graph_id, name)
        members = members_of(rows)
        found = await self._rows_of(graph, graph_id, members)
        paused = await gates.closed(self._tables)
        listed = sorted((status_of_task(row, paused) for row in found), key=lambda each: each.label)
        counts = Counter(each.state for each in listed)
        failed = sum(counts[each] for each in values.FAILED)
        done = counts[TaskState.COMPLETED] + counts[TaskState.SKIPPED]
        begun = done + failed + sum(counts[each] for each in values.UNDER_WAY)
        nested = [
            str(row.columns.get("label", ""))
            async for row in self._pages(graph_id, Range("group:", "group;", select=("label", "groups")))
            if name in texts(row.columns, "groups")
        ]
        state = values.GroupState.RUNNING if begun else values.GroupState.WAITING
        if failed:
            over = done + counts[TaskState.CANCELLED] == len(members)
            state = values.GroupState.CANCELLED if over else values.GroupState.BLOCKED
        if done == len(members):
            state = values.GroupState.FINISHED
        return values.GroupStatus(
            graph_id=graph_id,
            name=name,
            state=str(state),
            graph_state=str(graph.columns.get("state", "")),
            tasks=len(members),
            counts={str(each): counts[each] for each in TaskState if counts[each]},
            unresolved=len(members) - done - failed,
            failed_tasks=failed,
            groups=sorted(nested),
            within=texts(rows[0].columns, "groups"),
            listed=listed,
            success=await success_of(self._tables, graph_id, rows[0]),
            failure_policy=str(rows[0].columns.get("failurePolicy", "")),
        )

    async def statuses(self, graph_id: str, task_ids: Collection[str]) -> list[values.TaskStatus]:
        """These tasks, as far as there are such, in no order."""
        if not task_ids:
            return []
        return [status_of_task(row) for row in await self._rows_of(await self.graph_row(graph_id), graph_id, task_ids)]

    async def _rows_of(self, graph: Row, graph_id: str, task_ids: Collection[str]) -> list[Row]:
        """Read one by one, or of a large graph by pages."""
        keys = list(map(row_key, task_ids))
        if len(keys) <= worth_pages(integer(graph.columns, "tasks")):
            return [row for row in await self._tables.get(graph_id, keys) if row is not None]
        inside = frozenset(keys)
        rows = self._pages(graph_id, Range("task:", "task;", select=SHOWN))
        return [row async for row in rows if row.key in inside]

    async def listing(
        self, graph_id: str, *, state: str = "", match: str = "", limit: int = 1000, group: str = ""
    ) -> values.Listing:
        """Tasks by state, part of the label and group, in no order.

        All of them; of a large graph up to `limit`, those first that failed or are under way.
        """
        graph = await self.graph_row(graph_id)
        total = integer(graph.columns, "tasks")
        params = object_of(graph.columns, "params")
        if group:
            wanted = match.casefold()
            inside = (await self.group(graph_id, group)).listed
            some = [each for each in inside if state in ("", each.state) and wanted in each.label.casefold()]
            return values.Listing(some, len(some), params=params)
        found: list[values.TaskStatus] = []
        if total <= limits.COUNTED_TASKS_MAX:
            await self._list(graph_id, [state] if state else [], match, None, found)
            return values.Listing(found, len(found), params=params)
        status = None if state or match else await self.status(graph_id, graph)
        passes = [[state]] if state else [list(map(str, each)) for each in values.LISTED]
        for states in passes:
            if status is not None and status.exact and not any(status.counts.get(each) for each in states):
                continue
            if not await self._list(graph_id, states, match, limit, found):
                return values.Listing(found, total if status is not None else None, status, params)
        return values.Listing(found, len(found), status, params)

    async def page(
        self, graph_id: str, *, state: str = "", match: str = "", after: str = "", limit: int = 100
    ) -> tuple[values.Listing, str]:
        """Tasks in the order of their rows behind one of them, and the row to go on behind, "" at the end.

        They may be fewer than `limit` before the end: a page of rows is read, and those that agree are given.
        """
        graph = await self.graph_row(graph_id)
        paused = await gates.closed(self._tables)
        where = {"state": (stored_state(state),)} if state else {}
        wanted = Range(f"{after}!" if after else "task:", "task;", where=where, select=SHOWN)
        rows = await some_rows(self._tables, graph_id, wanted, limits.PAGE_ROWS_MAX if match or state else limit)
        found: list[values.TaskStatus] = []
        last = ""
        for row in rows.rows:
            if len(found) == limit:
                break
            last, status = row.key, status_of_task(row, paused)
            if match.casefold() in status.label.casefold() and state in ("", status.state):
                found.append(status)
        over = rows.continuation is None and (not rows.rows or last == rows.rows[-1].key)
        total = None if state or match else integer(graph.columns, "tasks")
        return values.Listing(found, total, params=object_of(graph.columns, "params")), "" if over else last or after

    async def _list(
        self, graph_id: str, states: Sequence[str], match: str, limit: int | None, found: list[values.TaskStatus]
    ) -> bool:
        """Add tasks in these states to `found`; gives whether there are no more, before it has `limit`."""
        wanted = match.casefold()
        paused = await gates.closed(self._tables) if not states or values.TO_BEGIN.intersection(states) else ()
        where = {"state": sorted({stored_state(each) for each in states})} if states else {}
        async with aclosing(self._pages(graph_id, Range("task:", "task;", where=where, select=SHOWN))) as rows:
            async for row in rows:
                if wanted not in str(row.columns.get("label", "")).casefold():
                    continue
                status = status_of_task(row, paused)
                if not states or status.state in states:
                    if len(found) == limit:
                        return False
                    found.append(status)
        return True

    async def task(self, graph_id: str, label_or_id: str, *, edges: int | None = None) -> values.TaskDetail:
        """A task with its logical edges and its definition. edges: name so many each way, None for all."""
        graph = await self.graph_row(graph_id)
        row = await self._find(graph_id, label_or_id)
        own = row.key.removeprefix("task:")
        looked = Edges(self._tables, graph_id)
        requires = await looked.required(references(row, "requires"))
        left = await looked.required(references(row, "requiresLeft"), left=True)
        dependents = await looked.dependents(references(row, "dependents"))
        optional = await looked.required(references(row, "optional"))
        named = [*(each[:edges] for each in (requires, left, dependents)), optional]
        labels = await looked.labels([each for some in named for each in some], integer(graph.columns, "tasks"))
        text = str(row.columns.get("task", ""))
        if not text:
            (longer,) = await self._tables.get(graph_id, [f"definition:{own}"])
            text = gathered(longer.columns, "task") if longer else "{}"
        shown = [sorted(labels[each] for each in some) for some in named]
        status = status_of_task(row, await gates.closed(self._tables))
        counts = len(requires), len(left), len(dependents)
        return values.TaskDetail(status, shown[0], shown[1], shown[2], json.loads(text), *counts, optional=shown[3])

    async def details(self, graph_id: str) -> list[values.TaskDetail]:
        """Every task with all its edges and its definition, sorted by label: one look at all rows of the graph.

        A task that an extension adds at this moment may be missing, and is then named by no other.
        """
        await self.graph_row(graph_id)
        # In the order of keys, tasks come last: what the other rows name is there by then.
        rows = {row.key: row async for row in self.rows(graph_id) if not row.key.startswith("event:")}
        tasks = {key.removeprefix("task:"): row for key, row in rows.items() if key.startswith("task:")}
        labels = {own: str(row.columns.get("label", "")) for own, row in tasks.items()}
        looked = Edges(self._tables, graph_id, {**rows})
        paused = await gates.closed(self._tables)
        found: list[values.TaskDetail] = []
        for own, row in tasks.items():
            edges = (
                await looked.required(references(row, "requires")),
                await looked.required(references(row, "requiresLeft"), left=True),
                await looked.dependents(references(row, "dependents")),
                await looked.required(references(row, "optional")),
            )
            named = [sorted(labels[each] for each in some if each in labels) for some in edges]
            longer = rows.get(f"definition:{own}")
            text = str(row.columns.get("task", "")) or (gathered(longer.columns, "task") if longer else "{}")
            requires, left, dependents, optional = named
            counts = len(requires), len(left), len(dependents)
            first = status_of_task(row, paused), requires, left, dependents
            found.append(values.TaskDetail(*first, json.loads(text), *counts, optional=optional))
        return sorted(found, key=lambda each: each.status.label)

    async def pending(self, target: str) -> int:
        """How many tasks are ready for a target and not held back, in all live graphs: one query of each."""
        where = {"state": (str(TaskState.PENDING),), "target": (target,)}
        wanted = Range("task:", "task;", where=where, select=("held",))
        number = 0
        async with aclosing(self._pages(LIVE, Range(select=("since",)))) as graphs:
            async for graph in graphs:
                async with aclosing(self._pages(graph.key, wanted)) as rows:
                    number += sum([not is_held(row.columns.get("held")) async for row in rows])
        return number

    async def results(self, graph_id: str) -> dict[str, Any]:
        """Label -> what the task has handed on, of all tasks that have, sorted by label. Reads every completed task."""
        await self.graph_row(graph_id)
        wanted = Range("task:", "task;", where={"state": (str(TaskState.COMPLETED),)}, select=("label", "resolution"))
        found: dict[str, Any] = {}
        async for row in self._pages(graph_id, wanted):
            resolution = object_of(row.columns, "resolution")
            if OUTPUT in resolution:
                found[str(row.columns.get("label", ""))] = resolution[OUTPUT]
        return dict(sorted(found.items()))

    async def output(self, graph_id: str, label_or_id: str) -> Any:
        """What a task has handed on. Raises NotFound if that is nothing, with the reason."""
        status = await self.task_status(graph_id, label_or_id)
        resolution = status.resolution or {}
        if OUTPUT in resolution:
            return resolution[OUTPUT]
        if status.state != TaskState.COMPLETED:
            raise NotFound(f"task “{status.label}” is {status.state}: it has handed nothing on")
        if why := resolution.get(NO_OUTPUT):
            remedy = "`taskgraph logs --result` has it whole"
            raise NotFound(f"task “{status.label}” has handed nothing on: {why}; {remedy}")
        raise NotFound(f"task “{status.label}” has completed without a result")
