"""The drill on real processes and the real emulator: every queue is deleted in mid-run, and the graph comes home."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from azure.storage.queue import QueueServiceClient

from tests.e2e.processes import started, taskgraph, until, write_graph

LAYERS, WIDTH = 10, 100
TASKS = {
    f"t{layer}-{number}": {
        "requires": [f"t{layer - 1}-{(number + step) % WIDTH}" for step in (0, 1, 7)] if layer else [],
        "task": {"executor": "sleep", "payload": {"seconds": 0.2}},  # so that the drill finds it in mid-run
    }
    for layer in range(LAYERS)
    for number in range(WIDTH)
}
DELETIONS = (150, 400, 700)  # completed tasks at which all queues go


def delete_queues(connection_string: str, prefix: str) -> dict[str, int]:
    """Delete all queues of an installation, with whatever is in them: name -> messages."""
    deleted: dict[str, int] = {}
    with QueueServiceClient.from_connection_string(connection_string) as service:
        for queue in list(service.list_queues(name_starts_with=prefix)):
            client = service.get_queue_client(str(queue.name))
            deleted[str(queue.name)] = client.get_queue_properties().approximate_message_count or 0
            client.delete_queue()
    return deleted


@pytest.mark.slow
@pytest.mark.azurite
def test_every_queue_is_deleted_in_mid_run(azurite: str, tmp_path: Path) -> None:
    prefix = f"q{abs(hash(str(tmp_path))) % 10**9}"
    more = {"TASKGRAPH_PREFIX": prefix}
    file = write_graph(tmp_path / "graph.json", TASKS)

    def ask(*words: str) -> Any:
        answer = taskgraph(*words, "--json", store=azurite, cwd=tmp_path, **more)
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    def completed() -> int:
        return int(ask("status", "g")["counts"].get("completed", 0))

    deleted: list[tuple[int, dict[str, int]]] = []
    with (
        started("serve", store=azurite, cwd=tmp_path, **more),
        started("worker", "--slots", "4", store=azurite, cwd=tmp_path, name="w1", **more),
        started("worker", "--slots", "4", store=azurite, cwd=tmp_path, name="w2", **more),
    ):
        assert taskgraph("submit", str(file), "--id", "g", store=azurite, cwd=tmp_path, **more).returncode == 0
        for number in DELETIONS:
            until(lambda number=number: completed() >= number, seconds=300, what=f"{number} tasks have completed")
            queues = delete_queues(azurite, prefix)
            deleted.append((completed(), queues))
        waited = taskgraph("watch", "g", store=azurite, cwd=tmp_path, timeout_seconds=600, **more)
        assert waited.returncode == 0, waited.stderr
    assert all(before < LAYERS * WIDTH and len(queues) >= 2 for before, queues in deleted), "it was in mid-run"
    assert sum(sum(queues.values()) for _, queues in deleted) > 0, "there was something to lose"
    assert ask("doctor", "g")["findings"] == []
    facts = Counter(event["event"] for event in ask("events", "g")["events"])
    runs = [int(task["run"]) for task in ask("show", "g")["tasks"]]
    assert facts["task-completed"] == LAYERS * WIDTH
    assert facts["graph-finished"] == 1
    assert sum(runs) == facts["task-rerun"], "a run for every result that was lost, and no other"
    for number, queues in deleted:
        print(
            f"at {number:,} tasks completed: deleted {', '.join(f'{n} with {c} messages' for n, c in queues.items())}"
        )
    print(f"{facts['task-rerun']} results were lost with their queue, and their tasks ran again")
