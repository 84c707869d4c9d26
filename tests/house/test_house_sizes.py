"""A file is read in one sitting, a class owns one state, a function stands on one screen."""

import ast
from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from tests.house.test_house_source import MODULES, ROOT

FILE_LINES_MAX: Final = 700
CLASS_LINES_MAX: Final = 400
FUNCTION_LINES_MAX: Final = 80
SCRIPT_LINES_MAX: Final = 400
LINE_CHARS_MAX: Final = 120
EXCEPTIONS_MAX: Final = 5

EXCEPTIONS: Final = MappingProxyType[str, str]({})
"""What is longer, as `module` or `module:name`, and why it may be."""


def too_long(module: str, source: str) -> Iterator[str]:
    """What of a module is longer than it may be."""
    if len(source.splitlines()) > FILE_LINES_MAX:
        yield module
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ClassDef():
                most = CLASS_LINES_MAX
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                most = FUNCTION_LINES_MAX
            case _:
                continue
        if (node.end_lineno or node.lineno) - node.lineno + 1 > most:
            yield f"{module}:{node.name}"


def test_nothing_is_longer_than_it_may_be() -> None:
    found = {each for module, path in MODULES.items() for each in too_long(module, path.read_text("utf-8"))}
    assert found == set(EXCEPTIONS), "what is too long is divided, and no exception outlives its reason"


def test_no_file_of_the_page_is_longer_than_it_may_be() -> None:
    sources = [*ROOT.glob("web/src/**/*.ts"), *ROOT.glob("web/test/**/*.ts"), *ROOT.glob("web/src/**/*.css")]
    lines = {path: path.read_text("utf-8").splitlines() for path in sources}
    assert [path.name for path, each in lines.items() if len(each) > SCRIPT_LINES_MAX] == []
    assert [path.name for path, each in lines.items() if any(len(line) > LINE_CHARS_MAX for line in each)] == []


def test_there_are_few_exceptions() -> None:
    assert len(EXCEPTIONS) <= EXCEPTIONS_MAX
    assert all(EXCEPTIONS.values())


def test_what_is_too_long_is_seen() -> None:
    body = "\n".join(["    pass"] * 81)
    assert list(too_long("m", f"def f():\n{body}\n")) == ["m:f"]
    assert list(too_long("m", f"async def f():\n{body}\n")) == ["m:f"]
    assert list(too_long("m", "class C:\n" + "    x = 1\n" * 400)) == ["m:C"]
    assert list(too_long("m", "x = 1\n" * 701)) == ["m"]
    assert list(too_long("m", "def f():\n    pass\n" * 100)) == []
