"""What the pod of a run waits for: words in the log of the run, and how long it is waited with it."""

from typing import Final

from taskgraph.model.clock import Clock
from taskgraph.worker.executors.cluster import Cluster, Refused
from taskgraph.worker.executors.contract import Outcome, WriteLog, failed
from taskgraph.worker.executors.jobs import STUCK_SECONDS, Json, waits_for

_USUAL: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
_FORBIDDEN: Final = 403


class Waiting:
    """namespace: its path. in_vain: whether the pod waits for what may never come."""

    def __init__(self, clock: Clock, cluster: Cluster, namespace: str, write_log: WriteLog) -> None:
        self._clock = clock
        self._cluster = cluster
        self._namespace = namespace
        self._write_log = write_log
        self._said = ""  # the reason
        self._since: float | None = None

    @property
    def in_vain(self) -> bool:
        return self._since is not None

    async def notice(self, pod: Json) -> None:
        said = waits_for(pod)
        await self._say(said)
        if said[0] not in STUCK_SECONDS:
            self._since = None
        elif self._since is None:
            self._since = self._clock.monotonic()

    async def _say(self, said: tuple[str, str]) -> None:
        if said[0] != self._said and said[0] not in _USUAL:
            await self._write_log(f"waiting: {': '.join(filter(None, said))}\n".encode("utf-8", "replace"))
        self._said = said[0]

    def outcome(self, pod: Json) -> Outcome | None:
        """That of a run whose pod has waited in vain for long enough; None before that."""
        reason, message = waits_for(pod)
        if self._since is None or self._clock.monotonic() - self._since < STUCK_SECONDS.get(reason, 0.0):
            return None
        return failed(f"the container cannot be started: {reason}: {message}")

    async def say_why_none(self, job: str) -> None:
        """Log what keeps the cluster from making the pod of a Job, such as a quota. Raises Refused, Unreachable."""
        chosen = f"involvedObject.kind=Job,involvedObject.name={job},type=Warning"
        try:
            found = await self._cluster.ask("GET", f"{self._namespace}/events", fieldSelector=chosen)
        except Refused as error:
            if error.status != _FORBIDDEN:
                raise
            return  # it is only for people, and not everyone may read events
        if found["items"]:
            last = found["items"][-1]
            await self._say((last.get("reason", ""), last.get("message", "")))
