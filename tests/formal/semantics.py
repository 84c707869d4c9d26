"""The truth table of docs/reference/semantics.md: what each item of `protocol.decide.decide` does in each state.

`scripts/generate` writes the tables into the page, `scripts/generate --check` says whether they are current, and
`test_semantics.py` reads the page's tables and holds each cell against what `decide` does with rows made for it.

**Who adds an item to `protocol.decide.RULES`** adds a `Case` for each way in which it can meet a row to `CASES` (the
first example of the message that asks for it is one by itself), and
runs `scripts/generate`. The item's sentence is the first line of its docstring. A column that gates something (as
`due` does) is one more case of the items that look at it: `columns` sets it on the task's row, `graph` on the graph's.
**Who adds a state** adds it to `TASKS` or `GRAPHS`: how rows look in it. What is missing fails the test.

The scene is the smallest that has everything: `before` is required by `task`, which `dependent` requires, for which
the graph waits. It stands as it would if everything had gone right up to the state that is asked about; states of task
and graph that cannot meet are asked about all the same, as a message may come at any time.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from taskgraph.documents.nodes import TaskNode
from taskgraph.model.budget import BUDGET, OVER, REACHED
from taskgraph.model.columns import Value
from taskgraph.model.ids import GRAPH, group_owner, ids_text, join_reference, row_key, task_id_of
from taskgraph.model.messages import MESSAGE_TYPES, parse
from taskgraph.model.schemas import schema
from taskgraph.model.states import TASK_STORED, FailurePolicy, GraphState, When
from taskgraph.protocol import decide as transitions
from taskgraph.protocol.cancel import CancelGraph, CancelTask, CancelUnneeded, PublishCancelled
from taskgraph.protocol.conditions import meets
from taskgraph.protocol.context import Cancelling, Dispatch, Effect, GraphEnded, GraphRevived, Refill, Stop
from taskgraph.protocol.decide import Decision, Item, decide
from taskgraph.protocol.definitions import schema_for
from taskgraph.protocol.edit import EditGraph, TaskEdit
from taskgraph.protocol.extension import (
    AcceptExtension,
    DeferExtension,
    FinishExtension,
    InsertRows,
    LinkTasks,
    RefuseRequest,
)
from taskgraph.protocol.layout import lay_out
from taskgraph.protocol.leases import SetRight
from taskgraph.protocol.lifecycle import Abandon, Begin, BeginDeletion, NextDeadline, Stall, Start, Stir
from taskgraph.protocol.pause import Hold, HoldTask, PublishHolds, Settle
from taskgraph.protocol.planned import FinishChange, TakeUp
from taskgraph.protocol.recall import ManualRerun, Ready, Recall
from taskgraph.protocol.relays import Fire, Remind, Skip
from taskgraph.protocol.runs import CannotRun, Claim, Completed, Failed, HandBack, LeaseLost, Overdue, Renew
from taskgraph.protocol.set_limit import ChangeLimit, ComeUnder, PublishLimits, Recount
from taskgraph.protocol.spending import Charge
from taskgraph.protocol.tally import SCHEMA_OF_TALLIES
from taskgraph.protocol.transfer import SEALED_KINDS, Arrive, Confirm, Depart, Remain, Withdraw, seal
from taskgraph.protocol.wiring import Link
from taskgraph.storage.tables import Delete, Insert, Merge, Replace, Row

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "semantics.md"

NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
ENDED: Final = NOW.isoformat()
PAST: Final = NOW - timedelta(seconds=1)
LATER: Final = NOW + timedelta(seconds=60)
YEARS_AGO: Final = NOW - timedelta(days=1000)
BEFORE, TASK, DEPENDENT = (task_id_of("g", label) for label in ("before", "task", "dependent"))
ADDED: Final = task_id_of("g", "added")
RELAY: Final = f"fork:{TASK}:0-0"
REQUEST: Final = "request:r"
LIMIT: Final = "limit:graph"
TALLY: Final = join_reference(group_owner(task_id_of("g", "g")), "all")
NAMES: Final = {
    row_key(BEFORE): "requirement",
    row_key(TASK): "task",
    row_key(DEPENDENT): "dependent",
    row_key(ADDED): "new task",
    GRAPH: "graph",
    RELAY: "relay",
    REQUEST: "request",
    LIMIT: "limit",
}
PASSES: Final[Mapping[str, Value]] = {"failurePolicy": "continue"}
BLOCKS: Final[Mapping[str, Value]] = {"failurePolicy": "block"}
MIXED: Final[Mapping[str, Value]] = {"groupPolicies": True}
FAULT: Final = '{"label":"before","state":"failed","taskId":"x"}'
MARKED: Final[Mapping[str, Value]] = {"cancel": "y"}
HELD: Final[Mapping[str, Value]] = {
    "held": '["paused"]',
    "heldAsked": f'{{"paused":"{NOW.isoformat()}"}}',
    "holds": 1,
}
FREE: Final[Mapping[str, Value]] = {}
TAKEN: Final[Mapping[str, Value]] = {"inFlight": f'["{TASK}:1"]'}
FULL: Final[Mapping[str, Value]] = {"inFlight": f'["{BEFORE}:0"]'}
UNNAMED: Final[Mapping[str, Value]] = {"limits": "[]", "limited": ""}
LIMITING: Final[Mapping[str, Value]] = {"limits": '["graph"]', "limiting": True}
OK: Final = {"failed": False}
BROKEN: Final = {"failed": True, "reason": "x"}

Columns = Mapping[str, Value]
Cells = tuple[str, str, str, str]
"""Answer, changes, facts, what is sent."""

# --- states: how rows look in them ---------------------------------------------------------------------------------

_BEGUN: Final[Columns] = {"claim": "c", "worker": "w", "started": PAST, "leaseUntil": LATER}
_OVER: Final[Columns] = {**_BEGUN, "ended": PAST, "resolved": PAST}
_NEXT_RUN: Final[Columns] = {"run": 1, "rerunsAllowed": 2, "rerunsLeft": 1}

TASKS: Final[Mapping[str, Columns]] = {
    "unscheduled": {},
    "pending": {**_NEXT_RUN, "pendingSince": PAST},
    "running": {**_NEXT_RUN, **_BEGUN},
    "completed": {**_NEXT_RUN, **_OVER, "resolution": '{"failed":false}'},
    "failed": {**_NEXT_RUN, **_OVER, "rerunsAllowed": 1, "rerunsLeft": 0, "resolution": '{"failed":true,"reason":"x"}'},
    "exception": {**_NEXT_RUN, **_OVER, "resolution": '{"failed":true,"reason":"x"}'},
    "skipped": {"resolved": PAST, "resolution": '{"skipped":true}', "due": ""},
}
"""State of a task -> the columns that go with it."""

GRAPHS: Final[Mapping[str, Columns]] = {
    "submitting": {},
    "running": {"started": PAST},
    "blocked": {"started": PAST, "failedTasks": 1, "blockedBy": "other", "blocked": PAST},
    "finished": {"started": PAST, "finished": PAST, "requiresLeft": "[]"},
    "cancelling": {"started": PAST, "reason": "x"},
    "cancelled": {"started": PAST, "reason": "x"},
    "deleting": {"was": "finished", "deleting": PAST, "until": LATER, "requiresLeft": "[]"},
    "deleted": {"was": "finished", "deleted": PAST, "until": LATER, "requiresLeft": "[]"},
    "restoring": {"was": "finished", "restoring": PAST, "requiresLeft": "[]"},
    "moving": {"was": "running", "moving": PAST, "transfer": "t", "movesTo": "there"},
    "moved": {"was": "running", "moving": PAST, "moved": PAST, "transfer": "t", "movesTo": "there"},
}
"""State of a graph -> the columns that go with it."""

RELAYS: Final = ("unscheduled", "pending", "completed")
REQUESTS: Final = ("staged", "accepted", "done", "refused")
_RESOLVED: Final = frozenset({"completed", "failed", "exception", "skipped"})

NODES: Final = {
    "before": TaskNode("before"),
    "task": TaskNode("task", ("before",)),
    "dependent": TaskNode("dependent", ("task",)),
}


@dataclass(frozen=True)
class Scene:
    """What is asked about: the state of each row that matters."""

    task: str = "running"
    graph: str = "running"
    relay: str = ""
    request: str = ""
    policy: str = FailurePolicy.BLOCK.value
    columns: Columns = field(default_factory=dict)
    graph_columns: Columns = field(default_factory=dict)
    dependent: Columns = field(default_factory=dict)
    request_columns: Columns = field(default_factory=dict)
    limit: Columns | None = None  # of a limit on the graph, which the task is under, and its dependent
    tally: Columns | None = None  # of what counts for a group, as far as an item about one of its tasks looks at it

    def rows(self) -> dict[str, Row | None]:
        """All rows of the graph."""
        schema = schema_for(self.policy)
        layout = lay_out("g", NODES, stamp="0", now=PAST, schema=schema)
        told = self.task == "completed" or (self.task in _RESOLVED and self.policy == FailurePolicy.CONTINUE)
        rows = {insert.key: dict(insert.columns) for insert in layout.rows}
        done = {"state": "completed", **_OVER, "resolution": '{"failed":false}'}
        rows[row_key(BEFORE)] |= done if self.task != "unscheduled" else {}
        rows[row_key(TASK)] |= {"state": self.task, **TASKS[self.task]}
        if self.task != "unscheduled":
            rows[row_key(TASK)]["requiresLeft"] = "[]"
        if self.task == "skipped":
            rows[row_key(TASK)]["skippedBy"] = FAULT
        if told:
            good = self.task == "completed"
            heard = "skippedBy" if self.task == "skipped" else "failedBy"
            told_so: Columns = {"state": "pending"} if good else {"due": "skip", heard: FAULT}
            rows[row_key(DEPENDENT)] |= {"requiresLeft": "[]", **told_so}
        if self.limit is not None:
            for task in (TASK, DEPENDENT):
                rows[row_key(task)] |= {"limits": '["graph"]', "limited": "yes"}
            rows[LIMIT] = {"schema": 1, "max": 1, "inFlight": "[]", "moved": PAST, **self.limit}
        if self.tally is not None:
            rows[TALLY] = {"schema": SCHEMA_OF_TALLIES, "state": "unscheduled", "label": "g", **self.tally}
        rows[row_key(TASK)] |= self.columns
        rows[row_key(DEPENDENT)] |= self.dependent
        if self.relay:
            rows[row_key(TASK)]["dependents"] = ids_text([RELAY])
            rows[RELAY] = {
                "schema": schema,
                "state": self.relay,
                "requires": ids_text([TASK]),
                "requiresLeft": ids_text([TASK] if self.relay == "unscheduled" else []),
                "dependents": ids_text([DEPENDENT]),
            }
            if self.policy == FailurePolicy.CONTINUE and self.relay != "unscheduled":
                rows[RELAY]["failedBy"] = FAULT
            if self.relay != "completed":
                rows[row_key(DEPENDENT)] |= {"state": "unscheduled", "requiresLeft": ids_text([TASK]), "due": ""}
        graph: dict[str, Value] = {
            "schema": schema,
            "state": self.graph,
            "digest": "digest",
            "created": PAST - timedelta(days=2),
            "tasks": 3,
            "edges": 2,
            "failedTasks": int(self.task in ("failed", "exception")),
            "revision": 0,
            "requires": ids_text([DEPENDENT]),
            "requiresLeft": ids_text([DEPENDENT]),
            "nameMapping": "{}",
        }
        if self.policy != FailurePolicy.BLOCK:
            graph["failurePolicy"] = self.policy
        rows[GRAPH] = {**graph, **GRAPHS[self.graph], **self.graph_columns}
        if self.request:
            rows[REQUEST] = {"schema": 1, "state": self.request, "digest": "d", "tasks": 1, **self.request_columns}
            if self.request == "accepted":
                rows[REQUEST]["cursor"] = 0
                rows[GRAPH]["extending"] = "r"
        if self.graph in ("moving", "moved"):
            for key, columns in rows.items():
                if key.partition(":")[0] in SEALED_KINDS:
                    columns |= seal(columns)
        return {key: Row(key, f"e-{key}", columns) for key, columns in rows.items()}


# --- items: the ways in which each can meet rows ---------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One way in which an item can meet rows.

    when: in words. over: what is varied: states of the "task", "graph", "relay" or "request". scene: the rest of it.
    """

    when: str
    item: Item
    over: tuple[str, ...] = ("task", "graph")
    scene: Scene = field(default_factory=Scene)


