"""Adding tasks to a graph that runs: the rules of each step (P8, P9).

An extension is one request row with a state and a cursor, `staged → accepted → done`, or `refused`. A small one is a
single commit. A larger one goes: *accept* (the graph row waits for a gathering join from now on, so the graph cannot
finish before the new tasks), *insert* (dependents before what they require, so that no completion meets a missing row),
*link* (register as dependent of older tasks, and count down those that are resolved, in the same commit), *finish*. The
cursor moves in the commit of each step's rows, so any number of handlers may work on one extension.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from taskgraph.model import limits
from taskgraph.model.columns import WAITS_FOR, Value
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import GRAPH, fork_reference, ids_text, is_relay, reference_of, row_key, value
from taskgraph.model.json_strict import compact_json
from taskgraph.model.states import WHOLE, TaskState, by_group
from taskgraph.protocol.conditions import Ending, ending_of, keep_ending, passes_on
from taskgraph.protocol.context import Context, Item, Outcome, Rules, Verdict
from taskgraph.protocol.definitions import SCHEMA
from taskgraph.protocol.propagation import DEFERRED, GOING, RECALL, count_down, dispatch
from taskgraph.protocol.rows import Draft
from taskgraph.protocol.wiring import Link, relay_row
from taskgraph.storage.tables import Insert

RESUME: Final = "resume"

PLAN: Final = "plan"
"""Column of a request: the digest of the plan under which it is made (`protocol.planned`)."""


def request_key(request: str) -> str:
    return f"request:{request}"


@value
class Growth:
    """A group of the graph gets tasks.

    join: its shared join, which waits for `piece` from now on. members: how many tasks more the groups have whose rows
    are `heads`. around: names of these; held: holders of them, as it was planned.
    """

    name: str
    join: str
    piece: Insert
    members: int
    heads: tuple[str, ...]
    around: tuple[str, ...]
    held: tuple[str, ...]


@value
class AcceptExtension(Item):
    """Accept an extension. whole: rows and links go into this very commit; otherwise later steps bring them.

    revision: of the graph that it was planned for; with another one it must be planned again. columns: of the graph row
    to set (its nameMapping). fact: fields of the event. held: holders of the groups that it brings in inactive. grown:
    groups of the graph that get tasks.
    """

    request: str
    revision: int
    tasks: int
    edges: int
    leaves: tuple[str, ...]
    top: Insert | None
    whole: bool
    rows: tuple[Insert, ...]
    links: tuple[Link, ...]
    columns: Mapping[str, Value]
    fact: Mapping[str, Any] = field(default_factory=dict)
    held: tuple[str, ...] = ()
    grown: tuple[Growth, ...] = ()


@value
class DeferExtension(Item):
    """The graph is paused: the extension is made when it is resumed, and the graph does not finish before."""

    request: str


@value
class RefuseRequest(Item):
    """The graph, or what its rows hold, forbids an extension or edit. revision: holds for this alone, -1 for any."""

    request: str
    reason: str
    revision: int = -1


@value
class InsertRows(Item):
    """The rows of the extension from `cursor` on."""

    request: str
    cursor: int
    rows: tuple[Insert, ...]


@value
class LinkTasks(Item):
    """Register dependents of existing tasks; `cursor` counts on from the inserted rows."""

    request: str
    cursor: int
    links: tuple[Link, ...]


@value
class FinishExtension(Item):
    """Every row is in and linked."""

    request: str


def accept_extension(item: AcceptExtension, context: Context) -> Verdict:
    """Guard: from here on the graph waits for the new tasks. Refused unless the graph runs or is blocked.

    A blocked graph stays blocked. In a paused one nothing is made (see `defer_extension`). A group that has ended gets
    no task any more (P37): what requires it may have gone on.
    """
    view = context.view
    joins = [row_key(growth.join) for growth in item.grown]
    view.require((GRAPH, request_key(item.request), *joins, *(key for each in item.grown for key in each.heads)))
    graph, head = view.get(GRAPH), view.get(request_key(item.request))
    if head.text("state") != "staged":
        return Outcome.REPEATED, ""
    if graph.text("state") not in GOING:
        _refuse(head, context, not_extendable(graph.text("state")))
        return Outcome.REFUSED, ""
    if is_deferring(graph):
        return Outcome.STALE, ""
    if graph.integer("revision") != item.revision or graph.text("extending") not in ("", item.request):
        return Outcome.STALE, ""
    if ended := [growth.name for growth in item.grown if has_ended(growth, context)]:
        _refuse(head, context, f"the group “{ended[0]}” has ended, and gets no task any more")
        return Outcome.REFUSED, ""
    if any(holds_differ(growth, graph) for growth in item.grown):
        return Outcome.STALE, "groups were held back, or let go on, since it was planned"
    for growth in item.grown:
        _grow(growth, context)
    await_leaves(item.top, item.leaves, graph, context)
    _not_deferred(head, graph)
    graph.set("tasks", graph.integer("tasks") + item.tasks)
    graph.set("edges", graph.integer("edges") + item.edges)
    graph.set("revision", graph.integer("revision") + 1)
    for name, given in item.columns.items():
        graph.set(name, given)
    if item.held:
        graph.set_ids("held", [*dict.fromkeys((*graph.ids("held"), *item.held))])
    if item.whole:
        _insert(item.rows, context)
        for number, link in enumerate(item.links):
            _link(link, f"{item.request}-{number}", context)
        _done(head, item.tasks, item.fact, context)
    else:
        graph.set("extending", item.request)
        head.set("state", "accepted")
        head.set("cursor", 0)
        head.set("tasks", item.tasks)
        if item.fact:
            head.set("told", compact_json(item.fact))
    return Outcome.APPLIED, ""


def has_ended(growth: Growth, context: Context) -> bool:
    join = context.view.get(row_key(growth.join))
    return join.text("state") != TaskState.UNSCHEDULED or not join.ids("requiresLeft")


def holds_differ(growth: Growth, graph: Draft) -> bool:
    """Whether what holds the groups back is not what the new tasks were planned with."""
    return set(map(by_group, growth.around)).intersection(graph.ids("held")) != set(growth.held)


def _grow(growth: Growth, context: Context) -> None:
    await_leaves(growth.piece, (), context.view.get(row_key(growth.join)), context)
    for key in growth.heads:
        group = context.view.get(key)
        group.set("tasks", group.integer("tasks") + growth.members)


def not_extendable(state: str) -> str:
    return f"the graph is {state}; only one that runs or is blocked can be extended"


def is_deferring(graph: Draft) -> bool:
    """Whether an extension of the graph is made later, as it is paused."""
    return graph.text("state") in GOING and not WHOLE.isdisjoint(graph.ids("held"))


def defer_extension(item: DeferExtension, context: Context) -> Verdict:
    """A paused graph must not finish before the extensions that are made at its `resume`."""
    graph, head = context.view.get(GRAPH), context.view.get(request_key(item.request))
    if head.text("state") != "staged":
        return Outcome.REPEATED, ""
    if not is_deferring(graph):
        return Outcome.STALE, "the graph is not paused"
    deferred = graph.ids(DEFERRED)
    if item.request in deferred:
        return Outcome.REPEATED, ""
    if len(deferred) >= limits.DEFERRED_MAX:
        return _refuse(head, context, f"{len(deferred)} extensions wait for the graph to be resumed, and no more can")
    graph.set_ids(DEFERRED, [*deferred, item.request])
    head.set(WAITS_FOR, RESUME)
    if head.text(PLAN):
        head.set(PLAN, "")  # that it waits was planned; what comes of it then was not
    return Outcome.APPLIED, ""


def _not_deferred(head: Draft, graph: Draft) -> bool:
    """The graph does not wait for this request any more; gives whether it did."""
    request, deferred = head.key.removeprefix("request:"), graph.ids(DEFERRED)
    if head.text(WAITS_FOR):
        head.set(WAITS_FOR, "")
    if request not in deferred:
        return False
    graph.set_ids(DEFERRED, [each for each in deferred if each != request])
    return True


def refuse(head: Draft, context: Context, reason: str) -> Verdict:
    head.set("state", "refused")
    head.set("reason", reason[: limits.REASON_CHARS_MAX])
    head.set("answered", context.now)
    return Outcome.REFUSED, reason


def refuse_request(item: RefuseRequest, context: Context) -> Verdict:
    """Nothing else has been written for the request. A graph that waited for it alone is finished."""
    head = context.view.get(request_key(item.request))
    if head.text("state") != "staged":
        return Outcome.REPEATED, item.reason
    if item.revision >= 0 and context.view.get(GRAPH).integer("revision") != item.revision:
        return Outcome.STALE, item.reason
    return _refuse(head, context, item.reason)


def _refuse(head: Draft, context: Context, reason: str) -> Verdict:
    if head.text(WAITS_FOR) and _not_deferred(head, context.view.get(GRAPH)):
        count_down(GRAPH, "", context)
    return refuse(head, context, reason)


def await_leaves(top: Insert | None, leaves: Sequence[str], waiting: Draft, context: Context) -> None:
    """Let a row wait for more: the graph for new leaves, or the join of a group for its new tasks.

    top: the join that gathers them, which is inserted; None if they are named directly.
    """
    requires, left = waiting.ids("requires"), waiting.ids("requiresLeft")
    if top is None:
        leaves = list(leaves)
    else:
        reference = reference_of(top.key)
        leaves = [reference]
        most = limits.GRAPH_REQUIRES_MAX if waiting.key == GRAPH else limits.REQUIRES_MAX
        if len(requires) + 1 > most and waiting.key == GRAPH:
            requires = left  # what is fulfilled need not be named there any more
        if len(requires) + 1 > most:
            # The new join takes the place of an old leaf on the waiting row, mostly of a join, and waits for it: so the
            # degree stays bounded.
            own = reference_of(waiting.key)
            old, row = _leaf_of(own, [*left, *(each for each in requires if each not in left)], context)
            row.set_ids("dependents", [reference if each == own else each for each in row.ids("dependents")])
            below = Draft(top.key, top.columns, None).ids("requires")
            still = [*below, old] if old in left else below
            top = Insert(top.key, {**top.columns, "requires": ids_text([*below, old]), "requiresLeft": ids_text(still)})
            requires = [each for each in requires if each != old]
            left = [each for each in left if each != old]
            draft = context.view.insert(top)
            if old not in still and (ending := ending_of(row)) is not None:
                keep_ending(draft, old, ending)
        else:
            context.view.insert(top)
    waiting.set_ids("requires", [*requires, *leaves])
    waiting.set_ids("requiresLeft", [*left, *leaves])


def _leaf_of(waiting: str, references: Sequence[str], context: Context) -> tuple[str, Draft]:
    """A row, of a join if there is one, that names the waiting row among its own dependents, not by way of a fork."""
    for each in sorted(references, key=lambda each: not each.startswith("join:")):
        row = context.view.named(each)
        if waiting in row.ids("dependents"):
            return each, row
    raise IntegrityError(f"row {row_key(waiting)} names more tasks than it may")


def _step(request: str, cursor: int, context: Context) -> Draft | None:
    """The head row, if this step is the next one."""
    head = context.view.get(request_key(request))
    if head.text("state") != "accepted" or head.integer("cursor") != cursor:
        return None
    return head


def insert_rows(item: InsertRows, context: Context) -> Verdict:
    head = _step(item.request, item.cursor, context)
    if head is None:
        return Outcome.STALE, ""
    _insert(item.rows, context)
    head.set("cursor", item.cursor + len(item.rows))
    return Outcome.APPLIED, ""


def _insert(rows: Sequence[Insert], context: Context) -> None:
    for row in rows:
        draft = context.view.insert(row)
        if row.key.startswith("task:") and draft.text("state") == TaskState.PENDING:
            dispatch(draft, context)


def link_tasks(item: LinkTasks, context: Context) -> Verdict:
    head = _step(item.request, item.cursor, context)
    if head is None:
        return Outcome.STALE, ""
    context.view.require(row_key(link.task_id) for link in item.links)
    for number, link in enumerate(item.links):
        _link(link, f"{item.request}-{item.cursor + number}", context)
    head.set("cursor", item.cursor + len(item.links))
    return Outcome.APPLIED, ""


def _link(link: Link, stamp: str, context: Context) -> None:
    ending = register(link, stamp, context)
    if ending is not None:
        context.view.require(row_key(each) for each in link.references)
        for each in link.references:
            count_down(each, link.task_id, context, ending)


def portions(links: Iterable[Link]) -> Iterator[Link]:
    """The same edges, in links of no more of them than `register` takes at once."""
    for link in links:
        for start in range(0, len(link.references), limits.LINK_REFERENCES_MAX):
            yield Link(link.task_id, link.references[start : start + limits.LINK_REFERENCES_MAX])


def register(link: Link, stamp: str, context: Context) -> Ending | None:
    """Name dependents on the row of what they now require; gives how that has ended, if it has (`known_ending`)."""
    task = context.view.named(link.task_id)
    ending = known_ending(task, context)
    have = task.ids("dependents")
    new = [each for each in link.references if each not in have]
    if len(have) + len(new) > limits.DEPENDENTS_MAX:
        fork = fork_reference(link.task_id, stamp)
        schema = task.integer("schema") or SCHEMA
        # What is to be recalled reaches those below the fork by the fork: it stands as if it had passed on the end.
        passed = ending is not None or task.text("due") == RECALL
        context.view.insert(relay_row(fork, [link.task_id], have, schema, resolved=passed))
        task.set_ids("dependents", [fork, *new])
    elif new:
        task.set_ids("dependents", [*have, *new])
    return ending


def known_ending(task: Draft, context: Context) -> Ending | None:
    """How a row has ended, for new dependents; None if it has not, or has failed and does not pass that on."""
    ending = ending_of(task)
    if ending is None or not ending.failed or is_relay(task.key):
        return ending
    return ending if passes_on(context.view.get(GRAPH).value, task.value) else None


def finish_extension(item: FinishExtension, context: Context) -> Verdict:
    view = context.view
    view.require((GRAPH, request_key(item.request)))
    head, graph = view.get(request_key(item.request)), view.get(GRAPH)
    if head.text("state") != "accepted":
        return Outcome.REPEATED, ""
    graph.set("extending", "")
    _done(head, head.integer("tasks"), _fact_of(head.text("told")), context)
    return Outcome.APPLIED, ""


def _fact_of(text: str) -> Mapping[str, Any]:
    """Fields of the event, from the request row; none where an older version accepted the extension."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}  # damaged: the labels can be read off the rows
    return found if isinstance(found, dict) else {}


def _done(head: Draft, tasks: int, fact: Mapping[str, Any], context: Context) -> None:
    head.set("state", "done")
    head.set("answered", context.now)
    request, by = head.key.removeprefix("request:"), head.text("by") or None
    context.event("graph-extended", request=request, tasks=tasks, by=by, **fact)


RULES: Final[Rules] = {
    AcceptExtension: accept_extension,
    DeferExtension: defer_extension,
    RefuseRequest: refuse_request,
    InsertRows: insert_rows,
    LinkTasks: link_tasks,
    FinishExtension: finish_extension,
}
