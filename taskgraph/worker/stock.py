"""Ready tasks that a worker knows of, and that no other worker has been sent lately.

They are kept in memory until there is room for them (see `feeding`), fairly between graphs and the most urgent first.
"""

from collections import deque
from collections.abc import Collection, Iterator
from typing import Final

from taskgraph.worker.slots import Slots
from taskgraph.worker.target_gate import TargetGate
from taskgraph.worker.values import ReadyTask

STOCK_MAX: Final = 512
"""Ready tasks that are kept at most."""

OWN_STOCK_MAX: Final = 16_384
"""The same of a graph whose tasks no other process is offered."""


class Stock:
    """Ready tasks by graph; the graph that had its turn last comes last."""

    def __init__(self, gate: TargetGate, slots: Slots) -> None:
        self._gate = gate
        self._slots = slots
        self.by_graph: dict[str, deque[ReadyTask]] = {}  # none of them empty

    def __len__(self) -> int:
        return sum(map(len, self.by_graph.values()))

    def __contains__(self, graph_id: str) -> bool:
        return graph_id in self.by_graph

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.by_graph))

    @property
    def graphs(self) -> int:
        return len(self.by_graph)

    def put(self, graph_id: str, ready: Collection[ReadyTask]) -> None:
        if not ready:
            return
        stock = self.by_graph.setdefault(graph_id, deque())
        before = len(stock)
        stock.extend(ready)
        if any(one.rank != stock[-1].rank for one in (stock[0], stock[before])):
            self.by_graph[graph_id] = deque(sorted(stock, key=lambda one: one.rank))

    def of(self, graph_id: str) -> Collection[ReadyTask]:
        return self.by_graph.get(graph_id, ())

    def can_begin(self, graph_id: str) -> bool:
        """Whether something in stock may begin as far as permits go."""
        stock = self.by_graph.get(graph_id, ())
        return bool(self._gate.permitted(stock)) if self._gate.permits.limits else bool(stock)

    def pop(self, graph_id: str, count: int) -> list[ReadyTask]:
        """Take out what goes first and may begin as far as permits go; other graphs are first next time."""
        stock = self.by_graph.get(graph_id)
        if not stock or count <= 0:
            return []
        if self._gate.permits.limits:
            popped = self._gate.permitted(stock)[:count]
            out = set(popped)
            stock = deque(one for one in stock if one not in out)
        else:
            popped = [stock.popleft() for _ in range(min(count, len(stock)))]
        del self.by_graph[graph_id]
        if stock:
            self.by_graph[graph_id] = stock
        return popped

    def take_out(self, graph_id: str, ones: Collection[ReadyTask]) -> Collection[ReadyTask]:
        if ones:
            out = set(ones)
            if left := [one for one in self.by_graph.pop(graph_id) if one not in out]:
                self.by_graph[graph_id] = deque(left)
        return ones

    def pop_all(self, graph_id: str) -> Collection[ReadyTask]:
        return self.by_graph.pop(graph_id, ())

    # --- whose turn it is

    def share(self, graph_id: str) -> int:
        """How much of the room now is for this graph: what waits of a higher level goes before, and graphs share.

        Those that have something in stock, and this one. What cannot be shared evenly goes to those whose turn it is.
        """
        room, fronts = self._slots.capacity, self._fronts() if self.by_graph else {}
        if room <= 0 or not fronts or (len(fronts) == 1 and graph_id in fronts):
            return room
        best = min(fronts.values())
        peers = [each for each, front in fronts.items() if front == best]
        if graph_id not in peers:
            if graph_id in fronts:
                return 0  # all that it has is less urgent
            peers.append(graph_id)
        turn = room // len(peers) + (peers.index(graph_id) < room % len(peers))
        # The graph whose runs end most often asks most often: so what it has in hand counts too.
        return max(0, min(turn, -(-self._slots.most // len(peers)) - self._slots.of_graph(graph_id)))

    def best_rank(self) -> int | None:
        """The rank of the most urgent that may begin, None if nothing may."""
        return min(self._fronts().values(), default=None) if self.by_graph else None

    def _fronts(self) -> dict[str, int]:
        """Graphs that have something in stock which may begin, each with the rank of what goes first."""
        if not self._gate.permits.limits:
            return {graph_id: stock[0].rank for graph_id, stock in self.by_graph.items()}
        permitted = {graph_id: self._gate.permitted(stock) for graph_id, stock in self.by_graph.items()}
        return {graph_id: ones[0].rank for graph_id, ones in permitted.items() if ones}
