"""A running installation in memory, whatever is put on its queues, and a ruling on what that may have done.

The consumer, the handlers and the worker are the production ones. Before each round all rows stand as they stood: a
graph in the middle of its life, and a second one beside it. After it, every message must have met one of four fates
(handled, to be tried again, left to a newer version, set aside as poison), and every row that changed must have been
changed by a message that the schemas know as a good one and that named the run (and claim) which it moved. What counts
as good is asked of the schemas, and never of the code under test.
"""

import base64
import contextlib
import copy
import itertools
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from taskgraph.documents.nodes import TaskNode
from taskgraph.engine.commit import Records
from taskgraph.engine.consumer import Consumer
from taskgraph.engine.handlers import Handled, Handlers
from taskgraph.engine.listeners import LocalWorker
from taskgraph.engine.poison import Poison
from taskgraph.engine.transact import KeepAlive, no_keep_alive
from taskgraph.model import schemas
from taskgraph.model.errors import InvalidMessage, Trail
from taskgraph.model.flag import Flag
from taskgraph.model.ids import GRAPH
from taskgraph.model.messages import Message, Rerun, RunTasks, UnknownVersion, parse, to_object, to_text
from taskgraph.model.names import POISON
from taskgraph.protocol.invariants.examine import examine
from taskgraph.protocol.invariants.findings import Severity
from taskgraph.storage.queues import Delivery
from taskgraph.storage.signals.wakeup import Wakeup
from taskgraph.storage.tables import Change, Row
from taskgraph.testing import HurriedClock, ManualClock, MemoryQueues, MemoryTables
from taskgraph.worker.executors import Executors, built_in
from taskgraph.worker.loop import Worker
from tests.hostile.mutate import BODY_BYTES, Mutator
from tests.scenarios.stage import CrashError, Held, Stage, Trap, extension, graph
from tests.simulation.bounds import IN_SEVERAL, bounded
from tests.simulation.invariants import Invariants, Violation, hold

GRAPH_ID: Final = "graph"
WITNESS: Final = "witness"
NEIGHBOUR: Final = "neighbour"
SETUPS: Final = ("running", "blocked", "finished", "submitting")


class WatchedTables(MemoryTables):
    """Remembers every commit: (partition, changes, rows as they were)."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, Sequence[Change], dict[str, Row | None]]] = []
        self.invariants: Invariants | None = None

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        held = self.partitions.get(partition, {})
        before = {change.key: held.get(change.key) for change in changes}
        etags = await super().commit(partition, changes)
        self.log.append((partition, changes, before))
        if partition == GRAPH_ID and self.invariants is not None:
            self.invariants.committed(self.partitions[partition], changes)
        return etags

    def put_back(self, partitions: Mapping[str, Mapping[str, Row]]) -> None:
        self.partitions = {name: dict(rows) for name, rows in partitions.items()}
        self._keys = {}
        self.log = []


class PatientClock(HurriedClock):
    """Short pauses pass at once; who sleeps for longer (a heartbeat) is not woken: no lease ends in a round."""

    async def sleep(self, seconds: float) -> None:
        if seconds < 5:
            await super().sleep(seconds)
        else:
            await ManualClock.sleep(self, seconds)


class OpenQueues(MemoryQueues):
    """Takes anything, as a queue to which strangers may send. Whoever finds nothing more on `watched` stops."""

    def __init__(self, clock: HurriedClock) -> None:
        super().__init__(clock)
        self.watched = ""
        self.stop = Flag()

    def put(self, queue: str, body: str) -> str:
        key = f"{next(self._ids):08d}"
        self.messages.setdefault(queue, {})[key] = (self._clock.monotonic(), 0, "", body)
        return key

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        found = await super().receive(queue, count=count, lease_seconds=lease_seconds)
        if not found and queue == self.watched:
            self.stop.set()
        return found


class TellingHandlers(Handlers):
    """Counts what became of the items of every message."""

    fates: Counter[str]

    async def handle(
        self,
        graph_id: str,
        messages: Sequence[Message],
        *,
        keep_alive: KeepAlive = no_keep_alive,
        local_worker: LocalWorker | None = None,
    ) -> list[Handled]:
        handled = await super().handle(graph_id, messages, keep_alive=keep_alive, local_worker=local_worker)
        for each in handled:
            self.fates.update(str(answer.outcome) for answer in each.answers)
        return handled


class NoLogs:
    """The output of tasks is of no interest here."""

    def url(self, graph_id: str, task_id: str, run: int, name: str = "run.log") -> str:
        return f"memory:{graph_id}/{task_id}/{run}/{name}"

    async def append(self, graph_id: str, task_id: str, run: int, data: bytes, name: str = "run.log") -> None:
        pass

    async def read(
        self, graph_id: str, task_id: str, run: int, *, offset: int = 0, limit: int = 1 << 20, name: str = "run.log"
    ) -> bytes | None:
        return None

    async def close(self) -> None:
        pass


class _Alarm(logging.Handler):
    """What the consumer and the worker catch, they log: nothing with a traceback, or the trail of one, may come."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.found.append(f"{record.getMessage()}: {record.exc_info[1]!r}")
        elif isinstance(record.args, tuple) and any(isinstance(each, Trail) for each in record.args):
            self.found.append(record.getMessage())


