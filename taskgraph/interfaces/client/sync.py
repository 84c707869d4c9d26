"""`Client` and its schedules for programs without an event loop of their own."""

import asyncio
import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
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