CONTINUE: Final = FailurePolicy.CONTINUE.value
DECIDED: Final[Columns] = {"rest": "cancelling", "needs": 1, "of": 2, "ok": 1, "bad": 0, "announced": "succeeded"}
_RESTS_ON: Final = tuple((key, f"e-{key}") for key in (GRAPH, row_key(TASK)))
_PLANNED: Final[Columns] = {"kind": "change", "plan": "p"}
_ADDED: Final = lay_out("g", {"added": TaskNode("added", ("task",))}, stamp="r", now=NOW, request="r")
_LINK: Final = (Link(TASK, (ADDED,)),)


def _accept(*, whole: bool, revision: int = 0) -> AcceptExtension:
    rows, links = (_ADDED.rows, _LINK) if whole else ((), ())
    return AcceptExtension("r", revision, 1, 1, (ADDED,), None, whole, rows, links, {"nameMapping": "{}"})


NO_LIMIT: Final = Scene()
_UNSTARTED: Final[Columns] = {"run": 0, "rerunsLeft": 2, "rerunsAllowed": 2, "claim": ""}


def _edit(*edits: TaskEdit, edges: int = 0, tasks: int = 0, **more: Any) -> EditGraph:
    nothing: dict[str, Any] = dict.fromkeys(("delete", "cut", "lost", "links", "leaves", "inserts", "columns"), ())
    return EditGraph("r", 0, edits, **{**nothing, **more}, tasks=tasks, edges=edges, fact={})


