"""Edited while it runs: what has not started is changed or taken away in one commit, and nobody runs what it was."""

import contextlib
import itertools
import json
import random
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from taskgraph.documents.edit_document import edit_from_object
from taskgraph.documents.graph_algorithms import is_acyclic
from taskgraph.documents.read import document_from_object
from taskgraph.engine import submission
from taskgraph.engine.foresight import Copy, foresee
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, InvalidGraph, Refused, StorageUnavailable, Unclear
from taskgraph.model.ids import row_key
from taskgraph.model.messages import AddTasks, Cancel, Edit, HoldBack, Rerun, RunTasks, SetLimit, parse
from taskgraph.model.timing import not_yet_seconds
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.invariants.examine import examine
from taskgraph.protocol.runs import Claim, Failed
from taskgraph.storage.tables import Row
from tests.scenarios.stage import CrashError, Stage, Trap, extension, graph, graph_object, memory_stage

CHAIN = graph({"a": [], "b": ["a"], "c": ["b"], "d": []})
KINDS = ("before", "after", "unclear", "conflict", "unavailable")


async def rows_of(stage: Stage) -> dict[str, Row]:
    return {row.key: row for row in await stage.queries.partition(stage.graph_id)}


async def healthy(stage: Stage) -> None:
    """Nothing that a doctor would call wrong."""
    found = examine(stage.graph_id, await rows_of(stage), stage.clock.now())
    assert [(each.code, each.key, each.text) for each in found if each.severity == "wrong"] == []


async def definition(stage: Stage, label: str) -> dict[str, Any]:
    text = (await stage.row(label)).columns["task"]
    found: dict[str, Any] = json.loads(str(text))
    return found


async def unchanged(stage: Stage, wish: Mapping[str, Any]) -> str:
    """Refused, and nothing but the answer was written."""
    before = await stage.snapshot()
    reason = await stage.edit(wish)
    after = await stage.snapshot()
    assert {key: value for key, value in after.items() if not key.startswith("request:")} == {
        key: value for key, value in before.items() if not key.startswith("request:")
    }
    assert reason != "done"
    return reason


async def test_an_edit_is_one_commit_with_one_fact(stage: Stage) -> None:
    await stage.submit(CHAIN)
    wish = {
        "update": {"b": {"task": {"payload": {"n": "new"}}, "reruns": 3}, "c": {"requires": ["d"]}},
        "delete": [],
        "reason": "better so",
    }
    assert await stage.edit(wish) == "done"
    (fact,) = [each for each in await stage.events() if each.kind == "graph-edited"]
    assert fact.fields["revision"] == 1
    assert fact.fields["reason"] == "better so"
    told = {each["label"]: each for each in fact.fields["updated"]}
    assert told["b"]["fields"] == ["reruns", "task"]
    assert (told["c"]["requires"], told["c"]["requiresNoMore"]) == (["d"], ["b"])
    await stage.check({"a": [], "b": ["a"], "c": ["d"], "d": []})
    await healthy(stage)
    assert (await definition(stage, "b"))["payload"] == {"n": "new"}
    assert (await stage.row("b")).columns["rerunsLeft"] == 3
    assert await stage.work() == "finished"
    assert set(stage.executed.values()) == {1}
    assert len(stage.executed) == 4


async def test_what_loses_its_last_dependent_is_waited_for(stage: Stage) -> None:
    await stage.submit(CHAIN)
    assert await stage.edit({"delete": ["c"]}) == "done"
    await stage.check({"a": [], "b": ["a"], "d": []})
    await stage.complete("d")
    await stage.complete("a")
    assert await stage.state() == "running", "b is left"
    await healthy(stage)
    await stage.complete("b")
    assert await stage.state() == "finished"
    await healthy(stage)


