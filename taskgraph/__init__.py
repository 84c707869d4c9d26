"""taskgraph: a task-graph scheduler that needs nothing but a storage account."""

__version__ = "0.1.0"
