"""Groups that say what becomes of a failure, over real stores: what blocks, what is passed on, what a rerun mends."""

from collections.abc import Mapping
from typing import Any

import pytest

from taskgraph.documents.canonical import document_object
from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import document_from_object
from taskgraph.engine.doctor import examine_graph, repair_graph
from taskgraph.model.columns import Value
from taskgraph.model.errors import InvalidGraph, Refused
from taskgraph.model.ids import GRAPH
from taskgraph.model.messages import Cancel
from taskgraph.protocol.context import Outcome
from taskgraph.queries.document import stored_document
from taskgraph.storage.tables import Merge
from tests.scenarios.stage import Stage

CHECKS: dict[str, Any] = {"tasks": ["lint", "style"], "failurePolicy": "continue"}
BUILD: dict[str, Any] = {
    "lint": {},
    "style": {"requires": ["lint"]},
    "build": {},
    "note": {"requires": ["lint"]},
    "report": {"requires": ["checks"], "when": "always"},
    "deploy": {"requires": ["build"]},
}


def graph(tasks: Mapping[str, Any], groups: Mapping[str, Any], policy: str = "block") -> GraphDocument:
    nodes = {label: {"task": {}, **node} for label, node in tasks.items()}
    return document_from_object({"failurePolicy": policy, "tasks": nodes, "groups": groups})


def added(tasks: Mapping[str, Any], groups: Mapping[str, Any] | None = None) -> GraphDocument:
    nodes = {label: {"task": {}, **node} for label, node in tasks.items()}
    return document_from_object({"tasks": nodes, "groups": groups or {}}, kind="extension")


def problems(tasks: Mapping[str, Any], groups: Mapping[str, Any], policy: str = "block") -> list[tuple[str, str]]:
    with pytest.raises(InvalidGraph) as caught:
        graph(tasks, groups, policy)
    return [(each.pointer, each.code) for each in caught.value.problems]


async def sound(stage: Stage) -> bool:
    return (await examine_graph(stage.handlers, stage.poison, "graph")).findings == ()


async def test_a_failure_of_the_group_does_not_block_the_graph(stage: Stage) -> None:
    await stage.submit(graph(BUILD, {"checks": CHECKS}))
    await stage.fail("lint")
    states = await stage.states()
    assert (await stage.state(), states["style"], states["note"]) == ("running", "skipped", "skipped")
    assert (states["report"], states["deploy"]) == ("pending", "unscheduled")
    assert await sound(stage)
    assert await stage.work() == "finished"
    row = (await stage.queries.graph_row("graph")).columns
    assert (row["failedTasks"], row["failedApart"], row["skippedTasks"]) == (1, 1, 2)
    assert await sound(stage)
    assert (await stage.rerun("lint")).outcome == Outcome.APPLIED
    assert await stage.state() == "running"
    assert await stage.work() == "finished"
    assert set((await stage.states()).values()) == {"completed"}
    assert await sound(stage)


async def test_a_failure_beside_the_group_blocks_it_still(stage: Stage) -> None:
    await stage.submit(graph(BUILD, {"checks": CHECKS}))
    await stage.fail("lint")
    await stage.fail("build")
    await stage.complete("report")
    assert (await stage.state(), (await stage.states())["deploy"]) == ("blocked", "unscheduled")
    assert await sound(stage)
    assert (await stage.rerun("lint")).outcome == Outcome.APPLIED
    assert await stage.state() == "blocked"
    assert (await stage.rerun("build")).outcome == Outcome.APPLIED
    assert await stage.state() == "running"
    assert await stage.work() == "finished"
    assert await sound(stage)


async def test_a_failure_of_the_group_blocks_a_graph_that_goes_on(stage: Stage) -> None:
    critical = {"release": {"tasks": ["build"], "failurePolicy": "block"}}
    tasks = {label: node for label, node in BUILD.items() if label != "report"}
    await stage.submit(graph(tasks, critical, "continue"))
    await stage.fail("lint")
    assert await stage.state() == "running"
    await stage.fail("build")
    states = await stage.states()
    assert (await stage.state(), states["deploy"], states["style"]) == ("blocked", "unscheduled", "skipped")
    assert await sound(stage)
    (reason, *_) = await stage.queries.why("graph", "build")
    assert "rerun graph build" in reason.remedy
    assert "downstream" not in reason.remedy
    assert (await stage.rerun("build")).outcome == Outcome.APPLIED
    assert await stage.work() == "finished"
    assert await sound(stage)


async def test_a_graph_that_fails_fast_spares_the_group(stage: Stage) -> None:
    await stage.submit(graph(BUILD, {"checks": CHECKS}, "fail-fast"))
    await stage.fail("lint")
    assert await stage.state() == "running"
    await stage.fail("build")
    assert await stage.work() == "cancelled"
    assert await sound(stage)
    answer = await stage.rerun("build")
    assert (answer.outcome, "goes on after failures" in answer.reason) == (Outcome.REFUSED, True)


