"""Files of runs: what a run leaves is kept by its content beside its log, and put where another run wants it.

A task with a `cache` is not run where a run of the same definition, inputs and results is known: the files of that run
are put in place, and are this run's, too.
"""

import asyncio
import glob
import hashlib
import logging
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from taskgraph.documents.results import NoResult, files_taken, put_in_files
from taskgraph.model.errors import IntegrityError, InvalidInput
from taskgraph.model.json_strict import canonical_json, show
from taskgraph.model.paths import wrong_path
from taskgraph.storage.kept_files import CHUNK_BYTES, LIST_NAME, KeptFile, fetch, list_text, listed
from taskgraph.storage.logs import Place
from taskgraph.worker.context import WorkerContext
from taskgraph.worker.executors import env_files
from taskgraph.worker.executors.contract import Work, payload_of
from taskgraph.worker.executors.results import ResultFiles

log = logging.getLogger("taskgraph.worker")

FILES_MAX: Final = 10_000
"""So many files may one task leave, or depend on."""

_AT_ONCE_BYTES_MAX: Final = 256 * 1024  # what is read sooner than a thread could be asked to
_DIGESTS_MAX: Final = 100_000
_NOT_IN_KEY: Final = frozenset({"cache", "inputs", "timeout"})


@dataclass(frozen=True, slots=True)
class FileOrder:
    """What a payload says of files.

    env_file: None too where another task leaves it. key: a text of the user's that enters the key of the cache.
    """

    folder: Path
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    cached: bool = False
    renewed: bool = False
    key: str = ""
    env_file: Path | None = None


def file_order(definition: Mapping[str, Any], folder: str = "") -> FileOrder | None:
    """None for a payload without files. Raises InvalidInput with what is wrong with it, in one sentence.

    folder: as in `Work`.
    """
    payload = payload_of(definition)
    cache = payload.get("cache", False)
    if "outputs" not in payload and "inputs" not in payload and cache is False:
        return None
    if not isinstance(cache, bool | dict):
        raise InvalidInput("payload.cache must be true, false, or an object")
    said = cache if isinstance(cache, dict) else {}
    cwd = payload.get("cwd")
    cwd = os.path.join(folder, cwd) if isinstance(cwd, str) else folder
    env_file = payload.get("envFile")
    return FileOrder(
        Path(cwd or ".").absolute(),
        _patterns(payload, "inputs"),
        _patterns(payload, "outputs"),
        cached=cache is not False,
        renewed=said.get("renew") is True,
        key=str(said.get("key", "")),
        env_file=Path(cwd, env_file) if isinstance(env_file, str) else None,
    )


def _patterns(payload: Mapping[str, Any], name: str) -> tuple[str, ...]:
    listed = payload.get(name, [])
    if not isinstance(listed, list):
        raise InvalidInput(f"payload.{name} must be a list of paths")
    for each in listed:
        if why := wrong_path(each):
            raise InvalidInput(f"payload.{name}: a path {why}")
    return tuple(listed)


