"""Tasks and groups of a graph in the making."""

import copy
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Self

from taskgraph.interfaces.client.calls import Function, HasResult, checked, name_of
from taskgraph.model.errors import InvalidInput
from taskgraph.model.states import When

_DERIVED_NAME_CHARS_MAX: Final = 60


class Requires(tuple[str, ...]):
    """The names that a task or group requires.

    Called, it gives pairs for `Graph.add`, by which more is required: graph.add(unlock.requires(bulk)).
    """

    _dependent: "Task | Group"

    def __new__(cls, dependent: "Task | Group", names: Iterable[str]) -> "Requires":
        made = super().__new__(cls, names)
        made._dependent = dependent
        return made

    def __call__(self, *required: "Task | Group | str") -> "list[Pair]":
        """A pair (dependent, required) for each; nothing is required before these are added to a graph."""
        return [(self._dependent, each) for each in required]


class _Dependent:
    """What a task and a group have in common: they require others, and others require them."""

    __slots__ = ("_groups", "_requires")

    def __init__(self) -> None:
        self._requires: dict[str, bool] = {}  # name -> whether it is optional, which it never is for all of a group
        self._groups: dict[str, Group] = {}

    @property
    def requires(self) -> Requires:
        """Labels and names of groups that it requires, in the order in which they were named.

        Called with tasks and groups: pairs for `Graph.add`, by which it requires these.
        """
        return Requires(self, self._requires)  # type: ignore[arg-type]

    @property
    def groups(self) -> "Mapping[str, Group]":
        """The groups in it and among what it requires, by name, as far as they were not named by a text."""
        return MappingProxyType(self._groups)

    def after(self, *required: "Task | Group | str | Iterable[Task | Group | str]") -> None:
        """Require further tasks and groups. One that is required already changes nothing."""
        self._require(required, optional=False)

    def _require(
        self, required: "Iterable[Task | Group | str | Iterable[Task | Group | str]]", *, optional: bool
    ) -> None:
        for each in required:
            for one in (each,) if isinstance(each, Task | Group | str) else each:
                self._requires.setdefault(_label(one), optional)
                if isinstance(one, Group):
                    self._groups[one.name] = one

    def __rshift__(self, other: "_Right") -> "_Right":
        """`a >> b` and `a >> [b, c]`: b (and c) require a. Gives the right side, so that chains can be written."""
        others = [other] if isinstance(other, Task | Group) else list(other)
        for each in others:
            each.after(self)  # type: ignore[arg-type]
        return other if isinstance(other, Task | Group) else others

    def __rrshift__(self, other: "str | Iterable[Task | Group | str]") -> Self:
        """`[a, b] >> c`: c requires a and b."""
        self.after(other)
        return self


