"""The cloud store: three endpoints, the credential, and the one pool of connections that the adapters share.

A key is never shown: not in an error, not in a name, not in a log.
"""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.credentials_async import AsyncTokenCredential

from taskgraph.model.clock import Clock
from taskgraph.model.errors import InvalidSettings
from taskgraph.storage import checks
from taskgraph.storage.azure.calls import Caller
from taskgraph.storage.azure.logs import CONTAINER, AzureLogs
from taskgraph.storage.azure.pool import Pool, Transport
from taskgraph.storage.azure.queue_requests import QueueCalls
from taskgraph.storage.azure.queues import AzureQueues
from taskgraph.storage.azure.signing import Credential, changes_signer, files_signer, partition_signer, signer_for
from taskgraph.storage.azure.table_requests import TableCalls
from taskgraph.storage.azure.tables import AzureTables
from taskgraph.storage.azure.wire import Wire
from taskgraph.storage.logs import StoredLogs
from taskgraph.storage.queues import Queues
from taskgraph.storage.tables import Tables

if TYPE_CHECKING:
    from azure.storage.blob.aio import BlobClient, ContainerClient

    from taskgraph.storage.azure.site import AzureSite

# The emulator's account: well known, documented, the same everywhere, and no secret.
_EMULATOR_ACCOUNT: Final = "devstoreaccount1"
_EMULATOR_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_EMULATOR_PORTS: Final = {"blob": 10000, "queue": 10001, "table": 10002}


@dataclass(frozen=True, slots=True)
class _Account:
    table: str
    queue: str
    blob: str
    credential: Credential = field(repr=False)


class AzureStore:
    """A storage account, or the emulator. Until the first call nothing is connected.

    clock: for the pauses between tries, and for signing; a ServiceClock learns the service's time. transport: in place
    of the store's own pool of connections, an AsyncHttpTransport of the SDK that is a Transport too; the store closes
    it. Rows and messages go past the SDK, logs go through it.
    """

    def __init__(self, account: _Account, clock: Clock, *, transport: Transport | None = None) -> None:
        self._account = account
        self.table_endpoint = account.table  # without the name of a table
        self._clock = clock
        self._transport = transport or Pool(account.table)
        self._options: dict[str, Any] = {
            "credential": account.credential,
            "transport": self._transport,
            "retry_total": 0,  # what may be repeated is repeated by Caller (P17)
            "user_agent": "taskgraph",
            "raw_request_hook": self._date,  # called before a request is signed
        }
        self._wires: dict[str, Wire] = {}
        self._closed = False

    @classmethod
    def from_connection_string(cls, text: str, clock: Clock, *, transport: Transport | None = None) -> "AzureStore":
        """The account of a connection string: a key, a signature, explicit endpoints, or UseDevelopmentStorage=true.

        Raises InvalidSettings, which does not repeat the string.
        """
        return cls(_parse(text), clock, transport=transport)

    @classmethod
    def from_endpoints(
        cls,
        table_endpoint: str,
        queue_endpoint: str,
        blob_endpoint: str,
        clock: Clock,
        *,
        client_id: str = "",
        managed_identity: bool = False,
    ) -> "AzureStore":
        """The account at these https endpoints, with the identity that this machine or person has.

        client_id: of a user-assigned managed identity. managed_identity: use that of the machine, or of client_id, and
        look for no other. Raises InvalidSettings for an endpoint that is not https.
        """
        table, queue, blob = (_endpoint(text) for text in (table_endpoint, queue_endpoint, blob_endpoint))
        for end in (table, queue, blob):
            if not end.startswith("https:"):
                raise InvalidSettings(f"{end}: an identity is only ever shown over https")
        # Heavy, and only this way of signing in needs it.
        from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential

        if managed_identity:
            credential: AsyncTokenCredential = ManagedIdentityCredential(client_id=client_id or None)
        else:
            credential = DefaultAzureCredential(**({"managed_identity_client_id": client_id} if client_id else {}))
        return cls(_Account(table, queue, blob, credential), clock)

    def tables(self, name: str) -> Tables:
        checks.check_table_name(name)
        end = self._account.table
        return AzureTables(self._caller(end), TableCalls(self._wire(end, "table"), name), name)

    def queues(self) -> Queues:
        end = self._account.queue
        return AzureQueues(self._caller(end), QueueCalls(self._wire(end, "queue")))

    def logs(self) -> StoredLogs:
        """Append blobs `<graph>/<task>/<run>/<name>` in one container."""
        end, options = self._account.blob, self._options

        def blob(name: str) -> "BlobClient":
            from azure.storage.blob.aio import BlobClient  # heavy, and most commands write and read no log

            return BlobClient(end, CONTAINER, name, **options)

        def container() -> "ContainerClient":
            from azure.storage.blob.aio import ContainerClient

            return ContainerClient(end, CONTAINER, **options)

        return AzureLogs(self._caller(end), blob, container)

    def partition_signer(self) -> Callable[[str, str, datetime, str], str] | None:
        return partition_signer(self._account.credential, self._account.table)

    def changes_signer(self) -> Callable[[str, str, datetime, str], tuple[str, str]] | None:
        return changes_signer(self._account.credential, self._account.table)

    def files_signer(self) -> Callable[[datetime, str], str] | None:
        return files_signer(self._account.credential, self._account.blob, CONTAINER)

    def site(self) -> "AzureSite":
        from azure.data.tables.aio import TableServiceClient  # heavy, and only `web deploy` and links need it
        from azure.storage.blob.aio import BlobServiceClient

        from taskgraph.storage.azure.site import AzureSite

        table, blob, options = self._account.table, self._account.blob, self._options
        return AzureSite(
            self._caller(table),
            self._caller(blob),
            lambda: TableServiceClient(table, **options),
            lambda: BlobServiceClient(blob, **options),
        )

    async def close(self) -> None:
        """Close the connections. Idempotent; later calls raise StorageUnavailable."""
        self._closed = True
        await self._transport.close()
        if isinstance(self._account.credential, AsyncTokenCredential):
            await self._account.credential.close()

    def _date(self, request: Any) -> None:
        request.http_request.headers["x-ms-date"] = format_datetime(self._clock.now(), usegmt=True)

    def _wire(self, endpoint: str, kind: str) -> Wire:
        wire = self._wires.get(kind)
        if wire is None:  # one for all tables, so that a token is fetched once
            signer = signer_for(self._account.credential, endpoint, kind, self._clock)
            wire = self._wires[kind] = Wire(endpoint, signer, self._transport, self._clock)
        return wire

    def _caller(self, endpoint: str) -> Caller:
        return Caller(endpoint, self._clock, lambda: self._closed)


