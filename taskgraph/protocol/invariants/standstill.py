"""Why a graph does not move, in lines for people: what runs, what waits for what, and what failed."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from taskgraph.model.budget import is_spent
from taskgraph.model.columns import Columns, integer, is_held, texts, time_of
from taskgraph.model.foreign_times import Standing
from taskgraph.model.ids import GRAPH, holders_in_words, limit_key, reference_of, rerun_failed, resume_command, typed
from taskgraph.model.priorities import level_of
from taskgraph.model.states import GRAPH_ENDED, GRAPH_GONE, INACTIVE, PAUSED, GraphState, TaskState
from taskgraph.model.timing import clock_text, not_yet_seconds, ready_since
from taskgraph.protocol.concurrency import Limit, full_limit, scopes_of
from taskgraph.protocol.conditions import passes_on
from taskgraph.protocol.invariants.findings import NAMED_MAX, Finding, Severity, tasks_are
from taskgraph.protocol.invariants.snapshot import FAILED
from taskgraph.protocol.leases import lease
from taskgraph.storage.tables import Row


@dataclass(frozen=True, slots=True)
class Cause:
    """One line of the answer to "why does the graph not move?"."""

    text: str
    remedy: str = ""


@dataclass(slots=True)
class Waiting:
    """Ready tasks of one target that no worker has claimed, as (taskId, run) by their level.

    since: of the one that waits longest.
    """

    levels: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    since: datetime | None = None
    refusals: Counter[str] = field(default_factory=Counter)


def _is_held(row: Row) -> bool:
    return is_held(row.columns.get("held"))


def waiting_by_target(rows: Mapping[str, Row], now: datetime) -> dict[str, Waiting]:
    """Target -> tasks that stand pending, and may be claimed now."""
    found: dict[str, Waiting] = {}
    for key, row in rows.items():
        if not key.startswith("task:") or row.columns.get("state") != TaskState.PENDING or _is_held(row):
            continue
        if _full_limit(row, rows) is not None or not_yet_seconds(row.columns.get, now):
            continue
        one = found.setdefault(str(row.columns.get("target", "default")), Waiting())
        task = reference_of(key), integer(row.columns, "run")
        one.levels.setdefault(level_of(row.columns.get), []).append(task)
        since = ready_since(row.columns.get)
        if isinstance(since, datetime) and (one.since is None or since < one.since):
            one.since = since
        if refusal := row.columns.get("refusal"):
            one.refusals[str(refusal)] += 1
    return found


def _full_limit(task: Row, rows: Mapping[str, Row]) -> Limit | None:
    return full_limit(rows.get(limit_key(scope)) for scope in scopes_of(task.columns))


def _letting_go(graph_id: str, holders: Sequence[str], spent: bool) -> str:
    first = holders[0] if holders else PAUSED
    return f"taskgraph activate {graph_id} LABEL" if first == INACTIVE else resume_command(graph_id, first, spent=spent)


def causes(
    graph_id: str,
    rows: Mapping[str, Row],
    findings: Sequence[Finding],
    queued: Mapping[str, int | None],
    now: datetime,
    *,
    handled: bool = True,
) -> list[Cause]:
    """Why the graph does not move, or that it does.

    queued: target -> messages on its queue, about; None where that is out of sight. handled: whether a handler is
    registered that lives.
    """
    graph = rows.get(GRAPH)
    state = str(graph.columns.get("state", "")) if graph else "missing"
    wrong = sum(each.severity is Severity.WRONG for each in findings)
    held_up = f"{wrong:,} finding{'s' if wrong != 1 else ''} of the doctor may hold it up"
    made = [Cause(held_up, f"see taskgraph doctor {graph_id}")] if wrong else []
    if (still := _by_its_state(graph_id, state, graph)) is not None:
        return [*made, still]
    tasks = [row for key, row in rows.items() if key.startswith("task:")]
    pending = [row for row in tasks if row.columns.get("state") == TaskState.PENDING]
    made += _running(graph_id, state, tasks, now, handled=handled)
    made += _held_back(graph_id, pending, graph is not None and is_spent(graph.columns.get))
    made += _without_room(graph_id, rows, pending)
    made += _unclaimed(waiting_by_target(rows, now), queued)
    made += _later(rows, pending, now)
    made += _due(findings)
    made += _blocked_by(graph_id, graph, tasks) if graph and state == GraphState.BLOCKED else ()
    begun = any(row.columns.get("state") in (TaskState.PENDING, TaskState.RUNNING) for row in tasks)
    if not handled and (begun or not made):  # a graph that rests until it is mended has no results to be read
        made.append(Cause("no handler reads its results", "start a handler: taskgraph serve"))
    return made or [Cause("nothing of it is ready, running or failed")]


def _by_its_state(graph_id: str, state: str, graph: Row | None) -> Cause | None:
    """Why nothing moves in a graph of this state, None where something may."""
    if state in GRAPH_ENDED:
        return Cause(f"it is {state}: nothing moves any more")
    columns = graph.columns if graph is not None else {}
    if state in (GraphState.MOVING, GraphState.MOVED):
        return _on_its_way(graph_id, columns)
    if state == GraphState.RESTORING and "arrival" in columns:
        return _on_its_way(graph_id, columns)
    if state in GRAPH_GONE:
        return Cause("it was deleted" if state == GraphState.DELETED else "it is being deleted")
    if state == GraphState.RESTORING:
        return Cause("it is being restored", "restore the same archive again")
    if state == GraphState.SUBMITTING:
        return Cause("it is still being submitted", "submit the same file under the same id again")
    return None


def _on_its_way(graph_id: str, columns: Columns) -> Cause:
    """About a graph between two stores: where it goes, or comes from, and how that is brought to its end."""
    to, origin = columns.get("movesTo"), columns.get("movesFrom")
    again = f"taskgraph transfer {graph_id} --to …"
    if columns.get("state") == GraphState.MOVED:
        where = f"it has moved to {to}"
        return Cause(where, "" if columns.get("received") is not None else f"see that it has come there: {again}")
    if columns.get("state") == GraphState.MOVING:
        return Cause(f"it is on its way to {to}", f"{again} goes on, and --stay takes it back")
    return Cause(f"it is on its way here, from {origin}", f"there, {again} goes on")


def _running(graph_id: str, state: str, tasks: Sequence[Row], now: datetime, *, handled: bool) -> Iterator[Cause]:
    running = [row for row in tasks if row.columns.get("state") == TaskState.RUNNING]
    ended = sum(lease(row.columns.get, now) is Standing.OVER for row in running)
    if state == GraphState.CANCELLING:
        yield from _stopping(graph_id, running)
    elif len(running) > ended:
        yield Cause(f"{'it moves: ' if handled else ''}{tasks_are(len(running) - ended)} running")
    if ended:
        lost = f"{tasks_are(ended)} running on workers whose leases have ended"
        yield Cause(lost, "run `taskgraph serve`: its sweep gives them up")


def _held_back(graph_id: str, pending: Sequence[Row], spent: bool) -> Iterator[Cause]:
    ready = [row for row in pending if _is_held(row)]
    for holders, tasks in Counter(tuple(texts(row.columns, "held")) for row in ready).most_common():
        words = f"{tasks_are(tasks)} ready and held back: {holders_in_words(holders, of=tasks, spent=spent)}"
        yield Cause(words, _letting_go(graph_id, holders, spent))


def _without_room(graph_id: str, rows: Mapping[str, Row], pending: Sequence[Row]) -> Iterator[Cause]:
    full = [limit for row in pending if not _is_held(row) and (limit := _full_limit(row, rows)) is not None]
    room = Counter(f"limit of {limit.name}: {len(limit.inside):,} of {limit.most:,} in flight" for limit in full)
    for why, number in sorted(room.items()):
        yield Cause(f"{tasks_are(number)} ready and waiting for room; {why}", f"see taskgraph limit list {graph_id}")


def _unclaimed(waiting: Mapping[str, Waiting], queued: Mapping[str, int | None]) -> Iterator[Cause]:
    for target, one in sorted(waiting.items()):
        held = queued.get(target, 0)
        since = f" since {clock_text(one.since)}" if one.since else ""
        text = f"{tasks_are(sum(map(len, one.levels.values())))} ready for workers of target {target}{since}"
        if one.refusals:
            yield Cause(f"{text}; a worker gave back: {one.refusals.most_common(1)[0][0]}", "start another worker")
        elif held is None or held:
            text += f"; its queue holds about {held:,} message{'s' if held != 1 else ''}" if held else ""
            yield Cause(text, f"start a worker: taskgraph worker --target {target}")
        else:
            yield Cause(f"{text}; its queue is empty", "run `taskgraph serve`: its sweep sends them again")


def _later(rows: Mapping[str, Row], pending: Sequence[Row], now: datetime) -> Iterator[Cause]:
    later = sum(bool(not_yet_seconds(row.columns.get, now)) for row in pending)
    if later:
        times = [time_of(row.columns, "notBefore") for row in rows.values()]
        first = min(moment for moment in times if moment is not None and moment > now)
        yield Cause(f"{tasks_are(later)} to run later, the first not before {clock_text(first)}")


def _due(findings: Sequence[Finding]) -> Iterator[Cause]:
    due = Counter(each.code for each in findings if each.severity is Severity.DUE)
    for code, text in (
        ("relay-ready", "joins and forks stand ready"),
        ("skip-due", "tasks are to be skipped"),
        ("recall-due", "tasks, joins and forks are to be run again"),
        ("extension-open", "extensions are open"),
    ):
        if due[code]:
            yield Cause(f"{due[code]:,} {text}", "run `taskgraph serve`, which handles and sweeps")


def _blocked_by(graph_id: str, graph: Row, tasks: Sequence[Row]) -> Iterator[Cause]:
    failed = sorted(
        (str(row.columns.get("label", "")), reference_of(row.key))
        for row in tasks
        if row.columns.get("state") in FAILED and not passes_on(graph.columns.get, row.columns.get)
    )
    if failed:
        shown = ", ".join(f"“{label}”" for label, _ in failed[:NAMED_MAX])
        more = f" and {len(failed) - NAMED_MAX:,} more" if len(failed) > NAMED_MAX else ""
        rerun = rerun_failed(graph_id) if len(failed) > 1 else typed("rerun", graph_id, *failed[0])
        yield Cause(f"it is blocked by {shown}{more}", f"mend the cause, then: {rerun}")


def _stopping(graph_id: str, running: Sequence[Row]) -> Iterator[Cause]:
    """What a graph that is being cancelled still waits for."""
    marked = [row for row in running if row.columns.get("cancel")]
    if not marked:
        return
    oldest = min(marked, key=lambda row: str(row.columns.get("started", "")))
    runs = f"{len(marked):,} run{' is' if len(marked) == 1 else 's are'}"
    text = f"{runs} being stopped, the oldest on worker {oldest.columns.get('worker', '')}"
    yield Cause(f"it is being cancelled: {text}", f"not to wait: taskgraph cancel --terminate {graph_id}")
