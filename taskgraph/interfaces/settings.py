"""Where the store is: one option or environment variable, read once, into one frozen `StoreSettings` (D18).

Its `display` never shows a key.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, unquote, urlsplit

from taskgraph.model import limits
from taskgraph.model.errors import InvalidSettings

if TYPE_CHECKING:
    from taskgraph.storage.store import Store

STORE_VARIABLE: Final = "TASKGRAPH_STORE"
TOKEN_VARIABLE: Final = "TASKGRAPH_TOKEN"  # noqa: S105  (the name of one)
PREFIX_VARIABLE: Final = "TASKGRAPH_PREFIX"
HOST_VARIABLE: Final = "AzureWebJobsStorage"
CONNECTION_VARIABLE: Final = "TASKGRAPH_CONNECTION"
QUEUES_VARIABLE: Final = "TASKGRAPH_QUEUES"
STALLED_VARIABLE: Final = "TASKGRAPH_STALLED_SECONDS"
ROW_CACHE_VARIABLE: Final = "TASKGRAPH_ROW_CACHE_MB"
KEEP_DAYS_VARIABLE: Final = "TASKGRAPH_KEEP_DAYS"
WITHHELD: Final = "withheld"
"""TASKGRAPH_STORE of a command whose worker does not hand on the key of its store."""

DEFAULT_PATH: Final = ".taskgraph/taskgraph.db"
DEFAULT_PREFIX: Final = "taskgraph"

_ONE_QUEUE: Final = "one"
_PER_OPERATION: Final = "per-operation"
_NUMBER: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?")
_PREFIX: Final = re.compile(r"^[a-z][a-z0-9]{2,15}$")
_CONNECTION_STRING: Final = re.compile(r"(?i)(^|;)\s*(AccountName|TableEndpoint|UseDevelopmentStorage)\s*=")
_HARMLESS: Final = re.compile(r"[A-Za-z0-9._:/~ -]{1,200}")  # no sign of keys, signatures or passwords
_KEY_LIKE: Final = re.compile(r"[A-Za-z0-9]{25}")
_FILE: Final = re.compile(r"/|\.(?:db|sqlite3?)$")
_API: Final = "/api/v1"
_ACCOUNT_URL: Final = re.compile(
    r"^https://(?P<account>[a-z0-9]{3,24})(?:\.(?:table|queue|blob))?(?P<suffix>\.core\.[a-z0-9.-]+)?/?$"
)


@dataclass(frozen=True, slots=True)
class Naming:
    """What is set beside the store.

    prefix: name of the table, and beginning of the queues' names. queues_per_operation: each kind of event has a queue
    of its own; all users of a store must agree on that. stalled_seconds: a graph of which nothing has moved for so long
    is marked. row_cache_mb: memory for rows that handlers know, so that they are not read again; None for the default.
    """

    prefix: str = DEFAULT_PREFIX
    queues_per_operation: bool = False
    stalled_seconds: float = limits.STALLED_SECONDS
    row_cache_mb: float | None = None


@dataclass(frozen=True, slots=True)
class StoreSettings(Naming):
    """Where graphs live. Exactly one of path, connection_string, table_endpoint, server, handed_in is set.

    server: where the API of one begins that is asked over HTTP, such as `https://host/api/v1`; token: that opens it.
    synchronous: of SQLite, `normal` or `full`. client_id: of a user-assigned identity. managed_identity: sign in as the
    machine, and try nothing else. handed_in: a store that is open already.
    """

    path: Path | None = None
    synchronous: str = "normal"
    connection_string: str = field(default="", repr=False)
    table_endpoint: str = ""
    queue_endpoint: str = ""
    blob_endpoint: str = ""
    client_id: str = ""
    managed_identity: bool = False
    server: str = ""
    token: str = field(default="", repr=False)
    handed_in: "Store | None" = None

    @property
    def cached_rows_max(self) -> int | None:
        """How many rows the row cache holds; None for the default."""
        return None if self.row_cache_mb is None else int(self.row_cache_mb * 1_000_000 / limits.KEPT_ROW_BYTES)

    @property
    def embedded(self) -> bool:
        return self.path is not None

    @property
    def shared(self) -> bool:
        """Whether it is a storage account or a server, which other machines and people use."""
        return bool(self.connection_string or self.table_endpoint or self.server)

    @property
    def display(self) -> str:
        """The store, for people: never with a key."""
        if self.path is not None:
            return f"sqlite:///{self.path}"
        if self.table_endpoint or self.server:
            return self.table_endpoint or self.server
        if self.handed_in is not None:
            return type(self.handed_in).__name__
        parts = dict(part.split("=", 1) for part in self.connection_string.split(";") if "=" in part)
        lowered = {name.strip().lower(): value.strip() for name, value in parts.items()}
        if lowered.get("usedevelopmentstorage", "").lower() == "true":
            return "the local storage emulator"
        account, suffix = lowered.get("accountname", ""), lowered.get("endpointsuffix", "core.windows.net")
        return lowered.get("tableendpoint", "").partition("?")[0] or f"https://{account}.table.{suffix}"

    def store_above(self, cwd: Path) -> str:
        """Of the default store of a folder: the nearest store in a folder above it, relative to it; otherwise ""."""
        if self.path != cwd / DEFAULT_PATH:
            return ""
        above = (number for number, folder in enumerate(cwd.parents, 1) if (folder / DEFAULT_PATH).is_file())
        return next(("../" * number + DEFAULT_PATH for number in above), "")


def read_settings(
    store: str | None, environ: Mapping[str, str], *, cwd: Path, token: str | None = None
) -> StoreSettings:
    """Settings from the option `--store` (None if not given) and the environment. token: in place of TASKGRAPH_TOKEN.

    Raises InvalidSettings, naming where the value came from.
    """
    naming = asdict(read_naming(environ))
    for source, text in (("the store given", store), (STORE_VARIABLE, environ.get(STORE_VARIABLE))):
        if text:
            named = _parse(text.strip(), source, environ, cwd)
            if named.server:  # which has a prefix of its own
                return replace(named, token=_token(environ.get(TOKEN_VARIABLE, "") if token is None else token))
            return replace(named, **naming)
    found = _of_connection(connection_name(environ), environ, cwd)
    return replace(found or StoreSettings(path=cwd / DEFAULT_PATH), **naming)


def read_connection(environ: Mapping[str, str], *, cwd: Path) -> StoreSettings:
    """Settings of a process that the Functions host feeds: rows live where its queues are.

    Raises InvalidSettings, naming the setting that is missing.
    """
    naming, name = read_naming(environ), connection_name(environ)
    if environ.get(STORE_VARIABLE):
        raise InvalidSettings(
            f"{STORE_VARIABLE} is set, and functions take their store from the connection {name}: remove one of them"
        )
    found = _of_connection(name, environ, cwd)
    if found is None:
        raise InvalidSettings(
            f"there is no storage account: set {name} to a connection string, or {name}__queueServiceUri and "
            f"{name}__tableServiceUri to the account's endpoints"
        )
    if found.embedded:
        raise InvalidSettings(f"{name} names a file: functions need a storage account")
    if naming.row_cache_mb is None:
        naming = replace(naming, row_cache_mb=limits.ROW_CACHE_MB_OF_FUNCTIONS)
    return replace(found, **asdict(naming))


def connection_name(environ: Mapping[str, str]) -> str:
    return environ.get(CONNECTION_VARIABLE, "") or HOST_VARIABLE


def read_naming(environ: Mapping[str, str]) -> Naming:
    """What is set beside the store. Raises InvalidSettings."""
    prefix = environ.get(PREFIX_VARIABLE, "") or DEFAULT_PREFIX
    if not _PREFIX.fullmatch(prefix):
        raise InvalidSettings(f"{PREFIX_VARIABLE}=“{prefix}”: 3 to 16 lower-case letters and digits, a letter first")
    queues = environ.get(QUEUES_VARIABLE, "") or _ONE_QUEUE
    if queues not in (_ONE_QUEUE, _PER_OPERATION):
        raise InvalidSettings(f"{QUEUES_VARIABLE}=“{queues}”: write {_ONE_QUEUE} or {_PER_OPERATION}")
    return Naming(prefix, queues == _PER_OPERATION, _stalled_seconds(environ), _row_cache_mb(environ))


def _row_cache_mb(environ: Mapping[str, str]) -> float | None:
    text = environ.get(ROW_CACHE_VARIABLE, "").strip()
    if not text:
        return None
    least, most = limits.ROW_CACHE_MB_MIN, limits.ROW_CACHE_MB_MAX
    if not _NUMBER.fullmatch(text) or not least <= float(text) <= most:
        raise InvalidSettings(f"{ROW_CACHE_VARIABLE}=“{text}”: megabytes, {least:,} to {most:,}")
    return float(text)


def _stalled_seconds(environ: Mapping[str, str]) -> float:
    text = environ.get(STALLED_VARIABLE, "")
    try:
        found = float(text) if text else limits.STALLED_SECONDS
    except ValueError:
        found = -1.0
    least, most = limits.STALLED_SECONDS_MIN, limits.STALLED_SECONDS_MAX
    if not least <= found <= most:
        raise InvalidSettings(f"{STALLED_VARIABLE}=“{text}”: seconds, {least:,.0f} to {most:,.0f}")
    return found


def _of_connection(name: str, environ: Mapping[str, str], cwd: Path) -> StoreSettings | None:
    """A connection as the Functions host reads it: `NAME`, or `NAME__queueServiceUri` and its like."""
    for prefixed in (name, f"AzureWebJobs{name}"):
        if text := environ.get(prefixed):
            return _parse(text.strip(), prefixed, environ, cwd)
        if found := _endpoints(prefixed, environ):
            return found
    return None


def _endpoints(name: str, environ: Mapping[str, str]) -> StoreSettings | None:
    """An identity-based connection: AzureWebJobsStorage__tableServiceUri and its like."""
    account = environ.get(f"{name}__accountName", "")
    ends = {
        kind: environ.get(f"{name}__{kind}ServiceUri", "")
        or (f"https://{account}.{kind}.core.windows.net" if account else "")
        for kind in ("table", "queue", "blob")
    }
    if not ends["table"] and not ends["queue"]:
        return None
    for kind in ("table", "queue"):
        if not ends[kind]:
            raise InvalidSettings(f"{name}__{kind}ServiceUri is missing beside its sibling")
    credential = environ.get(f"{name}__credential", "")
    if credential.lower() not in ("", "managedidentity"):
        raise InvalidSettings(f"{name}__credential=“{credential}”: write managedidentity, or leave it out")
    return StoreSettings(
        table_endpoint=ends["table"],
        queue_endpoint=ends["queue"],
        blob_endpoint=ends["blob"] or ends["table"].replace(".table.", ".blob.", 1),
        client_id=environ.get(f"{name}__clientId", ""),
        managed_identity=bool(credential),
    )


def _parse(text: str, source: str, environ: Mapping[str, str], cwd: Path) -> StoreSettings:
    if text == WITHHELD:
        raise InvalidSettings(
            "this command belongs to a task, and its worker keeps the key of the store to itself: start the worker "
            "with --with-store (or TASKGRAPH_WITH_STORE=on), or name a store here by --store"
        )
    if text.lower().startswith("sqlite:"):
        return _sqlite(text, source, cwd)
    if _CONNECTION_STRING.search(text):
        return StoreSettings(connection_string=text)
    if match := _ACCOUNT_URL.fullmatch(text):
        account, suffix = match["account"], match["suffix"] or ".core.windows.net"
        return StoreSettings(
            table_endpoint=f"https://{account}.table{suffix}",
            queue_endpoint=f"https://{account}.queue{suffix}",
            blob_endpoint=f"https://{account}.blob{suffix}",
            client_id=environ.get("AZURE_CLIENT_ID", ""),
        )
    if text.lower().startswith(("http://", "https://")) and (server := _server(text)):
        return StoreSettings(server=server)
    meant = f"; did you mean sqlite:///{text}?" if _is_file(text) else ""
    raise InvalidSettings(
        f"{source} is no store{_repeated(text)}: write sqlite:///PATH, a storage connection string, "
        f"https://ACCOUNT.table.core.windows.net, or https://HOST/api of a server{meant}"
    )


def _server(text: str) -> str:
    """Where the API of a server begins, by its address, alone or with the path of the API; "" for what is none."""
    try:
        parts = urlsplit(text)
        named = bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return ""
    path = parts.path.rstrip("/")
    if not named or parts.username is not None or parts.query or parts.fragment:
        return ""
    if path and not path.endswith(("/api", _API)):
        return ""
    return f"{parts.scheme.lower()}://{parts.netloc}{path.removesuffix('/v1').removesuffix('/api')}{_API}"


def _token(text: str) -> str:
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise InvalidSettings(f"{TOKEN_VARIABLE} is no token: it is printed by taskgraph token create")
    return text


def _repeated(text: str) -> str:
    """The text for a message; "" for one that may be a secret with a typing error in it."""
    harmless = _HARMLESS.fullmatch(text) and not _KEY_LIKE.search(text)
    return f" (“{text}”)" if harmless else ""


def _is_file(text: str) -> bool:
    return bool(_repeated(text)) and ":" not in text and bool(_FILE.search(text))


def _sqlite(text: str, source: str, cwd: Path) -> StoreSettings:
    parts = urlsplit(text)
    if not text.lower().startswith("sqlite:///") or len(parts.path) < 2:
        raise InvalidSettings(
            f"{source} is no store{_repeated(text)}: write sqlite:///relative/path.db or sqlite:////absolute/path.db"
        )
    options = parse_qs(parts.query)
    synchronous = options.pop("synchronous", ["normal"])[-1].lower()
    if options or synchronous not in ("normal", "full"):
        raise InvalidSettings(f"{source}: the only option is ?synchronous=normal or ?synchronous=full")
    return StoreSettings(path=cwd / unquote(parts.path[1:]), synchronous=synchronous)


def read_keep_days(environ: Mapping[str, str]) -> float | None:
    """For how many days a graph is kept after its end; None for ever. Raises InvalidSettings."""
    text = environ.get(KEEP_DAYS_VARIABLE, "").strip()
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        raise InvalidSettings(f"{KEEP_DAYS_VARIABLE}=“{text}”: write a number of days, such as 30 or 0.5")
    return float(text)
