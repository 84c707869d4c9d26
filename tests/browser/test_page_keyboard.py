"""By keys alone: find what blocks a graph, read its log, run it again; and what each key leads to."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.looking import looking
from tests.browser.served import Served, graphs, served
from tests.browser.sources import Source, typed

STEPS_MAX = 80

_GRAPH: Final = "#/g/mixed"
_LEADS: Final = (
    (f"{_GRAPH}/t/test", "G", "#/"),
    (_GRAPH, "2", "/dag"),
    (_GRAPH, "3", "/time"),
    (_GRAPH, "4", "/tasks"),
    (_GRAPH, "5", "/events"),
    (_GRAPH, "6", "/at"),
    (_GRAPH, "7", "/plan"),
    (f"{_GRAPH}/dag", "1", _GRAPH),
    (_GRAPH, "r", "change=rerun&failed=1"),
    (_GRAPH, "c", "change=cancel"),
    (_GRAPH, "p", "change=pause"),
    ("#/", "j Enter", "#/g/hostile"),
    (f"{_GRAPH}/tasks", "j Enter", "/t/test"),
    (f"{_GRAPH}/tasks", "j ArrowDown k Enter", "/t/test"),
    (f"{_GRAPH}/tasks", "j x r", "change=rerun&labels=%5B%22test%22%5D"),
    (f"{_GRAPH}/tasks", "j Space c", "change=cancel&labels=%5B%22test%22%5D"),
    (f"{_GRAPH}/tasks?state=failed", "X r", "change=rerun&labels=%5B%22test%22%5D"),
    (f"{_GRAPH}/tasks", "/ n o t e Escape j Enter", "/t/note"),
    (f"{_GRAPH}/events", "j Enter", "/at/"),
    (f"{_GRAPH}/dag", "n", "sel=test"),
    (f"{_GRAPH}/dag", "N", "sel=test"),
    (f"{_GRAPH}/dag", "h", "hide=completed"),
    (f"{_GRAPH}/dag", "F", "follow=1"),
    (f"{_GRAPH}/dag?sel=test", "ArrowLeft", "sel=build"),
    (f"{_GRAPH}/dag?sel=test", "ArrowRight", "sel=publish"),
    (f"{_GRAPH}/dag?sel=test", "ArrowDown", "sel=note"),
    (f"{_GRAPH}/dag?sel=test", "o", "focus=test&depth=2"),
    (f"{_GRAPH}/dag?sel=test", "+ - f Enter", "/t/test"),
    ("#/g/hostile/dag?sel=fails", "e", "fold="),
    (f"{_GRAPH}/time", "n", "sel=test"),
    (f"{_GRAPH}/time", "c", "critical=1"),
    (f"{_GRAPH}/time", "v", "forecast=1"),
    (f"{_GRAPH}/time?sel=test", "k", "sel="),
    (f"{_GRAPH}/time?sel=test", "[ ] + - f ArrowLeft Enter", "/t/test"),
    (f"{_GRAPH}/t/test", "w", "/t/test/why"),
    (f"{_GRAPH}/t/test", "l", "/t/test/log"),
    (f"{_GRAPH}/t/test", "r", "change=rerun&labels=%5B%22test%22%5D"),
    (f"{_GRAPH}/t/publish", "c", "change=cancel&labels=%5B%22publish%22%5D"),
    (f"{_GRAPH}/t/publish/why", "u", "/t/publish"),
    (f"{_GRAPH}/t/publish/why", "l", "/t/publish/log"),
    (f"{_GRAPH}/t/publish/why", "j j Enter", "/t/test"),
    (f"{_GRAPH}/t/build/log", "u", "/t/build"),
    (f"{_GRAPH}/t/build/log", "w", "/t/build/why"),
    (f"{_GRAPH}/t/build/log", "W", "wrap=1"),
    (f"{_GRAPH}/at/3", "ArrowLeft", "/at/2"),
    (f"{_GRAPH}/at/3", "ArrowRight", "/at/4"),
)
"""Where one is, what is pressed, and how the address ends then, or goes on."""


def stuck(folder: Path) -> dict[str, Any]:
    check = f"test -e {folder}/approved || {{ echo not approved; exit 1; }}"
    return {
        "tasks": {
            "check": {"task": {"payload": {"command": ["sh", "-c", check]}}},
            "report": {"requires": ["check"], "task": {"payload": {"command": ["true"]}}},
        }
    }


def tab_to(page: Page, text: str) -> None:
    """Press Tab until the link with this text has the focus."""
    for _ in range(STEPS_MAX):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName === 'A' && document.activeElement.textContent.trim()") == text:
            return
    raise AssertionError(f"no link “{text}” within {STEPS_MAX} steps of Tab")


def find(page: Page, text: str) -> None:
    """Search for it, and open the first row."""
    for key in ("/", *text, "Escape", "j", "Enter"):
        page.keyboard.press(key)


def mended(page: Page, folder: Path, *, seconds: float = 5) -> None:
    """From a page of the graph on, find what blocks it, read its log, and have it run again. seconds: for an answer."""
    patient = seconds * 1000
    expect(page.get_by_role("heading", level=1)).to_contain_text("stuck")
    page.keyboard.press("4")
    expect(page.get_by_role("grid")).to_be_visible()
    find(page, "report")
    expect(page.get_by_role("heading", level=2).first).to_contain_text("report")
    page.keyboard.press("w")
    expect(page.get_by_role("tree")).to_contain_text("check failed", timeout=patient)
    tab_to(page, "log")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Log")).to_contain_text("not approved")
    (folder / "approved").touch()
    page.keyboard.press("u")
    expect(page.get_by_role("heading", level=2).first).to_contain_text("check")
    page.keyboard.press("r")
    expect(page.get_by_role("table")).to_contain_text("1 task would change", timeout=patient)
    page.keyboard.press("a")
    expect(page.get_by_role("status").filter(has_text="done")).to_be_visible(timeout=patient)
    page.keyboard.press("1")
    expect(page.get_by_role("heading", level=1)).to_contain_text("finished", timeout=patient)


def test_what_blocks_is_found_read_and_run_again_without_a_mouse(browser: Browser, tmp_path: Path) -> None:
    fill = graphs({"other": {"tasks": {"a": {}}}, "stuck": stuck(tmp_path)})
    with served(f"sqlite:///{tmp_path}/store.db", tmp_path, fill) as store, looking(browser, store) as look:
        find(look.page, "stuck")
        mended(look.page, tmp_path)


@pytest.mark.azurite
@pytest.mark.campaign
def test_it_is_so_by_a_link_too(browser: Browser, over_azurite: Served, over_tables: Source, tmp_path: Path) -> None:
    document = tmp_path / "stuck.json"
    document.write_text(json.dumps(stuck(tmp_path)))
    type_ = partial(typed, over_azurite.store, prefix=over_azurite.prefix)
    type_("submit", str(document), "--id", "stuck", "--wait", expected=1)
    link = type_("grant", "stuck", "--read", "--link", "--logs", "--changes")
    opened = replace(over_tables, opening=link.removeprefix(f"{over_tables.address}/"))
    with looking(browser, opened) as look:
        mended(look.page, tmp_path, seconds=120)  # handlers look for such a request each half minute


@pytest.mark.campaign
def test_each_key_leads_where_the_list_of_keys_says(browser: Browser, stage: Served) -> None:
    wrong = []
    with looking(browser, stage) as look:
        for route, keys, leads in _LEADS:
            look.open(route)
            for key in keys.split():
                look.page.keyboard.press(key)
                look.settle()
            address = look.page.url.partition("#")[2]
            if not (address == leads.removeprefix("#") if leads.startswith("#") else leads in address):
                wrong.append(f"{route}, {keys}: {address}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.campaign
def test_help_palette_times_theme_and_playing_have_keys(browser: Browser, stage: Served) -> None:
    with looking(browser, stage) as look:
        page = look.page
        look.open("#/g/mixed")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_contain_text("Go to anything")
        page.keyboard.press("r")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert page.url.endswith("#/g/mixed"), "what is beneath a dialog rests"
        page.keyboard.press("Control+k")
        for key in ("p", "u", "b", "l"):
            page.keyboard.press(key)
        expect(page.get_by_role("listbox").get_by_role("option", selected=True)).to_contain_text("publish")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=2).first).to_contain_text("publish")
        page.keyboard.press("t")
        expect(page.get_by_role("button", name="Times: utc")).to_be_visible()
        page.keyboard.press("T")
        expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
        look.open("#/g/mixed/at/0")
        page.keyboard.press(".")
        page.wait_for_url("**/at/2")
