"""The scenarios of the scheduler that this one descends from, each under its id.

What they said of things that are not here is translated, and the docstring says how: a scope, scheduler id or task
group id is a key that the schema does not know; "a message was published" is a fact in the journal, in order and just
once; "a task was scheduled on the queue" is its row in `pending` and a work message that offers it.
"""
# ruff: noqa: N802 - the ids are names

import asyncio
import json

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.engine.submission import Submission, Submitted
from taskgraph.model.errors import InvalidGraph, Problem
from taskgraph.model.ids import is_task_id
from taskgraph.model.messages import RunTasks, parse
from taskgraph.protocol.context import Outcome
from tests.scenarios.stage import Stage, extension, graph, graph_object, over_stores

METADATA = {"name": "Example", "description": "An example.", "owner": "somebody@example.com", "source": "here"}
A_THEN_B = {"A": [], "B": ["A"]}


def problems(obj: object) -> list[Problem]:
    """What is wrong with a document."""
    with pytest.raises(InvalidGraph) as caught:
        document_from_object(obj)
    return list(caught.value.problems)


# --- documents -------------------------------------------------------------------------------------------------


def test_V1_a_valid_document_is_accepted() -> None:
    document = document_from_object(graph_object(A_THEN_B, metadata=METADATA, tags={"k": "v"}, routing="r"))
    assert list(document.tasks) == ["A", "B"]


def test_V2_what_has_a_default_may_be_left_out() -> None:
    """`retries` there; `requires` and `reruns` here."""
    document = document_from_object({"tasks": {"A": {"task": {}}}})
    assert (document.tasks["A"].requires, document.tasks["A"].reruns) == ((), 0)


def test_V3_every_mistake_of_a_document_is_named() -> None:
    """Ids that are no slugids, a `version` and a misspelt key there; here their like, all at once with their places."""
    found = problems(
        {
            "version": 1,
            "tasks": {"A": {"Requires": [], "task": {}}, "B": {"requires": [7], "task": {}}, "": {"task": {}}},
        }
    )
    assert {(each.pointer, each.code) for each in found} >= {
        ("/version", "unknown-key"),
        ("/tasks/A/Requires", "unknown-key"),
        ("/tasks/B/requires/0", "wrong-type"),
        ("/tasks/", "label"),
    }


# --- submitting --------------------------------------------------------------------------------------------------


async def test_D1_the_rows_of_a_graph_are_its_graph_row_and_its_tasks(stage: Stage) -> None:
    await stage.submit(graph(A_THEN_B))
    keys = {row.key for row in await stage.queries.partition("graph")}
    assert {key for key in keys if not key.startswith("event:")} == {
        "task-graph",
        f"task:{stage.task_id('A')}",
        f"task:{stage.task_id('B')}",
    }
    assert set(await stage.states()) == {"A", "B"}


async def test_S1_the_answer_names_the_graph(stage: Stage) -> None:
    submitted = await stage.submit(graph(A_THEN_B, routing=""))
    assert submitted == Submission("graph", Submitted.CREATED, tasks=2, edges=1)
    assert (await stage.queries.status("graph")).graph_id == "graph"


async def test_S2_without_routing(stage: Stage) -> None:
    """`routes` there, `routing` here: both may be absent."""
    assert "routing" not in graph_object(A_THEN_B)
    assert (await stage.submit(graph(A_THEN_B))).outcome is Submitted.CREATED
    assert (await stage.queries.status("graph")).routing == ""


def test_S3_a_scope_that_is_missing() -> None:
    """There are no scopes: naming them is an error, with its place, and nothing is written."""
    assert [(each.pointer, each.code) for each in problems(graph_object(A_THEN_B, scopes=[]))] == [
        ("/scopes", "unknown-key")
    ]


@pytest.mark.parametrize("key", ["schedulerId", "taskGroupId", "taskId"])
def test_S4_S5_ids_that_are_not_the_submitters_to_choose(key: str) -> None:
    """A foreign schedulerId (S4) or taskGroupId (S5) was refused; on a node, no such key exists here."""
    obj = graph_object(A_THEN_B)
    obj["tasks"]["B"][key] = "other"
    assert [(each.pointer, each.code) for each in problems(obj)] == [(f"/tasks/B/{key}", "unknown-key")]


