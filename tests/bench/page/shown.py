"""What one tab takes: time until it shows something and is of use, frames, memory, and requests while it rests."""

import gzip
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page

from taskgraph.interfaces.web import files
from tests.browser.budgets import WATCH, frames, taken

ZOOMS: Final = (0, 4, 8)
"""Turns of a wheel from the whole inwards; each makes everything 1.8 times as large."""

_WHEEL: Final = 240
_FRAMES_SECONDS: Final = 3.0
_REST_SECONDS: Final = 60.0
_SETTLE_SECONDS: Final = 70.0  # what it looks for is looked for ever more rarely
_ANSWER_SECONDS: Final = 300.0
_TASKS: Final = """() => {
  window.tasks = [];
  new PerformanceObserver((seen) => tasks.push(...seen.getEntries())).observe({entryTypes: ["longtask"]});
}"""
_LONGEST: Final = """(since) => Math.max(0, ...tasks.filter(
  (each) => each.startTime + each.duration >= since).map((each) => each.duration))"""
_UNSEEN: Final = """() => {
  Object.defineProperties(document, {hidden: {value: true}, visibilityState: {value: "hidden"}});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def code_kilobytes() -> float:
    """By gzip, of what the page loads before any part that is loaded when it is asked for."""
    first = re.findall(r'(?:src|href)="([^"]+\.js)"', (files.STATIC / "index.html").read_text())
    return sum(len(gzip.compress((files.STATIC / each).read_bytes(), 9)) for each in first) / 1000


@dataclass(frozen=True, slots=True)
class Shown:
    """content, usable: seconds from the beginning of the navigation. heap, process: megabytes that are held then.

    frames: each second while it is dragged, at each of ZOOMS, and while it is zoomed; none of a table.
    """

    content: float
    usable: float
    heap: float
    process: float
    frames: tuple[float, ...] = ()


@contextmanager
def tab(browser: Browser) -> Iterator[Page]:
    """With nothing kept from before."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    try:
        yield context.new_page()
    finally:
        context.close()


def shown(browser: Browser, first: str, address: str) -> Shown:
    """first: an address that signs in, "" for none. address: of a view of a graph, which is opened anew."""
    with tab(browser) as page:
        if first:
            page.goto(first)
            page.wait_for_selector("main")
        page.add_init_script(WATCH)
        found = taken(page, address)
        session = page.context.new_cdp_session(page)
        session.send("HeapProfiler.collectGarbage")
        session.send("Performance.enable")
        metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
        drawn = page.locator("main canvas").count() > 0
        heap, process = metrics["JSHeapUsedSize"] / 1e6, _renderer(browser)
        return Shown(found.content / 1000, found.usable / 1000, heap, process, _moved(page) if drawn else ())


@dataclass(frozen=True, slots=True)
class Foreseen:
    """seconds: until the forecast is there. kilobytes: of its answer, packed. longest: of a task then, milliseconds.

    before, after: frames each second while the timeline is dragged without it and with it.
    """

    seconds: float
    kilobytes: float
    longest: float
    before: float
    after: float


def foreseen(browser: Browser, address: str) -> Foreseen:
    """The timeline of a graph that runs, as its forecast comes in."""
    with tab(browser) as page:
        page.add_init_script(f"({_TASKS})()")
        page.goto(address)
        page.wait_for_selector(".drawing canvas")
        page.wait_for_timeout(2_000)
        before = frames(page, _FRAMES_SECONDS)
        begun = page.evaluate("performance.now()")
        page.keyboard.press("v")
        page.wait_for_selector(".ahead .ghost", timeout=_ANSWER_SECONDS * 1000)
        there = page.evaluate("performance.now()")
        page.wait_for_timeout(2_000)
        longest = page.evaluate(_LONGEST, there - 100)
        asked = "performance.getEntriesByType('resource').find((each) => each.name.includes('/rehearsal?'))"
        size = page.evaluate(f"{asked}.encodedBodySize")
        return Foreseen((there - begun) / 1000, size / 1000, longest, before, frames(page, _FRAMES_SECONDS))


def _moved(page: Page) -> tuple[float, ...]:
    pans = []
    before = 0
    for turns in ZOOMS:
        for _ in range(turns - before):
            _turn(page, -_WHEEL)
        before = turns
        page.wait_for_timeout(1_000)  # a sharper picture is made aside
        pans.append(frames(page, _FRAMES_SECONDS))
    return (*pans, _zoomed(page))


def _turn(page: Page, by: int) -> None:
    box = page.locator("main canvas").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.wheel(0, by)


def _zoomed(page: Page) -> float:
    """Frames a second while a wheel turns outwards and inwards."""
    page.evaluate("() => { window.framesSeen = 0 }")  # `frames` has begun to count them
    begun = page.evaluate("performance.now()")
    step = 0
    while (lasted := page.evaluate("performance.now()") - begun) < _FRAMES_SECONDS * 1000:
        page.mouse.wheel(0, 60 if step % 120 < 60 else -60)
        step += 1
    return float(page.evaluate("window.framesSeen")) / (lasted / 1000)


def _renderer(browser: Browser) -> float:
    """Megabytes of memory of the largest process that shows a page."""
    session = browser.new_browser_cdp_session()
    found = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return max(_resident(each["id"]) for each in found if each["type"] == "renderer")


def _resident(process: int) -> float:
    text = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    assert found
    return int(found[1]) / 1000


def rest(browser: Browser, address: str, *, hidden: bool) -> float:
    """Requests a minute of a tab that rests, or that is not seen."""
    asked: list[str] = []
    with tab(browser) as page:
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        page.wait_for_selector("main")
        if hidden:
            page.evaluate(_UNSEEN)
        page.wait_for_timeout(_SETTLE_SECONDS * 1000)  # and what waits when it is hidden may end
        asked.clear()
        page.wait_for_timeout(_REST_SECONDS * 1000)
        return len(asked) * 60 / _REST_SECONDS
