"""The program that starter.c makes ends where what it is sent is nothing that a worker sends."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from taskgraph.worker.executors import starter, starting

COMPILED = starting.compiled()
pytestmark = pytest.mark.skipif(COMPILED is None, reason="it was installed without a compiler")
ORDER = starter.ORDER.pack


@pytest.mark.parametrize(
    "message",
    [
        b"short",
        ORDER(1, 0, 1, 0, 0, 0),
        ORDER(1, 0, 1, 1, 0, 0),
        ORDER(1, 0, 1, 1, 0, 0) + b"true",
        ORDER(1, 0, 1, 1, 0, 0) + b"true\0more\0",
        ORDER(1, 0, 1, 2, 0, 0) + b"true\0",
        ORDER(1, 0, 1, 2**32 - 1, 0, 0) + b"true\0",
        ORDER(1, 0, 1, 1, 2**32 - 1, 0) + b"true\0",
        ORDER(1, 0, 1, 1, 1, 0) + b"true\0A\0",
        ORDER(1, 0, 1, 1, 0, 2) + b"true\0a\0b\0",
        ORDER(1, 0, 1, 1, 0, 1) + b"true\0",
    ],
)
def test_an_order_that_is_none_ends_it(message: bytes) -> None:
    with given(message, b"") as process:
        assert process.wait(20) == 1


@pytest.mark.parametrize(
    "said",
    [
        starter.SAID.pack(2**32 - 1, starter.ENVIRONMENT, 1),
        starter.SAID.pack(0, 7, 1),
        starter.SAID.pack(0, starter.REAP, 0),
        starter.SAID.pack(0, starter.REAP, 2**63),
        starter.SAID.pack(1, starter.ENVIRONMENT, 1) + b"A",
        starter.SAID.pack(2, starter.ENVIRONMENT, 1) + b"A\0",
        starter.SAID.pack(3, starter.ENVIRONMENT, 1) + b"A\0B",
    ],
)
def test_what_no_worker_says_ends_it(said: bytes) -> None:
    with given(b"", said) as process:
        assert process.wait(20) == 1


@contextmanager
def given(order: bytes, said: bytes) -> Iterator["subprocess.Popen[bytes]"]:
    """The program alone, by the means of its worker, to which this is given when it is there."""
    assert COMPILED is not None
    ours, theirs = socket.socketpair()
    queue, taken = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, queue:
        with theirs, taken:
            process = subprocess.Popen([COMPILED], stdin=theirs.fileno(), stdout=taken.fileno())
        ours.send(b"\0")
        assert starter.NEWS.unpack(ours.recv(1000)) == (0, starter.HERE, process.pid, 0)
        if said:
            ours.send(said)
        if order:
            queue.send(order)
        yield process
