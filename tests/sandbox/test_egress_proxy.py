"""The egress proxy: which hosts are reached, that only TLS for the judged host passes, and how connections end."""

from __future__ import annotations

import base64
import resource
import shutil
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.sandbox.egress_proxy import MAX_HEAD_BYTES, EgressProxy, PortForward, ProxyLimits, ProxyRequest
from ralphproof.sandbox.egress_proxy import parse_request as parse
from tests.needs import require
from tests.sandbox.egress_street import House, Street, read_all, read_head
from tests.sandbox.test_egress_hello import GOOD, cut, message, real_hello, record, server_name

LARGE = 24 << 20
SMALL_S = 0.2
CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    before = threading.active_count()
    street = Street(tmp_path)
    yield street
    street.close()
    assert threading.active_count() == before


@pytest.fixture
def house(street: Street) -> House:
    """A server that receives everything and sends nothing."""
    return street.house(read_all)


@pytest.fixture
def proxy(street: Street, house: House) -> EgressProxy:
    return street.proxy(f"private:allowed.test:{house.port}", f"private:127.0.0.1:{house.port}")


def status(answered: bytes) -> int:
    return int(answered.split(b" ", 2)[1])


def connect(street: Street, proxy: EgressProxy, place: str) -> socket.socket:
    """A client whose tunnel is open."""
    client = street.enter(proxy)
    client.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
    assert read_head(client) == CONNECTED
    return client


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


# Which hosts are reached.


def test_a_refusal_says_what_the_user_can_do(street: Street, proxy: EgressProxy) -> None:
    got = street.ask(proxy, b"CONNECT Other.test:443 HTTP/1.1\r\n\r\n")
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403 ")
    assert b"\r\nX-Ralph-Blocked: other.test:443\r\n" in head
    assert body.decode() == (
        "ralph sandbox: other.test:443 is not on the allow-list (sandbox.allowHosts); "
        "the user can allow it with --allow-host other.test\n"
    )
    assert b"\r\nContent-Length: %d\r\n" % len(body) in head
    assert street.blocked() == ("other.test:443",)
    assert street.lookups == []


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("other.test:8443", "--allow-host other.test:8443\n"),
        ("allowed.test:22", "with other ports only; the user can allow it with --allow-host allowed.test:22\n"),
        ("10.0.0.1:5432", "--allow-host private:10.0.0.1:5432\n"),
        ("[::1]:443", "ralph sandbox: [::1]:443 is not on the allow-list (sandbox.allowHosts); "
         "the user can allow it with --allow-host private:[::1]\n"),
        ("2130706433:443", "2130706433:443 is an address in a form that programs read differently\n"),
    ],
)  # fmt: skip
def test_what_is_proposed_would_help(street: Street, proxy: EgressProxy, place: str, told: str) -> None:
    got = street.ask(proxy, f"CONNECT {place} HTTP/1.1\r\n\r\n".encode())
    assert status(got) == 403
    assert got.decode().endswith(told)


TRICKS = [
    "127.0.0.2:{port}", "2130706433:{port}", "0x7f000001:{port}", "0x7f.1:{port}", "0177.0.0.1:{port}", "127.1:{port}",
    "[::1]:{port}", "[::ffff:127.0.0.1]:{port}", "[::ffff:7f00:1]:{port}", "0.0.0.0:{port}", "0:{port}",
    "localhost:{port}", "evilallowed.test:{port}", "allowed.test.evil:{port}", "sub.allowed.test:{port}",
    "allowed.test..:{port}", ".allowed.test:{port}", "xn--llowed-5nf.test:{port}", "allowed.test:1", "allowed.test",
    "allowed.test:{port}junk", "allowed.test:0", "allowed.test:65536", "allowed.test:", "me@allowed.test:{port}",
    "allowed.test:{port}@other.test:{port}", "other.test:{port}@allowed.test:{port}",
    "allowed.test:{port}#@other.test", "allowed.test\\@other.test:{port}", ":{port}", "//allowed.test:{port}", "/",
    "allowed.test%00:{port}", "allowed.test%2eevil:{port}", "allowed.test,other.test:{port}", "*:{port}",
    "*.test:{port}", "\xe4.test:{port}", "[allowed.test]:{port}", "::1:{port}", "",
]  # fmt: skip


