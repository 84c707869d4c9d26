"""Bring a graph that lives to another store, by the rules of `protocol.transfer`; it goes on there where it stood.

    1  here   the graph is held back          what runs comes to its end; nothing new begins
    2  here   task-graph   state moving       the fence, with a token; not while anything runs
    3  here   every row that changes          is sealed
    4  there  task-graph   state restoring    with the token; where the copy has come to
    5  there  every row                       in the order of their keys, sealed; then files of runs, and indexes
    6  there  task-graph   whole              all of it is there
    7  here   task-graph   state moved        it does not live here any more, and never will by this token
    8  there  every row                       is opened
    9  there  task-graph   its old state      it lives there; what was held back goes on
    10 here   task-graph   received           its rows, files and indexes are taken away; a tombstone says where it is

Interrupted anywhere, the same call goes on: it finds what is done. Before `moved` a person may have it stay (`stay`).
Every commit on a row here from the third line on, and there up to the eighth, writes the graph row under its etag, so a
call that comes late writes nothing. Files of runs have no etag: a piece is added where it belongs, or not at all.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from taskgraph.engine import control, delete, notifier, old_tasks
from taskgraph.engine.archive import log_files
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.live_index import enter_live, leave_live
from taskgraph.engine.progress import Progress, no_progress
from taskgraph.engine.requests import answer_request
from taskgraph.engine.restore import enter_old_tasks, list_restored
from taskgraph.engine.sweep import Swept, sweep_graph
from taskgraph.engine.transact import back_off
from taskgraph.model import limits
from taskgraph.model.columns import Columns, Value, integer, object_of, texts
from taskgraph.model.errors import Conflict, NoGraph, Refused, TaskgraphError, Unclear
from taskgraph.model.foreign_times import asked_after
from taskgraph.model.ids import GRAPH, reference_of
from taskgraph.model.messages import AddTasks
from taskgraph.model.states import DEPARTING, GRAPH_ENDED, GraphState, TaskState
from taskgraph.model.utf16 import utf16_units
from taskgraph.protocol import notices
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.decide import Item
from taskgraph.protocol.definitions import SCHEMA
from taskgraph.protocol.extension_plan import row_bytes
from taskgraph.protocol.pause import Hold
from taskgraph.protocol.propagation import DEFERRED, GOING
from taskgraph.protocol.rows import is_sealed
from taskgraph.protocol.runs import HandBack
from taskgraph.protocol.transfer import (
    SEALED_KINDS,
    Arrive,
    Confirm,
    Depart,
    Remain,
    Withdraw,
    as_it_arrives,
    opened,
    seal,
    why_not,
)
from taskgraph.storage.logs import StoredLogs
from taskgraph.storage.tables import Change, Insert, Merge, Range, Replace, Row, pages, query_all

log = logging.getLogger("taskgraph.transfer")

_ATTEMPTS_MAX: Final = 10  # of one call
_KEPT: Final = ("created", "tasks", "was", "moved", "movesTo", "transfer", "received", "arrival")  # of a tombstone
_BEHIND: Final = "!"  # a key that begins with another and goes on so comes right behind it


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two stores. name: for people; never with a key."""

    handlers: Handlers
    logs: StoredLogs
    name: str


@dataclass(frozen=True, slots=True)
class Moved:
    """state: of the graph in its new store. rows, files: copied by this call. again: it had come there before."""

    graph_id: str
    state: str
    rows: int = 0
    files: int = 0
    again: bool = False


# --- before it goes ------------------------------------------------------------------------------------------------


async def check(source: Side, target: Side, graph_id: str) -> Row:
    """The graph row here. Raises NoGraph, and Refused where the graph cannot go there; then nothing was written."""
    here, there = await _row(source, graph_id), await _row(target, graph_id)
    if here is None:
        raise NoGraph(graph_id)
    state = str(here.columns.get("state", ""))
    if state in (GraphState.MOVING, GraphState.MOVED):
        if (to := here.columns.get("movesTo")) != target.name:
            has = "has moved" if state == GraphState.MOVED else "is on its way"
            raise Refused(f"graph {graph_id} {has} to {to}", str(state))
        if not here.columns.get("transfer"):
            stays = f"taskgraph transfer {graph_id} --stay"
            raise Refused(f"graph {graph_id} is on its way back: bring that to its end first ({stays})", "stays")
        return here
    if refusal := why_not(state):
        raise Refused(f"graph {graph_id} does not go to another store: {refusal}", state or "conflict")
    if there is not None and not _gives_way(there, here) and not _is_void(there, here):
        what = "is on its way there from another store" if _is_coming(there) else f"is {there.columns.get('state')}"
        raise Refused(f"{target.name} has a graph {graph_id} already, which {what}", "exists")
    return here


