"""Run TLC over configurations of docs/protocol, and read what it found.

What this room is for: the judge behind `scripts/model-check` and the tests beside it. A configuration says in its own
comments which promise it must break (`expect: S9`); one that says nothing must keep them all. It never installs
anything: scripts/model-check brings the tools.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "docs" / "explanation" / "protocol"
JAR: Final = ROOT / "build" / "tlc" / "tla2tools.jar"

SECONDS_MAX: Final = 900.0
_HEAP: Final = "-Xmx3g"


class TlcError(Exception):
    """TLC did not come to an answer; the text is what it said."""


@dataclass(frozen=True, slots=True)
class Found:
    """What TLC found in one configuration.

    broken: the promise that is broken, "" if all of them hold in every reachable state. depth: of the state graph, 0
    where TLC does not tell (it stopped at a broken liveness property). seconds: wall time, with starting up.
    """

    broken: str
    states: int
    distinct: int
    depth: int
    seconds: float
    output: str


def java() -> str | None:
    """The Java that runs TLC, or None."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


def lacking() -> str:
    """What this machine lacks for running TLC, "" if nothing."""
    if java() is None:
        return "no java"
    return "" if JAR.exists() else "no TLC (scripts/model-check brings it)"


def configurations() -> list[str]:
    """Names of all configurations, such as `holds/chain`, those that hold first."""
    found = [str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.glob("*/*.cfg")]
    return sorted(found, key=lambda name: (not name.startswith("holds/"), name))


def text_of(name: str) -> str:
    """A configuration. Raises FileNotFoundError."""
    return (FOLDER / f"{name}.cfg").read_text("utf-8")


def module_of(text: str) -> str:
    """The module that a configuration is for."""
    found = re.search(r"^\\\* module: (\w+)$", text, re.MULTILINE)
    return found[1] if found else "Shapes"


def expected(text: str) -> str:
    """The promise that a configuration must break, "" if it must keep them all."""
    found = re.search(r"^\\\* expect: (\w+)$", text, re.MULTILINE)
    return found[1] if found else ""


def check(text: str) -> Found:
    """Let TLC look at every state of a configuration, on one core. Raises TlcError."""
    program = java()
    if program is None:
        raise TlcError("no java")
    with tempfile.TemporaryDirectory(prefix="taskgraph-tlc-") as scratch:
        configuration = Path(scratch) / "configuration.cfg"
        configuration.write_text(text, "utf-8")
        command = [program, _HEAP, "-XX:+UseSerialGC", f"-Djava.io.tmpdir={scratch}", "-cp", str(JAR), "tlc2.TLC"]
        # -deadlock: do not look for deadlocks, since a graph that has ended rests. -fp: the same run every time.
        command += ["-workers", "1", "-deadlock", "-nowarning", "-fp", "0", "-metadir", str(Path(scratch) / "states")]
        command += ["-config", str(configuration), f"{module_of(text)}.tla"]
        began = time.monotonic()
        try:
            run = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        except subprocess.TimeoutExpired as error:
            raise TlcError(f"no answer within {SECONDS_MAX:.0f} s") from error
        return read(run.stdout + run.stderr, text, time.monotonic() - began)


def read(output: str, text: str, seconds: float) -> Found:
    """What TLC says, as values. Raises TlcError if it says something else."""
    counts = re.findall(r"^(\d+) states generated, (\d+) distinct states found", output, re.MULTILINE)
    depth = re.search(r"depth of the complete state graph search is (\d+)", output)
    invariant = re.search(r"^Error: Invariant (\w+) is violated", output, re.MULTILINE)
    properties = re.search(r"^PROPERTIES (\w+)$", text, re.MULTILINE)
    if invariant:
        broken = invariant[1]
    elif properties and re.search(r"Temporal properties were violated|Action property .* is violated", output):
        broken = properties[1]
    elif "Model checking completed. No error has been found." in output and "Error:" not in output:
        broken = ""
    else:
        raise TlcError(output)
    if not counts:
        raise TlcError(output)
    states, distinct = counts[-1]
    return Found(broken, int(states), int(distinct), int(depth[1]) if depth else 0, seconds, output)


def main(names: Sequence[str]) -> int:
    """Check configurations and print a line for each. Gives the exit code."""
    wrong = 0
    for name in names or configurations():
        text = text_of(name)
        found = check(text)
        want = expected(text)
        verdict = f"breaks {found.broken}" if found.broken else "holds"
        if found.broken != want:
            wrong += 1
            verdict += f", and should {'break ' + want if want else 'hold'}"
        print(
            f"{name:26} {found.distinct:>9,} distinct {found.states:>11,} states  depth {found.depth:>3}"
            f"  {found.seconds:>6.1f} s  {verdict}",
            flush=True,
        )
        if found.broken != want and found.broken:
            print(found.output, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (TlcError, FileNotFoundError) as error:
        print(f"model-check: {error}", file=sys.stderr)
        sys.exit(2)
