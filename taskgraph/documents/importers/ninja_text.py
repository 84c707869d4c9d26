"""The language of build.ninja: from its text to rules, builds, pools and defaults, with variables put in.

As Ninja does it, variables of a file and of a build are put in where they are read, and those of a rule when the build
is known.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from taskgraph.documents.importers.shaping import Foreign, Reader
from taskgraph.model.json_strict import show

_INCLUDES_MAX: Final = 1_000
_DEPTH_MAX: Final = 64  # of variables of a rule that name each other
_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]+")
_SIMPLE: Final = re.compile(r"[a-zA-Z0-9_-]+")  # a variable after $, without braces
_BINDING: Final = re.compile(r"([a-zA-Z0-9_.-]+) *= *(.*)", re.DOTALL)
_CONTINUED: Final = re.compile(r"(?<!\$)((?:\$\$)*)\$\r?\n *")
_SAFE: Final = re.compile(r"[A-Za-z0-9_+./-]+")
_REMEDY: Final = "Correct the line; `ninja -n` says what it makes of it."


@dataclass(slots=True)
class Scope:
    """Variables, rules by name, and what they are looked up in after."""

    above: "Scope | None" = None
    variables: dict[str, str] = field(default_factory=dict)
    rules: dict[str, dict[str, str]] = field(default_factory=dict)

    def variable(self, name: str) -> str:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return scope.variables[name]
            scope = scope.above
        return ""

    def rule(self, name: str) -> dict[str, str] | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.rules:
                return scope.rules[name]
            scope = scope.above
        return None


@dataclass(frozen=True, slots=True)
class Build:
    """One build statement. outputs: implicit ones at the end. ordered: order-only inputs."""

    line: int
    rule: str
    outputs: tuple[str, ...]
    explicit_outputs: int
    inputs: tuple[str, ...]
    implicit: tuple[str, ...]
    ordered: tuple[str, ...]
    validations: tuple[str, ...]
    scope: Scope
    template: Mapping[str, str]

    def value(self, name: str, *, quotes: bool = True) -> str:
        """What a variable such as `command` or `pool` comes to for this build.

        quotes: whether paths in it are for a shell, as in a command. Raises RecursionError where variables of the rule
        name each other in a circle.
        """
        return self._value(name, 0, _quoted if quotes else str)

    def _value(self, name: str, depth: int, shown: Callable[[str], str]) -> str:
        if name in ("in", "in_newline"):
            return ("\n" if name == "in_newline" else " ").join(map(shown, self.inputs))
        if name == "out":
            return " ".join(map(shown, self.outputs[: self.explicit_outputs]))
        if name in self.scope.variables:
            return self.scope.variables[name]
        if name in self.template:
            if depth > _DEPTH_MAX:
                raise RecursionError(name)
            return expanded(self.template[name], lambda each: self._value(each, depth + 1, shown))
        return self.scope.variable(name)


@dataclass(slots=True)
class Statements:
    """builds: in the order of the text. pools: depth by name. defaults: targets, in order."""

    builds: list[Build] = field(default_factory=list)
    pools: dict[str, int] = field(default_factory=lambda: {"console": 1})
    defaults: list[str] = field(default_factory=list)


def _quoted(path: str) -> str:
    return path if _SAFE.fullmatch(path) else "'" + path.replace("'", "'\\''") + "'"


def expanded(text: str, variable: Callable[[str], str]) -> str:
    """The text with its `$` escapes and variables put in."""
    return "".join(part for part, _ in _pieces(text, variable))


def _pieces(text: str, variable: Callable[[str], str]) -> list[tuple[str, bool]]:
    """Parts of a text; True for those that are escaped or come from a variable, and so separate no paths."""
    made: list[tuple[str, bool]] = []
    at = 0
    while (found := text.find("$", at)) >= 0:
        made.append((text[at:found], False))
        after = text[found + 1 : found + 2]
        if after == "{" and (end := text.find("}", found)) > 0:
            made.append((variable(text[found + 2 : end]), True))
            at = end + 1
        elif (name := _SIMPLE.match(text, found + 1)) is not None:
            made.append((variable(name.group()), True))
            at = name.end()
        else:  # $$, $:, $ before a blank; what Ninja refuses stays as it is
            made.append((after if after in "$: ^" else f"${after}", True))
            at = found + 2
    made.append((text[at:], False))
    return made


def read(foreign: Foreign, reader: Reader) -> Statements:
    statements = Statements()
    _File(foreign, reader, statements).read(foreign.text, Scope(), foreign.source)
    return statements


class _File:
    def __init__(self, foreign: Foreign, reader: Reader, statements: Statements) -> None:
        self._beside = foreign.beside
        self._reader = reader
        self._statements = statements
        self._main = foreign.source
        self._included = 0

    def read(self, text: str, scope: Scope, name: str) -> None:
        lines = _lines(text)
        position = 0
        while position < len(lines):
            number, line = lines[position]
            position += 1
            block: list[tuple[int, str]] = []
            while position < len(lines) and lines[position][1].startswith(" "):
                block.append(lines[position])
                position += 1
            number = number if name == self._main else 0
            try:
                self._statement(line, block, scope, number)
            except ValueError as error:
                where = "" if name == self._main else f" (in {name})"
                self._reader.problem((), "syntax", f"{error}{where}.", _REMEDY, number or None)

    def _statement(self, line: str, block: list[tuple[int, str]], scope: Scope, number: int) -> None:
        word, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        match word:
            case "rule":
                scope.rules[rest] = self._bindings(block)
            case "build":
                self._statements.builds.append(self._build(rest, block, scope, number))
            case "pool":
                depth = expanded(self._bindings(block).get("depth", ""), scope.variable)
                if not depth.isdigit():
                    raise ValueError(f"The pool {show(rest)} has no depth")
                self._statements.pools[rest] = int(depth)
            case "default":
                self._statements.defaults += [each for _, each in _paths(rest, scope)]
            case "include" | "subninja":
                path = expanded(rest, scope.variable)
                self._included += 1
                text = self._beside(path) if self._included <= _INCLUDES_MAX else None
                if text is None:
                    raise ValueError(f"It includes {show(path)}, which is not given")
                self.read(text, scope if word == "include" else Scope(scope), path)
            case _:
                if (found := _BINDING.fullmatch(line.strip("\r"))) is None:
                    raise ValueError(f"There is no statement {show(line[:80])}")
                scope.variables[found.group(1)] = expanded(found.group(2), scope.variable)

    @staticmethod
    def _bindings(block: list[tuple[int, str]]) -> dict[str, str]:
        made = {}
        for _, line in block:
            if (found := _BINDING.fullmatch(line.strip(" \r"))) is None:
                raise ValueError(f"{show(line.strip()[:80])} is no variable with a value")
            made[found.group(1)] = found.group(2)
        return made

    def _build(self, rest: str, block: list[tuple[int, str]], scope: Scope, number: int) -> Build:
        own = Scope(scope)
        for name, text in self._bindings(block).items():
            own.variables[name] = expanded(text, scope.variable)
        parts: dict[str, list[str]] = {"out": [], "out|": [], "in": [], "|": [], "||": [], "|@": []}
        kind = "out"
        rule = ""
        for separator, path in _paths(rest, own):
            if separator == ":" and kind in ("out", "out|"):
                kind = ":"
            elif separator:
                kind = "out|" if kind == "out" and separator == "|" else separator
            elif kind == ":":
                rule, kind = path, "in"
            elif kind in parts:
                parts[kind].append(path)
        if not rule or not parts["out"]:
            raise ValueError("A build has outputs, a colon and a rule")
        template = {} if rule == "phony" else scope.rule(rule)
        if template is None:
            raise ValueError(f"There is no rule {show(rule)}")
        outputs = (*parts["out"], *parts["out|"])
        inputs, implicit, ordered, validations = (tuple(parts[key]) for key in ("in", "|", "||", "|@"))
        explicit = len(parts["out"])
        return Build(number, rule, outputs, explicit, inputs, implicit, ordered, validations, own, template)


def _lines(text: str) -> list[tuple[int, str]]:
    """Lines with their numbers; those that `$` continues are one, comments and empty ones are left out."""
    made = []
    number = 1
    for line in _CONTINUED.sub(lambda found: f"{found.group(1)}\0", text).split("\n"):
        bare = line.lstrip(" ")
        if bare.strip() and not bare.startswith("#"):
            made.append((number, line.replace("\0", "").rstrip("\r")))
        number += 1 + line.count("\0")
    return made


def _paths(text: str, scope: Scope) -> list[tuple[str, str]]:
    """Paths, as ("", path), and the separators between them, as (separator, "")."""
    made: list[tuple[str, str]] = []
    path: str | None = None
    for part, kept in _pieces(text, scope.variable):
        if kept:
            path = (path or "") + part
            continue
        for word in re.findall(r"\|\||\|@|[|: ]|[^|: ]+", part):
            if word in (" ", ":", "|", "||", "|@"):
                if path:
                    made.append(("", _canonical(path)))
                path = None
                if word != " ":
                    made.append((word, ""))
            else:
                path = (path or "") + word
    if path:
        made.append(("", _canonical(path)))
    return made


def _canonical(path: str) -> str:
    """The path without `.`, `..` and double slashes where they mean nothing, as Ninja compares paths."""
    if "./" not in path and "//" not in path and not path.endswith(("/.", "/..")):
        return path
    made: list[str] = []
    for part in path.split("/"):
        if part in ("", "."):
            continue
        if part == ".." and made and made[-1] != "..":
            made.pop()
        else:
            made.append(part)
    return ("/" if path.startswith("/") else "") + "/".join(made) or "."
