"""Messages are hints: old, doubled, late, reordered or foreign ones change nothing that they should not."""

import itertools
from collections.abc import Sequence

import pytest

from taskgraph.model.errors import NotFound
from taskgraph.model.messages import AddTasks, Message, Rerun, RunTasks, TaskCompleted, TaskFailed, TaskResult
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.lifecycle import Start
from taskgraph.protocol.relays import Remind
from taskgraph.protocol.runs import Claim, HandBack, LeaseLost, Renew
from tests.scenarios.stage import PAST_LEASE_SECONDS, Held, Stage, extension, graph, memory_stage

REQUIRES = {"A": [], "B": ["A"], "C": [], "D": ["A", "C"], "E": []}


async def ready(stage: Stage) -> list[Message]:
    """A graph with results and an extension on their way: one message of each kind whose order is nobody's promise."""
    await stage.submit(graph(REQUIRES, reruns={"C": 1}))
    a, c, e = await stage.claims("A", "C", "E")
    staged = await stage.stage_extension(extension({"X": ["A", "E"]}), request="x")
    await stage.forget_queues()
    return [
        stage.completed(a),
        stage.failed(c, reason="broke"),
        stage.completed(e),
        AddTasks(stage.graph_id, staged.request),
    ]


async def run_down(stage: Stage, messages: Sequence[Message], *, together: bool) -> dict[str, dict[str, object]]:
    if together:
        await stage.deliver(*messages)
    else:
        for message in messages:
            await stage.deliver(message)
    return await stage.snapshot()


async def expected_rows() -> dict[str, dict[str, object]]:
    stage = memory_stage()
    rows = await run_down(stage, await ready(stage), together=False)
    await stage.check({**REQUIRES, "X": ["A", "E"]})
    assert await stage.states() == {
        "A": "completed",
        "B": "pending",
        "C": "pending",
        "D": "unscheduled",
        "E": "completed",
        "X": "pending",
    }
    return rows


@pytest.mark.parametrize("together", [False, True], ids=["one-by-one", "together"])
@pytest.mark.parametrize("doubling", ["each-again", "all-again", "backwards-again"])
async def test_every_order_and_everything_twice(doubling: str, together: bool) -> None:
    """24 orders, each message delivered twice: the rows are always the same."""
    expected = await expected_rows()
    for order in itertools.permutations(range(4)):
        stage = memory_stage()
        messages = await ready(stage)
        chosen = [messages[index] for index in order]
        twice: list[Message]
        match doubling:
            case "each-again":
                twice = [each for message in chosen for each in (message, message)]
            case "all-again":
                twice = [*chosen, *chosen]
            case _:
                twice = [*chosen, *reversed(chosen)]
        assert await run_down(stage, twice, together=together) == expected, order


async def test_every_order_over_each_store(stage: Stage) -> None:
    """One of the worst orders, on a real store: backwards and doubled."""
    expected = await expected_rows()
    messages = await ready(stage)
    rows = await run_down(stage, [*reversed(messages), *messages], together=False)
    assert rows == expected
    assert await stage.work() == "finished"
    assert stage.executed["C", 0] == stage.executed["C", 1] == 1


async def test_results_and_manual_reruns_in_every_order() -> None:
    """A rerun that comes before the failure is refused, and comes too early only: asked again, all ends the same."""
    ends = []
    for order in itertools.permutations(range(3)):
        stage = memory_stage()
        await stage.submit(graph({"A": [], "B": ["A"], "C": []}))
        a, c = await stage.claims("A", "C")
        rerun = Rerun("graph", ((a.task_id, 0),))
        messages: list[Message] = [stage.failed(a), stage.completed(c), rerun]
        for index in order:
            await stage.deliver(messages[index], messages[index])
        await stage.deliver(rerun)
        ends.append(await stage.snapshot())
        assert await stage.work() == "finished"
    assert all(end == ends[0] for end in ends)


