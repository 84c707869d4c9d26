"""Histories of groups that need k of n: drawn from one seed, in graphs that go on after failures."""

import dataclasses
import random
from collections.abc import Mapping
from typing import Any, Final

from taskgraph.documents import groups as grouping
from taskgraph.documents.nodes import GraphDocument, GroupNode, Success
from taskgraph.model.states import FailurePolicy
from tests.simulation.bounds import CHUNKED, FEW_LEAVES, NARROWER, RULE_BY_RULE
from tests.simulation.grouped import with_groups
from tests.simulation.histories import EVERY_RUN, again, crowding, random_document, with_conditions
from tests.simulation.world import Faults, World

_RATES: Final = (0.0, 0.0, 0.01, 0.05, 0.1)
_COMMIT_ROWS: Final = 14  # one end of a member: its task, the graph, the fact, dependents, a piece, tally and decision


def with_success(document: GraphDocument, rng: random.Random) -> GraphDocument:
    """The same groups, most of which need k of n; each task is counted by one of them at most."""
    groups: dict[str, GroupNode] = dict(document.groups)
    counted: set[str] = set()
    for name in groups:
        members = len(grouping.units(name, groups))
        needs = rng.choice((1, rng.randrange(1, members + 1), members, "50%", "75%"))
        success = Success(needs, rng.random() < 0.3, rng.random() < 0.4)
        tried = {**groups, name: dataclasses.replace(groups[name], success=success)}
        units = {each: grouping.units(each, tried) for each, group in tried.items() if group.success is not None}
        every = [each for inside in units.values() for each in inside]
        if rng.random() < 0.85 and len(every) == len(set(every)):
            counted.update(units[name])
            groups = tried
    return dataclasses.replace(document, groups=groups)


def counted(seed: int) -> World:
    """A graph with such groups, and sometimes an extension by more of them."""
    rng = random.Random(seed * 47 + 29)

    def drawn(size: int, prefix: str, base: tuple[str, ...] = ()) -> GraphDocument:
        tasks = random_document(rng, size, prefix=prefix, base=base, density=rng.choice((0.0, 0.1, 0.3)), reruns_max=1)
        return with_conditions(with_success(with_groups(tasks, rng, prefix=f"{prefix}g", base=base), rng), rng)

    document = drawn(rng.randrange(3, 8), "t")
    document = dataclasses.replace(document, failure_policy=FailurePolicy.CONTINUE.value)
    extensions: list[GraphDocument] = []
    if rng.random() < 0.25:
        names = (*document.tasks, *document.groups)
        extensions.append(drawn(rng.randrange(2, 5), "x0_", tuple(rng.sample(names, 2))))
    labels = [*document.tasks, *(label for extension in extensions for label in extension.tasks)]
    fragile = rng.choice((0.0, 0.3, 0.5))
    fails = {label: rng.randrange(3) for label in labels if rng.random() < fragile}
    bounds: Mapping[str, Any] = rng.choice(({}, FEW_LEAVES, NARROWER, {**CHUNKED, **NARROWER}))
    more = {"COMMIT_CHANGES_MAX": _COMMIT_ROWS} if "COMMIT_CHANGES_MAX" in bounds else {}
    rule_by_rule = RULE_BY_RULE if seed % 2 else {}
    faults = Faults(*(rng.choice(_RATES) for _ in range(6)))
    world = World(seed, document, fails, extensions, faults, False, bounds={**bounds, **more, **rule_by_rule})
    if rng.random() < 0.2:
        world = dataclasses.replace(world, cancel="graph")
    return again(crowding(world))


def counted_and_rerun(seed: int) -> World:
    """The same, and what has ended is rerun by hand again and again; who fails for good there fails in every run."""
    world = counted(seed)
    fails = {label: EVERY_RUN if times > world.tasks[label].reruns else times for label, times in world.fails.items()}
    return dataclasses.replace(world, again=4, cancel="", fails=fails)
