"""Each rule of the protocol left out once: some history breaks, within a budget. And none breaks with all of them."""

import dataclasses
import logging
import re
from collections.abc import Iterable

import pytest

from tests.simulation import mutants, playing
from tests.simulation.__main__ import main
from tests.simulation.campaign import Report
from tests.simulation.charged import charged
from tests.simulation.exhaustive import play_singles
from tests.simulation.lives import LIVES
from tests.simulation.mutants import (
    HEADER,
    HISTORIES_MAX,
    MUTANTS,
    Mutant,
    accepted_by_many,
    edited,
    edited_and_failing,
    edited_and_waiting,
    edited_in_the_queue,
    history,
    hunt,
    hunt_in_life,
    hunted,
    late_and_rerun,
    line,
    no_sweep,
    overlapping,
    rivals,
    times,
)
from tests.simulation.policed import policed, policed_and_rerun
from tests.simulation.races import RACES


@pytest.fixture(autouse=True)
def quiet() -> Iterable[None]:
    yield
    logging.disable(logging.NOTSET)  # which `main` has disabled


@pytest.mark.campaign
def test_nothing_breaks_while_all_rules_hold() -> None:
    assert hunt(history, range(60)) == (0, "")
    assert hunt(rivals, range(60)) == (0, "")
    assert hunt(times, range(40)) == (0, "")
    assert hunt(edited, range(60)) == (0, "")
    assert hunt(edited_in_the_queue, range(60)) == (0, "")
    assert hunt(edited_and_waiting, range(60)) == (0, "")
    assert hunt(edited_and_failing, range(60)) == (0, "")
    assert hunt(accepted_by_many, range(60)) == (0, "")
    assert hunt(late_and_rerun, range(40)) == (0, "")
    assert hunt(overlapping, range(60)) == (0, "")
    assert hunt(charged, range(60)) == (0, "")
    assert hunt(policed, range(60)) == (0, "")
    assert hunt(policed_and_rerun, range(60)) == (0, "")
    lives = lives_of_mutants()
    for name in lives[:: len(lives) // 4]:  # test_exhaustive plays them all
        played, noticed = hunt_in_life(name, lambda: None)
        assert played > 100
        assert not noticed, name


@pytest.mark.slow
def test_nothing_breaks_in_any_life_while_all_rules_hold() -> None:
    for name in lives_of_mutants():
        played, noticed = hunt_in_life(name, lambda: None)
        assert played > 100
        assert not noticed, name


def lives_of_mutants() -> list[str]:
    return sorted({name for mutant in MUTANTS for name in mutant.lives})


@pytest.mark.campaign
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
def test_every_rule_that_is_left_out_is_missed(mutant: Mutant) -> None:
    number, noticed = hunted(mutant)
    print(f"{HEADER}\n{line(mutant, number, noticed)}")
    assert 0 < number <= HISTORIES_MAX
    assert noticed


@pytest.mark.campaign
def test_of_two_rules_that_stand_in_for_each_other_one_is_enough() -> None:
    pairs = [mutant for mutant in MUTANTS if mutant.given is not None]
    assert pairs
    for mutant in pairs:
        assert not hunted(mutant, given_only=True)[1]
        assert not hunted(dataclasses.replace(mutant, given=None))[1]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
def test_every_rule_can_be_left_out(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code that it names is there, in the words that it replaces: the campaigns show that somebody misses it."""
    for patch in (mutant.given, mutant.patch):
        if patch is not None:
            patch(monkeypatch)


def test_each_rule_has_a_line_of_its_own() -> None:
    assert len({mutant.rule for mutant in MUTANTS}) == len(MUTANTS) >= 40


def test_a_violation_is_told_with_the_line_that_plays_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    claim = next(mutant for mutant in MUTANTS if mutant.rule == "P5: only a pending run can be claimed")
    seed = ["--small", "--histories", "10", "--processes", "1", "--seed", "5"]
    assert main(seed) == 0
    with monkeypatch.context() as patch:
        claim.patch(patch)
        assert main(seed) == 1
        told = capsys.readouterr().out
        replay = next(line for line in told.splitlines() if "replay: " in line)
        again = replay.partition("scripts/simulate ")[2].split()
        assert main(again) == 1
        assert "violations: 1" in capsys.readouterr().out
    assert main(again) == 0


def test_a_life_that_breaks_is_told_with_the_fault_and_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "sweep", no_sweep)
    violations = play_singles(LIVES[1]).violations
    assert any("'lose'" in violation and "no end" in violation for violation in violations)


def test_a_run_that_met_nothing_has_missed_everything() -> None:
    assert Report().missed() == list(RACES)


def test_the_table_says_of_each_rule_who_missed_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the exit code says whether anybody did not."""
    chosen = [mutant for mutant in MUTANTS if mutant.rule.startswith(("P5: only", "P20"))]
    monkeypatch.setattr(mutants, "MUTANTS", chosen)
    assert main(["--mutants"]) == 0
    told = capsys.readouterr().out
    for rule, seen in (
        ("P5: only", r"(run \d+ of \w+ was claimed twice|\w+ moved from completed to running)"),
        ("P20", "1 messages made no sense, and 0 are set aside"),
    ):
        assert re.search(rf"^\| {rule}.* \| {seen} \|$", told, re.MULTILINE)
    assert "2 rules left out, 2 noticed" in told
    harmless = dataclasses.replace(chosen[0], patch=lambda patch: None)
    monkeypatch.setattr(mutants, "MUTANTS", [harmless])
    monkeypatch.setattr(mutants, "HISTORIES_MAX", 3)
    assert main(["--mutants"]) == 1
    assert "| — |" in capsys.readouterr().out
