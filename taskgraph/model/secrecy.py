"""Which settings of a process are secrets, and what of them the commands of tasks may have.

A worker's commands get its environment without its secrets: names that Azure, its libraries, OpenTelemetry and
taskgraph read secrets from, and values that hold the key of an account. A process of the same user could still look at
the memory and first environment of the worker, so `withdraw` has the system forbid that where it can.
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
FOLDER_VARIABLE: Final = "TASKGRAPH_SECRETS"
SECRET: Final = "$secret"  # noqa: S105 no password

_SECRET_BEGINNING: Final = "TASKGRAPH_SECRET_"  # noqa: S105 no password
_SECRET_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)

_SIGN_IN: Final = re.compile(
    r"AZURE_(CLIENT_SECRET|CLIENT_CERTIFICATE_.*|USERNAME|PASSWORD|FEDERATED_TOKEN.*)"
    r"|(IDENTITY|MSI)_(ENDPOINT|HEADER|SECRET|SERVER_THUMBPRINT)|IMDS_ENDPOINT"
)
_SECRET: Final = re.compile(
    r"\ATASKGRAPH_.*(SECRET|PASSWORD|KEY|SIGNING|TOKEN)"
    r"|\AAZURE_.*(SECRET|PASSWORD|KEY|TOKEN|SAS|CONNECTION)"
    r"|\AAZUREWEBJOBS(?!.*__)|CONNECTION_?STRING|CONNSTR_"
    r"|\A(WEBSITE|CONTAINER)_.*(KEY|SECRET|TOKEN)|\AMACHINEKEY_"
    r"|\AAPPINSIGHTS_INSTRUMENTATIONKEY\Z|\AOTEL_EXPORTER_OTLP_(.+_)?HEADERS\Z"
)
_VALUE: Final = re.compile(r"(?i)AccountKey\s*=|SharedAccess(Key|Signature)\s*=|InstrumentationKey\s*=|[?&]sig=")
_ON: Final[Mapping[str, bool]] = {"": False, "off": False, "0": False, "on": True, "1": True}
_INHERITED: Final = "_data"  # where os.environ keeps the variables as bytes, in every version so far
_PR_SET_DUMPABLE: Final = 4


@dataclass(frozen=True, slots=True)
class Handed:
    """What of a worker's secrets its commands get.

    names: of variables that all of them get; store: the store, with what opens it. secrets, folder: where those are
    that a command asks for by name, values by their variables, and files.
    """

    names: frozenset[str] = frozenset()
    store: bool = False
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: str = ""


def read_handed(environ: Mapping[str, str], names: Iterable[str] = (), *, store: bool = False) -> Handed:
    """The settings of this process. names, store: what its command line says. Raises InvalidSettings."""
    said = environ.get(STORE_VARIABLE, "").strip().lower()
    if said not in _ON:
        raise InvalidSettings(f"{STORE_VARIABLE}=“{said}”: write on or off")
    listed = {each.strip() for each in environ.get(PASS_VARIABLE, "").split(",")}
    secrets = {name: value for name, value in environ.items() if name.startswith(_SECRET_BEGINNING)}
    return Handed(frozenset({*names, *listed} - {""}), store or _ON[said], secrets, environ.get(FOLDER_VARIABLE, ""))


def secret_named(value: Any) -> str | None:
    """The name in `{"$secret": "name"}`; None for anything else."""
    name = value.get(SECRET) if isinstance(value, Mapping) and len(value) == 1 else None
    return name if isinstance(name, str) and _SECRET_NAME.fullmatch(name) else None


def variable_of_secret(name: str) -> str:
    return _SECRET_BEGINNING + name.upper().replace("-", "_")


def is_secret(name: str, value: str) -> bool:
    upper = name.upper()
    return bool(_SIGN_IN.fullmatch(upper) or _SECRET.search(upper) or _VALUE.search(value))


def _is_kept(name: str, value: str, handed: Handed) -> bool:
    if name in handed.names or not is_secret(name, value):
        return False
    return not (handed.store and _SIGN_IN.fullmatch(name.upper()))


class Environment:
    """The environment of this process without its secrets; as bytes, which os.environ would decode and encode."""

    def __init__(self, handed: Handed) -> None:
        self._handed = handed
        self._seen: dict[bytes, bytes] = {}
        self._open: dict[bytes, bytes] = {}

    def copy(self) -> dict[bytes, bytes]:
        found = getattr(os.environ, _INHERITED, None)
        current = found if isinstance(found, dict) else dict(os.environb)
        if current != self._seen:
            self._seen = dict(current)
            self._open = {
                name: value
                for name, value in current.items()
                if not _is_kept(os.fsdecode(name), os.fsdecode(value), self._handed)
            }
        return dict(self._open)


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
