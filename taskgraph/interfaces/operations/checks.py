"""Checks that several operations share, made before anything is asked for."""

import re
from typing import Final

from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput
from taskgraph.model.states import GraphState

GOING: Final = (GraphState.RUNNING, GraphState.BLOCKED)
"""States of graphs that can be paused, resumed and limited."""


def check_reason(reason: str) -> None:
    """Raises InvalidInput for one that is too long to be kept."""
    if len(reason) > limits.REASON_CHARS_MAX:
        raise InvalidInput(f"the reason has {len(reason):,} characters; {limits.REASON_CHARS_MAX:,} are allowed")


def check_target(target: str) -> None:
    """Raises InvalidInput for a name that cannot be a target."""
    if re.fullmatch(limits.TARGET_PATTERN, target) is None:
        raise InvalidInput(f"target {target}: lower-case letters, digits and single - between them, at most 40")
