"""Objects inside a definition that stand for something else: found by their key, and replaced.

A definition without such an object comes back as the very same value.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from taskgraph.model.json_strict import Path, compact_json

COMMANDS: Final = ("command", "docker", "kubernetes")
"""Executors whose payload is that of a command."""

WITH_FOLDER: Final = ("command", "docker")
"""Those that run it where its worker is, in a folder whose files it may read and leave."""

OF_FOLDER: Final = ("cache", "envFile", "inputs", "options", "outputs")
"""Keys of a payload that have no meaning where there is no such folder."""

_TEXTS: Final = ("command", "env", "options")  # members of a command's payload, each of whose members is a text
_TEXT: Final = "cwd"

Found = Callable[[dict[str, Any], Path, int, bool], Any]
"""What to put in: (the object, its place, arrays and objects around it, whether only text can stand there)."""


def objects_with(key: str, value: Any) -> Iterator[dict[str, Any]]:
    """Every object with this key in a value, in no order; nothing inside one is looked at."""
    stack = [value]
    while stack:
        here = stack.pop()
        if isinstance(here, dict):
            if key in here:
                yield here
            else:
                stack.extend(here.values())
        elif isinstance(here, list):
            stack.extend(here)


def as_text(value: Any) -> str:
    """A value where only text can stand: what is no text is written as JSON."""
    return value if isinstance(value, str) else compact_json(value)


def replaced(task: dict[str, Any], key: str, found: Found, *, path: Path = (), payload_alone: bool = False) -> Any:
    """A definition in which `found` has been asked for every object with this key; what it gives stands there.

    path: of the definition, for the places. payload_alone: the rest of the definition is not looked at.
    """
    walk = _Walk(key, found)
    made = task
    depth = len(path) + 1
    if not payload_alone:
        made = walk.members(task, path, depth, but="payload")
    payload = task.get("payload")
    if not isinstance(payload, dict | list):
        return made
    place: Path = (*path, "payload")
    if not isinstance(payload, dict) or key in payload or not is_command(made):
        new = walk.value(payload, place, depth)
    else:
        new = walk.members(payload, place, depth + 1, command=True)
    return made if new is payload else {**made, "payload": new}


def is_command(task: Mapping[str, Any]) -> bool:
    payload = task.get("payload")
    if not isinstance(payload, dict):
        return False
    return task["executor"] in COMMANDS if "executor" in task else "command" in payload


class _Walk:
    def __init__(self, key: str, found: Found) -> None:
        self._key = key
        self._found = found

    def value(self, value: Any, path: Path, depth: int, *, text: bool = False, texts: bool = False) -> Any:
        """An object or array, replaced. text: only a text can stand here; texts: in each of its members."""
        if isinstance(value, dict) and self._key in value:
            return self._found(value, path, depth, text)
        return self.members(value, path, depth + 1, texts=texts)

    def members(
        self, whole: Any, path: Path, depth: int, *, texts: bool = False, command: bool = False, but: str | None = None
    ) -> Any:
        """An object or array with its members replaced; the same one if there is nothing of the kind.

        command: it is the payload of a command. but: a member that stays as it is.
        """
        made: Any = None
        for name, value in whole.items() if isinstance(whole, dict) else enumerate(whole):
            if not isinstance(value, dict | list) or name == but:
                continue
            text, inner = texts or (command and name == _TEXT), command and name in _TEXTS
            new = self.value(value, (*path, name), depth, text=text, texts=inner)
            if new is not value:
                made = copy.copy(whole) if made is None else made
                made[name] = new
        return whole if made is None else made
