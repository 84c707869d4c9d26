"""What a timeline says of runs and waits, by the rows of graphs that were played with a clock that stands still."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from taskgraph.interfaces.exports.trace_events import trace_of
from taskgraph.queries.timeline import RunSpan, Timeline
from tests.scenarios.stage import Stage, graph, memory_stage

pytestmark = pytest.mark.usefixtures("settled")


async def run(stage: Stage, label: str, seconds: float, *, wait: float = 0.0, fails: bool = False) -> None:
    stage.clock.advance(wait)
    claim = await stage.claim(label)
    stage.clock.advance(seconds)
    await stage.deliver(stage.failed(claim) if fails else stage.completed(claim))


def spans(found: Timeline) -> list[tuple[str, int, str, float, float | None]]:
    def since(moment: datetime | None) -> float | None:
        return None if moment is None else round((moment - found.since).total_seconds(), 3)

    return [(each.label, each.run, each.outcome, since(each.started) or 0.0, since(each.ended)) for each in found.runs]


async def test_runs_waits_and_the_critical_path(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["d"]}))
    await run(stage, "a", 2.0, wait=1.0)
    await run(stage, "b", 1.0)
    await run(stage, "c", 3.0, wait=0.5)
    claim = await stage.claim("d")
    stage.clock.advance(4.0)
    found = await stage.queries.timeline(stage.graph_id)
    assert spans(found) == [
        ("a", 0, "completed", 1.0, 3.0),
        ("b", 0, "completed", 3.0, 4.0),
        ("c", 0, "completed", 4.5, 7.5),
        ("d", 0, "running", 7.5, None),
    ]
    assert (found.state, found.never_ran, found.seconds) == ("running", 1, 11.5)
    assert [(step.label, step.seconds, step.ran_seconds, step.waited_seconds) for step in found.path] == [
        ("a", 3.0, 2.0, 1.0),
        ("c", 4.5, 3.0, 1.5),
    ]
    await stage.deliver(stage.completed(claim))
    await run(stage, "e", 1.0)
    found = await stage.queries.timeline(stage.graph_id)
    assert (found.state, found.seconds) == ("finished", 12.5)
    assert [step.label for step in found.path] == ["a", "c", "d", "e"]
    assert sum(step.seconds for step in found.path) == found.seconds
    stage.clock.advance(100.0)
    assert (await stage.queries.timeline(stage.graph_id)).seconds == 12.5, "it has ended"


async def test_earlier_runs_are_runs(stage: Stage) -> None:
    await stage.submit(graph({"a": []}, reruns={"a": 1}))
    await run(stage, "a", 1.0, fails=True)
    found = await stage.queries.timeline(stage.graph_id)
    assert spans(found) == [("a", 0, "failed", 0.0, 1.0)], "the next has not begun"
    await run(stage, "a", 2.0, wait=5.0)
    found = await stage.queries.timeline(stage.graph_id)
    assert spans(found) == [("a", 0, "failed", 0.0, 1.0), ("a", 1, "completed", 6.0, 8.0)]
    (step,) = found.path
    assert (step.seconds, step.ran_seconds) == (8.0, 3.0)


async def test_a_path_leads_through_joins() -> None:
    stage = memory_stage()
    wide = {f"t{number:03}": [] for number in range(300)}
    await stage.submit(graph({**wide, "end": list(wide)}))
    for label in wide:
        await run(stage, label, 0.25)
    await stage.sweep()
    await run(stage, "end", 1.0)
    found = await stage.queries.timeline(stage.graph_id)
    assert [step.label for step in found.path] == ["t299", "end"]
    assert found.seconds == 76.0


START = datetime.fromisoformat("2026-11-25T12:00:00+00:00")


def span(label: str, worker: str, begin: float, end: float | None) -> RunSpan:
    started = START + timedelta(seconds=begin)
    ended = None if end is None else START + timedelta(seconds=end)
    return RunSpan(label, f"id-{label}", 0, "completed" if end else "running", worker, None, started, ended)


def test_a_trace_has_a_lane_for_each_run_at_a_time() -> None:
    runs = [span("a", "w", 0, 2), span("b", "w", 1, 3), span("c", "v", 1, None), span("d", "w", 2, 4)]
    made = trace_of(Timeline("g", "running", START, START + timedelta(seconds=5), runs, []))
    events: list[dict[str, Any]] = made["traceEvents"]
    assert [(each["args"]["name"], each["pid"]) for each in events if each["ph"] == "M"] == [("w", 1), ("v", 2)]
    whole = {each["name"]: (each["pid"], each["tid"], each["ts"], each["dur"]) for each in events if each["ph"] == "X"}
    assert whole == {
        "a": (1, 1, 0, 2_000_000),
        "b": (1, 2, 1_000_000, 2_000_000),
        "c": (2, 1, 1_000_000, 4_000_000),
        "d": (1, 1, 2_000_000, 2_000_000),
    }
    lanes: dict[tuple[int, int], int] = {}
    for each in events:
        if each["ph"] == "X":
            lane = each["pid"], each["tid"]
            assert each["ts"] >= lanes.get(lane, 0), "no two of one lane overlap, which viewers cannot draw"
            lanes[lane] = each["ts"] + each["dur"]
