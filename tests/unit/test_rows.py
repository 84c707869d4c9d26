"""Working copies of rows: what is read off them, what is set, what is taken back, and which differences are written."""

import gc
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from taskgraph.model.errors import IntegrityError
from taskgraph.protocol.rows import Draft, NeedRows, NewerSchema, View
from taskgraph.storage.tables import Insert, Merge, Replace, Row

TIME = datetime(2026, 1, 1, tzinfo=UTC)


def draft(**columns: Any) -> Draft:
    return Draft("task:x", columns, "e")


def view(*rows: Row, absent: tuple[str, ...] = ()) -> View:
    return View({**{row.key: row for row in rows}, **dict.fromkeys(absent)})


def row(key: str, **columns: Any) -> Row:
    return Row(key, f"e-{key}", columns)


# --- columns ---------------------------------------------------------------------------------------------------


def test_a_column_that_is_missing_is_empty() -> None:
    empty = draft()
    assert empty.value("x") is None
    assert empty.text("x") == ""
    assert empty.integer("x") == 0
    assert empty.time("x") is None
    assert empty.ids("x") == []


def test_what_was_set_hides_what_was_read() -> None:
    made = draft(text="a", number=1, time=TIME, ids='["a"]')
    assert (made.text("text"), made.integer("number"), made.time("time"), made.ids("ids")) == ("a", 1, TIME, ["a"])
    later = TIME.replace(hour=1)
    for name, value in (("text", ""), ("number", 0), ("time", later), ("ids", "[]")):
        made.set(name, value)
    assert (made.text("text"), made.integer("number"), made.time("time"), made.ids("ids")) == ("", 0, later, [])
    assert made.columns == {"text": "a", "number": 1, "time": TIME, "ids": '["a"]'}
    assert made.changed == {"text": "", "number": 0, "time": later, "ids": "[]"}


def test_a_text_may_be_read_of_any_column() -> None:
    assert draft(x=7).text("x") == "7"


@pytest.mark.parametrize("value", ["7", True, 7.0, TIME])
def test_a_number_is_a_whole_number(value: object) -> None:
    with pytest.raises(IntegrityError) as caught:
        draft(x=value).integer("x")
    assert str(caught.value) == f"row task:x: column x should hold a whole number and holds {value!r}"