@pytest.mark.parametrize("line", ["CONNECT {0}", "GET http://{0}/", "GET https://{0}/", "GET {0}"])
def test_no_trick_gets_out(street: Street, house: House, proxy: EgressProxy, line: str) -> None:
    for trick in TRICKS:
        asked = line.format(trick.format(port=house.port))
        got = street.ask(proxy, f"{asked} HTTP/1.1\r\nHost: allowed.test:{house.port}\r\n\r\n".encode("latin-1"))
        assert status(got) in (400, 403, 405), asked
    street.close()
    assert (house.callers, street.lookups) == (0, [])
    assert not any(line["allowed"] for line in street.told())


def test_an_empty_list_refuses_everything(street: Street, house: House) -> None:
    proxy = street.proxy()
    for host in ("allowed.test", "127.0.0.1", "localhost"):
        assert status(street.ask(proxy, b"CONNECT %s:%d HTTP/1.1\r\n\r\n" % (host.encode(), house.port))) == 403
    street.close()
    assert (house.callers, street.lookups) == (0, [])


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fd00::1"])
def test_a_name_that_leads_to_a_private_address_is_refused(street: Street, house: House, address: str) -> None:
    street.leads["allowed.test"] = [address]
    got = street.ask(
        street.proxy(f"allowed.test:{house.port}"), b"CONNECT allowed.test:%d HTTP/1.1\r\n\r\n" % house.port
    )
    assert status(got) == 403
    assert got.endswith(
        b" has no public address; the user can allow it with --allow-host private:allowed.test:%d\n" % house.port
    )
    assert street.blocked() == (f"allowed.test:{house.port}",)
    street.close()
    assert house.callers == 0


def test_a_name_that_changes_its_mind_is_looked_up_once(street: Street, house: House, proxy: EgressProxy) -> None:
    street.leads["allowed.test"] = ["127.0.0.1", "127.9.9.9"]
    assert street.ask(proxy, b"CONNECT allowed.test:%d HTTP/1.1\r\n\r\n" % house.port) == CONNECTED
    assert street.lookups == ["allowed.test"]
    street.close()
    assert house.callers == 1


def test_a_host_that_is_not_there_is_told(street: Street, house: House) -> None:
    street.leads["gone.test"] = ["nowhere"]
    free = socket.create_server(("127.0.0.1", 0))
    port = int(free.getsockname()[1])
    free.close()
    proxy = street.proxy("gone.test", f"private:shut.test:{port}")
    got = street.ask(proxy, b"CONNECT gone.test:443 HTTP/1.1\r\n\r\n")
    assert status(got) == 502
    assert b"gone.test:443 could not be reached: was not found: Name or service not known\n" in got
    got = street.ask(proxy, b"CONNECT shut.test:%d HTTP/1.1\r\n\r\n" % port)
    assert status(got) == 502
    assert got.endswith(b"could not be reached: Connection refused\n")
    assert [line["allowed"] for line in street.told()] == [True, True]
    assert street.blocked() == ()


def test_the_second_address_is_tried_where_the_first_does_not_answer(street: Street) -> None:
    house = street.house(family=socket.AF_INET6)

    def both(*_: object, **__: object) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
        return [(socket.AF_INET, 1, 6, "", ("127.0.0.1", 0)), (socket.AF_INET6, 1, 6, "", ("::1", 0, 0, 0))]

    street.resolve = both  # type: ignore[method-assign]
    connect(street, street.proxy(f"private:allowed.test:{house.port}"), f"allowed.test:{house.port}").close()


# Plain HTTP.


def test_plain_http_is_refused_with_what_to_do(street: Street, house: House) -> None:
    proxy = street.proxy(f"allowed.test:{house.port}")
    got = street.ask(proxy, b"GET http://Allowed.test:%d/x HTTP/1.1\r\nHost: allowed.test\r\n\r\n" % house.port)
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    assert b"\r\nAllow: CONNECT\r\n" in head
    place = f"allowed.test:{house.port}"
    assert body.decode() == f"ralph sandbox: {place}: plain HTTP is not forwarded; use https://\n"
    assert street.blocked() == (f"http://{place} (plain HTTP is not forwarded; use https://)",)
    street.close()
    assert (house.callers, street.lookups) == (0, [])


