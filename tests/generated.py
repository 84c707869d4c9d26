"""Parts of pages and of the deployment that `scripts/generate` writes from the code, so that no list is kept by hand.

A part stands between two lines that have its mark: `generated: NAME` and `end: NAME`, as a comment of its file. What
is beside the marks is written by hand.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer

from taskgraph.interfaces.cli import app
from taskgraph.model.messages import EVENT_TYPES
from tests.formal import semantics

ROOT: Final = Path(__file__).resolve().parents[1]


def commands() -> str:
    """For each panel of the help a table of its commands, with the first sentence of the help of each."""
    whole: Any = typer.main.get_command(app)
    panels: dict[str, list[str]] = {}
    for words, command in _commands(whole):
        names = " ".join(each.metavar or each.name.upper() for each in command.params if _is_argument(each))
        usage = " ".join(filter(None, ("taskgraph", *words, names)))
        sentence = re.split(r"(?<=\.)\s", str(command.help))[0].rstrip(".")
        lines = panels.setdefault(whole.commands[words[0]].rich_help_panel, [])
        lines.append(f"| `{usage}` | {sentence[0].lower()}{sentence[1:]} |")
    head = ["| command | what it does |", "|---|---|"]
    return "".join(f"\n## {panel}\n{_table([*head, *lines])}" for panel, lines in panels.items())


def _is_argument(parameter: Any) -> bool:
    return parameter.param_type_name == "argument"


def _commands(group: Any, *before: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if not hasattr(command, "commands"):
            yield (*before, name), command
            continue
        if command.invoke_without_command:
            yield (*before, name), command
        yield from _commands(command, *before, name)


def _table(lines: Sequence[str]) -> str:
    return "\n" + "\n".join(lines) + "\n"  # Markdown wants an empty line before and after


def queues() -> str:
    """The types of messages that have a queue each, as Bicep."""
    names = ", ".join(f"'{each}'" for each in EVENT_TYPES)
    return f"var kinds = [{names}]"


@dataclass(frozen=True)
class Part:
    """A part of a file. text: what stands between its marks."""

    path: str
    name: str
    text: Callable[[], str]

    def put(self, page: str) -> str:
        """The file with this part as it must be. Raises ValueError where its marks are missing."""
        marks = re.compile(rf"(?m)^(.*generated: {self.name}\b.*\n)(?s:.*?)^(.*end: {self.name}\b)")
        made, found = marks.subn(lambda match: f"{match[1]}{self.text()}\n{match[2]}", page)
        if found != 1:
            raise ValueError(f"{self.path} has lost the marks of its part {self.name}")
        return made


PARTS: Final = (
    Part("docs/reference/commands.md", "commands", commands),
    Part("docs/reference/semantics.md", "semantics", semantics.text),
    Part("deploy/infra/storage.bicep", "queues", queues),
)


def main(arguments: Sequence[str], say: Callable[[str], None] = print, root: Path = ROOT) -> int:
    """Write the parts that have changed, or with --check say which are not current; gives the exit code."""
    if list(arguments) not in ([], ["--check"]):
        say("usage: scripts/generate [--check]")
        return 2
    stale = False
    for part in PARTS:
        file = root / part.path
        page = file.read_text("utf-8")
        made = part.put(page)
        if made == page:
            continue
        stale = True
        if arguments:
            say(f"{part.path} is not what the code says: look at what has changed, and run scripts/generate")
        else:
            file.write_text(made, "utf-8")
            say(f"{part.path}: written")
    return 1 if stale and arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