async def test_the_last_open_task_that_goes_finishes_the_graph(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": ["a"]}))
    await stage.complete("a")
    assert await stage.edit({"delete": ["b"]}) == "done"
    assert await stage.state() == "finished"
    assert await stage.told() == ["graph-running", "graph-edited", "graph-finished"]
    await healthy(stage)
    row = (await stage.graph_row()).columns
    assert (row["tasks"], row["edges"], json.loads(str(row["nameMapping"])).keys()) == (1, 0, {"a"})


async def test_a_task_that_waits_for_nothing_any_more_is_sent_and_one_that_waits_again_is_not(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": ["a"], "c": [], "d": ["c"]}))
    await stage.complete("c")
    assert await stage.offered() == [("a", 0), ("c", 0), ("d", 0)]
    assert await stage.edit({"update": {"b": {"requires": []}, "d": {"requires": ["b", "c"]}}}) == "done"
    assert await stage.offered() == [("b", 0)]
    assert await stage.task_state("d") == "unscheduled"
    answer = await stage.try_claim("d")
    assert answer.outcome is Outcome.STALE
    await stage.check({"a": [], "b": [], "c": [], "d": ["b", "c"]})
    await stage.complete("b")
    assert await stage.offered() == [("d", 0)]
    assert await stage.work() == "running"
    await stage.complete("d")
    await stage.complete("a")
    assert await stage.state() == "finished"


async def test_a_claim_by_an_old_definition_is_stale(stage: Stage) -> None:
    await stage.submit(graph({"a": []}))
    (delivery,) = await stage.queues.receive(stage.names.work("default"), lease_seconds=30)
    message = parse(delivery.body)
    assert isinstance(message, RunTasks)
    assert await stage.edit({"update": {"a": {"task": {"payload": {"n": 2}}}}}) == "done"
    lease = stage.clock.now() + timedelta(seconds=60)
    old = Claim(stage.task_id("a"), 0, "old", "w", lease)
    (answer,) = await stage.transition(old)
    assert (answer.outcome, answer.reason) == (Outcome.STALE, "the task was edited")
    seen = Row(row_key(stage.task_id("a")), message.seen[stage.task_id("a")].etag, {"state": "pending", "run": 0})
    (answer,) = await stage.handlers.transition(stage.graph_id, [old], rows={seen.key: seen})
    assert answer.outcome is Outcome.STALE
    (delivery,) = await stage.queues.receive(stage.names.work("default"), lease_seconds=30)
    fresh = parse(delivery.body)
    assert isinstance(fresh, RunTasks)
    assert not fresh.seen, "of which edit a definition is, only the row says"
    assert (await stage.try_claim("a")).outcome is Outcome.APPLIED


async def test_a_task_of_another_priority_is_sent_again_at_that(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": []}))
    assert await stage.edit({"update": {"a": {"priority": "high"}}}) == "done"
    assert (await stage.row("a")).columns["priority"] == "high"
    (delivery,) = await stage.queues.receive(stage.names.work("default", "high"), lease_seconds=30)
    message = parse(delivery.body)
    assert isinstance(message, RunTasks)
    assert message.tasks == ((stage.task_id("a"), 0),)
    assert await stage.edit({"update": {"a": {"priority": "normal"}}}) == "done"
    assert "priority" not in (await stage.row("a")).columns
    await healthy(stage)
    await stage.complete("a")
    await stage.complete("b")
    assert await stage.state() == "finished"


async def test_a_label_that_is_added_again_is_another_task(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": []}))
    assert await stage.edit({"delete": ["b"]}) == "done"
    lease = stage.clock.now() + timedelta(seconds=60)
    old = Claim(stage.task_id("b"), 0, "old", "w", lease)
    (answer,) = await stage.transition(old)
    assert (answer.outcome, answer.error) == (Outcome.STALE, None)
    assert await stage.extend(extension({"b": ["a"]})) == "done"
    await stage.check({"a": [], "b": ["a"]})
    await stage.complete("a")
    (answer,) = await stage.transition(old)
    assert answer.outcome is Outcome.STALE, "the definition in hand is that of its predecessor"
    await stage.complete("b")
    assert await stage.state() == "finished"
    await healthy(stage)


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"update": {"a": {"reruns": 1}}}, "“a” has been started: it is running"),
        ({"delete": ["a"]}, "“a” has been started: it is running"),
        ({"update": {"b": {"requires": ["c"]}}}, "(→ means requires): “c” → “b” → “c”"),
        ({"delete": ["b"]}, "“c” requires “b”: delete these too"),
        ({"update": {"b": {"requires": ["nobody"]}}}, "no task “nobody”"),
        ({"update": {"nobody": {"reruns": 1}}}, "no task “nobody”"),
        ({"update": {"c": {"requires": ["d"]}}, "delete": ["d"]}, "would require “d”, which goes"),
        ({"deleteGroups": ["nobody"]}, "no group “nobody”"),
        ({"update": {"b": {"when": "always"}}}, "failurePolicy: continue"),
        ({"update": {"b": {"task": {"payload": {"x": {"$subs": "taskId:nobody"}}}}}}, "“nobody”, which is no task"),
        ({"update": {"b": {"task": {"payload": {"x": {"$result": "d"}}}}}}, "uses the result of “d”"),
        ({"update": {"b": {"reruns": 1}}, "ifRevision": 3}, "the revision of the graph is 0, not 3"),
    ],
)
async def test_an_edit_is_refused_with_the_reason_and_changes_nothing(wish: dict[str, Any], words: str) -> None:
    stage = memory_stage()
    await stage.submit(CHAIN)
    await stage.claim("a")
    assert words in await unchanged(stage, wish)
    await healthy(stage)


