"""What of a graph's rows would go on by itself, and what an archive is said to hold."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.model import limits
from taskgraph.model.ids import GRAPH, row_key, task_id_of
from taskgraph.protocol import notices
from taskgraph.protocol.at_rest import Examination, Standing, moving, settled
from taskgraph.storage.tables import Insert, Range, Row, query_all
from tests.scenarios.stage import graph, memory_stage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(days=1)
GRAPH_ID = memory_stage().graph_id
LISTED = json.dumps(["x"])


@pytest.mark.parametrize("state", ["finished", "cancelled", "blocked"])
def test_a_graph_that_stands_still_does_not_move(state: str) -> None:
    assert moving(Row(GRAPH, "", {"state": state, "settling": False})) == ""


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"state": "running"}, "it is running"),
        ({"settling": True}, "it is about to be paused or resumed"),
        ({"pausing": LISTED}, "it is about to be paused or resumed"),
        ({"limiting": True}, "its tasks are about to come under a limit"),
        ({"limiting": True, "state": "finished"}, ""),
        ({"extending": "r"}, "the request r is under way"),
        ({"stalledBecause": "x"}, "it is marked as stalled"),
        ({"stalledBecause": "x", "state": "finished"}, ""),
    ],
)
def test_a_graph_that_would_go_on_says_why(columns: Mapping[str, Any], why: str) -> None:
    assert moving(Row(GRAPH, "", {"state": "blocked", **columns})) == why


@pytest.mark.parametrize(
    ("key", "columns", "why"),
    [
        ("task:x", {"state": "pending", "label": "a"}, "task “a” is pending"),
        ("task:x", {"state": "running"}, "task:x is running"),
        ("task:x", {"state": "running", "label": "\x1b[0m"}, "task:x is running"),
        ("task:x", {"state": "failed", "label": "a"}, ""),
        ("task:x", {"state": "unscheduled", "label": "a", "due": "skip"}, "task “a” is about to be skipped"),
        ("task:x", {"state": "unscheduled", "label": "a", "due": ""}, ""),
        ("task:x", {"state": "unscheduled", "label": "a", "cancel": "c"}, "task “a” is about to be cancelled"),
        ("task:x", {"state": "exception", "label": "a", "cancel": "c"}, ""),
        ("join:x:1", {"state": "pending"}, "join:x:1 is pending"),
        ("fork:x:1", {"state": "pending"}, "fork:x:1 is pending"),
        ("join:x:1", {"state": "unscheduled"}, ""),
        ("join:x:1", {"state": "unscheduled", "cancel": "c"}, ""),
        ("join:x:1", {"state": "unscheduled", "due": "recall"}, "join:x:1 is about to be run again"),
        ("request:r", {"state": "staged"}, "the request r is staged"),
        ("request:r:s", {"state": "accepted"}, "the request r:s is accepted"),
        ("request:r", {"state": "done"}, ""),
        ("limit:graph", {"inFlight": LISTED}, "limit:graph counts runs that are in flight"),
        ("limit:graph", {"inFlight": "[]"}, ""),
        ("event:0000000001", {"state": "pending"}, ""),
    ],
)
def test_a_row_that_would_go_on_says_why(key: str, columns: Mapping[str, Any], why: str) -> None:
    assert moving(Row(key, "", columns)) == why


@pytest.mark.parametrize(
    ("key", "columns", "left"),
    [
        (GRAPH, {"state": "blocked", "deadline": LATER}, ["state"]),
        (GRAPH, {"state": "blocked", "nextDeadline": LATER}, ["state"]),
        ("task:x", {"state": "unscheduled", "deadline": LATER, "nextDeadline": LATER}, ["state"]),
        ("task:x", {"state": "unscheduled", "label": "a"}, ["state", "label"]),
        ("task:x", {"state": "failed", "deadline": LATER}, ["state", "deadline"]),
        ("join:x:1", {"state": "unscheduled", "deadline": LATER}, ["state", "deadline"]),
    ],
)
def test_deadlines_that_have_still_to_pass_are_let_go(key: str, columns: Mapping[str, Any], left: list[str]) -> None:
    insert = Insert(key, columns)
    assert settled(insert, frozenset(), blocked=True) == Insert(key, {name: columns[name] for name in left})
    assert settled(insert, frozenset(), blocked=False) == insert


def test_a_notice_that_was_not_delivered_is_given_up() -> None:
    insert = Insert("notice:1", {"state": "open", "sequence": 3})
    words = "put back from an archive before it was delivered"
    expected = Insert("notice:1", {"state": notices.GIVEN_UP, "sequence": 3, "lastError": words})
    assert settled(insert, frozenset({"notice:1"}), blocked=False) == expected
    assert settled(insert, frozenset({"notice:2"}), blocked=False) == insert


OBJECT: Mapping[str, Any] = {
    "metadata": {"name": "nightly"},
    "deadline": "2031-01-01T00:00:00Z",
    "notify": {"onBlocked": {"queue": "graphs"}, "onSuccess": {"queue": "happy"}},
    "tasks": {
        "bad": {"task": {"target": "linux"}},
        "after": {"requires": ["bad", "some"], "task": {"deadline": "2030-01-01T00:00:00Z"}},
        "m": {"task": {}},
        "n": {"task": {}},
    },
    "groups": {"some": {"tasks": ["m", "n"]}},
}


async def rows_of(state: str) -> dict[str, Row]:
    """All rows of a graph that stands still."""
    stage = memory_stage()
    wanted = document_from_object(OBJECT) if state == "blocked" else graph({"a": [], "b": ["a"]})
    await stage.submit(wanted)
    assert await stage.work(fails={"bad": 99}, targets=("default", "linux")) == state
    return {row.key: row for row in await query_all(stage.handlers.records.tables, stage.graph_id, Range())}


def examined(rows: Mapping[str, Row], state: str, now: datetime = LATER) -> Standing:
    return examination(rows, state).judge(now)


def examination(rows: Mapping[str, Row], state: str) -> Examination:
    made = Examination()
    made.begin(GRAPH_ID, state)
    for row in rows.values():
        made.add(Insert(row.key, row.columns))
    return made


def changed(rows: Mapping[str, Row], key: str, **columns: Any) -> dict[str, Row]:
    return {**rows, key: Row(key, "", {**(rows[key].columns if key in rows else {}), **columns})}


def task(label: str) -> str:
    return row_key(task_id_of(GRAPH_ID, label))


async def test_a_blocked_graph_is_put_back_with_words_about_all_that_it_holds() -> None:
    rows = await rows_of("blocked")
    created, blocked = rows[GRAPH].columns["created"], rows[GRAPH].columns["blocked"]
    now = created + timedelta(hours=1)  # type: ignore[operator]
    standing = examined(changed(rows, GRAPH, schedule="night"), "blocked", now)
    assert standing.refusals == ()
    assert standing.tasks == {"completed": 2, "failed": 1, "unscheduled": 1}
    assert list(standing.tasks) == sorted(standing.tasks)
    assert standing.groups == 1
    assert sorted(standing.notices) == ["queue graphs (open)", "queue happy (open)"]
    assert standing.commands == {"linux": 1, "default": 1}
    assert standing.let_go == (
        "deadlines, on rows: 2; `taskgraph edit` sets new ones",
        "notices, of channels: 1; `taskgraph notices graph --retry` delivers them",
    )
    (undelivered,) = standing.undelivered
    assert json.loads(str(rows[undelivered].columns["channel"])) == {"queue": "graphs"}
    assert (standing.created, standing.ended) == (created, blocked)
    assert (standing.name, standing.schedule) == ("nightly", "night")


async def test_deadlines_that_are_let_go_are_no_reason_to_refuse_it() -> None:
    assert examined(await rows_of("blocked"), "blocked", datetime(2040, 1, 1, tzinfo=UTC)).refusals == ()


async def test_only_what_a_rerun_would_have_run_is_a_command() -> None:
    rows = changed(await rows_of("blocked"), task("after"), target="windows")
    for number in range(30):
        rows = changed(rows, f"task:{number}", state="unscheduled", target=f"target-{number}")
    found = examined(rows, "blocked").commands
    assert (len(found), found["linux"]) == (20, 1)
    assert examined(changed(rows, GRAPH, state="cancelled"), "cancelled").commands == {}


async def test_what_a_row_does_not_say_has_a_word_all_the_same() -> None:
    standing = examined({"task:x": Row("task:x", "", {})}, "blocked")
    assert (standing.tasks, standing.commands) == ({"": 1}, {"default": 1})


async def test_the_largest_that_a_graph_may_have_is_not_refused() -> None:
    rows = await rows_of("blocked")
    rows = changed(rows, task("bad"), run=limits.RUN_NUMBER_MAX)
    rows = changed(rows, task("a" * 255), label="a" * 255, target="x")
    rows = changed(rows, "event:1000000000", sequence=1_000_000_000)
    rows = changed(rows, GRAPH, created=LATER + timedelta(days=1))
    words = (": run is ", "its label is none", "of the journal", "never made")
    assert not [each for each in examined(rows, "blocked").refusals if any(word in each for word in words)]


async def test_a_finished_graph_has_nothing_to_run_and_nothing_to_let_go() -> None:
    rows = await rows_of("finished")
    standing = examined(rows, "finished", rows[GRAPH].columns["created"] + timedelta(hours=1))  # type: ignore[operator]
    assert (standing.refusals, standing.tasks, standing.groups) == ((), {"completed": 2}, 0)
    assert (standing.commands, standing.let_go, standing.undelivered) == ({}, (), frozenset())
    assert (standing.name, standing.schedule, standing.notices) == ("", "", ())
    assert standing.ended == rows[GRAPH].columns["finished"]


@pytest.mark.parametrize("heard", [-1, 0, 1])
async def test_a_channel_that_has_heard_all_that_it_should_is_no_notice_that_is_left(heard: int) -> None:
    rows = await rows_of("blocked")
    now = rows[GRAPH].columns["created"] + timedelta(hours=1)  # type: ignore[operator]
    (key,) = examined(rows, "blocked", now).undelivered
    (told,) = [each for each in rows.values() if "graph-blocked" in str(each.columns.get("kinds", ""))]
    number = int(str(told.columns["sequence"]))
    place = [each["event"] for each in json.loads(str(told.columns["events"]))].index("graph-blocked")
    found = examined(changed(rows, key, sequence=number + heard, part=0), "blocked", now).undelivered
    assert found == (frozenset({key}) if heard < 0 else frozenset())
    for part in (place, place + 1):  # so many of the facts of the next commit it has heard
        found = examined(changed(rows, key, sequence=number - 1, part=part), "blocked", now).undelivered
        assert found == (frozenset({key}) if part == place else frozenset())
    assert not examined(changed(rows, key, state="given-up"), "blocked", now).undelivered


@pytest.mark.parametrize(
    ("key", "columns", "refusal"),
    [
        (GRAPH, {"state": "cancelled"}, "it is cancelled, and the file says blocked"),
        (GRAPH, {"created": LATER + timedelta(days=2)}, "it was never made, or will be in the future"),
        (GRAPH, {"created": "never"}, "it was never made, or will be in the future"),
        (task("bad"), {"state": "pending"}, "task “bad” is pending, and would go on by itself"),
        (task("bad"), {"run": -1}, f"{task('bad')}: run is -1"),
        (task("bad"), {"run": limits.RUN_NUMBER_MAX + 1}, f"{task('bad')}: run is {limits.RUN_NUMBER_MAX + 1}"),
        (task("bad"), {"label": "worse"}, f"{task('bad')}: its id is not that of its label"),
        (task("bad"), {"label": 7}, f"{task('bad')}: its id is not that of its label"),
        (task("bad"), {"target": "../x"}, f"{task('bad')}: it names no target"),
        (task("bad"), {"target": 7}, f"{task('bad')}: it names no target"),
        (task("bad"), {"target": "windows"}, f"{task('bad')}: its definition names another target"),
        (task("a\x1b"), {"label": "a\x1b", "target": "x"}, f"{task(chr(97) + chr(27))}: its label is none"),
        (task("a" * 256), {"label": "a" * 256, "target": "x"}, f"{task('a' * 256)}: its label is none"),
        ("lead", {}, "“lead” is no row of a graph"),
        ("event:0000000001", {"sequence": 2}, "event:0000000001: it is fact 2 of the journal"),
    ],
)
async def test_what_no_graph_can_be_is_refused_with_a_reason(
    key: str, columns: Mapping[str, Any], refusal: str
) -> None:
    assert refusal in examined(changed(await rows_of("blocked"), key, **columns), "blocked").refusals


async def test_a_channel_stands_on_its_own_row_and_can_be_read() -> None:
    rows = await rows_of("blocked")
    (key, *_) = [each for each in rows if each.startswith(notices.PREFIX)]
    standing = examined(changed(rows, key, channel='{"queue":"other"}'), "blocked")
    assert f"{key}: it is the row of another channel" in standing.refusals
    for channel in ("{}", "[1]", "7", "{", None, 7):
        standing = examined(changed(rows, key, channel=channel), "blocked")
        assert f"{key}: a channel is neither a queue nor a webhook nor a command" in standing.refusals
        assert "a channel that cannot be read" in standing.notices


async def test_the_first_reasons_are_enough() -> None:
    rows = await rows_of("blocked")
    for number in range(9):
        rows = changed(rows, f"strange-{number}")
    assert len(examined(rows, "blocked").refusals) == 5


async def test_a_file_without_a_graph_row_is_refused() -> None:
    rows = await rows_of("blocked")
    del rows[GRAPH]
    assert "it is None, and the file says blocked" in examined(rows, "blocked").refusals


async def test_a_log_is_one_of_a_run_that_was() -> None:
    made = examination(await rows_of("blocked"), "blocked")
    made.add_log(task_id_of(GRAPH_ID, "bad"), 0)
    assert not made.judge(LATER).refusals
    made.add_log(task_id_of(GRAPH_ID, "bad"), 1)
    assert made.judge(LATER).refusals == ("task “bad” has a log of run 1, and no such run",)
