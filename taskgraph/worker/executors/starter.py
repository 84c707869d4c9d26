"""A starter: a script that starts commands of a worker, one at a time.

A process stands still while it starts another, and a worker has other things to do. So it has as many starters as
slots. They share a queue of orders, a socket (standard output): each takes the next one when its last command has
ended, without asking. `starting` runs them, and speaks with each on a socket of its own, the standard input. It imports
as little as it can. When the worker ends, so does this; what it has started is left to the guard (`orphans`).

starter.c is the same in C: what is changed in one is changed in the other, and tests of `starting` run with both.
"""

import _signal  # type: ignore[import-not-found]  # as `signal` and `socket` take longer to import than Python to start
import _socket
import _struct
import errno
import os
import select
import sys
import time

ENVIRONMENT, REAP = range(2)
"""What the worker says to one: an environment, by a number that orders name; a process that is over with. `SAID`: how
many bytes follow, which of the two, and the number. What follows are names and values of variables. Each text ends with
the character NUL, here and in orders, which it cannot hold."""
BEGAN, REFUSED, ENDED, LEFT, RAN, HERE = range(6)
"""The news. `NEWS`: the number of the order, which of these, and two numbers: the process; the error, and whether it is
the folder's; the exit code, below 0 for a signal; the process and the code of one that has ended soon, and left output
or something that may write; the code of one that has ended soon, and is over with: it printed nothing, and its group
was ended. First of all, without an order: the starter's own process. With BEGAN and LEFT comes the descriptor of what
it prints."""
SAID = _struct.Struct("=IIQ")
NEWS = _struct.Struct("=QIii")
ORDER = _struct.Struct("=QdIIII")
"""An order: its number, when it was given, the number of its environment, how many words, variables of its own and
folders follow, all as texts. Where a file comes with a message, it is all of the order, and the message the number."""
NUMBER = _struct.Struct("=Q")
SOON_SECONDS = 0.004
ORDER_BYTES_MAX = 32 * 1024
"""Of a message."""
STARTERS_MAX = 64
OURS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO})
"""Errors of this machine and not of what was to be started."""

IGNORED_BY_PYTHON = tuple(getattr(_signal, name) for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ") if hasattr(_signal, name))
"""And not to be ignored by a child, which would inherit that."""

_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})
_DEFAULT_PATH = os.fsencode(os.defpath)
_RECEIVED_BYTES = 64 * 1024
NEWS_AT_A_TIME = 8
_CMSG_BYTES = _socket.CMSG_SPACE(4)  # of one descriptor
_AT_A_TIME = 16  # orders: to listen after each one, mostly in vain, takes a twentieth of what starting one does


def actions(output: int) -> tuple[tuple[int, ...], ...]:
    """What puts this in the place of both streams of a process."""
    return (os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)


def spawned(
    argv: list[bytes],
    env: dict[bytes, bytes],
    actions: tuple[tuple[object, ...], ...],
    mask: tuple[int, ...],
    default: tuple[int, ...] = IGNORED_BY_PYTHON,
    found: dict[tuple[bytes, bytes], bytes] | None = None,
) -> int:
    """The number of a process that was started, in a session of its own. Raises OSError.

    A name without a slash is sought on the PATH of its own environment. actions: what is done with its descriptors.
    mask: signals that it blocks. default: that it does not ignore. found: where programs are, by PATH and name; gets
    what is sought.
    """
    start, name = os.posix_spawn, argv[0]
    found = {} if found is None else found
    path = env.get(b"PATH", _DEFAULT_PATH)
    known = name if b"/" in name else found.get((path, name))
    if known is not None:
        try:
            return start(known, argv, env, file_actions=actions, setsid=True, setsigmask=mask, setsigdef=default)
        except OSError as error:
            if known is name or error.errno in OURS:
                raise
            del found[path, name]  # it was there a moment ago
    places = [folder + b"/" + name if folder else name for folder in path.split(b":")]
    failure: OSError | None = None
    # Looking is much cheaper than trying. But only trying shows why, where none is executable.
    for executable in (True, False):
        for place in places:
            if executable and not os.access(place, os.X_OK):
                continue
            try:
                pid = start(place, argv, env, file_actions=actions, setsid=True, setsigmask=mask, setsigdef=default)
            except OSError as error:
                if error.errno in OURS:
                    raise
                if failure is None or failure.errno in _MISSING:
                    failure = error
            else:
                if place.startswith(b"/"):  # and not from a folder that may be another's
                    found[path, name] = place
                return pid
    try:
        raise failure or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    finally:
        failure = None  # an error that a frame of its own traceback holds is not let go of before the collector comes