async def test_what_an_edit_cannot_require_in_one_commit_is_required_by_way_of_an_extension(stage: Stage) -> None:
    wide = [f"m{number}" for number in range(limits.REQUIRES_MAX + 4)]
    obj = graph_object({**dict.fromkeys(wide, ()), "t": []})
    await stage.submit(document_from_object({**obj, "groups": {"wide": {"tasks": wide}}}))
    for wanted in (["wide"], wide):
        refused = await unchanged(stage, {"update": {"t": {"requires": wanted}}})
        assert "would require 100 tasks, and an edit can add 96 requirements to one" in refused
        assert "add a task by an extension that requires them all, or their group" in refused
    assert await stage.extend(extension({"all": ["wide"]})) == "done"
    assert await stage.edit({"update": {"t": {"requires": ["all"]}}}) == "done"
    assert await stage.task_state("t") == "unscheduled"
    await healthy(stage)


async def test_the_same_edit_again_is_the_same_request_and_a_refused_one_may_be_asked_again(stage: Stage) -> None:
    await stage.submit(CHAIN)
    wish = {"update": {"b": {"reruns": 2}}}
    assert await stage.edit(wish) == "done"
    assert await stage.edit(wish) == "done"
    assert (await stage.graph_row()).columns["revision"] == 1
    with pytest.raises(Refused, match="different content"):
        await stage.stage_edit({"delete": ["c"]}, request=(await stage.stage_edit(wish)).request)
    guarded = {"delete": ["c"], "ifRevision": 0}
    assert "is 1, not 0" in await stage.edit(guarded)
    guarded = {"delete": ["c"], "ifRevision": 1}
    assert await stage.edit(guarded) == "done"
    assert await stage.edit(guarded) == "done", "it is so still, and c is gone"
    assert await stage.edit({"update": {"b": {"reruns": 3}}}) == "done"
    assert await stage.edit(guarded) == "done"
    assert (await stage.graph_row()).columns["revision"] == 3


async def test_an_edit_that_was_undone_meanwhile_is_made_again(stage: Stage) -> None:
    await stage.submit(CHAIN)
    three, one = ({"update": {"d": {"reruns": number}}} for number in (3, 1))
    for revision, wish in enumerate((three, one, three, one, three), 1):
        assert await stage.edit(wish) == "done"
        assert (await stage.graph_row()).columns["revision"] == revision
        assert (await stage.row("d")).columns["rerunsAllowed"] == (3 if wish is three else 1)
    off = {"update": {"b": {"active": False}}}
    assert await stage.edit(off) == "done"
    later = HoldBack(stage.graph_id, False, "2031-01-01T00:00:00+00:00", "", (stage.task_id("b"),))
    await stage.deliver(later)
    assert (await stage.row("b")).columns["held"] == "[]", "by another command, which raises no revision"
    assert await stage.edit(off) == "done"
    await stage.deliver(later)
    assert (await stage.row("b")).columns["held"] == '["inactive"]', "whatever its clock says, the edit came after it"
    gone = {"delete": ["c"]}
    assert await stage.edit(gone) == "done"
    assert await stage.extend(extension({"c": ["b"]})) == "done"
    assert await stage.edit(gone) == "done"
    assert "c" not in await stage.states()
    await healthy(stage)


async def test_a_request_by_name_is_made_once_whatever_becomes_of_it(stage: Stage) -> None:
    await stage.submit(CHAIN)
    wish = {"update": {"d": {"reruns": 3}}}
    assert await stage.edit(wish, request="mine") == "done"
    assert await stage.edit({"update": {"d": {"reruns": 1}}}) == "done"
    assert await stage.edit(wish, request="mine") == "done"
    assert (await stage.row("d")).columns["rerunsAllowed"] == 1
    assert await stage.edit(wish, request="another") == "done"
    assert (await stage.row("d")).columns["rerunsAllowed"] == 3


async def test_an_undone_edit_cannot_be_made_again_in_a_graph_that_is_over(stage: Stage) -> None:
    await stage.submit(graph({"a": []}))
    for reruns in (3, 1):
        assert await stage.edit({"update": {"a": {"reruns": reruns}}}) == "done"
    await stage.complete("a")
    assert (await stage.stage_edit({"update": {"a": {"reruns": 1}}})).state == "done", "it is so"
    with pytest.raises(Refused, match="finished"):
        await stage.stage_edit({"update": {"a": {"reruns": 3}}})


