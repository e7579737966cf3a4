"""Plain HTTP through the proxy: what reaches servers, what clients are told, and that nothing else gets out."""

from __future__ import annotations

import base64
import socket
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphproof.sandbox.egress_proxy import EgressProxy, ProxyLimits
from tests.sandbox.egress_street import OK, House, Street, read_all, read_head


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    street = Street(tmp_path)
    yield street
    street.close()


@pytest.fixture
def house(street: Street) -> House:
    return street.house()


@pytest.fixture
def proxy(street: Street, house: House) -> EgressProxy:
    return street.proxy(f"private:allowed.test:{house.port}")


def status(answered: bytes) -> int:
    return int(answered.split(b" ", 2)[1])


def test_a_request_reaches_an_allowed_host_and_its_answer_comes_back(
    street: Street, house: House, proxy: EgressProxy
) -> None:
    got = street.ask(proxy, b"GET http://Allowed.TEST.:%d/x?y HTTP/1.1\r\nHost: evil.test\r\nA: b\r\n\r\n" % house.port)
    assert got == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
    street.close()
    place = b"allowed.test:%d" % house.port
    assert house.got == [b"GET /x?y HTTP/1.1\r\nHost: %s\r\nA: b\r\nConnection: close\r\n\r\n" % place]
    assert [(line["host"], line["port"], line["how"], line["allowed"]) for line in street.told()] == [
        ("allowed.test", house.port, "GET", True)
    ]
    assert street.blocked() == ()


def test_a_library_finds_its_way(street: Street, house: House, proxy: EgressProxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: proxy.serve(listener.accept()[0]))
        thread.start()
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({"http": f"http://127.0.0.1:{listener.getsockname()[1]}"})
        )
        with opener.open(f"http://allowed.test:{house.port}/", data=b"body", timeout=10) as reply:
            assert reply.read() == b"hello"
        thread.join(10)
    street.close()
    assert house.got[0].endswith(b"\r\n\r\nbody")


def test_a_refusal_says_what_the_user_can_do(street: Street, proxy: EgressProxy) -> None:
    got = street.ask(proxy, b"GET http://Other.test/ HTTP/1.1\r\n\r\n")
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403 ")
    assert b"\r\nX-Ralph-Blocked: other.test:80\r\n" in head
    assert b"\r\nConnection: close" in head
    assert body.decode() == (
        "ralph sandbox: other.test:80 is not on the allow-list (sandbox.allowHosts); "
        "the user can allow it with --allow-host other.test\n"
    )
    assert b"\r\nContent-Length: %d\r\n" % len(body) in head
    assert street.blocked() == ("other.test:80",)
    assert street.lookups == []


@pytest.mark.parametrize(
    ("request_line", "told"),
    [
        ("CONNECT other.test:443", "--allow-host other.test\n"),
        ("CONNECT other.test:8443", "--allow-host other.test:8443\n"),
        ("CONNECT allowed.test:22", "with other ports only; the user can allow it with --allow-host allowed.test:22\n"),
        ("CONNECT 10.0.0.1:5432", "--allow-host private:10.0.0.1:5432\n"),
        ("CONNECT [::1]:443", "ralph sandbox: [::1]:443 is not on the allow-list (sandbox.allowHosts); "
         "the user can allow it with --allow-host private:[::1]\n"),
        ("CONNECT 2130706433:443", "2130706433:443 is an address in a form that programs read differently\n"),
    ],
)  # fmt: skip
def test_what_is_proposed_would_help(street: Street, proxy: EgressProxy, request_line: str, told: str) -> None:
    got = street.ask(proxy, f"{request_line} HTTP/1.1\r\n\r\n".encode())
    assert status(got) == 403
    assert got.decode().endswith(told)


TRICKS = [
    "http://127.0.0.1:{port}/", "http://2130706433:{port}/", "http://0x7f000001:{port}/", "http://0x7f.1:{port}/",
    "http://0177.0.0.1:{port}/", "http://127.1:{port}/", "http://[::1]:{port}/", "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/", "http://0.0.0.0:{port}/", "http://0:{port}/", "http://localhost:{port}/",
    "http://evilallowed.test:{port}/", "http://allowed.test.evil:{port}/", "http://sub.allowed.test:{port}/",
    "http://allowed.test..:{port}/", "http://.allowed.test:{port}/", "http://xn--llowed-5nf.test:{port}/",
    "http://allowed.test:1/", "http://allowed.test/", "http://allowed.test:{port}junk/", "http://allowed.test:0/",
    "http://allowed.test:65536/", "http://allowed.test:/", "http://me@allowed.test:{port}/",
    "http://allowed.test:{port}@other.test:{port}/", "http://other.test:{port}@allowed.test:{port}/",
    "http://allowed.test:{port}#@other.test/", "http://allowed.test\\@other.test:{port}/", "http://:{port}/",
    "http:///allowed.test:{port}/", "//allowed.test:{port}/", "/", "allowed.test:{port}",
    "https://allowed.test:{port}/", "ftp://allowed.test:{port}/", "http:allowed.test:{port}/",
    "http://allowed.test%00:{port}/", "http://allowed.test%2eevil:{port}/", "http://allowed.test,other.test:{port}/",
    "http://*:{port}/", "http://*.test:{port}/", "http://\xe4.test:{port}/", "http://[allowed.test]:{port}/",
]  # fmt: skip


