"""Which tasks may be rerun by hand, and in which words the others may not."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskgraph.protocol.rerun import FAILED_FOR_GOOD, Refusal, refusal

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
GOING_ON = "its dependents have acted on the failure, as the graph goes on after failures"
PASSED = "its deadline 2026-01-01 12:00:00Z has passed, and ends every further run"


@pytest.mark.parametrize("state", FAILED_FOR_GOOD)
@pytest.mark.parametrize("graph", ["running", "blocked"])
@pytest.mark.parametrize("left", [None, 0.001, 60.0])
def test_what_failed_for_good_may_be_rerun_in_time(state: str, graph: str, left: float | None) -> None:
    task: dict[str, Any] = {"state": state, "deadline": left and NOW + timedelta(seconds=left)}
    assert refusal({"state": graph}.get, task.get, NOW) is None


@pytest.mark.parametrize(
    ("graph", "task", "refused"),
    [
        (
            {},
            {"state": "completed"},
            Refusal("not-failed", "the task is completed; only a task that failed for good can be rerun"),
        ),
        ({"failurePolicy": "continue"}, {}, Refusal("dependents-told", GOING_ON)),
        ({"state": "cancelling"}, {}, Refusal("not-running", "the graph is cancelling")),
        ({}, {"deadline": NOW}, Refusal("deadline-exceeded", PASSED)),
    ],
    ids=lambda each: each.code if isinstance(each, Refusal) else "",
)
def test_what_may_not_be_rerun_is_told_why(graph: dict[str, Any], task: dict[str, Any], refused: Refusal) -> None:
    assert refusal({"state": "blocked", **graph}.get, {"state": "failed", **task}.get, NOW) == refused
