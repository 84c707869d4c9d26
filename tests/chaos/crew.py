"""Real processes around one installation with short leases, for tests that stop, kill and mislead them."""

import contextlib
import dataclasses
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

from taskgraph.documents.read import document_from_object
from taskgraph.interfaces.client.client import Client
from taskgraph.storage.tables import Range, Row, query_all
from tests.chaos.checker import read_lines
from tests.chaos.launcher import CLOCK_VARIABLE, LIMITS_VARIABLE
from tests.chaos.processes import Child, Zygote
from tests.chaos.tasks import RECORD_VARIABLE
from tests.chaos.transport import VARIABLE, Plan
from tests.simulation.invariants import settled

LEASE_SECONDS: Final = 3
_LIMITS: Final = json.dumps({"HANDLER_LEASE_SECONDS": 3, "SWEEP_SECONDS": 1, "REDISPATCH_SECONDS": 3})


class Crew:
    """Handlers, workers and submitters of one installation."""

    def __init__(self, zygote: Zygote, store: str, folder: Path) -> None:
        self.zygote = zygote
        self.prefix = f"c{secrets.token_hex(6)}"
        self.folder = folder / self.prefix
        self.folder.mkdir()
        self._store = store
        self.children: list[Child] = []

    async def start(self, *words: str, plan: Plan | None = None, ahead: float = 0) -> Child:
        """Start a command. plan: what goes wrong with its requests; ahead: seconds by which its clock is ahead."""
        environment = {
            "TASKGRAPH_STORE": self._store,
            "TASKGRAPH_PREFIX": self.prefix,
            RECORD_VARIABLE: str(self.folder / "executed"),
            LIMITS_VARIABLE: _LIMITS,
            CLOCK_VARIABLE: str(ahead) if ahead else "",
            VARIABLE: (plan or Plan(record=str(self.folder / "requests"))).to_text(),
        }
        child = await self.zygote.spawn(words, environment, self.folder / f"{words[0]}.log")
        self.children.append(child)
        return child

    async def serve(self, **more: Any) -> Child:
        return await self.start("serve", **more)

    async def work(self, **more: Any) -> Child:
        words = ("--slots", "2", "--lease-seconds", str(LEASE_SECONDS), "--python", "tests.chaos.tasks")
        return await self.start("worker", *words, **more)

    async def submit(self, graph_id: str, document: Mapping[str, Any], **more: Any) -> Child:
        """Submit a graph; gives the process once it has ended."""
        file = self.folder / f"{graph_id}.json"
        file.write_text(json.dumps(document))
        child = await self.start("submit", str(file), "--id", graph_id, **more)
        await child.gone.wait()
        return child

    async def end(self) -> None:
        """End them in peace; fails if one does not."""
        for child in self.children:
            self.zygote.signal(child, 15)
        for child in self.children:
            await child.gone.wait()

    def requests(self) -> list[dict[str, Any]]:
        return read_lines(self.folder / "requests")

    def executed(self) -> list[dict[str, Any]]:
        return read_lines(self.folder / "executed")

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A client without faults."""
        settings = dataclasses.replace(Client(self._store).settings, prefix=self.prefix)
        async with Client(settings) as client:
            yield client

    async def judged(self, graph_id: str, document: Mapping[str, Any]) -> dict[str, Row]:
        """The rows of a graph that has finished, by label, once they and the record have been held together."""
        async with self.client() as client:
            assert await client.wait(graph_id, timeout_seconds=90) == "finished"
            rows = {row.key: row for row in await query_all(client.app.tables, graph_id, Range())}
        nodes = document_from_object(document).tasks
        settled(rows, graph_id, nodes)
        tasks = {str(row.columns["label"]): row for key, row in rows.items() if key.startswith("task:")}
        lines = [line for line in self.executed() if line["graph"] == graph_id]
        begun = Counter((line["label"], line["run"]) for line in lines if line["what"] == "begin")
        assert begun, "nothing was executed"
        assert set(begun.values()) == {1}, f"a run was executed more than once: {begun}"
        for label, row in tasks.items():
            last = row.columns["run"]
            (final,) = [
                line for line in lines if line["label"] == label and line["run"] == last and line["what"] == "end"
            ]
            assert final["claim"] == row.columns["claim"]
            assert max(run for each, run in begun if each == label) == last
        return tasks


@contextlib.asynccontextmanager
async def crew(store: str, folder: Path) -> AsyncIterator[Crew]:
    """A crew, whose processes are ended with the test however it ends."""
    zygote = await Zygote.start(store)
    try:
        yield Crew(zygote, store, folder)
    finally:
        await zygote.close()
