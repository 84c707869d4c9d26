"""Edits in histories: what somebody wishes for, and what the graph is once it has been granted.

The model is of tasks and of what they require from task to task, as edits say it; it owes nothing to the code under
test. It is brought up to date by the fact in the journal, in the very commit, so that all that must hold after a commit
is held against the graph as it is edited.
"""

import dataclasses
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from taskgraph.documents.edit_document import EditDocument, edit_from_object
from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.model.errors import InvalidGraph
from taskgraph.storage.tables import Change, Insert, Row
from tests.simulation.grouped import members, merged, required
from tests.simulation.invariants import FAILED_FOR_GOOD, hold

OPEN = ("unscheduled", "pending", "failed", "exception")
"""States of tasks that an edit may change."""

SHARE_EDITED = 0.12
SHARE_EDITED_FAILING = 0.25
"""So many histories have edits: any, and those that block."""


class Edits:
    """The edits of one history.

    tasks: label -> node, of all that may ever be in the graph; changed in place. fixed: labels that nobody takes away.
    """

    def __init__(self, tasks: dict[str, TaskNode], documents: Sequence[GraphDocument], fixed: Iterable[str]) -> None:
        self.tasks = tasks
        self.groups = {name: set(inside) for each in documents for name, inside in members(each.groups).items()}
        groups = merged(documents)
        self.required = {name: required(name, groups) for name in groups}  # what a group comes to where it is required
        self.fixed = frozenset(fixed)
        self.wish: EditDocument | None = None
        self.wishes: dict[str, EditDocument] = {}  # by request
        self.made = self.refused = 0
        self.deleted: set[str] = set()

    def draw(self, present: Mapping[str, Row], choice: Callable[[Sequence[Any]], Any], number: int) -> bool:
        """Wish for something; gives whether there is a wish. present: the rows of tasks by label, as they stand.

        Sometimes for what was wished for before, which may have been undone since.
        """
        if self.wishes and not choice((0, 1, 2, 3)):
            self.wish = choice(list(self.wishes.values()))
            return True
        labels = sorted(present)
        open_ones = [each for each in labels if present[each].columns["state"] in OPEN] or labels
        ended = [each for each in open_ones if present[each].columns["state"] in FAILED_FOR_GOOD]
        if ended and choice((True, False)):
            open_ones = ended
        doomed: set[str] = set()
        if choice((True, False)):
            doomed = {choice(open_ones)} - self.fixed
            if choice((True, False)):  # with all that waits for it: this may be granted
                doomed |= self._behind(doomed) & set(present)
        update: dict[str, dict[str, Any]] = {}
        names = [*labels, *(name for name, inside in self.groups.items() if inside & set(labels))]
        for _ in range(choice((2, 1, 1)) if not doomed else choice((1, 0))):
            label = choice(open_ones)
            if label in doomed:
                continue
            said = update.setdefault(label, {})
            what = choice(("requires", "task", "both", "reruns"))
            if what in ("requires", "both"):
                before = [each for each in labels if each < label] if choice((True, True, False)) else labels
                wanted = {choice(before or labels) for _ in range(choice((2, 1, 0)))}
                if choice((True, False, False)) and names != labels:
                    wanted.add(choice(names))
                said["requires"] = sorted(wanted - {label} - doomed)
            if what in ("task", "both"):
                said["task"] = {"payload": {"edited": number}}
            if what == "reruns":
                said["reruns"] = choice((0, 1, 2))
        wish: dict[str, Any] = {"reason": f"number {number}"}  # no two are the same request
        if update:
            wish["update"] = update
        if doomed - self.fixed:
            wish["delete"] = sorted(doomed - self.fixed)
        if len(wish) == 1:
            return False
        try:
            self.wish = edit_from_object(wish)
        except InvalidGraph:  # a circle among those that it updates
            return False
        self.wishes[self.wish.request] = self.wish
        return True

    def _behind(self, labels: Collection[str]) -> set[str]:
        found = set(labels)
        while more := {each for each, node in self.tasks.items() if found & set(node.requires)} - found:
            found |= more
        return found - self.fixed

    def committed(self, changes: Sequence[Change]) -> list[str]:
        """Bring the model up to a commit, before anybody looks at it; gives the labels that it updates."""
        updated: list[str] = []
        for request, labels in edits_made(changes):
            self._grant(self.wishes[request])
            updated += labels
        return updated

    def holds(self, wish: EditDocument) -> bool:
        """Whether the graph is as this edit says, as far as the model goes."""
        gone = {*wish.delete, *(label for name in wish.delete_groups for label in self.groups[name])}
        if not gone.isdisjoint(self.tasks) or not self.tasks.keys() >= wish.updates.keys():
            return False
        made = granted(self.tasks, self.groups, wish, self.required)
        return all(_same(self.tasks[label], made[label]) for label in wish.updates)

    def _grant(self, wish: EditDocument) -> None:
        self.made += 1
        # The model knows no definitions, and not whether a group is required or all that is in it.
        unknown = {"task", "requires"} if self.groups else {"task"}
        known = all(unknown.isdisjoint(each.keys) for each in wish.updates.values())
        hold(not (known and self.holds(wish)), f"an edit was made that changes nothing: {wish.text}")
        made = granted(self.tasks, self.groups, wish, self.required)
        self.deleted |= self.tasks.keys() - made.keys()
        self.tasks.clear()
        self.tasks.update(made)
        for inside in (*self.groups.values(), *self.required.values()):
            inside -= self.deleted


