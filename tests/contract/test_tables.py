"""The promises of the port Tables, kept by every store."""

import asyncio
import dataclasses
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum

import pytest

from taskgraph.interfaces import views
from taskgraph.model import limits
from taskgraph.model.columns import Columns, Value
from taskgraph.model.errors import Conflict, TooLarge
from taskgraph.storage.tables import (
    Change,
    Delete,
    Insert,
    Merge,
    Page,
    Range,
    Replace,
    Row,
    Tables,
    TextPage,
    changes_max_of,
    prefix,
    query_all,
    query_text,
)
from tests.conftest import OpenStore


async def put(tables: Tables, partition: str, key: str, columns: Columns) -> str:
    """Insert a row; its etag."""
    [etag] = await tables.commit(partition, [Insert(key, columns)])
    assert etag is not None
    return etag


async def one(tables: Tables, partition: str, key: str) -> Row | None:
    [row] = await tables.get(partition, [key])
    return row


async def keys(tables: Tables, partition: str, rows: Range) -> list[str]:
    return [row.key for row in await query_all(tables, partition, rows)]


# --- a table and its rows ----------------------------------------------------------------------------------------


async def test_what_nobody_has_written_reads_as_empty(store: OpenStore) -> None:
    tables = store.tables
    assert await tables.get("p", ["a", "b"]) == [None, None]
    assert await tables.get("p", []) == []
    assert await tables.query("p", Range()) == Page([]) or (await tables.query("p", Range())).rows == ()
    with pytest.raises(Conflict):
        await tables.commit("p", [Merge("a", "W/\"datetime'2024-01-01T00%3A00%3A00Z'\"", {"n": 1})])


async def test_a_row_is_read_as_it_was_written(store: OpenStore) -> None:
    tables = store.tables
    etag = await put(tables, "p", "a", {"text": "x", "n": 1})
    assert await one(tables, "p", "a") == Row("a", etag, {"text": "x", "n": 1})
    assert await one(tables, "q", "a") is None, "partitions are apart"
    assert await one(store.store.tables(f"{store.prefix}other"), "p", "a") is None, "tables are apart"


async def test_many_keys_are_read_in_the_order_asked(store: OpenStore) -> None:
    tables = store.tables
    await tables.commit("p", [Insert(f"k{n:03}", {"n": n}) for n in range(60)])
    asked = [f"k{n:03}" for n in (59, 3, 77, 3, 0)] + [f"k{n:03}" for n in range(60)]
    found = await tables.get("p", asked)
    assert [row.columns["n"] if row else None for row in found] == [59, 3, None, 3, 0, *range(60)]


async def test_a_merge_changes_what_it_names_and_keeps_the_rest(store: OpenStore) -> None:
    tables = store.tables
    etag = await put(
        tables, "p", "a", {"known": "x", "unknown": "from a newer writer", "when": datetime(2024, 1, 2, tzinfo=UTC)}
    )
    [after] = await tables.commit("p", [Merge("a", etag, {"known": 7, "new": True})])
    row = await one(tables, "p", "a")
    assert row == Row(
        "a",
        str(after),
        {"known": 7, "unknown": "from a newer writer", "when": datetime(2024, 1, 2, tzinfo=UTC), "new": True},
    )


async def test_an_empty_merge_gives_a_new_etag(store: OpenStore) -> None:
    tables = store.tables
    etag = await put(tables, "p", "a", {"n": 1})
    [after] = await tables.commit("p", [Merge("a", etag, {})])
    assert after != etag
    assert await one(tables, "p", "a") == Row("a", str(after), {"n": 1})


async def test_a_replace_leaves_nothing_of_what_was(store: OpenStore) -> None:
    tables = store.tables
    etag = await put(tables, "p", "a", {"n": 1, "text": "old", "gone": True})
    [after] = await tables.commit("p", [Replace("a", etag, {"text": "new"})])
    assert after != etag
    assert await one(tables, "p", "a") == Row("a", str(after), {"text": "new"})
    [empty, _] = await tables.commit("p", [Replace("a", str(after), {}), Insert("b", {"n": 1})])
    assert await one(tables, "p", "a") == Row("a", str(empty), {})


