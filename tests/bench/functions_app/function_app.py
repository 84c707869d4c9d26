"""The shipped function app with counted ports, as Microsoft's worker loads it for `tests.bench.functions`.

What this is for: the same functions, and on leaving a file (TASKGRAPH_BENCH_COUNTS) with what their process has asked
of the store. It never changes what they do.
"""

import atexit
import importlib.util
import json
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # before the folder of the same name that the worker's protocol brings

from tests.bench import counting  # noqa: E402

counts = counting.Counts()
counting.install(counts, azure=True)

spec = importlib.util.spec_from_file_location("shipped_app", ROOT / "deploy" / "function_app.py")
assert spec is not None
assert spec.loader is not None
shipped = importlib.util.module_from_spec(spec)
spec.loader.exec_module(shipped)
app = shipped.app


def tell() -> None:
    """What was counted, once the worker ends."""
    told = {**counts.take(), "cpu": time.process_time()}
    Path(os.environ["TASKGRAPH_BENCH_COUNTS"]).write_text(json.dumps(told))


atexit.register(tell)
