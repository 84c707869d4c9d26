"""Run the tests against every mutant: collect once, fork for each mutant, stop at the first test that fails.

What this room is for: speed. pytest collects in this process, which never runs a test itself. A fork plays all tests
once and tells which lines each of them reaches. Then each mutant gets a fork of its own, in which the code of one
function is exchanged and only those tests run that reach the changed statement: first those that have killed its
neighbours, and the short ones before the long ones. No file is changed, so what is under test is the checkout itself.

A test has 20 times its usual CPU time, and at least 2 s; a mutant that takes longer counts as killed by the clock.
"""

import gc
import hashlib
import importlib
import json
import os
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NoReturn

import pytest

from tests.mutation.mutants import Mutant

KILLED, SURVIVED, TIMEOUT, UNREACHED = "killed", "survived", "timeout", "unreached"
ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "taskgraph"
MEMORY_BYTES_MAX = 3 << 30  # a mutant may append for ever
SLOW_SECONDS = 120.0  # wall clock of one test, over its usual time: for those that wait for ever, on a busy machine


@dataclass
class Results:
    """What became of the mutants. killers: test -> mutants that it was the first to kill."""

    outcome: dict[Mutant, str] = field(default_factory=dict)
    by: dict[Mutant, str] = field(default_factory=dict)
    killers: Counter[str] = field(default_factory=Counter)
    tests: int = 0
    seconds: float = 0.0


@dataclass
class Coverage:
    """What each test reaches, as (module, line) -> tests; and how long each takes, in seconds of CPU."""

    reached: dict[tuple[str, int], set[str]]
    seconds: dict[str, float]


def run(
    mutants: Sequence[Mutant],
    arguments: Sequence[str],
    *,
    processes: int,
    budget: float,
    tell: Callable[[Results], None],
) -> Results:
    """Run pytest's tests (as its arguments select them) against all of these mutants.

    budget: CPU seconds of tests that one mutant may survive; what is left of its tests is not run.
    """
    loop = _Loop(mutants, processes, budget, tell)
    options = ["-s", "-qqq", "--no-header", "--no-summary", "--tb=no", "-p", "no:cacheprovider", *arguments]
    code = pytest.main(options, plugins=[loop])
    if loop.error or code != 0:
        raise SystemExit(loop.error or f"pytest could not collect the tests (exit code {code})")
    return loop.results


class _Loop:
    def __init__(
        self, mutants: Sequence[Mutant], processes: int, budget: float, tell: Callable[[Results], None]
    ) -> None:
        self.mutants = mutants
        self.budget = budget
        self.processes = processes
        self.tell = tell
        self.results = Results()
        self.error = ""
        self._kills: dict[str, Counter[str]] = defaultdict(Counter)

    def pytest_configure(self) -> None:
        import hypothesis  # not before pytest has made its tests ready to be rewritten

        # The same examples each time, none remembered, and no search for a smaller one: any failure kills.
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutation", derandomize=True, database=None, phases=phases)
        hypothesis.settings.load_profile("mutation")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.error = f"{report.nodeid} cannot be collected: {report.longrepr}"

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if self.error:
            return True
        began = time.monotonic()
        items = {item.nodeid: item for item in session.items}
        self.results.tests = len(items)
        coverage = self._coverage(list(items.values()))
        if coverage is not None:
            self._mutate(items, coverage)
        self.results.seconds = time.monotonic() - began
        return True

    def _coverage(self, items: list[pytest.Item]) -> Coverage | None:
        """What is known of each test file is kept, until it or anything that it may import has changed."""
        kept_at = default_folder() / "coverage.json"
        kept = json.loads(kept_at.read_text()) if kept_at.exists() else {}
        stamps = _stamps({item.path for item in items})
        wanted: dict[Path, set[str]] = defaultdict(set)
        for item in items:
            wanted[item.path].add(item.nodeid)
        known = {str(path): kept[stamp] for path, stamp in stamps.items() if kept.get(stamp, {}).keys() == wanted[path]}
        fresh = [item for item in items if str(item.path) not in known]
        if fresh:
            found = self._play_in_a_fork(fresh)
            if "failed" in found:
                self.error = f"the tests must pass before anything is changed: {found['failed']}"
                return None
            known.update(found)
            kept_at.parent.mkdir(parents=True, exist_ok=True)
            kept_at.write_text(json.dumps({stamp: known[str(path)] for path, stamp in stamps.items()}))
        coverage = Coverage(defaultdict(set), {})
        for tests in known.values():
            for test, (seconds, lines) in tests.items():
                coverage.seconds[test] = seconds
                for module, line in lines:
                    coverage.reached[module, line].add(test)
        return coverage

    def _play_in_a_fork(self, items: list[pytest.Item]) -> dict[str, Any]:
        files = {str(path): ".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py")}
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _quiet()
            _play_and_tell(items, files, writer)
        os.close(writer)
        with os.fdopen(reader) as stream:
            found: dict[str, Any] = json.loads(stream.read() or '{"failed": "the clean run died"}')
        os.waitpid(pid, 0)
        return found

    def _mutate(self, items: dict[str, pytest.Item], coverage: Coverage) -> None:
        for mutant in self.mutants:
            importlib.import_module(f"taskgraph.{mutant.module}")
        gc.collect()
        gc.freeze()  # pages that no fork's collector touches are never copied
        waiting = list(reversed(self.mutants))
        running: dict[int, tuple[Mutant, int]] = {}
        while waiting or running:
            while waiting and len(running) < self.processes:
                mutant = waiting.pop()
                chosen = self._order(mutant, coverage)
                if not chosen:
                    self.results.outcome[mutant] = UNREACHED
                    continue
                reader, writer = os.pipe()
                pid = os.fork()
                if pid == 0:
                    os.close(reader)
                    _quiet()
                    _hunt(mutant, [items[each] for each in chosen], coverage.seconds, writer)
                os.close(writer)
                running[pid] = mutant, reader
            if not running:
                break
            pid, status = os.wait()
            mutant, reader = running.pop(pid)
            with os.fdopen(reader) as stream:
                last = stream.read().split("\n")[-1]
            self._record(mutant, status, last)

    def _record(self, mutant: Mutant, status: int, test: str) -> None:
        if os.WIFSIGNALED(status):
            stopped = os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM, signal.SIGKILL)
            outcome = TIMEOUT if stopped else KILLED
        else:
            outcome = SURVIVED if os.WEXITSTATUS(status) == 0 else KILLED
        self.results.outcome[mutant] = outcome
        if outcome != SURVIVED:
            self.results.by[mutant] = test
            self.results.killers[test] += 1
            self._kills[mutant.place][test] += 1
        self.tell(self.results)

    def _order(self, mutant: Mutant, coverage: Coverage) -> list[str]:
        reached = set().union(*(coverage.reached.get((mutant.module, line), ()) for line in mutant.lines))
        kills, all_kills = self._kills[mutant.place], self.results.killers

        def cost(test: str) -> tuple[float, str]:
            return (0.002 + coverage.seconds[test]) / (1 + 20 * kills[test] + min(all_kills[test], 20)), test

        chosen: list[str] = []
        left = self.budget
        for test in sorted(reached, key=cost):
            left -= coverage.seconds[test]
            if left < 0 and chosen:
                break
            chosen.append(test)
        return chosen


