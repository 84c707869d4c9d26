"""A call of an old client as a method gets it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from taskgraph.interfaces.app import App
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.taskcluster import scopes
from taskgraph.interfaces.taskcluster.errors import CallError
from taskgraph.interfaces.taskcluster.hawk import Sender

Json = dict[str, Any]

BASE: Final = "/v1"


@dataclass(frozen=True, slots=True)
class Call:
    """body: the JSON value that was sent, None for none. notify: of graphs that are created."""

    asked: Asked
    body: Any
    sender: Sender
    notify: Mapping[str, Any]

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
        """Raise CallError for a graph that its token is not for."""
        if not self.asked.who.is_for(graph_id):
            self._refuse("graphs", self.asked.who.graphs)

    def demand_target(self, target: str) -> None:
        """Raise CallError for a target that its token is not for."""
        if not self.asked.who.takes_of(target):
            self._refuse("targets", self.asked.who.targets)

    def demand_all_graphs(self) -> None:
        """Raise CallError for a token that is for some graphs alone."""
        if self.asked.who.graphs:
            self._refuse("graphs", self.asked.who.graphs)

    def _refuse(self, what: str, names: Sequence[str]) -> NoReturn:
        info = f"the token {self.asked.who.name} is for {what} {', '.join(names)} alone"
        raise CallError(401, "Authorization Failed", {"info": info, "scopesets": []})
