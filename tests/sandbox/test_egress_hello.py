"""Which server a TLS client asks for, read from its first bytes."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.sandbox.egress_proxy import MAX_HELLO_BYTES, ClientHello, ClientHelloReader


def real_hello(name: str | None) -> bytes:
    """What a client of the standard library sends first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    sent = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def record(data: bytes, kind: int = 22, version: bytes = b"\3\1") -> bytes:
    return bytes([kind]) + version + len(data).to_bytes(2) + data


def vector(size: int, data: bytes) -> bytes:
    return len(data).to_bytes(size) + data


def server_name(*names: bytes, kind: int = 0) -> bytes:
    return b"\0\0" + vector(2, vector(2, b"".join(bytes([kind]) + vector(2, name) for name in names)))


def message(extensions: bytes | None, kind: int = 1) -> bytes:
    """A hello with these extensions; None: without any."""
    body = b"\3\3" + bytes(32) + vector(1, b"") + vector(2, b"\x13\1") + vector(1, b"\0")
    return bytes([kind]) + vector(3, body + (vector(2, extensions) if extensions is not None else b""))


def read(*pieces: bytes) -> ClientHello | str | None:
    reader = ClientHelloReader()
    said: ClientHello | str | None = None
    for piece in pieces:
        said = reader.feed(piece)
        if said is not None:
            break
    return said


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


GOOD = message(server_name(b"allowed.test"))


@pytest.mark.parametrize("name", ["allowed.test", "a.b.wild.test", "xn--bcher-kva.example"])
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_real_hello_is_read_in_any_pieces(name: str, size: int) -> None:
    assert read(*cut(real_hello(name), size)) == ClientHello(name)


def test_a_hello_without_a_name_is_one() -> None:
    assert read(real_hello(None)) == ClientHello("")
    assert read(record(message(None))) == ClientHello("")
    assert read(record(message(b""))) == ClientHello("")


@pytest.mark.parametrize("size", [1, 3, 4, 5, 50])
def test_a_hello_may_lie_in_many_records(size: int) -> None:
    assert read(b"".join(record(piece) for piece in cut(GOOD, size))) == ClientHello("allowed.test")


def test_a_name_is_given_as_it_was_sent() -> None:
    assert read(record(message(server_name(b"Allowed.TEST.")))) == ClientHello("Allowed.TEST.")


def test_what_follows_the_hello_is_not_looked_at() -> None:
    assert read(record(GOOD) + record(b"early data", kind=23)) == ClientHello("allowed.test")


def test_an_unfinished_hello_is_waited_for() -> None:
    whole = record(GOOD[:20]) + record(GOOD[20:])
    assert {read(whole[:count]) for count in range(len(whole))} == {None}


OUTER = b"\xfe\x0d" + vector(2, b"\0" + bytes(60))  # encrypted client hello: its outer name is what counts


@pytest.mark.parametrize(
    ("extensions", "said"),
    [
        (OUTER + server_name(b"outer.test"), ClientHello("outer.test")),
        (server_name(b"a.test", b"b.test"), None),
        (server_name(b"a.test") + server_name(b"b.test"), None),
        (OUTER + OUTER, None),
        (server_name(), None),
        (server_name(b""), None),
        (server_name(b"a.test", kind=1), None),
        (server_name(b"\xff.test"), None),
        (b"\0\0" + vector(2, b""), None),
        (b"\0\0" + vector(2, vector(2, b"\0" + vector(2, b"a.test")) + b"x"), None),
        (b"\0\0\0\xff" + b"short", None),
        (b"\0", None),
    ],
)
def test_a_hello_that_could_be_read_in_two_ways_is_broken(extensions: bytes, said: ClientHello | None) -> None:
    assert read(record(message(extensions))) == (said or "begins with a broken TLS hello")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n", b"SSH-2.0-x", b"\0", b"\x16\x02", b"\x16\3\0\0\5", b"\x16\3\5", b"\x17\3\3\0\1x",
        b"\x80\x2e\1\3\1", b"\x15\3\1\0\2\1\0", record(b""), b"\x16\3\1\x40\1" + b"\1" * 20_000,
    ],
)  # fmt: skip
def test_what_is_no_tls_is_told_at_once(data: bytes) -> None:
    assert read(data) == "does not begin with a TLS hello"


@pytest.mark.parametrize(
    "data",
    [
        record(message(None, kind=2)), record(GOOD + b"x"), record(GOOD + GOOD), record(GOOD[:9]) + b"GET / HTTP",
        record(GOOD[:9]) + record(GOOD[9:], kind=23), record(b"\1\0\0\0"), record(GOOD[:4] + GOOD[5:] + b"\0"),
        record(b"\1\xff\xff\xff" + bytes(16_000)) + record(bytes(MAX_HELLO_BYTES - 16_000)),
    ],
)  # fmt: skip
def test_a_broken_hello_is_told(data: bytes) -> None:
    assert read(data) == "begins with a broken TLS hello"


@given(st.lists(st.binary(max_size=80), max_size=8))
def test_no_bytes_make_it_raise(pieces: Sequence[bytes]) -> None:
    assert isinstance(read(*pieces), ClientHello | str | None)
    assert isinstance(read(record(b"".join(pieces))), ClientHello | str | None)


@given(st.data())
def test_no_change_of_a_good_hello_makes_it_raise(data: st.DataObject) -> None:
    changed = bytearray(record(GOOD))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    assert isinstance(read(bytes(changed)), ClientHello | str | None)


@given(st.binary(max_size=400), st.integers(1, 60))
def test_pieces_say_the_same_as_the_whole(data: bytes, size: int) -> None:
    for whole in (data, record(GOOD[:30]) + data, record(GOOD) + data):
        assert read(*cut(whole, size)) == read(whole)