class Task(_Dependent, HasResult):
    """One task of a graph in the making.

    requires: tasks, groups, or names of such, that must complete before this one. optional: further ones, that are
    waited for too and may fail. when: how those it requires must have ended for it to run: "all-completed" (the
    default), "all-resolved", "any-failed", "always"; like optional, for requirements whose failure is passed on
    (failure_policy="continue", of the graph or of their group). reruns: how often it may run again because it failed
    itself. command, env, cwd, timeout (seconds): of the executor `command`; in env {"$secret": "name"} is a secret of
    the worker. call, arguments: of the executor `python`; call is a name, or a function, for which arguments are
    checked, and may be or hold tasks: their results, which makes it require them. payload: anything else that the
    executor reads; executor: its name, where the payload does not imply it ("sleep", "noop", one of your own). target:
    the queue of workers that it goes to. host: the one host that may run it, instead. worker_labels: what a worker must
    have (`--label`). deadline: aware, or RFC 3339 text; past it the task ends as an exception, whether it runs or
    waits. not_before: aware, or RFC 3339 text; no worker claims it earlier. max_run_time: seconds that a run may take.
    pending_timeout: seconds that it may wait for a worker. retry: how it is tried again after temporary failures, by
    the keys of a document (limit, delay and max in seconds, exitCodes). priority: "highest", "high", "normal", "low" or
    "lowest", "" for that of its graph. active: False holds it back until it is activated. notify: where notices of it
    go, as in a document. definition: a task definition as it stands in a document; the other arguments are added to it.

    Raises InvalidInput when two arguments set the same thing. What a document must not hold is found by
    `Graph.validate`, with all other problems.
    """

    __slots__ = ("_definition", "_timing", "active", "function", "label", "notify", "priority", "reruns", "when")

    def __init__(
        self,
        label: str,
        *,
        requires: "Task | Group | str | Iterable[Task | Group | str]" = (),
        optional: "Task | Group | str | Iterable[Task | Group | str]" = (),
        when: str = When.ALL_COMPLETED.value,
        reruns: int = 0,
        command: Sequence[str | Mapping[str, str]] | None = None,
        env: Mapping[str, str | Mapping[str, str]] | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        call: str | Function | None = None,
        arguments: Mapping[str, Any] | None = None,
        payload: Mapping[str, Any] | None = None,
        executor: str | None = None,
        target: str | None = None,
        host: str | None = None,
        worker_labels: Iterable[str] | None = None,
        deadline: datetime | str | None = None,
        routing: str | None = None,
        metadata: Mapping[str, str] | None = None,
        notify: Mapping[str, Any] | None = None,
        definition: Mapping[str, Any] | None = None,
        not_before: datetime | str | None = None,
        retry: Mapping[str, Any] | None = None,
        max_run_time: float | None = None,
        pending_timeout: float | None = None,
        priority: str = "",
        active: bool = True,
    ) -> None:
        super().__init__()
        self.notify: dict[str, Any] = copy.deepcopy(dict(notify or {}))
        self.label = label
        self.reruns = reruns
        self.priority = priority
        self.active = active
        self.when = when
        self.after(requires)
        self.after(optional, optional=True)
        if isinstance(command, str):
            raise InvalidInput(f'task “{label}”: command is a list of texts, such as ["sh", "-c", "make"]')
        if command is not None and call is not None:
            raise InvalidInput(f"task “{label}”: it has a command and a call; give one, or make two tasks of it")
        self.function: Function | None = None
        if call is not None and not isinstance(call, str):
            self.function, call = call, name_of(call)
            found = checked(self.function, arguments or {})
            arguments = found.values or None
            self.after(found.labels)
        deadline = moment_text(f"task “{label}”", "deadline", deadline)
        timing = {
            "notBefore": moment_text(f"task “{label}”", "not_before", not_before),
            "retry": None if retry is None else copy.deepcopy(dict(retry)),
            "maxRunTime": max_run_time,
            "pendingTimeout": pending_timeout,
        }
        self._timing = {key: value for key, value in timing.items() if value is not None}
        own: dict[str, Any] = {
            "command": None if command is None else list(command),
            "env": None if env is None else dict(env),
            "cwd": cwd,
            "timeout": timeout,
            "call": call,
            "arguments": None if arguments is None else dict(arguments),
        }
        beside: dict[str, Any] = {
            "executor": executor,
            "target": target,
            "host": host,
            "workerLabels": None if worker_labels is None else list(worker_labels),
            "deadline": deadline,
            "routing": routing,
            "metadata": None if metadata is None else dict(metadata),
        }
        merged = _merged(label, "payload", payload or {}, own)
        if merged or payload is not None:
            beside["payload"] = merged
        self._definition = copy.deepcopy(_merged(label, "definition", definition or {}, beside))

    @property
    def optional(self) -> frozenset[str]:
        """Names among `requires` whose failing, or being skipped, does not matter."""
        return frozenset(label for label, optional in self._requires.items() if optional)

    @property
    def definition(self) -> Mapping[str, Any]:
        """The definition, as a document holds it under `task`."""
        return MappingProxyType(self._definition)

    @property
    def reference(self) -> dict[str, str]:
        """What stands for this task's id inside the payload of any task of the graph."""
        return {"$subs": f"taskId:{self.label}"}

    def result(self, path: str = "", **default: Any) -> dict[str, Any]:
        """What stands for this task's result inside the payload of a task that requires it, directly or not.

        path: JSON pointer of a part of it. default=…: the value where there is none. Raises InvalidInput for any other
        argument.
        """
        if not default.keys() <= {"default"}:
            raise InvalidInput(
                f"task “{self.label}”: result takes path and default, and no {', '.join(sorted(default))}"
            )
        made: dict[str, Any] = {"$result": self.label}
        if path:
            made["path"] = path
        return made | copy.deepcopy(default)

    def after(self, *required: "Task | Group | str | Iterable[Task | Group | str]", optional: bool = False) -> None:
        """Require further tasks and groups. One that is required already changes nothing.

        optional: they are waited for, and how they end does not matter.
        """
        self._require(required, optional=optional)

    def to_dict(self) -> dict[str, Any]:
        """The task as a document holds it; what has its default value is left out."""
        made: dict[str, Any] = {}
        if self._requires:
            made["requires"] = [
                {"label": label, "optional": True} if optional else label for label, optional in self._requires.items()
            ]
        if self.when != When.ALL_COMPLETED:
            made["when"] = str(self.when)
        if self.reruns:
            made["reruns"] = self.reruns
        made.update(copy.deepcopy(self._timing))
        if self.notify:
            made["notify"] = copy.deepcopy(self.notify)
        if self.priority:
            made["priority"] = str(self.priority)
        if not self.active:
            made["active"] = False
        made["task"] = copy.deepcopy(self._definition)
        return made

    def __repr__(self) -> str:
        return f"Task({self.label!r}, requires={list(self._requires)!r})"