@pytest.mark.parametrize(
    "wish",
    [
        {"reruns": 2},
        {"requires": ["a", "g"]},
        {"requires": ["g", "a"]},
        {"task": {"payload": {"n": 1}}, "deadline": "2031-01-01T02:00:00+02:00"},
        {"deadline": "2031-01-01T00:00:00Z"},
        {"notBefore": "2030-01-01T00:00:00Z"},
        {"pendingTimeout": 60.0},
        {"retry": {"limit": 2, "exitCodes": [7]}},
        {"maxRunTime": 9},
        {"active": False},
        {"priority": "high"},
        {"when": "all-completed"},
        {"reruns": 2, "active": False, "priority": "high", "maxRunTime": 9},
    ],
    ids=lambda wish: "-".join(wish),
)
async def test_an_edit_that_changes_nothing_is_none(wish: dict[str, Any]) -> None:
    node: dict[str, Any] = {
        "requires": ["a", "g"],
        "reruns": 2,
        "notBefore": "2030-01-01T00:00:00Z",
        "pendingTimeout": 60,
        "retry": {"limit": 2, "exitCodes": [7]},
        "maxRunTime": 9,
        "active": False,
        "priority": "high",
        "task": {"payload": {"n": 1}, "deadline": "2031-01-01T00:00:00Z"},
    }
    if "task" in wish:
        wish = {"task": {**node["task"]}}
    stage = memory_stage()
    tasks: dict[str, Any] = {"a": {"task": {}}, "b": {"task": {}}, "c": {"task": {}}, "t": node}
    obj = {"tasks": tasks, "groups": {"g": {"tasks": ["b", "c"]}}}
    await stage.submit(document_from_object(obj))
    await stage.offered()
    before = await unwritten(stage)
    assert await stage.edit({"update": {"t": wish}}) == "done"
    assert await unwritten(stage) == before
    assert await stage.offered() == []
    (head,) = [row for key, row in (await rows_of(stage)).items() if key.startswith("request:") and key.count(":") == 1]
    assert (head.columns["state"], head.columns["revision"], head.columns["unchanged"]) == ("done", 0, True)
    copy = Copy(stage.handlers)
    await submission.edit(copy.handlers, stage.graph_id, edit_from_object({"update": {"t": wish}, "reason": "again"}))
    found = await foresee(stage.handlers, stage.graph_id, copy.asked(), copy)
    assert (found.changes_nothing, found.refused, found.facts, found.ready) == (True, (), (), ())
    await healthy(stage)


async def unwritten(stage: Stage) -> dict[str, Row]:
    return {key: row for key, row in (await rows_of(stage)).items() if not key.startswith("request:")}


async def test_of_an_edit_only_what_changes_something_is_made(stage: Stage) -> None:
    await stage.submit(CHAIN)
    await stage.claim("a")
    await stage.offered()
    wish = {"update": {"a": {"reruns": 0}, "b": {"reruns": 0, "requires": ["d", "a"]}, "d": {"active": True}}}
    assert await stage.edit(wish) == "done", "of what runs nothing else is said"
    (fact,) = [each for each in await stage.events() if each.kind == "graph-edited"]
    assert [(each["label"], each["fields"]) for each in fact.fields["updated"]] == [("b", ["requires"])]
    assert "rerunsAllowed" not in fact.fields["changed"]
    rows = {label: (await stage.row(label)).columns for label in "abd"}
    assert [label for label, columns in rows.items() if "edited" in columns] == ["b"]
    assert await stage.offered() == []
    await stage.check({"a": [], "b": ["a", "d"], "c": ["b"], "d": []})
    await healthy(stage)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_undone_edit_that_is_asked_for_again_meets_every_fault_at_every_call(kind: str) -> None:
    wish = {"update": {"c": {"requires": ["d"]}}, "delete": ["b"]}
    expected = None
    for at in itertools.count(1):
        stage = memory_stage()
        await stage.submit(CHAIN)
        assert await stage.edit(wish) == "done"
        assert await stage.edit({"update": {"c": {"requires": []}}}) == "done"
        trap = Trap(at, kind)
        await _ask_through(stage, wish, trap)
        stage.clock.advance(limits.REDISPATCH_SECONDS)
        await stage.sweep()
        await stage.pump()
        await stage.check({"a": [], "c": ["d"], "d": []})
        await healthy(stage)
        assert (await stage.graph_row()).columns["revision"] == 3, (at, "made once more, and once")
        seen = await stage.snapshot()
        expected = expected or seen
        assert seen == expected, at
        if len(trap.calls) < at:
            assert at > 5
            break


async def test_an_ended_graph_takes_no_edit_and_answers_one_that_comes_late(stage: Stage) -> None:
    await stage.submit(graph({"a": []}))
    staged = await stage.stage_edit({"update": {"a": {"reruns": 1}}})
    late = await stage.take_events()
    assert late == [Edit(stage.graph_id, staged.request)]
    await stage.complete("a")
    stage.clock.advance(60)
    await stage.sweep()
    head = await stage.queries.request(stage.graph_id, staged.request)
    assert (head["state"], head["reason"]) == (
        "refused",
        "the graph is finished; only one that runs or is blocked is edited",
    )
    with pytest.raises(Refused, match="finished"):
        await stage.stage_edit({"delete": ["a"]})


