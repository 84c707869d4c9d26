"""The command `doctor`: what is wrong with the rows of graphs, why a graph does not move, and `--repair`."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import completion, failures
from taskgraph.interfaces.cli.common import Session, command
from taskgraph.interfaces.cli.output import Column, Output, Style, count, safe
from taskgraph.interfaces.cli.progress import counting

if TYPE_CHECKING:
    from taskgraph.engine.doctor import Examined
    from taskgraph.interfaces.app import App
    from taskgraph.protocol.invariants.findings import Finding

_FINDINGS_SHOWN_MAX: Final = 50
_STYLES: Final[dict[str, Style]] = {"wrong": "red", "due": "yellow", "note": "cyan"}


@command("taskgraph doctor nightly-2026-08-01", "taskgraph doctor --repair --json")
def doctor(
    session: Session,
    graph_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", autocompletion=completion.graph_ids, help="The id of a graph; otherwise all live ones."
        ),
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Mend what can be mended for certain, and sweep.")] = False,
) -> int:
    """Say what is wrong with the rows of a graph, and why it does not move.

    Without an ID also which times of the store's own rows (leads, permits, workers), and of hidden messages, are later
    than a clock that is right can have written, and which queues of events hold messages that no handler receives.

    Nothing is changed without --repair; with it, only what leaves no doubt. It is safe at any time, beside everything
    else that works on the graph. Ends with 0 if nothing is wrong (any more), and with 1 otherwise.
    """
    if graph_id is None:
        return session.open(lambda app: _all(app, session, repair=repair))
    return session.open_graph(graph_id, lambda app, graph_id: _one(app, session, graph_id, repair=repair))[1]


async def examined(app: "App", session: Session, graph_id: str, *, repair: bool = False) -> "Examined":
    """Look at a graph, and show how far that is."""
    from taskgraph.interfaces.operations.doctor import examine

    with _reading(session.output, app, "row") as progress:
        return await examine(app, graph_id, repair=repair, progress=lambda rows: progress(rows, None))


async def _one(app: "App", session: Session, graph_id: str, *, repair: bool) -> int:
    found = await examined(app, session, graph_id, repair=repair)
    if not session.answered(views.examined, found):
        _print(session, found, repair=repair)
    return failures.DONE if found.sound else failures.UNSUCCESSFUL


async def _all(app: "App", session: Session, *, repair: bool) -> int:
    from taskgraph.interfaces.operations.doctor import examine_all

    output = session.output
    with _reading(output, app, "graph") as progress:
        store, found, gone = await examine_all(app, repair=repair, progress=progress)
    wrong = [one.graph_id for one in found if not one.sound]
    if session.answered(views.all_examined, found, gone, store):
        return failures.UNSUCCESSFUL if wrong else failures.DONE
    _print_findings(output, store.repaired, store.findings)
    if store.findings and not repair:
        output.hint(f"taskgraph doctor --repair{session.store_words}")
    if found:
        columns = [
            Column("GRAPH", lambda one: one.graph_id),
            Column("STATE", lambda one: one.state, state=True),
            Column("FOUND", _summary),
            Column("", lambda one: "; ".join(cause.text for cause in one.causes), flexible=True),
        ]
        output.table(found, columns)
    for graph_id in gone:
        output.say(f"{graph_id} is in the index of live graphs, and has no rows (yet)")
    output.say(f"{count(len(found), 'live graph')}: {f'{len(wrong):,} with something wrong' if wrong else 'all sound'}")
    if wrong:
        output.hint(f"taskgraph doctor {wrong[0]}{session.store_words}")
    return failures.UNSUCCESSFUL if wrong else failures.DONE


def _reading(output: Output, app: "App", unit: str) -> AbstractContextManager[Callable[[int, int | None], None]]:
    """Show how many rows or graphs have been looked at."""

    def words(done: int, total: int | None) -> str:
        return f"looked at {done:,}{f' of {total:,}' if total is not None else ''} {unit}s"

    return counting(output, app.clock, f"looking at {unit}s", words)


def _summary(found: "Examined") -> str:
    wrong = sum(each.severity == "wrong" for each in found.findings)
    parts = [f"{wrong:,} wrong"] if wrong else []
    if found.repaired:
        parts.append(f"{len(found.repaired):,} repaired")
    if found.unsettled:
        parts.append(f"{found.unsettled:,} open")
    return ", ".join(parts) or "nothing wrong"


def _print_findings(output: Output, repaired: "Sequence[Finding]", findings: "Sequence[Finding]") -> None:
    for each in repaired:
        _print_finding(output, each, "repaired")
    for each in findings[:_FINDINGS_SHOWN_MAX]:
        _print_finding(output, each)
    if (left := len(findings) - _FINDINGS_SHOWN_MAX) > 0:
        output.hint(f"… and {left:,} more: --json shows all")


def _print(session: Session, found: "Examined", *, repair: bool) -> None:
    output = session.output
    _print_findings(output, found.repaired, found.findings)
    print_causes(output, found)
    if found.unsettled:
        unsettled = count(found.unsettled, "finding")
        output.say(f"{unsettled} could not be settled, as the graph keeps moving: look again")
    output.say(f"{count(found.rows, 'row')}: {_summary(found)}")
    if not repair and any(each.repairable for each in found.findings):
        output.hint(f"taskgraph doctor {found.graph_id} --repair{session.store_words}")


def print_causes(output: Output, found: "Examined") -> None:
    """Why a graph does not move: each cause with its remedy."""
    out = output.out
    out.line(f"{out.paint(safe(found.graph_id), 'bold')} is {out.state(found.state)}")
    for cause in found.causes:
        out.line(f"  {safe(cause.text)}")
        if cause.remedy:
            out.line(f"    {_arrow(output)} {safe(cause.remedy)}")


def _arrow(output: Output) -> str:
    return output.out.paint("→" if output.out.unicode else "->", "dim")


def _print_finding(output: Output, one: "Finding", word: str = "") -> None:
    out = output.out
    style: Style = "green" if word else _STYLES[one.severity]
    name = f"“{one.label}” " if one.label and one.label != "the graph" else ""
    head = f"{out.paint(f'{word or one.severity:8}', style)} {out.paint(one.code, 'bold')}  {safe(name)}{safe(one.key)}"
    out.line(f"{head}\n    {safe(one.text)}; {safe(one.effect)}")
    if word:
        return
    if one.refusal and not one.repairable:
        out.line(f"    not repaired: {safe(one.refusal)}")
    out.line(f"    {_arrow(output)} {safe(one.remedy)}")
