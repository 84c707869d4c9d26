"""The client: submit graphs, look at them, run them in this process.

`Client` moves no task by itself: it submits, sends messages and asks questions (D16), and `Client.run` starts the loops
that `taskgraph run` starts.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskgraph.documents.edit_document import EditDocument, edit_from_object
from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.parameters import names_in
from taskgraph.documents.read import Given
from taskgraph.engine.archive_file import Archived, Bounds, open_archive
from taskgraph.engine.delete import Deleted
from taskgraph.engine.outlets import read_outlets
from taskgraph.engine.restore import Restored
from taskgraph.engine.submission import Extension, Submission, Submitted
from taskgraph.interfaces import loops, one_graph
from taskgraph.interfaces.app import App
from taskgraph.interfaces.client.graph import Graph, GraphLike, document_of, explained, has_params
from taskgraph.interfaces.client.looking import LookingCalls
from taskgraph.interfaces.client.naming import by_graph
from taskgraph.interfaces.client.operating import OperatingCalls
from taskgraph.interfaces.client.rehearsing import RehearsingCalls
from taskgraph.interfaces.client.schedules import ScheduleCalls
from taskgraph.interfaces.one_graph import Watcher
from taskgraph.interfaces.operations import archive, notify, requests, which
from taskgraph.interfaces.operations.checks import CannotRun, check_all_can_run
from taskgraph.interfaces.settings import StoreSettings
from taskgraph.model.flag import Flag
from taskgraph.model.placement import Offer, target_of
from taskgraph.model.secrecy import read_handed
from taskgraph.model.states import GRAPH_ENDED
from taskgraph.protocol.notices import has_notices
from taskgraph.queries import values
from taskgraph.storage.store import Store
from taskgraph.worker.executors import Executors, built_in

if TYPE_CHECKING:
    from taskgraph.interfaces.client.sync import SyncClient

SLOTS_DEFAULT: Final = 4
"""Tasks that `Client.run` runs side by side."""


@by_graph("delete")
class Client(LookingCalls, OperatingCalls, RehearsingCalls):
    """One store, as an asynchronous context manager.

    async with Client("sqlite:///graphs.db") as client:
        submitted = await client.submit(graph)
        state = await client.wait(submitted.graph_id)

    store: `sqlite:///path`, a connection string, `https://ACCOUNT.table.core.windows.net`, `https://HOST/api` of a
    server, settings, a store that is open already (`taskgraph.testing.MemoryStore`), or None for what the environment
    says (TASKGRAPH_STORE …). token: that a server asks for, None for TASKGRAPH_TOKEN. Raises InvalidSettings. Every
    call may raise StorageUnavailable; those that name a graph or task raise NotFound, with the nearest names. A task is
    named by its label or taskId; a graph by its id, the beginning of one (3 characters at least), or `@last`. Only
    `delete` wants the whole id.
    """

    @classmethod
    def sync(cls, store: str | StoreSettings | Store | None = None, *, token: str | None = None) -> "SyncClient":
        """The same face for programs without an event loop."""
        from taskgraph.interfaces.client.sync import SyncClient

        return SyncClient(store, token=token)

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

    @property
    def schedules(self) -> "ScheduleCalls":
        """Graphs that are submitted by the clock: `await client.schedules.create("nightly", graph, cron=…)`."""
        return ScheduleCalls(self)

    async def notices(self, graph_id: str, *, retry: bool = False) -> list[values.ChannelStatus]:
        """The channels that notices of a graph go to. retry: try those at once that wait, or were given up."""
        return (await notify.channels(self.app, graph_id, retry=retry))[0]

    async def delete(self, graph_id: str, *, force: bool = False, reason: str = "") -> Deleted:
        """Delete a graph that has ended, with its logs, for good. The same call again continues an interrupted one.

        force: a blocked graph too. reason: kept with its tombstone for 30 days, during which its id is not given again;
        on a file `submit` and `run` then take the next one (`x-2`), for which the id stands. Raises NotFound for an
        unknown graph, Refused for one that has not ended.
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

        callables: what tasks with a `call` may call, by name; functions that the graph was made with need none. slots:
        tasks run side by side. targets: whose work is done here; those of the graph's tasks if None. params: see
        `submit`. every: work on all other graphs of the store, too, until this one ends. The same graph under the same
        id goes on where it stopped. Commands get none of this process's secrets but those that TASKGRAPH_PASS_ENV and
        TASKGRAPH_WITH_STORE name, and on a storage account little else of its environment unless TASKGRAPH_INHERIT_ENV
        is on; callables run in this process. Raises what `submit` raises, and TimeoutError;
        unfinished runs are handed back first.
        """
        app = self.app
        app.check_direct("running tasks", "have workers elsewhere run it: submit, then wait")
        document = document_of(graph, given=Given(params or {}))
        graph_id = await which.new_id(app, document, given=graph_id)
        if targets is None:
            targets = sorted({target_of(node.task) for node in document.tasks.values()})
        handed = read_handed(os.environ, shared=app.settings.shared)
        if isinstance(graph, Graph) and (own := graph.callables):
            callables = {**own, **(callables or {})}
        executors = built_in(app.clock, callables=callables, handed=handed)
        _check_callables(document, executors, targets)
        worker = app.worker(executors, targets=targets, slots=slots, with_store=handed.store)
        outlets = read_outlets(os.environ, commands=True) if has_notices(document) else None
        with one_graph.taking(app, graph_id, [worker], every=every) as consumer, contextlib.ExitStack() as stack:
            fresh = (await self.submit(document, graph_id)).outcome is Submitted.CREATED
            stop, late = stack.enter_context(_patience(timeout_seconds))
            state = await one_graph.run_graph(
                app,
                graph_id,
                stop,
                workers=[worker],
                consumer=consumer,
                watcher=watcher,
                fresh=fresh,
                outlets=outlets,
                every=every,
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


@contextlib.contextmanager
def _patience(seconds: float | None) -> Iterator[tuple[Flag, Flag]]:
    """Two flags, both set after so many seconds: what stops a run, and that its time was up."""
    stop, late = Flag(), Flag()

    def end() -> None:
        late.set()
        stop.set()

    timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, end)
    try:
        yield stop, late
    finally:
        if timer is not None:
            timer.cancel()
