"""How a command ends that waits for a graph: words, failures, exit codes."""

import itertools
import shlex
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.common import Session
from taskgraph.interfaces.cli.output import LogText, count, safe, seconds
from taskgraph.interfaces.cli.progress import Failure, Tally, counts_line, display_for, following
from taskgraph.interfaces.cli.signals import Stop, unless_stopped
from taskgraph.model.ids import is_task_id, rerun_failed
from taskgraph.model.states import GRAPH_ENDED, GraphState, state_in_words

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App

_FAILURES_SHOWN_MAX: Final = 10
_LOG_LINES_SHOWN: Final = 5
_LOG_TAIL_BYTES: Final = 16 * 1024
_LOG_WHOLE_BYTES: Final = 1 << 20


def command_words(command: str, graph_id: str, *more: str) -> str:
    """A command that can be typed, whatever characters a label has."""
    words = [graph_id, *more]
    guard = "-- " if any(word.startswith("-") for word in words) else ""
    return f"taskgraph {command} {guard}{' '.join(map(shlex.quote, words))}"


async def finish(
    app: "App",
    session: Session,
    tally: Tally,
    *,
    seconds_taken: float | None = None,
    as_line: bool = False,
    handled: bool = False,
    with_logs: bool = True,
) -> int:
    """Print how a graph ended; returns the exit code.

    as_line: JSON as the last of several lines. handled: another process handles events, so it goes on by itself.
    with_logs: with the ends of the logs of what failed.
    """
    output = session.output
    shown = list(tally.failures.values())[:_FAILURES_SHOWN_MAX]
    logs = [await _log_tail(app, tally.graph_id, one.task_id, one.run) if with_logs else None for one in shown]
    if output.json:
        failed = [
            views.failure(one.label, one.task_id, one.run, one.state, one.reason, log)
            for one, log in itertools.zip_longest(tally.failures.values(), logs)
        ]
        made = views.ended(
            tally.graph_id,
            tally.state,
            tally.tasks,
            tally.counts(),
            reruns=tally.reruns,
            retries=tally.retries,
            hand_backs=tally.hand_backs,
            seconds=seconds_taken,
            failures=failed,
        )
        if as_line:
            output.json_line(views.line("end", made))
        else:
            output.document(made)
    else:
        out = output.out
        state = out.graph_state(tally.state, failures=bool(tally.failures))
        parts = [state, out.paint(tally.graph_id, "bold"), counts_line(out, tally)]
        if tally.reruns:
            parts.append(count(tally.reruns, "rerun"))
        if tally.retries:
            parts.append(count(tally.retries, "retry", "retries"))
        if tally.hand_backs:
            parts.append(f"{count(tally.hand_backs, 'run')} handed back")
        if seconds_taken is not None:
            parts.append(seconds(seconds_taken))
        out.line("  ".join(parts))
        _print_failures(session, tally.graph_id, shown, logs)
        left = len(tally.failures) - len(shown)
        if left > 0:
            state = command_words("show", tally.graph_id)
            output.hint(f"… and {left:,} more: {state} --state failed{session.store_words}")
        if tally.failures and tally.state != GraphState.CANCELLING:
            where = session.store_words
            first, *others = tally.failures.values()
            rerun = command_words("rerun", tally.graph_id, _typed(first))
            if others or tally.state == GraphState.CANCELLED:
                rerun = rerun_failed(tally.graph_id)
            if tally.state in GRAPH_ENDED:
                rerun = f"{rerun} --downstream"
            resume = "" if handled else f", then taskgraph run --id {tally.graph_id}{where}"
            output.hint(f"when {'all is' if others else 'the cause is'} mended: {rerun}{where}{resume}")
    succeeded = tally.state == GraphState.FINISHED and not tally.failures
    return failures.DONE if succeeded else failures.UNSUCCESSFUL


def _print_failures(
    session: Session, graph_id: str, shown: Sequence[Failure], logs: Sequence[Sequence[str] | None]
) -> None:
    err = session.output.err
    for one, tail in zip(shown, logs, strict=True):
        reason = f": {safe(one.reason)}" if one.reason else ""
        err.line(f"{err.state(one.state)}  {err.paint(safe(one.label), 'bold')} (run {one.run}){reason}")
        for line in tail or ():
            err.line(f"    {err.paint('│' if err.unicode else '|', 'dim')} {safe(line)}")
        err.line(err.paint(f"    {command_words('why', graph_id, _typed(one))}{session.store_words}", "dim"))


def _typed(one: Failure) -> str:
    """The label of a task, or its id where the label cannot be typed."""
    return one.label if one.label.isprintable() else one.task_id


async def _log_tail(app: "App", graph_id: str, task_id: str, run: int) -> list[str]:
    """The last lines of a run's log, without colours; none if there is no log."""
    if not is_task_id(task_id) or run < 0:
        return []
    data = await app.logs.read(graph_id, task_id, run, limit=_LOG_WHOLE_BYTES)
    if not data:
        return []
    if len(data) == _LOG_WHOLE_BYTES:
        from taskgraph.storage.logs import size_of

        read = partial(app.logs.read, graph_id, task_id, run)
        data = await read(offset=await size_of(read) - _LOG_TAIL_BYTES, limit=_LOG_TAIL_BYTES)
    text = (data or b"")[-_LOG_TAIL_BYTES:].decode("utf-8", "replace")
    return LogText.plain(text).splitlines()[-_LOG_LINES_SHOWN:]


async def wait_and_finish(
    app: "App",
    session: Session,
    graph_id: str,
    stop: Stop,
    *,
    timeout_seconds: float | None,
    json_lines: bool = False,
    fresh: bool = False,
) -> int:
    """Show a graph until it has ended, and print how. Raises TimedOut, Interrupted."""
    from taskgraph.interfaces.one_graph import wait_for_end
    from taskgraph.interfaces.operations import handlers
    from taskgraph.interfaces.operations.waiting import ends

    until = ends(app.clock, timeout_seconds)
    display = display_for(session.output, app.clock, json_lines=json_lines)
    try:
        async with following(app, graph_id, display, fresh=fresh) as follower:
            state = await unless_stopped(stop, wait_for_end(app, graph_id, until=until))
    except failures.Interrupted:
        words = f"{command_words('watch', graph_id)}{session.store_words}"
        raise failures.Interrupted(f"stopped watching; graph {graph_id} goes on: {words}") from None
    if state is None:
        now = counts_line(session.output.err, follower.tally)
        stands = state_in_words(follower.tally.state, follower.tally.held)
        raise failures.TimedOut(f"graph {graph_id} is {stands} after {timeout_seconds:g} s: {now}")
    handled = state not in GRAPH_ENDED and await handlers.seen(app)
    return await finish(app, session, follower.tally, as_line=json_lines, handled=handled)
