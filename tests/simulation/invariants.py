"""What must hold after every single commit of a graph, whoever made it: checked from the rows alone.

Kept up to date with each commit, so that a check costs no more than the commit did. A breach is a `Violation`, which no
`except Exception` of the code under test can swallow.

What is looked at after every commit says `if not …: raise`, and not `hold`: a sentence about what has not happened is
never put together. Columns of JSON are read once for each text, for all histories.
"""

import dataclasses
import functools
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from taskgraph.documents.nodes import TaskNode
from taskgraph.model import limits
from taskgraph.model.ids import GRAPH, reference_of, task_id_of
from taskgraph.model.states import TaskState
from taskgraph.model.timing import retry_of
from taskgraph.storage.tables import Change, Delete, Row
from tests.outcomes import expected, runs
from tests.simulation.grouped import Counted

FAILED_FOR_GOOD = frozenset({"failed", "exception"})
RESOLVED = frozenset({"completed", "failed", "exception", "skipped"})
GRAPH_MOVES = frozenset(
    {
        ("", "submitting"),
        ("", "running"),  # written and started in one commit
        ("submitting", "running"),
        ("submitting", "cancelled"),
        ("running", "blocked"),
        ("running", "finished"),
        ("blocked", "running"),
        ("running", "cancelling"),
        ("blocked", "cancelling"),
        ("cancelling", "cancelled"),
        ("finished", "running"),  # a task is rerun
        ("cancelled", "running"),
        ("cancelled", "blocked"),
    }
)
OVER = frozenset({"cancelling", "cancelled"})
TASK_MOVES = frozenset(
    {
        ("", "unscheduled"),
        ("", "pending"),
        ("unscheduled", "pending"),
        ("unscheduled", "running"),  # claimed in the commit that makes it ready
        ("unscheduled", "skipped"),  # where failures are told to dependents
        ("", "skipped"),  # added below what has been resolved
        ("pending", "running"),
        ("running", "completed"),
        ("running", "pending"),
        ("running", "failed"),
        ("running", "exception"),
        ("failed", "pending"),
        ("exception", "pending"),
        ("unscheduled", "exception"),  # cancelled before its time, or too late
        ("pending", "exception"),
        ("exception", "unscheduled"),  # and rerun by hand
        ("completed", "pending"),  # rerun by hand
        ("skipped", "pending"),
        ("completed", "unscheduled"),  # the same in several commits, or what it requires was rerun
        ("failed", "unscheduled"),
        ("skipped", "unscheduled"),
        ("pending", "unscheduled"),
        ("running", "unscheduled"),
    }
)


_ASKED_FOR = frozenset(
    {
        *("graph-paused", "graph-resumed", "graph-limited", "graph-extended", "graph-edited"),
        *("task-held", "task-released", "task-prioritized"),
    }
)
"""Facts that follow from a request alone: each says whose it was."""

EDITED_TO = frozenset({"unscheduled", "pending", "skipped"})
"""States in which an edit leaves a task: it waits, or stands ready, or its condition is not met."""


class Violation(BaseException):
    """The product broke a promise."""


_id_of = functools.lru_cache(maxsize=10_000)(task_id_of)


