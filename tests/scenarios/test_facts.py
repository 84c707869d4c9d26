"""Facts name exactly the columns that their commits change, whatever their kind; and filters see all of it."""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

import taskgraph
from taskgraph.documents.read import document_from_object
from taskgraph.documents.warnings import warnings
from taskgraph.engine.control import settle_holds
from taskgraph.engine.doctor import repair_graph
from taskgraph.model import facts, limits
from taskgraph.model.ids import GRAPH
from taskgraph.model.messages import Cancel, TaskFailed
from taskgraph.model.row_schema import USUAL
from taskgraph.model.states import PAUSED, TaskState
from taskgraph.protocol.lifecycle import BeginDeletion
from taskgraph.protocol.notices import notice
from taskgraph.protocol.pause import Hold, HoldTask
from taskgraph.protocol.set_limit import ChangeLimit
from taskgraph.protocol.spending import Charge
from taskgraph.protocol.transfer import Arrive, Depart, Remain, Withdraw
from taskgraph.queries.journal import agrees
from taskgraph.queries.values import Event
from taskgraph.storage.tables import Change, Insert, Merge
from taskgraph.testing import MemoryTables
from tests.scenarios.stage import Stage, extension, graph
from tests.simulation.counted import counted
from tests.simulation.histories import world_of

SOURCE: Final = Path(taskgraph.__file__).parent
STATED: Final = re.compile(r"(?:graph|group|task|journal)-[a-z]+")
SEEDS: Final = range(41_000, 41_120)


WRITTEN: Final = {
    "graph-running": "state started",
    "graph-finished": "state finished requiresLeft",
    "graph-blocked": "state blocked blockedBy failedTasks",
    "graph-unblocked": "state blockedBy failedTasks",
    "graph-cancelling": "state reason",
    "graph-cancelled": "state cancelled",
    "graph-paused": "settling pausing",
    "graph-resumed": "held holds settling",
    "graph-limited": "asked max moved",
    "graph-stalled": "stalled stalledAt stalledBecause",
    "graph-unstalled": "stalledBecause",
    "graph-budgeted": "budget budgetReached",
    "graph-warned": "budgetReached",
    "graph-overspent": "budgetReached",
    "graph-extended": "tasks edges requires requiresLeft revision",
    "graph-edited": "",
    "graph-deleting": "state was deleting until because",
    "graph-repaired": "",
    "graph-moving": "state was moving transfer movesTo",
    "graph-stays": "state was moving transfer movesTo marked",
    "graph-moved": "state was arrived restoring whole marked",
    "task-completed": "state ended resolved resolution",
    "task-failed": "state ended resolved resolution",
    "task-exception": "state ended resolved resolution",
    "task-cancelling": "cancel",
    "task-cancelled": "state resolved resolution",
    "task-skipped": "state resolved resolution requiresLeft due",
    "task-rerun": "state run runs claim pendingSince",
    "task-retry": "state run runs claim pendingSince notBefore temporaryFailures",
    "task-held": "held heldAsked",
    "task-released": "held heldAsked",
    "journal-gap": "",
    "group-decided": "ok requiresLeft announced",
}
"""The usual columns of the kinds that journals hold by now: they are read by this table, so it never changes."""

