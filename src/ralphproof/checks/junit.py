"""JUnit reports that a check's command has just written.

Reports are untrusted: one with a document type, too large, too deep or not well-formed is ignored.
"""

from __future__ import annotations

import os
import shlex
import stat
import time
from collections.abc import Iterator

from ralphproof.base.value import replace, value
from ralphproof.checks.runner_output import bounded_names
from ralphproof.engine.check import SuiteResult

MAX_BYTES = 16 * 1024 * 1024
MAX_CASES = 100_000
MAX_DEPTH = 50
MAX_NAME_CHARS = 2000
_CLOCK_NS = 50_000_000  # how far a disk's clock may be behind
_FLAGS = ("--junitxml", "--junit-xml", "--junitfile")
_VARIABLE = "JEST_JUNIT_OUTPUT_FILE="
_READING = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@value
class ExpectedReport:
    """A report that the command will write. `previous` identifies an older file at the same path."""

    path: str
    root: str
    started_ns: int
    previous: tuple[int, ...]

    def merge_into(self, tests: SuiteResult | None) -> SuiteResult | None:
        """The results from the output, completed by the report; the report alone where the output has none.

        All names come from the report: the output has different ones, which could not be compared.
        """
        report = self._read()
        if tests is None or report is None:
            return report if tests is None else replace(tests, names=())
        if not _counts_agree(tests, report):
            return replace(tests, names=())
        skipped = report.skipped if tests.skipped is None else tests.skipped
        xfailed = report.xfailed if tests.xfailed is None else tests.xfailed
        return replace(tests, skipped=skipped, xfailed=xfailed, names=report.names)

    def _read(self) -> SuiteResult | None:
        text = self._read_file()
        cases = None if text is None else _parse_cases(text)
        return None if cases is None else _to_tests(cases, f"{self.root}/")

    def _read_file(self) -> bytes | None:
        """The report, if it is a file in the project that was written since."""
        folder, root = os.path.realpath(os.path.dirname(self.path)), os.path.realpath(self.root)
        if os.path.commonpath((folder, root)) != root:
            return None
        try:
            with open(os.path.join(folder, os.path.basename(self.path)), "rb", opener=_open_report) as report:
                return report.read(MAX_BYTES) if self._is_fresh(os.fstat(report.fileno())) else None
        except OSError:
            return None

    def _is_fresh(self, facts: os.stat_result) -> bool:
        """Whether it is a regular file of acceptable size, and not the previous one."""
        since = facts.st_mtime_ns >= self.started_ns and _file_identity(facts) != self.previous
        return since and stat.S_ISREG(facts.st_mode) and facts.st_size <= MAX_BYTES


def _open_report(path: str, _flags: int) -> int:
    """Open for reading, without following a link or blocking on a pipe."""
    return os.open(path, _READING)


def find_expected_report(command: str, folder: str, root: str) -> ExpectedReport | None:
    """The one report that this command writes when it runs in this folder; None where it names none."""
    files = list(_report_paths(command))
    if len(files) != 1 or not files[0] or any(char in files[0] for char in "$`*?~\0"):
        return None
    path = os.path.join(folder, files[0])
    try:
        previous = _file_identity(os.lstat(path))
    except OSError:
        previous = ()
    return ExpectedReport(path, root, time.time_ns() - _CLOCK_NS, previous)


def _file_identity(facts: os.stat_result) -> tuple[int, ...]:
    """Differs after every change: the mtime can be set at will, the ctime cannot."""
    return (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


def _report_paths(command: str) -> Iterator[str]:
    """The report files that a command names."""
    try:
        words = shlex.split(command)
    except ValueError:
        return
    reporters, destinations = list[str](), list[str]()
    for word, after in zip(words, (*words[1:], ""), strict=True):
        flag, is_set, value = word.partition("=")
        if flag in _FLAGS:
            yield value if is_set else after
        elif word.startswith(_VARIABLE):
            yield value
        elif flag == "--test-reporter":
            reporters.append(value if is_set else after)
        elif flag == "--test-reporter-destination":
            destinations.append(value if is_set else after)
    for reporter, destination in zip(reporters, destinations, strict=False):
        if reporter == "junit" and destination not in ("stdout", "stderr"):
            yield destination


class _BadReport(Exception):
    """Not a report, or one beyond the limits."""


class _ReportParser:
    """Collects the cases of a report: (class, name, result)."""

    def __init__(self) -> None:
        self.cases: list[tuple[str, str, str]] = []
        self._depth, self._case = 0, 0

    def refuse(self, *_: object) -> None:
        raise _BadReport

    def start_element(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH or (self._depth == 1 and tag not in ("testsuites", "testsuite")):
            raise _BadReport
        if tag == "testcase":
            names = attributes.get("classname", ""), attributes.get("name", "")
            if self._case or not names[1] or len(self.cases) >= MAX_CASES or max(map(len, names)) > MAX_NAME_CHARS:
                raise _BadReport
            self._case = self._depth
            self.cases.append((*names, "passed"))
        elif self._case and self._depth == self._case + 1 and tag in ("failure", "error", "skipped"):
            self._set_result(_case_result(tag, attributes))

    def _set_result(self, result: str) -> None:
        class_name, name, known = self.cases[-1]
        # A failure stays a failure, whatever else follows.
        self.cases[-1] = (class_name, name, known if known.startswith("failed") else result)

    def end_element(self, _tag: str) -> None:
        self._case = 0 if self._depth == self._case else self._case
        self._depth -= 1


def _case_result(tag: str, attributes: dict[str, str]) -> str:
    """The result of a case. pytest also has cases for modules that could not be loaded, or were skipped as a whole."""
    module = " module" if attributes.get("message", "").startswith("collection ") else ""
    if tag == "skipped":
        return "xfailed" if attributes.get("type") == "pytest.xfail" else f"skipped{module}"
    return f"failed{module}"


def _parse_cases(text: bytes) -> list[tuple[str, str, str]] | None:
    """All cases of a report; None where it is invalid."""
    from xml.parsers import expat

    report, parser = _ReportParser(), expat.ParserCreate()
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = report.refuse
    parser.StartElementHandler, parser.EndElementHandler = report.start_element, report.end_element
    try:
        parser.Parse(text, True)
    except (expat.ExpatError, _BadReport, LookupError, ValueError):  # the latter two for an unknown encoding
        return None
    return report.cases


def _to_tests(cases: list[tuple[str, str, str]], root: str) -> SuiteResult:
    """The summary of all cases. One test may have two: pytest adds one for a failure in teardown."""
    results = [result for _, _, result in cases]
    named = [
        ((f"{class_name}::{name}" if class_name else name).replace(root, ""), result)
        for class_name, name, result in cases
    ]
    failing = tuple(sorted({name for name, result in named if result.startswith("failed")}))
    complete = "failed module" not in results
    skipped, xfailed = results.count("skipped") + results.count("skipped module"), results.count("xfailed")
    names = [name for name, result in dict(named[::-1]).items() if not result.endswith(" module")]
    return SuiteResult(
        "junit", failing, sum(result.startswith("failed") for result in results), results.count("passed"),
        skipped if complete else None, xfailed if complete else None, bounded_names(names),
    )  # fmt: skip


def _counts_agree(tests: SuiteResult, report: SuiteResult) -> bool:
    """Whether output and report have the same counts. A report counts an unexpected pass as passed."""
    expected_failures = tests.xfailed or 0
    if tests.failed != report.failed or report.passed is None:
        return False
    if tests.passed is not None and not tests.passed <= report.passed <= tests.passed + expected_failures:
        return False
    return None in (tests.skipped, report.skipped) or tests.skipped == report.skipped
