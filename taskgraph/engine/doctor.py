"""Look at live rows, say what is wrong, and mend what is certain: `examine_graph`, `repair_graph`.

Both may run beside handlers, workers and copies of themselves: a repair is a commit under the etags of all rows that it
rests on, with a fact in the journal, or an item that any handler might decide.

A scan is no snapshot. A finding is believed once its rows, read twice without a change in between, say it: there was a
moment at which all of them stood like this. What rests on counts over all rows is believed if the graph row did not
change during the scan, for every commit that changes such a count writes it.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from taskgraph.engine.handlers import Handlers
from taskgraph.engine.live_index import enter_live, leave_live, listing_row
from taskgraph.engine.poison import Poison
from taskgraph.engine.sweep import Swept, sweep_graph
from taskgraph.model import facts, limits
from taskgraph.model.columns import Value
from taskgraph.model.errors import Conflict, InvalidMessage, NoGraph, NotFound, TaskgraphError, TooLarge, Unclear
from taskgraph.model.ids import GRAPH, event_key, row_key
from taskgraph.model.json_strict import compact_json
from taskgraph.model.messages import AddTasks, parse
from taskgraph.model.names import ALL, LIVE, listing_key
from taskgraph.model.states import GRAPH_ENDED, GRAPH_GONE, GRAPH_LIVE, GraphState
from taskgraph.protocol.definitions import SCHEMA
from taskgraph.protocol.invariants.examine import examine
from taskgraph.protocol.invariants.findings import Finding, Patch, Redo, Reindex, Resend, Severity, finding
from taskgraph.protocol.invariants.snapshot import slim
from taskgraph.protocol.invariants.standstill import Cause, Waiting, causes, waiting_by_target
from taskgraph.storage.tables import Change, Insert, Range, Row, or_none, pages, query_all

SCANS_MAX: Final = 3
"""Scans made in the hope that the graph row does not change during one; counts are not judged otherwise."""

ROUNDS_MAX: Final = 8
"""Second readings of the rows of findings; what has not come to rest by then is left open."""

REPAIRS_MAX: Final = 12
"""Rounds of repairing and looking again: one repair may make the next one possible."""

_PAUSE_SECONDS: Final = 0.05

Progress = Callable[[int], None]
"""Takes how many rows have been read so far."""


_Live = list[Row | None] | None
"""The row of the live index, if there is one; None where the index is out of sight."""


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found in one graph.

    findings: what is not as it should be, the wrong first. repaired: what was found and is so no more. unsettled: how
    many findings were left open because their rows kept changing. causes: why it does not move. rows: how many it has.
    """

    graph_id: str
    state: str
    findings: tuple[Finding, ...]
    repaired: tuple[Finding, ...]
    unsettled: int
    causes: tuple[Cause, ...]
    rows: int

    @property
    def sound(self) -> bool:
        return not any(each.severity is Severity.WRONG for each in self.findings)


@dataclass(frozen=True, slots=True)
class _Picture:
    """Rows, and the findings in them that can be believed."""

    rows: dict[str, Row]
    findings: list[Finding]
    unsettled: int


async def live_graphs(handlers: Handlers) -> list[str]:
    """Graphs that the sweep looks at."""
    return [row.key for row in await query_all(handlers.records.tables, LIVE, Range())]


async def examine_graph(
    handlers: Handlers,
    poison: Poison,
    graph_id: str,
    *,
    progress: Progress = lambda rows: None,
    handled: bool = True,
) -> Examined:
    """Look at a graph and change nothing. handled: see `standstill.causes`. Raises NotFound if there is none."""
    picture = await _look(handlers, graph_id, progress)
    return await _answer(handlers, poison, graph_id, picture, (), handled)


