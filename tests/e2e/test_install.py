"""What the scripts install into a checkout, also after an installation that was interrupted, and what a package has."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = "taskgraph/interfaces/web/static"
STARTER = "taskgraph/worker/executors/starter"

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


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with little in it, and the page."""
    made = tmp_path / "checkout"
    files = "pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore", "taskgraph/__init__.py"
    for name in (*files, f"{STARTER}.c"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, made / name)
    for name in ("schemas", "deploy"):
        shutil.copytree(ROOT / name, made / name)
    (made / PAGE).mkdir(parents=True)
    for name in ("index.html", "main-K2YAK5LW.js"):
        (made / PAGE / name).touch()
    return made


def build(checkout: Path, target: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(checkout / "dist")]
    done = {**os.environ, **environ}
    return subprocess.run(command, cwd=checkout, env=done, capture_output=True, text=True, check=False)


def test_a_package_has_the_page_although_git_does_not(checkout: Path) -> None:
    for target in ("sdist", "wheel"):
        done = build(checkout, target)
        assert done.returncode == 0, done.stderr
    (wheel,), (source,) = checkout.glob("dist/*.whl"), checkout.glob("dist/*.tar.gz")
    page = {f"{PAGE}/index.html", f"{PAGE}/main-K2YAK5LW.js"}
    assert page <= set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(source) as archive:
        names = {each.partition("/")[2] for each in archive.getnames()}
    assert page | {"hatch_build.py", f"{STARTER}.c"} <= names, "a wheel is built from it without Node.js"


def test_without_the_page_no_package_is_built_unless_that_is_wished(checkout: Path) -> None:
    shutil.rmtree(checkout / PAGE)
    for target in ("sdist", "wheel"):
        done = build(checkout, target)
        assert done.returncode != 0
        assert "run scripts/web first" in done.stderr
    assert build(checkout, "wheel", TASKGRAPH_WITHOUT_PAGE="1").returncode == 0


def programs(checkout: Path) -> tuple[str, list[zipfile.ZipInfo]]:
    """The tag of the wheel that was built, and the programs in it."""
    (wheel,) = checkout.glob("dist/*.whl")
    found = [each for each in zipfile.ZipFile(wheel).infolist() if each.filename.startswith(f"{STARTER}-")]
    tag = wheel.stem.partition("-py3-")[2]
    wheel.unlink()
    return tag, found


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="no C compiler for Linux")
def test_a_wheel_with_the_program_that_starts_commands_is_of_its_system(checkout: Path) -> None:
    flags = "cc -Wall -Wextra -Werror"
    assert build(checkout, "wheel", CC=flags).returncode == 0
    tag, (program,) = programs(checkout)
    assert tag == "none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert program.external_attr >> 16 & 0o111 == 0o111, "it may be run"
    name = f"{STARTER}-{zlib.crc32((ROOT / STARTER).with_suffix('.c').read_bytes()):08x}"
    assert program.filename == name, "as it is looked for"
    with (checkout / f"{STARTER}.c").open("a") as source:
        source.write("/* changed */")
    assert build(checkout, "wheel", CC=flags).returncode == 0
    _, (program,) = programs(checkout)
    assert program.filename != name, "the one of before is left out"


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"CC": "no-such-compiler"}, "No such file"),
        ({"CC": "false"}, "false gave 1"),
        ({"CC": "cc -no-such-option"}, "-no-such-option"),
        ({"TASKGRAPH_PURE": "1"}, ""),
    ],
)
def test_without_a_compiler_a_wheel_is_for_all_systems(checkout: Path, environ: dict[str, str], said: str) -> None:
    done = build(checkout, "wheel", **environ)
    assert done.returncode == 0, done.stderr
    assert programs(checkout) == ("none-any", [])
    assert said in done.stderr
