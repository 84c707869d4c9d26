"""The arithmetic of the model, by figures that can be worked out by hand, and where its figures come from."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.bench.shapes import chain, fan, layers, tree
from tests.capacity.model import (
    ACCOUNT,
    PARTITION,
    PATH,
    Demand,
    Latencies,
    Limits,
    Prices,
    graphs_to_fill,
    money,
    predict,
    run_seconds,
    running_at,
)
from tests.capacity.sources import NoFigures, demand_of, demands_of, levels_of, read_kept, step_seconds

DEMAND = Demand(
    name="a task",
    tasks=1000,
    table_requests=2.0,
    queue_requests=3.0,
    entities=8.0,
    messages={"events": 1.0, "work": 4.0},
    facts=0.5,
    levels=10,
    step_seconds=0.1,
    submit_entities=1.5,
    submit_requests=0.5,
    stored_bytes=500.0,
)


def test_what_binds_is_the_least_of_all_bounds() -> None:
    found = predict(DEMAND, Limits(), Latencies(commit=0.010))
    assert found.graph_bounds == {
        PARTITION: 250,  # 2,000 rows by 8
        "journal": 200,  # a commit of 10 ms for two tasks
        PATH: 1000,  # a thousand tasks in ten steps of 0.1 s
        ACCOUNT: 4000,  # 20,000 requests by 5
        "queue events": 2000,
        "queue work": 500,
    }
    assert (found.graph_binds, found.graph) == ("journal", 200)
    assert (found.account_binds, found.account, found.account_alone) == ("queue work", 500, 4000)
    assert found.graphs == 20, "4,000 by 200"
    assert found.queues == {"events": 2, "work": 8}
    assert found.throttled_graph == 250, "the journal makes wait, and the partition refuses"
    assert found.submit_seconds == 0.75
    assert predict(DEMAND, accounts=7).all_accounts == 3500


def test_what_is_not_known_bounds_nothing() -> None:
    bare = Demand("bare", tasks=10, table_requests=1.0, queue_requests=0.0, entities=2.0)
    found = predict(bare)
    assert set(found.graph_bounds) == {PARTITION, ACCOUNT}
    assert (found.graph, found.account) == (1000, 20_000)
    assert "stored" not in found.money


def test_a_finite_run_has_a_burst_for_nothing() -> None:
    limits = Limits(partition_entities=100, account_requests=1e9, queue_messages=1e9, burst_seconds=2.0)
    assert run_seconds(DEMAND, limits, Latencies()) == (PARTITION, 78.0)  # 8,000 rows, 200 of them at once
    assert run_seconds(DEMAND, limits, Latencies(), offered=10.0) == ("offered", 100.0)
    account = Limits(partition_entities=1e9, account_requests=50, queue_messages=1e9, burst_seconds=0.0)
    assert run_seconds(DEMAND, account, Latencies(), graphs=3) == (ACCOUNT, 300.0)
    binds, seconds = run_seconds(DEMAND, Limits(1e9, 1e9, 1e9), Latencies(commit=0.001))
    assert binds == PATH
    assert seconds == pytest.approx(1.0)


def test_graphs_that_fill_an_account() -> None:
    assert graphs_to_fill(1000, 250) == 4
    assert graphs_to_fill(1001, 250) == 5
    assert graphs_to_fill(100, 250) == 1
    assert running_at(250, 60) == 15_000


def test_a_million_tasks_in_money() -> None:
    prices = Prices(table_requests=0.01, queue_requests=0.1, blob_requests=1.0, table_gigabyte_month=2.0)
    found = money(DEMAND, prices, months=3)
    assert found == {
        "tables": pytest.approx(2.5),  # 2.5 million requests with the submission's
        "queues": pytest.approx(30),
        "blobs": 0,
        "stored": pytest.approx(6),  # 500 bytes in UTF-16: a gigabyte, for three months
        "total": pytest.approx(38.5),
    }
    assert "to be checked" in (Prices.__doc__ or "").lower()
    assert "check them" in prices.source


@pytest.mark.parametrize(
    ("graph", "levels"),
    [(chain(200), 200), (fan(50), 3), (layers(7, 4), 7), (tree(1023), 10), ({}, 0), (chain(20_000), 20_000)],
)
def test_the_longest_path(graph: dict[str, list[str]], levels: int) -> None:
    assert levels_of(graph) == levels


def figures(**more: Any) -> dict[str, Any]:
    """What a benchmark might have kept of one cell."""
    kinds = {
        "get": 4.0,
        "commit": 1.0,
        "query": 0.5,
        "send": 1.0,
        "receive": 0.5,
        "delete": 1.0,
        "renew": 0.2,
        "log": 2.0,
    }
    return {
        "tasks": 100,
        "operationsPerTaskByKind": kinds,
        "callsPerTask": 6.7,
        "rowsReadPerTask": 5.0,
        "rowsWrittenPerTask": 3.0,
        "emptyPollsPerTask": 0.25,
        "submissionOperationsPerTask": 0.1,
        "rowsSubmittedPerTask": 1.2,
        "bytesWrittenPerTask": 900.0,
        "rowsWrittenPerTaskByRow": {"task": 2.5, "event": 0.5},
        "operationsPerTaskByPlace": {
            "consumer: consumer.acknowledge delete": 0.25,
            "worker: worker._release delete": 0.75,
            "worker: worker._report send": 0.5,
        },
        **more,
    }


def test_a_demand_is_what_was_counted() -> None:
    found = demand_of("chain-100/azurite/noop/1h1w", figures())
    assert (found.table_requests, found.queue_requests, found.blob_requests) == (5.5, 2.7, 2.0)
    assert (found.entities, found.facts, found.empty_requests) == (8.0, 0.5, 0.25)
    # Put, received, deleted or renewed: 3.2 messages, a quarter of them where consumers delete.
    assert found.messages == {"events": pytest.approx(0.8), "work": pytest.approx(2.4)}
    assert (found.submit_requests, found.submit_entities, found.stored_bytes) == (0.1, 1.2, 900.0)
    without = demand_of("x", figures(operationsPerTaskByPlace=None, rowsWrittenPerTaskByRow=None))
    assert without.messages == {"events": pytest.approx(1.6), "work": pytest.approx(1.6)}
    assert without.facts is None


def test_an_unknown_kind_is_a_request_to_a_queue() -> None:
    """The dearer guess: a port's new method must not vanish from the prediction."""
    kinds = {**figures()["operationsPerTaskByKind"], "peek": 1.0}
    assert demand_of("x", figures(operationsPerTaskByKind=kinds)).queue_requests == pytest.approx(3.7)