async def repair_graph(
    handlers: Handlers,
    poison: Poison,
    graph_id: str,
    *,
    progress: Progress = lambda rows: None,
    handled: bool = True,
    by: str = "",
) -> Examined:
    """Look at a graph, mend what is certain, sweep it, and look again. by: who asks. Raises NotFound."""
    first: dict[tuple[str, str, str], Finding] = {}
    tried: dict[tuple[str, str, str], str] = {}  # what is not tried again, with the reason
    for _ in range(REPAIRS_MAX):
        picture = await _look(handlers, graph_id, progress)
        for each in picture.findings:
            first.setdefault(each.identity, each)
        todo = [each for each in picture.findings if each.repair is not None and each.identity not in tried]
        if not todo:
            break
        # What holds too little back is mended before any item is decided again, which may let something begin.
        for one in [each for each in todo if isinstance(each.repair, Patch)] or todo:
            reason = await _repair(handlers, graph_id, one, picture.rows, by)
            if reason:
                tried[one.identity] = reason
            elif not isinstance(one.repair, Patch):
                tried[one.identity] = "it was decided again, and that did not help"
    await _send_again(handlers, graph_id, picture)
    picture = await _look(handlers, graph_id, progress)
    left = {each.identity for each in picture.findings}
    findings = [
        replace(each, repair=None, refusal=tried[each.identity])
        if each.severity is Severity.WRONG and each.identity in tried
        else each
        for each in picture.findings
    ]
    repaired = tuple(each for identity, each in first.items() if identity not in left)
    return await _answer(handlers, poison, graph_id, replace(picture, findings=findings), repaired, handled)


# --- looking ---------------------------------------------------------------------------------------------------


async def _look(handlers: Handlers, graph_id: str, progress: Progress) -> _Picture:
    live, rows, steady = await _scan(handlers, graph_id, progress)
    now = handlers.clock.now()
    everything = examine(graph_id, rows, now, steady=steady)
    found = [each for each in everything if not each.whole]
    settled: frozenset[str] = frozenset()
    for number in range(ROUNDS_MAX):
        if all(each.keys <= settled for each in found):
            break
        if number:
            await handlers.clock.sleep(_PAUSE_SECONDS * number * handlers.clock.jitter())
        keys = frozenset().union(*(each.keys for each in found))
        before = {key: _etag(rows.get(key)) for key in keys}
        settled = await _read_twice(handlers, graph_id, keys, rows)
        if any(_etag(rows.get(key)) != etag for key, etag in before.items()):
            found = [each for each in examine(graph_id, rows, now, steady=steady) if not each.whole]
    whole = [each for each in everything if each.whole]
    believed = [each for each in found if each.keys <= settled]
    findings = [*whole, *believed, *await _indexes(handlers, graph_id, rows, live, now)]
    order = list(Severity)
    findings.sort(key=lambda each: order.index(each.severity))
    return _Picture(rows, findings, len(found) - len(believed))


def _etag(row: Row | None) -> str | None:
    return row.etag if row is not None else None


async def _scan(handlers: Handlers, graph_id: str, progress: Progress) -> tuple[_Live, dict[str, Row], bool]:
    """The row of the live index, all rows, and whether the graph row stayed the same meanwhile."""
    tables = handlers.records.tables
    for number in range(SCANS_MAX):
        live = await or_none(tables.get(LIVE, [graph_id]))  # first: a graph leaves it after its last commit
        (before,) = await tables.get(graph_id, [GRAPH])
        rows: dict[str, Row] = {}
        async for page in pages(tables, graph_id, Range()):
            rows.update((row.key, slim(row)) for row in page.rows)
            progress(len(rows))
        (after,) = await tables.get(graph_id, [GRAPH])
        seen = rows.get(GRAPH)
        if not rows:
            raise NoGraph(graph_id)
        if len(rows) == 1 and seen is not None and seen.columns.get("state") == GraphState.DELETED:
            raise NotFound(f"graph {graph_id} was deleted")
        steady = _etag(before) == _etag(seen) == _etag(after)
        if steady or number == SCANS_MAX - 1:
            return live, rows, steady
    raise AssertionError("the last round gives an answer")


async def _read_twice(handlers: Handlers, graph_id: str, keys: Iterable[str], rows: dict[str, Row]) -> frozenset[str]:
    """Bring these rows up to date; gives the keys of those that all stood like this at one moment."""
    wanted = sorted(keys)
    tables = handlers.records.tables
    first = await tables.get(graph_id, wanted)
    second = await tables.get(graph_id, wanted)
    for key, row in zip(wanted, second, strict=True):
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = slim(row)
    both = zip(wanted, first, second, strict=True)
    return frozenset(key for key, before, after in both if _etag(before) == _etag(after))


