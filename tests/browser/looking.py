"""A page that is looked at: what it does beside showing is noted, and must be nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page

from tests.browser.sources import Source

_LOOKS_MAX: Final = 200
Theme = Literal["light", "dark"]

ROOT: Final = Path(__file__).resolve().parents[2]
AXE: Final = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
WIDE: Final = (1440, 900)
MIDDLE: Final = (1024, 768)
NARROW: Final = (390, 844)

# In the worker what the policy refuses is a line of the console alone.
_WATCH: Final = """addEventListener("securitypolicyviolation", (event) => console.error(
  "Content Security Policy:", event.effectiveDirective, event.blockedURI, event.sourceFile, event.lineNumber))"""
_STILL: Final = """() => document.querySelector("main, [role=main]") !== null
  && document.querySelector(".loading, [aria-busy=true]") === null"""

_FRAMES: Final = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(null))))"

# Texts beyond a box that is seen around them and neither cuts nor scrolls; a page that is wider than the window.
_OVERFLOWS: Final = """() => {
  const over = document.documentElement.scrollWidth - innerWidth;
  const found = over > 0 ? [`the page is ${over} px wider than the window`] : [];
  const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  const isSeen = (style) => style.backgroundColor !== "rgba(0, 0, 0, 0)" || style.borderLeftWidth !== "0px";
  while (texts.nextNode()) {
    range.selectNodeContents(texts.currentNode);
    const { left, right, width } = range.getBoundingClientRect();
    for (let each = texts.currentNode.parentElement; width && each !== document.body; each = each.parentElement) {
      const style = getComputedStyle(each);
      if (style.overflowX !== "visible") break;
      const box = each.getBoundingClientRect();
      if (style.display === "inline" || !isSeen(style) || (right <= box.right + 1 && left >= box.left - 1)) continue;
      const text = texts.currentNode.data.trim().slice(0, 30);
      found.push(`“${text}” ${Math.round(left)} to ${Math.round(right)} px, in ${each.tagName} ${each.className} ` +
        `${Math.round(box.left)} to ${Math.round(box.right)} px`);
      break;
    }
  }
  return found;
}"""


# What looks as if it were for a mouse, and neither is reached by Tab nor belongs to what has keys of its own.
_FOR_A_MOUSE: Final = """() => [...document.querySelectorAll("body *")]
  .filter((each) => {
    const { cursor } = getComputedStyle(each);
    if (each.matches("a, button, input, select, textarea")) return each.tabIndex < 0 || each.matches("a:not([href])");
    return cursor === "pointer" && !each.closest("a, button, label, select, summary, [role=tree], [role=listbox]");
  })
  .map((each) => each.outerHTML.slice(0, 200))"""


@dataclass(slots=True)
class Look:
    """violations: of the page's own policy. elsewhere: requests to other origins. errors: of its code.

    pending: requests without an answer, but for those that wait for events.
    """

    page: Page
    source: Source
    violations: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    pending: set[Any] = field(default_factory=set)

    def open(self, route: str) -> None:
        """Go there as a person does who follows a link, and wait until it is read."""
        self.page.goto(self.source.at(route))
        self.settle()

    def settle(self) -> None:
        """Until nothing is asked for, and nothing says that it waits."""
        for _ in range(_LOOKS_MAX):
            self.page.wait_for_function(_STILL)
            self.page.evaluate(_FRAMES)
            if not self.pending and self.page.evaluate(_STILL):
                return
        raise AssertionError(f"{self.page.url} does not come to rest: {[each.url for each in self.pending]}")

    def drop(self, file: Path) -> None:
        """Drag a file over the page and let it go there, as the browser has it from a desktop."""
        session = self.page.context.new_cdp_session(self.page)
        data = {"items": [], "files": [str(file)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            session.send("Input.dispatchDragEvent", {"type": kind, "x": 400, "y": 300, "data": data})
        self.settle()

    def overflowing(self) -> list[str]:
        found: list[str] = self.page.evaluate(_OVERFLOWS)
        return found

    def for_a_mouse(self) -> list[str]:
        found: list[str] = self.page.evaluate(_FOR_A_MOUSE)
        return found

    def axe(self, *, contrast: bool = True) -> list[str]:
        """What is serious or critical about it for people who see or move badly. contrast: look at colours, slowly."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text("utf-8"))
        rules = {"color-contrast": {"enabled": contrast}}
        found: dict[str, Any] = self.page.evaluate(
            "rules => axe.run(document, {resultTypes: ['violations'], rules})", rules
        )
        return [
            f"{each['id']} ({each['impact']}): {node['target']} {node['failureSummary'][:300]}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]


@contextmanager
def looking(
    browser: Browser, source: Source, *, of: str = "mixed", theme: Theme = "light", size: tuple[int, int] = WIDE
) -> Iterator[Look]:
    """A tab that has opened the source; on leaving it must have done nothing but read that.

    of: the graph whose archive is dropped, where the source has archives.
    """
    context = browser.new_context(
        color_scheme=theme, viewport={"width": size[0], "height": size[1]}, reduced_motion="reduce"
    )
    page = context.new_page()
    look = Look(page, source)
    context.add_init_script(_WATCH)
    may = {urlsplit(source.address).netloc, *source.asks}

    def on_request(request: Any) -> None:
        look.asked.append(f"{request.method} {request.url}")
        if "wait=" not in request.url:
            look.pending.add(request)
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.netloc not in may:
            look.elsewhere.append(request.url)

    def on_console(message: Any) -> None:
        if "Content Security Policy" in message.text or "Trusted" in message.text:
            look.violations.append(message.text)
        elif message.type == "error" and "Failed to load resource" not in message.text:
            look.errors.append(message.text)

    def on_dialog(dialog: Any) -> None:
        look.errors.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    context.on("request", on_request)
    context.on("requestfinished", lambda request: look.pending.discard(request))
    context.on("requestfailed", lambda request: look.pending.discard(request))
    page.on("console", on_console)
    page.on("pageerror", lambda error: look.errors.append(str(error)))
    page.on("dialog", on_dialog)
    try:
        page.goto(source.at(source.opening))
        look.settle()
        if source.archives:
            look.drop(source.archives / of)
        yield look
        wrong = look.violations, look.elsewhere, look.errors
        assert not any(wrong), wrong
    finally:
        context.close()