def matching(folder: Path, patterns: Sequence[str], what: str) -> list[str]:
    """Paths of the files that the patterns name, in order. Raises InvalidInput for one that names none.

    `*` is any part of a name, `**` any folders; a folder means all that is in it.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        before = len(found)
        for name in sorted(glob.glob(pattern, root_dir=folder, recursive=True, include_hidden=True)):
            for path in _files_below(folder, name):
                found[path] = None
                if len(found) > FILES_MAX:
                    raise InvalidInput(f"payload.{what} name more than {FILES_MAX:,} files")
        if len(found) == before and not any(_files_below(folder, pattern)):
            raise InvalidInput(f"payload.{what}: there is no file {show(pattern)} in {folder}")
    return sorted(found)


def _files_below(folder: Path, name: str) -> Iterator[str]:
    whole = folder / name
    if whole.is_file():
        yield name
    elif whole.is_dir():
        for place, _, files in os.walk(whole):
            for each in files:
                yield (Path(place) / each).relative_to(folder).as_posix()


@dataclass(slots=True)
class RunFiles:
    """The files of the runs of one worker."""

    context: WorkerContext
    _digests: dict[str, tuple[tuple[int, int, int], str]] = field(default_factory=dict)
    _places: ResultFiles = field(default_factory=ResultFiles)

    # --- content

    async def digest(self, path: Path) -> str:
        """SHA-256 of a file, read again only when its size, time or inode have changed. Raises OSError."""
        status = os.stat(path)  # a look at a file is sooner done than a thread is asked
        known = self._digests.get(str(path))
        if known is not None and known[0] == _stamp(status):
            return known[1]
        found = _digest(path) if status.st_size <= _AT_ONCE_BYTES_MAX else await asyncio.to_thread(_digest, path)
        self._remember(path, status, found)
        return found

    async def _is_there(self, path: Path, digest: str) -> bool:
        try:
            return await self.digest(path) == digest
        except (FileNotFoundError, IsADirectoryError):
            return False

    def _remember(self, path: Path, status: os.stat_result, digest: str) -> None:
        if len(self._digests) >= _DIGESTS_MAX:
            self._digests.clear()
        self._digests[str(path)] = _stamp(status), digest

    # --- keeping

    async def keep(self, order: FileOrder, place: Place) -> list[KeptFile]:
        """Keep the outputs of a run. Raises InvalidInput for those that are not there, StorageError, OSError."""
        kept = []
        for path in matching(order.folder, order.outputs, "outputs"):
            whole = order.folder / path
            status = whole.stat()
            kept.append(KeptFile(path, await self.digest(whole), status.st_size, bool(status.st_mode & 0o100)))
        for each in {each.digest: each for each in kept}.values():
            await self._put(order.folder / each.path, place, each.name)
        await self._append(place, LIST_NAME, list_text(kept))
        return kept

    async def _put(self, path: Path, place: Place, name: str) -> None:
        with path.open("rb") as file:
            empty = True
            while data := await asyncio.to_thread(file.read, CHUNK_BYTES):
                await self._append(place, name, data)
                empty = False
        if empty:
            await self._append(place, name, b"")

    async def _append(self, place: Place, name: str, data: bytes) -> None:
        await self.context.keep_trying(lambda: self.context.logs.append(*place, data, name=name))

    async def take_over(self, origin: Place, place: Place, kept: Sequence[KeptFile]) -> bool:
        """Have the files of another run be this run's too; False where some are gone."""
        for name in [*dict.fromkeys(each.name for each in kept), LIST_NAME]:
            if not await self.context.logs.copy(origin, place, name):
                return False
        return True

    # --- putting back

    async def listed(self, place: Place) -> list[KeptFile] | None:
        """The files that a run has left; None where that is not known any more."""
        try:
            return await listed(self.context.logs, place)
        except IntegrityError as error:
            log.warning("%s", error)
            return None

    async def put(self, kept: KeptFile, origin: Place, target: Path) -> bool:
        """Have this file at a path; False where it is not kept any more, or damaged. Raises OSError."""
        if await self._is_there(target, kept.digest):
            return True
        if not await fetch(self.context.logs, kept, origin, target):
            return False
        self._remember(target, os.stat(target), kept.digest)
        return True

    async def put_in(self, work: Work, runs: Mapping[str, int], lists: Mapping[str, Sequence[KeptFile]]) -> "Placed":
        """The definition with local paths of the files that it takes. runs: taskId -> run. Raises NoResult, OSError."""
        place = self._places.new()
        folder = Path(place.removesuffix(".json") + ".files")
        texts = {}
        for task_id, label, path in files_taken(work.definition):
            kept = find(lists, task_id, label, path)
            target = folder / task_id / path
            if not await self.put(kept, (work.graph_id, task_id, runs[task_id]), target):
                raise NoResult(f"the file {show(path)} of {show(label)} is kept no longer, or damaged")
            texts[task_id, path] = str(target)
        return Placed(put_in_files(work.definition, texts), place, str(folder))

    def discard(self, place: str) -> None:
        """Remove the files that were put somewhere for one run."""
        self._places.discard(place)

    # --- the cache

    async def key(
        self, order: FileOrder, definition: Mapping[str, Any], lists: Mapping[str, Sequence[KeptFile]]
    ) -> str:
        """What two runs must have in common for one to stand for the other. Raises InvalidInput, NoResult, OSError."""
        texts = {
            (task_id, path): find(lists, task_id, label, path).digest
            for task_id, label, path in files_taken(definition)
        }
        payload = payload_of(put_in_files(definition, texts) if texts else definition)
        inputs = {
            path: await self.digest(order.folder / path) for path in matching(order.folder, order.inputs, "inputs")
        }
        said = {
            "payload": {name: value for name, value in payload.items() if name not in _NOT_IN_KEY},
            "executor": definition.get("executor", ""),
            "inputs": inputs,
            "key": order.key,
            "machine": f"{sys.platform} {platform.machine()}",
        }
        if order.env_file is not None:  # else not a word of it: keys of before stay
            said["envFile"] = hashlib.sha256(env_files.content(order.env_file)).hexdigest()
        return hashlib.sha256(canonical_json(said).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Placed:
    """A definition with paths of files in `folder`, which goes with `place`: that is to be discarded after the run."""

    definition: dict[str, Any]
    place: str
    folder: str


def find(lists: Mapping[str, Sequence[KeptFile]], task_id: str, label: str, path: str) -> KeptFile:
    """One file of those that a task has left. Raises NoResult with what there is."""
    kept = lists.get(task_id)
    for each in kept or ():
        if each.path == path:
            return each
    if kept is None:
        raise NoResult(f"the file {show(path)} of {show(label)} is needed, and that task has kept none")
    names = ", ".join(show(each.path) for each in kept[:5]) + (f" and {len(kept) - 5:,} more" if len(kept) > 5 else "")
    raise NoResult(f"the file {show(path)} of {show(label)} is needed, and it has kept {names or 'none'}")


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
