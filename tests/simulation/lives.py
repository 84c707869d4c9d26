"""Lives of graphs: what is submitted, what fails, who vanishes, and what people do meanwhile; no chance in any of them.

`exhaustive` plays each of them, once for each place where something can go wrong. Nothing is played here.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from taskgraph.documents.edit_document import EditDocument, edit_from_object
from taskgraph.documents.nodes import GraphDocument, GroupNode, Success, TaskNode
from taskgraph.model.ids import task_id_of
from taskgraph.model.messages import Prioritize, RunTasks, TaskCompleted, TaskResult, to_text
from tests.simulation.bounds import CHUNKED, FEW_LEAVES, IN_SEVERAL, NARROW, NARROWER, TIGHT, TIGHT_FAILING

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
GRAPH_ID: Final = "g"
ALWAYS: Final = 10**6

MADE: Final = ("done", "deferred")
"""Answers to extensions whose tasks the graph has in the end."""

Requires = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class When:
    """The moment of an act: `state` of a task, or of the graph at rest."""

    label: str = ""
    state: str = ""


@dataclass(frozen=True)
class Act:
    """Something that a person or another program does.

    kind: extend, rerun, send (a message that makes no sense), ask (one that does, and may be lost), wipe (all queues
    are deleted), other (another graph is submitted under the same id), cancel (the graph, or the task `label`), hold
    and release (the graph, the task `label`, or `group`), limit (so many tasks, `most`, may be in flight), edit (what
    `wish` says, by the keys of the document), pass (nothing: what comes next waits for it).
    at: when. answer: what becomes of an extension; "deferred": it is put off until the graph is resumed, and made then;
    "in vain": put off, and refused then; "open": that depends on what else happens, and is not waited for.
    terminate: of a cancel. planned: a rerun, a cancel, a hold or a limit is planned, and made under the digest of its
    plan.
    """

    kind: str
    at: When = When()
    requires: Requires = field(default_factory=dict)
    label: str = ""
    body: str = ""
    answer: str = "done"
    terminate: bool = False
    group: str = ""
    most: int = 0
    planned: bool = False
    wish: Mapping[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def edit(self) -> EditDocument:
        """What is wished for."""
        return edit_from_object(self.wish)


@dataclass(frozen=True)
class Life:
    """One graph and what happens to it.

    fails: label -> runs that fail before one succeeds. vanish: label -> workers that vanish with it. hand_back: label
    -> workers that give it back. held: labels whose runs end only when all acts are over; late: labels that nobody
    claims before. sleeps: labels whose first worker is paused with them in hand, and wakes up as a zombie. bounds:
    limits made small, so that a small graph crosses them. batch: messages taken at once. (Of a label that sleeps and is
    handed back, it is the zombie that hands back.) policy, when, optional: as in a document, by label. groups: name ->
    (what is in it, what it requires); of the document that has its tasks. limits: name of a group, "" for the graph ->
    so many tasks in flight. grows: group -> what extensions put into it.
    """

    name: str
    requires: Requires
    end: str = "finished"
    reruns: Mapping[str, int] = field(default_factory=dict)
    fails: Mapping[str, int] = field(default_factory=dict)
    exceptions: Sequence[str] = ()
    vanish: Mapping[str, int] = field(default_factory=dict)
    hand_back: Mapping[str, int] = field(default_factory=dict)
    held: Sequence[str] = ()
    late: Sequence[str] = ()
    sleeps: Sequence[str] = ()
    acts: Sequence[Act] = ()
    bounds: Mapping[str, int] = field(default_factory=dict)
    batch: int = 32
    temporary: Mapping[str, int] = field(default_factory=dict)  # label -> runs that fail for the moment, at first
    timing: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # label -> what its node says of time
    deadlines: Mapping[str, float] = field(default_factory=dict)  # label -> seconds from the start
    policy: str = "block"
    when: Mapping[str, str] = field(default_factory=dict)
    optional: Mapping[str, Sequence[str]] = field(default_factory=dict)
    groups: Mapping[str, tuple[Sequence[str], Sequence[str]]] = field(default_factory=dict)
    success: Mapping[str, Success] = field(default_factory=dict)  # group -> when it has succeeded
    policies: Mapping[str, str] = field(default_factory=dict)  # group -> what becomes of a failure in it
    sweeps: bool = False  # the sweep comes by all the time
    limits: Mapping[str, int] = field(default_factory=dict)
    grows: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def tasks(self) -> int:
        """How many there will be."""
        return len(self.requires) + sum(
            len(act.requires) for act in self.acts if act.kind == "extend" and act.answer in MADE
        )

    def _more(self, label: str) -> dict[str, Any]:
        more: dict[str, Any] = {"target": "late"} if label in self.late else {}
        if label in self.deadlines:
            more["deadline"] = moment(self.deadlines[label])
        return more

    def document(self, requires: Requires) -> GraphDocument:
        """A graph, or an extension."""
        return GraphDocument(
            {
                label: TaskNode(
                    label,
                    tuple(wanted),
                    self.reruns.get(label, 0),
                    {"payload": {"n": label}, **self._more(label)},
                    self.when.get(label, "all-completed"),
                    frozenset(self.optional.get(label, ())),
                    timing=self.timing.get(label, {}),
                )
                for label, wanted in requires.items()
            },
            groups={
                name: GroupNode(
                    name,
                    tuple(inside),
                    tuple(wanted),
                    max_in_flight=self.limits.get(name, 0),
                    success=self.success.get(name),
                    grows=name in self.grows,
                    failure_policy=self.policies.get(name, ""),
                )
                for name, (inside, wanted) in self.groups.items()
                if self._tasks_of(name) <= requires.keys()
            }
            | {
                name: GroupNode(name, tuple(each for each in into if each in requires))
                for name, into in self.grows.items()
                if not requires.keys().isdisjoint(into)
            },
            failure_policy=self.policy if requires is self.requires else "block",  # an extension has none
            max_in_flight=self.limits.get("", 0) if requires is self.requires else 0,
        )

    def _tasks_of(self, name: str) -> set[str]:
        if name not in self.groups:
            return {name}
        return set().union(*map(self._tasks_of, self.groups[name][0]))


FAR_SECONDS: Final = 5_000.0
"""Far later than any life ends."""

COUNTING: Final = {**NARROWER, "COMMIT_CHANGES_MAX": 14}
"""Wide joins, and room for one end of a member: what is counted goes into the commit of that."""


def moment(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def chain(length: int) -> Requires:
    return {f"c{n}": [f"c{n - 1}"] if n else [] for n in range(length)}


def fan_out(width: int) -> Requires:
    return {"a": [], **{f"m{n}": ["a"] for n in range(width)}}


def fan_in(width: int) -> Requires:
    return {**{f"m{n}": [] for n in range(width)}, "z": [f"m{n}" for n in range(width)]}


def both_ways(width: int) -> Requires:
    return {**fan_out(width), "z": [f"m{n}" for n in range(width)]}


DIAMOND: Final = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


TWO_BEFORE_TWO: Final = {"a": [], "b": [], "c": [], "d": []}
FOUND: Final = {"found": (("a",), ())}
BULK: Final = {"bulk": (("a", "b"), ())}


def before_each_other(width: int) -> dict[str, Any]:
    """So many tasks before so many, each a group."""
    first, second = [f"a{n}" for n in range(width)], [f"b{n}" for n in range(width)]
    return {
        "requires": dict.fromkeys([*first, *second], ()),
        "groups": {"first": (first, ()), "second": (second, ("first",))},
    }


def _added(requires: Requires, label: str, state: str, **more: Any) -> Act:
    return Act("extend", When(label, state), requires, **more)


def _cancel(moment: str, state: str, **more: Any) -> Act:
    """label: of the task that is cancelled; without, the graph."""
    return Act("cancel", When(moment, state), **more)


def _again(label: str, state: str = "finished") -> Act:
    """Rerun a task of a graph that has ended."""
    return Act("rerun", When("", state), label=label)


NEW: Final = {"task": {"payload": {"n": "new"}}}
"""Another definition, on the usual target."""


def _edit(label: str, state: str, answer: str = "done", **wish: Any) -> Act:
    """Tasks are changed or taken away."""
    return Act("edit", When(label, state), answer=answer, wish=wish)


def _pause(moment: str, state: str, **more: Any) -> tuple[Act, Act]:
    """Held back at that moment, and released as soon as that is so. label, group: of what; without, the graph.

    The release asks for no state of the task: a run that is lost while its graph is paused stands pending until then.
    """
    return Act("hold", When(moment, state), **more), Act("release", When(moment), **more)


def _paused_and_extended(label: str, *added: Requires, answer: str = "deferred") -> list[Act]:
    """Held back while this task runs, extended by these, and released; in whatever state the task is by then."""
    extended = [Act("extend", When(label), each, answer=answer) for each in added]
    return [Act("hold", When(label, "running")), *extended, Act("release", When(label))]


def _level(asked: str) -> str:
    """All tasks are to have the usual level."""
    return to_text(Prioritize(GRAPH_ID, "normal", asked, tuple(task_id_of(GRAPH_ID, each) for each in "abc")))


_LEVEL: Final = _level("2030-01-01T00:00:00+00:00")
_LEVEL_LATE: Final = _level("2030-01-01T00:00:01+00:00")


def _messages() -> dict[str, str]:
    stranger = task_id_of("other", "x")
    result = TaskResult(stranger, 0, "c", START.isoformat(), {"failed": False})
    return {
        "no JSON": "{not json",
        "foreign task": to_text(TaskCompleted(GRAPH_ID, (result,))),
        "foreign graph": to_text(TaskCompleted("nowhere", (result,))),
        "misplaced": to_text(RunTasks(GRAPH_ID, "default", ((stranger, 0),))),
    }


JUNK: Final = _messages()
REST: Final = When("", "blocked")

LIVES: Final = (
    # plain shapes
    Life("one task", chain(1)),
    Life("chain of 2", chain(2)),
    Life("chain of 4", chain(4)),
    Life("two strangers", {"a": [], "b": []}),
    Life("five strangers", {f"a{n}": [] for n in range(5)}),
    Life("diamond", DIAMOND),
    Life("diamond, message by message", DIAMOND, batch=1),
    Life("diamond, with the sweep about", DIAMOND, sweeps=True),
    Life("two diamonds", {**DIAMOND, "e": ["d"], "f": ["d"], "g": ["e", "f"]}),
    Life("shortcut", {"a": [], "b": ["a"], "c": ["a", "b"]}),
    Life("every earlier one", {f"t{n}": [f"t{m}" for m in range(n)] for n in range(4)}),
    Life("fan-out of 4", fan_out(4)),
    Life("fan-in of 4", fan_in(4)),
    Life("fan-in of 4, message by message", fan_in(4), batch=1),
    Life("crossed", {"a": [], "b": [], "c": ["a", "b"], "d": ["a", "b"]}),
    # past the degree of a row
    Life("forks", fan_out(5), bounds=NARROW),
    Life("joins", fan_in(5), bounds=NARROW),
    Life("forks and joins", both_ways(4), bounds=NARROW),
    Life("joins, message by message", fan_in(4), bounds=NARROW, batch=1),
    Life("trees of forks", fan_out(5), bounds=NARROWER),
    Life("trees of joins", fan_in(5), bounds=NARROWER),
    Life("trees of both", both_ways(5), bounds=NARROWER),
    Life("more leaves than the graph names", {f"a{n}": [] for n in range(5)}, bounds=NARROWER),
    Life("relays over several commits", both_ways(5), bounds=TIGHT),
    # submissions over several commits
    Life(
        "submission in chunks", both_ways(4), bounds={"COMMIT_CHANGES_MAX": 5, "DEPENDENTS_MAX": 2, "REQUIRES_MAX": 2}
    ),
    Life("submission of few rows in several commits", chain(2), bounds=IN_SEVERAL),
    Life("submission row by row", chain(3), bounds={"COMMIT_CHANGES_MAX": 4}),
    Life("another graph under the id", chain(2), acts=[Act("other", When("c0", "completed"), chain(3))], late=["c1"]),
    # failures
    Life("rerun", chain(2), reruns={"c0": 1}, fails={"c0": 1}),
    Life("two reruns", chain(1), reruns={"c0": 2}, fails={"c0": 2}),
    Life("reruns in a diamond", DIAMOND, reruns={"b": 1, "c": 1}, fails={"b": 1, "c": 1}),
    Life("blocked", chain(2), "blocked", fails={"c0": ALWAYS}),
    Life("blocked, others go on", {"a": [], "b": ["a"], "c": []}, "blocked", fails={"a": ALWAYS}),
    Life("blocked after its reruns", chain(2), "blocked", reruns={"c0": 1}, fails={"c0": ALWAYS}),
    Life("exception", chain(2), "blocked", reruns={"c0": 3}, fails={"c0": ALWAYS}, exceptions=["c0"]),
    Life("several fail", {"a": [], "b": [], "c": ["a", "b"]}, "blocked", fails={"a": ALWAYS, "b": ALWAYS}),
    Life("several fail, message by message", {"a": [], "b": []}, "blocked", fails={"a": 9, "b": 9}, batch=1),
    Life("rerun by hand", chain(2), fails={"c0": 1}, acts=[Act("rerun", REST, label="c0")]),
    Life("rerun by its plan", chain(2), fails={"c0": 1}, acts=[Act("rerun", REST, label="c0", planned=True)]),
    Life(
        "what has gone on is rerun by its plan",
        chain(3),
        acts=[Act("rerun", When("", "finished"), label="c0", planned=True)],
    ),
    Life(
        "cancelled by its plan",
        chain(2),
        "cancelled",
        held=["c0"],
        acts=[_cancel("c0", "running", planned=True)],
    ),
    Life(
        "a task is cancelled by its plan",
        chain(2),
        "blocked",
        fails={"c0": ALWAYS},
        acts=[Act("cancel", REST, label="c1", planned=True)],
    ),
    Life(
        "paused and resumed by plans",
        chain(2),
        "blocked",
        acts=[Act("hold", REST, planned=True), Act("release", REST, planned=True)],
        fails={"c0": ALWAYS},
    ),
    Life(
        "limited by its plan",
        {"a": [], "b": ["a"]},
        "blocked",
        fails={"a": ALWAYS},
        acts=[Act("limit", REST, most=1, planned=True)],
    ),
    Life(
        "two reruns by hand",
        {"a": [], "b": [], "c": ["a", "b"]},
        fails={"a": 1, "b": 1},
        acts=[Act("rerun", REST, label="a"), Act("rerun", REST, label="b")],
    ),
    Life(
        "rerun by hand that fails, and another",
        chain(1),
        fails={"c0": 2},
        acts=[Act("rerun", REST, label="c0"), Act("rerun", REST, label="c0")],
    ),
    # failures that are told to dependents
    Life("one is skipped", chain(2), policy="continue", fails={"c0": ALWAYS}),
    Life("the rest is cancelled", chain(4), "cancelled", policy="fail-fast", fails={"c0": ALWAYS}),
    Life(
        "the rest is cancelled after reruns",
        fan_out(3),
        "cancelled",
        policy="fail-fast",
        reruns={"a": 1},
        fails={"a": ALWAYS},
        bounds=NARROWER,
    ),
    Life("a chain is skipped", chain(6), policy="continue", fails={"c0": ALWAYS}),
    Life(
        "a chain is skipped over several commits",
        chain(6),
        policy="continue",
        fails={"c0": ALWAYS},
        bounds=TIGHT_FAILING,
    ),
    Life(
        "a fan is skipped over several commits", both_ways(5), policy="continue", fails={"a": 1}, bounds=TIGHT_FAILING
    ),
    Life(
        "some run on failure, some do not",
        {"a": [], "b": ["a"], "c": ["a"], "d": ["a"], "e": ["b", "c", "d"]},
        policy="continue",
        fails={"a": ALWAYS},
        when={"b": "all-resolved", "c": "any-failed", "e": "always"},
    ),
    Life("nothing fails", DIAMOND, policy="continue", when={"c": "any-failed", "d": "always"}),
    Life("an optional one fails", DIAMOND, policy="continue", fails={"b": ALWAYS}, optional={"d": ["b"]}),
    Life(
        "a failure that is rerun is told to nobody",
        chain(2),
        policy="continue",
        reruns={"c0": 1},
        fails={"c0": 1},
        when={"c1": "any-failed"},
    ),
    Life(
        "a join of mixed ends",
        {**fan_in(4), "y": ["z"]},
        policy="continue",
        fails={"m1": 1},
        when={"z": "any-failed"},
        bounds=NARROWER,
    ),
    Life(
        "a join of a failure and a skip",
        {"a": [], "b": ["a"], "c": [], "d": [], "z": ["a", "b", "c", "d"]},
        policy="continue",
        fails={"a": ALWAYS},
        when={"z": "all-resolved"},
        bounds=NARROWER,
    ),
    Life(
        "a wide task with optional ones",
        fan_in(5),
        policy="continue",
        fails={"m1": 1, "m4": 1},
        optional={"z": ["m1", "m4"]},
        bounds=NARROWER,
    ),
    Life(
        "retries are spent, and dependents told",
        chain(3),
        policy="continue",
        vanish={"c0": ALWAYS},
        when={"c1": "any-failed"},
        bounds={"RETRIES_DEFAULT": 2},
    ),
    Life(
        "extended below a failed task",
        {"a": [], "b": []},
        policy="continue",
        fails={"a": ALWAYS},
        held=["b"],
        when={"y": "any-failed"},
        acts=[_added({"x": ["a"], "y": ["a"], "z": ["x", "b"]}, "a", "failed")],
    ),
    Life(
        "extended in chunks below what is resolved",
        {"a": [], "b": ["a"], "c": []},
        policy="continue",
        fails={"a": ALWAYS},
        held=["c"],
        bounds=CHUNKED,
        acts=[_added({"x": ["b"], "y": ["x", "c"], "z": ["a"]}, "b", "skipped")],
    ),
    # workers
    Life("worker vanishes", chain(2), vanish={"c0": 1}),
    Life("two workers vanish", DIAMOND, vanish={"b": 1, "d": 1}),
    Life("retries are spent", chain(2), "blocked", vanish={"c0": ALWAYS}, bounds={"RETRIES_DEFAULT": 2}),
    Life("handed back", chain(2), hand_back={"c0": 1}),
    Life("handed back twice, then fails", chain(1), reruns={"c0": 1}, hand_back={"c0": 2}, fails={"c0": 1}),
    # extensions
    Life("extended by a stranger", chain(1), held=["c0"], acts=[_added({"x": []}, "c0", "running")]),
    Life("extended below a running task", chain(1), held=["c0"], acts=[_added({"x": ["c0"]}, "c0", "running")]),
    Life("extended below a pending task", chain(1), late=["c0"], acts=[_added({"x": ["c0"]}, "c0", "pending")]),
    Life("extended below a completed task", chain(2), late=["c1"], acts=[_added({"x": ["c0"]}, "c0", "completed")]),
    Life(
        "extended below all kinds",
        {"a": [], "b": [], "c": []},
        held=["b"],
        late=["c"],
        acts=[_added({"x": ["a", "b", "c"]}, "a", "completed")],
    ),
    Life(
        "extended twice",
        chain(1),
        held=["c0"],
        acts=[_added({"x": ["c0"]}, "c0", "running"), _added({"y": ["x", "c0"]}, "c0", "running")],
    ),
    Life(
        "extended in chunks",
        chain(1),
        held=["c0"],
        bounds=CHUNKED,
        acts=[_added({"x": ["c0"], "y": ["x"], "z": ["c0", "y"]}, "c0", "running")],
    ),
    Life(
        "extended in chunks below a completed task",
        chain(2),
        late=["c1"],
        bounds=CHUNKED,
        acts=[_added({"x": ["c0"], "y": ["x", "c1"], "z": ["c0"]}, "c0", "completed")],
    ),
    Life(
        "extended in chunks, twice",
        chain(1),
        held=["c0"],
        bounds=CHUNKED,
        acts=[
            _added({"x": ["c0"], "y": [], "z": ["y"]}, "c0", "running"),
            _added({"u": ["x"], "v": ["c0"], "w": []}, "c0", "running"),
        ],
    ),
    Life(
        "an extension makes forks",
        {**fan_out(3)},
        held=["a"],
        bounds=NARROW,
        acts=[_added({"x": ["a"], "y": ["a"]}, "a", "running")],
    ),
    Life(
        "an extension makes forks of a completed task",
        {**fan_out(3)},
        late=["m0"],
        bounds=NARROW,
        acts=[_added({"x": ["a"], "y": ["a"]}, "a", "completed")],
    ),
    Life(
        "extensions fold the graph's joins",
        {"a": [], "b": [], "c": []},
        late=["a"],
        bounds=NARROWER,
        acts=[_added({f"x{n}": []}, "a", "pending") for n in range(3)],
    ),
    Life(
        "an extension that is refused",
        chain(1),
        held=["c0"],
        acts=[_added({"x": ["nobody"]}, "c0", "running", answer="refused")],
    ),
    Life(
        "an extension while blocked, then rerun",
        chain(1),
        fails={"c0": 1},
        acts=[Act("extend", REST, {"x": ["c0"]}), Act("rerun", REST, label="c0")],
    ),
    Life(
        "extended while blocked, beside what failed and below it",
        {"a": [], "b": []},
        "blocked",
        fails={"a": ALWAYS},
        held=["b"],
        bounds=CHUNKED,
        acts=[_added({"x": [], "y": ["a"], "z": ["b", "x"]}, "a", "failed")],
    ),
    Life(
        "extended while it is paused",
        {"a": [], "b": ["a"]},
        held=["a"],
        acts=_paused_and_extended("a", {"x": ["a"]}),
    ),
    Life(
        "extended in several steps while it is paused",
        chain(1),
        held=["c0"],
        bounds=CHUNKED,
        acts=_paused_and_extended("c0", {"x": ["c0"], "y": ["x"], "z": ["c0", "y"]}),
    ),
    Life(
        "extended twice while it is paused",
        chain(1),
        held=["c0"],
        acts=_paused_and_extended("c0", {"x": ["c0"]}, {"y": []}),
    ),
    Life(
        "extended while it is paused, in vain",
        chain(1),
        held=["c0"],
        acts=_paused_and_extended("c0", {"x": ["nobody"]}, answer="in vain"),
    ),
    Life(
        "extended while it is paused, and cancelled",
        chain(2),
        "cancelled",
        held=["c0"],
        acts=[*_paused_and_extended("c0", {"x": ["c0"]}, answer="open")[:-1], _cancel("c0", "")],
    ),
    Life(
        "extended while it is paused and blocked, then rerun",
        chain(1),
        fails={"c0": 1},
        acts=[
            Act("hold", REST),
            Act("extend", REST, {"x": ["c0"]}, answer="deferred"),
            Act("release", REST),
            Act("rerun", When("c0", "failed"), label="c0"),
        ],
    ),
    # cancelled
    Life("cancelled before it begins", DIAMOND, "cancelled", late=["a"], acts=[_cancel("a", "pending")]),
    Life("cancelled while one runs", chain(2), "cancelled", held=["c0"], acts=[_cancel("c0", "running")]),
    Life(
        "cancelled in the middle",
        {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": []},
        "cancelled",
        held=["b"],
        late=["c", "e"],
        acts=[_cancel("b", "running")],
    ),
    Life(
        "cancelled, and the worker hears of it as it renews its lease",
        {"a": [], "b": ["a"]},
        "cancelled",
        held=["a"],
        acts=[_cancel("a", "running"), Act("pass", When("", "cancelled"))],
    ),
    Life(
        "cancelled, and the run fails",
        chain(2),
        "cancelled",
        reruns={"c0": 2},
        fails={"c0": ALWAYS},
        held=["c0"],
        acts=[_cancel("c0", "running")],
    ),
    Life("terminated", {"a": [], "b": ["a"]}, "cancelled", held=["a"], acts=[_cancel("a", "running", terminate=True)]),
    Life(
        "cancelled, then terminated",
        {"a": [], "b": ["a"]},
        "cancelled",
        held=["a"],
        acts=[_cancel("a", "running"), _cancel("a", "running", terminate=True)],
    ),
    Life(
        "cancelled while blocked",
        {"a": [], "b": ["a"], "c": []},
        "cancelled",
        fails={"a": ALWAYS},
        acts=[Act("cancel", REST)],
    ),
    Life(
        "cancelled in several commits",
        {**fan_out(4), "z": ["m0", "m1"]},
        "cancelled",
        held=["a"],
        bounds={"COMMIT_CHANGES_MAX": 5},
        acts=[_cancel("a", "running")],
    ),
    Life(
        "cancelled with relays between",
        both_ways(4),
        "cancelled",
        held=["a"],
        bounds=NARROW,
        acts=[_cancel("a", "running")],
    ),
    Life(
        "cancelled, where failures are told to dependents",
        DIAMOND,
        "cancelled",
        policy="continue",
        when={"d": "always"},
        held=["b"],
        late=["c"],
        acts=[_cancel("b", "running")],
    ),
    Life(
        "cancelled while it is extended",
        chain(1),
        "cancelled",
        held=["c0"],
        bounds=CHUNKED,
        acts=[
            _added({"x": ["c0"], "y": ["x"], "z": ["c0", "y"]}, "c0", "running", answer="open"),
            _cancel("c0", "running"),
        ],
    ),
    Life(
        "a task is cancelled that runs",
        {"a": [], "b": ["a"], "c": []},
        "blocked",
        held=["a"],
        acts=[_cancel("a", "running", label="a")],
    ),
    Life(
        "a task is cancelled that waits, and rerun",
        chain(2),
        held=["c0"],
        acts=[_cancel("c0", "running", label="c1"), Act("rerun", When("c1", "exception"), label="c1")],
    ),
    Life(
        "a task is cancelled that waits long, and rerun",
        chain(2),
        sleeps=["c0"],
        acts=[_cancel("c0", "running", label="c1"), Act("rerun", When("c1", "exception"), label="c1")],
    ),
    Life(
        "a task is cancelled that is ready, and rerun",
        {"a": [], "b": ["a"]},
        late=["a"],
        acts=[_cancel("a", "pending", label="a"), Act("rerun", REST, label="a")],
    ),
    Life(
        "a task is cancelled that waits, where failures are told to dependents",
        chain(3),
        policy="continue",
        held=["c0"],
        acts=[_cancel("c0", "running", label="c1")],
    ),
    # times
    Life("not before", chain(2), timing={"c1": {"notBefore": moment(100)}}),
    Life("fails for the moment", chain(2), temporary={"c0": 2}, timing={"c0": {"retry": {"delay": 8}}}),
    Life(
        "fails for the moment too often",
        chain(1),
        "blocked",
        temporary={"c0": 2},
        timing={"c0": {"retry": {"limit": 1, "delay": 4}}},
    ),
    Life("a deadline while it runs", chain(2), "blocked", sleeps=["c0"], deadlines={"c0": 50}),
    Life("a deadline while it waits", chain(2), "blocked", sleeps=["c0"], deadlines={"c1": 50}),
    # held back
    Life("paused while one runs", chain(2), held=["c0"], acts=_pause("c0", "running")),
    Life("paused before it begins", DIAMOND, late=["a"], acts=_pause("a", "pending")),
    Life(
        "paused, and a run fails that has a rerun left",
        chain(2),
        reruns={"c0": 1},
        fails={"c0": 1},
        held=["c0"],
        acts=_pause("c0", "running"),
    ),
    Life(
        "paused and resumed in several commits",
        {**fan_out(4), "x": [], "y": [], "z": []},
        held=["a"],
        late=["x", "y", "z"],
        bounds={"COMMIT_CHANGES_MAX": 6},
        acts=_pause("a", "running"),
    ),
    Life("paused with relays between", both_ways(4), held=["a"], bounds=NARROW, acts=_pause("a", "running")),
    Life(
        "paused while blocked, and rerun by hand",
        {"a": [], "b": ["a"]},
        fails={"a": 1},
        acts=[Act("hold", REST), Act("rerun", When("a", "failed"), label="a"), Act("release", When("a", "pending"))],
    ),
    Life(
        "a group is paused",
        {"a": [], "b": ["a"], "c": []},
        held=["a"],
        groups={"g": (["b"], [])},
        acts=_pause("a", "running", group="g"),
    ),
    Life("a task is inactive for a while", chain(2), held=["c0"], acts=_pause("c0", "running", label="c1")),
    # another level: that of the queue from which work is taken here, so that what stands ready is only sent again
    Life(
        "levels are asked for while tasks wait, stand ready and run",
        {"a": [], "b": ["a"], "c": []},
        held=["a"],
        acts=[Act("ask", When("a", "running"), body=each) for each in (_LEVEL_LATE, _LEVEL)],
    ),
    # limits on tasks in flight
    Life("one at a time", {"a": [], "b": [], "c": ["a"]}, limits={"": 1}),
    Life("one at a time of five", dict.fromkeys("abcde", ()), limits={"": 1}),
    Life(
        "one at a time, and runs that fail, vanish and are handed back",
        {"a": [], "b": [], "c": []},
        limits={"": 1},
        reruns={"a": 1},
        fails={"a": 1},
        vanish={"b": 1},
        hand_back={"c": 1},
    ),
    Life(
        "two at a time, one of a group",
        {"a": [], "b": [], "c": [], "d": ["a"]},
        groups={"g": (["a", "b"], [])},
        limits={"": 2, "g": 1},
    ),
    Life(
        "one at a time, and more are added",
        chain(2),
        held=["c0"],
        limits={"": 1},
        acts=[Act("extend", When("c0", "running"), {"x": [], "y": ["c0"]})],
    ),
    Life(
        "a limit is raised",
        {"a": [], "b": [], "c": []},
        held=["c"],  # which is the first, or comes when the others are done
        limits={"": 1},
        acts=[Act("limit", When("c", "running"), most=3)],
    ),
    Life(
        "a limit where there was none",
        {"a": [], "b": [], "c": ["a"]},
        held=["a"],
        acts=[Act("limit", When("a", "running"), most=1)],
    ),
    Life(
        "a limit of a group that had none, in several commits",
        {"a": [], "b": [], "c": [], "d": ["a"]},
        held=["a"],
        groups={"g": (["a", "b", "c"], [])},
        bounds={"COMMIT_CHANGES_MAX": 6},
        acts=[Act("limit", When("a", "running"), most=1, group="g")],
    ),
    Life(
        "limited while blocked, and rerun by hand",
        {"a": [], "b": ["a"], "c": []},
        fails={"a": 1},
        acts=[Act("limit", REST, most=1), Act("rerun", When("a", "failed"), label="a")],
    ),
    Life("one at a time, one of which waits", chain(2), limits={"": 1}, timing={"c1": {"notBefore": moment(5)}}),
    # edited
    Life("another definition", chain(2), late=["c1"], acts=[_edit("c1", "pending", update={"c1": NEW})]),
    Life(
        "another definition, on another target",
        chain(2),
        late=["c1"],
        acts=[_edit("c1", "pending", update={"c1": {"task": {"payload": {"n": "new"}, "target": "late"}}})],
    ),
    Life(
        "edited twice",
        {"a": [], "b": ["a"]},
        held=["a"],
        acts=[_edit("a", "running", update={"b": {"reruns": 1}}), _edit("a", "running", update={"b": NEW})],
    ),
    Life(
        "asked for again after it was undone",
        {"a": [], "b": ["a"], "c": ["a"]},
        held=["a"],
        acts=[
            _edit("a", "running", update={"b": {"reruns": 1}}, delete=["c"]),
            _edit("a", "running", update={"b": {"reruns": 0}}),
            _edit("a", "running", update={"b": {"reruns": 1}}, delete=["c"]),
        ],
    ),
    Life("other requirements", DIAMOND, held=["b"], acts=[_edit("b", "running", update={"d": {"requires": ["a"]}})]),
    Life(
        "it waits again",
        {"a": [], "b": [], "c": ["b"]},
        held=["a"],
        late=["c"],
        acts=[_edit("c", "pending", update={"c": {"requires": ["a", "b"]}})],
    ),
    Life(
        "tasks go, and what they required is a leaf",
        chain(3),
        held=["c0"],
        acts=[_edit("c0", "running", delete=["c1", "c2"])],
    ),
    Life("the last open task goes", {"a": [], "b": ["a"]}, late=["b"], acts=[_edit("b", "pending", delete=["b"])]),
    Life(
        "a started task stays",
        chain(2),
        held=["c0"],
        acts=[
            _edit("c0", "running", update={"c0": NEW}, answer="refused"),
            _edit("c0", "running", delete=["c0", "c1"], answer="refused"),
        ],
    ),
    Life(
        "somebody requires what would go",
        chain(3),
        held=["c0"],
        acts=[
            _edit("c0", "running", delete=["c1"], answer="refused"),
            _edit("c0", "running", update={"c1": {"requires": ["c2"]}}, answer="refused"),
        ],
    ),
    Life(
        "tasks would require each other",
        chain(3),
        held=["c0"],
        acts=[_edit("c0", "running", update={"c1": {"requires": ["c2"]}}, answer="refused")],
    ),
    Life(
        "more than one commit takes",
        {"a": [], **{f"m{n}": ["a"] for n in range(4)}},
        held=["a"],
        bounds={"COMMIT_CHANGES_MAX": 6},
        acts=[_edit("a", "running", update={f"m{n}": {"reruns": 1} for n in range(4)}, answer="refused")],
    ),
    Life(
        "edited behind relays",
        both_ways(4),
        held=["a"],
        bounds=NARROW,
        acts=[
            _edit(
                "a",
                "running",
                update={"z": {"requires": ["m0", "m1", "m2"]}, "m1": {"requires": ["m0"]}},
                delete=["m3"],
            ),
        ],
    ),
    Life(
        "an edit makes more leaves than the graph names",
        {**fan_out(4), "z": ["a"]},
        held=["a"],
        bounds=FEW_LEAVES,
        acts=[
            _edit("a", "running", delete=["z"]),
            _edit("a", "running", update={f"m{n}": {"requires": []} for n in range(4)}),
        ],
    ),
    Life(
        "edited around what failed",
        {"a": [], "b": ["a"], "c": []},
        "blocked",
        fails={"a": 1},
        late=["c"],
        acts=[_edit("a", "failed", update={"b": {"requires": ["c"]}})],
    ),
    Life(
        "what failed gets another definition, and is rerun",
        chain(2),
        fails={"c0": 1},
        acts=[_edit("", "blocked", update={"c0": NEW}), Act("rerun", REST, label="c0")],
    ),
    Life(
        "what failed gets a budget, and is rerun",
        chain(1),
        fails={"c0": 2},
        acts=[_edit("", "blocked", update={"c0": {"reruns": 1}}), Act("rerun", REST, label="c0")],
    ),
    Life(
        "what failed gets less of a budget than it has spent",
        chain(1),
        "blocked",
        reruns={"c0": 1},
        fails={"c0": ALWAYS},
        acts=[_edit("", "blocked", update={"c0": {"reruns": 0}}, answer="refused")],
    ),
    Life(
        "what ended past its deadline gets none, and is rerun",
        chain(2),
        sleeps=["c0"],
        deadlines={"c0": 50},
        acts=[_edit("", "blocked", update={"c0": {"deadline": None}}), Act("rerun", REST, label="c0")],
    ),
    Life(
        "what failed is edited, rerun, and fails again",
        chain(2),
        "blocked",
        fails={"c0": 2},
        acts=[_edit("c0", "failed", update={"c0": NEW, "c1": {"reruns": 1}}), Act("rerun", REST, label="c0")],
    ),
    Life(
        "below what failed, and not below it any more",
        {"a": [], "b": [], "c": [], "d": ["b", "c"], "e": ["a", "c"]},
        policy="continue",
        fails={"a": 1},
        late=["c"],
        acts=[_edit("a", "failed", update={"d": {"requires": ["a", "c"]}, "e": {"requires": ["b", "c"]}})],
    ),
    Life(
        "another condition",
        {"a": [], "b": ["a"]},
        policy="continue",
        late=["b"],
        acts=[_edit("b", "pending", update={"b": {"when": "any-failed"}})],
    ),
    Life(
        "a group goes",
        {"a": [], "b": ["a"], "c": ["a"], "d": ["g"]},
        held=["a"],
        groups={"g": (["b", "c"], [])},
        acts=[_edit("a", "running", update={"d": {"requires": ["a"]}}, deleteGroups=["g"])],
    ),
    Life(
        "a group loses what it waited for",
        {"a": [], "b": [], "c": [], "d": ["g"]},
        late=["c"],
        groups={"g": (["b", "c"], [])},
        acts=[_edit("b", "completed", delete=["c"])],
    ),
    Life(
        "edited and extended",
        chain(2),
        held=["c0"],
        acts=[
            _added({"x": ["c0"]}, "c0", "running"),
            _edit("c0", "running", update={"x": {"requires": []}}, delete=["c1"]),
        ],
    ),
    Life(
        "edited, and cancelled",
        chain(3),
        "cancelled",
        held=["c0"],
        acts=[_edit("c0", "running", delete=["c2"]), Act("cancel", When("c0", "running"))],
    ),
    Life(
        "edited while it is paused",
        chain(2),
        held=["c0"],
        acts=[
            Act("hold", When("c0", "running")),
            _edit("c0", "", update={"c1": NEW}),
            Act("release", When("c0")),
        ],
    ),
    # messages
    Life("all queues are deleted", chain(2), late=["c1"], acts=[Act("wipe", When("c1", "pending"))]),
    *(Life(f"junk: {name}", chain(1), acts=[Act("send", When("c0"), body=body)]) for name, body in JUNK.items()),
    # groups that need k of n
    Life(
        "two of three, and the rest is cancelled",
        {"a": [], "b": [], "c": [], "x": ["g"]},
        policy="continue",
        groups={"g": (["a", "b", "c"], [])},
        success={"g": Success(2, cancels=True)},
        timing={"c": {"notBefore": moment(FAR_SECONDS)}},
    ),
    Life(
        "two of three, and the rest is cancelled, over pieces",
        {"a": [], "b": [], "c": [], "x": ["g"], "y": ["g"], "z": ["g"]},
        policy="continue",
        groups={"g": (["a", "b", "c"], [])},
        success={"g": Success("66.6%", waits=True, cancels=True)},
        timing={"c": {"notBefore": moment(FAR_SECONDS)}},
        bounds=COUNTING,
    ),
    Life(
        "too few of three",
        {"a": [], "b": [], "c": [], "x": ["g"], "y": ["g"]},
        policy="continue",
        fails={"a": ALWAYS, "b": ALWAYS},
        groups={"g": (["a", "b", "c"], [])},
        success={"g": Success(2)},
        when={"y": "any-failed"},
        late=["c"],
    ),
    Life(
        "a member is run again, and the decision is taken back",
        {"a": [], "b": [], "c": [], "x": ["g"]},
        policy="continue",
        fails={"c": ALWAYS},
        groups={"g": (["a", "b", "c"], [])},
        success={"g": Success(2)},
        acts=[Act("rerun", When(state="finished"), label="a")],
        bounds=COUNTING,
    ),
    Life(
        "a member is run again, and the decision stands",
        {"a": [], "b": [], "c": [], "x": ["g"]},
        policy="continue",
        groups={"g": (["a", "b", "c"], [])},
        success={"g": Success(2)},
        acts=[Act("rerun", When(state="finished"), label="a")],
    ),
    Life(
        "a group that needs one of a group that needs two",
        {"a": [], "b": [], "c": [], "x": ["g"], "y": ["inner"]},
        policy="continue",
        fails={"c": ALWAYS},
        groups={"inner": (["a", "b"], []), "g": (["inner", "c"], [])},
        success={"inner": Success(2), "g": Success(1, waits=True)},
    ),
    # groups that say what becomes of a failure
    Life(
        "a failure is passed on in a graph that blocks",
        {"a": [], "b": ["a"], "x": ["b"], "y": ["g"], "z": []},
        groups={"g": (["a", "b"], [])},
        policies={"g": "continue"},
        fails={"a": ALWAYS},
        when={"y": "always"},
    ),
    Life(
        "a failure blocks a graph that goes on",
        {"a": [], "b": ["a"], "x": ["b"], "y": ["a"], "z": ["y"]},
        end="blocked",
        policy="continue",
        groups={"g": (["b"], [])},
        policies={"g": "block"},
        fails={"b": ALWAYS, "y": ALWAYS},
        when={"z": "any-failed"},
    ),
    Life(
        "one failure blocks, one is passed on, and the first is rerun",
        {"a": [], "b": [], "x": ["a"], "y": ["b"], "z": ["x", "y"]},
        groups={"g": (["a"], [])},
        policies={"g": "continue"},
        fails={"a": ALWAYS, "b": 1},
        acts=[Act("rerun", REST, label="b")],
    ),
    Life(
        "a failure that was passed on is taken back",
        {"a": [], "x": ["a"], "y": ["x"]},
        groups={"g": (["a"], [])},
        policies={"g": "continue"},
        fails={"a": 1},
        acts=[Act("rerun", When(state="finished"), label="a")],
    ),
    Life(
        "a chain is skipped in a graph that blocks, over several commits",
        {"a": [], **{f"c{n}": [f"c{n - 1}"] if n else ["a"] for n in range(4)}},
        groups={"g": (["a"], [])},
        policies={"g": "continue"},
        fails={"a": ALWAYS},
        bounds=TIGHT_FAILING,
    ),
    Life(
        "a graph that blocks gets a group that goes on",
        {"a": []},
        held=["a"],
        acts=[_added({"b": ["a"], "c": ["b"], "d": ["c"]}, "a", "running")],
        groups={"g": (["b"], [])},
        policies={"g": "continue"},
        fails={"b": ALWAYS},
        bounds=CHUNKED,
    ),
    Life(
        "extended below a failure that was passed on, in a graph that blocks",
        {"a": [], "b": []},
        groups={"g": (["a"], [])},
        policies={"g": "continue"},
        fails={"a": ALWAYS},
        held=["b"],
        when={"y": "any-failed"},
        acts=[_added({"x": ["a"], "y": ["a"], "z": ["x", "b"]}, "a", "failed")],
    ),
    Life(
        "a task is cancelled that waits, in a group whose failures are passed on",
        chain(3),
        groups={"g": (["c1"], [])},
        policies={"g": "continue"},
        held=["c0"],
        acts=[_cancel("c0", "running", label="c1")],
    ),
    # groups
    Life(
        "a group between two",
        {"lock": [], "a": [], "b": [], "end": ["bulk"]},
        groups={"bulk": (("a", "b"), ("lock",))},
    ),
    Life("a group before a group", TWO_BEFORE_TWO, groups={**BULK, "more": (("c", "d"), ("bulk",))}),
    Life(
        "a group in a group",
        {**TWO_BEFORE_TWO, "c": ["all"], "d": ["bulk"]},
        groups={"all": (("bulk", "d"), ()), **BULK},
    ),
    Life("three before three", bounds=NARROWER, **before_each_other(3)),
    Life("three before three, message by message", bounds=NARROWER, batch=1, **before_each_other(3)),
    Life("three before three, over several commits", bounds=TIGHT, **before_each_other(3)),
    Life(
        "a gate of three before three",
        dict.fromkeys(["a", "b", "c", "x", "y", "z"], ()),
        bounds=NARROW,
        groups={"last": (("x", "y", "z"), ("a", "b", "c"))},
    ),
    Life(
        "blocked in a group, rerun",
        {"a": [], "b": [], "c": ["bulk"]},
        groups=BULK,
        fails={"a": 1},
        acts=[Act("rerun", REST, label="a")],
    ),
    Life(
        "extended below a group that is under way",
        {"a": [], "b": [], "c": ["bulk"]},
        groups=BULK,
        held=["b"],
        bounds=NARROW,
        acts=[_added({"x": ["bulk"], "y": ["bulk"]}, "b", "running")],
    ),
    Life(
        "extended below a group that is over",
        {"a": [], "b": [], "c": ["bulk"]},
        groups=BULK,
        late=["c"],
        acts=[_added({"x": ["bulk", "a"]}, "c", "pending")],
    ),
    Life(
        "extended by a group, below a group that nobody required",
        {"a": [], "b": []},
        groups={**BULK, "more": (("x", "y"), ("bulk",))},
        held=["b"],
        bounds=CHUNKED,
        acts=[_added({"x": [], "y": []}, "b", "running")],
    ),
    Life(
        "a group that fails, and a graph that goes on",
        {"a": [], "b": [], "c": ["bulk"], "d": ["bulk"], "e": ["d"]},
        groups=BULK,
        policy="continue",
        when={"d": "any-failed"},
        fails={"a": ALWAYS},
    ),
    Life(
        "extended below a group that failed",
        {"a": [], "b": [], "c": ["bulk"], "d": ["bulk"]},
        groups=BULK,
        policy="continue",
        when={"d": "any-failed", "y": "always"},
        fails={"a": ALWAYS},
        late=["d"],
        acts=[_added({"x": ["bulk"], "y": ["bulk"]}, "d", "pending")],
    ),
    Life(
        "a group that grows",
        {"a": [], "b": ["found"]},
        groups=FOUND,
        held=["a"],
        grows={"found": ["x", "y"]},
        acts=[_added({"x": ["a"], "y": ["a"]}, "a", "running")],
    ),
    Life(
        "a group that grows in chunks, by much",
        {"a": [], "b": ["found"]},
        groups=FOUND,
        held=["a"],
        grows={"found": ["x", "y", "z", "u"]},
        bounds={**CHUNKED, **NARROWER, "COMMIT_CHANGES_MAX": 10},
        acts=[_added({"x": ["a"], "y": ["a"], "z": [], "u": ["x"]}, "a", "running")],
    ),
    Life(
        "a group that grows twice",
        {"a": [], "c": [], "b": ["found"]},
        groups={"found": (("a", "c"), ())},
        held=["a"],
        grows={"found": ["x", "y"]},
        bounds=NARROWER,
        acts=[_added({"x": ["a"]}, "a", "running"), _added({"y": ["c"]}, "a", "running")],
    ),
    Life(
        "a group that grows by what fails",
        {"a": [], "b": ["found"], "c": ["found"]},
        groups=FOUND,
        held=["a"],
        grows={"found": ["x"]},
        policy="continue",
        when={"c": "any-failed"},
        fails={"x": ALWAYS},
        acts=[_added({"x": ["a"]}, "a", "running")],
    ),
    # what has ended is rerun, with all that has gone on from there
    Life("all of a chain again", chain(3), acts=[_again("c0")]),
    Life("the end of a chain again", chain(2), acts=[_again("c1")]),
    Life("a chain again, twice", chain(2), acts=[_again("c0"), _again("c0")]),
    Life("a diamond again", DIAMOND, acts=[_again("a")]),
    Life("a side of a diamond again", DIAMOND, acts=[_again("b")]),
    Life("both sides of a diamond again", DIAMOND, acts=[_again("b"), _again("c")]),
    Life("a chain again in its midst", chain(3), held=["c2"], acts=[Act("rerun", When("c2", "running"), label="c0")]),
    Life("a chain again before its end", chain(3), late=["c2"], acts=[Act("rerun", When("c2", "pending"), label="c1")]),
    Life("a chain again past a failure", chain(3), fails={"c2": 1}, acts=[Act("rerun", REST, label="c0")]),
    Life("a diamond again, over several commits", DIAMOND, bounds=TIGHT, acts=[_again("a")]),
    Life("forks and joins again", both_ways(4), bounds=NARROW, acts=[_again("a")]),
    Life("trees of both again", both_ways(5), bounds={**NARROWER, **TIGHT}, acts=[_again("a")]),
    Life("many leaves, and one again", {f"a{n}": [] for n in range(5)}, bounds=NARROWER, acts=[_again("a0")]),
    Life(
        "a failure again that was passed on",
        {"a": [], "b": ["a"], "c": ["a"], "d": ["c"]},
        policy="continue",
        fails={"a": 1},
        when={"c": "any-failed"},
        acts=[_again("a")],
    ),
    Life(
        "one of two failures again that were passed on",
        {"a": [], "b": [], "c": ["a", "b"], "d": ["c"]},
        policy="continue",
        fails={"a": 1, "b": ALWAYS},
        when={"d": "any-failed"},
        acts=[_again("a")],
    ),
    Life(
        "what failed fast again, and what was cancelled for it",
        {"a": [], "b": ["a"], "c": []},
        policy="fail-fast",
        fails={"a": 1},
        late=["c"],
        acts=[_again("a", "cancelled"), Act("rerun", REST, label="b"), Act("rerun", REST, label="c")],
    ),
    Life(
        "a cancelled graph again in part",
        chain(3),
        "blocked",
        held=["c1"],
        acts=[_cancel("c1", "running", terminate=True), _again("c0", "cancelled")],
    ),
    Life(
        "a cancelled graph again, and cancelled again",
        chain(2),
        "cancelled",
        late=["c1"],
        acts=[_cancel("c1", "pending"), _again("c0", "cancelled"), _cancel("c1", "pending")],
    ),
    Life(
        "again, and extended below what waits again",
        chain(2),
        late=["c1"],
        bounds=CHUNKED,
        acts=[Act("rerun", When("c1", "pending"), label="c0"), Act("extend", When("c0"), {"x": ["c0"], "y": ["c1"]})],
    ),
    Life(
        "extended below what is over, and again",
        chain(2),
        held=["c1"],
        acts=[_added({"x": ["c0"]}, "c1", "running"), Act("rerun", When("x", "completed"), label="c0")],
    ),
    Life(
        "again while it is paused",
        chain(2),
        held=["c1"],
        acts=[Act("hold", When("c1", "running")), Act("rerun", When("c1"), label="c0"), Act("release", When("c0"))],
    ),
    Life(
        "again under a limit",
        {"a": [], "b": [], "c": ["a", "b"]},
        limits={"": 1},
        held=["c"],
        acts=[Act("rerun", When("c", "running"), label="a")],
    ),
    Life(
        "again behind a task that is cancelled",
        chain(3),
        "blocked",
        held=["c1"],
        acts=[_cancel("c1", "running", label="c2"), Act("rerun", When("c2", "exception"), label="c0")],
    ),
    Life("a group again", {"a": [], "b": [], "c": ["bulk"]}, groups=BULK, bounds=NARROW, acts=[_again("a")]),
    # somebody wakes up, and does not know how late it is
    Life("a zombie", chain(2), sleeps=["c0"]),
    Life("a zombie in a diamond", DIAMOND, sleeps=["b"]),
    Life("a zombie that hands back", chain(2), sleeps=["c0"], hand_back={"c0": 1}),
)
