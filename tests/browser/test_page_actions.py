"""What is changed by the page: shown before, made just so, and shown anew where it is another thing by then."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect

from taskgraph.model.ids import row_key, task_id_of
from taskgraph.model.roles import Role
from taskgraph.storage.tables import Merge
from tests.browser.looking import Look, looking
from tests.browser.served import Served, graphs, served
from tests.http.serving import Server

pytestmark = pytest.mark.campaign

FAR: Final = {"task": {"executor": "noop", "target": "far"}}
SLOW: Final = {"tasks": {"slow": {"task": {"payload": {"command": ["sleep", "60"]}}}}}
NIGHTLY: Final = {"document": {"tasks": {"far": FAR}}, "cron": "0 3 * * *", "timezone": "Europe/Berlin"}
LIVE: Final = {"tasks": {"first": FAR, "after": {**FAR, "requires": ["first"]}}}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("actions")

    async def fill(server: Server) -> None:
        await graphs({"live": LIVE, "long": LIVE, "slow": SLOW, "spoilt": LIVE}, end=False)(server)
        key = row_key(task_id_of("spoilt", "after"))
        (row,) = await server.app.tables.get("spoilt", [key])
        assert row is not None
        await server.app.tables.commit("spoilt", [Merge(key, row.etag, {"requiresLeft": "[]"})])
        token = server.tokens[Role.ADMIN]
        assert (await server.ask("PUT", "/schedules/nightly", data=NIGHTLY, token=token)).status == 201
        await server.app.queues.send(server.app.names.events, ["{not a message"])

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


def test_the_columns_of_the_table_are_chosen_and_stand_in_the_address(look: Look) -> None:
    page = look.page
    look.open("#/g/live/tasks")
    page.get_by_text("Columns").click()
    for title in ("Requires", "Worker"):
        page.get_by_role("checkbox", name=title, exact=True).click()
    assert look.axe() == []
    page.keyboard.press("Escape")
    expect(page.get_by_role("checkbox", name="Worker", exact=True)).to_be_hidden()
    page.get_by_role("button", name="Requires").click()
    page.get_by_role("button", name="Requires ▲").click()
    assert "sort=-requires" in page.url
    page.reload()
    look.settle()
    heads = page.get_by_role("columnheader").all_inner_texts()
    assert "Worker" not in heads
    assert "Requires ▼" in heads
    rows = page.get_by_role("row")
    assert [rows.nth(place).get_by_role("link").inner_text() for place in (1, 2)] == ["after", "first"]


def test_a_part_of_the_time_is_brushed_and_stands_in_the_address(look: Look) -> None:
    page = look.page
    look.open("#/g/slow/time")
    box = page.locator(".overview .u-over").bounding_box()
    assert box is not None
    at = [(box["x"] + box["width"] * part, box["y"] + box["height"] / 2) for part in (0.25, 0.75)]
    page.mouse.move(*at[0])
    page.mouse.down()
    page.mouse.move(*at[1])
    page.mouse.up()
    page.wait_for_url("**from=*")
    assert look.axe() == []
    marked = "document.querySelector('.overview .u-select').clientWidth"
    page.wait_for_function(f"() => Math.abs({marked} / {box['width']} - 0.5) < 0.1")
    page.keyboard.press("f")
    page.wait_for_function(f"() => {marked} / {box['width']} > 0.9")
    assert "from=" not in page.url


def test_since_when_a_server_is_not_reached_is_said_in_each_view(look: Look) -> None:
    page = look.page
    look.open("#/g/live")
    page.context.set_offline(True)
    expect(page.get_by_text("Not reached since")).to_be_visible()
    page.keyboard.press("4")
    expect(page.get_by_text("Not reached since")).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_text("Not reached since")).to_have_count(0, timeout=10_000)


def test_a_worker_is_drained_by_keys_alone_and_the_focus_comes_back(look: Look) -> None:
    page = look.page
    look.open("#/workers")
    drain = page.get_by_role("button", name="Drain …")
    drain.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Drain worker")
    expect(dialog.get_by_text("slow: slow")).to_be_visible()
    assert page.evaluate("document.querySelector('dialog').contains(document.activeElement)")
    assert look.axe() == []
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(drain).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("button", name="Drain", exact=True)).to_be_enabled()
    page.keyboard.press("a")
    expect(page.get_by_role("status").filter(has_text="takes no new work")).to_be_visible()
    (worker,) = ask(page, "GET", "/workers")["workers"]
    assert worker["state"] == "draining"
    page.get_by_role("button", name="Take work again …").click()
    page.get_by_role("dialog").get_by_role("button", name="Take work again").click()
    expect(page.get_by_role("status").filter(has_text="takes work again")).to_be_visible()


def test_a_target_that_was_changed_meanwhile_is_left_as_it_is(look: Look) -> None:
    page = look.page
    look.open("#/queues")
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="default"))
    row.get_by_role("button", name="Limit …").click()
    dialog = page.get_by_role("dialog", name="Limit target default")
    expect(dialog.get_by_text("slow: slow")).to_be_visible()
    dialog.get_by_label("In flight at most").fill("7")
    dialog.get_by_label("Reason").fill("disks")
    ask(page, "POST", "/targets/default:pause?reason=drivers")
    dialog.get_by_role("button", name="Set the limit").click()
    expect(dialog.get_by_role("alert")).to_contain_text("nothing was done")
    expect(dialog).to_contain_text("is paused")
    assert ask(page, "GET", "/targets")["targets"] == []
    dialog.get_by_role("button", name="Set the limit").click()
    expect(page.get_by_role("status").filter(has_text="The limit of default is set.")).to_be_visible()
    (limited,) = ask(page, "GET", "/targets")["targets"]
    assert (limited["max"], limited["reason"]) == (7, "disks")
    row.get_by_role("button", name="Resume …").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(page.get_by_role("status").filter(has_text="default goes on.")).to_be_visible()


def test_a_schedule_fires_by_hand_and_rests(look: Look) -> None:
    page = look.page
    look.open("#/schedules/nightly")
    page.get_by_role("button", name="Fire now …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("a graph of 1 task as nightly-MOMENT-now")
    dialog.get_by_role("button", name="Fire now").click()
    expect(page.get_by_role("status").filter(has_text="Its graph is submitted.")).to_be_visible()
    expect(page.get_by_role("table")).to_contain_text("by hand")
    page.get_by_role("button", name="Let it rest …").click()
    expect(dialog.get_by_role("listitem")).to_have_count(5)
    dialog.get_by_role("button", name="Let it rest").click()
    expect(page.get_by_role("status").filter(has_text="It fires no more.")).to_be_visible()
    assert ask(page, "GET", "/schedules/nightly")["active"] is False


def test_a_message_that_was_set_aside_is_shown_and_put_back(look: Look) -> None:
    page = look.page
    look.open("#/poison")
    page.get_by_role("button", name="Put it back …").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("{not a message")
    expect(dialog).to_contain_text("taskgraph-events")
    dialog.get_by_role("button", name="Put it back").click()
    expect(page.get_by_role("status").filter(has_text="It is back on its queue.")).to_be_visible()


def test_what_can_be_mended_is_shown_and_mended(look: Look) -> None:
    page = look.page
    look.open("#/g/spoilt/doctor")
    page.get_by_role("button", name="Mend …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("requirement-forgotten")
    dialog.get_by_role("button", name="Mend these").click()
    expect(page.get_by_role("status").filter(has_text="It was mended")).to_be_visible()
    expect(page.get_by_text("Sound:")).to_be_visible()
