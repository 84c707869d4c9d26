"""Which status each sender gets from each route: `python -m tests.http.access_table` prints it as a table.

Columns: without a token, with one of each role, with a share token of the very graph, and of another one, and with a
token of Entra ID for each app role.
"""

import asyncio
import io
import tempfile
from pathlib import Path
from typing import Any, Final

from taskgraph.engine.archive_file import Writer
from taskgraph.interfaces.http.entra import ROLES
from taskgraph.interfaces.http.routes import FILE_BODY
from taskgraph.interfaces.http.table import ROUTES
from taskgraph.interfaces.operations import shares
from taskgraph.model.roles import Role
from taskgraph.storage.tables import Row
from tests.http.entra_keys import Keys, handing_out, token
from tests.http.serving import Answer, Server, serving


def an_archive() -> bytes:
    """Of a graph that is not put back: its rows say too little."""
    out = io.BytesIO()
    writer = Writer(out, "x", "finished")
    writer.row(Row("task-graph", "", {"state": "finished"}))
    writer.end(1, 0, complete=True)
    return out.getvalue()


DOCUMENT: Final = {"tasks": {"one": {"task": {"executor": "noop"}}}}
BODIES: Final[dict[str, Any]] = {
    "change": {"change": "cancel"},
    "changes": {"change": {"change": "cancel"}, "graphs": ["g"]},
    "edit": {"delete": ["x"]},
    "schedule": {"document": DOCUMENT, "every": 60},
    FILE_BODY: an_archive(),
    "text/plain": b"a line",
    "reads.addresses": ["/partitions/g/rows", "/partitions/other/rows"],
    "work.claim": {"worker": "w"},
    **{f"work.{part}": {} for part in ("renewal", "completed", "failure", "return")},
}
MODES: Final = {"change": "?unguarded=1", "changes": "?dryRun=1"}
PLACES: Final = {
    "graph": "g",
    "group": "x",
    "task": "one",
    "run": "0",
    "request": "r",
    "schedule": "s",
    "target": "gpu",
    "worker": "w",
    "key": "k",
    "partition": "g",
    "file": "run.log",
    "queue": "events",
    "claim": "g.JmOc96TiRZ2-1RYP9iJbFg.0.c",
}


async def call(server: Server, route: str, token: str | None, graph: str = "g") -> Answer:
    """The answer of a route about this graph."""
    one = next(each for each in ROUTES if each.name == route)
    path = one.path.format(**{**PLACES, "graph": graph}) + MODES.get(one.body, "")
    body = BODIES.get(one.body, DOCUMENT) if one.body else None
    guard = {"If_Match": "*"} if one.method == "PATCH" else {}
    return await server.ask(one.method, path, data=body, token=token, **guard)


async def table(server: Server, keys: Keys) -> dict[str, dict[str, int]]:
    """Statuses by route and sender."""
    for graph in ("g", "other"):
        await server.ask("PUT", f"/graphs/{graph}", data=DOCUMENT, token=server.tokens[Role.ADMIN])
    senders: dict[str, str | None] = {"none": None, **{str(role): server.tokens[role] for role in Role}}
    for name, graph in (("its share", "g"), ("a share", "other")):
        senders[name] = (await shares.share(server.app, graph))[1]
    senders |= {name: token(keys, roles=[name]) for name in ROLES}
    rows: dict[str, dict[str, int]] = {}
    for route in ROUTES:
        rows[route.name] = {name: (await call(server, route.name, token)).status for name, token in senders.items()}
    return rows


async def _print() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/store.db"
        async with (
            handing_out() as keys,
            serving(store, Path(folder), anonymous=False, slots=0, entra=keys.settings) as server,
        ):
            rows = await table(server, keys)
    names = list(next(iter(rows.values())))
    print(f"| method | path | {' | '.join(names)} |")
    print("|---" * (len(names) + 2) + "|")
    for route in ROUTES:
        statuses = " | ".join(str(rows[route.name][name]) for name in names)
        print(f"| {route.method} | {route.path or '/'} | {statuses} |")


if __name__ == "__main__":
    asyncio.run(_print())
