"""Pages whose commands are run: their files are written, their commands run, and what they print held against the page.

- A block behind a line that ends with a name and a colon (`` `site.yaml`: ``) is that file.
- A block `text` that begins with `$ ` is a session. A command ends with exit code 0, or with N where it says
  `# exit code N`; one that ends with `&` goes on until the page is over.
- Each line that is shown must be printed, and without a line `…` nothing else may be. `…` inside a line is any text;
  lengths of time, times of day and names of workers may be others. Tasks side by side end in any order, so the order
  of lines is not compared; lines on how far a graph is come by the clock, so they are not looked at.

`python -m tests.pages PAGE [HEADING]` prints a page with what its commands print now; `all`: each section by itself.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.e2e.processes import environment

_BLOCK: Final = re.compile(r"(?P<before>[^\n]*)\n\n?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_NAMED: Final = re.compile(r"`(?P<name>[\w./-]+\.\w+)`[^`]*:$")
_EXIT: Final = re.compile(r"\s+# exit code (\d+)$")
_PROGRESS: Final = re.compile(r"^\s+<T>\s+(?:running|blocked|finished|waiting): ")
_VARYING: Final = (
    (re.compile(r"\b\d+-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?"), "<D>"),
    (re.compile(r"\b\d[\d.]* (?:ms|s|min|h)\b(?: \d+ s\b)?"), "<T>"),
    (re.compile(r"\b[\w.-]+-\d+-[A-Za-z0-9_-]{6}\b"), "<W>"),
    (re.compile(r" +"), " "),
)


@dataclass
class Command:
    """A command of a session, and what the page shows of its output."""

    text: str
    shown: list[str] = field(default_factory=list)

    @property
    def code(self) -> int:
        found = _EXIT.search(self.text)
        return int(found[1]) if found else 0


@dataclass
class Piece:
    """A block of a page: the file that it is, or the commands of a session."""

    block: str
    name: str = ""
    text: str = ""
    commands: list[Command] = field(default_factory=list)


def sections(page: str) -> dict[str, str]:
    """The text under each heading of the second level."""
    _, *parts = re.split(r"^## ", page, flags=re.MULTILINE)
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def pieces(page: str) -> Iterator[Piece]:
    for found in _BLOCK.finditer(page):
        named = _NAMED.search(found["before"])
        if found["language"] == "text" and found["text"].startswith("$ "):
            yield Piece(found["text"], commands=session(found["text"]))
        elif named:
            yield Piece(found["text"], named["name"], found["text"])


def session(block: str) -> list[Command]:
    commands: list[Command] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line[2:]))
        elif commands[-1].text.endswith("\\"):
            commands[-1].text += f"\n{line}"
        else:
            commands[-1].shown.append(line)
    return commands


def alike(line: str) -> str:
    """A line with one word for all that differs from run to run."""
    for varying, word in _VARYING[:-1]:
        line = varying.sub(word, line)
    return line if _PROGRESS.match(line) else _VARYING[-1][0].sub(" ", line).strip()


def unlike(shown: list[str], printed: list[str]) -> list[str]:
    """What differs: lines that are shown and were not printed, and the other way round."""
    left = [line for line in map(alike, printed) if line and not _PROGRESS.match(line)]
    wrong = []
    for line in (each for each in map(alike, shown) if each and each != "…" and not _PROGRESS.match(each)):
        pattern = re.compile(".*".join(map(re.escape, re.split(" ?… ?", line))))
        match = next((each for each in left if pattern.fullmatch(each)), None)
        if match is None:
            wrong.append(f"- {line}")
        else:
            left.remove(match)
    return wrong if "…" in shown else wrong + [f"+ {line}" for line in left]


class Reader:
    """Does in a folder what a page says."""

    def __init__(self, folder: Path, store: str = "") -> None:
        self._folder = folder
        self._environment = environment(store, NO_COLOR="1", COLUMNS="100")
        if not store:
            del self._environment["TASKGRAPH_STORE"]
        self._environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self._environment['PATH']}"
        self._behind: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *error: object) -> None:
        for _, process in reversed(self._behind):
            process.terminate()
        for _, process in self._behind:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise

    def ended_early(self) -> list[str]:
        """What was to go on until the page is over, and has ended by itself."""
        return [
            f"$ {text}\nended with exit code {process.returncode}"
            for text, process in self._behind
            if process.poll() is not None
        ]

    def write(self, piece: Piece) -> None:
        path = self._folder / piece.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(piece.text, "utf-8")

    def run(self, command: Command) -> tuple[int, list[str]]:
        """The exit code, and the lines that were printed."""
        if command.text.endswith(" &"):
            with (self._folder / f"behind-{len(self._behind)}.log").open("wb") as log:
                process = subprocess.Popen(
                    ["bash", "-c", f"exec {command.text.removesuffix(' &')}"],
                    cwd=self._folder,
                    env=self._environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            self._behind.append((command.text, process))
            return command.code, []
        if exported := re.fullmatch(r"export (\w+)='?(.*?)'?", command.text):
            self._environment[exported[1]] = exported[2]
            return command.code, []
        done = subprocess.run(
            ["bash", "-c", command.text],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, [line.rstrip() for line in done.stdout.splitlines()]


def follow(page: str, folder: Path) -> list[str]:
    """Do what a page says; gives what is not as it says."""
    wrong = []
    with Reader(folder) as reader:
        for piece in pieces(page):
            if piece.name:
                reader.write(piece)
            for command in piece.commands:
                code, printed = reader.run(command)
                wrong += [f"$ {command.text}\n{each}" for each in unlike(command.shown, printed)]
                if code != command.code:
                    wrong.append(f"$ {command.text}\nexit code {code}\n" + "\n".join(printed))
        return wrong + reader.ended_early()


def recorded(page: str, folder: Path) -> str:
    """The page with what its commands print now, where that is not what it shows."""
    with Reader(folder) as reader:
        for piece in pieces(page):
            if piece.name:
                reader.write(piece)
            lines = []
            for command in piece.commands:
                code, printed = reader.run(command)
                if code != command.code:
                    print(f"exit code {code}: {command.text}", file=sys.stderr)
                kept = command.shown if not unlike(command.shown, printed) else printed
                lines += [f"$ {command.text}", *kept]
            if lines:
                page = page.replace(f"```text\n{piece.block}```", "\n".join(["```text", *lines, "```"]))
    return page


def main(path: str, heading: str = "") -> None:
    page = Path(path).read_text("utf-8")
    texts = [text for title, text in sections(page).items() if heading in {title, "all"}] if heading else [page]
    for text in texts:
        with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
            page = page.replace(text, recorded(text, Path(folder)))
    print(page, end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
