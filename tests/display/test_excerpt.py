"""As much of a text as there is room for."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.display.agent_output import MARGIN_CHARS, excerpt, excerpt_source, one_line

TEN = "\n".join("0123456789")


@pytest.mark.parametrize(
    ("text", "lines", "chars", "first", "last", "whole"),
    [
        pytest.param("a", 1, 1, ["a"], [], True, id="just fits"),
        pytest.param("a\nb", 2, 3, ["a", "b"], [], True, id="two lines just fit"),
        pytest.param("a\nb", 1, 3, ["a"], [], False, id="one line is the first"),
        pytest.param("a\nb\nc", 2, 100, ["a"], ["c"], False, id="two lines are the first and the last"),
        pytest.param(TEN, 10, 19, list("0123456789"), [], True, id="ten lines just fit"),
        pytest.param(TEN, 9, 100, list("01234"), list("6789"), False, id="nine of ten: more of the beginning"),
        pytest.param(TEN, 3, 100, ["0", "1"], ["9"], False, id="three of ten"),
        pytest.param("abcdef", 1, 5, ["abcde…"], [], False, id="one line, cut"),
        pytest.param("abcdef", 1, 6, ["abcdef"], [], True, id="one line, just not cut"),
        pytest.param("abcdefghij", 10, 4, ["ab…"], ["…ij"], False, id="a line that is cut in its middle"),
        pytest.param("abcdef", 10, 1, ["a…"], [], False, id="one character"),
        pytest.param("ab\ncd\nef", 10, 5, ["ab"], ["ef"], False, id="cut at the ends of lines: none is broken off"),
        pytest.param("ab\ncdxxxx\nef", 10, 8, ["ab", "c…"], ["…x", "ef"], False, id="cut inside of lines"),
        pytest.param("ab\ncdxxxx\nef", 2, 8, ["ab"], ["ef"], False, id="both limits"),
        pytest.param("", 5, 5, [], [], True, id="nothing"),
    ],
)  # fmt: skip
def test_the_beginning_and_the_end_are_kept(
    text: str, lines: int, chars: int, first: list[str], last: list[str], whole: bool
) -> None:
    assert excerpt(text, lines, chars, "…") == (first, last, whole)


@given(st.text(st.sampled_from("ab\n"), max_size=60), st.integers(1, 8), st.integers(1, 40))
def test_no_limit_is_ever_passed_and_a_text_that_fits_is_whole(text: str, lines: int, chars: int) -> None:
    first, last, whole = excerpt(text, lines, chars, "…")
    shown = [*first, *last]
    assert len(shown) <= lines
    assert sum(len(line.replace("…", "")) for line in shown) <= chars
    assert whole == (len(text) <= chars and len(text.splitlines()) <= lines)
    assert not whole or shown == text.splitlines()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("  indented\n\n", "  indented"), ("\n\n  a\n b \n", "  a\n b"), ("a\r\nb\rc", "a\nb\nc"),
        ("\x1b[31mred", "red"), ("a\tb", "a\tb"),
    ],
)  # fmt: skip
def test_blank_lines_around_a_text_are_left_out_and_all_that_a_terminal_obeys(text: str, shown: str) -> None:
    assert excerpt_source(text, 100, str) == shown


def test_of_a_huge_text_only_its_ends_are_looked_at() -> None:
    huge = "begin " + "x" * 10_000_000 + " end"
    began = time.process_time()
    for _ in range(100):
        seen = excerpt_source(huge, 1000, str)
    assert time.process_time() - began < 1.0
    assert seen.startswith("begin xxx")
    assert seen.endswith("xxx end")
    assert len(seen) <= 2 * (1000 + MARGIN_CHARS) + 1


@pytest.mark.parametrize(
    ("text", "line"),
    [("abc", "abc"), ("abcde", "abcde"), ("abcdef", "abcd…"), ("a\nb", "a b"), (" a\x07\r\n", "a"), ("", ""),
     ("\x1b]52;c;aGk=\x07x\x1b[2J", "x"), ("a\u202eb", "ab")],
)  # fmt: skip
def test_a_strangers_text_is_one_clean_line_of_bounded_length(text: str, line: str) -> None:
    assert one_line(text, 5, "…") == line


def test_a_secret_is_masked_before_anything_is_cut() -> None:
    secret = "hunter2hunter2"

    def mask(text: str) -> str:
        return text.replace(secret, "***")

    for at in range(20):
        text = "x" * at + secret + "y" * 10_000
        assert "hun" not in one_line(text, 16, "…", mask)
        first, last, _ = excerpt(excerpt_source(text[::-1].replace(secret[::-1], secret), 16, mask), 4, 16, "…")
        assert "ter2" not in "".join(first + last)