_REWRITTEN: Final = _edit(TaskEdit(TASK, {"task": '{"payload":{"n":2}}'}))
_MENDED: Final = _edit(TaskEdit(TASK, {"task": '{"payload":{"n":2}}'}, ended=1))
_NOTHING: Final = _edit()
_FREED: Final = _edit(TaskEdit(TASK, {}, requires=()), cut=((BEFORE, TASK),), leaves=(BEFORE,), edges=-1)
_BELOW: Final = _edit(
    TaskEdit(DEPENDENT, {}, requires=(BEFORE,)),
    cut=((TASK, DEPENDENT),),
    links=(Link(BEFORE, (DEPENDENT,)),),
    leaves=(TASK,),
)
_GONE: Final = _edit(
    delete=(row_key(TASK), row_key(DEPENDENT)),
    cut=((BEFORE, TASK),),
    lost=((GRAPH, DEPENDENT),),
    leaves=(BEFORE,),
    tasks=-2,
    edges=-2,
)
_ASKED_ANEW: Final = _edit(TaskEdit(TASK, {"when": "any-failed"}, again=True))


def _spent(**columns: Value) -> Scene:
    return Scene(columns={"rerunsLeft": 0, **columns})


_CHARGED: Final = Charge(2.0, "USD", "2026-11-26")


def _budget(reached: str = "", **budget: Any) -> Scene:
    columns: Columns = {BUDGET: json.dumps(budget)}
    return Scene(graph_columns={**columns, REACHED: reached} if reached else columns)


_STALLED: Final[Columns] = {"stalled": PAST, "stalledBecause": "x", "stalledAt": 0}
_COME: Final[Columns] = {"arrival": "t", "whole": True, "was": "running"}
_CANCELS: Final[Columns] = {"onStalled": "cancel"}
_DEADLY: Final = json.dumps([{"run": n, "outcome": "lost", "worker": f"w{n}", "begun": True} for n in (7, 8)])

