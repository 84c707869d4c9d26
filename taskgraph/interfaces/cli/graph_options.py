"""Options of `run` and `submit` about the document: which part of it becomes a graph, and with what."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from taskgraph.interfaces.cli import options
from taskgraph.interfaces.cli.common import read_graph
from taskgraph.model.errors import InvalidInput
from taskgraph.model.priorities import column_of_option
from taskgraph.model.states import FailurePolicy

if TYPE_CHECKING:
    from taskgraph.documents.nodes import GraphDocument


@dataclass(frozen=True)
class GraphOptions:
    """What is said of the graph beside its file."""

    param: options.ParamOption = None
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="LABEL",
            help="Only this task, group or pattern such as 'test/*', with all that it requires. May be repeated.",
        ),
    ] = None
    priority: options.PriorityOption = None
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going", help="Go on with what does not require a task that failed, to the end of the graph."
        ),
    ] = False
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Cancel the rest as soon as a task has failed for good.")
    ] = False
    strict: options.StrictOption = False
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Run tasks that have a cache in any case; later graphs use these runs.")
    ] = False

    def check_no_file(self) -> None:
        """Raise InvalidInput for what goes with a FILE, where there is none."""
        for name, given, why in (
            ("--param", self.param, "has its values"),
            ("--priority", self.priority, "has its own"),
            ("--only", self.only, "has its tasks"),
            ("--keep-going", self.keep_going, "has its failure policy"),
            ("--fail-fast", self.fail_fast, "has its failure policy"),
            ("--no-cache", self.no_cache, "is as it was submitted"),
        ):
            if given:
                raise InvalidInput(f"{name} goes with a FILE: a graph that exists {why}")

    def read(self, file: str) -> "tuple[GraphDocument, str]":
        """The document, and the name of its source. Raises InvalidGraph, InvalidInput."""
        level = None if self.priority is None else column_of_option(self.priority)
        if self.keep_going and self.fail_fast:
            raise InvalidInput("--keep-going or --fail-fast, not both")
        document, source = read_graph(file, params=self.param)
        if self.only:
            from taskgraph.documents.part import only

            document = only(document, self.only)
        if self.no_cache:
            document = document.without_cache()
        if level is not None:
            document = replace(document, priority=level)
        return self._with_policy(document), source

    def _with_policy(self, document: "GraphDocument") -> "GraphDocument":
        if self.keep_going:
            return replace(document, failure_policy=FailurePolicy.CONTINUE.value)
        if not self.fail_fast:
            return document
        if document.failure_policy == FailurePolicy.CONTINUE:
            raise InvalidInput(
                "--fail-fast does not go with failurePolicy: continue, as tasks may be there to run after failures"
            )
        return replace(document, failure_policy=FailurePolicy.FAIL_FAST.value)