async def finished(stage: Stage) -> list[Message]:
    """A graph that has finished, and every message that was ever on its way."""
    messages = await ready(stage)
    await stage.deliver(*messages)
    for label in ("B", "C", "D", "X"):
        messages.append(await stage.complete(label))
    assert await stage.state() == "finished"
    return messages


async def test_nothing_old_moves_a_finished_graph(stage: Stage) -> None:
    messages = await finished(stage)
    before = {row.key: row.etag for row in await stage.queries.partition("graph")}
    for message in [*messages, *reversed(messages)]:
        await stage.deliver(message)
    await stage.deliver(*messages)
    runs = {label: int(str((await stage.row(label)).columns["run"])) for label in REQUIRES}
    past = [(label, run) for label in REQUIRES for run in (0, 1, 2) if run != runs[label]]
    await stage.deliver(*(Rerun("graph", ((stage.task_id(label), run),)) for label, run in past))
    assert {row.key: row.etag for row in await stage.queries.partition("graph")} == before


async def test_no_claim_of_a_finished_graph(stage: Stage) -> None:
    await finished(stage)
    for label in REQUIRES:
        for run in (0, 1, 2):
            assert (await stage.try_claim(label, run)).outcome is Outcome.STALE


@pytest.mark.parametrize("failed", [False, True], ids=["completed", "failed"])
async def test_a_late_result_of_an_earlier_run(stage: Stage, failed: bool) -> None:
    """After the next run has begun, and after it has ended (R04, R41)."""
    await stage.submit(graph({"A": [], "B": ["A"]}, reruns={"A": 1}))
    first = await stage.claim("A")
    await stage.deliver(stage.failed(first))
    late = stage.failed(first) if failed else stage.completed(first)
    (handled,) = await stage.deliver(late)
    assert handled.answers[0].outcome is Outcome.STALE
    second = await stage.claim("A")
    (handled,) = await stage.deliver(late)
    assert handled.answers[0].outcome is Outcome.STALE
    assert await stage.states() == {"A": "running", "B": "unscheduled"}
    await stage.deliver(stage.completed(second))
    before = await stage.snapshot()
    (handled,) = await stage.deliver(late)
    assert handled.answers[0].outcome is Outcome.STALE
    assert await stage.snapshot() == before
    assert await stage.work() == "finished"


async def test_a_result_under_a_foreign_claim(stage: Stage) -> None:
    await stage.submit(graph({"A": []}))
    held = await stage.claim("A")
    forged = Held(held.task_id, held.run, "somebody-else")
    for message in (stage.completed(forged), stage.failed(forged)):
        (handled,) = await stage.deliver(message)
        assert handled.answers[0].outcome is Outcome.STALE
    assert await stage.task_state("A") == "running"
    assert (await stage.hand_back(forged)).outcome is Outcome.STALE
    stage.clock.advance(PAST_LEASE_SECONDS)
    assert (await stage.lose(forged)).outcome is Outcome.STALE
    await stage.deliver(stage.completed(held))
    assert await stage.state() == "finished"


async def test_a_result_of_a_run_that_was_never_claimed(stage: Stage) -> None:
    await stage.submit(graph({"A": [], "B": ["A"]}))
    for label in ("A", "B"):
        (handled,) = await stage.deliver(stage.completed(Held(stage.task_id(label), 0, "claim")))
        assert handled.answers[0].outcome is Outcome.STALE
    assert await stage.states() == {"A": "pending", "B": "unscheduled"}


async def test_foreign_messages_are_answered_and_disturb_nobody(stage: Stage) -> None:
    """A task, request or graph that does not exist: left to redelivery, while the rest of the batch is handled."""
    await stage.submit(graph({"A": [], "B": ["A"]}))
    good = stage.completed(await stage.claim("A"))
    foreign: list[Message] = [
        TaskCompleted("graph", (stage.result(Held(stage.task_id("nobody"), 0, "c")),)),
        TaskFailed("graph", (stage.result(Held(stage.task_id("nobody"), 0, "c"), failed=True),)),
        Rerun("graph", ((stage.task_id("nobody"), 0),)),
        AddTasks("graph", "nothing"),
    ]
    handled = {
        id(each.message): each for each in await stage.handlers.handle("graph", [*foreign[:2], good, *foreign[2:]])
    }
    for message in foreign:
        assert isinstance(handled[id(message)].error, NotFound), message
    assert handled[id(good)].error is None
    assert await stage.states() == {"A": "completed", "B": "pending"}


