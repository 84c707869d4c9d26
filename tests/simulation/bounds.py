"""Limits made small, so that small graphs cross them.

Most are read from `taskgraph.model.limits` whenever they are needed. Some are constants of other modules.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from taskgraph.model import limits
from taskgraph.protocol import extension_plan, together
from taskgraph.protocol.layout import GraphLayout, lay_out

# What goes together must fit together, as the real limits do: a step of links, with the fork that it may need, is
# within the degree of a row, and whatever one completion tells is within a commit.
NARROW: Final = {"REQUIRES_MAX": 3, "DEPENDENTS_MAX": 3, "LINK_REFERENCES_MAX": 2}
NARROWER: Final = {
    "REQUIRES_MAX": 2,
    "DEPENDENTS_MAX": 2,
    "LINK_REFERENCES_MAX": 1,
    "GRAPH_DIRECT_MAX": 2,
    "GRAPH_REQUIRES_MAX": 3,
}
CHUNKED: Final = {
    "COMMIT_CHANGES_MAX": 8,
    "_STEP_ROWS_MAX": 3,
    "LINK_REFERENCES_MAX": 1,
    "REQUIRES_MAX": 4,
    "DEPENDENTS_MAX": 4,
}
FEW_LEAVES: Final = {"GRAPH_DIRECT_MAX": 3, "GRAPH_REQUIRES_MAX": 4}
TIGHT: Final = {**NARROWER, "COMMIT_CHANGES_MAX": 4}
TIGHT_FAILING: Final = {**NARROWER, "COMMIT_CHANGES_MAX": 5}
"""The same where a failure is told to dependents in the commit that counts it on the graph row."""

IN_SEVERAL: Final = {"WHOLE_ROWS_MAX": 0}
"""Each submission takes several commits."""

RULE_BY_RULE: Final = {"ITEMS_MIN": math.inf}
"""No items are decided together."""

_ELSEWHERE: Final = {"_STEP_ROWS_MAX": extension_plan, "GRAPH_DIRECT_MAX": extension_plan, "ITEMS_MIN": together}


@contextlib.contextmanager
def bounded(bounds: Mapping[str, Any]) -> Iterator[None]:
    """These limits, for a while."""
    if not bounds:
        yield
        return
    saved: list[tuple[Any, str, Any]] = []
    direct = lay_out.__kwdefaults__["direct_leaves_max"]
    try:
        for name, value in bounds.items():
            module = _ELSEWHERE.get(name, limits)
            saved.append((module, name, getattr(module, name)))
            setattr(module, name, value)
        for each in (lay_out, GraphLayout.__init__):
            each.__kwdefaults__["direct_leaves_max"] = bounds.get("GRAPH_DIRECT_MAX", direct)
        yield
    finally:
        for each in (lay_out, GraphLayout.__init__):
            each.__kwdefaults__["direct_leaves_max"] = direct
        for module, name, value in reversed(saved):
            setattr(module, name, value)
