"""Whoever keeps house: `serve` by itself, and the function app in the first round of every ten minutes."""

import logging
from typing import Any

import pytest

from taskgraph.engine.housekeeping import Kept
from taskgraph.interfaces import loops
from taskgraph.interfaces.functions import read_bindings
from taskgraph.interfaces.settings import read_keep_days
from taskgraph.model import limits
from taskgraph.model.errors import InvalidSettings, StorageUnavailable
from taskgraph.model.flag import Flag
from taskgraph.testing import HurriedClock


class Part:
    """What of an installation the loop uses."""

    def __init__(self) -> None:
        self.clock = HurriedClock()
        self.handlers = self.logs = self.give_back = None


async def test_serve_looks_again_at_once_while_there_is_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop = Flag()
    rounds: list[Any] = [Kept(deleted=["a"], more=True), StorageUnavailable("503"), Kept()]
    pauses: list[float] = []

    async def keep_house(handlers: Any, logs: Any, *, keep_days: float | None) -> Kept:
        assert keep_days == 7
        found = rounds.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def wait_any(events: tuple[Flag, ...], seconds: float) -> bool:
        pauses.append(seconds)
        if not rounds:
            stop.set()
        return True

    monkeypatch.setattr(loops, "keep_house", keep_house)
    monkeypatch.setattr(loops, "wait_any", wait_any)
    caplog.set_level(logging.INFO, "taskgraph.service")
    part: Any = Part()
    await loops.keep_house_forever(part, stop, keep_days=7)
    assert pauses[0] < 2 < limits.KEEP_SECONDS / 2 < pauses[1]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "kept house",
        "the house could not be kept",
    ]


async def test_serve_gives_back_of_the_file_until_no_more_is_to_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Flag()
    parts, pauses = [True, True, False], list[float]()

    async def keep_house(handlers: Any, logs: Any, *, keep_days: float | None) -> Kept:
        return Kept()

    async def give_back() -> bool:
        return parts.pop(0)

    async def wait_any(events: tuple[Flag, ...], seconds: float) -> bool:
        pauses.append(seconds)
        if not parts:
            stop.set()
        return True

    monkeypatch.setattr(loops, "keep_house", keep_house)
    monkeypatch.setattr(loops, "wait_any", wait_any)
    part: Any = Part()
    part.give_back = give_back
    await loops.keep_house_forever(part, stop)
    assert [pause < 2 for pause in pauses] == [True, True, False]


@pytest.mark.parametrize(("text", "days"), [("", None), (" ", None), ("30", 30.0), ("0.5", 0.5), ("0", 0.0)])
def test_days_as_they_are_written(text: str, days: float | None) -> None:
    assert read_keep_days({"TASKGRAPH_KEEP_DAYS": text}) == days
    assert read_bindings({"TASKGRAPH_KEEP_DAYS": text}).keep_days == days


def test_days_that_are_none() -> None:
    with pytest.raises(InvalidSettings, match="TASKGRAPH_KEEP_DAYS=“a week”: write a number of days"):
        read_bindings({"TASKGRAPH_KEEP_DAYS": "a week"})
