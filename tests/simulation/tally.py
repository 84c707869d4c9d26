"""What the exhaustive crash points have played, and the tables that tell it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

KINDS: Final = ("before", "after", "unavailable", "conflict", "unclear", "lose", "double")
"""before, after: the process is gone then; unavailable: 503; conflict, unclear: applied, and answered so; lose, double:
what becomes of the message."""


def kinds_at(call: str) -> tuple[str, ...]:
    """The faults that make a difference at a storage call."""
    match call:
        case "commit":
            return ("before", "after", "unavailable", "conflict", "unclear")
        case "send":
            return ("before", "after", "unavailable", "lose", "double")
    return ("before", "after", "unavailable")


@dataclass
class Tally:
    """What was played of one life.

    calls: of the life without faults. cases: faults, or pairs of them, that are covered. runs: how often something was
    played to an end that was not known before. slowest_seconds: virtual, by how much faults have made the life longer.
    seconds: of this processor.
    """

    name: str = ""
    tasks: int = 0
    calls: int = 0
    cases: int = 0
    runs: int = 0
    played_calls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0
    seconds: float = 0.0


def table(tallies: Sequence[Tally], title: str) -> str:
    """The report, as Markdown. title: of the first column, and of what is counted, with a comma between."""
    first, _, cases = title.partition(", ")
    lines = [
        f"| {first} | tasks | calls | {cases} | runs | slowest recovery (virtual s) | violations | s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {t.name} | {t.tasks} | {t.calls} | {t.cases:,} | {t.runs:,} | {t.slowest_seconds:.0f} "
        f"| {len(t.violations)} | {t.seconds:.1f} |"
        for t in tallies
    ]
    kinds: Counter[str] = Counter()
    for t in tallies:
        kinds.update(t.kinds)
    lines.append(
        f"| **{len(tallies)} lives** | {sum(t.tasks for t in tallies)} | {sum(t.calls for t in tallies):,} "
        f"| {sum(t.cases for t in tallies):,} | {sum(t.runs for t in tallies):,} "
        f"| {max((t.slowest_seconds for t in tallies), default=0):.0f} | {sum(len(t.violations) for t in tallies)} "
        f"| {sum(t.seconds for t in tallies):.0f} |"
    )
    lines.append("")
    lines.append(
        f"{sum(t.played_calls for t in tallies):,} storage calls played; {sum(1 for k in KINDS if kinds[k])} kinds of "
        "faults: " + ", ".join(f"{kinds[k]:,} {k}" for k in KINDS if kinds[k])
    )
    return "\n".join(lines)
