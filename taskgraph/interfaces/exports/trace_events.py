"""A timeline as a trace of the Trace Event Format, for Perfetto and the browsers' own viewers."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from taskgraph.queries.timeline import RunSpan, Timeline


def trace_of(found: Timeline) -> dict[str, Any]:
    """A process for each worker, with as many threads as it ran tasks at once; times in microseconds from the start."""

    def micros(moment: datetime) -> int:
        return round((moment - found.since).total_seconds() * 1e6)

    events: list[dict[str, Any]] = []
    workers = {worker: number for number, worker in enumerate(dict.fromkeys(span.worker for span in found.runs), 1)}
    events += [_named("process_name", number, 0, worker or "unknown worker") for worker, number in workers.items()]
    for span, lane in _lanes(found):
        begin = micros(span.started)
        events.append(
            {
                "name": span.label,
                "cat": span.outcome,
                "ph": "X",
                "ts": begin,
                "dur": max(0, micros(span.ended or found.until) - begin),
                "pid": workers[span.worker],
                "tid": lane,
                "args": {"taskId": span.task_id, "run": span.run, "outcome": span.outcome},
            }
        )
    about = {"graphId": found.graph_id, "state": found.state, "started": found.since.isoformat()}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _named(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _lanes(found: Timeline) -> Iterator[tuple[RunSpan, int]]:
    """Each run with the first lane of its worker that is free then."""
    busy: dict[str, list[datetime]] = {}
    for span in found.runs:
        lanes = busy.setdefault(span.worker, [])
        until = span.ended or found.until
        free = next((number for number, end in enumerate(lanes) if end <= span.started), len(lanes))
        lanes[free : free + 1] = [until]
        yield span, free + 1
