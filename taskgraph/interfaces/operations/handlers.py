"""Whether handlers run for a store: so that who asks for something is not sent to start what runs already."""

from taskgraph.engine.lead import is_led
from taskgraph.interfaces.app import App


async def seen(app: App) -> bool:
    """Whether another process handles the events of this store, as far as it shows; no other call is made for it.

    One of this machine listens for notifications; one elsewhere leads for as long as there is something to handle. Not
    seen is one elsewhere that rests, and a function app.
    """
    names = app.handlers.names
    if any(map(app.wakeup.is_awaited, names.received)):
        return True
    return await is_led(app.tables, names.events, app.clock.now())
