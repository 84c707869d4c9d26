"""Every storage call × every kind of fault, over sixty lives of graphs; `scripts/simulate --exhaustive` plays them all.

In the campaigns each call that changes something meets one kind of fault (the kinds take turns), of the calls that
only read every fifth; some pairs of faults are drawn, and all pairs of the smallest life are explored. Every day a
quarter of the lives is played so, each day another. The slow tests play every kind at every call, and many pairs.
"""

import dataclasses
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pytest

from taskgraph.engine.bundle_sizes import BundleSizes
from taskgraph.engine.commit import Records
from taskgraph.engine.consumer import Consumer
from taskgraph.engine.dispatch import Dispatcher, LimitedTasks
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.row_cache import CachedGraph, RowCache
from taskgraph.model import limits
from taskgraph.protocol.dispatch_windows import Windows, _Lane, _Window
from taskgraph.protocol.limited_backlog import Backlog
from taskgraph.protocol.limited_backlog import Waiting as WaitingForRoom
from taskgraph.queries.event_queues import EventQueues
from taskgraph.storage.tables import Row
from tests.simulation import pairs, playing
from tests.simulation.bounds import bounded
from tests.simulation.campaign import first_of_the_day
from tests.simulation.exhaustive import (
    SMALL,
    chosen,
    draw_all_pairs,
    hold_all_sampled,
    play_all_pairs,
    play_all_singles,
    play_singles,
    report,
)
from tests.simulation.invariants import Invariants
from tests.simulation.lives import GRAPH_ID, LIVES, Life, chain
from tests.simulation.mutants import no_sweep
from tests.simulation.pairs import Explorer, Pairs, explore_pairs
from tests.simulation.playing import Play
from tests.simulation.states import States
from tests.simulation.tally import KINDS, Tally, kinds_at, table

pytestmark = pytest.mark.usefixtures("quiet")

RECOVERY_SECONDS_MAX = limits.HANDLER_LEASE_SECONDS + limits.LEASE_SECONDS + 2 * limits.SWEEP_SECONDS
"""Virtual time by which one fault may delay a graph."""


def check(tallies: Sequence[Tally], title: str) -> Counter[str]:
    print(table(tallies, title))
    assert [violation for tally in tallies for violation in tally.violations] == []
    return sum((tally.kinds for tally in tallies), Counter())


def test_there_are_many_lives_with_names_of_their_own() -> None:
    assert len({life.name for life in LIVES}) == len(LIVES) >= 50
    assert len(SMALL) >= 50


def test_a_fault_at_every_storage_call_of_the_lives_of_the_day() -> None:
    day = first_of_the_day() // 1_000_000
    tallies = play_all_singles(turn=0, lives=range(day % 4, len(LIVES), 4))
    kinds = check(tallies, "life, faults")
    assert sum(tally.runs for tally in tallies) > 1_000
    assert all(kinds[kind] > 5 for kind in KINDS)
    assert max(tally.slowest_seconds for tally in tallies) <= RECOVERY_SECONDS_MAX


@pytest.mark.campaign
def test_a_fault_at_every_storage_call() -> None:
    tallies = play_all_singles(turn=0)
    kinds = check(tallies, "life, faults")
    assert sum(tally.runs for tally in tallies) > 2_500
    assert all(kinds[kind] > 30 for kind in KINDS)
    assert max(tally.slowest_seconds for tally in tallies) <= RECOVERY_SECONDS_MAX


@pytest.mark.parametrize("life", LIVES[:3], ids=lambda life: life.name)
def test_every_kind_of_fault_at_every_storage_call_of_small_lives(life) -> None:  # type: ignore[no-untyped-def]
    assert play_singles(life).violations == []


@pytest.mark.campaign
def test_some_pairs_of_faults() -> None:
    tallies = draw_all_pairs(share=0.00005)
    check(tallies, "life, pairs drawn")
    assert sum(tally.runs for tally in tallies) > 100


# --- all pairs, without playing the same end twice


def pairs_in_full(life: Life) -> Tally:
    """Every pair of faults, each played from the beginning to the end."""
    tally = Tally()
    with bounded(life.bounds):
        calm = Play(life)
        calm.run()
        for first, call in enumerate(calm.gate.calls, 1):
            for kind in kinds_at(call):
                after = Play(life, {first: kind})
                after.run()
                for second, other in enumerate(after.gate.calls[first:], first + 1):
                    for other_kind in kinds_at(other):
                        play = Play(life, {first: kind, second: other_kind})
                        play.run()
                        tally.cases += 1
                        later = play.clock.seconds - calm.clock.seconds
                        tally.slowest_seconds = max(tally.slowest_seconds, later)
    return tally


