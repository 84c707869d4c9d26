"""Groups of tasks: which tasks are in one, and what requirements on groups and of groups come to, task by task.

M tasks before N tasks would be M × N edges; `wire` gives M + N, through two ends of a group: `done` waits for all that
is in the group, `start` for all that the group requires. A group that needs k of n has a third, `all`: it waits for the
members, and `done` waits for it. `done` of a group that grows waits for what extensions put into it, too. Unknown names
pass through (they may be those of a graph that is extended). An end is a text that begins with a character which no
label has.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from taskgraph.documents.nodes import GroupNode, TaskNode
from taskgraph.model import limits
from taskgraph.model.states import FailurePolicy, When

DONE: Final = "\x01"
START: Final = "\x02"
ALL: Final = "\x04"

_GATE_WORTH: Final = 2  # edges; a row of its own costs about as much
_NOTHING: Final[Mapping[str, bool]] = {}


@dataclass(frozen=True, slots=True)
class Wiring:
    """What each node waits for, groups taken into account.

    requires: of every task, labels and ends of groups. ends: of every end that is required, the same. optional: of
    tasks that have such, the requirements that need not succeed: none that a group has for its tasks.
    """

    requires: Mapping[str, Sequence[str]]
    ends: Mapping[str, Sequence[str]]
    optional: Mapping[str, AbstractSet[str]] = field(default_factory=dict)

    @property
    def edges(self) -> int:
        return sum(map(len, self.requires.values())) + sum(map(len, self.ends.values()))


def is_end(node: str) -> bool:
    return node.startswith((DONE, START, ALL))


def name_of(node: str) -> str:
    """The label of a task, or the name of the group whose end it is."""
    return node[1:] if is_end(node) else node


def done(name: str, groups: Mapping[str, GroupNode]) -> str:
    """The node that is waited for by who requires this label or group, in `circles`."""
    return DONE + name if name in groups else name


def containers(groups: Mapping[str, GroupNode]) -> dict[str, list[str]]:
    """Label or name of a group -> the groups that name it as one of theirs, by name."""
    found: dict[str, list[str]] = {}
    for name in sorted(groups):
        for member in dict.fromkeys(groups[name].tasks):
            found.setdefault(member, []).append(name)
    return found


def within(groups: Mapping[str, GroupNode], *, at_most: int | None = None) -> dict[str, tuple[str, ...]]:
    """Label or name of a group -> all groups that it is in. at_most: give one more than so many at most."""
    holders = containers(groups)
    found: dict[str, tuple[str, ...]] = {}
    for member in [*_outer_first(groups, holders), *(each for each in holders if each not in groups)]:
        every: set[str] = set()
        for holder in holders.get(member, ()):
            every.add(holder)
            every.update(found.get(holder, ()))
            if at_most is not None and len(every) > at_most:
                break
        inside = sorted(every)
        found[member] = tuple(inside if at_most is None else inside[: at_most + 1])
    return {member: inside for member, inside in found.items() if inside}


def members(groups: Mapping[str, GroupNode]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name in reversed(_outer_first(groups, containers(groups))):
        inside: dict[str, None] = {}
        for member in groups[name].tasks:
            inside.update(dict.fromkeys(found.get(member, (member,))))
        found[name] = tuple(inside)
    return {name: found[name] for name in groups}


def policies(groups: Mapping[str, GroupNode]) -> dict[str, tuple[str, ...]]:
    """Label or name of a group -> the failure policies that the innermost of its groups say, of those that say one.

    A group is one of its own. More than one policy: groups say different things, of which none is in another.
    """
    if not any(group.failure_policy for group in groups.values()):
        return {}
    holders = containers(groups)
    around = within(groups)
    said: dict[str, frozenset[str]] = {}  # name -> groups that say a policy for it, the closest on each way outwards
    of_holders: dict[tuple[str, ...], frozenset[str]] = {}
    for name in [*_outer_first(groups, holders), *(each for each in holders if each not in groups)]:
        key = tuple(holders.get(name, ()))
        if key not in of_holders:
            every = frozenset().union(*(said.get(each, frozenset()) for each in key))
            of_holders[key] = every - {outer for each in every for outer in around.get(each, ())}
        said[name] = frozenset((name,)) if name in groups and groups[name].failure_policy else of_holders[key]
    found = {name: {str(groups[each].failure_policy) for each in saying} for name, saying in said.items() if saying}
    return {name: tuple(sorted(each)) for name, each in found.items()}


def own_policies(groups: Mapping[str, GroupNode], policy: str) -> dict[str, str]:
    """Label or name of a group -> its failure policy, where that is not the one of the graph."""
    return {name: said[0] for name, said in policies(groups).items() if said[0] != policy}


def units(name: str, groups: Mapping[str, GroupNode]) -> tuple[str, ...]:
    """What is counted of a group that needs k of n: labels, and names of groups in it that themselves need k of n."""
    found: dict[str, None] = {}
    todo = list(reversed(groups[name].tasks))
    while todo:
        each = todo.pop()
        if each in groups and groups[each].success is None:
            todo += reversed(groups[each].tasks)
        else:
            found[each] = None
    return tuple(found)


def inner(name: str, groups: Mapping[str, GroupNode]) -> set[str]:
    """All groups in a group."""
    found: set[str] = set()
    todo = [name]
    while todo:
        inside = {each for each in groups[todo.pop()].tasks if each in groups} - found
        found |= inside
        todo += inside
    return found


def _outer_first(groups: Mapping[str, GroupNode], holders: Mapping[str, Sequence[str]]) -> list[str]:
    """Names of groups, each after all groups that it is in."""
    left = {name: len(holders.get(name, ())) for name in groups}
    ready = sorted((name for name, count in left.items() if not count), reverse=True)
    order: list[str] = []
    while ready:
        name = ready.pop()
        order.append(name)
        for member in dict.fromkeys(groups[name].tasks):
            if member in left:
                left[member] -= 1
                if not left[member]:
                    ready.append(member)
    if len(order) != len(groups):
        raise ValueError("groups contain each other; validation must come first")
    return order


def circles(
    requirements: Mapping[str, Sequence[str]], groups: Mapping[str, GroupNode], *, certain: bool = False
) -> dict[str, Sequence[str]]:
    """What each task and each end of each group waits for, to find circles in; tasks come first.

    certain: leave out members that may be open still when their group has succeeded.
    """
    holders = containers(groups)

    def node(name: str) -> str:
        return done(name, groups)

    made: dict[str, Sequence[str]] = {}
    for label, requires in requirements.items():
        made[label] = requires
        if label in holders or not groups.keys().isdisjoint(requires):
            made[label] = [*map(node, requires), *(START + holder for holder in holders.get(label, ()))]
    for name, group in groups.items():
        early = certain and group.success is not None and not group.success.waits
        made[DONE + name] = [] if early else [*map(node, group.tasks)]
        made[START + name] = [*map(node, group.requires), *(START + holder for holder in holders.get(name, ()))]
    return made


def wire(tasks: Mapping[str, TaskNode], groups: Mapping[str, GroupNode]) -> Wiring:
    """What tasks and ends of groups wait for, in any order of keys. Raises ValueError for groups in a circle."""
    if not groups:
        optional: dict[str, AbstractSet[str]] = {label: node.optional for label, node in tasks.items() if node.optional}
        return Wiring({label: node.requires for label, node in tasks.items()}, {}, optional)
    holders = containers(groups)

    def stand_in(name: str) -> str:
        """The node that is waited for: a group of one is that one."""
        while name in groups:
            inside = groups[name].tasks
            if len(inside) != 1 or groups[name].success is not None or groups[name].grows:
                return DONE + name
            name = inside[0]
        return name

    handed: dict[str, Sequence[str]] = {}  # group -> what each of its members waits for, on its account
    ends: dict[str, Sequence[str]] = {}
    for name in _outer_first(groups, holders):
        own = dict.fromkeys(map(stand_in, groups[name].requires))
        for holder in holders.get(name, ()):
            own.update(dict.fromkeys(handed[holder]))
        users = len(set(groups[name].tasks))
        if len(own) * users > len(own) + users + _GATE_WORTH:
            ends[START + name] = tuple(own)
            handed[name] = (START + name,)
        else:
            handed[name] = tuple(own)
    requires: dict[str, Sequence[str]] = {}
    optional = {}
    for label, node in tasks.items():
        if label not in holders and groups.keys().isdisjoint(node.requires):
            requires[label] = node.requires
            if node.optional:
                optional[label] = node.optional
            continue
        wanted = dict.fromkeys(map(stand_in, node.requires))
        inherited = {each for holder in holders.get(label, ()) for each in handed[holder]}
        for holder in holders.get(label, ()):
            wanted.update(dict.fromkeys(handed[holder]))
        requires[label] = tuple(wanted)
        if node.optional:
            must = {stand_in(name) for name in node.requires if name not in node.optional}
            optional[label] = frozenset(map(stand_in, node.optional)) - must - inherited
    todo = [end for wanted in (*requires.values(), *ends.values()) for end in wanted if end.startswith(DONE)]
    ending = {name for name, group in groups.items() if group.success is not None or group.grows}
    # What an extension may require has its end from the start: tasks alone do not say how such a group has ended.
    todo += [DONE + name for name in groups if ending and not ending.isdisjoint({name, *inner(name, groups)})]
    while todo:
        end = todo.pop()
        if end not in ends:
            name = end[1:]
            if groups[name].success is None:
                inside = ends[end] = tuple(dict.fromkeys(map(stand_in, groups[name].tasks)))
            else:
                inside = tuple(DONE + each if each in groups else each for each in units(name, groups))
                ends[end], ends[ALL + name] = (ALL + name,), inside
            todo += [inner for inner in inside if inner.startswith(DONE)]
    return Wiring(requires, {end: ends[end] for end in sorted(ends)}, optional)


def given(groups: Mapping[str, GroupNode]) -> frozenset[str]:
    """Labels of tasks that require something because a group does that they are in."""
    return frozenset(
        label for label, inside in within(groups).items() if any(groups[holder].requires for holder in inside)
    )


class TooManyPairs(ValueError): ...


def logical(wiring: Wiring, *, pairs_max: int | None = None) -> dict[str, Sequence[str]]:
    """Label -> labels of all tasks that it requires, each once. Raises TooManyPairs for more than pairs_max."""
    if not wiring.ends:
        return dict(wiring.requires)
    left = limits.INT_MAX if pairs_max is None else pairs_max

    def spend(pairs: int) -> None:
        nonlocal left
        left -= pairs
        if left < 0:
            raise TooManyPairs

    behind: dict[str, tuple[str, ...]] = {}
    for end in wiring.ends:
        todo = [end]
        while todo:
            here = todo[-1]
            inner = [each for each in wiring.ends[here] if is_end(each) and each not in behind]
            if inner:
                todo += inner
                continue
            todo.pop()
            if here not in behind:
                behind[here] = _expanded(wiring.ends[here], behind)
                spend(len(behind[here]))
    same: dict[tuple[str, ...], Sequence[str]] = {}
    found: dict[str, Sequence[str]] = {}
    for label, wanted in wiring.requires.items():
        if not any(map(is_end, wanted)):
            found[label] = wanted
            continue
        key = tuple(wanted)
        if key not in same:
            same[key] = behind[key[0]] if len(key) == 1 else _expanded(key, behind)
        found[label] = same[key]
        spend(len(same[key]))
    return found


def _expanded(wanted: Sequence[str], behind: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    every: dict[str, None] = {}
    for each in wanted:
        every.update(dict.fromkeys(behind[each] if is_end(each) else (each,)))
    return tuple(every)


class Passing:
    """Which failures are passed on to what requires the task, by the policies of its groups and of the graph.

    A condition, an optional requirement and a group that needs some of its tasks speak of failures that are passed on:
    of one that blocks the graph no other task learns.

    policy: of the graph. outside: whether the tasks and groups pass theirs on that an extension finds in its graph;
    those that are not named follow the graph.
    """

    def __init__(self, groups: Mapping[str, GroupNode], policy: str, outside: Mapping[str, bool] = _NOTHING) -> None:
        self._groups = groups
        self._said = policies(groups)
        self._members = members(groups) if self._said or outside else {}
        self._around = within(groups) if self._said or outside else {}
        self._goes_on = policy == FailurePolicy.CONTINUE
        self._outside = outside

    @property
    def by_graph(self) -> bool:
        """Whether the graph alone says what becomes of a failure."""
        return not self._said and not self._outside

    def not_passed(self, names: Iterable[str]) -> list[str]:
        """Those of these tasks and groups that may fail without passing it on."""
        if self.by_graph:
            return [] if self._goes_on else list(names)
        return [name for name in names if not self._all_pass(name)]

    def _all_pass(self, name: str) -> bool:
        # A group that an extension puts tasks into has others already.
        return self._outside.get(name, True) and all(map(self._passes, self._members.get(name, (name,))))

    def _passes(self, label: str) -> bool:
        said = self._said.get(label)
        return self._outside.get(label, self._goes_on) if said is None else said[0] == FailurePolicy.CONTINUE

    def not_learned(self, label: str, requires: Iterable[str], optional: Iterable[str], when: str) -> list[str]:
        """The requirements whose failure a task would have to learn of, by its condition, and does not."""
        if when == When.ALL_COMPLETED:
            return self.not_passed(sorted(optional))
        handed = (each for name in self._around.get(label, ()) for each in self._groups[name].requires)
        return self.not_passed(dict.fromkeys((*requires, *handed)))

    def not_counted(self, name: str) -> list[str]:
        """The members of a group that has `success` which may fail without being counted."""
        return self.not_passed(units(name, self._groups))
