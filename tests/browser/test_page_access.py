"""The page for people who see or move badly: axe finds nothing serious on any route, in either theme."""

from typing import get_args

import pytest
from playwright.sync_api import Browser

from tests.browser.looking import Theme, looking
from tests.browser.routes import ROUTES
from tests.browser.served import Served


@pytest.mark.parametrize("theme", get_args(Theme))
def test_axe_finds_nothing_serious(browser: Browser, stage: Served, theme: Theme) -> None:
    found = []
    with looking(browser, stage, theme=theme) as look:
        for route in ROUTES:
            look.open(route)
            found += [f"{route}: {each}" for each in look.axe()]
    assert not found, "\n".join(found)
