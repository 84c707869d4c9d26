"""What tests of importers ask of a graph: who requires what, and where a bad file is wrong."""

from typing import Any

import pytest

from taskgraph.documents.importers import Format, import_graph
from taskgraph.documents.importers.shaping import Imported
from taskgraph.model.errors import InvalidGraph


def read(format_: Format, text: str, **options: Any) -> Imported:
    return import_graph(text.encode(), format_, **options)


def shape(graph: Imported) -> dict[str, set[str]]:
    """Requirements as they are written: labels, and names of groups."""
    return {label: set(node.requires) for label, node in graph.document.tasks.items()}


def payload(graph: Imported, label: str) -> Any:
    return graph.document.tasks[label].task["payload"]


def wrong(format_: Format, text: str, **options: Any) -> list[tuple[str, int | None]]:
    """The code and the line of each problem."""
    with pytest.raises(InvalidGraph) as caught:
        read(format_, text, **options)
    assert all(problem.remedy for problem in caught.value.problems)
    return [(problem.code, problem.line) for problem in caught.value.problems]
