"""The rules of the doctor as plain functions: what rests on what, what a repair writes, why a graph stands still."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.model import limits
from taskgraph.model.columns import Value
from taskgraph.model.ids import GRAPH, ids_text, row_key, task_id_of
from taskgraph.protocol.invariants.examine import examine
from taskgraph.protocol.invariants.findings import Patch, Severity
from taskgraph.protocol.invariants.snapshot import slim
from taskgraph.protocol.invariants.standstill import causes, waiting_by_target
from taskgraph.protocol.layout import lay_out
from taskgraph.storage.tables import Insert, Merge, Row

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def rows_of(requires: Mapping[str, list[str]], **graph: Value) -> dict[str, Row]:
    """The rows of a graph that has just been submitted."""
    tasks = {label: {"requires": wanted, "task": {"target": "big"}} for label, wanted in requires.items()}
    document = document_from_object({"tasks": tasks})
    layout = lay_out("g", document.tasks, stamp="0", now=NOW)
    inserts = [*layout.rows, *([layout.top] if layout.top else [])]
    leaves = ids_text(layout.leaves)
    columns: dict[str, Value] = {
        "schema": 1,
        "state": "running",
        "digest": "d",
        "created": NOW,
        "failedTasks": 0,
        "revision": 0,
        "tasks": len(document.tasks),
        "edges": document.edges,
        "requires": leaves,
        "requiresLeft": leaves,
        "nameMapping": json.dumps(dict(layout.mapping)),
        **graph,
    }
    inserts.append(Insert(GRAPH, columns))
    return {each.key: Row(each.key, f"e{number}", each.columns) for number, each in enumerate(inserts)}


def key(label: str) -> str:
    return row_key(task_id_of("g", label))


def spoilt(rows: dict[str, Row], where: str, **columns: Value) -> dict[str, Row]:
    row = rows[where]
    return {**rows, where: Row(where, row.etag, {**row.columns, **columns})}


CHAIN: Mapping[str, list[str]] = {"a": [], "b": ["a"]}


@pytest.mark.parametrize("width", [1, 90, 97, 400])
def test_nothing_is_wrong_with_what_a_submission_writes(width: int) -> None:
    middle = [f"m{number}" for number in range(width)]
    rows = rows_of({"a": [], **{label: ["a"] for label in middle}, "z": middle})
    assert examine("g", rows, NOW) == []
    assert examine("g", {name: slim(row) for name, row in rows.items()}, NOW) == []


def test_a_repair_holds_every_row_that_it_rests_on_and_touches_no_other_column() -> None:
    rows = spoilt(rows_of(CHAIN), key("b"), requiresLeft="[]")
    (found,) = examine("g", rows, NOW)
    assert (found.code, found.key, found.label) == ("requirement-forgotten", key("b"), "b")
    assert {GRAPH, key("a"), key("b")} <= found.keys
    assert isinstance(found.repair, Patch)
    left = ids_text([task_id_of("g", "a")])
    assert found.repair.changes("op") == [
        Merge(key("b"), rows[key("b")].etag, {"requiresLeft": left, "operation": "op"}),
        Merge(key("a"), rows[key("a")].etag, {"operation": "op"}),
    ]


def test_counts_are_judged_in_a_steady_reading_only() -> None:
    rows = spoilt(rows_of(CHAIN), GRAPH, failedTasks=2, tasks=9, edges=4)
    found = examine("g", rows, NOW)
    assert {each.code for each in found} == {"failed-count", "task-count", "edge-count"}
    assert all(each.whole for each in found)
    assert examine("g", rows, NOW, steady=False) == []


def test_an_edge_that_one_end_names_is_believed_if_the_number_of_edges_says_so() -> None:
    rows = spoilt(rows_of(CHAIN), key("a"), dependents="[]")
    assert [(each.code, each.repairable) for each in examine("g", rows, NOW)] == [("dependent-missing", True)]
    unsure = examine("g", rows, NOW, steady=False)
    assert [(each.code, each.repairable) for each in unsure] == [("dependent-missing", False)]
    more = {each.code: each.repairable for each in examine("g", spoilt(rows, GRAPH, edges=5), NOW)}
    assert more == {"dependent-missing": False, "edge-count": False}


def test_rows_of_an_extension_that_is_being_brought_in_are_let_be() -> None:
    rows = spoilt(rows_of(CHAIN), key("a"), dependents="[]")
    rows = spoilt(rows, key("b"), request="r")
    head = {"schema": 1, "state": "accepted", "digest": "d", "staged": NOW, "cursor": 0}
    rows |= {"request:r": Row("request:r", "e", head), "request:r:0000": Row("request:r:0000", "e", {"text": "{}"})}
    assert examine("g", spoilt(rows, GRAPH, extending="r"), NOW) == []
    assert "dependent-missing" in {
        each.code for each in examine("g", spoilt(spoilt(rows, "request:r", state="done"), GRAPH, extending=""), NOW)
    }


@pytest.mark.parametrize("state", ["submitting", "cancelled"])
def test_of_a_graph_that_is_not_all_there_only_columns_are_judged(state: str) -> None:
    rows = {name: row for name, row in rows_of(CHAIN, state=state).items() if name != key("a")}
    assert examine("g", rows, NOW) == []
    assert [each.code for each in examine("g", spoilt(rows, key("b"), run="x"), NOW)] == ["bad-column"]


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("run", "x", "a whole number"),
        ("run", True, "a whole number"),
        ("created", "yesterday", "a time"),
        ("label", 3, "a text"),
        ("dependents", "{}", "a JSON list of references"),
        ("requires", "[1]", "a JSON list of references"),
        ("resolution", "[]", "a JSON object"),
        ("runs", "{", "a JSON list"),
        ("task", "nope", "a JSON object"),
        ("state", "asleep", "a state of a task"),
    ],
)
def test_a_column_of_another_type_is_named(column: str, value: Value, words: str) -> None:
    rows = spoilt(rows_of(CHAIN), key("b"), **{column: value})
    for read in (rows, {name: slim(row) for name, row in rows.items()}):
        found = [each for each in examine("g", read, NOW) if each.code == "bad-column"]
        assert [each.detail for each in found] == [column]
        assert words in found[0].text


def test_a_slim_row_keeps_what_rules_look_at_and_no_long_text() -> None:
    rows = spoilt(rows_of(CHAIN), key("b"), task=json.dumps({"target": "big", "payload": "x" * 3000}), runs="[{}]")
    row = slim(rows[key("b")])
    assert json.loads(str(row.columns["task"])) == {"target": "big"}
    assert row.columns["runs"] == "[]"
    assert row.etag == rows[key("b")].etag
    assert row.columns["requires"] == rows[key("b")].columns["requires"]


def test_a_budget_out_of_bounds_follows_from_the_other_numbers() -> None:
    numbers = {"rerunsAllowed": 3, "run": 4, "retriesLeft": 4, "manualReruns": 1}  # so two reruns are used
    (found,) = examine("g", spoilt(rows_of(CHAIN), key("b"), rerunsLeft=-5, **numbers), NOW)
    assert isinstance(found.repair, Patch)
    assert found.repair.columns == {key("b"): {"rerunsLeft": 1}}
    assert examine("g", spoilt(rows_of(CHAIN), key("b"), rerunsLeft=1, **numbers), NOW) == []
    (both,) = examine("g", spoilt(rows_of(CHAIN), key("b"), rerunsLeft=-5, **{**numbers, "retriesLeft": 9}), NOW)
    assert both.repair is None


def test_a_gap_in_the_journal_is_filled_unless_it_is_wide() -> None:
    def event(number: int) -> Row:
        columns: dict[str, Value] = {"sequence": number, "time": NOW, "events": "[]", "kinds": ""}
        return Row(f"event:{number:010d}", "e", columns)

    for last, repairable in ((4, True), (limits.COMMIT_CHANGES_MAX + 10, False)):
        rows = rows_of(CHAIN) | {row.key: row for row in (event(1), event(last))}
        (found,) = examine("g", rows, NOW)
        assert (found.code, found.repairable) == ("journal-gap", repairable)
        if isinstance(found.repair, Patch):
            changes = found.repair.changes("op")
            assert [change.key for change in changes] == ["event:0000000002", "event:0000000003"]
            assert all(isinstance(change, Insert) for change in changes)


@pytest.mark.parametrize(("digits", "sequence"), [("1", 1), ("0000000000", 0), ("٠٠٠٠٠٠٠٠٠١", 1), ("00000000001", 1)])
def test_a_number_of_an_event_has_one_key(digits: str, sequence: int) -> None:
    first = Row("event:0000000001", "e", {"sequence": 1, "time": NOW, "events": "[]", "kinds": ""})
    other = Row(f"event:{digits}", "e", {**first.columns, "sequence": sequence})
    found = examine("g", rows_of(CHAIN) | {first.key: first, other.key: other}, NOW)
    assert ("journal", other.key) in [(each.code, each.key) for each in found]
    assert "journal-gap" not in {each.code for each in found}


def test_why_names_targets_queues_leases_and_failures() -> None:
    rows = rows_of({"a": [], "b": [], "c": [], "d": []})
    rows = spoilt(rows, key("b"), state="running", leaseUntil=NOW + timedelta(seconds=9), worker="w")
    rows = spoilt(rows, key("c"), state="running", leaseUntil=NOW - timedelta(seconds=9), worker="w")
    rows = spoilt(rows, key("d"), state="failed")
    rows = spoilt(rows, GRAPH, state="blocked", failedTasks=1)
    found = examine("g", rows, NOW)
    assert [(each.code, each.severity) for each in found] == [("lease-ended", Severity.DUE)]
    assert waiting_by_target(rows, NOW)["big"].levels == {"normal": [(task_id_of("g", "a"), 0)]}
    lines = [cause.text for cause in causes("g", rows, found, {"big": 3}, NOW)]
    assert lines == [
        "it moves: 1 task is running",
        "1 task is running on workers whose leases have ended",
        "1 task is ready for workers of target big since 2026-01-01 00:00:00Z; its queue holds about 3 messages",
        "it is blocked by “d”",
    ]
    (_, _, empty, _) = causes("g", rows, found, {}, NOW)
    assert empty.text.endswith("its queue is empty")
    assert causes("g", rows, found, {}, NOW)[-1].remedy == "mend the cause, then: taskgraph rerun g d"
    two = spoilt(rows, key("b"), state="failed")
    blocked = causes("g", two, found, {}, NOW)[-1]
    assert blocked.text == "it is blocked by “b”, “d”"
    assert blocked.remedy == "mend the cause, then: taskgraph rerun g --failed"
    refused = spoilt(rows, key("a"), refusal="w1: no python here")
    assert any("no python here" in cause.text for cause in causes("g", refused, found, {}, NOW))
