"""The calls of a client that only look."""

import contextlib
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, overload

from taskgraph.interfaces.app import App
from taskgraph.interfaces.client.graph import patterns
from taskgraph.interfaces.client.naming import by_graph
from taskgraph.interfaces.client.opening import OpenStore
from taskgraph.interfaces.operations import document, files, limit
from taskgraph.interfaces.operations.files import TaskFile
from taskgraph.model.columns import Value
from taskgraph.model.errors import NotFound
from taskgraph.queries import values
from taskgraph.queries.document import Stored
from taskgraph.queries.targets import TargetLimit
from taskgraph.queries.timeline import Timeline

_LOG_PIECE_BYTES: Final = 1 << 20


@by_graph()
class LookingCalls(OpenStore):
    async def request(self, graph_id: str, request: str) -> Mapping[str, Value]:
        """What became of an extension or edit: `state` (staged, accepted, done, refused), and `reason` if refused."""
        return await self.app.queries.request(graph_id, request)

    async def graphs(
        self,
        *,
        limit: int = 50,
        state: str = "",
        schedule: str = "",
        name: str = "",
        tags: Mapping[str, str | None] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[values.GraphListed]:
        """The newest graphs first, of one state (or "paused") or schedule where that is given.

        name: a part of the name in any case, or a pattern of it with `*` and `?`. tags: their values, None for any.
        since, until: when they were created, with a time zone.
        The answers say how far live graphs are (`done`), which takes a read more for each.
        """
        wanted = values.GraphsWanted(state, name, tags or {}, since, until)
        return await self.app.queries.graphs(limit=limit, schedule=schedule, wanted=wanted, counted=True)

    @overload
    async def status(self, graph_id: str) -> values.GraphStatus: ...

    @overload
    async def status(self, graph_id: str, *, group: str) -> values.GroupStatus: ...

    async def status(self, graph_id: str, *, group: str | None = None) -> values.GraphStatus | values.GroupStatus:
        """A graph, with its tasks counted by state; or one group of it, with its tasks.

        Of a graph of more than limits.COUNTED_TASKS_MAX (2,000) tasks the counts of completed, failed and remaining
        tasks are exact; others may be missing, as reads are bounded: then `exact` is false.
        """
        if group is not None:
            return await self.app.queries.group(graph_id, group)
        return await self.app.queries.status(graph_id)

    async def tasks(
        self, graph_id: str, *, state: str = "", match: str = "", limit: int = 1000
    ) -> list[values.TaskStatus]:
        """Tasks of a graph by label; only those in a state, or with the text `match` in their label, where given.

        Of a graph of more than limits.COUNTED_TASKS_MAX (2,000) tasks any `limit` of these, and not the first.
        """
        return await self.app.queries.tasks(graph_id, state=state, match=match, limit=limit)

    async def task(self, graph_id: str, label: str, *, edges: int | None = None) -> values.TaskDetail:
        """A task with its definition, requirements and dependents. edges: name at most so many of each; count all."""
        return await self.app.queries.task(graph_id, label, edges=edges)

    async def why(self, graph_id: str, label: str) -> list[values.Reason]:
        """Why a task does not run: what it waits for, down to the first causes, each with a remedy."""
        return await self.app.queries.why(graph_id, label)

    async def events(
        self,
        graph_id: str,
        *,
        since: int | str = 0,
        limit: int = 1000,
        where: Mapping[str, str | Sequence[str]] | None = None,
    ) -> list[values.Event]:
        """The journal of a graph, in order, after `since`: the number of an event, or its `cursor`.

        where: only events whose fields have these values, such as {"event": "task-*", "label": ["build", "test"]}; `*`
        and `?` stand for any text. Raises InvalidInput for what is no cursor.
        """
        return await self.app.queries.events(graph_id, since=since, limit=limit, where=patterns(where))

    async def follow(
        self, graph_id: str, *, since: int | str = 0, where: Mapping[str, str | Sequence[str]] | None = None
    ) -> AsyncGenerator[values.Event]:
        """The events of a graph as they come, until it can change no more.

        async for event in client.follow("nightly", where={"event": "task-failed"}):
            print(event.fields["label"], event.cursor)

        To go on after an interruption, give the `cursor` of the last event that was dealt with as `since`: no event is
        left out, and none comes twice. where: as for `events`.
        """
        async with contextlib.aclosing(self.app.queries.follow(graph_id, since=since, where=patterns(where))) as events:
            async for each in events:
                yield each

    async def files(self, graph_id: str, *labels: str, to: str | Path | None = None) -> list[TaskFile]:
        """The files that these tasks, or all of the graph, have left. to: a folder to copy them into, by their paths.

        Raises NotFound for a task without any, Conflict for two of one path and different content.
        """
        found = await files.find(self.app, graph_id, labels)
        if to is not None:
            await files.copy(self.app, graph_id, found, Path(to))
        return found

    async def timeline(self, graph_id: str) -> Timeline:
        """When the tasks of a graph ran, and its critical path: the tasks that decided when it ended."""
        return await self.app.queries.timeline(graph_id)

    async def document(self, graph_id: str) -> Stored:
        """The document of a stored graph, and whether it is the `same` as was submitted; `to_dict()` gives its JSON.

        Tasks that were added or edited since are in it. Raises Refused while the rows of the graph come or go.
        """
        return await document.stored(self.app, graph_id)

    async def limits_of(self, graph_id: str) -> list[values.LimitStatus]:
        """The limits on tasks in flight of a graph, and what is in flight."""
        return await self.app.queries.limits_of(graph_id)

    async def target_limits(self) -> list[TargetLimit]:
        """The limited targets, and who holds their permits."""
        return await limit.of_targets(self.app)

    async def logs(self, graph_id: str, label: str, *, run: int | None = None) -> str:
        """What a run has written so far; run: its number, the present one if None. Raises NotFound before it begins."""
        return (await _whole_file(self.app, graph_id, label, run, "run.log") or b"").decode("utf-8", "replace")

    async def result(self, graph_id: str, label: str, *, run: int | None = None) -> Any:
        """The JSON value that a run left as its result; None if it left none. Raises NotFound as `logs` does."""
        data = await _whole_file(self.app, graph_id, label, run, "result.json")
        return None if data is None else json.loads(data)

    async def results(self, graph_id: str) -> dict[str, Any]:
        """Results of the tasks of a graph by label, as far as each has at most limits.OUTPUT_CHARS_MAX as JSON."""
        return await self.app.queries.results(graph_id)


async def _whole_file(app: App, graph_id: str, label: str, run: int | None, name: str) -> bytes | None:
    status = await app.queries.task_status(graph_id, label)
    if run is None:
        run = status.run
    if not 0 <= run <= status.run:
        raise NotFound(f"task “{status.label}” has no run {run}; its present one is {status.run}")
    data = b""
    while True:
        piece = await app.logs.read(graph_id, status.task_id, run, offset=len(data), limit=_LOG_PIECE_BYTES, name=name)
        if not piece:
            return None if piece is None and not data else data
        data += piece