CASES: Final[Mapping[str, Sequence[Case]]] = {
    "Completed": (
        Case("it names the present run and claim", Completed(TASK, 1, "c", ENDED, OK)),
        Case(
            "… and nothing else is left to wait for",
            Completed(DEPENDENT, 0, "c", ENDED, OK),
            ("graph",),
            Scene(task="completed", dependent={"state": "running", "requiresLeft": "[]", **_BEGUN}),
        ),
        Case("the task is to be cancelled", Completed(TASK, 1, "c", ENDED, OK), scene=Scene(columns=MARKED)),
        Case(
            "… policy `continue`", Completed(TASK, 1, "c", ENDED, OK), ("task",), Scene(policy=CONTINUE, columns=MARKED)
        ),
        Case("it is under a limit", Completed(TASK, 1, "c", ENDED, OK), ("task",), Scene(limit=TAKEN)),
        Case("it names another run", Completed(TASK, 0, "c", ENDED, OK), ("task",)),
        Case("it names another claim", Completed(TASK, 1, "z", ENDED, OK), ("task",)),
    ),
    "Failed": (
        Case("reruns are left", Failed(TASK, 1, "c", ENDED, BROKEN)),
        Case("no rerun is left", Failed(TASK, 1, "c", ENDED, BROKEN), scene=_spent()),
        Case(
            "no rerun is left, policy `continue`",
            Failed(TASK, 1, "c", ENDED, BROKEN),
            scene=Scene(policy=CONTINUE, columns={"rerunsLeft": 0}),
        ),
        Case(
            "no rerun is left, policy `fail-fast`",
            Failed(TASK, 1, "c", ENDED, BROKEN),
            scene=Scene(policy=FailurePolicy.FAIL_FAST.value, columns={"rerunsLeft": 0}),
        ),
        Case(
            "no rerun is left, policy `continue` of its group",
            Failed(TASK, 1, "c", ENDED, BROKEN),
            scene=Scene(columns={"rerunsLeft": 0, **PASSES}, graph_columns=MIXED),
        ),
        Case(
            "no rerun is left, policy `block` of its group, `continue` of the graph",
            Failed(TASK, 1, "c", ENDED, BROKEN),
            scene=Scene(policy=CONTINUE, columns={"rerunsLeft": 0, **BLOCKS}, graph_columns=MIXED),
        ),
        Case("it is an exception", Failed(TASK, 1, "c", ENDED, BROKEN, exception=True)),
        Case(
            "it is an exception, policy `continue`",
            Failed(TASK, 1, "c", ENDED, BROKEN, exception=True),
            scene=Scene(policy=CONTINUE),
        ),
        Case("the task is to be cancelled", Failed(TASK, 1, "c", ENDED, BROKEN), scene=Scene(columns=MARKED)),
        Case("it names another run", Failed(TASK, 0, "c", ENDED, BROKEN), ("task",)),
        Case("it failed for the moment, tries are left", Failed(TASK, 1, "c", ENDED, BROKEN, temporary=True)),
        Case(
            "it failed for the moment, no try is left",
            Failed(TASK, 1, "c", ENDED, BROKEN, temporary=True),
            ("task",),
            Scene(columns={"temporaryFailures": 10}),
        ),
    ),
    "ManualRerun": (
        Case("it names the present run", ManualRerun(TASK, 1, "y"), scene=Scene("failed")),
        Case(
            "… and another task failed too",
            ManualRerun(TASK, 1, "y"),
            ("graph",),
            Scene("failed", graph_columns={"failedTasks": 2}),
        ),
        Case(
            "… and the task was cancelled while it waited",
            ManualRerun(TASK, 1, "y"),
            ("graph",),
            Scene("exception", columns={"requiresLeft": ids_text([BEFORE])}),
        ),
        Case("it names an earlier run", ManualRerun(TASK, 0, "y"), ("task",)),
        Case("… of a graph that was cancelled", ManualRerun(TASK, 1, "y", True), ("graph",), Scene("failed")),
        Case("policy `continue`", ManualRerun(TASK, 1, "y"), ("task",), Scene(policy=CONTINUE)),
        Case("its deadline has passed", ManualRerun(TASK, 1, "y"), ("task",), Scene(columns={"deadline": PAST})),
    ),
    "Recall": (
        Case(
            "the task was reset",
            Recall(TASK),
            scene=Scene(
                "completed",
                columns={"state": "unscheduled", "due": "recall"},
                graph_columns={"recalls": 1},
            ),
        ),
        Case("it was not, or that is done", Recall(TASK), ("task",)),
    ),
    "Ready": (
        Case(
            "no recalls are left",
            Ready(TASK),
            scene=Scene("pending", columns={"state": "unscheduled", "due": "ready"}, graph_columns={"recalls": 0}),
        ),
        Case(
            "recalls are left",
            Ready(TASK),
            ("graph",),
            Scene("pending", columns={"state": "unscheduled", "due": "ready"}, graph_columns={"recalls": 1}),
        ),
        Case("it was not reset", Ready(TASK), ("task",)),
    ),
    "Claim": (
        Case("it names the present run", Claim(TASK, 1, "d", "v", LATER), scene=Scene("pending")),
        Case("… and is the claim that was made", Claim(TASK, 1, "c", "w", LATER), ("task",)),
        Case("it names another run", Claim(TASK, 0, "d", "v", LATER), ("task",)),
        Case("it must not run yet", Claim(TASK, 1, "d", "v", LATER), ("task",), Scene(columns={"notBefore": LATER})),
        Case("its deadline has passed", Claim(TASK, 1, "d", "v", LATER), ("task",), Scene(columns={"deadline": PAST})),
        Case(
            "its definition was edited since", Claim(TASK, 1, "d", "v", LATER), ("task",), Scene(columns={"edited": 1})
        ),
        Case(
            "the task is held back", Claim(TASK, 1, "d", "v", LATER), ("task",), Scene(columns={"held": '["paused"]'})
        ),
        Case("it is under a limit", Claim(TASK, 1, "d", "v", LATER), ("task",), Scene(limit=FREE)),
        Case("… and that is full", Claim(TASK, 1, "d", "v", LATER), ("task",), Scene(limit=FULL)),
    ),
    "Renew": (
        Case("it names the present run and claim", Renew(TASK, 1, "c", LATER + timedelta(seconds=20))),
        Case("it names another claim", Renew(TASK, 1, "z", LATER), ("task",)),
        Case("its deadline has passed", Renew(TASK, 1, "c", LATER), ("task",), Scene(columns={"deadline": PAST})),
    ),
    "HandBack": (
        Case("it names the present run and claim", HandBack(TASK, 1, "c", "y")),
        Case("it is under a limit", HandBack(TASK, 1, "c", "y"), ("task",), Scene(limit=TAKEN)),
        Case("the task is to be cancelled", HandBack(TASK, 1, "c", "y"), ("task",), Scene(columns=MARKED)),
        Case("it names another claim", HandBack(TASK, 1, "z", "y"), ("task",)),
        Case("it names an earlier run", HandBack(TASK, 0, "c", "y"), ("task",)),
    ),
    "LeaseLost": (
        Case(
            "the lease has ended, retries are left", LeaseLost(TASK, 1, "c"), scene=Scene(columns={"leaseUntil": PAST})
        ),
        Case(
            "the lease has ended, and two other workers were lost with the task before",
            LeaseLost(TASK, 1, "c"),
            scene=Scene(columns={"leaseUntil": PAST, "runs": _DEADLY}),
        ),
        Case(
            "the lease has ended, no retry is left",
            LeaseLost(TASK, 1, "c"),
            scene=Scene(columns={"leaseUntil": PAST, "retriesLeft": 0}),
        ),
        Case(
            "… policy `continue`",
            LeaseLost(TASK, 1, "c"),
            ("task",),
            Scene(policy=CONTINUE, columns={"leaseUntil": PAST, "retriesLeft": 0}),
        ),
        Case(
            "the task is to be cancelled",
            LeaseLost(TASK, 1, "c"),
            ("task",),
            Scene(columns={"leaseUntil": PAST, **MARKED}),
        ),
        Case("the lease has not ended", LeaseLost(TASK, 1, "c"), ("task",)),
        Case("it has not, and the worker is certainly dead", LeaseLost(TASK, 1, "c", certain=True), ("task",)),
        Case("it names another claim", LeaseLost(TASK, 1, "z"), ("task",)),
    ),
    "SetRight": (
        Case(
            "it runs, and its lease is said to end years ago",
            SetRight(TASK),
            scene=Scene(columns={"leaseUntil": YEARS_AGO}),
        ),
        Case("its times can be believed", SetRight(TASK), ("task",)),
    ),
    "CannotRun": (
        Case("it names the present run", CannotRun(TASK, 1, "v", "no executor"), scene=Scene("pending")),
        Case("it names another run", CannotRun(TASK, 0, "v", "no executor"), ("task",)),
    ),
    "Overdue": (
        Case("its deadline has passed", Overdue(TASK), scene=Scene(columns={"deadline": PAST})),
        Case("… policy `continue`", Overdue(TASK), ("task",), Scene(policy=CONTINUE, columns={"deadline": PAST})),
        Case("it has not", Overdue(TASK), ("task",), Scene(columns={"deadline": LATER})),
        Case(
            "it stands ready for longer than it may",
            Overdue(TASK),
            ("task",),
            Scene(columns={"pendingSince": PAST, "pendingTimeout": 0.5}),
        ),
    ),
    "NextDeadline": (
        Case(
            "the graph is the one that was looked at",
            NextDeadline(PAST, 0, 0, LATER),
            ("graph",),
            Scene(graph_columns={"nextDeadline": PAST}),
        ),
        Case(
            "another task was added since",
            NextDeadline(PAST, 0, 0, LATER),
            ("graph",),
            Scene(graph_columns={"nextDeadline": PAST, "revision": 1}),
        ),
        Case(
            "a rerun has let a task wait again since",
            NextDeadline(PAST, 0, 0, LATER),
            ("graph",),
            Scene(graph_columns={"nextDeadline": PAST, "waitsAgain": 1}),
        ),
    ),
    "Fire": (
        Case("all went well", Fire(RELAY), ("relay", "graph"), Scene("completed", relay="pending")),
        Case("a failure stands on it", Fire(RELAY), ("relay",), Scene("failed", policy=CONTINUE)),
    ),
    "Skip": (
        Case(
            "the task is due to be skipped",
            Skip(TASK),
            scene=Scene(
                "unscheduled",
                policy=CONTINUE,
                columns={
                    "due": "skip",
                    "requiresLeft": "[]",
                    "failedBy": FAULT,
                },
            ),
        ),
        Case(
            "… and is to be cancelled",
            Skip(TASK),
            ("task",),
            Scene("unscheduled", policy=CONTINUE, columns={"due": "skip", "requiresLeft": "[]", **MARKED}),
        ),
        Case("it is not", Skip(TASK), ("task",), Scene("unscheduled", policy=CONTINUE)),
    ),
    "Remind": (Case("always", Remind(TASK), scene=Scene("pending")),),
    "Start": (
        Case("the content is the one that was submitted", Start("digest"), ("graph",)),
        Case("it is another", Start("other"), ("graph",)),
    ),
    "Begin": (Case("another call has written the graph", Begin("digest", _ADDED.rows), ("graph",)),),
    "Abandon": (
        Case("it was begun before that time", Abandon(NOW - timedelta(days=1)), ("graph",)),
        Case("it was begun later", Abandon(NOW - timedelta(days=3)), ("graph",)),
    ),
    "Stall": (
        Case("nothing has moved", Stall(0, "x", TASK, 1), scene=Scene("pending")),
        Case("… and the graph asks to be cancelled then", Stall(0, "x"), ("graph",), Scene(graph_columns=_CANCELS)),
        Case("another fact has come since", Stall(-1, "x"), ("graph",)),
        Case("it is marked already", Stall(0, "x"), ("graph",), Scene(graph_columns=_STALLED)),
    ),
    "Stir": (
        Case("it is marked", Stir(), ("graph",), Scene(graph_columns=_STALLED)),
        Case("it is not", Stir(), ("graph",)),
    ),
    "BeginDeletion": (
        Case("it is asked for, or the graph is too old", BeginDeletion(LATER), ("graph",)),
        Case("… with force", BeginDeletion(LATER, forced=True), ("graph",)),
    ),
    "CancelGraph": (
        Case("it is asked for", CancelGraph("y"), ("graph", "request"), Scene(request="accepted")),
        Case("… and does not want to wait", CancelGraph("y", at_once=True), ("graph",)),
    ),
    "CancelTask": (
        Case("it is asked for", CancelTask(TASK, "y", reruns=0)),
        Case("… and does not want to wait", CancelTask(TASK, "y", reruns=0, at_once=True), ("task",)),
        Case("… and has asked before", CancelTask(TASK, "y", reruns=0), ("task",), Scene(columns=MARKED)),
        Case(
            "it was rerun by hand since", CancelTask(TASK, "y", reruns=0), ("task",), Scene(columns={"manualReruns": 1})
        ),
        Case("its graph is cancelled", CancelTask(TASK, "y", whole=True), ("task",), Scene(graph="cancelling")),
        Case("policy `continue`", CancelTask(TASK, "y", reruns=0), ("task",), Scene(policy=CONTINUE)),
        Case(
            "policy `continue` of its group",
            CancelTask(TASK, "y", reruns=0),
            scene=Scene("unscheduled", columns=PASSES, graph_columns=MIXED),
        ),
    ),
    "CancelUnneeded": (
        Case("its group is decided", CancelUnneeded(TASK, TALLY), scene=Scene(tally=DECIDED, policy=CONTINUE)),
        Case(
            "… and it was rerun by hand since",
            CancelUnneeded(TASK, TALLY),
            ("task",),
            Scene(tally=DECIDED, policy=CONTINUE, columns={"manualReruns": 1}),
        ),
        Case(
            "the decision was taken back",
            CancelUnneeded(TASK, TALLY),
            ("task",),
            Scene(tally={**DECIDED, "rest": "cancel"}, policy=CONTINUE),
        ),
    ),
    "Charge": (
        Case("there is no budget", _CHARGED, ("graph",)),
        Case("the budget is larger", _CHARGED, ("graph",), _budget(amount=9)),
        Case("it is near the budget", _CHARGED, ("graph",), _budget(amount=2.2)),
        Case("it is the budget, which pauses", _CHARGED, ("graph",), _budget(amount=2)),
        Case("it is the budget, which cancels", _CHARGED, ("graph",), _budget(amount=2, onExceeded="cancel")),
        Case("it is the budget, which only says so", _CHARGED, ("graph",), _budget(amount=2, onExceeded="notify")),
        Case("that has been said", _CHARGED, ("graph",), _budget(reached=OVER, amount=2)),
    ),
    "Hold": (
        Case("the graph is paused", Hold("paused", True, LATER.isoformat(), "y"), ("graph",)),
        Case("… and it is paused", Hold("paused", True, LATER.isoformat()), ("graph",), Scene(graph_columns=HELD)),
        Case(
            "it is resumed",
            Hold("paused", False, LATER.isoformat(), "y"),
            ("graph",),
            Scene(graph_columns=HELD),
        ),
        Case(
            "… and it was paused again since",
            Hold("paused", False, PAST.isoformat()),
            ("graph",),
            Scene(graph_columns=HELD),
        ),
        Case("a group is paused", Hold("group:g", True, LATER.isoformat()), ("graph",), Scene()),
    ),
    "Settle": (
        Case(
            "the graph is paused",
            Settle(TASK, ("paused",), 1),
            ("task", "graph"),
            Scene(graph_columns={**HELD, "settling": True}),
        ),
        Case(
            "it is resumed",
            Settle(TASK, (), 1),
            ("task",),
            Scene(columns={"held": '["paused"]'}, graph_columns={"holds": 1, "settling": True}),
        ),
        Case("there was a later wish", Settle(TASK, ("paused",), 0), ("task",), Scene(graph_columns=HELD)),
    ),
    "PublishHolds": (
        Case(
            "no task lacks the number",
            PublishHolds(1),
            ("graph",),
            Scene(graph_columns={**HELD, "settling": True, "pausing": '["paused"]'}),
        ),
        Case("it has been said", PublishHolds(1), ("graph",), Scene(graph_columns=HELD)),
        Case("there was a later wish", PublishHolds(0), ("graph",), Scene(graph_columns=HELD)),
    ),
    "HoldTask": (
        Case("it is made inactive", HoldTask(TASK, True, LATER.isoformat(), "y"), ("task", "graph")),
        Case(
            "it is made active",
            HoldTask(TASK, False, LATER.isoformat()),
            ("task",),
            Scene(columns={"held": '["inactive"]'}),
        ),
    ),
    "ChangeLimit": (
        Case("it is raised", ChangeLimit("graph", 2, LATER.isoformat(), "y"), ("graph",), Scene(limit=TAKEN)),
        Case("it is taken off", ChangeLimit("graph", 0, LATER.isoformat()), ("graph",), Scene(limit=FREE)),
        Case("it is lowered", ChangeLimit("graph", 1, LATER.isoformat()), ("graph",), Scene(limit={"max": 5})),
        Case(
            "something else was asked for since",
            ChangeLimit("graph", 2, PAST.isoformat()),
            ("graph",),
            Scene(limit={"asked": NOW.isoformat()}),
        ),
        Case("there is none", ChangeLimit("graph", 2, LATER.isoformat(), "y"), ("graph",), NO_LIMIT),
        Case("there is none, and it is taken off", ChangeLimit("graph", 0, LATER.isoformat()), ("graph",), NO_LIMIT),
    ),
    "ComeUnder": (
        Case("its graph was given a limit", ComeUnder(TASK, ("graph",)), scene=Scene(limit=FREE, columns=UNNAMED)),
        Case("… and that is full", ComeUnder(TASK, ("graph",)), ("task",), Scene(limit=FULL, columns=UNNAMED)),
        Case("it names the limit", ComeUnder(TASK, ("graph",)), ("task",), Scene(limit=FREE)),
    ),
    "PublishLimits": (
        Case("every task names the limit", PublishLimits(("graph",)), ("graph",), Scene(graph_columns=LIMITING)),
        Case("there is another since", PublishLimits(()), ("graph",), Scene(graph_columns=LIMITING)),
    ),
    "Recount": (
        Case("the run is thought to be over", Recount("graph", (f"{TASK}:1",)), ("task", "graph"), Scene(limit=TAKEN)),
        Case("it is not counted", Recount("graph", (f"{TASK}:1",)), ("task",), Scene(limit=FULL)),
    ),
    "PublishCancelled": (Case("no task is unresolved", PublishCancelled(), ("graph",)),),
    "AcceptExtension": (
        Case("it fits one commit", _accept(whole=True), ("request", "graph"), Scene(request="staged")),
        Case("it takes several commits", _accept(whole=False), ("request", "graph"), Scene(request="staged")),
        Case("it was planned for another revision", _accept(whole=True, revision=7), ("request",)),
        Case("what it requires is resolved or not", _accept(whole=True), ("task",), Scene(request="staged")),
        Case("… policy `continue`", _accept(whole=True), ("task",), Scene(request="staged", policy=CONTINUE)),
    ),
    "DeferExtension": (
        Case("the graph is not paused", DeferExtension("r"), ("request", "graph"), Scene(request="staged")),
        Case(
            "the graph is paused",
            DeferExtension("r"),
            ("request", "graph"),
            Scene(request="staged", graph_columns={"held": '["paused"]'}),
        ),
    ),
    "RefuseRequest": (
        Case("of an extension", RefuseRequest("r", "y"), ("request", "graph"), Scene(request="staged")),
        Case(
            "the graph is the one that was looked at",
            RefuseRequest("r", "y", 0),
            ("request", "graph"),
            Scene(request="staged"),
        ),
        Case("it has changed since", RefuseRequest("r", "y", 1), ("request",)),
    ),
    "InsertRows": (
        Case(
            "it goes on where the cursor stands",
            InsertRows("r", 0, _ADDED.rows),
            ("request", "graph"),
            Scene(request="accepted"),
        ),
        Case("it goes on elsewhere", InsertRows("r", 5, _ADDED.rows), ("request",)),
    ),
    "LinkTasks": (
        Case(
            "it goes on where the cursor stands",
            LinkTasks("r", 0, _LINK),
            ("request", "task"),
            Scene(request="accepted"),
        ),
        Case("… policy `continue`", LinkTasks("r", 0, _LINK), ("task",), Scene(request="accepted", policy=CONTINUE)),
        Case("it goes on elsewhere", LinkTasks("r", 5, _LINK), ("request",)),
    ),
    "FinishExtension": (Case("always", FinishExtension("r"), ("request", "graph"), Scene(request="accepted")),),
    "EditGraph": (
        Case(
            "the task gets another definition, and has not started",
            _REWRITTEN,
            ("task", "graph", "request"),
            Scene("pending", request="staged", columns=_UNSTARTED),
        ),
        Case("… and has started", _REWRITTEN, ("task",), Scene(request="staged")),
        Case("… and has failed for good", _MENDED, ("task",), Scene(request="staged")),
        Case("… policy `continue`", _MENDED, ("task",), Scene(request="staged", policy=CONTINUE)),
        Case(
            "… and is to be cancelled",
            _REWRITTEN,
            ("task",),
            Scene(request="staged", columns={**_UNSTARTED, **MARKED}),
        ),
        Case(
            "it requires nothing any more",
            _FREED,
            ("task", "graph"),
            Scene("unscheduled", request="staged", columns=_UNSTARTED),
        ),
        Case("the dependent requires another", _BELOW, ("task",), Scene(request="staged")),
        Case(
            "… policy `continue`",
            _BELOW,
            ("task",),
            Scene(request="staged", policy=CONTINUE, dependent={"due": ""}),
        ),
        Case(
            "its condition is another, policy `continue`",
            _ASKED_ANEW,
            ("task",),
            Scene(request="staged", policy=CONTINUE, columns=_UNSTARTED),
        ),
        Case(
            "the task and its dependent go",
            _GONE,
            ("task", "graph"),
            Scene("pending", request="staged", columns=_UNSTARTED),
        ),
        Case("it changes nothing", _NOTHING, ("request", "graph"), Scene(request="staged")),
        Case(
            "it was planned for another revision",
            _REWRITTEN,
            ("graph",),
            Scene("pending", request="staged", columns=_UNSTARTED, graph_columns={"revision": 1}),
        ),
        Case(
            "an extension is under way",
            _REWRITTEN,
            ("graph",),
            Scene("pending", request="staged", columns=_UNSTARTED, graph_columns={"extending": "x"}),
        ),
    ),
    "TakeUp": (
        Case(
            "a cancellation of the task was planned, which stood ready",
            TakeUp("r", 0, _RESTS_ON, (CancelTask(TASK, "y"),)),
            ("task", "request", "graph"),
            Scene("pending", request="staged", request_columns=_PLANNED),
        ),
        Case(
            "… and a fact was stated since",
            TakeUp("r", 5, _RESTS_ON, (CancelTask(TASK, "y"),)),
            ("request",),
            Scene("pending", request="staged", request_columns=_PLANNED),
        ),
        Case(
            "… and its row was written since",
            TakeUp("r", 0, ((row_key(TASK), "before"),), (CancelTask(TASK, "y"),)),
            ("task",),
            Scene("pending", request="staged", request_columns=_PLANNED),
        ),
    ),
    "Depart": (
        Case("it is held back", Depart("u", "there"), ("graph",), Scene(graph_columns={"held": '["departing"]'})),
        Case(
            "… and was let go since it was seen that nothing runs",
            Depart("u", "there", holds=1),
            ("graph",),
            Scene(graph_columns={"held": '["departing"]', "holds": 3}),
        ),
        Case("it is not", Depart("u", "there"), ("graph",)),
        Case("it has departed with this token", Depart("t", "there"), ("graph",)),
    ),
    "Withdraw": (
        Case("it is to stay", Withdraw(), ("graph",)),
        Case("… and was before", Withdraw(), ("graph",), Scene(graph_columns={"transfer": ""})),
    ),
    "Remain": (
        Case("its departure is void", Remain(), ("graph",), Scene(graph_columns={"transfer": ""})),
        Case("it is not", Remain(), ("graph",)),
    ),
    "Confirm": (
        Case("it names the token", Confirm("t"), ("graph",)),
        Case("it names another", Confirm("z"), ("graph",)),
    ),
    "Arrive": (
        Case("it is whole, and came by this token", Arrive("t", "here"), ("graph",), Scene(graph_columns=_COME)),
        Case("it came by another", Arrive("z", "here"), ("graph",), Scene(graph_columns=_COME)),
        Case("it is not whole", Arrive("t", "here"), ("graph",), Scene(graph_columns={"arrival": "t"})),
    ),
    "FinishChange": (
        Case("always", FinishChange("r"), ("request", "graph"), Scene(request="accepted", request_columns=_PLANNED)),
    ),
}
"""Name of an item -> its cases."""

