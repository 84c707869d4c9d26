"""OpenLineage events: a job for the graph and for each task, a run of it for each run, and the files that it has left.

Ids of runs are made of the graph, the task and the number of the run, so that a graph that is exported again gives the
same events. A job has the name of the graph, or its id if it has none: so graphs of one name are runs of one job.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from taskgraph import __version__
from taskgraph.interfaces.operations.files import TaskFile
from taskgraph.model.columns import Columns, object_of
from taskgraph.model.states import GraphState
from taskgraph.queries.timeline import RunSpan, Timeline

_PRODUCER: Final = f"urn:taskgraph:{__version__}"
_NAMESPACE: Final = "taskgraph"
_SPEC: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS: Final = "https://openlineage.io/spec/facets"
_UUIDS: Final = uuid.UUID("6f0c3f5e-6a3c-5d5b-9b0e-0d1f6f1f5a11")  # of our own, for ids of runs
_ENDS: Final[Mapping[str, str]] = {"completed": "COMPLETE", "failed": "FAIL"}  # all else ended without an answer


def events_of(graph: Columns, found: Timeline, files: Sequence[TaskFile]) -> Iterator[dict[str, Any]]:
    """By time. graph: the columns of its row. files: of its tasks."""
    name = str(object_of(graph, "metadata").get("name") or found.graph_id)
    whole = {"run": {"runId": _run_id(found.graph_id)}, "job": {"namespace": _NAMESPACE, "name": name}}
    left: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for each in files:
        place = {"namespace": f"{_NAMESPACE}://{found.graph_id}", "name": f"{each.label}/{each.file.path}"}
        left.setdefault((each.task_id, each.run), []).append(place)
    timed: list[tuple[datetime, dict[str, Any]]] = [(found.since, _event("START", found.since, whole, "DAG"))]
    for span in found.runs:
        run = _of_run(found.graph_id, name, span, whole)
        timed.append((span.started, _event("START", span.started, run, "TASK")))
        if span.ended is not None:
            outputs = left.get((span.task_id, span.run), ())
            kind = _ENDS.get(span.outcome, "ABORT")
            timed.append((span.ended, _event(kind, span.ended, run, "TASK", outputs)))
    if end := _end_of(found):
        timed.append((found.until, _event(end, found.until, whole, "DAG")))
    yield from (event for _, event in sorted(timed, key=lambda each: each[0]))


def _end_of(found: Timeline) -> str:
    if found.state == GraphState.CANCELLED:
        return "ABORT"
    if found.state != GraphState.FINISHED:
        return ""
    latest = {span.task_id: span.outcome for span in found.runs}
    return "FAIL" if "failed" in latest.values() else "COMPLETE"


def _of_run(graph_id: str, name: str, span: RunSpan, whole: Mapping[str, Any]) -> dict[str, Any]:
    parent = {**_facet("1-1-0/ParentRunFacet.json"), **whole}
    run = {"runId": _run_id(graph_id, span.task_id, str(span.run)), "facets": {"parent": parent}}
    return {"run": run, "job": {"namespace": _NAMESPACE, "name": f"{name}.{span.label}"}}


def _event(
    kind: str, time: datetime, of: Mapping[str, Any], job_type: str, outputs: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    about = {"processingType": "BATCH", "integration": "TASKGRAPH", "jobType": job_type}
    return {
        "eventType": kind,
        "eventTime": time.isoformat(),
        "producer": _PRODUCER,
        "schemaURL": _SPEC,
        "run": of["run"],
        "job": {**of["job"], "facets": {"jobType": {**_facet("2-0-3/JobTypeJobFacet.json"), **about}}},
        "inputs": [],
        "outputs": list(outputs),
    }


def _facet(schema: str) -> dict[str, str]:
    return {"_producer": _PRODUCER, "_schemaURL": f"{_FACETS}/{schema}"}


def _run_id(*parts: str) -> str:
    return str(uuid.uuid5(_UUIDS, "\0".join(parts)))
