"""What commands that change a graph do with --plan and --apply: show what would become of it, and make just that."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.common import Session
from taskgraph.interfaces.cli.output import Column, count, safe
from taskgraph.model.errors import Refused

if TYPE_CHECKING:
    from taskgraph.engine.foresight import Foreseen, TaskChange
    from taskgraph.interfaces.app import App

_TASKS_SHOWN_MAX: Final = 100
_LABELS_SHOWN_MAX: Final = 10
_CELL_CHARS_MAX: Final = 60
_PATIENCE_SECONDS: Final = 60.0


async def instead(
    app: "App",
    session: Session,
    graph_id: str,
    change: Mapping[str, Any],
    *,
    plan: bool,
    digest: str | None,
    patience: float | None = None,
) -> bool:
    """With --plan show what a change would do; with --apply DIGEST make it so. Whether it was one of these.

    change: as `schemas/change.json` has it; what is None, empty or False is left out. Raises what `_plan` and `_apply`
    raise.
    """
    asked = {name: each for name, each in change.items() if each or (each == 0 and each is not False)}
    if digest is not None:
        await _apply(app, session, graph_id, asked, digest, patience)
    elif plan:
        await _plan(app, session, graph_id, asked)
    return plan or digest is not None


async def _plan(app: "App", session: Session, graph_id: str, change: Mapping[str, Any]) -> None:
    """Print what a change would do now. Raises Refused where it would be refused whole."""
    from taskgraph.interfaces.operations import changes

    found = await changes.plan(app, graph_id, change)
    if not session.answered(views.change_plan, found):
        _print(session, found)
    if found.refused and found.changes_nothing:
        raise Refused(f"graph {graph_id} would refuse it: {found.refused[0]}", "refused")


async def _apply(
    app: "App", session: Session, graph_id: str, change: Mapping[str, Any], digest: str, patience: float | None
) -> None:
    """Have a change made as it was planned, and wait for that: so many seconds, a minute if None.

    Raises StalePlan, with the new plan shown, and TimedOut.
    """
    from taskgraph.interfaces.operations import changes
    from taskgraph.interfaces.operations.waiting import ends

    seconds = _PATIENCE_SECONDS if patience is None else patience
    try:
        asked = await changes.apply(app, graph_id, change, digest)
        head = await changes.applied(app, graph_id, change, asked, until=ends(app.clock, seconds))
    except changes.StalePlan as stale:
        if not session.output.json:
            _print(session, stale.plan)
        raise
    state = str(head.get("state", ""))
    if not session.answered(views.change_applied, asked, digest, state):
        session.output.data(f"graph {graph_id}: {'made as it was planned' if state == 'done' else 'asked for'}")
    if state != "done":
        raise failures.TimedOut(
            f"request {asked.request} is {state} after {seconds:g} s, and is answered once handlers run "
            "(taskgraph serve)"
        )


def _print(session: Session, found: "Foreseen") -> None:
    output = session.output
    for name, (before, after) in found.graph.items():
        output.data(f"graph {found.graph_id}: {name} {_shown(before)} → {_shown(after)}")
    for group, (before, after) in found.limits.items():
        whose = f"group “{group}”" if group else f"graph {found.graph_id}"
        output.data(f"{whose}: limit {_shown(before)} → {_shown(after)}")
    if found.tasks:
        output.table(
            found.tasks[:_TASKS_SHOWN_MAX],
            (
                Column("TASK", lambda each: each.label),
                Column("IS", lambda each: each.state or "–"),
                Column("BECOMES", lambda each: each.to or "taken away"),
                Column("RUN", _runs, number=True),
                Column("", _columns, flexible=True),
            ),
        )
    if (more := len(found.tasks) - _TASKS_SHOWN_MAX) > 0:
        output.data(f"… and {count(more, 'task')} more; --json lists more")
    if found.held:
        output.data(f"{count(found.held, 'task')} held back, or let go, with it")
    if found.ready:
        named = ", ".join(f"“{safe(each)}”" for each in found.ready[:_LABELS_SHOWN_MAX])
        rest = len(found.ready) - _LABELS_SHOWN_MAX
        output.data(f"sent at once: {named}{f' and {rest:,} more' if rest > 0 else ''}")
    for reason in found.refused:
        output.data(f"not done: {safe(reason)}")
    if found.changes_nothing:
        output.say(f"graph {found.graph_id}: revision {found.revision}; it changes nothing")
    else:
        output.say(f"graph {found.graph_id}: revision {found.revision}, after event {found.event}")
        output.hint(f"make just this: the same command with --apply {found.digest} in the place of --plan")


def _runs(change: "TaskChange") -> str:
    return f"{change.run}" if change.run == change.to_run else f"{change.run} → {change.to_run}"


def _columns(change: "TaskChange") -> str:
    return ", ".join(f"{name} {_shown(was)} → {_shown(now)}" for name, (was, now) in change.columns.items())


def _shown(value: Any) -> str:
    text = "–" if value is None else safe(str(views.row_value(value)))
    return text if len(text) <= _CELL_CHARS_MAX else f"{text[:_CELL_CHARS_MAX]}…"
