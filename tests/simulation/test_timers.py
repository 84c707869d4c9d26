"""Schedules under faults: many histories, every fault at every call; and that both fail where a rule is left out."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from taskgraph.engine import schedule_fires
from taskgraph.engine.schedule_fires import Fires
from taskgraph.engine.schedule_rows import ScheduleRows
from taskgraph.protocol import schedule_rules
from taskgraph.storage.tables import Row
from tests.simulation import timers
from tests.simulation.invariants import Violation

HISTORIES = 12
FAR_HISTORIES = 30
LONG_HISTORIES = 1_500

pytestmark = pytest.mark.usefixtures("quiet", "settled")


def play_all(seeds: Iterable[int], skews: Sequence[float] = timers.SKEWS_SECONDS) -> Counter[str]:
    met: Counter[str] = Counter()
    for seed in seeds:
        try:
            met.update(timers.play(seed, skews))
        except (Violation, AssertionError) as error:
            raise AssertionError(f"history {seed}: {error}") from error
    return met


def test_each_time_fires_once_whoever_looks_and_dies() -> None:
    met = play_all(range(HISTORIES))
    assert met["R28 not submitted"] > 5  # a fire had begun, and nothing of its graph was there
    assert met["R28 submitting"] > 2  # its graph was half written
    assert met["R28 running"] + met["R28 finished"] > 0  # its graph was there, and no row said so
    assert met["two in one fire"] > 100
    assert met["fired"] > 200
    assert met["left out"] > 100


def test_nothing_rests_for_a_clock_that_was_far_ahead_and_nothing_fires_twice() -> None:
    met = play_all(range(FAR_HISTORIES), timers.FAR_SECONDS)
    assert met["R28 fire"] > 50
    assert met["fired"] > 500


@pytest.mark.slow
def test_each_time_fires_once_in_many_histories() -> None:
    met = play_all(range(HISTORIES, LONG_HISTORIES))
    assert met["R28 fire"] > 5_000


def test_every_fault_at_every_call_of_every_scene() -> None:
    met: Counter[str] = Counter()
    played, violations = timers.play_scenes(met)
    assert violations == []
    assert played > 400
    assert all(met[f"scene {kind}"] > 30 for kind in timers.KINDS)


def broken(skews: Sequence[float] = timers.SKEWS_SECONDS) -> str:
    """The first thing that a history, or a scene, says while a rule is left out."""
    for seed in range(HISTORIES if skews is timers.SKEWS_SECONDS else FAR_HISTORIES):
        try:
            timers.play(seed, skews)
        except (Violation, AssertionError) as error:
            return str(error)
    return "".join(timers.play_scenes(Counter())[1][:1])


def test_a_graph_with_an_id_of_its_own_for_each_try_is_fired_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = iter(range(10**6))
    true = schedule_rules.graph_id_of
    monkeypatch.setattr(schedule_fires, "graph_id_of", lambda *args, **more: f"{true(*args, **more)}-{next(tries)}")
    assert broken()


def test_a_row_that_is_written_over_whatever_it_says_loses_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    true = ScheduleRows.write

    async def blind(self: ScheduleRows, row: Row, *args: Any) -> Row:
        (found,) = await self._tables.get(schedule_rules.SCHEDULES, [row.key])
        return await true(self, found or row, *args)

    monkeypatch.setattr(ScheduleRows, "write", blind)
    assert broken()


def test_a_fire_that_is_not_pinned_is_lost_with_who_had_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it would be if `next` moved on after the fire, or before it without a word of the fire."""
    true = schedule_rules.changed_columns
    monkeypatch.setattr(
        schedule_rules,
        "changed_columns",
        lambda before, after: {k: v for k, v in true(before, after).items() if k not in ("firing", "firingDocument")},
    )
    assert broken()


def test_a_graph_that_was_replaced_in_mid_fire_cannot_be_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """The document must be pinned: half of a graph is there, and its other half would be another one's."""
    true = ScheduleRows.document

    async def newest(self: ScheduleRows, schedule: schedule_rules.Schedule, document: str) -> Any:
        return await true(self, schedule, schedule.document)

    monkeypatch.setattr(ScheduleRows, "document", newest)
    (script,) = [each for each in timers.SCRIPTS if each.name == "half submitted, its graph is replaced"]
    with pytest.raises(Violation, match="submitting"):
        timers.perform(timers.Scene(script))


def test_overlap_must_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none_over(self: Fires, schedule: schedule_rules.Schedule, ended: set[str]) -> None:
        return None

    monkeypatch.setattr(Fires, "not_over", none_over)
    assert "went on" in broken()


def test_a_time_that_is_taken_from_the_clock_and_not_from_the_row_skips_some(monkeypatch: pytest.MonkeyPatch) -> None:
    true = schedule_rules.collect

    def hasty(schedule: schedule_rules.Schedule, now: Any) -> schedule_rules.Schedule:
        moved = true(schedule, now)
        return moved if moved is schedule else dataclasses.replace(moved, next=schedule.recurrence.after(now))

    monkeypatch.setattr(schedule_rules, "collect", hasty)
    assert "never fired" in broken()


def test_a_next_time_far_ahead_that_is_believed_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_rules, "set_right", lambda schedule, now: schedule)
    assert broken(timers.FAR_SECONDS)


def test_clocks_that_differ_by_a_minute_or_two_do_not_set_each_other_right(monkeypatch: pytest.MonkeyPatch) -> None:
    true, met = schedule_rules.set_right, Counter[bool]()

    def counted(schedule: schedule_rules.Schedule, now: datetime) -> schedule_rules.Schedule:
        right = true(schedule, now)
        met[right is schedule] += 1
        return right

    monkeypatch.setattr(schedule_rules, "set_right", counted)
    play_all(range(HISTORIES))
    assert met[True] > 1_000
    assert not met[False]
    monkeypatch.setattr(schedule_rules, "_bound", lambda now: now)
    assert broken(), "if they did"


def test_what_waits_for_a_time_far_ahead_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_rules, "_bound", lambda now: now + timedelta(days=366))
    assert broken(timers.FAR_SECONDS)
