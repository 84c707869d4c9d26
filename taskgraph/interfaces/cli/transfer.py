"""The command `transfer`: a live graph goes to another store."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.archive import rows_text
from taskgraph.interfaces.cli.common import Session, command
from taskgraph.interfaces.cli.options import GraphArgument
from taskgraph.interfaces.cli.output import count, safe
from taskgraph.interfaces.cli.progress import counting
from taskgraph.interfaces.settings import StoreSettings, read_settings
from taskgraph.model.errors import InvalidInput

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.interfaces.operations.transfer import Transferred

_NAMED_MAX = 5


@command(
    "taskgraph transfer nightly --to https://mystorage.table.core.windows.net",
    "taskgraph transfer nightly --store https://mystorage.table.core.windows.net --to sqlite:///.taskgraph/taskgraph.db",
    "taskgraph transfer nightly --to sqlite:///other.db --at-once",
    "taskgraph transfer nightly --to sqlite:///other.db --stay",
)
def transfer(
    session: Session,
    graph_id: GraphArgument,
    to: Annotated[
        str | None, typer.Option("--to", metavar="STORE", help="Where to: a store, written as for --store.")
    ] = None,
    at_once: Annotated[
        bool,
        typer.Option(
            "--at-once",
            help="Take what runs from its workers, and run it anew there; otherwise it comes to its end first.",
        ),
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0, metavar="SECONDS", help="Wait no longer than this for what runs."),
    ] = None,
    stay: Annotated[
        bool, typer.Option("--stay", help="Have it stay: possible until all of it is there and this store says so.")
    ] = False,
    abandon_source: Annotated[
        bool,
        typer.Option(
            "--abandon-source",
            help="Let it live in STORE, where all of it is, without a look at the store that it left. Only if that one "
            "is lost for good: otherwise the graph may live twice.",
        ),
    ] = False,
) -> int | None:
    """Bring a graph to another store, in mid-run: it goes on there, with its journal, logs, files and results.

    It is held back first: what runs comes to its end, and nothing else begins. Its rows are copied and checked, and
    only then it lives there, and not here any more. It keeps its id, and stays paused if it was.

    Interrupted at any point, the same command goes on; until it has moved, --stay takes it back. Handlers and workers
    of the other store run it from then on.
    """
    if stay and abandon_source:
        raise InvalidInput("say either --stay or --abandon-source")
    if to is None and not stay:
        raise InvalidInput("say where to: --to STORE")
    target = read_settings(to, os.environ, cwd=Path.cwd()) if to is not None else None
    if abandon_source:
        session.store = to
        _, done = session.open_graph(graph_id, _abandon)
    else:
        work = _Transfer(session, target, at_once=at_once, timeout=timeout, stay=stay)
        _, done = session.open_graph(graph_id, work.run)
    if done is None:
        raise failures.TimedOut(
            f"graph {graph_id} still has tasks that run, and is held back; the same command goes on, and "
            f"taskgraph transfer {graph_id} --stay lets it go on here"
        )
    if session.output.json:
        session.output.document(done.answer())
    else:
        session.output.data(_words(done))
    return None


def _words(done: "Transferred") -> str:
    if done.stays:
        return f"{done.graph_id} stays here, {done.state}"
    if done.already:
        return f"{done.graph_id} has moved to {done.store} already, where it is {done.state}"
    return (
        f"{done.graph_id} is in {done.store} now, {done.state}: {count(done.rows, 'row')}, {count(done.files, 'file')}"
    )


async def _abandon(app: "App", graph_id: str) -> "Transferred | None":
    from taskgraph.interfaces.operations.transfer import abandon_source

    return await abandon_source(app, graph_id)


class _Transfer:
    """One call of the command, between two stores."""

    def __init__(
        self, session: Session, target: StoreSettings | None, *, at_once: bool, timeout: float | None, stay: bool
    ) -> None:
        self._session = session
        self._target = target
        self._at_once = at_once
        self._timeout = timeout
        self._stay = stay

    async def run(self, app: "App", graph_id: str) -> "Transferred | None":
        from taskgraph.interfaces.app import open_app
        from taskgraph.interfaces.operations import transfer
        from taskgraph.interfaces.operations.waiting import ends

        if self._target is None:
            return await transfer.stay(app, None, graph_id)
        async with open_app(self._target) as other:
            if self._stay:
                return await transfer.stay(app, other, graph_id)
            with counting(self._session.output, app.clock, f"moving {graph_id}", rows_text) as progress:
                return await transfer.transfer(
                    app,
                    other,
                    graph_id,
                    at_once=self._at_once,
                    until=ends(app.clock, self._timeout),
                    waits_for=self._say_what_runs,
                    progress=progress,
                )

    def _say_what_runs(self, labels: Sequence[str]) -> None:
        if labels:
            named = ", ".join(f"“{safe(each)}”" for each in labels[:_NAMED_MAX])
            more = f" and {len(labels) - _NAMED_MAX:,} more" if len(labels) > _NAMED_MAX else ""
            self._session.say(f"held back; waiting for {count(len(labels), 'task')} to end: {named}{more}")
