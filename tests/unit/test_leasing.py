"""Times on the row of a task that no clock of now can have written, and what they are set to."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskgraph.model import limits
from taskgraph.model.foreign_times import Standing
from taskgraph.protocol.context import Context
from taskgraph.protocol.leases import SetRight, amended, lease, put_off, set_right
from taskgraph.protocol.rows import Draft, View
from taskgraph.storage.tables import Row

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
AHEAD = NOW + timedelta(days=30)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def draft(columns: Mapping[str, Any]) -> Draft:
    return Draft("task:x", columns, "e")


def test_a_lease_is_put_off_with_its_length_and_is_in_doubt_no_more() -> None:
    task = draft({"leaseUntil": NOW, "leaseSeconds": 60.0, "leaseDoubts": 2})
    put_off(task, at(60), 60.0)
    assert dict(task.written) == {"leaseUntil": at(60), "leaseDoubts": 0}
    task = draft({"leaseUntil": NOW, "leaseSeconds": 60.0})
    put_off(task, at(90), 90.0)
    assert dict(task.written) == {"leaseUntil": at(90), "leaseSeconds": 90.0}
    task = draft({"leaseUntil": NOW, "leaseSeconds": 60.0})
    put_off(task, at(90), 0)
    assert dict(task.written) == {"leaseUntil": at(90)}


def test_a_lease_that_is_in_doubt_for_the_third_time_is_over() -> None:
    columns = {"leaseUntil": AHEAD, "leaseSeconds": 60.0}
    assert lease({**columns, "leaseDoubts": 1}.get, NOW) is Standing.DOUBTFUL
    assert lease({**columns, "leaseDoubts": 2}.get, NOW) is Standing.OVER
    assert lease({"leaseUntil": None}.get, NOW) is Standing.OVER
    assert lease({"leaseUntil": at(30), "leaseSeconds": 60.0, "leaseDoubts": 2}.get, NOW) is Standing.HOLDS


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"state": "running", "leaseUntil": at(30), "leaseSeconds": 60.0}, {}),
        ({"state": "running"}, {}),
        ({"state": "running", "leaseUntil": AHEAD, "leaseSeconds": 600}, {"leaseUntil": at(600), "leaseDoubts": 1}),
        (
            {"state": "running", "leaseUntil": AHEAD, "leaseDoubts": 1},
            {"leaseUntil": at(limits.LEASE_SECONDS), "leaseDoubts": 2},
        ),
        ({"state": "pending", "pendingSince": at(5)}, {}),
        ({"state": "pending"}, {}),
        ({"state": "unscheduled", "pendingSince": AHEAD}, {}),
        ({"state": "pending", "pendingSince": AHEAD}, {"pendingSince": NOW}),
        ({"state": "pending", "pendingSince": AHEAD, "notBefore": AHEAD + timedelta(days=1)}, {"pendingSince": NOW}),
    ],
)
def test_what_cannot_be_is_set_to_one_length_from_now(columns: dict[str, Any], expected: dict[str, Any]) -> None:
    assert amended(columns.get, NOW) == expected


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (AHEAD, at(20)),
        (at(20 + limits.CLOCK_SLACK_SECONDS + 0.1), at(20)),
        (at(20 + limits.CLOCK_SLACK_SECONDS), None),
        (at(-5), None),
        (None, None),
    ],
)
def test_the_pause_until_the_next_try_ends_one_length_from_now_at_the_latest(
    end: datetime | None, expected: datetime | None
) -> None:
    columns = {"state": "pending", "pendingSince": NOW, "pauseSeconds": 20.0, "notBefore": end}
    assert amended(columns.get, NOW) == ({"notBefore": expected} if expected else {})
    assert amended({**columns, "pauseSeconds": None}.get, NOW) == {}, "a time of the document stands"
    assert amended({**columns, "state": "unscheduled"}.get, NOW) == {}


def test_both_times_of_a_task_that_waits_are_set_right_at_once() -> None:
    columns = {"state": "pending", "pendingSince": AHEAD, "notBefore": AHEAD, "pauseSeconds": 0}
    assert amended(columns.get, NOW) == {"pendingSince": NOW, "notBefore": NOW}


def test_a_sweep_is_told_whether_anything_was_set_right() -> None:
    rows: dict[str, Row | None] = {"task:x": Row("task:x", "e", {"state": "pending", "pendingSince": AHEAD})}
    assert set_right(SetRight("x"), Context(View(rows), NOW)) == ("applied", "")
    rows = {"task:x": Row("task:x", "e", {"state": "pending", "pendingSince": NOW})}
    assert set_right(SetRight("x"), Context(View(rows), NOW)) == ("stale", "its times can be believed")
