"""A graph of 10,000 tasks that runs while it is looked at: what the run loses, and how smooth the page is meanwhile."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, Playwright

from tests.bench.page.stores import Api, serving
from tests.browser.budgets import layered
from tests.browser.chromium import find

TABS: Final = 20
_LEVELS, _WIDTH = 100, 100
_SLOTS: Final = 32
_PAUSE_SECONDS: Final = 6.0  # workers look at least every 5 s whether a target is paused
_WEB: Final = Path(__file__).resolve().parents[3] / "web"
_NICE: Final = 19
_LONGEST: Final = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) window.longest = Math.max(window.longest, each.duration);
}).observe({ type: "longtask" });
"""
# Costs some of the processor, as each frame is made then.
_COUNTED: Final = f"""{_LONGEST}
window.framesSeen = 0;
const next = () => {{ window.framesSeen++; requestAnimationFrame(next); }};
next();
"""
_DRAWN: Final = "() => !document.querySelector('.loading, [aria-busy=true]') && document.querySelector('main canvas')"
_LISTED: Final = "() => document.querySelector('main .row')"


@dataclass(frozen=True, slots=True)
class Ran:
    """rate: tasks a second. cpu: milliseconds of the server for each task.

    requests, others: of all who looked, and their seconds of processor time. frames: a second, of a window alone.
    longest: milliseconds of the longest task of a window's script.
    """

    rate: float
    cpu: float
    requests: int = 0
    others: float = 0.0
    frames: float | None = None
    longest: float | None = None


class Looking:
    """Who looks at the graph: no one, as it is. All have loaded it when this is made."""

    requests = 0

    def begin(self) -> None:
        """The graph runs from now on."""

    def seen(self) -> tuple[float | None, float | None]:
        """Frames and longest task since then."""
        return None, None

    def end(self) -> None:
        """It has finished."""

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        return 0.0


class Clients(Looking):
    """Tabs without a screen, in one process: the requests of tabs, and hardly anything else.

    together: of one browser, where three of them wait for news and the others look.
    """

    def __init__(self, api: Api, folder: Path, stack: ExitStack, *, together: bool) -> None:
        program = folder / "followers.mjs"
        bundler = [str(_WEB / "node_modules" / ".bin" / "esbuild"), "harness/followers.ts", "--bundle"]
        options = ["--format=esm", "--platform=node", "--log-level=error", f"--outfile={program}"]
        subprocess.run([*bundler, *options], cwd=_WEB, check=True)
        asked = json.dumps({"api": api.address, "graph": "g", "count": TABS, "together": together})
        command = ["nice", "-n", str(_NICE), "node", str(program), asked]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        stack.callback(self._process.wait, 60)
        stack.callback(self._process.terminate)
        assert self._process.stdout
        assert self._process.stdout.readline() == "loaded\n"

    def end(self) -> None:
        assert self._process.stdout
        self.requests = int(self._process.stdout.readline())

    def cpu(self) -> float:
        return cpu_of(self._process.pid)


class Tabs(Looking):
    """Tabs on the drawing of the graph, each in a window and a profile of its own: Chromium draws no tab behind."""

    def __init__(self, api: Api, browser: Browser, stack: ExitStack, count: int = TABS, view: str = "dag") -> None:
        self.pages: list[Page] = []
        self._session = browser.new_browser_cdp_session()
        for _ in range(count):
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            stack.callback(context.close)
            context.add_init_script(_COUNTED if count == 1 else _LONGEST)
            context.on("request", self._asked)
            self.pages.append(context.new_page())
            self.pages[-1].goto(f"{api.address}/#/g/g/{view}")
        for page in self.pages:
            page.wait_for_function(_DRAWN if view == "dag" else _LISTED, timeout=120_000)

    def _asked(self, _: object) -> None:
        self.requests += 1

    def begin(self) -> None:
        self.requests = 0
        for page in self.pages:
            page.evaluate("() => { window.longest = 0; window.framesSeen = 0; window.begun = performance.now(); }")

    def seen(self) -> tuple[float | None, float | None]:
        longest = max(page.evaluate("window.longest") for page in self.pages)
        if len(self.pages) > 1:
            return None, longest
        return self.pages[0].evaluate("window.framesSeen / (performance.now() - window.begun) * 1000"), longest

    def cpu(self) -> float:
        found = self._session.send("SystemInfo.getProcessInfo")["processInfo"]
        return sum(float(each["cpuTime"]) for each in found)


def ran(look: Callable[[Api, Path, ExitStack], Looking], command: list[str]) -> Ran:
    """Runs the graph once, on a store and a server of its own. command: of each task; empty where it does nothing."""
    tasks = _LEVELS * _WIDTH
    document = layered(_LEVELS, _WIDTH, 3)
    if command:
        for task in document["tasks"].values():
            task["task"] = {"payload": {"command": command}}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="taskgraph-watched-")))
        api = stack.enter_context(serving(f"sqlite:///{folder}/store.db", slots=_SLOTS))
        api.ask("POST", "/targets/default:pause")
        time.sleep(_PAUSE_SECONDS)
        api.ask("PUT", "/graphs/g", document)
        looking = look(api, folder, stack)
        before = cpu_of(api.process)
        last = api.ask("GET", "/graphs/g/events")["events"][-1]["cursor"]
        api.ask("POST", "/targets/default:resume")
        [first, *_] = api.ask("GET", f"/graphs/g/events?since={last}&wait=30")["events"]
        looking.begin()
        others = looking.cpu()
        lasted = api.ended("g") - datetime.fromisoformat(first["time"]).timestamp()
        spent = cpu_of(api.process) - before
        others = looking.cpu() - others
        seen = looking.seen()
        looking.end()
        return Ran(tasks / lasted, spent / tasks * 1000, looking.requests, others, *seen)


def cpu_of(process: int) -> float:
    """Seconds of processor time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def niced(playwright: Playwright) -> Iterator[Browser]:
    """A browser that takes only what others leave of the processor."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "chromium"
        program.write_text(f'#!/bin/sh\nexec nice -n {_NICE} {find()} "$@"\n')
        program.chmod(0o755)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()
