"""How each task of a graph must end, from the document and the outcomes of runs alone.

A fixpoint over the document, written without a look at how the product does it: what simulations, scenarios and tests
of decisions are held against.
"""

from collections.abc import Callable, Collection, Mapping

from taskgraph.documents.nodes import TaskNode

FAILED = frozenset({"failed", "exception"})


Decide = Callable[[Callable[[str], str]], str]
"""How a group that needs k of n has ended, by how its members have; "" for not yet."""


def expected(
    tasks: Mapping[str, TaskNode],
    failing: Collection[str],
    groups: Mapping[str, Decide] | None = None,
    known: Mapping[str, str] | None = None,
    blocking: Collection[str] = (),
) -> dict[str, str]:
    """Label -> completed, failed or skipped, where failures are passed on; unscheduled behind one that is not.

    failing: labels of tasks that fail for good whenever they run. groups: those that need k of n, which tasks may
    require by name. known: how some have ended that were cancelled. blocking: labels of tasks whose failure is not
    passed on.
    """
    ends: dict[str, str] = dict(known or {})
    while len(ends.keys() & tasks.keys()) < len(tasks):
        for _ in groups or ():  # as often as one may be in another
            for name, decide in (groups or {}).items():
                if end := decide(lambda each: ends.get(each, "")):
                    ends[name] = end
        told = {each for each, end in ends.items() if end != "failed" or each not in blocking}
        ready = [node for node in tasks.values() if node.label not in ends and told >= set(node.requires)]
        if not ready:
            assert told != ends.keys(), "a cycle"
            break
        for node in ready:
            if not runs(node, ends):
                ends[node.label] = "skipped"
            else:
                ends[node.label] = "failed" if node.label in failing else "completed"
    return {label: ends.get(label, "unscheduled") for label in tasks}


def runs(node: TaskNode, ends: Mapping[str, str]) -> bool:
    """Whether a task runs, all of whose requirements have ended."""
    heard = [ends[each] for each in node.requires if each not in node.optional]
    if node.when == "always":
        return True
    if node.when == "any-failed":
        return any(end in FAILED for end in heard)
    if node.when == "all-resolved":
        return "skipped" not in heard
    return all(end == "completed" for end in heard)


def blamed(tasks: Mapping[str, TaskNode], ends: Mapping[str, str], label: str) -> set[str]:
    """Labels that may be named as the first cause of a skip: above it, and failed or skipped by their own condition."""
    found: set[str] = set()
    seen: set[str] = set()
    todo = list(tasks[label].requires)
    while todo:
        each = todo.pop()
        if each not in seen:
            seen.add(each)
            if ends[each] != "completed":
                found.add(each)
            todo += tasks[each].requires
    return found
