"""The model of a graph between two stores: with every rule it lives in one of them, and whole; without one it does not.

All but the smallest configurations are slow: scripts/test --long. They need what scripts/model-check brings.
"""

import re
from typing import Final

import pytest

from tests.formal import tlc

NAMES: Final = [name for name in tlc.configurations() if name.startswith("transfer/")]
HOLDS: Final = [name for name in NAMES if "/holds-" in name]
BREAKS: Final = [name for name in NAMES if "/breaks-" in name]
MODEL: Final = (tlc.FOLDER / "Transfer.tla").read_text("utf-8")
README: Final = (tlc.FOLDER / "README.md").read_text("utf-8")


def left_out(name: str) -> list[str]:
    return re.findall(r"^    (\w+) = FALSE$", tlc.text_of(name), re.MULTILINE)


def rules() -> set[str]:
    _, _, named = MODEL.partition("CONSTANTS             \\* rules")
    return set(re.findall(r"^    (\w+),? +\\\*", named.partition("VARIABLES")[0], re.MULTILINE))


def test_every_rule_is_left_out_once_and_none_where_all_must_hold() -> None:
    assert len(HOLDS) >= 4
    assert len(rules()) >= 8
    assert sorted(rule for name in BREAKS for rule in left_out(name)) == sorted(rules())
    assert all(len(left_out(name)) == 1 and tlc.expected(tlc.text_of(name)) for name in BREAKS)
    assert [name for name in HOLDS if left_out(name) or tlc.expected(tlc.text_of(name))] == []


def test_every_configuration_has_its_line_in_the_readme() -> None:
    assert sorted(re.findall(r"^\| `(transfer/[a-z-]+)` \|", README, re.MULTILINE)) == sorted(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOLDS)
def test_it_holds(name: str) -> None:
    found = tlc.check(tlc.text_of(name))
    assert found.broken == "", found.output
    assert found.distinct > 1_000


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKS)
def test_it_breaks_and_with_the_rule_it_holds(name: str) -> None:
    text = tlc.text_of(name)
    found = tlc.check(text)
    assert found.broken == tlc.expected(text), found.output
    (rule,) = left_out(name)
    mended = tlc.check(text.replace(f"    {rule} = FALSE", f"    {rule} = TRUE"))
    assert mended.broken == "", mended.output


@pytest.mark.slow
@pytest.mark.parametrize("never", ["NeverThere", "NeverBack", "NeverStayed", "NeverBetween", "NeverRefused"])
def test_it_is_reached(never: str) -> None:
    text = re.sub(r"^INVARIANTS .*$", f"INVARIANTS {never}", tlc.text_of("transfer/holds-rivals"), flags=re.MULTILINE)
    found = tlc.check(text)
    assert found.broken == never, found.output
