"""Recipes of make as lines of a shell: variables are put in as far as that takes no function of make."""

import re
from collections.abc import Mapping
from typing import Final

_VARIABLE: Final = re.compile(r"^(\S+) :?:?=(?: (.*))?$", re.MULTILINE)
_ORIGIN: Final = re.compile(r"# (?:makefile|default|environment|command line|automatic|'override')")
_DEFINED: Final = re.compile(r"^define (\S+)", re.MULTILINE)
OF_TARGET: Final = re.compile(r"^[^#\t\n].*?: (\S+) (?::{1,3}|[+?!])?=(?: .*)?$", re.MULTILINE)  # before its rule
_AUTOMATIC: Final = re.compile(r"[@*<+%^?|][DF]?|MAKE")
_DEPTH_MAX: Final = 20
_CHARS_MAX: Final = 200_000  # that a recipe may come to


class _NotPlain(Exception):
    pass


def variables(data_base: str) -> dict[str, str | None]:
    """Variables that a data base lists; None for one that is defined over lines, or anew for some targets.

    A $ in the value of `:=` is no reference, and make prints it twice.
    """
    found: dict[str, str | None] = {}
    section = data_base.partition("\n# Variables\n")[2].partition("\n# Files\n")[0]
    origin = False
    for line in section.split("\n"):
        if origin and (variable := _VARIABLE.match(line)) is not None:
            found[variable.group(1)] = variable.group(2) or ""
        origin = _ORIGIN.match(line) is not None
    varying = [*_DEFINED.findall(section), *OF_TARGET.findall(data_base.partition("\n# Files\n")[2])]
    return {**found, **dict.fromkeys(varying)}


def script(recipe: list[str], variables: Mapping[str, str | None], automatic: Mapping[str, str]) -> str | None:
    """The recipe for `sh -c`, each of its lines in a shell of its own as make has it; None if it is not plain."""
    lines: list[str] = []
    for line in re.sub(r"\\\n\t?", "\\\n", "\n".join(recipe)).split("\n"):
        if lines and _goes_on(lines[-1]):
            lines[-1] += f"\n{line}"
        else:
            lines.append(line)
    try:
        values = {**variables, **automatic}
        commands = [_expanded(line, values, 0) for line in lines]
    except _NotPlain:
        return None
    made = []
    for command in commands:
        bare = command.lstrip("@+- \t")
        if bare:
            ignores = "-" in command[: len(command) - len(bare)]
            made.append(f"{{ ({bare}\n) || :; }}" if ignores else f"({bare}\n)")
    return " && ".join(made) or ":"


def _goes_on(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _expanded(text: str, values: Mapping[str, str | None], depth: int) -> str:
    if depth > _DEPTH_MAX:
        raise _NotPlain
    made: list[str] = []
    size = at = 0
    while (found := text.find("$", at)) >= 0:
        made.append(text[at:found])
        after = text[found + 1 : found + 2]
        if after == "$":
            made.append("$")
            at = found + 2
            continue
        if after and after in "({":
            end = text.find(")" if after == "(" else "}", found)
            name = text[found + 2 : end]
            if end < 0 or not re.fullmatch(r"[^\s$(){},:=#]+", name):
                raise _NotPlain  # a function, a substitution, or a computed name
            at = end + 1
        else:
            name, at = after, found + 2
        value = values.get(name, None if _AUTOMATIC.fullmatch(name) else "")
        if value is None:
            raise _NotPlain  # it depends on the target, or stands for make itself
        made.append(_expanded(value, values, depth + 1))
        size += len(made[-1])
        if size > _CHARS_MAX:
            raise _NotPlain
    return "".join((*made, text[at:]))
