"""A graph that stands still, and tasks that several workers did not survive.

The watchdog marks a graph as stalled when nothing of it has moved for a set time; the mark is a fact in the journal,
and goes with the next move. The journal guards it: the item names the last fact, and the mark is the next one, so if
there is another by then, the event row exists and nothing is written. Claims write no facts; so the task that has
waited longest is named too, and checked again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from taskgraph.model import limits
from taskgraph.model.ids import GRAPH, row_key
from taskgraph.model.states import GraphState, TaskState
from taskgraph.protocol.context import Context, Item, Outcome, Rules, Verdict
from taskgraph.protocol.propagation import fence

STALLED: Final = "stalled"
"""Code of what is cancelled because its graph has stalled."""

POISON: Final = "poison"
"""Code of a task that several workers did not survive."""

CANCEL: Final = "cancel"
"""Of a graph's `onStalled`: it is cancelled when it has stalled."""


@dataclass(frozen=True, slots=True)
class Stall(Item):
    """Nothing of a running graph has moved for a set time: mark it, or cancel it if it says so.

    sequence: of the last event row. waiting, run: a task that has stood ready all the while, "" if there is none.
    """

    sequence: int
    because: str
    waiting: str = ""
    run: int = 0


@dataclass(frozen=True, slots=True)
class Stir(Item):
    """A graph that was marked as stalled moves again."""


_LIVE: Final = (GraphState.RUNNING, GraphState.BLOCKED, GraphState.CANCELLING)


def stall(item: Stall, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    if graph.text("state") != GraphState.RUNNING:
        return Outcome.STALE, f"the graph is {graph.text('state')}"
    if graph.text("stalledBecause"):
        return Outcome.REPEATED, "it is marked already"
    if context.sequence > item.sequence + 1:
        return Outcome.STALE, "it has moved"
    if item.waiting:
        task = context.view.get(row_key(item.waiting))
        if task.text("state") != TaskState.PENDING or task.integer("run") != item.run:
            return Outcome.STALE, "it has moved"
    because = item.because[: limits.REASON_CHARS_MAX] or "nothing of it moves"
    graph.set("stalled", context.now)
    graph.set("stalledBecause", because)
    graph.set("stalledAt", context.sequence)
    context.event("graph-stalled", reason=because)
    if graph.text("onStalled") == CANCEL:
        fence(graph, context, f"it has stalled: {because}"[: limits.REASON_CHARS_MAX], STALLED)
    return Outcome.APPLIED, ""


def stir(_: Stir, context: Context) -> Verdict:
    """Remove the mark. A graph that has ended keeps it: nothing comes after the end."""
    graph = context.view.get(GRAPH)
    if graph.text("state") not in _LIVE:
        return Outcome.STALE, ""
    if not graph.text("stalledBecause"):
        return Outcome.REPEATED, ""
    graph.set("stalledBecause", "")
    context.event("graph-unstalled")
    return Outcome.APPLIED, ""


def workers_lost(runs: Sequence[Any], worker: str) -> list[str]:
    """Workers that were lost with a run of this task that they had begun, since the task last had a result; each once.

    runs: earlier runs, as the row lists them. worker: the one that is lost now.
    """
    lost = [worker]
    for record in reversed(runs):
        if not isinstance(record, Mapping):
            continue
        outcome = record.get("outcome")
        if outcome == "lost":
            if record.get("begun") is True:
                lost.append(str(record.get("worker", "")))
        elif outcome != "handed-back":
            break
    return list(dict.fromkeys(reversed(lost)))


RULES: Final[Rules] = {Stall: stall, Stir: stir}
