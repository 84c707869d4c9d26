"""Histories of graphs whose groups say what becomes of a failure: some are passed on, and others block the graph."""

import dataclasses
import random
from collections.abc import Mapping
from typing import Any, Final

from taskgraph.documents import groups as grouping
from taskgraph.documents.groups import Passing
from taskgraph.documents.nodes import GraphDocument, GroupNode
from taskgraph.model.states import When
from tests.simulation.bounds import CHUNKED, FEW_LEAVES, NARROWER, RULE_BY_RULE
from tests.simulation.counted import with_success
from tests.simulation.grouped import with_groups
from tests.simulation.histories import EVERY_RUN, RATES, crowding, limited, random_document, ranked, with_conditions
from tests.simulation.world import Faults, World

_COMMIT_ROWS: Final = 14  # as in `counted`


def with_policies(document: GraphDocument, rng: random.Random) -> GraphDocument:
    """The same groups, some of which have a failure policy: of those around a task one is the innermost."""
    groups: dict[str, GroupNode] = dict(document.groups)
    for name in groups:
        if rng.random() < 0.6:
            said = rng.choice(("continue", "block"))
            tried = {**groups, name: dataclasses.replace(groups[name], failure_policy=said)}
            if all(len(each) == 1 for each in grouping.policies(tried).values()):
                groups = tried
    return dataclasses.replace(document, groups=groups)


def of_passed_on(document: GraphDocument, policy: str, outside: Mapping[str, bool]) -> GraphDocument:
    """The same without what speaks of failures that are not passed on. outside: see `Passing`."""
    groups = dict(document.groups)
    for name, group in groups.items():
        if group.success is not None and Passing(groups, policy, outside).not_counted(name):
            groups[name] = dataclasses.replace(group, success=None)
    passing = Passing(groups, policy, outside)
    tasks = dict(document.tasks)
    for label, node in tasks.items():
        if passing.not_learned(label, node.requires, node.optional, node.when):
            node = dataclasses.replace(node, when=When.ALL_COMPLETED.value)
        optional = node.optional.difference(passing.not_passed(sorted(node.optional)))
        tasks[label] = dataclasses.replace(node, optional=optional)
    return dataclasses.replace(document, tasks=tasks, groups=groups)


def policed(seed: int) -> World:
    """A graph with such groups, and sometimes an extension by more of them, reruns, and somebody who cancels."""
    rng = random.Random(seed * 53 + 31)
    policy = rng.choice(("block", "block", "continue"))

    def drawn(size: int, prefix: str, base: Mapping[str, bool] | None = None) -> GraphDocument:
        named = tuple(base or ())
        tasks = random_document(rng, size, prefix=prefix, base=named, density=rng.choice((0.1, 0.3, 0.5)), reruns_max=1)
        document = with_policies(with_groups(tasks, rng, prefix=f"{prefix}g", base=named), rng)
        document = with_success(document, rng) if rng.random() < 0.3 else document
        return of_passed_on(with_conditions(document, rng), policy, base or {})

    document = dataclasses.replace(drawn(rng.randrange(3, 8), "t"), failure_policy=policy)
    extensions: list[GraphDocument] = []
    if rng.random() < 0.3:
        passing = Passing(document.groups, policy)
        names = rng.sample((*document.tasks, *document.groups), 2)
        extensions.append(drawn(rng.randrange(2, 5), "x0_", {each: not passing.not_passed([each]) for each in names}))
    labels = [*document.tasks, *(label for extension in extensions for label in extension.tasks)]
    fragile = rng.choice((0.0, 0.3, 0.5))
    fails = {label: rng.randrange(4) for label in labels if rng.random() < fragile}
    bounds: Mapping[str, Any] = rng.choice(({}, FEW_LEAVES, NARROWER, {**CHUNKED, **NARROWER}))
    more = {"COMMIT_CHANGES_MAX": _COMMIT_ROWS} if "COMMIT_CHANGES_MAX" in bounds else {}
    rule_by_rule = RULE_BY_RULE if seed % 2 else {}
    faults = Faults(*(rng.choice(RATES) for _ in range(6)))
    world = World(seed, document, fails, extensions, faults, False, bounds={**bounds, **more, **rule_by_rule})
    cancel = rng.choice(("", "", "task", "task", "graph"))
    reruns = rng.random() < 0.5 and cancel != "graph"
    world = dataclasses.replace(world, cancel=cancel, reruns=reruns)
    return crowding(_beside(world, rng))


def _beside(world: World, rng: random.Random) -> World:
    """The same, and in many of them something else goes on: pauses, limits, levels, plans, or edits."""
    match rng.randrange(8):
        case 0:
            return dataclasses.replace(world, pauses=rng.choice((1, 2)))
        case 1:
            return limited(world, rng)
        case 2:
            return ranked(world, rng)
        case 3:
            return dataclasses.replace(world, planned=0.7)
        case 4 if not world.extensions:
            return dataclasses.replace(world, edits=2)
    return world


def policed_and_rerun(seed: int) -> World:
    """The same, and what has ended is rerun by hand again and again; who fails for good there fails in every run."""
    world = policed(seed)
    fails = {label: EVERY_RUN if times > world.tasks[label].reruns else times for label, times in world.fails.items()}
    cancel = "" if world.cancel == "graph" else world.cancel
    return dataclasses.replace(world, again=4, reruns=False, cancel=cancel, fails=fails)