def test_some_pairs_that_are_not_played_go_on_as_those_that_stand_for_them() -> None:
    """With the hour left out of the states, every tenth of these went on in another way."""
    life = next(life for life in LIVES if life.name == "diamond, with the sweep about")
    tally = explore_pairs(life, share=0.02, seed=5)
    check([tally], "life, pairs of faults")
    assert hold_all_sampled([tally], 150) >= 150


@pytest.mark.campaign
def test_pairs_that_are_not_played_go_on_as_those_that_stand_for_them() -> None:
    tally = explore_pairs(LIVES[0])
    check([tally], "life, pairs of faults")
    assert tally.cases > 6_500
    assert tally.runs < 0.36 * tally.cases  # the rest go on as others have
    assert hold_all_sampled([tally], 100) > 100


@pytest.mark.slow
def test_all_pairs_are_covered_and_counted() -> None:
    explored, played = explore_pairs(LIVES[0]), pairs_in_full(LIVES[0])
    assert explored.cases == played.cases
    assert explored.slowest_seconds == played.slowest_seconds


def test_what_is_forgotten_on_the_way_is_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered = explore_pairs(LIVES[0], share=0.3)
    monkeypatch.setattr(pairs, "STATES_MAX", 10)
    forgotten = explore_pairs(LIVES[0], share=0.3)
    assert (forgotten.cases, forgotten.slowest_seconds) == (remembered.cases, remembered.slowest_seconds)
    assert forgotten.violations == remembered.violations == []
    assert forgotten.steps > remembered.steps


def test_of_a_life_with_more_places_a_smaller_share_is_drawn() -> None:
    places = 85  # of this life
    whole, thinner = explore_pairs(LIVES[0], share=0.1, whole=places), explore_pairs(LIVES[0], share=0.1, whole=26)
    assert (whole.share, thinner.share) == (0.1, (26 / places) ** 2.5)


# Class -> what of it is in the state, and what is not: never changes while a life is played, only counts, only saves a
# loop that is not played here, follows from the rest, or (the two of a cache) holds nothing between two steps.
REMEMBERED: Final[Mapping[type, tuple[set[str], set[str]]]] = {
    Handlers: (
        {"records", "row_cache", "dispatcher"},
        {"queues", "clock", "names", "listeners", "telemetry", "cached_rows_max", "stalled_seconds"}
        | {"counters", "clocks_doubted", "sends_beside", "tariff"},  # no life has a budget
    ),
    Records: (
        {"_ends"},
        {"tables", "clock", "_until", "meter", "changes_max"},
    ),  # `States.of` sees that no life lasts until then
    RowCache: ({"_graphs"}, {"_tables", "_rows_max", "_calls"}),  # to make room, which no life is short of
    CachedGraph: ({"rows", "covered", "alone", "pages", "hits", "absent"}, {"gone", "reading"}),
    Dispatcher: (
        {
            "windows",
            "bundle_sizes",
            "limited",
            "_levels",
            "_hinted",
            "_used",
            "_used_at",
            "event_queues",
            "has_moved_left",
        },
        {"records", "queues", "clock", "names", "row_cache", "counters", "telemetry", "listeners", "receivers"}
        | {"own", "_numbers"},
    ),
    BundleSizes: ({"in_flight"}, {"tables", "clock", "paces", "workers", "crew", "crew_at"}),  # `memories` sees why
    EventQueues: ({"_looked"}, {"number", "changed", "only_first", "_tables", "_clock", "_names", "_row"}),  # of one
    LimitedTasks: ({"backlogs"}, {"dispatcher"}),
    Backlog: ({"waiting", "sent", "whole_until"}, set()),
    WaitingForRoom: ({"target", "scopes", "since", "rank"}, set()),
    Windows: ({"_windows", "more"}, {"_start", "_most", "_unsent"}),
    _Window: ({"size", "lanes", "results", "since", "look", "pause", "steady", "fed"}, set()),
    _Lane: ({"sent", "unsent"}, {"touched"}),  # to make room for other graphs
    Consumer: (
        set(),
        {"handlers", "poison", "_wakeup", "_lease_seconds", "_idle_seconds_max", "_waiting", "_tasks", "local_worker"}
        | {"own", "received", "_beside", "_found_empty", "_leads", "_queues", "_receiving", "_pumping"}
        | {"_pump_seconds"},
    ),
    playing.Driver: (
        {"place", "moved", "consumer", "submitted", "acts_done", "act_tried_at", "rerun_of", "next_sweep"},
        {"rounds"},
    ),
    playing.WorkMessage: ({"claim", "label", "delivery", "until"}, set()),
    playing.LifeClock: ({"seconds"}, {"ids"}),
    Play: (
        {"clock", "tables", "queues", "invariants", "consumers", "client", "worker", "sweeper", "held", "driver"}
        | {"executions", "vanished", "handed_back", "slept", "put", "made"},
        {"life", "gate", "junk", "document", "all_tasks", "open", "known_tasks", "labels", "goes_on", "wishes"}
        | {"groups"},
    ),
}