async def test_what_was_cancelled_as_it_waited_asks_what_it_requires(stage: Stage) -> None:
    await stage.submit(graph(BUILD, {"checks": CHECKS}))
    await stage.deliver(Cancel("graph", ((stage.task_id("note"), 0),)))
    assert (await stage.state(), (await stage.states())["note"]) == ("blocked", "cancelled")
    await stage.fail("lint")
    assert (await stage.rerun("note")).outcome == Outcome.APPLIED
    assert (await stage.state(), (await stage.states())["note"]) == ("running", "skipped")
    assert await stage.work() == "finished"
    assert await sound(stage)


async def test_the_innermost_group_counts(memory: Stage) -> None:
    groups = {
        "all": {"tasks": ["a", "inner"], "failurePolicy": "continue"},
        "inner": {"tasks": ["b", "innermost"], "failurePolicy": "block"},
        "innermost": {"tasks": ["c"]},
    }
    await memory.submit(graph({"a": {}, "b": {}, "c": {}, "free": {}}, groups))
    own = {label: (await memory.row(label)).columns.get("failurePolicy") for label in ("a", "b", "c", "free")}
    assert own == {"a": "continue", "b": None, "c": None, "free": None}
    rows = {str(row.columns.get("label")): row.columns for row in await memory.queries.partition("graph")}
    assert [rows[name].get("passesOn") for name in ("all", "inner", "innermost")] == [False, None, None]
    (row,) = await memory.tables.get("graph", [GRAPH])
    assert row is not None
    assert (row.columns["groupPolicies"], row.columns["schema"]) == (True, 4)


async def test_a_graph_without_such_groups_has_no_column_of_this(memory: Stage) -> None:
    await memory.submit(graph({"a": {}, "b": {"requires": ["g"]}}, {"g": {"tasks": ["a"], "failurePolicy": "block"}}))
    await memory.fail("a")
    names = {name for row in await memory.queries.partition("graph") if "group:" not in row.key for name in row.columns}
    assert names.isdisjoint({"failurePolicy", "groupPolicies", "failedApart", "passesOn"})
    assert {row.columns.get("schema") for row in await memory.queries.partition("graph")} == {1}


def test_what_speaks_of_failures_requires_those_that_are_passed_on() -> None:
    assert problems({**BUILD, "late": {"requires": ["checks", "build"], "when": "always"}}, {"checks": CHECKS}) == [
        ("/tasks/late/when", "needs-continue")
    ]
    assert problems({**BUILD, "late": {"requires": [{"label": "build", "optional": True}]}}, {"checks": CHECKS}) == [
        ("/tasks/late/requires", "needs-continue")
    ]
    graph({**BUILD, "late": {"requires": [{"label": "checks", "optional": True}, "build"]}}, {"checks": CHECKS})
    after = {"tasks": ["late", "later"], "requires": ["build"]}
    assert problems(
        {**BUILD, "late": {"requires": ["lint"], "when": "always"}, "later": {}}, {"checks": CHECKS, "after": after}
    ) == [("/tasks/late/when", "needs-continue")]
    some = {"tasks": ["build", "lint"], "success": {"atLeast": 1}}
    assert problems(BUILD, {"checks": CHECKS, "some": some}) == [("/groups/some/success", "success")]
    graph(BUILD, {"checks": {**CHECKS, "success": {"atLeast": 1}}})
    critical = {"tasks": ["build"], "failurePolicy": "block"}
    late = {"requires": ["build"], "when": "any-failed"}
    assert problems({**BUILD, "late": late}, {"checks": CHECKS, "c": critical}, "continue") == [
        ("/tasks/late/when", "needs-continue")
    ]


def test_groups_that_say_different_things_are_one_in_the_other() -> None:
    one, other = {"tasks": ["a"], "failurePolicy": "continue"}, {"tasks": ["a", "b"], "failurePolicy": "block"}
    assert problems({"a": {}, "b": {}}, {"one": one, "other": other}) == [("/tasks/a", "failure-policy")]
    graph({"a": {}, "b": {}}, {"one": one, "other": {**other, "tasks": ["one", "b"]}})
    graph({"a": {}, "b": {}}, {"one": one, "other": {**other, "failurePolicy": "continue"}})
    assert problems({"a": {}}, {"one": {**one, "failurePolicy": "fail-fast"}}) == [
        ("/groups/one/failurePolicy", "not-allowed")
    ]


