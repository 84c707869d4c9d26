"""What the page takes in a browser: `.venv/bin/python -m tests.bench.page`, as tables for docs/benchmarks/page.md.

Parts, all of them where none is named: `load` (a tab on a graph of 10,000 and of 100,000 tasks: by the API over a file
where it has run, and by a link to tables of the emulator where it has not), `rest` (requests of a tab that rests),
`forecast` (the timeline of a graph that runs, with what is left of it), `run` (a graph of 10,000 tasks that runs while
tabs look at it). Everything is done --repeat times, in turn.
"""

import argparse
import functools
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from azure.storage.blob import BlobServiceClient
from playwright.sync_api import Browser, sync_playwright

from tests import azurite as emulator
from tests.bench import report
from tests.bench.page import shown, stores, watched
from tests.bench.page.shown import ZOOMS, Shown
from tests.browser.chromium import find
from tests.browser.hosted import hosting

PARTS: Final = ("load", "rest", "forecast", "run")
_NAMES: Final = {"ten": "10,000 tasks", "hundred": "100,000 tasks"}
_FLAGS: Final = ["--no-sandbox", "--disable-dev-shm-usage"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.page")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the graphs are kept, for the next call")
    parser.add_argument("--no-tables", action="store_true", help="leave the emulator out")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    parts = given.parts or PARTS
    print(f"{report.now()}: {_machine()}; {given.repeat} repetitions, medians (least to most).\n")
    with ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="taskgraph-page-")))
        folder.mkdir(parents=True, exist_ok=True)
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=find(), args=_FLAGS)
        stack.callback(browser.close)
        print(f"Chromium {browser.version}, headless, without a graphics card.\n", flush=True)
        if "load" in parts:
            print(f"JavaScript before lazy parts: {shown.code_kilobytes():.1f} kB by gzip.\n")
            _load(browser, folder, given.repeat, tables=not given.no_tables)
        if "rest" in parts:
            _rest(browser, folder)
        if "forecast" in parts:
            _forecast(browser, given.repeat)
        if "run" in parts:
            _run(browser, stack.enter_context(watched.niced(playwright)), given.repeat)
    print(f"Load when it ended: {os.getloadavg()[0]:.1f}.")


def _machine() -> str:
    found = report.machine()
    machine = f"{found['cores']} × {found['cpu']}, {found['memoryGibibytes']} GiB, {found['system']}"
    return f"{machine}; load {found['load']:.1f}"


# --- one tab


@contextmanager
def _sources(folder: Path, *, tables: bool) -> Iterator[dict[str, Callable[[str], tuple[str, str]]]]:
    """By the name of each: what gives, for a graph, an address that signs in, and that of the page."""
    with ExitStack() as stack:
        api = stack.enter_context(stores.serving(stores.made(folder)))
        found: dict[str, Callable[[str], tuple[str, str]]] = {"API, a file": lambda graph: ("", api.address)}
        if tables:
            account = stack.enter_context(emulator.azurite())
            host = stack.enter_context(hosting())
            stores.typed(account, "web", "deploy", "--site", host.address)
            with BlobServiceClient.from_connection_string(account) as blobs:
                host.take(blobs.get_container_client("$web"))
            for graph in stores.LARGE:
                stores.typed(account, "submit", str(stores.document(folder, graph)), "--id", graph)
            links = {graph: stores.typed(account, "grant", graph, "--read", "--link") for graph in stores.LARGE}
            found["a link, tables of Azurite"] = lambda graph: (links[graph], host.address)
        yield found


def _load(browser: Browser, folder: Path, repeat: int, *, tables: bool) -> None:
    found: dict[tuple[str, str, str], list[Shown]] = {}
    with _sources(folder, tables=tables) as sources:
        for _ in range(repeat):
            for graph in stores.LARGE:
                for source, of in sources.items():
                    for view in ("dag", "tasks"):
                        first, page = of(graph)
                        one = shown.shown(browser, first, f"{page}/#/g/{graph}/{view}")
                        found.setdefault((graph, source, view), []).append(one)
                        _note(graph, source, view, one)
    rows = []
    for (graph, source, view), each in found.items():
        times = [_said([getattr(one, name) for one in each], 2) for name in ("content", "usable")]
        sizes = [_said([getattr(one, name) for one in each], 0) for name in ("heap", "process")]
        frames = [_said(rates, 0) for rates in zip(*(one.frames for one in each), strict=True)]
        named = [_NAMES[graph], source, "graph" if view == "dag" else "table"]
        rows.append([*named, *times, *sizes, *(frames or ["–"] * (len(ZOOMS) + 1))])
    pans = [f"pan, × {1.822**turns:.0f}" for turns in ZOOMS]
    heads = ["graph", "source", "view", "content s", "usable s", "heap MB", "process MB", *pans, "zoom"]
    _table(heads, rows)


