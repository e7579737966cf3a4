"""A good line is read although something in it is wrong; a bad one is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphproof.agents.stream import decode_line


class Line(msgspec.Struct):
    """What is looked for."""

    text: str | None = None
    number: Any = "none"
    rest: msgspec.Raw = msgspec.Raw()


LINES = msgspec.json.Decoder(Line)


@pytest.mark.parametrize(
    ("line", "text", "number"),
    [
        (rb'{"text":"a","number":1}', "a", 1),
        (rb' {"text":"a"} ', "a", "none"),
        (b'{"text":"a\xffb","number":1}', "a\ufffdb", 1),
        (rb'{"text":"a\ud83d","number":1}', "a?", 1),
        (rb'{"text":"\ud83d\ude00"}', "😀", "none"),
        (b'{"text":"a\x00b\x1bc"}', "a\x00b\x1bc", "none"),
        (b'{"text":"a","number":NaN}', "a", None),
        (b'{"text":"a","number":-Infinity}', "a", None),
        (b'{"text":"a","number":1e999}', "a", None),
        (b'{"text":"a","number":-1e999}', "a", None),
        (b'{"text":"a","number":1e-999}', "a", 0.0),
        (b'{"text":"a","number":%s}' % (b"9" * 5000), "a", None),
        (b'{"text":"a","number":-%s}' % (b"9" * 29), "a", -(10**29) + 1),
        (b'{"text":"a","unknown":[NaN, 1e999, "\xff"]}', "a", "none"),
        (b'{"text":"a","text":"b"}', "b", "none"),
    ],
)
def test_what_is_wrong_costs_that_value_alone(line: bytes, text: str, number: Any) -> None:
    said = decode_line(line, LINES)
    assert (said.text, said.number) == (text, number)


@pytest.mark.parametrize(
    "line",
    [
        b"", b"null", b"7", b"hello", b"[1]", b'"a"', b"{", b'{"text":', b'{"text":"a"}}', b'{"text":"a"} {"text":"b"}',
        b'{"text":5}', b"\x00", b"\xff{}", b"[" * 1_000_000, b'"' * 3, b"{'text': 'a'}", b'{"text":"a",}',
        b'{"text":' * 100_000, b'{"rest":' + b"[" * 100_000, b'{"unknown":' + b'{"a":' * 100_000,
    ],
    ids=lambda line: repr(line[:20]),
)  # fmt: skip
def test_what_is_no_such_line_is_refused(line: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        decode_line(line, LINES)


@pytest.mark.parametrize("part", [b'"\xff"', b"[1e999]", b'{"a":"\xff"}'])
def test_a_part_that_was_left_as_it_came_can_be_read_later(part: bytes) -> None:
    rest = decode_line(b'{"rest":' + part + b"}", LINES).rest
    json.dumps(decode_line(bytes(rest), msgspec.json.Decoder()))


@given(st.binary(max_size=60))
@settings(max_examples=300)
def test_nothing_else_is_ever_raised(line: bytes) -> None:
    for one in (line, b'{"text":"' + line + b'"}', b'{"number":' + line + b"}", b'{"rest":' + line + b"}"):
        try:
            decode_line(one, LINES)
        except (ValueError, RecursionError):
            continue


@given(st.text(), st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False))
def test_a_good_line_says_what_it_says(text: str, number: float) -> None:
    line = json.dumps({"text": text, "number": number}).encode("utf-8", "surrogatepass")
    said = decode_line(line, LINES)
    assert (said.text, said.number) == (text.encode("utf-8", "replace").decode(), number)
