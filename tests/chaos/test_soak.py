"""A small soak: half a minute under fire with short leases, and then everything must be at rest and right."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.azurite import VARIABLE
from tests.chaos.checker import Verdict
from tests.chaos.processes import ROOT
from tests.chaos.report import as_json, as_markdown, percentiles
from tests.chaos.soak import Options, soak

SMALL = Options(
    minutes=0.5,
    graphs=12,
    tasks=150,
    kill_every=1.0,
    stop_every=8.0,
    workers=3,
    lease_seconds=10.0,
    sweep_seconds=3.0,
    patience_seconds=300.0,  # the machine may be busy with other things
)


@pytest.mark.campaign
@pytest.mark.azurite
async def test_a_small_soak_loses_nothing(azurite: str, tmp_path: Path) -> None:
    verdict, fire = await soak(SMALL, azurite, tmp_path / "soak")
    report = as_markdown(verdict, SMALL, fire)
    print(report)
    assert verdict.good, report
    assert verdict.graphs >= 12
    assert verdict.tasks >= 150  # extensions that came too late are refused
    assert verdict.kills.total() >= 20
    assert verdict.poison == 0
    told = json.loads(as_json(verdict, SMALL, fire))
    assert told["good"]
    assert told["counts"]["lost"] == told["stuck"] == told["unjustified"] == 0


@pytest.mark.campaign
@pytest.mark.azurite
def test_a_soak_that_is_interrupted_ends_its_processes(azurite: str, tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "tests.chaos.soak",
        "--graphs",
        "30",
        "--tasks",
        "300",
        "--folder",
        str(tmp_path / "s"),
    ]
    child = subprocess.Popen(
        words, cwd=ROOT, env={**os.environ, VARIABLE: azurite}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    record = tmp_path / "s" / "round-1" / "requests.jsonl"
    deadline = time.monotonic() + 60
    while not record.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    child.send_signal(signal.SIGTERM)
    told, _ = child.communicate(timeout=60)  # its pipe is closed once the last of its processes has ended
    assert child.returncode == 130, told
    assert b"interrupted" in told


def test_a_report_tells_what_is_wrong() -> None:
    verdict = Verdict(graphs=2, tasks=9, lost=["“a” is gone"], stuck=["g1"])
    report = as_markdown(verdict, Options(), 60.0)
    assert "NOT well" in report
    assert "- “a” is gone" in report
    assert "graph g1 was not at rest within 180 s" in report
    assert not json.loads(as_json(verdict, Options(), 60.0))["good"]


def test_percentiles_are_by_rank() -> None:
    assert percentiles([float(n) for n in range(1, 101)]) == {"count": 100, "p50": 50.0, "p99": 99.0, "max": 100.0}
    assert percentiles([]) == {"count": 0, "p50": None, "p99": None, "max": None}
