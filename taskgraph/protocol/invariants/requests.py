"""Extensions, edits and planned changes: their rows, and what the graph row says of the extension under way."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from taskgraph.model import limits
from taskgraph.model.columns import texts
from taskgraph.model.ids import GRAPH, ids_text
from taskgraph.model.states import GRAPH_ENDED, WHOLE
from taskgraph.protocol.extension_plan import EDIT
from taskgraph.protocol.invariants.findings import Finding, Resend
from taskgraph.protocol.invariants.snapshot import Snapshot
from taskgraph.protocol.planned import CHANGE
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
    if left != deferred and graph.waits:
        over = [each for each in deferred if each not in left]
        yield snapshot.find(
            "left-over:request",
            GRAPH,
            f"it waits for extension {over[0]}, which has been answered",
            keys=[f"request:{each}" for each in over],
            repair=snapshot.patch({GRAPH: {DEFERRED: ids_text(left)}}),
            detail=over[0],
        )
    extending = str(graph.row.columns.get("extending", ""))
    heads = {key: row for key, row in snapshot.rows.items() if key.startswith("request:") and key.count(":") == 1}
    for row in heads.values():
        if row.columns.get("state") in ("staged", "accepted"):
            yield from _open(snapshot, row, extending)
    if extending:
        yield from _under_way(snapshot, heads, extending)


def _open(snapshot: Snapshot, head: Row, extending: str) -> Iterator[Finding]:
    """What is wrong with a request that is not answered yet."""
    graph = snapshot.nodes[GRAPH]
    key, state = head.key, head.columns.get("state")
    request = key.removeprefix("request:")
    what = {EDIT: "edit", CHANGE: "change"}.get(str(head.columns.get("kind")), "extension")
    document = f"{key}:0000"
    if document not in snapshot.rows:
        text = f"the document of this {what} is gone"
        yield snapshot.find("missing-row:document", key, text, keys=(document,), detail="document")
    if state == "accepted" and extending != request and what != "change":
        yield snapshot.find(
            "extending:unnamed",
            GRAPH,
            f"extension {request} was accepted, and the graph row does not name it",
            keys=(key,),
            repair=None if extending else snapshot.patch({GRAPH: {"extending": request}}, (key,)),
            detail=request,
            refusal=f"the graph row names {extending}",
        )
    if is_deferred(snapshot, request) and not WHOLE.isdisjoint(texts(graph.row.columns, "held")):
        return  # it is made when the graph is resumed
    staged = head.columns.get("staged")
    age = (snapshot.now - staged).total_seconds() if isinstance(staged, datetime) else 0.0
    if age >= limits.REDISPATCH_SECONDS and graph.state not in GRAPH_ENDED:
        yield snapshot.find("extension-open", key, f"the {what} is {state} since {staged}", repair=Resend(request))


def _under_way(snapshot: Snapshot, heads: Mapping[str, Row], extending: str) -> Iterator[Finding]:
    """The extension that the graph row names as being brought in."""
    key = f"request:{extending}"
    head = heads.get(key)
    if head is None:
        text = f"extension {extending} is under way, and its row is gone"
        yield snapshot.find("missing-row:request", GRAPH, text, keys=(key,), detail=extending)
    elif (state := head.columns.get("state")) != "accepted":
        ended = state in ("done", "refused")
        yield snapshot.find(
            "extending",
            GRAPH,
            f"it names extension {extending} as under way, which is {state}",
            keys=(key,),
            detail=extending,
            repair=snapshot.patch({GRAPH: {"extending": ""}}, (key,)) if ended else None,
        )