STATES: Final[Mapping[str, Sequence[str]]] = {
    "task": tuple(map(str, TASK_STORED)),
    "graph": tuple(map(str, GraphState)),
    "relay": RELAYS,
    "request": REQUESTS,
}


def items() -> list[type]:
    """Everything that `decide` decides, in the order of `protocol.decide.RULES`."""
    return list(transitions.RULES)


# --- what happens, in words ------------------------------------------------------------------------------------------


def outcome(case: Case, over: str, state: str) -> Cells:
    """What `decide` does in one cell."""
    values = {name: getattr(case.scene, name) for name in Scene.__dataclass_fields__}
    values[over] = state
    if over == "task" and case.scene.policy == FailurePolicy.BLOCK and state in ("failed", "exception"):
        values["graph"] = "blocked" if case.scene.graph == "running" and not case.scene.request else case.scene.graph
    rows: dict[str, Row | None] = Scene(**values).rows()
    rows.setdefault(LIMIT, None)
    if isinstance(case.item, LinkTasks):  # what is linked has been inserted before
        rows |= {row.key: Row(row.key, f"e-{row.key}", row.columns) for row in _ADDED.rows}
    decision = decide(rows, [case.item], now=NOW, operation="op", sequence=1)
    if not isinstance(decision, Decision):
        raise AssertionError(f"{case.item} asks for {decision.keys}")
    assert not decision.left
    return _answer(decision), _changes(rows, decision), _facts(decision), _sent(decision.effects)


