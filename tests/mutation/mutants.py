"""Every small change of a module that somebody might make by mistake, as values.

What this room is for: mutmut's operators, applied to each function of a module, and each result with the words by
which it is named: function, lines before, lines after. It never writes a file and runs nothing.

mutmut's operators change numbers, texts (also of errors and log lines), names of constants, comparisons, arithmetic,
`and`/`or`/`not`/`in`/`is`, assignments, defaults, `break`/`continue`; they drop or blank each argument of a call, drop
each case of a match, and force each conditional expression either way. They leave alone: the literal parts of
f-strings, docstrings, annotations, and what stands outside functions (constants, fields of dataclasses, properties).
"""

import ast
import difflib
import importlib.util
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import libcst
from mutmut.mutation.file_mutation import MutationVisitor, deep_replace
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode


@dataclass(frozen=True)
class Mutant:
    """One change of one function.

    module: without the package. function: `name` or `Class.name`. source: text that defines the changed function, in
    its class if it has one. lines: of the statement that is changed, in the module.
    """

    module: str
    function: str
    before: str
    after: str
    source: str
    lines: range

    @property
    def place(self) -> str:
        """Where it is, without a line number: those move."""
        return f"{self.module}:{self.function}"

    @property
    def key(self) -> tuple[str, str, str]:
        """By what it is found again after other lines have moved."""
        return self.place, self.before, self.after


def mutants_of(module: str) -> list[Mutant]:
    """All mutants of a module of the package that Python can compile."""
    return list(_mutants_of(module))


def _mutants_of(module: str) -> Iterator[Mutant]:
    spec = importlib.util.find_spec(f"taskgraph.{module}")
    assert spec is not None
    assert spec.origin is not None, f"there is no module taskgraph.{module}"
    path = Path(spec.origin)
    text = path.read_text()
    visitor = MutationVisitor(mutation_operators, IgnoredCode(set(), set(), set()))  # nothing is exempt by a comment
    wrapper = libcst.MetadataWrapper(libcst.parse_module(text))
    tree = wrapper.module
    wrapper.visit(visitor)
    owners = _owners(tree)
    places = _places(ast.parse(text))
    for mutation in visitor.mutations:
        function = mutation.contained_by_top_level_function
        if not isinstance(function, libcst.FunctionDef):  # a constant, or a field of a class
            continue
        owner = owners[id(function)]
        name = f"{owner}.{function.name.value}" if owner else function.name.value
        changed = deep_replace(function, mutation.original_node, mutation.mutated_node)
        assert isinstance(changed, libcst.FunctionDef)
        old, new = _lines(tree, function), _lines(tree, changed)
        first, before, after = _difference(old, new)
        source = "\n".join(new)
        if owner:
            source = f"class {owner}:\n{textwrap.indent(textwrap.dedent(source), '    ')}"
        try:
            compile(source, str(path), "exec")
        except SyntaxError:
            continue
        definition, statements = places[name]
        top = min([definition.lineno, *(each.lineno for each in definition.decorator_list)])  # as the text begins
        yield Mutant(module, name, before, after, source, _statement(statements, top + first))


def _owners(tree: libcst.Module) -> dict[int, str]:
    found: dict[int, str] = {}
    for node in tree.body:
        if isinstance(node, libcst.FunctionDef):
            found[id(node)] = ""
        elif isinstance(node, libcst.ClassDef):
            for child in node.body.body:
                if isinstance(child, libcst.FunctionDef):
                    found[id(child)] = node.name.value
    return found


def _lines(tree: libcst.Module, function: libcst.FunctionDef) -> list[str]:
    text = tree.code_for_node(function.with_changes(leading_lines=()))
    return textwrap.dedent(text).rstrip("\n").split("\n")


def _difference(old: list[str], new: list[str]) -> tuple[int, str, str]:
    """Number of the first line that differs, and the lines that go and come, each as one line."""
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    blocks = [block for block in matcher.get_opcodes() if block[0] != "equal"]
    before = [line.strip() for _, start, end, _, _ in blocks for line in old[start:end]]
    after = [line.strip() for _, _, _, start, end in blocks for line in new[start:end]]
    return blocks[0][1], " ".join(before), " ".join(after)


def _places(tree: ast.Module) -> dict[str, tuple[ast.FunctionDef | ast.AsyncFunctionDef, list[ast.stmt]]]:
    """Function -> its definition, and every statement in it."""
    found: dict[str, tuple[ast.FunctionDef | ast.AsyncFunctionDef, list[ast.stmt]]] = {}

    def visit(nodes: list[ast.stmt], prefix: str) -> None:
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[prefix + node.name] = node, [each for each in ast.walk(node) if isinstance(each, ast.stmt)]

    visit(tree.body, "")
    return found


def _statement(statements: list[ast.stmt], line: int) -> range:
    """The lines of the innermost statement at a line; of one that holds others, its head alone."""
    spans = []
    for node in statements:
        body = node.cases[0].pattern if isinstance(node, ast.Match) else next(iter(getattr(node, "body", [])), None)
        end = (node.end_lineno or node.lineno) if body is None else max(node.lineno, body.lineno - 1)
        if node.lineno <= line <= end:
            spans.append(range(node.lineno, end + 1))
    return min(spans, key=len, default=range(line, line + 1))
