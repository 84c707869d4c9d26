"""Which addresses are public, and which hosts a list names."""

from ipaddress import ip_address

import pytest

from taskgraph.engine.addresses import Hosts, is_public

INNER = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254"),  # noqa: S104
    *("169.254.169.254", "168.63.129.16", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.0.192", "192.0.2.1"),
    *("192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.9", "224.0.0.1", "239.1.2.3"),
    *("240.0.0.1", "255.255.255.255"),
    *("::", "::1", "fe80::1", "fe80::1%2", "febf::1", "fc00::1", "fd00:ec2::254", "ff02::1", "ff0e::1", "100::1"),
    *("::127.0.0.1", "::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::ffff:0:127.0.0.1", "64:ff9b::10.0.0.1"),
    *("64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001::1", "2001:db8::1"),
    *("2001:0:7f00:1::", "3fff::1", "5f00::1", "fec0::1", "2a01::5efe:10.0.0.1", "2a01::200:5efe:7f00:1"),
    *("4000::1", "2620:4f:8000::1%eth0"),
]
OUTER = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "2a00:1450:4001:80b::200e"]
OUTER += ["::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]


@pytest.mark.parametrize("text", INNER)
def test_an_address_inside_of_a_network_is_not_public(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", OUTER)
def test_an_address_of_the_internet_is_public(text: str) -> None:
    assert is_public(ip_address(text))


def test_a_list_names_hosts_by_pattern_and_addresses_by_network() -> None:
    hosts = Hosts.read(" CI.example.com., ci.xx, ci.xy., *.hooks.example ,10.1.2.3/8, 127.0.0.1,[fd00::1]")
    for host in ("ci.example.com", "CI.XX.", "ci.xy", "a.b.hooks.example", "10.9.8.7", "127.0.0.1", "fd00::1"):
        assert hosts.names(host), host
    for host in ("example.com", "hooks.example", "ci.example.com.evil.example", "11.0.0.1", "127.0.0.2", "localhost"):
        assert not hosts.names(host), host
    assert hosts.holds(ip_address("::ffff:10.1.1.1"))
    assert not hosts.holds(ip_address("::1"))


def test_a_pattern_that_fits_every_name_holds_no_address() -> None:
    hosts = Hosts.read("*")
    assert hosts.names("anything.example")
    assert not hosts.holds(ip_address("127.0.0.1"))
    assert not Hosts.read(" , ,")
