"""What queries answer with, as values; and the columns and filters with which they ask."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from taskgraph.model import facts
from taskgraph.model.columns import Value, object_of, time_of
from taskgraph.model.priorities import NORMAL
from taskgraph.model.states import (
    GRAPH_LIVE,
    INACTIVE,
    PAUSED,
    TASK_STORED,
    FailurePolicy,
    GraphState,
    TaskState,
    When,
    state_in_words,
)

OF_GROUP: Final = '"join:group-'


class GroupState(StrEnum):
    """How far the tasks of a group are, taken together. It is no state of a row: nothing moves a group."""

    WAITING = "waiting"  # none of its tasks has begun, or could
    RUNNING = "running"  # one has, or could
    BLOCKED = "blocked"  # one failed for good, or was cancelled while others go on
    FINISHED = "finished"  # all have completed, or been skipped
    CANCELLED = "cancelled"  # none is left, and some were cancelled, while none failed


@dataclass(frozen=True, slots=True)
class GraphStatus:
    """A graph at a glance.

    counts: tasks by state, each exact. exact: whether counts names every state that a task is in; of a large graph it
    may lack some, and at_least then says how many were seen in these. failed_tasks: that failed for good or were
    cancelled. ended: when it finished or was cancelled. reason: why it is cancelled. held: holders, as on its row.
    limits: without labels. stalled, stalled_because: None and "" for a graph that moves or has ended. revision: how
    many extensions and edits it has taken in. held_tasks, inactive_tasks, priorities: counts of the tasks that have
    neither begun nor ended; None of a large graph. folder: where its submitter was, "" if that is
    not known.
    """

    graph_id: str
    state: str
    created: datetime | None
    ended: datetime | None
    tasks: int
    edges: int
    counts: Mapping[str, int]
    blocked_by: str = ""
    failed_tasks: int = 0
    routing: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    unresolved: int = 0
    exact: bool = True
    at_least: Mapping[str, int] = field(default_factory=dict)
    failure_policy: str = FailurePolicy.BLOCK.value
    schedule: str = ""
    fired_for: datetime | None = None
    reason: str = ""
    deadline: datetime | None = None
    held: tuple[str, ...] = ()
    stalled: datetime | None = None
    stalled_because: str = ""
    limits: tuple["LimitStatus", ...] = ()
    folder: str = ""
    revision: int = 0
    held_tasks: int | None = None
    inactive_tasks: int | None = None
    priorities: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """A limit on tasks in flight. group: "" for the whole graph. labels: of those in flight, where asked for."""

    group: str
    most: int
    in_flight: int
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphListed:
    """A graph in the list. failed_tasks: for good, or cancelled. held: what of it is paused, as its row says.

    ended: when it finished or was cancelled. seconds: from its creation to its end, None before it. unresolved: tasks
    that have neither completed, nor been skipped, nor failed for good; None where that was not counted.
    """

    graph_id: str
    state: str
    created: datetime | None
    name: str
    tasks: int
    schedule: str = ""
    fired_for: datetime | None = None
    held: tuple[str, ...] = ()
    failed_tasks: int = 0
    ended: datetime | None = None
    seconds: float | None = None
    tags: Mapping[str, Any] = field(default_factory=dict)
    unresolved: int | None = None

    @property
    def done(self) -> int | None:
        """Tasks that have completed or been skipped."""
        return None if self.unresolved is None else self.tasks - self.failed_tasks - self.unresolved


@dataclass(frozen=True, slots=True)
class GraphsWanted:
    """Which graphs a list has; what is empty or None asks for nothing.

    state: as stored, or `paused` for a running graph that is paused as a whole. name: a part of the name, in any case,
    or a pattern of the whole with `*` and `?`. tags: values by key, None for any. since, until: of the creation. ids:
    patterns, of which the id must fit one.
    """

    state: str = ""
    name: str = ""
    tags: Mapping[str, str | None] = field(default_factory=dict)
    since: datetime | None = None
    until: datetime | None = None
    ids: Sequence[str] = ()

    @property
    def is_live(self) -> bool:
        """Whether only graphs are wanted that the index of live ones names."""
        return self.state == PAUSED or self.state in GRAPH_LIVE

    def may_be(self, listed: Mapping[str, Value]) -> bool:
        """Whether a graph is wanted, as far as its entry in the list of all graphs says."""
        created = time_of(listed, "created")
        if created is None and (self.since is not None or self.until is not None):
            return False
        if created is not None and not (self.since or created) <= created <= (self.until or created):
            return False
        wanted, name = self.name.casefold(), str(listed.get("name", "")).casefold()
        if not (fnmatchcase(name, wanted.replace("[", "[[]")) if set(wanted) & set("*?") else wanted in name):
            return False
        # Entries of before version 0.4 have no tags, nor have those of graphs with long ones.
        return self._has_id(str(listed.get("graph", ""))) and (
            "tags" not in listed or self._has_tags(object_of(listed, "tags"))
        )

    def _has_id(self, graph_id: str) -> bool:
        return not self.ids or any(fnmatchcase(graph_id, each) for each in self.ids)

    def _has_tags(self, tags: Mapping[str, Any]) -> bool:
        return all(key in tags and value in (None, str(tags[key])) for key, value in self.tags.items())

    def has(self, graph: GraphListed) -> bool:
        if self.state == PAUSED or not self.state:
            # A submission may be listed late: a name beside a tombstone is shown only if that state is asked for.
            fits = (
                state_in_words(graph.state, graph.held) == PAUSED if self.state else graph.state != GraphState.DELETED
            )
        else:
            fits = graph.state == self.state
        return fits and self._has_id(graph.graph_id) and self._has_tags(graph.tags)


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """A task by its row, in the state that people see; edges are not resolved here (see `TaskDetail`).

    groups: nested ones too. temporary_left: how often it may still fail for the moment. pending_timeout: seconds to
    wait for a worker, None for any. held: holders of its next run: the graph (PAUSED), itself (INACTIVE), groups
    (`by_group`), and where that was looked up its target (`by_target`).
    """

    task_id: str
    label: str
    state: str
    run: int
    target: str
    reruns_allowed: int
    reruns_left: int
    retries_left: int
    worker: str
    pending_since: datetime | None
    started: datetime | None
    ended: datetime | None
    resolved: datetime | None
    lease_until: datetime | None
    deadline: datetime | None
    resolution: Mapping[str, Any] | None
    runs: Sequence[Mapping[str, Any]]
    refusal: str
    when: str = When.ALL_COMPLETED.value
    groups: Sequence[str] = ()
    not_before: datetime | None = None
    temporary_failures: int = 0
    temporary_left: int = 0
    pending_timeout: float | None = None
    priority: str = NORMAL
    held: Sequence[str] = ()

    @property
    def active(self) -> bool:
        return INACTIVE not in self.held

    @property
    def held_back(self) -> bool:
        return bool(self.held) and self.state in TO_BEGIN


@dataclass(frozen=True, slots=True)
class GroupSuccess:
    """How a group stands that needs k of n. of: members that are counted; ok, bad: those that completed, and did not.

    decided: succeeded or failed; "" while it is open. announced: it has been passed on to those that require the group.
    """

    needs: int
    of: int
    ok: int
    bad: int
    then: str
    rest: str
    decided: str
    announced: bool


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group at a glance: its tasks, those of groups in it among them. state: a GroupState.

    groups: groups in it; within: groups that it is in. listed: the tasks, by label. success: None where all are to
    complete. failure_policy: its own, "" without one.
    """

    graph_id: str
    name: str
    state: str
    graph_state: str
    tasks: int
    counts: Mapping[str, int]
    unresolved: int
    failed_tasks: int
    groups: Sequence[str]
    within: Sequence[str]
    listed: Sequence[TaskStatus]
    success: GroupSuccess | None = None
    failure_policy: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """total: how many of this kind, None if that was not read. status: of a large graph. params: values by name."""

    tasks: Sequence[TaskStatus]
    total: int | None
    status: GraphStatus | None = None
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskDetail:
    """A task with its logical edges, by label; perhaps the first ones: the counts are of all."""

    status: TaskStatus
    requires: Sequence[str]
    requires_left: Sequence[str]
    dependents: Sequence[str]
    definition: Mapping[str, Any]
    requires_count: int
    requires_left_count: int
    dependents_count: int
    optional: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a task does not run. depth: steps down from the task that was asked about. cause: it is a first cause."""

    label: str
    task_id: str
    state: str
    depth: int
    text: str
    cause: bool
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """causes, waiting: how many first causes and tasks that only wait, listed in reasons or not."""

    reasons: list[Reason]
    causes: int
    waiting: int

    @property
    def omitted(self) -> int:
        return self.causes + self.waiting - len(self.reasons)


@dataclass(frozen=True, slots=True)
class Event:
    """sequence: number of its row of the journal. part: its place in that row, from 0."""

    sequence: int
    time: datetime | None
    kind: str
    fields: Mapping[str, Any]
    part: int = 0

    @property
    def cursor(self) -> str:
        """Where to go on after this fact: for `since`."""
        return f"{self.sequence}.{self.part}"

    @property
    def changed(self) -> tuple[str, ...]:
        return facts.changes_of(self.kind, self.fields)


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    """One channel of a graph's notices.

    state: open, done (the graph has ended, and all is sent), given-up. on: which facts of the graph it gets; tasks:
    whether it gets those of tasks. cursor: all is sent up to this event. failures: attempts in a row.
    """

    key: str
    channel: str
    state: str
    on: tuple[str, ...]
    tasks: bool
    cursor: int
    delivered: int
    failures: int
    next_try: datetime | None
    last_error: str


UNDER_WAY: Final = (TaskState.PENDING, TaskState.RUNNING)
TO_BEGIN: Final = frozenset((str(TaskState.UNSCHEDULED), str(TaskState.PENDING)))
FAILED: Final = (TaskState.FAILED, TaskState.EXCEPTION, TaskState.CANCELLED)
LISTED: Final = ((*FAILED, *UNDER_WAY), (TaskState.UNSCHEDULED, TaskState.SKIPPED), (TaskState.COMPLETED,))
NOT_COMPLETED: Final = tuple(str(each) for each in TASK_STORED if each != TaskState.COMPLETED)


def tasks(number: int) -> str:
    return f"{number} task{'s' if number != 1 else ''}"
