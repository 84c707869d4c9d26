"""Share tokens: each reads one graph and no other, until its end, or until all of them are ended."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from taskgraph.interfaces.http import gate as gates
from taskgraph.interfaces.http.table import ROUTES
from taskgraph.interfaces.operations import shares, tokens
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, InvalidInput, NotFound, Refused, Unclear
from taskgraph.model.roles import Role
from taskgraph.testing import ManualClock
from tests.http.access_table import DOCUMENT, call
from tests.http.serving import Server, serving, shape_errors


async def shared(server: Server, graph_id: str = "g") -> str:
    admin = server.tokens[Role.ADMIN]
    await server.ask("PUT", f"/graphs/{graph_id}", data=DOCUMENT, token=admin)
    answer = await server.ask("POST", f"/graphs/{graph_id}:share?hours=2", token=admin)
    assert (answer.status, shape_errors("token", answer.json)) == (200, [])
    assert (answer.json["role"], answer.json["graphs"], answer.json["by"]) == ("reader", [graph_id], "admin")
    return str(answer.json["token"])


async def test_it_reads_one_graph_and_no_other(place: str, tmp_path: Path) -> None:
    async with serving(place, tmp_path, anonymous=False) as server:
        text = await shared(server)
        await server.ask("PUT", "/graphs/other", data=DOCUMENT, token=server.tokens[Role.ADMIN])
        assert await server.ended("g") == await server.ended("other") == "finished"
        for route in ROUTES:
            for graph in ("g", "other"):
                answer = await call(server, route.name, text, graph)
                is_its_own = (graph == "g" and "graph" in route.path_names) or route.scoped
                if route.role is None or (route.role is Role.READER and is_its_own):
                    assert answer.status in (200, 404, 409), (route.name, graph, answer)
                else:
                    assert (answer.status, answer.code in ("role", "scope")) == (403, True), (route.name, graph)
        listed = (await server.ask("GET", "/graphs", token=text)).json["graphs"]
        assert [each["graphId"] for each in listed] == ["g"]


async def test_what_was_changed_in_it_opens_nothing(guarded: Server) -> None:
    text = await shared(guarded)
    mark, graph, end, signature = text.split(".")
    assert (mark, graph) == ("tgs", "g")
    later, flipped = str(int(end) + 1), ("B" if signature[0] == "A" else "A") + signature[1:]
    for each in (
        f"tgs.other.{end}.{signature}",
        f"tgs.g.{later}.{signature}",
        f"tgs.g.{end}.{flipped}",
        f"tgs.g.{end}.",
        f"tgs.g.{end}.\u00e9",
        f"tgs.g.99999999999.{signature}",
        f"tgs.g..{signature}",
        f"tgs..{end}.{signature}",
        "tgs....",
        f"tg.shares.{base64.urlsafe_b64encode(b'x').decode()}",
        "tg.shares.",
    ):
        answer = await guarded.get("/graphs/g", Authorization=f"Bearer {each}")
        assert (answer.status, answer.code) == (401, "token"), each
    assert (await guarded.ask("GET", "/graphs/g", token=text)).status == 200


async def test_it_ends(guarded: Server) -> None:
    await shared(guarded)
    made, text = await shares.share(guarded.app, "g", hours=1)
    clock = ManualClock()
    clock.advance((guarded.app.clock.now() - clock.now()).total_seconds() + 3_590)
    object.__setattr__(guarded.app, "clock", clock)
    found = await shares.find(guarded.app, text)
    assert found is not None
    assert (found.name, found.until) == ("share of g", made.until)
    clock.advance(10)
    assert await shares.find(guarded.app, text) is None


async def test_a_server_that_has_just_seen_it_heeds_its_end(guarded: Server) -> None:
    await shared(guarded)
    _, text = await shares.share(guarded.app, "g", hours=3 / 3_600)
    assert (await guarded.ask("GET", "/graphs/g", token=text)).status == 200
    async with asyncio.timeout(gates.KNOWN_SECONDS / 2):
        while (await guarded.ask("GET", "/graphs/g", token=text)).status == 200:
            await asyncio.sleep(0.1)


async def test_a_new_secret_ends_all_of_them(guarded: Server) -> None:
    first, second = await shared(guarded), await shared(guarded, "h")
    assert [each.name for each in await tokens.listed(guarded.app)].count(shares.NAME) == 1
    await tokens.revoke(guarded.app, shares.NAME)
    assert [await shares.find(guarded.app, each) for each in (first, second)] == [None, None]
    third = await shared(guarded)
    assert await shares.find(guarded.app, third) is not None
    assert [await shares.find(guarded.app, each) for each in (first, second)] == [None, None]


def test_none_lasts_until_its_id_is_given_again() -> None:
    assert limits.SHARE_HOURS_MAX * 3_600 <= limits.TOMBSTONE_SECONDS


async def test_what_cannot_be_shared_is_refused(guarded: Server) -> None:
    app = guarded.app
    with pytest.raises(NotFound):
        await shares.share(app, "missing")
    await guarded.ask("PUT", "/graphs/g", data=DOCUMENT, token=guarded.tokens[Role.ADMIN])
    for hours in (0, -1, 721):
        with pytest.raises(InvalidInput):
            await shares.share(app, "g", hours=hours)
    await tokens.create(app, shares.NAME, Role.READER)
    with pytest.raises(Refused, match="revoke it first"):
        await shares.share(app, "g")


@pytest.mark.parametrize("error", [Conflict("x"), Unclear("x")], ids=["conflict", "unclear"])
async def test_the_secret_is_made_once_whatever_its_writer_hears(
    guarded: Server, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    commit = guarded.app.tables.commit

    async def lost(*args: Any) -> None:
        await commit(*args)
        raise error

    await guarded.ask("PUT", "/graphs/g", data=DOCUMENT, token=guarded.tokens[Role.ADMIN])
    assert await guarded.ended("g") == "finished"
    monkeypatch.setattr(guarded.app.tables, "commit", lost)
    first, second = [(await shares.share(guarded.app, "g"))[1] for _ in range(2)]
    monkeypatch.undo()
    for text in (first, second):
        assert (await guarded.ask("GET", "/graphs/g", token=text)).status == 200
