"""Units of systemd: what its own checker says of them, with a program that is there."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.processes import ROOT

pytestmark = pytest.mark.campaign

FOLDER = ROOT / "deploy" / "systemd"
PROGRAM = "/opt/taskgraph/bin/taskgraph"


def verified(folder: Path, text: str, name: str) -> str:
    (folder / name).write_text(text.replace(PROGRAM, shutil.which("true") or ""))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(folder / name)], capture_output=True, text=True, check=False
    )
    return "".join(line for line in done.stderr.splitlines(keepends=True) if name.partition("@")[0] in line)


@pytest.mark.parametrize("unit", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_a_unit_is_one_that_systemd_takes(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text("utf-8")
    assert f"ExecStart={PROGRAM} " in text
    assert verified(tmp_path, text, unit.name) == ""
    assert "Unknown key" in verified(tmp_path, text + "\n[Service]\nRestartSeconds=5\n", unit.name)
