"""The routing of graphs and tasks reaches work messages, result messages and facts, whoever sends them."""

import json
from collections.abc import Sequence
from typing import Any, Final

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.engine.doctor import repair_graph
from taskgraph.model import limits
from taskgraph.protocol.invariants.findings import Finding
from taskgraph.storage.tables import Delete, Merge
from taskgraph.testing import MemoryQueues
from taskgraph.worker.executors import Outcome, Work
from taskgraph.worker.executors.contract import WriteLog
from tests.scenarios.crew import Crew, Script, virtually
from tests.scenarios.stage import Stage

TASKS: Final[dict[str, dict[str, Any]]] = {
    "a": {"task": {"routing": "linux"}},
    "b": {"requires": ["a"], "task": {}},
    "c": {"requires": ["b"], "task": {"routing": "mac"}},
    "bad": {"requires": ["c"], "task": {"routing": "bsd"}},
    "long": {"requires": ["c"], "task": {"routing": "bsd", "payload": {"x": "x" * 9_000}}},
    "urgent": {"requires": ["c"], "priority": "highest", "task": {"routing": "bsd"}},
    "late": {"requires": ["c"], "notBefore": "2026-01-01T00:00:00Z", "task": {"routing": "bsd"}},
}
ROUTING: Final = {"a": "nightly.linux", "b": "nightly.", "c": "nightly.mac"}
"""Of the others it is `nightly.bsd`."""


class FailsOnce(Script):
    """An executor for which one label fails for the moment."""

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        done = await super().run(work, write_log)
        if work.label != "bad" or self.runs.count(("bad", 0)) + self.runs.count(("bad", 1)) > 1:
            return done
        return Outcome(failed=True, reason="not now", temporary=True, retry_after=1.0)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """All entries of all messages about tasks, each with the type of its message."""
    seen: list[dict[str, Any]] = []
    send = MemoryQueues.send

    async def noted(self: MemoryQueues, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        for message in map(json.loads, bodies):
            seen.extend({**each, "type": message["type"]} for each in message.get("tasks", ()))
        await send(self, queue, bodies, delay_seconds=delay_seconds)

    monkeypatch.setattr(MemoryQueues, "send", noted)
    return seen


async def play(crew: Crew, document: dict[str, Any], *, desk: bool) -> dict[str, str]:
    """Run a graph to its end; gives the labels of its tasks by taskId."""
    await crew.stage.submit(document_from_object(document))
    script = FailsOnce(0.1)
    crew.start(*(crew.together(script) if desk else (crew.consumer(), crew.worker(script, slots=4))))
    await crew.finish()
    return {crew.stage.task_id(label): label for label in document["tasks"]}


@pytest.mark.parametrize("desk", [True, False], ids=["one process", "two processes"])
def test_messages_and_facts_have_the_routing(sent: list[dict[str, Any]], desk: bool) -> None:
    async def act(crew: Crew) -> None:
        labels = await play(crew, {"routing": "nightly", "tasks": TASKS}, desk=desk)
        for each in sent:
            assert each.get("routing") == ROUTING.get(labels[each["task"]], "nightly.bsd"), each
        kinds = {each["type"] for each in sent}
        assert kinds == {"run-tasks", "task-failed"} | (set() if desk else {"task-completed"})
        for event in await crew.stage.queries.events(crew.stage.graph_id):
            label = event.fields.get("label")
            assert event.fields["routing"] == (ROUTING.get(label, "nightly.bsd") if label else "nightly"), event

    virtually(act)


@pytest.mark.parametrize("desk", [True, False], ids=["one process", "two processes"])
def test_without_a_routing_no_message_speaks_of_one(sent: list[dict[str, Any]], desk: bool) -> None:
    async def act(crew: Crew) -> None:
        plain = {label: {**node, "task": {}} for label, node in TASKS.items()}
        await play(crew, {"tasks": plain}, desk=desk)
        assert sent
        assert not [each for each in sent if "routing" in each]

    virtually(act)


async def test_what_is_said_again_has_the_routing(memory: Stage, sent: list[dict[str, Any]]) -> None:
    await memory.submit(document_from_object({"routing": "nightly", "tasks": {"a": TASKS["a"]}}))
    first = len(sent)
    for _ in range(20):
        memory.clock.advance(60)
        await memory.sweep()
    assert len(sent) > first
    assert {each["routing"] for each in sent} == {"nightly.linux"}


async def test_what_doctor_mends_has_the_routing(memory: Stage) -> None:
    await memory.submit(document_from_object({"routing": "nightly", "tasks": TASKS}))
    await memory.complete("a")
    row = await memory.row("c")
    (event,) = await memory.tables.get(memory.graph_id, ["event:0000000001"])
    assert event is not None
    await memory.tables.commit(
        memory.graph_id, [Delete(event.key, event.etag), Merge(row.key, row.etag, {"requiresLeft": "[]"})]
    )
    assert (await repair_graph(memory.handlers, memory.poison, memory.graph_id)).repaired
    events = await memory.queries.events(memory.graph_id)
    found = {(each.kind, each.fields.get("row"), each.fields["routing"]) for each in events}
    assert ("journal-gap", None, "nightly") in found
    assert ("graph-repaired", row.key, "nightly.mac") in found


async def test_what_doctor_makes_ready_is_sent_with_its_routing(memory: Stage, sent: list[dict[str, Any]]) -> None:
    await memory.submit(document_from_object({"routing": "nightly", "tasks": {"a": TASKS["a"]}}))
    row = await memory.row("a")
    await memory.tables.commit(memory.graph_id, [Merge(row.key, row.etag, {"state": "unscheduled"})])
    first = len(sent)
    assert "asleep" in {each.code for each in await mended(memory)}
    assert [each["routing"] for each in sent[first:]] == ["nightly.linux"]


@pytest.mark.parametrize("level", ["normal", "highest"])
async def test_what_doctor_sends_again_has_the_routing(memory: Stage, sent: list[dict[str, Any]], level: str) -> None:
    """A message was lost at a time at which the sweep sends none again."""
    task = {**TASKS["a"], "priority": level}
    await memory.submit(document_from_object({"routing": "nightly", "tasks": {"a": task}}))
    memory.clock.advance(3 * limits.REDISPATCH_SECONDS)
    for queue in {memory.handlers.names.work("default", each) for each in ("normal", level)}:
        for message in await memory.queues.receive(queue, count=32, lease_seconds=60):
            await memory.queues.delete(message)
    first = len(sent)
    await mended(memory)
    assert sent[first:]
    assert {each["routing"] for each in sent[first:]} == {"nightly.linux"}


async def mended(memory: Stage) -> Sequence[Finding]:
    return (await repair_graph(memory.handlers, memory.poison, memory.graph_id)).repaired
