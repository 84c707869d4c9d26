"""Groups in histories: drawn for a document without circles, and what documents with groups come to from task to task.

What is expected is written as the definition of a group says it, and owes nothing to the code under test.
"""

import dataclasses
import math
import random
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

from taskgraph.documents.nodes import GraphDocument, GroupNode, TaskNode
from taskgraph.model import limits
from taskgraph.model.ids import task_id_of
from taskgraph.model.states import When

SHARE_GROUPED = 0.2
"""Of the graphs of several tasks: so many have groups."""


def with_groups(
    document: GraphDocument, rng: random.Random, *, prefix: str = "g", base: Iterable[str] = ()
) -> GraphDocument:
    """The same tasks, with groups of them; each group and each task requires only what comes before it.

    base: names of the graph that is extended, which come before everything.
    """
    groups: dict[str, GroupNode] = {}
    first: dict[str, int] = dict.fromkeys(base, -1)  # name -> place of the first task in it, and of the last
    last: dict[str, int] = dict.fromkeys(base, -1)
    own: list[str] = []
    tasks: dict[str, TaskNode] = {}
    for place, (label, node) in enumerate(document.tasks.items()):
        more = [name for name in (*groups, *base) if last[name] < place and rng.random() < 0.4]
        tasks[label] = dataclasses.replace(node, requires=tuple(dict.fromkeys([*node.requires, *more])))
        first[label] = last[label] = place
        own.append(label)
        if rng.random() < 0.6 and len(groups) < limits.GROUPS_OF_TASK_MAX:
            name = f"{prefix}{place}"
            inside = tuple(rng.sample(own, rng.randrange(1, min(4, len(own)) + 1)))
            first[name], last[name] = min(first[each] for each in inside), max(last[each] for each in inside)
            before = [each for each in first if last[each] < first[name] and rng.random() < 0.3]
            groups[name] = GroupNode(name, inside, tuple(before))
            own.append(name)
    return dataclasses.replace(document, tasks=tasks, groups=groups)


@dataclasses.dataclass(frozen=True)
class Counted:
    """A group that needs so many of its units, which are labels, and names of such groups."""

    needs: int
    waits: bool
    units: tuple[str, ...]

    def end(self, end_of: Callable[[str], str]) -> str:
        """How the group has ended, by how its units have (one that has not: any other text); "" for not yet."""
        ends = [end_of(each) for each in self.units]
        good = ends.count("completed")
        bad = sum(end in ("failed", "exception", "skipped") for end in ends)
        if self.waits and good + bad < len(ends):
            return ""
        return "completed" if good >= self.needs else "failed" if len(ends) - bad < self.needs else ""


def merged(documents: Iterable[GraphDocument]) -> dict[str, GroupNode]:
    """The groups of a graph and its extensions, those that grow with all that is put into them."""
    groups: dict[str, GroupNode] = {}
    for document in documents:
        for name, group in document.groups.items():
            before = groups.get(name)
            tasks = tuple(dict.fromkeys((*before.tasks, *group.tasks))) if before is not None else ()
            groups[name] = dataclasses.replace(before, tasks=tasks) if before is not None else group
    return groups


def counted_groups(documents: Iterable[GraphDocument]) -> dict[str, Counted]:
    groups = merged(documents)
    found: dict[str, Counted] = {}
    for name, group in groups.items():
        if group.success is not None:
            units = sorted(set().union(*(required(each, groups) for each in group.tasks)))
            share = group.success.at_least
            needs = share if isinstance(share, int) else math.ceil(len(units) * Fraction(share.rstrip("%")) / 100)
            found[name] = Counted(needs, group.success.waits, tuple(units))
    return found


def required(name: str, groups: Mapping[str, GroupNode]) -> set[str]:
    """What a requirement comes to: labels, and names of groups that need k of n."""
    if name not in groups or groups[name].success is not None:
        return {name}
    return set().union(*(required(each, groups) for each in groups[name].tasks))


