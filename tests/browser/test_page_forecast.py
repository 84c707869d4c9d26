"""The rest of a graph that runs: when it ends, as bars beyond now, and beside what is supposed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.looking import NARROW, Look, looking
from tests.browser.served import Served, graphs, served


def _lasting(seconds: int, *requires: str) -> dict[str, Any]:
    return {"requires": list(requires), "task": {"executor": "sleep", "payload": {"seconds": seconds}}}


LONG: Final = {"tasks": {"first": _lasting(3_000), "then": _lasting(6_000, "first"), "last": _lasting(600, "then")}}

# Pixels of the drawing below the lane of what runs, right of the middle, that are not of the ground.
_DRAWN: Final = """() => {
  const canvas = document.querySelector(".drawing canvas");
  const ratio = canvas.width / canvas.clientWidth;
  const [x, y, wide, high] = [canvas.width / 2, 58 * ratio, canvas.width / 3, 60 * ratio].map(Math.round);
  const pixels = new Uint32Array(canvas.getContext("2d").getImageData(x, y, wide, high).data.buffer);
  return pixels.filter((each) => each !== pixels[0]).length;
}"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("forecast")
    with served(f"sqlite:///{folder}/store.db", folder, graphs({"long": LONG}, end=False)) as made:
        yield made


@pytest.fixture
def look(browser: Browser, store: Served) -> Iterator[Look]:
    with looking(browser, store) as made:
        yield made


def _asked(look: Look) -> int:
    return sum("/rehearsal?" in each for each in look.asked)


def test_what_is_left_is_drawn_beyond_now(look: Look) -> None:
    page = look.page
    look.open("#/g/long/time")
    page.keyboard.press("v")
    expect(page.get_by_text("it ends about")).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="1 run, 2 to come")).to_be_visible()
    look.settle()
    drawn = page.evaluate(_DRAWN)
    box = page.locator(".drawing canvas").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 0.7, box["y"] + 28 + 28 * 1.5)
    page.wait_for_url("**sel=then*")
    assert look.axe() == []
    page.keyboard.press("v")
    expect(page.get_by_text("it ends about")).to_have_count(0)
    look.settle()
    assert page.evaluate(_DRAWN) < drawn / 2
    page.keyboard.press("v")
    look.settle()
    assert _asked(look) == 1


def test_what_is_supposed_stands_beside_what_is(look: Look) -> None:
    page = look.page
    look.open("#/g/long")
    assert _asked(look) == 0
    page.get_by_role("button", name="When does it end?").click()
    expect(page.get_by_text("3 by the document; rehearsed once")).to_be_visible()
    page.get_by_role("link", name="What if …").click()
    task = page.get_by_role("combobox", name="Task", exact=True)
    task.fill("then")
    page.get_by_role("button", name="Add").click()
    page.get_by_role("button", name="Rehearse it so").click()
    expect(page.get_by_role("cell", name="1 h 40 min sooner")).to_be_visible()
    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    assert look.axe() == []
    assert look.for_a_mouse() == []
    assert look.overflowing() == []
    assert _asked(look) == 2
    page.get_by_role("button", name="Not that then takes no time").click()
    page.get_by_role("combobox", name="Suppose").select_option("So many in flight")
    for most in ("3", "2"):
        page.get_by_role("spinbutton", name="At most").fill(most)
        page.keyboard.press("Enter")
    expect(page.get_by_text("at most 2 of the graph in flight")).to_be_visible()
    expect(page.get_by_text("at most 3 of the graph in flight")).to_have_count(0)
    page.get_by_role("button", name="Not that at most 2").click()
    page.get_by_role("combobox", name="Suppose").select_option("A task fails")
    task.fill("first")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Rehearse it so").click()
    expect(page.get_by_text("blocked in 1 of 1; 2 unscheduled then")).to_be_visible()
    task.fill("nothing")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Rehearse it so").click()
    expect(page.get_by_role("alert")).to_contain_text("there is no task “nothing” to fail")
