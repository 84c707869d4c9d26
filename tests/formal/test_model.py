"""The model of the protocol: what must hold holds, what must break breaks, and what it is about is reached.

All but the smallest configuration are slow: scripts/test --long. They need what scripts/model-check brings.
"""

import pkgutil
import re
from typing import Final

import pytest

from tests.formal import tlc

NAMES: Final = [name for name in tlc.configurations() if not name.startswith("transfer/")]  # of another model
HOLDS: Final = [name for name in NAMES if name.startswith("holds/")]
BREAKS: Final = [name for name in NAMES if name.startswith("breaks/")]

_MODELS: Final = ("Taskgraph.tla", "Groups.tla", "Policies.tla")
MODELS: Final = {name: (tlc.FOLDER / name).read_text("utf-8") for name in _MODELS}
PROMISES: Final = {
    "Shapes": {"S1", "S2", "S3", "S4", "S6", "S7", "S8", "S9"},
    "Groups": {"K1", "K2", "K3", "K4", "K5", "K6", "K8"},
    "Policies": {"F1", "F2", "F3", "F4", "F5"},
}
LIVENESS: Final = {"L1", "K7", "F6"}
README: Final = (tlc.FOLDER / "README.md").read_text("utf-8")


def switched_off(text: str) -> list[str]:
    """The rules that a configuration leaves out."""
    rules = re.split(r"^    (?=EtagGuard|CountOnce|OwnPolicy)", text, flags=re.MULTILINE)[1]
    return re.findall(r"^    (\w+) = FALSE$", f"    {rules}", re.MULTILINE)


def test_there_is_something_to_look_at() -> None:
    assert "holds/tiny" in HOLDS
    assert len(HOLDS) > 10
    assert len(BREAKS) >= 8


@pytest.mark.parametrize("name", HOLDS)
def test_what_must_hold_leaves_no_rule_out_and_names_every_promise(name: str) -> None:
    text = tlc.text_of(name)
    assert tlc.expected(text) == ""
    assert switched_off(text) == []
    invariants = re.search(r"^INVARIANTS (.*)$", text, re.MULTILINE)
    assert invariants
    assert PROMISES[tlc.module_of(text)] <= set(invariants[1].split())


@pytest.mark.parametrize("name", BREAKS)
def test_what_must_break_leaves_one_rule_out_and_says_which_promise_goes(name: str) -> None:
    text = tlc.text_of(name)
    assert len(switched_off(text)) == 1
    assert tlc.expected(text) in PROMISES[tlc.module_of(text)] | LIVENESS


def test_every_rule_is_left_out_once() -> None:
    named: set[str] = set()
    for model in MODELS.values():
        rules = re.split(r"^CONSTANTS +\\\* rules", model, flags=re.MULTILINE)[1]
        found = set(re.findall(r"^    (\w+),? +\\\*", rules.partition("VARIABLES")[0], re.MULTILINE))
        assert len(found) > 5
        named |= found
    assert {rule for name in BREAKS for rule in switched_off(tlc.text_of(name))} == named


def test_every_configuration_has_its_line_in_the_readme() -> None:
    listed = re.findall(r"^\| `((?:holds|breaks)/[a-z-]+)` \|", README, re.MULTILINE)
    assert sorted(listed) == sorted(NAMES)


@pytest.mark.parametrize("model", MODELS)
def test_every_action_has_its_line_in_the_readme(model: str) -> None:
    """An action is a definition that says what it leaves unchanged."""
    definitions = re.split(r"^(\w+)(?:\([\w, ]*\))? ==", MODELS[model], flags=re.MULTILINE)[1:]
    actions = [name for name, body in zip(definitions[::2], definitions[1::2], strict=True) if "UNCHANGED" in body]
    assert len(actions) > 8
    listed = {
        name for cell in re.findall(r"^\| (`[^|]*) \|", README, re.MULTILINE) for name in re.findall(r"\w+", cell)
    }
    assert [name for name in actions if name not in listed] == []


