"""What a step costs in calls of the store: a bound that holds in a process that has just begun."""

from datetime import timedelta

from taskgraph import limits
from taskgraph.transitions import Claim, Renew
from tests.scenarios.stage import Stage, Trap, graph


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