# --- a tab that rests


def _rest(browser: Browser, folder: Path) -> None:
    rows = []
    with stores.serving(stores.made(folder)) as api:
        waits = {"tasks": {f"t{number}": {"task": {"target": "none"}} for number in range(1_000)}}
        api.ask("PUT", "/graphs/waits", waits)
        for name, graph in (("a graph that has ended", "ten"), ("one whose 1,000 tasks wait for a worker", "waits")):
            for hidden in (False, True):
                asked = shown.rest(browser, f"{api.address}/#/g/{graph}/dag", hidden=hidden)
                rows.append([name, "hidden" if hidden else "seen", f"{asked:.0f}"])
    _table(["a tab on", "", "requests a minute"], rows)


# --- what is left


def _forecast(browser: Browser, repeat: int) -> None:
    rows = []
    for lanes in ("task", "target"):
        found, cpu = [], []
        for _ in range(repeat):
            with tempfile.TemporaryDirectory() as folder, stores.serving(f"sqlite:///{folder}/s.db", slots=16) as api:
                api.ask("PUT", "/graphs/live", stores.lasting())
                begun = watched.cpu_of(api.process)
                found.append(shown.foreseen(browser, f"{api.address}/#/g/live/time?by={lanes}"))
                cpu.append(watched.cpu_of(api.process) - begun)
            _note(lanes, found[-1], cpu[-1])
        row = [_said([getattr(one, name) for one in found], 0) for name in shown.Foreseen.__slots__]
        rows.append([lanes, _said(cpu, 0), *row])
    heads = ["lanes by", "CPU s of the server", "answer s", "kB", "longest task ms", "frames/s without", "frames/s"]
    _table(heads, rows)


# --- a graph that runs


def _run(browser: Browser, niced: Browser, repeat: int) -> None:
    ways: dict[str, Any] = {
        "no one": lambda *_: watched.Looking(),
        "requests of 20 browsers": functools.partial(watched.Clients, together=False),
        "requests of 20 tabs of one": functools.partial(watched.Clients, together=True),
        "20 windows, Chromium at nice 19": lambda api, _, stack: watched.Tabs(api, niced, stack),
        "20 windows": lambda api, _, stack: watched.Tabs(api, browser, stack),
        "1 window, graph": lambda api, _, stack: watched.Tabs(api, browser, stack, 1),
        "1 window, table": lambda api, _, stack: watched.Tabs(api, browser, stack, 1, "tasks"),
    }
    works: dict[str, list[str]] = {"nothing": [], "`sleep 0.1`": ["sleep", "0.1"]}
    found: dict[tuple[str, str], list[watched.Ran]] = {}
    for _ in range(repeat):
        for work, command in works.items():
            for way, look in ways.items():
                found.setdefault((work, way), []).append(watched.ran(look, command))
                _note(work, way, found[work, way][-1])
    rows = []
    for (work, way), each in found.items():
        alone = found[work, "no one"]
        lost = statistics.median(1 - one.rate / other.rate for one, other in zip(each, alone, strict=True))
        rate, *rest = (
            _said([getattr(one, name) for one in each], digits)
            for name, digits in (("rate", 0), ("cpu", 3), ("requests", 0), ("others", 1), ("frames", 0), ("longest", 0))
        )
        rows.append([work, way, rate, "–" if each is alone else f"{100 * lost:.0f}", *rest])
    heads = ["each task does", "who looks", "tasks/s", "loses %", "CPU ms/task of the server", "requests"]
    _table([*heads, "CPU s of who looks", "frames/s", "longest task ms"], rows)


# --- text


def _said(values: Sequence[float | None], digits: int) -> str:
    known = [each for each in values if each is not None]
    if not known:
        return "–"
    middle, least, most = (f"{of(known):,.{digits}f}" for of in (statistics.median, min, max))
    return middle if least == most else f"**{middle}** ({least}–{most})"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for row in (heads, ["---"] * len(heads), *rows):
        print(f"| {' | '.join(row)} |")
    print(flush=True)


def _note(*what: object) -> None:
    print(*what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
