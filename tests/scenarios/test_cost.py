"""What a step and a whole graph cost in calls of the store, counted at the ports; each message sent is one.

The bounds are what was counted when they were written down: less is welcome, and then they are to be lowered.
"""

from collections import Counter
from datetime import timedelta

import pytest

from taskgraph.model import limits
from taskgraph.protocol.runs import Claim, Renew
from tests.scenarios.crew import Calls, Crew, Script, chain, fan, layers, once_each, virtually
from tests.scenarios.stage import Requirements, Stage, Trap, graph


async def test_a_new_process_claims_and_renews_without_looking_for_the_end_of_the_journal(memory: Stage) -> None:
    """Only a commit that states facts needs the number of the next event row, which takes a new process many reads."""
    await memory.submit(graph({"a": []}))
    trap = Trap()
    handlers = memory.more_handlers(trap)
    later = memory.clock.now() + timedelta(seconds=limits.LEASE_SECONDS)
    task_id = memory.task_id("a")
    (claimed,) = await handlers.transition(memory.graph_id, [Claim(task_id, 0, "claim", "worker", later)])
    assert str(claimed.outcome) == "applied"
    assert trap.calls == ["get", "commit"]
    (renewed,) = await handlers.transition(memory.graph_id, [Renew(task_id, 0, "claim", later + timedelta(seconds=1))])
    assert str(renewed.outcome) == "applied"
    assert trap.calls == ["get", "commit"] * 2


# A worker looks once, and every five seconds, whether its target is paused: the one query of those below. And it reads,
# before its first event and every half minute, how many queues of events there are. A handler with much to send reads
# as often which workers and handlers there are.
CHAIN, FAN, LAYERS = chain(100), fan(1_000), layers(10, 100)


def most(**calls: int) -> Counter[str]:
    return Counter(calls)


@pytest.mark.parametrize(
    ("requires", "handling", "working", "per_task"),
    [
        pytest.param(
            CHAIN,
            most(receive=1, get=3, commit=4, query=3, delete=1),
            most(receive=1, get=9, commit=100, query=3, delete=1, send=1),
            1.3,
            id="chain",
        ),
        pytest.param(
            FAN,
            most(receive=5, get=7, commit=28, query=6, send=13, delete=14),
            most(receive=5, get=1, query=1, commit=14, send=14, delete=14),
            0.13,
            id="fan",
        ),
        pytest.param(
            LAYERS,
            most(receive=11, get=11, commit=34, query=6, send=36, delete=22),
            most(receive=10, get=1, query=1, commit=11, send=22, delete=40),
            0.21,
            id="layers",
        ),
    ],
)
def test_what_a_graph_costs_a_handler_and_a_worker_that_are_processes_of_their_own(
    requires: Requirements, handling: Counter[str], working: Counter[str], per_task: float
) -> None:
    """A lone chain is continued by its worker: one commit completes a task and claims the next."""

    async def act(crew: Crew) -> None:
        await crew.submit(requires)
        await crew.registered()
        await crew.registered("w")
        at_the_desk, at_work, script = Calls(), Calls(), Script()
        crew.start(crew.consumer(at_the_desk), crew.worker(script, at_work, slots=4))
        await crew.finish()
        assert once_each([script], requires)
        assert at_the_desk.counted() <= handling, at_the_desk.counted()
        assert at_work.counted() <= working, at_work.counted()
        assert (at_the_desk.counted() + at_work.counted()).total() <= per_task * len(requires)

    virtually(act)


@pytest.mark.parametrize(
    ("requires", "calls", "per_task"),
    [
        pytest.param(CHAIN, most(receive=1, get=10, commit=102, query=4, delete=1), 1.2, id="chain"),
        pytest.param(FAN, most(receive=2, get=12, commit=38, query=5, send=13, delete=14), 0.15, id="fan"),
        pytest.param(LAYERS, most(receive=1, get=12, commit=34, query=5, delete=4), 0.15, id="layers"),
    ],
)
def test_what_a_graph_costs_a_process_that_does_both(
    requires: Requirements, calls: Counter[str], per_task: float
) -> None:
    async def act(crew: Crew) -> None:
        await crew.submit(requires)
        trap, script = Calls(), Script()
        crew.start(*crew.together(script, trap, slots=4))
        await crew.finish()
        assert once_each([script], requires)
        assert trap.counted() <= calls, trap.counted()
        assert trap.counted().total() <= per_task * len(requires)

    virtually(act)


@pytest.mark.parametrize("length", [20, 200])
def test_the_cost_of_a_chain_grows_with_its_length_alone(length: int) -> None:
    """Nothing is read again that was read or written before: besides a commit a task there are but a few calls."""

    async def act(crew: Crew) -> None:
        await crew.submit(chain(length))
        at_the_desk, at_work = Calls(), Calls()
        crew.start(crew.consumer(at_the_desk), crew.worker(Script(), at_work))
        await crew.finish()
        assert at_work.counted()["commit"] <= length + 1
        counted = at_the_desk.counted() + at_work.counted()
        assert counted.total() - counted["commit"] <= 30

    virtually(act)


@pytest.mark.parametrize(
    ("requires", "limit", "together", "per_task"),
    [
        pytest.param(CHAIN, 1, True, 1.22, id="a chain, one process"),
        pytest.param(FAN, 4, True, 0.56, id="a fan, one process"),
        pytest.param(FAN, 32, True, 0.12, id="a fan with more room, one process"),
        pytest.param(CHAIN, 1, False, 11.5, id="a chain, two processes"),
        pytest.param(FAN, 32, False, 0.55, id="a fan with more room, two processes"),
    ],
)
def test_what_a_limit_costs(requires: Requirements, limit: int, together: bool, per_task: float) -> None:
    """With a desk a limit costs no commit; how many run at a time decides how many go into one.

    Elsewhere a lone chain under a limit goes through the handlers, as its worker does not continue it.
    """

    async def act(crew: Crew) -> None:
        await crew.submit(requires, maxInFlight=limit)
        trap, at_work, script = Calls(), Calls(), Script()
        if together:
            crew.start(*crew.together(script, trap, slots=4))
        else:
            crew.start(crew.consumer(trap), crew.worker(script, at_work, slots=4))
        await crew.finish()
        assert once_each([script], requires)
        counted = trap.counted() + at_work.counted()
        assert counted.total() <= per_task * len(requires), counted

    virtually(act)
