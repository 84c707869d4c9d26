"""The command `timeline`: when the tasks of a graph ran, drawn in a terminal, and what decided when it ended."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli.common import Session, command
from taskgraph.interfaces.cli.options import GraphArgument
from taskgraph.interfaces.cli.output import Stream, cell_width, count, fitted, moment, safe, seconds

if TYPE_CHECKING:
    from taskgraph.queries.timeline import PathStep, RunSpan, Timeline

_TOP: Final = 30
_WIDTH: Final = 100  # where it is not known
_LABEL_MAX: Final = 32
_STEPS_MAX: Final = 30


@command(
    "taskgraph timeline nightly-2026-08-01",
    "taskgraph timeline nightly-2026-08-01 --top 100",
)
def timeline(
    session: Session,
    graph_id: GraphArgument,
    top: Annotated[
        int, typer.Option("--top", min=1, metavar="N", help="Draw at most so many tasks: those that took longest.")
    ] = _TOP,
) -> None:
    """Draw when the tasks of a graph ran, and name the critical path: the tasks that decided when it ended.

    In the picture tasks wait (·) from when they are ready to when they run (━). Earlier runs of a task that was run
    again are in its line.
    """
    graph_id, found = session.open_graph(graph_id, lambda app, found: app.queries.timeline(found))
    if not session.answered(views.timeline, found):
        _print(session, found, top)


def _print(session: Session, found: "Timeline", top: int) -> None:
    out = session.output.out
    out.line(
        f"{out.paint(safe(found.graph_id), 'bold')}  {out.state(found.state)}  {moment(found.since)}  "
        f"{seconds(found.seconds, digits=3)}"
    )
    by_task: dict[str, list[RunSpan]] = {}
    for span in found.runs:
        by_task.setdefault(span.task_id, []).append(span)
    on_path = {step.task_id for step in found.path}
    order = sorted(by_task, key=lambda own: (own not in on_path, -_length(by_task[own], found)))
    shown = set(order[:top])
    width = min(_LABEL_MAX, max((cell_width(safe(by_task[own][0].label)) for own in shown), default=0))
    room = max(10, (out.width or _WIDTH) - width - 14)
    for own, spans in by_task.items():  # by when they first ran
        if own in shown:
            took = seconds(_length(spans, found), digits=3)
            label = fitted(safe(spans[0].label), width)
            label = out.paint(label, "bold") if own in on_path else label
            out.line(f"{label}  {_bar(out, spans, found, room)}  {took}")
    if len(by_task) > len(shown):
        out.line(out.paint(f"{len(by_task) - len(shown):,} more tasks took less time (--top)", "dim"))
    if found.never_ran:
        out.line(out.paint(f"{count(found.never_ran, 'task')} did not run", "dim"))
    if found.path:
        _print_path(out, found.path)


def _length(spans: "list[RunSpan]", found: "Timeline") -> float:
    return sum(((span.ended or found.until) - span.started).total_seconds() for span in spans)


def _bar(out: Stream, spans: "list[RunSpan]", found: "Timeline", room: int) -> str:
    """Runs and waits of one task, by so many columns of the whole time."""
    whole = max(found.seconds, 1e-6)
    waits, runs = ("·", "━") if out.unicode else (".", "=")
    cells = [" "] * room

    def place(seconds_in: float) -> int:
        return min(room - 1, max(0, int(seconds_in / whole * room)))

    for span in spans:
        begin = place((span.started - found.since).total_seconds())
        if span.ready is not None:
            first = place((span.ready - found.since).total_seconds())
            cells[first:begin] = [waits] * (begin - first)
        end = place(((span.ended or found.until) - found.since).total_seconds())
        cells[begin : end + 1] = [runs] * (end + 1 - begin)
    return "".join(cells)


def _print_path(out: Stream, path: "Sequence[PathStep]") -> None:
    whole, ran = (sum(getattr(step, name) for step in path) for name in ("seconds", "ran_seconds"))
    out.line()
    out.line(
        f"critical path: {count(len(path), 'task')}, {seconds(whole, digits=3)}, of which "
        f"{seconds(ran, digits=3)} running and {seconds(max(0.0, whole - ran), digits=3)} waiting"
    )
    listed = path if len(path) <= _STEPS_MAX else sorted(path, key=lambda step: -step.seconds)[:_STEPS_MAX]
    width = min(_LABEL_MAX, max(cell_width(safe(step.label)) for step in listed))
    for step in path:
        if step in listed:
            words = f"ran {seconds(step.ran_seconds, digits=3)}"
            if step.waited_seconds >= 0.001:
                words += f", after waiting {seconds(step.waited_seconds, digits=3)}"
            out.line(f"  {fitted(safe(step.label), width)}  {words}")
    if len(listed) < len(path):
        out.line(out.paint(f"  {len(path) - len(listed):,} more took less time each", "dim"))
