"""What must hold after every single commit of a graph, whoever made it: checked from the rows alone.

Kept up to date with each commit, so that a check costs no more than the commit did. A breach is a `Violation`, which no
`except Exception` of the code under test can swallow.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from taskgraph import limits
from taskgraph.model import GRAPH, TaskNode, TaskState, reference_of, task_id_of
from taskgraph.storage.tables import Change, Row

FAILED_FOR_GOOD = frozenset({"failed", "exception"})
GRAPH_MOVES = frozenset(
    {
        ("", "submitting"),
        ("submitting", "running"),
        ("submitting", "cancelled"),
        ("running", "blocked"),
        ("running", "finished"),
        ("blocked", "running"),
    }
)
TASK_MOVES = frozenset(
    {
        ("", "unscheduled"),
        ("", "pending"),
        ("unscheduled", "pending"),
        ("pending", "running"),
        ("running", "completed"),
        ("running", "pending"),
        ("running", "failed"),
        ("running", "exception"),
        ("failed", "pending"),
        ("exception", "pending"),
    }
)


class Violation(BaseException):
    """The product broke a promise."""


def hold(condition: object, what: object) -> None:
    """Raise unless the condition holds."""
    if not condition:
        raise Violation(str(what))


class Invariants:
    """The mirror of one graph's partition.

    tasks: label -> node, of all that may ever be in the graph.
    """

    def __init__(self, graph_id: str, tasks: Mapping[str, TaskNode]) -> None:
        self.graph_id = graph_id
        self.requires = {label: [task_id_of(graph_id, each) for each in node.requires] for label, node in tasks.items()}
        self.states: dict[str, str] = {}  # reference -> state, of tasks and relays
        self.runs: dict[str, int] = {}
        self.claims: dict[tuple[str, int], str] = {}
        self.failed_runs: dict[str, int] = {}  # label -> runs that failed for the task's own sake
        self.lost_leases = 0
        self.failed_for_good = 0
        self.sequence = 0
        self.graph_state = ""
        self.history: list[str] = []

    def committed(self, rows: Mapping[str, Row], changes: Sequence[Change]) -> None:
        """Look at what a commit has left. Raises Violation."""
        graph: Row | None = None
        for change in changes:
            row = rows[change.key]
            key = change.key
            if key.startswith("task:"):
                self._task(row)
            elif key.startswith(("join:", "fork:")):
                self._relay(row)
            elif key == GRAPH:
                graph = row
            elif key.startswith("event:"):
                hold(row.columns["sequence"] == self.sequence + 1, f"{key} follows event {self.sequence}")
                self.sequence += 1
        for change in changes:  # once all of the commit is known
            if change.key.startswith("task:"):
                self._ready(rows[change.key])
        if graph is not None:
            self._graph(graph)
        elif self.graph_state == "finished":
            hold(not any(change.key.startswith("task:") for change in changes), "a task changed in a finished graph")
        if self.graph_state:
            counted = rows[GRAPH].columns["failedTasks"]
            hold(
                counted == self.failed_for_good,
                f"the graph counts {counted} failed tasks, and {self.failed_for_good} are",
            )

    def _move(self, reference: str, columns: Mapping[str, Any]) -> tuple[str, str]:
        before, after = self.states.get(reference, ""), str(columns["state"])
        self.states[reference] = after
        self.failed_for_good += (after in FAILED_FOR_GOOD) - (before in FAILED_FOR_GOOD)
        return before, after

    def _task(self, row: Row) -> None:
        columns = row.columns
        reference, label = reference_of(row.key), str(columns["label"])
        before, after = self._move(reference, columns)
        run = int(columns["run"])
        if before != after:
            hold((before, after) in TASK_MOVES, f"{label} moved from {before} to {after}")
            hold(
                after != "pending" or before in ("", "unscheduled") or run > self.runs[reference], f"{label}: same run"
            )
        hold(run >= self.runs.get(reference, 0), f"the run of {label} went down")
        self.runs[reference] = run
        if after == "running":
            claim = self.claims.setdefault((reference, run), str(columns["claim"]))
            hold(claim == columns["claim"], f"run {run} of {label} was claimed twice")
        spent = int(columns["rerunsAllowed"]) - int(columns["rerunsLeft"])
        lost = limits.RETRIES_DEFAULT - int(columns["retriesLeft"])
        manual, handed = int(columns.get("manualReruns", 0)), int(columns.get("handBacks", 0))
        hold(0 <= spent <= int(columns["rerunsAllowed"]), f"{label} has spent {spent} reruns")
        hold(0 <= lost <= limits.RETRIES_DEFAULT, f"{label} has spent {lost} retries")
        hold(run == spent + lost + manual + handed, f"{label} is in run {run}: {spent}, {lost}, {manual}, {handed}")
        self.failed_runs[label] = spent + manual
        left = columns["requiresLeft"]
        hold((after == "unscheduled") == (left != "[]"), f"{label} is {after} and waits for {left}")
        self._bounded(row, limits.REQUIRES_MAX)

    def _ready(self, row: Row) -> None:
        state = row.columns["state"]
        if state in ("pending", "running", "completed"):
            label = str(row.columns["label"])
            for required in self.requires[label]:
                hold(self.states.get(required) == TaskState.COMPLETED, f"{label} is ready before what it requires")

    def _relay(self, row: Row) -> None:
        before, after = self._move(reference_of(row.key), row.columns)
        hold(before != "completed" or after == "completed", f"{row.key} went back to {after}")
        self._bounded(row, limits.REQUIRES_MAX + 1)

    def _bounded(self, row: Row, requires_max: int) -> None:
        for name, bound in (("requires", requires_max), ("dependents", limits.DEPENDENTS_MAX)):
            text = row.columns.get(name)
            if text is not None and str(text).count('"') > bound * 2:
                raise Violation(f"{row.key} names {len(json.loads(str(text)))} in {name}")

    def _graph(self, row: Row) -> None:
        state = str(row.columns["state"])
        self._bounded(row, limits.GRAPH_REQUIRES_MAX)
        if state != self.graph_state:
            hold((self.graph_state, state) in GRAPH_MOVES, f"the graph moved from {self.graph_state} to {state}")
            self.graph_state = state
            self.history.append(state)
        if state == "finished":
            late = [r for r, s in self.states.items() if s != "completed" and ":" not in r]
            hold(not late, f"the graph finished before {late}")
        if state == "blocked":
            hold(int(row.columns["failedTasks"]) > 0, "the graph is blocked, and nothing failed")


def settled(rows: Mapping[str, Row], graph_id: str, tasks: Mapping[str, TaskNode]) -> None:
    """At rest: the edges of every row, both ways and through relays, are those of the documents. Raises Violation."""
    labels = {task_id_of(graph_id, label): label for label in tasks}
    found = {str(row.columns["label"]): row for key, row in rows.items() if key.startswith("task:")}
    hold(found.keys() == tasks.keys(), f"the graph holds {sorted(found)} instead of {sorted(tasks)}")
    done = {label for label, row in found.items() if row.columns["state"] == "completed"}
    edges: set[tuple[str, str]] = set()
    for label, row in found.items():
        needs = {labels[each] for each in _behind(rows, row, "requires", "join:")}
        hold(needs == set(tasks[label].requires), f"{label} requires {needs}")
        left = {labels[each] for each in _behind(rows, row, "requiresLeft", "join:")}
        hold(left == needs - done, f"{label} waits for {left}")
        for told in _behind(rows, row, "dependents", "fork:"):
            owner = told.split(":")[1] if told.startswith("join:") else told
            if owner != GRAPH:
                edges.add((labels[owner], label))
    hold(edges == {(label, each) for label, node in tasks.items() for each in node.requires}, f"dependents: {edges}")
    _journal(rows, found)
    waits = {labels[each] for each in _behind(rows, rows[GRAPH], "requiresLeft", "join:")}
    leaves = set(tasks) - {each for node in tasks.values() for each in node.requires}
    hold(leaves - done <= waits <= set(tasks) - done, f"the graph waits for {waits}")
    hold(rows[GRAPH].columns["tasks"] == len(tasks), f"the graph counts {rows[GRAPH].columns['tasks']} tasks")


def _journal(rows: Mapping[str, Row], found: Mapping[str, Row]) -> None:
    """The facts tell what the rows say."""
    facts = [
        fact for key, row in rows.items() if key.startswith("event:") for fact in json.loads(str(row.columns["events"]))
    ]
    told = Counter(fact["event"] for fact in facts)
    state = rows[GRAPH].columns["state"]
    hold(told["graph-running"] == 1, f"the graph was told to run {told['graph-running']} times")
    hold(told["graph-finished"] == (state == "finished"), f"told: {told}, and the graph is {state}")
    blocked = told["graph-blocked"] - told["graph-unblocked"]
    hold(blocked == (state == "blocked"), f"told: {told}, and the graph is {state}")
    completed = Counter(fact["label"] for fact in facts if fact["event"] == "task-completed")
    done = {label for label, row in found.items() if row.columns["state"] == "completed"}
    hold(completed == Counter(done), f"told to be completed: {completed}")
    runs = Counter(fact["label"] for fact in facts if fact["event"] == "task-rerun")
    for label, row in found.items():
        hold(runs[label] == row.columns["run"], f"{label} is in run {row.columns['run']}, and {runs[label]} were told")


def _behind(rows: Mapping[str, Row], row: Row, column: str, relays: str) -> set[str]:
    """References in a column, with the relays of one kind replaced by what their same column holds."""
    found: set[str] = set()
    todo = list(json.loads(str(row.columns[column])))
    while todo:
        reference = todo.pop()
        if reference.startswith(relays):
            todo.extend(json.loads(str(rows[reference].columns[column])))
        else:
            found.add(reference)
    return found