async def test_a_delete_removes_the_row(store: OpenStore) -> None:
    tables = store.tables
    etag = await put(tables, "p", "a", {"n": 1})
    assert await tables.commit("p", [Delete("a", etag)]) == [None]
    assert await one(tables, "p", "a") is None


async def test_a_commit_gives_the_etags_in_order(store: OpenStore) -> None:
    tables = store.tables
    gone, kept = await put(tables, "p", "gone", {}), await put(tables, "p", "kept", {"n": 1})
    etags = await tables.commit(
        "p", [Insert("z", {"n": 0}), Delete("gone", gone), Merge("kept", kept, {"n": 2}), Insert("a", {})]
    )
    assert etags[1] is None
    found = await tables.get("p", ["z", "gone", "kept", "a"])
    assert [row.etag if row else None for row in found] == etags


# --- conditions --------------------------------------------------------------------------------------------------

STALE = "stale"


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("insert of an existing row", Insert("there", {"n": 2})),
        ("merge with a stale etag", Merge("there", STALE, {"n": 2})),
        ("delete with a stale etag", Delete("there", STALE)),
        ("replace with a stale etag", Replace("there", STALE, {"n": 2})),
        ("replace of a missing row", Replace("missing", STALE, {"n": 2})),
        ("merge of a missing row", Merge("missing", STALE, {"n": 2})),
        ("delete of a missing row", Delete("missing", STALE)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("place", ["alone", "in the middle"])
async def test_a_condition_that_does_not_hold_is_a_conflict(
    store: OpenStore, key: str, change: Change, place: str
) -> None:
    tables = store.tables
    stale = await put(tables, "p", "there", {"n": 0})
    [fresh] = await tables.commit("p", [Merge("there", stale, {"n": 1})])
    other = await put(tables, "p", "other", {"n": 0})
    if not isinstance(change, Insert):
        change = dataclasses.replace(change, etag=stale)
    changes: list[Change] = [change]
    if place == "in the middle":
        changes = [Insert("new", {}), Merge("other", other, {"n": 9}), change, Insert("newer", {})]
    with pytest.raises(Conflict) as caught:
        await tables.commit("p", changes)
    assert caught.value.index == changes.index(change)
    assert await query_all(tables, "p", Range()) == [
        Row("other", other, {"n": 0}),
        Row("there", str(fresh), {"n": 1}),
    ], "nothing of a refused commit remains"


async def test_a_hundred_changes_are_one_commit(store: OpenStore) -> None:
    tables = store.tables
    changes = [Insert(f"k{n:03}", {"n": n}) for n in range(limits.COMMIT_CHANGES_MAX)]
    etags = await tables.commit("p", changes)
    assert len(etags) == 100  # of different rows: the service may give two rows the same one
    merges: list[Change] = [Merge(f"k{n:03}", str(etag), {"m": n}) for n, etag in enumerate(etags)]
    merges[50] = Merge("k050", "W/\"datetime'2001-01-01T00%3A00%3A00Z'\"", {"m": 50})
    with pytest.raises(Conflict) as caught:
        await tables.commit("p", merges)
    assert caught.value.index == 50
    rows = await query_all(tables, "p", Range())
    assert [(row.key, row.etag, row.columns) for row in rows] == [
        (f"k{n:03}", etags[n], {"n": n}) for n in range(100)
    ], "one of a hundred failed in the middle: none was applied"


async def test_one_change_too_many_is_refused(store: OpenStore) -> None:
    most = changes_max_of(store.tables)
    assert most >= limits.COMMIT_CHANGES_MAX
    with pytest.raises(TooLarge, match=f"{most + 1} changes; the limit is {most}"):
        await store.tables.commit("p", [Insert(f"k{n}", {}) for n in range(most + 1)])
    assert await store.tables.get("p", ["k0"]) == [None]


async def test_as_many_changes_as_a_store_takes_are_one_commit(store: OpenStore) -> None:
    tables, most = store.tables, changes_max_of(store.tables)
    etags = await tables.commit("p", [Insert(f"k{n:03}", {"n": n}) for n in range(most)])
    mixed: list[Change] = [Merge(f"k{n:03}", str(etag), {"m": n}) for n, etag in enumerate(etags)]
    mixed[1], mixed[-2] = Delete("k001", str(etags[1])), Insert("new", {"n": 0})
    for wrong in (0, most // 2, most - 1):
        changes = list(mixed)
        changes[wrong] = Merge("none", str(etags[wrong]), {})
        with pytest.raises(Conflict) as caught:
            await tables.commit("p", changes)
        assert caught.value.index == wrong
    assert [row.columns for row in await query_all(tables, "p", Range())] == [{"n": n} for n in range(most)]
    assert len(await tables.commit("p", mixed)) == most
    rows = {row.key: row.columns for row in await query_all(tables, "p", Range())}
    assert len(rows) == most
    assert rows["k000"] == {"n": 0, "m": 0}
    assert "k001" not in rows
    assert rows[f"k{most - 2:03}"] == {"n": most - 2}, "it was not named"
    assert rows["new"] == {"n": 0}


@pytest.mark.parametrize("second", [Insert("a", {}), Merge("a", "1", {}), Replace("a", "1", {}), Delete("a", "1")])
async def test_a_row_may_stand_in_a_commit_once(store: OpenStore, second: Change) -> None:
    with pytest.raises(ValueError, match="stands twice"):
        await store.tables.commit("p", [Insert("a", {}), Insert("b", {}), second])
    assert await store.tables.get("p", ["a", "b"]) == [None, None]


async def test_an_etag_never_returns(store: OpenStore) -> None:
    tables = store.tables
    first = await put(tables, "p", "a", {"state": "ready"})
    [second] = await tables.commit("p", [Merge("a", first, {"state": "running"})])
    [third] = await tables.commit("p", [Merge("a", str(second), {"state": "ready"})])
    await tables.commit("p", [Delete("a", str(third))])
    again = await put(tables, "p", "a", {"state": "ready"})
    assert len({first, second, third, again}) == 4
    for old in (first, second, third):  # content came back, the row came back: the etag did not
        with pytest.raises(Conflict):
            await tables.commit("p", [Merge("a", str(old), {"state": "taken"})])
    row = await one(tables, "p", "a")
    assert row == Row("a", again, {"state": "ready"})


async def test_quick_writes_get_different_etags(store: OpenStore) -> None:
    tables = store.tables
    etag: str | None = await put(tables, "p", "a", {"n": 0})
    seen = {etag}
    for n in range(60):
        [etag] = await tables.commit("p", [Merge("a", str(etag), {"n": n})])
        seen.add(etag)
    assert len(seen) == 61


@pytest.mark.parametrize("kind", ["insert", "merge", "delete", "in a commit of three"])
async def test_of_thirty_two_racers_one_wins(store: OpenStore, kind: str) -> None:
    tables = store.tables
    etag = await put(tables, "p", "a", {"n": -1})

    async def race(n: int) -> bool:
        change: dict[str, Sequence[Change]] = {
            "insert": [Insert("b", {"n": n})],
            "merge": [Merge("a", etag, {"n": n})],
            "delete": [Delete("a", etag)],
            "in a commit of three": [Insert(f"x{n}", {}), Merge("a", etag, {"n": n}), Insert(f"y{n}", {})],
        }
        try:
            await tables.commit("p", change[kind])
        except Conflict:
            return False
        return True

    won = await asyncio.gather(*[race(n) for n in range(32)])
    assert won.count(True) == 1
    winner = won.index(True)
    rows = {row.key: row.columns for row in await query_all(tables, "p", Range())}
    expected: dict[str, dict[str, Columns]] = {
        "insert": {"a": {"n": -1}, "b": {"n": winner}},
        "merge": {"a": {"n": winner}},
        "delete": {},
        "in a commit of three": {"a": {"n": winner}, f"x{winner}": {}, f"y{winner}": {}},
    }
    assert rows == expected[kind]


async def test_commits_are_isolated(store: OpenStore) -> None:
    """Counters that two rows share stay equal, whoever adds to them at the same time."""
    tables = store.tables
    await tables.commit("p", [Insert("left", {"n": 0}), Insert("right", {"n": 0})])

    async def add() -> None:
        while True:
            left, right = await tables.get("p", ["left", "right"])
            assert left is not None
            assert right is not None
            n = left.columns["n"]
            assert isinstance(n, int)
            try:
                await tables.commit(
                    "p", [Merge("left", left.etag, {"n": n + 1}), Merge("right", right.etag, {"n": n + 1})]
                )
            except Conflict:
                continue
            return

    await asyncio.gather(*[add() for _ in range(8)])
    assert [row.columns for row in await query_all(tables, "p", Range())] == [{"n": 8}, {"n": 8}]


# --- ranges and pages --------------------------------------------------------------------------------------------


async def test_twenty_five_hundred_rows_are_read_to_the_last_continuation(store: OpenStore) -> None:
    tables = store.tables
    names = [f"task:{n:05}" for n in range(2_500)]
    for start in range(0, 2_500, 100):
        await tables.commit("p", [Insert(name, {"n": start}) for name in names[start : start + 100]])
    await tables.commit("q", [Insert("task:00000x", {})])
    assert await keys(tables, "p", Range()) == names
    assert await keys(tables, "p", Range("task:00100", "task:01300")) == names[100:1300]
    assert await keys(tables, "p", Range(select=())) == names
    assert await keys(tables, "p", Range(where={"label": ("nobody",)})) == []


@pytest.mark.parametrize("limit", [1, 2, 7, 8, 50])
async def test_a_page_holds_no_more_than_its_limit(store: OpenStore, limit: int) -> None:
    tables = store.tables
    await tables.commit("p", [Insert(f"k{n}", {"odd": str(n % 2)}) for n in range(8)])
    for rows, expected in (
        (Range(), 8),
        (Range("k2", "k7"), 5),
        (Range(where={"odd": ("1",)}), 4),
        (Range("k3", where={"odd": ("1",)}), 3),
    ):
        found: list[str] = []
        continuation = None
        for _ in range(100):
            page = await tables.query("p", rows, limit=limit, continuation=continuation)
            assert len(page.rows) <= limit
            found += [row.key for row in page.rows]
            continuation = page.continuation
            if continuation is None:
                break
        assert len(found) == len(set(found)) == expected
        assert found == sorted(found)


async def test_a_reading_goes_on_where_it_stopped_whatever_was_written_meanwhile(store: OpenStore) -> None:
    tables = store.tables
    await tables.commit("p", [Insert(f"k{n}", {}) for n in range(6)])
    first = await tables.query("p", Range(), limit=3)
    assert [row.key for row in first.rows] == ["k0", "k1", "k2"]
    await tables.commit("p", [Delete("k2", first.rows[2].etag), Insert("k1x", {}), Insert("k3x", {})])
    rest = await tables.query("p", Range(), continuation=first.continuation)
    assert [row.key for row in rest.rows] == ["k3", "k3x", "k4", "k5"]


async def test_bounds_take_the_start_and_leave_the_end(store: OpenStore) -> None:
    tables = store.tables
    await tables.commit("p", [Insert(key, {}) for key in ("task", "task-graph", "task:a", "task:b", "task;", "tasks")])
    assert await keys(tables, "p", Range("task:a", "task:b")) == ["task:a"]
    assert await keys(tables, "p", Range("task:b")) == ["task:b", "task;", "tasks"]
    assert await keys(tables, "p", Range(end="task:a")) == ["task", "task-graph"]
    assert await keys(tables, "p", prefix("task:")) == ["task:a", "task:b"]
    assert await keys(tables, "p", Range("x", "a")) == []
    assert await keys(tables, "p", prefix("task:", select=("n",))) == ["task:a", "task:b"]


async def test_keys_are_ordered_by_their_characters_and_cases_differ(store: OpenStore) -> None:
    tables = store.tables
    names = ["B", "a", "A", "b", "a1", "a10", "a2", "a-", "a:", "a_", "Z", "é", "z", "ä", "~", "0", "a b", "ж", "日本"]
    await tables.commit("p", [Insert(name, {"name": name}) for name in names])
    assert await keys(tables, "p", Range()) == sorted(names)
    lower, upper = await tables.get("p", ["a", "A"])
    assert lower is not None
    assert upper is not None
    assert (lower.columns["name"], upper.columns["name"]) == ("a", "A")
    assert await tables.get("P", ["a"]) == [None]


async def test_where_gives_the_rows_that_agree_in_every_column(store: OpenStore) -> None:
    tables = store.tables
    rows: list[dict[str, str | int]] = [
        {"state": "pending", "target": "x"},
        {"state": "running", "target": "x"},
        {"state": "completed", "target": "y"},
        {"state": "pending"},
        {"target": "x"},
        {"state": 1},
        {"note": '"state":"pending"'},
        {"state": "Pending"},
    ]
    await tables.commit("p", [Insert(f"k{n}", columns) for n, columns in enumerate(rows)])
    assert await keys(tables, "p", Range(where={"state": ("pending",)})) == ["k0", "k3"]
    assert await keys(tables, "p", Range(where={"state": ("pending", "completed")})) == ["k0", "k2", "k3"]
    assert await keys(tables, "p", Range(where={"state": ("pending", "running"), "target": ("x",)})) == ["k0", "k1"]
    assert await keys(tables, "p", Range("k1", where={"state": ("pending",)})) == ["k3"]
    assert await keys(tables, "p", Range(where={"state": ("1",)})) == []
    assert await keys(tables, "p", Range(where={"state": ()})) == []
    twelve = ("pending", *(f"s{n}" for n in range(11)))
    assert await keys(tables, "p", Range("k0", "k9", where={"state": twelve})) == ["k0", "k3"]
    with pytest.raises(ValueError, match="13 texts"):
        await tables.query("p", Range(where={"state": (*twelve, "one more")}))


INJECTIONS = [
    "' or PartitionKey ne '",
    "x' or 'x' eq 'x",
    "''",
    "'",
    "@partition",
    "@value1 or",
    " ",
    "a b",
    '"',
    "\\",
    "%27",
    "é😀",
]


@pytest.mark.parametrize("text", INJECTIONS)
async def test_a_text_of_a_condition_is_only_ever_a_text(store: OpenStore, text: str) -> None:
    tables = store.tables
    await tables.commit("p", [Insert("a", {"name": text}), Insert("b", {"name": "other"})])
    await tables.commit("q", [Insert("c", {"name": text})])
    assert await keys(tables, "p", Range(where={"name": (text,)})) == ["a"]
    assert await keys(tables, "p", Range(where={"name": ("nobody", text)})) == ["a"]


async def test_a_bound_is_only_ever_a_text(store: OpenStore) -> None:
    tables = store.tables
    await tables.commit("p", [Insert("a", {}), Insert("' or 'x' eq 'x", {})])
    assert await keys(tables, "p", Range("' or 'x' eq 'x", "b' or 'x' eq 'x")) == ["' or 'x' eq 'x", "a"]
    assert await keys(tables, "p' or 'x' eq 'x", Range()) == []


async def test_select_gives_the_named_columns(store: OpenStore) -> None:
    tables = store.tables
    etags = await tables.commit("p", [Insert("a", {"x": 1, "y": "2", "z": True}), Insert("b", {"z": False})])
    rows = await query_all(tables, "p", Range(select=("x", "y", "nowhere")))
    assert rows == [Row("a", str(etags[0]), {"x": 1, "y": "2"}), Row("b", str(etags[1]), {})]
    rows = await query_all(tables, "p", Range(select=()))
    assert rows == [Row("a", str(etags[0]), {}), Row("b", str(etags[1]), {})]
    rows = await query_all(tables, "p", Range(where={"y": ("2",)}, select=("z",)))
    assert rows == [Row("a", str(etags[0]), {"z": True})]
    await tables.commit("p", [Merge("a", rows[0].etag, {"x": 2})])


_TEXTS = (
    "",
    "x+00:00",
    '{"t":"2026-01-01T00:00:00+00:00"}',
    '":1.5',
    "\\",
    'a"b',
    "\u202e\U0001f600 é\n\t\x7f",
    '["a"]',
)


async def test_a_page_as_text_says_what_a_page_of_values_says(store: OpenStore) -> None:
    tables = store.tables
    wanted = Range("a", select=("time", "t", "text", "number", "nowhere", "yes", "text"))
    assert await query_text(tables, "p", wanted, limit=5) in (None, TextPage(""))
    moment = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
    times = (moment, moment.replace(microsecond=0), moment.astimezone(timezone(timedelta(hours=5))))
    for start in range(0, 420, 70):
        inserts = [
            Insert(
                f'a"é{number:03}',
                {"t": text, "number": -number, "time": times[number % 3], "other": "x", "text": text}
                if number % 7
                else {"yes": True, "no": False, "double": 0.5},
            )
            for number in range(start, start + 70)
            for text in [_TEXTS[number % len(_TEXTS)]]
        ]
        await tables.commit("p", inserts)
    for limit in (1, 199, 200, 333, 1000):
        after: str | None = None
        for _ in range(4):
            values = await tables.query("p", wanted, limit=limit, continuation=after)
            page = await query_text(tables, "p", wanted, limit=limit, continuation=after)
            if store.kind != "embedded":
                assert page is None
                return
            assert page is not None
            assert json.loads(f"[{page.text}]") == views.stored_rows(values.rows, None)["rows"]
            assert page.continuation == values.continuation
            after = page.continuation
            if after is None:
                break
    for other in (Range(select=("double",)), Range(), Range(select=("no",), where={"text": ("x",)})):
        assert await query_text(tables, "p", other, limit=9) is None


# --- keys --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("character", ["/", "\\", "#", "?", "\0", "\t", "\n", "\r", "\x1f", "\x7f", "\x85", "\x9f"])
async def test_a_character_that_no_key_may_hold_is_refused(store: OpenStore, character: str) -> None:
    tables, key = store.tables, f"a{character}b"
    for attempt in (
        tables.commit("p", [Insert(key, {})]),
        tables.commit(key, [Insert("a", {})]),
        tables.get("p", [key]),
        tables.get(key, ["a"]),
        tables.query(key, Range()),
    ):
        with pytest.raises(ValueError, match=f"U\\+{ord(character):04X}"):
            await attempt


@pytest.mark.parametrize(
    "key",
    [
        "a:b",
        "100%",
        "%2F",
        "it's",
        "''",
        "a b",
        " a ",
        "..",
        "$batch",
        "a+b&c=d",
        "(x)",
        '"',
        "é",
        "日本",
        "~",
        "task@1",
    ],
)
async def test_odd_characters_are_kept_as_they_are(store: OpenStore, key: str) -> None:
    tables = store.tables
    inserted = await put(tables, key, key, {"n": 1})
    assert await one(tables, key, key) == Row(key, inserted, {"n": 1})
    [merged, _] = await tables.commit(key, [Merge(key, inserted, {"n": 2}), Insert("other", {})])
    assert await keys(tables, key, Range(key, key + "0")) == [key]
    [again] = await tables.commit(key, [Merge(key, str(merged), {"n": 3})])
    await tables.commit(key, [Delete(key, str(again))])
    assert await one(tables, key, key) is None


async def test_a_key_may_have_512_characters(store: OpenStore) -> None:
    tables = store.tables
    longest = "k" * limits.KEY_CHARS_MAX
    await put(tables, longest, longest, {"n": 1})
    row = await one(tables, longest, longest)
    assert row is not None
    assert row.key == longest
    with pytest.raises(TooLarge, match="513 characters; the limit is 512"):
        await tables.commit("p", [Insert(longest + "k", {})])


# --- values ------------------------------------------------------------------------------------------------------


class Colour(StrEnum):
    RED = "red"


VALUES: dict[str, Value] = {
    "empty": "",
    "spaces": "  a  ",
    "lines": "a\nb\r\n\tc\0d",
    "quotes": "'\"\\`<&>",
    "umlaut": "äöü ß",
    "emoji": "🏳️‍🌈 😀 𝄞",
    "json": '["a","b"]',
    "iso": "2024-01-02T03:04:05Z",
    "digits": "123",
    "word": "true",
    "longest": "x" * limits.PROPERTY_CHARS_MAX,
    "longest_astral": "😀" * (limits.PROPERTY_CHARS_MAX // 2),
    "zero": 0,
    "least": limits.INT_MIN,
    "most": limits.INT_MAX,
    "yes": True,
    "no": False,
    "whole": 1.0,
    "minus_nought": -0.0,
    "tenth": 0.1,
    "great": 1.7976931348623157e308,
    "small": 5e-324,
    "second": datetime(2024, 2, 29, 12, 30, 45, tzinfo=UTC),
    "micro": datetime(2024, 2, 29, 12, 30, 45, 1, tzinfo=UTC),
    "last_micro": datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "early": datetime(1602, 1, 1, tzinfo=UTC),
    "late": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
}


async def test_values_survive_with_their_types(store: OpenStore) -> None:
    tables = store.tables
    etag = await put(tables, "p", "a", VALUES)
    for row in (await one(tables, "p", "a"), (await query_all(tables, "p", Range()))[0]):
        assert row is not None
        assert row.columns == VALUES
        assert {name: type(value) for name, value in row.columns.items()} == {
            name: type(value) for name, value in VALUES.items()
        }
    await tables.commit("p", [Merge("a", etag, VALUES), Insert("b", VALUES)])
    for row in await query_all(tables, "p", Range()):
        assert row.columns == VALUES
        assert {type(value) for value in row.columns.values()} == {str, int, bool, float, datetime}


async def test_times_come_back_in_utc(store: OpenStore) -> None:
    there = datetime(2024, 7, 1, 12, 0, 0, 123_456, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    await put(store.tables, "p", "a", {"when": there})
    row = await one(store.tables, "p", "a")
    assert row is not None
    when = row.columns["when"]
    assert isinstance(when, datetime)
    assert when == there
    assert when.tzinfo is UTC


async def test_a_member_of_an_enumeration_is_its_text(store: OpenStore) -> None:
    etag = await put(store.tables, "p", "a", {"colour": Colour.RED})
    assert await one(store.tables, "p", "a") == Row("a", etag, {"colour": "red"})
    assert await keys(store.tables, "p", Range(where={"colour": (Colour.RED,)})) == ["a"]


@pytest.mark.parametrize("count", [0, limits.ROW_COLUMNS_MAX])
async def test_a_row_may_have_no_columns_or_250(store: OpenStore, count: int) -> None:
    columns = {f"c{n}": n for n in range(count)}
    await put(store.tables, "p", "a", columns)
    row = await one(store.tables, "p", "a")
    assert row is not None
    assert row.columns == columns


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        ({"c": "x" * 32_001}, TooLarge, "row 'k', column c has 32001 characters; the limit is 32000"),
        ({"c": "😀" * 16_001}, TooLarge, "column c has 32002 characters"),
        ({f"c{n}": "x" * 32_000 for n in range(16)}, TooLarge, "characters; the limit is 500000"),
        ({f"c{n}": n for n in range(251)}, TooLarge, "251 columns; the limit is 250"),
        ({"c": 2**31}, ValueError, "2147483648 is outside"),
        ({"c": -(2**31) - 1}, ValueError, "outside"),
        ({"c": float("nan")}, ValueError, "not a finite number"),
        ({"c": float("inf")}, ValueError, "not a finite number"),
        ({"c": datetime(2024, 1, 1)}, ValueError, "without a time zone"),
        ({"c": datetime(1600, 1, 1, tzinfo=UTC)}, ValueError, "1601"),
        ({"c": b"x"}, ValueError, "no store keeps a bytes"),
        ({"c": None}, ValueError, "no store keeps a NoneType"),
        ({"c": ["x"]}, ValueError, "no store keeps a list"),
        ({"c": "\ud800"}, ValueError, "surrogate"),
        ({"a-b": 1}, ValueError, "no name of a column"),
        ({"": 1}, ValueError, "no name of a column"),
        ({"1a": 1}, ValueError, "no name of a column"),
        ({"RowKey": "x"}, ValueError, "no name of a column"),
        ({"Timestamp": "x"}, ValueError, "no name of a column"),
        ({"c" * 256: 1}, ValueError, "no name of a column"),
    ],
)
async def test_what_no_store_keeps_is_refused_at_the_door(
    store: OpenStore, columns: Columns, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        await store.tables.commit("p", [Insert("a", {}), Insert("k", columns)])
    with pytest.raises(error, match=text):
        await store.tables.commit("p", [Merge("k", "1", columns)])
    assert await store.tables.get("p", ["a", "k"]) == [None, None]


async def test_rows_up_to_the_limit_are_kept(store: OpenStore) -> None:
    row = {f"c{n}": "ж" * 31_000 for n in range(16)}
    await put(store.tables, "p", "a", row)
    found = await one(store.tables, "p", "a")
    assert found is not None
    assert found.columns == row


async def test_a_commit_is_bounded_in_bytes(store: OpenStore) -> None:
    row = {f"c{n}": "x" * 30_000 for n in range(11)}
    await store.tables.commit("p", [Insert(f"k{n}", row) for n in range(10)])
    assert len(await keys(store.tables, "p", Range())) == 10
    with pytest.raises(TooLarge, match=r"a commit of 11 rows, from 'a0' on, has 36.* bytes; the limit is 3500000"):
        await store.tables.commit("p", [Insert(f"a{n}", row) for n in range(11)])
    assert len(await keys(store.tables, "p", Range())) == 10


@pytest.mark.parametrize("etag", ["*", "", "a b", "x\r\nIf-Match: *"])
async def test_no_commit_is_unconditional(store: OpenStore, etag: str) -> None:
    await put(store.tables, "p", "a", {"n": 1})
    for change in (Merge("a", etag, {"n": 2}), Delete("a", etag)):
        with pytest.raises(ValueError, match="no etag"):
            await store.tables.commit("p", [change])
    row = await one(store.tables, "p", "a")
    assert row is not None
    assert row.columns == {"n": 1}


async def test_a_commit_of_nothing_is_refused(store: OpenStore) -> None:
    with pytest.raises(ValueError, match="no changes"):
        await store.tables.commit("p", [])


@pytest.mark.parametrize("limit", [0, 1001, -1])
async def test_a_page_has_1_to_1000_rows(store: OpenStore, limit: int) -> None:
    with pytest.raises(ValueError, match="1 to 1000"):
        await store.tables.query("p", Range(), limit=limit)


@pytest.mark.parametrize("name", ["", "ab", "1abc", "a-b-c", "a" * 64, "x/y"])
async def test_a_table_has_a_name_that_the_cloud_takes(store: OpenStore, name: str) -> None:
    with pytest.raises(ValueError, match="table name"):
        store.store.tables(name)