def _gives_way(there: Row, here: Row) -> bool:
    """Whether nothing but a tombstone is left there, or what a graph has left that came from there."""
    columns = there.columns
    if columns.get("state") != GraphState.MOVED:
        return columns.get("state") == GraphState.DELETED
    return columns.get("received") is not None or columns.get("transfer") == here.columns.get("arrival")


def _is_coming(there: Row) -> bool:
    return there.columns.get("state") == GraphState.RESTORING and "arrival" in there.columns


def _is_void(there: Row, here: Row) -> bool:
    """Whether it has come by a departure from here that is void, or is being taken away because of that."""
    comes = _is_coming(there) or there.columns.get("state") == GraphState.DELETING
    return comes and str(there.columns.get("arrival", "")) in texts(here.columns, "withdrawn")


async def hold(source: Side, graph_id: str, to: str, by: str = "") -> None:
    """Hold a graph back that is to go. Repeatable; nothing to do for one that has ended, or is on its way."""
    row = await _row(source, graph_id)
    if row is None or row.columns.get("state") not in GOING:
        return
    if DEPARTING not in texts(row.columns, "held"):
        why = f"it goes to {to}"[: limits.REASON_CHARS_MAX]
        await _say(source, graph_id, Hold(DEPARTING, True, _asked(source, row), why, by))
    await control.settle_holds(source.handlers, graph_id)


async def under_way(source: Side, graph_id: str) -> tuple[Sequence[Row], bool]:
    """Rows of tasks that run, and whether it is still to be held back: it departs when there is nothing of both."""
    row = await _row(source, graph_id)
    if row is None or row.columns.get("state") not in GOING:
        return (), False
    running = await _running(source, graph_id)
    held = DEPARTING in texts(row.columns, "held") and row.columns.get("settling") is not True
    return running, not held


async def _running(source: Side, graph_id: str) -> Sequence[Row]:
    wanted = Range("task:", "task;", where={"state": (str(TaskState.RUNNING),)}, select=("run", "claim", "label"))
    return await query_all(source.handlers.records.tables, graph_id, wanted)


async def go_on(source: Side, graph_id: str) -> None:
    """Do what a handler and its sweep would: leases that ended, what is half settled, an extension under way."""
    row = await _row(source, graph_id)
    if row is not None and (request := str(row.columns.get("extending", ""))):
        await answer_request(source.handlers, graph_id, request)
    await sweep_graph(source.handlers, graph_id, Swept())


async def give_up_runs(source: Side, graph_id: str, reason: str) -> int:
    """Take every run under way back from its worker, which ends it: it spends nothing, and begins anew."""
    running, _ = await under_way(source, graph_id)
    items: list[Item] = [
        HandBack(reference_of(row.key), integer(row.columns, "run"), str(row.columns.get("claim", "")), reason)
        for row in running
    ]
    if items:
        await source.handlers.transition(graph_id, items)
    return len(items)


# --- on its way ----------------------------------------------------------------------------------------------------


async def move(source: Side, target: Side, graph_id: str, *, by: str = "", progress: Progress = no_progress) -> Moved:
    """Bring a graph that is held back, or has ended, to another store, or go on with that.

    Raises NoGraph, Refused where it cannot go there, and Conflict when others kept writing: the same call goes on.
    """
    for attempt in range(_ATTEMPTS_MAX):
        try:
            return await _move(source, target, graph_id, by, progress)
        except Conflict as conflict:  # reach: deletion
            if attempt + 1 == _ATTEMPTS_MAX:
                raise
            log.info("graph %s: %s", graph_id, conflict)
            await back_off(source.handlers.clock, attempt)
    raise AssertionError("the last attempt gives or raises")


