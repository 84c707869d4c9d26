"""Routes that only look: at the store, at graphs, and at their tasks."""

import re
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from taskgraph.interfaces import exports, views
from taskgraph.interfaces.http import paging
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.http.problems import Problem
from taskgraph.interfaces.operations import cost as costs
from taskgraph.interfaces.operations import doctor as examining
from taskgraph.interfaces.operations import document as documents
from taskgraph.interfaces.operations import files, limit, logs, notify, workers
from taskgraph.interfaces.telemetry.setup import version
from taskgraph.model import limits
from taskgraph.model.errors import NotFound
from taskgraph.model.schemas import parse_date_time
from taskgraph.queries.values import GraphsWanted, Listing
from taskgraph.storage.logs import size_of
from taskgraph.storage.tables import Row

_GRAPH_KEY: Final = r"[0-9]{15}:[A-Za-z0-9_-]{1,64}"
_TASK_KEY: Final = r"task:[A-Za-z0-9_-]{22}"
_ROW_KEY: Final = r"[A-Za-z0-9:_-]{1,200}"
_PAGES_MAX: Final = 5  # of the index, that a list of graphs reads at once
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_LOG_BYTES_MAX: Final = 1 << 20
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_LOG_TYPE: Final = "text/plain; charset=utf-8"


async def capabilities(asked: Asked) -> Any:
    return views.capabilities(version())


async def health(asked: Asked) -> Any:
    await asked.app.queries.last_id()
    return views.health()


async def metrics(asked: Asked) -> Response:
    found = asked.app.telemetry.exposed()
    if found is None:
        remedy = "pip install 'taskgraph-scheduler[prometheus]', and start it with OTEL_METRICS_EXPORTER=prometheus"
        raise Problem(404, "no-metrics", f"this server keeps no metrics to be read: {remedy}")
    return Response(found, media_type=_METRICS_TYPE)


async def graphs(asked: Asked) -> Response:
    query = asked.query
    tags = [each.partition("=") for each in query["tag"]]
    wanted = GraphsWanted(
        query["state"] or "",
        query["name"] or "",
        {key: value if equals else None for key, equals, value in tags},
        _time(asked, "since"),
        _time(asked, "until"),
        asked.who.graphs,
    )
    found, after = await asked.app.queries.graphs_after(
        paging.after(asked, _GRAPH_KEY),
        limit=query["limit"],
        schedule=query["schedule"] or "",
        wanted=wanted,
        counted=True,
        pages_max=_PAGES_MAX,
    )
    return JSONResponse(views.graphs(found), headers=paging.links(asked, after))


def _time(asked: Asked, name: str) -> datetime | None:
    text = asked.query[name]
    try:
        return None if text is None else parse_date_time(text)
    except ValueError as error:
        raise Problem(400, "invalid-query", f"{name}: write a time such as 2026-08-01T06:00:00Z") from error


async def status(asked: Asked) -> Any:
    return views.graph_status(await asked.app.queries.status(asked.graph))


async def document(asked: Asked) -> Any:
    return views.stored_document(await documents.stored(asked.app, asked.graph))


async def results(asked: Asked) -> Any:
    return await asked.app.queries.results(asked.graph)


async def group(asked: Asked) -> Any:
    return views.group_status(await asked.app.queries.group(asked.graph, asked.path["group"]))


async def limits_of(asked: Asked) -> Any:
    return views.limits(asked.graph, await asked.app.queries.limits_of(asked.graph))


async def channels(asked: Asked) -> Any:
    found, _ = await notify.channels(asked.app, asked.graph)
    return views.channels(asked.graph, found)


async def timeline(asked: Asked) -> Any:
    return views.timeline(await asked.app.queries.timeline(asked.graph))


async def cost(asked: Asked) -> Any:
    return costs.answer(await costs.of_graph(asked.app, asked.graph))


async def prices(asked: Asked) -> Any:
    found, etag, _ = await costs.prices(asked.app)
    return costs.prices_answer(found, etag)


async def export(asked: Asked) -> Response:
    to = asked.query["to"]
    text = await exports.export(asked.app, asked.graph, to)
    return Response(text, media_type=exports.FORMATS[to].media_type)


async def task_files(asked: Asked) -> Any:
    return files.answer(asked.graph, await files.find(asked.app, asked.graph, asked.query["label"]))


async def standstill(asked: Asked) -> Any:
    found = await examining.examine(asked.app, asked.graph, repair=False, progress=lambda rows: None)
    return views.standstill(found)


async def examined(asked: Asked) -> Any:
    return views.examined(await examining.examine(asked.app, asked.graph, repair=False, progress=lambda rows: None))


