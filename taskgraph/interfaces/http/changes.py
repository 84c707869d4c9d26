"""The routes by which operators change graphs: plan a change, make it as it was planned, or have it made without."""

from collections.abc import Iterable
from typing import Any

from starlette.responses import JSONResponse, Response

from taskgraph.documents.read import read_json
from taskgraph.interfaces import views
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.http.problems import Problem
from taskgraph.interfaces.http.routes import BASE
from taskgraph.interfaces.operations import changes
from taskgraph.interfaces.operations.waiting import ends


async def ask(asked: Asked) -> Response:
    """The plan; or 202, or 200 where handlers have made the change while `Prefer: wait` waited for it."""
    query = asked.query
    if [query["dryRun"], query["plan"] is not None, query["unguarded"]].count(True) != 1:
        raise Problem(
            428,
            "no-plan",
            "say one of the three: ?dryRun=1 for a plan of the change, ?plan=DIGEST to make it just as it was planned, "
            "or ?unguarded=1 to have it made whatever has become of the graph by then",
        )
    change = changes.check(read_json(await asked.body(), source="body"), source="body")
    if query["dryRun"]:
        return JSONResponse(views.change_plan(await changes.plan(asked.app, asked.graph, change)))
    if query["plan"] is not None:
        return await _apply(asked, change, query["plan"])
    answer, made = await changes.ask(asked.app, asked.graph, change, wait_seconds=asked.wait_seconds())
    return JSONResponse(answer, 200 if made else 202)


async def _apply(asked: Asked, change: dict[str, Any], digest: str) -> Response:
    try:
        request = await changes.apply(asked.app, asked.graph, change, digest)
        state = request.state
        if seconds := asked.wait_seconds():
            until = ends(asked.app.clock, seconds)
            state = str((await changes.applied(asked.app, asked.graph, change, request, until=until)).get("state", ""))
    except changes.StalePlan as stale:
        raise Problem(412, changes.STALE, str(stale), more={"plan": views.change_plan(stale.plan)}) from stale
    headers = {"Location": f"{BASE}/graphs/{asked.graph}/requests/{request.request}"}
    if state != "done":
        headers["Retry-After"] = "1"
    return JSONResponse(views.change_applied(request, digest, state), 200 if state == "done" else 202, headers)


async def ask_each(asked: Asked) -> Any:
    """The plan for each graph, with `?dryRun=1`; otherwise what became of it, under the digests of the plans."""
    body = changes.check_many(read_json(await asked.body(), source="body"), planned=not asked.query["dryRun"])
    change, who = body["change"], asked.who
    if asked.query["dryRun"]:
        ids = body.get("graphs")
        if ids is None:
            ids = await changes.chosen(asked.app, body["where"], ids=who.graphs)
        _check_scope(asked, ids)
        return views.change_plans(change, await changes.plan_each(asked.app, ids, change))
    _check_scope(asked, body["plans"])
    return views.changes_applied(await changes.apply_each(asked.app, body["plans"], change), body["plans"])


def _check_scope(asked: Asked, graph_ids: Iterable[str]) -> None:
    if others := [each for each in graph_ids if not asked.who.is_for(each)]:
        raise Problem(403, "scope", f"the token {asked.who.name} is not for the graph {others[0]}")
