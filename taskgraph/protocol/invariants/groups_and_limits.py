"""Rows of groups and of limits against the rows of tasks: the members of each, and what runs under which limit."""

from collections.abc import Iterator, Mapping, Sequence

from taskgraph.model import limits
from taskgraph.model.columns import Value, texts
from taskgraph.model.ids import GRAPH, group_key, group_owner, ids_text, limit_key, row_key, task_id_of
from taskgraph.model.json_strict import compact_json
from taskgraph.model.states import TaskState
from taskgraph.protocol.concurrency import is_over, limit_of, missing_scopes, named_in, scopes_of
from taskgraph.protocol.definitions import SCHEMA, gathered
from taskgraph.protocol.invariants.findings import NAMED_MAX, Finding, Redo, have, tasks_are
from taskgraph.protocol.invariants.snapshot import Node, Snapshot, read_json
from taskgraph.protocol.rows import Draft
from taskgraph.protocol.set_limit import ComeUnder, Recount
from taskgraph.protocol.tally import written_success
from taskgraph.storage.tables import Insert, Row


def groups(snapshot: Snapshot) -> Iterator[Finding]:
    """The tasks of a group stand on its row, and the groups of a task on the task's."""
    named: dict[str, list[Node]] = {}  # groupId -> tasks whose rows name the group
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
        if head is None:
            yield _missing_group(snapshot, own, names.get(own, ""), named.get(own, []))
        elif head.columns.get("request") not in snapshot.opened:
            yield from _members(snapshot, own, head, heads.get(own, {}), named.get(own, []))
    counted = snapshot.nodes[GRAPH].row.columns.get("groups", 0)
    if snapshot.steady and counted != len(heads) and all(group_key(own) in snapshot.rows for own in (*heads, *named)):
        text = f"it counts {counted} groups, and there are {len(heads):,}"
        yield snapshot.find("group-count", GRAPH, text, repair=snapshot.patch({GRAPH: {"groups": len(heads)}}))


def _missing_group(snapshot: Snapshot, own: str, name: str, named: Sequence[Node]) -> Finding:
    key = group_key(own)
    holders = [node.row.key for node in named]
    members = ids_text(sorted(node.reference for node in named))
    columns: dict[str, Value] = {"schema": SCHEMA, "label": name, "tasks": len(named), "members": members}
    join = f"join:{group_owner(own)}:done"
    if join in snapshot.rows:
        columns["join"] = join
    tally = snapshot.rows.get(f"join:{group_owner(own)}:all")
    if tally is not None:
        columns |= {"tally": tally.key, "success": written_success(tally.columns)}
    fits = len(members) <= limits.PROPERTY_CHARS_MAX and snapshot.steady
    return snapshot.find(
        "missing-row:group",
        key,
        f"the row of group “{name}” is gone, and {tasks_are(len(named))} in it",
        keys=holders,
        repair=snapshot.patch({}, holders[:1], inserts=(Insert(key, columns),)) if fits else None,
    )


def _members(
    snapshot: Snapshot, own: str, head: Row, listed: Mapping[str, None], named: Sequence[Node]
) -> Iterator[Finding]:
    """What a group's row and the rows of its tasks say differently."""
    key = head.key
    known = {node.reference for node in named}
    unlisted = sorted(node.reference for node in named if node.reference not in listed)
    if unlisted:
        text = ids_text(sorted([*listed, *unlisted]))
        fits = f"{key}:0001" not in snapshot.rows and len(text) <= limits.PROPERTY_CHARS_MAX
        columns: dict[str, Value] = {"members": text, "tasks": len(listed) + len(unlisted)}
        yield snapshot.find(
            "group-members",
            key,
            f"{snapshot.labels(unlisted)} {have(unlisted)} this group on the row of the task, and not on this one",
            keys=map(row_key, unlisted),
            repair=snapshot.patch({key: columns}, map(row_key, unlisted)) if fits else None,
        )
    label = str(head.columns.get("label", ""))
    for each in listed:
        node = snapshot.nodes.get(each)
        if node is None:
            text = f"it names the row {row_key(each)}, which does not exist"
            yield snapshot.find("missing-row:member", key, text, keys=(row_key(each),), detail=each)
        elif each not in known and not snapshot.is_open(each):
            text = compact_json(sorted([*texts(node.row.columns, "groups"), label]))
            yield snapshot.find(
                "group-members:task",
                node.row.key,
                f"it is in group “{label}”, which its row does not say",
                keys=(key,),
                detail=own,
                repair=snapshot.patch({node.row.key: {"groups": text}}, (key,)),
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
                remedy=f"insert the row {limit_key(scope)} by hand: max, inFlight [] and moved",
                detail=scope,
            )
    for key, row in snapshot.rows.items():
        if key.startswith("limit:"):
            yield from _limit(snapshot, row, running.get(key.removeprefix("limit:"), {}))


def unlimited(snapshot: Snapshot) -> Iterator[Finding]:
    """Each task is under all limits of its graph that concern it, once these are set."""
    graph = snapshot.nodes[GRAPH]
    columns = graph.row.columns
    if not snapshot.steady or not graph.waits or columns.get("limiting") is True:
        return
    for node in snapshot.tasks:
        if more := missing_scopes(node.row.columns, columns, snapshot.graph_id):
            text = f"it does not name {', '.join(map(limit_key, more))}, and that concerns it"
            repair = Redo((ComeUnder(node.reference, more),))
            yield snapshot.find("not-limited", node.row.key, text, keys=(GRAPH,), repair=repair)


def _limit(snapshot: Snapshot, row: Row, running: Mapping[str, Node]) -> Iterator[Finding]:
    limit = limit_of(row)
    uncounted = [member for member in running if member not in limit.inside]
    if uncounted:
        keys = [running[each].row.key for each in uncounted]
        names = snapshot.labels(running[each].reference for each in uncounted)
        columns = {row.key: {"inFlight": ids_text([*limit.inside, *uncounted])}}
        text = f"it does not count {names}, and that runs under it"
        yield snapshot.find("not-counted", row.key, text, keys=keys, repair=snapshot.patch(columns, keys))
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
        text = f"it counts {len(over):,} of {len(limit.inside):,} runs that are over"
        keys = [row_key(named_in(member)[0]) for member in over]
        repair = Redo((Recount(limit.scope, tuple(over)),))
        yield snapshot.find("counts-what-is-over", row.key, text, keys=keys, repair=repair)
    elif strange and snapshot.steady:
        left = [each for each in limit.inside if each not in strange]
        text = f"it counts {', '.join(strange[:NAMED_MAX])}, and there is no such task"
        patch = snapshot.patch({row.key: {"inFlight": ids_text(left)}})
        yield snapshot.find("counts-nothing", row.key, text, repair=patch)
    if len(running) > limit.most:
        text = f"{len(running):,} tasks run under it, and {limit.most:,} may"
        yield snapshot.find("over-limit", row.key, text, keys=[node.row.key for node in running.values()])