async def _indexes(
    handlers: Handlers, graph_id: str, rows: Mapping[str, Row], indexed: _Live, now: datetime
) -> list[Finding]:
    """Whether the sweep and `list` see the graph as they should."""
    graph = rows.get(GRAPH)
    if graph is None or indexed is None:
        return []
    (live,) = indexed
    state, created = graph.columns.get("state"), graph.columns.get("created")
    found: list[Finding] = []

    def add(kind: str, text: str, *, listed: bool = False) -> None:
        found.append(finding(kind, graph_id, GRAPH, "the graph", text, repair=Reindex(listed)))

    if live is None and state in GRAPH_LIVE:
        add("not-live", "it is not in the index of live graphs")
    if live is not None and state in GRAPH_ENDED:
        add("not-live:ended", f"it is {state}, and still in the index of live graphs")
    unlisted = (GraphState.SUBMITTING, GraphState.RESTORING, *GRAPH_GONE)
    if isinstance(created, datetime) and state not in unlisted:
        (listed,) = await handlers.records.tables.get(ALL, [listing_key(graph_id, created)])
        if listed is None and created <= now:
            add("not-listed", "it is not in the list of graphs", listed=True)
    return found


async def _answer(
    handlers: Handlers,
    poison: Poison,
    graph_id: str,
    picture: _Picture,
    repaired: Sequence[Finding],
    handled: bool,
) -> Examined:
    graph = picture.rows.get(GRAPH)
    findings = [*picture.findings, *await _poisoned(poison, graph_id)]
    queued = {
        target: await or_none(_queued(handlers, target, waiting))
        for target, waiting in _waiting(handlers, picture).items()
    }
    why = causes(graph_id, picture.rows, findings, queued, handlers.clock.now(), handled=handled)
    state = str(graph.columns.get("state", "")) if graph else "missing"
    return Examined(graph_id, state, tuple(findings), tuple(repaired), picture.unsettled, tuple(why), len(picture.rows))


async def _queued(handlers: Handlers, target: str, waiting: Waiting) -> int:
    return sum([await handlers.queues.count(handlers.names.work(target, level)) for level in waiting.levels])


async def _poisoned(poison: Poison, graph_id: str) -> list[Finding]:
    found: list[Finding] = []
    for message in await or_none(poison.list()) or ():
        try:
            concerned = parse(message.body).graph == graph_id
        except (InvalidMessage, TaskgraphError):
            continue  # it names no graph
        if concerned:
            text = f"a message about it was set aside: {message.reason}"
            remedy = f"taskgraph poison replay {message.key}"
            found.append(finding("poison", graph_id, message.key, "", text, remedy=remedy))
    return found


# --- mending ---------------------------------------------------------------------------------------------------


async def _repair(handlers: Handlers, graph_id: str, found: Finding, rows: Mapping[str, Row], by: str) -> str:
    """Carry out one repair; gives why it cannot be, "" if it was, or if another commit was first."""
    try:
        match found.repair:
            case Reindex(listed=False):
                await enter_live(handlers.records, graph_id)
                (graph,) = await handlers.records.tables.get(graph_id, [GRAPH])
                if graph is not None and graph.columns.get("state") in GRAPH_ENDED:
                    await leave_live(handlers.records, graph_id)
            case Reindex(listed=True):
                await _list_again(handlers, graph_id)
            case Patch() as patch:
                await _commit(handlers, graph_id, found, patch, rows, by)
            case Redo(items):
                answers = await handlers.transition(graph_id, items)
                errors = [str(answer.error) for answer in answers if answer.error is not None]
                return errors[0] if errors else ""
            case Resend(request):
                await handlers.dispatcher.send_events([AddTasks(graph_id, request)])
            case None:
                return found.refusal
    except Conflict:
        return ""  # the rows have moved on: the next look shows
    except TooLarge as error:
        return f"the repair does not fit one commit: {error}"
    return ""


