"""The command `delete`: graphs that have ended are deleted, by id or by age."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import completion, failures
from taskgraph.interfaces.cli.archive import rows_text
from taskgraph.interfaces.cli.common import Session, check_graph_id, command
from taskgraph.interfaces.cli.output import Column, count, moment
from taskgraph.interfaces.cli.progress import counting
from taskgraph.model.errors import Conflict, InvalidInput, NotFound, Refused, TaskgraphError
from taskgraph.model.states import GRAPH_ENDED, GraphState

if TYPE_CHECKING:
    from taskgraph.engine.delete import Deleted
    from taskgraph.interfaces.app import App

_STATES: Final = (*sorted(map(str, GRAPH_ENDED)), str(GraphState.BLOCKED))


@command(
    "taskgraph delete nightly-2026-08-01",
    "taskgraph delete nightly-2026-08-01 --archive nightly-2026-08-01.json.gz",
    "taskgraph delete --older-than 30 --dry-run",
    "taskgraph delete --older-than 90 --state blocked",
)
def delete(
    session: Session,
    graph_ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", autocompletion=completion.graph_ids, help="The ids of graphs."),
    ] = None,
    archive_file: Annotated[
        str | None,
        typer.Option(
            "--archive",
            metavar="FILE",
            help="First write the graph with its logs into this file, as taskgraph archive does.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Blocked graphs too, which could go on, and those with notices that are not delivered yet."
        ),
    ] = False,
    older_than: Annotated[
        float | None,
        typer.Option(
            "--older-than",
            min=0,
            metavar="DAYS",
            help="Instead of ids: all graphs that ended more than so many days ago.",
        ),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="STATE",
            autocompletion=completion.one_of(_STATES),
            help="With --older-than: only those that are finished, cancelled or blocked; otherwise the first two.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --older-than: list them, and delete nothing.")
    ] = False,
) -> int:
    """Delete graphs that have ended, with their logs: every row, in small commits.

    It cannot be undone. Interrupted at any point, the same command goes on, and so does the sweep of taskgraph serve.
    Messages about a deleted graph that are still on their way are let go, and for 30 days its id is not given again;
    on a file the id stands for the next graph that is submitted under it.
    """
    ids = list(dict.fromkeys(check_graph_id(each) for each in graph_ids or ()))
    if (older_than is None) == (not ids):
        raise InvalidInput("say either which graphs (taskgraph delete ID), or how old (--older-than DAYS)")
    if older_than is None and (state or dry_run):
        raise InvalidInput("--state and --dry-run go with --older-than")
    if state and state not in _STATES:
        raise InvalidInput(f"--state {state}: {', '.join(_STATES)}")
    if archive_file is not None and len(ids) != 1:
        raise InvalidInput("--archive takes one graph")
    if older_than is None:
        path = Path(archive_file) if archive_file is not None else None
        return session.open(lambda app: _delete(app, session, ids, force=force, file=path))
    states = (state,) if state else tuple(map(str, GRAPH_ENDED))
    return session.open(lambda app: _by_age(app, session, older_than, states, dry_run=dry_run))


async def _delete(app: "App", session: Session, ids: Sequence[str], *, force: bool, file: Path | None = None) -> int:
    from taskgraph.interfaces.operations import archive

    done: list[Deleted] = []
    failed: list[tuple[str, TaskgraphError]] = []

    def words(gone: int, total: int | None) -> str:
        return f"deleting: {gone:,} of {count(total or 0, 'row')} gone"

    for graph_id in ids:
        operation = ""
        try:
            if file is not None:
                with counting(session.output, app.clock, f"archiving {graph_id}", rows_text) as progress:
                    operation = await archive.write_before_deletion(app, graph_id, file, force=force, progress=progress)
            with counting(session.output, app.clock, f"deleting {graph_id}", words) as progress:
                said = {"reason": "taskgraph delete", "operation": operation}
                done.append(await archive.delete(app, graph_id, force=force, progress=progress, **said))
        except (InvalidInput, NotFound, Refused, Conflict) as error:
            failed.append((graph_id, error))
        if len(ids) == 1 and failed:
            raise failed[0][1]
    _print_deleted(session, done, failed)
    return failures.exit_code(failed[0][1]) if failed else failures.DONE


def _print_deleted(session: Session, done: "Sequence[Deleted]", failed: Sequence[tuple[str, TaskgraphError]]) -> None:
    output = session.output
    if session.answered(views.deletions, done, [(one, failures.error_object(error)) for one, error in failed]):
        return
    for each in done:
        if each.again:
            output.data(f"{each.graph_id} had been deleted already")
        else:
            output.data(f"{each.graph_id} deleted: {count(each.rows, 'row')}, {count(each.logs, 'log file')}")
    for _, error in failed:
        for sentence in failures.sentences(error):
            output.warn(sentence)


async def _by_age(app: "App", session: Session, days: float, states: Sequence[str], *, dry_run: bool) -> int:
    from taskgraph.interfaces.operations.archive import deletable

    output = session.output
    before = app.clock.now() - timedelta(days=days)
    found = await deletable(app, before, states)
    if not dry_run:
        oldest_first = [graph_id for graph_id, _, _ in reversed(found)]
        return await _delete(app, session, oldest_first, force=GraphState.BLOCKED in states)
    if session.answered(views.deletable, found):
        return failures.DONE
    if found:
        columns = [
            Column("GRAPH", lambda each: each[0]),
            Column("STATE", lambda each: each[1], state=True),
            Column("SINCE", lambda each: moment(each[2])),
        ]
        output.table(found, columns)
    output.say(f"{count(len(found), 'graph')} would be deleted")
    return failures.DONE
