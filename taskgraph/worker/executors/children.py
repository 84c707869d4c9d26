"""Child processes of the worker, each in a session and process group of its own: started, watched and ended.

On Linux `posix_spawn` starts a child without copying the worker, and a pidfd shows its end. Elsewhere asyncio does
both, at a few times the cost. No group is signalled whose number may be another's by now.
"""

import asyncio
import functools
import logging
import os
import select
import signal
import subprocess
import sys
import weakref
from abc import ABC, abstractmethod
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from taskgraph.worker.executors.orphans import guard
from taskgraph.worker.executors.starter import OURS, actions, spawned

log = logging.getLogger(__name__)

_CODE_UNKNOWN: Final = 255  # what asyncio says, too, when the exit code of a child was taken elsewhere


class _Readers:
    """`add_reader` and `remove_reader` of a loop, by one epoll of their own: the loop's cost more than a short command.

    `remove_reader` is called once, before the descriptor is closed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._epoll = select.epoll()
        self._calls: dict[int, Callable[[], None]] = {}
        loop.add_reader(self._epoll.fileno(), self._call)

    def _call(self) -> None:
        ready = [(descriptor, self._calls.get(descriptor)) for descriptor, _ in self._epoll.poll(0)]
        for descriptor, call in ready:
            # By the one before, this one may be closed by now, and its number another's.
            if call is not None and self._calls.get(descriptor) is call:
                call()

    def add_reader(self, descriptor: int, call: Callable[[], None]) -> None:
        self._epoll.register(descriptor, select.EPOLLIN)
        self._calls[descriptor] = call

    def remove_reader(self, descriptor: int) -> None:
        del self._calls[descriptor]
        self._epoll.unregister(descriptor)


_readers: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Readers]" = weakref.WeakKeyDictionary()


def readers() -> "asyncio.AbstractEventLoop | _Readers":
    loop = asyncio.get_running_loop()
    if sys.platform != "linux":
        return loop
    found = _readers.get(loop)
    if found is None:
        found = _readers[loop] = _Readers(loop)
    return found


def _nothing() -> None:
    """Of a child without a waiter."""


class NotBegun(OSError):
    """What was to be started was dropped."""


class Child(ABC):
    """A process that was started, and the group that it leads. Used by one at a time.

    on_end: called when it has ended, unless `has_ended` has said so before. own: this process has started it.
    """

    own = True

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.on_end: Callable[[], None] = _nothing
        self._ended = False
        self._group_is_gone = False
        self._group_is_killed = False

    def guard(self) -> None:
        """Have its group ended with this process. Idempotent."""
        try:
            guard().watch(self.pid)
        except OSError as error:  # the child itself needs no guard
            log.warning("nothing will end process %s if this worker is killed: no guard: %s", self.pid, error)

    @property
    def has_ended(self) -> bool:
        """Of the process itself; others of its group may go on."""
        return self._ended

    async def wait(self) -> None:
        """Wait for its end. This takes the place of `on_end`."""
        ended = asyncio.Event()
        self.on_end = ended.set
        while not self.has_ended:
            ended.clear()
            await ended.wait()

    def signal_group(self, number: int) -> bool:
        """Signal its whole group; gives whether there was anything left that could be signalled."""
        if self._group_is_gone:
            return False
        if self._group_is_killed and number == signal.SIGKILL:
            return True
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            self._group_is_gone = True  # from now on the number may be given to others
            return False
        except PermissionError:  # only zombies (macOS), or another user's
            return False
        self._group_is_killed = number == signal.SIGKILL
        return True

    @abstractmethod
    def reap(self) -> int:
        """The exit code of a process that has ended, below 0 for a signal. Its number is free from here on."""

    @abstractmethod
    def close(self) -> None:
        """End what is left of the group, and give back what stood for it here."""


class _Spawned(Child):
    """A child whose end a pidfd shows. Until it is reaped, its number is not given again."""

    def __init__(self, pid: int, popen: "subprocess.Popen[bytes] | None") -> None:
        super().__init__(pid)
        self.guard()
        self._code: int | None = None
        self._popen = popen
        self._closed = False
        self._pidfd = os.pidfd_open(pid)
        try:
            readers().add_reader(self._pidfd, self._on_end)
        except BaseException:
            os.close(self._pidfd)
            raise
        self._watched = True

    @property
    def has_ended(self) -> bool:
        """Looks, as the end of the output, which comes just before, may have woken us."""
        if not self._ended:
            try:
                self._ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            except ChildProcessError:
                self._ended = True
        return self._ended

    def _on_end(self) -> None:
        self._ended = True
        self._unwatch()
        if self._closed:  # it was killed a moment ago, and nothing waits for it
            self._finish()
        else:
            self.on_end()

    def reap(self) -> int:
        if self._code is None:
            try:
                self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            except ChildProcessError:
                log.warning("the exit code of process %s was taken elsewhere: 255 stands for it", self.pid)
                self._code = _CODE_UNKNOWN
            if self._popen is not None:
                self._popen.returncode = self._code  # it would wait for the process by itself
        return self._code

    def close(self) -> None:
        """One that has not ended yet, as it was killed a moment ago, is reaped when it has."""
        self.signal_group(signal.SIGKILL)
        self._closed = True
        if self.has_ended:
            self._unwatch()
            self._finish()

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            readers().remove_reader(self._pidfd)

    def _finish(self) -> None:
        # In this order: what the guard forgets has been killed, and the number is still taken.
        guard().forget(self.pid)
        self.reap()
        os.close(self._pidfd)


class _Awaited(Child):
    def __init__(self, process: Process) -> None:
        super().__init__(process.pid)
        self.guard()
        self._process = process
        self._exiting = asyncio.create_task(process.wait())
        self._exiting.add_done_callback(self._on_end)

    def _on_end(self, _: "asyncio.Task[int]") -> None:
        self._ended = self._process.returncode is not None
        self.on_end()

    def reap(self) -> int:
        if self._process.returncode is None:
            raise RuntimeError("the exit code of a process was asked for before its end")
        return self._process.returncode

    def close(self) -> None:
        self.signal_group(signal.SIGKILL)
        guard().forget(self.pid)
        self._exiting.cancel()


@functools.cache
def can_spawn() -> bool:
    if sys.platform != "linux" or not hasattr(os, "pidfd_open") or not hasattr(os, "posix_spawn"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return error.errno in OURS
    return True


def spawn(argv: Sequence[str], env: Mapping[bytes, bytes], cwd: str | None, output: int) -> Child:
    """Start a program; output takes both of its streams, and is closed here, whatever happens.

    A name without a slash is sought on the PATH of its own environment. Raises OSError.
    """
    popen = None
    try:
        if cwd is None:
            mask = tuple(signal.pthread_sigmask(signal.SIG_BLOCK, ()))  # as it is
            pid = spawned([os.fsencode(word) for word in argv], dict(env), (*actions(output), *_other_actions()), mask)
        else:  # nothing can change the folder of a program that posix_spawn starts
            popen = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=cwd, env=env, start_new_session=True
            )
            pid = popen.pid
    finally:
        os.close(output)  # before the pidfd takes a number, so that this one is left for it
    try:
        return _Spawned(pid, popen)
    except BaseException:  # its end would go unnoticed
        os.killpg(pid, signal.SIGKILL)
        guard().forget(pid)
        os.waitpid(pid, 0)
        if popen is not None:
            popen.returncode = -signal.SIGKILL
        raise


async def start(argv: Sequence[str], env: Mapping[bytes, bytes], cwd: str | None, output: int) -> Child:
    """As `spawn`, by asyncio. Not to be cancelled half-way: the child would be left alone."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    finally:
        os.close(output)
    return _Awaited(process)


@functools.cache
def _other_actions() -> tuple[tuple[Any, ...], ...]:
    closed = ((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in inherited_descriptors())
    return (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), *closed


@functools.cache
def inherited_descriptors() -> tuple[int, ...]:
    """Descriptors that the worker's parent left open. Looked up once: what Python opens, a child does not inherit."""
    try:
        candidates = [int(name) for name in os.listdir("/dev/fd")]
    except FileNotFoundError:  # a root directory without /dev: few are handed on there
        candidates = list(range(256))
    found = []
    for descriptor in candidates:
        with suppress(OSError):  # not open, as the one that listed them is not any more
            if descriptor > 2 and os.get_inheritable(descriptor):
                found.append(descriptor)
    return tuple(found)