async def _move(source: Side, target: Side, graph_id: str, by: str, progress: Progress) -> Moved:
    here = await check(source, target, graph_id)
    rows = files = 0
    if here.columns.get("state") not in (GraphState.MOVING, GraphState.MOVED):
        await _depart(source, graph_id, here, target.name, by)
        here = await check(source, target, graph_id)
    token = str(here.columns.get("transfer", ""))
    if here.columns.get("state") == GraphState.MOVING:
        await enter_live(source.handlers.records, graph_id)  # the sweep takes its rows away in the end
        here = await _mark_rows(source, graph_id, here, sealed=True)
        there = await _begin(source, target, graph_id, here, token)
        if there is not None and there.columns.get("whole") is not True:
            there, rows = await _copy(source, target, graph_id, there, integer(here.columns, "tasks"), progress)
            files = await _copy_files(source, target, graph_id)
            await _note_elsewhere(source, target, graph_id, here)
            await _write(target, graph_id, [Replace(GRAPH, there.etag, _whole(here, there, token, source.name))])
        there = await _row(target, graph_id)
        if there is None or there.columns.get("arrival") != token or not _is_whole(there):
            raise Conflict(f"graph {graph_id}: others write it in {target.name}, too")
        await _say(source, graph_id, Confirm(token))
    here = await check(source, target, graph_id)
    if here.columns.get("state") != GraphState.MOVED or here.columns.get("transfer") != token:
        raise Conflict(f"graph {graph_id}: others write it in {source.name}, too")
    again = here.columns.get("received") is not None
    if not again:
        await _arrive(target, graph_id, Arrive(token, source.name, False, by), by)
    there = await _row(target, graph_id)
    if not again and (there is None or there.columns.get("arrival") != token):
        raise Refused(f"graph {graph_id} is not to be found in {target.name}; nothing is taken away here", "not-there")
    state = str(there.columns.get("state", "missing")) if there is not None else "missing"
    await empty(source.handlers, source.logs, graph_id, token)
    return Moved(graph_id, state, rows, files, again)


async def _depart(source: Side, graph_id: str, here: Row, to: str, by: str) -> None:
    """Set the fence, if nothing runs and nothing can begin: the results of what did would be let go.

    Since the caller has seen that it is so, others may have let the graph go and held it back again.
    """
    columns = here.columns
    if columns.get("state") in GOING and (columns.get("settling") is True or await _running(source, graph_id)):
        raise Conflict(f"graph {graph_id}: something of it runs, or may begin; the same call waits for that")
    await _say(source, graph_id, Depart(source.handlers.clock.new_id(), to, integer(columns, "holds"), by))


def _is_whole(there: Row) -> bool:
    return there.columns.get("state") != GraphState.RESTORING or there.columns.get("whole") is True


def _whole(here: Row, there: Row, token: str, origin: str) -> dict[str, Value]:
    since = there.columns.get("restoring")
    return {**as_it_arrives(here.columns, token, origin), **({"restoring": since} if since is not None else {})}


async def _mark_rows(side: Side, graph_id: str, graph: Row, *, sealed: bool) -> Row:
    """Seal every row that is written again, or open them; gives the graph row as it is then."""
    tables, at_once = side.handlers.records.tables, side.handlers.records.changes_max - 1
    change = seal if sealed else opened
    for kind in SEALED_KINDS:
        async for page in pages(tables, graph_id, Range(f"{kind}:", f"{kind};", select=("schema",))):
            todo = [row for row in page.rows if is_sealed(row.columns) != sealed]
            for start in range(0, len(todo), at_once):
                part = todo[start : start + at_once]
                columns: Columns = {"marked": integer(graph.columns, "marked") + len(part)}
                changes: list[Change] = [Merge(GRAPH, graph.etag, columns)]
                changes += [Merge(row.key, row.etag, change(row.columns)) for row in part]
                graph = Row(GRAPH, await _write(side, graph_id, changes), {**graph.columns, **columns})
    return graph


async def _begin(source: Side, target: Side, graph_id: str, here: Row, token: str) -> Row | None:
    """The graph row there, `restoring` by this token; None where the graph lives there already, by this token."""
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        there = await _row(target, graph_id)
        if there is not None and there.columns.get("arrival") == token:
            return there if there.columns.get("state") == GraphState.RESTORING else None
        if there is not None and _is_void(there, here):
            await _discard(target, graph_id, there)
            continue
        if there is not None and not _gives_way(there, here):
            raise Refused(
                f"{target.name} has got a graph {graph_id} meanwhile, which is {there.columns.get('state')}; "
                f"taskgraph transfer {graph_id} --stay has it stay where it is",
                "exists",
            )
        handlers = target.handlers
        await enter_live(handlers.records, graph_id)  # before its row, so that the sweep finds it
        if there is not None and there.columns["state"] == GraphState.MOVED and not there.columns.get("emptied"):
            await empty(handlers, target.logs, graph_id, str(there.columns.get("transfer", "")))
            continue
        if there is not None:  # what came late beside a tombstone
            _, there = await delete.empty_rows(handlers, graph_id, there, no_progress)
            if there is None:
                continue  # others look after it
        fence: dict[str, Value] = {
            "schema": SCHEMA,
            "state": str(GraphState.RESTORING),
            "restoring": handlers.clock.now(),
            "arrival": token,
            "movesFrom": source.name,
            "copied": "",
        }
        await _write(target, graph_id, [Insert(GRAPH, fence) if there is None else Replace(GRAPH, there.etag, fence)])
        handlers.row_cache.forget(graph_id)
        handlers.records.forget(graph_id)
    raise Conflict(f"graph {graph_id}: others kept writing its row in {target.name}")


