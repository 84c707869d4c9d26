"""Each rule of the protocol left out once: some history breaks, within a budget. And none breaks with all of them."""

import pytest

from tests.simulation.mutants import HISTORIES_MAX, MUTANTS, history, hunt, rivals

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
