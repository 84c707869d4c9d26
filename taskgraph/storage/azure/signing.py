"""How a request to the storage service carries the store's credential: an account key, a signature, or a token.

No error or representation shows a key, a signature or a token.
"""

import asyncio
import base64
import hmac
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Final

from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.data.tables import TableSasPermissions, generate_table_sas
from yarl import URL

from taskgraph.model.clock import Clock
from taskgraph.model.errors import InvalidSettings
from taskgraph.model.names import LIVE

Credential = AzureNamedKeyCredential | AzureSasCredential | AsyncTokenCredential
Query = Sequence[tuple[str, str]]

SCOPE: Final = "https://storage.azure.com/.default"
_RENEW_SECONDS: Final = 300.0  # before a token ends
_DIRECTORY: Final = re.compile(r"authorization_uri=\"?https://[^/\s\",]+/([0-9A-Za-z.-]+)")


class Signer:
    """One way of showing a credential; this one is a shared access signature, which is part of the address.

    suffix: added to the query of every address.
    """

    def __init__(self, signature: str = "") -> None:
        # Quoted as the SDK's own transport would quote it, so that the same texts work with both.
        self.suffix = URL("?" + signature.removeprefix("?")).raw_query_string

    async def sign(self, method: str, path: str, query: Query, headers: dict[str, str], length: int) -> None:
        """Add what the request needs to its headers. path: as it is sent; query: its values before they are quoted."""

    def refused(self, challenge: str) -> bool:
        """The service answered 401, with this WWW-Authenticate. Whether to sign and send once more."""
        return False


def signer_for(credential: Credential, endpoint: str, kind: str, clock: Clock) -> Signer:
    """The signer of this credential. kind: "table" or "queue". Raises InvalidSettings for a token without TLS."""
    if isinstance(credential, AzureSasCredential):
        return Signer(credential.signature)
    if isinstance(credential, AzureNamedKeyCredential):
        name, key = credential.named_key
        return (LiteKeySigner if kind == "table" else KeySigner)(name, key, clock.now)
    if not endpoint.startswith("https:"):
        raise InvalidSettings(f"{endpoint}: an identity is only ever shown over https")
    return TokenSigner(credential, clock)


class LiteKeySigner(Signer):
    """An account key for tables: the date and the path are signed."""

    def __init__(self, account: str, key: str, now: Callable[[], datetime]) -> None:
        super().__init__()
        self._account = account
        self._keyed = hmac.new(base64.b64decode(key), digestmod="sha256")  # copying it is cheaper than a new one
        self._now = now
        self._date = (0, "")

    async def sign(self, method: str, path: str, query: Query, headers: dict[str, str], length: int) -> None:
        date = headers["x-ms-date"] = self._dated()
        signature = self._signed(f"{date}\n/{self._account}{path}")
        headers["Authorization"] = f"SharedKeyLite {self._account}:{signature}"

    def _signed(self, text: str) -> str:
        keyed = self._keyed.copy()
        keyed.update(text.encode("utf-8"))
        return base64.b64encode(keyed.digest()).decode("ascii")

    def _dated(self) -> str:
        now = self._now()
        second = int(now.timestamp())
        if second != self._date[0]:
            self._date = second, format_datetime(now, usegmt=True)
        return self._date[1]


class KeySigner(LiteKeySigner):
    """An account key for queues: method, headers, path and query are signed."""

    async def sign(self, method: str, path: str, query: Query, headers: dict[str, str], length: int) -> None:
        headers["x-ms-date"] = self._dated()
        lines = [method, "", "", str(length) if length else "", "", headers.get("Content-Type", "")]
        lines += [""] * 6  # Date and the conditions: not sent
        lines += [f"{name}:{headers[name]}" for name in sorted(headers) if name.startswith("x-ms-")]
        lines.append(f"/{self._account}{path}")
        lines += [f"{name}:{value}" for name, value in sorted(query)]
        signature = self._signed("\n".join(lines))
        headers["Authorization"] = f"SharedKey {self._account}:{signature}"


