"""Fresh ids: none is given twice, not even by a process and its forks."""

import os

from taskgraph.model.clock import SystemClock
from taskgraph.model.ids import is_task_id

COUNT = 40  # more than are drawn at once


def test_ids_are_fresh_and_of_the_usual_form() -> None:
    clock = SystemClock()
    ids = [clock.new_id() for _ in range(COUNT)] + [SystemClock().new_id() for _ in range(COUNT)]
    assert len(set(ids)) == len(ids)
    assert all(map(is_task_id, ids))


def test_a_fork_has_none_of_the_ids_of_its_parent() -> None:
    clock = SystemClock()
    clock.new_id()  # others are drawn with it
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            os.write(writing, "\n".join(clock.new_id() for _ in range(COUNT)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, encoding="ascii") as pipe:
        theirs = pipe.read().split("\n")
    assert len(set(theirs)) == COUNT
    assert not set(theirs) & {clock.new_id() for _ in range(COUNT)}
