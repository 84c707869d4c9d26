"""Schedules from Python: made, looked at, changed and run by hand; and the synchronous face of the same."""

import inspect
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from taskgraph import Client, Graph, InvalidGraph, InvalidInput, NotFound, Refused
from taskgraph.interfaces.client.schedules import ScheduleCalls
from taskgraph.interfaces.client.sync import SyncScheduleCalls
from taskgraph.testing import HurriedClock
from tests.unit.conftest import Opened

START = datetime(2026, 3, 28, 20, tzinfo=UTC)


def greetings() -> Graph:
    graph = Graph(name="greetings", params={"who": {"type": "string"}})
    graph.task("hello", command=["echo", {"$param": "who"}])
    return graph


async def test_a_schedule_is_made_looked_at_changed_and_taken_away(opened: Opened) -> None:
    clock = HurriedClock(START)
    async with opened(clock) as client:
        schedules = client.schedules
        made, outcome = await schedules.create(
            "greet", greetings(), cron="30 2 * * *", timezone="Europe/Berlin", params={"who": "night"}
        )
        assert (outcome, made.next) == ("created", datetime(2026, 3, 29, 1, tzinfo=UTC))
        assert [each.name for each in await schedules.list()] == ["greet"]
        submitted = await schedules.run_now("greet")
        task = await client.task(submitted.graph_id, "hello")
        assert task.definition["payload"] == {"command": ["echo", "night"]}
        detail = await schedules.show("greet")
        assert [each.state for each in detail.runs] == ["running"]
        assert detail.upcoming[1] - detail.upcoming[0] == timedelta(hours=23.5)  # 03:00 by summer time, then 02:30
        changed = await schedules.update("greet", every=timedelta(minutes=5), overlap="cancel", keep=2)
        assert (changed.next, changed.overlap) == (START + timedelta(minutes=5), "cancel")
        assert (await schedules.deactivate("greet")).active is False
        assert (await schedules.activate("greet")).active is True
        assert [each.name for each in await schedules.deactivate_all()] == ["greet"]
        assert [each.active for each in await schedules.activate_all()] == [True]
        assert [each.schedule for each in await client.graphs(schedule="greet")] == ["greet"]
        await schedules.delete("greet")
        with pytest.raises(NotFound):
            await schedules.show("greet")


async def test_what_makes_no_sense_is_refused(opened: Opened) -> None:
    async with opened(HurriedClock(START)) as client:
        schedules, graph, who = client.schedules, greetings(), {"who": "me"}
        with pytest.raises(InvalidInput, match="say when"):
            await schedules.create("a", graph, params=who)
        with pytest.raises(InvalidInput, match="goes with cron"):
            await schedules.create("a", graph, params=who, timezone="UTC")
        with pytest.raises(InvalidInput, match="whole seconds"):
            await schedules.create("a", graph, params=who, every=1.5)
        with pytest.raises(InvalidInput, match="one of skip, queue, cancel, allow"):
            await schedules.create("a", graph, params=who, every=60, overlap="maybe")
        with pytest.raises(InvalidInput, match="five fields"):
            await schedules.create("a", graph, params=who, cron="@reboot")
        with pytest.raises(InvalidGraph):
            await schedules.create("a", graph, every=60)
        with pytest.raises(InvalidInput, match="go with a graph"):
            await schedules.update("a", params=who)
        await schedules.create("a", graph, params=who, every=60)
        with pytest.raises(Refused):
            await schedules.create("a", graph, params={"who": "you"}, every=60)


def test_the_synchronous_face_has_every_method_and_does_the_same(tmp_path: Path) -> None:
    own = {name for name, each in vars(ScheduleCalls).items() if inspect.iscoroutinefunction(each)}
    assert own == {name for name in vars(SyncScheduleCalls) if not name.startswith("_")}
    with Client.sync(f"sqlite:///{tmp_path}/store.db") as client:
        made, _ = client.schedules.create("a", greetings(), params={"who": "me"}, every=60)
        assert client.schedules.list() == [made]
