"""What histories draw: the features of a world, and the pairs of them that meet rarely and matter."""

from collections.abc import Callable
from typing import Final

from tests.simulation.histories import blocks
from tests.simulation.world import World

WIDE: Final = 80
"""Requirements of one task, or tasks that require one, from which an edge is wide."""

FEATURES: Final[dict[str, Callable[[World], bool]]] = {
    "limits": lambda world: bool(world.invariants.under),
    "limits that change": lambda world: world.changes > 0,
    "limits where there was none": lambda world: world.anew,
    "groups": lambda world: any(each.groups for each in (world.document, *world.extensions)),
    "extensions": lambda world: bool(world.extensions),
    "edits": lambda world: world.edits > 0,
    "wide joins": lambda world: any(len(node.requires) >= WIDE for node in world.document.tasks.values()),
    "conditions": lambda world: world.goes_on,
    "blocks": blocks,
    "priorities": lambda world: bool(world.levels),
    "pauses": lambda world: world.pauses > 0,
    "inactive groups": lambda world: any(
        not group.active for each in (world.document, *world.extensions) for group in each.groups.values()
    ),
    "cancels": lambda world: bool(world.cancel),
    "deadlines": lambda world: world.has_limits,
    "tries again later": lambda world: bool(world.temporary),
    "reruns by hand": lambda world: world.reruns,
    "one process": lambda world: world.processes == 1,
    "desks": lambda world: world.direct > 0,
    "desks alone": lambda world: world.direct == 1,
    "late answers": lambda world: world.faults.late > 0,
    "clocks far off": lambda world: world.far is not None,
    "far off to the end": lambda world: world.far is not None and world.far.stays,
    "small bounds": lambda world: bool(world.bounds),
    "crashes": lambda world: world.faults.crash > 0,
    "lost answers": lambda world: world.faults.unclear + world.faults.false_conflict > 0,
    "outages": lambda world: world.faults.unavailable > 0,
    "lost messages": lambda world: world.faults.lose > 0,
    "doubled messages": lambda world: world.faults.double > 0,
}
"""Feature -> whether a history has drawn it."""

TOGETHER: Final = (
    ("limits", "one process"),
    ("limits", "late answers"),
    ("limits", "one process", "desks", "late answers"),
    ("limits", "groups"),
    ("limits", "extensions"),
    ("limits where there was none", "extensions"),
    ("limits where there was none", "edits"),
    ("limits where there was none", "pauses"),
    ("limits where there was none", "groups"),
    ("limits", "edits"),
    ("limits", "pauses"),
    ("limits", "cancels"),
    ("edits", "blocks"),
    ("edits", "extensions"),
    ("edits", "pauses"),
    ("edits", "late answers"),
    ("extensions", "blocks"),
    ("extensions", "pauses"),
    ("extensions", "inactive groups"),
    ("extensions", "conditions"),
    ("extensions", "one process", "late answers"),
    ("priorities", "limits"),
    ("clocks far off", "tries again later"),
    ("clocks far off", "extensions"),
    ("clocks far off", "pauses"),
    ("clocks far off", "limits"),
)
"""Features that break things together."""


def drawn(world: World) -> list[str]:
    """What a history has drawn, features and those that meet."""
    own = {name for name, has in FEATURES.items() if has(world)}
    return [
        *(name for name in FEATURES if name in own),
        *(" + ".join(each) for each in TOGETHER if own.issuperset(each)),
    ]


NAMES: Final = (*FEATURES, *(" + ".join(each) for each in TOGETHER))
