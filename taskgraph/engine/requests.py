"""Answer requests: take an extension, an edit or a planned change from staged to done or refused.

Requests of one graph are answered one after the other, and any call goes on with the one that is under way. `plans`
plans the changes, and a transition decides them. A request that names the digest of a plan is made only if handlers
come to that very plan (`protocol.planned`).
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from taskgraph.documents.edit_document import read_edit
from taskgraph.engine import control
from taskgraph.engine.commit import Records
from taskgraph.engine.foresight import Copy, Foreseen, foresee
from taskgraph.engine.live_index import leave_live
from taskgraph.engine.plans import plan_edit, plan_extension, request_text
from taskgraph.engine.transact import KeepAlive, Transactor, back_off, no_keep_alive
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, IntegrityError, InvalidGraph, NoGraph, NotFound, Refused
from taskgraph.model.ids import GRAPH
from taskgraph.model.messages import AddTasks, Edit, Message, parse
from taskgraph.model.states import GRAPH_ENDED, GRAPH_GONE, GRAPH_SEALED
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.decide import Item, asked
from taskgraph.protocol.edit import EditGraph
from taskgraph.protocol.extension import PLAN, AcceptExtension, DeferExtension, RefuseRequest, is_deferring, request_key
from taskgraph.protocol.extension_plan import EDIT, ExtensionPlan
from taskgraph.protocol.planned import CHANGE, MOVED, FinishChange, TakeUp
from taskgraph.protocol.rows import Draft
from taskgraph.storage.tables import Merge, Range, Row, query_all

if TYPE_CHECKING:
    from taskgraph.engine.handlers import Handlers

_RESTS_ON_SHARE: Final = 0.6  # of a commit that takes a plan up: for rows that it rests on
_ALONG: Final = (30, 10, 1, 0)  # items of a change that may go along, too: as many as fit


async def late_requests(records: Records, graph_id: str) -> list[str]:
    """Ids of the requests that are staged, and of changes that were taken up: the graph may have ended by these."""
    looked_at = ("state", "kind")
    opened = Range("request:", "request;", where={"state": ("staged", "accepted")}, select=looked_at)
    return [
        row.key.removeprefix("request:")
        for row in await query_all(records.tables, graph_id, opened)
        if row.columns["state"] == "staged" or row.columns.get("kind") == CHANGE
    ]


async def answer_request(
    transactor: "Handlers", graph_id: str, request: str, *, keep_alive: KeepAlive = no_keep_alive
) -> None:
    """Answer one request, after the extension that is under way, if any. Raises NotFound."""
    try:
        await _answer_request(transactor, graph_id, request, keep_alive)
    except (NotFound, IntegrityError):
        (graph,) = await transactor.records.tables.get(graph_id, [GRAPH])
        if graph is None or graph.columns.get("state") not in GRAPH_GONE | GRAPH_SEALED:
            raise  # otherwise its rows are being deleted, and a missing one is no error


async def _answer_request(transactor: "Handlers", graph_id: str, request: str, keep_alive: KeepAlive) -> None:
    key = request_key(request)
    attempts = 0
    while True:
        rows: dict[str, Row | None] = {}
        await transactor.records.load(graph_id, [GRAPH, key], rows)
        graph, head = rows[GRAPH], rows[key]
        if graph is None:
            raise NoGraph(graph_id)
        if graph.columns.get("state") in GRAPH_GONE | GRAPH_SEALED:
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
        plan: Foreseen | None = None
        if head.columns.get(PLAN) and head.columns.get("state") == "staged":
            plan = await _plan_again(transactor, graph_id, request, head)
            if plan is None:
                attempts += 1
                if attempts > limits.COMMIT_ATTEMPTS_MAX:
                    raise Conflict(f"graph {graph_id}: facts came faster than request {request} could be planned again")
                await back_off(transactor.clock, attempts)
                continue
            await keep_alive()
        if head.columns.get("kind") == CHANGE:
            await _change(transactor, graph_id, request, head, plan, keep_alive)
            continue
        if head.columns.get("kind") == EDIT:
            await _edit(transactor, graph_id, request, graph, head, plan, keep_alive)
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
            steps = await plan_extension(transactor.records, graph_id, graph, head, now=transactor.clock.now())
        except InvalidGraph as error:
            raise IntegrityError(f"request {request} of graph {graph_id} holds no valid document") from error
        await keep_alive()
        await _push(transactor, graph_id, key, steps, rows, plan, keep_alive)


async def _plan_again(handlers: "Handlers", graph_id: str, request: str, head: Row) -> Foreseen | None:
    """The plan of a request, if it is the one that it names; None if it is refused now, or facts came meanwhile."""
    copy = Copy(handlers)
    await copy.tables.commit(graph_id, [Merge(head.key, head.etag, {PLAN: ""})])
    messages: Sequence[Message] = [(Edit if head.columns.get("kind") == EDIT else AddTasks)(graph_id, request)]
    if head.columns.get("kind") == CHANGE:
        messages = await _messages(handlers.records, graph_id, request)
    try:
        plan = await foresee(handlers, graph_id, messages, copy)
    except (Conflict, IntegrityError, NotFound):  # reach: plans
        return None  # rows of different moments; what is wrong with them for good is met once more, and given back
    if plan.digest == head.columns.get(PLAN):
        return plan
    if await handlers.records.end(graph_id) == plan.event:  # else it was made of rows of different moments
        refusal = RefuseRequest(request, f"{MOVED}: its plan is {plan.digest} now")
        await _answer(handlers, graph_id, refusal, no_keep_alive)
    return None


async def _messages(records: Records, graph_id: str, request: str) -> list[Message]:
    return [parse(json.dumps(each)) for each in json.loads(await request_text(records, graph_id, request))]


async def _change(
    handlers: "Handlers", graph_id: str, request: str, head: Row, plan: Foreseen | None, keep_alive: KeepAlive
) -> None:
    """Take a planned change up, or go on with it. plan: while it is staged."""
    messages = await _messages(handlers.records, graph_id, request)
    if plan is not None:
        items = [item for each in messages for item in await control.fence_of(handlers, each) or asked(each)]
        for along in _ALONG:
            try:
                begun = await _answer(
                    handlers, graph_id, _taken_up(handlers.records, request, plan, *items[:along]), keep_alive
                )
                break
            except IntegrityError:
                if not along:
                    raise  # it does not fit one commit, or rests on rows that contradict each other
        if not begun:
            return  # facts came meanwhile, or another call takes it up
    for handled in await handlers.handle(graph_id, messages, keep_alive=keep_alive):
        if handled.error is not None:
            raise handled.error
    await _answer(handlers, graph_id, FinishChange(request), keep_alive)


def _taken_up(records: Records, request: str, plan: Foreseen, *items: Item) -> TakeUp:
    most = int(min(records.changes_max, limits.COMMIT_CHANGES_MAX) * _RESTS_ON_SHARE)
    return TakeUp(request, plan.event, plan.rests_on[:most], items)


async def _answer(transactor: Transactor, graph_id: str, item: Item, keep_alive: KeepAlive) -> bool:
    """Decide and commit one item; whether it was applied. Raises what cannot be decided."""
    (answer,) = await transactor.transition(graph_id, [item], keep_alive=keep_alive)
    if answer.error is not None:
        raise answer.error
    return answer.outcome is Outcome.APPLIED


async def _edit(
    transactor: Transactor,
    graph_id: str,
    request: str,
    graph: Row,
    head: Row,
    planned: Foreseen | None,
    keep_alive: KeepAlive,
) -> None:
    """Plan an edit for the graph as it is, and try it once; the caller plans again if the graph has changed."""
    try:
        document = read_edit(await request_text(transactor.records, graph_id, request), source=head.key)
    except InvalidGraph as error:
        raise IntegrityError(f"request {request} of graph {graph_id} holds no valid document") from error
    again = "revision" in head.columns
    plan = await plan_edit(transactor.records, graph_id, graph, document, request, again=again)
    await keep_alive()
    item = (
        _taken_up(transactor.records, request, planned, plan)
        if planned is not None and isinstance(plan, EditGraph)
        else plan
    )
    (answer,) = await transactor.transition(graph_id, [item], keep_alive=keep_alive)
    if isinstance(answer.error, Refused):
        return  # the graph has changed since it was planned
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
    planned: Foreseen | None,
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
        if planned is not None and isinstance(item, AcceptExtension):
            item = _taken_up(transactor.records, plan.request, planned, item)
        rows = {each: rows[each] for each in (GRAPH, key) if each in rows}  # inserted rows need not be kept
        (answer,) = await transactor.transition(graph_id, [item], keep_alive=keep_alive, rows=rows)
        if answer.error is not None and not isinstance(answer.error, Refused):
            raise answer.error
        if answer.error is not None or answer.outcome in (Outcome.STALE, Outcome.REPEATED):
            # Another caller pushes it too. A plan made since it was accepted is the right one; before, plan again: what
            # holds the new tasks back, or limits them, may have changed in between.
            planned_before = head.columns.get("state") == "staged"
            rows.clear()
            await transactor.records.load(graph_id, [key], rows)
            fresh = rows[key]
            if planned_before or plan.whole or fresh is None or fresh.columns.get("state") != "accepted":
                return
