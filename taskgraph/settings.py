"""Where the store is: one option or environment variable, read once, into one frozen value (D18).

What this room is for: turning what people write (`sqlite:///path`, a connection string, https endpoints, the Functions
host's own variables) into a `StoreSettings`. It never opens anything, and its `display` never shows a key.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from taskgraph.errors import InvalidSettings

STORE_VARIABLE: Final = "TASKGRAPH_STORE"
PREFIX_VARIABLE: Final = "TASKGRAPH_PREFIX"
HOST_VARIABLE: Final = "AzureWebJobsStorage"
DEFAULT_PATH: Final = ".taskgraph/taskgraph.db"
DEFAULT_PREFIX: Final = "taskgraph"

_PREFIX: Final = re.compile(r"^[a-z][a-z0-9]{2,15}$")
_CONNECTION_STRING: Final = re.compile(r"(?i)(^|;)\s*(AccountName|TableEndpoint|UseDevelopmentStorage)\s*=")
_ACCOUNT_URL: Final = re.compile(
    r"^https://(?P<account>[a-z0-9]{3,24})(?:\.(?:table|queue|blob))?(?P<suffix>\.core\.[a-z0-9.-]+)?/?$"
)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where graphs live. Exactly one of path, connection_string, table_endpoint is set.

    prefix: name of the table, and beginning of the queues' names. synchronous: of SQLite, `normal` or `full`.
    client_id: of a user-assigned identity.
    """

    path: Path | None = None
    synchronous: str = "normal"
    connection_string: str = field(default="", repr=False)
    table_endpoint: str = ""
    queue_endpoint: str = ""
    blob_endpoint: str = ""
    client_id: str = ""
    prefix: str = DEFAULT_PREFIX

    @property
    def embedded(self) -> bool:
        """Whether the store is a file on this machine."""
        return self.path is not None

    @property
    def display(self) -> str:
        """The store, for people: never with a key."""
        if self.path is not None:
            return f"sqlite:///{self.path}"
        if self.table_endpoint:
            return self.table_endpoint
        parts = dict(part.split("=", 1) for part in self.connection_string.split(";") if "=" in part)
        lowered = {name.strip().lower(): value.strip() for name, value in parts.items()}
        if lowered.get("usedevelopmentstorage", "").lower() == "true":
            return "the local storage emulator"
        account, suffix = lowered.get("accountname", ""), lowered.get("endpointsuffix", "core.windows.net")
        return lowered.get("tableendpoint") or f"https://{account}.table.{suffix}"


def read_settings(store: str | None, environ: Mapping[str, str], *, cwd: Path) -> StoreSettings:
    """Settings from the option `--store` (None if not given) and the environment.

    Raises InvalidSettings, naming where the value came from.
    """
    prefix = environ.get(PREFIX_VARIABLE, "") or DEFAULT_PREFIX
    if not _PREFIX.fullmatch(prefix):
        raise InvalidSettings(f"{PREFIX_VARIABLE}={prefix!r}: 3 to 16 lower-case letters and digits, a letter first")
    for source, text in (("the store given", store), (STORE_VARIABLE, environ.get(STORE_VARIABLE))):
        if text:
            return _parse(text.strip(), source, prefix, environ, cwd)
    if text := environ.get(HOST_VARIABLE):
        return _parse(text.strip(), HOST_VARIABLE, prefix, environ, cwd)
    found = _host_endpoints(environ, prefix)
    return found or StoreSettings(path=cwd / DEFAULT_PATH, prefix=prefix)


def _host_endpoints(environ: Mapping[str, str], prefix: str) -> StoreSettings | None:
    """The identity-based settings of the Functions host: AzureWebJobsStorage__tableServiceUri and its like."""
    account = environ.get(f"{HOST_VARIABLE}__accountName", "")
    ends: dict[str, str] = {}
    for kind in ("table", "queue", "blob"):
        given = environ.get(f"{HOST_VARIABLE}__{kind}ServiceUri", "")
        ends[kind] = given or (f"https://{account}.{kind}.core.windows.net" if account else "")
    if not ends["table"] and not ends["queue"]:
        return None
    for kind in ("table", "queue"):
        if not ends[kind]:
            raise InvalidSettings(f"{HOST_VARIABLE}__{kind}ServiceUri is missing beside its sibling")
    return StoreSettings(
        table_endpoint=ends["table"],
        queue_endpoint=ends["queue"],
        blob_endpoint=ends["blob"] or ends["table"].replace(".table.", ".blob.", 1),
        client_id=environ.get(f"{HOST_VARIABLE}__clientId", ""),
        prefix=prefix,
    )


def _parse(text: str, source: str, prefix: str, environ: Mapping[str, str], cwd: Path) -> StoreSettings:
    if text.lower().startswith("sqlite:"):
        return _sqlite(text, source, prefix, cwd)
    if _CONNECTION_STRING.search(text):
        return StoreSettings(connection_string=text, prefix=prefix)
    if match := _ACCOUNT_URL.fullmatch(text):
        account, suffix = match["account"], match["suffix"] or ".core.windows.net"
        return StoreSettings(
            table_endpoint=f"https://{account}.table{suffix}",
            queue_endpoint=f"https://{account}.queue{suffix}",
            blob_endpoint=f"https://{account}.blob{suffix}",
            client_id=environ.get("AZURE_CLIENT_ID", ""),
            prefix=prefix,
        )
    # The text may be a secret with a typing error in it: it is not repeated.
    raise InvalidSettings(
        f"{source} is no store: write sqlite:///PATH, a storage connection string, "
        "or https://ACCOUNT.table.core.windows.net"
    )


def _sqlite(text: str, source: str, prefix: str, cwd: Path) -> StoreSettings:
    parts = urlsplit(text)
    if not text.lower().startswith("sqlite:///") or len(parts.path) < 2:
        raise InvalidSettings(f"{source}: write sqlite:///relative/path.db or sqlite:////absolute/path.db")
    options = parse_qs(parts.query)
    synchronous = options.pop("synchronous", ["normal"])[-1].lower()
    if options or synchronous not in ("normal", "full"):
        raise InvalidSettings(f"{source}: the only option is ?synchronous=normal or ?synchronous=full")
    return StoreSettings(path=cwd / unquote(parts.path[1:]), synchronous=synchronous, prefix=prefix)