def _answer(decision: Decision) -> str:
    if not decision.answers:  # what relays and skips do has no answer
        return "applied" if decision.changes else "nothing"
    (answer,) = decision.answers
    if answer.error is not None:
        return f"error: {type(answer.error).__name__}"
    shown = str(answer.outcome)
    return f"{shown}: {_plain(answer.reason)}" if shown == "refused" and answer.reason else shown


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")


def _name(reference: str) -> str:
    return NAMES.get(row_key(reference), reference)


def _changes(rows: Mapping[str, Row | None], decision: Decision) -> str:
    shown: list[str] = []
    for change in decision.changes:
        if change.key.startswith("event:"):
            continue
        name = NAMES.get(change.key, change.key)
        if isinstance(change, Insert):
            shown.append(f"{name}: inserted" + (f", {state}" if (state := change.columns.get("state")) else ""))
        elif isinstance(change, Delete):
            shown.append(f"{name}: taken away")
        elif isinstance(change, Merge | Replace):
            row = rows[change.key]
            assert row is not None
            different = [(each, value) for each, value in change.columns.items() if row.columns.get(each) != value]
            parts = [_column(each, row.columns.get(each), value) for each, value in different]
            # A row of which nothing changes is written for its etag alone.
            shown.append(f"{name}: {', '.join(filter(None, parts)) or 'confirmed'}")
    return "; ".join(shown) or "–"


