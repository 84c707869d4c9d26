"""Routes by which a graph leaves a store as a file, and is put back from one."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, MutableMapping
from os import SEEK_END
from typing import BinaryIO, Final, cast

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from taskgraph.engine.archive_file import USUAL
from taskgraph.interfaces import views
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.http.routes import BASE, FILE_BODY
from taskgraph.interfaces.operations import archive

_PIECE_BYTES: Final = 1 << 16


def _file() -> BinaryIO:
    """A file without a name, which is gone when it is closed."""
    return cast(BinaryIO, tempfile.TemporaryFile())


class _Sent(StreamingResponse):
    """A file, closed when it is sent, or its receiver is gone."""

    def __init__(self, file: BinaryIO, headers: MutableMapping[str, str]) -> None:
        super().__init__(_pieces(file), 200, headers, FILE_BODY)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


async def _pieces(file: BinaryIO) -> AsyncGenerator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece


async def write(asked: Asked) -> Response:
    """It is written as a whole first: what is sent is a whole graph, or a problem."""
    file = _file()
    try:
        await archive.write_again(asked.app, asked.graph, file, with_logs=asked.query["logs"])
    except BaseException:  # reach: http
        file.close()
        raise
    size = file.seek(0, SEEK_END)
    file.seek(0)
    headers = {
        "Content-Length": str(size),
        "Content-Disposition": f'attachment; filename="{asked.graph}.json.gz"',
        "Content-Encoding": "identity",  # it is packed: the middleware leaves it alone
    }
    return _Sent(file, headers)


async def restore(asked: Asked) -> Response:
    with _file() as file:
        await asked.file(file)
        signed = asked.query["signed"]
        plan = await asyncio.to_thread(archive.look, asked.app, file, "body", bounds=USUAL, required=signed)
        done = await archive.restore(asked.app, file, "body", bounds=USUAL, required=signed, plan=plan)
    place = {"Location": f"{BASE}/graphs/{done.graph_id}"}
    return JSONResponse(views.restored(done, plan), 200 if done.again else 201, place)
