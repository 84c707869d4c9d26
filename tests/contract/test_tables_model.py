"""Tables against a dict: whatever is done, in whatever order, both say the same."""

import asyncio
import secrets
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from taskgraph.model.clock import SystemClock
from taskgraph.model.columns import Columns, Value
from taskgraph.model.errors import Conflict
from taskgraph.storage.azure.account import AzureStore
from taskgraph.storage.sqlite.store import EmbeddedStore
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Range, Replace, Row
from taskgraph.testing import ManualClock
from tests.azure_sdk import open_store
from tests.conftest import CLIENTS

_T = TypeVar("_T")

PARTITIONS = st.sampled_from(["p", "P", "p q"])
KEYS = st.sampled_from(["a", "A", "a:1", "a;", "b", "it's", "z%", "é"])
TEXTS = st.one_of(
    st.sampled_from(["", "x", "y", "' or 'x' eq 'x", '","state":"x"']),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
TIMES = st.datetimes(datetime(1602, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC))
VALUES: st.SearchStrategy[Value] = st.one_of(
    TEXTS,
    st.integers(-(2**31), 2**31 - 1),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    TIMES,
)
COLUMNS = st.dictionaries(st.sampled_from(["state", "target", "n", "unknown"]), VALUES, max_size=4)


@dataclass(frozen=True)
class Intent:
    """A change before it has an etag. fresh: whether it shall carry the row's etag of now, or an earlier one."""

    kind: str
    key: str
    columns: Columns
    fresh: bool


INTENTS = st.lists(
    st.builds(
        Intent,
        st.sampled_from(["insert", "merge", "merge", "replace", "delete"]),
        KEYS,
        COLUMNS,
        st.integers(0, 9).map(bool),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda intent: intent.key,
)

Store = EmbeddedStore | AzureStore


class TablesMachine(RuleBasedStateMachine):
    """Rules: commit, get, query by pages, open the store anew. The model is a dict and the etags ever given."""

    open_store: Callable[[Path], Store]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.name = f"m{secrets.token_hex(6)}"
        self.model: dict[tuple[str, str], Row] = {}
        self.given: dict[tuple[str, str], list[str]] = {}  # every etag that a row has ever had
        self.reopen()

    def run(self, work: Awaitable[_T]) -> _T:
        async def wrapped() -> _T:
            return await work

        return self.runner.run(wrapped())

    def reopen(self) -> None:
        self.store = type(self).open_store(Path(self.folder.name))
        self.tables = self.store.tables(self.name)

    def teardown(self) -> None:
        self.run(self.store.close())
        self.runner.close()
        self.folder.cleanup()

    @rule(partition=PARTITIONS, intents=INTENTS)
    def commit(self, partition: str, intents: Sequence[Intent]) -> None:
        changes: list[Change] = []
        failing: list[int] = []
        for index, intent in enumerate(intents):
            row = self.model.get((partition, intent.key))
            earlier = self.given.get((partition, intent.key), [])
            if intent.kind == "insert":
                changes.append(Insert(intent.key, intent.columns))
                good = row is None
            else:
                # Without an earlier etag of this row, any that has the right form will do: it never was this row's.
                etag = (
                    row.etag
                    if row and intent.fresh
                    else next(iter(earlier), "W/\"datetime'2000-01-01T00%3A00%3A00Z'\"")
                )
                good = row is not None and row.etag == etag
                if intent.kind == "delete":
                    changes.append(Delete(intent.key, etag))
                else:
                    kind = Merge if intent.kind == "merge" else Replace
                    changes.append(kind(intent.key, etag, intent.columns))
            if not good:
                failing.append(index)
        if failing:
            with pytest.raises(Conflict) as caught:
                self.run(self.tables.commit(partition, changes))
            assert caught.value.index in failing
            return
        etags = self.run(self.tables.commit(partition, changes))
        for change, given in zip(changes, etags, strict=True):
            place = (partition, change.key)
            if isinstance(change, Delete):
                assert given is None
                del self.model[place]
                continue
            assert given is not None
            assert given not in self.given.setdefault(place, [])
            self.given[place].append(given)
            old = self.model[place].columns if isinstance(change, Merge) else {}
            self.model[place] = Row(change.key, given, {**old, **change.columns})

    @rule(partition=PARTITIONS, keys=st.lists(KEYS, max_size=6))
    def get(self, partition: str, keys: Sequence[str]) -> None:
        expected = [self.model.get((partition, key)) for key in keys]
        assert self.run(self.tables.get(partition, keys)) == expected

    @rule(
        partition=PARTITIONS,
        start=st.one_of(st.just(""), KEYS),
        end=st.one_of(st.just(""), KEYS),
        where=st.dictionaries(st.sampled_from(["state", "target"]), st.lists(TEXTS, max_size=3), max_size=2),
        select=st.one_of(st.none(), st.lists(st.sampled_from(["state", "n", "nowhere"]), unique=True)),
        limit=st.integers(1, 9),
    )
    def query(
        self, partition: str, start: str, end: str, where: dict[str, list[str]], select: list[str] | None, limit: int
    ) -> None:
        rows = Range(start, end, where, select)
        found: list[Row] = []
        continuation: str | None = None
        while True:
            page = self.run(self.tables.query(partition, rows, limit=limit, continuation=continuation))
            assert len(page.rows) <= limit
            found.extend(page.rows)
            continuation = page.continuation
            if continuation is None:
                break
        assert found == self.expected(partition, rows)

    def expected(self, partition: str, rows: Range) -> list[Row]:
        return [
            Row(
                row.key,
                row.etag,
                {name: value for name, value in row.columns.items() if rows.select is None or name in rows.select},
            )
            for (place, key), row in sorted(self.model.items(), key=lambda item: item[0])
            if place == partition
            and key >= rows.start
            and (not rows.end or key < rows.end)
            and all(row.columns.get(name) in texts for name, texts in rows.where.items())
        ]

    @precondition(lambda self: self.model)
    @rule()
    def open_anew(self) -> None:
        self.run(self.store.close())
        self.reopen()

    @invariant()
    def types_are_kept(self) -> None:
        for partition in ("p", "P"):
            for row in self.run(self.tables.query(partition, Range())).rows:
                wanted = self.model[(partition, row.key)].columns
                assert {name: type(value) for name, value in row.columns.items()} == {
                    name: type(value) for name, value in wanted.items()
                }


def test_the_embedded_store_is_a_dict_with_conditions() -> None:
    class Machine(TablesMachine):
        open_store = staticmethod(lambda folder: EmbeddedStore(folder / "store.db", ManualClock()))

    run_state_machine_as_test(Machine, settings=settings(max_examples=40, stateful_step_count=30, deadline=None))


@pytest.mark.azurite
@pytest.mark.parametrize("thin", CLIENTS)
def test_the_cloud_store_is_a_dict_with_conditions(azurite: str, thin: bool) -> None:
    class Machine(TablesMachine):
        open_store = staticmethod(lambda folder: open_store(azurite, SystemClock(), thin=thin))

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=10, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
