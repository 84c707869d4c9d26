"""Commands that are started by processes of their own, starters: as many at a time as there are of these.

A starter is the script `starter`, or the program `starter.c`, where there was a compiler when this was installed.

For short commands: they may be given ahead, in order, and one begins where the last has ended, whatever the worker does
just then. What no starter has taken is taken back by this process, from the same end of the queue. Should a starter be
killed, the commands of all are ended, and their runs go back.
"""

import asyncio
import errno
import itertools
import logging
import os
import select
import signal
import socket
import sys
import weakref
import zlib
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from taskgraph.model.secrecy import Environment, Handed
from taskgraph.worker.executors import starter
from taskgraph.worker.executors.children import Child, NotBegun, inherited_descriptors
from taskgraph.worker.executors.orphans import above_standard, guard
from taskgraph.worker.executors.orphans_guard import MARK, marked
from taskgraph.worker.executors.output import NOTHING, Output

log = logging.getLogger(__name__)

_SCRIPT: Final = Path(starter.__file__)
_RECEIVED_BYTES: Final = 64 * 1024
_QUEUE_BYTES: Final = 1 << 20  # as far as the system grants them
_NEWS_SECONDS: Final = 0.004
_NEWS_ORDERS: Final = 8
"""News are looked at so often, and not at once, while there are more orders than so many for each slot."""
_OUTPUTS_BYTES: Final = socket.CMSG_SPACE(starter.NEWS_AT_A_TIME * 4)  # of descriptors that come with news
_TOKEN: Final = b"TASKGRAPH_FENCING_TOKEN"  # in the environment of each command, and of no other


@dataclass(eq=False)
class _Starter:
    """One of them, as this process sees it. pid: 0 until it is there. said: what is to be said to it.

    received: of the next news, so far. outputs: descriptors that have come, in the order of the news to which they
    belong.
    """

    socket: socket.socket
    pid: int = 0
    received: bytes = b""
    outputs: deque[int] = field(default_factory=deque)
    said: list[bytes] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _Order:
    """One that is not known to have begun. call: with what comes of it. token: by which its process is found.

    place: the program, and the folder.
    """

    call: "OnBegin"
    token: bytes
    place: tuple[str, str | None]


@dataclass(slots=True)
class _Letter:
    """An order on its way to the starters. file: of one that is longer, closed when it is sent, or dropped."""

    number: int
    data: bytes
    file: int | None = None

    def close(self) -> None:
        if self.file is not None:
            os.close(self.file)


class Ran(Child):
    """A child of a starter that has ended soon, printed nothing, and is over with there, as its group is."""

    own = False

    def __init__(self, code: int) -> None:
        super().__init__(0)
        self._code = code
        self._ended = self._group_is_gone = True

    def guard(self) -> None:
        """Nothing of it could outlive this process."""

    def reap(self) -> int:
        return self._code

    def close(self) -> None:
        """There is nothing to give back."""


class Begun(Child):
    """A child of a starter. It is reaped there when this says so: until then its number is not given again."""

    own = False

    def __init__(self, pid: int, starting: "Starting", of: _Starter) -> None:
        super().__init__(pid)
        self._starting = starting
        self._of = of
        self._code: int | None = None
        self._closed = self._reaped = False

    def end(self, code: int | None) -> None:
        """It has ended. code: None where that will never be known."""
        self._ended, self._code = True, code
        if self._closed:
            self._finish()
        else:
            self.on_end()

    def reap(self) -> int:
        if not self._reaped:
            self._reaped = True
            self._starting.say(self._of, starter.REAP, self.pid)
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


OnBegin = Callable[[Child | OSError, Output], None]
"""Called with the child once it has begun, and what it prints; or with the reason why it has not."""


