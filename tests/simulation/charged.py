"""Histories of graphs with a budget: what they use is counted, and somebody raises the budget when it is spent.

What must hold of the totals, after every commit: they never fall, and never say more than was asked of the store. And
of the budget: a graph that has spent it is told so once, is paused by that very commit, and goes on with a larger one.
"""

import dataclasses
import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from taskgraph.engine.commit import Records
from taskgraph.engine.handlers import Handlers
from taskgraph.model.budget import DEFAULT_PRICES, OVER, REACHED, Budget, budget_of
from taskgraph.model.ids import GRAPH
from taskgraph.model.messages import HoldBack
from taskgraph.model.spent import Spent, Used, spent_in
from taskgraph.model.states import PAUSED
from taskgraph.storage.metered import Meter, MeteredQueues, MeteredTables
from taskgraph.storage.tables import Change, Insert
from tests.simulation.histories import random_document
from tests.simulation.invariants import hold
from tests.simulation.world import Faults, FaultyQueues, FaultyTables, World

_BUDGET: Final = "budget"  # a wish
_LATE_ROWS: Final = 4
"""Event rows that may come between the commit that spends a budget and the fact that says so, where nothing fails."""


class Asked(Meter):
    """A meter that also says what was asked of the store by all processes, those that have died among them."""

    def __init__(self, asked: Counter[str]) -> None:
        super().__init__()
        self._asked = asked

    def add(self, graph_id: str, tables: int = 0, queues: int = 0, files: int = 0, size: int = 0) -> None:
        super().add(graph_id, tables, queues, files, size)
        self._asked["tables"] += tables
        self._asked["queues"] += queues

    def written(self, graph_id: str, used: Used) -> None:
        super().add(graph_id, -used.tables, -used.queues, -used.files, -used.bytes)


class Charged(World):
    """One history of a graph with a budget."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.store_asked: Counter[str] = Counter()
        self.spent = Spent()
        self.over_since = 0  # so many event rows ago the budget was spent
        self.raised = 0
        self.was_over = False

    def _handlers_by(self, clock: Any) -> Handlers:
        meter = Asked(self.store_asked)
        queues: Any = FaultyQueues(self)
        return Handlers(
            Records(MeteredTables(FaultyTables(self), meter), clock, meter), MeteredQueues(queues, meter), clock
        )

    def used_by(self, handlers: Handlers) -> Used | None:
        meter = handlers.records.meter
        assert meter is not None
        used = meter.used(self.graph_id)
        meter.written(self.graph_id, used)
        return used

    # --- somebody looks after the budget

    @property
    def _graph(self) -> dict[str, Any]:
        row = self.rows.get(GRAPH)
        return dict(row.columns) if row is not None else {}

    @property
    def is_over(self) -> bool:
        graph = self._graph
        going = graph.get("state") in ("running", "blocked")
        return going and graph.get(REACHED) == OVER and PAUSED in json.loads(str(graph.get("held", "") or "[]"))

    def _wish(self) -> str | None:
        if self.is_over and self.clock.seconds - self.wished_at > 20.0:
            return _BUDGET
        return super()._wish()

    async def _hold(self, what: str) -> None:
        if what != _BUDGET:
            await super()._hold(what)
            return
        budget = budget_of(self._graph.get)
        assert budget is not None
        said = json.loads(str(self._graph.get("heldAsked", "") or "{}")).get(PAUSED, "")
        larger = 0.0 if self.active and self.random() < 0.3 else budget.amount * 2  # some forget that it takes more
        message = HoldBack(self.graph_id, False, self._asked([said]), by="ann", budget=larger)
        await self._ask(self.handlers(), message)

    def _ended(self) -> bool:
        return not self.is_over and self._graph.get("settling") is not True and super()._ended()

    # --- what must hold

    def committed(self, partition: str, changes: Sequence[Change]) -> None:
        super().committed(partition, changes)
        if partition != self.graph_id:
            return
        for each in changes:
            if isinstance(each, Insert) and each.key.startswith("event:"):
                self._stated(each)

    def _stated(self, row: Insert) -> None:
        spent = spent_in(row.columns.get("spent"))
        hold(spent is not None, f"{row.key} does not say what the graph has cost")
        assert spent is not None
        before, self.spent = self.spent, spent
        for name in ("tables", "queues"):
            was, now, asked = getattr(before, name), getattr(spent, name), self.store_asked[name]
            hold(was <= now, f"{name}: {now} requests, and there were {was} before")
            hold(now <= asked, f"{name}: {now} requests are said, and {asked} were made")
        for target, taken in before.seconds.items():
            hold(taken <= spent.seconds.get(target, 0.0), f"runs of {target} took {taken} s, and less by now")
        facts = [each["event"] for each in json.loads(str(row.columns["events"]))]
        graph = self._graph
        budget = budget_of(graph.get)
        if "graph-overspent" in facts:
            hold(not self.was_over, "it is said twice that the same budget is spent")
            held = json.loads(str(graph.get("held", "") or "[]"))
            going = graph.get("state") in ("running", "blocked")
            hold(not going or PAUSED in held, "the budget is spent, and the graph is not held")
            self.was_over, self.over_since = True, 0
        if "graph-budgeted" in facts:
            self.was_over = False
            self.raised += 1
            self.over_since = 0
        if "graph-resumed" in facts:
            hold(not self.was_over, "the graph goes on, and its budget is spent")
        if budget is not None and not self.was_over and graph.get("state") == "running":
            spent_up = DEFAULT_PRICES.amount(spent) >= budget.amount
            self.over_since = self.over_since + 1 if spent_up else 0
            quiet = not (self.faults.crash or self.faults.unavailable or self.faults.unclear)
            hold(not quiet or self.over_since <= _LATE_ROWS, "the budget is spent, and nobody has said so")


def charged(seed: int) -> Charged:
    """A graph that spends its budget again and again."""
    rng = random.Random(seed)
    document = random_document(rng, rng.choice((4, 8)), density=0.2, reruns_max=1)
    budget = Budget(rng.choice((2e-6, 4e-6, 1e-5)), rng.choice((0.5, 1.0)))
    document = dataclasses.replace(document, budget=budget)
    faults = rng.choice((Faults(), Faults(double=0.5), Faults(crash=0.03, unclear=0.02, double=0.1, lose=0.1)))
    return Charged(seed, document, {"t0": 1}, (), faults, reruns=True, processes=rng.choice((1, 3)), pauses=1)
