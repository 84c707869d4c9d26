"""Each rule of the protocol left out once: some history breaks, within a budget. And none breaks with all of them."""

import logging
from collections.abc import Iterable

import pytest

from tests.simulation import playing
from tests.simulation.__main__ import main
from tests.simulation.campaign import Report
from tests.simulation.exhaustive import play_singles
from tests.simulation.lives import LIVES
from tests.simulation.mutants import HISTORIES_MAX, MUTANTS, history, hunt, no_sweep, rivals
from tests.simulation.races import RACES


@pytest.fixture(autouse=True)
def quiet() -> Iterable[None]:
    yield
    logging.disable(logging.NOTSET)  # which `main` has disabled


SEEDS = range(HISTORIES_MAX)


def test_nothing_breaks_while_all_rules_hold() -> None:
    assert hunt(history, range(60)) == (0, "")
    assert hunt(rivals, range(60)) == (0, "")


def test_every_rule_that_is_left_out_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    print("| rule that was left out | histories | what was noticed |\n|---|---:|---|")
    unnoticed: list[str] = []
    for mutant in MUTANTS:
        with monkeypatch.context() as patch:
            mutant.patch(patch)
            number, noticed = hunt(mutant.history or history, SEEDS)
        print(f"| {mutant.rule} | {number or '—'} | {noticed.partition(': ')[2][:100]} |")
        if not number:
            unnoticed.append(mutant.rule)
    assert not unnoticed
    assert len(MUTANTS) >= 10


def test_a_violation_is_told_with_the_line_that_plays_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    claim = next(mutant for mutant in MUTANTS if mutant.rule == "only a pending run can be claimed")
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
