"""What the scripts install into a checkout, and what becomes of an installation that was interrupted."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

INSTALL = """
set -euo pipefail
root=$1
source "$2"
install 'nothing' "$venv/.taskgraph-1" --help
"""


def test_an_environment_that_was_interrupted_before_it_had_pip_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True)
    command = ["bash", "-c", INSTALL, "install", str(tmp_path), str(ROOT / "scripts" / "lib.sh")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".venv" / ".taskgraph-1").exists()
    subprocess.run([tmp_path / ".venv" / "bin" / "python", "-m", "pip", "--version"], check=True, capture_output=True)


def test_what_pip_cannot_do_is_said_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    script = INSTALL.replace("--help", "--no-index no-such-package")
    command = ["bash", "-c", script, "install", str(tmp_path), str(ROOT / "scripts" / "lib.sh")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 69
    assert "No matching distribution found for no-such-package" in done.stderr
    assert "Running this again goes on from here" in done.stderr
