"""A run reaches every race and every branch that catches a storage error, or fails and names what it missed.

The run is one process of its own, about half a minute, because the counters come before the first import of taskgraph.
`scripts/simulate --reach` prints its tables.
"""

import json
import os
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation import branches, reach
from tests.simulation.branches import ROOT, Taken
from tests.simulation.races import ALL_IDS, BESIDE, ELSEWHERE, RACES

STRICT = (sys.executable, "-X", "dev", "-W", "error")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


# --- the run itself --------------------------------------------------------------------------------------------


@pytest.mark.campaign
def test_a_run_reaches_every_race_and_every_branch() -> None:
    done = run(*STRICT, "-m", "tests.simulation.reach", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    counts = json.loads(done.stdout)
    assert counts["scenes"] > 1_000
    assert all(counts["met"][race] for race in {**RACES, **BESIDE})


@pytest.mark.slow
def test_what_is_reached_elsewhere_is_reached_there(tmp_path: Path) -> None:
    """The tests that are named for the other branches do take them."""
    found = [branch for branch in branches.branches() if reach.elsewhere(branch)]
    taken = Taken()
    file = tmp_path / "taken.json"
    tests = sorted({test for place in reach.ELSEWHERE for test in place.tests})
    pytest_ = (sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "tests.simulation.counting")
    done = run(*pytest_, *tests, TASKGRAPH_TEST_TAKEN=str(file))
    assert done.returncode == 0, done.stdout
    counts = json.loads(file.read_text("utf-8"))
    taken.add(counts["classes"], counts["times"])
    missed = [branch for branch in found if branch.mark != reach.TWO_PROCESSES and taken.missed(branch)]
    assert [f"{branch.id} (line {branch.line}) never caught {taken.missed(branch)}" for branch in missed] == []


# --- the lists -------------------------------------------------------------------------------------------------


def test_every_race_of_the_list_is_placed_once() -> None:
    counted = {race.split()[0] for race in {**RACES, **BESIDE}}
    assert counted | set(ELSEWHERE) == set(ALL_IDS)
    assert counted & set(ELSEWHERE) == set()
    assert not set(RACES) & set(BESIDE)


def test_tests_that_are_named_exist() -> None:
    named = {test for other in ELSEWHERE.values() for test in other.tests}
    named |= {test for place in reach.ELSEWHERE for test in place.tests}
    assert [test for test in sorted(named) if not reach.exists(test)] == []
    assert not reach.exists("tests/simulation/test_reach.py::test_that_nobody_wrote")


def test_only_what_is_not_built_or_not_applicable_has_no_test() -> None:
    bare = [race for race, other in ELSEWHERE.items() if not other.tests]
    assert [race for race in bare if not ELSEWHERE[race].because.startswith(("not built", "not applicable"))] == []


def test_every_place_of_other_branches_holds_some() -> None:
    places = {reach.elsewhere(branch) for branch in branches.branches()}
    assert [place.name for place in reach.ELSEWHERE if place not in places] == []
    assert len({place.name for place in reach.ELSEWHERE}) == len(reach.ELSEWHERE)


def test_every_comment_names_a_place_and_stands_at_a_branch() -> None:
    names = {place.name for place in reach.ELSEWHERE}
    assert [mark for mark in branches.marks() if mark.rpartition(" ")[2] not in names] == []
    at_branches = {
        f"{branch.module.replace('.', '/')}.py:{branch.line}: {branch.mark}"
        for branch in branches.branches()
        if branch.mark
    }
    assert [mark for mark in branches.marks() if mark not in at_branches] == []


# --- it can fail -----------------------------------------------------------------------------------------------

FAKE = """
import contextlib
from errors_of_fake import Conflict, StorageUnavailable

async def one(call):
    try:
        await call()
    except (Conflict, StorageUnavailable):
        return "caught"
    except ValueError:
        return "no error of storage"

async def two(call):
    with contextlib.suppress(StorageUnavailable):
        await call()

def three(work):
    try:
        return work()
    except Exception:
        return "nothing is awaited here"

async def four(call):
    try:
        return await call()
    except Exception:
        return "whatever it is"
"""

USE = """
import asyncio
from pathlib import Path
from tests.simulation import branches, reach

branches.install("fake")
import fake.module
from errors_of_fake import Conflict, StorageUnavailable

async def fails(error):
    raise error

assert asyncio.run(fake.module.one(lambda: fails(Conflict()))) == "caught"
asyncio.run(fake.module.two(lambda: fails(StorageUnavailable())))
for missed in reach.branches_missed(branches.branches(Path("fake").resolve()), branches.TAKEN):
    print(missed)
"""


def test_a_new_branch_appears_by_itself_and_is_missed(tmp_path: Path) -> None:
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "__init__.py").touch()
    (tmp_path / "fake" / "module.py").write_text(FAKE, "utf-8")
    errors = "class Conflict(Exception): ...\nclass StorageUnavailable(Exception): ...\n"
    (tmp_path / "errors_of_fake.py").write_text(errors, "utf-8")
    done = subprocess.run(
        [*STRICT, "-c", USE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "branch fake.module one: except Conflict, StorageUnavailable (line 8) never caught StorageUnavailable",
        "branch fake.module four: except Exception (line 26) never caught Exception",
    ]


def test_a_race_that_nobody_met_is_named() -> None:
    met = Counter(dict.fromkeys([*RACES, *BESIDE], 1))
    fake = {**RACES, "R99": "somebody saw what nobody can see"}
    assert reach.races_missed(met, fake) == ["race R99: somebody saw what nobody can see"]
    met["R01"] = 0
    assert [each.split(":")[0] for each in reach.races_missed(met, RACES)] == ["race R01"]


def test_a_run_that_played_nothing_fails_for_everything() -> None:
    missed = reach.failures(reach.Reached(violations=["x"], slips=["y"]))
    assert missed[:2] == ["violation: x", "nobody saw: y"]
    here = [branch for branch in branches.branches() if reach.elsewhere(branch) is None]
    assert len(missed) == 2 + len(RACES) + len(BESIDE) + len(here)


def test_a_coroutine_that_nobody_awaits_fails_the_run() -> None:
    script = """
        import gc
        from tests.simulation import reach

        async def forgotten(): ...

        slips = []
        reach.listen(slips)
        forgotten()
        gc.collect()
        print(reach.failures(reach.Reached(slips=slips))[0])
    """
    done = run(*STRICT, "-c", textwrap.dedent(script))
    assert done.stderr == ""
    assert done.stdout.startswith("nobody saw:")
    assert "was never awaited" in done.stdout
