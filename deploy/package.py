"""Package the function app: everything that Azure needs, in one zip or one folder, built from this checkout.

What this is for: `scripts/package-functions` and the hook of `azure.yaml`. It builds the wheel of taskgraph, fetches
the pinned dependencies as wheels for Linux and the chosen Python, and lays all of it out as the Functions host expects
it without a build in Azure. It needs nothing but Python's own venv and pip. It never talks to Azure, and never takes
anything from this folder but the files that it names.
"""

import argparse
import csv
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

ROOT: Final = Path(__file__).resolve().parents[1]
DEPLOY: Final = ROOT / "deploy"
PINS: Final = DEPLOY / "requirements.txt"
OUTPUT: Final = ROOT / "build" / "functions.zip"

APP_FILES: Final = ("function_app.py", "host.json")
SITE_PACKAGES: Final = ".python_packages/lib/site-packages"  # where the Python worker of Azure looks first
EXTRAS: Final = ("functions", "azure-monitor")  # of pyproject.toml: what the app uses beyond a worker or a handler

PYTHONS: Final = ("3.11", "3.12", "3.13")
PYTHON_DEFAULT: Final = "3.11"  # the one that the tests run
# Newest first. pip takes each tag literally, and wheels of C libraries name one to four of them. The images of Azure
# Functions for these Pythons are Debian 11 and later, whose glibc is 2.31 at least.
PLATFORMS: Final = (
    "manylinux_2_28_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
    "manylinux_2_12_x86_64",
    "manylinux_2_5_x86_64",
    "manylinux1_x86_64",
)

ZIP_TIME: Final = (2020, 2, 2, 0, 0, 0)  # one for all entries, that of the wheel's own build; zip knows no zones
ZIP_MODE: Final = 0o100644 << 16
TEST_FOLDERS: Final = frozenset({"test", "tests", "benchmarks"})
FOREIGN: Final = frozenset({"bin", "__pycache__"})  # commands with the path of this machine's Python; bytecode
# What pip notes about an installation: how, and from which path of this machine.
NOTES: Final = frozenset({"INSTALLER", "REQUESTED", "direct_url.json"})
MARKER: Final = "host.json"  # a folder that has one was made here, or is a function app: it may be replaced

EXIT_USAGE: Final = 2
EXIT_MACHINE: Final = 69  # the machine lacks something, as in scripts/lib.sh

DESCRIPTION: Final = """\
Make the zip that Azure Functions takes: function_app.py, host.json, the wheel of taskgraph built from this checkout,
and the dependencies that deploy/requirements.txt pins, for Linux on x86-64. Nothing is built in Azure. Two runs over
the same files give the same bytes.
"""

EPILOG: Final = """\
examples:
  scripts/package-functions                              build/functions.zip, for Python 3.11
  scripts/package-functions --output /tmp/app.zip
  scripts/package-functions --into build/functions       the same as a folder, for azd or for a look inside
  scripts/package-functions --json                       path, sizes and checksum for a program
  scripts/package-functions --pin                        bring deploy/requirements.txt up to date first, then look
                                                         at the difference, run scripts/test, and commit it

exit codes: 0 done, 2 bad usage, 69 pip could not fetch or build something, for the reason that it gives
"""


def say(text: str) -> None:
    """Words go to stderr; stdout is for the answer."""
    print(f"package-functions: {text}", file=sys.stderr)


def give_up(text: str, code: int = EXIT_MACHINE) -> NoReturn:
    """End with a reason and what to do about it."""
    say(text)
    raise SystemExit(code)


@dataclass(frozen=True, slots=True)
class Target:
    """What the dependencies are fetched for."""

    python: str
    platforms: tuple[str, ...] = PLATFORMS

    @property
    def options(self) -> list[str]:
        """As pip wants to have it. It refuses to build anything for a platform that it does not run on."""
        tags = [option for tag in self.platforms for option in ("--platform", tag)]
        return ["--only-binary", ":all:", "--implementation", "cp", "--python-version", self.python, *tags]


