"""Graphs of other programs as documents of ours: one door, `import_graph`, and one module for each format.

An importer keeps the shape of a graph, and executes a foreign command line only where that is asked for: else it is
kept as information, and the task is a `sleep` of its known runtime or a `noop`. Notes say what is left out or changed.
The result has passed the checks of any submission; a problem points at the place in the file that was read.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from importlib import import_module
from typing import Final, Literal

from taskgraph.documents.importers import neutral, taskcluster, wfformat
from taskgraph.documents.importers.shaping import Foreign, Imported, unpacked
from taskgraph.documents.read import read_json
from taskgraph.model.errors import InvalidGraph, Problem

Format = Literal[
    "neutral",
    "wfformat",
    "taskgraph",
    "dagman",
    "github-actions",
    "gitlab-ci",
    "make",
    "ninja",
    "airflow",
    "argo",
    "snakemake",
]

FORMATS: Mapping[str, str] = {
    "neutral": "tasks by label with requires, runtimeSeconds and command",
    "wfformat": "WfCommons WfFormat 1.4 and 1.5",
    "taskgraph": "full-task-graph.json or task-graph.json of Mozilla's taskgraph",
    "dagman": "a DAG file of HTCondor's DAGMan",
    "github-actions": "a workflow of GitHub Actions",
    "gitlab-ci": ".gitlab-ci.yml",
    "make": "what `LC_ALL=C make -pn GOAL` prints",
    "ninja": "build.ninja",
    "airflow": "a DAG of Airflow: serialized JSON, DOT, or a file whose tasks stand there plainly",
    "argo": "a Workflow, WorkflowTemplate or CronWorkflow of Argo",
    "snakemake": "what `snakemake --dag` prints",
}

# Those that read a JSON value; each of the others reads a text by a module of its name.
_OF_JSON: Final = frozenset({"neutral", "wfformat", "taskgraph"})
_OF_GOALS: Final = frozenset({"airflow", "argo", "make", "ninja"})
_OF_COMMANDS: Final = frozenset({"make", "ninja"})


def import_graph(
    text: bytes,
    format: Format,  # noqa: A002 - the word that everybody uses
    *,
    source: str = "document",
    external: Literal["satisfied", "reject"] = "satisfied",
    executor: str = "noop",
    now: datetime | None = None,
    graph_id: str | None = None,
    goals: tuple[str, ...] = (),
    commands: bool = False,
    beside: Callable[[str], str | None] = lambda _: None,
) -> Imported:
    """Read a graph in a foreign format, gzipped or not. Raises InvalidGraph with every problem.

    external, executor, now and graph_id matter for `taskgraph` alone. external: what to do with a dependency on a task
    that the file lacks. executor: of the imported payloads. now: from which relative dates count; without it they stay
    as they are. graph_id: the graph's future id, to resolve references inside longer strings.

    goals: targets of make or Ninja, the template of Argo to begin with, the DAG of a file of Airflow. commands: whether
    tasks run what make or Ninja would. beside: the text of a file that is included, by its path from the folder of this
    one; None where there is none.
    """
    problems = []
    if format not in FORMATS:
        known = ", ".join(FORMATS)
        problems.append(Problem("", "format", f"There is no format “{format}”.", f"Name one of {known}."))
    elif goals and format not in _OF_GOALS:
        known = ", ".join(sorted(_OF_GOALS))
        problems.append(Problem("", "goal", f"A graph of “{format}” has no goals.", f"Goals are for {known}."))
    elif commands and format not in _OF_COMMANDS:
        message = f"The commands of “{format}” are not complete by themselves."
        problems.append(Problem("", "commands", message, "Only those of make and Ninja can be run."))
    if problems:
        raise InvalidGraph(problems, source=source)
    data = unpacked(text, source)
    if format not in _OF_JSON:
        # Imported when it is asked for: all of them together take longer than what a server is started with.
        convert: Callable[[Foreign], Imported] = import_module(f"{__name__}.{format.replace('-', '_')}").convert
        return convert(Foreign(_decoded(data, source), source, goals, commands, beside))
    obj = read_json(data, source=source)
    if format == "neutral":
        return neutral.convert(obj, source=source)
    if format == "wfformat":
        return wfformat.convert(obj, source=source)
    options = taskcluster.Options(external=external, executor=executor, now=now, graph_id=graph_id)
    return taskcluster.convert(obj, source=source, options=options)


def _decoded(data: bytes, source: str) -> str:
    """The text; bytes that are no UTF-8, which other programs take in names and comments, are replaced."""
    if b"\0" in data:
        problem = Problem("", "encoding", "The file is no text.", "Choose the file that the other program reads.")
        raise InvalidGraph([problem], source=source)
    return data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