class TokenSigner(Signer):
    """A token of an identity: fetched when there is none, kept until it is about to end."""

    def __init__(self, credential: AsyncTokenCredential, clock: Clock) -> None:
        super().__init__()
        self._credential = credential
        self._clock = clock
        self._token: AccessToken | None = None
        self._directory: str | None = None
        self._fetching = asyncio.Lock()

    async def sign(self, method: str, path: str, query: Query, headers: dict[str, str], length: int) -> None:
        token = self._token
        if token is None or not self._is_good(token):
            async with self._fetching:  # one fetch for all that wait
                token = self._token
                if token is None or not self._is_good(token):
                    token = self._token = await self._credential.get_token(SCOPE, tenant_id=self._directory)
        headers["Authorization"] = f"Bearer {token.token}"

    def refused(self, challenge: str) -> bool:
        """The next request fetches another token, from the directory that the service names, if any."""
        self._token = None
        named = _DIRECTORY.search(challenge)
        if named is None or named[1] == self._directory:
            return False
        self._directory = named[1]
        return True

    def _is_good(self, token: AccessToken) -> bool:
        return token.expires_on - self._clock.now().timestamp() > _RENEW_SECONDS


def partition_signer(credential: object, endpoint: str) -> Callable[[str, str, datetime, str], str] | None:
    """Signs (table, partition, end, addresses) for reading one partition; None if the credential is no key."""
    if not isinstance(credential, AzureNamedKeyCredential):
        return None

    def sign(table: str, partition: str, expires: datetime, addresses: str) -> str:
        reading = TableSasPermissions(read=True)
        return _table_signature(credential, endpoint, table, reading, expires, addresses, partition)

    return sign


def changes_signer(credential: object, endpoint: str) -> Callable[[str, str, datetime, str], tuple[str, str]] | None:
    """Signs (table, graph, end, addresses) for asking for changes of one graph; None if the credential is no key.

    Gives two: one adds rows `request:` of the graph, the other its name to the index of graphs that are swept. Neither
    reads, changes or deletes a row.
    """
    if not isinstance(credential, AzureNamedKeyCredential):
        return None

    def sign(table: str, graph_id: str, expires: datetime, addresses: str) -> tuple[str, str]:
        def adding(partition: str, *keys: str) -> str:
            may = TableSasPermissions(add=True)
            return _table_signature(credential, endpoint, table, may, expires, addresses, partition, *keys)

        return adding(graph_id, "request:", "request;"), adding(LIVE, graph_id, graph_id)

    return sign


def _table_signature(
    credential: AzureNamedKeyCredential,
    endpoint: str,
    table: str,
    may: TableSasPermissions,
    expires: datetime,
    addresses: str,
    partition: str,
    first: str | None = None,
    last: str | None = None,
) -> str:
    """Of one partition; of its rows from `first` to `last`, or all."""
    return generate_table_sas(
        credential,
        table,
        permission=may,
        # Without a start it holds at once: with one, a clock that goes ahead of the service's would shut it out.
        expiry=expires.astimezone(UTC),
        start_pk=partition,
        start_rk=first,
        end_pk=partition,
        end_rk=last,
        # The service knows no other pair than the second, which is for the emulator: it has no TLS.
        protocol="https" if endpoint.startswith("https:") else "https,http",
        ip_address_or_range=addresses or None,
    )


def files_signer(credential: object, endpoint: str, container: str) -> Callable[[datetime, str], str] | None:
    """Signs (end, addresses) for reading files of a container whose names are known; None if the credential is no key.

    Gives the endpoint with the signature behind it.
    """
    if not isinstance(credential, AzureNamedKeyCredential):
        return None
    from azure.storage.blob import ContainerSasPermissions, generate_container_sas

    account, key = credential.named_key

    def sign(expires: datetime, addresses: str) -> str:
        token = generate_container_sas(
            account,
            container,
            account_key=key,
            permission=ContainerSasPermissions(read=True),  # and no listing
            expiry=expires.astimezone(UTC),
            protocol="https" if endpoint.startswith("https:") else "https,http",
            ip=addresses or None,
        )
        return f"{endpoint}?{token}"

    return sign
