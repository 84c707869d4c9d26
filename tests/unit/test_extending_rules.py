"""Plans of extensions to the letter: bounds of each step, words of each refusal, and what is read for them."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from taskgraph.documents.canonical import content_hash, document_object, node_digest
from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import document_from_object, read_document
from taskgraph.engine.commit import Records
from taskgraph.engine.plans import POINT_READS_MAX, plan_extension, request_text
from taskgraph.model import limits
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import GRAPH, row_key, task_id_of
from taskgraph.model.json_strict import canonical_json
from taskgraph.protocol.extension import AcceptExtension, FinishExtension, InsertRows, LinkTasks, RefuseRequest
from taskgraph.protocol.extension_plan import ExtensionPlan, request_rows, row_bytes
from taskgraph.protocol.layout import GRAPH_DIRECT_MAX, Layout
from taskgraph.protocol.wiring import Link
from taskgraph.storage.tables import Insert, Page, Range, Row
from taskgraph.testing import HurriedClock, MemoryTables
from tests.unit.transition_rows import NOW, rows_of

HEAD = "request:r"
Requires = Mapping[str, Sequence[str]]


def head(state: str = "accepted", **more: Any) -> Row:
    return Row(HEAD, "e", {"state": state, **more})


def plan_of(rows: Sequence[Insert] = (), links: Sequence[Link] = (), *, whole: bool = False) -> ExtensionPlan:
    layout = Layout(tuple(rows), None, ("leaf",), tuple(links), {})
    return ExtensionPlan("r", 3, layout, whole, tuple(links), 5, 7, {"nameMapping": "{}"})


def sized(number: int, size: int) -> Insert:
    """A row that counts as so many bytes."""
    bare = row_bytes(Insert(f"task:{number}", {"t": ""}))
    made = Insert(f"task:{number}", {"t": "x" * (size - bare)})
    assert row_bytes(made) == size
    return made


# --- steps -----------------------------------------------------------------------------------------------------


def test_the_first_step_says_all_that_the_graph_row_has_to_know() -> None:
    rows, links = (sized(0, 200),), (Link("a", ("b",)),)
    expected = {"request": "r", "revision": 3, "tasks": 5, "edges": 7, "leaves": ("leaf",), "top": None}
    for whole in (True, False):
        step = plan_of(rows, links, whole=whole).step(head("staged"))
        assert step == AcceptExtension(
            **expected,  # type: ignore[arg-type]
            whole=whole,
            rows=rows if whole else (),
            links=links if whole else (),
            columns={"nameMapping": "{}"},
        )


def test_a_refusal_is_the_only_step_of_a_staged_request() -> None:
    plan = ExtensionPlan("r", 0, Layout((), None, (), (), {}), True, (), 0, 0, {}, "no")
    assert plan.step(head("staged")) == RefuseRequest("r", "no")
    assert plan.step(head("accepted", cursor=0)) == FinishExtension("r"), "what was accepted is not refused later"
    assert plan_of().refusal == ""


def test_a_request_without_a_cursor_begins_at_the_beginning() -> None:
    rows = (sized(0, 200),)
    assert plan_of(rows).step(head("accepted")) == InsertRows("r", 0, rows)


def test_the_cursor_goes_through_rows_and_then_through_links() -> None:
    rows = tuple(sized(number, 200) for number in range(3))
    links = (Link("a", ("b",)), Link("c", ("d",)))
    plan = plan_of(rows, links)
    assert plan.step(head(cursor=2)) == InsertRows("r", 2, rows[2:])
    assert plan.step(head(cursor=3)) == LinkTasks("r", 3, links)
    assert plan.step(head(cursor=4)) == LinkTasks("r", 4, links[1:])
    assert plan.step(head(cursor=5)) == FinishExtension("r")


@pytest.mark.parametrize("cursor", [-1, "2", 1.0])
def test_a_cursor_that_cannot_be_is_named(cursor: object) -> None:
    with pytest.raises(IntegrityError) as caught:
        plan_of().step(head(cursor=cursor))
    assert str(caught.value) == f"row {HEAD}: the cursor is {cursor!r}"


def test_a_step_inserts_at_most_96_rows() -> None:
    rows = tuple(sized(number, 150) for number in range(98))
    plan = plan_of(rows)
    assert plan.step(head(cursor=0)) == InsertRows("r", 0, rows[:96])
    assert plan.step(head(cursor=1)) == InsertRows("r", 1, rows[1:97])
    assert plan.step(head(cursor=96)) == InsertRows("r", 96, rows[96:])


def test_a_step_inserts_at_most_so_many_bytes_and_at_least_one_row() -> None:
    """2.5 MB, so that head, graph row, links and journal have room beside it; a single larger row goes by itself."""
    exact = plan_of([sized(0, 1_000_000), sized(1, 1_500_000), sized(2, 150)])
    step = exact.step(head(cursor=0))
    assert isinstance(step, InsertRows)
    assert len(step.rows) == 2
    over = plan_of([sized(0, 1_000_000), sized(1, 1_500_001), sized(2, 150)])
    step = over.step(head(cursor=0))
    assert isinstance(step, InsertRows)
    assert len(step.rows) == 1
    huge = plan_of([sized(0, 3_000_000), sized(1, 150)])
    step = huge.step(head(cursor=0))
    assert isinstance(step, InsertRows)
    assert len(step.rows) == 1


@pytest.mark.parametrize(("sizes", "taken"), [((46, 46), 2), ((46, 47), 1), ((80, 14), 1), ((10, 10, 10), 3)])
def test_a_step_links_as_many_as_a_commit_takes(sizes: Sequence[int], taken: int) -> None:
    """Each link may touch its task, a fork, and every dependent of it: at most 96 rows."""
    links = [Link(f"t{n}", tuple(f"d{n}-{m}" for m in range(size))) for n, size in enumerate(sizes)]
    step = plan_of((), links).step(head(cursor=0))
    assert step == LinkTasks("r", 0, tuple(links[:taken]))


def test_a_link_that_is_larger_than_a_step_goes_by_itself() -> None:
    links = [Link("a", tuple(f"d{m}" for m in range(120))), Link("b", ("c",))]
    assert plan_of((), links).step(head(cursor=0)) == LinkTasks("r", 0, tuple(links[:1]))


# --- planning ----------------------------------------------------------------------------------------------------


class Table(MemoryTables):
    """Remembers what was read."""

    def __init__(self) -> None:
        super().__init__()
        self.gets: list[list[str]] = []
        self.queries: list[Range] = []

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        self.gets.append(list(keys))
        return await super().get(partition, keys)

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        self.queries.append(rows)
        return await super().query(partition, rows, limit=limit, continuation=continuation)


class Desk:
    """A graph in a table, and a request put down for it."""

    def __init__(self, tasks: Requires, **graph: Any) -> None:
        self.tables = Table()
        self.records = Records(self.tables, HurriedClock())
        rows = {key: row for key, row in rows_of(tasks).items() if row is not None}
        own = rows[GRAPH]
        rows[GRAPH] = Row(GRAPH, own.etag, {**own.columns, **graph})
        self.tables.partitions["g"] = rows

    async def plan(self, addition: GraphDocument, *, state: str = "staged") -> ExtensionPlan:
        text = canonical_json(document_object(addition))
        parts, own = request_rows("r", text, content_hash(addition), len(addition.tasks), NOW)
        for each in (*parts, Insert(own.key, {**own.columns, "state": state})):
            await self.tables.commit("g", [each])
        graph, row = await self.tables.get("g", [GRAPH, HEAD])
        assert graph is not None
        assert row is not None
        self.tables.gets.clear()
        self.tables.queries.clear()
        return await plan_extension(self.records, "g", graph, row, now=NOW + timedelta(seconds=9))

    def put(self, label: str, **columns: Any) -> None:
        key = row_key(task_id_of("g", label))
        row = self.tables.partitions["g"][key]
        self.tables.partitions["g"][key] = Row(key, row.etag, {**row.columns, **columns})


def addition(requires: Requires, **tasks: Any) -> GraphDocument:
    objects = {label: {"requires": list(wanted), "task": {}, **tasks} for label, wanted in requires.items()}
    return document_from_object({"tasks": objects}, kind="extension")


def labels(count: int, prefix: str = "n") -> list[str]:
    return [f"{prefix}{number:04}" for number in range(count)]


async def test_a_plan_is_for_the_revision_that_was_read() -> None:
    plan = await Desk({"a": []}, revision=4).plan(addition({"x": ["a"], "y": ["x", "a"]}))
    assert (plan.request, plan.revision, plan.tasks, plan.edges) == ("r", 4, 2, 3)
    with pytest.raises(IntegrityError) as caught:
        await Desk({"a": []}, revision="four").plan(addition({"x": ["a"]}))
    assert str(caught.value) == "row task-graph: the revision is 'four'"


async def test_a_graph_row_without_a_revision_is_at_its_first() -> None:
    desk = Desk({"a": []})
    own = desk.tables.partitions["g"][GRAPH]
    bare = {name: value for name, value in own.columns.items() if name not in ("revision", "requires")}
    desk.tables.partitions["g"][GRAPH] = Row(GRAPH, own.etag, bare)
    plan = await desk.plan(addition({label: [] for label in labels(GRAPH_DIRECT_MAX)}))
    assert plan.revision == 0
    assert plan.layout.top is None, "and names no leaves"


async def test_rows_of_a_plan_say_what_they_belong_to_and_since_when() -> None:
    plan = await Desk({"a": []}).plan(addition({"x": [], "y": ["x"]}))
    by_key = {row.key: row.columns for row in plan.layout.rows}
    x = by_key[row_key(task_id_of("g", "x"))]
    assert (x["request"], x["state"], x["pendingSince"]) == ("r", "pending", NOW + timedelta(seconds=9))
    assert plan.layout.leaves == (task_id_of("g", "y"),)
    assert plan.layout.mapping == {label: task_id_of("g", label) for label in "xy"}


@pytest.mark.parametrize(("named", "new", "direct"), [(0, 48, True), (0, 49, False), (47, 1, True), (48, 1, False)])
async def test_the_graph_row_names_up_to_48_leaves(named: int, new: int, direct: bool) -> None:
    plan = await Desk({"a": []}, requires=json.dumps(["x"] * named)).plan(addition({n: [] for n in labels(new)}))
    assert (plan.layout.top is None) is direct


async def test_what_was_accepted_is_planned_in_steps_however_small_it_is() -> None:
    plan = await Desk({"a": []}).plan(addition({"x": ["a"]}), state="accepted")
    assert (plan.whole, plan.refusal) == (False, "")
    assert plan.layout.top is not None
    assert plan.layout.top.key.split(":")[-1].startswith("r"), "named by the request: no other join has this name"


@pytest.mark.parametrize(("count", "whole"), [(92, True), (95, False)])
async def test_an_extension_is_one_commit_while_its_rows_fit(count: int, whole: bool) -> None:
    """Its tasks and their labels, the join over them, the graph row and the head: at most 96."""
    plan = await Desk({"a": []}, nameMapping='{"a":"…"}').plan(addition({label: [] for label in labels(count)}))
    assert plan.whole is whole


async def test_an_extension_is_one_commit_while_its_links_fit() -> None:
    old = labels(40, "old")
    for count, whole in ((31, True), (32, False)):
        desk = Desk({label: [] for label in old}, nameMapping='{"a":"…"}')
        plan = await desk.plan(addition({"x": old[:count]}))
        assert plan.whole is whole
        assert len(plan.links) == count


@pytest.mark.parametrize(("count", "whole"), [(8, True), (9, False)])
async def test_an_extension_is_one_commit_while_its_bytes_fit(count: int, whole: bool) -> None:
    tasks = addition({label: [] for label in labels(count)}, task={"payload": {"x": "y" * 300_000}})
    plan = await Desk({"a": []}, nameMapping='{"a":"…"}').plan(tasks)
    assert plan.whole is whole


async def test_a_refused_extension_is_one_step_however_large_it_is() -> None:
    plan = await Desk({"a": []}, state="finished").plan(addition({label: [] for label in labels(300)}))
    assert isinstance(plan.step(head("staged")), RefuseRequest)


PORTION = limits.LINK_REFERENCES_MAX


@pytest.mark.parametrize("count", [PORTION - 1, PORTION, PORTION + 1, 200])
async def test_many_dependents_of_one_task_are_linked_in_portions(count: int) -> None:
    plan = await Desk({"a": []}).plan(addition({label: ["a"] for label in labels(count)}), state="accepted")
    (link,) = plan.layout.links
    portions = [each.references for each in plan.links]
    assert {each.task_id for each in plan.links} == {task_id_of("g", "a")}
    assert [reference for portion in portions for reference in portion] == list(link.references)
    assert [len(portion) for portion in portions[:-1]] == [limits.LINK_REFERENCES_MAX] * (len(portions) - 1)
    assert len(portions) == -(-len(link.references) // limits.LINK_REFERENCES_MAX)


# --- who is there already ------------------------------------------------------------------------------------------


async def test_a_task_that_is_there_the_same_is_not_new_and_a_different_one_is_refused() -> None:
    desk = Desk({"a": [], "b": ["a"]})
    same = addition({"a": [], "x": ["a"]})
    plan = await desk.plan(same)
    assert (plan.refusal, plan.tasks) == ("", 1)
    desk = Desk({"a": [], "b": ["a"]})
    plan = await desk.plan(addition({"b": [], "x": []}))
    assert plan.refusal == "the graph already has a different task “b”"


async def test_a_task_that_this_request_has_added_is_still_its_own() -> None:
    """Also if its digest were another: whoever goes on with an extension lays out all of it."""
    for request, tasks in (("r", 1), ("s", 0)):
        desk = Desk({"a": [], "b": ["a"]})
        desk.put("b", request=request)
        plan = await desk.plan(addition({"b": ["a"]}))
        assert (plan.refusal, plan.tasks) == ("", tasks)
    desk = Desk({"a": [], "b": ["a"]})
    desk.put("b", request="r", digest="other")
    plan = await desk.plan(addition({"b": ["a"]}))
    assert plan.refusal == ""


@pytest.mark.parametrize(("count", "shown"), [(1, ""), (5, ""), (6, " and 1 more"), (9, " and 4 more")])
async def test_a_refusal_names_up_to_five_labels_in_order(count: int, shown: str) -> None:
    names = labels(count)
    plan = await Desk({"a": []}).plan(addition({"x": list(reversed(names))}))
    quoted = ", ".join(f"“{name}”" for name in names[:5])
    assert plan.refusal == f"neither the request nor the graph has a task {quoted}{shown}"


@pytest.mark.parametrize("state", ["submitting", "finished", "cancelling", "cancelled"])
async def test_a_graph_that_neither_runs_nor_is_blocked_refuses(state: str) -> None:
    plan = await Desk({"a": []}, state=state).plan(addition({"x": ["a"]}))
    assert plan.refusal == f"the graph is {state}; only one that runs or is blocked can be extended"


@pytest.mark.parametrize("count", [POINT_READS_MAX, POINT_READS_MAX + 1])
async def test_few_tasks_are_looked_up_by_key_and_many_in_one_reading(count: int) -> None:
    old = labels(count - 1, "old")
    desk = Desk({label: [] for label in [*old, "stranger"]})
    plan = await desk.plan(addition({**{label: [] for label in old}, "x": []}))
    assert (plan.refusal, plan.tasks) == ("", 1)
    readings = [each for each in desk.tables.queries if each.start == "task:"]
    if count <= POINT_READS_MAX:
        assert readings == []
        assert sorted(desk.tables.gets[0]) == sorted(row_key(task_id_of("g", label)) for label in [*old, "x"])
    else:
        assert readings == [Range("task:", "task;", select=("digest", "request", "state"))]
        assert desk.tables.gets == []


# --- labels ----------------------------------------------------------------------------------------------------


async def test_labels_are_added_to_those_of_the_graph_row_as_they_are_written() -> None:
    plan = await Desk({"a": []}, nameMapping='{"a":"…"}').plan(addition({"ü": ["a"]}))
    assert plan.columns == {"nameMapping": f'{{"a":"…","ü":"{task_id_of("g", "ü")}"}}'}
    assert not [row for row in plan.layout.rows if row.key.startswith("name-mapping")]


@pytest.mark.parametrize("over", [0, 1])
async def test_labels_that_the_graph_row_cannot_take_have_rows_of_their_own(over: int) -> None:
    entry = f',"x":"{task_id_of("g", "x")}"'
    have = json.dumps({"a": "y" * (limits.NAME_MAPPING_CHARS_MAX - len('{"a":""}') - len(entry) + over)})
    have = have.replace('": "', '":"')
    plan = await Desk({"a": []}, nameMapping=have).plan(addition({"x": ["a"]}))
    own = [row for row in plan.layout.rows if row.key.startswith("name-mapping")]
    if over:
        assert plan.columns == {}
        assert len(own) == 1
        assert '"x"' in str(own[0].columns)
        assert "r" in own[0].key.split(":")[1]
    else:
        assert len(str(plan.columns["nameMapping"])) == limits.NAME_MAPPING_CHARS_MAX
        assert own == []


async def test_labels_of_a_graph_whose_row_never_held_any_have_rows_of_their_own() -> None:
    plan = await Desk({"a": []}).plan(addition({"x": ["a"]}))
    assert plan.columns == {}
    assert plan.layout.rows[-1].key == "name-mapping:r:0000"


async def test_nothing_new_writes_no_labels() -> None:
    plan = await Desk({"a": []}, nameMapping='{"a":"…"}').plan(addition({"a": []}))
    assert (plan.columns, plan.layout.rows, plan.tasks, plan.edges) == ({}, (), 0, 0)


# --- request rows ------------------------------------------------------------------------------------------------


def test_a_request_is_a_head_and_numbered_parts() -> None:
    size = limits.ROW_CHARS_MAX // 2 // limits.PROPERTY_CHARS_MAX * limits.PROPERTY_CHARS_MAX
    parts, own = request_rows("r", "x" * (size + 1), "digest", 7, NOW)
    assert own == Insert(
        HEAD,
        {"schema": 1, "kind": "add-tasks", "state": "staged", "digest": "digest", "tasks": 7, "staged": NOW},
    )
    assert [part.key for part in parts] == [f"{HEAD}:0000", f"{HEAD}:0001"]
    assert [part.columns["schema"] for part in parts] == [1, 1]
    assert [sum(len(str(v)) for n, v in part.columns.items() if n != "schema") for part in parts] == [size, 1]
    assert max(len(str(value)) for part in parts for value in part.columns.values()) == limits.PROPERTY_CHARS_MAX
    (part,), _ = request_rows("r", "x" * size, "digest", 7, NOW)
    assert len(part.columns) == 1 + size // limits.PROPERTY_CHARS_MAX


async def test_only_the_parts_of_a_request_are_read_for_its_document() -> None:
    desk = Desk({"a": []})
    await desk.plan(addition({"x": ["a"]}))
    await desk.tables.commit("g", [Insert("request:r2:0000", {"text": "{"}), Insert("request:q:0000", {"text": "{"})])
    desk.tables.queries.clear()
    assert read_document(await request_text(desk.records, "g", "r"), kind="extension") == addition({"x": ["a"]})
    assert desk.tables.queries == [Range(f"{HEAD}:", f"{HEAD};")]


async def test_a_document_over_several_parts_is_read_whole() -> None:
    large = addition({"x": ["a"]}, task={"payload": {"text": "y" * 300_000}})
    desk = Desk({"a": []})
    await desk.plan(large)
    assert len([key for key in desk.tables.partitions["g"] if key.startswith(f"{HEAD}:")]) == 2
    assert read_document(await request_text(desk.records, "g", "r"), kind="extension") == large


def test_the_digest_of_a_task_does_not_depend_on_the_order_of_its_requirements() -> None:
    """Else the same content would be refused as different."""
    first, second = addition({"x": ["a", "b"]}), addition({"x": ["b", "a"]})
    assert node_digest(first.tasks["x"]) == node_digest(second.tasks["x"])