async def test_the_sweep_sends_an_edit_again_whose_message_was_lost(stage: Stage) -> None:
    await stage.submit(CHAIN)
    staged = await stage.stage_edit({"delete": ["c"]})
    await stage.take_events()
    stage.clock.advance(limits.REDISPATCH_SECONDS)
    assert (await stage.sweep()).request_resent == 1
    assert await stage.take_events() == [Edit(stage.graph_id, staged.request)]
    await stage.deliver(AddTasks(stage.graph_id, staged.request))  # whatever sends it: the row says what it is
    assert "c" not in await stage.states()


async def test_a_blocked_graph_is_edited_around_what_failed(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": ["a"], "c": []}))
    await stage.fail("a")
    assert await stage.state() == "blocked"
    assert await stage.edit({"update": {"b": {"requires": ["c"]}}}) == "done"
    await stage.complete("c")
    await stage.complete("b")
    assert await stage.state() == "blocked", "what failed is still waited for"
    await healthy(stage)
    await stage.rerun("a")
    await stage.complete("a")
    assert await stage.state() == "finished"


async def test_a_condition_hears_of_the_requirements_it_has_now(stage: Stage) -> None:
    obj = graph_object({"a": [], "b": [], "c": ["a", "b"], "d": []}, failurePolicy="continue")
    await stage.submit(document_from_object(obj))
    await stage.fail("a")
    assert await stage.edit({"update": {"c": {"requires": ["b", "d"]}}}) == "done"
    await stage.complete("b")
    await stage.complete("d")
    assert await stage.task_state("c") == "pending", "the failure is not among its requirements any more"
    assert await stage.edit({"update": {"c": {"requires": ["a", "b"]}}}) == "done"
    assert await stage.task_state("c") == "skipped"
    assert await stage.state() == "finished"
    await healthy(stage)


async def test_a_condition_that_is_changed_is_asked_anew(stage: Stage) -> None:
    obj = graph_object({"a": [], "b": ["a"]}, failurePolicy="continue")
    await stage.submit(document_from_object(obj))
    await stage.complete("a")
    assert await stage.edit({"update": {"b": {"when": "any-failed"}}}) == "done"
    assert await stage.task_state("b") == "skipped"
    assert await stage.state() == "finished"


async def test_a_group_goes_with_its_tasks_and_others_lose_what_goes(stage: Stage) -> None:
    obj = graph_object(
        {"a": [], "t1": [], "t2": [], "u": [], "z": ["tests", "u"]},
        groups={"tests": {"tasks": ["unit", "u"], "requires": ["a"]}, "unit": {"tasks": ["t1", "t2"]}},
    )
    await stage.submit(document_from_object(obj))
    await healthy(stage)
    assert "“z” requires" in await unchanged(stage, {"deleteGroups": ["tests"]})
    assert await stage.edit({"deleteGroups": ["unit"]}) == "done"
    await healthy(stage)
    assert (await stage.graph_row()).columns["groups"] == 1
    assert await stage.edit({"update": {"z": {"requires": ["a"]}}, "deleteGroups": ["tests"]}) == "done"
    await stage.check({"a": [], "z": ["a"]})
    await healthy(stage)
    keys = [*await rows_of(stage)]
    assert not [key for key in keys if key.startswith(("group:", "join:"))]
    assert await stage.work() == "finished"


@pytest.mark.parametrize("what", ["pause", "resume", "limit", "pause of a task", "cancel of a task", "rerun of a task"])
async def test_what_is_asked_of_a_group_or_a_task_that_an_edit_took_away_meanwhile_comes_late(
    memory: Stage, what: str
) -> None:
    groups = {"one": {"tasks": ["a", "b"], "maxInFlight": 1}, "two": {"tasks": ["c"]}}
    await memory.submit(document_from_object(graph_object({each: [] for each in "abc"}, groups=groups)))
    task, asked = memory.task_id("b"), memory.clock.now().isoformat()
    messages = {
        "pause": HoldBack(memory.graph_id, True, asked, "one"),
        "resume": HoldBack(memory.graph_id, False, asked, "one"),
        "limit": SetLimit(memory.graph_id, 2, asked, "one"),
        "pause of a task": HoldBack(memory.graph_id, True, asked, "", (task,)),
        "cancel of a task": Cancel(memory.graph_id, ((task, 0),)),
        "rerun of a task": Rerun(memory.graph_id, ((task, 0),), "try"),
    }
    assert await memory.edit({"deleteGroups": ["one"], "delete": ["b"]}) == "done"
    before = await rows_of(memory)
    (handled,) = await memory.handlers.handle(memory.graph_id, [messages[what]])
    assert handled.error is None
    assert [answer.outcome for answer in handled.answers] == [Outcome.STALE]
    assert await rows_of(memory) == before
    await healthy(memory)


async def test_the_limit_of_a_group_goes_with_it(stage: Stage) -> None:
    groups = {"one": {"tasks": ["a", "b"], "maxInFlight": 1}, "two": {"tasks": ["c"], "maxInFlight": 1}}
    await stage.submit(document_from_object(graph_object({each: [] for each in "abc"}, groups=groups)))
    assert await stage.edit({"deleteGroups": ["one"]}) == "done"
    await healthy(stage)
    assert len([key for key in await rows_of(stage) if key.startswith("limit:")]) == 1
    assert await stage.work() == "finished"
    await healthy(stage)


async def test_a_limited_task_is_edited_and_runs_when_there_is_room(stage: Stage) -> None:
    await stage.submit(document_from_object(graph_object({"a": [], "b": [], "c": ["b"]}, maxInFlight=1)))
    held = await stage.claim("a")
    wish = {"update": {"b": {"task": {"payload": {"n": 2}}}, "c": {"requires": []}}}
    assert await stage.edit(wish) == "done"
    await healthy(stage)
    await stage.deliver(stage.completed(held))
    assert await stage.work() == "finished"
    await healthy(stage)


async def test_requirements_on_groups_and_the_last_of_a_group(stage: Stage) -> None:
    labels = [f"m{number}" for number in range(4)]
    obj = graph_object(
        {"a": [], **{each: [] for each in labels}, "z": ["all"], "y": []}, groups={"all": {"tasks": labels}}
    )
    await stage.submit(document_from_object(obj))
    assert await stage.edit({"update": {"y": {"requires": ["all", "a"]}}}) == "done"
    await healthy(stage)
    for each in labels[:3]:
        await stage.complete(each)
    assert await stage.edit({"delete": ["m3"]}) == "done"
    assert await stage.task_state("z") == "pending"
    await stage.complete("a")
    assert await stage.task_state("y") == "pending"
    await healthy(stage)
    assert await stage.work() == "finished"


async def test_wide_tasks_lose_edges_behind_relays(stage: Stage) -> None:
    labels = [f"m{number:03}" for number in range(200)]
    edges = {"a": [], **{each: ["a"] for each in labels}, "z": labels}
    await stage.submit(graph(edges))
    assert await stage.edit({"update": {"m007": {"requires": []}, "m150": {"requires": ["m007"]}}}) == "done"
    edges |= {"m007": [], "m150": ["m007"]}
    await stage.check(edges)
    await healthy(stage)
    assert "199 tasks would have no dependent" in await unchanged(stage, {"update": {"z": {"requires": ["a"]}}})
    reason = await unchanged(stage, {"update": {each: {"requires": []} for each in labels[:99]}})
    assert "rows, and one commit takes 100: split it" in reason
    more = [f"n{number:02}" for number in range(60)]
    assert await stage.extend(extension({"l": ["a"], **{each: ["l"] for each in more}})) == "done"
    edges |= {"l": ["a"], **{each: ["l"] for each in more}}
    await stage.check(edges)
    assert await stage.edit({"delete": more}) == "done"
    for each in more:
        del edges[each]
    await stage.check(edges)
    await healthy(stage)
    assert await stage.work() == "finished"
    await healthy(stage)


async def test_no_row_names_more_dependents_than_it_may_however_many_an_edit_adds(stage: Stage) -> None:
    labels = [f"t{number:02}" for number in range(95)]
    await stage.submit(graph({"a": [], **{each: [] for each in labels}}))
    assert await stage.edit({"update": {each: {"requires": ["a"]} for each in labels}}) == "done"
    await stage.check({"a": [], **{each: ["a"] for each in labels}})
    await healthy(stage)
    named = [len(json.loads(str(row.columns.get("dependents", "[]")))) for row in (await rows_of(stage)).values()]
    assert max(named) <= limits.DEPENDENTS_MAX
    assert await stage.work() == "finished"
    await healthy(stage)


async def test_more_leaves_than_the_graph_names_are_gathered(stage: Stage) -> None:
    labels = [f"m{number:02}" for number in range(70)]
    edges: dict[str, list[str]] = {**{each: [] for each in labels}, "z": labels}
    await stage.submit(graph(edges))
    assert await stage.edit({"delete": ["z"]}) == "done"
    del edges["z"]
    await stage.check(edges)
    await healthy(stage)
    assert await stage.work() == "finished"


async def test_definitions_grow_long_and_short_again(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": ["a"]}))
    long = {"payload": {"n": "x" * 90_000}}
    for task in (long, {"payload": {"n": "y" * 40_000}}, {"payload": {"n": "z"}, "deadline": "2031-01-01T00:00:00Z"}):
        assert await stage.edit({"update": {"b": {"task": task}}}) == "done"
        rows = await rows_of(stage)
        kept = rows.get(f"definition:{stage.task_id('b')}")
        text = str(rows[row_key(stage.task_id("b"))].columns.get("task", ""))
        if kept is not None:
            assert not text
            text = "".join(str(kept.columns[name]) for name in sorted(kept.columns) if name.startswith("task"))
        assert json.loads(text)["payload"] == task["payload"]
        await healthy(stage)
    assert "deadline" in (await stage.row("b")).columns
    assert await stage.edit({"update": {"b": {"deadline": None, "active": False, "maxRunTime": 5}}}) == "done"
    row = (await stage.row("b")).columns
    assert "deadline" not in row
    assert json.loads(str(row["task"])) == {"payload": {"n": "z"}, "maxRunTime": 5}
    await stage.complete("a")
    assert (await stage.try_claim("b")).reason == "the task is held back: inactive"
    assert await stage.edit({"update": {"b": {"active": True, "notBefore": "2031-01-01T00:00:00Z"}}}) == "done"
    assert await stage.edit({"update": {"b": {"notBefore": None}}}) == "done"
    assert await stage.work() == "finished"


async def test_a_time_that_an_edit_names_is_no_pause(stage: Stage) -> None:
    """Else a worker would wait for the length of the last pause alone."""
    await stage.submit(
        document_from_object({"tasks": {"a": {"retry": {"limit": 1, "delay": 1, "max": 1}, "task": {}}}})
    )
    held = await stage.claim("a")
    told = {"failed": True, "reason": "busy"}
    now = stage.clock.now()
    await stage.transition(Failed(held.task_id, held.run, held.claim, now.isoformat(), told, temporary=True))
    assert "pauseSeconds" in (await stage.row("a")).columns
    stage.clock.advance(2.0)
    await stage.fail("a")
    assert await stage.edit({"update": {"a": {"notBefore": "2031-01-01T00:00:00Z"}}}) == "done"
    await stage.rerun("a")
    row = await stage.row("a")
    assert "pauseSeconds" not in row.columns
    assert not_yet_seconds(row.columns.get, stage.clock.now(), 3_600.0) > 86_400.0


async def test_a_paused_graph_is_edited_and_a_cancelled_one_is_not(stage: Stage) -> None:
    await stage.submit(CHAIN)
    await stage.deliver(Cancel(stage.graph_id, ((stage.task_id("d"), 0),)))
    assert "“d” was cancelled" in await unchanged(stage, {"delete": ["d"]})
    await stage.deliver(Cancel(stage.graph_id))
    with pytest.raises(Refused, match="cancel"):
        await stage.stage_edit({"delete": ["c"]})


async def test_an_edit_meets_every_fault_at_every_call() -> None:
    wish = {"update": {"c": {"requires": ["d"], "task": {"payload": {"n": 9}}}}, "delete": ["b"]}
    expected = None
    for kind in KINDS:
        for at in itertools.count(1):
            stage = memory_stage()
            await stage.submit(CHAIN)
            trap = Trap(at, kind)
            await _ask_through(stage, wish, trap)
            stage.clock.advance(limits.REDISPATCH_SECONDS)
            await stage.sweep()
            await stage.pump()
            await stage.check({"a": [], "c": ["d"], "d": []})
            await healthy(stage)
            seen = await stage.snapshot()
            expected = expected or seen
            assert seen == expected, (kind, at)
            assert await stage.work() == "finished"
            if len(trap.calls) < at:
                assert at > 5
                break


async def _ask_through(stage: Stage, wish: Mapping[str, Any], trap: Trap) -> None:
    """Ask for an edit, and handle it, in a process that fails once; then again in one that does not."""
    for handlers in (stage.more_handlers(trap), stage.handlers):
        with contextlib.suppress(CrashError, StorageUnavailable, Conflict, Unclear):
            staged = await stage.stage_edit(wish, handlers=handlers)
            await stage.deliver(Edit(stage.graph_id, staged.request), handlers=handlers)


@pytest.mark.parametrize("seed", range(40))
async def test_random_edits_leave_the_graph_that_they_say(seed: int) -> None:
    """Whatever is edited while it runs: the rows say what the edits said, and each task left runs once."""
    chance = random.Random(seed)
    stage = memory_stage()
    wide = seed % 4 == 0
    labels = [f"t{number:03}" for number in range(chance.choice((110, 140)) if wide else chance.randint(3, 12))]
    edges: dict[str, list[str]] = {}
    for number, label in enumerate(labels):
        edges[label] = chance.sample(labels[:number], min(number, chance.choice((0, 1, 2, 3))))
        if wide and number == len(labels) - 1:
            edges[label] = labels[:-1]
        elif wide and number:
            edges[label] = sorted({labels[0], *edges[label]})
    await stage.submit(graph(edges))
    for turn in range(12):
        open_labels = [label for label in edges if await stage.task_state(label) in ("unscheduled", "pending")]
        if not open_labels:
            break
        doomed = set(chance.sample(open_labels, min(len(open_labels), chance.choice((0, 0, 1, 2)))))
        update = {
            label: {"requires": chance.sample(sorted(edges), chance.randint(0, min(4, len(edges))))}
            for label in chance.sample(open_labels, min(len(open_labels), chance.randint(0, 2)))
            if label not in doomed
        }
        wish: dict[str, Any] = {"update": update, "delete": sorted(doomed), "reason": f"turn {turn}"}
        after = {label: wanted for label, wanted in edges.items() if label not in doomed}
        after |= {label: one["requires"] for label, one in update.items()}
        possible = (
            bool(update or doomed)
            and all(after.keys() >= set(wanted) for wanted in after.values())
            and all(label not in wanted for label, wanted in after.items())
            and is_acyclic(after)
        )
        try:
            answer = await stage.edit(wish)
        except InvalidGraph:
            assert not possible, wish
            answer = "invalid"
        assert (answer == "done") == possible or "rows, and one commit" in answer, (seed, wish, answer)
        if answer == "done":
            edges = after
        await stage.check(edges)
        await healthy(stage)
        ready = [label for label in edges if await stage.task_state(label) == "pending"]
        for label in chance.sample(ready, min(len(ready), 1)):
            await stage.complete(label)
        if await stage.state() == "finished":
            break
    assert await stage.work() == "finished", seed
    assert {label for label, _ in stage.executed} == edges.keys()
    assert set(stage.executed.values()) <= {1}
    await healthy(stage)


@pytest.mark.parametrize("how", ["deadline", "failed", "cancelled"])
async def test_what_has_failed_for_good_is_edited_and_rerun_as_it_is_then(stage: Stage, how: str) -> None:
    late = (stage.clock.now() + timedelta(seconds=60)).isoformat()
    node = {"task": {"payload": {"n": "bad"}, **({"deadline": late} if how == "deadline" else {})}, "reruns": 1}
    await stage.submit(document_from_object({"tasks": {"a": node, "b": {"requires": ["a"], "task": {}}}}))
    if how == "deadline":
        stage.clock.advance(61)
        await stage.sweep()
    elif how == "failed":
        await stage.fail("a")
        await stage.fail("a")
    else:
        await stage.deliver(Cancel(stage.graph_id, ((stage.task_id("a"), 0),)))
    assert await stage.state() == "blocked"
    before = (await stage.row("a")).columns
    await stage.offered()
    wish = {"update": {"a": {"task": {"payload": {"n": "good"}}, "reruns": 3, "maxRunTime": 9}}}
    assert await stage.edit(wish) == "done"
    after = (await stage.row("a")).columns
    kept = ("state", "run", "runs", "resolution", "ended", "requiresLeft")
    assert {name: after.get(name) for name in kept} == {name: before.get(name) for name in kept}
    assert (after["rerunsAllowed"], after["rerunsLeft"]) == (3, 2 if how == "failed" else 3)
    assert await stage.state() == "blocked"
    assert await stage.offered() == []
    await healthy(stage)
    assert await stage.edit(wish) == "done", "made before"
    answer = await stage.rerun("a")
    assert answer.outcome is Outcome.APPLIED
    assert (await definition(stage, "a"))["payload"] == {"n": "good"}
    assert await stage.work() == "finished"
    await healthy(stage)


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"update": {"a": {"requires": ["c"]}}}, "“a” has ended: what it requires"),
        ({"update": {"a": {"reruns": 0}}}, "“a” has spent 1 reruns"),
        ({"update": {"a": {"task": {"payload": {"x": {"$result": "c"}}}}}}, "uses the result of “c”"),
        ({"delete": ["a"]}, "“a” has been started: it is failed"),
    ],
)
async def test_of_what_has_failed_not_everything_can_be_another(wish: dict[str, Any], words: str) -> None:
    stage = memory_stage()
    await stage.submit(document_from_object(graph_object({"a": [], "b": ["a"], "c": []}, reruns={"a": 1})))
    await stage.fail("a")
    await stage.fail("a")
    assert words in await unchanged(stage, wish)
    await healthy(stage)


async def test_what_dependents_have_been_told_of_is_not_edited() -> None:
    stage = memory_stage()
    obj = graph_object({"a": [], "b": ["a"], "c": []}, failurePolicy="continue")
    await stage.submit(document_from_object(obj))
    await stage.fail("a")
    for label, words in (("a", "its dependents have acted"), ("b", "“b” was skipped")):
        assert words in await unchanged(stage, {"update": {label: {"reruns": 3}}})
