"""The command line with counted ports: `python -m tests.bench.counted_cli FILE ARGUMENT…`.

What this room is for: `taskgraph ARGUMENT…` as it is, and on leaving a file with what its process has asked of the
store. It never changes what a command does.
"""

import atexit
import json
import sys
import time
from pathlib import Path

from taskgraph.interfaces.cli import main
from tests.bench import counting


def begin(file: Path) -> None:
    """Count from here on, and tell in the end."""
    counts = counting.Counts()
    counting.install(counts, azure=True)
    atexit.register(lambda: file.write_text(json.dumps({**counts.take(), "cpu": time.process_time()})))


if __name__ == "__main__":
    begin(Path(sys.argv.pop(1)))
    main()
