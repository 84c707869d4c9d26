"""Rows of groups and of limits against the rows of tasks: who is a member, and what runs under which limit."""

from collections.abc import Iterator, Mapping, Sequence

from taskgraph.model import limits
from taskgraph.model.columns import Value, texts
from taskgraph.model.ids import GRAPH, group_key, group_owner, ids_text, limit_key, row_key, task_id_of
from taskgraph.model.json_strict import compact_json
from taskgraph.model.states import TaskState
from taskgraph.protocol.concurrency import is_over, limit_of, named_in, scopes_of
from taskgraph.protocol.definitions import SCHEMA, gathered
from taskgraph.protocol.invariants.findings import NAMED_MAX, Finding, Retell, Severity, have, tasks_are
from taskgraph.protocol.invariants.snapshot import Node, Snapshot, read_json
from taskgraph.protocol.rows import Draft
from taskgraph.protocol.set_limit import Recount
from taskgraph.storage.tables import Insert, Row


def groups(snapshot: Snapshot) -> Iterator[Finding]:
    """Who is in a group stands on its row, and on the row of each task."""
    named: dict[str, list[Node]] = {}  # groupId -> tasks that say that they are in it
    names: dict[str, str] = {}
    for node in snapshot.tasks:
        for name in texts(node.row.columns, "groups"):
            own = task_id_of(snapshot.graph_id, name)
            names[own] = name
            if not snapshot.is_open(node.reference):
                named.setdefault(own, []).append(node)
    heads: dict[str, dict[str, None]] = {}
    for key, row in snapshot.rows.items():
        if key.startswith("group:"):
            listed = read_json(gathered(row.columns, "members"))
            inside = heads.setdefault(key.split(":")[1], {})
            inside.update(dict.fromkeys(map(str, listed if isinstance(listed, list) else ())))
    for own in dict.fromkeys([*heads, *named]):
        head = snapshot.rows.get(group_key(own))
        if head is None or head.columns.get("request") not in snapshot.opened:
            yield from _group(snapshot, own, names.get(own, ""), head, heads.get(own, {}), named.get(own, []))
    counted = snapshot.nodes[GRAPH].row.columns.get("groups", 0)
    if snapshot.steady and counted != len(heads) and all(group_key(own) in snapshot.rows for own in (*heads, *named)):
        yield snapshot.find(
            "group-count",
            GRAPH,
            f"it counts {counted} groups, and there are {len(heads):,}",
            "an extension that requires one of them may be refused",
            repair=snapshot.patch({GRAPH: {"groups": len(heads)}}),
            whole=True,
        )


def limited(snapshot: Snapshot) -> Iterator[Finding]:
    """What a limit counts is what runs under it."""
    running: dict[str, dict[str, Node]] = {}
    named: dict[str, list[Node]] = {}
    for node in snapshot.tasks:
        for scope in scopes_of(node.row.columns):
            named.setdefault(scope, []).append(node)
            if node.state == TaskState.RUNNING:
                member = f"{node.reference}:{node.row.columns.get('run', 0)}"
                running.setdefault(scope, {})[member] = node
    for scope, nodes in named.items():
        if limit_key(scope) not in snapshot.rows and not snapshot.is_open(nodes[0].reference):
            yield snapshot.find(
                "missing-limit",
                nodes[0].row.key,
                f"it is under the limit {scope}, whose row is gone, as {len(nodes) - 1:,} other tasks are",
                "none of these tasks can be claimed",
                refusal="how many may be in flight is written nowhere else",
                remedy=f"insert the row {limit_key(scope)} by hand: max, inFlight [] and moved",
                detail=scope,
            )
    for key, row in snapshot.rows.items():
        if key.startswith("limit:"):
            yield from _limit(snapshot, row, running.get(key.removeprefix("limit:"), {}))


