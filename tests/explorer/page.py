"""What docs/reference/explorer.md says, taken apart: its queries, the columns of each kind of row, and the edits."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "explorer.md"


@dataclass(frozen=True)
class Query:
    """One query: the filter for any explorer, and the words after `az`."""

    title: str
    filter: str
    words: tuple[str, ...]


def _sections(level: str, text: str) -> dict[str, str]:
    """Heading -> what stands below it."""
    parts = re.split(rf"^{level} (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)\n```$", text, re.DOTALL | re.MULTILINE)


def _chapter(name: str) -> str:
    return _sections("##", PAGE.read_text("utf-8"))[name]


def queries() -> list[Query]:
    """All queries, in their order."""
    found = []
    for title, text in _sections("###", _chapter("Ten queries")).items():
        (condition,), (command,) = _blocks(text, "text"), _blocks(text, "sh")
        program, *words = shlex.split(command)
        assert program == "az", title
        found.append(Query(title, condition, tuple(words)))
    return found


def edit_command() -> list[str]:
    """The words after `az` of the edit that is shown."""
    (command,) = _blocks(_chapter("Edit a row"), "sh")
    return shlex.split(command)[1:]


def _rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if not line.startswith("|---")]


def columns() -> Mapping[str, Mapping[str, str]]:
    """Kind of row -> column -> what it holds. "" is what stands on most kinds."""
    chapter = _chapter("Rows and columns")
    found = {"": _columns(chapter.partition("\n### ")[0])}
    for title, text in _sections("###", chapter).items():
        for kind in re.findall(r"`([a-z-]+:?)", title):
            key = "request part" if "<part>" in title and kind == "request:" else kind.rstrip(":")
            found["index:" + title.split("`")[1].partition(":")[2] if key == "index" else key] = _columns(text)
    return found


def _columns(text: str) -> dict[str, str]:
    made: dict[str, str] = {}
    for names, kinds, _ in _rows(text):
        listed = re.findall(r"`([A-Za-z]+)`", names)
        each = kinds.split(", ")
        made.update(zip(listed, each if len(each) > 1 else each * len(listed), strict=True))
    return made


def edits(heading: Sequence[str]) -> dict[str, str]:
    """The table of edits with this heading: what is edited -> what is said of it."""
    text = _chapter("Edit a row")
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    for table in tables:
        head, *rest = _rows(table)
        if head == list(heading):
            return dict(rest)
    raise AssertionError(f"no table {heading}")
