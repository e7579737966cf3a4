"""How requests to the proxy are read, and what of them servers get."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.sandbox.egress_parsing import CHUNKED, MAX_HEAD_BYTES, ProxyRequest, forwarded_head, parse_request


def head(first: str, *fields: str) -> bytes:
    return "\r\n".join([first, *fields]).encode("latin-1")


def good(first: str, *fields: str) -> ProxyRequest:
    read = parse_request(head(first, *fields))
    assert isinstance(read, ProxyRequest), read
    return read


@pytest.mark.parametrize(
    ("line", "place", "target"),
    [
        ("CONNECT allowed.test:443 HTTP/1.1", ("allowed.test", 443), b""),
        ("CONNECT [::1]:443 HTTP/1.0", ("[::1]", 443), b""),
        ("CONNECT 2130706433:443 HTTP/1.1", ("2130706433", 443), b""),
        ("GET http://allowed.test/ HTTP/1.1", ("allowed.test", 80), b"/"),
        ("GET http://allowed.test HTTP/1.1", ("allowed.test", 80), b"/"),
        ("GET HTTP://allowed.test:8080/a?b=c HTTP/1.0", ("allowed.test", 8080), b"/a?b=c"),
        ("GET http://allowed.test?q=/x HTTP/1.1", ("allowed.test", 80), b"/?q=/x"),
        ("GET http://allowed.test//evil.test/x HTTP/1.1", ("allowed.test", 80), b"//evil.test/x"),
        ("GET http://allowed.test/@evil.test HTTP/1.1", ("allowed.test", 80), b"/@evil.test"),
        ("GET http://allowed.test/http://evil.test HTTP/1.1", ("allowed.test", 80), b"/http://evil.test"),
        ("GET http://[::1]:80/ HTTP/1.1", ("[::1]", 80), b"/"),
        ("GET http://allowed.test/\xfc HTTP/1.1", ("allowed.test", 80), b"/\xfc"),
        ("M-SEARCH http://allowed.test/* HTTP/1.1", ("allowed.test", 80), b"/*"),
    ],
)
def test_a_request_names_one_place(line: str, place: tuple[str, int], target: bytes) -> None:
    read = good(line)
    assert ((read.host, read.port), read.target) == (place, target)


@pytest.mark.parametrize(
    "line",
    [
        "", "GET", "GET /", "GET http://allowed.test/", "GET http://allowed.test/ HTTP/0.9",
        "GET http://allowed.test/ HTTP/2.0", "GET http://allowed.test/ HTTP/1.2", "GET http://allowed.test/ http/1.1",
        "GET http://allowed.test/ HTTP/1.1 ", " GET http://allowed.test/ HTTP/1.1",
        "GET  http://allowed.test/ HTTP/1.1",
        "GET\thttp://allowed.test/\tHTTP/1.1", "GET http://allowed.test/a b HTTP/1.1", "PRI * HTTP/2.0",
        "GET / HTTP/1.1", "GET * HTTP/1.1", "OPTIONS * HTTP/1.1", "GET allowed.test HTTP/1.1",
        "GET //allowed.test/ HTTP/1.1",
        "GET https://allowed.test/ HTTP/1.1", "GET ftp://allowed.test/ HTTP/1.1", "GET http:/allowed.test HTTP/1.1",
        "GET http:///path HTTP/1.1", "GET http://:80/ HTTP/1.1", "GET http://me@allowed.test/ HTTP/1.1",
        "GET http://allowed.test:80@evil.test/ HTTP/1.1", "GET http://allowed.test:/ HTTP/1.1",
        "GET http://allowed.test:80x/ HTTP/1.1", "GET http://allowed.test/#x HTTP/1.1",
        "GET http://allowed.test#@x/ HTTP/1.1",
        "GET http://::1/ HTTP/1.1", "GET http://[::1]x/ HTTP/1.1", "GET http://a\0.test/ HTTP/1.1",
        "GET http://a.test/\n HTTP/1.1", "GET http://a.test/\r HTTP/1.1", "G\u00cbT http://a.test/ HTTP/1.1",
        "CONNECT allowed.test HTTP/1.1", "CONNECT allowed.test: HTTP/1.1", "CONNECT allowed.test:443junk HTTP/1.1",
        "CONNECT allowed.test:0 HTTP/1.1", "CONNECT allowed.test:65536 HTTP/1.1", "CONNECT allowed.test:-1 HTTP/1.1",
        "CONNECT allowed.test:443/path HTTP/1.1", "CONNECT http://allowed.test:443 HTTP/1.1", "CONNECT :443 HTTP/1.1",
        "CONNECT me@allowed.test:443 HTTP/1.1", "CONNECT ::1:443 HTTP/1.1", "CONNECT [::1] HTTP/1.1",
        "CONNECT / HTTP/1.1", "connect allowed.test:443 HTTP/1.1", "CONNECT allowed.test:443:443 HTTP/1.1",
        "A" * 33 + " http://allowed.test/ HTTP/1.1",
    ],
)  # fmt: skip
def test_what_names_no_place_for_sure_is_refused(line: str) -> None:
    assert isinstance(parse_request(head(line, "Host: allowed.test")), str)


@pytest.mark.parametrize(
    "field",
    [
        "no colon", ": empty", "a b: c", "a : c", " folded", "\tfolded", "a: b\rc", "a: b\nc", "a: b\0c", "a: \x7f",
        "a: \x1b[2J", "a\0: b", "", "(a): b",
        "Content-Length: 5, 5", "Content-Length: +5", "Content-Length: -5", "Content-Length: 0x5", "Content-Length: ",
        "Content-Length: 5 5", "Content-Length: 99999999999999999999", "Content-Length: ٥".encode().decode("latin-1"),
        "Content-Length: 5\r\nContent-Length: 6", "Content-Length: 5\r\nContent-Length: 05",
        "Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: xchunked", "Transfer-Encoding: identity",
        "Transfer-Encoding: ", "Transfer-Encoding: chunked, identity", "Transfer-Encoding: \x0bchunked",
        "transfer-encoding: chunked\r\ncontent-length: 0",
        "Connection: Upgrade\r\nUpgrade: websocket", "upgrade: h2c, WebSocket",
    ],
)  # fmt: skip
def test_what_two_servers_could_read_in_two_ways_is_refused(field: str) -> None:
    assert isinstance(parse_request(head("POST http://allowed.test/ HTTP/1.1", "A: 1", field, "B: 2")), str)


@pytest.mark.parametrize("field", ["Content-Length: 5", "Transfer-Encoding: chunked"])
def test_connect_has_no_body(field: str) -> None:
    assert parse_request(head("CONNECT allowed.test:443 HTTP/1.1", field)) == "CONNECT has no body"
    assert good("CONNECT allowed.test:443 HTTP/1.1", "Content-Length: 0").length == 0


def test_http_1_0_has_no_chunks() -> None:
    assert isinstance(parse_request(head("POST http://a.test/ HTTP/1.0", "Transfer-Encoding: chunked")), str)


def test_a_head_has_at_most_64_kib() -> None:
    room = MAX_HEAD_BYTES - len(head("GET http://a.test/ HTTP/1.1", "A: "))
    assert good("GET http://a.test/ HTTP/1.1", "A: " + "x" * room)
    assert isinstance(parse_request(head("GET http://a.test/ HTTP/1.1", "A: " + "x" * (room + 1))), str)


@pytest.mark.parametrize(
    ("fields", "length"),
    [
        ([], 0),
        (["Content-Length: 5"], 5),
        (["Content-Length: 5", "content-length:5"], 5),
        (["Transfer-Encoding: Chunked"], CHUNKED),
    ],
)
def test_the_length_of_a_body_is_told_in_one_way(fields: list[str], length: int) -> None:
    asked = good("POST http://a.test/ HTTP/1.1", *fields)
    assert asked.length == length
    told = forwarded_head(asked, "a.test").lower()
    assert told.count(b"content-length:") == (length > 0)
    assert told.count(b"transfer-encoding: chunked\r\n") == (length == CHUNKED)


def test_a_server_gets_the_judged_host_and_nothing_that_was_meant_for_the_proxy() -> None:
    asked = good(
        "GET http://Allowed.TEST./x HTTP/1.1", "Host: evil.test", "hOST: other.test", "Connection: keep-alive, X-Hop",
        "X-Hop: 1", "X-Kept:  two words ", "Proxy-Authorization: Basic x", "Proxy-Connection: keep-alive",
        "TE: trailers",
        "Keep-Alive: 5", "Upgrade: h2c", "Trailer: A", "Proxy-X: 1", "Cookie: a", "Cookie: b",
    )  # fmt: skip
    assert forwarded_head(asked, "allowed.test") == (
        b"GET /x HTTP/1.1\r\nHost: allowed.test\r\n"
        b"X-Kept: two words\r\nCookie: a\r\nCookie: b\r\nConnection: close\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("url", "host", "told"),
    [
        ("http://a.test:8080/", "a.test", b"a.test:8080"),
        ("http://a.test:80/", "a.test", b"a.test"),
        ("http://[::1]/", "::1", b"[::1]"),
        ("http://[::1]:81/", "::1", b"[::1]:81"),
    ],
)
def test_the_host_is_told_with_an_unusual_port(url: str, host: str, told: bytes) -> None:
    assert b"\r\nHost: " + told + b"\r\n" in forwarded_head(good(f"GET {url} HTTP/1.1"), host)


def test_the_version_is_the_clients() -> None:
    assert forwarded_head(good("GET http://a.test/ HTTP/1.0"), "a.test").startswith(b"GET / HTTP/1.0\r\n")


PIECES = st.sampled_from(
    [
        b"\r\n",
        b"\r",
        b"\n",
        b"\0",
        b" ",
        b":",
        b"Host",
        b"Content-Length",
        b"Transfer-Encoding",
        b"chunked",
        b"5",
        b",",
        b"\t",
    ]
)


@given(st.binary(max_size=200) | st.lists(PIECES, max_size=20).map(b"".join))
def test_no_bytes_make_it_raise_and_whatever_is_passed_on_is_one_request(noise: bytes) -> None:
    assert isinstance(parse_request(noise), ProxyRequest | str)
    asked = parse_request(b"POST http://a.test/ HTTP/1.1\r\n" + noise)
    if isinstance(asked, ProxyRequest):
        told = forwarded_head(asked, "a.test")
        assert told.count(b"\r\n\r\n") == 1
        assert told.endswith(b"\r\n\r\n")
        assert told.replace(b"\r\n", b"").find(b"\r") == told.replace(b"\r\n", b"").find(b"\n") == -1
        again = parse_request(told.removesuffix(b"\r\n\r\n").replace(b"POST /", b"POST http://a.test/", 1))
        assert isinstance(again, ProxyRequest)
        assert again.length == asked.length
