"""A part of a graph: some of its tasks, with all that these require."""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import replace

from taskgraph.documents.groups import containers
from taskgraph.documents.nodes import GraphDocument, GroupNode
from taskgraph.documents.problems import nearest
from taskgraph.model.errors import InvalidInput


def only(document: GraphDocument, patterns: Sequence[str]) -> GraphDocument:
    """The tasks that the patterns name, or that are in groups that they name, and all that these require.

    `*`, `?` and `[…]` in a pattern are those of file names. Raises InvalidInput for one that names nothing.
    """
    kept = _closed(document, [name for pattern in patterns for name in _named(document, pattern)])
    tasks = {label: node for label, node in document.tasks.items() if label in kept}
    written = {label: task for label, task in document.written.items() if label in kept}
    return replace(document, tasks=tasks, groups=_left(document.groups, kept), written=written)


def _named(document: GraphDocument, pattern: str) -> Sequence[str]:
    names = [*document.tasks, *document.groups]
    found = [pattern] if pattern in names else fnmatch.filter(names, pattern)
    if not found:
        near = nearest(pattern, names)
        question = f"; did you mean {' or '.join(f'“{name}”' for name in near)}?" if near else ""
        raise InvalidInput(f"no task and no group is named “{pattern}”{question}")
    return found


def _closed(document: GraphDocument, names: Sequence[str]) -> set[str]:
    """Labels of tasks by these names or in groups of them, and of all that must end before one of these begins."""
    holders = containers(document.groups)
    todo, seen = list(names), set(names)
    while todo:
        name = todo.pop()
        group = document.groups.get(name)
        wanted = list(document.tasks[name].requires if group is None else group.tasks)
        around = list(holders.get(name, ()))
        for holder in around:  # what a group requires, each task in it does
            wanted += document.groups[holder].requires
            around += [each for each in holders.get(holder, ()) if each not in around]
        if group is not None:
            wanted += group.requires
        todo += [each for each in dict.fromkeys(wanted) if each not in seen]
        seen.update(wanted)
    return {name for name in seen if name in document.tasks}


def _left(groups: Mapping[str, GroupNode], kept: set[str]) -> dict[str, GroupNode]:
    """The groups that have any of these tasks, without the others."""
    left = dict(groups)
    while True:
        inside = {
            name: tuple(each for each in group.tasks if each in kept or each in left) for name, group in left.items()
        }
        if all(inside.values()):
            break
        left = {name: group for name, group in left.items() if inside[name]}
    return {
        name: replace(
            group, tasks=inside[name], requires=tuple(each for each in group.requires if each in kept or each in left)
        )
        for name, group in left.items()
    }