async def test_a_result_message_that_is_half_foreign(stage: Stage) -> None:
    """What it says of tasks that exist counts; the message itself stays, for the rest."""
    await stage.submit(graph({"A": [], "B": ["A"]}))
    held = await stage.claim("A")
    unknown = stage.result(Held(stage.task_id("nobody"), 0, "c"))
    message = TaskCompleted("graph", (unknown, stage.result(held)))
    (handled,) = await stage.handlers.handle("graph", [message])
    assert isinstance(handled.error, NotFound)
    assert await stage.task_state("B") == "pending"


async def test_one_message_that_names_a_run_twice(stage: Stage) -> None:
    await stage.submit(graph({"A": [], "B": ["A"]}))
    held = await stage.claim("A")
    result: TaskResult = stage.result(held)
    (handled,) = await stage.deliver(TaskCompleted("graph", (result, result)))
    assert [answer.outcome for answer in handled.answers] == [Outcome.APPLIED, Outcome.REPEATED]
    assert (await stage.told(tasks=True)).count("task-completed") == 1


async def test_a_run_that_is_said_to_have_completed_and_failed(stage: Stage) -> None:
    """Who comes first is believed; the other one is late."""
    for first, expected in (("completed", "finished"), ("failed", "blocked")):
        one = Stage(stage.tables, stage.queues, stage.clock, prefix=stage.names.prefix)
        one.graph_id = f"graph-{first}"
        await one.submit(graph({"A": []}))
        held = await one.claim("A")
        messages: list[Message] = [one.completed(held), one.failed(held)]
        await one.deliver(*(messages if first == "completed" else reversed(messages)))
        assert await one.state() == expected


async def test_work_messages_are_not_for_handlers(memory: Stage) -> None:
    await memory.submit(graph({"A": []}))
    with pytest.raises(TypeError):
        await memory.handlers.handle("graph", [RunTasks("graph", "default", ((memory.task_id("A"), 0),))])


async def test_every_other_item_twice(stage: Stage) -> None:
    """Claims, renewals, hand-backs, lost leases, reminders and the start itself may be said again."""
    await stage.submit(graph({"A": [], "B": []}))
    lease = stage.clock.now()
    claim = Claim(stage.task_id("A"), 0, "c", "w", lease)
    answers = await stage.transition(claim, claim)
    assert [answer.outcome for answer in answers] == [Outcome.APPLIED, Outcome.REPEATED]
    (answer,) = await stage.transition(claim)
    assert answer.outcome is Outcome.REPEATED
    renew = Renew(stage.task_id("A"), 0, "c", lease)
    assert [answer.outcome for answer in await stage.transition(renew, renew)] == [Outcome.APPLIED] * 2
    back = HandBack(stage.task_id("A"), 0, "c", "stop")
    answers = await stage.transition(back, back)
    assert [answer.outcome for answer in answers] == [Outcome.APPLIED, Outcome.STALE]
    held = await stage.claim("B")
    stage.clock.advance(PAST_LEASE_SECONDS)
    lost = LeaseLost(held.task_id, held.run, held.claim)
    assert [answer.outcome for answer in await stage.transition(lost, lost)] == [Outcome.APPLIED, Outcome.STALE]
    assert (await stage.row("B")).columns["run"] == 1
    before = await stage.snapshot()
    digest = str((await stage.graph_row()).columns["digest"])
    answers = await stage.transition(Start(digest), Remind(held.task_id), Remind(held.task_id), Start("other"))
    assert [answer.outcome for answer in answers] == [
        Outcome.REPEATED,
        Outcome.REPEATED,
        Outcome.REPEATED,
        Outcome.REFUSED,
    ]
    assert await stage.snapshot() == before
