"""Which tasks may be rerun by hand, and in which words the others may not."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskgraph.protocol.rerun import FAILED_FOR_GOOD, Refusal, refusal

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PASSED = "its deadline 2026-01-01 12:00:00Z has passed, and ends every further run"


@pytest.mark.parametrize("state", [*FAILED_FOR_GOOD, "completed", "skipped"])
@pytest.mark.parametrize("graph", ["running", "blocked"])
@pytest.mark.parametrize("left", [None, 0.001, 60.0])
def test_what_has_ended_may_be_rerun_in_time(state: str, graph: str, left: float | None) -> None:
    task: dict[str, Any] = {"state": state, "deadline": left and NOW + timedelta(seconds=left)}
    assert refusal({"state": graph}.get, task.get, NOW) is None


@pytest.mark.parametrize(
    ("graph", "task", "refused"),
    [
        (
            {},
            {"state": "running"},
            Refusal("not-ended", "the task is running; only a task that has ended can be rerun"),
        ),
        (
            {"state": "cancelled", "started": NOW, "failurePolicy": "continue"},
            {},
            Refusal("not-whole", "the graph goes on after failures, and was cancelled: no end of it was passed on"),
        ),
        (
            {"state": "cancelled"},
            {},
            Refusal("not-whole", "the graph was cancelled before all of it was submitted"),
        ),
        (
            {"state": "cancelled", "started": NOW, "cutOff": "r"},
            {},
            Refusal("not-whole", "the graph was cancelled while it was extended, and lacks some of the new tasks"),
        ),
        ({"state": "cancelling"}, {}, Refusal("not-running", "the graph is cancelling")),
        ({}, {"deadline": NOW}, Refusal("deadline-exceeded", PASSED)),
    ],
    ids=lambda each: each.code if isinstance(each, Refusal) else "",
)
def test_what_may_not_be_rerun_is_told_why(graph: dict[str, Any], task: dict[str, Any], refused: Refusal) -> None:
    assert refusal({"state": "blocked", **graph}.get, {"state": "failed", **task}.get, NOW) == refused


@pytest.mark.parametrize("graph", ["finished", "cancelled"])
def test_a_graph_that_has_ended_may_go_on_and_what_is_past_its_deadline_too(graph: str) -> None:
    assert refusal({"state": graph, "started": NOW}.get, {"state": "completed", "deadline": NOW}.get, NOW) is None
