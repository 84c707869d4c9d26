"""All rules over one snapshot of a graph: which apply in which state of the graph, and what they find, in order."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final

from taskgraph.model.ids import GRAPH
from taskgraph.model.states import GRAPH_GONE, GRAPH_SEALED, GraphState
from taskgraph.protocol.definitions import SCHEMA
from taskgraph.protocol.invariants.columns import bad_columns
from taskgraph.protocol.invariants.edges import degrees, edges
from taskgraph.protocol.invariants.findings import Finding, Severity, finding
from taskgraph.protocol.invariants.graph import (
    budget,
    cancelled,
    channels,
    counts,
    deletion,
    finished,
    journal,
    missing,
    on_its_way,
)
from taskgraph.protocol.invariants.groups_and_limits import groups, limited, unlimited
from taskgraph.protocol.invariants.progress import conditions, progress, ready_relays, recalls
from taskgraph.protocol.invariants.requests import requests
from taskgraph.protocol.invariants.snapshot import Node, Snapshot
from taskgraph.protocol.invariants.tallies import tallies
from taskgraph.protocol.invariants.tasks import tasks
from taskgraph.protocol.rows import SCHEMA_MAX
from taskgraph.storage.tables import Row

Rule = Callable[[Snapshot], Iterator[Finding]]

# Of every graph that is not being taken away or put back; one that is cancelled; one that lives, or has finished.
_ALWAYS: Final[tuple[Rule, ...]] = (bad_columns, journal, channels, budget)
_CANCELLED: Final[tuple[Rule, ...]] = (*_ALWAYS, tasks, counts, recalls, cancelled)
_OF_ROWS: Final[tuple[Rule, ...]] = (
    requests,
    edges,
    degrees,
    progress,
    tasks,
    conditions,
    ready_relays,
    recalls,
    tallies,
)
_USUAL: Final[tuple[Rule, ...]] = (*_ALWAYS, *_OF_ROWS, groups, limited, unlimited, finished, counts)


def examine(graph_id: str, rows: Mapping[str, Row], now: datetime, *, steady: bool = True) -> list[Finding]:
    """Everything that is not as it should be, the wrong before the due.

    rows: the whole partition, by key (slim or not). steady: the graph row did not change while they were read, so
    counts over all rows mean something; without it no finding is `whole`, and no repair rests on counts.
    """
    graph = rows.get(GRAPH)
    if graph is not None and graph.columns.get("state") in GRAPH_SEALED and not _is_newer(graph):
        snapshot = Snapshot(graph_id, {GRAPH: graph}, now, steady=steady)
        return [*on_its_way(snapshot, left=len(rows) - 1)]
    newer = [row for row in rows.values() if _is_newer(row)]
    if newer:
        key, schema = newer[0].key, newer[0].columns["schema"]
        text = f"{len(newer):,} of the rows have a newer schema, such as {schema}; this version knows {SCHEMA_MAX}"
        return [finding("newer-schema", graph_id, key, "", text, keys=(key,))]
    snapshot = Snapshot(graph_id, rows, now, steady=steady)
    found = [each for rule in _rules(snapshot.graph) for each in rule(snapshot)]
    order = list(Severity)
    return sorted(found, key=lambda each: (order.index(each.severity), each.code, each.key))


def _is_newer(row: Row) -> bool:
    schema = row.columns.get("schema", SCHEMA)
    return isinstance(schema, int) and schema > SCHEMA_MAX


def _rules(graph: Node | None) -> tuple[Rule, ...]:
    """The rules that hold in the state of the graph."""
    if graph is None:
        return (bad_columns, missing)
    if graph.state in GRAPH_GONE:
        return (deletion,)
    if graph.state == GraphState.SUBMITTING or (
        graph.state == GraphState.CANCELLED and "started" not in graph.row.columns
    ):
        return _ALWAYS  # half of it may never have been written
    if graph.state in (GraphState.CANCELLING, GraphState.CANCELLED):
        return _CANCELLED
    return _USUAL
