"""The columns of rows are declared once: the page on them, what versions wrote, and what is selected hold to it."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from taskgraph.model.ids import GRAPH
from taskgraph.model.row_schema import CHECKED, EXPLAINED, KEYS, KINDS, ROWS, SHOWN, WATCHED, row_kind
from tests.explorer import page
from tests.upgrade.keep import FOLDER

PACKAGE: Final = Path(__file__).resolve().parents[2] / "taskgraph"
ID: Final = "D9gLfxJGS4i6MOndRNjb9A"


def names(kind: str) -> set[str]:
    return {each.name for each in ROWS[kind]}


def test_the_page_on_explorers_has_these_columns_and_says_what_they_hold() -> None:
    declared = {kind: {each.name: KINDS[each.kind][0] for each in columns} for kind, columns in ROWS.items()}
    declared[""] = declared.pop("any")
    assert declared.pop("group part").items() <= declared["group"].items()  # one chapter of the page
    assert page.columns() == declared


def test_the_queries_of_the_page_print_of_tasks_what_is_shown_first() -> None:
    for query in page.queries():
        if "RowKey ge 'task:'" in query.filter:
            printed = re.findall(r"\w+:(\w+)", query.words[query.words.index("--query") + 1])
            assert set(printed) <= set(SHOWN), query.title


def rows_of(version: str) -> Iterator[tuple[str, set[str]]]:
    """Kind and columns of every row that programs of a version wrote; a long text goes on over columns."""
    for path in (FOLDER / version).glob("*.json"):
        for partition, rows in json.loads(path.read_text("utf-8"))["partitions"].items():
            for key, columns in rows.items():
                kind = partition if partition.startswith("index:") else row_kind(key)
                yield kind, {re.sub(r"\d+$", "", name) for name in columns}


def test_rows_of_earlier_versions_have_the_columns_of_their_time() -> None:
    versions = sorted(each.name for each in FOLDER.iterdir())
    assert {each.since for columns in ROWS.values() for each in columns} == set(versions)
    for version in versions:
        for kind, columns in rows_of(version):
            known = {each.name for each in (*ROWS["any"], *ROWS[kind]) if each.since <= version}
            assert columns <= known, (version, kind)
            assert {each.name for each in CHECKED[kind] if each.needed} <= columns, (version, kind)


def selects(tree: ast.AST) -> Iterator[tuple[str, set[str]]]:
    """Beginning of the row keys, or "" for a range that is not written out, and the columns that are selected."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            start = call.args[0] if call.args and isinstance(call.args[0], ast.Constant) else None
            for keyword in call.keywords:
                if keyword.arg == "select" and isinstance(keyword.value, ast.Tuple):
                    every = [each.value for each in keyword.value.elts if isinstance(each, ast.Constant)]
                    yield str(start.value).partition(":")[0] if start else "", set(every)


def test_what_is_selected_are_columns_of_these_rows() -> None:
    anywhere = set().union(*map(names, ROWS))
    seen: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for kind, columns in selects(ast.parse(path.read_text("utf-8"))):
            assert columns - {"schema"} <= (names(kind) if kind in ROWS else anywhere), path  # which each row has
            seen.add(kind)
    assert {"task", "request", "group"} <= seen
    assert set(EXPLAINED) - set(WATCHED) >= {"label", "requiresLeft"}
    assert {"state", "run", "target", "held"} <= set(SHOWN) & set(EXPLAINED) & set(WATCHED)


def test_rows_are_known_by_their_keys() -> None:
    keys = {
        GRAPH: GRAPH,
        f"task:{ID}": "task",
        f"join:{GRAPH}:0": "join",
        f"fork:group-{ID}:0-1": "fork",
        f"group:{ID}": "group",
        f"group:{ID}:0001": "group part",
        "request:more": "request",
        "request:more:0": "request part",
        "event:0000000001": "event",
        "limit:graph": "limit",
        f"limit:group-{ID}": "limit",
        "notice:0123456789abcdef": "notice",
        f"definition:{ID}": "definition",
        "name-mapping:x:0000": "name-mapping",
        "written": "written",
    }
    assert {key: row_kind(key) for key in keys} == keys
    assert set(keys.values()) <= ROWS.keys()
    assert all(KEYS.fullmatch(key) for key in keys)
    for other in (f"{GRAPH}:more", "submitting:1", "index:live", "any", f"task:{ID}:1", f"group:{ID}:1", "event:1"):
        assert not KEYS.fullmatch(other), other
    assert row_kind(f"{GRAPH}:more") not in ROWS