async def _copy(
    source: Side, target: Side, graph_id: str, there: Row, total: int, progress: Progress
) -> tuple[Row, int]:
    """Bring the rows over that are not there yet; gives the graph row there, and how many these were."""
    records, done = target.handlers.records, 0
    chunk: list[Insert] = []
    size = 0
    start = str(there.columns.get("copied", ""))
    async for page in pages(source.handlers.records.tables, graph_id, Range(start + _BEHIND if start else "")):
        for row in page.rows:
            if row.key == GRAPH:
                continue
            if row.key.partition(":")[0] in SEALED_KINDS and not is_sealed(row.columns):
                raise Conflict(f"row {row.key} came in after the others were sealed")
            insert = Insert(row.key, _relinked(source, target, graph_id, row))
            more = row_bytes(insert)
            if chunk and (len(chunk) + 1 >= records.changes_max or size + more > limits.COMMIT_BYTES_MAX - 1000):
                there = await _put(target, graph_id, there, chunk)
                done += len(chunk)
                progress(done, max(total, done))
                chunk, size = [], 0
            chunk.append(insert)
            size += more
    if chunk:
        there = await _put(target, graph_id, there, chunk)
        done += len(chunk)
    progress(done, done)
    return there, done


async def _put(target: Side, graph_id: str, there: Row, chunk: Sequence[Insert]) -> Row:
    columns = {"copied": chunk[-1].key}
    etag = await _write(target, graph_id, [Merge(GRAPH, there.etag, columns), *chunk])
    return Row(GRAPH, etag, {**there.columns, **columns})


def _relinked(source: Side, target: Side, graph_id: str, row: Row) -> Columns:
    """The columns of a row, with places of logs as they are in the other store."""
    if not row.key.startswith("task:") or "logsUrl" not in f"{row.columns.get('resolution')}{row.columns.get('runs')}":
        return row.columns
    task_id = reference_of(row.key)

    def relink(record: Any, run: int) -> bool:
        if isinstance(record, dict) and record.get("logsUrl") == source.logs.url(graph_id, task_id, run):
            record["logsUrl"] = target.logs.url(graph_id, task_id, run)
            return True
        return False

    changed: dict[str, Value] = {}
    for name, run in (("resolution", integer(row.columns, "run")), ("runs", -1)):
        text = row.columns.get(name)
        try:
            found = json.loads(text) if isinstance(text, str) and text else None
        except ValueError:
            continue  # damaged: `doctor` names it
        records = found if isinstance(found, list) else [found]
        numbers = [each.get("run") if isinstance(each, dict) and run < 0 else run for each in records]
        places = [(each, number) for each, number in zip(records, numbers, strict=True) if type(number) is int]
        if sum([relink(each, number) for each, number in places]):
            written = json.dumps(found, separators=(",", ":"), ensure_ascii=False)
            if utf16_units(written) <= limits.PROPERTY_CHARS_MAX:
                changed[name] = written
    return {**row.columns, **changed}


async def _copy_files(source: Side, target: Side, graph_id: str) -> int:
    """Bring the files of runs over: logs, results, and files that others take; of one there in part, the rest.

    Raises Conflict where another call does so, too.
    """
    there = {(each.task_id, each.run, each.name): each.size async for each in log_files(target.logs, graph_id)}
    count = 0
    async for file in log_files(source.logs, graph_id):
        place = (graph_id, file.task_id, file.run)
        offset = there.get((file.task_id, file.run, file.name), -1)
        if offset >= file.size:
            continue
        count += 1
        empty_file = offset < 0
        offset = max(offset, 0)
        while True:
            data = await source.logs.read(*place, offset=offset, limit=limits.ARCHIVE_PIECE_BYTES, name=file.name)
            if data is None or (not data and not empty_file):
                break
            if not await target.logs.append_at(*place, offset, data, file.name):
                raise Conflict(f"graph {graph_id}: another call copies its files, too")
            offset, empty_file = offset + len(data), False
    return count


