"""Executor `docker`: a command in a container of its own, by the command line of docker or podman.

The client is a child as any command is (`command`): its output is the log, its exit code that of the command in the
container, and it passes SIGTERM on. What outlives the client is removed by name, and what an earlier run of the task
has left on this machine before the next one begins.
"""

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from taskgraph.model.errors import InvalidInput
from taskgraph.model.secrecy import Handed
from taskgraph.worker.executors.command import CommandExecutor, Order, read_order
from taskgraph.worker.executors.contract import Outcome, Queue, Work, WriteLog, failed, payload_of

NAME: Final = "docker"
_CLIENTS: Final = ("docker", "podman")
_CHOSEN: Final = "TASKGRAPH_DOCKER"
"""The variable of the worker that names its client, by name or path."""

_LABEL: Final = "taskgraph.task"
_OF_THE_RUN: Final = tuple(
    f"TASKGRAPH_{each}" for each in ("GRAPH_ID", "TASK_ID", "LABEL", "RUN_ID", "FENCING_TOKEN", "STORE")
)
"""Variables that every command gets, beside the place of its result; other settings stay with the worker."""

_RESULT: Final = "/run/taskgraph-result.json"
_OF_THE_CLIENT: Final = re.compile(
    r"PATH|HOME|TMPDIR|LANG|LC_.*|LD_.*|SSH_.*|(?:https?|ftp|no|all)_proxy|(?:DOCKER|BUILDKIT|CONTAINER|XDG|STORAGE)S?_.*",
    re.IGNORECASE,
)
"""Variables that the client reads itself: what the container gets under such a name goes into its arguments."""

_ENGINE_FAILED: Final = 125
_ENGINE_SECONDS: Final = 60.0  # that the removal of a container may take


@dataclass(frozen=True, slots=True)
class _Container(Order):
    """A payload that was read. options: further ones of `docker run`. passed: variables of the worker to pass on."""

    image: str = ""
    options: tuple[str, ...] = ()
    passed: frozenset[str] = field(default=frozenset())


def _read(definition: Mapping[str, Any]) -> _Container:
    """Raises InvalidInput with what is wrong with the payload, in one sentence."""
    payload = payload_of(definition)
    image, options = payload.get("image"), payload.get("options") or []
    if not isinstance(image, str) or not image or image.startswith("-"):
        raise InvalidInput('payload.image must name an image, such as "python:3.12-slim"')
    if not isinstance(options, list | tuple) or not all(isinstance(each, str) for each in options):
        raise InvalidInput('payload.options must be a list of options of docker run, such as ["--network", "none"]')
    order = read_order(definition)
    if order.inherited is True:
        raise InvalidInput("payload.inheritEnv of a container must be a list of names of variables")
    if theirs := [name for name in order.secrets if _OF_THE_CLIENT.fullmatch(name)]:
        raise InvalidInput(f"payload.env: a secret cannot be {theirs[0]}, which docker itself would go by")
    return _Container(
        order.argv,
        order.env,
        order.secrets,
        order.env_file,
        True,  # the client needs what its machine has set for it
        order.cwd,
        order.timeout_seconds,
        image,
        tuple(options),
        frozenset(map(os.fsdecode, order.inherited or ())),
    )


class DockerExecutor(CommandExecutor):
    """Runs a task's command in a container, which sees the folder that the command would run in, at the same path."""

    name = NAME

    def __init__(self, *, handed: Handed | None = None, **options: Any) -> None:
        super().__init__(handed=handed, **options)
        chosen = os.environ.get(_CHOSEN, "")
        self._client = next(filter(None, map(shutil.which, [chosen] if chosen else _CLIENTS)), "")

    @property
    def queue(self) -> Queue | None:
        return None

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        if not self._client:
            chosen = os.environ.get(_CHOSEN)
            what = (
                f"{_CHOSEN}={chosen} of this worker names no program"
                if chosen
                else "this worker has no docker, and no podman, on its PATH"
            )
            return f"{what}, and the task runs in a container"
        return super().can_run(definition)

    def _read_order(self, definition: Mapping[str, Any]) -> Order:
        return _read(definition)

    async def _run(self, work: Work, order: Order, secrets: Mapping[str, bytes], write_log: WriteLog) -> Outcome:
        await self._remove(await self._left(f"{_LABEL}={_task_of(work)}"))
        outcome: Outcome | None = None
        try:
            outcome = await super()._run(work, order, secrets, write_log)
        finally:
            if outcome is None or outcome.exit_code is None:  # the client was ended, and the container may go on
                await asyncio.shield(self._remove([_name_of(work)]))
        if outcome.exit_code == _ENGINE_FAILED:
            client = os.path.basename(self._client)
            return failed(f"{client} could not run the container; the log says why", exit_code=_ENGINE_FAILED)
        return outcome

    def _argv(self, work: Work, order: Order, own: dict[bytes, bytes], result_file: str) -> tuple[str, ...]:
        """The client's arguments. Values go through its environment, as other users can read arguments."""
        container = cast(_Container, order)
        with open(result_file, "xb"):  # what is mounted has to be there
            os.chmod(result_file, 0o666)  # noqa: S103 - the container may have any user; the folder is closed
        folder = os.path.abspath(work.folder or order.cwd or os.curdir)
        words = [self._client, "run", "--rm", "--name", _name_of(work), "--label", f"{_LABEL}={_task_of(work)}"]
        words += ["--volume", f"{result_file}:{_RESULT}", "--volume", f"{folder}:{folder}"]
        if work.files:
            words += ["--volume", f"{work.files}:{work.files}:ro"]
        words += ["--workdir", os.path.abspath(order.cwd or folder)]
        words += ["--env", f"TASKGRAPH_RESULT_FILE={_RESULT}"]
        traced = ["TRACEPARENT"] if work.traceparent else []
        for name in sorted({*_OF_THE_RUN, *traced, *order.env, *order.secrets, *container.passed}):
            if _OF_THE_CLIENT.fullmatch(name) and name in order.env:
                words += ["--env", f"{name}={order.env[name]}"]
                del own[os.fsencode(name)]  # what is inherited stands again
            else:
                words += ["--env", name]
        return (*words, *container.options, container.image, *order.argv)

    async def _left(self, label: str) -> list[str]:
        found = await self._ask("ps", "--all", "--quiet", "--filter", f"label={label}")
        return found.split()

    async def _remove(self, containers: list[str]) -> None:
        if containers:
            await self._ask("rm", "--force", *containers)

    async def _ask(self, *words: str) -> str:
        """What the client prints; nothing if it fails: the run that follows fails by the same cause, and says why."""

        def ask() -> str:
            try:
                done = subprocess.run(
                    [self._client, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    timeout=_ENGINE_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return ""
            return done.stdout.decode("utf-8", "replace")

        return await asyncio.to_thread(ask)


def _name_of(work: Work) -> str:
    return f"taskgraph-{work.claim}"


def _task_of(work: Work) -> str:
    return f"{work.graph_id}/{work.task_id}"
