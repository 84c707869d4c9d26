"""The embedded store's rows: merging inside SQLite, limits that a merge meets, statements of several sizes."""

import asyncio
import contextlib
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from taskgraph.model import limits
from taskgraph.model.columns import Columns, Value
from taskgraph.model.errors import Conflict, TooLarge
from taskgraph.model.states import TaskState
from taskgraph.storage import checks
from taskgraph.storage.sqlite import tables as embedded_tables
from taskgraph.storage.sqlite.store import EmbeddedStore
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Range, Replace, Row, query_all
from taskgraph.testing import ManualClock


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore(path, ManualClock())
    try:
        yield store
    finally:
        await store.close()


TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.sampled_from(
        ['{"t":"2024-01-01T00:00:00+00:00"}', '"', "\\", '","a":"', "null", "\0", "\u2028", "😀", "é", "\x7f"]
    ),
)
VALUES: st.SearchStrategy[Value] = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(limits.INT_MIN, limits.INT_MAX),
    st.floats(allow_nan=False, allow_infinity=False),
    st.datetimes(datetime(1602, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC)),
    st.datetimes(datetime(1602, 1, 1), datetime(9999, 1, 1), timezones=st.just(timezone(timedelta(hours=5)))),
)
NAMES = st.sampled_from(["a", "b", "t", "T", "state", "requiresLeft", "_", "a1"])
COLUMNS = st.dictionaries(NAMES, VALUES, max_size=6)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=COLUMNS, patches=st.lists(COLUMNS, max_size=4))
def test_merging_in_sqlite_is_merging(tmp_path: Path, first: Columns, patches: Sequence[Columns]) -> None:
    async def play() -> None:
        async with opened(tmp_path / "store.db") as store:
            tables = store.tables("graphs")
            [old] = await tables.get("p", ["a"])
            [etag] = await tables.commit("p", [Delete("a", old.etag) if old else Insert("a", {})])
            if etag is not None:
                await tables.commit("p", [Delete("a", etag)])
            expected = dict(first)
            [etag] = await tables.commit("p", [Insert("a", first)])
            for patch in patches:
                [etag] = await tables.commit("p", [Merge("a", str(etag), patch)])
                expected |= patch
            [row] = await tables.get("p", ["a"])
            assert row == Row("a", str(etag), expected)
            assert {name: type(value) for name, value in row.columns.items()} == {
                name: type(value) for name, value in expected.items()
            }, "true is not 1, and 1.0 neither"
            [again] = (await tables.query("p", Range())).rows
            assert again == row

    asyncio.run(play())


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 31, 32, 33, 63, 64, 65, 99, 100])
async def test_commits_and_reads_of_any_size(tmp_path: Path, count: int) -> None:
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        etags = await tables.commit("p", [Insert(f"k{n:03}", {"n": n, "kept": "x"}) for n in range(count)])
        await tables.commit("q", [Insert(f"k{n:03}", {"n": -1}) for n in range(count)])
        after = await tables.commit("p", [Merge(f"k{n:03}", str(etags[n]), {"n": n + 1}) for n in range(count)])
        asked = [f"k{n:03}" for n in reversed(range(count))]
        expected = [Row(f"k{n:03}", str(after[n]), {"n": n + 1, "kept": "x"}) for n in reversed(range(count))]
        assert await tables.get("p", asked) == expected
        assert await tables.get("p", ["none", *asked, "nobody"]) == [None, *expected, None]
        changes: list[Change] = [Delete(row.key, row.etag) for row in expected]
        await tables.commit("p", changes)
        assert await tables.get("p", asked) == [None] * count
        assert len(await query_all(tables, "q", Range())) == count


