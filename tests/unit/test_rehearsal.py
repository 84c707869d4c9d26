"""Rehearsals: what a graph would do in virtual time, by the parts that run it."""

import math
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskgraph.documents.nodes import GraphDocument, GroupNode, TaskNode
from taskgraph.model.budget import DEFAULT_PRICES, Budget
from taskgraph.model.ids import row_key, task_id_of
from taskgraph.queries.timeline import RunSpan, Timeline
from taskgraph.rehearsal.answer import to_json
from taskgraph.rehearsal.durations import (
    DAY,
    AsItWas,
    Durations,
    Past,
    Ran,
    drawn_from_few,
    even_share,
    known_durations,
    one_more_of,
    past_of,
    quantiles,
)
from taskgraph.rehearsal.forecast import Forecast, Pricing, forecast
from taskgraph.rehearsal.play import Bench, Played, play
from taskgraph.rehearsal.start import Start, handed_back, limited, start_of_document, start_of_graph
from taskgraph.rehearsal.waits import LIMIT, SLOTS
from taskgraph.storage.memory import MemoryTables
from taskgraph.storage.tables import Row
from taskgraph.testing import drive

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def task(label: str, seconds: float, *requires: str, **more: Any) -> TaskNode:
    definition = {"executor": "sleep", "payload": {"seconds": seconds}, **more.pop("task", {})}
    return TaskNode(label, requires=requires, task=definition, **more)


def graph(*tasks: TaskNode, **more: Any) -> GraphDocument:
    return GraphDocument({each.label: each for each in tasks}, **more)


def rehearsed(document: GraphDocument, *benches: Bench, **more: Any) -> Played:
    start = start_of_document(document, NOW, "g")
    return play(start, benches or [Bench(("default",), 2)], known_durations(start.definitions).draws(0), **more)


def foreseen(document: GraphDocument, benches: Sequence[Bench], past: Sequence[Past] = (), **more: Any) -> Forecast:
    def begun(seed: int) -> Start:
        return start_of_document(document, NOW, f"g{seed}")

    durations = known_durations(begun(0).definitions, past)
    whole = lambda own: start_of_document(document, NOW, own)  # noqa: E731
    return forecast("", begun, benches, durations, past=past, whole=whole, **more)


def test_a_chain_takes_the_sum_and_a_fan_what_its_slots_make_of_it() -> None:
    chain = graph(task("a", 10), task("b", 20, "a"), task("c", 30, "b"))
    assert rehearsed(chain).seconds == pytest.approx(60, abs=0.5)
    fan = graph(*[task(f"f{number}", 10) for number in range(8)])
    for slots, seconds in ((1, 80), (2, 40), (3, 30), (8, 10)):
        found = rehearsed(fan, Bench(("default",), slots))
        assert found.finished
        assert found.seconds == pytest.approx(seconds, abs=0.5)


def test_a_graph_may_take_years() -> None:
    year = 365.0 * 24 * 3600
    found = rehearsed(graph(task("a", year), task("b", 0.1, "a")))
    assert found.finished
    assert found.seconds == pytest.approx(year, abs=1)


def test_storage_takes_its_time() -> None:
    chain = graph(task("a", 0), task("b", 0, "a"), task("c", 0, "b"))
    slow, quick = (rehearsed(chain, latency_seconds=each).seconds for each in (1.0, 0.0))
    assert quick == pytest.approx(0.0, abs=0.05)
    assert slow > 3


def test_targets_have_slots_of_their_own_and_one_without_stands_still() -> None:
    document = graph(task("a", 10), task("g", 50, task={"target": "gpu"}), task("h", 5, "g"))
    assert rehearsed(document, Bench(("default",), 1), Bench(("gpu",), 1)).seconds == pytest.approx(55, abs=0.5)
    found = rehearsed(document, Bench(("default",), 4))
    assert (found.state, found.stays) == ("running", {"pending": 1, "unscheduled": 1})
    assert found.seconds == pytest.approx(10, abs=0.5)


def test_failures_are_drawn_and_end_as_the_handlers_say() -> None:
    document = graph(task("a", 10, reruns=1), task("b", 10, "a"))
    start = start_of_document(document, NOW, "g")
    failing = Durations(history={"a": [Ran(10, "failed", 0)], "b": [Ran(10, "completed", 0)]}, days=[1.0])
    found = play(start, [Bench(("default",), 1)], failing.draws(0))
    assert (found.state, found.stays) == ("blocked", {"unscheduled": 1})
    assert found.seconds == pytest.approx(20, abs=0.5)
    later = Durations(history={"a": [Ran(10, "temporary", 0)], "b": [Ran(10, "completed", 0)]}, days=[1.0])
    assert play(start, [Bench(("default",), 1)], later.draws(0)).seconds > 30


