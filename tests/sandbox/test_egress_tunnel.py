"""CONNECT: only TLS passes, and only for the host that was judged."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphproof.sandbox.egress_proxy import EgressProxy, ProxyLimits
from tests.needs import require
from tests.sandbox.egress_street import House, Street, read_all, read_head
from tests.sandbox.test_egress_hello import GOOD, cut, message, real_hello, record, server_name


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A server's side of TLS with a certificate of its own."""
    require(shutil.which("openssl") is not None, "openssl makes a certificate")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-subj", "/CN=allowed.test", "-addext",
         "subjectAltName=DNS:allowed.test,IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    trusted.load_verify_locations(folder / "cert.pem")
    return context


trusted = ssl.create_default_context()


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    street = Street(tmp_path)
    yield street
    street.close()


@pytest.fixture
def house(street: Street) -> House:
    """A server that hears everything and says nothing."""
    return street.house(read_all)


@pytest.fixture
def proxy(street: Street, house: House) -> EgressProxy:
    return street.proxy(f"private:allowed.test:{house.port}", f"private:127.0.0.1:{house.port}")


def connect(street: Street, proxy: EgressProxy, place: str) -> socket.socket:
    """A client whose tunnel is open."""
    client = street.enter(proxy)
    client.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
    assert read_head(client) == b"HTTP/1.1 200 Connection established\r\n\r\n"
    return client


def tls_house(street: Street, context: ssl.SSLContext) -> House:
    """Echoes one line over TLS."""

    def echo(connection: socket.socket) -> bytes:
        with context.wrap_socket(connection, server_side=True) as secure:
            got = secure.recv(65536)
            secure.sendall(b"you said: " + got)
            return bytes(got)

    return street.house(echo)


@pytest.mark.parametrize("name", ["allowed.test", "127.0.0.1"])
def test_real_tls_passes_and_is_the_servers_own(street: Street, served: ssl.SSLContext, name: str) -> None:
    house = tls_house(street, served)
    proxy = street.proxy(f"private:allowed.test:{house.port}", f"private:127.0.0.1:{house.port}")
    client = connect(street, proxy, f"{name}:{house.port}")
    with trusted.wrap_socket(client, server_hostname=name) as secure:
        secure.sendall(b"hello")
        assert secure.recv(100) == b"you said: hello"
    street.close()
    assert [(line["how"], line["allowed"]) for line in street.told()] == [("CONNECT", True)]


def test_real_tls_with_another_name_does_not_pass(street: Street, served: ssl.SSLContext) -> None:
    house = tls_house(street, served)
    client = connect(street, street.proxy(f"private:allowed.test:{house.port}"), f"allowed.test:{house.port}")
    with pytest.raises((ssl.SSLError, ConnectionError)), client:
        trusted.wrap_socket(client, server_hostname="fronted.example")
    street.close()
    assert house.got in ([], [b""])
    assert street.blocked() == (f"fronted.example:{house.port}",)


def heard(street: Street, house: House, client: socket.socket, *pieces: bytes) -> bytes:
    """What the server gets of these, when the client ends after them."""
    with client:
        for piece in pieces:
            try:
                client.sendall(piece)
            except ConnectionError:
                break
        try:
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        assert read_all(client) == b""
    street.all_served()
    house.close()
    assert house.callers == 1
    return house.got[0]


@pytest.mark.parametrize("name", ["allowed.test", "Allowed.TEST", "allowed.test."])
@pytest.mark.parametrize("size", [50, 100_000])
def test_a_hello_for_the_host_passes_byte_by_byte(
    street: Street, house: House, proxy: EgressProxy, name: str, size: int
) -> None:
    hello = record(message(server_name(name.encode())))
    client = connect(street, proxy, f"ALLOWED.test.:{house.port}")
    assert heard(street, house, client, *cut(hello + b"rest", size)) == hello + b"rest"
    assert street.blocked() == ()


def test_a_hello_over_many_records_passes_as_it_came(street: Street, house: House, proxy: EgressProxy) -> None:
    hello = b"".join(record(piece) for piece in cut(GOOD, 10))
    client = connect(street, proxy, f"allowed.test:{house.port}")
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    assert heard(street, house, client, *cut(hello, 3), b"rest") == hello + b"rest"


