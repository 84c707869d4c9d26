"""A queue for each kind of event: everything is sent there, and whatever is on the common one is handled too."""

import pytest

from taskgraph.model.messages import EVENT_TYPES, Rerun, to_text
from taskgraph.model.names import QueueNames
from tests.scenarios.stage import Stage, graph


@pytest.fixture
def apart(local: Stage) -> Stage:
    local.names = QueueNames("taskgraph", per_operation=True)
    local.handlers = local.more_handlers()
    return local


def test_the_common_queue_is_always_received_from() -> None:
    assert QueueNames("abc").received == ("abc-events",)
    assert QueueNames("abc", per_operation=True).received == (
        "abc-events",
        *(f"abc-{kind}" for kind in EVENT_TYPES),
    )


async def test_each_kind_goes_to_its_queue_and_all_of_them_are_handled(apart: Stage) -> None:
    stage = apart
    await stage.submit(graph({"a": [], "b": ["a"], "c": []}))
    await stage.stage_extension(graph({"d": []}))
    ok, bad = await stage.claims("a", "c")
    await stage.handlers.dispatcher.send_events([stage.completed(ok), stage.failed(bad)])
    waiting = {queue: await stage.queues.count(queue) for queue in stage.names.received}
    assert waiting == {
        **{f"taskgraph-{kind}": 0 for kind in ("events", *EVENT_TYPES)},
        "taskgraph-add-tasks": 1,
        "taskgraph-task-completed": 1,
        "taskgraph-task-failed": 1,
    }
    assert await stage.handlers.dispatcher.events_waiting() == 3
    await stage.consume()
    assert await stage.handlers.dispatcher.events_waiting() == 0
    states = await stage.states()
    assert (states["a"], states["b"], states["c"]) == ("completed", "pending", "failed")
    assert await stage.state() == "blocked"

    await stage.handlers.dispatcher.send_events([Rerun(stage.graph_id, ((stage.task_id("c"), 0),))])
    assert await stage.queues.count("taskgraph-rerun") == 1
    await stage.consume()
    assert (await stage.states())["c"] == "pending"


async def test_what_was_sent_before_the_setting_was_changed_is_handled(apart: Stage) -> None:
    stage = apart
    await stage.submit(graph({"a": []}))
    await stage.queues.send("taskgraph-events", [to_text(stage.completed(await stage.claim("a")))])
    await stage.consume()
    assert await stage.state() == "finished"
