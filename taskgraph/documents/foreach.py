"""`foreach`: one task for each combination of values.

Lists that are the results of other tasks are not known when a document is read: see `expansion`.
"""

import copy
import itertools
import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from taskgraph.documents.problems import Report
from taskgraph.documents.schema_check import EACH, PARAM, RESULT
from taskgraph.model.json_strict import Path, compact_json, show

FOREACH_MAX: Final = 10_000
"""So many tasks may come of one `foreach`."""

FindFiles = Callable[[str], list[str]]
"""Paths of the files that a pattern names, from the folder of the document on."""

OF_GROUP: Final = ("maxInFlight", "failurePolicy", "success")
"""What is said of the group of all tasks."""

CHOICE: Final = ("label", "include", "exclude")
"""What stands beside the names."""

RESERVED: Final = frozenset({*CHOICE, *OF_GROUP})
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_MENTION: Final = re.compile(r"\{\{ *([A-Za-z_][A-Za-z0-9_]*)(?:\.([A-Za-z0-9_]+))? *\}\}", re.ASCII)
_PARTS: Final[Mapping[str, Callable[[PurePosixPath], str]]] = {
    "name": lambda path: path.name,
    "stem": lambda path: path.stem,
    "dir": lambda path: str(path.parent),
    "ending": lambda path: path.suffix,
}


