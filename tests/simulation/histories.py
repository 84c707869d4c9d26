"""Which histories are played: documents, extensions, outcomes and fault rates, all drawn from one seed.

The rates differ from seed to seed, and many are zero: a fault that is everywhere hides those that it cuts short.
"""

import dataclasses
import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.model import limits
from taskgraph.model.priorities import LEVELS
from taskgraph.model.states import FailurePolicy, When
from tests.simulation.bounds import CHUNKED, FEW_LEAVES, IN_SEVERAL, NARROWER, RULE_BY_RULE, TIGHT, TIGHT_FAILING
from tests.simulation.edited import SHARE_EDITED, SHARE_EDITED_FAILING
from tests.simulation.far import JUMPS, ROLES, SHARE_FAR, SIZES, Far
from tests.simulation.grouped import SHARE_GROUPED, with_groups
from tests.simulation.world import EPOCH, Faults, World

PROFILES: Final = {
    "tiny": "1 to 3 tasks, some 50 storage calls: as many histories as can be",
    "small": "a few tasks and extensions",
    "mixed": "small ones, wide ones, and some of dozens of tasks",
}
"""Profile -> what its histories are like."""

FORGETFUL: Final = {"READ_ALONE_MAX": 1, "READ_PAGE_WORTH": 1, "CACHED_ROWS_MAX": 4}
"""Rows are read by pages even where there are few, and hardly kept."""

OFTEN: Final = {"REDISPATCH_SECONDS": 30.0}
"""What went unheard is said again in the first sweep after it, so that fewer are needed."""

SHARE_TIMED: Final = 0.3
TIMED_TASKS_MAX: Final = 12
"""Of the graphs of so many tasks at most: so many have tasks that say something of time."""

SHARE_GOING_ON: Final = 0.25
"""Of the graphs of several tasks: so many go on after failures."""

SHARE_LIMITED: Final = 0.3
"""Of all graphs: so many have limits on tasks in flight."""

SHARE_RANKED: Final = 0.1
"""Of all graphs: so many have tasks with priorities."""

SHARE_AGAIN: Final = 0.2
"""Of all graphs: in so many tasks that have ended are rerun."""

SHARE_PLANNED: Final = 0.4
"""Of the graphs for which something is asked by hand: in so many it is planned first."""

EVERY_RUN: Final = 1_000_000

LATE: Final = (0.0, 0.0, 0.1, 0.4)
"""Share of the answers that come late."""

DIRECT: Final = (0.0, 0.4, 0.4, 1.0)
"""Share of the work that is reported by who does it."""

RATES: Final = (0.0, 0.0, 0.01, 0.05, 0.1)


def random_document(
    rng: random.Random,
    size: int,
    *,
    prefix: str = "t",
    base: Sequence[str] = (),
    density: float = 0.3,
    reruns_max: int = 0,
) -> GraphDocument:
    """Tasks that require any earlier one, or any of `base`, with a probability of `density`."""
    tasks: dict[str, TaskNode] = {}
    for number in range(size):
        label = f"{prefix}{number}"
        requires = tuple(other for other in (*tasks, *base) if rng.random() < density)
        tasks[label] = TaskNode(label, requires, rng.randrange(reruns_max + 1))
    return GraphDocument(tasks)


def blocks(world: World) -> bool:
    """Whether a task fails for good, and its graph waits for it."""
    fails = world.fails.items()
    return not world.goes_on and any(count > world.tasks[label].reruns for label, count in fails)


def with_conditions(document: GraphDocument, rng: random.Random) -> GraphDocument:
    """The same tasks, with conditions and optional requirements."""
    tasks = {}
    for label, node in document.tasks.items():
        optional = frozenset(each for each in node.requires if rng.random() < 0.2)
        when = str(rng.choice(list(When))) if node.requires and rng.random() < 0.6 else node.when
        if when == When.ANY_FAILED and len(optional) == len(node.requires):
            optional = frozenset()
        tasks[label] = dataclasses.replace(node, when=when, optional=optional)
    return dataclasses.replace(document, tasks=tasks)


