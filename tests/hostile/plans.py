"""Spoilt documents: what a submission of one may do, and graphs to spoil.

A document is either valid, and then it is submitted and runs to its end over the in-memory store, or it is refused with
problems that have places and remedies, and nothing is written. There is no third way.
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.plan import plan
from taskgraph.documents.problems import PROBLEMS_MAX
from taskgraph.documents.read import read_document
from taskgraph.documents.warnings import warnings
from taskgraph.engine.commit import Records
from taskgraph.engine.consumer import Consumer
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.poison import Poison
from taskgraph.engine.submission import submit
from taskgraph.model import schemas
from taskgraph.model.errors import InvalidGraph
from taskgraph.model.flag import Flag
from taskgraph.model.ids import GRAPH
from taskgraph.storage.queues import Delivery
from taskgraph.storage.signals.wakeup import Wakeup
from taskgraph.testing import MemoryQueues, MemoryTables
from taskgraph.worker.executors import Executors
from taskgraph.worker.executors.contract import Outcome, Work, WriteLog
from taskgraph.worker.loop import Worker
from tests.hostile.installation import NoLogs, OpenQueues, PatientClock
from tests.hostile.mutate import Mutator
from tests.simulation.invariants import hold, settled

BASES: Final[tuple[Any, ...]] = (
    schemas.schema("task-graph")["examples"][0],
    {"tasks": {"a": {"task": {}}}},
    {
        "metadata": {"name": "n", "description": "d", "owner": "o", "source": "s"},
        "tags": {"k": "v"},
        "routing": "r",
        "tasks": {
            "a": {"task": {"executor": "noop", "target": "small", "payload": {}}},
            "b": {"requires": ["a"], "reruns": 3, "task": {"executor": "sleep", "payload": {"seconds": 0.5}}},
            "c": {
                "requires": ["a", "b"],
                "task": {"payload": {"command": ["x", {"$subs": "taskId:a"}], "env": {"A": "b"}}},
            },
            "d": {
                "requires": ["c"],
                "task": {"deadline": "2030-01-31T12:00:00Z", "metadata": {"name": "n", "more": [1]}},
            },
            "e": {
                "task": {"payload": {"x": [{"$subs": "taskId:b"}, {"y": {"$subs": "taskId:e"}}]}, "own": {"k": None}}
            },
        },
    },
    {
        "params": {
            "p": {"type": "object", "default": {"a": ["x"]}},
            "q": {"enum": ["small", "command"], "default": "small"},
        },
        "tasks": {
            "a": {"task": {"target": {"$param": "q"}, "payload": {"call": "f", "x": {"$param": "p", "path": "/a/0"}}}},
            "b": {"requires": ["a"], "task": {"payload": {"command": ["x", {"$param": "p"}]}, "y": [{"$param": "p"}]}},
        },
    },
    {"tasks": {f"t{n}": {"requires": [f"t{m}" for m in range(n)], "task": {"executor": "noop"}} for n in range(6)}},
)
WORDS: Final = (
    *(
        "tasks",
        "routing",
        "metadata",
        "tags",
        "requires",
        "reruns",
        "task",
        "payload",
        "executor",
        "target",
        "deadline",
    ),
    *("command", "env", "cwd", "timeout", "seconds", "name", "owner", "$subs", "taskId:a", "taskId:zz", "a", "b", "t5"),
    *("params", "$param", "path", "default", "enum", "type", "p", "q", "/a/0"),
    *("noop", "sleep", "small", "command", "python", "call"),
)


def spoiler() -> Mutator:
    """Gives spoilt documents."""
    return Mutator(BASES, WORDS)


def judged(text: str | bytes) -> GraphDocument | InvalidGraph:
    """The document, or what is wrong with it. Anything else breaks a promise."""
    try:
        document = read_document(text)
    except InvalidGraph as error:
        hold(error.problems, "a refusal without a problem")
        for problem in error.problems:
            hold(problem.pointer == "" or problem.pointer.startswith("/"), problem)
            hold(problem.message and problem.code, problem)
            hold(problem.remedy or problem.code == "more", problem)
            hold(problem.line is None or problem.line >= 1, problem)
            hold(len(problem.message) < 3_000, problem)
            problem.pointer.encode()
            (problem.message + problem.remedy).encode()
        hold(len(error.problems) <= PROBLEMS_MAX + 1, "too many problems are listed")
        return error
    return document


class _Queues(OpenQueues):
    """Whoever works on a queue stops when it is empty, and nothing of it is in hand."""

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        found = await MemoryQueues.receive(self, queue, count=count, lease_seconds=lease_seconds)
        if queue == self.watched and not self.messages.get(queue):
            self.stop.set()
        return found


class _Anything:
    """An executor that runs whatever it is given."""

    name = "noop"
    instant = True
    queue = None

    def can_run(self, definition: Any) -> str | None:
        return None

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        json.dumps(work.definition)
        return Outcome(failed=False)


async def run_to_the_end(document: GraphDocument) -> None:
    """Submit a valid document and run it, with the production worker and consumer in memory."""
    whole = json.loads(json.dumps({"tasks": {label: _node(node) for label, node in document.tasks.items()}}))
    hold(schemas.validator("task-graph").is_valid(whole), "the schema does not know it as valid")
    warnings(document)
    plan(document)
    clock = PatientClock()
    tables, queues = MemoryTables(), _Queues(clock)
    handlers = Handlers(Records(tables, clock), queues, clock)
    poison = Poison(tables, queues, clock, handlers.names)
    await submit(handlers, "g", document)
    targets = sorted({str(node.task.get("target", "default")) for node in document.tasks.values()})
    executors = Executors([_Anything()], "noop")
    consumer = Consumer(handlers, poison, Wakeup(), idle_seconds_max=0.001)
    rounds = 0
    while tables.partitions["g"][GRAPH].columns["state"] == "running":
        for target in targets:
            queues.watched, queues.stop = handlers.names.work(target), Flag()
            worker = Worker(
                handlers,
                poison,
                executors,
                NoLogs(),
                Wakeup(),
                name="w",
                targets=[target],
                slots=8,
                idle_seconds_max=0.001,
            )
            await worker.run(queues.stop)
        queues.watched, queues.stop = handlers.names.events, Flag()
        await consumer.run(queues.stop)
        rounds += 1
        hold(rounds <= 2 + len(document.tasks) * 2, "it does not come to its end")
    rows = tables.partitions["g"]
    late = [label for label, node in document.tasks.items() if _is_late(node.task, clock)]
    hold(rows[GRAPH].columns["state"] == ("blocked" if late else "finished"), rows[GRAPH].columns["state"])
    if not late:
        settled(rows, "g", document.tasks)


def _is_late(task: Mapping[str, Any], clock: PatientClock) -> bool:
    """Whether the deadline of a task has passed before it could begin."""
    return "deadline" in task and schemas.parse_date_time(task["deadline"]) <= clock.now()


def _node(node: Any) -> dict[str, Any]:
    return {"requires": list(node.requires), "reruns": node.reruns, "task": dict(node.task)}


async def play(text: str | bytes, found: Counter[str]) -> None:
    """One spoilt document, to whichever end is its due."""
    outcome = judged(text)
    if isinstance(outcome, InvalidGraph):
        found["refused"] += 1
        found.update({problem.code for problem in outcome.problems})
        return
    await run_to_the_end(outcome)
    found["ran"] += 1