def test_a_deadline_that_is_missed_is_at_risk() -> None:
    soon = (NOW + timedelta(seconds=15)).isoformat().replace("+00:00", "Z")
    document = graph(task("a", 10), task("b", 10, "a", task={"deadline": soon}))
    found = foreseen(document, [Bench(("default",), 1)])
    assert [(each.label, each.share) for each in found.deadlines] == [("b", 1.0)]
    assert found.ends == {"blocked": 1}


def test_a_limit_binds_and_one_more_is_worth_what_it_is() -> None:
    deploys = [task(f"d{number}", 10) for number in range(4)]
    document = graph(
        *deploys, groups={"deploys": GroupNode("deploys", tuple(each.label for each in deploys), max_in_flight=1)}
    )
    found = foreseen(document, [Bench(("default",), 4)])
    assert found.seconds[1] == pytest.approx(40, abs=0.5)
    (worth,) = found.waits
    assert (worth.wait.kind, worth.wait.name, worth.wait.most, worth.wait.tasks) == (LIMIT, "deploys", 1, 3)
    assert worth.wait.seconds == pytest.approx(10 + 20 + 30, abs=1)
    assert worth.seconds == pytest.approx(20, abs=0.5)


def test_slots_bind_and_the_path_has_no_slack() -> None:
    document = graph(task("a", 10), task("b", 10), task("c", 30, "a"), task("d", 5, "a"))
    found = foreseen(document, [Bench(("default",), 1)])
    (worth,) = found.waits
    assert (worth.wait.kind, worth.wait.name) == (SLOTS, "default")
    assert worth.seconds == pytest.approx(15, abs=0.5)
    wide = foreseen(document, [Bench(("default",), 4)])
    assert [(each.step.label, round(each.slack, 1)) for each in wide.path] == [("a", 0.0), ("c", 0.0)]
    assert wide.waits == []
    assert wide.seeds == 1, "nothing is left to chance"


def test_runs_are_drawn_alike_whatever_else_is_other() -> None:
    runs = {"a": [Ran(seconds, "completed", 0) for seconds in (1.0, 5.0, 9.0)]}
    known = Durations(history=runs, days=[1.0])
    drawn = [known.draws(seed).run("a", 0) for seed in range(50)]
    assert drawn == [known.draws(seed).run("a", 0) for seed in range(50)]
    assert len({seconds for seconds, _ in drawn}) == 3
    assert min(drawn) < (1.0, "completed"), "three show too little"
    assert max(drawn) > (9.0, "completed")
    assert all(known.draws(seed).run("a", 0, ran_seconds=6.0)[0] > 6.0 for seed in range(50))
    assert known.draws(0).run("a", 0, ran_seconds=20.0)[0] == 20.0


def test_a_slow_day_is_slow_for_all_runs() -> None:
    past = [
        Past(name, 10.0, {(label, 0): (seconds, "completed") for label in "abc"}, 1)
        for name, seconds in (("x", 10.0), ("y", 10.0), ("z", 20.0))
    ]
    known = known_durations({label: {} for label in "abc"}, past)
    assert known.days == [1.0, 1.0, 2.0]
    for seed in range(40):
        draws = known.draws(seed)
        assert [draws.run(label, 0)[0] for label in "abc"] == [pytest.approx(10.0 * draws.scale)] * 3


def test_a_task_that_is_said_to_fail_takes_its_time_and_uses_up_its_reruns() -> None:
    start = start_of_document(graph(task("a", 10, reruns=1), task("b", 10, "a"), task("c", 5)), NOW, "g")
    known = known_durations(start.definitions, failing=["a"])
    found = play(start, [Bench(("default",), 2)], known.draws(0))
    assert (found.state, found.stays) == ("blocked", {"unscheduled": 1})
    assert found.seconds == pytest.approx(20, abs=0.5)


def test_where_seconds_come_from() -> None:
    definitions: dict[str, Mapping[str, Any]] = {
        "noop": {},
        "said": {"payload": {"seconds": 3}},
        "command": {"payload": {"command": ["true"]}},
        "other": {"executor": "own", "payload": {"x": 1}},
        "ran": {"payload": {"seconds": 99}},
        "dropped": {"payload": {"seconds": 99}},
    }
    past = [Past("x", 1.0, {("ran", 0): (4.0, "completed"), ("dropped", 0): (4.0, "completed")}, 1)]
    known = known_durations(definitions, past, assumed={"command": 7.0, "": 9.0}, dropped=["dropped"])
    seconds = {label: known.draws(0).run(label, 0)[0] for label in definitions}
    assert seconds == {"noop": 0, "said": 3, "command": 7, "other": 9, "ran": 4, "dropped": 0}
    assert known.source("ran") == "history"
    assert known.source("said") == "document"
    assert known.source("other") == "assumed"


