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
from taskgraph.interfaces.http.routes import ANY_BODY, Parameter, Route
from taskgraph.interfaces.http.table import SECTIONS
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


def routes() -> str:
    """For each section of the table of routes a table, and below it what each takes in its query."""
    return "".join(f"\n## {name}\n{_table(_section(routes))}" for name, routes in SECTIONS.items())


def _section(routes: Sequence[Route]) -> list[str]:
    lines = ["| request | role | answer | what it does, and takes |", "|---|---|---|---|"]
    for route in routes:
        given = [f"`{each.name}`: {_words(each)}" for each in route.query]
        if route.free:
            given.append(f"`{route.free}NAME`: {_FREE[route.free]}")
        if route.body == ANY_BODY:
            given.append("body: a document, right or wrong")
        elif "/" in route.body:
            given.append(f"body: {route.body}, as it is")
        elif route.body:
            file, _, part = route.body.partition(".")
            given.append(f"body: {f'`{part}` of ' if part else ''}[{file}.json](../../schemas/{file}.json)")
        answer = f"`{route.answer}`"
        words = "<br>".join([route.summary, *given])
        lines.append(f"| `{route.method} {route.path or '/'}` | {route.role or 'none'} | {answer} | {words} |")
    return lines


_FREE: Final = {
    "param.": "the value of a parameter, as text; `param.NAME:` as JSON.",
    "where.": "only events whose field has this value, such as `where.event=task-failed`; `*` and `?` for any text.",
}


def _words(one: Parameter) -> str:
    schema = one.schema
    more = [f"{schema['minimum']:g} to {schema['maximum']:g}"] if "maximum" in schema else []
    more += [f"{', '.join(schema['enum'])}"] if "enum" in schema else []
    more += [f"otherwise {schema['default']}"] if schema.get("default") not in (None, False) else []
    more += ["may be repeated"] if one.many else []
    return one.description + (f" ({'; '.join(more)})" if more else "")


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
    Part("docs/reference/http.md", "routes", routes),
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
