"""Connections through the proxy and to ports of this machine: large ones, stalled ones, broken ones, and their ends."""

from __future__ import annotations

import resource
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphproof.sandbox.egress_proxy import PortForward, ProxyLimits, relay
from tests.sandbox.egress_street import WAIT_S, Street, read_all, read_head

LARGE = 24 << 20
SMALL_S = 0.2


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    before = threading.active_count()
    street = Street(tmp_path)
    yield street
    street.close()
    assert threading.active_count() == before


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def count(connection: socket.socket, wanted: int) -> int:
    """How many bytes come, up to so many."""
    got = 0
    while got < wanted and (piece := connection.recv(1 << 20)):
        got += len(piece)
    return got


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_a_large_body_goes_up_and_comes_down_with_little_memory(street: Street) -> None:
    def mirror(connection: socket.socket) -> bytes:
        head = read_head(connection)
        got = len(head.partition(b"\r\n\r\n")[2]) + count(connection, LARGE - len(head.partition(b"\r\n\r\n")[2]))
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(LARGE >> 20):
            connection.sendall(bytes(1 << 20))
        return b"%d" % got

    house = street.house(mirror)
    before = peak_kib()
    with street.enter(street.proxy(f"private:a.test:{house.port}")) as client:
        client.sendall(b"POST http://a.test:%d/ HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (house.port, LARGE))
        for _ in range(LARGE >> 20):
            client.sendall(bytes(1 << 20))
        head = read_head(client)
        assert len(head.partition(b"\r\n\r\n")[2]) + count(client, LARGE * 2) == LARGE
    street.close()
    assert house.got == [b"%d" % LARGE]
    assert peak_kib() - before < (LARGE >> 10) // 2


def test_a_server_that_answers_before_it_has_heard_all_is_heard(street: Street) -> None:
    def too_large(connection: socket.socket) -> bytes:
        read_head(connection)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        return b""  # with much unread: a reset follows

    house = street.house(too_large)
    with street.enter(street.proxy(f"private:a.test:{house.port}")) as client:
        client.sendall(b"POST http://a.test:%d/ HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n" % house.port)
        with pytest.raises(ConnectionError):
            client.sendall(bytes(100_000_000))
        assert read_all(client).startswith(b"HTTP/1.1 413 ")


def test_a_slow_reader_holds_the_server_up_and_loses_nothing(street: Street) -> None:
    sent = threading.Event()

    def pour(connection: socket.socket) -> bytes:
        read_head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(LARGE >> 20):
            connection.sendall(bytes(1 << 20))
        sent.set()
        return b""

    house = street.house(pour)
    with street.enter(street.proxy(f"private:a.test:{house.port}")) as client:
        client.sendall(b"GET http://a.test:%d/ HTTP/1.1\r\n\r\n" % house.port)
        read_head(client)
        assert not sent.wait(SMALL_S)
        assert count(client, LARGE * 2) > LARGE - (1 << 17)


@pytest.mark.parametrize("begun", [b"", b"GET http://a", b"GET http://a.test/ HTTP/1.1\r\nA: b\r\n"])
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


def test_a_connection_in_which_nothing_moves_is_ended(street: Street) -> None:
    house = street.house(read_all)
    proxy = street.proxy(f"private:a.test:{house.port}", limits=ProxyLimits(idle_s=SMALL_S))
    with street.enter(proxy) as client:
        client.sendall(b"GET http://a.test:%d/ HTTP/1.1\r\n\r\n" % house.port)
        assert read_all(client) == b""
    street.all_served()


def test_a_server_that_breaks_off_is_not_taken_for_one_that_ended(street: Street) -> None:
    def breaks(connection: socket.socket) -> bytes:
        read_head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        connection.recv(1)
        reset(connection)
        return b""

    house = street.house(breaks)
    with street.enter(street.proxy(f"private:a.test:{house.port}")) as client:
        client.sendall(b"POST http://a.test:%d/ HTTP/1.1\r\nContent-Length: 9\r\n\r\n" % house.port)
        read_head(client)
        client.sendall(b"x")
        with pytest.raises(ConnectionResetError):
            count(client, 100)


def test_a_client_that_breaks_off_ends_the_servers_side(street: Street) -> None:
    house = street.house(read_all)
    with street.enter(street.proxy(f"private:a.test:{house.port}")) as client:
        client.sendall(b"POST http://a.test:%d/ HTTP/1.1\r\nContent-Length: 9\r\n\r\nx" % house.port)
        reset(client)
    street.close()
    assert house.callers <= 1


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


def test_a_port_takes_no_more_than_so_many(street: Street) -> None:
    house = street.house(read_all)
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


def test_joining_passes_what_may_pass_until_both_have_ended() -> None:
    client, left = socket.socketpair()
    server, right = socket.socketpair()
    thread = threading.Thread(target=relay, args=(left, right, WAIT_S), kwargs={"first": b"1", "out": bytes.upper})
    thread.start()
    with client, left, server, right:
        client.sendall(b"abc")
        client.shutdown(socket.SHUT_WR)
        assert read_all(server) == b"1ABC"
        server.sendall(b"xyz")
        server.shutdown(socket.SHUT_WR)
        assert read_all(client) == b"xyz"
        thread.join(WAIT_S)
        assert not thread.is_alive()
