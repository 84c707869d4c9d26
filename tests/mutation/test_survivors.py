"""The list of explained survivors: every entry is complete, and speaks of code that is there."""

import ast
import functools
from pathlib import Path

import pytest

import taskgraph
from tests.mutation.survivors import LIST, explanations


@functools.cache
def functions(module: str) -> dict[str, str]:
    """The text of every function of a module, with one space for every gap."""
    text = (Path(taskgraph.__file__).parent / f"{module.replace('.', '/')}.py").read_text()
    found: dict[str, str] = {}
    for node in ast.parse(text).body:
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{node.name}.{each.name}" if isinstance(node, ast.ClassDef) else each.name
                found[name] = " ".join((ast.get_source_segment(text, each) or "").split())
    return found


def test_every_explained_survivor_is_a_change_of_code_that_is_there() -> None:
    gone = []
    for place, before, after in explanations():
        module, _, function = place.partition(":")
        if before == after or " ".join(before.split()) not in functions(module).get(function, ""):
            gone.append(f"{place}: {before}")
    assert gone == [], f"take them off {LIST.name}"


@pytest.mark.parametrize(
    "text", ["a.b\n- x\n+ y", "a.b\n- x\n+ y\n=", "a.b\n+ y\n- x\n= why", "- x\n+ y\n= why"], ids=range(4)
)
def test_an_entry_without_a_reason_is_no_explanation(text: str) -> None:
    with pytest.raises(ValueError, match="no entry"):
        explanations(text)


def test_an_entry_is_place_before_after_and_reason() -> None:
    text = "# words\n\nrows.f\n- x = 1\n+ x = 2\n= nobody\nreads x\n\nrows.f\n- x = 1\n+\n= twice\n"
    assert explanations(text) == [("rows.f", "x = 1", "x = 2"), ("rows.f", "x = 1", "")]
