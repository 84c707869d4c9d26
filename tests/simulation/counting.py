"""A plugin of pytest that counts the branches which tests take: `-p tests.simulation.counting`.

It has to be named on the command line, since the counters come before the first import of taskgraph. The counts go to
the file that TASKGRAPH_TEST_TAKEN names.
"""

import json
import os
from pathlib import Path

from tests.simulation import branches

branches.install()


def pytest_sessionfinish() -> None:
    counts = {"times": branches.TAKEN.times, "classes": branches.TAKEN.classes}
    Path(os.environ["TASKGRAPH_TEST_TAKEN"]).write_text(json.dumps(counts), "utf-8")
