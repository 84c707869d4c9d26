"""Build a graph in Python, or take what stands for one: a document, a path, an object."""

import contextlib
import copy
import inspect
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import Token
from datetime import datetime
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self

from taskgraph.documents.canonical import success_object
from taskgraph.documents.nodes import GraphDocument, Kind
from taskgraph.documents.parameters import names_in
from taskgraph.documents.plan import Plan, plan, to_mermaid
from taskgraph.documents.read import NOTHING_GIVEN, Given, document_from_object, read_document
from taskgraph.documents.texts import form_of
from taskgraph.interfaces import document_files
from taskgraph.interfaces.client.calls import Building, Function, building, name_of
from taskgraph.interfaces.client.tasks import Group, Pair, Task, moment_text
from taskgraph.model.errors import InvalidGraph, InvalidInput
from taskgraph.model.states import FailurePolicy

P = ParamSpec("P")


def _adding(make: Callable[P, Task]) -> "Callable[Concatenate[Graph, P], Task]":

    def task(self: "Graph", /, *args: P.args, **kwargs: P.kwargs) -> Task:
        """Make a task and add it. The arguments are those of `Task`. Raises InvalidInput for a label that is taken."""
        made = make(*args, **kwargs)
        self._add(made)
        return made

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    made_of = inspect.signature(make)
    vars(task)["__signature__"] = made_of.replace(parameters=[own, *made_of.parameters.values()])
    return task


