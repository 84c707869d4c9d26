"""The drill: all queues are emptied in mid-run, again and again, and the sweep alone brings the graph home."""

import json
import sqlite3
from collections import Counter
from pathlib import Path

from taskgraph.engine.doctor import examine_graph
from taskgraph.model import limits
from taskgraph.model.messages import RunTasks, parse
from taskgraph.testing import MemoryQueues
from tests.scenarios.stage import PAST_LEASE_SECONDS, Stage, graph

LAYERS, WIDTH = 10, 100
REQUIRES = {
    f"t{layer}-{number}": [f"t{layer - 1}-{(number + step) % WIDTH}" for step in (0, 1, 7)] if layer else []
    for layer in range(LAYERS)
    for number in range(WIDTH)
}


def empty(stage: Stage, folder: Path) -> int:
    """Take every message out of the store behind its back, leased ones too; gives how many there were."""
    if isinstance(stage.queues, MemoryQueues):
        lost = sum(len(held) for held in stage.queues.messages.values())
        stage.queues.messages.clear()
        return lost
    connection = sqlite3.connect(folder / "store.db", timeout=30)
    try:
        with connection:
            return connection.execute("DELETE FROM message").rowcount
    finally:
        connection.close()


async def work_for_a_while(stage: Stage, bundles: int) -> int:
    """Take so many work messages and execute what they name; the results lie on the events queue. Gives how many."""
    before = sum(stage.executed.values())
    for _ in range(bundles):
        deliveries = await stage.queues.receive(stage.names.work("default"), count=8, lease_seconds=30)
        wanted: dict[tuple[str, int], None] = {}
        for delivery in deliveries:
            message = parse(delivery.body)
            assert isinstance(message, RunTasks)
            wanted.update(dict.fromkeys(message.tasks))
        await stage._execute(list(wanted), {})
        for delivery in deliveries[1:]:  # one stays leased, and is in hand when the queues are emptied
            await stage.queues.delete(delivery)
    return sum(stage.executed.values()) - before


async def test_a_thousand_tasks_whose_queues_are_emptied_in_mid_run(local: Stage, tmp_path: Path) -> None:
    stage = local
    await stage.submit(graph(REQUIRES))
    assert empty(stage, tmp_path) > 0
    lost_messages, lost_results = 0, 0
    for _ in range(6):
        stage.clock.advance(PAST_LEASE_SECONDS)
        # A large crew has been heard of, so that what is ready lies in many messages.
        stage.handlers.dispatcher.bundle_sizes.workers = {f"w{number}": stage.clock.monotonic() for number in range(64)}
        swept = await stage.sweep()
        assert swept.reminded > 0, "nobody else says anything"
        await work_for_a_while(stage, 4)
        await stage.pump()
        lost_results += await work_for_a_while(stage, 1)  # executed, and the results never arrive
        lost_messages += empty(stage, tmp_path)
    states = Counter((await stage.states()).values())
    assert states["running"] > 0
    assert 0 < states["completed"] < len(REQUIRES)
    assert (lost_messages > 20, lost_results > 20) == (True, True)
    found = await examine_graph(stage.handlers, stage.poison, stage.graph_id)
    assert found.sound, found.findings
    assert found.unsettled == 0

    rounds = 0
    while await stage.state() != "finished":
        rounds += 1
        assert rounds < 10
        stage.clock.advance(PAST_LEASE_SECONDS)
        await stage.sweep()
        await stage.work()
    assert Counter((await stage.states()).values()) == {"completed": len(REQUIRES)}
    await stage.check(REQUIRES)
    assert sum(stage.executed.values()) == len(REQUIRES) + lost_results
    assert set(stage.executed.values()) == {1}, "no run is executed twice"
    runs = [row.columns for row in await stage.queries.partition("graph") if row.key.startswith("task:")]
    assert sum(int(row["run"]) for row in runs) == lost_results
    assert sum(limits.RETRIES_DEFAULT - int(row["retriesLeft"]) for row in runs) == lost_results
    facts = Counter(event.kind for event in await stage.events())
    assert facts["task-completed"] == len(REQUIRES)
    assert facts["task-rerun"] == lost_results
    assert facts["graph-finished"] == 1
    assert (await examine_graph(stage.handlers, stage.poison, stage.graph_id)).findings == ()
    assert all(json.loads(str(row["requiresLeft"])) == [] for row in runs)
