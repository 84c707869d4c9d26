"""What opens the page leaves no trace, files of others harm nothing, and it is not shown in a frame."""

import gzip
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from taskgraph.interfaces.web import alone
from tests.browser.hosted import hosting
from tests.browser.looking import looking
from tests.browser.served import Served
from tests.browser.sources import Source


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


def test_a_file_that_is_dropped_is_shown_or_said_to_be_none(
    browser: Browser, stage: Served, over_archives: Source, tmp_path: Path
) -> None:
    assert over_archives.archives
    whole = (over_archives.archives / "mixed").read_bytes()
    wrong = {
        "picture.png": b"\x89PNG\r\n\x1a\n" + bytes(1_000),
        "page.html": b"<script>window.pwned = 1</script>",
        "empty": b"",
        "other.gz": gzip.compress(b'{"archive": "of another", "graph": "mixed"}\n'),
        "cut.gz": whole[:-200],
        "later.gz": gzip.compress(b'{"archive": "taskgraph", "format": 99, "graph": "mixed"}\n'),
    }
    with looking(browser, stage) as look:
        look.open("#/g/hostile")
        look.asked.clear()
        for name, data in wrong.items():
            (tmp_path / name).write_bytes(data)
            look.drop(tmp_path / name)
            expect(look.page.get_by_role("alert")).to_contain_text(name)
            assert look.page.url.endswith("#/g/hostile"), "what is open stays open"
        look.drop(over_archives.archives / "mixed")
        expect(look.page.get_by_role("alert")).to_have_count(0)
        expect(look.page.get_by_role("heading", level=1)).to_contain_text("mixed")
        expect(look.page.locator(".drop")).to_have_count(0)
        assert look.asked == [], "a file is read where it is"


@pytest.mark.parametrize("served", [True, False], ids=["served", "copied"])
def test_it_is_not_shown_in_a_frame(browser: Browser, stage: Served, served: bool) -> None:
    with hosting() as host:
        host.show(alone.files([]))
        shown = stage.at(stage.opening) if served else "/"
        host.files["/trap"] = f'<iframe src="{shown}"></iframe>'.encode(), "text/html", "no-store"
        page = browser.new_page()
        errors: list[str] = []
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{host.address}/trap")
        page.wait_for_load_state("networkidle")
        assert [each for each in errors if "frame" in each], errors
        assert page.frames[1].locator("main").count() == 0
        page.close()