@functools.lru_cache(maxsize=20_000)
def _references(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


@functools.lru_cache(maxsize=20_000)
def _facts_in(text: str) -> tuple[tuple[str, str], ...]:
    """(kind, label) of the facts of an event row; a rerun that takes an end back is there with that, too."""
    facts = json.loads(text)
    taken_back = tuple((f"not-{fact['was']}", fact["label"]) for fact in facts if "was" in fact and "label" in fact)
    return tuple((fact["event"], fact.get("label", "")) for fact in facts) + taken_back


@functools.lru_cache(maxsize=20_000)
def _cancels(resolution: str) -> bool:
    return bool(json.loads(resolution or "{}").get("cancelled"))


def is_cancelled(columns: Mapping[str, Any]) -> bool:
    """Whether a task was resolved by being cancelled."""
    return columns.get("state") == "exception" and _cancels(str(columns.get("resolution", "")))


def _too_late(columns: Mapping[str, Any]) -> bool:
    return '"code":"deadline-exceeded"' in columns["resolution"] or '"code":"pending-timeout"' in columns["resolution"]


def hold(condition: object, what: object) -> None:
    """Raise unless the condition holds."""
    if not condition:
        raise Violation(str(what))


class Invariants:
    """The mirror of one graph's partition.

    tasks: label -> node, of all that may ever be in the graph. goes_on: whether failures are told to dependents.
    """

    says_by = True  # who asks says who it is, as none did before version 0.4

    def __init__(self, graph_id: str, tasks: Mapping[str, TaskNode], *, goes_on: bool = False) -> None:
        self.graph_id = graph_id
        self.goes_on = goes_on
        self.apart: frozenset[str] = frozenset()  # labels that do not follow the graph in this, as their groups say
        self.tasks = tasks
        self.requires = {label: [_id_of(graph_id, each) for each in node.requires] for label, node in tasks.items()}
        self.states: dict[str, str] = {}  # reference -> state, of tasks and relays
        self.runs: dict[str, int] = {}
        self.claims: dict[tuple[str, int], str] = {}
        self.marked: set[tuple[str, int]] = set()  # runs that are to end as cancelled
        self.temporary_runs: dict[str, int] = {}  # label -> runs that failed for the moment, and were tried again
        self.failed_runs: dict[str, int] = {}  # label -> runs that failed for the task's own sake
        self.lost_leases = 0
        self.failed_for_good = 0
        self.completed = 0
        self.skipped = 0
        self.sequence = 0
        self.graph_state = ""
        self.history: list[str] = []
        self.going: set[str] = set()  # tasks that the edit of this commit takes away
        self.paused: set[str] = set()  # groups, "" for the whole graph, by what the journal has said
        self.members: Mapping[str, frozenset[str]] = {}  # group -> labels of all of its tasks
        self.has_waited: Callable[[Row], bool] = lambda row: False  # see `_in_time`
        self.under: Mapping[str, frozenset[str]] = {}  # key of a limit -> taskIds of all that is under it
        self.in_flight: frozenset[str] = frozenset()  # runs in flight, after the commit before
        self.recalls = -1  # rows that have not taken their ends back, by the graph row; -1: none ever had to
        self.cancels_alone = True  # tasks may be cancelled, and not their graph
        self.may_cancel = True
        self.commits = 0
        self.counted: Mapping[str, Counted] = {}  # groups that need k of n, which tasks require by name
        self.reset: set[str] = set()  # tasks that have been reset, and wait for the end of all recalls
        self.begun_at: dict[str, int] = {}  # taskId -> the commit in which its last run began
        self.resolved_at: dict[str, int] = {}  # reference -> the commit in which it was resolved last

    def passes(self, label: str) -> bool:
        """Whether a failure of this task is told to dependents."""
        return label in self.counted or self.goes_on != (label in self.apart)

    def _over(self, label: str) -> frozenset[str]:
        """States in which a task is over for its dependents, and for the graph."""
        if self.passes(label):
            return RESOLVED
        return frozenset({"completed", "skipped"} if self.goes_on or self.apart else {"completed"})

    def edited(self, tasks: Mapping[str, TaskNode], deleted: Iterable[str]) -> None:
        """The graph is another from this commit on: these tasks may be in it, and those are not any more."""
        self.tasks = tasks
        self.requires = {
            label: [_id_of(self.graph_id, each) for each in node.requires] for label, node in tasks.items()
        }
        self.going = {_id_of(self.graph_id, label) for label in deleted}

    def _gone(self, key: str) -> None:
        """A row was taken away: an edit says so, and it had not been started; or the graph starts."""
        if key.startswith("submitting:"):
            return
        reference = reference_of(key)
        if not key.startswith(("task:", "join:", "fork:", "definition:", "group:", "limit:")):
            raise Violation(f"{key} was taken away")
        state = self.states.pop(reference, "")
        if key.startswith("task:"):
            if reference not in self.going:
                raise Violation(f"{key} was taken away, and nobody wished for that")
            if state not in ("unscheduled", "pending") or self.runs.pop(reference, 0):
                raise Violation(f"{key} was taken away, and was {state}")

    def committed(self, rows: Mapping[str, Row], changes: Sequence[Change], updated: Sequence[str] = ()) -> None:
        """Look at what a commit has left. updated: labels of tasks that it edits. Raises Violation."""
        graph: Row | None = None
        tasks: list[Row] = []
        tallies: list[Row] = []
        self.commits += 1
        over = self.graph_state in ("finished", "cancelled") and any(each.key == GRAPH for each in changes)
        if over and rows[GRAPH].columns["state"] != self.graph_state:  # else it has ended again in this very commit
            self._graph_moves(str(rows[GRAPH].columns["state"]))  # a rerun reopens it
        self.recalls = int(str(rows[GRAPH].columns.get("recalls", -1))) if GRAPH in rows else -1
        told, told_skipped = -1, 0
        fenced = GRAPH in rows and rows[GRAPH].columns["state"] in OVER
        self.may_cancel = fenced or self.cancels_alone
        for change in changes:
            key = change.key
            if isinstance(change, Delete):
                self._gone(key)
                continue
            row = rows[key]
            if key.startswith("task:"):
                tasks.append(row)
                self._task(row, edited=bool(updated) and row.columns["label"] in updated)
            elif key == GRAPH:
                graph = row
            elif key.startswith("event:"):
                if row.columns["sequence"] != self.sequence + 1:
                    raise Violation(f"{key} follows event {self.sequence}")
                self.sequence += 1
                self._note_pauses(row)
                told = int(str(row.columns["completed"]))
                told_skipped = int(str(row.columns.get("skipped", 0)))
            elif key.startswith(("join:", "fork:")):
                self._relay(row)
                if "decides" in row.columns:
                    tallies.append(row)
        for row in tasks:  # once all of the commit is known
            self._ready(row, fenced)
        for row in tallies if self.recalls <= 0 and not fenced else ():
            self._count(row)
        if self.under:
            self._limited(rows)
        if told not in (-1, self.completed):
            raise Violation(f"the journal counts {told} completed tasks, and {self.completed} are")
        if told >= 0 and told_skipped != self.skipped:
            raise Violation(f"the journal counts {told_skipped} skipped tasks, and {self.skipped} are")
        if graph is not None:
            self._graph(graph)
        elif tasks and self.graph_state == "finished":
            raise Violation("a task changed in a finished graph")
        if self.graph_state:
            counted = rows[GRAPH].columns["failedTasks"]
            if counted != self.failed_for_good:
                raise Violation(f"the graph counts {counted} failed tasks, and {self.failed_for_good} are")

    def _move(self, reference: str, columns: Mapping[str, Any]) -> tuple[str, str]:
        before, after = self.states.get(reference, ""), columns["state"]
        if before != after:
            self.states[reference] = after
            self.failed_for_good += (after in FAILED_FOR_GOOD) - (before in FAILED_FOR_GOOD)
            if ":" not in reference:
                self.completed += (after == "completed") - (before == "completed")
                self.skipped += (after == "skipped") - (before == "skipped")
            if after in RESOLVED:
                self.resolved_at[reference] = self.commits
            elif after == "running":
                self.begun_at[reference] = self.commits
        return before, after

    def _task(self, row: Row, *, edited: bool = False) -> None:
        columns: Mapping[str, Any] = row.columns
        reference, label = row.key[5:], columns["label"]
        before, after = self._move(reference, columns)
        run = columns["run"]
        last = self.runs.get(reference, 0)
        if run > last and before == after and after in RESOLVED:
            self.resolved_at[reference] = self.commits  # run again and skipped once more, in one commit
        if (
            edited
            and not before == after in FAILED_FOR_GOOD
            and (run or before not in ("unscheduled", "pending") or after not in EDITED_TO)
        ):
            raise Violation(f"{label} was edited in run {run}, from {before} to {after}")
        if before != after and not edited:
            again = (before, after) == ("exception", "skipped") and run > last
            if (before, after) not in TASK_MOVES and not again:  # rerun by hand, and skipped in the same commit
                raise Violation(f"{label} moved from {before} to {after}")
            if after in ("pending", "unscheduled") and before not in ("", "unscheduled") and run <= last:
                raise Violation(f"{label}: same run")
            if self.graph_state == "cancelled":
                raise Violation(f"{label} moved from {before} to {after} in a cancelled graph")
            if after == "exception" and not self.may_cancel and is_cancelled(columns):
                raise Violation(f"{label} is cancelled, and its graph is not")
            in_vain = after == "exception" and not is_cancelled(columns) and not _too_late(columns)
            if in_vain and before in ("unscheduled", "pending"):
                raise Violation(f"{label} is {after}, and never ran")
        if run < last:
            raise Violation(f"the run of {label} went down")
        self.runs[reference] = run
        if (
            (reference, last) in self.marked
            and (run != last or after not in ("running", "exception"))
            and not columns.get("manualReruns")
        ):
            raise Violation(f"{label} is {after} in run {run}, and was to be cancelled in run {last}")
        if after == "running" and columns.get("cancel"):
            self.marked.add((reference, run))
        if after == "running" and before != "running":
            self._may_begin(label, columns)
        if after == "running":
            self._in_time(row)
            claim = self.claims.setdefault((reference, run), columns["claim"])
            if claim != columns["claim"]:
                raise Violation(f"run {run} of {label} was claimed twice")
        allowed = columns["rerunsAllowed"]
        spent = allowed - columns["rerunsLeft"]
        lost = limits.RETRIES_DEFAULT - columns["retriesLeft"]
        manual, handed = columns.get("manualReruns", 0), columns.get("handBacks", 0)
        if not 0 <= spent <= allowed:
            raise Violation(f"{label} has spent {spent} reruns")
        if not 0 <= lost <= limits.RETRIES_DEFAULT:
            raise Violation(f"{label} has spent {lost} retries")
        later = columns.get("temporaryFailures", 0)
        if later:
            if not 0 <= later - columns.get("temporaryForgiven", 0) <= retry_of(columns.get("retry", "")).limit:
                raise Violation(f"{label} was tried again too often: {later}")
            self.temporary_runs[label] = later
        if run != spent + lost + manual + handed + later:
            raise Violation(f"{label} is in run {run}: {spent}, {lost}, {manual}, {handed}, {later}")
        self.failed_runs[label] = spent + manual
        if reference in self.reset and self.recalls > 0 and after in ("pending", "running"):
            raise Violation(f"{label} is {after} again, and there are {self.recalls} recalls to do")
        if columns.get("due") in ("recall", "ready"):
            self.reset.add(reference)
        else:
            self.reset.discard(reference)
        if self.counted and before != after == "exception" and columns.get("manualReruns"):
            unneeded = json.loads(columns["resolution"]).get("code") == "unneeded"
            hold(
                not unneeded or columns.get("cancel"), f"{label} was run again by hand, and is cancelled with the rest"
            )
        left = columns["requiresLeft"]
        waits = left != "[]" or columns.get("due", "") != ""
        if (after == "unscheduled") != waits and not (waits and after == "exception"):
            raise Violation(f"{label} is {after} and waits for {left}")
        self._bounded(row, limits.REQUIRES_MAX)

    def _note_pauses(self, row: Row) -> None:
        if not _ASKED_FOR.isdisjoint(str(row.columns["kinds"]).split()):
            for fact in json.loads(str(row.columns["events"])):
                if self.says_by and fact["event"] in _ASKED_FOR and not fact.get("by"):
                    raise Violation(f"{fact} does not say who asked for it")
                if fact["event"] == "graph-paused":
                    self.paused.add(fact.get("group", ""))
                elif fact["event"] == "graph-resumed":
                    self.paused.discard(fact.get("group", ""))

    def _may_begin(self, label: str, columns: Mapping[str, Any]) -> None:
        """No run begins of what is held back; nor of what the journal says is paused (S5)."""
        if columns.get("held", "[]") not in ("", "[]"):
            raise Violation(f"{label} begins, and is held back by {columns['held']}")
        for group in self.paused:
            if not group or label in self.members.get(group, ()):
                raise Violation(f"{label} begins, and {f'group {group}' if group else 'its graph'} is paused")

    def _limited(self, rows: Mapping[str, Row]) -> None:
        """Nothing begins beyond a limit, it counts runs without a mistake, and what it concerns is under it."""
        runs = {each: f"{each}:{run}" for each, run in self.runs.items() if self.states.get(each) == "running"}
        begun = frozenset(runs.values()) - self.in_flight
        self.in_flight = frozenset(runs.values())
        graph = rows[GRAPH].columns if GRAPH in rows else {}
        going = graph.get("state") in ("running", "blocked")
        settled = going and graph.get("limiting") is not True and not graph.get("extending")
        for key, tasks in self.under.items():
            row = rows.get(key)
            if row is None:
                continue  # its request has not come so far
            scope = key.removeprefix("limit:")
            named: set[str] = set()
            for each in tasks:
                if (task := rows.get(f"task:{each}")) is None:
                    continue
                own = _references(str(task.columns.get("limits", "[]")))
                if scope in own:
                    named.add(each)
                elif (
                    settled
                    and self.states[each] not in {"skipped", *self._over(str(task.columns["label"]))}
                    and len(own) < limits.LIMITS_OF_TASK_MAX
                ):
                    raise Violation(f"{task.columns['label']} is {self.states[each]}, and not under {key}")
            running = frozenset(runs[each] for each in named if each in runs)
            if running & begun and len(running) > int(str(row.columns["max"])):
                raise Violation(f"{len(running)} run under {key}, and {row.columns['max']} may")
            listed = _references(str(row.columns["inFlight"]))
            if len(set(listed)) != len(listed) or running.difference(listed) or set(listed) - running:
                raise Violation(f"{key} counts {listed}, and {sorted(running)} run")

    def _in_time(self, row: Row) -> None:
        """A claim is neither too early nor too late, by the clock of who made it, or by how long it has waited."""
        columns: Mapping[str, Any] = row.columns
        started = columns.get("started")
        if started is None:  # a rule that was left out on purpose: others notice
            return
        if "notBefore" in columns and started < columns["notBefore"] and not self.has_waited(row):
            raise Violation(f"{columns['label']} was claimed before its time")
        if "deadline" in columns and started >= columns["deadline"]:
            raise Violation(f"{columns['label']} was claimed past its deadline")

    def _ready(self, row: Row, fenced: bool) -> None:
        if self.recalls > 0:
            return  # what it requires may have been reset, and its own reset comes next: see `consistent`
        if self.goes_on or self.apart:
            self._decided(row, fenced)
        elif row.columns["state"] in ("pending", "running", "completed"):
            label = row.columns["label"]
            for required in self.requires[label]:
                if self.states.get(required) != TaskState.COMPLETED:
                    raise Violation(f"{label} is ready before what it requires")

    def _decided(self, row: Row, fenced: bool) -> None:
        """A task runs or is skipped when all that it requires is over, as its condition says."""
        state, label = str(row.columns["state"]), str(row.columns["label"])
        cancelled = is_cancelled(row.columns)
        if state == "unscheduled" or (cancelled and (fenced or not self.passes(label))):
            return
        node = self.tasks[label]
        ends = {each: self._end_of(each) for each in node.requires}
        open_ones = [each for each, end in ends.items() if end not in self._over(each)]
        if open_ones:
            raise Violation(f"{label} is {state} before {open_ones} are over")
        if runs(node, ends) == (state == "skipped") and not cancelled:
            raise Violation(f"{label} is {state}, after {ends}")
        ran = row.columns["run"] and not row.columns.get("manualReruns")
        if state == "skipped" and (ran or row.columns.get("claim")):
            raise Violation(f"{label} is skipped, and was run")

    def _end_of(self, name: str) -> str:
        """The state of a task, or how a group that needs k of n has ended."""
        if (group := self.counted.get(name)) is not None:
            return group.end(self._end_of)
        return self.states.get(_id_of(self.graph_id, name), "")

    def _count(self, row: Row) -> None:
        """What a tally says of its members is so, and the decision has heard that."""
        columns: Mapping[str, Any] = row.columns
        group = self.counted[columns["label"]]
        ends = [self._end_of(each) for each in group.units]
        good, bad = ends.count("completed"), sum(end in RESOLVED - {"completed"} for end in ends)
        if any(each in self.counted for each in group.units):
            return  # a group in it may be decided a commit before it is counted
        counted = columns["ok"], columns["bad"]
        if counted != (good, bad):  # a member with many dependents is told to some of them in a later commit
            late = len(self.tasks) > limits.DEPENDENTS_MAX and counted <= (good, bad) and columns["bad"] <= bad
            hold(late, f"{columns['label']} counts {counted}, and should count {(good, bad)}")
            return
        told = {"": "", "succeeded": "completed", "failed": "failed"}[columns.get("announced", "")]
        wanted = group.end(self._end_of)
        if not group.waits or columns["state"] == "completed":
            hold(told == wanted, f"{columns['label']} has told “{told}”, and should have “{wanted}”")
        else:
            hold(not told, f"{columns['label']} has told “{told}”, and waits")

    def _relay(self, row: Row) -> None:
        before, after = self._move(reference_of(row.key), row.columns)
        back = before == "completed" and after != "completed"
        hold(not back or self.recalls >= 0, f"{row.key} went back to {after}")
        self._bounded(row, limits.REQUIRES_MAX + 1)

    def _bounded(self, row: Row, requires_max: int) -> None:
        columns: Mapping[str, Any] = row.columns
        for name, bound in (("requires", requires_max), ("dependents", limits.DEPENDENTS_MAX)):
            text = columns.get(name)
            if text is not None and text.count('"') > bound * 2:
                raise Violation(f"{row.key} names {len(json.loads(str(text)))} in {name}")

    def _graph_moves(self, state: str) -> None:
        # What is rerun may be skipped at once, and was all that the graph waited for.
        at_once = (self.graph_state, state) == ("blocked", "finished") and bool(self.apart)
        known = (self.graph_state, state) in GRAPH_MOVES or at_once
        hold(known, f"the graph moved from {self.graph_state} to {state}")
        self.graph_state = state
        self.history.append(state)

    def _graph(self, row: Row) -> None:
        state = str(row.columns["state"])
        self._bounded(row, limits.GRAPH_REQUIRES_MAX)
        if state != self.graph_state:
            self._graph_moves(state)
        if state == "finished":
            hold(not row.columns.get("recalls"), "the graph finished, and there are recalls to do")
            hold(row.columns.get("deferred", "[]") == "[]", "the graph finished before what it was to be extended by")
            late = [label for label, end in self._ends().items() if end not in self._over(label)]
            hold(not late, f"the graph finished before {late}")
            hold(int(row.columns.get("skippedTasks", 0)) == self.skipped, f"{self.skipped} were skipped")
        if state == "cancelled" and "cancelling" in self.history:
            late = [r for r, s in self.states.items() if s not in RESOLVED and ":" not in r]
            hold(not late, f"the graph is cancelled before {late}")
        if state == "cancelled":
            hold(not row.columns.get("recalls"), "the graph is cancelled, and there are recalls to do")
        if state == "blocked":
            hold(int(row.columns["failedTasks"]) > 0, "the graph is blocked, and nothing failed")
        if state in ("running", "blocked", "finished"):
            ends = self._ends() if self.failed_for_good else {}
            stuck = [each for each, end in ends.items() if end in FAILED_FOR_GOOD and not self.passes(each)]
            hold(bool(stuck) == (state == "blocked"), f"the graph is {state}, and {stuck} have failed and block it")

    def _ends(self) -> dict[str, str]:
        """Label -> state, of the tasks that are there."""
        ends = {label: self.states.get(_id_of(self.graph_id, label), "") for label in self.tasks}
        return {label: end for label, end in ends.items() if end}

    def consistent(self, rows: Mapping[str, Row]) -> None:
        """At rest: what ran has run after the last end of everything that it requires."""
        for key, row in rows.items():
            if row.columns.get("due", "") != "":
                raise Violation(f"{key} is due to be {row.columns['due']}")
            if not key.startswith("task:") or row.columns["state"] not in RESOLVED or is_cancelled(row.columns):
                continue
            own, label = key[5:], str(row.columns["label"])
            if row.columns["state"] == "exception" and _too_late(row.columns):
                continue
            began = self.resolved_at[own] if row.columns["state"] == "skipped" else self.begun_at.get(own, 0)
            for name, required in zip(self.tasks[label].requires, self.requires[label], strict=True):
                if name in self.counted:
                    hold(self._end_of(name), f"{label} is {row.columns['state']}, and {name} is not decided")
                    continue
                state, ended = self.states.get(required), self.resolved_at.get(required, 0)
                if state not in self._over(name) or began < ended:
                    raise Violation(f"{label} began in commit {began}, and {required} is {state} since {ended}")


def settled(
    rows: Mapping[str, Row],
    graph_id: str,
    tasks: Mapping[str, TaskNode],
    *,
    goes_on: bool = False,
    counted: Mapping[str, Counted] | None = None,
    apart: Collection[str] = (),
) -> None:
    """At rest: the edges of every row, both ways and through relays, are those of the documents. Raises Violation.

    counted: groups that need k of n. apart: labels that do not follow the graph in whether failures are passed on.
    goes_on: every task must have ended as the document, and who failed, say. Of a cancelled graph every task has ended,
    and nobody was told of anything any more.
    """
    if rows[GRAPH].columns["state"] == "cancelled":
        _cancelled(rows, tasks)
        return
    labels = {_id_of(graph_id, label): label for label in tasks}
    found = {str(row.columns["label"]): row for key, row in rows.items() if key.startswith("task:")}
    if found.keys() != tasks.keys():
        raise Violation(f"the graph holds {sorted(found)} instead of {sorted(tasks)}")
    blocking = {label for label in tasks if goes_on == (label in apart)}
    may_skip = goes_on or bool(apart)
    ended = frozenset({"completed", "skipped"} if may_skip else {"completed"})
    done = {label for label, row in found.items() if row.columns["state"] in (ended if label in blocking else RESOLVED)}
    own = any(label in apart for label in tasks)
    hold(own <= (rows[GRAPH].columns.get("groupPolicies") is True), "the graph does not say that groups have policies")
    if may_skip:
        ends = {label: str(row.columns["state"]).replace("exception", "failed") for label, row in found.items()}
        groups = {name: group.end for name, group in (counted or {}).items()}
        known = {label: "failed" for label, row in found.items() if is_cancelled(row.columns)}
        wanted = expected(tasks, {label for label, end in ends.items() if end == "failed"}, groups, known, blocking)
        hold(ends == wanted, f"ended as {ends}, and should have as {wanted}")
        hold(not any(row.columns.get("due") for row in found.values()), "somebody is due to be skipped")
    by_group: set[str] = set()  # in a graph that is blocked, their group may be decided before all of it has ended
    if counted:
        if rows[GRAPH].columns["state"] == "blocked":
            by_group = {label for label, node in tasks.items() if not counted.keys().isdisjoint(node.requires)}
        tasks = {
            label: dataclasses.replace(node, requires=tuple(_members(node.requires, counted)))
            for label, node in tasks.items()
        }
    edges: set[tuple[str, str]] = set()
    for label, row in found.items():
        needs = {labels[each] for each in _behind(rows, row, "requires", "join:")}
        if needs != set(tasks[label].requires):
            raise Violation(f"{label} requires {needs}")
        left = {labels[each] for each in _behind(rows, row, "requiresLeft", "join:")}
        if left != needs - done and label not in by_group and not (may_skip and label in done and not left):
            raise Violation(f"{label} waits for {left}")
        edges |= {(labels[each], label) for each in _downstream_of(rows, row) if each != GRAPH}
    if edges != {(label, each) for label, node in tasks.items() for each in node.requires}:
        raise Violation(f"dependents: {edges}")
    _journal(rows, found)
    waits = {labels[each] for each in _behind(rows, rows[GRAPH], "requiresLeft", "join:")}
    leaves = set(tasks) - {each for node in tasks.values() for each in node.requires}
    if not leaves - done <= waits <= set(tasks) - done:
        raise Violation(f"the graph waits for {waits}")
    if (number := rows[GRAPH].columns["tasks"]) != len(tasks):
        raise Violation(f"the graph counts {number} tasks")


def _members(names: Iterable[str], counted: Mapping[str, Counted]) -> dict[str, None]:
    """Labels behind requirements, members of groups that need k of n among them."""
    found: dict[str, None] = {}
    for name in names:
        found.update(_members(counted[name].units, counted) if name in counted else {name: None})
    return found


_LONG_AGO: Final = "2025-12"  # before the time of any history: by a clock that is off


def _cancelled(rows: Mapping[str, Row], tasks: Mapping[str, TaskNode]) -> None:
    found = {str(row.columns["label"]): row for key, row in rows.items() if key.startswith("task:")}
    if not found.keys() <= tasks.keys():
        raise Violation(f"the graph holds {sorted(found)}, and not only {sorted(tasks)}")
    abandoned = rows[GRAPH].columns.get("reason") == "the submission was begun and never finished"
    if abandoned and str(rows[GRAPH].columns["created"]) < _LONG_AGO:
        hold(not any("claim" in row.columns for row in found.values()), "it has never started, and a task has run")
        return  # it may have been given up before its first task was there: by a clock that is off by months
    late = {label for label, row in found.items() if row.columns["state"] not in RESOLVED}
    hold(not late, f"cancelled, and {late} have not ended")
    hold(rows[GRAPH].columns["tasks"] == len(found), f"the graph counts {rows[GRAPH].columns['tasks']} tasks")
    hold(not rows[GRAPH].columns.get("extending"), "an extension is under way in a cancelled graph")
    _journal(rows, found)


def _journal(rows: Mapping[str, Row], found: Mapping[str, Row]) -> None:
    """The facts tell what the rows say."""
    facts = [
        fact for key, row in rows.items() if key.startswith("event:") for fact in _facts_in(str(row.columns["events"]))
    ]
    told = Counter(kind for kind, _ in facts)
    state = rows[GRAPH].columns["state"]
    reopened = int(str(rows[GRAPH].columns.get("reopened", 0)))
    if told["graph-running"] != 1 + reopened:
        raise Violation(f"the graph was told to run {told['graph-running']} times")
    if told["graph-finished"] + told["graph-cancelled"] != reopened + (state in ("finished", "cancelled")):
        raise Violation(f"told: {told}, and the graph is {state}")
    if (not told["graph-finished"] and state == "finished") or (not told["graph-cancelled"] and state == "cancelled"):
        raise Violation(f"told: {told}, and the graph is {state}")
    if (told["graph-cancelling"] > 0) != (told["graph-cancelled"] > 0):
        raise Violation(f"told: {told}, and the graph is {state}")
    if not reopened and told["graph-blocked"] - told["graph-unblocked"] not in (
        (0, 1) if state == "cancelled" else (state == "blocked",)
    ):
        raise Violation(f"told: {told}, and the graph is {state}")
    for end in ("completed", "skipped"):
        ended = Counter(label for kind, label in facts if kind == f"task-{end}")
        ended.subtract(label for kind, label in facts if kind == f"not-{end}")
        if +ended != Counter(label for label, row in found.items() if row.columns["state"] == end):
            raise Violation(f"told to be {end}: {+ended}")
    cancelled = Counter(label for kind, label in facts if kind == "task-cancelled")
    for label, row in found.items():
        if cancelled[label] < is_cancelled(row.columns) or cancelled[label] > 1 + row.columns.get("manualReruns", 0):
            raise Violation(f"{label} was told to be cancelled {cancelled[label]} times")
    reruns = Counter(label for kind, label in facts if kind in ("task-rerun", "task-retry"))
    for label, row in found.items():
        if reruns[label] != row.columns["run"]:
            raise Violation(f"{label} is in run {row.columns['run']}, and {reruns[label]} were told")


def _downstream_of(rows: Mapping[str, Row], row: Row) -> set[str]:
    """The tasks behind a dependents list, and the graph: through forks and joins of groups; other joins name theirs."""
    found: set[str] = set()
    passed: set[str] = set()
    todo = list(_references(str(row.columns["dependents"])))
    while todo:
        reference = todo.pop()
        if not reference.startswith(("join:", "fork:")):
            found.add(reference)
        elif reference.startswith("join:") and not reference.startswith("join:group-"):
            found.add(reference.split(":")[1])
        elif reference not in passed:  # a piece of a group's join names that join as its only dependent
            passed.add(reference)
            todo.extend(_references(str(rows[reference].columns["dependents"])))
    return found


def _behind(rows: Mapping[str, Row], row: Row, column: str, relays: str) -> set[str]:
    """References in a column, with the relays of one kind replaced by what their same column holds."""
    found: set[str] = set()
    todo = list(_references(str(row.columns[column])))
    while todo:
        reference = todo.pop()
        if reference.startswith(relays):
            todo.extend(_references(str(rows[reference].columns[column])))
        else:
            found.add(reference)
    return found
