"""The commands `restore` and `keygen`: what a file holds, and what of it is put back.

What this room is for: saying what will be put back before it is, and making the keys that sign archives. What a file
may hold is judged by `engine.restore`; what a signature is, by `signing`.
"""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.archive import rows_text
from taskgraph.interfaces.cli.common import STDIN, Session, begin, examples, with_session
from taskgraph.interfaces.cli.options import JsonOption
from taskgraph.interfaces.cli.output import count, moment
from taskgraph.interfaces.cli.progress import counting

if TYPE_CHECKING:
    from taskgraph.engine.archive_file import Bounds
    from taskgraph.engine.restore import Plan
    from taskgraph.interfaces.app import App


@with_session
def restore(
    session: Session,
    file: Annotated[str, typer.Argument(metavar="FILE", help="An archive; - for stdin.", show_default=False)],
    plan: Annotated[bool, typer.Option("--plan", help="Say what would be put back, and write nothing.")] = False,
    max_rows: Annotated[
        int | None,
        typer.Option("--max-rows", min=1, metavar="N", help="Rows that it may have; otherwise 500,000."),
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            "--max-bytes",
            min=1,
            metavar="N",
            help="Bytes that it may unpack to, however small it is; otherwise 1 GiB, and a hundred times its size.",
        ),
    ] = None,
    require_signature: Annotated[
        bool, typer.Option("--require-signature", help="Refuse what is not signed by a trusted key.")
    ] = False,
) -> None:
    """Put a graph back that was archived, under its own id, as it was: to be looked at, or rerun if it was blocked.

    A file is a document: what could go on by itself is refused, and so is what contradicts itself. It says first what
    it will put back. Nothing of it is run or sent before a person reruns it.

    What is in the store is never overwritten. Interrupted, the same command goes on; what stands half put back for a
    day is taken away by the sweep.
    """
    from taskgraph.engine.archive_file import Bounds

    bounds = Bounds.of(max_rows, max_bytes)
    raise typer.Exit(
        session.open(lambda app: _restore(app, session, file, bounds, only_plan=plan, required=require_signature))
    )


RESTORE_EXAMPLES = examples(
    "taskgraph restore nightly-2026-08-01.json.gz --plan",
    "taskgraph restore nightly-2026-08-01.json.gz",
    "taskgraph restore nightly-2026-08-01.json.gz --require-signature",
)


def _stdin() -> BinaryIO:
    """What comes by stdin, in a file: it is read twice, the first time to its end, to be believed."""
    kept: BinaryIO = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115  (closed by the caller)
    shutil.copyfileobj(sys.stdin.buffer, kept)
    return kept


async def _restore(
    app: "App", session: Session, file: str, bounds: "Bounds", *, only_plan: bool, required: bool
) -> int:
    from taskgraph.engine.archive_file import open_archive
    from taskgraph.interfaces.operations import archive

    output = session.output
    planned: list[Plan] = []

    def show(plan: "Plan") -> None:
        planned.append(plan)
        if not output.json:
            _say(session, plan, output.say)

    def tell_plan(plan: "Plan") -> None:
        if output.json:
            output.document(views.restore_plan(plan))
        else:
            _say(session, plan, output.data)

    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(_stdin() if file == STDIN else open_archive(Path(file)))
        if only_plan:
            await archive.preview_restore(app, opened, file, bounds=bounds, required=required, planned=tell_plan)
            return failures.DONE
        tell = stack.enter_context(counting(output, app.clock, "restoring", rows_text))
        done = await archive.restore(app, opened, file, bounds=bounds, required=required, planned=show, progress=tell)
    if output.json:
        output.document(views.restored(done, planned[0]))
    elif done.again:
        output.data(f"{done.graph_id} is there already, {done.state}")
    else:
        files = f", {count(done.logs, 'log file')}" if done.logs else ""
        output.data(f"{done.graph_id} is back, {done.state}: {count(done.rows, 'row')}{files}")
    return failures.DONE


def _say(session: Session, plan: "Plan", say: Any) -> None:
    contents, standing = plan.contents, plan.standing
    times = [f"submitted {moment(standing.created)}"] if standing.created is not None else []
    times += [f"{contents.state} {moment(standing.ended)}"] if standing.ended is not None else []
    say(f"graph {contents.graph_id}: {', '.join([standing.name, *times] if standing.name else times)}")
    say(f"  tasks     {_counts(standing.tasks)}")
    if standing.groups:
        say(f"  groups    {standing.groups:,}")
    if contents.logs:
        say(f"  logs      {count(contents.logs, 'file')}, {contents.log_bytes:,} bytes")
    for each in standing.notices:
        say(f"  notices   {each}")
    if standing.commands:
        number = sum(standing.commands.values())
        say(f"  a rerun   would run up to {count(number, 'task')}: {_counts(standing.commands)}")
    for each in standing.let_go:
        say(f"  let go    {each}")
    signature = contents.signature
    if signature is None:
        say("  signature none: the digest is against damage, and says nothing of who made it")
    else:
        whose = f"trusted by {plan.trusted}" if plan.trusted else "which is not trusted here"
        say(f"  signature by {signature.by}, {signature.at}, with the key {signature.key}, {whose}")


def _counts(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counted.items()) or "none"


def keygen(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to; FILE.pub is written too.", show_default=False)],
    json: JsonOption = False,
) -> None:
    """Make a key that signs archives, and its public part, which verifies them.

    The key is its owner's alone; TASKGRAPH_ARCHIVE_KEY=FILE has taskgraph archive sign with it. The public part may be
    given to anybody: TASKGRAPH_ARCHIVE_TRUSTED=FILE.pub has taskgraph restore trust what the key has signed.
    """
    from taskgraph.engine.signing import make_key

    session = begin(ctx, store=None, json=json, verbose=0)
    beside, key = make_key(Path(file))
    if json:
        session.output.document(views.key_made(file, str(beside), key))
    else:
        session.output.data(f"{file} signs, {beside} verifies: {key}")


KEYGEN_EXAMPLES = examples(
    "taskgraph keygen ~/.taskgraph-archive-key",
    "TASKGRAPH_ARCHIVE_KEY=~/.taskgraph-archive-key taskgraph archive nightly-2026-08-01",
)
