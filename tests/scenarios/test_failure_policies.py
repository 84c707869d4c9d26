"""Failure policies over real stores: who is told, who is skipped, and what people are shown of it.

The traps of the scheduler that came after the old one are here: two that wait for the same failure, one to run and one
to be skipped, in either order of their ids; a failure that is still going to be rerun; more dependents than a row, a
commit or a message holds.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import document_from_object
from taskgraph.engine.doctor import examine_graph, repair_graph
from taskgraph.engine.telemetry import Telemetry
from taskgraph.model import limits
from taskgraph.model.errors import InvalidGraph
from taskgraph.model.ids import GRAPH, row_key
from taskgraph.model.messages import Rerun
from taskgraph.protocol.context import Outcome
from taskgraph.storage.tables import Merge
from tests.outcomes import expected
from tests.scenarios.stage import CrashError, Stage, Trap


def document(tasks: Mapping[str, Any], *, policy: str = "continue", kind: Any = "graph") -> GraphDocument:
    """Label -> its requirements, or the whole node."""
    nodes = {
        label: {"task": {}, **(node if isinstance(node, dict) else {"requires": list(node)})}
        for label, node in tasks.items()
    }
    more = {"failurePolicy": policy} if kind == "graph" else {}
    return document_from_object({"tasks": nodes, **more}, kind=kind)


def on(*requires: Any, when: str = "all-completed") -> dict[str, Any]:
    return {"requires": list(requires), "when": when}


MIXED = {
    "build": (),
    "lint": (),
    "docs": on({"label": "lint", "optional": True}),
    "test": ("build",),
    "publish": ("test", "docs"),
    "alarm": on("build", "docs", when="any-failed"),
    "report": on("build", "lint", when="all-resolved"),
    "cleanup": on("publish", "alarm", "report", when="always"),
}


async def ended(stage: Stage, wanted: GraphDocument, fails: Mapping[str, int]) -> None:
    """The graph is finished, each task as document and outcomes say, and nothing is left over."""
    assert await stage.work(fails=fails) == "finished"
    states = await stage.states()
    failing = [label for label, times in fails.items() if times > wanted.tasks[label].reruns]
    assert states == expected(wanted.tasks, failing)
    status = await stage.queries.status(stage.graph_id)
    counts = {state: list(states.values()).count(state) for state in set(states.values())}
    assert status.counts == counts
    assert (status.failed_tasks, status.unresolved) == (counts.get("failed", 0), 0)
    found = await examine_graph(stage.handlers, stage.poison, stage.graph_id)
    assert found.findings == ()
    assert (await stage.sweep()).did_something is False


@pytest.mark.parametrize("failing", [(), ("build",), ("lint",), ("build", "lint"), ("docs",), ("alarm", "build")])
async def test_who_runs_and_who_is_skipped(stage: Stage, failing: tuple[str, ...]) -> None:
    wanted = document(MIXED)
    await stage.submit(wanted)
    await ended(stage, wanted, dict.fromkeys(failing, 1))


@pytest.mark.parametrize("turned", [False, True])
async def test_one_of_two_that_wait_for_a_failure_is_not_forgotten(stage: Stage, turned: bool) -> None:
    names = sorted(("B", "C"), key=stage.task_id, reverse=turned)
    wanted = document({"A": (), names[0]: ("A",), names[1]: on("A", when="all-resolved")})
    await stage.submit(wanted)
    await stage.offered()
    await stage.fail("A")
    assert await stage.states() == {"A": "failed", names[0]: "skipped", names[1]: "pending"}
    assert await stage.offered() == [(names[1], 0)]


async def test_a_failure_that_is_going_to_be_rerun_releases_nobody(stage: Stage) -> None:
    wanted = document({"A": {"reruns": 1}, "gate": on("A", when="any-failed"), "all": on("A", when="all-resolved")})
    await stage.submit(wanted)
    await stage.fail("A")
    assert await stage.states() == {"A": "pending", "gate": "unscheduled", "all": "unscheduled"}
    await stage.complete("A")
    assert await stage.states() == {"A": "completed", "gate": "skipped", "all": "pending"}


@pytest.mark.parametrize("when", ["all-completed", "any-failed"])
async def test_more_than_a_hundred_dependents_are_all_told(local: Stage, when: str) -> None:
    tasks: dict[str, Any] = {"A": (), **{f"d{n}": on("A", when=when) for n in range(250)}}
    wanted = document({**tasks, "end": on(*(f"d{n}" for n in range(250)), when="always")})
    await local.submit(wanted)
    await ended(local, wanted, {"A": 1})


async def test_a_crash_between_two_commits_of_skips_is_mended_by_the_sweep(local: Stage) -> None:
    """After every commit of the handler that skips a chain which no single one holds."""
    size = 450
    wanted = document({f"c{n}": [f"c{n - 1}"] if n else () for n in range(size)})
    swept = 0
    for at in range(1, 20):
        local.graph_id = f"g{at}"
        await local.submit(wanted)
        message = local.failed(await local.claim("c0"))
        trap = Trap(at, "after", only="commit")
        try:
            await local.deliver(message, handlers=local.more_handlers(trap))
        except CrashError:
            await local.sweep()
            swept += 1
            assert await local.state() == "finished"
            states = await local.states()
            assert list(states.values()).count("skipped") == size - 1
        else:
            assert swept >= 2
            return
    raise AssertionError("the handler never came to its end")


async def test_skips_are_counted_without_a_look_at_each_task(local: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COUNTED_TASKS_MAX", 10)
    wanted = document({"a": (), **{f"s{n}": ("a",) for n in range(30)}, "x": (), "y": ("x",)})
    await local.submit(wanted)
    await local.fail("a")
    status = await local.queries.status(local.graph_id)
    assert status.exact
    assert status.counts == {"unscheduled": 1, "pending": 1, "failed": 1, "skipped": 30}
    assert (status.unresolved, status.failure_policy) == (2, "continue")
    await local.work()
    (event,) = [each for each in await local.events() if each.kind == "graph-finished"]
    changed = ["finished", "requiresLeft", "skippedTasks", "state"]  # more than a graph without skips
    assert event.fields == {"failed": 1, "skipped": 30, "changed": changed}
    row = await local.graph_row()
    assert (row.columns["failedTasks"], row.columns["skippedTasks"]) == (1, 30)


async def test_tasks_added_below_what_is_resolved_are_told_at_once(stage: Stage) -> None:
    await stage.submit(document({"a": (), "b": ("a",), "c": (), "held": ()}))
    await stage.fail("a")
    await stage.complete("c")
    added = {
        "x": ("a",),
        "y": on("a", when="any-failed"),
        "z": on("b", "c", when="always"),
        "w": on("b", when="all-resolved"),
        "v": on({"label": "a", "optional": True}, "c"),
    }
    assert await stage.extend(document(added, kind="extension")) == "done"
    states = await stage.states()
    assert {label: states[label] for label in added} == {
        "x": "skipped",
        "y": "pending",
        "z": "pending",
        "w": "skipped",
        "v": "pending",
    }
    assert await stage.work() == "finished"


async def test_an_extension_with_conditions_needs_a_graph_that_goes_on(stage: Stage) -> None:
    await stage.submit(document({"a": ()}, policy="block"))
    assert await stage.extend(document({"x": on("a", when="always")}, kind="extension")) == "refused"
    (head,) = [row for row in await stage.queries.partition(stage.graph_id) if row.columns.get("state") == "refused"]
    assert "failurePolicy: continue" in str(head.columns["reason"])


async def test_more_dependents_than_a_task_names_are_added_below_a_failed_one(local: Stage) -> None:
    await local.submit(document({"a": (), **{f"b{n}": ("a",) for n in range(60)}, "held": ()}))
    await local.fail("a")
    added = {f"x{n}": on("a", when="any-failed" if n % 2 else "all-completed") for n in range(60)}
    assert await local.extend(document(added, kind="extension")) == "done"
    states = await local.states()
    assert [states[f"x{n}"] for n in range(60)] == ["skipped", "pending"] * 30
    assert await local.work() == "finished"


async def test_a_failure_is_taken_back_once_dependents_know(stage: Stage) -> None:
    await stage.submit(document({"a": (), "b": ("a",), "c": ()}))
    await stage.fail("a")
    assert await stage.states() == {"a": "failed", "b": "skipped", "c": "pending"}
    assert (await stage.rerun("a")).outcome is Outcome.APPLIED
    assert await stage.states() == {"a": "pending", "b": "unscheduled", "c": "pending"}
    for label in ("a", "b", "c"):
        await stage.complete(label)
    assert await stage.state() == "finished"


async def test_why_says_who_was_the_cause_and_what_will_become_of_it(stage: Stage) -> None:
    await stage.submit(document({"a": (), "b": (), "c": ("a", "b"), "d": on("c", when="any-failed"), "e": ("d",)}))
    await stage.fail("a", reason="exit code 3")
    (first, *_) = await stage.queries.why(stage.graph_id, "c")
    assert first.text == "waits for 1 task; then it will be skipped: “a” failed"
    (first, *_) = await stage.queries.why(stage.graph_id, "d")
    assert first.text == "waits for 1 task; runs if any of them failed"
    await stage.complete("b")
    assert await stage.states() == {"a": "failed", "b": "completed", "c": "skipped", "d": "skipped", "e": "skipped"}
    reasons = await stage.queries.why(stage.graph_id, "c")
    assert [(each.label, each.text, each.cause) for each in reasons] == [
        ("c", "was skipped because “a” failed", False),
        ("a", "failed for good in run 0: exit code 3", True),
    ]
    assert reasons[1].remedy == f"mend it, then: taskgraph rerun --downstream {stage.graph_id} a"
    assert (await stage.queries.why(stage.graph_id, "d"))[
        0
    ].text == "was skipped because none of what it requires failed"
    detail = await stage.queries.task(stage.graph_id, "d")
    assert detail.status.when == "any-failed"


async def test_optional_requirements_are_shown_through_their_joins(local: Stage) -> None:
    members = [f"m{n}" for n in range(130)]
    wide = on(*members[:60], *({"label": each, "optional": True} for each in members[60:]))
    wanted = document({**dict.fromkeys(members, ()), "z": wide})
    await local.submit(wanted)
    detail = await local.queries.task(local.graph_id, "z")
    assert sorted(detail.optional) == sorted(members[60:])
    assert detail.requires_count == 130
    await ended(local, wanted, dict.fromkeys(members[100:], 1))


async def test_fail_fast_cancels_the_rest_with_a_reason_that_names_the_task(stage: Stage) -> None:
    await stage.submit(document({"a": (), "b": ("a",), "c": (), "d": ("c",)}, policy="fail-fast"))
    held = await stage.claim("c")
    await stage.fail("a", reason="exit code 3")
    assert await stage.state() in ("cancelling", "cancelled")
    await stage.deliver(stage.completed(held))
    await stage.sweep()
    assert await stage.state() == "cancelled"
    assert (await stage.graph_row()).columns["reason"] == "“a” failed: exit code 3"
    states = await stage.states()
    assert states == {"a": "failed", "b": "cancelled", "c": "cancelled", "d": "cancelled"}
    resolution = (await stage.queries.task_status(stage.graph_id, "d")).resolution or {}
    assert (resolution["cancelled"], resolution["code"]) == (True, "fail-fast")
    assert (await stage.rerun("a")).outcome is Outcome.REFUSED  # a message from before
    (handled,) = await stage.deliver(Rerun(stage.graph_id, ((stage.task_id("a"), 0),), reopens=True))
    assert [answer.outcome for answer in handled.answers] == [Outcome.APPLIED]
    assert await stage.states() == {"a": "pending", "b": "cancelled", "c": "cancelled", "d": "cancelled"}
    assert await stage.state() == "blocked"


async def test_two_that_fail_together_fence_the_graph_once(stage: Stage) -> None:
    await stage.submit(document({"a": (), "b": (), "c": ("a", "b")}, policy="fail-fast"))
    await stage.deliver(stage.failed(*await stage.claims("a", "b"), reason="x"))
    await stage.sweep()
    assert (await stage.told()).count("graph-cancelling") == 1
    assert (await stage.graph_row()).columns["failedTasks"] == 3


@pytest.mark.parametrize("policy", ["block", "fail-fast"])
@pytest.mark.parametrize("node", [on("a", when="always"), on({"label": "a", "optional": True})])
def test_conditions_under_another_policy_are_refused(policy: str, node: dict[str, Any]) -> None:
    with pytest.raises(InvalidGraph) as caught:
        document({"a": (), "b": node}, policy=policy)
    (problem,) = caught.value.problems
    assert problem.code == "needs-continue"
    assert "needs failurePolicy: continue" in problem.message


class Counting(Telemetry):
    """Hears how many tasks ended how."""

    enabled = True

    def __init__(self) -> None:
        self.heard: Counter[str] = Counter()

    def tasks(self, outcome: str, count: int) -> None:
        self.heard[outcome] += count


async def test_skips_are_measured(local: Stage) -> None:
    counting = Counting()
    await local.submit(document({"a": (), **{f"s{n}": ("a",) for n in range(120)}}))
    local.handlers.telemetry = counting
    await local.fail("a")
    assert counting.heard == {"failed": 1, "skipped": 120}


# --- the doctor


async def _set(stage: Stage, key: str, **columns: Any) -> None:
    (row,) = await stage.tables.get(stage.graph_id, [key])
    assert row is not None
    await stage.tables.commit(stage.graph_id, [Merge(key, row.etag, columns)])


async def _codes(stage: Stage) -> list[tuple[str, bool]]:
    found = await examine_graph(stage.handlers, stage.poison, stage.graph_id)
    return [(each.code, each.repairable) for each in found.findings]


DAMAGE = {
    "forgotten to be skipped": ("b", {"state": "unscheduled", "due": "skip", "resolution": ""}, "skip-due"),
    "neither due nor skipped": ("b", {"state": "unscheduled", "due": "", "resolution": ""}, "asleep"),
    "does not know of the failure": ("c", {"failedBy": ""}, "unheard"),
}


@pytest.mark.parametrize("name", DAMAGE)
async def test_the_doctor_mends_what_was_not_told(stage: Stage, name: str) -> None:
    label, columns, code = DAMAGE[name]
    await stage.submit(document({"a": (), "b": ("a",), "x": (), "c": ("a", "x")}))
    await stage.fail("a")
    await _set(stage, row_key(stage.task_id(label)), **columns)
    assert (code, True) in await _codes(stage)
    await repair_graph(stage.handlers, stage.poison, stage.graph_id)
    await stage.complete("x")
    assert await stage.states() == {"a": "failed", "b": "skipped", "x": "completed", "c": "skipped"}
    assert await stage.state() == "finished"


@pytest.mark.parametrize(
    ("requirement", "late", "after"), [("fails", "skipped", "skipped"), ("completes", "exception", "completed")]
)
async def test_a_deadline_that_passes_while_a_task_waits_counts_in_the_place_of_running(
    stage: Stage, requirement: str, late: str, after: str
) -> None:
    deadline = (stage.clock.now() + timedelta(seconds=20)).isoformat()
    chain = {"a": (), "b": {**on("a"), "task": {"deadline": deadline}}, "c": on("b", when="any-failed")}
    await stage.submit(document(chain))
    held = await stage.claim("a")
    stage.clock.advance(30)
    await stage.sweep()
    assert await stage.task_state("b") == "unscheduled", "it waits for its end, whatever the clock says"
    await stage.deliver(stage.completed(held) if requirement == "completes" else stage.failed(held))
    await stage.work()
    assert (await stage.task_state("b"), await stage.task_state("c")) == (late, after)
    assert await stage.state() == "finished"


async def test_the_doctor_names_what_ran_against_its_condition(stage: Stage) -> None:
    await stage.submit(document({"a": (), "b": ("a",), "x": ()}))
    await stage.fail("a")
    await _set(stage, row_key(stage.task_id("b")), state="completed", claim="c")
    assert ("condition", False) in await _codes(stage)
    await _set(stage, row_key(stage.task_id("b")), state="pending", claim="")
    assert ("condition", True) in await _codes(stage)
    await repair_graph(stage.handlers, stage.poison, stage.graph_id)
    assert await stage.task_state("b") == "skipped"
    await _set(stage, row_key(stage.task_id("b")), run=1)
    assert ("skipped-ran", False) in await _codes(stage)


async def test_the_doctor_names_what_was_skipped_for_no_reason_and_counts_again(stage: Stage) -> None:
    await stage.submit(document({"a": (), "b": ("a",)}))
    await stage.complete("a")
    await _set(stage, row_key(stage.task_id("b")), state="skipped")
    assert ("skipped-wrong", False) in await _codes(stage)
    await _set(stage, row_key(stage.task_id("b")), state="pending")
    await stage.work()
    await _set(stage, GRAPH, skippedTasks=7)
    assert await _codes(stage) == [("skipped-count", True)]
    await repair_graph(stage.handlers, stage.poison, stage.graph_id)
    assert await _codes(stage) == []


# --- size


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["chain", "fan"])
async def test_ten_thousand_are_skipped_in_bounded_commits(local: Stage, shape: str) -> None:
    size = 10_000
    tasks: dict[str, Any] = {"t0": ()}
    tasks |= {f"t{n}": [f"t{n - 1}"] if shape == "chain" else ["t0"] for n in range(1, size)}
    await local.submit(document(tasks))
    await asyncio.wait_for(local.fail("t0"), 120)
    assert await local.state() == "finished"
    row = await local.graph_row()
    assert row.columns["skippedTasks"] == size - 1
    commits = len({each.sequence for each in await local.events()})
    assert commits <= size // 60


async def test_a_rerun_in_the_commit_of_the_end_leaves_nothing_of_it(stage: Stage) -> None:
    await stage.submit(document({"a": (), "b": ("a",), "c": ()}))
    await stage.fail("a")
    held = await stage.claim("c")
    await stage.deliver(stage.completed(held), Rerun(stage.graph_id, ((stage.task_id("a"), 0),)))
    graph = (await stage.graph_row()).columns
    assert (graph["state"], graph.get("finished"), graph.get("skippedTasks")) == ("running", None, None)
    assert await stage.work() == "finished"
    assert set((await stage.states()).values()) == {"completed"}
    assert (await examine_graph(stage.handlers, stage.poison, stage.graph_id)).findings == ()
