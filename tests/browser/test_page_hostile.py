"""Nothing that a graph, a task, its worker or its log says is markup, runs, turns text or leaves its box."""

from typing import Final
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser

from tests.browser.documents import BIDI, HOSTILE_LABELS, TURNING
from tests.browser.looking import MIDDLE, NARROW, WIDE, Look, looking
from tests.browser.places import HOSTILE_ROUTES
from tests.browser.served import Served
from tests.browser.sources import Source

_MADE: Final = "img[src=x], svg, iframe, object, embed, body script, body style, [onload], [onerror]"
_SIZES: Final = (WIDE, *(pytest.param(each, marks=pytest.mark.campaign) for each in (MIDDLE, NARROW)))


def harmed(look: Look) -> list[str]:
    """By what is shown now."""
    page = look.page
    found = ["something ran"] if page.evaluate("window.pwned") is not None else []
    found += [
        f"an element: {each}" for each in page.locator(_MADE).evaluate_all("all => all.map(one => one.outerHTML)")
    ]
    links = page.locator("a[href]").evaluate_all("all => all.map((each) => each.protocol)")
    found += [f"a link: {each}" for each in set(links) - {"http:"}]
    turning = TURNING.intersection(page.locator("body").inner_text())
    found += [f"U+{ord(each):04X} is not shown by its number" for each in turning]
    return found + look.overflowing()


@pytest.mark.parametrize("size", _SIZES)
def test_whatever_is_said_is_text_and_stays_in_its_place(
    browser: Browser, source: Source, size: tuple[int, int]
) -> None:
    found = []
    with looking(browser, source, of="hostile", size=size) as look:
        for route in HOSTILE_ROUTES:
            look.open(route)
            found += [f"{route}: {each}" for each in harmed(look)]
    assert not found, "\n".join(found)


def test_hostile_labels_are_shown_as_they_are_but_for_what_turns_text(browser: Browser, stage: Served) -> None:
    with looking(browser, stage) as look:
        look.open("#/g/hostile/tasks")
        text = look.page.locator("main").inner_text()
        assert [each for each in HOSTILE_LABELS if each not in text] == [BIDI]
        assert "‹202e›exe.gpj" in text


def test_a_log_is_shown_as_a_terminal_would_show_it_and_obeys_nothing_else(browser: Browser, stage: Served) -> None:
    with looking(browser, stage) as look:
        look.open(f"#/g/hostile/t/{quote(BIDI, safe='')}/log")
        assert "‹202e›exe.gpj" in look.page.locator(".log .text").first.inner_text()
        look.open("#/g/hostile/t/garbage/log")
        lines = look.page.locator(".log .text").all_inner_texts()
        assert [each.strip() for each in lines[1:4]] == ["100 %", "last", "‹0›nul‹0› ���� ��� ‹202e›turned"]
        look.open("#/g/hostile/t/long%20lines/log")
        lines = look.page.locator(".log .text").all_inner_texts()
        assert all(each.endswith("more characters") and len(each) < 5_000 for each in lines)
