"""Executor `kubernetes`: a command in a pod of a cluster, as a Job of one run.

The Job is named after the run, so that a run is never started twice, and carries the claim that began it. What another
claim of the task has left in the cluster is deleted, and gone, before a run begins. A cluster that cannot be reached
for a while does not end a run: its pod goes on meanwhile, and the log is taken up where it was.
"""

import asyncio
import importlib.util
import itertools
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final

from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.errors import InvalidInput, InvalidSettings
from taskgraph.model.secrecy import Handed
from taskgraph.worker.executors.cluster import Cluster, Clusters, Refused, Unreachable, why_none
from taskgraph.worker.executors.contract import (
    AT_ONCE,
    Outcome,
    TemporaryFailure,
    Work,
    WriteLog,
    failed,
    failed_for_now,
    malformed,
)
from taskgraph.worker.executors.jobs import (
    CLAIM,
    TASK,
    Json,
    PodOrder,
    has_begun,
    is_ending,
    is_over,
    job_of,
    name_of,
    outcome_of,
    read_pod_order,
    secret_of,
    task_of,
)
from taskgraph.worker.executors.pod_log import LOG_END_SECONDS, PodLog
from taskgraph.worker.executors.pod_waiting import Waiting
from taskgraph.worker.executors.secrets import Secrets, masked

NAME: Final = "kubernetes"

_WATCH_SECONDS: Final = 120  # shorter than load balancers keep a connection on which nothing comes
_STUCK_WATCH_SECONDS: Final = 30
_LOST_SECONDS: Final = 600.0  # without an answer of the cluster
_GONE_SECONDS: Final = 120.0  # beside the grace, until a deleted Job is gone: some nodes look once a minute
_LATE_SECONDS: Final = 60.0  # after which a cluster that has to end a Job has not
_TRIES_MAX: Final = 5
_PAUSE_SECONDS_MAX: Final = 30.0
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_EXPIRED: Final = 410  # a watch from too long ago
_WRONG: Final = frozenset({400, 404, 422})  # what would be refused the next time as well
_QUOTA: Final = "exceeded quota"


class KubernetesExecutor:
    """clock: for pauses and patience. grace_seconds: as of commands."""

    name = NAME
    instant = False
    queue = None

    def __init__(
        self, clock: Clock, *, grace_seconds: float = limits.GRACE_SECONDS, handed: Handed | None = None
    ) -> None:
        self._clock = clock
        self._grace_seconds = grace_seconds
        self._secrets = Secrets(handed or Handed())
        self._clusters = Clusters(clock)

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        if importlib.util.find_spec("kubernetes_asyncio") is None:
            return "this worker lacks a package for Kubernetes: pip install 'taskgraph-scheduler[kubernetes]'"
        return why_none()

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        try:
            order = read_pod_order(work.definition)
            secrets = {name: await self._secrets.find(secret) for name, secret in order.secrets.items()}
            if work.files:
                raise InvalidInput("a pod shares no folder with its worker, and can take no $file; take a $result")
        except InvalidInput as error:
            return malformed(str(error))
        except TemporaryFailure as error:
            return failed_for_now(str(error), retry_after=error.retry_after)
        if not secrets:
            return await self._run(work, order, secrets, write_log)
        return await masked(secrets.values(), write_log, lambda write: self._run(work, order, secrets, write))

    async def _run(self, work: Work, order: PodOrder, secrets: Mapping[str, bytes], write_log: WriteLog) -> Outcome:
        try:
            async with self._clusters.open() as cluster:
                run = _Run(self._clock, cluster, work, order, self._grace_seconds, write_log)
                try:
                    return await run.outcome(secrets)
                except asyncio.CancelledError as error:
                    await asyncio.shield(run.end(at_once=AT_ONCE in error.args))
                    raise
                finally:
                    run.log.close()
        except (InvalidSettings, TemporaryFailure, Unreachable) as error:
            return failed_for_now(str(error))
        except Refused as error:
            if error.for_now or _QUOTA in error.message:
                return failed_for_now(str(error), retry_after=error.retry_after)
            return malformed(str(error)) if error.status in _WRONG else failed(str(error))


