"""The values that a validated document comes to: tasks, groups and the graph itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from taskgraph.model.budget import Budget
from taskgraph.model.ids import value
from taskgraph.model.states import FailurePolicy, When


@value
class TaskNode:
    """One task as submitted.

    requires: labels, and names of groups; task: the definition, with `$subs` not yet replaced; optional: requirements
    whose failing or being skipped does not matter; timing: keys of the node that speak of time; priority: "" for that
    of its graph.
    """

    label: str
    requires: tuple[str, ...] = ()
    reruns: int = 0
    task: Mapping[str, Any] = field(default_factory=dict)
    when: str = When.ALL_COMPLETED.value
    optional: frozenset[str] = frozenset()
    notify: Mapping[str, Any] = field(default_factory=dict)
    timing: Mapping[str, Any] = field(default_factory=dict)
    active: bool = True
    priority: str = ""


@dataclass(frozen=True, slots=True)
class Success:
    """When a group has succeeded. at_least: members, as a number or, with "%", as a share; as it was written.

    waits: those that require the group go on when all members have ended, not as soon as it is decided. cancels:
    members that are left are cancelled once it is decided.
    """

    at_least: int | str
    waits: bool = False
    cancels: bool = False

    def needs(self, members: int) -> int:
        """How many of so many members are to complete. A share is rounded up, and is one at least."""
        if isinstance(self.at_least, int):
            return self.at_least
        whole, _, part = self.at_least.rstrip("%").partition(".")
        share = int(whole) * 100 + int(part.ljust(2, "0") or "0")  # in hundredths of a percent
        return max(1, -(-members * share // 10_000))


@dataclass(frozen=True, slots=True)
class GroupNode:
    """A name for tasks. tasks, requires: labels, and names of groups. max_in_flight: 0 for any number.

    success: None where all members are to complete. grows: an extension may put tasks into it until it has ended.
    failure_policy: "" for what is said around it.
    """

    name: str
    tasks: tuple[str, ...]
    requires: tuple[str, ...] = ()
    active: bool = True
    max_in_flight: int = 0
    success: Success | None = None
    grows: bool = False
    failure_policy: str = ""


@dataclass(frozen=True, slots=True)
class GraphDocument:
    """A validated submission, or extension (then `tasks` and `groups` count). Their order is that of the document.

    params: declarations, the default being the value that was used. max_in_flight: 0 for any number. written: label ->
    definition with its `$param` objects, of the tasks that values were put into. sources: label -> file, of tasks in a
    part that the document includes.
    """

    tasks: Mapping[str, TaskNode]
    routing: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    failure_policy: str = FailurePolicy.BLOCK.value
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    groups: Mapping[str, GroupNode] = field(default_factory=dict)
    notify: Mapping[str, Any] = field(default_factory=dict)
    deadline: str = ""
    stalled_after: float = 0.0
    on_stalled: str = ""
    max_in_flight: int = 0
    priority: str = ""
    budget: Budget | None = None
    written: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def values(self) -> dict[str, Any]:
        return {name: declared["default"] for name, declared in self.params.items() if "default" in declared}

    def without_cache(self) -> "GraphDocument":
        """The same, with each task that has a `cache` run in any case."""
        return replace(self, tasks={label: _renewed(node) for label, node in self.tasks.items()})

    @property
    def edges(self) -> int:
        """Number of requirements over all tasks; one on a group, or of a group, counts as it is kept: as M + N."""
        if self.groups:
            from taskgraph.documents.groups import wire  # imported here, for groups are made of these nodes

            return wire(self.tasks, self.groups).edges
        return sum(len(node.requires) for node in self.tasks.values())


def _renewed(node: TaskNode) -> TaskNode:
    payload = node.task.get("payload")
    if not isinstance(payload, dict) or not (cache := payload.get("cache")):
        return node
    cache = {**(cache if isinstance(cache, dict) else {}), "renew": True}
    return replace(node, task={**node.task, "payload": {**payload, "cache": cache}})


Kind = Literal["graph", "extension"]
