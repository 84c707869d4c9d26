"""A call of an old client as a method gets it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from taskgraph.interfaces.app import App
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.taskcluster import scopes
from taskgraph.interfaces.taskcluster.errors import CallError
from taskgraph.interfaces.taskcluster.hawk import Sender

Json = dict[str, Any]

SCHEDULER_ID: Final = "task-graph-scheduler"
"""What the old scheduler was called in production: clients may name it in their tasks."""


@dataclass(frozen=True, slots=True)
class Call:
    """body: the JSON value that was sent, None for none."""

    asked: Asked
    body: Any
    sender: Sender

    @property
    def app(self) -> App:
        return self.asked.app

    @property
    def path(self) -> Mapping[str, str]:
        return self.asked.path

    def demand(self, wanted: Sequence[str]) -> None:
        """Raise CallError unless its sender has all these scopes."""
        if missing := scopes.missing(self.sender.scopes, wanted):
            info = f"{self.asked.who.name} lacks {', '.join(missing)}"
            raise CallError(401, "Authorization Failed", {"info": info, "scopesets": [list(wanted)]})

    def demand_graph(self, graph_id: str) -> None:
        """Raise CallError unless its sender's token is for this graph."""
        if not self.asked.who.is_for(graph_id):
            info = f"the token {self.asked.who.name} is for graphs {', '.join(self.asked.who.graphs)} alone"
            raise CallError(401, "Authorization Failed", {"info": info, "scopesets": []})
