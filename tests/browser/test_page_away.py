"""The page without a server: over the tables of an account by a link, over an archive, and as one file."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from azure.storage.blob import BlobServiceClient
from playwright.sync_api import Browser, Page

from taskgraph.interfaces.web import files
from tests.browser.documents import MIXED
from tests.browser.hosted import Host, hosting
from tests.browser.looking import looking
from tests.browser.served import Served
from tests.browser.sources import typed

_STILL: Final = """() => document.querySelector("main") !== null
  && document.querySelector(".loading, [aria-busy=true]") === null"""
_ROUTES: Final = {
    "#/": "away",
    "#/g/away": "1 failed",
    "#/g/away/dag": "build",
    "#/g/away/time": "build",
    "#/g/away/tasks": "publish",
    "#/g/away/events": "1.0",
    "#/g/away/t/build": "completed",
    "#/g/away/t/build/log": "red",
}
"""Places, and what is read there."""


@dataclass(slots=True)
class Watched:
    page: Page
    asked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def open(self, address: str) -> str:
        self.page.goto(address)
        self.page.wait_for_function(_STILL)
        return self.page.locator("main").inner_text()

    def choose(self, file: Path) -> None:
        with self.page.expect_file_chooser() as chooser:
            self.page.get_by_role("button", name="Open an archive").click()
        chooser.value.set_files(file)

    def read(self, text: str, *, seconds: float = 10) -> None:
        self.page.locator("main").get_by_text(text).first.wait_for(state="attached", timeout=seconds * 1_000)


@contextmanager
def watched(browser: Browser) -> Iterator[Watched]:
    """A tab whose requests are noted, and whose errors and refusals by its own policy must be none."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    look = Watched(context.new_page())

    def on_console(message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:  # a row that there is not
            look.wrong.append(message.text)

    context.on("request", lambda request: look.asked.append(f"{request.method} {request.url}"))
    look.page.on("console", on_console)
    look.page.on("pageerror", lambda error: look.wrong.append(str(error)))
    try:
        yield look
        assert look.wrong == []
    finally:
        context.close()


def written(folder: Path) -> str:
    place = folder / "graph.json"
    place.write_text(json.dumps(MIXED))
    return str(place)


@pytest.fixture(scope="module")
def host(account: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The page as `web deploy` put it into `$web`, on another origin than the tables."""
    assert files.are_built(), files.NOT_BUILT
    with hosting() as made, BlobServiceClient.from_connection_string(account) as blobs:
        typed(account, "run", written(tmp_path_factory.mktemp("away")), "--id", "away", expected=1)
        assert typed(account, "web", "deploy", "--site", made.address) == f"{made.address}/"
        made.take(blobs.get_container_client("$web"))
        yield made
        typed(account, "web", "deploy", "--remove")


@pytest.mark.azurite
@pytest.mark.campaign
def test_one_graph_is_shown_from_tables_by_a_link_with_nothing_of_ours_running(
    browser: Browser, account: str, host: Host
) -> None:
    link = typed(account, "grant", "away", "--read", "--link", "--logs")
    assert link.startswith(f"{host.address}/#/g/away?at=")
    services = {urlsplit(part.partition("=")[2]).netloc for part in account.split(";") if "Endpoint=http" in part}
    with watched(browser) as look:
        assert "1 failed" in look.open(link)
        assert look.page.url == f"{host.address}/#/g/away", "no signature stays in the address"
        for route, text in _ROUTES.items():
            look.open(f"{host.address}/{route}")
            look.read(text)
            assert [each.inner_text() for each in look.page.locator('a[href$="/compare"]').all()] == [], route
        look.page.reload()
        look.page.wait_for_function(_STILL)
        look.read("red")
        assert look.page.get_by_role("navigation", name="Screens").get_by_role("link").all_inner_texts() == ["Graphs"]
        assert [each for each in look.asked if "python" in each] == [], "nothing was to be worked out yet"
        look.open(link)
        assert look.page.url == f"{host.address}/#/g/away", "nor of one that is opened in the same tab"
    assert host.missed == []
    assert {each.split()[0] for each in look.asked} <= {"GET", "HEAD", "OPTIONS"}
    own = urlsplit(host.address).netloc
    asked = {urlsplit(each.split()[1]).netloc for each in look.asked if " data:" not in each and " blob:" not in each}
    assert own in asked
    assert asked - {own} <= services
    assert not [each for each in look.asked if own in each and "sig=" in each], "the host learns no signature"


def _hosts(look: Watched) -> set[str]:
    return {urlsplit(each.split()[1]).netloc for each in look.asked if " data:" not in each and " blob:" not in each}


@contextmanager
def handling(store: str) -> Iterator[None]:
    """A handler with a worker, as a process of its own."""
    environ = {**os.environ, "TASKGRAPH_STORE": store}
    process = subprocess.Popen(
        [sys.executable, "-m", "taskgraph", "serve", "--worker", "1"], env=environ, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.azurite
@pytest.mark.campaign
def test_a_rerun_is_planned_and_asked_for_with_nothing_of_ours_running_and_runs_when_a_handler_comes(
    browser: Browser, account: str, host: Host, tmp_path: Path
) -> None:
    flag = tmp_path / "mended"
    document = {
        "tasks": {
            "make": {"task": {"payload": {"command": ["true"]}}},
            "mend": {"requires": ["make"], "task": {"payload": {"command": ["test", "-e", str(flag)]}}},
            "show": {"requires": ["mend"], "task": {"payload": {"command": ["true"]}}},
        }
    }
    place = tmp_path / "graph.json"
    place.write_text(json.dumps(document))
    typed(account, "run", str(place), "--id", "mended", expected=1)
    link = typed(account, "grant", "mended", "--read", "--link", "--changes")
    services = {urlsplit(part.partition("=")[2]).netloc for part in account.split(";") if "Endpoint=http" in part}
    with watched(browser) as look:
        look.open(link)
        for route, text in (("dag", "mend"), ("events", "graph-blocked"), ("t/show/why", "failed for good in run 0")):
            look.page.goto(f"{host.address}/#/g/mended/{route}")
            look.read(text, seconds=60)
        look.page.goto(f"{host.address}/#/g/mended/doctor")
        look.read("Sound")
        look.page.goto(f"{host.address}/#/g/mended/plan?change=rerun&failed=1")
        look.read("1 task would change")
        flag.touch()
        before = len(look.asked)
        look.page.get_by_role("button", name="Apply just this").click()
        look.read("It was asked for")
        added = [each for each in look.asked[before:] if each.startswith("POST")]
        assert added
        assert all("sp=a&" in each for each in added), "rows are added by the signature for that alone"
        with handling(account):
            look.read("It is done", seconds=60)
            look.page.goto(f"{host.address}/#/g/mended")
            look.page.locator("h1").get_by_text("finished").wait_for(timeout=60_000)
        look.page.goto(f"{host.address}/#/g/mended/plan?change=rerun&all=1")
        look.read("tasks would change")
        look.page.get_by_role("button", name="Apply just this").click()
        look.read("It was asked for")
        with handling(account):
            look.read("It is done", seconds=60)
        print(Counter(f"{method} {urlsplit(address).netloc}" for method, address in map(str.split, look.asked)))
        assert _hosts(look) <= {*services, urlsplit(host.address).netloc}
    assert host.missed == []
    assert "by=a link of the page" in typed(account, "events", "mended")


@pytest.mark.azurite
@pytest.mark.campaign
def test_a_link_that_only_reads_plans_and_says_what_it_lacks_and_a_stale_plan_is_shown_anew(
    browser: Browser, account: str, host: Host, tmp_path: Path
) -> None:
    document = {"tasks": {each: {"task": {"executor": "noop", "target": "far"}} for each in ("one", "two")}}
    place = tmp_path / "graph.json"
    place.write_text(json.dumps(document))
    typed(account, "submit", str(place), "--id", "far")
    with handling(account):
        typed(account, "pause", "far", "--wait")
    with watched(browser) as look:
        look.open(typed(account, "grant", "far", "--read", "--link"))
        look.page.goto(f"{host.address}/#/g/far/plan?change=cancel")
        look.read("2 tasks would change", seconds=60)
        look.page.get_by_role("button", name="Apply just this").click()
        look.read("this link opens rows for reading alone")
        with handling(account):
            typed(account, "cancel", "far", "one", "--wait")
        look.page.get_by_role("button", name="Apply just this").click()
        look.read("The graph has moved since this was planned, so nothing was done.")
        look.read("1 task would change")


@pytest.mark.azurite
@pytest.mark.campaign
def test_a_link_without_logs_says_what_it_lacks(browser: Browser, account: str, host: Host) -> None:
    with watched(browser) as look:
        look.open(typed(account, "grant", "away", "--read", "--link"))
        assert "this link opens rows, and no files of runs" in look.open(f"{host.address}/#/g/away/t/build/log")


@pytest.mark.azurite
@pytest.mark.campaign
def test_an_archive_is_shown_where_nothing_is_open(browser: Browser, account: str, host: Host, tmp_path: Path) -> None:
    archive = tmp_path / "away.json.gz"
    typed(account, "archive", "away", "--logs", "-o", str(archive))
    with watched(browser) as look:
        assert "Nothing is open yet" in look.open(f"{host.address}/")
        damaged = tmp_path / "damaged.gz"
        damaged.write_bytes(archive.read_bytes()[:200])
        look.choose(damaged)
        look.read("damaged.gz")
        look.choose(archive)
        look.read("1 failed")
        look.open(f"{host.address}/#/g/away/t/build/log")
        look.read("red")
        look.page.evaluate("location.hash = '#/g/away'")
        assert [each for each in look.asked if "python" in each] == []
        look.page.get_by_role("button", name="Work it out in this tab").first.click()
        look.page.locator(".causes li").first.wait_for(timeout=60_000)
        look.page.evaluate("location.hash = '#/g/away/t/publish/why'")
        look.read("failed for good in run 0")
    assert [each for each in look.asked if host.address not in each and "data:" not in each] == []


@pytest.mark.campaign
def test_python_runs_under_the_policy_of_a_server(browser: Browser, stage: Served, tmp_path: Path) -> None:
    typed(stage.store, "archive", "mixed", "-o", str(tmp_path / "mixed.gz"))
    with looking(browser, stage) as look:  # which holds it to its own code and its own server
        look.open("#/")
        look.drop(tmp_path / "mixed.gz")
        look.open("#/g/mixed/t/publish/why")
        assert "failed for good in run 0" in look.page.locator("main").inner_text()


def test_a_report_is_one_file_that_asks_for_nothing(browser: Browser, tmp_path: Path) -> None:
    store, report = f"sqlite:///{tmp_path}/store.db", tmp_path / "run.html"
    typed(store, "run", written(tmp_path), "--id", "away", expected=1)
    said = typed(store, "report", "away", "--logs", "-o", str(report))
    assert f"{report.stat().st_size:,} bytes" in said
    assert (
        "exists"
        in subprocess.run(
            [sys.executable, "-m", "taskgraph", "report", "away", "-o", str(report), "--store", store],
            capture_output=True,
            text=True,
            check=False,
        ).stderr
    )
    with watched(browser) as look:
        look.open(report.as_uri())
        look.read("1 failed")
        for route, text in _ROUTES.items():
            look.page.evaluate("route => { location.hash = route }", route)
            look.page.wait_for_function(_STILL)
            look.read(text)
            shut = look.page.locator(".judged, a[href$='/compare']").all()
            assert [each.inner_text() for each in shut if each.is_visible()] == [], route
        look.page.evaluate("location.hash = '#/g/away/t/test/why'")
        look.read("works nothing out")
        look.page.screenshot(path=str(tmp_path / "report.png"))
    assert {urlsplit(each.split()[1]).scheme for each in look.asked} <= {"file", "data", "blob"}
    assert len([each for each in look.asked if " file:" in each]) == 1
