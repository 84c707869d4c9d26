"""References between tasks inside of payloads: which tasks a payload names, and putting ids in their places."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from taskgraph.documents import graph_algorithms
from taskgraph.documents import groups as grouping
from taskgraph.documents import results as outputs
from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.documents.results import taking_key
from taskgraph.documents.schema_check import FILE, RESULT, SUBS, SUBS_PREFIX
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput
from taskgraph.model.ids import is_task_id
from taskgraph.model.json_strict import Path

EXPAND: Final = "expand"
"""The executor that extends its graph by tasks of results (`expansion`)."""

BUILT_IN_EXECUTORS: Final = frozenset({"command", "docker", EXPAND, "http", "kubernetes", "noop", "python", "sleep"})
SUBS_KEY: Final = f'"{SUBS}"'  # in JSON; a text that lacks them has nothing to be replaced
RESULT_KEY: Final = f'"{RESULT}"'
FILE_KEY: Final = f'"{FILE}"'
_LABELS_AT_ONCE: Final = 2_048  # bits of the numbers that say which labels a task requires
STAND_IN: Final = "x" * 22  # as long as a taskId


def reference_objects(payload: Any) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Every object with a key `$subs`, `$result` or `$file` inside, with its place; nothing below one is looked at."""
    stack: list[tuple[Path, Any]] = [((), payload)] if isinstance(payload, Mapping | list | tuple) else []
    while stack:
        path, here = stack.pop()
        if isinstance(here, Mapping) and (SUBS in here or taking_key(here)):
            yield path, here
            continue
        members = list(here.items() if isinstance(here, Mapping) else enumerate(here))
        stack += [
            ((*path, token), member)
            for token, member in reversed(members)
            if isinstance(member, Mapping | list | tuple)
        ]


def without_requirement(
    asked: Mapping[str, Sequence[str]], requirements: Mapping[str, Sequence[str]]
) -> dict[str, set[str]]:
    """Of the labels that each task asks for, those that it does not require, directly or not.

    requirements: of every task and every end of a group (`groups.circles`). Many labels at once are bits of one number.
    """
    left = {
        label: {used for used in wanted if used not in requirements.get(label, ())} for label, wanted in asked.items()
    }
    open_labels = list(dict.fromkeys(used for wanted in left.values() for used in wanted))
    if not open_labels:
        return {}
    order = list(graph_algorithms.levels(requirements))  # without labels on a cycle, or behind one
    for start in range(0, len(open_labels), _LABELS_AT_ONCE):
        bits = {used: 1 << number for number, used in enumerate(open_labels[start : start + _LABELS_AT_ONCE])}
        reached: dict[str, int] = {}
        for label in order:
            mask = 0
            for required in requirements[label]:
                mask |= reached.get(required, 0) | bits.get(required, 0)
            if mask:
                reached[label] = mask
        for label, wanted in left.items():
            mask = reached.get(label, 0)
            wanted.difference_update([used for used in wanted if mask & bits.get(used, 0)])
    return {label: wanted for label, wanted in left.items() if wanted}


def references(node: TaskNode) -> frozenset[str]:
    return frozenset(
        named_by.removeprefix(SUBS_PREFIX) if key == SUBS else named_by
        for _, here in reference_objects(node.task.get("payload"))
        for key in (SUBS, RESULT, FILE)
        if isinstance(named_by := here.get(key), str)
    )


def results_without_requirement(document: GraphDocument) -> dict[str, set[str]]:
    """Label -> labels whose outputs it takes, and which nothing in the document makes it wait for."""
    asked: dict[str, list[str]] = {}
    for label, node in document.tasks.items():
        objects = [here for _, here in reference_objects(node.task.get("payload"))]
        taken = [here[key] for here in objects if (key := taking_key(here))]
        if taken:
            asked[label] = [grouping.done(used, document.groups) for used in taken if isinstance(used, str)]
    if not asked:
        return {}
    requirements: dict[str, Sequence[str]] = {label: node.requires for label, node in document.tasks.items()}
    if document.groups:
        requirements = grouping.circles(requirements, document.groups, certain=True)
    missing = without_requirement(asked, requirements)
    return {label: set(map(grouping.name_of, names)) for label, names in missing.items()}


def external_labels(document: GraphDocument) -> frozenset[str]:
    """Names in requirements and references that the document does not hold; empty for a graph."""
    named: set[str] = set()
    for node in document.tasks.values():
        named.update(node.requires)
        named.update(references(node))
    for group in document.groups.values():
        named.update(group.requires)
    return frozenset(named.difference(document.tasks, document.groups))


def expanded_group(definition: Mapping[str, Any]) -> str:
    """The group that a task of this definition fills; "" where it fills none."""
    payload = definition.get("payload") if definition.get("executor") == EXPAND else None
    group = payload.get("group") if isinstance(payload, Mapping) else None
    return group if isinstance(group, str) else ""


def promised(tasks: Mapping[str, Any]) -> dict[str, str]:
    """Label of a task that a graph in a result is to have -> label of the task that brings it in.

    tasks: of a document.
    """
    found = {}
    for label, node in tasks.items():
        task = node.get("task") if isinstance(node, dict) else None
        if isinstance(task, dict) and "executor" in task and (group := expanded_group(task)):
            result = task["payload"].get("result")
            if isinstance(result, str):
                found[f"{group}/{result}"] = label
    return found


def substitute(task: Mapping[str, Any], resolve: Callable[[str], str], *, lenient: bool = False) -> dict[str, Any]:
    """A definition with the taskIds that resolve gives for the labels of references in its payload.

    What resolve raises passes through. Raises InvalidInput for what is no valid reference, or, if lenient, leaves it.
    """
    if "payload" not in task:
        return dict(task)
    return {**task, "payload": _replaced(task["payload"], resolve, lenient, limits.DOCUMENT_DEPTH_MAX)}


def _replaced(value: Any, resolve: Callable[[str], str], lenient: bool, depth_left: int) -> Any:
    if isinstance(value, Mapping | list | tuple) and depth_left <= 0:
        raise InvalidInput(f"A payload is nested more than {limits.DOCUMENT_DEPTH_MAX} deep.")
    if isinstance(value, Mapping):
        if (key := taking_key(value)) and not outputs.wrong_form(value):
            return outputs.stored(value, resolve(value[key]))
        if SUBS in value:
            name = value[SUBS]
            if len(value) == 1 and isinstance(name, str) and name.startswith(SUBS_PREFIX):
                return resolve(name.removeprefix(SUBS_PREFIX))
            if not lenient:
                raise InvalidInput('A `$subs` object is not of the form {"$subs": "taskId:<label>"}.')
        return {key: _replaced(member, resolve, lenient, depth_left - 1) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(member, resolve, lenient, depth_left - 1) for member in value]
    return value


def labelled(task: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """A definition as `substitute` left it, with labels in its references again. labels: of the graph, by taskId."""

    def named(value: Any) -> Any:
        match value:
            case str() if value in labels:
                return {SUBS: f"{SUBS_PREFIX}{labels[value]}"}
            case Mapping():
                key = taking_key(value)
                if key and isinstance(own := value[key], str) and is_task_id(own) and "label" in value:
                    rest = {name: each for name, each in value.items() if name not in (key, "label")}
                    return {key: labels.get(own, value["label"]), **rest}  # a task that is to come has no row yet
                return {name: named(each) for name, each in value.items()}
            case list():
                return [named(each) for each in value]
            case _:
                return value

    return {**task, "payload": named(task["payload"])} if "payload" in task else dict(task)
