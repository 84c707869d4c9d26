"""The store of a client: opened on entry, closed on exit."""

import contextlib
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.settings import StoreSettings, read_settings
from taskgraph.model.clock import Clock, SystemClock
from taskgraph.storage.store import Store


class OpenStore:
    def __init__(
        self,
        store: str | StoreSettings | Store | None = None,
        *,
        clock: Clock | None = None,
        token: str | None = None,
    ) -> None:
        if isinstance(store, StoreSettings):
            self.settings = store
        elif store is None or isinstance(store, str):
            self.settings = read_settings(store, os.environ, cwd=Path.cwd(), token=token)
        else:
            self.settings = StoreSettings(handed_in=store)
        handed_in = self.settings.handed_in
        self._clock = clock or (handed_in.clock if handed_in is not None else SystemClock())
        self._app: App | None = None
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self._app is not None:
            raise RuntimeError("this client is open already")
        self._app = await self._stack.enter_async_context(open_app(self.settings, clock=self._clock))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._app = None
        await self._stack.aclose()

    @property
    def app(self) -> App:
        """The parts behind the client, for what it does not offer. Raises RuntimeError while the client is closed."""
        if self._app is None:
            raise RuntimeError("this client is not open: use `async with Client(…) as client`")
        return self._app