async def test_S6_a_graph_from_submission_to_its_end(stage: Stage) -> None:
    """Running message and A offered; B not before A is complete; finished not before B is. Each told exactly once."""
    await stage.submit(graph(A_THEN_B))
    assert await stage.told() == ["graph-running"]
    assert await stage.offered() == [("A", 0)]
    held = await stage.claim("A")
    stage.clock.advance(0.5)
    await stage.sweep()
    assert await stage.offered() == []
    assert await stage.task_state("B") == "unscheduled"
    await stage.deliver(stage.completed(held))
    assert await stage.offered() == [("B", 0)]
    assert await stage.task_state("B") == "pending"
    held = await stage.claim("B")
    assert await stage.told() == ["graph-running"]
    await stage.deliver(stage.completed(held))
    assert await stage.state() == "finished"
    assert await stage.told(tasks=True) == ["graph-running", "task-completed", "task-completed", "graph-finished"]
    await stage.check(A_THEN_B)


# --- saying it twice ---------------------------------------------------------------------------------------------


async def test_I1_the_same_submission_twice(stage: Stage) -> None:
    first = await stage.submit(graph(A_THEN_B))
    before = await stage.snapshot()
    second = await stage.submit(graph(A_THEN_B))
    assert (first.outcome, second.outcome) == (Submitted.CREATED, Submitted.EXISTING)
    assert (first.tasks, first.edges) == (second.tasks, second.edges)
    assert await stage.snapshot() == before


async def test_I2_the_same_submission_and_the_same_extension_twice(stage: Stage) -> None:
    """B requires A; C requires A and B: each is offered only after what it requires, finished only after C."""
    for _ in range(2):
        await stage.submit(graph({"A": []}))
    addition = {"B": ["A"], "C": ["A", "B"]}
    first = await stage.stage_extension(extension(addition))
    second = await stage.stage_extension(extension(addition))
    assert first.request == second.request
    await stage.pump()
    assert await stage.offered() == [("A", 0)]
    await stage.complete("A")
    assert await stage.offered() == [("B", 0)]
    assert await stage.states() == {"A": "completed", "B": "pending", "C": "unscheduled"}
    await stage.complete("B")
    assert await stage.offered() == [("C", 0)]
    assert await stage.state() == "running"
    await stage.complete("C")
    assert await stage.told() == ["graph-running", "graph-extended", "graph-finished"]
    await stage.check({"A": [], **addition})


# --- extending -------------------------------------------------------------------------------------------------


async def test_X1_extending_keeps_what_was_there(stage: Stage) -> None:
    await stage.submit(graph({"A": []}, tags={"MyTestTag": "MyTestTagValue"}))
    before = await stage.queries.status("graph")
    assert (before.state, before.tasks, before.tags) == ("running", 1, {"MyTestTag": "MyTestTagValue"})
    assert await stage.extend(extension({"B": ["A"]})) == "done"
    after = await stage.queries.status("graph")
    assert (after.state, after.tasks, after.edges, after.tags) == ("running", 2, 1, before.tags)
    assert (await stage.queries.task("graph", "A")).dependents == ["B"]
    assert await stage.told() == ["graph-running", "graph-extended"]
    await stage.check(A_THEN_B)


async def test_X2_extending_twice_and_running_it_to_the_end(stage: Stage) -> None:
    await stage.submit(graph({"A": []}, tags={"MyTestTag": "MyTestTagValue"}))
    for _ in range(2):
        assert await stage.extend(extension({"B": ["A"]})) == "done"
    held = await stage.claim("A")
    assert await stage.task_state("B") == "unscheduled"
    await stage.deliver(stage.completed(held))
    assert await stage.task_state("B") == "pending"
    held = await stage.claim("B")
    assert await stage.state() == "running"
    await stage.deliver(stage.completed(held))
    status = await stage.queries.status("graph")
    assert (status.state, status.tasks, status.counts) == ("finished", 2, {"completed": 2})
    assert await stage.told() == ["graph-running", "graph-extended", "graph-finished"]
    await stage.check(A_THEN_B)


# --- looking ---------------------------------------------------------------------------------------------------


async def test_N1_inspecting_before_and_after_the_first_task(stage: Stage) -> None:
    """Its list of scopes is left out; `scheduled` there is `pending` here."""
    await stage.submit(graph(A_THEN_B, tags={"k": "v"}, metadata=METADATA))
    assert await stage.states() == {"A": "pending", "B": "unscheduled"}
    held = await stage.claim("A")
    assert await stage.states() == {"A": "running", "B": "unscheduled"}
    await stage.deliver(stage.completed(held))
    status = await stage.queries.status("graph")
    assert (status.state, status.tags, status.metadata) == ("running", {"k": "v"}, METADATA)
    assert await stage.states() == {"A": "completed", "B": "pending"}
    detail = await stage.queries.task("graph", "A")
    assert (detail.status.state, detail.dependents, detail.requires) == ("completed", ["B"], [])
    detail = await stage.queries.task("graph", stage.task_id("B"))
    assert (detail.status.label, detail.requires, detail.requires_left) == ("B", ["A"], [])


