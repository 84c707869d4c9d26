"""What the page may take, measured in the browser itself; and graphs of a size at which it matters."""

from dataclasses import dataclass
from typing import Any, Final

from playwright.sync_api import Page

# When something is drawn: a canvas that is not of one colour, or a row of a table.
WATCH: Final = """
(() => {
  const small = new OffscreenCanvas(64, 64).getContext("2d", { willReadFrequently: true });
  const drawn = (canvas) => {
    if (!canvas.width || !canvas.height) return false;
    small.clearRect(0, 0, 64, 64);
    small.drawImage(canvas, 0, 0, 64, 64);
    const pixels = new Uint32Array(small.getImageData(0, 0, 64, 64).data.buffer);
    return pixels.some((each) => each !== pixels[0]);
  };
  const usable = () => !document.querySelector(".loading, [aria-busy=true]")
    && (document.querySelector("main .row") || [...document.querySelectorAll("main canvas")].some(drawn));
  const look = () => (usable() ? performance.measure("usable", { start: 0 }) : requestAnimationFrame(look));
  requestAnimationFrame(look);
})();
"""
_FRAMES: Final = """
() => {
  const counted = "framesSeen" in window;
  window.framesSeen = 0;
  const next = () => { window.framesSeen++; requestAnimationFrame(next); };
  if (!counted) next();
}
"""
_TAKEN: Final = """() => ({
  content: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Infinity,
  usable: performance.getEntriesByName("usable")[0].duration,
  heap: performance.memory.usedJSHeapSize / 1e6,
})"""


@dataclass(frozen=True, slots=True)
class Taken:
    """content, usable: milliseconds from the beginning of the navigation. heap: megabytes."""

    content: float
    usable: float
    heap: float


def layered(levels: int, width: int, requires: int) -> dict[str, Any]:
    """Each task requires so many of the level before."""
    tasks: dict[str, Any] = {f"0-{place}": {} for place in range(width)}
    for level in range(1, levels):
        for place in range(width):
            before = [f"{level - 1}-{(place * 7 + step * 13) % width}" for step in range(requires)]
            tasks[f"{level}-{place}"] = {"requires": before}
    return {"tasks": tasks}


def taken(page: Page, address: str) -> Taken:
    """Of a page that is opened there anew."""
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_function("() => performance.getEntriesByName('usable').length > 0", timeout=60_000)
    return Taken(**page.evaluate(_TAKEN))


def frames(page: Page, seconds: float) -> float:
    """Frames a second while a drawing is dragged to and fro."""
    box = page.locator("main canvas").first.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.evaluate(_FRAMES)
    begun = page.evaluate("performance.now()")
    step = 0
    while (lasted := page.evaluate("performance.now()") - begun) < seconds * 1000:
        step += 1
        page.mouse.move(x + 120 * (step % 3 - 1), y + 40 * (step % 5 - 2))
    page.mouse.up()
    return float(page.evaluate("window.framesSeen")) / (lasted / 1000)