def _column(name: str, before: Value | None, after: Value) -> str:
    if name == "operation":
        return ""
    if name == "state":
        return f"**{before} → {after}**"
    if isinstance(after, bool):
        return f"{name} {after}"
    if isinstance(after, int) and (not isinstance(before, int) or after == before):
        return f"{name} {after}"
    if isinstance(after, int) and isinstance(before, int):
        moved = after - before
        return f"{name} {'+' if moved > 0 else '−'} {abs(moved)}"
    if isinstance(after, str) and after.startswith("[") and name in ("requires", "requiresLeft", "dependents"):
        old, new = json.loads(str(before or "[]")), json.loads(after)
        moved_in, moved_out = [each for each in new if each not in old], [each for each in old if each not in new]
        parts = [f"+ {_name(each)}" for each in moved_in] + [f"− {_name(each)}" for each in moved_out]
        return f"{name} {' '.join(parts)}"
    if after == "":
        return f"{name} cleared"
    return f"{name} set"


def _facts(decision: Decision) -> str:
    found = [change for change in decision.changes if change.key.startswith("event:")]
    if not found:
        return "–"
    assert isinstance(found[0], Insert)
    return ", ".join(_fact(each) for each in json.loads(str(found[0].columns["events"])))


def _fact(fact: Mapping[str, Any]) -> str:
    because = f" ({fact['because']})" if "because" in fact else ""
    who = {"task": "", "": ""}.get(fact.get("label", ""), f" of {fact.get('label', '')}")
    return f"`{fact['event']}`{who}{because}"


