"""The promises of the port Logs, kept by every store."""

import asyncio
import urllib.request

import pytest

from taskgraph.storage.logs import LogFile
from tests.conftest import OpenStore

TASK = "abcdefghijklmnopqrstuv"


async def test_what_is_appended_can_be_read(store: OpenStore) -> None:
    logs, graph = store.logs, store.prefix
    await logs.append(graph, TASK, 0, b"first ")
    await logs.append(graph, TASK, 0, b"second\n")
    await logs.append(graph, TASK, 0, bytes(range(256)))
    assert await logs.read(graph, TASK, 0) == b"first second\n" + bytes(range(256))
    assert await logs.read(graph, TASK, 0, offset=6, limit=6) == b"second"
    assert await logs.read(graph, TASK, 0, offset=6, limit=10_000) == b"second\n" + bytes(range(256))


async def test_a_reader_follows_a_writer(store: OpenStore) -> None:
    logs, graph = store.logs, store.prefix
    offset = 0
    for part in (b"a", b"bc", b"def"):
        await logs.append(graph, TASK, 0, part)
        found = await logs.read(graph, TASK, 0, offset=offset)
        assert found == part
        offset += len(part)
        assert await logs.read(graph, TASK, 0, offset=offset) == b"", "the end"
    assert await logs.read(graph, TASK, 0, offset=10_000) == b""


async def test_a_log_that_does_not_exist_is_none(store: OpenStore) -> None:
    logs, graph = store.logs, store.prefix
    assert await logs.read(graph, TASK, 0) is None
    await logs.append(graph, TASK, 0, b"x")
    assert await logs.read(graph, TASK, 1) is None
    assert await logs.read(graph, "other", 0) is None
    assert await logs.read(graph, TASK, 0, name="result.json") is None


async def test_nothing_appended_makes_an_empty_log(store: OpenStore) -> None:
    logs, graph = store.logs, store.prefix
    await logs.append(graph, TASK, 0, b"")
    assert await logs.read(graph, TASK, 0) == b""
    await logs.append(graph, TASK, 0, b"x")
    await logs.append(graph, TASK, 0, b"")
    assert await logs.read(graph, TASK, 0) == b"x"


async def test_runs_and_files_are_apart(store: OpenStore) -> None:
    logs, graph = store.logs, store.prefix
    for run in (0, 1):
        for name in ("run.log", "result.json"):
            await logs.append(graph, TASK, run, f"{run} {name}".encode(), name=name)
    assert await logs.read(graph, TASK, 1) == b"1 run.log"
    assert await logs.read(graph, TASK, 0, name="result.json") == b"0 result.json"


async def test_a_long_log_goes_in_and_out(store: OpenStore) -> None:
    logs, graph = store.logs, store.prefix
    data = bytes(range(251)) * 36_000  # 9 MB, past two blocks of 4 MiB
    await logs.append(graph, TASK, 0, data)
    found = b""
    while part := await logs.read(graph, TASK, 0, offset=len(found), limit=8 << 20):
        found += part
    assert found == data


async def listed(store: OpenStore, graph: str) -> list[LogFile]:
    found: list[LogFile] = []
    page = await store.logs.files(graph)
    found += page.files
    while page.continuation is not None:
        page = await store.logs.files(graph, continuation=page.continuation)
        found += page.files
    return found


async def test_the_files_of_a_graph_are_listed_and_removed(store: OpenStore) -> None:
    logs, graph = store.logs, store.prefix
    other = f"{graph}x"  # its name begins with the other's
    assert await listed(store, graph) == []
    assert await logs.remove(graph) == 0
    for run in (10, 9, 0):
        await logs.append(graph, TASK, run, b"x" * run)
    await logs.append(graph, TASK, 0, b"{}", name="result.json")
    await logs.append(graph, "a" * 22, 0, b"first")
    await logs.append(other, TASK, 0, b"stays")
    assert await listed(store, graph) == [
        LogFile("a" * 22, 0, "run.log", 5),
        LogFile(TASK, 0, "result.json", 2),
        LogFile(TASK, 0, "run.log", 0),
        LogFile(TASK, 10, "run.log", 10),
        LogFile(TASK, 9, "run.log", 9),
    ]
    assert sum(await asyncio.gather(logs.remove(graph), logs.remove(graph))) >= 5, "two at a time"
    assert await listed(store, graph) == []
    assert await logs.read(graph, TASK, 0) is None
    assert await logs.read(other, TASK, 0) == b"stays"
    await logs.append(graph, TASK, 0, b"again")
    assert await logs.remove(graph) == 1