class Starting:
    """The starters of one event loop. ready: they are there. lost: one was ended, and none takes orders any more.

    program: what they are in place of the script. unfit: they have never been there.
    """

    def __init__(self, width: int, program: str | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.width = width
        self.ready = self.lost = self.unfit = False
        self._numbers = itertools.count(1)
        self._orders: dict[int, _Order] = {}
        self._children: dict[int, Begun] = {}  # that have not ended
        self._environment: tuple[int, dict[bytes, bytes]] = 0, {}  # of the orders that come, and its number
        self._inherited: Mapping[bytes, bytes] = {}  # of the last order
        self._beside: dict[bytes, bytes] = {}  # of that: what is not in the environment
        self._folder = _here()
        self._words: tuple[tuple[str, ...], list[bytes]] = (), []  # of the last order, and how they are sent
        self._unsent: deque[_Letter] = deque()
        self._dropped: set[int] = set()
        self._is_to_send = False
        self._watched = True
        guard().stand()
        self._queue, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._taken = socket.socket(fileno=above_standard(end.detach()))  # the starters get it as one of these
        self._queue.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _QUEUE_BYTES)
        self._starters: dict[int, _Starter] = {}  # by the descriptor of its socket
        self._epoll = select.epoll()
        ends = [socket.socketpair() for _ in range(width)]
        for ours, _ in ends:
            self._starters[ours.fileno()] = _Starter(ours)
            self._epoll.register(ours.fileno(), select.EPOLLIN)
        parts = self._starters, self._queue, self._taken, self._epoll
        try:
            first = _begin_starters(program, self._taken, ends)
        except BaseException:
            _close_all(*parts)
            raise
        self._close = weakref.finalize(self, _end, parts, first, os.getpid())
        # Not a method of this: the loop would keep it for ever.
        self.loop.add_reader(self._epoll.fileno(), _receive, weakref.ref(self))

    @property
    def pids(self) -> list[int]:
        return [each.pid for each in self._starters.values()]

    @property
    def idle(self) -> bool:
        """Whether nothing is to be started, or has been and has not ended."""
        return not self._orders and not self._children

    # --- what is to be started

    def order(
        self,
        argv: tuple[str, ...],
        inherited: Mapping[bytes, bytes],
        own: dict[bytes, bytes],
        cwd: str | None,
        call: OnBegin,
    ) -> int:
        """Have a program started when those before it have ended; see `children.spawn`. Gives the order's number.

        inherited, own: its environment; own variables stand before those, of which many orders have the very same.
        call: with NotBegun if the order was dropped. Raises OSError.
        """
        if self.lost:
            raise OSError(errno.EIO, "what was to start it was ended")
        if (here := _here()) != self._folder:  # the starters are still where the worker was
            cwd = os.path.join(here, cwd or "")
        if inherited is not self._inherited:
            self._inherit(inherited)
        if self._beside:
            own = {**self._beside, **own}
        if argv is not self._words[0]:
            self._words = argv, [os.fsencode(word) for word in argv]
        texts = [*self._words[1], *itertools.chain.from_iterable(own.items())]
        if cwd is not None:
            texts.append(os.fsencode(cwd))
        number, counts = next(self._numbers), (len(argv), len(own), cwd is not None)
        data = starter.ORDER.pack(number, self.loop.time(), self._environment[0], *counts) + _texts(texts)
        self._orders[number] = _Order(call, own.get(_TOKEN, b""), (argv[0], cwd))
        if len(data) <= starter.ORDER_BYTES_MAX:
            self._unsent.append(_Letter(number, data))
        else:
            self._unsent.append(_Letter(number, starter.NUMBER.pack(number), _file_of(data)))
        if not self._is_to_send:
            self._send_at_once()
        return number

    def _inherit(self, env: Mapping[bytes, bytes]) -> None:
        """See to it that the starters know of this environment, and of nothing that it is without."""
        number, known = self._environment
        if not number or not known.keys() <= env.keys():
            self._environment = number, known = (
                number + 1,
                {name: value for name, value in env.items() if not number or name in known},
            )
            for each in self._starters.values():
                self.say(each, starter.ENVIRONMENT, number, _texts([*itertools.chain.from_iterable(known.items())]))
        self._inherited = env
        self._beside = {name: value for name, value in env.items() if known.get(name) != value}

    def drop(self, number: int) -> None:
        """Do not start this any more, unless it has begun."""
        if number in self._orders:
            self._dropped.add(number)
            self._send_soon()

    def say(self, to: _Starter, what: int, number: int, more: bytes = b"") -> None:
        to.said.append(starter.SAID.pack(len(more), what, number) + more)
        self._send_soon()

    def _send_soon(self) -> None:
        """With all that is said in this turn of the loop."""
        if not self._is_to_send:
            self._is_to_send = True
            self.loop.call_soon(self._send)

    def _send(self) -> None:
        self._is_to_send = False
        if self.lost:
            return
        try:
            for each in self._starters.values():
                if each.said:
                    said, each.said = each.said, []
                    each.socket.sendall(b"".join(said))
            if self._dropped:
                self._take_back()
            self._send_orders()
        except OSError as error:
            self._lose(str(error))

    def _send_at_once(self) -> None:
        """A starter begins with them then, whatever else this turn of the loop does."""
        try:
            self._send_orders()
        except OSError:  # not here, where orders are given, are those before them to come to their end
            self._send_soon()

    def _send_orders(self) -> None:
        """As many as there is room for; what is left is sent when there are news. Raises OSError."""
        try:
            while self._unsent:
                letter = self._unsent[0]
                if letter.file is None:
                    self._queue.send(letter.data, socket.MSG_DONTWAIT)
                else:
                    with_it = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [letter.file]))]
                    self._queue.sendmsg([letter.data], with_it, socket.MSG_DONTWAIT)
                self._unsent.popleft().close()
        except BlockingIOError:
            pass

    def _take_back(self) -> None:
        """Take what is in the queue out of it, and have sent again what was not dropped."""
        waiting = deque[_Letter]()
        while (letter := self._next()) is not None:
            waiting.append(letter)
        waiting += self._unsent
        dropped, self._dropped = self._dropped, set()  # any other has begun, which the news will say
        self._unsent = deque(letter for letter in waiting if letter.number not in dropped)
        for letter in waiting:
            if letter.number in dropped:
                letter.close()
                self._settle(letter.number, NotBegun(errno.ECANCELED, "it was not to be started"))

    def _next(self) -> _Letter | None:
        try:
            data, more, _, _ = self._taken.recvmsg(
                starter.ORDER_BYTES_MAX, socket.CMSG_SPACE(4), socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return None
        file = memoryview(more[0][2]).cast("i")[0] if more else None
        return _Letter(starter.NUMBER.unpack_from(data)[0], data, file)

    def _settle(self, number: int, what: Child | OSError, output: Output = NOTHING) -> None:
        self._call(self._orders.pop(number).call, what, output)

    def _call(self, call: Callable[..., None], *arguments: object) -> None:
        """What goes wrong with one is no reason to leave the others without their news."""
        try:
            call(*arguments)
        except Exception as error:
            what = "the news of a command could not be handled"
            self.loop.call_exception_handler({"message": what, "exception": error})

    # --- what comes of it

    def receive(self) -> None:
        try:
            for descriptor, _ in self._epoll.poll(0):
                while self._take_news(self._starters[descriptor]):
                    pass  # with one that has descriptors the system hands out no message that follows it
                if self.lost:
                    return
        except OSError as error:
            self._lose(str(error))
            return
        if self._unsent:
            self._send()
        many = len(self._orders) > _NEWS_ORDERS * self.width
        if self._watched == many:
            self._watched = not many
            if many:
                self.loop.remove_reader(self._epoll.fileno())
            else:
                self.loop.add_reader(self._epoll.fileno(), _receive, weakref.ref(self))
        if many:
            self.loop.call_later(_NEWS_SECONDS, _receive, weakref.ref(self))

    def _take_news(self, one: _Starter) -> bool:
        """Take what one has said; gives whether there may be more by now."""
        try:
            data, with_it, _, _ = one.socket.recvmsg(
                _RECEIVED_BYTES, _OUTPUTS_BYTES, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return False
        if not data:
            self._lose("it has ended")
            return False
        for _, _, descriptors in with_it:
            one.outputs.extend(memoryview(descriptors).cast("i"))
        data = one.received + data
        whole = len(data) // starter.NEWS.size * starter.NEWS.size
        one.received = data[whole:]
        for number, what, first, second in starter.NEWS.iter_unpack(data[:whole]):
            if what == starter.RAN:
                self._settle(number, Ran(first))
            elif what == starter.HERE:
                one.pid = first
                self.ready = all(each.pid for each in self._starters.values())
            elif what == starter.LEFT:
                child = Begun(first, self, one)
                child.end(second)
                self._settle(number, child, Output(one.outputs.popleft()))
            elif what == starter.BEGAN:
                child = self._children[number] = Begun(first, self, one)
                child.guard()
                self._settle(number, child, Output(one.outputs.popleft()))
            elif what == starter.ENDED:
                self._call(self._children.pop(number).end, first)
            else:
                self._settle(number, OSError(first, os.strerror(first), self._orders[number].place[second]))
        return bool(with_it)

    def _lose(self, why: str) -> None:
        """A starter was killed: nothing of any is to go on."""
        if self.lost:
            return
        log.warning("the processes that start commands have to be started anew: %s", why)
        self.unfit = not self.ready
        self.ready, self.lost = False, True
        if self._watched:
            self.loop.remove_reader(self._epoll.fileno())
        self._dropped.update(self._orders)
        self._take_back()
        self._close()
        children, self._children = self._children, {}
        for child in children.values():
            child.signal_group(signal.SIGKILL)
            self._call(child.end, None)
        for number, order in list(self._orders.items()):
            for group in marked(_TOKEN + b"=" + order.token):  # it may have begun, and this does not know
                with suppress(OSError):
                    os.killpg(group, signal.SIGKILL)
            self._settle(number, OSError(errno.EIO, "what was to start it was ended"))


def compiled() -> str | None:
    """The program that starter.c makes as it is now, where it was compiled and may be run."""
    source = _SCRIPT.with_suffix(".c")
    try:
        program = str(source.with_name(f"starter-{zlib.crc32(source.read_bytes()):08x}"))
    except OSError:
        return None
    return program if os.access(program, os.X_OK) else None


def _begin_starters(
    program: str | None, queue: socket.socket, ends: Sequence[tuple[socket.socket, socket.socket]]
) -> int:
    """Start the first, which makes the others; gives its process. ends: of their sockets. Raises OSError.

    They take orders from this end of a queue. program: in place of the script, if it can be started.
    """
    (ours, first), *others = ends

    def begun(*words: str) -> int:
        return os.posix_spawn(
            words[0],
            words,
            {**Environment(Handed()).copy(), MARK.encode(): guard().mark.encode()},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, first.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, queue.fileno(), 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in inherited_descriptors()),
            ],
        )

    script = sys.executable, "-I", "-S", str(_SCRIPT)
    try:
        try:
            pid = begun(*script) if program is None else begun(program)
        except OSError:
            if program is None:
                raise
            pid = begun(*script)
        descriptors = array("i", [theirs.fileno() for _, theirs in others])
        ours.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)] if descriptors else [])
    finally:
        for _, theirs in ends:
            theirs.close()
    return pid


