"""Port of a static website that a store can have: files, and which origins browsers may read rows from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

RULES_MAX: Final = 5
"""Of each service, says the service."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What browsers may ask of a service for pages of these origins (CORS)."""

    origins: tuple[str, ...]
    methods: tuple[str, ...]
    headers: tuple[str, ...]
    exposed: tuple[str, ...]
    seconds: int


class Site(Protocol):
    @property
    def table_endpoint(self) -> str: ...

    @property
    def blob_endpoint(self) -> str: ...

    async def rules(self) -> tuple[list[Rule], list[Rule]]:
        """Those of tables, and those of blobs."""

    async def set_table_rules(self, rules: Sequence[Rule]) -> None: ...

    async def set_blob_rules(self, rules: Sequence[Rule]) -> None: ...

    async def is_on(self) -> bool: ...

    async def turn(self, on: bool) -> None: ...

    async def address(self) -> str:
        """Under which the site is shown, as it was noted; "" if it was not."""

    async def note_address(self, address: str) -> None: ...

    async def files(self) -> dict[str, str]:
        """Name to digest, "" for a file that is none of ours."""

    async def put(self, name: str, data: bytes, kind: str, keep: str, digest: str) -> None:
        """kind: its media type. keep: how long browsers may keep it (Cache-Control)."""

    async def remove(self, names: Iterable[str]) -> None: ...
