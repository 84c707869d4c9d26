"""Documents with groups as rows: shared joins, bounded degree, who is in a group, and logical edges unchanged."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskgraph.documents.canonical import node_digests
from taskgraph.documents.nodes import GraphDocument, GroupNode, TaskNode
from taskgraph.model import limits
from taskgraph.model.ids import (
    GRAPH,
    edge_name_of,
    fork_reference,
    group_key,
    group_of,
    group_owner,
    is_piece,
    is_relay,
    is_shared,
    join_reference,
    owner_of,
    row_key,
    task_id_of,
)
from taskgraph.protocol import layout
from taskgraph.protocol.definitions import members_of
from taskgraph.protocol.layout import GraphLayout, lay_out
from taskgraph.protocol.wiring import KnownGroup
from taskgraph.storage.tables import Insert, Row
from tests.simulation.bounds import CHUNKED, NARROWER, TIGHT, bounded
from tests.unit.test_grouping import document, documents, required

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def id_of(label: str) -> str:
    return task_id_of("g", label)


def listed(row: Insert, column: str) -> list[str]:
    return list(json.loads(str(row.columns[column])))


def whole(made: GraphDocument) -> GraphLayout:
    return GraphLayout("g", made.tasks, now=NOW, digests=node_digests(made), groups=made.groups)


def behind(rows: Mapping[str, Insert], references: Sequence[str], column: str) -> set[str]:
    """TaskIds behind references, through every relay; for dependents, joins of a task stand for it."""
    found: set[str] = set()
    todo, passed = list(references), set()
    while todo:
        reference = todo.pop()
        if column == "dependents" and reference.startswith("join:"):
            reference = owner_of(reference)
        if not is_relay(reference):
            found.add(reference)
        elif reference not in passed:
            passed.add(reference)
            todo += listed(rows[reference], column)
    return found


def check(made: GraphDocument, rows: Mapping[str, Insert], *, outside: Sequence[str] = ()) -> None:
    """Logical edges both ways, bounded degree, and names by which a row is counted down."""
    expected = required(made)
    tells: dict[str, set[str]] = {id_of(label): set() for label in made.tasks}
    for label, wanted in expected.items():
        row = rows[row_key(id_of(label))]
        assert behind(rows, listed(row, "requires"), "requires") == {id_of(each) for each in wanted}, label
        assert row.columns["state"] == ("unscheduled" if wanted else "pending")
        for each in wanted:
            if each not in outside:
                tells[id_of(each)].add(id_of(label))
    for label in made.tasks:
        row = rows[row_key(id_of(label))]
        assert behind(rows, listed(row, "dependents"), "dependents") == (tells[id_of(label)] or {GRAPH}), label
    for key, row in rows.items():
        if "dependents" not in row.columns:
            continue
        assert len(listed(row, "requires")) <= limits.REQUIRES_MAX, key
        assert len(listed(row, "dependents")) <= limits.DEPENDENTS_MAX, key
        for each in listed(row, "dependents"):
            if each != GRAPH:
                assert edge_name_of(key.removeprefix("task:")) in listed(rows[row_key(each)], "requires"), (key, each)
        for each in listed(row, "requires"):
            assert each in map(id_of, outside) or row_key(each) in rows, (key, each)


@pytest.mark.parametrize("bounds", [{}, NARROWER, CHUNKED, TIGHT], ids=["wide", "narrower", "chunked", "tight"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(made=documents())
def test_random_documents(bounds: Mapping[str, Any], made: GraphDocument) -> None:
    with bounded(bounds):
        made_rows = whole(made)
        rows = {row.key: row for row in made_rows.rows()}
        written = [row.columns["label"] for row in made_rows.rows() if row.key.startswith("task:")]
        for label, wanted in required(made).items():
            assert all(written.index(each) < written.index(label) for each in wanted)
        assert len(rows) == made_rows.count
        check(made, rows)
        assert {task_id for task_id, _ in made_rows.roots} == {
            id_of(label) for label, wanted in required(made).items() if not wanted
        }
        # The same as rows of an extension: dependents before what they require.
        added = lay_out("g", made.tasks, stamp="r", now=NOW, request="r", direct_leaves_max=2, groups=made.groups)
        check(made, {row.key: row for row in (*added.rows, *([added.top] if added.top else []))})
        place = {row.key: number for number, row in enumerate(added.rows)}
        for row in added.rows:
            for each in listed(row, "dependents") if "dependents" in row.columns else ():
                if row_key(each) in place:
                    assert place[row_key(each)] < place[row.key]
        assert not [key for key in place if key in rows and group_of(key)], "joins of two requests are strangers"


@settings(max_examples=15, deadline=None)
@given(documents(), st.randoms(use_true_random=False))
def test_the_order_of_a_document_decides_no_row(made: GraphDocument, rng: Any) -> None:
    """A submission may be taken up by the same content in another order."""

    def shuffled(mapping: Mapping[str, Any]) -> dict[str, Any]:
        keys = list(mapping)
        rng.shuffle(keys)
        return {key: mapping[key] for key in keys}

    def rows_of(one: GraphDocument) -> dict[str, Any]:
        return {
            row.key: {
                name: sorted(listed(row, name)) if name in ("requires", "requiresLeft", "dependents") else text
                for name, text in row.columns.items()
            }
            for row in whole(one).rows()
        }

    other = GraphDocument(
        shuffled(made.tasks),
        groups={
            name: GroupNode(name, tuple(rng.sample(each.tasks, len(each.tasks))), each.requires)
            for name, each in shuffled(made.groups).items()
        },
    )
    with bounded(NARROWER):
        assert rows_of(made) == rows_of(other)


@pytest.mark.parametrize("count", [97, 1_000])
def test_many_before_many_go_through_one_join(count: int) -> None:
    first, second = [f"a{number}" for number in range(count)], [f"b{number}" for number in range(count)]
    made = document(dict.fromkeys([*first, *second], ()), {"first": (first, ()), "second": (second, ("first",))})
    laid = whole(made)
    rows = {row.key: row for row in laid.rows()}
    join = join_reference(group_owner(id_of("first")), "done")
    assert listed(rows[row_key(id_of("b0"))], "requires") == [join]
    assert laid.edges == made.edges == 2 * count
    for row in rows.values():
        if "dependents" in row.columns:
            assert len(listed(row, "requires")) <= limits.REQUIRES_MAX
            assert len(listed(row, "dependents")) <= limits.DEPENDENTS_MAX
    relays = [key for key in rows if is_relay(key) and group_of(key)]
    assert len(relays) <= 1 + 2 * (count // limits.DEPENDENTS_MAX + 2) + 4
    assert behind(rows, [join], "requires") == set(map(id_of, first))
    assert behind(rows, listed(rows[row_key(id_of("a0"))], "dependents"), "dependents") == set(map(id_of, second))


def test_the_row_of_a_group_says_who_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_MEMBERS_OF_ROW", 120)
    labels = [f"a{number}" for number in range(250)]
    made = document(
        {**dict.fromkeys(labels, ()), "b": ("all",)},
        {"all": (["half", *labels[125:]], ()), "half": (labels[:125], ())},
    )
    rows = {row.key: row for row in whole(made).rows()}
    key = group_key(id_of("all"))
    parts = [row for each, row in sorted(rows.items()) if each.startswith(key)]
    assert [part.key for part in parts] == [key, f"{key}:0001", f"{key}:0002"]
    assert members_of([Row(part.key, "", part.columns) for part in parts]) == tuple(sorted(map(id_of, labels)))
    assert (parts[0].columns["label"], parts[0].columns["tasks"]) == ("all", 250)
    assert parts[0].columns["join"] == join_reference(group_owner(id_of("all")), "done")
    half = rows[group_key(id_of("half"))]
    assert json.loads(str(half.columns["groups"])) == ["all"]
    assert json.loads(str(rows[row_key(id_of("a0"))].columns["groups"])) == ["all", "half"]
    assert "groups" not in rows[row_key(id_of("b"))].columns


def test_an_extension_requires_groups_of_the_graph() -> None:
    """Through the join that the graph has, or one of its own; a group of one is that one."""
    nodes = {label: TaskNode(label, ("joined", "bare", "single")) for label in ("x", "y", "z")}
    join = join_reference(group_owner(id_of("joined")), "done")
    known = {
        "joined": KnownGroup(join, (id_of("p"), id_of("q"))),
        "bare": KnownGroup("", (id_of("u"), id_of("v"))),
        "single": KnownGroup("", (id_of("w"),)),
    }
    laid = lay_out("g", nodes, stamp="r", now=NOW, request="r", known=known)
    rows = {row.key: row for row in laid.rows}
    own = join_reference(group_owner(id_of("bare")), "r-done")
    for label in nodes:
        assert listed(rows[row_key(id_of(label))], "requires") == [join, own, id_of("w")]
    assert sorted(listed(rows[own], "requires")) == sorted([id_of("u"), id_of("v")])
    assert {link.task_id: set(link.references) for link in laid.links} == {
        join: set(map(id_of, nodes)),
        id_of("u"): {own},
        id_of("v"): {own},
        id_of("w"): set(map(id_of, nodes)),
    }
    assert laid.edges == 3 * 3 + 2


def test_plain_documents_are_laid_out_as_before() -> None:
    made = document({"a": (), "b": ("a",)}, {})
    rows = {row.key: row for row in whole(made).rows()}
    assert set(rows) == {row_key(id_of("a")), row_key(id_of("b"))}
    assert not [row for row in rows.values() if "groups" in row.columns]


def test_references() -> None:
    group, task = group_owner(id_of("bulk")), id_of("a")
    done, piece = join_reference(group, "done"), join_reference(group, "done-12")
    later, later_piece = join_reference(group, "my-2-done"), join_reference(group, "my-2-done-0")
    forks = [fork_reference(done, "0-3"), fork_reference(later, "r-1")]
    assert [owner_of(each) for each in (done, piece, later, later_piece, *forks)] == [
        done, done, later, later, done, later,
    ]  # fmt: skip
    assert [edge_name_of(each) for each in (done, piece, *forks)] == [done, piece, done, later]
    assert [is_shared(each) for each in (done, later, piece, later_piece, *forks, task)] == [True, True, *[False] * 5]
    assert [is_piece(each) for each in (done, piece, forks[0], task, join_reference(task, "0"))] == [
        False, True, True, False, True,
    ]  # fmt: skip
    assert [group_of(each) for each in (done, piece, *forks)] == [id_of("bulk")] * 4
    assert [group_of(each) for each in (task, GRAPH, join_reference(task, "0"), fork_reference(task, "0-0"))] == [
        ""
    ] * 4
    assert owner_of(fork_reference(task, "0-0")) == owner_of(join_reference(task, "1")) == task
