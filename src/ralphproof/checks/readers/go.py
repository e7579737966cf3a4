"""Test results of go test (1.21 to 1.27; quiet, -v or -json).

It prints no counts. What can be verified is that every package has a result, every subtest its parent, and, where
starts are printed, that every started test ended.
"""

from __future__ import annotations

from ralphproof.checks.readers.counts import bounded_names
from ralphproof.engine.check import SuiteResult

_RESULTS = {"PASS:": "pass", "FAIL:": "fail", "SKIP:": "skip"}
_OPEN = "open"
_PACKAGE_PREFIXES = ("FAIL\t", "ok  \t")


def read_go(lines: list[str]) -> list[SuiteResult] | None:
    """One run of all packages; None where one of them is incomplete."""
    packages = _GoPackages()
    if not any(line.startswith(_PACKAGE_PREFIXES) or _is_event(line) for line in lines):
        return []
    for line in lines:
        if _is_event(line):
            whole = _parse_event_line(packages, line)
        elif line.startswith(_PACKAGE_PREFIXES):
            whole = _parse_package_line(packages, line)
        else:
            whole = _parse_text_line(packages, line)
        if not whole:
            return None
    return packages.result()


def _is_event(line: str) -> bool:
    return line.startswith('{"') and '"Action":"' in line and '"Package":"' in line


def _parse_package_line(packages: _GoPackages, line: str) -> bool:
    """Parse the last line of a package; False where the output cannot be trusted after it."""
    package, _, why = line.split("\t")[1].partition(" ")
    if why in ("[build failed]", "[setup failed]") and packages.has_unassigned:
        return False
    return packages.finish_package(package, "fail" if line.startswith("F") else "pass")


def _parse_text_line(packages: _GoPackages, line: str) -> bool:
    """Parse a line of text; False where the output cannot be trusted after it. The package follows its tests."""
    if line in ("PASS", "FAIL") or line.startswith(("panic: ", "exit status ")):
        return packages.add_final_line(line)
    if line.startswith("=== RUN "):
        packages.set_result("", line[8:].strip(), _OPEN)
        return not packages.final_line
    words = line.lstrip(" ").split(" ", 3)
    if len(words) < 4 or words[0] != "---" or words[1] not in _RESULTS or not words[3].startswith("("):
        return True
    depth, name = (len(line) - len(line.lstrip(" "))) // 4, words[2]
    if depth and "/" not in name:
        return True  # an indented line of a log: what is a part of a test has a slash
    return not packages.final_line and packages.add_printed(depth, name, _RESULTS[words[1]])


def _parse_event_line(packages: _GoPackages, line: str) -> bool:
    """Parse a line of JSON; False where the output cannot be trusted after it."""
    import json

    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return False
    action, package, test = (str(event.get(field) or "") for field in ("Action", "Package", "Test"))
    packages.events = True
    if test:
        if action in ("run", "pass", "fail", "skip"):
            packages.set_result(package, test, _OPEN if action == "run" else action)
        return True
    if action in ("pass", "fail", "skip"):
        return packages.finish_package(package, action)
    packages.tests_of(package)
    return True


class _GoPackages:
    """The results of all packages so far; "" is the package whose name follows its tests."""

    def __init__(self) -> None:
        self.events = False
        self.final_line = ""  # the last words of a package, after which nothing comes but its result
        self._unfinished: dict[str, dict[str, str]] = {}
        self._path: list[str] = []
        self._ended: dict[str, int] = {}
        self._failed_names: list[str] = []
        self._all_names: list[str] = []
        self._passed, self._skipped, self._counts = 0, 0, False
        self._complete = True  # no package is among those that failed, and no test was cut off: all tests were begun

    @property
    def has_unassigned(self) -> bool:
        """Whether there are tests whose package has not been named yet."""
        return bool(self._unfinished.get(""))

    def add_final_line(self, line: str) -> bool:
        """Whether this may be the final line of a package after the ones before it."""
        fits = not self.final_line or line.startswith("exit status ")
        self.final_line = line
        return fits

    def tests_of(self, package: str) -> dict[str, str]:
        """The results of the package's tests so far."""
        return self._unfinished.setdefault(package, {})

    def set_result(self, package: str, test: str, result: str) -> None:
        self._counts = self._counts or result == _OPEN
        tests = self.tests_of(package)
        tests[test] = "fail" if tests.get(test) == "fail" else result  # with -count a test runs more than once

    def add_printed(self, depth: int, test: str, result: str) -> bool:
        """Add a printed result; False where it is not a subtest of the test above it."""
        if depth > len(self._path) or (depth and not test.startswith(f"{self._path[depth - 1]}/")):
            return False
        self._path[depth:] = [test]
        self.set_result("", test, result)
        return True

    def finish_package(self, package: str, result: str) -> bool:
        """Whether the package's result agrees with its tests. One that failed without a failed test is listed."""
        tests = self._unfinished.pop(package if self.events else "", {})
        last, self.final_line, self._path = self.final_line, "", []
        red = [test for test, end in tests.items() if end in ("fail", _OPEN)]
        if result != "fail" and (red or last not in ("", "PASS")):
            return False
        self._ended[package] = number = self._ended.get(package, 0) + 1
        again = "" if number == 1 else f" (run {number})"
        if result == "fail":
            self._complete = self._complete and bool(red) and _OPEN not in tests.values()
            self._failed_names += [f"{package}.{test}{again}" for test in red] or [f"{package}{again}"]
        ends = list(tests.values())
        self._passed, self._skipped = self._passed + ends.count("pass"), self._skipped + ends.count("skip")
        self._all_names += [f"{package}.{test}{again}" for test in tests]
        return True

    def result(self) -> list[SuiteResult] | None:
        """All results as one run; None where a package did not end."""
        if (
            any(self._unfinished.values())
            or (self.events and self._unfinished)
            or self.final_line.startswith("panic: ")
        ):
            return None
        if not self._ended or (self.final_line == "FAIL" and not self._failed_names):
            return None
        names = tuple(sorted(self._failed_names))
        if not self._counts:
            return [SuiteResult("go", names, len(names))]
        skipped, xfailed = (self._skipped, 0) if self._complete else (None, None)
        return [SuiteResult("go", names, len(names), self._passed, skipped, xfailed, bounded_names(self._all_names))]
