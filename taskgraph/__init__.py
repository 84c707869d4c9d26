"""taskgraph: a task-graph scheduler that needs nothing but a storage account.

Importing it imports nothing else, not even `typing`: each public name comes from its module when it is first used.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from taskgraph.interfaces.client.calls import task
    from taskgraph.interfaces.client.client import Client
    from taskgraph.interfaces.client.graph import Graph
    from taskgraph.interfaces.client.sync import SyncClient
    from taskgraph.interfaces.client.tasks import Group, Task
    from taskgraph.interfaces.operations.changes import StalePlan
    from taskgraph.model.errors import (
        InvalidGraph,
        InvalidInput,
        NotFound,
        Problem,
        Refused,
        StorageUnavailable,
        TaskgraphError,
    )
    from taskgraph.model.states import GraphState, TaskState
    from taskgraph.worker.executors import Executor, Outcome, Registry, TemporaryFailure, Work, WriteLog

__version__ = "0.4.0"

__all__ = [
    "Client",
    "Executor",
    "Graph",
    "GraphState",
    "Group",
    "InvalidGraph",
    "InvalidInput",
    "NotFound",
    "Outcome",
    "Problem",
    "Refused",
    "Registry",
    "StalePlan",
    "StorageUnavailable",
    "SyncClient",
    "Task",
    "TaskState",
    "TaskgraphError",
    "TemporaryFailure",
    "Work",
    "WriteLog",
    "__version__",
    "task",
]

_MODULES = {
    name: module
    for module, names in {
        "interfaces.client.calls": ("task",),
        "interfaces.client.client": ("Client",),
        "interfaces.client.graph": ("Graph",),
        "interfaces.client.sync": ("SyncClient",),
        "interfaces.client.tasks": ("Group", "Task"),
        "interfaces.operations.changes": ("StalePlan",),
        "model.errors": (
            *("InvalidGraph", "InvalidInput", "NotFound", "Problem", "Refused"),
            *("StorageUnavailable", "TaskgraphError"),
        ),
        "model.states": ("GraphState", "TaskState"),
        "worker.executors": ("Executor", "Outcome", "Registry", "TemporaryFailure", "Work", "WriteLog"),
    }.items()
    for name in names
}


def __getattr__(name: str) -> "Any":
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
