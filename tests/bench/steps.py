"""The steps that the work for a task is counted under, and which code belongs to which of them.

What this room is for: the table, and looking up in it. A stack belongs to the innermost frame that the table names:
what a step calls and the table does not name (`re`, `datetime`, `enum`) is the step's own work. It never imports
taskgraph.
"""

from collections.abc import Mapping
from typing import Final

OTHER: Final = "other"
"""Stacks without any frame that the table names."""

GARBAGE: Final = "garbage"
"""Looking for garbage, in whatever step it comes."""

STEPS: Final[Mapping[str, tuple[str, ...]]] = {
    "documents": ("taskgraph.documents", "jsonschema_rs", "jsonschema", "taskgraph.model.schemas"),
    "submission": (
        "taskgraph.engine.submission",
        "taskgraph.engine.live_index",
        "taskgraph.protocol.definitions",
        "taskgraph.protocol.layout",
        "taskgraph.protocol.wiring",
    ),
    "message": (
        "taskgraph.model.messages",
        "taskgraph.engine.consumer",
        "taskgraph.engine.lead",
        "taskgraph.engine.poison",
        "taskgraph.storage.memory",
        "taskgraph.storage.own_queues",
        "taskgraph.storage.signals",
        "taskgraph.storage.sqlite.queues",
        "taskgraph.worker.intake",
        "taskgraph.worker.messages",
        "taskgraph.worker.queue_turns",
    ),
    "look-up": (
        "taskgraph.engine.row_cache",
        "taskgraph.engine.transact",
        "taskgraph.queries",
        "taskgraph.storage.sqlite.tables:EmbeddedTables.get",
        "taskgraph.storage.sqlite.tables:EmbeddedTables.query",
        "taskgraph.storage.sqlite.tables:_get",
        "taskgraph.storage.sqlite.tables:_query",
    ),
    "decide": (
        "taskgraph.protocol",
        "taskgraph.protocol.definitions:moment",
        "taskgraph.model.priorities",
        "taskgraph.model.timing",
    ),
    "rows and diffs": (
        "taskgraph.protocol.rows",
        "taskgraph.engine.commit",
        "taskgraph.model.columns",
        "taskgraph.model.ids",
        "taskgraph.storage.tables",
    ),
    "JSON": (
        "json",
        "taskgraph.model.json_strict",
        "taskgraph.model.utf16",
        "taskgraph.protocol.rows:Draft.read_json",
        "taskgraph.protocol.rows:Draft._list",
        "taskgraph.storage.azure.entities",
        "taskgraph.storage.sqlite.tables:_by_column",
        "taskgraph.storage.sqlite.tables:_decoded",
        "taskgraph.storage.sqlite.tables:_encode",
        "taskgraph.storage.sqlite.tables:_encode_alike",
        "taskgraph.storage.sqlite.tables:_encode_good",
        "taskgraph.storage.sqlite.tables:_encode_plain",
        "taskgraph.storage.sqlite.tables:_if_short",
        "taskgraph.storage.sqlite.tables:_kind",
        "taskgraph.storage.sqlite.tables:_parsed",
        "taskgraph.storage.sqlite.tables:_plain_float",
        "taskgraph.storage.sqlite.tables:_plain_int",
        "taskgraph.storage.sqlite.tables:_plain_time",
        "taskgraph.storage.sqlite.tables:_row_of",
        "taskgraph.storage.sqlite.tables:_time",
        "taskgraph.storage.sqlite.tables:_time_text",
    ),
    "limits": ("taskgraph.storage.checks", "taskgraph.model.limits"),
    "etags": ("taskgraph.storage.sqlite.tables", "taskgraph.storage.sqlite.file:Session.etags"),
    "SQLite": (
        "taskgraph.storage.sqlite.database",
        "taskgraph.storage.sqlite.file:Session",
        "taskgraph.storage.sqlite.file:_Checkpoints",
    ),
    "store calls": ("taskgraph.storage.sqlite.file",),
    "HTTP": ("taskgraph.storage.azure", "aiohttp", "azure", "multidict", "yarl"),
    "journal": (
        "taskgraph.model.facts",
        "taskgraph.protocol.context:Context.event",
        "taskgraph.protocol.context:Context.events_text",
        "taskgraph.protocol.context:Context.more_of",
        "taskgraph.protocol.context:Context.write_events",
        "taskgraph.protocol.decide:_event_row",
    ),
    "effects": (
        "taskgraph.engine.dispatch",
        "taskgraph.engine.handlers",
        "taskgraph.engine.listeners",
        "taskgraph.protocol.dispatch_windows",
        "taskgraph.protocol.limited_backlog",
    ),
    "claim": (
        "taskgraph.model.clock",
        "taskgraph.model.ids:slugid_from",
        "taskgraph.model.placement",
        "taskgraph.worker.claims",
        "taskgraph.worker.feeding",
        "taskgraph.worker.stock",
        "taskgraph.worker.target_gate",
    ),
    "executor": (
        "taskgraph.documents.results",
        "taskgraph.storage.logs",
        "taskgraph.storage.sqlite.logs",
        "taskgraph.worker",
        "subprocess",
    ),
    "report": (
        "taskgraph.worker.chain",
        "taskgraph.worker.local_link",
        "taskgraph.worker.loop:Worker._run_ended",
        "taskgraph.worker.reports",
    ),
    "loop": ("asyncio", "concurrent.futures", "selectors", "taskgraph.interfaces", "threading"),
}
"""Step -> its modules, `module:function` or `module:Class`. A package stands for its modules; the longest name counts.

message: received, parsed, acknowledged. look-up: rows by what is known or read. limits: sizes checked at the store's
door. etags: conditions of a commit, and the parameters of its statements. SQLite: statements, commits, checkpoints.
store calls: handing calls to their transaction and thread, and answers back. claim: stock, ids, offers. executor:
slots, runs, processes, logs.
"""

_STEP_OF: Final = {name: step for step, names in STEPS.items() for name in names}


def step_of(module: str, qualified: str) -> str:
    """The step of a function, by its module and qualified name; "" for one that the table does not name."""
    parts = qualified.replace(".<locals>", "").split(".")
    for size in range(len(parts), 0, -1):
        if found := _STEP_OF.get(f"{module}:{'.'.join(parts[:size])}"):
            return found
    name = module
    while name:
        if found := _STEP_OF.get(name):
            return found
        name = name.rpartition(".")[0]
    return ""