def _sent(effects: Sequence[Effect]) -> str:
    return ", ".join(map(_effect, effects)) or "–"


def _effect(effect: Effect) -> str:
    match effect:
        case Refill(task_id, run) if task_id:
            return f"work message of {_name(task_id)}, run {run}, when there is room"
        case Refill():
            return "work messages of whom there is room for"
        case Dispatch(task_id, run, _, delay) if delay:
            return f"work message of {_name(task_id)}, run {run}, later"
        case Dispatch(task_id, run):
            return f"work message of {_name(task_id)}, run {run}"
        case GraphEnded():
            return "the graph leaves the sweep's index"
        case GraphRevived():
            return "the graph enters the sweep's index"
        case Stop(task_id, run):
            return f"workers here stop run {run} of {_name(task_id)}"
        case Cancelling():
            return "the rest of the graph is cancelled"
        case _:
            return type(effect).__name__


# --- the page --------------------------------------------------------------------------------------------------------

HEAD: Final = "| {} | answer | what changes | facts | sent |\n|---|---|---|---|---|"
Table = Mapping[tuple[str, str], Cells]
"""(words of the case, state) -> cells."""


def cases_of(name: str) -> Sequence[Case]:
    """Its cases; or, of an item that a message asks for and that has none here, the first example of that message."""
    if name in CASES:
        return CASES[name]
    for kind in MESSAGE_TYPES:
        items: Sequence[Any] = transitions.asked(parse(json.dumps(schema(f"message-{kind}")["examples"][0])))
        for item in items:
            if type(item).__name__ == name:
                return [Case("it is as in the example of its message", dataclasses.replace(item, task_id=TASK))]
    return []


def table_of(name: str, over: str) -> dict[tuple[str, str], Cells]:
    """What happens to an item, by case and state of one kind of row."""
    return {
        (case.when, state): outcome(case, over, state)
        for case in cases_of(name)
        if over in case.over
        for state in STATES[over]
    }


def conditions() -> str:
    """What each condition makes of how requirements ended."""
    ends = {
        "all completed": (False, False),
        "some failed, none was skipped": (True, False),
        "some were skipped, none failed": (False, True),
        "some failed, some were skipped": (True, True),
    }
    lines = ["| requirements | " + " | ".join(f"`{each}`" for each in When) + " |", "|---" * (len(When) + 1) + "|"]
    for words, (failed, skipped) in ends.items():
        met = ["runs" if meets(each, failed=failed, skipped=skipped) else "skipped" for each in When]
        lines.append(f"| {words} | {' | '.join(met)} |")
    return "\n".join(lines)


def text() -> str:
    """All tables, as they stand on the page."""
    parts = [
        f"### Conditions\n\nOnce everything that a task requires is resolved; optional ones aside.\n\n{conditions()}\n"
    ]
    for item in items():
        sentence = (item.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        parts.append(f"### {item.__name__}\n\n{' '.join(sentence.split())}\n")
        for over in STATES:
            cells = table_of(item.__name__, over)
            if cells:
                parts.append(_table(over, cells))
    return "\n".join(parts)


def _table(over: str, cells: Table) -> str:
    """States with the same outcome share a row."""
    lines = [HEAD.format(f"{over} is")]
    for when in dict.fromkeys(when for when, _ in cells):
        alike: dict[Cells, list[str]] = {}
        for (case, state), each in cells.items():
            if case == when:
                alike.setdefault(each, []).append(state)
        lines.append(f"| *{when}* | | | | |")
        lines += [f"| {', '.join(states)} | {' | '.join(each)} |" for each, states in alike.items()]
    return "\n".join(lines) + "\n"


def read(page: str) -> dict[tuple[str, str], dict[tuple[str, str], Cells]]:
    """(item, kind of row) -> the table that the page has of it."""
    found: dict[tuple[str, str], dict[tuple[str, str], Cells]] = {}
    item = over = when = ""
    for line in page.partition("generated: semantics")[2].partition("end: semantics")[0].splitlines():
        if line.startswith("### "):
            item = line[4:].strip()
        elif item != "Conditions" and line.startswith("| ") and line.endswith(" |"):
            first, *others = [cell.strip() for cell in line[1:-1].split("|")]
            if first.endswith(" is") and others[0] == "answer":
                over = first.removesuffix(" is")
            elif first.startswith("*") and not any(others):
                when = first.strip("*")
            else:
                answer, changes, facts, sent = others
                for state in first.split(", "):
                    found.setdefault((item, over), {})[when, state] = (answer, changes, facts, sent)
    return found
