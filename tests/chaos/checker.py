"""What a soak has shown: the rows, and what processes wrote down while they ran, held against what was submitted.

What this room is for: judging one round after its processes have ended. Three witnesses are heard: the rows of every
graph, the record that the tasks themselves wrote (what was executed), and the record of every process's requests (what
it had in hand, and which faults it met). It changes nothing.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from taskgraph.documents.nodes import TaskNode
from taskgraph.documents.read import document_from_object
from taskgraph.engine.doctor import examine_graph
from taskgraph.interfaces.app import App
from taskgraph.model.ids import GRAPH
from taskgraph.model.names import ALL
from taskgraph.protocol.invariants.findings import Severity
from taskgraph.storage.tables import Range, Row, query_all
from tests.chaos.processes import Child
from tests.chaos.shapes import Spec, never_ready
from tests.simulation.invariants import Violation, settled

_WORKER: Final = re.compile(r"-(\d+)-.{6}$")
_LATE: Final = "its result was handled late"
_MOVING: Final = frozenset({"unscheduled", "pending", "running"})
_CLOCKS_SECONDS: Final = 0.05  # between the clock of a row and that of a record: the same machine, other calls


@dataclass(frozen=True, slots=True, eq=False)
class Process:
    """One process of a round. role: handler, worker, submitter."""

    role: str
    child: Child
    graph: str = ""  # of a submitter


@dataclass(slots=True)
class Verdict:
    """What one round came to. Every list holds sentences; an empty one is good news."""

    graphs: int = 0
    tasks: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    unjustified: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  # rows that contradict each other, or the doctor's word
    runs: Counter[str] = field(default_factory=Counter)  # by what became of them
    executions: int = 0
    duplicated: int = 0  # tasks whose work was done to its end more than once
    zombies: int = 0  # runs that ended well, and whose lease had been lost before they could say so
    recovered_graphs: int = 0
    hit_graphs: int = 0
    recovered_runs: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    kills_with_work: int = 0
    stops: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    extensions: Counter[str] = field(default_factory=Counter)
    by_hand: int = 0
    exceptions: int = 0  # tasks that lost six leases, and were rerun by hand
    poison: int = 0
    messages_left: int = 0
    given_up_seconds: list[float] = field(default_factory=list)
    run_seconds: list[float] = field(default_factory=list)
    message_seconds: list[float] = field(default_factory=list)
    rest_seconds: float = 0.0  # from the last fault until everything was at rest

    def add(self, other: "Verdict") -> None:
        """Take in another round."""
        for name in self.__dataclass_fields__:
            mine, more = getattr(self, name), getattr(other, name)
            if name == "rest_seconds":
                setattr(self, name, max(mine, more))
            elif isinstance(mine, Counter):
                mine.update(more)
            else:
                setattr(self, name, mine + more)

    @property
    def good(self) -> bool:
        return not (self.lost or self.unexpected or self.unjustified or self.stuck or self.broken)


@dataclass(slots=True)
class Evidence:
    """What processes left behind."""

    specs: Sequence[Spec]
    processes: Sequence[Process]
    executed: list[dict[str, Any]]
    requests: list[dict[str, Any]]
    _by_pid: dict[int, list[Process]] = field(default_factory=lambda: defaultdict(list))
    _faults: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    _results: dict[tuple[str, str, int], list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for process in self.processes:
            self._by_pid[process.child.pid].append(process)
        for line in self.requests:
            if line["what"] == "fault":
                self._faults[line["pid"]].append(line["time"])
            elif line["what"] == "take" and line["queue"].endswith("-events"):
                for task, run in line["runs"]:
                    self._results[line["graph"], task, run].append((line["time"], line["pid"]))

    def worker(self, name: str, at: float) -> Process | None:
        """The process of a worker's name that lived at this time."""
        found = _WORKER.search(name)
        return self.process(int(found[1]), at) if found else None

    def process(self, pid: int, at: float) -> Process | None:
        """The process that had this id at this time."""
        alive = [p for p in self._by_pid.get(pid, []) if p.child.started - 1 <= at <= (p.child.ended or at) + 1]
        return alive[-1] if alive else None

    def was_reported(self, run: tuple[str, str, int]) -> bool:
        """Whether some handler has ever had the result of this run."""
        return bool(self._results[run])

    def excuse_of_result(self, run: tuple[str, str, int], ended: float) -> tuple[str, float]:
        """Why the result of a run, which its worker has reported, was not heard before its lease ended.

        If nothing else tells, it waited for too long: more was to be done than the handlers could do.
        """
        for taken, pid in self._results[run]:
            handler = self.process(pid, taken)
            if taken > ended or handler is None:
                continue
            child = handler.child
            if child.killed and child.ended <= ended + _CLOCKS_SECONDS:
                return "its handler was killed", child.ended
            if any(stop <= ended and (go >= taken or not go) for stop, go in child.stops):
                return "its handler was stopped", taken
            if any(taken - 1 <= time <= ended for time in self._faults.get(pid, ())):
                return "fault of its handler", taken
        return _LATE, 0.0

    def excuse(self, process: Process | None, began: float, ended: float) -> tuple[str, float]:
        """Why a run of this process, of this time, could be lost, and since when; "" if nothing tells."""
        if process is None:
            return "", 0.0
        child = process.child
        for stop, go in child.stops:
            if stop <= ended and (go >= began or not go):
                return "stopped", stop
        if child.killed and child.ended <= ended + _CLOCKS_SECONDS:
            return "killed", child.ended
        if child.terminated and child.terminated <= ended:
            return "terminated", child.terminated
        for time in self._faults.get(child.pid, ()):
            if began - 40 <= time <= ended:
                return "fault", time
        return "", 0.0


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a record, in the order of their times."""
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted(lines, key=lambda line: line["time"])


async def judge(app: App, evidence: Evidence, stuck: Iterable[str]) -> Verdict:
    """Look at every graph of a round. stuck: graphs that were not at rest in time."""
    verdict = Verdict(graphs=len(evidence.specs), stuck=list(stuck))
    names = {spec.graph_id for spec in evidence.specs}
    runs: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in evidence.executed:
        runs[line["graph"], line["label"]].append(line)
    listed = {str(row.columns["graph"]) for row in await query_all(app.tables, ALL, Range())}
    verdict.unexpected += [f"graph {each} is listed, and nobody submitted it" for each in sorted(listed - names)]
    verdict.broken += [f"graph {each} is not listed" for each in sorted(names - listed)]
    hit = _hit_graphs(evidence)
    wrong_graphs: set[str] = set()
    known: set[tuple[str, str]] = set()
    for spec in evidence.specs:
        before = _count(verdict)
        rows = {row.key: row for row in await query_all(app.tables, spec.graph_id, Range())}
        labels = await _judge_graph(app, evidence, spec, rows, runs, verdict, hit)
        known.update((spec.graph_id, label) for label in labels)
        if _count(verdict) != before:
            wrong_graphs.add(spec.graph_id)
    for graph, label in sorted(set(runs) - known):
        verdict.unexpected.append(f"graph {graph}: “{label}” was executed, and is no task of it")
    _count_kills(evidence, verdict)
    verdict.hit_graphs = len(hit)
    verdict.recovered_graphs = len(hit - wrong_graphs - set(stuck))
    verdict.poison = len(await app.poison.list())
    for queue in (app.handlers.names.events, app.handlers.names.work("default")):
        verdict.messages_left += await app.queues.count(queue)
    return verdict


def _count(verdict: Verdict) -> int:
    return sum(map(len, (verdict.lost, verdict.unexpected, verdict.unjustified, verdict.broken)))


def _hit_graphs(evidence: Evidence) -> set[str]:
    """Graphs whose submitter was killed, or of which a process had a message in hand when it was killed."""
    hit = {each.graph for each in evidence.processes if each.graph and each.child.killed}
    for child, messages in _in_hand(evidence).values():
        if child.killed:
            hit.update(graph for _, graph in messages)
    return hit - {""}


def _in_hand(evidence: Evidence) -> dict[Process, tuple[Child, list[tuple[str, str]]]]:
    """What each process had taken and not deleted when it ended: ids of messages, with their graphs."""
    taken: dict[tuple[int, str], tuple[float, str]] = {}
    for line in evidence.requests:
        if line["what"] == "take":
            taken[line["pid"], line["id"]] = (line["time"], line["graph"])
        elif line["what"] == "done":
            taken.pop((line["pid"], line["id"]), None)
    found: dict[Process, tuple[Child, list[tuple[str, str]]]] = {}
    for process in evidence.processes:
        child = process.child
        messages = (
            [
                (message, graph)
                for (pid, message), (time, graph) in taken.items()
                if pid == child.pid and child.started <= time <= (child.ended or time)
            ]
            if process.role != "submitter"
            else []
        )
        if messages:
            found[process] = (child, messages)
    return found


def _count_kills(evidence: Evidence, verdict: Verdict) -> None:
    done: dict[str, list[float]] = defaultdict(list)
    for line in evidence.requests:
        if line["what"] == "done":
            done[line["id"]].append(line["time"])
        elif line["what"] == "fault":
            verdict.faults[line["kind"]] += 1
    in_hand = _in_hand(evidence)
    for process in evidence.processes:
        verdict.stops += len(process.child.stops)
        if not process.child.killed:
            continue
        verdict.kills[process.role] += 1
        _, messages = in_hand.get(process, (None, []))
        verdict.kills_with_work += bool(messages)
        for message, _ in messages:
            later = [time for time in done[message] if time > process.child.ended]
            if later:
                verdict.message_seconds.append(min(later) - process.child.ended)


async def _judge_graph(
    app: App,
    evidence: Evidence,
    spec: Spec,
    rows: Mapping[str, Row],
    runs: Mapping[tuple[str, str], list[dict[str, Any]]],
    verdict: Verdict,
    hit: set[str],
) -> set[str]:
    """Judge one graph; gives the labels that it may have."""
    graph_id = spec.graph_id
    if GRAPH not in rows:
        verdict.lost.append(f"graph {graph_id} was accepted, and has no row")
        return set()
    nodes: dict[str, TaskNode] = dict(document_from_object(spec.document).tasks)
    if spec.extension is not None:
        heads = [row for key, row in rows.items() if re.fullmatch(r"request:[^:]+", key)]
        states = {str(row.columns["state"]) for row in heads} or {"refused at once"}
        verdict.extensions.update(states)
        if "done" in states:
            nodes |= document_from_object(spec.extension, kind="extension").tasks
        if states & {"staged", "accepted"}:
            verdict.lost.append(f"graph {graph_id}: its extension was put down, and nobody has answered")
    verdict.tasks += len(nodes)
    state = str(rows[GRAPH].columns["state"])
    verdict.ends[state] += 1
    tasks = {str(row.columns["label"]): row for key, row in rows.items() if key.startswith("task:")}
    verdict.unexpected += [
        f"graph {graph_id} has a task “{each}” that is not its own" for each in tasks.keys() - nodes.keys()
    ]
    late = never_ready({label: node.requires for label, node in nodes.items()}, spec.doomed)
    for label in nodes:
        row = tasks.get(label)
        wanted = "failed" if label in spec.doomed else "unscheduled" if label in late else "completed"
        found = "missing" if row is None else str(row.columns["state"])
        if found != wanted and not (found in _MOVING and graph_id in verdict.stuck):
            verdict.lost.append(f"graph {graph_id}: “{label}” is {found}, and should be {wanted}")
        if row is not None:
            _judge_task(evidence, graph_id, label, row, runs.get((graph_id, label), []), nodes, runs, verdict, hit)
    end = "blocked" if spec.doomed else "finished"
    if graph_id in verdict.stuck:
        pass  # told already: it may be lost, or late
    elif state != end:
        verdict.lost.append(f"graph {graph_id} is {state}, and should be {end}")
    else:
        try:
            settled(rows, graph_id, nodes)
        except Violation as violation:
            verdict.broken.append(f"graph {graph_id}: {violation}")
    events = sorted(int(key.removeprefix("event:")) for key in rows if key.startswith("event:"))
    if events != list(range(1, len(events) + 1)):
        verdict.broken.append(f"graph {graph_id}: its journal has gaps")
    examined = await examine_graph(app.handlers, app.poison, graph_id)
    verdict.broken += [
        f"graph {graph_id}: the doctor says: {each.code} {each.key}: {each.text}"
        for each in examined.findings
        if each.severity is Severity.WRONG
    ]
    return set(nodes)


def _time(value: object) -> float:
    if isinstance(value, datetime):
        return value.timestamp()
    return datetime.fromisoformat(str(value)).timestamp() if value else 0.0


def _judge_task(
    evidence: Evidence,
    graph_id: str,
    label: str,
    row: Row,
    record: Sequence[Mapping[str, Any]],
    nodes: Mapping[str, TaskNode],
    executed: Mapping[tuple[str, str], list[dict[str, Any]]],
    verdict: Verdict,
    hit: set[str],
) -> None:
    columns = row.columns
    place = f"graph {graph_id}: “{label}”"
    last = int(columns["run"])  # type: ignore[arg-type]
    writes = "call" in nodes[label].task.get("payload", {})
    begun = Counter(line["run"] for line in record if line["what"] == "begin")
    ended = {line["run"]: line for line in record if line["what"] == "end"}
    verdict.executions += sum(begun.values())
    for run, times in begun.items():
        if times > 1:
            verdict.unjustified.append(f"{place}: run {run} was executed {times} times")
        if run > last:
            verdict.unexpected.append(f"{place}: run {run} was executed, and the last one is {last}")
    succeeded = [run for run, line in ended.items() if not line["failed"]]
    verdict.duplicated += len(succeeded) > 1
    if columns["state"] == "completed":
        verdict.runs["completed"] += 1
        if writes:
            final = ended.get(last)
            if final is None or final["failed"]:
                verdict.unexpected.append(f"{place}: run {last} is completed, and was not executed to a good end")
            elif final["claim"] != columns["claim"]:
                verdict.unexpected.append(f"{place}: run {last} was executed under another claim")
    elif columns["state"] == "failed":
        verdict.runs["failed"] += 1
        if last not in ended or not ended[last]["failed"]:
            verdict.unexpected.append(f"{place}: run {last} has failed, and was not executed to a bad end")
    _judge_order(place, label, graph_id, record, nodes, executed, verdict)
    earlier: list[dict[str, Any]] = json.loads(str(columns.get("runs", "") or "[]"))
    if [each["run"] for each in earlier] != list(range(last)):
        verdict.unjustified.append(f"{place} is in run {last}, and its row tells of {[e['run'] for e in earlier]}")
    for index, each in enumerate(earlier):
        outcome, began, over = str(each["outcome"]), _time(each["started"]), _time(each["ended"])
        verdict.runs[outcome] += 1
        if outcome in ("failed", "exception"):
            if outcome == "exception":
                verdict.exceptions += 1
                reason = str(each.get("reason", ""))
                outcome = "lost" if "retries are spent" in reason or "lost" in reason else outcome
            elif writes and not ended.get(each["run"], {}).get("failed", False):
                verdict.unjustified.append(
                    f"{place}: run {each['run']} is told to have failed, and was not executed so"
                )
        if outcome == "lost":
            process = evidence.worker(str(each["worker"]), began)
            excuse, since = evidence.excuse(process, began, over)
            result = (graph_id, row.key.removeprefix("task:"), int(each["run"]))
            if (each["run"] in ended and ended[each["run"]]["time"] < over) or evidence.was_reported(result):
                # It was done, so its result was on its way, unless its worker died in between.
                heard, when = evidence.excuse_of_result(result, over)
                excuse, since = (heard, when) if heard != _LATE or not excuse else (excuse, since)
            verdict.runs[f"lost: {excuse or 'nothing tells why'}"] += 1
            if not excuse:
                verdict.unjustified.append(f"{place}: run {each['run']} of {each['worker']} was given up for no reason")
            if each["run"] in ended and not ended[each["run"]]["failed"]:
                verdict.zombies += ended[each["run"]]["time"] > over
            if excuse in ("killed", "stopped", "its handler was killed", "its handler was stopped"):
                hit.add(graph_id)
                verdict.given_up_seconds.append(over - since)
                follower = earlier[index + 1] if index + 1 < len(earlier) else None
                if follower is None and columns["state"] in ("completed", "failed"):
                    verdict.run_seconds.append(_time(columns["resolved"]) - since)
                    verdict.recovered_runs += 1
                elif follower is not None and follower["outcome"] == "failed":
                    verdict.run_seconds.append(_time(follower["ended"]) - since)
                    verdict.recovered_runs += 1
        elif outcome == "handed-back":
            process = evidence.worker(str(each["worker"]), began)
            # It was claimed ahead, on a busy machine, and had not begun.
            waited = str(each.get("reason", "")).endswith("had no slot for it") and not begun[each["run"]]
            if not waited and (process is None or not process.child.terminated):
                verdict.unjustified.append(f"{place}: run {each['run']} was handed back, and nobody stopped its worker")


def _judge_order(
    place: str,
    label: str,
    graph_id: str,
    record: Sequence[Mapping[str, Any]],
    nodes: Mapping[str, TaskNode],
    executed: Mapping[tuple[str, str], list[dict[str, Any]]],
    verdict: Verdict,
) -> None:
    """A task begins after what it requires has ended well, by the clock of those who did it."""
    begins = [line["time"] for line in record if line["what"] == "begin"]
    if not begins:
        return
    for required in nodes[label].requires:
        if "call" not in nodes[required].task.get("payload", {}):
            continue
        ends = [
            line["time"]
            for line in executed.get((graph_id, required), [])
            if line["what"] == "end" and not line["failed"]
        ]
        if not ends or min(ends) > min(begins):
            verdict.unexpected.append(f"{place} began before “{required}” had ended")