class Graph:
    """A graph in the making: the same content as a file, in Python.

    graph = Graph(name="nightly")
    build = graph.task("build", command=["make"], reruns=1)
    test = graph.task("test", requires=[build], command=["make", "test"])

    name, description, owner, source: about the graph, for people. routing: at most 10 characters. tags: free words.
    failure_policy: what a task that failed for good does to the graph: "block" (the default), "fail-fast", "continue".
    deadline: aware, or RFC 3339 text; past it what is left of the graph is cancelled. max_in_flight: so many of its
    tasks run at a time. priority: of all tasks that name none ("highest", "high", "normal", "low", "lowest").
    stalled_after: it counts as stalled after so many seconds in which nothing moves; on_stalled: "report" or "cancel".
    budget: what it may cost, such as {"amount": 5, "warnAt": 0.8, "onExceeded": "pause"}.
    params: declarations by name, such as {"goal": {"type": "string", "default": "all"}}; {"$param": "goal"} anywhere in
    a task becomes the value that is given when the graph is submitted. notify: where notices of it go, such as
    {"onFinished": {"queue": "builds"}}. As an extension of a graph that runs it has only tasks, groups of these, and
    parameters; the tasks may require labels and groups of that graph.
    """

    def __init__(
        self,
        *,
        name: str = "",
        description: str = "",
        owner: str = "",
        source: str = "",
        routing: str = "",
        tags: Mapping[str, str] | None = None,
        params: Mapping[str, Mapping[str, Any]] | None = None,
        notify: Mapping[str, Any] | None = None,
        failure_policy: str = FailurePolicy.BLOCK.value,
        deadline: datetime | str | None = None,
        max_in_flight: int | None = None,
        priority: str = "",
        stalled_after: float | None = None,
        on_stalled: str = "",
        budget: Mapping[str, Any] | None = None,
    ) -> None:
        self.budget = dict(budget or {})
        self.priority = priority
        self.stalled_after = stalled_after
        self.on_stalled = on_stalled
        self.deadline = moment_text("the graph", "deadline", deadline) or ""
        self.max_in_flight = max_in_flight
        metadata = {"name": name, "description": description, "owner": owner, "source": source}
        self.metadata: dict[str, str] = {key: text for key, text in metadata.items() if text}
        self.routing = routing
        self.tags: dict[str, str] = dict(tags or {})
        self.params: dict[str, dict[str, Any]] = {name: dict(each) for name, each in (params or {}).items()}
        self.notify: dict[str, Any] = copy.deepcopy(dict(notify or {}))
        self.failure_policy = failure_policy
        self._tasks: dict[str, Task] = {}
        self._groups: dict[str, Group] = {}
        self._entered: list[Token[Building | None]] = []

    @property
    def groups(self) -> Mapping[str, Group]:
        """The groups by name: those that were added, and all that are required by a task, or by a group, or in one.

        Raises InvalidInput where two have one name.
        """
        found: dict[str, Group] = {}
        todo = [*self._groups.values(), *(each for task in self._tasks.values() for each in task.groups.values())]
        for group in todo:  # it grows meanwhile
            known = found.get(group.name)
            if known is None:
                found[group.name] = group
                todo += group.groups.values()
            elif known is not group:
                raise InvalidInput(f"two groups are called “{group.name}”")
        return MappingProxyType(found)

    @property
    def callables(self) -> Mapping[str, Function]:
        """The functions that its tasks were made with, by the names of their calls.

        Raises InvalidInput where two have one name.
        """
        found: dict[str, Function] = {}
        for task in self._tasks.values():
            if task.function is not None:
                name = name_of(task.function)
                if found.setdefault(name, task.function) is not task.function:
                    raise InvalidInput(f"two functions are called “{name}”; name one of them with @task(name=…)")
        return MappingProxyType(found)

    @property
    def tasks(self) -> Mapping[str, Task]:
        """The tasks by label, in the order in which they were added."""
        return MappingProxyType(self._tasks)

    task = _adding(Task)

    def add_call(self, call: Function, arguments: Mapping[str, Any], options: Mapping[str, Any]) -> Task:
        """Make a task of a call and add it: its label is the name of the function, with a number from the second on."""
        label = name = name_of(call)
        number = 1
        while label in self._tasks:
            number += 1
            label = f"{name} {number}"
        return self.task(label, call=call, arguments=arguments, **options)

    def __enter__(self) -> Self:
        """Inside the block, calls of functions with `@task` make tasks of this graph."""
        self._entered.append(building.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        building.reset(self._entered.pop())

    def group(
        self,
        name: str,
        *members: Task | Group | str,
        requires: Task | Group | str | Iterable[Task | Group | str] = (),
        max_in_flight: int | None = None,
        active: bool = True,
        success: Mapping[str, Any] | None = None,
        grows: bool = False,
        failure_policy: str | None = None,
    ) -> Group:
        """Make a group and add it, with the tasks in it. The arguments are those of `Group`."""
        made = Group(
            *members,
            name=name,
            requires=requires,
            max_in_flight=max_in_flight,
            active=active,
            success=success,
            grows=grows,
            failure_policy=failure_policy,
        )
        self._add_group(made)
        return made

    def add(self, *things: "Task | Group | Pair | Iterable[Pair]") -> None:
        """Add tasks that were made before; groups, with the tasks in them; and pairs, such as `a.requires(b)` gives.

        Both ends of a pair must be in the graph, or be added by the same call; a group is, if all of its tasks are.
        Raises InvalidInput for one that is not, and for a label or name that another task or group has.
        """
        pairs: list[Pair] = []
        for thing in things:
            if isinstance(thing, Task):
                self._add(thing)
            elif isinstance(thing, Group):
                self._add_group(thing)
            elif isinstance(thing, tuple):
                pairs.append(thing)
            else:
                pairs += thing
        for pair in pairs:
            for end in pair:
                self._check_member(end)
        for dependent, required in pairs:
            dependent.after(required)

    def _add(self, task: Task) -> None:
        if self._tasks.setdefault(task.label, task) is not task:
            raise InvalidInput(f"the graph already has a task “{task.label}”")

    def _add_group(self, group: Group) -> None:
        if self._groups.setdefault(group.name, group) is not group:
            raise InvalidInput(f"the graph already has a group “{group.name}”")
        for member in group.members:
            if isinstance(member, Task):
                self._add(member)
            elif isinstance(member, Group):
                self._add_group(member)

    def _check_member(self, end: Task | Group | str) -> None:
        if isinstance(end, Group):
            for member in end.members:
                self._check_member(member)
            if self._groups.setdefault(end.name, end) is not end:
                raise InvalidInput(f"the graph already has another group “{end.name}”")
        elif isinstance(end, Task):
            if self._tasks.get(end.label) is not end:
                raise InvalidInput(f"task “{end.label}” is not in the graph; add it first, or in the same call")
        elif end not in self._tasks and end not in self._groups:
            raise InvalidInput(f"the graph has no task or group “{end}”")

    @classmethod
    def from_document(cls, document: GraphDocument | Mapping[str, Any]) -> "Graph":
        """A graph from a validated document, or from the value of its JSON. Raises InvalidGraph with all problems."""
        document = document_of(document, given=_OPEN)
        graph = cls(
            routing=document.routing,
            tags=document.tags,
            params=document.params,
            notify=document.notify,
            failure_policy=document.failure_policy,
            deadline=document.deadline or None,
            max_in_flight=document.max_in_flight or None,
            priority=document.priority,
            stalled_after=document.stalled_after or None,
            on_stalled=document.on_stalled,
            budget=document.budget.document() if document.budget is not None else None,
        )
        graph.metadata = dict(document.metadata)
        for label, node in document.tasks.items():
            said = node.timing
            task = graph.task(
                label,
                when=node.when,
                reruns=node.reruns,
                notify=node.notify,
                definition=node.task,
                not_before=said.get("notBefore"),
                retry=said.get("retry"),
                max_run_time=said.get("maxRunTime"),
                pending_timeout=said.get("pendingTimeout"),
                priority=node.priority,
                active=node.active,
            )
            for required in node.requires:
                task.after(required, optional=required in node.optional)
        for name, group in document.groups.items():
            most = group.max_in_flight or None
            success = success_object(group.success) if group.success is not None else None
            graph.group(
                name,
                *group.tasks,
                requires=group.requires,
                max_in_flight=most,
                active=group.active,
                success=success,
                grows=group.grows,
                failure_policy=group.failure_policy or None,
            )
        return graph

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "Graph":
        """A graph from a file: YAML, JSON or TOML, by its ending. Raises InvalidGraph with all problems; OSError."""
        name, file = os.fspath(path), Path(path)
        files, folder = document_files.finder(file.parent), document_files.folder_of(file)
        with explained():
            read = read_document(
                file.read_bytes(), source=name, given=_OPEN, form=form_of(name), files=files, folder=folder
            )
            return cls.from_document(read)

    def to_dict(self) -> dict[str, Any]:
        """The document as JSON values; what has its default value is left out. Nothing is checked."""
        given = {
            "routing": self.routing,
            "metadata": self.metadata,
            "tags": self.tags,
            "deadline": self.deadline,
            "maxInFlight": self.max_in_flight,
            "params": self.params,
            "notify": self.notify,
            "failurePolicy": "" if self.failure_policy == FailurePolicy.BLOCK else str(self.failure_policy),
            "priority": self.priority and str(self.priority),
            "stalledAfter": self.stalled_after,
            "onStalled": self.on_stalled and str(self.on_stalled),
            "budget": self.budget,
        }
        made: dict[str, Any] = {key: copy.deepcopy(each) for key, each in given.items() if each not in (None, "", {})}
        made["tasks"] = {label: task.to_dict() for label, task in self._tasks.items()}
        if groups := self.groups:
            made["groups"] = {name: group.to_dict() for name, group in groups.items()}
        return made

    def to_json(self, *, indent: int | None = 2) -> str:
        """The document as JSON text. Raises InvalidGraph: what is written can be submitted, if values are given."""
        document_of(self, given=_OPEN)
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent)

    def validate(self, kind: Kind = "graph", *, params: Mapping[str, Any] | None = None) -> GraphDocument:
        """The validated document. kind: "extension" where labels of another graph may be required.

        params: values of the parameters. Raises InvalidGraph with every problem at once.
        """
        return document_of(self, kind, Given(params or {}))

    def plan(self, *, params: Mapping[str, Any] | None = None) -> Plan:
        """Size, shape and critical path, before anything is written. Raises InvalidGraph."""
        return plan(self.validate(params=params))

    def to_mermaid(self) -> str:
        """A Mermaid flowchart of the graph. Raises InvalidGraph."""
        return to_mermaid(document_of(self, given=_OPEN))

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks.values())

    def __contains__(self, label: object) -> bool:
        return label in self._tasks

    def __getitem__(self, label: str) -> Task:
        return self._tasks[label]

    def __repr__(self) -> str:
        return f"<Graph {self.metadata.get('name', '')!r}: {len(self._tasks)} tasks>"


