"""Progress: adding up a journal, and showing it."""

import asyncio
import io
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from taskgraph.interfaces.cli import common
from taskgraph.interfaces.cli.common import with_hint
from taskgraph.interfaces.cli.output import Output
from taskgraph.interfaces.cli.progress import (
    Board,
    EndsDisplay,
    Here,
    JsonDisplay,
    LiveDisplay,
    PlainDisplay,
    Running,
    Tally,
    display_for,
    submitting,
)
from taskgraph.queries.values import Event
from taskgraph.worker.executors import NoopExecutor, Outcome, Work
from tests.unit.test_cli_output import Pipe, Terminal


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def new_id(self) -> str:
        return "id"

    def jitter(self) -> float:
        return 0.5


def event(sequence: int, kind: str, task: str = "", **fields: Any) -> Event:
    more: Mapping[str, Any] = {"task": f"id-{task}", "label": task, "run": 0, **fields} if task else fields
    return Event(sequence, datetime(2026, 1, 1, tzinfo=UTC), kind, more)


def failing_tally() -> Tally:
    tally = Tally("g", state="blocked", tasks=5)
    tally.take(
        [
            event(1, "graph-running"),
            event(2, "task-completed", "a"),
            event(3, "task-failed", "b", reason="exit code 1"),
            event(3, "graph-blocked", "b"),
            event(4, "task-exception", "c", reason="lost"),
        ]
    )
    return tally


def test_a_tally_counts_what_happened() -> None:
    tally = failing_tally()
    assert tally.sequence == 4
    assert tally.counts() == {"completed": 1, "failed": 1, "exception": 1, "waiting": 2}
    assert tally.counts(running=1) == {"completed": 1, "failed": 1, "exception": 1, "running": 1, "waiting": 1}
    assert [each.label for each in tally.failures.values()] == ["b", "c"]


def test_a_rerun_takes_a_failure_back() -> None:
    tally = failing_tally()
    tally.take(
        [
            event(5, "task-rerun", "b", because="failed", run=1),
            event(6, "task-rerun", "d", because="lost", run=1),
            event(7, "task-rerun", "d", because="handed-back", run=2),
            event(8, "task-completed", "b", run=1),
        ]
    )
    assert [each.label for each in tally.failures.values()] == ["c"]
    assert (tally.completed, tally.reruns, tally.retries, tally.hand_backs) == (2, 1, 1, 1)


def test_running_tasks_never_make_the_rest_negative() -> None:
    assert Tally("g", tasks=1, completed=1).counts(running=3)["waiting"] == 0


def test_plain_lines_come_when_something_changes_and_not_too_often() -> None:
    err, clock = Pipe(), Clock()
    display = PlainDisplay(Output(Pipe(), err, {}), clock)
    tally = Tally("g", state="running", tasks=3)
    display.draw(tally, Here())
    for _ in range(20):
        clock.seconds += 0.1
        display.draw(tally, Here([Running("x", 0.0)]))
    tally.completed = 1
    display.draw(tally, Here())  # more than a second after the last line
    tally.completed = 2
    clock.seconds += 0.1
    display.draw(tally, Here())  # too early
    tally.state, tally.completed = "finished", 3
    display.close()
    display.close()
    assert err.getvalue().splitlines() == [
        "   0.0 s  running: 0/3 completed, 3 waiting",
        "   2.0 s  running: 1/3 completed, 2 waiting",
        "   2.1 s  finished: 3/3 completed",
    ]


def test_failures_are_told_at_once_and_safely() -> None:
    err = Pipe()
    display = PlainDisplay(Output(Pipe(), err, {}), Clock())
    display.events([event(1, "task-completed", "a"), event(2, "task-failed", "b\x1b[2J", reason="no\x07")])
    assert err.getvalue() == "✗ failed  b\\x1b[2J (run 0): no\\x07\n"


