"""Messages that were set aside: list them, put them back on their queue."""

from collections.abc import Sequence

from taskgraph.engine.poison import PoisonMessage
from taskgraph.interfaces.app import App


async def listed(app: App, *, after: str = "") -> Sequence[PoisonMessage]:
    """Those whose key comes behind this one, by key."""
    return [each for each in await app.poison.list() if each.key > after]


async def replay(app: App, key: str | None = None) -> list[PoisonMessage]:
    """Put a message back, or with None all of them. Raises NotFound."""
    keys = [each.key for each in await app.poison.list()] if key is None else [key]
    return [await app.poison.replay(each) for each in keys]
