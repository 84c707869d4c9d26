"""The clients: submit graphs, look at them, run them in this process; `SyncClient` for programs without an event loop.

`Client` moves no task by itself: it submits, sends messages and asks questions (D16), and `Client.run` starts the loops
that `taskgraph run` starts.
"""

import asyncio
import contextlib
import functools
import json
import os
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, overload

from taskgraph.documents.edit_document import EditDocument, edit_from_object
from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.parameters import names_in
from taskgraph.documents.read import Given
from taskgraph.engine.archive_file import Archived, Bounds, open_archive
from taskgraph.engine.delete import Deleted
from taskgraph.engine.outlets import read_outlets
from taskgraph.engine.plans import EditPreview
from taskgraph.engine.restore import Restored
from taskgraph.engine.submission import Extension, Submission, Submitted
from taskgraph.interfaces import loops
from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.client.graph import GraphLike, document_of, explained, has_params, patterns
from taskgraph.interfaces.client.naming import by_graph
from taskgraph.interfaces.client.schedules import ScheduleCalls
from taskgraph.interfaces.loops import Watcher
from taskgraph.interfaces.operations import archive, cancel, limit, notify, pause, prioritize, requests, rerun, which
from taskgraph.interfaces.operations.checks import CannotRun, check_all_can_run
from taskgraph.interfaces.operations.waiting import ends
from taskgraph.interfaces.settings import StoreSettings, read_settings
from taskgraph.model.clock import Clock, SystemClock
from taskgraph.model.columns import Value
from taskgraph.model.errors import NotFound
from taskgraph.model.placement import Offer, target_of
from taskgraph.model.secrecy import read_handed
from taskgraph.model.states import GRAPH_ENDED, GraphState
from taskgraph.protocol.notices import has_notices
from taskgraph.queries import values
from taskgraph.queries.lookup import check_graph_id
from taskgraph.queries.targets import TargetLimit
from taskgraph.storage.store import Store
from taskgraph.worker.executors import Executors, built_in

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
Run = Callable[[Coroutine[Any, Any, Any]], Any]

SLOTS_DEFAULT: Final = 4
"""Tasks that `Client.run` runs side by side."""

_LOG_PIECE_BYTES: Final = 1 << 20


