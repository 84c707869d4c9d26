"""What is changed by the page: shown before, made just so, and shown anew where it is another thing by then."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.looking import Look, looking
from tests.browser.served import Served, graphs, served

pytestmark = pytest.mark.campaign

FAR: Final = {"task": {"executor": "noop", "target": "far"}}
LIVE: Final = {"tasks": {"first": FAR, "after": {**FAR, "requires": ["first"]}}}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("actions")
    fill = graphs({"live": LIVE, "long": LIVE}, end=False)
    with served(f"sqlite:///{folder}/store.db", folder, fill) as made:
        yield made


@pytest.fixture
def look(browser: Browser, store: Served) -> Iterator[Look]:
    with looking(browser, store) as made:
        yield made


def ask(page: Page, method: str, path: str, body: Any = None) -> Any:
    """As another person does meanwhile."""
    how = {"method": method, "body": None if body is None else json.dumps(body)}
    return page.evaluate(
        """async ([path, how]) => {
          const headers = {Authorization: `Bearer ${sessionStorage.getItem("taskgraph-token")}`,
                           "Content-Type": "application/json", Prefer: "wait=10"};
          return (await fetch(`/api/v1${path}`, {...how, headers})).json();
        }""",
        [path, how],
    )


def test_a_task_is_edited_from_what_it_is_now(look: Look) -> None:
    page = look.page
    look.open("#/g/live/t/after")
    page.get_by_role("link", name="Edit …").click()
    field = page.get_by_role("textbox", name="The edit, as JSON")
    now = json.loads(field.input_value())["update"]["after"]
    assert now == {"requires": ["first"], "reruns": 0, "active": True, "task": FAR["task"]}
    field.press("Control+Enter")
    expect(page.get_by_text("Nothing would change.")).to_be_visible()
    field.fill('{\n  "update": {\n    "after": {"rerun": 2}\n  }\n}')
    page.get_by_role("button", name="Plan it").click()
    problem = page.get_by_role("alert").filter(has_text="/update/after/rerun")
    problem.get_by_role("button", name="Line 3").click()
    expect(field).to_be_focused()
    assert page.evaluate("document.activeElement.selectionStart") == len('{\n  "update": {\n')
    assert look.axe() == []
    field.fill('{"update": {"after": {"reruns": 2}}}')
    field.press("Control+Enter")
    expect(page.get_by_role("table")).to_contain_text("0 → 2")
    ask(page, "POST", "/graphs/live/edits", {"update": {"after": {"reruns": 1}}})
    page.get_by_role("button", name="Apply just this").click()
    expect(page.get_by_role("alert")).to_contain_text("The graph has moved")
    expect(page.get_by_role("table")).to_contain_text("1 → 2")
    page.get_by_role("button", name="Apply just this").click()
    expect(page.get_by_role("status").filter(has_text="It is done.")).to_be_visible()
    assert ask(page, "GET", "/graphs/live/tasks/after")["rerunsAllowed"] == 2


def test_a_document_that_is_too_long_for_an_address_stays_in_the_tab(look: Look) -> None:
    page = look.page
    look.open("#/g/long/plan?change=extend")
    field = page.get_by_role("textbox", name="The extension, as JSON")
    document = json.dumps({"tasks": {f"more {number}": FAR for number in range(60)}}, indent=1)
    field.fill(document)
    field.press("Control+Enter")
    expect(page.get_by_text("this tab keeps")).to_be_visible()
    expect(page.get_by_role("table")).to_contain_text("60 tasks would change")
    assert len(page.url) < 200
    page.reload()
    look.settle()
    assert field.input_value() == document
    page.get_by_role("button", name="Apply just this").click()
    expect(page.get_by_role("status").filter(has_text="It is done.")).to_be_visible()


def test_since_when_a_server_is_not_reached_is_said_in_each_view(look: Look) -> None:
    page = look.page
    look.open("#/g/live")
    page.context.set_offline(True)
    expect(page.get_by_text("Not reached since")).to_be_visible()
    page.keyboard.press("4")
    expect(page.get_by_text("Not reached since")).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_text("Not reached since")).to_have_count(0, timeout=10_000)