class Group(_Dependent):
    """A name for tasks of a graph in the making. It may stand wherever a task may be required.

    Requiring it means requiring all of its tasks, and what it requires each of its tasks requires.

    bulk = Group("bulk", rename1, rename2, mail)
    graph.add(bulk.requires(lock), unlock.requires(bulk))

    members: tasks, groups, and names of such; a text that comes first is the name of the group, unless name says it.
    Without a name it is called by its members: "(a, b)". requires: what has to complete before any of its tasks.
    max_in_flight: so many of its tasks run at a time. active: False holds its tasks back until it is resumed.
    success: when the group has succeeded, as in a document: {"atLeast": "95%", "then": "wait", "rest": "cancel"}.
    grows: an extension may put tasks into it until it has ended.
    failure_policy: "continue" or "block": what a task of it that failed for good does to the graph, whatever the graph
    says; without it, what the groups around it say, or the graph.

    Raises InvalidInput for a group without members.
    """

    __slots__ = ("_members", "active", "failure_policy", "grows", "max_in_flight", "name", "success")

    def __init__(
        self,
        *members: "Task | Group | str",
        name: str | None = None,
        requires: "Task | Group | str | Iterable[Task | Group | str]" = (),
        max_in_flight: int | None = None,
        active: bool = True,
        success: Mapping[str, Any] | None = None,
        grows: bool = False,
        failure_policy: str | None = None,
    ) -> None:
        if name is None and members and isinstance(members[0], str):
            name, members = members[0], members[1:]
        if not members:
            raise InvalidInput(f"group “{name}” has no members" if name else "a group has no members")
        super().__init__()
        self._members = members
        self._groups.update({each.name: each for each in members if isinstance(each, Group)})
        self.name: str = _called_by(self.tasks) if name is None else name
        self.max_in_flight = max_in_flight
        self.active = active
        self.success = dict(success) if success is not None else None
        self.grows = grows
        self.failure_policy = failure_policy
        self.after(requires)

    @property
    def members(self) -> "tuple[Task | Group | str, ...]":
        """The arguments that it was made of."""
        return self._members

    @property
    def tasks(self) -> tuple[str, ...]:
        """Labels of the tasks in it, and names of the groups in it."""
        return tuple(dict.fromkeys(map(_label, self._members)))

    def to_dict(self) -> dict[str, Any]:
        """The group as a document holds it; what has its default value is left out."""
        made: dict[str, Any] = {"tasks": list(self.tasks)}
        if self._requires:
            made["requires"] = list(self._requires)
        if self.max_in_flight is not None:
            made["maxInFlight"] = self.max_in_flight
        if not self.active:
            made["active"] = False
        if self.success is not None:
            made["success"] = dict(self.success)
        if self.grows:
            made["grows"] = True
        if self.failure_policy is not None:
            made["failurePolicy"] = str(self.failure_policy)
        return made

    def __repr__(self) -> str:
        return f"Group({self.name!r}, tasks={list(self.tasks)!r}, requires={list(self._requires)!r})"


Pair = tuple[Task | Group, Task | Group | str]
"""(dependent, required): what `requires` gives when it is called."""

_Right = Task | Group | Iterable[Task | Group]


def _label(task: Task | Group | str) -> str:
    if isinstance(task, Group):
        return task.name
    return task.label if isinstance(task, Task) else task


def _called_by(names: Sequence[str]) -> str:
    """A name for a group that was given none: the same for the same members."""
    name = f"({', '.join(names)})"
    if len(name) <= _DERIVED_NAME_CHARS_MAX:
        return name
    digest = hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    first = names[0] if len(names[0]) <= _DERIVED_NAME_CHARS_MAX else f"{names[0][:_DERIVED_NAME_CHARS_MAX]}…"
    return f"({first} and {len(names) - 1:,} more, {digest})"


def moment_text(owner: str, name: str, moment: datetime | str | None) -> str | None:
    """A time as a document has it. Raises InvalidInput for one without a zone."""
    if not isinstance(moment, datetime):
        return moment
    if moment.tzinfo is None:
        raise InvalidInput(f"{owner}: {name} has no time zone")
    return moment.isoformat()


def _merged(label: str, name: str, given: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """given, and what of more is not None. Raises InvalidInput for a key in both."""
    added = {key: value for key, value in more.items() if value is not None}
    twice = next((key for key in added if key in given), None)
    if twice is not None:
        raise InvalidInput(f"task “{label}”: {twice} is given twice, by itself and in {name}")
    return {**given, **added}