@dataclass
class Setup:
    """Rows as they stand before each round, and messages that fit them."""

    name: str
    partitions: Mapping[str, Mapping[str, Row]]
    invariants: Invariants
    messages: Sequence[Message]
    witness: Message | None  # of the same graph: no neighbour of it may cost it
    neighbour: Message  # of another graph
    sentinel: Message | None  # comes after all the others


def _tasks() -> dict[str, Sequence[str]]:
    return {
        "done": [],
        "runs": [],
        "runs too": [],
        "waits": ["runs", "runs too"],
        "broke": [],
        "behind": ["broke"],
        "ready": ["done"],
        WITNESS: [],
        "sentinel": [],
    }


async def _set_up(name: str) -> Setup:
    stage = Stage(WatchedTables(), OpenQueues(HurriedClock()), HurriedClock())
    document = graph({NEIGHBOUR: [], "other": []})
    stage.graph_id = NEIGHBOUR
    await stage.submit(document)
    neighbour = stage.completed(await stage.claim(NEIGHBOUR))
    stage.graph_id = GRAPH_ID
    tables = stage.tables
    assert isinstance(tables, WatchedTables)
    staged: Mapping[str, TaskNode] = {}
    requires = {"a": [], "b": ["a"]} if name == "finished" else _tasks()
    document = graph(requires, reruns={"runs too": 1})
    wider = extension({"added": ["runs", "done"], "added too": ["added"]})
    if name == "running":
        staged = wider.tasks
    tables.invariants = Invariants(GRAPH_ID, {**document.tasks, **staged})
    tables.invariants.says_by = False
    messages: list[Message] = []
    witness: Message | None = None
    sentinel: Message | None = None
    if name == "submitting":
        # It dies when all rows are written, and the graph has not begun: one of more rows than a commit takes.
        with bounded(IN_SEVERAL), contextlib.suppress(CrashError):
            await stage.submit(document, handlers=stage.more_handlers(Trap(5, "before", "commit")))
        assert await stage.state() == "submitting"
        messages += [stage.completed(Held(stage.task_id(label), 0, "claim")) for label in ("done", "runs")]
        messages.append(Rerun(GRAPH_ID, ((stage.task_id("broke"), 0),)))
    else:
        await stage.submit(document)
    if name == "finished":
        messages += [await stage.complete("a"), await stage.complete("b")]
        messages.append(Rerun(GRAPH_ID, ((stage.task_id("a"), 0),), "again"))
    elif name != "submitting":
        messages.append(await stage.complete("done"))
        runs, too, last, seen = await stage.claims("runs", "runs too", "sentinel", WITNESS)
        witness, sentinel = stage.completed(seen, note="é"), stage.completed(last)
        messages += [
            stage.completed(runs, logsUrl="http://example.com/log", resultUrl="http://example.com/result", exitCode=0),
            stage.failed(too, reason="broke", exitCode=2),
            stage.failed(runs, reason="broke", exception=True),
            stage.completed(runs, too),
            stage.failed(runs, too, reason="both"),
        ]
        if name == "blocked":
            messages.append(await stage.fail("broke"))
        else:
            request = await stage.stage_extension(wider, request="more")
            messages += [parse(json.dumps({"version": 1, "type": "add-tasks", "graph": GRAPH_ID, "request": "more"}))]
            assert request.request == "more"
        messages.append(Rerun(GRAPH_ID, ((stage.task_id("broke"), 0),), "approved"))
    ready = "a" if name == "finished" else "ready"
    messages.append(RunTasks(GRAPH_ID, "default", ((stage.task_id(ready), 0),)))
    messages.append(RunTasks(GRAPH_ID, "default", tuple((stage.task_id(label), 0) for label in document.tasks)))
    invariants = tables.invariants
    return Setup(name, tables.partitions, invariants, messages, witness, neighbour, sentinel)


