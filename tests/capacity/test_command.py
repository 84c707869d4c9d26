"""`scripts/model`: what it prints, and how it exits."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.capacity import __main__ as command
from tests.capacity import checking
from tests.capacity.checking import Cell
from tests.capacity.test_model import figures

BY_HAND = ["--rows", "5", "--tables", "2", "--queues", "1"]


@pytest.fixture(autouse=True)
def _loud(caplog: pytest.LogCaptureFixture) -> Iterable[None]:
    """The command silences the logs of a storage that refuses, and lets them speak again."""
    yield
    import logging

    assert logging.root.manager.disable == logging.NOTSET


def test_a_task_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([*BY_HAND, "--events", "0.5", "--journal", "0.01", "--bytes", "1000"]) == command.DONE
    told = capsys.readouterr().out
    for words in ("given by hand", "model", "counted", "Documented", "Assumed", "check them", "not looked up"):
        assert words in told
    (line,) = [line for line in told.splitlines() if "partition" in line and "by hand" in line]
    assert "400" in line


def test_json_says_what_is_what(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*BY_HAND, "--json", "--accounts", "3", "--account-requests", "3000", "--commit-ms", "20", "--months", "2"]
    assert command.main([*words, "--price-table-requests", "0.1"]) == command.DONE
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"source", "counted", "documented", "assumed", "model"}
    assert told["counted"]["by hand"]["entities"] == 5
    assert told["documented"]["account_requests"] == 3000
    assert told["assumed"]["latencies"]["commit"] == 0.02
    assert told["assumed"]["prices"]["source"].startswith("as given by options")
    assert told["model"]["by hand"]["graph"] == 400
    assert told["model"]["by hand"]["all_accounts"] == 3000
    assert told["model"]["by hand"]["money"]["tables"] == pytest.approx(20)


def test_a_kept_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = {
        "began": "then",
        "versions": {"taskgraph": "abc"},
        "medians": {"this": {"fan-98/azurite/noop/1h1w": figures()}},
    }
    path = tmp_path / "kept.json"
    path.write_text(json.dumps(kept))
    assert command.main(["--benchmark", str(path)]) == command.DONE
    told = capsys.readouterr().out
    assert "measured then, commit abc" in told
    assert "no chain beside it" in told


def test_shapes_are_counted_in_virtual_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--play", "chain-8,fan-10", "--layout", "local", "--slots", "2", "--json"]) == command.DONE
    told = json.loads(capsys.readouterr().out)
    assert set(told["counted"]) == {"chain-8/virtual/noop/local", "fan-10/virtual/noop/local"}
    chain = told["model"]["chain-8/virtual/noop/local"]
    assert set(chain["graph_bounds"]) >= {"partition", "account", "path", "journal"}
    assert "without limits" in told["source"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--benchmark", "no-such"], "kept benchmarks:"),
        (["--play", "star-5"], "no shape and no file"),
        (["--play", ","], "names no shape"),
        (["--play", "chain-5", "--layout", "5"], "is no layout"),
        (["--play", "chain-5", "--benchmark", "x"], "one of them"),
        (["--rows", "5"], "--tables is missing"),
        ([*BY_HAND, "--play", "chain-5"], "by hand"),
        ([*BY_HAND, "--levels", "5"], "--step-ms"),
        (["--rows", "0", "--tables", "0", "--queues", "0"], "asks for nothing"),
    ],
)
def test_wrong_usage_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(words) == command.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--rows", "-1"], ["--accounts", "0"], ["--account-requests", "0"], ["--read-ms", "x"]]
)
def test_wrong_numbers_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == command.USAGE


def test_a_check_that_does_not_hold_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checking, "CELLS", (Cell("chain-60", "local", "path"),))  # a shorter one is mostly start
    monkeypatch.setattr(checking, "ONSETS", ())
    monkeypatch.setattr(checking, "SEEDS", (1,))
    assert command.main(["--check", "--json"]) == command.DONE
    told = json.loads(capsys.readouterr().out)
    assert [run["seed"] for run in told["cells"][0]["runs"]] == [1]
    monkeypatch.setattr(checking, "TOLERANCE", 1e-6)
    assert command.main(["--check"]) == command.FAILED
    told_to_people = capsys.readouterr()
    assert "times as long as the model says" in told_to_people.err
    assert "chain-60 local" in told_to_people.out
