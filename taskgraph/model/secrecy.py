"""Which settings of a process are secrets, and what of its environment the commands of tasks get.

Commands get no secret of their worker: names that Azure, its libraries, OpenTelemetry and taskgraph read secrets from,
and values that hold the key of an account. On a shared store they get little else of its environment, unless their task
or the owner of the worker says so. A process of the same user could still look at the memory and first environment of
the worker, so `withdraw` has the system forbid that where it can.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from taskgraph.model.errors import InvalidSettings

PASS_VARIABLE: Final = "TASKGRAPH_PASS_ENV"  # noqa: S105 no password
STORE_VARIABLE: Final = "TASKGRAPH_WITH_STORE"
INHERIT_VARIABLE: Final = "TASKGRAPH_INHERIT_ENV"
PLACE_VARIABLE: Final = "TASKGRAPH_SECRETS"
SECRET: Final = "$secret"  # noqa: S105 no password

_SECRET_BEGINNING: Final = "TASKGRAPH_SECRET_"  # noqa: S105 no password
_SECRET_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)

_SIGN_IN: Final = re.compile(
    r"AZURE_(CLIENT_SECRET|CLIENT_CERTIFICATE_.*|USERNAME|PASSWORD|FEDERATED_TOKEN.*)"
    r"|(IDENTITY|MSI)_(ENDPOINT|HEADER|SECRET|SERVER_THUMBPRINT)|IMDS_ENDPOINT"
)
_BASIC: Final = re.compile(
    rb"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR"
    rb"|TASKGRAPH_(PREFIX|QUEUES)|AZURE_(CLIENT_ID|TENANT_ID|AUTHORITY_HOST)"  # for `taskgraph extend`; no secrets
)
_SECRET: Final = re.compile(
    r"TASKGRAPH_.*(SECRET|PASSWORD|KEY|SIGNING|TOKEN)"
    r"|AZURE_.*(SECRET|PASSWORD|KEY|TOKEN|SAS|CONNECTION)"
    r"|AZUREWEBJOBS(?!.*__)"
    r"|(WEBSITE|CONTAINER)_.*(KEY|SECRET|TOKEN)|MACHINEKEY_"
    r"|APPINSIGHTS_INSTRUMENTATIONKEY\Z|OTEL_EXPORTER_OTLP_(.+_)?HEADERS\Z"
)
_CONNECTION: Final = re.compile("CONNECTION_?STRING|CONNSTR_")  # anywhere in a name
_VALUE: Final = re.compile(r"(?i)AccountKey\s*=|SharedAccess(Key|Signature)\s*=|InstrumentationKey\s*=|[?&]sig=")
_ON: Final[Mapping[str, bool]] = {"": False, "off": False, "0": False, "on": True, "1": True}
_INHERITED: Final = "_data"  # where os.environ keeps the variables as bytes, in every version so far
_PR_SET_DUMPABLE: Final = 4


@dataclass(frozen=True, slots=True)
class Handed:
    """What of a worker's environment and secrets its commands get.

    names: of variables that all of them get; store: the store, with what opens it. secrets, place: where those are
    that a command asks for by name: values by their variables; a folder or the address of a vault, "" for none. clean:
    a command whose task has no `inheritEnv` gets `_BASIC`, `names` and what opens the store alone.
    """

    names: frozenset[str] = frozenset()
    store: bool = False
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    place: str = ""
    clean: bool = False


def read_handed(
    environ: Mapping[str, str],
    names: Iterable[str] = (),
    *,
    store: bool = False,
    inherit: bool = False,
    place: str = "",
    shared: bool,
) -> Handed:
    """The settings of this process. names, store, inherit, place: what its command line says. Raises InvalidSettings.

    shared: its store is an account, so that documents come from other machines and people.
    """
    listed = {each.strip() for each in environ.get(PASS_VARIABLE, "").split(",")}
    with_store, whole = _is_on(environ, STORE_VARIABLE), _is_on(environ, INHERIT_VARIABLE)
    return Handed(
        frozenset({*names, *listed} - {""}),
        store or with_store,
        {name: environ[name] for name in environ if name.startswith(_SECRET_BEGINNING)},
        place or environ.get(PLACE_VARIABLE, ""),
        clean=shared and not (inherit or whole),
    )


def _is_on(environ: Mapping[str, str], name: str) -> bool:
    said = environ.get(name, "").strip().lower()
    if said not in _ON:
        raise InvalidSettings(f"{name}=“{said}”: write on or off")
    return _ON[said]


def secret_named(value: Any) -> str | None:
    """The name in `{"$secret": "name"}`; None for anything else."""
    name = value.get(SECRET) if isinstance(value, Mapping) and len(value) == 1 else None
    return name if isinstance(name, str) and _SECRET_NAME.fullmatch(name) else None


def variable_of_secret(name: str) -> str:
    return _SECRET_BEGINNING + name.upper().replace("-", "_")


def is_secret(name: str, value: str) -> bool:
    upper = name.upper()
    if _SIGN_IN.fullmatch(upper) or _SECRET.match(upper) or _CONNECTION.search(upper):
        return True
    return "=" in value and bool(_VALUE.search(value))  # which has one in any case


def _is_handed_on(name: str, handed: Handed) -> bool:
    """Whether the owner of the worker gives this variable to all commands."""
    return name in handed.names or (handed.store and bool(_SIGN_IN.fullmatch(name.upper())))


def _is_kept(name: str, value: str, handed: Handed) -> bool:
    return is_secret(name, value) and not _is_handed_on(name, handed)


class Environment:
    """What commands get of the environment of this process; as bytes, which os.environ would decode and encode."""

    def __init__(self, handed: Handed) -> None:
        self._handed = handed
        self._seen: dict[bytes, bytes] = {}
        self._open: dict[bytes, bytes] = {}
        self._basic: dict[bytes, bytes] = {}
        self._usual: dict[bytes, bytes] = {}

    def copy(self) -> dict[bytes, bytes]:
        return dict(self.given())

    def given(self, said: bool | frozenset[bytes] | None = None) -> Mapping[bytes, bytes]:
        """said: `inheritEnv` of a task, None where it has none: all but the secrets, or what stands beside `_BASIC`.

        The very same one each time, as long as nothing changes and no names are said.
        """
        found = getattr(os.environ, _INHERITED, None)
        current = found if isinstance(found, dict) else dict(os.environb)
        if current != self._seen:
            self._look_through(current)
        if isinstance(said, frozenset):
            return self._basic | {name: value for name, value in self._open.items() if name in said}
        if said is None:
            return self._usual
        return self._open if said else self._basic

    def _look_through(self, current: Mapping[bytes, bytes]) -> None:
        handed = self._handed
        self._seen = dict(current)
        self._open = {
            name: value
            for name, value in current.items()
            if not _is_kept(os.fsdecode(name), os.fsdecode(value), handed)
        }
        self._basic = {name: value for name, value in self._open.items() if _BASIC.fullmatch(name)}
        self._usual = self._open
        if handed.clean:
            given = {name: value for name, value in self._open.items() if _is_handed_on(os.fsdecode(name), handed)}
            self._usual = self._basic | given


def withdraw(environ: MutableMapping[str, str], handed: Handed) -> list[str]:
    """Take the secrets out of a process's environment, once they have been read; gives their names."""
    names = [name for name, value in environ.items() if _is_kept(name, value, handed)]
    for name in names:
        del environ[name]
    if names:
        _close_memory()
    return names


def _close_memory() -> None:
    """Forbid other processes of the same user to look at this one: its first environment stays in its memory."""
    if sys.platform == "linux":
        import ctypes  # only where there are secrets

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