class Pip:
    """pip in a new virtual environment, so that nothing depends on what is installed here."""

    def __init__(self, folder: Path) -> None:
        try:
            venv.create(folder, with_pip=True, symlinks=True)
        except (OSError, subprocess.CalledProcessError) as error:
            give_up(f"cannot make a virtual environment: {error}. On Debian and Ubuntu: apt-get install python3-venv")
        self._python = str(folder / "bin" / "python")

    def run(self, what: str, *arguments: str) -> str:
        """Its standard output."""
        environ = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
        # The function app shows no page, and runs on a system that may be another than this one.
        environ |= {"TASKGRAPH_WITHOUT_PAGE": "1", "TASKGRAPH_PURE": "1"}
        done = subprocess.run(
            [self._python, "-I", "-m", "pip", *arguments], env=environ, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            # The last lines say what failed; above them are the versions that were looked at.
            lines = [line for line in done.stderr.strip().splitlines() if not line.startswith("WARNING")]
            reason = "\n".join(lines[-8:])
            give_up(f"pip could not {what}:\n{reason}")
        return done.stdout


def normalized(name: str) -> str:
    """The name of a distribution as everybody compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(text: str) -> dict[str, str]:
    """Version by normalized name. Raises ValueError with the line that is no pin."""
    pins = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        match = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.!+]+)", line)
        if match is None:
            raise ValueError(f"line {number}: {line!r} is not NAME==VERSION")
        pins[normalized(match[1])] = match[2]
    return pins


def pinned_python(text: str) -> str:
    """Which Python the pins were made for."""
    match = re.search(r"^# Python (\d+\.\d+)\b", text, re.MULTILINE)
    if match is None:
        raise ValueError("no line '# Python 3.x' says which Python the pins are for")
    return match[1]


def extras() -> list[str]:
    """The extras of taskgraph that the app is packaged with: those of EXTRAS that pyproject.toml has."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        there = tomllib.load(file)["project"].get("optional-dependencies", {})
    return [name for name in EXTRAS if name in there]


def with_extras(wheel: Path) -> str:
    """The requirement that installs it with what the app uses."""
    return f"{wheel}[{','.join(extras())}]"


def build_wheel(pip: Pip, folder: Path) -> Path:
    """The wheel of taskgraph, out of the working tree."""
    say("building the wheel of taskgraph")
    pip.run("build the wheel of taskgraph", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (wheel,) = folder.glob("taskgraph_scheduler-*.whl")
    return wheel


def pin(pip: Pip, target: Target, wheel: Path) -> None:
    """Write PINS anew: the newest versions that pyproject.toml allows, and all that they require."""
    running = ".".join(platform.python_version_tuple()[:2])
    if running != target.python:
        give_up(
            f"pins for Python {target.python} are made by it, and this is {running}, as a requirement may hold for "
            f"some Pythons only: PYTHON=python{target.python} scripts/package-functions --pin --python {target.python}",
            EXIT_USAGE,
        )
    say(f"looking up the newest versions that pyproject.toml allows, for Python {target.python}")
    arguments = [
        "install",
        "--quiet",
        "--dry-run",
        "--ignore-installed",
        "--report",
        "-",
        "--target",
        str(wheel.parent),
    ]
    report: dict[str, Any] = json.loads(pip.run("find versions", *arguments, *target.options, with_extras(wheel)))
    found = {normalized(item["metadata"]["name"]): item["metadata"]["version"] for item in report["install"]}
    del found["taskgraph-scheduler"]
    old = read_pins(PINS.read_text("utf-8")) if PINS.exists() else {}
    PINS.write_text(
        f"# Python {target.python}: the exact versions that the function app is packaged with, everything that\n"
        f"# taskgraph-scheduler[{','.join(extras())}] requires. Written by scripts/package-functions --pin, and held\n"
        "# against pyproject.toml by the tests. Which index they come from is for pip's own settings to say, and\n"
        "# hashes would tie them to one platform.\n"
        "# taskgraph itself is not here: it is built from the working tree, and the packaged copy of this file names\n"
        "# that wheel, which lies beside it, so that a build in Azure would find the same.\n"
        + "".join(f"{name}=={version}\n" for name, version in sorted(found.items())),
        "utf-8",
    )
    for name in sorted(old.keys() | found.keys()):
        if old.get(name) != found.get(name):
            say(f"{name}: {old.get(name, 'new')} -> {found.get(name, 'gone')}")
    say(f"{len(found)} pins in {PINS.relative_to(ROOT)}")


def install(pip: Pip, target: Target, wheel: Path, site: Path) -> None:
    """Everything into the folder that Azure imports from. A requirement that is not pinned is an error here."""
    say(f"fetching the pinned dependencies for Python {target.python} on Linux")
    arguments = ["install", "--quiet", "--no-compile", "--target", str(site), "--requirement", str(PINS)]
    pip.run(
        f"install what {PINS.relative_to(ROOT)} pins, for Python {target.python}. If the pins are behind "
        f"pyproject.toml, or made for another Python: scripts/package-functions --pin --python {target.python}",
        *arguments,
        *target.options,
        with_extras(wheel),
    )
    pins = read_pins(PINS.read_text("utf-8"))
    there = {normalized(each.name) for each in importlib.metadata.distributions(path=[str(site)])}
    if unpinned := sorted(there - pins.keys() - {"taskgraph-scheduler"}):
        give_up(f"required and not pinned: {', '.join(unpinned)}. scripts/package-functions --pin", EXIT_USAGE)


def is_tests(folder: Path, site: Path) -> bool:
    """Whether a folder inside a dependency holds its tests: it is named so, and lies inside a package."""
    return folder.name in TEST_FOLDERS and folder.parent != site and (folder.parent / "__init__.py").exists()


def prune(site: Path) -> None:
    """Take out what is of no use there, or of this machine; and its lines out of the lists of what is installed."""
    for folder in sorted(path for path in site.rglob("*") if path.is_dir()):
        if folder.exists() and (folder.name in FOREIGN or is_tests(folder, site)):
            shutil.rmtree(folder)
    for information in site.glob("*.dist-info"):
        for name in NOTES:
            (information / name).unlink(missing_ok=True)
        record = information / "RECORD"
        with record.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if (site / row[0]).exists()]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(sorted(rows))
        record.write_text(text.getvalue(), "utf-8")


def stage(folder: Path, wheel: Path) -> None:
    """The files beside the packages: the app, the wheel, and the requirements, for a build in Azure."""
    for name in APP_FILES:
        source = DEPLOY / name
        if not source.is_file():
            give_up(f"{source.relative_to(ROOT)} is missing", EXIT_USAGE)
        shutil.copyfile(source, folder / name)
    shutil.copyfile(wheel, folder / wheel.name)
    (folder / "requirements.txt").write_text(PINS.read_text("utf-8") + f"./{wheel.name}\n", "utf-8")


def files_of(folder: Path) -> Iterator[tuple[str, Path]]:
    """Names within the folder, sorted, and the files."""
    yield from sorted((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*") if path.is_file())


def write_zip(folder: Path, output: Path) -> None:
    """Sorted, with one time and one mode for all, so that equal files give equal bytes."""
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name(f".{output.name}.{os.getpid()}")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, path in files_of(folder):
            entry = zipfile.ZipInfo(name, ZIP_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, wherever this runs: else the mode would not count
            entry.external_attr = ZIP_MODE
            archive.writestr(entry, path.read_bytes(), compresslevel=6)
    unfinished.replace(output)


def replace_folder(staged: Path, into: Path) -> None:
    """Put the staged folder where it is wanted. What is there is replaced, if it was made here."""
    if into.exists():
        if not into.is_dir() or (any(into.iterdir()) and not (into / MARKER).is_file()):
            give_up(f"{into} is there and is no packaged app: name another folder, or remove it", EXIT_USAGE)
        shutil.rmtree(into)
    into.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(staged, into)


def sizes(site: Path) -> list[tuple[str, int]]:
    """Bytes by distribution, unpacked, largest first. Every file belongs to the one that lists it."""
    found = []
    for distribution in importlib.metadata.distributions(path=[str(site)]):
        files = [site / str(name) for name in distribution.files or ()]
        total = sum(path.stat().st_size for path in files if path.is_file())
        found.append((f"{normalized(distribution.name)} {distribution.version}", total))
    return sorted(found, key=lambda each: (-each[1], each[0]))


def mebibytes(count: int) -> str:
    """A size for people."""
    return f"{count / (1 << 20):.1f} MiB"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options. Ends with 2 and a usage line for others."""
    parser = argparse.ArgumentParser(
        prog="scripts/package-functions",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help=f"the zip (default, without --into: {OUTPUT.relative_to(ROOT)})"
    )
    parser.add_argument("--into", type=Path, metavar="DIR", help="the same as a folder; replaces what it made before")
    parser.add_argument("--python", default=PYTHON_DEFAULT, choices=PYTHONS, help="of the app (default: %(default)s)")
    parser.add_argument(
        "--platform",
        action="append",
        metavar="TAG",
        help=f"of the wheels, may be repeated (default: {PLATFORMS[0]} and the older ones that it includes)",
    )
    parser.add_argument("--pin", action="store_true", help="only bring deploy/requirements.txt up to date")
    parser.add_argument("--json", action="store_true", help="print what was made as JSON")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Package, or pin; the exit code."""
    options = parse(arguments)
    target = Target(options.python, tuple(options.platform or PLATFORMS))
    with tempfile.TemporaryDirectory(prefix="taskgraph-package-") as name:
        work = Path(name)
        pip = Pip(work / "venv")
        wheel = build_wheel(pip, work / "built")
        if options.pin:
            pin(pip, target, wheel)
            return 0
        try:
            pins = PINS.read_text("utf-8")
            read_pins(pins)
            if pinned_python(pins) != target.python:
                say(f"the pins are for Python {pinned_python(pins)}; the tests never ran these with {target.python}")
        except (OSError, ValueError) as error:
            give_up(f"{PINS.relative_to(ROOT)}: {error}. Write it anew: scripts/package-functions --pin", EXIT_USAGE)
        staged = work / "app"
        site = staged / SITE_PACKAGES
        install(pip, target, wheel, site)
        prune(site)
        stage(staged, wheel)
        answer: dict[str, Any] = {"python": target.python, "wheel": wheel.name}
        parts = sizes(site)
        answer["unpackedBytes"] = sum(path.stat().st_size for _, path in files_of(staged))
        answer["files"] = sum(1 for _ in files_of(staged))
        answer["parts"] = [{"name": part, "bytes": count} for part, count in parts]
        if options.into:
            replace_folder(staged, options.into)
            answer["folder"] = str(options.into)
        if options.output or not options.into:
            output = options.output or OUTPUT
            write_zip(staged, output)
            answer |= {
                "zip": str(output),
                "bytes": output.stat().st_size,
                "sha256": hashlib.sha256(output.read_bytes()).hexdigest(),
            }
    show(answer, as_json=options.json)
    return 0


def show(answer: dict[str, Any], *, as_json: bool) -> None:
    """What was made, and what to do with it."""
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    for kind in ("zip", "folder"):
        if kind in answer:
            print(answer[kind])
    unpacked, parts = answer["unpackedBytes"], answer["parts"]
    if "bytes" in answer:
        say(f"{mebibytes(answer['bytes'])} zipped, sha256 {answer['sha256']}")
    say(f"{mebibytes(unpacked)} unpacked in {answer['files']} files: taskgraph and {len(parts) - 1} dependencies")
    for part in parts[:6]:
        say(f"  {mebibytes(part['bytes']):>9}  {part['name']}")
    rest = sum(part["bytes"] for part in parts[6:])
    say(f"  {mebibytes(rest):>9}  the other {len(parts[6:])}")
    if "zip" in answer:
        say(
            f"next: deploy {answer['zip']} as docs/how-to/deployment.md says, or let azd do all of it: azd -C deploy up"
        )
    else:
        say("next: azd -C deploy up makes such a folder by itself, and deploys it")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
