"""Reruns by hand that may not be, or not any more: who asks hears it, and who waits does not wait for ever."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from taskgraph import Client, Refused
from taskgraph.cli import app as commands
from taskgraph.messages import Rerun, parse
from taskgraph.model import GraphState, task_id_of
from taskgraph.storage.tables import Merge
from taskgraph.transitions import Claim, Failed, ManualRerun, Outcome
from tests.manual_clock import HurriedClock

DEADLINE_SECONDS = 60


@pytest.fixture
def clock() -> HurriedClock:
    return HurriedClock()


@pytest.fixture
async def client(tmp_path: Path, clock: HurriedClock) -> AsyncIterator[Client]:
    async with Client(f"sqlite:///{tmp_path}/store.db", clock=clock) as opened:
        yield opened


def document(client: Client, **more: Any) -> dict[str, Any]:
    late = (client.app.clock.now() + timedelta(seconds=DEADLINE_SECONDS)).isoformat()
    return {"tasks": {"a": {"task": {"deadline": late}}, "b": {"requires": ["a"], "task": {}}}, **more}


async def fail(client: Client, graph_id: str, label: str) -> None:
    task_id, now = task_id_of(graph_id, label), client.app.clock.now()
    answers = await client.app.handlers.transition(
        graph_id,
        [
            Claim(task_id, 0, "c", "w", now + timedelta(seconds=30)),
            Failed(task_id, 0, "c", now.isoformat(), {"failed": True, "reason": "broke"}),
        ],
    )
    assert [each.outcome for each in answers] == [Outcome.APPLIED, Outcome.APPLIED]


async def messages(client: Client) -> list[Any]:
    """Take every event that waits, and acknowledge it unhandled: the reruns among them."""
    taken = []
    for delivery in await client.app.handlers.queues.receive(
        client.app.handlers.names.events, count=32, lease_seconds=30
    ):
        taken.append(parse(delivery.body))
        await client.app.handlers.queues.delete(delivery)
    return [each for each in taken if isinstance(each, Rerun)]


async def test_a_task_past_its_deadline_is_not_asked_to_be_rerun(client: Client, clock: HurriedClock) -> None:
    await client.submit(document(client), "g")
    await fail(client, "g", "a")
    clock.advance(DEADLINE_SECONDS)
    with pytest.raises(Refused, match="“a” cannot be rerun: its deadline 2024") as refused:
        await client.rerun("g", "a")
    assert refused.value.code == "deadline-exceeded"
    assert "taskgraph edit g --task a --deadline none" in str(refused.value)
    (cause,) = [each for each in await client.why("g", "b") if each.cause]
    assert "taskgraph edit g --task a --deadline none" in cause.remedy
    assert await messages(client) == []
    assert await asyncio.wait_for(client.wait("g"), 20) == "blocked"


@pytest.mark.parametrize("lost", [False, True])
async def test_a_rerun_that_never_begins_is_not_waited_for(client: Client, clock: HurriedClock, *, lost: bool) -> None:
    """Its deadline passes before a handler takes it up; or the queue is lost, with a deadline far away."""
    await client.submit(document(client), "g")
    await fail(client, "g", "a")
    assert await client.rerun("g", "a") == ["a"]
    (asked,) = await messages(client)
    if not lost:
        clock.advance(DEADLINE_SECONDS)
        (handled,) = await client.app.handlers.handle("g", [asked])
        assert handled.answers[0].outcome is Outcome.REFUSED
    assert await asyncio.wait_for(client.wait("g"), 20) == "blocked"
    assert (await client.task("g", "a")).status.run == 0


@pytest.mark.parametrize(
    ("more", "columns", "code"),
    [
        ({"failurePolicy": "continue"}, {}, "dependents-told"),
        ({}, {"state": str(GraphState.CANCELLING)}, "not-running"),
        ({}, {}, "not-failed"),
    ],
)
async def test_both_doors_refuse_by_the_rule_that_handlers_go_by(
    client: Client, tmp_path: Path, more: Mapping[str, Any], columns: Mapping[str, Any], code: str
) -> None:
    await client.submit(document(client, **more), "g")
    if code != "not-failed":
        await fail(client, "g", "a")
    if columns:
        graph = await client.app.queries.graph_row("g")
        await client.app.tables.commit("g", [Merge(graph.key, graph.etag, columns)])
    with pytest.raises(Refused) as refused:
        await client.rerun("g", "a")
    assert refused.value.code == code
    words = ["rerun", "g", "a", "--store", f"sqlite:///{tmp_path}/store.db"]
    typed = await asyncio.to_thread(CliRunner().invoke, commands, words)
    assert (typed.exit_code, typed.stderr) == (4, f"error: {refused.value}\n")
    (answer,) = await client.app.handlers.transition("g", [ManualRerun(task_id_of("g", "a"), 0)])
    assert answer.outcome is Outcome.REFUSED
    assert answer.reason in str(refused.value)
