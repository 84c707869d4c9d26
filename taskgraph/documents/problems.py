"""Problems of a document: the first part of them listed, the rest counted, and names that come near a misspelt one."""

import dataclasses
import difflib
import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from taskgraph.model import limits
from taskgraph.model.errors import InvalidGraph, Problem
from taskgraph.model.json_pointer import pointer
from taskgraph.model.json_strict import Path, show

PROBLEMS_MAX: Final = 100  # listed; the rest is counted
_PROBLEMS_OF_ONE_CODE_MAX: Final = 50
_PROBLEMS_KEPT_FREE: Final = 10  # for rare codes when the list is nearly full
_NEAR_LOOKUPS_MAX: Final = 5  # comparing names is the one thing here that is not linear
_NEAR_NAMES_MAX: Final = 200_000
_NEAR_CANDIDATES_MAX: Final = 500  # compared letter by letter

TOO_DEEP: Final = (
    "depth",
    f"Arrays and objects are nested more than {limits.DOCUMENT_DEPTH_MAX} deep.",
    "Flatten the value, or pass it as a string.",
)


class Report:
    """Collects problems, lists the first ones and counts the rest."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines: Callable[[Iterable[Path]], Mapping[Path, int]] = lambda _: {}  # of places, where they are known
        self.place: Callable[[Path], Path] = lambda path: path  # in the document as written
        self.parts: dict[Path, Report] = {}  # of the files that the document includes, by key and name of a member
        self.count = 0
        self._whole: Report | None = None
        self._reports: list[Report] = []
        self._listed: dict[tuple[Path, str, str], tuple[Path, str, str, str, int | None]] = {}
        self._codes: Counter[str] = Counter()
        self._near_left = _NEAR_LOOKUPS_MAX

    def part(self, source: str) -> "Report":
        """A report on a file that the document includes; its problems are counted and listed here as well."""
        made = Report(source)
        made._whole = self
        self._reports.append(made)
        return made

    def takes(self, code: str) -> bool:
        """Whether one more problem of this code would be listed."""
        total, same = len(self._listed), self._codes[code]
        full = total >= PROBLEMS_MAX - _PROBLEMS_KEPT_FREE
        return total < PROBLEMS_MAX and same < (3 if full else _PROBLEMS_OF_ONE_CODE_MAX)

    def add(self, path: Path, code: str, message: str, remedy: str, line: int | None = None) -> None:
        """One problem. The same one at the same place counts once."""
        if self.parts and (part := self.parts.get(path[:2])) is not None:
            part.add(path, code, message, remedy, line)
            return
        path = self.place(path)
        key = (path, code, message)
        if key in self._listed:
            return
        self.more(1)
        if self.takes(code):
            self._listed[key] = (path, code, message, remedy, line)
            self._codes[code] += 1

    def more(self, count: int) -> None:
        self.count += count
        if self._whole is not None:
            self._whole.more(count)

    def near(self, word: str, names: Collection[str], code: str = "") -> str:
        """A question whether a near name was meant; for the first few problems that are listed, "" afterwards."""
        if self._near_left <= 0 or not self.takes(code):
            return ""
        self._near_left -= 1
        found = nearest(word, names)
        return f" Did you mean {' or '.join(show(name) for name in found)}?" if found else ""

    def raise_if_any(self) -> None:
        if self.count:
            raise self.error()

    def error(self) -> InvalidGraph:
        problems = self.problems()
        for part in self._reports:
            problems += [dataclasses.replace(problem, source=part.source) for problem in part.problems()]
        problems = problems[:PROBLEMS_MAX]
        if self.count > len(problems):
            left = self.count - len(problems)
            problems.append(
                Problem("", "more", f"… and at least {left:,} more.", "Correct these first, then check again.")
            )
        return InvalidGraph(problems, self.source)

    def problems(self) -> list[Problem]:
        """Those of this file that are listed, in the order of lines."""
        lines = self.lines([path for path, *_, line in self._listed.values() if line is None])
        problems = [
            Problem(pointer(path), code, message, remedy, line if line is not None else lines.get(path))
            for path, code, message, remedy, line in self._listed.values()
        ]
        return sorted(problems, key=lambda problem: math.inf if problem.line is None else problem.line)


def nearest(word: str, names: Collection[str], count: int = 3) -> list[str]:
    """Up to `count` names that look like word, the likest first. Bounded work, also for a great many long names."""
    word = word[: limits.LABEL_CHARS_MAX]
    folded = word.casefold()
    looked_at = list(itertools.islice(names, _NEAR_NAMES_MAX))
    same = [name for name in looked_at if name.casefold() == folded]
    if same:
        return same[:count]
    if len(looked_at) > _NEAR_CANDIDATES_MAX:
        looked_at = heapq.nlargest(_NEAR_CANDIDATES_MAX, looked_at, key=lambda name: _shared_ends(word, name))
    return difflib.get_close_matches(word, looked_at, count)


def _shared_ends(word: str, name: str) -> int:
    """How many characters two names share at their beginning and at their end, less the difference in length."""
    shorter = min(len(word), len(name))
    start = 0
    while start < shorter and word[start] == name[start]:
        start += 1
    end = 1
    while end <= shorter - start and word[-end] == name[-end]:
        end += 1
    return start + end - abs(len(word) - len(name))