def names_in(thing: Any) -> set[str]:
    if dataclasses.is_dataclass(thing):
        return {each.name for each in dataclasses.fields(thing)}
    return set(vars(thing))


def test_whatever_a_process_remembers_is_in_the_state_or_said_to_be_left_out() -> None:
    """Who adds to what a process or a playing keeps must say which, and keep it in snapshots."""
    play = Play(LIVES[0])
    worker = play.worker
    kept_things = worker.records, worker.row_cache, worker.dispatcher.event_queues
    things = play, play.clock, play.consumers[0], *kept_things, Windows()
    for each, (kept, left_out) in REMEMBERED.items():
        thing = each if dataclasses.is_dataclass(each) else next(thing for thing in things if isinstance(thing, each))
        assert not kept & left_out, each
        assert names_in(thing) == kept | left_out, each


def remembered_by_processes(play: Play) -> dict[str, Any]:
    """Everything that the processes of a playing remember, whether its state holds it or not: path -> value."""
    passed_by = {"tables", "_tables", "queues", "clock", "counters", "listeners", "receivers", "telemetry"}

    def parts(path: str, thing: Any) -> Iterator[tuple[str, Any]]:
        if type(thing) in REMEMBERED:
            names = names_in(thing) - passed_by
            if isinstance(thing, Dispatcher):
                names -= {"records", "row_cache", "_numbers"}
            if isinstance(thing, LimitedTasks):
                names -= {"dispatcher"}
            if isinstance(thing, EventQueues):
                names = {"_looked"}
            for name in sorted(names):
                yield from parts(f"{path}.{name}", getattr(thing, name))
        elif isinstance(thing, dict):
            yield path, list(thing)
            for key, each in thing.items():
                yield from parts(f"{path}[{key}]", each)
        elif isinstance(thing, list | set):
            yield path, list(thing)
        else:
            yield path, thing

    return {
        path: value for number, handlers in enumerate(play._actors()) for path, value in parts(str(number), handlers)
    }


@pytest.mark.parametrize("name", ["diamond, with the sweep about", "edited, and cancelled"])
@pytest.mark.parametrize("hours", [1 / 60, 1 / 12, 1 / 6, 1.0])
def test_a_life_at_another_hour_goes_on_alike_or_is_in_another_state(name: str, hours: float) -> None:
    life = next(life for life in LIVES if life.name == name)
    with bounded(life.bounds):
        now, later, states = Play(life), Play(life), States()
        later.clock.seconds += hours * 3600
        later.driver.next_sweep += hours * 3600
        alike = states.of(now) == states.of(later)
        assert alike or hours < 1 / 6
        while alike and now.advance():
            assert later.advance()
            assert states.of(now) == states.of(later)
            assert now.gate.calls == later.gate.calls
        assert not alike or not later.advance()


