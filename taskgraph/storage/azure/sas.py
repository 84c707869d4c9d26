"""Signatures that open one partition of a table for reading, made from the account's key.

What this room is for: handing the one permission, the one partition and the end to the SDK, which signs. It never
sends anything: the service holds the signature against the key when somebody comes with it.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import TableSasPermissions, generate_table_sas

_TLS: Final = "https"
_ANY: Final = "https,http"  # the service knows no other pair; for the emulator, which has no TLS


def partition_signer(credential: object, endpoint: str) -> Callable[[str, str, datetime, str], str] | None:
    """What signs (table, partition, end, addresses), or None if the credential is no key."""
    if not isinstance(credential, AzureNamedKeyCredential):
        return None

    def sign(table: str, partition: str, expires: datetime, addresses: str) -> str:
        return generate_table_sas(
            credential,
            table,
            permission=TableSasPermissions(read=True),
            # Without a start it holds at once: with one, a clock that goes ahead of the service's would shut it out.
            expiry=expires.astimezone(UTC),
            start_pk=partition,
            end_pk=partition,
            protocol=_TLS if endpoint.startswith("https:") else _ANY,
            ip_address_or_range=addresses or None,
        )

    return sign
