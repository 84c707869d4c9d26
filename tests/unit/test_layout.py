"""Documents as rows: bounded degree, edges both ways, an order in which they can be written, and nothing by chance."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from taskgraph.documents.canonical import node_digest
from taskgraph.documents.graph_algorithms import distances, levels
from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.model import limits
from taskgraph.model.ids import GRAPH, edge_name_of, owner_of, row_key, task_id_of, task_ids_of
from taskgraph.model.schemas import is_date_time
from taskgraph.model.utf16 import utf16_units
from taskgraph.protocol.definitions import SCHEMA, gathered, split_text, spread
from taskgraph.protocol.layout import GRAPH_DIRECT_MAX, GraphLayout, Layout, lay_out, name_mapping_rows
from taskgraph.protocol.wiring import relay_row
from taskgraph.storage.checks import check_columns, sent_bytes
from taskgraph.storage.tables import Insert

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Edges = Mapping[str, Sequence[str]]


def nodes(requires: Edges) -> dict[str, TaskNode]:
    return {label: TaskNode(label, tuple(wanted)) for label, wanted in requires.items()}


def laid(requires: Edges, *, stamp: str = "0", direct: int = GRAPH_DIRECT_MAX, request: str = "") -> Layout:
    return lay_out("g", nodes(requires), stamp=stamp, now=NOW, direct_leaves_max=direct, request=request)


def rows_of(layout: Layout) -> dict[str, Insert]:
    rows = [*([layout.top] if layout.top else []), *layout.rows]
    made = {row.key: row for row in rows}
    assert len(made) == len(rows), "a row twice"
    return made


def listed(row: Insert, column: str) -> list[str]:
    return list(json.loads(str(row.columns[column])))


def behind(rows: Mapping[str, Insert], references: Sequence[str], column: str, relays: str) -> set[str]:
    """What stands behind references, relays of one kind replaced by what their column holds; each exactly once."""
    found: list[str] = []
    todo = list(references)
    while todo:
        reference = todo.pop()
        if reference.startswith(relays):
            todo += listed(rows[reference], column)
        else:
            found.append(reference)
    assert len(found) == len(set(found)), "an edge twice"
    return set(found)


def whole(requires: Edges, *, by_key: bool = True) -> GraphLayout:
    made = nodes(requires)
    digests = {label: node_digest(node) for label, node in made.items()}
    return GraphLayout("g", made, now=NOW, digests=digests, by_key=by_key)


def check_whole(requires: Edges, layout: GraphLayout) -> None:
    """Everything that the layout of a whole graph promises."""
    rows = list(layout.rows())
    keys = [row.key for row in rows]
    distance = {row_key(task_id_of("g", label)): far for label, far in levels(requires).items()}
    assert keys == sorted(keys, key=lambda key: (distance.get(key, -1), key)), "what runs together lies together"
    assert len(rows) == layout.count
    assert set(layout.roots) == {(task_id_of("g", label), "default") for label in requires if not requires[label]}
    assert layout.cut == any(key.startswith(("join:", "fork:")) for key in keys if key != "join:task-graph:0")
    assert {row.columns["label"]: row.columns["digest"] for row in rows if "digest" in row.columns} == {
        label: node_digest(node) for label, node in nodes(requires).items()
    }
    tops = [row for row in rows if row.key == "join:task-graph:0"]
    as_one = Layout(
        tuple(row for row in rows if row not in tops),
        tops[0] if tops else None,
        layout.leaves,
        (),
        layout.mapping,
    )
    check(requires, as_one, in_order=False)


def check(requires: Edges, layout: Layout, *, direct: int = GRAPH_DIRECT_MAX, in_order: bool = True) -> None:
    """Everything that a layout promises."""
    rows = rows_of(layout)
    own = {label: task_id_of("g", label) for label in requires}
    assert layout.mapping == own
    inside = set(own.values())
    tasks = {label: rows[row_key(task_id)] for label, task_id in own.items()}
    # logical edges, both ways
    wanted_by: dict[str, set[str]] = {task_id: set() for task_id in inside}
    for label, wanted in requires.items():
        ids = {task_id_of("g", each) for each in wanted}
        assert behind(rows, listed(tasks[label], "requires"), "requires", "join:") == ids
        assert tasks[label].columns["requires"] == tasks[label].columns["requiresLeft"]
        for each in ids & inside:
            wanted_by[each].add(own[label])
    leaves = {task_id for task_id, told in wanted_by.items() if not told}
    for label, task_id in own.items():
        told = behind(rows, listed(tasks[label], "dependents"), "dependents", "fork:")
        assert {owner_of(each) for each in told} == (wanted_by[task_id] or {GRAPH})
    assert behind(rows, layout.leaves, "requires", "join:") == leaves
    # degree
    for row in rows.values():
        if "requires" in row.columns:
            assert len(listed(row, "requires")) <= limits.REQUIRES_MAX, row.key
            assert len(listed(row, "dependents")) <= limits.DEPENDENTS_MAX, row.key
    assert len(layout.leaves) <= max(direct, 1)
    assert (layout.top is None) == (len(leaves) <= direct)
    # whoever names a row as requirement is named by it, under the name by which it will be counted down
    for key, row in rows.items():
        for each in listed(row, "dependents") if "dependents" in row.columns else ():
            if each != GRAPH:
                assert edge_name_of(key.removeprefix("task:")) in listed(rows[row_key(each)], "requires"), (key, each)
    # dependents before what they require
    position = {row.key: number for number, row in enumerate(layout.rows)}
    for row in layout.rows:
        for each in listed(row, "dependents") if "dependents" in row.columns else ():
            if in_order and each != GRAPH and row_key(each) in position:
                assert position[row_key(each)] < position[row.key], (row.key, each)
    # states
    roots = {own[label] for label, wanted in requires.items() if not wanted}
    for row in tasks.values():
        pending = row.key.removeprefix("task:") in roots
        assert row.columns["state"] == ("pending" if pending else "unscheduled")
        assert ("pendingSince" in row.columns) == pending
    # what is required and is not in the set
    outside: dict[str, set[str]] = {}
    for label, wanted in requires.items():
        for each in wanted:
            if each not in requires:
                outside.setdefault(task_id_of("g", each), set()).add(own[label])
    assert {link.task_id: {owner_of(each) for each in link.references} for link in layout.links} == outside
    for link in layout.links:
        for each in link.references:
            assert link.task_id in listed(rows[row_key(each)], "requires")


# --- shapes ----------------------------------------------------------------------------------------------------


def fan_in(count: int) -> dict[str, list[str]]:
    return {**{f"a{n}": [] for n in range(count)}, "z": [f"a{n}" for n in range(count)]}


def fan_out(count: int) -> dict[str, list[str]]:
    return {"a": [], **{f"b{n}": ["a"] for n in range(count)}}


def layers(width: int) -> dict[str, list[str]]:
    first, second = [f"a{n}" for n in range(width)], [f"b{n}" for n in range(width)]
    return {**{label: [] for label in first}, **dict.fromkeys(second, first)}


SHAPES = {
    "one": {"a": []},
    "chain": {"a": [], "b": ["a"], "c": ["b"]},
    "diamond": {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]},
    **{f"fan-in-{count}": fan_in(count) for count in (95, 96, 97, 192, 193, 9_300)},
    **{f"fan-out-{count}": fan_out(count) for count in (89, 90, 91, 180, 181, 8_200)},
    **{f"leaves-{count}": {f"a{n}": [] for n in range(count)} for count in (48, 49, 96, 97, 9_217)},
    "layers-100": layers(100),
    "layers-200": layers(200),
    "outside": {"x": ["old"], "y": ["x", "old", "older"], "z": []},
    "wide-outside": {"x": [f"old{n}" for n in range(200)], **{f"y{n}": ["old0"] for n in range(200)}},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_distances_are_levels(shape: str) -> None:
    requires: Any = SHAPES[shape]
    for each in (requires, dict(reversed(requires.items())), {**requires, "x": ["y"], "z": ["x"]}):
        assert distances(each) == levels(each)


@given(st.text(), st.lists(st.text()))
def test_many_task_ids_are_those_of_their_labels(graph_id: str, labels: list[str]) -> None:
    assert task_ids_of(graph_id, labels) == [task_id_of(graph_id, label) for label in labels]


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape: str) -> None:
    check(SHAPES[shape], laid(SHAPES[shape]))


INSIDE = [name for name in SHAPES if "outside" not in name]


@pytest.mark.parametrize("shape", INSIDE)
@pytest.mark.parametrize("by_key", [True, False])
def test_whole_graphs(shape: str, by_key: bool) -> None:
    check_whole(SHAPES[shape], whole(SHAPES[shape], by_key=by_key))


@pytest.mark.parametrize("shape", INSIDE)
def test_in_the_order_of_the_document_a_whole_graph_is_what_older_versions_wrote(shape: str) -> None:
    layout = laid(SHAPES[shape])
    assert rows_of(layout) == {row.key: row for row in whole(SHAPES[shape], by_key=False).rows()}


def test_what_one_relay_names_lies_side_by_side_in_the_table() -> None:
    """So that it can be read by a short range, without what belongs to other relays."""
    wide = {**fan_out(1_000), **{f"c{n}": [f"b{m}" for m in range(200)] for n in range(150)}}
    rows = {row.key: row for row in whole(wide).rows()}
    relays = {key: row for key, row in rows.items() if key.startswith(("join:", "fork:"))}
    named: dict[tuple[str, str], list[list[str]]] = {}
    for key, row in relays.items():
        kind, owner, _ = key.split(":")
        keys = [row_key(each) for each in listed(row, "requires" if kind == "join" else "dependents")]
        if not any(each.startswith(f"{kind}:{owner}:") for each in keys):  # the lowest of a tree
            named.setdefault((kind, owner), []).append(keys)
    assert len(named) > 150
    for lists in named.values():
        lists.sort()
        everything = [key for keys in lists for key in keys]
        assert everything == sorted(everything)


@pytest.mark.parametrize("shape", ["fan", "layers", "leaves"])
def test_a_hundred_times_as_many_edges_take_as_many_bytes_each(shape: str) -> None:
    """Nothing in a row grows with the graph."""

    def bytes_of_each(size: int) -> float:
        requires: Edges
        match shape:
            case "fan":
                requires = {**fan_out(size), "z": [f"b{n}" for n in range(size)]}
            case "layers":
                requires = {f"a{n}": [f"a{m}" for m in (n - 9, n - 31, n - 40) if m >= 0] for n in range(size)}
            case _:
                requires = {f"a{n}": [] for n in range(size)}
        size_all = sum(len(row.key) + sent_bytes(row.columns) for row in whole(requires).rows())
        return size_all / (sum(map(len, requires.values())) or size)

    assert bytes_of_each(20_000) == pytest.approx(bytes_of_each(200), rel=0.2)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("direct", [0, 1, 10])
def test_shapes_whose_leaves_are_gathered(shape: str, direct: int) -> None:
    """As in an extension: the graph row can name only so many more."""
    check(SHAPES[shape], laid(SHAPES[shape], stamp="r", direct=direct, request="r"), direct=direct)


@pytest.mark.parametrize(("count", "joins"), [(96, 0), (97, 2), (192, 2), (193, 3), (9_216, 96), (9_217, 97 + 2)])
def test_the_number_of_joins_is_the_least(count: int, joins: int) -> None:
    keys = [key for key in rows_of(laid(fan_in(count))) if key.startswith("join:")]
    assert len(keys) == joins


@pytest.mark.parametrize("count", [97, 150, 193, 1_000])
def test_joins_share_evenly(count: int) -> None:
    """None is nearly empty, so none is rewritten much more often than the others."""
    layout = laid(fan_in(count))
    sizes = [len(listed(row, "requires")) for key, row in rows_of(layout).items() if key.startswith("join:")]
    assert max(sizes) - min(sizes) <= len(sizes)


@st.composite
def dags(draw: st.DrawFn) -> dict[str, list[str]]:
    """Random graphs: sparse ones, and some with a task that very many require, or that requires very many."""
    count = draw(st.integers(1, 40))
    names = [f"t{number}" for number in range(count)]
    rng = draw(st.randoms(use_true_random=False))
    density = draw(st.sampled_from([0.02, 0.1, 0.5, 1.0]))
    requires = {
        name: [other for other in names[:number] if rng.random() < density] for number, name in enumerate(names)
    }
    wide = draw(st.sampled_from([0, 0, 91, 97, 200]))
    if wide:
        hub = draw(st.sampled_from(names))
        spokes = [f"w{number}" for number in range(wide)]
        requires |= {spoke: [hub] for spoke in spokes}
        if draw(st.booleans()):
            requires["all"] = [*spokes, *draw(st.lists(st.sampled_from(names), unique=True, max_size=5))]
    if draw(st.booleans()):
        for name in draw(st.lists(st.sampled_from(names), unique=True, max_size=5)):
            requires[name] = [*requires[name], f"old{rng.randrange(3)}"]
    order = list(requires)
    rng.shuffle(order)
    return {name: requires[name] for name in order}


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(dags(), st.sampled_from([0, 5, GRAPH_DIRECT_MAX]))
@example({"a": []}, 0)
def test_random_graphs(requires: dict[str, list[str]], direct: int) -> None:
    layout = laid(requires, direct=direct)
    check(requires, layout, direct=direct)
    assert laid(requires, direct=direct) == layout, "the same document gives the same rows"
    if all(requires.keys() >= set(wanted) for wanted in requires.values()):
        again = whole(requires)
        check_whole(requires, again)
        assert list(again.rows()) == list(again.rows()) == list(whole(requires).rows())


def test_the_order_of_a_document_does_not_change_what_is_required() -> None:
    requires = layers(30)
    backwards = dict(reversed(list(requires.items())))
    first, second = rows_of(laid(requires)), rows_of(laid(backwards))
    assert first.keys() == second.keys()
    for key, row in first.items():
        for column in ("requires", "dependents"):
            assert sorted(listed(row, column)) == sorted(listed(second[key], column))


def test_relays_of_two_requests_are_strangers() -> None:
    """Two extensions that gather leaves, or spread the dependents of the same old task, never share a row."""
    requires: Edges = {f"a{n}": [] for n in range(200)}
    first, second = laid(requires, stamp="r", direct=0), laid(requires, stamp="s", direct=0)
    relays = [{key for key in rows_of(each) if not key.startswith("task:")} for each in (first, second)]
    assert relays[0]
    assert not relays[0] & relays[1]


@pytest.mark.parametrize("make", [laid, whole])
@pytest.mark.parametrize("requires", [{"a": ["b"], "b": ["a"]}, {"a": ["a"]}])
def test_a_cycle_is_no_layout(make: Callable[[Edges], object], requires: Edges) -> None:
    with pytest.raises(ValueError, match="cycle"):
        make(requires)


def test_a_long_chain_needs_no_recursion() -> None:
    requires = {f"a{n}": [f"a{n - 1}"] if n else [] for n in range(20_000)}
    assert len(laid(requires).rows) == 20_000


# --- one row ---------------------------------------------------------------------------------------------------


def test_the_columns_of_a_task() -> None:
    task = {
        "routing": "r",
        "target": "gpu",
        "deadline": "2030-01-31T12:00:00+02:00",
        "payload": {"x": {"$subs": "taskId:b"}, "ü": 1},
    }
    layout = lay_out(
        "g",
        {"a b/ü": TaskNode("a b/ü", ("b",), 3, task), "b": TaskNode("b")},
        stamp="0",
        now=NOW,
        request="r",
    )
    columns = rows_of(layout)[row_key(task_id_of("g", "a b/ü"))].columns
    assert {name: columns[name] for name in ("schema", "label", "state", "run", "target", "routing", "request")} == {
        "schema": 1,
        "label": "a b/ü",
        "state": "unscheduled",
        "run": 0,
        "target": "gpu",
        "routing": "r",
        "request": "r",
    }
    assert (columns["rerunsAllowed"], columns["rerunsLeft"], columns["retriesLeft"]) == (3, 3, limits.RETRIES_DEFAULT)
    assert columns["created"] == NOW
    assert columns["deadline"] == datetime(2030, 1, 31, 10, tzinfo=UTC)
    assert json.loads(str(columns["task"]))["payload"] == {"x": task_id_of("g", "b"), "ü": 1}
    assert "request" not in rows_of(laid({"a": []}))[row_key(task_id_of("g", "a"))].columns


@pytest.mark.parametrize(
    ("deadline", "time"),
    [
        ("2030-01-31t12:00:00.25z", datetime(2030, 1, 31, 12, 0, 0, 250_000, UTC)),
        ("2030-06-30T23:59:60.9Z", datetime(2030, 6, 30, 23, 59, 59, 999_999, UTC)),
        ("0017-01-01T00:00:00Z", datetime(1602, 1, 1, tzinfo=UTC)),
        ("1601-12-31T23:59:59-01:00", datetime(1602, 1, 1, 0, 59, 59, tzinfo=UTC)),
    ],
)
def test_every_deadline_that_a_document_may_have_becomes_a_time_that_every_store_keeps(
    deadline: str, time: datetime
) -> None:
    assert is_date_time(deadline)
    (row,) = lay_out("g", {"a": TaskNode("a", (), 0, {"deadline": deadline})}, stamp="0", now=NOW).rows
    assert row.columns["deadline"] == time
    check_columns(row.key, row.columns)


@pytest.mark.parametrize("text", ["x", "ü", "\U0001f600"])
@pytest.mark.parametrize("units", [100, 3_900, 4_100, 64_000, 400_000])
def test_a_long_definition_gets_a_row_of_its_own(text: str, units: int) -> None:
    """The row that every transition touches stays small; nothing is past what a store takes."""
    count = units // utf16_units(text)
    layout = lay_out("g", {"a": TaskNode("a", (), 0, {"payload": {"x": text * count}})}, stamp="0", now=NOW)
    rows = rows_of(layout)
    task = rows[row_key(task_id_of("g", "a"))]
    if units < limits.INLINE_DEFINITION_CHARS_MAX - 50:
        assert len(rows) == 1
        definition = str(task.columns["task"])
    else:
        long = rows[f"definition:{task_id_of('g', 'a')}"]
        assert "task" not in task.columns
        definition = gathered(long.columns, "task")
        assert layout.rows.index(long) < layout.rows.index(task), "whoever can claim the task can read it"
    assert json.loads(definition) == {"payload": {"x": text * count}}
    for row in rows.values():
        units_of_row = 0
        for value in row.columns.values():
            if isinstance(value, str):
                assert utf16_units(value) <= limits.PROPERTY_CHARS_MAX
                units_of_row += utf16_units(value)
        assert units_of_row <= limits.ROW_CHARS_MAX
    assert sum(len(str(value)) for value in task.columns.values()) < 6_000


def test_the_widest_row_is_small() -> None:
    """96 requirements and 90 dependents: what one commit of a hundred such rows takes with ease."""
    requires = {
        **{f"a{n}": [] for n in range(96)},
        "hub": [f"a{n}" for n in range(96)],
        **{f"b{n}": ["hub"] for n in range(90)},
    }
    hub = rows_of(laid(requires))[row_key(task_id_of("g", "hub"))]
    size = sum(len(name) + len(str(value)) for name, value in hub.columns.items())
    assert size < 10_000
    assert 2 * size * limits.COMMIT_CHANGES_MAX < limits.COMMIT_BYTES_MAX


@pytest.mark.parametrize("completed", [False, True])
def test_a_fork_of_a_task_that_got_more_dependents(completed: bool) -> None:
    task_id = task_id_of("g", "a")
    row = relay_row(f"fork:{task_id}:r-0", [task_id], ["x", "y"], SCHEMA, resolved=completed)
    assert row.columns["state"] == ("completed" if completed else "unscheduled")
    assert listed(row, "requiresLeft") == ([] if completed else [task_id])
    assert listed(row, "dependents") == ["x", "y"]


# --- texts over columns ------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("aü€\U0001f600"), max_size=300), st.integers(2, 40))
def test_splitting_a_text(text: str, units_max: int) -> None:
    pieces = split_text(text, units_max)
    assert "".join(pieces) == text
    assert pieces
    assert all(utf16_units(piece) <= units_max for piece in pieces)
    assert utf16_units(text) == len(text.encode("utf-16-le")) // 2


@pytest.mark.parametrize("count", [0, 1, 31_999, 32_000, 32_001, 100_000])
@pytest.mark.parametrize("character", ["x", "\U0001f600"])
def test_spreading_and_gathering(character: str, count: int) -> None:
    text = character * count
    columns = spread("task", text)
    assert gathered(columns, "task") == text
    assert list(columns)[:2] == ["task", "task2"][: len(columns)]
    assert gathered({}, "task") == ""
    assert gathered({**columns, "taskOther": "no"}, "task") == text


@pytest.mark.parametrize("count", [0, 1, 2_000, 20_000])
@pytest.mark.parametrize("letter", ["x", "ü", '"', "\U0001f600"])
def test_names_over_as_many_rows_as_it_takes(letter: str, count: int) -> None:
    mapping = {f"{letter * 40}{number}": task_id_of("g", str(number)) for number in range(count)}
    rows = name_mapping_rows(mapping, "0")
    merged: dict[str, str] = {}
    for number, row in enumerate(rows):
        assert row.key == f"name-mapping:0:{number:04}"
        part = json.loads(gathered(row.columns, "nameMapping"))
        assert not part.keys() & merged.keys()
        merged |= part
        assert sum(utf16_units(str(value)) for value in row.columns.values()) <= limits.ROW_CHARS_MAX
        assert len(row.columns) <= limits.ROW_COLUMNS_MAX
    assert merged == mapping
    assert (len(rows) > 1) == (count == 20_000)


def test_a_document_is_not_changed() -> None:
    task = {"payload": {"x": {"$subs": "taskId:a"}}}
    document = GraphDocument({"a": TaskNode("a", (), 0, task)})
    lay_out("g", document.tasks, stamp="0", now=NOW)
    assert task == {"payload": {"x": {"$subs": "taskId:a"}}}