@pytest.mark.parametrize("value", ["2026-01-01", 7, True])
def test_a_time_is_a_time(value: object) -> None:
    with pytest.raises(IntegrityError) as caught:
        draft(x=value).time("x")
    assert str(caught.value) == f"row task:x: column x should hold a time and holds {value!r}"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{", "is no JSON list"),
        ("{}", "is no list of references"),
        ('"x"', "is no list of references"),
        ("[1]", "is no list of references"),
        ('["a", 1]', "is no list of references"),
        ('["a", null]', "is no list of references"),
    ],
)
def test_references_are_a_list_of_texts(value: str, words: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        draft(x=value).ids("x")
    assert str(caught.value) == f"row task:x: column x {words}"


def test_references_are_set_as_the_store_holds_them() -> None:
    made = draft(x='["a"]')
    made.set_ids("x", ("b", "c"))
    assert made.changed == {"x": '["b","c"]'}
    assert made.ids("x") == ["b", "c"]
    made.set("x", '["d"]')
    assert made.ids("x") == ["d"]


def test_lists_that_were_set_can_be_taken_back() -> None:
    rows = view(row("a", x='["a"]'))
    made = rows.get("a")
    before = rows.mark()
    made.set("x", '["c"]')
    between = rows.mark()
    made.set_ids("x", ["b"])
    rows.rollback(between)
    assert made.ids("x") == ["c"]
    rows.rollback(before)
    assert made.ids("x") == ["a"]
    assert made.changed == {}


# --- rows ------------------------------------------------------------------------------------------------------


def test_rows_that_were_not_loaded_are_asked_for_together() -> None:
    rows = view(row("a"), absent=("nobody",))
    rows.require(("a", "nobody"))
    rows.insert(Insert("new", {}))
    rows.require(("new",))
    with pytest.raises(NeedRows) as caught:
        rows.require(("a", "b", "new", "c", "nobody"))
    assert caught.value.keys == {"b", "c"}
    with pytest.raises(NeedRows) as caught:
        rows.find("b")
    assert caught.value.keys == {"b"}
    assert [rows.knows(key) for key in ("a", "nobody", "new", "b")] == [True, True, True, False]


def test_a_row_that_does_not_exist_is_known_to_be_none_and_nobody_decides_on_it() -> None:
    rows = view(absent=("task:x",))
    assert rows.find("task:x") is None
    for read in (lambda: rows.get("task:x"), lambda: rows.named("x")):
        with pytest.raises(IntegrityError) as caught:
            read()
        assert str(caught.value) == "row task:x is missing, though another row names it"


def test_there_is_one_working_copy_of_a_row() -> None:
    rows = view(row("task:x", label="a"))
    assert rows.get("task:x") is rows.named("x") is rows.find("task:x")
    assert (rows.get("task:x").key, rows.get("task:x").etag) == ("task:x", "e-task:x")
    assert rows.get("task:x").text("label") == "a"


@pytest.mark.parametrize(("schema", "known"), [(None, True), (0, True), (3, True), (4, True), ("5", True), (5, False)])
def test_a_row_of_a_newer_version_is_left_to_it(schema: object, known: bool) -> None:
    rows = view(row("a", **({} if schema is None else {"schema": schema})))
    if known:
        assert rows.get("a").key == "a"
        return
    with pytest.raises(NewerSchema) as caught:
        rows.find("a")
    assert str(caught.value) == "row a has schema 5; this version of taskgraph knows 4"


# --- what is written -----------------------------------------------------------------------------------------------


def written(rows: View) -> dict[str, Mapping[str, object]]:
    return {change.key: change.columns for change in rows.changes("op") if isinstance(change, Insert | Merge)}


def test_only_differences_are_written_under_the_etag_that_was_read() -> None:
    rows = view(row("a", x=1, y=2, unknown="kept"), row("b", x=1), row("c", x=1))
    rows.get("a").set("x", 5)
    rows.get("a").set("y", 2)
    rows.get("b").set("x", 1)
    rows.get("c")
    assert [each.key for each in rows.changed()] == ["a"]
    assert rows.changes("op") == [Merge("a", "e-a", {"x": 5, "operation": "op"})]


def test_a_new_row_is_inserted_with_all_that_was_set_on_it() -> None:
    rows = view()
    made = rows.insert(Insert("a", {"x": 1}))
    assert made is rows.get("a")
    made.set("y", 2)
    assert rows.changes("op") == [Insert("a", {"x": 1, "y": 2, "operation": "op"})]
    assert [each.key for each in rows.changed()] == ["a"]


def test_what_was_inserted_is_read_like_any_row() -> None:
    rows = view()
    columns = {"ids": '["a"]', "state": "pending"}
    made = rows.insert(Insert("a", columns))
    assert (made.ids("ids"), made.text("state"), made.etag) == (["a"], "pending", None)
    assert (made.text("missing"), made.integer("missing"), made.ids("more")) == ("", 0, [])
    made.set("state", "completed")
    assert columns["state"] == "pending", "the columns that were handed in are their owner's"


def test_what_was_set_since_a_mark_is_forgotten() -> None:
    rows = view(row("a", x=0), row("b", x=0), row("c", ids='["z"]'))
    rows.get("a").set("x", 1)
    rows.insert(Insert("kept", {"x": 1}))
    rows.get("c").set_ids("ids", ["y"])
    mark = rows.mark()
    rows.get("a").set("x", 2)
    rows.get("a").set("y", 2)
    rows.get("b").set("x", 2)
    rows.get("c").set_ids("ids", [])
    rows.get("kept").set("x", 2)
    rows.insert(Insert("dropped", {}))
    rows.rollback(mark)
    assert written(rows) == {
        "a": {"x": 1, "operation": "op"},
        "kept": {"x": 1, "operation": "op"},
        "c": {"ids": '["y"]', "operation": "op"},
    }
    assert not rows.knows("dropped")
    assert rows.get("c").ids("ids") == ["y"]
    assert rows.get("b").integer("x") == 0


def test_a_mark_stands_for_a_moment_and_may_be_used_again() -> None:
    rows = view(row("a", x=0))
    rows.get("a").set("x", 1)
    mark = rows.mark()
    for value in (2, 3):
        rows.get("a").set("x", value)
        rows.rollback(mark)
        assert rows.get("a").integer("x") == 1


def test_taking_everything_back_leaves_nothing_to_write() -> None:
    rows = view(row("a", x=0))
    mark = rows.mark()
    rows.get("a").set("x", 1)
    rows.insert(Insert("b", {}))
    rows.rollback(mark)
    assert rows.changed() == []
    assert rows.changes("op") == []


def test_what_an_item_has_set_may_be_taken_off_by_the_next() -> None:
    rows = view(row("a", x=1, y=2))
    rows.get("a").set("x", 5)
    rows.get("a").set("z", 6)
    mark = rows.mark()
    rows.clear("a", ["x", "z"])
    assert (rows.get("a").value("x"), rows.get("a").value("z"), rows.get("a").value("y")) == (None, None, 2)
    (change,) = rows.changes("op")
    assert isinstance(change, Replace)
    assert change.columns == {"y": 2, "operation": "op"}
    rows.rollback(mark)
    assert (rows.get("a").value("x"), rows.get("a").value("z")) == (5, 6)


def test_a_view_that_is_let_go_leaves_nothing_to_the_search_for_garbage() -> None:
    """A decision has thousands of copies; in a circle they stay until they are looked for."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        made = view(row("a", state="pending", requiresLeft='["x","y"]'), row("b"), row("c", x=1))
        gc.collect()
        made.get("a").set("state", "running")
        made.get("a").cross_off("requiresLeft", "x")
        mark = made.mark()
        made.insert(Insert("n", {"x": 1})).set("x", 2)
        made.delete("b")
        made.clear("c", ["x"])
        made.rollback(mark)
        assert made.get("a").changed == {"state": "running", "requiresLeft": '["y"]'}
        assert len(made.changes("o")) == 1
        del made
        assert gc.collect() == 0
    finally:
        if was_on:
            gc.enable()
