"""The list of mutants that no test kills, each with the reason: tests/mutation/survivors.txt.

An entry explains one mutant; one that occurs twice in a function (the same change of the same text) is listed twice.
"""

from pathlib import Path
from typing import Final

LIST: Final = Path(__file__).with_name("survivors.txt")

Key = tuple[str, str, str]


def explanations(text: str | None = None) -> list[Key]:
    """The keys of all entries. Raises ValueError for an entry that lacks something."""
    found: list[Key] = []
    for block in (LIST.read_text() if text is None else text).split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if not lines:
            continue
        place, marked = lines[0], {line[0]: line[1:].strip() for line in lines[1:4]}
        if len(lines) < 4 or list(marked) != ["-", "+", "="] or not marked["="]:
            raise ValueError(f"no entry of the form place, - before, + after, = reason:\n{block}")
        found.append((place, marked["-"], marked["+"]))
    return found