def span(label: str, begin: float, end: float, *, ahead: bool = False, run: int = 0) -> RunSpan:
    began, ended = (NOW + timedelta(seconds=each) for each in (begin, end))
    return RunSpan(label, task_id_of("g", label), run, "completed", "w", NOW, began, ended, ahead)


def test_what_was_claimed_ahead_began_when_a_slot_was_free() -> None:
    spans = [span("a", 0, 4), span("b", 0, 2), span("c", 1, 3, ahead=True), span("d", 3, 6)]
    found = past_of(Timeline("g", "finished", NOW, NOW + timedelta(seconds=6), spans, []))
    assert found.slots == 2
    assert {label: seconds for (label, _), (seconds, _) in found.runs.items()} == {"a": 4, "b": 2, "c": 1, "d": 3}


def test_a_past_graph_is_rehearsed_as_it_was_and_corrects() -> None:
    document = graph(task("a", 1), task("b", 1, "a"))
    runs = {("a", 0): (10.0, "completed"), ("b", 0): (20.0, "completed")}
    found = foreseen(document, [Bench(("default",), 1)], [Past("x", 33.0, runs, 1), Past("y", 600.0, runs, 1)])
    assert found.corrections == [pytest.approx(1.1, abs=0.01)], "what took twenty times as long was held up"
    assert found.seconds == [pytest.approx(33, abs=0.5)] * 3
    assert found.sources == {"history": 2}
    others = known_durations({}, []).draws(0)
    assert AsItWas(Past("x", 1.0, runs, 1), others).run("b", 0) == (20.0, "completed")


def test_of_a_live_graph_the_rest_is_rehearsed_and_nothing_is_written() -> None:
    document = graph(task("a", 10), task("b", 40), task("c", 30, "a"), max_in_flight=2)
    begun = start_of_document(document, NOW, "g")
    tables = MemoryTables()
    tables.partitions["g"] = {**begun.rows}
    ids = {label: task_id_of("g", label) for label in "abc"}
    later = NOW + timedelta(seconds=15)
    changes: dict[str, dict[str, Any]] = {
        "a": {"state": "completed", "resolved": later},
        "b": {"state": "running", "claim": "k", "worker": "w", "started": NOW, "leaseUntil": later},
        "c": {"state": "pending", "requiresLeft": "[]", "pendingSince": NOW + timedelta(seconds=5)},
    }
    for label, columns in changes.items():
        row = tables.partitions["g"][row_key(ids[label])]
        tables.partitions["g"][row.key] = Row(row.key, row.etag, {**row.columns, **columns})
    limit = tables.partitions["g"]["limit:graph"]
    tables.partitions["g"][limit.key] = Row(limit.key, limit.etag, {**limit.columns, "inFlight": f'["{ids["b"]}:0"]'})
    before = {key: dict(rows) for key, rows in tables.partitions.items()}
    copied = drive(start_of_graph(tables, "g", later))
    assert tables.partitions == before
    assert tables.commits == 0
    start = handed_back(copied)
    assert start.running == {ids["b"]: (1, 15.0)}
    known = known_durations(
        {"a": {"payload": {"seconds": 10}}, "b": {"payload": {"seconds": 40}}, "c": {"payload": {"seconds": 30}}}
    )
    assert play(start, [Bench(("default",), 2)], known.draws(0)).seconds == pytest.approx(30, abs=0.5)
    assert play(start, [Bench(("default",), 1)], known.draws(0)).seconds == pytest.approx(25 + 30, abs=0.5)
    assert play(limited(start, 1), [Bench(("default",), 2)], known.draws(0)).seconds == pytest.approx(55, abs=0.5)
    found = forecast("g", lambda seed: start, [Bench(("default",), 1)], known, whole=lambda own: start)
    assert [(each.wait.name, each.wait.tasks) for each in found.waits] == [("default", 1)]
    assert found.waits[0].wait.seconds == pytest.approx(25, abs=0.5), "from now on"
    seconds = [
        (each.label, each.run, *(round((at - NOW).total_seconds()) for at in (each.started, each.ended or NOW)))
        for each in found.runs
    ]
    assert seconds == [("b", 0, 0, 40), ("c", 0, 40, 70)], "a has ended before, and b runs on as it began"
    assert [to_json(found, runs=most)["runsLeftOut"] for most in (0, 1, 2)] == [0, 1, 0]