def test_plain_http_to_a_host_that_is_not_listed_is_refused_for_that_reason(street: Street, house: House) -> None:
    place = f"other.test:{house.port}"
    got = street.ask(street.proxy(f"allowed.test:{house.port}"), f"GET http://{place}/ HTTP/1.1\r\n\r\n".encode())
    assert status(got) == 403
    advice = f"the user can allow it with --allow-host private:{place}"
    assert got.decode().endswith(f"{place} is not on the allow-list (sandbox.allowHosts); {advice}\n")
    assert street.blocked() == (place,)
    street.close()
    assert (house.callers, street.lookups) == (0, [])


def test_a_server_of_the_users_own_network_may_be_called_by_plain_http(street: Street) -> None:
    house = street.house()
    proxy = street.proxy(f"private:model.test:{house.port}")
    place = b"Model.test:%d" % house.port
    fields = b"Host: evil.test\r\nhost : evil.test\r\nProxy-Authorization: Basic x\r\nConnection: keep-alive\r\nA: b"
    with street.enter(proxy) as client:
        client.sendall(b"POST http://%s/v1?x=y HTTP/1.1\r\n%s\r\nContent-Length: 4\r\n\r\nbo" % (place, fields))
        client.sendall(b"dy")
        assert read_all(client).endswith(b"\r\n\r\nhello")
    street.close()
    told = b"Host: %s\r\nA: b\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody" % place
    assert house.got == [b"POST /v1?x=y HTTP/1.1\r\n" + told]
    assert [(line["host"], line["how"], line["allowed"]) for line in street.told()] == [("model.test", "HTTP", True)]


@pytest.mark.parametrize(
    "raw",
    [
        b"CONNECT allowed.test:%d\r\n\r\n", b"CONNECT allowed.test:%d HTTP/0.9\r\n\r\n", b"\x16\3\1\2\0\r\n%d\r\n\r\n",
        b"CONNECT allowed.test:%d HTTP/2.0\r\n\r\n", b"connect allowed.test:%d HTTP/1.1\r\n\r\n", b"\r\n\r\n",
        b"CONNECT  allowed.test:%d HTTP/1.1\r\n\r\n", b"CONNECT allowed.test:%d HTTP/1.1 \r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: allowed.test:%d\r\n\r\n", b"GET http://allowed.test:%d/a b HTTP/1.1\r\n\r\n",
        b"GET http://allowed.test:%d/ HTTP/1.1\r\nA: b\rHost: evil\r\n\r\n",
        b"GET http://allowed.test:%d/ HTTP/1.1\r\nA: b\nHost: evil\r\n\r\n",
        b"GET http://allowed.test:%d/ HTTP/1.1\r\nA: \0\r\n\r\n", b"GET http://allowed.test:%d/#x HTTP/1.1\r\n\r\n",
        b"CONNECT allowed.test:%d HTTP/1.1\r\nA: " + b"x" * 70_000 + b"\r\n\r\n",
        b"CONNECT allowed.test:%d" + b"x" * 200_000, b"CONNECT allowed.test:%d/path HTTP/1.1\r\n\r\n",
    ],
)  # fmt: skip
def test_a_malformed_request_reaches_nobody(street: Street, house: House, proxy: EgressProxy, raw: bytes) -> None:
    got = street.ask(proxy, raw.replace(b"%d", b"%d" % house.port))
    assert got.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"\r\n\r\nralph sandbox: " in got
    street.close()
    assert (house.callers, street.lookups) == (0, [])
    assert [(line["allowed"], line["port"]) for line in street.told()] == [(False, 0)]
    assert street.blocked() == ()


def test_a_head_has_at_most_64_kib() -> None:
    room = MAX_HEAD_BYTES - len(b"CONNECT a.test:443 HTTP/1.1\r\nA: ")
    assert parse(b"CONNECT a.test:443 HTTP/1.1\r\nA: " + b"x" * room) == ProxyRequest("a.test", 443)
    with pytest.raises(ValueError, match="CONNECT"):
        parse(b"CONNECT a.test:443 HTTP/1.1\r\nA: " + b"x" * (room + 1))


PIECES = st.sampled_from([b"\r\n", b"\r", b"\n", b"\0", b" ", b":", b"Host", b"Proxy-Authorization", b"Basic", b"\t"])


