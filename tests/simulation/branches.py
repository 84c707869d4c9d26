"""The branches of taskgraph/ that catch an error of a storage call: found in the source, and counted when taken.

They are found by reading the source (`branches`), so a new one appears by itself. They are counted by compiling the
modules of taskgraph with a counter as the first statement of each such branch (`install`): the path without errors
stays what it was, and nothing of it is written to the disk. This module never imports taskgraph, since the counters
have to be in place before that.

A comment `# reach: NAME` at the end of the line of such an `except` or `with` names the place of `reach.ELSEWHERE`
whose tests take the branch: it moves with the branch, whatever becomes of the function around it.
"""

import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "taskgraph"

OF_STORAGE: Final = frozenset(
    {"StorageError", "Conflict", "Unclear", "StaleDelivery", "TooLarge", "StorageUnavailable", "OutOfSight"}
)
"""What the ports raise: whoever catches one of these catches an error of a storage call."""

WIDE: Final = frozenset({"TaskgraphError", "Exception", "BaseException", "CancelledError"})
"""What is caught with them, if something is awaited meanwhile: every storage call is. The end of a task at a storage
call is one more way in which its answer is lost."""

ANY: Final = "any"
"""Any of the names will do."""

_ADAPTERS: Final = ("taskgraph.storage.azure.", "taskgraph.storage.sqlite.", "taskgraph.storage.checks")
"""Modules in which whatever is caught is an error of a storage call."""

MARK: Final = re.compile(r"# reach: (\S+)$")

_COUNT: Final = "__branch_taken__"
_SUPPRESS: Final = "__counting_suppress__"


@dataclass(frozen=True)
class Branch:
    """One `except` or `contextlib.suppress`.

    place: file and function. catches: the names after `except`, with number, if the function has several like it.
    required: those of the names that must be seen, each on its own. mark: what its comment says, if it has one.
    """

    module: str
    place: str
    catches: str
    line: int
    required: tuple[str, ...]
    mark: str = ""

    @property
    def id(self) -> str:
        """Within one run: another when the function is renamed."""
        return f"{self.module} {self.place}: {self.catches}"


def _names(node: ast.expr | None) -> list[str]:
    match node:
        case None:
            return ["BaseException"]
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return [name for each in elements for name in _names(each)]
        case ast.BinOp(left=left, right=right):
            return [*_names(left), *_names(right)]
        case ast.Attribute(attr=name):
            return [name]
        case ast.Name(id=name):
            return [name]
    return [ast.unparse(node)]


