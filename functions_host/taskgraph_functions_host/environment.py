"""An environment of its own in which Microsoft's Python worker library runs.

What this room is for: a virtual environment with `azure-functions-runtime`, the protocol's messages, and what both
need, made once and found again. It is apart from others because the messages come as a package called
`tests`, which would stand before a repository's own, and because a scheduler should not bring grpc. It never
imports what it installs.

    python -m taskgraph_functions_host.environment FOLDER
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from taskgraph.model.errors import InvalidSettings

__all__ = ["DEFAULT_VARIABLE", "EnvironmentMissing", "default_folder", "is_ready", "main", "make", "python_of"]

DEFAULT_VARIABLE: Final = "TASKGRAPH_FUNCTIONS_ENVIRONMENT"
"""Names the folder where neither a checkout nor an option does."""

_WORKER: Final = (
    "azure-functions-runtime>=1.3,<2",
    "azure-functions-runtime-v1>=1.2,<2",  # for its messages alone: the other one does not bring them
)
_NEEDED: Final = (
    "azurefunctions-extensions-base>=1.2,<2",
    "grpcio>=1.70,<2",  # the messages' module imports it
    "protobuf>=5.29,<8",
)
_SDK_BELOW_3_13: Final = "azure-functions>=1.24,<2"
_SDK: Final = "azure-functions>=2.1,<3"

_PROBE: Final = (
    "import azure.functions, azure_functions_runtime, tests.protos\n"
    "tests.protos.StreamingMessage, azure_functions_runtime.invocation_request\n"
)
_SECONDS_MAX: Final = 900.0  # a download on a slow line; without a bound a dead index would hang for ever
_LINES_SHOWN_MAX: Final = 6

Say = Callable[[str], None]


class EnvironmentMissing(InvalidSettings):
    """The environment is not there and cannot be made; the text says why and what to do."""


def requirements(version: tuple[int, int]) -> tuple[str, ...]:
    """All that is installed for a version of Python, as pip reads it."""
    return (*_needed(version), *_WORKER)


def default_folder(environ: Mapping[str, str]) -> Path:
    """Where the environment is unless said otherwise: beside a checkout's own, or in the user's cache."""
    if named := environ.get(DEFAULT_VARIABLE):
        return Path(named)
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file() and (checkout / "scripts" / "lib.sh").is_file():
        return checkout / ".venv-functions"
    cache = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache, "taskgraph", f"functions-{sys.version_info.major}.{sys.version_info.minor}")


def python_of(folder: Path) -> Path:
    """The interpreter of an environment."""
    return folder / "bin" / "python"


def is_ready(folder: Path) -> bool:
    """Whether the environment holds exactly what this version of taskgraph asks for."""
    return _stamp(folder).exists() and os.access(python_of(folder), os.X_OK)


def make(folder: Path, say: Say, *, python: str = sys.executable) -> Path:
    """Make the environment, or find it made; gives its interpreter.

    say: takes what goes on, in words. Any number of processes may call this at once. Raises EnvironmentMissing.
    """
    folder = folder.absolute()
    if is_ready(folder):
        return python_of(folder)
    with _locked(folder):
        if not is_ready(folder):  # not done by another process meanwhile
            _install(folder, say, python)
    return python_of(folder)


def _install(folder: Path, say: Say, python: str) -> None:
    say(f"installing Microsoft's Functions worker library into {folder} (once; a minute)")
    if _version_of(folder) != sys.version_info[:2] or not _has_pip(folder):
        shutil.rmtree(folder, ignore_errors=True)
        remedy = "on Debian and Ubuntu: apt-get install python3-venv"
        try:
            _run([python, "-m", "venv", str(folder)], f"cannot make {folder} with {python}", remedy)
        except EnvironmentMissing:
            shutil.rmtree(folder, ignore_errors=True)  # what is half made, without pip, would be taken for whole
            raise
    pip = [str(python_of(folder)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    remedy = "the packages come from the index that pip is set to (PIP_INDEX_URL, pip.conf); running it again goes on"
    _run([*pip, *_needed(sys.version_info[:2])], "pip could not install what the worker library needs", remedy)
    # Its packages ask for Python 3.13 or later, because Azure uses them from there on. They run on 3.11 as well, which
    # is what the tests of taskgraph show. Alone, so that the wish is ignored for nothing else.
    alone = ["--no-deps", "--ignore-requires-python"]
    _run([*pip, *alone, *_WORKER], "pip could not install the worker library", remedy)
    _run(
        [str(python_of(folder)), "-I", "-c", _PROBE],
        f"the worker library in {folder} cannot be imported",
        f"remove {folder} and try again; if that does not help, its versions do not fit: please report this",
    )
    for old in folder.glob(".taskgraph-functions-*"):
        old.unlink()
    _stamp(folder).touch()


def _has_pip(folder: Path) -> bool:
    """Whether packages can be installed: an environment that was interrupted in the making has an interpreter alone."""
    command = [str(python_of(folder)), "-m", "pip", "--version"]
    try:
        return subprocess.run(command, capture_output=True, timeout=_SECONDS_MAX, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _run(command: Sequence[str], problem: str, remedy: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False)
    except FileNotFoundError as error:
        raise EnvironmentMissing(f"{problem}: there is no {command[0]}; {remedy}") from error
    except subprocess.TimeoutExpired as error:
        raise EnvironmentMissing(f"{problem} within {_SECONDS_MAX:g} s; {remedy}") from error
    except OSError as error:
        raise EnvironmentMissing(f"{problem}: {error.strerror}; {remedy}") from error
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        shown = [line for line in lines if not line.startswith(("WARNING", "[notice]"))] or lines
        raise EnvironmentMissing("\n".join([f"{problem}; {remedy}", *shown[-_LINES_SHOWN_MAX:]]))


def _needed(version: tuple[int, int]) -> tuple[str, ...]:
    return (_SDK if version >= (3, 13) else _SDK_BELOW_3_13, *_NEEDED)


def _version_of(folder: Path) -> tuple[int, ...]:
    """The version of Python that an environment was made for."""
    with contextlib.suppress(OSError):
        for line in (folder / "pyvenv.cfg").read_text("utf-8").splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "version":
                return tuple(int(part) for part in value.strip().split(".")[:2] if part.isdigit())
    return ()


def _stamp(folder: Path) -> Path:
    version = sys.version_info[:2]
    text = "\n".join([*map(str, version), *requirements(version)])
    return folder / f".taskgraph-functions-{zlib.crc32(text.encode()):08x}"


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold what others who make the same environment wait for. The file stays: to remove it would be a race."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        file = open(folder.parent / f".{folder.name.lstrip('.')}.lock", "ab")  # noqa: SIM115 - closed below, with the lock
    except OSError as error:
        raise EnvironmentMissing(f"cannot write beside {folder}: {error.strerror}; name another folder") from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str]) -> int:
    """Make the environment in a folder; 0 if it is there, 2 for bad usage, 69 where the machine lacks something."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m taskgraph_functions_host.environment FOLDER\n")
        return 2
    try:
        make(Path(arguments[0]), _say)
    except EnvironmentMissing as error:
        _say(str(error))
        return 69
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"taskgraph: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
