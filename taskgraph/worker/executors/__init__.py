"""The ways in which a worker can run a task, and which of them a task's definition asks for."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.errors import InvalidSettings
from taskgraph.model.secrecy import Handed
from taskgraph.worker.executors import installed
from taskgraph.worker.executors.callables import PythonExecutor, Registry, load_callables
from taskgraph.worker.executors.command import CommandExecutor
from taskgraph.worker.executors.contract import RESULT_BYTES_MAX, Executor, Outcome, TemporaryFailure, Work, WriteLog
from taskgraph.worker.executors.idle import NoopExecutor, SleepExecutor

__all__ = [
    "RESULT_BYTES_MAX",
    "CommandExecutor",
    "Executor",
    "NoopExecutor",
    "Outcome",
    "PythonExecutor",
    "Registry",
    "SleepExecutor",
    "TemporaryFailure",
    "Work",
    "WriteLog",
    "load_callables",
]


def executor_name_of(definition: Mapping[str, Any]) -> str:
    """The executor that a task asks for, or that its payload fits; "" if no built-in executor can read that."""
    name = definition.get("executor")
    if name is not None:
        return name if isinstance(name, str) else ""
    payload = definition.get("payload")
    if payload is None or payload == {}:
        return "noop"
    if not isinstance(payload, Mapping):
        return ""
    if "command" in payload:
        return "command"
    return "python" if "call" in payload else ""


def _as_it_is(executor: Executor) -> Executor:
    return executor


class Executors(dict[str, Executor]):
    """The executors of one worker, by name; those of other packages once a task has asked for them.

    override: the one that runs every task. wrap: stands for each of them. later: built-in ones that are made when a
    task first asks for them. Raises InvalidSettings when two have one name, or none has the override's.
    """

    def __init__(
        self,
        executors: Iterable[Executor],
        override: str | None = None,
        wrap: Callable[[Executor], Executor] = _as_it_is,
        later: Mapping[str, Callable[[], Executor]] = MappingProxyType({}),
    ) -> None:
        self._wrap = wrap
        self.later = later
        self._failed: dict[str, str] = {}
        for executor in executors:
            if executor.name in self:
                raise InvalidSettings(f"two executors are named {executor.name}")
            self[executor.name] = wrap(executor)
        if override is not None and not self._has(override):
            names = ", ".join(sorted({*self, *self.later, *installed.entries()}))
            raise InvalidSettings(self._failed.get(override) or f"no executor is named “{override}”; there are {names}")
        self.override = override

    def why_not(self, definition: Mapping[str, Any]) -> str | None:
        """Why this worker cannot run the task, one sentence; None if it can. Asked before the task is claimed."""
        name = self.override or executor_name_of(definition)
        if not name:
            return "no executor understands this payload; name one under executor"
        if not self._has(name):
            near = get_close_matches(name, {*self, *self.later, *installed.entries()}, n=1)
            words = f"this worker has no executor “{name}”" + (f"; did you mean “{near[0]}”?" if near else "")
            return self._failed.get(name) or words
        return self[name].can_run(definition)

    def _has(self, name: str) -> bool:
        if name not in self and name not in self._failed:
            try:
                found = self.later[name]() if name in self.later else installed.find(name)
                if found is not None:
                    self[name] = self._wrap(found)
            except InvalidSettings as error:
                self._failed[name] = str(error)
        return name in self

    def choose(self, definition: Mapping[str, Any]) -> Executor:
        """The executor that runs the task. Raises KeyError where `why_not` would have given a reason of ours."""
        return self[self.override or executor_name_of(definition)]


def built_in(
    clock: Clock,
    *,
    callables: Mapping[str, Callable[..., Any]] | None = None,
    override: str | None = None,
    time_scale: float = 1.0,
    grace_seconds: float = limits.GRACE_SECONDS,
    handed: Handed | None = None,
) -> Executors:
    executors: list[Executor] = [
        CommandExecutor(grace_seconds=grace_seconds, handed=handed),
        NoopExecutor(),
        SleepExecutor(clock, time_scale=time_scale),
    ]
    if callables is not None:
        executors.append(PythonExecutor(callables))

    def docker() -> Executor:
        from taskgraph.worker.executors.docker import DockerExecutor

        return DockerExecutor(grace_seconds=grace_seconds, handed=handed)

    def http() -> Executor:
        from taskgraph.worker.executors.http import HttpExecutor

        return HttpExecutor(clock, handed=handed)

    def expand() -> Executor:
        from taskgraph.worker.executors.expand import ExpandExecutor

        return ExpandExecutor()

    def kubernetes() -> Executor:
        from taskgraph.worker.executors.kubernetes import KubernetesExecutor

        return KubernetesExecutor(clock, grace_seconds=grace_seconds, handed=handed)

    later = {"docker": docker, "expand": expand, "http": http, "kubernetes": kubernetes}
    return Executors(executors, override, later=later)
