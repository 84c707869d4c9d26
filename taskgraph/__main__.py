"""`python -m taskgraph`, and the console script: starts the command line, in a process that looks for garbage seldom.

Nearly all that a command allocates are the modules that it imports. The version needs none of them.
"""

import signal

from taskgraph import __version__

_ALLOCATIONS = 100_000  # between two looks for garbage; with Python's 700 a short command makes a hundred


def main() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until a command has begun, and once it has ended, Ctrl-C ends the process, without a traceback of imports.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    import contextlib
    import gc
    import sys

    if sys.argv[1:] == ["--version"] and sys.stdout is not None:
        with contextlib.suppress(OSError):  # what then happens is up to the command line
            sys.stdout.write(f"taskgraph {__version__}\n")
            sys.stdout.flush()
            return
    gc.set_threshold(_ALLOCATIONS, *gc.get_threshold()[1:])
    try:
        from taskgraph.interfaces import cli  # after the above, for that is most of what a short command does

        cli.main()
    finally:
        gc.freeze()  # or all that was imported is looked through once more as the process ends, for a fifth of its time


if __name__ == "__main__":
    main()