def test_a_step_is_the_calls_that_somebody_waits_for() -> None:
    latencies = Latencies(read=0.1, commit=1.0, queue=10.0, blob=100.0, pickup=1000.0)
    # 6.7 calls, 5.2 of them of other kinds: 1.5 calls carry the five requests of gets and sends.
    step = step_seconds(figures(), latencies, local=True)
    assert step == pytest.approx(0.3 * (4 * 0.1 + 1 * 10) + 1.0 + 0.5 * 0.1 + 0.5 * 10)
    assert step_seconds(figures(), latencies, local=False) == pytest.approx(step + 1000)


def test_paths_are_known_beside_a_chain() -> None:
    medians: Mapping[str, Any] = {
        "chain-100/azurite/noop/1h1w": figures(),
        "layers-5x20/azurite/noop/1h1w": figures(),
        "fan-98/azurite/noop/local": figures(),
        "some-file/azurite/noop/1h1w": figures(),
    }
    one, several, elsewhere, file = demands_of(medians, Latencies(), None)
    assert (one.levels, several.levels) == (100, 5)
    assert one.step_seconds == several.step_seconds == step_seconds(figures(), Latencies(), local=False)
    assert (elsewhere.levels, file.levels) == (None, None)
    assert [each.step_seconds for each in demands_of(medians, Latencies(), 0.5)] == [0.5, 0.5, 0.5, None]


def test_a_kept_benchmark_is_read_by_name(tmp_path: Path) -> None:
    kept = {"began": "then", "versions": {"taskgraph": "abc"}, "medians": {"this": {"chain-5/a/b/local": figures()}}}
    (tmp_path / "here.json").write_text(json.dumps(kept))
    found = read_kept("here", tmp_path)
    assert found == {"medians": kept["medians"]["this"], "began": "then", "versions": {"taskgraph": "abc"}}  # type: ignore[index]
    assert read_kept(str(tmp_path / "here.json"), Path("nowhere")) == found
    with pytest.raises(NoFigures, match="kept benchmarks: here"):
        read_kept("there", tmp_path)
    for text in ("{", "[]", '{"medians": {"this": {}}}', '{"medians": {"this": {"idle/a/b/c": {}}}}'):
        (tmp_path / "broken.json").write_text(text)
        with pytest.raises(NoFigures):
            read_kept("broken", tmp_path)
