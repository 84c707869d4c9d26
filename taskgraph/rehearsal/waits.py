"""What ready tasks waited for in a rehearsal, slots of their target or room under a limit, and the slack of each.

A task waits for what was full at that moment. Where both were, the limit counts: another slot would not have helped.
"""

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from taskgraph.model.columns import Columns, integer, texts
from taskgraph.model.ids import is_relay, limit_key
from taskgraph.queries.timeline import RunSpan, Timeline
from taskgraph.rehearsal.play import Bench
from taskgraph.rehearsal.start import Start, tasks_of

SLOTS, LIMIT = "slots", "limit"
_LEAST_SECONDS: Final = 1e-3  # less is no wait


@dataclass(frozen=True, slots=True)
class Wait:
    """Task-seconds that ready tasks waited for one thing.

    kind: SLOTS of the targets in `name`, or LIMIT of that group ("" for the graph). most: what there is of it.
    """

    kind: str
    name: str
    most: int
    seconds: float
    tasks: int


def waits_of(start: Start, benches: Sequence[Bench], found: Timeline) -> list[Wait]:
    """What is waited for from then on, the worst first."""
    tasks = tasks_of(start)
    limits = _limits(start)
    by_target = {target: number for number, bench in enumerate(benches) for target in bench.targets}
    spans = [(span, tasks[span.task_id]) for span in found.runs if span.task_id in tasks]
    full_limits = {
        scope: _Full([span for span, columns in spans if scope in texts(columns, "limits")], most)
        for scope, (_, most) in limits.items()
    }
    full_benches = [
        _Full([span for span, columns in spans if by_target.get(_target(columns)) == number], bench.slots)
        for number, bench in enumerate(benches)
    ]
    waited: dict[tuple[str, str | int], tuple[float, int]] = {}
    for span, columns in spans:
        if span.ready is None:
            continue
        begin, end = max(span.ready, start.now).timestamp(), span.started.timestamp()
        if end - begin < _LEAST_SECONDS:
            continue
        scopes = [scope for scope in texts(columns, "limits") if scope in full_limits]
        under = max(((full_limits[scope].between(begin, end), scope) for scope in scopes), default=(0.0, ""))
        number = by_target.get(_target(columns))
        for_slots = full_benches[number].between(begin, end) if number is not None else 0.0
        if under[0] >= max(for_slots, _LEAST_SECONDS):
            key: tuple[str, str | int] = LIMIT, under[1]
        elif number is not None and for_slots >= _LEAST_SECONDS:
            key = SLOTS, number
        else:
            continue
        seconds, count = waited.get(key, (0.0, 0))
        waited[key] = seconds + end - begin, count + 1
    made: list[Wait] = []
    for (kind, which), (seconds, count) in waited.items():
        if isinstance(which, int):
            made.append(Wait(kind, ",".join(benches[which].targets), benches[which].slots, seconds, count))
        else:
            made.append(Wait(kind, *limits[which], seconds, count))
    return sorted(made, key=lambda each: -each.seconds)


def _limits(start: Start) -> dict[str, tuple[str, int]]:
    """Scope of each limit -> the name of its group, and the most in flight."""
    scopes = {scope for columns in tasks_of(start).values() for scope in texts(columns, "limits")}
    rows = {scope: start.rows.get(limit_key(scope)) for scope in scopes}
    return {
        scope: (str(row.columns.get("label", "")), integer(row.columns, "max"))
        for scope, row in rows.items()
        if row is not None
    }


def _target(columns: Columns) -> str:
    return str(columns.get("target", "default"))


class _Full:
    """For how long so many of these ran at a time, up to any moment."""

    def __init__(self, spans: Iterable[RunSpan], most: int) -> None:
        moments = sorted(
            moment
            for span in spans
            if span.ended is not None
            for moment in ((span.started.timestamp(), 1), (span.ended.timestamp(), -1))
        )
        self._at: list[float] = []
        self._until: list[float] = []  # seconds for which it was full until then
        self._is_full: list[bool] = []
        running, seconds, last = 0, 0.0, 0.0
        for moment, step in moments:
            if running >= most and self._at:
                seconds += moment - last
            running += step
            last = moment
            self._at.append(moment)
            self._until.append(seconds)
            self._is_full.append(running >= most)

    def _before(self, moment: float) -> float:
        place = bisect.bisect_right(self._at, moment) - 1
        if place < 0:
            return 0.0
        return self._until[place] + (moment - self._at[place] if self._is_full[place] else 0.0)

    def between(self, begin: float, end: float) -> float:
        return self._before(end) - self._before(begin)


def slack_of(start: Start, found: Timeline) -> dict[str, float]:
    """TaskId -> for how many seconds longer it might have taken without making the graph longer.

    As if there were slots enough for whatever comes later by that: a bound from above.
    """
    requires = {
        key.removeprefix("task:"): texts(row.columns, "requires")
        for key, row in start.rows.items()
        if key.startswith(("task:", "join:"))
    }
    took: dict[str, float] = {}
    ended: dict[str, float] = {}
    first: dict[str, float] = {}
    for span in found.runs:
        if span.ended is not None:
            began = first.setdefault(span.task_id, span.started.timestamp())
            ended[span.task_id] = span.ended.timestamp()
            took[span.task_id] = ended[span.task_id] - began
    latest = _latest(requires, took, max(ended.values(), default=0.0))
    return {task_id: max(0.0, latest[task_id] - end) for task_id, end in ended.items() if task_id in latest}


def _latest(requires: Mapping[str, Sequence[str]], took: Mapping[str, float], end: float) -> dict[str, float]:
    """By when each task or relay has to be resolved, from those that nothing requires back to the first."""
    left = dict.fromkeys(requires, 0)
    for needed in requires.values():
        for each in needed:
            if each in left:
                left[each] += 1
    latest = dict.fromkeys(requires, end)
    todo = [each for each, count in left.items() if not count]
    while todo:
        each = todo.pop()
        begin = latest[each] - (0.0 if is_relay(each) else took.get(each, 0.0))
        for needed in requires[each]:
            if needed in left:
                latest[needed] = min(latest[needed], begin)
                left[needed] -= 1
                if not left[needed]:
                    todo.append(needed)
    return latest
