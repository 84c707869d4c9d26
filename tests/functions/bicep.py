"""Read Bicep files without Bicep: what they declare, and what they refer to.

A grammar of the community (tree-sitter) parses; this turns its tree into the few things that tests ask about. It knows
no types and evaluates nothing: what only the compiler can say stays unsaid.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import tree_sitter_bicep
from tree_sitter import Language, Node, Parser

_PARSER: Final = Parser(Language(tree_sitter_bicep.language()))

# Names that a file may use without declaring them: functions of the language, and the namespaces that hold them.
BUILT_IN: Final = frozenset(
    {
        "concat",
        "empty",
        "guid",
        "json",
        "length",
        "range",
        "resourceGroup",
        "string",
        "subscription",
        "subscriptionResourceId",
        "toLower",
    }
    | {"union", "uniqueString"}
)


@dataclass(frozen=True, slots=True)
class Declaration:
    """One param, var, resource, module or output."""

    kind: str
    name: str
    node: Node
    decorators: dict[str, Node] = field(default_factory=dict)

    @property
    def described(self) -> str:
        node = self.decorators.get("description")
        return "" if node is None else literal(node) or ""

    @property
    def literal(self) -> str:
        """The string of a resource (type@version) or a module (path)."""
        return literal(self.node.named_children[1]) or ""

    @property
    def existing(self) -> bool:
        return any(child.type == "existing" for child in self.node.children)

    @property
    def body(self) -> Node:
        """The object, through loop and condition."""
        node = self.node.named_children[-1]
        while node.type in {"for_statement", "if_statement"}:
            node = node.named_children[-1]
        assert node.type == "object", f"{self.name}: {node.type}"
        return node

    @property
    def default(self) -> Node | None:
        return self.node.named_children[2] if len(self.node.named_children) > 2 else None

    @property
    def type_name(self) -> str:
        return text(self.node.named_children[1])


@dataclass(frozen=True, slots=True)
class File:
    """One parsed file."""

    path: Path
    root: Node
    declarations: tuple[Declaration, ...]

    def of(self, kind: str) -> dict[str, Declaration]:
        return {each.name: each for each in self.declarations if each.kind == kind}


def read(path: Path) -> File:
    root = _PARSER.parse(path.read_bytes()).root_node
    found = []
    decorators: dict[str, Node] = {}
    for node in root.named_children:
        if node.type == "decorators":
            decorators = {}
            for call in walk(node):
                if call.type == "decorator":
                    expression = call.named_children[0]
                    name, arguments = expression.named_children
                    decorators[text(name)] = arguments.named_children[0]
        elif node.type.endswith("_declaration"):
            kind = node.type.removesuffix("_declaration")
            found.append(Declaration(kind, text(node.named_children[0]), node, decorators))
            decorators = {}
    return File(path, root, tuple(found))


def errors(source: bytes) -> list[str]:
    """Where the grammar gives up, as LINE: TEXT."""
    return [
        f"{node.start_point[0] + 1}: {text(node)[:60]!r}"
        for node in walk(_PARSER.parse(source).root_node)
        if node.type == "ERROR" or node.is_missing
    ]


def walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from walk(child)


def text(node: Node) -> str:
    return (node.text or b"").decode()


def literal(node: Node) -> str | None:
    """The value of a string without interpolation; None for anything else."""
    if node.type != "string" or any(child.type == "interpolation" for child in node.named_children):
        return None
    return "".join(text(child).replace("\\", "") for child in node.named_children)


def items(node: Node) -> dict[str, Node]:
    """The properties of an object. A key that is computed is kept as it is written."""
    found = {}
    for each in node.named_children:
        if each.type == "object_property":
            key = each.named_children[0]
            name = literal(key)
            found[text(key) if name is None else name] = each.named_children[-1]
    return found


def elements(node: Node) -> list[Node]:
    return [child for child in node.named_children if child.type != "comment"]


def references(node: Node) -> Iterator[tuple[str, Node]]:
    """Names that an expression uses, and where: no keys, no properties of others, no variables of its own loops."""
    yield from _references(node, frozenset())


def _references(node: Node, bound: frozenset[str]) -> Iterator[tuple[str, Node]]:
    if node.type == "identifier":
        if text(node) not in bound:
            yield text(node), node
        return
    children = node.named_children
    if node.type == "object_property":
        children = children[1:] if children[0].type == "identifier" else children
    if node.type == "for_statement":
        initializer = node.child_by_field_name("initializer")
        names = [initializer] if initializer is not None else [each for each in walk(children[0]) if not each.children]
        bound = bound | {text(each) for each in names}
        children = children[1:]
    for child in children:
        if child.type not in {"property_identifier", "type", "comment"}:
            yield from _references(child, bound)


def outputs_used(file: File) -> Iterator[tuple[str, str]]:
    """(module, output) of every `module.outputs.output`."""
    for node in walk(file.root):
        if node.type == "member_expression":
            inner, name = node.named_children
            if inner.type == "member_expression" and text(inner.named_children[1]) == "outputs":
                yield text(inner.named_children[0]), text(name)
