"""Groups that need k of n over real stores: what is decided, what people are shown of it, edits, and the doctor."""

from collections.abc import Mapping
from typing import Any

import pytest

from taskgraph.documents.canonical import document_object
from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import document_from_object
from taskgraph.engine.doctor import Examined, examine_graph, repair_graph
from taskgraph.engine.poison import Poison
from taskgraph.model.columns import Value
from taskgraph.model.errors import InvalidGraph
from taskgraph.model.ids import GRAPH, group_owner, join_reference, task_id_of
from taskgraph.protocol.context import Outcome
from taskgraph.queries.document import stored_document
from taskgraph.queries.values import GroupSuccess
from taskgraph.storage.tables import Merge
from tests.scenarios.stage import Stage
from tests.simulation.bounds import NARROWER, bounded

ALL, DONE = (join_reference(group_owner(task_id_of("graph", "g")), end) for end in ("all", "done"))
MEMBERS = ("a", "b", "c", "d")


def document(
    success: Mapping[str, Any], members: tuple[str, ...] = MEMBERS, policy: str = "continue", **more: Any
) -> GraphDocument:
    tasks: dict[str, Any] = {label: {"task": {}} for label in members}
    tasks |= {"x": {"requires": ["g"], "task": {}}, "alarm": {"requires": ["g"], "when": "any-failed", "task": {}}}
    groups = {"g": {"tasks": list(members), "success": dict(success)}}
    return document_from_object({"failurePolicy": policy, "tasks": tasks | more, "groups": groups}, kind="graph")


async def diagnosis(stage: Stage) -> Examined:
    return await examine_graph(stage.handlers, Poison(stage.tables, stage.queues, stage.clock, stage.names), "graph")


async def codes(stage: Stage) -> list[str]:
    return [each.code for each in (await diagnosis(stage)).findings]


async def test_decided_early_and_the_rest_is_cancelled(stage: Stage) -> None:
    await stage.submit(document({"atLeast": "50%", "rest": "cancel"}))
    (reason, *_) = await stage.queries.why("graph", "x")
    assert "group “g”, which needs 2 tasks (0 completed, 0 did not, of 4)" in reason.text
    held = await stage.claim("d")
    await stage.fail("a")
    await stage.complete("b")
    assert (await stage.queries.group("graph", "g")).success == GroupSuccess(2, 4, 1, 1, "go", "cancel", "", False)
    assert await codes(stage) == []
    await stage.complete("c")
    states = await stage.states()
    assert (states["x"], states["alarm"], states["d"]) == ("pending", "skipped", "running")
    assert (await stage.row("d")).columns["cancel"] == "the group “g” has succeeded without it"
    await stage.complete("x")
    assert (await stage.state(), await codes(stage)) == ("running", [])
    await stage.deliver(stage.completed(held))
    assert (await stage.state(), await codes(stage)) == ("finished", [])
    found = (await stage.queries.group("graph", "g")).success
    assert found == GroupSuccess(2, 4, 2, 2, "go", "cancel", "succeeded", True)
    (fact,) = [each for each in await stage.events() if each.kind == "group-decided"]
    assert {name: fact.fields[name] for name in ("group", "decided", "ok", "bad", "needs", "of")} == {
        "group": "g",
        "decided": "succeeded",
        "ok": 2,
        "bad": 1,
        "needs": 2,
        "of": 4,
    }


async def test_too_few_and_a_rerun_that_mends_it(stage: Stage) -> None:
    await stage.submit(document({"atLeast": 3}))
    await stage.fail("a")
    await stage.fail("b")
    states = await stage.states()
    assert (states["x"], states["alarm"]) == ("skipped", "pending")
    assert "“g” has too few tasks that completed" in str((await stage.row("x")).columns["resolution"])
    for label in ("c", "d", "alarm"):
        await stage.complete(label)
    assert (await stage.state(), await codes(stage)) == ("finished", [])
    assert (await stage.rerun("a")).outcome == Outcome.APPLIED
    assert (await stage.states())["x"] == "unscheduled"
    await stage.complete("a")
    assert (await stage.states())["x"] == "pending"
    assert await stage.work() == "finished"
    assert (await stage.states())["alarm"] == "skipped"
    assert await codes(stage) == []


async def test_the_document_comes_back(memory: Stage) -> None:
    wanted = document({"atLeast": "75%", "then": "wait", "rest": "cancel"})
    await memory.submit(wanted)
    found = await stored_document(memory.queries, "graph")
    assert found.same
    assert document_object(found.document)["groups"] == document_object(wanted)["groups"]