def going_on(world: World) -> World:
    """The history, sometimes with conditions; drawn apart, so that the others stay what they were."""
    rng = random.Random(world.seed * 11 + 5)
    if rng.random() >= SHARE_GOING_ON or len(world.tasks) < 2:
        return world
    policy = FailurePolicy.CONTINUE.value
    document = dataclasses.replace(with_conditions(world.document, rng), failure_policy=policy)
    extensions = [with_conditions(each, rng) for each in world.extensions]
    labels = [*document.tasks, *(label for each in extensions for label in each.tasks)]
    fails = {label: rng.randrange(4) for label in labels if rng.random() < 0.4}
    bounds = dict(world.bounds)
    if bounds.get("COMMIT_CHANGES_MAX") == TIGHT["COMMIT_CHANGES_MAX"]:
        bounds |= TIGHT_FAILING
    return dataclasses.replace(
        world, document=document, extensions=extensions, fails=fails, bounds=bounds, reruns=False
    )


def wide_document(width: int, task: Mapping[str, Any] | None = None) -> GraphDocument:
    """One task before many before one: fan-out and fan-in past what one row takes. task: the definition of each."""
    middle = [f"m{number}" for number in range(width)]
    requires: dict[str, tuple[str, ...]] = {"a": (), **dict.fromkeys(middle, ("a",)), "z": tuple(middle)}
    return GraphDocument({label: TaskNode(label, wanted, 0, task or {}) for label, wanted in requires.items()})


def timed(world: World, share: float = SHARE_TIMED) -> World:
    """The history, sometimes with tasks that wait, are tried again, or are too late; drawn apart, as above."""
    rng = random.Random(world.seed * 17 + 9)
    if rng.random() >= share or len(world.tasks) > TIMED_TASKS_MAX:
        return world
    late = not world.goes_on and not world.extensions and rng.random() < 0.5
    temporary: dict[str, int] = {}

    def with_times(document: GraphDocument) -> GraphDocument:
        tasks = {}
        for label, node in document.tasks.items():
            said: dict[str, Any] = {}
            task = dict(node.task)
            if rng.random() < 0.3:
                said["notBefore"] = _moment(rng.choice((5, 40, 100)))
            if rng.random() < 0.4:
                limit = rng.choice((0, 1, 2)) if late else 3
                temporary[label] = rng.choice((1, 2, 3))
                said["retry"] = {"limit": limit, "delay": rng.choice((1, 30)), "max": 60}
            if late and rng.random() < 0.4:
                task["deadline"] = _moment(rng.choice((1, 50, 150)))
            if late and rng.random() < 0.2:
                said["pendingTimeout"] = rng.choice((50, 200))
            tasks[label] = dataclasses.replace(node, task=task, timing=said)
        return dataclasses.replace(document, tasks=tasks)

    document = with_times(world.document)
    extensions = [with_times(each) for each in world.extensions]
    return dataclasses.replace(world, document=document, extensions=extensions, temporary=temporary)


def _moment(seconds: float) -> str:
    return (EPOCH + timedelta(seconds=seconds)).isoformat()


def world_of(seed: int, *, profile: str = "mixed", small: bool = False) -> World:
    """The history of a seed. profile: see PROFILES; small: the profile of that name."""
    profile = "small" if small else profile
    world = grouped(tiny_world(seed) if profile == "tiny" else _world(seed, small=profile == "small"))
    return planning(
        again(far_off(crowding(ranking(editing(limiting(extending(pausing(cancelling(timed(going_on(world)))))))))))
    )