GraphLike = Graph | GraphDocument | Mapping[str, Any]
"""What can be submitted: a graph in the making, a validated document, or the value of a document's JSON."""

_OPEN: Final = Given(open=True)


def patterns(where: Mapping[str, str | Sequence[str]] | None) -> dict[str, Sequence[str]] | None:
    """Filters of a journal, each as a sequence."""
    if where is None:
        return None
    return {name: (each,) if isinstance(each, str) else tuple(each) for name, each in where.items()}


def document_of(graph: GraphLike, kind: Kind = "graph", given: Given = NOTHING_GIVEN) -> GraphDocument:
    """The validated document of whatever stands for a graph. Raises InvalidGraph, with the problems as notes."""
    match graph:
        case Graph():
            with explained():
                source = graph.metadata.get("name", "graph")
                return document_from_object(graph.to_dict(), source=source, kind=kind, given=given)
        case GraphDocument():
            if given.values:
                raise InvalidInput("a validated document has its parameters already: hand in a Graph, or JSON values")
            return graph
        case _:
            with explained():
                return document_from_object(graph, kind=kind, given=given)


def has_params(graph: Graph | Mapping[str, Any]) -> bool:
    """Whether a graph says anything of parameters, so that those of the graph it extends matter."""
    content: Mapping[str, Any] = graph.to_dict() if isinstance(graph, Graph) else graph
    return "params" in content or bool(names_in([content.get("tasks")]))


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Let a traceback show what is wrong with a document; the text of InvalidGraph only counts the problems."""
    try:
        yield
    except InvalidGraph as error:
        for problem in error.problems:
            place = f"{problem.source}: " if problem.source else ""
            error.add_note(f"  {place}{problem.pointer or '(document)'}: {problem.message} {problem.remedy}")
        raise
