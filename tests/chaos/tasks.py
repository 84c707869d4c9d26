"""What the tasks of the tests here do: write down that they run, and end as they are told.

For workers: `--python tests.chaos.tasks`. Every line goes into one file that all processes add to, so it tells what was
executed, whatever the rows say.
"""

import asyncio
import json
import os
import time
from typing import Any, Final

from taskgraph.worker.executors import Work
from taskgraph.worker.executors.contract import TemporaryFailure

RECORD_VARIABLE: Final = "TASKGRAPH_CHAOS_RECORD"


def _tell(context: Work, what: str, **more: Any) -> None:
    line = {
        "what": what,
        "graph": context.graph_id,
        "label": context.label,
        "run": context.run,
        "claim": context.claim,
        "pid": os.getpid(),
        "time": time.time(),
        **more,
    }
    place = os.open(os.environ[RECORD_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(place, (json.dumps(line) + "\n").encode())  # one write with O_APPEND: lines never mix
    finally:
        os.close(place)


async def work(context: Work, seconds: float = 0.0, fails: int = 0, later: int = 0) -> None:
    """Take so long, and fail in the runs before number `fails` (for ever, if it is below 0).

    later: in the runs before this number it fails for the moment.
    """
    _tell(context, "begin")
    await asyncio.sleep(seconds)
    if context.run < later:
        _tell(context, "end", failed=True)
        raise TemporaryFailure("told to come again")
    failed = fails < 0 or context.run < fails
    _tell(context, "end", failed=failed)
    if failed:
        raise RuntimeError("told to fail")
