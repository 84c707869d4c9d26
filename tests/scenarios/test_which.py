"""Which graph a command or a client means: an id, the beginning of one, `@last`; and the ids of new graphs."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from taskgraph import Client, InvalidInput, NotFound
from taskgraph.interfaces.cli import app as commands
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.ids import is_graph_id, is_task_id, named_ids
from taskgraph.testing import HurriedClock, MemoryStore
from tests.http.typed import both_doors

pytestmark = both_doors

CONTENT = {"metadata": {"name": "Build shapes"}, "tasks": {"a": {"task": {}}}}


class Desk:
    """A folder with the default store, and commands in it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "graph.json"
        self.file.write_text(json.dumps(CONTENT))

    def __call__(self, *words: str, exit_code: int = 0) -> Any:
        found = CliRunner().invoke(commands, words)
        assert found.exit_code == exit_code, (found.stdout, found.stderr, found.exception)
        return found

    def submitted(self, *ids: str) -> None:
        for graph_id in ids:
            self("submit", str(self.file), "--id", graph_id)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(tmp_path)
    for name in ("TASKGRAPH_STORE", "AzureWebJobsStorage", "TASKGRAPH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    return Desk(tmp_path)


# --- new ids ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("build shapes", "build-shapes"),
        ("  Ünïcode / Straße → 2 ", "unicode-strasse-2"),
        ("release-1.4", "release-1-4"),
        ("x" * 39 + " yz", "x" * 39),
        ("--", ""),
        ("夜", ""),
    ],
)
def test_an_id_carries_the_name(name: str, part: str) -> None:
    ids = named_ids(name, "anything")
    assert [each.rpartition("-")[0] for each in ids] == ([part] * 3 if part else [])
    assert [len(each.rpartition("-")[2]) for each in ids] == ([4, 8, 16] if part else [])
    assert all(is_graph_id(each) and not re.search("[ilou]", each.rpartition("-")[2]) for each in ids)


def test_a_graph_without_an_id_gets_one_with_its_name(desk: Desk, tmp_path: Path) -> None:
    assert re.fullmatch(r"build-shapes-[0-9a-hjkmnp-tv-z]{4}\n", desk("submit", "graph.json").stdout)
    (tmp_path / "my tests.v2.json").write_text(json.dumps({"tasks": CONTENT["tasks"]}))
    ran = desk("run", "my tests.v2.json", "--json")
    assert re.fullmatch(r"my-tests-v2-.{4}", json.loads(ran.stdout)["graphId"])
    assert f"--id {json.loads(ran.stdout)['graphId']}" in ran.stderr, "what goes on with it names it whole"


async def test_an_id_that_is_taken_gets_longer_and_no_name_makes_a_random_one() -> None:
    store = MemoryStore(HurriedClock())
    ids = []
    for _ in range(2):
        async with Client(store, clock=HurriedClock()) as client:  # which draws the same id
            ids.append((await client.submit(CONTENT)).graph_id)
    assert [len(each) for each in ids] == [len("build-shapes-7f3k"), len("build-shapes-7f3k") + 4]
    assert ids[1].startswith(ids[0])
    async with Client(store) as client:
        assert is_task_id((await client.submit({"tasks": CONTENT["tasks"]})).graph_id)
        assert (await client.run({**CONTENT, "metadata": {"name": "Nightly"}})).graph_id.startswith("nightly-")


# --- which graph is meant --------------------------------------------------------------------------------------


def test_the_beginning_of_an_id_stands_for_it(desk: Desk) -> None:
    desk.submitted("alpha-1", "beta-1", "beta-1-2", "gamma-1")
    found = desk("status", "alp", "--json")
    assert json.loads(found.stdout)["graphId"] == "alpha-1"
    assert found.stderr == "graph alpha-1\n"
    assert desk("status", "beta-1").stderr.count("graph beta-1") == 0, "an id goes before a beginning"
    assert "there is no graph al in sqlite:///" in desk("status", "al", exit_code=3).stderr
    many = desk("status", "beta", exit_code=2)
    assert "beta is the beginning of 2 ids: beta-1-2, beta-1; write more" in many.stderr
    paused = desk("pause", "gam")
    assert paused.stdout == "graph gamma-1: all of it is asked to be held back\n"
    assert "taskgraph run --id gamma-1" in paused.stderr
    assert desk("why", "gam", "a", "--json").stdout.count("gamma-1")
    desk("archive", "alp")
    assert Path("alpha-1.json.gz").exists()


def test_of_many_candidates_five_are_named(desk: Desk) -> None:
    desk.submitted(*(f"many-{number}" for number in range(7)))
    said = desk("watch", "many", exit_code=2).stderr
    assert "7 ids: many-6, many-5, many-4, many-3, many-2 and 2 more; write" in said


