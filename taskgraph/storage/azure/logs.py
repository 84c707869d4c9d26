"""Logs over Azure Blob Storage: one append blob for each file of a run. No link to one carries a signature."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError

from taskgraph.model.errors import StorageError, TooLarge
from taskgraph.storage import checks
from taskgraph.storage.azure.calls import Caller, Repeat, code_of, in_parallel
from taskgraph.storage.logs import LogFile, LogPage, Place

if TYPE_CHECKING:
    from azure.storage.blob.aio import BlobClient, ContainerClient

CONTAINER: Final = "taskgraph-logs"
_BLOCK_BYTES_MAX: Final = 4 * 1024 * 1024
_MISSING: Final = ("BlobNotFound", "ContainerNotFound")
_PAGE_BLOBS: Final = 1_000
_COPY_LOOK_SECONDS: Final = 0.2
_PARTS: Final = 4  # of the name of a blob
_READ_BYTES_MAX: Final = 4 * 1024 * 1024  # one request; the SDK would cut a longer one into several


class AzureLogs:
    def __init__(
        self, caller: Caller, make_blob: "Callable[[str], BlobClient]", make_container: "Callable[[], ContainerClient]"
    ) -> None:
        self._caller = caller
        self._make_blob = make_blob
        self._make_container = make_container

    def url(self, graph_id: str, task_id: str, run: int, name: str = "run.log") -> str:
        return f"{self._caller.endpoint}/{CONTAINER}/{_blob_name(graph_id, task_id, run, name)}"

    async def append(self, graph_id: str, task_id: str, run: int, data: bytes, name: str = "run.log") -> None:
        """Raises TooLarge past the 50,000 blocks of an append blob.

        Not repeated when the answer is lost: the bytes may be there already.
        """
        blob = self._make_blob(_blob_name(graph_id, task_id, run, name))
        try:
            for start in range(0, len(data), _BLOCK_BYTES_MAX):
                block = data[start : start + _BLOCK_BYTES_MAX]
                await self._caller.call(
                    partial(blob.append_block, block), Repeat.UNSENT, missing=_MISSING, make=partial(self._create, blob)
                )
            if not data:
                await self._create(blob)
        except HttpResponseError as error:
            raise self._error_for(error, blob) from error

    async def append_at(self, graph_id: str, task_id: str, run: int, offset: int, data: bytes, name: str) -> bool:
        blob = self._make_blob(_blob_name(graph_id, task_id, run, name))
        try:
            await self._create(blob)
            if data:  # of what may be there already, a second try is refused
                append = partial(blob.append_block, data, appendpos_condition=offset)
                await self._caller.call(append, Repeat.UNSENT)
        except HttpResponseError as error:
            if error.status_code == 412:
                return False
            raise self._error_for(error, blob) from error
        return bool(data) or not offset

    async def read(
        self, graph_id: str, task_id: str, run: int, *, offset: int = 0, limit: int = 1 << 20, name: str = "run.log"
    ) -> bytes | None:
        """At most 4 MiB at a time."""
        checks.check_log_read(graph_id, task_id, run, name, offset, limit)
        blob = self._make_blob(_blob_name(graph_id, task_id, run, name))

        async def part() -> bytes:
            stream = await blob.download_blob(offset=offset, length=min(limit, _READ_BYTES_MAX))
            return await stream.readall()

        try:
            return await self._caller.call(part, Repeat.ALWAYS)
        except HttpResponseError as error:
            if error.status_code == 416:
                return b""
            if code_of(error) in _MISSING:
                return None
            raise self._error_for(error, blob) from error

    async def copy(self, source: Place, target: Place, name: str) -> bool:
        """By the service itself, within the account."""
        origin, blob = (self._make_blob(_blob_name(*each, name)) for each in (source, target))
        copy = partial(blob.start_copy_from_url, origin.url, match_condition=MatchConditions.IfMissing)
        try:
            begun = await self._caller.call(copy, Repeat.ALWAYS)
            while begun.get("copy_status") == "pending":
                await self._caller.clock.sleep(_COPY_LOOK_SECONDS)
                properties = await self._caller.call(blob.get_blob_properties, Repeat.ALWAYS)
                begun = {"copy_status": properties.copy.status or ""}
        except HttpResponseError as error:
            if error.status_code == 412 or (error.status_code == 409 and code_of(error) == "BlobAlreadyExists"):
                return True
            if code_of(error) in _MISSING or error.status_code == 404:
                return False
            raise self._error_for(error, blob) from error
        return begun.get("copy_status") == "success"

    async def files(self, graph_id: str, *, continuation: str | None = None) -> LogPage:
        checks.check_logs_of(graph_id)
        container = self._make_container()

        async def page() -> LogPage:
            pages = container.list_blobs(name_starts_with=f"{graph_id}/", results_per_page=_PAGE_BLOBS).by_page(
                continuation_token=continuation
            )
            async for blobs in pages:
                found = [_file(blob.name, blob.size) async for blob in blobs]
                rest: str | None = pages.continuation_token  # type: ignore[attr-defined]
                return LogPage([each for each in found if each is not None], rest or None)
            return LogPage(())

        try:
            return await self._caller.call(page, Repeat.ALWAYS)
        except HttpResponseError as error:
            if code_of(error) == "ContainerNotFound":
                return LogPage(())
            raise self._caller.refused(error) from error

    async def remove(self, graph_id: str) -> int:

        async def one(file: LogFile) -> int:
            blob = self._make_blob(_blob_name(graph_id, file.task_id, file.run, file.name))
            try:
                await self._caller.call(blob.delete_blob, Repeat.ALWAYS)
            except HttpResponseError as error:
                if code_of(error) in _MISSING:
                    return 0  # another copy removes it too
                raise self._error_for(error, blob) from error
            return 1

        count = 0
        while True:
            page = await self.files(graph_id)
            if not page.files:
                return count
            count += sum(await in_parallel(one, page.files))

    async def _create(self, blob: "BlobClient") -> None:
        """Make the blob, unless another process has: what it wrote must stay."""
        create = partial(blob.create_append_blob, match_condition=MatchConditions.IfMissing)
        try:
            # Repeating is safe: If-None-Match makes a second creation fail, and that is no trouble.
            await self._caller.call(create, Repeat.ALWAYS, missing=("ContainerNotFound",), make=self._create_container)
        except HttpResponseError as error:
            if error.status_code != 412 and not (error.status_code == 409 and code_of(error) == "BlobAlreadyExists"):
                raise

    async def _create_container(self) -> None:
        await self._caller.create(self._make_container().create_container, "ContainerAlreadyExists")

    def _error_for(self, error: HttpResponseError, blob: "BlobClient") -> StorageError:
        code = code_of(error)
        if code == "ContainerBeingDeleted":
            return self._caller.unavailable(error)
        if code == "BlockCountExceedsLimit":
            return TooLarge(f"the log {blob.blob_name} has as many blocks as a blob may have")
        return self._caller.refused(error)


def _blob_name(graph_id: str, task_id: str, run: int, name: str) -> str:
    checks.check_log(graph_id, task_id, run, name)
    return f"{graph_id}/{task_id}/{run}/{name}"


def _file(blob_name: str, size: int) -> LogFile | None:
    """A file by the name of its blob; None for a blob that is none of ours."""
    parts = blob_name.split("/")
    if len(parts) != _PARTS or not parts[2].isdecimal():
        return None
    return LogFile(parts[1], int(parts[2]), parts[3], size)
