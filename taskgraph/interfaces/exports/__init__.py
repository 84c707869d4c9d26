"""A stored graph for other programs: one door, `export`, and a module for each format that is not our own document.

A document (json, yaml), a picture (dot, mermaid) and WfFormat hold the tasks as they stand in the store now; WfFormat,
trace and openlineage hold the runs, as rows know them.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from taskgraph.interfaces.app import App
from taskgraph.model.errors import InvalidInput

JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Format:
    """about: a line of help. write: the text, which ends with a line break."""

    media_type: str
    about: str
    write: Callable[[App, str], Awaitable[str]]


async def export(app: App, graph_id: str, to: str) -> str:
    """Raises InvalidInput for a format that there is not, NotFound, and Refused while the rows come or go."""
    if to not in FORMATS:
        raise InvalidInput(f"there is no format “{to}”; name one of {', '.join(FORMATS)}")
    return await FORMATS[to].write(app, graph_id)


async def _json(app: App, graph_id: str) -> str:
    from taskgraph.interfaces.operations import document

    return _text((await document.stored(app, graph_id)).to_dict(), indent=2)


async def _yaml(app: App, graph_id: str) -> str:
    from taskgraph.interfaces.exports.yaml_document import yaml_of
    from taskgraph.interfaces.operations import document

    return yaml_of((await document.stored(app, graph_id)).to_dict())


async def _dot(app: App, graph_id: str) -> str:
    from taskgraph.documents.plan import to_dot
    from taskgraph.interfaces.operations import document

    return to_dot((await document.stored(app, graph_id)).document)


async def _mermaid(app: App, graph_id: str) -> str:
    from taskgraph.documents.plan import to_mermaid
    from taskgraph.interfaces.operations import document

    return to_mermaid((await document.stored(app, graph_id)).document)


async def _wfformat(app: App, graph_id: str) -> str:
    from taskgraph.interfaces.exports.wfformat import wfformat_of
    from taskgraph.interfaces.operations import document

    stored = await document.stored(app, graph_id)
    return _text(wfformat_of(stored.document, await app.queries.timeline(graph_id)), indent=2)


async def _trace(app: App, graph_id: str) -> str:
    from taskgraph.interfaces.exports.trace_events import trace_of

    return _text(trace_of(await app.queries.timeline(graph_id)))


async def _openlineage(app: App, graph_id: str) -> str:
    from taskgraph.interfaces.exports.openlineage import events_of
    from taskgraph.interfaces.operations import files

    graph = await app.queries.graph_row(graph_id)
    found = await app.queries.timeline(graph_id)
    return "".join(map(_text, events_of(graph.columns, found, await files.find(app, graph_id))))


def _text(value: Any, indent: int | None = None) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, indent=indent) + "\n"


FORMATS: Final[Mapping[str, Format]] = {
    "json": Format(JSON, "the document, which submit takes again", _json),
    "yaml": Format("application/yaml", "the same as YAML", _yaml),
    "dot": Format("text/vnd.graphviz", "a picture for Graphviz", _dot),
    "mermaid": Format("text/plain", "a flowchart for Markdown", _mermaid),
    "wfformat": Format(JSON, "WfFormat 1.5 of WfCommons, with the times that were measured", _wfformat),
    "trace": Format(JSON, "all runs as trace events, for https://ui.perfetto.dev", _trace),
    "openlineage": Format("application/x-ndjson", "OpenLineage events of the graph and of each run", _openlineage),
}
