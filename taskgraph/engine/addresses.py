"""Which hosts and addresses a webhook may reach.

An address is judged right before it is connected to, whatever name led to it, so that a name which changes its address
between two looks gains nothing.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_PUBLIC_V6: Final = IPv6Network("2000::/3")  # all that has been given out for the internet
_NAT64: Final = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR: Final = IPv6Network("2002::/16")
_TEREDO: Final = IPv6Network("2001::/32")
_INNER: Final[tuple[Network, ...]] = (
    # What Python calls global, in some version or in all of them, and no receiver of webhooks is:
    IPv4Network("168.63.129.16/32"),  # Azure's own services inside of every virtual machine
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),
    IPv4Network("240.0.0.0/4"),
    IPv6Network("2001::/23"),
    IPv6Network("3fff::/20"),
)


def is_public(address: Address) -> bool:
    """Whether an address is one of the internet at large.

    Loopback, private, link-local, shared, unspecified, reserved and multicast addresses are none, nor are those by
    which clouds reach their machines; an IPv6 address that carries an IPv4 address is judged by that.
    """
    if isinstance(address, IPv6Address):
        if (carried := _carried(address)) is not None:
            return is_public(carried)
        if address not in _PUBLIC_V6 or address in _TEREDO or address.scope_id is not None:
            return False
        if int(address) >> 32 & 0xFDFFFFFF == 0x00005EFE:  # ISATAP: a router sends it on to the IPv4 address below
            return False
    return address.is_global and not address.is_multicast and not any(address in each for each in _INNER)


def _carried(address: IPv6Address) -> IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _SIX_TO_FOUR:
        return address.sixtofour
    return IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None


@dataclass(frozen=True, slots=True)
class Hosts:
    """A list of hosts: names, which may hold `*`, and addresses and networks."""

    patterns: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()

    @classmethod
    def read(cls, text: str) -> "Hosts":
        """From a setting, with commas between."""
        listed = [each.strip().lower() for each in text.split(",")]
        patterns: list[str] = []
        networks: list[Network] = []
        for each in filter(None, listed):
            try:
                networks.append(ip_network(each.removeprefix("[").removesuffix("]"), strict=False))
            except ValueError:
                patterns.append(each.rstrip("."))
        return cls(tuple(patterns), tuple(networks))

    def __bool__(self) -> bool:
        return bool(self.patterns or self.networks)

    def names(self, host: str) -> bool:
        """Whether a host is listed, by its name or, where it is an address, by that."""
        host = host.lower().rstrip(".")
        if any(fnmatchcase(host, each) for each in self.patterns):
            return True
        try:
            return self.holds(ip_address(host))
        except ValueError:
            return False

    def holds(self, address: Address) -> bool:
        """Whether an address is listed, as itself or in a network. A pattern of names lists none."""
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return any((mapped or address) in each for each in self.networks)
