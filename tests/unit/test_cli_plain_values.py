"""Values that are taken as they were typed: the same as typer makes of them, and the same errors."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.core import TyperCommand, TyperOption
from typer.testing import CliRunner

from taskgraph.interfaces.cli.plain_values import PlainCommand


class Level(StrEnum):
    HIGH = "high"
    LOW = "low"


def answered(cls: type[TyperCommand], words: list[str]) -> tuple[int, str, list[dict[str, Any]]]:
    seen: list[dict[str, Any]] = []
    app = typer.Typer()

    @app.command(cls=cls)
    def command(
        name: str,
        more: Annotated[list[str] | None, typer.Argument()] = None,
        param: Annotated[list[str] | None, typer.Option("--param")] = None,
        text: str = "",
        number: Annotated[int, typer.Option(min=1, max=9)] = 5,
        seconds: Annotated[float | None, typer.Option(min=0)] = None,
        pause: float = 1.5,
        level: Level | None = None,
        file: Path | None = None,
        verbose: Annotated[int, typer.Option("-v", count=True)] = 0,
        wait: bool = False,
        seen_in: Annotated[str, typer.Option(envvar="SEEN_IN")] = "here",
        tags: Annotated[list[str], typer.Option("--tag")] = [],  # noqa: B006 typer takes it as the default
        checked: Annotated[str, typer.Option(callback=lambda given: given.upper())] = "as it is",
    ) -> None:
        seen.append(dict(locals()) | {"seen": None})

    done = CliRunner().invoke(app, words)
    return done.exit_code, done.output, [{key: (type(value), value) for key, value in each.items()} for each in seen]


@pytest.mark.parametrize(
    "line",
    [
        *("a", "a b c", "a --param x=1 --param y=2", "a --text b -v -v --wait", "", "a --text"),
        *("a --number 3", "a --number 0", "a --number x", "a --seconds 1", "a --seconds -1", "a --pause 2"),
        *("a --seen-in there", "a --tag x --tag y", "a --checked b"),
        *("a --level low", "a --level lo", "a --file x/y", "a --nothing"),
    ],
)
def test_values_and_errors_are_those_of_typer(line: str) -> None:
    assert answered(PlainCommand, line.split()) == answered(TyperCommand, line.split())


def test_a_value_of_the_environment_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEN_IN", "elsewhere")
    code, _, (seen,) = answered(PlainCommand, ["a"])
    assert (code, seen["seen_in"], seen["wait"]) == (0, (str, "elsewhere"), (bool, False))


def test_an_option_that_is_not_typed_is_not_handed_to_typer(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[str] = []
    typers_own = TyperOption.handle_parse_result

    def handle(self: TyperOption, *given: Any) -> Any:
        handled.append(str(self.name))
        return typers_own(self, *given)

    monkeypatch.setattr(TyperOption, "handle_parse_result", handle)
    answered(PlainCommand, ["a", "--text", "b"])
    assert {"text", "seen_in", "checked"} <= set(handled)
    assert not {"param", "number", "seconds", "pause", "level", "file", "verbose", "wait"} & set(handled)
