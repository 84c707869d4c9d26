"""Commands that are started by a process of their own, the script `starter`, so many at a time and in order.

For short commands: they may be given ahead, and one begins where the last has ended, whatever the worker does just
then. Should that process be killed, its commands are ended, and their runs go back.
"""

import asyncio
import errno
import itertools
import logging
import os
import signal
import socket
import sys
import weakref
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from taskgraph.model.secrecy import Environment, Handed
from taskgraph.worker.executors import starter
from taskgraph.worker.executors.children import Child, NotBegun, inherited_descriptors
from taskgraph.worker.executors.orphans import guard
from taskgraph.worker.executors.orphans_guard import MARK, marked

log = logging.getLogger(__name__)

_SCRIPT: Final = str(Path(__file__).with_name("starter.py"))
_RECEIVED_BYTES: Final = 64 * 1024
_TOKEN: Final = b"TASKGRAPH_FENCING_TOKEN"  # in the environment of each command, and of no other


class Begun(Child):
    """A child of the starter. It is reaped there when this says so: until then its number is not given again."""

    own = False

    def __init__(self, pid: int, number: int, starting: "Starting") -> None:
        super().__init__(pid)
        self._number = number
        self._starting = starting
        self._code: int | None = None
        self._closed = self._reaped = False

    def end(self, code: int | None) -> None:
        """It has ended. code: None where that will never be known."""
        self._ended, self._code = True, code
        self.news.set()
        if self._closed:
            self._finish()

    def reap(self) -> int:
        if not self._reaped:
            self._reaped = True
            self._starting.reap(self._number)
        if self._code is None:
            raise OSError(errno.EIO, f"the exit code of process {self.pid} is lost: what had started it was ended")
        return self._code

    def close(self) -> None:
        self.signal_group(signal.SIGKILL)
        self._closed = True
        if self._ended:
            self._finish()

    def _finish(self) -> None:
        guard().forget(self.pid)
        with suppress(OSError):
            self.reap()


class Starting:
    """The starter of one event loop. ready: it is there, and takes orders. lost: it was ended, and takes none."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.ready = self.lost = False
        self._numbers = itertools.count(1)
        self._orders: dict[int, tuple[asyncio.Future[Child], bytes]] = {}  # that have not begun
        self._children: dict[int, Begun] = {}  # that have not ended
        self._width = 0
        self._environment: dict[bytes, bytes] = {}  # that the starter knows
        self._folder = _here()
        self._said: list[tuple[object, ...]] = []
        self._descriptors: list[int] = []
        self._incoming = starter.Incoming()
        guard().stand()
        self._socket, theirs = socket.socketpair()
        try:
            self.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", _SCRIPT],
                {**Environment(Handed()).copy(), MARK.encode(): guard().mark.encode()},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                    *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in inherited_descriptors()),
                ],
            )
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self._close = weakref.finalize(self, _end, self._socket, self.pid, os.getpid())
        # Not a method of this: the loop would keep it for ever.
        self.loop.add_reader(self._socket.fileno(), _receive, weakref.ref(self))

    # --- what is to be started

    def keep_to(self, width: int) -> None:
        """Have so many run at a time."""
        if width != self._width:
            self._width = width
            self._say((starter.WIDTH, width))

    def order(
        self, argv: Sequence[str], env: Mapping[bytes, bytes], cwd: str | None, output: int
    ) -> "asyncio.Future[Child]":
        """Have a program started when those before it have ended; see `children.spawn`. The future raises OSError."""
        if (here := _here()) != self._folder:  # the starter is still where the worker was
            cwd = os.path.join(here, cwd or "")
        number = next(self._numbers)
        begun: asyncio.Future[Child] = self.loop.create_future()
        self._orders[number] = begun, env.get(_TOKEN, b"")
        if not self._environment.keys() <= env.keys() or not self._environment:
            self._environment = dict(env)
            self._say((starter.ENVIRONMENT, self._environment))
        known = self._environment
        own = {name: value for name, value in env.items() if known.get(name) != value}
        self._say((starter.ORDER, number, list(argv), own, cwd), output)
        return begun

    def drop(self, begun: "asyncio.Future[Child]") -> "asyncio.Future[Child]":
        """Do not start this any more, unless it has begun; gives what shows which it is, also where that was cancelled.

        The future raises NotBegun.
        """
        for number, (each, token) in self._orders.items():
            if each is begun:
                if begun.cancelled():
                    begun = self.loop.create_future()
                    self._orders[number] = begun, token
                self._say((starter.DROP, number))
                break
        return begun

    def reap(self, number: int) -> None:
        if not self.lost:
            self._say((starter.REAP, number))

    def _say(self, words: tuple[object, ...], descriptor: int | None = None) -> None:
        """With all that is said in this turn of the loop. descriptor: goes along, and is closed."""
        if not self._said:
            self.loop.call_soon(self._send)
        self._said.append(words)
        if descriptor is not None:
            self._descriptors.append(descriptor)
            if len(self._descriptors) == starter.DESCRIPTORS_MAX:
                self._send()

    def _send(self) -> None:
        said, descriptors = self._said, self._descriptors
        if not said:
            return
        self._said, self._descriptors = [], []
        try:
            if not self.lost:
                data = starter.framed(said)
                with_them = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
                sent = self._socket.sendmsg([data], with_them)
                self._socket.sendall(data[sent:])
        except OSError as error:
            self._lose(str(error))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        if self.lost:
            self._refuse_all()

    # --- what comes of it

    def receive(self) -> None:
        try:
            data = self._socket.recv(_RECEIVED_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(str(error))
            return
        if not data:
            self._lose("it has ended")
            return
        self.ready = True
        for what, number, *more in self._incoming.whole(data):
            if what == starter.ENDED:
                self._children.pop(number).end(*more)
            else:
                begun, _ = self._orders.pop(number)
                _settle(begun, self._begin(number, *more) if what == starter.BEGAN else _why_not(*more))

    def _begin(self, number: int, pid: int) -> Begun:
        child = self._children[number] = Begun(pid, number, self)
        return child

    def _lose(self, why: str) -> None:
        """The starter was killed: nothing of it is to go on."""
        if self.lost:
            return
        log.warning("the process that starts commands has to be started anew: %s", why)
        self.ready, self.lost = False, True
        self.loop.remove_reader(self._socket.fileno())
        self._close()
        children, self._children = self._children, {}
        for child in children.values():
            child.signal_group(signal.SIGKILL)
            child.end(None)
        self._refuse_all()

    def _refuse_all(self) -> None:
        orders, self._orders = self._orders, {}
        for begun, token in orders.values():
            for group in marked(_TOKEN + b"=" + token):  # it may have begun, and this does not know
                with suppress(OSError):
                    os.killpg(group, signal.SIGKILL)
            _settle(begun, OSError(errno.EIO, "what was to start it was ended"))


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed, and none can go there any more
        return ""


def _settle(begun: "asyncio.Future[Child]", what: Begun | OSError) -> None:
    if begun.cancelled():
        pass
    elif isinstance(what, Begun):
        begun.set_result(what)
    else:
        begun.set_exception(what)


def _why_not(number: int = 0, text: str = "", path: Any = None) -> OSError:
    return OSError(number, text, path) if number else NotBegun(errno.ECANCELED, "it was not to be started")


def _receive(reference: "weakref.ref[Starting]") -> None:
    starting = reference()
    if starting is not None:
        starting.receive()


def _end(ours: socket.socket, pid: int, owner: int) -> None:
    ours.close()
    if os.getpid() == owner:  # and no fork of it
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
