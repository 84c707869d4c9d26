"""Rows by a link: what is out of sight, what is refused, and what becomes of requests that are added."""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import unquote

import pytest

from taskgraph.model.errors import Conflict, OutOfSight, Refused, StorageUnavailable, Unclear
from taskgraph.model.names import LIVE
from taskgraph.queries.targets import closed
from taskgraph.queries.workers import WORKERS, crew
from taskgraph.storage.azure.linked import Link, LinkedTables
from taskgraph.storage.sight import UnseenQueues
from taskgraph.storage.tables import Insert, Merge, Range, or_none
from taskgraph.testing import HurriedClock

_PLACE: Final = "https://account.example/graphs"
_SAS: Final = "sp=r&spk=a&epk=a&sig=s"


class Service:
    """Gives these answers, one after the other, and notes what was asked."""

    def __init__(self, *answers: tuple[int, str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, str]] = []

    async def __call__(self, method: str, address: str, body: str) -> Any:
        self.asked.append((method, address, body))
        status, text = self.answers.pop(0)
        return SimpleNamespace(status=status, next="", text=text)


def _tables(service: Service, *, add: str = "", live: str = "") -> LinkedTables:
    return LinkedTables(Link(_PLACE, _SAS, add, live), service, HurriedClock())


def _error(code: str) -> str:
    return json.dumps({"odata.error": {"code": code, "message": {"value": ""}}})


async def test_another_partition_is_out_of_sight_and_not_asked_for() -> None:
    service = Service()
    tables = _tables(service)
    with pytest.raises(OutOfSight):
        await tables.get(WORKERS, ["one"])
    assert await or_none(tables.query("index:gates", Range())) is None
    assert await closed(tables) == {}
    found = await crew(tables, HurriedClock().now())
    assert (found.known, found.handled, found.about("far", {})) == (
        False,
        True,
        "which workers there are is not seen from here",
    )
    with pytest.raises(OutOfSight):
        await UnseenQueues().count("taskgraph-work-far")
    assert service.asked == []


async def test_a_row_is_read_with_its_types_and_a_missing_one_is_none() -> None:
    row = {"odata.etag": "e", "RowKey": "k", "n": 1, "t": "2026-01-01T00:00:00Z", "t@odata.type": "Edm.DateTime"}
    service = Service((200, json.dumps(row)), (404, _error("ResourceNotFound")))
    (found,) = await _tables(service).get("a", ["task:it's"])
    assert found is not None
    assert (found.etag, found.columns["n"], str(found.columns["t"])) == ("e", 1, "2026-01-01 00:00:00+00:00")
    assert unquote(service.asked[0][1]) == f"{_PLACE}(PartitionKey='a',RowKey='task:it''s')?{_SAS}"
    assert await _tables(service).get("a", ["none"]) == [None]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((403, _error("AuthorizationFailure")), Refused),
        ((0, ""), StorageUnavailable),
        ((503, ""), StorageUnavailable),
    ],
)
async def test_what_is_not_answered_is_said_by_its_error(answer: tuple[int, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        await _tables(Service(answer)).query("a", Range())


@pytest.mark.parametrize(
    ("add", "partition", "change"),
    [
        ("", "a", Insert("request:one", {})),
        ("sig=add", "a", Insert("task:one", {})),
        ("sig=add", "a", Merge("request:one", "e", {})),
        ("sig=add", "b", Insert("request:one", {})),
        ("sig=add", LIVE, Insert("a", {})),
    ],
)
async def test_a_change_that_a_link_does_not_open_is_refused_unsent(add: str, partition: str, change: Any) -> None:
    service = Service()
    words = "alters no row" if add and partition == "a" else "--changes"
    with pytest.raises(Refused, match=words):
        await _tables(service, add=add).commit(partition, [change])
    assert service.asked == []


async def test_requests_are_added_in_their_order_by_the_signature_for_it() -> None:
    service = Service((204, ""), (201, json.dumps({"odata.etag": "e"})))
    rows: Sequence[Insert] = [
        Insert("request:one:1", {"text": "…"}),
        Insert("request:one", {"state": "staged", "staged": HurriedClock().now()}),
    ]
    assert await _tables(service, add="sig=add").commit("a", rows) == ["inserted", "e"]
    assert [(method, address) for method, address, _ in service.asked] == [("POST", f"{_PLACE}?sig=add")] * 2
    first, last = (json.loads(body) for _, _, body in service.asked)
    assert (first["RowKey"], last["RowKey"]) == ("request:one:1", "request:one")
    assert last == {"PartitionKey": "a", "RowKey": "request:one", "state": "staged"}, "each sweep sends its message"


@pytest.mark.parametrize(
    ("answer", "error"), [((409, _error("EntityAlreadyExists")), Conflict), ((0, ""), Unclear), ((500, ""), Unclear)]
)
async def test_an_insert_that_fails_says_what_is_written(answer: tuple[int, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        await _tables(Service(answer), add="sig=add").commit("a", [Insert("request:one", {})])


async def test_a_graph_is_named_again_a_moment_later_where_it_was_about_to_leave_the_index() -> None:
    there = (409, _error("EntityAlreadyExists"))
    service = Service(there, (204, ""))
    assert await _tables(service, live="sig=live").commit(LIVE, [Insert("a", {})]) == ["inserted"]
    assert [address for _, address, _ in service.asked] == [f"{_PLACE}?sig=live"] * 2
    assert await _tables(Service(there, there), live="sig=live").commit(LIVE, [Insert("a", {})]) == ["there"]