ASKED = [("GET", url) for url in TRICKS] + [
    ("CONNECT", url.removeprefix("http://").removesuffix("/")) for url in TRICKS
]


@pytest.mark.parametrize(("method", "target"), [one for one in ASKED if one != ("CONNECT", "allowed.test:{port}")])
def test_no_trick_gets_out(street: Street, house: House, proxy: EgressProxy, method: str, target: str) -> None:
    line = f"{method} {target.format(port=house.port)} HTTP/1.1"
    got = street.ask(proxy, f"{line}\r\nHost: allowed.test:{house.port}\r\n\r\n".encode("latin-1"))
    assert status(got) in (400, 403)
    street.close()
    assert (house.callers, street.lookups) == (0, [])
    assert [line["allowed"] for line in street.told()] == [False]


def test_an_empty_list_refuses_everything(street: Street, house: House) -> None:
    proxy = street.proxy()
    for host in ("allowed.test", "127.0.0.1", "localhost"):
        assert status(street.ask(proxy, b"GET http://%s:%d/ HTTP/1.1\r\n\r\n" % (host.encode(), house.port))) == 403
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
    assert status(street.ask(proxy, b"GET http://allowed.test:%d/ HTTP/1.1\r\n\r\n" % house.port)) == 200
    assert street.lookups == ["allowed.test"]
    street.close()
    assert house.callers == 1


def test_a_host_that_is_not_there_is_told(street: Street, house: House) -> None:
    street.leads["gone.test"] = ["nowhere"]
    free = socket.create_server(("127.0.0.1", 0))
    port = int(free.getsockname()[1])
    free.close()
    proxy = street.proxy("gone.test", f"private:shut.test:{port}")
    got = street.ask(proxy, b"GET http://gone.test/ HTTP/1.1\r\n\r\n")
    assert status(got) == 502
    assert b"gone.test:80 could not be reached: was not found: Name or service not known\n" in got
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
    proxy = street.proxy(f"private:allowed.test:{house.port}")
    assert status(street.ask(proxy, b"GET http://allowed.test:%d/ HTTP/1.1\r\n\r\n" % house.port)) == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"GET http://allowed.test:%d/\r\n\r\n", b"GET http://allowed.test:%d/ HTTP/0.9\r\n\r\n",
        b"GET http://allowed.test:%d/ HTTP/3.0\r\n\r\n", b"GET http://allowed.test:%d/ HTTP/1.1\r\n folded: 1\r\n\r\n",
        b"GET http://allowed.test:%d/ HTTP/1.1\r\nA: b\rC: d\r\n\r\n",
        b"GET http://allowed.test:%d/ HTTP/1.1\r\nA: \0\r\n\r\n",
        b"POST http://allowed.test:%d/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST http://allowed.test:%d/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET http://allowed.test:%d/ HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"CONNECT allowed.test:%d/path HTTP/1.1\r\n\r\n", b"\x16\3\1\2\0\r\n%d\r\n\r\n",
        b"GET http://allowed.test:%d/ HTTP/1.1\r\nA: " + b"x" * 70_000 + b"\r\n\r\n",
        b"GET http://allowed.test:%d/" + b"x" * 200_000,
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


@pytest.mark.parametrize("second", ["GET http://other.test:{port}/", "GET http://allowed.test:{port}/second", "GET /x"])
@pytest.mark.parametrize(
    ("field", "body"),
    [("A: b", ""), ("Content-Length: 4", "body"), ("Transfer-Encoding: chunked", "4\r\nbody\r\n0\r\n\r\n")],
)
def test_a_second_request_on_a_connection_reaches_nobody(
    street: Street, house: House, proxy: EgressProxy, field: str, body: str, second: str
) -> None:
    first = f"POST http://allowed.test:{house.port}/ HTTP/1.1\r\nConnection: keep-alive\r\n{field}\r\n\r\n{body}"
    got = street.ask(proxy, f"{first}{second.format(port=house.port)} HTTP/1.1\r\nHost: other.test\r\n\r\n".encode())
    assert got.count(b"HTTP/1.1 ") == 1
    assert status(got) == 200
    street.close()
    assert house.got == [
        f"POST / HTTP/1.1\r\nHost: allowed.test:{house.port}\r\n{field}\r\nConnection: close\r\n\r\n{body}".encode()
    ]


def test_a_request_after_the_answer_reaches_nobody(street: Street, house: House, proxy: EgressProxy) -> None:
    request = b"GET http://allowed.test:%d/ HTTP/1.1\r\nConnection: keep-alive\r\n\r\n" % house.port
    with street.enter(proxy) as client:
        client.sendall(request)
        assert b"\r\nConnection: close\r\n" in read_head(client)
        try:
            client.sendall(request)
        except ConnectionError:
            pass
        client.shutdown(socket.SHUT_WR)
        assert b"HTTP/1.1" not in read_all(client)
    street.close()
    assert house.callers == 1