@pytest.mark.parametrize("policy", ["block", "continue"])
async def test_an_extension_brings_the_first_of_them(stage: Stage, policy: str) -> None:
    await stage.submit(graph({"a": {}, "b": {}}, {}, policy))
    await stage.complete("a")
    other = "continue" if policy == "block" else "block"
    new = added({"c": {"requires": ["a"]}, "d": {"requires": ["c"]}}, {"g": {"tasks": ["c"], "failurePolicy": other}})
    assert await stage.extend(new) == "done"
    await stage.fail("c")
    blocked = policy == "continue"
    assert await stage.state() == ("blocked" if blocked else "running")
    assert (await stage.states())["d"] == ("unscheduled" if blocked else "skipped")
    assert await sound(stage)
    if blocked:
        await stage.rerun("c")
    assert await stage.work() == "finished"
    assert await sound(stage)


async def test_an_extension_learns_of_what_was_passed_on(stage: Stage) -> None:
    await stage.submit(graph(BUILD, {"checks": CHECKS}))
    await stage.fail("lint")
    late = {"x": {"requires": ["lint"]}, "y": {"requires": ["checks"], "when": "any-failed"}}
    assert await stage.extend(added(late)) == "done"
    states = await stage.states()
    assert (states["x"], states["y"]) == ("skipped", "pending")
    assert await stage.extend(added({"z": {"requires": ["build"], "when": "always"}})) == "refused"
    assert await stage.work() == "finished"
    assert await sound(stage)


@pytest.mark.parametrize("around", [False, True])
async def test_what_is_put_into_a_group_that_grows_follows_its_policy(stage: Stage, around: bool) -> None:
    said = {"failurePolicy": "continue"}
    groups: dict[str, Any] = {"g": {"tasks": ["lint"], "grows": True, **({} if around else said)}}
    groups |= {"outer": {"tasks": ["g"], **said}} if around else {}
    tasks = {"lint": {}, "build": {}, "report": {"requires": ["g"], "when": "always"}}
    await stage.submit(graph(tasks, groups))
    more = {"new": {}, "late": {"requires": ["g"], "when": "any-failed"}}
    assert await stage.extend(added(more, {"g": {"tasks": ["new"]}})) == "done"
    other = added({"other": {}}, {"g": {"tasks": ["inner"]}, "inner": {"tasks": ["other"], "failurePolicy": "block"}})
    assert await stage.extend(other) == "refused"
    reasons = [str(row.columns.get("reason")) for row in await stage.queries.partition("graph")]
    assert any("“other” would have another failure policy than the group “g”" in reason for reason in reasons)
    await stage.fail("new")
    assert (await stage.state(), await sound(stage)) == ("running", True)
    assert await stage.work() == "finished"
    assert (await stage.states())["late"] == "completed"
    assert await sound(stage)


async def test_edits_keep_to_what_is_passed_on(memory: Stage) -> None:
    await memory.submit(graph(BUILD, {"checks": CHECKS}))
    assert "need failurePolicy: continue" in await memory.edit({"update": {"deploy": {"when": "always"}}})
    assert await memory.edit({"update": {"deploy": {"requires": ["lint"], "when": "always"}}}) == "done"
    await memory.fail("lint")
    assert (await memory.states())["deploy"] == "pending"
    assert "is passed on to them" in await memory.edit({"update": {"lint": {"reruns": 3}}})
    assert await memory.work() == "finished"
    assert await sound(memory)


async def test_the_document_comes_back(memory: Stage) -> None:
    wanted = graph(BUILD, {"checks": CHECKS})
    await memory.submit(wanted)
    found = await stored_document(memory.queries, "graph")
    assert found.same
    assert document_object(found.document)["groups"] == document_object(wanted)["groups"]
    with pytest.raises(Refused):
        await memory.submit(graph(BUILD, {"checks": CHECKS}, "continue"))


DAMAGE: dict[str, tuple[dict[str, Value], str]] = {
    "counted alike": ({"failedApart": 0}, "failed-count"),
    "no number": ({"failedApart": "many"}, "bad-column"),
    "blocked by what is passed on": ({"state": "blocked"}, "graph-state"),
    "not said": ({"groupPolicies": False}, "group-policies"),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_the_doctor_mends_it(memory: Stage, damage: str) -> None:
    columns, code = DAMAGE[damage]
    await memory.submit(graph(BUILD, {"checks": CHECKS}))
    await memory.fail("lint")
    assert await sound(memory)
    (row,) = await memory.tables.get("graph", [GRAPH])
    assert row is not None
    await memory.tables.commit("graph", [Merge(GRAPH, row.etag, columns)])
    assert code in [each.code for each in (await examine_graph(memory.handlers, memory.poison, "graph")).findings]
    await repair_graph(memory.handlers, memory.poison, "graph")
    assert await sound(memory)
    await memory.sweep()
    assert await memory.work() == "finished"
