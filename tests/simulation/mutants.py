"""Rules of the protocol, each left out once: the tests' worlds must notice, or they would notice nothing.

A mutant replaces a function of the product by one that forgets its rule, or gives it a text with other words in one
place; what plays is the same as ever. Most are hunted in seeded histories; those that take one fault at one place, and
no race, in the lives of `exhaustive`.
"""

import contextlib
import dataclasses
import functools
import inspect
import math
import random
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pytest

from taskgraph.documents.edit_document import EditDocument, Update
from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.engine import control, dispatch, live_index, plans, requests, submission, transact
from taskgraph.engine import sweep as sweep_module
from taskgraph.engine.commit import Operation, Records
from taskgraph.engine.consumer import Consumer, Waiting
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.poison import Poison
from taskgraph.engine.row_cache import CachedGraph
from taskgraph.engine.sweep import Swept
from taskgraph.model import foreign_times, limits, timing
from taskgraph.model.ids import GRAPH, row_key
from taskgraph.protocol import (
    cancel,
    concurrency,
    conditions,
    decide,
    edit,
    extension,
    extension_plan,
    leases,
    lifecycle,
    pause,
    planned,
    prioritize,
    propagation,
    recall,
    relays,
    rerun,
    runs,
    set_limit,
    spending,
    tally,
    together,
    wiring,
)
from taskgraph.protocol.concurrency import Limit
from taskgraph.protocol.conditions import COMPLETED, goes_on
from taskgraph.protocol.context import Context, Outcome, Verdict
from taskgraph.protocol.edit import EditGraph
from taskgraph.protocol.edit_plan import definitions, plan
from taskgraph.protocol.edit_plan.definitions import Definitions
from taskgraph.protocol.edit_plan.edges import EdgeChanges
from taskgraph.protocol.edit_plan.names import Names
from taskgraph.protocol.extension import AcceptExtension, InsertRows, LinkTasks
from taskgraph.protocol.extension_plan import ExtensionPlan
from taskgraph.protocol.recall import ManualRerun, Recall
from taskgraph.protocol.rows import Draft
from taskgraph.protocol.runs import Claim
from taskgraph.protocol.set_limit import Recount
from taskgraph.queries.event_queues import EventQueues
from taskgraph.queries.workers import Crew
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Change, Insert, Merge, Range, Row, Tables
from taskgraph.testing import MemoryTables
from taskgraph.worker.reports import Reporter
from tests.simulation import playing
from tests.simulation import world as world_module
from tests.simulation.bounds import CHUNKED, FEW_LEAVES, NARROWER, TIGHT, TIGHT_FAILING, bounded
from tests.simulation.charged import charged
from tests.simulation.counted import counted, counted_and_rerun
from tests.simulation.exhaustive import play_without_faults
from tests.simulation.far import ROLES, SIZES, Far
from tests.simulation.grouped import with_groups
from tests.simulation.growing import growing
from tests.simulation.histories import limited, random_document, ranked, timed, with_conditions
from tests.simulation.invariants import Violation
from tests.simulation.lives import LIVES
from tests.simulation.overlapping import Overlapping
from tests.simulation.playing import Play
from tests.simulation.policed import policed, policed_and_rerun
from tests.simulation.sharing import SharedOut
from tests.simulation.tally import kinds_at
from tests.simulation.versions import MixedVersions
from tests.simulation.world import EPOCH, Faults, World

HISTORIES_MAX: Final = 1_500
STEPS_MAX: Final = 20_000
"""Far more than any of these histories takes when nothing is wrong."""

Patch = Callable[[pytest.MonkeyPatch], None]
History = World | Overlapping


RECOVERY_SECONDS_MAX: Final = limits.HANDLER_LEASE_SECONDS + limits.LEASE_SECONDS + 2 * limits.SWEEP_SECONDS
"""Virtual time by which one fault may delay a graph."""


@dataclass(frozen=True)
class Mutant:
    """rule: the one that is left out, with its ids. what: how. history: what is played, by seed; lives: what is played
    instead, without a fault and with every one. given: what is left out besides, and nobody may miss by itself (of two
    rules that stand in for each other); kinds: of faults, with which nobody does, after the submission."""

    rule: str
    what: str
    patch: Patch
    history: Callable[[int], History] | None = None  # None: `history` below
    lives: tuple[str, ...] = ()
    given: Patch | None = None
    kinds: tuple[str, ...] = ()
    together: bool = False
    """Of a rule as `protocol.together` has it; all others are left out where each item is decided by its rule."""


def _set(target: Any, name: str, wrong: Any) -> Patch:
    items = [each for each, rule in decide.RULES.items() if rule is getattr(target, name)]

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(target, name, wrong)
        for each in items:
            monkeypatch.setitem(decide.RULES, each, wrong)

    return patch


def _reworded(home: Any, name: str, *changes: tuple[str, str], owner: Any = None) -> Patch:
    """The function with other words in its text; each of the old ones must be there, once. owner: who calls it."""
    function = getattr(home, name)
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in changes:
        assert source.count(old) == 1, f"{name} says {old!r} {source.count(old)} times"
        source = source.replace(old, new)
    found: dict[str, Any] = {}
    exec(compile(source, f"<{name}, reworded>", "exec"), function.__globals__, found)  # noqa: S102 - our own text
    return _set(owner or home, name, found[name])


def _take_up(old: str, new: str) -> Patch:
    """The rule by which a plan is taken up, with other words in its text."""
    found: dict[str, Any] = {}
    source = inspect.getsource(planned.take_up)
    assert source.count(old) == 1, f"take_up says {old!r} {source.count(old)} times"
    exec(compile(source.replace(old, new), "<take_up>", "exec"), planned.__dict__, found)  # noqa: S102 - our own text

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(decide.RULES, planned.TakeUp, functools.partial(found["take_up"], decide.RULES))

    return patch


def _all(*patches: Patch) -> Patch:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        for each in patches:
            each(monkeypatch)

    return patch


_commit = MemoryTables.commit
_count_down = propagation.count_down
_next_run = runs.next_run
_accept = extension.accept_extension
_block = propagation.block
_step = ExtensionPlan.step
_records_commit = Records.commit
_take = Consumer.take
_set_aside = Poison.set_aside


async def commit_whatever_was_read(self: MemoryTables, partition: str, changes: Sequence[Change]) -> list[str | None]:
    rows = self.partitions.get(partition, {})
    unguarded = [
        dataclasses.replace(each, etag=rows[each.key].etag) if isinstance(each, Merge) and each.key in rows else each
        for each in changes
    ]
    return await _commit(self, partition, unguarded)


async def commit_row_by_row(
    self: Records, graph_id: str, changes: Sequence[Change], operation: Operation, rows: dict[str, Row | None], *_: Any
) -> None:
    for change in changes:
        await self.tables.commit(graph_id, [change])
        rows.pop(change.key, None)
    self._ends.pop(graph_id, None)


async def commit_with_graph_row_as_it_stands(
    self: MemoryTables, partition: str, changes: Sequence[Change]
) -> list[str | None]:
    graph = self.partitions.get(partition, {}).get(GRAPH)
    return await _commit(
        self,
        partition,
        [
            dataclasses.replace(each, etag=graph.etag)
            if isinstance(each, Merge) and graph and each.key == GRAPH
            else each
            for each in changes
        ],
    )


async def commit_facts_first(
    self: Records,
    graph_id: str,
    changes: Sequence[Change],
    operation: Operation,
    rows: dict[str, Row | None],
    *more: Any,
) -> None:
    facts = [each for each in changes if each.key.startswith("event:")]
    for part in (facts, [each for each in changes if each not in facts]):
        if part:
            await _records_commit(self, graph_id, part, operation, rows, *more)


async def commit_cursor_first(
    self: Records,
    graph_id: str,
    changes: Sequence[Change],
    operation: Operation,
    rows: dict[str, Row | None],
    *more: Any,
) -> None:
    heads = [each for each in changes if isinstance(each, Merge) and "cursor" in each.columns]
    for part in (heads, [each for each in changes if each not in heads]):
        if part:
            await _records_commit(self, graph_id, part, operation, rows, *more)


async def commit_graph_first(
    self: Records,
    graph_id: str,
    changes: Sequence[Change],
    operation: Operation,
    rows: dict[str, Row | None],
    *more: Any,
) -> None:
    begun = [each for each in changes if isinstance(each, Insert) and not each.key.startswith("task:")]
    torn = any(each.key == GRAPH for each in begun)
    for part in (begun, [each for each in changes if each not in begun]) if torn else (changes,):
        if part:
            await _records_commit(self, graph_id, part, operation, rows, *more)


async def acknowledge_first(self: Consumer, graph_id: str, batch: Sequence[Waiting]) -> None:
    for each in batch:
        if each.delivery is not None:
            await self.handlers.queues.delete(each.delivery)
    await _take(self, graph_id, batch)


async def delete_first(self: Poison, delivery: Delivery, reason: str) -> None:
    await self._queues.delete(delivery)
    await _set_aside(self, delivery, reason)


async def read_one_page(tables: Tables, partition: str, rows: Range) -> list[Row]:
    return list((await tables.query(partition, rows)).rows)


async def none_past_deadline(*_: object) -> tuple[list[Any], None]:
    return [], None


async def nothing_to_resend(*_: object, **__: object) -> None:
    return


def any_content(row: Row, graph_id: str, digest: str) -> None:
    return


def believe_what_is_known(self: Any, key: str) -> bool:
    return key in self.rows


async def always_mine(self: Records, *_: object) -> bool:
    return True


def hold_by_state_alone(task: Draft, run: int, claim: str) -> bool:
    return task.text("state") == "running"