def _variables(texts: list[bytes]) -> "zip[tuple[bytes, bytes]]":
    """Of names and values by turns."""
    return zip(texts[::2], texts[1::2], strict=True)


class _Starter:
    def __init__(self) -> None:
        self._worker = _socket.socket(fileno=os.dup(0))
        self._queue = _socket.socket(fileno=os.dup(1))
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)  # what all commands read
        os.dup2(nothing, 1)
        os.close(nothing)
        self._at_rest = select.poll()
        self._at_rest.register(self._queue.fileno(), select.POLLIN)
        self._at_rest.register(self._worker.fileno(), select.POLLIN)
        self._end_of_one = frozenset({_signal.SIGCHLD})
        self._ends = frozenset({os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED})  # of what comes by that signal
        self._mask = tuple(_signal.pthread_sigmask(_signal.SIG_BLOCK, self._end_of_one))  # as commands have it
        self._default = tuple(_not_ignored().union(IGNORED_BY_PYTHON))
        self._received = bytearray()  # of what the worker says
        self._news: list[bytes] = []  # that is to be sent, at that time
        self._outputs: list[int] = []  # that go with it
        # Of one command after the other the pipe has the same numbers, mostly. What is made of these is kept.
        self._writing, self._actions = -1, actions(-1)
        self._reading, self._printed = -1, select.poll()  # what a command prints, as it ends
        self._send_at = 0.0
        self._environments: dict[int, dict[bytes, bytes]] = {}
        self._found: dict[tuple[bytes, bytes], bytes] = {}  # where programs are
        self._looked = 0.0  # what is in it was found since
        self._folder = os.open(".", os.O_PATH | os.O_DIRECTORY)
        self._away = False  # from that folder

    def serve(self) -> None:
        self._news.append(NEWS.pack(0, HERE, os.getpid(), 0))
        self._send_news()
        while self._obey():
            for _ in range(_AT_A_TIME):
                order = self._next()
                if order is None:
                    self._send_news()
                    self._at_rest.poll()
                    break
                self._carry_out(order)

    def _say(self, what: int, number: int, first: int, second: int = 0) -> None:
        """With what is said within the next moment: there are other orders."""
        if not self._news:
            self._send_at = time.monotonic() + SOON_SECONDS
        self._news.append(NEWS.pack(number, what, first, second))
        if len(self._news) >= NEWS_AT_A_TIME or time.monotonic() >= self._send_at:
            self._send_news()

    def _send_news(self) -> None:
        if not self._news:
            return
        news, self._news = self._news, []
        data = b"".join(news)
        if self._outputs:
            outputs, self._outputs = self._outputs, []
            with_it = b"".join(each.to_bytes(4, sys.byteorder) for each in outputs)
            data = data[self._worker.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, with_it)]) :]
            for each in outputs:
                os.close(each)
        self._worker.sendall(data)

    def _obey(self, flags: int = _socket.MSG_DONTWAIT) -> bool:
        """Do what the worker says, if it says anything; gives whether it is there."""
        try:
            data = self._worker.recv(_RECEIVED_BYTES, flags)
        except BlockingIOError:
            return True
        received, at = self._received, 0
        received += data
        while len(received) - at >= SAID.size:
            length, what, number = SAID.unpack_from(received, at)
            start, end = at + SAID.size, at + SAID.size + length
            if end > len(received):
                break
            if what == REAP:
                os.waitpid(number, 0)
            else:
                self._environments[number] = dict(_variables(bytes(received[start:end]).split(b"\0")[:-1]))
            at = end
        del received[:at]
        return bool(data)

    def _next(self) -> bytes | None:
        """The next order; None while there is none."""
        try:
            data, more, flags, _ = self._queue.recvmsg(
                ORDER_BYTES_MAX, _CMSG_BYTES, _socket.MSG_DONTWAIT | _socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return None
        if not data or flags & _socket.MSG_CTRUNC:
            sys.exit()
        for _, _, descriptors in more:
            (descriptor,) = memoryview(descriptors).cast("i")
            data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
            os.close(descriptor)
        return data

    def _carry_out(self, order: bytes) -> None:
        number, asked, environment, words, own, folders = ORDER.unpack_from(order)
        texts = order[ORDER.size :].split(b"\0")
        argv = texts[:words]
        folder = texts[-2] if folders else None
        if asked > self._looked:  # what has run since may have put another program there, for this one to run
            self._looked = time.monotonic()
            self._found.clear()
        while environment not in self._environments:  # it was said before
            if not self._obey(0):
                sys.exit()
        try:
            reading, writing = os.pipe()
            try:
                if self._away or folder is not None:
                    self._go_to(folder)
                if writing != self._writing:
                    self._writing, self._actions = writing, actions(writing)
                env = self._environments[environment].copy()
                env.update(_variables(texts[words : words + 2 * own]))
                pid = spawned(argv, env, self._actions, self._mask, self._default, self._found)
            except BaseException:
                os.close(reading)
                raise
            finally:
                os.close(writing)
        except OSError as error:
            self._forget_ends()
            self._say(REFUSED, number, error.errno or errno.EIO, folder is not None and not self._away)
        else:
            self._see_through(number, pid, reading)

    def _go_to(self, folder: bytes | None) -> None:
        if self._away:
            os.fchdir(self._folder)
            self._away = False
        if folder is not None:
            os.chdir(folder)
            self._away = True

    def _see_through(self, number: int, pid: int, output: int) -> None:
        """Wait for its end. Most end so soon that one message says all of it, and print nothing."""
        until, left = time.monotonic() + SOON_SECONDS, SOON_SECONDS
        while left > 0 and (came := _signal.sigtimedwait(self._end_of_one, left)) is not None:
            # It may be news of another, or that this one was stopped, and one that waits keeps others from coming.
            if (came.si_pid == pid and came.si_code in self._ends) or self._has_ended(pid):
                if self._is_at_end(output):
                    os.close(output)
                    self._say(RAN, number, _end_group(pid))
                else:
                    self._outputs.append(output)
                    self._say(LEFT, number, pid, _exit_code(pid) or 0)
                return
            left = until - time.monotonic()
        self._outputs.append(output)
        self._say(BEGAN, number, pid)
        self._send_news()
        self._say(ENDED, number, self._wait(pid))

    def _has_ended(self, pid: int) -> bool:
        if _exit_code(pid) is None:
            return False
        self._forget_ends()
        return True

    def _forget_ends(self) -> None:
        """Let no signal wait for that says the end of a process: the next one may get its number."""
        while _signal.sigtimedwait(self._end_of_one, 0) is not None:
            pass

    def _is_at_end(self, output: int) -> bool:
        """Whether there is nothing in it, and nothing more can come."""
        if output != self._reading:
            if self._reading >= 0:
                self._printed.unregister(self._reading)
            self._reading = output
            self._printed.register(output, select.POLLIN)
        for _, found in self._printed.poll(0):
            return found == select.POLLHUP
        return False

    def _wait(self, pid: int) -> int:
        descriptor, either = os.pidfd_open(pid), select.poll()
        either.register(descriptor, select.POLLIN)
        either.register(self._worker.fileno(), select.POLLIN)
        while (code := _exit_code(pid)) is None:
            either.poll()
            if not self._obey():
                sys.exit()
        os.close(descriptor)
        self._forget_ends()
        return code


def _not_ignored() -> set[int]:
    """Signals that a child does not ignore. For each that is not named to it, it makes one more system call."""
    certain = _signal.SIGKILL, _signal.SIGSTOP
    return {
        number
        for number in _signal.valid_signals()
        if number not in certain and _signal.getsignal(number) != _signal.SIG_IGN
    }


def _end_group(pid: int) -> int:
    """End what is left of the group of a process that has ended, and let go of its number; gives its exit code."""
    try:  # noqa: SIM105 - `contextlib` takes its time to import
        os.killpg(pid, _signal.SIGKILL)
    except OSError:  # there is nothing left that could be ended
        pass
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _exit_code(pid: int) -> int | None:
    """Of one that has ended, which keeps its number; None before its end."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _fork() -> None:
    """Make the others, whose sockets come by that of the first. Starting Python for each takes 20 times as long."""
    first = _socket.socket(fileno=os.dup(0))
    _, more, _, _ = first.recvmsg(1, _socket.CMSG_SPACE(STARTERS_MAX * 4), _socket.MSG_CMSG_CLOEXEC)
    first.close()
    descriptors = memoryview(more[0][2]).cast("i").tolist() if more else []
    for descriptor in descriptors:
        if not os.fork():
            os.dup2(descriptor, 0)
            break
    for descriptor in descriptors:
        os.close(descriptor)


if __name__ == "__main__":
    os.setsid()  # what is meant for the group of the worker, as an interrupt at the terminal, is not for this one
    _fork()
    try:
        _Starter().serve()
    except ConnectionError:  # the worker has ended
        sys.exit()