def logical_tasks(documents: Iterable[GraphDocument]) -> dict[str, TaskNode]:
    """The tasks of a graph and its extensions, each requiring tasks, and groups that need k of n."""
    documents = list(documents)
    tasks = {label: node for document in documents for label, node in document.tasks.items()}
    groups = merged(documents)
    if not groups:
        return tasks
    inside = {name: _tasks_of(name, groups) for name in groups}
    handed: dict[str, set[str]] = {label: set() for label in tasks}
    for name, group in groups.items():
        for label in inside[name]:
            for each in group.requires:
                handed[label] |= required(each, groups)
    made: dict[str, TaskNode] = {}
    for label, node in tasks.items():
        must, may = set(handed[label]), set[str]()
        for each in node.requires:
            (may if each in node.optional else must).update(required(each, groups))
        made[label] = dataclasses.replace(node, requires=tuple(sorted(must | may)), optional=frozenset(may - must))
    return made


def _tasks_of(name: str, groups: Mapping[str, GroupNode]) -> set[str]:
    if name not in groups:
        return {name}
    return set().union(*(_tasks_of(each, groups) for each in groups[name].tasks))


def without(document: GraphDocument, gone: frozenset[str]) -> GraphDocument:
    """The document without some tasks and groups: groups that are left empty go as well."""
    groups: dict[str, GroupNode] = dict(document.groups)
    while empty := {name for name, group in groups.items() if name in gone or gone.issuperset(group.tasks)}:
        gone |= empty
        groups = {name: group for name, group in groups.items() if name not in empty}

    def left(node: TaskNode) -> TaskNode:
        requires = tuple(each for each in node.requires if each not in gone)
        when = node.when if requires else When.ALL_COMPLETED.value
        return dataclasses.replace(node, requires=requires, when=when, optional=node.optional - gone)

    return dataclasses.replace(
        document,
        tasks={label: left(node) for label, node in document.tasks.items() if label not in gone},
        groups={
            name: dataclasses.replace(
                group,
                tasks=tuple(each for each in group.tasks if each not in gone),
                requires=tuple(each for each in group.requires if each not in gone),
            )
            for name, group in groups.items()
        },
    )


def limited_in(
    graph_id: str, documents: Iterable[GraphDocument], labels: Iterable[str], *, anew: bool = False
) -> dict[str, frozenset[str]]:
    """Key of the row of each limit -> taskIds of all that is under it, by the documents alone.

    labels: of all tasks. anew: also of the limits that the graph, and groups of it, may be given later.
    """
    documents = list(documents)
    under: dict[str, frozenset[str]] = {}
    if anew or any(document.max_in_flight for document in documents):
        under["limit:graph"] = frozenset(task_id_of(graph_id, label) for label in labels)
    groups = merged(documents)
    for name, group in groups.items():
        if group.max_in_flight or anew:
            inside = _tasks_of(name, groups)
            key = f"limit:group-{task_id_of(graph_id, name)}"
            under[key] = frozenset(task_id_of(graph_id, label) for label in inside)
    return under


def apart(documents: Iterable[GraphDocument], policy: str) -> frozenset[str]:
    """Labels of the tasks that do not follow the graph in whether their failure is passed on.

    The innermost of the groups around a task that say something counts. policy: of the graph.
    """
    groups = merged(documents)
    inside = {name: _tasks_of(name, groups) for name in groups}
    found: set[str] = set()
    for label in set().union(*inside.values()):
        saying = [each for each in inside if label in inside[each] and groups[each].failure_policy]
        inner = [each for each in saying if not any(_is_around(each, other, groups) for other in saying)]
        said = {groups[each].failure_policy for each in inner}
        if said and ("continue" in said) != (policy == "continue"):
            found.add(label)
    return frozenset(found)


def _is_around(outer: str, name: str, groups: Mapping[str, GroupNode]) -> bool:
    return any(each == name or (each in groups and _is_around(each, name, groups)) for each in groups[outer].tasks)


def members(groups: Mapping[str, GroupNode]) -> dict[str, frozenset[str]]:
    """Group -> labels of all of its tasks, those of its groups among them."""
    return {name: frozenset(_tasks_of(name, groups)) for name in groups}
