"""Objects inside a definition that stand for something else: found by their key, and replaced.

Parameters and results share this walk. It copies only what changes: a definition without such an object comes back as
the very same value. It recurses no deeper than documents are.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from taskgraph.model.json_strict import Path, compact_json

_TEXTS: Final = ("command", "env")  # members of a command's payload, each of whose members is a text
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
        rest = {name: value for name, value in task.items() if name != "payload"}
        made = walk.members(task, rest, path, depth)
    payload = task.get("payload")
    if not isinstance(payload, dict | list):
        return made
    place: Path = (*path, "payload")
    if not isinstance(payload, dict) or key in payload or not is_command(made):
        new = walk.value(payload, place, depth)
    else:
        new = walk.members(payload, payload, place, depth + 1, of_command=True)
    return made if new is payload else {**made, "payload": new}


def is_command(task: Mapping[str, Any]) -> bool:
    payload = task.get("payload")
    if not isinstance(payload, dict):
        return False
    return task["executor"] == "command" if "executor" in task else "command" in payload


class _Walk:
    def __init__(self, key: str, found: Found) -> None:
        self._key = key
        self._found = found

    def members(
        self, whole: dict[str, Any], some: dict[str, Any], path: Path, depth: int, *, of_command: bool = False
    ) -> dict[str, Any]:
        """An object with some of its members replaced; the same one if there is nothing of the kind."""
        made: dict[str, Any] | None = None
        for name, value in some.items():
            if not isinstance(value, dict | list):
                continue
            text, texts = of_command and name == _TEXT, of_command and name in _TEXTS
            new = self.value(value, (*path, name), depth, text=text, texts=texts)
            if new is not value:
                made = made if made is not None else dict(whole)
                made[name] = new
        return whole if made is None else made

    def value(self, value: Any, path: Path, depth: int, *, text: bool = False, texts: bool = False) -> Any:
        """A value with what it holds replaced. text: only a text can stand here; texts: in each of its members."""
        if isinstance(value, dict):
            if self._key in value:
                return self._found(value, path, depth, text)
            changed: dict[str, Any] | None = None
            for name, member in value.items():
                if isinstance(member, dict | list):
                    new = self.value(member, (*path, name), depth + 1, text=texts)
                    if new is not member:
                        changed = changed if changed is not None else dict(value)
                        changed[name] = new
            return value if changed is None else changed
        listed: list[Any] | None = None
        for index, member in enumerate(value):
            if isinstance(member, dict | list):
                new = self.value(member, (*path, index), depth + 1, text=texts)
                if new is not member:
                    listed = listed if listed is not None else list(value)
                    listed[index] = new
        return value if listed is None else listed
