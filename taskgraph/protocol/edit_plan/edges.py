"""Which edges an edit takes away and makes, through which relays, and what forbids that."""

import itertools
from collections.abc import Sequence

from taskgraph.documents import graph_algorithms
from taskgraph.documents.edit_document import Update
from taskgraph.model import limits
from taskgraph.model.ids import GRAPH, edge_name_of, is_piece, is_relay, is_shared, owner_of, row_key
from taskgraph.protocol.edit_plan.names import Names, RefusedError


class EdgeChanges:
    """Edges that become others.

    requires: of updated tasks, where it is another. delete: keys of rows that go. cut, lost, links, leaves: see
    `protocol.edit.EditGraph`. removed, added: pairs of a task and what it requires.
    """

    def __init__(self, names: Names, delete: dict[str, None]) -> None:
        self._names = names
        self.snapshot = names.snapshot
        self.delete = delete
        self.requires: dict[str, list[str]] = {}
        self.cut: dict[tuple[str, str], None] = {}
        self.lost: dict[tuple[str, str], None] = {}
        self.links: dict[str, list[str]] = {}
        self.leaves: list[str] = []
        self.removed: set[tuple[str, str]] = set()
        self.added: set[tuple[str, str]] = set()

    def require(self, own: str, update: Update) -> tuple[str, ...] | None:
        """What the task requires from now on, as references; None if the update does not say so."""
        if "requires" not in update.keys:
            return None
        wanted = self._names.wanted(update)
        if own in wanted:
            raise RefusedError(f"“{update.label}” would require itself")
        if going := [self.snapshot.label(each) for each in wanted if each in self._names.gone]:
            raise RefusedError(f"“{update.label}” would require {', '.join(going[:5])}, which goes")
        if len(wanted) > limits.REQUIRES_MAX:
            raise RefusedError(
                f"“{update.label}” would require {len(wanted)} tasks, and an edit can add {limits.REQUIRES_MAX} "
                "requirements to one: add a task by an extension that requires them all, or their group, and let it "
                "require that task"
            )
        self.requires[own] = wanted
        direct = set(self.snapshot.ids(own, "requires"))
        before = self.snapshot.required(own)
        self.removed.update((own, each) for each in before if each not in wanted)
        self.added.update((own, each) for each in wanted if each not in before)
        for each in wanted:
            if each not in direct:
                self.links.setdefault(each, []).append(own)
        self._cut_above(own, wanted)
        return tuple(wanted)

    def take_away(self, own: str, *, defined: bool) -> None:
        """A task, or the join of a group, goes, with all relays that work for it.

        defined: its definition has a row of its own.
        """
        self.delete[row_key(own)] = None
        if defined:
            self.delete[f"definition:{own}"] = None
        for fork in self.snapshot.forks.get(own, ()):
            self.delete[row_key(fork)] = None
        self._cut_above(own, ())
        self.removed.update((own, each) for each in self.snapshot.required(own))

    def settle(self) -> None:
        """What follows once all tasks are updated and taken away. Raises RefusedError."""
        self._outsiders()
        for below, name in self.lost:
            if below != GRAPH and owner_of(below) != GRAPH:
                self.removed.add((owner_of(below), name))
        self._forks_and_leaves()
        self._check_cycle()

    def after(self) -> dict[str, Sequence[str]]:
        """What each task and shared join requires once the edit is made."""
        going = self._names.gone.keys()
        found: dict[str, Sequence[str]] = {}
        for reference in self.snapshot.rows:
            if reference in going or (is_relay(reference) and not is_shared(reference)):
                continue
            wanted = self.requires.get(reference)
            if wanted is None:
                wanted = [each for each in self.snapshot.required(reference) if each not in going]
            found[reference] = wanted
        return found

    def _cut_above(self, own: str, kept: Sequence[str]) -> None:
        """Take a node off the dependents of what it requires, but of those kept; joins that work for it alone go."""
        pieces = self.snapshot.pieces.get(own, ())
        self.delete.update((row_key(piece), None) for piece in pieces)
        above = [(each, own) for each in self.snapshot.ids(own, "requires") if each not in kept]
        above += [(each, piece) for piece in pieces for each in self.snapshot.ids(piece, "requires")]
        for name, below in above:
            if is_piece(name) or name in self._names.gone:
                continue  # if the node goes itself, nothing need be written
            for row, named in self.snapshot.dependents(name).items():
                if below in named:
                    self.cut[row, below] = None

    def _outsiders(self) -> None:
        """What waits for tasks that go: others that go, those that are given other requirements, and relays."""
        outside: dict[str, str] = {}
        for own in self._names.gone:
            for below in itertools.chain.from_iterable(self.snapshot.dependents(own).values()):
                owner = owner_of(below)
                if below.startswith("fork:") or owner in self._names.gone or owner in self.requires:
                    continue
                if owner == GRAPH or (is_shared(owner) and not owner.endswith("start")):
                    self.lost[below, own] = None
                else:
                    outside[self.snapshot.label(owner)] = self.snapshot.label(own)
        if outside:
            shown = ", ".join(f"{name} requires {what}" for name, what in sorted(outside.items())[:5])
            more = f", and {len(outside) - 5} more" if len(outside) > 5 else ""
            raise RefusedError(f"{shown}{more}: delete these too, or give them other requirements")

    def _forks_and_leaves(self) -> None:
        """Forks without dependents go; a task without dependents is a leaf, for which the graph waits."""
        for name in dict.fromkeys(edge_name_of(row) for row, _ in self.cut):
            forks = dict.fromkeys(self.snapshot.forks.get(name, ()))
            left = {
                row: [each for each in named if (row, each) not in self.cut]
                for row, named in self.snapshot.dependents(name).items()
            }
            while empty := [fork for fork in forks if not left[fork]]:
                for fork in empty:
                    del forks[fork]
                    self.delete[row_key(fork)] = None
                    for row, named in left.items():
                        if fork in named:
                            named.remove(fork)
                            self.cut[row, fork] = None
            if not left[name] and name not in self.links:
                self.leaves.append(name)
        self.cut = dict.fromkeys(pair for pair in self.cut if row_key(pair[0]) not in self.delete)
        if len(self.leaves) > limits.REQUIRES_MAX:
            raise RefusedError(f"{len(self.leaves)} tasks would have no dependent any more: split it")

    def _check_cycle(self) -> None:
        for cycle, _, _ in graph_algorithms.cycles(self.after()) if self.added else ():
            path = " → ".join(self.snapshot.label(each) for each in (*cycle, cycle[0]))
            raise RefusedError(f"the tasks would require each other in a circle (→ means requires): {path}")
