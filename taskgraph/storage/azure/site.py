"""The static website of an account: files in the container `$web`, and which origins browsers may read rows from.

The service knows neither under which address it shows the site (that is the account's, or a name of one's own), so
the address is kept with the container.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableCorsRule
from azure.data.tables.aio import TableServiceClient
from azure.storage.blob import ContentSettings, CorsRule, StaticWebsite
from azure.storage.blob.aio import BlobServiceClient

from taskgraph.storage.azure.calls import Caller, Repeat, code_of
from taskgraph.storage.site import Rule

_T = TypeVar("_T")

CONTAINER: Final = "$web"
_ADDRESS: Final = "taskgraphpage"  # metadata of the container
_DIGEST: Final = "taskgraphdigest"  # metadata of a file of ours


class AzureSite:
    """make_tables, make_blobs: clients of the two services of one account."""

    def __init__(
        self,
        of_tables: Caller,
        of_blobs: Caller,
        make_tables: Callable[[], TableServiceClient],
        make_blobs: Callable[[], BlobServiceClient],
    ) -> None:
        self.table_endpoint = of_tables.endpoint
        self.blob_endpoint = of_blobs.endpoint
        self._caller = of_blobs
        self._of_tables = of_tables
        self._tables = make_tables()
        self._blobs = make_blobs()
        self._container = self._blobs.get_container_client(CONTAINER)

    async def rules(self) -> tuple[list[Rule], list[Rule]]:
        of_tables: Any = await self._ask(self._tables.get_service_properties, self._of_tables)
        of_blobs: Any = await self._ask(self._blobs.get_service_properties)
        return [_rule(each) for each in of_tables["cors"] or ()], [_rule(each) for each in of_blobs["cors"] or ()]

    async def set_table_rules(self, rules: Sequence[Rule]) -> None:
        made = [TableCorsRule(list(each.origins), list(each.methods), **_more(each)) for each in rules]
        await self._ask(lambda: self._tables.set_service_properties(cors=made), self._of_tables)

    async def set_blob_rules(self, rules: Sequence[Rule]) -> None:
        made = [CorsRule(list(each.origins), list(each.methods), **_more(each)) for each in rules]
        await self._ask(lambda: self._blobs.set_service_properties(cors=made))

    async def is_on(self) -> bool:
        found: Any = await self._ask(self._blobs.get_service_properties)
        return bool(found["static_website"].enabled)

    async def turn(self, on: bool) -> None:
        """The service makes the container when it is turned on; an emulator may not."""
        site = StaticWebsite(enabled=True, index_document="index.html") if on else StaticWebsite(enabled=False)
        await self._ask(lambda: self._blobs.set_service_properties(static_website=site))
        if on:
            await self._caller.create(self._container.create_container, "ContainerAlreadyExists")

    async def address(self) -> str:
        try:
            found = await self._caller.call(self._container.get_container_properties, Repeat.ALWAYS)
        except HttpResponseError as error:
            if error.status_code == 404:
                return ""
            raise self._caller.refused(error) from error
        return str((found.metadata or {}).get(_ADDRESS, ""))

    async def note_address(self, address: str) -> None:
        await self._ask(lambda: self._container.set_container_metadata({_ADDRESS: address} if address else {}))

    async def files(self) -> dict[str, str]:
        async def listed() -> dict[str, str]:
            blobs = self._container.list_blobs(include=["metadata"])
            return {each.name: (each.metadata or {}).get(_DIGEST, "") async for each in blobs}

        try:
            return await self._caller.call(listed, Repeat.ALWAYS)
        except HttpResponseError as error:
            if code_of(error) == "ContainerNotFound":
                return {}
            raise self._caller.refused(error) from error

    async def put(self, name: str, data: bytes, kind: str, keep: str, digest: str) -> None:
        settings = ContentSettings(content_type=kind, cache_control=keep)
        metadata = {_DIGEST: digest}
        await self._ask(
            lambda: self._container.upload_blob(
                name, data, overwrite=True, content_settings=settings, metadata=metadata
            )
        )

    async def remove(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                await self._caller.call(partial(self._container.delete_blob, name), Repeat.ALWAYS)
            except HttpResponseError as error:
                if error.status_code != 404:
                    raise self._caller.refused(error) from error

    async def _ask(self, work: Callable[[], Awaitable[_T]], caller: Caller | None = None) -> _T:
        by = caller or self._caller
        try:
            return await by.call(work, Repeat.ALWAYS)
        except HttpResponseError as error:
            raise by.refused(error) from error


def _rule(found: Any) -> Rule:
    """The SDK gives lists as texts with commas."""
    parts = (found.allowed_origins, found.allowed_methods, found.allowed_headers, found.exposed_headers)
    origins, methods, headers, exposed = (_several(each) for each in parts)
    return Rule(origins, methods, headers, exposed, found.max_age_in_seconds)


def _several(found: Any) -> tuple[str, ...]:
    texts = found.split(",") if isinstance(found, str) else found or ()
    return tuple(each.strip() for each in texts if each.strip())


def _more(rule: Rule) -> dict[str, Any]:
    return {
        "allowed_headers": list(rule.headers),
        "exposed_headers": list(rule.exposed),
        "max_age_in_seconds": rule.seconds,
    }
