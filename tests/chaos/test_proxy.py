"""A network that misbehaves below every library: the store reads it rightly, and graphs run to their ends."""

import asyncio
import secrets

import pytest

from taskgraph.model.clock import SystemClock
from taskgraph.model.errors import StorageUnavailable, Unclear
from taskgraph.storage.azure.account import AzureStore
from taskgraph.storage.tables import Insert
from tests.chaos.life import Life, verdict
from tests.chaos.proxy import Weather, proxied, stormy
from tests.chaos.test_calls import STORIES

pytestmark = pytest.mark.azurite


@pytest.mark.parametrize(
    ("weather", "error", "written"),
    [
        (Weather("pass"), None, True),
        (Weather("delay"), None, True),
        (Weather("refuse"), (Unclear, StorageUnavailable), False),
        (Weather("drop"), Unclear, True),
        (Weather("cut", bytes=30), Unclear, True),
        (Weather("half-close", bytes=30), Unclear, True),
        (Weather("half-close", bytes=0), Unclear, True),
        (Weather("hang"), Unclear, True),
    ],
    ids=lambda value: f"{value.mode}-{value.bytes}" if isinstance(value, Weather) else None,
)
async def test_a_commit_through_a_bad_connection(
    azurite: str, weather: Weather, error: type[Exception] | None, written: bool
) -> None:
    prefix = f"t{secrets.token_hex(6)}"
    plain = AzureStore.from_connection_string(azurite, SystemClock())
    await plain.tables(prefix).commit("p", [Insert("before", {})])
    async with proxied(azurite, weather) as through:
        store = AzureStore.from_connection_string(through, SystemClock())
        commit = store.tables(prefix).commit("p", [Insert("a", {"n": 1}), Insert("b", {"n": 2})])
        if error is None:
            await commit
        else:
            with pytest.raises(error):
                await commit
        await store.close()
    found = await plain.tables(prefix).get("p", ["a", "b"])
    assert [row is not None for row in found] == [written, written]
    assert weather.met[weather.mode] >= 1
    await plain.close()


async def test_the_weather_changes_for_connections_that_are_open(azurite: str) -> None:
    prefix = f"t{secrets.token_hex(6)}"
    weather = Weather("pass")
    async with proxied(azurite, weather) as through:
        store = AzureStore.from_connection_string(through, SystemClock())
        tables = store.tables(prefix)
        await tables.commit("p", [Insert("a", {})])
        weather.mode = "drop"
        with pytest.raises(Unclear):
            await tables.commit("p", [Insert("b", {})])
        weather.mode = "pass"
        assert [row is not None for row in await tables.get("p", ["a", "b"])] == [True, True]
        await store.close()


@pytest.mark.parametrize("name", ["chain", "extended"])
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_graph_runs_to_its_end_in_a_storm(azurite: str, name: str, seed: int) -> None:
    """One answer in six goes wrong somehow: resets, halves, silence. A life makes some forty requests."""
    story = STORIES[name]()
    weather = stormy(seed, 1 / 6)
    async with proxied(azurite, weather) as through:
        life = Life(through, f"c{secrets.token_hex(6)}", story)
        await life.live()
        weather.mode = "pass"
        await verdict(life, story)
        await life.close()
    assert sum(count for mode, count in weather.met.items() if mode != "pass") > 3, weather.met


async def test_several_processes_race_in_a_storm(azurite: str) -> None:
    """Three of them on one graph: what one cannot do, another does, and nothing is done twice but what was lost."""
    story, prefix = STORIES["diamond"](), f"c{secrets.token_hex(6)}"
    weather = stormy(7, 1 / 15)
    async with proxied(azurite, weather) as through:
        lives = [Life(through, prefix, story) for _ in range(3)]
        await asyncio.gather(*(life.live() for life in lives))
        weather.mode = "pass"
        await verdict(lives[0], story)
        for life in lives:
            await life.close()
