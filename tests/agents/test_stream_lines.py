"""A stream of bytes as bounded lines and as bounded text."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphproof.agents.event_collector import HeadTailBuffer, LineSplitter

CHUNKS = st.lists(st.binary(max_size=12) | st.sampled_from([b"\n", b"a\nb", b"\n\n", b"long line\n"]), max_size=12)


def lines_of(chunks: list[bytes], most: int) -> tuple[list[bytes], list[int]]:
    lines = LineSplitter(most)
    whole = [line for chunk in chunks for line in lines.feed(chunk)]
    return whole + lines.end(), lines.dropped


@given(CHUNKS, st.integers(1, 20))
@settings(max_examples=200)
def test_where_a_stream_is_cut_changes_nothing(chunks: list[bytes], most: int) -> None:
    """As if it had come at once: all lines but those that are too long, which are told by their size, in order."""
    expected = b"".join(chunks).split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    kept = [line for line in expected if len(line) <= most]
    assert lines_of(chunks, most) == (kept, [len(line) for line in expected if len(line) > most])


@pytest.mark.parametrize(
    ("chunks", "told"),
    [
        ([], ([], [])),
        ([b"a\nb"], ([b"a", b"b"], [])),
        ([b"a\n"], ([b"a"], [])),
        ([b"\n\n"], ([b"", b""], [])),
        ([b"12345\n123456\n1\n"], ([b"12345", b"1"], [6])),
        ([b"123", b"45", b"\n", b"123", b"456", b"78\nx"], ([b"12345", b"x"], [8])),
        ([b"1234567"], ([], [7])),
        ([b"a\r\nb"], ([b"a\r", b"b"], [])),
    ],
)
def test_lines_of_at_most_five_bytes(chunks: list[bytes], told: tuple[list[bytes], list[int]]) -> None:
    assert lines_of(chunks, 5) == told


def test_a_line_without_end_takes_no_memory() -> None:
    lines, chunk = LineSplitter(100_000), b"x" * 50_000
    tracemalloc.start()
    for _ in range(200):
        assert lines.feed(chunk) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 400_000
    assert lines.feed(b"\nnext\n") == [b"next"]
    assert lines.dropped == [10_000_000]


@given(CHUNKS, st.integers(1, 8))
@settings(max_examples=200)
def test_both_ends_of_a_stream_are_kept(chunks: list[bytes], each: int) -> None:
    kept, whole = HeadTailBuffer(each), b"".join(chunks)
    for chunk in chunks:
        kept.feed(chunk)
    cut = whole[:each] + b"\n... [truncated]\n" + whole[-each:] if len(whole) > 2 * each else whole
    assert kept.text() == cut.decode("utf-8", "replace")
    assert kept.text() == cut.decode("utf-8", "replace"), "asked twice"


def test_a_stream_without_end_takes_no_memory() -> None:
    kept = HeadTailBuffer(1000)
    tracemalloc.start()
    for _ in range(5000):
        kept.feed(b"y" * 500)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000
    assert kept.text() == "y" * 1000 + "\n... [truncated]\n" + "y" * 1000
