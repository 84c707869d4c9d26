"""Files that a run has left: each lies beside its log, named after the SHA-256 of its bytes; a list has their paths."""

import asyncio
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from taskgraph.model.errors import IntegrityError
from taskgraph.model.paths import wrong_path
from taskgraph.storage.logs import Logs, Place

LIST_NAME: Final = "files.json"
CHUNK_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class KeptFile:
    """One file of a run. path: from the working folder of its task on, with `/`. digest: SHA-256, in hexadecimal."""

    path: str
    digest: str
    size: int
    executable: bool = False

    @property
    def name(self) -> str:
        """Of the file that holds its bytes."""
        return f"sha256-{self.digest}"


def summary(kept: Sequence[KeptFile]) -> dict[str, int]:
    """What the resolution of a task says of them."""
    return {"count": len(kept), "bytes": sum(each.size for each in kept)}


def list_text(kept: Sequence[KeptFile]) -> bytes:
    return json.dumps({each.path: [each.digest, each.size, each.executable] for each in kept}).encode()


async def listed(logs: Logs, place: Place) -> list[KeptFile] | None:
    """The files that a run has left; None for one that has left no list. Raises IntegrityError, StorageUnavailable."""
    text = await logs.read(*place, name=LIST_NAME, limit=CHUNK_BYTES)
    if text is None:
        return None
    try:
        kept = [KeptFile(path, *values) for path, values in json.loads(text).items()]
        wrong = any(wrong_path(each.path) or len(each.digest) != 64 for each in kept)
    except (ValueError, TypeError, AttributeError):
        wrong = True
    if wrong:
        raise IntegrityError(f"the list of files of {'/'.join(map(str, place))} is damaged")
    return kept


async def fetch(logs: Logs, kept: KeptFile, origin: Place, target: Path) -> bool:
    """Write a file of a run to a path; False where its bytes are gone, or are others. Raises OSError.

    It is there when it is whole, in place of what was there before.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    hashed, size = hashlib.sha256(), 0
    try:
        with part.open("wb") as file:
            while size < kept.size:
                data = await logs.read(*origin, name=kept.name, offset=size, limit=CHUNK_BYTES)
                if not data:
                    return False
                hashed.update(data)
                size += len(data)
                await asyncio.to_thread(file.write, data)
        if hashed.hexdigest() != kept.digest:
            return False
        if kept.executable:
            part.chmod(part.stat().st_mode | 0o111)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return True