def test_ten_thousand_failures_are_not_all_listed() -> None:
    err = Pipe()
    display = PlainDisplay(Output(Pipe(), err, {}), Clock())
    display.events([event(n, "task-failed", f"t{n}") for n in range(10_000)])
    assert len(err.getvalue().splitlines()) == 101


def test_a_run_has_a_line_for_each_task_at_its_end() -> None:
    err, clock = Pipe(), Clock()
    board = Board(clock, took={("id-a", 0): 0.5034, ("id-b", 2): 71.0})
    display = display_for(Output(Pipe(), err, {}), clock, board=board)
    assert isinstance(display, EndsDisplay)
    tally = Tally("g", state="running", tasks=5)
    display.draw(tally, Here())
    ends = [
        event(2, "task-completed", "a"),
        event(2, "task-rerun", "b", because="failed", run=1),
        event(3, "task-failed", "b", reason="exit code 2", run=2),
        event(3, "task-skipped", "c\x1b[2J", reason="“b” failed"),
        event(4, "task-cancelled", "d", reason="no need"),
        event(4, "task-exception", "e", reason="lost"),
    ]
    display.events(ends)
    tally.take(ends)
    clock.seconds += 5
    display.draw(tally, Here())  # counts alone are worth no line beside these
    tally.state = "finished"
    display.close()
    assert err.getvalue().splitlines() == [
        "   0.0 s  running: 0/5 completed, 5 waiting",
        "✓ a  0.503 s",
        "✗ b (run 2)  exit code 2  1 min 11 s",
        "– c\\x1b[2J  skipped  “b” failed",
        "⊘ d  cancelled  no need",
        "‼ e  lost",
        "   5.0 s  finished: 1/5 completed, ✗ 1 failed, ‼ 1 exception, – 1 skipped, ⊘ 1 cancelled",
    ]
    assert not board.took


def test_the_ends_of_very_many_tasks_are_counted() -> None:
    err, clock = Pipe(), Clock()
    display = EndsDisplay(Output(Pipe(), err, {}), clock, Board(clock))
    tally = Tally("g", state="running", tasks=5_000)
    for first in range(0, 3_000, 300):
        display.events([event(n, "task-completed", f"t{n}") for n in range(first, first + 300)])
        tally.completed += 300
        clock.seconds += 1
        display.draw(tally, Here())
    display.events([event(3_001, "task-failed", "bad", reason="exit code 1")])
    lines = err.getvalue().splitlines()
    assert [line for line in lines if not line.startswith("✓ t")] == [
        "   1.0 s  running: 300/5,000 completed, 4,700 waiting",
        "further tasks are counted, and only failures are listed here",
        *(f"{n / 300:6.1f} s  running: {n:,}/5,000 completed, {5_000 - n:,} waiting" for n in range(1_200, 3_001, 300)),
        "✗ bad  exit code 1",
    ]
    assert sum(line.startswith("✓ t") for line in lines) == 1_000


def test_json_lines() -> None:
    out, err = Pipe(), Pipe()
    output = Output(out, err, {})
    output.json = True
    display = display_for(output, Clock(), json_lines=True)
    assert isinstance(display, JsonDisplay)
    tally = failing_tally()
    display.draw(tally, None)
    display.draw(tally, None)
    display.events([event(3, "task-failed", "b", reason="exit code 1")])
    display.close()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["type"] for line in lines] == ["progress", "task-failed"]
    ends = {"completed": 1, "failed": 1, "exception": 1, "skipped": 0, "cancelled": 0}
    assert lines[0]["counts"] == {"unscheduled": None, "pending": None, "running": None, **ends}
    assert (lines[0]["taskCount"], lines[0]["unresolved"]) == (5, 2)
    assert lines[1]["label"] == "b"
    assert err.getvalue() == ""