BY_HAND: Final = {
    "graph-budgeted",
    "graph-overspent",
    "graph-warned",
    "graph-deleting",
    "graph-limited",
    "graph-moved",
    "graph-moving",
    "graph-repaired",
    "graph-stalled",
    "graph-stays",
    "graph-unstalled",
    "task-held",
    "task-retry",
}
"""Kinds that histories do not have, or have rarely."""


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The kinds of all facts that are committed: each is held against the rows before and after."""
    commit = MemoryTables.commit
    seen: set[str] = set()

    async def checked(self: MemoryTables, partition: str, changes: Sequence[Change]) -> list[str | None]:
        keys = [change.key for change in changes]
        before = {row.key: dict(row.columns) for row in await self.get(partition, keys) if row is not None}
        etags = await commit(self, partition, changes)
        after = {row.key: dict(row.columns) for row in await self.get(partition, keys) if row is not None}
        for change in changes:
            if isinstance(change, Insert) and change.key.startswith("event:"):
                for fact in json.loads(str(change.columns["events"])):
                    assert set(facts.changes_of(fact["event"], fact)) == differing(fact, before, after), fact
                    seen.add(fact["event"])
        return etags

    monkeypatch.setattr(MemoryTables, "commit", checked)
    return seen


def differing(fact: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """The columns that a commit has changed of the row, or rows, of a fact."""
    match fact["event"]:
        case "graph-edited":
            keys = [key for key in before if not key.startswith("request:")]
        case "graph-limited":
            keys = [key for key in before if key.startswith("limit:")] or [facts.subject("graph-limited", fact)]
        case "graph-repaired":
            keys = [fact["row"]]
        case "group-decided":
            keys = [key for key, columns in after.items() if "needs" in columns and columns["label"] == fact["group"]]
        case "graph-changed":
            keys = [f"request:{fact['request']}"]
        case "graph-running" if GRAPH not in before:  # written as it is started: as if it had been there
            return {"state", "started"} & after[GRAPH].keys()
        case kind:
            keys = [facts.subject(kind, fact)]
    both = [(before[key], after[key]) for key in keys if key in before and key in after]
    return {name for was, now in both for name in {**was, **now} if was.get(name) != now.get(name)} - {"operation"}


def kinds_in_the_code() -> Iterator[str]:
    """Every kind of fact that the code states: what is handed to `event`, and what stands under "event"."""
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            named: list[ast.AST] = []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "event":
                named += node.args[:1]
            if isinstance(node, ast.Call):
                named += [each.value for each in node.keywords if each.arg == "event"]
            if isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                named += [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "event"]
            if isinstance(node, ast.FunctionDef):
                with_default = node.args.kwonlyargs + node.args.args[-len(node.args.defaults) or len(node.args.args) :]
                defaults = [*node.args.kw_defaults, *node.args.defaults]
                for argument, default in zip(with_default, defaults, strict=False):
                    if argument.arg == "event" and default is not None:
                        named.append(default)
            for each in named:
                if isinstance(each, ast.JoinedStr):
                    yield from (f"task-{state}" for state in (TaskState.FAILED, TaskState.EXCEPTION))
                for inner in ast.walk(each):
                    if isinstance(inner, ast.Constant) and STATED.fullmatch(str(inner.value)):
                        yield str(inner.value)
    yield "journal-gap"  # written as text, for the row of a fact that is lost


def test_every_kind_of_fact_in_the_code_has_its_usual_columns() -> None:
    assert set(kinds_in_the_code()) == set(USUAL)


def test_facts_of_histories_name_exactly_the_columns_that_differ(kinds: set[str]) -> None:
    for seed in SEEDS:
        world_of(seed).run()
    for seed in range(8):
        counted(seed).run()
    assert set(USUAL) - kinds <= {*BY_HAND, "journal-gap"}, "a gap is a row that is gone, and changes none"


async def test_other_facts_name_exactly_the_columns_that_differ(memory: Stage, kinds: set[str]) -> None:
    stage = memory
    await stage.submit(graph({"a": [], "b": ["a"], "c": ["b"]}, maxInFlight=2, stalledAfter=60, budget={"amount": 4}))
    for amount in (3.5, 5.0):
        await stage.transition(Charge(amount, "EUR", "2030-01-31"))
    await stage.transition(Hold(PAUSED, False, budget=9.0))
    await settle_holds(stage.handlers, stage.graph_id)
    scope = json.loads(str((await stage.graph_row()).columns["limits"]))[0]
    await stage.transition(ChangeLimit(scope, 3))
    await stage.transition(HoldTask(stage.task_id("a"), True))
    await stage.transition(HoldTask(stage.task_id("a"), False))
    (failed,) = stage.failed(await stage.claim("a")).tasks
    await stage.deliver(TaskFailed(stage.graph_id, (replace(failed, temporary=True),)))
    for _ in range(4):
        stage.clock.advance(limits.STALLED_SECONDS)
        await stage.sweep()
    await stage.complete("a")
    await stage.sweep()
    row = await stage.row("c")
    await stage.tables.commit(stage.graph_id, [Merge(row.key, row.etag, {"requiresLeft": "[]"})])
    assert (await repair_graph(stage.handlers, stage.poison, stage.graph_id)).repaired
    assert await stage.work() == "finished"
    for item in (Depart("token", "there"), Withdraw(), Remain()):
        await stage.transition(item)
    row = await stage.graph_row()
    comes = {"state": "restoring", "was": "finished", "arrival": "token", "whole": True}
    await stage.tables.commit(stage.graph_id, [Merge(row.key, row.etag, comes)])
    await stage.transition(Arrive("token", "there"))
    await stage.transition(BeginDeletion(stage.clock.now() + timedelta(days=30), False, "it is old"))
    assert kinds >= BY_HAND


def event(kind: str, **fields: Any) -> Event:
    return Event(1, None, kind, fields)


EDITED: Final = event(
    "graph-edited",
    updated=[{"task": "t", "label": "build/a", "fields": ["reruns"]}],
    deleted=["old"],
    deletedGroups=["night"],
    changed=["dependents", "rerunsLeft"],
)


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        ({"label": ["build/*"]}, True),
        ({"label": ["old"]}, True),
        ({"deleted": ["old"]}, True),
        ({"group": ["night"]}, True),
        ({"task": ["t"]}, True),
        ({"fields": ["*reruns*"]}, True),
        ({"label": ["new"]}, False),
        ({"deleted": ["build/a"]}, False),
        ({"changed": ["rerunsLeft"], "event": ["graph-*"]}, True),
        ({"changed": ["state"]}, False),
    ],
)
def test_filters_see_inside_lists(where: Mapping[str, Sequence[str]], passes: bool) -> None:
    assert agrees(EDITED, where) is passes


async def test_an_extension_names_what_it_added(memory: Stage) -> None:
    await memory.submit(graph({"a": []}))
    assert await memory.extend(extension({"x": ["a"], "y": []})) == "done"
    (one,) = await memory.queries.events(memory.graph_id, where={"event": ["graph-extended"], "label": ["y"]})
    assert one.fields["added"] == ["x", "y"]
    wide = extension({f"n{number}": ["a"] for number in range(300)})
    assert await memory.extend(wide) == "done"
    found = await memory.queries.events(memory.graph_id, where={"label": ["n17"], "event": ["graph-extended"]})
    assert [each.fields["tasks"] for each in found] == [300]


async def test_a_cancelled_task_has_changed_its_state(memory: Stage) -> None:
    await memory.submit(graph({"a": []}))
    await memory.deliver(Cancel(memory.graph_id, ((memory.task_id("a"), 0),)))
    (one, *_) = await memory.queries.events(memory.graph_id, where={"changed": ["state"], "label": ["a"]})
    assert one.kind == "task-cancelled"


async def test_facts_have_the_routing_of_their_graph_and_task(memory: Stage) -> None:
    tasks = {"a": {"task": {"routing": "linux"}}, "b": {"requires": ["a"], "task": {}}}
    await memory.submit(document_from_object({"routing": "nightly", "tasks": tasks}))
    added = {"tasks": {"c": {"requires": ["b"], "task": {"routing": "mac"}}}}
    assert await memory.extend(document_from_object(added, kind="extension")) == "done"
    assert await memory.edit({"update": {"b": {"task": {"routing": "bsd"}}}}) == "done"
    assert await memory.work() == "finished"
    events = await memory.queries.events(memory.graph_id)
    told = [(each.kind, each.fields["routing"]) for each in events]
    assert told == [
        ("graph-running", "nightly"),
        ("graph-extended", "nightly"),
        ("graph-edited", "nightly"),
        ("task-completed", "nightly.linux"),
        ("task-completed", "nightly.bsd"),
        ("task-completed", "nightly.mac"),
        ("graph-finished", "nightly"),
    ]
    found = await memory.queries.events(memory.graph_id, where={"routing": ["nightly.*"], "label": ["b"]})
    assert [each.kind for each in found] == ["task-completed"]
    made = notice(memory.graph_id, 1, 0, None, {"event": events[-1].kind, **events[-1].fields})
    assert json.loads(made.body)["routing"] == "nightly"


async def test_where_there_is_no_routing_nothing_is_added(memory: Stage) -> None:
    await memory.submit(document_from_object({"tasks": {"a": {"task": {}}, "b": {"task": {"routing": "x"}}}}))
    assert await memory.work() == "finished"
    assert "routingKey" not in (await memory.row("a")).columns
    told = {each.fields.get("label"): each.fields.get("routing") for each in await memory.queries.events("graph")}
    assert told == {None: None, "a": None, "b": ".x"}


def test_retries_beside_the_payload_are_a_warning() -> None:
    (found,) = warnings(document_from_object({"tasks": {"a": {"task": {"retries": 9}}}}))
    assert (found.code, found.pointer) == ("retries", "/tasks/a/task/retries")


def test_what_is_usual_for_a_kind_that_was_ever_written_stays() -> None:
    assert {kind: " ".join(USUAL[kind]) for kind in WRITTEN} == WRITTEN