def _parse(text: str) -> _Account:
    parts: dict[str, str] = {}
    for part in text.strip().strip(";").split(";"):
        name, separator, value = part.partition("=")
        if not separator:
            raise InvalidSettings("the connection string is not a list of name=value")
        parts[name.strip().lower()] = value.strip()
    if parts.get("usedevelopmentstorage", "").lower() == "true":
        host = parts.get("developmentstorageproxyuri", "http://127.0.0.1").rstrip("/")
        ends = {kind: f"{host}:{port}/{_EMULATOR_ACCOUNT}" for kind, port in _EMULATOR_PORTS.items()}
        key = AzureNamedKeyCredential(_EMULATOR_ACCOUNT, _EMULATOR_KEY)
        return _Account(ends["table"], ends["queue"], ends["blob"], key)
    account = parts.get("accountname", "")
    protocol = parts.get("defaultendpointsprotocol", "https")
    suffix = parts.get("endpointsuffix", "core.windows.net")
    ends = {}
    for kind in _EMULATOR_PORTS:
        given = parts.get(f"{kind}endpoint", "")
        if not given and not account:
            raise InvalidSettings(f"the connection string has neither AccountName nor {kind.capitalize()}Endpoint")
        ends[kind] = _endpoint(given or f"{protocol}://{account}.{kind}.{suffix}")
    return _Account(ends["table"], ends["queue"], ends["blob"], _credential(parts, account))


def _credential(parts: dict[str, str], account: str) -> Credential:
    if signature := parts.get("sharedaccesssignature"):
        return AzureSasCredential(signature)
    key = parts.get("accountkey", "")
    if not account or not key:
        raise InvalidSettings("the connection string has neither AccountName with AccountKey nor SharedAccessSignature")
    try:
        base64.b64decode(key, validate=True)
    except binascii.Error as error:
        raise InvalidSettings("the AccountKey of the connection string is not base64") from error
    return AzureNamedKeyCredential(account, key)


def _endpoint(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.username:
        raise InvalidSettings("an endpoint of the store is no plain http or https address")  # it may hold a signature
    return text.rstrip("/")