def granted(
    tasks: Mapping[str, TaskNode],
    groups: Mapping[str, Collection[str]],
    wish: EditDocument,
    required: Mapping[str, Collection[str]] | None = None,
) -> dict[str, TaskNode]:
    """The tasks of a graph once an edit of it is made.

    groups: labels of all tasks in each. required: what each comes to where a task requires it, if that is another
    thing: of one that needs k of n its name.
    """
    made = dict(tasks)
    for label, update in wish.updates.items():
        node = made[label]
        if "reruns" in update.keys:
            node = dataclasses.replace(node, reruns=update.node.reruns)
        if "when" in update.keys:
            node = dataclasses.replace(node, when=update.node.when)
        if "requires" in update.keys:
            every = {each for name in update.node.requires for each in (required or groups).get(name, {name})}
            node = dataclasses.replace(node, requires=tuple(sorted(every)), optional=frozenset())
        made[label] = node
    gone = {*wish.delete, *(label for name in wish.delete_groups for label in groups[name])}
    for label in gone:
        made.pop(label, None)  # asked for again, when it is gone
    for label, node in made.items():
        if not gone.isdisjoint(node.requires):
            left = tuple(each for each in node.requires if each not in gone)
            made[label] = dataclasses.replace(node, requires=left, optional=node.optional - gone)
    return made


def _same(one: TaskNode, other: TaskNode) -> bool:
    return dataclasses.replace(one, requires=()) == dataclasses.replace(other, requires=()) and set(
        one.requires
    ) == set(other.requires)


def edits_made(changes: Sequence[Change]) -> list[tuple[str, list[str]]]:
    """The edits that a commit makes: the request of each, and the labels of the tasks that it updates."""
    return [
        (fact["request"], [each["label"] for each in fact.get("updated", ())])
        for change in changes
        if isinstance(change, Insert) and "graph-edited" in str(change.columns.get("kinds", ""))
        for fact in json.loads(str(change.columns["events"]))
        if fact["event"] == "graph-edited"
    ]


def named_by(documents: Iterable[GraphDocument]) -> set[str]:
    """Labels that documents name without holding them, and all that is in groups that they name."""
    found: set[str] = set()
    for document in documents:
        for node in document.tasks.values():
            found.update(node.requires)
        for group in document.groups.values():
            found.update(group.requires)
    return found
