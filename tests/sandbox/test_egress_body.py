"""Of plain HTTP just one request and one answer pass, in whatever pieces they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.sandbox.egress_parsing import (
    BAD_GATEWAY,
    CHUNKED,
    MAX_HEAD_BYTES,
    ChunkedBody,
    FixedLengthBody,
    ResponseFilter,
    body_filter,
)

NEXT = b"GET http://evil.test/ HTTP/1.1\r\n\r\n"


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def taken(through: FixedLengthBody | ChunkedBody | ResponseFilter, *pieces: bytes) -> bytes:
    return b"".join(through.take(piece) for piece in pieces)


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("length", [0, 1, 10])
def test_a_counted_body_passes_and_nothing_after_it(length: int, size: int) -> None:
    body = b"x" * length
    assert taken(body_filter(length), *cut(body + NEXT, size)) == body


CHUNKS = b"5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    "body",
    [
        CHUNKS,
        b"5;ext=1\r\nhello\r\n0a ; x\r\n0123456789\r\n000\r\n\r\n",
        b"5\r\nhello\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\nHost: evil\r\n\r\n",
    ],
)
def test_a_chunked_body_passes_without_extensions_and_trailers_and_nothing_after_it(body: bytes, size: int) -> None:
    assert taken(body_filter(CHUNKED), *cut(body + NEXT, size)).lower() == CHUNKS.lower()


@pytest.mark.parametrize(
    "body",
    [
        b"\r\n", b"x\r\n", b"-1\r\n", b"+1\r\n", b"0x5\r\nhello\r\n", b" 5\r\nhello\r\n", b"5\nhello\r\n",
        b"5\r\nhelloX\r\n",
        b"5\r\nhello!!\r\n", b"5;a\nb\r\nhello\r\n", b"5;\0\r\nhello\r\n", b"1" * 16 + b"\r\n", b"5" * 5000,
        b"5;" + b"x" * 5000, b"5\r\nhello" + b"x" * 5000, b"0\r\n" + b"x" * 5000,
    ],
)  # fmt: skip
def test_a_malformed_chunk_ends_it(body: bytes) -> None:
    with pytest.raises(ValueError, match="chunk"):
        taken(body_filter(CHUNKED), *cut(body, 999))


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.integers(1, 50), st.binary(max_size=50))
def test_any_chunks_pass_as_they_are(chunks: list[bytes], size: int, after: bytes) -> None:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    assert taken(ChunkedBody(), *cut(body + after, size)) == body


@given(st.binary(max_size=300))
def test_no_chunks_make_it_raise_anything_else(data: bytes) -> None:
    try:
        taken(ChunkedBody(), data)
    except ValueError:
        pass


HOP = b"Connection: keep-alive\r\nKeep-Alive: 5\r\nProxy-Authenticate: x\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nA: 1\r\n" + HOP + b"Transfer-Encoding: chunked\r\n\r\n"
SENT = b"HTTP/1.1 200 OK\r\nA: 1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_an_answer_says_that_it_is_the_last(size: int) -> None:
    body = b"5\r\nhello\r\n\r\n\r\n"
    assert taken(ResponseFilter(), *cut(HEAD + body, size), b"") == SENT + body


def test_what_is_said_before_the_answer_passes() -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    assert taken(ResponseFilter(), early, HEAD, b"body", b"") == early + SENT + b"body"


def test_an_answer_of_a_status_alone_is_one() -> None:
    assert taken(ResponseFilter(), b"HTTP/1.0 204\r\n\r\n", b"") == b"HTTP/1.0 204\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"HTTP/1.1 200 OK\r\n", b"SSH-2.0-x\r\n\r\n", b"HTTP/2 200 OK\r\n\r\n", b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\nmore", b"x" * (MAX_HEAD_BYTES + 1),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_told_and_not_passed_on(answer: bytes) -> None:
    assert taken(ResponseFilter(), answer, *([b"more"] if answer else []), b"", b"more") == BAD_GATEWAY


@given(st.binary(max_size=300))
def test_no_answer_makes_it_raise(data: bytes) -> None:
    assert isinstance(taken(ResponseFilter(), data, b"HTTP/1.1 200 OK\r\n\r\n" + data, b""), bytes)
