"""Why a task does not run: what it waits for, down to the first causes, in words, with a remedy for each."""

from collections.abc import Mapping, Sequence
from typing import Final

from taskgraph.model.budget import is_spent
from taskgraph.model.columns import Value, integer, object_of
from taskgraph.model.ids import group_key, group_of, is_relay, is_shared, is_task_id, row_key
from taskgraph.model.row_schema import EXPLAINED
from taskgraph.model.states import TaskState, When, condition_words
from taskgraph.protocol.conditions import in_words, meets
from taskgraph.queries import targets as gates
from taskgraph.queries.causes import NAMED_MAX, Causes
from taskgraph.queries.edges import Edges, references, worth_pages
from taskgraph.queries.groups import success_of
from taskgraph.queries.lookup import GraphQueries
from taskgraph.queries.rows import NEWER, is_known, newer_words, status_of_task
from taskgraph.queries.targets import limits_in
from taskgraph.queries.values import FAILED, NOT_COMPLETED, OF_GROUP, TO_BEGIN, Explanation, GroupSuccess, Reason, tasks
from taskgraph.queries.workers import Crew, crew
from taskgraph.storage.tables import Range, Row, Tables, or_none, query_all

WHY_READS_MAX: Final = 256  # rows that `why` reads one by one, at the most; what it still needs then is read by pages
WHY_WAITING_MAX: Final = 1_000
WHY_CAUSES_MAX: Final = 1_000  # of first causes, and above of tasks that only wait; the rest is counted


class _Below:
    """The rows below a task that waits: so many of them one by one, and then all that have not completed by pages."""

    def __init__(self, tables: Tables, graph_id: str, alone: int) -> None:
        self._tables = tables
        self._graph_id = graph_id
        self._alone = alone
        self._tasks: dict[str, Row] | None = None  # once they have been read by pages
        self._relays: dict[str, Row | None] = {}
        self._edges = Edges(tables, graph_id, self._relays)
        self._left: dict[str, list[str]] = {}  # by the text of the column, where it names groups
        # groupId -> its name, how many tasks are in it, and how it stands if it needs k of n
        self._groups: dict[str, tuple[str, int, GroupSuccess | None]] = {}

    async def left(self, row: Row) -> list[str]:
        text = str(row.columns.get("requiresLeft", ""))
        if text in self._left:
            return self._left[text]
        if self._edges.reads >= self._alone:
            await self._read_pages()
        found = await self._edges.required(references(row, "requiresLeft"), left=True)
        if OF_GROUP in text:
            self._left[text] = found
        return found

    async def wanted(self, row: Row, number: int) -> str:
        """What a task waits for, in words: groups by their names. number: of all tasks that it waits for."""
        listed = references(row, "requiresLeft")
        shared = [each for each in listed if is_shared(each)]
        if not shared:
            return tasks(number)
        parts: list[str] = []
        for reference in shared[:NAMED_MAX]:
            name, total, success = await self._group(group_of(reference))
            left = len(await self._edges.required([reference], left=True))
            if success is not None and reference.endswith("done"):
                counted = f"{success.ok:,} completed, {success.bad:,} did not, of {success.of:,}"
                parts.append(f"group “{name}”, which needs {success.needs:,} tasks ({counted})")
            elif reference.endswith("done"):
                parts.append(f"{left:,} of {tasks(total)} of group “{name}”")
            else:
                parts.append(f"{tasks(left)} that its group “{name}” requires")
        if len(shared) > NAMED_MAX:
            more = len(shared) - NAMED_MAX
            parts.append(f"those of {more:,} more group{'s' if more != 1 else ''}")
        if others := sum(not is_relay(each) for each in listed):
            parts.append(f"{others:,} other task{'s' if others != 1 else ''}")
        return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)

    async def _group(self, group_id: str) -> tuple[str, int, GroupSuccess | None]:
        if group_id not in self._groups:
            (row,) = await self._tables.get(self._graph_id, [group_key(group_id)])
            columns: Mapping[str, Value] = row.columns if row else {}
            success = await success_of(self._tables, self._graph_id, row) if row else None
            self._groups[group_id] = str(columns.get("label", group_id)), integer(columns, "tasks"), success
        return self._groups[group_id]

    async def get(self, keys: Sequence[str]) -> list[Row]:
        if self._tasks is None and len(keys) > self._alone - self._edges.reads:
            await self._read_pages()
        known = self._tasks or {}
        missing = [key for key in keys if key not in known]
        self._edges.reads += len(missing)
        # What was not there among the others has completed meanwhile, or is gone.
        found = dict(zip(missing, await self._tables.get(self._graph_id, missing), strict=True)) if missing else {}
        rows = [known.get(key) or found.get(key) for key in keys]
        return [row for row in rows if row is not None]

    async def _read_pages(self) -> None:
        if self._tasks is not None:
            return
        waiting = Range("task:", "task;", where={"state": NOT_COMPLETED}, select=("schema", *EXPLAINED))
        joins = Range("join:", "join;", where={"state": tuple(TO_BEGIN)}, select=("requiresLeft",))
        self._tasks = {row.key: row for row in await query_all(self._tables, self._graph_id, waiting)}
        self._relays.update((row.key, row) for row in await query_all(self._tables, self._graph_id, joins))


