"""Host names and addresses, entries of the allow-list, and what they permit."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.sandbox.egress_rules import (
    MAX_ADDRESSES,
    NOT_LISTED,
    OTHER_PORT,
    AllowedHost,
    AllowList,
    allow_list_entry_for,
    allow_list_entry_problem,
    format_host_port,
    is_allowed_private_address,
    is_ip_address,
    is_public_address,
    normalise_host,
    resolve_addresses,
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


LIST = (
    "allowed.test", "*.wild.test", "api.test:8443", "*.deep.test:9000", "93.184.216.34", "[2606:4700::1111]:8080",
    "private:db.corp:5432", "private:10.0.0.5", "private:[fd00::1]:80", "private:localhost:3000", "bücher.example",
)  # fmt: skip


@pytest.mark.parametrize(
    ("host", "port", "private"),
    [
        ("allowed.test", 443, False), ("ALLOWED.TEST.", 443, False),
        ("a.wild.test", 443, False), ("a.b.wild.test", 443, False), ("api.test", 8443, False),
        ("x.deep.test", 9000, False), ("93.184.216.34", 443, False), ("[2606:4700:0::1111]", 8080, False),
        ("db.corp", 5432, True), ("10.0.0.5", 443, True), ("[fd00::1]", 80, True), ("LOCALHOST", 3000, True),
        ("xn--bcher-kva.example", 443, False), ("BÜCHER.example", 443, False),
    ],
)  # fmt: skip
def test_what_is_listed_is_allowed(host: str, port: int, private: bool) -> None:
    assert AllowList(LIST).judge(host, port) == AllowedHost(normalise_host(host), private)


@pytest.mark.parametrize(
    ("host", "port", "why"),
    [
        ("other.test", 443, NOT_LISTED), ("evilallowed.test", 443, NOT_LISTED), ("allowed.test.evil", 443, NOT_LISTED),
        ("sub.allowed.test", 443, NOT_LISTED), ("wild.test", 443, NOT_LISTED), ("evilwild.test", 443, NOT_LISTED),
        ("a.wild.test.evil", 443, NOT_LISTED), ("allowed", 443, NOT_LISTED), ("test", 443, NOT_LISTED),
        ("аllowed.test", 443, NOT_LISTED), ("127.0.0.1", 80, NOT_LISTED), ("10.0.0.6", 80, NOT_LISTED),
        ("169.254.169.254", 80, NOT_LISTED), ("::1", 80, NOT_LISTED), ("[2606:4700::1112]", 8080, NOT_LISTED),
        ("allowed.test", 22, OTHER_PORT), ("allowed.test", 80, OTHER_PORT),
        ("allowed.test", 8443, OTHER_PORT), ("api.test", 443, OTHER_PORT),
        ("a.deep.test", 443, OTHER_PORT), ("db.corp", 443, OTHER_PORT), ("allowed.test", 0, OTHER_PORT),
        ("allowed.test", -443, OTHER_PORT), ("2130706433", 80, "is an address in a form"),
        ("allowed.test\0", 443, "has a blank"), ("allowed.test..", 443, "is not a host name"),
        ("me@allowed.test", 443, "has a user name"), ("", 443, "names no host"),
    ],
)  # fmt: skip
def test_what_is_not_listed_is_not_allowed(host: str, port: int, why: str) -> None:
    judged = AllowList(LIST).judge(host, port)
    assert isinstance(judged, str)
    assert judged.startswith(why)


@pytest.mark.parametrize("host", ["allowed.test", "127.0.0.1", "localhost", ""])
def test_an_empty_list_allows_nothing(host: str) -> None:
    assert isinstance(AllowList(()).judge(host, 443), str)


def test_a_host_is_private_where_one_entry_for_its_port_says_so() -> None:
    rules = AllowList(("git.corp", "private:git.corp:8080", "*.corp.test", "private:a.corp.test"))
    assert rules.judge("git.corp", 8080) == AllowedHost("git.corp", True)
    assert rules.judge("git.corp", 443) == AllowedHost("git.corp", False)
    assert rules.judge("a.corp.test", 443) == AllowedHost("a.corp.test", True)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("*", "every host"), ("*:443", "star"), ("*.com", "too many"), ("*.com:443", "too many"), ("*.", "no host"),
        ("", "no host"), ("private:", "no host"), (":443", "no host"), ("*.*.test", "star"), ("a*.test", "star"),
        ("a.*", "star"), ("private:*.corp.test", "star"), ("*.[::1]", "star before an address"),
        ("*.0.0.1", "form that programs read differently"), ("https://a.test", "more than a host"),
        ("a.test/path", "more than a host"), ("a.test:0", "port"), ("a.test:https", "port"), ("a.test:", "port"),
        ("10.0.0.1", "write private:10.0.0.1"), ("127.0.0.1:8080", "write private:127.0.0.1:8080"),
        ("[::1]:80", "write private:[::1]:80"), ("169.254.169.254", "private:"), ("localhost", "private:localhost"),
        ("pyip", "without a dot"), ("private:0.0.0.0", "cannot be called"), ("private:224.0.0.1", "cannot be called"),
        ("private:::ffff:10.0.0.1", "inside an IPv6"), ("2130706433", "form"), ("a test", "blank"),
        (" a.test", "blank"),
        ("me@a.test", "user name"), ("private:private:a.test", "port"), ("Private:a.test", "port"),
        ("straße.example", "xn--"),
    ],
)  # fmt: skip
def test_a_bad_entry_is_told_in_words(entry: str, problem: str) -> None:
    assert problem in allow_list_entry_problem(entry)
    with pytest.raises(ValueError, match=r"^'") as told:
        AllowList(("fine.test", entry))
    assert str(told.value) == f"{entry!r} {allow_list_entry_problem(entry)}"


@pytest.mark.parametrize("entry", [*LIST, "8.8.8.8:53", "2606:4700::1111", "A.Test.", "private:169.254.169.254"])
def test_nothing_is_wrong_with_a_good_entry(entry: str) -> None:
    assert allow_list_entry_problem(entry) == ""


@pytest.mark.parametrize(
    ("host", "port", "entry"),
    [
        ("Other.test", 443, "other.test"), ("other.test", 8080, "other.test:8080"),
        ("10.0.0.1", 443, "private:10.0.0.1"), ("10.0.0.1", 80, "private:10.0.0.1:80"),
        ("[::1]", 8080, "private:[::1]:8080"), ("[2606:4700::1]", 443, "[2606:4700::1]"), ("db", 443, "private:db"),
        ("2130706433", 80, ""), ("0.0.0.0", 80, ""), ("a b", 80, ""),
    ],
)  # fmt: skip
def test_the_entry_that_is_proposed_allows_the_call(host: str, port: int, entry: str) -> None:
    assert allow_list_entry_for(host, port) == entry
    if entry:
        assert isinstance(AllowList((entry,)).judge(host, port), AllowedHost)


class Names:
    """A resolver with one set of addresses, which counts."""

    def __init__(self, *found: str) -> None:
        self.found, self.asked = found, 0

    def __call__(self, host: str, port: int, **_: object) -> Sequence[tuple[int, int, int, str, tuple[object, ...]]]:
        self.asked += 1
        kinds = [socket.AF_INET6 if ":" in one else socket.AF_INET for one in self.found]
        return [(kind, 1, 6, "", (one, 7)) for kind, one in zip(kinds, self.found, strict=True)]


def test_only_public_addresses_are_called_after_one_lookup() -> None:
    names = Names("127.0.0.1", "93.184.216.34", "10.1.1.1", "2606:4700::1", "fe80::1%eth0", "93.184.216.34", "2606:::")
    found = resolve_addresses(AllowedHost("a.test", False), 443, resolve=names)
    assert found == [
        (socket.AF_INET, ("93.184.216.34", 443)),
        (socket.AF_INET6, ("2606:4700::1", 443, 0, 0)),
    ]
    assert names.asked == 1


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::ffff:10.0.0.1", "fd00::1", "::1"])
def test_a_name_that_leads_home_is_refused(address: str) -> None:
    with pytest.raises(PermissionError, match="has no public address"):
        resolve_addresses(AllowedHost("a.test", False), 443, resolve=Names(address))


def test_a_private_host_may_lie_in_a_private_network_but_not_at_a_clouds_metadata() -> None:
    private = AllowedHost("a.test", True)
    assert resolve_addresses(private, 80, resolve=Names("10.0.0.1")) == [(socket.AF_INET, ("10.0.0.1", 80))]
    with pytest.raises(PermissionError, match="no address that may be called"):
        resolve_addresses(private, 80, resolve=Names("169.254.169.254", "224.0.0.1", "0.0.0.0", "fd00::1%2"))
    assert resolve_addresses(AllowedHost("169.254.169.254", True), 80) == [(socket.AF_INET, ("169.254.169.254", 80))]


def test_an_address_needs_no_lookup() -> None:
    names = Names("10.0.0.1")
    assert resolve_addresses(AllowedHost("93.184.216.34", False), 443, resolve=names) == [
        (socket.AF_INET, ("93.184.216.34", 443))
    ]
    assert names.asked == 0


def test_of_many_addresses_the_first_ones_are_called() -> None:
    found = resolve_addresses(
        AllowedHost("a.test", False), 443, resolve=Names(*(f"93.184.216.{n}" for n in range(100)))
    )
    assert [place[1][0] for place in found] == [f"93.184.216.{n}" for n in range(MAX_ADDRESSES)]


@pytest.mark.parametrize("failure", [socket.gaierror(-2, "Name or service not known"), UnicodeError("label too long")])
def test_a_name_that_is_not_found_is_told(failure: Exception) -> None:
    def failing(*_: object, **__: object) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
        raise failure

    with pytest.raises(OSError, match=r"^was not found: (Name or service not known|label too long)$"):
        resolve_addresses(AllowedHost("a.test", False), 443, resolve=failing)


def test_the_system_is_asked_where_no_resolver_is_given() -> None:
    found = resolve_addresses(AllowedHost("localhost", True), 80)
    assert {place[1][0] for place in found} <= {"127.0.0.1", "::1"}
