"""Help texts, as a narrow terminal shows them."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from taskgraph.interfaces.cli import app


def commands(group: Any, *before: str) -> Iterator[tuple[str, ...]]:
    yield before
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, *before, name)


@pytest.mark.parametrize("words", list(commands(typer.main.get_command(app))), ids=" ".join)
def test_a_flag_has_no_type_and_an_address_is_whole(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80", "TERM": "dumb"}).stdout
    assert "<bool>" not in shown
    assert "--help" in shown
    assert not [line for line in shown.splitlines() if "://" in line and "…" in line]


def test_the_help_lists_commands_in_four_groups() -> None:
    every = typer.main.get_command(app).commands.values()  # type: ignore[attr-defined]
    assert list(dict.fromkeys(each.rich_help_panel for each in every)) == ["Run", "Look", "Operate", "Administer"]