def _quiet() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


def _play(item: pytest.Item, following: pytest.Item | None) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


class _Failed:
    """Calls back at the first report of a failure, of setup and teardown too."""

    def __init__(self, failed: Callable[[pytest.TestReport], None]) -> None:
        self._failed = failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed(report)


def _play_and_tell(items: list[pytest.Item], files: dict[str, str], writer: int) -> NoReturn:
    """In a fork: play all tests with nothing changed, watched line by line."""
    told: dict[str, dict[str, tuple[float, list[tuple[str, int]]]]] = defaultdict(dict)
    lines: set[tuple[str, int]] = set()
    ours: dict[CodeType, str | None] = {}

    def watch(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        try:
            module = ours[code]
        except KeyError:
            module = ours[code] = files.get(code.co_filename)
        if module is None:
            return None
        lines.add((module, frame.f_lineno))
        return watch

    def finish(found: dict[str, Any]) -> NoReturn:
        with os.fdopen(writer, "w") as stream:
            stream.write(json.dumps(found))
        os._exit(0)

    def failed(report: pytest.TestReport) -> None:
        finish({"failed": f"{report.nodeid}: {report.longrepr}"})

    items[0].config.pluginmanager.register(_Failed(failed))
    for item, following in zip(items, [*items[1:], None], strict=True):
        lines.clear()
        began = time.process_time()
        sys.settrace(watch)
        _play(item, following)
        sys.settrace(None)
        told[str(item.path)][item.nodeid] = time.process_time() - began, sorted(lines)
    finish(told)


def _hunt(mutant: Mutant, items: list[pytest.Item], seconds: dict[str, float], writer: int) -> NoReturn:
    """In a fork: become the mutant, and run the tests until one of them notices."""
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        become(mutant)
        items[0].config.pluginmanager.register(_Failed(lambda _: os._exit(1)))
        parent = os.getppid()
        for item, following in zip(items, [*items[1:], None], strict=True):
            if os.getppid() != parent:
                os._exit(1)  # nobody waits for the answer any more
            os.write(writer, f"\n{item.nodeid}".encode())
            usual = seconds[item.nodeid]
            signal.setitimer(signal.ITIMER_PROF, max(2.0, 20 * usual))
            signal.setitimer(signal.ITIMER_REAL, SLOW_SECONDS + 40 * usual)
            _play(item, following)
    except BaseException:  # whatever gets past pytest was noticed too
        os._exit(1)
    os._exit(0)


def become(mutant: Mutant) -> None:
    """Exchange the code of one function of this process."""
    module = sys.modules[f"taskgraph.{mutant.module}"]
    namespace = dict(vars(module))
    exec(compile(mutant.source, module.__file__ or "", "exec"), namespace)  # noqa: S102
    old, new = _function(vars(module), mutant.function), _function(namespace, mutant.function)
    old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__


def _function(namespace: dict[str, Any], name: str) -> FunctionType:
    owner, _, own = name.rpartition(".")
    function = vars(namespace[owner])[own] if owner else namespace[name]
    if isinstance(function, classmethod | staticmethod):
        function = function.__func__
    assert isinstance(function, FunctionType)
    return function


def default_folder() -> Path:
    """Where the results of the last run are kept."""
    return ROOT / "build" / "mutation"


def _stamps(paths: set[Path]) -> dict[Path, str]:
    shared = hashlib.sha256()
    for path in sorted([*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        if path not in paths and not path.name.startswith("test_") and path.parent != Path(__file__).parent:
            shared.update(path.read_bytes())
    return {path: hashlib.sha256(shared.digest() + path.read_bytes()).hexdigest() for path in paths}