def _routing(rows: Mapping[str, Row], about: str) -> dict[str, str]:
    """What a fact about a row says of its routing: nothing, where there is none."""
    key, column = facts.routing_at(about)
    routing = str(row.columns.get(column, "")) if (row := rows.get(key)) is not None else ""
    return {facts.ROUTING: routing} if routing else {}


async def _commit(
    handlers: Handlers, graph_id: str, found: Finding, patch: Patch, rows: Mapping[str, Row], by: str
) -> None:
    """One commit: the columns, under all etags that the repair rests on, with its facts as the next event row."""
    records = handlers.records
    operation = await records.operation(graph_id)
    changes: list[Change] = patch.changes(operation.id)
    if not patch.inserts:  # rows that are put back into the journal are facts themselves, in the place of others
        fact = {"event": "graph-repaired", "code": found.code, "row": found.key, "label": found.label, "by": by}
        repaired = {name: value for name, value in fact.items() if value}
        # All facts are of the one commit, and each is of its own row.
        events: list[Mapping[str, Any]] = [
            {**each, "changed": sorted(patch.columns.get(key, {})), **_routing(rows, key)}
            for each, key in ((repaired, found.key), *((each, GRAPH) for each in patch.facts))
        ]
        columns: dict[str, Value] = {
            "schema": SCHEMA,
            "sequence": operation.sequence,
            "time": handlers.clock.now(),
            "kinds": " ".join(dict.fromkeys(str(each["event"]) for each in events)),
            "events": compact_json(events),
            "operation": operation.id,
        }
        if operation.completed >= 0:
            columns["completed"] = operation.completed + sum(each["event"] == "task-completed" for each in events)
            if operation.skipped > 0:
                columns["skipped"] = operation.skipped
        if operation.spent is not None:
            columns["spent"] = operation.spent.text
        changes.append(Insert(event_key(operation.sequence), columns))
    if len(changes) > limits.COMMIT_CHANGES_MAX:
        raise TooLarge(f"it rests on {len(changes)} rows")
    await records.commit(graph_id, changes, operation, {})
    if patch.ready is not None:
        task_id, run, target = patch.ready
        key = row_key(task_id)
        (row,) = await records.tables.get(graph_id, [key])
        await handlers.dispatcher.dispatch(graph_id, target, [(task_id, run)], rows={key: row})
    if patch.revive:
        await enter_live(records, graph_id)


async def _list_again(handlers: Handlers, graph_id: str) -> None:
    tables = handlers.records.tables
    (graph,) = await tables.get(graph_id, [GRAPH])
    row = listing_row(graph_id, graph.columns) if graph is not None else None
    if row is None:
        return
    try:
        await tables.commit(ALL, [row])
    except (Conflict, Unclear):
        return  # it was listed meanwhile, perhaps by this call: the next look shows


async def _send_again(handlers: Handlers, graph_id: str, picture: _Picture) -> None:
    """What the sweep would send; and at once, what is overdue and has no message left at all."""
    graph = picture.rows.get(GRAPH)
    if graph is None or any(each.code == "newer-schema" for each in picture.findings):
        return
    (live,) = await handlers.records.tables.get(LIVE, [graph_id])
    try:
        await sweep_graph(handlers, graph_id, Swept(), live=live)
    except Conflict:
        return  # busy with others, who get it done
    if graph.columns.get("state") not in (GraphState.RUNNING, GraphState.BLOCKED):
        return
    before = handlers.clock.now() - timedelta(seconds=limits.REDISPATCH_SECONDS)
    for target, waiting in _waiting(handlers, picture).items():
        if waiting.since is not None and waiting.since > before:
            continue
        for level, tasks in waiting.levels.items():
            if not await handlers.queues.count(handlers.names.work(target, level)):
                await handlers.dispatcher.dispatch(graph_id, target, tasks, level=level, rows=picture.rows)


def _waiting(handlers: Handlers, picture: _Picture) -> dict[str, Waiting]:
    """Tasks that stand ready, by those targets that a queue can be named after."""
    found = waiting_by_target(picture.rows, handlers.clock.now())
    return {target: waiting for target, waiting in found.items() if re.fullmatch(limits.TARGET_PATTERN, target)}