def test_the_picture_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    err, clock = Terminal(), Clock()
    output = Output(Pipe(), err, {"TERM": "xterm"})
    display = display_for(output, clock)
    assert isinstance(display, LiveDisplay)
    tally = failing_tally()
    running = [Running(f"task {n} [red]\x1b[2J", clock.seconds - n) for n in range(12)]
    display.draw(tally, Here(running, 2))
    display.events([event(9, "task-failed", "late")])
    output.say("a word")
    display.close()
    display.close()
    output.say("after")
    shown = err.getvalue()
    assert "\x1b[2J" not in shown
    assert "[red]\\x1b[2J" in shown
    assert "… and 4 more" in shown
    assert "11.0 s" in shown
    assert "and 2 tasks of other graphs running here" in shown
    assert " 20 %" in shown
    assert shown.index("late") < shown.index("a word") < shown.index("after")
    assert shown.endswith("after\n")


def test_a_label_that_is_cut_stands_apart_from_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    err, clock = Terminal(), Clock()
    display = display_for(Output(Pipe(), err, {"TERM": "xterm", "NO_COLOR": "1"}), clock)
    display.draw(failing_tally(), Here([Running("x" * 100, clock.seconds - 11)]))
    display.close()
    assert "x… 11.0 s" in err.getvalue()


def test_submitting_says_nothing_when_it_is_quick() -> None:
    err, clock = Pipe(), Clock()
    output = Output(Pipe(), err, {})
    with submitting(output, clock) as progress:
        progress(0, 5_000)
        clock.seconds += 2
        progress(100, 5_000)
        clock.seconds += 0.5
        progress(200, 5_000)
    assert err.getvalue() == "   2.0 s  submitting: 100 of 5,000 rows written\n"


def test_submitting_on_a_terminal_cleans_up() -> None:
    err, clock = Terminal(), Clock()
    with submitting(Output(Pipe(), err, {"TERM": "xterm"}), clock) as progress:
        progress(0, 5_000)
        clock.seconds += 2
        progress(100, 5_000)
    assert "100/5000" in err.getvalue()
    assert err.getvalue().endswith("\x1b[2K")


async def test_the_board_knows_what_runs_of_which_graph() -> None:
    clock = Clock()
    board = Board(clock)
    seen: list[tuple[Here, Here]] = []

    class Looking(NoopExecutor):
        instant = False

        async def run(self, work: Work, write_log: Any) -> Outcome:
            seen.append((board.of("g"), board.of("other")))
            raise OSError("out of processes")

    executor = board.watched(Looking())
    assert executor.name == "noop"
    assert not executor.instant
    assert executor.can_run({}) is None
    with pytest.raises(OSError, match="out of processes"):
        await executor.run(Work("g", "t", 0, "label", "claim", {}), io.BytesIO().write)  # type: ignore[arg-type]
    assert seen == [(Here([Running("label", 100.0)], 0), Here([], 1))]
    assert board.of("g") == Here([], 0)
    assert board.took == {("t", 0): 0.0}
    assert board.watched(noop := NoopExecutor()) is noop  # it takes no time


async def test_who_waits_for_long_is_told_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    async def quick() -> int:
        return 1

    async def slow() -> int:
        while not said:
            await asyncio.sleep(0)
        return 2

    async def say() -> None:
        said.append("hint")

    assert await with_hint(quick(), say) == 1
    assert not said
    monkeypatch.setattr(common, "_USUAL_WAIT_SECONDS", 0.0)
    assert await with_hint(slow(), say) == 2
    assert said == ["hint"]


def test_a_pace_is_said_once_enough_tasks_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    err, clock = Terminal(), Clock()
    display = display_for(Output(Pipe(), err, {"TERM": "xterm", "NO_COLOR": "1"}), clock)
    tally = Tally("g", state="running", tasks=100, completed=40)
    display.draw(tally, None)
    tally.completed, clock.seconds = 44, clock.seconds + 10
    display.draw(tally, None)
    assert "at this pace" not in err.getvalue(), "four are too few"
    tally.completed = 50
    display.draw(tally, None)
    display.close()
    assert "at this pace 50s more" in err.getvalue()