# --- reruns ----------------------------------------------------------------------------------------------------


async def test_R1_a_failure_within_the_budget_is_another_run(stage: Stage) -> None:
    await stage.submit(graph({"A": []}, reruns={"A": 1}))
    await stage.fail("A")
    row = (await stage.row("A")).columns
    assert (row["state"], row["run"], row["rerunsLeft"], row["rerunsAllowed"]) == ("pending", 1, 0, 1)
    assert await stage.offered() == [("A", 0), ("A", 1)]
    assert await stage.state() == "running"
    await stage.complete("A")
    assert await stage.state() == "finished"
    assert await stage.told(tasks=True) == ["graph-running", "task-rerun", "task-completed", "graph-finished"]


async def test_R2_a_failure_beyond_the_budget_blocks(stage: Stage) -> None:
    await stage.submit(graph({"A": []}, reruns={"A": 1}))
    await stage.fail("A")
    assert await stage.told() == ["graph-running"]
    await stage.fail("A")
    assert await stage.state() == "blocked"
    row = (await stage.row("A")).columns
    assert (row["state"], row["run"], row["rerunsLeft"]) == ("failed", 1, 0)
    assert await stage.told(tasks=True) == ["graph-running", "task-rerun", "task-failed", "graph-blocked"]
    (blocked,) = [event for event in await stage.events() if event.kind == "graph-blocked"]
    assert (blocked.fields["label"], blocked.fields["task"]) == ("A", stage.task_id("A"))


# --- the early suite -------------------------------------------------------------------------------------------


async def test_E1_two_handlers_remove_different_requirements_at_once(stage: Stage) -> None:
    """Two handles on one row: exactly one of them observes the empty list, and schedules."""
    await stage.submit(graph({"A": [], "B": [], "C": ["A", "B"]}))
    first, second = stage.completed(await stage.claim("A")), stage.completed(await stage.claim("B"))
    await stage.offered()
    other = stage.more_handlers()
    slow = stage.more_handlers(between=lambda: stage.deliver(second, handlers=other))
    await stage.deliver(first, handlers=slow)  # has read all it decides on when the other one commits
    assert slow.counters.conflicts == 1
    assert (other.counters.dispatched, slow.counters.dispatched) == (0, 1)
    row = (await stage.row("C")).columns
    assert (row["state"], json.loads(str(row["requiresLeft"]))) == ("pending", [])
    assert await stage.offered() == [("C", 0)]


async def test_E1_two_handlers_at_the_same_moment(stage: Stage) -> None:
    """The same, as two tasks of one event loop: whoever loses decides again."""
    await stage.submit(graph({"A": [], "B": [], "C": ["A", "B"]}))
    first, second = stage.completed(await stage.claim("A")), stage.completed(await stage.claim("B"))
    handlers = stage.more_handlers(), stage.more_handlers()
    await asyncio.gather(stage.deliver(first, handlers=handlers[0]), stage.deliver(second, handlers=handlers[1]))
    assert handlers[0].counters.dispatched + handlers[1].counters.dispatched == 1
    assert await stage.work() == "finished"
    assert set(stage.executed.values()) == {1}


async def test_E2_a_task_row_reads_the_same_alone_and_in_the_partition(stage: Stage) -> None:
    await stage.submit(graph(A_THEN_B))
    alone = await stage.row("B")
    (among,) = [row for row in await stage.queries.partition("graph") if row.key == alone.key]
    assert (among.columns, among.etag) == (alone.columns, alone.etag)
    assert json.loads(str(alone.columns["requires"])) == [stage.task_id("A")]


async def test_E3_a_reference_becomes_the_id(stage: Stage) -> None:
    """`"Hello {{key}}"` there; a `$subs` object here, and braces in a text are just text."""
    obj = graph_object(A_THEN_B)
    obj["tasks"]["B"]["task"]["payload"] = {"of": {"$subs": "taskId:A"}, "text": "Hello {{key}}"}
    await stage.submit(document_from_object(obj))
    definition = (await stage.queries.task("graph", "B")).definition
    assert definition["payload"] == {"of": stage.task_id("A"), "text": "Hello {{key}}"}
    assert is_task_id(definition["payload"]["of"])


async def test_E4_keys_are_never_replaced(stage: Stage) -> None:
    """There a parameter in an object key was replaced; here keys stay, with their numbers."""
    obj = graph_object(A_THEN_B)
    obj["tasks"]["B"]["task"]["payload"] = {"{{key}}": 42, "taskId:A": {"inner": {"$subs": "taskId:B"}}}
    await stage.submit(document_from_object(obj))
    definition = (await stage.queries.task("graph", "B")).definition
    assert definition["payload"] == {"{{key}}": 42, "taskId:A": {"inner": stage.task_id("B")}}