def test_a_hello_may_come_with_the_request(street: Street, house: House, proxy: EgressProxy) -> None:
    hello = real_hello("allowed.test")
    with street.enter(proxy) as client:
        client.sendall(b"CONNECT allowed.test:%d HTTP/1.1\r\n\r\n" % house.port + hello)
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b"HTTP/1.1 200 Connection established\r\n\r\n"
    street.close()
    assert house.got == [hello]


@pytest.mark.parametrize(
    ("place", "first", "blocked"),
    [
        ("allowed.test", record(message(server_name(b"other.test"))), "other.test"),
        ("allowed.test", record(message(server_name(b"sub.allowed.test"))), "sub.allowed.test"),
        ("allowed.test", record(message(server_name(b"allowed.test.evil"))), "allowed.test.evil"),
        ("allowed.test", record(message(server_name(b"127.0.0.1"))), "127.0.0.1"),
        ("allowed.test", record(message(server_name(b"allowed.test\0"))), "allowed.test"),
        ("allowed.test", record(message(server_name(b"allowed.test.."))), "allowed.test.."),
        ("allowed.test", record(message(server_name(b"allowed.test", b"other.test"))), "allowed.test"),
        ("allowed.test", record(message(None)), "allowed.test"),
        ("allowed.test", b"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "allowed.test"),
        ("allowed.test", b"SSH-2.0-OpenSSH_9.9\r\n", "allowed.test"),
        ("allowed.test", record(GOOD)[:40], "allowed.test"),
        ("allowed.test", record(b"x", kind=23), "allowed.test"),
        ("127.0.0.1", record(message(server_name(b"allowed.test"))), "allowed.test"),
        ("127.0.0.1", b"GET / HTTP/1.1\r\n\r\n", "127.0.0.1"),
    ],
)
def test_what_begins_otherwise_is_closed_and_not_a_byte_of_it_passes(
    street: Street, house: House, proxy: EgressProxy, place: str, first: bytes, blocked: str
) -> None:
    client = connect(street, proxy, f"{place}:{house.port}")
    assert heard(street, house, client, first) == b""
    assert street.blocked() == (f"{blocked}:{house.port}",)
    assert street.told()[-1]["how"] == "SNI"


@pytest.mark.parametrize("first", [record(message(None)), record(message(server_name(b"127.0.0.1")))])
def test_a_host_that_is_an_address_needs_no_name(
    street: Street, house: House, proxy: EgressProxy, first: bytes
) -> None:
    assert heard(street, house, connect(street, proxy, f"127.0.0.1:{house.port}"), first) == first


def test_a_client_that_says_nothing_and_ends_is_no_refusal(street: Street, house: House, proxy: EgressProxy) -> None:
    assert heard(street, house, connect(street, proxy, f"allowed.test:{house.port}")) == b""
    assert street.blocked() == ()


@pytest.mark.parametrize("begun", [b"", record(GOOD)[:20]])
def test_a_client_that_stalls_before_its_hello_is_cut_off(street: Street, house: House, begun: bytes) -> None:
    proxy = street.proxy(f"private:allowed.test:{house.port}", limits=ProxyLimits(head_s=0.2))
    with connect(street, proxy, f"allowed.test:{house.port}") as client:
        client.sendall(begun)
        assert read_all(client) == b""
    assert street.blocked() == (f"allowed.test:{house.port}",)


def test_a_tunnel_may_be_ended_by_either_side_first(street: Street) -> None:
    hello = real_hello("allowed.test")

    def speaks_last(connection: socket.socket) -> bytes:
        got = read_all(connection)
        connection.sendall(b"late")
        return got

    def ends_first(connection: socket.socket) -> bytes:
        connection.shutdown(socket.SHUT_WR)
        return read_all(connection)

    late, early = street.house(speaks_last), street.house(ends_first)
    proxy = street.proxy(f"private:allowed.test:{late.port}", f"private:allowed.test:{early.port}")
    with connect(street, proxy, f"allowed.test:{late.port}") as client:
        client.sendall(hello)
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b"late"
    with connect(street, proxy, f"allowed.test:{early.port}") as client:
        client.sendall(hello)
        assert client.recv(100) == b""
        client.sendall(b"still here")
    street.close()
    assert (late.got, early.got) == ([hello], [hello + b"still here"])
