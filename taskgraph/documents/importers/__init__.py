"""Graphs of other programs as documents of ours: one door, `import_graph`, and one module for each format.

An importer keeps the shape of a graph, and never executes a foreign command line: that is kept as information, and the
task is a `sleep` of its known runtime or a `noop`. Notes say what is left out or changed. The result has passed the
checks of any submission; a problem points at the place in the file that was read.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from taskgraph.documents.importers import neutral, taskcluster, wfformat
from taskgraph.documents.importers.shaping import Imported, unpacked
from taskgraph.documents.read import read_json
from taskgraph.model.errors import InvalidGraph, Problem

Format = Literal["neutral", "wfformat", "taskgraph"]

FORMATS: Mapping[str, str] = {
    "neutral": "tasks by label with requires, runtimeSeconds and command",
    "wfformat": "WfCommons WfFormat 1.4 and 1.5",
    "taskgraph": "full-task-graph.json or task-graph.json of Mozilla's taskgraph",
}


def import_graph(
    text: bytes,
    format: Format,  # noqa: A002 - the word that everybody uses
    *,
    source: str = "document",
    external: Literal["satisfied", "reject"] = "satisfied",
    executor: str = "noop",
    now: datetime | None = None,
    graph_id: str | None = None,
) -> Imported:
    """Read a graph in a foreign format, gzipped or not. Raises InvalidGraph with every problem.

    The keyword arguments matter for `taskgraph` alone. external: what to do with a dependency on a task that the file
    lacks. executor: of the imported payloads. now: from which relative dates count; without it they stay as they are.
    graph_id: the graph's future id, to resolve references inside longer strings.
    """
    if format not in FORMATS:
        known = ", ".join(FORMATS)
        problem = Problem("", "format", f"There is no format “{format}”.", f"Name one of {known}.")
        raise InvalidGraph([problem], source=source)
    obj = read_json(unpacked(text, source), source=source)
    if format == "neutral":
        return neutral.convert(obj, source=source)
    if format == "wfformat":
        return wfformat.convert(obj, source=source)
    options = taskcluster.Options(external=external, executor=executor, now=now, graph_id=graph_id)
    return taskcluster.convert(obj, source=source, options=options)
