"""The part of DOT that programs write: nodes, edges, their attributes, subgraphs, attributes for all."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from taskgraph.documents.importers.shaping import Reader
from taskgraph.model.json_strict import show

_TOKEN: Final = re.compile(
    r'(?P<space>\s+|//[^\n]*|/\*.*?\*/|^\#[^\n]*)|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<mark>->|--|[{}\[\];,=:])'
    r"|(?P<html><)|(?P<word>-?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)|[A-Za-z_\x80-\U0010ffff][\w]*)",
    re.DOTALL | re.MULTILINE,
)
_DEFAULTS: Final = frozenset({"graph", "node", "edge"})
_REMEDY: Final = "Have the program write the file again."


@dataclass(slots=True)
class Dot:
    """nodes: attributes by id, in order. edges: tail, head. lines: where each node first stands."""

    name: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)


class _Bad(Exception):
    pass


def read(text: str, reader: Reader) -> Dot:
    """The first graph of a text; what stands before it, as logs do, is passed over. Reports what is wrong."""
    start = re.search(r"^[ \t]*(?:strict\s+)?(?:di)?graph\b[^\n{]*\{", text, re.MULTILINE)
    if start is None:
        reader.problem((), "syntax", "The text holds no DOT graph.", "Choose a file that begins with `digraph`.")
        reader.stop_if_any()
        return Dot()
    parser = _Parser(text, start.start())
    try:
        parser.graph()
    except _Bad as error:
        line = text.count("\n", 0, parser.at) + 1
        reader.problem((), "syntax", f"This is not DOT: {error}.", _REMEDY, line)
    reader.stop_if_any()
    return parser.dot


class _Parser:
    def __init__(self, text: str, at: int) -> None:
        self.dot = Dot()
        self.at = at
        self._text = text
        self._line, self._counted = 1, 0
        self._words = self._read()
        self._kind, self._word = next(self._words)

    def _read(self) -> Iterator[tuple[str, str]]:
        while self.at < len(self._text):
            found = _TOKEN.match(self._text, self.at)
            if found is None:
                raise _Bad(f"there is no place for {show(self._text[self.at : self.at + 20])}")
            self.at = found.end()
            if found.lastgroup == "html":
                depth = 1
                while depth and self.at < len(self._text):
                    depth += {"<": 1, ">": -1}.get(self._text[self.at], 0)
                    self.at += 1
                yield "id", self._text[found.end() : self.at - 1]
            elif found.lastgroup == "quoted":
                yield "id", found.group("quoted").replace("\\\n", "").replace('\\"', '"')
            elif found.lastgroup != "space":
                yield ("id" if found.lastgroup == "word" else "mark"), found.group()
        while True:
            yield "end", "the end"

    def _next(self) -> str:
        word = self._word
        self._kind, self._word = next(self._words)
        return word

    def _takes(self, mark: str) -> bool:
        if self._kind == "mark" and self._word == mark:
            self._next()
            return True
        return False

    def _id(self) -> str:
        if self._kind != "id":
            raise _Bad(f"a name is missing before {show(self._word)}")
        return self._next()

    def graph(self) -> None:
        if self._next() == "strict":
            self._next()
        if self._kind == "id":
            self.dot.name = self._next()
        self._statements()

    def _statements(self) -> None:
        """What stands in braces, without recursion."""
        depth = 0
        while True:
            if self._takes("{"):
                depth += 1
            elif self._takes("}"):
                depth -= 1
                if depth == 0:
                    return
            elif self._kind == "end":
                raise _Bad("a brace is not closed")
            elif not self._takes(";") and not self._takes(","):
                self._statement()

    def _statement(self) -> None:
        name = self._id()
        if name == "subgraph":
            if self._kind == "id":
                self._next()
            return
        if name in _DEFAULTS and self._word == "[":
            attributes = self._attributes()
            if name == "graph":
                self.dot.attributes.update({**attributes, **self.dot.attributes})
            return
        if self._takes("="):
            self.dot.attributes.setdefault(name, self._id())
            return
        ends = [self._node(name)]
        while self._takes("->") or self._takes("--"):
            if self._word == "{":
                raise _Bad("an edge to a subgraph is not read")
            ends.append(self._node(self._id()))
        attributes = self._attributes()
        if len(ends) == 1:
            self.dot.nodes[name].update(attributes)
        self.dot.edges += itertools.pairwise(ends)

    def _node(self, name: str) -> str:
        if self._takes(":"):  # a port, and perhaps a side of it
            self._id()
            if self._takes(":"):
                self._id()
        if name not in self.dot.nodes:
            self._line += self._text.count("\n", self._counted, self.at)
            self._counted = self.at
            self.dot.nodes[name], self.dot.lines[name] = {}, self._line
        return name

    def _attributes(self) -> dict[str, str]:
        made: dict[str, str] = {}
        while self._takes("["):
            while not self._takes("]"):
                if not self._takes(",") and not self._takes(";"):
                    name = self._id()
                    made[name] = self._id() if self._takes("=") else "true"
        return made