@by_graph("delete")
class Client:
    """One store, as an asynchronous context manager.

    async with Client("sqlite:///graphs.db") as client:
        submitted = await client.submit(graph)
        state = await client.wait(submitted.graph_id)

    store: `sqlite:///path`, a connection string, `https://ACCOUNT.table.core.windows.net`, settings, a store that is
    open already (`taskgraph.testing.MemoryStore`), or None for what the environment says (TASKGRAPH_STORE …). Raises
    InvalidSettings. Every call may raise StorageUnavailable; those that name a graph or task raise NotFound, with the
    nearest names. A task is named by its label or taskId; a graph by its id, the beginning of one (3 characters at
    least), or `@last`. Only `delete` wants the whole id.
    """

    def __init__(self, store: str | StoreSettings | Store | None = None, *, clock: Clock | None = None) -> None:
        if isinstance(store, StoreSettings):
            self.settings = store
        elif store is None or isinstance(store, str):
            self.settings = read_settings(store, os.environ, cwd=Path.cwd())
        else:
            self.settings = StoreSettings(handed_in=store)
        handed_in = self.settings.handed_in
        self._clock = clock or (handed_in.clock if handed_in is not None else SystemClock())
        self._app: App | None = None
        self._stack = contextlib.AsyncExitStack()
        self._rerun: dict[str, dict[str, int]] = {}  # graph id -> taskId -> the run that is to be replaced
        self._cancel: dict[str, cancel.Cancellation] = {}  # graph id -> what was asked for last

    @classmethod
    def sync(cls, store: str | StoreSettings | Store | None = None) -> "SyncClient":
        """The same face for programs without an event loop."""
        return SyncClient(store)

    async def __aenter__(self) -> Self:
        if self._app is not None:
            raise RuntimeError("this client is open already")
        self._app = await self._stack.enter_async_context(open_app(self.settings, clock=self._clock))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._app = None
        await self._stack.aclose()

    @property
    def app(self) -> App:
        """The parts behind the client, for what it does not offer. Raises RuntimeError while the client is closed."""
        if self._app is None:
            raise RuntimeError("this client is not open: use `async with Client(…) as client`")
        return self._app

    async def submit(
        self, graph: GraphLike, graph_id: str | None = None, *, params: Mapping[str, Any] | None = None
    ) -> Submission:
        """Validate a graph, write it, start it. Other processes (or `run`) handle and work on it.

        graph_id: 1 to 64 letters, digits, `-` and `_`, no `-` first; a fresh one if None, made of the graph's name.
        params: values of its parameters, JSON values by name; they are kept on the graph's row, and are no place for
        secrets. The same content under the same id again gives the same answer, with another `outcome`. Raises
        InvalidGraph, InvalidInput for the id, Refused when another graph was submitted under it.
        """
        document = document_of(graph, given=Given(params or {}))
        return await requests.submit(self.app, graph_id, document)

    async def extend(
        self, graph_id: str, graph: GraphLike, *, request: str | None = None, params: Mapping[str, Any] | None = None
    ) -> Extension:
        """Ask for tasks to be added to a graph that runs, or is blocked; they may require tasks that it has.

        Of a paused graph they are added when it is resumed: then the answer says `waits_for="resume"`. request: its id,
        for `Client.request`; derived from the content if None, so that asking twice adds once. params: values of
        parameters; what is not given is as the graph has it. Raises InvalidGraph, Refused.
        """
        requests.check_ids(graph_id, request)
        if not isinstance(graph, GraphDocument):
            given = await requests.given(self.app, graph_id, params or {}, named=has_params(graph))
            graph = document_of(graph, "extension", given)
        elif params:
            graph = document_of(graph, "extension", Given(params))
        return await requests.extend(self.app, graph_id, graph, request=request)

    async def edit(
        self,
        graph_id: str,
        edit: Mapping[str, Any] | EditDocument,
        *,
        request: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Extension:
        """Ask for tasks that have not started to be changed or taken away: all of it in one step, or none.

        edit: `{"update": {label: {key: value}}, "delete": [label], "deleteGroups": [name], "ifRevision": n}`. request,
        params: as for `extend`. Raises InvalidGraph, Refused.
        """
        requests.check_ids(graph_id, request)
        document = await _edit_of(self.app, graph_id, edit, params)
        return await requests.edit(self.app, graph_id, document, request=request)

    async def plan_edit(
        self, graph_id: str, edit: Mapping[str, Any] | EditDocument, *, params: Mapping[str, Any] | None = None
    ) -> EditPreview:
        """What an edit would do now, row by row, or why it would be refused; nothing is written."""
        check_graph_id(graph_id)
        document = await _edit_of(self.app, graph_id, edit, params)
        return await requests.preview_edit(self.app, graph_id, document)

    async def request(self, graph_id: str, request: str) -> Mapping[str, Value]:
        """What became of an extension or edit: `state` (staged, accepted, done, refused), and `reason` if refused."""
        return await self.app.queries.request(graph_id, request)

    @property
    def schedules(self) -> "ScheduleCalls":
        """Graphs that are submitted by the clock: `await client.schedules.create("nightly", graph, cron=…)`."""
        return ScheduleCalls(self)

    async def graphs(self, *, limit: int = 50, state: str = "", schedule: str = "") -> list[values.GraphListed]:
        """The newest graphs first, of one state or schedule where that is given."""
        return await self.app.queries.graphs(limit=limit, state=state, schedule=schedule)

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

    async def notices(self, graph_id: str, *, retry: bool = False) -> list[values.ChannelStatus]:
        """The channels that notices of a graph go to. retry: try those at once that wait, or were given up."""
        return (await notify.channels(self.app, graph_id, retry=retry))[0]

    async def rerun(
        self, graph_id: str, *labels: str, group: str | None = None, failed: bool = False, reason: str = ""
    ) -> list[str]:
        """Ask for another run of tasks that failed for good: of these, of a group, or with `failed` of all.

        Gives their labels. reason: kept with the run. Raises InvalidInput if it is too long, and Refused, with nothing
        asked for, when one of the tasks has not failed for good, its deadline has passed, or its graph is over.
        """
        asked = await rerun.ask(self.app, graph_id, labels, group=group, failed=failed, reason=reason)
        self._rerun.setdefault(graph_id, {}).update({each.task_id: each.run for each in asked.tasks})
        return [each.label for each in asked.tasks]

    async def delete(self, graph_id: str, *, force: bool = False, reason: str = "") -> Deleted:
        """Delete a graph that has ended, with its logs, for good. The same call again continues an interrupted one.

        force: a blocked graph too. reason: kept with its tombstone for 30 days, during which its id cannot be used
        again. Raises NotFound for an unknown graph, Refused for one that has not ended.
        """
        return await archive.delete(self.app, graph_id, force=force, reason=reason)

    async def archive(
        self, graph_id: str, path: str | Path, *, logs: bool = False, overwrite: bool = False
    ) -> Archived:
        """Write a graph into a file (lines of JSON under gzip), from which it can be put back; logs: with its logs.

        It is signed if TASKGRAPH_ARCHIVE_KEY names a key. The answer is `complete` unless the graph moved meanwhile, or
        could. Raises NotFound, Refused for a file that exists unless `overwrite`, StorageUnavailable for a full disk,
        InvalidInput for another place that cannot be written to.
        """
        return await archive.write(self.app, graph_id, Path(path), with_logs=logs, overwrite=overwrite)

    async def restore(
        self,
        path: str | Path,
        *,
        require_signature: bool = False,
        max_rows: int | None = None,
        max_bytes: int | None = None,
    ) -> Restored:
        """Put an archived graph back under its own id, as it was. The same call again continues an interrupted one.

        require_signature: by a trusted key. max_rows, max_bytes: of what it unpacks to. Raises, with nothing written,
        InvalidInput for what is no archive, TooLarge for one beyond a bound, Refused for one of a graph that could move
        or contradicts itself, or if the id is taken.
        """
        bounds = Bounds.of(max_rows, max_bytes)
        with open_archive(Path(path)) as file:
            return await archive.restore(self.app, file, str(path), bounds=bounds, required=require_signature)

    async def cancel(
        self, graph_id: str, *labels: str, group: str = "", reason: str = "", terminate: bool = False
    ) -> list[str]:
        """Ask for a graph to be cancelled; or for these of its tasks alone, or those of a group. Gives their labels.

        What has not begun never will; what runs is stopped by its worker, and `wait` waits for that. terminate: running
        tasks count as ended at once. A task that is cancelled alone has failed for good, and can be rerun. No labels
        for the whole graph, and where everything is cancelled already. Raises InvalidInput for a reason that is too
        long, and Refused where the graph, or a task that is named, came to another end before.
        """
        asked = await cancel.ask(self.app, graph_id, labels, group=group, reason=reason, terminate=terminate)
        if not asked.nothing:
            self._cancel[graph_id] = asked
        return sorted(asked.tasks.values())

    async def pause(self, graph_id: str, *, group: str = "", reason: str = "", wait: bool = False) -> None:
        """Ask for a graph, or a group of it, to be held back: no further run begins until it is resumed.

        What runs already runs to its end. wait: until that is so. Raises Refused for a graph that is over, and while it
        waits if a later request asks for the opposite (code `superseded`). The same holds for the next three.
        """
        await _pause(self.app, graph_id, (), on=True, group=group, reason=reason, wait=wait)

    async def resume(self, graph_id: str, *, group: str = "", reason: str = "", wait: bool = False) -> None:
        """Ask for a graph that was paused to go on, or a group; also a group that was not active from the start."""
        await _pause(self.app, graph_id, (), on=False, group=group, reason=reason, wait=wait)

    async def deactivate(self, graph_id: str, *labels: str, reason: str = "", wait: bool = False) -> None:
        """Ask for single tasks to be held back, however ready they are. Raises Refused for one that is over."""
        await _pause(self.app, graph_id, labels, on=True, reason=reason, wait=wait)

    async def activate(self, graph_id: str, *labels: str, reason: str = "", wait: bool = False) -> None:
        """Ask for tasks to run that were deactivated, or were not active from the start."""
        await _pause(self.app, graph_id, labels, on=False, reason=reason, wait=wait)

    async def prioritize(
        self, graph_id: str, level: str, *labels: str, group: str = "", reason: str = "", wait: bool = False
    ) -> list[str]:
        """Ask for another priority for tasks, for those of a group, or for all, as far as they have not begun.

        Gives the labels of those that were asked for. wait: until they have it. Raises InvalidInput for what is no
        level, and Refused for a graph that is over, and a task that is named and runs, or is over.
        """
        asked = await prioritize.ask(self.app, graph_id, level, labels, group=group, reason=reason)
        if wait:
            await prioritize.settled(self.app, asked)
        return sorted(asked.tasks.values())

    async def pause_target(self, target: str, *, reason: str = "") -> bool:
        """Pause a target for all graphs; gives whether that is new.

        Workers notice within limits.GATE_SECONDS (5 s), and what runs then runs to its end.
        """
        return await pause.ask_target(self.app, target, on=True, reason=reason)

    async def resume_target(self, target: str) -> bool:
        """Let a target go on; gives whether it was paused."""
        return await pause.ask_target(self.app, target, on=False)

    async def set_limit(
        self, graph_id: str, most: int, *, group: str = "", reason: str = "", wait: bool = False
    ) -> None:
        """Ask for so many tasks of a graph, or of a group of it, to be in flight at a time; 0: as many as can be.

        What runs already runs to its end. wait: until that is so. Raises Refused for a graph that is over, or that was
        submitted without this limit; and, where it waits, if a later request sets another one (code `superseded`).
        """
        asked = await limit.ask(self.app, graph_id, most, group=group, reason=reason)
        if wait:
            await limit.settled(self.app, asked)

    async def limits_of(self, graph_id: str) -> list[values.LimitStatus]:
        """The limits on tasks in flight of a graph, and what is in flight."""
        return await self.app.queries.limits_of(graph_id)

    async def limit_target(self, target: str, most: int, *, reason: str = "") -> bool:
        """Let so many tasks of a target be in flight, over all graphs; 0: any number. Gives whether that is new.

        Workers notice within some 10 s, and what runs then runs to its end.
        """
        return await limit.ask_target(self.app, target, most, reason=reason)

    async def target_limits(self) -> list[TargetLimit]:
        """The limited targets, and who holds their permits."""
        return await limit.of_targets(self.app)

    async def wait(
        self, graph_id: str, *, timeout_seconds: float | None = None, watcher: Watcher | None = None
    ) -> GraphState:
        """Wait until a graph is finished or cancelled, or is blocked with nothing moving; gives its state.

        watcher: called with the state now and then. Raises TimeoutError when it takes longer than timeout_seconds.
        """
        app = self.app
        until = ends(app.clock, timeout_seconds)
        taken_up = await rerun.taken_up(app, graph_id, self._rerun.get(graph_id, {}), until=until)
        if taken_up:
            self._rerun.pop(graph_id, None)
        if taken_up and (asked := self._cancel.get(graph_id)) is not None:
            taken_up = await cancel.taken_up(app, asked, until=until)
            if taken_up:
                del self._cancel[graph_id]
        state = await loops.wait_for_end(app, graph_id, until=until, watcher=watcher) if taken_up else None
        if state is None:
            raise TimeoutError(f"graph {graph_id} has not ended within {timeout_seconds:g} s")
        return state

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

    async def run(
        self,
        graph: GraphLike,
        graph_id: str | None = None,
        *,
        callables: Mapping[str, Callable[..., Any]] | None = None,
        slots: int = SLOTS_DEFAULT,
        targets: Sequence[str] | None = None,
        timeout_seconds: float | None = None,
        watcher: Watcher | None = None,
        params: Mapping[str, Any] | None = None,
        every: bool = False,
    ) -> values.GraphStatus:
        """Submit a graph, then handle its events and work on it until it ends; gives its status then.

        callables: what tasks with a `call` may call, by name. slots: tasks run side by side. targets: whose work is
        done here; those of the graph's tasks if None. params: see `submit`. every: work on all other graphs of the
        store, too, until this one ends. The same graph under the same id goes on where it stopped. Commands get none of
        this process's secrets but those that TASKGRAPH_PASS_ENV and TASKGRAPH_WITH_STORE name; callables run in this
        process. Raises what `submit` raises, and TimeoutError; unfinished runs are handed back first.
        """
        app = self.app
        document = document_of(graph, given=Given(params or {}))
        graph_id = await which.new_id(app, document) if graph_id is None else graph_id
        if targets is None:
            targets = sorted({target_of(node.task) for node in document.tasks.values()})
        handed = read_handed(os.environ)
        executors = built_in(app.clock, callables=callables, handed=handed)
        _check_callables(document, executors, targets)
        worker = app.worker(executors, targets=targets, slots=slots, with_store=handed.store)
        outlets = read_outlets(os.environ, commands=True) if has_notices(document) else None
        with contextlib.ExitStack() as stack:
            if not every:  # from the first task on
                stack.enter_context(loops.keeping(app, graph_id, targets))
            fresh = (await self.submit(document, graph_id)).outcome is Submitted.CREATED
            stop, late = stack.enter_context(_patience(timeout_seconds))
            state = await loops.run_graph(
                app, graph_id, stop, workers=[worker], watcher=watcher, fresh=fresh, outlets=outlets, every=every
            )
            if outlets is not None:
                await loops.deliver_rest(app, graph_id, stop, outlets)
        if late.is_set() and state not in GRAPH_ENDED and await app.queries.busy(graph_id):
            raise TimeoutError(f"graph {graph_id} has not ended within {timeout_seconds:g} s")
        return await self.status(graph_id)


def _check_callables(document: GraphDocument, executors: Executors, targets: Collection[str]) -> None:
    """Raise InvalidGraph with every task that a worker of this process, for these targets, could not run."""
    offer = Offer()

    def why_not(task: Mapping[str, Any]) -> CannotRun | None:
        if (reason := executors.why_not(task)) is not None:
            return CannotRun(reason, "Pass what it calls in `callables`, or name an executor of this process.")
        if (reason := offer.why_not(task)) is not None:
            return CannotRun(reason, "Submit the graph, and start a worker that has what it asks for.")
        if (target := target_of(task)) not in targets:
            return CannotRun(f"it goes to the target {target}", "Name it in `targets`, too.", "target")
        return None

    check_all_can_run(document, "graph", why_not)


async def _edit_of(
    app: App, graph_id: str, edit: Mapping[str, Any] | EditDocument, params: Mapping[str, Any] | None
) -> EditDocument:
    if isinstance(edit, EditDocument):
        return edit
    given = await requests.given(app, graph_id, params or {}, named=bool(names_in([edit.get("update")])))
    with explained():
        return edit_from_object(edit, given=given)


async def _pause(
    app: App, graph_id: str, labels: Sequence[str], *, on: bool, group: str = "", reason: str, wait: bool
) -> None:
    asked = await pause.ask(app, graph_id, labels, on=on, group=group, reason=reason)
    if wait:
        await pause.settled(app, asked)


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


@contextlib.contextmanager
def _patience(seconds: float | None) -> Iterator[tuple[asyncio.Event, asyncio.Event]]:
    """Two events, both set after so many seconds: what stops a run, and that its time was up."""
    stop, late = asyncio.Event(), asyncio.Event()

    def end() -> None:
        late.set()
        stop.set()

    timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, end)
    try:
        yield stop, late
    finally:
        if timer is not None:
            timer.cancel()


