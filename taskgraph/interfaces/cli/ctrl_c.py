"""Where Ctrl-C is an exception: while work is under way that has to come to its end in order.

Elsewhere it ends the process at once (`taskgraph.__main__`), so that no import and no exit is cut by a traceback.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def as_exception() -> Iterator[None]:
    """Raise KeyboardInterrupt at SIGINT meanwhile, if it would end the process."""
    ends = signal.getsignal(signal.SIGINT) is signal.SIG_DFL and threading.current_thread() is threading.main_thread()
    try:
        if ends:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    finally:
        if ends:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
