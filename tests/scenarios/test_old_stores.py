"""A store full of finished graphs: what is asked of it does not grow with them, but for lists of what is finished."""

from collections.abc import Awaitable, Callable

from taskgraph.documents.read import document_from_object
from taskgraph.engine.commit import Records
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.housekeeping import keep_house
from taskgraph.engine.store_times import examine_store
from taskgraph.engine.submission import submit
from taskgraph.engine.sweep import sweep
from taskgraph.model.names import ALL
from taskgraph.queries.graphs import Queries
from taskgraph.queries.overview import Overview
from taskgraph.queries.values import GraphsWanted
from taskgraph.storage.tables import Page, Range, Replace, query_all
from taskgraph.testing import MemoryLogs
from tests.scenarios.stage import Stage, memory_stage
from tests.scenarios.test_large_views import Counted, counted


async def old_store(finished: int, *, team: str = "web") -> Stage:
    """A stage with a live graph, behind which so many have finished within an hour."""
    stage = memory_stage()
    stage.graph_id = "alive"
    await stage.submit(document_from_object({"tags": {"team": "data"}, "tasks": {"a": {}}}))
    for number in range(finished):
        stage.clock.advance(3_600.0 / finished)
        stage.graph_id = f"g{number:03}"
        await stage.submit(document_from_object({"tags": {"team": team}, "tasks": {"a": {}}}))
        claimed = await stage.claim("a")
        await stage.deliver(stage.completed(claimed))
        assert await stage.queries.state(stage.graph_id) == "finished"
    return stage


async def reads_of(stage: Stage) -> dict[str, int]:
    """Look -> how many reads it takes."""
    queries, tables, _ = counted(stage)
    handlers = Handlers(Records(tables, stage.clock), stage.queues, stage.clock, stage.names)
    looks: dict[str, Callable[[], Awaitable[object]]] = {
        "running": lambda: queries.graphs(wanted=GraphsWanted("running"), counted=True),
        "paused": lambda: queries.graphs(wanted=GraphsWanted("paused")),
        "tag": lambda: queries.graphs(wanted=GraphsWanted(tags={"team": "data"})),
        "name": lambda: queries.graphs(wanted=GraphsWanted(name="none")),
        "ids": lambda: queries.graphs(wanted=GraphsWanted(ids=["al*"])),
        "newest": lambda: queries.graphs(limit=3),
        "status": lambda: queries.status("g000"),
        "top": lambda: Overview(tables, stage.queues, stage.clock, stage.names).look(),
        "doctor": lambda: examine_store(tables, None, stage.clock.now()),
        "sweep": lambda: sweep(handlers, logs=MemoryLogs()),
        "house": lambda: keep_house(handlers, MemoryLogs()),
        "submit": lambda: submit(handlers, "new", document_from_object({"tasks": {"a": {}}})),
    }
    reads: dict[str, int] = {}
    for name, look in looks.items():
        assert tables.reads >= 0  # from here on
        await look()
        reads[name] = tables.reads
    return reads


async def test_no_look_takes_more_reads_of_a_store_that_is_full_of_finished_graphs() -> None:
    few, many = await reads_of(await old_store(3)), await reads_of(await old_store(60))
    assert few == many
    assert few["running"] == 4, "the live ones, a page of the list, and the row and the journal of the one that is"
    assert few["tag"] == few["ids"] == 2


class ShortPages(Counted):
    """Tables whose pages hold five rows."""

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        return await super().query(partition, rows, limit=min(limit, 5), continuation=continuation)


async def test_what_is_live_is_found_behind_many_pages_of_what_is_finished() -> None:
    stage = await old_store(12)
    tables = ShortPages(stage.tables)
    queries = Queries(tables, stage.queues, stage.clock, stage.names)
    assert [each.graph_id for each in await queries.graphs(wanted=GraphsWanted("running"))] == ["alive"]
    assert (tables.gets, tables.pages) == (1, 4)
    stage.graph_id = "next"
    await stage.submit(document_from_object({"tasks": {"a": {}}}))
    assert [each.graph_id for each in await queries.graphs(limit=1, wanted=GraphsWanted("running"))] == ["next"]
    found, after = await queries.graphs_after(
        "", limit=9, schedule="", wanted=GraphsWanted("running"), counted=False, pages_max=1
    )
    assert [each.graph_id for each in found] == ["next"]
    found, after = await queries.graphs_after(
        after, limit=9, schedule="", wanted=GraphsWanted("running"), counted=False
    )
    assert [each.graph_id for each in found] == ["alive"]


async def test_tags_are_found_that_the_list_does_not_have() -> None:
    """Of graphs of before version 0.4, and of those with long ones."""
    stage = await old_store(2, team="x" * 1_000)
    assert [each.graph_id for each in await stage.queries.graphs(wanted=GraphsWanted(tags={"team": None}))] == [
        "g001",
        "g000",
        "alive",
    ]
    rows = await query_all(stage.tables, ALL, Range())
    assert ["tags" in row.columns for row in rows] == [False, False, True]
    old = {name: value for name, value in rows[-1].columns.items() if name != "tags"}
    await stage.tables.commit(ALL, [Replace(rows[-1].key, rows[-1].etag, old)])
    wanted = GraphsWanted(tags={"team": "data"})
    assert [each.graph_id for each in await stage.queries.graphs(wanted=wanted)] == ["alive"]
