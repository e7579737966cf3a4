"""Reports, clipping, slugs, and when two failures are the same failure."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.base.text import TRUNCATION_MARK, slugify, strip_escapes, truncate, unique_slugs
from ralphproof.engine import check
from ralphproof.engine.check import CheckReport, Finding, failure_fingerprint

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
    report = CheckReport(findings)
    assert report.passed is passed
    assert report.verified is verified
    assert report.failed == failed


def test_reports_that_fail_in_the_same_way_have_one_fingerprint_whatever_the_order() -> None:
    assert CheckReport((RED, BROKEN)).fingerprint == CheckReport((BROKEN, GREEN, RED)).fingerprint
    assert CheckReport((RED,)).fingerprint != CheckReport((RED, BROKEN)).fingerprint


@pytest.mark.parametrize("findings", [(), (GREEN,), (OPTIONAL_RED,)])
def test_a_report_without_failures_has_no_fingerprint(findings: tuple[Finding, ...]) -> None:
    assert CheckReport(findings).fingerprint == ""


def test_a_failure_without_a_fingerprint_of_its_own_is_still_a_failure() -> None:
    assert (
        CheckReport((Finding("judge", False),)).fingerprint == CheckReport((Finding("judge", False),)).fingerprint != ""
    )
    assert CheckReport((Finding("judge", False),)).fingerprint != CheckReport((Finding("clean", False),)).fingerprint


@given(st.text(max_size=60), st.integers(0, 60))
def test_a_clipped_text_keeps_both_ends_and_as_many_characters_as_allowed(text: str, chars: int) -> None:
    clipped = truncate(text, chars)
    if len(text) <= chars:
        assert clipped == text
        return
    head, cut, tail = clipped.partition(f"\n{TRUNCATION_MARK}\n")
    if TRUNCATION_MARK not in text:
        assert cut
        assert len(head) + len(tail) == chars
        assert len(tail) - len(head) in (0, 1)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(clipped) == chars + len(TRUNCATION_MARK) + 2


@given(st.text(max_size=60), st.integers(0, 60))
def test_mode_head_keeps_the_beginning_and_says_so_only_when_it_cuts(text: str, chars: int) -> None:
    clipped = truncate(text, chars, "head")
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
    assert slugify(command) == name


@given(
    st.lists(
        st.sampled_from(["make", "make!", "make 2", "make_2", "make 2 2", "x" * 50, "x" * 60, "", "!"]) | st.text()
    )
)
def test_slugs_are_unique_and_one_for_each_command(commands: list[str]) -> None:
    made = unique_slugs(tuple(commands))
    assert len(made) == len(commands)
    assert len({name.casefold() for name in made}) == len(made)
    assert all(re.fullmatch("[A-Za-z0-9_]+", name) for name in made)
    assert unique_slugs(tuple(commands[:-1])) == made[: max(len(made) - 1, 0)]


def test_a_number_tells_equal_slugs_apart() -> None:
    assert unique_slugs(("make test", "make-test", "make test")) == ("make_test", "make_test_2", "make_test_3")
    assert unique_slugs(("a_2", "a", "a", "!")) == ("a_2", "a", "a_3", "check")
    assert unique_slugs(("make test", "Make Test")) == ("make_test", "Make_Test_2")


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
    ("other codes for a terminal", "\x1b]0;title\x07\x1b[2Kboom\x1b(B", "boom"),
    ("line ends", "a\r\nb\rc", "a\nb\nc"),
    ("a time of go", "at 2026-11-16 03:05:24.34 +0000 UTC m=+0.0006", "at 2026-11-17 13:15:24.344 +0000 UTC m=+12.5"),
    ("a time of a log of go", "2024/01/02 03:04:05 boom", "2025/11/12 13:14:15 boom"),
    ("a time of syslog", "Nov  6 03:05:24 host boom", "Dec 16 13:15:34 host boom"),
    ("a time of ctime", "Mon Nov 16 03:05:24 2026: boom", "Tue Dec  1 13:05:24 2026: boom"),
    ("a time of HTTP", "Mon, 16 Nov 2026 03:05:24 GMT", "Tue, 01 Dec 2026 13:05:24 GMT"),
    ("a time of a web server", "[16/Nov/2026:03:05:24 +0000] GET", "[01/Dec/2026:13:05:24 +0100] GET"),
    ("a time as people write it", "1/2/2024, 3:04:05 AM boom", "11/12/2025, 13:14:15 boom"),
    ("seconds since 1970", "at 1794797906.1448 boom", "at 1794797920.5 boom"),
    ("milliseconds since 1970", "at 1794798061375 boom", "at 1794798061999 boom"),
    ("a duration of minutes", "FAIL (1m30s)", "FAIL (2m5.5s)"),
    ("a duration of hours", "took 1h2m3s", "took 2h0m59s"),
    ("a duration like a clock", "in 75.32s (0:01:15)", "in 5.3s (0:00:05.301)"),
    ("a duration with a word", "finished in 12 seconds", "finished in 1.5 seconds"),
    ("a duration of microseconds", "took 12µs", "took 7.5µs"),
    ("a duration by its name", "duration_ms: 441.8", "duration_ms: 12"),
    ("a duration in totals", "# duration_ms 441.8", "# duration_ms 12.4"),
    ("a duration in JSON", '{"Elapsed":0.01}', '{"Elapsed":2}'),
    ("a duration in XML", '<testcase time="0.012">', '<testcase time="1.5">'),
    ("an offset in code", "a.go:9 +0x25", "a.go:9 +0x1a3"),
    ("an argument of go", "tRunner(0xc000085040, 0x53a458?)", "tRunner(0xc000007d40, 0x53a4ff)"),
    ("an identity of Java", "com.example.Thing@1b6d3586", "com.example.Thing@4554617c"),
    ("a path for a while", "see /var/tmp/x1/a.log", "see /tmp/y2/b.log"),
    ("a temporary path of Windows", r"C:\Users\a b\AppData\Local\Temp\x1\y", r"D:\Temp\z"),
    ("a temporary path elsewhere", "/data/pytest-of-me/pytest-12/x", "/data/pytest-of-me/pytest-13/x"),
    ("a process id in a warning", "(node:1234) Warning: boom", "(node:99) Warning: boom"),
    ("a process id of a checker", "==123== Invalid read", "==45678== Invalid read"),
    ("a thread", "thread 'main' (12415) panicked", "thread 'main' (7) panicked"),
    ("a goroutine", "goroutine 19 [running]:", "goroutine 7 [running]:"),
    ("a worker", "[gw0] FAILED a", "[gw1] FAILED a"),
    ("a seed", "Using --randomly-seed=1938071357", "Using --randomly-seed=7"),
    ("a line of go", "\t/srv/project/a.go:12 +0x1", "\t/srv/project/a.go:120 +0x1"),
    ("a line and a column in brackets", "Unexpected token (2:0)", "Unexpected token (12:34)"),
    ("a place in a stack of Node", "at f (node:internal/x/test:796:25)", "at f (node:internal/x/test:835:12)"),
    ("a place in a stack of Java", "at A.f(A.java:12)", "at A.f(A.java:99)"),
    ("a place in what was typed in", "<stdin>:3: boom", "<stdin>:4: boom"),
    ("a place in a Makefile", "Makefile:12: *** boom", "Makefile:9: *** boom"),
    ("a place as TypeScript writes it", "src/a.ts(12,5): error TS1", "src/a.ts(9,17): error TS1"),
    ("a place as linters write it", "  12:5  error  no", "   9:17  error  no"),
    ("a place in a script", "/bin/sh: 12: foo: not found", "/bin/sh: 1: foo: not found"),
    ("a link to a line", "a.py#L12-L20", "a.py#L3"),
    ("a place at the end of a sentence", "see a.py:12.", "see a.py:9."),
    ("numbers of lines beside code", "  > 9 | boom()\n   10 |\n", " > 12 | boom()\n  13 |\n"),
    ("numbers of lines beside code of Rust", "9 | boom()\n  |  ^^\n", "120 | boom()\n    |  ^^\n"),
    ("a column in words", "line 3, column 5", "line 12, column 17"),
]


@pytest.mark.parametrize(("one", "other"), [pytest.param(*row[1:], id=row[0]) for row in SAME])
def test_what_changes_from_run_to_run_does_not_change_the_fingerprint(one: str, other: str) -> None:
    assert failure_fingerprint("tests", 1, one) == failure_fingerprint("tests", 1, other)


DIFFERENT = [
    ("a port of localhost", "localhost:8080 refused", "localhost:9090 refused"),
    ("a port of an address", "127.0.0.1:8080 refused", "127.0.0.1:9090 refused"),
    ("a port of an IPv6 address", "[::1]:8080 refused", "[::1]:9090 refused"),
    ("a port in words", "port 8080 in use", "port 9090 in use"),
    ("a count of failures", "3 failed, 2 passed", "4 failed, 1 passed"),
    ("a name", "FAILED test_a", "FAILED test_b"),
    ("a path", "src/a.py:1: boom", "src/b.py:1: boom"),
    ("an end beyond what a prompt shows", "x" * 9000 + "a", "x" * 9000 + "b"),
    ("a port of a name", "db:5432: connection refused", "db:6543: connection refused"),
    ("a port of a host", "db.example.com:5432 refused", "db.example.com:6543 refused"),
    ("a port in a URL", "http://localhost:8080/x.js", "http://localhost:9090/x.js"),
    ("a port at the end of a URL", "tcp://db:5432", "tcp://db:6543"),
    ("a port without a host", "listen tcp :8080: in use", "listen tcp :9090: in use"),
    ("a port by its name", "port=8080", "port=9090"),
    ("a small number in hexadecimal", "expected 0x10", "expected 0x20"),
    ("a folder of the project that is named tmp", "src/tmp/a.py: boom", "src/tmp/b.py: boom"),
    ("a value", "assert 3 == 4", "assert 5 == 4"),
    ("a parameter that looks like a duration", "FAILED test_waits[5s]", "FAILED test_waits[10s]"),
    ("a name with a number", "FAILED test_5s", "FAILED test_10s"),
    ("a count of files", "3 files changed", "4 files changed"),
    ("a version", "needs 1.2.3", "needs 1.2.4"),
    ("a date", "due 2024-01-02", "due 2025-11-12"),
]


@pytest.mark.parametrize(("one", "other"), [pytest.param(*row[1:], id=row[0]) for row in DIFFERENT])
def test_what_tells_two_failures_apart_changes_the_fingerprint(one: str, other: str) -> None:
    assert failure_fingerprint("tests", 1, one) != failure_fingerprint("tests", 1, other)


def test_name_and_exit_code_are_part_of_the_fingerprint_and_an_empty_output_is_one_like_any_other() -> None:
    marks = {
        failure_fingerprint("a", 1, ""),
        failure_fingerprint("b", 1, ""),
        failure_fingerprint("a", 2, ""),
        failure_fingerprint("a", None, ""),
    }
    assert len(marks) == 4
    assert failure_fingerprint("a", 1, "") == failure_fingerprint("a", 1, "")


@given(st.text())
def test_every_output_has_a_fingerprint_undecodable_bytes_too(text: str) -> None:
    assert len(failure_fingerprint("tests", 1, text + "\udcff")) == 24


def test_failing_tests_are_the_failure_where_they_are_known() -> None:
    tests = check.SuiteResult("pytest", ("a.py::x", "b.py::y"), 2, passed=3)
    other = check.SuiteResult("pytest", ("a.py::x", "b.py::y"), 3, passed=0)
    mark = failure_fingerprint("tests", 1, "one text", tests)
    assert mark == failure_fingerprint("tests", 2, "quite another", other)
    assert mark != failure_fingerprint("lint", 1, "one text", tests)
    assert mark != failure_fingerprint("tests", 1, "one text", check.SuiteResult("pytest", ("a.py::x",), 2, passed=3))
    assert mark != failure_fingerprint("tests", 1, "one text")
    assert mark != failure_fingerprint(
        "tests", 1, "one text", check.SuiteResult("pytest", ("a.py::xb.py::y",), 2, passed=3)
    )


def test_where_no_test_failed_the_text_is_the_failure() -> None:
    passed = check.SuiteResult("pytest", (), 0, passed=3)
    assert failure_fingerprint("tests", 1, "coverage too low", passed) == failure_fingerprint(
        "tests", 1, "coverage too low"
    )
    assert failure_fingerprint("tests", 1, "coverage too low", passed) != failure_fingerprint(
        "tests", 1, "no coverage", passed
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("t (x=<object object at 0x7f01>)", "t (x=<object object at 0x8e02>)", True),
        ("t (path='/tmp/ab12/x')", "t (path='/tmp/cd34/x')", True),
        ("t[5s]", "t[10s]", False),
        ("t[0x10]", "t[0x20]", False),
        ("t[8080]", "t[9090]", False),
        ("src/tmp/a::t", "src/tmp/b::t", False),
    ],
)
def test_a_name_is_a_name_but_for_a_place_in_memory_or_on_disk(one: str, other: str, same: bool) -> None:
    marks = {failure_fingerprint("tests", 1, "", check.SuiteResult("x", (name,), 1)) for name in (one, other)}
    assert (len(marks) == 1) is same


@given(st.text(alphabet=st.sampled_from("\x1b[]0;m\x07\\?(BPab\r\n"), max_size=40))
def test_plain_text_holds_no_escape_codes_and_one_kind_of_line_end(text: str) -> None:
    assert "\r" not in strip_escapes(text)
    assert "\x1b[0m" not in strip_escapes(f"{text}\x1b[0m")
    assert strip_escapes("".join(letter for letter in text if letter.isalpha())) == "".join(filter(str.isalpha, text))
