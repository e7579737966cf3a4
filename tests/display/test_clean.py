"""What a stranger's output may do to a terminal, also where it comes in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.base.escaping import (
    MAX_PENDING_CHARS,
    StreamSanitizer,
    collapse_lines,
    is_sanitized,
    sanitize,
    truncate_to_columns,
)

TEXTS = [
    "plain text\n",
    "a\x1b[31mred\x1b[0m b",
    "a\x1b]0;title\x07b",
    "a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b",
    "a\x1bPdevice\x1b\\b",
    "a\x1b[2J\x1b[1;1Hb",
    "a\x9b2Jb\x9d0;t\x9cc",
    "one\r\ntwo\rthree\n",
    "a\x1b(Bb\x1b7c",
    "a\u202eb",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("colour", [True, False])
def test_a_text_in_pieces_is_cleaned_as_a_whole(text: str, colour: bool) -> None:
    for at in range(len(text) + 1):
        cleaner = StreamSanitizer(colour)
        assert cleaner.feed(text[:at]) + cleaner.feed(text[at:]) + cleaner.end() == sanitize(text, colour), at
    cleaner = StreamSanitizer(colour)
    assert "".join(map(cleaner.feed, text)) + cleaner.end() == sanitize(text, colour)


@given(st.lists(st.sampled_from(["\x1b", "[", "]", "\\", "\x07", "m", "1;", "x", "\r", "\n", "P", "\x9b", "\x9d"])))
def test_no_piece_is_unclean(pieces: list[str]) -> None:
    cleaner = StreamSanitizer(colour=False)
    shown = "".join([*map(cleaner.feed, pieces), cleaner.end()])
    assert shown == sanitize("".join(pieces))


def test_little_is_kept_back_and_never_for_ever() -> None:
    cleaner = StreamSanitizer(colour=False)
    assert cleaner.feed("a\x1b]0;") == "a"
    shown = [cleaner.feed("x" * 1000) for _ in range(20)]
    assert any(shown)
    assert len("".join(shown)) >= 20_000 - MAX_PENDING_CHARS - 2000


def test_what_never_becomes_a_sequence_is_dropped_at_the_end() -> None:
    cleaner = StreamSanitizer(colour=True)
    assert (cleaner.feed("a\x1b[3"), cleaner.end(), cleaner.feed("1m")) == ("a", "", "1m")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("  a", "  a"), ("a\nb", "a b"), ("set -e\n  make  test\n", "set -e make  test "), ("a\r\n\n\tb", "a b"),
        ("a\x85b\u2028c\vd\fe", "a b c d e"),
    ],
)  # fmt: skip
def test_a_line_is_one_line(text: str, line: str) -> None:
    assert collapse_lines(text) == line


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [("abcdef", 6, "abcdef"), ("abcdef", 5, "abcd…"), ("日本語", 6, "日本語"), ("日本語", 5, "日本…"),
     ("日本語", 4, "日…"), ("e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301e\u0301"), ("abc", 0, "")],
)  # fmt: skip
def test_a_line_is_cut_to_the_columns_that_it_has(text: str, columns: int, shown: str) -> None:
    assert truncate_to_columns(text, columns) == shown


@given(st.text(st.characters(exclude_categories=["Zs", "Cn", "Co"])))
def test_what_is_called_harmless_is_clean_already(text: str) -> None:
    if is_sanitized(text):
        assert sanitize(text + "\x07") == text