def grouped(world: World) -> World:
    """The history, sometimes with groups; drawn apart, so that the others stay what they were."""
    rng = random.Random(world.seed * 13 + 7)
    if rng.random() >= SHARE_GROUPED or len(world.tasks) < 2:
        return world
    document = with_groups(world.document, rng)
    base = (*document.tasks, *document.groups)
    extensions = [
        with_groups(each, rng, prefix=f"x{number}_g", base=rng.sample(base, min(3, len(base))))
        for number, each in enumerate(world.extensions)
    ]
    return dataclasses.replace(world, document=document, extensions=extensions)


def cancelling(world: World) -> World:
    """The same, and in some of them somebody cancels: mostly the graph."""
    rng = random.Random(world.seed * 7 + 6)
    if rng.random() >= 0.2:
        return world
    what = rng.choice(("graph", "graph", "graph", "terminate", "task"))
    if what == "task" and world.goes_on:
        what = "graph"  # `expected` says how a graph ends of which nobody is cancelled alone
    return dataclasses.replace(world, cancel=what)


def pausing(world: World) -> World:
    """The same, and in some of them the graph, a group or a task is held back for a while."""
    rng = random.Random(world.seed * 7 + 8)
    grouped = any(each.groups for each in (world.document, *world.extensions))
    world = (
        dataclasses.replace(world, pauses=rng.choice((1, 2, 3))) if rng.random() < (0.3 if grouped else 0.13) else world
    )
    return inactive(world, rng) if world.pauses else world


def inactive(world: World, rng: random.Random) -> World:
    """The same, and one of its groups, or of those that an extension brings in, comes in inactive."""
    documents = [world.document, *world.extensions]
    grouped = [number for number, each in enumerate(documents) if each.groups]
    if not grouped:
        return world
    number = rng.choice(grouped)
    groups = dict(documents[number].groups)
    name = rng.choice(sorted(groups))
    groups[name] = dataclasses.replace(groups[name], active=False)
    documents[number] = dataclasses.replace(documents[number], groups=groups)
    return dataclasses.replace(world, document=documents[0], extensions=documents[1:])


def extending(world: World) -> World:
    """The same, and some are extended as they are blocked, or while they are paused; drawn apart, as above."""
    rng = random.Random(world.seed * 31 + 13)
    when = rng.choice(("", "", "blocked", "paused"))
    if not world.extensions or not when or (when == "blocked" and world.goes_on):
        return world
    if when == "paused":
        return dataclasses.replace(world, extend_when=when, pauses=world.pauses or 1)
    label, node = rng.choice(list(world.document.tasks.items()))
    return dataclasses.replace(world, extend_when=when, fails={label: node.reruns + 1, **world.fails})


def limiting(world: World) -> World:
    """The same, and some have limits on tasks in flight, which somebody may change; drawn apart, as above."""
    rng = random.Random(world.seed * 19 + 4)
    if rng.random() >= SHARE_LIMITED:
        return world
    return limited(world, rng)


def ranking(world: World) -> World:
    """The same, and in some of them tasks have priorities; drawn apart, as above."""
    rng = random.Random(world.seed * 23 + 3)
    return ranked(world, rng) if rng.random() < SHARE_RANKED else world


def crowding(world: World) -> World:
    """The same, and in many of them answers come late, or few processes do everything, or every worker has a desk."""
    rng = random.Random(world.seed * 29 + 11)
    faults = dataclasses.replace(world.faults, late=rng.choice(LATE))
    return dataclasses.replace(world, faults=faults, processes=rng.choice((1, 1, 2, 3)), direct=rng.choice(DIRECT))


def far_off(world: World) -> World:
    """The history, sometimes with clocks that are far off; drawn apart, so that the others stay what they were.

    A time that a document names counts by the clock of whoever decides, so none of these has a deadline, and where one
    has a `notBefore`, clocks are off by an hour at most, and are right in the end.
    """
    rng = random.Random(world.seed * 37 + 17)
    if rng.random() >= SHARE_FAR or world.has_limits:
        return world
    named = any("notBefore" in node.timing for node in world.tasks.values())
    roles = tuple(role for role in ROLES if rng.random() < 0.5) or (rng.choice(ROLES),)
    sizes = rng.choice(SIZES[:2] if named else SIZES)
    far = Far(roles, sizes, rng.choice(JUMPS), stays=not named and rng.random() < 0.3)
    return dataclasses.replace(world, far=far)


