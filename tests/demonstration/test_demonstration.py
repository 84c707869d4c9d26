"""The demonstration holds what it promises, over each store; and it says so when something is not as promised."""

from pathlib import Path

import pytest

from tests import azurite as emulator
from tests.demonstration import __main__ as demonstration
from tests.demonstration.scenes import SCENES
from tests.demonstration.stage import BrokenPromise, Stage


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["embedded", pytest.param("azurite", marks=pytest.mark.azurite)])
def test_every_scene_is_as_promised(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if kind == "azurite":
        monkeypatch.setenv(emulator.VARIABLE, request.getfixturevalue("azurite"))
    code = demonstration.main(["--store", kind])
    told = capfd.readouterr().out
    assert code == 0, told
    assert [line.split(",")[0] for line in told.splitlines() if line.startswith("===")] == [
        f"=== {name}" for name in SCENES
    ]
    assert len(told.splitlines()) <= 150, "people read it"


def test_a_scene_that_is_not_as_promised_is_named_and_the_next_one_is_played(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def lies(stage: Stage) -> None:
        """what is not so."""
        (stage.folder / "serve.log").write_text("why it is not so\n")
        stage.promise(not list(tmp_path.iterdir()), "the folder is empty")
        stage.tg("status", "nowhere", code=0)

    def holds(stage: Stage) -> None:
        """what is so."""
        stage.promise(stage.begun() == {}, "nothing has begun")

    monkeypatch.setattr(demonstration, "SCENES", {"lies": lies, "holds": holds})
    assert demonstration.main(["--store", "embedded"]) == 1
    told = capsys.readouterr()
    assert "✓ the folder is empty" in told.out
    assert "✗ scene lies (embedded) is not as promised: status nowhere ends with 3, not 0" in told.out
    assert "✓ nothing has begun" in told.out
    assert told.out.endswith("not as promised: lies (embedded)\n")
    assert "why it is not so" in told.err


def test_a_promise_that_does_not_hold_is_an_error(tmp_path: Path) -> None:
    with Stage("embedded", "", tmp_path) as stage, pytest.raises(BrokenPromise, match="it is so"):
        stage.promise([], "it is so")
