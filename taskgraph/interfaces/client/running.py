"""What `Client.run` looks at before it submits a graph."""

from collections.abc import Collection, Mapping
from typing import Any

from taskgraph.documents.nodes import GraphDocument
from taskgraph.interfaces.operations.checks import CannotRun, check_all_can_run
from taskgraph.model.placement import Offer, target_of
from taskgraph.worker.executors import Executors


def check_callables(document: GraphDocument, executors: Executors, targets: Collection[str]) -> None:
    """Raise InvalidGraph with every task that a worker of this process, for these targets, could not run."""
    offer = Offer()

    def why_not(task: Mapping[str, Any]) -> CannotRun | None:
        if (reason := executors.why_not(task)) is not None:
            return CannotRun(reason, "Pass what it calls in `callables`, or name an executor of this process.")
        if (reason := offer.why_not(task)) is not None:
            return CannotRun(reason, "Submit the graph, and start a worker that has what it asks for.")
        if (target := target_of(task)) not in targets:
            return CannotRun(f"it goes to the target {target}", "Name it in `targets`, too.", "target")
        return None

    check_all_can_run(document, "graph", why_not)