@given(st.binary(max_size=200) | st.lists(PIECES, max_size=20).map(b"".join))
def test_no_bytes_make_it_raise_and_whatever_is_passed_on_is_one_head(noise: bytes) -> None:
    for head in (noise, b"CONNECT a.test:1 HTTP/1.1\r\n" + noise, b"GET http://a.test/ HTTP/1.1\r\n" + noise):
        try:
            asked = parse(head)
        except ValueError:
            continue
        passed = asked.plain_head
        assert passed.replace(b"\r\n", b"").find(b"\r") == passed.replace(b"\r\n", b"").find(b"\n") == -1


def test_a_refusal_is_heard_by_a_client_that_goes_on_sending(street: Street, proxy: EgressProxy) -> None:
    with street.enter(proxy) as client:
        client.sendall(b"POST http://other.test/ HTTP/1.1\r\nContent-Length: 3000000\r\n\r\n")
        client.sendall(b"x" * 3_000_000)
        client.shutdown(socket.SHUT_WR)
        assert status(read_all(client)) == 403


def basic(token: str, user: str = "ralph") -> str:
    return base64.b64encode(f"{user}:{token}".encode()).decode()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([f"Proxy-Authorization: Basic {basic('secret')}"], 200),
        ([f"proxy-authorization: basic  {basic('secret')}"], 200),
        ([], 407),
        ([f"Proxy-Authorization: Basic {basic('other')}"], 407),
        ([f"Proxy-Authorization: Basic {basic('secret', 'root')}"], 407),
        ([f"Proxy-Authorization: Bearer {basic('secret')}"], 407),
        ([f"Authorization: Basic {basic('secret')}"], 407),
        (["Proxy-Authorization: Basic"], 407),
        (["Proxy-Authorization: "], 407),
        ([f"Proxy-Authorization: Basic {basic('secret')}"] * 2, 407),
    ],
)
def test_a_proxy_with_a_token_wants_it(street: Street, house: House, fields: list[str], expected: int) -> None:
    proxy = street.proxy(f"private:allowed.test:{house.port}", token="secret")
    lines = [f"CONNECT allowed.test:{house.port} HTTP/1.1", *fields, "", ""]
    got = street.ask(proxy, "\r\n".join(lines).encode())
    assert status(got) == expected
    assert (b'\r\nProxy-Authenticate: Basic realm="ralph"\r\n' in got) == (expected == 407)
    street.close()
    assert house.callers == (expected == 200)


def test_no_more_than_so_many_are_served_at_a_time(street: Street, house: House) -> None:
    proxy = street.proxy(f"private:allowed.test:{house.port}", limits=ProxyLimits(connections=2))
    request = b"CONNECT allowed.test:%d HTTP/1.1\r\n\r\n" % house.port
    with connect(street, proxy, f"allowed.test:{house.port}"), connect(street, proxy, f"allowed.test:{house.port}"):
        assert status(street.ask(proxy, request)) == 503
    street.all_served()
    assert status(street.ask(proxy, request)) == 200


# Only TLS passes, and only for the host that was judged.


trusted = ssl.create_default_context()


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
    assert street.ask(proxy, b"CONNECT allowed.test:%d HTTP/1.1\r\n\r\n" % house.port + hello) == CONNECTED
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
    proxy = street.proxy(f"private:allowed.test:{house.port}", limits=ProxyLimits(head_s=SMALL_S))
    with connect(street, proxy, f"allowed.test:{house.port}") as client:
        client.sendall(begun)
        assert read_all(client) == b""
    assert street.blocked() == (f"allowed.test:{house.port}",)


# How connections end, and what they cost; ports of this machine.


def count(connection: socket.socket, wanted: int) -> int:
    """How many bytes come, up to so many."""
    got = 0
    while got < wanted and (piece := connection.recv(1 << 20)):
        got += len(piece)
    return got


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


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


def test_much_goes_up_and_comes_down_with_little_memory(street: Street) -> None:
    def mirror(connection: socket.socket) -> bytes:
        got = count(connection, LARGE)
        for _ in range(LARGE >> 20):
            connection.sendall(bytes(1 << 20))
        return b"%d" % got

    house = street.house(mirror)
    before = peak_kib()
    with street.enter(PortForward(house.port, street.audit_file)) as client:
        for _ in range(LARGE >> 20):
            client.sendall(bytes(1 << 20))
        assert count(client, LARGE * 2) == LARGE
    street.close()
    assert house.got == [b"%d" % LARGE]
    assert peak_kib() - before < (LARGE >> 10) // 2


