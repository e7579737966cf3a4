"""Test results of cargo test (1.65 to 1.97).

Unless quiet, it also prints a line for every test.
"""

from __future__ import annotations

import re

from ralphproof.checks.readers.counts import bounded_names, number_duplicates, parse_counts
from ralphproof.engine.check import SuiteResult

_RUN_START = r"running (\d{1,9}) tests?(?: \(shuffle seed: \d+\))?"
_TEST = r"test (.+?)(?: - (?:should panic|compile|compile fail))? \.\.\. .*"
_MAX_LINE_CHARS = 1000  # of such a line
_RESULT_PREFIX = "test result: "
_BINARY = r" +Running (?:unittests )?(?P<file>\S+) \((?:.*[/\\])?(?P<crate>[^/\\]+)-[0-9a-f]{16}(?:\.exe)?\)"
_DOCS = r" +Doc-tests (?P<crate>\S+)"
_FAILURE_PREFIXES = ("error: test failed, to rerun", "error: doctest failed, to rerun")
_TARGETS_FAILED = (
    r"error: \d{1,9} targets? failed:"  # with --no-fail-fast; without, the first binary that fails is the last
)


def read_cargo(lines: list[str]) -> list[SuiteResult] | None:
    """One run of all binaries; None where one is incomplete, or something did not compile."""
    run = _CargoRun()
    for at, line in enumerate(lines):
        if line.startswith("error: could not compile"):
            return None
        if line.startswith(_FAILURE_PREFIXES):
            run.failed_binaries += 1
        elif line.startswith("error: ") and re.fullmatch(_TARGETS_FAILED, line):
            run.complete = True
        elif line.startswith(_RESULT_PREFIX):
            if not run.finish_binary(line, _listed_failures(lines, at)):
                return None
        elif not run.read_line(line):
            return None
    return run.result()


class _CargoRun:
    """The results of all binaries so far."""

    def __init__(self) -> None:
        self.failed_binaries = 0  # how many binaries failed, as cargo says beside them
        self.complete = False
        self._running, self._binary = False, ""
        self._ended: dict[str, int] = {}
        self._failed_names: list[str] = []
        self._binaries_with_failures, self._passed, self._ignored = 0, 0, 0
        self._expected, self._tests = 0, list[str]()
        self._all_names: list[str] | None = []  # all tests by name; None where not all are known

    def read_line(self, line: str) -> bool:
        """False where the output cannot be trusted after this line."""
        if line.startswith("running ") and (begun := re.fullmatch(_RUN_START, line)):
            fresh = not self._running
            self._running, self._expected, self._tests = True, int(begun[1]), []
            return fresh
        if line.startswith("test ") and len(line) < _MAX_LINE_CHARS and (test := re.fullmatch(_TEST, line)):
            self._tests.append(test[1])
        if binary := line.startswith("  ") and (re.fullmatch(_BINARY, line) or re.fullmatch(_DOCS, line)):
            self._binary = f"{binary['crate']} {binary.groupdict().get('file', 'docs')}: "
        return True

    def finish_binary(self, line: str, names: list[str]) -> bool:
        """Whether a binary with this last line listed as many failures as it counts."""
        counts = parse_counts(line.partition(". ")[2].partition("; finished in")[0], "; ")
        if counts is None or not self._running or counts.get("failed", 0) != len(names):
            return False
        self._ended[self._binary] = number = self._ended.get(self._binary, 0) + 1
        again = "" if number == 1 else f" (run {number})"
        self._failed_names += [f"{self._binary}{name}{again}" for name in _without_line_numbers(names)]
        self._binaries_with_failures += bool(names)
        self._passed += counts.get("passed", 0)
        self._ignored += counts.get("ignored", 0)
        self._add_names(set(names), again)
        self._running, self._binary = False, ""
        return True

    def _add_names(self, failed: set[str], again: str) -> None:
        """Add the binary's tests to all names, if they are as many as announced: a test could print such lines."""
        if self._all_names is None or len(self._tests) != self._expected or not failed <= set(self._tests):
            self._all_names = None
        else:
            self._all_names += [f"{self._binary}{name}{again}" for name in _without_line_numbers(self._tests)]

    def result(self) -> list[SuiteResult] | None:
        """All results as one run; None where a binary did not end, or only some are named."""
        if (
            self._running
            or self.failed_binaries > self._binaries_with_failures
            or ("" in self._ended and any(self._ended))
        ):
            return None
        if not self._ended:
            return []
        names, every = tuple(sorted(self._failed_names)), bounded_names(self._all_names or [])
        ignored, xfailed = (self._ignored, 0) if self.complete or not names else (None, None)
        return [SuiteResult("cargo", names, len(names), self._passed, ignored, xfailed, every)]


def _listed_failures(lines: list[str], at: int) -> list[str]:
    """The names in the list that ends before this line; test output that looks like one is elsewhere."""
    names: list[str] = []
    at -= 1
    if at < 0 or lines[at]:
        return []
    while at > 0 and lines[at - 1].startswith("    "):
        at -= 1
        names.append(lines[at][4:])
    return names[::-1] if at > 0 and lines[at - 1] == "failures:" else []


def _without_line_numbers(names: list[str]) -> list[str]:
    """Unique names without the line numbers of documentation tests."""
    return number_duplicates([re.sub(r" \(line \d+\)", "", name) for name in names])
