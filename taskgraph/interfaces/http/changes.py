"""The route by which operators change graphs: plan a change, make it as it was planned, or have it made without."""

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