def test_a_server_that_answers_before_it_has_heard_all_is_heard(street: Street) -> None:
    def too_large(connection: socket.socket) -> bytes:
        connection.recv(100)
        connection.sendall(b"too large")
        return b""  # with much unread: a reset follows

    house = street.house(too_large)
    with street.enter(PortForward(house.port, street.audit_file)) as client:
        with pytest.raises(ConnectionError):
            client.sendall(bytes(100_000_000))
        assert read_all(client) == b"too large"


def test_a_slow_reader_holds_the_server_up_and_loses_nothing(street: Street) -> None:
    sent = threading.Event()

    def pour(connection: socket.socket) -> bytes:
        for _ in range(LARGE >> 20):
            connection.sendall(bytes(1 << 20))
        sent.set()
        return b""

    house = street.house(pour)
    with street.enter(PortForward(house.port, street.audit_file)) as client:
        assert not sent.wait(SMALL_S)
        assert count(client, LARGE * 2) == LARGE


@pytest.mark.parametrize("begun", [b"", b"CONNECT a", b"CONNECT a.test:443 HTTP/1.1\r\nA: b\r\n"])
def test_a_client_that_stalls_in_its_head_is_cut_off(street: Street, begun: bytes) -> None:
    proxy = street.proxy("a.test", limits=ProxyLimits(head_s=SMALL_S))
    with street.enter(proxy) as client:
        client.sendall(begun)
        assert read_all(client) == b""
    assert street.told() == []


def test_a_client_that_drips_is_cut_off_all_the_same(street: Street) -> None:
    proxy = street.proxy("a.test", limits=ProxyLimits(head_s=SMALL_S))
    with street.enter(proxy) as client:
        client.settimeout(SMALL_S / 10)
        ended = False
        for _ in range(200):
            try:
                client.sendall(b"x")
                ended = client.recv(100) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True
            if ended:
                break
        assert ended


def test_a_connection_in_which_nothing_moves_is_ended(street: Street, house: House) -> None:
    forward = PortForward(house.port, street.audit_file, limits=ProxyLimits(idle_s=SMALL_S))
    with street.enter(forward) as client:
        assert read_all(client) == b""
    street.all_served()


def test_a_server_that_breaks_off_is_not_taken_for_one_that_ended(street: Street) -> None:
    def breaks(connection: socket.socket) -> bytes:
        connection.sendall(b"half")
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return b""

    house = street.house(breaks)
    with street.enter(PortForward(house.port, street.audit_file)) as client:
        assert client.recv(100) == b"half"
        client.sendall(b"x")
        with pytest.raises(ConnectionResetError):
            count(client, 100)


def test_a_port_of_this_machine_is_joined_both_ways(street: Street) -> None:
    def shout(connection: socket.socket) -> bytes:
        got = read_all(connection)
        connection.sendall(got.upper())
        return got

    house = street.house(shout)
    with street.enter(PortForward(house.port, street.audit_file)) as client:
        client.sendall(b"not http at all")
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b"NOT HTTP AT ALL"
    street.close()
    assert [(line["host"], line["port"], line["how"], line["allowed"]) for line in street.told()] == [
        ("localhost", house.port, "LOCAL", True)
    ]


def test_a_port_that_listens_on_ipv6_alone_is_found(street: Street) -> None:
    house = street.house(read_all, family=socket.AF_INET6)
    with street.enter(PortForward(house.port, street.audit_file)) as client:
        client.sendall(b"hello")
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b""
    street.close()
    assert house.got == [b"hello"]


def test_a_port_where_nobody_listens_is_like_one_that_is_shut(street: Street) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    with street.enter(PortForward(port, street.audit_file)) as client:
        assert read_all(client) == b""
    street.close()
    assert [(line["allowed"], line["why"]) for line in street.told()] == [
        (True, "could not be reached: Connection refused")
    ]
    assert street.blocked() == ()


def test_a_port_takes_no_more_than_so_many(street: Street, house: House) -> None:
    forward = PortForward(house.port, street.audit_file, limits=ProxyLimits(connections=0))
    with street.enter(forward) as client:
        assert read_all(client) == b""
    street.close()
    assert house.callers == 0


def test_no_connection_makes_it_raise(street: Street) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    street.proxy().serve(ours)
    assert ours.fileno() == -1
    PortForward(1, street.audit_file).serve(ours)
