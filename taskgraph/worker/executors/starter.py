"""The starter: a script that starts the commands of a worker, so many at a time, in the order in which they came.

A process is stopped while it starts another, and a worker has other things to do: one command begins here where the
last has ended, without asking. `starting` runs it, and speaks with it on a socket, the standard input. It imports as
little as it can. When the worker ends, so does this; what it has started is left to the guard (`orphans`).
"""

import _signal  # type: ignore[import-not-found]  # as `signal` and `socket` take longer to import than Python to start
import _socket
import errno
import marshal
import os
import select

ORDER, DROP, REAP, WIDTH, ENVIRONMENT = range(5)
"""What the worker says: a number and what is to be started, with a descriptor for its output; numbers; how many; the
environment of all that follows, but for what each has of its own."""
BEGAN, REFUSED, DROPPED, ENDED = range(4)
"""The news, after the number: the process; errno, text, path; nothing; the exit code, below 0 for a signal."""
NEWS_MANY = 32
NEWS_SECONDS = 0.004
NEWS_ORDERS = 4
"""News wait until there are many, or none for so long, while there are more orders than so many for each slot."""
LENGTH_BYTES = 4  # of what follows, in front of each message
DESCRIPTORS_MAX = 250  # that the system takes with one message
OURS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO})
"""Errors of this machine and not of what was to be started."""

_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})
_IGNORED_BY_PYTHON = tuple(
    getattr(_signal, name) for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ") if hasattr(_signal, name)
)  # and not to be ignored by a child, which would inherit that
_RECEIVED_BYTES = 256 * 1024


def spawned(argv: list[str], env: dict[bytes, bytes], output: int, others: tuple[tuple[object, ...], ...]) -> int:
    """The number of a process that was started, in a session of its own. Raises OSError.

    A name without a slash is sought on the PATH of its own environment. output: takes both of its streams. others:
    what else is to be done with its descriptors.
    """
    actions = [(os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2), *others]

    def start(program: bytes | str) -> int:
        return os.posix_spawn(program, argv, env, file_actions=actions, setsid=True, setsigdef=_IGNORED_BY_PYTHON)

    if "/" in argv[0]:
        return start(argv[0])
    name = os.fsencode(argv[0])
    folders = env.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    places = [folder + b"/" + name if folder else name for folder in folders]
    failure: OSError | None = None
    # Looking is much cheaper than trying. But only trying shows why, where none is executable.
    for executable in (True, False):
        for place in places:
            if executable and not os.access(place, os.X_OK):
                continue
            try:
                return start(place)
            except OSError as error:
                if error.errno in OURS:
                    raise
                if failure is None or failure.errno in _MISSING:
                    failure = error
    try:
        raise failure or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    finally:
        failure = None  # an error that a frame of its own traceback holds is not let go of before the collector comes


def framed(said: list[tuple[object, ...]]) -> bytes:
    """A list of what is said, as it goes over the socket."""
    text = marshal.dumps(said)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


class Incoming:
    """What comes over the socket, piece by piece."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def whole(self, data: bytes) -> list:  # type: ignore[type-arg]
        """What has come as a whole by now."""
        self._bytes += data
        found, at = [], 0
        while len(self._bytes) - at >= LENGTH_BYTES:
            start = at + LENGTH_BYTES
            end = start + int.from_bytes(self._bytes[at:start], "little")
            if end > len(self._bytes):
                break
            found += marshal.loads(self._bytes[start:end])  # noqa: S302 by the worker that has started us
            at = end
        del self._bytes[:at]
        return found


class _Starter:
    def __init__(self) -> None:
        self._socket = _socket.socket(fileno=os.dup(0))
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)  # what all commands read
        os.close(nothing)
        self._epoll = select.epoll()
        self._epoll.register(self._socket.fileno(), select.EPOLLIN)
        self._incoming = Incoming()
        self._width = 1
        self._environment: dict[bytes, bytes] = {}
        self._outputs: list[int] = []  # descriptors that have come, for the orders that come with them
        # Orders by their numbers, in the order in which they came.
        self._queue: dict[int, tuple] = {}  # type: ignore[type-arg]
        self._running: dict[int, tuple[int, int]] = {}  # pidfd -> number and process
        self._ended: dict[int, int] = {}  # number -> process, which the worker has not done with
        self._news: list[tuple[object, ...]] = []
        self._folder = os.open(".", os.O_PATH | os.O_DIRECTORY)
        self._away = False  # from that folder

    def serve(self) -> None:
        self._socket.sendall(framed([]))
        wait: float | None = None
        while True:
            events = self._epoll.poll(wait)
            for descriptor, _ in events:
                if descriptor in self._running:
                    self._end(descriptor)
                elif not self._receive():
                    return
            while self._queue and len(self._running) < self._width:
                number = next(iter(self._queue))
                self._start(number, *self._queue.pop(number))
            wait = self._send_news(at_once=not events)

    def _send_news(self, *, at_once: bool) -> float | None:
        """Send the news, unless there is enough in the queue to wait for more; gives for how many seconds to wait."""
        if not at_once and 0 < len(self._news) < NEWS_MANY and len(self._queue) > NEWS_ORDERS * self._width:
            return NEWS_SECONDS
        if self._news:
            self._socket.sendall(framed(self._news))
            self._news.clear()
        return None

    def _receive(self) -> bool:
        data, more, flags, _ = self._socket.recvmsg(
            _RECEIVED_BYTES, _socket.CMSG_SPACE(4 * DESCRIPTORS_MAX), _socket.MSG_CMSG_CLOEXEC
        )
        if not data or flags & _socket.MSG_CTRUNC:  # or it cannot be known any more whose output is whose
            return False
        for _, _, descriptors in more:
            self._outputs += memoryview(descriptors).cast("i")
        for what, number, *order in self._incoming.whole(data):
            if what == ORDER:
                argv, own, folder = order
                self._queue[number] = argv, {**self._environment, **own}, folder, self._outputs.pop(0)
            elif what == REAP:
                os.waitpid(self._ended.pop(number), 0)
            elif what == WIDTH:
                self._width = number
            elif what == ENVIRONMENT:
                self._environment = number
            elif (dropped := self._queue.pop(number, None)) is not None:
                os.close(dropped[-1])
                self._news.append((DROPPED, number))
        return True

    def _start(self, number: int, argv: list[str], env: dict[bytes, bytes], folder: str | None, output: int) -> None:
        try:
            try:
                self._go_to(folder)
                pid = spawned(argv, env, output, ())
            finally:
                os.close(output)
        except OSError as error:
            self._news.append((REFUSED, number, error.errno, error.strerror, error.filename))
            return
        descriptor = os.pidfd_open(pid)
        self._epoll.register(descriptor, select.EPOLLIN)
        self._running[descriptor] = number, pid
        self._news.append((BEGAN, number, pid))

    def _go_to(self, folder: str | None) -> None:
        if self._away:
            os.fchdir(self._folder)
            self._away = False
        if folder is not None:
            os.chdir(folder)
            self._away = True

    def _end(self, descriptor: int) -> None:
        number, pid = self._running.pop(descriptor)
        self._epoll.unregister(descriptor)  # a child that has just begun may still have what is closed here
        os.close(descriptor)
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        self._ended[number] = pid
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status  # type: ignore[union-attr]
        self._news.append((ENDED, number, code))


if __name__ == "__main__":
    os.setsid()  # what is meant for the group of the worker, as an interrupt at the terminal, is not for this one
    _Starter().serve()
