"""`Client` and its schedules for programs without an event loop, and inside of one that cannot wait (a notebook)."""

import asyncio
import contextvars
import functools
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from taskgraph.interfaces.client.client import Client
from taskgraph.interfaces.client.schedules import ScheduleCalls
from taskgraph.interfaces.settings import StoreSettings
from taskgraph.queries import values
from taskgraph.storage.store import Store

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", covariant=True)
Run = Callable[[Coroutine[Any, Any, Any]], Any]


class _LoopThread:
    """An event loop that runs in a thread of its own until it is closed."""

    def __init__(self) -> None:
        self._context = contextvars.copy_context()  # one for all calls, so that what one sets the next finds
        begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(
            target=asyncio.run, args=(_until_closed(begun),), name="taskgraph-client", daemon=True
        )
        self._thread.start()
        self._loop, self._closing = begun.result()

    def run(self, call: Coroutine[Any, Any, R]) -> R:
        """Run a call to its end. An interrupt of the waiting thread cancels the call, and waits for its end."""
        task = asyncio.run_coroutine_threadsafe(self._started(call), self._loop).result()
        ended = asyncio.run_coroutine_threadsafe(_ended(task), self._loop)
        try:
            ended.result()
        except BaseException:
            if not ended.done():
                self._loop.call_soon_threadsafe(task.cancel)
                ended.result()
            raise
        value, error = task.result()
        if error is not None:
            raise error
        return value  # type: ignore[return-value]  # with no error there is one

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    async def _started(self, call: Coroutine[Any, Any, R]) -> "asyncio.Task[tuple[R | None, BaseException | None]]":
        return asyncio.get_running_loop().create_task(_settled(call), context=self._context)


async def _until_closed(begun: "Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]") -> None:
    closing = asyncio.Event()
    begun.set_result((asyncio.get_running_loop(), closing))
    await closing.wait()


async def _settled(call: Coroutine[Any, Any, R]) -> tuple[R | None, BaseException | None]:
    """What a call gives or raises; an exit that it raises would end the loop instead."""
    try:
        return await call, None
    except BaseException as error:  # reach: client
        return None, error


async def _ended(task: "asyncio.Task[Any]") -> None:
    await asyncio.wait((task,))


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

    It has an event loop in a thread of its own, so it also works inside a running event loop, such as a notebook's,
    which stands still while a method runs. Not to be shared between threads.
    """

    def __init__(self, store: str | StoreSettings | Store | None = None, *, token: str | None = None) -> None:
        super().__init__(Client(store, token=token), self._run_open)
        self._loop: _LoopThread | None = None

    def __enter__(self) -> "SyncClient":
        if self._loop is not None:
            raise RuntimeError("this client is open already")
        loop = _LoopThread()
        try:
            loop.run(self._calls.__aenter__())
        except BaseException:
            loop.close()
            raise
        self._loop = loop
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.run(self._calls.__aexit__(kind, error, trace))
            finally:
                loop.close()

    def _run_open(self, call: Coroutine[Any, Any, R]) -> R:
        if self._loop is None:
            call.close()
            raise RuntimeError("this client is not open: use `with Client.sync(…) as client`")
        return self._loop.run(call)

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
            if self._loop is not None:
                self._run(events.aclose())

    follow.__doc__ = Client.follow.__doc__
    submit = _sync(Client.submit)
    extend = _sync(Client.extend)
    edit = _sync(Client.edit)
    plan = _sync(Client.plan)
    apply = _sync(Client.apply)
    plan_each = _sync(Client.plan_each)
    apply_each = _sync(Client.apply_each)
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
    files = _sync(Client.files)
    timeline = _sync(Client.timeline)
    document = _sync(Client.document)
    resubmit = _sync(Client.resubmit)
    rehearse = _sync(Client.rehearse)
    rehearse_rest = _sync(Client.rehearse_rest)
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
