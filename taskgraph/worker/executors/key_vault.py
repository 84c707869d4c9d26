"""Secrets of an Azure Key Vault, by Microsoft's client: the extra `keyvault` brings it, and only a vault imports it.

The client is the one for threads: its connections need no loop to be closed in, and executors have no end of their own.
"""

import re
from typing import Any, Final

from taskgraph.model.errors import InvalidInput, InvalidSettings
from taskgraph.model.secrecy import PLACE_VARIABLE
from taskgraph.worker.executors.contract import TemporaryFailure

_ADDRESS: Final = re.compile(r"https://([A-Za-z0-9-]{3,24})\.vault\.(azure\.net|azure\.cn|usgovcloudapi\.net)/?")
_ANSWER_SECONDS: Final = 10
_FORBIDDEN: Final = 403
_FOR_NOW: Final = frozenset({408, 429})


class KeyVault:
    """The secrets at `https://NAME.vault.azure.net`, with the identity that this machine or person has.

    credential, transport: in place of those of the SDK. Raises InvalidSettings for an address that is no vault's, and
    where the client is not installed.
    """

    def __init__(self, address: str, *, credential: Any = None, transport: Any = None) -> None:
        match = _ADDRESS.fullmatch(address)
        if match is None:
            raise InvalidSettings(
                f"--secrets ({PLACE_VARIABLE}): “{address}” is no vault: write https://NAME.vault.azure.net"
            )
        try:
            from azure.identity import DefaultAzureCredential
            from azure.keyvault.secrets import SecretClient
        except ImportError as error:
            raise InvalidSettings(
                f"secrets of {address} need a package that is not here: pip install 'taskgraph-scheduler[keyvault]'"
            ) from error
        self.name, self.address = match[1], address.rstrip("/")
        # The environment is read now: the worker takes its own secrets out of it before the first run.
        self._client = SecretClient(
            self.address,
            credential or DefaultAzureCredential(),
            user_agent="taskgraph",
            retry_total=0,  # the task is tried again later, with growing pauses
            connection_timeout=_ANSWER_SECONDS,
            read_timeout=_ANSWER_SECONDS,
            **({"transport": transport} if transport is not None else {}),
        )

    def read(self, name: str) -> bytes:
        """The newest version of a secret, b"" if there is none; for threads, as it waits for the service.

        Raises InvalidInput where it cannot be read, and TemporaryFailure where it cannot be read now.
        """
        from azure.core.exceptions import (
            AzureError,
            ClientAuthenticationError,
            HttpResponseError,
            ResourceNotFoundError,
        )

        what = f"the secret “{name}” of {self.address}"
        if "_" in name:
            raise InvalidInput(f"{what} cannot exist: names in a vault have letters, digits and -")
        try:
            return (self._client.get_secret(name).value or "").encode()
        except ResourceNotFoundError:
            return b""
        except ClientAuthenticationError as error:
            raise InvalidInput(
                f"{what} cannot be read, as this worker cannot sign in: sign in by az login, or start it with the "
                "identity of its machine or the variables of one (AZURE_CLIENT_ID …)"
            ) from error
        except HttpResponseError as error:
            status = error.status_code or 0
            if status == _FORBIDDEN:
                raise InvalidInput(
                    f"{what} must not be read by this worker (HTTP 403): give its identity the role “Key Vault Secrets "
                    "User”; a secret that is disabled or has expired is refused, too"
                ) from error
            if status < 500 and status not in _FOR_NOW:
                raise InvalidInput(f"{what} cannot be read: HTTP {status}") from error
            wait = str(getattr(error.response, "headers", {}).get("retry-after", ""))
            seconds = float(wait) if wait.isascii() and wait.isdigit() and len(wait) < 9 else None
            raise TemporaryFailure(f"{what} cannot be read now: HTTP {status}", retry_after=seconds) from error
        except ValueError as error:  # by the client, which compares what the vault asks for with its address
            raise InvalidInput(f"{what} cannot be read: it asks for a token of another service") from error
        except AzureError as error:
            raise TemporaryFailure(f"{what} cannot be read now: the vault does not answer") from error
