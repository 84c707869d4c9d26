"""Secrets that commands ask for by name: found by the worker when a run begins, and masked in what the run leaves.

A value is masked where it stands as it is, or as JSON writes it; what a command encodes otherwise is not recognized.
"""

import asyncio
import json
import os
import re
import stat
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from taskgraph.model.errors import InvalidInput, InvalidSettings
from taskgraph.model.secrecy import PLACE_VARIABLE, Handed, variable_of_secret
from taskgraph.worker.executors.contract import Outcome, WriteLog, checked_result, failed
from taskgraph.worker.executors.key_vault import KeyVault

_ADDRESS: Final = "https://"
MASK: Final = "***"
SECRET_BYTES_MIN: Final = 4  # a shorter value would be masked in every other word, or not at all
SECRET_BYTES_MAX: Final = 8 * 1024
_OPEN_BITS: Final = stat.S_IWGRP | stat.S_IRWXO


class Secrets:
    """The secrets of one worker by name. Raises InvalidSettings if the place that it is to look in is none.

    vault: in place of the one at that place.
    """

    def __init__(self, handed: Handed, vault: KeyVault | None = None) -> None:
        self._values = handed.secrets
        self._vault = vault
        self._folder = ""
        if handed.place.startswith(_ADDRESS):
            self._vault = vault or KeyVault(handed.place)
        elif handed.place and not os.path.isdir(handed.place):
            raise InvalidSettings(
                f"--secrets ({PLACE_VARIABLE}): “{handed.place}” is no folder; make it, or name another, or a vault"
            )
        else:
            self._folder = handed.place

    async def find(self, name: str) -> bytes:
        """The variable of this name, or else what the folder or the vault has.

        Raises InvalidInput with what is missing or wrong with it, and TemporaryFailure if the vault gives none now.
        """
        variable = variable_of_secret(name)
        value = os.fsencode(self._values.get(variable, ""))
        if not value:
            value = self._read(name) if self._vault is None else await asyncio.to_thread(self._vault.read, name)
        if not value:
            raise InvalidInput(
                f"this worker has no secret “{name}”: set {variable} at its start, or {self._remedy(name)}"
            )
        if not SECRET_BYTES_MIN <= len(value) <= SECRET_BYTES_MAX:
            raise InvalidInput(
                f"the secret “{name}” has {len(value):,} bytes; "
                f"{SECRET_BYTES_MIN} to {SECRET_BYTES_MAX:,} can be masked"
            )
        if b"\0" in value:
            raise InvalidInput(f"the secret “{name}” holds the character NUL, which no variable can")
        return value

    def _remedy(self, name: str) -> str:
        if self._vault is not None:
            command = f"az keyvault secret set --vault-name {self._vault.name} --name {name}"
            return f"put it into {self._vault.address}: {command}"
        if self._folder:
            return f"write it to {self._folder}/{name}"
        return f"name a folder or a vault in {PLACE_VARIABLE}"

    def _read(self, name: str) -> bytes:
        """What the file says, without the end of its last line; b"" if there is none."""
        if not self._folder:
            return b""
        path = Path(self._folder, name)
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a FIFO must not make us wait
                mode = os.fstat(file.fileno()).st_mode
                if not stat.S_ISREG(mode):
                    raise InvalidInput(f"{path} of the secret “{name}” is no regular file")
                if mode & _OPEN_BITS:
                    raise InvalidInput(f"{path} of the secret “{name}” is open to other users: chmod 600 {path}")
                data = file.read(SECRET_BYTES_MAX + 2)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise InvalidInput(f"{path} of the secret “{name}” cannot be read: {error.strerror}") from error
        return data.removesuffix(b"\n").removesuffix(b"\r")


class Masked:
    """Writes a log with secrets masked, those that come in pieces too: a piece waits until it is known what it is."""

    def __init__(self, write_log: WriteLog, secrets: Iterable[bytes]) -> None:
        self._write_log = write_log
        self._forms = sorted({form for secret in secrets for form in _forms(secret)}, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._forms)))
        self._held = b""

    async def write(self, data: bytes) -> None:
        data = self._held + data
        made: list[bytes] = []
        at = 0
        hold = self._possible(data, at)
        while (match := self._pattern.search(data, at)) is not None and match.start() < hold:
            made += data[at : match.start()], MASK.encode()
            at = match.end()
            if at > hold:
                hold = self._possible(data, at)
        made.append(data[at:hold])
        self._held = data[hold:]
        if out := b"".join(made):
            await self._write_log(out)

    async def close(self) -> None:
        """Write what still waits; the beginning of a secret is masked as soon as it is as long as one may be."""
        held, self._held = self._held, b""
        if held:
            await self._write_log(MASK.encode() if len(held) >= SECRET_BYTES_MIN else held)

    def _possible(self, data: bytes, start: int) -> int:
        """Where the first secret may begin that is not whole yet; the length of the data if there is none."""
        found = len(data)
        for form in self._forms:
            at = data.find(form[:1], max(start, len(data) - len(form) + 1))
            while 0 <= at < found:
                if form.startswith(data[at:]):
                    found = at
                at = data.find(form[:1], at + 1)
        return found

    def text(self, text: str) -> str:
        return self._pattern.sub(MASK.encode(), text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def result(self, data: bytes | None) -> bytes | None:
        """The JSON text of a result with secrets masked. Raises InvalidInput if it is no result then."""
        if data is None:
            return None
        value = json.loads(data)
        made = self._in(value)
        return (
            data if made == value else checked_result(json.dumps(made, ensure_ascii=False).encode("utf-8", "replace"))
        )

    def _in(self, value: Any) -> Any:
        match value:
            case dict():
                return {self._in(key): self._in(member) for key, member in value.items()}
            case list():
                return [self._in(member) for member in value]
            case str():
                text = value.encode("utf-8", "surrogatepass")
                return self._pattern.sub(MASK.encode(), text).decode("utf-8", "surrogatepass")
            case int() | float() if self._pattern.search(json.dumps(value).encode()):
                return MASK
        return value


async def masked(
    secrets: Iterable[bytes], write_log: WriteLog, run: Callable[[WriteLog], Awaitable[Outcome]]
) -> Outcome:
    """What comes of a run that knows these secrets, with them masked in its log, its result and its reason."""
    mask = Masked(write_log, secrets)
    try:
        outcome = await run(mask.write)
    finally:
        await mask.close()
    try:
        return replace(outcome, reason=mask.text(outcome.reason), result=mask.result(outcome.result))
    except InvalidInput as error:
        return failed(str(error), exit_code=outcome.exit_code)


def _forms(secret: bytes) -> set[bytes]:
    """How a secret may stand in a log: as it is, with the line ends of a terminal, or in JSON."""
    text = secret.decode("utf-8", "replace")
    written = {json.dumps(text, ensure_ascii=plain)[1:-1].encode("utf-8", "replace") for plain in (True, False)}
    return {secret, secret.replace(b"\n", b"\r\n"), *written}
