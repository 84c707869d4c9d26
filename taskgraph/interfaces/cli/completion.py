"""What a shell is offered after TAB: ids of graphs, labels of tasks, targets and schedules out of the store; states.

A shell waits for it, so it takes two seconds at most, and says nothing where the store cannot be read.
"""

import contextlib
import logging
import os
import shlex
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App

_SECONDS_MAX: Final = 2.0
_GRAPHS_MAX: Final = 100  # the newest
_LABELS_MAX: Final = 200  # of a large graph


def graph_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    async def ids(app: "App") -> list[str]:
        return [each.graph_id for each in await app.queries.graphs(limit=_GRAPHS_MAX)]

    return _offered(ctx, incomplete, ids)


def labels(ctx: typer.Context, incomplete: str) -> list[str]:
    graph_id = ctx.params.get("graph_id")
    if not graph_id:
        return []

    async def of_graph(app: "App") -> list[str]:
        from taskgraph.interfaces.operations.which import named

        _, found = await named(
            app, graph_id, lambda meant: app.queries.tasks(meant, match=incomplete, limit=_LABELS_MAX)
        )
        return [each.label for each in found]

    return _offered(ctx, incomplete, of_graph)


def targets(ctx: typer.Context, incomplete: str) -> list[str]:
    async def of_store(app: "App") -> list[str]:
        """Those that workers serve, and those that have a limit."""
        from taskgraph.interfaces.operations import limit, workers

        served = {target for each in (await workers.listed(app)).workers for target in each.targets}
        return sorted({"default", *served, *(each.target for each in await limit.of_targets(app))})

    return _offered(ctx, incomplete, of_store)


def schedules(ctx: typer.Context, incomplete: str) -> list[str]:
    async def names(app: "App") -> list[str]:
        return [each.name for each in await app.schedules().listed()]

    return _offered(ctx, incomplete, names)


def one_of(words: Iterable[str]) -> Callable[[str], list[str]]:
    """Offers of these words, which no store is asked for."""

    def offered(incomplete: str) -> list[str]:
        return [each for each in words if each.startswith(incomplete)]

    return offered


def _offered(ctx: typer.Context, incomplete: str, ask: "Callable[[App], Awaitable[Iterable[str]]]") -> list[str]:
    """What begins like this, without what would have to be quoted: shells put it in as it is."""
    found: Iterable[str] = ()
    # Whatever goes wrong: in the middle of a line that is typed there is no place for an error.
    with contextlib.suppress(Exception), _bounded():
        import asyncio

        found = asyncio.run(_asked(ctx, ask))
    return [each for each in found if each.startswith(incomplete) and shlex.quote(each) == each]


async def _asked(ctx: typer.Context, ask: "Callable[[App], Awaitable[Iterable[str]]]") -> Iterable[str]:
    from taskgraph.interfaces.app import open_app
    from taskgraph.interfaces.settings import read_settings

    store = ctx.params.get("store") or ctx.find_root().params.get("store")
    async with open_app(read_settings(store, os.environ, cwd=Path.cwd())) as app:
        return await ask(app)


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """End the process, which has said nothing yet, when its time is up: no thread that waits for a store holds it."""
    logging.disable(logging.CRITICAL)
    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, _SECONDS_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        logging.disable(logging.NOTSET)
