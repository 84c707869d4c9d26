"""Reruns by hand that may not be, or not any more: who asks hears it, and who waits does not wait for ever."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from taskgraph import Client, InvalidInput, Refused
from taskgraph.interfaces.cli import app as commands
from taskgraph.interfaces.operations import rerun
from taskgraph.model import limits
from taskgraph.model.ids import row_key, task_id_of
from taskgraph.model.messages import Rerun, parse
from taskgraph.model.states import GraphState
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.recall import ManualRerun
from taskgraph.protocol.runs import Claim, Failed
from taskgraph.storage.tables import Merge
from taskgraph.testing import HurriedClock
from tests.http.typed import both_doors
from tests.measured import Measured, attributes

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
        ({"failurePolicy": "continue"}, {"state": str(GraphState.CANCELLED)}, "not-whole"),
        ({}, {"state": str(GraphState.CANCELLING)}, "not-running"),
        ({}, {}, "not-ended"),
    ],
)
@both_doors
async def test_both_doors_refuse_by_the_rule_that_handlers_go_by(
    client: Client, tmp_path: Path, more: Mapping[str, Any], columns: Mapping[str, Any], code: str
) -> None:
    await client.submit(document(client, **more), "g")
    if code != "not-ended":
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


async def test_those_of_a_group_are_rerun_or_all_that_failed_for_good(client: Client) -> None:
    tasks = {label: {"task": {}} for label in ("a", "b", "c", "d")}
    await client.submit({"tasks": tasks, "groups": {"some": {"tasks": ["a", "b", "c"]}}}, "g")
    for label in ("a", "b", "d"):
        await fail(client, "g", label)
    await messages(client)
    app, reason = client.app, "n" * limits.REASON_CHARS_MAX
    for wanted, more in (
        (["a", "b"], {"group": "some"}),
        (["a", "b", "d"], {"failed": True}),
        (["d"], {"labels": ["d"]}),
        (["a", "d"], {"labels": ["d", "a", task_id_of("g", "d")]}),
    ):
        asked = await rerun.ask(app, "g", reason=reason, **more)  # type: ignore[arg-type]
        assert sorted(each.label for each in asked.tasks) == wanted
        put_down = await messages(client)
        assert {each for one in put_down for each in one.tasks} == {(task_id_of("g", label), 0) for label in wanted}
        assert {each.reason for each in put_down} == {reason}
    one_of_four = (
        "name tasks by their labels, a group of them, all that failed for good (--failed, in Python failed=True), "
        "or all (--all, in Python everything=True): one of the four"
    )
    two_or_none = (
        {},
        {"labels": ["a"], "group": "some"},
        {"labels": ["a"], "failed": True},
        {"failed": True, "everything": True},
        {"group": "", "failed": True},
    )
    await rerun.ask(app, "g", ["d"])
    assert [each.reason for each in await messages(client)] == [""]
    for wrong, words in (
        ({"reason": reason + "n"}, "the reason has 1,001 characters; 1,000 are allowed"),
        *((each, one_of_four) for each in two_or_none),
    ):
        with pytest.raises(InvalidInput) as invalid:
            await rerun.ask(app, "g", **wrong)  # type: ignore[arg-type]
        assert str(invalid.value) == words
    with pytest.raises(Refused) as refused:
        await rerun.ask(app, "g", ["c"])
    assert str(refused.value) == ("“c” cannot be rerun: the task is pending; only a task that has ended can be rerun")
    assert not await messages(client)


async def test_who_waits_for_reruns_hears_when_all_have_begun_or_nothing_is_on_its_way(
    client: Client, clock: HurriedClock
) -> None:
    await client.submit({"tasks": {"a": {"task": {}}, "b": {"task": {}}}}, "g")
    for label in ("a", "b"):
        await fail(client, "g", label)
    app, asked = client.app, {task_id_of("g", label): 0 for label in ("a", "b")}
    queues, events = app.handlers.queues, app.handlers.names.events

    async def waited(asked: Mapping[str, int], seconds: float | None) -> tuple[bool, float]:
        began = clock.monotonic()
        until = None if seconds is None else began + seconds
        return await rerun.taken_up(app, "g", asked, until=until), round(clock.monotonic() - began, 1)

    assert await waited({}, 3) == (True, 0.0)
    for delivery in await queues.receive(events, count=32, lease_seconds=30):
        await queues.delete(delivery)
    assert await waited(asked, 3) == (False, 3.0), "it may be on its way"
    assert await waited(asked, None) == (True, pytest.approx(5.0, abs=0.11)), "no message is there, for so long"
    await rerun.ask(app, "g", failed=True)
    assert await waited(asked, 20) == (False, 20.0), "a handler has still to hear of it"
    again = [ManualRerun(task_id_of("g", "a"), 0)]
    assert [each.outcome for each in await app.handlers.transition("g", again)] == [Outcome.APPLIED]
    assert await waited(asked, 3) == (False, 3.0), "one has begun of two"
    assert await waited({task_id_of("g", "a"): 0}, 3) == (True, 0.0)
    assert await waited({task_id_of("g", "x"): 0}, 3) == (True, 0.0), "there is no such task any more"


async def test_waiting_ends_in_the_moment_in_which_nothing_has_been_on_its_way_for_so_long(
    client: Client, clock: HurriedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it looks as often from the first time on."""
    await client.submit(document(client), "g")
    await fail(client, "g", "a")
    await messages(client)
    monkeypatch.setattr(rerun, "_LOOK_SECONDS", 2.5)
    began = clock.monotonic()
    assert await rerun.taken_up(client.app, "g", {task_id_of("g", "a"): 0})
    assert clock.monotonic() - began == 5.0


