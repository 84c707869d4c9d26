"""Groups of tasks on every store: who waits for whom, what is shown of a group, extensions, and the doctor."""

from typing import Any

import pytest

from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import document_from_object
from taskgraph.engine.doctor import examine_graph, repair_graph
from taskgraph.engine.poison import Poison
from taskgraph.model.errors import NotFound
from taskgraph.model.ids import GRAPH, group_key, group_owner, ids_text, join_reference, row_key
from taskgraph.protocol.invariants.findings import Severity
from taskgraph.queries.groups import group_members, group_names
from taskgraph.storage.tables import Delete, Merge
from taskgraph.testing import MemoryTables
from tests.scenarios.stage import Requirements, Stage, graph
from tests.simulation.bounds import CHUNKED, NARROWER, bounded

Groups = dict[str, tuple[list[str], list[str]]]


def grouped(requires: Requirements, groups: Groups, *, kind: Any = "graph", **more: Any) -> GraphDocument:
    made = {
        "tasks": {label: {"requires": list(wanted), "task": {}} for label, wanted in requires.items()},
        "groups": {name: {"tasks": inside, "requires": wanted} for name, (inside, wanted) in groups.items()},
        **more,
    }
    return document_from_object(made, kind=kind)


STAGES = grouped(
    {"lock": [], "a": [], "b": ["a"], "c": [], "d": [], "unlock": ["second"]},
    {"first": (["a", "b"], ["lock"]), "second": (["c", "d"], ["first"]), "all": (["first", "second"], [])},
)


async def test_each_task_waits_for_what_its_groups_require(stage: Stage) -> None:
    await stage.submit(STAGES)
    ready = []
    for label in ("lock", "a", "b", "c", "d", "unlock"):
        ready.append({name for name, state in (await stage.states()).items() if state == "pending"})
        await stage.complete(label)
    assert ready == [{"lock"}, {"a"}, {"b"}, {"c", "d"}, {"d"}, {"unlock"}]
    assert await stage.state() == "finished"
    graph_row = await stage.graph_row()
    assert (graph_row.columns["groups"], graph_row.columns["edges"]) == (3, STAGES.edges)


async def test_people_see_edges_from_task_to_task(stage: Stage) -> None:
    await stage.submit(STAGES)
    found = await stage.queries.task("graph", "c")
    assert (found.requires, found.requires_left, found.dependents) == (["a", "b"], ["a", "b"], ["unlock"])
    assert found.status.groups == ["all", "second"]
    found = await stage.queries.task("graph", "a")
    assert (found.requires, found.dependents) == (["lock"], ["b", "c", "d"])
    assert (await stage.queries.task("graph", "unlock")).requires == ["c", "d"]


async def test_a_group_at_a_glance(stage: Stage) -> None:
    await stage.submit(STAGES)
    found = await stage.queries.group("graph", "first")
    assert (found.state, found.tasks, found.unresolved, found.counts) == ("waiting", 2, 2, {"unscheduled": 2})
    await stage.complete("lock")
    assert (await stage.queries.group("graph", "first")).state == "running"
    await stage.complete("a")
    await stage.fail("b")
    found = await stage.queries.group("graph", "all")
    assert (found.state, found.failed_tasks, found.unresolved) == ("blocked", 1, 2)
    assert (found.groups, found.within, found.graph_state) == (["first", "second"], [], "blocked")
    assert [each.label for each in found.listed] == ["a", "b", "c", "d"]
    listing = await stage.queries.listing("graph", group="all", state="failed")
    assert [each.label for each in listing.tasks] == ["b"]
    await stage.rerun("b")
    await stage.complete("b")
    assert (await stage.queries.group("graph", "first")).state == "finished"
    assert set(await group_members(stage.tables, "graph", "all")) == set(map(stage.task_id, "abcd"))
    assert await group_names(stage.tables, "graph") == {"first": "", "second": "", "all": ""}
    with pytest.raises(NotFound) as caught:
        await stage.queries.group("graph", "frist")
    assert tuple(caught.value.near) == ("first",)


async def test_why_names_the_group_by_way_of_which_a_task_waits(stage: Stage) -> None:
    await stage.submit(STAGES)
    await stage.complete("lock")
    await stage.complete("a")
    texts = {each.label: each.text for each in await stage.queries.why("graph", "unlock")}
    assert texts["unlock"] == "waits for 2 of 2 tasks of group “second”"
    assert texts["c"] == texts["d"] == "waits for 1 of 2 tasks of group “first”"
    assert "is ready since" in texts["b"]


async def test_why_names_the_gate_of_the_own_group_and_other_tasks(memory: Stage) -> None:
    first = ["a", "b", "c"]
    requires: dict[str, list[str]] = {**{label: [] for label in (*first, "x")}, "y": ["x"], "z": []}
    await memory.submit(grouped(requires, {"last": (["x", "y", "z"], first)}))
    await memory.complete("a")
    texts = {each.label: each.text for each in await memory.queries.why("graph", "y")}
    assert texts["y"] == "waits for 2 tasks that its group “last” requires and 1 other task"


