"""What the page takes: code, time until it shows something and is of use, frames, requests of a tab that rests."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from taskgraph.interfaces.web import files
from tests.browser.budgets import WATCH, frames, layered, taken
from tests.browser.looking import looking
from tests.browser.served import Served, graphs, served

SCRIPT_KILOBYTES_MAX = 80
CONTENT_MS_MAX = 1_000
REST_SECONDS = 60
REST_REQUESTS_MAX = 4


def test_the_page_begins_with_little_code() -> None:
    index = (files.STATIC / "index.html").read_text()
    first = re.findall(r'(?:src|href)="([^"]+\.js)"', index)
    assert first
    packed = sum(len(gzip.compress((files.STATIC / each).read_bytes(), 9)) for each in first)
    assert packed <= SCRIPT_KILOBYTES_MAX * 1000, f"{packed / 1000:.1f} kB"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two graphs that stand still: 10,000 tasks with 29,700 edges, and 100,000 with 297,000."""
    folder: Path = tmp_path_factory.mktemp("large")
    documents = {"ten": layered(100, 100, 3), "hundred": layered(100, 1_000, 3)}
    with served(f"sqlite:///{folder}/store.db", folder, graphs(documents, end=False), handles=False) as made:
        yield made


@pytest.mark.campaign
@pytest.mark.parametrize("view", ["tasks", "dag"])
@pytest.mark.parametrize(("graph", "usable", "rate"), [("ten", 2_500, 30), ("hundred", 8_000, 10)])
def test_a_large_graph_is_of_use_soon(
    browser: Browser, large: Served, graph: str, view: str, usable: float, rate: float
) -> None:
    with looking(browser, large) as look:
        look.page.add_init_script(WATCH)
        found = taken(look.page, large.at(f"#/g/{graph}/{view}"))
        print(f"\n{graph} {view}: {found}")
        assert found.content <= CONTENT_MS_MAX
        assert found.usable <= usable
        if view == "dag":
            seen = frames(look.page, 3)
            print(f"{graph} {view}: {seen:.0f} frames/s")
            assert seen >= rate


@pytest.mark.campaign
@pytest.mark.parametrize("hidden", [False, True])
def test_a_tab_that_rests_asks_for_little(browser: Browser, stage: Served, hidden: bool) -> None:
    with looking(browser, stage) as look:
        look.open("#/g/mixed")
        if hidden:
            look.page.evaluate(
                "Object.defineProperties(document, {hidden: {value: true}, visibilityState: {value: 'hidden'}});"
                "document.dispatchEvent(new Event('visibilitychange'))"
            )
            look.page.wait_for_timeout(30_000)  # the request that waited when it was hidden may end
        look.asked.clear()
        look.page.wait_for_timeout(REST_SECONDS * 1000)
        assert len(look.asked) <= (0 if hidden else REST_REQUESTS_MAX), look.asked