def test_an_answer_ends_the_connection_even_where_the_server_would_go_on(street: Street) -> None:
    def kept_alive(connection: socket.socket) -> bytes:
        got = read_head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello")
        return got + read_all(connection)

    house = street.house(kept_alive)
    got = street.ask(
        street.proxy(f"private:a.test:{house.port}"), b"GET http://a.test:%d/ HTTP/1.1\r\n\r\n" % house.port
    )
    assert got == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"


def test_http_1_0_is_passed_on_as_such(street: Street, house: House, proxy: EgressProxy) -> None:
    assert status(street.ask(proxy, b"GET http://allowed.test:%d/ HTTP/1.0\r\n\r\n" % house.port)) == 200
    street.close()
    assert house.got[0].startswith(b"GET / HTTP/1.0\r\nHost: allowed.test:")


def test_an_upgrade_that_was_not_asked_for_opens_no_tunnel(street: Street) -> None:
    def upgrading(connection: socket.socket) -> bytes:
        got = read_head(connection)
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")
        return got + read_all(connection)

    house = street.house(upgrading)
    proxy = street.proxy(f"private:a.test:{house.port}")
    got = street.ask(proxy, b"GET http://a.test:%d/ HTTP/1.1\r\nUpgrade: x\r\n\r\nmore" % house.port)
    assert status(got) == 502
    street.close()
    assert house.got[0].endswith(b"\r\nConnection: close\r\n\r\n")


def test_a_refused_head_request_gets_a_head_alone(street: Street, proxy: EgressProxy) -> None:
    got = street.ask(proxy, b"HEAD http://other.test/ HTTP/1.1\r\n\r\n")
    assert status(got) == 403
    assert got.endswith(b"\r\n\r\n")


def test_a_refusal_is_heard_by_a_client_that_goes_on_sending(street: Street, proxy: EgressProxy) -> None:
    with street.enter(proxy) as client:
        client.sendall(b"POST http://other.test/ HTTP/1.1\r\nContent-Length: 3000000\r\n\r\n")
        client.sendall(b"x" * 3_000_000)
        client.shutdown(socket.SHUT_WR)
        assert status(read_all(client)) == 403


def test_a_body_of_three_parts_arrives_whole_while_the_server_answers_late(street: Street) -> None:
    def echo(connection: socket.socket) -> bytes:
        got = read_head(connection)
        while not got.endswith(b"0\r\n\r\n"):
            got += connection.recv(65536)
        connection.sendall(OK)
        return got

    house = street.house(echo)
    with street.enter(street.proxy(f"private:a.test:{house.port}")) as client:
        client.sendall(b"POST http://a.test:%d/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" % house.port)
        for part in (b"3\r\nab", b"c\r\n2;x=y\r", b"\nde\r\n0\r\nX: y\r\n\r\n"):
            client.sendall(part)
        assert status(read_all(client)) == 200
    street.close()
    assert house.got[0].endswith(b"\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")


def test_a_malformed_chunk_breaks_the_connection_off(street: Street) -> None:
    house = street.house(read_all)
    proxy = street.proxy(f"private:a.test:{house.port}")
    head = b"POST http://a.test:%d/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" % house.port
    with street.enter(proxy) as client:
        client.sendall(head + b"1\r\na\r\n")
        client.sendall(b"1\r\nabc\r\nGET /evil HTTP/1.1\r\n\r\n")
        assert read_all(client) == b""
    street.close()
    assert b"evil" not in house.got[0]


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
    lines = [f"GET http://allowed.test:{house.port}/ HTTP/1.1", *fields, "", ""]
    got = street.ask(proxy, "\r\n".join(lines).encode())
    assert status(got) == expected
    assert (b'\r\nProxy-Authenticate: Basic realm="ralph"\r\n' in got) == (expected == 407)
    street.close()
    assert house.callers == (expected == 200)
    assert not any(b"roxy" in got for got in house.got)


def test_no_more_than_so_many_are_served_at_a_time(street: Street, house: House) -> None:
    proxy = street.proxy(f"private:allowed.test:{house.port}", limits=ProxyLimits(connections=2))
    request = b"GET http://allowed.test:%d/ HTTP/1.1\r\n\r\n" % house.port
    first, second = street.enter(proxy), street.enter(proxy)
    with first, second:
        # The first two must be seated before the third comes: each gets its answer only afterwards.
        for client in (first, second):
            client.sendall(request[:10])
        while (got := street.ask(proxy, request)).startswith(b"HTTP/1.1 200"):
            pass
        assert status(got) == 503
        for client in (first, second):
            client.sendall(request[10:])
            client.shutdown(socket.SHUT_WR)
            assert status(read_all(client)) == 200
    street.all_served()
    assert status(street.ask(proxy, request)) == 200
