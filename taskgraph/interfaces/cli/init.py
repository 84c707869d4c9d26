"""The command `init`: a small graph with comments to begin with, out of the templates beside this module."""

import shlex
from collections.abc import Mapping
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli.common import Session, command
from taskgraph.model.errors import InvalidInput, Refused
from taskgraph.storage.private_files import unwritable

_ENDINGS: Final = (".yaml", ".yml")


class Template(StrEnum):
    BUILD = "build"
    DATA = "data"
    PYTHON = "python"


# What is written beside the graph, and the options of `run` that it asks for.
_BESIDE: Final[Mapping[Template, str]] = {Template.PYTHON: "steps.py"}
_OPTIONS: Final[Mapping[Template, str]] = {Template.PYTHON: " --python steps"}


@command(
    "taskgraph init",
    "taskgraph init nightly.yaml --template data",
    "taskgraph init --template python && taskgraph run graph.yaml --python steps",
    options=("json", "verbose"),
)
def init(
    session: Session,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Where to; it is YAML.")] = "graph.yaml",
    template: Annotated[
        Template,
        typer.Option(
            "--template",
            "-t",
            help="build: shell commands. data: parameters, and results that are handed on. python: functions, "
            "with a module steps.py beside the graph.",
        ),
    ] = Template.BUILD,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """Write a small graph to begin with, with comments, and say what to do next."""
    path = Path(file)
    if path.suffix.lower() not in _ENDINGS:
        raise InvalidInput(f"{file}: the graph is written as YAML; give it a name that ends in .yaml")
    sources = {path: f"{template}.yaml"}
    if template in _BESIDE:
        sources[path.with_name(_BESIDE[template])] = _BESIDE[template]
    for each in sources:
        if not force and (each.exists() or each.is_symlink()):
            raise Refused(f"{each} exists; choose another name, or say --force to overwrite it", "exists")
    templates = resources.files("taskgraph.interfaces.cli") / "templates"
    for each, name in sources.items():
        try:
            each.write_text((templates / name).read_text("utf-8"), encoding="utf-8")
        except OSError as error:
            raise unwritable(each, error) from error
    steps = _next_steps(path, template)
    output = session.output
    if session.answered(views.graph_begun, str(template), [str(each) for each in sources], list(steps)):
        return
    for each in sources:
        output.data(str(each))
    output.say("next:")
    for words, what in steps.items():
        output.say(f"  {words:<{max(map(len, steps))}}  {what}")


def _next_steps(path: Path, template: Template) -> dict[str, str]:
    steps: dict[str, str] = {}
    if template in _BESIDE and path.parent != Path():
        steps[f"cd {shlex.quote(str(path.parent))}"] = f"the functions of {_BESIDE[template]} are found from there"
        path = Path(path.name)
    file = shlex.quote(str(path))
    steps[f"taskgraph validate {file}"] = "is it right? each mistake comes with its line"
    steps[f"taskgraph run {file}{_OPTIONS.get(template, '')}"] = "run it here; it says the graph's ID"
    steps["taskgraph why ID LABEL"] = "why a task has not run, and what to do"
    return steps
