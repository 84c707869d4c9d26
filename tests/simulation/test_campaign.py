"""`scripts/simulate`, as people and machines call it."""

import json
import logging
from collections.abc import Iterator

import pytest

from tests.simulation.__main__ import main
from tests.simulation.campaign import BEYOND, VIOLATIONS_KEPT_MAX, Report
from tests.simulation.mutants import mutant_of
from tests.simulation.races import RACES


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    yield
    logging.disable(logging.NOTSET)  # which `main` has disabled


def leave_out(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant_of(rule).patch(monkeypatch)


def test_one_history_is_told_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tiny", "--seed", "8"]) == 0
    output = capsys.readouterr().out
    assert "commit g: +task-graph running" in output
    assert "state=running" in output
    assert "violations: 0, ended finished" in output
    assert main(["--tiny", "--seed", "8"]) == 0
    assert capsys.readouterr().out == output


def test_the_faults_of_a_history_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(1, 120):
        assert main(["--tiny", "--seed", str(seed)]) == 0
    output = capsys.readouterr().out
    for what in ("crash before it", "crash after it", "unavailable", "unclear", "false_conflict", "cancelled", "lose"):
        assert f"FAULT {what}" in output


def test_profiles_stand_in_one_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tiny", "--small", "--histories", "30", "--processes", "1", "--first", "500"]) == 0
    output = capsys.readouterr().out
    assert "tiny: seeds 500 to 529: 30 histories" in output
    assert "small: seeds 500 to 529: 30 histories" in output
    assert output.count("violations: 0") == 2


def test_the_report_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tiny", "--histories", "30", "--processes", "1", "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert (report["profile"], report["firstSeed"], report["lastSeed"]) == ("tiny", 1, 30)
    assert report["histories"] == sum(report["ends"].values()) == 30
    assert report["storageCalls"] > 30 * 20
    assert report["races"].keys() == RACES.keys()
    assert report["violations"] == 0
    assert report["cutShort"] is False


def test_what_fails_is_shrunk_and_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    leave_out("every new run has a number of its own", monkeypatch)
    assert main(["--tiny", "--histories", "40", "--processes", "1"]) == 1
    output = capsys.readouterr().out
    assert "VIOLATION" in output
    assert "the shortest history found that fails like seed" in output
    assert "t0: same run" in output
    again = next(line for line in output.splitlines() if "shrink it again: " in line).partition("scripts/simulate ")[2]
    assert main(again.split()) == 1
    assert "t0: same run" in capsys.readouterr().out


def test_a_race_that_was_never_reached_fails_a_long_run() -> None:
    met_all_but = dict.fromkeys(RACES, 1) | {"R08": 0, "R15": 0}
    tiny, mixed = Report("tiny"), Report("mixed")
    for report in (tiny, mixed):
        report.met.update(met_all_but)
    assert tiny.missed() == ["R08"]
    assert mixed.missed() == ["R08", "R15"]
    assert all(races < RACES.keys() for races in BEYOND.values())


def test_a_report_holds_the_first_violations_and_counts_them_all() -> None:
    report = Report()
    for seed in range(VIOLATIONS_KEPT_MAX + 50, 0, -1):
        report.add(Report(histories=1, broken=1, violations=[(seed, "x")]))
    assert report.broken == VIOLATIONS_KEPT_MAX + 50
    assert [seed for seed, _ in report.violations] == list(range(1, VIOLATIONS_KEPT_MAX + 1))
