"""Executors of other packages: named by entry points, and imported when a task first asks for one.

A package names them in its pyproject.toml, each as what gives an executor when it is called without arguments:

    [project.entry-points."taskgraph.executors"]
    sql = "my_package:SqlExecutor"
"""

import functools
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from taskgraph.model.errors import InvalidSettings
from taskgraph.worker.executors.contract import Executor

GROUP: Final = "taskgraph.executors"
_PARTS: Final = ("name", "instant", "queue", "can_run", "run")


@functools.cache
def entries() -> Mapping[str, EntryPoint]:
    """By the name of the executor; it takes milliseconds, so only who needs another than the built-in ones looks."""
    return {each.name: each for each in entry_points(group=GROUP)}


def find(name: str) -> Executor | None:
    """None where no package has one of that name. Raises InvalidSettings for one that cannot be had."""
    entry = entries().get(name)
    if entry is None:
        return None
    whose = f"the executor “{name}” of the package {entry.dist.name if entry.dist is not None else entry.module}"
    try:
        made: Executor = entry.load()()
    except Exception as error:
        raise InvalidSettings(f"{whose} cannot be loaded: {type(error).__name__}: {error}") from error
    if missing := [each for each in _PARTS if not hasattr(made, each)]:
        raise InvalidSettings(f"{whose} has no {', '.join(missing)}: let it be a subclass of taskgraph.Executor")
    if made.name != name:
        raise InvalidSettings(f"{whose} calls itself “{made.name}”: its entry point must have that name")
    return made
