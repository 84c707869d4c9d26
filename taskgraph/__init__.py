"""taskgraph: a task-graph scheduler that needs nothing but a storage account.

What this room is for: the public names and the version. Importing it imports nothing else: each name comes from its
module when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskgraph.interfaces.client.client import Client, SyncClient
    from taskgraph.interfaces.client.graph import Graph
    from taskgraph.interfaces.client.tasks import Group, Task
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
    from taskgraph.worker.executors import Registry, TemporaryFailure

__version__ = "0.4.0"

__all__ = [
    "Client",
    "Graph",
    "GraphState",
    "Group",
    "InvalidGraph",
    "InvalidInput",
    "NotFound",
    "Problem",
    "Refused",
    "Registry",
    "StorageUnavailable",
    "SyncClient",
    "Task",
    "TaskState",
    "TaskgraphError",
    "TemporaryFailure",
    "__version__",
]

_MODULES = {
    "Client": "interfaces.client.client",
    "Graph": "interfaces.client.graph",
    "GraphState": "model.states",
    "Group": "interfaces.client.tasks",
    "InvalidGraph": "model.errors",
    "InvalidInput": "model.errors",
    "NotFound": "model.errors",
    "Problem": "model.errors",
    "Refused": "model.errors",
    "Registry": "worker.executors",
    "StorageUnavailable": "model.errors",
    "SyncClient": "interfaces.client.client",
    "Task": "interfaces.client.tasks",
    "TaskState": "model.states",
    "TaskgraphError": "model.errors",
    "TemporaryFailure": "worker.executors",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
