"""The files of runs over HTTP."""

from taskgraph.storage import checks
from taskgraph.storage.http.calls import Server, path_of
from taskgraph.storage.http.refusal import only_the_server
from taskgraph.storage.logs import LogFile, LogPage, Place

_PIECE_BYTES = 4 << 20  # of a request; a server gives no more


class HttpLogs:
    def __init__(self, server: Server) -> None:
        self._server = server

    def url(self, graph_id: str, task_id: str, run: int, name: str = "run.log") -> str:
        checks.check_log(graph_id, task_id, run, name)
        return f"{self._server.address}{_path(graph_id, task_id, run, name)}"

    async def read(
        self, graph_id: str, task_id: str, run: int, *, offset: int = 0, limit: int = 1 << 20, name: str = "run.log"
    ) -> bytes | None:
        checks.check_log_read(graph_id, task_id, run, name, offset, limit)
        found = b""
        while True:
            most = min(limit - len(found), _PIECE_BYTES)
            query = [("offset", str(offset + len(found))), ("limit", str(most))]
            piece = await self._server.read(_path(graph_id, task_id, run, name), query)
            if piece is None and not found:
                return None
            found += piece or b""
            if len(piece or b"") < most or len(found) >= limit:
                return found

    async def files(self, graph_id: str, *, continuation: str | None = None) -> LogPage:
        checks.check_logs_of(graph_id)
        query = [] if continuation is None else [("page", continuation)]
        answer = await self._server.get(path_of("graphs", graph_id, "logs"), query)
        files = [LogFile(each["taskId"], each["run"], each["name"], each["bytes"]) for each in answer["files"]]
        return LogPage(files, answer["next"])

    async def append(self, graph_id: str, task_id: str, run: int, data: bytes, name: str = "run.log") -> None:
        raise only_the_server(self._server.address)

    async def append_at(self, graph_id: str, task_id: str, run: int, offset: int, data: bytes, name: str) -> bool:
        raise only_the_server(self._server.address)

    async def copy(self, source: Place, target: Place, name: str) -> bool:
        raise only_the_server(self._server.address)

    async def remove(self, graph_id: str) -> int:
        raise only_the_server(self._server.address)


def _path(graph_id: str, task_id: str, run: int, name: str) -> str:
    return path_of("graphs", graph_id, "logs", task_id, run, name)
