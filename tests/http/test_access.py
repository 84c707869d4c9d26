"""Who may do what: each role against each route, tokens with a scope or an end, names of the server, and rates."""

import asyncio
from pathlib import Path

import pytest

from taskgraph.interfaces.http import gate as gates
from taskgraph.interfaces.http.table import ROUTES
from taskgraph.interfaces.operations import tokens
from taskgraph.model.errors import InvalidInput, NotFound, Refused
from taskgraph.model.names import TOKENS
from taskgraph.model.roles import Role
from taskgraph.storage.tables import Range, query_all
from taskgraph.testing import ManualClock
from tests.http.access_table import DOCUMENT, call
from tests.http.serving import Server, serving


async def test_each_role_against_each_route(guarded: Server) -> None:
    for route in ROUTES:
        assert (await call(guarded, route.name, None)).status == (200 if route.role is None else 401), route.name
        for role in Role:
            answer = await call(guarded, route.name, guarded.tokens[role])
            if route.role is None or role.may(route.role):
                assert answer.status in (200, 201, 202, 404, 409), (route.name, role, answer)
            else:
                assert (answer.status, answer.code) == (403, "role"), (route.name, role)


def test_roles_nest_and_a_worker_stands_apart() -> None:
    table = {role: [str(each) for each in Role if role.may(each)] for role in Role}
    assert table == {
        Role.READER: ["reader"],
        Role.SUBMITTER: ["reader", "submitter"],
        Role.OPERATOR: ["reader", "submitter", "operator"],
        Role.ADMIN: ["reader", "submitter", "operator", "admin"],
        Role.WORKER: ["worker"],
    }


@pytest.mark.parametrize(
    "given", ["Bearer", "Bearer x", "Bearer tg.reader.wrong", "Bearer tg..", "Basic eA==", "Bearer tg.\xe9.x", "tg"]
)
async def test_what_is_no_token_opens_nothing(guarded: Server, given: str) -> None:
    answer = await guarded.get("/graphs", Authorization=given)
    assert (answer.status, answer.code) == (401, "token")
    assert answer.headers["www-authenticate"].startswith("Bearer ")


async def test_a_token_for_some_graphs_sees_no_others(guarded: Server) -> None:
    _, text = await tokens.create(guarded.app, "some", Role.SUBMITTER, graphs=["mine-*", "one"])
    for graph_id in ("mine-1", "one", "other"):
        put = await guarded.ask("PUT", f"/graphs/{graph_id}", data=DOCUMENT, token=guarded.tokens[Role.ADMIN])
        assert put.status == 201
    listed = (await guarded.ask("GET", "/graphs", token=text)).json["graphs"]
    assert {each["graphId"] for each in listed} == {"mine-1", "one"}
    assert (await guarded.ask("GET", "/graphs/mine-1", token=text)).status == 200
    for method, path in (("GET", "/graphs/other"), ("PUT", "/graphs/two"), ("GET", "/workers"), ("GET", "/overview")):
        answer = await guarded.ask(method, path, data=DOCUMENT if method == "PUT" else None, token=text)
        assert (answer.status, answer.code) == (403, "scope"), path
    missing = await guarded.ask("GET", "/graphs/mine-2", token=text)
    assert (missing.status, missing.json["near"]) == (404, ["mine-1"])
    assert (await guarded.ask("POST", "/graphs", data=DOCUMENT, token=text)).code == "scope"
    named = await guarded.ask("POST", "/graphs", data=DOCUMENT, token=text, Idempotency_Key="mine-3")
    assert (named.status, named.headers["location"]) == (201, "/api/v1/graphs/mine-3")


async def test_a_token_is_kept_as_a_hash_alone(guarded: Server) -> None:
    rows = await query_all(guarded.app.tables, TOKENS, Range())
    kept = " ".join(str(value) for row in rows for value in (row.key, *row.columns.values()))
    for text in guarded.tokens.values():
        assert text not in kept
        assert text.rpartition(".")[2] not in kept
    assert len({row.columns["hash"] for row in rows}) == len(Role)


async def test_a_token_that_is_revoked_opens_nothing_after_a_while(
    guarded: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "KNOWN_SECONDS", 0.5)
    text = guarded.tokens[Role.READER]
    assert (await guarded.ask("GET", "/graphs", token=text)).status == 200
    await tokens.revoke(guarded.app, "reader")
    assert (await guarded.ask("GET", "/graphs", token=text)).status == 200
    async with asyncio.timeout(20):
        while (await guarded.ask("GET", "/graphs", token=text)).status == 200:
            await asyncio.sleep(0.05)
    with pytest.raises(NotFound, match="there is no token reader"):
        await tokens.revoke(guarded.app, "reader")


async def test_a_token_ends(guarded: Server) -> None:
    made, text = await tokens.create(guarded.app, "short", Role.READER, days=1)
    assert await tokens.find(guarded.app, text) == made
    clock = ManualClock()
    clock.advance((guarded.app.clock.now() - clock.now()).total_seconds() + 86_400)
    object.__setattr__(guarded.app, "clock", clock)
    assert await tokens.find(guarded.app, text) is None


async def test_what_cannot_be_a_token_is_refused(guarded: Server) -> None:
    app = guarded.app
    with pytest.raises(Refused, match="there is a token reader already"):
        await tokens.create(app, "reader", Role.ADMIN)
    for name, more in (
        ("a.b", {}),
        ("", {}),
        ("a", {"graphs": ["x[y"]}),
        ("a", {"graphs": ["x"] * 21}),
        ("a", {"days": 0}),
        ("a", {"days": 1e9}),
    ):
        with pytest.raises(InvalidInput):
            await tokens.create(app, name, Role.READER, **more)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="for targets"):
        await tokens.create(app, "a", Role.WORKER, graphs=["x"])


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Host": "evil.example"}, "host"),
        ({"Host": "evil.example:80"}, "host"),
        ({"Host": "[::2]:1"}, "host"),
        ({"Origin": "http://evil.example"}, "cross-site"),
        ({"Origin": "null"}, "cross-site"),
        ({"Sec-Fetch-Site": "cross-site"}, "cross-site"),
    ],
)
async def test_pages_of_others_ask_nothing(local: Server, headers: dict[str, str], code: str) -> None:
    for method in ("GET", "PUT", "OPTIONS"):
        answer = await local.ask(method, "/graphs/g", data=DOCUMENT if method == "PUT" else None, **headers)
        assert (answer.status, answer.code) == (421 if code == "host" else 403, code)
    assert (await local.get("/graphs/g")).status == 404


async def test_a_page_of_this_server_may_ask(local: Server) -> None:
    for headers in ({"Origin": local.address}, {"Host": "localhost:1"}, {"Host": "[::1]:5"}):
        assert (await local.get("/graphs", **headers)).status == 200


async def test_a_token_asks_so_often(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path, anonymous=False, rate=1.0) as server:
        reader, admin = server.tokens[Role.READER], server.tokens[Role.ADMIN]
        answers = [await server.ask("GET", "/targets", token=reader) for _ in range(5)]
        assert [each.status for each in answers[:2]] == [200, 200]
        last = next(each for each in answers if each.status != 200)
        assert (last.status, last.code, last.headers["retry-after"]) == (429, "rate", "1")
        assert (await server.ask("GET", "/targets", token=admin)).status == 200
