"""Every recipe of the cookbook, as a reader would follow it: in an empty folder, with real processes."""

from pathlib import Path
from typing import Final

import pytest

from tests.e2e.processes import ROOT
from tests.pages import follow, pieces, sections

RECIPES: Final = sections((ROOT / "docs" / "how-to" / "cookbook.md").read_text("utf-8"))


def test_there_are_fifteen() -> None:
    assert len(RECIPES) == 15
    for title, text in RECIPES.items():
        found = list(pieces(text))
        assert any(piece.name for piece in found), f"{title} has no file"
        assert any(piece.commands for piece in found), f"{title} has no commands"


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_does_what_it_says(title: str, tmp_path: Path) -> None:
    assert follow(RECIPES[title], tmp_path) == []