@pytest.mark.parametrize("name", ["extended in chunks", "edited twice"])
def test_a_world_that_is_restored_goes_on_as_it_did(name: str) -> None:
    life = next(life for life in LIVES if life.name == name)
    states = States()
    with bounded(life.bounds):
        play = Play(life)
        kept = []
        more = True
        while more:
            kept.append((play.snapshot(), states.of(play), play.gate.number, remembered_by_processes(play)))
            more = play.advance()
        end, calls = play.verdict(), play.gate.number
        assert len({state for _, state, _, _ in kept}) > 10
        other = Play(life, dict.fromkeys(range(calls // 3, 3 * calls, 7), "before"))  # its processes die and come
        while other.advance():
            pass
        for snapshot, state, number, remembered in random.Random(1).sample(kept, 10):
            other.restore(snapshot)
            assert (states.of(other), other.gate.number) == (state, number)
            assert remembered_by_processes(other) == remembered
            assert (other.run(), other.gate.number) == (end, calls)


def test_whatever_a_playing_counts_is_kept_with_its_world() -> None:
    play = Play(LIVES[0])
    kept = {id(count) for count in play.counts()}
    assert [name for name, value in vars(play).items() if isinstance(value, Counter) and id(value) not in kept] == []


def test_a_state_holds_everything_that_the_future_depends_on() -> None:
    """One thing at a time is made different: rows, messages, memories, what is held, where the driver stands, time."""
    life = Life("one held", chain(2), held=["c0"], acts=[])
    states = States()
    play = Play(life)
    while play.task_state("c0") != "completed":
        assert play.advance()
    play.queues.messages["taskgraph-events"] = {"00000001": (play.clock.seconds + 5.0, 1, "r1", "a message")}
    known = play.snapshot()
    before = states.of(play)

    def differs() -> bool:
        found = states.of(play) != before
        play.restore(known)
        assert states.of(play) == before
        return found

    messages = play.queues.messages
    messages["taskgraph-events"]["00000002"] = (0.0, 0, "", "another")
    assert differs()
    play.queues.messages["taskgraph-events"]["00000001"] = (play.clock.seconds + 5.0, 2, "r1", "a message")
    assert differs()
    play.queues.messages["taskgraph-events"]["00000001"] = (play.clock.seconds + 6.0, 1, "r1", "a message")
    assert differs()
    play.clock.seconds += 1.0  # the message comes back sooner, and the sweep too
    assert differs()
    for name in ("submitted", "acts_done", "next_sweep", "consumer", "place", "moved"):
        setattr(play.driver, name, getattr(play.driver, name) + 1)
        assert differs(), name
    for number in range(len(play.memories())):
        play.memories()[number][GRAPH_ID] = 77
        assert differs(), number
    kept = next(kept[GRAPH_ID] for kept in play.kept() if GRAPH_ID in kept)
    key, present = next((key, row) for key, row in kept.rows.items() if row is not None)
    for wrong in (None, Row(key, "old", present.columns), Row(key, "old", {**present.columns, "run": 5})):
        next(kept[GRAPH_ID] for kept in play.kept() if GRAPH_ID in kept).rows[key] = wrong
        assert differs(), wrong
    next(kept[GRAPH_ID] for kept in play.kept() if GRAPH_ID in kept).rows.pop(key)
    assert differs()
    for name in ("alone", "pages", "hits"):
        kept = next(kept[GRAPH_ID] for kept in play.kept() if GRAPH_ID in kept)
        setattr(kept, name, getattr(kept, name) + 1)
        assert differs(), name
    queue, number = ("default", "normal"), next(n for n, each in enumerate(play.dispatchers()) if each.windows)
    for change in (
        lambda sent: sent._levels.update({("default", "high"): play.clock.seconds}),
        lambda sent: sent._hinted.update({"taskgraph-work-default": play.clock.seconds}),
        lambda sent: setattr(sent, "_used", {"default": ("high",)}),
        lambda sent: setattr(sent, "_used_at", play.clock.seconds),
        lambda sent: setattr(sent, "has_moved_left", not sent.has_moved_left),
        lambda sent: setattr(sent.event_queues, "_looked", play.clock.seconds - 1),
        lambda sent: sent.windows.more.add(GRAPH_ID),
        lambda sent: sent.windows.offer(GRAPH_ID, queue, [("x", 0)], play.clock.seconds),
        lambda sent: sent.windows.offer(GRAPH_ID, queue, [(f"x{n}", 0) for n in range(200)], play.clock.seconds),
    ):
        change(play.dispatchers()[number])
        assert differs()
    with_backlogs = set()
    for backlog in (
        Backlog({("x", 0): WaitingForRoom("default", ("g",), None)}),
        Backlog({("x", 0): WaitingForRoom("default", ("g",), None, 1)}),
        Backlog({("x", 0): WaitingForRoom("default", ("g",), play.clock.now())}),
        Backlog(sent={("x", 0): (play.clock.seconds, ("g",))}),
    ):
        play.backlogs()[number][GRAPH_ID] = backlog
        with_backlogs.add(states.of(play))
        assert differs(), backlog
    assert len(with_backlogs) == 4
    play.executions["x", 0] += 1
    assert differs()
    for key, row in play.rows.items():
        for name, value in row.columns.items():
            if isinstance(value, str | int) and name != "operation":
                other = "wrong" if isinstance(value, str) else value + 1
                play.rows[key] = type(row)(key, row.etag, {**row.columns, name: other})
                assert differs() or name == "ended", (key, name)
    play.queues.messages["taskgraph-events"]["00000001"] = (play.clock.seconds + 5.0, 1, "r2", "a message")
    assert not differs()  # nobody holds a receipt of it


def test_the_mirror_of_the_invariants_is_in_the_state() -> None:
    """What `Invariants` remembers is in the state or is the past: who adds to it must say which."""
    assert set(vars(Invariants("g", {}))) == {
        *(
            "states",
            "runs",
            "claims",
            "marked",
            "failed_runs",
            "lost_leases",
            "failed_for_good",
            "sequence",
            "graph_state",
        ),
        *("completed", "skipped", "temporary_runs", "paused"),
        *("graph_id", "goes_on", "has_waited", "history", "members", "under", "in_flight"),
        *("tasks", "requires", "going"),  # as the edits in the journal say
        *("recalls", "reset"),  # as the rows say
        *("may_cancel", "cancels_alone", "commits", "begun_at", "resolved_at", "counted", "apart"),
    }


@pytest.mark.campaign
def test_a_rule_that_is_left_out_is_missed_by_pairs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "sweep", no_sweep)
    tally = explore_pairs(LIVES[0], share=0.1)
    assert any("'lose'" in violation and "no end" in violation for violation in tally.violations)


def test_lives_are_chosen_by_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert chosen(None) == list(range(len(LIVES)))
    assert chosen("3") == [2]
    assert chosen("3-5") == [2, 3, 4]
    assert chosen("60-") == list(range(59, len(LIVES)))
    for nonsense in ("999", "0", "5-3", "x", "1-x", "-0"):
        with pytest.raises(ValueError, match="there are lives 1 to"):
            chosen(nonsense)
    assert report(1, lives="999") == 2
    assert "--lives 999: there are lives 1 to" in capsys.readouterr().err


def test_a_run_that_is_interrupted_says_how_far_it_got(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    explore = Explorer.explore

    def interrupted(self: Explorer) -> Pairs:
        if self.life is LIVES[1]:
            raise KeyboardInterrupt
        return explore(self)

    monkeypatch.setattr(Explorer, "explore", interrupted)
    assert report(1, pairs=0.02, lives="1-2") == 130
    output = capsys.readouterr()
    assert "go on with --lives 2-2" in output.err
    assert output.out.count("| **2 lives**") == 1
    assert output.out.count("| **1 lives**") == 1


# --- slow


@pytest.mark.slow
def test_every_kind_of_fault_at_every_storage_call() -> None:
    tallies = play_all_singles(2)
    check(tallies, "life, faults")
    assert max(tally.slowest_seconds for tally in tallies) <= RECOVERY_SECONDS_MAX


@pytest.mark.slow
def test_many_pairs_of_faults() -> None:
    """Every second fault after some first faults of every life: after all of a small one, after 2 % of the largest.

    `scripts/simulate --exhaustive --pairs 1` plays them all.
    """
    tallies = play_all_pairs(2, whole=110)
    check(tallies, "life, pairs of faults")
    assert sum(tally.cases for tally in tallies) > 500_000
    assert [tally.name for tally in tallies if not tally.cases] == []
    assert sum(tally.share == 1.0 for tally in tallies) >= 4
    assert hold_all_sampled(tallies, 20, 2) > 1_000
    assert max(tally.slowest_seconds for tally in tallies) <= 2 * RECOVERY_SECONDS_MAX


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one task", "blocked", "chain of 2", "extended by a stranger", "a zombie"])
def test_all_pairs_of_faults_of_small_lives(name: str) -> None:
    tally = explore_pairs(next(life for life in LIVES if life.name == name))
    check([tally], "life, pairs of faults")
    assert tally.cases > 5_000
