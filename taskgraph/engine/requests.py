"""Answer requests: take an extension or an edit from staged to done or refused.

Requests of one graph are answered one after the other, and any call goes on with the one that is under way. `plans`
plans the changes, and a transition decides them.
"""

from taskgraph.documents.edit_document import read_edit
from taskgraph.engine.commit import Records
from taskgraph.engine.live_index import leave_live
from taskgraph.engine.plans import plan_edit, plan_extension, request_text
from taskgraph.engine.transact import KeepAlive, Transactor, no_keep_alive
from taskgraph.model.errors import IntegrityError, InvalidGraph, NoGraph, NotFound
from taskgraph.model.ids import GRAPH
from taskgraph.model.states import GRAPH_ENDED, GRAPH_GONE
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.edit import EditGraph
from taskgraph.protocol.extension import DeferExtension, RefuseRequest, is_deferring, request_key
from taskgraph.protocol.extension_plan import EDIT, ExtensionPlan
from taskgraph.protocol.rows import Draft
from taskgraph.storage.tables import Range, Row, query_all


async def late_requests(records: Records, graph_id: str) -> list[str]:
    """Ids of the requests that are staged."""
    staged = Range("request:", "request;", where={"state": ("staged",)}, select=("state",))
    rows = await query_all(records.tables, graph_id, staged)
    return [row.key.removeprefix("request:") for row in rows]


async def answer_request(
    transactor: Transactor, graph_id: str, request: str, *, keep_alive: KeepAlive = no_keep_alive
) -> None:
    """Answer one request, after the extension that is under way, if any. Raises NotFound."""
    try:
        await _answer_request(transactor, graph_id, request, keep_alive)
    except (NotFound, IntegrityError):
        (graph,) = await transactor.records.tables.get(graph_id, [GRAPH])
        if graph is None or graph.columns.get("state") not in GRAPH_GONE:
            raise  # otherwise its rows are being deleted, and a missing one is no error


async def _answer_request(transactor: Transactor, graph_id: str, request: str, keep_alive: KeepAlive) -> None:
    key = request_key(request)
    while True:
        rows: dict[str, Row | None] = {}
        await transactor.records.load(graph_id, [GRAPH, key], rows)
        graph, head = rows[GRAPH], rows[key]
        if graph is None:
            raise NoGraph(graph_id)
        if graph.columns.get("state") in GRAPH_GONE:
            return
        if head is None:
            raise NotFound(f"graph {graph_id} has no request {request}")
        if head.columns.get("state") not in ("staged", "accepted"):
            if graph.columns.get("state") in GRAPH_ENDED:
                await leave_live(transactor.records, graph_id)  # it stayed in the index for this request
            return
        under_way = str(graph.columns.get("extending", ""))
        if under_way and under_way != request:
            await answer_request(transactor, graph_id, under_way, keep_alive=keep_alive)
            continue
        if head.columns.get("kind") == EDIT:
            await _edit(transactor, graph_id, request, graph, head, keep_alive)
            continue
        if head.columns.get("state") == "staged" and is_deferring(Draft(GRAPH, graph.columns, None)):
            deferral = DeferExtension(request)
            (answer,) = await transactor.transition(graph_id, [deferral], rows=rows, keep_alive=keep_alive)
            if answer.error is not None:
                raise answer.error
            if answer.outcome is Outcome.STALE:
                continue  # it was resumed, or is over
            return
        try:
            plan = await plan_extension(transactor.records, graph_id, graph, head, now=transactor.clock.now())
        except InvalidGraph as error:
            raise IntegrityError(f"request {request} of graph {graph_id} holds no valid document") from error
        await keep_alive()
        await _push(transactor, graph_id, key, plan, rows, keep_alive)


async def _edit(
    transactor: Transactor, graph_id: str, request: str, graph: Row, head: Row, keep_alive: KeepAlive
) -> None:
    """Plan an edit for the graph as it is, and try it once; the caller plans again if the graph has changed."""
    try:
        document = read_edit(await request_text(transactor.records, graph_id, request), source=head.key)
    except InvalidGraph as error:
        raise IntegrityError(f"request {request} of graph {graph_id} holds no valid document") from error
    again = "revision" in head.columns
    plan = await plan_edit(transactor.records, graph_id, graph, document, request, again=again)
    await keep_alive()
    (answer,) = await transactor.transition(graph_id, [plan], keep_alive=keep_alive)
    if answer.error is not None and isinstance(plan, EditGraph):
        # It is more than one commit takes, or rests on rows that contradict each other.
        refusal = RefuseRequest(request, str(answer.error), plan.revision)
        (answer,) = await transactor.transition(graph_id, [refusal], keep_alive=keep_alive)
    if answer.error is not None:
        raise answer.error


async def _push(
    transactor: Transactor,
    graph_id: str,
    key: str,
    plan: ExtensionPlan,
    rows: dict[str, Row | None],
    keep_alive: KeepAlive,
) -> None:
    """Take the steps of a plan until the request is answered, or the plan is no longer valid."""
    while True:
        head = rows.get(key)
        if head is None:
            await transactor.records.load(graph_id, [key], rows)
            head = rows[key]
        if head is None:
            raise IntegrityError(f"graph {graph_id}: row {key} is gone")
        item = plan.step(head)
        if item is None:
            return
        rows = {each: rows[each] for each in (GRAPH, key) if each in rows}  # inserted rows need not be kept
        (answer,) = await transactor.transition(graph_id, [item], keep_alive=keep_alive, rows=rows)
        if answer.error is not None:
            raise answer.error
        if answer.outcome in (Outcome.STALE, Outcome.REPEATED):
            # Another caller pushes it too. From acceptance on any plan is the right one; before, plan again.
            rows.clear()
            await transactor.records.load(graph_id, [key], rows)
            fresh = rows[key]
            if plan.whole or fresh is None or fresh.columns.get("state") != "accepted":
                return
