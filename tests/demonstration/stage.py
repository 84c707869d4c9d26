"""Where a scene plays: a folder and a store of its own, commands that are typed and told, promises that are checked.

It never decides what is promised; scenes do.
"""

import asyncio
import contextlib
import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO, TypeVar

from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.settings import StoreSettings, read_settings
from tests.e2e.processes import ROOT, started, taskgraph, until, write_graph

T = TypeVar("T")

_WIDTH = 110
_CHARS_MAX = 140
_LOG_LINES = 40


class BrokenPromise(Exception):
    """Something is not as promised; the text says what."""


class Stage:
    """A place for one scene. On leaving, whatever it started is ended, commands of tasks too."""

    def __init__(self, kind: str, address: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.store = address or f"sqlite:///{folder}/store.db"
        self._more: dict[str, str] = {
            "TASKGRAPH_PREFIX": f"d{secrets.token_hex(6)}",
            "TASKGRAPH_WEBHOOK_HOSTS": "127.0.0.1",
            "COLUMNS": str(_WIDTH),
        }
        self._stack = contextlib.ExitStack()
        (folder / "begun").mkdir(exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        for pid in self.begun().values():  # should something have gone wrong
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @property
    def settings(self) -> StoreSettings:
        """As the commands have them."""
        return read_settings(self.store, self._more, cwd=self.folder)

    # --- what is said ---

    def note(self, text: str) -> None:
        """Say what happens beside the commands, or what is not shown."""
        print(f"-- {text}", flush=True)

    def promise(self, holds: object, text: str) -> None:
        """Say that something is as promised. Raises BrokenPromise if it is not."""
        if not holds:
            raise BrokenPromise(text)
        print(f"✓ {text}", flush=True)

    def tell_logs(self, stream: TextIO) -> None:
        """The end of what background processes have printed."""
        for path in sorted(self.folder.glob("*.log")):
            lines = path.read_text("utf-8", "replace").splitlines()[-_LOG_LINES:]
            print(f"--- {path.name}", *lines, sep="\n", file=stream, flush=True)

    # --- what is done ---

    def graph(self, name: str, tasks: Mapping[str, Any], **more: Any) -> str:
        """Write NAME.json; gives its name."""
        path = write_graph(self.folder / f"{name}.json", tasks)
        if more:
            path.write_text(json.dumps({"tasks": tasks, **more}))
        return path.name

    def tg(self, *words: str, code: int = 0, only: str = "") -> str:
        """Type a command and tell what it prints; gives stdout. Raises BrokenPromise for another exit code.

        only: tell lines with one of these words alone, parted by |.
        """
        done = self._typed(*words)
        told = [line.rstrip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        if only:
            told = [line for line in told if any(word in line for word in only.split("|"))]
        told = [line if len(line) <= _CHARS_MAX else line[:_CHARS_MAX] + "…" for line in told]
        if done.returncode:
            told.append(f"(exit code {done.returncode})")
        line = f"$ taskgraph {shlex.join(words)}"
        short = "  ⇒ ".join((line, " ".join(told)))
        if "\n" not in done.stdout.rstrip("\n") and len(short) <= _CHARS_MAX:
            print(short, flush=True)
        else:
            print(line, *(f"  {each}" for each in told), sep="\n", flush=True)
        if done.returncode != code:
            raise BrokenPromise(f"{shlex.join(words)} ends with {done.returncode}, not {code}: {done.stderr[-500:]}")
        return done.stdout

    def quietly(self, *words: str) -> str:
        """A command that is not told; gives what it prints, on either stream."""
        done = self._typed(*words)
        return done.stdout + done.stderr

    def _typed(self, *words: str) -> subprocess.CompletedProcess[str]:
        more: dict[str, Any] = {**self._more}
        done: subprocess.CompletedProcess[str] = taskgraph(*words, store=self.store, cwd=self.folder, **more)
        return done

    def background(self, *words: str, name: str = "") -> subprocess.Popen[bytes]:
        """Start a command that goes on until the scene ends."""
        print(f"$ taskgraph {shlex.join(words)} &", flush=True)
        return self._stack.enter_context(
            started(*words, store=self.store, cwd=self.folder, name=name or words[0], **self._more)
        )

    def program(self, *words: str, name: str) -> subprocess.Popen[bytes]:
        """Start a program of this folder that goes on until the scene ends."""
        code = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_module(sys.argv[0], run_name='__main__')"
        more = {**self._more, "PYTHONPATH": str(ROOT)}
        print(f"$ python -m {shlex.join(words)} &", flush=True)
        return self._stack.enter_context(
            started(*words, store=self.store, cwd=self.folder, name=name, code=code, **more)
        )

    def ask(self, look: Callable[[App], Awaitable[T]]) -> T:
        """Look into the store from here: a process for each look would take most of the time."""

        async def asked() -> T:
            async with open_app(self.settings) as app:
                return await look(app)

        return asyncio.run(asked())

    def begun(self) -> dict[str, int]:
        """label.run -> process id, of every command that has begun (see `scenes.marked`)."""
        return {path.name: int(text) for path in (self.folder / "begun").iterdir() if (text := path.read_text())}

    def open(self, gate: str) -> None:
        """Let tasks go on that wait for this gate."""
        (self.folder / gate).touch()

    def wait(self, condition: Callable[[], T], what: str, seconds: float = 60.0) -> T:
        """Wait until something is so. Raises AssertionError with what was waited for."""
        found: T = until(condition, seconds=seconds, what=what)
        return found

    def remove(self) -> None:
        """Take the folder away."""
        shutil.rmtree(self.folder, ignore_errors=True)


def lives(pid: int) -> bool:
    """Whether a process is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
