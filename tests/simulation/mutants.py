"""Rules of the protocol, each left out once: the world must notice, or it would notice nothing.

A mutant replaces one function of the product by one that forgets its rule. What plays is the same as ever.
"""

import dataclasses
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest

from taskgraph import extending, extension, propagation, transitions
from taskgraph.extending import ExtensionPlan
from taskgraph.extension import AcceptExtension, InsertRows, LinkTasks
from taskgraph.model import GRAPH, row_key
from taskgraph.propagation import Context
from taskgraph.records import Operation, Records
from taskgraph.rows import Draft
from taskgraph.storage.tables import Change, Merge, Row
from taskgraph.sweep import Swept
from taskgraph.transitions import Claim, Outcome
from tests.simulation import world as world_module
from tests.simulation.bounds import CHUNKED, FEW_LEAVES, NARROWER
from tests.simulation.histories import random_document
from tests.simulation.memory import MemoryTables
from tests.simulation.world import Faults, World

HISTORIES_MAX: Final = 1_500
STEPS_MAX: Final = 20_000
"""Far more than any of these histories takes when nothing is wrong."""

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """rule: the one that is left out. history: what is played, by seed."""

    rule: str
    patch: Patch
    history: Callable[[int], World] | None = None  # None: `history` below


def _set(target: Any, name: str, wrong: Any) -> Patch:
    return lambda patch: patch.setattr(target, name, wrong)


_commit = MemoryTables.commit
_count_down = propagation.count_down
_next_run = transitions._next_run
_accept = extension.accept_extension
_block = propagation.block
_step = ExtensionPlan.step


async def commit_whatever_was_read(self: MemoryTables, partition: str, changes: Sequence[Change]) -> list[str | None]:
    rows = self.partitions.get(partition, {})
    unguarded = [
        dataclasses.replace(each, etag=rows[each.key].etag) if isinstance(each, Merge) and each.key in rows else each
        for each in changes
    ]
    return await _commit(self, partition, unguarded)


async def commit_row_by_row(
    self: Records, graph_id: str, changes: Sequence[Change], operation: Operation, rows: dict[str, Row | None]
) -> None:
    for change in changes:
        await self.tables.commit(graph_id, [change])
        rows.pop(change.key, None)
    self._next_sequence.pop(graph_id, None)


async def always_mine(self: Records, *_: object) -> bool:
    return True


def hold_by_state_alone(task: Draft, run: int, claim: str) -> bool:
    return task.text("state") == "running"


def claim_by_anyone(item: Claim, context: Context) -> tuple[Outcome, str]:
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
    if cursor < len(self.links):
        return LinkTasks(self.request, cursor, extending._links_chunk(self.links, cursor))
    if cursor < len(self.links) + len(self.layout.rows):
        return InsertRows(self.request, cursor, extending._chunk(self.layout.rows, cursor - len(self.links)))
    return _step(self, head)


def insert_in_place(item: InsertRows, context: Context) -> str:
    head = extension._step(item.request, item.cursor, context)
    if head is None:
        return extension.STALE
    extension._insert(item.rows, context)
    return extension.APPLIED


def accept_any_revision(item: AcceptExtension, context: Context) -> str:
    revision = context.view.get(GRAPH).integer("revision")
    return _accept(dataclasses.replace(item, revision=revision), context)


def accept_in_any_state(item: AcceptExtension, context: Context) -> str:
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


def count_by_number(reference: str, fulfilled: str, context: Context) -> None:
    row = context.view.named(reference)
    left = row.ids("requiresLeft")
    _count_down(reference, left[0] if left else fulfilled, context)


def count_once(reference: str, fulfilled: str, context: Context) -> None:
    row = context.view.named(reference)
    if reference != GRAPH:
        row.set_ids("requiresLeft", [])
    _count_down(reference, fulfilled, context)


def spend_nothing(task: Draft, *rest: Any) -> None:
    if task.integer("rerunsLeft") < task.integer("rerunsAllowed"):
        task.set("rerunsLeft", task.integer("rerunsLeft") + 1)
    _next_run(task, *rest)


def same_run(task: Draft, *rest: Any) -> None:
    _next_run(task, *rest)
    task.set("run", task.integer("run") - 1)


def say_nothing(self: Context, kind: str, **fields: Any) -> None:
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


def rivals(seed: int) -> World:
    """Three extensions at once, each of which would fill what the graph row may still name."""
    rng = random.Random(seed)
    added = [random_document(rng, 2, prefix=f"x{n}_", density=0.0) for n in range(3)]
    return World(seed, random_document(rng, 1), {}, added, Faults(double=0.2), bounds=FEW_LEAVES)


MUTANTS: Final = (
    Mutant("a row is written under the etag that was read", _set(MemoryTables, "commit", commit_whatever_was_read)),
    Mutant("what a transition writes is one commit", _set(Records, "commit", commit_row_by_row)),
    Mutant("a conflict on the own write is told by the operation", _set(Records, "_is_mine", always_mine)),
    Mutant("a result counts only with its run and claim", _set(transitions, "_holds", hold_by_state_alone)),
    Mutant("only a pending run can be claimed", _set(transitions, "_claim", claim_by_anyone)),
    Mutant("every new run has a number of its own", _set(transitions, "_next_run", same_run)),
    Mutant("a rerun spends the budget", _set(transitions, "_next_run", spend_nothing)),
    Mutant("facts are written with what they tell", _set(Context, "event", say_nothing)),
    Mutant("the sweep repeats what went unheard", _set(world_module, "sweep", no_sweep)),
    Mutant("a requirement is taken away by its id", _everywhere(count_by_number)),
    Mutant("all requirements are waited for", _everywhere(count_once)),
    Mutant("the graph counts what failed for good", _set(transitions, "block", block_uncounted)),
    Mutant("an extension holds the graph open", _set(extension, "_await_leaves", count_nothing)),
    Mutant(
        "an extension is planned for one revision", _set(transitions, "accept_extension", accept_any_revision), rivals
    ),
    Mutant("only a running graph takes extensions", _set(transitions, "accept_extension", accept_in_any_state)),
    Mutant("new rows go in before anybody links to them", _set(ExtensionPlan, "step", link_first)),
    Mutant("the cursor moves with what it counts", _set(transitions, "insert_rows", insert_in_place)),
    Mutant("a link looks whether its task has completed", _set(extension, "count_down", count_nothing)),
)


def hunt(history: Callable[[int], World], seeds: range) -> tuple[int, str]:
    """Play until somebody notices; gives how many histories it took (0: nobody did), and what was noticed."""
    for number, seed in enumerate(seeds, 1):
        world = history(seed)
        try:
            end = world.run(STEPS_MAX)
            assert end == world.oracle(), f"ended {end}"
        except AssertionError as error:
            return number, str(error)
    return 0, ""