async def test_E5_a_reference_inside_an_array(stage: Stage) -> None:
    obj = graph_object(A_THEN_B)
    obj["tasks"]["B"]["task"]["payload"] = {
        "list": [1, 2.5, True, None, {"$subs": "taskId:A"}, [{"$subs": "taskId:A"}]]
    }
    await stage.submit(document_from_object(obj))
    definition = (await stage.queries.task("graph", "B")).definition
    assert definition["payload"] == {"list": [1, 2.5, True, None, stage.task_id("A"), [stage.task_id("A")]]}


def test_E6_an_unknown_reference_is_refused() -> None:
    """There it was left as it was, and surprised the worker; here it is an error with its place."""
    obj = graph_object(A_THEN_B)
    obj["tasks"]["B"]["task"]["payload"] = {"x": [{"$subs": "taskId:nobody"}]}
    assert [(each.pointer, each.code) for each in problems(obj)] == [
        ("/tasks/B/task/payload/x/0/$subs", "unknown-label")
    ]


PRINTS = {"print-once": [], "print-twice": ["print-once"]}


async def test_E7_status_and_tasks_agree_by_label(stage: Stage) -> None:
    """`params` are the tags here."""
    await stage.submit(graph(PRINTS, tags={"key": "param"}))
    status = await stage.queries.status("graph")
    assert (status.graph_id, status.state, status.tags) == ("graph", "running", {"key": "param"})
    assert status.counts == {"pending": 1, "unscheduled": 1}
    assert (await stage.queries.task("graph", "print-twice")).requires == ["print-once"]
    mapping = json.loads(str((await stage.graph_row()).columns["nameMapping"]))
    assert mapping == {label: stage.task_id(label) for label in PRINTS}
    assert await stage.work() == "finished"


async def test_E8_an_extension_refers_to_tasks_that_were_there(stage: Stage) -> None:
    """With a stored and a new parameter there; with references to an old and a new task here."""
    await stage.submit(graph(PRINTS))
    obj = graph_object({"print-third": ["print-once", "print-twice"]})
    obj["tasks"]["print-third"]["task"]["payload"] = {
        "old": {"$subs": "taskId:print-once"},
        "new": {"$subs": "taskId:print-third"},
    }
    assert await stage.extend(document_from_object(obj, kind="extension")) == "done"
    detail = await stage.queries.task("graph", "print-third")
    assert detail.requires == ["print-once", "print-twice"]
    assert detail.definition["payload"] == {"old": stage.task_id("print-once"), "new": stage.task_id("print-third")}
    assert await stage.work() == "finished"
    assert set(stage.executed.values()) == {1}


@pytest.mark.parametrize(
    ("stage", "order"), over_stores("CBA", local=["ABC", "ACB", "BAC", "BCA", "CAB"]), indirect=["stage"]
)
async def test_P1_tasks_defined_in_any_order(stage: Stage, order: str) -> None:
    """A and B are offered at once, C after both."""
    requires = {"A": [], "B": [], "C": ["A", "B"]}
    await stage.submit(graph({label: requires[label] for label in order}))
    assert await stage.offered() == [("A", 0), ("B", 0)]
    await stage.complete("A")
    assert await stage.task_state("C") == "unscheduled"
    assert await stage.offered() == []
    await stage.complete("B")
    assert await stage.offered() == [("C", 0)]
    await stage.complete("C")
    assert await stage.state() == "finished"


async def test_a_claimed_run_is_nobody_elses(stage: Stage) -> None:
    """What its suite took for granted of the queue: one claim wins, the next is told that it is too late."""
    await stage.submit(graph({"A": []}))
    await stage.claim("A", worker="first")
    assert (await stage.try_claim("A", worker="second")).outcome is Outcome.STALE
    assert (await stage.row("A")).columns["worker"] == "first"


async def test_the_targets_of_tasks_have_queues_of_their_own(stage: Stage) -> None:
    obj = graph_object({"A": [], "B": []})
    obj["tasks"]["B"]["task"]["target"] = "gpu"
    await stage.submit(document_from_object(obj))
    (delivery,) = await stage.queues.receive(stage.names.work("gpu"), lease_seconds=30)
    message = parse(delivery.body)
    assert isinstance(message, RunTasks)
    assert (message.graph, message.target, message.tasks) == ("graph", "gpu", ((stage.task_id("B"), 0),))
    assert await stage.offered() == [("A", 0)]