async def _note_elsewhere(source: Side, target: Side, graph_id: str, here: Row) -> None:
    """What of a graph stands outside its partition."""
    handlers = target.handlers
    await list_restored(handlers, graph_id, here.columns)
    tables = source.handlers.records.tables
    given: list[str] = []
    async for page in pages(tables, graph_id, Range("task:", "task;", select=("label", "task"))):
        given += [str(row.columns.get("label", "")) for row in page.rows if old_tasks.given_by_one(row.columns)]
    if given:
        await enter_old_tasks(handlers, graph_id, given)
    if await query_all(tables, graph_id, notices.all_rows()):
        await notifier.enter(handlers.records.tables, graph_id, handlers.clock.now())


async def _arrive(target: Side, graph_id: str, arrival: Arrive, by: str) -> None:
    """Let a graph live that is whole, and has been seen `moved` where it was."""
    there = await _row(target, graph_id)
    if there is None or there.columns.get("arrival") != arrival.token:
        return
    if there.columns.get("state") == GraphState.RESTORING:
        target.handlers.row_cache.forget(graph_id)
        await _mark_rows(target, graph_id, there, sealed=False)
        await _say(target, graph_id, arrival)
    await resume(target, graph_id, by)
    there = await _row(target, graph_id)
    if there is not None and there.columns.get("state") in GRAPH_ENDED:
        await leave_live(target.handlers.records, graph_id)


async def resume(side: Side, graph_id: str, by: str = "") -> None:
    """Let a graph go on that was held back for a departure, and send what stands ready. Repeatable."""
    row = await _row(side, graph_id)
    if row is None or row.columns.get("state") not in GOING:
        return
    if DEPARTING in texts(row.columns, "held"):
        await _say(side, graph_id, Hold(DEPARTING, False, _asked(side, row), "", by))
    await control.settle_holds(side.handlers, graph_id)
    row = await _row(side, graph_id)
    if row is not None and not texts(row.columns, "held") and (deferred := texts(row.columns, DEFERRED)):
        await side.handlers.dispatcher.send_events([AddTasks(graph_id, request) for request in deferred])


async def empty(handlers: Handlers, logs: StoredLogs, graph_id: str, token: str = "") -> bool:
    """Take away what is left of a graph that lives in another store, but for a tombstone; whether it was all done.

    token: of a departure whose graph has just been seen to live there; without it, one that was noted before. Raises
    Conflict when others kept writing: the same call goes on.
    """
    (row,) = await handlers.records.tables.get(graph_id, [GRAPH])
    if row is None or row.columns.get("state") != GraphState.MOVED:
        return True
    noted = row.columns.get("received") is not None
    if not noted and (not token or row.columns.get("transfer") != token):
        return False
    side = Side(handlers, logs, "")
    if not noted:
        columns: Columns = {"received": handlers.clock.now()}
        etag = await _write(side, graph_id, [Merge(GRAPH, row.etag, columns)])
        row = Row(GRAPH, etag, {**row.columns, **columns})
    if row.columns.get("emptied") is not True:
        handlers.row_cache.forget(graph_id)
        handlers.records.forget(graph_id)
        _, left = await delete.empty_rows(handlers, graph_id, row, no_progress)
        if left is None:
            raise Conflict(f"graph {graph_id}: others look after its tombstone")
        await delete.remove_elsewhere(handlers, logs, graph_id)
        kept: dict[str, Value] = {name: row.columns[name] for name in _KEPT if name in row.columns}
        state = str(GraphState.MOVED)
        await _write(
            side, graph_id, [Replace(GRAPH, left.etag, {"schema": SCHEMA, "state": state, "emptied": True, **kept})]
        )
    await leave_live(handlers.records, graph_id)
    return True


# --- what a person decides -----------------------------------------------------------------------------------------


