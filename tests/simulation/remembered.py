"""Answers that are remembered: plain functions of values, of which millions of small histories ask the same.

Each of these functions gives the same for the same, and what it gives is never changed; so a history is the same with
and without this, and only quicker. What decides anything is never remembered.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from taskgraph.documents import canonical, read
from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.engine import plans, submission
from taskgraph.model import messages
from taskgraph.model.ids import task_id_of
from taskgraph.protocol import extension_plan, layout
from tests.simulation import races, world

_KEPT_MAX: Final = 20_000


def _node_digest(wanted: Callable[[TaskNode], str]) -> Callable[[TaskNode], str]:
    known: dict[tuple[Any, ...], str] = {}

    def node_digest(node: TaskNode) -> str:
        if node.task:
            return wanted(node)
        key = (node.label, node.requires, node.reruns, node.when, node.optional)
        digest = known.get(key)
        if digest is None:
            if len(known) >= _KEPT_MAX:
                known.clear()
            digest = known[key] = wanted(node)
        return digest

    return node_digest


def _content_hash(wanted: Callable[..., str]) -> Callable[..., str]:
    known: dict[tuple[Any, ...], str] = {}

    def content_hash(document: GraphDocument, digests: Mapping[str, str] | None = None) -> str:
        nodes = document.tasks.values()
        if document.routing or document.metadata or document.tags or any(node.task for node in nodes):
            return wanted(document, digests)
        key = (
            document.failure_policy,
            *document.groups.values(),
            *[(node.label, node.requires, node.reruns, node.when, node.optional) for node in nodes],
        )
        digest = known.get(key)
        if digest is None:
            if len(known) >= _KEPT_MAX:
                known.clear()
            digest = known[key] = wanted(document, digests)
        return digest

    return content_hash


@contextlib.contextmanager
def remembering() -> Iterator[None]:
    """These functions, with a memory, for a while."""
    node_digest = _node_digest(canonical.node_digest)
    content_hash = _content_hash(canonical.content_hash)
    cached = functools.lru_cache(maxsize=_KEPT_MAX)
    changed: list[tuple[Any, str, Any]] = [
        *((module, "node_digest", node_digest) for module in (canonical, layout, extension_plan)),
        *((module, "content_hash", content_hash) for module in (submission, world, races)),
        *((module, "task_id_of", cached(task_id_of)) for module in (layout, extension_plan, plans)),
        (plans, "read_document", cached(read.read_document)),
        (world, "parse", cached(messages.parse)),
        (world, "begun_before", {}),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in changed]
    for module, name, function in changed:
        setattr(module, name, function)
    try:
        yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)