def ranked(world: World, rng: random.Random) -> World:
    """Levels for some tasks, and time enough for some to grow old."""

    def with_levels(document: GraphDocument) -> GraphDocument:
        tasks = {
            label: dataclasses.replace(node, priority=rng.choice(LEVELS)) if rng.random() < 0.6 else node
            for label, node in document.tasks.items()
        }
        return dataclasses.replace(document, tasks=tasks)

    bounds = {**world.bounds, "AGE_SECONDS": rng.choice((20.0, 70.0, 300.0))}
    extensions = [with_levels(each) for each in world.extensions]
    return dataclasses.replace(world, document=with_levels(world.document), extensions=extensions, bounds=bounds)


def limited(world: World, rng: random.Random) -> World:
    """A limit on the graph, or on groups that it has, or on both; sometimes set while it runs."""

    def with_limits(document: GraphDocument, most: int) -> GraphDocument:
        groups = dict(document.groups)
        for name in rng.sample(sorted(groups), min(len(groups), limits.LIMITS_OF_TASK_MAX - 1)):
            groups[name] = dataclasses.replace(groups[name], max_in_flight=rng.choice((0, 1, 1, 2)))
        return dataclasses.replace(document, groups=groups, max_in_flight=most)

    document = with_limits(world.document, rng.choice((0, 1, 1, 2, 3) if world.document.groups else (1, 1, 2, 3)))
    extensions = [with_limits(each, 0) for each in world.extensions]
    bounds = dict(world.bounds)
    if "COMMIT_CHANGES_MAX" in bounds:  # of the rows of limits there is room for, as there is without bounds
        bounds["COMMIT_CHANGES_MAX"] += limits.LIMITS_OF_TASK_MAX
    changes = rng.choice((0, 0, 1, 3)) if document != world.document else 0
    anew = rng.random() < 0.4
    if anew:
        changes = changes or rng.choice((1, 2, 4))
    return dataclasses.replace(
        world, document=document, extensions=extensions, bounds=bounds, changes=changes, anew=anew
    )


def editing(world: World) -> World:
    """The same, and in some of them tasks are changed or taken away that have not started, or have failed."""
    rng = random.Random(world.seed * 19 + 3)
    if rng.random() >= (SHARE_EDITED_FAILING if blocks(world) else SHARE_EDITED):
        return world
    when = rng.choice(("", "blocked")) if blocks(world) else ""
    return dataclasses.replace(world, edits=rng.choice((1, 2, 3)), edit_when=when)


def again(world: World) -> World:
    """The same, and in some of them tasks that have ended are rerun; drawn apart, as above.

    Who fails for good there fails in every run: how many of its runs have failed would say nothing.
    """
    rng = random.Random(world.seed * 41 + 19)
    if rng.random() >= SHARE_AGAIN or world.has_limits or world.temporary:
        return world
    fails = {
        label: EVERY_RUN if count > world.tasks[label].reruns and not world.reruns else count
        for label, count in world.fails.items()
    }
    return dataclasses.replace(world, again=rng.choice((1, 1, 2, 3)), fails=fails)


def planning(world: World) -> World:
    """The same, and in some of them what is asked for by hand is planned first; drawn apart, as above.

    Not where time alone changes what a change does: a plan is made at one moment, and taken up at another.
    """
    rng = random.Random(world.seed * 43 + 23)
    levels = any(node.priority for node in world.tasks.values())
    asked_for = world.again or world.cancel or world.pauses or world.changes or levels
    if not asked_for or rng.random() >= SHARE_PLANNED or world.has_limits or world.temporary:
        return world
    return dataclasses.replace(world, planned=rng.choice((0.5, 1.0)))


