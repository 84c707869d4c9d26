"""Workers elsewhere: what they are given, what they report, and how long they hold it, each by the claim of a run."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import document_from_object
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput, Refused
from taskgraph.model.flag import Flag
from taskgraph.model.messages import Cancel
from taskgraph.queries import targets, workers
from taskgraph.queries.targets import GATES
from taskgraph.storage.memory import MemoryLogs
from taskgraph.storage.signals.wakeup import Wakeup
from taskgraph.storage.tables import Range, query_all
from taskgraph.worker.executors import Outcome
from taskgraph.worker.gateway import Answered, Assignment, Gateway, Report, Returned, RunClaim, Wanted
from tests.scenarios.stage import Stage, graph


def gateway(stage: Stage) -> Gateway:
    return Gateway(stage.handlers, stage.poison, MemoryLogs(), Wakeup(), "1.0")


def done(one: Assignment, result: bytes | None = None) -> Report:
    return Report(one.claim, Outcome(failed=False, result=result))


def of(**nodes: Mapping[str, Any]) -> GraphDocument:
    return document_from_object({"tasks": dict(nodes)})


async def report(on: Gateway, *reports: Report) -> list[str]:
    """Why each was not taken, "" if it was."""
    return [each.stale for each in await on.report(reports)]


async def test_a_graph_is_run(local: Stage) -> None:
    takes = {"payload": {"n": {"$result": "a"}}}
    await local.submit(of(a={"task": {}}, b={"requires": ["a"], "task": takes}))
    on = gateway(local)
    (a,) = await on.claim(Wanted("w-1", slots=3))
    assert (a.label, a.claim.run, a.definition) == ("a", 0, {})
    row = (await local.row("a")).columns
    assert (row["state"], row["worker"], row["claim"]) == ("running", "w-1", a.claim.claim)
    assert row["leaseUntil"] >= a.lease_until
    assert RunClaim.read(str(a.claim)) == a.claim
    assert await on.claim(Wanted("w-2")) == []
    assert await report(on, done(a, b'{"x": 1}')) == [""]
    (b,) = await on.claim(Wanted("w-2"))
    assert b.definition == {"payload": {"n": {"x": 1}}}
    assert await report(on, done(b)) == [""]
    assert await local.state() == "finished"
    assert await local.queues.count(local.names.work("default")) == 0  # gone with the claims


async def test_what_there_is_no_slot_for_is_for_others(local: Stage) -> None:
    await local.submit(graph({f"t{number}": [] for number in range(20)}))
    on = gateway(local)
    first = await on.claim(Wanted("w-1", slots=3))
    second = await on.claim(Wanted("w-2", slots=50))
    assert len(first) == 3
    assert len({one.label for one in (*first, *second)}) == len(first) + len(second)
    rest = len(second)
    while more := await on.claim(Wanted("w-2", slots=50)):
        rest += len(more)
    assert rest == 17
    assert {local.label(one.claim.task_id) for one in first} == {one.label for one in first}


@pytest.mark.parametrize(
    ("ended", "state", "spent"),
    [
        (Outcome(failed=True, reason="broke", exit_code=3), "pending", {"rerunsLeft": 0}),
        (Outcome(failed=True, reason="later", temporary=True, retry_after=9.0), "pending", {"temporaryFailures": 1}),
        (Outcome(failed=True, reason="no such thing", exception=True), "exception", {"rerunsLeft": 1}),
        (Returned("stopped"), "pending", {"rerunsLeft": 1, "handBacks": 1, "retriesLeft": limits.RETRIES_DEFAULT}),
        (Returned("no disk", broken=True), "pending", {"retriesLeft": limits.RETRIES_DEFAULT - 1}),
        (Outcome(failed=False), "completed", {"rerunsLeft": 1}),
    ],
)
async def test_each_end_of_a_run_and_the_same_again(
    local: Stage, ended: Outcome | Returned, state: str, spent: Mapping[str, int]
) -> None:
    await local.submit(graph({"a": []}, reruns={"a": 1}))
    on = gateway(local)
    (a,) = await on.claim(Wanted("w"))
    for each in (on, gateway(local), on):  # also by another process, and by one that has lost its memory
        assert await report(each, Report(a.claim, ended)) == [""]
        row = (await local.row("a")).columns
        assert row["state"] == state
        assert {name: row[name] for name in spent} == spent
        assert row["run"] == (1 if state == "pending" else 0)


async def test_a_claim_that_holds_no_more(local: Stage) -> None:
    await local.submit(graph({"a": []}))
    on = gateway(local)
    (a,) = await on.claim(Wanted("w", lease_seconds=20))
    local.clock.advance(21)
    await local.sweep()
    (again,) = await on.claim(Wanted("w"))
    assert again.claim.run == 1
    assert await report(on, done(a)) == ["run 0 is over: the task is running in run 1"]
    (renewed,) = await on.renew([a.claim])
    assert renewed.stale == "the task is running in run 1"
    with pytest.raises(Refused):
        await on.log(a.claim, b"late")
    assert await report(on, done(again)) == [""]
    assert await report(on, Report(replace(again.claim, graph_id="other"), Outcome(failed=False))) != [""]


@pytest.mark.parametrize(
    "text", ["", "a.b", "g.x.0.c", "g.AAAAAAAAAAAAAAAAAAAAAA.-1.c", "g/.AAAAAAAAAAAAAAAAAAAAAA.1.c"]
)
def test_what_is_no_claim(text: str) -> None:
    with pytest.raises(InvalidInput, match="no claim of a run"):
        RunClaim.read(text)


async def test_a_renewal(local: Stage) -> None:
    """Keeps the length of the lease, and says when the run is to be stopped."""
    await local.submit(graph({"a": []}))
    on = gateway(local)
    (a,) = await on.claim(Wanted("w", lease_seconds=6 * 3600.0))
    local.clock.advance(6 * 3600.0 - 5)
    await local.sweep()  # which goes by the lease of the run
    now = local.clock.now()
    (renewed,) = await gateway(local).renew([a.claim])
    assert renewed == Answered(a.claim, lease_until=now + timedelta(hours=6))
    assert (await local.row("a")).columns["leaseUntil"] == now + timedelta(hours=6)
    (shorter,) = await on.renew([a.claim], 30)
    assert shorter.lease_until == local.clock.now() + timedelta(seconds=30)
    await local.deliver(Cancel(local.graph_id, reason="no use"))
    (marked,) = await on.renew([a.claim])
    assert (marked.stale, marked.cancel) == ("", "no use")
    assert await report(on, Report(a.claim, Returned("stopped"))) == [""]
    assert await local.state() == "cancelled"


async def test_a_run_that_is_named(local: Stage) -> None:
    """It has the definition that stands on its row, and an earlier run of its worker is over."""
    await local.submit(graph({"a": []}, reruns={"a": 1}))
    await local.edit({"update": {"a": {"task": {"payload": {"command": ["true"]}}}}})
    on, named = gateway(local), (local.graph_id, local.task_id("a"))
    first = await on.claim_run(Wanted("w"), *named, 0)
    assert first.lease_until is not None
    assert (await on.claim_run(Wanted("x"), *named, 0)).stale == "the task is running in run 0"
    assert await report(on, Report(first.claim, Outcome(failed=True, reason="broke"))) == [""]
    second = await on.claim_run(Wanted("w"), *named, 1)
    assert second.lease_until is not None
    assert (await on.claim_run(Wanted("w"), *named, 0)).stale == "the task is running in run 1"
    assert (await on.claim_run(Wanted("w"), *named, 1)).claim == second.claim
    assert (await on.claim_run(Wanted("w"), local.graph_id, local.task_id("none"), 0)).stale == "there is no such task"
    assert await report(on, Report(second.claim, Outcome(failed=False))) == [""]
    assert await local.state() == "finished"


async def test_paused_targets_and_labels(local: Stage) -> None:
    await local.submit(of(a={"task": {"workerLabels": ["gpu"]}}, b={"task": {"payload": {"outputs": ["x"]}}}))
    on = gateway(local)
    assert await on.claim(Wanted("plain", slots=2)) == []
    assert "lacks the label gpu" in (await local.row("a")).columns["refusal"]
    assert "workers over HTTP keep no files" in (await local.row("b")).columns["refusal"]
    local.clock.advance(11)
    await targets.close(local.tables, "default", local.clock.now())
    assert await on.claim(Wanted("able", labels=["gpu", "x"])) == []
    await targets.reopen(local.tables, "default")
    local.clock.advance(limits.GATE_SECONDS + 1)
    (a,) = await on.claim(Wanted("able", labels=["gpu", "x"], slots=2))
    assert a.label == "a"


async def test_limited_targets(local: Stage) -> None:
    """A permit goes with each run, whichever process it is renewed by, or reported to."""
    await targets.limit_target(local.tables, "default", 2, local.clock.now())
    await local.submit(graph({f"t{number}": [] for number in range(5)}))
    on = gateway(local)
    ones = [*await on.claim(Wanted("w-1", slots=4)), *await gateway(local).claim(Wanted("w-2", slots=4))]
    assert len(ones) == 2
    held = [row.columns["token"] for row in await query_all(local.tables, GATES, Range("permit:", "permit;"))]
    assert sorted(held) == sorted(one.claim.claim for one in ones)
    local.clock.advance(50)
    other = gateway(local)
    assert [each.stale for each in await other.renew([one.claim for one in ones])] == ["", ""]
    local.clock.advance(50)
    assert await on.claim(Wanted("w-3")) == [], "the permits were renewed too"
    assert await report(other, done(ones[0])) == [""]
    local.clock.advance(limits.GATE_SECONDS + 1)
    (third,) = await on.claim(Wanted("w-3", slots=2))
    assert third.label not in {one.label for one in ones}
    # Its lease has ended, and so has its permit, which another run has by now: it goes back.
    local.clock.advance(limits.LEASE_SECONDS * 4 / 3 + 1)
    more = await on.claim(Wanted("w-4", slots=5))
    assert len(more) == 2
    (late,) = await on.renew([third.claim])
    assert late.stale == "the permit of its target was not renewed in time"
    assert (await local.row(third.label)).columns["run"] == 1


async def test_a_run_that_was_begun_before_its_target_was_limited(local: Stage) -> None:
    await local.submit(graph({"a": [], "b": []}))
    on = gateway(local)
    ones = await on.claim(Wanted("w", slots=2))
    await targets.limit_target(local.tables, "default", 1, local.clock.now())
    local.clock.advance(limits.GATE_SECONDS + 1)
    assert [each.stale for each in await on.renew([one.claim for one in ones])] == ["", ""]
    assert await report(on, *map(done, ones)) == ["", ""]
    assert await local.state() == "finished"


async def test_the_registry(local: Stage) -> None:
    await local.submit(graph({"a": [], "b": []}))
    on = gateway(local)
    (a,) = await on.claim(Wanted("gpu-7", labels=["cuda"], token="t"))
    (one,) = await workers.workers(local.tables, local.clock.now())
    assert (one.busy, one.slots, one.running) == (1, 1, [{"graph": local.graph_id, "label": a.label}])
    local.clock.advance(3)
    await on.claim(Wanted("gpu-7", "other", labels=["cuda"], slots=2))
    (one,) = await workers.workers(local.tables, local.clock.now())
    assert (one.name, one.state, one.busy, one.slots) == ("gpu-7", "active", 1, 3)
    assert (list(one.targets), list(one.labels), list(one.executors)) == (["default", "other"], ["cuda"], ["http"])
    assert on.crew.in_hand("t") == 1
    await workers.ask(local.tables, "gpu-7", draining=workers.NOW, exits=True)
    local.clock.advance(limits.WORKER_SEEN_SECONDS)
    assert await on.claim(Wanted("gpu-7")) == []
    assert on.crew.draining("gpu-7") == ("now", True)
    assert await report(on, Report(a.claim, Returned("drained"))) == [""]
    assert on.crew.in_hand("t") == 0
    await workers.ask(local.tables, "gpu-7", draining="", exits=False)
    local.clock.advance(limits.WORKER_SEEN_SECONDS)
    assert len(await on.claim(Wanted("gpu-7", slots=2))) == 2
    assert on.crew.draining("gpu-7") == ("", False)


async def test_the_log_of_a_run(local: Stage) -> None:
    await local.submit(graph({"a": []}))
    on = gateway(local)
    (a,) = await on.claim(Wanted("w"))
    assert await on.log(a.claim, b"one\n") == 4
    assert await on.log(a.claim, b"one\ntwo\n", 0) == 8, "the whole again, which has grown"
    assert await on.log(a.claim, b"two\n", 4) == 8, "a repeat adds nothing"
    assert await on.log(a.claim, b"three\n", 8) == 14
    with pytest.raises(InvalidInput, match="leave a gap"):
        await on.log(a.claim, b"x", 99)
    assert await on.logs.read(a.claim.graph_id, a.claim.task_id, 0) == b"one\ntwo\nthree\n"


async def test_results_that_cannot_be_taken(local: Stage) -> None:
    takes = {"payload": {"n": {"$result": "a", "path": "/none"}}}
    await local.submit(of(a={"task": {}}, b={"requires": ["a"], "task": takes}))
    on = gateway(local)
    (a,) = await on.claim(Wanted("w"))
    await report(on, done(a, b"{}"))
    assert await on.claim(Wanted("w")) == []
    assert (await local.row("b")).columns["state"] == "exception"


async def test_a_worker_waits_for_work(local: Stage) -> None:
    on = gateway(local)
    until = local.clock.monotonic() + 5
    waiting = [asyncio.create_task(on.claim(Wanted(f"w-{number}"), until=until)) for number in range(3)]
    gone = Flag()
    left = asyncio.create_task(on.claim(Wanted("left"), until=until, gone=gone))
    await asyncio.sleep(0.05)
    gone.set()
    assert await asyncio.wait_for(left, 2) == []
    await local.submit(graph({"a": [], "b": []}))
    on.wakeup.notify(local.names.work("default"), 2)
    finished, _ = await asyncio.wait(waiting, timeout=0.5)
    local.clock.advance(6)
    on.wakeup.notify(local.names.work("default"))
    found = [one.label for each in await asyncio.gather(*waiting) for one in each]
    assert sorted(found) == ["a", "b"]
    assert len(finished) >= 2
