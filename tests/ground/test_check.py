"""Reports, clipping, slugs, and when two failures are the same failure."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.check import CUT, Finding, Report, clip, fingerprint, slug, slugs

GREEN = Finding("a", True)
RED = Finding("b", False, fingerprint="b1")
OPTIONAL_RED = Finding("c", False, fingerprint="c1", required=False)
BROKEN = Finding("d", False, errored=True, fingerprint="d1")


@pytest.mark.parametrize(
    ("findings", "passed", "verified", "failed"),
    [
        pytest.param((), True, False, (), id="nothing asked proves nothing"),
        pytest.param((GREEN,), True, True, (), id="all green"),
        pytest.param((GREEN, RED), False, False, (RED,), id="one red"),
        pytest.param((GREEN, OPTIONAL_RED), True, True, (), id="red that is not required"),
        pytest.param((OPTIONAL_RED,), True, False, (), id="only what is not required"),
        pytest.param((BROKEN,), False, False, (BROKEN,), id="a check that broke did not pass"),
    ],
)
def test_a_report_passes_on_what_is_required(
    findings: tuple[Finding, ...], passed: bool, verified: bool, failed: tuple[Finding, ...]
) -> None:
    report = Report(findings)
    assert report.passed is passed
    assert report.verified is verified
    assert report.failed == failed


def test_reports_that_fail_in_the_same_way_have_one_fingerprint_whatever_the_order() -> None:
    assert Report((RED, BROKEN)).fingerprint == Report((BROKEN, GREEN, RED)).fingerprint
    assert Report((RED,)).fingerprint != Report((RED, BROKEN)).fingerprint


@pytest.mark.parametrize("findings", [(), (GREEN,), (OPTIONAL_RED,)])
def test_a_report_without_failures_has_no_fingerprint(findings: tuple[Finding, ...]) -> None:
    assert Report(findings).fingerprint == ""


def test_a_failure_without_a_fingerprint_of_its_own_is_still_a_failure() -> None:
    assert Report((Finding("judge", False),)).fingerprint == Report((Finding("judge", False),)).fingerprint != ""
    assert Report((Finding("judge", False),)).fingerprint != Report((Finding("clean", False),)).fingerprint


@given(st.text(max_size=60), st.integers(0, 60))
def test_a_clipped_text_keeps_both_ends_and_as_many_characters_as_allowed(text: str, chars: int) -> None:
    clipped = clip(text, chars)
    if len(text) <= chars:
        assert clipped == text
        return
    head, cut, tail = clipped.partition(f"\n{CUT}\n")
    if CUT not in text:
        assert cut
        assert len(head) + len(tail) == chars
        assert len(tail) - len(head) in (0, 1)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(clipped) == chars + len(CUT) + 2


@given(st.text(max_size=60), st.integers(0, 60))
def test_mode_head_keeps_the_beginning_and_says_so_only_when_it_cuts(text: str, chars: int) -> None:
    clipped = clip(text, chars, "head")
    assert clipped == (text if len(text) <= chars else text[:chars] + "... [truncated]")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("./mvnw clean install -T 2C", "mvnw_clean_install_T_2C"),
        ("make test", "make_test"),
        ("  --x--  ", "x"),
        ("été ünïcode", "t_n_code"),
        ("x" * 80, "x" * 50),
        ("a" * 49 + " -- b", "a" * 49),
        ("!!!", ""),
    ],
)
def test_a_slug_is_the_alphanumeric_rest_of_a_command(command: str, name: str) -> None:
    assert slug(command) == name


@given(
    st.lists(
        st.sampled_from(["make", "make!", "make 2", "make_2", "make 2 2", "x" * 50, "x" * 60, "", "!"]) | st.text()
    )
)
def test_slugs_are_unique_and_one_for_each_command(commands: list[str]) -> None:
    made = slugs(tuple(commands))
    assert len(made) == len(commands)
    assert len({name.casefold() for name in made}) == len(made)
    assert all(re.fullmatch("[A-Za-z0-9_]+", name) for name in made)
    assert slugs(tuple(commands[:-1])) == made[: max(len(made) - 1, 0)]


def test_a_number_tells_equal_slugs_apart() -> None:
    assert slugs(("make test", "make-test", "make test")) == ("make_test", "make_test_2", "make_test_3")
    assert slugs(("a_2", "a", "a", "!")) == ("a_2", "a", "a_3", "check")
    assert slugs(("make test", "Make Test")) == ("make_test", "Make_Test_2")


SAME = [
    ("a date and time", "at 2024-01-02T03:04:05Z: boom", "at 2025-11-12 13:14:15.678+01:00: boom"),
    ("a time of day", "[03:04:05] boom", "[13:14:15.123] boom"),
    ("a line number after a path", "src/a.py:12: boom", "src/a.py:345: boom"),
    ("a line and a column", "src/a.ts:12:4 boom", "src/a.ts:9:17 boom"),
    ("a line number in words", 'File "a.py", line 12, in f', 'File "a.py", line 99, in f'),
    ("an address", "<X object at 0x7f01ab>", "<X object at 0xdeadbeef>"),
    ("a temporary path", "open /tmp/pytest-1/x failed", "open /tmp/pytest-22/y failed"),
    ("a temporary path of macOS", "open /private/var/folders/ab/T/x failed", "open /var/folders/cd/T/y failed"),
    ("a duration", "3 failed in 1.23s", "3 failed in 45.6s"),
    ("a duration in milliseconds", "took 12 ms", "took 7 ms"),
    ("a process id", "pid 123 died", "pid=4567 died"),
    ("a uuid", "id 123e4567-e89b-12d3-a456-426614174000", "id 00000000-e89b-12d3-a456-426614174999"),
    ("colours", "\x1b[31mboom\x1b[0m", "boom"),
]


@pytest.mark.parametrize(("one", "other"), [pytest.param(*row[1:], id=row[0]) for row in SAME])
def test_what_changes_from_run_to_run_does_not_change_the_fingerprint(one: str, other: str) -> None:
    assert fingerprint("tests", 1, one) == fingerprint("tests", 1, other)


DIFFERENT = [
    ("a port of localhost", "localhost:8080 refused", "localhost:9090 refused"),
    ("a port of an address", "127.0.0.1:8080 refused", "127.0.0.1:9090 refused"),
    ("a port of an IPv6 address", "[::1]:8080 refused", "[::1]:9090 refused"),
    ("a port in words", "port 8080 in use", "port 9090 in use"),
    ("a count of failures", "3 failed, 2 passed", "4 failed, 1 passed"),
    ("a name", "FAILED test_a", "FAILED test_b"),
    ("a path", "src/a.py:1: boom", "src/b.py:1: boom"),
    ("an end beyond what a prompt shows", "x" * 9000 + "a", "x" * 9000 + "b"),
]


@pytest.mark.parametrize(("one", "other"), [pytest.param(*row[1:], id=row[0]) for row in DIFFERENT])
def test_what_tells_two_failures_apart_changes_the_fingerprint(one: str, other: str) -> None:
    assert fingerprint("tests", 1, one) != fingerprint("tests", 1, other)


def test_name_and_exit_code_are_part_of_the_fingerprint_and_an_empty_output_is_one_like_any_other() -> None:
    marks = {fingerprint("a", 1, ""), fingerprint("b", 1, ""), fingerprint("a", 2, ""), fingerprint("a", None, "")}
    assert len(marks) == 4
    assert fingerprint("a", 1, "") == fingerprint("a", 1, "")


@given(st.text())
def test_every_output_has_a_fingerprint_undecodable_bytes_too(text: str) -> None:
    assert len(fingerprint("tests", 1, text + "\udcff")) == 24
