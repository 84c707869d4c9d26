"""Scopes of the old clients: which each role has, and whether some cover others."""

from collections.abc import Mapping, Sequence
from typing import Final

from taskgraph.model.roles import Role

_SUBMITTER: Final = (
    "scheduler:create-task-graph",
    "scheduler:extend-task-graph:*",
    "scheduler:route:*",
    "queue:define-task:*",
    "queue:create-task:*",
    "queue:schedule-task*",
    "queue:route:*",
)
_OPERATOR: Final = ("queue:rerun-task*", "queue:cancel-task*")
_WORKER: Final = (
    "queue:claim-work:*",
    "queue:claim-task*",
    "queue:reclaim-task*",
    "queue:resolve-task*",
    "assume:worker-type:*",
    "assume:worker-id:*",
    "queue:worker-id:*",
)

OF_ROLE: Final[Mapping[Role, Sequence[str]]] = {
    Role.READER: (),
    Role.SUBMITTER: _SUBMITTER,
    Role.OPERATOR: (*_SUBMITTER, *_OPERATOR),
    Role.ADMIN: ("*",),
    Role.WORKER: _WORKER,
}


def covers(given: Sequence[str], wanted: str) -> bool:
    """Whether one of the given scopes is the wanted one; a `*` at its end stands for any text."""
    return any(wanted == each or (each.endswith("*") and wanted.startswith(each[:-1])) for each in given)


def missing(given: Sequence[str], wanted: Sequence[str]) -> list[str]:
    return [each for each in wanted if not covers(given, each)]
