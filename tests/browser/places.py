"""Every place of the page over the graphs of tests/browser/documents.py, and what is read there."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote

from tests.browser.documents import BIDI, HOSTILE_GROUPS, HOSTILE_LABELS, SCRIPT

Kind = Literal["api", "tables", "archive"]
"""What the page reads: a server, the table of an account, an archive of one graph."""

SERVER: Final = "A server works this out"
ALONE: Final = "the rows of one graph"
UNTOLD: Final = "A forecast needs a server"


@dataclass(frozen=True, slots=True)
class Place:
    """says: what is read there. tables, archive: what the page says instead where it reads that alone."""

    route: str
    says: str
    tables: str = ""
    archive: str = ""

    def read(self, kind: Kind) -> str:
        return {"api": "", "tables": self.tables, "archive": self.archive}[kind] or self.says


PLACES: Final[Sequence[Place]] = (
    Place("#/", "mixed"),
    Place("#/?state=blocked", "mixed"),
    Place("#/schedules", "yearly", archive=ALONE),
    Place("#/schedules/yearly", "Fire now", archive=ALONE),
    Place("#/workers", "2 workers", archive=ALONE),
    Place("#/queues", "default", archive=ALONE),
    Place("#/poison", "None: all messages", tables=SERVER, archive=SERVER),
    Place("#/doctor", "Sound", tables=SERVER, archive=SERVER),
    Place("#/compare?a=mixed&b=hostile", "Only in hostile", archive=ALONE),
    Place("#/nowhere", "There is no such page"),
    Place("#/g/mixed", "1 failed"),
    Place("#/g/mixed/dag", "build"),
    Place("#/g/mixed/dag?focus=test&depth=1", "Steps around it"),
    Place("#/g/mixed/time", "Critical path"),
    Place("#/g/mixed/time?forecast=1", "dashed: what is left", tables=UNTOLD, archive=UNTOLD),
    Place("#/g/mixed/forecast", "Ask anew", tables=UNTOLD, archive=UNTOLD),
    Place("#/g/mixed/tasks", "publish"),
    Place("#/g/mixed/events", "task-completed"),
    Place("#/g/mixed/at/3", "after event 3"),
    Place("#/g/mixed/plan", "Choose a change"),
    Place("#/g/mixed/plan?change=rerun&failed=1", "1 task would change"),
    Place("#/g/mixed/doctor", "Sound"),
    Place("#/g/mixed/notices", "names no channel"),
    Place("#/g/mixed/compare", "Compare two graphs", archive=ALONE),
    Place("#/g/mixed/t/test", "exit code 3"),
    Place("#/g/mixed/t/build/log", "red"),
    Place("#/g/mixed/t/publish/why", "failed"),
)

_OF_A_GRAPH: Final = (
    "",
    "/dag",
    "/time",
    "/tasks",
    "/events",
    "/at/3",
    "/plan",
    "/doctor",
    "/notices",
    "/compare",
    "/forecast",
)
_OF_A_TASK: Final = ("", "/log", "/why")


def _named(label: str, *parts: str) -> list[str]:
    return [f"#/g/hostile/t/{quote(label, safe='')}{part}" for part in parts]


def _listed(*texts: str) -> str:
    return quote(json.dumps(texts), safe="")


HOSTILE_ROUTES: Final[Sequence[str]] = (
    "#/",
    "#/workers",
    "#/queues",
    *(f"#/g/hostile{part}" for part in _OF_A_GRAPH),
    *(route for label in HOSTILE_LABELS for route in _named(label, *_OF_A_TASK)),
    *(route for label in ("fails", "refused", "answered") for route in _named(label, *_OF_A_TASK)),
    *(route for label in ("long lines", "garbage") for route in _named(label, "/log", "/log?wrap=1")),
    "#/g/hostile/time?forecast=1",
    f"#/g/hostile/forecast?drop={_listed(*HOSTILE_LABELS)}&limits={_listed(BIDI)}",
    "#/g/hostile/plan?change=cancel",
    f"#/g/hostile/plan?change=pause&group={quote(HOSTILE_GROUPS[0], safe='')}",
    f"#/g/hostile/tasks?q={quote(SCRIPT, safe='')}&state={quote(SCRIPT, safe='')}",
    f"#/g/{quote(SCRIPT, safe='')}",
    f"#/{quote(SCRIPT, safe='')}",
)