def claim_by_anyone(item: Claim, context: Context) -> Verdict:
    task = context.view.get(row_key(item.task_id))
    task.set("state", "running")
    task.set("run", item.run)
    task.set("claim", item.claim)
    task.set("leaseUntil", item.lease_until)
    return Outcome.APPLIED, ""


async def no_sweep(*_: object, **__: object) -> Swept:
    return Swept()


def link_first(self: ExtensionPlan, head: Row) -> Any:
    cursor = head.columns.get("cursor", 0)
    if head.columns.get("state") != "accepted" or not isinstance(cursor, int):
        return _step(self, head)
    planned = extension_plan
    if links := self.links[cursor:]:
        portion = planned.portion(links, planned._link_rows, planned._STEP_ROWS_MAX)
        return LinkTasks(self.request, cursor, portion)
    if rows := self.layout.rows[cursor - len(self.links) :][: planned._STEP_ROWS_MAX]:
        return InsertRows(self.request, cursor, planned.portion(rows, planned.row_bytes, planned._STEP_BYTES_MAX))
    return _step(self, head)


def insert_in_place(item: InsertRows, context: Context) -> Verdict:
    head = extension._step(item.request, item.cursor, context)
    if head is None:
        return Outcome.STALE, ""
    extension._insert(item.rows, context)
    return Outcome.APPLIED, ""


def accept_any_revision(item: AcceptExtension, context: Context) -> Verdict:
    revision = context.view.get(GRAPH).integer("revision")
    return _accept(dataclasses.replace(item, revision=revision), context)