async def test_logs_are_kept_house_of_by_graph_alone(store: OpenStore) -> None:
    for graph in ("..", "a/b", "", "a" * 65):
        with pytest.raises(ValueError, match="the logs of graph"):
            await store.logs.files(graph)
        with pytest.raises(ValueError, match="the logs of graph"):
            await store.logs.remove(graph)


async def test_the_url_names_the_log_and_carries_no_secret(store: OpenStore) -> None:
    logs, graph = store.logs, store.prefix
    url = logs.url(graph, TASK, 3)
    assert url.endswith(f"/{graph}/{TASK}/3/run.log")
    assert "?" not in url
    if store.kind == "embedded":
        await logs.append(graph, TASK, 3, b"there")
        with urllib.request.urlopen(url) as answer:  # noqa: S310  # a file is what it must be here
            assert answer.read() == b"there"
    elif store.kind == "azurite":
        assert url.startswith("http://127.0.0.1:")
        assert "/taskgraph-logs/" in url


@pytest.mark.parametrize(
    ("graph", "task", "run", "name"),
    [
        ("..", TASK, 0, "run.log"),
        ("a/b", TASK, 0, "run.log"),
        ("", TASK, 0, "run.log"),
        ("g", "..", 0, "run.log"),
        ("g", "../../etc", 0, "run.log"),
        ("g", "/etc", 0, "run.log"),
        ("g", TASK, -1, "run.log"),
        ("g", TASK, 0, ".."),
        ("g", TASK, 0, ".hidden"),
        ("g", TASK, 0, "../x"),
        ("g", TASK, 0, "a/b"),
        ("g", TASK, 0, "a\\b"),
        ("g", TASK, 0, "a\nb"),
        ("g\n", TASK, 0, "run.log"),
        ("g", TASK, 0, ""),
        ("g", TASK, 0, "x" * 101),
    ],
)
async def test_no_name_leads_out_of_the_place_of_the_logs(
    store: OpenStore, graph: str, task: str, run: int, name: str
) -> None:
    logs = store.logs
    with pytest.raises(ValueError, match="log"):
        await logs.append(graph, task, run, b"x", name=name)
    with pytest.raises(ValueError, match="log"):
        await logs.read(graph, task, run, name=name)
    with pytest.raises(ValueError, match="log"):
        logs.url(graph, task, run, name)


async def test_reading_is_bounded(store: OpenStore) -> None:
    for offset, limit in ((-1, 1), (0, 0), (0, -1)):
        with pytest.raises(ValueError, match="reading"):
            await store.logs.read("g", TASK, 0, offset=offset, limit=limit)


async def test_a_file_is_had_by_another_run_too(store: OpenStore) -> None:
    logs, graph, other = store.logs, store.prefix, f"{store.prefix}-2"
    await logs.append(graph, TASK, 0, b"bytes", name="sha256-1")
    assert await logs.copy((graph, TASK, 0), (other, TASK, 3), "sha256-1")
    assert await logs.read(other, TASK, 3, name="sha256-1") == b"bytes"
    assert await logs.copy((graph, TASK, 0), (other, TASK, 3), "sha256-1"), "again"
    assert not await logs.copy((graph, TASK, 1), (other, TASK, 4), "sha256-1"), "there is none"
    await logs.append(other, TASK, 4, b"own", name="sha256-1")
    assert await logs.copy((graph, TASK, 0), (other, TASK, 4), "sha256-1")
    assert await logs.read(other, TASK, 4, name="sha256-1") == b"own", "what is there stays"
    await logs.remove(graph)
    assert await logs.read(other, TASK, 3, name="sha256-1") == b"bytes", "it goes with its own graph"
    assert await logs.remove(other) == 2


async def test_bytes_are_added_where_they_belong_or_not_at_all(store: OpenStore) -> None:
    logs, graph = store.logs, store.prefix
    assert await logs.append_at(graph, TASK, 0, 0, b"first ", "run.log")
    assert await logs.append_at(graph, TASK, 0, 6, b"second", "run.log")
    assert not await logs.append_at(graph, TASK, 0, 6, b"second", "run.log"), "it is there"
    assert not await logs.append_at(graph, TASK, 0, 99, b"later", "run.log"), "something is missing"
    assert await logs.read(graph, TASK, 0) == b"first second"
    assert await logs.append_at(graph, TASK, 1, 0, b"", "run.log")
    assert await logs.read(graph, TASK, 1) == b""
    found = await asyncio.gather(*(logs.append_at(graph, TASK, 2, 0, b"x" * 5_000, "run.log") for _ in range(5)))
    assert sum(found) == 1
    assert len(await logs.read(graph, TASK, 2) or b"") == 5_000
