"""The canonical form of a document, and the digests that are made of it."""

import hashlib
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any, Final

from taskgraph.documents.nodes import GraphDocument, GroupNode, Success, TaskNode
from taskgraph.model.json_strict import canonical_json
from taskgraph.model.placement import DEFAULT_TARGET
from taskgraph.model.states import FailurePolicy, When

_ALL_COMPLETED: Final = When.ALL_COMPLETED.value


def node_digest(node: TaskNode) -> str:
    """32 hexadecimal digits, equal for nodes that mean the same: defaults filled in, order of requires aside."""
    task = {"routing": "", "target": DEFAULT_TARGET, **node.task}
    requires = sorted(set(node.requires)) if len(node.requires) > 1 else node.requires
    more: dict[str, Any] = {"optional": sorted(node.optional)} if node.optional else {}
    more |= node.timing
    more |= _unusual(node)  # what is not used leaves the digests of older versions as they were
    if node.notify:
        more["notify"] = _channels_listed(node.notify)
    if more:
        text = canonical_json({"label": node.label, "requires": requires, "reruns": node.reruns, "task": task, **more})
    else:  # the same, put together in two thirds of the time
        names = ",".join(map(encode_basestring, requires))
        label, definition = encode_basestring(node.label), canonical_json(task)
        text = f'{{"label":{label},"requires":[{names}],"reruns":{node.reruns},"task":{definition}}}'
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _unusual(node: TaskNode) -> dict[str, Any]:
    """Those of the keys beside `task` that do not have their default."""
    made: dict[str, Any] = {}
    if node.when != _ALL_COMPLETED:
        made["when"] = str(node.when)
    if node.notify:
        made["notify"] = dict(node.notify)
    if not node.active:
        made["active"] = False
    if node.priority:
        made["priority"] = node.priority
    return made


def _unusual_of_group(group: GroupNode) -> dict[str, Any]:
    made: dict[str, Any] = {} if group.active else {"active": False}
    if group.success is not None:
        made["success"] = success_object(group.success)
    if group.grows:
        made["grows"] = True
    if group.failure_policy:
        made["failurePolicy"] = str(group.failure_policy)
    return {**made, "maxInFlight": group.max_in_flight} if group.max_in_flight else made


def success_object(success: Success) -> dict[str, Any]:
    then, rest = "wait" if success.waits else "go", "cancel" if success.cancels else "let"
    return {"atLeast": success.at_least, "then": then, "rest": rest}


def success_of(written: Mapping[str, Any] | None) -> Success | None:
    """The same back, from what `success_object` gives or a valid document has."""
    if written is None:
        return None
    at_least = written["atLeast"]
    share = at_least if isinstance(at_least, str) else int(at_least)
    return Success(share, written.get("then") == "wait", written.get("rest") == "cancel")


def node_digests(document: GraphDocument) -> dict[str, str]:
    return {label: node_digest(node) for label, node in document.tasks.items()}


def content_hash(document: GraphDocument, digests: Mapping[str, str] | None = None) -> str:
    """32 hexadecimal digits that are equal for documents that mean the same. digests: those of its nodes."""
    if digests is None:
        digests = node_digests(document)
    digest = hashlib.sha256()
    envelope: dict[str, Any] = {"routing": "", "metadata": {}, "tags": {}, **_envelope(document)}
    if document.params:
        envelope["params"] = document.values
    if document.notify:
        envelope["notify"] = _channels_listed(document.notify)
    digest.update(canonical_json(envelope).encode())
    for label in sorted(document.tasks):
        digest.update(digests[label].encode())
    for name in sorted(document.groups):
        group = document.groups[name]
        inside = {"group": name, "tasks": sorted(set(group.tasks)), "requires": sorted(set(group.requires))}
        normal = inside | _unusual_of_group(group)
        digest.update(canonical_json(normal).encode())
    return digest.hexdigest()[:32]


def _envelope(document: GraphDocument) -> dict[str, Any]:
    """The keys beside `tasks` and `groups` that do not have their default."""
    every: dict[str, Any] = {
        "routing": document.routing,
        "metadata": dict(document.metadata),
        "tags": dict(document.tags),
        "failurePolicy": "" if document.failure_policy == FailurePolicy.BLOCK else document.failure_policy,
        "params": {name: dict(declared) for name, declared in document.params.items()},
        "stalledAfter": document.stalled_after,
        "onStalled": document.on_stalled,
        "maxInFlight": document.max_in_flight,
        "notify": dict(document.notify),
        "deadline": document.deadline,
        "priority": document.priority,
        "budget": document.budget.document() if document.budget is not None else None,
    }
    return {key: value for key, value in every.items() if value}


def _channels_listed(notify: Mapping[str, Any]) -> dict[str, Any]:
    """One channel and a list of one channel mean the same."""
    return {key: list(each) if isinstance(each, list | tuple) else [each] for key, each in notify.items()}


def document_object(document: GraphDocument) -> dict[str, Any]:
    """The JSON form of a document; reading it gives an equal document. Values are shared, not copied."""
    made = _envelope(document)
    made["tasks"] = {label: _node_object(node) for label, node in document.tasks.items()}
    if document.groups:
        made["groups"] = {
            name: {"tasks": list(group.tasks), "requires": list(group.requires), **_unusual_of_group(group)}
            for name, group in document.groups.items()
        }
    return made


def written_object(document: GraphDocument) -> dict[str, Any]:
    """The same with `$param` objects where values were put in; these are the defaults."""
    made = document_object(document)
    for label, task in document.written.items():
        made["tasks"][label]["task"] = dict(task)
    return made


def _node_object(node: TaskNode) -> dict[str, Any]:
    requires = [{"label": each, "optional": True} if each in node.optional else each for each in node.requires]
    task = dict(node.task)
    return {"requires": requires, "reruns": node.reruns, **node.timing, "task": task, **_unusual(node)}
