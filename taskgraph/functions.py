"""The name under which a function app imports its door: `deploy/function_app.py` in apps that are deployed."""

from taskgraph.interfaces.functions import Bindings, Door, Trigger, read_bindings

__all__ = ["Bindings", "Door", "Trigger", "read_bindings"]
