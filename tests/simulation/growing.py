"""Histories of groups that grow: extensions that put tasks into them, at any time, with faults, pauses and reruns."""

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from taskgraph.documents.canonical import content_hash
from taskgraph.documents.nodes import GraphDocument, GroupNode, TaskNode
from taskgraph.model.ids import slugid_from
from taskgraph.model.states import FailurePolicy
from taskgraph.storage.tables import Change
from tests.simulation.bounds import CHUNKED, FEW_LEAVES, NARROWER, RULE_BY_RULE
from tests.simulation.grouped import logical_tasks, members, with_groups
from tests.simulation.histories import again, crowding, pausing, random_document, with_conditions
from tests.simulation.world import Faults, World

_RATES: Final = (0.0, 0.0, 0.01, 0.05, 0.1)
_COMMIT_ROWS: Final = 10  # of an accept: request, graph, fact, two joins, join, piece, what that replaces, two groups


class GrowingWorld(World):
    """A history in which tasks wait for what is put into a group from the moment on at which that is accepted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.accepted: set[int] = set()
        self.refused: set[int] = set()
        self._requests = {
            f"request:{slugid_from(bytes.fromhex(content_hash(each))[:16])}": number
            for number, each in enumerate(self.extensions)
        }
        self._know()

    def _know(self) -> None:
        growing = {name for name, group in self.document.groups.items() if group.grows}
        known = [self.document]
        for number, each in enumerate(self.extensions):
            groups = {name: group for name, group in each.groups.items() if name not in growing}
            known.append(each if number in self.accepted else dataclasses.replace(each, groups=groups))
        self.tasks = dict(logical_tasks(known))
        self.invariants.edited(self.tasks, ())
        if self.pauses:
            self.invariants.members = members(self._all_groups())

    def committed(self, partition: str, changes: Sequence[Change]) -> None:
        rows = self.tables.partitions.get(partition, {})
        states = {
            number: str(rows[each.key].columns["state"])
            for each in changes
            if partition == self.graph_id and (number := self._requests.get(each.key, -1)) >= 0
        }
        self.refused |= {number for number, state in states.items() if state == "refused"}
        if new := {number for number, state in states.items() if state in ("accepted", "done")} - self.accepted:
            self.accepted |= new
            self._know()
        super().committed(partition, changes)


def growing(seed: int) -> GrowingWorld:
    """A graph with a group that grows, which later tasks require, and extensions that put tasks into it."""
    rng = random.Random(seed * 53 + 31)
    tasks = dict(random_document(rng, rng.randrange(2, 5), density=0.4, reruns_max=1).tasks)
    inside = tuple(rng.sample(list(tasks), rng.randrange(1, min(3, len(tasks)) + 1)))
    groups = {"g": GroupNode("g", inside, grows=True)}
    if rng.random() < 0.5:
        groups["outer"] = GroupNode("outer", ("g", "beside") if rng.random() < 0.5 else ("g",))
        if "beside" in groups["outer"].tasks:
            tasks["beside"] = TaskNode("beside", (), 0)
    before = tuple(tasks)
    for number in range(rng.randrange(3)):
        required = rng.sample([*groups, *before], rng.randrange(1, 3))
        tasks[f"after{number}"] = TaskNode(f"after{number}", tuple(required), rng.randrange(2))
    document = dataclasses.replace(GraphDocument(tasks), groups=groups)
    extensions = [_extension(rng, number, before) for number in range(rng.randrange(1, 4))]
    if rng.random() < 0.4:
        document = dataclasses.replace(with_conditions(document, rng), failure_policy=FailurePolicy.CONTINUE.value)
        extensions = [with_conditions(each, rng) for each in extensions]
    labels = [*tasks, *(label for each in extensions for label in each.tasks)]
    fragile = rng.choice((0.0, 0.0, 0.2, 0.4))
    fails = {label: rng.randrange(3) for label in labels if rng.random() < fragile}
    bounds: Mapping[str, Any] = rng.choice(({}, FEW_LEAVES, NARROWER, CHUNKED, {**CHUNKED, **NARROWER}))
    faults = Faults(*(rng.choice(_RATES) for _ in range(6)))
    by_rules: dict[str, Any] = dict(RULE_BY_RULE) if seed % 2 else {}
    if "COMMIT_CHANGES_MAX" in bounds:
        by_rules["COMMIT_CHANGES_MAX"] = _COMMIT_ROWS
    reruns = rng.random() < 0.7 and document.failure_policy == FailurePolicy.BLOCK
    world = GrowingWorld(seed, document, fails, extensions, faults, reruns, bounds={**bounds, **by_rules})
    if rng.random() < 0.15:
        world = dataclasses.replace(world, cancel="graph")
    if rng.random() < 0.3:
        world = dataclasses.replace(world, pauses=rng.randrange(1, 3))
    changed = again(crowding(pausing(world)))
    assert isinstance(changed, GrowingWorld)
    return changed


def _extension(rng: random.Random, number: int, base: tuple[str, ...]) -> GraphDocument:
    """Tasks, some of which go into the group; what requires the group stands beside it."""
    prefix = f"x{number}_"
    made = random_document(rng, rng.randrange(1, 5), prefix=prefix, base=base, density=0.4, reruns_max=1)
    if rng.random() < 0.3:
        made = with_groups(made, rng, prefix=f"{prefix}g")
    names = [*made.tasks, *made.groups]
    into = tuple(rng.sample(names, rng.randrange(1, len(names) + 1)))
    tasks = dict(made.tasks)
    if rng.random() < 0.3:
        tasks[f"{prefix}late"] = TaskNode(f"{prefix}late", ("g",), 0)
    return dataclasses.replace(made, tasks=tasks, groups={**made.groups, "g": GroupNode("g", into)})


def growing_and_rerun(seed: int) -> GrowingWorld:
    """The same, and what has ended is rerun by hand again and again."""
    return dataclasses.replace(growing(seed), again=4, cancel="", fails={}, reruns=False)
