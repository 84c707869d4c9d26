"""A thousand addresses that a document may name: nothing leaves for where nothing should go.

Whatever a process connects to is counted where Python hands it to the system, and a listener of this machine counts
what arrives. What would go to the internet is counted and stopped there.
"""

import errno
import random
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import pytest

from taskgraph.engine.addresses import Hosts
from taskgraph.engine.notifier import NotDelivered
from taskgraph.engine.outlets import Outlets, OutletSettings
from taskgraph.model.clock import SystemClock
from taskgraph.protocol.notices import Channel, Notice
from taskgraph.testing import MemoryQueues

NOTICE = Notice("g.1.0", '{"id":"g.1.0"}')
COUNT = 1_000
PUBLIC = ("93.184.216.34", "2606:4700::1111", "8.8.8.8")
INNER_NETWORKS = {
    "loopback": (0x7F000000, 8),
    "private": (0x0A000000, 8),
    "private 172": (0xAC100000, 12),
    "private 192": (0xC0A80000, 16),
    "link-local": (0xA9FE0000, 16),
    "shared": (0x64400000, 10),
    "this network": (0x00000000, 8),
    "multicast": (0xE0000000, 4),
    "reserved": (0xF0000000, 4),
}
ONE_BY_ONE = {
    "metadata": "169.254.169.254",
    "Azure's own": "168.63.129.16",
    "metadata, shared": "100.100.100.200",
    "metadata, IETF": "192.0.0.192",
    "loopback": "127.0.0.1",
}
INNER_V6 = ("::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "ff0e::1", "2001:db8::1", "fec0::1")

_watched: list[Any] | None = None


class StoppedError(OSError):
    """A connection that would have left this machine."""


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and _watched is not None and arguments[0].family != socket.AF_UNIX:
        _watched.append(arguments[1][0])
        if not ip_address(arguments[1][0].partition("%")[0]).is_loopback:
            raise StoppedError(errno.ENETUNREACH, "stopped by the test")


sys.addaudithook(_watch)


@pytest.fixture
def connects() -> Iterator[list[Any]]:
    """What the process connects to, as it is handed to the system."""
    global _watched
    _watched = []
    yield _watched
    _watched = None


class Listener:
    """A server of this machine, on all its addresses of both families, that counts what arrives."""

    def __init__(self) -> None:
        self.arrived = 0
        self._sockets = [socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)]
        server = self._sockets[0]
        if server.family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind(("", 0))
        server.listen(64)
        self.port = server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                taken, _ = self._sockets[0].accept()
            except OSError:
                return
            self.arrived += 1
            with taken:
                taken.recv(4096)
                taken.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    def close(self) -> None:
        self._sockets[0].shutdown(socket.SHUT_RDWR)
        self._sockets[0].close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """Names and what resolving them gives: a list for each time, the last one for ever. Others are not resolved."""
    known: dict[str, list[list[str]]] = {}
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> Any:  # noqa: A002
        name = host.decode() if isinstance(host, bytes) else str(host)
        if answers := known.get(name.rstrip(".").lower()):
            given = answers.pop(0) if len(answers) > 1 else answers[0]
            return [found for each in given for found in real(each, port, type=socket.SOCK_STREAM)]
        return real(host, port, family, type, proto, flags | socket.AI_NUMERICHOST)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return known


def spellings(address: IPv4Address) -> dict[str, str]:
    """An IPv4 address in the ways in which a URL may hold it."""
    number, parts = int(address), [int(each) for each in str(address).split(".")]
    upper, lower = f"{number >> 16:x}", f"{number & 0xFFFF:x}"
    return {
        "dotted": str(address),
        "trailing dot": f"{address}.",
        "decimal": str(number),
        "hex": hex(number),
        "octal": f"0{number:o}",
        "dotted hex": ".".join(map(hex, parts)),
        "dotted octal": ".".join(f"0{each:o}" for each in parts),
        "leading zeros": ".".join(f"{each:04o}" for each in parts),
        "three parts": f"{parts[0]}.{parts[1]}.{number & 0xFFFF}",
        "two parts": f"{parts[0]}.{number & 0xFFFFFF}",
        "percent": "".join(f"%{ord(each):02x}" for each in str(address)),
        "user": f"public.example@{address}",
        "user and port": f"public.example:80@{address}",
        "mapped": f"[::ffff:{upper}:{lower}]",
        "mapped, dotted": f"[::ffff:{address}]",
        "mapped, long": f"[0:0:0:0:0:FFFF:{upper}:{lower}]",
        "compatible": f"[::{upper}:{lower}]",
        "translated": f"[::ffff:0:{upper}:{lower}]",
        "NAT64": f"[64:ff9b::{upper}:{lower}]",
        "NAT64, local": f"[64:ff9b:1::{upper}:{lower}]",
        "6to4": f"[2002:{upper}:{lower}::1]",
        "ISATAP": f"[2a01:1::5efe:{upper}:{lower}]",
        "Teredo": f"[2001:0:{upper}:{lower}::1]",
    }