@pytest.mark.parametrize("bounds", [{}, NARROWER, CHUNKED])
async def test_many_before_many(local: Stage, bounds: dict[str, Any]) -> None:
    first, second = [f"a{number}" for number in range(7)], [f"b{number}" for number in range(7)]
    with bounded(bounds):
        await local.submit(
            grouped({label: [] for label in (*first, *second)}, {"first": (first, []), "second": (second, ["first"])})
        )
        assert await local.work() == "finished"
        found = await local.queries.task("graph", "b3")
        assert sorted(found.requires) == first
        assert (await local.queries.task("graph", "a0")).dependents == second
        poison = Poison(local.tables, local.queues, local.clock, local.names)
        assert (await examine_graph(local.handlers, poison, "graph")).findings == ()


async def test_an_extension_requires_groups_and_brings_its_own(stage: Stage) -> None:
    await stage.submit(STAGES)
    await stage.complete("lock")
    await stage.complete("a")
    more = grouped(
        {"x": ["first", "lock"], "y": ["all"], "z": ["new"], "w": ["second"]},
        {"new": (["x", "y"], ["second"])},
        kind="extension",
    )
    assert await stage.extend(more) == "done"
    assert (await stage.queries.task("graph", "x")).requires == ["a", "b", "c", "d", "lock"]
    assert (await stage.queries.task("graph", "z")).requires == ["x", "y"]
    assert (await stage.queries.task("graph", "w")).requires == ["c", "d"]
    assert (await stage.queries.task("graph", "y")).status.groups == ["new"]
    assert (await stage.queries.group("graph", "new")).tasks == 2
    assert (await stage.graph_row()).columns["groups"] == 4
    assert await stage.work() == "finished"
    poison = Poison(stage.tables, stage.queues, stage.clock, stage.names)
    assert (await examine_graph(stage.handlers, poison, "graph")).findings == ()


@pytest.mark.parametrize(
    ("requires", "groups", "words"),
    [
        ({"x": ["thrid"]}, {}, "neither the request nor the graph has a task or group “thrid”"),
        ({"first": []}, {}, "the graph has a group “first”, and a task cannot have its name"),
        ({"x": []}, {"first": (["x"], [])}, "the graph already has a task or group “first”"),
        ({"x": []}, {"lock": (["x"], [])}, "the graph already has a task or group “lock”"),
        ({"lock": []}, {"new": (["lock"], [])}, "the graph already has the task “lock”, which cannot be put into"),
    ],
)
async def test_extensions_that_are_refused(memory: Stage, requires: Requirements, groups: Groups, words: str) -> None:
    await memory.submit(STAGES)
    staged = await memory.stage_extension(grouped(requires, groups, kind="extension"))
    await memory.pump()
    head = await memory.queries.request("graph", staged.request)
    assert head["state"] == "refused"
    assert words in str(head["reason"])


async def test_a_graph_without_groups_reads_none(memory: Stage) -> None:
    """What is not used costs nothing: no row, no column, no read."""
    await memory.submit(graph({"a": [], "b": ["a"]}))
    rows = await memory.queries.partition("graph")
    assert not [row for row in rows if row.key.startswith("group:") or "groups" in row.columns]
    assert isinstance(memory.tables, MemoryTables)
    asked: list[str] = []
    query = memory.tables.query

    async def told(partition: str, rows: Any, **more: Any) -> Any:
        asked.append(rows.start)
        return await query(partition, rows, **more)

    memory.tables.query = told  # type: ignore[method-assign]
    assert await memory.extend(grouped({"x": ["a"]}, {}, kind="extension")) == "done"
    assert not [each for each in asked if each.startswith("group:")]


@pytest.mark.parametrize("spoil", ["group row", "member", "task", "count", "join forgets", "task forgets"])
async def test_the_doctor_mends_what_is_certain_of_a_group(memory: Stage, spoil: str) -> None:
    await memory.submit(STAGES)
    await memory.complete("lock")
    key = group_key(memory.task_id("first"))
    join = join_reference(group_owner(memory.task_id("first")), "done")
    rows = {row.key: row for row in await memory.queries.partition("graph")}
    task = row_key(memory.task_id("a"))
    changes: dict[str, Any] = {
        "group row": Delete(key, rows[key].etag),
        "member": Merge(key, rows[key].etag, {"members": ids_text([memory.task_id("a")])}),
        "task": Merge(task, rows[task].etag, {"groups": '["all"]'}),
        "count": Merge(GRAPH, rows[GRAPH].etag, {"groups": 7}),
        "join forgets": Merge(join, rows[join].etag, {"requires": "[]", "requiresLeft": "[]"}),
        "task forgets": Merge(task, rows[task].etag, {"dependents": ids_text([memory.task_id("b")])}),
    }
    await memory.tables.commit("graph", [changes[spoil]])
    memory.handlers.row_cache.forget("graph")
    poison = Poison(memory.tables, memory.queues, memory.clock, memory.names)
    found = (await examine_graph(memory.handlers, poison, "graph")).findings
    assert [each for each in found if each.severity is Severity.WRONG]
    answer = await repair_graph(memory.handlers, poison, "graph")
    assert answer.repaired
    left = [each for each in answer.findings if each.severity is Severity.WRONG]
    assert left == []
    after = {row.key: row for row in await memory.queries.partition("graph")}
    names = {"group row": (key, "members"), "member": (key, "members"), "task": (task, "groups")}
    if spoil in names:
        where, column = names[spoil]
        assert after[where].columns[column] == rows[where].columns[column]
        assert after[key].columns["tasks"] == 2
    assert await memory.work() == "finished"
