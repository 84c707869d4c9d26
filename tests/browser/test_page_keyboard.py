"""By keys alone: find what blocks a graph, read its log, run it again."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.browser.looking import looking
from tests.browser.served import graphs, served

STEPS_MAX = 80


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


def test_what_blocks_is_found_read_and_run_again_without_a_mouse(browser: Browser, tmp_path: Path) -> None:
    fill = graphs({"other": {"tasks": {"a": {}}}, "stuck": stuck(tmp_path)})
    with served(f"sqlite:///{tmp_path}/store.db", tmp_path, fill) as store, looking(browser, store) as look:
        page = look.page
        find(page, "stuck")
        expect(page.get_by_role("heading", level=1)).to_contain_text("stuck")
        page.keyboard.press("4")
        expect(page.get_by_role("grid")).to_be_visible()
        find(page, "report")
        expect(page.get_by_role("heading", level=2).first).to_contain_text("report")
        page.keyboard.press("w")
        expect(page.get_by_role("tree")).to_contain_text("check failed")
        tab_to(page, "log")
        page.keyboard.press("Enter")
        expect(page.get_by_role("region", name="Log")).to_contain_text("not approved")
        (tmp_path / "approved").touch()
        page.keyboard.press("u")
        expect(page.get_by_role("heading", level=2).first).to_contain_text("check")
        page.keyboard.press("r")
        expect(page.get_by_role("table")).to_contain_text("1 task would change")
        page.keyboard.press("a")
        expect(page.get_by_role("status").filter(has_text="done")).to_be_visible()
        page.keyboard.press("1")
        expect(page.get_by_role("heading", level=1)).to_contain_text("finished")
