"""taskgraph as one engine of a comparison: `python -m tests.bench.peer VARIANT`, told what to run by lines of JSON.

What this room is for: giving graphs to `taskgraph run FILE`, the way everybody does, and timing that. It never reaches
past the command line, and knows nothing of other engines; `comparison` starts those.

The lines: it says `{"ready": true}` once; for each graph on stdin (label -> the labels that it requires, each after
what it requires) it says `{"go": true}` and, at the end, `{"seconds": …, "done": …}` or `{"error": …}`. It ends when
stdin does. PEER_TRACE names a file to which every task writes its label, where a task can.

Writing the graph's file is not in the time. All else is: reading and checking the file, opening the store, submitting,
running, closing the store, printing the result. In-process variants call the command in this process, which has
interpreter and modules loaded as other engines' processes have, over one store; the others start it anew for each
graph, in a folder of its own, as one does with a build tool.
"""

import contextlib
import io
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

from taskgraph.__main__ import collect_seldom
from tests.azurite import azurite
from tests.bench.shapes import Requirements

ROOT: Final = Path(__file__).resolve().parents[2]
TRACE: Final = os.environ.get("PEER_TRACE", "")


@dataclass(frozen=True, slots=True)
class Variant:
    """How the command is called. options: after the store's path; anew: a process and a store for each graph."""

    payload: str
    options: str = ""
    azure: bool = False
    anew: bool = False


VARIANTS: Final[Mapping[str, Variant]] = {
    "noop": Variant("noop"),
    "noop-full": Variant("noop", options="?synchronous=full"),
    "call": Variant("call"),
    "azurite": Variant("noop", azure=True),
    "true": Variant("command"),
    "true-anew": Variant("command", anew=True),
}


async def nothing(label: str) -> None:
    """What a task calls in the variant `call`: a Python coroutine, with an argument."""
    if TRACE:
        with open(TRACE, "a", encoding="utf-8") as trace:
            trace.write(f"{label}\n")


def payload_of(kind: str, label: str) -> dict[str, Any]:
    """The payload of one task."""
    if kind == "call":
        return {"call": "nothing", "arguments": {"label": label}}
    if kind == "command":
        return {"command": ["sh", "-c", 'echo "$0" >> "$PEER_TRACE"', label] if TRACE else ["true"]}
    return {}


def document_of(graph: Requirements, kind: str) -> str:
    """The graph as a document for `taskgraph run`."""
    tasks = {label: {"requires": needs, "task": {"payload": payload_of(kind, label)}} for label, needs in graph.items()}
    return json.dumps({"tasks": tasks})


class Engine:
    """One variant, in one folder. store: where its graphs go; "" for the usual place in each working directory."""

    def __init__(self, variant: Variant, folder: Path, store: str) -> None:
        self._variant = variant
        self._folder = folder
        self._store = store
        self._graphs = 0
        self._command: Any = None

    def prepare(self, graph: Requirements) -> Path:
        """Write the graph's file; not timed."""
        self._graphs += 1
        place = self._folder / str(self._graphs)
        place.mkdir()
        path = place / "graph.json"
        path.write_text(document_of(graph, self._variant.payload), "utf-8")
        return path

    def run(self, path: Path) -> int:
        """Run the file; gives how many tasks the command says have completed. Raises RuntimeError if it fails."""
        code, text = self._anew(path) if self._variant.anew else self._here(path)
        told = json.loads(text or "{}")
        if code or told.get("state") != "finished":
            raise RuntimeError(f"taskgraph run: exit code {code}, {text[:200]}")
        return int(told["counts"]["completed"])

    def _words(self, path: Path) -> list[str]:
        words = ["run", str(path), "--json"]
        if self._store:
            words += ["--store", self._store]
        if self._variant.payload == "call":
            words += ["--python", "tests.bench.peer:nothing"]
        return words

    def _here(self, path: Path) -> tuple[int, str]:
        if self._command is None:  # a command as it is typed makes one parser, and not those of all
            import typer.main

            from taskgraph.interfaces.cli import app

            # As a command begins: else a look through all garbage, some milliseconds, is in the time of each graph.
            collect_seldom()
            self._command = typer.main.get_command(app)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            code = self._command.main(self._words(path), prog_name="taskgraph", standalone_mode=False)
        return int(code or 0), printed.getvalue()

    def _anew(self, path: Path) -> tuple[int, str]:
        words = [str(ROOT / "scripts" / "taskgraph"), *self._words(path)]
        ended = subprocess.run(words, cwd=path.parent, stdout=subprocess.PIPE, check=False, text=True)
        return ended.returncode, ended.stdout


@contextlib.contextmanager
def opened(name: str, folder: Path) -> Iterator[Engine]:
    """The engine of a variant; what it needs beside itself is ended on leaving."""
    variant = VARIANTS[name]
    with contextlib.ExitStack() as stack:
        store = "" if variant.anew else f"sqlite:///{folder}/store/taskgraph.db{variant.options}"
        if variant.azure:
            store = stack.enter_context(azurite())
            os.environ["TASKGRAPH_PREFIX"] = f"b{secrets.token_hex(6)}"
        yield Engine(variant, folder, store)


def obey(orders: TextIO, say: Callable[[Mapping[str, Any]], None], engine: Engine) -> None:
    """Run one graph after the other until there are no more orders."""
    say({"ready": True})
    for line in orders:
        try:
            path = engine.prepare(json.loads(line))
            say({"go": True})
            began = time.perf_counter()
            done = engine.run(path)
            seconds = time.perf_counter() - began
        except Exception as error:  # whatever it is, the other side has to hear of it
            traceback.print_exc()
            say({"error": f"{type(error).__name__}: {error}"[:300]})
        else:
            say({"seconds": seconds, "done": done})


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in VARIANTS:
        print(f"usage: python -m tests.bench.peer {{{','.join(VARIANTS)}}}", file=sys.stderr)
        return 2
    # What is printed meanwhile must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(answer: Mapping[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    for name in [name for name in os.environ if name.startswith(("TASKGRAPH_", "AzureWebJobs"))]:
        del os.environ[name]
    with tempfile.TemporaryDirectory(prefix="taskgraph-peer-") as folder, opened(sys.argv[1], Path(folder)) as engine:
        obey(sys.stdin, say, engine)
    return 0


if __name__ == "__main__":
    sys.exit(main())