@dataclass(slots=True)
class Foreach:
    """What stands behind one `foreach`. path: its place. known: values of parameters. files: None without a folder."""

    name: str
    said: Any
    path: Path
    report: Report
    known: Mapping[str, Any]
    files: FindFiles | None = None

    @property
    def takes_results(self) -> bool:
        """Whether a list of it is the result of another task."""
        said = self.said if isinstance(self.said, dict) else {}
        return RESULT in said or any(isinstance(each, dict) and RESULT in each for each in said.values())

    @property
    def group(self) -> dict[str, Any]:
        """What is said of the group of all tasks."""
        return {key: self.said[key] for key in OF_GROUP if isinstance(self.said, dict) and key in self.said}

    def tasks(self, node: Mapping[str, Any], taken: Container[str], *, empty: bool = False) -> dict[str, Any]:
        """The tasks by label, each made of the same node. taken: labels of others. empty: there may be none."""
        made: dict[str, Any] = {}
        for label, values in self._instances(empty=empty):
            if label in made or label in taken:
                message = f"Two tasks would be labelled {show(label)}."
                remedy = "Write a `label` that has all of the names in it."
                self.report.add(self.path, "duplicate-label", message, remedy)
                break
            made[label] = _Substitution(values, self.report, self.path).value(copy.deepcopy(dict(node)))
        return made

    def are_names(self, names: Iterable[str]) -> bool:
        """Whether all of these can stand in a text as {{name}}; the first that cannot is reported."""
        for key in names:
            if _VARIABLE.fullmatch(key) is None:
                remedy = "A name is a letter or _, followed by letters, digits and _."
                self.report.add((*self.path, key), "bad-name", f"{show(key)} cannot be a name in `foreach`.", remedy)
                return False
        return True

    def _instances(self, *, empty: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Label and values of each task."""
        said, path = {"item": self.said} if isinstance(self.said, list) else self.said, self.path
        if not isinstance(said, dict):
            remedy = "Write names with a list each, such as {size: [1, 2]}, or one list, whose values are {{item}}."
            self.report.add(path, "wrong-type", "`foreach` must be an object or an array.", remedy)
            return
        lists = {key: self.values(value, (*path, key)) for key, value in said.items() if key not in RESERVED}
        if any(each is None for each in lists.values()):
            return
        if not self.are_names(lists):
            return
        number = math.prod(len(each or ()) for each in lists.values()) if lists else 0
        if number > FOREACH_MAX:
            message = f"It stands for {number:,} tasks; {FOREACH_MAX:,} may come of one `foreach`."
            self.report.add(path, "too-many", message, "Give it shorter lists, or divide it.")
            return
        rows = [dict(zip(lists, each, strict=True)) for each in itertools.product(*map(_listed, lists.values()))]
        left_out = self._rows(said, "exclude", (), path)
        rows = [row for row in rows if number and not any(_matches(row, each) for each in left_out)]
        rows += self._rows(said, "include", tuple(lists), path)
        if not rows and not empty:
            self.report.add(
                path, "empty", f"{show(self.name)} stands for no task.", "Give it a list that is not empty."
            )
        template = said.get("label")
        if template is not None and not isinstance(template, str):
            self.report.add((*path, "label"), "wrong-type", "`label` must be a string.", "Write a string.")
            return
        for row in rows:
            words = " ".join([self.name, *map(_text, row.values())])
            yield (words if template is None else _Substitution(row, self.report, path).text(template)), row

    def _rows(self, said: Mapping[str, Any], key: str, wanted: Sequence[str], path: Path) -> list[dict[str, Any]]:
        listed = said.get(key, [])
        if not isinstance(listed, list) or not all(isinstance(each, dict) and each for each in listed):
            remedy = "Write a list of objects, such as [{size: 1}]."
            self.report.add((*path, key), "wrong-type", f"`{key}` must be a list of objects.", remedy)
            return []
        for index, each in enumerate(listed):
            if missing := [name for name in wanted if name not in each]:
                message = f"It has no value for {', '.join(map(show, missing))}."
                self.report.add((*path, key, index), "missing", message, "Give each name one.")
        return listed

    def values(self, said: Any, path: Path) -> list[Any] | None:
        """The list of a name; None where there is none, which is reported."""
        if isinstance(said, dict) and said.keys() == {PARAM} and isinstance(said[PARAM], str):
            value = self.known.get(said[PARAM])
            if not isinstance(value, list):
                message = f"The parameter {show(said[PARAM])} has no list here."
                self.report.add(path, "no-list", message, "Declare it as an array, and give it a value or a default.")
                return None
            return value
        if isinstance(said, dict) and said.keys() == {"files"} and isinstance(said["files"], str):
            return self._files(said["files"], path)
        if not isinstance(said, list):
            remedy = 'Write a list, {"files": "src/*.c"}, or {"$param": "name"}.'
            self.report.add(path, "wrong-type", f"`{path[-1]}` must be an array.", remedy)
            return None
        return said

    def _files(self, pattern: str, path: Path) -> list[Any] | None:
        if self.files is None:
            message = "Files are looked for beside the file of a document, and this one is none."
            self.report.add(path, "no-folder", message, "Name a file of the graph, or list the paths.")
            return None
        found = self.files(pattern)
        if not found:
            self.report.add(path, "empty", f"There is no file {show(pattern)}.", "Correct the pattern, or the folder.")
            return None
        return list(found)


def _listed(values: list[Any] | None) -> list[Any]:
    return values or []


def _matches(row: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
    return all(name in row and row[name] == value for name, value in pattern.items())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else compact_json(value)


@dataclass(slots=True)
class _Substitution:
    """Puts the values of one task of a `foreach` into what is written for all."""

    values: Mapping[str, Any]
    report: Report
    path: Path

    def value(self, here: Any) -> Any:
        if isinstance(here, str):
            return self.text(here) if "{{" in here else here
        if isinstance(here, dict):
            if here.keys() == {EACH} and here[EACH] in self.values:
                return self.values[here[EACH]]
            return {key: self.value(member) for key, member in here.items()}
        return [self.value(member) for member in here] if isinstance(here, list) else here

    def text(self, text: str) -> str:
        """With each `{{name}}`, `{{name.stem}}` … replaced; other braces stay."""
        return _MENTION.sub(self._one, text)

    def _one(self, mention: re.Match[str]) -> str:
        name, part = mention.groups()
        if name not in self.values:
            return mention.group()
        value = self.values[name]
        if part is None:
            return _text(value)
        if isinstance(value, dict) and part in value:
            return _text(value[part])
        if isinstance(value, str) and part in _PARTS:
            return _PARTS[part](PurePosixPath(value))
        remedy = f"Of a text there are {', '.join(_PARTS)}; of an object, its keys."
        self.report.add(self.path, "unknown-part", f"{show(mention.group())} has no value.", remedy)
        return mention.group()
