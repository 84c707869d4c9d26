"""Plans of extensions: which step comes next, how large it is, and that a plan made again is the same."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from taskgraph.documents.canonical import content_hash, document_object
from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import document_from_object, read_document
from taskgraph.engine.commit import Records
from taskgraph.engine.plans import POINT_READS_MAX, plan_extension, request_text
from taskgraph.model import limits
from taskgraph.model.errors import IntegrityError, InvalidGraph
from taskgraph.model.ids import GRAPH, row_key, task_id_of
from taskgraph.model.json_strict import canonical_json
from taskgraph.protocol.extension import (
    AcceptExtension,
    FinishExtension,
    InsertRows,
    LinkTasks,
    RefuseRequest,
    request_key,
)
from taskgraph.protocol.extension_plan import ExtensionPlan, request_rows, row_bytes
from taskgraph.protocol.layout import GRAPH_DIRECT_MAX
from taskgraph.storage.tables import Insert, Merge, Row
from taskgraph.testing import HurriedClock, MemoryTables
from tests.unit.transition_rows import NOW, rows_of

Requires = Mapping[str, Sequence[str]]


def document(requires: Requires, *, payload: str = "") -> GraphDocument:
    tasks = {
        label: {"requires": list(wanted), "task": {"payload": {"x": payload}} if payload else {}}
        for label, wanted in requires.items()
    }
    return document_from_object({"tasks": tasks}, kind="extension")


class Desk:
    """A graph in a table, and requests put down for it."""

    def __init__(self, tasks: Requires, **graph: str | int) -> None:
        self.tables = MemoryTables()
        self.records = Records(self.tables, HurriedClock())
        rows = {key: row for key, row in rows_of(tasks).items() if row is not None}
        own = rows[GRAPH]
        rows[GRAPH] = Row(GRAPH, own.etag, {**own.columns, **graph})
        self.tables.partitions["g"] = rows

    async def put(self, addition: GraphDocument, *, state: str = "staged", cursor: int = 0) -> Row:
        text = canonical_json(document_object(addition))
        parts, head = request_rows("r", text, content_hash(addition), len(addition.tasks), NOW)
        for each in parts:
            await self.tables.commit("g", [each])
        await self.tables.commit("g", [Insert(head.key, {**head.columns, "state": state, "cursor": cursor})])
        return await self.head()

    async def head(self) -> Row:
        (row,) = await self.tables.get("g", [request_key("r")])
        assert row is not None
        return row

    async def plan(self, addition: GraphDocument, *, state: str = "staged") -> ExtensionPlan:
        head = await self.put(addition, state=state)
        return await self.plan_again(head)

    async def plan_again(self, head: Row, *, later: float = 0.0) -> ExtensionPlan:
        (graph,) = await self.tables.get("g", [GRAPH])
        assert graph is not None
        return await plan_extension(self.records, "g", graph, head, now=NOW + timedelta(seconds=later))


def steps(plan: ExtensionPlan) -> list[object]:
    """All steps after acceptance, as the cursor moves through them."""
    made: list[object] = []
    cursor = 0
    while True:
        step = plan.step(Row(request_key("r"), "e", {"state": "accepted", "cursor": cursor}))
        made.append(step)
        match step:
            case InsertRows():
                assert step.cursor == cursor
                cursor += len(step.rows)
            case LinkTasks():
                assert step.cursor == cursor
                cursor += len(step.links)
            case FinishExtension():
                return made
            case _:
                raise AssertionError(step)


def numbered(count: int, prefix: str = "n") -> list[str]:
    return [f"{prefix}{number:05}" for number in range(count)]


# --- small -----------------------------------------------------------------------------------------------------


async def test_a_small_extension_is_planned_as_one_commit() -> None:
    desk = Desk({"a": []}, nameMapping='{"a":"…"}')
    plan = await desk.plan(document({"x": ["a"], "y": ["x"]}))
    step = plan.step(await desk.head())
    assert isinstance(step, AcceptExtension)
    assert (step.whole, step.tasks, step.edges, step.revision, step.top) == (True, 2, 2, 0, None)
    assert step.leaves == (task_id_of("g", "y"),)
    assert [link.task_id for link in step.links] == [task_id_of("g", "a")]
    assert str(step.columns["nameMapping"]).count(":") == 3


async def test_labels_go_to_rows_of_their_own_where_the_graph_row_never_held_them() -> None:
    desk = Desk({"a": []})
    plan = await desk.plan(document({"x": ["a"]}))
    step = plan.step(await desk.head())
    assert isinstance(step, AcceptExtension)
    assert "nameMapping" not in step.columns
    assert [row.key.split(":")[0] for row in step.rows].count("name-mapping") == 1


async def test_what_does_not_fit_one_commit_is_planned_in_steps() -> None:
    desk = Desk({"a": []})
    plan = await desk.plan(document({label: [] for label in numbered(60)}, payload="x" * 40_000))
    step = plan.step(await desk.head())
    assert isinstance(step, AcceptExtension)
    assert (step.whole, step.rows, step.links) == (False, (), ())
    assert step.top is not None, "a gathering join, so that the graph waits for one thing only"


@pytest.mark.parametrize("named", [0, 40, GRAPH_DIRECT_MAX, GRAPH_DIRECT_MAX + 10])
async def test_leaves_are_named_on_the_graph_row_only_while_there_is_room(named: int) -> None:
    desk = Desk({"a": []}, requires="[" + ",".join(['"x"'] * named) + "]")
    plan = await desk.plan(document({label: [] for label in numbered(10)}))
    assert (plan.layout.top is None) == (named + 10 <= GRAPH_DIRECT_MAX)


async def test_tasks_that_are_there_the_same_are_not_planned_again() -> None:
    desk = Desk({"a": [], "b": ["a"]})
    plan = await desk.plan(document({"a": [], "b": ["a"], "x": ["b"]}))
    assert (plan.refusal, plan.tasks, set(plan.layout.mapping)) == ("", 1, {"x"})


async def test_an_extension_of_nothing_new() -> None:
    desk = Desk({"a": [], "b": ["a"]})
    plan = await desk.plan(document({"b": ["a"]}))
    step = plan.step(await desk.head())
    assert isinstance(step, AcceptExtension)
    assert (step.whole, step.tasks, step.rows, step.leaves, step.links, dict(step.columns)) == (True, 0, (), (), (), {})


# --- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("addition", "graph", "words"),
    [
        ({"b": []}, {}, "different task “b”"),
        ({"x": ["nobody"]}, {}, "has a task “nobody”"),
        ({"x": ["a"]}, {"state": "finished"}, "finished"),
        ({"x": ["a"]}, {"state": "cancelling"}, "cancelling"),
        ({f"x{n}": [f"nobody{n}"] for n in range(8)}, {}, "and 3 more"),
    ],
    ids=["different", "unknown", "finished", "cancelling", "many"],
)
async def test_refusals(addition: Requires, graph: dict[str, str], words: str) -> None:
    desk = Desk({"a": [], "b": ["a"]}, **graph)
    plan = await desk.plan(document(addition))
    step = plan.step(await desk.head())
    assert isinstance(step, RefuseRequest)
    assert words in step.reason


async def test_a_reference_to_nobody_is_refused() -> None:
    desk = Desk({"a": []})
    obj = {"tasks": {"x": {"task": {"payload": {"of": {"$subs": "taskId:nobody"}}}}}}
    plan = await desk.plan(document_from_object(obj, kind="extension"))
    assert "“nobody”" in plan.refusal


async def test_what_was_accepted_is_not_refused_later() -> None:
    """The graph may be cancelled meanwhile; its own half of the tasks may be there."""
    desk = Desk({"a": []}, state="cancelling")
    plan = await desk.plan(document({"x": ["a"]}), state="accepted")
    assert plan.refusal == ""
    assert isinstance(plan.step(await desk.head()), InsertRows)


@pytest.mark.parametrize("state", ["done", "refused"])
async def test_a_request_that_was_answered_has_no_next_step(state: str) -> None:
    desk = Desk({"a": []})
    plan = await desk.plan(document({"x": ["a"]}), state=state)
    assert plan.step(await desk.head()) is None


@pytest.mark.parametrize("cursor", ["3", -1])
async def test_a_cursor_that_cannot_be(cursor: object) -> None:
    desk = Desk({"a": []})
    plan = await desk.plan(document({"x": ["a"]}), state="accepted")
    with pytest.raises(IntegrityError):
        plan.step(Row(request_key("r"), "e", {"state": "accepted", "cursor": cursor}))  # type: ignore[dict-item]


# --- large -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [101, 1_000])
async def test_every_step_of_a_large_extension_fits_one_commit(count: int) -> None:
    old = numbered(30, "old")
    desk = Desk({label: [] for label in old})
    new = numbered(count)
    requires = {label: [old[number % 30], old[(number * 7) % 29]] for number, label in enumerate(new)}
    requires = {label: list(dict.fromkeys(wanted)) for label, wanted in requires.items()} | {"hub": [old[0], *new]}
    plan = await desk.plan(document(requires), state="accepted")
    inserted: list[Insert] = []
    linked: dict[str, list[str]] = {}
    for step in steps(plan):
        match step:
            case InsertRows(rows=rows):
                assert len(rows) + 2 <= limits.COMMIT_CHANGES_MAX
                assert sum(row_bytes(row) for row in rows) <= limits.COMMIT_BYTES_MAX
                assert not linked, "rows before links: whoever completes finds what it must tell"
                inserted += rows
            case LinkTasks(links=links):
                touched = sum(2 + len(link.references) for link in links) + 2
                assert touched <= limits.COMMIT_CHANGES_MAX
                for link in links:
                    assert len(link.references) <= limits.LINK_REFERENCES_MAX
                    linked.setdefault(link.task_id, []).extend(link.references)
            case _:
                pass
    assert tuple(inserted) == plan.layout.rows
    assert {key: tuple(told) for key, told in linked.items()} == {
        link.task_id: link.references for link in plan.layout.links
    }
    assert {row.key for row in inserted} >= {row_key(task_id_of("g", label)) for label in requires}


async def test_whoever_plans_it_again_plans_the_same() -> None:
    """At whatever time, however much of it is in already: same rows, same order, same cursor."""
    old = numbered(5, "old")
    desk = Desk({label: [] for label in old})
    addition = document({label: [old[number % 5]] for number, label in enumerate(numbered(150))})
    head = await desk.put(addition, state="accepted")
    first = await desk.plan_again(head)
    half = first.layout.rows[:77]
    for row in half:
        await desk.tables.commit("g", [row])
    await desk.tables.commit("g", [Merge(head.key, head.etag, {"cursor": 77})])
    second = await desk.plan_again(await desk.head(), later=3600.0)
    keys = [row.key for row in first.layout.rows]
    assert [row.key for row in second.layout.rows] == keys
    assert second.links == first.links
    step = second.step(await desk.head())
    assert isinstance(step, InsertRows)
    assert [row.key for row in step.rows] == keys[77 : 77 + len(step.rows)]


async def test_many_labels_are_looked_up_in_one_reading() -> None:
    """And find the same tasks as looking up one by one."""
    count = POINT_READS_MAX + 50
    desk = Desk({label: [] for label in numbered(count)})
    plan = await desk.plan(document({**{label: [] for label in numbered(count)}, "x": numbered(count)}))
    assert (plan.refusal, plan.tasks) == ("", 1)
    desk = Desk({label: [] for label in numbered(count)})
    plan = await desk.plan(document({**{label: [] for label in numbered(count)}, "x": ["nobody", *numbered(count)]}))
    assert "“nobody”" in plan.refusal


# --- request rows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("units", [10, 250_000, 2_000_000])
@pytest.mark.parametrize("character", ["x", "ü", "\U0001f600"])
async def test_a_request_is_stored_over_as_many_rows_as_it_takes(character: str, units: int) -> None:
    """And read back whole."""
    each = 60_000
    payload = character * min(units, each)
    count = max(1, units // each)
    addition = document({label: [] for label in numbered(count)}, payload=payload)
    desk = Desk({"a": []})
    await desk.put(addition)
    assert read_document(await request_text(desk.records, "g", "r"), kind="extension") == addition


async def test_a_request_whose_rows_are_damaged() -> None:
    desk = Desk({"a": []})
    await desk.put(document({"x": ["a"]}))
    part = f"{request_key('r')}:0000"
    (row,) = await desk.tables.get("g", [part])
    assert row is not None
    await desk.tables.commit("g", [Merge(part, row.etag, {"text": '{"tasks": {"x": '})])
    with pytest.raises(InvalidGraph):
        await desk.plan_again(await desk.head())


@pytest.mark.parametrize("char", ["x", "é", "日"])
async def test_steps_fit_a_commit_whatever_characters_definitions_hold(char: str) -> None:
    """A store may be sent six bytes for one character."""
    desk = Desk({"a": []})
    tasks = {f"t{n}": {"requires": ["a"], "task": {"payload": {"text": char * 400_000}}} for n in range(8)}
    plan = await desk.plan(document_from_object({"tasks": tasks}, kind="extension"), state="accepted")
    sizes = [sum(row_bytes(row) for row in step.rows) for step in steps(plan) if isinstance(step, InsertRows)]
    assert 1 < len(sizes) <= 9
    assert max(sizes) <= limits.COMMIT_BYTES_MAX


def test_the_size_of_a_row_is_never_guessed_too_small() -> None:
    row = Insert("task:x", {"a": "x" * 100, "b": "\U0001f600" * 50, "n": 7, "t": NOW})
    assert row_bytes(row) >= 100 + 100 + 50 * 12 + 2 + 20
