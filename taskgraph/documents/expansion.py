"""Tasks that come of results: `foreach` over a list, or a graph, that another task hands on.

What stands in the document is one task of the executor `expand` in a group that grows. When it runs it has the results,
and extends its graph by the tasks that they come to, in that group (`expansion`).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from taskgraph.documents.foreach import CHOICE, RESERVED, Foreach
from taskgraph.documents.placeholders import objects_with
from taskgraph.documents.problems import Report
from taskgraph.documents.references import EXPAND
from taskgraph.documents.results import taking_key
from taskgraph.documents.schema_check import FILE, RESULT, named
from taskgraph.documents.subgraphs import label_of, nested
from taskgraph.model.errors import InvalidInput
from taskgraph.model.json_pointer import what_is

OF_EXPANDER: Final = ("when", "active", "notBefore")
"""Keys of a task that say when others are made of it."""


def expander_label(name: str) -> str:
    """Label of the task that makes the tasks of a group."""
    return f"{EXPAND} {name}"


def foreach_expander(foreach: Foreach, node: Mapping[str, Any]) -> dict[str, Any]:
    """The task that makes those of a `foreach` over results. node: that of each of them."""
    said = {"item": foreach.said} if RESULT in foreach.said else foreach.said
    values = {key: value for key, value in said.items() if key not in RESERVED}
    foreach.are_names(values)
    for key, value in values.items():
        if isinstance(value, dict) and value.keys() == {"files"}:
            values[key] = foreach.values(value, (*foreach.path, key))
    inside = {here[key] for here in _taking(node.get("task")) if isinstance(here[key := taking_key(here)], str)}
    requires = node.get("requires", ())
    kept = [each for each in requires if label_of(each) in inside] if isinstance(requires, list) else requires
    each = {key: value for key, value in node.items() if key not in OF_EXPANDER}
    chosen = {key: said[key] for key in CHOICE if key in said}
    made = _expander(foreach.name, node, {"values": values, **chosen})
    made["task"]["each"] = {**each, "requires": kept}
    return made


def graph_expander(name: str, node: Mapping[str, Any], graph: Any, result: str) -> dict[str, Any]:
    """The task that brings in a graph which is a result. result: the task in it whose output is that of all."""
    return _expander(name, node, {"graph": graph, **({"result": result} if result else {})})


def _expander(name: str, node: Mapping[str, Any], payload: Mapping[str, Any]) -> dict[str, Any]:
    """It requires what the node does, and the tasks whose results it takes."""
    wanted = node.get("requires", [])
    labels, _ = named(wanted)
    taken = dict.fromkeys(here[RESULT] for here in objects_with(RESULT, dict(payload)))
    if isinstance(wanted, list):
        wanted = [*wanted, *(each for each in taken if each not in labels)]
    task = node.get("task")
    place = {key: task[key] for key in ("target", "routing") if isinstance(task, dict) and key in task}
    return {
        **{key: node[key] for key in (*OF_EXPANDER, "priority") if key in node},
        "requires": wanted,
        "task": {"executor": EXPAND, **place, "payload": {"group": name, **payload}},
    }


def expansion(label: str, definition: Mapping[str, Any]) -> dict[str, Any]:
    """The extension that such a task makes; {} where its lists come to no task.

    label: its own. definition: with the results in it. Raises InvalidInput.
    """
    payload = definition.get("payload")
    group = payload.get("group") if isinstance(payload, Mapping) else None
    if not isinstance(payload, Mapping) or not isinstance(group, str):
        raise InvalidInput("payload.group must be the name of a group")
    if "graph" in payload:
        graph, result = payload["graph"], payload.get("result", "")
        if not isinstance(graph, Mapping):
            raise InvalidInput(f"“{group}” needs a graph, and the result is {what_is(graph)}")
        made = nested(group, graph)
        if result and f"{group}/{result}" not in made["tasks"]:
            raise InvalidInput(f"“{group}” hands on what “{result}” does, and the graph has no such task")
    else:
        made = _foreach(label, group, payload, definition.get("each"))
    tasks = made["tasks"]
    for task in tasks.values():
        wanted = task.get("requires", []) if isinstance(task, dict) else None
        if isinstance(wanted, list):
            named_here = [label_of(each) for each in wanted]
            if not any(isinstance(each, str) and each in tasks for each in named_here):
                task["requires"] = [label, *(each for each in wanted if label_of(each) != label)]
    return made if tasks else {}


def _foreach(label: str, group: str, payload: Mapping[str, Any], each: Any) -> dict[str, Any]:
    given = payload.get("values")
    if not isinstance(given, Mapping) or not isinstance(each, Mapping):
        raise InvalidInput("payload.values must be an object of lists, and `each` beside the payload a task")
    for name, value in given.items():
        if not isinstance(value, list):
            raise InvalidInput(f"“{group}” needs a list of {name}, and the result has {what_is(value)} there")
    said = {**given, **{key: payload[key] for key in CHOICE if key in payload}}
    report = Report(label)
    tasks = Foreach(group, said, ("payload",), report, {}).tasks(each, (), empty=True)
    if problems := report.problems():
        raise InvalidInput(f"{problems[0].message} {problems[0].remedy}")
    return {"tasks": tasks, "groups": {group: {"tasks": list(tasks)}}}


def _taking(task: Any) -> Iterator[Mapping[str, Any]]:
    """Objects in the payload of a task that take what another one hands on."""
    payload = task.get("payload") if isinstance(task, Mapping) else None
    for key in (RESULT, FILE):
        yield from objects_with(key, payload)
