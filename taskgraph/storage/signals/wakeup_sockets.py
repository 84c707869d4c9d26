"""Notifications between the processes of one machine, over Unix datagram sockets. Sending neither blocks nor raises.

A process that receives binds one socket per queue, in a folder that all processes of the store find; a sender sends a
byte to one of them for each message. Waking them all would make all but one ask the store in vain. A process of which
no receiver waits passes the byte on; it says how often that may still be done.
"""

import asyncio
import contextlib
import hashlib
import os
import re
import socket
import stat
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from taskgraph.model.clock import Clock
from taskgraph.storage.private_files import folder_mode, make_folder

OnNotification = Callable[[str], bool]
"""Called with the queue of a notification; gives whether a receiver was waiting for it."""

_PATH_BYTES_MAX: Final = 103  # of a socket's path: 107 on Linux, 103 elsewhere
_NAME: Final = re.compile(r"^[0-9a-f]{12}\.[A-Za-z0-9_-]{1,20}$")
_FOLDER: Final = re.compile(r"taskgraph-[0-9]+-[0-9a-f]{16}")
_NAME_BYTES: Final = 12 + 1 + 20
_PASSES_MAX: Final = 255  # they are one byte
_YOUNG_SECONDS: Final = 60.0  # a socket that was bound so lately is left alone
_SETTLED_SECONDS: Final = 0.1  # a folder that changed so lately may change again within the same tick of its time


