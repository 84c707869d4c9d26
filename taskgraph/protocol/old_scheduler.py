"""What clients of the old TaskCluster scheduler call graphs and tasks, and the messages of its exchanges."""

import re
from collections.abc import Mapping
from typing import Any, Final

from taskgraph.model import schemas
from taskgraph.model.columns import Columns, object_of
from taskgraph.model.ids import task_id_of
from taskgraph.model.states import GraphState

SCHEDULER_ID: Final = "task-graph-scheduler"
"""What the old scheduler was called in production: clients may name it in their tasks."""

KEPT: Final = "taskcluster"
"""The parameter of a graph, and the key of a definition, with what only old clients know."""

SLUGID: Final = re.compile(schemas.schema("taskcluster")["$defs"]["slugid"]["pattern"])

_STATES: Final[Mapping[str, str]] = {
    GraphState.BLOCKED: "blocked",
    GraphState.CANCELLING: "blocked",
    GraphState.CANCELLED: "blocked",
    GraphState.FINISHED: "finished",
}
_EXCHANGES: Final = "exchange/taskcluster-scheduler/v1"
_NONE: Final = "_"
_OF_TASKS: Final = 6  # words of a routing key that only the queue's messages have: taskId to workerType
# Fact -> exchange, and the state in its message; "" for blocked or running, as the graph is when it is sent.
MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    "graph-running": ("task-graph-running", "running"),
    "graph-extended": ("task-graph-extended", ""),
    "graph-blocked": ("task-graph-blocked", "blocked"),
    "graph-cancelled": ("task-graph-blocked", "blocked"),
    "graph-finished": ("task-graph-finished", "finished"),
}


def shown_id(graph_id: str, label: str) -> str:
    """Of a task for old clients: its label, if that can be one, as it is for all that they submit."""
    return label if SLUGID.fullmatch(label) else task_id_of(graph_id, label)


def kept(graph: Columns) -> Mapping[str, Any]:
    """What only old clients know of a graph; empty of one that others have submitted.

    It has a `routing` if the graph was created by labels.
    """
    found = object_of(graph, "params").get(KEPT)
    return found if isinstance(found, dict) else {}


def state_of(graph: Columns) -> str:
    return _STATES.get(str(graph.get("state", "")), "running")


def status(graph_id: str, graph: Columns, state: str) -> dict[str, Any]:
    own = kept(graph)
    routing = {"routing": own["routing"]} if "routing" in own else {}
    return {"taskGraphId": graph_id, "schedulerId": SCHEDULER_ID, "state": state, **routing}


def message(graph_id: str, graph: Columns, fact: Mapping[str, Any]) -> dict[str, Any]:
    """What the exchange of a fact gets that `notices.graph_keys` names. graph: columns of the graph's row."""
    exchange, state = MESSAGES[str(fact.get("event"))]
    state = state or ("blocked" if state_of(graph) == "blocked" else "running")
    payload: dict[str, Any] = {"version": 1, "status": status(graph_id, graph, state)}
    if "label" in fact:
        payload["taskId"] = shown_id(graph_id, str(fact["label"]))
    routes = kept(graph).get("routes")
    return {
        "exchange": f"{_EXCHANGES}/{exchange}",
        "routingKey": ".".join(["primary", *[_NONE] * _OF_TASKS, SCHEDULER_ID, graph_id, _NONE]),
        "cc": [f"route.{each}" for each in routes] if isinstance(routes, list) else [],
        "payload": payload,
    }