async def stay(source: Side, graph_id: str, target: Side | None = None, by: str = "") -> str:
    """Have a graph stay that is on its way, or about to be; gives its state. Repeatable.

    target: what has come there by a departure that is void is taken away. Raises NoGraph, and Refused for one that has
    moved: then it may live there.
    """
    for attempt in range(_ATTEMPTS_MAX):
        try:
            return await _stay(source, graph_id, target, by)
        except Conflict as conflict:  # reach: deletion
            if attempt + 1 == _ATTEMPTS_MAX:
                raise
            log.info("graph %s: %s", graph_id, conflict)
            await back_off(source.handlers.clock, attempt)
    raise AssertionError("the last attempt gives or raises")


async def _stay(source: Side, graph_id: str, target: Side | None, by: str) -> str:
    here = await _row(source, graph_id)
    if here is None:
        raise NoGraph(graph_id)
    state = here.columns.get("state")
    if state == GraphState.MOVED:
        raise Refused(f"graph {graph_id} has moved to {here.columns.get('movesTo')}: bring it back from there", "moved")
    if state == GraphState.MOVING:
        await _say(source, graph_id, Withdraw())  # first: then no other call can confirm that it has moved
        here = await _row(source, graph_id)
        if here is None or here.columns.get("state") != GraphState.MOVING or here.columns.get("transfer"):
            raise Conflict(f"graph {graph_id}: others write it, too")
        await _mark_rows(source, graph_id, here, sealed=False)
        await _say(source, graph_id, Remain(by))
    await resume(source, graph_id, by)
    here = await _row(source, graph_id)
    if here is None:
        raise NoGraph(graph_id)
    if target is not None and (there := await _row(target, graph_id)) is not None and _is_void(there, here):
        await _discard(target, graph_id, there)
    return str(here.columns.get("state", ""))


async def abandon(target: Side, graph_id: str, by: str = "") -> Moved:
    """Let a graph live that is whole here, without a look at the store that it left, which is lost. For persons alone.

    Raises NoGraph, and Refused where it did not come here, or not all of it.
    """
    there = await _row(target, graph_id)
    if there is None:
        raise NoGraph(graph_id)
    if not _is_coming(there):
        raise Refused(f"graph {graph_id} is {there.columns.get('state')}, and not on its way here", "not-coming")
    token, origin = str(there.columns["arrival"]), str(there.columns.get("movesFrom", ""))
    if there.columns.get("whole") is not True:
        raise Refused(f"graph {graph_id}: not all of its rows have come from {origin}", "not-whole")
    await _arrive(target, graph_id, Arrive(token, origin, True, by), by)
    there = await _row(target, graph_id)
    return Moved(graph_id, str(there.columns.get("state", "")) if there is not None else "missing")


async def _discard(target: Side, graph_id: str, there: Row) -> None:
    """Take away what has come by a departure that is void."""
    token = str(there.columns.get("arrival", ""))
    await delete.delete(target.handlers, target.logs, graph_id, because="it stayed where it was", transfer=token)


# --- rows ----------------------------------------------------------------------------------------------------------


async def _row(side: Side, graph_id: str) -> Row | None:
    (row,) = await side.handlers.records.tables.get(graph_id, [GRAPH])
    return row


def _asked(side: Side, row: Row) -> str:
    """When a graph is held back, or let go: later than what was asked for before, by the clock of another store too."""
    known = str(object_of(row.columns, "heldAsked").get(DEPARTING, ""))
    return asked_after(side.handlers.clock.now(), [known], side.handlers.clock.jitter())


async def _say(side: Side, graph_id: str, item: Item) -> None:
    """Decide one item. Raises Refused for one that is refused, Conflict for one that comes too early or too late."""
    (answer,) = await side.handlers.transition(graph_id, [item])
    if answer.error is not None:
        raise answer.error if isinstance(answer.error, TaskgraphError) else Conflict(str(answer.error))
    if answer.outcome is Outcome.REFUSED:
        raise Refused(f"graph {graph_id}: {answer.reason}")
    if answer.outcome is Outcome.STALE:
        raise Conflict(f"graph {graph_id}: {answer.reason}")


async def _write(side: Side, graph_id: str, changes: Sequence[Change]) -> str:
    """Commit behind the fence; gives the etag of the graph row. Raises Conflict, also for an answer that was lost."""
    try:
        etags = await side.handlers.records.tables.commit(graph_id, changes)
    except (Conflict, Unclear) as error:  # reach: deletion
        words = f"graph {graph_id}: another call writes it too, or the answer was lost"
        raise Conflict(words) from error
    if etags[0] is None:
        raise Conflict(f"graph {graph_id}: written, and its etag is not known")
    return etags[0]