class _Face(Generic[C]):
    """The base of synchronous twins. calls: the object whose methods they call; run: runs a call to its end."""

    def __init__(self, calls: C, run: Run) -> None:
        self._calls: C = calls
        self._run = run


def _sync(method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[_Face[C], P], R]:

    @functools.wraps(method)
    def call(self: _Face[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        found: R = self._run(method(self._calls, *args, **kwargs))
        return found

    return call


async def _next(events: AsyncGenerator[values.Event]) -> values.Event:
    return await anext(events)


class SyncClient(_Face[Client]):
    """`Client` for programs without an event loop: a context manager whose methods wait for their answers.

    with Client.sync("sqlite:///graphs.db") as client:
        status = client.run(graph)

    It has an event loop of its own, which runs while a method does. Inside a running event loop (a notebook) use
    `Client`. Not to be shared between threads.
    """

    def __init__(self, store: str | StoreSettings | Store | None = None) -> None:
        super().__init__(Client(store), self._run_open)
        self._runner: asyncio.Runner | None = None

    def __enter__(self) -> "SyncClient":
        if self._runner is not None:
            raise RuntimeError("this client is open already")
        runner = asyncio.Runner()
        try:
            runner.run(self._calls.__aenter__())
        except BaseException:
            runner.close()
            raise
        self._runner = runner
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            with runner:
                runner.run(self._calls.__aexit__(kind, error, trace))

    def _run_open(self, call: Coroutine[Any, Any, R]) -> R:
        if self._runner is None:
            call.close()
            raise RuntimeError("this client is not open: use `with Client.sync(…) as client`")
        return self._runner.run(call)

    @property
    def schedules(self) -> "SyncScheduleCalls":
        return SyncScheduleCalls(ScheduleCalls(self._calls), self._run)

    def follow(
        self, graph_id: str, *, since: int | str = 0, where: Mapping[str, str | Sequence[str]] | None = None
    ) -> Iterator[values.Event]:
        events = self._calls.follow(graph_id, since=since, where=where)
        try:
            while True:
                try:
                    event = self._run(_next(events))
                except StopAsyncIteration:
                    return
                yield event
        finally:
            if self._runner is not None:
                self._run(events.aclose())

    follow.__doc__ = Client.follow.__doc__
    submit = _sync(Client.submit)
    extend = _sync(Client.extend)
    edit = _sync(Client.edit)
    plan_edit = _sync(Client.plan_edit)
    request = _sync(Client.request)
    graphs = _sync(Client.graphs)
    status = _sync(Client.status)
    tasks = _sync(Client.tasks)
    task = _sync(Client.task)
    why = _sync(Client.why)
    events = _sync(Client.events)
    notices = _sync(Client.notices)
    pause = _sync(Client.pause)
    prioritize = _sync(Client.prioritize)
    resume = _sync(Client.resume)
    pause_target = _sync(Client.pause_target)
    set_limit = _sync(Client.set_limit)
    limits_of = _sync(Client.limits_of)
    limit_target = _sync(Client.limit_target)
    target_limits = _sync(Client.target_limits)
    resume_target = _sync(Client.resume_target)
    deactivate = _sync(Client.deactivate)
    activate = _sync(Client.activate)
    rerun = _sync(Client.rerun)
    delete = _sync(Client.delete)
    cancel = _sync(Client.cancel)
    archive = _sync(Client.archive)
    restore = _sync(Client.restore)
    wait = _sync(Client.wait)
    logs = _sync(Client.logs)
    result = _sync(Client.result)
    results = _sync(Client.results)
    run = _sync(Client.run)


class SyncScheduleCalls(_Face[ScheduleCalls]):
    """`ScheduleCalls` for programs without an event loop: `client.schedules` of a SyncClient."""

    create = _sync(ScheduleCalls.create)
    update = _sync(ScheduleCalls.update)
    list = _sync(ScheduleCalls.list)
    show = _sync(ScheduleCalls.show)
    activate = _sync(ScheduleCalls.activate)
    deactivate = _sync(ScheduleCalls.deactivate)
    activate_all = _sync(ScheduleCalls.activate_all)
    deactivate_all = _sync(ScheduleCalls.deactivate_all)
    delete = _sync(ScheduleCalls.delete)
    run_now = _sync(ScheduleCalls.run_now)
