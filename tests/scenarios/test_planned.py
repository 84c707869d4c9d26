"""Plan, then apply: what was planned is made, or nothing is."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from taskgraph.engine import requests, submission
from taskgraph.engine.foresight import Foreseen, foresee
from taskgraph.model.errors import Conflict, IntegrityError, NotFound
from taskgraph.model.ids import GRAPH
from taskgraph.model.messages import Cancel, Edit, HoldBack, Message, Prioritize, Rerun, SetLimit
from taskgraph.protocol.planned import MOVED
from tests.scenarios.stage import Stage, graph

ASKED = "2026-01-01T00:00:00.000001+00:00"
REQUIRES = {"ready": [], "other": [], "done": [], "failed": [], "waits": ["ready"], "behind": ["failed"]}


async def begun(stage: Stage) -> None:
    await stage.submit(graph(REQUIRES, groups={"some": {"tasks": ["ready", "waits"]}}))
    await stage.deliver(stage.completed(await stage.claim("done")))
    await stage.deliver(stage.failed(await stage.claim("failed")))


def messages(stage: Stage) -> dict[str, list[Message]]:
    own, ids = stage.graph_id, stage.task_id
    return {
        "rerun": [Rerun(own, ((ids("failed"), 0),))],
        "rerun completed": [Rerun(own, ((ids("done"), 0),))],
        "cancel": [Cancel(own)],
        "cancel tasks": [Cancel(own, ((ids("ready"), 0), (ids("waits"), 0)))],
        "pause": [HoldBack(own, True, ASKED)],
        "pause group": [HoldBack(own, True, ASKED, "some")],
        "deactivate": [HoldBack(own, True, ASKED, "", (ids("ready"),))],
        "limit": [SetLimit(own, 1, ASKED)],
        "prioritize": [Prioritize(own, "high", ASKED, (ids("ready"), ids("waits")))],
    }


KINDS = (
    "rerun",
    "rerun completed",
    "cancel",
    "cancel tasks",
    "pause",
    "pause group",
    "deactivate",
    "limit",
    "prioritize",
)


async def request(stage: Stage, asked: list[Message], plan: Foreseen) -> dict[str, Any]:
    """The columns of the request, when it has been handled."""
    made = await submission.change(stage.handlers, stage.graph_id, asked, by="me", plan=plan.digest)
    await stage.deliver(Edit(stage.graph_id, made.request))
    (row,) = await stage.tables.get(stage.graph_id, [f"request:{made.request}"])
    assert row is not None
    return dict(row.columns)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_change_comes_out_as_it_was_planned(stage: Stage, kind: str) -> None:
    await begun(stage)
    asked = messages(stage)[kind]
    before = await stage.queries.partition(stage.graph_id)
    plan = await foresee(stage.handlers, stage.graph_id, asked)
    assert await stage.queries.partition(stage.graph_id) == before, "a plan writes nothing"
    assert not plan.changes_nothing
    assert not plan.refused
    head = await request(stage, asked, plan)
    assert head["state"] == "done", head
    rows = {row.key: row.columns for row in await stage.queries.partition(stage.graph_id)}
    for each in plan.tasks:
        row = rows[f"task:{each.task_id}"]
        assert row.get("run") == each.to_run
        assert {name: row.get(name) for name in each.columns if name != "active"} == {
            name: after for name, (_, after) in each.columns.items() if name != "active"
        }
    assert {name: rows[GRAPH].get(name) for name in plan.graph} == {
        name: after for name, (_, after) in plan.graph.items()
    }
    (fact,) = [each for each in await stage.events() if each.kind == "graph-changed"]
    assert (fact.fields["plan"], fact.fields["by"]) == (plan.digest, "me")
    again = await foresee(stage.handlers, stage.graph_id, asked)
    assert again.digest != plan.digest


async def moved(stage: Stage) -> None:
    await stage.deliver(stage.completed(await stage.claim("ready")))


async def claimed(stage: Stage) -> None:
    await stage.claim("ready")


@pytest.mark.parametrize("between", [moved, claimed])
async def test_what_has_moved_since_is_refused(stage: Stage, between: Callable[[Stage], Awaitable[None]]) -> None:
    await begun(stage)
    asked = messages(stage)["cancel tasks"]
    plan = await foresee(stage.handlers, stage.graph_id, asked)
    await between(stage)
    head = await request(stage, asked, plan)
    assert (head["state"], head["reason"].startswith(MOVED)) == ("refused", True)
    fresh = await foresee(stage.handlers, stage.graph_id, asked)
    assert fresh.digest in head["reason"]
    assert (await request(stage, asked, fresh))["state"] == "done"


@pytest.mark.parametrize(
    "error", [Conflict("x"), IntegrityError("x"), NotFound("x")], ids=lambda error: type(error).__name__
)
async def test_a_plan_of_rows_of_different_moments_is_made_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    await begun(stage)
    asked = messages(stage)["cancel tasks"]
    plan = await foresee(stage.handlers, stage.graph_id, asked)
    tries: list[int] = []

    async def once(*args: Any) -> Foreseen:
        tries.append(1)
        if len(tries) == 1:
            raise error
        return await foresee(*args)

    monkeypatch.setattr(requests, "foresee", once)
    assert (await request(stage, asked, plan))["state"] == "done"
    assert len(tries) == 2
