"""Notices by their rules: the row of a channel, which facts speak to it, and what is sent, to the letter."""

import json
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.model.errors import IntegrityError
from taskgraph.protocol.notices import (
    Channel,
    all_rows,
    channel_of,
    channels,
    graph_keys,
    has_notices,
    notice,
    registrations,
    rows_of,
    task_column,
    task_keys,
    wants,
)
from taskgraph.storage.tables import Range

NOON: Final = datetime(2030, 1, 1, 12, tzinfo=UTC)
QUEUE: Final = {"queue": "alarms"}
HOOK: Final = {"webhook": "https://example.org/hook", "secret": "own"}
QUEUE_KEY: Final = Channel("queue", ("alarms",)).key
HOOK_KEY: Final = Channel("webhook", ("https://example.org/hook",), "own").key


def node(label: str, **notify: Any) -> TaskNode:
    return TaskNode(label, notify=notify)


def test_a_row_for_each_channel() -> None:
    found = registrations({"onSuccess": QUEUE, "onBlocked": [QUEUE, HOOK]}, [node("a", onFailure=HOOK), node("b")])
    rows = {row.key: row.columns for row in rows_of(found, NOON)}
    common = {"schema": 1, "state": "open", "sequence": 0, "part": 0, "delivered": 0, "failures": 0, "created": NOON}
    assert rows == {
        f"notice:{QUEUE_KEY}": {
            "channel": '{"queue":"alarms"}',
            "on": '["onBlocked","onSuccess"]',
            "tasks": False,
            **common,
        },
        f"notice:{HOOK_KEY}": {
            "channel": '{"secret":"own","webhook":"https://example.org/hook"}',
            "on": '["onBlocked"]',
            "tasks": True,
            **common,
        },
    }
    assert [row.key for row in rows_of(found, NOON)] == sorted(rows)
    assert all_rows() == Range("notice:", "notice;")
    assert all_rows(("state",)) == Range("notice:", "notice;", select=("state",))


def test_what_has_notices() -> None:
    assert not has_notices(GraphDocument({"a": node("a")}))
    assert has_notices(GraphDocument({"a": node("a")}, notify={"onSuccess": QUEUE}))
    assert has_notices(GraphDocument({"a": node("a"), "b": node("b", onFailure=QUEUE)}))


def test_what_a_task_row_says_of_its_channels() -> None:
    assert json.loads(task_column({"onSuccess": QUEUE, "onFailure": [HOOK, QUEUE, HOOK]})) == {
        "onFailure": [HOOK_KEY, QUEUE_KEY],
        "onSuccess": [QUEUE_KEY],
    }
    assert channels({"onSuccess": {"command": ["notify-send", "done"]}})["onSuccess"][0].object == {
        "command": ["notify-send", "done"]
    }
    with pytest.raises(IntegrityError, match="neither a queue nor a webhook nor a command"):
        channel_of({"mail": "root"})


def test_a_channel_of_another_format_is_another_channel() -> None:
    old = channel_of({**QUEUE, "format": "taskcluster-v1"})
    assert old.object == {"queue": "alarms", "format": "taskcluster-v1"}
    assert old.key != QUEUE_KEY
    with pytest.raises(IntegrityError, match="has the format taskcluster-v2"):
        channel_of({**QUEUE, "format": "taskcluster-v2"})


@pytest.mark.parametrize(
    ("fact", "of_graph", "of_task"),
    [
        ({"event": "graph-finished"}, ("onSuccess", "onFinished"), ()),
        ({"event": "graph-finished", "failed": 2}, ("onFailure", "onFinished"), ()),
        ({"event": "graph-finished", "failed": 0}, ("onSuccess", "onFinished"), ()),
        ({"event": "graph-cancelled"}, ("onFailure", "onFinished"), ()),
        ({"event": "graph-blocked"}, ("onFailure", "onBlocked"), ()),
        ({"event": "graph-running"}, ("onRunning",), ()),
        ({"event": "graph-extended"}, ("onExtended",), ()),
        ({"event": "graph-unblocked"}, (), ()),
        ({"event": "task-completed"}, (), ("onSuccess", "onFinished")),
        ({"event": "task-failed"}, (), ("onFailure", "onFinished")),
        ({"event": "task-rerun"}, (), ()),
        ({}, (), ()),
    ],
)
def test_which_facts_speak_to_whom(fact: dict[str, Any], of_graph: tuple[str, ...], of_task: tuple[str, ...]) -> None:
    assert (graph_keys(fact), task_keys(fact)) == (of_graph, of_task)


def test_a_channel_hears_of_what_it_or_the_task_names() -> None:
    blocked, failed = {"event": "graph-blocked"}, {"event": "task-failed", "task": "t"}
    row = {"notify": task_column({"onFailure": QUEUE})}
    assert wants(blocked, QUEUE_KEY, ["onBlocked"], None)
    assert not wants(blocked, QUEUE_KEY, ["onSuccess"], None)
    assert wants(failed, QUEUE_KEY, [], row)
    assert not wants(failed, HOOK_KEY, [], row)
    assert not wants({"event": "task-completed"}, QUEUE_KEY, [], row)
    assert not wants({"event": "task-rerun"}, QUEUE_KEY, [], row)
    assert not wants(failed, QUEUE_KEY, ["onSuccess"], None)


@pytest.mark.parametrize("column", [None, "", "{", "[]", '{"onFailure":"KEY"}', '{"onFailure":null}'])
def test_a_column_that_cannot_be_read_names_nothing(column: str | None) -> None:
    row = {} if column is None else {"notify": column.replace("KEY", QUEUE_KEY)}
    assert not wants({"event": "task-failed"}, QUEUE_KEY, [], row)


def test_what_is_sent_of_a_fact() -> None:
    fact = {"event": "task-failed", "task": "t", "reason": "exit code 1", "version": 9, "id": "x", "graph": "y"}
    made = notice("g", 12, 3, NOON, fact)
    assert made.id == "g.12.3"
    assert json.loads(made.body) == {
        "version": 1,
        "id": "g.12.3",
        "type": "task-failed",
        "graph": "g",
        "sequence": 12,
        "time": "2030-01-01T12:00:00Z",
        "task": "t",
        "reason": "exit code 1",
    }
    bare = json.loads(notice("g", 1, 0, None, {}).body)
    assert (bare["type"], bare["time"]) == ("", None)
