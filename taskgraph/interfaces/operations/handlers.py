"""Whether handlers run for a store: what reads the results of tasks, and carries out what is asked for."""

from taskgraph.interfaces.app import App


async def seen(app: App) -> bool:
    """Whether anything that handles events is registered for this store, and lives: one query."""
    return (await app.crew()).handled
