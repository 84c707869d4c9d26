"""Every place of the page, whatever it reads: what is read there, that it fits, and that all people can use it."""

from typing import get_args

import pytest
from playwright.sync_api import Browser

from tests.browser.looking import MIDDLE, NARROW, WIDE, Theme, looking
from tests.browser.places import PLACES
from tests.browser.sources import Source


def test_every_place_shows_what_its_source_knows(browser: Browser, source: Source) -> None:
    with looking(browser, source) as look:  # which holds it to its own code and its own server
        for place in PLACES:
            look.open(place.route)
            says = place.read(source.kind)
            assert says in look.page.locator("main").inner_text(), place.route
            assert look.axe(contrast=False) == [], place.route
            assert look.for_a_mouse() == [], place.route
            screens = look.page.get_by_role("navigation", name="Screens").get_by_role("link").all()
            assert source.kind == "api" or not {"Poison", "Doctor"} & {each.inner_text() for each in screens}


@pytest.mark.campaign
@pytest.mark.parametrize("theme", get_args(Theme))
def test_axe_finds_nothing_serious(browser: Browser, source: Source, theme: Theme) -> None:
    found = []
    with looking(browser, source, theme=theme) as look:
        for place in PLACES:
            look.open(place.route)
            found += [f"{place.route}: {each}" for each in look.axe()]
    assert not found, "\n".join(found)


@pytest.mark.campaign
@pytest.mark.parametrize("size", [WIDE, MIDDLE, NARROW])
def test_every_place_fits_into_the_window(browser: Browser, source: Source, size: tuple[int, int]) -> None:
    found = []
    with looking(browser, source, size=size) as look:
        for place in PLACES:
            look.open(place.route)
            found += [f"{place.route}: {each}" for each in look.overflowing()]
    assert not found, "\n".join(found)
