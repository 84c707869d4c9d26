"""A task that is a graph: its tasks become tasks of the graph around it, `NAME/LABEL`, in a group of its name."""

from collections.abc import Mapping
from typing import Any, Final

from taskgraph.documents.schema_check import FILE, RESULT, SUBS, SUBS_PREFIX

KEYS: Final = ("tasks", "groups", "defaults")
"""Of a graph in the place of a task."""


def label_of(requirement: Any) -> Any:
    """The label of a requirement, which may be optional."""
    return requirement.get("label") if isinstance(requirement, Mapping) else requirement


def nested(name: str, graph: Mapping[str, Any]) -> dict[str, Any]:
    """The tasks and groups of a graph under names that begin with that of the task which it stands for.

    Names that it does not have are those of the graph around it. What is of no right form stays, to be reported.
    """
    tasks, groups = (graph.get(key, {}) for key in ("tasks", "groups"))
    tasks, groups = tasks if isinstance(tasks, Mapping) else {}, groups if isinstance(groups, Mapping) else {}
    own = {each: f"{name}/{each}" for each in (*tasks, *groups)}
    made = {own[label]: renamed(node, own) for label, node in tasks.items()}
    inner = {own[each]: _group(group, own) for each, group in groups.items()}
    members = {each for group in inner.values() if isinstance(group, dict) for each in _texts(group.get("tasks"))}
    outermost = [each for each in (*made, *inner) if each not in members]
    rest = {key: graph[key] for key in KEYS[2:] if key in graph}
    return {**rest, "tasks": made, "groups": {**inner, **({name: {"tasks": outermost}} if made else {})}}


def renamed(node: Any, names: Mapping[str, str], *, taken: bool = False) -> Any:
    """A task with other names in what it requires and takes.

    names: the old one -> the new one. taken: in what it takes alone.
    """
    if not isinstance(node, Mapping):
        return node
    made = {key: _references(value, names) for key, value in node.items()}
    inner = node.get("graph")
    if isinstance(inner, Mapping) and isinstance(inner.get("tasks"), Mapping):
        own = {*inner["tasks"], *(inner["groups"] if isinstance(inner.get("groups"), Mapping) else ())}
        outer = {each: new for each, new in names.items() if each not in own}
        made["graph"] = {**inner, "tasks": {label: renamed(each, outer) for label, each in inner["tasks"].items()}}
    if isinstance(node.get("requires"), list) and not taken:
        made["requires"] = [_requirement(each, names) for each in node["requires"]]
    return made


def _requirement(each: Any, names: Mapping[str, str]) -> Any:
    if isinstance(each, Mapping):
        return {**each, "label": _name(each.get("label"), names)}
    return _name(each, names)


def _name(each: Any, names: Mapping[str, str]) -> Any:
    return names.get(each, each) if isinstance(each, str) else each


def _group(group: Any, names: Mapping[str, str]) -> Any:
    if not isinstance(group, Mapping):
        return group
    listed = {key: group[key] for key in ("tasks", "requires") if isinstance(group.get(key), list)}
    return {**group, **{key: [_name(each, names) for each in value] for key, value in listed.items()}}


def _texts(listed: Any) -> list[str]:
    return [each for each in listed if isinstance(each, str)] if isinstance(listed, list) else []


def _references(value: Any, names: Mapping[str, str]) -> Any:
    """With the new names in objects that stand for what a task hands on, or for its id."""
    if isinstance(value, list):
        return [_references(each, names) for each in value]
    if not isinstance(value, Mapping):
        return value
    for key in (RESULT, FILE):
        if isinstance(value.get(key), str):
            return {**value, key: names.get(value[key], value[key])}
    said = value.get(SUBS)
    if isinstance(said, str) and said.startswith(SUBS_PREFIX):
        label = said.removeprefix(SUBS_PREFIX)
        return {**value, SUBS: f"{SUBS_PREFIX}{names.get(label, label)}"}
    return {key: _references(each, names) for key, each in value.items()}
