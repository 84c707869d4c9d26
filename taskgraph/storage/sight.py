"""What a way in does not show: a link to one graph shows that graph, an archive its rows, and neither any queue."""

from collections.abc import Sequence
from typing import Final

from taskgraph.model.errors import OutOfSight
from taskgraph.storage import checks
from taskgraph.storage.logs import LogPage, Place
from taskgraph.storage.queues import Delivery

_NO_QUEUES: Final = "queues are out of sight: a link and an archive show rows alone"
_NO_FILES: Final = "files of runs are out of sight: a link and an archive show rows alone"


class UnseenQueues:
    """Queues that no link and no archive shows. What is sent is dropped: a sweep makes up for it."""

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        checks.check_send(queue, bodies, delay_seconds)

    async def count(self, queue: str) -> int:
        raise OutOfSight(_NO_QUEUES)

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        raise OutOfSight(_NO_QUEUES)

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        raise OutOfSight(_NO_QUEUES)

    async def delete(self, delivery: Delivery) -> None:
        raise OutOfSight(_NO_QUEUES)


class UnseenLogs:
    """Files of runs, which the page reads by itself."""

    def url(self, graph_id: str, task_id: str, run: int, name: str = "run.log") -> str:
        raise OutOfSight(_NO_FILES)

    async def read(
        self, graph_id: str, task_id: str, run: int, *, offset: int = 0, limit: int = 1 << 20, name: str = "run.log"
    ) -> bytes | None:
        raise OutOfSight(_NO_FILES)

    async def files(self, graph_id: str, *, continuation: str | None = None) -> LogPage:
        raise OutOfSight(_NO_FILES)

    async def append(self, graph_id: str, task_id: str, run: int, data: bytes, name: str = "run.log") -> None:
        raise OutOfSight(_NO_FILES)

    async def append_at(self, graph_id: str, task_id: str, run: int, offset: int, data: bytes, name: str) -> bool:
        raise OutOfSight(_NO_FILES)

    async def copy(self, source: Place, target: Place, name: str) -> bool:
        raise OutOfSight(_NO_FILES)

    async def remove(self, graph_id: str) -> int:
        raise OutOfSight(_NO_FILES)
