"""What the pages say is true of the code: commands, options, limits, rooms, rules, words, examples.

Links and the scripts that pages name are checked in test_house_files.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from typer.main import get_command

from taskgraph.documents.edit_document import read_edit
from taskgraph.documents.include import Folder
from taskgraph.documents.read import read_document
from taskgraph.documents.texts import Form
from taskgraph.documents.warnings import warnings
from taskgraph.interfaces import settings
from taskgraph.interfaces.cli import app, failures
from taskgraph.model import limits
from taskgraph.model.states import GraphState, TaskState

ROOT: Final = Path(__file__).resolve().parents[2]
README: Final = (ROOT / "README.md").read_text("utf-8")
REFERENCE: Final = ROOT / "docs" / "reference"
README_LINES_MAX: Final = 120
EXPLANATION: Final = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "docs" / "explanation").glob("*.md")))
PAGES: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
COMMANDS: Final[Any] = get_command(app)

# A command as it is typed: `taskgraph`, from a checkout or not, and a word. No path and no other word may end in it.
_TYPED: Final = re.compile(r"(?<![\w./-])(?:scripts/)?taskgraph +(?P<rest>[a-z][^`\n|#]*)")


def code(text: str) -> Iterator[str]:
    """The lines of fenced blocks that are typed or shown, and the spans of code inside the text."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if language in {"sh", "text"}:
            yield from block.splitlines()
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))


def typed(text: str) -> list[str]:
    return [found["rest"].strip() for line in code(text) for found in _TYPED.finditer(line)]


def command_of(words: list[str]) -> Any:
    """The command that the words name. Raises KeyError if there is none."""
    found = COMMANDS.commands[words[0]]
    if not hasattr(found, "commands") or (
        found.invoke_without_command and (words[1:2] or ["-"])[0] not in found.commands
    ):
        return found
    return found.commands[words[1]]


def options(command: Any) -> set[str]:
    names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return names | {"--help", "-h"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_that_a_page_names_exist(page: Path) -> None:
    wrong = []
    for line in typed(page.read_text("utf-8")):
        words = line.split()
        try:
            known = options(command_of(words))
        except (KeyError, IndexError):
            wrong.append(f"no such command: taskgraph {line}")
            continue
        said = {word for word in words if word.startswith("-")} - {"-"}  # `-` is standard input
        wrong.extend(f"{word}: taskgraph {line}" for word in said - known)
    assert wrong == []


def test_the_search_for_commands_finds_them() -> None:
    assert typed("```sh\nscripts/taskgraph run a.json --id b  # why\n```") == ["run a.json --id b"]
    assert typed("say `taskgraph poison list`, or `taskgraph why ID`") == ["poison list", "why ID"]
    assert typed("the table `taskgraph`, taskgraph runs graphs, `.taskgraph/taskgraph.db here`") == []
    assert len(typed(README)) > 5
    with pytest.raises(KeyError):
        command_of(["wait"])


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= README_LINES_MAX, "what is for few readers belongs to docs/"


def test_every_page_is_found_from_the_readme() -> None:
    """A page to which no link leads is not read."""
    found, new = set[Path](), {ROOT / "README.md"}
    while new:
        page = new.pop()
        found.add(page)
        links = re.findall(r"\]\(([^)\s#:]+\.md)", page.read_text("utf-8"))
        new |= {there for link in links if (there := (page.parent / link).resolve()).exists()} - found
    measured = set(ROOT.glob("docs/benchmarks/*.md"))  # each is named by what quotes it
    assert set(PAGES) - found - measured == set()


def test_the_reference_names_every_exit_code() -> None:
    section = (REFERENCE / "commands.md").read_text("utf-8").partition("## Exit codes")[2].partition("\n## ")[0]
    codes = {value for name, value in vars(failures).items() if name.isupper() and isinstance(value, int)}
    assert {int(number) for number in re.findall(r"(?:^|· )(\d+)\b", section.replace("\n", " ").strip())} == codes


def test_the_reference_names_every_setting() -> None:
    section = (REFERENCE / "settings.md").read_text("utf-8")
    for name in (settings.STORE_VARIABLE, settings.PREFIX_VARIABLE, settings.HOST_VARIABLE, settings.DEFAULT_PATH):
        assert name in section
    assert f"default `{settings.DEFAULT_PREFIX}`" in section


def test_the_glossary_names_every_state() -> None:
    tasks, graphs = (
        (REFERENCE / "glossary.md").read_text("utf-8").partition("States of a task:")[2].split("States of a graph:")
    )
    assert set(re.findall(r"`([a-z]+)`", tasks)) == {str(state) for state in TaskState}
    assert {str(state) for state in GraphState} <= set(re.findall(r"`([a-z]+)`", graphs))


def examples() -> list[Any]:
    found = []
    for page in PAGES:
        blocks = re.findall(r"^```(json|yaml|toml)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        found += [pytest.param(form, text, id=f"{page.name}-{number}") for number, (form, text) in enumerate(blocks)]
    return found


def test_the_readme_has_an_example() -> None:
    assert examples()


@pytest.mark.parametrize(("form", "text"), examples())
def test_an_example_is_a_valid_graph_or_edit(form: Form, text: str) -> None:
    if '"update"' in text:
        assert read_edit(text, source="example", form=form).said
    else:
        # A part of an example has the task that its name says.
        folder = Folder("example", lambda name, _: json.dumps({"tasks": {Path(name).stem: {}}}).encode(), str)
        read = read_document(text, source="example", form=form, files=lambda pattern: [pattern], folder=folder)
        assert warnings(read) == []


def table(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading of a page of docs/explanation, without its head."""
    section = EXPLANATION.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return rows(section)


def rows(section: str) -> list[list[str]]:
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_limits_are_quoted_as_they_are() -> None:
    quoted = {
        name.strip("` "): value.strip("` ").replace(",", "", value.count(",")) for name, value, *_ in table("Limits")
    }
    there = {name: value for name, value in vars(limits).items() if name.isupper()}
    assert set(quoted) == set(there)
    for name, value in there.items():
        if isinstance(value, str):
            assert quoted[name] == value.replace(",", ""), name
        else:
            assert float(quoted[name]) == value, name


def test_every_room_is_in_the_table_in_the_order_of_the_contract() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["id"] == "rooms"]
    layers = layers[1:]  # the first holds names that people start and deploy, and nothing else
    layer_of = {room.strip(" ()"): number for number, layer in enumerate(layers) for room in re.split(r"[|:]", layer)}
    listed = [cells[0].strip("` ") for cells in table("Rooms")]
    assert sorted(listed) == sorted(layer_of)
    numbers = [layer_of[room] for room in listed]
    assert numbers == sorted(numbers), "a room stands below one that it may not be imported by"


def test_the_rules_that_comments_name_are_explained() -> None:
    used: dict[str, str] = {}
    for path in sorted((ROOT / "taskgraph").rglob("*.py")):
        for rule in re.findall(r"\b(?:D\d{1,2}a?|P\d{1,2})\b", path.read_text("utf-8")):
            used.setdefault(rule, path.name)
    explained = {
        rule
        for cells in rows(EXPLANATION.partition("Comments name rules by number")[2])
        for rule in cells[0].split(", ")
    }
    assert {rule: place for rule, place in used.items() if rule not in explained} == {}