def words() -> list[str]:
    """What means something to those who read messages."""
    found = {"version", "1", "ended", "graph", "tasks", "new", "default", NEIGHBOUR, "nobody", "index:live", "x"}
    for name in schemas.names():
        if name.startswith("message-"):
            found |= set(schemas.schema(name)["properties"]) | {name.removeprefix("message-")}
            for definition in schemas.schema(name).get("$defs", {}).values():
                found |= set(definition.get("properties", {}))
    return sorted(found)


def good_object(body: str) -> Mapping[str, Any] | None:
    """The object in a body that the schemas allow, by the json module and the validator alone; None for any other."""
    if len(body) > 65_536:
        return None
    text = body.removeprefix("\ufeff").strip()
    if not text.startswith("{"):
        try:
            text = base64.b64decode(text, validate=True).decode().removeprefix("\ufeff").strip()
        except ValueError:
            return None
    if text.count("[") + text.count("{") > 4_000:
        return None  # deeper than any message, or a bundle of more tasks than fit
    try:
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_never, parse_int=_int64)
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    name = f"message-{found.get('type')}" if isinstance(found, dict) else ""
    if name not in schemas.names() or not schemas.validator(name).is_valid(found):
        return None
    return found  # type: ignore[no-any-return]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key stands twice")
    return made


def _int64(digits: str) -> int:
    """What other programs can read: no JSON of ours holds more."""
    number = int(digits)
    if not -(2**63) <= number < 2**63:
        raise ValueError(digits)
    return number


def _never(name: str) -> Any:
    raise ValueError(name)


@dataclass
class Played:
    """What has been played so far."""

    messages: int = 0
    rounds: int = 0
    fates: Counter[str] = field(default_factory=Counter)
    moves: Counter[str] = field(default_factory=Counter)
    commits: int = 0

    def line(self) -> str:
        told = ", ".join(f"{count:,} {fate}" for fate, count in sorted(self.fates.items()))
        return f"{self.messages:,} messages in {self.rounds:,} rounds: {told}; {self.commits:,} commits"


