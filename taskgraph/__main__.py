"""`python -m taskgraph`, and the console script: starts the command line, in a process that looks for garbage seldom.

Nearly all that a command allocates are the modules that it imports. The version needs none of them. Until work begins
that must come to its end in order (`interfaces.cli.ctrl_c`), and once it is over, Ctrl-C ends the process at once: as
early as can be, so next to nothing is imported here before.
"""

import gc
import signal
import sys

from taskgraph import __version__


def collect_seldom() -> None:
    """Look for garbage seldom from now on: with Python's 700 a short command does so a hundred times."""
    _, *older = gc.get_threshold()
    gc.set_threshold(100_000, *older)


def main() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # and not ignored, as in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:] == ["--version"] and sys.stdout is not None:
        try:
            sys.stdout.write(f"taskgraph {__version__}\n")
            sys.stdout.flush()
        except OSError:
            pass  # what then happens is up to the command line
        else:
            return
    collect_seldom()
    try:
        from taskgraph.interfaces import cli  # after the above, for that is most of what a short command does

        cli.main()
    finally:
        gc.freeze()  # or all that was imported is looked through once more as the process ends, for a fifth of its time


if __name__ == "__main__":
    main()