class WakeupSockets:
    """The sockets of one process.

    name: of the store within the folder. reaches_all: every process that could send has this folder. store: the file
    that it lies beside; None if it lies where others may write, and has to be this user's own.
    """

    def __init__(
        self, folder: Path, name: str, clock: Clock, *, reaches_all: bool = True, store: Path | None = None
    ) -> None:
        self._store = store
        self.reaches_all = reaches_all
        self._folder = folder
        self._name = name
        self._clock = clock
        self._keys: dict[str, str] = {}
        self._sockets: dict[str, tuple[str, socket.socket]] = {}  # by queue: the name of our socket there
        self._listens = False
        self._sender: socket.socket | None = None
        self._wanted: Counter[str] = Counter()  # notifications of this turn of the loop
        self._listed: dict[str, list[str]] = {}
        self._listed_at = -1
        self._turn = os.getpid()  # senders that live for one message do not all begin with the same receiver

    @classmethod
    def beside(cls, file: Path, clock: Clock) -> "WakeupSockets":
        """The sockets of a store that is a file: in a folder beside it, or of the user where its path is too long."""
        file = Path(os.path.realpath(file))
        folder = file.parent / "bells"
        if len(os.fsencode(folder)) + 1 + _NAME_BYTES > _PATH_BYTES_MAX:
            return cls(_folder_of_user(str(file)), file.name, clock)
        return cls(folder, file.name, clock, store=file)

    @classmethod
    def of_user(cls, store: str, clock: Clock) -> "WakeupSockets":
        """The sockets of a store elsewhere, for this user's processes. store: its address, with no key."""
        return cls(_folder_of_user(store), store, clock, reaches_all=False)

    def listen(self, queue: str, on_notification: OnNotification) -> bool:
        """Call this at each notification for a queue from now on; gives whether they can come."""
        own = self._sockets.get(queue)
        if own is not None:
            if os.access(self._folder / own[0], os.F_OK):
                return True
            self._unbind(queue)  # the folder was cleared away
        try:
            self._bind(queue, on_notification)
        except (OSError, NotImplementedError):  # read-only, too long, or a loop that cannot watch sockets
            return False
        return True

    def notify(self, queue: str, count: int = 1) -> None:
        """So many messages were sent to a queue. The notifications of one turn of the loop go out after it."""
        if not self._wanted:
            asyncio.get_running_loop().call_soon(self._flush)
        self._wanted[queue] += count

    def close(self) -> None:
        """Send what is left to send. Idempotent."""
        self._flush()
        for queue in list(self._sockets):
            self._unbind(queue)
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        if self._listens:
            self._listens = False
            with contextlib.suppress(OSError):  # others still listen there
                os.rmdir(self._folder)

    def clear(self) -> int:
        """Remove the sockets of processes that are gone, of this store and others of the user; gives how many.

        Unused folders of the user go too. May be called in a thread of its own.
        """
        young = self._clock.now().timestamp() - _YOUNG_SECONDS
        removed = _clear(self._folder, young)
        for folder in Path(tempfile.gettempdir()).glob(f"taskgraph-{os.getuid()}-*"):
            with contextlib.suppress(OSError):
                found = os.lstat(folder)
                if _FOLDER.fullmatch(folder.name) and _is_users_own(found):
                    removed += _clear(folder, young)
                    if found.st_mtime < young:
                        os.rmdir(folder)  # unless a process listens there
        return removed

    def _bind(self, queue: str, on_notification: OnNotification) -> None:
        self._listens = True
        make_folder(self._folder, folder_mode(self._store))
        if not self._trusted(os.lstat(self._folder)):
            raise PermissionError(str(self._folder))
        name = f"{self._key(queue)}.{os.getpid()}-{self._clock.new_id()[:8]}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            listener.setblocking(False)
            listener.bind(str(self._folder / name))
            asyncio.get_running_loop().add_reader(listener, self._receive, queue, listener, on_notification)
        except BaseException:
            listener.close()
            raise
        self._sockets[queue] = (name, listener)

    def _unbind(self, queue: str) -> None:
        name, listener = self._sockets.pop(queue)
        with contextlib.suppress(RuntimeError):  # closed after its loop
            asyncio.get_running_loop().remove_reader(listener)
        listener.close()
        with contextlib.suppress(OSError):
            os.unlink(self._folder / name)

    def _receive(self, queue: str, listener: socket.socket, on_notification: OnNotification) -> None:
        while True:
            try:
                passes = listener.recv(8)
            except OSError:  # nothing left
                return
            if not on_notification(queue) and passes and passes[0]:
                self._pass_on(queue, passes[0])

    def _pass_on(self, queue: str, passes: int) -> None:
        own = self._sockets[queue][0]
        others = self._listeners(queue)
        later = [name for name in others if name > own] + [name for name in others if name < own]
        for name in later[:passes]:
            passes -= 1
            if self._send(name, passes):
                return

    def _flush(self) -> None:
        wanted, self._wanted = self._wanted, Counter()
        for queue, count in wanted.items():
            others = self._listeners(queue)
            passes = 0 if count >= len(others) else min(len(others) - 1, _PASSES_MAX)
            self._turn += 1
            for at in range(len(others)):
                if count <= 0:
                    break
                count -= self._send(others[(self._turn + at) % len(others)], passes)

    def _send(self, name: str, passes: int) -> bool:
        path = self._folder / name
        try:
            if self._sender is None:
                self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._sender.setblocking(False)
            self._sender.sendto(bytes((passes,)), str(path))
        except ConnectionRefusedError:  # its process has died
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.lstat(path).st_mode):
                    os.unlink(path)
            return False
        except OSError:  # gone, full, or not for us
            return False
        return True

    def _listeners(self, queue: str) -> list[str]:
        """The sockets of other processes for a queue, sorted. The folder is read when it has changed."""
        try:
            found = os.lstat(self._folder)
            if found.st_mtime_ns != self._listed_at:
                if not self._trusted(found):
                    return []
                listed: dict[str, list[str]] = {}
                for name in sorted(filter(_NAME.match, os.listdir(self._folder))):
                    listed.setdefault(name.partition(".")[0], []).append(name)
                settled = self._clock.now().timestamp() - found.st_mtime > _SETTLED_SECONDS
                self._listed, self._listed_at = listed, found.st_mtime_ns if settled else -1
        except OSError:  # no process listens, or not here
            return []
        own = self._sockets.get(queue)
        return [name for name in self._listed.get(self._key(queue), ()) if own is None or name != own[0]]

    def _trusted(self, found: os.stat_result) -> bool:
        return self._store is not None or _is_users_own(found)

    def _key(self, queue: str) -> str:
        key = self._keys.get(queue)
        if key is None:
            key = self._keys[queue] = _digest(f"{self._name}\n{queue}")[:12]
        return key


def _is_users_own(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _clear(folder: Path, young: float) -> int:
    """Remove the sockets of a folder to which no process listens; gives how many.

    young: those made since then stay: one that is just being bound looks like one of a process that is gone.
    """
    removed = 0
    with contextlib.suppress(OSError):
        for name in filter(_NAME.match, os.listdir(folder)):
            with contextlib.suppress(OSError):  # removed by others
                found = os.lstat(folder / name)
                if stat.S_ISSOCK(found.st_mode) and found.st_mtime < young and _is_dead(folder / name):
                    os.unlink(folder / name)
                    removed += 1
    return removed


def _is_dead(path: Path) -> bool:
    """Whether nothing can be sent to a socket because its process is gone."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except OSError as error:
            return isinstance(error, ConnectionRefusedError)
    return False


def _folder_of_user(store: str) -> Path:
    return Path(tempfile.gettempdir(), f"taskgraph-{os.getuid()}-{_digest(store)[:16]}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