def test_quantiles_lie_on_lines_between_the_values() -> None:
    assert quantiles([3.0, 1.0, 2.0], (0.0, 0.25, 0.5, 0.625, 1.0)) == [1.0, 1.0, 2.0, 2.5, 3.0]
    assert quantiles([7.0]) == [7.0] * 3
    chance, inside = random.Random(3), 0
    for _ in range(2_000):
        *twenty, next_one = (chance.random() for _ in range(21))
        p10, _, p90 = quantiles(twenty)
        inside += p10 <= next_one <= p90
    assert 0.78 < inside / 2_000 < 0.82


def test_tasks_that_vary_by_themselves_do_not_make_the_work_vary_once_more() -> None:
    """How much the work of past graphs differs is how much that of rehearsals does, whatever made it so."""
    chance = random.Random(5)
    for day in (0.0, 0.2):
        ratios: list[float] = []
        for _ in range(15):
            past = []
            for name in "vwxyz":
                slow = chance.lognormvariate(0.0, day)
                runs = {(label, 0): (slow * chance.lognormvariate(2.0, 0.25), "completed") for label in "abc"}
                past.append(Past(name, 1.0, runs, 1))
            known = known_durations({label: {} for label in "abc"}, past)
            works = sorted(sum(known.draws(seed).run(label, 0)[0] for label in "abc") for seed in range(20))
            usual = sum(known.usual.values())
            drawn = sorted(drawn_from_few(known.days, even_share(seed, DAY)) for seed in range(20))
            assert works == [pytest.approx(each * usual) for each in drawn]
            ratios.append(math.log(works[18] / works[1]))
        expected = 2 * 1.5 * math.sqrt(day**2 + 0.25**2 / 3)
        assert 0.7 * expected < sum(ratios) / len(ratios) < 1.5 * expected


def test_one_more_value_lies_as_far_off_as_it_may() -> None:
    chance = random.Random(2)
    errors: list[float] = []
    for _ in range(3_000):
        *few, truth = (chance.gauss(10.0, 1.0) for _ in range(6))
        errors.append((one_more_of(few, chance) - sum(few) / 5) ** 2 - (truth - sum(few) / 5) ** 2)
    assert abs(sum(errors)) / 3_000 < 0.1, "of 1.2"
    assert one_more_of([3.0], chance) == 3.0
    assert min(one_more_of([0.0, 100.0], chance) for _ in range(20)) == 0.0


def test_the_next_of_a_few_factors_is_drawn_as_wide_as_they_foretell() -> None:
    """Of five values of a normal distribution, the next lies within p10 to p90 of the draws in four of five cases."""
    chance, inside = random.Random(20), 0
    for _ in range(1_000):
        *few, truth = (math.exp(chance.gauss(0.0, 0.08)) for _ in range(6))
        p10, p90 = (drawn_from_few(few, share) for share in (0.1, 0.9))
        inside += p10 <= truth <= p90
    assert 0.77 < inside / 1_000 < 0.83
    assert drawn_from_few([1.1], 0.9) == 1.1
    assert drawn_from_few([1.1, 1.1], 0.9) == pytest.approx(1.1)
    assert 1.1 < drawn_from_few([0.9, 1.1], 0.99) < 10
    shares = sorted(even_share(seed, DAY) for seed in range(20))
    assert all(abs(share - (place + 0.5) / 20) < 0.06 for place, share in enumerate(shares))


def test_what_a_graph_will_cost_is_its_requests_and_the_seconds_of_its_slots() -> None:
    prices = DEFAULT_PRICES._replace(per_hour={"default": 3600.0}, files=10_000.0)
    pricing = Pricing(prices, Budget(29.0), files_per_run=2.0)
    found = foreseen(graph(task("a", 10), task("b", 20, "a")), [Bench(("default",), 1)], pricing=pricing)
    assert found.cost.amounts == [pytest.approx(30 + 2 * 2, abs=0.1)] * 3
    assert found.cost.over == 1.0
    spent = rehearsed(graph(task("a", 10), task("b", 20, "a"))).spent
    assert (spent.seconds, spent.tables > 3) == ({"default": pytest.approx(30, abs=0.1)}, True)


def test_a_budget_holds_no_rehearsal() -> None:
    bounded = graph(task("a", 10), task("b", 20, "a"), budget=Budget(1e-9))
    assert rehearsed(bounded).finished
