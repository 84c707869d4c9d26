"""Azure Functions as a door: `bindings` says which functions there are and what triggers each; they call `door`."""

from taskgraph.interfaces.functions.bindings import Bindings, Trigger, read_bindings
from taskgraph.interfaces.functions.door import Door

__all__ = ["Bindings", "Door", "Trigger", "read_bindings"]