class Installation:
    """Plays rounds. Raises Violation with the seed of the round."""

    def __init__(self) -> None:
        self.played = Played()
        self._setups: dict[str, Setup] = {}
        self._mutators: dict[str, Mutator] = {}
        self._alarm = _Alarm()

    async def setup(self, name: str) -> Setup:
        if name not in self._setups:
            made = await _set_up(name)
            self._setups[name] = made
            self._mutators[name] = Mutator([to_object(message) for message in made.messages], words())
        return self._setups[name]

    async def play(self, seed: int, size: int = 32) -> None:
        """One round: spoilt messages with good ones among them, on the events queue or on the work queue."""
        name = SETUPS[seed % len(SETUPS)] if seed % 3 == 0 else "running"
        await self.setup(name)
        bodies = [self._mutators[name].text(seed * size + number) for number in range(size)]
        await self.play_bodies(name, bodies, work=seed % 5 == 4, context=f"round {seed}")

    async def play_bodies(self, name: str, bodies: Sequence[str], *, work: bool = False, context: str = "") -> None:
        setup = await self.setup(name)
        clock = PatientClock()
        tables, queues = WatchedTables(), OpenQueues(clock)
        tables.put_back(setup.partitions)
        tables.invariants = copy.deepcopy(setup.invariants)
        handlers = TellingHandlers(Records(tables, clock), queues, clock)
        handlers.fates = self.played.fates
        poison = Poison(tables, queues, clock, handlers.names)
        events, place = handlers.names.events, handlers.names.work("default") if work else handlers.names.events
        # Half characters are no text for any queue, nor is more than 64 KiB: `parse` sees them, a consumer never does.
        coded = [body.encode("utf-8", "replace") for body in bodies]
        sent = {queues.put(place, body.decode()): body.decode() for body in coded if len(body) <= BODY_BYTES}
        own = [setup.neighbour, *([setup.witness] if setup.witness else [])]
        for message in own:
            queues.put(events, to_text(message))
        with self._listening():
            if work:
                await self._worked(handlers, poison, queues)
            await self._consumed(handlers, poison, queues)
            if setup.sentinel is not None:
                queues.put(events, to_text(setup.sentinel))
                await self._consumed(handlers, poison, queues)
        self.played.rounds += 1
        self.played.messages += len(sent)
        self.played.commits += len(tables.log)
        try:
            hold(not self._alarm.found, self._alarm.found)
            self._fates(tables, queues, place, sent, work)
            self._ruling(tables, [*sent.values(), *map(to_text, own)], setup, work)
            self._good_ones(tables, setup)
            wrong = [
                finding
                for graph_id in (GRAPH_ID, NEIGHBOUR)
                for finding in examine(graph_id, tables.partitions[graph_id], clock.now())
                if finding.severity is Severity.WRONG
            ]
            hold(not wrong, [(each.key, each.text) for each in wrong])
        except Violation as violation:
            raise Violation(f"{context} ({setup.name}): {violation}") from violation

    @staticmethod
    async def _consumed(handlers: Handlers, poison: Poison, queues: OpenQueues) -> None:
        queues.watched, queues.stop = handlers.names.events, Flag()
        await Consumer(handlers, poison, Wakeup(), idle_seconds_max=0.001).run(queues.stop)

    @staticmethod
    async def _worked(handlers: Handlers, poison: Poison, queues: OpenQueues) -> None:
        queues.watched, queues.stop = handlers.names.work("default"), Flag()
        executors: Executors = built_in(handlers.clock, override="noop")
        worker = Worker(handlers, poison, executors, NoLogs(), Wakeup(), name="w", slots=8, idle_seconds_max=0.001)
        await worker.run(queues.stop)

    def _listening(self) -> Any:
        return _listening(self._alarm)

    def _fates(
        self, tables: WatchedTables, queues: OpenQueues, place: str, sent: Mapping[str, str], work: bool
    ) -> None:
        """Every message is handled, to be tried again, left to a newer version, or set aside: each by its due."""
        rows = tables.partitions.get(POISON, {})
        held = queues.messages.get(place, {})
        for key, body in sent.items():
            row = rows.get(f"{place}:{key}")
            state = "" if row is None else str(row.columns["state"])
            try:
                due = "handled" if isinstance(parse(body), RunTasks) is work else "set aside"
            except InvalidMessage:
                due = "set aside"
            except UnknownVersion:
                due = "left"
            if key in held:
                fate = "retried" if state == "failing" else "left" if row is None else f"held, and {state}"
                hold(held[key][0] > 0, f"{body[:200]!r} was let go at once")
            else:
                fate = {"": "handled", "poison": "set aside"}.get(state, f"gone, and {state}")
            hold(fate == due or (due == "handled" and fate == "retried"), f"{body[:300]!r} is {fate}, and not {due}")
            self.played.fates[fate] += 1

    def _ruling(self, tables: WatchedTables, bodies: Sequence[str], setup: Setup, work: bool) -> None:
        """Every change of a row has a good message that named it as it was."""
        if not any(partition == GRAPH_ID for partition, _, _ in tables.log):
            return
        good = [found for body in bodies if (found := good_object(body)) and found["graph"] == GRAPH_ID]
        if setup.sentinel is not None:
            good.append(to_object(setup.sentinel))
        allowed = set(_allowed(good))
        claims = {entry[2] for entry in allowed if entry[0].startswith("task-")}
        for partition, changes, before in tables.log:
            if partition != GRAPH_ID:
                continue
            for change in changes:
                row = before[change.key]
                if row is None:
                    continue
                columns = getattr(change, "columns", {})
                task_id = change.key.removeprefix("task:")
                if change.key.startswith("request:"):
                    hold(("add-tasks", change.key) in allowed, f"nobody asked for {change.key}")
                state = columns.get("state")
                if not change.key.startswith("task:") or state is None:
                    continue
                was, run, claim = row.columns["state"], row.columns["run"], row.columns.get("claim", "")
                match was, state:
                    case _, "exception" if ("cancel", "") in allowed or ("cancel", task_id) in allowed:
                        due = True
                    case "pending", "running":
                        due = work and ("run-tasks", task_id, run) in allowed
                    case _, "unscheduled" if any(kind == "rerun" for kind, *_ in allowed):
                        due = True  # it has worked with what is run again
                    case "running", "completed":
                        mine = work and row.columns.get("worker") == "w" and claim not in claims
                        due = ("task-completed", task_id, claim, run) in allowed or mine
                    case "running", _:
                        handed_back = work and row.columns.get("worker") == "w" and "handBacks" in columns
                        at_once = ("rerun", task_id, run) in allowed  # it has completed, and was rerun in that commit
                        completed = ("task-completed", task_id, claim, run) in allowed
                        failed = ("task-failed", task_id, claim, run) in allowed
                        due = failed or handed_back or (completed and at_once)
                    case "unscheduled", "pending":
                        due = len(changes) > 1
                    case _, "pending":
                        due = ("rerun", task_id, run) in allowed
                    case _:
                        due = False
                hold(due, f"{row.columns['label']} went from {was} to {state} without a message that says so")
                self.played.moves[f"{was} to {state}"] += 1

    @staticmethod
    def _good_ones(tables: WatchedTables, setup: Setup) -> None:
        """Whatever came before and beside them, good messages have their effect."""
        states = {
            (partition, row.columns["label"]): row.columns["state"]
            for partition in (GRAPH_ID, NEIGHBOUR)
            for key, row in tables.partitions[partition].items()
            if key.startswith("task:")
        }
        hold(states[NEIGHBOUR, NEIGHBOUR] == "completed", "a good message of another graph was not handled")
        graph = tables.partitions[GRAPH_ID][GRAPH].columns["state"]
        if setup.witness is not None and graph not in ("cancelling", "cancelled"):  # as a good message may have asked
            hold(states[GRAPH_ID, WITNESS] == "completed", "a good message among others was not handled")
            hold(states[GRAPH_ID, "sentinel"] == "completed", "the next good message was not handled")