async def test_all_that_failed_for_good_are_rerun_however_many(client: Client) -> None:
    labels = [f"t{number:04}" for number in range(1_001)]
    await client.submit({"tasks": {label: {"task": {}} for label in labels}}, "g")
    tables, keys = client.app.tables, [row_key(task_id_of("g", label)) for label in labels]
    for start in range(0, len(keys), 100):
        rows = await tables.get("g", keys[start : start + 100])
        await tables.commit("g", [Merge(row.key, row.etag, {"state": "failed"}) for row in rows if row is not None])
    assert [each.label for each in (await rerun.ask(client.app, "g", failed=True)).tasks] == labels


async def test_who_waits_for_what_was_asked_for_learns_that_it_will_not_come(
    client: Client, clock: HurriedClock
) -> None:
    await client.submit(document(client), "g")
    await fail(client, "g", "a")
    app, a = client.app, task_id_of("g", "a")
    await messages(client)
    asked = await rerun.ask(app, "g", ["a"])
    run = {"label": "a", "taskId": a, "replacesRun": 0, "run": 1}
    assert asked.answer(settled=False) == {"graphId": "g", "tasks": [run], "following": [], "settled": False}
    assert not await rerun.settled(app, asked, until=clock.monotonic() + 3), "it may be on its way"
    await messages(client)
    with pytest.raises(Refused) as refused:
        await rerun.settled(app, asked)
    assert (refused.value.code, str(refused.value)) == (
        "lost",
        "“a” was not rerun: what asked for it is lost; ask again",
    )
    clock.advance(DEADLINE_SECONDS)
    with pytest.raises(Refused, match="“a” was not rerun: its deadline") as refused:
        await rerun.settled(app, asked)
    assert refused.value.code == "deadline-exceeded"


async def test_what_was_asked_for_is_settled_once_the_next_run_stands_ready(client: Client) -> None:
    await client.submit({"tasks": {"a": {"task": {}}}}, "g")
    await fail(client, "g", "a")
    asked = await rerun.ask(client.app, "g", failed=True)
    (answer,) = await client.app.handlers.transition("g", [ManualRerun(task_id_of("g", "a"), 0, "mended")])
    assert answer.outcome is Outcome.APPLIED
    assert await rerun.settled(client.app, asked)
    (fact,) = [each.fields for each in await client.events("g", where={"event": "task-rerun"})]
    assert (fact["because"], fact["reason"]) == ("asked", "mended")
    (record,) = (await client.task("g", "a")).status.runs
    assert record["outcome"] == "failed"


async def test_one_that_failed_of_several_is_rerun_alone_or_with_the_others(client: Client) -> None:
    await client.submit({"tasks": {"a": {"task": {}}, "b": {"task": {}}, "c": {"requires": ["a"], "task": {}}}}, "g")

    async def remedy() -> str:
        return (await client.why("g", "a"))[0].remedy

    await fail(client, "g", "a")
    assert await remedy() == "mend it, then: taskgraph rerun g a"
    await fail(client, "g", "b")
    assert await remedy() == "mend it, then: taskgraph rerun g a; or all that failed: taskgraph rerun g --failed"


async def test_who_measures_sees_what_asked_for_reruns(client: Client) -> None:
    measured = Measured()
    await client.submit(document(client), "g")
    await fail(client, "g", "a")
    client.app.handlers.telemetry = measured.telemetry()
    await rerun.ask(client.app, "g", failed=True)
    (span,) = measured.named("taskgraph.rerun")
    assert attributes(span)["taskgraph.graph.id"] == "g"
