"""Limits on tasks in flight: which runs count under a limit, and whether another one may begin.

A limit is a row (`limit:graph`, `limit:group-<groupId>`) with the most (`max`) and the list of the runs that have been
claimed under it (`inFlight`: `<taskId>:<run>`). A task names its limits in its column `limits`; others pay nothing.

No run begins beyond a limit, and no place leaks. A run enters the list in the very commit that claims it, and leaves it
in the one that ends it, however it ends. Both write the limit's row under its etag: of two claims one meets a conflict.
Each member names a row, which says whether the run is over; a member that is over, as after an edit by hand, is removed
by `protocol.set_limit.Recount`. A task that comes under a limit while it runs enters the list in that very commit, even
beyond the limit: then nothing further begins before there is room.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from taskgraph.model import limits
from taskgraph.model.columns import Columns, integer, texts, time_of
from taskgraph.model.ids import WHOLE_GRAPH, limit_key, limit_scope
from taskgraph.model.states import TASK_UNRESOLVED
from taskgraph.protocol.rows import Draft, View
from taskgraph.storage.tables import Row


def is_limited(task: Draft) -> bool:
    return task.text("limits") not in ("", "[]")


def member(task: Draft) -> str:
    """The present run of a task, as lists name it."""
    return f"{task.key.removeprefix('task:')}:{task.integer('run')}"


def require(task: Draft, view: View) -> list[str]:
    """Keys of the limits of a task, all of them loaded. Raises NeedRows."""
    keys = [limit_key(scope) for scope in task.ids("limits")]
    view.require(keys)
    return keys


def full(task: Draft, view: View) -> str:
    """Why the task may not begin now, "" if it may; rests on the rows of its limits."""
    for key in require(task, view):
        row = view.get(key)
        if not _has_room(row, task):
            name = row.text("label")
            whose = f"group “{name}”" if name else "the graph"
            return f"limit of {whose}: {len(row.ids('inFlight'))} of {row.integer('max')} in flight"
    return ""


def seems_full(task: Draft, view: View) -> bool:
    """The same at a glance: no decision rests on it."""
    rows = [view.glimpse(key) for key in require(task, view)]
    return any(row is None or not _has_room(row, task) for row in rows)


def _has_room(row: Draft, task: Draft) -> bool:
    inside = row.ids("inFlight")
    return len(inside) < row.integer("max") or member(task) in inside


def enter(task: Draft, view: View, now: datetime) -> None:
    own = member(task)
    for key in require(task, view):
        row = view.get(key)
        inside = row.ids("inFlight")
        if own not in inside:
            row.set_ids("inFlight", [*inside, own])
            row.set("moved", now)


def concerns(scope: str, task: Columns, graph_id: str) -> bool:
    """Whether a limit of the graph is one of this task, by the groups that its row names."""
    return scope == WHOLE_GRAPH or scope in [limit_scope(graph_id, name) for name in texts(task, "groups")]


def missing_scopes(task: Columns, graph: Columns, graph_id: str) -> tuple[str, ...]:
    """Limits of its graph that concern a task and that it does not name yet, as far as it may be under more."""
    scopes = scopes_of(graph)
    if not scopes:
        return ()
    own = scopes_of(task)
    missing = [each for each in scopes if each not in own and concerns(each, task, graph_id)]
    return tuple(missing[: max(0, limits.LIMITS_OF_TASK_MAX - len(own))])


def leave(task: Draft, view: View, now: datetime) -> None:
    """The present run of a task is over: free its places, where it has them."""
    own = member(task)
    for key in require(task, view):
        row = view.find(key)
        if row is not None and own in row.ids("inFlight"):
            row.cross_off("inFlight", own)
            row.set("moved", now)


def is_over(task: Draft, run: int) -> bool:
    """Whether this run of a task is over for good, whatever has been written to its row since it was read."""
    return task.integer("run") > run or (task.integer("run") == run and task.text("state") not in TASK_UNRESOLVED)


def named_in(text: str) -> tuple[str, int]:
    """(taskId, run) of a member of a list; ("", -1) for what is none."""
    task_id, _, run = text.rpartition(":")
    return (task_id, int(run)) if task_id and run.isdecimal() else ("", -1)


# --- limits outside of a decision


@dataclass(slots=True)
class Limit:
    """A limit as it was read. moved: when a run last came or went."""

    scope: str
    group: str
    most: int
    inside: Sequence[str]
    moved: datetime | None

    @property
    def name(self) -> str:
        return f"group “{self.group}”" if self.group else "the graph"

    @property
    def is_full(self) -> bool:
        return len(self.inside) >= self.most


def limit_of(row: Row) -> Limit:
    """A row of a limit as a value; damaged parts count as nothing, and `doctor` reports them."""
    return Limit(
        row.key.removeprefix("limit:"),
        str(row.columns.get("label", "")),
        integer(row.columns, "max"),
        texts(row.columns, "inFlight"),
        time_of(row.columns, "moved"),
    )


def full_limit(rows: Iterable[Row | None]) -> Limit | None:
    return next((limit for row in rows if row is not None and (limit := limit_of(row)).is_full), None)


def limits_of(rows: Mapping[str, Row | None]) -> dict[str, Limit]:
    """Scope -> limit, of those among some rows."""
    return {
        key.removeprefix("limit:"): limit_of(row)
        for key, row in rows.items()
        if row is not None and key.startswith("limit:")
    }


def scopes_of(columns: Columns) -> tuple[str, ...]:
    """The limits of a task, or of a graph, by its column `limits`."""
    return tuple(texts(columns, "limits"))
