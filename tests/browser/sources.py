"""What the page can read: a server, the table of an account by a signature, an archive that is dropped on it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import TableSasPermissions, generate_table_sas
from azure.storage.blob import BlobServiceClient, ContainerSasPermissions, generate_container_sas

from taskgraph.interfaces.web import alone
from tests.browser.hosted import hosting
from tests.browser.places import Kind

_LOGS: Final = "taskgraph-logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """address: of the page. opening: what stands behind it where it is opened first. asks: origins beside its own.

    archives: by their graphs, what is dropped on it.
    """

    kind: Kind
    address: str
    opening: str = ""
    asks: frozenset[str] = frozenset()
    archives: Path | None = None

    def at(self, route: str) -> str:
        return f"{self.address}/{route}"


def typed(store: str, *words: str, prefix: str = "taskgraph", expected: int = 0) -> str:
    """What a command prints; it has ended then."""
    done = subprocess.run(
        [sys.executable, "-m", "taskgraph", *words],
        env={**os.environ, "TASKGRAPH_STORE": store, "TASKGRAPH_PREFIX": prefix},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == expected, done.stderr
    return done.stdout.strip()


@contextmanager
def from_tables(connection: str, table: str) -> Iterator[Source]:
    """The page as `web deploy` put it into `$web`, on another origin, with a link to the whole of a table."""
    parts = dict(part.split("=", 1) for part in connection.split(";") if "=" in part)
    account, key = parts["AccountName"], parts["AccountKey"]
    tables, blobs = parts["TableEndpoint"].rstrip("/"), parts["BlobEndpoint"].rstrip("/")
    end = datetime.now(UTC) + timedelta(hours=1)
    rows = generate_table_sas(
        AzureNamedKeyCredential(account, key), table, permission=TableSasPermissions(read=True), expiry=end
    )
    files = generate_container_sas(
        account, _LOGS, account_key=key, permission=ContainerSasPermissions(read=True), expiry=end
    )
    link = {"at": f"{tables}/{table}", "sas": rows, "blobs": f"{blobs}?{files}"}
    opening = "&".join(f"{name}={quote(value, safe='')}" for name, value in link.items())
    with hosting() as host, BlobServiceClient.from_connection_string(connection) as service:
        typed(connection, "web", "deploy", "--site", host.address, prefix=table)
        host.take(service.get_container_client("$web"))
        asks = frozenset(urlsplit(each).netloc for each in (tables, blobs))
        yield Source(kind="tables", address=host.address, opening=f"#/?{opening}", asks=asks)


@contextmanager
def from_archives(store: str, folder: Path, graphs: list[str]) -> Iterator[Source]:
    """The page on a host that has no account, and archives of these graphs to be dropped on it."""
    for each in graphs:
        typed(store, "archive", each, "--logs", "-o", str(folder / each))
    with hosting() as host:
        host.show(alone.files([]))
        yield Source(kind="archive", address=host.address, archives=folder)
