"""Extensions and edits that were asked for: their rows, and what the graph row says of the one under way."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from taskgraph.model import limits
from taskgraph.model.columns import texts
from taskgraph.model.ids import GRAPH, ids_text
from taskgraph.model.states import GRAPH_ENDED, PAUSED, GraphState
from taskgraph.protocol.invariants.findings import Finding, Resend, Severity
from taskgraph.protocol.invariants.snapshot import Snapshot
from taskgraph.protocol.propagation import DEFERRED
from taskgraph.storage.tables import Row


def is_deferred(snapshot: Snapshot, request: str) -> bool:
    """Whether the graph waits for a request that has not been made yet."""
    head = snapshot.rows.get(f"request:{request}")
    deferred = texts(snapshot.nodes[GRAPH].row.columns, DEFERRED)
    return head is not None and head.columns.get("state") == "staged" and request in deferred


def requests(snapshot: Snapshot) -> Iterator[Finding]:
    """Requests that are open, and the one that the graph row names."""
    graph = snapshot.nodes[GRAPH]
    deferred = texts(graph.row.columns, DEFERRED)
    left = [each for each in deferred if is_deferred(snapshot, each)]
    if left != deferred and graph.state in (GraphState.RUNNING, GraphState.BLOCKED):
        over = [each for each in deferred if each not in left]
        yield snapshot.find(
            "left-over",
            GRAPH,
            f"it waits for extension {over[0]}, which has been answered",
            "it never finishes",
            keys=[f"request:{each}" for each in over],
            repair=snapshot.patch({GRAPH: {DEFERRED: ids_text(left)}}, ()),
            detail=over[0],
        )
    heads = {key: row for key, row in snapshot.rows.items() if key.startswith("request:") and key.count(":") == 1}
    yield from _open(snapshot, heads)
    yield from _under_way(snapshot, heads)


def _open(snapshot: Snapshot, heads: Mapping[str, Row]) -> Iterator[Finding]:
    """Requests that are not answered yet."""
    graph = snapshot.nodes[GRAPH]
    extending = str(graph.row.columns.get("extending", ""))
    for key, row in heads.items():
        state = row.columns.get("state")
        if state not in ("staged", "accepted"):
            continue
        request = key.removeprefix("request:")
        what = "edit" if row.columns.get("kind") == "edit" else "extension"
        if f"{key}:0000" not in snapshot.rows:
            yield snapshot.find(
                "missing-row",
                key,
                f"the document of this {what} is gone",
                "it can never be brought in",
                keys=(f"{key}:0000",),
                detail="document",
                refusal="the document is written nowhere else",
            )
        if state == "accepted" and extending != request:
            repair = snapshot.patch({GRAPH: {"extending": request}}, (key,)) if not extending else None
            yield snapshot.find(
                "extending",
                GRAPH,
                f"extension {request} was accepted, and the graph row does not name it",
                "another one may begin before it is done",
                keys=(key,),
                repair=repair,
                detail=request,
                refusal=f"the graph row names {extending}",
            )
        if is_deferred(snapshot, request) and PAUSED in texts(graph.row.columns, "held"):
            continue  # it is made when the graph is resumed
        staged = row.columns.get("staged")
        age = (snapshot.now - staged).total_seconds() if isinstance(staged, datetime) else 0.0
        if age >= limits.REDISPATCH_SECONDS and graph.state not in GRAPH_ENDED:
            yield snapshot.find(
                "extension-open",
                key,
                f"the {what} is {state} since {staged}",
                "its tasks wait for a handler",
                severity=Severity.DUE,
                remedy="run `taskgraph serve`, which handles and sweeps",
                repair=Resend(request),
            )


def _under_way(snapshot: Snapshot, heads: Mapping[str, Row]) -> Iterator[Finding]:
    """The extension that the graph row names as being brought in."""
    extending = str(snapshot.nodes[GRAPH].row.columns.get("extending", ""))
    if extending and (head := heads.get(f"request:{extending}")) is None:
        yield snapshot.find(
            "missing-row",
            GRAPH,
            f"extension {extending} is under way, and its row is gone",
            "no other extension can begin",
            keys=(f"request:{extending}",),
            detail=extending,
            refusal="nothing tells how far it came",
        )
    elif extending and head is not None and head.columns.get("state") != "accepted":
        state = head.columns.get("state")
        yield snapshot.find(
            "extending",
            GRAPH,
            f"it names extension {extending} as under way, which is {state}",
            "no other extension can begin",
            keys=(head.key,),
            detail=extending,
            repair=snapshot.patch({GRAPH: {"extending": ""}}, (head.key,)) if state in ("done", "refused") else None,
            refusal="nothing tells whether its tasks are counted",
        )