def hostile(names: dict[str, list[list[str]]], port: int, seed: int) -> list[tuple[str, str]]:
    """What kind, and a URL that leads inside: every listed address in every spelling, then drawn ones."""
    chance = random.Random(seed)
    made: list[tuple[str, str]] = []

    def resolving(kind: str, *answers: list[str]) -> None:
        name = f"name-{len(made)}.public.example"
        names[name] = list(answers)
        made.append((kind, f"http://{name}{chance.choice(['', '.'])}:{port}/hook"))

    for inner in ONE_BY_ONE.values():
        made += [(kind, f"http://{text}:{port}/hook") for kind, text in spellings(IPv4Address(inner)).items()]
        resolving("a name", [inner])
    for inner in INNER_V6:
        made.append(("IPv6", f"http://[{inner}]:{port}/hook"))
        made.append(("IPv6, zone", f"http://[{inner}%25lo]:{port}/hook"))
        resolving("a name", [inner])
    names["localhost"] = [["127.0.0.1", "::1"]]
    made += [("localhost", f"http://{each}:{port}/") for each in ("localhost", "LOCALHOST", "localhost.")]
    while len(made) < COUNT:
        network, bits = chance.choice(list(INNER_NETWORKS.values()))
        address = IPv4Address(network | chance.getrandbits(32 - bits))
        if chance.random() < 0.25:
            mapped = IPv6Address(f"::ffff:{address}")
            resolving("a name", chance.choice([[str(address)], [str(mapped)], [str(address), "::1"]]))
        else:
            kind, text = chance.choice(list(spellings(address).items()))
            made.append((kind, f"{chance.choice(['http', 'https'])}://{text}:{port}/hook"))
    return made


def outlets(hosts: str = "") -> Outlets:
    clock = SystemClock()
    return Outlets(MemoryQueues(clock), clock, OutletSettings(hosts=Hosts.read(hosts)), prefix="mine")


async def refusal(made: Outlets, url: str) -> str:
    with pytest.raises(NotDelivered) as caught:
        await made.send(Channel("webhook", (url,)), NOTICE)
    return str(caught.value)


@pytest.mark.parametrize("hosts", ["", "*", "*.example,*.*"], ids=["no setting", "any name", "patterns"])
async def test_of_a_thousand_hostile_addresses_nothing_leaves(
    hosts: str,
    connects: list[Any],
    listener: Listener,
    names: dict[str, list[list[str]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    cases = hostile(names, listener.port, seed=20261123)
    made = outlets(hosts)
    kinds: Counter[str] = Counter()
    for kind, url in cases:
        reason = await refusal(made, url)
        kinds[kind] += 1
        assert "HTTP 2" not in reason, url
        assert "Connect call" not in reason, url  # an open port must not look different from a closed one
    await made.close()
    with capsys.disabled():
        print(f"\nhosts {hosts!r}: {len(cases)} addresses, {len(connects)} connects, {listener.arrived} arrived")
        print("; ".join(f"{kind} {number}" for kind, number in kinds.most_common()))
    assert len(cases) >= COUNT
    assert connects == []
    assert listener.arrived == 0


async def test_what_should_leave_leaves(
    connects: list[Any], listener: Listener, names: dict[str, list[list[str]]]
) -> None:
    """The other half: a public address is tried, whatever name leads to it, and a named inner one is reached."""
    names["public.example"] = [[PUBLIC[0]]]
    names["both.example"] = [["10.0.0.1", PUBLIC[2], "::1"]]
    made = outlets()
    for url in (
        "http://public.example/",
        f"http://[{PUBLIC[1]}]/",
        f"http://{PUBLIC[2]}:8080/",
        "http://both.example/",
    ):
        assert "network is unreachable" in await refusal(made, url)
    await made.close()
    assert set(connects) == set(PUBLIC)  # one is tried twice: the client goes on to the next address of a name
    named = outlets("127.0.0.0/8")
    await named.send(Channel("webhook", (f"http://127.0.0.1:{listener.port}/",)), NOTICE)
    await named.close()
    by_name = outlets("localhost,127.0.0.1")
    names["localhost"] = [["127.0.0.1"]]
    await by_name.send(Channel("webhook", (f"http://localhost:{listener.port}/",)), NOTICE)
    await by_name.close()
    assert listener.arrived == 2


async def test_a_name_that_changes_its_address_between_two_looks_gains_nothing(
    connects: list[Any], listener: Listener, names: dict[str, list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: public when the document is checked, inside when it is connected to."""
    names["rebinds.example"] = [[PUBLIC[0]], ["127.0.0.1"], ["169.254.169.254"], ["::1"]]
    assert socket.getaddrinfo("rebinds.example", 80)[0][4][0] == PUBLIC[0]
    for _ in range(4):
        made = outlets("*.example")
        assert "is not public: TASKGRAPH_WEBHOOK_HOSTS" in await refusal(
            made, f"http://rebinds.example:{listener.port}/"
        )
        await made.close()
    assert connects == []
    assert listener.arrived == 0


async def test_the_reason_tells_neither_the_address_nor_what_answers_there(
    listener: Listener, names: dict[str, list[list[str]]]
) -> None:
    names["inner.example"] = [["127.0.0.1"]]
    made = outlets()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        free = closed.getsockname()[1]
    reasons = {await refusal(made, f"http://inner.example:{port}/") for port in (listener.port, free)}
    await made.close()
    (reason,) = reasons
    assert reason == (
        "inner.example leads to an address that is not public: TASKGRAPH_WEBHOOK_HOSTS must name the address too"
    )
