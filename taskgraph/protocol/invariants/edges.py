"""Edges name each other from both ends, lead to rows that exist, and are no more than a row may have (S8)."""

from collections.abc import Iterator

from taskgraph.model import limits
from taskgraph.model.columns import Value
from taskgraph.model.ids import GRAPH, edge_name_of, ids_text, is_piece, is_relay, owner_of, row_key
from taskgraph.protocol.invariants.findings import Finding
from taskgraph.protocol.invariants.snapshot import Node, Snapshot


def edges(snapshot: Snapshot) -> Iterator[Finding]:
    """Edges that one end does not name, or that lead nowhere."""
    for node in snapshot.nodes.values():
        yield from _edges_of(snapshot, node)


def _edges_of(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    own = node.reference
    for each in dict.fromkeys([*(node.requires or ()), *(node.dependents or ())]):
        if each not in snapshot.nodes and not snapshot.is_open(each) and not snapshot.is_open(own):
            text = f"it names the row {row_key(each)}, which does not exist"
            yield snapshot.find("missing-row", node.row.key, text, keys=(row_key(each),), detail=each)
    for name in node.requires or ():
        other = snapshot.nodes.get(name)
        known = other is not None and name not in snapshot.unreadable
        if known and not snapshot.upstream_rows(own, name) and not (snapshot.is_open(own) or snapshot.is_open(name)):
            yield _dependent_missing(snapshot, node, snapshot.nodes[name])
    for below in node.dependents or ():
        dependent = snapshot.nodes.get(below)
        if dependent is None or dependent.requires is None or edge_name_of(own) in dependent.requires:
            continue
        if snapshot.is_open(own) or snapshot.is_open(below) or (below == GRAPH and node.resolved):
            continue  # the graph row need not name what is fulfilled
        yield _requirement_missing(snapshot, node, dependent)
    if node.dependents == [] and own != GRAPH and not snapshot.is_open(own):
        yield from _without_dependents(snapshot, node)


def _certain(snapshot: Snapshot, below: str, above: str) -> bool:
    """Whether an edge that only one end names is a real one: by the names of pieces, or by the number of edges."""
    return GRAPH in (below, above, owner_of(below)) or is_piece(above) or is_piece(below) or snapshot.certain_edges


def _dependent_missing(snapshot: Snapshot, node: Node, required: Node) -> Finding:
    dependents = required.dependents or []
    repair = None
    refusal = ""
    if len(dependents) >= limits.DEPENDENTS_MAX:
        refusal = f"row {required.row.key} names as many dependents as it may"
    elif _certain(snapshot, node.reference, required.reference):
        text = ids_text([*dependents, node.reference])
        repair = snapshot.patch({required.row.key: {"dependents": text}}, (node.row.key,))
    return snapshot.find(
        "dependent-missing",
        node.row.key,
        f"it requires {snapshot.label(required.reference)}, which does not name it as a dependent",
        keys=snapshot.edge_keys(node.reference, (required.reference,)),
        detail=required.reference,
        repair=repair,
        refusal=refusal,
    )


def _requirement_missing(snapshot: Snapshot, node: Node, dependent: Node) -> Finding:
    name = edge_name_of(node.reference)
    requires, left = dependent.requires or [], dependent.left
    repair = None
    refusal = ""
    if left is None or len(requires) >= _requires_max(dependent.reference):
        refusal = f"row {dependent.row.key} cannot take another requirement"
    elif not dependent.waits and not node.resolved:
        refusal = f"{snapshot.label(dependent.reference)} has gone on without it, and is {dependent.state}"
    elif _certain(snapshot, dependent.reference, name):
        columns: dict[str, Value] = {"requires": ids_text([*requires, name])}
        if not node.resolved and name not in left:
            columns["requiresLeft"] = ids_text([*left, name])
        repair = snapshot.patch({dependent.row.key: columns}, (node.row.key,))
    return snapshot.find(
        "requirement-missing",
        dependent.row.key,
        f"{snapshot.label(node.reference)} names it as a dependent, and it does not require that",
        keys=(node.row.key, row_key(name)),
        detail=node.reference,
        repair=repair,
        refusal=refusal,
    )


def _without_dependents(snapshot: Snapshot, node: Node) -> Iterator[Finding]:
    own = node.reference
    graph = snapshot.nodes[GRAPH]
    requires, left = graph.requires, graph.left
    if not snapshot.steady or own in (requires or ()):
        return  # an edge that only the graph row names is found there
    if own in snapshot.half_named or is_relay(own):
        return
    repair = None
    refusal = ""
    if requires is not None and left is not None and len(requires) < limits.GRAPH_REQUIRES_MAX:
        columns: dict[str, dict[str, Value]] = {node.row.key: {"dependents": ids_text([GRAPH])}}
        if not node.resolved:
            columns[GRAPH] = {"requires": ids_text([*requires, own]), "requiresLeft": ids_text([*left, own])}
        if snapshot.certain_edges:
            refusal = f"the graph is {graph.state}"
            repair = snapshot.patch(columns) if node.resolved or graph.waits else None
    text = "no task requires it, nor does the graph"
    yield snapshot.find("no-dependents", node.row.key, text, repair=repair, refusal=refusal)


def degrees(snapshot: Snapshot) -> Iterator[Finding]:
    """Rows that name more others than one commit can work on."""
    for node in snapshot.nodes.values():
        most = _requires_max(node.reference)
        bounds = (
            ("requires", node.requires, most),
            ("requiresLeft", node.left, most),
            ("dependents", node.dependents, limits.DEPENDENTS_MAX),
        )
        for name, found, bound in bounds:
            if found is not None and len(found) > bound:
                text = f"column {name} names {len(found)} rows, and may name {bound}"
                yield snapshot.find("degree", node.row.key, text, detail=name)


def _requires_max(reference: str) -> int:
    # A join that took an old one under it names one more.
    return limits.GRAPH_REQUIRES_MAX if reference == GRAPH else limits.REQUIRES_MAX + 1