def tiny_world(seed: int) -> World:
    """One to three tasks, and rarely an extension: some thirty storage calls, met by every fault again and again.

    Most begin with the graph submitted, as others play the submission.
    """
    rng = random.Random(seed * 7 + 3)
    document = random_document(rng, rng.choice((1, 1, 1, 1, 1, 2, 2, 3)), density=rng.choice((0.3, 0.7)), reruns_max=1)
    bounds: Mapping[str, Any] = rng.choice(({}, {}, FEW_LEAVES, NARROWER, CHUNKED, {**CHUNKED, **NARROWER}, TIGHT))
    extensions: list[GraphDocument] = []
    if bounds is not TIGHT and rng.random() < 0.15:
        size = rng.choice((1, 1, 2))
        extensions.append(random_document(rng, size, prefix="x0_", base=tuple(document.tasks), density=0.5))
    labels = [*document.tasks, *(label for extension in extensions for label in extension.tasks)]
    fragile = rng.choice((0.0, 0.0, 0.3))
    fails = {label: rng.randrange(3) for label in labels if rng.random() < fragile}
    faults = Faults(*(rng.choice(RATES) for _ in range(6)))
    reruns = rng.random() < 0.5
    kept: Mapping[str, Any] = rng.choice(({}, FORGETFUL))
    return World(
        seed,
        document,
        fails,
        extensions,
        faults,
        reruns,
        bounds={**bounds, **OFTEN, **kept, **_both_ways(seed)},
        crowds=(4, 3, 2, 2, 2, 2),
        storm_steps=(5, 70),
        rival_rate=0.02,
        sweep_seconds=60.0,
        begun=rng.random() < 0.7,
    )


def _world(seed: int, *, small: bool) -> World:
    rng = random.Random(seed * 7 + 1)
    shape = 0.0 if small else rng.random()
    sizes: Sequence[int] = (1, 1, 2) if small else (1, 2, 3, 5)
    bounds: Mapping[str, Any] = {}
    if shape < 0.9:
        document = random_document(
            rng, rng.randrange(1, 5 if small else 7), density=rng.choice((0.3, 0.3, 0.7)), reruns_max=2
        )
        bounds = rng.choice(({}, {}, FEW_LEAVES, NARROWER, CHUNKED, {**CHUNKED, **NARROWER}, TIGHT))
    elif shape < 0.95:
        document, sizes = wide_document(rng.randrange(90, 140)), (1, 5, 120)
    else:
        document = random_document(rng, rng.randrange(10, 40), density=0.1, reruns_max=1)
        sizes = (5, 30, 120)
    extensions: list[GraphDocument] = []
    if bounds is not TIGHT and (shape < 0.9 or rng.random() < 0.5):
        density = 0.05 if len(document.tasks) > 20 else 0.3
        for number in range(rng.randrange(3)):
            prefix = f"x{number}_"
            base = tuple(document.tasks)
            extensions.append(random_document(rng, rng.choice(sizes), prefix=prefix, base=base, density=density))
    labels = [*document.tasks, *(label for extension in extensions for label in extension.tasks)]
    fragile = rng.choice((0.0, 0.1, 0.4)) if len(labels) < 20 else 0.1
    fails = {label: rng.randrange(4) for label in labels if rng.random() < fragile}
    faults = Faults(*(rng.choice(RATES) for _ in range(6)))
    if rng.random() < 0.1:
        faults.double = 0.4
    reruns = rng.random() < 0.5
    kept: Mapping[str, Any] = rng.choice(({}, FORGETFUL))
    return World(seed, document, fails, extensions, faults, reruns, bounds={**bounds, **kept, **_both_ways(seed)})


def _both_ways(seed: int) -> Mapping[str, Any]:
    """Every other history is decided rule by rule; of each kind, every other one submits in several commits."""
    return {**(RULE_BY_RULE if seed % 2 else {}), **(IN_SEVERAL if seed // 2 % 2 else {})}
