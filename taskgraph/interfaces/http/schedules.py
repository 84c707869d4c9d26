"""Routes of schedules. Their ETag is that of their row, by which `If-Match` says for what a change is meant."""

import hashlib
from typing import Any

from starlette.responses import JSONResponse, Response

from taskgraph.documents.schedule_document import ScheduleDocument, read_schedule
from taskgraph.engine.schedules import Still, any_row
from taskgraph.interfaces import views
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.http.problems import Problem
from taskgraph.interfaces.http.writes import form
from taskgraph.interfaces.operations import schedules
from taskgraph.model.errors import Refused


async def listed(asked: Asked) -> Any:
    return views.schedules(await asked.app.schedules().listed())


async def show(asked: Asked) -> Response:
    found = await asked.app.schedules().show(asked.path["schedule"])
    return JSONResponse(views.schedule_detail(found), headers={"ETag": _tag(found.etag)})


def _tag(etag: str) -> str:
    return f'"{hashlib.sha256(etag.encode()).hexdigest()[:32]}"'


def _still(asked: Asked) -> Still | None:
    """What the header `If-Match` says; None without it."""
    given = asked.request.headers.get("if-match")
    if given is None:
        return None
    tags = [each.strip() for each in given.split(",")]
    return any_row if "*" in tags else lambda etag: _tag(etag) in tags


async def put(asked: Asked) -> Response:
    """201 for one that is new, 200 for the same one, and for another one that `If-Match` names."""
    name, said = asked.path["schedule"], await _document(asked, whole=True)
    try:
        made, outcome = await schedules.put(asked.app, name, said, _still(asked))
    except Refused as error:
        raise (_no_guard(name) if error.code == "exists" else error) from error
    return JSONResponse(views.schedule_changed(made, outcome), 201 if outcome == "created" else 200)


async def patch(asked: Asked) -> Any:
    name, still = asked.path["schedule"], _still(asked)
    if still is None:
        raise _no_guard(name)
    changed = await schedules.change(asked.app, name, await _document(asked, whole=False), still)
    return views.schedule_changed(changed, "updated")


async def _document(asked: Asked, *, whole: bool) -> ScheduleDocument:
    return read_schedule(await asked.body(), source="body", form=form(asked), whole=whole)


def _no_guard(name: str) -> Problem:
    detail = f"send the ETag of GET /schedules/{name} as If-Match, or * to change it whatever it is by now"
    return Problem(428, "no-guard", detail)


async def delete(asked: Asked) -> Any:
    deleted = await asked.app.schedules().delete(asked.path["schedule"], still=_still(asked) or any_row)
    return views.schedule_changed(deleted, "deleted")


async def activate(asked: Asked) -> Any:
    return await _switch(asked, active=True)


async def deactivate(asked: Asked) -> Any:
    return await _switch(asked, active=False)


async def _switch(asked: Asked, *, active: bool) -> Any:
    done = await asked.app.schedules().set_active(asked.path["schedule"], active=active)
    return views.schedule_changed(done, "active" if active else "inactive")


async def run_now(asked: Asked) -> Any:
    name = asked.path["schedule"]
    return views.fired(name, await asked.app.schedules().run_now(name))