async def test_a_commit_of_all_kinds_in_any_order(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        etags = await tables.commit("p", [Insert(f"k{n}", {"n": n}) for n in range(30)])
        changes: list[Change] = []
        for n in reversed(range(30)):
            kinds: tuple[list[Change], ...] = (
                [Merge(f"k{n}", str(etags[n]), {"m": n})],
                [Delete(f"k{n}", str(etags[n]))],
                [Merge(f"k{n}", str(etags[n]), {}), Insert(f"new{n}", {"n": n})],
            )
            changes += kinds[n % 3]
        given_etags = await tables.commit("p", changes)
        found = {row.key: row for row in await query_all(tables, "p", Range())}
        for change, etag in zip(changes, given_etags, strict=True):
            if isinstance(change, Delete):
                assert etag is None
                assert change.key not in found
            else:
                assert found.pop(change.key).etag == etag
        assert found == {}


@pytest.mark.parametrize("text", ["x", "x" * 500])
async def test_a_merge_cannot_give_a_row_too_many_columns(tmp_path: Path, text: str) -> None:
    """Short rows of many columns, long ones, and ones that look as if they had many."""
    full = {f"c{n}": text for n in range(limits.ROW_COLUMNS_MAX - 10)}
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        first, second, third = await tables.commit(
            "p", [Insert("a", full), Insert("b", {"n": 1}), Insert("c", {"json": '{"a":1,"b":' * 200})]
        )
        more = {f"d{n}": n for n in range(11)}
        for _ in range(2):
            with pytest.raises(TooLarge, match=r"row 'a' has 251 columns; the limit is 250, which this merge"):
                await tables.commit("p", [Merge("b", str(second), {"n": 2}), Merge("a", str(first), more)])
        ten = dict(list(more.items())[:10])
        await tables.commit(
            "p", [Merge("b", str(second), {"n": 2}), Merge("a", str(first), ten), Merge("c", str(third), more)]
        )
        rows = await tables.get("p", ["a", "b", "c"])
        assert [len(row.columns) for row in rows if row] == [250, 1, 12]
        assert rows[0] is not None
        await tables.commit("p", [Merge("a", rows[0].etag, dict.fromkeys(full, "y"))])


async def test_the_smallest_rows_of_many_columns_are_counted(tmp_path: Path) -> None:
    """The bound for short rows must hold for the shortest names and values that there are."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
    names = [*letters, *(a + b for a in letters for b in letters)]
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        for count in range(200, 251, 7):
            columns = dict.fromkeys(names[:count], 1)
            text = json.dumps(columns, separators=(",", ":"))
            if len(text) <= embedded_tables._SMALL_ROW_BYTES:
                assert count <= embedded_tables._SMALL_ROW_COLUMNS
            [etag] = await tables.commit("p", [Insert(f"k{count}", columns)])
            room = limits.ROW_COLUMNS_MAX - count
            with pytest.raises(TooLarge):
                await tables.commit("p", [Merge(f"k{count}", str(etag), dict.fromkeys(names[count:251], 1))])
            if room:
                await tables.commit("p", [Merge(f"k{count}", str(etag), dict.fromkeys(names[count:250], 1))])


@pytest.mark.parametrize("text", ["x" * 20_000, "😀" * 10_000])
async def test_a_row_that_grows_by_small_merges_stays_within_its_limit(tmp_path: Path, text: str) -> None:
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        [etag] = await tables.commit("p", [Insert("a", {})])
        columns: dict[str, Value] = {}
        while sum(len(name) + 20_000 for name in columns) + len("c00") + 20_000 <= limits.ROW_CHARS_MAX:
            name = f"c{len(columns):02}"
            [etag] = await tables.commit("p", [Merge("a", str(etag), {name: text})])
            columns[name] = text
        assert len(columns) == 24
        with pytest.raises(TooLarge, match="the limit is 500000, which this merge would exceed"):
            await tables.commit("p", [Merge("a", str(etag), {"more": text})])
        assert await tables.get("p", ["a"]) == [Row("a", str(etag), columns)]


async def test_the_first_change_that_is_refused_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        [a, b] = await tables.commit("p", [Insert("a", {f"c{n}": 0 for n in range(250)}), Insert("b", {})])
        grow, stale = Merge("a", str(a), {"more": 1}), Merge("b", "999999", {})
        with pytest.raises(TooLarge):
            await tables.commit("p", [grow, stale])
        with pytest.raises(Conflict, match="'b' of 'p' has changed") as caught:
            await tables.commit("p", [stale, grow])
        assert caught.value.index == 0
        with pytest.raises(Conflict, match="'x' of 'p' is gone") as caught:
            await tables.commit("p", [Merge("b", str(b), {}), Insert("y", {}), Delete("x", str(b)), stale_of("z")])
        assert caught.value.index == 2


FAULTS = [
    ("exists", lambda key: Insert(key, {"n": -1})),
    *(
        (what, fault)
        for what in ("gone", "has changed")
        for fault in (
            lambda key: Merge(key, "7777", {"n": -1}),
            lambda key: Replace(key, "7777", {"n": -1}),
            lambda key: Delete(key, "7777"),
        )
    ),
]


@pytest.mark.parametrize("place", [0, 4, 8])
@pytest.mark.parametrize(("what", "fault"), FAULTS)
async def test_a_commit_that_conflicts_leaves_nothing_and_those_beside_it_are_made(
    tmp_path: Path, what: str, fault: Callable[[str], Change], place: int
) -> None:
    """Of a group, one commit has one change of nine at fault, of any kind, at any place."""
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        etags = await tables.commit("p", [Insert(f"k{n}", {"n": n}) for n in range(9)])
        before = await query_all(tables, "p", Range())
        key = "none" if what == "gone" else f"k{place}"
        good: list[Change] = [
            Merge("k0", str(etags[0]), {"m": 1}),
            Delete("k1", str(etags[1])),
            Replace("k2", str(etags[2]), {"m": 2}),
            Insert("new", {}),
            *(Merge(f"k{n}", str(etags[n]), {"m": n}) for n in range(3, 9)),
        ]
        changes = [change for change in good if change.key != key][:8]
        changes.insert(place, fault(key))
        results = await asyncio.gather(
            tables.commit("q", [Insert("a", {"n": 1})]),
            tables.commit("p", changes),
            tables.commit("q", [Insert("b", {"n": 2})]),
            store.queues().send("queue", ["once"]),
            return_exceptions=True,
        )
        assert isinstance(results[1], Conflict)
        assert results[1].index == place
        assert what in str(results[1])
        assert await query_all(tables, "p", Range()) == before
        assert [(row.key, [row.etag]) for row in await query_all(tables, "q", Range())] == [
            ("a", results[0]),
            ("b", results[2]),
        ]
        assert await store.queues().count("queue") == 1


@pytest.mark.parametrize("columns", [1, 28, 29, 60])
@pytest.mark.parametrize("chars", [1, 24_000, 31_000])
async def test_a_merge_is_measured_when_it_may_be_too_large_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int, chars: int
) -> None:
    """Tasks with their definitions, relays, rows of a few columns: none of them is looked at before it is merged."""
    looked: list[int] = []
    look = embedded_tables._look

    def counted(*given: Any) -> None:
        looked.append(1)
        look(*given)

    monkeypatch.setattr(embedded_tables, "_look", counted)
    rows: dict[str, Columns] = {
        "small": {"state": "pending"},
        "relay": {"requiresLeft": json.dumps([f"f5neE2qyRSKpMobAAAAA{n:02}" for n in range(96)])},
        "task": {"task": "x" * 32_000, "dependents": '{"a":1}' * 300, **{f"c{n}": n for n in range(25)}},
        "long": {f"c{n}": "x" * 32_000 for n in range(6)},
    }
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        etags = await tables.commit("p", [Insert(key, row) for key, row in rows.items()])
        patch: Columns = {"text": "y" * chars, **{f"more{n}": n for n in range(columns - 1)}}
        await tables.commit("p", [Merge(key, str(etag), patch) for key, etag in zip(rows, etags, strict=True)])
        found = await tables.get("p", list(rows))
        assert [row and row.columns for row in found] == [{**row, **patch} for row in rows.values()]
    assert bool(looked) == (columns > 28 or chars > 25_000)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    had=st.integers(215, 250),
    more=st.integers(0, 40),
    again=st.integers(0, 40),
    text=st.sampled_from(["", "x" * 7, '":', "é" * 900, "x" * 1_400]),
)
def test_a_merge_is_too_large_exactly_when_the_row_would_be(
    tmp_path: Path, had: int, more: int, again: int, text: str
) -> None:
    names = [a + b for a in "abcdefghijklmnop" for b in "abcdefghijklmnopqrstuvwxyz"]
    row: Columns = {**dict.fromkeys(names[:had], 1), names[0]: text}
    patch: dict[str, Value] = dict.fromkeys([*names[:again], *names[had : had + more]], 2)

    async def play() -> None:
        async with opened(tmp_path / "store.db") as store:
            tables = store.tables("graphs")
            [old] = await tables.get("p", ["a"])
            if old:
                await tables.commit("p", [Delete("a", old.etag)])
            [etag] = await tables.commit("p", [Insert("a", row)])
            if had + more > limits.ROW_COLUMNS_MAX:
                with pytest.raises(TooLarge, match=f"row 'a' has {had + more} columns"):
                    await tables.commit("p", [Merge("a", str(etag), patch)])
                patch.clear()
            else:
                await tables.commit("p", [Merge("a", str(etag), patch)])
            [found] = await tables.get("p", ["a"])
            assert found is not None
            assert found.columns == {**row, **patch}

    asyncio.run(play())


def stale_of(key: str) -> Merge:
    return Merge(key, "1", {})


@pytest.mark.parametrize("etag", ["0", "01", "1 ", "-1", "9" * 40, "W/\"datetime'2024'\"", "1.0", "\u0661"])
async def test_an_etag_is_compared_as_it_stands(tmp_path: Path, etag: str) -> None:
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        assert await tables.commit("p", [Insert("a", {})]) == ["1"]
        for change in (Merge("a", etag, {}), Delete("a", etag), Merge("missing", etag, {})):
            with pytest.raises((Conflict, ValueError)):
                await tables.commit("p", [change])
        await tables.commit("p", [Delete("a", "1")])


async def test_keys_with_quotes_and_commas_are_told_apart(tmp_path: Path) -> None:
    keys = ['a"b', "a,b", "a", "b", "'", '","', "[", "\u2028", "ä,"]
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        etags = await tables.commit("p", [Insert(key, {"key": key}) for key in keys])
        assert await tables.get("p", keys) == [
            Row(key, str(etag), {"key": key}) for key, etag in zip(keys, etags, strict=True)
        ]
        assert [row.columns["key"] for row in await query_all(tables, "p", Range())] == sorted(keys)
        found = await query_all(tables, "p", Range(where={"key": ('a"b', "[")}))
        assert [row.key for row in found] == ["[", 'a"b']


def test_the_encoder_writes_what_json_writes() -> None:
    columns: Columns = {"a": 'é"\\\n\0', "n": -1, "f": 1e300, "b": True, "t": datetime(2024, 1, 1, tzinfo=UTC), "e": ""}
    assert embedded_tables._encode(columns) == embedded_tables._dump(dict(columns))
    assert json.loads(embedded_tables._encode(columns))["t"] == {"t": "2024-01-01T00:00:00+00:00"}
    with pytest.raises(TypeError, match="no store keeps a bytes"):
        embedded_tables._encode({"a": b""})  # type: ignore[dict-item]


ODD_VALUES: st.SearchStrategy[Any] = st.one_of(
    VALUES,
    st.sampled_from(
        [2**31, -(2**31) - 1, float("inf"), None, b"", [], "x" * 32_000, "x" * 32_001, "\ud800", "%s", "%"]
    ),
    st.sampled_from([datetime(2024, 1, 1), datetime(1601, 1, 1, tzinfo=UTC)]),
    st.sampled_from(list(TaskState)),
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from(["a", "b2", "c_", "a b", "ä"]), unique=True).flatmap(
        lambda names: st.tuples(
            st.fixed_dictionaries(dict.fromkeys(names, VALUES)),
            st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(names, ODD_VALUES)), max_size=20),
        )
    )
)
def test_rows_that_are_alike_are_checked_and_encoded_as_each_is(
    drawn: tuple[dict[str, Value], list[dict[str, Any]]],
) -> None:
    common, own = drawn
    changes = [Insert(f"k{number}", common | each) for number, each in enumerate(own)]
    changes += [Insert(f"l{number}", dict(common)) for number in range(10)]

    def refusal(some: Sequence[Insert], good: Sequence[str | None]) -> object:
        try:
            checks.check_commit("p", some, good=good)
        except (ValueError, TooLarge) as error:
            return type(error), str(error)
        return None

    refusal(changes, ())  # first: names are known to be good once they were looked at
    for some in (changes, changes[:3]):
        for texts in (embedded_tables._encode_alike(some), embedded_tables._encode_good(some)):
            assert refusal(some, texts) == refusal(some, ())
            for change, text in zip(some, texts, strict=True):
                if text is not None:
                    assert text == embedded_tables._encode(change.columns)


@given(st.datetimes(timezones=st.just(UTC)))
@example(datetime(2026, 1, 1, tzinfo=UTC))
@example(datetime(2026, 12, 31, 23, 59, 59, 1000, tzinfo=UTC))
@example(datetime(2026, 12, 31, 23, 59, 59, 999, tzinfo=UTC))
def test_times_are_written_as_by_their_own_method(time: datetime) -> None:
    assert embedded_tables._time_text(time) == time.isoformat()


def test_rows_of_one_commit_are_encoded_together() -> None:
    now = datetime(2024, 1, 1, tzinfo=UTC)
    rows = [Insert(f"k{n}", {"n": n, "text": f'"%s{n}é😀', "t": now, "b": n > 5, "same": "%"}) for n in range(9)]
    for number, row in enumerate(rows):
        row.columns |= {"seconds": 60.0, "part": number / 7, "zero": -0.0 if number else 0.0}  # type: ignore[operator]
    odd = [Insert("odd", {"n": 1, "text": ""}), Delete("gone", "1")]
    checks.check_commit("p", rows)
    long = Insert("long", {**rows[0].columns, "text": "é" * 20_000})
    texts = [embedded_tables._encode(row.columns) for row in rows]
    assert embedded_tables._encode_alike([*odd, *rows, long]) == [None, None, *texts, None]


async def test_the_file_is_the_one_that_it_was(tmp_path: Path) -> None:
    """Version 0.1 reads what is written today: the same tables, and columns as compact JSON in one text."""
    path = tmp_path / "store.db"
    when = datetime(2024, 1, 1, tzinfo=UTC)
    async with opened(path) as store:
        tables = store.tables("graphs")
        [etag] = await tables.commit("p", [Insert("a", {"n": 1, "when": when, "text": "é"})])
        await tables.commit("p", [Merge("a", str(etag), {"n": 2, "later": when})])
    with contextlib.closing(sqlite3.connect(path)) as connection:
        ((columns,),) = connection.execute("SELECT columns FROM row").fetchall()
        made = [" ".join(sql.split()) for (sql,) in connection.execute("SELECT sql FROM sqlite_schema") if sql]
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    time = '{"t":"2024-01-01T00:00:00+00:00"}'
    assert columns == f'{{"n":2,"when":{time},"text":"é","later":{time}}}'
    names = {found[1] for sql in made if (found := re.match(r"CREATE (?:UNIQUE )?(?:TABLE|INDEX) (\w+)", sql))}
    assert names == {"counter", "tab", "row", "row_key", "message", "message_visible", "sqlite_sequence"}
