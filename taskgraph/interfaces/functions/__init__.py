"""Azure Functions as a door: what the function app in `deploy/` calls, and a small host to try it here.

What this room is for: `bindings` says which functions there are and what triggers each; `door` is what they call.
`host` behaves as the Functions host does towards queues and timers, and drives Microsoft's own Python worker
(`worker_main`) in an environment of its own (`environment`). It never contains a rule about tasks, and nothing of it
is needed where handlers run by `taskgraph serve`.
"""

from taskgraph.interfaces.functions.bindings import Bindings, Trigger, read_bindings
from taskgraph.interfaces.functions.door import Door

__all__ = ["Bindings", "Door", "Trigger", "read_bindings"]
