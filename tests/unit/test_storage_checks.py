"""The checks at the door: exact at each bound, and with a sentence that names what is wrong."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgraph.model import limits
from taskgraph.model.columns import Columns
from taskgraph.model.errors import TooLarge
from taskgraph.model.utf16 import has_surrogate, utf16_units
from taskgraph.storage import checks
from taskgraph.storage.tables import Delete, Insert, Merge, Range


@given(st.text(st.characters(categories=["L", "Cs", "So"])))
def test_a_text_counts_as_its_encoding_does_and_a_lone_surrogate_is_refused_at_the_door_alone(text: str) -> None:
    assert utf16_units(text) == sum(1 + (ord(each) > 0xFFFF) for each in text)
    try:
        text.encode()
    except UnicodeEncodeError:
        assert has_surrogate(text)
        with pytest.raises(ValueError, match="row 'k', column a: a lone surrogate is not text"):
            checks.check_commit("p", [Insert("k", {"a": text})])
        with pytest.raises(ValueError, match="surrogate"):
            checks.check_query("p", Range(where={"a": (text,)}), limit=1)
    else:
        assert not has_surrogate(text)
        checks.check_commit("p", [Insert("k", {"a": text})])


@given(st.text(min_size=1, max_size=20))
def test_a_key_that_passes_can_be_kept_and_ordered_by_every_store(key: str) -> None:
    try:
        checks.check_key(key)
    except ValueError:
        assert any(c in "/\\#?" or ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or ord(c) > 0xD7FF for c in key)
        return
    assert not set(key) & set("/\\#?")
    assert all(ord(character) <= 0xFFFD for character in key)
    assert key.encode("utf-8").decode("utf-8") == key


@given(st.lists(st.text(st.characters(max_codepoint=0xFFFD, exclude_categories=["Cs"]), min_size=1), min_size=2))
def test_keys_of_the_basic_plane_sort_alike_everywhere(keys: list[str]) -> None:
    assert sorted(keys) == sorted(keys, key=lambda key: key.encode("utf-16-be"))
    assert sorted(keys) == sorted(keys, key=lambda key: key.encode("utf-8"))


@pytest.mark.parametrize("key", ["😀", "a\U00010000", "\ufffe", "\uffff", "\ud800"])
def test_a_character_beyond_the_basic_plane_is_refused_in_keys(key: str) -> None:
    with pytest.raises(ValueError, match="may not be in a key"):
        checks.check_key(key)


@pytest.mark.parametrize("count", range(31_995, 32_001))
def test_a_property_may_have_32000_units(count: int) -> None:
    assert checks.check_columns("k", {"c": "x" * count}) == count + 1


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"c": "x" * 32_001}, "row 'task:1', column c has 32001 characters; the limit is 32000"),
        ({"c": "😀" * 16_000 + "x"}, "row 'task:1', column c has 32001 characters; the limit is 32000"),
        ({f"c{n}": n for n in range(251)}, "row 'task:1' has 251 columns; the limit is 250"),
        ({f"c{n:02}": "x" * 31_250 for n in range(16)}, "row 'task:1' has 500048 characters; the limit is 500000"),
    ],
)
def test_a_sentence_names_row_column_and_limit(columns: Columns, words: str) -> None:
    with pytest.raises(TooLarge) as caught:
        checks.check_columns("task:1", columns)
    assert str(caught.value) == words


def test_a_long_key_is_shortened_in_sentences() -> None:
    with pytest.raises(TooLarge) as caught:
        checks.check_key("k" * 10_000)
    assert len(str(caught.value)) < 250


def test_a_row_may_have_500000_units() -> None:
    columns = {f"c{n:02}": "x" * 31_247 for n in range(16)}
    assert checks.check_columns("k", columns) == limits.ROW_CHARS_MAX
    with pytest.raises(TooLarge):
        checks.check_columns("k", {**columns, "n": 1})


@pytest.mark.parametrize(
    "value", [limits.INT_MIN, limits.INT_MAX, True, False, 0.0, -1e308, datetime(1602, 1, 1, tzinfo=UTC)]
)
def test_values_at_the_bounds_pass(value: int | float | datetime) -> None:
    checks.check_columns("k", {"c": value})


@pytest.mark.parametrize("value", ["text", 1, True, 60.0, datetime(2026, 1, 1, tzinfo=UTC)])
def test_a_row_is_looked_at_once_whatever_kinds_of_values_it_holds(
    value: str | int | float | datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = checks.check_columns("k", {"c": value})  # its name is known from now on

    def look_again(key: str, columns: Columns) -> int:
        raise AssertionError("the second look takes ten times as long, and every claim writes such a row")

    monkeypatch.setattr(checks, "_check_columns_closely", look_again)
    assert checks.check_columns("k", {"c": value}) == units


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.text(st.characters(exclude_categories=["Cs"])), max_size=5
    )
)
def test_the_byte_bound_is_never_below_what_is_sent(columns: dict[str, str]) -> None:
    sent = json.dumps(columns)
    punctuation = 2 + 6 * len(columns)
    measured = checks.sent_bytes(columns)
    assert len(sent) - punctuation <= measured <= len(sent)
    assert measured <= checks.check_columns("k", columns) * checks._ESCAPED_BYTES_MAX


def test_escapes_count_in_the_bytes_of_a_commit() -> None:
    """30,000 characters in ASCII are 30,000 bytes; in Cyrillic the SDK sends six for each."""
    checks.check_commit("p", [Insert(f"k{n}", {"a": "x" * 30_000, "b": "x" * 5_000}) for n in range(99)])
    with pytest.raises(TooLarge, match="a commit of 20 rows"):
        checks.check_commit("p", [Insert(f"k{n}", {"a": "ж" * 30_000}) for n in range(20)])
    with pytest.raises(TooLarge, match="a commit of 60 rows"):
        checks.check_commit("p", [Insert(f"k{n}", {"a": '"' * 30_000}) for n in range(60)])
    checks.check_commit("p", [Insert(f"k{n}", {"a": "ж" * 30_000}) for n in range(19)])


def test_a_name_that_was_found_wrong_stays_wrong() -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="no name of a column"):
            checks.check_columns("k", {"not-good": 1})
    for _ in range(2):
        checks.check_columns("k", {"good": 1})


def test_a_range_may_name_twelve_texts() -> None:
    checks.check_query("p", Range(where={"a": ["x"] * 6, "b": ["y"] * 6}), 1)
    with pytest.raises(ValueError, match="names 13 texts; the limit is 12"):
        checks.check_query("p", Range(where={"a": ["x"] * 6, "b": ["y"] * 7}), 1)
    for rows in (Range(where={"a eq 'x' or b": ["x"]}), Range(select=["a,b"]), Range(where={"": ["x"]})):
        with pytest.raises(ValueError, match="no name of a column"):
            checks.check_query("p", rows, 1)
    with pytest.raises(ValueError, match="may not be in a key"):
        checks.check_query("p", Range("a/b"), 1)


@pytest.mark.parametrize("etag", ["1", "W/\"datetime'2024-01-01T00%3A00%3A00.0000000Z'\"", "x" * 200])
def test_etags_are_taken_as_they_come(etag: str) -> None:
    checks.check_commit("p", [Merge("a", etag, {})])


@pytest.mark.parametrize("name", ["abc", "taskgraph-work-linux", "a" * 63, "0-0"])
def test_names_of_queues_that_the_cloud_takes(name: str) -> None:
    checks.check_queue_name(name)


@pytest.mark.parametrize("name", ["ab", "a" * 64, "a--b", "-ab", "ab-", "aB1", "a_b", "abc\n"])
def test_names_of_queues_that_the_cloud_refuses(name: str) -> None:
    with pytest.raises(ValueError, match="queue name"):
        checks.check_queue_name(name)


@given(st.text(min_size=1, max_size=50))
def test_a_body_that_passes_survives_xml(body: str) -> None:
    from xml.etree import ElementTree

    try:
        checks.check_send("queue", [body], 0)
    except ValueError:
        return
    element = ElementTree.Element("text")
    element.text = body
    assert ElementTree.fromstring(ElementTree.tostring(element, "utf-8")).text == body  # noqa: S314  # our own


ODD_TEXTS: Final = (
    "",
    "\n",
    "a\nb",
    "a\n",
    "é",
    "😀",
    "\ud800",
    "a/b",
    "k" * 513,
    "*",
    " ",
    "1 ",
    "²",
    "٣",
    "0x1f",
    "01",
)


@pytest.mark.parametrize("odd", ODD_TEXTS)
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("what", ["key", "etag"])
def test_many_are_held_to_what_one_is_held_to(odd: str, place: int, what: str) -> None:
    """Keys and etags of a commit are looked at together, and one by one only where one is unusual."""

    def change(number: int, text: str) -> Merge:
        return Merge(text, "1", {}) if what == "key" else Merge(f"k{number}", text, {})

    def refusal(changes: Sequence[Merge]) -> object:
        try:
            checks.check_commit("p", changes)
        except (ValueError, TooLarge) as error:
            return type(error), str(error).replace(f"'k{place}'", "'k0'")
        return None

    changes = [change(number, f"{number + 10}") for number in range(3)]
    changes[place] = change(place, odd)
    assert refusal(changes) == refusal([change(0, odd)])


def test_a_row_stands_once_in_a_commit() -> None:
    with pytest.raises(ValueError, match="row 'b' stands twice in one commit"):
        checks.check_commit("p", [Insert("a", {}), Insert("b", {}), Delete("c", "1"), Merge("b", "1", {})])