def _waiting(row: Row, depth: int, wanted: str) -> Reason:
    status = status_of_task(row)
    text = f"waits for {wanted}"
    if words := condition_words(status.when):
        text += f"; {words}"
    failed, skipped = (object_of(row.columns, name) for name in ("failedBy", "skippedBy"))
    if not meets(status.when, failed=bool(failed), skipped=bool(skipped)) and status.when != When.ANY_FAILED:
        cause = skipped if status.when == When.ALL_RESOLVED else failed or skipped
        text += f"; then it will be skipped: {in_words(cause)}"
    return Reason(status.label, status.task_id, status.state, depth, text, False)


def _skipped(row: Row, depth: int) -> tuple[Reason, str] | None:
    """Why a task was skipped, and the taskId of the first cause; None where that is no other task."""
    status = status_of_task(row)
    if status.state != TaskState.SKIPPED or not is_known(row):
        return None
    resolution = status.resolution or {}
    cause = resolution.get("cause")
    task_id = cause.get("taskId") if isinstance(cause, dict) else None
    if not isinstance(task_id, str) or not is_task_id(task_id):
        return None
    text = f"was skipped because {resolution.get('reason', '')}"
    return Reason(status.label, status.task_id, status.state, depth, text, False), task_id


class WhyQueries(GraphQueries):
    async def why(self, graph_id: str, label_or_id: str) -> list[Reason]:
        return (await self.explain(graph_id, label_or_id)).reasons

    async def explain(self, graph_id: str, label_or_id: str) -> Explanation:
        """What a task waits for, down to the first causes, breadth first; each task is explained once."""
        graph = await self.graph_row(graph_id)
        first = await self._find(graph_id, label_or_id)
        if not is_known(graph):
            status = status_of_task(first)
            text = f"its graph: {newer_words(graph)}"
            reason = Reason(status.label, status.task_id, status.state, 0, text, True, NEWER)
            return Explanation([reason], 1, 0)
        rows = _Below(self._tables, graph_id, min(worth_pages(integer(graph.columns, "tasks")), WHY_READS_MAX))
        waiting: list[tuple[int, int, Reason]] = []  # depth and place among all, for the order
        stuck: list[tuple[int, int, Row]] = []
        number = waits = 0
        passed: set[str] = set()  # what many tasks wait for in the same words, by way of a group
        seen = {first.key}
        level = [first]
        depth = 0
        while level:
            below: dict[str, None] = {}
            for row in level:
                number += 1
                if row.columns.get("state") != TaskState.UNSCHEDULED or not is_known(row):
                    if (skipped := _skipped(row, depth)) is None:
                        stuck.append((depth, number, row))
                    else:
                        reason, cause = skipped
                        below[row_key(cause)] = None
                        waits += 1
                        waiting.append((depth, number, reason))
                    continue
                left = await rows.left(row)
                text = str(row.columns.get("requiresLeft", ""))
                if text not in passed:
                    below.update(dict.fromkeys(row_key(each) for each in left))
                    if OF_GROUP in text:
                        passed.add(text)
                waits += 1
                if len(waiting) < WHY_WAITING_MAX:
                    waiting.append((depth, number, _waiting(row, depth, await rows.wanted(row, len(left)))))
            keys = [key for key in below if key not in seen]
            seen.update(keys)
            level = await rows.get(keys)
            depth += 1
        causes = len(stuck)
        if causes > WHY_CAUSES_MAX:  # what failed holds up the graph, what is ready or runs may be gone in a moment
            stuck.sort(key=lambda one: one[2].columns.get("state") not in FAILED)
        states = {row.columns.get("state") for _, _, row in stuck}
        waiting_for_workers = TaskState.PENDING in states
        with_others = waiting_for_workers or TaskState.RUNNING in states
        found = await crew(self._tables, self._clock.now(), self._is_dead) if with_others else Crew()
        beside = await or_none(query_all(self._tables, gates.GATES, Range())) if waiting_for_workers else ()
        beside = beside or ()  # out of sight
        paused, permitted = gates.closed_in(beside), limits_in(beside, self._clock.now())
        state = str(graph.columns.get("state", ""))
        several = integer(graph.columns, "failedTasks") > 1
        causes_of = Causes(
            self._tables,
            self._queues,
            self._clock,
            self._names,
            graph_id,
            state,
            graph.columns,
            several,
            found,
            paused,
            permitted,
            spent=is_spent(graph.columns.get),
        )
        made = [(depth, number, await causes_of.reason(row, depth)) for depth, number, row in stuck[:WHY_CAUSES_MAX]]
        ordered = sorted([*waiting, *made], key=lambda one: one[:2])
        return Explanation([reason for _, _, reason in ordered], causes, waits)
