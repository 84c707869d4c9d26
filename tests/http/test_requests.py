"""How many requests a client makes: the table of docs/how-to/http.md, and what goes in one of them."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from taskgraph import Client
from taskgraph.interfaces.cli import app as commands
from taskgraph.interfaces.operations import tokens
from taskgraph.model.errors import Refused, StorageUnavailable
from taskgraph.model.roles import Role
from taskgraph.storage.tables import Range
from taskgraph.testing import HurriedClock
from tests.http.serving import Server, serving, shape_errors
from tests.http.typed import answering

PAGE: Final = Path(__file__).parents[2] / "docs/how-to/http.md"
NIGHTLY: Final[dict[str, Any]] = {
    "tasks": {
        "fetch": {"task": {"executor": "noop"}},
        "test": {"requires": ["fetch"], "command": ["false"]},
        "report": {"requires": ["test"], "task": {"executor": "noop"}},
    }
}
OTHERS: Final = 49


def counted() -> dict[str, int]:
    """Requests by command, as the page says."""
    rows = re.findall(r"^\| `taskgraph (.+?)` \| (\d+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return {command: int(count) for command, count in rows}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server over a graph that is blocked, among others that run."""
    store = f"sqlite:///{tmp_path_factory.mktemp('requests')}/store.db"

    async def fill() -> None:
        async with Client(store) as client:
            for number in range(OTHERS):
                await client.submit({"tasks": {"one": {"task": {}}}}, f"g{number}")
            assert (await client.run(NIGHTLY, "nightly")).state == "blocked"

    asyncio.run(fill())
    with answering(store) as made:
        yield made


@pytest.fixture
async def still(tmp_path: Path) -> AsyncIterator[Server]:
    """A server that answers alone: no row changes by itself."""
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path, slots=0, handles=False) as made:
        yield made


def test_a_command_makes_as_many_requests_as_the_page_says(
    address: str, sent: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graph.json").write_text('{"tasks": {"one": {"task": {}}}}')
    found: dict[str, int] = {}
    for command in counted():
        sent.clear()
        done = CliRunner().invoke(commands, [*command.split(), "--store", address])
        assert done.exit_code == 0, (command, done.stderr)
        found[command] = len(sent)
    assert found == counted()
    assert len(found) > 10


async def test_rows_that_are_wanted_at_once_come_in_one_request(still: Server, sent: list[tuple[str, str]]) -> None:
    async with Client(still.address) as client, Client(still.app.settings) as direct:
        for number in range(70):
            await client.submit({"tasks": {"one": {"task": {"target": "none"}}}}, f"g{number}")
        sent.clear()
        tables = client.app.tables
        asked = [tables.get(f"g{number}", ["task-graph", "none"]) for number in range(70)]
        *rows, page = await asyncio.gather(*asked, tables.query("g0", Range("task:", "task;")))
        assert sent == [("POST", "/reads")] * 2
        assert rows[:70] == [await direct.app.tables.get(f"g{number}", ["task-graph", "none"]) for number in range(70)]
        assert page == await direct.app.tables.query("g0", Range("task:", "task;"))


async def test_a_page_goes_on_alone_that_began_among_others(still: Server) -> None:
    async with Client(still.address) as client:
        await client.submit({"tasks": {name: {"task": {"target": "none"}} for name in "abc"}}, "g")
        tables, rows = client.app.tables, Range("task:", "task;")
        first, other = await asyncio.gather(tables.query("g", rows, limit=2), tables.get("g", ["task-graph"]))
        rest = await tables.query("g", rows, limit=2, continuation=first.continuation)
        assert other[0] is not None
        assert [len(first.rows), len(rest.rows), rest.continuation] == [2, 1, None]


async def test_what_is_refused_among_others_is_refused_alone(guarded: Server, sent: list[tuple[str, str]]) -> None:
    async with Client(guarded.address, token=guarded.tokens[Role.ADMIN]) as client:
        for name in ("mine", "other"):
            await client.submit(NIGHTLY, name)
    token = (await tokens.create(guarded.app, "some", Role.READER, graphs=["mine"]))[1]
    async with Client(guarded.address, token=token) as client:
        sent.clear()
        asked = [client.app.tables.get(name, ["task-graph"]) for name in ("mine", "other", "index:tokens")]
        mine, *others = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(mine, list)
        assert mine[0] is not None
        assert [(type(each), each.code) for each in others if isinstance(each, Refused)] == [
            (Refused, "scope"),
            (Refused, "partition"),
        ]
        assert [method for method, _ in sent] == ["POST", "GET", "GET"]


async def test_calls_that_were_cancelled_leave_the_others_theirs(still: Server) -> None:
    async with Client(still.address) as client:
        await client.submit(NIGHTLY, "g")
        tables = client.app.tables
        gone, stays = (asyncio.ensure_future(tables.get("g", ["task-graph"])) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        assert (await stays)[0] is not None
        alone = [asyncio.ensure_future(tables.get("g", ["task-graph"])) for _ in range(2)]
        while not tables._sending:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        (sending,) = tables._sending  # type: ignore[attr-defined]
        for each in alone:
            each.cancel()
        await asyncio.wait((*alone, sending))
        assert sending.cancelled()


async def test_of_a_server_that_is_away_each_call_says_so(sent: list[tuple[str, str]]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/api"
    async with Client(address, clock=HurriedClock()) as client:
        tables = client.app.tables
        failed = await asyncio.gather(*(tables.get("g", ["task-graph"]) for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in failed] == [StorageUnavailable] * 3
        assert {*sent} == {("POST", "/reads")}
        assert len(sent) > 1, "it is tried again"


async def test_an_answer_has_no_more_calls_once_it_has_rows_enough(still: Server) -> None:
    tasks = {f"t{number}": {"task": {"target": "none"}} for number in range(100)}
    async with Client(still.app.settings) as direct:
        await direct.submit({"tasks": tasks}, "g")
    address = "/partitions/g/rows?start=task:&end=task;"
    answer = await still.ask("POST", "/reads", data=[address] * 40)
    assert shape_errors("storedReads", answer.json) == []
    answers = answer.json["answers"]
    assert [each and len(each["rows"]) for each in answers] == [100] * 16 + [None] * 24


@pytest.mark.parametrize(
    "body",
    [[], {}, ["/graphs/g"], ["/partitions/g/rows#x"], ["/partitions/g/rows"] * 65, ["/partitions/a/b/rows"], [1]],
)
async def test_what_is_no_reading_of_rows_is_refused(still: Server, body: Any) -> None:
    answer = await still.ask("POST", "/reads", data=body)
    assert (answer.status, answer.code) == (400, "invalid-graph")