def _texts(texts: Sequence[bytes]) -> bytes:
    """Raises ValueError if one holds the character that ends each."""
    data = b"\0".join((*texts, b""))
    if data.count(0) != len(texts):
        raise ValueError("embedded null byte")
    return data


def _file_of(data: bytes) -> int:
    """The descriptor of a file that holds this, and has no name."""
    descriptor = os.memfd_create("taskgraph-order")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    return descriptor


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed, and none can go there any more
        return ""


def _receive(reference: "weakref.ref[Starting]") -> None:
    starting = reference()
    if starting is not None and not starting.lost:
        starting.receive()


_Parts = tuple[dict[int, _Starter], socket.socket, socket.socket, select.epoll]


def _close_all(starters: dict[int, _Starter], queue: socket.socket, taken: socket.socket, epoll: select.epoll) -> None:
    epoll.close()
    for each in (queue, taken, *(one.socket for one in starters.values())):
        each.close()
    for one in starters.values():
        while one.outputs:
            os.close(one.outputs.popleft())


def _end(parts: _Parts, first: int, owner: int) -> None:
    _close_all(*parts)  # by which those end, too, that are made just now
    if os.getpid() == owner:  # and no fork of it
        for kill in (os.killpg, os.kill):  # the first may not lead its group yet
            with suppress(OSError):
                kill(first, signal.SIGKILL)
        with suppress(OSError):
            os.waitpid(first, 0)
