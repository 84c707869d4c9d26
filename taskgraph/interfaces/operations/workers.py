"""List the registered workers and handlers; have one take no new work, or take work again, and wait for that."""

from typing import Final

from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations.checks import over_http
from taskgraph.interfaces.operations.waiting import poll
from taskgraph.model.errors import Refused
from taskgraph.queries import workers as registry
from taskgraph.queries.workers import Crew

_LOOK_SECONDS: Final = 1.0


async def listed(app: App, target: str = "") -> Crew:
    """Workers, and what handles events. target: only the workers of this one."""
    found = await app.crew()
    return Crew([one for one in found.workers if target in one.targets]) if target else found


@over_http("drain")
async def ask(app: App, name: str, *, draining: str, exits: bool = False) -> None:
    """Ask a worker to drain (`queries.workers.FINISH`, `NOW`), or with "" to take work again.

    Raises NotFound, with the nearest names, and Refused for a handler, and where the worker kept writing its row.
    """
    if await registry.ask(app.tables, name, draining=draining, exits=exits) is None:
        raise Refused(f"worker {name} kept writing its row; try again", "busy")


async def settled(app: App, name: str, *, until: float | None = None) -> tuple[str, int]:
    """Wait until a worker has drained, ended or gone; gives which, "" when `until` comes first, and its runs in hand.

    Raises Refused if it is to take work again.
    """
    asked, busy = app.clock.now(), 0

    async def look() -> str:
        nonlocal busy
        found = next((one for one in (await listed(app)).workers if one.name == name), None)
        if found is None:
            return "ended"
        if found.state == "gone":
            return "gone"
        if found.state == "active":
            raise Refused(f"worker {name}: a later request asked for the opposite: it takes work again", "superseded")
        # A row that it wrote before it was asked does not count: the run it had then may still be in hand.
        if found.state == "drained" and found.seen is not None and found.seen > asked and not found.exits:
            return "drained"
        busy = found.busy
        return ""

    return await poll(look, app.clock, until=until, pause=_LOOK_SECONDS, pause_max=_LOOK_SECONDS), busy
