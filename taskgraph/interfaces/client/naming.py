"""Methods of clients that are about one graph: by its id, by the beginning of one, or the last one."""

import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, TypeVar

from taskgraph.interfaces.operations.which import named

C = TypeVar("C")

_BY_ID: Final = "graph_id"
"""Methods with this first parameter are about one graph."""


def by_graph(*whole: str) -> Callable[[type[C]], type[C]]:
    """Let methods of a class take what stands for an id (see `operations.which.named`); whole: but these."""

    def made(cls: type[C]) -> type[C]:
        for name, method in list(vars(cls).items()):
            if name in whole or not inspect.isfunction(method) or method.__code__.co_varnames[1:2] != (_BY_ID,):
                continue
            if inspect.isasyncgenfunction(method):
                setattr(cls, name, _stream(method))
            elif inspect.iscoroutinefunction(method):
                setattr(cls, name, _answer(method))
        return cls

    return made


def _answer(method: Callable[..., Any]) -> Callable[..., Any]:

    @functools.wraps(method)
    async def call(self: Any, graph_id: str, *args: Any, **kwargs: Any) -> Any:
        return (await named(self.app, graph_id, lambda known: method(self, known, *args, **kwargs)))[1]

    return call


def _stream(method: Callable[..., AsyncGenerator[Any]]) -> Callable[..., AsyncGenerator[Any]]:

    @functools.wraps(method)
    async def call(self: Any, graph_id: str, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        async def begun(known: str) -> tuple[AsyncGenerator[Any], list[Any]]:
            values = method(self, known, *args, **kwargs)
            try:
                return values, [await anext(values)]
            except StopAsyncIteration:
                return values, []

        _, (values, first) = await named(self.app, graph_id, begun)
        async with contextlib.aclosing(values):
            for each in first:
                yield each
            async for each in values:
                yield each

    return call
