"""The page beside the API: its files, what their headers allow, and what is said where it is not built."""

import re
from pathlib import Path
from typing import Any

import pytest

from taskgraph.interfaces.web import files
from tests.http.serving import Server, serving


async def asked(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, Any, str]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with server.session.request(method, f"{server.address}{path}", headers=named) as answer:
        return answer.status, answer.headers, await answer.text()


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of files as `scripts/web` makes them."""
    folder = tmp_path / "static"
    folder.mkdir()
    (folder / "index.html").write_text('<script type="module" src="main-K2YAK5LW.js"></script>')
    (folder / "main-K2YAK5LW.js").write_text("//" + "x" * 5_000)
    (folder / "LICENSES.txt").write_text("notices")
    (tmp_path / "secret.txt").write_text("not of the page")
    monkeypatch.setattr(files, "STATIC", folder)
    return folder


async def test_the_page_needs_no_token_and_the_api_does(tmp_path: Path, built: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path, anonymous=False) as guarded:
        status, headers, text = await asked(guarded, "/")
        assert (status, text) == (200, (built / "index.html").read_text())
        assert headers["content-type"] == "text/html; charset=utf-8"
        assert headers["cache-control"] == "no-store"
        assert (await guarded.get("/graphs")).status == 401


async def test_a_hashed_name_is_kept_for_ever_and_packed(local: Server, built: Path) -> None:
    status, headers, text = await asked(local, "/main-K2YAK5LW.js", accept_encoding="gzip")
    assert (status, headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert (headers["cache-control"], headers["content-encoding"]) == (files.KEPT, "gzip")
    assert text == (built / "main-K2YAK5LW.js").read_text()
    status, headers, text = await asked(local, "/LICENSES.txt")
    assert (status, headers["cache-control"], text) == (200, "no-store", "notices")


async def test_every_file_says_what_the_page_may(local: Server, built: Path) -> None:
    for name in ("", "index.html", "main-K2YAK5LW.js", "LICENSES.txt"):
        _, headers, _ = await asked(local, f"/{name}")
        assert {each: headers[each] for each in files.HEADERS} == files.HEADERS
    allowed = dict(each.split(" ", 1) for each in files.POLICY.split("; "))
    assert allowed["default-src"] == "'none'"
    assert allowed["connect-src"] == allowed["style-src"] == "'self'"
    assert "unsafe-inline" not in files.POLICY


async def test_a_link_on_another_site_opens_the_page_but_asks_nothing_of_the_api(local: Server, built: Path) -> None:
    status, _, _ = await asked(local, "/", sec_fetch_site="cross-site", sec_fetch_mode="navigate")
    assert status == 200
    assert (await local.get("/graphs", sec_fetch_site="cross-site")).code == "cross-site"


@pytest.mark.parametrize(
    "path",
    [
        "/nothing.js",
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/api/v2",
        "/api/v1/nothing",
        "/static/index.html",
    ],
)
async def test_what_is_no_file_of_the_page_is_no_route(local: Server, built: Path, path: str) -> None:
    for method in ("GET", "POST"):
        status, headers, text = await asked(local, path, method)
        assert (status, headers["content-type"]) == (404, "application/problem+json"), path
        assert '"no-route"' in text


async def test_the_page_is_only_read(local: Server, built: Path) -> None:
    status, headers, _ = await asked(local, "/", "POST")
    assert (status, headers["allow"]) == (405, "GET, HEAD")
    status, headers, text = await asked(local, "/", "HEAD")
    assert (status, headers["content-length"], text) == (200, str((built / "index.html").stat().st_size), "")


async def test_where_it_is_not_built_the_answer_names_what_builds_it(local: Server, built: Path) -> None:
    (built / "index.html").unlink()
    status, _, text = await asked(local, "/")
    assert (status, '"no-page"' in text, "scripts/web" in text) == (404, True, True)
    assert (await local.get("/graphs")).status == 200


def test_what_was_built_is_whole() -> None:
    """`scripts/test` builds it before."""
    text = (files.STATIC / "index.html").read_text()
    named = re.findall(r'(?:src|href)="([^":]+)"', text)
    assert len(named) >= 2
    for each in named:
        assert files.HASHED.search(each), "what is kept for ever"
        assert (files.STATIC / each).is_file()
    assert "://" not in text
    assert re.search(r"<script(?![^>]* src=)|<style| style=| on[a-z]+=", text) is None, (
        "the page's own headers refuse it"
    )
