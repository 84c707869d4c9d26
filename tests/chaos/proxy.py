"""A TCP proxy that misbehaves, in front of the emulator: what a network does, below every library.

What this room is for: cutting, delaying and half-closing real connections of processes under test, as the test says
while they run. It knows bytes and connections, and nothing of HTTP.

    pass        as it comes
    refuse      a new connection is reset at once
    delay       every piece of the answer comes late
    cut         the connection is reset once so many bytes of the answer have passed
    drop        the request goes through, and the connection is reset when the answer comes
    half-close  the answer ends, orderly, after so many bytes; the other direction stays open
    hang        nothing comes back for some seconds, then the connection is reset
"""

import asyncio
import contextlib
import random
import re
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

MODES: Final = ("pass", "refuse", "delay", "cut", "drop", "half-close", "hang")
_ENDPOINT: Final = re.compile(r"(?P<kind>\w+)Endpoint=http://127\.0\.0\.1:(?P<port>\d+)/")
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER of no seconds: closing sends a reset


@dataclass(slots=True)
class Weather:
    """How the proxy behaves; may be changed at any time, and holds from then on for open connections too.

    mode: one of MODES, or "" for a mode that is drawn anew for every answer, by its weight. bytes: for cut and
    half-close. seconds: for delay and hang.
    """

    mode: str = "pass"
    bytes: int = 0
    seconds: float = 0.05
    weights: dict[str, float] = field(default_factory=dict)
    seed: int = 0
    met: Counter[str] = field(default_factory=Counter)
    _rng: random.Random | None = None

    def draw(self) -> str:
        """The mode of the next connection or answer."""
        if self.mode:
            return self.mode
        if self._rng is None:
            self._rng = random.Random(f"weather {self.seed}")
        modes = list(self.weights)
        return self._rng.choices(modes, weights=[self.weights[mode] for mode in modes], k=1)[0]


@contextlib.asynccontextmanager
async def proxied(connection: str, weather: Weather) -> AsyncIterator[str]:
    """A proxy in front of every port of a connection string; gives the connection string that goes through it."""
    servers: list[asyncio.Server] = []
    open_connections: set[asyncio.Task[None]] = set()

    async def listen(port: int) -> int:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            open_connections.add(task)
            try:
                await _serve(reader, writer, port, weather)
            finally:
                open_connections.discard(task)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    ports = {found["port"]: await listen(int(found["port"])) for found in _ENDPOINT.finditer(connection)}
    try:
        yield _ENDPOINT.sub(
            lambda found: f"{found['kind']}Endpoint=http://127.0.0.1:{ports[found['port']]}/", connection
        )
    finally:
        for server in servers:
            server.close()
        for task in open_connections:
            task.cancel()
        await asyncio.gather(*open_connections, return_exceptions=True)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, weather: Weather) -> None:
    if weather.draw() == "refuse":
        weather.met["refuse"] += 1
        _reset(writer)
        return
    there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        requests = asyncio.ensure_future(_pass_on(reader, there_writer))
        answers = asyncio.ensure_future(_answers(there_reader, writer, weather))
        await asyncio.wait((requests, answers), return_when=asyncio.FIRST_COMPLETED)
        for one in (requests, answers):
            one.cancel()
        await asyncio.gather(requests, answers, return_exceptions=True)  # a reset of either side ends both
    finally:
        there_writer.close()
        _reset(writer)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def _answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, weather: Weather) -> None:
    """Pass answers on, piece by piece, each through the weather of its moment. Returns when the connection is to go."""
    while data := await reader.read(1 << 16):
        mode = weather.draw()
        weather.met[mode] += 1
        if mode == "drop":
            return
        if mode == "hang":
            await asyncio.sleep(weather.seconds)
            return
        if mode == "delay":
            await asyncio.sleep(weather.seconds)
        if mode in ("cut", "half-close"):
            writer.write(data[: weather.bytes])
            await writer.drain()
            if mode == "half-close" and writer.can_write_eof():
                writer.write_eof()
                await asyncio.sleep(weather.seconds)
            return
        writer.write(data)
        await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close at once, with a reset, so that the other side does not take it for an orderly end."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        with contextlib.suppress(OSError):  # it may be gone already
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.close()


def stormy(seed: int, share: float) -> Weather:
    """A share of all answers goes wrong, evenly in every way."""
    wrong: Sequence[str] = ("refuse", "delay", "cut", "drop", "half-close", "hang")
    weights = {"pass": 1 - share, **{mode: share / len(wrong) for mode in wrong}}
    return Weather(mode="", bytes=40, seconds=0.1, weights=weights, seed=seed)