def accept_in_any_state(item: AcceptExtension, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    state = graph.text("state")
    graph.set("state", "running")
    answer = _accept(item, context)
    graph.set("state", state)
    return answer


def block_uncounted(task: Draft, context: Context, reason: str) -> None:
    _block(task, context, reason)
    graph = context.view.get(GRAPH)
    graph.set("failedTasks", graph.integer("failedTasks") - 1)


def count_by_number(reference: str, fulfilled: str, context: Context, *news: Any) -> None:
    row = context.view.named(reference)
    left = row.ids("requiresLeft")
    _count_down(reference, left[0] if left else fulfilled, context, *news)


def count_once(reference: str, fulfilled: str, context: Context, *news: Any) -> None:
    row = context.view.named(reference)
    if reference != GRAPH:
        row.set_ids("requiresLeft", [])
    _count_down(reference, fulfilled, context, *news)


def spend_nothing(task: Draft, *rest: Any, **more: Any) -> None:
    if task.integer("rerunsLeft") < task.integer("rerunsAllowed"):
        task.set("rerunsLeft", task.integer("rerunsLeft") + 1)
    _next_run(task, *rest, **more)


def same_run(task: Draft, *rest: Any, **more: Any) -> None:
    _next_run(task, *rest, **more)
    task.set("run", task.integer("run") - 1)


def say_nothing(self: Context, kind: str, *_: Any, **fields: Any) -> None:
    return


def count_nothing(*_: object) -> None:
    return


def _everywhere(wrong: Any) -> Patch:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(propagation, "count_down", wrong)
        monkeypatch.setattr(extension, "count_down", wrong)

    return patch


def history(seed: int) -> World:
    """Small, with everything that can happen to a graph, and many messages twice."""
    rng = random.Random(seed)
    document = random_document(rng, rng.choice((2, 4, 6)), reruns_max=1)
    base = tuple(document.tasks)
    added = [random_document(rng, 3, prefix=f"x{n}_", base=base, density=0.4) for n in range(rng.choice((1, 2)))]
    faults = Faults(lose=rng.choice((0.0, 0.1)), double=0.3, crash=0.02, unclear=0.02, false_conflict=0.05)
    bounds = rng.choice(({}, FEW_LEAVES, {**CHUNKED, **NARROWER}))
    return World(seed, document, {"t1": rng.choice((0, 1, 3))}, added, faults, reruns=True, bounds=bounds)


def long_extensions(seed: int) -> World:
    """Two extensions of several chunks, while somebody runs what is in already."""
    rng = random.Random(seed)
    added = [random_document(rng, 6, prefix=f"x{n}_", density=0.4) for n in range(2)]
    return World(seed, random_document(rng, 2), {}, added, Faults(crash=0.05, double=0.1), bounds=CHUNKED)


def times(seed: int) -> World:
    """Tasks that wait, that are tried again later, and that are too late, under clocks that differ."""
    rng = random.Random(seed)
    document = random_document(rng, rng.choice((2, 3, 4)), density=0.5, reruns_max=1)
    faults = Faults(double=rng.choice((0.0, 0.2)), crash=0.02)
    return timed(World(seed, document, {}, (), faults, reruns=rng.random() < 0.5), share=1.0)


def far_apart(seed: int) -> World:
    """Tasks that are tried again later, and messages that are lost, under clocks that are off by up to a year."""
    rng = random.Random(seed)
    document = random_document(rng, rng.choice((1, 2, 3)), density=0.5)
    paused = {
        label: dataclasses.replace(node, timing={"retry": {"limit": 3, "delay": rng.choice((1, 30)), "max": 60}})
        for label, node in document.tasks.items()
    }
    roles = rng.choice((ROLES[:1], ROLES[:2], ROLES[1:2], ROLES[2:3], ROLES))
    world = World(seed, GraphDocument(paused), {}, (), Faults(crash=0.05, lose=0.2), processes=rng.choice((1, 3)))
    temporary = {label: rng.choice((1, 2)) for label in paused}
    far = Far(roles, SIZES[-1], rng.choice((0.0, 0.05)), stays=rng.random() < 0.7)
    return dataclasses.replace(world, temporary=temporary, far=far)


def late_and_rerun(seed: int) -> World:
    """A chain that cannot be in time, and is rerun by those by whose clock it still can, while sweeps look often."""
    early = TaskNode("t0", (), 0, {"deadline": _moment(50)}, timing={"notBefore": _moment(100)})
    behind = TaskNode("t1", ("t0",), 0, {"deadline": _moment(50)})
    graph = GraphDocument({"t0": early, "t1": behind})
    return World(seed, graph, {}, (), Faults(double=0.1), reruns=True, sweep_seconds=3.0)


def _moment(seconds: float) -> str:
    return (EPOCH + timedelta(seconds=seconds)).isoformat()


def rivals(seed: int) -> World:
    """Three extensions at once, each of which would fill what the graph row may still name."""
    rng = random.Random(seed)
    added = [random_document(rng, 2, prefix=f"x{n}_", density=0.0) for n in range(3)]
    return World(seed, random_document(rng, 1), {}, added, Faults(double=0.2), bounds=FEW_LEAVES)


def accepted_by_many(seed: int) -> World:
    """One extension, whose message is with many handlers at once.

    The revision of the graph stands in for its state, unless a handler reads the request before it is accepted and the
    graph after that: so answers come late, and each message comes twice. 6 of 100 histories notice.
    """
    rng = random.Random(seed)
    added = [random_document(rng, 2, prefix="x", density=0.0)]
    faults = Faults(double=1.0, late=0.3)
    return World(seed, random_document(rng, 1), {}, added, faults, crowds=(12, 12, 12), begun=True, processes=6)


def conditional(seed: int) -> World:
    """Graphs that go on after failures, with conditions, optional requirements, relays and extensions."""
    rng = random.Random(seed)
    document = with_conditions(random_document(rng, rng.choice((3, 5, 7)), reruns_max=1, density=0.4), rng)
    added = [with_conditions(random_document(rng, 2, prefix="x", base=tuple(document.tasks), density=0.5), rng)]
    labels = [*document.tasks, *added[0].tasks]
    fails = {label: rng.choice((1, 2)) for label in labels if rng.random() < 0.4}
    faults = Faults(double=0.1, crash=0.02, unclear=0.02, false_conflict=0.05)
    bounds = rng.choice(({}, NARROWER, TIGHT_FAILING, {**CHUNKED, **NARROWER}))
    extensions = added if bounds is not TIGHT_FAILING else []
    going_on = dataclasses.replace(document, failure_policy="continue")
    return World(seed, going_on, fails, extensions, faults, bounds=bounds)


def cancelled_and_rerun(seed: int) -> World:
    """A graph that is blocked, and cancelled while somebody reruns what failed."""
    rng = random.Random(seed)
    document = random_document(rng, 4, density=0.2)
    faults = Faults(double=0.3, crash=0.02)
    return World(seed, document, {"t0": 1, "t1": 1}, (), faults, reruns=True, cancel="graph")


def ranked_and_faulty(seed: int) -> World:
    """Graphs whose tasks have priorities, and messages that are lost."""
    rng = random.Random(seed)
    document = random_document(rng, rng.choice((3, 5)), density=0.3, reruns_max=1)
    return ranked(World(seed, document, {"t0": 1}, (), Faults(lose=0.3, double=0.1, crash=0.05), reruns=True), rng)


def paused(seed: int) -> World:
    """Graphs with groups and extensions, of which something is held back and let go again and again."""
    rng = random.Random(seed)
    document = with_groups(random_document(rng, rng.choice((2, 4)), reruns_max=1), rng)
    added = [random_document(rng, 3, prefix="x", base=tuple(document.tasks), density=0.3)]
    faults = Faults(double=0.2, crash=0.02, unclear=0.02)
    extensions = added if rng.random() < 0.5 else []
    bounds = rng.choice(({}, CHUNKED))
    return World(seed, document, {"t0": 1}, extensions, faults, reruns=True, bounds=bounds, pauses=4)


def paused_and_cancelled(seed: int) -> World:
    """The same, while somebody cancels a task."""
    return dataclasses.replace(paused(seed), cancel="task")


def paused_and_extended(seed: int) -> World:
    """A graph that is paused again and again while extensions of several chunks come in."""
    rng = random.Random(seed)
    added = [random_document(rng, 6, prefix=f"x{n}_", density=0.4) for n in range(2)]
    return World(seed, random_document(rng, 2), {}, added, Faults(crash=0.02, double=0.1), bounds=CHUNKED, pauses=6)


def crowded(seed: int) -> World:
    """Graphs, and groups of them, under limits of one or two, which somebody changes."""
    rng = random.Random(seed)
    document = with_groups(random_document(rng, rng.choice((3, 5)), density=0.1, reruns_max=1), rng)
    faults = Faults(double=0.2, crash=0.02, unclear=0.02, false_conflict=0.05)
    return limited(World(seed, document, {"t0": 1}, (), faults, reruns=True), rng)


def limited_and_extended(seed: int) -> World:
    """Graphs without limits that are given some while extensions of several chunks come in."""
    rng = random.Random(seed)
    added = [random_document(rng, 6, prefix=f"x{n}_", density=0.4) for n in range(2)]
    bounds = {**CHUNKED, "COMMIT_CHANGES_MAX": CHUNKED["COMMIT_CHANGES_MAX"] + limits.LIMITS_OF_TASK_MAX}
    faults = Faults(crash=0.02, double=0.1)
    return World(seed, random_document(rng, 2), {}, added, faults, bounds=bounds, changes=4, anew=True)


def crowded_and_late(seed: int) -> World:
    """Crowded histories: in one of some thousands a graph ends while a limit is set. From shortly before that one."""
    return crowded(9_500 + seed)


def suspect_all(under: Mapping[str, Limit], open_tasks: object) -> list[Recount]:
    return [Recount(scope, tuple(limit.inside)) for scope, limit in under.items() if limit.inside]


async def commit_with_limits_as_they_stand(
    self: MemoryTables, partition: str, changes: Sequence[Change]
) -> list[str | None]:
    rows = self.partitions.get(partition, {})
    return await _commit(
        self,
        partition,
        [
            dataclasses.replace(each, etag=rows[each.key].etag)
            if isinstance(each, Merge) and each.key.startswith("limit:")
            else each
            for each in changes
        ],
    )


def never(graph: Draft) -> bool:
    return False


def all_is_news(plan: object, own: str, update: Update) -> Update:
    return update


async def always_so(records: Records, graph_id: str, graph: Row, document: EditDocument) -> bool:
    return True


def overlapping(seed: int) -> Overlapping:
    """Calls of one process that overlap on one graph, of which each is answered late."""
    return Overlapping(seed)


def edited(seed: int) -> World:
    """Graphs that are edited again and again, by several at once, while messages come twice and late."""
    rng = random.Random(seed)
    document = random_document(rng, rng.choice((2, 3, 5)), density=rng.choice((0.1, 0.4)))
    if rng.random() < 0.3:
        document = with_groups(document, rng)
    added = [random_document(rng, 2, prefix="x", base=tuple(document.tasks), density=0.3)]
    extensions = added if rng.random() < 0.3 else []
    return World(seed, document, {}, extensions, Faults(double=0.2, crash=0.02, unclear=0.02), edits=8)


def edited_in_the_queue(seed: int) -> World:
    """Tasks that wait in a queue, as few work, and are edited there: a worker has the definition of before in hand.

    5 of 100 histories notice a claim of another definition, and of those of `edited` one in a thousand.
    """
    rng = random.Random(seed)
    few = (2, 2)
    document, faults = random_document(rng, 6, density=0.0), Faults(double=0.5)
    return World(seed, document, {}, (), faults, edits=40, edit_when="running", crowds=few, storm_steps=(500, 600))


def edited_and_waiting(seed: int) -> World:
    """Tasks that are edited again and again before their time: an edit is undone by another, and asked for once more.

    8 of 100 histories notice that it is not made again; where tasks begin at once, hardly any edit is undone.
    """
    waits = [TaskNode(f"t{n}", (), 0, {}, timing={"notBefore": _moment(600)}) for n in range(3)]
    document = GraphDocument({node.label: node for node in waits})
    return World(seed, document, {}, (), Faults(double=0.1), edits=40, storm_steps=(800, 1_200))


def edited_and_failing(seed: int) -> World:
    """Tasks that have failed, are edited as the graph is blocked, and are rerun by hand as they are then.

    3 of 100 histories notice that a budget is whole again: the edit must raise it, and the task fail once more.
    """
    rng = random.Random(seed)
    document = random_document(rng, 2, density=0.3, reruns_max=2)
    fails = {"t0": 9, "t1": 3}
    return World(seed, document, fails, (), Faults(double=0.2), reruns=True, edits=20, edit_when="blocked")


def planned_ahead(seed: int) -> World:
    """Much is asked for by hand at once, each by its plan, of a few tasks behind relays."""
    rng = random.Random(seed * 47 + 29)
    document = random_document(rng, rng.choice((2, 3, 4)), density=rng.choice((0.3, 0.7)), reruns_max=1)
    fails = {label: 1_000_000 for label in document.tasks if rng.random() < 0.2}
    what = rng.choice(("again", "pauses", "cancel", "again"))
    world = World(
        seed,
        document,
        fails,
        faults=Faults(crash=rng.choice((0.0, 0.02)), late=0.3),
        bounds=rng.choice(({}, FEW_LEAVES, NARROWER)),
        planned=1.0,
        begun=True,
        direct=rng.choice((0.0, 0.4)),
    )
    match what:
        case "again":
            return dataclasses.replace(world, again=3)
        case "pauses":
            return dataclasses.replace(world, pauses=3, again=2)
        case _:
            return dataclasses.replace(world, cancel=rng.choice(("task", "graph")), again=1)


def planned_and_claimed(seed: int) -> World:
    """Single tasks, rerun time and again as they are claimed: much of that is refused, and writes nothing."""
    world = planned_ahead(seed)
    document = GraphDocument({each: TaskNode(each) for each in ("a", "b")})
    world = dataclasses.replace(world, document=document, fails={}, again=12, pauses=0, cancel="")
    return dataclasses.replace(world, faults=Faults(late=0.5), storm_steps=(1_500, 2_000))


def planned_in_crowds(seed: int) -> World:
    """The same, now with a plan, now without, by many at once: one history of some thousands notices."""
    return dataclasses.replace(planned_and_claimed(seed), planned=0.5, crowds=(12, 12, 8))


def planned_and_rerun(seed: int) -> World:
    """A chain whose tasks are rerun so, from a seed on behind which one history of 400 notices, and before it fewer."""
    document = GraphDocument({"a": TaskNode("a"), "b": TaskNode("b", ("a",)), "c": TaskNode("c", ("b",))})
    return dataclasses.replace(planned_in_crowds(seed + 1_500), document=document)


def run_again(seed: int) -> World:
    """Small graphs of which tasks are rerun that have ended, in commits of few rows, while messages come twice."""
    rng = random.Random(seed * 3 + 1)
    document = random_document(rng, rng.choice((2, 3, 4, 5)), density=0.5)
    faults = Faults(lose=rng.choice((0.0, 0.1)), double=0.2, crash=0.03, late=rng.choice((0.0, 0.1)))
    bounds = rng.choice(({}, TIGHT, {**TIGHT, **NARROWER}))
    return World(seed, document, {}, (), faults, bounds=bounds, again=3, begun=True)


def cancelled_and_again(seed: int) -> World:
    """The same, and somebody cancels the graph before or after that."""
    what = ("graph", "terminate")[seed % 2]
    world = run_again(seed)
    faults = dataclasses.replace(world.faults, late=0.3, double=0.3)
    return dataclasses.replace(world, faults=faults, cancel=what, cancels=3, again=5, storm_steps=(200, 600))


def asked_twice_and_again(seed: int) -> World:
    """The same, with one request to cancel, which comes twice, and late."""
    return dataclasses.replace(cancelled_and_again(seed), faults=Faults(double=0.7, late=0.2, crash=0.05), cancels=1)


def overlapping_reruns(seed: int) -> World:
    """Few rows a read, answers that come late, and nearly every message twice, while some of five tasks are rerun."""
    document = random_document(random.Random(seed * 3 + 1), 5, density=0.6)
    return dataclasses.replace(
        run_again(seed),
        document=document,
        faults=Faults(double=0.5, late=0.4),
        bounds={**TIGHT, **NARROWER, "READ_ALONE_MAX": 1, "READ_PAGE_WORTH": 1},
        storm_steps=(300, 900),
        crowds=(12, 12, 8),
        again=4,
    )


NO_SWEEP: Final = _all(_set(world_module, "sweep", no_sweep), _set(playing, "sweep", no_sweep))

_OVER: Final = " and leases.lease(row.columns.get, now) is Standing.OVER:"

_UNLESS_HELD: Final = (
    "if not _holds(task, item.run, item.claim):\n        return _stale_result(task, item.run, item.claim, context)"
)

MUTANTS: Final = (
    # one transition, one commit
    Mutant(
        "P2: a row is written under the etag that was read",
        "every merge takes the row's present etag",
        _set(MemoryTables, "commit", commit_whatever_was_read),
    ),
    Mutant(
        "P8: the graph row is written under the etag that was read",
        "merges of the graph row take its present etag",
        _set(MemoryTables, "commit", commit_with_graph_row_as_it_stands),
    ),
    Mutant(
        "P2: what a transition writes is one commit",
        "each row in a commit of its own",
        _set(Records, "commit", commit_row_by_row),
    ),
    Mutant(
        "P3: facts are in the commit of what they tell",
        "the event row in a commit of its own, first",
        _set(Records, "commit", commit_facts_first),
    ),
    Mutant("P3: facts are written with what they tell", "no event rows", _set(Context, "event", say_nothing)),
    Mutant(
        "P2: a known row that is decided by, and not written, is read first",
        "it is taken for what stands there",
        _set(transact._Transition, "_is_fresh", believe_what_is_known),
    ),
    Mutant(
        "P2: of what a decision does not write only the version counts that its call has read",
        "whatever is known now of a row that it has read",
        _reworded(
            transact._Transition,
            "_is_fresh",
            (
                "key in self.fresh and self.fresh[key] == (row.etag if row is not None else None)",
                "key in self.fresh",
            ),
        ),
        overlapping,
    ),
    Mutant(
        "P2: an older read replaces nothing that was written since",
        "it is kept",
        _reworded(transact._Transition, "_tidy", ("known.overtake([change.key for change in changes])", "pass")),
        overlapping,
    ),
    Mutant(
        "P2: an older read brings nothing back that was dropped since",
        "it is kept",
        _reworded(CachedGraph, "drop", ("self.overtake(dropped)", "pass")),
        overlapping,
    ),
    Mutant(
        "P2: an older read replaces nothing that was read since",
        "it is kept",
        _reworded(CachedGraph, "keep", ("each.overtaken.add(key)", "pass")),
        overlapping,
    ),
    Mutant(
        "P2: of two reads at one time that differ neither is kept",
        "the one that ends later is",
        _reworded(CachedGraph, "keep", ("if reading.others.get(key, version) != version:", "if False:")),
        overlapping,
    ),
    Mutant(
        "P2: an edit goes by states that were read after what it writes",
        "rows of one read are of one moment",
        _set(transact, "_JUDGES", (ManualRerun, Recall)),
        overlapping,
    ),
    Mutant(
        "P2: a recall goes by rows that were read after what it writes",
        "rows of one read are of one moment",
        _set(transact, "_JUDGES", (EditGraph,)),
        overlapping_reruns,
    ),
    Mutant(
        "P2: what a claim made of a row is known to who knows the row that was claimed",
        "the etag of a result is put on whatever is known",
        _reworded(transact, "_suppose", ("row.etag == item.over and ", "")),
    ),
    Mutant(
        "D9: the journal counts completed tasks",
        "what others counted meanwhile is not looked at",
        _reworded(Records, "_find_end", ("*end[:3]", "end[0], completed, end[2]")),
    ),
    Mutant(
        "D9: the journal counts skipped tasks",
        "what others counted meanwhile is not looked at",
        _reworded(Records, "_find_end", ("*end[:3]", "end[0], end[1], skipped")),
        conditional,
    ),
    # failures that are told to dependents
    Mutant(
        "P15: a failure is told to dependents",
        "it is counted, and nobody is told",
        _reworded(
            propagation,
            "block",
            ('        count_down_dependents(task, task.key.removeprefix("task:"), context, failure_of(task))\n', ""),
            owner=runs,
        ),
        conditional,
    ),
    Mutant(
        "P14: where the policy is fail-fast, the fence is in the commit of the failure",
        "the graph is blocked",
        _reworded(propagation, "block", ("== FailurePolicy.FAIL_FAST", "== 0"), owner=runs),
        lives=("the rest is cancelled",),
    ),
    Mutant(
        "P15: a skip that no commit had room for stands on its row, for the sweep",
        "the sweep does not look for it",
        _set(sweep_module, "SKIP", "nothing"),
        lives=("a chain is skipped over several commits",),
    ),
    Mutant(
        "P15: nobody is skipped before all that it requires is over",
        "the first failure decides",
        _all(
            *(
                _reworded(
                    propagation,
                    "count_down",
                    (
                        'if row.cross_off("requiresLeft", fulfilled):',
                        'if row.cross_off("requiresLeft", fulfilled) and not row.text("failedBy"):',
                    ),
                    owner=owner,
                )
                for owner in (propagation, extension)
            )
        ),
        conditional,
    ),
    Mutant(
        "P15: how an optional requirement ended does not matter",
        "it does",
        _reworded(
            conditions, "keep_ending", ('    if name in row.ids("optional"):\n        return\n', ""), owner=propagation
        ),
        conditional,
    ),
    Mutant(
        "P15: a failure that is rerun is nobody else's business",
        "dependents are told of it",
        _reworded(
            runs,
            "_failed",
            (
                '        next_run(task, context, "failed", item.ended, reason, item.resolution)\n',
                (
                    "        count_down_dependents(task, item.task_id, context, failure_of(task))\n"
                    '        next_run(task, context, "failed", item.ended, reason, item.resolution)\n'
                ),
            ),
        ),
        conditional,
    ),
    Mutant(
        "P15: who is added below a task that failed or was skipped is told at once",
        "only below one that completed",
        _reworded(extension, "known_ending", ("passes_on(context.view.get(GRAPH).value, task.value)", "False")),
        conditional,
    ),
    Mutant(
        "P15: a join passes on that something failed, and that something was skipped",
        "a failure hides a skip",
        _reworded(
            conditions,
            "passed_on",
            ("Ending(failed, skipped)", 'Ending(failed, "" if failed else skipped)'),
            owner=relays,
        ),
        lives=("a join of a failure and a skip",),
    ),
    Mutant(
        "P15: a condition is held against how requirements ended",
        "any failure skips",
        _reworded(conditions, "is_met", ("meets(when, failed", 'meets("", failed'), owner=propagation),
        conditional,
    ),
    Mutant(
        "P17: a conflict on the own write is told by the operation",
        "every conflict is taken for the own write",
        _set(Records, "_is_mine", always_mine),
    ),
    Mutant(
        "P17: an answer that was lost is settled by the operation",
        "a row that is there is taken for written by this commit, whatever its operation",
        _reworded(Records, "_is_mine", (' and row.columns.get("operation") == operation_id', "")),
    ),
    Mutant(
        "P2: rows that contradict each other are read again",
        "decided on as they were read",
        _set(transact, "_SUSPICIONS_MAX", 0),
    ),
    Mutant(
        "P25: a reading goes on to its last continuation",
        "the sweep and the handlers read one page",
        _all(
            *(
                _set(module, "query_all", read_one_page)
                for module in (sweep_module, control, dispatch, live_index, requests, plans)
            )
        ),
    ),
    # claims, runs, leases, budgets
    Mutant("P5: only a pending run can be claimed", "a claim takes any task", _set(runs, "_claim", claim_by_anyone)),
    Mutant(
        "P4: a work message is for one run",
        "a claim takes a pending task, whatever its run",
        _reworded(runs, "_claim", (' or task.integer("run") != item.run', "")),
    ),
    Mutant(
        "P6: a result counts only with its run and claim",
        "of a running task any result counts",
        _set(runs, "_holds", hold_by_state_alone),
    ),
    Mutant(
        "P6: what is decided with others counts only with its run and claim",
        "of a running task any result counts, of a pending one any claim",
        _all(
            _reworded(together.Stretch, "_complete", ('task.columns.get("claim") != item.claim or ', "")),
            _reworded(together.Stretch, "_plain", (" or found != run", "")),
        ),
        together=True,
    ),
    Mutant(
        "a run that is to be cancelled ends by its rule, whatever is decided with others",
        "a result that is decided with others does not look for `cancel`",
        _set(together, "_AT_END", together._AT_END - {"cancel"}),
        cancelled_and_rerun,
        together=True,
    ),
    Mutant(
        "a task under a limit is claimed by its rule, whatever is decided with others",
        "a claim that is decided with others does not look for `limits`",
        _set(together, "_AT_CLAIM", together._AT_CLAIM - {"limits"}),
        crowded,
        together=True,
    ),
    Mutant(
        "a task that is held back is not claimed with others either",
        "a claim that is decided with others does not look for `held`",
        _set(together, "_AT_CLAIM", together._AT_CLAIM - {"held"}),
        paused,
        together=True,
    ),
    Mutant(
        "P6: a hand-back counts only with its run and claim",
        "any hand-back counts",
        _reworded(
            runs,
            "_hand_back",
            (_UNLESS_HELD, ""),
        ),
        lives=("a zombie that hands back",),
    ),
    Mutant(
        "P6: a renewal counts only with its run and claim",
        "any renewal counts",
        _reworded(runs, "_renew", ("not _holds(task, item.run, item.claim)", "False")),
        lives=("a zombie",),
    ),
    Mutant(
        "P22: a lease that the sweep saw end is looked at again",
        "any lost lease counts, whoever holds the run by now",
        _reworded(
            runs,
            "_lease_lost",
            (_UNLESS_HELD, ""),
        ),
    ),
    Mutant(
        "D10: a run is given up only after its lease has ended",
        "neither the sweep nor the decision looks at the end of the lease",
        _all(
            _reworded(
                runs,
                "_lease_lost",
                ("if not item.certain and (how := lease(task.value, context.now)) is not Standing.OVER:", "if False:"),
            ),
            _reworded(sweep_module, "_is_to_change", (_OVER, ":")),
        ),
        lives=("diamond, with the sweep about",),
    ),
    Mutant("P4: every new run has a number of its own", "the same again", _set(runs, "next_run", same_run)),
    Mutant("P12: a rerun spends the budget", "it spends nothing", _set(runs, "next_run", spend_nothing)),
    Mutant(
        "P12: a budget that is spent stays spent",
        "a rerun takes one more than there is",
        _reworded(runs, "_failed", ('task.integer("rerunsLeft") > 0', 'task.integer("rerunsLeft") >= 0')),
    ),
    Mutant(
        "D10: a lost lease spends a retry",
        "it spends nothing",
        _reworded(runs, "_lease_lost", ('task.set("retriesLeft", task.integer("retriesLeft") - 1)\n', "pass\n")),
    ),
    # what follows from a fact
    Mutant(
        "P7: a requirement is taken away by its id",
        "the first one that is left is taken away",
        _everywhere(count_by_number),
    ),
    Mutant("P7: all requirements are waited for", "the first one makes ready", _everywhere(count_once)),
    Mutant(
        "P8: the graph counts what failed for good",
        "a failure is not counted",
        _set(runs, "block", block_uncounted),
    ),
    Mutant(
        "P8: a rerun by hand takes its task off the count",
        "the count stays",
        _set(recall, "unblock", count_nothing),
    ),
    Mutant(
        "P4, D9: a message that comes again says the same again",
        "a result that was committed before tells nobody",
        _reworded(
            runs,
            "_completed",
            (
                "count_down_dependents(task, item.task_id, context, again=True)\n        return Outcome.REPEATED",
                "return Outcome.REPEATED",
            ),
        ),
        lives=("chain of 2",),
        given=NO_SWEEP,  # which would say it too, later
        kinds=("before", "after"),
    ),
    # extensions
    Mutant(
        "P8: an extension holds the graph open",
        "the graph row does not wait for it",
        _set(extension, "await_leaves", count_nothing),
    ),
    Mutant(
        "P8: an extension is planned for one revision",
        "accepted at any revision",
        _set(extension, "accept_extension", accept_any_revision),
        rivals,
    ),
    Mutant(
        "P8: only a graph that runs or is blocked takes extensions",
        "accepted in any state",
        _set(extension, "accept_extension", accept_in_any_state),
    ),
    Mutant(
        "P8: a paused graph is not extended before it is resumed",
        "it is, as any other",
        _all(
            _reworded(extension, "accept_extension", ("if is_deferring(graph):", "if False:")),
            _set(requests, "is_deferring", never),
            _set(control, "is_deferring", never),
        ),
        paused_and_extended,
    ),
    Mutant(
        "P8: a paused graph does not finish before what it is to be extended by",
        "it does",
        _all(
            *(
                _reworded(propagation, "count_down", (" and not row.ids(DEFERRED)", ""), owner=owner)
                for owner in (propagation, extension)
            )
        ),
        paused_and_extended,
    ),
    Mutant(
        "P8: a graph that has been extended waits for that no more",
        "it waits for ever",
        _reworded(extension, "accept_extension", ("    _not_deferred(head, graph)\n", "")),
        paused_and_extended,
    ),
    Mutant(
        "P9: an extension is accepted once",
        "accepted again with every message",
        _reworded(extension, "accept_extension", ('head.text("state") != "staged"', "False")),
        accepted_by_many,
    ),
    Mutant(
        "P9: new rows go in before anybody links to them",
        "links first, then rows",
        _set(ExtensionPlan, "step", link_first),
    ),
    Mutant(
        "P9: dependents go in before what they require",
        "rows in the opposite order",
        _reworded(
            extension_plan,
            "plan_steps",
            ("(*_with_revision(layout.rows, graph), *mapping_rows)", "(*reversed(layout.rows), *mapping_rows)"),
            owner=plans,
        ),
        long_extensions,
    ),
    Mutant(
        "P9: the cursor moves with what it counts",
        "rows go in, and the cursor stays",
        _set(extension, "insert_rows", insert_in_place),
    ),
    Mutant(
        "P9: the cursor moves in the commit of its step",
        "the cursor in a commit of its own, first",
        _set(Records, "commit", commit_cursor_first),
    ),
    Mutant(
        "P9: a link looks whether its task has completed",
        "links do not count down",
        _set(extension, "count_down", count_nothing),
    ),
    # submissions
    Mutant(
        "P10: a graph starts when all its rows are in",
        "it starts before",
        _reworded(
            submission,
            "_write_and_start",
            (
                "    await writing.write(",
                '    await handlers.transition(graph_id, [Start(row.columns["digest"])])\n    await writing.write(',
            ),
        ),
    ),
    Mutant(
        "P10: what is started with its rows is there, or nothing of it is",
        "the graph in a commit of its own, first",
        _set(Records, "commit", commit_graph_first),
        lives=("chain of 2",),
    ),
    Mutant(
        "P10: a submission under way is left alone",
        "the sweep gives up what is still being written",
        _all(
            _reworded(
                sweep_module, "_submitting", (" and created < before and await clock_trust.may_end(tables, now):", ":")
            ),
            _reworded(lifecycle, "_abandon", (" or created >= item.before", "")),
        ),
    ),
    Mutant(
        "P10: a graph's id stands for one content",
        "any content is taken for the same",
        _set(submission, "_same_content", any_content),
        lives=("another graph under the id",),
    ),
    # cancelling
    Mutant(
        "P14: a graph is fenced off before its tasks are cancelled",
        "its tasks are, and it runs on",
        _reworded(propagation, "fence", ('    graph.set("state", str(GraphState.CANCELLING))\n', ""), owner=cancel),
        lives=("cancelled while one runs",),
    ),
    Mutant(
        "P14: a graph is cancelled when every task has ended",
        "it is told as soon as all of them have been told",
        _reworded(control, "go_on_cancelling", ("    if not left:\n", "    if True:\n")),
        lives=("cancelled while one runs",),
    ),
    Mutant(
        "P14: the fence ends the extension under way",
        "it goes on",
        _reworded(
            propagation,
            "fence",
            ('    if extending := graph.text("extending"):', "    if extending := '':"),
            owner=cancel,
        ),
        lives=("cancelled while it is extended",),
    ),
    Mutant(
        "P14: nothing is rerun behind the fence",
        "it is",
        _reworded(
            rerun,
            "refusal",
            ("if not ended and graph_state not in (GraphState.RUNNING, GraphState.BLOCKED):", "if False:"),
        ),
        cancelled_and_rerun,
    ),
    Mutant(
        "P14: a run that is to be cancelled completes nothing",
        "it completes its task",
        _reworded(runs, "_completed", ('if task.text("cancel"):', "if False:")),
        lives=("cancelled while one runs",),
    ),
    Mutant(
        "P14: a run that is to be cancelled is not rerun",
        "it is, while it may",
        _reworded(runs, "_failed", ('    if task.text("cancel"):\n', "    if False:\n")),
        lives=("cancelled, and the run fails",),
    ),
    Mutant(
        "P14: a run that is to be cancelled, and lost, is not tried again",
        "it is",
        _reworded(runs, "_lease_lost", ('    if task.text("cancel"):\n', "    if False:\n")),
        lives=("cancelled while one runs",),
    ),
    Mutant(
        "P14: a graph that is being cancelled is its own reminder",
        "the sweep looks past it",
        _reworded(
            sweep_module,
            "_go_on",
            (
                "    if look.state == GraphState.CANCELLING:\n        look.swept.cancelled +=",
                "    if False:\n        look.swept.cancelled +=",
            ),
        ),
        lives=("cancelled, and the worker hears of it as it renews its lease",),
    ),
    Mutant(
        "P4: a cancel is for a task as it was when that was asked for",
        "for whatever has become of it",
        _reworded(
            cancel,
            "cancel_task",
            ('if 0 <= item.reruns < task.integer("manualReruns"):', "if False:"),
        ),
        lives=("a task is cancelled that waits long, and rerun",),
    ),
    Mutant(
        "P7: what was cancelled before its time, and is rerun, waits as it did",
        "it stands ready",
        _reworded(runs, "next_run", ('if waits or task.ids("requiresLeft"):', "if waits:"), owner=recall),
        lives=("a task is cancelled that waits, and rerun",),
    ),
    Mutant(
        "P15: where failures are told to dependents, nothing ends before what it requires",
        "what is cancelled does",
        _reworded(
            cancel,
            "cancel_task",
            ("if state == TaskState.UNSCHEDULED and passes_on(graph.value, task.value):", "if False:"),
        ),
        lives=("a task is cancelled that waits, where failures are told to dependents",),
    ),
    # holding back
    # priorities
    Mutant(
        "D13: a ready task goes to the queue of its level",
        "its commit forgets the level",
        _reworded(propagation, "dispatch", ("level_of(task.value)", '"normal"')),
        ranked_and_faulty,
    ),
    Mutant(
        "D13: of two levels that were asked for, the later one counts",
        "the one that arrives last does",
        _reworded(prioritize, "prioritize_task", ("if asked < known:", "if False:")),
        ranked_and_faulty,
    ),
    Mutant(
        "D13: what runs keeps its level",
        "it gets another one",
        _reworded(prioritize, "prioritize_task", ("if state == TaskState.RUNNING:", "if False:")),
        ranked_and_faulty,
    ),
    Mutant(
        "D13: what is said again goes to the queue of its level",
        "the sweep forgets the level",
        _reworded(sweep_module, "_ready", ("level_of(row.columns.get)", "NORMAL")),
        ranked_and_faulty,
    ),
    Mutant(
        "P14: what is held back is not claimed",
        "it is",
        _reworded(runs, "_claim", ("    if is_held(task):\n", "    if False:\n")),
        paused,
    ),
    Mutant(
        "P14: what is held back is not sent",
        "it is, and its message is found stale",
        _reworded(decide, "_stands", (" or is_held(task)", "")),
        paused,
    ),
    Mutant(
        "P14: what is held back is not claimed as soon as it is ready",
        "it is, by whoever offers to run it",
        _reworded(propagation, "claim_at_once", ("may_begin and not is_held(task)", "may_begin")),
        paused,
    ),
    Mutant(
        "D9: what is sent stands ready when all of its commit is decided",
        "or stood ready in the midst of it",
        _reworded(decide, "_stands", ('task.text("state") != _PENDING', "False")),
        paused_and_cancelled,
    ),
    Mutant(
        "P14: of two wishes the later one counts",
        "the one that comes later",
        _reworded(pause, "_answer", ("asked < known", "False")),
        paused,
    ),
    Mutant(
        "P14: a graph is paused when every task has taken it over",
        "it is said at the fence",
        _reworded(control, "settle_holds", ("        if not items:\n", "        if True:\n")),
        paused,
    ),
    Mutant(
        "the journal says by whom a pause was asked for",
        "that is forgotten at the fence",
        _reworded(pause, "hold", ('        graph.set("pausedBy", item.by)\n', "")),
        paused,
    ),
    Mutant(
        "P14: a graph is paused when the extension under way is in",
        "it is said before",
        _reworded(pause, "publish_holds", (' or graph.text("extending")', "")),
        paused_and_extended,
        given=_reworded(control, "settle_holds", ('if graph.columns.get("extending")', "if False")),
    ),
    Mutant(
        "P14: a task that is rerun by hand is held by what is held then",
        "by what was held when it ended",
        _reworded(
            recall,
            "_reset_task",
            ('    if is_held(task) or graph.text("held"):\n        take_along(task, graph)\n', ""),
        ),
        lives=("paused while blocked, and rerun by hand",),
    ),
    # limits on tasks in flight
    Mutant(
        "D13: a claim takes a place under each limit",
        "it takes none",
        _set(concurrency, "enter", count_nothing),
        crowded,
    ),
    Mutant(
        "D13: the end of a run leaves its places", "it keeps them", _set(concurrency, "leave", count_nothing), crowded
    ),
    Mutant(
        "D13: a claim without room is let go",
        "it is made",
        _set(concurrency, "full", lambda task, view: ""),
        crowded,
    ),
    Mutant(
        "D13: what becomes ready is claimed at once where there is room",
        "wherever somebody offers to run it",
        _set(concurrency, "seems_full", lambda task, view: False),
        crowded,
    ),
    Mutant(
        "D13: the row of a limit is written under the etag that was read",
        "merges of it take its present etag",
        _set(MemoryTables, "commit", commit_with_limits_as_they_stand),
        crowded,
    ),
    Mutant(
        "D13: a run that is counted and not over stays counted",
        "who is not seen to run is counted no more",
        _set(set_limit, "is_over", lambda task, run: True),
        crowded,
        given=_set(sweep_module, "_recounts", suspect_all),
    ),
    Mutant(
        "D13: what has ended comes under a limit by the graph row that stands",
        "the graph may have ended since it was read",
        _reworded(set_limit, "come_under", ("graph.confirm()", "pass")),
        crowded_and_late,
    ),
    Mutant(
        "D13: whoever ends a run tells who waits for room",
        "the sweep does, a minute later each",
        _reworded(
            Handlers,
            "perform_effects",
            ("if limited:", "if any(each.task_id for each in limited):"),
        ),
        lives=("one at a time of five",),
    ),
    Mutant(
        "D13: what runs counts from the commit on that puts it under a limit",
        "it does not count",
        _set(set_limit, "enter", count_nothing),
        lives=("a limit where there was none",),
    ),
    Mutant(
        "D13: a limit is set when every task names it",
        "at the fence",
        _reworded(control, "go_on_limiting", ("        if not items:\n", "        if True:\n")),
        lives=("a limit where there was none",),
    ),
    Mutant(
        "D13: what has ended comes under a limit too",
        "only what has not ended does",
        _reworded(
            control,
            "go_on_limiting",
            ('select=("limits"', 'where={"state": tuple(map(str, TASK_UNRESOLVED))}, select=("limits"'),
        ),
        lives=("limited while blocked, and rerun by hand",),
    ),
    Mutant(
        "D13: an extension that was planned before a limit is planned anew",
        "it goes in as it was planned",
        _reworded(set_limit, "_set_first", ('graph.set("revision", graph.integer("revision") + 1)', "pass")),
        limited_and_extended,
    ),
    # the sweep
    Mutant("P22: the sweep repeats what went unheard", "no sweep", NO_SWEEP),
    Mutant(
        "P22: the sweep sends pending tasks again",
        "it looks past them",
        _reworded(sweep_module, "_ready", ("    if now_due:\n", "    if False:\n")),
    ),
    Mutant(
        "P22: the sweep gives up runs whose lease has ended",
        "it looks past them",
        _reworded(sweep_module, "_is_to_change", (_OVER, " and False:")),
    ),
    Mutant(
        "P22: the sweep fires relays that stand pending",
        "it looks past them",
        _reworded(
            sweep_module, "_relays", ("look.items.extend(Fire(reference_of(row.key)) for row in relays)", "pass")
        ),
        lives=("relays over several commits",),
    ),
    Mutant(
        "P22: the sweep sends extensions again",
        "it looks past them",
        _set(sweep_module, "_requests", nothing_to_resend),
        lives=("extended by a stranger", "extended in chunks"),
    ),
    # times
    Mutant(
        "P16: nobody claims a task before its time",
        "whoever is told of it does",
        _reworded(
            runs,
            "_claim",
            ("if timing.not_yet_seconds(task.value, context.now, item.known_seconds):", "if False:"),
        ),
        times,
    ),
    Mutant(
        "P16: nobody is given a task before its time",
        "whoever makes it ready takes it",
        _reworded(propagation, "claim_at_once", ("not timing.not_yet_seconds(task.value, context.now)", "True")),
        times,
    ),
    Mutant(
        "P16: nobody claims a task past its deadline",
        "the claim goes through",
        _reworded(runs, "_claim", ("if reason := _end_if_overdue(task, context):", "if reason := None:")),
        times,
    ),
    Mutant(
        "P16: the sweep ends what waits past its deadline",
        "it looks past them",
        _set(sweep_module, "_waiting_past_deadline", none_past_deadline),
        times,
    ),
    Mutant(
        "P16: what waits again, as it is rerun by hand, is ended when its deadline passes",
        "the graph row still says that nobody waits who has one",
        _set(recall, "heed_deadline", lambda graph, deadline: None),
        late_and_rerun,
    ),
    Mutant(
        "P16: a sweep that looked before a rerun says nothing of the next deadline",
        "the same time on the graph row is taken for the same look",
        _reworded(
            lifecycle,
            "_next_deadline",
            (
                '(graph.time("nextDeadline"), graph.integer("waitsAgain")) == (item.seen, item.waits_again)',
                'graph.time("nextDeadline") == item.seen',
            ),
        ),
        late_and_rerun,
    ),
    # clocks
    Mutant(
        "P16: a pause lasts no longer than its length, whatever the clocks say",
        "until its end comes by the clock of the worker",
        _reworded(timing, "not_yet_seconds", ("max(0.0, min(left, pause - known_seconds))", "left")),
        far_apart,
    ),
    Mutant(
        "P16: a pause whose end is not believed is counted by a steady clock",
        "it is over",
        _reworded(timing, "not_yet_seconds", ("min(left, pause - known_seconds)", "min(left, pause) - pause")),
        far_apart,
    ),
    Mutant(
        "P16: the end of a pause is believed for its length",
        "the sweep waits for it",
        _reworded(leases, "amended", ("is_ahead(not_before, now, pause)", "False")),
        far_apart,
    ),
    Mutant(
        "P16: nothing stands ready since a time to come",
        "the sweep waits for that time",
        _reworded(leases, "amended", ("is_ahead(since, now)", "False")),
        far_apart,
    ),
    Mutant(
        "P16: the end of a lease is believed for its length",
        "whatever it says",
        _reworded(foreign_times, "standing", ("if is_ahead(end, now, length_seconds)", "if False"), owner=leases),
        far_apart,
    ),
    Mutant(
        "P22: what went unheard is said again within a bound, however old it is by its row",
        "at ages that double for ever",
        _set(sweep_module, "_REMIND_MAX", 10**9),
        far_apart,
    ),
    Mutant(
        "P12: a temporary failure is counted",
        "it is not",
        _reworded(runs, "_try_later", ('task.integer("temporaryFailures") + 1', 'task.integer("temporaryFailures")')),
        times,
    ),
    Mutant(
        "P12: temporary failures have an end",
        "they have none",
        _reworded(
            runs,
            "_failed",
            ("timing.temporary_used(task.value) < _retry(task).limit", "True"),
        ),
        times,
    ),
    # editing
    Mutant(
        "D8: an edit holds for the revision for which it was planned",
        "for any",
        _reworded(
            edit,
            "edit_graph",
            ('graph.integer("revision") != item.revision or graph.text("extending")', "False"),
        ),
        edited,
    ),
    Mutant(
        "D8: what has started is not edited",
        "it is, by the states that were read when the edit was planned",
        _reworded(edit, "edit_graph", ("(reason := has_started(view.get(key)))", "False")),
        edited,
    ),
    Mutant(
        "P5: a claim is of the definition that stands on the row",
        "of any",
        _reworded(runs, "_claim", ("task.integer(EDITED) != item.edited", "False")),
        edited_in_the_queue,
    ),
    Mutant(
        "P8: the graph waits for what tells nobody any more",
        "it does not",
        _set(edit, "_await", lambda item, graph, context: None),
        lives=("tasks go, and what they required is a leaf",),
    ),
    Mutant(
        "P7: an edge is taken off at both ends",
        "off the one that requires alone",
        _reworded(edit, "_apply", ("for holder, below in item.cut:", "for holder, below in ():")),
        lives=("other requirements",),
    ),
    Mutant(
        "P7: requirements are counted from the beginning",
        "those that are fulfilled already are waited for",
        _reworded(edit, "_go_on", ("for name in edit.requires or ():", "for name in ():")),
        lives=("it waits again",),
    ),
    Mutant(
        "P7: a task forgets what it has heard from what it does not require any more",
        "it does not",
        _reworded(edit, "_rewrite", ('for name in ("failedBy", "skippedBy"):', "for name in ():")),
        lives=("below what failed, and not below it any more",),
    ),
    Mutant(
        "P7: a condition that is another is asked anew",
        "what stands ready stays so",
        _reworded(edit, "_rewrite", ("(edit.requires or edit.again)", "edit.requires")),
        lives=("another condition",),
    ),
    Mutant(
        "P7: who waits for what goes waits for one less",
        "it waits for ever",
        _reworded(
            edit,
            "_apply",
            ("for below, name in item.lost:\n        count_down", "for below, name in ():\n        count_down"),
        ),
        lives=("a group loses what it waited for",),
    ),
    Mutant(
        "D8: an edit that is refused changes nothing",
        "what was set before stays set",
        _reworded(edit, "edit_graph", ("view.rollback(mark)", "pass")),
        lives=("more than one commit takes",),
    ),
    Mutant(
        "D8: an edit that changes nothing is none",
        "it is made, as any other",
        _set(Definitions, "news", all_is_news),
        edited,
    ),
    Mutant(
        "D8: an edit that was made is held against the rows, when it is asked for again",
        "it was made before, whatever has become of it",
        _set(plans, "still_holds", always_so),
        edited_and_waiting,
    ),
    Mutant(
        "P12: an edit of what has failed for good leaves spent what is spent",
        "the budget is whole again",
        _reworded(
            definitions,
            "reruns_left",
            ("return update.node.reruns - spent", "return update.node.reruns"),
            owner=plan,
        ),
        edited_and_failing,
    ),
    Mutant(
        "D8: what an edit took away may be gone when it is asked for again",
        "it is asked for in vain",
        _reworded(Names, "__init__", ("if not again or", "if True or")),
        lives=("asked for again after it was undone",),
    ),
    Mutant(
        "P8: whoever requires what goes is asked first",
        "nobody is",
        _reworded(EdgeChanges, "_outsiders", ("if outside:", "if not outside and outside:")),
        lives=("somebody requires what would go",),
    ),
    Mutant(
        "P8: no edit makes a circle",
        "it is not looked for",
        _set(EdgeChanges, "_check_cycle", lambda self: None),
        lives=("tasks would require each other",),
    ),
    # what has ended is rerun
    Mutant(
        "P29: a graph does not end while there are recalls to do",
        "it ends when it waits for nothing",
        _reworded(propagation, "count_down", (' and not row.integer("recalls")', "")),
        run_again,
    ),
    Mutant(
        "P29: what was reset begins when there are no recalls left",
        "as soon as its own is done",
        _reworded(recall, "_recall", ("if left <= 0:", "if True:")),
        run_again,
    ),
    Mutant(
        "P29: what was reset is made ready by its recall alone",
        "by whatever it waits for, too",
        _reworded(propagation, "count_down", ('if row.text("due") in (RECALL, READY):', "if False:")),
        overlapping_reruns,
    ),
    Mutant(
        "P29: a recall rests on the graph row that stands",
        "the graph may have ended since it was read",
        _reworded(recall, "_recall", ("graph.confirm()", "pass")),
        run_again,
        given=_set(transact, "_JUDGES", (EditGraph,)),  # which would nearly always do it, too
    ),
    Mutant(
        "P29: what was reset begins by the graph row that stands",
        "there may be recalls since it was read",
        _reworded(recall, "_ready", ("graph.confirm()", "pass")),
        overlapping_reruns,
    ),
    Mutant(
        "P29: a cause that is taken back is kept no longer",
        "it stays on the row",
        _set(recall, "_derive_causes", lambda row, context: None),
        lives=("a failure again that was passed on", "one of two failures again that were passed on"),
    ),
    Mutant(
        "P29: what is redelivered goes on with the recall",
        "it is left to the sweep",
        _reworded(recall, "_go_on", ("context.effects.append(Recalled())", "pass")),
        lives=("a diamond again, over several commits",),
        given=NO_SWEEP,  # which would do it too, later
        kinds=("before", "after"),
    ),
    Mutant(
        "P29: a graph that goes on is swept again",
        "it is named in the index in its first try alone",
        _reworded(recall, "_manual_rerun", ("context.effects.append(GraphRevived(ended=True))", "pass")),
        run_again,
    ),
    Mutant(
        "P14: what was found to be cancelled is cancelled in that end alone",
        "whatever has become of the graph since",
        _reworded(cancel, "_is_of", ('return graph.text("state")', 'return True or graph.text("state")')),
        cancelled_and_again,
    ),
    Mutant(
        "P14: a graph is cancelled by the look at this end of it",
        "by an earlier one, too",
        _reworded(cancel, "publish_cancelled", ('graph.integer("reopened") != item.reopened', "False")),
        cancelled_and_again,
    ),
    Mutant(
        "P14: a graph is looked at for its end when there are no recalls left",
        "while there are",
        _reworded(control, "go_on_cancelling", ('if columns.get("recalls"):', "if False:")),
        cancelled_and_again,
    ),
    Mutant(
        "P14: a request to cancel a graph holds for this end of it",
        "for any",
        _reworded(cancel, "cancel_graph", ('if graph.integer("reopened") > item.reopened:', "if False:")),
        asked_twice_and_again,
    ),
    # plans
    Mutant(
        "P30: a change is taken up if its plan is still the one that was asked for",
        "whatever it does by now",
        _reworded(requests, "_plan_again", ("if plan.digest == head.columns.get(PLAN):", "if True:")),
        planned_ahead,
    ),
    Mutant(
        "P30: no fact is stated between a plan and what takes it up",
        "whatever was stated",
        _take_up("if context.sequence != item.event + 1:", "if False:"),
        planned_and_rerun,
    ),
    Mutant(
        "P30: what a plan rests on is as it was read",
        "whatever it has become without a fact",
        _take_up("if row.etag != etag:", "if False:"),
        planned_ahead,
    ),
    Mutant(
        "P30: what a plan rests on is written with what takes it up",
        "it is only looked at",
        _take_up("row.confirm()", "pass"),
        planned_in_crowds,
    ),
    # what a graph has cost
    Mutant(
        "P32: what a graph has cost goes on from the event row before",
        "it begins anew",
        _reworded(
            Records, "begin", ("*self._ends.get(graph_id, _UNKNOWN)", "*self._ends.get(graph_id, _UNKNOWN)[:3], None")
        ),
        charged,
    ),
    Mutant(
        "P32: what a process has counted is written down once",
        "with every event row",
        _reworded(Records, "commit", ("meter.written(graph_id, used)", "pass")),
        charged,
    ),
    Mutant(
        "P32: what was counted is taken off before the commit that says it",
        "after it",
        _reworded(
            Records,
            "commit",
            ("meter.written(graph_id, used)", "pass"),
            ("meter.add(graph_id, *used)", "pass"),
            (
                "    if event is not None:\n        completed",
                (
                    "    if meter is not None and used is not None:\n        meter.written(graph_id, used)\n"
                    "    if event is not None:\n        completed"
                ),
            ),
        ),
        charged,
    ),
    Mutant(
        "P32: what a worker has used counts with a result that counts",
        "with any",
        _reworded(spending, "total", ("answer.outcome is not Outcome.APPLIED", "False")),
        charged,
    ),
    Mutant(
        "P32: a budget that is spent holds its graph, in the commit that says so",
        "it is only said",
        _reworded(spending, "charge", ("hold(Hold(PAUSED, True, asked, because, _BY), context)", "pass")),
        charged,
    ),
    Mutant(
        "P32: it is said once that a budget is spent",
        "after every commit",
        _reworded(spending, "charge", ("graph.text(REACHED) in (reached, OVER)", "False")),
        charged,
    ),
    Mutant(
        "P32: a graph whose budget is spent goes on with a larger one",
        "when it is resumed",
        _reworded(pause, "hold", ("is_spent(graph.value)", "False")),
        charged,
    ),
    Mutant(
        "P32: what a graph has cost is held against its budget after each commit",
        "never",
        _reworded(Handlers, "follow_up", ("decision.spent.watch", "False")),
        charged,
    ),
    # messages
    Mutant(
        "P18: a message is acknowledged when its effect is durable",
        "acknowledged first",
        _set(Consumer, "take", acknowledge_first),
        lives=("rerun by hand",),
    ),
    Mutant(
        "P20: a message is set aside before it is deleted",
        "deleted first",
        _set(Poison, "set_aside", delete_first),
        lives=("junk: no JSON",),
    ),
    Mutant(
        "D12a: queues that are left are received from until every process knows it, and moved after that",
        "they are left at once",
        _set(EventQueues, "_was_changed_for", lambda *_: False),
        SharedOut,
    ),
    Mutant(
        "D12a: a queue that is left has a lead of its own, and a handler that learns of it late receives from it, too",
        "it is for who leads over the queue that is used, if that knows of it",
        _all(
            _reworded(EventQueues, "lead_of", ("self.only_first", "self.number == 1")),
            _reworded(
                EventQueues,
                "learn",
                ("before = self.received", "before = self.number"),
                ("self.received != before", "self.number != before"),
            ),
        ),
        functools.partial(SharedOut, late=True),
    ),
    # messages that older programs do not read
    Mutant(
        "P23: large messages are sent where all workers of the target are known to take them",
        "whatever version the workers have",
        _reworded(Crew, "takers_of_large", ("serving + handling", "handling")),
        MixedVersions,
    ),
    Mutant(
        "P23: large messages are sent where all handlers are known to take them",
        "whatever version the handlers have",
        _reworded(Crew, "takers_of_large", ("serving + handling", "serving")),
        MixedVersions,
    ),
    Mutant(
        "P23: results go in large messages where what sent the work knew the handlers",
        "whoever sent it",
        _reworded(Reporter, "_bundle_size", ("one.source.large and ", "")),
        MixedVersions,
    ),
    # groups that need k of n
    Mutant(
        "P33: a member is counted in the commit that crosses it off, and there alone",
        "what comes again is counted again",
        _reworded(propagation, "_counted", ('if name in row.ids("requiresLeft"):', "if True:")),
        counted,
    ),
    Mutant(
        "P33: the graph waits for all members of a group that is decided",
        "it waits for what requires the group",
        _reworded(wiring, "lay_edges", ("end.startswith(ALL) or (", "(")),
        counted,
    ),
    Mutant(
        "P33: a group is decided as soon as the counts say so",
        "when all of its members have ended",
        _reworded(propagation, "decide_group", ('counted.text("then") == tally.WAIT', "True")),
        counted,
    ),
    Mutant(
        "P33: with `wait`, what requires the group goes on when all members have ended",
        "as soon as it is decided",
        _reworded(propagation, "decide_group", ('counted.text("then") == tally.WAIT', "False")),
        counted,
    ),
    Mutant(
        "P33: what requires a group goes by the decision",
        "as if it had succeeded",
        _set(tally, "ending_announced", lambda *_: COMPLETED),
        counted,
    ),
    Mutant(
        "P34: a decision that the counts do not bear any more is taken back",
        "a decision is final",
        _set(tally, "stands", lambda _: True),
        counted_and_rerun,
    ),
    Mutant(
        "P34: a decision that still stands is left as it is",
        "every rerun of a member takes it back",
        _set(tally, "stands", lambda counted: not counted.text("announced")),
        lives=("a member is run again, and the decision stands",),
    ),
    Mutant(
        "P34: a member that is run again is taken out of the counts",
        "it stays in them",
        _set(tally, "uncount", lambda *_: None),
        counted_and_rerun,
    ),
    Mutant(
        "P35: the sweep goes on with cancelling what is left of a group",
        "it is left to the process that decided the group",
        _set(sweep_module, "_rests", nothing_to_resend),
        lives=("two of three, and the rest is cancelled",),
    ),
    Mutant(
        "P35: what was rerun by hand is not cancelled with the rest",
        "all that is left is",
        _reworded(cancel, "cancel_unneeded", ("reruns=0", "reruns=-1")),
        counted_and_rerun,
        given=_reworded(control, "cancel_rest", ('and not row.columns.get("manualReruns")', "")),
    ),
    # groups that grow
    Mutant(
        "P37: what requires a group waits for what is put into it, from the commit that accepts it",
        "it waits for the first members alone",
        _reworded(
            extension,
            "_grow",
            ("await_leaves(growth.piece, (), context", "(lambda join, _: context.view.insert(growth.piece))(context"),
        ),
        growing,
    ),
    Mutant(
        "P37: a group that has ended gets no task any more",
        "it gets tasks for ever",
        _set(extension, "has_ended", lambda *_: False),
        growing,
    ),
    Mutant(
        "P37: a piece that takes the place of an older one waits for it",
        "it waits for the new tasks alone",
        _reworded(extension, "await_leaves", ("still = [*below, old] if old in left else below", "still = below")),
        growing,
    ),
    Mutant(
        "P37: new tasks are held back with the group that they are put into",
        "as it was when the extension was planned",
        _set(extension, "holds_differ", lambda *_: False),
        growing,
    ),
    # groups that say what becomes of a failure
    Mutant(
        "P36: what becomes of a failure is up to the task that failed, as its group says",
        "it is up to the graph",
        _reworded(propagation, "_count_failure", ("passes_on(graph.value, task.value)", "goes_on(graph.value)")),
        policed,
    ),
    Mutant(
        "P36: failures that block are told from others in the counts of the graph row",
        "all count alike",
        _reworded(propagation, "_count_failure", ("if passes != goes_on(graph.value):", "if False:")),
        policed,
    ),
    Mutant(
        "P36: skips that no commit had room for are looked for in every graph in which there may be some",
        "where the graph goes on",
        _set(sweep_module, "may_skip", goes_on),
        lives=("a chain is skipped in a graph that blocks, over several commits",),
    ),
    Mutant(
        "P36: a graph that gets its first group with a failure policy says so",
        "it does not",
        _reworded(extension_plan, "_columns_of_groups", ("if grouping.own_policies(groups, policy):", "if False:")),
        lives=("a graph that blocks gets a group that goes on",),
    ),
    Mutant(
        "P36: who is added below a failure that was passed on is told at once",
        "where the graph goes on",
        _reworded(
            extension,
            "known_ending",
            (
                "passes_on(context.view.get(GRAPH).value, task.value)",
                "context.view.get(GRAPH).text('failurePolicy') == 'continue'",
            ),
        ),
        lives=("extended below a failure that was passed on, in a graph that blocks",),
    ),
    Mutant(
        "P38: a task whose failure is passed on does not end before what it requires",
        "it does where its graph blocks",
        _reworded(
            cancel,
            "cancel_task",
            ("and passes_on(graph.value, task.value):", "and graph.text('failurePolicy') == 'continue':"),
        ),
        lives=("a task is cancelled that waits, in a group whose failures are passed on",),
    ),
    Mutant(
        "P38: what was cancelled as it waited asks what it requires before it runs after all",
        "it runs",
        _reworded(runs, "next_run", ("elif is_met(task):", "elif True:"), owner=recall),
        policed,
    ),
    Mutant(
        "P38: a rerun takes back a failure that was passed on",
        "where the graph goes on",
        _reworded(
            recall,
            "_manual_rerun",
            ("passes_on(graph.value, task.value)", "graph.text('failurePolicy') == 'continue'"),
        ),
        policed_and_rerun,
    ),
    Mutant(
        "P38: a graph that goes on after its end is blocked where a failure is left that blocks it",
        "where any failure is left",
        _reworded(recall, "_reopen", ("blocking(graph) > 0", "graph.integer('failedTasks') > 0")),
        policed_and_rerun,
    ),
)


def mutant_of(rule: str) -> Mutant:
    """The one that leaves out this rule, named without its ids."""
    return next(mutant for mutant in MUTANTS if mutant.rule.partition(": ")[2] == rule)


def hunt(history: Callable[[int], History], seeds: Iterable[int]) -> tuple[int, str]:
    """Play until somebody notices; gives how many histories it took (0: nobody did), and what was noticed."""
    for number, seed in enumerate(seeds, 1):
        world = history(seed)
        try:
            end = world.run(STEPS_MAX)
            assert end == world.oracle(), f"ended {end}"
        except AssertionError as error:
            return number, str(error).partition(": ")[2]
    return 0, ""


def hunt_in_life(name: str, patch: Callable[[], object], kinds: Sequence[str] = ()) -> tuple[int, str]:
    """Play a life without faults, then with each: `patch` is called when it is known how it goes.

    kinds: of faults, if not all, and then after the submission only. Gives how many were played, and what was noticed
    ("": nothing).
    """
    life = next(life for life in LIVES if life.name == name)
    with bounded(life.bounds):
        calm, end = play_without_faults(life)
        patch()
        places = [(number, kind) for number, call in enumerate(calm.gate.calls, 1) for kind in kinds_at(call)]
        first = Play(life)
        first.advance()
        after = first.gate.number if kinds else 0
        tried = [{}, *({number: kind} for number, kind in places if number > after and (not kinds or kind in kinds))]
        for number, faults in enumerate(tried, 1):
            play = Play(life, faults)
            try:
                found = play.run()
            except Violation as violation:
                return number, str(violation)
            if found != end:
                return number, f"ended as {found} instead of {end}"
            if (late := play.clock.seconds - calm.clock.seconds) > RECOVERY_SECONDS_MAX:
                return number, f"one fault made it {late:.0f} s late"
    return len(tried), ""


def hunted(mutant: Mutant, *, given_only: bool = False) -> tuple[int, str]:
    """Leave the rule out, and play until somebody notices; as `hunt`. given_only: leave out the other one alone."""

    @contextlib.contextmanager
    def without() -> Iterator[Callable[[], None]]:
        with pytest.MonkeyPatch.context() as monkeypatch:

            def patch() -> None:
                if not mutant.together:
                    monkeypatch.setattr(together, "ITEMS_MIN", math.inf)
                for each in (mutant.given, None if given_only else mutant.patch):
                    if each is not None:
                        each(monkeypatch)

            yield patch

    if not mutant.lives:
        with without() as patch:
            patch()
            return hunt(mutant.history or history, range(HISTORIES_MAX))
    played = 0
    for name in mutant.lives:
        with without() as patch:
            number, noticed = hunt_in_life(name, patch, mutant.kinds)
        played += number
        if noticed:
            return played, noticed
    return 0, ""


def report() -> int:
    """Print the table; gives 1 if a rule was not missed."""
    print(HEADER)
    unnoticed = 0
    for mutant in MUTANTS:
        number, noticed = hunted(mutant)
        unnoticed += not number
        print(line(mutant, number, noticed), flush=True)
    print(f"\n{len(MUTANTS)} rules left out, {len(MUTANTS) - unnoticed} noticed")
    return 1 if unnoticed else 0


HEADER: Final = "| rule | what was done instead | played | after | what was noticed |\n|---|---|---|---:|---|"


def line(mutant: Mutant, number: int, noticed: str) -> str:
    """One line of the table."""
    where = "histories" if not mutant.lives else f"lives: {', '.join(mutant.lives)}"
    return f"| {mutant.rule} | {mutant.what} | {where} | {number or '—'} | {noticed[:110]} |"