class _Run:
    """One run, as a Job of a cluster."""

    def __init__(
        self, clock: Clock, cluster: Cluster, work: Work, order: PodOrder, grace_seconds: float, write_log: WriteLog
    ) -> None:
        namespace = order.namespace or cluster.namespace
        self._clock = clock
        self._cluster = cluster
        self._work = work
        self._order = order
        self._grace_seconds = grace_seconds
        self._write_log = write_log
        self._jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self._core = f"/api/v1/namespaces/{namespace}"
        self._pod = ""  # its uid, once there is one
        self._ending = self._taken_back = False  # whether it was seen to be deleted; and the Job deleted for that
        self._waiting = Waiting(clock, cluster, self._core, write_log)
        self.log = PodLog(cluster, f"{self._core}/pods", write_log)

    async def outcome(self, secrets: Mapping[str, bytes]) -> Outcome:
        """Raises Refused, Unreachable, TemporaryFailure."""
        job = await self._begin()
        if secrets:  # which go with the Job; its pod waits for them
            await self._make(f"{self._core}/secrets", secret_of(job, secrets))
        seconds, pod = self._order.timeout_seconds, None
        try:
            async with asyncio.timeout(None if seconds is None else seconds + _LATE_SECONDS):
                outcome, pod = await self._attend()
        except TimeoutError:  # a Job whose pod cannot be made is not always ended by its cluster
            outcome = failed(f"timed out after {seconds:g} s")
        await self.log.end(LOG_END_SECONDS)
        if (
            pod is None
            or "deletionTimestamp" in pod["metadata"]
            or pod["status"].get("phase") in ("Pending", "Running")
        ):
            await self._delete(job)  # else the cluster might begin it anew, or other containers of the pod go on
        return outcome

    async def end(self, *, at_once: bool) -> None:
        """Delete the Job, and wait for what its pod still says, no longer than the grace."""
        try:
            job = await self._find(name_of(self._work))
            if job is not None and self._is_ours(job):
                await self._delete(job)
                if not at_once:
                    await self.log.end(self._grace_seconds)
        except (Refused, Unreachable) as error:  # the task's next run deletes it, or its time is over sooner
            await self._write_log(f"the Job could not be deleted: {error}\n".encode())

    # --- begin

    async def _begin(self) -> Json:
        """The run's Job, which is made unless it is there; what is left of the task's other runs goes first."""
        work = self._work
        if work.run:
            found = await self._ask("GET", self._jobs, labelSelector=f"{TASK}={task_of(work)}")
            for each in found["items"]:
                if not is_over(each) and each["metadata"]["name"] != name_of(work):
                    await self._delete(each, wait=True)
        wanted = job_of(work, self._order, self._grace_seconds)
        while (job := await self._make(self._jobs, wanted)) is None:
            job = await self._find(name_of(work))
            if job is not None and self._is_ours(job):
                break  # the answer to its creation was lost
            if job is not None:
                await self._delete(job, wait=True)
        return job

    async def _make(self, path: str, wanted: Json) -> Json | None:
        """None where there is one of this name. Raises Refused, Unreachable."""
        try:
            return await self._ask("POST", path, wanted)
        except Refused as error:
            if error.kind != "AlreadyExists":
                raise
        return None

    # --- attend

    async def _attend(self) -> tuple[Outcome, Json | None]:
        """How it ends, and its pod, None where that is gone; the cluster may be away meanwhile for a while."""
        lost_since: float | None = None
        while True:
            try:
                found = await self._look()
            except (Refused, Unreachable) as error:
                if isinstance(error, Refused) and error.status != _EXPIRED and not error.for_now:
                    raise
                now = self._clock.monotonic()
                lost_since = now if lost_since is None else lost_since
                if now - lost_since >= _LOST_SECONDS:
                    raise
                await self._clock.sleep(min(1.0 + (now - lost_since) / 2, _PAUSE_SECONDS_MAX))
                continue
            if found is not None:
                return found
            lost_since = None

    async def _look(self) -> tuple[Outcome, Json | None] | None:
        """What is to be seen now; None after having waited for a change. Raises Refused, Unreachable."""
        name = name_of(self._work)
        job = await self._find(name)
        if job is None or not self._is_ours(job):
            return failed_for_now("its pod was deleted" if self._taken_back else "its Job was deleted"), None
        chosen = {"labelSelector": f"job-name={name}"}
        listed = await self._cluster.ask("GET", f"{self._core}/pods", **chosen)
        pod = self._own(listed["items"])
        if pod is not None:
            await self._notice(pod)
        outcome = outcome_of(job, pod, self._order, self._work.definition)
        if outcome is None and pod is not None:
            outcome = self._waiting.outcome(pod)
        if outcome is not None:
            return outcome, pod
        if pod is None and self._pod:
            return failed_for_now("its pod was deleted"), None
        if pod is not None and is_ending(pod):
            if "deletionTimestamp" in pod["metadata"] and not self._taken_back:
                self._taken_back = self._ending  # not before the Job can say that its time is over
                self._ending = True
                if self._taken_back:
                    await self._delete(job)  # or an older cluster would begin it anew
            await self._clock.sleep(1.0)
            return None
        seconds = _STUCK_WATCH_SECONDS if pod is None or self._waiting.in_vain else _WATCH_SECONDS
        since = listed["metadata"]["resourceVersion"]
        async with aclosing(
            self._cluster.events(f"{self._core}/pods", seconds, resourceVersion=since, **chosen)
        ) as events:
            in_vain = self._waiting.in_vain
            async for kind, pod in events:
                if not self._own([pod]):
                    return None
                await self._notice(pod)
                if kind == "DELETED" or is_ending(pod) or self._waiting.in_vain != in_vain:
                    return None
        if not self._pod:
            await self._waiting.say_why_none(name)
        return None

    def _own(self, pods: list[Json]) -> Json | None:
        """The run's pod: the first one that was seen, and no other that the cluster may begin later."""
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"])):
            self._pod = self._pod or pod["metadata"]["uid"]
            if pod["metadata"]["uid"] == self._pod:
                return pod
        return None

    async def _notice(self, pod: Json) -> None:
        if has_begun(pod):
            self.log.follow(pod["metadata"]["name"])
        await self._waiting.notice(pod)

    # --- requests

    async def _ask(self, method: str, path: str, body: Any = None, **query: str) -> Json:
        """Ask again while the cluster cannot be reached or is too busy. Raises Refused, Unreachable."""
        for attempt in itertools.count():
            try:
                return await self._cluster.ask(method, path, body, **query)
            except (Refused, Unreachable) as error:
                if attempt == _TRIES_MAX - 1 or (isinstance(error, Refused) and not error.for_now):
                    raise
            await self._clock.sleep(2.0**attempt)
        raise AssertionError("it is counted without end")

    async def _find(self, name: str) -> Json | None:
        try:
            return await self._cluster.ask("GET", f"{self._jobs}/{name}")
        except Refused as error:
            if error.status != _NOT_FOUND:
                raise
        return None

    def _is_ours(self, job: Json) -> bool:
        claim: str = job["metadata"].get("annotations", {}).get(CLAIM, "")
        return claim == self._work.claim

    async def _delete(self, job: Json, *, wait: bool = False) -> None:
        """Delete this Job and its pod. wait: until both are gone. Raises Refused, Unreachable, TemporaryFailure."""
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        options = {"propagationPolicy": "Foreground", "preconditions": {"uid": uid}}
        try:
            await self._ask("DELETE", f"{self._jobs}/{name}", {"apiVersion": "v1", "kind": "DeleteOptions", **options})
        except Refused as error:
            if error.status not in (_NOT_FOUND, _CONFLICT):  # gone, or another one by now
                raise
        until = self._clock.monotonic() + self._grace_seconds + _GONE_SECONDS
        while wait and (found := await self._find(name)) is not None and found["metadata"]["uid"] == uid:
            if self._clock.monotonic() >= until:
                raise TemporaryFailure("an earlier run of the task has not come to its end in the cluster")
            await self._clock.sleep(1.0)
