"""Words that the product does without: what is read by people names things of the code, and not persons or talk.

Names count as texts do: `tell_dependents` and `_told` are found like "is told".
"""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = (
    ("taskgraph", "**/*.py"),
    ("functions_host", "**/*.py"),
    ("schemas", "*.json"),
    ("scripts", "*"),
    ("docs", "**/*.md"),
    ("web", "*.html"),
    ("web", "src/**/*.ts"),
)
BY_PRODUCTS: Final = frozenset({"node_modules", "__pycache__", ".venv", "build", "dist"})
BANNED: Final = re.compile(
    r"(?<![a-z])(?:told|tells?|telling|tellers?|nobody|somebody|whoever|hears?|heard)(?![a-z])", re.IGNORECASE
)

# What is truly another thing: (file, text of the line, why).
OTHER_THINGS: Final[tuple[tuple[str, str, str], ...]] = (
    ("docs/explanation/protocol/README.md", "`CountedDown`, `Told`", "names of actions of the TLA+ model"),
    ("docs/reference/explorer.md", "| `told` | object |", "a column of rows since 0.4"),
    ("taskgraph/engine/archive_file.py", "file.tell()", "a method of Python's files"),
    ("taskgraph/engine/delete.py", '"not-told"', "a code in answers"),
    ("taskgraph/model/row_schema.py", "0.4 told object?", "a column of rows since 0.4"),
    ("taskgraph/protocol/extension.py", 'head.set("told"', "a column of rows since 0.4"),
    ("taskgraph/protocol/extension.py", 'head.text("told")', "a column of rows since 0.4"),
)


def searched() -> list[Path]:
    found = [ROOT / "README.md"]
    for folder, pattern in FOLDERS:
        found += (path for path in (ROOT / folder).glob(pattern) if path.is_file())
    return sorted(path for path in found if not BY_PRODUCTS.intersection(path.relative_to(ROOT).parts))


def banned(name: str, text: str) -> list[str]:
    """Lines with such a word, as "file:line: the line"."""
    excepted = [line for file, line, _ in OTHER_THINGS if file == name]
    return [
        f"{name}:{number}: {line.strip()[:140]}"
        for number, line in enumerate(text.splitlines(), 1)
        if BANNED.search(line) and not any(each in line for each in excepted)
    ]


def test_the_product_does_without_these_words() -> None:
    found = [
        each for path in searched() for each in banned(str(path.relative_to(ROOT)), path.read_text("utf-8", "replace"))
    ]
    assert not found, f"{len(found)} lines:\n" + "\n".join(found)


def test_every_other_thing_is_there() -> None:
    """An entry of OTHER_THINGS whose line is gone goes too."""
    lines = {(file, text): (ROOT / file).read_text("utf-8") for file, text, _ in OTHER_THINGS}
    assert [key for key, content in lines.items() if not any(key[1] in each for each in content.splitlines())] == []


@pytest.mark.parametrize(
    "line",
    ["nobody", "# Whoever asks", "def tell_dependents():", "self._told = 1", "_TOLD: Final", '"queue told"', "tellers"],
)
def test_a_banned_word_is_found(line: str) -> None:
    assert banned("x.py", f"fine\n{line}\n") == [f"x.py:2: {line}"]


@pytest.mark.parametrize("line", ["a constellation of intellectual titles", "hearing, hearty, retold", "foretell"])
def test_a_part_of_another_word_is_none(line: str) -> None:
    assert banned("x.py", line) == []
