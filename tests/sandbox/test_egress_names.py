"""One spelling for each host, and which addresses are public."""

from __future__ import annotations

import ipaddress
import re
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.sandbox.egress_rules import (
    format_host_port,
    is_allowed_private_address,
    is_ip_address,
    is_public_address,
    normalise_host,
    split_host_port,
)

LONG = ".".join(["a" * 61] * 4)


@pytest.mark.parametrize(
    ("host", "spelt"),
    [
        ("allowed.test", "allowed.test"),
        ("ALLOWED.Test", "allowed.test"),
        ("allowed.test.", "allowed.test"),
        ("_dmarc.x-y.test", "_dmarc.x-y.test"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("bu\u0308cher.example", "xn--bcher-kva.example"),
        ("93.184.216.34", "93.184.216.34"),
        ("93.184.216.34.", "93.184.216.34"),
        ("[2606:4700::1111]", "2606:4700::1111"),
        ("2606:4700:0:0::1111", "2606:4700::1111"),
        ("[::1]", "::1"),
        ("1.example", "1.example"),
        ("0x7f.example", "0x7f.example"),
        (LONG + ".abcde", LONG + ".abcde"),
    ],
)
def test_a_host_has_one_spelling(host: str, spelt: str) -> None:
    assert normalise_host(host) == spelt


@pytest.mark.parametrize(
    "host",
    [
        "", ".", "..", "allowed.test..", ".allowed.test", "allowed..test",
        "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "127.0.1", "1.2.3.4.5", "127.0.0.0x1", "0x",
        "127.0.0.01", "256.1.1.1", "0", "１２７.0.0.1", "127。0。0。1",
        "[127.0.0.1]", "[allowed.test]", "[::1", "::1]", "[]", "[::1].", "::ffff:127.0.0.1", "[::ffff:7f00:1]",
        "fe80::1%eth0", "[fe80::1%251]", ":", "::1::",
        "allowed.test\0", "allowed.test\0.evil", "allowed .test", "allowed.test ", "\tallowed.test", "allowed\n.test",
        "user@allowed.test", "allowed.test@evil", "a/b", "a\\b", "a,b", "a*b", "*.test", "a%2e.test", "a?b", "a#b",
        "-a.test", "a-.test", "a" * 64 + ".test", LONG + ".abcdef", "x" * 10_000,
        "straße.example", "ａllowed.test", "al\u00adlowed.test", "al\u200dlowed.test", "allowed。test",
        "ﬁle.test", "\ud800.test",
    ],
)  # fmt: skip
def test_what_programs_could_read_in_two_ways_has_none(host: str) -> None:
    with pytest.raises(ValueError, match=r"^(is|has|names) "):
        normalise_host(host)


@pytest.mark.parametrize("host", ["аllowed.test", "allоwed.test", "allowеd.test"])
def test_a_name_that_only_looks_the_same_is_another(host: str) -> None:
    assert normalise_host(host).startswith("xn--")


@given(st.text(max_size=300) | st.text("aA.-_0x17:[]%@é。", max_size=30))
def test_a_spelling_is_its_own_and_holds_nothing_strange(host: str) -> None:
    try:
        spelt = normalise_host(host)
    except ValueError:
        return
    assert normalise_host(spelt) == spelt
    assert re.fullmatch(r"[a-z0-9_.:-]{1,253}", spelt)
    if not is_ip_address(spelt):
        with pytest.raises(OSError, match=r".*"):  # the system itself reads no address in it
            socket.inet_aton(spelt)


@given(st.ip_addresses())
def test_an_address_is_spelt_as_the_standard_library_does(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    try:
        assert normalise_host(str(ip)) == str(ip)
    except ValueError:
        assert isinstance(ip, ipaddress.IPv6Address)
        assert ip.ipv4_mapped is not None


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a.test", ("a.test", 0)),
        ("a.test:8443", ("a.test", 8443)),
        ("[::1]:80", ("[::1]", 80)),
        ("[::1]", ("[::1]", 0)),
        ("::1", ("::1", 0)),
        ("a:1:2", ("a:1:2", 0)),
        (":80", ("", 80)),
    ],
)
def test_a_port_is_split_off(text: str, parts: tuple[str, int]) -> None:
    assert split_host_port(text) == parts


@pytest.mark.parametrize(
    "text",
    [
        "a:",
        "a:0",
        "a:65536",
        "a:443junk",
        "a:-1",
        "a:+80",
        "a: 80",
        "a:0x50",
        "a:٤٤٣",
        "a:99999999",
        "[::1]80",
        "[::1]:",
    ],
)
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^has "):
        split_host_port(text)


def test_a_place_is_written_so_that_it_can_be_read_again() -> None:
    assert [split_host_port(format_host_port(host, 80)) for host in ("a.test", "::1")] == [
        ("a.test", 80),
        ("[::1]", 80),
    ]
    assert format_host_port("[::ffff:127.0.0.1]", 80) == "[::ffff:127.0.0.1]:80"


PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "2a00:1450:4001::1", "64:ff9b::808:808"]
PRIVATE = [
    "10.0.0.1", "100.64.0.1", "100.127.255.254", "127.0.0.1", "127.255.0.1", "172.16.0.1", "172.31.255.255",
    "192.168.1.1", "198.18.0.1", "::1", "fc00::1", "fd00:ec2::254",
]  # fmt: skip
NEVER = [
    "0.0.0.0", "0.1.2.3", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "198.51.100.1", "203.0.113.9",
    "168.63.129.16", "224.0.0.1", "239.255.255.255", "233.252.0.1", "240.0.0.1", "255.255.255.255",
    "::", "::7f00:1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::1",
    "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::1", "3fff::1", "5f00::1", "fe80::1", "fec0::1",
    "ff02::1", "4000::1",
]  # fmt: skip
LINK_LOCAL = ["169.254.169.254", "169.254.0.1"]


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public_address(address)
    assert is_allowed_private_address(address, by_number=False)


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_not_public_but_can_be_meant(address: str) -> None:
    assert not is_public_address(address)
    assert is_allowed_private_address(address, by_number=False)


@pytest.mark.parametrize("address", LINK_LOCAL)
def test_a_link_local_address_is_meant_only_by_its_number(address: str) -> None:
    assert not is_public_address(address)
    assert not is_allowed_private_address(address, by_number=False)
    assert is_allowed_private_address(address, by_number=True)


@pytest.mark.parametrize("address", NEVER)
def test_other_addresses_are_never_called(address: str) -> None:
    assert not is_public_address(address)
    assert not is_allowed_private_address(address, by_number=True)


@given(st.ip_addresses())
def test_nothing_is_public_that_the_standard_library_calls_private(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    wrapped = ip in ipaddress.ip_network("64:ff9b::/96")
    assert not is_public_address(str(ip)) or ip.is_global or wrapped