def test_the_last_graph(desk: Desk) -> None:
    missing = desk("status", "@last", exit_code=3)
    assert "there is no graph @last in sqlite:///" in missing.stderr
    desk.submitted("first", "second")
    assert desk("events", "@last").stderr == "graph second\n"
    ran = desk("run", "--id", "@last")
    assert "second" in ran.stdout
    desk("run", "graph.json", "--id", "@last", exit_code=2)
    assert "graph second is finished" in desk("prioritize", "@last", "a", "high", exit_code=4).stderr
    desk("limit", "list", "@last")
    desk.file.write_text(json.dumps({"tasks": {"b": {"requires": ["a"]}}}))
    desk("extend", "fir", "graph.json", "--no-wait")
    desk("edit", "fir", "--delete", "a", "--plan")


def test_what_is_deleted_is_named_whole(desk: Desk) -> None:
    desk("run", "graph.json", "--id", "nightly")
    for words in (("night",), ("@last",), ("night", "other")):
        found = desk("delete", *words, exit_code=2)
        assert f"{words[0]} stands for graph nightly, and only a whole id will do here: write nightly" in found.stderr
    assert "did you mean “nightly”?" in desk("delete", "nihgtly", exit_code=3).stderr
    desk("status", "nightly")
    desk("delete", "nightly")


class Counted:
    """Tables whose reads are counted."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.clock = store.clock
        self.queues, self.logs = store.queues, store.logs
        self.calls: list[str] = []

    def tables(self, name: str) -> Any:
        inner, calls = self._store.tables(name), self.calls

        class Tables:
            def __getattr__(self, name: str) -> Any:
                calls.append(name)
                return getattr(inner, name)

        return Tables()


async def test_what_it_costs() -> None:
    clock = HurriedClock()
    store = Counted(MemoryStore(clock))
    async with Client(store) as client:  # type: ignore[arg-type]
        for graph_id in ("alpha-1", "beta-1"):
            clock.advance(1)
            await client.submit(CONTENT, graph_id)

        async def cost(given: str) -> list[str]:
            store.calls.clear()
            await client.limits_of(given)
            return list(store.calls)

        plain = await cost("alpha-1")
        assert await cost("@last") == ["query", *plain]
        assert await cost("alp") == ["get", "query", *plain]


async def test_clients_take_what_commands_take() -> None:
    clock = HurriedClock()
    async with Client(MemoryStore(clock)) as client:
        await client.submit(CONTENT, "alpha-1")
        clock.advance(1)
        await client.run(CONTENT, "beta-1")
        assert (await client.status("@last")).graph_id == "beta-1"
        assert (await client.status(graph_id="alp")).graph_id == "alpha-1"
        assert [each.label for each in await client.tasks("bet")] == ["a"]
        kinds = [each.kind async for each in client.follow("@last")]
        assert kinds == [each.kind for each in await client.events("bet")]
        assert await client.wait("@last") == "finished"
        with pytest.raises(InvalidInput, match="only a whole id"):
            await client.delete("bet")
        for call in (client.events("nothing"), client.request("nothing", "r"), client.wait("nothing")):
            with pytest.raises(NotFound, match="there is no graph nothing in MemoryStore"):
                await call
        with pytest.raises(NotFound, match="there is no graph nothing in MemoryStore"):
            [each async for each in client.follow("nothing")]
        await client.delete("beta-1")
        with pytest.raises(NotFound, match="was deleted"):
            await client.status("beta-1")


# --- the store that was looked at ------------------------------------------------------------------------------


def test_a_store_in_a_folder_above_is_named(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.submitted("nightly")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    hint = "there is a store in ../../.taskgraph: --store sqlite:///../../.taskgraph/taskgraph.db"
    missing = desk("status", "nightly", exit_code=3)
    assert f"there is no graph nightly in sqlite:///{below}/.taskgraph/taskgraph.db" in missing.stderr
    assert hint in missing.stderr
    assert hint in desk("list").stderr
    assert "state" in desk("status", "nightly", *hint.split(": ")[1].split()).stdout
    elsewhere = desk("status", "nightly", "--store", "sqlite:///other.db", exit_code=3)
    assert "there is a store in" not in elsewhere.stderr


@pytest.mark.parametrize(
    "environ",
    [
        {"TASKGRAPH_STORE": "AccountName=someone;AccountKey=c2VjcmV0"},
        {"TASKGRAPH_STORE": "TableEndpoint=https://someone.table.core.windows.net/?sig=c2VjcmV0;AccountName=someone"},
    ],
)
def test_no_key_is_in_the_name_of_a_store(environ: Mapping[str, str]) -> None:
    settings = read_settings(None, environ, cwd=Path("/nowhere"))
    assert settings.display.startswith("https://someone.table.core.windows.net")
    assert "c2VjcmV0" not in settings.display
    assert settings.store_above(Path("/nowhere")) == ""