@pytest.mark.parametrize("bounds", [{}, NARROWER])
async def test_an_extension_requires_it_and_brings_its_own(local: Stage, bounds: dict[str, Any]) -> None:
    with bounded(bounds):
        await local.submit(document({"atLeast": 1}))
        await local.complete("a")
        more = {
            "tasks": {"y": {"requires": ["g"], "task": {}}, "z": {"requires": ["new"], "task": {}}},
            "groups": {"new": {"tasks": ["y"], "requires": ["g"], "success": {"atLeast": 1}}},
        }
        assert await local.extend(document_from_object(more, kind="extension")) == "done"
        assert (await local.states())["y"] == "pending"
        assert await local.work(fails={"y": 1}) == "finished"
        assert (await local.states())["z"] == "skipped"
        assert await codes(local) == []


async def test_a_graph_that_does_not_go_on_has_none(memory: Stage) -> None:
    with pytest.raises(InvalidGraph) as caught:
        document({"atLeast": 5}, policy="block")
    assert [(each.pointer, each.code) for each in caught.value.problems][:2] == [
        ("/groups/g/success", "success"),
        ("/groups/g/success/atLeast", "success"),
    ]
    await memory.submit(document_from_object({"tasks": {"a": {"task": {}}}}, kind="graph"))
    more = {"tasks": {"y": {"task": {}}}, "groups": {"new": {"tasks": ["y"], "success": {"atLeast": 1}}}}
    assert await memory.extend(document_from_object(more, kind="extension")) == "refused"
    reasons = [str(row.columns.get("reason")) for row in await memory.queries.partition("graph")]
    assert any("the group “new” has success, which needs failurePolicy: continue" in reason for reason in reasons)


async def test_a_result_of_a_member_is_required_by_itself(memory: Stage) -> None:
    taking = {"requires": ["g"], "task": {"payload": {"n": {"$result": "a"}}}}
    with pytest.raises(InvalidGraph) as caught:
        document({"atLeast": 1}, y=taking)
    assert [each.code for each in caught.value.problems] == ["not-required"]
    document({"atLeast": 1, "then": "wait"}, y=taking)


async def test_edits_take_all_of_it_away_or_none(memory: Stage) -> None:
    await memory.submit(document({"atLeast": 1}, free={"task": {}}))
    assert "“b” is counted by group “g”, which has `success`" in await memory.edit({"delete": ["b"]})
    assert "“x” requires group “g”" in await memory.edit({"deleteGroups": ["g"]})
    assert await memory.edit({"deleteGroups": ["g"], "delete": ["x", "alarm"]}) == "done"
    assert await codes(memory) == []
    assert await memory.work() == "finished"


async def test_what_requires_it_may_be_taken_away(memory: Stage) -> None:
    await memory.submit(document({"atLeast": 1}))
    assert await memory.edit({"delete": ["x", "alarm"]}) == "done"
    assert await codes(memory) == []
    await memory.complete("a")
    assert await memory.work() == "finished"
    assert await codes(memory) == []


DAMAGE: dict[str, tuple[str, dict[str, Value], str]] = {
    "a member is not counted": (ALL, {"ok": 0}, "miscounted"),
    "one that failed is counted as completed": (ALL, {"unsuccessful": "[]"}, "miscounted"),
    "the decision was not passed on": (ALL, {"announced": ""}, "decision"),
    "what was passed on did not come": (DONE, {"state": "unscheduled", "requiresLeft": f'["{ALL}"]'}, "left-over"),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_the_doctor_mends_counts_and_decisions(memory: Stage, damage: str) -> None:
    key, columns, code = DAMAGE[damage]
    await memory.submit(document({"atLeast": 1}))
    await memory.fail("a")
    await memory.complete("b")
    assert await codes(memory) == []
    (row,) = await memory.tables.get("graph", [key])
    assert row is not None
    await memory.tables.commit("graph", [Merge(key, row.etag, columns)])
    assert code in await codes(memory)
    poison = Poison(memory.tables, memory.queues, memory.clock, memory.names)
    await repair_graph(memory.handlers, poison, "graph")
    assert code not in await codes(memory)
    await memory.sweep()
    assert await memory.work() == "finished"
    assert await codes(memory) == []
    (graph,) = await memory.tables.get("graph", [GRAPH])
    assert graph is not None
    assert graph.columns["counting"] is True
