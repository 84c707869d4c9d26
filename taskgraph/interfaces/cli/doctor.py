"""The command `doctor`: what is wrong with the rows of graphs, why a graph does not move, and `--repair`.

What this room is for: asking the rooms `doctor` and `protocol.invariants`, and putting what they find into lines or
JSON. It never reads a row itself and never decides what is certain.
"""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.common import Session, check_graph_id, examples, with_session
from taskgraph.interfaces.cli.output import Column, Output, Style, count, safe
from taskgraph.interfaces.cli.progress import reading

if TYPE_CHECKING:
    from taskgraph.engine.doctor import Examined
    from taskgraph.engine.store_times import ExaminedStore
    from taskgraph.interfaces.app import App
    from taskgraph.protocol.invariants.findings import Finding

_FINDINGS_SHOWN_MAX: Final = 50
_STYLES: Final[dict[str, Style]] = {"wrong": "red", "due": "yellow", "note": "cyan"}


@with_session
def doctor(
    session: Session,
    graph_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="The id of a graph; otherwise all live ones.", show_default=False),
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Mend what can be mended for certain, and sweep.")] = False,
) -> None:
    """Say what is wrong with the rows of a graph, and why it does not move.

    Without an ID also which times of the store's own rows (leads, permits, workers), and of hidden messages, are later
    than a clock that is right can have written.

    Nothing is changed without --repair; with it, only what leaves no doubt. It is safe at any time, beside everything
    else that works on the graph. Ends with 0 if nothing is wrong (any more), and with 1 otherwise.
    """
    if graph_id is None:
        raise typer.Exit(session.open(lambda app: _all(app, session, repair=repair)))
    one = check_graph_id(graph_id)
    raise typer.Exit(session.open(lambda app: _one(app, session, one, repair=repair)))


DOCTOR_EXAMPLES = examples("taskgraph doctor nightly-2026-08-01", "taskgraph doctor --repair --json")


async def _one(app: "App", session: Session, graph_id: str, *, repair: bool) -> int:
    from taskgraph.interfaces.operations.doctor import examine

    with reading(session.output, app.clock, "row") as tell:
        found = await examine(app, graph_id, repair=repair, progress=lambda rows: tell(rows, None))
    if session.output.json:
        session.output.document(views.examined(found))
    else:
        _print(session, found, repair=repair)
    return failures.DONE if found.sound else failures.UNSUCCESSFUL


async def _all(app: "App", session: Session, *, repair: bool) -> int:
    from taskgraph.interfaces.operations.doctor import examine_all

    output = session.output
    with reading(output, app.clock, "graph") as tell:
        store, found, gone = await examine_all(app, repair=repair, progress=tell)
    sound = all(one.sound for one in found)
    if output.json:
        output.document(views.all_examined(found, gone, store))
    else:
        _print_store(session, store, repair=repair)
    if found and not output.json:
        columns = [Column("GRAPH"), Column("STATE", state=True), Column("FOUND"), Column("", flexible=True)]
        output.table(columns, [[one.graph_id, one.state, _summary(one), _first_cause(one)] for one in found])
    if not output.json:
        for graph_id in gone:
            output.say(f"{graph_id} is in the index of live graphs, and has no rows (yet)")
        wrong = sum(not one.sound for one in found)
        output.say(
            f"{count(len(found), 'live graph')}: " + (f"{wrong:,} with something wrong" if wrong else "all sound")
        )
        if wrong:
            first = next(one.graph_id for one in found if not one.sound)
            output.hint(f"taskgraph doctor {first}{session.store_words}")
    return failures.DONE if sound else failures.UNSUCCESSFUL


# --- words -----------------------------------------------------------------------------------------------------


def _summary(found: "Examined") -> str:
    wrong = sum(each.severity == "wrong" for each in found.findings)
    parts = [f"{wrong:,} wrong"] if wrong else []
    if found.repaired:
        parts.append(f"{len(found.repaired):,} repaired")
    if found.unsettled:
        parts.append(f"{found.unsettled:,} open")
    return ", ".join(parts) or "nothing wrong"


def _first_cause(found: "Examined") -> str:
    return "; ".join(cause.text for cause in found.causes)


def _print_store(session: Session, found: "ExaminedStore", *, repair: bool) -> None:
    for each in found.repaired:
        _print_finding(session.output, each, "repaired")
    for each in found.findings[:_FINDINGS_SHOWN_MAX]:
        _print_finding(session.output, each)
    if (left := len(found.findings) - _FINDINGS_SHOWN_MAX) > 0:
        session.output.hint(f"… and {left:,} more: --json shows all")
    if found.findings and not repair:
        session.output.hint(f"taskgraph doctor --repair{session.store_words}")


def _print(session: Session, found: "Examined", *, repair: bool) -> None:
    output = session.output
    out = output.out
    for each in found.repaired:
        _print_finding(output, each, "repaired")
    for each in found.findings[:_FINDINGS_SHOWN_MAX]:
        _print_finding(output, each)
    if (left := len(found.findings) - _FINDINGS_SHOWN_MAX) > 0:
        output.hint(f"… and {left:,} more: --json shows all")
    out.line(f"{out.paint(safe(found.graph_id), 'bold')} is {out.state(found.state)}")
    for cause in found.causes:
        out.line(f"  {safe(cause.text)}")
        if cause.remedy:
            out.line(f"    {_arrow(output)} {safe(cause.remedy)}")
    if found.unsettled:
        left_open = count(found.unsettled, "finding")
        output.say(f"{left_open} could not be settled, as the graph keeps moving: look again")
    output.say(f"{count(found.rows, 'row')}: {_summary(found)}")
    if not repair and any(each.repairable for each in found.findings):
        output.hint(f"taskgraph doctor {found.graph_id} --repair{session.store_words}")


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
    if one.repairable:
        out.line(f"    {_arrow(output)} {safe(one.remedy)}")
        return
    if one.refusal:
        out.line(f"    not repaired: {safe(one.refusal)}")
    out.line(f"    {_arrow(output)} {safe(one.remedy)}")
