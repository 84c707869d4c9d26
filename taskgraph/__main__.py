"""`python -m taskgraph`, and the console script: the door of the command line.

What this room is for: handing over to the command line, in a process that looks for garbage seldom: nearly all that a
command makes are the modules that it imports. It never does anything else itself.
"""

import gc
from typing import Final

_ALLOCATIONS: Final = 100_000  # between two looks for garbage; with Python's 700 a short command makes a hundred


def main() -> None:
    """Run the command that was typed, and end the process with its exit code."""
    gc.set_threshold(_ALLOCATIONS, *gc.get_threshold()[1:])
    try:
        from taskgraph.interfaces.cli import (
            main as run,  # after the above, for that is most of what a short command does
        )

        run()
    finally:
        gc.freeze()  # or all that was imported is looked through once more as the process ends, for a fifth of its time


if __name__ == "__main__":
    main()