def _limit(snapshot: Snapshot, row: Row, running: Mapping[str, Node]) -> Iterator[Finding]:
    limit = limit_of(row)
    uncounted = [member for member in running if member not in limit.inside]
    if uncounted:
        tasks = [running[each] for each in uncounted]
        columns = {row.key: {"inFlight": ids_text([*limit.inside, *uncounted])}}
        yield snapshot.find(
            "not-counted",
            row.key,
            f"it does not count {snapshot.labels(node.reference for node in tasks)}, and that runs under it",
            "more may begin than the limit allows",
            keys=[node.row.key for node in tasks],
            repair=snapshot.patch(columns, [node.row.key for node in tasks]),
        )
        return
    over: list[str] = []
    strange: list[str] = []
    for member in limit.inside:
        task_id, run = named_in(member)
        node = snapshot.nodes.get(task_id)
        if node is None:
            strange.append(member)
        elif member not in running and is_over(Draft(node.row.key, node.row.columns, None), run):
            over.append(member)
    if over:
        yield snapshot.find(
            "counts-what-is-over",
            row.key,
            f"it counts {len(over):,} of {len(limit.inside):,} runs that are over",
            "fewer tasks begin than the limit allows",
            severity=Severity.DUE,
            keys=[row_key(named_in(member)[0]) for member in over],
            repair=Retell((Recount(limit.scope, tuple(over)),)),
        )
    elif strange and snapshot.steady:
        left = [each for each in limit.inside if each not in strange]
        yield snapshot.find(
            "counts-nothing",
            row.key,
            f"it counts {', '.join(strange[:NAMED_MAX])}, and there is no such task",
            "fewer tasks begin than the limit allows",
            repair=snapshot.patch({row.key: {"inFlight": ids_text(left)}}),
            whole=True,
        )
    if len(running) > limit.most:
        yield snapshot.find(
            "over-limit",
            row.key,
            f"{len(running):,} tasks run under it, and {limit.most:,} may",
            "nothing, if it was lowered while they ran",
            severity=Severity.NOTE,
            keys=[node.row.key for node in running.values()],
            remedy="wait: no more begin until there is room",
        )


def _group(
    snapshot: Snapshot, own: str, name: str, head: Row | None, listed: Mapping[str, None], named: Sequence[Node]
) -> Iterator[Finding]:
    key = group_key(own)
    holders = [node.row.key for node in named]
    if head is None:
        text = ids_text(sorted(node.reference for node in named))
        columns: dict[str, Value] = {"schema": SCHEMA, "label": name, "tasks": len(named), "members": text}
        join = f"join:{group_owner(own)}:done"
        if join in snapshot.rows:
            columns["join"] = join
        fits = len(text) <= limits.PROPERTY_CHARS_MAX and snapshot.steady
        yield snapshot.find(
            "missing-row",
            key,
            f"the row of group “{name}” is gone, and {tasks_are(len(named))} in it",
            "nobody can look at the group, or do something to all of it",
            keys=holders,
            repair=snapshot.patch({}, holders[:1], inserts=(Insert(key, columns),)) if fits else None,
            refusal="it had more tasks than fit one row, or the graph changed meanwhile",
            whole=True,
        )
        return
    known = {node.reference for node in named}
    unlisted = sorted(node.reference for node in named if node.reference not in listed)
    if unlisted:
        text = ids_text(sorted([*listed, *unlisted]))
        fits = f"{key}:0001" not in snapshot.rows and len(text) <= limits.PROPERTY_CHARS_MAX
        size = len(listed) + len(unlisted)
        yield snapshot.find(
            "group-members",
            key,
            f"{snapshot.labels(unlisted)} {have(unlisted)} this group on the row of the task, and not on this one",
            "what is done to the group passes them by",
            keys=map(row_key, unlisted),
            repair=snapshot.patch({key: {"members": text, "tasks": size}}, map(row_key, unlisted)) if fits else None,
            refusal="its tasks are more than fit one column",
        )
    label = str(head.columns.get("label", ""))
    for each in listed:
        node = snapshot.nodes.get(each)
        if node is None:
            yield snapshot.find(
                "missing-row",
                key,
                f"it names the row {row_key(each)}, which does not exist",
                "what is done to the group cannot be done to that task",
                keys=(row_key(each),),
                detail=each,
                refusal="nothing tells for certain what the row held",
            )
        elif each not in known and not snapshot.is_open(each):
            text = compact_json(sorted([*texts(node.row.columns, "groups"), label]))
            yield snapshot.find(
                "group-members",
                node.row.key,
                f"it is in group “{label}”, which its row does not say",
                "people do not see that it is",
                keys=(key,),
                detail=own,
                repair=snapshot.patch({node.row.key: {"groups": text}}, (key,)),
            )