def test_the_functions_that_the_readme_names_exist() -> None:
    table = README.partition("## What stands for what")[2].partition("\n## ")[0]
    named = re.findall(r"`([a-z_]+\.[A-Za-z_.]+)`", table)
    assert len(named) > 20
    for name in named:
        pkgutil.resolve_name(f"taskgraph.{name}")


def test_what_tlc_says_is_read() -> None:
    states = "12 states generated, 7 distinct states found, 0 states left on queue.\n"
    held = tlc.read(f"Model checking completed. No error has been found.\n{states}", "", 1.0)
    assert (held.broken, held.states, held.distinct) == ("", 12, 7)
    assert tlc.read(f"Error: Invariant S6 is violated.\n{states}", "", 1.0).broken == "S6"
    text = "PROPERTIES L1\n"
    assert tlc.read(f"Error: Temporal properties were violated.\n{states}", text, 1.0).broken == "L1"
    for said in (
        "",
        states,
        "Model checking completed. No error has been found.\n",
        "Error: Parsing failed.\n" + states,
    ):
        with pytest.raises(tlc.TlcError):
            tlc.read(said, text, 1.0)


@pytest.mark.slow
def test_the_smallest_configuration_holds() -> None:
    found = tlc.check(tlc.text_of("holds/tiny"))
    assert found.broken == "", found.output
    assert found.distinct > 100


@pytest.mark.slow
def test_an_unreadable_configuration_is_no_answer() -> None:
    with pytest.raises(tlc.TlcError, match="Nonsense"):
        tlc.check(tlc.text_of("holds/tiny").replace("INVARIANTS TypeOK", "INVARIANTS Nonsense"))


@pytest.mark.slow
def test_a_broken_promise_about_steps_is_found() -> None:
    found = tlc.check(tlc.text_of("holds/tiny").replace("PROPERTIES S4Final", "PROPERTIES Still"))
    assert found.broken == "Still", found.output


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in HOLDS if name != "holds/tiny"])
def test_it_holds(name: str) -> None:
    found = tlc.check(tlc.text_of(name))
    assert found.broken == "", found.output


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKS)
def test_it_breaks_and_with_the_rule_it_holds(name: str) -> None:
    text = tlc.text_of(name)
    found = tlc.check(text)
    assert found.broken == tlc.expected(text), found.output
    (rule,) = switched_off(text)
    mended = tlc.check(text.replace(f"    {rule} = FALSE", f"    {rule} = TRUE"))
    assert mended.broken == "", mended.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "never"),
    [
        ("holds/tiny", "NeverFinished"),
        ("holds/tiny", "NeverOvertaken"),
        ("holds/tiny", "NeverRetried"),
        ("holds/tiny", "NeverZombie"),
        ("holds/chain", "NeverException"),
        ("holds/chain-rerun", "NeverRerun"),
        ("holds/block", "NeverBlocked"),
        ("holds/block", "NeverRerunByHand"),
        ("holds/block", "NeverTorn"),
        ("holds/diamond", "NeverConflict"),
        ("holds/diamond", "NeverTwoAtOnce"),
        ("holds/extend", "NeverExtended"),
        ("holds/extend", "NeverLinkedLate"),
        ("holds/extend-block", "NeverRefused"),
        ("holds/policy-passes", "NeverBoth"),
        ("holds/policy-passes", "NeverPassed"),
        ("holds/policy-passes", "NeverUnblocked"),
        ("holds/policy-passes", "NeverSkippedAfter"),
    ],
)
def test_it_is_reached(name: str, never: str) -> None:
    text = re.sub(r"^INVARIANTS .*$", f"INVARIANTS {never}", tlc.text_of(name), flags=re.MULTILINE)
    found = tlc.check(re.sub(r"^PROPERTIES .*\n", "", text, flags=re.MULTILINE))
    assert found.broken == never, found.output
