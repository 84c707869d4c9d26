"""The command `why`: what a task waits for, and what to do about it."""

from collections import Counter
from typing import TYPE_CHECKING, Final

from taskgraph.interfaces import views
from taskgraph.interfaces.cli.common import Session, examples, with_session
from taskgraph.interfaces.cli.options import GraphArgument, LabelArgument
from taskgraph.interfaces.cli.output import count, safe

if TYPE_CHECKING:
    from taskgraph.queries.values import Explanation


_CAUSES_SHOWN_MAX: Final = 50
_ALIKE_SHOWN_MAX: Final = 3  # that wait at one depth: causes are what people come for, and come below
_WAITING_LINES_MAX: Final = 60  # over all depths: a long chain waits in thousands of steps


@with_session
def why(
    session: Session,
    graph_id: GraphArgument,
    label: LabelArgument,
) -> None:
    """Say why a task does not run, down to the first causes, and what to do about each."""
    found = session.open(lambda app: app.queries.explain(graph_id, label))
    if session.output.json:
        session.output.document(views.explanation(graph_id, label, found))
    else:
        _print_reasons(session, found)


WHY_EXAMPLES = examples('taskgraph why nightly-2026-08-01 "publish"')


def _print_reasons(session: Session, found: "Explanation") -> None:
    """Level by level; of many that only wait, the first ones. Causes are what people came for."""
    output = session.output
    out = output.out
    totals = Counter((one.depth, one.cause) for one in found.reasons)
    seen: Counter[tuple[int, bool]] = Counter()
    waiting = causes = 0  # lines
    for one in found.reasons:
        key = (one.depth, one.cause)
        seen[key] += 1
        indent = "  " * min(one.depth, 30)
        lines = causes if one.cause else waiting
        if lines >= (_CAUSES_SHOWN_MAX if one.cause else _WAITING_LINES_MAX):
            continue
        bound = _CAUSES_SHOWN_MAX if one.cause else _ALIKE_SHOWN_MAX
        if seen[key] > bound:
            if seen[key] == bound + 1:
                out.line(out.paint(f"{indent}… and {totals[key] - bound:,} more like this", "dim"))
            continue
        if one.cause:
            causes += 1
        else:
            waiting += 1
            if waiting == _WAITING_LINES_MAX:
                out.line(out.paint(f"{indent}… {found.waiting:,} tasks wait in all", "dim"))
                continue
        mark = out.paint("◆ " if out.unicode else "* ", "yellow") if one.cause else ""
        label = out.paint(safe(one.label), "bold")
        out.line(f"{indent}{mark}{out.symbol(one.state)} {label} {safe(one.text)}")
        if one.remedy:
            out.line(f"{indent}    {out.paint('→' if out.unicode else '->', 'dim')} {safe(one.remedy)}")
    if len(found.reasons) > 1:
        output.say(f"{count(found.causes, 'first cause')}, marked {'◆' if output.err.unicode else '*'}")
    if found.causes > _CAUSES_SHOWN_MAX:
        output.hint(f"… of these, {causes:,} are shown; --json lists more")
