"""A request as a route gets it: its parameters read, its sender known, its body bounded."""

import gzip
import io
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from starlette.requests import ClientDisconnect, Request

from taskgraph.engine.telemetry import POLL
from taskgraph.interfaces.app import App
from taskgraph.interfaces.http.measured import ANSWERING
from taskgraph.interfaces.http.problems import Problem
from taskgraph.interfaces.operations.tokens import Token
from taskgraph.model.roles import Role

if TYPE_CHECKING:
    from taskgraph.interfaces.http.feeds import Feeds

BODY_BYTES_MAX: Final = 10_000_000
UNPACKED_BYTES_MAX: Final = 16_000_000
FILE_BYTES_MAX: Final = 1 << 28
"""Of an archive, which is kept on disk while it is put back."""

WAIT_SECONDS_MAX: Final = 60.0
ANONYMOUS: Final = Token("anonymous", Role.ADMIN)
"""Who asks where no token is needed."""


@dataclass(frozen=True, slots=True)
class Asked:
    """path, query: values by name. who: the token that was sent."""

    app: App
    feeds: "Feeds"
    request: Request
    path: Mapping[str, str]
    query: Mapping[str, Any]
    who: Token

    @property
    def graph(self) -> str:
        return self.path["graph"]

    async def body(self) -> bytes:
        """The body, unpacked. Raises Problem for one that is too large, or packed in another way than gzip."""
        packed = self.request.headers.get("content-encoding", "identity").lower()
        if packed not in ("identity", "gzip"):
            raise Problem(415, "encoding", f"the encoding {packed[:50]} is not read here: send gzip, or none")
        received = io.BytesIO()
        await self._receive(received, BODY_BYTES_MAX)
        return _unpacked(received.getvalue()) if packed == "gzip" else received.getvalue()

    async def file(self, into: BinaryIO) -> None:
        """The body as it is, into a file. Raises Problem for one that is too large, or packed once more."""
        if self.request.headers.get("content-encoding", "identity").lower() != "identity":
            raise Problem(415, "encoding", "send the file as it is, without Content-Encoding")
        await self._receive(into, FILE_BYTES_MAX)

    async def _receive(self, into: BinaryIO, most: int) -> None:
        received = 0
        try:
            async for piece in self.request.stream():
                received += len(piece)
                if received > most:
                    raise Problem(413, "too-large", f"a body has at most {most:,} bytes here")
                into.write(piece)
        except ClientDisconnect as error:
            raise Problem(400, "gone", "the sender went away before the body had come") from error

    def holds(self, kind: str) -> None:
        """The answer waits for what comes, or goes on with it: POLL, or STREAM."""
        if (one := self.request.scope.get(ANSWERING)) is not None:
            self.app.telemetry.holds(one, kind)

    def wait_seconds(self) -> float:
        """For how long its sender wants the answer to be held: `Prefer: wait=SECONDS` (RFC 7240)."""
        for each in self.request.headers.get("prefer", "").split(","):
            name, _, text = (part.strip() for part in each.partition("="))
            if name.lower() == "wait" and text.isascii() and text.isdigit() and len(text) < 6:
                self.holds(POLL)
                return min(float(text), WAIT_SECONDS_MAX)
        return 0.0


def _unpacked(data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            unpacked = file.read(UNPACKED_BYTES_MAX + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise Problem(400, "not-gzip", f"the body is not what its Content-Encoding says: {error}") from error
    if len(unpacked) > UNPACKED_BYTES_MAX:
        raise Problem(413, "too-large", f"a body unpacks to at most {UNPACKED_BYTES_MAX:,} bytes")
    return unpacked
