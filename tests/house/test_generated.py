"""What `scripts/generate` writes stands in its files, and a part that is wrong, missing or without marks is noticed."""

import re
import shutil
from pathlib import Path

import pytest

from tests.generated import PARTS, ROOT, Part, main

NAMES = [part.name for part in PARTS]


def test_all_of_it_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out
    assert main(["--nonsense"]) == 2


@pytest.mark.parametrize("part", PARTS, ids=NAMES)
def test_a_part_that_is_spoilt_is_noticed_and_written_anew(part: Part, tmp_path: Path) -> None:
    for each in PARTS:
        (tmp_path / each.path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / each.path, tmp_path / each.path)
    page, said = tmp_path / part.path, list[str]()
    whole = page.read_text("utf-8")
    between = rf"(?s)(generated: {part.name}\b[^\n]*\n).*(\n[^\n]*end: {part.name})"
    page.write_text(re.sub(between, r"\1spoilt\2", whole), "utf-8")
    assert main(["--check"], said.append, tmp_path) == 1
    assert main([], said.append, tmp_path) == 0
    assert said == [
        f"{part.path} is not what the code says: look at what has changed, and run scripts/generate",
        f"{part.path}: written",
    ]
    assert page.read_text("utf-8") == whole
    page.write_text(whole.replace(f"end: {part.name}", ""), "utf-8")
    with pytest.raises(ValueError, match=rf"{part.path} has lost the marks of its part {part.name}"):
        main(["--check"], said.append, tmp_path)