async def rows(asked: Asked) -> Response:
    found: list[Row] = []
    await asked.app.queries.state(asked.graph)
    after = paging.after(asked, _ROW_KEY)
    async with aclosing(asked.app.queries.rows(asked.graph, asked.query["prefix"] or "", after=after)) as listed:
        async for row in listed:
            if len(found) == asked.query["limit"]:
                return JSONResponse(views.rows(asked.graph, found), headers=paging.links(asked, found[-1].key))
            found.append(row)
    return JSONResponse(views.rows(asked.graph, found))


async def request(asked: Asked) -> Any:
    columns = await asked.app.queries.request(asked.graph, asked.path["request"])
    return views.request(asked.graph, asked.path["request"], columns)


async def tasks(asked: Asked) -> Response:
    query = asked.query
    if query["label"]:
        one = await asked.app.queries.task_status(asked.graph, query["label"])
        return JSONResponse(views.tasks(asked.graph, Listing([one], None), [one]))
    if query["group"]:
        found = await asked.app.queries.listing(
            asked.graph, state=query["state"] or "", match=query["match"] or "", group=query["group"]
        )
        return JSONResponse(views.tasks(asked.graph, found, found.tasks))
    found, last = await asked.app.queries.page(
        asked.graph,
        state=query["state"] or "",
        match=query["match"] or "",
        after=paging.after(asked, _TASK_KEY),
        limit=query["limit"],
    )
    return JSONResponse(views.tasks(asked.graph, found, found.tasks), headers=paging.links(asked, last))


async def task(asked: Asked) -> Any:
    found = await asked.app.queries.task(asked.graph, asked.path["task"], edges=asked.query["edges"])
    return views.task(asked.graph, found)


async def why(asked: Asked) -> Any:
    name = asked.path["task"]
    return views.explanation(asked.graph, name, await asked.app.queries.explain(asked.graph, name))


async def output(asked: Asked) -> Any:
    return JSONResponse(await asked.app.queries.output(asked.graph, asked.path["task"]))


async def log(asked: Asked) -> Response:
    """A piece of at most 1 MiB, with its place in Content-Range; the beginning, if nothing is said."""
    return await _file(asked, logs.LOG, _LOG_TYPE)


async def result(asked: Asked) -> Response:
    return await _file(asked, "result.json", "application/json")


async def _file(asked: Asked, name: str, media_type: str) -> Response:
    found = await asked.app.queries.task_status(asked.graph, asked.path["task"])
    run = asked.path["run"]
    number = int(run) if run.isascii() and run.isdigit() and len(run) < 10 else -1
    if not 0 <= number <= found.run:
        raise NotFound(f"“{found.label}” has no run {run[:20]}; its latest is {found.run}")

    async def read(*, offset: int = 0, limit: int = _LOG_BYTES_MAX) -> bytes | None:
        return await asked.app.logs.read(asked.graph, found.task_id, number, offset=offset, limit=limit, name=name)

    first = await read()
    if first is None:
        raise NotFound(f"run {number} of “{found.label}” has no {'log' if name == logs.LOG else 'result'}")
    size = len(first) if len(first) < _LOG_BYTES_MAX else await size_of(read)
    start, end = _part(asked.request.headers.get("range", ""), size)
    if asked.query.get("tail") is not None:
        start, end = await logs.start_of_tail(read, size, asked.query["tail"]), size
    end = min(end, start + _LOG_BYTES_MAX)
    data = first[start:end] if end <= len(first) else await read(offset=start, limit=end - start)
    headers = {"Accept-Ranges": "bytes"}
    if (start, end) == (0, size):
        return Response(data, 200, headers, media_type)
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}" if end > start else f"bytes */{size}"
    return Response(data, 206 if end > start else 200, headers, media_type)


def _part(text: str, size: int) -> tuple[int, int]:
    """The bytes that a header `Range` asks for: from, to (exclusive); all of them, if it is none that is known."""
    match = _RANGE.fullmatch(text)
    if match is None or match.groups() == ("", ""):
        return 0, size
    first, last = match.groups()
    if not first:
        return max(0, size - int(last)), size
    start, end = int(first), min(size, int(last) + 1 if last else size)
    if start >= size or end <= start:
        place = {"Content-Range": f"bytes */{size}"}
        raise Problem(416, "range", f"there are {size:,} bytes, counted from 0", headers=place)
    return start, end


# --- the store --------------------------------------------------------------------------------------------------


async def crew(asked: Asked) -> Any:
    return views.workers(await workers.listed(asked.app, asked.query["target"] or ""))


async def targets(asked: Asked) -> Any:
    return views.target_limits(await limit.of_targets(asked.app))


async def poison(asked: Asked) -> Any:
    return views.poison_messages((await asked.app.poison.list())[: limits.PAGE_ROWS_MAX])


async def overview(asked: Asked) -> Any:
    return views.snapshot(await asked.app.overview().look(graphs_max=asked.query["limit"]))
