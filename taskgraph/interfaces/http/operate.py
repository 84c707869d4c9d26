"""Routes by which operators and admins act on a store: targets, workers, and what has gone wrong."""

from typing import Any

from taskgraph.interfaces import views
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.operations import doctor, grant, limit, notify, pause, shares, workers
from taskgraph.interfaces.operations.checks import asked_by
from taskgraph.queries.workers import FINISH, NOW


async def pause_target(asked: Asked) -> Any:
    return await _hold_target(asked, on=True)


async def resume_target(asked: Asked) -> Any:
    return await _hold_target(asked, on=False)


async def _hold_target(asked: Asked, *, on: bool) -> Any:
    target = asked.path["target"]
    changed = await pause.ask_target(asked.app, target, on=on, reason=asked.query.get("reason") or "")
    return views.target_paused(target, on=on, changed=changed)


async def limit_target(asked: Asked) -> Any:
    target, most = asked.path["target"], asked.query["max"]
    changed = await limit.ask_target(asked.app, target, most, reason=asked.query["reason"] or "")
    return views.target_limited(target, most, changed=changed)


async def drain(asked: Asked) -> Any:
    return await _drain(asked, NOW if asked.query["now"] else FINISH, exits=asked.query["exit"])


async def undrain(asked: Asked) -> Any:
    return await _drain(asked, "", exits=False)


async def _drain(asked: Asked, draining: str, *, exits: bool) -> Any:
    name = asked.path["worker"]
    await workers.ask(asked.app, name, draining=draining, exits=exits)
    return views.drained(name, "asked", draining=draining, exits=exits)


async def replay(asked: Asked) -> Any:
    return views.replayed([await asked.app.poison.replay(asked.path["key"], asked_by())])


async def repair(asked: Asked) -> Any:
    return views.examined(await doctor.examine(asked.app, asked.graph, repair=True, progress=lambda rows: None))


async def retry_notices(asked: Asked) -> Any:
    found, _ = await notify.channels(asked.app, asked.graph, retry=True)
    return views.channels(asked.graph, found)


async def grant_reading(asked: Asked) -> Any:
    return views.grant(await grant.read(asked.app, asked.graph, hours=asked.query["hours"]))


async def share(asked: Asked) -> Any:
    return views.token(*await shares.share(asked.app, asked.graph, hours=asked.query["hours"]))
