"""The page runs nothing but its own code, and asks nothing but its own server, whatever it is given to show."""

from urllib.parse import quote

from playwright.sync_api import Browser

from tests.browser.documents import BIDI, HOSTILE_LABELS, TURNING
from tests.browser.looking import looking
from tests.browser.routes import HOSTILE_ROUTES, ROUTES
from tests.browser.served import Served


def test_every_place_is_shown_without_a_violation_or_a_request_elsewhere(browser: Browser, stage: Served) -> None:
    with looking(browser, stage) as look:  # which holds it to that
        for route in ROUTES:
            look.open(route)
            assert look.page.locator("main").inner_text().strip(), route


def test_the_token_leaves_the_address_at_once_and_is_in_no_request(browser: Browser, stage: Served) -> None:
    with looking(browser, stage) as look:
        assert stage.token not in look.page.url
        look.open("#/g/mixed")
        assert look.asked, "what is asked is noted"
        assert not any(stage.token in each for each in look.asked)
        assert stage.token not in look.page.content()
        look.page.reload()
        look.settle()
        assert look.page.get_by_role("heading", name="mixed").is_visible(), "it is kept for this tab"


def test_nothing_that_a_graph_says_is_markup_or_runs(browser: Browser, stage: Served) -> None:
    with looking(browser, stage) as look:
        for route in HOSTILE_ROUTES:
            look.open(route)
            assert look.page.evaluate("window.pwned") is None, route
            assert look.page.locator("img[src=x], body script").count() == 0, route
            links = look.page.locator("a[href]").evaluate_all("all => all.map((each) => each.protocol)")
            assert set(links) <= {"http:"}, route
            wide = look.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{route} is {wide} px wider than the window"


def test_hostile_labels_are_shown_as_they_are_but_for_what_turns_text(browser: Browser, stage: Served) -> None:
    with looking(browser, stage) as look:
        look.open("#/g/hostile/tasks")
        text = look.page.locator("main").inner_text()
        assert [each for each in HOSTILE_LABELS if each not in text] == [BIDI]
        assert "exe.gpj" in text
        assert not TURNING.intersection(text), "it is shown by its number"


def test_in_a_log_what_turns_text_is_shown_by_its_number(browser: Browser, stage: Served) -> None:
    with looking(browser, stage) as look:
        look.open(f"#/g/hostile/t/{quote(BIDI, safe='')}/log")
        line = look.page.locator(".log .text").first.inner_text()
        assert "exe.gpj" in line
        assert not TURNING.intersection(line)
