"""A consumer as the desk of its own process: what is handed in, by whom, and what its caller hears of it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from taskgraph.engine import transact
from taskgraph.model.errors import NotFound, StorageUnavailable
from taskgraph.model.ids import task_id_of
from taskgraph.model.messages import Rerun, to_text
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.runs import Completed
from tests.scenarios.crew import Calls, Crew, Script, virtually

Act = Callable[[Crew], Awaitable[None]]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "taskgraph")


def test_whoever_hands_a_message_in_hears_what_became_of_it() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": [], "b": ["a"]})
        consumer = crew.consumer()
        done = crew.stage.completed(await crew.stage.claim("a"))
        handled = await consumer.hand_in(done)
        assert handled.message is done
        assert [answer.outcome for answer in handled.answers] == [Outcome.APPLIED]
        again = await consumer.hand_in(done)
        assert [answer.outcome for answer in again.answers] == [Outcome.REPEATED]
        nobody = await consumer.hand_in(Rerun("graph", ((task_id_of("graph", "nobody"), 0),)))
        assert isinstance(nobody.error, NotFound)
        assert await crew.stage.states() == {"a": "completed", "b": "pending"}

    virtually(act)


def test_what_is_handed_in_together_is_committed_together() -> None:
    async def act(crew: Crew) -> None:
        labels = [f"t{n:02}" for n in range(20)]
        await crew.submit({label: [] for label in labels})
        held = await crew.stage.claims(*labels)
        calls = Calls()
        consumer = crew.consumer(calls)
        await asyncio.gather(*(consumer.hand_in(crew.stage.completed(each)) for each in held))
        assert await crew.stage.state() == "finished"
        assert calls.counted()["commit"] <= 3, "one for all of them, and the live index"

    virtually(act)


def test_a_storage_error_is_told_and_handing_it_in_again_is_harmless() -> None:
    for at in range(1, 8):

        async def act(crew: Crew, at: int = at) -> None:
            await crew.submit({"a": [], "b": ["a"]})
            done = crew.stage.completed(await crew.stage.claim("a"))
            calls = Calls(at, "unavailable")
            consumer = crew.consumer(calls)
            try:
                await consumer.hand_in(done)
            except StorageUnavailable:
                await consumer.hand_in(done)
            assert await crew.stage.states() == {"a": "completed", "b": "pending"}
            await crew.stage.check({"a": [], "b": ["a"]})

        virtually(act)


def test_a_bug_with_one_message_is_told_to_who_handed_it_in_and_costs_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": [], "b": [], "c": []})
        wrong = crew.stage.task_id("b")

        def broken(rows: object, items: list[object], **more: object) -> object:
            if any(isinstance(item, Completed) and item.task_id == wrong for item in items):
                raise RuntimeError("a bug")
            return decide(rows, items, **more)

        held = await crew.stage.claims("a", "b", "c")
        monkeypatch.setattr(transact, "decide", broken)
        consumer = crew.consumer()
        messages = [crew.stage.completed(each) for each in held]
        found = await asyncio.gather(*(consumer.hand_in(each) for each in messages), return_exceptions=True)
        monkeypatch.undo()
        assert [type(each).__name__ for each in found] == ["Handled", "RuntimeError", "Handled"]
        assert await crew.stage.states() == {"a": "completed", "b": "running", "c": "completed"}

    decide = vars(transact)["decide"]
    virtually(act)


def test_messages_of_others_and_what_its_worker_reports_go_into_one_commit() -> None:
    """A result that comes by the queue while its own worker has something to report, too."""

    async def act(crew: Crew) -> None:
        await crew.submit({"mine": [], "theirs": [], "end": ["mine", "theirs"]})
        script = Script(by_label={"mine": 2.0})
        theirs = crew.stage.completed(await crew.stage.claim("theirs", worker="other"))
        calls = Calls()
        crew.start(*crew.together(script, calls))
        await crew.until(lambda: bool(script.runs))
        await crew.stage.queues.send(crew.stage.names.events, [to_text(theirs)])
        await crew.finish()
        assert script.runs == [("mine", 0), ("end", 0)]
        await crew.stage.check({"mine": [], "theirs": [], "end": ["mine", "theirs"]})
        assert calls.messages == 0, "what became ready was claimed, and nobody told of it"

    virtually(act)


def test_a_desk_takes_what_its_worker_reports_only_where_it_may() -> None:
    """Whoever does not lead leaves the graphs of others to who does: their results go by the queue."""

    async def act(crew: Crew) -> None:
        await crew.submit({"a": [], "b": ["a"], "c": ["a"]})
        consumer, worker = crew.together(Script())
        consumer.own.clear()
        assert not consumer.takes("graph")
        crew.start(worker)
        queue = crew.stage.names.events

        async def reported() -> bool:
            return await crew.stage.queues.count(queue) == 1

        await crew.until(reported)
        assert await crew.stage.states() == {"a": "running", "b": "unscheduled", "c": "unscheduled"}
        crew.start(consumer)
        await crew.finish()

    virtually(act)
