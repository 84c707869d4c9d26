"""Every place of the page, over the graphs of tests/browser/documents.py."""

from typing import Final
from urllib.parse import quote

from tests.browser.documents import HOSTILE_LABELS, SCRIPT

OF_THE_STORE: Final = ("", "schedules", "workers", "queues", "poison", "doctor", "compare?a=mixed&b=hostile", "nowhere")
_OF_A_GRAPH: Final = ("", "/dag", "/time", "/tasks", "/events", "/at/3", "/plan", "/doctor", "/notices", "/compare")
_OF_A_TASK: Final = ("", "/log", "/why")


def of_graph(graph: str, task: str) -> list[str]:
    """Those of a graph and of one of its tasks."""
    named = f"#/g/{graph}/t/{quote(task, safe='')}"
    return [*(f"#/g/{graph}{each}" for each in _OF_A_GRAPH), *(f"{named}{each}" for each in _OF_A_TASK)]


ROUTES: Final = [*(f"#/{each}" for each in OF_THE_STORE), *of_graph("mixed", "test")]
HOSTILE_ROUTES: Final = [
    *of_graph("hostile", SCRIPT),
    *(f"#/g/hostile/t/{quote(each, safe='')}{part}" for each in HOSTILE_LABELS[1:] for part in ("", "/log")),
    "#/g/hostile/t/fails/log",
    "#/g/hostile/t/long%20lines/log",
    f"#/g/{quote(SCRIPT, safe='')}",
    f"#/{quote(SCRIPT, safe='')}",
    f"#/g/hostile/tasks?q={quote(SCRIPT, safe='')}&state={quote(SCRIPT, safe='')}",
]