def _allowed(good: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Any, ...]]:
    for message in good:
        match message["type"]:
            case "add-tasks" | "edit":  # whatever names a request: its row says what it is
                yield ("add-tasks", f"request:{message['request']}")
            case "rerun":
                yield from (("rerun", each["task"], each["run"]) for each in message.get("tasks", [message]))
            case "cancel":
                yield from (("cancel", each["task"]) for each in message.get("tasks", [{"task": ""}]))
            case "hold-back" | "send-ready" | "set-limit":
                pass  # it moves nothing
            case "run-tasks":
                yield from (("run-tasks", each["task"], each["run"]) for each in message["tasks"])
            case kind:
                yield from ((kind, each["task"], each["claim"], each["run"]) for each in message["tasks"])


class _listening:  # noqa: N801 - a context manager, used like a function
    def __init__(self, alarm: _Alarm) -> None:
        self._alarm = alarm
        self._logger = logging.getLogger("taskgraph")

    def __enter__(self) -> None:
        logger = self._logger
        self._before = (logger.level, logger.propagate)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
        logger.addHandler(self._alarm)
        self._alarm.found.clear()

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self._alarm)
        self._logger.level, self._logger.propagate = self._before


def seeds(first: int, messages: int, size: int = 32) -> Iterator[int]:
    """Seeds of as many rounds as so many messages take."""
    return itertools.islice(itertools.count(first), -(-messages // size))
