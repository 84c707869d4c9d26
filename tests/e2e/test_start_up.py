"""What a short command imports: start-up is most of its time, and a task may call several."""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.processes import environment, taskgraph, write_graph

PROGRAM = """
import json, sys
before = set(sys.modules)
import taskgraph.__main__ as program
try:
    program.main()
finally:
    with open({out!r}, "w") as file:
        json.dump(sorted(set(sys.modules) - before), file)
"""

# Of no use to a short command on an embedded store: clouds, what checks documents slowly, what typer brings along.
NEVER = (
    *("aiohttp", "attr", "azure", "cronsim", "cryptography", "jsonschema", "markdown_it", "opentelemetry", "pydantic"),
    *("pygments", "taskgraph.worker", "taskgraph.engine.consumer", "taskgraph.engine.schedules"),
)
LOOKS = (
    *("rich", "jsonschema_rs", "taskgraph.documents", "taskgraph.engine.handlers", "taskgraph.engine.poison"),
    *("taskgraph.model.messages", "taskgraph.protocol.decide", "taskgraph.interfaces.operations.requests"),
)


class Short(NamedTuple):
    """A short command. never: what it must not import. most: modules of ours and of third parties."""

    words: tuple[str, ...]
    never: tuple[str, ...]
    most: int


SHORT = (
    Short(("--version",), ("typer", "asyncio", "logging", "dataclasses", "taskgraph.interfaces.cli"), 4),
    Short(
        ("--help",),
        ("asyncio", "sqlite3", "jsonschema_rs", *(f"taskgraph.{room}" for room in ("engine", "queries"))),
        141,
    ),
    Short(("run", "--help"), ("asyncio", "sqlite3", "jsonschema_rs", "taskgraph.queries", "taskgraph.protocol"), 143),
    Short(("status", "looked-at"), LOOKS, 149),
    Short(("list",), LOOKS, 148),
    Short(("why", "looked-at", "a"), LOOKS, 148),
    Short(("show", "looked-at", "--match", "a"), LOOKS, 148),
    Short(("submit", "graph.json"), ("rich", "taskgraph.engine.plans", "taskgraph.protocol.invariants"), 220),
)


def imported(words: tuple[str, ...], folder: Path) -> list[str]:
    out = folder / "modules.json"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(out=str(out)), *words],
        cwd=folder,
        env=environment(f"sqlite:///{folder}/store.db"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(out.read_text())
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("start-up")
    write_graph(made / "graph.json", {"a": {"task": {}}})
    asked = taskgraph("submit", "graph.json", "--id", "looked-at", store=f"sqlite:///{made}/store.db", cwd=made)
    assert asked.returncode == 0, asked.stderr
    return made


@pytest.mark.parametrize("short", SHORT, ids=lambda short: " ".join(short.words))
def test_a_short_command_imports_little(short: Short, folder: Path) -> None:
    found = imported(short.words, folder)
    needless = [name for name in found for never in (*NEVER, *short.never) if f"{name}.".startswith(f"{never}.")]
    assert not needless
    counted = [name for name in found if name.split(".")[0] not in sys.stdlib_module_names]
    assert len(counted) <= short.most, "so many take a command's time: import what is seldom needed where it is"


def test_help_is_written_as_typer_writes_it(folder: Path) -> None:
    whole = "import typer.rich_utils, taskgraph.__main__ as program; program.main()"
    for words in (("--help",), ("run", "--help"), ("limit", "-h")):
        ours = taskgraph(*words, store="", cwd=folder)
        theirs = subprocess.run(
            [sys.executable, "-c", whole, *words],
            cwd=folder,
            env=environment(""),
            capture_output=True,
            text=True,
            check=True,
        )
        assert (ours.returncode, ours.stdout) == (0, theirs.stdout)


def test_a_mistyped_command_finds_its_neighbours(folder: Path) -> None:
    done = taskgraph("statsu", store="", cwd=folder)
    assert done.returncode == 2
    assert "“status”" in done.stderr


def test_a_short_command_does_not_look_through_what_it_imports(folder: Path) -> None:
    code = (
        "import gc, sys; sys.argv = ['taskgraph', '--help']\n"
        "try:\n    import taskgraph.__main__ as m; m.main()\nexcept SystemExit: pass\n"
        "print(sum(each['collections'] for each in gc.get_stats()), len(gc.get_objects()))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    collections, left = map(int, done.stdout.splitlines()[-1].split())
    assert collections < 20, "with Python's own threshold it is a hundred"
    assert left < 1000, "so much is looked through when the process ends"


def test_a_storage_account_is_opened_without_what_writes_and_reads_logs() -> None:
    code = (
        "import sys, taskgraph.storage.azure.account; print(*(name for name in sys.modules if 'azure.storage' in name))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if not name.startswith("taskgraph.")} <= {"azure.storage"}