def _waits(body: Sequence[ast.stmt]) -> bool:
    """Whether something is awaited in these statements, or yielded to a body that may await."""
    todo: list[ast.AST] = list(body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith | ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            todo.extend(ast.iter_child_nodes(node))
    return False


def _required(names: Sequence[str], body: Sequence[ast.stmt], *, adapter: bool) -> tuple[str, ...]:
    """The names that make this a branch of a storage call; none if it is not.

    In an adapter every branch is one, whichever of its names was caught: they are those of other libraries.
    """
    if adapter:
        return (ANY,)
    wide = _waits(body)
    return tuple(name for name in names if name in OF_STORAGE or (wide and name in WIDE))


class _Marker(ast.NodeTransformer):
    """Finds the branches of one module, and puts the counters in."""

    def __init__(self, module: str, source: bytes) -> None:
        self.module = module
        self._lines = source.decode("utf-8").splitlines()
        self.found: list[Branch] = []
        self._adapter = module.startswith(_ADAPTERS)
        self._where: list[str] = []
        self._seen: Counter[str] = Counter()

    def _scope(self, node: Any) -> Any:
        self._where.append(node.name)
        self.generic_visit(node)
        self._where.pop()
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _scope  # noqa: N815 - the names that ast looks for

    def _found(self, word: str, names: Sequence[str], required: tuple[str, ...], line: int) -> str:
        place = ".".join(self._where) or "module"
        catches = f"{word} {', '.join(names)}"
        self._seen[f"{place} {catches}"] += 1
        number = self._seen[f"{place} {catches}"]
        mark = MARK.search(self._lines[line - 1])
        self.found.append(
            Branch(
                self.module,
                place,
                catches if number == 1 else f"{catches} ({number})",
                line,
                required,
                mark[1] if mark else "",
            )
        )
        return self.found[-1].id

    def _try(self, node: Any) -> Any:
        for handler in node.handlers:
            names = _names(handler.type)
            if required := _required(names, node.body, adapter=self._adapter):
                key = self._found("except", names, required, handler.lineno)
                count = ast.Expr(ast.Call(ast.Name(_COUNT, ast.Load()), [ast.Constant(key)], []))
                handler.body.insert(0, ast.fix_missing_locations(ast.copy_location(count, handler)))
        self.generic_visit(node)
        return node

    visit_Try = visit_TryStar = _try  # noqa: N815

    def _with(self, node: Any) -> Any:
        for item in node.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and _names(call.func) == ["suppress"]:
                names = [name for each in call.args for name in _names(each)]
                if required := _required(names, node.body, adapter=self._adapter):
                    key = self._found("suppress", names, required, node.lineno)
                    func = ast.copy_location(ast.Name(_SUPPRESS, ast.Load()), call.func)
                    call.func, call.args = func, [ast.copy_location(ast.Constant(key), call), *call.args]
        self.generic_visit(node)
        return node

    visit_With = visit_AsyncWith = _with  # noqa: N815


def _mark(source: bytes, module: str) -> tuple[ast.Module, list[Branch]]:
    marker = _Marker(module, source)
    tree = marker.visit(ast.parse(source))
    return tree, marker.found


def marks(package: Path = PACKAGE) -> list[str]:
    """The comments that name a place, as "file:line: NAME", wherever they stand."""
    return [
        f"{path.relative_to(package.parent)}:{number}: {mark[1]}"
        for path in sorted(package.rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (mark := MARK.search(line))
    ]


def branches(package: Path = PACKAGE) -> list[Branch]:
    """All of them, in the order of the source."""
    found: list[Branch] = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found += sorted(_mark(path.read_bytes(), module)[1], key=lambda branch: branch.line)
    return found


class Taken:
    """How often each branch was taken, by the classes of what was caught."""

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()
        self.classes: dict[str, Counter[str]] = {}

    def caught(self, key: str, error: BaseException | None) -> None:
        """Count. An error counts for each of its classes: an `except` may name any of them."""
        self.times[key] += 1
        classes = self.classes.setdefault(key, Counter())
        for kind in type(error).__mro__:
            classes[kind.__name__] += 1

    def missed(self, branch: Branch) -> list[str]:
        """Which of the names of a branch were never caught by it."""
        classes = self.classes.get(branch.id, {})
        return [name for name in branch.required if (name not in classes if name != ANY else not classes)]

    def add(self, classes: Mapping[str, Mapping[str, int]], times: Mapping[str, int]) -> None:
        """Take in what another process has counted."""
        self.times.update(times)
        for key, each in classes.items():
            self.classes.setdefault(key, Counter()).update(each)


TAKEN: Final = Taken()


def _count(key: str) -> None:
    TAKEN.caught(key, sys.exception())


class _CountingSuppress(contextlib.suppress):
    """contextlib.suppress that counts what it suppresses."""

    def __init__(self, key: str, *classes: type[BaseException]) -> None:
        super().__init__(*classes)
        self._key = key

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        suppressed = bool(super().__exit__(kind, error, trace))
        if suppressed:
            TAKEN.caught(self._key, error)
        return suppressed


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles with the counters in place, and never from or to a file of bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree, _ = _mark(self.get_data(path), fullname)
        return compile(tree, path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[_COUNT] = _count
        vars(module)[_SUPPRESS] = _CountingSuppress
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self._package and not fullname.startswith(f"{self._package}."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def install(package: str = "taskgraph") -> None:
    """Count from now on. Raises RuntimeError if modules of the package were imported without counters before."""
    early = [name for name in sys.modules if name == package or name.startswith(f"{package}.")]
    if early:
        raise RuntimeError(f"imported before the counters were in place: {', '.join(sorted(early))}")
    sys.meta_path.insert(0, _Finder(package))


@contextlib.contextmanager
def installed(package: str) -> Iterator[None]:
    """For a while, for the tests of this module."""
    install(package)
    finder = sys.meta_path[0]
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [each for each in sys.modules if each == package or each.startswith(f"{package}.")]:
            del sys.modules[name]
